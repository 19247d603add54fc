//! A producer against simulated brokers: the product's own batches, queues, sender and requests, one
//! seed, simulated time. No test here waits for a real clock.
#![cfg(test)]

mod cluster;

use super::batch::{Delivery, Undelivered};
use super::numbering::Identity;
use super::queue::TopicQueues;
use super::sender::Sender;
use super::{ProducerConfig, Record, clock};
use crate::cluster::{Cluster, ClusterConfig};
use cluster::{Faults, Habits, Shared as SharedWorld, Simulated, Time, World};
use model::{Offset, ProducerEpoch, ProducerId};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

const MS: Time = 1_000;
const SECOND: Time = 1_000 * MS;
/// Longest wait of a record of an untroubled partition.
const CALM_LATENCY_MAX: Time = 60 * MS;

/// The identity that producers start with.
const FIRST: Identity = (ProducerId(7), ProducerEpoch(0));

/// One record of the load.
struct Sent {
    topic: usize,
    partition: i32,
    value: String,
    taken_at: Time,
    ended_at: Option<Time>,
    delivery: Delivery,
}

impl Sent {
    fn outcome(&self) -> Result<Option<Offset>, Undelivered> {
        let known = self.delivery.known().expect("all records have ended");
        known.map(|(offset, _)| offset)
    }
}

/// Records of one partition.
#[derive(Clone, Copy)]
struct Load {
    topic: usize,
    partition: i32,
    records: u32,
    /// Records that are sometimes taken at once.
    burst_max: u32,
    /// Longest pause between records or bursts.
    pause_max: Time,
}

/// A simulated run.
struct Run {
    world: SharedWorld,
    shared: Arc<super::Shared>,
    sender: Sender<Simulated>,
    started: Instant,
    sent: Vec<Sent>,
    /// Places in `sent` of the records that have not ended.
    open: Vec<usize>,
    /// What comes next of each load, and how many records are left.
    loads: Vec<(Load, Time, u32)>,
}

impl Run {
    fn new(
        seed: u64,
        config: ProducerConfig,
        identity: Identity,
        brokers: &[Faults],
        habits: Habits,
    ) -> Run {
        fastrand::seed(seed);
        let started = Instant::now();
        clock::simulate(Some(started));
        let cluster = Cluster::new(ClusterConfig::new("none"));
        let timeout = config.request_timeout;
        let world = World::new(seed, cluster.clone(), brokers, habits, timeout);
        let world = Rc::new(RefCell::new(world));
        let shared = Arc::new(super::Shared::new(cluster, config, identity, None));
        let sender = Sender::new(shared.clone(), Simulated(world.clone()), started);
        Run {
            world,
            shared,
            sender,
            started,
            sent: Vec::new(),
            open: Vec::new(),
            loads: Vec::new(),
        }
    }

    fn add_topic(&mut self, name: &'static str, leaders: &[i32], faults: Faults) {
        self.world.borrow_mut().add_topic(name, leaders, faults);
    }

    fn add_load(&mut self, load: Load) {
        self.loads.push((load, 0, load.records));
    }

    fn instant(&self) -> Instant {
        self.started + Duration::from_micros(self.world.borrow().now)
    }

    fn queues(&self, topic: usize) -> Arc<TopicQueues> {
        let name = self.world.borrow().topics[topic].name;
        let mut topics = self.shared.topics.write().unwrap();
        let new = || {
            let known = self.shared.cluster.metadata().topics[name].clone();
            Arc::new(TopicQueues::new(&known, self.shared.cluster.lease(name), &self.shared))
        };
        topics.entry(name.to_owned()).or_insert_with(new).clone()
    }

    /// Takes the records of the load that are due.
    fn take_records(&mut self) {
        let now = self.world.borrow().now;
        for at in 0..self.loads.len() {
            while self.loads[at].2 > 0 && self.loads[at].1 <= now {
                let load = self.loads[at].0;
                let (burst, pause) = {
                    let rng = &mut self.world.borrow_mut().rng;
                    let burst = if rng.u32(..10) == 0 { load.burst_max } else { 1 };
                    (burst.min(self.loads[at].2), rng.u64(..=load.pause_max))
                };
                for _ in 0..burst {
                    self.take_record(load, load.records - self.loads[at].2);
                    self.loads[at].2 -= 1;
                }
                self.loads[at].1 = now + pause;
            }
        }
    }

    fn take_record(&mut self, load: Load, number: u32) {
        let (topic, partition) = (load.topic, load.partition);
        let value = {
            let world = &mut *self.world.borrow_mut();
            world.under_way[topic] += 1;
            let topic = &world.topics[topic];
            let kind = if world.rng.u32(..100) < topic.faults.bad_record { "bad" } else { "good" };
            format!("{} {partition} {number} {kind}", topic.name)
        };
        let record = Record { partition: Some(partition), ..Record::value(value.as_bytes()) };
        let queues = self.queues(topic);
        let delivery = queues.append(&self.shared, &record).unwrap().expect("memory");
        let taken_at = self.world.borrow().now;
        self.open.push(self.sent.len());
        self.sent.push(Sent { topic, partition, value, taken_at, ended_at: None, delivery });
    }

    /// Lets everything happen that is due, and then the sender decide.
    fn turn(&mut self) {
        let now = self.instant();
        clock::simulate(Some(now));
        self.take_records();
        while self.world.borrow().has_due() {
            let event = self.world.borrow_mut().step();
            if let Some(event) = event {
                self.sender.take(event, now);
                // The sender takes all events that have come, or is run between two of them.
                if self.world.borrow_mut().rng.u32(..4) == 0 {
                    self.sender.pass(now);
                }
            }
        }
        let forgotten = std::mem::take(&mut self.world.borrow_mut().to_forget);
        for topic in forgotten {
            self.shared.forget(self.world.borrow().topics[topic].name);
        }
        assert!(self.sender.pass(now), "the producer is not closed");
        self.note_ends();
    }

    fn note_ends(&mut self) {
        let world = &mut *self.world.borrow_mut();
        let sent = &mut self.sent;
        self.open.retain(|at| {
            let is_done = sent[*at].delivery.is_done();
            if is_done {
                sent[*at].ended_at = Some(world.now);
                world.under_way[sent[*at].topic] -= 1;
            }
            !is_done
        });
    }

    /// Runs until all records have ended. Fails if that takes until `limit`.
    fn run(&mut self, limit: Time) {
        self.world.borrow_mut().start();
        loop {
            self.turn();
            if self.open.is_empty() && self.loads.iter().all(|load| load.2 == 0) {
                return;
            }
            let world = &mut *self.world.borrow_mut();
            let wake = self
                .sender
                .wake_at()
                .map(|at| at.saturating_duration_since(self.started).as_micros() as Time + 1);
            let load = self.loads.iter().filter(|load| load.2 > 0).map(|load| load.1).min();
            let next = [wake, load, world.next_time()].into_iter().flatten().min();
            world.now = next.expect("something is due").max(world.now);
            assert!(world.now < limit, "records have not ended: {:?}", self.open());
        }
    }

    fn open(&self) -> Vec<&str> {
        self.open.iter().map(|at| self.sent[*at].value.as_str()).collect()
    }

    /// What the logs must be like after the run.
    fn check_logs(&self) {
        let world = self.world.borrow();
        let mut places: HashMap<&str, Vec<(usize, i64)>> = HashMap::new();
        for (t, topic) in world.topics.iter().enumerate() {
            let deleted = topic.deleted.iter().map(|(_, log)| log);
            for (number, log) in topic.logs.iter().chain(deleted).enumerate() {
                for (offset, value) in log.values().enumerate() {
                    let place = (1_000 * t + number, offset as i64);
                    let known = places.entry(value).or_default();
                    let is_twice = known.iter().any(|(log, _)| *log == place.0);
                    assert!(!is_twice, "{value} is in a log twice: {known:?} {place:?}");
                    known.push(place);
                }
            }
        }
        let mut last: HashMap<(usize, i32, usize), i64> = HashMap::new();
        for sent in &self.sent {
            let found = places.get(&*sent.value).map_or(&[][..], |found| &found[..]);
            match sent.outcome() {
                Ok(offset) => {
                    assert!(!found.is_empty(), "{} was acknowledged and is lost", sent.value);
                    assert!(!sent.value.contains("bad"), "{}", sent.value);
                    // Deleted with its topic, it may have been appended to the next one as well.
                    let Some(offset) = offset else { continue };
                    let at = found.iter().find(|(_, at)| *at == offset.0);
                    let (log, at) = at.unwrap_or_else(|| panic!("{}: {found:?}", sent.value));
                    let before = last.insert((sent.topic, sent.partition, *log), *at);
                    assert!(before < Some(*at), "{} is out of order", sent.value);
                }
                Err(lost) => assert!(
                    lost.maybe_written || found.is_empty(),
                    "{} was reported as not written: {found:?} {lost:?}",
                    sent.value
                ),
            }
        }
    }

    /// The longest time from taking a record of this partition to its end.
    fn latency(&self, topic: usize, partition: i32) -> Time {
        let of = self.sent.iter().filter(|s| (s.topic, s.partition) == (topic, partition));
        of.map(|s| s.ended_at.expect("it has ended") - s.taken_at).max().unwrap_or(0)
    }

    fn acknowledged(&self, topic: usize) -> usize {
        let of = self.sent.iter().filter(|sent| sent.topic == topic);
        of.filter(|sent| sent.outcome().is_ok()).count()
    }

    fn ids_requested(&self) -> u64 {
        self.world.borrow().ids_requested
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        clock::simulate(None);
    }
}

fn config() -> ProducerConfig {
    ProducerConfig {
        linger: Duration::ZERO,
        batch_bytes: 200,
        request_timeout: Duration::from_millis(500),
        delivery_timeout: Duration::from_secs(3),
        retry_backoff: Duration::from_millis(10),
        ..ProducerConfig::default()
    }
}

const HABITS: Habits = Habits { knows_unknown: false, names_bad: true, bytes_max: 1 << 20 };

/// A run in which a topic of several partitions has all faults, and another one has none: its broker
/// answers, and its records are good.
fn troubled(seed: u64) -> Run {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut pick = |from: &[u32]| from[rng.usize(..from.len())];
    let rough_brokers = Faults {
        lost_request: pick(&[0, 3, 10]),
        lost_answer: pick(&[0, 3, 10]),
        hung: pick(&[0, 0, 1]),
        ..Faults::default()
    };
    let rough = Faults {
        refused: pick(&[0, 5, 20]),
        unsure: pick(&[0, 3, 15]),
        bad_record: pick(&[0, 5, 30]),
        moved: pick(&[0, 1, 5]),
        recreated: pick(&[0, 0, 0, 1]),
        expired: pick(&[0, 10]),
        forgotten: pick(&[0, 10]),
        ..Faults::default()
    };
    let habits = Habits {
        knows_unknown: pick(&[0, 0, 1]) == 1,
        names_bad: pick(&[0, 1]) == 1,
        bytes_max: pick(&[150, 1 << 20]) as usize,
    };
    let config = ProducerConfig {
        partition_in_flight_max: pick(&[1, 2, 5]) as usize,
        linger: Duration::from_millis(u64::from(pick(&[0, 5]))),
        delivery_timeout: Duration::from_millis(u64::from(pick(&[600, 3_000]))),
        ..config()
    };
    let epoch = if pick(&[0, 1]) == 1 { i16::MAX - 2 } else { 0 };
    let identity = (FIRST.0, ProducerEpoch(epoch));
    let brokers = [Faults::default(), rough_brokers, rough_brokers];
    let mut run = Run::new(seed, config, identity, &brokers, habits);
    run.add_topic("calm", &[0], Faults::default());
    run.add_topic("rough", &[1, 2, 1], rough);
    run.world.borrow_mut().calm_from = 4 * SECOND;
    run.add_load(Load { topic: 0, partition: 0, records: 150, burst_max: 1, pause_max: 60 * MS });
    for partition in 0..3 {
        let (burst_max, pause_max) = (pick(&[1, 30]), Time::from(pick(&[20, 60])) * MS);
        run.add_load(Load { topic: 1, partition, records: 120, burst_max, pause_max });
    }
    run.run(30 * SECOND);
    run
}

/// Seeds of one test run; `PRODUCER_SEEDS=from..to` has others.
fn seeds() -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("PRODUCER_SEEDS") else { return 0..150 };
    let ends = text.split_once("..").expect("PRODUCER_SEEDS is from..to");
    ends.0.parse().expect("a number")..ends.1.parse().expect("a number")
}

#[test]
fn a_record_is_in_a_log_once_at_most_and_once_if_it_was_acknowledged() {
    let (mut acknowledged, mut ids, mut duplicates, mut out_of_order) = (0, 0, 0, 0);
    for seed in seeds() {
        let run = std::panic::catch_unwind(|| {
            let run = troubled(seed);
            run.check_logs();
            let latency = run.latency(0, 0);
            assert!(latency < CALM_LATENCY_MAX, "the calm partition waited {latency} us");
            assert_eq!(run.acknowledged(0), 150);
            let world = run.world.borrow();
            (run.acknowledged(1) as u64, world.ids_requested, world.duplicates, world.out_of_order)
        });
        let counts = run.unwrap_or_else(|_| panic!("seed {seed}"));
        acknowledged += counts.0;
        ids += counts.1;
        duplicates += counts.2;
        out_of_order += counts.3;
    }
    let count = seeds().count() as u64;
    assert!(acknowledged > 100 * count, "{acknowledged}: the faults leave no room");
    assert!(duplicates > count && out_of_order > count, "{duplicates} {out_of_order}: too calm");
    assert!(ids > count / 10, "{ids}: no epoch was used up");
}

/// Two partitions with loads, of which `other` has a fault; their brokers, by partition.
fn pair(config: ProducerConfig, leaders: [i32; 2], other: Faults) -> Run {
    let mut run = Run::new(1, config, FIRST, &[Faults::default(); 2], HABITS);
    run.add_topic("good", &[leaders[0]], Faults::default());
    run.add_topic("other", &[leaders[1]], other);
    run.add_load(Load { topic: 0, partition: 0, records: 2_000, burst_max: 1, pause_max: 5 * MS });
    run.add_load(Load { topic: 1, partition: 0, records: 2_000, burst_max: 1, pause_max: 5 * MS });
    run
}

#[test]
fn refused_records_cost_other_partitions_no_time_and_the_producer_no_identity() {
    for leaders in [[0, 0], [0, 1]] {
        for partition_in_flight_max in [1, 5] {
            let config = ProducerConfig { partition_in_flight_max, ..config() };
            let mut run = pair(config, leaders, Faults { bad_record: 50, ..Faults::default() });
            run.run(60 * SECOND);
            run.check_logs();
            assert_eq!(run.acknowledged(0), 2_000);
            assert!(run.acknowledged(1) > 800, "{}", run.acknowledged(1));
            let latency = run.latency(0, 0);
            assert!(latency < 20 * MS, "{leaders:?}: waited {latency} us");
            assert_eq!(run.ids_requested(), 0);
            let identity = super::lock(&run.shared.identities).current();
            assert_eq!(identity, FIRST, "no epoch was used up");
        }
    }
}

#[test]
fn a_broker_that_never_answers_costs_partitions_of_other_brokers_no_time() {
    let config = ProducerConfig { delivery_timeout: Duration::from_secs(2), ..config() };
    let mut run = pair(config, [0, 1], Faults { bad_record: 50, ..Faults::default() });
    run.world.borrow_mut().hang(1);
    run.run(60 * SECOND);
    run.check_logs();
    assert_eq!((run.acknowledged(0), run.acknowledged(1)), (2_000, 0));
    let latency = run.latency(0, 0);
    assert!(latency < 20 * MS, "waited {latency} us");
}

#[test]
fn a_partition_that_waits_for_a_producer_id_holds_up_no_other() {
    let config = ProducerConfig { delivery_timeout: Duration::from_millis(600), ..config() };
    let identity = (FIRST.0, ProducerEpoch(i16::MAX));
    let mut run = Run::new(1, config, identity, &[Faults::default(); 2], HABITS);
    run.add_topic("good", &[0], Faults::default());
    // Batches that may be appended are given up, and each time the partition needs another identity.
    run.add_topic("other", &[1], Faults { unsure: 98, ..Faults::default() });
    run.add_load(Load { topic: 0, partition: 0, records: 2_000, burst_max: 1, pause_max: 5 * MS });
    run.add_load(Load { topic: 1, partition: 0, records: 500, burst_max: 1, pause_max: 20 * MS });
    run.run(60 * SECOND);
    run.check_logs();
    assert!(run.ids_requested() > 0, "the epochs were used up");
    assert_eq!(run.acknowledged(0), 2_000);
    let latency = run.latency(0, 0);
    assert!(latency < 20 * MS, "waited {latency} us");
}
