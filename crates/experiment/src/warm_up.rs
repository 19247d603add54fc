//! Java brokers younger than their warm-up, from a plan and its rounds.
//!
//! A Java runtime compiles as it runs: on two cores the CPU that a record costs three brokers falls fivefold in their
//! first minute and a half. A round on younger brokers measures the compiler. Not here: warming up (`lab`), and the
//! treatment of such rounds (`analysis`).

use crate::plan::{Plan, Shape};
use crate::round::Round;
use crate::workload::Kind;
use std::collections::{BTreeMap, BTreeSet};

/// Warm-up of a cluster of Java brokers, seconds for each of its brokers: they share the cores of one machine.
pub const SECONDS_PER_BROKER: f64 = 30.0;

/// A cluster of a target, since a round first needed it.
struct RunningCluster {
    shape: Shape,
    started_ms: u64,
}

/// Orders of the rounds whose brokers were younger than their warm-up. `is_java` is true for the name of a target
/// whose brokers are Java processes that the lab starts.
///
/// The lab restarts a target's brokers when a step needs another shape. Their age counts from the first round of the
/// shape. Two kinds of rounds are never young: those of a single broker, which the lab warms up until its cost has
/// settled, and sessions of kills, whose gaps are timeouts.
pub fn young_rounds(
    plan: &Plan,
    rounds: &[Round],
    is_java: impl Fn(&str) -> bool,
) -> BTreeSet<u32> {
    let mut ordered: Vec<&Round> = rounds.iter().collect();
    ordered.sort_by_key(|round| round.order);
    let mut running: BTreeMap<&str, RunningCluster> = BTreeMap::new();
    let mut young = BTreeSet::new();
    let mut latest_ms = 0;
    for round in ordered {
        let Some(step) = plan.steps.iter().find(|step| step.order == round.order) else { continue };
        let (cell, target) = (plan.cell(step), step.target_name());
        // A session measures several clients at once; their rounds after the first start no brokers.
        if round.started_ms < latest_ms {
            continue;
        }
        latest_ms = round.started_ms;
        let shape = cell.shape();
        running.retain(|_, cluster| cluster.shape == shape);
        if cell.workload.kind == Kind::Failover {
            running.clear();
            continue;
        }
        let brokers = shape.brokers;
        let cluster =
            running.entry(target).or_insert(RunningCluster { shape, started_ms: round.started_ms });
        let age_s = (round.started_ms - cluster.started_ms) as f64 / 1000.0;
        if is_java(target) && brokers > 1 && age_s < SECONDS_PER_BROKER * f64::from(brokers) {
            young.insert(round.order);
        }
    }
    young
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::ProfileName;
    use crate::plan::{PlannedCell, Step};
    use crate::round::{Durability, Purpose, Verdict};
    use crate::workload::Workload;

    fn cell(brokers: u32, kind: Kind) -> PlannedCell {
        PlannedCell {
            experiment: "e".to_owned(),
            cell: Default::default(),
            workload: Workload { brokers, kind, ..Workload::default() },
            deviations: Vec::new(),
            rounds: 1,
            targets: vec!["java".to_owned()],
            written_out: Default::default(),
            saturation: None,
        }
    }

    fn round(order: u32, started_s: u64) -> Round {
        Round {
            experiment: "e".to_owned(),
            cell: Default::default(),
            target: "java".to_owned(),
            round: 0,
            order,
            purpose: Purpose::Cell,
            started_ms: started_s * 1000,
            emulated: String::new(),
            deviations: Vec::new(),
            metrics: Default::default(),
            histograms: Default::default(),
            counts: Vec::new(),
            verdict: Verdict::default(),
            durability: Durability::Unknown,
            warnings: Vec::new(),
            failure: None,
        }
    }

    /// Young rounds of a plan whose steps run the cells of these places at these seconds.
    fn young(cells: Vec<PlannedCell>, steps: &[(usize, u64)]) -> Vec<u32> {
        let step = |(order, (cell, _)): (usize, &(usize, u64))| Step {
            order: order as u32,
            cell: *cell,
            target: "java".to_owned(),
            round: 0,
            purpose: Purpose::Cell,
        };
        let plan = Plan {
            profile: ProfileName::Quick,
            seed: 0,
            targets: vec!["java".to_owned()],
            steps: steps.iter().enumerate().map(step).collect(),
            cells,
            waiting: Vec::new(),
        };
        let rounds: Vec<Round> =
            steps.iter().enumerate().map(|(order, (_, s))| round(order as u32, *s)).collect();
        assert!(young_rounds(&plan, &rounds, |_| false).is_empty());
        young_rounds(&plan, &rounds, |target| target == "java").into_iter().collect()
    }

    #[test]
    fn three_brokers_are_young_for_ninety_seconds() {
        let cells = vec![cell(3, Kind::Produce)];
        assert_eq!(young(cells, &[(0, 100), (0, 189), (0, 190), (0, 400)]), [0, 1]);
    }

    #[test]
    fn another_shape_starts_other_brokers() {
        let cells = vec![cell(3, Kind::Produce), cell(2, Kind::Produce)];
        assert_eq!(young(cells, &[(0, 100), (0, 300), (1, 310), (1, 400), (0, 410)]), [0, 2, 4]);
    }

    #[test]
    fn a_session_of_kills_leaves_no_brokers_behind() {
        let cells = vec![cell(3, Kind::Produce), cell(3, Kind::Failover)];
        let steps = [(0, 100), (0, 300), (1, 310), (0, 600), (1, 310), (0, 800)];
        assert_eq!(young(cells, &steps), [0, 3]);
    }

    #[test]
    fn a_single_broker_is_warmed_up_before_its_first_round() {
        assert_eq!(young(vec![cell(1, Kind::Produce)], &[(0, 100), (0, 101)]), [0u32; 0]);
    }
}
