//! `lab list` and `lab show`: the catalogue in a terminal.

use crate::say::say;
use std::time::Duration;

use anyhow::{Result, ensure};
use experiment::catalogue::{self, ProfileName};
use experiment::definition::{Experiment, Level, Levels, Need, Report};

use crate::planning;
use crate::progress::words;

/// Prints all experiments, or those of one report.
pub fn list(report: Option<&str>) -> Result<()> {
    if let Some(id) = report {
        let known: Vec<&str> =
            catalogue::reports().iter().map(|report| report.id.as_str()).collect();
        ensure!(known.contains(&id), "there is no report {id}; there are {}", known.join(", "));
    }
    let mut waits = false;
    say!("{:<22} {:>5} {:>7}  {:<13} TITLE", "ID", "CELLS", "QUICK", "WAITS FOR");
    for one in catalogue::reports().iter().filter(|one| report.is_none_or(|id| one.id == id)) {
        say!("\n{} ({})", one.title, one.year);
        for experiment in &one.experiments {
            line(experiment)?;
            waits |= !planning::waits(experiment)?.is_empty();
        }
    }
    say!(
        "\n{}",
        match waits {
            true =>
                "What an experiment waits for is not there yet: cells that need it are left out.",
            false => "Nothing waits: every cell can be run.",
        }
    );
    Ok(())
}

fn line(experiment: &Experiment) -> Result<()> {
    if let Some(other) = &experiment.same_runs_as {
        say!(
            "{:<22} {:>5} {:>7}  {:<13} {} (from the rounds of {other})",
            experiment.id,
            "",
            "",
            "",
            experiment.title
        );
        return Ok(());
    }
    let cells = catalogue::cells(experiment, ProfileName::Quick)?.len();
    let cost =
        words(Duration::from_secs_f64(catalogue::cost_of(experiment, ProfileName::Quick, 1)?));
    let waits = planning::waits(experiment)?.iter().map(need).collect::<Vec<_>>().join(", ");
    say!("{:<22} {cells:>5} {cost:>7}  {waits:<13} {}", experiment.id, experiment.title);
    Ok(())
}

fn need(need: &Need) -> &'static str {
    match need {
        Need::Cluster => "cluster",
        Need::Gateway => "gateway",
        Need::WebSocket => "web-socket",
    }
}

/// Prints one experiment.
pub fn show(id: &str) -> Result<()> {
    let experiment = catalogue::experiment(id).ok_or_else(|| planning::unknown(id))?;
    let report = catalogue::report_of(id).expect("every experiment is of a report");
    head(experiment, report);
    published(experiment);
    if !experiment.claims.is_empty() {
        say!("\nClaims");
        for claim in &experiment.claims {
            say!("  {:<5} {}{}", claim.id, claim.says, if claim.ours { " (ours)" } else { "" });
        }
    }
    costs(experiment)
}

fn head(experiment: &Experiment, report: &Report) {
    say!("{}: {}\n{}\n", experiment.id, experiment.title, experiment.question);
    say!("From     {} ({})", report.title, report.year);
    say!("Setting  {}", report.setting);
    say!("Varies   {}", experiment.factors.join(", "));
    for (factor, levels) in &experiment.grid {
        say!(
            "         {factor}: {}",
            levels.iter().map(Level::to_string).collect::<Vec<_>>().join(" ")
        );
    }
    for note in &experiment.notes {
        say!("Note     {note}");
    }
}

fn published(experiment: &Experiment) {
    let Some(first) = experiment.published.first() else { return };
    let columns: Vec<&String> = first.keys().collect();
    let ordered = |row: &Levels| {
        columns
            .iter()
            .map(|c| row.get(*c).map_or_else(String::new, Level::to_string))
            .collect::<Vec<_>>()
    };
    let rows: Vec<Vec<String>> = experiment.published.iter().map(ordered).collect();
    let width =
        |at: usize| rows.iter().map(|row| row[at].len()).max().unwrap_or(0).max(columns[at].len());
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        cells
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:>width$}"))
            .collect::<Vec<_>>()
            .join("  ")
    };
    say!("\nPublished\n  {}", line(columns.iter().map(|c| c.as_str()).collect()));
    for row in &rows {
        say!("  {}", line(row.iter().map(String::as_str).collect()));
    }
}

fn costs(experiment: &Experiment) -> Result<()> {
    say!("\nCost on one target");
    for profile in [ProfileName::Quick, ProfileName::Standard, ProfileName::Full] {
        let cells = catalogue::cells(experiment, profile)?.len();
        let cost = words(Duration::from_secs_f64(catalogue::cost_of(experiment, profile, 1)?));
        say!(
            "  {:<9} {cells} cells × {} rounds, about {cost}",
            profile.name(),
            catalogue::rounds(experiment, profile)
        );
    }
    let waits = planning::waits(experiment)?;
    if !waits.is_empty() {
        say!("\nSome or all cells need: {}", waits.iter().map(need).collect::<Vec<_>>().join(", "));
    }
    Ok(())
}
