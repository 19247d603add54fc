//! A lean Kafka client: for the command line, the gateway, the load generator, followers and tests.
//!
//! Works against any Kafka cluster and knows nothing of the broker's inside. From the bottom:
//! [`connection`] speaks to one broker, [`cluster`] knows who leads what and tries again,
//! [`producer`], [`consumer`] and [`admin`] stand on it.

pub mod admin;
pub mod cluster;
mod connecting;
pub mod connection;
pub mod consumer;
mod dial;
pub mod error;
pub mod metadata;
pub mod offsets;
pub mod producer;
mod sasl;
pub mod security;
mod stream;
pub mod versions;
mod wanted;

pub use admin::Admin;
pub use cluster::{Cluster, ClusterConfig, CoordinatorKind, Lane, PrivateLane, TopicLease};
pub use connection::{Connection, ConnectionConfig};
pub use consumer::{
    Consumer, ConsumerConfig, ConsumerRecord, Fetched, OffsetReset, Once, read_once,
};
pub use error::ClientError;
pub use metadata::Metadata;
pub use offsets::{CommittedOffset, FoundOffset, OffsetSpec};
pub use producer::{Delivery, Producer, ProducerConfig, Record};
pub use security::{InvalidSecurity, Security};
pub use versions::ApiVersions;
/// What brokers list, in the words of the protocol.
pub use wire::{
    DescribeClusterResponse as DescribedCluster,
    consumer_group_describe::DescribedGroup as ConsumerGroup,
    describe_groups::DescribedGroup as ClassicGroup,
    describe_log_dirs::DescribeLogDirsResult as LogDir, list_groups::ListedGroup,
};
