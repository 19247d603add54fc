//! The load engine: producers and consumers that cost little themselves, and say what was measured.
//!
//! Each producer and each consumer is a thread with a runtime of its own, so that its sender shares
//! its core and nothing is handed from one core to another. Read [`ProduceLoad`] and
//! [`ConsumeLoad`] first, then [`ProduceReport`] and [`ConsumeReport`].
//!
//! Not here: which experiments there are, how often each is run, and what the numbers mean.

mod config;
mod partition;
mod report;
mod stop;

pub use config::{ConsumeLoad, Keys, Payload, ProduceLoad, Sizes};
pub use partition::{Chooser, Strategy, cs6_mod, java_hash};
pub use report::{ConsumeReport, LATENCY_MAX_US, ProduceReport, Window, histogram};
pub use stop::Stop;
