//! Who this node is, as every Hello says it.

use crate::codec::hello::{Hello, LogPoint, NONCE_BYTES, Purpose, VERSIONS, Versions};
use crate::codec::proof::Secret;
use model::{BrokerId, Uuid};
use std::fmt;
use std::io;
use std::sync::Arc;

/// Where the end of the metadata log is read when a Hello is said.
#[derive(Clone)]
pub struct LastMetadata(Arc<dyn Fn() -> Option<LogPoint> + Send + Sync>);

impl LastMetadata {
    /// As this function says. It must not block.
    pub fn new(last: impl Fn() -> Option<LogPoint> + Send + Sync + 'static) -> LastMetadata {
        LastMetadata(Arc::new(last))
    }
}

impl Default for LastMetadata {
    /// Without a log.
    fn default() -> LastMetadata {
        LastMetadata::new(|| None)
    }
}

impl fmt::Debug for LastMetadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LastMetadata({:?})", (self.0)())
    }
}

/// Reads the generation of the quorum when a Hello is sent.
#[derive(Clone)]
pub struct QuorumGeneration(Arc<dyn Fn() -> u32 + Send + Sync>);

impl QuorumGeneration {
    /// Reads by this function, which must not block.
    pub fn new(read: impl Fn() -> u32 + Send + Sync + 'static) -> QuorumGeneration {
        QuorumGeneration(Arc::new(read))
    }
}

impl Default for QuorumGeneration {
    /// The quorum that made the cluster.
    fn default() -> QuorumGeneration {
        QuorumGeneration::new(|| 0)
    }
}

impl fmt::Debug for QuorumGeneration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QuorumGeneration({})", (self.0)())
    }
}

/// Who this node is.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The cluster that it belongs to; not empty.
    pub cluster_id: String,
    /// Its `node.id`; 0 or larger.
    pub node: BrokerId,
    /// The ids of its log directories.
    pub directories: Vec<Uuid>,
    /// This run of the process.
    pub incarnation: Uuid,
    /// What it proves to belong by (`inter.broker.secret`). Without one it talks to its own machine only.
    pub secret: Option<Secret>,
    /// The versions of the link that it speaks.
    pub versions: Versions,
    /// The end of its metadata log.
    pub last_metadata: LastMetadata,
    /// Generation of the quorum whose metadata the node has.
    pub generation: QuorumGeneration,
}

impl Identity {
    /// A node without directories, secret and metadata, that speaks what this code speaks.
    pub fn new(cluster_id: impl Into<String>, node: BrokerId, incarnation: Uuid) -> Identity {
        Identity {
            cluster_id: cluster_id.into(),
            node,
            directories: Vec::new(),
            incarnation,
            secret: None,
            versions: VERSIONS,
            last_metadata: LastMetadata::default(),
            generation: QuorumGeneration::default(),
        }
    }

    /// What to say on a new connection. Fails if the system has no randomness.
    pub(crate) fn hello(&self, purpose: Purpose, wanted: Option<BrokerId>) -> io::Result<Hello> {
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).map_err(io::Error::other)?;
        Ok(Hello {
            versions: self.versions,
            has_secret: self.secret.is_some(),
            node: self.node,
            wanted,
            incarnation: self.incarnation,
            nonce,
            purpose,
            last_metadata: (self.last_metadata.0)(),
            cluster_id: self.cluster_id.clone(),
            directories: self.directories.clone(),
            generation: (self.generation.0)(),
        })
    }
}
