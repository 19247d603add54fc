//! A bit of a batch that no checksum covers (base offset, length, leader epoch, format version) is
//! another one than was written, in a log that was stopped cleanly and is opened again: nobody is
//! handed a batch at a place where it does not belong.

use std::path::PathBuf;

use model::batch::HEADER_BYTES;
use model::{BatchHeader, LeaderEpoch, Offset};
use storage::{ActiveSegment, FileSlice, Log, LogConfig, Opening, ReadCursor, StorageError};

use crate::fixture::{Batch, NOW, Place, append};

/// Bytes before the checksum.
const STAMP_BYTES: usize = 17;
const BATCHES: usize = 12;

/// What stands in the log, batch by batch, and its end.
struct Written {
    batches: Vec<Vec<u8>>,
    active: ActiveSegment,
}

fn filled(place: &Place) -> Written {
    filled_at(place, |n| n as i64)
}

/// With the batches' times in ms, by their numbers.
fn filled_at(place: &Place, ms: impl Fn(usize) -> i64) -> Written {
    let mut log = place.open_unclean(Offset(0));
    let epoch = |n: usize| [0, 1, 4][3 * n / BATCHES];
    let batches = (0..BATCHES)
        .map(|n| append(&mut log, &Batch::of(1 + n % 3, NOW.plus_ms(ms(n))).epoch(epoch(n))))
        .collect();
    log.close().unwrap();
    Written { batches, active: log.settled_active().unwrap() }
}

fn open(place: &Place, written: &Written) -> Result<Log, StorageError> {
    let known = Opening { clean: true, epoch_max: Some(LeaderEpoch(4)), ..Opening::unknown(NOW) };
    let active = Some(written.active);
    place.try_open(Opening { dense_from: Some(Offset(0)), active, ..known })
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

/// Whether the batch at `at` has the epoch of one of its neighbours instead of its own.
fn is_seam_moved(path: &PathBuf, at: usize, before: &BatchHeader) -> bool {
    let small = |epoch: LeaderEpoch| epoch == LeaderEpoch(0) || epoch == LeaderEpoch(1);
    let now = BatchHeader::decode(&std::fs::read(path).unwrap()[at..]);
    now.is_ok_and(|now| {
        now.leader_epoch != before.leader_epoch
            && small(now.leader_epoch)
            && small(before.leader_epoch)
    })
}

#[test]
fn a_flipped_stamp_is_told_wherever_the_reader_begins() {
    let place = Place::small();
    let written = filled(&place);
    assert_eq!(looks(&open(&place, &written).unwrap(), &written, "undamaged"), 0);
    for path in files(&place, ".log") {
        let bytes = std::fs::read(&path).unwrap();
        let mut at = 0;
        while at < bytes.len() {
            let before = BatchHeader::decode(&bytes[at..]).unwrap();
            for bit in 0..STAMP_BYTES * 8 {
                let what = format!("{} byte {} bit {}", path.display(), at + bit / 8, bit % 8);
                flip(&path, at + bit / 8, (bit % 8) as u8);
                match open(&place, &written) {
                    // Two epochs meet here, and the file that says where has no checksum either.
                    Ok(_) if is_seam_moved(&path, at, &before) => {}
                    Ok(log) => assert!(looks(&log, &written, &what) > 0, "{what}: believed"),
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
    for path in [files(&place, ".index"), files(&place, ".timeindex")].concat() {
        let bytes = std::fs::read(&path).unwrap();
        for bit in 0..bytes.len() * 8 {
            let what = format!("{} bit {bit}", path.display());
            flip(&path, bit / 8, (bit % 8) as u8);
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
