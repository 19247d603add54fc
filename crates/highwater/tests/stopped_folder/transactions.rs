//! `log adopt` on a folder of Kafka with transactions and with groups of both signs of the hash code: the records and
//! offsets that Kafka's clients saw in Kafka.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use super::{copy, run, text};
use crate::Broker;

/// How long a read may take on a machine that is busy with other work.
const PATIENCE: Duration = Duration::from_secs(120);

fn stored() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stopped_folder/kafka-4.3.1-transactions"))
}

/// The lines of `expected.txt` with this first word, without it.
fn expected(first: &str) -> Vec<String> {
    let content = fs::read_to_string(stored().join("expected.txt")).unwrap();
    let lines = content.lines().filter_map(|line| line.strip_prefix(first)?.strip_prefix(' '));
    lines.map(str::to_owned).collect()
}

/// Offset of each group that Kafka's admin client listed.
fn expected_groups() -> BTreeMap<String, i64> {
    let content = fs::read_to_string(stored().join("expected.txt")).unwrap();
    let lines = content.lines().filter(|line| !line.starts_with("read_"));
    let words = lines.map(|line| line.split(' ').collect::<Vec<_>>());
    words.map(|words| (words[0].to_owned(), words[1].parse().unwrap())).collect()
}

/// Offsets and values of `ledger-0` as librdkafka reads them.
fn read(broker: &Broker, isolation: &str) -> Vec<String> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", &broker.address)
        .set("group.id", "reader")
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        .set("isolation.level", isolation)
        .create()
        .unwrap();
    let mut from = TopicPartitionList::new();
    from.add_partition_offset("ledger", 0, Offset::Beginning).unwrap();
    consumer.assign(&from).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let mut found = Vec::new();
    loop {
        assert!(Instant::now() < deadline, "{found:?}");
        match consumer.poll(Duration::from_secs(1)) {
            Some(Ok(message)) => {
                let value = String::from_utf8_lossy(message.payload().unwrap()).into_owned();
                found.push(format!("{} {value}", message.offset()));
            }
            Some(Err(rdkafka::error::KafkaError::PartitionEOF(_))) => return found,
            Some(Err(error)) => panic!("{error}"),
            None => {}
        }
    }
}

fn group_offset(broker: &Broker, group: &str) -> i64 {
    let described = broker.run(&format!("group describe {group} --format json"));
    let described: serde_json::Value = serde_json::from_str(&described).unwrap();
    let text = described.to_string();
    let (_, rest) = text.split_once(r#""current_offset":"#).expect("an offset is stored");
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

#[test]
fn kafkas_transactions_and_groups_are_adopted_as_kafkas_clients_saw_them() {
    // The source has 4 partitions of groups: adoption places each group anew.
    for partitions in [4, 7] {
        let folder = tempfile::tempdir().unwrap();
        let (data, source) = (folder.path().join("data"), folder.path().join("kafka"));
        copy(&stored().join("killed"), &source);
        let setting = format!("offsets.topic.num.partitions={partitions}");
        let broker = Broker::start_with(&data, &[&setting]);
        broker.run("topic create ledger -p 1 -c retention.ms=-1");
        broker.fail("group describe any");
        broker.stop();
        for topic in ["ledger", "__consumer_offsets"] {
            let adopt = ["log", "adopt", text(&source), "--topic", topic, "--into", text(&data)];
            let first = run(&adopt);
            assert!(first.contains(": has ") && !first.contains("already"), "{first}");
            let again = run(&adopt);
            assert!(again.lines().all(|line| line.contains("already")), "{again}");
        }
        for is_killed in [true, false] {
            let broker = Broker::start_with(&data, &[&setting]);
            for isolation in ["read_committed", "read_uncommitted"] {
                assert_eq!(read(&broker, isolation), expected(isolation), "{isolation}");
            }
            for (group, offset) in expected_groups() {
                assert_eq!(group_offset(&broker, &group), offset, "{group}");
            }
            let listed = broker.run("group list");
            assert!(!listed.contains("never") && !listed.contains("gone"), "{listed}");
            if is_killed { drop(broker) } else { broker.stop() }
        }
    }
}
