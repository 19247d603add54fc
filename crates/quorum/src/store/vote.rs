//! The file `vote`: the node that this node voted for, in which term; below which index the log was
//! purged, and below which index the log needs no recovery.
//!
//! Written to a temporary name, synced, renamed, and the directory synced. It also carries the
//! cluster's and the node's id, so that a folder that belongs to another node is not voted with.
//! Its last field is a checksum of the rest; files of version 0 have none.

use super::{checksum, refused};
use crate::raft::{LeaderId, LogId, Vote, is_node_id};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use storage::disk::Disk;

/// The newest version of the file that this code reads.
const VOTE_VERSION: u16 = 1;

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
    /// Of a node that has neither voted nor purged anything.
    pub(crate) fn new(cluster_id: &str, node: u64) -> VoteFile {
        let cluster_id = cluster_id.to_owned();
        VoteFile { cluster_id, node, vote: None, purged: None, recovery_point: 0 }
    }

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
        checksum::seal(&mut bytes);
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<VoteFile, String> {
        checksum::check(bytes, VOTE_VERSION)?;
        let on_disk: OnDisk = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if let Some(node) = on_disk.vote.iter().map(|vote| vote.leader).find(|id| !is_node_id(*id))
        {
            return Err(format!("the vote is for node {node}, and no node can have that id"));
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
        let advice = "how this node voted is not known any more: if other nodes vote, move the folder away \
            and start this node without it; if this node is the only voter of its cluster, remove the file, and it is made \
            again from the log";
        VoteFile::decode(&bytes)
            .map(Some)
            .map_err(|reason| refused(&path, format_args!("the file is damaged: {reason}"), advice))
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
    fn a_file_of_version_0_is_read() {
        let line = br#"{"version":0,"cluster_id":"c","node":1,"vote":{"term":3,"leader":1,"committed":true},"purged":null,"recovery_point":9}"#;
        let file = VoteFile::decode(line).unwrap();
        assert_eq!((file.vote.unwrap().leader_id.term, file.recovery_point), (3, 9));
    }

    #[test]
    fn damage_is_an_error() {
        for bytes in [&b""[..], b"{}", b"\0\0\0", br#"{"version":7,"cluster_id":"c","node":1,"vote":null,"purged":null,"recovery_point":0}"#] {
            assert!(VoteFile::decode(bytes).is_err());
        }
    }
}
