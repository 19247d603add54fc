//! The vocabulary of the field: ids, error codes and the record batch format.
//!
//! Everything here is a value. This room knows no API, no topic configuration and no file; every
//! other room speaks its words. Read [`id`] first, then [`batch`].

pub mod batch;
pub mod durability;
pub mod error_code;
pub mod fields;
pub mod id;
pub mod later_release;
pub mod level;
pub mod moment;
pub mod partitioner;
pub mod record;
pub mod topic_name;
pub mod uuid;
pub mod validation;
pub mod varint;

pub use batch::{BatchError, BatchHeader, Compression, TimestampType};
pub use durability::Durability;
pub use error_code::ErrorCode;
pub use id::{
    BrokerEpoch, BrokerId, CLUSTER_ID_BYTES_MAX, GenerationId, LeaderEpoch, Offset, PartitionIndex,
    ProducerEpoch, ProducerId, Sequence, Timestamp, TopicPartition,
};
pub use moment::Moment;
pub use uuid::{TopicId, Uuid};
pub use validation::Validation;
