//! The text files that remember offsets across restarts, in Kafka's form: a version, a count, and
//! one line per partition.
//!
//! ```text
//! 0
//! 2
//! orders 0 1234
//! orders 1 980
//! ```
//!
//! Not here: when they are written. A checkpoint may lag behind the truth, never run ahead of it.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use model::{Offset, TopicPartition};

use crate::StorageError;
use crate::disk::Disk;
use crate::error::Context;

/// Below it, per partition, everything is synced and indexed durably.
pub const RECOVERY_POINT: &str = "recovery-point-offset-checkpoint";
/// The first offset of each partition, where it is not simply that of the first segment.
pub const LOG_START: &str = "log-start-offset-checkpoint";
/// The high watermark of each partition.
pub const HIGH_WATERMARK: &str = "replication-offset-checkpoint";
/// Below it, per partition, the log has been compacted.
pub const CLEANER: &str = "cleaner-offset-checkpoint";

/// Offsets by partition, as one of the checkpoint files holds them.
pub type Offsets = BTreeMap<TopicPartition, Offset>;

/// Reads a checkpoint of a log directory; a file that is not there holds nothing.
///
/// Fails with [`StorageError::Malformed`] on a file that cannot be understood.
pub fn load(disk: &dyn Disk, log_dir: &Path, name: &str) -> Result<Offsets, StorageError> {
    let path = log_dir.join(name);
    let bytes = match disk.read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Offsets::new()),
        Err(error) => return Err(error).during("read", &path),
    };
    let parse =
        || -> Result<Offsets, String> { decode(&bytes)?.into_iter().map(offset_line).collect() };
    parse().map_err(|reason| StorageError::Malformed { path, reason })
}

/// Replaces a checkpoint of a log directory, durably and atomically.
pub fn store(
    disk: &dyn Disk,
    log_dir: &Path,
    name: &str,
    offsets: &Offsets,
) -> Result<(), StorageError> {
    let path = log_dir.join(name);
    disk.write_atomically(&path, &text(offsets)).during("write", &path)
}

/// A checkpoint file's content.
pub fn text(offsets: &Offsets) -> Vec<u8> {
    encode(offsets.iter().map(|(tp, offset)| format!("{} {} {offset}", tp.topic, tp.partition)))
}

fn offset_line(line: &str) -> Result<(TopicPartition, Offset), String> {
    let mut words = line.split(' ');
    let (Some(topic), Some(partition), Some(offset), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err("a line is not topic, partition and offset".to_owned());
    };
    let partition = partition.parse().map_err(|_| "invalid partition")?;
    let offset = offset.parse().map_err(|_| "invalid offset")?;
    Ok((TopicPartition::new(topic, partition), Offset(offset)))
}

/// A checkpoint file of these lines.
pub(crate) fn encode(lines: impl Iterator<Item = String>) -> Vec<u8> {
    let lines: Vec<String> = lines.collect();
    let mut text = format!("0\n{}\n", lines.len());
    for line in lines {
        text.push_str(&line);
        text.push('\n');
    }
    text.into_bytes()
}

/// The lines of a checkpoint file, version and count checked.
pub(crate) fn decode(bytes: &[u8]) -> Result<Vec<&str>, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not text")?;
    let mut lines = text.lines();
    match lines.next() {
        Some("0") => {}
        Some(other) => return Err(format!("version {other:?} is not known")),
        None => return Err("it is empty".to_owned()),
    }
    let count = lines.next().and_then(|line| line.parse::<usize>().ok());
    let lines: Vec<&str> = lines.collect();
    if count != Some(lines.len()) {
        return Err(format!("{} lines stand below a count of {count:?}", lines.len()));
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::RealDisk;

    #[test]
    fn offsets_and_back() {
        let dir = tempfile::tempdir().unwrap();
        assert!(load(&RealDisk, dir.path(), RECOVERY_POINT).unwrap().is_empty());
        let mut offsets = Offsets::new();
        offsets.insert(TopicPartition::new("b", 1), Offset(7));
        offsets.insert(TopicPartition::new("a.b_c-d", 12), Offset(i64::MAX));
        store(&RealDisk, dir.path(), RECOVERY_POINT, &offsets).unwrap();
        let text = std::fs::read_to_string(dir.path().join(RECOVERY_POINT)).unwrap();
        assert_eq!(text, format!("0\n2\na.b_c-d 12 {}\nb 1 7\n", i64::MAX));
        assert_eq!(load(&RealDisk, dir.path(), RECOVERY_POINT).unwrap(), offsets);
    }

    #[test]
    fn nonsense_is_refused_with_the_files_name() {
        let dir = tempfile::tempdir().unwrap();
        for bad in ["", "1\n0\n", "0\n1\n", "0\n1\na b c\n", "0\n1\na 1\n", "0\n0\na 1 2\n"] {
            std::fs::write(dir.path().join(CLEANER), bad).unwrap();
            let error = load(&RealDisk, dir.path(), CLEANER).unwrap_err().to_string();
            assert!(error.contains(CLEANER), "{bad:?} gave {error}");
        }
    }
}
