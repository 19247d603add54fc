//! What a quorum is started with, and how it fails.

use crate::generation::Generation;
use metadata::ControllerSettings;
use model::BrokerId;
use std::path::PathBuf;
use std::sync::Arc;
use storage::journal::MetadataNote;

/// How this node takes part in the quorum.
#[derive(Clone, Debug)]
pub struct QuorumConfig {
    /// This node's `node.id`; 0 or larger.
    pub node: BrokerId,
    /// Drawn by lot, and kept by a folder that is made now: a folder that replaces a lost one is another member.
    /// 0 of a node that votes alone.
    pub lot: u32,
    /// The voters of a cluster that does not exist yet. One that exists keeps those it has.
    pub voters: Vec<BrokerId>,
    /// The cluster's id; files and messages of another cluster are refused.
    pub cluster_id: String,
    /// Where the quorum keeps its files, by custom `__cluster_metadata-0` in a log directory.
    pub dir: PathBuf,
    /// States of the metadata folder that the journals of the log directories note: a folder that holds less is an older copy. A
    /// node with a note never makes a new cluster.
    pub notes: Vec<MetadataNote>,
    /// Generation of the metadata folder; read from the folder if not given.
    pub generation: Option<Arc<Generation>>,
    /// What decisions rest on when this node leads.
    pub controller: ControllerSettings,
    /// Milliseconds between a leader's heartbeats. A single voter sends none. Every member looks at the clock five times in
    /// one of these intervals, and that is most of what an idle broker does.
    pub heartbeat_ms: u64,
    /// Milliseconds without a heartbeat after which a voter wants to lead: drawn from this range.
    pub election_timeout_ms: std::ops::Range<u64>,
    /// A snapshot is made, and the log before it purged, every so many entries.
    pub snapshot_entries: u64,
    /// A snapshot is also made, and all of the log purged, when the log has so many bytes.
    pub snapshot_bytes: u64,
    /// Bytes of the records in one entry; a decision with more takes several. Small, because a heartbeat
    /// may wait behind an entry, and 1 or more.
    pub entry_bytes_max: usize,
}

impl QuorumConfig {
    /// The usual times and sizes.
    pub fn new(node: BrokerId, cluster_id: impl Into<String>, dir: PathBuf) -> QuorumConfig {
        QuorumConfig {
            node,
            lot: 0,
            voters: vec![node],
            cluster_id: cluster_id.into(),
            dir,
            notes: Vec::new(),
            generation: None,
            controller: ControllerSettings::default(),
            // A silent leader is taken for dead after 0.9 to 1.2 s: the longest election time-out twice, or once and the shortest.
            // One that ended is known by its link.
            heartbeat_ms: 240,
            election_timeout_ms: 300..600,
            snapshot_entries: 5000,
            snapshot_bytes: 32 << 20,
            entry_bytes_max: 256 << 10,
        }
    }
}

/// Why the quorum did not do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuorumError {
    /// Another node decides: ask it. Nothing has happened.
    #[error("this node is not the active controller{}", .leader.map(|id| format!(", node {id} is")).unwrap_or_default())]
    NotLeader {
        /// Who does, if known.
        leader: Option<BrokerId>,
    },
    /// Leadership was lost on the way. It may have happened, or may yet.
    #[error(
        "the active controller changed before the decision was committed: it may have happened"
    )]
    OutcomeUnknown,
    /// A change of members that cannot be made now.
    #[error("cannot change the voters: {0}")]
    Members(String),
    /// The leader found that the metadata folder of this node lacks entries that the node had acknowledged. The folder
    /// must be put aside ([`crate::put_aside`]) before the node starts again.
    #[error(
        "the metadata folder was put back from an older copy: {0}. Never put a voter's metadata folder back: start the node \
         without the folder"
    )]
    OlderCopy(String),
    /// The quorum has stopped on this node, or could not start: its files cannot be trusted or
    /// cannot be written. The node must not go on as a member.
    #[error("the metadata quorum cannot run: {0}")]
    Stopped(String),
}

impl QuorumError {
    pub(crate) fn stopped(reason: impl std::fmt::Display) -> QuorumError {
        QuorumError::Stopped(reason.to_string())
    }
}
