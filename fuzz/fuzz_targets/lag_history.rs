//! A day of lag out of a file: no bytes panic, and whatever is believed can be used, written, and read again. The checksum is
//! made right, so that what is behind it is reached.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serving::lag::history::{BYTES, COARSE_SLOTS, FINE_SLOTS, History, Lag};

fuzz_target!(|input: &[u8]| {
    let _ = History::from_bytes(input);
    let mut bytes = History::default().to_bytes();
    let body = BYTES - 4;
    let some = input.len().min(body - 5);
    bytes[5..5 + some].copy_from_slice(&input[..some]);
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes[..body]) as u32;
    bytes[body..].copy_from_slice(&sum.to_le_bytes());
    let mut history = History::from_bytes(&bytes).expect("the kind, the length and the checksum are right");
    assert!(history.hour().count() <= FINE_SLOTS && history.day().count() <= COARSE_SLOTS);
    for chunk in input.chunks_exact(16) {
        let at_ms = i64::from_le_bytes(chunk[..8].try_into().expect("eight bytes"));
        let records = u64::from_le_bytes(chunk[8..].try_into().expect("eight bytes"));
        history.note(at_ms, Lag { records, ms: records });
    }
    assert!(history.hour().count() <= FINE_SLOTS && history.day().count() <= COARSE_SLOTS);
    assert_eq!(History::from_bytes(&history.to_bytes()), Ok(history));
});
