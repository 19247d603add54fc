//! Segments that cannot be read to their end while an answer is made of them: their partition is answered an error, the others are
//! served, and the connection goes on where nothing was promised.

use std::fs::{self, OpenOptions};
use std::path::PathBuf;

use model::ErrorCode;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;
use wire::fetch::PartitionData;

use crate::fixture::*;

/// The epoch of a request that wants a session.
const SESSION_INITIAL: i32 = 0;

/// The first segment of a topic's only partition.
fn segment(broker: &Broker, topic: &str) -> PathBuf {
    broker.path().join(format!("{topic}-0/00000000000000000000.log"))
}

/// Takes some bytes off the end of a segment, behind the broker's back.
fn shorten(broker: &Broker, topic: &str) {
    let file = OpenOptions::new().write(true).open(segment(broker, topic)).unwrap();
    file.set_len(file.metadata().unwrap().len() - 10).unwrap();
}

/// A broker with a topic of which the only batch lacks its end, and another one that is whole.
async fn one_short_of_two(value: &str) -> (Broker, Conn) {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    for topic in ["short", "whole"] {
        conn.create_topic(topic, &[]).await;
        conn.append(topic, batch(&[value])).await;
        assert_eq!(conn.end_offset(topic).await, 1);
    }
    shorten(&broker, "short");
    (broker, conn)
}

/// A fetch of both topics without a session.
fn fetch_both() -> wire::FetchRequest {
    let mut request = fetch_request("short", 0);
    request.topics.extend(fetch_request("whole", 0).topics);
    request
}

/// What an answer says of a topic's only partition, if anything.
fn of<'a>(answer: &'a wire::FetchResponse, topic: &str) -> Option<&'a PartitionData> {
    let found = answer.responses.iter().find(|found| found.topic == topic)?;
    Some(&found.partitions[0])
}

fn assert_only_the_short_one_failed(answer: &wire::FetchResponse, value: &str) {
    assert_eq!(answer.error(), ErrorCode::None);
    let short = of(answer, "short").unwrap();
    assert_eq!(short.error(), ErrorCode::KafkaStorageError);
    assert!(short.records.as_ref().is_none_or(|records| records.is_empty()));
    let whole = of(answer, "whole").unwrap();
    assert_eq!(whole.error(), ErrorCode::None);
    assert_eq!(values(whole), [(0, value.to_owned())]);
}

#[tokio::test]
async fn a_range_that_cannot_be_read_costs_its_partition_an_error_and_nothing_else() {
    let (broker, mut conn) = one_short_of_two("a record").await;
    for _ in 0..2 {
        let answer = conn.call(&fetch_both(), FETCH).await;
        assert_only_the_short_one_failed(&answer, "a record");
    }
    assert_eq!(conn.append("short", batch(&["another one"])).await, 1, "the connection goes on");
    broker.stop().await;
}

#[tokio::test]
async fn a_session_is_told_when_a_range_can_be_read_again() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    for topic in ["short", "whole"] {
        conn.create_topic(topic, &[]).await;
        conn.append(topic, batch(&["a record"])).await;
        assert_eq!(conn.end_offset(topic).await, 1);
    }
    let bytes = fs::read(segment(&broker, "short")).unwrap();
    shorten(&broker, "short");
    let first = wire::FetchRequest { session_epoch: SESSION_INITIAL, ..fetch_both() };
    let answer = conn.call(&first, FETCH).await;
    assert_only_the_short_one_failed(&answer, "a record");
    assert_ne!(answer.session_id, 0);
    let next = |epoch| wire::FetchRequest {
        session_id: answer.session_id,
        session_epoch: epoch,
        topics: Vec::new(),
        ..fetch_both()
    };
    let again = conn.call(&next(1), FETCH).await;
    assert_eq!(of(&again, "short").unwrap().error(), ErrorCode::KafkaStorageError);
    fs::write(segment(&broker, "short"), bytes).unwrap();
    let healed = conn.call(&next(2), FETCH).await;
    assert_eq!(values(of(&healed, "short").unwrap()), [(0, "a record".to_owned())]);
    broker.stop().await;
}

#[tokio::test]
async fn a_large_range_that_cannot_be_sent_ends_one_connection_and_no_other() {
    let value = "x".repeat(100_000);
    let (broker, mut conn) = one_short_of_two(&value).await;
    conn.send(&fetch_both(), FETCH).await;
    // The header has promised all of it.
    let mut bytes = Vec::new();
    let _ = timeout(PATIENCE, conn.stream.read_to_end(&mut bytes)).await.expect("it is closed");
    let promised = i32::from_be_bytes(bytes[..4].try_into().unwrap());
    assert!(bytes.len() - 4 < promised as usize, "{} of {promised}", bytes.len() - 4);
    let mut conn = broker.connect().await;
    for _ in 0..2 {
        let answer = conn.call(&fetch_both(), FETCH).await;
        assert_only_the_short_one_failed(&answer, &value);
    }
    broker.stop().await;
}
