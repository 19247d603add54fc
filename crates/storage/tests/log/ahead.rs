//! Zeros ahead of the end of a log: which logs get them, that no reader takes them for records or damage, and that they
//! go where the log ends for good.

use std::path::PathBuf;
use std::sync::Arc;

use model::{Durability, Offset};
use storage::disk::{Disk, SimDisk};
use storage::{Log, LogConfig, Opening, StorageError};

use crate::fixture::{Batch, NOW, Place, append, checkpoint, read_all, sync};

const PORTION: u64 = 4096;
const SMALL_SYNCS: usize = 3;

fn place() -> Place {
    Place::with(LogConfig {
        segment_bytes: 20_000,
        index_interval_bytes: 150,
        ahead_bytes: PORTION as u32,
        ahead_after_syncs: SMALL_SYNCS as u16,
        ..LogConfig::default()
    })
}

fn write_ahead(log: &mut Log) -> bool {
    let Some(ticket) = log.begin_ahead() else { return false };
    let result = ticket.run();
    log.finish_ahead(ticket, &result);
    result.unwrap()
}

fn append_and_sync(log: &mut Log, n: usize) {
    append(log, &Batch::of(1, NOW.plus_ms(n as i64)));
    sync(log);
}

/// A log that has zeros ahead, and its active segment's file.
fn with_zeros(place: &Place) -> (Log, PathBuf) {
    let mut log = place.open_unclean(Offset(0));
    (0..SMALL_SYNCS).for_each(|n| append_and_sync(&mut log, n));
    assert!(write_ahead(&mut log));
    let path = place.path(&format!("{:020}.log", log.active_base_offset().0));
    (log, path)
}

fn file_bytes(path: &PathBuf) -> u64 {
    std::fs::metadata(path).unwrap().len()
}

/// What a journal knows of a log under `fsync`.
fn known(log: &Log) -> Opening {
    Opening {
        recovery_point: log.recovery_point(),
        synced: log.synced_below(),
        dense_from: Some(Offset(0)),
        durability: Durability::Fsync,
        ..Opening::unknown(NOW)
    }
}

#[test]
fn a_log_that_is_synced_in_small_portions_gets_zeros_and_no_other() {
    let place = place();
    let mut log = place.open_unclean(Offset(0));
    for n in 0..SMALL_SYNCS {
        assert!(!write_ahead(&mut log), "one record must not cost a portion");
        append_and_sync(&mut log, n);
    }
    assert!(write_ahead(&mut log));
    assert!(!write_ahead(&mut log), "enough are left");
    assert_eq!(log.ahead_bytes(), PORTION);

    // Nothing more is written until half of it is used up; then another portion is.
    let mut written = 0;
    for n in 0..60 {
        let left = log.ahead_bytes();
        append_and_sync(&mut log, n);
        let more = write_ahead(&mut log);
        let batch = Batch::of(1, NOW).bytes(Offset(0)).len() as u64;
        assert!(!more || left <= PORTION / 2 + batch, "{left}");
        written += usize::from(more);
        assert!(log.ahead_bytes() >= PORTION / 2, "before they are needed");
    }
    assert!(written >= 1);

    // A sync of much is what a fast writer causes: it is not written twice.
    let place = self::place();
    let mut log = place.open_unclean(Offset(0));
    (0..SMALL_SYNCS - 1).for_each(|n| append_and_sync(&mut log, n));
    (0..10).for_each(|n| _ = append(&mut log, &Batch::of(1, NOW.plus_ms(n))));
    sync(&mut log);
    assert!(!write_ahead(&mut log));
    (0..SMALL_SYNCS - 1).for_each(|n| append_and_sync(&mut log, n));
    assert!(!write_ahead(&mut log), "counted anew");
    append_and_sync(&mut log, 0);
    assert!(write_ahead(&mut log));
}

#[test]
fn a_log_in_the_page_cache_or_one_that_wants_none_gets_none() {
    let place = Place::with(LogConfig { ahead_bytes: 0, ..place().config });
    let mut log = place.open_unclean(Offset(0));
    (0..50).for_each(|n| append_and_sync(&mut log, n));
    assert!(!write_ahead(&mut log));
    let unsynced = self::place();
    let mut log = unsynced.open_unclean(Offset(0));
    (0..50).for_each(|n| _ = append(&mut log, &Batch::of(1, NOW.plus_ms(n))));
    assert!(!write_ahead(&mut log), "what is not synced has no small syncs");
}

#[test]
fn whoever_asks_the_log_sees_the_end_of_its_batches() {
    let place = place();
    let (mut log, path) = with_zeros(&place);
    let plain = self::place();
    let mut same = plain.open_unclean(Offset(0));
    (0..SMALL_SYNCS).for_each(|n| append_and_sync(&mut same, n));
    assert_eq!(file_bytes(&path), log.size_bytes() + PORTION);
    assert_eq!(log.size_bytes(), same.size_bytes());
    assert_eq!(read_all(&log, Offset(0), 1 << 20), read_all(&same, Offset(0), 1 << 20));
    let end = log.log_end_offset();
    assert!(log.read(end, end, 1 << 20, true).unwrap().is_none());
    checkpoint(&mut log);
    checkpoint(&mut same);
    assert_eq!(log.settled_active(), same.settled_active());
    append_and_sync(&mut log, 9);
    append_and_sync(&mut same, 9);
    assert_eq!(read_all(&log, Offset(0), 1 << 20), read_all(&same, Offset(0), 1 << 20));
    assert_eq!(file_bytes(&path), log.size_bytes() + log.ahead_bytes(), "written over zeros");
}

#[test]
fn a_stop_a_roll_a_truncation_and_idleness_give_the_zeros_back() {
    let place = place();
    let (mut log, path) = with_zeros(&place);
    checkpoint(&mut log);
    log.close().unwrap();
    assert_eq!(file_bytes(&path), log.size_bytes(), "a stop, of a log that was complete");

    let place = self::place();
    let (mut log, path) = with_zeros(&place);
    let ticket = log.begin_roll_now(NOW).unwrap().unwrap();
    let result = ticket.run();
    log.finish_roll(ticket, result).unwrap();
    assert_eq!(file_bytes(&path), log.size_bytes(), "a roll");
    assert_eq!(log.ahead_bytes(), 0);

    let place = self::place();
    let (mut log, path) = with_zeros(&place);
    log.truncate_to(Offset(2)).unwrap();
    assert_eq!(file_bytes(&path), log.size_bytes(), "a truncation");

    let place = self::place();
    let (mut log, path) = with_zeros(&place);
    assert!(!log.is_ahead_idle(), "it had its small syncs");
    assert!(log.is_ahead_idle());
    let ticket = log.begin_give_back().unwrap();
    let result = ticket.run();
    log.finish_give_back(ticket, result).unwrap();
    assert_eq!((file_bytes(&path), log.ahead_bytes()), (log.size_bytes(), 0), "idleness");
    assert!(!log.is_ahead_idle() && log.begin_give_back().is_none());
    assert!(!log.is_ahead_unused());
    let whole = read_all(&log, Offset(0), 1 << 20);
    (0..SMALL_SYNCS).for_each(|n| append_and_sync(&mut log, n));
    assert!(write_ahead(&mut log), "busy again");
    assert!(read_all(&log, Offset(0), 1 << 20).starts_with(&whole));
}

#[test]
fn nothing_is_appended_while_zeros_are_given_back() {
    let place = place();
    let (mut log, _) = with_zeros(&place);
    let bytes = Batch::of(1, NOW).bytes(log.log_end_offset());
    let header = model::BatchHeader::decode(&bytes).unwrap();
    assert!(log.is_ready_for(&header, bytes.len() as u64, NOW));
    let ticket = log.begin_give_back().unwrap();
    assert!(!log.is_ready_for(&header, bytes.len() as u64, NOW));
    let result = ticket.run();
    log.finish_give_back(ticket, result).unwrap();
    assert!(log.is_ready_for(&header, bytes.len() as u64, NOW));
}

#[test]
fn a_killed_log_is_taken_up_as_recorded_or_recovered_and_nothing_is_called_a_tail() {
    let place = place();
    let (mut log, path) = with_zeros(&place);
    checkpoint(&mut log);
    let recorded = Opening {
        sealed: Some(log.sealed_segments()),
        active: log.settled_active(),
        derived: log.derived().map(|derived| derived.kept()),
        ..known(&log)
    };
    let whole = read_all(&log, Offset(0), 1 << 20);
    let killed = std::fs::read(&path).unwrap();
    let again = place.try_open(recorded.clone()).unwrap();
    assert!(again.is_resumed() && again.recovery().is_none(), "nothing was appended since");
    assert_eq!(file_bytes(&path), log.size_bytes(), "a log without appends keeps none");
    assert_eq!(read_all(&again, Offset(0), 1 << 20), whole);

    // A bit behind the end is no record: it is cut off, and the log is as it was.
    let mut flipped = killed.clone();
    *flipped.last_mut().unwrap() = 4;
    std::fs::write(&path, &flipped).unwrap();
    let again = place.try_open(recorded.clone()).unwrap();
    assert!(!again.is_resumed());
    assert_eq!(read_all(&again, Offset(0), 1 << 20), whole);

    // Appended since the record: read, and its end is where the zeros begin.
    std::fs::write(&path, &killed).unwrap();
    append_and_sync(&mut log, 9);
    let synced = Opening { synced: log.synced_below(), ..recorded };
    let again = place.try_open(synced).unwrap();
    let recovery = again.recovery().expect("it was recovered").clone();
    assert_eq!((recovery.cut_bytes, recovery.cut_whole_batches), (0, false));
    assert_eq!(again.log_end_offset(), log.log_end_offset());
    assert_eq!(read_all(&again, Offset(0), 1 << 20), read_all(&log, Offset(0), 1 << 20));
    assert_eq!(file_bytes(&path), log.size_bytes());
}

#[test]
fn zeros_in_the_place_of_what_was_synced_are_damage() {
    for checkpointed in [false, true] {
        let place = place();
        let (mut log, path) = with_zeros(&place);
        if checkpointed {
            checkpoint(&mut log);
        }
        append_and_sync(&mut log, 9);
        let opening = known(&log);
        let before = log.size_bytes() - Batch::of(1, NOW).bytes(Offset(0)).len() as u64;
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[before as usize..].fill(0);
        std::fs::write(&path, &bytes).unwrap();
        let refused = place.try_open(opening.clone());
        assert!(matches!(refused, Err(StorageError::Damaged(_))), "{refused:?}");
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "nothing is changed");
        // Not synced, they were never there.
        let unsynced = Opening { synced: opening.synced.plus(-1), ..opening };
        let log = place.try_open(unsynced).unwrap();
        assert_eq!(log.log_end_offset(), Offset(SMALL_SYNCS as i64));
    }
}

#[test]
fn zeros_behind_a_segment_that_is_not_the_last_are_legal_if_nothing_is_missing() {
    for (clean, missing) in [(false, false), (true, false), (false, true)] {
        let place = place();
        let (mut log, path) = with_zeros(&place);
        let whole_first = std::fs::read(&path).unwrap()[..log.size_bytes() as usize].to_vec();
        log.roll_if_due(NOW.plus_ms(i64::from(u32::MAX))).unwrap();
        assert_eq!(log.segment_count(), 2);
        append_and_sync(&mut log, 9);
        let whole = read_all(&log, Offset(0), 1 << 20);
        if clean {
            log.close().unwrap();
        }
        // As if the power had failed before the cut got to the device.
        let mut longer = whole_first.clone();
        if missing {
            longer.truncate(longer.len() - Batch::of(1, NOW).bytes(Offset(0)).len());
        }
        longer.resize(whole_first.len() + PORTION as usize, 0);
        std::fs::write(&path, &longer).unwrap();
        let list = |log: &Log| (Some(log.sealed_segments()), log.settled_active());
        let (sealed, active) = if clean { list(&log) } else { (None, None) };
        let opening = Opening { clean, sealed, active, ..known(&log) };
        let opened = place.try_open(opening);
        if missing {
            assert!(matches!(opened, Err(StorageError::Damaged(_))), "{opened:?}");
            continue;
        }
        let again = opened.unwrap();
        assert_eq!(read_all(&again, Offset(0), 1 << 20), whole, "clean: {clean}");
        assert_eq!(again.recovery().map_or(0, |recovery| recovery.cut_bytes), 0);
        assert_eq!(file_bytes(&path), whole_first.len() as u64);
    }
}

#[test]
fn appends_that_come_where_zeros_are_being_written_are_not_written_over() {
    let place = place();
    let mut log = place.open_unclean(Offset(0));
    (0..SMALL_SYNCS).for_each(|n| append_and_sync(&mut log, n));
    // Appended before the zeros are written, and while they are.
    let late = log.begin_ahead().unwrap();
    append_and_sync(&mut log, 9);
    assert!(!late.run().unwrap(), "the append was first");
    log.finish_ahead(late, &Ok(false));
    assert_eq!(log.begin_ahead().map(drop), None, "not again at once");
    for round in 0..200 {
        (0..SMALL_SYNCS).for_each(|n| append_and_sync(&mut log, n));
        let Some(ticket) = log.begin_ahead() else { continue };
        let result = std::thread::scope(|scope| {
            let writing = scope.spawn(|| ticket.run());
            (0..1 + round % 40).for_each(|n| _ = append(&mut log, &Batch::of(2, NOW.plus_ms(n))));
            writing.join().unwrap()
        });
        log.finish_ahead(ticket, &result);
    }
    let end = log.log_end_offset();
    assert_eq!(crate::fixture::values(&log, Offset(0)).len() as i64, end.0);
    sync(&mut log);
    let again = place.try_open(known(&log)).unwrap();
    assert_eq!(again.log_end_offset(), end);
}

#[test]
fn a_disk_without_room_for_zeros_takes_records() {
    let disk = SimDisk::new();
    disk.create_dir_all("data".as_ref()).unwrap();
    let config = Arc::new(place().config);
    let opened: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut log = Log::open(opened, "data/t-0".into(), config, Opening::unknown(NOW)).unwrap();
    (0..SMALL_SYNCS).for_each(|n| append_and_sync(&mut log, n));
    disk.limit_capacity(Some(disk.used_bytes() + 1000));
    let ticket = log.begin_ahead().unwrap();
    let result = ticket.run();
    assert!(result.is_err());
    log.finish_ahead(ticket, &result);
    assert!(log.failure().is_none() && log.is_ahead());
    let ticket = log.begin_give_back().unwrap();
    let result = ticket.run();
    log.finish_give_back(ticket, result).unwrap();
    (0..8).for_each(|n| append_and_sync(&mut log, n));
    assert_eq!(read_all(&log, Offset(0), 1 << 20).len() as u64, log.size_bytes());
}
