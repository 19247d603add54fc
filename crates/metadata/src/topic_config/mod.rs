//! The topic configurations: one table, and what follows from it.
//!
//! [`table`] says of every key its type, default, range, broker-level synonyms and meaning;
//! [`value`] reads values as Kafka does; [`resolve`] finds the value in force and where it comes
//! from: topic, this broker's dynamic value, the cluster's dynamic default, the broker's file,
//! the default. [`settings`] is the typed result that partitions are run by.

pub mod resolve;
pub mod settings;
pub mod table;
pub mod value;

pub use resolve::{ConfigSource, DescribedConfig, DescribedSynonym, Resolver, StaticConfigs};
pub use settings::{CompressionChoice, TopicSettings};
pub use table::{ConfigKey, ConfigType, Synonym, TOPIC_CONFIGS, find};
pub use value::{ConfigError, validate};
