//! A new quorum out of the metadata of one survivor.

use crate::support::*;
use model::BrokerId;
use quorum::{Generation, Quorum, QuorumConfig, plan_regeneration, regenerate};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use storage::disk::{Disk, SimDisk};

const FOLDER: &str = "/data/__cluster_metadata-0";

fn generation(disk: &SimDisk) -> Arc<Generation> {
    Arc::new(Generation::open(Arc::new(disk.clone()), PathBuf::from(FOLDER)).unwrap())
}

/// A voter with an empty folder that was connected with a node of generation 1.
async fn newcomer(mesh: &Mesh, id: i32) -> Quorum {
    let disk = new_disk();
    let generation = generation(&disk);
    generation.adopt(1, false).unwrap();
    let config = QuorumConfig { generation: Some(generation), lot: 70 + id as u32, ..voter(id) };
    let node = mesh.start(config, &disk).await.unwrap();
    mesh.join(id, &node);
    node
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_survivor_makes_a_new_quorum_with_all_that_it_has() {
    let mesh = Mesh::default();
    let disks: Vec<SimDisk> = (1..=3).map(|_| new_disk()).collect();
    let mut nodes = Vec::new();
    for (id, disk) in (1..).zip(&disks) {
        let node = mesh.start(voter(id), disk).await.unwrap();
        mesh.join(id, &node);
        nodes.push((id, node));
    }
    ask(&nodes, cluster()).await;
    ask(&nodes, register(1)).await;
    assert!(there(&ask(&nodes, create("kept", 1)).await));
    let newest = nodes.iter().filter_map(|(_, node)| node.applied_index()).max().unwrap();
    nodes[2].1.wait_applied(newest).await.unwrap();
    for (id, node) in nodes.drain(..) {
        mesh.cut_off(id);
        node.stop().await.unwrap();
    }

    let disk: Arc<dyn Disk> = Arc::new(disks[2].clone());
    let (folder, survivor) = (Path::new(FOLDER), BrokerId(3));
    let voters: BTreeSet<BrokerId> = [1, 2, 3].map(BrokerId).into();
    let planned = plan_regeneration(&disk, folder, CLUSTER, survivor).unwrap();
    assert_eq!((planned.generation, &planned.lost), (1, &voters));
    assert!(planned.last >= newest);
    let made = regenerate(&disk, folder, CLUSTER, survivor, 9, &voters).await.unwrap();
    assert_eq!(made, planned);
    // A command that was interrupted is run again: the named voters are still to join.
    let again = plan_regeneration(&disk, folder, CLUSTER, survivor).unwrap();
    assert_eq!((again.generation, &again.lost), (2, &voters));

    // The majority of the lost quorum is back, and elects a leader of its own.
    let mut old = Vec::new();
    for id in [1, 2] {
        let node = mesh.start(voter(id), &disks[id as usize - 1]).await.unwrap();
        mesh.join(id, &node);
        old.push((id, node));
    }
    let third = mesh.start(voter(3), &disks[2]).await.unwrap();
    mesh.join(3, &third);
    await_leader(&old).await;
    while !third.is_leader() {
        third.leader_changed(third.leader()).await.unwrap();
    }
    assert!(there(&third.propose(create("later", 2)).await.unwrap()));
    assert!(there(&ask(&old, create("old", 3)).await));
    assert!(third.admit(BrokerId(1)).await.is_err(), "a node of the lost quorum is refused");
    assert_eq!(third.members().0, [survivor]);
    let image = third.image();
    assert!(image.topic("kept").is_some() && image.topic("old").is_none());
    for (id, node) in old {
        mesh.cut_off(id);
        node.stop().await.unwrap();
    }

    let (first, second) = (newcomer(&mesh, 1).await, newcomer(&mesh, 2).await);
    third.admit(BrokerId(1)).await.unwrap();
    assert_eq!(third.members().0, [survivor], "two voters are fewer than one");
    third.admit(BrokerId(2)).await.unwrap();
    assert_eq!(third.members().0.into_iter().collect::<BTreeSet<_>>(), voters);
    mesh.cut_off(3);
    let others = [(1, first), (2, second)];
    let decided = tokio::time::timeout(Duration::from_secs(60), ask(&others, create("last", 4)));
    assert!(there(&decided.await.unwrap()));
    let leader = await_leader(&others).await;
    let image = others.iter().find(|(id, _)| *id == leader).unwrap().1.image();
    assert!(["kept", "later", "last"].iter().all(|name| image.topic(name).is_some()));
    third.stop().await.unwrap();
    for (_, node) in others {
        node.stop().await.unwrap();
    }
}
