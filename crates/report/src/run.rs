//! What is handed in: everything that is known of a run. It is borrowed from nobody and reads no clock: the same
//! run gives the same documents, byte for byte.

use experiment::analysis::Analysis;
use experiment::claims::Finding;
use experiment::definition::Report;
use experiment::environment::Environment;
use experiment::explain::Explanation;
use experiment::plan::Waiting;
use experiment::round::Round;
use serde::{Deserialize, Serialize};

/// A finished or half-finished run with all that was made of it.
#[derive(Debug, Clone, Default)]
pub struct Run {
    /// What stands above all.
    pub title: String,
    /// The reports with those of their experiments that the run was asked for, in the order to be shown.
    pub reports: Vec<Report>,
    /// `quick`, `standard` or `full`.
    pub profile: String,
    /// The seed of the plan.
    pub seed: u64,
    /// The commit that the lab was built from.
    pub commit: String,
    /// The commands that repeat the run, one a line.
    pub reproduce: Vec<String>,
    /// The targets, the base of ratios last.
    pub targets: Vec<Target>,
    /// What was measured.
    pub rounds: Vec<Round>,
    /// What the rounds say.
    pub analysis: Analysis,
    /// What became of the claims, on the published rows and on each target.
    pub findings: Vec<Judged>,
    /// What limits the numbers, for published rows and targets.
    pub explanations: Vec<Explanation>,
    /// What it ran on.
    pub environment: Environment,
    /// What was not run, and why.
    pub waiting: Vec<Waiting>,
}

/// A target of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Target {
    /// Its name in rounds, such as `highwater`.
    pub name: String,
    /// In a sentence: program, version, how it was started.
    pub description: String,
}

/// What became of one claim on one subject.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// The target; empty: the published rows.
    pub target: String,
    /// How the claim stands, and why.
    pub finding: Finding,
}

impl Run {
    /// The experiments of the run with the report that each is from.
    pub fn experiments(
        &self,
    ) -> impl Iterator<Item = (&Report, &experiment::definition::Experiment)> {
        self.reports.iter().flat_map(|report| {
            report.experiments.iter().map(move |experiment| (report, experiment))
        })
    }
}
