//! Consuming what was produced, by hand and in groups.

use crate::{PATIENCE, cluster, new_topic};
use client::{
    Admin, Cluster, Consumer, ConsumerConfig, OffsetReset, OffsetSpec, Once, Producer,
    ProducerConfig, Record, read_once,
};
use model::{Compression, ErrorCode, Offset, Timestamp, TopicPartition};
use std::collections::BTreeSet;
use std::time::Duration;

/// A member that a busy machine holds up for a while stays a member.
fn from_the_start(group: Option<&str>) -> ConsumerConfig {
    ConsumerConfig {
        group_id: group.map(str::to_owned),
        offset_reset: OffsetReset::Earliest,
        session_timeout: PATIENCE,
        heartbeat_interval: Duration::from_millis(200),
        rebalance_timeout: PATIENCE,
        auto_commit: None,
        ..Default::default()
    }
}

/// Produces `p/0`, `p/1`, … into each partition, at timestamps 1000, 1010, ….
async fn fill(cluster: &Cluster, topic: &str, partitions: i32, from: i64, count: i64) {
    let config =
        ProducerConfig { compression: Compression::Lz4, batch_bytes: 400, ..Default::default() };
    let producer = Producer::new(cluster.clone(), config).await.unwrap();
    for partition in 0..partitions {
        for i in from..from + count {
            let value = format!("{partition}/{i}");
            let record = Record {
                value: Some(value.as_bytes()),
                partition: Some(partition),
                timestamp: Some(Timestamp(1000 + 10 * i)),
                ..Record::default()
            };
            producer.send(topic, &record).await.unwrap();
        }
    }
    producer.flush().await.unwrap();
}

fn partitions(topic: &str, count: i32) -> Vec<TopicPartition> {
    (0..count).map(|p| TopicPartition::new(topic, p)).collect()
}

/// Polls until so many values came, and checks that each partition is in order.
async fn read(consumer: &mut Consumer, count: usize) -> Vec<String> {
    let mut out = Vec::new();
    let mut next = std::collections::HashMap::new();
    let mut buffer = Vec::new();
    while out.len() < count {
        let polled = consumer.poll(PATIENCE).await.unwrap();
        assert!(!polled.is_empty(), "only {} of {count} came", out.len());
        for fetched in polled {
            let partition = fetched.partition.clone();
            fetched
                .for_each(&mut buffer, |record| {
                    let expected = next.insert(partition.clone(), record.offset.next());
                    assert!(expected.is_none_or(|e| e == record.offset), "{partition} has a hole");
                    out.push(String::from_utf8_lossy(record.value.unwrap()).into_owned());
                })
                .unwrap();
        }
    }
    out
}

#[tokio::test]
async fn everything_that_was_produced_is_read_in_order() {
    let Some(cluster) = cluster().await else { return };
    let topic = new_topic(&cluster, "read", 3).await;
    fill(&cluster, &topic, 3, 0, 500).await;
    let mut config = from_the_start(None);
    config.partition_bytes_max = 2000;
    let mut consumer = Consumer::new(cluster.clone(), config);
    consumer.assign(&partitions(&topic, 3)).await.unwrap();
    let values: BTreeSet<_> = read(&mut consumer, 1500).await.into_iter().collect();
    assert_eq!(values.len(), 1500);
    // What comes later is read by the session that is open.
    fill(&cluster, &topic, 3, 500, 10).await;
    assert_eq!(read(&mut consumer, 30).await.len(), 30);
    assert_eq!(consumer.position(&partitions(&topic, 3)[1]), Some(Offset(510)));
}

#[tokio::test]
async fn a_consumer_goes_where_it_is_told() {
    let Some(cluster) = cluster().await else { return };
    let topic = new_topic(&cluster, "seek", 2).await;
    fill(&cluster, &topic, 2, 0, 100).await;
    let both = partitions(&topic, 2);
    let mut consumer = Consumer::new(cluster.clone(), from_the_start(None));
    consumer.assign(&both).await.unwrap();
    consumer.pause(&both[0]).unwrap();
    consumer.seek(&both[1], Offset(95)).unwrap();
    assert_eq!(read(&mut consumer, 5).await, ["1/95", "1/96", "1/97", "1/98", "1/99"]);
    consumer.pause(&both[1]).unwrap();
    consumer.resume(&both[0]).unwrap();
    consumer.seek(&both[0], Offset(98)).unwrap();
    assert_eq!(read(&mut consumer, 2).await, ["0/98", "0/99"]);
    // An offset that does not exist: from the start again.
    consumer.seek(&both[0], Offset(100_000)).unwrap();
    let values = read(&mut consumer, 100).await;
    assert_eq!((values.len(), &*values[0]), (100, "0/0"));
}

#[tokio::test]
async fn a_partition_that_fails_by_itself_stops_no_other() {
    let Some(cluster) = cluster().await else { return };
    let topic = new_topic(&cluster, "apart", 2).await;
    fill(&cluster, &topic, 2, 0, 10).await;
    let both = partitions(&topic, 2);
    let config = ConsumerConfig { failures_apart: true, ..from_the_start(None) };
    let mut consumer = Consumer::new(cluster.clone(), config);
    consumer.add(both[0].clone(), Offset(100_000));
    consumer.add(both[1].clone(), Offset(7));
    let (mut values, mut failures) = (Vec::new(), Vec::new());
    while values.len() < 3 || failures.is_empty() {
        for fetched in consumer.poll(PATIENCE).await.unwrap() {
            let text = |record: client::ConsumerRecord<'_>| {
                values.push(String::from_utf8_lossy(record.value.unwrap()).into_owned());
            };
            fetched.for_each(&mut Vec::new(), text).unwrap();
        }
        failures.extend(consumer.take_failures());
    }
    assert_eq!(values, ["1/7", "1/8", "1/9"]);
    let [(partition, error)] = &failures[..] else { panic!("{failures:?}") };
    assert_eq!((partition, error.code()), (&both[0], Some(ErrorCode::OffsetOutOfRange)));
    assert_eq!(consumer.assignment(), both[1..]);
}

#[tokio::test]
async fn one_fetch_needs_no_consumer() {
    let Some(cluster) = cluster().await else { return };
    let topic = new_topic(&cluster, "once", 1).await;
    fill(&cluster, &topic, 1, 0, 10).await;
    cluster.topic(&topic).await.unwrap();
    let lane = cluster.private_lane();
    let read = async |offset| {
        let partition = TopicPartition::new(&*topic, 0);
        let wish = Once {
            partition,
            offset: Offset(offset),
            bytes_max: 1 << 20,
            wait: Duration::ZERO,
            read_committed: true,
        };
        read_once(&lane, &wish).await
    };
    let fetched = read(8).await.unwrap();
    let mut offsets = Vec::new();
    fetched.for_each(&mut Vec::new(), |record| offsets.push(record.offset.0)).unwrap();
    assert_eq!((offsets, fetched.next_offset), (vec![8, 9], Offset(10)));
    assert!(read(10).await.unwrap().is_empty(), "nothing is waited for");
    assert_eq!(read(11).await.unwrap_err().code(), Some(ErrorCode::OffsetOutOfRange));
    let term = [(TopicPartition::new(&*topic, 0), fetched.leader_epoch)];
    let ends = client::offsets::epoch_ends(&cluster, &term).await.unwrap();
    assert_eq!(ends[&term[0].0], Some(Offset(10)));
}

#[tokio::test]
async fn offsets_are_found_by_time() {
    let Some(cluster) = cluster().await else { return };
    let topic = new_topic(&cluster, "time", 1).await;
    fill(&cluster, &topic, 1, 0, 100).await;
    let consumer = Consumer::new(cluster.clone(), from_the_start(None));
    let partition = TopicPartition::new(&*topic, 0);
    for (spec, expected) in [
        (OffsetSpec::Earliest, Some(0)),
        (OffsetSpec::Latest, Some(100)),
        (OffsetSpec::AtOrAfter(Timestamp(1495)), Some(50)),
        (OffsetSpec::AtOrAfter(Timestamp(1_000_000)), None),
        (OffsetSpec::MaxTimestamp, Some(99)),
    ] {
        let found = consumer.offsets(&[(partition.clone(), spec)]).await.unwrap();
        assert_eq!(found[&partition].offset, expected.map(Offset), "{spec:?}");
    }
}

#[tokio::test]
async fn a_group_goes_on_where_it_committed() {
    let Some(cluster) = cluster().await else { return };
    let topic = new_topic(&cluster, "commit", 1).await;
    let group = format!("group-{topic}");
    fill(&cluster, &topic, 1, 0, 100).await;
    let partition = TopicPartition::new(&*topic, 0);
    let mut first = Consumer::new(cluster.clone(), from_the_start(Some(&group)));
    first.assign(std::slice::from_ref(&partition)).await.unwrap();
    assert_eq!(read(&mut first, 100).await.len(), 100);
    first.commit().await.unwrap();
    fill(&cluster, &topic, 1, 100, 3).await;
    let mut second = Consumer::new(cluster.clone(), from_the_start(Some(&group)));
    second.assign(std::slice::from_ref(&partition)).await.unwrap();
    assert_eq!(read(&mut second, 3).await, ["0/100", "0/101", "0/102"]);
    let committed = second.committed(std::slice::from_ref(&partition)).await.unwrap();
    assert_eq!(committed[&partition].offset, Offset(100));
}

/// Polls until the consumer has so many partitions.
async fn settle(consumer: &mut Consumer, count: usize) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while consumer.assignment().len() != count {
        assert!(std::time::Instant::now() < deadline, "still {:?}", consumer.assignment());
        consumer.poll(Duration::from_millis(50)).await.unwrap();
    }
}

#[tokio::test]
async fn members_share_partitions_and_take_over_from_who_leaves() {
    let Some(cluster) = cluster().await else { return };
    for assignor in [
        client::consumer::assignor::Assignor::Range,
        client::consumer::assignor::Assignor::RoundRobin,
    ] {
        let topic = new_topic(&cluster, "members", 4).await;
        let group = format!("group-{topic}");
        let config = ConsumerConfig { assignors: vec![assignor], ..from_the_start(Some(&group)) };
        let mut first = Consumer::new(cluster.clone(), config.clone());
        first.subscribe(&[&topic]).unwrap();
        settle(&mut first, 4).await;
        let mut second = Consumer::new(cluster.clone(), config);
        second.subscribe(&[&topic]).unwrap();
        let ((), ()) = tokio::join!(settle(&mut first, 2), settle(&mut second, 2));
        let all: BTreeSet<_> = first.assignment().into_iter().chain(second.assignment()).collect();
        assert_eq!(all.len(), 4, "{assignor:?}");
        second.close().await.unwrap();
        settle(&mut first, 4).await;
        fill(&cluster, &topic, 4, 0, 5).await;
        assert_eq!(read(&mut first, 20).await.len(), 20);
        first.close().await.unwrap();
    }
}

/// Who leaves while the group waits for another member has left: the answer to its join is not waited for.
#[tokio::test]
async fn a_member_leaves_in_the_middle_of_a_join() {
    let Some(cluster) = cluster().await else { return };
    let topic = new_topic(&cluster, "leaving", 1).await;
    let group = format!("group-{topic}");
    let config = ConsumerConfig { rebalance_timeout: 4 * PATIENCE, ..from_the_start(Some(&group)) };
    let mut first = Consumer::new(cluster.clone(), config.clone());
    first.subscribe(&[&topic]).unwrap();
    // From here on it beats, and does not join again.
    settle(&mut first, 1).await;
    let admin = Admin::new(cluster.clone());
    let members = async || admin.describe_group(&group).await.unwrap().members.len();
    let mut second = Consumer::new(cluster, config);
    second.subscribe(&[&topic]).unwrap();
    let asked = async {
        while members().await != 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        polled = second.poll(Duration::ZERO) => panic!("{polled:?}"),
        () = asked => {}
    }
    second.close().await.unwrap();
    assert_eq!(members().await, 1);
}

/// A poll that is dropped in the middle, again and again, loses nothing and gives nothing twice.
#[tokio::test]
async fn polls_that_are_dropped_lose_nothing() {
    let Some(cluster) = cluster().await else { return };
    let topic = new_topic(&cluster, "dropped", 3).await;
    fill(&cluster, &topic, 3, 0, 300).await;
    let mut consumer = Consumer::new(cluster, from_the_start(None));
    consumer.assign(&partitions(&topic, 3)).await.unwrap();
    let (mut values, mut buffer, mut wakes) = (Vec::new(), Vec::new(), 0);
    while values.len() < 900 {
        wakes = wakes % 7 + 1;
        let mut polling = std::pin::pin!(consumer.poll(PATIENCE));
        let mut left = wakes;
        // Polled so often, then dropped.
        let polled = std::future::poll_fn(|cx| match polling.as_mut().poll(cx) {
            std::task::Poll::Ready(polled) => std::task::Poll::Ready(Some(polled.unwrap())),
            std::task::Poll::Pending if left == 0 => std::task::Poll::Ready(None),
            std::task::Poll::Pending => {
                left -= 1;
                std::task::Poll::Pending
            }
        });
        for fetched in polled.await.unwrap_or_default() {
            fetched
                .for_each(&mut buffer, |record| {
                    values.push(String::from_utf8(record.value.unwrap().to_vec()).unwrap());
                })
                .unwrap();
        }
    }
    let distinct: BTreeSet<_> = values.iter().cloned().collect();
    assert_eq!((values.len(), distinct.len()), (900, 900));
}

/// A member that subscribes to other topics stays a member, and commits what it has read of the ones before.
#[tokio::test]
async fn a_member_that_subscribes_anew_stays_in_its_group() {
    let Some(cluster) = cluster().await else { return };
    let (first, second) =
        (new_topic(&cluster, "anew", 1).await, new_topic(&cluster, "anew", 1).await);
    fill(&cluster, &first, 1, 0, 10).await;
    fill(&cluster, &second, 1, 0, 10).await;
    let group = format!("anew-{first}");
    let config =
        ConsumerConfig { auto_commit: Some(PATIENCE), ..from_the_start(Some(group.as_str())) };
    let mut consumer = Consumer::new(cluster.clone(), config);
    consumer.subscribe(&[&first]).unwrap();
    read(&mut consumer, 10).await;
    let generation = consumer.generation_id().unwrap();
    consumer.subscribe(&[&first]).unwrap();
    assert!(!consumer.must_join(), "nothing has changed");
    consumer.subscribe(&[&second]).unwrap();
    assert!(consumer.must_join());
    let values = read(&mut consumer, 10).await;
    assert!(values.iter().all(|value| value.starts_with("0/")), "{values:?}");
    assert_eq!(consumer.assignment(), partitions(&second, 1));
    assert_eq!(
        consumer.generation_id(),
        Some(generation + 1),
        "the same member, in the next generation"
    );
    let committed = consumer.committed(&partitions(&first, 1)).await.unwrap();
    assert_eq!(committed[&partitions(&first, 1)[0]].offset, Offset(10));
    consumer.close().await.unwrap();
}
