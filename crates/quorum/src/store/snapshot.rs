//! Snapshots: the image as the lines that make it, in a file of its own.
//!
//! First a line that says as of which entry, and which were the members; then one metadata record a
//! line; last a line with the number of records, the image's digest, and a checksum of the whole
//! file, by which damage is found. Files of version 0 have no checksum. The same bytes are sent to a
//! node that is too far behind.
//!
//! The snapshot before the newest stays, and so do the entries behind it: if the newest is damaged or
//! gone, the image can be made from those.

use super::checksum;
use super::vote::Point;
use crate::raft::{LogId, SnapshotMeta, StoredMembership, is_node_id, membership};
use crate::translation::plain_members;
use ledger::Members;
use metadata::image::digest_of_lines;
use metadata::{ClusterImage, DecodeError, MetadataRecord};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use storage::disk::Disk;

/// The newest version of the file that this code reads.
const SNAPSHOT_VERSION: u16 = 1;
const SUFFIX: &str = ".checkpoint";
/// Given to a snapshot that cannot be read and is not needed.
const DAMAGED: &str = ".damaged";
/// Snapshots that are kept.
const KEPT: usize = 2;

/// The image with the place in the log that it stands for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Applied {
    pub(crate) image: ClusterImage,
    /// The last entry applied.
    pub(crate) last: Option<LogId>,
    /// Index of the entry that last changed the image.
    pub(crate) changed_at: Option<u64>,
    /// The members, and the entry that made them so.
    pub(crate) members: StoredMembership,
}

#[derive(Serialize, Deserialize)]
struct FirstLine {
    version: u16,
    last: Option<Point>,
    changed_at: Option<u64>,
    members_since: Option<Point>,
    voters: Vec<Vec<u64>>,
    learners: Vec<u64>,
}

#[derive(Serialize, Deserialize)]
struct LastLine {
    records: usize,
    digest: String,
}

fn line(out: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(&mut *out, value).expect("writing JSON to memory cannot fail");
    out.push(b'\n');
}

impl Applied {
    /// What openraft wants to know of it.
    pub(crate) fn meta(&self) -> SnapshotMeta {
        SnapshotMeta { last_log_id: self.last, last_membership: self.members.clone() }
    }

    /// The bytes of the file.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let Members { voters, learners } = plain_members(self.members.membership());
        let first = FirstLine {
            version: SNAPSHOT_VERSION,
            last: self.last.map(Point::from),
            changed_at: self.changed_at,
            members_since: self.members.log_id().map(Point::from),
            voters,
            learners,
        };
        let records = self.image.to_records();
        let mut out = Vec::new();
        line(&mut out, &first);
        MetadataRecord::encode_lines(&records, &mut out);
        let digest = format!("{:016x}", self.image.digest());
        line(&mut out, &LastLine { records: records.len(), digest });
        checksum::seal(&mut out);
        out
    }

    /// Reads what [`Applied::encode`] wrote; the reason if that is not it.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Applied, String> {
        checksum::check(bytes, SNAPSHOT_VERSION)?;
        let body = bytes.strip_suffix(b"\n").ok_or("its last line is not complete")?;
        let first_end = body.iter().position(|b| *b == b'\n').ok_or("it has one line only")?;
        let last_start = body.iter().rposition(|b| *b == b'\n').ok_or("it has one line only")?;
        let text = |error: serde_json::Error| error.to_string();
        let first: FirstLine = serde_json::from_slice(&body[..first_end]).map_err(text)?;
        let mut nodes = first.voters.iter().flatten().chain(&first.learners);
        if let Some(node) = nodes.find(|id| !is_node_id(**id)) {
            return Err(format!("it has a member {node}, and no node can have that id"));
        }
        let last: LastLine = serde_json::from_slice(&body[last_start + 1..]).map_err(text)?;
        let records = &body[first_end..last_start.max(first_end)];
        let image = replay(records, &last)?;
        let members = membership(first.voters, first.learners);
        let since = first.members_since.map(LogId::from);
        Ok(Applied {
            image,
            last: first.last.map(LogId::from),
            changed_at: first.changed_at,
            members: StoredMembership::new(since, members),
        })
    }
}

fn replay(lines: &[u8], expected: &LastLine) -> Result<ClusterImage, String> {
    let records = MetadataRecord::decode_lines(lines).map_err(|error| error.to_string())?;
    let mut image = ClusterImage::default();
    for record in &records {
        image.replay(record).map_err(|error| error.to_string())?;
    }
    if records.len() != expected.records || !is_digest(&expected.digest, &image, lines) {
        return Err(format!("its {} records are not those that were written", records.len()));
    }
    Ok(image)
}

/// Whether the digest is the image's, or that of the lines as they were written. The lines of a newer release may hold fields
/// that this release skips, so that the image lacks them.
fn is_digest(digest: &str, image: &ClusterImage, lines: &[u8]) -> bool {
    let written = match lines.strip_prefix(b"\n") {
        Some(lines) => &[lines, b"\n"].concat(),
        None => lines,
    };
    [image.digest(), digest_of_lines(written)].iter().any(|found| format!("{found:016x}") == digest)
}

/// Whether a file that is whole has a newer version, or a record of a type that this release does not know.
fn is_newer(bytes: &[u8]) -> bool {
    let is_unknown =
        |line: &[u8]| matches!(MetadataRecord::decode(line), Err(DecodeError::UnknownType(_)));
    match checksum::whole_version(bytes) {
        Some(version) if version > SNAPSHOT_VERSION => true,
        Some(_) => {
            let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
            // Between the first line, and the last one with the empty rest behind it.
            let records = lines.get(1..lines.len().saturating_sub(2)).unwrap_or_default();
            records.iter().any(|line| is_unknown(line))
        }
        None => false,
    }
}

fn name(last: LogId) -> String {
    format!("{:020}-{:010}{SUFFIX}", last.index, last.leader_id.term)
}

/// Index and term of the last entry in a snapshot, by the file's name.
fn place(name: &str) -> Option<(u64, u64)> {
    let (index, term) = name.strip_suffix(SUFFIX)?.split_once('-')?;
    Some((index.parse().ok()?, term.parse().ok()?))
}

/// A snapshot's file in the folder.
pub(super) struct SnapshotFile {
    pub(super) path: PathBuf,
    /// The last entry in it, by its name.
    pub(super) index: u64,
    term: u64,
}

impl SnapshotFile {
    /// Reads the snapshot. The inner error is the reason for which the file counts as damaged. The outer error also covers a
    /// file of a newer release, which is not damaged.
    pub(super) fn load(&self, disk: &dyn Disk) -> io::Result<Result<Applied, String>> {
        let bytes = disk.read(&self.path)?;
        let decoded = Applied::decode(&bytes);
        if let Some(reason) = decoded.as_ref().err().filter(|_| is_newer(&bytes)) {
            let text = format!("{}: {reason}", self.path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(decoded.and_then(|applied| match applied.last {
            Some(last) if (last.index, last.leader_id.term) == (self.index, self.term) => {
                Ok(applied)
            }
            Some(last) => Err(format!("its last entry is {last}, not the one that its name says")),
            None => Err("it has no last entry".into()),
        }))
    }

    /// Puts it out of the way, under another name.
    pub(super) fn set_aside(&self, disk: &dyn Disk) -> io::Result<()> {
        let mut name = self.path.clone().into_os_string();
        name.push(DAMAGED);
        disk.rename(&self.path, Path::new(&name))?;
        disk.sync_dir(self.path.parent().unwrap_or(Path::new(".")))
    }
}

/// The snapshots in a folder, the newest last.
pub(super) fn list(disk: &dyn Disk, dir: &Path) -> io::Result<Vec<SnapshotFile>> {
    let names = match disk.list(dir) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    let mut found: Vec<SnapshotFile> = names
        .iter()
        .filter_map(|name| {
            let (index, term) = place(name)?;
            Some(SnapshotFile { path: dir.join(name), index, term })
        })
        .collect();
    found.sort_by_key(|file| (file.index, file.term));
    Ok(found)
}

/// The newest snapshot's bytes.
pub(crate) fn read_newest(disk: &dyn Disk, dir: &Path) -> io::Result<Option<Vec<u8>>> {
    list(disk, dir)?.pop().map(|file| disk.read(&file.path)).transpose()
}

/// The last entry of the snapshot before the newest: those behind it must stay. `None` if there is no
/// such snapshot, and every entry must stay.
pub(super) fn previous_index(disk: &dyn Disk, dir: &Path) -> io::Result<Option<u64>> {
    Ok(list(disk, dir)?.iter().rev().nth(1).map(|file| file.index))
}

/// Writes a snapshot durably, then removes those that are older than the one before it.
pub(crate) fn write(disk: &dyn Disk, dir: &Path, last: LogId, bytes: &[u8]) -> io::Result<()> {
    let path = dir.join(name(last));
    disk.write_atomically(&path, bytes)?;
    for old in list(disk, dir)?.iter().rev().skip(KEPT) {
        disk.remove_file(&old.path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raft::LeaderId;

    fn sample() -> Applied {
        let mut image = ClusterImage::default();
        image.replay(&MetadataRecord::ClusterCreated { cluster_id: "c".into() }).unwrap();
        let last = LogId::new(LeaderId { term: 2, node_id: 1 }, 40);
        let members = StoredMembership::new(Some(last), membership(vec![vec![1, 2]], vec![3]));
        Applied { image, last: Some(last), changed_at: Some(39), members }
    }

    #[test]
    fn a_snapshot_and_back() {
        for applied in [sample(), Applied::default()] {
            let back = Applied::decode(&applied.encode()).unwrap();
            assert_eq!(back.image, applied.image);
            assert_eq!(back.meta(), applied.meta());
            assert_eq!(back.changed_at, applied.changed_at);
        }
    }

    /// The file with other text in the place of a part of it, under a digest and a checksum that fit.
    fn rewritten(from: &str, to: &str) -> Vec<u8> {
        let text = String::from_utf8(sample().encode()).unwrap();
        let mut lines: Vec<String> = text.lines().map(|line| line.replace(from, to)).collect();
        assert_ne!(lines.join("\n") + "\n", text);
        let last = lines.pop().unwrap();
        let mut last: serde_json::Value = serde_json::from_str(&last).unwrap();
        let records = lines[1..].join("\n") + "\n";
        last["digest"] = format!("{:016x}", digest_of_lines(records.as_bytes())).into();
        let last: LastLine = serde_json::from_value(last).unwrap();
        let mut out = (lines.join("\n") + "\n").into_bytes();
        line(&mut out, &last);
        checksum::seal(&mut out);
        out
    }

    #[test]
    fn newer_fields_are_skipped_and_newer_records_and_versions_are_refused() {
        let record = "{\"cluster-created\":{";
        let newer = rewritten(record, "{\"cluster-created\":{\"newer\":[7],");
        assert_eq!(Applied::decode(&newer).unwrap().image, sample().image);
        let newer = rewritten("{\"version\":1,", "{\"version\":1,\"newer\":7,");
        assert_eq!(Applied::decode(&newer).unwrap().meta(), sample().meta());
        let refused = Applied::decode(&rewritten(record, "{\"cluster-created-9\":{")).unwrap_err();
        assert!(refused.contains("a newer version wrote it"), "{refused}");
        assert!(Applied::decode(&rewritten("{\"version\":1,", "{\"version\":2,")).is_err());
    }

    #[test]
    fn a_snapshot_of_a_newer_release_is_an_error_and_a_damaged_one_is_a_reason() {
        let disk = storage::disk::SimDisk::new();
        let dir = Path::new("/q");
        disk.create_dir_all(dir).unwrap();
        let last = sample().last.unwrap();
        let loaded = |bytes: &[u8]| {
            write(&disk, dir, last, bytes).unwrap();
            list(&disk, dir).unwrap().pop().unwrap().load(&disk)
        };
        for (from, to) in [
            ("{\"cluster-created\":{", "{\"cluster-created-9\":{"),
            ("{\"version\":1,", "{\"version\":2,"),
        ] {
            let mut bytes = rewritten(from, to);
            let error = loaded(&bytes).map(drop).unwrap_err();
            assert!(error.to_string().contains(".checkpoint: "), "{error}");
            // The same with a bit that is another one is damage, whatever it seems to say.
            bytes[20] ^= 1;
            assert!(loaded(&bytes).unwrap().is_err());
        }
        assert!(loaded(&sample().encode()).unwrap().is_ok());
    }

    #[test]
    fn any_cut_and_any_flipped_bit_is_found() {
        let bytes = sample().encode();
        for cut in 0..bytes.len() {
            assert!(Applied::decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(Applied::decode(&changed).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn the_newest_and_the_one_before_stay() {
        let disk = storage::disk::SimDisk::new();
        let dir = Path::new("/q");
        disk.create_dir_all(dir).unwrap();
        for index in [5, 7, 100] {
            let last = LogId::new(LeaderId { term: 1, node_id: 1 }, index);
            let applied = Applied { last: Some(last), ..sample() };
            write(&disk, dir, last, &applied.encode()).unwrap();
        }
        let kept = list(&disk, dir).unwrap();
        assert_eq!(kept.iter().map(|file| file.index).collect::<Vec<_>>(), [7, 100]);
        assert_eq!(previous_index(&disk, dir).unwrap(), Some(7));
        assert_eq!(kept[1].load(&disk).unwrap().unwrap().last.unwrap().index, 100);
    }

    #[test]
    fn a_snapshot_under_the_name_of_another_is_damaged() {
        let disk = storage::disk::SimDisk::new();
        let dir = Path::new("/q");
        disk.create_dir_all(dir).unwrap();
        let other = LogId::new(LeaderId { term: 2, node_id: 1 }, 41);
        write(&disk, dir, other, &sample().encode()).unwrap();
        let reason = list(&disk, dir).unwrap()[0].load(&disk).unwrap().unwrap_err();
        assert!(reason.contains("name"), "{reason}");
    }
}
