//! What the broker shows of itself over HTTP: metrics under the names that Kafka's dashboards
//! know, and its health.
//!
//! The data path bumps the plain atomics of `counters`; everything else is asked for when somebody
//! looks, through [`Observed`]. Nothing here knows a partition or a connection.
//!
//! Three layers of names: those of Kafka's JMX beans as `jmx_exporter` writes them
//! (`kafka_server_…`), those of `kafka_exporter` (`kafka_topic_…`, `kafka_consumergroup_…`),
//! and our own (`highwater_…`, in seconds and bytes).

mod cluster;
mod door;
mod exporter;
mod http;
mod jmx;
mod native;
mod observed;
mod scrape;
#[cfg(test)]
mod tests;
mod worker;

pub use door::Door;
pub use http::{serve, serve_only_metrics};
pub use observed::{
    BrokerFacts, ClusterFacts, CommittedOffset, FollowerFacts, GroupFacts, LocalReplica,
    MemberFacts, Observed, PartitionFacts, QuorumFacts, RequestFacts, ThreadTimes, TopicFacts,
    VolumeFacts,
};
pub use scrape::{Depth, Telemetry};
