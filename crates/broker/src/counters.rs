//! What the data path counts: plain atomics, bumped without a lock. The telemetry reads them.

use metrics::reasons;
pub use metrics::{ByReason, Counter, Durations, Level, Reason};
use wire::ApiKey;

reasons! {
    /// Why a partition has another leader, or another leader epoch.
    Election {
        /// The one before was fenced, or has left.
        LeaderFenced = "leader_fenced",
        /// The one before is about to stop.
        LeaderStops = "leader_stops",
        /// The one before lost something, and leads again or not.
        LeaderRestarted = "leader_restarted",
        /// Another replica is gone, or out of reach; the leader is the same.
        ReplicaLost = "replica_lost",
        /// The preferred replica takes over.
        Preferred = "preferred",
        /// The partition was without a leader.
        LeaderBack = "leader_back",
        /// The new one may lack what was acknowledged.
        Unclean = "unclean",
        /// No replica can lead: the partition is without a leader.
        NoLeader = "no_leader",
        /// Anything else.
        Other = "other",
    }
}

reasons! {
    /// Why a replica is in sync no more.
    Shrink {
        /// Its broker was fenced, or has left.
        Fenced = "fenced",
        /// Its broker is about to stop.
        Stops = "stops",
        /// It lagged, or lost what it had.
        Lag = "lag",
    }
}

reasons! {
    /// Why a broker was fenced.
    Fencing {
        /// It stopped in order, or asked for it.
        Stop = "stop",
        /// Its process ended: the link broke off, and its address refuses or another process is there.
        Link = "link",
        /// It was silent for a session.
        Session = "session",
    }
}

/// What is counted of the cluster. Elections and fencings are counted by the active controller of that moment,
/// ISR changes by the partition's leader, all else by each broker of itself. Unclean elections are counted by every broker as
/// well: what may cost records must not be forgotten with the controller that decided it.
#[derive(Debug, Default)]
pub struct ClusterCounters {
    /// Partitions that have another leader or leader epoch.
    pub elections: ByReason<Election>,
    /// Elections after which acknowledged records may be missing, as every broker sees them.
    pub unclean_seen: Counter,
    /// Brokers that were fenced.
    pub fencings: ByReason<Fencing>,
    /// Replicas that left the ISR of a partition led here.
    pub shrinks: ByReason<Shrink>,
    /// Replicas that joined the ISR of a partition led here.
    pub expansions: Counter,
    /// How often this broker was fenced though it lived.
    pub fenced_alive: Counter,
    /// Answers of leaders to this broker's fetchers.
    pub rounds: Counter,
    /// Those with records.
    pub rounds_with_records: Counter,
    /// Records that they carried.
    pub replicated_records: Counter,
    /// Bytes of these.
    pub replicated_bytes: Counter,
    /// Metadata requests that had to wait for another leader than a dead one.
    pub metadata_parked: Counter,
    /// Those that wait now.
    pub metadata_waiting: Level,
    /// Those that waited in vain.
    pub metadata_unsettled: Counter,
    /// When the metadata last changed here, in milliseconds since 1970.
    pub metadata_changed_ms: Level,
    /// When the active controller last answered a heartbeat, in milliseconds since 1970.
    pub controller_heard_ms: Level,
}

/// One topic's counters.
#[derive(Debug, Default)]
pub struct TopicCounters {
    /// Records appended by producers.
    pub records_in: Counter,
    /// Bytes appended by producers.
    pub bytes_in: Counter,
    /// Bytes given to consumers.
    pub bytes_out: Counter,
    /// Batches that producers sent.
    pub produce_requests: Counter,
    /// Answers that carried records of it.
    pub fetch_requests: Counter,
    /// Batches that were refused.
    pub failed_produce_requests: Counter,
}

/// One API's counters.
#[derive(Debug, Default)]
pub struct ApiCounters {
    /// Requests received.
    pub requests: Counter,
    /// From the request's arrival to its answer.
    pub durations: Durations,
}

/// The whole broker's counters.
#[derive(Debug)]
pub struct Counters {
    /// Bytes read from clients.
    pub bytes_received: Counter,
    /// Bytes sent to clients.
    pub bytes_sent: Counter,
    /// Connections accepted.
    pub connections_accepted: Counter,
    /// Connections turned away (`max.connections`, `max.connections.per.ip`).
    pub connections_refused: Counter,
    /// Connections that ended.
    pub connections_closed: Counter,
    /// Connections that ended because of what the peer sent.
    pub connections_broken_off: Counter,
    /// Batches met in logs whose records cannot be read.
    pub batches_unreadable: Counter,
    /// Cuts of followers that took committed records.
    pub committed_cuts: Counter,
    /// Truncations that followers refused, because their leaders lack committed records.
    pub truncations_refused: Counter,
    /// How long syncs took.
    pub syncs: Durations,
    /// What is counted of the cluster.
    pub cluster: ClusterCounters,
    apis: Vec<ApiCounters>,
}

impl Default for Counters {
    fn default() -> Counters {
        let apis = (0..=ApiKey::all().iter().map(|api| api.code()).max().unwrap_or(0))
            .map(|_| ApiCounters::default())
            .collect();
        Counters {
            bytes_received: Counter::default(),
            bytes_sent: Counter::default(),
            connections_accepted: Counter::default(),
            connections_refused: Counter::default(),
            connections_closed: Counter::default(),
            connections_broken_off: Counter::default(),
            batches_unreadable: Counter::default(),
            committed_cuts: Counter::default(),
            truncations_refused: Counter::default(),
            syncs: Durations::default(),
            cluster: ClusterCounters::default(),
            apis,
        }
    }
}

impl Counters {
    /// One API's.
    pub fn api(&self, api: ApiKey) -> &ApiCounters {
        &self.apis[api.code() as usize]
    }
}
