//! The facts beside the data: three machines with one partition's logs, which die, lose what was not
//! synced, or come back with another disk, and a leader that counts as leaders do. Whatever happens, a
//! replica that the facts call complete has everything that was acknowledged (R4, R12, KIP-966).
//!
//! Metadata arrives at once: what a leader does that has not heard of a newer leader epoch is the
//! subject of the simulator.

use crate::commands::World;
use metadata::PartitionImage;
use model::{BrokerEpoch, BrokerId, LeaderEpoch, PartitionIndex};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A record: the leader epoch in which it was appended, and what tells it from all others.
type Record = (i32, u32);

#[derive(Clone, Copy, Debug)]
enum Event {
    Produce,
    Sync(i32),
    /// A follower says how far it is, and copies what the leader has.
    Fetch(i32),
    /// The leader moves its high watermark.
    Commit,
    Expand(i32),
    Shrink(i32),
    /// The leader tells that all members have synced.
    TellDurable,
    Kill(i32),
    LosePower(i32),
    LoseDisk(i32),
    /// Its disk fails while it runs; what it holds is there again at the next start.
    FailDisk(i32),
    Stop(i32),
    Start {
        broker: i32,
        fenced: bool,
    },
    Fence(i32),
    Unfence(i32),
    BeginShutdown(i32),
    Sweep,
    Rule(&'static str),
}

#[derive(Default)]
struct Machine {
    runs: bool,
    /// Of its process, if it is registered.
    epoch: Option<BrokerEpoch>,
    processes: u32,
    disks: u32,
    stopped_cleanly: bool,
    /// Its disk failed; and whether it has left ISR and ELR for that.
    failed: bool,
    withdrawn: bool,
    log: Vec<Record>,
    synced: usize,
}

/// How far a follower said it was.
#[derive(Clone, Copy)]
struct Position {
    end: usize,
    epoch: BrokerEpoch,
    /// Whether it had synced that, by the rule of that time.
    synced: bool,
}

/// What a leader knows in one leader epoch.
struct Book {
    leader: i32,
    epoch: LeaderEpoch,
    start: usize,
    high_watermark: usize,
    positions: BTreeMap<i32, Position>,
}

struct Cluster {
    world: World,
    machines: BTreeMap<i32, Machine>,
    book: Option<Book>,
    acknowledged: Vec<Record>,
    produced: u32,
    /// Elections that were counted as unclean, and acknowledged records that they cost.
    unclean: usize,
    lost: usize,
}

impl Cluster {
    fn new(durability: &str, version: i32) -> Cluster {
        let mut world = World::default();
        world.quick = true;
        world.run("static min.insync.replicas=2");
        world.run(&format!("static durability={durability}"));
        world.run(&format!("cluster c version={version}"));
        let machines =
            (1..4).map(|id| (id, Machine { stopped_cleanly: true, ..Machine::default() }));
        let mut cluster = Cluster {
            world,
            machines: machines.collect(),
            book: None,
            acknowledged: Vec::new(),
            produced: 0,
            unclean: 0,
            lost: 0,
        };
        (1..4).for_each(|broker| cluster.start(broker, false));
        cluster.run("create t assign=0:1,2,3");
        cluster
    }

    fn state(&self) -> &PartitionImage {
        self.world.image.partition("t", PartitionIndex(0)).unwrap()
    }

    fn fsync(&self) -> bool {
        let statics = metadata::topic_config::StaticConfigs::new();
        let resolver = metadata::topic_config::Resolver::new(&self.world.image, &statics, None);
        resolver.settings("t").durability == model::Durability::Fsync
    }

    fn members_needed(&self) -> usize {
        let statics = metadata::topic_config::StaticConfigs::new();
        let resolver = metadata::topic_config::Resolver::new(&self.world.image, &statics, None);
        (resolver.settings("t").min_insync_replicas as usize).min(3)
    }

    fn registered(&self, id: i32) -> Option<BrokerEpoch> {
        self.world.image.broker(BrokerId(id)).map(|broker| broker.epoch)
    }

    /// Whether a process runs whose registration is the newest of its broker.
    fn serves(&self, id: i32) -> bool {
        let machine = &self.machines[&id];
        machine.runs && machine.epoch.is_some() && machine.epoch == self.registered(id)
    }

    /// Asks the controller; what it counts as unclean may cost acknowledged records.
    fn run(&mut self, command: &str) {
        self.world.run(command);
        if self.world.unclean.is_empty() || self.world.image.topic("t").is_none() {
            return;
        }
        self.unclean += self.world.unclean.len();
        let leader = &self.machines[&self.state().leader.0];
        let kept = if self.fsync() { leader.synced } else { leader.log.len() };
        let same = self.acknowledged.iter().zip(&leader.log[..kept]).take_while(|(a, b)| a == b);
        let kept = same.count();
        self.lost += self.acknowledged.len() - kept;
        self.acknowledged.truncate(kept);
    }

    /// The leader's book, if there is a leader that runs: a new one in every leader epoch.
    fn book(&mut self) -> Option<&mut Book> {
        let (leader, epoch) = (self.state().leader.0, self.state().leader_epoch);
        if leader < 0 || !self.serves(leader) || self.machines[&leader].failed {
            return None;
        }
        if self.book.as_ref().is_none_or(|b| (b.leader, b.epoch) != (leader, epoch)) {
            let log = &self.machines[&leader].log;
            let start = log.iter().position(|record| record.0 >= epoch.0).unwrap_or(log.len());
            let positions = BTreeMap::new();
            self.book = Some(Book { leader, epoch, start, high_watermark: 0, positions });
        }
        self.book.as_mut()
    }

    fn start(&mut self, id: i32, fenced: bool) {
        let machine = self.machines.get_mut(&id).unwrap();
        if machine.runs {
            return;
        }
        machine.processes += 1;
        let (process, dir) = (machine.processes, 100 * id + machine.disks as i32);
        let clean = machine.stopped_cleanly;
        let (before, alive) = (self.registered(id), self.world.image.is_active(BrokerId(id)));
        self.run(&format!(
            "register {id} process={process} dirs={dir} clean={clean} fenced={fenced} alive={alive}"
        ));
        let epoch = self.registered(id);
        if epoch == before {
            // Another disk, and the session lives: it waits.
            return;
        }
        let machine = self.machines.get_mut(&id).unwrap();
        (machine.runs, machine.stopped_cleanly, machine.epoch) = (true, false, epoch);
        (machine.failed, machine.withdrawn) = (false, false);
        self.book = self.book.take().filter(|book| book.leader != id);
    }

    fn end(&mut self, id: i32) -> &mut Machine {
        let machine = self.machines.get_mut(&id).unwrap();
        (machine.runs, machine.epoch) = (false, None);
        machine
    }

    fn fetch(&mut self, id: i32) {
        let (fsync, serves) = (self.fsync(), self.serves(id));
        let Some(leader) = self.book().map(|book| book.leader) else { return };
        if !serves || leader == id || self.machines[&id].failed {
            return;
        }
        let leaders = self.machines[&leader].log.clone();
        let follower = self.machines.get_mut(&id).unwrap();
        let log = &mut follower.log;
        let common = log.iter().zip(&leaders).take_while(|(mine, other)| mine.0 == other.0).count();
        assert_eq!(log[..common], leaders[..common], "two records at one offset of one epoch");
        log.truncate(common);
        follower.synced = if fsync { common } else { follower.synced.min(common) };
        let epoch = follower.epoch.expect("it serves");
        let position = Position { end: common, epoch, synced: follower.synced >= common };
        follower.log = leaders;
        self.book().expect("it was there").positions.insert(id, position);
    }

    /// How far every member of the ISR is, the leader too; `None` if that is not known of all.
    fn ends(&mut self) -> Option<Vec<(usize, bool)>> {
        let (isr, fsync) = (self.state().isr.clone(), self.fsync());
        let (leader, positions) = self.book().map(|book| (book.leader, book.positions.clone()))?;
        let own = &self.machines[&leader];
        let own_end = if fsync { own.synced } else { own.log.len() };
        let end = |id: &BrokerId| {
            if id.0 == leader {
                return Some((own_end, own.synced >= own_end));
            }
            let position = positions.get(&id.0)?;
            (Some(position.epoch) == self.registered(id.0))
                .then_some((position.end, position.synced))
        };
        isr.iter().map(end).collect()
    }

    fn commit(&mut self) {
        if self.state().isr.len() < self.members_needed() {
            return;
        }
        let Some(ends) = self.ends() else { return };
        let end = ends.iter().map(|(end, _)| *end).min().unwrap_or(0);
        let book = self.book().expect("a leader knows how far all are");
        book.high_watermark = book.high_watermark.max(end);
        let leader = book.leader;
        let log = &self.machines[&leader].log;
        let known = self.acknowledged.len().min(end);
        assert_eq!(log[..known], self.acknowledged[..known], "an acknowledged record is another");
        if end > known {
            self.acknowledged = log[..end].to_vec();
        }
    }

    fn alter(&mut self, isr: impl IntoIterator<Item = BrokerId>, durable: bool) {
        let leader = self.state().leader;
        let isr: Vec<String> = isr.into_iter().map(|id| id.to_string()).collect();
        self.run(&format!("isr {leader} t-0 isr={} durable={durable}", isr.join(",")));
    }

    fn expand(&mut self, id: i32) {
        let (durable, isr) = (self.state().durable, self.state().isr.clone());
        let epoch = self.registered(id);
        let Some(book) = self.book() else { return };
        let floor = book.high_watermark.max(book.start);
        let caught_up = book.positions.get(&id).is_some_and(|position| {
            let synced = position.synced || !durable;
            position.end >= floor && synced && Some(position.epoch) == epoch
        });
        if caught_up && !isr.contains(&BrokerId(id)) {
            self.alter(isr.into_iter().chain([BrokerId(id)]), false);
        }
    }

    fn shrink(&mut self, id: i32) {
        let isr = self.state().isr.clone();
        if self.book().is_some_and(|book| book.leader != id) {
            self.alter(isr.into_iter().filter(|member| member.0 != id), false);
        }
    }

    fn tell_durable(&mut self) {
        let isr = self.state().isr.clone();
        let Some(floor) = self.book().map(|book| book.high_watermark.max(book.start)) else {
            return;
        };
        let synced = |ends: Vec<(usize, bool)>| ends.iter().all(|end| end.0 >= floor && end.1);
        if self.ends().is_some_and(synced) {
            self.alter(isr, true);
        }
    }

    fn step(&mut self, event: Event) {
        match event {
            Event::Produce => {
                let value = self.produced;
                let Some((leader, epoch)) = self.book().map(|book| (book.leader, book.epoch))
                else {
                    return;
                };
                self.machines.get_mut(&leader).unwrap().log.push((epoch.0, value));
                self.produced += 1;
            }
            Event::Sync(id) => {
                let machine = self.machines.get_mut(&id).unwrap();
                if machine.runs && !machine.failed {
                    machine.synced = machine.log.len();
                }
            }
            Event::Fetch(id) => self.fetch(id),
            Event::Commit => self.commit(),
            Event::Expand(id) => self.expand(id),
            Event::Shrink(id) => self.shrink(id),
            Event::TellDurable => self.tell_durable(),
            Event::Kill(id) if self.machines[&id].runs => self.end(id).stopped_cleanly = false,
            Event::LosePower(id) => {
                let machine = self.end(id);
                machine.log.truncate(machine.synced);
            }
            Event::LoseDisk(id) if !self.machines[&id].runs => {
                let machine = self.end(id);
                machine.disks += 1;
                machine.log.clear();
                // A first start is clean.
                (machine.synced, machine.stopped_cleanly) = (0, true);
            }
            Event::FailDisk(id) if self.serves(id) => self.fail_disk(id),
            Event::Stop(id) if self.machines[&id].runs => {
                if self.serves(id) {
                    self.run(&format!("fence {id}"));
                }
                let machine = self.end(id);
                if !machine.failed {
                    machine.synced = machine.log.len();
                }
                machine.stopped_cleanly = !machine.failed;
            }
            Event::Start { broker, fenced } => self.start(broker, fenced),
            Event::Fence(id) => self.run(&format!("fence {id}")),
            Event::Unfence(id) if self.serves(id) => self.run(&format!("unfence {id}")),
            Event::BeginShutdown(id) if self.serves(id) => self.run(&format!("shutdown {id}")),
            Event::Sweep => self.run("sweep"),
            Event::Rule(rule) => self.run(&format!("incr {rule}")),
            _ => {}
        }
    }

    fn fail_disk(&mut self, id: i32) {
        self.machines.get_mut(&id).unwrap().failed = true;
        let was = self.state().is_complete(BrokerId(id));
        self.run(&format!("give-up {id} t-0 offline"));
        let is = self.state().is_complete(BrokerId(id));
        self.machines.get_mut(&id).unwrap().withdrawn |= was && !is;
    }

    /// Whoever is complete and serves has everything that was acknowledged; and no leader takes in again what has left with
    /// its disk, though it knows how far that was.
    fn check(&self) -> Result<(), TestCaseError> {
        for (id, machine) in &self.machines {
            let is_member =
                self.state().isr.contains(&BrokerId(*id)) && self.state().leader.0 != *id;
            let is_back = machine.withdrawn && self.serves(*id) && is_member;
            prop_assert!(!is_back, "{} is out of reach, and in sync: {:?}", id, self.state());
            if !self.state().is_complete(BrokerId(*id)) || !self.serves(*id) {
                continue;
            }
            let count = self.acknowledged.len();
            let has = machine.log.len() >= count && machine.log[..count] == self.acknowledged[..];
            prop_assert!(has, "{} lacks acknowledged records: {:?}", id, self.state());
        }
        Ok(())
    }

    /// All end at once, and come back in this order.
    fn recover(&mut self, order: &[i32], end: fn(i32) -> Event) {
        order.iter().for_each(|id| self.step(end(*id)));
        order.iter().for_each(|id| self.start(*id, false));
        self.run("sweep");
    }
}

/// What happens, without what costs more than the process.
fn deaths() -> impl Strategy<Value = Event> {
    let broker = 1..4;
    prop_oneof![
        6 => Just(Event::Produce),
        3 => broker.clone().prop_map(Event::Sync),
        14 => broker.clone().prop_map(Event::Fetch),
        8 => Just(Event::Commit),
        8 => broker.clone().prop_map(Event::Expand),
        2 => broker.clone().prop_map(Event::Shrink),
        2 => Just(Event::TellDurable),
        3 => broker.clone().prop_map(Event::Kill),
        2 => broker.clone().prop_map(Event::Stop),
        8 => (broker.clone(), any::<bool>())
            .prop_map(|(broker, fenced)| Event::Start { broker, fenced }),
        3 => broker.clone().prop_map(Event::Fence),
        6 => broker.clone().prop_map(Event::Unfence),
        1 => broker.prop_map(Event::BeginShutdown),
        6 => Just(Event::Sweep),
    ]
}

fn with_power_losses() -> impl Strategy<Value = Event> {
    prop_oneof![12 => deaths(), 1 => (1..4).prop_map(Event::LosePower)]
}

fn with_everything() -> impl Strategy<Value = Event> {
    let rule = prop::sample::select(vec![
        "brokers set min.insync.replicas=1",
        "brokers set min.insync.replicas=2",
        "brokers set min.insync.replicas=3",
        "topic:t set durability=page-cache",
        "topic:t set durability=fsync",
        "topic:t delete durability",
        "topic:t set unclean.leader.election.enable=true",
        "topic:t delete unclean.leader.election.enable",
    ]);
    prop_oneof![
        20 => with_power_losses(),
        1 => (1..4).prop_map(Event::LoseDisk),
        1 => (1..4).prop_map(Event::FailDisk),
        1 => rule.prop_map(Event::Rule),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn who_is_called_complete_has_what_was_acknowledged(
        durability in prop::sample::select(vec!["fsync", "page-cache"]),
        version in 1..3,
        events in prop::collection::vec(with_everything(), 1..300),
    ) {
        let mut cluster = Cluster::new(durability, version);
        for event in events {
            cluster.step(event);
            cluster.check()?;
        }
    }

    #[test]
    fn processes_that_die_cost_nothing_whatever_the_durability(
        durability in prop::sample::select(vec!["fsync", "page-cache"]),
        events in prop::collection::vec(deaths(), 1..300),
        order in Just(vec![1, 2, 3]).prop_shuffle(),
    ) {
        let mut cluster = Cluster::new(durability, 2);
        for event in events {
            cluster.step(event);
            cluster.check()?;
        }
        cluster.recover(&order, Event::Kill);
        cluster.check()?;
        prop_assert_eq!(cluster.lost, 0);
        prop_assert!(cluster.state().has_leader(), "{:?}", cluster.state());
    }

    #[test]
    fn what_is_synced_outlives_any_loss_of_power(
        events in prop::collection::vec(with_power_losses(), 1..300),
        order in Just(vec![1, 2, 3]).prop_shuffle(),
    ) {
        let mut cluster = Cluster::new("fsync", 2);
        for event in events {
            cluster.step(event);
            cluster.check()?;
        }
        cluster.recover(&order, Event::LosePower);
        cluster.check()?;
        prop_assert_eq!((cluster.unclean, cluster.lost), (0, 0));
        prop_assert!(cluster.state().has_leader(), "{:?}", cluster.state());
    }
}
