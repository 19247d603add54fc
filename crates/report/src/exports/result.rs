//! `result.json`: the whole run but its rounds, which have a file of their own.

use crate::caption;
use crate::run::{Judged, Run, Target};
use experiment::analysis::Analysis;
use experiment::environment::Environment;
use experiment::explain::Explanation;
use experiment::plan::Waiting;
use serde::Serialize;

/// Rises when a field changes its meaning or goes.
const FORMAT: u32 = 1;

#[derive(Serialize)]
struct Result<'a> {
    format: u32,
    title: &'a str,
    profile: &'a str,
    seed: u64,
    commit: &'a str,
    reproduce: &'a [String],
    targets: &'a [Target],
    environment_hash: String,
    environment: &'a Environment,
    experiments: Vec<&'a str>,
    rounds: usize,
    analysis: &'a Analysis,
    findings: &'a [Judged],
    explanations: &'a [Explanation],
    waiting: &'a [Waiting],
}

/// The file.
pub(crate) fn json(run: &Run) -> String {
    let result = Result {
        format: FORMAT,
        title: &run.title,
        profile: &run.profile,
        seed: run.seed,
        commit: &run.commit,
        reproduce: &run.reproduce,
        targets: &run.targets,
        environment_hash: caption::environment(run),
        environment: &run.environment,
        experiments: run.experiments().map(|(_, experiment)| experiment.id.as_str()).collect(),
        rounds: run.rounds.len(),
        analysis: &run.analysis,
        findings: &run.findings,
        explanations: &run.explanations,
        waiting: &run.waiting,
    };
    let mut text = serde_json::to_string_pretty(&result).expect("keys are texts");
    text.push('\n');
    text
}
