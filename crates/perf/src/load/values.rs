//! Keys and values: drawn from a seed, so that a run can be had again.

use super::config::{Keys, Payload, Sizes};
use crate::stamp::{LONG_BYTES, Stamp, checksum_of_rest};
use std::collections::HashMap;
use std::io::Write as _;

/// Lengths of access log lines, equally often: 314.5 bytes on average, half of them up to 290.
const LINE_BYTES: [usize; 10] = [216, 216, 290, 290, 290, 290, 386, 387, 390, 390];
/// Different lines of a producer.
const LINES: usize = 200;

/// Draws one record after the other.
pub struct Values {
    random: fastrand::Rng,
    lengths: Lengths,
    payload: Payload,
    /// The value that was drawn, in front; whatever is longer behind it.
    value: Vec<u8>,
    length: usize,
    /// What [`checksum_of_rest`] is for a length, as long as nothing is filled anew.
    sums: HashMap<usize, u64>,
    last_sum: (usize, u64),
    keys: KeySource,
    key: Vec<u8>,
}

enum Lengths {
    Fixed(usize),
    /// Sums of the shares so far, and the lengths.
    Mix(Vec<(f64, usize)>),
    /// Lines one after the other.
    Lines {
        lines: Vec<Vec<u8>>,
        next: usize,
    },
}

enum KeySource {
    None,
    List {
        keys: Vec<Vec<u8>>,
        next: usize,
    },
    Uniform(u64),
    /// Sums of the weights so far.
    Zipf(Vec<f64>),
}

impl Values {
    /// A source of records of these lengths, keys and letters.
    pub fn new(sizes: &Sizes, keys: &Keys, payload: Payload, seed: u64) -> Values {
        let mut random = fastrand::Rng::with_seed(seed);
        let lengths = Lengths::new(sizes, &mut random);
        let mut value = vec![0; lengths.max()];
        fill_letters(&mut value, &mut random);
        Values {
            random,
            lengths,
            payload,
            value,
            length: 0,
            sums: HashMap::new(),
            last_sum: (usize::MAX, 0),
            keys: KeySource::new(keys),
            key: Vec::new(),
        }
    }

    /// Draws the next key and the next value.
    #[inline]
    pub fn draw(&mut self) {
        self.length = match &mut self.lengths {
            Lengths::Fixed(length) => *length,
            Lengths::Mix(mix) => {
                let at = self.random.f64() * mix.last().map_or(0.0, |last| last.0);
                mix[mix.partition_point(|(sum, _)| *sum <= at).min(mix.len() - 1)].1
            }
            Lengths::Lines { lines, next } => {
                *next = (*next + 1) % lines.len();
                let line = &lines[*next];
                self.value[..line.len()].copy_from_slice(line);
                line.len()
            }
        };
        self.keys.draw(&mut self.random, &mut self.key);
        let lines = matches!(self.lengths, Lengths::Lines { .. });
        if self.payload == Payload::Fresh && !lines {
            fill_letters(&mut self.value[..self.length], &mut self.random);
        }
    }

    /// The key that was drawn.
    #[inline]
    pub fn key(&self) -> Option<&[u8]> {
        (!matches!(self.keys, KeySource::None)).then_some(&self.key)
    }

    /// The value that was drawn.
    #[inline]
    pub fn value(&self) -> &[u8] {
        &self.value[..self.length]
    }

    /// Marks the value that was drawn.
    #[inline]
    pub fn stamp(&mut self, stamp: &Stamp, partition: i32) {
        let rest = self.rest();
        stamp.write(&mut self.value[..self.length], partition, rest);
    }

    fn rest(&mut self) -> u64 {
        let changes = matches!(self.lengths, Lengths::Lines { .. });
        // Where a short value goes on, a longer one has its mark.
        if self.payload == Payload::Fresh || changes || self.length < LONG_BYTES {
            return checksum_of_rest(self.value());
        }
        if self.last_sum.0 != self.length {
            let value = &self.value[..self.length];
            let sum = *self.sums.entry(self.length).or_insert_with(|| checksum_of_rest(value));
            self.last_sum = (self.length, sum);
        }
        self.last_sum.1
    }
}

impl Lengths {
    fn new(sizes: &Sizes, random: &mut fastrand::Rng) -> Lengths {
        match sizes {
            Sizes::Fixed(length) => Lengths::Fixed(*length),
            Sizes::Mix(mix) => {
                let mut sum = 0.0;
                let sums = mix.iter().map(|(share, length)| {
                    sum += share.max(0.0);
                    (sum, *length)
                });
                Lengths::Mix(sums.collect())
            }
            Sizes::AccessLog => {
                let line = |i: usize| access_log_line(LINE_BYTES[i % LINE_BYTES.len()], random);
                let mut lines: Vec<_> = (0..LINES).map(line).collect();
                random.shuffle(&mut lines);
                Lengths::Lines { lines, next: 0 }
            }
        }
    }

    fn max(&self) -> usize {
        match self {
            Lengths::Fixed(length) => *length,
            Lengths::Mix(mix) => mix.iter().map(|(_, length)| *length).max().unwrap_or(0),
            Lengths::Lines { lines, .. } => lines.iter().map(Vec::len).max().unwrap_or(0),
        }
    }
}

impl KeySource {
    fn new(keys: &Keys) -> KeySource {
        match keys {
            Keys::None => KeySource::None,
            Keys::List(keys) if keys.is_empty() => KeySource::None,
            Keys::List(keys) => KeySource::List { keys: keys.clone(), next: 0 },
            Keys::Uniform(count) => KeySource::Uniform((*count).max(1)),
            Keys::Zipf { count, exponent } => {
                let mut sum = 0.0;
                let weights = (1..=(*count).max(1)).map(|rank| {
                    sum += (rank as f64).powf(-exponent);
                    sum
                });
                KeySource::Zipf(weights.collect())
            }
        }
    }

    #[inline]
    fn draw(&mut self, random: &mut fastrand::Rng, key: &mut Vec<u8>) {
        let number = match self {
            KeySource::None => return,
            KeySource::List { keys, next } => {
                key.clear();
                key.extend_from_slice(&keys[*next]);
                *next = (*next + 1) % keys.len();
                return;
            }
            KeySource::Uniform(count) => random.u64(..*count),
            KeySource::Zipf(sums) => {
                let at = random.f64() * sums.last().copied().unwrap_or(0.0);
                sums.partition_point(|sum| *sum <= at) as u64
            }
        };
        key.clear();
        write!(key, "{number:08}").expect("a vector takes any byte");
    }
}

/// Letters from `A` to `Z`, eight for each random number. Some letters are 4 % more likely than
/// others, which changes the entropy by less than a thousandth.
fn fill_letters(value: &mut [u8], random: &mut fastrand::Rng) {
    const EVEN: u64 = 0x00ff_00ff_00ff_00ff;
    const FIRST: u64 = 0x4141_4141_4141_4141;
    // Each byte times 26, by 256: two bytes stand in the room of four, so that nothing spills over.
    let letters = |word: u64| {
        let even = (((word & EVEN) * 26) >> 8) & EVEN;
        let odd = (((word >> 8) & EVEN) * 26) & !EVEN;
        (even | odd) + FIRST
    };
    let mut chunks = value.chunks_exact_mut(8);
    for chunk in &mut chunks {
        chunk.copy_from_slice(&letters(random.u64(..)).to_le_bytes());
    }
    let last = letters(random.u64(..)).to_le_bytes();
    let rest = chunks.into_remainder();
    rest.copy_from_slice(&last[..rest.len()]);
}

/// A line as a web server writes it, of this length in bytes, at least 200.
fn access_log_line(length: usize, random: &mut fastrand::Rng) -> Vec<u8> {
    let mut octet = || random.u8(1..255);
    let address = format!("{}.{}.{}.{}", octet(), octet(), octet(), octet());
    let (hour, minute, second) = (random.u8(0..24), random.u8(0..60), random.u8(0..60));
    let kind = if random.u8(0..5) < 3 { "image" } else { "product" };
    let (number, size) = (random.u32(10_000..100_000), random.u32(200..90_000));
    let mut line = format!(
        "{address} - - [22/Jan/2019:{hour:02}:{minute:02}:{second:02} +0330] \
         \"GET /{kind}/{number}/view HTTP/1.1\" 200 {size} \"https://shop.example/{kind}/{number}\" \
         \"Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/64.0 "
    );
    while line.len() < length - 1 {
        let word = ["Mobile/15E148 ", "Safari/604.1 ", "Chrome/71.0 ", "AppleWebKit/605.1.15 "];
        line.push_str(word[random.usize(..word.len())]);
    }
    line.truncate(length - 1);
    line.push('"');
    line.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(sizes: Sizes, keys: Keys, count: usize) -> Vec<(Option<Vec<u8>>, Vec<u8>)> {
        let mut values = Values::new(&sizes, &keys, Payload::Fresh, 3);
        let mut next = || {
            values.draw();
            (values.key().map(<[u8]>::to_vec), values.value().to_vec())
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn access_log_lines_have_the_lengths_of_the_report() {
        let lines = drawn(Sizes::AccessLog, Keys::None, 2 * LINES);
        let mut lengths: Vec<_> = lines.iter().map(|(_, value)| value.len()).collect();
        lengths.sort();
        let mean = lengths.iter().sum::<usize>() as f64 / lengths.len() as f64;
        assert_eq!((lengths[0], lengths[LINES], lengths[2 * LINES - 1]), (216, 290, 390));
        assert_eq!(mean, 314.5);
        assert!(lines.iter().all(|(_, line)| line.ends_with(b"\"") && line.is_ascii()));
    }

    #[test]
    fn a_mix_keeps_its_shares() {
        let mix = Sizes::Mix(vec![(0.75, 10), (0.25, 200)]);
        let values = drawn(mix, Keys::None, 10_000);
        let short = values.iter().filter(|(_, value)| value.len() == 10).count();
        assert!((7_300..7_700).contains(&short), "{short}");
    }

    #[test]
    fn letters_are_letters_and_all_come() {
        let values = drawn(Sizes::Fixed(1003), Keys::None, 100);
        let mut counts = [0u32; 26];
        for byte in values.iter().flat_map(|(_, value)| value) {
            counts[(byte - b'A') as usize] += 1;
        }
        // 100,300 letters: 3,858 of each, within a few standard deviations and the 4 %.
        assert!(counts.iter().all(|count| (3500..4300).contains(count)), "{counts:?}");
        assert_ne!(values[0], values[1]);
    }

    #[test]
    fn a_reused_value_stays() {
        let mut values = Values::new(&Sizes::Fixed(64), &Keys::None, Payload::Reuse, 3);
        values.draw();
        let first = values.value().to_vec();
        values.draw();
        assert_eq!(values.value(), first);
    }

    #[test]
    fn keys_come_in_turn_or_by_chance() {
        let list = Keys::List(vec![b"a".to_vec(), b"b".to_vec()]);
        let keys: Vec<_> =
            drawn(Sizes::Fixed(1), list, 4).into_iter().filter_map(|r| r.0).collect();
        assert_eq!(keys, [b"a", b"b", b"a", b"b"]);
        let zipf = drawn(Sizes::Fixed(1), Keys::Zipf { count: 100, exponent: 1.0 }, 10_000);
        let first = zipf.iter().filter(|r| r.0.as_deref() == Some(b"00000000")).count();
        // 1 by the hundredth harmonic number, 5.187.
        assert!((1_750..2_110).contains(&first), "{first}");
        let uniform = drawn(Sizes::Fixed(1), Keys::Uniform(50), 1_000);
        let different: std::collections::BTreeSet<_> = uniform.iter().map(|r| &r.0).collect();
        assert_eq!(different.len(), 50);
    }

    #[test]
    fn a_marked_value_is_whole_however_it_was_filled() {
        for (sizes, payload) in [
            (Sizes::Fixed(100), Payload::Reuse),
            (Sizes::Fixed(100), Payload::Fresh),
            (Sizes::Mix(vec![(1.0, 20), (1.0, 300)]), Payload::Reuse),
            (Sizes::AccessLog, Payload::Reuse),
        ] {
            let mut values = Values::new(&sizes, &Keys::None, payload, 3);
            for sequence in 0..100 {
                values.draw();
                let stamp = Stamp { run: 1, producer: 2, sequence, time_ns: 4_000 };
                values.stamp(&stamp, 6);
                assert_eq!(Stamp::read(values.value(), 6), Some(stamp), "{sizes:?} {payload:?}");
            }
        }
    }
}
