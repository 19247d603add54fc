//! In which order cells are run: written down before anything is, so that a run can be resumed.
//!
//! Cells are grouped by the cluster they need, so that clusters are started few times. Within a cluster, an
//! experiment's rounds follow one another; inside a round its cells are shuffled (seeded), so that drift does not align with a
//! factor, and the targets run back to back, in turn first and second. A canary at the start, in the middle and at
//! the end shows drift; a target against itself shows what a difference is worth here. Not here: running (`lab`).

use crate::catalogue::{self, CatalogueError, ProfileName};
use crate::definition::{Experiment, Level, Levels, Need};
use crate::round::Purpose;
use crate::workload::{Acks, Workload};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

mod arrange;

/// The experiment that canary and same-target steps are said to be of.
pub const CANARY: &str = "canary";
/// Rounds of the canary at each of its places: their median is compared, so that one odd round is no drift.
pub const CANARY_ROUNDS: u32 = 3;
/// At the start, in the middle and at the end.
const CANARY_PLACES: u32 = 3;
/// Records a second that the canary offers.
const CANARY_RATE: f64 = 20_000.0;
/// Pairs of a target against itself: enough for an interval.
pub const SAME_TARGET_PAIRS: u32 = 6;

/// What a target can do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ability {
    /// Its name, such as `highwater`.
    pub target: String,
    /// Brokers that it can have at most.
    pub brokers: u32,
    /// What it has beside Kafka's protocol: [`Need::Gateway`], [`Need::WebSocket`].
    pub provides: Vec<Need>,
}

/// What shall be planned.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// The experiments.
    pub experiments: Vec<&'a Experiment>,
    /// How much time they get.
    pub profile: ProfileName,
    /// What decides every order.
    pub seed: u64,
    /// The targets: one, or two that are compared.
    pub targets: Vec<Ability>,
    /// Rounds of every experiment, instead of the profile's.
    pub rounds: Option<u32>,
    /// Settings over the definitions', under the cells' levels: another era, an emulation. An experiment that is about
    /// an emulation keeps its own.
    pub changed: toml::Table,
}

/// What is to be run, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// How much time everything gets.
    pub profile: ProfileName,
    /// What decided every order.
    pub seed: u64,
    /// The targets' names.
    pub targets: Vec<String>,
    /// What the steps run.
    pub cells: Vec<PlannedCell>,
    /// The steps, in order of time.
    pub steps: Vec<Step>,
    /// Cells that are not run on a target, and why.
    pub waiting: Vec<Waiting>,
}

/// A cell and what it asks of a target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedCell {
    /// The experiment's id, or [`CANARY`].
    pub experiment: String,
    /// Its factors' levels.
    pub cell: Levels,
    /// What is done. `brokers` is what the targets have, if that is fewer.
    pub workload: Workload,
    /// How that differs from what the experiment asks for, in sentences.
    pub deviations: Vec<String>,
    /// Rounds.
    pub rounds: u32,
    /// The targets it is run on.
    pub targets: Vec<String>,
    /// [`Experiment::written_out`].
    #[serde(default)]
    pub written_out: BTreeMap<String, String>,
    /// For a share of saturation: which of the plan's cells measures the saturation. It comes earlier in every round.
    pub saturation: Option<usize>,
}

/// One round of one cell on one target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// From 0: the order in time.
    pub order: u32,
    /// Which of [`Plan::cells`].
    pub cell: usize,
    /// The target; with `#a` or `#b` behind it if it runs against itself.
    pub target: String,
    /// Which round of the cell, from 0.
    pub round: u32,
    /// Why it is run.
    pub purpose: Purpose,
}

/// The cluster that a cell needs. Cells of one shape can follow one another without a restart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Shape {
    /// Brokers.
    pub brokers: u32,
    /// Settings beyond the brokers' own defaults.
    pub settings: BTreeMap<String, String>,
}

/// A cell that is not run on a target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Waiting {
    /// The experiment's id.
    pub experiment: String,
    /// Its factors' levels.
    pub cell: Levels,
    /// The target.
    pub target: String,
    /// What is missing.
    pub needs: Vec<Need>,
    /// In a sentence.
    pub why: String,
}

impl Step {
    /// The target's name without what marks a run against itself.
    pub fn target_name(&self) -> &str {
        self.target.split('#').next().unwrap_or(&self.target)
    }
}

impl PlannedCell {
    /// The cluster it needs.
    pub fn shape(&self) -> Shape {
        let mut settings = self.written_out.clone();
        settings.extend(self.workload.broker_settings.clone());
        Shape { brokers: self.workload.brokers, settings }
    }
}

impl Plan {
    /// What a step runs.
    pub fn cell(&self, step: &Step) -> &PlannedCell {
        &self.cells[step.cell]
    }

    /// How often clusters are started: how often the shape changes along the steps.
    pub fn cluster_starts(&self) -> usize {
        arrange::cluster_starts(self)
    }

    /// The experiments that are run.
    pub fn experiments(&self) -> BTreeSet<&str> {
        arrange::experiments(self)
    }

    /// About how long the measuring takes, seconds, without starting clusters and preparing topics.
    pub fn cost_seconds(&self) -> f64 {
        self.steps.iter().map(|step| catalogue::cost_seconds(&self.cell(step).workload)).sum()
    }
}

/// Plans a run. The same request gives the same plan.
pub fn plan(request: &Request<'_>) -> Result<Plan, CatalogueError> {
    let mut cells = Vec::new();
    let mut waiting = Vec::new();
    for experiment in &request.experiments {
        let from = cells.len();
        plan_experiment(request, experiment, &mut cells, &mut waiting)?;
        add_saturation(&mut cells, from);
    }
    let mut plan = Plan {
        profile: request.profile,
        seed: request.seed,
        targets: request.targets.iter().map(|ability| ability.target.clone()).collect(),
        cells,
        steps: Vec::new(),
        waiting,
    };
    arrange::steps(&mut plan);
    Ok(plan)
}

fn plan_experiment(
    request: &Request<'_>,
    experiment: &Experiment,
    cells: &mut Vec<PlannedCell>,
    waiting: &mut Vec<Waiting>,
) -> Result<(), CatalogueError> {
    let profile = request.profile;
    let changed = changed_for(experiment, &request.changed);
    for cell in catalogue::cells(experiment, profile)? {
        let workload = catalogue::workload(experiment, profile, &changed, &cell)?;
        let needs = catalogue::needs(experiment, &workload);
        let mut able = Vec::new();
        for ability in &request.targets {
            let missing = missing(ability, &needs, &workload);
            if missing.is_empty() {
                able.push(ability);
                continue;
            }
            waiting.push(Waiting {
                experiment: experiment.id.clone(),
                cell: cell.clone(),
                target: ability.target.clone(),
                why: why(&ability.target, &missing, &workload),
                needs: missing,
            });
        }
        if able.is_empty() {
            continue;
        }
        let (workload, deviations) = fitted(workload, &able);
        cells.push(PlannedCell {
            experiment: experiment.id.clone(),
            cell,
            workload,
            deviations,
            rounds: request.rounds.unwrap_or_else(|| catalogue::rounds(experiment, profile)),
            targets: able.iter().map(|ability| ability.target.clone()).collect(),
            written_out: experiment.written_out.clone(),
            saturation: None,
        });
    }
    Ok(())
}

/// What the request changes of an experiment. Title, rows and claims of one that is an emulation would be wrong of any
/// other.
fn changed_for(experiment: &Experiment, changed: &toml::Table) -> toml::Table {
    let own = |key: &String| key == "emulate" && experiment.workload.contains_key(key);
    let kept = changed.iter().filter(|(key, _)| !own(key));
    kept.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn missing(ability: &Ability, needs: &[Need], workload: &Workload) -> Vec<Need> {
    let lacks = |need: &&Need| match need {
        Need::Cluster => ability.brokers < workload.brokers.max(2),
        other => !ability.provides.contains(other),
    };
    needs.iter().filter(lacks).copied().collect()
}

fn why(target: &str, missing: &[Need], workload: &Workload) -> String {
    let one = |need: &Need| match need {
        Need::Cluster => format!("a cluster of {} brokers", workload.brokers.max(2)),
        Need::Gateway => "a gateway".to_owned(),
        Need::WebSocket => "a gateway that speaks WebSocket".to_owned(),
    };
    let missing: Vec<String> = missing.iter().map(one).collect();
    format!("{target} does not have {}", missing.join(" and "))
}

/// The workload with as many brokers as all of the targets have: they are compared on equal terms.
fn fitted(mut workload: Workload, able: &[&Ability]) -> (Workload, Vec<String>) {
    let has = able.iter().map(|ability| ability.brokers).min().unwrap_or(1).max(1);
    let mut deviations = Vec::new();
    if workload.brokers > has {
        deviations.push(format!("{} instead of {} brokers", has, workload.brokers));
        workload.brokers = has;
    }
    let mut at_most = |what: &str, number: &mut u32| {
        if *number > workload.brokers {
            deviations.push(format!("{what} {} instead of {number}", workload.brokers));
            *number = workload.brokers;
        }
    };
    at_most("replication factor", &mut workload.replication);
    at_most("min.insync.replicas", &mut workload.min_isr);
    (workload, deviations)
}

/// Points every share of saturation to the cell that measures it, and adds that cell where the experiment has none.
fn add_saturation(cells: &mut Vec<PlannedCell>, from: usize) {
    for at in from..cells.len() {
        if cells[at].workload.offered_share == 0.0 {
            continue;
        }
        let wanted = saturated(&cells[at]);
        let same = |cell: &PlannedCell| {
            cell.workload == wanted.workload && cell.experiment == wanted.experiment
        };
        let found = cells.iter().position(same);
        cells[at].saturation = Some(found.unwrap_or(cells.len()));
        if found.is_none() {
            cells.push(wanted);
        }
    }
}

/// The same cell with as much offered as is taken.
fn saturated(cell: &PlannedCell) -> PlannedCell {
    let mut cell = cell.clone();
    cell.workload.offered_share = 0.0;
    cell.workload.offered = 0.0;
    for factor in ["offered_share", "offered"] {
        if let Some(level) = cell.cell.get_mut(factor) {
            *level = Level::Number(0.0);
        }
    }
    cell
}

/// The fixed cell that shows drift. It offers a rate that every machine holds, so that what is watched, the CPU that a
/// record costs, does not depend on how full batches happen to become.
fn canary(targets: &[String], at_home: &PlannedCell) -> PlannedCell {
    let mut canary = against_itself(targets, at_home);
    canary.workload.offered = CANARY_RATE;
    canary.rounds = CANARY_PLACES * CANARY_ROUNDS;
    canary
}

/// The cell in which a target is run against itself, on the cluster of another cell: as much as is taken, like most
/// cells whose differences it weighs.
fn against_itself(targets: &[String], at_home: &PlannedCell) -> PlannedCell {
    let workload = Workload {
        brokers: at_home.workload.brokers,
        broker_settings: at_home.workload.broker_settings.clone(),
        partitions: 3,
        acks: Some(Acks::Leader),
        linger_ms: Some(5.0),
        idempotence: Some(false),
        seconds: 1.0,
        ..Workload::default()
    };
    PlannedCell {
        experiment: CANARY.to_owned(),
        cell: Levels::new(),
        workload,
        deviations: Vec::new(),
        rounds: SAME_TARGET_PAIRS,
        targets: targets.to_vec(),
        written_out: at_home.written_out.clone(),
        saturation: None,
    }
}

#[cfg(test)]
mod tests;
