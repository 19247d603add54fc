//! Several brokers in one thread and from one seed: replication, elections and failovers, with machines that lose
//! power, processes that die or stand still, disks that are replaced, controllers that are deposed, and a network that is
//! cut, and delays, loses and doubles messages.
//!
//! What the brokers decide is decided by the rooms of the real broker; who carries effects out is [`Cluster`], with one
//! queue of events. What brokers say to each other goes as bytes (`forwarded.rs`, `fetches.rs`, `quorum/bytes.rs`).
//!
//! Read `member.rs` (a broker's life), `control.rs` (who decides, and when it counts), `truth.rs` (what must follow from
//! what is decided), then `faults.rs` and `network.rs`.

mod broker;
mod clients;
mod clocks;
mod control;
mod controller;
mod copies;
mod deletions;
mod directories;
mod elections;
mod faults;
mod fetches;
mod fills;
mod folders;
mod forwarded;
mod lies;
mod member;
mod network;
mod operator;
mod outages;
mod pipelines;
mod plan;
mod quorum;
mod recreations;
mod replicas;
mod rest;
mod sick;
mod syncing;
mod topics;
mod truth;

use std::collections::BTreeMap;
use std::sync::Arc;

use fastrand::Rng;
use metadata::ClusterImage;
use metadata::decide::{AlterPartition, BrokerRef, KnownDirectories, NewIsr};
use model::{BrokerEpoch, BrokerId, LeaderEpoch, Offset, Timestamp};
use node::Key;
use partition::{IsrAnswer, Urgency};

use crate::consumer::Consumer;
use crate::history::{Broken, History};
use crate::invariant::{Invariant, Violation};
use crate::machine::Stop;
use crate::message::{ClientId, PartitionId, Request, Response};
use crate::network::Address;
use crate::plan::PARTITIONS;
use crate::producer::Producer;
use crate::syncs;
use crate::trace::Trace;
use crate::world::Outcome;

pub(crate) use broker::read_all;
use broker::{ClusterBroker, Outgoing};
use clients::Wire;
use clocks::ClockFaults;
use controller::{Ask, Controller, Told};
use copies::{CopiedDirectory, Copies};
use deletions::Deletions;
use directories::{MissingDirectories, second_directory_of};
use fills::Fills;
use forwarded::Forwarded;
use lies::Lies;
use member::{Member, directory_of};
use network::{Body, Cuts};
use operator::Operator;
use outages::{OutageStep, Outages};
use pipelines::Pipelines;
pub use plan::ClusterPlan;
use recreations::Recreations;
use sick::{Sick, SickEvent};
use topics::TopicIncarnation;
pub(crate) use topics::{checkpoint_name_of, key_of, name_of};
use truth::Truth;

/// How long what nobody waits for stays unsynced.
const SYNC_DELAY_MS: i64 = 20;
/// How long a broker waits for another one's answer.
const CALL_MS: i64 = 120;
/// How often a broker says that it is there, and looks who lags.
const TICK_MS: i64 = 40;

/// Brokers that vote for who is the controller; the others observe.
const VOTERS: usize = 3;

/// A process: its broker, and which one of that broker's it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    broker: usize,
    incarnation: u64,
}

#[derive(Debug)]
enum Event {
    Start(usize),
    /// A broker with a failed or missing disk is started again.
    Repair(Process),
    /// A process copies replicas in a missing directory.
    CopyMissing(Process),
    Stop,
    Cut,
    Pause,
    Configure,
    SetClock,
    /// A disk has hardly any room left.
    Fill,
    /// A person ends what only a person may end.
    Operate(PartitionId),
    /// There is room again.
    Emptied(Process),
    /// The directory of a broker is copied, or a copy is put back.
    Copy,
    /// All brokers die, and a disk is put back from a copy.
    Outage(OutageStep),
    /// A broker's journal has a mark.
    StoreMark(Process, u64),
    /// A client deletes records.
    Delete,
    /// A client deletes the topic, or creates it again.
    ChangeTopic,
    /// A request about the topic arrives at the controller.
    AskTopic(Process, Forwarded),
    /// The journal has the log starts.
    CommitStarts(Process),
    /// A disk begins to lie about its syncs.
    Lie,
    /// Power fails behind a lie.
    FoundOut(Process),
    Arrive {
        from: usize,
        to: usize,
        body: Body,
    },
    QuorumTick(Process),
    Sweep {
        member: usize,
        term: u64,
    },
    Image(Process),
    Lost {
        at: Process,
        leader: usize,
        number: u64,
    },
    /// The controller decides a person's request by the log ends that it has.
    OperatorRequestDue {
        controller: usize,
        number: u64,
    },
    /// A request for log ends was not answered in time.
    Unended {
        controller: usize,
        term: u64,
        who: BrokerRef,
    },
    /// AlterPartition was not answered in time.
    Unaltered {
        at: Process,
        wish: NewIsr,
        number: u64,
    },
    Tick(Process),
    BeginSync(Process, Urgency),
    RunSync(Process),
    Checkpoint,
    ToBroker(usize, LeaderEpoch, Address, Request),
    ToClient(Address, Response),
    Disconnected {
        client: ClientId,
        link: u64,
    },
    Wake(ClientId),
    Sick(SickEvent),
}

impl Event {
    /// The machine without which it cannot happen.
    fn concerns(&self) -> Option<usize> {
        match self {
            Event::Arrive { to, .. } => Some(*to),
            Event::Sweep { member, .. }
            | Event::Unended { controller: member, .. }
            | Event::OperatorRequestDue { controller: member, .. }
            | Event::Sick(SickEvent::Probe { member, .. }) => Some(*member),
            Event::ToBroker(broker, ..) => Some(*broker),
            Event::QuorumTick(process)
            | Event::Repair(process)
            | Event::CopyMissing(process)
            | Event::CommitStarts(process)
            | Event::StoreMark(process, _)
            | Event::Image(process)
            | Event::Tick(process)
            | Event::BeginSync(process, _)
            | Event::RunSync(process)
            | Event::Sick(SickEvent::Observe(process))
            | Event::Unaltered { at: process, .. }
            | Event::Lost { at: process, .. } => Some(process.broker),
            _ => None,
        }
    }
}

/// Everything there is in a run with several brokers.
#[derive(Debug)]
pub struct Cluster {
    plan: ClusterPlan,
    random: Rng,
    clock_faults: ClockFaults,
    lies: Lies,
    fills: Fills,
    deletions: Deletions,
    copies: Copies,
    missing_directories: MissingDirectories,
    outages: Outages,
    recreations: Recreations,
    operator: Operator,
    /// Present in a run with a lasting fault.
    sick: Option<Sick>,
    now: Timestamp,
    queue: BTreeMap<(Timestamp, u64), Event>,
    queued: u64,
    events: u64,
    stops: u64,
    trace: Trace,
    members: Vec<Member>,
    cuts: Cuts,
    /// How often somebody became the controller.
    controllers: u64,
    truth: Truth,
    wires: Vec<Wire>,
    producers: Vec<Producer>,
    consumers: Vec<Consumer>,
    /// What groups have stored: here, with somebody who never forgets.
    stored: Vec<Vec<(PartitionId, Offset)>>,
    history: History,
    pipelines: Pipelines,
}

impl Cluster {
    /// A cluster before its first event.
    pub fn new(seed: u64, verbose: bool) -> Cluster {
        let mut random = Rng::with_seed(seed);
        let mut plan = ClusterPlan::choose(&mut random);
        let operator = Operator::new(seed, &mut plan);
        let outages = Outages::new(seed, &mut plan);
        let pipelines = match outages.is_any() {
            true => Pipelines::none(),
            false => Pipelines::new(seed, &mut plan),
        };
        let mut cluster = Cluster::of(seed, random, plan, (operator, outages), None, verbose);
        cluster.set_pipelines(pipelines);
        cluster
    }

    /// A cluster in which one fault lasts.
    pub fn sick(seed: u64, verbose: bool) -> Cluster {
        let (plan, sick) = sick::plan(seed);
        let faults = (Operator::new(seed, &mut plan.clone()), Outages::none());
        let mut cluster =
            Cluster::of(seed, Rng::with_seed(seed), plan, faults, Some(sick), verbose);
        for client in 0..cluster.producers.len() {
            let (partition, acks) = sick::writer(client);
            cluster.producers[client] = Producer::steady(client, partition, acks);
        }
        cluster.fills = Fills::none();
        cluster.deletions = Deletions::none();
        cluster.copies = Copies::none();
        cluster.missing_directories = MissingDirectories::none();
        cluster.recreations = Recreations::none();
        cluster
    }

    fn of(
        seed: u64,
        mut random: Rng,
        plan: ClusterPlan,
        (operator, outages): (Operator, Outages),
        sick: Option<Sick>,
        verbose: bool,
    ) -> Cluster {
        // No deletion comes back with a copy.
        let deletions = match outages.is_any() {
            true => Deletions::none(),
            false => Deletions::new(seed, &plan),
        };
        // Outages of all brokers are in runs of their own.
        let recreations = match outages.is_any() {
            true => Recreations::none(),
            false => Recreations::new(seed),
        };
        let now = Timestamp(0);
        let batches = crate::Plan::of_batches(plan.batches);
        let producers: Vec<_> =
            (0..plan.producers).map(|id| Producer::new(id, &batches, &mut random)).collect();
        let mut history = History::default();
        for (id, _) in producers.iter().enumerate().filter(|(_, p)| p.is_idempotent()) {
            history.idempotent(id);
        }
        let lies = Lies::new(seed, &plan, recreations.is_any());
        let copies = Copies::new(seed, &plan, &deletions);
        let others = lies.is_any() || copies.is_any() || outages.is_any() || recreations.is_any();
        let mut cluster = Cluster {
            now,
            queue: BTreeMap::new(),
            queued: 0,
            events: 0,
            stops: 0,
            trace: Trace::new(verbose),
            members: Vec::new(),
            cuts: Cuts::default(),
            controllers: 0,
            truth: Truth::default(),
            wires: (0..plan.producers + plan.consumers).map(|_| Wire::default()).collect(),
            producers,
            consumers: (0..plan.consumers).map(|_| Consumer::new(false)).collect(),
            stored: vec![Vec::new(); plan.consumers],
            history,
            random,
            clock_faults: ClockFaults::new(seed),
            lies,
            fills: Fills::new(seed),
            copies,
            missing_directories: MissingDirectories::new(seed, &plan, others),
            outages,
            deletions,
            recreations,
            operator,
            sick,
            pipelines: Pipelines::none(),
            plan,
        };
        cluster.trace.note(now, format_args!("{:?}", cluster.plan));
        cluster
    }

    fn begin(&mut self) -> Result<(), Broken> {
        let mut controller = Controller::new(ClusterImage::default(), self.now);
        let mut founding = vec![controller.found(self.now, self.plan.version)];
        for broker in 0..self.plan.brokers {
            // The first registrations make the placement of the topic possible.
            let directories = KnownDirectories::default();
            let id = id_of(broker);
            let mut log_dirs = vec![directory_of(id, 0)];
            if self.missing_directories.is_any() {
                log_dirs.push(second_directory_of(id, 0));
            }
            let request = member::registration(id, 0, log_dirs, true, false, directories);
            founding.push(controller.ask(self.now, &Ask::Register(request, None)).0);
            self.schedule(1, Event::Start(broker));
        }
        let topic = self.new_topic(TopicIncarnation::FIRST, PARTITIONS);
        founding.push(controller.create_topic(self.now, topic));
        let founding: Vec<_> = (0..)
            .zip(founding)
            .map(|(at, entry)| {
                let records = Arc::clone(&entry.records);
                self.truth.decided(at, 0, entry);
                quorum::Logged { term: 0, leader: 0, records }
            })
            .collect();
        for broker in 0..self.plan.brokers {
            let node = quorum::Node::new(broker, VOTERS, self.plan.brokers, &founding);
            self.members.push(Member::new(node, self.missing_directories.is_any()));
            self.prepare(broker)?;
            self.learn_committed(broker)?;
        }
        for client in 0..self.wires.len() {
            self.schedule(1, Event::Wake(client));
        }
        self.schedule(50, Event::Checkpoint);
        self.schedule_stop();
        self.schedule_cut();
        self.schedule_pause();
        self.schedule_configure();
        self.schedule_clock();
        self.schedule_lie();
        self.schedule_fill();
        self.schedule_deletion();
        self.schedule_copy();
        self.schedule_outage();
        self.schedule_topic_change();
        self.schedule_sickness();
        Ok(())
    }

    fn schedule(&mut self, after_ms: i64, event: Event) {
        self.queued += 1;
        self.queue.insert((self.now.plus_ms(after_ms), self.queued), event);
    }

    fn schedule_soon(&mut self, event: Event) {
        let after = self.random.i64(0..8);
        self.schedule(after, event);
    }

    /// Lets time pass until all is at rest or something is broken.
    pub fn run(mut self) -> Outcome {
        let broken = self.begin().err();
        let at = self.now;
        let mut violation = broken.map(|(invariant, what)| Violation { invariant, at, what });
        while violation.is_none()
            && let Some(((at, _), event)) = self.queue.pop_first()
        {
            assert!(at >= self.now, "time does not go back");
            self.now = at;
            self.events += 1;
            match self.happen(event).and_then(|()| self.check_progress()) {
                Ok(true) => break,
                Ok(false) => {}
                Err((invariant, what)) => {
                    violation = Some(Violation { invariant, at, what });
                    break;
                }
            }
        }
        if violation.is_none()
            && let Err((invariant, what)) = self.final_scan()
        {
            violation = Some(Violation { invariant, at: self.now, what });
        }
        let outcome = Outcome {
            trace: self.trace.digest(),
            events: self.events,
            ended: self.now,
            stops: self.stops,
            acked: self.history.acked_count,
            compactions: 0,
            controllers: self.controllers,
            violation,
        };
        drop(self);
        syncs::assert_none_left();
        outcome
    }

    fn happen(&mut self, event: Event) -> Result<(), Broken> {
        if let Some(member) = event.concerns().filter(|member| self.is_paused(*member)) {
            let after = self.members[member].paused_until.ms_since(self.now);
            self.schedule(after, event);
            return Ok(());
        }
        if self.waits_for_disk(&event) {
            self.schedule(1, event);
            return Ok(());
        }
        match event {
            Event::Start(broker) => self.start(broker)?,
            Event::Repair(process) => {
                if self.running(process).is_some() {
                    self.stop(process.broker, Stop::Kill);
                }
            }
            Event::CopyMissing(process) => self.allow_copies_of_missing(process),
            Event::Stop => self.stop_somebody(),
            Event::Cut => self.cut_somebody(),
            Event::Pause => self.pause_somebody(),
            Event::Configure => self.configure(),
            Event::SetClock => self.set_clock(),
            Event::Fill => self.fill(),
            Event::Operate(at) => self.operate(at),
            Event::Emptied(process) => self.emptied(process),
            Event::Copy => self.copy(),
            Event::Outage(step) => self.outage(step),
            Event::StoreMark(process, mark) => self.store_mark(process, mark),
            Event::Unended { controller, term, who } => self.end_request(controller, term, who),
            Event::OperatorRequestDue { controller, number } => {
                self.decide_operator_request(controller, number);
            }
            Event::Delete => self.delete_records(),
            Event::ChangeTopic => self.change_topic(),
            Event::AskTopic(process, forwarded) => self.forward_topic_request(process, forwarded),
            Event::CommitStarts(process) => self.commit_starts(process),
            Event::Lie => self.lie(),
            Event::FoundOut(process) => self.find_out(process),
            Event::Arrive { from, to, body } => self.arrive(from, to, body)?,
            Event::QuorumTick(process) => self.quorum_tick(process),
            Event::Sweep { member, term } => self.sweep(member, term),
            Event::Image(process) => self.apply(process),
            Event::Lost { at, leader, number } => self.lost(at, leader, number),
            Event::Unaltered { at, wish, number } => {
                if self.members[at.broker].altering.get(&named(&wish)) == Some(&number) {
                    self.told(at, 0, Told::Altered(wish, IsrAnswer::Unknown));
                }
            }
            Event::Tick(process) => self.tick(process),
            Event::BeginSync(process, urgency) => self.begin_sync(process, urgency),
            Event::RunSync(process) => self.run_sync(process),
            Event::Checkpoint => {
                let now = self.now;
                let awake = self.members.iter_mut().filter(|member| member.paused_until <= now);
                let brokers = awake.filter_map(|member| member.broker.as_mut());
                brokers.for_each(ClusterBroker::checkpoint);
                self.retain();
                self.raise_marks();
                self.schedule(100, Event::Checkpoint);
            }
            Event::ToBroker(broker, epoch, from, request) => {
                self.arrive_at_broker(broker, epoch, from, request)?;
            }
            Event::ToClient(to, response) => self.arrive_at_client(to, response)?,
            Event::Disconnected { client, link } => self.disconnected(client, link),
            Event::Wake(client) => self.wake(client),
            Event::Sick(event) => self.sick_event(event)?,
        }
        self.notice_reachable();
        self.let_quorum_go_on()?;
        self.let_brokers_go_on()?;
        self.look_at_logs()
    }

    fn is_paused(&self, member: usize) -> bool {
        self.now < self.members[member].paused_until
    }

    fn apply(&mut self, process: Process) {
        let member = &self.members[process.broker];
        let (image, count) = (Arc::clone(&member.image), member.applied);
        let deleted = member.deleted.clone();
        let (now, clock) = (self.moment_of(process.broker), self.wall_of(process.broker));
        if let Some(broker) = self.running(process) {
            broker.apply(&image, &deleted, now, clock);
            broker.acted_upon(count);
            self.note_acted_upon(process.broker, count);
            self.settle_mark(process);
        }
    }

    fn process(&self, broker: usize) -> Process {
        Process { broker, incarnation: self.members[broker].incarnation }
    }

    fn serve(
        &mut self,
        from: Process,
        leader: usize,
        number: u64,
        frame: &[u8],
    ) -> Result<(), String> {
        let now = self.moment_of(leader);
        let Some(broker) = &mut self.members[leader].broker else { return Ok(()) };
        let answer = broker.serve(id_of(from.broker), frame, now)?;
        self.fetched(leader, from.broker);
        self.send_message(leader, from.broker, Body::Fetched(from, number, answer));
        Ok(())
    }

    fn leader_answered(
        &mut self,
        to: Process,
        leader: usize,
        number: u64,
        frame: &[u8],
    ) -> Result<(), String> {
        let (now, clock) = (self.moment_of(to.broker), self.wall_of(to.broker));
        if let Some(broker) = self.running(to) {
            broker.answered(id_of(leader), now, clock, number, frame)?;
            let asking = &mut self.members[to.broker].asking;
            if asking.get(&leader) == Some(&number) {
                asking.remove(&leader);
            }
        }
        Ok(())
    }

    fn lost(&mut self, at: Process, leader: usize, number: u64) {
        let (now, clock) = (self.moment_of(at.broker), self.wall_of(at.broker));
        let is_waiting = self.members[at.broker].asking.get(&leader) == Some(&number);
        if is_waiting && let Some(broker) = self.running(at) {
            broker.lost(id_of(leader), now, clock);
        }
    }

    fn begin_sync(&mut self, process: Process, urgency: Urgency) {
        let Some(broker) = self.running(process) else { return };
        let any = broker.begin_sync(urgency == Urgency::Later);
        let scheduled = &mut self.members[process.broker].sync_scheduled;
        scheduled.take_if(|scheduled| *scheduled == urgency);
        if any {
            let delay = self.random.i64(0..self.sync_ms_max(process.broker));
            self.schedule(delay, Event::RunSync(process));
        }
    }

    fn run_sync(&mut self, process: Process) {
        let (now, clock) = (self.moment_of(process.broker), self.wall_of(process.broker));
        let Some(broker) = self.running(process) else { return };
        let has_more = broker.run_sync(now, clock);
        self.members[process.broker].copied.mark.note_write();
        if has_more {
            let delay = self.random.i64(0..self.sync_ms_max(process.broker));
            self.schedule(delay, Event::RunSync(process));
        }
    }

    /// Sends what leaves, and sees to it that syncs run.
    fn let_brokers_go_on(&mut self) -> Result<(), Broken> {
        let mut unable = Vec::new();
        for number in 0..self.members.len() {
            if self.is_paused(number) {
                continue;
            }
            let process = self.process(number);
            let Some(broker) = &mut self.members[number].broker else { continue };
            let epoch = broker.epoch;
            let outgoing = broker.progress();
            if let Some((at, broken)) = broker.broken.take()
                && !(self.truth.may_truncate(at) && broken.0 == Invariant::CommittedIsNotCut)
            {
                return Err(broken);
            }
            assert!(!broker.is_failed, "disks do not fail here");
            let wanted = broker.wants_sync();
            let refused = std::mem::take(&mut broker.refused);
            let unable_to_begin = std::mem::take(&mut broker.unable_to_begin);
            unable.extend(unable_to_begin.into_iter().map(|at| (number, at)));
            self.commit_starts_soon(number);
            for at in refused {
                if !self.truth.may_refuse(at) {
                    let what = format!("{number} refuses to truncate {at}, and nothing is lost");
                    return Err((Invariant::CommittedIsNotCut, what));
                }
                self.schedule_operator(at);
            }
            for one in outgoing {
                match one {
                    Outgoing::Deleted(at, start) => self.deleted(at, start)?,
                    one => self.send(process, epoch, one),
                }
            }
            let member = &mut self.members[number];
            if let Some(urgency) = wanted
                && member.sync_scheduled < Some(urgency)
            {
                member.sync_scheduled = Some(urgency);
                let after_ms = match urgency {
                    Urgency::Now => 0,
                    Urgency::Reader => 1,
                    Urgency::Later => SYNC_DELAY_MS,
                };
                self.schedule(after_ms, Event::BeginSync(process, urgency));
            }
        }
        unable.into_iter().for_each(|(number, at)| self.make_anew(number, at));
        Ok(())
    }

    fn send(&mut self, from: Process, epoch: BrokerEpoch, what: Outgoing) {
        match what {
            Outgoing::Fetch(leader, number, frame) => {
                let leader = number_of(leader);
                self.members[from.broker].asking.insert(leader, number);
                self.schedule(CALL_MS, Event::Lost { at: from, leader, number });
                self.send_message(from.broker, leader, Body::Fetch(from, number, frame));
            }
            Outgoing::Isr(wish) => {
                self.queued += 1;
                let number = self.queued;
                self.members[from.broker].altering.insert(named(&wish), number);
                let wish_sent = wish.clone();
                self.schedule(CALL_MS, Event::Unaltered { at: from, wish: wish_sent, number });
                let leader = BrokerRef { broker: id_of(from.broker), epoch };
                let joining = self.lose_who_joins(&wish);
                let ask = Ask::AlterIsr(AlterPartition { leader, partitions: vec![wish] });
                match self.members[from.broker].node.leader().filter(|_| joining) {
                    Some(to) => {
                        let (after, from) = (self.random.i64(150..400), from.broker);
                        let body = Body::Ask(self.process(from), Forwarded::write(ask));
                        self.schedule(after, Event::Arrive { from, to, body });
                    }
                    None => self.ask_controller(from, ask),
                }
            }
            Outgoing::Deleted(..) => unreachable!("it is taken in at once"),
            Outgoing::Client(to, response) => {
                if self.is_lost() {
                    return self.disconnect(to.client);
                }
                let delay = self.random.i64(0..8);
                let at = self.wires[to.client].link.reach_client(self.now, delay);
                self.schedule(at.ms_since(self.now), Event::ToClient(to, response));
            }
        }
    }
}

/// The partition that an ISR is proposed for.
fn named(wish: &NewIsr) -> Key {
    Key { topic_id: wish.topic_id, partition: wish.partition }
}

fn id_of(number: usize) -> BrokerId {
    BrokerId(number as i32 + 1)
}

fn number_of(broker: BrokerId) -> usize {
    broker.0 as usize - 1
}
