//! Batches that the Java client wrote (`testdata/GoldenBatches.java`).

use std::path::Path;

use compression::{Compression, compress, records};
use model::Timestamp;
use model::batch::{BatchHeader, HEADER_BYTES};
use model::record::BatchBuilder;

use crate::sample::CODECS;

const COUNT: usize = 200;
const CAP_BYTES: usize = 1 << 20;

fn golden(codec: Compression) -> Vec<u8> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    std::fs::read(dir.join(format!("{}.batch", codec.name()))).unwrap()
}

fn key(i: usize) -> Option<Vec<u8>> {
    (!i.is_multiple_of(7)).then(|| format!("key-{i}").into_bytes())
}

fn value(i: usize) -> Option<Vec<u8>> {
    (!i.is_multiple_of(11)).then(|| format!("value-{i};").repeat(40 + i % 13).into_bytes())
}

fn assert_records(batch: &[u8], codec: Compression) {
    let header = BatchHeader::decode_checked(batch).unwrap();
    assert_eq!(header.compression(), codec);
    let mut buffer = Vec::new();
    let mut found = 0;
    for record in records::read(&header, batch, CAP_BYTES, &mut buffer).unwrap() {
        let record = record.unwrap();
        assert_eq!(record.key, key(found).as_deref(), "{codec:?} {found}");
        assert_eq!(record.value, value(found).as_deref(), "{codec:?} {found}");
        assert_eq!((record.offset_delta, record.timestamp_delta), (found as i32, found as i64));
        found += 1;
    }
    assert_eq!(found, COUNT);
}

#[test]
fn batches_of_the_java_client_are_read() {
    for codec in CODECS {
        assert_records(&golden(codec), codec);
    }
}

#[test]
fn uncompressed_records_have_the_bytes_of_the_java_client() {
    let ours = our_batch(Compression::None);
    let theirs = golden(Compression::None);
    assert!(ours[HEADER_BYTES..] == theirs[HEADER_BYTES..]);
}

#[test]
fn our_batches_are_read() {
    for codec in CODECS {
        let batch = our_batch(codec);
        assert_records(&batch, codec);
        // GoldenBatches.java reads them from there: our bytes, their decoder.
        if let Some(dir) = std::env::var_os("WRITE_BATCHES_TO") {
            let name = format!("{}.batch", codec.name());
            std::fs::write(Path::new(&dir).join(name), &batch).unwrap();
        }
    }
}

fn our_batch(codec: Compression) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for i in 0..COUNT {
        let at = Timestamp(1_700_000_000_000 + i as i64);
        builder.add(at, key(i).as_deref(), value(i).as_deref());
    }
    if codec == Compression::None {
        return builder.finish();
    }
    let mut compressed = Vec::new();
    compress(codec, None, builder.records(), &mut compressed);
    builder.finish_compressed(codec, &compressed)
}
