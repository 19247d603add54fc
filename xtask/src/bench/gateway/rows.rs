//! The rows of `cargo xt bench gateway`, and what is to be reached on a machine of two cores, clients included. Data.

use super::super::bars::{Bar, Limit, bar};

/// One row.
pub struct Row {
    /// For `--rows`.
    pub name: &'static str,
    /// For the table.
    pub title: &'static str,
    /// What is done.
    pub work: Work,
    /// What is shown, and what is to be reached.
    pub bars: &'static [Bar],
}

/// What a round does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    /// Requests of one 100-byte record each, on so many connections.
    Post { connections: u32 },
    /// Requests of 100 records each beside a native client: CPU of a record.
    Batch,
    /// Streams to which nothing comes.
    Idle { subscribers: u32 },
    /// Subscribers of all that is produced at so many records a second.
    Push { subscribers: u32, rate: u32 },
    /// Single records to so many subscribers.
    FanOut { subscribers: u32 },
    /// Consumer instances of so many groups, which read once and then wait; assigned ones, then members of their groups.
    Instances { groups: u32 },
    /// Producing and reading 1 KiB records, direct and through the proxy; 0: as many as possible.
    Proxy { rate: u32 },
    /// Pages of a cluster of 10,000 topics, 40,000 partitions and 1,000 groups.
    Console,
}

/// A figure that is to be at least this.
const fn at_least(least: f64) -> Limit {
    // Medians are held against a reference of 1 here.
    Limit::TimesReference(least)
}

/// All rows, in the order in which they are run.
pub const ROWS: &[Row] = &[
    Row {
        name: "post-256",
        title: "produce over HTTP, a 100-byte record a request, 256 connections, synced",
        work: Work::Post { connections: 256 },
        bars: &[
            bar("requests_per_s", "requests/s", at_least(30_000.0)),
            bar("p50_ms", "p50, ms", Limit::Shown),
            bar("p99_ms", "p99, ms", Limit::AtMost(15.0)),
            bar("failed", "failed", Limit::AtMost(0.0)),
            bar("gateway_us", "CPU of the gateway, µs a request", Limit::Shown),
            bar("broker_us", "CPU of the broker, µs a request", Limit::Shown),
            bar("client_busy_share", "generator's core", Limit::Shown),
        ],
    },
    Row {
        name: "post-1",
        title: "the same on one connection",
        work: Work::Post { connections: 1 },
        bars: &[
            bar("requests_per_s", "requests/s", at_least(2000.0)),
            bar("p50_ms", "p50, ms", Limit::Shown),
            bar("p99_ms", "p99, ms", Limit::Shown),
            bar("failed", "failed", Limit::AtMost(0.0)),
        ],
    },
    Row {
        name: "batch-100",
        title: "100 records of 100 bytes a request, binary, beside a native client",
        work: Work::Batch,
        bars: &[
            bar(
                "times_native",
                "CPU of gateway and broker by that of client and broker",
                Limit::AtMost(3.0),
            ),
            bar("http_us", "CPU of gateway and broker, µs a record", Limit::Shown),
            bar("native_us", "CPU of native client and broker, µs a record", Limit::Shown),
            bar("records_per_s", "records/s over HTTP", Limit::Shown),
        ],
    },
    Row {
        name: "idle",
        title: "19,000 event streams to which nothing comes",
        work: Work::Idle { subscribers: 19_000 },
        bars: &[
            bar("each_kib", "memory of the process, KiB each", Limit::AtMost(6.0)),
            bar(
                "kernel_kib",
                "kernel's memory for gateway and reader together, KiB each",
                Limit::Shown,
            ),
        ],
    },
    Row {
        name: "push-1000",
        title: "1,000 subscribers of 100 records of 100 bytes a second",
        work: Work::Push { subscribers: 1000, rate: 100 },
        bars: &[
            bar("deliveries_per_s", "deliveries/s", at_least(95_000.0)),
            bar("delivery_us", "CPU of the gateway, µs each", Limit::AtMost(10.0)),
            bar("e2e_p99_ms", "p99 from sending to client, ms", Limit::AtMost(50.0)),
            bar("missing", "missing, lost or out of order", Limit::AtMost(0.0)),
            bar("client_busy_share", "generator's core", Limit::Shown),
        ],
    },
    Row {
        name: "push-100",
        title: "100 subscribers of 10,000 records of 100 bytes a second",
        work: Work::Push { subscribers: 100, rate: 10_000 },
        bars: &[
            bar("deliveries_per_s", "deliveries/s", at_least(950_000.0)),
            bar("delivery_us", "CPU of the gateway, µs each", Limit::Shown),
            bar("e2e_p99_ms", "p99 from sending to client, ms", Limit::AtMost(10.0)),
            bar("missing", "missing, lost or out of order", Limit::AtMost(0.0)),
            bar("client_busy_share", "generator's core", Limit::Shown),
        ],
    },
    Row {
        name: "fan-out-5000",
        title: "one record to 5,000 subscribers",
        work: Work::FanOut { subscribers: 5000 },
        bars: &[
            bar("last_ms", "the last one has it after, ms", Limit::AtMost(60.0)),
            bar("last_max_ms", "the worst of ten records, ms", Limit::Shown),
        ],
    },
    Row {
        name: "fan-out-19000",
        title: "one record to 19,000 subscribers",
        work: Work::FanOut { subscribers: 19_000 },
        bars: &[
            bar("last_ms", "the last one has it after, ms", Limit::AtMost(250.0)),
            bar("last_max_ms", "the worst of ten records, ms", Limit::Shown),
        ],
    },
    Row {
        name: "instances",
        title: "1,000 consumer instances of 40 groups: a partition each; then as members that share 50 out",
        work: Work::Instances { groups: 40 },
        bars: &[
            bar("all_s", "made, assigned, and each has read, s", Limit::Shown),
            bar("each_kib", "memory of the gateway, KiB each", Limit::Shown),
            bar("left_kib", "of that behind their deletion, KiB each", Limit::Shown),
            bar("gateway_share", "CPU of the gateway at rest, share of a core", Limit::Shown),
            bar("broker_share", "CPU of the broker at rest, share of a core", Limit::Shown),
            bar("refused", "requests refused for now, and sent again", Limit::AtMost(0.0)),
            bar("deleted_s", "all deleted, s", Limit::Shown),
            bar("group_all_s", "members: made, subscribed, and each has read, s", Limit::Shown),
            bar("group_each_kib", "members: memory of the gateway, KiB each", Limit::Shown),
            bar("group_left_kib", "members: of that behind their deletion, KiB each", Limit::Shown),
            bar(
                "group_gateway_share",
                "members: CPU of the gateway at rest, share of a core",
                Limit::Shown,
            ),
            bar(
                "group_broker_share",
                "members: CPU of the broker at rest, share of a core",
                Limit::Shown,
            ),
            bar(
                "group_refused",
                "members: requests refused for now, and sent again",
                Limit::AtMost(0.0),
            ),
            bar("group_deleted_s", "members: all have left and are deleted, s", Limit::Shown),
            bar("still_there", "instances behind that", Limit::AtMost(0.0)),
        ],
    },
    Row {
        name: "proxy-50k",
        title: "the proxy, 50,000 records of 1 KiB a second, produced and read",
        work: Work::Proxy { rate: 50_000 },
        bars: &[
            bar("p50_added_ms", "p50 added, ms", Limit::AtMost(0.3)),
            bar("p99_added_ms", "p99 added, ms", Limit::AtMost(1.0)),
            bar("e2e_p50_added_ms", "p50 to the reader added, ms", Limit::Shown),
            bar("kept_share", "rate by what is offered", at_least(0.99)),
            bar("lost", "lost, doubled or out of order", Limit::AtMost(0.0)),
        ],
    },
    Row {
        name: "proxy-max",
        title: "the proxy, 1 KiB, as fast as can be",
        work: Work::Proxy { rate: 0 },
        bars: &[
            bar("direct_share", "rate by that without it", at_least(0.7)),
            bar(
                "proxy_s_per_gb",
                "CPU of the proxy, s for 10⁹ bytes of values",
                Limit::AtMost(0.6),
            ),
            bar("lost", "lost, doubled or out of order", Limit::AtMost(0.0)),
        ],
    },
    Row {
        name: "console",
        title: "the console of 10,000 topics, 40,000 partitions, 1,000 groups",
        work: Work::Console,
        bars: &[
            bar("page_ms", "the slowest of any page, ms", Limit::AtMost(200.0)),
            bar("overview_ms", "overview, ms", Limit::Shown),
            bar("topics_ms", "topics, ms", Limit::Shown),
            bar("topic_ms", "a topic, ms", Limit::Shown),
            bar("brokers_ms", "brokers, ms", Limit::Shown),
            bar("groups_ms", "groups, ms", Limit::Shown),
            bar("group_ms", "a group, ms", Limit::Shown),
            bar("api_topics_ms", "1,000 topics as JSON, ms", Limit::Shown),
            bar("look_ms", "a look, ms", Limit::Shown),
            bar("collecting_share", "collecting every 15 s, share of a core", Limit::AtMost(0.02)),
            bar("broker_share", "the broker's share of a core meanwhile", Limit::Shown),
            bar("memory_mib", "memory beside an idle gateway, MiB", Limit::AtMost(50.0)),
            bar("peak_mib", "the same at the most, MiB", Limit::AtMost(50.0)),
        ],
    },
];
