//! From what was typed to a plan, and plans and experiments in words.

use crate::say::say;
use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use experiment::catalogue::{self, ProfileName};
use experiment::definition::{Experiment, Level, Need};
use experiment::plan::{self, Ability, Plan, PlannedCell};
use experiment::workload::Workload;

use crate::arguments::{Profile, Run};
use crate::run::expected;
use crate::target::Target;

/// About how long making topics, connecting and reading back take beside the measuring, seconds a round.
const ROUND_OVERHEAD_S: f64 = 0.5;
/// About how long starting a cluster takes, seconds.
pub const CLUSTER_START_S: f64 = 12.0;

/// The plan of a run.
pub fn plan(typed: &Run, targets: &[Target]) -> Result<Plan> {
    let mut experiments: Vec<&Experiment> = Vec::new();
    for pattern in &typed.experiments {
        let found = catalogue::select(pattern)
            .with_context(|| format!("{pattern}: see `highwater lab list`"))?;
        experiments.extend(
            found
                .into_iter()
                .filter(|new| !experiments.iter().any(|known| known.id == new.id))
                .collect::<Vec<_>>(),
        );
    }
    let mut changed = toml::Table::new();
    if let Some(era) = typed.era {
        changed.insert("era".to_owned(), toml::Value::try_from(era)?);
    }
    if let Some(emulation) = &typed.emulate {
        let known = proxy::EMULATIONS.iter().map(|one| one.name).collect::<Vec<_>>();
        ensure!(
            known.contains(&emulation.as_str()),
            "there is no emulation {emulation}; there are {}",
            known.join(", ")
        );
        changed.insert("emulate".to_owned(), emulation.as_str().into());
    }
    let abilities = targets.iter().map(ability).collect::<Result<Vec<_>>>()?;
    let request = plan::Request {
        experiments,
        profile: profile(typed.profile),
        seed: typed.seed,
        targets: abilities,
        rounds: typed.rounds,
        changed,
    };
    let plan = plan::plan(&request)?;
    ensure!(
        !plan.steps.is_empty(),
        "nothing of this can run on {}: {}",
        plan.targets.join(" and "),
        plan.waiting.first().map_or("no cells", |waiting| &waiting.why)
    );
    Ok(plan)
}

/// A profile as the catalogue calls it.
pub fn profile(profile: Profile) -> ProfileName {
    match profile {
        Profile::Quick => ProfileName::Quick,
        Profile::Standard => ProfileName::Standard,
        Profile::Full => ProfileName::Full,
    }
}

fn ability(target: &Target) -> Result<Ability> {
    let provides =
        [Need::Gateway, Need::Push].into_iter().filter(|need| target.offers(*need)).collect();
    let brokers = match target.brokers_max() {
        Some(brokers) => brokers,
        // The ones that are there have to do.
        None => target.start(&plan::Shape { brokers: 1, settings: Default::default() })?.brokers,
    };
    Ok(Ability { target: target.name(), brokers, provides })
}

/// About how long a step takes, seconds.
pub fn step_cost_s(cell: &PlannedCell) -> f64 {
    catalogue::cost_seconds(&cell.workload) + ROUND_OVERHEAD_S
}

/// `record_bytes 1000, offered 8000`.
pub fn cell_in_words(cell: &PlannedCell) -> String {
    let level =
        |(factor, level): (&String, &Level)| format!("{} {level}", factor.replace('_', " "));
    cell.cell.iter().map(level).collect::<Vec<_>>().join(", ")
}

/// Prints what a plan would run.
pub fn show(plan: &Plan) {
    say!(
        "{} rounds on {}, about {}:",
        plan.steps.len(),
        plan.targets.join(" and "),
        expected(plan)
    );
    for step in &plan.steps {
        let cell = plan.cell(step);
        let brokers = cell.workload.brokers;
        say!(
            "{:>5}  {:<16} {:<14} {brokers} broker(s)  {}",
            step.order,
            cell.experiment,
            step.target,
            cell_in_words(cell)
        );
    }
    let mut waiting: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    for cell in &plan.waiting {
        *waiting.entry((&cell.experiment, &cell.why)).or_default() += 1;
    }
    for ((experiment, why), cells) in waiting {
        say!("waits  {experiment:<16} {cells:>3} cell(s): {why}");
    }
}

/// What an experiment's cells lack on a target of one broker, if any of them lack something.
pub fn waits(experiment: &Experiment) -> Result<Vec<Need>> {
    let none = toml::Table::new();
    let mut needs = Vec::new();
    for cell in catalogue::cells(experiment, ProfileName::Quick)? {
        let workload: Workload = catalogue::workload(experiment, ProfileName::Quick, &none, &cell)?;
        needs.extend(catalogue::needs(experiment, &workload));
    }
    needs.sort_unstable();
    needs.dedup();
    Ok(needs)
}
