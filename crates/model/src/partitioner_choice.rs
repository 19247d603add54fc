//! The other ways to choose a partition that are met in the field, beside Kafka's own in [`partitioner`]: by
//! CRC-32, by Java's `hashCode`, at random, one after the other, and the formula of a published report that leaves
//! buckets empty. For load generators and for comparing them; a producer that others must agree with uses
//! [`partition_of_key`](crate::partitioner::partition_of_key).
//!
//! Not here: randomness, and what a producer remembers from record to record.
//!
//! [`partitioner`]: crate::partitioner

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partitioner::partition_of_key;

    /// The keys of the CS6 report, each in 20,000 of its records.
    const KEYS: [&str; 5] = ["60819", "60847", "23568", "61821", "64500"];

    fn counts<const N: usize>(bucket: impl Fn(&[u8]) -> i32) -> [u32; N] {
        let mut counts = [0; N];
        KEYS.iter().for_each(|key| counts[bucket(key.as_bytes()) as usize] += 20_000);
        counts
    }

    #[test]
    fn the_reports_five_keys_go_where_the_report_says() {
        // Experiments 6 and 7: from 1, with empty buckets.
        assert_eq!(counts(|key| cs6_mod(key, 5)), [0, 40_000, 0, 0, 20_000, 40_000]);
        assert_eq!(counts(|key| cs6_mod(key, 3)), [0, 80_000, 20_000, 0]);
    }

    #[test]
    fn the_reports_five_keys_by_the_other_strategies() {
        assert_eq!(counts(|key| hash_mod(key, 5)), [40_000, 0, 0, 20_000, 40_000]);
        assert_eq!(counts(|key| hash_mod(key, 3)), [80_000, 20_000, 0]);
        assert_eq!(counts(|key| partition_of_key(key, 5)), [80_000, 0, 20_000, 0, 0]);
        assert_eq!(counts(|key| partition_of_key(key, 3)), [40_000, 60_000, 0]);
        assert_eq!(counts(|key| (crc32(key) % 5) as i32), [0, 40_000, 20_000, 20_000, 20_000]);
        assert_eq!(counts(|key| (crc32(key) % 3) as i32), [60_000, 40_000, 0]);
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
    }

    #[test]
    fn crc32_is_that_of_zip() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }
}
