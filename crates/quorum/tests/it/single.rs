//! One voter: it leads at once, keeps what it acknowledged, and refuses what is not its own.

use crate::support::*;
use metadata::Response;
use model::BrokerId;
use quorum::{QuorumConfig, QuorumError};
use std::path::Path;
use storage::disk::Disk;

#[tokio::test]
async fn a_new_voter_leads_when_it_has_started() {
    let quorum = alone(&new_disk()).await.unwrap();
    assert!(quorum.is_leader());
    assert_eq!(quorum.leader(), Some(BrokerId(1)));
    assert_eq!(quorum.members(), (vec![BrokerId(1)], vec![]));
    quorum.stop().await.unwrap();
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_a_restart() {
    let disk = new_disk();
    let quorum = alone(&disk).await.unwrap();
    prepare(&quorum).await;
    assert!(created(&quorum.propose(create("t", 1)).await.unwrap()));
    let before = quorum.image();
    quorum.stop().await.unwrap();
    for _ in 0..3 {
        let quorum = alone(&disk).await.unwrap();
        assert!(quorum.is_leader());
        assert_eq!(quorum.image().digest(), before.digest());
        quorum.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_restart_after_a_clean_stop_waits_for_no_sync() {
    let disk = new_disk();
    let quorum = alone(&disk).await.unwrap();
    prepare(&quorum).await;
    quorum.stop().await.unwrap();
    let before = disk.operation_count();
    let quorum = alone(&disk).await.unwrap();
    assert!(quorum.is_leader());
    let operations = &disk.operations()[before as usize..];
    assert!(operations.iter().all(|operation| !operation.kind.contains("sync")), "{operations:?}");
    quorum.stop().await.unwrap();
}

#[tokio::test]
async fn refusals_are_answers_and_write_nothing() {
    let disk = new_disk();
    let quorum = alone(&disk).await.unwrap();
    prepare(&quorum).await;
    let before = disk.operation_count();
    let answer = quorum.propose(create("a/b", 1)).await.unwrap();
    assert!(!created(&answer));
    assert_eq!(disk.operation_count(), before);
    quorum.stop().await.unwrap();
}

#[tokio::test]
async fn requests_that_queue_up_are_decided_together_and_in_order() {
    let disk = new_disk();
    let quorum = alone(&disk).await.unwrap();
    prepare(&quorum).await;
    let applied = quorum.applied_index().unwrap();
    let asked = (0..100u64).map(|i| {
        let quorum = quorum.clone();
        // Every name comes twice: the second one must see the first.
        tokio::spawn(
            async move { quorum.propose(create(&format!("t{}", i / 2), i)).await.unwrap() },
        )
    });
    let asked: Vec<_> = asked.collect();
    let mut good = 0;
    for answer in asked {
        good += created(&answer.await.unwrap()) as usize;
    }
    assert_eq!((good, quorum.image().topic_count()), (50, 50));
    let entries = quorum.applied_index().unwrap() - applied;
    assert!(entries < 50, "{entries} entries for 100 requests");
    quorum.stop().await.unwrap();
}

#[tokio::test]
async fn a_subscriber_sees_every_change_once_and_in_order() {
    let quorum = alone(&new_disk()).await.unwrap();
    prepare(&quorum).await;
    let mut steps = quorum.subscribe();
    let first = steps.next().await.unwrap();
    assert!(first.before.brokers().next().is_none() && first.after.brokers().next().is_some());
    for i in 0..10 {
        quorum.propose(create(&format!("t{i}"), i)).await.unwrap();
        if i % 3 == 0 {
            let step = steps.next().await.unwrap();
            let news = step.after.topic_count() - step.before.topic_count();
            assert_eq!(step.delta.topics.len(), news);
            assert_eq!(step.after.topic_count() as u64, i + 1);
        }
    }
    quorum.stop().await.unwrap();
    assert_eq!(steps.next().await.map(|step| step.after.topic_count()), None);
}

#[tokio::test]
async fn snapshots_replace_the_log_before_them() {
    let disk = new_disk();
    let config = || QuorumConfig { snapshot_entries: 20, ..config(1) };
    let transport = || std::sync::Arc::new(quorum::NoTransport);
    let quorum = start(config(), &disk, transport()).await.unwrap();
    prepare(&quorum).await;
    for i in 0..100 {
        assert!(created(&quorum.propose(create(&format!("t{i}"), i)).await.unwrap()));
    }
    let before = quorum.image();
    quorum.stop().await.unwrap();
    let names = disk.list(Path::new("/data/__cluster_metadata-0")).unwrap();
    // The newest, and the one before in case that is damaged.
    assert_eq!(names.iter().filter(|name| name.ends_with(".checkpoint")).count(), 2, "{names:?}");
    let quorum = start(config(), &disk, transport()).await.unwrap();
    assert_eq!(quorum.image().digest(), before.digest());
    assert!(created(&quorum.propose(create("later", 1000)).await.unwrap()));
    quorum.stop().await.unwrap();
}

#[tokio::test]
async fn a_folder_of_another_node_or_cluster_is_refused() {
    let disk = new_disk();
    alone(&disk).await.unwrap().stop().await.unwrap();
    let transport = || std::sync::Arc::new(quorum::NoTransport);
    for config in [config(2), QuorumConfig { cluster_id: "B".into(), ..config(1) }] {
        let error = start(config, &disk, transport()).await.err().unwrap();
        assert!(error.to_string().contains("belongs to node 1"), "{error}");
    }
}

#[tokio::test]
async fn a_lost_vote_is_found_again_by_a_single_voter() {
    let disk = new_disk();
    let quorum = alone(&disk).await.unwrap();
    prepare(&quorum).await;
    let before = quorum.image();
    quorum.stop().await.unwrap();
    disk.remove_file(Path::new("/data/__cluster_metadata-0/vote")).unwrap();
    let quorum = alone(&disk).await.unwrap();
    assert_eq!(quorum.image().digest(), before.digest());
    assert!(created(&quorum.propose(create("t", 1)).await.unwrap()));
    quorum.stop().await.unwrap();
}

#[tokio::test]
async fn damage_below_the_recovery_point_is_refused_and_not_cut_off() {
    let disk = new_disk();
    let quorum = alone(&disk).await.unwrap();
    prepare(&quorum).await;
    quorum.stop().await.unwrap();
    let log = Path::new("/data/__cluster_metadata-0/00000000000000000000.log");
    disk.flip_bit(log, 100, 3);
    let error = alone(&disk).await.err().expect("a damaged log must not be opened");
    assert!(matches!(error, QuorumError::Stopped(_)), "{error}");
}

#[tokio::test]
async fn nothing_is_acknowledged_once_a_sync_has_failed() {
    let disk = new_disk();
    let quorum = alone(&disk).await.unwrap();
    prepare(&quorum).await;
    disk.fail_syncs(true);
    let failed = tokio::spawn({
        let quorum = quorum.clone();
        async move { quorum.failed().await }
    });
    let answer: Result<Response, QuorumError> = quorum.propose(create("t", 1)).await;
    assert!(matches!(answer, Err(QuorumError::Stopped(_))), "{answer:?}");
    assert!(matches!(failed.await.unwrap(), QuorumError::Stopped(_)));
    disk.fail_syncs(false);
    assert!(quorum.propose(create("u", 2)).await.is_err());
}

#[tokio::test]
async fn damage_before_whole_entries_is_refused_even_after_a_crash() {
    let disk = new_disk();
    let quorum = alone(&disk).await.unwrap();
    prepare(&quorum).await;
    assert!(created(&quorum.propose(create("t", 1)).await.unwrap()));
    // No clean stop: nothing says up to where the log was durable.
    let after = disk.after_crash(7);
    let log = Path::new("/data/__cluster_metadata-0/00000000000000000000.log");
    let size = after.read(log).unwrap().len() as u64;
    let damaged = after.snapshot();
    damaged.flip_bit(log, 200, 3);
    let error = alone(&damaged).await.err().expect("a damaged log must not be opened");
    assert!(error.to_string().contains("was synced"), "{error}");
    assert_eq!(damaged.read(log).unwrap().len() as u64, size, "nothing was cut off");
    // The very last entry may have been cut off by the crash, if the note that it was synced was lost
    // as well: it is written behind the sync.
    let torn = after.snapshot();
    torn.flip_bit(log, size - 5, 3);
    let note = Path::new("/data/__cluster_metadata-0/synced");
    if torn.exists(note) {
        torn.remove_file(note).unwrap();
    }
    let reopened = alone(&torn).await.unwrap();
    assert_eq!(reopened.image().topic_count(), 0);
    reopened.stop().await.unwrap();
    quorum.stop().await.unwrap();
}

#[tokio::test]
async fn a_log_of_few_large_entries_is_bounded_too() {
    let disk = new_disk();
    let config = || QuorumConfig { snapshot_bytes: 20_000, ..config(1) };
    let transport = || std::sync::Arc::new(quorum::NoTransport);
    let quorum = start(config(), &disk, transport()).await.unwrap();
    prepare(&quorum).await;
    let log_bytes = || {
        let dir = Path::new("/data/__cluster_metadata-0");
        let names = disk.list(dir).unwrap();
        let logs = names.iter().filter(|name| name.ends_with(".log"));
        logs.map(|name| disk.read(&dir.join(name)).unwrap().len()).sum::<usize>()
    };
    for i in 0..200 {
        assert!(created(&quorum.propose(create(&format!("t{i}"), i)).await.unwrap()));
    }
    // 200 entries are some 70,000 bytes. Purging goes on beside proposing. The entries behind the
    // snapshot before the newest stay: twice the bound, and a file of it at each end.
    let purged = async {
        while log_bytes() > 48_000 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), purged).await.expect("it is purged");
    let before = quorum.image();
    quorum.stop().await.unwrap();
    let quorum = start(config(), &disk, transport()).await.unwrap();
    assert_eq!(quorum.image().digest(), before.digest());
    assert!(created(&quorum.propose(create("later", 1000)).await.unwrap()));
    quorum.stop().await.unwrap();
}

#[tokio::test]
async fn what_a_stopped_node_would_start_with_can_be_read_without_changing_anything() {
    let disk = new_disk();
    let quorum = alone(&disk).await.unwrap();
    prepare(&quorum).await;
    for number in 0..20 {
        let name = format!("t{number}");
        assert!(created(&quorum.propose(create(&name, number)).await.unwrap()));
        if number % 7 == 0 {
            let image = quorum.image();
            let read = read(&disk.snapshot());
            assert_eq!(read.digest(), image.digest(), "while it runs");
        }
    }
    let last = quorum.image();
    quorum.stop().await.unwrap();
    let before = disk.operation_count();
    assert_eq!(read(&disk).digest(), last.digest());
    assert_eq!(disk.operation_count(), before);
}

fn read(disk: &storage::disk::SimDisk) -> metadata::ClusterImage {
    let config = config(1);
    let disk: std::sync::Arc<dyn Disk> = std::sync::Arc::new(disk.clone());
    quorum::read_stopped(&disk, &config.dir, &config.cluster_id, config.node).unwrap()
}
