//! What all connections of a broker share.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use configuration::BrokerConfig;
use metadata::topic_config::{DescribedConfig, Resolver};
use metadata::{ClusterImage, Request, Response, TopicImage};
use model::{BrokerId, ErrorCode, Offset, PartitionIndex, Timestamp, TopicId, TopicPartition};
use node::acknowledgers::Acknowledgers;
use parking_lot::Mutex;
use partition::{Partition, PartitionError, Status};
use quorum::Quorum;
use storage::StorageError;
use storage::disk::reserve;
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tracing::{debug, error, warn};

use crate::acting::Acting;
use crate::checking::Checking;
use crate::clock::Clock;
use crate::cluster::{
    ClusterLinks, Contacts, Controller, Departed, Fetchers, InSync, Refused, SickDisks, Undecided,
};
use crate::complaints::Complaints;
use crate::counters::Counters;
use crate::descriptors::Descriptors;
use crate::endpoints::Endpoints;
use crate::fetch_session::FetchSessions;
use crate::groups::{Groups, partition_of};
use crate::health::HealthState;
use crate::log_ends::LogEnds;
use crate::log_levels::LogLevels;
use crate::logs::Logs;
use crate::logs::flusher::Flusher;
use crate::network::arrival::SlowFrames;
use crate::network::buffer::BufferPool;
use crate::network::listener::Connections;
use crate::network::lone::Lone;
use crate::network::memory::RequestMemory;
use crate::network::shares::PoolShare;
use crate::network::unsent::Unsent;
use crate::producer_ids::ProducerIds;
use crate::replicas::Keys;
use crate::roles::Roles;
use crate::topics::TopicTable;

/// Bytes of requests that have arrived and were not taken in yet that all connections together may
/// hold, unless `queued.max.request.bytes` says otherwise.
const REQUEST_BYTES_MAX: usize = 104 << 20;
/// How long nothing may come of a request that has begun to arrive.
const FRAME_STALL_MAX: Duration = Duration::from_secs(30);

/// What a connection may cost.
#[derive(Debug)]
pub struct Limits {
    /// Bytes of one request (`socket.request.max.bytes`).
    pub frame_bytes_max: usize,
    /// Bytes of requests that were not taken in yet, of all connections (`queued.max.request.bytes`).
    pub request_bytes_max: usize,
    /// Bytes of one answer to Fetch (`fetch.max.bytes`).
    pub fetch_bytes_max: u32,
    /// How long a connection may be silent (`connections.max.idle.ms`).
    pub connection_idle_max: Duration,
    /// How long the rest of a request may keep silent.
    pub frame_stall_max: Duration,
    /// What the limit of open files leaves for what.
    pub descriptors: Descriptors,
    /// `SO_SNDBUF`, if it is not left to the system (`socket.send.buffer.bytes`).
    pub socket_send_bytes: Option<usize>,
    /// `SO_RCVBUF`, if it is not left to the system (`socket.receive.buffer.bytes`).
    pub socket_receive_bytes: Option<usize>,
}

impl Limits {
    /// As configured.
    pub fn new(config: &BrokerConfig) -> Limits {
        let network = &config.network;
        reserve::fill();
        let descriptors = Descriptors::of_process(config.gateway.bind.is_some());
        reserve::bound_files(descriptors.files);
        let idle_ms = u64::try_from(network.connections_idle_ms_max).ok();
        // What nobody has set is left to the system, which adapts it to each connection.
        let chosen = |key: &str, bytes: i32| {
            let set = config.configuration.is_set(key);
            usize::try_from(bytes).ok().filter(|_| set)
        };
        Limits {
            frame_bytes_max: network.request_bytes_max,
            request_bytes_max: usize::try_from(network.queued_request_bytes_max)
                .ok()
                .filter(|bytes| *bytes > 0)
                .unwrap_or(REQUEST_BYTES_MAX.max(network.request_bytes_max)),
            fetch_bytes_max: config.fetch.response_bytes_max.min(i32::MAX as u32),
            connection_idle_max: idle_ms
                .map_or(Duration::from_secs(u32::MAX as u64), Duration::from_millis),
            frame_stall_max: FRAME_STALL_MAX,
            descriptors,
            socket_send_bytes: chosen("socket.send.buffer.bytes", network.send_buffer_bytes),
            socket_receive_bytes: chosen(
                "socket.receive.buffer.bytes",
                network.receive_buffer_bytes,
            ),
        }
    }
}

/// One broker, seen from its connections.
pub struct Server {
    /// This node.
    pub node_id: BrokerId,
    /// The cluster's id.
    pub cluster_id: Arc<str>,
    /// The configuration now; dynamic changes replace it.
    pub config: ArcSwap<BrokerConfig>,
    /// What a connection may cost.
    pub limits: Limits,
    /// The time.
    pub clock: Clock,
    /// What is counted.
    pub counters: Arc<Counters>,
    /// Buffers for what comes in.
    pub buffers: Arc<BufferPool>,
    /// What requests may cost in memory.
    pub memory: RequestMemory,
    /// Requests that have been on their way for seconds.
    pub slow_frames: Arc<SlowFrames>,
    /// What was reported of partitions whose logs refuse.
    pub complaints: Complaints,
    /// Segments of which a range could not be sent.
    pub unsent: Unsent,
    /// How many connections there are.
    pub connections: Connections,
    /// Where this broker listens, and what clients are told.
    pub endpoints: Endpoints,
    /// The topics of which partitions are here.
    pub topics: TopicTable,
    /// Fetch sessions.
    pub fetch_sessions: FetchSessions,
    /// Looks into large batches.
    pub checking: Checking,
    /// Group commit.
    pub flusher: Flusher,
    /// Whether the data threads have one connection to serve only.
    pub lone: Lone,
    /// The log directories.
    pub logs: Arc<Logs>,
    /// Contacts with controllers and followers.
    pub contacts: Contacts,
    /// Followers that acknowledged records last, of the partitions led here.
    pub acknowledgers: Mutex<Acknowledgers>,
    /// Conditions of the log directories.
    pub sick_disks: Arc<SickDisks>,
    /// The cluster's metadata and who decides it.
    pub quorum: Arc<Quorum>,
    /// Has requests decided, wherever the active controller is.
    pub controller: Controller,
    /// The connections with the other nodes; `None` of a broker that is alone.
    pub links: Option<Arc<ClusterLinks>>,
    /// Roles that wait for a log's cut.
    pub roles: Roles,
    /// Copies from leaders.
    pub fetchers: Fetchers,
    /// Brokers that were fenced a moment ago.
    pub departed: Departed,
    /// Who is in sync where this broker leads.
    pub in_sync: InSync,
    /// Replicas that were refused, of a broker among others.
    pub refused_replicas: Refused,
    /// To the task that opens replicas: these are to be copied anew.
    pub copied_anew: UnboundedSender<Keys>,
    /// Why the broker cannot go on, once that is so.
    pub ended: watch::Sender<Option<String>>,
    /// Set when the broker begins to stop.
    pub stopping: AtomicBool,
    /// The groups whose coordinator is here.
    pub groups: Arc<Groups>,
    /// Ids for idempotent producers.
    pub producer_ids: ProducerIds,
    /// The runtime of the data path, once it serves.
    pub data: OnceLock<Handle>,
    /// The program's reports, if it lets them be changed.
    pub log_levels: OnceLock<Arc<dyn LogLevels>>,
    /// When records arrived that groups have not read.
    pub log_ends: LogEnds,
    /// Index of the last metadata record that this broker has acted upon.
    pub applied: watch::Receiver<u64>,
    /// Whether it gets on with that.
    pub acting: Acting,
    /// Health facts that no other part keeps.
    pub health: Arc<HealthState>,
}

impl Server {
    /// The time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The time by which records, producers and tombstones expire: see [`Clock::expiry_now`].
    pub fn expiry_now(&self) -> Timestamp {
        self.clock.expiry_now()
    }

    /// Has the journals note the state of the metadata folder.
    pub fn note_metadata(&self) {
        if let Some(note) = self.quorum.metadata_note() {
            self.logs.note_metadata(note);
        }
    }

    /// As [`Server::note_metadata`], in the log directory of this number.
    pub fn note_metadata_in(&self, directory: usize) {
        if let Some(note) = self.quorum.metadata_note() {
            self.logs.note_metadata_in(directory, note);
        }
    }

    /// Syncs a partition on this data thread, which serves this connection and no other, if that is cheaper than to have it
    /// synced. Whether it did.
    pub fn sync_here(&self, partition: &Arc<Partition>) -> bool {
        let Some(directory) = self.logs.directory_number(partition) else { return false };
        self.lone.wait(|| self.flusher.sync_if_quick(directory, partition)).unwrap_or(false)
    }

    /// Writes zeros ahead of a log that [`Server::sync_here`] has synced, if it wants some.
    pub fn write_ahead(&self, partition: &Arc<Partition>) {
        if let Some(directory) = self.logs.directory_number(partition) {
            self.flusher.write_ahead(directory, partition);
        }
    }

    /// The cluster's metadata now.
    pub fn image(&self) -> Arc<ClusterImage> {
        self.quorum.image()
    }

    /// The configuration now.
    pub fn config(&self) -> Arc<BrokerConfig> {
        self.config.load_full()
    }

    /// A write or a read of a partition's log failed: the log directory goes offline, and everybody
    /// is told once. Of a deleted partition the files were moved away: that says nothing of the disk.
    pub fn log_failed(&self, partition: &Arc<Partition>, cause: &StorageError) {
        if partition.status() == Status::Deleted {
            debug!(partition = %partition.topic_partition(), error = %cause, "deleted meanwhile");
        } else if let StorageError::Refused { .. } = cause {
            self.logs.refuse(partition, cause);
            self.note_refused(partition.topic_id(), partition.topic_partition().partition);
        } else if cause.is_full() {
            self.logs.fill(partition);
        } else if cause.is_fatal() {
            self.logs.fail(partition, cause);
        } else if self.complaints.is_news(partition.topic_partition(), cause) {
            error!(partition = %partition.topic_partition(), error = %cause, "the log cannot serve");
        }
    }

    /// A replica has records of this leader epoch that its leader, this broker, has not: the log here has lost its end. It is refused
    /// like any other that lacks something, before the same offsets are given to other records, and a replica that is complete
    /// leads. If there is none it is for a person: nothing is cut anywhere.
    pub fn log_lost_its_end(
        &self,
        partition: &Arc<Partition>,
        replica: BrokerId,
        position: Offset,
    ) {
        let (dir, end) = partition.with_log(|log| (log.dir().to_owned(), log.log_end_offset()));
        let epoch = partition.epoch();
        let reason = format!(
            "the log ends at {end}, and broker {replica} has copied records up to {position} from it in this very leader \
             epoch, {epoch}: its end is lost. Broker {replica} has these records; if no other replica is in sync, stop this \
             broker and have that one lead with `highwater cluster elect --unclean`"
        );
        self.log_failed(partition, &StorageError::Refused { dir, reason });
    }

    /// Whether this broker's replica is complete, as far as is known here, and another one is as well.
    pub fn can_do_without(&self, partition: &Partition) -> bool {
        let image = self.image();
        let topic = image.topic_by_id(partition.topic_id());
        let state = topic.and_then(|it| it.partition(partition.topic_partition().partition));
        state.is_some_and(|state| node::roles::is_given_up(state, self.node_id))
    }

    /// A replica is refused: if there are others, the cluster does without it, and it is copied anew by and by.
    pub fn note_refused(&self, topic_id: TopicId, partition: PartitionIndex) {
        if self.links.is_some() {
            self.refused_replicas.note(topic_id, partition);
        }
    }

    /// Has replicas that were refused copied anew, as far as others have everything.
    pub fn copy_anew(&self, refused: Keys) {
        // The task ends when the broker stops: then it is for the next start.
        let _ = self.copied_anew.send(refused);
    }

    /// What a client is told of a partition whose log cannot answer.
    pub fn refused(&self, partition: &Arc<Partition>, cause: &PartitionError) -> ErrorCode {
        if let PartitionError::Storage(storage) = cause {
            self.log_failed(partition, storage);
        }
        self.complaints.code_of(partition, cause)
    }

    /// What a client is told of a partition of which records could not be read and that is given up therefore. Nothing here waits for the
    /// device that does not answer.
    pub fn gave_up(&self, partition: &Arc<Partition>, cause: StorageError) -> ErrorCode {
        self.logs.refuse_soon(partition, &cause);
        self.note_refused(partition.topic_id(), partition.topic_partition().partition);
        self.complaints.code_of(partition, &PartitionError::Storage(cause))
    }

    /// Tells of batches that a look-up or a compaction of this partition could not read, and counts
    /// them.
    pub fn tell_unreadable(&self, partition: &Partition) {
        let Some((count, first)) = partition.with_log(|log| log.take_unreadable()) else { return };
        self.counters.batches_unreadable.add(count);
        warn!(
            partition = %partition.topic_partition(),
            offset = %first.offset,
            file = %first.path.display(),
            position = first.position,
            reason = first.reason,
            count,
            "the records of a batch cannot be read: it was left out"
        );
    }

    /// The partition, if this broker holds it; else what a client is told.
    pub fn partition(
        &self,
        topic: &str,
        index: PartitionIndex,
    ) -> Result<Arc<Partition>, ErrorCode> {
        let found = self.topics.load();
        let found = found.by_name(topic).and_then(|topic| topic.partition(index));
        found.cloned().ok_or_else(|| self.absence_of_name(topic, index))
    }

    /// What a client is told of a partition that is not served here.
    pub fn absence_of(&self, topic_id: &TopicId, index: PartitionIndex) -> ErrorCode {
        let image = self.image();
        match image.topic_by_id(*topic_id) {
            None => ErrorCode::UnknownTopicId,
            topic => self.absence(topic, index),
        }
    }

    /// What a client is told of a partition, named by its topic's name, that is not served here.
    pub fn absence_of_name(&self, topic: &str, index: PartitionIndex) -> ErrorCode {
        self.absence(self.image().topic(topic), index)
    }

    /// Ends the broker: it cannot go on, for this reason.
    pub fn end(&self, reason: String) {
        self.ended.send_if_modified(|ended| {
            let is_first = ended.is_none();
            ended.get_or_insert(reason);
            is_first
        });
    }

    /// Whether the broker has begun to stop.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// The broker that clients are told is the controller: with one broker, this one; in a cluster
    /// any broker forwards, so each names itself.
    pub fn controller_id(&self) -> BrokerId {
        self.node_id
    }

    /// Every configuration of a topic as DescribeConfigs shows it.
    pub fn describe_topic_configs(&self, topic: &str) -> Vec<DescribedConfig> {
        let (image, config) = (self.image(), self.config());
        let statics = config.configuration.static_values();
        Resolver::new(&image, &statics, Some(self.node_id)).describe(topic)
    }

    /// Asks the coordinator of `group`.
    pub async fn ask_group(
        &self,
        group: &str,
        request: coordinator::Request,
    ) -> Result<coordinator::Response, ErrorCode> {
        let image = self.image();
        let partition = partition_of(&image, group).ok_or(ErrorCode::CoordinatorNotAvailable)?;
        self.groups.ask(partition.0, request).await
    }

    /// A figure of the shard of `group`; 0 unless the shard is here.
    pub fn group_bytes(
        &self,
        group: &str,
        bytes: impl FnOnce(&coordinator::Shard) -> usize,
    ) -> usize {
        let partition = partition_of(&self.image(), group);
        partition.map_or(0, |index| self.groups.bytes_of(index.0, bytes))
    }

    /// Memory of the coordinator of `group` for a member or for assignments. `former_bytes`: the figure of the shard
    /// for memory that is returned in exchange. `None`: the client's address has its share.
    pub fn hold_group_memory(
        &self,
        group: &str,
        peer: SocketAddr,
        bytes: usize,
        former_bytes: impl FnOnce(&coordinator::Shard) -> usize,
    ) -> Option<PoolShare> {
        let former = self.group_bytes(group, former_bytes);
        self.groups.hold(Some(peer.ip().to_canonical()), bytes, former)
    }

    /// Has the controller decide, and waits until what it decided has been acted upon here.
    pub async fn decide(&self, request: Request) -> Result<Response, ErrorCode> {
        let response = self.decide_only(request).await?;
        self.applied().await;
        Ok(response)
    }

    /// Has the controller decide, and waits for no action of this broker.
    pub async fn decide_only(&self, request: Request) -> Result<Response, ErrorCode> {
        self.controller.decide(request).await.map_err(|cause| {
            warn!(%cause, "the controller could not decide");
            // A client may repeat a request that no controller took; one that may have happened it must not.
            match cause {
                Undecided::Unknown => ErrorCode::RequestTimedOut,
                Undecided::NoController(_) => ErrorCode::NotController,
            }
        })
    }

    /// Waits until this broker has acted upon all metadata that is known now: a topic that was
    /// created is then open.
    pub async fn applied(&self) {
        let Some(index) = self.quorum.changed_at() else { return };
        self.acted_upon(index).await;
    }

    /// What a client is told of a partition that is not served here: it does not exist; or this broker has it and could not
    /// open it; or another one has it, or this one has heard of it and is about to open it. The last two are one to Kafka, too.
    fn absence(&self, topic: Option<&Arc<TopicImage>>, index: PartitionIndex) -> ErrorCode {
        let Some(topic) = topic.filter(|topic| topic.partition(index).is_some()) else {
            return ErrorCode::UnknownTopicOrPartition;
        };
        let name = TopicPartition { topic: Arc::clone(&topic.name), partition: index };
        match self.logs.is_unopened(&name) {
            true => ErrorCode::KafkaStorageError,
            false => ErrorCode::NotLeaderOrFollower,
        }
    }

    /// Waits until this broker has acted upon the metadata up to this index.
    pub async fn acted_upon(&self, index: u64) {
        // An error means that the broker is stopping; then nothing is waited for.
        let _ = self.applied.clone().wait_for(|applied| *applied >= index).await;
    }
}
