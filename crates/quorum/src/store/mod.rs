//! What the quorum keeps in `__cluster_metadata-0`: the log, the vote, the snapshots.
//!
//! ```text
//! 00000000000000000000.log …          Kafka batches; the offset of a record is its raft index
//! vote                                the node's vote, and below which index the log was purged
//! synced                              below which index the log was synced; not synced itself
//! 00000000000000005000-0000000003.checkpoint   the image as of that index, in that term
//! ```
//!
//! Only the writer's thread (`writer.rs`) writes the log and `vote`; `tail.rs` holds what it has not written yet.
//!
//! Everything but `synced` is synced before it counts. The first write or sync that fails is final.
//! A file that is not what was written is refused by name, before openraft sees anything of it.
//!
//! Read `open.rs` first: what must agree with what.

pub(crate) mod backlog;
mod check;
pub(crate) mod checksum;
pub(crate) mod log_store;
pub(crate) mod open;
pub(crate) mod snapshot;
pub(crate) mod stopped;
#[cfg(test)]
mod suite;
mod synced;
mod tail;
pub(crate) mod vote;
pub(crate) mod writer;

use std::fmt::Display;
use std::io;
use std::path::Path;

/// What to do about a folder that cannot be used.
const RESTORE: &str = "nothing was changed: if other voters are well, move the folder away and start this node without \
    it; a node that votes alone needs the folder as it was at the last stop";

/// A file or folder that is refused, why, and what to do about that.
fn refused(path: &Path, reason: impl Display, advice: &str) -> io::Error {
    let text = format!("{}: {reason}; {advice}", path.display());
    io::Error::new(io::ErrorKind::InvalidData, text)
}
