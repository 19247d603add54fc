//! Loss of power, for real: ext4 file systems on loop devices are shut down under load without flushing their journals, so that
//! everything is gone that was not synced; then they are mounted again, brokers are started on what is left, and every record
//! that was acknowledged is looked for. The brokers are stopped just before, as a power failure stops them: they acknowledge
//! nothing that a file system told them while this was being shut down.
//!
//! With `durability=fsync` none may be missing. With `page-cache` some must be: if none were, the trial would not bite.
//! [`alone`] is about one broker, [`together`] about a cluster of which all brokers lose power at once.

mod alone;
mod together;

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use peer::procfs;
use rustix::process::{Pid, Signal, kill_process};

use crate::requests::PATIENCE;
use crate::volume;

/// What to do.
#[derive(clap::Args)]
pub struct Arguments {
    /// The program
    #[arg(long)]
    binary: PathBuf,
    /// Power failures of each kind
    #[arg(long, default_value_t = 10)]
    rounds: u64,
    /// Decides when the power fails
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many brokers lose power at once: 1, or from 3 on a cluster with a replica of everything on each
    #[arg(long, default_value_t = 1)]
    brokers: usize,
}

/// Fails the power, of one broker or of all.
pub fn run(arguments: &Arguments) -> Result<()> {
    if let Some(lacking) = volume::lacking() {
        println!("powerloss: skipped, it needs {lacking}");
        return Ok(());
    }
    match arguments.brokers {
        1 => alone::run(arguments),
        0 | 2 | 10.. => {
            anyhow::bail!("invalid number of brokers {}: 1, or 3 to 9", arguments.brokers)
        }
        _ => together::run(arguments),
    }
}

/// Stops processes where they are. A sync that is under way when the file system is shut down may succeed though nothing of
/// it lasts: ext4 notes the place of the data behind the write, and whoever waits is not told that it could
/// not. Where the power fails nobody is left to believe that.
fn stop_still(pids: &[u32]) -> Result<()> {
    for pid in pids {
        let id = i32::try_from(*pid).ok().and_then(Pid::from_raw).context("no id of a process")?;
        kill_process(id, Signal::STOP)?;
    }
    let deadline = Instant::now() + PATIENCE;
    for pid in pids {
        while !procfs::stands_still(*pid)? {
            ensure!(Instant::now() < deadline, "process {pid} is not stopped within {PATIENCE:?}");
            thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(())
}
