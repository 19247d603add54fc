//! Records that another broker wrote are adopted into an empty partition, and the source is untouched.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::record::BatchBuilder;
use model::{
    BatchHeader, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TopicPartition, Uuid,
};
use storage::disk::{Disk, SimDisk};
use storage::stopped::{Source, Stopped, StoppedError};
use storage::{Log, LogConfig, Opening};

use crate::fixture::{
    COUNT, NOW, append, crashes, cut, dir, expected, files, folder, log_directory, name, opened,
    records, segments, serve, stopped, write_log,
};

fn source() -> Source {
    Source {
        dir: PathBuf::from("kafka/s-0"),
        name: TopicPartition::new("s", 0),
        accepts_losses: false,
    }
}

/// A directory with an empty partition, and a source with records of leader epoch 5.
fn prepared() -> SimDisk {
    let disk = SimDisk::new();
    disk.create_dir_all(Path::new("kafka")).unwrap();
    write_log(&disk, &source().dir, LeaderEpoch(5));
    let made = Log::open(
        Arc::new(disk.clone()),
        folder(),
        Arc::new(LogConfig::default()),
        Opening::unknown(NOW),
    );
    made.unwrap().close().unwrap();
    log_directory(&disk, &[opened(Some(Offset(0)))]);
    disk
}

fn adopt(stopped: &Stopped, unique: u8) -> Result<bool, StoppedError> {
    let adoption = stopped.examine_adoption(&source(), &name())?;
    if adoption.is_done {
        return Ok(false);
    }
    stopped.adopt(&adoption, NOW, Uuid([unique; 16])).map(|_| true)
}

#[test]
fn all_records_are_adopted_and_the_source_is_as_before() {
    let disk = prepared();
    let before = files(&disk, &source().dir);
    assert!(adopt(&stopped(&disk), 1).unwrap());
    assert!(!adopt(&stopped(&disk), 2).unwrap(), "twice is once");
    for start in 0..2 {
        let mut log = serve(&disk).unwrap();
        let mut due = expected(&[]);
        due.extend((0..start).map(|at| (COUNT + at, format!("value {}", COUNT + at))));
        assert_eq!(records(&log), due);
        // The source's epochs mean nothing here: a leader of epoch 1 may append.
        append(&mut log, COUNT + start, LeaderEpoch(1));
        log.close().unwrap();
    }
    assert_eq!(files(&disk, &source().dir), before);
    assert!(matches!(adopt(&stopped(&disk), 3), Err(StoppedError::HasRecords { .. })));
    assert_eq!(disk.list(dir()).unwrap().iter().filter(|name| name.starts_with("t-0")).count(), 1);
}

#[test]
fn a_crash_anywhere_leaves_the_partition_empty_refused_or_whole() {
    let before = prepared();
    let untouched = files(&before, &source().dir);
    for disk in crashes(&before, |disk| assert!(adopt(&stopped(disk), 1).unwrap())) {
        if let Ok(log) = serve(&disk.snapshot()) {
            let found = records(&log);
            assert!(found.is_empty() || found == expected(&[]), "{found:?}");
        }
        adopt(&stopped(&disk), 2).unwrap();
        assert_eq!(records(&serve(&disk).unwrap()), expected(&[]));
        assert_eq!(files(&disk, &source().dir), untouched);
    }
}

#[test]
fn a_damaged_source_is_refused_unless_its_losses_are_accepted() {
    let disk = prepared();
    let segment = segments(&disk, &source().dir)[1].clone();
    disk.flip_bit(&segment, 70, 2);
    let Err(StoppedError::Incomplete { lost, .. }) = adopt(&stopped(&disk), 1) else { panic!() };
    assert_eq!(lost.len(), 1);
    let accepting = Source { accepts_losses: true, ..source() };
    let tool = stopped(&disk);
    let adoption = tool.examine_adoption(&accepting, &name()).unwrap();
    tool.adopt(&adoption, NOW, Uuid([1; 16])).unwrap();
    drop(tool);
    assert_eq!(records(&serve(&disk).unwrap()), expected(&[lost[0].from.0]));
}

#[test]
fn a_missing_segment_is_refused_and_an_incomplete_end_is_not() {
    let disk = prepared();
    let found = segments(&disk, &source().dir);
    let whole = disk.snapshot();
    disk.remove_file(&found[1]).unwrap();
    assert!(matches!(adopt(&stopped(&disk), 1), Err(StoppedError::Gap { .. })));
    let last = found.last().unwrap();
    let size = whole.size(last).unwrap();
    cut(&whole, last, size - 5);
    adopt(&stopped(&whole), 1).unwrap();
    assert_eq!(records(&serve(&whole).unwrap()), expected(&[COUNT - 1]));
}

#[test]
fn a_producers_id_of_another_cluster_is_no_producers_here_and_its_open_transaction_is_aborted() {
    let disk = prepared();
    disk.remove_dir_all(&source().dir).unwrap();
    let real: Arc<dyn Disk> = Arc::new(disk.clone());
    let config = Arc::new(LogConfig::default());
    let mut log = Log::open(real, source().dir, config, Opening::unknown(NOW)).unwrap();
    let mut batch = BatchBuilder::new()
        .producer(ProducerId(0), ProducerEpoch(0), Sequence(0))
        .placed(Offset(0), LeaderEpoch(5))
        .flags(0x10);
    batch.add(NOW, None, Some(b"value 0"));
    let bytes = batch.finish();
    log.append(&bytes, &[BatchHeader::decode(&bytes).unwrap()], NOW).unwrap();
    log.close().unwrap();
    adopt(&stopped(&disk), 1).unwrap();
    let log = serve(&disk).unwrap();
    let end = log.log_end_offset();
    assert_eq!(end, Offset(2), "a record and a marker");
    assert_eq!(log.last_stable_offset(end), end);
    assert_eq!(log.aborted_transactions(Offset(0), end).unwrap().len(), 1);
    assert!(log.producers().all(|known| known.producer_id.0 > 1 << 61));
    assert!(!adopt(&stopped(&disk), 2).unwrap(), "the marker is none of the source's records");
}

#[test]
fn what_cannot_be_adopted_is_refused() {
    let disk = prepared();
    let tool = stopped(&disk);
    let from = |dir: PathBuf| Source { dir, ..source() };
    let refused =
        |source: &Source, to: TopicPartition| tool.examine_adoption(source, &to).unwrap_err();
    let unknown = refused(&source(), TopicPartition::new("t", 1));
    assert!(matches!(unknown, StoppedError::Unknown { .. }), "{unknown}");
    let own = refused(&from(folder()), name());
    assert!(matches!(own, StoppedError::OwnFolder { .. }), "{own}");
    let nothing = refused(&from("kafka".into()), name());
    assert!(matches!(nothing, StoppedError::NoSegments(_)), "{nothing}");
    let elsewhere = Stopped::open(Arc::new(disk.clone()), Path::new("kafka")).unwrap_err();
    assert!(matches!(elsewhere, StoppedError::NotOurs(_)), "{elsewhere}");
}
