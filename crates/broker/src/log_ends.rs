//! When the records arrived that groups have not read: looks at the ends of the partitions that groups have committed
//! offsets of, every [`LOOK_EVERY`] and whenever somebody asks for metrics. In memory only: after a start what is older
//! than the first look counts as that old.

use std::collections::HashMap;
use std::time::Duration;

use model::{Offset, Timestamp, TopicPartition};
use parking_lot::Mutex;
use serving::lag::arrivals::Arrivals;
use serving::overview::rate::Seen;

/// How often the ends are looked at while nobody asks.
pub const LOOK_EVERY: Duration = Duration::from_secs(15);
/// Looks closer together than this, in milliseconds, say nothing new.
const APART_MS: i64 = 1_000;
/// Partitions whose ends are remembered: 1 KiB each at most.
const PARTITIONS_MAX: usize = 40_000;

/// The ends of partitions.
#[derive(Debug, Default)]
pub struct LogEnds(Mutex<HashMap<TopicPartition, Arrivals>>);

impl LogEnds {
    /// Takes in where a partition ends now.
    pub fn note(&self, partition: &TopicPartition, end: Offset, now: Timestamp) {
        let seen = Seen { end: end.0, at_ms: now.0 };
        let mut ends = self.0.lock();
        let room = ends.len() < PARTITIONS_MAX;
        match ends.get_mut(partition) {
            Some(known) if known.last().is_some_and(|last| is_recent(last, now)) => {}
            Some(known) => known.note(seen),
            None if room => ends.entry(partition.clone()).or_default().note(seen),
            None => {}
        }
    }

    /// How long ago the record at `position` arrived, the oldest that is not read; zero if all are. `None`: the
    /// partition was never looked at.
    pub fn behind(
        &self,
        partition: &TopicPartition,
        position: Offset,
        now: Timestamp,
    ) -> Option<Duration> {
        let behind = self.0.lock().get(partition)?.behind(position.0, now.0)?;
        Some(Duration::from_millis(behind.ms.unsigned_abs()))
    }

    /// Forgets partitions that were not looked at since.
    pub fn forget_before(&self, then: Timestamp) {
        let is_known =
            |ends: &Arrivals| ends.last().is_some_and(|last| last.at_ms + APART_MS >= then.0);
        self.0.lock().retain(|_, ends| is_known(ends));
    }
}

fn is_recent(last: Seen, now: Timestamp) -> bool {
    (0..APART_MS).contains(&now.0.saturating_sub(last.at_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_behind_by_the_age_of_what_it_has_not_read() {
        let (ends, partition) = (LogEnds::default(), TopicPartition::new("t", 0));
        let behind = |at, now| ends.behind(&partition, Offset(at), Timestamp(now));
        assert_eq!(behind(0, 0), None);
        for (end, at) in [(0, 1_000), (1, 1_500), (10, 11_000), (10, 26_000)] {
            ends.note(&partition, Offset(end), Timestamp(at));
        }
        assert_eq!(behind(10, 30_000), Some(Duration::ZERO));
        assert_eq!(behind(9, 30_000), Some(Duration::from_secs(19)));
        assert_eq!(
            behind(4, 30_000),
            Some(Duration::from_secs(24)),
            "the look half a second later is left out"
        );
    }

    #[test]
    fn partitions_that_nobody_has_committed_are_forgotten() {
        let ends = LogEnds::default();
        let [left, kept] = ["left", "kept"].map(|name| TopicPartition::new(name, 0));
        ends.note(&left, Offset(1), Timestamp(0));
        ends.note(&kept, Offset(1), Timestamp(15_000));
        ends.forget_before(Timestamp(15_000));
        let known = |partition| ends.behind(partition, Offset(0), Timestamp(16_000)).is_some();
        assert_eq!((known(&left), known(&kept)), (false, true));
    }
}
