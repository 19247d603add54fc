//! Who is too slow, and when clients come again.

use std::ops::Range;
use std::time::Duration;

/// After so long without a byte taken, a reader is closed: it loses nothing, because it resumes.
pub const BLOCKED_MAX: Duration = Duration::from_secs(30);
/// How often a reader hears something.
pub const PING_EVERY: Duration = Duration::from_secs(15);

/// What a reader wants if it is too slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Slow {
    /// To be closed.
    #[default]
    Close,
    /// To jump to the end, and to be told so.
    Skip,
}

/// What becomes of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It reads on.
    Stay,
    /// It is closed.
    Close,
    /// It jumps to the end.
    Skip,
}

/// What becomes of a reader that has `lag` offsets before it. `was_at_end`: it has reached the end once; `is_kept`: its next
/// chunk is in memory. Who asked to jump does so when its next records are not in memory any more, or when it lags
/// by more than `lag_max`.
pub fn verdict(
    slow: Slow,
    lag: u64,
    lag_max: Option<u64>,
    was_at_end: bool,
    is_kept: bool,
) -> Verdict {
    let is_far = was_at_end && lag_max.is_some_and(|max| lag > max);
    match slow {
        Slow::Close if is_far => Verdict::Close,
        Slow::Skip if is_far || was_at_end && !is_kept => Verdict::Skip,
        _ => Verdict::Stay,
    }
}

/// When a client shall come again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Return {
    /// After its connection broke.
    Broken,
    /// After the gateway has sent it away: none shall meet all others at the door.
    SentAway,
}

impl Return {
    const fn range_ms(self) -> Range<u64> {
        match self {
            Return::Broken => 1_000..3_000,
            Return::SentAway => 2_000..15_000,
        }
    }

    /// Milliseconds for `retry:`; `chance` within 0..1.
    pub fn retry_ms(self, chance: f64) -> u64 {
        let Range { start, end } = self.range_ms();
        start + ((end - start) as f64 * chance.clamp(0.0, 1.0)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_catches_up_is_not_slow() {
        assert_eq!(verdict(Slow::Skip, 1_000_000, Some(5), false, false), Verdict::Stay);
        assert_eq!(verdict(Slow::Close, 1_000_000, Some(5), false, false), Verdict::Stay);
    }

    #[test]
    fn a_reader_that_falls_behind_gets_what_it_asked_for() {
        assert_eq!(verdict(Slow::Close, 6, Some(5), true, true), Verdict::Close);
        assert_eq!(verdict(Slow::Close, 5, Some(5), true, true), Verdict::Stay);
        assert_eq!(verdict(Slow::Close, 5, None, true, false), Verdict::Stay);
        assert_eq!(verdict(Slow::Skip, 1, None, true, false), Verdict::Skip);
        assert_eq!(verdict(Slow::Skip, 6, Some(5), true, true), Verdict::Skip);
        assert_eq!(verdict(Slow::Skip, 1, None, true, true), Verdict::Stay);
    }

    #[test]
    fn times_to_return_lie_within_their_range() {
        for chance in [0.0, 0.5, 0.999, 1.0, 7.0] {
            assert!((1_000..=3_000).contains(&Return::Broken.retry_ms(chance)));
            assert!((2_000..=15_000).contains(&Return::SentAway.retry_ms(chance)));
        }
    }
}
