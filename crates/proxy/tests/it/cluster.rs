//! Producers and consumers through the proxy, and what a reader without it finds afterwards.

use client::{
    Cluster, ClusterConfig, Consumer, ConsumerConfig, OffsetReset, Producer, ProducerConfig, Record,
};
use model::TopicPartition;
use proxy::fault_injection::FaultAction;
use proxy::{Proxy, ProxyConfig, Shape};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::create_topics::CreatableTopic;

/// How long anything may take on a machine that is busy with much else.
const POLL: Duration = Duration::from_secs(60);
const RECORDS: usize = 2000;

/// A proxy in front of the cluster, and the cluster without it; `None` when there is none.
async fn proxied(faults: &[(u64, FaultAction)], shape: Shape) -> Option<(Proxy, Cluster, Cluster)> {
    let Ok(bootstrap) = std::env::var("CLIENT_TEST_BOOTSTRAP") else {
        eprintln!("passed over: CLIENT_TEST_BOOTSTRAP names no cluster");
        return None;
    };
    let faults = Some(crate::rules::every(faults));
    let config = ProxyConfig { faults, shape, ..ProxyConfig::new(&bootstrap) };
    let proxy = Proxy::start(config).await.unwrap();
    let through = Cluster::connect(ClusterConfig::new(proxy.bootstrap())).await.unwrap();
    let direct = Cluster::connect(ClusterConfig::new(&bootstrap)).await.unwrap();
    Some((proxy, through, direct))
}

/// A topic of its own for each test.
async fn new_topic(cluster: &Cluster, test: &str, partitions: i32) -> String {
    let name = format!("proxy-{test}-{:08x}", fastrand::u32(..));
    let request = wire::CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: name.clone(),
            num_partitions: partitions,
            replication_factor: 1,
            ..CreatableTopic::default()
        }],
        timeout_ms: 30_000,
        ..wire::CreateTopicsRequest::default()
    };
    let response = cluster.call_controller(&request, |_| model::ErrorCode::None).await.unwrap();
    assert_eq!(response.topics[0].error_code, 0, "{response:?}");
    name
}

/// Sends `0`, `1`, … to partition 0, in many small batches, several at a time, and waits until all
/// are acknowledged.
async fn produce(cluster: &Cluster, topic: &str) {
    let config = ProducerConfig {
        idempotence: false,
        batch_bytes: 200,
        linger: Duration::ZERO,
        ..ProducerConfig::default()
    };
    let producer = Producer::new(cluster.clone(), config).await.unwrap();
    let mut deliveries = Vec::new();
    for i in 0..RECORDS {
        let value = i.to_string();
        let record = Record { partition: Some(0), ..Record::value(value.as_bytes()) };
        deliveries.push(producer.send(topic, &record).await.unwrap());
    }
    producer.flush().await.unwrap();
    for delivery in deliveries {
        delivery.wait().await.unwrap();
    }
}

/// The values in partition 0, in order: as many as its end says, and not fewer than `least`.
async fn found(cluster: &Cluster, topic: &str, least: usize) -> Vec<String> {
    let partition = TopicPartition::new(topic, 0);
    let latest = [(partition.clone(), client::OffsetSpec::Latest)];
    let end = client::Admin::new(cluster.clone()).list_offsets(&latest).await.unwrap();
    let end = least.max(end[&partition].offset.unwrap().0 as usize);
    let config =
        ConsumerConfig { offset_reset: OffsetReset::Earliest, ..ConsumerConfig::default() };
    let mut consumer = Consumer::new(cluster.clone(), config);
    consumer.assign(&[partition]).await.unwrap();
    let (mut values, mut buffer) = (Vec::new(), Vec::new());
    while values.len() < end {
        let polled = consumer.poll(POLL).await.unwrap();
        assert!(!polled.is_empty(), "only {} of {end} came", values.len());
        for fetched in polled {
            let value = |v: Option<&[u8]>| String::from_utf8_lossy(v.unwrap()).into_owned();
            fetched.for_each(&mut buffer, |record| values.push(value(record.value))).unwrap();
        }
    }
    values
}

/// How often each of the sent values was found.
fn counts(values: &[String]) -> BTreeMap<usize, usize> {
    let mut counts = (0..RECORDS).map(|i| (i, 0)).collect::<BTreeMap<_, _>>();
    for value in values {
        *counts.get_mut(&value.parse().unwrap()).unwrap() += 1;
    }
    counts
}

#[tokio::test]
async fn everything_goes_through_ports_of_the_proxy() {
    let shape = Shape { jitter_ms: 0.5, ..Shape::rtt(1.0) };
    let Some((proxy, through, direct)) = proxied(&[], shape).await else { return };
    let topic = new_topic(&through, "all", 1).await;
    produce(&through, &topic).await;
    let ports: Vec<_> = proxy.node_ports().into_values().map(i32::from).collect();
    assert!(through.metadata().brokers.values().all(|broker| ports.contains(&broker.port)));
    let config = ConsumerConfig {
        offset_reset: OffsetReset::Earliest,
        ..ConsumerConfig::group(&format!("proxy-{:08x}", fastrand::u32(..)))
    };
    let mut consumer = Consumer::new(through, config);
    consumer.subscribe(&[&topic]).unwrap();
    let (mut count, mut buffer) = (0, Vec::new());
    while count < RECORDS {
        let polled = consumer.poll(POLL).await.unwrap();
        assert!(!polled.is_empty(), "only {count} came");
        for fetched in polled {
            fetched.for_each(&mut buffer, |_| count += 1).unwrap();
        }
    }
    consumer.close().await.unwrap();
    let wanted: Vec<_> = (0..RECORDS).map(|i| i.to_string()).collect();
    assert_eq!(found(&direct, &topic, RECORDS).await, wanted);
    let apis = proxy.traffic().apis;
    for api in ["Produce", "Fetch", "Metadata", "FindCoordinator", "JoinGroup"] {
        assert!(apis.iter().any(|traffic| traffic.api == api && traffic.responses > 0), "{api}");
    }
}

#[tokio::test]
async fn what_is_lost_was_acknowledged_and_is_not_there() {
    let plan = [(10, FaultAction::Lose)];
    let Some((proxy, through, direct)) = proxied(&plan, Shape::default()).await else { return };
    let topic = new_topic(&through, "lost", 1).await;
    produce(&through, &topic).await;
    let lost_records = proxy.faulted_records().lost_records;
    let counts = counts(&found(&direct, &topic, RECORDS - lost_records as usize).await);
    let lost = counts.values().filter(|count| **count == 0).count() as u64;
    assert_eq!(lost, lost_records);
    assert!(lost > 0 && counts.values().all(|count| *count <= 1));
}

#[tokio::test]
async fn what_is_duplicated_is_there_twice() {
    let plan = [(10, FaultAction::Duplicate)];
    let Some((proxy, through, direct)) = proxied(&plan, Shape::default()).await else { return };
    let topic = new_topic(&through, "repeated", 1).await;
    produce(&through, &topic).await;
    // Nobody waited for the second one of the last pair.
    let repeated = proxy.faulted_records().duplicated_records;
    let counts = counts(&found(&direct, &topic, RECORDS + repeated as usize).await);
    let twice = counts.values().filter(|count| **count == 2).count() as u64;
    assert_eq!(twice, repeated);
    assert!(twice > 0 && counts.values().all(|count| *count >= 1));
}

#[tokio::test]
async fn what_is_reordered_is_there_once_behind_later_ones() {
    let plan = [(10, FaultAction::Reorder)];
    let Some((proxy, through, direct)) = proxied(&plan, Shape::default()).await else { return };
    let topic = new_topic(&through, "reordered", 1).await;
    produce(&through, &topic).await;
    let values = found(&direct, &topic, RECORDS).await;
    assert!(counts(&values).values().all(|count| *count == 1));
    let numbers: Vec<usize> = values.iter().map(|value| value.parse().unwrap()).collect();
    let back = numbers.windows(2).filter(|pair| pair[1] < pair[0]).count() as u64;
    assert_eq!(back, proxy.faulted_records().reordered_pairs);
    assert!(back > 0);
}

#[tokio::test]
async fn what_is_damaged_is_there_with_another_value() {
    let plan = [(10, FaultAction::Damage)];
    let Some((proxy, through, direct)) = proxied(&plan, Shape::default()).await else { return };
    let topic = new_topic(&through, "damaged", 1).await;
    produce(&through, &topic).await;
    let values = found(&direct, &topic, RECORDS).await;
    let other = values.iter().enumerate().filter(|(i, value)| **value != i.to_string()).count();
    assert_eq!(values.len(), RECORDS);
    assert_eq!(other as u64, proxy.faulted_records().damaged_records);
    assert!(other > 0);
}
