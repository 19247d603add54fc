//! What the telemetry asks of a broker. Answers are snapshots: plain values, taken when somebody
//! looks, without a promise that they fit together to the record.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serving::health::BrokerHealth;

use super::scrape::Depth;
use crate::counters::{Counters, Durations, TopicCounters};

/// A broker as seen from outside. Every answer may block for as long as a lock of a partition is
/// held; nobody asks from a thread that serves requests.
pub trait Observed: Send + Sync + 'static {
    /// The counters of the data path.
    fn counters(&self) -> &Counters;

    /// What this broker knows of the cluster.
    fn cluster(&self) -> ClusterFacts;

    /// All topics, each with all its partitions.
    fn topics(&self) -> Vec<TopicFacts>;

    /// Groups that this broker coordinates, with what they have committed if `depth` shows it. Not
    /// all of them where there are very many: anybody may make groups.
    fn groups(&self, depth: Depth) -> Vec<GroupFacts>;

    /// How long syncs took, by log directory.
    fn directory_syncs(&self) -> Vec<(String, Arc<Durations>)>;

    /// The volumes of the log directories that are used.
    fn directory_volumes(&self) -> Vec<VolumeFacts>;

    /// What requests cost.
    fn requests(&self) -> RequestFacts;

    /// How busy the threads of the data path have been; `None` if that is not measured.
    fn data_threads(&self) -> Option<ThreadTimes>;

    /// Whether the start has ended.
    fn is_started(&self) -> bool;

    /// Names of stalled thread groups. Never waits for a lock.
    fn stalled_threads(&self) -> Vec<&'static str>;

    /// The broker's health.
    fn health(&self) -> BrokerHealth;
}

/// The volume that a log directory lies on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeFacts {
    /// The log directory.
    pub directory: String,
    /// Bytes of the volume.
    pub total_bytes: i64,
    /// Bytes that may still be written.
    pub free_bytes: i64,
    /// Age of the oldest unfinished write or sync.
    pub oldest_operation: Duration,
    /// Whether a write or sync hangs or the volume is full. Other brokers then replace the replicas in this directory.
    pub is_sick: bool,
}

/// What a broker knows of its cluster.
#[derive(Debug, Clone, Default)]
pub struct ClusterFacts {
    /// The cluster's id.
    pub cluster_id: String,
    /// This broker.
    pub node_id: i32,
    /// Whether this broker is the active controller.
    pub is_controller: bool,
    /// The brokers that serve.
    pub brokers: Vec<BrokerFacts>,
    /// Registered brokers that do not serve.
    pub fenced_broker_count: usize,
    /// Every registered broker, and whether it does not serve.
    pub registered: Vec<(i32, bool)>,
    /// This broker's epoch: that of its registration.
    pub broker_epoch: i64,
    /// Suspicions of silent brokers that this broker began as the active controller.
    pub suspicions: u64,
    /// Leaderships that this broker, as the active controller, moved away from hung and full disks.
    pub disk_moves: u64,
    /// Whether no answer of a controller was current for a session: other leaders may have been elected.
    pub leaderships_in_doubt: bool,
    /// Batches with `acks=0` or `acks=1` that were refused for that.
    pub refused_in_doubt: u64,
    /// Followers that acknowledged last within a minute, and the longest time that each took.
    pub acknowledgements: Vec<(i32, Duration)>,
    /// The metadata quorum.
    pub quorum: QuorumFacts,
    /// Other brokers with replicas of partitions that this one leads.
    pub followers: Vec<FollowerFacts>,
}

/// The metadata quorum, as this broker knows it.
#[derive(Debug, Clone, Default)]
pub struct QuorumFacts {
    /// The leader; -1 where none is known.
    pub leader: i32,
    /// The newest leader epoch that is known.
    pub leader_epoch: u64,
    /// Offset behind the last entry in this broker's log.
    pub log_end_offset: i64,
    /// Entries below are applied here.
    pub applied_offset: i64,
    /// All members; known to the leader only.
    pub members: Vec<MemberFacts>,
}

/// A member of the metadata quorum.
#[derive(Debug, Clone)]
pub struct MemberFacts {
    /// Its `node.id`.
    pub id: i32,
    /// Whether it votes.
    pub votes: bool,
    /// Offset behind the last entry that is known to be in its log.
    pub log_end_offset: i64,
    /// How long ago it was heard.
    pub heard_ago: Option<Duration>,
}

/// Another broker's replicas of partitions that this one leads, all together.
#[derive(Debug, Clone, Default)]
pub struct FollowerFacts {
    /// Its `node.id`.
    pub id: i32,
    /// How many it has.
    pub partitions: usize,
    /// Those that are not in sync.
    pub out_of_sync: usize,
    /// Offsets that it has not acknowledged, of the replica that lacks most.
    pub lag_max: u64,
    /// How long one of them has not had everything, of the one that is longest behind; zero if all have.
    pub behind: Duration,
}

/// One broker of the cluster.
#[derive(Debug, Clone)]
pub struct BrokerFacts {
    /// Its `node.id`.
    pub id: i32,
    /// host:port, as told to clients.
    pub address: String,
}

/// One topic.
#[derive(Debug, Clone)]
pub struct TopicFacts {
    /// Its name.
    pub name: Arc<str>,
    /// What this broker counted for it.
    pub counters: Arc<TopicCounters>,
    /// All its partitions.
    pub partitions: Vec<PartitionFacts>,
}

/// One partition.
#[derive(Debug, Clone)]
pub struct PartitionFacts {
    /// Its number.
    pub index: i32,
    /// Its leader; -1 for none.
    pub leader: i32,
    /// Where its replicas should be; the first one is the preferred leader.
    pub replicas: Vec<i32>,
    /// The in-sync replicas.
    pub in_sync: Vec<i32>,
    /// How many are out of sync and have every acknowledged record (KIP-966).
    pub eligible: usize,
    /// In-sync replicas below which acks=all is refused.
    pub in_sync_min: usize,
    /// The replica on this broker, if it has one.
    pub local: Option<LocalReplica>,
}

/// A replica on this broker.
#[derive(Debug, Clone, Copy)]
pub struct LocalReplica {
    /// First offset that is there.
    pub log_start_offset: i64,
    /// Offset of the next record.
    pub log_end_offset: i64,
    /// Everything below may be read by consumers.
    pub high_watermark: i64,
    /// Bytes of its segments.
    pub size_bytes: u64,
    /// How many segments it has.
    pub segment_count: usize,
}

/// One consumer group.
#[derive(Debug, Clone)]
pub struct GroupFacts {
    /// Its name.
    pub name: String,
    /// How many members it has.
    pub member_count: usize,
    /// Records that it has still to read, by topic.
    pub lags: BTreeMap<Arc<str>, i64>,
    /// How long ago the oldest record arrived that it has still to read; zero if there is none, `None` if that
    /// is not known of any partition.
    pub behind: Option<Duration>,
    /// What it has committed.
    pub offsets: Vec<CommittedOffset>,
}

/// What requests cost in memory.
#[derive(Debug, Clone, Copy, Default)]
pub struct RequestFacts {
    /// Bytes of requests that were not taken in yet.
    pub frame_bytes: usize,
    /// And how many there may be.
    pub frame_bytes_max: usize,
    /// Bytes of decoded requests, and of answers that wait to be sent.
    pub decoded_bytes: usize,
    /// And how many there may be.
    pub decoded_bytes_max: usize,
    /// Bytes reserved for large answers.
    pub answer_bytes: usize,
    /// The most of them.
    pub answer_bytes_max: usize,
    /// Bytes of members of groups.
    pub member_bytes: usize,
    /// The most of them.
    pub member_bytes_max: usize,
    /// Bytes of committed offsets.
    pub offset_bytes: usize,
    /// The most of them.
    pub offset_bytes_max: usize,
    /// Requests that have been on their way for seconds.
    pub slow_frames: usize,
    /// Fetch sessions.
    pub fetch_sessions: usize,
    /// Partitions of all of them.
    pub fetch_session_partitions: usize,
}

/// A committed offset of a group.
#[derive(Debug, Clone)]
pub struct CommittedOffset {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: i32,
    /// The offset of the next record that the group will read.
    pub offset: i64,
    /// The partition's high watermark, if this broker knows it.
    pub high_watermark: Option<i64>,
    /// How long ago the record at `offset` arrived, or zero if there is none yet; `None` if that is not known.
    pub behind: Option<Duration>,
}

impl CommittedOffset {
    /// Records that the group has still to read; `None` if the partition's end is not known.
    pub fn lag(&self) -> Option<i64> {
        self.high_watermark.map(|end| (end - self.offset).max(0))
    }
}

/// How busy some threads have been since they were started.
#[derive(Debug, Clone, Copy)]
pub struct ThreadTimes {
    /// How many there are.
    pub count: usize,
    /// Time during which they worked, all together.
    pub busy: Duration,
}
