//! Batches whose records cannot be read cost look-ups by time and compaction these records, and no more.

use model::batch::Batches;
use model::record::BatchBuilder;
use model::{BatchHeader, Compression, LeaderEpoch, Offset, Timestamp};
use storage::{CleanupPolicy, Log};

use crate::fixture::*;

/// The first segment's file.
const FIRST: &str = "00000000000000000000.log";

/// A batch of one record, as the log would have it at `offset`.
fn keyed(offset: i64, key: &str, value: &str) -> Vec<u8> {
    let mut builder = BatchBuilder::new().placed(Offset(offset), LeaderEpoch(0));
    builder.add(NOW.plus_ms(offset), Some(key.as_bytes()), Some(value.as_bytes()));
    builder.finish()
}

/// A batch that says to hold two records, of which `payload` is what the codec made.
fn compressed(offset: i64, codec: Compression, payload: &[u8]) -> Vec<u8> {
    let mut builder = BatchBuilder::new().placed(Offset(offset), LeaderEpoch(0));
    for _ in 0..2 {
        builder.add(NOW.plus_ms(offset), Some(b"a"), Some(b"hidden"));
    }
    builder.finish_compressed(codec, payload)
}

fn place() -> Place {
    let mut place = Place::small();
    place.config.cleanup = CleanupPolicy { delete: false, compact: true };
    place.config.min_cleanable_dirty_ratio = 0.0;
    place
}

fn seal(log: &mut Log) {
    let active = log.active_base_offset();
    while log.active_base_offset() == active {
        let offset = log.log_end_offset().0;
        append_bytes(log, &keyed(offset, "seal", &"x".repeat(300)));
    }
    sync(log);
}

fn compact(log: &mut Log) -> u64 {
    let plan = log.plan_compaction(NOW, log.log_end_offset()).unwrap().expect("something is dirty");
    let compaction = plan.run(1 << 20, [7, 11], &mut |_| true).unwrap().unwrap();
    let unreadable = compaction.tally.batches_unreadable;
    let _ = log.finish_compaction(compaction).unwrap();
    unreadable
}

/// The batches of the first segment's file with their offsets, those that only seal it left out.
fn batches(place: &Place) -> Vec<(i64, Vec<u8>)> {
    let bytes = std::fs::read(place.path(FIRST)).unwrap();
    Batches::new(&bytes)
        .map(|found| found.unwrap())
        .filter(|(header, _)| header.size_bytes < 300)
        .map(|(header, batch)| (header.base_offset.0, batch.to_vec()))
        .collect()
}

fn first_at(log: &Log, time: i64) -> Option<i64> {
    let found = log.find_by_timestamp(NOW.plus_ms(time), log.log_end_offset()).unwrap();
    found.map(|found| found.offset.0)
}

#[test]
fn what_a_codec_did_not_write_costs_its_batch_only() {
    let mut two = BatchBuilder::new();
    two.add(NOW, Some(b"a"), Some(b"1"));
    let mut one_of_two = Vec::new();
    compression::compress(Compression::Zstd, None, two.records(), &mut one_of_two);
    for (what, codec, payload) in [
        ("garbage", Compression::Gzip, &b"garbage"[..]),
        ("nothing", Compression::Lz4, b""),
        ("fewer records than promised", Compression::Zstd, &one_of_two),
        ("a cut block", Compression::Snappy, b"\x20\x0cabc"),
    ] {
        let place = place();
        let mut log = place.open_unclean(Offset(0));
        append_bytes(&mut log, &keyed(0, "a", "first"));
        append_bytes(&mut log, &keyed(1, "b", "first"));
        let bad = compressed(2, codec, payload);
        append_bytes(&mut log, &bad);
        append_bytes(&mut log, &keyed(4, "b", "last"));
        seal(&mut log);
        // Behind the bad batch and in front of it times are found; the batch itself is passed over.
        assert_eq!(first_at(&log, 1), Some(1), "{what}");
        assert_eq!(log.take_unreadable(), None, "{what}: nothing was met yet");
        let found = first_at(&log, 3);
        assert_eq!(found, Some(4), "{what}");
        assert!(first_at(&log, 2).is_some(), "{what}");
        let newest = log.find_max_timestamp(Offset(5)).unwrap().unwrap();
        assert_eq!(newest.offset, Offset(4), "{what}");
        // Below offset 4 it is the newest batch by its header, so this search reads all of it.
        let newest = log.find_max_timestamp(Offset(4)).unwrap().unwrap();
        assert!(newest.offset == Offset(1) || newest.offset == Offset(2), "{what}: {newest:?}");
        let (_, met) = log.take_unreadable().expect("the bad batch was met");
        assert_eq!(met.offset, Offset(2), "{what}");
        assert!(met.path.ends_with(FIRST) && met.position > 0, "{met:?}");

        assert_eq!(compact(&mut log), 1, "{what}");
        let left = batches(&place);
        assert!(left.contains(&(2, bad.clone())), "{what}: it stays as it is");
        assert!(left.contains(&(4, keyed(4, "b", "last"))), "{what}");
        assert!(!left.iter().any(|(offset, _)| *offset == 1), "{what}: the others are compacted");
        assert!(log.take_unreadable().is_some(), "{what}");
        // The next round meets it again and ends as well.
        let offset = log.log_end_offset().0;
        append_bytes(&mut log, &keyed(offset, "b", "newer"));
        seal(&mut log);
        assert_eq!(compact(&mut log), 1, "{what}");
        assert!(!batches(&place).iter().any(|(offset, _)| *offset == 4), "{what}");
    }
}

#[test]
fn a_bit_that_flipped_on_the_device_costs_its_batch_only() {
    let place = place();
    let mut log = place.open_unclean(Offset(0));
    for offset in 0..6 {
        let key = if offset < 3 { "a" } else { "b" };
        append_bytes(&mut log, &keyed(offset, key, "value"));
    }
    seal(&mut log);
    let size = keyed(0, "a", "value").len();
    let path = place.path(FIRST);
    let mut bytes = std::fs::read(&path).unwrap();
    // Within the record of the batch at offset 2, the last of its key.
    bytes[3 * size - 3] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let damaged = bytes[2 * size..3 * size].to_vec();
    assert!(BatchHeader::decode_checked(&damaged).is_err());

    assert_eq!(first_at(&log, 3), Some(3));
    assert_eq!(first_at(&log, 2), Some(3), "nothing of the batch is believed");
    let (count, met) = log.take_unreadable().unwrap();
    assert_eq!((count, met.offset, met.position), (1, Offset(2), 2 * size as u64));
    assert_eq!(compact(&mut log), 1);
    let left: Vec<_> = batches(&place).into_iter().map(|(offset, _)| offset).collect();
    assert_eq!(left, [1, 2, 5], "what the damaged batch replaced is kept");
    assert_eq!(batches(&place)[1].1, damaged, "as it is, for whoever can repair it");
}

#[test]
fn what_expands_a_thousandfold_is_looked_up_and_compacted() {
    let mut place = place();
    place.config.segment_bytes = 1 << 20;
    let mut log = place.open_unclean(Offset(0));
    let zeros = vec![0; 80_000_000];
    for codec in [Compression::Zstd, Compression::Gzip] {
        let offset = log.log_end_offset();
        let mut builder = BatchBuilder::new().placed(offset, LeaderEpoch(0));
        builder.add(Timestamp(1), Some(b"old"), Some(&zeros));
        builder.add(Timestamp(2), Some(b"kept"), Some(b"small"));
        let mut payload = Vec::new();
        compression::compress(codec, None, builder.records(), &mut payload);
        append_bytes(&mut log, &builder.finish_compressed(codec, &payload));
        let found = log.find_max_timestamp(log.log_end_offset()).unwrap().unwrap();
        assert_eq!((found.offset, found.timestamp), (Offset(1), Timestamp(2)));
    }
    assert_eq!(log.find_by_timestamp(Timestamp(2), Offset(4)).unwrap().unwrap().offset, Offset(1));
    while log.segment_count() < 2 {
        let offset = log.log_end_offset().0;
        append_bytes(&mut log, &keyed(offset, "seal", &"x".repeat(60_000)));
    }
    sync(&mut log);
    assert_eq!(compact(&mut log), 0);
    let bytes = read_all(&log, Offset(0), 1 << 20);
    let (header, _) = Batches::new(&bytes).next().unwrap().unwrap();
    assert_eq!((header.base_offset, header.record_count), (Offset(2), 2));
    assert_eq!(log.take_unreadable(), None);
}
