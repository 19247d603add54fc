//! What a log directory knows of its partitions: one checksummed journal for all of them.
//!
//! ```text
//! highwater-partitions            snapshot: everything at one moment
//! highwater-partitions.journal    entries appended since
//! ```
//!
//! Whose a folder is, what of it was synced, which segments must exist, where the log starts, and
//! that a partition is refused or deleted: each is an entry about a topic id and a partition's
//! number, so a topic made again under an old name inherits nothing. One sync makes the entries of
//! any number of partitions durable.
//!
//! **Invariants.** The state is a function of the entries. Sequence numbers of frames have no gap.
//! No byte that a durable frame or a snapshot holds is ever written over, but for the snapshot's
//! slots. Any changed, missing or cut byte of what was durable is noticed when the journal is read.
//!
//! **Levels.** `meta.properties` names the level of the journal. No entry kind above the level is written
//! ([`Entry::level`]), so an earlier release reads a directory until an operator raises the level
//! ([`Journal::raise_level`]), and refuses the directory afterwards, before it reads a frame.
//!
//! Read `entry.rs` first, then `state.rs`, `frames.rs`, `snapshot.rs`, `writer.rs`. Not here: when
//! entries are written, and what a start does with what it finds (the broker's room `logs`).

mod codec;
pub(crate) use codec::crc32c;
mod entry;
mod frames;
mod load;
mod snapshot;
mod state;
mod writer;

pub use codec::Unreadable;
pub use entry::{Checkpoint, Entry, Fact, Key, MetadataNote, Opened, Refused};
pub use load::{JOURNAL, Loaded, SNAPSHOT, decode, load};
pub use model::level::{JOURNAL_LEVEL_MAX, JOURNAL_LEVEL_MIN};
pub use state::{PROCESSES_MAX, PartitionState, State};
pub use writer::Journal;
