//! Which partition a record goes to when its producer does not say: by its key, or, without one,
//! to one partition for a while and then to another (KIP-480, KIP-794).
//!
//! Producers in all languages must agree on the first, or records of one key part ways.

/// MurmurHash2 with the seed and the byte order of Kafka's Java client.
pub fn murmur2(bytes: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    const SEED: u32 = 0x9747_b28c;
    let mut hash = SEED ^ bytes.len() as u32;
    let mut chunks = bytes.chunks_exact(4);
    for chunk in &mut chunks {
        let mut k = u32::from_le_bytes(chunk.try_into().expect("four bytes")).wrapping_mul(M);
        k = (k ^ (k >> 24)).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ k;
    }
    let rest = chunks.remainder();
    if !rest.is_empty() {
        let tail = rest.iter().rev().fold(0u32, |tail, byte| tail << 8 | *byte as u32);
        hash = (hash ^ tail).wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    hash ^ (hash >> 15)
}

/// Java's `String.hashCode` of a key in UTF-8; bytes that are not count as U+FFFD, as in Java's decoder. Kafka finds a group's
/// partition by it.
pub fn java_hash_code(key: &[u8]) -> i32 {
    let step = |hash: i32, unit: u16| hash.wrapping_mul(31).wrapping_add(i32::from(unit));
    if key.is_ascii() {
        return key.iter().fold(0, |hash, byte| step(hash, u16::from(*byte)));
    }
    String::from_utf8_lossy(key).encode_utf16().fold(0, step)
}

/// The formula that finds the partition of `__consumer_offsets` for a group id. A cluster keeps the formula that
/// it was founded with: with another one it would not find the offsets that its groups have committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupPlacement {
    /// The hash code without its sign bit. Clusters founded before `highwater.version` 4.
    #[default]
    Mask,
    /// The absolute value of the hash code, 0 for `i32::MIN`: Kafka's `Utils.abs`.
    Abs,
}

impl GroupPlacement {
    /// The partition of a group among `count`, by Java's `hashCode` of the group id.
    pub fn partition_of(self, group: &str, count: i32) -> i32 {
        let hash = java_hash_code(group.as_bytes());
        let positive = match self {
            GroupPlacement::Mask => hash & i32::MAX,
            GroupPlacement::Abs => hash.checked_abs().unwrap_or(0),
        };
        positive % count.max(1)
    }

    /// The name of the formula in metadata records.
    pub fn name(self) -> &'static str {
        match self {
            GroupPlacement::Mask => "mask",
            GroupPlacement::Abs => "abs",
        }
    }

    /// The formula with this name.
    pub fn from_name(name: &str) -> Option<GroupPlacement> {
        [GroupPlacement::Mask, GroupPlacement::Abs].into_iter().find(|known| known.name() == name)
    }
}

/// The partition of a key, among `count` of them. `count` is positive.
pub fn partition_of_key(key: &[u8], count: i32) -> i32 {
    assert!(count > 0, "a topic has partitions");
    (murmur2(key) & 0x7fff_ffff) as i32 % count
}

/// Where records without a key go: to one partition until a batch's worth of bytes went there and no batch gathers
/// there any more, so that batches fill, then to another one that the caller draws (KIP-794). Kafka's partitioner
/// moves on at twice the bytes in any case; a batch has room for no more than once.
#[derive(Clone, Copy, Debug)]
pub struct Sticky {
    partition: Option<i32>,
    /// Bytes sent to `partition` since it was drawn.
    bytes: usize,
    /// Invariant: positive. After so many bytes another partition may be drawn.
    switch_bytes: usize,
}

impl Sticky {
    /// One that changes its mind every `switch_bytes`, at least 1.
    pub fn new(switch_bytes: usize) -> Sticky {
        Sticky { partition: None, bytes: 0, switch_bytes: switch_bytes.max(1) }
    }

    /// The partition of a record of `size_bytes`. `gathers` tells whether a batch of a partition waits for more records
    /// and has room for this one, which is asked only when bytes enough went there; `draw` picks one at random.
    pub fn next(
        &mut self,
        size_bytes: usize,
        gathers: impl FnOnce(i32) -> bool,
        draw: impl FnOnce() -> i32,
    ) -> i32 {
        let partition = match self.partition {
            Some(partition) if self.bytes < self.switch_bytes || gathers(partition) => partition,
            _ => {
                self.bytes = 0;
                draw()
            }
        };
        self.partition = Some(partition);
        self.bytes += size_bytes;
        partition
    }

    /// Forgets the partition, because it has no leader now: the next record draws another.
    pub fn leave(&mut self) {
        self.partition = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn javas_hash_is_javas() {
        assert_eq!(java_hash_code(b"my-group"), -1906497762);
        assert_eq!(java_hash_code(b""), 0);
        // Two units of UTF-16 for one character, as `"\u{1d11e}".hashCode()` counts them.
        assert_eq!(java_hash_code("\u{1d11e}".as_bytes()), 0xd834 * 31 + 0xdd1e);
    }

    #[test]
    fn hashes_are_those_of_the_java_client() {
        for (text, expected) in [
            ("21", -973932308),
            ("foobar", -790332482),
            ("a-little-bit-long-string", -985981536),
            ("a-little-bit-longer-string", -1486304829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
            ("abc", 479470107),
            ("", 275646681),
            ("kafka", -798503068),
            ("é", 186971271),
        ] {
            assert_eq!(murmur2(text.as_bytes()) as i32, expected, "{text:?}");
        }
    }

    #[test]
    fn a_key_stays_within_the_partitions() {
        for count in 1..50 {
            for key in 0..100u8 {
                assert!((0..count).contains(&partition_of_key(&[key], count)));
            }
        }
        // Hashes to a negative number in Java: the sign is masked, not negated.
        assert_eq!(partition_of_key(b"21", 10), (-973932308i32 & 0x7fff_ffff) % 10);
    }

    #[test]
    fn records_without_keys_stay_until_a_batch_is_full() {
        let mut sticky = Sticky::new(100);
        let mut draws = [7, 3, 5].into_iter();
        let mut next = |sticky: &mut Sticky| sticky.next(40, |_| false, || draws.next().unwrap());
        let taken: Vec<i32> = (0..7).map(|_| next(&mut sticky)).collect();
        assert_eq!(taken, [7, 7, 7, 3, 3, 3, 5]);
    }

    #[test]
    fn no_batch_is_left_that_still_gathers() {
        let mut sticky = Sticky::new(100);
        let mut draws = [7, 3].into_iter();
        let mut next = |gathers| sticky.next(40, |p| (p == 7) && gathers, || draws.next().unwrap());
        let taken: Vec<i32> = (0..6).map(|n| next(n < 5)).collect();
        assert_eq!(taken, [7, 7, 7, 7, 7, 3]);
    }

    #[test]
    fn a_partition_that_is_left_is_drawn_anew() {
        let mut sticky = Sticky::new(1000);
        assert_eq!(sticky.next(1, |_| false, || 1), 1);
        sticky.leave();
        assert_eq!(sticky.next(1, |_| false, || 2), 2);
    }

    #[test]
    fn groups_are_placed_where_kafka_places_them() {
        // GroupCoordinatorService.partitionFor of Kafka 4.3.1 with 50 partitions.
        let abs = |group| GroupPlacement::Abs.partition_of(group, 50);
        assert_eq!((abs("my-group"), abs("probe"), abs("")), (12, 36, 0));
        // Its hash code is i32::MIN, which has no absolute value.
        assert_eq!(java_hash_code(b"polygenelubricants"), i32::MIN);
        assert_eq!(abs("polygenelubricants"), 0);
        let mask = |group| GroupPlacement::Mask.partition_of(group, 50);
        assert_eq!((mask("my-group"), mask("probe"), mask("polygenelubricants")), (36, 36, 0));
    }
}
