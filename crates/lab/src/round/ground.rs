//! What a round stands on: a cluster that serves, fresh topics, perhaps a proxy or a gateway in front.

use std::path::PathBuf;

use anyhow::{Context, Result};

use experiment::workload::Workload;
use perf::load::Stop;
use proxy::Proxy;

use crate::meter::{Between, Meter};

/// What a round stands on.
pub struct Ground<'a> {
    /// Where the measured clients go: the brokers, or a proxy in front of them.
    pub clients_at: String,
    /// The brokers themselves, for what is not measured.
    pub brokers_at: String,
    /// The proxy in front of them, if there is one.
    pub proxy: Option<&'a Proxy>,
    /// The gateway in front of them, `host:port`, if there is one.
    pub gateway: Option<String>,
    /// The process of what is in front of them, for its costs.
    pub between: Option<Between>,
    /// The brokers' processes, if the lab started them.
    pub pids: Vec<u32>,
    /// Where their logs are, if so.
    pub data_folders: Vec<PathBuf>,
    /// What is asked, with a share of saturation resolved to a rate.
    pub workload: &'a Workload,
    /// Fresh topics.
    pub topics: Vec<String>,
    /// Partitions of each in all.
    pub partitions: u32,
    /// Decides everything random.
    pub seed: u64,
    /// Marks this round's records.
    pub number: u32,
    /// Whether to look for the records afterwards.
    pub verify: bool,
    /// Ends everything early.
    pub stop: Stop,
}

impl Ground<'_> {
    /// Looks at the counters of all that takes part.
    pub fn meter(&self) -> Result<Meter> {
        Meter::start_with(&self.pids, self.between)
    }

    /// Where the gateway is.
    pub fn gateway(&self) -> Result<&str> {
        self.gateway.as_deref().context("there is no gateway in front of this round's brokers")
    }

    /// How many brokers the topics are spread over where each has partitions of its own; 1 otherwise.
    pub fn spread(&self) -> u32 {
        self.partitions / self.workload.partitions.max(1)
    }

    /// What the records are marked with.
    pub fn stamp(&self) -> Option<u32> {
        self.verify.then_some(self.number)
    }
}
