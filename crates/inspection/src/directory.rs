//! Tells what is in the files of a log directory and of the metadata quorum: checkpoints, the journal of
//! partitions, vote and snapshot.
//!
//! The journal is decoded by the room that writes it: its checksums cover every byte, so there is
//! nothing that a second reader would find.

use std::io;
use std::path::Path;

use storage::disk::Disk;
use storage::journal::{self, Key, PartitionState, Unreadable};

use super::finding::{FileKind, Finding, Tell};

/// Files of Kafka's form: a version, a count, and a line `topic partition offset` each.
pub(super) const CHECKPOINTS: [&str; 4] = [
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
];

/// `*-offset-checkpoint`
pub(super) fn offsets(disk: &dyn Disk, path: &Path, tell: &mut Tell<'_>) -> io::Result<()> {
    let bytes = disk.read(path)?;
    tell(path, Finding::Begin(FileKind::OffsetCheckpoint));
    let text = String::from_utf8_lossy(&bytes);
    let mut lines = text.lines();
    let head = (lines.next(), lines.next().and_then(|count| count.trim().parse::<u64>().ok()));
    let (mut entry_count, mut wrong) = (0, None);
    for line in lines {
        let Some((topic, partition, offset)) = checkpointed(line) else {
            wrong.get_or_insert(format!("invalid line {line:?}"));
            continue;
        };
        entry_count += 1;
        tell(path, Finding::Checkpointed { topic, partition, offset });
    }
    if head != (Some("0"), Some(entry_count)) {
        wrong.get_or_insert(format!("the head does not announce {entry_count} lines"));
    }
    end(path, wrong, bytes.len(), entry_count, tell);
    Ok(())
}

fn checkpointed(line: &str) -> Option<(&str, i32, i64)> {
    let mut words = line.split(' ');
    let (topic, partition, offset) = (words.next()?, words.next()?, words.next()?);
    words.next().is_none().then_some((topic, partition.parse().ok()?, offset.parse().ok()?))
}

/// `vote` or a `.checkpoint` of the quorum: lines of text, told as they are.
pub(super) fn lines(
    disk: &dyn Disk,
    path: &Path,
    kind: FileKind,
    tell: &mut Tell<'_>,
) -> io::Result<()> {
    let bytes = disk.read(path)?;
    tell(path, Finding::Begin(kind));
    let (mut entry_count, mut wrong) = (0, None);
    match std::str::from_utf8(&bytes) {
        Ok(text) => {
            for line in text.lines() {
                entry_count += 1;
                tell(path, Finding::Line(line));
            }
            if !text.ends_with('\n') {
                wrong = Some("the last line does not end: the file was cut".to_owned());
            }
        }
        Err(error) => wrong = Some(format!("not text from byte {} on", error.valid_up_to())),
    }
    end(path, wrong, bytes.len(), entry_count, tell);
    Ok(())
}

fn end(
    path: &Path,
    wrong: Option<String>,
    size_bytes: usize,
    entry_count: u64,
    tell: &mut Tell<'_>,
) {
    if let Some(reason) = &wrong {
        tell(path, Finding::Damage { position: None, reason });
    }
    tell(path, Finding::End { size_bytes: size_bytes as u64, entry_count, record_count: 0 });
}

/// The journal of the log directory `dir`: its snapshot and what was appended since.
pub(super) fn journal(disk: &dyn Disk, dir: &Path, tell: &mut Tell<'_>) -> io::Result<usize> {
    let (snapshot, appended) = (dir.join(journal::SNAPSHOT), dir.join(journal::JOURNAL));
    let there = [&snapshot, &appended].map(|path| disk.exists(path));
    if there == [false, false] {
        return Ok(0);
    }
    tell(&snapshot, Finding::Begin(FileKind::PartitionJournal));
    if there != [true, true] {
        let missing = if there[0] { &appended } else { &snapshot };
        let reason = "the other file of the journal is there and this one is missing";
        tell(missing, Finding::Damage { position: None, reason });
        return Ok(1);
    }
    let decoded = journal::decode(&disk.read(&snapshot)?, &disk.read(&appended)?);
    match decoded {
        Ok(loaded) => {
            let mut entry_count = 0;
            for (key, state) in &loaded.state.partitions {
                entry_count += 1;
                partition(&snapshot, key, state, tell);
            }
            if loaded.cut_bytes > 0 {
                let position = Some(loaded.size_bytes.1);
                let reason = format!("{} bytes of an incomplete write", loaded.cut_bytes);
                tell(&appended, Finding::Unfinished { position, reason: &reason });
            }
            let size_bytes = loaded.size_bytes.0 + loaded.size_bytes.1;
            tell(&snapshot, Finding::End { size_bytes, entry_count, record_count: 0 });
        }
        Err((name, Unreadable(reason))) => {
            tell(&dir.join(name), Finding::Damage { position: None, reason: &reason });
        }
    }
    Ok(2)
}

fn partition(path: &Path, key: &Key, state: &PartitionState, tell: &mut Tell<'_>) {
    let checkpoint = state.checkpoint.as_ref();
    let finding = Finding::Journaled {
        topic: &state.opened.topic,
        partition: key.partition.0,
        topic_id: key.topic_id,
        synced: state.synced.0,
        log_start: state.log_start.0,
        recovery_point: checkpoint.map(|checkpoint| checkpoint.recovery_point.0),
        closed_at: state.closed.map(|end| end.0),
        sealed_count: state.sealed.as_ref().map(Vec::len),
        refused: state.refused.as_ref().map(|refused| &*refused.reason),
        deleted: state.deleted.is_some(),
    };
    tell(path, finding);
}
