//! Debian's and Ubuntu's `apt-get`, which refuses to run twice at once: whoever comes second waits.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use crate::process::{self, Outcome};
use crate::{cache, download};

/// Runs `apt-get` with these arguments in `folder`, three times at most, each time for at most `limit`, while no
/// other program of the project runs it. Returns how the last attempt ended.
///
/// # Errors
/// There is no `apt-get`, or the cache's folder cannot be written.
pub fn run(arguments: &[&str], folder: &Path, limit: Duration) -> Result<Outcome> {
    let lock = File::create(cache::folder()?.join("apt.lock"))?;
    lock.lock()?;
    let mut apt = process::command("apt-get");
    // Programs that are not the project's may be installing, too.
    apt.args(arguments).args(["-o", "DPkg::Lock::Timeout=120"]).current_dir(folder);
    apt.env("DEBIAN_FRONTEND", "noninteractive");
    download::run(&mut apt, limit)
}
