//! Choices out of a seed: the same ones on every machine and in every version of the tree.

/// A stream of numbers (SplitMix64). Not for anything that must not be guessed.
#[derive(Clone, Debug)]
pub(super) struct Seed(u64);

impl Seed {
    pub(super) fn new(seed: u64) -> Seed {
        Seed(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`, which is not 0. Slightly uneven, which does no harm here.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "no number is below 0");
        (self.next() % bound as u64) as usize
    }
}

/// A number that depends on every bit of `value`.
pub(super) fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
