//! Everything that can happen to one file of a partition's folder, one thing at a time: a flipped bit, a
//! cut, a removal; the log stopped cleanly or killed, its caller knowing what a journal knows. Allowed is
//! "as before", "refused", and for batches that nobody reads at the start "the consumer's checksum tells".

use std::path::{Path, PathBuf};

use model::batch::Batches;
use model::{BatchHeader, Durability, Offset};
use storage::disk::{Disk, OpenMode, SimDisk};
use storage::{ActiveSegment, Log, Opening, SealedSegment, StorageError};

use super::load::{self, Action, Load, partition_dir};
use super::recovered::check;
use super::run_script;

/// How the process ended.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Stopped,
    Killed,
}

/// A log of several segments, all acknowledged, and what a journal knows of it.
struct Subject {
    load: Load,
    disk: SimDisk,
    known: Opening,
}

fn subject(seed: u64, end: End) -> Subject {
    let mut load = run_script(seed, 60, load::config());
    load.run(Action::Checkpoint).unwrap();
    for producer in [1, 2, 1, 3, 0, 1] {
        let codec = model::Compression::None;
        load.run(Action::Append { records: 3, value_bytes: 200, producer, codec }).unwrap();
    }
    load.run(Action::Sync).unwrap();
    if end == End::Stopped {
        load.log.close().unwrap();
        load.run(Action::StoreCheckpoints).unwrap();
    }
    let disk = load.disk.snapshot();
    let known = Opening {
        clean: end == End::Stopped,
        synced: load.log.synced_below(),
        dense_from: Some(Offset(0)),
        epoch_max: Some(load.log.latest_epoch()),
        durability: Durability::Fsync,
        ..listed(&disk, &load)
    };
    Subject { load, disk, known }
}

/// The segments as they are, the last one as the active one.
fn listed(disk: &SimDisk, load: &Load) -> Opening {
    let names = disk.list(&partition_dir()).unwrap();
    let bases = names.iter().filter_map(|name| name.strip_suffix(".log")?.parse().ok().map(Offset));
    // Behind them may be zeros, which count for nothing.
    let size = |base: Offset| {
        let bytes = disk.read(&partition_dir().join(format!("{:020}.log", base.0))).unwrap();
        let whole = Batches::new(&bytes).map_while(Result::ok);
        whole.map(|(_, batch)| batch.len() as u64).sum()
    };
    let mut sealed: Vec<SealedSegment> =
        bases.map(|base| SealedSegment { base, size_bytes: size(base) }).collect();
    let last = sealed.pop().unwrap();
    let end = load.log.log_end_offset();
    let active = ActiveSegment { base: last.base, end, size_bytes: last.size_bytes };
    let opening = load::opening(disk, load.now()).unwrap();
    Opening { sealed: Some(sealed), active: Some(active), ..opening }
}

/// In descriptions: a bit of what a leader stamps outside of the checksum.
const STAMP: &str = "stamp bit";

/// What became of a damaged log.
#[derive(Debug, PartialEq)]
enum Verdict {
    AsBefore,
    Refused,
    ChecksumTells,
    /// Served with, or found by, a base offset or leader epoch that is not its own: they lie outside
    /// the checksum, and of batches below the recovery point no header is read at the start.
    Stamp,
}

impl Subject {
    fn open(&self, damaged: &SimDisk) -> Result<Log, StorageError> {
        load::open_with(damaged, self.load.config(), self.known.clone())
    }

    /// Opens the damaged log twice; both must come to the same verdict.
    fn verdict(&self, damaged: &SimDisk, what: &str) -> Verdict {
        let first = self.verdict_once(damaged, what);
        if first != Verdict::Refused {
            return first;
        }
        assert_eq!(self.verdict_once(damaged, what), first, "{what}: a refusal holds");
        first
    }

    fn verdict_once(&self, damaged: &SimDisk, what: &str) -> Verdict {
        let log = match self.open(damaged) {
            Ok(log) => log,
            Err(StorageError::Damaged(_) | StorageError::Malformed { .. }) => {
                return Verdict::Refused;
            }
            Err(other) => panic!("{what}: {other}"),
        };
        assert_eq!(log.log_end_offset(), self.load.timeline.log_end(), "{what}: nothing is cut");
        assert_eq!(log.log_start_offset(), self.load.timeline.log_start, "{what}");
        match self.read(&log, what) {
            Some(verdict) => verdict,
            None => match check(&log, &self.load.timeline, self.load.timeline.log_end()) {
                Ok(()) => Verdict::AsBefore,
                // A look-up by time met a batch before the log start.
                Err(_) if what.contains(STAMP) => Verdict::Stamp,
                Err(reason) if reason.contains("damaged at byte") => Verdict::Refused,
                Err(wrong) => panic!("{what}: {wrong}"),
            },
        }
    }

    /// Reads all of the log; `None` if it is what was appended.
    fn read(&self, log: &Log, what: &str) -> Option<Verdict> {
        let (mut offset, end) = (log.log_start_offset(), log.log_end_offset());
        while offset < end {
            // A read that fails is a refusal, too, of these records.
            let Ok(Some(slice)) = log.read(offset, end, 1, true) else {
                return Some(Verdict::Refused);
            };
            let mut bytes = vec![0; slice.size_bytes as usize];
            assert_eq!(slice.file.read_at(&mut bytes, slice.position).unwrap(), bytes.len());
            let Some(Ok((_, batch))) = Batches::new(&bytes).next() else {
                return Some(Verdict::ChecksumTells);
            };
            if BatchHeader::decode_checked(batch).is_err() {
                return Some(Verdict::ChecksumTells);
            }
            let expected = self.load.timeline.batch_at(offset).unwrap();
            if expected.bytes[..] != *batch {
                assert!(what.contains(STAMP), "{what}: other records at {offset}");
                return Some(Verdict::Stamp);
            }
            offset = expected.header.next_offset();
        }
        None
    }
}

fn every_file(disk: &SimDisk) -> Vec<PathBuf> {
    disk.list(&partition_dir()).unwrap().iter().map(|name| partition_dir().join(name)).collect()
}

/// Where in a segment's file base offsets, lengths and leader epochs stand.
fn stamps(disk: &SimDisk, path: &Path) -> Vec<std::ops::Range<u64>> {
    let bytes = disk.read(path).unwrap();
    let mut position = 0;
    let mut stamps = Vec::new();
    for batch in Batches::new(&bytes) {
        let Ok((_, batch)) = batch else { break };
        stamps.push(position..position + 16);
        position += batch.len() as u64;
    }
    stamps
}

fn flipped(disk: &SimDisk, path: &Path, bit: u64) -> SimDisk {
    let damaged = disk.snapshot();
    damaged.flip_bit(path, bit / 8, (bit % 8) as u8);
    damaged
}

fn cut(disk: &SimDisk, path: &Path, size: u64) -> SimDisk {
    let damaged = disk.snapshot();
    damaged.open(path, OpenMode::ReadWrite).unwrap().truncate(size).unwrap();
    damaged
}

/// Does all of it to every file, `step` bits apart, and counts the verdicts.
fn damage_everything(seed: u64, end: End, step: u64) -> [usize; 4] {
    let subject = subject(seed, end);
    let untouched = subject.verdict(&subject.disk.snapshot(), "untouched");
    assert_eq!(untouched, Verdict::AsBefore);
    let mut counts = [0; 4];
    for path in every_file(&subject.disk) {
        let is_log = path.extension().is_some_and(|suffix| suffix == "log");
        let size = subject.disk.size(&path).unwrap();
        let mut count = |damaged: &SimDisk, cause: String| {
            let what = format!("{end:?}, {cause} of {}", path.display());
            let verdict = subject.verdict(damaged, &what);
            let derived_holds = is_log || matches!(verdict, Verdict::AsBefore | Verdict::Refused);
            assert!(derived_holds, "{what}: {verdict:?}");
            counts[verdict as usize] += 1;
        };
        let stamps = if is_log { stamps(&subject.disk, &path) } else { Vec::new() };
        for bit in (seed % step..size * 8).step_by(step as usize) {
            let is_stamp = stamps.iter().any(|stamp| stamp.contains(&(bit / 8)));
            let kind = if is_stamp { STAMP } else { "bit" };
            count(&flipped(&subject.disk, &path, bit), format!("{kind} {bit}"));
        }
        for shorter in (0..size).step_by(1 + size as usize / 40) {
            count(&cut(&subject.disk, &path, shorter), format!("a cut to {shorter}"));
        }
        let removed = subject.disk.snapshot();
        removed.remove_file(&path).unwrap();
        count(&removed, "the removal".to_owned());
    }
    counts
}

#[test]
fn whatever_happens_to_a_file_of_a_stopped_log_is_harmless_or_told() {
    for seed in 40..43 {
        let [before, refused, told, _] = damage_everything(seed, End::Stopped, 61);
        assert!(before > 20 && refused > 20 && told > 20, "{before} {refused} {told}");
    }
}

#[test]
fn whatever_happens_to_a_file_of_a_killed_log_is_harmless_or_told() {
    for seed in 50..53 {
        let [before, refused, told, _] = damage_everything(seed, End::Killed, 61);
        assert!(before > 20 && refused > 20 && told > 20, "{before} {refused} {told}");
    }
}

#[test]
fn what_was_scanned_has_no_stamp_that_is_not_its_own() {
    let mut subject = subject(60, End::Killed);
    // Everything lies above the recovery point, and below what was synced.
    subject.known.recovery_point = Offset(0);
    for path in
        every_file(&subject.disk).iter().filter(|path| path.extension().is_some_and(|s| s == "log"))
    {
        let bytes = subject.disk.read(path).unwrap();
        let mut position = 0;
        for (header, batch) in Batches::new(&bytes).map_while(Result::ok) {
            for bit in (0..16 * 8).step_by(3) {
                let damaged = flipped(&subject.disk, path, position * 8 + bit);
                let what = format!("{STAMP} {bit} of the batch at {}", header.base_offset);
                let verdict = subject.verdict(&damaged, &what);
                // An epoch may have become another one that fits between its neighbours.
                let fits = verdict == Verdict::Stamp && bit >= 96;
                assert!(verdict == Verdict::Refused || fits, "{what}: {verdict:?}");
            }
            position += batch.len() as u64;
        }
    }
}
