//! A whole data folder, stopped cleanly or killed, damaged in one place at a time: one bit, one cut or one file. Started on it,
//! twice, the broker may serve what it served before, or refuse in words; and of bytes that it hands out unread a consumer's
//! checksum may tell. Anything else is believed damage, and the trial fails.

mod folder;
mod harm;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use peer::highwater::{self, Server};

use crate::picture::{Difference, Picture};
use crate::requests::{PATIENCE, runtime};
use folder::GROUPS;
use folder::make_with_adopted;
pub use folder::{Stopped, make as make_folder};
use harm::Harm;

/// Settings of every start: nothing may change by itself between two looks.
const SETTINGS: [(&str, &str); 3] = [
    ("log.cleaner.enable", "false"),
    ("log.retention.check.interval.ms", "3600000"),
    ("offsets.retention.minutes", "100000000"),
];

/// What to do.
#[derive(clap::Args)]
pub struct Arguments {
    /// The program
    #[arg(long)]
    binary: PathBuf,
    /// Damages for each of the two folders; at least one for every file
    #[arg(long, default_value_t = 500)]
    count: usize,
    /// Decides where; by lot, and printed, if it is not given
    #[arg(long)]
    seed: Option<u64>,
    /// Brokers at the same time; by the number of cores if it is not given
    #[arg(long)]
    jobs: Option<usize>,
    /// Only files whose path contains this
    #[arg(long, default_value = "")]
    only: String,
    /// Keep the folder of each trial that fails, here
    #[arg(long)]
    keep: Option<PathBuf>,
}

/// How a damaged folder was received.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    AsBefore,
    ConsumerTells,
    /// Some of it; the rest is served.
    RefusedInPart,
    /// The start, with a message.
    RefusedAtStart,
    Wrong(String),
}

/// Makes both folders and damages them.
pub fn run(arguments: &Arguments) -> Result<()> {
    let seed = arguments.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    println!("damage: seed {seed}");
    let mut failed = 0;
    for stopped in [Stopped::Cleanly, Stopped::Killed] {
        failed += damage_one(arguments, seed, stopped)?;
    }
    ensure!(failed == 0, "{failed} damages were believed, or refused without a word");
    Ok(())
}

fn damage_one(arguments: &Arguments, seed: u64, stopped: Stopped) -> Result<usize> {
    let scratch = tempfile::Builder::new().prefix("highwater-damage-").tempdir()?;
    let original = scratch.path().join("original");
    make_with_adopted(&arguments.binary, &original, stopped)?;
    let before = undamaged(arguments, &original, scratch.path())?;
    let mut random = fastrand::Rng::with_seed(seed);
    let harms = harm::choose(&original, arguments.count, &arguments.only, &mut random)?;
    println!(
        "damage: {stopped:?}: {} batches in {} files, {} damages",
        before.batch_count(),
        harm::files(&original)?.len(),
        harms.len()
    );
    let found = try_all(arguments, &original, scratch.path(), &before, &harms)?;
    Ok(report(stopped, &found))
}

/// A broker that refuses a group for seconds leaves a core idle: two for each.
fn jobs(arguments: &Arguments) -> usize {
    let cores = || std::thread::available_parallelism().map_or(2, |cores| 2 * cores.get());
    arguments.jobs.unwrap_or_else(cores)
}

/// The picture of the folder as it is, which must be the same at a second start.
fn undamaged(arguments: &Arguments, original: &Path, scratch: &Path) -> Result<Picture> {
    let copy = scratch.join("undamaged");
    harm::copy(original, &copy)?;
    let first = look(&arguments.binary, &copy, true)?;
    let second = look(&arguments.binary, &copy, false)?;
    let log = fs::read_to_string(copy.with_extension("log")).unwrap_or_default();
    ensure!(first.is_whole(), "the undamaged folder is not served whole: {first}\n{log}");
    ensure!(first == second, "two starts on the undamaged folder differ");
    fs::remove_dir_all(&copy)?;
    Ok(first)
}

fn try_all(
    arguments: &Arguments,
    original: &Path,
    scratch: &Path,
    before: &Picture,
    harms: &[Harm],
) -> Result<Vec<(Harm, Outcome)>> {
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::new());
    let work = |job: usize| -> Result<()> {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(harm) = harms.get(at) else { return Ok(()) };
            let copy = scratch.join(format!("damaged-{job}"));
            let outcome = try_one(arguments, original, &copy, before, harm)
                .with_context(|| format!("{harm}"))?;
            found.lock().unwrap_or_else(PoisonError::into_inner).push((harm.clone(), outcome));
        }
    };
    std::thread::scope(|scope| {
        let jobs: Vec<_> = (0..jobs(arguments)).map(|job| scope.spawn(move || work(job))).collect();
        jobs.into_iter().try_for_each(|job| match job.join() {
            Ok(done) => done,
            Err(_) => bail!("a trial panicked"),
        })
    })?;
    Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Two starts: what the first one leaves behind must not be believed by the second.
fn try_one(
    arguments: &Arguments,
    original: &Path,
    copy: &Path,
    before: &Picture,
    harm: &Harm,
) -> Result<Outcome> {
    let log = copy.with_extension("log");
    let _none = fs::remove_file(&log);
    harm::copy(original, copy)?;
    harm.apply(copy)?;
    let first = outcome(before, look(&arguments.binary, copy, harm.is_odd()), &log);
    let second = outcome(before, look(&arguments.binary, copy, true), &log);
    let mut worst = first.max(second);
    let words = fs::read_to_string(&log).unwrap_or_default();
    if words.contains("panicked") {
        worst = Outcome::Wrong(format!("a panic: {}", last_line_with(&words, "panicked")));
    }
    if matches!(worst, Outcome::RefusedInPart) && !words.contains("ERROR") {
        worst = Outcome::Wrong("refused in part without a word in the log".to_owned());
    }
    if let (Outcome::Wrong(_), Some(keep)) = (&worst, &arguments.keep) {
        let at = keep.join(harm.slug());
        harm::copy(original, &at)?;
        harm.apply(&at)?;
        fs::copy(&log, at.with_extension("log"))?;
    }
    fs::remove_dir_all(copy)?;
    Ok(worst)
}

fn outcome(before: &Picture, looked: Result<Picture>, log: &Path) -> Outcome {
    match looked {
        Ok(after) => match before.compare(&after) {
            Difference::AsBefore => Outcome::AsBefore,
            Difference::ConsumerTells => Outcome::ConsumerTells,
            Difference::Refused => Outcome::RefusedInPart,
            Difference::Wrong(reason) => Outcome::Wrong(reason),
        },
        Err(error) => {
            let (told, words) = (format!("{error:#}"), fs::read_to_string(log).unwrap_or_default());
            let refused = told.contains("ended at start") && words.contains("error:");
            if refused { Outcome::RefusedAtStart } else { Outcome::Wrong(told) }
        }
    }
}

/// Whether the broker ends by itself, given time to say why.
fn has_ended(server: &mut Server) -> bool {
    let begun = Instant::now();
    while server.is_running() && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(10));
    }
    !server.is_running()
}

fn last_line_with(text: &str, word: &str) -> String {
    text.lines().rfind(|line| line.contains(word)).unwrap_or_default().to_owned()
}

/// Starts the broker, asks about everything, and stops it cleanly or kills it.
pub fn look(binary: &Path, data: &Path, clean: bool) -> Result<Picture> {
    let mut server: Server = highwater::start(binary, data, 0, &SETTINGS)?;
    let log = data.with_extension("log");
    let has_told = || fs::read_to_string(&log).is_ok_and(|words| words.contains("ERROR"));
    let picture = runtime()?.block_on(Picture::take(&server.bootstrap(), &GROUPS, &has_told));
    // It listens before it has read everything that it may refuse to start with.
    if picture.is_err() && has_ended(&mut server) {
        bail!("highwater ended at start:\n{}", server.last_words());
    }
    match clean {
        true => server.stop()?,
        false => server.kill()?,
    }
    picture
}

/// Prints the counts and every damage that was believed; gives their number.
fn report(stopped: Stopped, found: &[(Harm, Outcome)]) -> usize {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (harm, outcome) in found {
        let name = match outcome {
            Outcome::AsBefore => "as before",
            Outcome::ConsumerTells => "a consumer's checksum tells",
            Outcome::RefusedInPart => "refused in part",
            Outcome::RefusedAtStart => "the start refused",
            Outcome::Wrong(reason) => {
                println!("damage: {stopped:?}: WRONG: {harm}: {reason}");
                "wrong"
            }
        };
        *counts.entry(name).or_default() += 1;
    }
    println!("damage: {stopped:?}: {} damages: {counts:?}", found.len());
    counts.get("wrong").copied().unwrap_or(0)
}
