//! Power fails at every operation of a load that is compacted now and then: of every key the last
//! value stays, at its offset (C22).

use std::collections::BTreeMap;

use model::{Compression, Offset};
use rustix::io::Errno;
use storage::disk::SimDisk;
use storage::{CleanupPolicy, Log, LogConfig};

use super::for_each_crash;
use super::load::{self, Action, Load, Step};
use super::recovered::{check_epochs, check_producers, read_all};
use super::timeline::Timeline;

type Key = Vec<u8>;
type Value = Option<Vec<u8>>;
type Records = BTreeMap<Offset, (Key, Value)>;

fn config() -> LogConfig {
    LogConfig {
        cleanup: CleanupPolicy { delete: false, compact: true },
        min_cleanable_dirty_ratio: 0.1,
        segment_bytes: 2000,
        ..load::config()
    }
}

fn script(seed: u64, appends: usize) -> Vec<Action> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut actions = Vec::new();
    for _ in 0..appends {
        let codec = if random.u8(0..5) == 0 { Compression::Zstd } else { Compression::None };
        actions.push(Action::Append {
            records: random.i32(1..6),
            value_bytes: random.usize(0..100),
            producer: random.i64(0..4),
            codec,
        });
        actions.extend(match random.u8(0..100) {
            0..30 => Some(Action::Sync),
            30..36 => Some(Action::Checkpoint),
            36..39 => Some(Action::NewEpoch),
            39..41 => Some(Action::BumpProducer(random.i64(1..4))),
            41..53 => Some(Action::Compact),
            53..55 => Some(Action::CloseAndReopen),
            55..57 => Some(Action::KillAndReopen),
            57..63 => Some(Action::TruncateBatches(random.usize(1..4))),
            _ => None,
        });
    }
    actions
}

fn records_of(batches: impl Iterator<Item = (model::BatchHeader, Vec<u8>)>) -> Records {
    let (mut all, mut buffer) = (Records::new(), Vec::new());
    for (header, bytes) in batches {
        let records = compression::records::read(&header, &bytes, 1 << 20, &mut buffer).unwrap();
        for record in records.map(Result::unwrap) {
            let offset = header.base_offset.plus(record.offset_delta as i64);
            let key = record.key.expect("all records have keys").to_vec();
            all.insert(offset, (key, record.value.map(<[u8]>::to_vec)));
        }
    }
    all
}

fn check(log: &Log, timeline: &Timeline, durable: Offset) -> Result<(), String> {
    let end = log.log_end_offset();
    if end < durable || end > timeline.log_end() {
        return Err(format!("ends at {end}, synced {durable}, appended {}", timeline.log_end()));
    }
    let below_end = timeline.batches.iter().filter(|batch| batch.header.base_offset < end);
    let appended = records_of(below_end.map(|batch| (batch.header, batch.bytes.to_vec())));
    let found = records_of(read_all(log).into_iter());
    for (offset, record) in &found {
        if appended.get(offset) != Some(record) {
            return Err(format!("the record at {offset} is not the one appended there"));
        }
    }
    let last: BTreeMap<&Key, Offset> = appended.iter().map(|(o, (key, _))| (key, *o)).collect();
    for (key, offset) in last {
        if !found.contains_key(&offset) {
            let key = String::from_utf8_lossy(key);
            return Err(format!("the last record of {key}, at {offset}, is gone"));
        }
    }
    check_producers(log, timeline)?;
    check_epochs_of_what_is_left(log, timeline)
}

/// Epochs of which compaction has left no batch may be forgotten.
fn check_epochs_of_what_is_left(log: &Log, timeline: &Timeline) -> Result<(), String> {
    let left: Vec<Offset> = read_all(log).iter().map(|(header, _)| header.last_offset()).collect();
    let batches = timeline.batches.iter();
    let batches = batches.filter(|batch| left.contains(&batch.header.last_offset()));
    check_epochs(log, &Timeline { batches: batches.cloned().collect(), ..timeline.clone() })
}

fn recover(disk: &SimDisk, load: &Load, step: &Step, what: &str) -> Log {
    let log = load::open(disk, load.config(), load.now())
        .unwrap_or_else(|error| panic!("{what}: cannot open: {error}"));
    let verdict = check(&log, &step.before, step.durable()).or_else(|first| {
        check(&log, &step.after, step.durable()).map_err(|e| format!("{first}; {e}"))
    });
    assert_eq!(verdict, Ok(()), "{what}");
    log
}

fn run(seed: u64, appends: usize) -> Load {
    let mut load = Load::new(config());
    for action in script(seed, appends) {
        load.run(action).unwrap_or_else(|error| panic!("{action:?} of seed {seed}: {error}"));
    }
    assert!(load.compactions > 1, "only {} compactions", load.compactions);
    load
}

#[test]
fn after_any_crash_a_compacted_log_has_the_last_value_of_every_key() {
    for seed in 40..43 {
        let load = run(seed, 100);
        for_each_crash(&load, 3, |disk, step, what| {
            recover(&disk, &load, step, &format!("load {seed}: {what}"));
        });
    }
}

#[test]
fn a_crash_while_an_interrupted_compaction_is_settled_loses_nothing_either() {
    let load = run(44, 60);
    for_each_crash(&load, 1, |disk, step, what| {
        let watched = disk.snapshot();
        watched.keep_history();
        let end = recover(&watched, &load, step, what).log_end_offset();
        for (moment, during) in watched.history().into_iter().enumerate() {
            let what = format!("{what}, then before operation {moment} of recovery");
            let crashed = during.after_crash(moment as u64);
            assert_eq!(recover(&crashed, &load, step, &what).log_end_offset(), end, "{what}");
        }
    });
}

#[test]
fn nothing_of_an_interrupted_compaction_stays_behind() {
    use storage::disk::Disk;
    let load = run(45, 60);
    for_each_crash(&load, 1, |disk, step, what| {
        recover(&disk, &load, step, what).close().unwrap();
        let names = disk.list(&load::partition_dir()).unwrap();
        let passing = [".cleaned", ".swap", ".deleted", ".tmp"];
        let left: Vec<_> =
            names.iter().filter(|name| passing.iter().any(|end| name.ends_with(end))).collect();
        assert!(left.is_empty(), "{what}: {left:?}");
    });
}

/// Whether the log serves what it must, with the files that it has open and those that it opens now.
fn check_serving(load: &mut Load) -> Result<(), String> {
    let durable = load.timeline.synced;
    check(&load.log, &load.timeline, durable)?;
    load.log.release_files();
    check(&load.log, &load.timeline, durable)
}

fn passing_names(disk: &SimDisk) -> Vec<String> {
    use storage::disk::Disk;
    let passing = [".cleaned", ".swap", ".tmp"];
    let mut names = disk.list(&load::partition_dir()).unwrap();
    names.retain(|name| passing.iter().any(|end| name.ends_with(end)));
    names
}

/// A compaction that finds no room changes nothing, leaves nothing behind that takes room, and can be done again; what cannot be
/// taken back ends the writing, and what is read stays right either way.
#[test]
fn no_room_at_any_operation_of_a_compaction_changes_nothing_that_is_read() {
    let script = script(46, 60);
    let whole = run(46, 60);
    let (mut given_up, mut failed) = (0, 0);
    for step in whole.steps.iter().filter(|step| step.action == Action::Compact) {
        for operation in step.operations.clone() {
            let mut load = Load::new(config());
            load.disk.fail_at(operation, Errno::NOSPC);
            let mut rest = script.iter();
            let error = rest.by_ref().find_map(|action| load.run(*action).err());
            let what = load.disk.operations()[operation as usize].to_string();
            let Some(error) = error else { continue };
            let what = format!("{what} ({operation}): {error}");
            assert_eq!(check_serving(&mut load), Ok(()), "{what}");
            if error.is_full() {
                given_up += 1;
                assert_eq!(load.log.failure(), None, "{what}");
                assert_eq!(passing_names(&load.disk), Vec::<String>::new(), "{what}");
                load.run(Action::Compact).unwrap_or_else(|error| panic!("{what}: {error}"));
                for action in rest {
                    load.run(*action).unwrap_or_else(|error| panic!("{what}: {error}"));
                }
            } else {
                failed += 1;
                assert!(error.is_fatal() && load.log.failure().is_some(), "{what}");
            }
            let log = load::open(&load.disk.snapshot(), load.config(), load.now()).unwrap();
            assert_eq!(check(&log, &load.timeline, load.timeline.synced), Ok(()), "{what}");
        }
    }
    assert!(given_up > 50, "{given_up} given up, {failed} failed");
}

/// A compaction that is ended before its time leaves nothing.
#[test]
fn a_compaction_that_is_ended_leaves_no_file() {
    let mut load = Load::new(config());
    for action in script(47, 60).into_iter().filter(|action| *action != Action::Compact) {
        load.run(action).unwrap();
    }
    let paces = |most: usize| {
        let mut left = most;
        move |_| {
            left = left.saturating_sub(1);
            left > 0
        }
    };
    let mut ended = 0;
    for most in 1.. {
        let plan = load.log.plan_compaction(load.now(), load.timeline.synced).unwrap().unwrap();
        let done = plan.run(1 << 20, [1, 2], &mut paces(most)).unwrap();
        let is_done = done.is_some();
        // Not put in its place, as when the partition is deleted meanwhile.
        drop(done);
        assert_eq!(passing_names(&load.disk), Vec::<String>::new(), "ended after {most} batches");
        if is_done {
            break;
        }
        ended += 1;
    }
    assert!(ended > 20, "{ended}");
}
