//! What was measured: one [`Round`] a line of `rounds.jsonl`, appended and never changed.

use crate::definition::Levels;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a record was worth when it counted as produced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// Nobody confirmed it.
    Unacknowledged,
    /// In one machine's page cache: lost with its power.
    PageCache,
    /// In the page caches of several brokers.
    ReplicatedPageCache,
    /// On one device.
    Synced,
    /// On several devices.
    ReplicatedSynced,
    /// Nobody could say.
    Unknown,
}

/// What became of the records that were acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Verdict {
    /// Whether anybody looked; else the counts mean nothing.
    pub checked: bool,
    /// Records that were sent.
    pub sent: u64,
    /// Records that were acknowledged.
    pub acknowledged: u64,
    /// Records found when the topic was read.
    pub found: u64,
    /// Acknowledged and not found.
    pub lost: u64,
    /// Found more often than once: how often too many.
    pub duplicated: u64,
    /// Found behind a later record of the same producer in the same partition.
    pub reordered: u64,
    /// Found with other bytes than were sent.
    pub damaged: u64,
}

impl Verdict {
    /// Whether everything that was acknowledged is there once, whole and in order.
    pub fn is_clean(&self) -> bool {
        self.checked && self.lost + self.duplicated + self.reordered + self.damaged == 0
    }
}

/// Why a round was run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// For its cell.
    Cell,
    /// The fixed cell that shows whether the machine drifts.
    Canary,
    /// The same target against itself: `target` ends with `#a` or `#b`.
    SameTarget,
}

/// One round of one cell on one target: a fresh topic, fresh clients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// The experiment's id.
    pub experiment: String,
    /// Its factors' levels.
    pub cell: Levels,
    /// The target's name, such as `highwater` or `apache-kafka`.
    pub target: String,
    /// Which round of the cell, from 0. Targets' rounds of one number are a pair, run back to back.
    pub round: u32,
    /// Which of all rounds, from 0: the order in time.
    pub order: u32,
    /// Why it was run.
    pub purpose: Purpose,
    /// When it began, milliseconds since 1970.
    pub started_ms: u64,
    /// Name of the emulation, or empty.
    pub emulated: String,
    /// How the target differs from what the experiment asks for, such as `1 broker instead of 3`.
    pub deviations: Vec<String>,
    /// What was measured; names and units in [`METRICS`].
    pub metrics: BTreeMap<String, f64>,
    /// Latencies in microseconds, as base64 of HdrHistogram's V2 serialization: `response`, `service`, `delay`,
    /// `blocked`, `end-to-end`.
    pub histograms: BTreeMap<String, String>,
    /// Records per partition (or broker), where the experiment is about that.
    pub counts: Vec<u64>,
    /// What became of the records.
    pub verdict: Verdict,
    /// What an acknowledgement was worth.
    pub durability: Durability,
    /// What looked wrong meanwhile.
    pub warnings: Vec<String>,
    /// Why there is no measurement.
    pub failure: Option<String>,
}

/// The metrics of a round: name, unit, meaning.
pub const METRICS: &[(&str, &str, &str)] = &[
    ("throughput", "records/s", "records acknowledged, or read where only reading is measured"),
    ("mib_per_s", "MiB/s", "the same in bytes of values"),
    ("throughput_per_broker", "records/s", "throughput by brokers"),
    ("throughput_per_producer", "records/s", "throughput by producers"),
    ("scaling_efficiency", "", "throughput per broker by that of the fewest brokers"),
    ("reached_share", "", "throughput by what was offered"),
    ("runtime_ms", "ms", "from the first record to the last"),
    ("avg_ms", "ms", "mean time to acknowledgement, from the intended time if a rate was offered"),
    ("max_ms", "ms", "the longest"),
    ("p50_ms", "ms", "median"),
    ("p95_ms", "ms", "95th percentile"),
    ("p99_ms", "ms", "99th percentile"),
    ("p999_ms", "ms", "99.9th percentile"),
    (
        "response_p99_ms",
        "ms",
        "from the intended sending, 99th percentile, whatever the other latencies count from",
    ),
    ("service_p50_ms", "ms", "from the actual sending, median"),
    ("service_p99_ms", "ms", "from the actual sending, 99th percentile"),
    ("delay_p99_ms", "ms", "intended to actual sending, 99th percentile"),
    ("blocked_ms", "ms", "producers' waiting for buffer.memory, in all"),
    ("e2e_p50_ms", "ms", "intended sending to consumer, median"),
    ("e2e_p99_ms", "ms", "intended sending to consumer, 99th percentile"),
    ("consumed_per_s", "records/s", "records read by the consumers beside the producers"),
    ("lag_records", "records", "not yet read when producing ended"),
    ("rebalance_ms", "ms", "of kafka-consumer-perf-test"),
    ("fetch_ms", "ms", "of kafka-consumer-perf-test"),
    ("fetch_mib_per_s", "MiB/s", "of kafka-consumer-perf-test"),
    ("fetch_records_per_s", "records/s", "of kafka-consumer-perf-test"),
    ("records", "records", "in all"),
    ("data_mib", "MiB", "in all"),
    ("failed", "records", "not acknowledged"),
    ("requests", "", "produce, fetch or metadata requests"),
    ("requests_per_s", "requests/s", "metadata requests answered"),
    ("answer_bytes", "B", "mean length of an answer to a metadata request"),
    ("records_per_request", "records", "records by requests"),
    ("fetch_p50_ms", "ms", "one fetch, median"),
    ("batch_fill", "", "bytes of a batch by batch.size"),
    ("in_flight_used", "requests", "mean of requests in flight when one is sent"),
    ("broker_cpu_s_per_mrec", "s", "CPU of the brokers per million records"),
    ("broker_cpu_s_per_mreq", "s", "CPU of the brokers per million requests"),
    ("broker_cpu_s_per_gb", "s", "CPU of the brokers per 10^9 bytes of values"),
    ("broker_cpu_share", "", "CPU of the brokers by what the machine has"),
    (
        "machine_cpu_share",
        "",
        "CPU of brokers, gateway, proxy and driving process by what the machine has",
    ),
    ("client_cpu_s_per_mrec", "s", "CPU of the driving process per million records"),
    (
        "client_cpu_s_per_mreq",
        "s",
        "CPU of the driving process per million requests, with that of a proxy that runs in it",
    ),
    ("client_busy_share", "", "busiest client thread's CPU by time"),
    ("broker_rss_mib", "MiB", "memory of the brokers at the end"),
    (
        "gateway_cpu_s_per_mrec",
        "s",
        "CPU of the gateway, a process of its own, per million records",
    ),
    ("gateway_cpu_share", "", "CPU of the gateway by what the machine has"),
    ("gateway_rss_mib", "MiB", "memory of the gateway at the end"),
    ("proxy_cpu_s_per_mrec", "s", "CPU of the proxy, a process of its own, per million records"),
    ("wire_mib", "MiB", "what came over HTTP, framing and base64 included"),
    ("pages", "", "pages of the console that were fetched"),
    ("page_max_ms", "ms", "the slowest of them"),
    ("disk_bytes_per_byte", "", "bytes of the log directories by bytes of values"),
    ("machine_busy_share", "", "CPU time of everything by what the machine has"),
    ("steal_share", "", "CPU time that the hypervisor took"),
    ("machine_mhz", "MHz", "clock of the first core at the end"),
    ("ns_per_decision", "ns", "one choice of a partition"),
    ("max_over_mean", "", "fullest partition by the mean"),
    ("coefficient_of_variation", "", "standard deviation of counts by their mean"),
    ("empty_partitions", "", "partitions without a record"),
    ("chi_squared_p", "", "chance of counts as uneven as these from an even strategy"),
    ("predicted_p50_ms", "ms", "what the client's queue law predicts"),
    ("law_ratio", "", "measured median by the predicted one"),
    ("read_us", "us", "of one record in the balancer: reading its line"),
    ("decide_us", "us", "of one record in the balancer: choosing"),
    ("send_us", "us", "of one record in the balancer: writing its request"),
    ("forward_us", "us", "of one record in the balancer: until acknowledged"),
    ("kills", "", "brokers killed under the client"),
    (
        "gap_min_ms",
        "ms",
        "longest time without an acknowledgement around a kill: the shortest of all kills",
    ),
    ("gap_p50_ms", "ms", "the same, median of the kills"),
    ("gap_p90_ms", "ms", "the same, 90th percentile"),
    ("gap_p99_ms", "ms", "the same, 99th percentile"),
    ("gap_max_ms", "ms", "the same, of the worst kill"),
    (
        "steady_gap_p50_ms",
        "ms",
        "longest time without one in two undisturbed seconds before a kill, median",
    ),
    ("steady_gap_max_ms", "ms", "the same, the worst"),
    (
        "move_gap_p50_ms",
        "ms",
        "longest time without one as the leader is moved and none is dead, median",
    ),
    ("move_gap_max_ms", "ms", "the same, the worst"),
    (
        "return_gap_p50_ms",
        "ms",
        "longest time without one while the broker that was killed starts and catches up, median",
    ),
    ("return_gap_max_ms", "ms", "the same, the worst"),
    ("client_errors", "", "records whose failure the client reported to the application"),
];
