//! Loads on a real cluster, read back and compared.

use client::admin::NewTopic;
use client::{Admin, Cluster, ClusterConfig, ProducerConfig};
use model::Compression;
use perf::load::{
    ConsumeLoad, Keys, Payload, ProduceLoad, Sizes, Stop, Strategy, both, consume, produce, verify,
    verify_findings,
};
use std::time::Duration;

/// How long anything may take on a machine that is busy with much else. What is complete ends before.
const IDLE: Duration = Duration::from_secs(60);

/// The cluster to test against, and a new topic; `None` when there is none.
fn topic(test: &str, partitions: i32) -> Option<(String, String)> {
    let Ok(bootstrap) = std::env::var("CLIENT_TEST_BOOTSTRAP") else {
        eprintln!("passed over: CLIENT_TEST_BOOTSTRAP names no cluster");
        return None;
    };
    let name = format!("{test}-{:08x}", fastrand::u32(..));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let cluster = Cluster::connect(ClusterConfig::new(&bootstrap)).await.unwrap();
        Admin::new(cluster).create_topic(&NewTopic::new(&name, partitions, 1)).await.unwrap();
    });
    Some((bootstrap, name))
}

fn stamped(bootstrap: &str, topic: &str, records: u64) -> ProduceLoad {
    ProduceLoad {
        records,
        time: Duration::ZERO,
        stamp: Some(0xabcd_1234),
        ..ProduceLoad::new(bootstrap, topic)
    }
}

#[test]
fn all_that_was_acknowledged_is_found_once_whole_and_in_order() {
    let Some((bootstrap, topic)) = topic("verified", 3) else { return };
    let loads = [
        (Sizes::Fixed(100), Keys::None, Payload::Reuse, Compression::None),
        (Sizes::Fixed(20), Keys::Uniform(50), Payload::Fresh, Compression::Lz4),
        (
            Sizes::AccessLog,
            Keys::Zipf { count: 9, exponent: 0.99 },
            Payload::Reuse,
            Compression::Zstd,
        ),
    ];
    for (run, (sizes, keys, payload, compression)) in loads.into_iter().enumerate() {
        let producer = ProducerConfig { compression, ..ProducerConfig::default() };
        let load = ProduceLoad {
            sizes,
            keys,
            payload,
            producer,
            producers: 2,
            stamp: Some(run as u32 + 1),
            ..stamped(&bootstrap, &topic, 20_000)
        };
        let report = produce(&load, &Stop::default()).unwrap();
        assert_eq!(report.acknowledged, 20_000, "{:?}", report.errors);
        let verdict = verify(&bootstrap, &report.acknowledgements, IDLE).unwrap();
        assert!(verdict.is_clean(), "{verdict:?}");
        assert_eq!((verdict.sent, verdict.found), (20_000, 20_000));
    }
}

#[test]
fn what_was_never_sent_counts_as_lost() {
    let Some((bootstrap, topic)) = topic("lost", 1) else { return };
    let report = produce(&stamped(&bootstrap, &topic, 1_000), &Stop::default()).unwrap();
    let mut acknowledged = report.acknowledgements;
    acknowledged.insert(&topic, 0, 0, 1_000, 1_005);
    // They are waited for: they might only not be visible yet.
    let verdict = verify(&bootstrap, &acknowledged, Duration::from_secs(2)).unwrap();
    assert_eq!((verdict.lost, verdict.found), (5, 1_000));
}

#[test]
fn the_same_run_sent_twice_is_all_doubled() {
    let Some((bootstrap, topic)) = topic("doubled", 1) else { return };
    let load = stamped(&bootstrap, &topic, 500);
    produce(&load, &Stop::default()).unwrap();
    let report = produce(&load, &Stop::default()).unwrap();
    let verdict = verify(&bootstrap, &report.acknowledgements, IDLE).unwrap();
    assert_eq!((verdict.duplicated, verdict.lost, verdict.reordered), (500, 0, 0));
    let topics = [topic];
    let other = verify_findings(&bootstrap, &topics, 77, IDLE).unwrap();
    assert_eq!((other.foreign(), other.count()), (1_000, 0));
}

#[test]
fn consumers_without_a_group_share_the_partitions() {
    let Some((bootstrap, topic)) = topic("dealt", 4) else { return };
    let load = ProduceLoad { strategy: Strategy::RoundRobin, ..stamped(&bootstrap, &topic, 8_000) };
    let produced = produce(&load, &Stop::default()).unwrap();
    let load = ConsumeLoad {
        consumers: 3,
        records: 8_000,
        stamp: load.stamp,
        idle: IDLE,
        ..ConsumeLoad::new(&bootstrap, &topic)
    };
    let report = consume(&load, &Stop::default()).unwrap();
    assert_eq!((report.records, report.bytes), (8_000, 8_000 * 1024));
    assert_eq!(report.partitions, produced.partitions);
    assert!(report.findings.verdict(&produced.acknowledgements).is_clean());
    assert!(report.fetches > 0 && report.fetch.len() == report.fetches);
    assert!(report.first_record.is_some() && report.rebalance <= report.elapsed);
}

#[test]
fn a_group_reads_along_and_every_record_is_timed() {
    let Some((bootstrap, topic)) = topic("live", 2) else { return };
    let load = ProduceLoad {
        offered: 5_000.0,
        time: Duration::from_millis(600),
        warmup: Duration::from_millis(100),
        records: 0,
        strategy: Strategy::RoundRobin,
        ..stamped(&bootstrap, &topic, 0)
    };
    let consumers = ConsumeLoad {
        consumers: 2,
        group: Some(format!("group-of-{topic}")),
        stamp: load.stamp,
        idle: IDLE,
        ..ConsumeLoad::new(&bootstrap, &topic)
    };
    let (produced, consumed) = both(&load, &consumers, &Stop::default()).unwrap();
    assert_eq!(produced.acknowledged + produced.unsent, 3_500);
    assert_eq!(consumed.records, produced.acknowledged);
    assert_eq!(consumed.end_to_end.len(), consumed.records);
    let verdict = consumed.findings.verdict(&produced.acknowledgements);
    assert!(verdict.is_clean(), "{verdict:?}");
    // In microseconds, and none can have taken longer than all.
    let longest = Duration::from_micros(consumed.end_to_end.value_at_quantile(0.99));
    assert!(longest <= consumed.elapsed, "{longest:?}");
}

/// The topic has the records of an earlier run: as many of them as were acknowledged are not the records of this run.
#[test]
fn a_consumer_beside_a_producer_reads_its_run_to_the_end() {
    let Some((bootstrap, topic)) = topic("second-run", 2) else { return };
    let earlier = ProduceLoad { stamp: Some(1), ..stamped(&bootstrap, &topic, 20_000) };
    produce(&earlier, &Stop::default()).unwrap();
    let load = ProduceLoad { stamp: Some(2), ..stamped(&bootstrap, &topic, 10_000) };
    let consumer =
        ConsumeLoad { stamp: Some(2), idle: IDLE, ..ConsumeLoad::new(&bootstrap, &topic) };
    let (produced, consumed) = both(&load, &consumer, &Stop::default()).unwrap();
    let verdict = consumed.findings.verdict(&produced.acknowledgements);
    assert!(verdict.is_clean(), "{verdict:?}");
    assert_eq!(consumed.records, 30_000, "those of the earlier run are read, too");
}

#[test]
fn a_group_has_committed_what_it_has_read() {
    let Some((bootstrap, topic)) = topic("committed", 2) else { return };
    let load = ProduceLoad { strategy: Strategy::RoundRobin, ..stamped(&bootstrap, &topic, 2_000) };
    produce(&load, &Stop::default()).unwrap();
    let group = format!("group-of-{topic}");
    let load = ConsumeLoad {
        consumers: 2,
        group: Some(group.clone()),
        records: 2_000,
        idle: IDLE,
        ..ConsumeLoad::new(&bootstrap, &topic)
    };
    let report = consume(&load, &Stop::default()).unwrap();
    assert!(report.errors.is_empty(), "{:?}", report.errors);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let committed = runtime.block_on(async {
        let cluster = Cluster::connect(ClusterConfig::new(&bootstrap)).await.unwrap();
        Admin::new(cluster).group_offsets(&group).await.unwrap()
    });
    let offsets: Vec<i64> = committed.values().map(|committed| committed.offset.0).collect();
    assert_eq!(offsets, [1_000, 1_000]);
}

#[test]
fn an_empty_topic_ends_when_nothing_comes() {
    let Some((bootstrap, topic)) = topic("empty", 1) else { return };
    let load =
        ConsumeLoad { idle: Duration::from_millis(300), ..ConsumeLoad::new(&bootstrap, &topic) };
    let report = consume(&load, &Stop::default()).unwrap();
    assert_eq!((report.records, report.first_record), (0, None));
}
