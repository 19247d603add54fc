//! One look at a broker: everything is asked once, then written in all three layers of names.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use metrics::{Families, Source, Sources};
use serving::health::{BrokerFacts, BrokerHealth, ProbeAnswer};
use wire::ApiKey;

use super::observed::{
    ClusterFacts, GroupFacts, Observed, PartitionFacts, RequestFacts, ThreadTimes, TopicFacts,
    VolumeFacts,
};
use super::{cluster, exporter, jmx, native};
use crate::counters::{Counters, Durations};

/// How much is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// What stays small however many topics there are.
    Public,
    /// Also each topic, each partition, and each committed offset.
    All,
}

/// Shows a broker to Prometheus. Cheap to clone.
#[derive(Clone)]
pub struct Telemetry {
    observed: Arc<dyn Observed>,
    idle: Arc<Mutex<IdleTime>>,
    beside: Sources,
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Telemetry")
    }
}

impl Telemetry {
    /// Of this broker, and of what runs beside it.
    pub fn new(observed: Arc<dyn Observed>, beside: Sources) -> Telemetry {
        let idle = Arc::new(Mutex::new(IdleTime::new(Instant::now())));
        Telemetry { observed, idle, beside }
    }

    /// All metrics in the OpenMetrics text form. May block: not for a thread that serves requests.
    pub fn metrics(&self, depth: Depth) -> String {
        let source: Arc<dyn Source> = Arc::new(AtDepth { telemetry: self.clone(), depth });
        metrics::text(&source)
    }

    /// Whether the broker has ended its start.
    pub fn is_started(&self) -> bool {
        self.observed.is_started()
    }

    /// The answer of `/livez`. Waits for nothing.
    pub fn livez(&self) -> ProbeAnswer {
        let stalled_threads = self.observed.stalled_threads();
        BrokerHealth::of(&BrokerFacts { stalled_threads, ..BrokerFacts::well() }).livez()
    }

    /// The broker's health.
    pub fn health(&self) -> BrokerHealth {
        self.observed.health()
    }

    fn scrape(&self, depth: Depth) -> Scrape<'_> {
        let observed = &*self.observed;
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        Scrape {
            depth,
            counters: observed.counters(),
            cluster: observed.cluster(),
            topics: observed.topics(),
            groups: observed.groups(depth),
            directory_syncs: observed.directory_syncs(),
            directory_volumes: observed.directory_volumes(),
            requests: observed.requests(),
            idle: observed.data_threads().map(|times| idle.since_last(Instant::now(), times)),
            health: observed.health(),
        }
    }
}

struct AtDepth {
    telemetry: Telemetry,
    depth: Depth,
}

impl Source for AtDepth {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        let scrape = self.telemetry.scrape(self.depth);
        jmx::write(families, &scrape)?;
        exporter::write(families, &scrape)?;
        cluster::write(families, &scrape)?;
        native::write(families, &scrape)?;
        self.telemetry.beside.write(families)
    }
}

/// What was seen.
pub(super) struct Scrape<'a> {
    pub(super) depth: Depth,
    pub(super) counters: &'a Counters,
    pub(super) cluster: ClusterFacts,
    pub(super) topics: Vec<TopicFacts>,
    pub(super) groups: Vec<GroupFacts>,
    pub(super) directory_syncs: Vec<(String, Arc<Durations>)>,
    pub(super) directory_volumes: Vec<VolumeFacts>,
    pub(super) requests: RequestFacts,
    /// Part of the time since the last look in which the data path's threads were idle.
    pub(super) idle: Option<f64>,
    pub(super) health: BrokerHealth,
}

impl Scrape<'_> {
    /// All partitions of all topics.
    pub(super) fn partitions(&self) -> impl Iterator<Item = &PartitionFacts> {
        self.topics.iter().flat_map(|topic| &topic.partitions)
    }

    /// The APIs of which there was a request.
    pub(super) fn apis_in_use(&self) -> Vec<ApiKey> {
        let used = |api: &ApiKey| self.counters.api(*api).requests.get() > 0;
        ApiKey::all().iter().copied().filter(used).collect()
    }
}

/// Turns times since the start into a part of the time since the last look.
#[derive(Debug)]
struct IdleTime {
    at: Instant,
    busy: Duration,
    idle: f64,
}

/// Two looks closer together than this see the same number: too little time has passed.
const LOOKS_APART_MIN: Duration = Duration::from_millis(100);

impl IdleTime {
    fn new(at: Instant) -> IdleTime {
        IdleTime { at, busy: Duration::ZERO, idle: 1.0 }
    }

    fn since_last(&mut self, now: Instant, times: ThreadTimes) -> f64 {
        let passed = now.saturating_duration_since(self.at);
        if passed >= LOOKS_APART_MIN {
            let busy = times.busy.saturating_sub(self.busy).as_secs_f64();
            let available = passed.as_secs_f64() * times.count.max(1) as f64;
            *self = IdleTime {
                at: now,
                busy: times.busy,
                idle: (1.0 - busy / available).clamp(0.0, 1.0),
            };
        }
        self.idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_that_since_the_last_look() {
        let start = Instant::now();
        let mut idle = IdleTime::new(start);
        let at = |s| start + Duration::from_secs(s);
        let times = |busy_s| ThreadTimes { count: 2, busy: Duration::from_secs(busy_s) };
        assert_eq!(idle.since_last(at(10), times(5)), 0.75);
        assert_eq!(idle.since_last(at(10), times(6)), 0.75, "too soon");
        assert_eq!(idle.since_last(at(20), times(25)), 0.0);
        assert_eq!(idle.since_last(at(30), times(25)), 1.0);
    }
}
