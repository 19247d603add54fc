//! Bodies of requests to produce: no bytes panic or take much memory (the runner watches it), a request has a bounded number of
//! records, and what stands in them as JSON is JSON without blanks. Bodies of requests to consumer instances have no number below 0, and
//! a pattern in them matches a name or not whatever is compared beside it. The first byte says in which form the others are.

#![no_main]

use gateway::request::draft::RECORDS_MAX;
use gateway::request::instances::{self, Subscription};
use gateway::request::wanted::Reading;
use gateway::request::{Embedded, Lines, PATTERN_BYTES_MAX, compact};
use libfuzzer_sys::fuzz_target;
use serde_json::value::RawValue;

fuzz_target!(|input: &[u8]| {
    let Some((form, body)) = input.split_first() else { return };
    if *form == u8::MAX {
        of_instances(body);
        return;
    }
    let embedded = [Embedded::Json, Embedded::Binary, Embedded::Text][usize::from(form % 3)];
    let reading = match form / 3 % 5 {
        0 => Reading::Records(embedded),
        1 => Reading::Lines(Lines::Records(embedded)),
        2 => Reading::Lines(Lines::Values),
        3 => Reading::Event,
        _ => Reading::Events,
    };
    let Ok(drafts) = reading.drafts(body) else { return };
    assert!((1..=RECORDS_MAX).contains(&drafts.len()));
    if matches!(reading, Reading::Event | Reading::Events) {
        for draft in &drafts {
            for required in ["ce_id", "ce_source", "ce_specversion", "ce_type"] {
                let found = draft.headers.iter().find(|(name, _)| name == required);
                let (_, value) = found.expect("every event has its attributes");
                assert!(value.as_ref().is_some_and(|value| !value.is_empty()));
            }
        }
        return;
    }
    let is_json = embedded == Embedded::Json && reading != Reading::Lines(Lines::Values);
    for bytes in drafts.iter().flat_map(|draft| [&draft.key, &draft.value]).flatten().filter(|_| is_json) {
        let json: &RawValue = serde_json::from_slice(bytes).expect("a value of a record is JSON");
        assert_eq!(compact(json.get()), *bytes, "blanks go at once");
    }
});

fn of_instances(body: &[u8]) {
    if let Ok(creation) = instances::creation(body) {
        assert!(creation.fetch_bytes_min > 0);
        assert!(creation.name.is_none_or(|name| (1..=instances::NAME_BYTES_MAX).contains(&name.len())));
    }
    match instances::subscription(body) {
        Ok(Subscription::Topics(topics)) => assert!(!topics.is_empty()),
        Ok(Subscription::Pattern(pattern)) => {
            assert!((1..=PATTERN_BYTES_MAX).contains(&pattern.expression().len()));
            let names = ["orders", "orders.eu", "a", "__x", "a-b_c.9"];
            let matched = pattern.matching(names);
            // Each is compared by itself, whatever stands beside it.
            let alone = names.into_iter().filter(|name| !pattern.matching([*name]).is_empty());
            assert!(alone.eq(matched.iter().map(String::as_str)));
        }
        Err(_) => {}
    }
    let partitions = instances::partitions(body).unwrap_or_default();
    assert!(partitions.iter().all(|partition| partition.partition.0 >= 0));
    let places = instances::places(body).ok().flatten().unwrap_or_default();
    assert!(places.iter().all(|place| place.offset.0 >= 0 && place.partition.partition.0 >= 0));
}
