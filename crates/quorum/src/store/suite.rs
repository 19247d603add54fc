//! Upstream's test suite of log stores and state machines, run on ours, and what it does not ask:
//! whether a vote is durable.

use super::log_store::LogStore;
use super::open::{Opened, open};
use super::snapshot::{self, Applied};
use super::vote::VoteFile;
use crate::raft::{Entry, LeaderId, LogId, Payload, Proposal, TypeConfig, Vote};
use crate::state_machine::StateMachine;
use metadata::{ConfigResource, MetadataRecord};
use openraft::storage::{RaftLogStorage, RaftLogStorageExt, RaftStateMachine};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::{RaftLogReader, StorageError};
use std::path::PathBuf;
use std::sync::Arc;
use storage::disk::{Disk, SimDisk};

struct Builder;

impl StoreBuilder<TypeConfig, LogStore, StateMachine> for Builder {
    async fn build(&self) -> Result<((), LogStore, StateMachine), StorageError<TypeConfig>> {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
        disk.create_dir_all(&PathBuf::from("/data")).unwrap();
        let dir = PathBuf::from("/data/__cluster_metadata-0");
        let opened = open(Arc::clone(&disk), dir.clone(), "c", 0, 1 << 20).unwrap();
        // The suite leaves indexes out, which no raft does.
        let machine = StateMachine::new(disk, dir, opened.applied).with_gaps();
        Ok(((), opened.store, machine))
    }
}

#[tokio::test]
async fn upstream_suite_passes_on_our_store() {
    // What it draws by lot comes from a seed, as in simulations.
    crate::raft::Runtime::scope(1, Suite::test_all(Builder)).await.unwrap();
}

fn store_on(disk: &SimDisk) -> std::io::Result<Opened> {
    let dir = PathBuf::from("/data/__cluster_metadata-0");
    open(Arc::new(disk.clone()), dir, "c", 1, 1 << 20)
}

fn new_disk() -> SimDisk {
    let disk = SimDisk::new();
    disk.keep_history();
    disk.create_dir_all(&PathBuf::from("/data")).unwrap();
    disk.sync_dir(&PathBuf::from("/")).unwrap();
    disk
}

fn vote(term: u64) -> Vote {
    Vote { leader_id: LeaderId { term, node_id: 1 }, committed: true }
}

fn blanks(term: u64, indexes: std::ops::Range<u64>) -> Vec<Entry> {
    let leader = LeaderId { term, node_id: 1 };
    indexes
        .map(|index| Entry { log_id: LogId::new(leader, index), payload: Payload::Blank })
        .collect()
}

/// An entry with a record of so many bytes.
fn entry_of(index: u64, bytes: usize) -> Entry {
    let record = MetadataRecord::ConfigSet {
        resource: ConfigResource::Topic("t".into()),
        key: "k".into(),
        value: "v".repeat(bytes),
    };
    let records = vec![record].into();
    let proposal = Proposal { decided_at: None, applied: None, records, part: None };
    let leader = LeaderId { term: 1, node_id: 1 };
    Entry { log_id: LogId::new(leader, index), payload: Payload::Normal(proposal) }
}

#[tokio::test]
async fn large_entries_are_read_again_and_not_kept() {
    let disk = new_disk();
    let mut store = store_on(&disk).unwrap().store;
    let read = async |store: &mut LogStore, indexes: std::ops::Range<u64>| {
        let entries = store.try_get_log_entries(indexes).await.unwrap();
        entries.iter().map(|entry| entry.log_id.index).collect::<Vec<_>>()
    };
    store.blocking_append([entry_of(0, 10), entry_of(1, 10)]).await.unwrap();
    assert_eq!(store.recent_count(), 2);
    store.blocking_append([entry_of(2, 3 << 20)]).await.unwrap();
    assert_eq!(store.recent_count(), 0, "those before it are not consecutive with what follows");
    assert_eq!(read(&mut store, 2..3).await, [2]);
    store.blocking_append([entry_of(3, 10)]).await.unwrap();
    assert_eq!(store.recent_count(), 1);
    for index in 4..10 {
        store.blocking_append([entry_of(index, 300 << 10)]).await.unwrap();
    }
    assert_eq!(store.recent_count(), 3, "a MiB of them");
    assert_eq!(read(&mut store, 0..2).await, [0, 1]);
    assert_eq!(read(&mut store, 7..10).await, [7, 8, 9]);
}

#[tokio::test]
async fn a_vote_that_was_saved_is_there_after_a_crash() {
    let disk = new_disk();
    let mut store = store_on(&disk).unwrap().store;
    for term in 1..10 {
        let vote = Vote { committed: term % 2 == 0, ..vote(term) };
        store.save_vote(&vote).await.unwrap();
        for seed in 0..5 {
            let mut after = store_on(&disk.after_crash(seed)).unwrap().store;
            assert_eq!(after.read_vote().await.unwrap(), Some(vote), "term {term}, seed {seed}");
        }
    }
}

#[tokio::test]
async fn a_vote_that_nobody_waits_for_is_in_what_is_written_next() {
    let disk = new_disk();
    let mut store = store_on(&disk).unwrap().store;
    store.save_vote(&vote(3)).await.unwrap();
    {
        // Polled once, so that it is on its way; then whoever asked has gone.
        let newer = vote(4);
        let mut saved = Box::pin(store.save_vote(&newer));
        let _ = futures_util::poll!(&mut saved);
    }
    store.close().await.unwrap();
    let mut again = store_on(&disk).unwrap().store;
    assert_eq!(again.read_vote().await.unwrap(), Some(vote(4)));
}

#[tokio::test]
async fn of_several_entries_that_were_not_synced_power_failure_may_keep_any() {
    let disk = new_disk();
    let mut store = store_on(&disk).unwrap().store;
    store.save_vote(&vote(1)).await.unwrap();
    let mut synced = vec![(disk.operation_count(), 0)];
    for round in 0..3 {
        // As a follower does: one append of many entries, more than a sector each way.
        store.blocking_append(blanks(1, round * 20..round * 20 + 20)).await.unwrap();
        synced.push((disk.operation_count(), round * 20 + 20));
    }
    for (operation, state) in disk.history().iter().enumerate().skip(synced[0].0 as usize) {
        for seed in 0..20 {
            let after = state.after_crash(seed);
            for start in 0..2 {
                let opened = store_on(&after);
                let opened =
                    opened.unwrap_or_else(|error| panic!("{operation}, {seed}, {start}: {error}"));
                let kept = opened.store.last().map_or(0, |id| id.index + 1);
                let promised = synced.iter().filter(|(at, _)| *at <= operation as u64);
                let promised = promised.map(|(_, count)| *count).max().unwrap_or(0);
                assert!(kept >= promised, "{operation}, {seed}: {kept} of {promised}");
            }
        }
    }
}

#[tokio::test]
async fn a_log_that_was_cut_or_emptied_on_purpose_is_not_damaged() {
    let disk = new_disk();
    let mut store = store_on(&disk).unwrap().store;
    store.save_vote(&vote(1)).await.unwrap();
    store.blocking_append(blanks(1, 0..40)).await.unwrap();
    store.close().await.unwrap();
    let begun = disk.operation_count();
    store.save_vote(&vote(2)).await.unwrap();
    store.truncate_after(Some(LogId::new(LeaderId { term: 1, node_id: 1 }, 9))).await.unwrap();
    store.blocking_append(blanks(2, 10..15)).await.unwrap();
    // A snapshot of another node that is far ahead.
    let last = LogId::new(LeaderId { term: 2, node_id: 1 }, 500);
    let applied = Applied { last: Some(last), ..Applied::default() };
    let dir = PathBuf::from("/data/__cluster_metadata-0");
    snapshot::write(&disk, &dir, last, &applied.encode()).unwrap();
    store.purge(last).await.unwrap();
    store.blocking_append(blanks(2, 501..503)).await.unwrap();
    for (operation, state) in disk.history().iter().enumerate().skip(begun as usize) {
        for seed in 0..4 {
            let after = state.after_crash(seed);
            for _ in 0..2 {
                let opened = store_on(&after);
                opened.unwrap_or_else(|error| panic!("crash at {operation}, seed {seed}: {error}"));
            }
        }
    }
    drop(store);
    assert_eq!(store_on(&disk).unwrap().store.last().map(|id| id.index), Some(502));
}

#[tokio::test]
async fn a_vote_older_than_the_newest_entry_is_refused() {
    let disk = new_disk();
    let mut store = store_on(&disk).unwrap().store;
    store.save_vote(&vote(5)).await.unwrap();
    store.blocking_append(blanks(5, 0..3)).await.unwrap();
    store.close().await.unwrap();
    let dir = PathBuf::from("/data/__cluster_metadata-0");
    let file = VoteFile { vote: Some(vote(4)), recovery_point: 3, ..VoteFile::new("c", 1) };
    file.write(&disk, &dir).unwrap();
    let error = store_on(&disk).err().expect("a vote of an older term").to_string();
    assert!(error.contains("vote") && error.contains("term 4"), "{error}");
}

fn proposal(index: u64, decided_at: Option<u64>, applied: Option<u64>) -> Entry {
    let records = vec![MetadataRecord::ConfigSet {
        resource: ConfigResource::Topic("t".into()),
        key: "retention.ms".into(),
        value: index.to_string(),
    }];
    let proposal = Proposal { decided_at, applied, records: records.into(), part: None };
    let leader = LeaderId { term: 1, node_id: 1 };
    Entry { log_id: LogId::new(leader, index), payload: Payload::Normal(proposal) }
}

async fn apply(machine: &mut StateMachine, entry: Entry) -> std::io::Result<()> {
    machine.apply(futures_util::stream::iter([Ok((entry, None))])).await
}

#[tokio::test]
async fn an_entry_that_finds_other_outcomes_than_it_was_decided_on_stops_the_node() {
    let machine = || {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
        StateMachine::new(disk, PathBuf::from("/q"), Applied::default())
    };
    // A stale decision of a leader that had not applied entry 1: refused as ever.
    let mut stale = machine();
    apply(&mut stale, proposal(0, None, None)).await.unwrap();
    apply(&mut stale, proposal(1, Some(0), Some(0))).await.unwrap();
    apply(&mut stale, proposal(2, Some(0), Some(0))).await.unwrap();
    assert_eq!(stale.published().version().changed_at, Some(1));
    apply(&mut stale, proposal(3, Some(1), Some(2))).await.unwrap();
    // Entry 1 is missing.
    let mut gap = machine();
    apply(&mut gap, proposal(0, None, None)).await.unwrap();
    assert!(apply(&mut gap, proposal(2, Some(1), Some(1))).await.is_err());
    // Entry 1 was refused here, and changed the image of the leader that decided entry 2.
    let mut missed = machine();
    apply(&mut missed, proposal(0, None, None)).await.unwrap();
    apply(&mut missed, proposal(1, None, None)).await.unwrap();
    let error = apply(&mut missed, proposal(2, Some(1), Some(1))).await.unwrap_err();
    assert!(error.to_string().contains("entry 2"), "{error}");
    // Entry 1 changed the image here, and the leader that decided entry 2 had refused it.
    let mut added = machine();
    apply(&mut added, proposal(0, None, None)).await.unwrap();
    apply(&mut added, proposal(1, Some(0), None)).await.unwrap();
    assert!(apply(&mut added, proposal(2, Some(0), Some(1))).await.is_err());
    // Entries of version 0 do not say: refused without a word, as when they were written.
    let mut old = machine();
    apply(&mut old, proposal(0, None, None)).await.unwrap();
    apply(&mut old, proposal(1, Some(7), None)).await.unwrap();
    assert_eq!(old.published().version().changed_at, Some(0));
}

/// Only a leader that lacks committed entries requests this.
#[tokio::test]
async fn committed_entries_are_never_truncated() {
    let disk = new_disk();
    let mut store = store_on(&disk).unwrap().store;
    store.save_vote(&vote(1)).await.unwrap();
    store.blocking_append(blanks(1, 0..10)).await.unwrap();
    store.note_committed(7);
    let last = |index| Some(LogId::new(LeaderId { term: 1, node_id: 1 }, index));
    store.truncate_after(last(6)).await.unwrap();
    let refused = store.truncate_after(last(5)).await.unwrap_err().to_string();
    assert!(refused.contains("the entries up to 6 are committed"), "{refused}");
    assert_eq!(store.last(), last(6));
    assert_eq!(store.try_get_log_entries(0..).await.unwrap().len(), 7);
}
