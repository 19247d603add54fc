//! Loss of power, for real: ext4 file systems on loop devices are shut down under load without flushing their journals, so that
//! everything is gone that was not synced; then they are mounted again, brokers are started on what is left, and every record
//! that was acknowledged is looked for. The brokers are paused just before, as a power failure ends them: a sync that is under
//! way when the file system is shut down may succeed though none of it lasts, and must not be acknowledged.
//!
//! With `durability=fsync` none may be missing. With `page-cache` some must be: if none were, the trial would not bite.
//! [`alone`] is about one broker, [`together`] about a cluster of which all brokers lose power at once.

mod alone;
mod together;

use std::path::PathBuf;

use anyhow::Result;

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
