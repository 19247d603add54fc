//! What a round costs: CPU of brokers, clients and what stands between them, memory, disk, and what the host took away.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::thread;
use std::time::Instant;

use anyhow::Result;
use peer::procfs;
use rustix::time::{ClockId, clock_gettime};

/// What the columns of a gateway are called.
pub const GATEWAY: &str = "gateway";
/// And those of a proxy.
pub const PROXY: &str = "proxy";
/// Bytes in the GB of CPU-seconds per GB, as in the comparison with Apache Kafka.
const GB: f64 = 1e9;

/// A process between clients and brokers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Between {
    /// What its columns are called: `gateway` or `proxy`.
    pub name: &'static str,
    /// Its process.
    pub pid: u32,
}

/// Counters at the beginning of a round.
pub struct Meter {
    pids: Vec<u32>,
    between: Option<Between>,
    between_cpu_s: f64,
    began: Instant,
    brokers_cpu_s: f64,
    own_cpu_s: f64,
    steal_s: f64,
    busy_s: f64,
}

/// What was used between two looks.
#[derive(Debug, Clone, Copy)]
pub struct Used {
    /// Seconds between.
    pub elapsed_s: f64,
    /// CPU seconds of the brokers; `None` if they are not on this machine.
    pub brokers_cpu_s: Option<f64>,
    /// CPU seconds of this process.
    pub own_cpu_s: f64,
    /// CPU seconds that the hypervisor withheld, by those that there were.
    pub steal_share: f64,
    /// CPU seconds that all processes used, by those that there were.
    pub busy_share: f64,
    /// Memory of the brokers now, MiB.
    pub brokers_rss_mib: Option<f64>,
    /// What the process between clients and brokers used.
    pub between: Option<UsedBetween>,
}

/// What a process between clients and brokers used.
#[derive(Debug, Clone, Copy)]
pub struct UsedBetween {
    /// What its columns are called.
    pub name: &'static str,
    /// CPU seconds.
    pub cpu_s: f64,
    /// Memory now, MiB; 0 if nobody tells.
    pub rss_mib: f64,
}

impl Meter {
    /// Looks at the counters of brokers, and of this process.
    pub fn start(pids: &[u32]) -> Result<Meter> {
        Meter::start_with(pids, None)
    }

    /// Looks at the counters, those of a process between clients and brokers too.
    pub fn start_with(pids: &[u32], between: Option<Between>) -> Result<Meter> {
        let (busy_s, steal_s) = procfs::machine_cpu_s()?;
        Ok(Meter {
            pids: pids.to_vec(),
            between,
            between_cpu_s: between.map_or(Ok(0.0), |between| procfs::cpu_s(between.pid))?,
            began: Instant::now(),
            brokers_cpu_s: cpu_s(pids)?,
            own_cpu_s: own_cpu_s(),
            steal_s,
            busy_s,
        })
    }

    /// Looks again.
    pub fn used(&self) -> Result<Used> {
        let elapsed_s = self.began.elapsed().as_secs_f64();
        let (busy_s, steal_s) = procfs::machine_cpu_s()?;
        let cores = thread::available_parallelism().map_or(1, usize::from) as f64;
        let local = !self.pids.is_empty();
        let resident: Vec<f64> =
            self.pids.iter().filter_map(|pid| procfs::resident_mib(*pid).ok()).collect();
        Ok(Used {
            elapsed_s,
            brokers_cpu_s: if local { Some(cpu_s(&self.pids)? - self.brokers_cpu_s) } else { None },
            own_cpu_s: own_cpu_s() - self.own_cpu_s,
            steal_share: (steal_s - self.steal_s) / (elapsed_s * cores),
            busy_share: (busy_s - self.busy_s) / (elapsed_s * cores),
            brokers_rss_mib: local.then(|| resident.iter().sum()),
            between: self.between.map(|between| self.used_between(between)).transpose()?,
        })
    }

    fn used_between(&self, Between { name, pid }: Between) -> Result<UsedBetween> {
        let cpu_s = procfs::cpu_s(pid)? - self.between_cpu_s;
        Ok(UsedBetween { name, cpu_s, rss_mib: procfs::resident_mib(pid).unwrap_or(0.0) })
    }
}

/// What puts a value under its name, if it is a number.
fn into(metrics: &mut BTreeMap<String, f64>) -> impl FnMut(&str, f64) {
    |name, value| {
        if value.is_finite() {
            metrics.insert(name.to_owned(), value);
        }
    }
}

impl Used {
    /// As metrics of a round of so many records and bytes of values.
    pub fn into_metrics(self, records: u64, bytes: u64, metrics: &mut BTreeMap<String, f64>) {
        self.put_shares(metrics);
        let (million, gb) = (records as f64 / 1e6, bytes as f64 / GB);
        let mut put = into(metrics);
        if let Some(cpu_s) = self.brokers_cpu_s {
            put("broker_cpu_s_per_mrec", cpu_s / million);
            put("broker_cpu_s_per_gb", cpu_s / gb);
        }
        put("client_cpu_s_per_mrec", self.own_cpu_s / million);
        if let Some(between) = self.between {
            put(&format!("{}_cpu_s_per_mrec", between.name), between.cpu_s / million);
        }
    }

    /// As metrics of a round of so many requests that carry no records.
    pub fn into_request_metrics(self, requests: u64, metrics: &mut BTreeMap<String, f64>) {
        self.put_shares(metrics);
        let million = requests as f64 / 1e6;
        let mut put = into(metrics);
        if let Some(cpu_s) = self.brokers_cpu_s {
            put("broker_cpu_s_per_mreq", cpu_s / million);
        }
        put("client_cpu_s_per_mreq", self.own_cpu_s / million);
    }

    /// What does not depend on how much was done.
    fn put_shares(&self, metrics: &mut BTreeMap<String, f64>) {
        let cores = thread::available_parallelism().map_or(1, usize::from) as f64;
        let mut put = into(metrics);
        if let Some(cpu_s) = self.brokers_cpu_s {
            put("broker_cpu_share", cpu_s / (self.elapsed_s * cores));
        }
        if let Some(mib) = self.brokers_rss_mib {
            put("broker_rss_mib", mib);
        }
        if let Some(between) = self.between.filter(|between| between.name == GATEWAY) {
            put("gateway_cpu_share", between.cpu_s / (self.elapsed_s * cores));
            put("gateway_rss_mib", between.rss_mib);
        }
        put("steal_share", self.steal_share);
        put("machine_busy_share", self.busy_share);
        if let Some(mhz) = procfs::cpu_mhz() {
            put("machine_mhz", mhz);
        }
    }
}

/// CPU seconds of processes.
fn cpu_s(pids: &[u32]) -> Result<f64> {
    pids.iter().map(|pid| procfs::cpu_s(*pid)).sum()
}

/// CPU seconds of this process, to the nanosecond.
fn own_cpu_s() -> f64 {
    seconds(ClockId::ProcessCPUTime)
}

/// CPU seconds of this thread, to the nanosecond.
pub fn thread_cpu_s() -> f64 {
    seconds(ClockId::ThreadCPUTime)
}

fn seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The topic's bytes on the disk by bytes of values.
pub fn disk_per_byte(data_folders: &[PathBuf], topics: &[String], bytes: u64) -> Option<f64> {
    let on_disk: u64 =
        topics.iter().map(|topic| crate::target::disk_bytes(data_folders, topic)).sum();
    (on_disk > 0 && bytes > 0).then(|| on_disk as f64 / bytes as f64)
}
