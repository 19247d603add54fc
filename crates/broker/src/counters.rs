//! What the data path counts: plain atomics, bumped without a lock. The telemetry reads them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use wire::ApiKey;

/// A number that only rises.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    #[inline]
    pub fn add(&self, value: u64) {
        self.0.fetch_add(value, Ordering::Relaxed);
    }

    /// What it stands at.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that rises and falls.
#[derive(Debug, Default)]
pub struct Level(AtomicU64);

impl Level {
    /// Puts another in its place.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// What it stands at.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Is one higher until what this returns is dropped.
    pub fn raised(&self) -> Raised<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Raised(self)
    }
}

/// Holds a [`Level`] one higher.
#[derive(Debug)]
pub struct Raised<'a>(&'a Level);

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why something was counted: one of a few reasons, all known before.
pub trait Reason: Copy + 'static {
    /// All of them, each at its own number.
    const ALL: &'static [Self];

    /// Its number.
    fn number(self) -> usize;

    /// One word, as a label's value.
    fn name(self) -> &'static str;
}

/// A counter for each reason.
#[derive(Debug)]
pub struct ByReason<R> {
    counters: Box<[Counter]>,
    reason: std::marker::PhantomData<R>,
}

impl<R: Reason> Default for ByReason<R> {
    fn default() -> ByReason<R> {
        let counters = R::ALL.iter().map(|_| Counter::default()).collect();
        ByReason { counters, reason: std::marker::PhantomData }
    }
}

impl<R: Reason> ByReason<R> {
    /// Counts one.
    pub fn count(&self, reason: R) {
        self.counters[reason.number()].add(1);
    }

    /// What one stands at.
    pub fn of(&self, reason: R) -> u64 {
        self.counters[reason.number()].get()
    }

    /// What each stands at.
    pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        R::ALL.iter().map(|reason| (reason.name(), self.counters[reason.number()].get()))
    }

    /// All reasons together.
    pub fn total(&self) -> u64 {
        self.counters.iter().map(Counter::get).sum()
    }
}

/// Reasons and their names.
macro_rules! reasons {
    ($(#[$about:meta])* $name:ident { $($(#[$one:meta])* $reason:ident = $word:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$one])* $reason,)* }

        impl Reason for $name {
            const ALL: &'static [$name] = &[$($name::$reason,)*];

            fn number(self) -> usize {
                self as usize
            }

            fn name(self) -> &'static str {
                match self { $($name::$reason => $word,)* }
            }
        }
    };
}

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

/// Buckets of a [`Durations`]: powers of two of microseconds, 1 µs to over an hour.
const DURATION_BUCKETS: usize = 32;

/// How often something took how long, by powers of two of microseconds.
#[derive(Debug, Default)]
pub struct Durations {
    buckets: [Counter; DURATION_BUCKETS],
    /// Sum of all, in microseconds.
    total_us: Counter,
}

impl Durations {
    /// Counts one.
    #[inline]
    pub fn observe(&self, duration: Duration) {
        let us = duration.as_micros() as u64;
        let bucket = (64 - us.leading_zeros() as usize).min(DURATION_BUCKETS - 1);
        self.buckets[bucket].add(1);
        self.total_us.add(us);
    }

    /// For each bucket: its upper bound in seconds (exclusive), and how many fell into it.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        self.buckets.iter().enumerate().map(|(at, count)| ((1u64 << at) as f64 / 1e6, count.get()))
    }

    /// Sum of all, in seconds.
    pub fn total_seconds(&self) -> f64 {
        self.total_us.get() as f64 / 1e6
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(Counter::get).sum()
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_fall_into_powers_of_two() {
        let durations = Durations::default();
        for us in [0, 1, 3, 1000, u64::MAX / 1_000_000] {
            durations.observe(Duration::from_micros(us));
        }
        let filled: Vec<_> = durations.buckets().filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled[0], (1e-6, 1), "below one microsecond");
        assert_eq!(filled[1], (2e-6, 1));
        assert_eq!(filled[2], (4e-6, 1));
        assert_eq!(filled[3], (1024e-6, 1));
        assert_eq!(durations.count(), 5);
    }
}
