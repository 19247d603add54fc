//! The person who ends the states that only a person may end: a follower that refuses to truncate its log, and a partition of which no
//! complete replica is left. The controller reads the log ends of the replicas that serve, and elects the greatest.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use metadata::decide::{
    BrokerRef, ElectLeaders, ElectLeaders2, ElectionKind, ReplicaEnd, ReplicaEnds, UncleanChoice,
};
use metadata::{ClusterImage, PartitionImage};
use model::{BrokerId, Timestamp};
use node::Key;
use node::elections::NamedPartition;
use node::log_ends::{self, LogEnd};

use super::controller::{Entry, elect_uncleanly};
use super::network::{Body, EndsUse};
use super::plan::ClusterPlan;
use super::topics::key_of;
use super::{CALL_MS, Cluster, Event, number_of};
use crate::history::Broken;
use crate::invariant::Invariant;
use crate::message::PartitionId;

/// How long a person needs to find out that a follower refuses to truncate its log, at most, in milliseconds.
const NOTICED_MS_MAX: i64 = 3_000;
/// A broker that has been connected, awake and unfenced for so long has answered a request for log ends, in milliseconds.
const REACHED_AFTER_MS: i64 = 250;
/// Tells these random numbers from those of the same seed that all else is made of.
const OWN_NUMBERS: u64 = 0xc0b1e5;

/// What a person does, and the random numbers for it: none is taken from those that the rest of a run is made of.
#[derive(Debug)]
pub(super) struct Operator {
    random: Rng,
    /// Whether the person is about to look at a partition.
    looks: BTreeSet<PartitionId>,
    /// Number of the last request for log ends on a person's behalf.
    reads: u64,
}

impl Operator {
    /// Raises the version of a cluster to the one from which on followers refuse to truncate committed records.
    pub(super) fn new(seed: u64, plan: &mut ClusterPlan) -> Operator {
        let mut random = Rng::with_seed(seed ^ OWN_NUMBERS);
        if plan.version > 0 && random.bool() {
            plan.version = metadata::record::COPIES_LEVEL;
        }
        Operator { random, looks: BTreeSet::new(), reads: 0 }
    }
}

/// A person's request for elections, and the log ends that the controller has read for it.
#[derive(Debug)]
pub(super) struct OperatorRequest {
    number: u64,
    begun: Timestamp,
    request: ElectLeaders,
    choices: Vec<UncleanChoice>,
    missing: BTreeSet<BrokerRef>,
    ends: BTreeMap<NamedPartition, Vec<ReplicaEnd>>,
}

/// The log ends by which the controller decided a person's request, and the time at which it began to read them.
#[derive(Clone, Debug)]
pub(super) struct OperatorEnds {
    begun: Timestamp,
    ends: Vec<ReplicaEnds>,
}

impl Cluster {
    /// A person notices after a while that a follower refuses to truncate its log, or that no complete replica is left.
    pub(super) fn schedule_operator(&mut self, at: PartitionId) {
        if self.operator.looks.insert(at) {
            let after = self.operator.random.i64(1..NOTICED_MS_MAX);
            self.schedule(after, Event::Operate(at));
        }
    }

    /// A person notices partitions without a complete replica, if all disks were put back from copies.
    pub(super) fn notice_lost_partitions(&mut self) {
        if !self.outages.are_all_copies() {
            return;
        }
        let lost: Vec<_> = self.partitions().filter(|at| self.is_lost_partition(*at)).collect();
        lost.into_iter().for_each(|at| self.schedule_operator(at));
    }

    fn is_lost_partition(&self, at: PartitionId) -> bool {
        let is_lost = |state: &PartitionImage| {
            !state.has_leader() && !state.replicas.iter().any(|id| state.is_complete(*id))
        };
        self.outages.are_all_copies() && self.state_of(at).is_some_and(is_lost)
    }

    /// An operator requests an unclean election of such a partition, until one has succeeded.
    pub(super) fn operate(&mut self, at: PartitionId) {
        self.operator.looks.remove(&at);
        let refuses = |member: &super::Member| {
            let broker = member.broker.as_ref();
            let replica = broker.and_then(|broker| broker.partition(at));
            replica.is_some_and(|replica| replica.refused_truncation().is_some())
        };
        let is_waited_for = self.members.iter().any(refuses) || self.is_lost_partition(at);
        if self.state_of(at).is_none() || !is_waited_for {
            return;
        }
        let asker = (0..self.members.len()).find(|number| self.members[*number].broker.is_some());
        if let Some(asker) = asker {
            self.ask_controller(self.process(asker), elect_uncleanly(at));
        }
        self.schedule_operator(at);
    }

    /// The controller of a machine gets a person's request. It reads the log ends of all replicas that serve before it decides.
    pub(super) fn begin_operator_request(&mut self, member: usize, request: &ElectLeaders) {
        let (now, process) = (self.now, self.process(member));
        let choices = self.members[member].image.unclean_choices(request.partitions.as_deref());
        let mut wanted: BTreeMap<BrokerRef, Vec<NamedPartition>> = BTreeMap::new();
        for choice in &choices {
            for who in &choice.candidates {
                wanted.entry(*who).or_default().push((choice.topic_id, choice.partition));
            }
        }
        let Some(active) = &mut self.members[member].active else { return };
        self.operator.reads += 1;
        let number = self.operator.reads;
        active.operator_requests.push(OperatorRequest {
            number,
            begun: now,
            request: request.clone(),
            choices,
            missing: wanted.keys().copied().collect(),
            ends: BTreeMap::new(),
        });
        for (who, partitions) in wanted {
            let request = log_ends::encode_request(&partitions);
            let body = Body::AskEnds(process, EndsUse::Operator(number), request);
            self.send_message(member, number_of(who.broker), body);
        }
        self.schedule(CALL_MS, Event::OperatorRequestDue { controller: member, number });
    }

    /// The controller gets an answer to a request of this number.
    pub(super) fn take_operator_ends(
        &mut self,
        member: usize,
        number: u64,
        partitions: &[NamedPartition],
        (who, ends): (BrokerRef, Vec<LogEnd>),
    ) {
        let Some(active) = &mut self.members[member].active else { return };
        let mut requests = active.operator_requests.iter_mut();
        let Some(request) = requests.find(|request| request.number == number) else { return };
        if !request.missing.remove(&who) {
            return;
        }
        for (named, end) in partitions.iter().zip(ends) {
            let Some((last_epoch, end)) = end else { continue };
            let end = ReplicaEnd { broker: who, last_epoch, end };
            request.ends.entry(*named).or_default().push(end);
        }
        if request.missing.is_empty() {
            self.decide_operator_request(member, number);
        }
    }

    /// The controller decides a person's request by the log ends that it has.
    pub(super) fn decide_operator_request(&mut self, member: usize, number: u64) {
        let now = self.now;
        let Some(active) = &mut self.members[member].active else { return };
        let requests = &mut active.operator_requests;
        let Some(place) = requests.iter().position(|request| request.number == number) else {
            return;
        };
        let mut read = requests.remove(place);
        let of_choice = |choice: &UncleanChoice| ReplicaEnds {
            topic_id: choice.topic_id,
            partition: choice.partition,
            partition_epoch: choice.partition_epoch,
            ends: read.ends.remove(&(choice.topic_id, choice.partition)).unwrap_or_default(),
        };
        let ends: Vec<ReplicaEnds> = read.choices.iter().map(of_choice).collect();
        let request = ElectLeaders2 { request: read.request, ends: ends.clone() };
        let entry = active.controller.elect_for_operator(now, request);
        let by_operator = Some(OperatorEnds { begun: read.begun, ends });
        self.trace.note(now, format_args!("{member} decides for a person by {by_operator:?}"));
        for who in read.missing {
            self.note_unanswered(number_of(who.broker));
        }
        self.propose(member, Entry { by_operator, ..entry });
        self.sweep_soon(member);
    }

    /// A person's request elected a replica that is not complete: no reachable replica has a greater log end.
    pub(super) fn check_operators_choice(
        &self,
        at: PartitionId,
        old: &PartitionImage,
        leader: BrokerId,
        by: &OperatorEnds,
    ) -> Result<(), Broken> {
        let is_current = |of: &&ReplicaEnds| {
            let named = Key { topic_id: of.topic_id, partition: of.partition };
            named == key_of(at) && of.partition_epoch == old.partition_epoch
        };
        let Some(known) = by.ends.iter().find(is_current) else { return Ok(()) };
        let end_of = |id: BrokerId| {
            let epoch = self.truth.image.broker(id)?.epoch;
            let who = BrokerRef { broker: id, epoch };
            let end = known.ends.iter().find(|end| end.broker == who)?;
            Some((end.last_epoch, end.end))
        };
        let chosen = end_of(leader);
        for other in old.replicas.iter().copied().filter(|id| *id != leader) {
            if !self.truth.image.is_eligible(other) {
                continue;
            }
            let since = self.members[number_of(other)].copied.reachable_since();
            let was_reached =
                since.is_some_and(|since| by.begun.ms_since(since) >= REACHED_AFTER_MS);
            let end = match (end_of(other), &self.members[number_of(other)].broker) {
                (Some(end), _) => Some(end),
                (None, Some(broker)) if was_reached && !broker.out_of_reach.contains(&at) => {
                    broker.partition(at).map(|replica| replica.synced_end())
                }
                _ => None,
            };
            if end > chosen {
                let what = format!(
                    "a person's election of {at} took {leader} with {chosen:?}, and {other} has {end:?}: {old:?}"
                );
                return Err((Invariant::LeaderIsComplete, what));
            }
        }
        Ok(())
    }

    /// Followers may truncate the records that an unclean election, or a person's request, has given up.
    pub(super) fn check_truncation_allowed(&self, entry: &Entry) -> Result<(), Broken> {
        if !self.truth.image.detects_copies() {
            return Ok(());
        }
        for unclean in &entry.unclean {
            let topic = self.truth.image.topic_by_id(unclean.topic_id);
            let allowed = topic.map(|topic| topic.truncation_allowed(unclean.partition));
            if allowed.is_some_and(|allowed| allowed < unclean.leader_epoch) {
                let what = format!("{unclean:?} allows no truncation: {allowed:?}");
                return Err((Invariant::LeaderIsComplete, what));
            }
        }
        Ok(())
    }
}

/// Whether a person's request reads log ends first.
pub(super) fn needs_ends(image: &ClusterImage, request: &ElectLeaders) -> bool {
    request.kind == ElectionKind::Unclean && image.detects_copies()
}
