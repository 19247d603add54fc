//! Which levels `compression.gzip.level`, `compression.lz4.level` and `compression.zstd.level`
//! (KIP-390) take, and what they are when nobody says.

use model::Compression;

/// The levels of one codec. Higher is smaller and slower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    /// The lowest, inclusive.
    pub min: i32,
    /// The highest, inclusive.
    pub max: i32,
    /// The one used when nothing is configured. Gzip's is -1, which lies outside its range and
    /// says "as zlib likes".
    pub default: i32,
}

impl Levels {
    /// Whether a configuration may say `level`.
    pub fn accepts(&self, level: i32) -> bool {
        level == self.default || (self.min..=self.max).contains(&level)
    }

    /// The level closest to the one wanted, the default if none is.
    pub(crate) fn nearest(&self, wanted: Option<i32>) -> i32 {
        match wanted {
            None => self.default,
            Some(level) if level == self.default => level,
            Some(level) => level.clamp(self.min, self.max),
        }
    }
}

/// The levels of a codec, as Kafka has them; `None` for a codec without levels.
pub const fn levels(codec: Compression) -> Option<Levels> {
    match codec {
        Compression::None | Compression::Snappy => None,
        Compression::Gzip => Some(Levels { min: 1, max: 9, default: -1 }),
        Compression::Lz4 => Some(Levels { min: 1, max: 17, default: 9 }),
        Compression::Zstd => Some(Levels { min: -131_072, max: 22, default: 3 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_accepted_within_the_range_and_at_the_default() {
        let gzip = levels(Compression::Gzip).unwrap();
        assert!(gzip.accepts(-1) && gzip.accepts(1) && gzip.accepts(9));
        assert!(!gzip.accepts(0) && !gzip.accepts(10));
        assert_eq!((gzip.nearest(None), gzip.nearest(Some(0)), gzip.nearest(Some(99))), (-1, 1, 9));
        assert_eq!(levels(Compression::Snappy), None);
    }
}
