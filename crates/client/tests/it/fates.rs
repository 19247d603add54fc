//! Records that are given up: whether they may have been written. And what a gateway needs besides: one batch of a
//! partition in flight, brokers that are reached elsewhere than they say, topics that are forgotten.

use crate::played::{Answer, NO_TOPIC, config, play_as, played};
use client::producer::Undelivered;
use client::{ClientError, Cluster, Producer, ProducerConfig, Record};
use model::ErrorCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;

fn always(code: ErrorCode) -> Answer {
    Arc::new(move |_| Some(code))
}

/// What becomes of a record that a broker answers so, twice at most.
async fn fate(answer: Answer) -> Undelivered {
    let config = ProducerConfig { linger: Duration::ZERO, retries: 1, ..config() };
    let producer = Producer::new(played(1, answer).await, config).await.unwrap();
    let delivery = producer.send("t", &Record::value(b"v")).await.unwrap();
    delivery.fate().await.unwrap_err()
}

#[tokio::test]
async fn a_record_that_was_refused_is_not_written() {
    for code in [ErrorCode::InvalidRecord, ErrorCode::MessageTooLarge, ErrorCode::NotEnoughReplicas]
    {
        let lost = fate(always(code)).await;
        assert_eq!((lost.error.code(), lost.maybe_written), (Some(code), false));
    }
}

#[tokio::test]
async fn a_record_whose_append_the_broker_may_have_made_may_be_written() {
    for code in [
        ErrorCode::NotLeaderOrFollower,
        ErrorCode::RequestTimedOut,
        ErrorCode::NotEnoughReplicasAfterAppend,
        ErrorCode::UnknownServerError,
    ] {
        let lost = fate(always(code)).await;
        assert_eq!((lost.error.code(), lost.maybe_written), (Some(code), true));
    }
}

#[tokio::test]
async fn a_refusal_says_nothing_of_the_attempt_before() {
    let answer =
        |n| Some(if n == 0 { ErrorCode::RequestTimedOut } else { ErrorCode::InvalidRecord });
    let lost = fate(Arc::new(answer)).await;
    assert_eq!((lost.error.code(), lost.maybe_written), (Some(ErrorCode::InvalidRecord), true));
}

#[tokio::test]
async fn a_batch_that_may_be_written_is_not_sent_under_other_numbers() {
    // The first attempt may have been written; then the broker has lost the producer's state.
    let answer = |n| {
        Some(match n {
            0 => ErrorCode::RequestTimedOut,
            1 => ErrorCode::UnknownProducerId,
            _ => ErrorCode::None,
        })
    };
    let config = ProducerConfig { idempotence: true, linger: Duration::ZERO, ..config() };
    let producer = Producer::new(played(1, Arc::new(answer)).await, config).await.unwrap();
    let lost = producer.send("t", &Record::value(b"v")).await.unwrap().fate().await.unwrap_err();
    assert_eq!((lost.error.code(), lost.maybe_written), (Some(ErrorCode::UnknownProducerId), true));
    producer.send("t", &Record::value(b"w")).await.unwrap().wait().await.unwrap();
    assert_eq!(producer.metrics().batches_sent, 3);
}

#[tokio::test]
async fn a_record_that_was_never_sent_is_not_written() {
    // The broker says that it is where nothing listens.
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let partitions = Arc::new(AtomicI32::new(1));
    let answer = always(ErrorCode::None);
    let cluster = play_as(Some(i32::from(closed)), partitions, answer).await;
    let cluster = Cluster::connect(cluster).await.unwrap();
    let config = ProducerConfig {
        linger: Duration::ZERO,
        delivery_timeout: Duration::from_millis(100),
        ..config()
    };
    let producer = Producer::new(cluster, config).await.unwrap();
    let lost = producer.send("t", &Record::value(b"v")).await.unwrap().fate().await.unwrap_err();
    assert!(matches!(lost.error, ClientError::TimedOut { .. }), "{lost:?}");
    assert!(!lost.maybe_written);
}

#[tokio::test]
async fn a_broker_is_reached_where_the_client_was_told() {
    let partitions = Arc::new(AtomicI32::new(1));
    let mut cluster = play_as(Some(1), partitions, always(ErrorCode::None)).await;
    cluster.addresses.insert(1, cluster.bootstrap[0].clone());
    let cluster = Cluster::connect(cluster).await.unwrap();
    assert_eq!(cluster.metadata().brokers[&1].port, 1);
    let config = ProducerConfig { linger: Duration::ZERO, ..config() };
    let producer = Producer::new(cluster, config).await.unwrap();
    producer.send("t", &Record::value(b"v")).await.unwrap().wait().await.unwrap();
}

#[tokio::test]
async fn records_gather_while_the_batch_before_theirs_is_under_way() {
    let config = ProducerConfig { linger: Duration::ZERO, partition_in_flight_max: 1, ..config() };
    let producer = Producer::new(played(2, Arc::new(|_| None)).await, config).await.unwrap();
    let topic = producer.topic("t").await.unwrap();
    let send = |partition| {
        let record = Record { partition: Some(partition), ..Record::value(b"v") };
        assert!(topic.try_send(&record).unwrap().is_some());
    };
    let sent = async |requests| {
        while producer.metrics().requests < requests {
            tokio::task::yield_now().await;
        }
    };
    send(0);
    sent(1).await;
    let waiting_bytes = |partition| topic.intake(|intake| intake.waiting_bytes(partition));
    let has_room = |partition| topic.intake(|intake| intake.has_room(partition, 100));
    assert_eq!(waiting_bytes(0), 0);
    // What is sent of partition 1 is sent in a turn that has looked at partition 0 as well.
    (0..3).for_each(|_| send(0));
    send(1);
    sent(2).await;
    assert_eq!(producer.metrics().batches_sent, 2);
    assert_eq!((waiting_bytes(0), waiting_bytes(1)), (16 * 1024, 0));
    assert!(has_room(0) && !has_room(1));
}

#[tokio::test]
async fn a_topic_is_forgotten_once_nothing_of_it_is_under_way() {
    let producer = Producer::new(played(1, always(ErrorCode::None)).await, config()).await.unwrap();
    let topic = producer.topic("t").await.unwrap();
    let delivery = topic.try_send(&Record::value(b"v")).unwrap().unwrap();
    producer.forget("t");
    // Were it forgotten, a flush would not find the batch, which lingers for minutes.
    producer.flush().await.unwrap();
    assert!(delivery.is_done());
    producer.forget("t");
    let again = producer.topic("t").await.unwrap();
    again.try_send(&Record::value(b"v")).unwrap().unwrap();
    producer.flush().await.unwrap();
    assert_eq!(producer.metrics().records, 2);
}

#[tokio::test]
async fn a_topic_that_is_deleted_is_given_up_by_those_who_want_that() {
    let partitions = Arc::new(AtomicI32::new(1));
    // The first batch is taken, and then the leader knows the topic no more.
    let answer: Answer = Arc::new(|n| {
        Some(if n == 0 { ErrorCode::None } else { ErrorCode::UnknownTopicOrPartition })
    });
    let cluster = Cluster::connect(play_as(None, partitions.clone(), answer).await).await.unwrap();
    let config = ProducerConfig { linger: Duration::ZERO, gives_up_deleted: true, ..config() };
    let producer = Producer::new(cluster, config).await.unwrap();
    producer.send("t", &Record::value(b"v")).await.unwrap().wait().await.unwrap();
    let lost = producer.send("t", &Record::value(b"v")).await.unwrap();
    // As long as the cluster knows the topic, the leader may only be behind.
    while producer.metrics().requests < 20 {
        tokio::task::yield_now().await;
    }
    assert!(!lost.is_done());
    partitions.store(NO_TOPIC, Ordering::Relaxed);
    let lost = lost.fate().await.unwrap_err();
    assert_eq!(lost.error.code(), Some(ErrorCode::UnknownTopicOrPartition));
    assert!(!lost.maybe_written);
}

#[tokio::test]
async fn a_topic_that_some_broker_has_not_heard_of_yet_is_waited_for() {
    let partitions = Arc::new(AtomicI32::new(1));
    let seen = partitions.clone();
    // The leader knows it a moment later, and the broker that is asked for metadata lags behind meanwhile.
    let answer: Answer = Arc::new(move |n| {
        seen.store(if n == 0 { NO_TOPIC } else { 1 }, Ordering::Relaxed);
        Some(if n == 0 { ErrorCode::UnknownTopicOrPartition } else { ErrorCode::None })
    });
    let cluster = Cluster::connect(play_as(None, partitions.clone(), answer).await).await.unwrap();
    let config = ProducerConfig { linger: Duration::ZERO, gives_up_deleted: true, ..config() };
    let producer = Producer::new(cluster.clone(), config).await.unwrap();
    let sent = producer.send("t", &Record::value(b"v")).await.unwrap();
    while cluster.metadata().topics.contains_key("t") {
        tokio::task::yield_now().await;
    }
    partitions.store(1, Ordering::Relaxed);
    sent.wait().await.unwrap();
}
