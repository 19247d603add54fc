//! No file may be opened for a while: requests wait until one was closed, in their order, and are not
//! refused.

use std::time::{Duration, Instant};

use model::ErrorCode;
use storage::disk::reserve;

use crate::fixture::{
    Broker, Conn, FETCH, FOREVER_MS, PRODUCE, batch, fetch_partition, fetch_request, frame_of,
    produce_request, values,
};

/// Longer than any thread waits on the spot for a file to be closed.
const LONGER_THAN_ON_THE_SPOT: Duration = Duration::from_millis(700);

/// A broker, alone in this process, with a record in `crowded`, that has no file open and may open none. The bound is
/// the process's: it goes with the broker, before another test's broker runs.
async fn without_files() -> Broker {
    let broker = Broker::start_alone(&[("num.network.threads", "1")]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("crowded", &[]).await;
    conn.append("crowded", batch(&["first"])).await;
    drop(conn);
    // A start opens no file of a log that did not change.
    let broker = broker.restart().await;
    reserve::bound_files(0);
    broker
}

async fn send_produce(conn: &mut Conn, value: &str) -> i32 {
    conn.send(&produce_request("crowded", -1, batch(&[value])), PRODUCE).await
}

/// Sends `frames` and returns when all of them are taken in: what arrives in one packet is taken in before any of
/// it is answered, and in front of them goes a fetch at the end of the log, which needs no file and does not wait.
async fn send_and_see_taken_in(conn: &mut Conn, frames: &[Vec<u8>]) {
    const IN_FRONT: i32 = 1000;
    let in_front = frame_of(&fetch_request("crowded", 1), FETCH, IN_FRONT);
    conn.write(&[in_front, frames.concat()].concat()).await;
    let answer = conn.receive::<wire::FetchRequest>(FETCH, IN_FRONT).await;
    assert_eq!(answer.responses[0].partitions[0].error(), ErrorCode::None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_wait_in_their_order_until_files_may_be_opened() {
    let broker = without_files().await;
    let (mut producer, mut consumer) = (broker.connect().await, broker.connect().await);
    let second = send_produce(&mut producer, "second").await;
    let third = send_produce(&mut producer, "third").await;
    let mut fetch = fetch_request("crowded", 0);
    (fetch.max_wait_ms, fetch.min_bytes) = (FOREVER_MS, 1);
    let fetched = consumer.send(&fetch, FETCH).await;
    let began = Instant::now();
    while began.elapsed() < LONGER_THAN_ON_THE_SPOT {
        // The one data thread does not wait.
        broker.assert_serves().await;
    }
    reserve::bound_files(usize::MAX);
    for (correlation, offset) in [(second, 1), (third, 2)] {
        let answer = producer.receive::<wire::ProduceRequest>(PRODUCE, correlation).await;
        let partition = &answer.responses[0].partition_responses[0];
        assert_eq!((partition.error(), partition.base_offset), (ErrorCode::None, offset));
    }
    let answer = consumer.receive::<wire::FetchRequest>(FETCH, fetched).await;
    let partition = &answer.responses[0].partitions[0];
    assert_eq!(partition.error(), ErrorCode::None);
    assert_eq!(values(partition)[0], (0, "first".to_owned()));
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_answers_a_request_that_waits_for_a_file() {
    let broker = without_files().await;
    let mut producer = broker.connect().await;
    let produce = produce_request("crowded", -1, batch(&["second"]));
    let waiting = 1001;
    send_and_see_taken_in(&mut producer, &[frame_of(&produce, PRODUCE, waiting)]).await;
    broker.stop().await;
    let answer = producer.receive::<wire::ProduceRequest>(PRODUCE, waiting).await;
    let error = answer.responses[0].partition_responses[0].error();
    assert_eq!(error, ErrorCode::KafkaStorageError);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_answers_in_the_order_of_the_requests_also_behind_a_long_poll() {
    let broker = without_files().await;
    let mut conn = broker.connect().await;
    // At the end of the log: it waits for records, and for no file.
    let mut fetch = fetch_request("crowded", 1);
    (fetch.max_wait_ms, fetch.min_bytes) = (FOREVER_MS, 1);
    let produce = produce_request("crowded", -1, batch(&["second"]));
    let (fetched, waiting) = (1001, 1002);
    let both = [frame_of(&fetch, FETCH, fetched), frame_of(&produce, PRODUCE, waiting)];
    send_and_see_taken_in(&mut conn, &both).await;
    broker.stop().await;
    let answer = conn.receive::<wire::FetchRequest>(FETCH, fetched).await;
    let partition = &answer.responses[0].partitions[0];
    assert_eq!((partition.error(), values(partition)), (ErrorCode::None, Vec::new()));
    let answer = conn.receive::<wire::ProduceRequest>(PRODUCE, waiting).await;
    let error = answer.responses[0].partition_responses[0].error();
    assert_eq!(error, ErrorCode::KafkaStorageError);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fetch_looks_again_though_no_file_is_closed() {
    let broker = without_files().await;
    let mut consumer = broker.connect().await;
    let mut fetch = fetch_request("crowded", 0);
    (fetch.max_wait_ms, fetch.min_bytes) = (FOREVER_MS, 1);
    let fetched = 1001;
    send_and_see_taken_in(&mut consumer, &[frame_of(&fetch, FETCH, fetched)]).await;
    // Nothing is closed, and so nobody is woken: as if another task had taken the wake and gone.
    reserve::bound_files(usize::MAX);
    let answer = consumer.receive::<wire::FetchRequest>(FETCH, fetched).await;
    assert_eq!(values(&answer.responses[0].partitions[0]), [(0, "first".to_owned())]);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_waited_for_a_file_for_its_time_is_refused_and_appends_nothing() {
    let broker = without_files().await;
    let (mut first, mut silent) = (broker.connect().await, broker.connect().await);
    let mut request = produce_request("crowded", -1, batch(&["refused"]));
    request.timeout_ms = 1;
    let answer = first.call(&request, PRODUCE).await;
    let error = answer.responses[0].partition_responses[0].error();
    assert_eq!(error, ErrorCode::KafkaStorageError);
    // Without acknowledgement the end of the connection tells.
    request.acks = 0;
    silent.send(&request, PRODUCE).await;
    silent.assert_closed().await;
    // What a peer sent that has hung up since is appended before what comes later, or not at all.
    let mut gone = broker.connect().await;
    send_produce(&mut gone, "gone").await;
    drop(gone);
    broker.assert_serves().await;
    reserve::bound_files(usize::MAX);
    let offset = first.append("crowded", batch(&["second"])).await;
    let all = values(&first.fetch("crowded", 0).await);
    let kept: Vec<&str> = all.iter().map(|(_, value)| value.as_str()).collect();
    assert_eq!((kept[0], kept[offset as usize]), ("first", "second"), "{kept:?}");
    assert!(!kept.contains(&"refused"), "{kept:?}");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_without_acknowledgement_waits_for_a_file_and_keeps_its_turn() {
    let broker = without_files().await;
    let mut conn = broker.connect().await;
    let silent = produce_request("crowded", 0, batch(&["second"]));
    let produce = produce_request("crowded", -1, batch(&["third"]));
    let third = 1002;
    let both = [frame_of(&silent, PRODUCE, 1001), frame_of(&produce, PRODUCE, third)];
    send_and_see_taken_in(&mut conn, &both).await;
    reserve::bound_files(usize::MAX);
    let answer = conn.receive::<wire::ProduceRequest>(PRODUCE, third).await;
    assert_eq!(answer.responses[0].partition_responses[0].base_offset, 2);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_for_more_partitions_than_files_may_be_open_appends_to_each_once() {
    const PARTITIONS: i32 = 12;
    let broker = Broker::start_alone(&[("num.network.threads", "1")]).await;
    let mut conn = broker.connect().await;
    conn.create_topic_of("wide", PARTITIONS, &[]).await;
    // An append makes one file; those that are appended to are closed once they are synced.
    reserve::bound_files(4);
    let mut request = produce_request("wide", -1, batch(&["once"]));
    let one = request.topic_data[0].partition_data.remove(0);
    let of = |index| wire::produce::PartitionProduceData { index, ..one.clone() };
    request.topic_data[0].partition_data = (0..PARTITIONS).map(of).collect();
    let answer = conn.call(&request, PRODUCE).await;
    let written = &answer.responses[0].partition_responses;
    let found: Vec<_> =
        written.iter().map(|one| (one.index, one.error(), one.base_offset)).collect();
    let expected: Vec<_> = (0..PARTITIONS).map(|index| (index, ErrorCode::None, 0)).collect();
    assert_eq!(found, expected);
    reserve::bound_files(usize::MAX);
    let mut fetch = fetch_request("wide", 0);
    fetch.topics[0].partitions = (0..PARTITIONS).map(|index| fetch_partition(index, 0)).collect();
    let answer = conn.call(&fetch, FETCH).await;
    for partition in &answer.responses[0].partitions {
        assert_eq!(values(partition), [(0, "once".to_owned())], "{}", partition.partition_index);
    }
    broker.stop().await;
}
