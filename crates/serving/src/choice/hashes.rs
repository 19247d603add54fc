//! The hashes that are met in the field, beside those in [`partitioner`]: CRC-32, Java's `hashCode` in two formulas, one of them that of a
//! published report, which leaves buckets empty.
//!
//! Not here: randomness, and what a producer remembers from record to record.
//!
//! [`partitioner`]: model::partitioner

pub use model::partitioner::java_hash_code;

/// The CRC-32 of Ethernet and zip, as librdkafka's `consistent` partitioner takes of a key.
pub fn crc32(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
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

    #[test]
    fn a_negative_hash_is_floored_by_one_and_folded_by_the_other() {
        let key = b"polygenelubricants";
        assert_eq!(java_hash_code(key), i32::MIN);
        assert_eq!(hash_mod(key, 5), i32::MIN.rem_euclid(5));
        assert_eq!(cs6_mod(key, 5), 2, "-2147483648 % 5 is -3, and 1 more is -2");
    }

    #[test]
    fn the_folded_formula_reaches_one_value_more_than_it_counts() {
        let values: std::collections::BTreeSet<i32> =
            (0..10_000).map(|n| cs6_mod(format!("key-{n}-{}", n * n).as_bytes(), 3)).collect();
        assert_eq!(values.into_iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
    }
}
