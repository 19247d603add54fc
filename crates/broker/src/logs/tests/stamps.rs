//! Base offset, length and leader epoch stand before the checksum of a batch: neighbours and the journal tell
//! which ones were written. Whatever the broker went through in the life of a log, none that was changed on the
//! disk is believed.

use std::path::Path;
use std::sync::Arc;

use model::batch::Batches;
use model::{BrokerEpoch, LeaderEpoch, Offset};
use partition::{Isolation, Partition, PartitionError, ReadRequest};
use storage::disk::{Disk, OpenMode, SimDisk};
use storage::journal::{Entry, State};

use crate::logs::keeping::news;
use crate::logs::key_of;

use super::{FIRST, Logs, NOW, append, log_files, open_in, settle, start};

/// How a run of the broker ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Killed,
    KilledBehindCheckpoint,
    Stopped,
}

use End::{Killed, KilledBehindCheckpoint, Stopped};

/// Base offset, length and leader epoch of a batch.
const STAMP_BITS: u8 = (8 + 4 + 4) * 8;

const LIVES: [[End; 3]; 7] = [
    [Killed, Killed, Killed],
    [KilledBehindCheckpoint, KilledBehindCheckpoint, KilledBehindCheckpoint],
    [Stopped, Stopped, Stopped],
    [Stopped, Killed, Killed],
    [Killed, KilledBehindCheckpoint, Killed],
    [Killed, Stopped, Killed],
    [Killed, Killed, Stopped],
];

fn opened(disk: &SimDisk, epoch: i32) -> Option<(Logs, Arc<Partition>)> {
    let logs = start(disk, &["data"]).unwrap();
    settle(&logs, Some(FIRST)).unwrap();
    let partition = open_in(&logs, FIRST, LeaderEpoch(epoch)).ok()?;
    Some((logs, partition))
}

/// Three records in each of three epochs, each in a batch of its own.
fn lived(ends: [End; 3]) -> SimDisk {
    let disk = SimDisk::new();
    live(&disk, ends);
    disk
}

fn live(disk: &SimDisk, ends: [End; 3]) {
    for (epoch, end) in [3, 5, 8].into_iter().zip(ends) {
        let (logs, partition) = opened(disk, epoch).expect("nothing is damaged");
        append(&logs, &partition, &["a", "b", "c"]);
        match end {
            Killed => {}
            KilledBehindCheckpoint => {
                partition.checkpoint(0).unwrap().expect("records were appended");
                logs.checkpoint(NOW);
            }
            Stopped => {
                partition.close().unwrap();
                logs.close(BrokerEpoch(1), NOW);
            }
        }
    }
}

/// The epochs that a consumer is told.
fn told(partition: &Partition) -> Result<Vec<(Offset, LeaderEpoch)>, PartitionError> {
    let mut told = Vec::new();
    let (mut offset, end) =
        partition.with_log(|log| (log.log_start_offset(), log.log_end_offset()));
    while offset < end {
        let request = ReadRequest::at(offset, 1 << 20, Isolation::LogEnd);
        let slice = partition.read(&request)?.slice.expect("the log does not end here");
        let mut bytes = vec![0; slice.size_bytes as usize];
        slice.file.read_at(&mut bytes, slice.position).unwrap();
        for batch in Batches::new(&bytes) {
            let (header, _) = batch.unwrap();
            told.push((header.base_offset, header.leader_epoch));
            offset = header.next_offset();
        }
    }
    Ok(told)
}

/// Where the batches begin: files, and positions in them.
fn batches(disk: &SimDisk) -> Vec<(std::path::PathBuf, u64)> {
    let mut begun = Vec::new();
    for path in log_files(disk) {
        let mut bytes = vec![0; disk.size(&path).unwrap() as usize];
        disk.open(Path::new(&path), OpenMode::Read).unwrap().read_at(&mut bytes, 0).unwrap();
        let mut position = 0;
        for batch in Batches::new(&bytes) {
            begun.push((path.clone(), position));
            position += u64::from(batch.unwrap().0.size_bytes);
        }
    }
    begun
}

#[test]
fn no_stamp_that_was_changed_is_believed() {
    for ends in LIVES {
        let disk = lived(ends);
        let batches = batches(&disk);
        assert_eq!(batches.len(), 9);
        let (_, intact) = opened(&disk.snapshot(), 99).expect("nothing is damaged");
        let written = told(&intact).unwrap();
        for (path, position) in &batches {
            for bit in 0..STAMP_BITS {
                let damaged = disk.snapshot();
                damaged.flip_bit(path, position + u64::from(bit / 8), bit % 8);
                let Some((_, partition)) = opened(&damaged, 99) else { continue };
                let believed = told(&partition);
                assert!(
                    believed.is_err(),
                    "{ends:?}: {} at {position}, bit {bit}: {believed:?} instead of {written:?}",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn a_crash_at_any_operation_makes_no_epoch_wrong() {
    let epochs = [3, 3, 3, 5, 5, 5, 8, 8, 8].into_iter().map(LeaderEpoch);
    let written: Vec<(Offset, LeaderEpoch)> = (0..).map(Offset).zip(epochs).collect();
    for ends in LIVES {
        let disk = SimDisk::new();
        disk.keep_history();
        live(&disk, ends);
        let history = disk.history();
        for (at, found) in history.into_iter().enumerate() {
            for crash in 0..3 {
                let disk = if crash == 0 { found.snapshot() } else { found.after_crash(crash) };
                for start in 0..2 {
                    let what = format!("{ends:?}, operation {at}, crash {crash}, start {start}");
                    let (logs, partition) = opened(&disk, 99).expect(&what);
                    let told = told(&partition).unwrap_or_else(|cause| panic!("{what}: {cause}"));
                    let (lived, after) = told.split_at(told.len() - start);
                    assert!(written.starts_with(lived), "{what}: {told:?}");
                    assert!(after.iter().all(|(_, epoch)| *epoch == LeaderEpoch(99)), "{what}");
                    append(&logs, &partition, &["d"]);
                }
            }
        }
    }
}

#[test]
fn a_checkpoint_is_entered_behind_the_epochs_below_it() {
    let disk = lived([Killed, Stopped, Killed]);
    let (logs, partition) = opened(&disk, 99).expect("nothing is damaged");
    let key = key_of(&partition);
    let known = logs.directories[0].journal().unwrap().partition(&key).unwrap();
    append(&logs, &partition, &["d"]);
    partition.checkpoint(0).unwrap().expect("a record was appended");
    let facts = news(&partition, &known, NOW);
    let mut state = State { partitions: [(key, known)].into(), ..State::default() };
    for fact in facts {
        // A crash may leave the facts up to this one.
        state.apply(&Entry::Of(key, fact.clone())).unwrap();
        let known = &state.partitions[&key];
        let is_due = known.synced == Offset(10);
        assert!(!is_due || known.newest_epoch() == LeaderEpoch(99), "{fact:?} came too early");
    }
    assert_eq!(state.partitions[&key].synced, Offset(10));
}
