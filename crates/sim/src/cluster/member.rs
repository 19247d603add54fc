//! A machine of the cluster and its broker's life: started, registered, ready to serve, stopped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use metadata::ClusterImage;
use metadata::decide::{
    BrokerRef, EmptyReplicas2, GiveUpReplicas, KnownDirectories, KnownDirectory, RegisterBroker,
    RegisterBroker2,
};
use model::{BrokerEpoch, BrokerId, Timestamp, TopicId, Uuid};
use node::Key;
use partition::Urgency;

use super::CopiedDirectory;
use super::broker::ClusterBroker;
use super::clocks::Clocks;
use super::control::Active;
use super::controller::{Ask, Told};
use super::directories::second_directory_of;
use super::folders::MachineDisk;
use super::quorum;
use super::sick::SickEvent;
use super::topics::{TopicIncarnation, key_of, partitions_in};
use super::{Cluster, Event, Process, TICK_MS, id_of};
use crate::controller::CLUSTER_ID;
use crate::history::Broken;
use crate::invariant::Invariant;
use crate::machine::Stop;
use crate::message::PartitionId;
use crate::plan::PARTITIONS;
use crate::start::{self, LOG_DIR};

/// How long a broker that is about to stop waits for others to lead in its place.
const SHUTDOWN_MS: i64 = 400;

/// A machine and its broker's process, if one runs.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) disk: MachineDisk,
    /// How many disks it had before this one.
    pub(super) disks: u64,
    /// What this disk held after an earlier clean stop.
    pub(super) copy: Option<MachineDisk>,
    pub(super) copied: CopiedDirectory,
    /// No process was ever started on this disk.
    pub(super) is_new: bool,
    /// The last process started without the second log directory, and the controller does not know yet that it is back.
    pub(super) lacks_second: bool,
    pub(super) broker: Option<ClusterBroker>,
    pub(super) incarnation: u64,
    /// What its replicas had is lost, or some of it, and the controller does not know yet.
    pub(super) has_lost: bool,
    /// The last time at which it lost something.
    pub(super) lost_at: Option<Timestamp>,
    /// Its disk says it has synced and has not.
    pub(super) lies: bool,
    /// Its disk lied until its power failed.
    pub(super) lied: bool,
    /// A disk failed, and the broker has said so, or does yet: the controller gives the replica up if it takes another one
    /// for complete.
    pub(super) may_give_up: bool,
    /// Its part in the quorum, whose log lies on a disk that is never lost.
    pub(super) node: quorum::Node,
    /// The controller, while this node leads the metadata log.
    pub(super) active: Option<Active>,
    /// What the committed entries say, and how many there are.
    pub(super) image: Arc<ClusterImage>,
    pub(super) applied: usize,
    /// Topics that these entries delete. Each process applies the whole log, because the simulation has no snapshots.
    pub(super) deleted: BTreeSet<TopicId>,
    pub(super) clocks: Clocks,
    /// No process starts before.
    pub(super) away_until: Timestamp,
    /// It does nothing before.
    pub(super) paused_until: Timestamp,
    /// When its broker was asked to stop.
    pub(super) stopping_since: Option<Timestamp>,
    pub(super) sync_scheduled: Option<Urgency>,
    /// The number of the fetch that waits for an answer, by leader.
    pub(super) asking: BTreeMap<usize, u64>,
    /// The number of the last AlterPartition.
    pub(super) altering: BTreeMap<Key, u64>,
}

impl Member {
    /// A machine with an empty log directory, or with two.
    pub(super) fn new(node: quorum::Node, has_second: bool) -> Member {
        Member {
            disk: MachineDisk::new(has_second),
            disks: 0,
            copy: None,
            copied: CopiedDirectory::default(),
            is_new: true,
            lacks_second: false,
            broker: None,
            incarnation: 0,
            has_lost: false,
            lost_at: None,
            lies: false,
            lied: false,
            may_give_up: false,
            node,
            active: None,
            image: Arc::default(),
            applied: 0,
            deleted: BTreeSet::new(),
            clocks: Clocks::default(),
            away_until: Timestamp(0),
            paused_until: Timestamp(0),
            stopping_since: None,
            sync_scheduled: None,
            asking: BTreeMap::new(),
            altering: BTreeMap::new(),
        }
    }

    /// Another disk in the place of the one that it had.
    pub(super) fn replace_disk(&mut self, has_second: bool) {
        self.disk = MachineDisk::new(has_second);
        self.copied.is_from_copy = false;
        self.disks += 1;
        self.copy = None;
        self.copied = CopiedDirectory::default();
        self.is_new = true;
    }
}

/// How a process of a broker registers.
pub(super) fn registration(
    id: BrokerId,
    incarnation: u64,
    log_dirs: Vec<Uuid>,
    clean: bool,
    fenced: bool,
    directories: KnownDirectories,
) -> RegisterBroker2 {
    let register = RegisterBroker {
        broker: id,
        incarnation: incarnation_of(id, incarnation),
        cluster_id: CLUSTER_ID.to_owned(),
        endpoints: Vec::new(),
        rack: None,
        log_dirs,
        clean,
        fenced,
        earlier_incarnation_alive: false,
    };
    RegisterBroker2 { register, directories }
}

/// The id of a broker's log directory, on the disk of this number.
pub(super) fn directory_of(id: BrokerId, disks: u64) -> Uuid {
    Uuid::from_random([(id.0 as u64 + 16 * disks) as u8; 16])
}

pub(super) fn incarnation_of(id: BrokerId, incarnation: u64) -> Uuid {
    let mut random = [id.0 as u8; 16];
    random[..8].copy_from_slice(&incarnation.to_be_bytes());
    Uuid::from_random(random)
}

impl Cluster {
    /// The broker, if it is still this process.
    pub(super) fn running(&mut self, process: Process) -> Option<&mut ClusterBroker> {
        let member = &mut self.members[process.broker];
        member.broker.as_mut().filter(|_| member.incarnation == process.incarnation)
    }

    /// Makes the logs of all partitions on a new machine, as the topic's creation did.
    pub(super) fn prepare(&mut self, broker: usize) -> Result<(), Broken> {
        self.open(broker)?;
        // As which it was registered when the cluster was founded.
        let member = &mut self.members[broker];
        let process = member.broker.as_mut().expect("it was just opened");
        process.epoch = BrokerEpoch(broker as i64);
        let first = incarnation_of(id_of(broker), 0);
        process.log_dirs.join_process(&member.disk, first);
        start::join_process(&member.disk, LOG_DIR, first);
        self.end(broker, Stop::Clean);
        Ok(())
    }

    fn open(&mut self, broker: usize) -> Result<(), Broken> {
        self.begin_clocks(broker);
        let clock = self.wall_of(broker);
        let second = self.choose_second_directory(broker);
        let member = &mut self.members[broker];
        let lied = std::mem::take(&mut member.lied);
        let retention_bytes = self.deletions.retention_bytes;
        let at_first = match (member.is_new, member.incarnation) {
            (true, 0) => TopicIncarnation::FIRST.partitions(PARTITIONS),
            (true, _) => partitions_in(&member.image),
            (false, _) => 0..0,
        };
        let (disk, id, plan) = (&member.disk, id_of(broker), &self.plan);
        let opened =
            ClusterBroker::open((disk, second), id, at_first, plan, retention_bytes, clock, lied);
        let mut opened = opened.map_err(|error| (Invariant::BrokerStarts, error.to_string()))?;
        if std::mem::take(&mut member.is_new) {
            // A first start is clean, and lacks nothing: that the disk is another one, its id says.
            opened.was_clean = true;
            opened.made_anew.clear();
        }
        member.incarnation += 1;
        let process = incarnation_of(id_of(broker), member.incarnation);
        opened.had_by = start::begin_process(&member.disk, LOG_DIR, process);
        opened.log_dirs.begin_process(&member.disk, process);
        member.copied.open(&member.disk);
        member.broker = Some(opened);
        member.stopping_since = None;
        member.asking.clear();
        member.altering.clear();
        member.sync_scheduled = None;
        member.paused_until = self.now;
        member.node.restart(self.now, &mut self.random);
        self.truth.forget_logs_of(broker);
        Ok(())
    }

    pub(super) fn start(&mut self, broker: usize) -> Result<(), Broken> {
        if self.members[broker].broker.is_some() {
            return Ok(());
        }
        let away_ms = self.members[broker].away_until.ms_since(self.now);
        if away_ms > 0 {
            self.schedule(away_ms, Event::Start(broker));
            return Ok(());
        }
        self.open(broker)?;
        let process = self.process(broker);
        let opened = self.members[broker].broker.as_ref().expect("it was just opened");
        let (clean, made_anew) = (opened.was_clean, &opened.made_anew);
        let ends: Vec<_> = opened.partitions.keys().map(|at| opened.log_end(*at)).collect();
        self.trace.note(
            self.now,
            format_args!("{process:?} starts, clean: {clean}, made anew: {made_anew:?}, {ends:?}"),
        );
        self.note_second_directory(process)?;
        let after = self.random.i64(0..8);
        self.schedule(after, Event::Tick(process));
        self.schedule(after, Event::QuorumTick(process));
        if self.sick.is_some() {
            self.schedule(after, Event::Sick(SickEvent::Observe(process)));
        }
        Ok(())
    }

    pub(super) fn tick(&mut self, process: Process) {
        let (now, clock) = (self.moment_of(process.broker), self.wall_of(process.broker));
        let (disks, fences) = (self.members[process.broker].disks, self.plan.version > 0);
        let stopping_since = self.members[process.broker].stopping_since;
        let known = self.members[process.broker].image.broker(id_of(process.broker));
        let last = known.map(|known| known.epoch);
        let detects = self.plan.version >= metadata::record::COPIES_LEVEL;
        let directory = directory_of(id_of(process.broker), disks);
        let second_directory = second_directory_of(id_of(process.broker), disks);
        let away = self.report_away(process.broker);
        let mark = self.members[process.broker].copied.mark.reported();
        let Some(broker) = self.running(process) else { return };
        broker.tick(now, clock);
        let (id, epoch) = (broker.id, broker.epoch);
        let who = BrokerRef { broker: id, epoch };
        let mut asks = Vec::new();
        if epoch.0 < 0 && away.is_some() {
            asks.extend(away);
        } else if epoch.0 < 0 {
            let (stopped, had_by) = (broker.stopped_in, broker.had_by.clone());
            let second = broker.log_dirs.known_second();
            let mut log_dirs = vec![directory];
            log_dirs.extend(second.as_ref().map(|_| second_directory));
            let marks = detects.then(|| [mark, 0][..log_dirs.len()].to_vec());
            let directories = [KnownDirectory { stopped, had_by }].into_iter().chain(second);
            let directories =
                KnownDirectories { directories: directories.collect(), instead_of: last };
            let clean = broker.was_clean;
            let of = registration(id, process.incarnation, log_dirs, clean, fences, directories);
            asks.push(Ask::Register(of, marks));
        } else {
            let is_ready = broker.is_ready();
            let marks = detects.then_some((directory, mark));
            let marks = marks.into_iter().collect();
            asks.push(Ask::Heartbeat { who, is_ready, marks });
            let mut partitions = broker.counted_anew();
            partitions.extend(broker.made_again());
            if !partitions.is_empty() {
                asks.push(Ask::ReportEmpty(EmptyReplicas2 { broker: who, partitions }));
            }
            let lost = broker.to_give_up();
            if !lost.is_empty() {
                let lost = lost.into_iter().map(key_of);
                let partitions = lost.map(|key| (key.topic_id, key.partition)).collect();
                asks.push(Ask::GiveUp(GiveUpReplicas { broker: who, partitions, offline: true }));
            }
            if stopping_since.is_some() {
                asks.push(Ask::BeginShutdown(who));
            }
            asks.extend(self.report_missing(process.broker, who));
        }
        for ask in asks {
            self.ask_controller(process, ask);
        }
        self.schedule(TICK_MS, Event::Tick(process));
        self.notice_caught_up(process);
        self.stop_if_done(process.broker);
    }

    /// Stops a broker that others lead in the place of.
    fn stop_if_done(&mut self, number: usize) {
        let member = &self.members[number];
        let (Some(since), Some(broker)) = (member.stopping_since, &member.broker) else { return };
        let late = self.now.ms_since(since) > SHUTDOWN_MS;
        if late || broker.has_handed_over() {
            self.stop(number, Stop::Clean);
        }
    }

    /// The controller's answer.
    pub(super) fn told(&mut self, process: Process, count: usize, told: Told) {
        let Some(broker) = self.running(process) else { return };
        match told {
            Told::Registered(epoch) => {
                broker.epoch = broker.epoch.max(epoch);
                let joined = incarnation_of(broker.id, process.incarnation);
                // The product's journal has room of its own; here the disk gets some.
                self.make_room(process.broker);
                let member = &self.members[process.broker];
                start::join_process(&member.disk, LOG_DIR, joined);
                let broker = member.broker.as_ref().expect("it was just registered");
                broker.log_dirs.join_process(&member.disk, joined);
            }
            Told::MissingReported(of) => {
                match of.epoch == broker.epoch {
                    true => broker.missing_reported = true,
                    false => broker.away_reported = Some(of.epoch),
                }
                return;
            }
            Told::TakenForAnother => {
                let what = format!("{process:?} has the lock of its predecessor, and must wait");
                broker.broken = Some((0, (Invariant::RestartsAtOnce, what)));
            }
            Told::Altered(wish, answer) => broker.isr_answered(count, wish, answer),
            Told::Relieved => return self.relieved(process.broker),
            Told::Heard(answer) => return self.heard_controller(process.broker, &answer),
            Told::Nothing => return,
        }
        self.schedule_soon(Event::Image(process));
    }

    /// Ends a broker's process. A folder that it lacked is made only when the replica counts nowhere any more: the next
    /// process would take it for the old one, and an empty replica would count. Here it is taken away again.
    pub(super) fn end(&mut self, broker: usize, how: Stop) {
        self.write_out(broker);
        self.make_room(broker);
        let member = &mut self.members[broker];
        let running = member.broker.take();
        member.active = None;
        let is_open = |broker: &ClusterBroker, at: &PartitionId| broker.partition(*at).is_some();
        let unreported: Vec<PartitionId> = running.as_ref().map_or(Vec::new(), |broker| {
            broker.made_anew.iter().copied().filter(|at| is_open(broker, at)).collect()
        });
        match (how, running) {
            (Stop::Clean, Some(running)) if running.out_of_reach.is_empty() => {
                running.stop_cleanly().expect("a healthy disk lets a broker stop");
                if self.plan.losses_per_mille > 0 && self.random.u8(0..3) == 0 {
                    member.copy = Some(member.disk.snapshot());
                }
            }
            (Stop::PowerFailure, running) => {
                drop(running);
                member.disk = member.disk.after_crash(self.random.u64(..));
            }
            (_, running) => drop(running),
        }
        unreported.into_iter().for_each(|at| start::remove_folder(&member.disk, at));
    }
}
