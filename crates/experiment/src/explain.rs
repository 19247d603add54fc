//! Why numbers are what they are: a link's cap, a client that is busy, a timer, a queue. Each explainer looks at
//! numbers alone and gives a sentence with them, or nothing.

use crate::definition::Levels;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One thing that explains some cells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The experiment's id.
    pub experiment: String,
    /// The target; empty for published numbers.
    pub target: String,
    /// What it is.
    pub cause: Cause,
    /// The cells it is about; empty: all of the experiment's.
    pub cells: Vec<Levels>,
    /// For the report, with the numbers.
    pub sentence: String,
    /// The numbers by name.
    pub numbers: BTreeMap<String, f64>,
}

/// What may limit a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Bytes per second that something lets through.
    LinkCap,
    /// The driving client had no more to give.
    ClientBound,
    /// Brokers and client together used the whole machine.
    MachineBound,
    /// Something waits for a tick.
    QuantisedTimer,
    /// Records waited in the producer's own buffer.
    ClientQueue,
    /// Another guest of the machine took its time.
    NoisyNeighbour,
    /// The processor slowed down.
    Thermal,
}
