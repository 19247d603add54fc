//! Machines with two log directories, one of which is missing at some starts (decision 0055).
//!
//! Replicas with an odd number are in the second directory. It has files and notes of its own, as each directory of the
//! product has. A process that starts without it registers without it, and reports the replicas that may be there before it
//! serves. After some time it copies replicas that nothing counts on to the first directory, and reports each as an empty one.
//! Later an operator mounts the disk and starts the broker again. That process reports, in the name of the last
//! registration, that the replicas in the second directory are doubtful, and then registers with both directories. Of a
//! replica that was copied it removes the older one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use fastrand::Rng;
use metadata::ClusterImage;
use metadata::decide::{BrokerRef, EmptyReplica, GiveUpMissing, KnownDirectory};
use model::{BrokerEpoch, BrokerId, Durability, Timestamp, Uuid};
use node::Key;
use partition::{Partition, Settings, SyncQueue};
use storage::StorageError;
use storage::disk::{Disk, SimDisk};

use super::broker::{ClusterBroker, state_of};
use super::controller::Ask;
use super::plan::ClusterPlan;
use super::topics::{index_of, key_of, partitions_in};
use super::{Cluster, Event, Process, id_of};
use crate::history::Broken;
use crate::invariant::Invariant;
use crate::message::PartitionId;
use crate::start::{self, LogDirectory, OpenedReplicas, SECOND_LOG_DIR};

/// Time after which the missing disk is mounted and the broker started again, in milliseconds.
const MOUNTED_AFTER_MS: std::ops::Range<i64> = 100..2_500;
/// Time for which a controller may count a broker as heard that has lost its disk, in milliseconds: a message of it may be on
/// its way. Within that time both replicas of a partition can be given up, which is a price of decision 0055.
const LOSS_UNNOTICED_MS: i64 = 600;
/// Time after which a process copies missing replicas to its first directory, in milliseconds.
const COPIED_AFTER_MS: std::ops::Range<i64> = 50..1_500;
/// Tells these random numbers from those of the same seed that all else is made of.
const OWN_NUMBERS: u64 = 0x2d619;

/// When second directories are missing, and the random numbers for it: none is taken from those that the rest of a run is made of.
#[derive(Debug)]
pub(super) struct MissingDirectories {
    random: Rng,
    /// Of a hundred starts so many lack the second directory; 0 where machines have one directory.
    per_cent: u8,
}

impl MissingDirectories {
    /// `others`: whether the run has another fault that removes or replaces the contents of a directory.
    pub(super) fn new(seed: u64, plan: &ClusterPlan, others: bool) -> MissingDirectories {
        let mut random = Rng::with_seed(seed ^ OWN_NUMBERS);
        let per_cent = [0, 20, 50][random.usize(0..3)];
        // Below that level a start without a directory is refused.
        let starts = plan.version >= metadata::decide::RELIEF_LEVEL
            && plan.durability == Durability::Fsync
            && !others;
        MissingDirectories { random, per_cent: if starts { per_cent } else { 0 } }
    }

    /// Machines have one log directory.
    pub(super) fn none() -> MissingDirectories {
        MissingDirectories { random: Rng::with_seed(0), per_cent: 0 }
    }

    /// Whether machines have two log directories.
    pub(super) fn is_any(&self) -> bool {
        self.per_cent > 0
    }
}

/// The second log directory of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SecondDirectory {
    /// The machine has one directory.
    None,
    Present,
    Missing,
}

/// The log directories of one process.
#[derive(Debug)]
pub(super) struct LogDirectories {
    first: LogDirectory,
    second: Option<LogDirectory>,
    state: SecondDirectory,
    /// Replicas of the second directory of which the first one has a copy, made while the second one was missing.
    copied: BTreeSet<PartitionId>,
    /// Missing replicas may be copied.
    pub(super) copies_missing: bool,
    /// Registration in which the second directory was stopped cleanly, if it was.
    second_stopped_in: Option<BrokerEpoch>,
    /// Processes that had the second directory before.
    second_had_by: Vec<Uuid>,
}

type Replicas = BTreeMap<PartitionId, Arc<Partition>>;

impl LogDirectories {
    pub(super) fn open(
        disk: &SimDisk,
        state: SecondDirectory,
    ) -> Result<LogDirectories, StorageError> {
        let second = match state {
            SecondDirectory::Present => Some(LogDirectory::at(disk, SECOND_LOG_DIR)?),
            SecondDirectory::None | SecondDirectory::Missing => None,
        };
        let (second_stopped_in, second_had_by) = (None, Vec::new());
        let first = LogDirectory::new(disk)?;
        let (copied, copies_missing) = (BTreeSet::new(), false);
        Ok(LogDirectories {
            first,
            second,
            state,
            copied,
            copies_missing,
            second_stopped_in,
            second_had_by,
        })
    }

    /// Takes note of replicas that were copied to the first directory, and removes the older ones from the second.
    pub(super) fn settle_copied(&mut self, disk: &SimDisk, known: &BTreeSet<PartitionId>) {
        if self.state == SecondDirectory::None {
            return;
        }
        let is_copied = |at: &&PartitionId| is_in_second(**at) && start::is_in_first(disk, **at);
        self.copied = known.iter().filter(is_copied).copied().collect();
        if self.second.is_some() {
            self.copied.iter().for_each(|at| start::remove_from_second(disk, *at));
        }
    }

    /// From now on the first directory has a copy of a missing replica.
    pub(super) fn copy(&mut self, at: PartitionId) {
        self.copied.insert(at);
    }

    /// Whether a replica may be in a directory without which the process started.
    pub(super) fn is_missing(&self, at: PartitionId) -> bool {
        self.state == SecondDirectory::Missing && self.is_second(at)
    }

    /// Whether the process started without the second directory.
    pub(super) fn is_incomplete(&self) -> bool {
        self.state == SecondDirectory::Missing
    }

    fn directories(&self) -> impl Iterator<Item = (bool, &LogDirectory)> {
        [(false, &self.first)].into_iter().chain(self.second.iter().map(|second| (true, second)))
    }

    fn has(&self, is_second: bool, at: PartitionId) -> bool {
        is_second == self.is_second(at)
    }

    /// Whether the second directory has a replica.
    fn is_second(&self, at: PartitionId) -> bool {
        self.state != SecondDirectory::None && is_in_second(at) && !self.copied.contains(&at)
    }

    /// Opens the replicas of the directories that are there.
    pub(super) fn open_replicas(
        &mut self,
        me: BrokerId,
        wanted: &BTreeSet<PartitionId>,
        lied: bool,
        settings: &Arc<Settings>,
        sync_queue: &Arc<SyncQueue>,
        now: Timestamp,
    ) -> Result<OpenedReplicas, StorageError> {
        let of = |is_second| wanted.iter().copied().filter(|at| self.has(is_second, *at)).collect();
        let first = of(false);
        let mut opened = self.first.open_replicas(me, first, lied, settings, sync_queue, now)?;
        let second = of(true);
        if let Some(directory) = &self.second {
            let more = directory.open_replicas(me, second, lied, settings, sync_queue, now)?;
            opened.partitions.extend(more.partitions);
            opened.bounds.extend(more.bounds);
            opened.made_anew.extend(more.made_anew);
            self.second_stopped_in = more.stopped_in;
        }
        Ok(opened)
    }

    /// Makes the log of a partition that is new to the broker.
    pub(super) fn open_new_replica(
        &self,
        me: BrokerId,
        at: PartitionId,
        settings: &Arc<Settings>,
        sync_queue: &Arc<SyncQueue>,
        now: Timestamp,
    ) -> Result<Arc<Partition>, StorageError> {
        let second = self.second.as_ref().filter(|_| self.is_second(at));
        let directory = second.unwrap_or(&self.first);
        directory.open_new_replica(me, at, settings, sync_queue, now)
    }

    /// Stores the bounds of all replicas, durably.
    pub(super) fn store_bounds(&self, replicas: &Replicas) -> std::io::Result<()> {
        self.directories().try_for_each(|(is_second, directory)| {
            directory.store_bounds(replicas.iter().filter(|(at, _)| self.has(is_second, **at)))
        })
    }

    /// Stores the offsets of all replicas.
    pub(super) fn store_offsets_of_replicas(
        &self,
        replicas: &Replicas,
    ) -> Result<(), StorageError> {
        self.directories().try_for_each(|(is_second, directory)| {
            let here = replicas.iter().filter(|(at, _)| self.has(is_second, **at));
            directory.store_offsets_of_replicas(here)
        })
    }

    /// The last thing of a clean stop.
    pub(super) fn mark_clean(&self, epoch: BrokerEpoch) -> Result<(), StorageError> {
        self.directories().try_for_each(|(_, directory)| directory.mark_clean(epoch))
    }

    /// Notes in the second directory that a process has it.
    pub(super) fn begin_process(&mut self, disk: &SimDisk, process: Uuid) {
        if self.second.is_some() {
            self.second_had_by = start::begin_process(disk, SECOND_LOG_DIR, process);
        }
    }

    /// Notes in the second directory that a process was registered with it.
    pub(super) fn join_process(&self, disk: &SimDisk, process: Uuid) {
        if self.second.is_some() {
            start::join_process(disk, SECOND_LOG_DIR, process);
        }
    }

    /// State of the second directory for a registration, if it is there.
    pub(super) fn known_second(&self) -> Option<KnownDirectory> {
        let (stopped, had_by) = (self.second_stopped_in, self.second_had_by.clone());
        self.second.is_some().then_some(KnownDirectory { stopped, had_by })
    }
}

/// Whether a replica is in the second directory of a machine that has two.
fn is_in_second(at: PartitionId) -> bool {
    index_of(at).0 % 2 == 1
}

/// Makes the second log directory on an empty disk.
pub(super) fn format_second(disk: &SimDisk) {
    disk.create_dir_all(Path::new(SECOND_LOG_DIR)).expect("an empty disk takes a directory");
    disk.sync_dir(Path::new("")).expect("an empty disk syncs its root");
}

/// The id of a broker's second log directory, on the disk of this number.
pub(super) fn second_directory_of(id: BrokerId, disks: u64) -> Uuid {
    Uuid::from_random([(128 + id.0 as u64 + 16 * disks) as u8; 16])
}

impl ClusterBroker {
    /// Replicas of this broker that may be in a missing directory, as far as the controller is to hear of them.
    fn missing_replicas(&self) -> Vec<PartitionId> {
        let is_news = |at: &PartitionId| {
            let key = key_of(*at);
            let is_noted = self.image.is_offline(self.id, key.topic_id, key.partition);
            let own = state_of(&self.image, *at).filter(|it| it.replicas.contains(&self.id));
            own.is_some_and(|state| !is_noted || node::roles::is_given_up(state, self.id))
        };
        let missing = partitions_in(&self.image).filter(|at| self.log_dirs.is_missing(*at));
        missing.filter(is_news).collect()
    }

    /// Missing replicas that are to be copied now: another one is complete, and nothing counts on them.
    pub(super) fn copy_missing(&mut self, image: &ClusterImage) -> Vec<PartitionId> {
        if !self.log_dirs.copies_missing {
            return Vec::new();
        }
        let is_copied = |at: &PartitionId| {
            self.log_dirs.is_missing(*at)
                && state_of(image, *at).is_some_and(|it| node::roles::is_copied_anew(it, self.id))
        };
        let copied: Vec<PartitionId> = partitions_in(image).filter(is_copied).collect();
        copied.iter().for_each(|at| self.log_dirs.copy(*at));
        copied
    }

    /// Replicas that the metadata calls out of reach and of which there is a copy now.
    pub(super) fn made_again(&self) -> Vec<EmptyReplica> {
        let empty = |at: PartitionId| {
            let Key { topic_id, partition } = key_of(at);
            let is_noted = self.image.is_offline(self.id, topic_id, partition);
            let state = state_of(&self.image, at).filter(|_| is_noted)?;
            Some(EmptyReplica { topic_id, partition, partition_epoch: Some(state.partition_epoch) })
        };
        let copied = self.log_dirs.copied.iter().copied();
        let open = copied.filter(|at| self.partition(*at).is_some());
        open.filter(|at| !self.out_of_reach.contains(at)).filter_map(empty).collect()
    }
}

impl Cluster {
    /// Which second directory the next process of a broker finds.
    pub(super) fn choose_second_directory(&mut self, broker: usize) -> SecondDirectory {
        let per_cent = self.missing_directories.per_cent;
        if per_cent == 0 {
            return SecondDirectory::None;
        }
        let is_new = self.members[broker].is_new;
        let is_missing = self.missing_directories.random.u8(0..100) < per_cent;
        let is_fresh = |lost: &Timestamp| self.now.ms_since(*lost) < LOSS_UNNOTICED_MS;
        let mut losses = self.members.iter().filter_map(|member| member.lost_at.as_ref());
        let is_possible = !losses.any(is_fresh) && !self.members[broker].has_lost;
        match is_missing && !is_new && self.has_faults() && is_possible {
            true => SecondDirectory::Missing,
            false => SecondDirectory::Present,
        }
    }

    /// A process has started without its second directory: an operator mounts the disk later and starts the broker again.
    pub(super) fn note_second_directory(&mut self, process: Process) -> Result<(), Broken> {
        let member = &mut self.members[process.broker];
        let broker = member.broker.as_ref().expect("it was just opened");
        if broker.log_dirs.is_incomplete() {
            member.lacks_second = true;
            self.trace.note(self.now, format_args!("{process:?}: a log directory is missing"));
            let random = &mut self.missing_directories.random;
            let (mounted, copied) = (random.i64(MOUNTED_AFTER_MS), random.i64(COPIED_AFTER_MS));
            self.schedule(mounted, Event::Repair(process));
            self.schedule(copied, Event::CopyMissing(process));
        } else if member.lacks_second
            && !member.has_lost
            && let Some(at) = broker.made_anew.iter().find(|at| broker.log_dirs.is_second(**at))
        {
            let what = format!("{process:?} begins {at} again, and its directory was missing only");
            return Err((Invariant::BrokerStarts, what));
        }
        Ok(())
    }

    /// A process copies missing replicas from now on.
    pub(super) fn allow_copies_of_missing(&mut self, process: Process) {
        if let Some(broker) = self.running(process) {
            broker.log_dirs.copies_missing = true;
            self.schedule_soon(Event::Image(process));
        }
    }

    /// The report of replicas in a directory that was missing when the broker was registered last, in the name of that
    /// registration.
    pub(super) fn report_away(&self, number: usize) -> Option<Ask> {
        let (member, id) = (&self.members[number], id_of(number));
        let broker = member.broker.as_ref()?;
        let known = member.image.broker(id)?;
        let second = second_directory_of(id, member.disks);
        let first = super::member::directory_of(id, member.disks);
        let is_away = broker.log_dirs.known_second().is_some()
            && known.log_dirs.contains(&first)
            && !known.log_dirs.contains(&second);
        if !is_away || broker.away_reported == Some(known.epoch) {
            return None;
        }
        let own = |at: &PartitionId| {
            state_of(&member.image, *at).is_some_and(|it| it.replicas.contains(&id))
        };
        let here = partitions_in(&member.image).filter(|at| broker.log_dirs.is_second(*at));
        let replicas = here.filter(own);
        let partitions = replicas.map(key_of).map(|key| (key.topic_id, key.partition)).collect();
        let broker = BrokerRef { broker: id, epoch: known.epoch };
        Some(Ask::GiveUpMissing(GiveUpMissing { broker, partitions, heard: Vec::new() }))
    }

    /// The report of replicas that may be in a missing directory.
    pub(super) fn report_missing(&self, number: usize, who: BrokerRef) -> Option<Ask> {
        let broker = self.members[number].broker.as_ref()?;
        let missing = if broker.is_known() { broker.missing_replicas() } else { Vec::new() };
        let keys = missing.into_iter().map(key_of);
        let partitions: Vec<_> = keys.map(|key| (key.topic_id, key.partition)).collect();
        let heard = Vec::new();
        let report = GiveUpMissing { broker: who, partitions, heard };
        (!report.partitions.is_empty()).then_some(Ask::GiveUpMissing(report))
    }

    /// A replica in a missing directory leads nothing.
    pub(super) fn check_present(&self, at: PartitionId, leader: BrokerId) -> Result<(), Broken> {
        let member = &self.members[super::number_of(leader)];
        let known = self.truth.image.broker(leader);
        let is_it = |broker: &&ClusterBroker| known.is_some_and(|it| it.epoch == broker.epoch);
        match member.broker.as_ref().filter(is_it) {
            Some(broker) if broker.log_dirs.is_missing(at) => {
                let what = format!("{leader} leads {at}, and its log directory is missing");
                Err((Invariant::LeaderIsComplete, what))
            }
            _ => Ok(()),
        }
    }
}

/// Brokers whose replicas count beside one in a missing directory.
pub(super) fn heard_within(
    heard: &BTreeMap<BrokerId, Timestamp>,
    image: &ClusterImage,
    now: Timestamp,
) -> Vec<BrokerId> {
    let is_heard = |(id, at): &(&BrokerId, &Timestamp)| {
        now.ms_since(**at) <= HEARD_WITHIN_MS && image.broker(**id).is_some()
    };
    heard.iter().filter(is_heard).map(|(id, _)| *id).collect()
}

/// Silence up to which a replica counts beside one in a missing directory, in milliseconds.
const HEARD_WITHIN_MS: i64 = 100;
