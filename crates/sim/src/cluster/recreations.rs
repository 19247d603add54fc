//! The topic that is deleted and created again, with another topic id and perhaps another number of partitions, while brokers are
//! down, cut off or paused.
//!
//! Clients learn the new topic id from metadata. Acknowledged records of a deleted topic are demanded no more.

use std::ops::Range;

use fastrand::Rng;
use metadata::decide::{NewTopic, TopicRef};
use model::BrokerId;

use super::controller::{Ask, MIN_INSYNC, elect_uncleanly};
use super::forwarded::Forwarded;
use super::network::Body;
use super::topics::{TopicIncarnation, topic_in};
use super::{Cluster, Event, Process};
use crate::consumer::decode;
use crate::history::{Broken, History};
use crate::invariant::Invariant;
use crate::message::PartitionId;
use crate::start::TOPIC;

/// The most partitions of a topic that is created again.
const PARTITIONS_MAX: usize = 3;
/// Of so many deletions one is followed at once by a creation.
const AT_ONCE: u8 = 2;
/// How long a client needs to create a topic behind its deletion, in milliseconds: at first the deletion may arrive later.
const AT_ONCE_MS: Range<i64> = 1..40;
/// Of so many changes one comes soon after the change before: answers that were requested for the topic before are on their
/// way, and the metadata of a broker steps over several topics at once.
const SOON: u8 = 2;
/// The time after which such a change comes, in milliseconds.
const SOON_MS: Range<i64> = 10..100;
/// How often a client requests the topic once the faults are over, in milliseconds.
const REQUESTED_EVERY_MS: i64 = 100;
/// Tells these random numbers from those of the same seed that all else is made of.
const OWN_NUMBERS: u64 = 0x70_91c5;

/// When the topic is deleted and created, and the random numbers for it: none is taken from those that the rest of a run is made of.
#[derive(Debug)]
pub(super) struct Recreations {
    random: Rng,
    /// The mean time between two changes; 0 for none.
    every_ms: i64,
    /// The newest incarnation that was requested.
    newest: TopicIncarnation,
}

impl Recreations {
    pub(super) fn new(seed: u64) -> Recreations {
        let mut random = Rng::with_seed(seed ^ OWN_NUMBERS);
        let every_ms = [0, 0, 0, 0, 0, 0, 300, 900][random.usize(0..8)];
        Recreations { random, every_ms, newest: TopicIncarnation::FIRST }
    }

    /// The topic stays.
    pub(super) fn none() -> Recreations {
        Recreations { random: Rng::with_seed(0), every_ms: 0, newest: TopicIncarnation::FIRST }
    }

    /// Whether the topic is deleted in this run.
    pub(super) fn is_any(&self) -> bool {
        self.every_ms > 0
    }

    /// Checks that records in the log of a partition were sent to that partition, and not to one of another incarnation.
    pub(super) fn check_apart(
        &self,
        at: PartitionId,
        bytes: &[u8],
        history: &History,
    ) -> Result<(), Broken> {
        if !self.is_any() {
            return Ok(());
        }
        let records = decode(bytes);
        match records.iter().find(|(_, value)| !history.was_sent(at, value)) {
            Some((offset, value)) => {
                let text = String::from_utf8_lossy(value);
                let what = format!("{text:?} at {offset} of {at} was sent to another topic");
                Err((Invariant::TopicsStayApart, what))
            }
            None => Ok(()),
        }
    }
}

impl Cluster {
    /// The topic as a client creates it.
    pub(super) fn new_topic(&self, incarnation: TopicIncarnation, partitions: usize) -> NewTopic {
        let configs = [
            (MIN_INSYNC, self.plan.min_insync.to_string()),
            ("durability", self.plan.durability.name().to_owned()),
            ("unclean.leader.election.enable", self.plan.unclean.to_string()),
        ];
        NewTopic {
            name: TOPIC.to_owned(),
            id: incarnation.topic_id(),
            partitions: partitions as i32,
            replication_factor: self.plan.replicas,
            configs: configs.map(|(key, value)| (key.to_owned(), Some(value))).to_vec(),
            ..NewTopic::default()
        }
    }

    pub(super) fn schedule_topic_change(&mut self) {
        let every = self.recreations.every_ms;
        if every > 0 {
            let after = match self.has_faults() {
                true if self.recreations.random.u8(0..SOON) == 0 => {
                    self.recreations.random.i64(SOON_MS)
                }
                true => self.recreations.random.i64(1..2 * every),
                false => REQUESTED_EVERY_MS,
            };
            self.schedule(after, Event::ChangeTopic);
        }
    }

    /// A client has the topic deleted, or created, at any broker. Once the faults are over the topic is only created.
    pub(super) fn change_topic(&mut self) {
        self.schedule_topic_change();
        let random = &mut self.recreations.random;
        let (number, is_by_id) = (random.usize(0..self.members.len()), random.bool());
        let (is_at_once, after) = (random.u8(0..AT_ONCE) == 0, random.i64(AT_ONCE_MS));
        let Some(broker) = &self.members[number].broker else { return };
        let known = match self.has_faults() {
            true => topic_in(&broker.image).map(|topic| topic.id),
            false if self.partitions().is_empty() => None,
            false => return self.elect_among_empty_replicas(number),
        };
        let process = self.process(number);
        let Some(id) = known else { return self.create_topic(process, 0) };
        let topic = if is_by_id { TopicRef::Id(id) } else { TopicRef::Name(TOPIC.to_owned()) };
        self.ask_about_topic(process, Ask::DeleteTopic(topic), 0);
        if is_at_once {
            self.create_topic(process, after);
        }
    }

    /// A person ends the wait of partitions that no broker had made when all of them ended: each replica was reported as empty, and
    /// no complete one is left.
    fn elect_among_empty_replicas(&mut self, number: usize) {
        let is_left = |at: &PartitionId| {
            self.state_of(*at).is_some_and(|state| {
                let is_complete = |id: &BrokerId| state.is_complete(*id);
                let waits_for = state.last_known_leader;
                waits_for == BrokerId::NONE
                    && !state.has_leader()
                    && !state.replicas.iter().any(is_complete)
            })
        };
        let left: Vec<PartitionId> = self.partitions().filter(is_left).collect();
        for at in left {
            self.ask_controller(self.process(number), elect_uncleanly(at));
        }
    }

    /// Each request has a topic id of its own, as the product's broker gives it one.
    fn create_topic(&mut self, process: Process, after: i64) {
        let Some(incarnation) = self.recreations.newest.next() else { return };
        self.recreations.newest = incarnation;
        let partitions = self.recreations.random.usize(1..=PARTITIONS_MAX);
        let topic = self.new_topic(incarnation, partitions);
        self.ask_about_topic(process, Ask::CreateTopic(topic), after);
    }

    fn ask_about_topic(&mut self, process: Process, ask: Ask, after: i64) {
        self.trace.note(self.now, format_args!("{process:?} asks for {ask:?}"));
        self.schedule(after, Event::AskTopic(process, Forwarded::write(ask)));
    }

    /// Sends a request about the topic to the controller. It is lost perhaps, but never sent twice: a broker does not repeat a
    /// request whose outcome is unknown.
    pub(super) fn forward_topic_request(&mut self, process: Process, forwarded: Forwarded) {
        let from = process.broker;
        let Some(to) = self.members[from].node.leader() else { return };
        if self.is_lost() {
            return;
        }
        let after = self.recreations.random.i64(0..8);
        let body = Body::Ask(process, forwarded);
        self.schedule(after, Event::Arrive { from, to, body });
    }
}
