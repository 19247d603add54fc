//! Upstream's test suite of log stores and state machines, run on ours.

use super::log_store::LogStore;
use crate::raft::TypeConfig;
use crate::state_machine::StateMachine;
use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use std::path::PathBuf;
use std::sync::Arc;
use storage::disk::{Disk, SimDisk};

struct Builder;

impl StoreBuilder<TypeConfig, LogStore, StateMachine> for Builder {
    async fn build(&self) -> Result<((), LogStore, StateMachine), StorageError<TypeConfig>> {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
        disk.create_dir_all(&PathBuf::from("/data")).unwrap();
        let dir = PathBuf::from("/data/__cluster_metadata-0");
        let store = LogStore::open(Arc::clone(&disk), dir.clone(), "c", 0).unwrap();
        let machine = StateMachine::open(disk, dir).unwrap();
        Ok(((), store, machine))
    }
}

#[tokio::test]
async fn upstream_suite_passes_on_our_store() {
    Suite::test_all(Builder).await.unwrap();
}
