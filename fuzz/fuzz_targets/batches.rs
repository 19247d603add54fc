//! Record batches: no bytes panic, neither as batches nor as the records of one.

#![no_main]

use libfuzzer_sys::fuzz_target;
use model::batch::{Batches, HEADER_BYTES};
use model::record::Records;

fuzz_target!(|input: &[u8]| {
    for (header, batch) in Batches::new(input).map_while(Result::ok) {
        assert_eq!(header.size_bytes as usize, batch.len());
        for record in Records::new(&batch[HEADER_BYTES..], header.record_count).flatten() {
            assert_eq!(record.headers().count(), record.header_count() as usize);
        }
    }
});
