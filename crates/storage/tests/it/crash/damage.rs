//! Files that are not what they were: torn, cut, flipped bits (S3, S4, S6, S7, S12).

use std::path::{Path, PathBuf};

use model::Offset;
use storage::disk::{Disk, OpenMode, SimDisk};
use storage::{Log, StorageError};

use super::load::{self, Action, Load, partition_dir};
use super::recovered::check;
use super::run_script;

/// A load that is all synced, on a disk without pending changes. `checkpointed`: its recovery point
/// is its end.
fn settled(seed: u64, checkpointed: bool) -> (Load, SimDisk) {
    let mut load = run_script(seed, 60, load::config());
    load.run(Action::Sync).unwrap();
    if checkpointed {
        load.run(Action::Checkpoint).unwrap();
    }
    let disk = load.disk.after_crash(0);
    (load, disk)
}

/// As [`settled`], but with the recovery point still at the beginning.
fn unchecked(seed: u64) -> (Load, SimDisk) {
    let mut load = Load::new(load::config());
    for action in load::script(seed, 40) {
        let moves_recovery_point = matches!(
            action,
            Action::Checkpoint | Action::StoreCheckpoints | Action::CloseAndReopen
        );
        if !moves_recovery_point {
            load.run(action).unwrap();
        }
    }
    load.run(Action::Sync).unwrap();
    let disk = load.disk.after_crash(0);
    (load, disk)
}

fn files(disk: &SimDisk, suffix: &str) -> Vec<PathBuf> {
    let names = disk.list(&partition_dir()).unwrap();
    names.iter().filter(|n| n.ends_with(suffix)).map(|n| partition_dir().join(n)).collect()
}

fn reopened(disk: &SimDisk, load: &Load) -> Result<Log, StorageError> {
    load::open(disk, load.config(), load.now())
}

/// Every `step`th bit of a file, flipped one at a time.
fn for_each_flip(disk: &SimDisk, path: &Path, step: usize, mut check: impl FnMut(SimDisk, &str)) {
    let bits = disk.read(path).unwrap().len() * 8;
    for bit in (0..bits).step_by(step) {
        let damaged = disk.snapshot();
        damaged.flip_bit(path, bit as u64 / 8, (bit % 8) as u8);
        check(damaged, &format!("bit {bit} of {}", path.display()));
    }
}

#[test]
fn a_log_that_ends_anywhere_is_cut_behind_its_last_whole_batch() {
    let (load, disk) = unchecked(20);
    let path = files(&disk, ".log").pop().unwrap();
    let size = disk.read(&path).unwrap().len();
    for cut in 0..size {
        let torn = disk.snapshot();
        torn.open(&path, OpenMode::ReadWrite).unwrap().truncate(cut as u64).unwrap();
        let log = reopened(&torn, &load).unwrap();
        assert_eq!(check(&log, &load.timeline, Offset(0)), Ok(()), "cut at {cut}");
        assert_eq!(log.size_bytes(), whole_bytes(&torn), "cut at {cut}");
        let lost = load.log.size_bytes() - log.size_bytes();
        assert!(lost >= (size - cut) as u64, "cut at {cut}");
    }
}

/// Bytes of whole batches in the files.
fn whole_bytes(disk: &SimDisk) -> u64 {
    let sizes = files(disk, ".log").into_iter().map(|path| disk.read(&path).unwrap().len() as u64);
    sizes.sum()
}

#[test]
fn garbage_behind_the_end_goes() {
    let (load, disk) = settled(21, false);
    let path = files(&disk, ".log").pop().unwrap();
    let size = disk.read(&path).unwrap().len() as u64;
    let last = load.timeline.batches.last().unwrap();
    for garbage in [vec![0; 1000], vec![0xff; 1000], last.bytes.to_vec(), last.bytes[..40].to_vec()]
    {
        let torn = disk.snapshot();
        let file = torn.open(&path, OpenMode::ReadWrite).unwrap();
        file.write_all_at(&garbage, size).unwrap();
        let log = reopened(&torn, &load).unwrap();
        assert_eq!(check(&log, &load.timeline, load.timeline.log_end()), Ok(()));
        assert_eq!(torn.read(&path).unwrap().len() as u64, size);
    }
}

#[test]
fn a_flipped_bit_past_the_recovery_point_cuts_the_log_before_it() {
    let mut load = Load::new(load::config());
    for action in load::script(22, 40) {
        let moves_recovery_point = matches!(
            action,
            Action::Checkpoint | Action::StoreCheckpoints | Action::CloseAndReopen
        );
        if !moves_recovery_point {
            load.run(action).unwrap();
        }
    }
    load.run(Action::Sync).unwrap();
    let disk = load.disk.after_crash(0);
    for path in files(&disk, ".log") {
        for_each_flip(&disk, &path, 41, |damaged, what| {
            let log = reopened(&damaged, &load).unwrap_or_else(|error| panic!("{what}: {error}"));
            // The base offset and the leader's epoch are not covered by the checksum.
            if let Err(reason) = check(&log, &load.timeline, Offset(0)) {
                assert!(is_in_a_stamp(&disk, &path, what), "{what}: {reason}");
            }
        });
    }
}

/// Whether the bit lies in what a leader stamps outside of the checksum.
fn is_in_a_stamp(disk: &SimDisk, path: &Path, what: &str) -> bool {
    let bit: usize = what.split(' ').nth(1).unwrap().parse().unwrap();
    let bytes = disk.read(path).unwrap();
    let mut position = 0;
    for (_, batch) in model::batch::Batches::new(&bytes).map_while(Result::ok) {
        let size = batch.len();
        if bit / 8 < position + size {
            return bit / 8 - position < 16;
        }
        position += size;
    }
    false
}

#[test]
fn damage_below_the_recovery_point_is_never_cut_away() {
    let (load, disk) = settled(23, true);
    for path in files(&disk, ".log") {
        // Behind the batches stand zeros, which an opening cuts off.
        let bytes = disk.read(&path).unwrap();
        let whole = model::batch::Batches::new(&bytes).map_while(Result::ok);
        let size: usize = whole.map(|(_, batch)| batch.len()).sum();
        for_each_flip(&disk, &path, 97, |damaged, what| {
            match reopened(&damaged, &load) {
                // Trusted unread, or noticed: either way every byte is still there.
                Ok(log) => {
                    let end = load.timeline.log_end();
                    let is_stamp = is_in_a_stamp(&disk, &path, what);
                    assert!(log.log_end_offset() == end || is_stamp, "{what}");
                }
                Err(StorageError::Damaged(_)) => {}
                Err(other) => panic!("{what}: {other}"),
            }
            assert!(damaged.read(&path).unwrap().len() >= size, "{what}");
        });
    }
}

/// Flips bits of derived files; whatever they say then, the log must be what it was.
fn derived_files_may_lie(suffix: &str, step: usize) {
    for (seed, checkpointed) in [(24, true), (25, false)] {
        let (load, disk) = settled(seed, checkpointed);
        for path in files(&disk, suffix) {
            for_each_flip(&disk, &path, step, |damaged, what| {
                let log = reopened(&damaged, &load).unwrap_or_else(|e| panic!("{what}: {e}"));
                let verdict = check(&log, &load.timeline, load.timeline.log_end());
                assert_eq!(verdict, Ok(()), "{what}");
            });
        }
    }
}

#[test]
fn a_flipped_bit_in_an_offset_index_does_no_harm() {
    derived_files_may_lie(".index", 7);
}

#[test]
fn a_flipped_bit_in_a_time_index_does_no_harm() {
    derived_files_may_lie(".timeindex", 7);
}

#[test]
fn a_flipped_bit_in_a_producer_snapshot_does_no_harm() {
    derived_files_may_lie(".snapshot", 7);
}

#[test]
fn a_flipped_bit_in_our_file_of_producers_does_no_harm() {
    derived_files_may_lie(".producers", 7);
}

#[test]
fn a_flipped_bit_in_the_epoch_history_does_no_harm() {
    derived_files_may_lie("leader-epoch-checkpoint", 1);
}

#[test]
fn derived_files_that_are_gone_are_made_again() {
    for suffix in [".index", ".timeindex", ".snapshot", ".producers", "leader-epoch-checkpoint"] {
        for (seed, checkpointed) in [(26, true), (27, false)] {
            let (load, disk) = settled(seed, checkpointed);
            for path in files(&disk, suffix) {
                let damaged = disk.snapshot();
                damaged.remove_file(&path).unwrap();
                let log = reopened(&damaged, &load).unwrap();
                let verdict = check(&log, &load.timeline, load.timeline.log_end());
                assert_eq!(verdict, Ok(()), "without {}", path.display());
            }
        }
    }
}
