//! What steps of a plan share: a session of kills serves all clients at once, and each of them is a cell of its own. The step
//! that comes first performs it; those of the other clients find their part here.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow};
use experiment::plan::{Plan, PlannedCell, Step};
use experiment::round::{Durability, Purpose};
use experiment::workload::{Kind, Workload};

use super::session::Outcomes;
use crate::round::measured::Measured;

/// What a step takes from a session.
#[derive(Debug)]
pub struct Part {
    /// When the session began, milliseconds since 1970.
    pub started_ms: u64,
    /// What it measured of the step's client, and what an acknowledgement was worth; or why it did not.
    pub outcome: Result<(Measured, Durability), String>,
}

/// The parts of sessions that steps have not taken yet, by the steps' order.
#[derive(Debug, Default)]
pub struct Shared(BTreeMap<u32, Part>);

impl Shared {
    /// The part of this step, if a session that was performed for another has one.
    pub fn take(&mut self, step: &Step) -> Option<Part> {
        self.0.remove(&step.order)
    }

    /// Hands the parts of a session out: returns that of `step`, keeps the others'.
    pub fn hand_out(
        &mut self,
        step: &Step,
        company: &[(&Step, String)],
        started_ms: u64,
        performed: Result<(Outcomes, Durability)>,
    ) -> Result<(Measured, Durability)> {
        let (mut outcomes, durability) = match performed {
            Ok(performed) => performed,
            Err(error) => {
                let why = format!("{error:#}");
                for (other, _) in company.iter().filter(|(other, _)| other.order != step.order) {
                    let part = Part { started_ms, outcome: Err(why.clone()) };
                    self.0.insert(other.order, part);
                }
                return Err(error);
            }
        };
        let mut own = Err(anyhow!("the session has no such client"));
        for (other, client) in company {
            let Some(outcome) = outcomes.remove(client) else { continue };
            let outcome = outcome.map(|measured| (measured, durability));
            if other.order == step.order {
                own = outcome;
            } else {
                let outcome = outcome.map_err(|error| format!("{error:#}"));
                self.0.insert(other.order, Part { started_ms, outcome });
            }
        }
        own
    }
}

/// The steps that can share the session of `step`, itself included, with their clients: the same kills on the same target in the same round,
/// of those that `is_left`.
pub fn company<'a>(
    plan: &'a Plan,
    step: &Step,
    is_left: impl Fn(&Step) -> bool,
) -> Vec<(&'a Step, String)> {
    let cell = plan.cell(step);
    let shares = |other: &&Step| {
        other.order == step.order
            || (other.purpose == Purpose::Cell
                && (other.round, &other.target) == (step.round, &step.target)
                && is_left(other)
                && is_alike(plan.cell(other), cell))
    };
    let client = |step: &'a Step| (step, plan.cell(step).workload.client.clone());
    plan.steps.iter().filter(shares).map(client).collect()
}

/// Whether two cells differ in their clients only.
fn is_alike(a: &PlannedCell, b: &PlannedCell) -> bool {
    let but_client = |workload: &Workload| Workload { client: String::new(), ..workload.clone() };
    a.workload.kind == Kind::Failover
        && a.experiment == b.experiment
        && but_client(&a.workload) == but_client(&b.workload)
}

#[cfg(test)]
mod tests {
    use super::*;
    use experiment::catalogue::{self, ProfileName};
    use experiment::plan::{self, Ability};

    fn planned() -> Plan {
        let able =
            |target: &str| Ability { target: target.to_owned(), brokers: 9, provides: Vec::new() };
        let request = plan::Request {
            experiments: catalogue::select("x-failover").unwrap(),
            profile: ProfileName::Quick,
            seed: 1,
            targets: vec![able("highwater"), able("apache-kafka")],
            rounds: Some(2),
            changed: toml::Table::new(),
        };
        plan::plan(&request).unwrap()
    }

    #[test]
    fn one_session_serves_all_clients_of_one_kind_target_and_round() {
        let plan = planned();
        let of_cells: Vec<&Step> =
            plan.steps.iter().filter(|step| step.purpose == Purpose::Cell).collect();
        for step in &of_cells {
            let company = company(&plan, step, |_| true);
            let clients: Vec<&str> = company.iter().map(|(_, client)| client.as_str()).collect();
            assert_eq!(clients.len(), 8, "{clients:?}");
            for (other, _) in &company {
                assert_eq!((other.round, &other.target), (step.round, &step.target));
                assert_eq!(plan.cell(other).workload.kill, plan.cell(step).workload.kill);
            }
        }
        let first = of_cells[0];
        let alone = company(&plan, first, |_| false);
        assert_eq!(alone.len(), 1);
        assert_eq!(alone[0].0.order, first.order);
    }

    #[test]
    fn every_step_takes_its_part_once() {
        let plan = planned();
        let step = plan.steps.iter().find(|step| step.purpose == Purpose::Cell).unwrap();
        let company = company(&plan, step, |_| true);
        let mut outcomes = Outcomes::new();
        for (_, client) in &company {
            let measured = Measured { records: client.len() as u64, ..Measured::default() };
            outcomes.insert(client.clone(), Ok(measured));
        }
        outcomes.insert("java".to_owned(), Err(anyhow!("no Java")));
        let mut shared = Shared::default();
        let performed = Ok((outcomes, Durability::ReplicatedSynced));
        let own = shared.hand_out(step, &company, 5, performed);
        for (other, client) in &company {
            let outcome = match other.order == step.order {
                true => own.as_ref().map_err(ToString::to_string).map(|own| own.0.records),
                false => {
                    let part = shared.take(other).unwrap();
                    assert_eq!(part.started_ms, 5);
                    part.outcome.map(|part| part.0.records)
                }
            };
            match client.as_str() {
                "java" => assert_eq!(outcome, Err("no Java".to_owned())),
                _ => assert_eq!(outcome, Ok(client.len() as u64)),
            }
            assert!(shared.take(other).is_none());
        }
    }

    #[test]
    fn a_session_that_fails_is_not_tried_for_every_client() {
        let plan = planned();
        let step = plan.steps.iter().find(|step| step.purpose == Purpose::Cell).unwrap();
        let company = company(&plan, step, |_| true);
        let mut shared = Shared::default();
        assert!(shared.hand_out(step, &company, 5, Err(anyhow!("no brokers"))).is_err());
        for (other, _) in company.iter().filter(|(other, _)| other.order != step.order) {
            assert_eq!(shared.take(other).unwrap().outcome.unwrap_err(), "no brokers");
        }
    }
}
