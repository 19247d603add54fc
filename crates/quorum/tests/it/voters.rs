//! Three voters: what one acknowledged the others know, whoever fails.

use crate::support::*;
use metadata::Response;
use model::BrokerId;
use quorum::{Quorum, QuorumConfig, QuorumError};
use storage::disk::{Disk, SimDisk};

struct Cluster {
    mesh: Mesh,
    disks: Vec<(i32, SimDisk)>,
    nodes: Vec<(i32, Quorum)>,
}

async fn cluster_of_three(config: impl Fn(i32) -> QuorumConfig) -> Cluster {
    let mesh = Mesh::default();
    let disks: Vec<(i32, SimDisk)> = (1..=3).map(|id| (id, new_disk())).collect();
    let mut nodes = Vec::new();
    for (id, disk) in &disks {
        let node = mesh.start(config(*id), disk).await.unwrap();
        mesh.join(*id, &node);
        nodes.push((*id, node));
    }
    Cluster { mesh, disks, nodes }
}

impl Cluster {
    fn node(&self, id: i32) -> &Quorum {
        &self.nodes.iter().find(|(other, _)| *other == id).unwrap().1
    }

    async fn ask(&self, request: metadata::Request) -> Response {
        ask(&self.nodes, request).await
    }

    async fn stop(self) {
        for (_, node) in self.nodes {
            node.stop().await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_leader_acknowledged_is_led_on_by_another() {
    let mut cluster = cluster_of_three(voter).await;
    cluster.ask(crate::support::cluster()).await;
    cluster.ask(register(1)).await;
    assert!(there(&cluster.ask(create("before", 1)).await));
    let killed = await_leader(&cluster.nodes).await;
    // Power fails on the leader: it answers nobody, and its disk is as the crash left it.
    cluster.mesh.cut_off(killed);
    let disk = cluster.disks.iter().find(|(id, _)| *id == killed).unwrap().1.after_crash(1);
    let position = cluster.nodes.iter().position(|(id, _)| *id == killed).unwrap();
    let (_, dead) = cluster.nodes.remove(position);
    assert!(there(&cluster.ask(create("after", 2)).await));
    let leader = await_leader(&cluster.nodes).await;
    assert_ne!(leader, killed);
    let image = cluster.node(leader).image();
    assert!(image.topic("before").is_some() && image.topic("after").is_some());
    // The old leader believes that it leads, and can decide nothing.
    dead.stop().await.unwrap();
    // It comes back and catches up.
    let back = cluster.mesh.start(voter(killed), &disk).await.unwrap();
    cluster.mesh.join(killed, &back);
    cluster.nodes.push((killed, back.clone()));
    let index = cluster.node(leader).applied_index().unwrap();
    back.wait_applied(index).await.unwrap();
    assert_eq!(back.image().digest(), image.digest());
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_commits_nothing() {
    let cluster = cluster_of_three(voter).await;
    cluster.ask(crate::support::cluster()).await;
    cluster.ask(register(1)).await;
    let old = await_leader(&cluster.nodes).await;
    cluster.mesh.cut_off(old);
    let lonely = tokio::spawn({
        let node = cluster.node(old).clone();
        async move { node.propose(create("lonely", 1)).await }
    });
    let others: Vec<_> = cluster.nodes.iter().filter(|(id, _)| *id != old).cloned().collect();
    assert!(there(&ask(&others, create("common", 2)).await));
    let node = cluster.node(await_leader(&others).await);
    // It is heard again: its proposal is gone, and it says that it does not know.
    cluster.mesh.join(old, cluster.node(old));
    let answer = lonely.await.unwrap();
    assert!(answer.is_err(), "{answer:?}");
    let index = node.applied_index().unwrap();
    cluster.node(old).wait_applied(index).await.unwrap();
    let image = cluster.node(old).image();
    assert!(image.topic("lonely").is_none() && image.topic("common").is_some());
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_missed_what_was_purged_gets_a_snapshot() {
    let config = |id| QuorumConfig { snapshot_entries: 10, ..voter(id) };
    let mut cluster = cluster_of_three(config).await;
    cluster.ask(crate::support::cluster()).await;
    cluster.ask(register(1)).await;
    let leader = await_leader(&cluster.nodes).await;
    let away = if leader == 3 { 2 } else { 3 };
    cluster.mesh.cut_off(away);
    let position = cluster.nodes.iter().position(|(id, _)| *id == away).unwrap();
    let (_, missing) = cluster.nodes.remove(position);
    missing.stop().await.unwrap();
    for i in 0..60 {
        assert!(there(&cluster.ask(create(&format!("t{i}"), i)).await));
    }
    let disk = &cluster.disks.iter().find(|(id, _)| *id == away).unwrap().1;
    let back = cluster.mesh.start(config(away), disk).await.unwrap();
    cluster.mesh.join(away, &back);
    let mut steps = back.subscribe();
    let leader = await_leader(&cluster.nodes).await;
    let index = cluster.node(leader).applied_index().unwrap();
    back.wait_applied(index).await.unwrap();
    assert_eq!(back.image().digest(), cluster.node(leader).image().digest());
    let step = steps.next().await.unwrap();
    assert_eq!(step.after.topic_count(), 60);
    assert_eq!(step.delta.topics.len(), 60);
    cluster.nodes.push((away, back));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_names_the_leader_and_decides_nothing() {
    let cluster = cluster_of_three(voter).await;
    cluster.ask(crate::support::cluster()).await;
    let leader = await_leader(&cluster.nodes).await;
    let (_, follower) = cluster.nodes.iter().find(|(id, _)| *id != leader).unwrap();
    follower.wait_applied(cluster.node(leader).applied_index().unwrap()).await.unwrap();
    let known = follower.leader();
    assert_eq!(known, Some(BrokerId(leader)));
    let answer = follower.propose(create("t", 1)).await;
    assert_eq!(answer, Err(QuorumError::NotLeader { leader: known }));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_message_of_a_member_is_refused() {
    let quorum = alone(&new_disk()).await.unwrap();
    for message in
        [&b""[..], b"{}", b"\xff\xff", br#"{"cluster_id":"x","from":2,"to":1,"message":{}}"#]
    {
        let answer = quorum.receive(message).await;
        assert_eq!(answer[..2], [1, 0x80], "version 1, refused: {answer:?}");
    }
    quorum.stop().await.unwrap();
}

/// The frame of a message: version, kind, cluster, sender, addressee.
fn message(kind: u8, cluster: &str, from: u64, to: u64) -> Vec<u8> {
    let mut bytes = vec![1, kind, 0, cluster.len() as u8];
    bytes.extend_from_slice(cluster.as_bytes());
    bytes.extend_from_slice(&from.to_be_bytes());
    bytes.extend_from_slice(&to.to_be_bytes());
    // A piece of what has three bytes, and none of them yet.
    bytes.extend_from_slice(&[[0, 0, 0, 0, 0, 0, 0, 3], [9; 8], [0; 8]].concat());
    bytes
}

#[tokio::test]
async fn messages_of_another_cluster_or_sender_or_for_another_node_are_refused() {
    let quorum = alone(&new_disk()).await.unwrap();
    let kind = async |message: Vec<u8>, sender: Option<i32>| {
        let answer = match sender {
            Some(sender) => quorum.receive_from(BrokerId(sender), &message).await,
            None => quorum.receive(&message).await,
        };
        answer[1]
    };
    let (refused, taken) = (0x80, 0x85);
    assert_eq!(kind(message(5, CLUSTER, 2, 1), None).await, taken);
    assert_eq!(kind(message(5, CLUSTER, 2, 1), Some(2)).await, taken);
    assert_eq!(kind(message(5, CLUSTER, 2, 1), Some(3)).await, refused);
    assert_eq!(kind(message(5, CLUSTER, 2, 3), None).await, refused);
    assert_eq!(kind(message(5, "another", 2, 1), None).await, refused);
    assert_eq!(kind(message(9, CLUSTER, 2, 1), None).await, refused);
    quorum.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_whose_vote_is_lost_is_refused() {
    let mut cluster = cluster_of_three(voter).await;
    cluster.ask(crate::support::cluster()).await;
    cluster.ask(register(1)).await;
    assert!(there(&cluster.ask(create("kept", 1)).await));
    let leader = await_leader(&cluster.nodes).await;
    let (id, disk) = cluster.disks.iter().find(|(id, _)| *id != leader).unwrap().clone();
    let index = cluster.node(leader).applied_index().unwrap();
    cluster.node(id).wait_applied(index).await.unwrap();
    let position = cluster.nodes.iter().position(|(other, _)| *other == id).unwrap();
    let (_, node) = cluster.nodes.remove(position);
    cluster.mesh.cut_off(id);
    node.stop().await.unwrap();
    let vote = voter(id).dir.join("vote");
    disk.remove_file(&vote).unwrap();
    // The second start finds the folder as the first one did.
    for _ in 0..2 {
        let refused = cluster.mesh.start(voter(id), &disk).await;
        let Err(QuorumError::Stopped(words)) = refused.map(drop) else {
            panic!("a voter takes part that may have voted")
        };
        assert!(words.contains("this node may have voted: move the folder"), "{words}");
        assert!(!disk.exists(&vote), "nothing is written");
    }
    cluster.stop().await;
}
