//! Power fails at every operation of the disk: what was acknowledged is there, nothing half.

use crate::support::*;
use quorum::QuorumConfig;
use std::sync::Arc;
use storage::disk::SimDisk;

const TOPICS: u64 = 24;

fn short_log() -> QuorumConfig {
    QuorumConfig { snapshot_entries: 8, ..config(1) }
}

#[tokio::test]
async fn whatever_was_acknowledged_survives_a_crash_at_any_operation() {
    let disk = SimDisk::new();
    disk.keep_history();
    prepare_disk(&disk);
    let begun = disk.operation_count();
    let quorum = start(short_log(), &disk, Arc::new(quorum::NoTransport)).await.unwrap();
    prepare(&quorum).await;
    let prepared = disk.operation_count();
    // How many operations had begun when a topic was acknowledged.
    let mut acknowledged = Vec::new();
    for i in 0..TOPICS {
        assert!(created(&quorum.propose(create(&format!("t{i:02}"), i)).await.unwrap()));
        acknowledged.push(disk.operation_count());
    }
    quorum.stop().await.unwrap();
    let states = disk.history();
    for (operation, state) in states.iter().enumerate().skip(begun as usize) {
        for seed in 0..3 {
            let after = state.after_crash(seed);
            check(&after, operation as u64, prepared, &acknowledged).await;
        }
    }
}

async fn check(disk: &SimDisk, operation: u64, prepared: u64, acknowledged: &[u64]) {
    let quorum = start(short_log(), disk, Arc::new(quorum::NoTransport)).await;
    let quorum = quorum.unwrap_or_else(|error| panic!("crash at {operation}: {error}"));
    let image = quorum.image();
    let kept = image.topic_count();
    let promised = acknowledged.iter().filter(|at| **at <= operation).count();
    assert!(kept >= promised, "crash at {operation}: {kept} topics of {promised} acknowledged");
    for i in 0..kept {
        assert!(image.topic(&format!("t{i:02}")).is_some(), "crash at {operation}: a hole at {i}");
    }
    if operation >= prepared {
        let number = 1000 + operation;
        assert!(created(&quorum.propose(create("after", number)).await.unwrap()));
    }
    quorum.stop().await.unwrap();
}
