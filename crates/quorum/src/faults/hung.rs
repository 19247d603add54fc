//! Faults that last while the run continues: disks that hang, and a leader that is cut off.
//!
//! *A quorum with a healthy majority decides within a second or three, although the fault lasts.*

use super::slow::{plant, set_hung, simulate};
use super::world::check_logs;
use super::{
    Cluster, Known, LIVENESS, Losses, Mutant, Program, begin, create, made, run_paused, settle,
    topic,
};
use crate::QuorumError;
use crate::quorum::Quorum;
use crate::raft::node_id;
use crate::translation::plain_place;
use ledger::message::{Append, Appended, Election, Head, Reply, Request};
use model::BrokerId;
use openraft::type_config::TypeConfigExt;
use parking_lot::Mutex;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// The longest time without a decision while one disk hangs: the leadership moves, and no election time-out passes.
const GAP_HUNG_MAX: Duration = Duration::from_secs(1);
/// The longest time without a decision while the leader is cut off.
const GAP_CUT_OFF_MAX: Duration = Duration::from_secs(3);
/// How long a fault lasts.
const FAULT: Duration = Duration::from_secs(12);
/// Pause between two decisions.
const PAUSE: Duration = Duration::from_millis(300);
/// How long a client waits for one leader.
const PATIENCE: Duration = Duration::from_millis(500);
const SEEDS: std::ops::Range<u64> = 0..12;
/// Seed of the simulations of one voter.
const SEED: u64 = 7;

/// Which fault lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lasting {
    /// The disk of the leader hangs.
    LeaderHangs,
    /// The disk of a follower hangs.
    FollowerHangs,
    /// All disks hang: they are one device.
    AllHang,
    /// The leader neither reaches the others nor is reached.
    LeaderCutOff,
}

/// Three voters with honest disks, and their first decision.
async fn three_voters(seed: u64, mutant: Option<Mutant>) -> Cluster {
    simulate(seed);
    plant(mutant);
    let program = Program {
        seed,
        voters: 3,
        disks_lie: false,
        losses: Losses::None,
        mutant,
        snapshot_entries: 5000,
    };
    let cluster = Cluster::new(program).await;
    begin(&cluster).await;
    cluster
}

fn leader(cluster: &Cluster) -> Option<(i32, Quorum)> {
    let up = cluster.world.lock().up();
    up.into_iter()
        .filter(|(_, node)| node.is_leader())
        .max_by_key(|(_, node)| node.standing().leader_epoch)
}

/// Makes a topic at the node that leads. `true` if it was made.
async fn decide(cluster: &Cluster, number: u64) -> bool {
    let Some((_, node)) = leader(cluster) else {
        sleep(Duration::from_millis(20)).await;
        return false;
    };
    let request = create(topic(&format!("h{number}"), (1 << 50) | number, 1), false);
    match timeout(PATIENCE, node.propose(request)).await {
        Ok(Ok(response)) => made(&response) != Some(false),
        _ => {
            sleep(Duration::from_millis(20)).await;
            false
        }
    }
}

/// Decides things for as long as the fault lasts; returns the longest time without a decision, and the topics made.
async fn longest_gap(cluster: &Cluster) -> (Duration, Vec<String>) {
    let (start, mut last) = (Instant::now(), Instant::now());
    let (mut longest, mut topics) = (Duration::ZERO, Vec::new());
    for number in 0.. {
        if decide(cluster, number).await {
            last = Instant::now();
            topics.push(format!("h{number}"));
        }
        longest = longest.max(last.elapsed());
        if start.elapsed() > FAULT {
            break;
        }
        sleep(PAUSE).await;
    }
    (longest, topics)
}

async fn run(seed: u64, lasting: Lasting, mutant: Option<Mutant>) -> Vec<String> {
    let mut cluster = three_voters(seed, mutant).await;
    let (old, old_leader) = leader(&cluster).expect("something was decided");
    let victim = if lasting == Lasting::FollowerHangs { old % 3 + 1 } else { old };
    let member = |id: i32| node_id(BrokerId(id), 0);
    match lasting {
        Lasting::LeaderHangs | Lasting::FollowerHangs => set_hung(member(victim), true),
        Lasting::AllHang => (1..=3).for_each(|id| set_hung(member(id), true)),
        Lasting::LeaderCutOff => {
            let others = (1..=3).filter(|other| *other != victim);
            let both =
                others.flat_map(|o| [(member(victim), member(o)), (member(o), member(victim))]);
            cluster.world.lock().cuts.extend(both);
        }
    }
    let (gap, topics) = longest_gap(&cluster).await;
    let mut found = Vec::new();
    let gap_max = match lasting {
        Lasting::LeaderCutOff => GAP_CUT_OFF_MAX,
        _ => GAP_HUNG_MAX,
    };
    if lasting == Lasting::AllHang {
        let now = leader(&cluster).map(|(id, _)| id);
        if now != Some(old) {
            found.push(format!(
                "the leadership moved from {old} to {now:?} although all disks hang"
            ));
        }
    } else if gap > gap_max {
        found.push(format!("nothing was decided for {gap:?}"));
    }
    found.extend(check_victim(lasting, &old_leader, victim).await);
    (1..=3).for_each(|id| set_hung(member(id), false));
    cluster.mend().await;
    let known = Mutex::new(Known { acknowledged: topics, stale: Vec::new() });
    if timeout(LIVENESS, settle(&cluster, &known)).await.is_err() {
        found.push("nothing is decided any more once the fault is over".to_owned());
    }
    check_logs(&cluster.world).await;
    found.extend(cluster.violations());
    found
}

/// Checks the victim while the fault lasts.
async fn check_victim(lasting: Lasting, old_leader: &Quorum, victim: i32) -> Vec<String> {
    let mut found = Vec::new();
    match lasting {
        Lasting::LeaderHangs | Lasting::FollowerHangs => {
            if lasting == Lasting::LeaderHangs && old_leader.is_leader() {
                found.push(format!("node {victim} leads although its disk hangs"));
            }
        }
        Lasting::LeaderCutOff => {
            let request = create(topic("cut", 1 << 40, 1), false);
            let answer = timeout(PATIENCE, old_leader.propose(request)).await;
            if !matches!(answer, Ok(Err(QuorumError::NotLeader { .. }))) {
                found.push(format!("the leader that is cut off answers {answer:?}"));
            }
            if !old_leader.is_cut_off() || old_leader.is_leader() {
                found.push("the leader that is cut off calls itself leader".to_owned());
            }
        }
        Lasting::AllHang => {}
    }
    found
}

/// A voter whose disk hangs is asked for its vote by the last of its peers; returns whether it answers while the disk
/// hangs, and once it does not.
async fn answers_of_a_hung_voter(mutant: Option<Mutant>) -> (bool, bool) {
    let cluster = three_voters(SEED, mutant).await;
    let (_, leader) = leader(&cluster).expect("something was decided");
    let victim = (1..=3).find(|id| BrokerId(*id) != leader.node()).expect("one follows");
    let up = cluster.world.lock().up();
    let voter = up.into_iter().find(|(id, _)| *id == victim).expect("it runs").1;
    let member = node_id(BrokerId(victim), 0);
    set_hung(member, true);
    let standing = leader.standing();
    let from = node_id(leader.node(), 0);
    let last = ledger::Place { term: standing.leader_epoch, leader: from, index: 1 << 30 };
    let vote = ledger::Vote { term: standing.leader_epoch + 5, node: from, committed: false };
    let election = Election { vote, last: Some(last), is_handed_over: true };
    let head = Head { cluster_id: super::CLUSTER, from, to: member };
    let message = Request::Vote(election).encode(head);
    let (asked, sender) = (voter.clone(), leader.node());
    let answer =
        crate::raft::TypeConfig::spawn(async move { asked.receive_from(sender, &message).await });
    sleep(Duration::from_secs(2)).await;
    let is_early = answer.is_finished();
    set_hung(member, false);
    let reply = timeout(Duration::from_secs(2), answer).await;
    let granted = reply.is_ok_and(|reply| {
        let reply = reply.expect("it does not panic");
        matches!(Reply::decode(&reply), Ok((_, Reply::Vote(voted))) if voted.is_granted)
    });
    (is_early, granted)
}

fn ask_a_hung_voter(mutant: Option<Mutant>) -> (bool, bool) {
    run_paused(SEED, move || answers_of_a_hung_voter(mutant)).expect("it does not panic")
}

#[test]
fn a_vote_is_answered_once_it_is_durable() {
    assert_eq!(ask_a_hung_voter(None), (false, true));
    assert_eq!(ask_a_hung_voter(Some(Mutant::VoteBeforeDurable)), (true, true), "the mutant");
}

/// A voter whose disk hangs receives an entry of its leader, and then the heartbeat of a newer leader that has the entry; returns
/// whether the voter acknowledges the entry meanwhile. openraft takes the saved vote for a sign that the entry is durable.
async fn acknowledges_while_hung(mutant: Option<Mutant>) -> bool {
    let cluster = three_voters(SEED, mutant).await;
    let (_, leader) = leader(&cluster).expect("something was decided");
    let up = cluster.world.lock().up();
    let follower = up.into_iter().find(|(id, _)| BrokerId(*id) != leader.node());
    let (victim, voter) = follower.expect("one follows");
    let (from, member) = (node_id(leader.node(), 0), node_id(BrokerId(victim), 0));
    let ways = (1..=3).map(|other| node_id(BrokerId(other), 0)).filter(|other| *other != member);
    let cuts: Vec<_> = ways.flat_map(|other| [(other, member), (member, other)]).collect();
    cluster.world.lock().cuts.extend(cuts);
    // Entries that were sent before have arrived, and are durable.
    sleep(Duration::from_millis(50)).await;
    set_hung(member, true);
    let before = voter.store().last().map(plain_place).expect("it has the first entries");
    let term = leader.standing().leader_epoch;
    let place = ledger::Place { term, leader: from, index: before.index + 1 };
    let entries = vec![ledger::Entry { place, payload: ledger::Payload::Blank }];
    let third = (1..=3).map(BrokerId).find(|id| *id != leader.node() && *id != BrokerId(victim));
    let third = third.expect("three vote");
    let newer = node_id(third, 0);
    let vote = |term, node| ledger::Vote { term, node, committed: true };
    let appends = [
        (leader.node(), vote(term, from), Some(before), entries),
        (third, vote(term + 1, newer), Some(place), Vec::new()),
    ];
    let mut reply = Ok(Vec::new());
    for (sender, vote, before, entries) in appends {
        let append = Append { vote, before, committed: None, entries };
        let head = Head { cluster_id: super::CLUSTER, from: vote.node, to: member };
        let message = Request::Append(append).encode(head);
        let asked = voter.receive_from(sender, &message);
        reply = timeout(Duration::from_secs(2), asked).await;
    }
    set_hung(member, false);
    let reply = reply.unwrap_or_default();
    matches!(Reply::decode(&reply), Ok((_, Reply::Append(Appended::All))))
}

fn append_to_a_hung_voter(mutant: Option<Mutant>) -> bool {
    run_paused(SEED, move || acknowledges_while_hung(mutant)).expect("it does not panic")
}

#[test]
fn entries_are_acknowledged_once_they_are_durable() {
    assert!(!append_to_a_hung_voter(None));
    assert!(append_to_a_hung_voter(Some(Mutant::EntriesBeforeDurable)), "the mutant");
}

fn simulate_one(seed: u64, lasting: Lasting, mutant: Option<Mutant>) -> Vec<String> {
    let found = run_paused(seed, move || run(seed, lasting, mutant));
    found.unwrap_or_else(|_| vec!["it panicked".into()])
}

fn check(lasting: Lasting) {
    for seed in SEEDS {
        let found = simulate_one(seed, lasting, None);
        assert!(found.is_empty(), "seed {seed}, {lasting:?}: {found:#?}");
    }
}

fn is_found(lasting: Lasting, mutant: Mutant) {
    let found = SEEDS.into_iter().any(|seed| !simulate_one(seed, lasting, Some(mutant)).is_empty());
    assert!(found, "no seed finds {mutant:?}");
}

#[test]
fn a_leader_whose_disk_hangs_hands_over_and_decisions_continue() {
    check(Lasting::LeaderHangs);
}

#[test]
fn decisions_continue_while_the_disk_of_a_follower_hangs() {
    check(Lasting::FollowerHangs);
}

#[test]
fn the_leadership_stays_where_it_is_if_all_disks_hang() {
    check(Lasting::AllHang);
}

#[test]
fn a_leader_that_is_cut_off_stops_calling_itself_leader() {
    check(Lasting::LeaderCutOff);
}

#[test]
fn an_append_that_waits_for_the_disk_is_found() {
    is_found(Lasting::LeaderHangs, Mutant::AppendWaits);
}

#[test]
fn a_hung_leader_that_stays_is_found() {
    is_found(Lasting::LeaderHangs, Mutant::HungLeaderStays);
}

#[test]
fn a_leadership_that_moves_although_all_disks_hang_is_found() {
    is_found(Lasting::AllHang, Mutant::SharedDiskMoves);
}

#[test]
fn a_cut_off_leader_that_leads_is_found() {
    is_found(Lasting::LeaderCutOff, Mutant::CutOffLeaderLeads);
}
