//! Sick log directories of this broker: directories whose writes or syncs hang, and full ones.
//!
//! The rule is `node::disks`. A broker with a sick directory requests relief of the replicas there, and reports the ages of
//! its operations in answers to the controller's probes. Nothing here waits for a device or for the lock of a partition.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use metadata::decide::{BrokerRef, RelieveReplicas};
use metadata::{Request, Response};
use model::Moment;
use node::disks::{DirectoryCondition, DirectoryHealth, ReliefRound, reported_hang_ms};
use node::elections::NamedPartition;
use node::pauses::PauseClock;
use node::probes::ProbeReport;
use parking_lot::Mutex;
use storage::disk::{Disk as _, OperationAges, TimedDisk};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::{debug, info, warn};

use crate::logs::{Directory, Logs};
use crate::server::Server;

/// How often the directories are observed.
const OBSERVED_EVERY: Duration = Duration::from_millis(100);
/// Time between two observations from which the later one is late.
const OBSERVED_LATE: Duration = Duration::from_millis(400);
/// Time between two requests for relief, and the longest that one may take.
const REQUESTED_EVERY: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(2);

/// Age of the last write or sync that ended up to which a directory needs no proof.
const PROVED_FOR: Duration = Duration::from_millis(100);
/// File that is written as a proof.
const PROOF: &str = ".highwater-disk-proof";

/// Conditions of the log directories.
#[derive(Debug)]
pub struct SickDisks {
    logs: Arc<Logs>,
    /// By directory, in the order of [`Logs::directories`].
    ages: Vec<Arc<OperationAges>>,
    /// By directory: whether a proof is being written.
    proofs: Vec<Arc<AtomicBool>>,
    disk: TimedDisk,
    courses: Mutex<Vec<DirectoryCourse>>,
    observed_at: Mutex<Option<Moment>>,
    /// Time zero of `pauses`.
    started: Instant,
    /// Pauses of the process, ticked by the control thread with each observation.
    pauses: Mutex<PauseClock>,
}

#[derive(Debug, Default)]
struct DirectoryCourse {
    health: DirectoryHealth,
    condition: Option<DirectoryCondition>,
}

impl SickDisks {
    /// Directories of `logs`, whose files were opened on `disk`.
    pub fn new(disk: &TimedDisk, logs: &Arc<Logs>) -> SickDisks {
        let ages_of = |directory: &Directory| disk.ages_in(directory.path()).unwrap_or_default();
        let ages: Vec<_> = logs.directories().map(ages_of).collect();
        let courses = ages.iter().map(|_| DirectoryCourse::default()).collect();
        SickDisks {
            logs: Arc::clone(logs),
            proofs: ages.iter().map(|_| Arc::default()).collect(),
            ages,
            disk: disk.clone(),
            courses: Mutex::new(courses),
            observed_at: Mutex::default(),
            started: Instant::now(),
            pauses: Mutex::default(),
        }
    }

    /// Age of the oldest unfinished write or sync in the directory of this number.
    pub fn oldest_operation(&self, directory: usize) -> Duration {
        self.ages[directory].oldest()
    }

    /// Age of the oldest unfinished write in the directory of this number; syncs do not count.
    pub fn oldest_write(&self, directory: usize) -> Duration {
        self.ages[directory].oldest_write()
    }

    /// Condition of the directory of this number, as last observed.
    pub fn condition(&self, directory: usize) -> DirectoryCondition {
        self.courses.lock()[directory].condition.unwrap_or(DirectoryCondition::Healthy)
    }

    /// For each partition, whether this broker takes its leadership back: the replica is open in a directory that is neither sick
    /// nor on probation.
    pub(super) fn takes_back(&self, partitions: &[NamedPartition]) -> Vec<bool> {
        let is_healthy = |at: &usize| self.condition(*at) == DirectoryCondition::Healthy;
        let healthy: Vec<usize> = (0..self.ages.len()).filter(is_healthy).collect();
        let there: BTreeSet<NamedPartition> =
            self.logs.partitions_in(&healthy).into_iter().collect();
        partitions.iter().map(|partition| there.contains(partition)).collect()
    }

    /// Report to the active controller.
    pub(crate) fn report(&self) -> ProbeReport {
        let is_healthy = |course: &DirectoryCourse| {
            course.condition.is_none_or(|it| it == DirectoryCondition::Healthy)
        };
        let declines_leaderships = !self.courses.lock().iter().all(is_healthy);
        let used = || self.directories().filter(|(_, directory)| !directory.is_offline());
        ProbeReport {
            oldest_operation: used()
                .map(|(at, _)| self.ages[at].oldest())
                .max()
                .unwrap_or_default(),
            last_ended: used().map(|(at, _)| self.ages[at].last_ended()).max().unwrap_or_default(),
            lacks_room: used().any(|(_, directory)| directory.room().is_full()),
            declines_leaderships,
            pauses: self.pauses.lock().recent(self.elapsed()),
        }
    }

    /// Time of this process, on the clock of its pauses.
    fn elapsed(&self) -> Moment {
        Moment::START.plus(self.started.elapsed())
    }

    /// Writes a small file to each directory in which no write or sync ended lately: the active controller demands a proof
    /// that its device works. At most one such write is under way in a directory.
    pub(crate) fn prove(&self) {
        for (at, directory) in self.directories().filter(|(_, it)| !it.is_offline()) {
            let (ages, proof) = (&self.ages[at], &self.proofs[at]);
            let is_idle = ages.last_ended() >= PROVED_FOR && ages.oldest().is_zero();
            if !is_idle || proof.swap(true, Ordering::Relaxed) {
                continue;
            }
            let (disk, proof) = (self.disk.clone(), Arc::clone(proof));
            let path = directory.path().join(PROOF);
            let write = move || {
                // A failure shows in the age of the last write that ended, or in the next append.
                // Other bytes each time: a sync of an unchanged file reaches no device.
                let bytes = fastrand::u64(..).to_be_bytes();
                if let Err(error) = disk.write_synced(&path, &bytes) {
                    debug!(path = %path.display(), %error, "cannot write a proof of a working disk");
                }
                proof.store(false, Ordering::Relaxed);
            };
            drop(tokio::task::spawn_blocking(write));
        }
    }

    fn directories(&self) -> impl Iterator<Item = (usize, &Directory)> {
        self.logs.directories().enumerate()
    }

    /// Observes all directories. Returns the numbers of the sick ones. A late observation returns none: the process stood
    /// still, and its operations with it.
    fn observe(&self, now: Moment) -> Vec<usize> {
        let before = self.observed_at.lock().replace(now);
        if before.is_some_and(|before| now.since(before) > OBSERVED_LATE) {
            return Vec::new();
        }
        let mut courses = self.courses.lock();
        let mut sick = Vec::new();
        for (at, directory) in self.directories().filter(|(_, it)| !it.is_offline()) {
            let (age, is_full) = (self.ages[at].oldest(), directory.room().is_full());
            let condition = courses[at].health.observe(now, age, is_full);
            let before = courses[at].condition.replace(condition);
            if condition == DirectoryCondition::Sick {
                sick.push(at);
            }
            if before.is_some_and(|before| before != condition) {
                note_change(directory, condition, age, is_full);
            }
        }
        sick
    }

    /// Other brokers took over replicas in these directories.
    fn relieved(&self, now: Moment, sick: &[usize]) {
        let mut courses = self.courses.lock();
        sick.iter().for_each(|at| courses[*at].health.relieved(now));
    }
}

fn note_change(directory: &Directory, condition: DirectoryCondition, age: Duration, is_full: bool) {
    let directory = directory.path().display();
    let age_ms = age.as_millis() as u64;
    match condition {
        DirectoryCondition::Sick => warn!(
            %directory,
            age_ms,
            is_full,
            "log directory is sick: in-sync brokers with healthy disks take over its replicas"
        ),
        DirectoryCondition::OnProbation => {
            info!(%directory, "log directory is healthy again: preferred leaderships return later");
        }
        DirectoryCondition::Healthy => info!(%directory, "log directory stayed healthy"),
    }
}

/// Requests relief of replicas in sick directories until the broker stops.
pub(super) async fn run(server: Arc<Server>, disks: Arc<SickDisks>, who: BrokerRef) {
    let mut ticks = interval(OBSERVED_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut next = Instant::now();
    let mut round = ReliefRound::default();
    loop {
        ticks.tick().await;
        disks.pauses.lock().tick(disks.elapsed());
        let sick = disks.observe(server.clock.moment());
        if sick.is_empty() || server.is_stopping() {
            continue;
        }
        if !round.has_more() && Instant::now() < next {
            continue;
        }
        let there = server.logs.partitions_in(&sick);
        let partitions = round.next_request(&server.image(), who.broker, there);
        if !partitions.is_empty() {
            next = Instant::now() + REQUESTED_EVERY;
            let hung = sick.iter().map(|at| disks.oldest_operation(*at)).max();
            let hung_ms = reported_hang_ms(hung.unwrap_or_default());
            let (partitions, healthy) = (Some(partitions), Vec::new());
            let relief = RelieveReplicas { broker: who, partitions, healthy, hung_ms };
            tokio::spawn(relieve(Arc::clone(&server), relief, sick));
        }
    }
}

async fn relieve(server: Arc<Server>, relief: RelieveReplicas, sick: Vec<usize>) {
    let request = Request::RelieveReplicas(relief);
    match server.controller.decide_within(request, PATIENCE).await {
        Ok((_, Response::EmptyReplicas(Ok(changed)))) if !changed.is_empty() => {
            server.sick_disks.relieved(server.clock.moment(), &sick);
            warn!(
                partitions = changed.len(),
                "other brokers replace replicas in sick log directories"
            );
        }
        Ok((_, Response::EmptyReplicas(Err(refusal)))) => {
            debug!(reason = refusal.message, "relief was refused");
        }
        Ok(_) => {}
        Err(cause) => debug!(%cause, "relief was not decided"),
    }
}
