//! One process of a broker in a cluster: its partitions, what it fetches from whom, and who waits.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};

use metadata::decide::{BrokerRef, EmptyReplica, NewIsr};
use metadata::{ClusterImage, PartitionImage};
use model::{
    BrokerEpoch, BrokerId, Durability, ErrorCode, LeaderEpoch, Moment, Offset, Timestamp, TopicId,
    Uuid,
};
use node::fetcher::{Effects, Event, Fetcher, Key, StartOver};
use partition::{
    Acks, Append, Appended, Assignment, DeletionKey, Fate, FollowerFetch, Isolation, IsrAnswer,
    Partition, PartitionError, PartitionSync, ReadRequest, ReplicaRead, Status,
};
use storage::StorageError;

use super::controller::min_insync_of;
use super::directories::{LogDirectories, SecondDirectory};
use super::fetches::{self, FETCH_BYTES_MAX, Found};
use super::folders::{MachineDisk, ReplicaFolders};
use super::plan::ClusterPlan;
use super::replicas::counts;
use super::topics::{key_of, partition_of};
use crate::broker::Woken;
use crate::history::Broken;
use crate::invariant::Invariant;
use crate::message::{Fetched, PartitionId, Refused, Response};
use crate::network::Address;
use crate::start::{OpenedReplicas, cluster_settings};
use crate::syncs::Syncs;

/// A produce request that waits for its commit.
#[derive(Debug)]
struct Waiting {
    address: Address,
    replica: Arc<Partition>,
    appended: Appended,
    woken: Arc<Woken>,
}

/// A DeleteRecords request that waits for the replicas.
#[derive(Debug)]
struct Deleting {
    partition: PartitionId,
    replica: Arc<Partition>,
    start: Offset,
    key: Option<DeletionKey>,
    woken: Arc<Woken>,
}

/// What a broker wants from the others.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// A fetch of this number, as a frame.
    Fetch(BrokerId, u64, Vec<u8>),
    /// An ISR, of the controller.
    Isr(NewIsr),
    /// An answer to a client.
    Client(Address, Response),
    /// To a client: the records below are deleted.
    Deleted(PartitionId, Offset),
}

#[derive(Debug)]
pub(crate) struct ClusterBroker {
    pub(crate) id: BrokerId,
    /// Given at registration; negative before.
    pub(crate) epoch: BrokerEpoch,
    /// Whether the process before stopped cleanly.
    pub(crate) was_clean: bool,
    /// As which registration, if it did.
    pub(crate) stopped_in: Option<BrokerEpoch>,
    /// Which processes had the disk before, if that is known.
    pub(crate) had_by: Vec<Uuid>,
    /// Replicas that had no folder, until the image counts them nowhere: not touched before.
    pub(crate) made_anew: Vec<PartitionId>,
    /// Replicas on a disk of their own that failed: out of reach until the next start, which finds that all is there.
    pub(crate) out_of_reach: BTreeSet<PartitionId>,
    pub(super) log_dirs: LogDirectories,
    /// The last registration, in the name of which the process has reported replicas in a directory that was missing.
    pub(super) away_reported: Option<BrokerEpoch>,
    /// The controller has answered the first report of replicas in a missing directory.
    pub(super) missing_reported: bool,
    pub(super) folders: ReplicaFolders,
    durability: Durability,
    pub(super) partitions: BTreeMap<PartitionId, Arc<Partition>>,
    /// Bounds of truncations that the process before stored, as far as their records are there.
    pub(super) bounds: BTreeMap<PartitionId, Offset>,
    /// The image that was last acted upon, and its number.
    pub(super) image: Arc<ClusterImage>,
    /// What became of proposals, by the number of entries that must have been acted upon before it counts.
    isr_answers: Vec<(usize, NewIsr, IsrAnswer)>,
    /// What each partition was told last.
    pub(super) assigned: BTreeMap<PartitionId, Assignment>,
    pub(super) fetchers: BTreeMap<BrokerId, Fetcher>,
    /// The newest registration in which each follower has fetched a partition, and since when.
    pub(super) fetched_since: BTreeMap<(PartitionId, BrokerId), (BrokerEpoch, Moment)>,
    waiting: Vec<Waiting>,
    deleting: Vec<Deleting>,
    /// Log starts in memory are not durable yet.
    pub(crate) owes_starts: bool,
    retention_bytes: i64,
    lag_ms: u64,
    pub(super) sync_queue: Syncs,
    pub(super) syncing: Vec<PartitionSync>,
    outgoing: Vec<Outgoing>,
    /// The disk failed.
    pub(crate) is_failed: bool,
    /// A promise that this broker saw broken.
    pub(crate) broken: Option<(PartitionId, Broken)>,
    /// Partitions of which this follower has just refused to truncate the log.
    pub(crate) refused: Vec<PartitionId>,
    /// Partitions of which this follower has no records, and cannot take the first ones of its leader.
    pub(crate) unable_to_begin: Vec<PartitionId>,
}

impl ClusterBroker {
    /// Opens the logs, on a disk that may have lied before its power failed. On a new disk the logs of the partitions `at_first`
    /// are made.
    pub(super) fn open(
        (disk, second): (&MachineDisk, SecondDirectory),
        id: BrokerId,
        at_first: Range<PartitionId>,
        plan: &ClusterPlan,
        retention_bytes: i64,
        now: Timestamp,
        lied: bool,
    ) -> Result<ClusterBroker, StorageError> {
        let folders = ReplicaFolders::open(disk)?;
        let mut log_dirs = LogDirectories::open(disk, second)?;
        let sync_queue = Syncs::new();
        let settings =
            cluster_settings(plan.durability, plan.min_insync, retention_bytes, plan.lag_ms);
        let wanted = folders.live().into_iter().chain(at_first).collect::<BTreeSet<_>>();
        log_dirs.settle_copied(disk, &wanted);
        let opened = log_dirs.open_replicas(id, &wanted, lied, &settings, &sync_queue, now)?;
        let OpenedReplicas { partitions, bounds, clean, stopped_in, made_anew } = opened;
        folders.enter(partitions.keys().copied());
        Ok(ClusterBroker {
            id,
            epoch: BrokerEpoch(-1),
            was_clean: clean,
            stopped_in,
            had_by: Vec::new(),
            made_anew,
            out_of_reach: BTreeSet::new(),
            log_dirs,
            away_reported: None,
            missing_reported: false,
            folders,
            durability: plan.durability,
            partitions,
            bounds,
            image: Arc::default(),
            isr_answers: Vec::new(),
            assigned: BTreeMap::new(),
            fetchers: BTreeMap::new(),
            fetched_since: BTreeMap::new(),
            waiting: Vec::new(),
            deleting: Vec::new(),
            owes_starts: false,
            retention_bytes,
            lag_ms: plan.lag_ms,
            sync_queue,
            syncing: Vec::new(),
            outgoing: Vec::new(),
            is_failed: false,
            broken: None,
            refused: Vec::new(),
            unable_to_begin: Vec::new(),
        })
    }

    /// Who leads a partition, and in which leader epoch, as far as this broker knows: what it answers to Metadata.
    pub(crate) fn leader_of(&self, partition: PartitionId) -> Option<(BrokerId, LeaderEpoch)> {
        let state = state_of(&self.image, partition)?;
        state.has_leader().then_some((state.leader, state.leader_epoch))
    }

    /// State of a partition in the image that was last acted upon.
    pub(crate) fn known_state(&self, partition: PartitionId) -> Option<&PartitionImage> {
        state_of(&self.image, partition)
    }

    /// Refuses a batch that another leader's followers would drop.
    pub(crate) fn refuse_batch(&mut self, address: Address) {
        self.answer(address, Response::Produced(Err(Refused::Retriable)));
    }

    /// The replica of a partition, if its log is open.
    pub(crate) fn partition(&self, partition: PartitionId) -> Option<&Arc<Partition>> {
        self.partitions.get(&partition)
    }

    /// End of the log of a replica; 0 without one.
    pub(crate) fn log_end(&self, partition: PartitionId) -> Offset {
        let end = |it: &Arc<Partition>| it.with_log(storage::Log::log_end_offset);
        self.partition(partition).map_or(Offset(0), end)
    }

    /// Syncs and closes all logs, and leaves the clean marker: not if the process before was not stopped cleanly and the
    /// controller was never told, or the next one would be believed to have lost nothing (R11).
    pub(crate) fn stop_cleanly(mut self) -> Result<(), PartitionError> {
        self.syncing.drain(..).try_for_each(|sync| sync.run().map(drop))?;
        for partition in self.partitions.values() {
            partition.close()?;
        }
        self.log_dirs.store_bounds(&self.partitions).expect("a healthy disk takes a small file");
        self.log_dirs.store_offsets_of_replicas(&self.partitions)?;
        let registered = Some(self.epoch).filter(|epoch| epoch.0 >= 0);
        // A process that was never registered has changed nothing.
        match registered.or(self.stopped_in) {
            Some(epoch) => Ok(self.log_dirs.mark_clean(epoch)?),
            None => Ok(()),
        }
    }

    /// The disk of one partition fails.
    pub(crate) fn fail(&mut self, partition: PartitionId) {
        if let Some(replica) = self.partitions.get(&partition) {
            replica.fail();
            self.out_of_reach.insert(partition);
        }
    }

    /// Replicas out of reach of which the controller does not know yet what it has to know.
    pub(crate) fn to_give_up(&self) -> Vec<PartitionId> {
        let is_news = |at: &PartitionId| {
            let Key { topic_id, partition } = key_of(*at);
            let is_noted = self.image.is_offline(self.id, topic_id, partition);
            let state = state_of(&self.image, *at);
            state.is_some_and(|state| match self.image.has_offline_replicas() {
                true => state.replicas.contains(&self.id) && !is_noted,
                false => node::roles::is_given_up(state, self.id),
            })
        };
        match self.is_known() {
            true => self.out_of_reach.iter().copied().filter(is_news).collect(),
            false => Vec::new(),
        }
    }

    /// Whether it acts upon the image: it knows its own registration.
    pub(super) fn is_known(&self) -> bool {
        self.image.broker(self.id).is_some_and(|known| known.epoch == self.epoch)
    }

    /// Whether the broker may serve: it has applied the metadata up to its registration, no replica with a new empty log
    /// is in an ISR or ELR, and the controller has recorded the replicas in a missing directory.
    pub(crate) fn is_ready(&self) -> bool {
        let is_reported = self.missing_reported || !self.log_dirs.is_incomplete();
        self.is_known() && self.made_anew.is_empty() && is_reported
    }

    /// Replicas that had to be made anew, and count, with the states in which they do.
    pub(crate) fn counted_anew(&self) -> Vec<EmptyReplica> {
        if !self.is_known() {
            return Vec::new();
        }
        let counted = |at: &PartitionId| {
            let state = state_of(&self.image, *at)?;
            let Key { topic_id, partition } = key_of(*at);
            let partition_epoch = Some(state.partition_epoch);
            Some(EmptyReplica { topic_id, partition, partition_epoch })
        };
        self.made_anew.iter().filter_map(counted).collect()
    }

    /// Whether it is about to stop, as everybody knows, and leads nothing that others could.
    pub(crate) fn has_handed_over(&self) -> bool {
        let knows = self.image.broker(self.id).is_some_and(|known| known.in_controlled_shutdown);
        let leads = |at| state_of(&self.image, at).is_some_and(|s| s.leader == self.id);
        knows && !self.partitions.keys().copied().any(leads)
    }

    /// Acts upon an image, unless it is of a time before this process was registered.
    pub(crate) fn apply(
        &mut self,
        image: &Arc<ClusterImage>,
        deleted: &BTreeSet<TopicId>,
        now: Moment,
        clock: Timestamp,
    ) {
        let is_known = image.broker(self.id).is_some_and(|known| known.epoch == self.epoch);
        if !is_known {
            return;
        }
        let mut wanted = self.change_replicas(image, deleted, now, clock);
        wanted.extend(self.copy_missing(image));
        self.image = Arc::clone(image);
        let settings = cluster_settings(
            self.durability,
            min_insync_of(image),
            self.retention_bytes,
            self.lag_ms,
        );
        for partition in self.partitions.values() {
            let stricter = node::roles::until_role(&partition.settings(), &settings);
            stricter.into_iter().for_each(|stricter| partition.set_settings(Arc::new(stricter)));
        }
        let open = self.partitions.keys().chain(&self.made_anew).copied();
        let replicas: BTreeSet<PartitionId> = open.chain(wanted).collect();
        for at in replicas {
            let state = state_of(image, at);
            let Some(state) = state.filter(|state| state.replicas.contains(&self.id)) else {
                self.made_anew.retain(|anew| *anew != at);
                continue;
            };
            if self.made_anew.contains(&at) {
                let is_open = self.partitions.contains_key(&at);
                let is_counted = match is_open {
                    true => state.is_complete(self.id),
                    false => counts(image, state, self.id),
                };
                if is_counted {
                    continue;
                }
                self.made_anew.retain(|anew| *anew != at);
            }
            if !self.partitions.contains_key(&at) {
                self.open_replica(at, &settings, clock);
            }
            let Some(replica) = self.partition(at).cloned() else { continue };
            let key = key_of(at);
            let named = (key.topic_id, key.partition);
            let assignment = node::roles::assignment(image, named, state);
            if self.assigned.get(&at) != Some(&assignment) {
                self.assigned.insert(at, assignment.clone());
                let leader = assignment.leader;
                replica.assign(assignment, now);
                self.follow(key, leader, now, clock);
            }
        }
        for partition in self.partitions.values() {
            if partition.settings().min_insync_replicas != settings.min_insync_replicas {
                partition.set_settings(Arc::clone(&settings));
            }
        }
        self.look(now, clock);
    }

    /// Fetches the partition from this leader from now on, and from no other.
    fn follow(&mut self, key: Key, leader: BrokerId, now: Moment, clock: Timestamp) {
        let others: Vec<BrokerId> =
            self.fetchers.keys().copied().filter(|other| *other != leader).collect();
        for other in others {
            self.step(other, now, clock, Event::Leave(key));
        }
        if leader != BrokerId::NONE && leader != self.id {
            let partition = Arc::clone(&self.partitions[&place_of(&key)]);
            self.fetchers.entry(leader).or_insert_with(|| Fetcher::new(leader));
            self.step(leader, now, clock, Event::Follow(key, partition));
        }
    }

    /// Looks what every fetcher may do now.
    pub(crate) fn look(&mut self, now: Moment, clock: Timestamp) {
        let leaders: Vec<BrokerId> = self.fetchers.keys().copied().collect();
        for leader in leaders {
            self.step(leader, now, clock, Event::Look);
        }
    }

    /// Takes the answer to the fetch of this number. Fails if it cannot be read.
    pub(crate) fn answered(
        &mut self,
        leader: BrokerId,
        now: Moment,
        clock: Timestamp,
        number: u64,
        frame: &[u8],
    ) -> Result<(), String> {
        let answers = fetches::read_answer(frame, number)?;
        self.step(leader, now, clock, Event::Answered(number, answers));
        Ok(())
    }

    pub(crate) fn lost(&mut self, leader: BrokerId, now: Moment, clock: Timestamp) {
        self.step(leader, now, clock, Event::Lost);
    }

    pub(super) fn step(&mut self, leader: BrokerId, now: Moment, clock: Timestamp, event: Event) {
        let mut next = Some(event);
        while let Some(event) = next.take() {
            let Some(fetcher) = self.fetchers.get_mut(&leader) else { return };
            let mut effects = Effects::default();
            fetcher.step(now, clock, event, &mut effects);
            next = self.carry_out(leader, effects).then_some(Event::Look);
        }
    }

    /// Says whether the fetcher is to look again.
    fn carry_out(&mut self, leader: BrokerId, effects: Effects) -> bool {
        let Effects {
            ask, syncs, cuts, start_overs, gaps, deletions, failures, refused, anew, ..
        } = effects;
        self.unable_to_begin.extend(anew.iter().map(|(key, ..)| place_of(key)));
        self.refused.extend(refused.iter().map(|(key, ..)| place_of(key)));
        for (key, _) in gaps {
            // Nothing is compacted here, and nothing mended.
            let what = format!("{} gets {key:?} from {leader} with offsets missing", self.id);
            self.broken = Some((place_of(&key), (Invariant::ReplicasAgree, what)));
        }
        let is_in_reach = |key: &Key| !self.out_of_reach.contains(&place_of(key));
        let cuts: Vec<_> = cuts.into_iter().filter(|(key, ..)| is_in_reach(key)).collect();
        let start_overs: Vec<_> =
            start_overs.into_iter().filter(|due| is_in_reach(&due.key)).collect();
        let deletions: Vec<_> =
            deletions.into_iter().filter(|(key, ..)| is_in_reach(key)).collect();
        syncs.iter().for_each(|partition| partition.request_sync());
        if let Some(ask) = ask {
            let who = BrokerRef { broker: self.id, epoch: self.epoch };
            let known = |key: &Key| self.partitions[&place_of(key)].high_watermark();
            let frame = fetches::write_request(&ask, who, known);
            self.outgoing.push(Outgoing::Fetch(leader, ask.number, frame));
        }
        let changed = !cuts.is_empty() || !start_overs.is_empty() || !deletions.is_empty();
        for (key, partition, cut) in cuts {
            if cut.takes_committed {
                let what = format!("{} of {key:?} cuts committed records at {}", self.id, cut.to);
                self.broken = Some((place_of(&key), (Invariant::CommittedIsNotCut, what)));
            }
            self.check_bound(place_of(&key), cut.to);
            let made = partition.cut(cut.to);
            self.is_failed |= made.is_err_and(|error| is_fatal(&error));
        }
        for StartOver { partition, leader_epoch, start, .. } in start_overs {
            let made = partition.start_over(leader_epoch, start, || Ok(()));
            self.is_failed |= made.is_err_and(|error| is_fatal(&error));
            // In the product's journal before; here no crash comes in between.
            let stored = self.log_dirs.store_offsets_of_replicas(&self.partitions);
            self.is_failed |= stored.is_err_and(|error| error.is_fatal());
        }
        for (_, partition, start) in deletions {
            let start = start.min(partition.high_watermark());
            let deleted = partition.maintain(|log, _| {
                if start > log.log_start_offset() {
                    log.delete_records_before(start)
                } else {
                    Ok(())
                }
            });
            self.is_failed |= deleted.is_err_and(|error| is_fatal(&error));
            self.owes_starts |= partition.unsynced_log_start().is_some();
        }
        for (key, _, error) in failures {
            self.is_failed |= is_fatal(&error);
            if let PartitionError::Batch(_) | PartitionError::Replicated(_) = error {
                let what = format!("{} cannot take {key:?} from {leader}: {error}", self.id);
                self.broken = Some((place_of(&key), (Invariant::ReplicasAgree, what)));
            }
        }
        changed
    }

    /// Deletes records of a partition that this broker leads, and waits until they are deleted everywhere.
    pub(crate) fn delete_records(&mut self, partition: PartitionId, to: Offset) {
        let Some(replica) = self.partition(partition).cloned() else { return };
        match replica.delete_records(Some(to)) {
            Ok(start) => {
                let woken = Arc::<Woken>::default();
                woken.set();
                self.deleting.push(Deleting { partition, replica, start, key: None, woken });
                self.owes_starts = true;
            }
            Err(error) => self.is_failed |= is_fatal(&error),
        }
    }

    /// Whether no DeleteRecords request waits, and all log starts are durable.
    pub(crate) fn has_deleted(&self) -> bool {
        let is_durable = |partition: &Arc<Partition>| partition.unsynced_log_start().is_none();
        self.deleting.is_empty() && self.partitions.values().all(is_durable)
    }

    /// Answers another broker's fetch, frame by frame. Fails if it cannot be read.
    pub(crate) fn serve(
        &mut self,
        from: BrokerId,
        frame: &[u8],
        now: Moment,
    ) -> Result<Vec<u8>, String> {
        let request = fetches::Request::read(frame, from)?;
        let mut found = Vec::new();
        for (key, wanted) in &request.wanted {
            let replica = partition_of(*key).and_then(|at| self.partition(at));
            let Some(partition) = replica.cloned() else {
                found.push(Found::Failed(ErrorCode::UnknownTopicId, None));
                continue;
            };
            let asked = request.follower.read(wanted, Default::default(), u32::MAX, true, now);
            let one = self.serve_one(&partition, &asked);
            // A fetch that is answered with where the histories part is not counted.
            if matches!(&one, Found::Read(read, _) if read.diverging.is_none()) {
                self.check_caught_up(&partition, &asked.fetch);
            }
            found.push(one);
        }
        Ok(fetches::write_answer(&request, &found))
    }

    /// A follower has fetched: outside the ISR it counts as caught up by what it had in this very registration.
    fn check_caught_up(&mut self, partition: &Partition, fetch: &FollowerFetch) {
        let at = place_of(&key_in(partition));
        let first = (fetch.broker_epoch, fetch.now);
        let since = self.fetched_since.entry((at, fetch.follower)).or_insert(first);
        if since.0 < fetch.broker_epoch {
            *since = first;
        }
        let since = since.1;
        let mut early = None;
        partition.look_at_followers(|place| {
            let is_it = place.broker == fetch.follower && !place.in_sync;
            early = early.or(place.caught_up.filter(|caught_up| is_it && *caught_up < since));
        });
        if let Some(caught_up) = early {
            let what = format!(
                "{} of {at} fetches in {} since {since:?}, and counts as caught up at {caught_up:?}",
                fetch.follower, fetch.broker_epoch
            );
            self.broken = Some((at, (Invariant::NobodyAwayIsWaitedFor, what)));
        }
    }

    fn serve_one(&mut self, partition: &Partition, asked: &ReplicaRead) -> Found {
        let read = match partition.serve_replica(asked) {
            Ok(read) => read,
            Err(PartitionError::OutOfRange { log_start, log_end, .. }) => {
                return Found::Failed(ErrorCode::OffsetOutOfRange, Some((log_start, log_end)));
            }
            Err(error) => {
                if let PartitionError::FollowerAhead { .. } = error {
                    let what = format!("at broker {}: {error}", self.id);
                    let at = place_of(&key_in(partition));
                    self.broken = Some((at, (Invariant::ReplicasAgree, what)));
                }
                self.is_failed |= is_fatal(&error);
                return Found::Failed(ErrorCode::NotLeaderOrFollower, None);
            }
        };
        let mut records = Vec::new();
        if let (Some(slice), None) = (&read.slice, read.diverging) {
            records.resize(slice.size_bytes as usize, 0);
            let length = slice.file.read_at(&mut records, slice.position).unwrap_or(0);
            records.truncate(length);
        }
        Found::Read(read, records)
    }

    pub(crate) fn produce(
        &mut self,
        clock: Timestamp,
        address: Address,
        partition: PartitionId,
        acks: Acks,
        mut records: Vec<u8>,
    ) {
        let how = Append { acks, now: clock, internal: false };
        let Some(replica) = self.partition(partition).cloned() else {
            return self.answer(address, Response::Produced(Err(Refused::UnknownTopicId)));
        };
        let appended = match replica.append(&mut records, how) {
            Ok(appended) => appended,
            Err(error) => {
                let refused = match super::pipelines::excludes_append(&error) {
                    true => Refused::NotAppended,
                    false => self.refuse(&error),
                };
                return self.answer(address, Response::Produced(Err(refused)));
            }
        };
        if acks != Acks::All {
            return self.answer(address, Response::Produced(Ok(appended.base_offset)));
        }
        replica.want_committed(appended.needed);
        let waiting = Waiting { address, replica, appended, woken: Arc::default() };
        waiting.woken.set();
        self.waiting.push(waiting);
    }

    /// Answers a client that knows this leader epoch (KIP-320).
    pub(crate) fn fetch(
        &mut self,
        address: Address,
        known: LeaderEpoch,
        partition: PartitionId,
        offset: Offset,
    ) {
        let fetched = self.read(partition, known, offset);
        self.answer(address, Response::Fetched(fetched));
    }

    fn read(
        &mut self,
        partition: PartitionId,
        known: LeaderEpoch,
        offset: Offset,
    ) -> Result<Fetched, Refused> {
        let partition = self.partition(partition).cloned().ok_or(Refused::UnknownTopicId)?;
        let request = ReadRequest {
            known_epoch: Some(known),
            ..ReadRequest::at(offset, FETCH_BYTES_MAX, Isolation::Committed)
        };
        let read = match partition.read(&request) {
            Ok(read) if partition.is_high_watermark_settled() => read,
            Ok(_) => return Err(Refused::Retriable),
            Err(error) => return Err(self.refuse(&error)),
        };
        let mut bytes = Vec::new();
        if let Some(slice) = read.slice {
            bytes.resize(slice.size_bytes as usize, 0);
            let length =
                slice.file.read_at(&mut bytes, slice.position).map_err(|_| Refused::Retriable)?;
            bytes.truncate(length);
        }
        let (high_watermark, log_start) = (read.high_watermark, read.log_start);
        Ok(Fetched { bytes, high_watermark, log_start })
    }

    fn refuse(&mut self, error: &PartitionError) -> Refused {
        self.is_failed |= is_fatal(error);
        match error {
            PartitionError::OutOfOrderSequence => Refused::OutOfOrderSequence,
            PartitionError::OutOfRange { log_start, offset, .. } if offset < log_start => {
                Refused::OutOfRange { log_start: *log_start }
            }
            PartitionError::Deleted => Refused::UnknownTopicId,
            _ => Refused::Retriable,
        }
    }

    fn answer(&mut self, to: Address, response: Response) {
        self.outgoing.push(Outgoing::Client(to, response));
    }

    /// What became of a proposal: known when so many entries of the metadata's log have been acted upon. By an older
    /// `min.insync.replicas` a smaller ISR could move the high watermark where the controller believes that it stands.
    pub(crate) fn isr_answered(&mut self, count: usize, asked: NewIsr, answer: IsrAnswer) {
        if answer == IsrAnswer::Unknown {
            // It is not waited for any longer.
            let named = |of: &NewIsr| (of.topic_id, of.partition);
            self.isr_answers.retain(|(_, held, _)| named(held) != named(&asked));
            return self.tell_answer(&asked, answer);
        }
        self.isr_answers.push((count, asked, answer));
    }

    fn tell_answer(&self, asked: &NewIsr, answer: IsrAnswer) {
        let key = Key { topic_id: asked.topic_id, partition: asked.partition };
        if let Some(replica) = partition_of(key).and_then(|at| self.partition(at)) {
            replica.isr_answered(asked.leader_epoch, asked.partition_epoch, answer);
        }
    }

    /// So many entries of the metadata's log have been acted upon.
    pub(crate) fn acted_upon(&mut self, count: usize) {
        let answered: Vec<_> =
            self.isr_answers.extract_if(.., |(held, ..)| *held <= count).collect();
        answered.into_iter().for_each(|(_, asked, answer)| self.tell_answer(&asked, answer));
    }

    /// Time has gone by.
    pub(crate) fn tick(&mut self, now: Moment, clock: Timestamp) {
        for partition in self.partitions.values() {
            partition.tick(now);
        }
        self.look(now, clock);
    }

    /// Answers whatever can be answered by now, asks for what is wanted; returns what leaves.
    pub(crate) fn progress(&mut self) -> Vec<Outgoing> {
        for waiting in std::mem::take(&mut self.waiting) {
            if waiting.woken.take() {
                self.settle(waiting);
            } else {
                self.waiting.push(waiting);
            }
        }
        for deleting in std::mem::take(&mut self.deleting) {
            self.settle_deletion(deleting);
        }
        for (at, partition) in &self.partitions {
            let Some(proposal) = partition.take_proposal() else { continue };
            let Key { topic_id, partition } = key_of(*at);
            self.outgoing.push(Outgoing::Isr(NewIsr {
                topic_id,
                partition,
                leader_epoch: proposal.leader_epoch,
                partition_epoch: proposal.partition_epoch,
                isr: proposal
                    .isr
                    .into_iter()
                    .map(|(id, epoch)| {
                        let known = || self.image.broker(id).map(|broker| broker.epoch);
                        let epoch = if id == self.id { Some(self.epoch) } else { epoch };
                        (id, epoch.or_else(known).unwrap_or(BrokerEpoch(-1)))
                    })
                    .collect(),
                recovering: false,
                durable: proposal.durable,
            }));
        }
        std::mem::take(&mut self.outgoing)
    }

    fn settle_deletion(&mut self, mut deleting: Deleting) {
        if !deleting.woken.take() {
            return self.deleting.push(deleting);
        }
        let waker = deleting.woken.waker();
        let mut cx = Context::from_waker(&waker);
        match deleting.replica.poll_deleted(&mut cx, deleting.start, &mut deleting.key) {
            Poll::Pending => self.deleting.push(deleting),
            Poll::Ready(Ok(_)) => {
                self.outgoing.push(Outgoing::Deleted(deleting.partition, deleting.start));
            }
            // The client asks the next leader, or nobody.
            Poll::Ready(Err(_)) => {}
        }
    }

    fn settle(&mut self, waiting: Waiting) {
        let Waiting { address, ref replica, appended, ref woken } = waiting;
        let produced = loop {
            match replica.fate(appended.needed, appended.epoch) {
                Fate::Committed => break Ok(appended.base_offset),
                Fate::Ended(Status::Deleted) => break Err(Refused::UnknownTopicId),
                Fate::Ended(_) => break Err(Refused::Retriable),
                Fate::Undecided => {
                    if replica.park(appended.needed, &woken.waker()).is_some() {
                        return self.waiting.push(waiting);
                    }
                }
            }
        };
        self.answer(address, Response::Produced(produced));
    }

    /// Start of the log of a replica; 0 without one.
    pub(crate) fn log_start(&self, partition: PartitionId) -> Offset {
        let start = |it: &Arc<Partition>| it.with_log(storage::Log::log_start_offset);
        self.partition(partition).map_or(Offset(0), start)
    }

    /// All bytes of a replica's log from an offset on, whatever its role.
    pub(crate) fn log_bytes(&self, partition: PartitionId, from: Offset) -> Vec<u8> {
        let from = from.max(self.log_start(partition));
        let replica = self.partition(partition).expect("the replica is open");
        read_all(replica, from).expect("a replica can be read")
    }
}

/// All bytes of a log from an offset on, whatever its role, if all batches are there.
pub(crate) fn read_all(partition: &Partition, mut from: Offset) -> Result<Vec<u8>, PartitionError> {
    let mut bytes = Vec::new();
    while from < partition.with_log(|log| log.log_end_offset()) {
        let request = ReadRequest {
            any_role: true,
            ..ReadRequest::at(from, FETCH_BYTES_MAX, Isolation::LogEnd)
        };
        let slice = partition.read(&request)?.slice.expect("there is more before the end");
        let at = bytes.len();
        bytes.resize(at + slice.size_bytes as usize, 0);
        slice.file.read_at(&mut bytes[at..], slice.position).expect("the disk reads");
        let last = model::batch::Batches::new(&bytes[at..]).last();
        from = last.expect("a batch").expect("a whole batch").0.next_offset();
    }
    Ok(bytes)
}

/// What an image says of a partition.
pub(crate) fn state_of(image: &ClusterImage, at: PartitionId) -> Option<&PartitionImage> {
    let Key { topic_id, partition } = key_of(at);
    image.topic_by_id(topic_id)?.partition(partition)
}

/// The partition that a broker of this run means by a key.
fn place_of(key: &Key) -> PartitionId {
    partition_of(*key).expect("brokers have partitions of this run only")
}

fn key_in(partition: &Partition) -> Key {
    let partition_index = partition.topic_partition().partition;
    Key { topic_id: partition.topic_id(), partition: partition_index }
}

/// Whether the disk failed. Without room nothing was done, and it is tried again.
pub(super) fn is_fatal(error: &PartitionError) -> bool {
    matches!(error, PartitionError::Storage(error) if error.is_fatal())
}
