//! One load on one broker, metered: what the generator reports, and what the broker's process, the
//! generator and the rest of the machine used meanwhile.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::broker::Broker;
use super::figures::Figures;
use super::generator::{Generators, Load};
use peer::memory::MemoryHolder;
use peer::process::Guarded;
use peer::procfs;

/// How long the files of deleted topics need to be gone (see the brokers' settings).
const DELETED: Duration = Duration::from_millis(1500);
/// Brokers count as idle when each uses less than this share of a core …
const IDLE_CORES: f64 = 0.10;
/// … over this time; waited for at most [`IDLE_LIMIT`].
const IDLE_WINDOW: Duration = Duration::from_millis(300);
const IDLE_LIMIT: Duration = Duration::from_secs(8);
/// How long one generator may run.
const RUN_LIMIT: Duration = Duration::from_secs(150);

/// What every run needs.
pub struct Meter {
    /// The load generators.
    pub generators: Generators,
    memory: Option<MemoryHolder>,
    /// In the names of all topics, so that no two runs share one.
    run: String,
    topics: std::cell::Cell<u32>,
}

impl Meter {
    /// Ready to measure; `hold_memory` as [`peer::memory`] says.
    pub fn new(generators: Generators, hold_memory: bool) -> Meter {
        let memory = hold_memory.then(MemoryHolder::start);
        let run = format!("{:.0}", procfs::unix_s());
        Meter { generators, memory, run, topics: std::cell::Cell::new(0) }
    }

    /// A name that no topic has yet.
    pub fn fresh_topic(&self) -> String {
        self.topics.set(self.topics.get() + 1);
        format!("bench-{}-{}", self.run, self.topics.get())
    }

    /// Creates a topic with a fresh name and waits for its leaders.
    pub fn create_topic(&self, broker: &Broker, partitions: u64) -> Result<String> {
        self.create_topic_with(broker, partitions, &[])
    }

    /// As [`Meter::create_topic`], with a configuration, each `KEY=VALUE`.
    pub fn create_topic_with(
        &self,
        broker: &Broker,
        partitions: u64,
        configs: &[&str],
    ) -> Result<String> {
        let topic = self.fresh_topic();
        let mut arguments = words(&["topic", "create", "--bootstrap", &broker.address()]);
        arguments.extend(words(&["--topics", &topic, "--partitions", &partitions.to_string()]));
        arguments.extend(words(&["--replicas", &broker.replicas().to_string()]));
        configs.iter().for_each(|config| arguments.extend(words(&["--config", config])));
        self.generators.run(&Load::Raw(arguments), RUN_LIMIT)?;
        Ok(topic)
    }

    /// Deletes a topic that [`Meter::create_topic`] made.
    pub fn delete_topic(&self, broker: &Broker, topic: &str) -> Result<()> {
        let arguments = ["topic", "delete", "--bootstrap", &broker.address(), "--topics", topic];
        self.generators.run(&Load::Raw(words(&arguments)), RUN_LIMIT).map(drop)
    }

    /// Begins to delete a topic after `delay`, beside what is measured; [`super::generator::finish`] waits for
    /// it.
    pub fn delete_later(&self, broker: &Broker, topic: &str, delay: Duration) -> Result<Guarded> {
        let (bootstrap, delay) = (broker.address(), delay.as_millis().to_string());
        let mut arguments = words(&["topic", "delete", "--bootstrap", &bootstrap]);
        arguments.extend(words(&["--topics", topic, "--delay-ms", &delay]));
        self.generators.start_raw(&arguments)
    }

    /// Runs `load` against the brokers with these process ids, which idle before, and adds the costs of all of them to
    /// its figures.
    pub fn run(&self, brokers: &[u32], load: &Load) -> Result<Figures> {
        if let Some(memory) = &self.memory {
            memory.refill();
        }
        wait_until_idle(brokers)?;
        let before = Reading::take(brokers)?;
        let mut figures = self.generators.run(load, RUN_LIMIT)?;
        let after = Reading::take(brokers).context("the broker died of it")?;
        add_costs(&mut figures, &before, &after);
        figures.insert("resident_mib".to_owned(), sum_of(brokers, procfs::resident_mib)?);
        Ok(figures)
    }

    /// Runs `load_of` a fresh topic of `partitions`, which is deleted afterwards, and waits until its
    /// files have gone, so that they burden no later run.
    pub fn run_on_fresh_topic(
        &self,
        broker: &Broker,
        partitions: u64,
        load_of: impl FnOnce(&str) -> Load,
    ) -> Result<Figures> {
        let topic = self.create_topic(broker, partitions)?;
        let outcome = self.run(&broker.pids(), &load_of(&topic));
        self.delete_topic(broker, &topic)?;
        settle();
        outcome
    }
}

/// Owned copies, for argument lists.
pub fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|word| (*word).to_owned()).collect()
}

/// Waits until deleted files have gone and what remains is on the disk: writing back the last run's
/// pages is no part of the next.
pub fn settle() {
    thread::sleep(DELETED);
    if let Err(error) = Command::new("sync").status() {
        eprintln!("  sync failed: {error}");
    }
}

/// A figure of each process, added up.
pub fn sum_of(processes: &[u32], figure: fn(u32) -> Result<f64>) -> Result<f64> {
    processes.iter().map(|pid| figure(*pid)).sum()
}

fn wait_until_idle(brokers: &[u32]) -> Result<()> {
    let deadline = Instant::now() + IDLE_LIMIT;
    let enough = IDLE_CORES * IDLE_WINDOW.as_secs_f64() * brokers.len() as f64;
    loop {
        let before = sum_of(brokers, procfs::cpu_s)?;
        thread::sleep(IDLE_WINDOW);
        let used = sum_of(brokers, procfs::cpu_s)? - before;
        if used < enough {
            return Ok(());
        }
        if Instant::now() > deadline {
            eprintln!("  the broker does not come to rest; measuring all the same");
            return Ok(());
        }
    }
}

/// All clocks at one moment.
struct Reading {
    at: Instant,
    broker_cpu_s: f64,
    context_switches: f64,
    generators_cpu_s: f64,
    machine_cpu_s: f64,
    stolen_s: f64,
}

impl Reading {
    fn take(brokers: &[u32]) -> Result<Reading> {
        let (machine_cpu_s, stolen_s) = procfs::machine_cpu_s()?;
        Ok(Reading {
            at: Instant::now(),
            broker_cpu_s: sum_of(brokers, procfs::cpu_s)?,
            context_switches: sum_of(brokers, procfs::context_switches)?,
            generators_cpu_s: procfs::ended_children_cpu_s()?,
            machine_cpu_s,
            stolen_s,
        })
    }
}

/// Adds what lies between two readings, as totals and by byte, record and request.
fn add_costs(figures: &mut Figures, before: &Reading, after: &Reading) {
    let wall_s = after.at.duration_since(before.at).as_secs_f64();
    let broker = after.broker_cpu_s - before.broker_cpu_s;
    let generator = after.generators_cpu_s - before.generators_cpu_s;
    let machine = after.machine_cpu_s - before.machine_cpu_s;
    let mut add = |name: &str, value: f64| {
        figures.insert(name.to_owned(), value);
    };
    add("wall_s", wall_s);
    add("broker_cpu_s", broker);
    add("generator_cpu_s", generator);
    // Of others: the kernel's own threads, the second seat, and whatever else ran.
    add("other_cores", (machine - broker - generator).max(0.0) / wall_s);
    add("stolen_cores", (after.stolen_s - before.stolen_s) / wall_s);
    add_rates(figures, broker, generator);
    if let Some(records) = figures.get("records").copied().filter(|records| *records > 0.0) {
        // Threads that ended meanwhile took their counts with them.
        let switches = (after.context_switches - before.context_switches).max(0.0);
        figures.insert("context_switches_per_record".to_owned(), switches / records);
    }
}

fn add_rates(figures: &mut Figures, broker_cpu_s: f64, generator_cpu_s: f64) {
    let get = |name: &str| figures.get(name).copied().filter(|value| *value > 0.0);
    let (bytes, records) = (get("bytes"), get("records"));
    let (requests, seconds) = (get("requests"), get("seconds"));
    let mut added = Figures::new();
    let mut add = |name: &str, value: Option<f64>| {
        added.extend(value.map(|value| (name.to_owned(), value)));
    };
    add("cpu_s_per_gb", bytes.map(|bytes| broker_cpu_s / bytes * 1e9));
    add("generator_cpu_s_per_gb", bytes.map(|bytes| generator_cpu_s / bytes * 1e9));
    add("cpu_s_per_million_records", records.map(|records| broker_cpu_s / records * 1e6));
    add("cpu_us_per_request", requests.map(|requests| broker_cpu_s / requests * 1e6));
    add("records_per_request", records.zip(requests).map(|(records, requests)| records / requests));
    add("mib_per_s", bytes.zip(seconds).map(|(bytes, seconds)| bytes / seconds / 1_048_576.0));
    add("records_per_s", records.zip(seconds).map(|(records, seconds)| records / seconds));
    figures.extend(added);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_divided_by_what_was_done() {
        let mut figures = Figures::from([
            ("bytes".to_owned(), 2e9),
            ("records".to_owned(), 4e6),
            ("requests".to_owned(), 1e6),
            ("seconds".to_owned(), 2.0),
        ]);
        add_rates(&mut figures, 3.0, 1.0);
        assert!((figures["cpu_s_per_gb"] - 1.5).abs() < 1e-9);
        assert!((figures["cpu_s_per_million_records"] - 0.75).abs() < 1e-9);
        assert!((figures["cpu_us_per_request"] - 3.0).abs() < 1e-9);
        assert!((figures["records_per_request"] - 4.0).abs() < 1e-9);
        assert!((figures["mib_per_s"] - 953.674).abs() < 1e-3);
    }

    #[test]
    fn what_was_not_counted_gives_no_rate() {
        let mut figures = Figures::from([("bytes".to_owned(), 1e9), ("requests".to_owned(), 0.0)]);
        add_rates(&mut figures, 1.0, 1.0);
        assert!(!figures.contains_key("cpu_us_per_request"));
        assert!(!figures.contains_key("mib_per_s"));
    }
}
