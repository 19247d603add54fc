//! The log on disk: segments, indexes, recovery, retention, compaction, producer state

pub mod disk;
