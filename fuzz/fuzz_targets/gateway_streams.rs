//! Records one behind the other, in version 3 of a REST proxy: however the bytes are cut into parts, the same objects are
//! found in them; what is read of an object is what its answer says. The first byte says how the others are cut.

#![no_main]

use gateway::request::v3::{Splitter, record, records};
use libfuzzer_sys::fuzz_target;

/// Where the objects are that are found in parts of this length, and whether the rest makes no sense.
fn found(bytes: &[u8], part_bytes: usize) -> (Vec<(usize, usize)>, bool) {
    let (mut splitter, mut objects, mut at, mut end) = (Splitter::default(), Vec::new(), 0, 0);
    while end < bytes.len() {
        end = (end + part_bytes).min(bytes.len());
        loop {
            match splitter.next(&bytes[at..end]) {
                Ok(Some(object)) => {
                    objects.push((at + object.start, at + object.end));
                    at += object.end;
                }
                Ok(None) => break,
                Err(_) => return (objects, true),
            }
        }
    }
    (objects, splitter.is_within())
}

fuzz_target!(|input: &[u8]| {
    let Some((part_bytes, body)) = input.split_first() else { return };
    let whole = found(body, body.len().max(1));
    assert_eq!(whole, found(body, usize::from(*part_bytes).max(1)));
    let (objects, is_broken) = whole;
    let mut count = 0;
    for (start, end) in &objects {
        let object = &body[*start..*end];
        assert!(object.starts_with(b"{"));
        let Ok(read) = record(object) else { break };
        let length = |part: &Option<std::borrow::Cow<'_, [u8]>>| part.as_ref().map(|part| part.len());
        assert_eq!(read.described.key.map(|(_, size)| size), length(&read.draft.key));
        assert_eq!(read.described.value.map(|(_, size)| size), length(&read.draft.value));
        assert_eq!(read.described.timestamp_ms, read.draft.timestamp_ms);
        count += 1;
    }
    match records(body) {
        Ok(all) => assert!(!is_broken && all.len() == objects.len() && count == all.len()),
        Err(_) => assert!(is_broken || count < objects.len() || objects.is_empty() || objects.len() > 20_000),
    }
});
