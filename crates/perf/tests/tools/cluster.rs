//! The tools against a cluster.

use crate::lines::{CONSUME, CONSUME_DETAILED, E2E, PRODUCE};
use crate::lines::{assert_shapes, consumed, latencies, sent_by_commas, shape};
use crate::{run, succeed};
use client::admin::NewTopic;
use client::{Admin, Cluster, ClusterConfig, Consumer, ConsumerConfig, OffsetReset};
use model::TopicPartition;
use perf::tools::Tool;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long anything may take on a machine that is busy with much else.
const PATIENCE: Duration = Duration::from_secs(60);

/// The cluster to test against; `None` when there is none.
fn bootstrap() -> Option<String> {
    let bootstrap = std::env::var("CLIENT_TEST_BOOTSTRAP").ok();
    if bootstrap.is_none() {
        eprintln!("passed over: CLIENT_TEST_BOOTSTRAP names no cluster");
    }
    bootstrap
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(future)
}

fn new_topic(bootstrap: &str, test: &str, partitions: i32) -> String {
    let name = format!("perf-{test}-{:08x}", fastrand::u32(..));
    block_on(async {
        let cluster = Cluster::connect(ClusterConfig::new(bootstrap)).await.unwrap();
        let topic = NewTopic::new(&name, partitions, 1);
        Admin::new(cluster).create_topic(&topic).await.unwrap();
    });
    name
}

/// A record as it was read.
#[derive(Debug, Clone, PartialEq)]
struct Found {
    partition: i32,
    key: Option<Vec<u8>>,
    value: Vec<u8>,
    headers: Vec<(String, Option<Vec<u8>>)>,
}

/// Reads what is there but for open and aborted transactions.
fn read(bootstrap: &str, topic: &str, partitions: i32, count: usize) -> Vec<Found> {
    block_on(async {
        let cluster = Cluster::connect(ClusterConfig::new(bootstrap)).await.unwrap();
        let config = ConsumerConfig {
            offset_reset: OffsetReset::Earliest,
            read_committed: true,
            ..ConsumerConfig::default()
        };
        let mut consumer = Consumer::new(cluster, config);
        let all: Vec<_> = (0..partitions).map(|p| TopicPartition::new(topic, p)).collect();
        consumer.assign(&all).await.unwrap();
        let mut out = Vec::new();
        while out.len() < count {
            let polled = consumer.poll(PATIENCE).await.unwrap();
            assert!(!polled.is_empty(), "only {} of {count} came", out.len());
            for fetched in polled {
                let partition = fetched.partition.partition.0;
                let found = |r: client::ConsumerRecord<'_>| {
                    let header = |(name, value): (&str, Option<&[u8]>)| {
                        (name.to_owned(), value.map(<[u8]>::to_vec))
                    };
                    out.push(Found {
                        partition,
                        key: r.key.map(<[u8]>::to_vec),
                        value: r.value.unwrap().to_vec(),
                        headers: r.headers().map(header).collect(),
                    });
                };
                fetched.for_each(&mut Vec::new(), found).unwrap();
            }
        }
        out
    })
}

fn fill(bootstrap: &str, topic: &str, more: &str) -> Vec<String> {
    let line = format!("--bootstrap-server {bootstrap} --topic {topic} {more}");
    succeed(Tool::Produce, &line).lines
}

/// What Kafka's own tool writes, if there is a command that runs it.
fn kafkas(tool: Tool, line: &str) -> Option<Vec<String>> {
    let command = std::env::var("KAFKA_TOOL").ok()?;
    let mut words = command.split_whitespace();
    let output = std::process::Command::new(words.next()?)
        .args(words)
        .arg(tool.name())
        .args(line.split_whitespace())
        .output()
        .unwrap();
    assert!(output.status.success(), "{line}: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    Some(text.lines().map(str::to_owned).collect())
}

#[test]
fn kafkas_tools_and_ours_take_the_same_lines_and_write_alike() {
    let Some(bootstrap) = bootstrap() else { return };
    let topic = new_topic(&bootstrap, "alike", 1);
    let produce = format!(
        "--bootstrap-server {bootstrap} --topic {topic} --num-records 3000 --record-size 100 \
         --throughput 3000 --reporting-interval 200 --warmup-records 1500"
    );
    let consume = format!(
        "--bootstrap-server {bootstrap} --topic {topic} --num-records 3000 --timeout 60000"
    );
    let latency = format!("{bootstrap} {topic} 20 1 100");
    let mut lines =
        vec![(Tool::Produce, &produce), (Tool::Consume, &consume), (Tool::EndToEnd, &latency)];
    let transactions = format!("{produce} --transaction-duration-ms 200");
    if offers_transactions(&bootstrap) {
        lines.push((Tool::Produce, &transactions));
    }
    for (tool, line) in lines {
        let ours = succeed(tool, line).lines;
        let shapes = |lines: &[String]| -> BTreeSet<String> {
            lines.iter().map(|line| shape(line)).collect()
        };
        if let Some(kafkas) = kafkas(tool, line) {
            assert_eq!(shapes(&ours), shapes(&kafkas), "{line}");
        }
    }
}

#[test]
fn what_is_sent_is_there() {
    let Some(bootstrap) = bootstrap() else { return };
    let topic = new_topic(&bootstrap, "sent", 3);
    let lines = fill(
        &bootstrap,
        &topic,
        "--num-records 3000 --record-size 64 --throughput -1 --key-cardinality 10 \
         --num-headers 2 --record-header-key-size 3 --record-header-size -1 --producers 2",
    );
    assert_shapes(&lines, PRODUCE);
    assert_eq!(sent_by_commas(lines.last().unwrap()).records, 3000);
    let found = read(&bootstrap, &topic, 3, 3000);
    assert_eq!(found.len(), 3000);
    let mut places: BTreeMap<Vec<u8>, i32> = BTreeMap::new();
    for record in &found {
        assert_eq!(record.value.len(), 64);
        assert!(record.value.iter().all(u8::is_ascii_uppercase));
        let header = |(name, value): &(String, Option<Vec<u8>>)| name.len() == 3 && value.is_none();
        assert!(record.headers.len() == 2 && record.headers.iter().all(header));
        let key = record.key.clone().unwrap();
        let place = *places.entry(key).or_insert(record.partition);
        assert_eq!(place, record.partition, "a key stays in its partition");
    }
    assert_eq!(places.len(), 10);
    assert_ne!(found[0].value, found[1].value, "values are fresh");
}

#[test]
fn values_count_up_where_that_is_asked_for() {
    let Some(bootstrap) = bootstrap() else { return };
    let topic = new_topic(&bootstrap, "monotonic", 1);
    fill(&bootstrap, &topic, "--num-records 1200 --payload-monotonic --throughput -1");
    let values = read(&bootstrap, &topic, 1, 1200);
    for (number, record) in values.iter().enumerate() {
        assert_eq!(record.value, number.to_string().as_bytes());
        assert_eq!(record.key, None);
    }
}

#[test]
fn one_value_may_be_used_for_all_records() {
    let Some(bootstrap) = bootstrap() else { return };
    let topic = new_topic(&bootstrap, "reuse", 1);
    let more = "--num-records 10 --record-size 40 --throughput -1 --payload-mode reuse";
    fill(&bootstrap, &topic, more);
    let expected = b"SSXVNJHPDQDXVCRASTVYBCWVMGNYKRXVZXKGXTSP";
    assert!(read(&bootstrap, &topic, 1, 10).iter().all(|record| record.value == expected));
}

#[test]
fn what_is_there_is_consumed_and_reported() {
    let Some(bootstrap) = bootstrap() else { return };
    let topic = new_topic(&bootstrap, "consumed", 2);
    fill(&bootstrap, &topic, "--num-records 5000 --record-size 100 --throughput -1");
    // As in 2018.
    let line =
        format!("--topic {topic} --messages 5000 --fetch-size 1000 --broker-list {bootstrap}");
    let written = succeed(Tool::Consume, &format!("{line} --threads 4 --timeout 60000"));
    let notice = "Warning: --messages is deprecated. Use --num-records instead.";
    assert_eq!(written.lines[0], notice);
    assert_shapes(&written.lines[1..], CONSUME);
    let (_, _, numbers) = consumed(&written.lines[2]);
    let [mb, _, records, _, rebalance_ms, fetch_ms, ..] = numbers;
    assert_eq!((records, mb), (5000.0, 0.4768));
    assert!(rebalance_ms >= 0.0 && fetch_ms >= 0.0, "{numbers:?}");
    // By hand, from the middle, at most as much as is there.
    let line = format!(
        "--topic {topic} --bootstrap-server {bootstrap} --num-records 100 --partitions 0,1 \
         --offsets 100 --hide-header --timeout 60000"
    );
    let written = succeed(Tool::Consume, &line);
    let (_, _, numbers) = consumed(&written.lines[0]);
    assert!((100.0..600.0).contains(&numbers[2]), "{numbers:?}");
    assert_eq!(numbers[4], 0.0, "nothing to rebalance");
}

#[test]
fn a_group_goes_on_behind_what_was_counted() {
    let Some(bootstrap) = bootstrap() else { return };
    let topic = new_topic(&bootstrap, "goes-on", 1);
    fill(&bootstrap, &topic, "--num-records 5000 --record-size 10 --throughput -1");
    let group = format!("group-of-{topic}");
    for expected in [1000, 2000] {
        let line = format!(
            "--topic {topic} --bootstrap-server {bootstrap} --num-records 700 --group {group} \
             --hide-header --timeout 60000"
        );
        let written = succeed(Tool::Consume, &line);
        // Two polls of 500, though one fetch brought all.
        assert_eq!(consumed(&written.lines[0]).2[2], 1000.0);
        let partition = TopicPartition::new(topic.as_str(), 0);
        let committed = block_on(async {
            let cluster = Cluster::connect(ClusterConfig::new(&bootstrap)).await.unwrap();
            let consumer = Consumer::new(cluster, ConsumerConfig::group(&group));
            consumer.committed(std::slice::from_ref(&partition)).await.unwrap()
        });
        assert_eq!(committed[&partition].offset.0, expected);
    }
}

#[test]
fn intervals_are_reported_and_the_whole_where_that_is_asked_for() {
    let Some(bootstrap) = bootstrap() else { return };
    let topic = new_topic(&bootstrap, "intervals", 1);
    fill(&bootstrap, &topic, "--num-records 20000 --record-size 100 --throughput -1");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    let line = format!(
        "--include {topic} --bootstrap-server {bootstrap} --num-records 20000 --reporting-interval \
         1 --show-detailed-stats --timeout 60000 --output-path {}",
        path.display()
    );
    let written = succeed(Tool::Consume, &line);
    assert_shapes(&written.lines, CONSUME_DETAILED);
    assert!(written.lines.len() > 1);
    let json: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(json["total"]["records"], 20_000);
    assert_eq!(json["intervals"].as_array().unwrap().len(), written.lines.len() - 1);
    let written = succeed(Tool::Consume, &format!("{line} --summary --print-metrics"));
    let header = written.lines.iter().position(|line| line.starts_with("start.time,")).unwrap();
    assert_eq!(consumed(&written.lines[header + 1]).2[2], 20_000.0);
}

#[test]
fn too_few_records_are_warned_of() {
    let Some(bootstrap) = bootstrap() else { return };
    let topic = new_topic(&bootstrap, "few", 1);
    fill(&bootstrap, &topic, "--num-records 10 --record-size 10 --throughput -1");
    let line = format!("--topic {topic} --bootstrap-server {bootstrap} --num-records 11");
    let count_within = |timeout_ms: u32| {
        let line = format!("{line} --partitions 0 --timeout {timeout_ms}");
        let written = succeed(Tool::Consume, &line);
        let [_, warning, whole] = &written.lines[..] else { panic!("{:?}", written.lines) };
        assert!(warning.starts_with("WARNING: Exiting before consuming the expected number of"));
        let expected = format!("timeout ({timeout_ms} ms) exceeded");
        assert!(warning.contains(&expected), "{warning}");
        consumed(whole).2[2]
    };
    // On a machine that is too busy the ten records do not come in the shorter times either.
    let mut counts = [300, 3_000, 30_000].into_iter().map(count_within);
    assert!(counts.any(|count| count == 10.0), "the ten records are not read");
}

#[test]
fn records_are_timed_from_end_to_end() {
    let Some(bootstrap) = bootstrap() else { return };
    let topic = format!("perf-e2e-{:08x}", fastrand::u32(..));
    let line = format!(
        "--bootstrap-server {bootstrap} --topic {topic} --num-records 50 --producer-acks all \
         --record-size 100 --record-key-size 3 --num-headers 2 --record-header-key-size 3 \
         --record-header-size 4"
    );
    let written = succeed(Tool::EndToEnd, &line);
    let (made, rest) = written.lines.split_first().unwrap();
    assert_eq!(
        *made,
        format!(
            "Topic \"{topic}\" does not exist. Will create topic with 1 partition(s) and \
             replication factor = 1"
        )
    );
    assert_shapes(rest, E2E);
    let (avg, percentiles) = latencies(&written.lines);
    assert!(avg > 0.0 && percentiles.is_sorted(), "{avg} {percentiles:?}");
    // The topic is there now, and the positions of old still name it.
    let written = succeed(Tool::EndToEnd, &format!("{bootstrap} {topic} 3 1 10"));
    assert!(written.lines[0].starts_with("WARNING: Positional argument usage is deprecated"));
    assert_shapes(&written.lines[1..], E2E);
}

#[test]
fn a_topic_that_is_missing_is_made_by_sending_to_it() {
    let Some(bootstrap) = bootstrap() else { return };
    let topic = format!("perf-auto-{:08x}", fastrand::u32(..));
    let line = format!("--bootstrap-server {bootstrap} --topic {topic} --record-size 5");
    let (succeeded, written) =
        run(Tool::Produce, &format!("{line} --num-records 7 --throughput 9999"));
    assert!(succeeded, "{}", written.notices);
    assert_eq!(sent_by_commas(written.lines.last().unwrap()).records, 7);
}

/// Whether the cluster offers transactions.
fn offers_transactions(bootstrap: &str) -> bool {
    block_on(async {
        let cluster = Cluster::connect(ClusterConfig::new(bootstrap)).await.unwrap();
        let versions = cluster.any().await.unwrap().versions().clone();
        versions.newest(wire::ApiKey::AddPartitionsToTxn).is_some()
    })
}

#[test]
fn what_is_sent_within_transactions_is_committed() {
    let Some(bootstrap) = bootstrap() else { return };
    let topic = new_topic(&bootstrap, "transactions", 3);
    let line = format!(
        "--bootstrap-server {bootstrap} --topic {topic} --num-records 2000 --record-size 10 \
         --throughput 2000 --producers 2 --transactional-id {topic} --transaction-duration-ms 100"
    );
    let (succeeded, written) = run(Tool::Produce, &line);
    if !offers_transactions(&bootstrap) {
        let expected = "error: the broker does not offer transactions: ";
        assert!(!succeeded && written.notices.contains(expected), "{}", written.notices);
        assert!(written.lines.is_empty(), "{:?}", written.lines);
        return;
    }
    assert!(succeeded, "{}", written.notices);
    assert_shapes(&written.lines, PRODUCE);
    assert_eq!(sent_by_commas(written.lines.last().unwrap()).records, 2000);
    assert_eq!(read(&bootstrap, &topic, 3, 2000).len(), 2000);
}
