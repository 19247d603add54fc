//! Where a record goes: to a partition of its topic, or first to a broker and then to one of the partitions that the
//! broker prefers to lead.
//!
//! Read [`Strategy`] (the ways, by name), then [`Chooser`] (one choice among several), then [`Layout`] and
//! [`Balancer`] (broker and partition as two choices), then [`Distribution`] (what was chosen how often).
//!
//! The hashes are bit for bit those of Java, Kafka, zip and a published report: a key goes the same way from every
//! client. Chance comes from a seed, so that the same records go the same ways again.

mod balancer;
mod chooser;
mod distribution;
mod hashes;
mod layout;
mod of_topics;
mod strategy;

pub use balancer::{Balancer, Choice};
pub use chooser::{Among, Chooser};
pub use distribution::{Distribution, Row};
pub use hashes::{crc32, cs6_mod, hash_mod, java_hash_code};
pub use layout::{Layout, PartitionFacts, Share};
pub use of_topics::{OfTopics, RowError};
pub use strategy::{BrokerStrategy, Pair, Rule, Strategy};
