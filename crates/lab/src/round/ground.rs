//! What a round stands on: a cluster that serves, fresh topics, perhaps a proxy in front.

use std::path::PathBuf;

use experiment::workload::Workload;
use perf::load::Stop;
use proxy::Proxy;

/// What a round stands on.
pub struct Ground<'a> {
    /// Where the measured clients go: the brokers, or a proxy in front of them.
    pub clients_at: String,
    /// The brokers themselves, for what is not measured.
    pub brokers_at: String,
    /// The proxy in front of them, if there is one.
    pub proxy: Option<&'a Proxy>,
    /// The brokers' processes, if the lab started them.
    pub pids: Vec<u32>,
    /// Where their logs are, if so.
    pub data_folders: Vec<PathBuf>,
    /// What is asked, with a share of saturation resolved to a rate.
    pub workload: &'a Workload,
    /// Fresh topics.
    pub topics: Vec<String>,
    /// Partitions of each.
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
    /// What the records are marked with.
    pub fn stamp(&self) -> Option<u32> {
        self.verify.then_some(self.number)
    }
}
