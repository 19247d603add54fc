//! A run: the plan's steps one after the other, each measured round appended at once.
//!
//! Whatever happens to one round costs that round: a target that dies is started again, an error is kept as the
//! round's failure, and Ctrl-C ends after what was measured is written. A run that was begun is gone on with by
//! [`resume`]: steps whose rounds are there are not run again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use experiment::plan::{Plan, PlannedCell, Step};
use experiment::round::{Durability, Purpose, Round};
use experiment::seek;
use experiment::workload::{Acks, Kind, Workload};
use peer::memory::MemoryHolder;
use perf::load::Stop;
use serde::{Deserialize, Serialize};

use crate::arguments::Run;
use crate::failover::clients::{self, Programs};
use crate::failover::session::{self, Session};
use crate::failover::shared::{self, Shared};
use crate::progress::{Progress, words};
use crate::round::measured::Measured;
use crate::round::stage::Stage;
use crate::say::{say, tell};
use crate::seat::Seats;
use crate::store::{self, Store};
use crate::target::Target;
use crate::{Ended, admin, disk, documents, machine, planning};

/// How long a piece of warming up takes, seconds.
const WARM_UP_S: f64 = 1.0;
/// `buffer.memory` of the producer that warms up: a cluster that was just started takes seconds for Kafka's 32 MiB.
const WARM_UP_BUFFER_BYTES: u64 = 8 << 20;
/// So many pieces in a row must have become no cheaper.
const WARM_UPS_ALIKE: usize = 3;
/// At most so many for a single broker, where a Java runtime takes some ten seconds until it has compiled what counts.
const WARM_UPS_MAX: usize = 24;
/// And for several, which share the machine: warming them up as well would take longer than all their rounds.
const WARM_UPS_MAX_CLUSTER: usize = 3;
/// A broker is warm when a piece costs no less than this share of the CPU per record of the cheapest before.
const WARM_SHARE: f64 = 0.9;
/// Rounds of one target that may fail one after the other before it is given up for the run.
const FAILURES_MAX: u32 = 5;

/// What a run was told, beside its plan: `settings.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Settings {
    /// What tells this run's topics from those of others.
    pub run: String,
    /// The targets, as typed.
    pub targets: Vec<String>,
    /// Whether topics stay.
    pub keep_topics: bool,
    /// Whether records are looked for.
    pub verify: bool,
    /// Whether free memory is held.
    pub hold_memory: bool,
    /// The programs of client libraries, by client.
    #[serde(default)]
    pub clients: Programs,
    /// The command, to do it again.
    pub command: String,
    /// The commit that the program was built from, if that is known.
    pub commit: String,
}

/// `lab run`
pub fn run(typed: &Run, stop: &Stop, commit: &str) -> Result<Ended> {
    let targets: Vec<Target> = std::iter::once(&typed.target).chain(&typed.vs).cloned().collect();
    let names: BTreeSet<String> = targets.iter().map(Target::name).collect();
    ensure!(
        names.len() == targets.len(),
        "--target and --vs name the same; every run compares a target with itself anyway"
    );
    let programs = clients::programs(&typed.clients, &planning::known_clients()?)?;
    let plan = planning::plan(typed, &targets, &programs)?;
    if typed.dry_run {
        planning::show(&plan);
        return Ok(Ended::Well);
    }
    if targets.iter().any(Target::is_started_here) {
        disk::has_room_for(&plan)?;
    }
    for target in &targets {
        target.check()?;
    }
    let mut store = Store::create(&typed.out)?;
    let settings = Settings {
        run: format!("{:x}", now_ms()),
        targets: targets.iter().map(Target::to_string).collect(),
        keep_topics: typed.keep_topics,
        verify: !typed.no_verify,
        hold_memory: typed.hold_memory,
        clients: programs,
        command: std::env::args()
            .skip(1)
            .fold("highwater".to_owned(), |all, word| all + " " + &word),
        commit: commit.to_owned(),
    };
    store.write("settings.json", &settings)?;
    tell!("looking at the machine …");
    store.write("environment.json", &machine::look(commit)?)?;
    // Last: with it the folder counts as a run.
    store.write("plan.json", &plan)?;
    go(&mut store, &plan, &settings, stop, !typed.no_progress)
}

/// `lab resume`
pub fn resume(folder: &Path, stop: &Stop, commit: &str) -> Result<Ended> {
    let mut store = Store::open(folder)?;
    let plan: Plan = store::read(folder, "plan.json")?;
    let mut settings: Settings = store::read(folder, "settings.json")?;
    let targets = settings.targets()?;
    let is_measured = targets.contains(&Target::Embedded);
    ensure!(
        !is_measured || settings.commit == commit,
        "the run in {} was begun with Highwater {}, and this is {commit}: its rounds would be of two programs. \
         Go on with that one, or begin a new run",
        folder.display(),
        settings.commit
    );
    for target in &targets {
        target.check()?;
    }
    note_changes(&store, commit)?;
    // Topics that a round left when it was killed are not met again, and do not stay.
    let before = format!("lab-{}-", settings.run);
    for target in targets.iter().filter(|target| !target.is_started_here() && !settings.keep_topics)
    {
        admin::delete_topics_of(&target.to_string(), &before);
    }
    settings.run = format!("{}-{:x}", settings.run, now_ms());
    go(&mut store, &plan, &settings, stop, true)
}

/// Says what has changed on the machine since the run was begun, and writes it down for the report.
fn note_changes(store: &Store, commit: &str) -> Result<()> {
    let mut begun = store::environment(store.folder())?;
    let now = machine::look(commit)?;
    let lasting = begun.diff(&now).into_iter().filter(|difference| !difference.volatile);
    // What brokers are set to is not looked at here.
    let changed: Vec<_> = lasting.filter_map(|one| Some((one.key, one.base, one.new?))).collect();
    for (key, base, new) in changed {
        tell!("since the run was begun, {key} changed from {} to {new}", base.unwrap_or_default());
        begun.set(format!("resumed.{key}"), new);
    }
    store.write("environment.json", &begun)
}

impl Settings {
    fn targets(&self) -> Result<Vec<Target>> {
        self.targets.iter().map(|text| text.parse().map_err(anyhow::Error::msg)).collect()
    }
}

/// The state of a run.
struct Running<'a> {
    store: &'a mut Store,
    plan: &'a Plan,
    settings: &'a Settings,
    stop: &'a Stop,
    seats: Seats,
    progress: Progress,
    /// Throughputs that shares of saturation refer to: by cell and target, of the newest round.
    saturation: BTreeMap<(usize, String), f64>,
    failures: BTreeMap<String, u32>,
    /// Throughputs of each cell's rounds, by cell and target: when they have settled, no more rounds are run.
    throughputs: BTreeMap<(usize, String), Vec<f64>>,
    /// Targets whose brokers' settings are in the environment.
    described: BTreeSet<String>,
    memory: Option<MemoryHolder>,
    /// Brokers of the cluster that was used last.
    brokers: u32,
    /// Steps whose rounds were there before.
    done: BTreeSet<u32>,
    /// What sessions of kills have measured for steps to come.
    shared: Shared,
}

fn go(
    store: &mut Store,
    plan: &Plan,
    settings: &Settings,
    stop: &Stop,
    bar: bool,
) -> Result<Ended> {
    let measured = store::rounds(store.folder())?;
    // What failed is tried again.
    let done = measured.iter().filter(|round| round.failure.is_none());
    let done: BTreeSet<u32> = done.map(|round| round.order).collect();
    let left: f64 = plan
        .steps
        .iter()
        .filter(|s| !done.contains(&s.order))
        .map(|s| planning::step_cost_s(plan.cell(s)))
        .sum();
    let mut running = Running {
        plan,
        settings,
        stop,
        seats: Seats::new(settings.targets()?),
        progress: Progress::new(left, bar),
        saturation: BTreeMap::new(),
        failures: BTreeMap::new(),
        throughputs: BTreeMap::new(),
        described: BTreeSet::new(),
        memory: settings.hold_memory.then(MemoryHolder::start),
        brokers: 0,
        done,
        shared: Shared::default(),
        store,
    };
    for round in &measured {
        running.remember(plan.steps.iter().find(|step| step.order == round.order), round);
    }
    let ended = running.steps();
    running.progress.finish();
    running.seats.stop_all();
    let folder = running.store.folder().to_owned();
    // However it ended, what was measured is reported; if that fails too, why it ended is what matters.
    let written = documents::write(&folder, None, &[]);
    ended?;
    let run = written.context("the rounds are kept, but no report could be written")?;
    let failed = store::rounds(&folder)?.iter().any(|round| round.failure.is_some());
    if !run.rounds.is_empty() {
        say!("{}", report::summary(&run));
    }
    say!("report: {}", folder.join("report.html").display());
    if stop.is_stopped() {
        tell!("interrupted; resume the run with: highwater lab resume {}", folder.display());
        return Ok(Ended::Interrupted);
    }
    if failed {
        tell!("some rounds failed; repeat them with: highwater lab resume {}", folder.display());
        return Ok(Ended::RoundsFailed);
    }
    Ok(Ended::Well)
}

impl Running<'_> {
    fn steps(&mut self) -> Result<()> {
        for step in &self.plan.steps {
            if self.done.contains(&step.order) {
                continue;
            }
            if self.stop.is_stopped() {
                break;
            }
            let cell = self.plan.cell(step);
            if self.is_settled(step, cell) {
                self.progress.done(planning::step_cost_s(cell));
                continue;
            }
            if self.seats.starts(step.target_name()) {
                disk::has_room_for_cell(cell)?;
            }
            self.progress.next(&format!(
                "{}  {}  {}",
                cell.experiment,
                step.target,
                planning::cell_in_words(cell)
            ));
            if let Some(round) = self.step(step, cell)? {
                self.remember(Some(step), &round);
                self.store.append(&round)?;
            }
            self.progress.done(planning::step_cost_s(cell));
        }
        Ok(())
    }

    /// Whether the rounds of a cell so far are enough, on each of its targets.
    fn is_settled(&self, step: &Step, cell: &PlannedCell) -> bool {
        step.purpose == Purpose::Cell
            && cell.targets.iter().all(|target| {
                let values = self.throughputs.get(&(step.cell, target.clone()));
                // Never in the middle of a pair: both targets have as many rounds.
                values.is_some_and(|values| {
                    values.len() >= step.round as usize
                        && seek::enough(&values[..step.round as usize], usize::MAX)
                })
            })
    }

    /// Writes down, once for each target, what its brokers are set to beyond their defaults.
    fn describe(&mut self, target: &str, bootstrap: &str) {
        if !self.described.insert(target.to_owned()) {
            return;
        }
        let told = admin::broker_settings(bootstrap).and_then(|settings| {
            let mut environment = store::environment(self.store.folder())?;
            for (key, value) in settings {
                environment.set(format!("broker.{target}.{key}"), value);
            }
            self.store.write("environment.json", &environment)
        });
        if let Err(error) = told {
            tracing::warn!(target, %error, "its settings are not known");
        }
    }

    /// One step; `None` if it was interrupted: then it is run again when the run is resumed.
    fn step(&mut self, step: &Step, cell: &PlannedCell) -> Result<Option<Round>> {
        let name = step.target_name().to_owned();
        ensure!(
            self.failures.get(&name).copied().unwrap_or(0) < FAILURES_MAX,
            "{FAILURES_MAX} rounds on {name} failed one after the other: why is said above and in rounds.jsonl. What was measured is kept; \
             go on with `highwater lab resume {}` when the target is well again",
            self.store.folder().display()
        );
        let part = self.shared.take(step);
        let is_told_before = part.as_ref().is_some_and(|part| part.outcome.is_err());
        let (started_ms, measured) = match part {
            Some(part) => (part.started_ms, part.outcome.map_err(anyhow::Error::msg)),
            None => (now_ms(), self.measure(step, cell)),
        };
        if self.stop.is_stopped() {
            return Ok(None);
        }
        let (measured, durability, failure) = match measured {
            Ok((measured, durability)) => (measured, durability, None),
            Err(error) => {
                self.progress.say(&format!("{} on {}: {error:#}", cell.experiment, step.target));
                (Measured::default(), Durability::Unknown, Some(format!("{error:#}")))
            }
        };
        let failed = self.failures.entry(name).or_default();
        // A session that fails, fails for all of its clients at once.
        *failed = if failure.is_some() { *failed + u32::from(!is_told_before) } else { 0 };
        Ok(Some(Round {
            experiment: cell.experiment.clone(),
            cell: cell.cell.clone(),
            target: step.target.clone(),
            round: step.round,
            order: step.order,
            purpose: step.purpose,
            started_ms,
            emulated: cell.workload.emulate.clone(),
            deviations: self.deviations(cell),
            metrics: measured.metrics,
            histograms: measured.histograms,
            counts: measured.counts,
            verdict: measured.verdict,
            durability,
            warnings: measured.warnings,
            failure,
        }))
    }

    fn measure(&mut self, step: &Step, cell: &PlannedCell) -> Result<(Measured, Durability)> {
        let mut workload = cell.workload.clone();
        if let Some(saturation) = cell.saturation {
            let at = self.saturation.get(&(saturation, step.target_name().to_owned()));
            let at = at.context("its saturation could not be measured before")?;
            workload.offered = at * workload.offered_share;
        }
        let bootstrap = self.seats.cluster(step.target_name(), &cell.shape())?.bootstrap.clone();
        // Brokers take long to start: whoever did not want to wait for them does not wait for the round.
        ensure!(!self.stop.is_stopped(), "interrupted");
        self.describe(step.target_name(), &bootstrap);
        if cell.workload.kind == Kind::Failover {
            return self.fail_over(step, cell);
        }
        if self.seats.take_cold(step.target_name()) {
            self.warm_up(step, cell)?;
        }
        let cluster = self.seats.cluster(step.target_name(), &cell.shape())?;
        self.brokers = cluster.brokers;
        if let Some(memory) = &self.memory {
            memory.refill();
        }
        let stage = Stage {
            cluster,
            workload: &workload,
            name: format!("lab-{}-{}-{}", self.settings.run, cell.experiment, step.order),
            seed: self.plan.seed.wrapping_add(u64::from(step.round)),
            number: step.order,
            verify: self.settings.verify,
            keep_topics: self.settings.keep_topics,
            stop: self.stop.clone(),
        };
        stage.perform()
    }

    /// Kills brokers under the client of this step, and at once under those of the other steps that want the same kills.
    fn fail_over(&mut self, step: &Step, cell: &PlannedCell) -> Result<(Measured, Durability)> {
        let started_ms = now_ms();
        let company = shared::company(self.plan, step, |other| !self.done.contains(&other.order));
        let clients: Vec<String> = company.iter().map(|(_, client)| client.clone()).collect();
        // Idle brokers of the other target take CPU from whoever is measured.
        self.seats.stop_others(step.target_name());
        let cluster = self.seats.cluster(step.target_name(), &cell.shape())?;
        self.brokers = cluster.brokers;
        let session = Session {
            cluster,
            workload: &cell.workload,
            clients: &clients,
            programs: &self.settings.clients,
            steady: session::STEADY,
            name: format!("lab-{}-{}-{}", self.settings.run, cell.experiment, step.order),
            verify: self.settings.verify,
            keep_topics: self.settings.keep_topics,
            stop: self.stop.clone(),
        };
        let performed = session.perform();
        // Its brokers are not those that were started first: who is measured by process gets fresh ones.
        self.seats.stop(step.target_name());
        self.shared.hand_out(step, &company, started_ms, performed)
    }

    /// Brokers that were just started are asked for some work that does not count: a runtime that compiles as it goes
    /// is not measured while it does, and memory is not measured when it is used for the first time.
    fn warm_up(&mut self, step: &Step, cell: &PlannedCell) -> Result<()> {
        let workload = Workload {
            brokers: cell.workload.brokers,
            partitions: 3,
            consumers: 1,
            seconds: WARM_UP_S,
            warmup_seconds: 0.0,
            buffer_bytes: WARM_UP_BUFFER_BYTES,
            acks: Some(Acks::Leader),
            ..Workload::default()
        };
        let most = if workload.brokers > 1 { WARM_UPS_MAX_CLUSTER } else { WARM_UPS_MAX };
        let (mut cheapest, mut alike) = (f64::INFINITY, 0);
        for piece in 0..most {
            let stage = Stage {
                cluster: self.seats.cluster(step.target_name(), &cell.shape())?,
                workload: &workload,
                name: format!("lab-{}-warm-up-{}-{piece}", self.settings.run, step.order),
                seed: self.plan.seed,
                number: step.order,
                verify: false,
                keep_topics: false,
                stop: self.stop.clone(),
            };
            let (measured, _) = stage.perform().context("the brokers do not take a first load")?;
            let cost = measured.metrics.get("broker_cpu_s_per_mrec").copied().unwrap_or(0.0);
            alike = if cost >= WARM_SHARE * cheapest { alike + 1 } else { 0 };
            tracing::debug!(target = step.target, piece, cost, "warmed up");
            if alike == WARM_UPS_ALIKE {
                break;
            }
            cheapest = cheapest.min(cost);
        }
        Ok(())
    }

    /// How the round differs from what the experiment asks for: as planned, and by the brokers that there are.
    fn deviations(&self, cell: &PlannedCell) -> Vec<String> {
        let mut deviations = cell.deviations.clone();
        let (there, asked) = (self.brokers, cell.workload.brokers);
        if there > asked {
            deviations.push(format!("{there} instead of {asked} brokers"));
        }
        deviations
    }

    /// Keeps what later steps need of a round.
    fn remember(&mut self, step: Option<&Step>, round: &Round) {
        if let (Some(step), Some(throughput), Purpose::Cell) =
            (step, round.metrics.get("throughput"), round.purpose)
        {
            let of = (step.cell, step.target_name().to_owned());
            self.throughputs.entry(of.clone()).or_default().push(*throughput);
            self.saturation.insert(of, *throughput);
        }
    }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// How long a plan takes in all, in words.
pub fn expected(plan: &Plan) -> String {
    let seconds: f64 = plan.steps.iter().map(|step| planning::step_cost_s(plan.cell(step))).sum();
    words(std::time::Duration::from_secs_f64(
        seconds + planning::CLUSTER_START_S * plan.cluster_starts() as f64,
    ))
}
