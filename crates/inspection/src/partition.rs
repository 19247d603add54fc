//! Finds the files to look through: one file, a partition's folder, or a whole data folder.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use storage::disk::Disk;

use super::finding::{FileKind, Finding, Tell};
use super::index::Indexed;
use super::segment::{self, Behind, Segment};
use super::{directory, index, snapshot};

const EPOCHS: &str = "leader-epoch-checkpoint";
/// What is looked at of a segment, in this order.
const SUFFIXES: [&str; 5] = ["log", "index", "timeindex", "txnindex", "snapshot"];

/// What to look at, and how.
#[derive(Debug, Clone, Copy, Default)]
pub struct Looking {
    /// Each record is told too.
    pub records: bool,
    /// A broker is at work in the folder: the end of a partition's last segment is being written,
    /// and so are the indexes of that segment.
    pub live: bool,
}

/// Looks through a file or a folder. Returns how many files were understood; damage is told, an
/// error means that something could not be read at all.
pub fn inspect(
    disk: &dyn Disk,
    path: &Path,
    looking: Looking,
    tell: &mut Tell<'_>,
) -> io::Result<usize> {
    if let Some(names) = list(disk, path)? {
        return inspect_dir(disk, path, &names, looking, tell);
    }
    let dir = path.parent().unwrap_or(Path::new(""));
    match Name::parse(path) {
        Some(Name::Epochs) => snapshot::epochs(disk, path, tell).map(|()| 1),
        Some(Name::Other(kind)) => other(disk, path, kind, tell).map(|()| 1),
        Some(Name::Journal) => directory::journal(disk, dir, tell),
        Some(Name::OfSegment(base, suffix)) => {
            let wanted = BTreeMap::from([(base, vec![suffix])]);
            let is_active = |name: &String| matches!(Name::parse(Path::new(name)), Some(Name::OfSegment(other, "log")) if other > base);
            let live = looking.live && !disk.list(dir)?.iter().any(is_active);
            inspect_segments(disk, dir, &wanted, Looking { live, ..looking }, tell)
        }
        None => Ok(0),
    }
}

fn other(disk: &dyn Disk, path: &Path, kind: FileKind, tell: &mut Tell<'_>) -> io::Result<()> {
    match kind {
        FileKind::OffsetCheckpoint => directory::offsets(disk, path, tell),
        kind => directory::lines(disk, path, kind, tell),
    }
}

/// A file by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    OfSegment(i64, &'static str),
    Epochs,
    Journal,
    /// A file of the log directory or of the quorum.
    Other(FileKind),
}

impl Name {
    fn parse(path: &Path) -> Option<Name> {
        let name = path.file_name()?.to_str()?;
        if name == EPOCHS {
            return Some(Name::Epochs);
        }
        if name == storage::journal::SNAPSHOT || name == storage::journal::JOURNAL {
            return Some(Name::Journal);
        }
        if directory::CHECKPOINTS.contains(&name) {
            return Some(Name::Other(FileKind::OffsetCheckpoint));
        }
        if name == "vote" {
            return Some(Name::Other(FileKind::Vote));
        }
        if name.ends_with(".checkpoint") {
            return Some(Name::Other(FileKind::MetadataSnapshot));
        }
        let (digits, suffix) = name.split_once('.')?;
        let is_base = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
        let suffix = SUFFIXES.iter().find(|known| **known == suffix)?;
        Some(Name::OfSegment(digits.parse().ok().filter(|_| is_base)?, suffix))
    }
}

/// The names in a directory, sorted; `None` for a file.
fn list(disk: &dyn Disk, path: &Path) -> io::Result<Option<Vec<String>>> {
    match disk.list(path) {
        Ok(names) => Ok(Some(names)),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(None),
        Err(error) => Err(error),
    }
}

fn inspect_dir(
    disk: &dyn Disk,
    dir: &Path,
    names: &[String],
    looking: Looking,
    tell: &mut Tell<'_>,
) -> io::Result<usize> {
    let mut segments: BTreeMap<i64, Vec<&'static str>> = BTreeMap::new();
    let (mut count, mut journal_is_told) = (0, false);
    for path in names.iter().map(|name| dir.join(name)) {
        if let Some(names) = list(disk, &path)? {
            count += inspect_dir(disk, &path, &names, looking, tell)?;
            continue;
        }
        match Name::parse(&path) {
            Some(Name::Epochs) => {
                snapshot::epochs(disk, &path, tell)?;
                count += 1;
            }
            Some(Name::OfSegment(base, suffix)) => {
                segments.entry(base).or_default().push(suffix);
            }
            Some(Name::Other(kind)) => {
                other(disk, &path, kind, tell)?;
                count += 1;
            }
            // Both files of the journal are read together.
            Some(Name::Journal) if journal_is_told => {}
            Some(Name::Journal) => {
                journal_is_told = true;
                count += directory::journal(disk, dir, tell)?;
            }
            None => {}
        }
    }
    Ok(count + inspect_segments(disk, dir, &segments, looking, tell)?)
}

fn inspect_segments(
    disk: &dyn Disk,
    dir: &Path,
    wanted: &BTreeMap<i64, Vec<&'static str>>,
    looking: Looking,
    tell: &mut Tell<'_>,
) -> io::Result<usize> {
    let mut count = 0;
    let mut next_offset = None;
    // A snapshot of producers may lie behind the last segment.
    let logs = wanted.iter().filter(|(_, suffixes)| suffixes.contains(&"log"));
    let last = logs.map(|(base, _)| *base).next_back().or(wanted.keys().next_back().copied());
    let active = last.filter(|_| looking.live);
    for (base, suffixes) in wanted {
        let is_active = active == Some(*base);
        let next = wanted.range(base + 1..).find(|(_, suffixes)| suffixes.contains(&"log"));
        let behind = match next {
            _ if is_active => Behind::Anything,
            None => Behind::Zeros,
            Some((next, _)) => Behind::ZerosAt(*next),
        };
        let place = Place { disk, dir, base: *base };
        let log = place.path("log");
        let segment = if suffixes.contains(&"log") {
            let segment = segment::read(disk, &log, *base, looking.records, behind, tell)?;
            check_order(&log, *base, next_offset, tell);
            next_offset = Some(segment.next_offset(*base));
            segment
        } else if disk.exists(&log) {
            // Only an index was asked for: the log is read for comparison and nothing told of it.
            segment::read(disk, &log, *base, false, behind, &mut |_, _| {})?
        } else {
            Segment::default()
        };
        let of = Indexed { base: *base, segment: &segment };
        for suffix in SUFFIXES.iter().filter(|suffix| suffixes.contains(suffix)) {
            if is_active {
                place.inspect(suffix, of, &mut |path, finding| tell(path, unfinished(finding)))?;
            } else {
                place.inspect(suffix, of, tell)?;
            }
            count += 1;
        }
    }
    Ok(count)
}

/// What looks like damage in an index of a segment that is being written.
fn unfinished(finding: Finding<'_>) -> Finding<'_> {
    match finding {
        Finding::Damage { position, reason } => Finding::Unfinished { position, reason },
        other => other,
    }
}

/// Offsets of one segment may not reach into the next.
fn check_order(log: &Path, base: i64, next_offset: Option<i64>, tell: &mut Tell<'_>) {
    if let Some(next_offset) = next_offset.filter(|next_offset| *next_offset > base) {
        let reason =
            format!("the segment before it ends at offset {next_offset}, behind its start");
        tell(log, Finding::Damage { position: None, reason: &reason });
    }
}

#[derive(Debug, Clone, Copy)]
struct Place<'a> {
    disk: &'a dyn Disk,
    dir: &'a Path,
    base: i64,
}

impl Place<'_> {
    fn path(&self, suffix: &str) -> PathBuf {
        self.dir.join(format!("{:020}.{suffix}", self.base))
    }

    /// Looks at one of the files beside the log, which was looked at before.
    fn inspect(&self, suffix: &str, of: Indexed<'_>, tell: &mut Tell<'_>) -> io::Result<()> {
        let path = self.path(suffix);
        match suffix {
            "index" => index::offsets(self.disk, &path, of, tell),
            "timeindex" => index::times(self.disk, &path, of, tell),
            "txnindex" => index::aborted(self.disk, &path, tell),
            "snapshot" => snapshot::producers(self.disk, &path, self.base, tell),
            _ => Ok(()),
        }
    }
}
