//! Ids and queries of event streams: no text panics, an id that is read leads to places that a log can have, and an id of
//! one partition comes back as it was written.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serving::events::id::{self, Place};
use serving::events::{IdStyle, Passed, Query, ResumeId, TopicHash};

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let parameters = text.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    if let Ok(query) = Query::read(parameters) {
        let headers = [("kind", Some(&b"order"[..])), ("none", None)];
        let _ = query.projection.filter.wants(Some(b"key"), headers.into_iter());
    }
    let Ok(id) = ResumeId::read(text) else { return };
    let Some((Place::Behind(position), topic_hash)) = id.find("t", 0) else { return };
    assert!(position.next() >= 0 && position.leader_epoch >= -1);
    let topic_hash = topic_hash.unwrap_or(TopicHash(0));
    let passed = Passed { topic: "t", topic_hash, partition: 0, position };
    for style in [IdStyle::Short, IdStyle::Json] {
        let mut again = Vec::new();
        id::write(style, std::iter::once(passed), &mut again);
        let again = ResumeId::read(std::str::from_utf8(&again).expect("ids are ASCII")).expect("an id is read");
        assert_eq!(again.find("t", 0), Some((Place::Behind(position), Some(topic_hash))));
    }
});
