//! Whether a topic that the cluster's metadata lacks was deleted. It may be a broker that lags behind which was asked, and a
//! topic that was made a moment ago elsewhere: what speaks for the one or the other is weighed here.

use std::time::{Duration, Instant};

/// How long a topic must be missing, as far as answers go, if nothing else tells that it is gone.
const LAG_MAX: Duration = Duration::from_secs(1);

/// What brokers have said of a partition under the topic's id.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Told {
    /// One has appended a batch: all brokers that keep up know the topic.
    pub(super) is_taken: bool,
    /// The leader did not know the topic any more, or not yet, when it was sent a batch last.
    pub(super) is_unknown: bool,
}

/// Since when a topic is missing.
#[derive(Debug, Default)]
pub(super) struct Absence(Option<Instant>);

impl Absence {
    /// The metadata has the topic.
    pub(super) fn ends(&mut self) {
        self.0 = None;
    }

    /// A new answer lacks it. Whether it is gone: a leader that knew it knows it no more and another question says the same, or
    /// it has been missing for too long for a broker that lags behind.
    pub(super) fn goes_on(&mut self, told: impl IntoIterator<Item = Told>, now: Instant) -> bool {
        let since = *self.0.get_or_insert(now);
        let (mut is_taken, mut is_unknown) = (false, false);
        for one in told {
            is_taken |= one.is_taken;
            is_unknown |= one.is_unknown;
        }
        is_taken && is_unknown || now.saturating_duration_since(since) >= LAG_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(is_taken: bool, is_unknown: bool) -> Told {
        Told { is_taken, is_unknown }
    }

    #[test]
    fn a_topic_that_took_records_and_is_unknown_now_is_gone() {
        let now = Instant::now();
        let (took, lost) = (told(true, false), told(false, true));
        assert!(Absence::default().goes_on([took, lost], now), "of different partitions");
        assert!(Absence::default().goes_on([told(true, true)], now));
        assert!(!Absence::default().goes_on([took], now), "one answer alone");
        assert!(!Absence::default().goes_on([lost], now), "it may be new to both brokers");
        assert!(!Absence::default().goes_on([], now));
    }

    #[test]
    fn a_topic_that_stays_missing_is_gone_after_a_second() {
        let now = Instant::now();
        let mut absence = Absence::default();
        assert!(!absence.goes_on([told(false, true)], now));
        assert!(!absence.goes_on([told(false, true)], now + LAG_MAX / 2));
        assert!(absence.goes_on([told(false, false)], now + LAG_MAX));
        absence.ends();
        assert!(!absence.goes_on([told(false, true)], now + 2 * LAG_MAX), "it was there meanwhile");
        // The clock of another thread may be behind.
        assert!(!absence.goes_on([], now));
    }
}
