//! Snapshots: the image as the lines that make it, in a file of its own.
//!
//! First a line that says as of which entry, and who were the members; then one metadata record a
//! line; last a line with the number of records and the image's digest, by which damage is found.
//! The same bytes are sent to a node that is too far behind.

use super::entry::{learners, voters};
use super::vote::Point;
use crate::raft::{LogId, SnapshotMeta, StoredMembership, membership};
use metadata::{ClusterImage, MetadataRecord};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use storage::disk::Disk;

const SNAPSHOT_VERSION: u16 = 0;
const SUFFIX: &str = ".checkpoint";

/// The image with the place in the log that it stands for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Applied {
    pub(crate) image: ClusterImage,
    /// The last entry applied.
    pub(crate) last: Option<LogId>,
    /// Index of the entry that last changed the image.
    pub(crate) changed_at: Option<u64>,
    /// Who are members, and since which entry.
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
        let members = self.members.membership();
        let first = FirstLine {
            version: SNAPSHOT_VERSION,
            last: self.last.map(Point::from),
            changed_at: self.changed_at,
            members_since: self.members.log_id().map(Point::from),
            voters: voters(members),
            learners: learners(members),
        };
        let records = self.image.to_records();
        let mut out = Vec::new();
        line(&mut out, &first);
        MetadataRecord::encode_lines(&records, &mut out);
        let digest = format!("{:016x}", self.image.digest());
        line(&mut out, &LastLine { records: records.len(), digest });
        out
    }

    /// Reads what [`Applied::encode`] wrote; the reason if that is not it.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Applied, String> {
        let body = bytes.strip_suffix(b"\n").ok_or("its last line is not complete")?;
        let first_end = body.iter().position(|b| *b == b'\n').ok_or("it has one line only")?;
        let last_start = body.iter().rposition(|b| *b == b'\n').ok_or("it has one line only")?;
        let text = |error: serde_json::Error| error.to_string();
        let first: FirstLine = serde_json::from_slice(&body[..first_end]).map_err(text)?;
        if first.version > SNAPSHOT_VERSION {
            return Err(format!("version {}: a newer version wrote it", first.version));
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
    if records.len() != expected.records || format!("{:016x}", image.digest()) != expected.digest {
        return Err(format!("its {} records are not those that were written", records.len()));
    }
    Ok(image)
}

fn name(last: LogId) -> String {
    format!("{:020}-{:010}{SUFFIX}", last.index, last.leader_id.term)
}

/// The snapshots in a directory, the newest last.
fn list(disk: &dyn Disk, dir: &Path) -> io::Result<Vec<PathBuf>> {
    let names = match disk.list(dir) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    Ok(names.iter().filter(|name| name.ends_with(SUFFIX)).map(|name| dir.join(name)).collect())
}

/// The newest snapshot's bytes.
pub(crate) fn read_newest(disk: &dyn Disk, dir: &Path) -> io::Result<Option<Vec<u8>>> {
    list(disk, dir)?.pop().map(|path| disk.read(&path)).transpose()
}

/// The newest snapshot. One that is damaged is an error: the entries it replaced are gone.
pub(crate) fn load(disk: &dyn Disk, dir: &Path) -> io::Result<Option<Applied>> {
    let Some(path) = list(disk, dir)?.pop() else { return Ok(None) };
    let damaged = |reason: String| {
        let text = format!("{}: {reason}", path.display());
        io::Error::new(io::ErrorKind::InvalidData, text)
    };
    Applied::decode(&disk.read(&path)?).map(Some).map_err(damaged)
}

/// Writes a snapshot durably, then removes the older ones.
pub(crate) fn write(disk: &dyn Disk, dir: &Path, last: LogId, bytes: &[u8]) -> io::Result<()> {
    let path = dir.join(name(last));
    disk.write_atomically(&path, bytes)?;
    for old in list(disk, dir)?.into_iter().filter(|old| *old < path) {
        disk.remove_file(&old)?;
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

    #[test]
    fn any_cut_and_any_changed_record_is_found() {
        let bytes = sample().encode();
        for cut in 0..bytes.len() {
            assert!(Applied::decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        let mut changed = bytes.clone();
        let at = bytes.windows(3).position(|window| window == b"\"c\"").unwrap();
        changed[at + 1] = b'd';
        assert!(Applied::decode(&changed).is_err());
    }

    #[test]
    fn only_the_newest_stays() {
        let disk = storage::disk::SimDisk::new();
        let dir = Path::new("/q");
        disk.create_dir_all(dir).unwrap();
        for index in [5, 7, 100] {
            let last = LogId::new(LeaderId { term: 1, node_id: 1 }, index);
            let applied = Applied { last: Some(last), ..sample() };
            write(&disk, dir, last, &applied.encode()).unwrap();
        }
        assert_eq!(list(&disk, dir).unwrap().len(), 1);
        assert_eq!(load(&disk, dir).unwrap().unwrap().last.unwrap().index, 100);
    }
}
