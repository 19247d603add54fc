//! What one cell of an experiment asks of a target: everything that can be varied, with the names that the
//! definitions use.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Bytes of a line of the CS6 report's access log on average, as its data files have it.
const ACCESS_LOG_LINE_BYTES: f64 = 314.5;

/// What is done to the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Producers send for a time or a number of records; consumers may read beside them.
    Produce,
    /// A topic is filled first, then read to its end; only the reading is measured.
    Consume,
    /// Records are read from a stored or a growing topic by push or pull; each delivery is timed.
    Deliver,
    /// Records go one by one through a balancer that chooses their partition or broker.
    Balance,
    /// Partitions are chosen without a target, then for real, and the end offsets compared.
    Distribute,
    /// Connections ask for the topics' metadata, each again as soon as it is answered.
    Metadata,
    /// Brokers are killed while producers of several client libraries send, and the gaps in their acknowledgements
    /// taken.
    Failover,
}

/// Which broker is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kill {
    /// The leader of the partition that is produced to; not the active controller.
    Leader,
    /// The same, and it is the active controller.
    LeaderController,
    /// A follower of it; not the active controller.
    Follower,
    /// The leader, not the active controller, is paused (SIGSTOP): its connections stay open and carry no answer.
    LeaderPaused,
}

/// How long a producer waits for whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Acks {
    /// Nobody is waited for.
    #[serde(rename = "0")]
    None,
    /// The leader.
    #[serde(rename = "1")]
    Leader,
    /// All in-sync replicas.
    #[serde(rename = "all")]
    All,
}

/// Who chooses a partition, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// Kafka's: murmur2 of the key, sticky without one.
    Murmur2,
    /// As librdkafka's `consistent`: CRC-32 of the key.
    Crc32,
    /// Any, for each record.
    Random,
    /// One after the other, for each record.
    RoundRobin,
    /// One for a batch, then another, whatever the key.
    Sticky,
    /// `floorMod` of Java's `hashCode` of the key.
    HashMod,
    /// The 1-based formula of the CS6 report, which leaves buckets empty.
    Cs6Mod,
}

/// How a consumer gets records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    /// Kafka's fetch.
    Pull,
    /// Server-sent events of the gateway.
    Sse,
    /// WebSocket of the gateway.
    WebSocket,
}

/// What stands between clients and brokers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Via {
    /// Nothing.
    Direct,
    /// A Kafka-protocol proxy that changes addresses only.
    Proxy,
    /// HTTP.
    Gateway,
}

/// What a manager of the cluster does beside the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Console {
    /// There is none.
    Off,
    /// It looks at the cluster every minute, and nobody looks at it.
    Collecting,
    /// A browser has a page of it open: it looks every 15 seconds, and the page is fetched as often.
    PageOpen,
}

/// What a round's counts count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CountBy {
    /// The records of each partition; of those of one number on all brokers, where each broker has partitions of its own.
    Partition,
    /// The records of each broker.
    Broker,
}

/// Whether a producer fills every value anew, as Kafka's tool does since 3.0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Payload {
    /// One value for all records.
    Reuse,
    /// Each filled anew.
    Fresh,
}

/// The client defaults of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Era {
    /// Mid 2017.
    #[serde(rename = "0.11")]
    V0_11,
    /// 2018.
    #[serde(rename = "2.0")]
    V2_0,
    /// 2019.
    #[serde(rename = "2.2")]
    V2_2,
    /// 2021 to 2025.
    #[serde(rename = "3")]
    V3,
    /// Since 2025.
    #[serde(rename = "4")]
    V4,
}

/// One cell's work. Every field has a default, so that a definition names only what matters; factors bear the
/// fields' names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Workload {
    /// What is done.
    pub kind: Kind,
    /// Brokers of the cluster.
    pub brokers: u32,
    /// Copies of each partition.
    pub replication: u32,
    /// `min.insync.replicas`.
    pub min_isr: u32,
    /// Partitions of the topic.
    pub partitions: u32,
    /// Whether each broker has so many partitions of its own, as in the CS6 report: brokers times that number in all, each
    /// broker the preferred leader of its share.
    pub partitions_per_broker: bool,
    /// What is counted where it is looked at where records went.
    pub count_by: CountBy,
    /// Producers, each with its own connections.
    pub producers: u32,
    /// Consumers, all in one group.
    pub consumers: u32,
    /// Connections that ask for metadata.
    pub connections: u32,
    /// Bytes of a record's value; 0 if `record_mix` says.
    pub record_bytes: u32,
    /// Sizes and their shares: `"0.54:100 0.24:1000"`; empty if `record_bytes` says; `"cs682"`: an access log's lines.
    pub record_mix: String,
    /// `none`, `cs682` (that report's five keys), `uniform:N` or `zipf:N,S`.
    pub keys: String,
    /// Who chooses the partition.
    pub strategy: Strategy,
    /// Who chooses the broker, where a balancer does.
    pub broker_strategy: Strategy,
    /// The era whose client defaults hold for what is `None` below.
    pub era: Era,
    /// `acks`.
    pub acks: Option<Acks>,
    /// `max.in.flight.requests.per.connection`.
    pub in_flight: u32,
    /// `batch.size`, bytes.
    pub batch_bytes: u32,
    /// `buffer.memory`, bytes.
    pub buffer_bytes: u64,
    /// `linger.ms`.
    pub linger_ms: Option<f64>,
    /// `enable.idempotence`.
    pub idempotence: Option<bool>,
    /// `compression.type`.
    pub compression: String,
    /// Values filled anew or not.
    pub payload: Option<Payload>,
    /// Records per second of all producers together; 0: as many as possible.
    pub offered: f64,
    /// Share of the measured saturation that is offered instead, 0 to 1; 0: see `offered`.
    pub offered_share: f64,
    /// Records to produce or consume; 0: as many as `seconds` allow.
    pub records: u64,
    /// Seconds to measure; 0: until `records` are done.
    pub seconds: f64,
    /// Seconds before that which do not count.
    pub warmup_seconds: f64,
    /// `max.partition.fetch.bytes`.
    pub fetch_bytes: u32,
    /// `fetch.max.wait.ms`.
    pub fetch_wait_ms: u32,
    /// Push or pull.
    pub delivery: Delivery,
    /// Whether what is read was stored before, or is being written meanwhile.
    pub live: bool,
    /// Credit of a WebSocket subscriber, records.
    pub credit: u32,
    /// Direct, or through what.
    pub via: Via,
    /// Records of a request to the gateway.
    pub records_per_request: u32,
    /// What a manager of the cluster does meanwhile.
    pub console: Console,
    /// Round trip added between clients and brokers, milliseconds.
    pub rtt_ms: f64,
    /// A named emulation, or empty.
    pub emulate: String,
    /// Topics over which all is spread.
    pub topics: u32,
    /// Settings of the brokers; a cell that has other ones than the cell before needs a new cluster.
    pub broker_settings: BTreeMap<String, String>,
    /// Takes latencies as Kafka's tool does: from the call that sends, not from when a record was to be sent. For
    /// tables beside published ones.
    pub as_tool: bool,
    /// Which client drives: `highwater` (the load engine), `tool` (our kafka-producer-perf-test) or `java` (Kafka's).
    pub driver: String,
    /// Which client library's producer sees the brokers killed: `highwater`, `java` (Kafka's own), or one of those that
    /// `lab run --client` names.
    pub client: String,
    /// Which broker is killed.
    pub kill: Kill,
    /// How often.
    pub kills: u32,
}

impl Default for Workload {
    fn default() -> Workload {
        Workload {
            kind: Kind::Produce,
            brokers: 1,
            replication: 1,
            min_isr: 1,
            partitions: 1,
            partitions_per_broker: false,
            count_by: CountBy::Partition,
            producers: 1,
            consumers: 0,
            connections: 1,
            record_bytes: 1024,
            record_mix: String::new(),
            keys: "none".to_owned(),
            strategy: Strategy::Murmur2,
            broker_strategy: Strategy::Random,
            era: Era::V4,
            acks: None,
            in_flight: 5,
            batch_bytes: 16_384,
            buffer_bytes: 33_554_432,
            linger_ms: None,
            idempotence: None,
            compression: "none".to_owned(),
            payload: None,
            offered: 0.0,
            offered_share: 0.0,
            records: 0,
            seconds: 0.0,
            warmup_seconds: 0.3,
            fetch_bytes: 1_048_576,
            fetch_wait_ms: 500,
            delivery: Delivery::Pull,
            live: false,
            credit: 0,
            via: Via::Direct,
            records_per_request: 1,
            console: Console::Off,
            rtt_ms: 0.0,
            emulate: String::new(),
            topics: 1,
            broker_settings: BTreeMap::new(),
            as_tool: false,
            driver: "highwater".to_owned(),
            client: "highwater".to_owned(),
            kill: Kill::Leader,
            kills: 0,
        }
    }
}

impl Era {
    /// `acks` of that time.
    pub fn acks(self) -> Acks {
        if self >= Era::V3 { Acks::All } else { Acks::Leader }
    }

    /// `linger.ms` of that time.
    pub fn linger_ms(self) -> f64 {
        if self >= Era::V4 { 5.0 } else { 0.0 }
    }

    /// `enable.idempotence` of that time.
    pub fn idempotence(self) -> bool {
        self >= Era::V3
    }

    /// `retries` of that time.
    pub fn retries(self) -> u32 {
        if self >= Era::V2_2 { u32::MAX } else { 0 }
    }

    /// Whether Kafka's tool filled every value anew.
    pub fn payload(self) -> Payload {
        if self >= Era::V3 { Payload::Fresh } else { Payload::Reuse }
    }

    /// Where records without a key went.
    pub fn keyless(self) -> Strategy {
        if self >= Era::V3 { Strategy::Sticky } else { Strategy::RoundRobin }
    }
}

impl Workload {
    /// Partitions of the topic in all, on a cluster of so many brokers.
    pub fn partitions_on(&self, brokers: u32) -> u32 {
        let of_each = self.partitions.max(1);
        if self.partitions_per_broker { of_each * brokers.max(1) } else { of_each }
    }

    /// `acks`, as given or of the era.
    pub fn acks(&self) -> Acks {
        self.acks.unwrap_or(self.era.acks())
    }

    /// `linger.ms`, as given or of the era.
    pub fn linger_ms(&self) -> f64 {
        self.linger_ms.unwrap_or(self.era.linger_ms())
    }

    /// Whether producers are idempotent: as given or of the era, and never without `acks=all` or with more than
    /// five requests in flight, as in Kafka.
    pub fn idempotence(&self) -> bool {
        let possible = self.acks() == Acks::All && self.in_flight <= 5;
        self.idempotence.unwrap_or(self.era.idempotence()) && possible
    }

    /// Values filled anew or not.
    pub fn payload(&self) -> Payload {
        self.payload.unwrap_or(self.era.payload())
    }

    /// Bytes of a record's value on average, for estimates; 0 if `record_mix` cannot be read.
    pub fn mean_bytes(&self) -> f64 {
        match self.record_mix.as_str() {
            "" => f64::from(self.record_bytes),
            "cs682" => ACCESS_LOG_LINE_BYTES,
            mix => {
                let part = |part: &str| -> Option<(f64, f64)> {
                    let (share, bytes) = part.split_once(':')?;
                    Some((share.parse().ok()?, bytes.parse().ok()?))
                };
                let parts: Vec<(f64, f64)> = mix.split_whitespace().filter_map(part).collect();
                let shares: f64 = parts.iter().map(|(share, _)| share).sum();
                let bytes: f64 = parts.iter().map(|(share, bytes)| share * bytes).sum();
                if shares > 0.0 { bytes / shares } else { 0.0 }
            }
        }
    }
}
