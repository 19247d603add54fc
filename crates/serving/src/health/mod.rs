//! Health of a broker and of its cluster. Callers pass facts as plain values; this module returns a
//! verdict and the reasons for it.
//!
//! ```text
//! condition  every condition: its stable code, its scope, its effect on each surface
//! broker     facts of one broker -> answers of /livez, /readyz and /healthz
//! cluster    metadata and the reports of all brokers -> answer of `highwater cluster health`
//! report     a broker's reasons as JSON, as the health endpoints and the Kafka port send them
//! pulse      whether a group of threads still runs
//! ```
//!
//! Read [`condition`] first: its table is the decision.

pub mod broker;
pub mod cluster;
pub mod condition;
pub mod pulse;
pub mod report;

pub use broker::{BrokerFacts, BrokerHealth, ProbeAnswer};
pub use cluster::{ClusterFacts, ClusterHealth};
pub use condition::{Condition, HealthReason};
