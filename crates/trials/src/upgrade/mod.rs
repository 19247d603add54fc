//! An upgrade and the way back: three brokers under load change from the program of the last release to this one, back, and
//! forward again, one by one; then the levels of formats are finalized, and the earlier program must refuse what it cannot read.
//!
//! Two idempotent producers of our own client, producers of other libraries and a consumer group work all the time. Every
//! acknowledged record must be there once, in order and at its offset, on every replica.

mod future;
mod group;
mod refusal;
mod steady;
mod untouched;
mod verbs;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use peer::highwater::Cluster;

use crate::ledger::{self, Line, Mark, MarkReader, Writing};
use crate::replicas;
use crate::requests::{self, runtime};
use group::Group;
use steady::{NamedProgram, Steady};

/// Brokers, with a replica of everything on each.
const BROKERS: usize = 3;
/// Topic of our own client.
const OWN_TOPIC: &str = "own";
/// Partitions of each topic.
const PARTITIONS: i32 = 3;
/// Settings of each broker.
const SETTINGS: [(&str, &str); 4] = [
    ("default.replication.factor", "3"),
    ("min.insync.replicas", "2"),
    ("offsets.topic.num.partitions", "5"),
    ("group.initial.rebalance.delay.ms", "0"),
];
/// Small segments, so that the programs seal and open some.
const SMALL: [(&str, &str); 1] = [("internal.segment.bytes", "1000000")];
/// Time that a broker may take until all replicas are in sync again.
const RECOVERY: Duration = Duration::from_secs(180);
/// Time for which our own producers try to deliver a record.
const DELIVERY: Duration = Duration::from_secs(180);
/// Pause of our own producers between two bursts: the machine is to change programs, not to move records.
const PAUSE: Duration = Duration::from_millis(20);
/// Records of each producer after each step: a second of the steady ones.
const SOME: u64 = 100;
/// The same in the long form.
const MANY: u64 = 1_000;

/// What to do.
#[derive(clap::Args)]
pub struct Arguments {
    /// This release's program
    #[arg(long)]
    binary: PathBuf,
    /// The earlier release's program
    #[arg(long)]
    old: PathBuf,
    /// A producer of another client library, NAME=PROGRAM: the program speaks the lines of docs/lab.md; may be repeated
    #[arg(long = "client", value_name = "NAME=PROGRAM")]
    clients: Vec<NamedProgram>,
    /// Wait for fewer records between the steps
    #[arg(long)]
    quick: bool,
}

/// How a broker stops before its program changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stopping {
    /// SIGTERM.
    Orderly,
    /// SIGKILL.
    Killed,
}

/// Upgrades a cluster.
pub fn run(arguments: &Arguments) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let mut trial = Trial::start(arguments, scratch.path())?;
    let outcome = trial.perform();
    if outcome.is_err() {
        trial.print_logs();
    }
    outcome?;
    trial.judge()
}

/// A cluster under load.
struct Trial<'a> {
    arguments: &'a Arguments,
    cluster: Cluster,
    writing: Writing,
    steady: Vec<Steady>,
    group: Group,
    /// Partitions of the producers' topics.
    lines: Vec<Line>,
    /// Rounds of an operator's requests so far.
    rounds: u32,
}

impl Trial<'_> {
    /// Starts the brokers with the earlier program, and the clients.
    fn start<'a>(arguments: &'a Arguments, scratch: &Path) -> Result<Trial<'a>> {
        let folders: Vec<PathBuf> =
            (1..=BROKERS).map(|id| scratch.join(format!("broker-{id}"))).collect();
        let mut cluster = Cluster::new(&arguments.old, &folders, &SETTINGS)?;
        cluster.start_all()?;
        let bootstrap = cluster.bootstrap();
        let names = arguments.clients.iter().map(|client| client.name.as_str());
        let topics: Vec<(&str, i32)> =
            [OWN_TOPIC].into_iter().chain(names).map(|name| (name, PARTITIONS)).collect();
        let lines = replicas::create_topics(&bootstrap, &topics, BROKERS, &SMALL)?;
        replicas::wait_until_all_in_sync(&mut cluster, &lines, RECOVERY)?;
        let own = lines.iter().filter(|line| line.0 == OWN_TOPIC).cloned().collect();
        let writing = Writing::begin_at(&bootstrap, own, DELIVERY, PAUSE);
        let forms: Vec<(String, MarkReader)> =
            topics.iter().map(|(name, _)| ((*name).to_owned(), form_of(name))).collect();
        let group = Group::start(&bootstrap, &forms);
        let start = |client: &NamedProgram| {
            Steady::start(&client.name, &client.program, &bootstrap, &client.name, PARTITIONS)
        };
        let steady = arguments.clients.iter().map(start).collect::<Result<_>>()?;
        Ok(Trial { arguments, cluster, writing, steady, group, lines, rounds: 0 })
    }

    fn perform(&mut self) -> Result<()> {
        let (old, new) = (self.arguments.old.clone(), self.arguments.binary.clone());
        let before = verbs::levels(&self.cluster.bootstrap())?;
        self.exercise()?;
        self.roll(&new, Stopping::Orderly, "to this release")?;
        self.exercise()?;
        self.roll(&old, Stopping::Killed, "back to the earlier release")?;
        self.exercise()?;
        self.roll(&new, Stopping::Orderly, "to this release again")?;
        self.exercise()?;
        let found = verbs::levels(&self.cluster.bootstrap())?;
        ensure!(found == before, "levels rose without cluster finalize: {before:?} to {found:?}");
        self.finalize_with_a_stopped_broker(&old, &new)?;
        self.exercise()?;
        self.refuse_raised_folder(&old, &new)?;
        self.exercise()?;
        self.try_the_future(&new)
    }

    /// Has an operator's requests made, and waits until every producer has more acknowledgements.
    fn exercise(&mut self) -> Result<()> {
        self.rounds += 1;
        let round = self.rounds;
        verbs::exercise(&self.cluster.bootstrap(), round)
            .with_context(|| format!("requests of an operator, round {round}"))?;
        self.wait_for_more()
    }

    /// Waits until every producer has more acknowledgements.
    fn wait_for_more(&self) -> Result<()> {
        let records = if self.arguments.quick { SOME } else { MANY };
        self.writing.wait_for_more(records)?;
        self.steady.iter().try_for_each(|client| client.wait_for_more(records, RECOVERY))
    }

    /// Changes the program of one broker after the other, the active controller's last.
    fn roll(&mut self, program: &Path, stopping: Stopping, words: &str) -> Result<()> {
        let began = Instant::now();
        let mut left: Vec<usize> = (0..BROKERS).collect();
        while !left.is_empty() {
            let controller = self.controller()?;
            let at = left.iter().position(|index| *index != controller).unwrap_or(0);
            let index = left.remove(at);
            self.change_program(index, program, stopping)
                .with_context(|| format!("{words}, broker {}", index + 1))?;
            self.wait_for_more()?;
        }
        println!(
            "upgrade: {words}: {:.1?}, {} records of our own client so far",
            began.elapsed(),
            self.writing.acknowledged()
        );
        Ok(())
    }

    fn change_program(&mut self, index: usize, program: &Path, stopping: Stopping) -> Result<()> {
        match stopping {
            Stopping::Orderly => self.cluster.stop_one(index)?,
            Stopping::Killed => self.cluster.kill(index)?,
        }
        self.cluster.set_program(index, program);
        self.start_again(index)
    }

    /// Starts a broker, and waits until every replica of every topic is in sync.
    fn start_again(&mut self, index: usize) -> Result<()> {
        self.cluster.spawn(index)?;
        self.cluster.wait_until_serving(index)?;
        let lines = self.all_lines(index)?;
        replicas::wait_until_all_in_sync(&mut self.cluster, &lines, RECOVERY)?;
        Ok(())
    }

    /// Every partition, internal topics included, by the metadata of one broker.
    fn all_lines(&self, index: usize) -> Result<Vec<Line>> {
        let address = self.cluster.address(index);
        runtime()?.block_on(async {
            let connection = requests::connect(&address).await?;
            let topics = requests::metadata(&connection).await?.topics;
            let lines = topics.iter().flat_map(|topic| {
                let name = topic.name.clone().unwrap_or_default();
                let indexes = topic.partitions.iter().map(|partition| partition.partition_index);
                indexes.map(move |partition| (name.clone(), partition))
            });
            Ok(lines.collect())
        })
    }

    /// Index of the active controller's broker.
    fn controller(&self) -> Result<usize> {
        let deadline = Instant::now() + RECOVERY;
        loop {
            match verbs::controller(&self.cluster.bootstrap()) {
                Ok(Some(id)) => return Ok(usize::try_from(id - 1)?),
                found if Instant::now() >= deadline => bail!("no active controller: {found:?}"),
                Ok(None) | Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// Index of a broker that is not the active controller's.
    fn another_than_controller(&self) -> Result<usize> {
        Ok((self.controller()? + 1) % BROKERS)
    }

    /// `host:port,…` of all brokers but one.
    fn bootstrap_without(&self, index: usize) -> String {
        let others = (0..BROKERS).filter(|other| *other != index);
        others.map(|other| self.cluster.address(other)).collect::<Vec<_>>().join(",")
    }

    fn print_logs(&self) {
        for index in 0..BROKERS {
            let log = self.cluster.data_folder(index).with_extension("log");
            let text = std::fs::read_to_string(log).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let tail = lines[lines.len().saturating_sub(60)..].join("\n");
            eprintln!("== the end of the log of broker {}:\n{tail}", index + 1);
        }
    }

    /// Stops the clients, and compares their ledgers with the records on every replica.
    fn judge(self) -> Result<()> {
        let Trial { mut cluster, writing, steady, group, lines, .. } = self;
        let bootstrap = cluster.bootstrap();
        let mut ledgers = vec![(OWN_TOPIC.to_owned(), writing.finish()?)];
        for client in steady {
            ledgers.push((client.name.clone(), client.finish()?));
        }
        let reading =
            group.finish(&ledgers.iter().map(|(_, ledger)| ledger).collect::<Vec<_>>())?;
        println!(
            "upgrade: the group read every acknowledged record, {} again after a rebalance; errors: {:?}",
            reading.again, reading.errors
        );
        let mut broken = Vec::new();
        for (name, ledger) in &ledgers {
            let of_client: Vec<Line> =
                lines.iter().filter(|line| line.0 == *name).cloned().collect();
            let found = ledger::read_back_by(&bootstrap, &of_client, form_of(name))?;
            let verdict = ledger.judge(&found);
            println!("upgrade: {name}: {verdict}");
            if let Some((count, why)) = ledger.failures() {
                broken.push(format!("{name}: {count} records failed, the first: {why}"));
            }
            if !verdict.is_clean() {
                broken.push(format!("{name}: {verdict}"));
            }
        }
        replicas::wait_until_all_in_sync(&mut cluster, &lines, RECOVERY)?;
        cluster.stop()?;
        let size_bytes = replicas::compare(&cluster, &lines)?;
        println!("upgrade: {size_bytes} bytes alike on {BROKERS} brokers");
        ensure!(broken.is_empty(), "{}", broken.join("; "));
        Ok(())
    }
}

/// The form of the values in a topic.
fn form_of(topic: &str) -> MarkReader {
    if topic == OWN_TOPIC { Mark::of } else { steady::mark_of }
}
