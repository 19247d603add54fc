//! Load on any Kafka cluster, and Kafka's performance tools by name.

pub mod load;
pub mod stamp;
pub mod tools;
pub mod web;
