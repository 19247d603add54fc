//! The other ways to choose a partition that are met in the field, beside Kafka's own in [`partitioner`]: by
//! CRC-32, by Java's `hashCode`, at random, one after the other, and the formula of a published report that leaves
//! buckets empty. For load generators and for comparing them; a producer that others must agree with uses
//! [`partition_of_key`].
//!
//! Not here: randomness. Whoever chooses brings it.
//!
//! [`partitioner`]: crate::partitioner

use crate::partitioner::{Sticky, partition_of_key};

/// The CRC-32 of Ethernet and zip, as librdkafka's `consistent` partitioner takes of a key.
pub fn crc32(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, bytes) as u32
}

/// Java's `String.hashCode` of a key that is UTF-8; what is none counts as U+FFFD.
pub fn java_hash_code(key: &[u8]) -> i32 {
    let step = |hash: i32, unit: u16| hash.wrapping_mul(31).wrapping_add(i32::from(unit));
    if key.is_ascii() {
        return key.iter().fold(0, |hash, byte| step(hash, u16::from(*byte)));
    }
    String::from_utf8_lossy(key).encode_utf16().fold(0, step)
}

/// Java's `Math.floorMod(hashCode, count)`: from 0. `count` is positive.
pub fn hash_mod(key: &[u8], count: i32) -> i32 {
    java_hash_code(key).rem_euclid(count)
}

/// `Math.abs(hashCode % count + 1)` in Java, as the CS6 report's balancer has it: meant to count from 1. But the
/// remainder of a negative hash is negative, so the absolute value folds back over the 1 and the answer is in
/// `0..=count`. `count` is positive.
pub fn cs6_mod(key: &[u8], count: i32) -> i32 {
    (java_hash_code(key) % count + 1).abs()
}

/// Who chooses a record's partition, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// By Kafka's hash of the key.
    Murmur2,
    /// By [`crc32`] of the key.
    Crc32,
    /// Any, for each record.
    Random,
    /// One after the other from 0, for each record.
    RoundRobin,
    /// One for a batch, then another, whatever the key.
    Sticky,
    /// By [`hash_mod`] of the key.
    HashMod,
    /// By [`cs6_mod`] of the key: bucket 1 is partition 0; bucket 0, which the report did not mean, is the last one.
    Cs6Mod,
}

/// A strategy and what it remembers from record to record.
#[derive(Clone, Copy, Debug)]
pub struct Chooser {
    strategy: Strategy,
    /// Where round-robin goes next; wraps.
    next: u32,
    /// Where records without a key go if the strategy goes by the key.
    sticky: Sticky,
}

impl Chooser {
    /// One that has chosen nothing yet. `batch_bytes` is after how many bytes a sticky one changes.
    pub fn new(strategy: Strategy, batch_bytes: usize) -> Chooser {
        Chooser { strategy, next: 0, sticky: Sticky::new(batch_bytes) }
    }

    /// The partition, in `0..count`, of a record of `size_bytes`. `count` is positive. `draw` gives any number, each time
    /// another; it is asked only where chance is needed.
    pub fn choose(
        &mut self,
        key: Option<&[u8]>,
        size_bytes: usize,
        count: i32,
        mut draw: impl FnMut() -> u64,
    ) -> i32 {
        assert!(count > 0, "a topic has partitions");
        let mut any = || below(draw(), count);
        match (self.strategy, key) {
            (Strategy::Random, _) => any(),
            (Strategy::RoundRobin, _) => {
                let at = self.next % count as u32;
                self.next = self.next.wrapping_add(1);
                at as i32
            }
            (Strategy::Sticky, _) | (_, None) => self.sticky.next(size_bytes, any),
            (Strategy::Murmur2, Some(key)) => partition_of_key(key, count),
            (Strategy::Crc32, Some(key)) => (crc32(key) % count as u32) as i32,
            (Strategy::HashMod, Some(key)) => hash_mod(key, count),
            (Strategy::Cs6Mod, Some(key)) => (cs6_mod(key, count) - 1).rem_euclid(count),
        }
    }
}

/// An even choice in `0..count` from 64 random bits.
fn below(draw: u64, count: i32) -> i32 {
    ((u128::from(draw) * count as u128) >> 64) as i32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload_keys::CS682_KEYS;

    /// Counts of 20,000 records of each of the report's five keys.
    fn counts(strategy: Strategy, count: i32) -> Vec<u32> {
        let mut chooser = Chooser::new(strategy, 16_384);
        let mut counts = vec![0; count as usize];
        let mut draws = SplitMix(7);
        for at in 0..100_000 {
            let key = CS682_KEYS[at % 5].as_bytes();
            counts[chooser.choose(Some(key), 315, count, || draws.next()) as usize] += 1;
        }
        counts
    }

    /// A small generator for tests, so that the room needs no crate for it.
    struct SplitMix(u64);

    impl SplitMix {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        }
    }

    #[test]
    fn the_reports_five_keys_go_where_the_report_says() {
        // Experiments 6 and 7: from 1, with empty buckets.
        let quirk = |count: i32| {
            let mut counts = vec![0; count as usize + 1];
            for key in CS682_KEYS {
                counts[cs6_mod(key.as_bytes(), count) as usize] += 20_000;
            }
            counts
        };
        assert_eq!(quirk(5), [0, 40_000, 0, 0, 20_000, 40_000]);
        assert_eq!(quirk(3), [0, 80_000, 20_000, 0]);
        assert_eq!(counts(Strategy::Cs6Mod, 5), [40_000, 0, 0, 20_000, 40_000]);
        assert_eq!(counts(Strategy::Cs6Mod, 3), [80_000, 20_000, 0]);
    }

    #[test]
    fn the_reports_five_keys_by_the_other_strategies() {
        assert_eq!(counts(Strategy::HashMod, 5), [40_000, 0, 0, 20_000, 40_000]);
        assert_eq!(counts(Strategy::HashMod, 3), [80_000, 20_000, 0]);
        assert_eq!(counts(Strategy::Murmur2, 5), [80_000, 0, 20_000, 0, 0]);
        assert_eq!(counts(Strategy::Murmur2, 3), [40_000, 60_000, 0]);
        assert_eq!(counts(Strategy::Crc32, 5), [0, 40_000, 20_000, 20_000, 20_000]);
        assert_eq!(counts(Strategy::Crc32, 3), [60_000, 40_000, 0]);
        assert_eq!(counts(Strategy::RoundRobin, 5), [20_000; 5]);
        assert_eq!(counts(Strategy::RoundRobin, 3), [33_334, 33_333, 33_333]);
    }

    #[test]
    fn random_and_sticky_are_nearly_even() {
        // Three standard deviations, and as many batches as records for sticky.
        for count in counts(Strategy::Random, 5) {
            assert!((19_620..=20_380).contains(&count), "{count}");
        }
        for count in counts(Strategy::Sticky, 5) {
            assert!((16_000..=24_000).contains(&count), "{count}");
        }
    }

    #[test]
    fn java_hash_codes_are_javas() {
        for (text, expected) in [
            ("", 0),
            ("a", 97),
            ("hello", 99_162_322),
            ("polygenelubricants", i32::MIN),
            // One unit of UTF-16, then two.
            ("é", 233),
            ("😀", 0xd83d * 31 + 0xde00),
        ] {
            assert_eq!(java_hash_code(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn a_negative_hash_is_floored_by_one_and_folded_by_the_other() {
        let key = b"polygenelubricants";
        assert_eq!(hash_mod(key, 5), i32::MIN.rem_euclid(5));
        assert_eq!(cs6_mod(key, 5), 2, "-2147483648 % 5 is -3, and 1 more is -2");
        // -1 % 5 + 1 is 0: the bucket that was not meant. Negative hashes are found by their last character.
        let folded = (0..1000u32).map(|at| format!("polygenelubricants{at}"));
        let zero =
            folded.into_iter().find(|key| cs6_mod(key.as_bytes(), 5) == 0).expect("one of five");
        let mut chooser = Chooser::new(Strategy::Cs6Mod, 1);
        assert_eq!(chooser.choose(Some(zero.as_bytes()), 1, 5, || 0), 4);
    }

    #[test]
    fn crc32_is_that_of_zip() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn without_a_key_what_goes_by_the_key_is_sticky() {
        let mut chooser = Chooser::new(Strategy::Murmur2, 100);
        let mut draws = [0, u64::MAX].into_iter();
        let taken: Vec<i32> =
            (0..4).map(|_| chooser.choose(None, 60, 4, || draws.next().unwrap())).collect();
        assert_eq!(taken, [0, 0, 3, 3]);
    }
}
