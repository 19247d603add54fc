//! Fetch without a session: which batches an answer holds, when it comes, and in which order.

use std::time::{Duration, Instant};

use model::{ErrorCode, Uuid};
use wire::{ApiKey, MetadataRequest};

use crate::fixture::*;

#[tokio::test]
async fn an_offset_inside_a_batch_gets_the_batch_that_holds_it() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("batches", &[]).await;
    conn.append("batches", batch(&["0", "1", "2"])).await;
    conn.append("batches", compressed(builder(&["3", "4", "5"]), model::Compression::Lz4)).await;
    for offset in 0..6 {
        let fetched = conn.fetch("batches", offset).await;
        let first = headers(&fetched)[0];
        assert_eq!(first.base_offset.0, offset / 3 * 3, "fetched at {offset}");
        assert_eq!(values(&fetched).last().unwrap().0, 5);
    }
    assert_eq!(headers(&conn.fetch("batches", 6).await).len(), 0, "the end is no error");
    for beyond in [7, -1, i64::MAX] {
        let error = conn.fetch("batches", beyond).await.error();
        assert_eq!(error, ErrorCode::OffsetOutOfRange, "{beyond}");
    }
    broker.stop().await;
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_their_order() {
    let broker = Broker::start(&[]).await;
    let (mut conn, mut other) = (broker.connect().await, broker.connect().await);
    conn.create_topic("line", &[]).await;
    let mut poll = fetch_request("line", 1);
    (poll.min_bytes, poll.max_wait_ms) = (1, FOREVER_MS);
    let requests = [
        frame_of(&produce_request("line", -1, batch(&["first"])), PRODUCE, 101),
        frame_of(&poll, FETCH, 102),
        frame_of(&MetadataRequest::default(), 12, 103),
        frame_of(&produce_request("line", 1, batch(&["third"])), PRODUCE, 104),
        frame_of(&fetch_request("line", 0), FETCH, 105),
        frame_of(&wire::ListGroupsRequest::default(), 4, 106),
    ];
    conn.write(&requests[..3].concat()).await;
    let produced = conn.receive::<wire::ProduceRequest>(PRODUCE, 101).await;
    assert_eq!(produced.responses[0].partition_responses[0].base_offset, 0);
    // Metadata is ready at once, and has to wait for the poll before it.
    assert_eq!(other.append("line", batch(&["second"])).await, 1);
    let polled = conn.receive::<wire::FetchRequest>(FETCH, 102).await;
    assert_eq!(values(&polled.responses[0].partitions[0]), [(1, "second".to_owned())]);
    conn.receive::<MetadataRequest>(12, 103).await;
    conn.write(&requests[3..].concat()).await;
    conn.receive::<wire::ProduceRequest>(PRODUCE, 104).await;
    let fetched = conn.receive::<wire::FetchRequest>(FETCH, 105).await;
    assert!(values(&fetched.responses[0].partitions[0]).len() >= 2);
    conn.receive::<wire::ListGroupsRequest>(4, 106).await;
    broker.stop().await;
}

#[tokio::test]
async fn five_hundred_requests_in_one_go_are_answered_in_order() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("many", &[]).await;
    let mut bytes = Vec::new();
    for correlation in 0..500 {
        bytes.extend(match correlation % 4 {
            0 => frame_of(&produce_request("many", -1, batch(&["v"])), PRODUCE, correlation),
            1 => frame_of(&fetch_request("many", 0), FETCH, correlation),
            2 => frame_of(&MetadataRequest::default(), 12, correlation),
            _ => frame_of(&wire::ApiVersionsRequest::default(), 0, correlation),
        });
    }
    conn.write(&bytes).await;
    for correlation in 0..500i32 {
        let answer = conn.receive_frame().await.expect("the connection is open");
        assert_eq!(answer[..4], correlation.to_be_bytes());
        if correlation % 4 == 0 {
            let (_, answer) = read_answer::<wire::ProduceRequest>(&answer, PRODUCE);
            let partition = &answer.responses[0].partition_responses[0];
            assert_eq!(partition.base_offset, i64::from(correlation / 4));
        }
    }
    broker.stop().await;
}

#[tokio::test]
async fn a_fetch_cut_inside_sealed_segments_skips_nothing() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("segments", &[("internal.segment.bytes", "4000")]).await;
    let mut expected = Vec::new();
    for number in 0..60usize {
        // Batches of different sizes, so that cuts fall everywhere.
        let text = format!("{number}-{}", "x".repeat(number * 37 % 900));
        let texts = vec![text.as_str(); 1 + number % 3];
        let base = conn.append("segments", batch(&texts)).await;
        for at in 0..texts.len() {
            expected.push((base + at as i64, text.clone()));
        }
    }
    for max_bytes in [1, 100, 1000, 1500, 3999, 4000, 4001, 9000, 1 << 20] {
        let mut found = Vec::new();
        while found.len() < expected.len() {
            let fetched = conn.fetch_at_most("segments", found.len() as i64, max_bytes).await;
            let new = values(&fetched);
            assert!(!new.is_empty(), "stuck at {} with {max_bytes} bytes", found.len());
            found.extend(new);
        }
        assert_eq!(found, expected, "with {max_bytes} bytes at a time");
    }
    broker.stop().await;
}

#[tokio::test]
async fn a_long_poll_is_woken_by_an_append() {
    let broker = Broker::start(&[]).await;
    let (mut poller, mut producer) = (broker.connect().await, broker.connect().await);
    producer.create_topic("woken", &[]).await;
    let mut poll = fetch_request("woken", 0);
    (poll.min_bytes, poll.max_wait_ms) = (1, FOREVER_MS);
    for round in 0..20 {
        poll.topics[0].partitions[0].fetch_offset = round;
        let correlation = poller.send(&poll, FETCH).await;
        producer.append("woken", batch(&["news"])).await;
        let answer = poller.receive::<wire::FetchRequest>(FETCH, correlation).await;
        assert_eq!(values(&answer.responses[0].partitions[0]), [(round, "news".to_owned())]);
    }
    broker.stop().await;
}

#[tokio::test]
async fn a_long_poll_waits_for_min_bytes() {
    let broker = Broker::start(&[]).await;
    let (mut poller, mut producer) = (broker.connect().await, broker.connect().await);
    producer.create_topic("patient", &[]).await;
    let one = batch(&["x".repeat(1000).as_str()]);
    let mut poll = fetch_request("patient", 0);
    (poll.min_bytes, poll.max_wait_ms) = (2 * one.len() as i32 + 1, FOREVER_MS);
    let correlation = poller.send(&poll, FETCH).await;
    for _ in 0..3 {
        producer.append("patient", one.clone()).await;
    }
    let answer = poller.receive::<wire::FetchRequest>(FETCH, correlation).await;
    let count = headers(&answer.responses[0].partitions[0]).len();
    assert_eq!(count, 3, "two batches are not enough bytes");
    broker.stop().await;
}

/// Limits of one fetch, and whether a backlog of `BACKLOG` batches in each partition answers it at once.
struct LimitRow {
    min_bytes: i32,
    max_bytes: i32,
    partition_max_bytes: i32,
    partitions: i32,
}

/// Batches of about a kilobyte in each partition.
const BACKLOG: usize = 12;

/// A backlog that only the limits of the request hold back is enough: Kafka cuts a batch at the limit and so reaches
/// `min_bytes`. Where the limits of the partitions are smaller than `min_bytes` together, no wait could help.
#[tokio::test]
async fn a_backlog_behind_limits_is_not_waited_with() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic_of("limits", 3, &[]).await;
    let one = batch(&["x".repeat(1000).as_str()]);
    let size = one.len() as i32;
    for partition in 0..3 {
        for _ in 0..BACKLOG {
            let mut produce = produce_request("limits", -1, one.clone());
            produce.topic_data[0].partition_data[0].index = partition;
            let answer = conn.call(&produce, PRODUCE).await;
            assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
        }
    }
    let row = |min_bytes, max_bytes, partition_max_bytes, partitions| LimitRow {
        min_bytes,
        max_bytes,
        partition_max_bytes,
        partitions,
    };
    let rows = [
        // Both limits lie inside of a batch.
        row(3 * size + 7, 1 << 20, 3 * size + 7, 1),
        row(3 * size + 7, 3 * size + 7, 1 << 20, 1),
        row(1, 1 << 20, size / 2, 1),
        row(size / 2, size / 2, size / 2, 1),
        // The limits of all partitions together.
        row(3 * (2 * size + 1), 1 << 20, 2 * size + 1, 3),
        row(5 * size - 1, 5 * size - 1, 2 * size + 1, 3),
        row(4 * size, 4 * size, size - 1, 3),
        // `min_bytes` beyond all limits.
        row(1 << 20, 1 << 20, 2 * size, 1),
        row(1 << 20, 1 << 20, 2 * size, 3),
        row(i32::MAX, 4 * size + 1, 1 << 20, 3),
    ];
    for LimitRow { min_bytes, max_bytes, partition_max_bytes, partitions } in rows {
        for has_session in [false, true] {
            let mut poll = fetch_request("limits", 0);
            (poll.min_bytes, poll.max_bytes, poll.max_wait_ms) = (min_bytes, max_bytes, FOREVER_MS);
            poll.session_epoch = if has_session { 0 } else { -1 };
            let mut wanted: Vec<_> =
                (0..partitions).map(|partition| fetch_partition(partition, 0)).collect();
            for partition in &mut wanted {
                partition.partition_max_bytes = partition_max_bytes;
            }
            poll.topics[0].partitions = wanted;
            // The fixture gives up an answer that does not come.
            let answer = conn.call(&poll, FETCH).await;
            assert!(
                !headers(&answer.responses[0].partitions[0]).is_empty(),
                "{min_bytes} of {max_bytes}"
            );
        }
    }
    broker.stop().await;
}

/// An answer has batches of one segment: behind the end of an earlier one it does not grow by waiting.
#[tokio::test]
async fn the_rest_of_an_earlier_segment_is_not_waited_with() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("rolled", &[("internal.segment.bytes", "4000")]).await;
    let one = batch(&["x".repeat(1000).as_str()]);
    for _ in 0..7 {
        conn.append("rolled", one.clone()).await;
    }
    let mut poll = fetch_request("rolled", 1);
    (poll.min_bytes, poll.max_wait_ms) = (6 * one.len() as i32, FOREVER_MS);
    let answer = conn.call(&poll, FETCH).await;
    assert_eq!(headers(&answer.responses[0].partitions[0])[0].base_offset.0, 1);
    broker.stop().await;
}

#[tokio::test]
async fn a_long_poll_ends_after_max_wait_with_what_there_is() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("timed", &[]).await;
    conn.append("timed", batch(&["little"])).await;
    let max_wait = Duration::from_millis(300);
    for (offset, count) in [(0, 1), (1, 0)] {
        let mut poll = fetch_request("timed", offset);
        (poll.min_bytes, poll.max_wait_ms) = (1 << 20, max_wait.as_millis() as i32);
        let mut waited = Duration::ZERO;
        // A thread of the broker that stands still between its look at the clock and its look at the socket lets the
        // time begin before the request. It does not do so again and again.
        for _ in 0..5 {
            let began = Instant::now();
            let answer = conn.call(&poll, FETCH).await;
            waited = waited.max(began.elapsed());
            assert_eq!(headers(&answer.responses[0].partitions[0]).len(), count);
            if waited >= max_wait {
                break;
            }
        }
        assert!(waited >= max_wait, "{waited:?}");
    }
    broker.stop().await;
}

#[tokio::test]
async fn an_unknown_isolation_level_is_refused() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("levels", &[]).await;
    conn.append("levels", batch(&["value"])).await;
    for (level, error) in [
        (0, ErrorCode::None),
        (1, ErrorCode::None),
        (2, ErrorCode::InvalidRequest),
        (7, ErrorCode::InvalidRequest),
        (-1, ErrorCode::InvalidRequest),
    ] {
        let mut request = fetch_request("levels", 0);
        request.isolation_level = level;
        let answer = conn.call(&request, FETCH).await;
        assert_eq!(answer.error_code, error.code(), "{level}");
    }
    broker.stop().await;
}

#[tokio::test]
async fn an_error_is_not_waited_with() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    let mut poll = fetch_request("absent", 0);
    (poll.min_bytes, poll.max_wait_ms) = (1, FOREVER_MS);
    let answer = conn.call(&poll, FETCH).await;
    let error = answer.responses[0].partitions[0].error();
    assert_eq!(error, ErrorCode::UnknownTopicOrPartition);
    broker.stop().await;
}

#[tokio::test]
async fn a_consumer_sees_nothing_above_the_high_watermark() {
    // Under fsync the high watermark follows the disk, so appends are ahead of it all the time.
    let broker = Broker::start(&[("durability", "fsync")]).await;
    let (mut writer, mut reader) = (broker.connect().await, broker.connect().await);
    writer.create_topic("committed", &[]).await;
    const COUNT: i64 = 200;
    let writing = async {
        for _ in 0..COUNT {
            let request = produce_request("committed", 1, batch(&["value"]));
            let answer = writer.call(&request, PRODUCE).await;
            assert_eq!(answer.responses[0].partition_responses[0].error(), ErrorCode::None);
        }
    };
    let reading = async {
        let mut next = 0;
        while next < COUNT {
            let mut poll = fetch_request("committed", next);
            (poll.min_bytes, poll.max_wait_ms) = (1, 10_000);
            let answer = reader.call(&poll, FETCH).await;
            let partition = &answer.responses[0].partitions[0];
            for header in headers(partition) {
                assert_eq!(header.base_offset.0, next, "none twice, none skipped");
                assert!(header.last_offset().0 < partition.high_watermark, "{header:?}");
                next = header.next_offset().0;
            }
            assert!(partition.last_stable_offset <= partition.high_watermark);
        }
    };
    tokio::join!(writing, reading);
    broker.stop().await;
}

#[tokio::test]
async fn every_version_of_fetch_carries_the_same_records() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    let id = conn.create_topic("versions", &[]).await;
    // Large enough to leave by another way than small answers do.
    let large = "x".repeat(40_000);
    conn.append("versions", batch(&["small"])).await;
    conn.append("versions", batch(&[&large])).await;
    for version in ApiKey::Fetch.min_version()..=ApiKey::Fetch.max_version() {
        let mut request = fetch_request("versions", 0);
        if version >= 13 {
            request.topics[0].topic_id = id;
            request.topics[0].topic = String::new();
        }
        let answer = conn.call(&request, version).await;
        let found = values(&answer.responses[0].partitions[0]);
        assert_eq!(found, [(0, "small".to_owned()), (1, large.clone())], "version {version}");
    }
    broker.stop().await;
}

#[tokio::test]
async fn deleting_a_topic_ends_the_long_polls_on_it() {
    let broker = Broker::start(&[]).await;
    let (mut poller, mut other) = (broker.connect().await, broker.connect().await);
    let id = other.create_topic("doomed", &[]).await;
    for (name, id, version) in [("doomed", Uuid::ZERO, FETCH), ("", id, 17)] {
        let mut poll = fetch_request(name, 0);
        poll.topics[0].topic_id = id;
        (poll.min_bytes, poll.max_wait_ms) = (1, FOREVER_MS);
        poller.send(&poll, version).await;
    }
    let delete = wire::DeleteTopicsRequest {
        topic_names: vec!["doomed".to_owned()],
        timeout_ms: 30_000,
        ..Default::default()
    };
    other.call(&delete, 5).await;
    let by_name = poller.receive::<wire::FetchRequest>(FETCH, 1).await;
    let error = by_name.responses[0].partitions[0].error();
    assert_eq!(error, ErrorCode::UnknownTopicOrPartition);
    let by_id = poller.receive::<wire::FetchRequest>(17, 2).await;
    assert_eq!(by_id.responses[0].partitions[0].error(), ErrorCode::UnknownTopicId);
    broker.stop().await;
}

#[tokio::test]
async fn a_leader_epoch_that_is_not_the_leaders_is_refused() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("epochs", &[]).await;
    let request = MetadataRequest { topics: None, ..Default::default() };
    let metadata = conn.call(&request, 12).await;
    let epoch = metadata.topics[0].partitions[0].leader_epoch;
    for (known, error) in [
        (epoch, ErrorCode::None),
        (-1, ErrorCode::None),
        (epoch + 1, ErrorCode::UnknownLeaderEpoch),
    ] {
        let mut request = fetch_request("epochs", 0);
        request.topics[0].partitions[0].current_leader_epoch = known;
        let answer = conn.call(&request, FETCH).await;
        assert_eq!(answer.responses[0].partitions[0].error(), error, "epoch {known}");
    }
    broker.stop().await;
}

#[tokio::test]
async fn isolation_changes_nothing_where_there_are_no_transactions() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("plain", &[]).await;
    conn.append("plain", batch(&["value"])).await;
    let mut request = fetch_request("plain", 0);
    request.isolation_level = 1;
    let answer = conn.call(&request, FETCH).await;
    let partition = &answer.responses[0].partitions[0];
    assert_eq!(partition.aborted_transactions, Some(Vec::new()));
    assert_eq!(partition.last_stable_offset, 1);
    assert_eq!(partition.records, conn.fetch("plain", 0).await.records);
    broker.stop().await;
}

#[tokio::test]
async fn only_brokers_may_fetch_as_replicas() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("replicated", &[]).await;
    conn.append("replicated", batch(&["value"])).await;
    for replica_id in [0, 1, 2] {
        let mut request = fetch_request("replicated", 0);
        request.replica_id = replica_id;
        let answer = conn.call(&request, FETCH).await;
        assert_eq!(answer.error(), ErrorCode::ClusterAuthorizationFailed);
        assert_eq!(answer.responses, []);
    }
    broker.stop().await;
}
