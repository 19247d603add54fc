//! The time at which records are taken. A simulation sets it for its thread.

use std::time::Instant;

#[cfg(not(test))]
pub(super) fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
thread_local! {
    static SIMULATED: std::cell::Cell<Option<Instant>> = const { std::cell::Cell::new(None) };
}

#[cfg(test)]
pub(super) fn now() -> Instant {
    SIMULATED.get().unwrap_or_else(Instant::now)
}

/// Sets the time of this thread; `None`: the system's.
#[cfg(test)]
pub(super) fn simulate(at: Option<Instant>) {
    SIMULATED.set(at);
}
