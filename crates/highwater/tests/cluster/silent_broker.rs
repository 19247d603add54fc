//! A broker that does not answer: it delays a producer's records for its own partitions only, also while another broker
//! refuses records of the same producer.

use client::{Cluster, ClusterConfig, Producer, ProducerConfig, Record};
use model::{ErrorCode, Timestamp};

use super::*;

/// A time that the topic refuses: in the year 3000.
const FAR: Timestamp = Timestamp(32_503_680_000_000);
/// Of the producer; longer than a broker that does not answer may delay other partitions.
const DELIVERY_LIMIT: Duration = Duration::from_secs(60);

/// A partition of the topic that this broker leads.
fn led_by(cluster: &Cluster, topic: &str, broker: i32) -> i32 {
    let metadata = cluster.metadata();
    let partitions = &metadata.topics[topic].partitions;
    let led = partitions.iter().find(|partition| partition.leader == Some(broker));
    led.unwrap_or_else(|| panic!("{broker} leads nothing of {topic}")).index
}

#[test]
fn a_broker_that_does_not_answer_delays_no_partition_of_another_one() {
    let (_place, folder) = place();
    let up = Up::of(&folder, 3, &[]);
    up.run("topic create t -p 6 -r 1 -c message.timestamp.after.max.ms=1000");
    let silent = up.brokers[2].clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut config = ClusterConfig::new(&up.brokers[0].address);
        // No request to the silent broker ends before its batch is given up.
        config.connection.request_timeout = 2 * DELIVERY_LIMIT;
        let cluster = Cluster::connect(config).await.unwrap();
        let config = ProducerConfig {
            linger: Duration::ZERO,
            request_timeout: 2 * DELIVERY_LIMIT,
            delivery_timeout: DELIVERY_LIMIT,
            ..ProducerConfig::default()
        };
        let producer = Producer::new(cluster.clone(), config).await.unwrap();
        let topic = producer.topic("t").await.unwrap();
        let [good, refusing, stuck] = [1, 2, 3].map(|broker| led_by(&cluster, "t", broker));
        let record = |partition| Record { partition: Some(partition), ..Record::value(b"v") };
        for partition in [good, refusing, stuck] {
            topic.send(&record(partition)).await.unwrap().wait().await.unwrap();
        }
        silent.pause();
        let waiting = topic.send(&record(stuck)).await.unwrap();
        for _ in 0..20 {
            let far = Record { timestamp: Some(FAR), ..record(refusing) };
            let far = topic.send(&far).await.unwrap();
            // In flight behind the refused batch, so that its partition has to recover.
            let behind = topic.send(&record(refusing)).await.unwrap();
            let refused = far.fate().await.unwrap_err();
            assert_eq!(refused.error.code(), Some(ErrorCode::InvalidTimestamp));
            behind.wait().await.unwrap();
            for partition in [good, refusing] {
                topic.send(&record(partition)).await.unwrap().wait().await.unwrap();
            }
        }
        assert!(!waiting.is_done());
        silent.resume();
        waiting.wait().await.unwrap();
    });
    up.stop();
}
