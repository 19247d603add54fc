//! Planted damage of every kind must be found, and undamaged files must pass. The undamaged ones
//! are written by the room `storage`, which shares no code with the inspection.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::record::BatchBuilder;
use model::{BatchHeader, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};
use storage::disk::RealDisk;
use storage::{Log, LogConfig, Opening};

use super::*;

const NOW: Timestamp = Timestamp(1_700_000_000_000);

/// A partition of three segments and ten batches, three records each, closed in an orderly way.
fn partition(root: &Path) -> PathBuf {
    let dir = root.join("orders-0");
    fs::create_dir_all(&dir).unwrap();
    let config = LogConfig { segment_bytes: 600, index_interval_bytes: 1, ..LogConfig::default() };
    let opening = Opening::unknown(NOW);
    let mut log = Log::open(Arc::new(RealDisk), dir.clone(), Arc::new(config), opening).unwrap();
    log.assign_epoch(LeaderEpoch(4));
    for batch in 0..10 {
        let sequence = Sequence(batch * 3);
        let mut builder = BatchBuilder::new()
            .producer(ProducerId(7), ProducerEpoch(0), sequence)
            .placed(Offset(i64::from(batch) * 3), LeaderEpoch(4));
        for record in 0..3 {
            let at = NOW.plus_ms(i64::from(batch * 3 + record));
            builder.add(at, Some(b"key"), Some(b"value of some length"));
        }
        let bytes = builder.finish();
        let header = BatchHeader::decode(&bytes).unwrap();
        log.append(&bytes, &[header], NOW).unwrap();
    }
    log.close().unwrap();
    dir
}

/// Everything that is said of damage, and how many files were looked at.
fn damage(path: &Path) -> (usize, Vec<String>) {
    let mut found = Vec::new();
    let count = inspect(&RealDisk, path, Looking::default(), &mut |path, finding| {
        if let Finding::Damage { position, reason } = finding {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            found.push(format!("{name} {position:?} {reason}"));
        }
    });
    (count.unwrap(), found)
}

fn files(dir: &Path, suffix: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with(suffix))
        .collect();
    found.sort();
    found
}

/// Changes a file, expects to be told of it in these words, and puts it back.
fn plant(path: &Path, change: impl FnOnce(&mut Vec<u8>), words: &str) {
    let before = fs::read(path).unwrap();
    let mut after = before.clone();
    change(&mut after);
    fs::write(path, after).unwrap();
    let (_, found) = damage(path.parent().unwrap());
    assert!(found.iter().any(|line| line.contains(words)), "{words}: {found:?}");
    fs::write(path, before).unwrap();
}

#[test]
fn what_the_log_writes_is_undamaged() {
    let root = tempfile::tempdir().unwrap();
    let dir = partition(root.path());
    let (count, found) = damage(root.path());
    assert_eq!(found, [""; 0]);
    assert!(files(&dir, ".log").len() >= 3 && !files(&dir, ".snapshot").is_empty());
    assert!(count >= 3 * 3 + 2, "{count} files");
}

#[test]
fn every_batch_and_every_record_is_told_once() {
    let root = tempfile::tempdir().unwrap();
    partition(root.path());
    let (mut batches, mut records, mut entries) = (Vec::new(), Vec::new(), 0);
    let told = inspect(
        &RealDisk,
        root.path(),
        Looking { records: true, live: false },
        &mut |_, finding| match finding {
            Finding::Batch { header, .. } => batches.push(header.base_offset.0),
            Finding::Record { offset, timestamp, record } => {
                assert_eq!(record.key, Some(&b"key"[..]));
                assert_eq!(timestamp, NOW.0 + offset);
                records.push(offset);
            }
            Finding::OffsetEntry { .. } => entries += 1,
            _ => {}
        },
    );
    told.unwrap();
    assert_eq!(batches, (0..10).map(|batch| batch * 3).collect::<Vec<i64>>());
    assert_eq!(records, (0..30).collect::<Vec<i64>>());
    assert!(entries > 0);
}

#[test]
fn damage_in_a_segment_is_found() {
    let root = tempfile::tempdir().unwrap();
    let dir = partition(root.path());
    let log = &files(&dir, ".log")[0];
    plant(log, |bytes| bytes[70] ^= 1, "checksum");
    plant(log, |bytes| bytes.truncate(bytes.len() - 5), "torn off");
    // Zeros in the place of a record; behind the last one they are legal.
    let blank = |bytes: &mut Vec<u8>| {
        let last = bytes.len() - BatchHeader::decode(bytes).unwrap().size_bytes as usize;
        bytes[last..].fill(0);
    };
    plant(log, blank, "bytes are zeros");
    plant(log, |bytes| bytes.extend([1; 100]), "not a batch");
    plant(log, |bytes| bytes[16] = 1, "not a batch");
    let size = |bytes: &[u8]| BatchHeader::decode(bytes).unwrap().size_bytes as usize;
    let again = |bytes: &mut Vec<u8>| bytes.extend_from_within(..size(bytes));
    plant(log, again, "begins at offset 0, but");
    // The offset and the leader epoch lie outside of the checksum.
    let far = |bytes: &mut Vec<u8>| {
        let last = bytes.len() - size(bytes);
        bytes[last + 7] = 200;
    };
    plant(log, far, "the segment before it ends at offset 203");
    plant(log, |bytes| bytes[15] = 9, "leader epoch 4 comes after 9");
    assert_eq!(damage(root.path()).1, [""; 0], "everything is as it was");
}

#[test]
fn zeros_written_ahead_are_no_damage_in_the_last_segment_or_another() {
    let root = tempfile::tempdir().unwrap();
    let dir = partition(root.path());
    let logs = files(&dir, ".log");
    assert!(logs.len() > 1);
    for log in &logs {
        let whole = std::fs::read(log).unwrap();
        let mut longer = whole.clone();
        longer.extend([0; 5000]);
        std::fs::write(log, &longer).unwrap();
        let mut told = Vec::new();
        inspect(&RealDisk, root.path(), Looking::default(), &mut |path, finding| match finding {
            Finding::Unfinished { position, reason } => {
                told.push((path.to_owned(), position, reason.to_owned()));
            }
            Finding::Damage { reason, .. } => panic!("{}: {reason}", path.display()),
            _ => {}
        })
        .unwrap();
        let reason = "the last 5000 bytes are zeros, written ahead".to_owned();
        assert_eq!(told, [(log.clone(), Some(whole.len() as u64), reason)]);
        longer[whole.len() + 4000] = 1;
        std::fs::write(log, &longer).unwrap();
        assert_eq!(damage(root.path()).1.len(), 1, "a byte behind zeros");
        std::fs::write(log, &whole).unwrap();
    }
}

#[test]
fn records_that_cannot_be_read_are_found_under_a_checksum_that_holds() {
    let root = tempfile::tempdir().unwrap();
    let dir = partition(root.path());
    let log = &files(&dir, ".log")[0];
    let reseal = |bytes: &mut Vec<u8>, change: fn(&mut [u8])| {
        let size = BatchHeader::decode(bytes).unwrap().size_bytes as usize;
        change(&mut bytes[..size]);
        model::batch::write_checksum(&mut bytes[..size]);
    };
    plant(log, |bytes| reseal(bytes, |batch| batch[60] = 2), "bytes follow the last record");
    plant(log, |bytes| reseal(bytes, |batch| batch[22] |= 1), "gzip");
    plant(log, |bytes| reseal(bytes, |batch| batch[61] = 0xff), "record 0");
}

fn status_bytes(field: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

#[test]
fn a_batch_that_expands_a_thousandfold_is_read_in_little_memory() {
    const MIB: usize = 1 << 20;
    let mut builder = BatchBuilder::new().placed(Offset(0), LeaderEpoch(4));
    let value = vec![0; MIB];
    (0..256).for_each(|_| builder.add(NOW, None, Some(&value)));
    let (codec, mut compressed) = (model::Compression::Zstd, Vec::new());
    compression::compress(codec, None, builder.records(), &mut compressed);
    let batch = builder.finish_compressed(codec, &compressed);
    assert!(batch.len() < 256 * MIB / 1000, "{} bytes", batch.len());
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("orders-0");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("00000000000000000000.log"), batch).unwrap();
    for records in [false, true] {
        // Makes the kernel forget the peak so far.
        fs::write("/proc/self/clear_refs", "5").unwrap();
        let before = status_bytes("VmRSS:");
        let (mut shown, mut counted) = (0, 0);
        let looking = Looking { records, live: false };
        let told = inspect(&RealDisk, root.path(), looking, &mut |_, finding| match finding {
            Finding::Record { record, .. } => {
                assert_eq!(record.value.map(<[u8]>::len), Some(MIB));
                shown += 1;
            }
            Finding::End { record_count, .. } => counted += record_count,
            Finding::Damage { reason, .. } => panic!("{reason}"),
            _ => {}
        });
        told.unwrap();
        assert_eq!((shown, counted), (if records { 256 } else { 0 }, 256));
        let grown = status_bytes("VmHWM:").saturating_sub(before) / MIB;
        assert!(grown < 96, "with records {records}: {grown} MiB");
    }
}

#[test]
fn damage_in_indexes_and_small_files_is_found() {
    let root = tempfile::tempdir().unwrap();
    let dir = partition(root.path());
    let index = &files(&dir, ".index")[0];
    plant(index, |bytes| bytes[7] ^= 1, "no batch begins at position");
    plant(index, |bytes| bytes[3] = 99, "not 99");
    plant(index, |bytes| bytes.extend_from_within(..8), "does not rise");
    plant(index, |bytes| bytes.push(1), "the last 1 bytes are less than an entry of 8");
    let times = &files(&dir, ".timeindex")[0];
    let later = |bytes: &mut Vec<u8>| {
        let last = bytes.len() - 12;
        bytes[last..last + 8].copy_from_slice(&5i64.to_be_bytes());
    };
    plant(times, later, "time");
    let far = |bytes: &mut Vec<u8>| {
        let last = bytes.len() - 1;
        bytes[last] = 250;
    };
    plant(times, far, "behind the segment");
    let snapshot = files(&dir, ".snapshot").pop().unwrap();
    plant(&snapshot, |bytes| bytes[12] ^= 1, "checksum");
    plant(&snapshot, |bytes| bytes[1] = 9, "unknown version 9");
    plant(&snapshot, |bytes| bytes.truncate(4), "4 bytes are too few for a snapshot");
    let early = dir.join("00000000000000000001.snapshot");
    fs::copy(&snapshot, &early).unwrap();
    let (_, found) = damage(&dir);
    assert!(found[0].contains("a snapshot of what is below 1 holds offset"), "{found:?}");
    fs::remove_file(&early).unwrap();
    let epochs = dir.join("leader-epoch-checkpoint");
    plant(&epochs, |bytes| bytes.extend(b"x y\n"), "invalid line");
    plant(&epochs, |bytes| bytes.extend(b"1 99\n"), "does not announce");
    assert_eq!(damage(root.path()).1, [""; 0], "everything is as it was");
}

#[test]
fn the_end_of_a_segment_that_is_being_written_is_no_damage() {
    let root = tempfile::tempdir().unwrap();
    let dir = partition(root.path());
    let told = |live: bool| {
        let (mut damaged, mut unfinished) = (Vec::new(), 0);
        let looking = Looking { records: false, live };
        let count = inspect(&RealDisk, root.path(), looking, &mut |path, finding| match finding {
            Finding::Damage { .. } => damaged.push(path.to_path_buf()),
            Finding::Unfinished { .. } => unfinished += 1,
            _ => {}
        });
        count.unwrap();
        (damaged, unfinished)
    };
    assert_eq!(told(true), (Vec::new(), 0));
    let logs = files(&dir, ".log");
    let active = logs.last().unwrap();
    let whole = fs::read(active).unwrap();
    fs::write(active, &whole[..whole.len() - 5]).unwrap();
    assert!(!told(false).0.is_empty(), "of a stopped broker it is damage");
    let (damaged, unfinished) = told(true);
    assert!(damaged.is_empty() && unfinished > 0, "{damaged:?}");
    // A batch that is whole and has another bit is damage all the same, and so is any other segment.
    let mut flipped = whole.clone();
    flipped[70] ^= 1;
    fs::write(active, flipped).unwrap();
    assert_eq!(told(true).0, std::slice::from_ref(active));
    fs::write(active, &whole).unwrap();
    let first = fs::read(&logs[0]).unwrap();
    fs::write(&logs[0], &first[..first.len() - 5]).unwrap();
    assert!(!told(true).0.is_empty());
}

#[test]
fn files_of_a_log_directory_and_of_the_quorum_are_told() {
    let root = tempfile::tempdir().unwrap();
    let offsets = root.path().join("recovery-point-offset-checkpoint");
    fs::write(&offsets, "0\n2\norders 0 12\norders 1 3\n").unwrap();
    let vote = root.path().join("vote");
    fs::write(&vote, "{\"version\":0,\"node\":1}\n").unwrap();
    let image = root.path().join("00000000000000000007-1.checkpoint");
    fs::write(&image, "{\"snapshot\":7}\n{}\n").unwrap();
    let mut told = Vec::new();
    let looking = Looking::default();
    let count = inspect(&RealDisk, root.path(), looking, &mut |_, finding| match finding {
        Finding::Checkpointed { topic, partition, offset } => {
            told.push(format!("{topic}-{partition} {offset}"));
        }
        Finding::Line(line) => told.push(line.to_owned()),
        Finding::Damage { reason, .. } => panic!("{reason}"),
        _ => {}
    });
    assert_eq!(count.unwrap(), 3);
    let expected =
        ["{\"snapshot\":7}", "{}", "orders-0 12", "orders-1 3", "{\"version\":0,\"node\":1}"];
    assert_eq!(told, expected);
    plant(&offsets, |bytes| bytes.truncate(10), "invalid line");
    plant(&offsets, |bytes| bytes[2] = b'3', "does not announce 2 lines");
    plant(&vote, |bytes| bytes.truncate(10), "the file was cut");
    plant(&image, |bytes| bytes[3] = 0xff, "not text from byte 3 on");
}

#[test]
fn the_journal_of_partitions_is_told_and_its_damage_is_found() {
    use storage::journal::{JOURNAL, SNAPSHOT};
    let root = tempfile::tempdir().unwrap();
    let (snapshot, journal) = (root.path().join(SNAPSHOT), root.path().join(JOURNAL));
    fs::write(&snapshot, "HWSNAP01 and other bytes").unwrap();
    assert!(damage(root.path()).1[0].contains("missing"), "one file without the other");
    fs::write(&journal, "HWJRNL01").unwrap();
    assert_eq!(damage(root.path()).1.len(), 1);
    assert_eq!(damage(&journal).1.len(), 1, "either file leads to both");
}

#[test]
fn one_file_alone_is_compared_with_its_segment() {
    let root = tempfile::tempdir().unwrap();
    let dir = partition(root.path());
    let index = &files(&dir, ".index")[0];
    assert_eq!(damage(index), (1, Vec::new()));
    assert_eq!(damage(&files(&dir, ".log")[1]), (1, Vec::new()));
    fs::write(dir.join("notes.txt"), "x").unwrap();
    assert_eq!(damage(&dir.join("notes.txt")).0, 0);
    assert!(
        inspect(&RealDisk, &dir.join("missing.log"), Looking::default(), &mut |_, _| {}).is_err()
    );
}

/// A folder is a stray by what the journal and the metadata know of the partition, never by its name.
#[test]
fn a_stray_is_told_by_journal_and_metadata() {
    use std::collections::BTreeMap;

    use model::{PartitionIndex, TopicPartition, Uuid};
    use storage::journal::{Key, Opened, PartitionState, State};

    let root = tempfile::tempdir().unwrap();
    let id = "00000000000000000000000000000001";
    let (stray, deleted, unknown, kept, building) = (
        format!("t-3.{id}-stray"),
        format!("t-4.{id}-delete"),
        format!("t-5.{id}-delete"),
        format!("t-6.{id}-before-mend"),
        format!("t-7.{id}-building"),
    );
    let names = ["t-0", "t-1", "t-2", "__cluster_metadata-0", "lost+found"];
    for name in names.into_iter().chain([&*stray, &*deleted, &*unknown, &*kept, &*building]) {
        fs::create_dir(root.path().join(name)).unwrap();
    }
    let key = |number: i32| Key { topic_id: Uuid([1; 16]), partition: PartitionIndex(number) };
    let opened = || Opened {
        topic: "t".into(),
        dense_from: None,
        fsync: true,
        image_index: 1,
        mended: false,
    };
    let mut state = State::default();
    for number in [0, 1, 4] {
        let mut known = PartitionState::new(opened());
        known.deleted = (number == 4).then(|| deleted.as_str().into());
        state.partitions.insert(key(number), Arc::new(known));
    }
    let wanted = BTreeMap::from([(key(0), TopicPartition::new("t", 0))]);
    let dir = storage::LogDir::at(Arc::new(RealDisk), root.path().to_owned());
    let told = |wanted| {
        let found = strays(&dir, &state, wanted).unwrap();
        found.into_iter().map(|stray| (stray.name, stray.why)).collect::<Vec<_>>()
    };
    let mut due = vec![
        ("t-1".to_owned(), WhyStray::NotInMetadata),
        ("t-2".to_owned(), WhyStray::Unknown),
        (stray.clone(), WhyStray::PutAside),
        (unknown.clone(), WhyStray::UnknownDeletion),
        (kept.clone(), WhyStray::BeforeMend),
        (building.clone(), WhyStray::Interrupted),
    ];
    assert_eq!(told(Some(&wanted)), due);
    // Without the metadata a partition that the journal knows is none.
    due.remove(0);
    assert_eq!(told(None), due);
}
