//! One run: a queue of events in the order of time, and everybody who takes part.

use std::collections::BTreeMap;
use std::fmt;

use fastrand::Rng;
use model::{Offset, Timestamp};
use partition::Urgency;

use crate::broker::read_log;
use crate::consumer::{Consumer, decode};
use crate::controller::Controller;
use crate::history::{Broken, History};
use crate::invariant::{Invariant, Violation};
use crate::machine::{Machine, Stop};
use crate::message::{ClientId, Request, Response};
use crate::network::{Address, Link};
use crate::plan::{PARTITIONS, Plan};
use crate::producer::Producer;
use crate::start::{OFFSETS, OFFSETS_TOPIC, TOPIC};
use crate::syncs;
use crate::trace::Trace;

/// How long after the last fault everything must have come to rest.
const REST_MS: i64 = 60_000;
/// How long what nobody waits for stays unsynced.
const SYNC_DELAY_MS: i64 = 20;

#[derive(Debug)]
enum Event {
    ToBroker(Address, Request),
    ToClient(Address, Response),
    /// A client learns that its connection is gone.
    Disconnected {
        client: ClientId,
        link: u64,
    },
    Wake(ClientId),
    BeginSync(Urgency),
    RunSync,
    Checkpoint,
    Maintain,
    Stop,
    Start,
    BreakSyncs,
    Fill,
    MakeRoom,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// A digest of everything that happened: equal for equal seeds.
    pub trace: u64,
    /// How many events there were.
    pub events: u64,
    /// When it ended, on the simulated clock.
    pub ended: Timestamp,
    /// How often the broker was stopped, in whatever way.
    pub stops: u64,
    /// Records acknowledged with `acks=all`.
    pub acked: u64,
    /// How often the groups' partition was compacted.
    pub compactions: u64,
    /// How often a broker became the controller of several.
    pub controllers: u64,
    /// The first promise that did not hold.
    pub violation: Option<Violation>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outcome { trace, events, ended, stops, acked, compactions, controllers, .. } = self;
        write!(
            f,
            "{events} events in {ended} ms, {stops} stops, {compactions} compactions, \
             {controllers} controllers, {acked} acked, trace {trace:016x}"
        )
    }
}

/// Everything there is in a run.
#[derive(Debug)]
pub struct World {
    plan: Plan,
    random: Rng,
    now: Timestamp,
    /// By time, then in the order in which they were put there.
    queue: BTreeMap<(Timestamp, u64), Event>,
    queued: u64,
    events: u64,
    stops: u64,
    compactions: u64,
    trace: Trace,
    machine: Machine,
    controller: Controller,
    links: Vec<Link>,
    producers: Vec<Producer>,
    consumers: Vec<Consumer>,
    history: History,
    /// The most urgent round of syncs that is about to begin.
    sync_scheduled: Option<Urgency>,
    /// There is nothing more to learn from this run.
    is_over: bool,
}

impl World {
    /// A world before its first event.
    pub fn new(seed: u64, verbose: bool) -> World {
        let mut random = Rng::with_seed(seed);
        let plan = Plan::choose(&mut random);
        let now = Timestamp(0);
        let mut controller = Controller::new(now);
        controller.create_topic(now, TOPIC, PARTITIONS, 1);
        controller.create_topic(now, OFFSETS_TOPIC, 1, 2);
        let producers: Vec<_> =
            (0..plan.producers).map(|id| Producer::new(id, &plan, &mut random)).collect();
        let consumers = (0..plan.consumers).map(|i| Consumer::new(i == 0)).collect();
        let mut history = History::default();
        for (id, _) in producers.iter().enumerate().filter(|(_, p)| p.is_idempotent()) {
            history.idempotent(id);
        }
        let mut world = World {
            random,
            now,
            queue: BTreeMap::new(),
            queued: 0,
            events: 0,
            stops: 0,
            compactions: 0,
            trace: Trace::new(verbose),
            machine: Machine::new(&plan),
            controller,
            links: vec![Link::default(); plan.producers + plan.consumers],
            producers,
            consumers,
            history,
            sync_scheduled: None,
            is_over: false,
            plan,
        };
        world.trace.note(now, format_args!("{:?}", world.plan));
        world.schedule_beginning();
        world
    }

    fn schedule_beginning(&mut self) {
        self.schedule(0, Event::Start);
        for client in 0..self.links.len() {
            self.schedule(1, Event::Wake(client));
        }
        self.schedule(50, Event::Checkpoint);
        self.schedule(70, Event::Maintain);
        self.schedule_stop();
        if self.plan.syncs_fail {
            let at = self.random.i64(0..self.plan.faults_until_ms);
            self.schedule(at, Event::BreakSyncs);
        }
        if self.plan.disk_fills {
            let at = self.random.i64(0..self.plan.faults_until_ms);
            self.schedule(at, Event::Fill);
            self.schedule(at + 300, Event::MakeRoom);
        }
    }

    fn schedule(&mut self, after_ms: i64, event: Event) {
        self.queued += 1;
        self.queue.insert((self.now.plus_ms(after_ms), self.queued), event);
    }

    fn schedule_stop(&mut self) {
        if self.plan.crash_every_ms > 0 && self.has_faults() {
            let after = self.random.i64(1..2 * self.plan.crash_every_ms);
            self.schedule(after, Event::Stop);
        }
    }

    fn has_faults(&self) -> bool {
        self.now < Timestamp(self.plan.faults_until_ms)
    }

    /// Lets time pass until all is at rest or something is broken.
    pub fn run(mut self) -> Outcome {
        let mut violation = None;
        while let Some(((at, _), event)) = self.queue.pop_first() {
            assert!(at >= self.now, "time does not go back");
            self.now = at;
            self.events += 1;
            let result = self.happen(event).and_then(|()| self.check_progress());
            match result {
                Ok(true) => break,
                Ok(false) => {}
                Err((invariant, what)) => {
                    violation = Some(Violation { invariant, at, what });
                    break;
                }
            }
        }
        if violation.is_none()
            && !self.machine.is_betrayed
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
            compactions: self.compactions,
            controllers: 0,
            violation,
        };
        drop(self);
        syncs::assert_none_left();
        outcome
    }

    fn happen(&mut self, event: Event) -> Result<(), Broken> {
        match event {
            Event::ToBroker(from, request) => self.arrive_at_broker(from, request),
            Event::ToClient(to, response) => self.arrive_at_client(to, response)?,
            Event::Disconnected { client, link } => self.disconnected(client, link),
            Event::Wake(client) => self.wake(client),
            Event::BeginSync(urgency) => self.begin_sync(urgency),
            Event::RunSync => self.run_sync(),
            Event::Checkpoint => {
                self.machine.broker.iter_mut().for_each(|broker| broker.checkpoint());
                self.schedule(100, Event::Checkpoint);
            }
            Event::Maintain => {
                self.maintain();
                self.schedule(150, Event::Maintain);
            }
            Event::Stop => self.stop_somehow(),
            Event::Start => {
                self.start()?;
                // After a disk has lied, there is nothing left to hold anybody to.
                self.is_over |= self.machine.is_betrayed;
            }
            Event::BreakSyncs if self.has_faults() && self.random.bool() => {
                self.machine.break_syncs();
            }
            Event::BreakSyncs => self.machine.break_one_operation(&mut self.random),
            Event::Fill => self.machine.fill(),
            Event::MakeRoom => {
                self.machine.make_room();
                // Whatever failed for want of room works again after a restart.
                self.stop(Stop::Kill);
            }
        }
        self.let_broker_go_on();
        Ok(())
    }

    fn maintain(&mut self) {
        let Some(broker) = &mut self.machine.broker else { return };
        for (partition, log_start) in broker.maintain(self.now).into_iter().enumerate() {
            self.history.may_start_at(partition, log_start);
        }
        self.compactions += std::mem::take(&mut broker.compactions);
    }

    fn stop_somehow(&mut self) {
        let how = [Stop::PowerFailure, Stop::Kill, Stop::Clean][self.random.usize(0..3)];
        self.stop(how);
        self.schedule_stop();
    }

    fn stop(&mut self, how: Stop) {
        if self.machine.broker.is_none() {
            return;
        }
        self.trace.note(self.now, format_args!("stop: {how:?}"));
        self.stops += 1;
        self.machine.stop(how, &mut self.random);
        for client in 0..self.links.len() {
            self.disconnect(client);
        }
        let after = self.random.i64(1..400);
        self.schedule(after, Event::Start);
    }

    fn start(&mut self) -> Result<(), Broken> {
        if self.machine.broker.is_some() {
            return Ok(());
        }
        let started = self.machine.start(&mut self.controller, self.now, &mut self.random);
        self.trace.note(self.now, format_args!("start: {started:?}"));
        match started {
            Ok(true) if self.machine.is_betrayed => Ok(()),
            Ok(true) => self.check_recovered(),
            Ok(false) => {
                self.schedule(200, Event::Start);
                Ok(())
            }
            // A disk that lied has lost what was promised: to say so and not to start is right.
            Err(_) if self.machine.is_betrayed => Ok(()),
            Err(error) => Err((Invariant::BrokerStarts, error.to_string())),
        }
    }

    fn check_recovered(&mut self) -> Result<(), Broken> {
        let broker = self.machine.broker.as_ref().expect("it has just started");
        for partition in 0..=OFFSETS {
            let (log_end, log_start) = broker
                .partition(partition)
                .with_log(|log| (log.log_end_offset(), log.log_start_offset()));
            self.trace.note(self.now, format_args!("{partition}: {log_start} to {log_end}"));
            self.history.recovered(partition, log_end)?;
        }
        Ok(())
    }

    fn arrive_at_broker(&mut self, from: Address, request: Request) {
        if self.links[from.client].number != from.link {
            return;
        }
        match &mut self.machine.broker {
            Some(broker) => broker.receive(self.now, from, request),
            None => self.disconnect(from.client),
        }
    }

    /// Sends the answers that are ready, and sees to it that the flusher runs.
    fn let_broker_go_on(&mut self) {
        let Some(broker) = &mut self.machine.broker else { return };
        let leaving = broker.progress(self.now);
        if let Some(urgency) = broker.wants_sync()
            && self.sync_scheduled < Some(urgency)
        {
            self.sync_scheduled = Some(urgency);
            let after_ms = match urgency {
                Urgency::Now => 0,
                Urgency::Reader => 1,
                Urgency::Later => SYNC_DELAY_MS,
            };
            self.schedule(after_ms, Event::BeginSync(urgency));
        }
        if self.machine.broker.as_ref().is_some_and(|broker| broker.is_failed) {
            // The log directory is gone, and with it the broker; somebody looks after the machine.
            self.stop(Stop::Kill);
            return;
        }
        for (to, response) in leaving {
            if self.is_lost() {
                self.disconnect(to.client);
                continue;
            }
            let delay = self.random.i64(0..8);
            let at = self.links[to.client].reach_client(self.now, delay);
            self.schedule(at.ms_since(self.now), Event::ToClient(to, response));
        }
    }

    fn begin_sync(&mut self, urgency: Urgency) {
        self.sync_scheduled.take_if(|scheduled| *scheduled == urgency);
        let also_later = urgency == Urgency::Later;
        if self.machine.broker.as_mut().is_some_and(|broker| broker.begin_sync(also_later)) {
            self.go_on_syncing();
        }
    }

    fn go_on_syncing(&mut self) {
        let delay = self.random.i64(0..12);
        self.schedule(delay, Event::RunSync);
    }

    fn run_sync(&mut self) {
        let Some(broker) = &mut self.machine.broker else { return };
        let synced = broker.run_sync();
        if broker.is_syncing() {
            self.go_on_syncing();
        }
        if let Some((partition, synced)) = synced {
            self.trace.note(self.now, format_args!("{partition} is synced up to {synced}"));
            self.history.synced(partition, synced);
        }
    }

    fn is_lost(&mut self) -> bool {
        self.has_faults() && self.random.u32(0..1000) < self.plan.lost_per_mille
    }

    /// Breaks a connection; the client learns of it later.
    fn disconnect(&mut self, client: ClientId) {
        self.links[client].reset();
        let (after, link) = (self.random.i64(1..60), self.links[client].number);
        self.schedule(after, Event::Disconnected { client, link });
    }

    fn disconnected(&mut self, client: ClientId, link: u64) {
        if self.links[client].number == link {
            self.links[client].is_broken = false;
            match self.producers.get_mut(client) {
                Some(producer) => producer.disconnected(),
                None => self.consumers[client - self.plan.producers].disconnected(),
            }
        }
    }

    fn wake(&mut self, client: ClientId) {
        if !self.links[client].is_broken {
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
            if self.is_lost() {
                self.disconnect(client);
                break;
            }
            let delay = self.random.i64(0..8);
            let at = self.links[client].reach_broker(self.now, delay);
            let from = Address { client, link: self.links[client].number, request };
            self.schedule(at.ms_since(self.now), Event::ToBroker(from, body));
        }
    }

    fn arrive_at_client(&mut self, to: Address, response: Response) -> Result<(), Broken> {
        if self.links[to.client].number != to.link {
            return Ok(());
        }
        self.trace.note(self.now, format_args!("{to:?}: {}", summary(&response)));
        let result = match self.producers.get_mut(to.client) {
            Some(producer) => producer.receive(to.request, response, &mut self.history),
            None => {
                self.consumers[to.client - self.plan.producers].receive(response, &mut self.history)
            }
        };
        match result {
            Ok(true) => self.disconnect(to.client),
            Ok(false) => {}
            Err(broken) => return Err(broken),
        }
        Ok(())
    }

    /// Whether the run is over.
    fn check_progress(&mut self) -> Result<bool, Broken> {
        if self.is_over {
            return Ok(true);
        }
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
        let what = format!("producers {waiting:?} or a consumer are not done");
        Err((Invariant::EverybodyIsAnswered, what))
    }

    fn is_at_rest(&self) -> bool {
        let Some(broker) = &self.machine.broker else { return false };
        let ends = (0..PARTITIONS).map(|p| broker.partition(p).high_watermark());
        self.producers.iter().all(Producer::is_done)
            && ends.enumerate().all(|(partition, end)| {
                self.consumers.iter().all(|consumer| consumer.has_reached(partition, end))
            })
    }

    fn final_scan(&mut self) -> Result<(), Broken> {
        let broker = self.machine.broker.as_ref().expect("a world at rest has a broker");
        for partition in 0..PARTITIONS {
            let log = broker.partition(partition);
            let log_start = log.with_log(|log| log.log_start_offset());
            let records: Vec<(Offset, Vec<u8>)> = decode(
                &read_log(log).map_err(|error| (Invariant::AckedIsReadable, error.to_string()))?,
            );
            self.history.final_scan(partition, log_start, &records)?;
        }
        Ok(())
    }
}

/// An answer in a line.
fn summary(response: &Response) -> String {
    match response {
        Response::Fetched(Ok(fetched)) => {
            format!("fetched {} bytes, {}", fetched.bytes.len(), fetched.high_watermark)
        }
        other => format!("{other:?}"),
    }
}
