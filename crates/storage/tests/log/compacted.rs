//! Compaction: what stays of a log of keys, and that everybody else goes on unharmed.

use std::collections::BTreeMap;

use model::batch::Batches;
use model::{BatchHeader, Offset, Timestamp};
use storage::compaction::{Compacted, CompactionPlan};
use storage::disk::RealDisk;
use storage::{CleanupPolicy, Log, Opening, ProducerVerdict};

use crate::fixture::*;

const KEY: [u64; 2] = [7, 11];

fn place() -> Place {
    let mut place = Place::small();
    place.config.cleanup = CleanupPolicy { delete: false, compact: true };
    place.config.min_cleanable_dirty_ratio = 0.0;
    place
}

fn keyed(key: &str, value: Option<&str>, time: i64) -> Batch {
    let value = value.map(|value| value.as_bytes().to_vec());
    Batch::records(vec![(NOW.plus_ms(time), Some(key.as_bytes().to_vec()), value)])
}

fn plan(log: &Log, now: Timestamp) -> Option<CompactionPlan> {
    log.plan_compaction(now, log.log_end_offset()).unwrap()
}

fn compact_at(log: &mut Log, now: Timestamp, memory_bytes: usize) -> Compacted {
    sync(log);
    let plan = plan(log, now).expect("there is something to compact");
    let compaction = plan.run(memory_bytes, KEY, &mut |_| true).unwrap().unwrap();
    log.finish_compaction(compaction).unwrap()
}

fn compact(log: &mut Log) -> Compacted {
    compact_at(log, NOW, 1 << 20)
}

/// Fills the active segment with keyless batches, so that all before it can be compacted.
fn seal(log: &mut Log, time: i64) {
    let active = log.active_base_offset();
    while log.active_base_offset() == active {
        let value = Some(vec![b'x'; 300]);
        append(log, &Batch::records(vec![(NOW.plus_ms(time), Some(b"seal".to_vec()), value)]));
    }
}

/// The records of keys that a test wrote.
fn kept(log: &Log) -> Vec<(i64, String, Option<String>)> {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    values(log, log.log_start_offset())
        .into_iter()
        .filter(|(_, key, _)| key.as_deref() != Some(b"seal"))
        .map(|(offset, key, value)| (offset, text(key.unwrap()), value.map(text)))
        .collect()
}

#[test]
fn the_last_value_of_every_key_stays_at_its_offset() {
    let place = place();
    let mut log = place.open_unclean(Offset(0));
    let mut last = BTreeMap::new();
    for n in 0..200i64 {
        let key = format!("key{}", n * 7 % 23);
        let offset = log.log_end_offset().0;
        let value = format!("value {n}");
        append(&mut log, &keyed(&key, Some(&value), n));
        last.insert(key, (offset, value));
    }
    seal(&mut log, 200);
    let (end, segments, size) = (log.log_end_offset(), log.segment_count(), log.size_bytes());
    let done = compact(&mut log);
    assert_eq!(done.freed_bytes, size - log.size_bytes());
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (Offset(0), end));
    let mut expected: Vec<_> =
        last.into_iter().map(|(key, (offset, value))| (offset, key, Some(value))).collect();
    expected.sort();
    assert_eq!(kept(&log), expected);
    assert_eq!(log.cleaned_below(), log.active_base_offset());
    assert!(plan(&log, NOW).is_none(), "nothing is dirty");

    seal(&mut log, 201);
    let done = compact(&mut log);
    assert!(log.segment_count() < segments / 2, "what became small is merged in the next round");
    assert_eq!(kept(&log), expected);
    done.deleted.iter().for_each(|segment| segment.remove(&RealDisk).unwrap());
    let left: Vec<_> = place
        .names()
        .into_iter()
        .filter(|n| n.contains(".swap") || n.contains(".cleaned"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    for step in [30, 300, 1 << 20] {
        assert_eq!(read_all(&log, Offset(0), step), read_all(&log, Offset(0), 1 << 20));
    }
    let bytes = read_all(&log, Offset(0), 1 << 20);
    log.close().unwrap();
    drop(log);
    assert!(read_all(&place.open_clean(), Offset(0), 1 << 20) == bytes);
    let log = place.open_unclean(Offset(0));
    assert!(read_all(&log, Offset(0), 1 << 20) == bytes, "no offset is missing between segments");
    assert_eq!(log.recovery().unwrap().cut_bytes, 0);
}

/// What compaction replaces waits for its removal under a name of its own, the first segment of each group too, however often
/// that is replaced: nothing is freed by a rename.
#[test]
fn all_that_is_replaced_waits_to_be_removed() {
    let place = place();
    let mut log = place.open_unclean(Offset(0));
    let (mut waiting, mut freed) = (Vec::new(), 0);
    for round in 0..4i64 {
        for n in 0..100 {
            append(&mut log, &keyed(&format!("key{}", n % 23), Some("v"), 1000 * round + n));
        }
        seal(&mut log, 1000 * round + 500);
        let done = compact(&mut log);
        freed += done.freed_bytes;
        waiting.extend(done.deleted);
    }
    let is_deleted = |name: &String| name.contains(".log.") && name.ends_with(".deleted");
    assert_eq!(place.names().iter().filter(|name| is_deleted(name)).count(), waiting.len());
    let sizes: u64 = waiting.iter().map(|segment| segment.size_bytes).sum();
    let held = place.names().into_iter().filter(is_deleted);
    let held: u64 = held.map(|name| place.disk().size(&place.path(&name)).unwrap()).sum();
    assert_eq!(held, sizes);
    assert!(held > freed, "{held} bytes wait, {freed} were freed: some took the place of others");
    waiting.iter().for_each(|segment| segment.remove(&RealDisk).unwrap());
    assert!(!place.names().iter().any(|name| name.ends_with(".deleted")));
}

#[test]
fn the_same_with_little_memory_takes_several_rounds() {
    let place = place();
    let mut log = place.open_unclean(Offset(0));
    for n in 0..300i64 {
        append(&mut log, &keyed(&format!("key{}", n % 100), Some("v"), n));
    }
    seal(&mut log, 300);
    let mut rounds = 0;
    sync(&mut log);
    while let Some(plan) = plan(&log, NOW) {
        // Room for some forty keys.
        let compaction = plan.run(24 * 70, KEY, &mut |_| true).unwrap().unwrap();
        assert!(compaction.tally.memory_full || rounds > 2);
        let _ = log.finish_compaction(compaction).unwrap();
        rounds += 1;
        assert!(rounds < 30, "it must come to an end");
    }
    assert!(rounds > 2, "{rounds}");
    let left = kept(&log);
    assert_eq!(left.len(), 100);
    assert_eq!(left[0].0, 200);
}

#[test]
fn tombstones_stay_until_their_horizon_has_passed() {
    let place = place();
    let mut log = place.open_unclean(Offset(0));
    append(&mut log, &keyed("gone", Some("v"), 0));
    append(&mut log, &keyed("stays", Some("v"), 0));
    append(&mut log, &keyed("gone", None, 5));
    seal(&mut log, 10);
    let _ = compact(&mut log);
    let with_tombstone =
        [(1, "stays".to_owned(), Some("v".to_owned())), (2, "gone".to_owned(), None)];
    assert_eq!(kept(&log), with_tombstone);
    let horizon = NOW.plus_ms(place.config.delete_retention_ms);
    let bytes = read_all(&log, Offset(2), 1);
    let header = BatchHeader::decode_checked(&bytes).unwrap();
    assert_eq!(header.delete_horizon(), Some(horizon));
    let found = log.find_by_timestamp(NOW.plus_ms(5), log.log_end_offset()).unwrap().unwrap();
    assert_eq!(
        (found.offset, found.timestamp),
        (Offset(2), NOW.plus_ms(5)),
        "its time is the same"
    );

    seal(&mut log, 11);
    let _ = compact_at(&mut log, horizon.plus_ms(-1), 1 << 20);
    assert_eq!(kept(&log), with_tombstone);
    seal(&mut log, 12);
    let _ = compact_at(&mut log, horizon, 1 << 20);
    assert_eq!(kept(&log), with_tombstone[..1]);
}

#[test]
fn batches_of_every_codec_lose_single_records() {
    for codec in [0, 1, 2, 3, 4].map(|code| model::Compression::from_code(code).unwrap()) {
        let place = place();
        let mut log = place.open_unclean(Offset(0));
        let mut builder =
            model::record::BatchBuilder::new().placed(Offset(0), model::LeaderEpoch(0));
        for n in 0..50i64 {
            let key = format!("key{}", n % 30);
            let value = format!("value {n} of {}", codec.name());
            builder.add_with_headers(
                NOW.plus_ms(n),
                Some(key.as_bytes()),
                Some(value.as_bytes()),
                &[("h", Some(b"x"))],
            );
        }
        let mut compressed = Vec::new();
        compression::compress(codec, None, builder.records(), &mut compressed);
        append_bytes(&mut log, &builder.finish_compressed(codec, &compressed));
        seal(&mut log, 60);
        let _ = compact(&mut log);
        let bytes = read_all(&log, Offset(0), 1);
        let header = BatchHeader::decode_checked(&bytes).unwrap();
        assert_eq!((header.compression(), header.record_count), (codec, 30));
        assert_eq!((header.base_offset, header.last_offset()), (Offset(0), Offset(49)));
        let mut buffer = Vec::new();
        let records = compression::records::read(&header, &bytes, 1 << 20, &mut buffer).unwrap();
        for (record, offset) in records.zip(20..) {
            let record = record.unwrap();
            assert_eq!(record.offset_delta, offset);
            assert_eq!(record.headers().next(), Some(("h", Some(&b"x"[..]))));
            let value = format!("value {offset} of {}", codec.name());
            assert_eq!(record.value, Some(value.as_bytes()));
        }
    }
}

#[test]
fn the_last_batch_of_every_producer_stays_if_only_as_an_empty_one() {
    let place = place();
    let mut log = place.open_unclean(Offset(0));
    for n in 0..3 {
        append(&mut log, &keyed("a", Some("v"), n).producer(n, 0, 0));
    }
    append(&mut log, &keyed("a", Some("v"), 3).producer(2, 0, 1));
    append(&mut log, &keyed("a", Some("last"), 4));
    seal(&mut log, 10);
    let _ = compact(&mut log);
    assert_eq!(kept(&log), [(4, "a".to_owned(), Some("last".to_owned()))]);
    // The state must come out of the batches alone.
    log.close().unwrap();
    drop(log);
    for name in place.names().iter().filter(|name| name.ends_with(".snapshot")) {
        std::fs::remove_file(place.path(name)).unwrap();
    }
    let log = place.open_unclean(Offset(0));
    let retry = |producer: i64, sequence: i32| {
        let bytes = keyed("a", Some("v"), 0).producer(producer, 0, sequence).bytes(Offset(0));
        log.check_producer(&BatchHeader::decode(&bytes).unwrap())
    };
    for (producer, sequence, offset) in [(0, 0, 0), (1, 0, 1), (2, 1, 3)] {
        let verdict = retry(producer, sequence);
        assert!(
            matches!(verdict, ProducerVerdict::Duplicate { base_offset, .. } if base_offset.0 == offset),
            "producer {producer}: {verdict:?}"
        );
        assert_eq!(retry(producer, sequence + 1), ProducerVerdict::Accept);
    }
}

/// Empty batches keep the time of those whose place they take, or a segment of nothing else would never be old enough to go,
/// nor what is behind it.
#[test]
fn a_segment_of_which_nothing_is_left_is_as_old_as_what_it_held() {
    let mut place = place();
    place.config.cleanup = CleanupPolicy { delete: true, compact: true };
    place.config.retention_ms = 1000;
    let dense = || Opening { dense_from: Some(Offset(0)), ..Opening::unknown(NOW) };
    let mut log = place.try_open(dense()).unwrap();
    for n in 0..40 {
        append(&mut log, &keyed("key", Some("value"), n));
    }
    seal(&mut log, 500);
    append(&mut log, &keyed("key", Some("value"), 5000));
    seal(&mut log, 5001);
    let _ = compact(&mut log);
    assert_eq!(kept(&log).len(), 1);
    let first = log.read(Offset(0), log.log_end_offset(), 61, true).unwrap().unwrap();
    let mut bytes = vec![0; first.size_bytes as usize];
    first.file.read_at(&mut bytes, first.position).unwrap();
    let header = BatchHeader::decode_checked(&bytes).unwrap();
    assert!(header.is_placeholder() && header.max_timestamp > NOW, "{header:?}");
    let end = log.log_end_offset();
    assert!(log.retain(NOW.plus_ms(990), end).unwrap().is_empty(), "not yet");
    log.close().unwrap();
    drop(log);
    let mut log = place.try_open(dense()).unwrap();
    sync(&mut log);
    assert!(!log.retain(NOW.plus_ms(2000), end).unwrap().is_empty(), "it is old");
    assert!(log.log_start_offset() > Offset(0));
}

#[test]
fn lag_and_ratio_decide_what_is_compacted_and_when() {
    let mut place = place();
    place.config.min_compaction_lag_ms = 1000;
    place.config.max_compaction_lag_ms = 5000;
    place.config.min_cleanable_dirty_ratio = 0.99;
    let mut log = place.open_unclean(Offset(0));
    append(&mut log, &keyed("a", Some("1"), 0));
    append(&mut log, &keyed("a", Some("2"), 0));
    seal(&mut log, 0);
    assert!(plan(&log, NOW.plus_ms(2000)).is_none(), "it is not durable yet");
    sync(&mut log);
    assert!(plan(&log, NOW.plus_ms(999)).is_none(), "it is too young");
    assert!(plan(&log, NOW.plus_ms(1000)).is_some(), "all of it is dirty");
    assert!(log.plan_compaction(NOW.plus_ms(1000), Offset(1)).unwrap().is_none(), "undecided");
    let _ = compact_at(&mut log, NOW.plus_ms(1000), 1 << 20);
    append(&mut log, &keyed("a", Some("3"), 1000));
    seal(&mut log, 1000);
    sync(&mut log);
    assert!(plan(&log, NOW.plus_ms(5000)).is_none(), "too little of it is dirty");
    assert!(plan(&log, NOW.plus_ms(6001)).is_some(), "it is too old to wait");
    let mut config = place.config.clone();
    config.cleanup.compact = false;
    log.set_config(config.into());
    assert!(plan(&log, NOW.plus_ms(9999)).is_none());
}

#[test]
fn a_log_that_changed_meanwhile_is_left_alone() {
    let place = place();
    let mut log = place.open_unclean(Offset(0));
    for n in 0..100 {
        append(&mut log, &keyed("a", Some("v"), n));
    }
    sync(&mut log);
    let compaction = plan(&log, NOW).unwrap().run(1 << 20, KEY, &mut |_| true).unwrap().unwrap();
    log.truncate_to(Offset(50)).unwrap();
    let bytes = read_all(&log, Offset(0), 1 << 20);
    let done = log.finish_compaction(compaction).unwrap();
    assert_eq!((done.freed_bytes, done.deleted.len()), (0, 0));
    assert!(read_all(&log, Offset(0), 1 << 20) == bytes);
    assert!(!place.names().iter().any(|name| name.ends_with(".cleaned")));
    assert!(plan(&log, NOW).unwrap().run(1 << 20, KEY, &mut |_| false).unwrap().is_none());
}

#[test]
fn segments_that_are_deleted_under_a_plan_are_known_as_such() {
    let place = place();
    let mut log = place.open_unclean(Offset(0));
    for n in 0..100 {
        append(&mut log, &keyed("a", Some("v"), n));
    }
    sync(&mut log);
    let plan = plan(&log, NOW).unwrap();
    assert!(log.still_has(&plan));
    log.delete_records_before(Offset(50)).unwrap();
    log.retain(NOW, log.log_end_offset()).unwrap();
    assert!(!log.still_has(&plan));
}

/// A topic is deleted while it is compacted, and made again under its name: both write into a folder of one name.
#[test]
fn two_compactions_in_folders_of_one_name_do_not_meet() {
    let place = place();
    let fill = |log: &mut Log, value: &str| {
        (0..100).for_each(|n| drop(append(log, &keyed("a", Some(value), n))));
        seal(log, 100);
        sync(log);
    };
    let mut before = place.open_unclean(Offset(0));
    fill(&mut before, "of the one before");
    let old = plan(&before, NOW).unwrap();
    std::fs::rename(place.dir(), place.dir().with_file_name("aside-delete")).unwrap();
    let mut log = place.open_unclean(Offset(0));
    fill(&mut log, "of this one");
    let new = plan(&log, NOW).unwrap().run(1 << 20, [3, 4], &mut |_| true).unwrap().unwrap();
    // The old one has its files open, and writes by name.
    drop(old.run(1 << 20, KEY, &mut |_| true).unwrap());
    let _replaced = log.finish_compaction(new).unwrap();
    assert!(kept(&log).iter().all(|(_, _, value)| value.as_deref() == Some("of this one")));
    assert_eq!(kept(&log).len(), 1);
}

/// A marker that ends a transaction: a control record with the coordinator's epoch.
fn marker(producer: i64, commits: bool, time: i64) -> Batch {
    let key = vec![0, 0, 0, commits as u8];
    let value = vec![0, 0, 0, 0, 0, 3];
    Batch::records(vec![(NOW.plus_ms(time), Some(key), Some(value))])
        .producer(producer, 0, -1)
        .flags(0x30)
}

#[test]
fn aborted_records_neither_stay_nor_outdate_others() {
    let place = place();
    let mut log = place.open_unclean(Offset(0));
    append(&mut log, &keyed("a", Some("committed"), 0).producer(1, 0, 0).flags(0x10));
    append(&mut log, &marker(1, true, 1));
    append(&mut log, &keyed("a", Some("aborted"), 2).producer(1, 0, 1).flags(0x10));
    append(&mut log, &keyed("b", Some("aborted"), 2).producer(1, 0, 2).flags(0x10));
    assert_eq!(log.last_stable_offset(Offset(4)), Offset(2), "a transaction is open");
    append(&mut log, &marker(1, false, 3));
    assert_eq!(log.last_stable_offset(Offset(4)), Offset(2), "its end is not replicated");
    assert_eq!(log.last_stable_offset(Offset(5)), Offset(5));
    append(&mut log, &keyed("b", Some("committed"), 4).producer(1, 0, 3).flags(0x10));
    append(&mut log, &marker(1, true, 5));
    seal(&mut log, 6);
    assert_eq!(log.aborted_transactions(Offset(0), Offset(9)).unwrap().len(), 1);
    let _ = compact(&mut log);
    let records: Vec<_> = log_records(&log);
    assert_eq!(records, [(0, "a=committed".to_owned()), (5, "b=committed".to_owned())]);
    assert!(log.aborted_transactions(Offset(0), Offset(9)).unwrap().is_empty());
    assert_eq!(markers(&log), [1, 4, 6], "the aborting one goes when its horizon has passed");
    let day = NOW.plus_ms(place.config.delete_retention_ms);
    seal(&mut log, 7);
    let _ = compact_at(&mut log, NOW, 1 << 20);
    seal(&mut log, 8);
    let _ = compact_at(&mut log, day, 1 << 20);
    assert_eq!(markers(&log), [1, 6]);
    assert_eq!(log_records(&log), records);
    drop(log);
    let log = place.open_unclean(Offset(0));
    assert_eq!(log.last_stable_offset(log.log_end_offset()), log.log_end_offset());
}

fn log_records(log: &Log) -> Vec<(i64, String)> {
    let bytes = read_all(log, Offset(0), 1 << 20);
    let data = Batches::new(&bytes).map(|b| b.unwrap()).filter(|(h, _)| !h.is_control());
    let mut found = Vec::new();
    for (header, batch) in data {
        for record in
            model::record::Records::new(&batch[model::batch::HEADER_BYTES..], header.record_count)
        {
            let record = record.unwrap();
            let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap().to_vec()).unwrap();
            if record.key != Some(b"seal") {
                let offset = header.base_offset.0 + record.offset_delta as i64;
                found.push((offset, format!("{}={}", text(record.key), text(record.value))));
            }
        }
    }
    found
}

fn markers(log: &Log) -> Vec<i64> {
    let bytes = read_all(log, Offset(0), 1 << 20);
    Batches::new(&bytes)
        .map(|b| b.unwrap().0)
        .filter(|header| header.is_control() && header.record_count > 0)
        .map(|header| header.base_offset.0)
        .collect()
}
