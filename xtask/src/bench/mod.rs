//! `cargo xt bench`: Highwater and Apache Kafka side by side on this machine, one broker each or several, one command.
//!
//! The order of things: both brokers are started and warmed up; then every row runs in interleaved
//! rounds after a discarded one, and each time another one begins; medians go into the table. Every run is a line of
//! `rounds.jsonl`. `rows.rs` says what is run and what is to be reached, `work.rs` how, `meter.rs` what is
//! counted. Not a test of correctness, and not part of continuous integration: it wants the machine
//! for itself.

mod bars;
mod broker;
mod figures;
mod floor;
mod gateway;
mod generator;
mod load;
mod machine;
mod meter;
mod report;
mod rows;
mod test_brokers;
mod turns;
mod work;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};

use broker::{Broker, Class, Target};
use figures::{Figures, Sample, SeatName};
use generator::Generators;
use machine::Machine;
use meter::Meter;
use report::Report;
use rows::{ROWS, Row, Work};
use turns::{Turn, turns};

use crate::repository::repository;
use peer::process;

/// `cargo xt bench …`
#[derive(Debug, Subcommand)]
pub enum Task {
    /// Measure two brokers in the same run, in interleaved rounds
    Peer(Peer),
    /// Compare the load generator with librdkafka: CPU per record
    Load(load::Load),
    /// Measure what stands in front of brokers: gateway, streams, proxy, console
    Gateway(gateway::Gateway),
    /// Measure test brokers: a hundred tests in a row, fifty brokers at once
    TestBrokers(test_brokers::TestBrokers),
    /// Make the tables again from the folders of earlier runs; of a row's runs the last folder counts
    Report(Again),
}

/// What to measure.
#[derive(Debug, Args)]
pub struct Peer {
    /// The seat that is judged: highwater, highwater-binary=PATH or apache-kafka
    #[arg(long, default_value = "highwater")]
    target: Target,
    /// The seat that it is compared with
    #[arg(long, default_value = "apache-kafka")]
    vs: Target,
    /// Only these rows, separated by commas (see --list)
    #[arg(long, value_delimiter = ',')]
    rows: Vec<String>,
    /// Counted rounds of each row, behind a discarded one
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// A tenth of the volume and one round: to see that everything runs, not to conclude
    #[arg(long)]
    quick: bool,
    /// Hold the machine's free memory and give it back as runs need it: for virtual machines that
    /// hand free pages to their host
    #[arg(long)]
    hold_memory: bool,
    /// Begin no further row after this many minutes
    #[arg(long, default_value_t = 40)]
    limit_minutes: u64,
    /// Where the rounds go (default: target/bench/TIME)
    #[arg(long)]
    out: Option<PathBuf>,
    /// Write the table into docs/performance.md too; only for all rows, not quick
    #[arg(long)]
    publish: bool,
    /// Print the rows and end
    #[arg(long)]
    list: bool,
}

/// Which runs to make tables from.
#[derive(Debug, Args)]
pub struct Again {
    /// Folders of earlier runs
    #[arg(required = true)]
    folders: Vec<PathBuf>,
    /// Write the table into docs/performance.md too
    #[arg(long)]
    publish: bool,
}

/// Does what `cargo xt bench …` asks.
pub fn task(task: &Task) -> Result<()> {
    match task {
        Task::Peer(arguments) => peer(arguments),
        Task::Load(arguments) => load::compare(arguments),
        Task::Gateway(arguments) => gateway::measure(arguments),
        Task::TestBrokers(arguments) => test_brokers::measure(arguments),
        Task::Report(arguments) => again(arguments),
    }
}

fn peer(arguments: &Peer) -> Result<()> {
    if arguments.list {
        ROWS.iter().for_each(|row| println!("{:<14} {}", row.name, row.title));
        return Ok(());
    }
    let partial = arguments.quick || !arguments.rows.is_empty();
    ensure!(!(arguments.publish && partial), "--publish wants all rows, and not quick ones");
    let named = (&arguments.vs, &arguments.target);
    let ours = named == (&Target::ApacheKafka, &Target::Highwater(None));
    ensure!(ours || !arguments.publish, "--publish wants Apache Kafka and this checkout's program");
    let rows = chosen(&arguments.rows)?;
    [&arguments.vs, &arguments.target].iter().try_for_each(|target| target.make_ready())?;
    if rows.iter().any(|row| matches!(row.work, Work::Paced(shape) if shape.floor)) {
        // So that no round builds it.
        load::build_ours()?;
    }
    let out = out_folder(arguments)?;
    let machine = Machine::look(&std::env::temp_dir())?;
    fs::write(out.join("machine.json"), serde_json::to_string_pretty(&machine)?)?;
    eprintln!("{}\nrounds go to {}", machine.describe(), out.display());
    // The warm-up needs librdkafka, whatever the rows.
    let native = rows.iter().any(|row| row.work.needs_native() || !row.work.single_round());
    let meter = Meter::new(Generators::build(native)?, arguments.hold_memory);
    let mut comparison = Comparison {
        quick: arguments.quick,
        rounds: if arguments.quick { 1 } else { arguments.rounds },
        seats: [
            Seat::new(SeatName::Reference, &arguments.vs),
            Seat::new(SeatName::Candidate, &arguments.target),
        ],
        meter,
        commit: if ours { commit()? } else { format!("{}, other programs", commit()?) },
        file: File::create(out.join("rounds.jsonl"))?,
        samples: Vec::new(),
    };
    let failed = comparison.run_all(&rows, Duration::from_secs(arguments.limit_minutes * 60));
    let samples = std::mem::take(&mut comparison.samples);
    drop(comparison);
    finish(&Report { machine: &machine, samples: &samples }, Some(&out), arguments.publish)?;
    ensure!(failed.is_empty(), "rows that failed or were left out: {}", failed.join(", "));
    Ok(())
}

fn chosen(names: &[String]) -> Result<Vec<&'static Row>> {
    for name in names {
        let known = ROWS.iter().any(|row| row.name == name);
        ensure!(known, "no row {name}: see --list");
    }
    let wanted = |row: &&Row| names.is_empty() || names.iter().any(|name| name == row.name);
    Ok(ROWS.iter().filter(wanted).collect())
}

fn out_folder(arguments: &Peer) -> Result<PathBuf> {
    let name = format!("target/bench/{:.0}", peer::procfs::unix_s());
    let out = arguments.out.clone().unwrap_or_else(|| repository().join(name));
    fs::create_dir_all(&out)?;
    Ok(out)
}

/// The commit of the checkout, marked when it has changes that are not committed.
fn commit() -> Result<String> {
    let mut git = process::command("git");
    git.args(["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]);
    git.current_dir(repository());
    let outcome = process::run(&mut git, None, Duration::from_secs(20))?;
    ensure!(outcome.success(), "git describe failed: {}", outcome.story());
    Ok(outcome.text().trim().to_owned())
}

fn finish(report: &Report<'_>, out: Option<&Path>, publish: bool) -> Result<()> {
    println!("{}", report.text());
    let (met, bars) = report.score();
    println!("{met} of {bars} bars met");
    if let Some(out) = out {
        fs::write(out.join("table.md"), report.markdown())?;
    }
    if publish {
        report::publish(&repository().join("docs/performance.md"), &report.markdown())?;
    }
    Ok(())
}

fn again(arguments: &Again) -> Result<()> {
    let mut samples: Vec<Sample> = Vec::new();
    for folder in &arguments.folders {
        let read = read_samples(folder)?;
        samples.retain(|old| !read.iter().any(|new| new.row == old.row));
        samples.extend(read);
    }
    let last = arguments.folders.last().context("clap wants at least one")?;
    let machine = fs::read_to_string(last.join("machine.json"))?;
    let machine: Machine = serde_json::from_str(&machine)?;
    finish(&Report { machine: &machine, samples: &samples }, None, arguments.publish)
}

fn read_samples(folder: &Path) -> Result<Vec<Sample>> {
    let path = folder.join("rounds.jsonl");
    let text = fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))?;
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// One side, with the brokers that it has started so far.
struct Seat {
    name: SeatName,
    target: Target,
    running: Vec<((Class, u16), Broker)>,
}

impl Seat {
    fn new(name: SeatName, target: &Target) -> Seat {
        Seat { name, target: target.clone(), running: Vec::new() }
    }

    /// What the target makes of a class: Kafka has only one.
    fn class(&self, class: Class) -> Class {
        if self.target == Target::ApacheKafka { Class::PageCache } else { class }
    }

    /// The running broker or brokers of a row; started and warmed up when there are none, or one died. Those of rows with
    /// fewer or more brokers end before: idle ones cost too.
    fn broker(&mut self, meter: &Meter, row: &Row, quick: bool) -> Result<&Broker> {
        let class = self.class(row.class);
        let wanted = (class, row.brokers);
        self.running
            .retain(|((_, brokers), broker)| *brokers == row.brokers && broker.is_running());
        if !self.running.iter().any(|(have, _)| *have == wanted) {
            let broker = Broker::start(&self.target, class, row.brokers)?;
            same_disk(&broker)?;
            eprintln!("{} ({}): warming up", self.target, self.target.durability(class));
            work::warm_up(meter, &broker, quick)?;
            self.running.push((wanted, broker));
        }
        let found = self.running.iter().find(|(have, _)| *have == wanted);
        Ok(&found.expect("started just above").1)
    }
}

/// All data must lie on the disk that was described.
fn same_disk(broker: &Broker) -> Result<()> {
    let described = fs::metadata(std::env::temp_dir())?.dev();
    let used = fs::metadata(broker.data_folder())?.dev();
    ensure!(described == used, "{} is on another disk", broker.data_folder().display());
    Ok(())
}

/// A comparison under way.
struct Comparison {
    quick: bool,
    rounds: u32,
    seats: [Seat; 2],
    meter: Meter,
    commit: String,
    file: File,
    samples: Vec<Sample>,
}

impl Comparison {
    /// Runs row after row; returns the names of those that failed, which stop nothing else.
    fn run_all(&mut self, rows: &[&Row], limit: Duration) -> Vec<String> {
        let start = Instant::now();
        let mut failed = Vec::new();
        for row in rows {
            eprintln!("[{:>4} s] {}: {}", start.elapsed().as_secs(), row.name, row.title);
            if start.elapsed() > limit {
                eprintln!("  left out: the time is up");
                failed.push(row.name.to_owned());
            } else if let Err(error) = self.run_row(row) {
                eprintln!("  failed: {error:#}");
                failed.push(row.name.to_owned());
            }
        }
        eprintln!("[{:>4} s] done", start.elapsed().as_secs());
        failed
    }

    fn run_row(&mut self, row: &Row) -> Result<()> {
        let work = if self.quick { row.work.quick() } else { row.work };
        let mut prepared = [None, None];
        if work.uses_running_broker() {
            for (seat, prepared) in self.seats.iter_mut().zip(&mut prepared) {
                let broker = seat.broker(&self.meter, row, self.quick)?;
                *prepared = work::prepare(&self.meter, broker, work)?;
            }
        }
        let outcome = self.rounds(row, work, &prepared);
        for (seat, topic) in self.seats.iter_mut().zip(&prepared) {
            if let Some(topic) = topic {
                let broker = seat.broker(&self.meter, row, self.quick)?;
                self.meter.delete_topic(broker, topic)?;
                meter::settle();
            }
        }
        outcome
    }

    /// Round 0 is discarded; whatever starts brokers of its own has none.
    fn rounds(&mut self, row: &Row, work: Work, prepared: &[Option<String>; 2]) -> Result<()> {
        let first = u32::from(!work.uses_running_broker());
        let last = if work.single_round() { 1 } else { self.rounds };
        for round in first..=last {
            let work = if round == 0 { work.discarded() } else { work };
            for turn in turns(round, work.floor()) {
                match turn {
                    Turn::Seat(index) => {
                        let figures =
                            self.run_once(index, row, work, prepared[index].as_deref())?;
                        let seat = &self.seats[index];
                        let durability = seat.target.durability(row.class);
                        let who = (seat.name, seat.target.to_string(), durability);
                        self.keep(who, row, round, figures)?;
                    }
                    Turn::Floor(floor) => {
                        let (name, figures) = floor.measure(&self.meter)?;
                        let who = (SeatName::Floor, name.to_owned(), "fsync");
                        self.keep(who, row, round, figures)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn run_once(
        &mut self,
        index: usize,
        row: &Row,
        work: Work,
        prepared: Option<&str>,
    ) -> Result<Figures> {
        let (meter, quick) = (&self.meter, self.quick);
        let seat = &mut self.seats[index];
        let target = seat.target.clone();
        let context = || format!("in the seat of {target}");
        match work {
            Work::ManyPartitions { topics, partitions, log_bytes } => {
                let shape = (topics, partitions, log_bytes);
                let class = seat.class(row.class);
                work::many_partitions(meter, &target, class, shape).with_context(context)
            }
            Work::FullBroker { topics, partitions, log_bytes } => {
                let shape = (topics, partitions, log_bytes);
                let class = seat.class(row.class);
                work::full_broker(meter, &target, class, shape).with_context(context)
            }
            Work::Idle => {
                let class = seat.class(row.class);
                work::idle(&target, class, row.brokers).with_context(context)
            }
            Work::FixedCosts => {
                let running = seat.broker(meter, row, quick)?;
                work::fixed_costs(meter, &target, running).with_context(context)
            }
            _ => {
                let broker = seat.broker(meter, row, quick)?;
                work::load(meter, broker, work, prepared).with_context(context)
            }
        }
    }

    fn keep(
        &mut self,
        (seat, target, durability): (SeatName, String, &str),
        row: &Row,
        round: u32,
        figures: Figures,
    ) -> Result<()> {
        let shown = row.bars.iter().filter_map(|bar| {
            figures.get(bar.figure).map(|value| format!("{} {value:.3}", bar.figure))
        });
        let shown = shown.collect::<Vec<_>>().join(", ");
        let other = figures.get("other_cores").copied().unwrap_or(0.0);
        let disturbed = if other > 0.3 {
            format!("  ({other:.1} cores used by others)")
        } else {
            String::new()
        };
        eprintln!("  round {round} {target:<20} {shown}{disturbed}");
        let sample = Sample {
            row: row.name.to_owned(),
            seat,
            target,
            durability: durability.to_owned(),
            round,
            at_unix_s: peer::procfs::unix_s(),
            commit: self.commit.clone(),
            figures,
        };
        writeln!(self.file, "{}", serde_json::to_string(&sample)?)?;
        self.samples.push(sample);
        Ok(())
    }
}
