//! The configuration of a broker: one table of keys, the layers of values, and the types that the
//! broker works with.
//!
//! [`Sources`] gathers the values of a file, the environment and the command line,
//! [`Configuration`] checks and layers them, [`BrokerConfig`] is what the broker sees. [`table`]
//! is the list of keys that all of them, DescribeConfigs and docs/config.md read.
//!
//! This room does no I/O: whoever reads the file and the environment hands the text in.

mod broker_config;
mod change;
mod describe;
pub mod explain;
mod gateway;
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
mod topic_settings;
mod topic_value;
pub mod value;

pub use broker_config::{Advertised, BrokerConfig, Http, Listener, LogDefaults, Threads};
pub use change::{RefusedChange, Scope};
pub use describe::{ConfigSource, Described, Synonym};
pub use gateway::{Anonymous, ClientKeys, Gateway, TlsFiles};
pub use layers::{Assigned, Configuration, Loaded};
pub use listener::{HostPort, Voter};
pub use near::nearest;
pub use problem::{InvalidConfiguration, Problem, Warning};
pub use sections::{
    Cleaner, FetchLimits, Followers, Groups, Membership, Network, Offsets, Producers, TopicDefaults,
};
pub use source::{Source, Sources, is_configuration_variable};
pub use topic_settings::{CompressionChoice, TopicSettings};
pub use topic_value::{InvalidTopicConfig, validate_topic};
