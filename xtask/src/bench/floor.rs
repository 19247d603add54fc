//! The least that brokers need which sync what they acknowledge, measured in the same rounds as the two seats: sockets, and
//! one synced write of the same bytes the cheapest way there is (a sink of the load engine does just that, under the same
//! load of the same client); and what the device takes from three writers, without sockets or brokers.

use std::fs;
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use peer::highwater::free_port;
use peer::process::{self, Guarded};
use tempfile::TempDir;

use super::figures::Figures;
use super::load::build_ours;
use super::meter::{Meter, settle};
use super::rows::{Paced, Produce};
use super::work::paced_load;

/// How long the sink may take to make its file and to listen.
const START_LIMIT: Duration = Duration::from_secs(60);

/// What a row is compared with beside the other seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Floor {
    /// [`measure`]
    Sink(Paced),
    /// [`device`]
    Device(Produce),
}

impl Floor {
    /// Measures it; with the name that the table has for it.
    pub fn measure(self, meter: &Meter) -> Result<(&'static str, Figures)> {
        Ok(match self {
            Floor::Sink(shape) => (NAME, measure(meter, &shape)?),
            Floor::Device(shape) => (DEVICE, device(&shape)?),
        })
    }
}

/// How the table names [`measure`].
pub const NAME: &str = "the floor: sockets and a synced write";

/// Runs the load of a row into a sink that syncs.
fn measure(meter: &Meter, shape: &Paced) -> Result<Figures> {
    let folder = tempfile::Builder::new().prefix("floor-").tempdir()?;
    let port = free_port()?;
    let mut sink = start(&folder, port)?;
    settle();
    let bootstrap = format!("127.0.0.1:{port}");
    let figures = meter.run(&[sink.pid()], &paced_load(&bootstrap, "floor", shape));
    sink.kill()?;
    figures
}

/// How the table names [`device`].
pub const DEVICE: &str = "three synced writers";

/// Writers at once: one for each replica.
const WRITERS: u64 = 3;
/// How long they write.
const WRITTEN_FOR: Duration = Duration::from_secs(5);

/// What each of three writers reaches that append as many bytes as a batch has and sync them, again and again, each to a
/// file of its own: a cluster whose replicas share the device cannot be faster with one sync a batch.
fn device(shape: &Produce) -> Result<Figures> {
    let folder = tempfile::Builder::new().prefix("floor-").tempdir()?;
    settle();
    let begun = Instant::now();
    let write = |number: u64| -> Result<u64> {
        let mut file = fs::File::create(folder.path().join(number.to_string()))?;
        let batch = vec![0x5A; usize::try_from(shape.batch_bytes)?];
        let mut written = 0;
        while begun.elapsed() < WRITTEN_FOR {
            file.write_all(&batch)?;
            file.sync_data()?;
            written += shape.batch_bytes;
        }
        Ok(written)
    };
    let written: Result<u64> = thread::scope(|scope| {
        let writers: Vec<_> =
            (0..WRITERS).map(|number| scope.spawn(move || write(number))).collect();
        writers.into_iter().map(|writer| writer.join().expect("a writer panicked")).sum()
    });
    let each_per_s = written? as f64 / WRITERS as f64 / begun.elapsed().as_secs_f64();
    Ok(Figures::from([
        ("mib_per_s".to_owned(), each_per_s / 1_048_576.0),
        ("records_per_s".to_owned(), each_per_s / shape.record_bytes as f64),
    ]))
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
