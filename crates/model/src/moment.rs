//! Time that only goes forward: for time-outs, sessions and lag, never for what records say.
//!
//! The pure rooms take it as an argument, so that a simulation can make it up. A shell takes it from the
//! monotonic clock of the system; it stands still while a virtual machine does, so nothing may be *safe*
//! only because time has passed.

use std::time::Duration;

/// A moment, in microseconds since some moment before the process began to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(pub u64);

impl Moment {
    /// The first one.
    pub const START: Moment = Moment(0);

    /// The moment `later` afterwards.
    pub fn plus(self, later: Duration) -> Moment {
        Moment(self.0.saturating_add(u64::try_from(later.as_micros()).unwrap_or(u64::MAX)))
    }

    /// How much time went by since `earlier`; none if that is later.
    pub const fn since(self, earlier: Moment) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_forward_and_ends_at_its_bounds() {
        let second = Moment::START.plus(Duration::from_secs(1));
        assert_eq!(second, Moment(1_000_000));
        assert_eq!(second.since(Moment::START), Duration::from_secs(1));
        assert_eq!(Moment::START.since(second), Duration::ZERO);
        assert_eq!(second.plus(Duration::MAX), Moment(u64::MAX));
    }
}
