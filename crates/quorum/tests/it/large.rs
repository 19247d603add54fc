//! Decisions that are too large for one entry: whole or not at all, whatever is lost on the way.

use crate::support::*;
use metadata::Request;
use metadata::decide::{CreateTopics, NewTopic};
use model::Uuid;
use quorum::QuorumConfig;
use std::sync::Arc;
use storage::disk::SimDisk;

/// A topic whose record has several hundred kilobytes.
fn create_large(name: &str, partitions: i32) -> Request {
    let topic = NewTopic {
        name: name.to_owned(),
        id: Uuid([3; 16]),
        partitions,
        replication_factor: 1,
        ..NewTopic::default()
    };
    Request::CreateTopics(CreateTopics { topics: vec![topic], validate_only: false })
}

#[tokio::test]
async fn a_decision_in_parts_is_there_after_a_restart_and_in_a_snapshot() {
    let disk = new_disk();
    let quorum = alone(&disk).await.unwrap();
    prepare(&quorum).await;
    let before = quorum.applied_index().unwrap();
    assert!(created(&quorum.propose(create_large("large", 6000)).await.unwrap()));
    assert!(quorum.applied_index().unwrap() > before + 1, "it took several entries");
    assert!(created(&quorum.propose(create("small", 1)).await.unwrap()));
    let image = quorum.image();
    quorum.stop().await.unwrap();
    // The log is replayed; then it becomes a snapshot, and nothing is replayed.
    for snapshot_bytes in [32 << 20, 1 << 10] {
        let config = QuorumConfig { snapshot_bytes, ..config(1) };
        let quorum = start(config, &disk, Arc::new(quorum::NoTransport)).await.unwrap();
        assert_eq!(quorum.image().digest(), image.digest());
        quorum.stop().await.unwrap();
    }
    let quorum = alone(&disk).await.unwrap();
    assert_eq!(quorum.image().digest(), image.digest());
    quorum.stop().await.unwrap();
}

/// A decision about a hundred partitions takes ten entries and more.
fn small_entries() -> QuorumConfig {
    QuorumConfig { entry_bytes_max: 2048, ..config(1) }
}

#[tokio::test]
async fn a_crash_between_the_parts_leaves_nothing_of_the_decision() {
    let disk = SimDisk::new();
    disk.keep_history();
    prepare_disk(&disk);
    let quorum = start(small_entries(), &disk, Arc::new(quorum::NoTransport)).await.unwrap();
    prepare(&quorum).await;
    let prepared = quorum.image();
    let begun = disk.operation_count() as usize;
    assert!(created(&quorum.propose(create_large("large", 100)).await.unwrap()));
    let whole = quorum.image();
    quorum.stop().await.unwrap();
    let (mut without, mut with) = (0, 0);
    for (operation, state) in disk.history().iter().enumerate().skip(begun) {
        let after = state.after_crash(operation as u64);
        // Every other log becomes a snapshot at once: no part may be lost in one either.
        let snapshot_bytes = if operation % 2 == 0 { 32 << 20 } else { 1 << 10 };
        let config = QuorumConfig { snapshot_bytes, ..small_entries() };
        let quorum = start(config, &after, Arc::new(quorum::NoTransport)).await.unwrap();
        let image = quorum.image();
        let is_there = image.topic("large").is_some();
        let expected = if is_there { &whole } else { &prepared };
        assert_eq!(image.digest(), expected.digest(), "crash at {operation}");
        with += usize::from(is_there);
        without += usize::from(!is_there);
        // It goes on: what is decided now has nothing of what was lost.
        assert!(created(&quorum.propose(create("small", 1)).await.unwrap()));
        assert_eq!(quorum.image().topic("large").is_some(), is_there);
        quorum.stop().await.unwrap();
    }
    assert!(without > 3 && with > 0, "{without} without, {with} with");
}
