//! A partition that Apache Kafka wrote: we understand it, and from the same batches we make the same
//! files, byte for byte. See `testdata/kafka/README.md`.

use std::path::{Path, PathBuf};

use model::batch::Batches;
use model::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};
use storage::{Log, LogConfig, ProducerSummary};

use crate::fixture::*;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/kafka/golden-0")
}

fn place() -> Place {
    Place::with(LogConfig {
        index_interval_bytes: 100,
        segment_index_bytes: 120,
        retention_ms: -1,
        ..LogConfig::default()
    })
}

fn golden_files(wanted: impl Fn(&str) -> bool) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(golden())
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.path()))
        .filter(|(name, _)| wanted(name))
        .map(|(name, path)| (name, std::fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}

/// A place with those of Kafka's files that are wanted.
fn copied(wanted: impl Fn(&str) -> bool) -> Place {
    let place = place();
    std::fs::create_dir(place.dir()).unwrap();
    for (name, bytes) in golden_files(wanted) {
        std::fs::write(place.path(&name), bytes).unwrap();
    }
    place
}

fn check(log: &Log) {
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (Offset(0), Offset(76)));
    assert_eq!(log.segment_count(), 4);
    assert_eq!(log.epochs(), [(LeaderEpoch(0), Offset(0))]);
    let all: Vec<u8> =
        golden_files(|name| name.ends_with(".log")).into_iter().flat_map(|(_, b)| b).collect();
    assert!(read_all(log, Offset(0), 200) == all);
    check_producers(log);
    check_times(log);
    let aborted: Vec<_> = log
        .aborted_transactions(Offset(0), Offset(76))
        .unwrap()
        .iter()
        .map(|t| (t.producer_id.0, t.first_offset.0, t.last_offset.0, t.last_stable_offset.0))
        .collect();
    assert_eq!(aborted, [(5, 64, 67, 68), (5, 72, 75, 76)], "as kafka-dump-log shows them");
}

fn check_producers(log: &Log) {
    let producers: Vec<ProducerSummary> = log.producers().collect();
    assert_eq!(producers.len(), 6);
    let summary = |id: i64, time: i64, sequence: i32| ProducerSummary {
        producer_id: ProducerId(id),
        epoch: ProducerEpoch(0),
        last_sequence: Sequence(sequence),
        last_timestamp: Timestamp(1_600_000_000_000_i64 + time),
        coordinator_epoch: -1,
        transaction_start: None,
    };
    assert_eq!(producers[0], summary(0, 11_000, 11));
    assert_eq!(producers[4], summary(4, 59_000, 11));
    let transactional = ProducerSummary {
        producer_id: ProducerId(5),
        epoch: ProducerEpoch(4),
        last_sequence: Sequence::NONE,
        last_timestamp: Timestamp(1_795_297_159_940),
        coordinator_epoch: 0,
        transaction_start: None,
    };
    assert_eq!(producers[5], transactional);
    assert_eq!(log.last_stable_offset(Offset(76)), Offset(76));
}

/// What `kafka-get-offsets --time` answered.
fn check_times(log: &Log) {
    let end = log.log_end_offset();
    let at = |time| log.find_by_timestamp(Timestamp(time), end).unwrap().map(|f| f.offset.0);
    assert_eq!(at(1_600_000_020_500), Some(21), "in a gzipped batch");
    assert_eq!(at(1_600_000_061_000), Some(61));
    assert_eq!(at(1_795_297_159_941), None);
    assert_eq!(log.find_max_timestamp(end).unwrap().unwrap().offset, Offset(75));
}

#[test]
fn what_kafka_closed_opens_clean() {
    let place = copied(|_| true);
    let log = place.open_clean();
    assert!(log.recovery().is_none());
    check(&log);
}

#[test]
fn from_kafkas_batches_alone_the_same_files_are_derived() {
    let place = copied(|name| name.ends_with(".log"));
    let mut log = place.open_unclean(Offset(0));
    check(&log);
    log.close().unwrap();
    let derived = |name: &str| name.contains("index") || name == "leader-epoch-checkpoint";
    for (name, bytes) in golden_files(|name| derived(name) || name.contains("76.snapshot")) {
        assert!(std::fs::read(place.path(&name)).unwrap() == bytes, "{name}");
    }
    drop(log);
    check(&place.open_clean());
}

#[test]
fn appending_kafkas_batches_makes_kafkas_directory() {
    let place = place();
    let mut log = place.open_unclean(Offset(0));
    for (_, bytes) in golden_files(|name| name.ends_with(".log")) {
        for batch in Batches::new(&bytes) {
            append_bytes(&mut log, batch.unwrap().1);
        }
    }
    check(&log);
    log.close().unwrap();
    let all = golden_files(|name| name != "partition.metadata");
    let names: Vec<_> = all.iter().map(|(name, _)| name.clone()).collect();
    let is_own = |name: &String| name.ends_with(".producers") || name.ends_with(".txnsums");
    let (own, kafkas) = place.names().into_iter().partition::<Vec<_>, _>(is_own);
    assert_eq!(kafkas, names);
    let has_own = |name: &&String| name.ends_with(".snapshot") || name.ends_with(".txnindex");
    assert_eq!(own.len(), names.iter().filter(has_own).count());
    for (name, bytes) in all {
        assert!(std::fs::read(place.path(&name)).unwrap() == bytes, "{name}");
    }
}
