//! The load engine: producers and consumers that cost little themselves, and say what was measured.
//!
//! Each producer and each consumer is a thread with a runtime of its own, so that its sender shares
//! its core and nothing is handed from one core to another. Over HTTP, [`post`] produces and [`subscribe`] reads. Read [`ProduceLoad`] and
//! [`ConsumeLoad`] first, then [`ProduceReport`] and [`ConsumeReport`]; of the code, `produce`.
//!
//! Not here: which experiments there are, how often each is run, and what the numbers mean.

mod clock;
mod config;
mod consume;
mod merge;
mod post;
mod produce;
mod push;
mod recorder;
mod report;
mod run;
mod sink;
mod stop;
mod synced_file;
mod values;
mod verify;

pub use config::{ConsumeLoad, Keys, Payload, ProduceLoad, Sizes};
pub use post::{PostLoad, PostReport, Steps, post};
pub use push::{PushForm, PushLoad, PushReport, pushed, subscribe};
pub use report::{ConsumeReport, LATENCY_MAX_US, ProduceReport, Window, histogram};
pub use run::{both, consume, produce};
pub use serving::choice::Strategy;
pub use sink::Sink;
pub use stop::Stop;
pub use values::Values;
pub use verify::{verify, verify_findings};

use client::ClientError;

/// Why there is no report.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The load makes no sense.
    #[error("{0}")]
    Usage(String),
    /// The cluster, before anything could be measured, or for good.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A strategy chose a partition that the topic does not have.
    #[error("{topic} has no partition {partition}")]
    NoPartition {
        /// The topic.
        topic: String,
        /// The partition that was chosen.
        partition: i32,
    },
    /// The operating system.
    #[error("{0}")]
    System(String),
    /// Another producer or consumer of the load failed before the beginning.
    #[error("another client of the load could not begin")]
    GivenUp,
}

/// The runtime of one producer or consumer.
fn runtime() -> Result<tokio::runtime::Runtime, LoadError> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(|error| LoadError::System(error.to_string()))
}
