//! A log directory's journal: no bytes panic, reserve much memory or are believed to be something else when
//! they are written and read again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use storage::journal::{State, decode};

fuzz_target!(|input: &[u8]| {
    let mut state = State::default();
    if state.decode_entries(input).is_ok() {
        let mut again = State::default();
        again.decode_entries(&state.encode_entries()).expect("what was written can be read");
        assert_eq!(state.partitions, again.partitions);
    }
    let half = input.len() / 2;
    // Checksums let nothing through: these are the heads, the lengths and the search behind damage.
    let _either = decode(&input[..half], &input[half..]);
});
