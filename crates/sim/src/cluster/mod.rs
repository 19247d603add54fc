//! Several brokers in one thread and from one seed: replication, elections and failovers, with machines that lose
//! power, processes that die, and messages that are late or lost.
//!
//! What the brokers decide is decided by the rooms of the real broker; who carries effects out is [`Cluster`], with one
//! queue of events. The controller never fails here, and messages are values, not bytes.

mod broker;
mod controller;
mod plan;

use std::collections::{BTreeMap, VecDeque};

use fastrand::Rng;
use metadata::decide::{AlterPartition, BrokerRef, NewIsr, NewTopic};
use model::{BrokerEpoch, BrokerId, Durability, ErrorCode, Moment, Offset, Timestamp};
use node::fetcher::{Answered, Ask, Key, ReplicaAnswerError};
use partition::{IsrAnswer, IsrDecision, Urgency};
use storage::disk::SimDisk;

use crate::consumer::{Consumer, decode};
use crate::history::{Broken, History};
use crate::invariant::{Invariant, Violation};
use crate::machine::Stop;
use crate::message::{ClientId, PartitionId, Request, Response};
use crate::network::{Address, Link};
use crate::plan::PARTITIONS;
use crate::producer::Producer;
use crate::start::{self, TOPIC, TOPIC_ID};
use crate::trace::Trace;
use crate::world::Outcome;

use broker::{ClusterBroker, Outgoing};
use controller::{Altered, ClusterController};
pub use plan::ClusterPlan;

/// How long after the last fault everything must have come to rest.
const REST_MS: i64 = 60_000;
/// How long what nobody waits for stays unsynced.
const SYNC_DELAY_MS: i64 = 20;
/// How long a broker waits for another one's answer.
const CALL_MS: i64 = 120;
/// How often a broker says that it is there, and looks who lags.
const TICK_MS: i64 = 40;

/// A process: its broker, and which one of that broker's it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    broker: usize,
    incarnation: u64,
}

#[derive(Debug)]
enum Event {
    Start(usize),
    Stop,
    /// The controller learns of a process, and answers.
    Register(Process, bool),
    Registered(Process, BrokerEpoch),
    Heartbeat(BrokerRef),
    EndSessions,
    Image(Process),
    AskIsr(Process, NewIsr, BrokerEpoch),
    IsrAnswered(Process, NewIsr, IsrAnswer),
    AskLeader {
        from: Process,
        epoch: BrokerEpoch,
        leader: usize,
        ask: Ask,
    },
    LeaderAnswered {
        to: Process,
        leader: usize,
        number: u64,
        answers: Answers,
    },
    Lost {
        at: Process,
        leader: usize,
        number: u64,
    },
    Tick(Process),
    BeginSync(Process, Urgency),
    RunSync(Process),
    Checkpoint,
    ToBroker(usize, Address, Request),
    ToClient(Address, Response),
    Disconnected {
        client: ClientId,
        link: u64,
    },
    Wake(ClientId),
}

type Answers = Vec<(Key, Result<Answered, ReplicaAnswerError>)>;

/// A machine and its broker's process, if one runs.
#[derive(Debug)]
struct Member {
    disk: SimDisk,
    broker: Option<ClusterBroker>,
    incarnation: u64,
    /// Whether the controller has answered the registration.
    is_registered: bool,
    sync_scheduled: Option<Urgency>,
    /// The number of the fetch that waits for an answer, by leader.
    asking: BTreeMap<usize, u64>,
}

/// A client's connections, and the answers that wait for those to earlier requests.
#[derive(Debug, Default)]
struct Wire {
    link: Link,
    pending: VecDeque<(u64, Option<Response>)>,
}

/// Everything there is in a run with several brokers.
#[derive(Debug)]
pub struct Cluster {
    plan: ClusterPlan,
    random: Rng,
    now: Timestamp,
    queue: BTreeMap<(Timestamp, u64), Event>,
    queued: u64,
    events: u64,
    stops: u64,
    trace: Trace,
    members: Vec<Member>,
    controller: ClusterController,
    wires: Vec<Wire>,
    producers: Vec<Producer>,
    consumers: Vec<Consumer>,
    /// What groups have stored: here, with somebody who never forgets.
    stored: Vec<Vec<(PartitionId, Offset)>>,
    history: History,
}

impl Cluster {
    /// A cluster before its first event.
    pub fn new(seed: u64, verbose: bool) -> Cluster {
        let mut random = Rng::with_seed(seed);
        let plan = ClusterPlan::choose(&mut random);
        let now = Timestamp(0);
        let batches = crate::Plan::of_batches(plan.batches);
        let producers: Vec<_> =
            (0..plan.producers).map(|id| Producer::new(id, &batches, &mut random)).collect();
        let mut history = History::default();
        for (id, _) in producers.iter().enumerate().filter(|(_, p)| p.is_idempotent()) {
            history.idempotent(id);
        }
        let mut cluster = Cluster {
            now,
            queue: BTreeMap::new(),
            queued: 0,
            events: 0,
            stops: 0,
            trace: Trace::new(verbose),
            members: (0..plan.brokers).map(|_| Member::new()).collect(),
            controller: ClusterController::new(now),
            wires: (0..plan.producers + plan.consumers).map(|_| Wire::default()).collect(),
            producers,
            consumers: (0..plan.consumers).map(|_| Consumer::new(false)).collect(),
            stored: vec![Vec::new(); plan.consumers],
            history,
            random,
            plan,
        };
        cluster.trace.note(now, format_args!("{:?}", cluster.plan));
        cluster.schedule_beginning();
        cluster
    }

    fn schedule_beginning(&mut self) {
        for broker in 0..self.members.len() {
            // The first registrations make the placement of the topic possible.
            self.controller.register(self.now, id_of(broker), 0, true);
            self.schedule(1, Event::Start(broker));
        }
        self.controller.create_topic(
            self.now,
            NewTopic {
                name: TOPIC.to_owned(),
                id: TOPIC_ID,
                partitions: PARTITIONS as i32,
                replication_factor: self.plan.replicas,
                configs: vec![
                    ("min.insync.replicas".to_owned(), Some(self.plan.min_insync.to_string())),
                    ("durability".to_owned(), Some(self.plan.durability.name().to_owned())),
                ],
                ..NewTopic::default()
            },
        );
        for client in 0..self.wires.len() {
            self.schedule(1, Event::Wake(client));
        }
        self.schedule(50, Event::Checkpoint);
        self.schedule(30, Event::EndSessions);
        self.schedule_stop();
    }

    fn schedule(&mut self, after_ms: i64, event: Event) {
        self.queued += 1;
        self.queue.insert((self.now.plus_ms(after_ms), self.queued), event);
    }

    fn schedule_soon(&mut self, event: Event) {
        let after = self.random.i64(0..8);
        self.schedule(after, event);
    }

    fn schedule_stop(&mut self) {
        if self.plan.stop_every_ms > 0 && self.has_faults() {
            let after = self.random.i64(1..2 * self.plan.stop_every_ms);
            self.schedule(after, Event::Stop);
        }
    }

    fn has_faults(&self) -> bool {
        self.now < Timestamp(self.plan.faults_until_ms)
    }

    fn is_lost(&mut self) -> bool {
        self.has_faults() && self.random.u32(0..1000) < self.plan.lost_per_mille
    }

    fn moment(&self) -> Moment {
        Moment(self.now.0 as u64 * 1000)
    }

    /// Lets time pass until all is at rest or something is broken.
    pub fn run(mut self) -> Outcome {
        let mut violation = None;
        while let Some(((at, _), event)) = self.queue.pop_first() {
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
        Outcome {
            trace: self.trace.digest(),
            events: self.events,
            ended: self.now,
            stops: self.stops,
            acked: self.history.acked_count,
            compactions: 0,
            violation,
        }
    }

    fn happen(&mut self, event: Event) -> Result<(), Broken> {
        let images = self.controller.image().clone();
        match event {
            Event::Start(broker) => self.start(broker)?,
            Event::Stop => self.stop_somebody(),
            Event::Register(process, clean) => self.register(process, clean),
            Event::Registered(process, epoch) => self.registered(process, epoch),
            Event::Heartbeat(who) => self.controller.heartbeat(self.now, who),
            Event::EndSessions => {
                self.controller.end_sessions(self.now);
                self.schedule(30, Event::EndSessions);
            }
            Event::Image(process) => self.apply(process),
            Event::AskIsr(process, wish, epoch) => self.ask_controller(process, wish, epoch),
            Event::IsrAnswered(process, wish, answer) => {
                if let Some(broker) = self.running(process) {
                    broker.isr_answered(&wish, answer);
                }
            }
            Event::AskLeader { from, epoch, leader, ask } => self.serve(from, epoch, leader, &ask),
            Event::LeaderAnswered { to, leader, number, answers } => {
                self.leader_answered(to, leader, number, answers);
            }
            Event::Lost { at, leader, number } => self.lost(at, leader, number),
            Event::Tick(process) => self.tick(process),
            Event::BeginSync(process, urgency) => self.begin_sync(process, urgency),
            Event::RunSync(process) => self.run_sync(process),
            Event::Checkpoint => {
                let brokers = self.members.iter_mut().filter_map(|member| member.broker.as_mut());
                brokers.for_each(ClusterBroker::checkpoint);
                self.schedule(100, Event::Checkpoint);
            }
            Event::ToBroker(broker, from, request) => self.arrive_at_broker(broker, from, request),
            Event::ToClient(to, response) => self.arrive_at_client(to, response)?,
            Event::Disconnected { client, link } => self.disconnected(client, link),
            Event::Wake(client) => self.wake(client),
        }
        if !std::sync::Arc::ptr_eq(&images, self.controller.image()) {
            self.publish_image();
        }
        self.let_brokers_go_on()
    }

    /// Everybody learns of the newest image, sooner or later, and never of an older one afterwards.
    fn publish_image(&mut self) {
        for broker in 0..self.members.len() {
            if self.members[broker].is_registered {
                let process = self.process(broker);
                self.schedule_soon(Event::Image(process));
            }
        }
    }

    fn apply(&mut self, process: Process) {
        let (image, now, clock) = (self.controller.image().clone(), self.moment(), self.now);
        if let Some(broker) = self.running(process) {
            broker.apply(&image, now, clock);
        }
    }

    fn process(&self, broker: usize) -> Process {
        Process { broker, incarnation: self.members[broker].incarnation }
    }

    /// The broker, if it is still this process.
    fn running(&mut self, process: Process) -> Option<&mut ClusterBroker> {
        let member = &mut self.members[process.broker];
        member.broker.as_mut().filter(|_| member.incarnation == process.incarnation)
    }

    fn start(&mut self, broker: usize) -> Result<(), Broken> {
        let member = &mut self.members[broker];
        if member.broker.is_some() {
            return Ok(());
        }
        let opened = ClusterBroker::open(&member.disk, id_of(broker), &self.plan, self.now);
        let (opened, clean) =
            opened.map_err(|error| (Invariant::BrokerStarts, error.to_string()))?;
        member.broker = Some(opened);
        member.incarnation += 1;
        member.is_registered = false;
        member.asking.clear();
        member.sync_scheduled = None;
        let process = self.process(broker);
        self.trace.note(self.now, format_args!("{process:?} starts, clean: {clean}"));
        self.schedule_soon(Event::Register(process, clean));
        self.schedule(TICK_MS, Event::Tick(process));
        Ok(())
    }

    fn register(&mut self, process: Process, clean: bool) {
        if self.running(process).is_none() {
            return;
        }
        let (id, incarnation) = (id_of(process.broker), process.incarnation);
        let epoch = self.controller.register(self.now, id, incarnation, clean);
        self.schedule_soon(Event::Registered(process, epoch));
    }

    fn registered(&mut self, process: Process, epoch: BrokerEpoch) {
        let Some(broker) = self.running(process) else { return };
        broker.epoch = epoch;
        self.members[process.broker].is_registered = true;
        self.apply(process);
    }

    fn stop_somebody(&mut self) {
        if self.random.u32(0..1000) < self.plan.blackouts_per_mille {
            for broker in 0..self.members.len() {
                self.stop(broker, self.kind_of_stop(0));
            }
        } else {
            let broker = self.random.usize(0..self.members.len());
            let kind = self.random.usize(0..3);
            self.stop(broker, self.kind_of_stop(kind));
        }
        self.schedule_stop();
    }

    fn kind_of_stop(&self, kind: usize) -> Stop {
        match (kind, self.plan.durability) {
            (0, Durability::Fsync) => Stop::PowerFailure,
            (0 | 1, _) => Stop::Kill,
            _ => Stop::Clean,
        }
    }

    fn stop(&mut self, broker: usize, how: Stop) {
        let member = &mut self.members[broker];
        let Some(running) = member.broker.take() else { return };
        self.trace.note(self.now, format_args!("stop {broker}: {how:?}"));
        self.stops += 1;
        match how {
            Stop::Clean => running.stop_cleanly().expect("a healthy disk lets a broker stop"),
            Stop::Kill => drop(running),
            Stop::PowerFailure => {
                drop(running);
                member.disk = member.disk.after_crash(self.random.u64(..));
            }
        }
        for client in 0..self.wires.len() {
            self.disconnect(client);
        }
        let after = self.random.i64(1..900);
        self.schedule(after, Event::Start(broker));
    }

    fn tick(&mut self, process: Process) {
        let (now, clock) = (self.moment(), self.now);
        let Some(broker) = self.running(process) else { return };
        broker.tick(now, clock);
        let who = BrokerRef { broker: broker.id, epoch: broker.epoch };
        if self.members[process.broker].is_registered && !self.is_lost() {
            self.schedule_soon(Event::Heartbeat(who));
        }
        self.schedule(TICK_MS, Event::Tick(process));
    }

    fn ask_controller(&mut self, process: Process, wish: NewIsr, epoch: BrokerEpoch) {
        let leader = BrokerRef { broker: id_of(process.broker), epoch };
        let request = AlterPartition { leader, partitions: vec![wish.clone()] };
        let answer = isr_answer(self.controller.alter_partition(self.now, request));
        self.trace.note(self.now, format_args!("{process:?} asks for {wish:?}: {answer:?}"));
        if self.is_lost() {
            self.schedule(CALL_MS, Event::IsrAnswered(process, wish, IsrAnswer::Unknown));
        } else {
            self.schedule_soon(Event::IsrAnswered(process, wish, answer));
        }
    }

    fn serve(&mut self, from: Process, epoch: BrokerEpoch, leader: usize, ask: &Ask) {
        let (now, to) = (self.moment(), from);
        let Some(broker) = &mut self.members[leader].broker else { return };
        let answers = broker.serve(id_of(from.broker), epoch, ask, now);
        if !self.is_lost() {
            let number = ask.number;
            self.schedule_soon(Event::LeaderAnswered { to, leader, number, answers });
        }
    }

    fn leader_answered(&mut self, to: Process, leader: usize, number: u64, answers: Answers) {
        let (now, clock) = (self.moment(), self.now);
        if let Some(broker) = self.running(to) {
            broker.answered(id_of(leader), now, clock, number, answers);
            self.members[to.broker].asking.remove(&leader);
        }
    }

    fn lost(&mut self, at: Process, leader: usize, number: u64) {
        let (now, clock) = (self.moment(), self.now);
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
            let delay = self.random.i64(0..self.plan.sync_ms_max);
            self.schedule(delay, Event::RunSync(process));
        }
    }

    fn run_sync(&mut self, process: Process) {
        let (now, clock) = (self.moment(), self.now);
        let Some(broker) = self.running(process) else { return };
        if broker.run_sync(now, clock) {
            let delay = self.random.i64(0..self.plan.sync_ms_max);
            self.schedule(delay, Event::RunSync(process));
        }
    }

    /// Sends what leaves, and sees to it that syncs run.
    fn let_brokers_go_on(&mut self) -> Result<(), Broken> {
        for number in 0..self.members.len() {
            let process = self.process(number);
            let Some(broker) = &mut self.members[number].broker else { continue };
            let epoch = broker.epoch;
            let outgoing = broker.progress();
            if let Some(broken) = broker.broken.take() {
                return Err(broken);
            }
            assert!(!broker.is_failed, "disks do not fail here");
            let wanted = broker.wants_sync();
            for one in outgoing {
                self.send(process, epoch, one);
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
        Ok(())
    }

    fn send(&mut self, from: Process, epoch: BrokerEpoch, what: Outgoing) {
        match what {
            Outgoing::Ask(leader, ask) => {
                let leader = number_of(leader);
                self.members[from.broker].asking.insert(leader, ask.number);
                self.schedule(CALL_MS, Event::Lost { at: from, leader, number: ask.number });
                if !self.is_lost() {
                    self.schedule_soon(Event::AskLeader { from, epoch, leader, ask });
                }
            }
            Outgoing::Isr(wish) if self.is_lost() => {
                self.schedule(CALL_MS, Event::IsrAnswered(from, wish, IsrAnswer::Unknown));
            }
            Outgoing::Isr(wish) => self.schedule_soon(Event::AskIsr(from, wish, epoch)),
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

    /// Breaks a client's connections; the client learns of it later.
    fn disconnect(&mut self, client: ClientId) {
        let wire = &mut self.wires[client];
        wire.link.reset();
        wire.pending.clear();
        let (after, link) = (self.random.i64(1..60), wire.link.number);
        self.schedule(after, Event::Disconnected { client, link });
    }

    fn disconnected(&mut self, client: ClientId, link: u64) {
        if self.wires[client].link.number == link {
            self.wires[client].link.is_broken = false;
            match self.producers.get_mut(client) {
                Some(producer) => producer.disconnected(),
                None => self.consumers[client - self.plan.producers].disconnected(),
            }
        }
    }

    fn wake(&mut self, client: ClientId) {
        if !self.wires[client].link.is_broken {
            self.send_requests(client);
        }
        let after = self.random.i64(1..25);
        self.schedule(after, Event::Wake(client));
    }

    fn send_requests(&mut self, client: ClientId) {
        let calm = !self.has_faults();
        let (random, history) = (&mut self.random, &mut self.history);
        let requests = match self.producers.get_mut(client) {
            Some(producer) => producer.wake(self.now, random, history),
            None => {
                let consumer = &mut self.consumers[client - self.plan.producers];
                consumer.wake(random, history, calm).into_iter().collect()
            }
        };
        for (request, body) in requests {
            let from = Address { client, link: self.wires[client].link.number, request };
            let Some(broker) = self.leader_for(&body) else {
                self.disconnect(client);
                break;
            };
            self.wires[client].pending.push_back((request, None));
            let delay = self.random.i64(0..8);
            let at = self.wires[client].link.reach_broker(self.now, delay);
            self.schedule(at.ms_since(self.now), Event::ToBroker(broker, from, body));
        }
    }

    /// Where a client that knows the newest image sends this; by the time it arrives, the leader may be another.
    fn leader_for(&self, request: &Request) -> Option<usize> {
        let partition = match request {
            Request::Produce { partition, .. } | Request::Fetch { partition, .. } => *partition,
            _ => return Some(0),
        };
        let partition = model::PartitionIndex(partition as i32);
        let state = self.controller.image().partition(TOPIC, partition)?;
        state.has_leader().then(|| number_of(state.leader))
    }

    fn arrive_at_broker(&mut self, broker: usize, from: Address, request: Request) {
        if self.wires[from.client].link.number != from.link {
            return;
        }
        let now = self.now;
        let Some(running) = &mut self.members[broker].broker else {
            return match request {
                Request::CommitOffsets { .. } | Request::FetchOffsets => self.store(from, request),
                _ => self.disconnect(from.client),
            };
        };
        match request {
            Request::Produce { partition, acks, records } => {
                running.produce(now, from, partition, acks, records);
            }
            Request::Fetch { partition, offset } => running.fetch(from, partition, offset),
            other => self.store(from, other),
        }
    }

    /// Groups' offsets are kept by somebody who never forgets.
    fn store(&mut self, from: Address, request: Request) {
        let stored = &mut self.stored[from.client - self.plan.producers];
        let response = match request {
            Request::CommitOffsets { offsets } => {
                *stored = offsets;
                Response::Committed(ErrorCode::None)
            }
            _ => Response::Offsets(Ok(stored.clone())),
        };
        self.schedule_soon(Event::ToClient(from, response));
    }

    fn arrive_at_client(&mut self, to: Address, response: Response) -> Result<(), Broken> {
        let wire = &mut self.wires[to.client];
        if wire.link.number != to.link {
            return Ok(());
        }
        self.trace.note(self.now, format_args!("{to:?}: {response:?}"));
        let mut pending = wire.pending.iter_mut();
        if let Some((_, answer)) = pending.find(|(request, _)| *request == to.request) {
            *answer = Some(response);
        }
        // Answers of different brokers come in any order; a client takes them in that of its requests.
        while let Some((request, Some(_))) = self.wires[to.client].pending.front() {
            let request = *request;
            let front = self.wires[to.client].pending.pop_front();
            let response = front.and_then(|(_, response)| response).expect("it was looked at");
            if self.deliver(to.client, request, response)? {
                self.disconnect(to.client);
            }
        }
        Ok(())
    }

    fn deliver(
        &mut self,
        client: ClientId,
        request: u64,
        response: Response,
    ) -> Result<bool, Broken> {
        match self.producers.get_mut(client) {
            Some(producer) => producer.receive(request, response, &mut self.history),
            None => {
                self.consumers[client - self.plan.producers].receive(response, &mut self.history)
            }
        }
    }

    /// Whether the run is over.
    fn check_progress(&mut self) -> Result<bool, Broken> {
        if self.has_faults() {
            return Ok(false);
        }
        if self.is_at_rest() {
            return Ok(true);
        }
        if self.now < Timestamp(self.plan.faults_until_ms + REST_MS) {
            return Ok(false);
        }
        let waiting: Vec<_> =
            (0..self.producers.len()).filter(|id| !self.producers[*id].is_done()).collect();
        let states: Vec<_> = (0..PARTITIONS).map(|at| self.state_of(at)).collect();
        let what = format!("producers {waiting:?} or a consumer are not done: {states:?}");
        Err((Invariant::EverybodyIsAnswered, what))
    }

    fn state_of(&self, at: PartitionId) -> Option<&metadata::PartitionImage> {
        self.controller.image().partition(TOPIC, model::PartitionIndex(at as i32))
    }

    /// Everybody has everything, and every replica is in sync again.
    fn is_at_rest(&self) -> bool {
        self.members.iter().all(|member| member.broker.is_some() && member.is_registered)
            && self.producers.iter().all(Producer::is_done)
            && (0..PARTITIONS).all(|at| {
                let Some(state) = self.state_of(at) else { return false };
                if !state.has_leader() || state.isr.len() < state.replicas.len() {
                    return false;
                }
                let ends = state.replicas.iter().map(|id| self.log_end(number_of(*id), at));
                let ends: Vec<Offset> = ends.collect();
                let leader = self.members[number_of(state.leader)].broker.as_ref();
                let committed = leader.map(|leader| leader.partition(at).high_watermark());
                ends.iter().all(|end| Some(*end) == committed)
                    && self.consumers.iter().all(|consumer| consumer.has_reached(at, ends[0]))
            })
    }

    fn log_end(&self, broker: usize, at: PartitionId) -> Offset {
        let broker = self.members[broker].broker.as_ref();
        broker
            .map_or(Offset(-1), |broker| broker.partition(at).with_log(|log| log.log_end_offset()))
    }

    /// Every acknowledged record is there, and all replicas have the same bytes (R2).
    fn final_scan(&mut self) -> Result<(), Broken> {
        for at in 0..PARTITIONS {
            let state = self.state_of(at).expect("the topic is there").clone();
            let bytes_of = |id: &BrokerId| {
                let broker = self.members[number_of(*id)].broker.as_ref();
                broker.expect("all brokers run at rest").log_bytes(at)
            };
            let expected = bytes_of(&state.leader);
            for id in &state.replicas {
                if bytes_of(id) != expected {
                    let what = format!("brokers {} and {id} differ in {at}", state.leader);
                    return Err((Invariant::ReplicasAgree, what));
                }
            }
            self.history.final_scan(at, Offset(0), &decode(&expected))?;
        }
        Ok(())
    }
}

impl Member {
    fn new() -> Member {
        let disk = SimDisk::new();
        start::format(&disk);
        Member {
            disk,
            broker: None,
            incarnation: 0,
            is_registered: false,
            sync_scheduled: None,
            asking: BTreeMap::new(),
        }
    }
}

fn id_of(number: usize) -> BrokerId {
    BrokerId(number as i32 + 1)
}

fn number_of(broker: BrokerId) -> usize {
    broker.0 as usize - 1
}

/// What a leader makes of the controller's answer.
fn isr_answer(answer: Altered) -> IsrAnswer {
    let Ok(partitions) = answer else { return IsrAnswer::Superseded };
    let (_, _, one) = partitions.into_iter().next().expect("one was asked for");
    match one {
        Ok(altered) => IsrAnswer::Decided(IsrDecision {
            partition_epoch: altered.partition_epoch,
            isr: altered.isr,
            recovering: altered.recovering,
        }),
        Err(refusal) => match refusal.error {
            ErrorCode::IneligibleReplica | ErrorCode::InvalidRequest => IsrAnswer::Refused,
            _ => IsrAnswer::Superseded,
        },
    }
}
