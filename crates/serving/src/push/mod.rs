//! Records over WebSocket, in the shape of Apache Pulsar's endpoints, decided on values: which message is meant
//! ([`message_id`]), what clients are told ([`frame`]), what they ask for in the target ([`query`]), which records are
//! acknowledged ([`tracker`]) and how many more a client takes ([`credit`]).
//!
//! A message is a record of Kafka; its id names topic, partition and offset. Acknowledgements of single messages become
//! offsets of a consumer group: the lowest that is not acknowledged in each partition.
//!
//! Not here: sockets, what clients say, who fetches.

pub mod credit;
pub mod frame;
pub mod message_id;
pub mod query;
pub mod tracker;

pub use credit::Credit;
pub use frame::Dialect;
pub use message_id::MessageId;
pub use query::{ConsumerQuery, ReaderQuery, Subscription};
pub use tracker::Tracker;
