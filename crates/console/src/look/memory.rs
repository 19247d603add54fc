//! What is remembered from round to round: ends of logs, and how far groups were behind. Bounded; ends are lost with the process,
//! histories are kept by [`super::kept`].

use std::collections::HashMap;
use std::sync::Arc;

use model::TopicPartition;
use serving::lag::arrivals::{Arrivals, Behind};
use serving::lag::history::{History, Lag};
use serving::overview::rate::Seen;

/// Partitions whose ends are remembered: 1 KiB each at most.
pub(super) const PARTITIONS_MAX: usize = 40_000;
/// Groups whose lag is remembered: 6.7 KB each.
pub(super) const GROUPS_MAX: usize = 2_000;

#[derive(Debug, Default)]
pub(super) struct Memory {
    ends: HashMap<TopicPartition, Arrivals>,
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
            let known = self.ends.len();
            if let Some(arrivals) = self.ends.get_mut(partition) {
                arrivals.note(Seen { end: *end, at_ms });
            } else if known < PARTITIONS_MAX {
                let mut arrivals = Arrivals::default();
                arrivals.note(Seen { end: *end, at_ms });
                self.ends.insert(partition.clone(), arrivals);
            }
        }
    }

    pub(super) fn per_second(&self, partition: &TopicPartition) -> Option<f64> {
        self.ends.get(partition)?.per_second()
    }

    pub(super) fn behind(
        &self,
        partition: &TopicPartition,
        position: i64,
        now_ms: i64,
    ) -> Option<Behind> {
        self.ends.get(partition)?.behind(position, now_ms)
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
