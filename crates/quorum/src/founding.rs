//! The beginning of a cluster, and what a node waits for as long as nobody leads.
//!
//! A new cluster needs all of its voters, and each of them empty: who begins with a majority begins a second cluster
//! over one of which the disks of that majority were lost. So a voter with an empty folder asks the others first. If
//! anybody has metadata, the folder is one that replaces a lost one: it waits until the others take it in (`members.rs`),
//! and has neither voted nor acknowledged anything before.
//!
//! Nodes that are told nothing say why, in words: see [`Quorum::waits_for`](crate::Quorum::waits_for).

use crate::network::{Introduced, Network, holds};
use crate::patience::Patience;
use crate::raft::{TypeConfig, broker_id, node_id};
use crate::state_machine::StateMachine;
use crate::store::log_store::LogStore;
use futures_util::future::join_all;
use ledger::message::Holds;
use model::BrokerId;
use openraft::Raft;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::{InitializeError, RaftError};
use openraft::type_config::TypeConfigExt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// Time that a round waits for the introduction of another voter.
const ANSWER_MAX: Duration = Duration::from_millis(500);
/// The same for a voter that answered an earlier round, but late. An answer that takes longer counts as none.
const LATE_ANSWER_MAX: Duration = Duration::from_secs(2);
/// The pause between two rounds of an empty voter: all start at about the same time.
const PAUSE_OF_NEW: Duration = Duration::from_millis(20);
/// How many rounds the voters behind the first one leave the beginning to that one. Voters that ask for votes at the same
/// moment refuse each other, and the cluster then waits for an election time-out.
const ROUNDS_LEFT_TO_THE_FIRST: u32 = 50;
/// The pause between two rounds of a member that has metadata: an election takes less.
const PAUSE: Duration = Duration::from_secs(2);

/// The ways out of a lost majority. A copy from before lacks votes and entries that other voters count on.
const WAYS_OUT: &str = "if a lost folder was only moved or unmounted, move it back or mount it (never restore a copy); otherwise \
     make a new quorum of the metadata that is left: highwater cluster regenerate";

/// What the voters said of themselves, or why one of them did not.
type Answers = BTreeMap<BrokerId, Result<Introduced, String>>;

/// What a voter with an empty folder does next.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Beginning {
    /// All are new: these are the members of a new cluster.
    Found(BTreeSet<u64>),
    /// It waits, for what the words say.
    Wait(String),
}

/// What follows for the empty voter `me` from what the others say.
fn beginning(me: u64, others: &Answers) -> Beginning {
    let known = |wanted: &dyn Fn(&Introduced) -> bool| {
        let of = others.iter().filter(|(_, said)| said.as_ref().is_ok_and(wanted));
        of.map(|(broker, _)| *broker).collect::<Vec<_>>()
    };
    let (full, empty) =
        (known(&|said| said.holds == Holds::Metadata), known(&|said| said.holds == Holds::Nothing));
    let voters = others.len() + 1;
    if !full.is_empty() {
        let mut words = format!(
            "the metadata folder of node {} is new, and {} the metadata of the cluster: it waits to be taken in, which \
             takes a majority of the {voters} voters with the folders they had",
            broker_id(me),
            has(&full)
        );
        if !empty.is_empty() {
            words += &format!("; the {} new as well", folders_are(&empty));
            if empty.len() + 1 > voters - majority(voters) {
                words += &format!(
                    ": with {} lost folders there is no majority; {WAYS_OUT}",
                    empty.len() + 1
                );
            }
        }
        return Beginning::Wait(words);
    }
    let silent: Vec<String> = others
        .iter()
        .filter_map(|(broker, said)| Some(format!("node {broker} ({})", said.as_ref().err()?)))
        .collect();
    if !silent.is_empty() {
        return Beginning::Wait(format!(
            "a new cluster needs all of its {voters} voters at its first start, and nothing was heard of {}; if this \
             node replaces one whose disk was lost, start the other voters",
            silent.join(", ")
        ));
    }
    let members = others.values().flatten().map(|said| said.node);
    Beginning::Found(members.chain([me]).collect())
}

/// Whether `me` begins the cluster of these `members` in this round: the first of them at once, the others if that one has
/// not for a while.
fn begins(me: u64, members: &BTreeSet<u64>, round: u32) -> bool {
    members.first() == Some(&me) || round > ROUNDS_LEFT_TO_THE_FIRST
}

/// Why a node that was in a cluster makes no new one although all voters are empty.
fn lost_metadata(me: u64) -> String {
    format!(
        "the metadata folder of node {} is new, its log directories are of a cluster that has metadata, and no other voter has \
         that metadata: {WAYS_OUT}",
        broker_id(me)
    )
}

fn majority(voters: usize) -> usize {
    voters / 2 + 1
}

fn has(nodes: &[BrokerId]) -> String {
    match nodes {
        [only] => format!("node {only} has"),
        nodes => format!("nodes {} have", list(nodes)),
    }
}

fn folders_are(nodes: &[BrokerId]) -> String {
    match nodes {
        [only] => format!("folder of node {only} is"),
        nodes => format!("folders of nodes {} are", list(nodes)),
    }
}

fn list(nodes: &[BrokerId]) -> String {
    let ids: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    ids.join(", ")
}

/// Why nobody leads, as far as a member that has metadata can tell: which of the voters have lost theirs. `None`: it
/// is not their disks.
fn lost_majority(me: u64, voters: &BTreeSet<u64>, others: &Answers) -> Option<String> {
    let is_lost = |voter: &&u64| {
        let said = others.get(&broker_id(**voter));
        **voter != me && said.is_some_and(|s| s.as_ref().is_ok_and(|said| said.node != **voter))
    };
    let lost: Vec<BrokerId> = voters.iter().filter(is_lost).map(|id| broker_id(*id)).collect();
    let left = voters.len() - lost.len();
    (!lost.is_empty() && left < majority(voters.len())).then(|| {
        format!(
            "of {} voters {left} {} the metadata folder with which they voted, and a majority is {}: the {} new; \
             {WAYS_OUT}",
            voters.len(),
            if left == 1 { "has" } else { "have" },
            majority(voters.len()),
            folders_are(&lost)
        )
    })
}

/// A node's part in the beginning.
pub(crate) struct Founding {
    pub(crate) raft: Raft<TypeConfig, StateMachine>,
    pub(crate) store: LogStore,
    pub(crate) network: Network,
    /// The brokers that vote in a new cluster, this one among them; none if it does not.
    pub(crate) voters: Vec<BrokerId>,
    pub(crate) waits_for: watch::Sender<Option<String>>,
}

impl Founding {
    /// Works until the raft stops: whenever nobody leads, it finds out why.
    pub(crate) async fn run(self) {
        let mut metrics = self.raft.server_metrics();
        let mut rounds = 0;
        let patience = Arc::new(Patience::new(LATE_ANSWER_MAX));
        loop {
            let leader = metrics.borrow_watched().current_leader;
            let pause = match self.is_led_by(leader, &patience).await {
                true => {
                    self.tell(None);
                    Duration::MAX
                }
                false => self.look(&mut rounds, &patience).await,
            };
            let rested = async {
                match pause {
                    Duration::MAX => std::future::pending().await,
                    pause => tokio::time::sleep(pause).await,
                }
            };
            tokio::select! {
                changed = metrics.changed() => if changed.is_err() { return },
                () = rested => {}
            }
        }
    }

    /// Whether this member leads, or the one does of which it knows: after a start that is the one that led last, whatever
    /// became of its folder, and it stays so while no majority would vote for another.
    async fn is_led_by(&self, leader: Option<u64>, patience: &Arc<Patience>) -> bool {
        match leader {
            None => false,
            Some(leader) if leader == self.network.me => true,
            Some(leader) => {
                let answers = self.ask(&[broker_id(leader)], patience).await;
                let said = answers.get(&broker_id(leader));
                said.is_some_and(|said| said.as_ref().is_ok_and(|said| said.node == leader))
            }
        }
    }

    /// One round; returns the pause behind it. `rounds` counts those in which a new cluster could have begun.
    async fn look(&self, rounds: &mut u32, patience: &Arc<Patience>) -> Duration {
        let me = self.network.me;
        if holds(&self.store) == Holds::Nothing {
            if self.voters.is_empty() {
                return PAUSE;
            }
            match beginning(me, &self.ask(&self.voters, patience).await) {
                Beginning::Found(_) if !self.network.may_found => {
                    self.tell(Some(lost_metadata(me)))
                }
                Beginning::Found(members) => {
                    *rounds += 1;
                    if begins(me, &members, *rounds) {
                        self.found(members).await;
                    }
                }
                Beginning::Wait(words) => self.tell(Some(words)),
            }
            return PAUSE_OF_NEW;
        }
        // Whoever was told anything has been waiting for a while when this is looked at a second time.
        let voters: BTreeSet<u64> = {
            let metrics = self.raft.server_metrics();
            let metrics = metrics.borrow_watched();
            metrics.membership_config.voter_ids().collect()
        };
        let brokers: BTreeSet<BrokerId> = voters.iter().map(|id| broker_id(*id)).collect();
        let brokers: Vec<BrokerId> = brokers.into_iter().collect();
        let answers = self.ask(&brokers, patience).await;
        self.tell(lost_majority(me, &voters, &answers));
        PAUSE
    }

    /// Requests which members the other brokers are. A request outlives the round, so that a late answer shows how long the
    /// next round has to wait for that broker. A broker that never answers gets no more than [`ANSWER_MAX`].
    async fn ask(&self, brokers: &[BrokerId], patience: &Arc<Patience>) -> Answers {
        let own = broker_id(self.network.me);
        let others = brokers.iter().copied().filter(|broker| *broker != own);
        let asked = others.map(|broker| {
            let allowed = patience.for_member(node_id(broker, 0), ANSWER_MAX, LATE_ANSWER_MAX);
            let request = introduce(self.network.clone(), broker, Arc::clone(patience));
            let request = TypeConfig::spawn(request);
            async move {
                let answer = match timeout(allowed, request).await {
                    Ok(Ok(answer)) => answer,
                    Ok(Err(error)) => Err(error.to_string()),
                    Err(_) => Err("no answer in time".to_owned()),
                };
                (broker, answer)
            }
        });
        join_all(asked).await.into_iter().collect()
    }

    async fn found(&self, members: BTreeSet<u64>) {
        let begun = match self.raft.initialize(members).await {
            // No leader has been heard of: there is none to wait for. The others are asked first whether they would vote.
            Ok(()) => self.raft.trigger().elect(true).await.map_err(|error| error.to_string()),
            // Another voter's leader was quicker.
            Err(RaftError::APIError(InitializeError::NotAllowed(_))) => Ok(()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = begun {
            tracing::error!(%error, "the metadata quorum cannot begin a cluster");
        }
    }

    fn tell(&self, words: Option<String>) {
        self.waits_for.send_if_modified(|known| {
            let is_new = *known != words;
            *known = words;
            is_new
        });
    }
}

/// Requests which member a broker is, and records how long its answer took.
async fn introduce(
    network: Network,
    broker: BrokerId,
    patience: Arc<Patience>,
) -> Result<Introduced, String> {
    let begun = Instant::now();
    let answer = network.introduction(broker, LATE_ANSWER_MAX).await;
    match &answer {
        Ok(_) => patience.note_answer(node_id(broker, 0), begun.elapsed()),
        Err(_) => patience.forget(node_id(broker, 0)),
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(broker: i32, lot: u32, holds: Holds) -> (BrokerId, Result<Introduced, String>) {
        let broker = BrokerId(broker);
        (broker, Ok(Introduced { node: node_id(broker, lot), holds }))
    }

    fn silent(broker: i32) -> (BrokerId, Result<Introduced, String>) {
        (BrokerId(broker), Err("refused".to_owned()))
    }

    fn me() -> u64 {
        node_id(BrokerId(1), 71)
    }

    fn waits<const N: usize>(others: [(BrokerId, Result<Introduced, String>); N]) -> String {
        match beginning(me(), &Answers::from(others)) {
            Beginning::Wait(words) => words,
            Beginning::Found(members) => panic!("a new cluster of {members:?}"),
        }
    }

    #[test]
    fn a_new_cluster_needs_all_of_its_voters_and_each_of_them_empty() {
        let all = Answers::from([member(2, 72, Holds::Nothing), member(3, 73, Holds::Founding)]);
        let members = [me(), node_id(BrokerId(2), 72), node_id(BrokerId(3), 73)];
        assert_eq!(beginning(me(), &all), Beginning::Found(members.into()));
        let words = waits([member(2, 72, Holds::Nothing), silent(3)]);
        assert!(words.contains("all of its 3 voters") && words.contains("node 3 (refused)"));
        waits([silent(2), silent(3)]);
    }

    #[test]
    fn the_first_voter_begins_and_the_others_only_if_it_does_not() {
        let members = BTreeSet::from([3, 5, 9]);
        assert!(begins(3, &members, 1));
        assert!(!begins(5, &members, 1) && !begins(9, &members, ROUNDS_LEFT_TO_THE_FIRST));
        assert!(begins(5, &members, ROUNDS_LEFT_TO_THE_FIRST + 1));
    }

    #[test]
    fn an_empty_folder_waits_as_soon_as_anybody_has_metadata() {
        let words = waits([member(2, 0, Holds::Metadata), silent(3)]);
        assert!(words.contains("node 2 has the metadata"), "{words}");
        assert!(!words.contains("regenerate"), "node 3 may have its own: {words}");
        let words = waits([member(2, 0, Holds::Metadata), member(3, 0, Holds::Metadata)]);
        assert!(words.contains("nodes 2, 3 have"), "{words}");
        let words = waits([member(2, 72, Holds::Nothing), member(3, 0, Holds::Metadata)]);
        assert!(words.contains("2 lost folders") && words.contains("regenerate"), "{words}");
        assert!(words.contains("never restore a copy"), "{words}");
        let words = waits([
            member(2, 72, Holds::Nothing),
            member(3, 0, Holds::Metadata),
            member(4, 0, Holds::Metadata),
            member(5, 0, Holds::Metadata),
        ]);
        assert!(!words.contains("regenerate"), "three of five are a majority: {words}");
    }

    #[test]
    fn a_member_tells_lost_folders_from_nodes_that_are_away() {
        let voters = BTreeSet::from([me(), node_id(BrokerId(2), 72), node_id(BrokerId(3), 73)]);
        let lost = |others| lost_majority(me(), &voters, &Answers::from(others));
        assert_eq!(lost([silent(2), silent(3)]), None, "they may come back");
        assert_eq!(lost([member(2, 72, Holds::Metadata), member(3, 9, Holds::Nothing)]), None);
        let words = lost([member(2, 8, Holds::Nothing), member(3, 9, Holds::Nothing)]).unwrap();
        assert!(words.contains("of 3 voters 1 has") && words.contains("nodes 2, 3"), "{words}");
        assert!(words.contains("never restore a copy"), "{words}");
        assert!(lost_metadata(me()).contains("never restore a copy"));
    }
}
