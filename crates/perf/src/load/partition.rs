//! Who chooses the partition of a record: Kafka's ways, librdkafka's, and that of the CS6 report.
//! The hashes are [`model`]'s; here is what a producer needs beside them: chance from a seed, so that
//! the same records go the same ways again, and partitions without a leader left out.

use model::partitioner::{Sticky, partition_of_key};
use model::partitioner_choice::{crc32, cs6_mod, hash_mod};

/// How a partition is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Murmur2 of the key; without a key as [`Strategy::Sticky`].
    Murmur2,
    /// CRC-32 of the key, as librdkafka's `consistent`; without a key that of nothing.
    Crc32,
    /// Any, for each record.
    Random,
    /// One after the other.
    RoundRobin,
    /// One until a batch is full, then another at random, whatever the key.
    Sticky,
    /// `floorMod` of Java's `hashCode` of the key as a string.
    HashMod,
    /// `abs(hashCode % n + 1)`, counted from 1: reaches n + 1 buckets, of which 0 is taken for n
    /// here, as there is no such partition.
    Cs6Mod,
    /// Murmur2 of the key; without a key one after the other, as Kafka's clients up to 2.3.
    Murmur2RoundRobin,
}

/// Chooses the partitions of one topic for one producer.
#[derive(Debug, Clone)]
pub struct Chooser {
    strategy: Strategy,
    sticky: Sticky,
    turn: usize,
    random: fastrand::Rng,
}

impl Chooser {
    /// One whose sticky choices last for `batch_bytes`.
    pub fn new(strategy: Strategy, batch_bytes: usize, seed: u64) -> Chooser {
        let mut random = fastrand::Rng::with_seed(seed);
        let turn = random.u16(..) as usize;
        Chooser { strategy, sticky: Sticky::new(batch_bytes), turn, random }
    }

    /// The partition of a record of about `size_bytes`, one of `count`, a positive number. Those
    /// that do not look at the key choose among `available`, which must not be empty. `gathers` tells whether
    /// a batch of a partition waits for more records and has room for this one.
    pub fn choose(
        &mut self,
        key: Option<&[u8]>,
        size_bytes: usize,
        count: i32,
        available: &[i32],
        gathers: impl FnOnce(i32) -> bool,
    ) -> i32 {
        match (self.strategy, key) {
            (Strategy::Murmur2 | Strategy::Murmur2RoundRobin, Some(key)) => {
                partition_of_key(key, count)
            }
            (Strategy::Murmur2 | Strategy::Sticky, _) => {
                let random = &mut self.random;
                let draw = || available[random.usize(..available.len())];
                self.sticky.next(size_bytes, gathers, draw)
            }
            (Strategy::RoundRobin | Strategy::Murmur2RoundRobin, _) => {
                self.turn = self.turn.wrapping_add(1);
                available[self.turn % available.len()]
            }
            (Strategy::Random, _) => available[self.random.usize(..available.len())],
            (Strategy::Crc32, key) => (crc32(key.unwrap_or_default()) % count as u32) as i32,
            (Strategy::HashMod, key) => hash_mod(key.unwrap_or_default(), count),
            (Strategy::Cs6Mod, key) => {
                (cs6_mod(key.unwrap_or_default(), count) - 1).rem_euclid(count)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&str; 5] = ["60819", "60847", "23568", "61821", "64500"];

    /// How many of the five keys go to each of `count` partitions.
    fn counts(strategy: Strategy, count: i32) -> Vec<u32> {
        let available: Vec<i32> = (0..count).collect();
        let mut chooser = Chooser::new(strategy, 16_384, 1);
        let mut out = vec![0; count as usize];
        for key in KEYS {
            out[chooser.choose(Some(key.as_bytes()), 300, count, &available, |_| false)
                as usize] += 1;
        }
        out
    }

    #[test]
    fn the_five_keys_go_where_the_report_found_them() {
        assert_eq!(counts(Strategy::Cs6Mod, 5), [2, 0, 0, 1, 2]);
        assert_eq!(counts(Strategy::Cs6Mod, 3), [4, 1, 0]);
        assert_eq!(counts(Strategy::HashMod, 5), [2, 0, 0, 1, 2]);
        assert_eq!(counts(Strategy::HashMod, 3), [4, 1, 0]);
        assert_eq!(counts(Strategy::Murmur2, 5), [4, 0, 1, 0, 0]);
        assert_eq!(counts(Strategy::Murmur2, 3), [2, 3, 0]);
        assert_eq!(counts(Strategy::Crc32, 5), [0, 2, 1, 1, 1]);
        assert_eq!(counts(Strategy::Crc32, 3), [3, 2, 0]);
    }

    #[test]
    fn turns_are_fair_and_chances_nearly() {
        for (strategy, slack) in [(Strategy::RoundRobin, 1), (Strategy::Random, 400)] {
            let mut chooser = Chooser::new(strategy, 16_384, 1);
            let mut counts = [0i32; 4];
            for _ in 0..10_000 {
                counts[chooser.choose(None, 1, 4, &[0, 1, 2, 3], |_| false) as usize] += 1;
            }
            assert!(counts.iter().all(|c| (c - 2500).abs() <= slack), "{strategy:?}: {counts:?}");
        }
    }

    #[test]
    fn without_a_leader_no_partition_is_drawn() {
        for strategy in [Strategy::Sticky, Strategy::RoundRobin, Strategy::Random] {
            let mut chooser = Chooser::new(strategy, 10, 1);
            assert!((0..100).all(|_| chooser.choose(None, 5, 3, &[0, 2], |_| false) != 1));
        }
    }
}
