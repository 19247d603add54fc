//! The five reports, parsed once, and what their definitions mean: which cells a profile has, what workload each
//! cell is, what it needs and about how long it takes.
//!
//! Not here: in which order cells are run (`plan`), what was concluded (`claims`).

use crate::definition::{Experiment, Level, Levels, Need, Report};
use crate::workload::{Console, Delivery, Kill, Kind, Via, Workload};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

const FILES: [(&str, &str); 5] = [
    ("ibm", include_str!("../reports/ibm.toml")),
    ("ali", include_str!("../reports/ali.toml")),
    ("cs6", include_str!("../reports/cs6.toml")),
    ("mif", include_str!("../reports/mif.toml")),
    ("x", include_str!("../reports/x.toml")),
];

static REPORTS: LazyLock<Vec<Report>> = LazyLock::new(|| {
    FILES.iter().map(|(id, text)| parse(id, text).expect("the tests parse every file")).collect()
});

/// About how long one kill takes on a cluster that fails over at once, seconds: looked at before and behind it, the broker
/// started again and in sync, its partitions moved home.
const KILL_S: f64 = 9.0;
/// About how long one pause takes, seconds: the slowest client waits a minute for its request to the paused broker.
const PAUSE_S: f64 = 75.0;
/// Clients that see the same kills, if all of them are there.
const CLIENTS: f64 = 8.0;

/// What is wrong with a definition or with what is asked of one.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CatalogueError {
    /// The file is not a report.
    #[error("report {report}: {reason}")]
    Unreadable {
        /// Its id.
        report: String,
        /// The parser's words.
        reason: String,
    },
    /// A cell's settings are no workload.
    #[error("experiment {experiment}, {key}: {reason}")]
    Setting {
        /// Its id.
        experiment: String,
        /// The setting, such as `record_bytes`.
        key: String,
        /// What is wrong.
        reason: String,
    },
    /// No experiment has that name.
    #[error("no experiment is called {pattern:?}")]
    Unknown {
        /// An id or a pattern.
        pattern: String,
    },
}

/// How much time a run gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProfileName {
    /// Cells of a second or two: everything within half an hour.
    Quick,
    /// Five rounds of ten seconds.
    Standard,
    /// What the report did.
    Full,
}

impl ProfileName {
    /// As written in definitions and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            ProfileName::Quick => "quick",
            ProfileName::Standard => "standard",
            ProfileName::Full => "full",
        }
    }

    /// Rounds of an experiment that does not say.
    pub fn rounds(self) -> u32 {
        match self {
            ProfileName::Quick | ProfileName::Full => 3,
            ProfileName::Standard => 5,
        }
    }
}

impl fmt::Display for ProfileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// All reports, in the order of their files.
pub fn reports() -> &'static [Report] {
    &REPORTS
}

/// The report of that id.
pub fn report(id: &str) -> Option<&'static Report> {
    reports().iter().find(|report| report.id == id)
}

/// The report that an experiment is of.
pub fn report_of(experiment: &str) -> Option<&'static Report> {
    reports().iter().find(|report| report.experiments.iter().any(|one| one.id == experiment))
}

/// All experiments, in the order of the files.
pub fn experiments() -> impl Iterator<Item = &'static Experiment> {
    reports().iter().flat_map(|report| &report.experiments)
}

/// The experiment of that id.
pub fn experiment(id: &str) -> Option<&'static Experiment> {
    experiments().find(|experiment| experiment.id == id)
}

/// The experiments that a pattern names: an id, a report's id, `all`, or either with `*` for any letters.
pub fn select(pattern: &str) -> Result<Vec<&'static Experiment>, CatalogueError> {
    let whole = report(pattern);
    let of_report = |id: &str| whole.is_some_and(|r| r.experiments.iter().any(|one| one.id == id));
    let found: Vec<_> = experiments()
        .filter(|one| pattern == "all" || of_report(&one.id) || matches(pattern, &one.id))
        .collect();
    if found.is_empty() {
        return Err(CatalogueError::Unknown { pattern: pattern.to_owned() });
    }
    Ok(found)
}

/// Whether a name is as the pattern says; `*` stands for any letters, none too.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, tail)) => name
            .strip_prefix(head)
            .is_some_and(|rest| (0..=rest.len()).any(|at| matches(tail, &rest[at..]))),
    }
}

/// A report's text as a report: every row of it names every factor.
pub fn parse(id: &str, text: &str) -> Result<Report, CatalogueError> {
    let unreadable = |reason: String| CatalogueError::Unreadable { report: id.to_owned(), reason };
    let mut report: Report = toml::from_str(text).map_err(|error| unreadable(error.to_string()))?;
    for experiment in &mut report.experiments {
        let shared = workload_of(experiment, &toml::Table::new(), &Levels::new())?;
        let factors = experiment.factors.clone();
        for row in &mut experiment.published {
            complete(&factors, &shared, row);
        }
        for row in &mut experiment.extra_cells {
            complete(&factors, &shared, row);
        }
    }
    Ok(report)
}

/// Gives a row the shared level of each factor that it leaves out.
fn complete(factors: &[String], shared: &Workload, row: &mut Levels) {
    for factor in factors {
        if !row.contains_key(factor) {
            row.insert(factor.clone(), level_of(shared, factor));
        }
    }
}

/// What a factor is in a workload; an unset one is an empty text.
pub fn level_of(workload: &Workload, factor: &str) -> Level {
    if let Some(key) = factor.strip_prefix("broker_settings.") {
        return Level::Text(workload.broker_settings.get(key).cloned().unwrap_or_default());
    }
    // What the era decides when nobody else does.
    match factor {
        "acks" => return named(workload.acks()),
        "linger_ms" => return Level::Number(workload.linger_ms()),
        "idempotence" => return Level::Flag(workload.idempotence()),
        "payload" => return named(workload.payload()),
        _ => {}
    }
    let table = serde_json::to_value(workload).expect("a workload is plain values");
    serde_json::from_value(table[factor].clone()).unwrap_or(Level::Text(String::new()))
}

fn named(value: impl Serialize) -> Level {
    let text = serde_json::to_value(value).expect("a plain name");
    Level::Text(text.as_str().unwrap_or_default().to_owned())
}

/// The cells of an experiment in a profile: the grid's product, or the published rows' factors, then the extra ones;
/// none twice.
pub fn cells(experiment: &Experiment, profile: ProfileName) -> Result<Vec<Levels>, CatalogueError> {
    if experiment.same_runs_as.is_some() {
        return Ok(Vec::new());
    }
    let shared = workload_of(experiment, &profile_table(experiment, profile), &Levels::new())?;
    let mut cells = match grid(experiment, profile) {
        grid if !grid.is_empty() => product(&experiment.factors, &grid),
        _ => experiment.published.iter().map(|row| factors_of(experiment, row)).collect(),
    };
    cells.extend(experiment.extra_cells.iter().map(|row| factors_of(experiment, row)));
    let mut once: Vec<Levels> = Vec::new();
    for mut cell in cells {
        complete(&experiment.factors, &shared, &mut cell);
        if !once.contains(&cell) {
            once.push(cell);
        }
    }
    Ok(once)
}

fn grid(experiment: &Experiment, profile: ProfileName) -> BTreeMap<String, Vec<Level>> {
    let mut grid = experiment.grid.clone();
    if let Some(changed) = experiment.profile.get(profile.name()) {
        grid.extend(changed.grid.clone());
    }
    grid
}

/// All combinations, in the order of the factors and of their levels.
fn product(factors: &[String], grid: &BTreeMap<String, Vec<Level>>) -> Vec<Levels> {
    let given = factors.iter().filter_map(|factor| Some((factor, grid.get(factor)?)));
    given.fold(vec![Levels::new()], |cells, (factor, levels)| {
        let with = |cell: &Levels, level: &Level| {
            let mut cell = cell.clone();
            cell.insert(factor.clone(), level.clone());
            cell
        };
        cells.iter().flat_map(|cell| levels.iter().map(move |level| with(cell, level))).collect()
    })
}

/// A row's factors, without its metrics.
pub fn factors_of(experiment: &Experiment, row: &Levels) -> Levels {
    let is_factor = |name: &String| experiment.factors.contains(name);
    row.iter().filter(|(name, _)| is_factor(name)).map(|(k, v)| (k.clone(), v.clone())).collect()
}

/// Rounds of an experiment in a profile.
pub fn rounds(experiment: &Experiment, profile: ProfileName) -> u32 {
    match experiment.profile.get(profile.name()) {
        Some(own) if own.rounds > 0 => own.rounds,
        _ => profile.rounds(),
    }
}

fn profile_table(experiment: &Experiment, profile: ProfileName) -> toml::Table {
    experiment.profile.get(profile.name()).map(|own| own.workload.clone()).unwrap_or_default()
}

/// The workload of a cell: the defaults, over them what the experiment's cells share, what the profile and the
/// caller (`changed`, such as another era) change, and the cell's own levels.
pub fn workload(
    experiment: &Experiment,
    profile: ProfileName,
    changed: &toml::Table,
    cell: &Levels,
) -> Result<Workload, CatalogueError> {
    let mut table = profile_table(experiment, profile);
    table.extend(changed.clone());
    workload_of(experiment, &table, cell)
}

fn workload_of(
    experiment: &Experiment,
    changed: &toml::Table,
    cell: &Levels,
) -> Result<Workload, CatalogueError> {
    let mut table = experiment.workload.clone();
    table.extend(changed.clone());
    for (factor, level) in cell {
        put(&mut table, factor, level);
    }
    // Not a setting of the workload: so many records as make up those bytes.
    let total_bytes = table.remove("total_bytes").and_then(|bytes| bytes.as_integer());
    let mut workload = checked(experiment, table)?;
    if let Some(total_bytes) = total_bytes {
        workload.records = (total_bytes.max(0) as u64) / u64::from(workload.record_bytes.max(1));
    }
    Ok(workload)
}

fn put(table: &mut toml::Table, factor: &str, level: &Level) {
    let Some(key) = factor.strip_prefix("broker_settings.") else {
        table.insert(factor.to_owned(), value_of(level));
        return;
    };
    let settings = table.entry("broker_settings").or_insert_with(|| toml::Table::new().into());
    let Some(settings) = settings.as_table_mut() else { return };
    match level {
        // A factor without a setting is at the broker's own default.
        Level::Text(text) if text.is_empty() => settings.remove(key),
        level => settings.insert(key.to_owned(), level.to_string().into()),
    };
}

fn value_of(level: &Level) -> toml::Value {
    match level {
        Level::Flag(flag) => (*flag).into(),
        Level::Number(number) if number.fract() == 0.0 && number.abs() < 1e15 => {
            (*number as i64).into()
        }
        Level::Number(number) => (*number).into(),
        Level::Text(text) => text.clone().into(),
    }
}

/// The table as a workload. One key after the other is tried alone if it is none, to name the culprit.
fn checked(experiment: &Experiment, table: toml::Table) -> Result<Workload, CatalogueError> {
    let Err(error) = table.clone().try_into::<Workload>() else {
        return Ok(table.try_into().expect("it was one a moment ago"));
    };
    let alone = |(key, value): (&String, &toml::Value)| {
        let one: toml::Table = [(key.clone(), value.clone())].into_iter().collect();
        one.try_into::<Workload>().is_err()
    };
    let key = table.iter().find(|pair| alone(*pair)).map(|(key, _)| key.clone());
    Err(CatalogueError::Setting {
        experiment: experiment.id.clone(),
        key: key.unwrap_or_default(),
        reason: error.message().to_owned(),
    })
}

/// What a cell needs of a target beside one broker.
pub fn needs(experiment: &Experiment, workload: &Workload) -> Vec<Need> {
    let mut needs = experiment.needs.clone();
    // Of fewer brokers other counts come out, and they would not be wrong.
    let counts_brokers = workload.kind == Kind::Distribute && workload.partitions_per_broker;
    if workload.brokers > 1 && (counts_brokers || !experiment.fewer_brokers) {
        needs.push(Need::Cluster);
    }
    let is_over_http = workload.via == Via::Gateway || workload.delivery != Delivery::Pull;
    if is_over_http || workload.console != Console::Off {
        needs.push(Need::Gateway);
    }
    if workload.delivery == Delivery::WebSocket {
        needs.push(Need::WebSocket);
    }
    needs.sort();
    needs.dedup();
    needs
}

/// About how long a round of a cell measures on a small machine, warm-up included, seconds. What is bounded by
/// `records` instead of time is put at the rates that a machine of two cores reaches; preparing topics is not counted.
pub fn cost_seconds(workload: &Workload) -> f64 {
    if workload.seconds > 0.0 {
        return workload.warmup_seconds + workload.seconds;
    }
    if workload.kind == Kind::Failover {
        let each_s = match workload.kill {
            Kill::LeaderPaused => PAUSE_S,
            Kill::Leader | Kill::LeaderController | Kill::Follower => KILL_S,
        };
        return f64::from(workload.kills) * each_s / CLIENTS;
    }
    let records = workload.records as f64;
    let at = |rate: f64| match workload.offered {
        offered if offered > 0.0 => rate.min(offered),
        _ => rate,
    };
    let bytes = workload.mean_bytes().max(1.0);
    let rate = match workload.kind {
        // One request after the other.
        Kind::Balance if workload.via == Via::Gateway => at(2_500.0),
        Kind::Balance => at(10_000.0),
        Kind::Deliver if workload.live => at(200_000.0),
        Kind::Consume if emulates_slow_egress(workload) => 131_072.0 / bytes,
        Kind::Consume | Kind::Deliver => (400e6 / bytes).min(1e6),
        Kind::Produce | Kind::Distribute => at((200e6 / bytes).min(400e3)),
        // It has no records: only `seconds` end it.
        Kind::Metadata | Kind::Failover => f64::INFINITY,
    };
    workload.warmup_seconds + records / rate
}

/// Whether what is read goes through the 1 Mbit/s of a rented machine of 2018.
fn emulates_slow_egress(workload: &Workload) -> bool {
    workload.emulate == "ali-2018"
}

/// About how long an experiment measures in a profile on so many targets, seconds.
pub fn cost_of(
    experiment: &Experiment,
    profile: ProfileName,
    targets: u32,
) -> Result<f64, CatalogueError> {
    let mut seconds = 0.0;
    for cell in cells(experiment, profile)? {
        seconds += cost_seconds(&workload(experiment, profile, &toml::Table::new(), &cell)?);
    }
    Ok(seconds * f64::from(rounds(experiment, profile)) * f64::from(targets))
}

#[cfg(test)]
mod tests;
