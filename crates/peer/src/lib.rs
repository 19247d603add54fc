//! Brokers beside us as processes: Apache Kafka from Maven Central and Highwater itself, started, measured,
//! stopped. Nothing here knows what is asked of them.

pub mod apache_kafka;
pub mod apt;
pub mod cache;
pub mod download;
pub mod highwater;
pub mod host;
pub mod memory;
pub mod ports;
pub mod process;
pub mod procfs;
pub mod scratch;
