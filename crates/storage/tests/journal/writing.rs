//! What is written is what is read, whatever the order; one sync serves all; a full disk may be
//! tried again, a failed sync may not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use model::{BrokerEpoch, LeaderEpoch, Offset, PartitionIndex, Timestamp, Uuid};
use rustix::io::Errno;
use storage::disk::{Disk, GatedDisk, RealDisk, SimDisk};
use storage::journal::{Checkpoint, Entry, Fact, Journal, Key, PROCESSES_MAX, State, load};
use storage::{ActiveSegment, SealedSegment};

use crate::fixture::{created, dir, key, opened, random_entry, random_entry_of};

fn reopened(disk: &SimDisk) -> Journal {
    Journal::open(Arc::new(disk.clone()), dir(), true).unwrap().unwrap()
}

/// Takes in what a journal would: nothing about partitions that are not known.
fn apply(model: &mut State, entry: &Entry) {
    let _ = model.apply(entry);
}

#[test]
fn random_operations_against_a_model() {
    for seed in 0..200 {
        let mut rng = Rng::with_seed(seed);
        let disk = SimDisk::new();
        let mut journal = created(&disk);
        let mut model = journal.with_state(State::clone);
        for _ in 0..rng.usize(1..60) {
            match rng.u8(..10) {
                0 => journal.rewrite().unwrap(),
                1 => journal.maintain().unwrap(),
                2 => journal = reopened(&disk),
                3..5 => {
                    let (key, offset) = (key(rng.u8(..9)), Offset(rng.i64(0..1000)));
                    journal.note_synced([(key, offset)]).unwrap();
                    apply(&mut model, &Entry::Of(key, Fact::Synced(offset)));
                }
                _ => {
                    let entries: Vec<_> =
                        (0..rng.usize(1..4)).map(|_| random_entry(&mut rng)).collect();
                    match rng.bool() {
                        true => journal.commit(&entries).unwrap(),
                        false => drop(journal.append(&entries).unwrap()),
                    }
                    entries.iter().for_each(|entry| apply(&mut model, entry));
                }
            }
            assert_eq!(journal.with_state(State::clone), model, "seed {seed}");
        }
        assert_eq!(reopened(&disk).with_state(State::clone), model, "seed {seed}");
    }
}

#[test]
fn a_clean_stop_is_known_until_the_next_start() {
    let disk = SimDisk::new();
    let journal = created(&disk);
    journal.commit(&[Entry::Of(key(0), opened("t"))]).unwrap();
    let closed = [Entry::Of(key(0), Fact::Closed(Offset(5)))];
    journal.close(&closed, BrokerEpoch(3), Timestamp(9)).unwrap();
    let disk = disk.after_crash(1);
    let journal = reopened(&disk);
    assert!(journal.with_state(|state| state.closed));
    assert_eq!(journal.with_state(|state| state.broker_epoch), Some(BrokerEpoch(3)));
    assert_eq!(journal.partition(&key(0)).unwrap().closed, Some(Offset(5)));
    journal.commit(&[Entry::Started(Timestamp(10))]).unwrap();
    let journal = reopened(&disk.after_crash(2));
    assert!(!journal.with_state(|state| state.closed));
    assert_eq!(journal.partition(&key(0)).unwrap().closed, None);
}

#[test]
fn the_processes_that_had_a_directory_are_known_since_the_last_one_that_was_registered() {
    let disk = SimDisk::new();
    let journal = created(&disk);
    let process = |number: u8| Uuid([number; 16]);
    let processes = |disk: &SimDisk| reopened(disk).with_state(|state| state.processes.clone());
    let begin = |journal: &Journal, number| {
        journal.commit(&[Entry::Started(Timestamp(1)), Entry::Begun(process(number))]).unwrap();
    };
    begin(&journal, 1);
    // As in a journal of a version that noted none: any process may have been registered before.
    assert_eq!(processes(&disk.after_crash(1)), [Uuid::ZERO, process(1)]);
    begin(&journal, 2);
    journal.append(&[Entry::Joined(process(2))]).unwrap();
    begin(&journal, 3);
    let since = [process(2), process(3)];
    assert_eq!(processes(&disk.after_crash(1)), since);
    journal.rewrite().unwrap();
    assert_eq!(processes(&disk.after_crash(2)), since, "in a snapshot");
    journal.close(&[], BrokerEpoch(3), Timestamp(9)).unwrap();
    let disk = disk.after_crash(3);
    let journal = reopened(&disk);
    assert_eq!(journal.with_state(|state| state.processes.clone()), since, "and after a stop");
    for number in 0..PROCESSES_MAX + 5 {
        journal.append(&[Entry::Begun(Uuid((number as u128).to_be_bytes()))]).unwrap();
    }
    journal.maintain().unwrap();
    let kept = processes(&disk.after_crash(4));
    assert_eq!((kept.len(), kept[0]), (PROCESSES_MAX, process(2)), "the one that was registered");
    let last = Uuid((PROCESSES_MAX as u128 + 4).to_be_bytes());
    assert_eq!(kept.last(), Some(&last), "and the last ones");
}

#[test]
fn rounds_of_synced_offsets_do_not_grow_the_journal() {
    let disk = SimDisk::new();
    let journal = created(&disk);
    journal.commit(&[Entry::Of(key(0), opened("t"))]).unwrap();
    let size = || disk.size(&dir().join(storage::journal::JOURNAL)).unwrap();
    let syncs = || disk.operations().iter().filter(|done| done.kind == "sync").count();
    let (before, synced) = (size(), syncs());
    for offset in 1..10_000 {
        journal.note_synced([(key(0), Offset(offset))]).unwrap();
    }
    assert!(size() - before < 100, "one frame is written again and again");
    assert_eq!(syncs(), synced, "nothing waits for the device");
    // What was only noted is there after the death of the process.
    assert_eq!(reopened(&disk.snapshot()).partition(&key(0)).unwrap().synced, Offset(9_999));
}

#[test]
fn one_sync_makes_many_partitions_durable() {
    let disk = SimDisk::new();
    let journal = created(&disk);
    let before = disk.operation_count();
    let of = |number| Key { topic_id: Uuid([1; 16]), partition: PartitionIndex(number) };
    let entries: Vec<_> = (0..10_000).map(|n| Entry::Of(of(n), opened("t"))).collect();
    journal.commit(&entries).unwrap();
    let operations = disk.operations();
    let syncs = operations[before as usize..].iter().filter(|done| done.kind == "sync").count();
    assert_eq!(syncs, 1);
    let journal = reopened(&disk.after_crash(3));
    assert_eq!(journal.with_state(|state| state.partitions.len()), 10_000);
}

#[test]
fn several_threads_append_and_sync() {
    let disk = SimDisk::new();
    let journal = created(&disk);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let journal = &journal;
            scope.spawn(move || {
                let of = |n| Key { topic_id: Uuid([thread; 16]), partition: PartitionIndex(n) };
                for number in 0..50 {
                    journal.commit(&[Entry::Of(of(number), opened("t"))]).unwrap();
                    journal.note_synced([(of(number), Offset(7))]).unwrap();
                    if number % 20 == 0 {
                        journal.rewrite().unwrap();
                    }
                }
            });
        }
    });
    let known = reopened(&disk.after_crash(4)).with_state(State::clone);
    assert_eq!(known.partitions.len(), 200);
    assert!(reopened(&disk).with_state(|state| state.partitions.values().all(|p| p.synced.0 == 7)));
}

#[test]
fn a_full_disk_may_be_tried_again() {
    let disk = SimDisk::new();
    let journal = created(&disk);
    journal.commit(&[Entry::Of(key(0), opened("t"))]).unwrap();
    let before = journal.with_state(State::clone);
    disk.limit_capacity(Some(disk.used_bytes() + 10));
    journal.append(&[Entry::Of(key(1), opened("t"))]).unwrap_err();
    assert!(journal.rewrite().is_err());
    assert_eq!(journal.with_state(State::clone), before, "nothing was taken in");
    let names = disk.list(dir()).unwrap();
    assert!(
        !names.iter().any(|name| name.ends_with(".tmp")),
        "what came to nothing takes no room: {names:?}"
    );
    disk.limit_capacity(None);
    journal.commit(&[Entry::Of(key(0), Fact::Start(Offset(3)))]).unwrap();
    let known = reopened(&disk.after_crash(5));
    assert_eq!(known.partition(&key(0)).unwrap().log_start, Offset(3));
    assert_eq!(known.partition(&key(1)), None);
}

#[test]
fn a_failed_sync_is_final() {
    let disk = SimDisk::new();
    let journal = created(&disk);
    disk.fail_syncs(true);
    journal.commit(&[Entry::Of(key(0), opened("t"))]).unwrap_err();
    disk.fail_syncs(false);
    assert!(journal.commit(&[Entry::Of(key(0), opened("t"))]).unwrap_err().is_fatal());
    assert!(journal.rewrite().is_err(), "a new snapshot would claim what was lost");
}

/// Pages that a failed sync took for clean are shown to the next process, and its first sync succeeds without them.
#[test]
fn what_a_failed_sync_left_in_the_page_cache_is_written_again_before_it_counts_as_durable() {
    let disk = SimDisk::new();
    let journal = created(&disk);
    journal.commit(&[Entry::Of(key(0), opened("t"))]).unwrap();
    disk.fail_syncs(true);
    journal.commit(&[Entry::Of(key(1), opened("t"))]).unwrap_err();
    disk.fail_syncs(false);
    drop(journal);
    let journal = reopened(&disk);
    assert!(journal.partition(&key(1)).is_some(), "it is in the page cache");
    journal.commit(&[Entry::Of(key(2), opened("t"))]).unwrap();
    for crash in 1..6 {
        let known = reopened(&disk.after_crash(crash));
        for number in 0..3 {
            assert!(known.partition(&key(number)).is_some(), "crash {crash}: {number}");
        }
    }
}

#[test]
fn a_failed_rename_is_final() {
    for (operation, _) in rewriting().iter().enumerate().filter(|(_, kind)| **kind == "rename") {
        let disk = SimDisk::new();
        let journal = created(&disk);
        disk.fail_at(disk.operation_count() + operation as u64, Errno::IO);
        journal.rewrite().unwrap_err();
        let late = [Entry::Of(key(0), opened("t"))];
        journal.append(&late).expect_err("the frame would be passed over behind the new snapshot");
        assert!(Journal::open(Arc::new(disk), dir(), true).unwrap().is_some());
    }
}

/// The operations of a new snapshot.
fn rewriting() -> Vec<&'static str> {
    let disk = SimDisk::new();
    let journal = created(&disk);
    let before = disk.operation_count() as usize;
    journal.rewrite().unwrap();
    disk.operations()[before..].iter().map(|operation| operation.kind).collect()
}

#[test]
fn a_hundred_thousand_partitions_load() {
    let dir = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let journal = Journal::create(Arc::clone(&disk), dir.path(), State::default()).unwrap();
    let of = |number: i32| Key { topic_id: Uuid([1; 16]), partition: PartitionIndex(number) };
    let entries: Vec<_> = (0..100_000).map(|n| Entry::Of(of(n), opened("orders"))).collect();
    journal.commit(&entries).unwrap();
    let began = Instant::now();
    let loaded = load(&*disk, dir.path(), true).unwrap().unwrap();
    println!(
        "100,000 entries of the journal: {:?}, {:?} bytes",
        began.elapsed(),
        loaded.size_bytes
    );
    assert_eq!(loaded.state.partitions.len(), 100_000);
    journal.rewrite().unwrap();
    let began = Instant::now();
    let loaded = load(&*disk, dir.path(), true).unwrap().unwrap();
    println!(
        "100,000 partitions of the snapshot: {:?}, {:?} bytes",
        began.elapsed(),
        loaded.size_bytes
    );
    assert_eq!(loaded.state.partitions.len(), 100_000);
}

#[test]
fn no_synced_offset_is_written_without_the_epochs_below_it() {
    let disk = SimDisk::new();
    let journal = created(&disk);
    journal.commit(&[Entry::Of(key(0), opened("t"))]).unwrap();
    disk.limit_capacity(Some(disk.used_bytes() + 10));
    journal.note_epochs([(key(0), LeaderEpoch(4), Offset(5)), (key(1), LeaderEpoch(1), Offset(0))]);
    journal.note_synced([(key(0), Offset(7))]).unwrap_err();
    assert_eq!(journal.partition(&key(0)).unwrap().newest_epoch(), LeaderEpoch::NONE);
    disk.limit_capacity(None);
    journal.note_synced([(key(0), Offset(8))]).unwrap();
    let known = reopened(&disk.snapshot()).partition(&key(0)).unwrap();
    assert_eq!((known.newest_epoch(), known.synced), (LeaderEpoch(4), Offset(8)));
    // One that is known already is not entered again.
    let before = disk.operation_count();
    journal.note_epochs([(key(0), LeaderEpoch(4), Offset(5))]);
    journal.note_synced([(key(0), Offset(8))]).unwrap();
    assert_eq!(disk.operation_count(), before);
}

/// A sync that ends while the journal's files are replaced waits for no disk, and is acknowledged. It is in the new journal
/// though nobody writes there afterwards.
#[test]
fn a_synced_offset_that_is_noted_while_the_journal_is_replaced_is_in_the_new_one() {
    let disk = SimDisk::new();
    drop(created(&disk));
    let gated = GatedDisk::new(Arc::new(disk.clone()));
    let journal = Journal::open(Arc::new(gated.clone()), dir(), true).unwrap().unwrap();
    journal.commit(&[Entry::Of(key(0), opened("t"))]).unwrap();
    gated.close(&dir().join("highwater-partitions.journal.tmp"));
    std::thread::scope(|scope| {
        let rewriter = scope.spawn(|| journal.rewrite());
        let is_replacing = gated.wait_for(1, Duration::from_secs(60));
        let noted = journal.note_synced([(key(0), Offset(7))]);
        gated.open_gate();
        assert!(is_replacing && noted.is_ok());
        rewriter.join().unwrap().unwrap();
    });
    assert_eq!(reopened(&disk.snapshot()).partition(&key(0)).unwrap().synced, Offset(7));
}

#[test]
fn a_synced_offset_that_is_noted_while_epochs_are_written_waits_for_its_own_epoch() {
    let disk = SimDisk::new();
    drop(created(&disk));
    let gated = GatedDisk::new(Arc::new(disk.clone()));
    let journal = Journal::open(Arc::new(gated.clone()), dir(), true).unwrap().unwrap();
    journal.commit(&[Entry::Of(key(0), opened("t")), Entry::Of(key(1), opened("t"))]).unwrap();
    journal.note_epochs([(key(0), LeaderEpoch(4), Offset(5))]);
    gated.close_to_writes(dir());
    let noting = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| journal.append(&[Entry::Of(key(0), Fact::Start(Offset(1)))]));
        assert!(gated.wait_for(1, Duration::from_secs(60)), "the epoch is being written");
        journal.note_epochs([(key(1), LeaderEpoch(7), Offset(20))]);
        let noter = scope.spawn(|| {
            noting.store(true, Ordering::Release);
            journal.note_synced([(key(1), Offset(30))])
        });
        while !noting.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        gated.open_gate();
        writer.join().unwrap().unwrap();
        noter.join().unwrap().unwrap();
    });
    let known = reopened(&disk.snapshot()).partition(&key(1)).unwrap();
    assert!(known.synced == Offset(0) || known.newest_epoch() == LeaderEpoch(7), "{known:?}");
    // Whatever is noted is written with what comes next.
    journal.append(&[Entry::Of(key(0), Fact::Start(Offset(2)))]).unwrap();
    let known = reopened(&disk.snapshot()).partition(&key(1)).unwrap();
    assert_eq!((known.newest_epoch(), known.synced), (LeaderEpoch(7), Offset(30)));
}

#[test]
fn an_epoch_that_is_told_again_late_takes_no_newer_one_away() {
    let disk = SimDisk::new();
    let journal = created(&disk);
    let epoch = |epoch, start| Entry::Of(key(0), Fact::Epoch(LeaderEpoch(epoch), Offset(start)));
    journal.commit(&[Entry::Of(key(0), opened("t")), epoch(2, 10), epoch(3, 20)]).unwrap();
    journal.commit(&[epoch(2, 10)]).unwrap();
    let known = reopened(&disk.snapshot()).partition(&key(0)).unwrap();
    let told = [(LeaderEpoch(2), Offset(10)), (LeaderEpoch(3), Offset(20))];
    assert_eq!(known.newer_epochs[..], told);
}

#[test]
fn a_state_that_is_written_anew_is_the_same() {
    for seed in 0..20_000 {
        let mut rng = Rng::with_seed(seed);
        // Many partitions, or one of a few offsets only: what depends on the order of facts shows there.
        let (partitions, offsets) = [(9, 1000), (1, 8)][usize::from(rng.bool())];
        let mut state = State::default();
        for _ in 0..rng.usize(1..40) {
            apply(&mut state, &random_entry_of(partitions, offsets, &mut rng));
        }
        let mut again = State::default();
        again.decode_entries(&state.encode_entries()).unwrap();
        assert_eq!(state.partitions, again.partitions, "seed {seed}");
    }
}

#[test]
fn a_segment_that_was_active_at_the_last_checkpoint_and_holds_the_start_must_exist() {
    let disk = SimDisk::new();
    let journal = created(&disk);
    let checkpoint = |base, end| {
        let active = ActiveSegment { base: Offset(base), end: Offset(end), size_bytes: 100 };
        Entry::Of(
            key(0),
            Fact::Checkpoint(Checkpoint {
                recovery_point: active.end,
                active: Some(active),
                epoch: LeaderEpoch(0),
                high_watermark: active.end,
                cleaned_below: Offset(0),
                at: Timestamp(0),
            }),
        )
    };
    let sealed = SealedSegment { base: Offset(0), size_bytes: 100 };
    journal.commit(&[Entry::Of(key(0), opened("t")), checkpoint(0, 10)]).unwrap();
    // The log was rolled at 10, records below 5 deleted, and a crash comes before the next checkpoint is whole.
    journal.commit(&[Entry::Of(key(0), Fact::Start(Offset(5)))]).unwrap();
    let sealing = Fact::Sealed { complete: false, segments: vec![sealed] };
    journal.commit(&[Entry::Of(key(0), sealing)]).unwrap();
    let known = || reopened(&disk.snapshot()).partition(&key(0)).unwrap().sealed.clone();
    assert_eq!(known(), Some(vec![sealed]));
    journal.commit(&[checkpoint(10, 12)]).unwrap();
    assert_eq!(known(), Some(vec![sealed]));
    journal.commit(&[Entry::Of(key(0), Fact::Start(Offset(10)))]).unwrap();
    assert_eq!(known(), Some(Vec::new()));
}
