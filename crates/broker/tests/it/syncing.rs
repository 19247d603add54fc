//! When a log is synced: whoever waits for it is not kept waiting by `sync.delay.ms`, which here is
//! longer than any test.

use model::ErrorCode;
use wire::delete_records::{DeleteRecordsPartition, DeleteRecordsTopic};
use wire::list_offsets::{ListOffsetsPartition, ListOffsetsTopic};

use crate::fixture::*;

const NEVER: (&str, &str) = ("sync.delay.ms", "3600000");

/// Produces a batch that nobody waits for, with `acks=1`.
async fn append_unwaited(conn: &mut Conn, topic: &str, values: &[&str]) {
    let answer = conn.call(&produce_request(topic, 1, batch(values)), PRODUCE).await;
    assert_eq!(answer.responses[0].partition_responses[0].error(), ErrorCode::None);
}

async fn offset_at(conn: &mut Conn, topic: &str, timestamp: i64) -> i64 {
    let partition =
        ListOffsetsPartition { current_leader_epoch: -1, timestamp, ..Default::default() };
    let request = wire::ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic { name: topic.to_owned(), partitions: vec![partition] }],
        ..Default::default()
    };
    let found = conn.call(&request, 11).await.topics.remove(0).partitions.remove(0);
    assert_eq!(found.error(), ErrorCode::None);
    found.offset
}

async fn delete_before(conn: &mut Conn, topic: &str, offset: i64) -> (ErrorCode, i64) {
    let partitions = vec![DeleteRecordsPartition { partition_index: 0, offset }];
    let topics = vec![DeleteRecordsTopic { name: topic.to_owned(), partitions }];
    let request = wire::DeleteRecordsRequest { topics, timeout_ms: 30_000 };
    let answer = conn.call(&request, 2).await;
    let partition = &answer.topics[0].partitions[0];
    (partition.error(), partition.low_watermark)
}

#[tokio::test]
async fn a_producer_that_does_not_wait_finds_its_own_end() {
    let broker = Broker::start(&[NEVER]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("unwaited", &[]).await;
    for number in 1..=3 {
        append_unwaited(&mut conn, "unwaited", &["v"]).await;
        assert_eq!(offset_at(&mut conn, "unwaited", -1).await, number);
    }
    append_unwaited(&mut conn, "unwaited", &["v"]).await;
    assert!(offset_at(&mut conn, "unwaited", -3).await >= 0, "the record with the largest time");
    broker.stop().await;
}

#[tokio::test]
async fn what_was_written_without_waiting_can_be_deleted_at_once() {
    let broker = Broker::start(&[NEVER]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("deleted", &[]).await;
    append_unwaited(&mut conn, "deleted", &["a", "b"]).await;
    assert_eq!(delete_before(&mut conn, "deleted", -1).await, (ErrorCode::None, 2));
    append_unwaited(&mut conn, "deleted", &["c", "d"]).await;
    assert_eq!(delete_before(&mut conn, "deleted", 3).await, (ErrorCode::None, 3));
    broker.stop().await;
}

#[tokio::test]
async fn one_request_deletes_in_many_partitions_and_answers_each_in_its_place() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    for topic in ["first", "second"] {
        conn.create_topic_of(topic, 2, &[]).await;
        append_unwaited(&mut conn, topic, &["a", "b", "c"]).await;
    }
    let of = |name: &str, wanted: &[(i32, i64)]| DeleteRecordsTopic {
        name: name.to_owned(),
        partitions: wanted
            .iter()
            .map(|(partition_index, offset)| DeleteRecordsPartition {
                partition_index: *partition_index,
                offset: *offset,
            })
            .collect(),
    };
    let topics = vec![
        of("first", &[(1, 99), (0, 1), (7, 1)]),
        of("unknown", &[(0, 1)]),
        of("second", &[(0, -1), (1, -2)]),
    ];
    let request = wire::DeleteRecordsRequest { topics, timeout_ms: 30_000 };
    let answer = conn.call(&request, 2).await;
    let answers = answer.topics.iter().flat_map(|topic| &topic.partitions);
    let answers: Vec<_> =
        answers.map(|p| (p.partition_index, p.error(), p.low_watermark)).collect();
    let expected = [
        (1, ErrorCode::OffsetOutOfRange, -1),
        (0, ErrorCode::None, 1),
        (7, ErrorCode::UnknownTopicOrPartition, -1),
        (0, ErrorCode::UnknownTopicOrPartition, -1),
        (0, ErrorCode::None, 3),
        (1, ErrorCode::OffsetOutOfRange, -1),
    ];
    assert_eq!(answers, expected);
    // A process killed now has all of it.
    let copy = broker.start_on_copy().await;
    let mut conn = copy.connect().await;
    assert_eq!(offset_at(&mut conn, "first", -2).await, 1);
    assert_eq!(offset_at(&mut conn, "second", -2).await, 3);
    copy.stop().await;
    broker.stop().await;
}

#[tokio::test]
async fn a_consumer_gets_what_nobody_else_waits_for() {
    let broker = Broker::start(&[NEVER]).await;
    let (mut producer, mut consumer) = (broker.connect().await, broker.connect().await);
    producer.create_topic("consumed", &[]).await;
    let waiting = |offset: i64| {
        let mut request = fetch_request("consumed", offset);
        (request.min_bytes, request.max_wait_ms) = (1, FOREVER_MS);
        request
    };
    // It comes first and is parked, and it comes when the record is there already.
    for offset in 0..3 {
        consumer.send(&waiting(offset * 2), FETCH).await;
        append_unwaited(&mut producer, "consumed", &["parked"]).await;
        assert!(consumer.receive_frame().await.is_some());
        append_unwaited(&mut producer, "consumed", &["arrives"]).await;
        consumer.send(&waiting(offset * 2 + 1), FETCH).await;
        assert!(consumer.receive_frame().await.is_some());
    }
    broker.stop().await;
}

#[tokio::test]
async fn a_stop_syncs_what_nobody_waits_for() {
    let broker = Broker::start(&[NEVER]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("stopped", &[]).await;
    append_unwaited(&mut conn, "stopped", &["a", "b", "c"]).await;
    drop(conn);
    let broker = broker.restart().await;
    let mut conn = broker.connect().await;
    assert_eq!(offset_at(&mut conn, "stopped", -1).await, 3);
    broker.stop().await;
}

/// One connection alone, whose thread syncs small requests itself; then there is another one.
#[tokio::test]
async fn a_connection_that_is_alone_is_answered_as_one_among_others() {
    let broker = Broker::start(&[NEVER]).await;
    let mut alone = broker.connect().await;
    alone.create_topic("alone", &[]).await;
    let mut end = 0;
    let mut next = |answer: wire::ProduceResponse| {
        let partition = &answer.responses[0].partition_responses[0];
        assert_eq!((partition.error(), partition.base_offset), (ErrorCode::None, end));
        end += 1;
    };
    for number in 0..400 {
        // One at a time, and several in flight, which are answered in their order.
        let in_flight = if number % 2 == 0 { 1 } else { 5 };
        let mut sent = Vec::new();
        for _ in 0..in_flight {
            let request = produce_request("alone", -1, batch(&["v"]));
            sent.push(alone.send(&request, PRODUCE).await);
        }
        for correlation in sent {
            next(alone.receive::<wire::ProduceRequest>(PRODUCE, correlation).await);
        }
    }
    let mut other = broker.connect().await;
    for _ in 0..20 {
        for conn in [&mut alone, &mut other] {
            next(conn.call(&produce_request("alone", -1, batch(&["v"])), PRODUCE).await);
        }
    }
    assert_eq!(other.end_offset("alone").await, end);
    let copy = broker.start_on_copy().await;
    let mut conn = copy.connect().await;
    assert_eq!(conn.end_offset("alone").await, end, "a process killed now has all of it");
    copy.stop().await;
    broker.stop().await;
}
