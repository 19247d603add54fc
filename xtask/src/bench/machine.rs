//! The machine that was measured on, for the head of every table.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::figures::median;
use peer::procfs;

/// How many syncs are timed, and for how long at most.
const SYNCS: usize = 200;
const SYNC_LIMIT: Duration = Duration::from_secs(8);

/// What a reader needs to know to judge a figure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// Model and number of cores.
    pub cpu: String,
    /// All memory, in MiB.
    pub memory_mib: f64,
    /// Release of the kernel.
    pub kernel: String,
    /// File system and device of the data folders.
    pub disk: String,
    /// Median time of appending 4 KiB and `fdatasync`, in milliseconds.
    pub fdatasync_ms_median: f64,
    /// The slowest one in a hundred.
    pub fdatasync_ms_p99: f64,
}

impl Machine {
    /// Looks at the machine, and times the disk under `folder`.
    pub fn look(folder: &Path) -> Result<Machine> {
        let mut syncs = sync_times_ms(folder)?;
        syncs.sort_by(f64::total_cmp);
        let p99 = syncs[(syncs.len() - 1) * 99 / 100];
        Ok(Machine {
            cpu: cpu()?,
            memory_mib: procfs::total_mib()?,
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            disk: disk(folder)?,
            fdatasync_ms_median: median(&syncs),
            fdatasync_ms_p99: p99,
        })
    }

    /// One line of prose.
    pub fn describe(&self) -> String {
        format!(
            "{}, {:.0} GiB, Linux {}, {}, fdatasync of 4 KiB {:.2} ms (p99 {:.2} ms)",
            self.cpu,
            self.memory_mib / 1024.0,
            self.kernel,
            self.disk,
            self.fdatasync_ms_median,
            self.fdatasync_ms_p99
        )
    }
}

fn cpu() -> Result<String> {
    let text = fs::read_to_string("/proc/cpuinfo")?;
    let named = |line: &&str| line.starts_with("model name");
    let model = text.lines().find(named).and_then(|line| line.split_once(": "));
    let model = model.map_or("unknown CPU", |(_, name)| name);
    Ok(format!("{} × {model}", thread::available_parallelism()?))
}

/// The mount that `folder` lies in: the longest one that is a prefix.
fn disk(folder: &Path) -> Result<String> {
    let folder = folder.canonicalize()?;
    let mounts = fs::read_to_string("/proc/mounts")?;
    let rows = mounts.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let holding = rows.filter(|row| row.len() > 2 && folder.starts_with(row[1]));
    let row = holding.max_by_key(|row| row[1].len()).context("no mount holds the data folder")?;
    let device = row[0].rsplit('/').next().unwrap_or(row[0]);
    Ok(format!("{} on {device}", row[2]))
}

fn sync_times_ms(folder: &Path) -> Result<Vec<f64>> {
    let path = folder.join("fdatasync");
    let mut file = File::create(&path)?;
    let begin = Instant::now();
    let mut times = Vec::with_capacity(SYNCS);
    while times.is_empty() || (times.len() < SYNCS && begin.elapsed() < SYNC_LIMIT) {
        let start = Instant::now();
        file.write_all(&[7; 4096])?;
        file.sync_data()?;
        times.push(start.elapsed().as_secs_f64() * 1000.0);
    }
    fs::remove_file(path)?;
    Ok(times)
}
