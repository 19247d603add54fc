//! Upstream's test suite of log stores and state machines, run on ours, and what it does not ask:
//! whether a vote is durable.

use super::log_store::LogStore;
use crate::raft::{LeaderId, TypeConfig, Vote};
use crate::state_machine::StateMachine;
use openraft::storage::RaftLogStorage;
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
        let store = LogStore::open(Arc::clone(&disk), dir.clone(), "c", 0, 1 << 20).unwrap();
        let machine = StateMachine::open(disk, dir).unwrap();
        Ok(((), store, machine))
    }
}

#[tokio::test]
async fn upstream_suite_passes_on_our_store() {
    Suite::test_all(Builder).await.unwrap();
}

#[tokio::test]
async fn a_vote_that_was_saved_is_there_after_a_crash() {
    let disk = SimDisk::new();
    disk.create_dir_all(&PathBuf::from("/data")).unwrap();
    disk.sync_dir(&PathBuf::from("/")).unwrap();
    let dir = PathBuf::from("/data/__cluster_metadata-0");
    let open = |disk: &SimDisk| {
        LogStore::open(Arc::new(disk.clone()), dir.clone(), "c", 1, 1 << 20).unwrap()
    };
    let mut store = open(&disk);
    for term in 1..10 {
        let vote = Vote { leader_id: LeaderId { term, node_id: 1 }, committed: term % 2 == 0 };
        store.save_vote(&vote).await.unwrap();
        for seed in 0..5 {
            let mut after = open(&disk.after_crash(seed));
            assert_eq!(after.read_vote().await.unwrap(), Some(vote), "term {term}, seed {seed}");
        }
    }
}
