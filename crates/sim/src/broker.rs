//! One process of the broker: what its network, flusher and maintenance threads do, one step at a time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use coordinator::request::{OffsetCommit, OffsetFetch, PartitionCommit, TopicCommits};
use coordinator::{GroupId, MemberId, Reply, ReplyTo, Response as GroupResponse};
use model::{
    BrokerEpoch, ErrorCode, GenerationId, LeaderEpoch, Offset, PartitionIndex, Timestamp, Uuid,
};
use partition::{
    Acks, Append, Appended, Fate, Isolation, Partition, PartitionError, PartitionSync, Read,
    ReadRequest, Urgency,
};
use storage::disk::SimDisk;
use storage::{DeletedSegment, ReadCursor, StorageError};

use crate::controller::Controller;
use crate::groups::Groups;
use crate::message::{ClientId, Fetched, PartitionId, Refused, Request, Response};
use crate::network::Address;
use crate::start::{LogDirectory, OFFSETS, TOPIC};
use crate::syncs::Syncs;

/// Bytes of one answer to a fetch, but for a larger batch.
const FETCH_BYTES_MAX: u32 = 900;

/// Bytes past the recovery point that are worth a checkpoint.
const CHECKPOINT_BYTES_MIN: u64 = 2_000;

/// Memory for the keys of one compaction.
const COMPACTION_BYTES: usize = 64 << 10;

/// A flag that a [`Waker`] sets.
#[derive(Debug, Default)]
pub(crate) struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.set();
    }
}

impl Woken {
    pub(crate) fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::clone(self))
    }

    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// A produce request that waits for its commit.
#[derive(Debug)]
struct Waiting {
    address: Address,
    partition: PartitionId,
    base_offset: Offset,
    needed: Offset,
    /// In this leader epoch.
    epoch: LeaderEpoch,
    woken: Arc<Woken>,
}

/// A client's connection: answers leave in the order of the requests.
#[derive(Debug, Default)]
struct Connection {
    link: u64,
    answers: VecDeque<(u64, Option<Response>)>,
}

#[derive(Debug)]
pub(crate) struct Broker {
    disk: SimDisk,
    log_dir: LogDirectory,
    partitions: Vec<Arc<Partition>>,
    groups: Groups,
    connections: BTreeMap<ClientId, Connection>,
    waiting: Vec<Waiting>,
    group_requests: BTreeMap<ReplyTo, Address>,
    replies_made: u64,
    /// Where each client's last fetch of a partition ended, as fetch sessions remember it.
    cursors: BTreeMap<(ClientId, PartitionId), ReadCursor>,
    /// Partitions with something to sync.
    sync_queue: Syncs,
    /// What is left of a round of syncs.
    syncing: Vec<PartitionSync>,
    /// The disk failed: the log directory, and with it this broker, is of no use any more.
    pub(crate) is_failed: bool,
    /// How often the groups' partition was compacted.
    pub(crate) compactions: u64,
}

impl Broker {
    pub(crate) fn start(
        disk: &SimDisk,
        controller: &mut Controller,
        now: Timestamp,
    ) -> Result<Broker, StorageError> {
        let log_dir = LogDirectory::new(disk)?;
        let sync_queue = Syncs::new();
        let partitions = log_dir.open(controller, &sync_queue, now)?;
        let groups = Groups::load(Arc::clone(&partitions[OFFSETS]), now)?;
        Ok(Broker {
            disk: disk.clone(),
            log_dir,
            partitions,
            groups,
            connections: BTreeMap::new(),
            waiting: Vec::new(),
            group_requests: BTreeMap::new(),
            replies_made: 0,
            cursors: BTreeMap::new(),
            sync_queue,
            syncing: Vec::new(),
            is_failed: false,
            compactions: 0,
        })
    }

    pub(crate) fn partition(&self, partition: PartitionId) -> &Arc<Partition> {
        &self.partitions[partition]
    }

    /// Stops accepting, syncs and closes all logs, and leaves the clean marker.
    pub(crate) fn stop_cleanly(mut self) -> Result<(), PartitionError> {
        self.syncing.drain(..).try_for_each(|sync| sync.run().map(drop))?;
        for partition in &self.partitions {
            partition.close()?;
        }
        self.log_dir.store_offsets_of(&self.partitions)?;
        Ok(self.log_dir.mark_clean(BrokerEpoch(1))?)
    }

    /// Takes a request off the wire.
    pub(crate) fn receive(&mut self, now: Timestamp, from: Address, request: Request) {
        let connection = self.connections.entry(from.client).or_default();
        if connection.link != from.link {
            *connection = Connection { link: from.link, answers: VecDeque::new() };
        }
        connection.answers.push_back((from.request, None));
        match request {
            Request::Produce { partition, acks, records } => {
                self.produce(now, from, partition, acks, records);
            }
            Request::Fetch { partition, offset } => {
                let fetched = self.fetch(from.client, partition, offset);
                self.answer(from, Response::Fetched(fetched));
            }
            Request::DeleteRecords { partition, offset } => {
                let deleted = self.partitions[partition].delete_records(Some(offset));
                let deleted = deleted.map_err(|error| self.refuse(error));
                self.answer(from, Response::Deleted(deleted));
            }
            Request::CommitOffsets { offsets } => {
                self.ask_groups(now, from, commit_request(from.client, offsets));
            }
            Request::FetchOffsets => {
                let (group, topics) = (group_of(from.client), None);
                let request = OffsetFetch { group, topics, require_stable: false };
                self.ask_groups(now, from, coordinator::Request::OffsetFetch(request));
            }
        }
    }

    fn produce(
        &mut self,
        now: Timestamp,
        address: Address,
        partition: PartitionId,
        acks: Acks,
        mut records: Vec<u8>,
    ) {
        let how = Append { acks, now, internal: false };
        let appended = match self.partitions[partition].append(&mut records, how) {
            Ok(appended) => appended,
            Err(error) => {
                let refused = self.refuse(error);
                return self.answer(address, Response::Produced(Err(refused)));
            }
        };
        let Appended { base_offset, needed, epoch, .. } = appended;
        if acks != Acks::All {
            return self.answer(address, Response::Produced(Ok(base_offset)));
        }
        let woken = Arc::new(Woken::default());
        if self.partitions[partition].park(needed, &woken.waker()).is_none() {
            woken.set();
        }
        self.waiting.push(Waiting { address, partition, base_offset, needed, epoch, woken });
    }

    fn fetch(
        &mut self,
        client: ClientId,
        partition: PartitionId,
        offset: Offset,
    ) -> Result<Fetched, Refused> {
        let cursor = self.cursors.get(&(client, partition)).copied().unwrap_or_default();
        let request = ReadRequest { cursor, ..read_request(offset, Isolation::Committed) };
        let read = match self.partitions[partition].read(&request) {
            Ok(read) => read,
            Err(error) => return Err(self.refuse(error)),
        };
        let mut bytes = Vec::new();
        if let Some(slice) = read.slice {
            self.cursors.insert((client, partition), slice.next);
            bytes.resize(slice.size_bytes as usize, 0);
            let length =
                slice.file.read_at(&mut bytes, slice.position).map_err(|_| Refused::Retriable)?;
            bytes.truncate(length);
        }
        let (high_watermark, log_start) = (read.high_watermark, read.log_start);
        Ok(Fetched { bytes, high_watermark, log_start })
    }

    fn ask_groups(&mut self, now: Timestamp, from: Address, request: coordinator::Request) {
        self.replies_made += 1;
        let to = ReplyTo(self.replies_made);
        self.group_requests.insert(to, from);
        let replies = self.groups.request(now, to, request);
        self.answer_groups(replies);
    }

    fn answer_groups(&mut self, replies: Vec<Reply>) {
        for Reply { to, response } in replies {
            let address = self.group_requests.remove(&to).expect("one answer to each request");
            self.answer(address, group_answer(response));
        }
    }

    fn answer(&mut self, to: Address, response: Response) {
        let Some(connection) = self.connections.get_mut(&to.client) else { return };
        let mut answers = connection.answers.iter_mut();
        if connection.link == to.link
            && let Some((_, answer)) = answers.find(|(request, _)| *request == to.request)
        {
            *answer = Some(response);
        }
    }

    /// What a client is told; notes whether the disk is at fault.
    fn refuse(&mut self, error: PartitionError) -> Refused {
        self.is_failed |= matches!(&error, PartitionError::Storage(error) if error.is_fatal());
        match error {
            PartitionError::OutOfOrderSequence => Refused::OutOfOrderSequence,
            PartitionError::OutOfRange { log_start, .. } => Refused::OutOfRange { log_start },
            PartitionError::NotLeader
            | PartitionError::Offline
            | PartitionError::Storage(_)
            | PartitionError::BehindRefused(_) => Refused::Retriable,
            _ => Refused::Invalid,
        }
    }

    /// Answers whatever can be answered by now; returns what leaves.
    pub(crate) fn progress(&mut self, now: Timestamp) -> Vec<(Address, Response)> {
        let replies = self.groups.progress(now);
        self.answer_groups(replies);
        for waiting in std::mem::take(&mut self.waiting) {
            if !waiting.woken.take() {
                self.waiting.push(waiting);
                continue;
            }
            let produced =
                match self.partitions[waiting.partition].fate(waiting.needed, waiting.epoch) {
                    Fate::Committed => Ok(waiting.base_offset),
                    Fate::Undecided | Fate::Ended(_) => Err(Refused::Retriable),
                };
            self.answer(waiting.address, Response::Produced(produced));
        }
        self.take_answers()
    }

    fn take_answers(&mut self) -> Vec<(Address, Response)> {
        let mut leaving = Vec::new();
        for (client, connection) in &mut self.connections {
            while let Some((_, Some(_))) = connection.answers.front() {
                let answer = connection.answers.pop_front().expect("it was just looked at");
                let (request, Some(response)) = answer else { unreachable!("it was looked at") };
                leaving
                    .push((Address { client: *client, link: connection.link, request }, response));
            }
        }
        leaving
    }

    /// How urgent a round of syncs is, if one may begin.
    pub(crate) fn wants_sync(&self) -> Option<Urgency> {
        if self.syncing.is_empty() { self.sync_queue.most_urgent() } else { None }
    }

    /// The flusher begins a round; true if there is a sync to run.
    pub(crate) fn begin_sync(&mut self, also_later: bool) -> bool {
        if self.syncing.is_empty() {
            let taken = self.sync_queue.take(also_later).into_iter();
            self.syncing =
                taken.filter_map(|(urgency, partition)| partition.begin_sync(urgency)).collect();
        }
        !self.syncing.is_empty()
    }

    /// Whether the round goes on.
    pub(crate) fn is_syncing(&self) -> bool {
        !self.syncing.is_empty()
    }

    /// The device is done with one file, well or badly. Returns the partition and how far it is
    /// synced now.
    pub(crate) fn run_sync(&mut self) -> Option<(PartitionId, Offset)> {
        let sync = self.syncing.pop()?;
        let synced = Arc::clone(sync.partition());
        match sync.run() {
            Ok(done) => {
                synced.write_ahead();
                let at = self.partitions.iter().position(|known| Arc::ptr_eq(known, &synced));
                Some((at.expect("a round holds partitions of the broker"), done?.up_to))
            }
            Err(_) => {
                self.is_failed = true;
                None
            }
        }
    }

    /// Moves recovery points on where enough was written, and stores all offsets.
    pub(crate) fn checkpoint(&mut self) {
        let moved = self
            .partitions
            .iter()
            .try_for_each(|partition| partition.checkpoint(CHECKPOINT_BYTES_MIN).map(drop));
        self.is_failed |=
            moved.is_err() || self.log_dir.store_offsets_of(&self.partitions).is_err();
    }

    /// Rolls and retains, as the maintenance thread does. Returns where each log starts then.
    pub(crate) fn maintain(&mut self, now: Timestamp) -> Vec<Offset> {
        let mut log_starts = Vec::new();
        for partition in &self.partitions {
            match self.retain(partition, now) {
                Ok(deleted) => {
                    self.is_failed |=
                        deleted.into_iter().any(|segment| segment.remove(&self.disk).is_err());
                }
                Err(_) => self.is_failed = true,
            }
            log_starts.push(partition.with_log(|log| log.log_start_offset()));
        }
        self.is_failed |= self.compact(now).is_err();
        log_starts
    }

    fn retain(
        &self,
        partition: &Partition,
        now: Timestamp,
    ) -> Result<Vec<DeletedSegment>, PartitionError> {
        partition.release_idle()?;
        partition.roll_if_due(now)?;
        let Some(start) = partition.plan_retention(now)? else { return Ok(Vec::new()) };
        // Durable before any file goes.
        partition.delete_records(Some(start))?;
        self.log_dir.store_offsets_of(&self.partitions)?;
        partition.retain_from(start)
    }

    /// Compacts the groups' partition if it is worth it.
    fn compact(&mut self, now: Timestamp) -> Result<(), PartitionError> {
        let partition = &self.partitions[OFFSETS];
        let Some(plan) = partition.plan_compaction(now)? else { return Ok(()) };
        let compaction = plan.run(COMPACTION_BYTES, [1, 2], &mut |_| true)?;
        let compaction = compaction.expect("nobody has ended it");
        let compacted = partition.finish_compaction(compaction)?;
        for segment in compacted.deleted {
            self.is_failed |= segment.remove(&self.disk).is_err();
        }
        self.compactions += 1;
        Ok(())
    }
}

fn read_request(offset: Offset, isolation: Isolation) -> ReadRequest {
    ReadRequest::at(offset, FETCH_BYTES_MAX, isolation)
}

/// All that the log of a partition holds, up to its end. Fails on what is no whole batch, or none at
/// all: on a disk that has lied, even a segment below the recovery point may be full of zeros, or empty
/// with another one behind it.
pub(crate) fn read_log(partition: &Partition) -> Result<Vec<u8>, StorageError> {
    let mut bytes = Vec::new();
    let (mut offset, end) =
        partition.with_log(|log| (log.log_start_offset(), log.log_end_offset()));
    while offset < end {
        let request = read_request(offset, Isolation::LogEnd);
        let slice = match partition.read(&request) {
            Ok(Read { slice: Some(slice), .. }) => slice,
            Ok(_) => {
                let reason = format!("no batch from offset {offset} to the log end {end}");
                return Err(unreadable(partition, reason));
            }
            Err(PartitionError::Storage(error)) => return Err(error),
            Err(other) => panic!("a partition that is led can be read: {other}"),
        };
        let at = bytes.len();
        bytes.resize(at + slice.size_bytes as usize, 0);
        slice.file.read_at(&mut bytes[at..], slice.position).expect("the disk reads");
        for batch in model::batch::Batches::new(&bytes[at..]) {
            offset = batch.map_err(|error| unreadable(partition, error))?.0.next_offset();
        }
    }
    Ok(bytes)
}

/// What is said of bytes in a log that are no records.
pub(crate) fn unreadable(partition: &Partition, reason: impl ToString) -> StorageError {
    let path = partition.topic_partition().to_string().into();
    StorageError::Malformed { path, reason: reason.to_string() }
}

fn group_of(client: ClientId) -> GroupId {
    GroupId::from(format!("g{client}"))
}

fn commit_request(client: ClientId, offsets: Vec<(PartitionId, Offset)>) -> coordinator::Request {
    let commit = |(partition, offset): (PartitionId, Offset)| PartitionCommit {
        partition: PartitionIndex(partition as i32),
        offset,
        leader_epoch: LeaderEpoch::NONE,
        metadata: "".into(),
    };
    let partitions = offsets.into_iter().map(commit).collect();
    coordinator::Request::OffsetCommit(OffsetCommit {
        lent: coordinator::request::Lent::default(),
        lent_metadata: coordinator::request::Lent::default(),
        group: group_of(client),
        member: MemberId::default(),
        instance: None,
        generation_id: GenerationId(-1),
        retention_ms: None,
        topics: vec![TopicCommits { topic: TOPIC.into(), topic_id: Uuid::ZERO, partitions }],
    })
}

fn group_answer(response: GroupResponse) -> Response {
    match response {
        GroupResponse::OffsetCommit(response) => {
            let errors = response.topics.iter().flat_map(|(_, partitions)| partitions);
            let failed = errors.map(|(_, error)| *error).find(|error| !error.is_none());
            Response::Committed(failed.unwrap_or(ErrorCode::None))
        }
        GroupResponse::OffsetFetch(response) if response.error.is_none() => {
            let offsets = response.topics.into_iter().flat_map(|(_, partitions)| partitions);
            let stored = offsets.map(|o| (o.partition.0 as PartitionId, o.offset));
            Response::Offsets(Ok(stored.collect()))
        }
        GroupResponse::OffsetFetch(response) => Response::Offsets(Err(response.error)),
        other => unreachable!("nobody asks for {other:?}"),
    }
}
