//! Records of any codec, as a producer might send them: no bytes panic, memory stays bounded (the runner
//! watches it), the three ways of reading a stream agree, and whatever is taken with every record looked
//! into is also taken by its header.

#![no_main]

use compression::records::RecordStream;
use libfuzzer_sys::fuzz_target;
use model::record::BatchBuilder;
use model::{BatchHeader, Compression, Timestamp, Validation, batch};
use partition::{Effort, Settings, check};

const NOW: Timestamp = Timestamp(1_700_000_000_000);
/// Small, so that a bomb costs the fuzzer little time.
const EXPANDED_BYTES_MAX: usize = 4 << 20;

fuzz_target!(|input: &[u8]| {
    let Some((control, payload)) = input.split_first_chunk::<4>() else { return };
    let codec = Compression::from_code(i16::from(control[0] % 5)).expect("five codecs");
    let count = i32::from(u16::from_be_bytes([control[1], control[2]]));
    let batch = batch_of(codec, count, control[3], payload);
    read_alike(&batch);
    let settings = |validation| Settings {
        validation,
        expanded_bytes_max: EXPANDED_BYTES_MAX,
        ..Settings::default()
    };
    let taken = |validation| check(&batch, &settings(validation), NOW, Effort::Whole);
    if taken(Validation::Full).is_ok() {
        assert!(taken(Validation::Header).is_ok(), "the header alone takes no less");
    }
    let _ = check(&batch, &settings(Validation::Full), NOW, Effort::Brief);
});

fn batch_of(codec: Compression, count: i32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = BatchBuilder::new().finish_compressed(codec, payload);
    let header = BatchHeader {
        attributes: codec.code() | i16::from(flags & 0xf8),
        record_count: count,
        last_offset_delta: (count - 1).max(0),
        base_timestamp: NOW,
        max_timestamp: NOW,
        ..BatchHeader::decode(&bytes).expect("the builder writes batches")
    };
    header.encode(&mut bytes);
    batch::write_checksum(&mut bytes);
    bytes
}

/// Heads, keys and whole records are read up to the same place.
fn read_alike(batch: &[u8]) {
    let header = BatchHeader::decode(batch).expect("a header");
    let (mut heads, mut keys, mut whole) = (0, 0, 0);
    let (mut a, mut b, mut c) = (Vec::new(), Vec::new(), Vec::new());
    let bytes_max = EXPANDED_BYTES_MAX as u64;
    let mut stream = RecordStream::new(&header, batch, bytes_max, &mut a);
    while let Some(Ok(_)) = stream.next_head() {
        heads += 1;
    }
    let _ = stream.finish();
    let mut stream = RecordStream::new(&header, batch, bytes_max, &mut b);
    while let Some(Ok((head, key))) = stream.next_key() {
        assert_eq!(head.has_key, key.is_some());
        keys += 1;
    }
    let mut stream = RecordStream::new(&header, batch, bytes_max, &mut c);
    while let Some(Ok((record, bytes))) = stream.next_whole() {
        assert!(bytes.len() > record.key.map_or(0, <[u8]>::len));
        whole += 1;
    }
    assert_eq!(heads, keys);
    assert!(whole <= heads, "a whole record needs no less than its head");
}
