//! The broker's configuration: one table of keys, values from a file, the environment and flags,
//! changes at run time, and the types that the broker works with.
//!
//! [`Sources`] gathers what was said, [`Configuration`] checks and layers it, [`BrokerConfig`] is
//! what the rest of the broker sees. `table` is the list of keys that all of them, DescribeConfigs
//! and docs/config.md read. Topic configurations are in the room `metadata`.

mod broker_config;
mod change;
mod describe;
pub mod explain;
pub mod key;
mod layers;
pub mod listener;
mod near;
mod problem;
pub mod properties;
mod rules;
mod sections;
mod settings;
mod source;
pub mod table;
mod value;

pub use broker_config::{
    Advertised, BrokerConfig, Durability, Http, Listener, LogDefaults, Threads,
};
pub use change::{RefusedChange, Scope};
pub use describe::{ConfigSource, Described, Synonym};
pub use layers::{Assigned, Configuration};
pub use near::nearest;
pub use problem::{InvalidConfiguration, Problem, Warning};
pub use sections::{
    Cleaner, FetchLimits, Groups, Network, Offsets, Producers, QuorumTimes, Replication,
    TopicDefaults,
};
pub use source::{Source, Sources};
