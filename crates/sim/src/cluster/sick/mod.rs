//! Sick disks and silent brokers while the run goes on: disks that hang, slow down and fill, processes that stand still, and
//! brokers that are cut off, one fault at a time. A partition with enough healthy replicas must acknowledge meanwhile.
//!
//! The machines are the product's: `node::probe_book`, `node::suspicion`, `node::disks` and `node::doubt`. Their clock runs ten
//! times as fast as the simulation's, whose sessions and elections are ten times shorter than the product's.
//!
//! These runs have seeds of their own, and no other faults.

mod liveness;
mod probing;

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use model::{BrokerId, Durability, Moment, Timestamp};
use node::disks::DirectoryHealth;
use node::doubt::ControllerContact;
use node::heartbeats::HeartbeatAnswer;
use partition::Acks;

use super::network::Body;
use super::plan::ClusterPlan;
use super::{Cluster, Event, Process, id_of};
use crate::history::Broken;
use crate::message::{ClientId, Request};
use crate::plan::PARTITIONS;
use liveness::Liveness;

/// Microseconds of the machines' clock in a millisecond of the simulation's.
pub(super) const MICROSECONDS: u64 = 10_000;
/// Session of a broker, and the time after which a follower lags: far longer than a suspicion.
pub(super) const SESSION_MS: i64 = 3_000;
/// Begin of the fault.
const HEALTHY_MS: i64 = 600;
/// Length of the fault, and of five minutes without a quorum on the machines' clock.
const FAULT_MS: std::ops::Range<i64> = 2_000..4_500;
const NO_QUORUM_MS: i64 = 30_000;
/// Time for which a client waits for an answer.
pub(super) const REQUEST_MS: i64 = 100;
/// Time between two observations of a broker's disk.
const OBSERVED_EVERY_MS: i64 = 10;
/// Time between two requests for relief.
const REQUESTED_EVERY_MS: i64 = 50;
/// Salt of the seeds whose broker is not reached.
const UNREACHED_SALT: u64 = 0x7a11;

/// The fault of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sickness {
    /// Writes and syncs of one broker do not end.
    Hung,
    /// Syncs of one broker take long, and end.
    Slow,
    /// One broker has no room.
    Full,
    /// The disks of all brokers are one device, which hangs.
    Shared,
    /// The disks of two brokers hang for a while, in turn.
    Flapping,
    /// One process stands still.
    Paused,
    /// One broker has no connection with the others.
    CutOff,
    /// Messages of the others do not reach one broker; its own arrive.
    Deaf,
    /// Requests of the others do not reach one broker; its own are answered.
    Unreached,
    /// The metadata quorum is down for five minutes.
    NoQuorum,
}

impl Sickness {
    /// Whether the broker does not learn that others lead its partitions, while clients reach it.
    fn supersedes(self) -> bool {
        matches!(self, Sickness::CutOff | Sickness::Unreached)
    }
}

/// An event of a sick run.
#[derive(Debug)]
pub(super) enum SickEvent {
    Begin,
    End,
    /// A disk of a flapping pair hangs or recovers.
    Flap(usize),
    /// The active controller of this term probes.
    Probe {
        member: usize,
        term: u64,
    },
    /// A broker observes its disk.
    Observe(Process),
    /// Acknowledgements are checked.
    Check,
}

/// One broker's disk, and its contacts.
#[derive(Debug, Default)]
pub(super) struct Condition {
    health: DirectoryHealth,
    is_hung: bool,
    is_full: bool,
    is_slow: bool,
    /// Begin of the oldest write or sync that the hang holds up.
    held_since: Option<Timestamp>,
    /// End of the last write or sync.
    ended_at: Timestamp,
    requested_at: Option<Timestamp>,
    declines: bool,
    /// Last answer of a controller.
    heard_at: Timestamp,
    /// Answers of controllers, and the metadata that they name.
    contact: Contact,
    /// Entries of the metadata that the broker has acted upon.
    acted_upon: u64,
    /// Last fetch of each follower.
    fetched_at: BTreeMap<BrokerId, Moment>,
    /// End of the last fault.
    well_since: Timestamp,
}

/// Contact of a broker that has just started.
#[derive(Debug)]
struct Contact(ControllerContact);

impl Default for Contact {
    fn default() -> Contact {
        Contact(ControllerContact::begin(length(SESSION_MS), moment(Timestamp(0))))
    }
}

/// A run with one lasting fault.
#[derive(Debug)]
pub(super) struct Sick {
    random: Rng,
    sickness: Sickness,
    /// The sick broker; of a flapping pair the first.
    victim: usize,
    is_on: bool,
    conditions: Vec<Condition>,
    liveness: Liveness,
}

/// Writers of a sick run, by client: each partition has one with `acks=all` and one with `acks=1`.
pub(super) fn writer(client: ClientId) -> (usize, Acks) {
    (client / 2 % PARTITIONS, if client.is_multiple_of(2) { Acks::All } else { Acks::Leader })
}

/// The plan of a sick run.
pub(super) fn plan(seed: u64) -> (ClusterPlan, Sick) {
    use Sickness::{CutOff, Deaf, Flapping, Full, Hung, NoQuorum, Paused, Shared, Slow};
    let mut random = Rng::with_seed(seed ^ 0x51c6);
    let kinds = [
        Hung, Hung, Hung, Full, Full, Slow, Shared, Shared, Flapping, Paused, Paused, CutOff,
        CutOff, Deaf, NoQuorum,
    ];
    let drawn = kinds[random.usize(0..kinds.len())];
    // By a draw of its own: the other seeds keep their histories.
    let is_unreached = Rng::with_seed(seed ^ UNREACHED_SALT).u8(0..12) == 0;
    let sickness = if is_unreached { Sickness::Unreached } else { drawn };
    let is_observer = matches!(sickness, Deaf | Sickness::Unreached);
    // A deaf voter starts elections without end: the simulated quorum lacks the pre-vote that the product has.
    let brokers = if is_observer || random.bool() { 4 } else { 3 };
    let lasts = match sickness {
        NoQuorum => NO_QUORUM_MS,
        Flapping => 2 * FAULT_MS.end,
        // The leader's last contact is a session ago before the fault ends.
        CutOff | Deaf | Sickness::Unreached => 2 * random.i64(FAULT_MS),
        _ => random.i64(FAULT_MS),
    };
    let plan = ClusterPlan {
        brokers,
        replicas: 3,
        min_insync: random.usize(1..3),
        durability: Durability::Fsync,
        producers: 2 * PARTITIONS,
        consumers: 1,
        batches: u32::MAX,
        faults_until_ms: HEALTHY_MS + lasts,
        stop_every_ms: 0,
        blackouts_per_mille: 0,
        sync_ms_max: 4,
        lost_per_mille: 0,
        version: metadata::decide::RELIEF_LEVEL,
        unclean: false,
        losses_per_mille: 0,
        failures_per_mille: 0,
        slow_per_mille: 0,
        doubled_per_mille: 0,
        cut_every_ms: 0,
        pause_every_ms: 0,
        lag_ms: SESSION_MS as u64,
        image_ms_max: 8,
        controlled_shutdown: false,
        configure_every_ms: 0,
    };
    let victim = if is_observer { super::VOTERS } else { random.usize(0..brokers) };
    let conditions = (0..brokers).map(|_| Condition::default()).collect();
    let liveness = Liveness::default();
    (plan, Sick { random, sickness, victim, is_on: false, conditions, liveness })
}

/// A time of the simulation on the machines' clock.
fn moment(at: Timestamp) -> Moment {
    Moment(at.0 as u64 * MICROSECONDS)
}

/// A length of the simulation on the machines' clock.
fn length(ms: i64) -> Duration {
    Duration::from_micros(ms.max(0) as u64 * MICROSECONDS)
}

impl Cluster {
    pub(super) fn schedule_sickness(&mut self) {
        if self.sick.is_none() {
            return;
        }
        self.schedule(HEALTHY_MS, Event::Sick(SickEvent::Begin));
        self.schedule(self.plan.faults_until_ms, Event::Sick(SickEvent::End));
        self.schedule(HEALTHY_MS, Event::Sick(SickEvent::Check));
    }

    pub(super) fn sick_event(&mut self, event: SickEvent) -> Result<(), Broken> {
        match event {
            SickEvent::Begin => self.begin_sickness(),
            SickEvent::End => self.end_sickness(),
            SickEvent::Flap(member) => self.flap(member),
            SickEvent::Probe { member, term } => self.probe(member, term),
            SickEvent::Observe(process) => self.observe_disk(process),
            SickEvent::Check => return self.check_liveness(),
        }
        Ok(())
    }

    fn begin_sickness(&mut self) {
        let until = Timestamp(self.plan.faults_until_ms);
        let (now, members) = (self.now, self.members.len());
        let Some(sick) = &mut self.sick else { return };
        sick.is_on = true;
        let (sickness, victim) = (sick.sickness, sick.victim);
        match sickness {
            Sickness::Hung => sick.conditions[victim].is_hung = true,
            Sickness::Slow => sick.conditions[victim].is_slow = true,
            Sickness::Shared => sick.conditions.iter_mut().for_each(|it| it.is_hung = true),
            Sickness::Full => {
                sick.conditions[victim].is_full = true;
                let disk = &self.members[victim].disk;
                disk.limit_capacity(Some(disk.used_bytes()));
            }
            Sickness::Paused => self.members[victim].paused_until = until,
            Sickness::Flapping => {
                self.flap(victim);
            }
            Sickness::CutOff | Sickness::Deaf => {
                for other in (0..members).filter(|other| *other != victim) {
                    self.cuts.cut(other, victim, until);
                    if sickness == Sickness::CutOff {
                        self.cuts.cut(victim, other, until);
                    }
                }
            }
            Sickness::NoQuorum | Sickness::Unreached => {}
        }
        self.trace.note(now, format_args!("{sickness:?} of {victim}"));
    }

    /// The disk of one broker hangs for a second or two of the machines' clock, then that of another.
    fn flap(&mut self, member: usize) {
        let (now, members) = (self.now, self.members.len());
        let Some(sick) = self.sick.as_mut().filter(|sick| sick.is_on) else { return };
        let condition = &mut sick.conditions[member];
        condition.is_hung = !condition.is_hung;
        condition.well_since = now;
        let next = if condition.is_hung { member } else { (member + 1) % members.min(3) };
        let after = sick.random.i64(80..200);
        self.schedule(after, Event::Sick(SickEvent::Flap(next)));
    }

    fn end_sickness(&mut self) {
        let now = self.now;
        let Some(sick) = &mut self.sick else { return };
        sick.is_on = false;
        for condition in &mut sick.conditions {
            (condition.is_hung, condition.is_full, condition.is_slow) = (false, false, false);
            (condition.held_since, condition.well_since) = (None, now);
        }
        let victim = sick.victim;
        self.make_room(victim);
        self.producers.iter_mut().for_each(crate::producer::Producer::send_no_more);
        self.trace.note(now, format_args!("{victim} is well"));
    }

    /// Whether an event waits for a hung disk.
    pub(super) fn waits_for_disk(&mut self, event: &Event) -> bool {
        let member = match event {
            Event::RunSync(process) | Event::Image(process) => process.broker,
            Event::ToBroker(broker, _, _, Request::Produce { .. }) => *broker,
            Event::Arrive { to, body: Body::Fetched(..), .. } => *to,
            _ => return false,
        };
        let now = self.now;
        let Some(sick) = &mut self.sick else { return false };
        let condition = &mut sick.conditions[member];
        if !condition.is_hung {
            condition.held_since = None;
            if !matches!(event, Event::Image(_)) {
                condition.ended_at = now;
            }
            return false;
        }
        if !matches!(event, Event::Image(_)) {
            condition.held_since.get_or_insert(now);
        }
        true
    }

    /// Longest time that a broker's device takes for one sync.
    pub(super) fn sync_ms_max(&self, member: usize) -> i64 {
        let is_slow = self.sick.as_ref().is_some_and(|sick| sick.conditions[member].is_slow);
        if is_slow { 30 } else { self.plan.sync_ms_max }
    }

    /// Whether messages of the quorum are lost.
    pub(super) fn lacks_quorum(&self) -> bool {
        self.sick.as_ref().is_some_and(|sick| sick.is_on && sick.sickness == Sickness::NoQuorum)
    }

    /// Whether requests of other brokers do not reach a broker.
    pub(super) fn is_unreached(&self, member: usize) -> bool {
        let sick = self.sick.as_ref().filter(|it| it.sickness == Sickness::Unreached);
        sick.is_some_and(|sick| sick.is_on && sick.victim == member)
    }

    /// The broker beside a client, for which a superseded leader is the only broker: writers with `acks=1` know no other.
    pub(super) fn cut_off_with(&self, client: ClientId) -> Option<usize> {
        let sick = self.sick.as_ref().filter(|it| it.is_on && it.sickness.supersedes())?;
        let is_beside = client < self.producers.len() && writer(client).1 == Acks::Leader;
        is_beside.then_some(sick.victim)
    }

    /// A controller answered the heartbeat of a broker.
    pub(super) fn heard_controller(&mut self, member: usize, answer: &[u8]) {
        let now = self.now;
        let answer = HeartbeatAnswer::decode(answer).expect("an answer has a state");
        if let Some(sick) = &mut self.sick {
            let condition = &mut sick.conditions[member];
            condition.heard_at = now;
            condition.contact.0.note_answer(moment(now), answer.metadata, condition.acted_upon);
        }
    }

    /// A broker acted upon so many entries of the metadata.
    pub(super) fn note_acted_upon(&mut self, member: usize, count: usize) {
        if let Some(sick) = &mut self.sick {
            let condition = &mut sick.conditions[member];
            condition.acted_upon = count as u64;
            condition.contact.0.note_metadata(condition.acted_upon);
        }
    }

    /// A follower fetched from a leader.
    pub(super) fn fetched(&mut self, leader: usize, follower: usize) {
        let at = self.moment_of(leader);
        if let Some(sick) = &mut self.sick {
            sick.conditions[leader].fetched_at.insert(id_of(follower), at);
        }
    }
}
