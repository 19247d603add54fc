//! Keys of records: from none to a skewed choice among millions.

use super::super::letters::Letters;
use super::arguments::Extras;
use std::str::FromStr;

/// How often each key comes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Distribution {
    /// All equally often.
    Uniform,
    /// The k-th as often as k to the power of minus this.
    Zipf(f64),
}

impl FromStr for Distribution {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Distribution, &'static str> {
        if text == "uniform" {
            return Ok(Distribution::Uniform);
        }
        let exponent = text.strip_prefix("zipf:").and_then(|s| s.parse::<f64>().ok());
        match exponent.filter(|s| s.is_finite() && *s > 0.0) {
            Some(exponent) => Ok(Distribution::Zipf(exponent)),
            None => Err("write uniform or zipf:S with a number S above 0"),
        }
    }
}

/// Draws from Zipf's distribution over 1 to `count` by rejection-inversion (Hörmann and Derflinger,
/// 1996): the same effort whatever the count.
#[derive(Debug, Clone)]
pub struct Zipf {
    count: f64,
    exponent: f64,
    integral_of_first: f64,
    integral_of_last: f64,
    shortcut: f64,
}

impl Zipf {
    /// Over so many numbers, with this exponent above 0.
    pub fn new(count: u64, exponent: f64) -> Zipf {
        let mut zipf = Zipf {
            count: count.max(1) as f64,
            exponent,
            integral_of_first: 0.0,
            integral_of_last: 0.0,
            shortcut: 0.0,
        };
        zipf.integral_of_first = zipf.integral(1.5) - 1.0;
        zipf.integral_of_last = zipf.integral(zipf.count + 0.5);
        zipf.shortcut = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.weight(2.0));
        zipf
    }

    fn weight(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// An antiderivative of the weight.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        let power = (1.0 - self.exponent) * log;
        if power.abs() > 1e-8 { power.exp_m1() / power * log } else { log * (1.0 + power / 2.0) }
    }

    fn inverse(&self, y: f64) -> f64 {
        let scaled = (y * (1.0 - self.exponent)).max(-1.0);
        let ratio = if scaled.abs() > 1e-8 { scaled.ln_1p() / scaled } else { 1.0 - scaled / 2.0 };
        (ratio * y).exp()
    }

    /// A number from 0, the most frequent, to one below the count.
    pub fn draw(&self, random: &mut fastrand::Rng) -> u64 {
        loop {
            let span = self.integral_of_first - self.integral_of_last;
            let u = self.integral_of_last + random.f64() * span;
            let x = self.inverse(u);
            let k = x.round().clamp(1.0, self.count);
            if k - x <= self.shortcut || u >= self.integral(k + 0.5) - self.weight(k) {
                return k as u64 - 1;
            }
        }
    }
}

/// A source of keys.
#[derive(Debug)]
pub struct Keys {
    choice: Choice,
    letters: Letters,
    key: Vec<u8>,
}

#[derive(Debug)]
enum Choice {
    None,
    EachAnother,
    Uniform(u64),
    Zipf(Zipf),
}

impl Keys {
    /// As `extras` say, from this seed.
    pub fn new(extras: &Extras, seed: u64) -> Keys {
        let choice = match (extras.key_cardinality, extras.key_distribution) {
            (0, _) if extras.key_bytes == 0 => Choice::None,
            (0, _) => Choice::EachAnother,
            (count, Distribution::Uniform) => Choice::Uniform(count),
            (count, Distribution::Zipf(exponent)) => Choice::Zipf(Zipf::new(count, exponent)),
        };
        Keys { choice, letters: Letters::new(seed), key: vec![b'0'; extras.key_bytes] }
    }

    /// The next record's key.
    pub fn draw(&mut self) -> Option<&[u8]> {
        let number = match &self.choice {
            Choice::None => return None,
            Choice::EachAnother => {
                self.letters.fill(&mut self.key);
                return Some(&self.key);
            }
            Choice::Uniform(count) => self.letters.random().u64(..*count),
            Choice::Zipf(zipf) => zipf.draw(self.letters.random()),
        };
        write_digits(number, &mut self.key);
        Some(&self.key)
    }
}

/// The number in decimal digits with zeros before it.
fn write_digits(mut number: u64, out: &mut [u8]) {
    for place in out.iter_mut().rev() {
        *place = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn extras(key_bytes: usize, key_cardinality: u64, key_distribution: Distribution) -> Extras {
        Extras {
            key_bytes,
            key_cardinality,
            key_distribution,
            headers: 0,
            header_name_bytes: 0,
            header_value_bytes: None,
        }
    }

    fn counts(extras: &Extras, draws: usize) -> BTreeMap<String, usize> {
        let mut keys = Keys::new(extras, 1);
        let mut out = BTreeMap::new();
        for _ in 0..draws {
            let key = String::from_utf8(keys.draw().unwrap().to_vec()).unwrap();
            *out.entry(key).or_default() += 1;
        }
        out
    }

    #[test]
    fn without_a_size_there_are_no_keys() {
        assert_eq!(Keys::new(&extras(0, 0, Distribution::Uniform), 1).draw(), None);
    }

    #[test]
    fn without_a_cardinality_each_key_is_another() {
        let found = counts(&extras(12, 0, Distribution::Uniform), 1000);
        assert_eq!(found.len(), 1000);
        assert!(found.keys().all(|key| key.len() == 12));
    }

    #[test]
    fn as_many_keys_as_asked_for_come_equally_often() {
        let found = counts(&extras(4, 20, Distribution::Uniform), 100_000);
        assert_eq!(found.len(), 20);
        assert!(found.contains_key("0000") && found.contains_key("0019"));
        assert!(found.values().all(|count| (4_600..5_400).contains(count)), "{found:?}");
    }

    #[test]
    fn frequencies_fall_with_the_rank_as_zipf_says() {
        for exponent in [0.5, 0.99, 1.0, 2.0] {
            let (count, draws) = (50u64, 200_000);
            let found = counts(&extras(2, count, Distribution::Zipf(exponent)), draws);
            let whole: f64 = (1..=count).map(|k| (k as f64).powf(-exponent)).sum();
            for k in [1u64, 2, 3, 10] {
                let expected = (k as f64).powf(-exponent) / whole * draws as f64;
                let seen = found[&format!("{:02}", k - 1)] as f64;
                let spread = 5.0 * expected.sqrt();
                assert!((seen - expected).abs() < spread, "s={exponent} k={k}: {seen} {expected}");
            }
        }
    }

    #[test]
    fn distributions_are_typed_as_words() {
        assert_eq!("uniform".parse(), Ok(Distribution::Uniform));
        assert_eq!("zipf:0.99".parse(), Ok(Distribution::Zipf(0.99)));
        for wrong in ["", "zipf", "zipf:", "zipf:-1", "zipf:NaN", "normal"] {
            assert!(wrong.parse::<Distribution>().is_err(), "{wrong}");
        }
    }
}
