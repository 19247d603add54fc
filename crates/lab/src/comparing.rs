//! `lab compare`: two runs against one another, and gates for a pipeline.

use crate::say::say;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use experiment::analysis::{self, Standing};
use experiment::compare::{self, Change, Comparison, Outcome};
use experiment::plan::Plan;
use experiment::round::Round;
use jiff::Timestamp;

use crate::arguments::Compare;
use crate::run::Settings;
use crate::{Ended, store};

/// Metrics that are shown without being asked for.
const SHOWN: [&str; 7] = [
    "throughput",
    "mib_per_s",
    "requests_per_s",
    "p50_ms",
    "p99_ms",
    "broker_cpu_s_per_mrec",
    "runtime_ms",
];

/// Compares two runs, and decides the gates.
pub fn compare(typed: &Compare) -> Result<Ended> {
    let (base, new) = (rounds(&typed.base, typed)?, rounds(&typed.new, typed)?);
    let gates = typed.gate.as_deref().map(compare::parse_gates).transpose()?.unwrap_or_default();
    environments(&typed.base, &typed.new)?;
    let comparison = compare::compare(&base, &new);
    ensure!(
        !comparison.cells.is_empty(),
        "the two runs have no cell in common: {}",
        comparison.unmatched.join("; ")
    );
    show(&comparison);
    if let Some(folder) = &typed.history {
        remember(folder, &typed.new, &new)?;
    }
    if gates.is_empty() {
        return Ok(Ended::Well);
    }
    let decisions = compare::decide(&comparison, &gates);
    say!();
    for decision in &decisions {
        say!(
            "{:<13} {}: {}",
            format!("{:?}", decision.outcome).to_uppercase(),
            decision.gate,
            decision.because
        );
    }
    Ok(match compare::verdict(&decisions) {
        Outcome::Pass => Ended::Well,
        Outcome::Inconclusive => Ended::Inconclusive,
        Outcome::Fail => Ended::GateFails,
    })
}

fn rounds(folder: &Path, typed: &Compare) -> Result<Vec<Round>> {
    let mut rounds = store::rounds(folder)?;
    if let Some(target) = &typed.target {
        rounds.retain(|round| round.target.split('#').next() == Some(target));
        ensure!(!rounds.is_empty(), "{} holds no round of {target}", folder.display());
    }
    Ok(rounds)
}

/// Says what differs between the machines, if anything does.
fn environments(base: &Path, new: &Path) -> Result<()> {
    let (base, new) = (store::environment(base)?, store::environment(new)?);
    if base.hash() != new.hash() {
        say!("The environments differ:");
        for difference in base.diff(&new).iter().filter(|difference| !difference.volatile) {
            let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
            say!(
                "  {:<24} {}  →  {}",
                difference.key,
                value(&difference.base),
                value(&difference.new)
            );
        }
        say!();
    }
    Ok(())
}

fn show(comparison: &Comparison) {
    say!("{:<24} {:>8}  {:<18} WHAT MAY BE SAID", "METRIC", "RATIO", "95 % INTERVAL");
    for name in SHOWN {
        if let Some(change) = comparison.overall.get(name) {
            line(&format!("{name} (all cells)"), change);
        }
    }
    for cell in &comparison.cells {
        let levels =
            cell.cell.iter().map(|(factor, level)| format!("{factor} {level}")).collect::<Vec<_>>();
        say!("\n{} on {}: {}", cell.experiment, cell.target, levels.join(", "));
        for name in SHOWN {
            if let Some(change) = cell.changes.get(name) {
                line(name, change);
            }
        }
    }
    for unmatched in &comparison.unmatched {
        say!("\nonly in one run: {unmatched}");
    }
    for doubt in &comparison.doubts {
        say!("\n{doubt}");
    }
}

fn line(name: &str, change: &Change) {
    let interval = change
        .interval
        .map_or_else(|| "too few rounds".to_owned(), |i| format!("{:.3} to {:.3}", i.low, i.high));
    let noise = match change.noise.within {
        0.0 => String::new(),
        within => format!(" (one program, run twice: up to a factor of {:.2})", within.exp()),
    };
    say!("{name:<24} {:>8.3}  {interval:<18} {}{noise}", change.ratio, words(change.standing));
}

fn words(standing: Standing) -> &'static str {
    match standing {
        Standing::WithinNoise => "within noise",
        Standing::Better => "better",
        Standing::Worse => "worse",
        Standing::Different => "different",
        Standing::Unknown => "too little was measured to say",
    }
}

/// When the first round began, as Otava reads it.
fn began(rounds: &[Round]) -> String {
    let ms = rounds.iter().map(|round| round.started_ms).min().unwrap_or(0);
    let at = Timestamp::from_millisecond(ms as i64).unwrap_or(Timestamp::UNIX_EPOCH);
    at.strftime("%Y-%m-%d %H:%M:%S +0000").to_string()
}

/// Adds a row for each cell to the files of a history.
fn remember(folder: &Path, run: &Path, rounds: &[Round]) -> Result<()> {
    let plan: Plan = store::read(run, "plan.json")?;
    let settings: Settings = store::read(run, "settings.json")?;
    let analysis = analysis::analyse(rounds, None, plan.seed);
    let stamp = compare::Stamp {
        time: began(rounds),
        commit: settings.commit,
        environment: store::environment(run)?.hash(),
    };
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for row in compare::history(&analysis.cells, &stamp) {
        let path = folder.join(&row.file);
        let existing = fs::read_to_string(&path).unwrap_or_default();
        store::write_whole(&path, row.append_to(&existing).as_bytes())?;
    }
    Ok(())
}
