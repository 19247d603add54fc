//! Power fails at every operation of a scripted load, with every kind of remains (S1, S2, S3, S4, S5, S6, S7, S11).

mod compacting;
mod damage;
mod faults;
mod load;
mod recovered;
mod tickets;
mod timeline;
mod whole;

use std::sync::Arc;

use model::{Compression, Offset};
use storage::disk::SimDisk;
use storage::{Log, LogConfig};

use load::{Action, Load, Step};
use recovered::{check, check_index_files, check_no_leftovers, read_all};
use timeline::Timeline;

fn run_script(seed: u64, appends: usize, config: LogConfig) -> Load {
    let mut load = Load::new(config);
    for action in load::script(seed, appends) {
        load.run(action).unwrap_or_else(|error| panic!("{action:?} of seed {seed}: {error}"));
    }
    load
}

/// Opens a crashed disk and checks what is on it against either history of the step.
fn recover(disk: &SimDisk, load: &Load, step: &Step, what: &str) -> Log {
    let log = load::open(disk, load.config(), load.now())
        .unwrap_or_else(|error| panic!("{what}: cannot open: {error}"));
    let durable = step.durable();
    let before = check(&log, &step.before, durable);
    let verdict = before.or_else(|first| {
        check(&log, &step.after, durable).map_err(|second| format!("{first}; {second}"))
    });
    if let Err(reason) = verdict {
        panic!("{what}: {reason}");
    }
    check_log_start(&log, step, what);
    log
}

fn check_log_start(log: &Log, step: &Step, what: &str) {
    let start = log.log_start_offset();
    let latest = step.before.log_start.max(step.after.log_start);
    // DeleteRecords is remembered by a checkpoint that is written later: it may be undone.
    assert!(
        start <= latest.max(step.after.base),
        "{what}: the log starts at {start}, not {latest}"
    );
}

/// Every crash of the load: each moment, with several seeds for what remains.
fn for_each_crash(load: &Load, seeds: u64, mut check: impl FnMut(SimDisk, &Step, &str)) -> usize {
    let history = load.disk.history();
    let operations = load.disk.operations();
    let mut count = 0;
    for step in &load.steps {
        for moment in step.operations.clone() {
            for seed in 0..seeds {
                let seed = seed ^ moment << 8;
                let next = &operations[moment as usize];
                let what = format!("{:?}, before {moment} ({next}), seed {seed}", step.action);
                check(history[moment as usize].after_crash(seed), step, &what);
                count += 1;
            }
        }
    }
    count
}

/// What a second opening must find again.
fn essence(log: &Log) -> (Offset, Offset, Vec<Vec<u8>>) {
    let batches = read_all(log).into_iter().map(|(_, bytes)| bytes).collect();
    (log.log_start_offset(), log.log_end_offset(), batches)
}

#[test]
fn after_any_crash_the_log_is_a_prefix_with_all_that_was_synced() {
    let mut count = 0;
    for seed in 0..4 {
        let load = run_script(seed, 120, load::config());
        count += for_each_crash(&load, 4, |disk, step, what| {
            recover(&disk, &load, step, &format!("load {seed}: {what}"));
        });
    }
    assert!(count > 4000, "{count} crashes");
}

#[test]
fn recovering_twice_is_recovering_once() {
    let load = run_script(10, 100, load::config());
    for_each_crash(&load, 2, |disk, step, what| {
        let first = essence(&recover(&disk, &load, step, what));
        let again = essence(&recover(&disk, &load, step, &format!("{what}, again")));
        assert_eq!(first, again, "{what}");
    });
}

#[test]
fn a_crash_during_recovery_leaves_what_recovery_would_have_found() {
    let load = run_script(11, 60, load::config());
    for_each_crash(&load, 1, |disk, step, what| {
        let watched = disk.snapshot();
        watched.keep_history();
        let whole = essence(&recover(&watched, &load, step, what));
        for (moment, during) in watched.history().into_iter().enumerate() {
            let what = format!("{what}, then before operation {moment} of recovery");
            let crashed = during.after_crash(moment as u64);
            let found = essence(&recover(&crashed, &load, step, &what));
            assert_eq!(found, whole, "{what}");
        }
    });
}

#[test]
fn what_is_appended_and_synced_after_recovery_survives_the_next_crash() {
    let load = run_script(12, 80, load::config());
    for_each_crash(&load, 1, |disk, step, what| {
        let log = recover(&disk, &load, step, what);
        let mut timeline = Timeline { base: log.log_end_offset(), ..Timeline::default() };
        let mut log = log;
        let mut builder = model::record::BatchBuilder::new()
            .placed(log.log_end_offset(), model::LeaderEpoch(1000));
        builder.add(load.now(), Some(b"k"), Some(b"after"));
        let bytes = builder.finish();
        let header = model::BatchHeader::decode_checked(&bytes).unwrap();
        log.append(&bytes, &[header], load.now()).unwrap();
        load::sync(&mut log).unwrap();
        timeline.batches.push(timeline::Batch { header, bytes: bytes.into() });
        let end = timeline.log_end();
        for seed in 0..2 {
            let crashed = disk.after_crash(seed);
            let log = load::open(&crashed, load.config(), load.now()).unwrap();
            assert_eq!(log.log_end_offset(), end, "{what}");
            assert_eq!(log.latest_epoch(), model::LeaderEpoch(1000), "{what}");
        }
    });
}

#[test]
fn a_recovered_log_that_is_closed_leaves_true_indexes_and_opens_as_it_was() {
    let load = run_script(14, 80, load::config());
    for_each_crash(&load, 2, |disk, step, what| {
        let mut log = recover(&disk, &load, step, what);
        let found = essence(&log);
        log.close().unwrap();
        let indexes = |timeline| check_index_files(&log, &disk, timeline);
        let verdict = indexes(&step.before).or_else(|_| indexes(&step.after));
        assert_eq!(verdict, Ok(()), "{what}");
        assert_eq!(check_no_leftovers(&log, &disk), Ok(()), "{what}");
        load::store_checkpoints(&disk, &log).unwrap();
        load::store_marker(&disk).unwrap();
        assert_eq!(essence(&recover(&disk, &load, step, what)), found, "{what}");
    });
}

#[test]
fn a_process_that_dies_loses_nothing() {
    let load = run_script(13, 100, load::config());
    let history = load.disk.history();
    for step in &load.steps {
        let disk = history[step.operations.end as usize].snapshot();
        let log = load::open(&disk, load.config(), load.now()).unwrap();
        let verdict = check(&log, &step.after, step.after.log_end());
        assert_eq!(verdict, Ok(()), "after {:?}", step.action);
    }
}

#[test]
fn a_power_failure_under_syncs_that_lie_still_leaves_a_log_that_opens() {
    let disk = SimDisk::new();
    disk.keep_history();
    let mut load = Load::on(disk, load::config());
    load.disk.lie_about_syncs(true);
    for _ in 0..40 {
        let codec = Compression::None;
        let append = Action::Append { records: 2, value_bytes: 90, producer: 1, codec };
        load.run(append).unwrap();
        load.run(Action::Sync).unwrap();
    }
    // No recovery point was stored, so what is missing is a lost tail and no damage.
    for (moment, state) in load.disk.history().iter().enumerate() {
        let crashed = state.after_crash(moment as u64);
        let config = Arc::clone(load.config());
        let log = load::open(&crashed, &config, load.now()).unwrap();
        assert_eq!(check(&log, &load.timeline, Offset(0)), Ok(()), "before {moment}");
    }
}
