//! Keys and values that load is made of: which key a record gets, and lines like those of an access log. Everything
//! follows from the record's number and from chance that the caller brings, so that a seed repeats it.
//!
//! Not here: who chooses a partition by the key (`partitioner`), how fast records are sent.

use std::fmt;

/// The five keys of the CS6 report, each with a fifth of the records.
pub const CS682_KEYS: [&str; 5] = ["60819", "60847", "23568", "61821", "64500"];

/// More different keys than this would cost more memory than they show.
pub const KEYS_MAX: u32 = 16_000_000;

/// Why a text names no keys.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} are no keys: none, cs682, uniform:N or zipf:N,S with N from 1 to 16000000, S above 0"
)]
pub struct NoKeys {
    /// What was given.
    pub text: String,
}

/// Which keys records have, and how often each.
#[derive(Debug, Clone)]
pub struct Keys {
    /// All keys, one behind the other, each of `size_bytes`.
    text: Vec<u8>,
    size_bytes: usize,
    often: Often,
}

#[derive(Debug, Clone)]
enum Often {
    /// No record has one.
    Never,
    /// One after the other: each exactly as often.
    InTurn,
    /// Each as likely.
    Even,
    /// By weight.
    Weighted(Weighted),
}

impl Keys {
    /// `none`; `cs682`, that report's five in turn; `uniform:N`, N keys equally likely; `zipf:N,S`, the key of rank r with
    /// a weight of r to the power of −S.
    pub fn parse(text: &str) -> Result<Keys, NoKeys> {
        let wrong = || NoKeys { text: text.to_owned() };
        let count = |number: &str| {
            number.parse().ok().filter(|n| (1..=KEYS_MAX).contains(n)).ok_or_else(wrong)
        };
        match text.split_once(':') {
            None if text == "none" => {
                Ok(Keys { text: Vec::new(), size_bytes: 0, often: Often::Never })
            }
            None if text == "cs682" => {
                let text = CS682_KEYS.concat().into_bytes();
                Ok(Keys { text, size_bytes: 5, often: Often::InTurn })
            }
            Some(("uniform", n)) => Ok(Keys::numbered(count(n)?, Often::Even)),
            Some(("zipf", both)) => {
                let (n, power) = both.split_once(',').ok_or_else(wrong)?;
                let (n, power) = (count(n)?, power.parse().map_err(|_| wrong())?);
                if !(power > 0.0 && f64::is_finite(power)) {
                    return Err(wrong());
                }
                let weights = (1..=n).map(|rank| f64::from(rank).powf(-power)).collect();
                Ok(Keys::numbered(n, Often::Weighted(Weighted::new(weights))))
            }
            _ => Err(wrong()),
        }
    }

    /// Keys that are the numbers from 0 as eight digits.
    fn numbered(count: u32, often: Often) -> Keys {
        let text: String = (0..count).map(|at| format!("{at:08}")).collect();
        Keys { text: text.into_bytes(), size_bytes: 8, often }
    }

    /// How many different ones there are.
    pub fn count(&self) -> usize {
        self.text.len().checked_div(self.size_bytes).unwrap_or(0)
    }

    /// The key of a record: its number counts where keys are in turn, `draw` (64 random bits) where chance decides.
    pub fn key(&self, record: u64, draw: u64) -> Option<&[u8]> {
        let count = self.count() as u64;
        let at = match &self.often {
            Often::Never => return None,
            Often::InTurn => record % count,
            Often::Even => ((u128::from(draw) * u128::from(count)) >> 64) as u64,
            Often::Weighted(weighted) => weighted.draw(draw) as u64,
        };
        let from = at as usize * self.size_bytes;
        Some(&self.text[from..from + self.size_bytes])
    }
}

/// A choice by weight in constant time: every place is shared by itself and one other (Vose, A linear algorithm for
/// generating random numbers with a given distribution, 1991).
#[derive(Debug, Clone)]
struct Weighted {
    /// How much of a place is its own, of 2^32.
    own: Vec<u32>,
    /// Whose the rest is.
    other: Vec<u32>,
}

impl Weighted {
    /// Invariant of `weights`: positive, at least one.
    fn new(weights: Vec<f64>) -> Weighted {
        let mean = weights.iter().sum::<f64>() / weights.len() as f64;
        let mut share: Vec<f64> = weights.iter().map(|weight| weight / mean).collect();
        let mut own = vec![u32::MAX; share.len()];
        let mut other: Vec<u32> = (0..share.len() as u32).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..share.len()).partition(|at| share[*at] < 1.0);
        while let (Some(poor), Some(rich)) = (small.pop(), large.pop()) {
            own[poor] = (share[poor] * 4_294_967_296.0) as u32;
            other[poor] = rich as u32;
            share[rich] -= 1.0 - share[poor];
            if share[rich] < 1.0 { small.push(rich) } else { large.push(rich) }
        }
        Weighted { own, other }
    }

    fn draw(&self, draw: u64) -> usize {
        let place = (((draw >> 32) * self.own.len() as u64) >> 32) as usize;
        if draw as u32 <= self.own[place] { place } else { self.other[place] as usize }
    }
}

/// Lengths of the lines, one after the other; every other time the fourth is one byte shorter. Mean 314.5.
const LINE_BYTES: [usize; 5] = [216, 290, 389, 288, 390];

/// The topic of a record of the CS6 report: three of five are of one, two of the other.
pub fn access_log_topic(record: u64) -> &'static str {
    if record % 5 < 3 { "image" } else { "product" }
}

/// Bytes of the line of a record: 216 to 390, 314.5 on average.
pub fn access_log_line_bytes(record: u64) -> usize {
    let shorter = record % 10 == 2;
    LINE_BYTES[(record % 5) as usize] - usize::from(shorter)
}

/// Appends a line like one of an access log, for the record's topic and a key of at most 64 bytes of text; `draw` (64
/// random bits) makes up the rest.
pub fn write_access_log_line(record: u64, key: &[u8], draw: u64, line: &mut Vec<u8>) {
    let from = line.len();
    let until = from + access_log_line_bytes(record);
    let [a, b, c, d, second, size, ..] = draw.to_le_bytes();
    let start = format_args!(
        "{a}.{b}.{c}.{d} - - [01/Mar/2022:08:{:02}:{:02} +0000] \"GET /{}/",
        second / 8 % 60,
        second % 60,
        access_log_topic(record),
    );
    append(line, start);
    line.extend_from_slice(&key[..key.len().min(64)]);
    let found = format_args!(
        "/{:03}x{:03}/ HTTP/1.1\" 200 {} \"-\" \"",
        size,
        size / 2,
        1000 + u32::from(size)
    );
    append(line, found);
    // The rest of the length is the reader's program, as letters.
    let mut letters = draw | 1;
    while line.len() + 1 < until {
        letters = letters.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        line.push(b'a' + (letters >> 59) as u8 % 26);
    }
    line.push(b'"');
}

fn append(line: &mut Vec<u8>, text: fmt::Arguments<'_>) {
    fmt::write(&mut Line(line), text).expect("memory takes every byte");
}

/// Bytes that text is appended to.
struct Line<'a>(&'a mut Vec<u8>);

impl fmt::Write for Line<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Evenly spread draws: every part of the range as often.
    fn draws(count: u64) -> impl Iterator<Item = u64> {
        (0..count).map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn often(keys: &Keys, count: u64) -> BTreeMap<Vec<u8>, u64> {
        let mut often = BTreeMap::new();
        for (record, draw) in draws(count).enumerate() {
            *often.entry(keys.key(record as u64, draw).unwrap().to_vec()).or_default() += 1;
        }
        often
    }

    #[test]
    fn the_reports_keys_are_exactly_as_often() {
        let often = often(&Keys::parse("cs682").unwrap(), 100_000);
        assert_eq!(often.len(), 5);
        assert!(often.values().all(|count| *count == 20_000), "{often:?}");
    }

    #[test]
    fn uniform_keys_are_about_as_often() {
        let often = often(&Keys::parse("uniform:50").unwrap(), 100_000);
        assert_eq!(often.len(), 50);
        assert!(often.values().all(|count| (1800..2200).contains(count)), "{often:?}");
    }

    #[test]
    fn zipf_keys_fall_with_their_rank() {
        let often = often(&Keys::parse("zipf:100,1").unwrap(), 1_000_000);
        let count = |rank: u32| often[format!("{:08}", rank - 1).as_bytes()] as f64;
        // The harmonic number of 100 is 5.187.
        let expected = |rank: u32| 1e6 / 5.187 / f64::from(rank);
        for rank in [1, 2, 10, 50, 100] {
            let ratio = count(rank) / expected(rank);
            assert!((0.95..1.05).contains(&ratio), "rank {rank}: {ratio}");
        }
    }

    #[test]
    fn no_key_is_none() {
        let keys = Keys::parse("none").unwrap();
        assert_eq!((keys.key(0, 0), keys.count()), (None, 0));
    }

    #[test]
    fn what_names_no_keys_is_refused() {
        for text in [
            "",
            "uniform",
            "uniform:0",
            "uniform:99999999",
            "zipf:5",
            "zipf:5,0",
            "zipf:5,x",
            "zipf:5,inf",
        ] {
            assert_eq!(Keys::parse(text).unwrap_err(), NoKeys { text: text.to_owned() });
        }
    }

    #[test]
    fn lines_have_the_reports_lengths() {
        let mut sizes = Vec::new();
        for (record, draw) in draws(10_000).enumerate() {
            let mut line = b"before".to_vec();
            write_access_log_line(record as u64, b"60819", draw, &mut line);
            sizes.push(line.len() - 6);
            let text = String::from_utf8(line).expect("text");
            let topic = access_log_topic(record as u64);
            assert!(text.contains(&format!("\"GET /{topic}/60819/")), "{text}");
            assert!(!text.contains('\n'), "{text}");
        }
        let mean = sizes.iter().sum::<usize>() as f64 / sizes.len() as f64;
        assert_eq!((sizes.iter().min(), sizes.iter().max()), (Some(&216), Some(&390)));
        assert_eq!(mean, 314.5);
    }

    #[test]
    fn three_lines_of_five_are_of_one_topic() {
        let image = (0..1000).filter(|record| access_log_topic(*record) == "image").count();
        assert_eq!(image, 600);
    }
}
