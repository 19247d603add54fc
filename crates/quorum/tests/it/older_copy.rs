//! Metadata folders that the notes of the log directories refuse.

use crate::support::*;
use quorum::{NoTransport, QuorumConfig, QuorumError};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use storage::disk::Disk;
use storage::journal::MetadataNote;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_were_in_a_cluster_make_no_new_one() {
    let mesh = Mesh::default();
    let noted = MetadataNote { member: (7 << 32) | 3, index: 9, term: 2 };
    let mut nodes = Vec::new();
    for id in 1..=3 {
        let notes = if id == 3 { vec![noted] } else { Vec::new() };
        let node = mesh.start(QuorumConfig { notes, ..voter(id) }, &new_disk()).await.unwrap();
        mesh.join(id, &node);
        nodes.push(node);
    }
    let words = [
        "node 3 has the metadata of the cluster",
        "node 3 has the metadata of the cluster",
        "its log directories are of a cluster that has metadata",
    ];
    for (node, words) in nodes.iter().zip(words) {
        let waiting = async {
            let mut told = node.waits_for();
            while !told.as_ref().is_some_and(|told| told.contains(words)) {
                told = node.waits_for_changed(&told).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), waiting).await.expect(words);
    }
    assert!(nodes.iter().all(|node| node.leader().is_none() && node.last_entry().is_none()));
    for node in nodes {
        node.stop().await.unwrap();
    }
}

#[tokio::test]
async fn an_only_voter_refuses_an_older_copy_and_changes_nothing() {
    let disk = new_disk();
    let quorum = alone(&disk).await.unwrap();
    prepare(&quorum).await;
    let copied = disk.snapshot();
    assert!(created(&quorum.propose(create("later", 1)).await.unwrap()));
    let note = quorum.metadata_note().unwrap();
    quorum.stop().await.unwrap();

    let config = || QuorumConfig { notes: vec![note], ..config(1) };
    // A node that believes the copy waits for its newest entry, which it does not have.
    let starting = start(config(), &copied, Arc::new(NoTransport));
    let refused = tokio::time::timeout(Duration::from_secs(60), starting).await;
    let refused = refused.expect("the start ends");
    let Err(QuorumError::Stopped(words)) = refused.map(drop) else {
        panic!("the copy is believed")
    };
    assert!(words.contains("was put back from an older copy"), "{words}");
    assert!(copied.exists(Path::new("/data/__cluster_metadata-0/vote")));
    let newest = start(config(), &disk, Arc::new(NoTransport)).await.unwrap();
    assert!(newest.image().topic("later").is_some());
    newest.stop().await.unwrap();
}
