//! What a program counts of itself, and how that is shown to Prometheus: plain atomics, and the OpenMetrics text made of
//! them when somebody looks. Nothing here knows what is counted, and nothing listens: whoever has something to show is a
//! [`Source`].

mod counters;
pub mod documented;
mod families;
pub mod process;
mod source;

pub use counters::{ByReason, Counter, Durations, Level, Raised, Reason};
pub use families::{Families, Labels, Row, quantile};
pub use source::{CONTENT_TYPE, Source, Sources, text};
