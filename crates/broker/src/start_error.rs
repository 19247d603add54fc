//! Why a broker does not start, or cannot go on.

use std::io;
use std::path::PathBuf;

use configuration::BrokerConfig;
use metadata::Refusal;
use quorum::{Quorum, QuorumError};
use storage::disk::RealDisk;
use tracing::warn;

use crate::logs::LogsError;
use crate::start::METADATA_DIR;

/// Why a broker did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The log directories cannot be used.
    #[error(transparent)]
    Logs(#[from] LogsError),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address.
        address: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The address of metrics and health cannot be listened on.
    #[error("cannot listen on {address} for metrics and health: {source}")]
    BindHttp {
        /// The address.
        address: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The metadata quorum did not start.
    #[error(transparent)]
    Quorum(#[from] QuorumError),
    /// An older copy of the metadata folder cannot be put aside.
    #[error("cannot rename the metadata folder {}: {source}", .folder.display())]
    MetadataFolder {
        /// The folder.
        folder: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The broker could not join the cluster.
    #[error("the broker cannot join the cluster: {0}")]
    NotJoined(String),
    /// The controller does not want this broker.
    #[error("the controller refuses this broker: {}: {}", .0.error, .0.message)]
    Refused(Refusal),
    /// Threads cannot be started.
    #[error("cannot start threads: {0}")]
    Threads(io::Error),
}

impl StartError {
    /// Whether another start succeeds at once: the metadata folder was an older copy, and is put aside.
    pub fn starts_again(&self) -> bool {
        matches!(self, StartError::Quorum(QuorumError::OlderCopy(_)))
    }
}

/// Why a broker cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BrokerFailure {
    /// The metadata folder was put back from an older copy while the broker ran, and is put aside: another start joins with an
    /// empty one.
    OlderCopy,
    /// The reason, in words.
    Ended(String),
}

/// The quorum failed on this node. A metadata folder that is an older copy is put aside: the next start makes an empty one.
pub(crate) async fn not_a_member(
    config: &BrokerConfig,
    quorum: &Quorum,
    cause: QuorumError,
) -> StartError {
    if matches!(cause, QuorumError::OlderCopy(_)) {
        // It has failed, and writes no more.
        let _ = quorum.stop().await;
        let folder = config.metadata_dir.join(METADATA_DIR);
        match quorum::put_aside(&RealDisk, &folder) {
            Ok(aside) => {
                let (folder, aside) = (folder.display(), aside.display());
                warn!(%cause, %folder, %aside, "the metadata folder is put aside");
            }
            Err(error) => return StartError::MetadataFolder { folder, source: error },
        }
    }
    cause.into()
}
