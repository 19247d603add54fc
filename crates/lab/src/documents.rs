//! From a run's folder to its documents, and from published reports to theirs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use experiment::analysis::{self, Analysis};
use experiment::catalogue;
use experiment::claims::{self, Rows};
use experiment::definition::{Experiment, Report};
use experiment::environment::Environment;
use experiment::explain;
use experiment::plan::Plan;
use experiment::round::Round;
use experiment::warm_up;
use report::Judged;

use crate::run::Settings;
use crate::store;
use crate::target::Target;

/// The documents that can be asked for, and how their paths begin or end.
const FORMATS: [(&str, &[&str]); 7] = [
    ("html", &["report.html"]),
    ("md", &["report.md", "summary.svg", "charts/"]),
    ("csv", &["cells.csv"]),
    ("json", &["result.json"]),
    ("omb", &["omb/"]),
    ("hgrm", &["hgrm/"]),
    ("prom", &["metrics.prom"]),
];

/// Writes the documents of the run in `folder`; into `out` if given. No formats: all of them. Returns the run.
pub fn write(folder: &Path, out: Option<&Path>, formats: &[String]) -> Result<report::Run> {
    let run = assemble(folder)?;
    put(out.unwrap_or(folder), report::render(&run), formats)?;
    Ok(run)
}

/// Writes the published charts and tables of a report.
pub fn write_fixture(id: &str, out: Option<&Path>, formats: &[String]) -> Result<PathBuf> {
    let known = catalogue::reports().iter().map(|report| report.id.as_str()).collect::<Vec<_>>();
    ensure!(known.contains(&id), "there is no report {id}; there are {}", known.join(", "));
    let out = out.map_or_else(|| PathBuf::from(id), Path::to_owned);
    put(&out, report::from_fixture(id)?, formats)?;
    Ok(out)
}

fn put(out: &Path, documents: report::Documents, formats: &[String]) -> Result<()> {
    for format in formats {
        let known = FORMATS.map(|(name, _)| name);
        ensure!(
            known.contains(&format.as_str()),
            "there is no format {format}; there are {}",
            known.join(", ")
        );
    }
    let wanted = |path: &str| {
        let of = |(name, paths): &(&str, &[&str])| {
            formats.iter().any(|format| format == name)
                && paths.iter().any(|start| path.starts_with(start))
        };
        formats.is_empty() || FORMATS.iter().any(of)
    };
    for (path, bytes) in documents.0.iter().filter(|(path, _)| wanted(path)) {
        store::write_whole(&out.join(path), bytes)?;
    }
    Ok(())
}

/// All that is known of the run in a folder.
fn assemble(folder: &Path) -> Result<report::Run> {
    let plan: Plan = store::read(folder, "plan.json")?;
    let settings: Settings = store::read(folder, "settings.json")?;
    let rounds = store::rounds(folder)?;
    let environment = store::environment(folder)?;
    let targets =
        settings.targets.iter().map(|text| text.parse::<Target>().map_err(anyhow::Error::msg));
    let targets: Vec<Target> = targets.collect::<Result<_>>()?;
    let names: Vec<String> = targets.iter().map(Target::name).collect();
    // What is measured is compared with what it is measured beside.
    let base = names.last().filter(|_| names.len() > 1).map(String::as_str);
    let is_java = |name: &str| name == Target::ApacheKafka.name();
    let young = warm_up::young_rounds(&plan, &rounds, is_java);
    let analysis = analysis::analyse_settled(&rounds, &young, base, plan.seed);
    let reports = reports_of(&plan);
    let findings = judge(&reports, &analysis, &names);
    let explanations =
        explain::explain_planned(&analysis, &plan.cells, &machine(&rounds, &environment));
    Ok(report::Run {
        title: title(&plan, &targets),
        reports,
        profile: plan.profile.name().to_owned(),
        seed: plan.seed,
        commit: settings.commit,
        reproduce: vec![settings.command],
        targets: targets
            .iter()
            .map(|target| report::Target { name: target.name(), description: target.describe() })
            .collect(),
        rounds,
        analysis,
        findings,
        explanations,
        environment,
        waiting: plan.waiting,
    })
}

/// What the explainers want to know of the machine.
fn machine(rounds: &[Round], environment: &Environment) -> explain::Machine {
    explain::Machine {
        cores: environment.get("cpu.cores").and_then(|cores| cores.parse().ok()).unwrap_or(0.0),
        mhz: rounds.iter().filter_map(|round| round.metrics.get("machine_mhz").copied()).collect(),
    }
}

fn title(plan: &Plan, targets: &[Target]) -> String {
    let name = |target: &Target| match target {
        Target::Embedded => "Highwater".to_owned(),
        Target::ApacheKafka => "Apache Kafka".to_owned(),
        other => other.name(),
    };
    let targets: Vec<String> = targets.iter().map(name).collect();
    let experiments: usize = reports_of(plan).iter().map(|report| report.experiments.len()).sum();
    let plural = if experiments == 1 { "" } else { "s" };
    format!("{}: {experiments} experiment{plural}", targets.join(" and "))
}

/// The reports with those of their experiments that are in the plan, or wait, or show the rounds of one that is.
fn reports_of(plan: &Plan) -> Vec<Report> {
    let mut wanted: BTreeSet<&str> = plan.experiments();
    wanted.extend(plan.waiting.iter().map(|waiting| waiting.experiment.as_str()));
    let is_wanted = |experiment: &&Experiment| {
        let shown = experiment.same_runs_as.as_deref();
        wanted.contains(experiment.id.as_str()) || shown.is_some_and(|shown| wanted.contains(shown))
    };
    let some = |report: &Report| {
        let experiments = report.experiments.iter().filter(is_wanted).cloned().collect();
        Report { experiments, ..report.clone() }
    };
    catalogue::reports().iter().map(some).filter(|report| !report.experiments.is_empty()).collect()
}

/// Every claim on the published rows and on each target.
fn judge(reports: &[Report], analysis: &Analysis, targets: &[String]) -> Vec<Judged> {
    let experiments = || reports.iter().flat_map(|report| &report.experiments);
    let mut subjects = vec![(String::new(), Rows::published(experiments()))];
    subjects
        .extend(targets.iter().map(|target| (target.clone(), Rows::measured(analysis, target))));
    let mut judged = Vec::new();
    for (target, rows) in &subjects {
        let findings = experiments().flat_map(|experiment| claims::evaluate_all(experiment, rows));
        judged.extend(findings.map(|finding| Judged { target: target.clone(), finding }));
    }
    judged
}
