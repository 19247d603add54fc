//! Log directories that are copied at any moment and put back at any later one.
//!
//! A copy is taken while its broker runs or after the broker ended, and is put back when a process of the broker ends. A replica in
//! such a directory lacks what was acknowledged since, and the controller may count it as complete. It may lead only if no other
//! complete replica could be reached while the election waited.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use model::{BrokerId, Durability, Offset, Timestamp};
use node::{Key, MarkKeeper};
use storage::disk::SimDisk;

use super::deletions::Deletions;
use super::elections::{ENDS_WAIT_MS, ENDS_WAIT_MS_MAX};
use super::folders::MachineDisk;
use super::member::directory_of;
use super::plan::ClusterPlan;
use super::topics::{key_of, partition_of};
use super::{Cluster, Event, Process, TICK_MS, id_of, number_of};
use crate::history::Broken;
use crate::invariant::Invariant;
use crate::machine::Stop;
use crate::message::PartitionId;
use crate::start::{self, noted_processes, read_mark};

/// A broker that has been connected, awake and unfenced for so long has answered a request for log ends, in milliseconds.
const REACHED_AFTER_MS: i64 = 250;
/// How long a journal takes to have a mark, at most, in milliseconds.
const MARK_STORED_MS_MAX: i64 = 60;
/// A copy is replaced by a newer one at one of so many moments, so that some are of earlier processes.
const COPIES_KEPT: u8 = 4;
/// With one of so many copies that are put back all processes die.
const TOTAL_OUTAGES: u8 = 3;
/// Tells these random numbers from those of the same seed that all else is made of.
const OWN_NUMBERS: u64 = 0xc0f1e5;
/// The same for the random numbers of marks.
const MARKS_NUMBERS: u64 = 0x3a4c5;

/// When directories are copied, and the random numbers for it: none is taken from those that the rest of a run is made of.
#[derive(Debug)]
pub(super) struct Copies {
    random: Rng,
    /// The mean time between two copies, or between two that are put back; 0 for none.
    every_ms: i64,
    /// Marks are raised at one of so many checkpoints, and never for 0: so that in some runs copies are younger than the recorded
    /// marks.
    marks_raised_one_in: u8,
    /// Random numbers for marks, so that a run without marks is the same run as before there were any.
    marks_random: Rng,
    /// Partitions that wait for an election by log ends, or did until a moment ago.
    pending: BTreeMap<PartitionId, PendingSpan>,
    /// When the last controller began.
    controller_since: Timestamp,
}

/// The copy of a broker's directory, and what else is known of the directories of one machine.
#[derive(Debug, Default)]
pub(super) struct CopiedDirectory {
    copy: Option<MachineDisk>,
    /// The directory was put back from a copy of the process that was registered last, and some replica that counts may lack acknowledged records.
    pub(super) is_stale: bool,
    /// The directory was put back from a copy that the controller cannot recognise. Stays when the replicas have caught up.
    pub(super) is_from_copy: bool,
    /// The directory was put back from a copy, and its mark is not raised yet.
    pub(super) is_put_back: bool,
    /// The mark of the directory, as the present process has it.
    pub(super) mark: MarkKeeper,
    /// The present process has compared the mark with the recorded one.
    is_mark_settled: bool,
    /// Since when the machine has been connected, awake, and its broker unfenced.
    reachable_since: Option<Timestamp>,
    /// The last time for which that was so before, until it ended.
    reached: Option<(Timestamp, Timestamp)>,
}

impl CopiedDirectory {
    /// Since when the machine has been connected, awake, and its broker unfenced.
    pub(super) fn reachable_since(&self) -> Option<Timestamp> {
        self.reachable_since
    }

    /// When a broker went missing that had answered a controller's requests since `since`, if it had and did.
    fn went_missing_at(&self, since: Timestamp) -> Option<Timestamp> {
        let (from, to) = self.reached?;
        (to.ms_since(from.max(since)) >= REACHED_AFTER_MS).then_some(to)
    }

    fn note_reachable(&mut self, is_reachable: bool, now: Timestamp) {
        match (self.reachable_since, is_reachable) {
            (None, true) => self.reachable_since = Some(now),
            (Some(since), false) => {
                self.reached = Some((since, now));
                self.reachable_since = None;
            }
            (None, false) | (Some(_), true) => {}
        }
    }

    /// A process opens the directory on this disk.
    pub(super) fn open(&mut self, disk: &SimDisk) {
        self.mark = MarkKeeper::of_journal(read_mark(disk));
        self.is_mark_settled = false;
    }
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
        let every_ms = if costs { every_ms } else { 0 };
        let mut marks_random = Rng::with_seed(seed ^ MARKS_NUMBERS);
        let marks_raised_one_in = [1, 40, 0, 0][marks_random.usize(0..4)];
        let (pending, controller_since) = (BTreeMap::new(), Timestamp(0));
        Copies { random, every_ms, marks_raised_one_in, marks_random, pending, controller_since }
    }

    /// Whether directories are copied in this run.
    pub(super) fn is_any(&self) -> bool {
        self.every_ms > 0
    }

    /// No directory is copied.
    pub(super) fn none() -> Copies {
        let (random, marks_random) = (Rng::with_seed(0), Rng::with_seed(0));
        let (pending, controller_since) = (BTreeMap::new(), Timestamp(0));
        let (every_ms, marks_raised_one_in) = (0, 1);
        Copies { random, every_ms, marks_raised_one_in, marks_random, pending, controller_since }
    }
}

/// Time for which the committed metadata has had a partition wait for log ends.
#[derive(Debug)]
struct PendingSpan {
    since: Timestamp,
    /// When the partition stopped to wait, if it has.
    ended: Option<Timestamp>,
}

impl PendingSpan {
    /// Whether the span ended so long ago that a controller has noticed it. An election whose candidate is fenced and
    /// unfenced between two polls of the controller stays open.
    fn is_over(&self, now: Timestamp) -> bool {
        self.ended.is_some_and(|ended| now.ms_since(ended) > TICK_MS)
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
        let id = id_of(broker);
        let registered = self.truth.image.broker(id).map(|known| known.incarnation);
        let directory = directory_of(id, self.members[broker].disks);
        let recorded = self.truth.image.directory_mark(id, directory);
        let member = &mut self.members[broker];
        if let Some(copy) = member.copied.copy.take_if(|_| is_put_back) {
            // A copy of an earlier process is recognised, and so is one with a mark below the recorded one.
            let is_alike = registered.is_some_and(|it| noted_processes(&copy).contains(&it))
                && read_mark(&copy) >= recorded;
            self.trace.note(self.now, format_args!("{broker}: a copy is put back"));
            self.stop(broker, Stop::Kill);
            let member = &mut self.members[broker];
            member.disk = copy;
            (member.has_lost, member.copied.is_stale) = (true, is_alike);
            member.copied.is_put_back = true;
            member.copied.is_from_copy = is_alike;
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

    /// Brokers raise the marks of directories that were written to.
    pub(super) fn raise_marks(&mut self) {
        let one_in = self.copies.marks_raised_one_in;
        if self.plan.version < metadata::record::COPIES_LEVEL || one_in == 0 {
            return;
        }
        for number in 0..self.members.len() {
            let process = self.process(number);
            if self.is_paused(number) {
                continue;
            }
            let member = &mut self.members[number];
            let is_due = self.copies.marks_random.u8(0..one_in) == 0;
            // A copy must not get a later mark before its registration is decided by the one that it has.
            if member.broker.is_none() || !member.copied.is_mark_settled || !is_due {
                continue;
            }
            if let Some(mark) = member.copied.mark.begin() {
                let after = self.copies.marks_random.i64(1..MARK_STORED_MS_MAX);
                self.schedule(after, Event::StoreMark(process, mark));
            }
        }
    }

    /// A broker's journal has a mark, unless its disk is full.
    pub(super) fn store_mark(&mut self, process: Process, mark: u64) {
        if self.running(process).is_none() {
            return;
        }
        let member = &mut self.members[process.broker];
        match start::store_mark(&member.disk, mark) {
            Ok(()) => member.copied.mark.finish(mark),
            Err(_) => member.copied.mark.give_up(),
        }
    }

    /// A directory whose mark was below the recorded one when its process registered gets a mark above.
    pub(super) fn settle_mark(&mut self, process: Process) {
        let member = &mut self.members[process.broker];
        let id = id_of(process.broker);
        let recorded = member.image.directory_mark(id, directory_of(id, member.disks));
        let Some(epoch) = member.broker.as_ref().map(|broker| broker.epoch) else { return };
        let is_known = member.image.broker(id).is_some_and(|known| known.epoch == epoch);
        if !is_known || std::mem::replace(&mut member.copied.is_mark_settled, true) {
            return;
        }
        member.copied.is_put_back = false;
        if member.copied.mark.reported() < recorded {
            let mark = member.copied.mark.begin_above(recorded);
            self.make_room(process.broker);
            self.store_mark(process, mark);
        }
    }

    /// A broker with a directory that was put back is like any other as soon as each of its replicas is in sync and has all
    /// acknowledged records on its device, or counts nowhere.
    pub(super) fn notice_caught_up(&mut self, process: Process) {
        let member = &self.members[process.broker];
        if !member.copied.is_stale || member.has_lost {
            return;
        }
        let Some(broker) = &member.broker else { return };
        let id = id_of(process.broker);
        let images = self.possible_images();
        let counts = |at: PartitionId| {
            let state = |image| super::broker::state_of(image, at);
            images.iter().filter_map(state).any(|state| state.is_complete(id))
        };
        let synced = |at| broker.partition(at).map_or(Offset(0), |it| it.synced_end().1);
        // A copy may end far enough with records of a leader that was deposed, which a leader has it truncate.
        let is_registered = self.is_registered(id);
        let has_joined = |at: PartitionId| {
            let state = super::broker::state_of(&self.truth.image, at);
            is_registered && state.is_some_and(|state| state.isr.contains(&id))
        };
        let has_all = |at: PartitionId| has_joined(at) && synced(at) >= self.history.known_end(at);
        if self.partitions().all(|at| has_all(at) || !counts(at)) {
            self.members[process.broker].copied.is_stale = false;
            self.trace.note(self.now, format_args!("{process:?} has everything again"));
        }
    }

    /// Takes note of the machines that a controller can reach. While a way is cut or a machine pauses, no machine counts as reachable:
    /// the controller may be concerned.
    pub(super) fn notice_reachable(&mut self) {
        if self.copies.every_ms == 0 && !self.outages.is_any() {
            return;
        }
        let now = self.now;
        let is_cut =
            self.cuts.is_any(now) || (0..self.members.len()).any(|number| self.is_paused(number));
        for number in 0..self.members.len() {
            let is_up = self.truth.image.is_active(id_of(number));
            let member = &mut self.members[number];
            let is_reachable = is_up && member.broker.is_some() && !is_cut;
            member.copied.note_reachable(is_reachable, now);
        }
    }

    /// A request for log ends was not answered in time: the network is at fault.
    pub(super) fn note_unanswered(&mut self, broker: usize) {
        let copied = &mut self.members[broker].copied;
        (copied.reachable_since, copied.reached) = (None, None);
    }

    /// A controller begins: it requests log ends itself.
    pub(super) fn note_controller(&mut self) {
        self.copies.controller_since = self.now;
    }

    /// Takes note of partitions that wait for log ends by the committed metadata.
    pub(super) fn notice_pending(&mut self) {
        if self.copies.every_ms == 0 && !self.outages.is_any() {
            return;
        }
        let pending = self.truth.image.pending_elections();
        let named = |(topic_id, partition)| partition_of(Key { topic_id, partition });
        let pending = pending.iter().filter_map(|of| named((of.topic_id, of.partition)));
        let pending: BTreeSet<PartitionId> = pending.collect();
        let now = self.now;
        for (_, span) in self.copies.pending.iter_mut().filter(|(at, _)| !pending.contains(at)) {
            span.ended.get_or_insert(now);
        }
        self.copies.pending.retain(|_, span| !span.is_over(now));
        for at in pending {
            let span = PendingSpan { since: now, ended: None };
            self.copies.pending.entry(at).or_insert(span).ended = None;
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
        let end = broker.log_end(at);
        let acked = self.history.known_end(at);
        if end >= acked || self.truth.forgiven.contains(&at) {
            return Ok(());
        }
        let span = self.copies.pending.get(&at);
        let waited_ms = span.map_or(0, |span| self.now.ms_since(span.since));
        let has_waited = waited_ms >= ENDS_WAIT_MS;
        // Each replica is waited for since it went missing, unless the election has lasted too long.
        let answered_since =
            span.map_or(self.now, |span| span.since.max(self.copies.controller_since));
        let is_awaited = |copied: &CopiedDirectory| {
            let missing_since = copied.went_missing_at(answered_since);
            missing_since.is_some_and(|since| self.now.ms_since(since) < ENDS_WAIT_MS)
                && waited_ms < ENDS_WAIT_MS_MAX
        };
        let key = key_of(at);
        // A replica whose broker reported it as offline has no answer that the controller could wait for.
        let is_waited_for = |id: BrokerId| {
            id != leader
                && old.is_complete(id)
                && !self.truth.image.is_offline(id, key.topic_id, key.partition)
        };
        for other in old.replicas.iter().filter(|id| is_waited_for(**id)) {
            let member = &self.members[number_of(*other)];
            let is_reached = member
                .copied
                .reachable_since
                .is_some_and(|since| self.now.ms_since(since) >= REACHED_AFTER_MS);
            let serves = |broker: &super::ClusterBroker| !broker.out_of_reach.contains(&at);
            let has_more = member
                .broker
                .as_ref()
                .is_none_or(|broker| broker.log_end(at) > end && serves(broker));
            if has_more
                && !member.copied.is_stale
                && (is_reached || !has_waited || is_awaited(&member.copied))
            {
                let what = format!(
                    "the copy at {leader} leads {at}, ends at {end}, {acked} is acknowledged, and {other} is complete: {old:?}"
                );
                return Err((Invariant::LeaderIsComplete, what));
            }
        }
        self.trace.note(self.now, format_args!("{at}: only a copy could be reached: {leader}"));
        self.truth.forgiven.insert(at);
        self.history.forgive(at);
        Ok(())
    }
}
