//! Recognising a data folder of Apache Kafka, before any file in it is touched.

use std::path::Path;

use storage::disk::Disk;
use storage::journal::SNAPSHOT;
use storage::log_dir::LogDir;

use super::LogsError;

/// Only Kafka's metadata quorum has a file of this name; ours is `vote`.
const KAFKAS_VOTE: &str = "quorum-state";
const OUR_VOTE: &str = "vote";
const METADATA_DIR: &str = "__cluster_metadata-0";

/// Refuses the directory at `path` if Kafka made it: its quorum's log lies there, or there are folders
/// of partitions and no metadata of ours in `metadata_dir` that could know them.
pub(super) fn check(
    disk: &std::sync::Arc<dyn Disk>,
    path: &Path,
    metadata_dir: &Path,
) -> Result<(), LogsError> {
    let refused =
        |sign: &str| Err(LogsError::Foreign { path: path.to_owned(), sign: sign.to_owned() });
    if !disk.exists(path) {
        return Ok(());
    }
    for dir in [path.join(METADATA_DIR), metadata_dir.to_owned()] {
        if disk.exists(&dir.join(KAFKAS_VOTE)) && !disk.exists(&dir.join(OUR_VOTE)) {
            return refused(&format!("{} is Kafka's", dir.join(KAFKAS_VOTE).display()));
        }
    }
    let is_ours = disk.exists(&path.join(SNAPSHOT)) || disk.exists(&metadata_dir.join(OUR_VOTE));
    let folders = LogDir::at(std::sync::Arc::clone(disk), path.to_owned()).folders()?;
    match folders.iter().find(|folder| folder.partition.is_some()) {
        Some(folder) if !is_ours => refused(&format!(
            "the folder {} is there, and no metadata of Highwater in {}",
            folder.name,
            metadata_dir.display()
        )),
        _ => Ok(()),
    }
}
