//! Metadata folders that are copied at any moment of a run, and put back at a later one.
//!
//! *With a living leader* the restored voter is recognised by its last acknowledgement, joins as a new member and votes.
//! *After a stop of all voters* it is recognised by the note in its log directories. In both cases every acknowledged
//! decision stays. A copy that is as new as the note is not put back: the documents name that case.

use super::slow::{plant, simulate};
use super::world::check_logs;
use super::{
    CLUSTER, Cluster, Known, LIVENESS, Losses, Mutant, Program, SNAPSHOT_ENTRIES, ask, broker,
    client, run_paused, settle, take_in,
};
use crate::QuorumError;
use crate::older_copy::put_aside;
use crate::quorum::Quorum;
use crate::raft::TypeConfig;
use metadata::Request;
use metadata::decide::{
    CreateCluster, KnownDirectories, RegisterBroker2, RegisterBroker3, features_of_new_cluster,
    software_of_this_release,
};
use openraft::type_config::TypeConfigExt;
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use storage::disk::SimDisk;
use tokio::time::{sleep, timeout};

const VOTERS: i32 = 3;
/// Copies of one run that are put back.
const ROUNDS: usize = 2;
const SEEDS: std::ops::Range<u64> = 0..8;
/// Seeds that may find a broken rule.
const MUTANT_SEEDS: std::ops::Range<u64> = 0..40;

/// When a copy is put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Restore {
    /// The other voters run, and nothing notes the state of the folder.
    LeaderLives,
    /// All voters stop. The restored one starts first, with a voter that was down for a while.
    AllStopped,
}

/// A copy of a node's disk, and how much of the metadata log it holds at most.
struct Copied {
    disk: SimDisk,
    last: Option<u64>,
}

fn node(cluster: &Cluster, id: i32) -> Quorum {
    let up = cluster.world.lock().up();
    up.into_iter().find(|(other, _)| *other == id).expect("the node runs").1
}

fn leader(cluster: &Cluster) -> Option<i32> {
    let up = cluster.world.lock().up();
    up.into_iter().find(|(_, node)| node.is_leader()).map(|(id, _)| id)
}

fn copy(cluster: &mut Cluster, id: i32) -> Copied {
    let disk = cluster.disks[&id].after_crash(cluster.lots.u64(..));
    Copied { disk, last: node(cluster, id).store().last().map(|last| last.index) }
}

/// Draws for the folder that a start may have to make.
fn draw_lot(cluster: &mut Cluster, id: i32) {
    let lot = cluster.lots.u32(1..);
    cluster.lots_of.insert(id, lot);
}

/// Waits until a restored node votes. A node whose leader finds an older copy starts again without the folder, as the
/// broker does. Returns what went wrong.
async fn until_it_votes(cluster: &mut Cluster, id: i32) -> Option<String> {
    let waiting = async {
        loop {
            let restored = node(cluster, id);
            let up = cluster.world.lock().up();
            let member = cluster.member(id);
            if up.iter().all(|(_, node)| node.voters_are_settled() && node.votes(member)) {
                let newest = up.iter().filter_map(|(_, node)| node.applied_index()).max();
                if restored.applied_index() >= newest {
                    return None;
                }
            }
            match timeout(Duration::from_millis(20), restored.failed()).await {
                Err(_) => {}
                Ok(QuorumError::OlderCopy(_)) => {
                    cluster.world.lock().leave(id);
                    // The quorum has failed; the folder is closed all the same.
                    let _ = restored.stop().await;
                    let folder = Path::new("/data/__cluster_metadata-0");
                    put_aside(&cluster.disks[&id], folder).expect("a disk without faults");
                    draw_lot(cluster, id);
                    cluster.start(id).await;
                }
                Ok(error) => return Some(format!("node {id} fails: {error}")),
            }
        }
    };
    let hangs = format!("node {id} never votes again");
    timeout(LIVENESS, waiting).await.unwrap_or(Some(hangs))
}

/// The copy of a follower is put back while the leader lives.
async fn restore_beside_a_leader(cluster: &mut Cluster) -> Option<String> {
    let leader = loop {
        if let Some(leader) = leader(cluster) {
            break leader;
        }
        sleep(Duration::from_millis(20)).await;
    };
    let victim = leader % VOTERS + 1;
    let copied = copy(cluster, victim);
    sleep(Duration::from_millis(cluster.lots.u64(0..2_000))).await;
    cluster.crash(victim);
    cluster.disks.insert(victim, copied.disk);
    sleep(Duration::from_millis(cluster.lots.u64(0..300))).await;
    draw_lot(cluster, victim);
    cluster.start(victim).await;
    until_it_votes(cluster, victim).await
}

/// The copy is put back after a stop of all voters, one of which was down before.
async fn restore_after_a_stop(cluster: &mut Cluster) -> Option<String> {
    let victim = cluster.lots.i32(1..=VOTERS);
    let (behind, last) = match cluster.lots.bool() {
        true => (victim % VOTERS + 1, (victim + 1) % VOTERS + 1),
        false => ((victim + 1) % VOTERS + 1, victim % VOTERS + 1),
    };
    let copied = copy(cluster, victim);
    cluster.crash(behind);
    sleep(Duration::from_millis(cluster.lots.u64(500..1_500))).await;
    let note = node(cluster, victim).metadata_note();
    let is_seen = note.is_some_and(|note| Some(note.index) > copied.last);
    sleep(Duration::from_millis(cluster.lots.u64(0..100))).await;
    cluster.crash(victim);
    cluster.crash(last);
    if let Some(note) = note.filter(|_| is_seen) {
        cluster.notes.insert(victim, note);
        cluster.disks.insert(victim, copied.disk);
        draw_lot(cluster, victim);
    }
    cluster.start(victim).await;
    cluster.start(behind).await;
    sleep(Duration::from_millis(2_500)).await;
    cluster.start(last).await;
    until_it_votes(cluster, victim).await
}

async fn begin(cluster: &Cluster) {
    let (cluster_id, features) = (CLUSTER.to_owned(), features_of_new_cluster());
    let request = CreateCluster { cluster_id, features };
    ask(&cluster.world, &Request::CreateCluster(request)).await;
    let directories = KnownDirectories::default();
    let request = RegisterBroker2 { register: broker(), directories };
    let software = software_of_this_release();
    let request = RegisterBroker3 { request, software };
    ask(&cluster.world, &Request::RegisterBroker3(request)).await;
}

async fn run(seed: u64, restore: Restore, mutant: Option<Mutant>) -> Vec<String> {
    simulate(seed);
    plant(mutant);
    let program = Program {
        seed,
        voters: VOTERS,
        disks_lie: false,
        losses: Losses::None,
        mutant,
        snapshot_entries: SNAPSHOT_ENTRIES,
    };
    let mut cluster = Cluster::new(program).await;
    begin(&cluster).await;
    let known: Arc<Mutex<Known>> = Arc::default();
    let done = Arc::new(AtomicBool::new(false));
    let mut clients = Vec::new();
    for number in 0..2 {
        let (world, lots) = (Arc::clone(&cluster.world), cluster.lots.fork());
        let (known, done) = (Arc::clone(&known), Arc::clone(&done));
        clients.push(TypeConfig::spawn(client(world, known, number, lots, done)));
    }
    let taking_in = TypeConfig::spawn(take_in(Arc::clone(&cluster.world), VOTERS));
    let mut found = Vec::new();
    for _ in 0..ROUNDS {
        sleep(Duration::from_millis(cluster.lots.u64(100..1_500))).await;
        found.extend(match restore {
            Restore::LeaderLives => restore_beside_a_leader(&mut cluster).await,
            Restore::AllStopped => restore_after_a_stop(&mut cluster).await,
        });
        check_logs(&cluster.world).await;
        if !found.is_empty() {
            break;
        }
    }
    done.store(true, Ordering::Relaxed);
    for client in clients {
        if client.await.is_err() {
            found.push("a client panicked".to_owned());
        }
    }
    if timeout(LIVENESS, settle(&cluster, &known)).await.is_err() {
        found.push("nothing is decided any more".to_owned());
    }
    taking_in.abort();
    if known.lock().acknowledged.len() < 3 * ROUNDS {
        found.push("hardly anything was decided".to_owned());
    }
    check_logs(&cluster.world).await;
    found.extend(cluster.violations());
    found
}

fn simulate_one(seed: u64, restore: Restore, mutant: Option<Mutant>) -> Vec<String> {
    let found = run_paused(seed, move || run(seed, restore, mutant));
    found.unwrap_or_else(|_| vec!["it panicked".into()])
}

fn check(restore: Restore) {
    for seed in SEEDS {
        let found = simulate_one(seed, restore, None);
        assert!(found.is_empty(), "seed {seed}, {restore:?}: {found:#?}");
    }
}

fn is_found(restore: Restore, mutant: Mutant) {
    let found =
        MUTANT_SEEDS.into_iter().any(|seed| !simulate_one(seed, restore, Some(mutant)).is_empty());
    assert!(found, "no seed finds {mutant:?}");
}

#[test]
fn a_voter_restored_beside_a_living_leader_joins_as_a_new_member() {
    check(Restore::LeaderLives);
}

#[test]
fn a_voter_restored_after_a_stop_of_all_loses_no_decision() {
    check(Restore::AllStopped);
}

#[test]
fn a_leader_that_takes_no_notice_of_an_older_copy_is_found() {
    is_found(Restore::LeaderLives, Mutant::OlderCopyUnnoticed);
}

#[test]
fn a_start_that_ignores_the_notes_is_found() {
    is_found(Restore::AllStopped, Mutant::NotesIgnored);
}
