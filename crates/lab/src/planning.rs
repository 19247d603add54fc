//! From what was typed to a plan, and plans and experiments in words.

use crate::say::say;
use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, anyhow, ensure};
use experiment::catalogue::{self, ProfileName};
use experiment::definition::{Experiment, Level, Need};
use experiment::plan::{self, Ability, Plan, PlannedCell, Waiting};
use experiment::workload::{Kind, Workload};

use crate::arguments::{Profile, Run};
use crate::failover::clients::{self, Programs};
use crate::nearest::nearest;
use crate::run::expected;
use crate::target::Target;

/// About how long making topics, connecting and reading back take beside the measuring, seconds a round.
const ROUND_OVERHEAD_S: f64 = 0.5;
/// About how long starting a cluster takes, seconds.
pub const CLUSTER_START_S: f64 = 12.0;

/// The plan of a run.
pub fn plan(typed: &Run, targets: &[Target], programs: &Programs) -> Result<Plan> {
    let mut experiments: Vec<&Experiment> = Vec::new();
    for pattern in &typed.experiments {
        let found = catalogue::select(pattern).map_err(|_| unknown(pattern))?;
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
    let mut plan = plan::plan(&request)?;
    leave_out_impossible(&mut plan, targets, programs);
    ensure!(
        !plan.steps.is_empty(),
        "nothing of this can run on {}: {}",
        plan.targets.join(" and "),
        plan.waiting.first().map_or("no cells", |waiting| &waiting.why)
    );
    Ok(plan)
}

/// An experiment, or a pattern, that there is not; with what may have been meant.
pub fn unknown(pattern: &str) -> anyhow::Error {
    let ids = catalogue::reports().iter().flat_map(|report| {
        let experiments = report.experiments.iter().map(|experiment| experiment.id.as_str());
        experiments.chain([report.id.as_str()])
    });
    let meant =
        nearest(pattern, ids).map_or_else(|| ";".to_owned(), |id| format!(": did you mean {id}?"));
    anyhow!("there is no experiment {pattern}{meant} `highwater lab list` shows what there is")
}

/// Leaves out what a target cannot do and what `experiment` does not know of it: settings of brokers that the lab does
/// not start, kills of those, the canary on more brokers than it can have; and clients that are not here.
fn leave_out_impossible(plan: &mut Plan, targets: &[Target], programs: &Programs) {
    let mut waiting = Vec::new();
    let absent = absent_clients(plan, programs);
    for cell in &mut plan.cells {
        let is_canary = cell.experiment == plan::CANARY;
        for target in targets {
            let impossible = unsettable(target, cell)
                .or_else(|| unkillable(target, cell))
                .or_else(|| too_many(target, cell))
                .or_else(|| absent.get(&cell.workload.client).filter(|_| kills(cell)).cloned());
            let (name, Some(why)) = (target.name(), impossible) else { continue };
            if !cell.targets.contains(&name) {
                continue;
            }
            cell.targets.retain(|other| *other != name);
            // A canary is no experiment that anybody waits for.
            waiting.extend((!is_canary).then(|| Waiting {
                experiment: cell.experiment.clone(),
                cell: cell.cell.clone(),
                target: name,
                needs: Vec::new(),
                why,
            }));
        }
    }
    plan.waiting.extend(waiting);
    let cells = &plan.cells;
    plan.steps.retain(|step| cells[step.cell].targets.iter().any(|t| t == step.target_name()));
    for (order, step) in (0..).zip(&mut plan.steps) {
        step.order = order;
    }
}

/// Why a cell's brokers cannot have the settings that it wants, if so.
fn unsettable(target: &Target, cell: &PlannedCell) -> Option<String> {
    let settings = &cell.workload.broker_settings;
    if settings.is_empty() || target.is_started_here() {
        return None;
    }
    let wanted: Vec<String> =
        settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let (wanted, name) = (wanted.join(", "), target.name());
    Some(format!("its brokers must be started with {wanted}, and those of {name} run already"))
}

fn kills(cell: &PlannedCell) -> bool {
    cell.workload.kind == Kind::Failover
}

/// The clients of a plan that cannot be run here, and why.
fn absent_clients(plan: &Plan, programs: &Programs) -> BTreeMap<String, String> {
    let of_cells = plan.cells.iter().filter(|cell| kills(cell));
    let clients: BTreeSet<&String> = of_cells.map(|cell| &cell.workload.client).collect();
    let absent = |client: &String| Some((client.clone(), clients::obstacle(client, programs)?));
    clients.into_iter().filter_map(absent).collect()
}

/// Why a cell's brokers cannot be killed, if so.
fn unkillable(target: &Target, cell: &PlannedCell) -> Option<String> {
    let is_others = kills(cell) && !target.is_started_here();
    is_others.then(|| {
        format!("its brokers are killed, and those of {} are not the lab's", target.name())
    })
}

/// All clients that any experiment has.
pub fn known_clients() -> Result<Vec<String>> {
    let mut known = Vec::new();
    for experiment in
        catalogue::experiments().filter(|one| one.factors.iter().any(|f| f == "client"))
    {
        for cell in catalogue::cells(experiment, ProfileName::Full)? {
            let client = cell.get("client").map(Level::to_string).unwrap_or_default();
            if !known.contains(&client) {
                known.push(client);
            }
        }
    }
    Ok(known)
}

/// Why a cell's brokers are too many, if so.
fn too_many(target: &Target, cell: &PlannedCell) -> Option<String> {
    let most = target.brokers_max().filter(|most| cell.workload.brokers > *most)?;
    Some(format!("{} has {most} broker(s) at most", target.name()))
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
        [Need::Gateway, Need::WebSocket].into_iter().filter(|need| target.offers(*need)).collect();
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

/// What an experiment's cells lack on brokers that the lab starts, if any of them lack something.
pub fn waits(experiment: &Experiment) -> Result<Vec<Need>> {
    let none = toml::Table::new();
    let mut needs = Vec::new();
    for cell in catalogue::cells(experiment, ProfileName::Quick)? {
        let workload: Workload = catalogue::workload(experiment, ProfileName::Quick, &none, &cell)?;
        needs.extend(catalogue::needs(experiment, &workload));
    }
    // Whatever the lab starts can be several brokers, and has what it puts in front of them.
    needs.retain(|need| !Target::Embedded.offers(*need));
    needs.sort_unstable();
    needs.dedup();
    Ok(needs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(pattern: &str, targets: &[(Target, u32)]) -> Plan {
        let able = |(target, brokers): &(Target, u32)| Ability {
            target: target.name(),
            brokers: *brokers,
            provides: Vec::new(),
        };
        let request = plan::Request {
            experiments: catalogue::select(pattern).unwrap(),
            profile: ProfileName::Quick,
            seed: 1,
            targets: targets.iter().map(able).collect(),
            rounds: None,
            changed: toml::Table::new(),
        };
        let mut plan = plan::plan(&request).unwrap();
        let targets: Vec<Target> = targets.iter().map(|(target, _)| target.clone()).collect();
        leave_out_impossible(&mut plan, &targets, &Programs::new());
        let orders: Vec<u32> = plan.steps.iter().map(|step| step.order).collect();
        assert_eq!(orders, (0..plan.steps.len() as u32).collect::<Vec<_>>());
        plan
    }

    #[test]
    fn brokers_that_run_already_are_not_asked_for_settings() {
        let running = Target::Address("there:9092".to_owned());
        let plan = planned("ibm", &[(running, 3)]);
        assert!(!plan.steps.is_empty());
        let settings = |step| &plan.cell(step).workload.broker_settings;
        assert!(plan.steps.iter().all(|step| settings(step).is_empty()));
        let tuning = plan.waiting.iter().find(|waiting| waiting.experiment == "ibm-tuning");
        assert!(tuning.unwrap().why.contains("run already"));
    }

    #[test]
    fn brokers_of_others_are_not_killed_and_clients_without_a_program_wait() {
        let running = Target::Address("there:9092".to_owned());
        let plan = planned("x-failover", &[(running, 3)]);
        assert!(plan.steps.iter().all(|step| plan.cell(step).experiment == plan::CANARY));
        assert!(plan.waiting.iter().all(|waiting| waiting.why.contains("not the lab's")));
        let plan = planned("x-failover", &[(Target::Embedded, 9)]);
        let runs = |client: &str| {
            plan.steps
                .iter()
                .any(|step| kills(plan.cell(step)) && plan.cell(step).workload.client == client)
        };
        assert!(runs("highwater"));
        assert!(!runs("sarama"));
        let waits = plan.waiting.iter().find(|waiting| waiting.why.contains("sarama=PROGRAM"));
        assert_eq!(waits.unwrap().target, "highwater");
        assert!(known_clients().unwrap().contains(&"franz-go".to_owned()));
    }

    #[test]
    fn no_cell_is_run_on_more_brokers_than_there_can_be() {
        let plan = planned("ibm-tuning", &[(Target::Embedded, 9), (Target::ApacheKafka, 9)]);
        assert!(plan.steps.iter().any(|step| plan.cell(step).experiment == plan::CANARY));
        assert!(plan.steps.iter().any(|step| step.target_name() == "highwater"));
        let mut cell = plan.cell(&plan.steps[0]).clone();
        cell.workload.brokers = 9;
        assert_eq!(too_many(&Target::Embedded, &cell), None);
        cell.workload.brokers = 10;
        let why = too_many(&Target::Embedded, &cell);
        assert_eq!(why.as_deref(), Some("highwater has 9 broker(s) at most"));
    }

    #[test]
    fn what_is_not_there_comes_with_what_was_meant() {
        assert!(unknown("mif_grid").to_string().contains("did you mean mif-grid?"));
        assert!(unknown("moon").to_string().contains("there is no experiment moon; `highwater"));
    }
}
