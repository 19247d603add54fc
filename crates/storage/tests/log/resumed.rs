//! A log that is as its caller knows it is taken up without a look into its files; whatever is not as
//! known is found at the opening, or when the log is read on for the first append.

use std::path::Path;
use std::sync::Arc;

use model::{LeaderEpoch, Offset};
use storage::disk::{Disk, SimDisk};
use storage::{Log, LogConfig, Opening, StorageError};

use crate::fixture::{Batch, NOW, Place, append, checkpoint, read_all};

/// A log of several segments, of which a producer wrote each second batch; all below the recovery point.
fn filled(place: &Place) -> Log {
    let mut log = place.open_unclean(Offset(0));
    for n in 0..21 {
        let batch = Batch::of(2, NOW.plus_ms(n)).epoch(n as i32 / 8);
        let batch = if n % 2 == 0 { batch.producer(7, 0, n as i32) } else { batch };
        append(&mut log, &batch);
    }
    checkpoint(&mut log);
    assert!(log.segment_count() > 2 && log.active_base_offset() < log.log_end_offset());
    log
}

/// What is remembered of a log after a checkpoint.
fn known(log: &Log) -> Opening {
    let derived = log.derived().expect("all of it lies below the recovery point");
    Opening {
        recovery_point: log.recovery_point(),
        synced: log.synced_below(),
        log_start_offset: log.log_start_offset(),
        sealed: Some(log.sealed_segments()),
        active: log.settled_active(),
        derived: Some(derived.kept()),
        epoch_max: Some(LeaderEpoch(9)),
        ..Opening::unknown(NOW)
    }
}

fn active_file(place: &Place, log: &Log) -> std::path::PathBuf {
    place.path(&format!("{:020}.log", log.active_base_offset().0))
}

#[test]
fn what_is_as_it_was_is_taken_up_and_is_the_same_log() {
    for clean in [false, true] {
        let place = Place::small();
        let mut before = filled(&place);
        if clean {
            before.close().unwrap();
        }
        let opening = Opening { clean, ..known(&before) };
        let mut log = place.try_open(opening.clone()).unwrap();
        assert!(log.is_resumed() && log.recovery().is_none());
        assert_eq!(log.epochs(), before.epochs());
        assert_eq!(read_all(&log, Offset(0), 300), read_all(&before, Offset(0), 300));
        assert_eq!(log.begin_close().unwrap().map(drop), None, "it is complete as it stands");
        // Taken up again and again, it remembers what it has not read.
        assert_eq!(log.derived().unwrap().kept(), known(&before).derived.unwrap());

        append(&mut log, &Batch::of(2, NOW.plus_ms(30)).epoch(3).producer(7, 0, 22));
        append(&mut before, &Batch::of(2, NOW.plus_ms(30)).epoch(3).producer(7, 0, 22));
        assert!(!log.is_resumed());
        let producers = |log: &Log| -> Vec<_> {
            log.producers().map(|p| (p.producer_id, p.last_sequence)).collect()
        };
        assert_eq!(producers(&log), producers(&before));
        assert_eq!(log.epochs(), before.epochs());
        log.close().unwrap();
        let again = place.try_open(Opening { clean: true, ..known(&log) }).unwrap();
        assert_eq!(read_all(&again, Offset(0), 300), read_all(&before, Offset(0), 300));
    }
}

#[test]
fn what_grew_is_recovered_and_what_shrank_is_refused() {
    let place = Place::small();
    let mut log = filled(&place);
    let opening = known(&log);
    let path = active_file(&place, &log);
    append(&mut log, &Batch::of(1, NOW.plus_ms(40)).epoch(2));
    let end = log.log_end_offset();
    let grown = place.try_open(opening.clone()).unwrap();
    assert!(!grown.is_resumed() && grown.recovery().is_some());
    assert_eq!(grown.log_end_offset(), end);

    let whole = std::fs::read(&path).unwrap();
    let size = opening.active.unwrap().size_bytes as usize;
    std::fs::write(&path, &whole[..size - 1]).unwrap();
    assert!(matches!(place.try_open(opening.clone()), Err(StorageError::Damaged(_))));
    std::fs::write(&path, &whole[..size]).unwrap();
    assert!(place.try_open(opening.clone()).unwrap().is_resumed());
    let first = place.path("00000000000000000000.log");
    std::fs::rename(&first, place.path("elsewhere")).unwrap();
    assert!(matches!(place.try_open(opening), Err(StorageError::Damaged(_))));
}

#[test]
fn no_file_is_read_before_the_first_append_which_finds_another_end() {
    let place = Place::small();
    let log = filled(&place);
    let (opening, path) = (known(&log), active_file(&place, &log));
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, vec![0x5a; whole.len()]).unwrap();
    let resumed = place.try_open(opening.clone()).unwrap();
    assert!(resumed.is_resumed(), "nothing was read that is not as it was");
    let found = resumed.resuming().unwrap().run();
    assert!(matches!(found, Err(StorageError::Damaged(_))), "{found:?}");
    // The last batch lost its place, and every byte in it is good.
    let mut shifted = whole.clone();
    let last = model::batch::Batches::new(&whole).last().unwrap().unwrap().1.len();
    let at = whole.len() - last;
    shifted[at + 7] += 1;
    std::fs::write(&path, shifted).unwrap();
    let found = place.try_open(opening).unwrap().resuming().unwrap().run();
    assert!(matches!(found, Err(StorageError::Damaged(_))), "{found:?}");
}

#[test]
fn without_what_is_derived_or_behind_an_open_transaction_the_log_is_read() {
    let place = Place::small();
    let mut log = filled(&place);
    let opening = Opening { derived: None, ..known(&log) };
    assert!(!place.try_open(opening).unwrap().is_resumed());
    const TRANSACTIONAL: i16 = 1 << 4;
    append(
        &mut log,
        &Batch::of(1, NOW.plus_ms(50)).epoch(2).producer(8, 0, 0).flags(TRANSACTIONAL),
    );
    checkpoint(&mut log);
    assert!(log.derived().is_none(), "the last stable offset must be known at once");
}

#[test]
fn a_log_that_was_never_written_to_is_taken_up_after_a_crash() {
    let place = Place::small();
    let log = place.open_unclean(Offset(0));
    drop(log);
    let opening = Opening { sealed: Some(Vec::new()), ..Opening::unknown(NOW) };
    let mut log = place.try_open(opening).unwrap();
    assert!(log.recovery().is_none() && !log.is_resumed());
    assert!(log.begin_sync().is_none(), "there is nothing to be synced");
    append(&mut log, &Batch::of(1, NOW));
    assert_eq!(log.log_end_offset(), Offset(1));
}

#[test]
fn the_first_record_makes_the_file_and_its_sync_makes_the_names_durable() {
    let dir = Path::new("data/t-0");
    let open = |disk: &SimDisk, opening| {
        let config = Arc::new(LogConfig::default());
        Log::open(Arc::new(disk.clone()), dir.to_owned(), config, opening).unwrap()
    };
    let never_written = Opening { sealed: Some(Vec::new()), ..Opening::unknown(NOW) };
    // Closed before the first record, killed, or neither.
    for before in 0..3 {
        let disk = SimDisk::new();
        disk.create_dir_all(Path::new("data")).unwrap();
        disk.sync_dir(Path::new("")).unwrap();
        let mut log = open(&disk, Opening::unknown(NOW));
        assert_eq!(disk.list(dir).unwrap(), Vec::<String>::new());
        if before == 0 {
            assert!(log.begin_close().unwrap().is_none(), "there is nothing to be closed");
            log.close().unwrap();
        }
        if before < 2 {
            log = open(&disk, Opening { clean: before == 0, ..never_written.clone() });
        }
        append(&mut log, &Batch::of(1, NOW));
        let ticket = log.begin_sync().expect("a record is to be synced");
        let result = ticket.run();
        assert_eq!(log.finish_sync(ticket, result).unwrap(), Offset(1));
        for seed in 0..8 {
            let synced = Opening { synced: Offset(1), ..never_written.clone() };
            let log = open(&disk.after_crash(seed), synced);
            assert_eq!(log.log_end_offset(), Offset(1), "before {before}, seed {seed}");
        }
    }
}
