//! A lean Kafka client: for the command line, the gateway, the load generator, followers and tests.
//!
//! Works against any Kafka cluster and knows nothing of the broker's inside. From the bottom:
//! [`connection`] speaks to one broker, [`cluster`] knows who leads what and tries again,
//! [`producer`], [`consumer`] and [`admin`] stand on it.

pub mod cluster;
pub mod connection;
pub mod error;
pub mod metadata;
pub mod producer;
pub mod versions;

pub use cluster::{Cluster, ClusterConfig, CoordinatorKind, Lane};
pub use connection::{Connection, ConnectionConfig};
pub use error::ClientError;
pub use metadata::Metadata;
pub use producer::{Delivery, Producer, ProducerConfig, Record};
pub use versions::ApiVersions;
