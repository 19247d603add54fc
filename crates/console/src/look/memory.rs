//! What is remembered from round to round: ends of logs, and how far groups were behind. Bounded; ends are lost with the process,
//! histories are kept by [`super::kept`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serving::lag::arrivals::{Arrivals, Behind};
use serving::lag::history::{History, Lag};
use serving::overview::rate::{Seen, per_second};

use super::columns::{Column, Places};

/// Partitions whose ends are remembered: a hundred bytes each, half a kilobyte where a log grows.
pub(super) const PARTITIONS_MAX: usize = 50_000;
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
    /// Those of the last look.
    places: Arc<Places>,
    /// By place. `None`: the end is not known yet.
    ends: Vec<Option<Growth>>,
    groups: HashMap<String, Arc<Mutex<History>>>,
}

impl Memory {
    /// With histories of an earlier console.
    pub(super) fn of(histories: Vec<(String, History)>) -> Memory {
        let groups = histories.into_iter().take(GROUPS_MAX);
        let groups =
            groups.map(|(group, history)| (group, Arc::new(Mutex::new(history)))).collect();
        Memory { groups, ..Memory::default() }
    }

    /// The places of the last look.
    pub(super) fn places(&self) -> &Places {
        &self.places
    }

    /// Takes in the ends of one round; partitions that are gone are forgotten.
    pub(super) fn note_ends(&mut self, places: &Arc<Places>, ends: &Column, at_ms: i64) {
        self.move_to(places);
        for (at, growth) in self.ends.iter_mut().enumerate() {
            let Some(end) = ends.get(at) else { continue };
            let seen = Seen { end, at_ms };
            match growth {
                Some(growth) => growth.note(seen),
                None => *growth = Some(Growth::of(seen)),
            }
        }
    }

    /// Keeps what is known of partitions under their places from now on.
    fn move_to(&mut self, places: &Arc<Places>) {
        let before = std::mem::replace(&mut self.places, Arc::clone(places));
        if before.are_those_of(places) {
            return;
        }
        let count = places.count().min(PARTITIONS_MAX);
        let mut ends = Vec::with_capacity(count);
        ends.resize_with(count, || None);
        for (topic, _, to) in places.topics() {
            for (from, to) in before.of_topic(topic).zip(to) {
                if let (Some(known), Some(moved)) = (self.ends.get_mut(from), ends.get_mut(to)) {
                    *moved = known.take();
                }
            }
        }
        self.ends = ends;
    }

    fn growth(&self, at: usize) -> Option<&Growth> {
        self.ends.get(at)?.as_ref()
    }

    /// Records a second of the partition at a place of the last look.
    pub(super) fn per_second(&self, at: usize) -> Option<f64> {
        self.growth(at)?.per_second
    }

    /// How long ago the record at a position of such a partition came.
    pub(super) fn behind(&self, at: usize, position: i64, now_ms: i64) -> Option<Behind> {
        self.growth(at)?.arrivals.behind(position, now_ms)
    }

    /// Takes in how far a group is behind, if that is known; gives its last day.
    pub(super) fn note_group(
        &mut self,
        group: &str,
        at_ms: i64,
        lag: Option<Lag>,
    ) -> Arc<Mutex<History>> {
        let known = self.groups.get(group).cloned();
        let Some(lag) = lag else { return known.unwrap_or_default() };
        if known.is_none() && self.groups.len() >= GROUPS_MAX {
            return Arc::default();
        }
        let history = known.unwrap_or_else(|| {
            let begun = Arc::<Mutex<History>>::default();
            self.groups.insert(group.to_owned(), Arc::clone(&begun));
            begun
        });
        history.lock().expect("no code under this lock panics").note(at_ms, lag);
        history
    }

    /// Forgets groups that are gone.
    pub(super) fn keep_groups(&mut self, exists: impl Fn(&str) -> bool) {
        self.groups.retain(|group, _| exists(group));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cluster of these topics with so many partitions each, all of which end there.
    fn cluster(topics: &[(&str, usize)], end: i64) -> (Arc<Places>, Column) {
        let mut places = Places::default();
        topics
            .iter()
            .for_each(|(name, partitions)| places.add(Arc::from(*name), false, *partitions));
        let mut ends = places.column();
        (0..places.count()).for_each(|at| ends.set(at, end));
        (Arc::new(places), ends)
    }

    #[test]
    fn a_look_that_comes_soon_counts_for_ages_and_not_for_rates() {
        let mut memory = Memory::default();
        let mut look = |at_ms: i64, end: i64| {
            let (places, ends) = cluster(&[("t", 1)], end);
            memory.note_ends(&places, &ends, at_ms);
            (memory.per_second(0), memory.behind(0, 0, at_ms).map(|age| age.ms))
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

    #[test]
    fn what_is_known_of_a_partition_moves_with_it() {
        let mut memory = Memory::default();
        let mut look = |at_ms: i64, topics: &[(&str, usize)]| {
            let (places, ends) = cluster(topics, at_ms);
            memory.note_ends(&places, &ends, at_ms);
            // How long ago the first record of each partition came: `at_least` since the first look at it.
            (0..places.count())
                .map(|at| memory.behind(at, 0, at_ms).unwrap().ms)
                .collect::<Vec<_>>()
        };
        assert_eq!(look(1000, &[("b", 2)]), [0, 0]);
        assert_eq!(look(2000, &[("a", 1), ("b", 3)]), [0, 1000, 1000, 0]);
        assert_eq!(
            look(3000, &[("a", 1), ("b", 3)]),
            [1000, 2000, 2000, 1000],
            "nothing has moved"
        );
        assert_eq!(look(4000, &[("b", 1), ("c", 1)]), [3000, 0]);
        assert_eq!(look(5000, &[("b", 2)]), [4000, 0], "made anew with one more");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut memory = Memory::default();
        let (places, ends) = cluster(&[("a", PARTITIONS_MAX), ("b", 1)], 7);
        memory.note_ends(&places, &ends, 1000);
        assert_eq!(memory.ends.len(), PARTITIONS_MAX);
        assert!(memory.behind(PARTITIONS_MAX - 1, 0, 1000).is_some());
        assert!(memory.behind(PARTITIONS_MAX, 0, 1000).is_none());
    }

    #[test]
    fn a_partition_that_is_not_told_of_keeps_what_is_known() {
        let mut memory = Memory::default();
        let (places, ends) = cluster(&[("t", 1)], 10);
        memory.note_ends(&places, &ends, 1000);
        memory.note_ends(&places, &places.column(), 2000);
        assert_eq!(memory.behind(0, 10, 3000), Some(Behind::NOT));
    }
}
