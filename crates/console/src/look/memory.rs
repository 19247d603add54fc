//! What is remembered from round to round: ends of logs, and how far groups were behind. Bounded; ends are lost with the process,
//! histories are kept by [`super::kept`].

use std::collections::HashMap;
use std::sync::Arc;

use model::TopicPartition;
use serving::lag::arrivals::{Arrivals, Behind};
use serving::lag::history::{History, Lag};
use serving::overview::rate::{Seen, per_second};

/// Partitions whose ends are remembered: 1 KiB each at most.
pub(super) const PARTITIONS_MAX: usize = 40_000;
/// Groups whose lag is remembered: 6.7 KB each.
pub(super) const GROUPS_MAX: usize = 2_000;
/// The shortest time that a rate is of, in milliseconds: a request for a topic or group that was just made causes an earlier look, and
/// the rate between two such looks would be of a moment.
const RATE_MS_MIN: i64 = 10_000;

/// The end of one log over time.
#[derive(Debug)]
struct Growth {
    arrivals: Arrivals,
    /// Where the next rate begins.
    since: Seen,
    per_second: Option<f64>,
}

impl Growth {
    fn of(seen: Seen) -> Growth {
        let mut arrivals = Arrivals::default();
        arrivals.note(seen);
        Growth { arrivals, since: seen, per_second: None }
    }

    fn note(&mut self, seen: Seen) {
        self.arrivals.note(seen);
        let is_soon = (0..RATE_MS_MIN).contains(&seen.at_ms.saturating_sub(self.since.at_ms));
        if !is_soon || seen.end < self.since.end {
            self.per_second = per_second(self.since, seen);
            self.since = seen;
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Memory {
    ends: HashMap<TopicPartition, Growth>,
    groups: HashMap<String, Arc<History>>,
}

impl Memory {
    /// With histories of an earlier console.
    pub(super) fn of(histories: Vec<(String, History)>) -> Memory {
        let groups = histories.into_iter().take(GROUPS_MAX);
        let groups = groups.map(|(group, history)| (group, Arc::new(history))).collect();
        Memory { groups, ..Memory::default() }
    }

    /// Takes in the ends of one round; partitions that are gone are forgotten.
    pub(super) fn note_ends(
        &mut self,
        ends: &HashMap<TopicPartition, i64>,
        at_ms: i64,
        exists: impl Fn(&TopicPartition) -> bool,
    ) {
        self.ends.retain(|partition, _| exists(partition));
        for (partition, end) in ends {
            let (known, seen) = (self.ends.len(), Seen { end: *end, at_ms });
            if let Some(growth) = self.ends.get_mut(partition) {
                growth.note(seen);
            } else if known < PARTITIONS_MAX {
                self.ends.insert(partition.clone(), Growth::of(seen));
            }
        }
    }

    pub(super) fn per_second(&self, partition: &TopicPartition) -> Option<f64> {
        self.ends.get(partition)?.per_second
    }

    pub(super) fn behind(
        &self,
        partition: &TopicPartition,
        position: i64,
        now_ms: i64,
    ) -> Option<Behind> {
        self.ends.get(partition)?.arrivals.behind(position, now_ms)
    }

    /// Takes in how far a group is behind, if that is known; gives its last day.
    pub(super) fn note_group(&mut self, group: &str, at_ms: i64, lag: Option<Lag>) -> Arc<History> {
        let Some(lag) = lag else { return self.groups.get(group).cloned().unwrap_or_default() };
        if self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(group) {
            return Arc::default();
        }
        let history = self.groups.entry(group.to_owned()).or_default();
        Arc::make_mut(history).note(at_ms, lag);
        Arc::clone(history)
    }

    /// Forgets groups that are gone.
    pub(super) fn keep_groups(&mut self, exists: impl Fn(&str) -> bool) {
        self.groups.retain(|group, _| exists(group));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_comes_soon_counts_for_ages_and_not_for_rates() {
        let partition = TopicPartition::new("t", 0);
        let mut memory = Memory::default();
        let mut look = |at_ms: i64, end: i64| {
            memory.note_ends(&HashMap::from([(partition.clone(), end)]), at_ms, |_| true);
            (memory.per_second(&partition), memory.behind(&partition, 0, at_ms).map(|age| age.ms))
        };
        assert_eq!(look(0, 0), (None, Some(0)));
        assert_eq!(
            look(1000, 7),
            (None, Some(858)),
            "the first of seven that came within a second"
        );
        assert_eq!(look(15_000, 30), (Some(2.0), Some(14_858)));
        assert_eq!(look(15_100, 90).0, Some(2.0), "not six hundred a second");
        assert_eq!(look(35_000, 90).0, Some(3.0));
        assert_eq!(look(35_500, 10).0, None, "the log was cut");
    }
}
