//! Experiments as data, and what may be concluded from their rounds. Pure: nothing is run here.
//!
//! A [`definition::Report`] (one TOML file in `reports/`) holds a published report's experiments: their factors,
//! rows, claims and how they are run in little or much time. [`workload::Workload`] is what one cell asks of a
//! target. [`round::Round`] is what was measured, one line of `rounds.jsonl`. [`catalogue`] holds the definitions,
//! [`plan`] says in which order they are run, [`claims`] how what was observed then stands now. Not here:
//! targets, clocks, files (`lab`), pictures (`report`), mathematics (`stats`).

pub mod analysis;
pub mod catalogue;
pub mod claims;
pub mod compare;
pub mod definition;
pub mod environment;
pub mod explain;
pub mod failover;
pub mod plan;
pub mod round;
pub mod seek;
pub mod warm_up;
pub mod workload;
