//! Which topics a client asks the cluster for: those that something reads or writes, and no more.

use crate::PATIENCE;
use crate::played::{config, play_as};
use client::{Cluster, ClusterConfig, Consumer, ConsumerConfig, Producer, ProducerConfig, Record};
use model::{ErrorCode, Offset, TopicPartition};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;
use tokio::time::timeout;

/// A cluster whose topics have so many partitions, and what it takes to reach it.
async fn broker(partitions: Arc<AtomicI32>) -> ClusterConfig {
    play_as(None, partitions, Arc::new(|_| Some(ErrorCode::None))).await
}

async fn cluster() -> Cluster {
    Cluster::connect(broker(Arc::new(AtomicI32::new(1))).await).await.unwrap()
}

/// The topics that are known after another answer of the cluster.
async fn known(cluster: &Cluster) -> Vec<String> {
    cluster.refresh().await.unwrap();
    let mut names: Vec<_> = cluster.metadata().topics.keys().map(|name| name.to_string()).collect();
    names.sort();
    names
}

fn consumer(cluster: &Cluster) -> Consumer {
    let group_id = Some("readers".to_owned());
    Consumer::new(cluster.clone(), ConsumerConfig { group_id, ..ConsumerConfig::default() })
}

#[tokio::test]
async fn a_consumer_takes_back_what_it_is_not_subscribed_to_any_more() {
    let cluster = cluster().await;
    let mut one = consumer(&cluster);
    one.subscribe(&["a", "b"]).unwrap();
    assert_eq!(known(&cluster).await, ["a", "b"]);
    one.subscribe(&["b", "c"]).unwrap();
    assert_eq!(known(&cluster).await, ["b", "c"]);
    let mut other = consumer(&cluster);
    other.subscribe(&["c", "d"]).unwrap();
    assert_eq!(known(&cluster).await, ["b", "c", "d"]);
    drop(one);
    assert_eq!(known(&cluster).await, ["c", "d"]);
    other.subscribe(&[]).unwrap();
    assert_eq!(known(&cluster).await, [""; 0]);
}

#[tokio::test]
async fn a_consumer_takes_back_what_it_does_not_read_any_more() {
    let cluster = cluster().await;
    let partition = TopicPartition::new;
    let mut consumer = consumer(&cluster);
    consumer.assign(&[partition("a", 0), partition("b", 0)]).await.unwrap();
    assert_eq!(known(&cluster).await, ["a", "b"]);
    consumer.assign(&[partition("b", 0)]).await.unwrap();
    consumer.add(partition("c", 0), Offset(0));
    consumer.add(partition("c", 1), Offset(0));
    assert_eq!(known(&cluster).await, ["b", "c"]);
    consumer.remove(&partition("b", 0));
    consumer.remove(&partition("c", 0));
    consumer.remove(&partition("c", 1));
    assert_eq!(known(&cluster).await, [""; 0]);
}

#[tokio::test]
async fn a_topic_that_is_not_there_is_not_asked_for_by_a_producer_that_has_heard_so() {
    let config = broker(Arc::new(AtomicI32::new(crate::played::NO_TOPIC))).await;
    let call_timeout = Duration::from_millis(5);
    let cluster = Cluster::connect(ClusterConfig { call_timeout, ..config }).await.unwrap();
    let producer = Producer::new(cluster.clone(), self::config()).await.unwrap();
    assert!(producer.topic("t").await.is_err());
    assert_eq!(known(&cluster).await, [""; 0]);
}

/// A producer that is idle at once, and asks for metadata all the time.
async fn idle_producer(partitions: &Arc<AtomicI32>) -> (Cluster, Producer) {
    let cluster = ClusterConfig {
        topic_idle_max: Duration::ZERO,
        metadata_age_max: Duration::from_millis(1),
        ..broker(partitions.clone()).await
    };
    let cluster = Cluster::connect(cluster).await.unwrap();
    let config = ProducerConfig { linger: Duration::ZERO, ..config() };
    (cluster.clone(), Producer::new(cluster, config).await.unwrap())
}

async fn comes_to_rest(cluster: &Cluster) {
    // The producer looks at its topics whenever it asks for metadata, which it does all the time.
    let rests = async { while !known(cluster).await.is_empty() {} };
    timeout(PATIENCE, rests).await.expect("nothing is sent");
}

#[tokio::test]
async fn a_producer_that_is_idle_takes_its_topic_back_and_asks_again_when_it_sends() {
    let partitions = Arc::new(AtomicI32::new(1));
    let (cluster, producer) = idle_producer(&partitions).await;
    let send = async |partition| {
        let record = Record { partition: Some(partition), ..Record::value(b"v") };
        producer.send("t", &record).await?.wait().await
    };
    send(0).await.unwrap();
    comes_to_rest(&cluster).await;
    partitions.store(3, Ordering::Relaxed);
    send(2).await.unwrap();
    comes_to_rest(&cluster).await;
    send(0).await.unwrap();
}

#[tokio::test]
async fn a_producer_that_was_idle_goes_on_in_its_sequence() {
    let Some(cluster) = crate::cluster().await else { return };
    let topic = crate::new_topic(&cluster, "idle", 1).await;
    let config = ClusterConfig {
        topic_idle_max: Duration::ZERO,
        metadata_age_max: Duration::from_millis(1),
        ..cluster.config().clone()
    };
    let cluster = Cluster::connect(config).await.unwrap();
    let config = ProducerConfig { linger: Duration::ZERO, ..ProducerConfig::default() };
    let producer = Producer::new(cluster.clone(), config).await.unwrap();
    for offset in 0..4 {
        let sent = producer.send(&topic, &Record::value(b"v")).await.unwrap();
        assert_eq!(sent.wait().await.unwrap(), Some(Offset(offset)));
        comes_to_rest(&cluster).await;
    }
}

#[tokio::test]
async fn a_topic_that_is_held_to_be_sent_to_stays_known() {
    let partitions = Arc::new(AtomicI32::new(1));
    let (cluster, producer) = idle_producer(&partitions).await;
    let topic = producer.topic("t").await.unwrap();
    let feed = topic.feed();
    // Each answer to the producer that has the topic raises the generation. Before each question it looks whether the topic is idle.
    let generation = topic.generation();
    let told = async {
        while topic.generation() < generation + 20 {
            assert_eq!(known(&cluster).await, ["t"]);
        }
    };
    timeout(PATIENCE, told).await.expect("the producer asks for its topic");
    drop(topic);
    assert_eq!(known(&cluster).await, ["t"]);
    drop(feed);
    comes_to_rest(&cluster).await;
}

#[tokio::test]
async fn a_record_of_a_topic_that_was_forgotten_finds_its_leader() {
    let cluster = cluster().await;
    let config = ProducerConfig { linger: Duration::from_millis(200), ..config() };
    let producer = Producer::new(cluster.clone(), config).await.unwrap();
    let topic = producer.topic("t").await.unwrap();
    producer.forget("t");
    let sent = topic.send(&Record::value(b"v")).await.unwrap();
    drop(topic);
    // While the record lingers.
    assert_eq!(known(&cluster).await, [""; 0]);
    timeout(PATIENCE, sent.wait()).await.expect("it is sent").unwrap();
}

#[tokio::test]
async fn a_topic_that_was_named_is_asked_for_a_while() {
    let config = broker(Arc::new(AtomicI32::new(1))).await;
    let cluster = Cluster::connect(config.clone()).await.unwrap();
    cluster.topic("t").await.unwrap();
    assert_eq!(known(&cluster).await, ["t"]);
    assert_eq!(cluster.wanted(), ["t"]);
    cluster.unwant("t");
    assert_eq!(known(&cluster).await, [""; 0]);
    let config = ClusterConfig { topic_idle_max: Duration::ZERO, ..config };
    let cluster = Cluster::connect(config).await.unwrap();
    let lease = cluster.lease("t");
    lease.topic().await.unwrap();
    assert!(cluster.known("t").is_some());
    assert_eq!(known(&cluster).await, ["t"], "leased");
    drop(lease);
    assert_eq!(known(&cluster).await, [""; 0]);
}
