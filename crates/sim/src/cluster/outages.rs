//! Outages of all brokers, with log directories that are put back from copies at the moment that costs most.
//!
//! *An old leader*: a copy of one running disk is put back when all processes die. The other replicas of one partition stay away for longer
//! than an election waits, so the copy is elected, and lacks acknowledged records. The intact replicas return afterwards: their leader
//! requires a truncation below the offsets that they knew to be committed before their restart.
//!
//! *Copies alone*: every disk is put back from a copy of an earlier process, each of another moment. No complete replica is left, and a
//! person elects the greatest (`operator.rs`).

use std::ops::Range;

use fastrand::Rng;
use model::{BrokerId, Durability};

use super::elections::ENDS_WAIT_MS;
use super::folders::MachineDisk;
use super::member::directory_of;
use super::plan::ClusterPlan;
use super::{Cluster, Event, VOTERS, id_of, number_of};
use crate::machine::Stop;
use crate::start::{noted_processes, read_mark};

/// Time at which an outage begins, in milliseconds: brokers are registered, and producers have not sent all their records.
const BEGINS_MS: Range<i64> = 100..500;
/// Time within which the others come up again, in milliseconds: as after any stop.
const STARTED_MS_MAX: i64 = 900;
/// Time that a controller, its sweep and the sessions of the dead brokers take, at most, in milliseconds.
const DECIDED_MS_MAX: i64 = 1_500;
/// Time within which all disks are copied, in milliseconds.
const COPIED_MS: i64 = 400;
/// Batches of each producer: some are sent after the copy.
const BATCHES: u32 = 60;
/// Voters of a majority.
const MAJORITY: usize = VOTERS / 2 + 1;
/// Tells these random numbers from those of the same seed that all else is made of.
const OWN_NUMBERS: u64 = 0x07a6e5;

/// One step of an outage.
#[derive(Clone, Copy, Debug)]
pub(super) enum OutageStep {
    /// A disk is copied: any, or that of one machine.
    CopyDisk(Option<usize>),
    /// All processes die, and others take their places.
    RestartAll,
    /// All processes die, and copies are put back.
    PutBack,
}

/// The outage of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutageKind {
    /// A copy is put back, and an intact replica comes up after it was elected.
    OldLeader,
    /// All disks are put back from copies of earlier processes.
    AllCopies,
}

/// The disk of a machine, as it was.
#[derive(Debug)]
struct DiskCopy {
    broker: usize,
    /// Number of the disk that was copied.
    disks: u64,
    disk: MachineDisk,
}

/// The outage of a run, and the random numbers for it: none is taken from those that the rest of a run is made of.
#[derive(Debug)]
pub(super) struct Outages {
    random: Rng,
    kind: Option<OutageKind>,
    copies: Vec<DiskCopy>,
    /// All disks were put back from copies.
    are_all_copies: bool,
}

impl Outages {
    /// Chooses the outage of a run. For the first kind the plan becomes one in which a copy may be elected: with two in-sync replicas
    /// the records that the copy lacks are on the other replica, and a majority of the voters has no replica of the partition.
    pub(super) fn new(seed: u64, plan: &mut ClusterPlan) -> Outages {
        let mut random = Rng::with_seed(seed ^ OWN_NUMBERS);
        // No unclean election happens without a person.
        let may_be_copied = plan.version >= metadata::record::COPIES_LEVEL
            && plan.durability == Durability::Fsync
            && !plan.unclean;
        let kind = match random.u8(0..16) {
            0 => Some(OutageKind::OldLeader),
            1..5 if may_be_copied => Some(OutageKind::AllCopies),
            _ => None,
        };
        if kind == Some(OutageKind::OldLeader) {
            *plan = ClusterPlan {
                version: metadata::record::COPIES_LEVEL,
                durability: Durability::Fsync,
                unclean: false,
                replicas: 2,
                min_insync: 2,
                configure_every_ms: 0,
                losses_per_mille: 0,
                failures_per_mille: 0,
                stop_every_ms: 0,
                batches: BATCHES,
                ..plan.clone()
            };
        }
        Outages { random, kind, copies: Vec::new(), are_all_copies: false }
    }

    /// No outage.
    pub(super) fn none() -> Outages {
        let random = Rng::with_seed(0);
        Outages { random, kind: None, copies: Vec::new(), are_all_copies: false }
    }

    /// Whether there is an outage in this run.
    pub(super) fn is_any(&self) -> bool {
        self.kind.is_some()
    }

    /// Whether all disks were put back from copies.
    pub(super) fn are_all_copies(&self) -> bool {
        self.are_all_copies
    }
}

impl Cluster {
    pub(super) fn schedule_outage(&mut self) {
        let Some(kind) = self.outages.kind else { return };
        let begins = self.outages.random.i64(BEGINS_MS);
        match kind {
            OutageKind::OldLeader => {
                self.schedule(begins, Event::Outage(OutageStep::CopyDisk(None)));
            }
            OutageKind::AllCopies => {
                for broker in 0..self.members.len() {
                    let after = begins + self.outages.random.i64(0..COPIED_MS);
                    self.schedule(after, Event::Outage(OutageStep::CopyDisk(Some(broker))));
                }
                let restarted = begins + COPIED_MS;
                self.schedule(restarted, Event::Outage(OutageStep::RestartAll));
                let after = self.outages.random.i64(STARTED_MS_MAX..2 * STARTED_MS_MAX);
                self.schedule(restarted + after, Event::Outage(OutageStep::PutBack));
            }
        }
    }

    pub(super) fn outage(&mut self, step: OutageStep) {
        match step {
            OutageStep::CopyDisk(Some(broker)) => _ = self.copy_disk(broker),
            OutageStep::CopyDisk(None) => {
                let after = self.outages.random.i64(100..500);
                let Some(broker) = self.choose_complete() else { return };
                if self.copy_disk(broker) {
                    self.schedule(after, Event::Outage(OutageStep::PutBack));
                }
            }
            OutageStep::RestartAll => self.stop_all(),
            OutageStep::PutBack if self.outages.kind == Some(OutageKind::AllCopies) => {
                self.put_back_all();
            }
            OutageStep::PutBack => self.put_back_alone(),
        }
    }

    /// A machine with a complete replica.
    fn choose_complete(&mut self) -> Option<usize> {
        let states = self.partitions().filter_map(|at| self.state_of(at));
        let complete = states.flat_map(|state| state.isr.iter().map(|id| number_of(*id)));
        let complete: Vec<usize> = complete.collect();
        self.outages.random.choice(complete)
    }

    fn stop_all(&mut self) {
        (0..self.members.len()).for_each(|broker| self.stop(broker, Stop::Kill));
    }

    /// Copies the disk of a broker that runs, unless its disk lies or lacks records itself.
    fn copy_disk(&mut self, broker: usize) -> bool {
        let member = &self.members[broker];
        if member.broker.is_none() || member.lies || member.has_lost || member.copied.is_stale {
            return false;
        }
        let (disks, disk) = (member.disks, member.disk.snapshot());
        self.outages.copies.push(DiskCopy { broker, disks, disk });
        self.trace.note(self.now, format_args!("{broker} is copied for an outage"));
        true
    }

    /// All processes die. The machine that was copied has its copy, and comes up with the machines that have no replica of one of its
    /// partitions.
    fn put_back_alone(&mut self) {
        let Some(DiskCopy { broker, disks, disk }) = self.outages.copies.pop() else { return };
        let id = id_of(broker);
        let directory = directory_of(id, disks);
        let is_same_disk = self.members[broker].disks == disks && !self.members[broker].lies;
        let registered = self.truth.image.broker(id).map(|known| known.incarnation);
        // A copy that is recognised is not elected.
        let is_alike = registered.is_some_and(|it| noted_processes(&disk).contains(&it))
            && read_mark(&disk) >= self.truth.image.directory_mark(id, directory);
        let is_possible = self.has_faults() && is_same_disk && is_alike && self.may_lose(broker);
        let Some(away) = self.others_of_a_partition(id).filter(|_| is_possible) else { return };
        self.trace.note(self.now, format_args!("{broker}: a copy is put back, without {away:?}"));
        self.stop_all();
        let away_ms = STARTED_MS_MAX + DECIDED_MS_MAX + ENDS_WAIT_MS;
        for other in away {
            self.members[other].away_until = self.now.plus_ms(away_ms);
        }
        let member = &mut self.members[broker];
        member.disk = disk;
        (member.has_lost, member.copied.is_stale, member.copied.is_put_back) = (true, true, true);
        member.copied.is_from_copy = true;
    }

    /// The machines with the other replicas of a partition of which this broker has a complete one, if the quorum can do without them.
    fn others_of_a_partition(&mut self, id: BrokerId) -> Option<Vec<usize>> {
        let mut partitions: Vec<_> = self.partitions().collect();
        self.outages.random.shuffle(&mut partitions);
        let mut others = partitions.into_iter().filter_map(|at| {
            let state = self.state_of(at).filter(|state| state.is_complete(id))?;
            let others = state.replicas.iter().filter(|other| **other != id);
            let others: Vec<usize> = others.map(|other| number_of(*other)).collect();
            let voters = (0..VOTERS).filter(|voter| !others.contains(voter)).count();
            (voters >= MAJORITY).then_some(others)
        });
        others.next()
    }

    /// All processes die, and each machine has its copy. Acknowledged records are gone.
    fn put_back_all(&mut self) {
        let copies = std::mem::take(&mut self.outages.copies);
        let is_same_disk = |copy: &DiskCopy| {
            let member = &self.members[copy.broker];
            member.disks == copy.disks && !member.lies && !member.has_lost
        };
        let is_possible = copies.len() == self.members.len() && copies.iter().all(is_same_disk);
        if !is_possible || !self.has_faults() {
            return;
        }
        self.trace.note(self.now, format_args!("all disks are put back from copies"));
        self.stop_all();
        self.outages.are_all_copies = true;
        for at in self.partitions() {
            self.truth.forgiven.insert(at);
            self.history.forgive(at);
        }
        for DiskCopy { broker, disk, .. } in copies {
            let member = &mut self.members[broker];
            member.disk = disk;
            (member.has_lost, member.copied.is_put_back) = (true, true);
        }
    }
}
