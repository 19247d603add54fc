//! One choice among several: Kafka's ways, librdkafka's, and that of the CS6 report. The hashes are in
//! [`hashes`](super::hashes) and in `model`; here is what a producer needs beside them: chance from a seed, so that
//! the same records go the same ways again, and partitions without a leader left out.

use model::partitioner::{Sticky, partition_of_key};

use super::hashes::{crc32, cs6_mod, hash_mod};
use super::strategy::Strategy;

/// Among which numbers to choose.
#[derive(Debug, Clone, Copy)]
pub struct Among<'a> {
    /// All of them, ascending: the place of a key depends on nothing else. Not empty.
    pub all: &'a [i32],
    /// Those that take records now, for choices that look at no key. Not empty.
    pub available: &'a [i32],
}

impl<'a> Among<'a> {
    /// All of them, of which every one takes records.
    pub fn all(all: &'a [i32]) -> Among<'a> {
        Among { all, available: all }
    }
}

/// Chooses for one producer: the partitions of one topic, or the brokers.
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

    /// The number for a record of about `size_bytes`. `gathers` tells whether a batch of a partition waits for more
    /// records and has room for this one.
    pub fn choose(
        &mut self,
        key: Option<&[u8]>,
        size_bytes: usize,
        among: Among<'_>,
        gathers: impl FnOnce(i32) -> bool,
    ) -> i32 {
        let (strategy, available) = (self.strategy, among.available);
        match (strategy, key) {
            (Strategy::Murmur2, None) | (Strategy::Sticky, _) => {
                let random = &mut self.random;
                let draw = || available[random.usize(..available.len())];
                self.sticky.next(size_bytes, gathers, draw)
            }
            (Strategy::Murmur2RoundRobin, None) | (Strategy::RoundRobin, _) => {
                self.turn = self.turn.wrapping_add(1);
                available[self.turn % available.len()]
            }
            (Strategy::Random, _) => available[self.random.usize(..available.len())],
            (_, key) => among.all[place(strategy, key.unwrap_or_default(), among.all.len())],
        }
    }
}

/// Where a key belongs, among `count` places counted from 0. `count` is positive.
fn place(strategy: Strategy, key: &[u8], count: usize) -> usize {
    let count = i32::try_from(count)
        .expect("a topic's partitions and a cluster's brokers are numbered by i32");
    let place = match strategy {
        Strategy::Crc32 => (crc32(key) % count as u32) as i32,
        Strategy::HashMod => hash_mod(key, count),
        // From 1; 0 is the last.
        Strategy::Cs6Mod => (cs6_mod(key, count) - 1).rem_euclid(count),
        _ => partition_of_key(key, count),
    };
    place as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_fair_and_chances_nearly() {
        for (strategy, slack) in [(Strategy::RoundRobin, 1), (Strategy::Random, 400)] {
            let mut chooser = Chooser::new(strategy, 16_384, 1);
            let mut counts = [0i32; 4];
            for _ in 0..10_000 {
                let among = Among::all(&[0, 1, 2, 3]);
                counts[chooser.choose(None, 1, among, |_| false) as usize] += 1;
            }
            assert!(counts.iter().all(|c| (c - 2500).abs() <= slack), "{strategy:?}: {counts:?}");
        }
    }

    #[test]
    fn without_a_leader_no_partition_is_drawn() {
        let among = Among { all: &[0, 1, 2], available: &[0, 2] };
        for strategy in [Strategy::Sticky, Strategy::RoundRobin, Strategy::Random] {
            let mut chooser = Chooser::new(strategy, 10, 1);
            assert!((0..100).all(|_| chooser.choose(None, 5, among, |_| false) != 1));
        }
    }

    #[test]
    fn a_key_keeps_its_place_while_leaders_are_away() {
        let (whole, less) = (Among::all(&[4, 7, 9]), Among { all: &[4, 7, 9], available: &[9] });
        for strategy in [Strategy::Murmur2, Strategy::Crc32, Strategy::HashMod, Strategy::Cs6Mod] {
            let mut chooser = Chooser::new(strategy, 10, 1);
            for key in 0..100u8 {
                let mut choose = |among| chooser.choose(Some(&[key]), 5, among, |_| false);
                let chosen = choose(whole);
                assert_eq!(chosen, choose(less), "{strategy:?}");
                assert!(whole.all.contains(&chosen));
            }
        }
    }
}
