//! Levels of formats: the newest form that a release writes and reads.
//!
//! A cluster records the level of each format (`highwater cluster finalize` raises it). Below the recorded
//! level nothing newer is written or sent, so every broker can run the previous release again.

use crate::later_release;

/// Feature name of the level of metadata records, and of messages between brokers.
pub const HIGHWATER_VERSION: &str = "highwater.version";
/// Feature name of the level of log directories' journals; also a key of `meta.properties`.
pub const HIGHWATER_JOURNAL: &str = "highwater.journal";

/// Level of `highwater.version` of release 0.1.0: brokers register with their release and levels.
pub const HIGHWATER_VERSION_0_1_0: i16 = 3;
/// Newest level of `highwater.version` that this release reads and writes.
pub const HIGHWATER_VERSION_MAX: i16 = 4;

/// Oldest level of a journal: entry kinds up to release 0.1.0, and entries that readers may skip.
pub const JOURNAL_LEVEL_MIN: u8 = 1;
/// Newest level of a journal that this release reads and writes.
pub const JOURNAL_LEVEL_MAX: u8 = 2;

/// Newest level of `highwater.version` of this program: [`HIGHWATER_VERSION_MAX`], and one more while the program plays a
/// [later release](later_release).
pub fn newest_version() -> i16 {
    HIGHWATER_VERSION_MAX + i16::from(later_release::is_played())
}

/// Newest level of a journal of this program: [`JOURNAL_LEVEL_MAX`], and one more while the program plays a
/// [later release](later_release).
pub fn newest_journal() -> u8 {
    JOURNAL_LEVEL_MAX + u8::from(later_release::is_played())
}
