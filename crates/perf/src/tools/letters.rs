//! The letters that payloads are made of: `A` to `Z`, from a fixed seed, as in Kafka's tools.
//!
//! [`Java`] gives the very bytes of Kafka's tools up to 2.8, whose payload was filled once for all
//! records. [`Letters`] has the same distribution and is made to fill every record anew without
//! costing more than sending it.

/// `java.util.Random`, as far as it is needed.
#[derive(Debug, Clone)]
pub struct Java {
    state: u64,
}

const MULTIPLIER: u64 = 0x5_DEEC_E66D;
const MASK: u64 = (1 << 48) - 1;

impl Java {
    /// A generator of this seed.
    pub fn new(seed: u64) -> Java {
        Java { state: (seed ^ MULTIPLIER) & MASK }
    }

    fn next_31(&mut self) -> i32 {
        self.state = self.state.wrapping_mul(MULTIPLIER).wrapping_add(0xB) & MASK;
        (self.state >> 17) as i32
    }

    /// A number below `bound`, which is no power of two: the only kind that is asked for.
    fn below(&mut self, bound: i32) -> i32 {
        debug_assert!(bound.count_ones() != 1 && bound > 0, "powers of two go another way");
        loop {
            let drawn = self.next_31();
            let rest = drawn % bound;
            // Draws of the last, incomplete run of numbers would favour the small ones.
            if drawn.checked_sub(rest).and_then(|d| d.checked_add(bound - 1)).is_some() {
                return rest;
            }
        }
    }

    /// Fills with letters.
    pub fn fill(&mut self, out: &mut [u8]) {
        out.fill_with(|| b'A' + self.below(26) as u8);
    }
}

/// Letters fast: four for each number drawn.
#[derive(Debug, Clone)]
pub struct Letters {
    random: fastrand::Rng,
}

impl Letters {
    /// A generator of this seed.
    pub fn new(seed: u64) -> Letters {
        Letters { random: fastrand::Rng::with_seed(seed) }
    }

    /// Fills with letters. Sixteen bits are scaled to one letter, so the most frequent letter is
    /// more frequent than the rarest by less than one in two thousand.
    pub fn fill(&mut self, out: &mut [u8]) {
        let (wholes, rest) = out.as_chunks_mut::<8>();
        for whole in wholes {
            *whole = pair(self.random.u64(..), self.random.u64(..));
        }
        if !rest.is_empty() {
            let last = pair(self.random.u64(..), self.random.u64(..));
            rest.copy_from_slice(&last[..rest.len()]);
        }
    }

    /// So many letters.
    pub fn take(&mut self, count: usize) -> Vec<u8> {
        let mut out = vec![0; count];
        self.fill(&mut out);
        out
    }

    /// The generator, for other draws.
    pub fn random(&mut self) -> &mut fastrand::Rng {
        &mut self.random
    }
}

fn pair(first: u64, second: u64) -> [u8; 8] {
    std::array::from_fn(|i| {
        let bits = if i < 4 { first >> (16 * i) } else { second >> (16 * (i - 4)) };
        b'A' + (((bits & 0xFFFF) * 26) >> 16) as u8
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_letters_of_seed_0_are_those_of_kafkas_tools_before_3_0() {
        let mut out = [0; 40];
        Java::new(0).fill(&mut out);
        assert_eq!(&out, b"SSXVNJHPDQDXVCRASTVYBCWVMGNYKRXVZXKGXTSP");
    }

    #[test]
    fn all_letters_are_equally_frequent() {
        let mut counts = [0u64; 26];
        let text = Letters::new(0).take(2_600_003);
        for letter in &text {
            counts[usize::from(letter - b'A')] += 1;
        }
        let expected = text.len() as f64 / 26.0;
        let square = |count: &u64| (*count as f64 - expected).powi(2) / expected;
        let chi_square: f64 = counts.iter().map(square).sum();
        // 25 degrees of freedom: above 60 once in 10,000 seeds, and this is one seed for ever.
        assert!(chi_square < 60.0, "{chi_square}");
    }

    #[test]
    fn each_fill_is_another_and_a_seed_repeats_them() {
        let mut letters = Letters::new(7);
        let (first, second) = (letters.take(100), letters.take(100));
        assert_ne!(first, second);
        assert_eq!(Letters::new(7).take(100), first);
    }
}
