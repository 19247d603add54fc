//! One mark: its bytes, and whether they are right.

/// Bytes of a long mark.
pub const LONG_BYTES: usize = 32;
/// Bytes of a short mark.
pub const SHORT_BYTES: usize = 16;

const MAGIC: u32 = 0x4857_5350;
const SHORT_MAGIC: u16 = 0x4857;

/// The partition of marks that are bound to none: of records whose partition is chosen when they have been marked.
pub const ANYWHERE: i32 = -1;

/// What a mark says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The run; a short mark knows its low 16 bits only.
    pub run: u32,
    /// The producer within the run; a short mark knows its low 16 bits only.
    pub producer: u32,
    /// Which of the producer's records of that partition, from 0; of all its records, if the mark is bound to none.
    pub sequence: u64,
    /// When it was meant to be sent, in nanoseconds on a clock of the caller's; a short mark keeps
    /// microseconds, modulo 2^32.
    pub time_ns: u64,
}

/// How many bytes of a value of this length are its mark: 32, 16 or 0.
pub const fn stamp_bytes(value_bytes: usize) -> usize {
    match value_bytes {
        LONG_BYTES.. => LONG_BYTES,
        SHORT_BYTES.. => SHORT_BYTES,
        _ => 0,
    }
}

/// Whether values of this length bear a mark.
pub const fn is_stamped(value_bytes: usize) -> bool {
    stamp_bytes(value_bytes) > 0
}

impl Stamp {
    /// Writes the mark over the first bytes of a value that [`is_stamped`]. `rest` is
    /// [`checksum_of_rest`] of the value: who sends one filling again and again takes it once.
    pub fn write(&self, value: &mut [u8], partition: i32, rest: u64) {
        if value.len() >= LONG_BYTES {
            value[..4].copy_from_slice(&MAGIC.to_be_bytes());
            value[4..8].copy_from_slice(&self.run.to_be_bytes());
            value[8..12].copy_from_slice(&self.producer.to_be_bytes());
            value[12..20].copy_from_slice(&self.sequence.to_be_bytes());
            value[20..28].copy_from_slice(&self.time_ns.to_be_bytes());
            let sum = checksum(&value[..28], partition, rest);
            value[28..32].copy_from_slice(&sum.to_be_bytes());
        } else {
            value[..2].copy_from_slice(&(SHORT_MAGIC ^ self.run as u16).to_be_bytes());
            value[2..4].copy_from_slice(&(self.producer as u16).to_be_bytes());
            value[4..8].copy_from_slice(&(self.sequence as u32).to_be_bytes());
            value[8..12].copy_from_slice(&((self.time_ns / 1000) as u32).to_be_bytes());
            let sum = checksum(&value[..12], partition, rest);
            value[12..16].copy_from_slice(&sum.to_be_bytes());
        }
    }

    /// Reads the mark of a value that was found in this partition; `None` if there is no whole one:
    /// the value was damaged, is in the wrong place, or never was marked.
    pub fn read(value: &[u8], partition: i32) -> Option<Stamp> {
        Stamp::find(value, [partition]).map(|(_, stamp)| stamp)
    }

    /// Reads the mark of a value that is in one of these partitions, and says in which: values that are pushed do not
    /// tell.
    pub fn find(value: &[u8], partitions: impl IntoIterator<Item = i32>) -> Option<(i32, Stamp)> {
        let size = stamp_bytes(value.len());
        if size == 0 {
            return None;
        }
        let (summed, sum) = value[..size].split_at(size - 4);
        let rest = checksum_of_rest(value);
        let is_in = |partition: &i32| sum == checksum(summed, *partition, rest).to_be_bytes();
        let partition = partitions.into_iter().find(is_in)?;
        Some((partition, Stamp::of_bytes(summed, size)?))
    }

    /// What the bytes of a mark of this size say, once their checksum was found right.
    fn of_bytes(summed: &[u8], size: usize) -> Option<Stamp> {
        let u32_at = |at: usize| u32::from_be_bytes(summed[at..at + 4].try_into().expect("four"));
        let u16_at = |at: usize| u16::from_be_bytes(summed[at..at + 2].try_into().expect("two"));
        let u64_at = |at: usize| u64::from_be_bytes(summed[at..at + 8].try_into().expect("eight"));
        match size {
            LONG_BYTES => (u32_at(0) == MAGIC).then(|| Stamp {
                run: u32_at(4),
                producer: u32_at(8),
                sequence: u64_at(12),
                time_ns: u64_at(20),
            }),
            _ => Some(Stamp {
                run: (u16_at(0) ^ SHORT_MAGIC) as u32,
                producer: u16_at(2) as u32,
                sequence: u32_at(4) as u64,
                time_ns: u32_at(8) as u64 * 1000,
            }),
        }
    }

    /// Whether it is of this run, as far as a value of this length can tell.
    pub fn is_of(&self, run: u32, value_bytes: usize) -> bool {
        match stamp_bytes(value_bytes) {
            LONG_BYTES => self.run == run,
            _ => self.run == run & 0xffff,
        }
    }
}

/// A checksum of what stands behind a value's mark, the value's length included.
pub fn checksum_of_rest(value: &[u8]) -> u64 {
    fold(&value[stamp_bytes(value.len())..], value.len() as u64)
}

fn checksum(mark: &[u8], partition: i32, rest: u64) -> u32 {
    let sum = fold(mark, rest ^ (partition as u64).rotate_left(32));
    (sum ^ sum >> 32) as u32
}

/// Multiplies 64 bits by 64 and folds the 128 into 64: every bit of the product depends on both.
#[inline]
fn mix(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

/// A checksum that costs a multiplication for 16 bytes. It finds accidents, not malice.
#[inline]
fn fold(bytes: &[u8], seed: u64) -> u64 {
    const A: u64 = 0x9e37_79b9_7f4a_7c15;
    const B: u64 = 0xd1b5_4a32_d192_ed03;
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    let mut sum = seed ^ A;
    let mut chunks = bytes.chunks_exact(16);
    for chunk in &mut chunks {
        sum = mix(word(&chunk[..8]) ^ sum, word(&chunk[8..]) ^ B).wrapping_add(sum.rotate_left(23));
    }
    let mut tail = [0; 16];
    tail[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    let sum = mix(word(&tail[..8]) ^ sum, word(&tail[8..]) ^ B) ^ bytes.len() as u64;
    mix(sum ^ B, A)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamped(length: usize, partition: i32) -> Vec<u8> {
        let mut value: Vec<u8> = (0..length).map(|i| b'A' + (i % 26) as u8).collect();
        let rest = checksum_of_rest(&value);
        let stamp = Stamp { run: 7, producer: 3, sequence: 123_456, time_ns: 5_000_000_000 };
        stamp.write(&mut value, partition, rest);
        value
    }

    #[test]
    fn a_mark_says_what_was_written() {
        for length in [16, 31, 32, 33, 100, 4096] {
            let stamp = Stamp::read(&stamped(length, 5), 5).unwrap();
            assert!(stamp.is_of(7, length) && !stamp.is_of(8, length));
            assert_eq!((stamp.producer, stamp.sequence), (3, 123_456), "{length}");
            assert_eq!(stamp.time_ns, 5_000_000_000);
        }
        assert!(!is_stamped(15));
    }

    #[test]
    fn any_flipped_bit_breaks_it() {
        for length in [16, 20, 32, 47, 100] {
            let value = stamped(length, 5);
            for bit in 0..8 * length {
                let mut damaged = value.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Stamp::read(&damaged, 5), None, "{length}: bit {bit}");
            }
        }
    }

    #[test]
    fn a_cut_or_misplaced_value_has_none() {
        let value = stamped(100, 5);
        assert!(Stamp::read(&value, 5).is_some());
        assert_eq!(Stamp::read(&value, 6), None);
        assert_eq!(Stamp::read(&value[..99], 5), None);
        assert_eq!(Stamp::read(&[value.clone(), vec![0]].concat(), 5), None);
        assert_eq!(Stamp::read(&[], 5), None);
    }
}
