//! A published report redrawn from its definition alone: nothing is run.

use crate::run::{Judged, Run};
use experiment::catalogue;
use experiment::claims::{self, Rows};
use experiment::definition::{Experiment, Report};
use experiment::explain::{self, Explanation, Machine};

/// A run in which nothing was measured: the published rows, and what becomes of the claims on them.
pub(crate) fn run(report: &Report) -> Run {
    let mut report = report.clone();
    // What the report measured or said; our own experiments have nothing to redraw.
    report.experiments.retain(|experiment| {
        !experiment.published.is_empty() || experiment.claims.iter().any(|claim| !claim.ours)
    });
    let rows = Rows::published(catalogue::experiments());
    let findings = report.experiments.iter().flat_map(|experiment| {
        let found = claims::evaluate_all(experiment, &rows);
        found.into_iter().map(|finding| Judged { target: String::new(), finding })
    });
    Run {
        title: format!("{}, redrawn", report.title),
        findings: findings.collect(),
        explanations: explanations(&report),
        reports: vec![report],
        ..Run::default()
    }
}

fn explanations(report: &Report) -> Vec<Explanation> {
    let of = |experiment: &Experiment| {
        let points = explain::published(experiment);
        explain::explain_points(&experiment.id, "", &points, &Machine::default())
    };
    report.experiments.iter().flat_map(of).collect()
}
