//! Log directories that are copied at any moment and put back at any later one.
//!
//! A copy is taken while its broker runs or after the broker ended, and is put back when a process of the broker ends. A replica in
//! such a directory lacks what was acknowledged since, and the controller may count it as complete. It may lead only if no other
//! complete replica could be reached while the election waited.

use fastrand::Rng;
use model::{BrokerId, Durability, Timestamp};
use storage::disk::SimDisk;

use super::deletions::Deletions;
use super::elections::ENDS_WAIT_MS;
use super::plan::ClusterPlan;
use super::{Cluster, Event, Process, id_of, number_of};
use crate::history::Broken;
use crate::invariant::Invariant;
use crate::machine::Stop;
use crate::message::PartitionId;
use crate::plan::PARTITIONS;
use crate::start::{TOPIC_ID, noted_processes};

/// A broker that has been connected, awake and unfenced for so long has answered a request for log ends, in milliseconds.
const REACHED_AFTER_MS: i64 = 250;
/// A copy is replaced by a newer one at one of so many moments, so that some are of earlier processes.
const COPIES_KEPT: u8 = 4;
/// With one of so many copies that are put back all processes die.
const TOTAL_OUTAGES: u8 = 3;
/// Tells these random numbers from those of the same seed that all else is made of.
const OWN_NUMBERS: u64 = 0xc0f1e5;

/// When directories are copied, and the random numbers for it: none is taken from those that the rest of a run is made of.
#[derive(Debug)]
pub(super) struct Copies {
    random: Rng,
    /// The mean time between two copies, or between two that are put back; 0 for none.
    every_ms: i64,
    /// Since when the committed metadata has had an election by log ends, by partition.
    pending_since: [Option<Timestamp>; PARTITIONS],
}

/// The copy of a broker's directory, and what else is known of the directories of one machine.
#[derive(Debug, Default)]
pub(super) struct CopiedDirectory {
    copy: Option<SimDisk>,
    /// The directory was put back from a copy of the process that was registered last, and some replica that counts may lack acknowledged records.
    pub(super) is_stale: bool,
    /// Since when the machine has been connected, awake, and its broker unfenced.
    reachable_since: Option<Timestamp>,
}

impl Copies {
    pub(super) fn new(seed: u64, plan: &ClusterPlan, deletions: &Deletions) -> Copies {
        let mut random = Rng::with_seed(seed ^ OWN_NUMBERS);
        let every_ms = [0, 60, 150, 400][random.usize(0..4)];
        // What a copy lacks is on another replica only if at least two were asked for; see the plan. What was deleted is in a
        // copy, and comes back with it.
        let is_raised = plan.version >= metadata::record::COPIES_LEVEL;
        let costs = is_raised
            && plan.min_insync == 2
            && plan.configure_every_ms == 0
            && plan.durability == Durability::Fsync
            && !deletions.is_any();
        let pending_since = [None; PARTITIONS];
        Copies { random, every_ms: if costs { every_ms } else { 0 }, pending_since }
    }

    /// No directory is copied.
    pub(super) fn none() -> Copies {
        Copies { random: Rng::with_seed(0), every_ms: 0, pending_since: [None; PARTITIONS] }
    }
}

impl Cluster {
    pub(super) fn schedule_copy(&mut self) {
        let every = self.copies.every_ms;
        if every > 0 && self.has_faults() {
            let after = self.copies.random.i64(1..2 * every);
            self.schedule(after, Event::Copy);
        }
    }

    /// Copies the directory of one broker, or puts a copy back.
    pub(super) fn copy(&mut self) {
        self.schedule_copy();
        let broker = self.copies.random.usize(0..self.members.len());
        let is_put_back = self.copies.random.bool() && self.may_lose(broker);
        let is_kept = self.copies.random.u8(0..COPIES_KEPT) > 0;
        let registered = self.truth.image.broker(id_of(broker)).map(|known| known.incarnation);
        let member = &mut self.members[broker];
        if let Some(copy) = member.copied.copy.take_if(|_| is_put_back) {
            // A copy of an earlier process is recognised.
            let is_alike = registered.is_some_and(|it| noted_processes(&copy).contains(&it));
            self.trace.note(self.now, format_args!("{broker}: a copy is put back"));
            self.stop(broker, Stop::Kill);
            let member = &mut self.members[broker];
            member.disk = copy;
            (member.has_lost, member.copied.is_stale) = (true, is_alike);
            if self.copies.random.u8(0..TOTAL_OUTAGES) == 0 {
                (0..self.members.len()).for_each(|other| self.stop(other, Stop::Kill));
            }
        } else if !(member.lies
            || member.copied.is_stale
            || member.has_lost
            || is_kept && member.copied.copy.is_some())
        {
            member.copied.copy = Some(member.disk.snapshot());
            self.trace.note(self.now, format_args!("{broker} is copied"));
        }
    }

    /// A broker with a directory that was put back is like any other as soon as each of its replicas has all acknowledged records
    /// on its device, or counts nowhere.
    pub(super) fn notice_caught_up(&mut self, process: Process) {
        let member = &self.members[process.broker];
        if !member.copied.is_stale || member.has_lost {
            return;
        }
        let Some(broker) = &member.broker else { return };
        let id = id_of(process.broker);
        let images = self.possible_images();
        let counts = |at: PartitionId| {
            let state = |image| super::broker::state_of(image, TOPIC_ID, at);
            images.iter().filter_map(state).any(|state| state.is_complete(id))
        };
        let has_all =
            |at: PartitionId| broker.partition(at).synced_end().1 >= self.history.acked_end(at);
        if (0..PARTITIONS).all(|at| has_all(at) || !counts(at)) {
            self.members[process.broker].copied.is_stale = false;
            self.trace.note(self.now, format_args!("{process:?} has everything again"));
        }
    }

    /// Takes note of the machines that a controller can reach. While a way is cut or a machine pauses, no machine counts as reachable:
    /// the controller may be concerned.
    pub(super) fn notice_reachable(&mut self) {
        if self.copies.every_ms == 0 {
            return;
        }
        let now = self.now;
        let is_cut =
            self.cuts.is_any(now) || (0..self.members.len()).any(|number| self.is_paused(number));
        for number in 0..self.members.len() {
            let is_up = self.truth.image.is_active(id_of(number));
            let member = &mut self.members[number];
            let is_reachable = is_up && member.broker.is_some() && !is_cut;
            let since = &mut member.copied.reachable_since;
            *since = if is_reachable { Some(since.unwrap_or(now)) } else { None };
        }
    }

    /// A request for log ends was not answered in time: the network is at fault.
    pub(super) fn note_unanswered(&mut self, broker: usize) {
        self.members[broker].copied.reachable_since = None;
    }

    /// Takes note of partitions that wait for log ends by the committed metadata.
    pub(super) fn notice_pending(&mut self) {
        if self.copies.every_ms == 0 {
            return;
        }
        let pending = self.truth.image.pending_elections();
        for at in 0..PARTITIONS {
            let is_pending = pending.iter().any(|of| of.partition.0 as usize == at);
            let since = &mut self.copies.pending_since[at];
            *since = if is_pending { Some(since.unwrap_or(self.now)) } else { None };
        }
    }

    /// A replica that was put back from a copy is elected cleanly. Acknowledged records
    /// may be gone only if the election has waited, and no other complete replica was reachable meanwhile.
    pub(super) fn check_copy_elected(
        &mut self,
        at: PartitionId,
        old: &metadata::PartitionImage,
        leader: BrokerId,
    ) -> Result<(), Broken> {
        let Some(broker) = &self.members[number_of(leader)].broker else { return Ok(()) };
        let end = broker.partition(at).with_log(|log| log.log_end_offset());
        let acked = self.history.acked_end(at);
        if end >= acked || self.truth.forgiven[at] {
            return Ok(());
        }
        let since = self.copies.pending_since[at];
        let has_waited = since.is_some_and(|since| self.now.ms_since(since) >= ENDS_WAIT_MS);
        let others = old.replicas.iter().filter(|id| **id != leader && old.is_complete(**id));
        for other in others {
            let member = &self.members[number_of(*other)];
            let is_reached = member
                .copied
                .reachable_since
                .is_some_and(|since| self.now.ms_since(since) >= REACHED_AFTER_MS);
            let serves = |broker: &super::ClusterBroker| !broker.out_of_reach.contains(&at);
            let has_more = member.broker.as_ref().is_none_or(|broker| {
                broker.partition(at).with_log(|log| log.log_end_offset()) > end && serves(broker)
            });
            if has_more && !member.copied.is_stale && (is_reached || !has_waited) {
                let what = format!(
                    "the copy at {leader} leads {at}, ends at {end}, {acked} is acknowledged, and {other} is complete: {old:?}"
                );
                return Err((Invariant::LeaderIsComplete, what));
            }
        }
        self.trace.note(self.now, format_args!("{at}: only a copy could be reached: {leader}"));
        self.truth.forgiven[at] = true;
        self.history.forgive(at);
        Ok(())
    }
}
