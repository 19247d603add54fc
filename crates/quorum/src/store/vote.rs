//! The file `vote`: whom this node voted for in which term, below what the log was purged, and
//! below what it needs no recovery.
//!
//! Written to a temporary name, synced, renamed, and the directory synced. It also carries the
//! cluster's and the node's id, so that a folder that belongs to another node is not voted with.

use crate::raft::{LeaderId, LogId, Vote};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use storage::disk::Disk;

const VOTE_VERSION: u16 = 0;

/// What the file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VoteFile {
    pub(crate) cluster_id: String,
    pub(crate) node: u64,
    pub(crate) vote: Option<Vote>,
    /// The last entry that is gone because a snapshot has what it said.
    pub(crate) purged: Option<LogId>,
    /// Below this index damage to the log is damage, not an interrupted write.
    pub(crate) recovery_point: u64,
}

#[derive(Serialize, Deserialize)]
struct OnDisk {
    version: u16,
    cluster_id: String,
    node: u64,
    vote: Option<VoteOnDisk>,
    purged: Option<Point>,
    recovery_point: u64,
}

#[derive(Serialize, Deserialize)]
struct VoteOnDisk {
    term: u64,
    leader: u64,
    committed: bool,
}

/// A log id in files of ours.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Point {
    pub(crate) term: u64,
    pub(crate) leader: u64,
    pub(crate) index: u64,
}

impl From<LogId> for Point {
    fn from(id: LogId) -> Point {
        Point { term: id.leader_id.term, leader: id.leader_id.node_id, index: id.index }
    }
}

impl From<Point> for LogId {
    fn from(point: Point) -> LogId {
        LogId::new(LeaderId { term: point.term, node_id: point.leader }, point.index)
    }
}

/// Where the file is in the quorum's directory.
pub(crate) fn path(dir: &Path) -> PathBuf {
    dir.join("vote")
}

impl VoteFile {
    /// The bytes of the file: one line of JSON.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let vote = self.vote.map(|vote| VoteOnDisk {
            term: vote.leader_id.term,
            leader: vote.leader_id.node_id,
            committed: vote.committed,
        });
        let on_disk = OnDisk {
            version: VOTE_VERSION,
            cluster_id: self.cluster_id.clone(),
            node: self.node,
            vote,
            purged: self.purged.map(Point::from),
            recovery_point: self.recovery_point,
        };
        let mut bytes = serde_json::to_vec(&on_disk).expect("writing JSON to memory cannot fail");
        bytes.push(b'\n');
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<VoteFile, String> {
        let on_disk: OnDisk = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if on_disk.version > VOTE_VERSION {
            return Err(format!("version {}: a newer version wrote it", on_disk.version));
        }
        let vote = on_disk.vote.map(|vote| Vote {
            leader_id: LeaderId { term: vote.term, node_id: vote.leader },
            committed: vote.committed,
        });
        Ok(VoteFile {
            cluster_id: on_disk.cluster_id,
            node: on_disk.node,
            vote,
            purged: on_disk.purged.map(LogId::from),
            recovery_point: on_disk.recovery_point,
        })
    }

    /// Reads the file; `None` if there is none.
    pub(crate) fn read(disk: &dyn Disk, dir: &Path) -> io::Result<Option<VoteFile>> {
        let path = path(dir);
        let bytes = match disk.read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let malformed = |reason: String| {
            let text = format!("{}: {reason}", path.display());
            io::Error::new(io::ErrorKind::InvalidData, text)
        };
        VoteFile::decode(&bytes).map(Some).map_err(malformed)
    }

    /// Makes it durable.
    pub(crate) fn write(&self, disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        disk.write_atomically(&path(dir), &self.encode())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_and_back() {
        let vote = Vote { leader_id: LeaderId { term: 4, node_id: 2 }, committed: true };
        let file = VoteFile {
            cluster_id: "c".into(),
            node: 2,
            vote: Some(vote),
            purged: Some(LogId::new(LeaderId { term: 3, node_id: 1 }, 99)),
            recovery_point: 120,
        };
        assert_eq!(VoteFile::decode(&file.encode()), Ok(file));
    }

    #[test]
    fn damage_is_an_error() {
        for bytes in [&b""[..], b"{}", b"\0\0\0", br#"{"version":7,"cluster_id":"c","node":1,"vote":null,"purged":null,"recovery_point":0}"#] {
            assert!(VoteFile::decode(bytes).is_err());
        }
    }
}
