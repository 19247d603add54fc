//! `metrics.prom`: each metric's mean and bounds as gauges in Prometheus' text form, for a node exporter's text files
//! or a push gateway.

use crate::run::Run;
use crate::summary;
use experiment::analysis::CellAnalysis;
use experiment::round::METRICS;
use std::fmt::Write;

/// The file.
pub(crate) fn text(run: &Run) -> String {
    let mut text = String::new();
    for (metric, unit, meaning) in METRICS {
        let cells = || run.analysis.cells.iter().filter(|cell| cell.metrics.contains_key(*metric));
        if cells().next().is_none() {
            continue;
        }
        let unit = if unit.is_empty() { String::new() } else { format!(" ({unit})") };
        head(&mut text, metric, &format!("{meaning}{unit}"));
        cells().for_each(|cell| gauge(&mut text, metric, cell));
    }
    head(&mut text, "lost_records", "acknowledged and not found, of all rounds that were checked");
    for cell in run.analysis.cells.iter().filter(|cell| cell.verdict.checked) {
        sample(&mut text, "lost_records", &labels(cell, None), cell.verdict.lost as f64);
    }
    head(&mut text, "claims", "claims of the reports and of the lab by what became of them");
    for tally in summary::tally(run) {
        let whose = if tally.ours { "lab" } else { "report" };
        for (outcome, count) in &tally.counts {
            let (subject, outcome) = (escape(&tally.subject), outcome.name().to_lowercase());
            let labels = format!("of=\"{whose}\",subject=\"{subject}\",outcome=\"{outcome}\"");
            sample(&mut text, "claims", &labels, *count as f64);
        }
    }
    text
}

fn head(text: &mut String, name: &str, help: &str) {
    writeln!(text, "# HELP highwater_lab_{name} {help}").expect("to memory");
    writeln!(text, "# TYPE highwater_lab_{name} gauge").expect("to memory");
}

fn gauge(text: &mut String, metric: &str, cell: &CellAnalysis) {
    let summary = &cell.metrics[metric];
    let (low, high) = match summary.interval {
        Some(interval) => (interval.low, interval.high),
        None => (summary.min, summary.max),
    };
    for (which, value) in [("mean", summary.mean), ("low", low), ("high", high)] {
        sample(text, metric, &labels(cell, Some(which)), value);
    }
}

fn sample(text: &mut String, name: &str, labels: &str, value: f64) {
    writeln!(text, "highwater_lab_{name}{{{labels}}} {value}").expect("to memory");
}

fn labels(cell: &CellAnalysis, which: Option<&str>) -> String {
    let mut labels =
        format!("experiment=\"{}\",target=\"{}\"", escape(&cell.experiment), escape(&cell.target));
    if !cell.emulated.is_empty() {
        write!(labels, ",emulated=\"{}\"", escape(&cell.emulated)).expect("to memory");
    }
    for (key, level) in &cell.cell {
        let name: String =
            key.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        write!(labels, ",{name}=\"{}\"", escape(&level.to_string())).expect("to memory");
    }
    if let Some(which) = which {
        write!(labels, ",value=\"{which}\"").expect("to memory");
    }
    labels
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
