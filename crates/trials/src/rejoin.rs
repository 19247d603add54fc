//! How soon a broker is in sync again: one of three is killed with gigabytes of log while a load goes on, and started again; then
//! it is killed and its data folder removed, and it is filled again. In the end every record is read, and all replicas
//! hold the same bytes.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use peer::highwater::Cluster;
use perf::load::{self, ProduceLoad, Sizes, Stop};

use crate::ledger::{self, Line, Writing};
use crate::replicas;

/// How many brokers, with a replica of everything on each.
const BROKERS: usize = 3;
/// The topic that is large, and the one that is written to while the broker is away.
const LARGE: (&str, i32) = ("large", 6);
const LIVE: (&str, i32) = ("live", 6);
/// Lengths of the values that make the log large, in bytes.
const VALUE_BYTES: u32 = 4_096;
/// How long anything may take that has no bar.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long the producers of the small load try.
const LASTING: Duration = Duration::from_secs(120);
/// Records that are acknowledged while the broker is away, at least.
const SOME: u64 = 2_000;

/// What to do.
#[derive(clap::Args)]
pub struct Arguments {
    /// The program
    #[arg(long)]
    binary: PathBuf,
    /// How much log each broker holds, in GB; three times as much room is needed
    #[arg(long, default_value_t = 5.0)]
    gigabytes: f64,
    /// Within how many seconds a broker that was killed must be in sync again
    #[arg(long, default_value_t = 5.0)]
    within: f64,
    /// Which broker, 1 to 3
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=3))]
    broker: u8,
    /// Where the data folders go; the system's folder for temporary files if not given
    #[arg(long)]
    folder: Option<PathBuf>,
}

/// When a broker that was started had come how far.
struct Times {
    /// It listens: logs are recovered, and it has the metadata.
    serves: Duration,
    /// It is in sync in every partition.
    in_sync: Duration,
}

/// Kills and wipes a broker.
pub fn run(arguments: &Arguments) -> Result<()> {
    let scratch = match &arguments.folder {
        Some(folder) => tempfile::tempdir_in(folder)?,
        None => tempfile::tempdir()?,
    };
    let folders: Vec<PathBuf> =
        (1..=BROKERS).map(|id| scratch.path().join(format!("broker-{id}"))).collect();
    let mut cluster = Cluster::new(&arguments.binary, &folders, &[])?;
    cluster.start_all()?;
    let lines = replicas::create_topics(&cluster.bootstrap(), &[LARGE, LIVE], BROKERS, &[])?;
    let acknowledged = fill(&cluster, arguments.gigabytes)?;
    replicas::wait_until_all_in_sync(&mut cluster, &lines, PATIENCE)?;
    let of_live: Vec<Line> = lines.iter().filter(|line| line.0 == LIVE.0).cloned().collect();
    let writing = Writing::begin(&cluster.bootstrap(), of_live.clone(), LASTING);
    writing.wait_for_more(SOME)?;
    let victim = usize::from(arguments.broker) - 1;
    let log_bytes = folder_bytes(&folders[victim])?;
    let mut away = Away { cluster: &mut cluster, victim, lines: &lines, writing: &writing };
    let killed = away.comes_back(|_| Ok(()))?;
    println!(
        "rejoin: broker {} of {BROKERS}, {log_bytes} bytes of log, killed: serves after {:.2?}, in sync after {:.2?}",
        arguments.broker, killed.serves, killed.in_sync
    );
    let wiped = away.comes_back(|folder| Ok(fs::remove_dir_all(folder)?))?;
    println!(
        "rejoin: broker {} of {BROKERS}, its folder removed: serves after {:.2?}, in sync after {:.2?}, {:.0} MB/s",
        arguments.broker,
        wiped.serves,
        wiped.in_sync,
        log_bytes as f64 / 1e6 / wiped.in_sync.as_secs_f64()
    );
    let ledger = writing.finish()?;
    let verdict = ledger.judge(&ledger::read_back(&cluster.bootstrap(), &of_live)?);
    let large = load::verify(&cluster.bootstrap(), &acknowledged, Duration::from_secs(10))?;
    cluster.stop()?;
    let size_bytes = replicas::compare(&cluster, &lines)?;
    println!("rejoin: meanwhile {verdict}; before {large:?}; {size_bytes} bytes alike");
    ensure!(verdict.is_clean() && large.is_clean(), "records are not as they were acknowledged");
    ensure!(ledger.failures().is_none(), "records were given up: {:?}", ledger.failures());
    let within = Duration::from_secs_f64(arguments.within);
    ensure!(
        killed.in_sync <= within,
        "in sync after {:.2?} instead of {within:?}: look at the broker's log with a larger --within",
        killed.in_sync
    );
    Ok(())
}

/// Makes the log large; what was acknowledged of it.
fn fill(cluster: &Cluster, gigabytes: f64) -> Result<perf::stamp::Acknowledged> {
    let records = (gigabytes * 1e9 / f64::from(VALUE_BYTES)).ceil();
    ensure!(records >= 1.0, "invalid size {gigabytes} GB: more than 0");
    let mut load = ProduceLoad {
        producers: 2,
        sizes: Sizes::Fixed(VALUE_BYTES as usize),
        records: records as u64,
        time: Duration::ZERO,
        stamp: Some(1),
        ..ProduceLoad::new(&cluster.bootstrap(), LARGE.0)
    };
    load.producer.batch_bytes = 256 << 10;
    let began = Instant::now();
    let report = load::produce(&load, &Stop::default())?;
    ensure!(report.failed == 0, "{} records failed: {:?}", report.failed, report.errors);
    println!(
        "rejoin: {} records of {VALUE_BYTES} bytes to {BROKERS} brokers in {:.1?}",
        report.acknowledged,
        began.elapsed()
    );
    Ok(report.acknowledgements)
}

/// A broker that goes away under load.
struct Away<'a> {
    cluster: &'a mut Cluster,
    victim: usize,
    lines: &'a [Line],
    writing: &'a Writing,
}

impl Away<'_> {
    /// Kills it, has the others go on without it, does something to its folder, and starts it again.
    fn comes_back(&mut self, meanwhile: impl Fn(&Path) -> Result<()>) -> Result<Times> {
        self.cluster.kill(self.victim)?;
        let (id, other) = (self.victim as i32 + 1, (self.victim + 1) % BROKERS);
        replicas::wait_until(
            self.cluster,
            other,
            self.lines,
            PATIENCE,
            "it is out of sync",
            |leader, isr| leader > 0 && leader != id && !isr.contains(&id),
        )?;
        self.writing.wait_for_more(SOME)?;
        meanwhile(self.cluster.data_folder(self.victim))?;
        let began = Instant::now();
        self.cluster.spawn(self.victim)?;
        self.cluster.wait_until_serving(self.victim)?;
        let serves = began.elapsed();
        replicas::wait_until(
            self.cluster,
            other,
            self.lines,
            PATIENCE,
            "it is in sync again",
            |_, isr| isr.contains(&id),
        )?;
        Ok(Times { serves, in_sync: began.elapsed() })
    }
}

/// Bytes of the files of a folder and of those in it.
fn folder_bytes(folder: &Path) -> Result<u64> {
    let mut size_bytes = 0;
    for entry in fs::read_dir(folder).with_context(|| format!("no folder {}", folder.display()))? {
        let entry = entry?;
        size_bytes += match entry.file_type()?.is_dir() {
            true => folder_bytes(&entry.path())?,
            false => entry.metadata()?.len(),
        };
    }
    Ok(size_bytes)
}
