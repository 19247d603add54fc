//! Bodies of requests to produce: no bytes panic or take much memory (the runner watches it), a request has a bounded number of
//! records, and what stands in them as JSON is JSON without blanks. The first byte says in which form the others are.

#![no_main]

use gateway::request::draft::RECORDS_MAX;
use gateway::request::wanted::Reading;
use gateway::request::{Embedded, Lines, compact};
use libfuzzer_sys::fuzz_target;
use serde_json::value::RawValue;

fuzz_target!(|input: &[u8]| {
    let Some((form, body)) = input.split_first() else { return };
    let embedded = [Embedded::Json, Embedded::Binary, Embedded::Text][usize::from(form % 3)];
    let reading = match form / 3 % 3 {
        0 => Reading::Records(embedded),
        1 => Reading::Lines(Lines::Records(embedded)),
        _ => Reading::Lines(Lines::Values),
    };
    let Ok(drafts) = reading.drafts(body) else { return };
    assert!((1..=RECORDS_MAX).contains(&drafts.len()));
    let is_json = embedded == Embedded::Json && reading != Reading::Lines(Lines::Values);
    for bytes in drafts.iter().flat_map(|draft| [&draft.key, &draft.value]).flatten().filter(|_| is_json) {
        let json: &RawValue = serde_json::from_slice(bytes).expect("a value of a record is JSON");
        assert_eq!(compact(json.get()), *bytes, "blanks go at once");
    }
});
