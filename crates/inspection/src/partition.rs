//! Finds the files to look through: one file, a partition's folder, or a whole data folder.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use storage::disk::Disk;

use super::finding::{Finding, Tell};
use super::index::Indexed;
use super::segment::{self, Segment};
use super::{index, snapshot};

const EPOCHS: &str = "leader-epoch-checkpoint";
/// What is looked at of a segment, in this order.
const SUFFIXES: [&str; 5] = ["log", "index", "timeindex", "txnindex", "snapshot"];

/// Looks through a file or a folder. Returns how many files were understood; damage is told, an
/// error means that something could not be read at all. With `records`, each record is told too.
pub fn inspect(
    disk: &dyn Disk,
    path: &Path,
    records: bool,
    tell: &mut Tell<'_>,
) -> io::Result<usize> {
    if let Some(names) = list(disk, path)? {
        return inspect_dir(disk, path, &names, records, tell);
    }
    let dir = path.parent().unwrap_or(Path::new(""));
    match Name::parse(path) {
        Some(Name::Epochs) => snapshot::epochs(disk, path, tell).map(|()| 1),
        Some(Name::OfSegment(base, suffix)) => {
            let wanted = BTreeMap::from([(base, vec![suffix])]);
            inspect_segments(disk, dir, &wanted, records, tell)
        }
        None => Ok(0),
    }
}

/// A file by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    OfSegment(i64, &'static str),
    Epochs,
}

impl Name {
    fn parse(path: &Path) -> Option<Name> {
        let name = path.file_name()?.to_str()?;
        if name == EPOCHS {
            return Some(Name::Epochs);
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
    records: bool,
    tell: &mut Tell<'_>,
) -> io::Result<usize> {
    let mut segments: BTreeMap<i64, Vec<&'static str>> = BTreeMap::new();
    let mut count = 0;
    for path in names.iter().map(|name| dir.join(name)) {
        if let Some(names) = list(disk, &path)? {
            count += inspect_dir(disk, &path, &names, records, tell)?;
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
            None => {}
        }
    }
    Ok(count + inspect_segments(disk, dir, &segments, records, tell)?)
}

fn inspect_segments(
    disk: &dyn Disk,
    dir: &Path,
    wanted: &BTreeMap<i64, Vec<&'static str>>,
    records: bool,
    tell: &mut Tell<'_>,
) -> io::Result<usize> {
    let mut count = 0;
    let mut next_offset = None;
    for (base, suffixes) in wanted {
        let place = Place { disk, dir, base: *base };
        let log = place.path("log");
        let segment = if suffixes.contains(&"log") {
            let segment = segment::read(disk, &log, *base, records, tell)?;
            check_order(&log, *base, next_offset, tell);
            next_offset = Some(segment.next_offset(*base));
            segment
        } else if disk.exists(&log) {
            // Only an index was asked for: the log is read for comparison and nothing told of it.
            segment::read(disk, &log, *base, false, &mut |_, _| {})?
        } else {
            Segment::default()
        };
        let of = Indexed { base: *base, segment: &segment };
        for suffix in SUFFIXES.iter().filter(|suffix| suffixes.contains(suffix)) {
            place.inspect(suffix, of, tell)?;
            count += 1;
        }
    }
    Ok(count)
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
