//! The least that a broker needs which syncs what it acknowledges: sockets, and one synced write of the
//! same bytes the cheapest way there is. A sink of the load engine does just that; the same client
//! sends it the same load, in the same rounds as the two seats.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use peer::highwater::free_port;
use peer::process::{self, Guarded};
use tempfile::TempDir;

use super::figures::Figures;
use super::load::build_ours;
use super::meter::{Meter, settle};
use super::rows::Paced;
use super::work::paced_load;

/// How long the sink may take to make its file and to listen.
const START_LIMIT: Duration = Duration::from_secs(60);

/// How the table names it.
pub const NAME: &str = "the floor: sockets and a synced write";

/// Runs the load of a row into a sink that syncs.
pub fn measure(meter: &Meter, shape: &Paced) -> Result<Figures> {
    let folder = tempfile::Builder::new().prefix("floor-").tempdir()?;
    let port = free_port()?;
    let mut sink = start(&folder, port)?;
    settle();
    let bootstrap = format!("127.0.0.1:{port}");
    let figures = meter.run(sink.pid(), &paced_load(&bootstrap, "floor", shape));
    sink.kill()?;
    figures
}

fn start(folder: &TempDir, port: u16) -> Result<Guarded> {
    let said = folder.path().join("output");
    let mut command = process::command(build_ours()?);
    command.args(["--sink-at", &format!("127.0.0.1:{port}")]);
    command.arg("--sync-into").arg(folder.path().join("synced"));
    command.stderr(fs::File::create(&said)?);
    let mut sink = Guarded::spawn(&mut command)?;
    let words = || format!("the sink said: {}", fs::read_to_string(&said).unwrap_or_default());
    sink.wait_until_listening(port, START_LIMIT).with_context(words)?;
    Ok(sink)
}
