//! Broker and partition as two choices that know nothing of each other.

use super::chooser::Chooser;
use super::layout::Layout;
use super::strategy::Pair;

/// Where a record goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The partition.
    pub partition: i32,
    /// The broker that was chosen before, if one was.
    pub broker: Option<i32>,
}

/// Chooses where the records of one topic go, in one way.
#[derive(Debug, Clone)]
pub struct Balancer {
    pair: Pair,
    batch_bytes: usize,
    seed: u64,
    broker: Chooser,
    /// One for each share of the layout, or one for the whole topic: a turn at one broker must not depend on the
    /// turns at the others, or half of the partitions would never be met.
    partitions: Vec<Chooser>,
}

impl Balancer {
    /// One whose sticky choices last for `batch_bytes`.
    pub fn new(pair: Pair, batch_bytes: usize, seed: u64) -> Balancer {
        let strategy = pair.broker.map_or(pair.partition, |broker| broker.strategy());
        let broker = Chooser::new(strategy, batch_bytes, seed);
        Balancer { pair, batch_bytes, seed, broker, partitions: Vec::new() }
    }

    /// The way in which it chooses.
    pub fn pair(&self) -> Pair {
        self.pair
    }

    /// Where a record of about `size_bytes` goes; `None` if the layout has no partition, or no broker where one is to
    /// be chosen. `gathers` tells whether a batch of a partition waits for more records and has room for this one.
    pub fn choose(
        &mut self,
        key: Option<&[u8]>,
        size_bytes: usize,
        layout: &Layout,
        gathers: impl FnOnce(i32) -> bool,
    ) -> Option<Choice> {
        let (place, among, broker) = match self.pair.broker {
            None => (0, layout.partitions()?, None),
            Some(_) => {
                // Brokers do not gather: none of these strategies asks.
                let place =
                    self.broker.choose(key, size_bytes, layout.places()?, |_| false) as usize;
                let share = &layout.shares()[place];
                (place, share.among(), Some(share.broker))
            }
        };
        let partition = self.chooser(place).choose(key, size_bytes, among, gathers);
        Some(Choice { partition, broker })
    }

    fn chooser(&mut self, place: usize) -> &mut Chooser {
        while self.partitions.len() <= place {
            // Another sequence for each of them, and another one than that of the brokers.
            let seed = self.seed.wrapping_add(1 + self.partitions.len() as u64);
            self.partitions.push(Chooser::new(self.pair.partition, self.batch_bytes, seed));
        }
        &mut self.partitions[place]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::choice::{BrokerStrategy, PartitionFacts, Strategy};

    /// Three brokers with two partitions each: partition p prefers broker 1 + p % 3.
    fn layout() -> Layout {
        let facts = |p: i32| PartitionFacts { preferred_leader: Some(1 + p % 3), is_led: true };
        Layout::new(&(0..6).map(facts).collect::<Vec<_>>())
    }

    fn counts(pair: Pair, records: u32) -> BTreeMap<(Option<i32>, i32), u32> {
        let (layout, mut balancer) = (layout(), Balancer::new(pair, 16_384, 1));
        let mut counts = BTreeMap::new();
        for _ in 0..records {
            let choice = balancer.choose(None, 100, &layout, |_| false).unwrap();
            *counts.entry((choice.broker, choice.partition)).or_default() += 1;
        }
        counts
    }

    #[test]
    fn two_choices_in_turn_meet_every_partition_equally() {
        let broker = Some(BrokerStrategy::RoundRobin);
        let counts = counts(Pair { broker, partition: Strategy::RoundRobin }, 600);
        assert_eq!(counts.len(), 6, "{counts:?}");
        assert!(counts.values().all(|count| *count == 100), "{counts:?}");
        assert!(counts.keys().all(|(broker, p)| *broker == Some(1 + p % 3)), "{counts:?}");
    }

    #[test]
    fn a_sticky_choice_is_that_of_one_broker() {
        let broker = Some(BrokerStrategy::RoundRobin);
        let counts = counts(Pair { broker, partition: Strategy::Sticky }, 300);
        // 100 records of 100 bytes fill no batch of 16 KiB: each broker stays at one of its partitions.
        assert_eq!(counts.values().copied().collect::<Vec<_>>(), [100, 100, 100]);
    }

    #[test]
    fn without_a_choice_of_brokers_none_is_named() {
        let counts = counts(Pair { broker: None, partition: Strategy::RoundRobin }, 60);
        assert!(counts.iter().all(|((broker, _), count)| broker.is_none() && *count == 10));
        assert_eq!(counts.len(), 6);
    }

    #[test]
    fn a_layout_that_grows_gives_the_new_brokers_their_turn() {
        let pair =
            Pair { broker: Some(BrokerStrategy::RoundRobin), partition: Strategy::RoundRobin };
        let mut balancer = Balancer::new(pair, 16_384, 1);
        let one = Layout::new(&[PartitionFacts { preferred_leader: Some(1), is_led: true }]);
        assert_eq!(balancer.choose(None, 1, &one, |_| false).unwrap().partition, 0);
        let mut brokers: Vec<Option<i32>> = (0..3)
            .map(|_| balancer.choose(None, 1, &layout(), |_| false).unwrap().broker)
            .collect();
        brokers.sort();
        assert_eq!(brokers, [Some(1), Some(2), Some(3)]);
        assert_eq!(balancer.choose(None, 1, &Layout::default(), |_| false), None);
    }
}
