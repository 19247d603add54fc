//! A later release, played by a debug build, so that tests go to a release that does not exist yet and back. A release
//! build has no trace of the part.
//!
//! The later release has one level more of each format. At every level it writes additions that an earlier release skips: a
//! field of each metadata record, a field of each heartbeat, an entry in each frame of a journal. At its own level it writes
//! additions that an earlier release refuses: a type of metadata record, a kind of journal entry.

/// Environment variable that makes a debug build play the later release.
pub const ENVIRONMENT: &str = "HIGHWATER_PLAY_LATER_RELEASE";

#[cfg(debug_assertions)]
mod playing {
    use std::sync::atomic::{AtomicBool, Ordering};

    static IS_PLAYED: AtomicBool = AtomicBool::new(false);

    /// Makes this process play the later release, for good.
    pub fn play() {
        IS_PLAYED.store(true, Ordering::Relaxed);
    }

    /// Whether this process plays the later release.
    pub fn is_played() -> bool {
        IS_PLAYED.load(Ordering::Relaxed)
    }
}

#[cfg(not(debug_assertions))]
mod playing {
    /// Whether this process plays the later release: never.
    pub const fn is_played() -> bool {
        false
    }
}

pub use playing::is_played;
#[cfg(debug_assertions)]
pub use playing::play;
