//! The data folder of a stopped broker, as the commands `log strays`, `log mend` and `log adopt` use
//! it: opening it, and saying why that cannot be done.

use std::fs::{File, TryLockError};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use broker::stopped::METADATA_FOLDER;
use model::{BrokerId, Offset, Timestamp, Uuid};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use storage::disk::{Disk, RealDisk};
use storage::log_dir::LockError;
use storage::stopped::{Stopped, StoppedError};
use storage::{Lost, StorageError};

use crate::amounts::counted;
use crate::failure::{Failure, on_output};
use crate::moment;

/// Losses that are shown one by one; the rest is counted.
const LOSSES_SHOWN: usize = 20;

/// Locks the folder against a broker that starts.
pub fn open(path: &Path) -> Result<Stopped, Failure> {
    Stopped::open(disk(), path).map_err(|error| {
        let failure = Failure::new(format!("cannot use the data folder {}", path.display()));
        let hint = match &error {
            StoppedError::NotOurs(_) => "name a folder in log.dirs of a stopped broker",
            StoppedError::Locked(LockError::Held(_)) => {
                "stop the broker first; nothing is changed while it runs"
            }
            _ => "highwater log dump shows what is in the folder",
        };
        failure.detail(error).hint(hint)
    })
}

/// Locks a folder that must have the metadata of a broker; returns the folder, the broker and its cluster id. `cannot` names what
/// the command cannot do without them.
pub fn open_metadata(
    dir: &Path,
    cannot: impl Fn() -> Failure,
) -> Result<(Stopped, BrokerId, String), Failure> {
    let stopped = open(dir)?;
    if !dir.join(METADATA_FOLDER).is_dir() {
        return Err(cannot()
            .detail(format!("{METADATA_FOLDER} is not in it"))
            .hint("name the folder of metadata.log.dir, or the first one of log.dirs"));
    }
    let owner = stopped.owner().map(|(node, cluster_id)| (node, cluster_id.to_owned()));
    let (node, cluster_id) = owner.ok_or_else(|| cannot().detail("the folder names no broker"))?;
    Ok((stopped, node, cluster_id))
}

/// Whether a broker, ours or Kafka's, holds the lock of the log directory that `path` is, or is in.
pub fn is_live(path: &Path) -> bool {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    path.ancestors().take(3).any(|dir| {
        let Ok(lock) = File::open(dir.join(".lock")) else { return false };
        let ours = matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock));
        // Java's locks are of another kind, of which those above know nothing.
        let tried = rustix::fs::fcntl_lock(&lock, FlockOperation::NonBlockingLockShared);
        ours || matches!(tried, Err(Errno::AGAIN | Errno::ACCESS))
    })
}

/// The real disk.
pub fn disk() -> Arc<dyn Disk> {
    Arc::new(RealDisk)
}

/// The present time.
pub fn now() -> Timestamp {
    Timestamp(moment::now_ms())
}

/// An id that no folder has in its name yet.
pub fn unique() -> Result<Uuid, Failure> {
    let mut bytes = [0; 16];
    let read = File::open("/dev/urandom")
        .and_then(|mut random| std::io::Read::read_exact(&mut random, &mut bytes));
    read.map_err(|error| Failure::new("cannot read /dev/urandom").detail(error))?;
    Ok(Uuid::from_random(bytes))
}

/// Writes a line to standard output.
pub fn say(line: impl std::fmt::Display) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(on_output)
}

/// A failure of the disk in the middle of the work.
pub fn failed(primary: String, error: StoppedError) -> Failure {
    let failure = Failure::new(primary).detail(&error);
    match error {
        StoppedError::Storage(StorageError::Io { .. }) => {
            failure.hint("what was begun is undone or finished when the same command is run again")
        }
        _ => failure,
    }
}

/// What is lost, a line each.
pub fn losses(lost: &[Lost]) -> Vec<String> {
    let mut lines: Vec<String> = lost.iter().take(LOSSES_SHOWN).map(loss).collect();
    if lost.len() > LOSSES_SHOWN {
        lines.push(format!("and {} more", counted((lost.len() - LOSSES_SHOWN) as u64, "place")));
    }
    lines
}

fn loss(lost: &Lost) -> String {
    let offsets = match lost.to.0 - lost.from.0 {
        count if count <= 0 => "no offset".to_owned(),
        1 => format!("offset {}", lost.from),
        count => format!("offsets {} to {} ({count})", lost.from, Offset(lost.to.0 - 1)),
    };
    let place = match &lost.at {
        Some((segment, position)) => {
            let name = segment.file_name().unwrap_or_default().to_string_lossy();
            format!(", {} bytes from byte {position} of {name} on", lost.bytes)
        }
        None => String::new(),
    };
    format!("{offsets}{place}: {}", lost.reason)
}
