//! Plain atomics, bumped without a lock where something happens, and read when somebody looks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A number that only rises.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    #[inline]
    pub fn add(&self, value: u64) {
        self.0.fetch_add(value, Ordering::Relaxed);
    }

    /// What it stands at.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that rises and falls.
#[derive(Debug, Default)]
pub struct Level(AtomicU64);

impl Level {
    /// Puts another in its place.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// What it stands at.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Is one higher from now on.
    pub fn raise(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Is one lower again, where it was raised before.
    pub fn lower(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Is one higher until what this returns is dropped.
    pub fn raised(&self) -> Raised<'_> {
        self.raise();
        Raised(self)
    }
}

/// Holds a [`Level`] one higher.
#[derive(Debug)]
pub struct Raised<'a>(&'a Level);

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        self.0.lower();
    }
}

/// Why something was counted: one of a few reasons, all known before.
pub trait Reason: Copy + 'static {
    /// All of them, each at its own number.
    const ALL: &'static [Self];

    /// Its number.
    fn number(self) -> usize;

    /// One word, as a label's value.
    fn name(self) -> &'static str;
}

/// A counter for each reason.
#[derive(Debug)]
pub struct ByReason<R> {
    counters: Box<[Counter]>,
    reason: std::marker::PhantomData<R>,
}

impl<R: Reason> Default for ByReason<R> {
    fn default() -> ByReason<R> {
        let counters = R::ALL.iter().map(|_| Counter::default()).collect();
        ByReason { counters, reason: std::marker::PhantomData }
    }
}

impl<R: Reason> ByReason<R> {
    /// Counts one.
    pub fn count(&self, reason: R) {
        self.counters[reason.number()].add(1);
    }

    /// What one stands at.
    pub fn of(&self, reason: R) -> u64 {
        self.counters[reason.number()].get()
    }

    /// What each stands at.
    pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        R::ALL.iter().map(|reason| (reason.name(), self.counters[reason.number()].get()))
    }

    /// All reasons together.
    pub fn total(&self) -> u64 {
        self.counters.iter().map(Counter::get).sum()
    }
}

/// Reasons and their names: an enum with the word of each.
#[macro_export]
macro_rules! reasons {
    ($(#[$about:meta])* $name:ident { $($(#[$one:meta])* $reason:ident = $word:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$one])* $reason,)* }

        impl $crate::Reason for $name {
            const ALL: &'static [$name] = &[$($name::$reason,)*];

            fn number(self) -> usize {
                self as usize
            }

            fn name(self) -> &'static str {
                match self { $($name::$reason => $word,)* }
            }
        }
    };
}

/// Buckets of a [`Durations`]: powers of two of microseconds, 1 µs to over an hour.
const DURATION_BUCKETS: usize = 32;

/// How often something took how long, by powers of two of microseconds.
#[derive(Debug, Default)]
pub struct Durations {
    buckets: [Counter; DURATION_BUCKETS],
    /// Sum of all, in microseconds.
    total_us: Counter,
}

impl Durations {
    /// Counts one.
    #[inline]
    pub fn observe(&self, duration: Duration) {
        let us = duration.as_micros() as u64;
        let bucket = (64 - us.leading_zeros() as usize).min(DURATION_BUCKETS - 1);
        self.buckets[bucket].add(1);
        self.total_us.add(us);
    }

    /// For each bucket: its upper bound in seconds (exclusive), and how many fell into it.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        self.buckets.iter().enumerate().map(|(at, count)| ((1u64 << at) as f64 / 1e6, count.get()))
    }

    /// Sum of all, in seconds.
    pub fn total_seconds(&self) -> f64 {
        self.total_us.get() as f64 / 1e6
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(Counter::get).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_fall_into_powers_of_two() {
        let durations = Durations::default();
        for us in [0, 1, 3, 1000, u64::MAX / 1_000_000] {
            durations.observe(Duration::from_micros(us));
        }
        let filled: Vec<_> = durations.buckets().filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled[0], (1e-6, 1), "below one microsecond");
        assert_eq!(filled[1], (2e-6, 1));
        assert_eq!(filled[2], (4e-6, 1));
        assert_eq!(filled[3], (1024e-6, 1));
        assert_eq!(durations.count(), 5);
    }
}
