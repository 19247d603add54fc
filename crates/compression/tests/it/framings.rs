//! The framings that clients' own libraries write (`testdata/framings.py`), and which of them are
//! taken.

use std::path::Path;

use compression::records::{RecordStream, RecordsError};
use compression::{Compression, DecompressError, decompress, is_portable};
use model::record::BatchBuilder;
use model::{BatchHeader, Timestamp};

const COUNT: i32 = 2000;

fn sample() -> BatchBuilder {
    let mut builder = BatchBuilder::new();
    for index in 0..COUNT {
        let key = format!("key-{}", index % 10);
        let value = format!("line {} of a value that repeats; ", index % 10).repeat(3);
        builder.add(Timestamp(0), Some(key.as_bytes()), Some(value.as_bytes()));
    }
    builder
}

fn framings() -> Vec<(String, Compression, Vec<u8>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/framings");
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let codec = match name.split('-').next().unwrap() {
            "gzip" => Compression::Gzip,
            "snappy" => Compression::Snappy,
            "lz4" => Compression::Lz4,
            "zstd" => Compression::Zstd,
            other => panic!("no codec {other}"),
        };
        all.push((name, codec, std::fs::read(path).unwrap()));
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

/// Walks the records to their end.
fn walk(codec: Compression, framing: &[u8]) -> Result<i32, RecordsError> {
    let batch = sample().finish_compressed(codec, framing);
    let header = BatchHeader::decode_checked(&batch).unwrap();
    let mut buffer = Vec::new();
    let mut stream = RecordStream::new(&header, &batch, u64::MAX, &mut buffer);
    let mut count = 0;
    while let Some(head) = stream.next_head() {
        assert_eq!(head?.offset_delta, count);
        count += 1;
    }
    stream.finish()?;
    Ok(count)
}

#[test]
fn every_framing_of_a_client_is_read_whole_and_in_a_stream() {
    let expected = sample();
    let mut seen = 0;
    for (name, codec, framing) in framings() {
        if name == "lz4-bad-header-checksum" {
            continue;
        }
        let mut out = Vec::new();
        decompress(codec, &framing, 1 << 20, &mut out).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(out == expected.records(), "{name}: other bytes");
        assert_eq!(walk(codec, &framing), Ok(COUNT), "{name}");
        seen += 1;
    }
    assert_eq!(seen, 22, "all files of the folder");
}

#[test]
fn a_header_checksum_as_clients_before_kip_57_wrote_it_is_refused_as_in_kafka() {
    let all = framings();
    let (_, codec, framing) = all.iter().find(|f| f.0 == "lz4-bad-header-checksum").unwrap();
    let error = walk(*codec, framing).unwrap_err();
    assert!(matches!(error, RecordsError::Decompress(DecompressError::Malformed { .. })));
}

#[test]
fn linked_lz4_blocks_are_read_but_not_portable() {
    let odd: Vec<_> = framings()
        .into_iter()
        .filter(|(_, codec, framing)| !is_portable(*codec, framing))
        .map(|(name, ..)| name)
        .collect();
    assert_eq!(odd, ["lz4-linked"]);
}

#[test]
fn a_framing_that_is_cut_is_noticed_at_every_byte() {
    for (name, codec, framing) in framings() {
        // Padding and a name are not the records'; what is cut of padding is nothing.
        let end = if name == "gzip-padded" { framing.len() - 16 } else { framing.len() };
        for cut in (0..end).step_by(97).chain(end - 8..end) {
            // Between two members or frames the rest of the records is missing.
            assert!(walk(codec, &framing[..cut]).is_err(), "{name} cut at {cut} of {end}");
        }
    }
}
