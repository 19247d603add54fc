//! The index of aborted transactions: the search for a range of offsets, and files that are damaged, missing or from
//! an earlier release.

use model::{Offset, ProducerId};
use storage::{AbortedTransaction, Log, LogConfig, StorageError};

use crate::fixture::{Batch, NOW, Place, append};

const PRODUCERS: i64 = 3;

/// Appends a transaction of one batch that `producer` aborts.
fn abort(log: &mut Log, producer: i64, sequence: i32) {
    append(log, &Batch::of(1, NOW).producer(producer, 0, sequence).flags(0x10));
    append(log, &marker(producer));
}

/// An abort marker.
fn marker(producer: i64) -> Batch {
    let record = (NOW, Some(vec![0; 4]), Some(vec![0; 6]));
    Batch::records(vec![record]).producer(producer, 0, -1).flags(0x30)
}

/// A closed log of small segments in which each of `count` transactions is aborted.
fn place_with(count: i32) -> (Place, Vec<AbortedTransaction>) {
    let place = Place::with(LogConfig { segment_bytes: 4000, ..LogConfig::default() });
    let mut log = place.open_unclean(Offset(0));
    (0..count).for_each(|n| abort(&mut log, i64::from(n) % PRODUCERS, n / PRODUCERS as i32));
    assert!(log.segment_count() > 1);
    let all = everything(&log);
    log.close().unwrap();
    (place, all)
}

fn everything(log: &Log) -> Vec<AbortedTransaction> {
    log.aborted_transactions(Offset(0), log.log_end_offset()).unwrap()
}

#[test]
fn a_search_finds_exactly_the_transactions_of_the_range() {
    let (place, all) = place_with(200);
    assert_eq!(all.len(), 200);
    let log = place.open_clean();
    for from in 0..log.log_end_offset().0 {
        for until in [from + 1, from + 2, from + 3, from + 250] {
            let due = all.iter().filter(|it| it.last_offset.0 >= from && it.first_offset.0 < until);
            let found = log.aborted_transactions(Offset(from), Offset(until)).unwrap();
            assert_eq!(found, due.copied().collect::<Vec<_>>(), "{from}..{until}");
        }
    }
}

#[test]
fn a_transaction_that_ends_in_a_later_segment_is_found_from_its_first_record() {
    let place = Place::with(LogConfig { segment_bytes: 2000, ..LogConfig::default() });
    let mut log = place.open_unclean(Offset(0));
    append(&mut log, &Batch::of(1, NOW).producer(9, 0, 0).flags(0x10));
    (0..60).for_each(|n| abort(&mut log, 1, n));
    append(&mut log, &marker(9));
    let found = log.aborted_transactions(Offset(0), Offset(1)).unwrap();
    let entries: Vec<_> = found.iter().map(|it| (it.producer_id, it.first_offset)).collect();
    assert_eq!(entries, [(ProducerId(9), Offset(0))]);
}

/// Changes the files of an index.
type Harm = fn(&Place);

fn index(place: &Place) -> std::path::PathBuf {
    place.path("00000000000000000000.txnindex")
}

fn sums(place: &Place) -> std::path::PathBuf {
    place.path("00000000000000000000.txnsums")
}

fn flip(path: &std::path::Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

fn shorten(path: &std::path::Path, bytes: usize) {
    let content = std::fs::read(path).unwrap();
    std::fs::write(path, &content[..content.len() - bytes]).unwrap();
}

const HARMS: &[(&str, Harm)] = &[
    ("a producer id", |place| flip(&index(place), 34 + 9)),
    ("a first offset", |place| flip(&index(place), 17)),
    ("a checksum", |place| flip(&sums(place), 5)),
    ("index shorter by an entry", |place| shorten(&index(place), 34)),
    ("index shorter by a byte", |place| shorten(&index(place), 1)),
    ("checksums shorter", |place| shorten(&sums(place), 4)),
    ("no index", |place| std::fs::remove_file(index(place)).unwrap()),
    ("of an earlier release", |place| std::fs::remove_file(sums(place)).unwrap()),
];

#[test]
fn an_index_that_is_damaged_or_has_no_checksums_is_derived_from_the_batches() {
    for (harm, change) in HARMS {
        for is_clean in [true, false] {
            let (place, all) = place_with(200);
            change(&place);
            let end = all.last().unwrap().last_offset.plus(1);
            let log = if is_clean { place.open_clean() } else { place.open_unclean(end) };
            assert_eq!(everything(&log), all, "{harm}, clean: {is_clean}");
            assert_eq!(log.log_end_offset(), end);
        }
    }
}

#[test]
fn an_entry_that_changes_while_the_log_is_open_is_not_believed() {
    let (place, all) = place_with(200);
    let log = place.open_clean();
    flip(&index(&place), 17);
    let read = log.aborted_transactions(Offset(0), Offset(2));
    assert!(matches!(read, Err(StorageError::Damaged(_))), "{read:?}");
    assert_eq!(everything(&place.open_clean()), all);
}

#[test]
fn a_truncation_drops_the_transactions_whose_markers_it_cuts_off() {
    let (place, all) = place_with(200);
    let mut log = place.open_clean();
    for kept in [150, 100, 3] {
        log.truncate_to(all[kept].last_offset).unwrap();
        assert_eq!(everything(&log), all[..kept], "{kept}");
    }
    abort(&mut log, 7, 0);
    assert_eq!(everything(&log).len(), 4);
    let before = everything(&log);
    drop(log);
    assert_eq!(everything(&place.open_unclean(Offset(0))), before);
}
