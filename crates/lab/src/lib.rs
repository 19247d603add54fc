//! The performance laboratory: targets, rounds, what they cost, reports.
//!
//! From the outside: [`arguments`] says what can be typed, [`run`](run::run) does it. A target is any Kafka; what is
//! known of experiments is in `experiment`, how load is made in `perf`, what documents look like in `report`.

pub mod admin;
pub mod arguments;
pub mod machine;
pub mod meter;
pub mod progress;
pub mod round;
pub mod store;
pub mod target;
