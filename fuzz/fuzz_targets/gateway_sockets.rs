//! What clients of WebSockets say: no text panics, an id that is read is written the same, and what a client asks for is
//! bounded.

#![no_main]

use gateway::request::frames::{CONTEXT_BYTES_MAX, Said, produced, said};
use libfuzzer_sys::fuzz_target;
use serving::push::credit::QUEUE_MAX;
use serving::push::query::check_producer;
use serving::push::{ConsumerQuery, MessageId, ReaderQuery, message_id};

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let id = match said(text) {
        Ok(Said::Ack(id) | Said::AckTo(id) | Said::Nack(id)) => Some(id),
        _ => MessageId::read(text).ok(),
    };
    if let Some(id) = id {
        let again = message_id::write(&id.topic, id.partition, id.offset);
        assert_eq!(MessageId::read(&again), Ok(id));
    }
    if let Ok(produced) = produced(text) {
        assert!(produced.context.is_none_or(|context| context.len() <= CONTEXT_BYTES_MAX));
    }
    let pairs = || text.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    if let Ok(query) = ConsumerQuery::read(pairs()) {
        assert!((1..=QUEUE_MAX).contains(&query.queue));
    }
    if let Ok(query) = ReaderQuery::read("t", pairs()) {
        assert!((1..=QUEUE_MAX).contains(&query.queue));
    }
    let _ = check_producer(pairs());
});
