//! A bit of a batch that no checksum covers (base offset, length, leader epoch, format version) is
//! another one than was written, in a log that was stopped cleanly and is opened again: nobody is
//! handed a batch at a place where it does not belong.

use std::path::PathBuf;

use model::batch::HEADER_BYTES;
use model::{BatchHeader, LeaderEpoch, Offset};
use storage::{
    ActiveSegment, CleanupPolicy, Derived, FileSlice, Log, LogConfig, Opening, ReadCursor,
    StorageError, TimestampedOffset,
};

use crate::fixture::{Batch, NOW, Place, append, sync};

/// Bytes before the checksum.
const STAMP_BYTES: usize = 17;
const BATCHES: usize = 12;

/// What stands in the log, batch by batch, and its end.
struct Written {
    batches: Vec<Vec<u8>>,
    active: ActiveSegment,
    epochs: Vec<(LeaderEpoch, Offset)>,
    /// By the times of the batches, the first record that is at least as new.
    found: Vec<Option<TimestampedOffset>>,
}

fn filled(place: &Place) -> Written {
    filled_at(place, |n| n as i64)
}

/// With the batches' times in ms, by their numbers.
fn filled_at(place: &Place, ms: impl Fn(usize) -> i64) -> Written {
    filled_with(place, |n| Batch::of(1 + n % 3, NOW.plus_ms(ms(n))))
}

fn filled_with(place: &Place, batch: impl Fn(usize) -> Batch) -> Written {
    let mut log = place.open_unclean(Offset(0));
    let epoch = |n: usize| [0, 1, 4][3 * n / BATCHES];
    let batches = (0..BATCHES).map(|n| append(&mut log, &batch(n).epoch(epoch(n)))).collect();
    log.close().unwrap();
    let (active, epochs) = (log.settled_active().unwrap(), log.epochs().to_vec());
    let found = (0..=BATCHES).map(|n| search(&log, n).unwrap()).collect();
    Written { batches, active, epochs, found }
}

fn open(place: &Place, written: &Written) -> Result<Log, StorageError> {
    let known = Opening { clean: true, epoch_max: Some(LeaderEpoch(4)), ..Opening::unknown(NOW) };
    let active = Some(written.active);
    let (synced, newer_epochs) = (written.active.end, written.epochs.clone());
    place.try_open(Opening { dense_from: Some(Offset(0)), active, synced, newer_epochs, ..known })
}

/// Looks for the first record that is at least `ms` ms new.
fn search(log: &Log, ms: usize) -> Result<Option<TimestampedOffset>, StorageError> {
    log.find_by_timestamp(NOW.plus_ms(ms as i64), log.log_end_offset())
}

fn files(place: &Place, suffix: &str) -> Vec<PathBuf> {
    let names = place.names().into_iter().filter(|name| name.ends_with(suffix));
    names.map(|name| place.path(&name)).collect()
}

fn flip(path: &PathBuf, byte: usize, bit: u8) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[byte] ^= 1 << bit;
    std::fs::write(path, bytes).unwrap();
}

/// What a reader makes of a slice: the batches that pass its check, and whether all of them did.
fn checked(slice: &FileSlice) -> (Vec<Vec<u8>>, bool) {
    let mut bytes = vec![0; slice.size_bytes as usize];
    slice.file.read_at(&mut bytes, slice.position).unwrap();
    let (mut rest, mut batches) = (&bytes[..], Vec::new());
    while rest.len() >= HEADER_BYTES {
        let Ok(header) = BatchHeader::decode_checked(rest) else { return (batches, false) };
        let (batch, behind) = rest.split_at(header.size_bytes as usize);
        batches.push(batch.to_vec());
        rest = behind;
    }
    (batches, rest.is_empty())
}

/// How many looks at the log were answered with an error or with bytes that a reader does not believe;
/// panics if one was answered with a batch that was not written there, or with nothing.
fn looks(log: &Log, written: &Written, what: &str) -> usize {
    let mut told = 0;
    // Not a multiple of a batch's records.
    for offset in (0..log.log_end_offset().0).step_by(5) {
        let (mut offset, mut cursor) = (Offset(offset), ReadCursor::default());
        let sizes = [60, 400, 1 << 20];
        let max_bytes = sizes[offset.0 as usize / 5 % sizes.len()];
        while offset < log.log_end_offset() {
            match log.read_from(&cursor, offset, log.log_end_offset(), max_bytes, true) {
                Err(StorageError::Damaged(_)) => {
                    told += 1;
                    break;
                }
                Err(error) => panic!("{what}: {error}"),
                Ok(None) => panic!("{what}: nothing at {offset}"),
                Ok(Some(slice)) => {
                    let (batches, believed) = checked(&slice);
                    for batch in &batches {
                        assert!(
                            written.batches.contains(batch),
                            "{what}: a batch that was not written"
                        );
                        let header = BatchHeader::decode(batch).unwrap();
                        assert!(header.base_offset <= offset, "{what}: {offset} is left out");
                        assert!(header.next_offset() > offset, "{what}: sent twice");
                        offset = header.next_offset();
                    }
                    assert!(!batches.is_empty() || !believed, "{what}: an empty slice");
                    cursor = slice.next;
                    if !believed {
                        told += 1;
                        break;
                    }
                }
            }
        }
    }
    told
}

#[test]
fn a_flipped_stamp_is_told_wherever_the_reader_begins() {
    let place = Place::small();
    let written = filled(&place);
    flip_all_stamps(&place, &written);
}

#[test]
fn a_base_offset_that_moves_to_where_compaction_took_batches_away_is_told() {
    let config = LogConfig {
        segment_bytes: 700,
        cleanup: CleanupPolicy { delete: false, compact: true },
        min_cleanable_dirty_ratio: 0.0,
        ..LogConfig::default()
    };
    let place = Place::with(config);
    // Every third record is one of a key of its own, the others give way to later ones.
    let keyed = |n: usize| if n.is_multiple_of(3) { vec![n as u8] } else { vec![255] };
    let mut written = filled_with(&place, |n| {
        let value = Some(vec![7; 60]);
        Batch::records(vec![(NOW.plus_ms(n as i64), Some(keyed(n)), value)])
    });
    let mut log = open(&place, &written).unwrap();
    let resuming = log.resuming().map(|resuming| resuming.run().unwrap());
    resuming.into_iter().for_each(|resumed| log.finish_resuming(resumed));
    let plan = log.plan_compaction(NOW, log.log_end_offset()).unwrap().expect("sealed segments");
    let compaction = plan.run(1 << 20, [1, 2], &mut |_| true).unwrap().expect("it has its time");
    let _ = log.finish_compaction(compaction).unwrap();
    let slice = |offset| log.read(offset, log.log_end_offset(), 1 << 20, true).unwrap();
    written.batches.clear();
    let mut next = Offset(0);
    while let Some(found) = slice(next) {
        written.batches.extend(checked(&found).0);
        next = next_offset(&written.batches[written.batches.len() - 1]);
    }
    let headers: Vec<_> =
        written.batches.iter().map(|batch| BatchHeader::decode(batch).unwrap()).collect();
    let empty = headers.iter().filter(|header| header.record_count == 0).count();
    assert!(empty > 0 && headers.len() < BATCHES, "{headers:?}");
    assert!(headers.is_sorted_by(|one, next| one.next_offset() == next.base_offset));
    written.found = (0..=BATCHES).map(|ms| search(&log, ms).unwrap()).collect();
    // What is compacted once more without news stays as it is.
    assert!(log.plan_compaction(NOW, log.log_end_offset()).unwrap().is_none());
    log.close().unwrap();
    drop(log);
    flip_all_stamps(&place, &written);
}

/// No bit of what stands before a checksum may be another one without a word.
fn flip_all_stamps(place: &Place, written: &Written) {
    assert_eq!(looks(&open(place, written).unwrap(), written, "undamaged"), 0);
    for path in files(place, ".log") {
        let bytes = std::fs::read(&path).unwrap();
        let mut at = 0;
        while at < bytes.len() {
            for bit in 0..STAMP_BYTES * 8 {
                let what = format!("{} byte {} bit {}", path.display(), at + bit / 8, bit % 8);
                flip(&path, at + bit / 8, (bit % 8) as u8);
                match open(place, written) {
                    Ok(log) => {
                        assert!(looks(&log, written, &what) > 0, "{what}: believed");
                        for (ms, right) in written.found.iter().enumerate() {
                            match search(&log, ms) {
                                Ok(found) => assert_eq!(found, *right, "{what}: by time {ms}"),
                                Err(StorageError::Damaged(_)) => {}
                                Err(error) => panic!("{what}: {error}"),
                            }
                        }
                    }
                    Err(StorageError::Damaged(_)) => {}
                    Err(error) => panic!("{what}: {error}"),
                }
                std::fs::write(&path, &bytes).unwrap();
            }
            at += BatchHeader::decode(&bytes[at..]).unwrap().size_bytes as usize;
        }
    }
}

#[test]
fn an_index_with_a_flipped_bit_hides_nothing() {
    let place = Place::small();
    let written = filled(&place);
    for path in files(&place, "index") {
        let bytes = std::fs::read(&path).unwrap();
        for bit in 0..bytes.len() * 8 {
            let what = format!("{} bit {bit}", path.display());
            flip(&path, bit / 8, (bit % 8) as u8);
            let log = open(&place, &written).unwrap();
            assert_eq!(looks(&log, &written, &what), 0, "{what}");
            drop(log);
            std::fs::write(&path, &bytes).unwrap();
        }
    }
}

#[test]
fn an_index_with_a_flipped_bit_hides_nothing_after_a_kill() {
    let config = LogConfig { index_interval_bytes: 150, ..LogConfig::default() };
    let place = Place::with(config);
    // The newest record stands in the middle, so entries below the last one are asked for.
    let written = filled_at(&place, |n| if n == BATCHES / 2 { 100 } else { n as i64 });
    let end = written.active.end;
    let (log_file, log_bytes) = (&files(&place, ".log")[0], written.active.size_bytes);
    for path in [files(&place, ".index"), files(&place, ".timeindex")].concat() {
        let bytes = std::fs::read(&path).unwrap();
        for bit in 0..bytes.len() * 8 {
            let what = format!("{} bit {bit}", path.display());
            flip(&path, bit / 8, (bit % 8) as u8);
            // As written ahead of the log, by the process that was killed.
            let file = std::fs::File::options().write(true).open(log_file).unwrap();
            file.set_len(log_bytes + 5_000).unwrap();
            for recovery_point in [end, Offset(end.0 - 1), Offset(end.0 / 2)] {
                let known = Opening { recovery_point, synced: end, ..Opening::unknown(NOW) };
                let log = place.try_open(Opening { dense_from: Some(Offset(0)), ..known }).unwrap();
                assert_eq!(log.log_end_offset(), end, "{what}");
                assert_eq!(looks(&log, &written, &what), 0, "{what}");
                drop(log);
                std::fs::write(&path, &bytes).unwrap();
                flip(&path, bit / 8, (bit % 8) as u8);
            }
            std::fs::write(&path, &bytes).unwrap();
        }
    }
}

#[test]
fn batches_that_were_read_once_are_not_looked_at_again() {
    let place = Place::small();
    let written = filled(&place);
    let log = open(&place, &written).unwrap();
    let read = |log: &Log| log.read(Offset(1), log.log_end_offset(), 300, true).map(drop);
    read(&log).unwrap();
    let path = &files(&place, ".log")[0];
    let second = BatchHeader::decode(&std::fs::read(path).unwrap()).unwrap().size_bytes as usize;
    // Behind the one where the search begins; whoever reads on has seen these headers.
    flip(path, 2 * second, 7);
    read(&log).unwrap();
    drop(log);
    assert!(open(&place, &written).and_then(|log| read(&log)).is_ok(), "cut before");
}

#[test]
fn a_flipped_stamp_is_compacted_into_no_other_place() {
    let config = LogConfig {
        segment_bytes: 400,
        cleanup: CleanupPolicy { delete: false, compact: true },
        min_cleanable_dirty_ratio: 0.0,
        ..LogConfig::default()
    };
    let compacted = |place: &Place, written: &Written| -> Result<Vec<_>, StorageError> {
        let mut log = open(place, written)?;
        let resuming = log.resuming().map(|resuming| resuming.run()).transpose()?;
        resuming.into_iter().for_each(|resumed| log.finish_resuming(resumed));
        let plan = log.plan_compaction(NOW, log.log_end_offset())?.expect("segments are sealed");
        let compaction = plan.run(1 << 20, [1, 2], &mut |_| true)?.expect("it has its time");
        // From here on what is wrong would be so for good.
        let _ = log.finish_compaction(compaction).unwrap();
        let slice = |offset| log.read(offset, log.log_end_offset(), 1 << 20, true).unwrap();
        let mut batches = Vec::new();
        while let Some(found) =
            slice(batches.last().map_or(Offset(0), |last: &Vec<u8>| next_offset(last)))
        {
            batches.extend(checked(&found).0);
        }
        Ok(batches)
    };
    let first = Place::with(config.clone());
    let keyed = |n: usize, part: usize| (NOW, Some(vec![n as u8, part as u8]), Some(vec![7; 20]));
    let written = filled_with(&first, |n| {
        Batch::records((0..1 + n % 3).map(|part| keyed(n, part)).collect())
    });
    let copied = || {
        let place = Place::with(config.clone());
        drop(place.open_unclean(Offset(0)));
        for name in first.names() {
            std::fs::copy(first.path(&name), place.path(&name)).unwrap();
        }
        place
    };
    let right = compacted(&copied(), &written).unwrap();
    assert!(files(&first, ".log").len() > 2);
    // The active segment is not compacted.
    for number in 0..files(&first, ".log").len() - 1 {
        for bit in 0..STAMP_BYTES * 8 {
            let place = copied();
            let path = &files(&place, ".log")[number];
            flip(path, bit / 8, (bit % 8) as u8);
            match compacted(&place, &written) {
                Ok(found) => assert!(found == right, "segment {number}, bit {bit}: believed"),
                Err(StorageError::Damaged(_)) => {}
                Err(error) => panic!("segment {number}, bit {bit}: {error}"),
            }
        }
    }
}

fn next_offset(batch: &[u8]) -> Offset {
    BatchHeader::decode(batch).unwrap().next_offset()
}

/// Two epochs, ten records each, all of them synced; and what is known of them.
fn two_epochs(place: &Place) -> (Log, Opening) {
    let mut log = place.open_unclean(Offset(0));
    append(&mut log, &Batch::of(10, NOW).epoch(2));
    append(&mut log, &Batch::of(10, NOW).epoch(3));
    let synced = sync(&mut log);
    (log, Opening { synced, ..Opening::unknown(NOW) })
}

fn derived(end: i64, tells_newer: bool) -> Option<Derived> {
    let epochs = vec![(LeaderEpoch(2), Offset(0))];
    Some(Derived { end: Offset(end), epochs, has_producers: false, tells_newer })
}

#[test]
fn of_epochs_behind_a_checkpoint_of_an_earlier_version_nothing_is_known() {
    let place = Place::new();
    let (log, known) = two_epochs(&place);
    drop(log);
    let earlier = Opening { derived: derived(10, false), ..known.clone() };
    let log = place.try_open(earlier.clone()).unwrap();
    assert_eq!(log.latest_epoch(), LeaderEpoch(3));
    // Where this version has told of an epoch, it has told of all behind.
    let newer_epochs = vec![(LeaderEpoch(3), Offset(10))];
    place.try_open(Opening { newer_epochs, ..earlier.clone() }).unwrap();
    let newer_epochs = vec![(LeaderEpoch(4), Offset(10))];
    place.try_open(Opening { newer_epochs, ..earlier }).unwrap_err();
    place.try_open(Opening { derived: derived(10, true), ..known }).unwrap_err();
}

#[test]
fn the_epoch_in_which_the_log_starts_is_told_as_it_began() {
    let place = Place::new();
    let (mut log, known) = two_epochs(&place);
    log.delete_records_before(Offset(15)).unwrap();
    let told = log.tell_epochs(known.synced);
    assert_eq!(told, [(LeaderEpoch(3), Offset(10))], "the deletion may be forgotten in a crash");
    drop(log);
    let opening = Opening { derived: derived(10, true), newer_epochs: told, ..known };
    place.try_open(opening.clone()).unwrap();
    // Of deleted records no epoch is due.
    let moved = vec![(LeaderEpoch(3), Offset(15))];
    let log_start_offset = Offset(15);
    place.try_open(Opening { newer_epochs: moved, log_start_offset, ..opening }).unwrap();
}
