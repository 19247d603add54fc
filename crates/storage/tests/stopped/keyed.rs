//! A compacted topic is adopted key by key: which records count, and a crash before every operation of the disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::record::BatchBuilder;
use model::{
    BatchHeader, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TopicPartition, Uuid,
};
use storage::disk::{Disk, SimDisk};
use storage::journal::{Entry, Journal};
use storage::stopped::{Source, Stopped, StoppedError};
use storage::{KeyedRecord, Log, LogConfig, Opening};

use crate::fixture::{
    NOW, crashes, dir, folder_of, key_of, log_directory, opened, records, serve_partition, stopped,
};

const TRANSACTIONAL: i16 = 0x10;
const CONTROL: i16 = 0x20;

fn source() -> Source {
    let (dir, name) = (PathBuf::from("kafka/s-0"), TopicPartition::new("s", 0));
    Source { dir, name, accepts_losses: false }
}

fn target(number: i32) -> TopicPartition {
    TopicPartition::new("t", number)
}

fn empty_log(disk: &SimDisk, folder: PathBuf) -> Log {
    let config = Arc::new(LogConfig::default());
    Log::open(Arc::new(disk.clone()), folder, config, Opening::unknown(NOW)).unwrap()
}

fn append(log: &mut Log, batch: BatchBuilder, key: &[u8], value: Option<&[u8]>) {
    let mut batch = batch.placed(log.log_end_offset(), LeaderEpoch(5));
    batch.add(NOW, Some(key), value);
    let bytes = batch.finish();
    log.append(&bytes, &[BatchHeader::decode(&bytes).unwrap()], NOW).unwrap();
}

fn plain(log: &mut Log, key: &str, value: Option<&str>) {
    append(log, BatchBuilder::new(), key.as_bytes(), value.map(str::as_bytes));
}

fn in_transaction(log: &mut Log, producer: i64, sequence: i32, key: &str, value: &str) {
    let batch = BatchBuilder::new()
        .producer(ProducerId(producer), ProducerEpoch(0), Sequence(sequence))
        .flags(TRANSACTIONAL);
    append(log, batch, key.as_bytes(), Some(value.as_bytes()));
}

fn end(log: &mut Log, producer: i64, commits: bool) {
    let batch = BatchBuilder::new()
        .producer(ProducerId(producer), ProducerEpoch(0), Sequence::NONE)
        .flags(TRANSACTIONAL | CONTROL);
    append(log, batch, &[0, 0, 0, u8::from(commits)], Some(&[0; 6]));
}

/// A directory with two empty partitions, and a source.
fn prepared() -> SimDisk {
    let disk = SimDisk::new();
    disk.create_dir_all(Path::new("kafka")).unwrap();
    let mut log = empty_log(&disk, source().dir);
    plain(&mut log, "old", Some("1"));
    plain(&mut log, "gone", Some("1"));
    in_transaction(&mut log, 1, 0, "committed", "1");
    in_transaction(&mut log, 1, 1, "outdated", "1");
    in_transaction(&mut log, 2, 0, "committed", "aborted");
    plain(&mut log, "outdated", Some("2"));
    end(&mut log, 2, false);
    end(&mut log, 1, true);
    plain(&mut log, "old", Some("2"));
    plain(&mut log, "gone", None);
    in_transaction(&mut log, 3, 0, "old", "open");
    log.close().unwrap();
    log_directory(&disk, &[opened(Some(Offset(0)))]);
    let journal = Journal::open(Arc::new(disk.clone()), dir(), true).unwrap().unwrap();
    journal.commit(&[Entry::Of(key_of(1), opened(Some(Offset(0))))]).unwrap();
    drop(journal);
    (0..2).for_each(|number| empty_log(&disk, folder_of(number)).close().unwrap());
    disk.sync_dir(dir()).unwrap();
    disk
}

/// The values that count.
fn values(stopped: &Stopped) -> BTreeMap<String, Option<String>> {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let read = stopped.read_keyed(&source()).unwrap();
    read.records.into_iter().map(|(key, it)| (text(key), it.value.map(text))).collect()
}

#[test]
fn of_each_key_the_newest_record_outside_of_aborted_and_open_transactions_counts() {
    let found = values(&stopped(&prepared()));
    let due =
        [("committed", Some("1")), ("gone", None), ("old", Some("2")), ("outdated", Some("2"))];
    let due = due.map(|(key, value)| (key.to_owned(), value.map(str::to_owned)));
    assert_eq!(found, BTreeMap::from(due));
}

fn due(number: i32) -> Vec<KeyedRecord> {
    let of = |n: i32| (NOW, format!("k{n}").into_bytes(), format!("v{n}").into_bytes());
    (0..20).filter(|n| n % 2 == number).map(of).collect()
}

fn adopt(disk: &SimDisk, unique: u8) -> Result<bool, StoppedError> {
    let tool = stopped(disk);
    let examined = (0..2).map(|number| tool.examine_keyed(&target(number), due(number)));
    let work = examined.collect::<Result<Vec<_>, _>>()?;
    tool.adopt_keyed(&work, NOW, Uuid([unique; 16]))?;
    Ok(work.iter().any(|adoption| !adoption.is_done))
}

fn served(disk: &SimDisk, number: i32) -> Option<Vec<String>> {
    let log = serve_partition(disk, number).ok()?;
    Some(records(&log).into_values().collect())
}

fn whole(number: i32) -> Vec<String> {
    let value = |(_, _, value): KeyedRecord| String::from_utf8(value).unwrap();
    due(number).into_iter().map(value).collect()
}

#[test]
fn a_crash_anywhere_leaves_all_partitions_as_they_were_or_refused_or_all_of_them_adopted() {
    let (mut old, mut refused, mut new) = (0, 0, 0);
    for disk in crashes(&prepared(), |disk| assert!(adopt(disk, 1).unwrap())) {
        let copy = disk.snapshot();
        match [served(&copy, 0), served(&copy, 1)] {
            [Some(zero), Some(one)] if zero.is_empty() && one.is_empty() => old += 1,
            [Some(zero), Some(one)] => {
                new += 1;
                assert_eq!([zero, one], [whole(0), whole(1)]);
            }
            [None, None] => refused += 1,
            mixed => panic!("only some partitions are served: {mixed:?}"),
        }
        adopt(&disk, 2).unwrap();
        assert_eq!([0, 1].map(|number| served(&disk, number).unwrap()), [whole(0), whole(1)]);
        assert!(!adopt(&disk, 3).unwrap(), "a further run changes nothing");
    }
    assert!(old > 10 && refused > 10 && new > 0, "{old} {refused} {new}");
}

#[test]
fn a_partition_with_records_of_other_keys_is_refused() {
    let disk = prepared();
    assert!(adopt(&disk, 1).unwrap());
    let tool = stopped(&disk);
    let refused = tool.examine_keyed(&target(0), due(1));
    assert!(matches!(refused, Err(StoppedError::HasRecords { .. })), "{refused:?}");
}
