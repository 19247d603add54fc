//! Producing, and looking at what is then in the log.

use crate::{cluster, new_topic};
use client::admin::NewTopic;
use client::producer::BatchReport;
use client::{Admin, Cluster, Lane, OffsetSpec, Producer, ProducerConfig, Record};
use model::batch::{Batches, HEADER_BYTES};
use model::record::Records;
use model::{Compression, ErrorCode, Offset, TopicPartition};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

/// Everything in a partition: the values, read by plain fetches up to where the log ends. With acks of 1, records may be
/// acknowledged before they may be read.
async fn values(cluster: &Cluster, topic: &str, partition: i32) -> Vec<String> {
    let wanted = TopicPartition::new(topic, partition);
    let latest = [(wanted.clone(), OffsetSpec::Latest)];
    let found = Admin::new(cluster.clone()).list_offsets(&latest).await.unwrap();
    let end = found[&wanted].offset.unwrap().0;
    let leader = cluster.metadata().leader(topic, partition).unwrap();
    let connection = cluster.broker(leader, Lane::Common).await.unwrap();
    let id = cluster.metadata().topics[topic].id;
    let mut out = Vec::new();
    let mut offset = 0;
    while offset < end {
        let mut request = wire::FetchRequest { max_bytes: 1 << 20, ..Default::default() };
        request.topics.push(wire::fetch::FetchTopic {
            topic: topic.to_owned(),
            topic_id: id,
            partitions: vec![wire::fetch::FetchPartition {
                partition,
                fetch_offset: offset,
                partition_max_bytes: 1 << 20,
                ..Default::default()
            }],
        });
        let response = connection.call(&request).await.unwrap();
        let data = &response.responses[0].partitions[0];
        assert_eq!(data.error_code, 0);
        let bytes = data.records.clone().unwrap_or_default();
        assert!(!bytes.is_empty(), "nothing at {offset} of {end}");
        for found in Batches::new(&bytes).map_while(Result::ok) {
            let (header, batch) = found;
            model::BatchHeader::decode_checked(batch).unwrap();
            offset = header.next_offset().0;
            let mut plain = Vec::new();
            let compressed = &batch[HEADER_BYTES..];
            compression::decompress(header.compression(), compressed, 1 << 24, &mut plain).unwrap();
            let text =
                |v: Option<&[u8]>| String::from_utf8_lossy(v.unwrap_or(b"null")).into_owned();
            out.extend(Records::new(&plain, header.record_count).map(|r| text(r.unwrap().value)));
        }
    }
    out
}

#[tokio::test]
async fn records_arrive_in_order_with_every_codec() {
    let Some(cluster) = cluster().await else { return };
    for compression in [
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ] {
        let topic = new_topic(&cluster, compression.name(), 1).await;
        let config = ProducerConfig { compression, batch_bytes: 500, ..Default::default() };
        let producer = Producer::new(cluster.clone(), config).await.unwrap();
        let mut deliveries = Vec::new();
        for i in 0..1000 {
            let value = format!("value {i}");
            let record = Record::value(value.as_bytes());
            deliveries.push(producer.send(&topic, &record).await.unwrap());
        }
        producer.flush().await.unwrap();
        for (i, delivery) in deliveries.iter().enumerate() {
            assert_eq!(delivery.wait().await.unwrap(), Some(Offset(i as i64)));
        }
        let expected: Vec<_> = (0..1000).map(|i| format!("value {i}")).collect();
        assert_eq!(values(&cluster, &topic, 0).await, expected, "{}", compression.name());
    }
}

#[tokio::test]
async fn keys_decide_and_the_rest_spreads() {
    let Some(cluster) = cluster().await else { return };
    let topic = new_topic(&cluster, "partitions", 4).await;
    let config = ProducerConfig { batch_bytes: 300, ..Default::default() };
    let producer = Producer::new(cluster.clone(), config).await.unwrap();
    for key in ["a", "b", "foobar", ""] {
        let record = Record::keyed(key.as_bytes(), b"v");
        let delivery = producer.send(&topic, &record).await.unwrap();
        let expected = model::partitioner::partition_of_key(key.as_bytes(), 4);
        assert_eq!(delivery.partition(), expected);
    }
    let mut used = std::collections::BTreeSet::new();
    for _ in 0..500 {
        let delivery = producer.send(&topic, &Record::value(&[7; 100])).await.unwrap();
        used.insert(delivery.partition());
    }
    producer.flush().await.unwrap();
    assert_eq!(used.len(), 4);
}

#[tokio::test]
async fn acks_of_zero_one_and_all_without_idempotence() {
    let Some(cluster) = cluster().await else { return };
    for acks in [0, 1, -1] {
        let topic = new_topic(&cluster, "acks", 1).await;
        let config = ProducerConfig {
            acks,
            idempotence: false,
            linger: Duration::ZERO,
            ..Default::default()
        };
        let producer = Producer::new(cluster.clone(), config).await.unwrap();
        let delivery = producer.send(&topic, &Record::value(b"x")).await.unwrap();
        let offset = delivery.wait().await.unwrap();
        assert_eq!(offset, (acks != 0).then_some(Offset(0)));
        if acks != 0 {
            assert_eq!(values(&cluster, &topic, 0).await, ["x"]);
        }
    }
}

#[tokio::test]
async fn many_tasks_share_a_producer_and_every_record_counts_once() {
    let Some(cluster) = cluster().await else { return };
    let topic = new_topic(&cluster, "many", 3).await;
    let counted = Arc::new(AtomicI32::new(0));
    let counter = counted.clone();
    let config = ProducerConfig {
        linger: Duration::ZERO,
        buffer_bytes: 256 * 1024,
        on_batch: Some(Arc::new(move |report: &BatchReport<'_>| {
            assert!(report.result.is_ok());
            counter.fetch_add(report.record_count, Ordering::Relaxed);
        })),
        ..Default::default()
    };
    let producer = Producer::new(cluster.clone(), config).await.unwrap();
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let (producer, topic) = (producer.clone(), topic.clone());
            tokio::spawn(async move {
                let topic = producer.topic(&topic).await.unwrap();
                for i in 0..2000 {
                    let value = format!("{task}/{i}");
                    topic.send(&Record::value(value.as_bytes())).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    producer.flush().await.unwrap();
    assert_eq!(counted.load(Ordering::Relaxed), 16_000);
    let mut found = Vec::new();
    for partition in 0..3 {
        found.extend(values(&cluster, &topic, partition).await);
    }
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 16_000);
    assert_eq!(producer.free_buffer_bytes(), 256 * 1024);
}

#[tokio::test]
async fn a_record_that_no_request_can_hold_is_refused_at_once() {
    let Some(cluster) = cluster().await else { return };
    let topic = new_topic(&cluster, "large", 1).await;
    let producer = Producer::new(cluster, ProducerConfig::default()).await.unwrap();
    let error = producer.send(&topic, &Record::value(&vec![0; 2 << 20])).await.unwrap_err();
    assert!(matches!(error, client::ClientError::RecordTooLarge { .. }), "{error}");
}

/// A topic that takes no batch above 2,000 bytes.
async fn small_topic(cluster: &Cluster) -> String {
    let name = format!("small-{:08x}", fastrand::u32(..));
    let mut topic = NewTopic::new(&name, 2, 1);
    topic.configs.push(("max.message.bytes".to_owned(), "2000".to_owned()));
    Admin::new(cluster.clone()).create_topic(&topic).await.unwrap();
    name
}

#[tokio::test]
async fn an_idempotent_producer_goes_on_after_a_batch_that_was_refused() {
    let Some(cluster) = cluster().await else { return };
    let topic = small_topic(&cluster).await;
    let config = ProducerConfig { batch_bytes: 200, linger: Duration::ZERO, ..Default::default() };
    let producer = Producer::new(cluster.clone(), config).await.unwrap();
    let mut deliveries = Vec::new();
    for i in 0..300 {
        // Every hundredth is too large; those behind it are refused at first, as out of order.
        let value = if i % 100 == 50 { "x".repeat(5000) } else { format!("{i}") };
        for partition in [0, 1] {
            let record = Record { partition: Some(partition), ..Record::value(value.as_bytes()) };
            deliveries.push((i, producer.send(&topic, &record).await.unwrap()));
        }
    }
    for (i, delivery) in deliveries {
        match delivery.wait().await {
            Ok(_) => assert_ne!(i % 100, 50),
            Err(error) => {
                assert_eq!((i % 100, error.code()), (50, Some(ErrorCode::MessageTooLarge)));
            }
        }
    }
    let expected: Vec<_> = (0..300).filter(|i| i % 100 != 50).map(|i| i.to_string()).collect();
    for partition in [0, 1] {
        assert_eq!(values(&cluster, &topic, partition).await, expected);
    }
}

#[tokio::test]
async fn what_cannot_be_delivered_in_time_is_given_up() {
    let Some(cluster) = cluster().await else { return };
    let name = new_topic(&cluster, "gone", 1).await;
    let config = ProducerConfig { delivery_timeout: Duration::from_secs(1), ..Default::default() };
    let producer = Producer::new(cluster.clone(), config).await.unwrap();
    let topic = producer.topic(&name).await.unwrap();
    Admin::new(cluster.clone()).delete_topics(&[&name]).await.unwrap();
    let delivery = topic.send(&Record::value(b"v")).await.unwrap();
    let error = delivery.wait().await.unwrap_err();
    assert!(error.is_retriable(), "{error}");
    assert_eq!(producer.free_buffer_bytes(), ProducerConfig::default().buffer_bytes);
}

#[tokio::test]
async fn batches_larger_than_the_topic_takes_are_split() {
    let Some(cluster) = cluster().await else { return };
    let topic = small_topic(&cluster).await;
    let config = ProducerConfig { batch_bytes: 256 << 10, ..Default::default() };
    let producer = Producer::new(cluster.clone(), config).await.unwrap();
    let expected: Vec<_> = (0..1000).map(|i| format!("value {i}")).collect();
    for value in &expected {
        let record = Record { partition: Some(0), ..Record::value(value.as_bytes()) };
        producer.send(&topic, &record).await.unwrap();
    }
    producer.flush().await.unwrap();
    assert_eq!(values(&cluster, &topic, 0).await, expected);
}

#[tokio::test]
async fn a_topic_that_was_made_again_is_written_again() {
    let Some(cluster) = cluster().await else { return };
    let name = new_topic(&cluster, "again", 1).await;
    let producer = Producer::new(cluster.clone(), ProducerConfig::default()).await.unwrap();
    producer.send(&name, &Record::value(b"before")).await.unwrap().wait().await.unwrap();
    let admin = Admin::new(cluster.clone());
    admin.delete_topics(&[&name]).await.unwrap();
    admin.create_topic(&NewTopic::new(&name, 1, 1)).await.unwrap();
    let mut deliveries = Vec::new();
    for i in 0..100 {
        let value = format!("{i}");
        deliveries.push(producer.send(&name, &Record::value(value.as_bytes())).await.unwrap());
    }
    for (i, delivery) in deliveries.iter().enumerate() {
        assert_eq!(delivery.wait().await.unwrap(), Some(Offset(i as i64)));
    }
}
