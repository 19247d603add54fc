//! Growing from one voter to three, and back, without a stop.

use crate::support::*;
use model::BrokerId;
use quorum::{Quorum, QuorumConfig, QuorumDescription};
use std::time::Duration;

/// A node that is no voter yet: it waits to be told.
fn newcomer(node: i32) -> QuorumConfig {
    QuorumConfig { voters: vec![BrokerId(1)], ..voter(node) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_voter_becomes_three_and_survives_the_loss_of_the_first() {
    let mesh = Mesh::default();
    let disks = [new_disk(), new_disk(), new_disk()];
    let first = mesh.start(newcomer(1), &disks[0]).await.unwrap();
    mesh.join(1, &first);
    prepare(&first).await;
    assert!(created(&first.propose(create("alone", 1)).await.unwrap()));
    let mut nodes = vec![(1, first.clone())];
    for id in [2, 3] {
        let node = mesh.start(newcomer(id), &disks[id as usize - 1]).await.unwrap();
        mesh.join(id, &node);
        first.admit(BrokerId(id)).await.unwrap();
        nodes.push((id, node));
    }
    assert_eq!(first.members().1, [BrokerId(2), BrokerId(3)]);
    first.change_voters(&[BrokerId(1), BrokerId(2), BrokerId(3)]).await.unwrap();
    assert_eq!(first.members().0, [BrokerId(1), BrokerId(2), BrokerId(3)]);
    assert!(created(&first.propose(create("together", 2)).await.unwrap()));
    mesh.cut_off(1);
    let others = nodes.split_off(1);
    assert!(there(&ask(&others, create("without", 3)).await));
    let leader = await_leader(&others).await;
    let node = &others.iter().find(|(id, _)| *id == leader).unwrap().1;
    let image = node.image();
    assert!(["alone", "together", "without"].iter().all(|name| image.topic(name).is_some()));
    first.stop().await.unwrap();
    for (_, node) in others {
        node.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_learner_receives_everything_and_can_be_removed() {
    let mesh = Mesh::default();
    let disks = [new_disk(), new_disk()];
    let first = mesh.start(newcomer(1), &disks[0]).await.unwrap();
    mesh.join(1, &first);
    prepare(&first).await;
    let second = mesh.start(newcomer(2), &disks[1]).await.unwrap();
    mesh.join(2, &second);
    first.admit(BrokerId(2)).await.unwrap();
    assert!(created(&first.propose(create("t", 1)).await.unwrap()));
    second.wait_applied(first.applied_index().unwrap()).await.unwrap();
    assert_eq!(second.image().digest(), first.image().digest());
    let seen = await_observer(&first).await;
    assert_eq!(seen.voters.iter().map(|member| member.node).collect::<Vec<_>>(), [BrokerId(1)]);
    assert_eq!(seen.voters[0].log_end, seen.high_watermark, "all of it is committed");
    assert_eq!((seen.observers[0].node, seen.observers[0].caught_up), (BrokerId(2), true));
    assert_eq!(second.describe(), None, "only the leader knows");
    first.remove_learner(BrokerId(2)).await.unwrap();
    assert_eq!(first.members(), (vec![BrokerId(1)], vec![]));
    // The voter does not need the one that left.
    mesh.cut_off(2);
    second.stop().await.unwrap();
    assert!(created(&first.propose(create("u", 2)).await.unwrap()));
    first.stop().await.unwrap();
}

/// What the leader says once it has heard that its learner has everything.
async fn await_observer(leader: &Quorum) -> QuorumDescription {
    let waiting = async {
        loop {
            let seen = leader.describe().expect("it leads");
            if seen.observers.iter().any(|member| member.caught_up && member.heard_ago.is_some()) {
                return seen;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("the learner is heard of")
}
