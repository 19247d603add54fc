//! A disk that refuses: errors at every operation, no room, syncs that fail (S9, S10).

use model::{Compression, Durability};
use rustix::io::Errno;
use storage::disk::SimDisk;
use storage::{Opening, StorageError};

use super::load::{self, Action, Load};
use super::recovered::check;

/// What the faults hit: without the emptying of the whole log, whose middle is a history of its own.
fn script(seed: u64, appends: usize) -> Vec<Action> {
    let all = load::script(seed, appends);
    all.into_iter().filter(|action| *action != Action::TruncateFully).collect()
}

/// Runs until something fails; the action and the error, if anything did.
fn run_until_failure(load: &mut Load, script: &[Action]) -> Option<(Action, StorageError)> {
    script.iter().find_map(|action| load.run(*action).err().map(|error| (*action, error)))
}

/// After a failure: what is there is still read, nothing is written any more, and a restart finds a
/// prefix with all that was synced. `reboot`: after a power failure, else after a kill.
fn assert_fails_well(load: &mut Load, action: Action, what: &str, reboot: Option<u64>) {
    let reopening = matches!(action, Action::CloseAndReopen | Action::KillAndReopen);
    if !reopening && load.log.failure().is_some() {
        let append = Action::Append {
            records: 1,
            value_bytes: 1,
            producer: 0,
            codec: model::Compression::None,
        };
        let (timeline, attempted) = (load.timeline.clone(), load.attempted.clone());
        let refused = load.run(append).unwrap_err();
        assert!(matches!(refused, StorageError::Failed { .. }), "{what}: {refused}");
        assert!(load.log.begin_sync().is_none(), "{what}: a failed log is not synced");
        (load.timeline, load.attempted) = (timeline, attempted);
    }
    let durable = load.timeline.synced.min(load.attempted.synced);
    let disk = match reboot {
        Some(seed) => load.disk.after_crash(seed),
        None => load.disk.snapshot(),
    };
    let log = load::open(&disk, load.config(), load.now())
        .unwrap_or_else(|error| panic!("{what}: cannot open: {error}"));
    let verdict = check(&log, &load.timeline, durable).or_else(|first| {
        check(&log, &load.attempted, durable).map_err(|e| format!("{first}; {e}"))
    });
    assert_eq!(verdict, Ok(()), "{what}");
}

#[test]
fn an_error_at_any_operation_is_told_and_loses_nothing_that_was_synced() {
    let script = script(30, 60);
    let mut whole = Load::on(SimDisk::new(), load::config());
    assert!(run_until_failure(&mut whole, &script).is_none());
    let begun = Load::on(SimDisk::new(), load::config()).disk.operation_count();
    let mut failures = 0;
    for operation in begun..whole.disk.operation_count() {
        let mut load = Load::on(SimDisk::new(), load::config());
        load.disk.fail_at(operation, Errno::IO);
        let Some((action, error)) = run_until_failure(&mut load, &script) else { continue };
        failures += 1;
        let failed = load.disk.operations()[operation as usize].to_string();
        let what = format!("{action:?}, {failed} ({operation}): {error}");
        assert!(error.is_fatal(), "{what}");
        assert_fails_well(&mut load, action, &what, Some(operation));
    }
    assert!(failures * 10 > (whole.disk.operation_count() - begun) * 9, "{failures} failures");
}

#[test]
fn a_disk_that_fills_up_anywhere_loses_nothing_and_goes_on_when_there_is_room() {
    let script = script(31, 60);
    let mut whole = Load::on(SimDisk::new(), load::config());
    assert!(run_until_failure(&mut whole, &script).is_none());
    for capacity in (200..whole.disk.used_bytes()).step_by(131) {
        let mut load = Load::on(SimDisk::new(), load::config());
        load.disk.limit_capacity(Some(capacity));
        let Some((action, error)) = run_until_failure(&mut load, &script) else { continue };
        let what = format!("{capacity} bytes, {action:?}: {error}");
        assert!(error.is_full() && load.log.failure().is_none(), "{what}: the log goes on");
        load.disk.limit_capacity(None);
        assert_fails_well(&mut load, action, &what, None);
        assert_fails_well(&mut load, action, &what, Some(capacity));
    }
}

#[test]
fn a_clean_stop_behind_a_full_disk_outlasts_a_power_failure() {
    let script = script(31, 60);
    let mut whole = Load::on(SimDisk::new(), load::config());
    assert!(run_until_failure(&mut whole, &script).is_none());
    let mut stops = 0;
    for capacity in (200..whole.disk.used_bytes()).step_by(131) {
        let mut load = Load::on(SimDisk::new(), load::config());
        load.disk.limit_capacity(Some(capacity));
        // The disk takes a part of the batch, and the log cuts it off.
        let Some((Action::Append { .. }, _)) = run_until_failure(&mut load, &script) else {
            continue;
        };
        load.disk.limit_capacity(None);
        load.stop().unwrap();
        stops += 1;
        for seed in 0..16 {
            let what = format!("{capacity} bytes, power failure {seed}");
            let log = load::open(&load.disk.after_crash(seed), load.config(), load.now())
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            let end = load.timeline.log_end();
            assert_eq!(check(&log, &load.timeline, end), Ok(()), "{what}");
        }
    }
    assert!(stops > 20, "{stops} clean stops");
}

#[test]
fn a_log_goes_on_when_there_is_room_again_or_a_descriptor() {
    let script = script(33, 60);
    let goes_on = |action: &Action| {
        matches!(action, Action::Append { .. } | Action::Sync | Action::Checkpoint | Action::Retain)
    };
    let mut whole = Load::on(SimDisk::new(), load::config());
    assert!(run_until_failure(&mut whole, &script).is_none());
    let begun = Load::on(SimDisk::new(), load::config()).disk.operation_count();
    let mut went_on = 0;
    for operation in (begun..whole.disk.operation_count()).step_by(3) {
        for errno in [Errno::NOSPC, Errno::DQUOT, Errno::MFILE] {
            let mut load = Load::on(SimDisk::new(), load::config());
            load.disk.fail_at(operation, errno);
            let mut rest = script.iter();
            let failed = rest.by_ref().find_map(|action| {
                let failed = load.run(*action).err();
                failed.map(|error| (*action, error))
            });
            let Some((action, error)) = failed else { continue };
            let what = format!("{action:?}, operation {operation}: {error}");
            if !goes_on(&action) || error.is_fatal() {
                continue;
            }
            assert_eq!(load.log.failure(), None, "{what}");
            went_on += 1;
            let again = std::iter::once(&action).chain(rest);
            for action in again {
                load.run(*action)
                    .unwrap_or_else(|error| panic!("{what}; then {action:?}: {error}"));
            }
            let (timeline, end) = (load.timeline.clone(), load.timeline.log_end());
            let log = load::open(&load.disk.snapshot(), load.config(), load.now()).unwrap();
            assert_eq!(check(&log, &timeline, end), Ok(()), "{what}");
        }
    }
    assert!(went_on > 50, "{went_on} faults were no more than a refusal");
}

#[test]
fn a_failed_sync_is_final_whatever_the_next_one_says() {
    let script = script(32, 60);
    for failing in 0..script.len() {
        let mut load = Load::on(SimDisk::new(), load::config());
        assert!(run_until_failure(&mut load, &script[..failing]).is_none());
        load.disk.fail_syncs(true);
        let Some((action, error)) = run_until_failure(&mut load, &script[failing..]) else {
            continue;
        };
        let what = format!("from step {failing} on, {action:?}: {error}");
        load.disk.fail_syncs(false);
        assert_fails_well(&mut load, action, &what, Some(failing as u64));
    }
}

/// How many of a few loads lose what was synced after a failed sync, a restart without a crash of the
/// machine, and a good sync, if the restart opens the log so; then the machine crashes.
fn losses_after_a_failed_sync(adapt: impl Fn(Opening) -> Opening) -> usize {
    let mut losses = 0;
    for seed in 0..12 {
        let mut load = Load::on(SimDisk::new(), load::config());
        assert!(run_until_failure(&mut load, &script(33 + seed, 40)).is_none());
        let synced = load.timeline.synced;
        for producer in 0..3 {
            let codec = Compression::None;
            load.run(Action::Append { records: 3, value_bytes: 400, producer, codec }).unwrap();
        }
        load.disk.fail_syncs(true);
        assert!(load.run(Action::Sync).is_err());
        load.disk.fail_syncs(false);

        let opening = load::opening(&load.disk, load.now()).unwrap();
        let opening = adapt(Opening { synced, ..opening });
        let mut log = load::open_with(&load.disk, load.config(), opening).unwrap();
        let end = load.timeline.log_end();
        assert_eq!(log.log_end_offset(), end, "the page cache still shows all of it");
        load::sync(&mut log).unwrap();
        assert_eq!(log.synced_below(), end);

        let crashed = load.disk.after_crash(seed);
        let log = load::open(&crashed, load.config(), load.now()).unwrap();
        losses += usize::from(check(&log, &load.timeline, end).is_err());
    }
    losses
}

#[test]
fn what_a_failed_sync_lost_is_written_anew_before_it_is_believed() {
    let noted = |opening| Opening { after_failed_sync: true, ..opening };
    assert_eq!(losses_after_a_failed_sync(noted), 0);
    let not_noted = |opening| Opening { durability: Durability::Fsync, ..opening };
    assert_eq!(losses_after_a_failed_sync(not_noted), 0, "under fsync no note is needed");
    assert!(losses_after_a_failed_sync(|opening| opening) > 6, "the disk does lose something");
}
