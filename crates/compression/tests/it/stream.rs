//! Records read one at a time: the same as read from the whole batch, in little memory, and nothing
//! that the header does not promise.

use compression::records::{RecordHead, RecordStream, RecordsError};
use compression::{Compression, DecompressError, compress};
use model::record::{BatchBuilder, Record, Records};
use model::{BatchError, BatchHeader, Timestamp};
use proptest::prelude::*;

use crate::sample::{CODECS, noise, text};

fn batch_of(codec: Compression, payload: &[u8], count: i32) -> Vec<u8> {
    let mut compressed = Vec::new();
    compress(codec, None, payload, &mut compressed);
    let mut batch = BatchBuilder::new().finish_compressed(codec, &compressed);
    let header = BatchHeader {
        record_count: count,
        last_offset_delta: (count - 1).max(0),
        ..BatchHeader::decode(&batch).unwrap()
    };
    header.encode(&mut batch);
    batch
}

fn head_of(record: &Record<'_>) -> RecordHead {
    RecordHead {
        timestamp_delta: record.timestamp_delta,
        offset_delta: record.offset_delta,
        has_key: record.key.is_some(),
        has_value: record.value.is_some(),
    }
}

type Read = Result<Vec<(RecordHead, Option<Vec<u8>>)>, RecordsError>;

fn heads(batch: &[u8]) -> Result<Vec<RecordHead>, RecordsError> {
    let header = BatchHeader::decode(batch).unwrap();
    let mut buffer = Vec::new();
    let mut stream = RecordStream::new(&header, batch, u64::MAX, &mut buffer);
    let mut all = Vec::new();
    while let Some(head) = stream.next_head() {
        all.push(head?);
    }
    stream.finish()?;
    Ok(all)
}

fn keys(batch: &[u8]) -> Read {
    let header = BatchHeader::decode(batch).unwrap();
    let mut buffer = Vec::new();
    let mut stream = RecordStream::new(&header, batch, u64::MAX, &mut buffer);
    let mut all = Vec::new();
    while let Some(read) = stream.next_key() {
        let (head, key) = read?;
        all.push((head, key.map(<[u8]>::to_vec)));
    }
    stream.finish()?;
    Ok(all)
}

fn whole(batch: &[u8]) -> Read {
    let header = BatchHeader::decode(batch).unwrap();
    let mut buffer = Vec::new();
    let mut stream = RecordStream::new(&header, batch, u64::MAX, &mut buffer);
    let mut all = Vec::new();
    while let Some(read) = stream.next_whole() {
        let (record, bytes) = read?;
        let again = Records::new(bytes, 1).next().unwrap().unwrap();
        assert_eq!(again, record, "the encoded bytes are the record's");
        all.push((head_of(&record), record.key.map(<[u8]>::to_vec)));
    }
    stream.finish()?;
    Ok(all)
}

fn expected(payload: &[u8], count: i32) -> Read {
    let mut records = Records::new(payload, count);
    let mut all = Vec::new();
    for record in records.by_ref() {
        let record = record?;
        all.push((head_of(&record), record.key.map(<[u8]>::to_vec)));
    }
    if records.remaining_bytes() > 0 {
        return Err(RecordsError::Trailing);
    }
    Ok(all)
}

fn assert_same(codecs: &[Compression], payload: &[u8], count: i32) {
    let wanted = expected(payload, count);
    for codec in codecs.iter().copied() {
        let batch = batch_of(codec, payload, count);
        let only_heads = wanted.clone().map(|all| all.into_iter().map(|(head, _)| head).collect());
        // Where a record is cut or says another length than its fields, wording may differ.
        let agree = |a: &Result<_, RecordsError>, b: &Result<_, RecordsError>| match (a, b) {
            (Err(RecordsError::Batch(a)), Err(RecordsError::Batch(b))) => {
                matches!((a, b), (BatchError::Record { index: x, .. }, BatchError::Record { index: y, .. }) if x == y)
            }
            _ => a == b,
        };
        let found = keys(&batch);
        assert!(agree(&found, &wanted), "{codec:?} keys: {found:?}, not {wanted:?}");
        let found = whole(&batch);
        assert!(agree(&found, &wanted), "{codec:?} whole: {found:?}, not {wanted:?}");
        let found = heads(&batch).map(|all| all.into_iter().map(|h| (h, None)).collect());
        let only_heads: Result<Vec<RecordHead>, _> = only_heads;
        let only_heads = only_heads.map(|all| all.into_iter().map(|h| (h, None)).collect());
        assert!(agree(&found, &only_heads), "{codec:?} heads: {found:?}");
    }
}

/// Records below, at and above the window of 64 KiB, with large keys, values and headers.
fn large_and_small() -> BatchBuilder {
    let mut builder = BatchBuilder::new();
    let big = noise(100_000);
    let near = text((64 << 10) - 20);
    builder.add(Timestamp(1), Some(b"k"), Some(b"v"));
    builder.add(Timestamp(2), Some(&big), Some(b"v"));
    builder.add(Timestamp(3), Some(b"k"), Some(&big));
    builder.add(Timestamp(4), None, Some(&near));
    builder.add(Timestamp(5), Some(&near), None);
    builder.add_with_headers(Timestamp(6), None, None, &[("h", Some(&big)), ("n", None)]);
    builder.add_with_headers(Timestamp(7), Some(b""), Some(b""), &[("", Some(b""))]);
    for size in [(64 << 10) - 13, (64 << 10) - 12, (64 << 10) - 11, 64 << 10] {
        builder.add(Timestamp(8), Some(b"edge"), Some(&big[..size]));
    }
    builder
}

#[test]
fn records_are_the_same_as_those_of_the_whole_batch() {
    let builder = large_and_small();
    assert_same(&CODECS, builder.records(), builder.record_count());
    assert_same(&CODECS, &[], 0);
}

#[test]
fn a_count_that_is_too_small_or_too_large_is_noticed() {
    let builder = large_and_small();
    let count = builder.record_count();
    for codec in CODECS {
        let less = batch_of(codec, builder.records(), count - 1);
        assert_eq!(heads(&less), Err(RecordsError::Trailing), "{codec:?}");
        for more in [count + 1, i32::MAX] {
            let found = heads(&batch_of(codec, builder.records(), more));
            assert!(
                matches!(found, Err(RecordsError::Batch(BatchError::Record { index, .. })) if index == count),
                "{codec:?}: {found:?}"
            );
        }
    }
}

#[test]
fn cut_and_damaged_records_are_refused_as_from_the_whole_batch() {
    let builder = large_and_small();
    let payload = builder.records();
    for at in [1, 5, 40, 70_000, 100_050, 250_000, payload.len() - 1] {
        assert_same(&CODECS[..1], &payload[..at], builder.record_count());
        let mut damaged = payload.to_vec();
        for byte in [0, 0x7f, 0xff] {
            damaged[at] = byte;
            assert_same(&CODECS[..1], &damaged, builder.record_count());
        }
    }
}

#[test]
fn the_bound_counts_what_was_decompressed() {
    let zeros = vec![0; 40 << 20];
    let mut builder = BatchBuilder::new();
    builder.add(Timestamp(1), Some(b"k"), Some(&zeros));
    let size = builder.records().len() as u64;
    for codec in [Compression::Gzip, Compression::Lz4, Compression::Zstd] {
        let batch = batch_of(codec, builder.records(), 1);
        let header = BatchHeader::decode(&batch).unwrap();
        let mut buffer = Vec::new();
        let mut walk = |bytes_max| {
            let mut stream = RecordStream::new(&header, &batch, bytes_max, &mut buffer);
            stream.next_head().unwrap()?;
            stream.finish()
        };
        assert_eq!(walk(size), Ok(()), "{codec:?}: the bound itself is allowed");
        let bomb = DecompressError::Bomb { cap_bytes: size as usize - 1 };
        assert_eq!(walk(size - 1), Err(bomb.into()), "{codec:?}");
        assert_eq!(buffer.len(), 64 << 10, "{codec:?}: memory does not follow the record");
    }
}

#[test]
fn a_record_that_is_too_large_to_be_kept_whole_is_refused_before_it_is() {
    let mut builder = BatchBuilder::new();
    builder.add(Timestamp(1), None, Some(&[0; 1000]));
    builder.add(Timestamp(1), None, Some(&vec![0; 40 << 20]));
    let batch = batch_of(Compression::Zstd, builder.records(), 2);
    let header = BatchHeader::decode(&batch).unwrap();
    let mut buffer = Vec::new();
    let mut stream = RecordStream::new(&header, &batch, u64::MAX, &mut buffer);
    assert_eq!(stream.next_within(1 << 20).unwrap().unwrap().0.value, Some(&[0; 1000][..]));
    let refused = stream.next_within(1 << 20).unwrap().unwrap_err();
    assert!(matches!(refused, RecordsError::Large { bytes_max: 1048576, .. }), "{refused}");
    assert!(stream.next_within(1 << 20).is_none(), "an error is the end");
    drop(stream);
    assert_eq!(buffer.len(), 64 << 10, "memory does not follow the record");
}

proptest! {
    #[test]
    fn any_records_with_any_damage_read_alike(
        fields in proptest::collection::vec((0usize..300, any::<bool>(), -9i64..9), 1..12),
        damage in proptest::option::of((any::<prop::sample::Index>(), any::<u8>())),
        count_off in -1i32..2,
    ) {
        let mut builder = BatchBuilder::new();
        for (size, has_key, time) in &fields {
            let bytes = text(size * size);
            let key = has_key.then_some(&bytes[..size.min(&bytes.len()).to_owned()]);
            builder.add(Timestamp(*time), key, Some(&bytes));
        }
        let mut payload = builder.records().to_vec();
        if let Some((at, byte)) = damage {
            let at = at.index(payload.len());
            payload[at] = byte;
        }
        assert_same(&[Compression::None, Compression::Lz4], &payload, (builder.record_count() + count_off).max(0));
    }
}
