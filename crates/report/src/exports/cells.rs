//! `cells.csv`: every metric of every cell on every target, and every published value, a line each.

use crate::sheet::{Row, Sheet};
use crate::wording;
use experiment::analysis::{CellAnalysis, Summary};
use experiment::definition::Levels;
use experiment::round::METRICS;
use std::fmt::Write;

const HEAD: &str = "report,experiment,cell,target,emulated,metric,unit,n,median,mean,low,high,bounds,durability,delivery\n";

/// The file. `bounds` says what `low` and `high` are: `ci95` of the mean, or the `range` of the rounds.
pub(crate) fn csv(sheets: &[Sheet<'_>]) -> String {
    let mut text = HEAD.to_owned();
    for sheet in sheets {
        for row in &sheet.rows {
            published(&mut text, sheet, row);
            // Runs that are shown from another side are in their own experiment's lines already.
            if sheet.experiment.same_runs_as.is_none() {
                row.measured.iter().flatten().for_each(|cell| measured(&mut text, sheet, cell));
            }
        }
    }
    text
}

fn published(text: &mut String, sheet: &Sheet<'_>, row: &Row<'_>) {
    for (metric, value) in &row.published {
        let fields = [
            &sheet.report.id,
            &sheet.experiment.id,
            &levels(&row.cell),
            "published",
            "",
            metric,
            unit(metric),
            "",
            &value.to_string(),
            &value.to_string(),
            "",
            "",
            "",
            "",
            "",
        ];
        line(text, &fields);
    }
}

fn measured(text: &mut String, sheet: &Sheet<'_>, cell: &CellAnalysis) {
    let (durability, delivery) =
        (wording::durability(cell.durability), wording::delivery(&cell.verdict));
    for (metric, summary) in &cell.metrics {
        let (low, high, bounds) = bounds(summary);
        let fields = [
            &sheet.report.id,
            &cell.experiment,
            &levels(&cell.cell),
            &cell.target,
            &cell.emulated,
            metric,
            unit(metric),
            &summary.n.to_string(),
            &summary.median.to_string(),
            &summary.mean.to_string(),
            &low.to_string(),
            &high.to_string(),
            bounds,
            durability,
            &delivery,
        ];
        line(text, &fields);
    }
}

fn bounds(summary: &Summary) -> (f64, f64, &'static str) {
    match summary.interval {
        Some(interval) => (interval.low, interval.high, "ci95"),
        None => (summary.min, summary.max, "range"),
    }
}

/// `record_bytes=1024 acks=all`, as definitions write levels.
pub(super) fn levels(levels: &Levels) -> String {
    let parts: Vec<String> = levels.iter().map(|(key, level)| format!("{key}={level}")).collect();
    parts.join(" ")
}

fn unit(metric: &str) -> &'static str {
    METRICS.iter().find(|(name, _, _)| *name == metric).map_or("", |(_, unit, _)| unit)
}

/// One line after RFC 4180, but for its line end.
fn line(text: &mut String, fields: &[&str]) {
    for (place, field) in fields.iter().enumerate() {
        let comma = if place == 0 { "" } else { "," };
        if field.contains([',', '"', '\n', '\r']) {
            write!(text, "{comma}\"{}\"", field.replace('"', "\"\"")).expect("to memory");
        } else {
            write!(text, "{comma}{field}").expect("to memory");
        }
    }
    text.push('\n');
}
