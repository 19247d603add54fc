//! How many records went where: bars over partitions or brokers. Shares of all records where the totals differ, as
//! they do when a short run stands beside a long one.

use super::axis::Axis;
use super::build::{Choice, Subject, by};
use super::{Body, Picture, Plot, Point, Role, Series};
use crate::palette;
use crate::sheet::Row;
use crate::wording;
use experiment::definition::Level;

/// One row's counts of one subject.
struct Counted<'a> {
    subject: Subject<'a>,
    level: Option<Level>,
    counts: Vec<f64>,
}

/// The panels: one, or one a target where colours mean a factor's levels.
pub(super) fn panels(choice: &Choice<'_, '_>) -> Vec<Picture> {
    let all = gather(choice);
    if all.is_empty() {
        return Vec::new();
    }
    let targets: Vec<Subject<'_>> =
        choice.sheet.targets.iter().enumerate().map(|(n, name)| Subject::Target(n, name)).collect();
    let measured: Vec<Subject<'_>> =
        targets.into_iter().filter(|t| all.iter().any(|c| c.subject == *t)).collect();
    if choice.chart.series.is_none() || measured.len() < 2 {
        return vec![panel(choice, &all.iter().collect::<Vec<_>>(), "")];
    }
    measured
        .into_iter()
        .map(|target| {
            let here = |c: &&Counted<'_>| c.subject == target || c.subject == Subject::Published;
            let name = if let Subject::Target(_, name) = target { name } else { "" };
            panel(choice, &all.iter().filter(here).collect::<Vec<_>>(), name)
        })
        .collect()
}

fn gather<'a>(choice: &Choice<'_, 'a>) -> Vec<Counted<'a>> {
    let mut all = Vec::new();
    for row in &choice.rows {
        let level = choice.chart.series.as_ref().and_then(|factor| row.cell.get(factor)).cloned();
        let mut add = |subject, counts: Vec<f64>| {
            if counts.iter().any(|count| *count > 0.0) {
                all.push(Counted { subject, level: level.clone(), counts });
            }
        };
        add(Subject::Published, row.published_counts.clone());
        for (number, name) in choice.sheet.targets.iter().enumerate() {
            add(Subject::Target(number, name), measured_counts(row, number));
        }
    }
    all.sort_by_key(|counted| counted.subject == Subject::Published);
    all
}

fn measured_counts(row: &Row<'_>, target: usize) -> Vec<f64> {
    let cell = row.measured.get(target).copied().flatten();
    cell.map(|cell| cell.counts.iter().map(|count| *count as f64).collect()).unwrap_or_default()
}

fn panel(choice: &Choice<'_, '_>, all: &[&Counted<'_>], subject: &str) -> Picture {
    let totals: Vec<f64> = all.iter().map(|c| c.counts.iter().sum()).collect();
    let shares = totals.iter().any(|total| (total / totals[0] - 1.0).abs() > 0.001);
    let mut notes = choice.notes.clone();
    if shares {
        notes.push("Shares, because the numbers of records differ.".to_owned());
    }
    let series: Vec<Series> =
        all.iter().map(|counted| series(choice, counted, all, shares)).collect();
    let places = all.iter().map(|c| c.counts.len()).max().unwrap_or(0);
    let values: Vec<f64> = series.iter().flat_map(|s| s.points.iter().map(|p| p.y)).collect();
    let y = if shares { "share of records, %" } else { "records" };
    let x = if choice.chart.x.contains("broker") { "broker" } else { "partition" };
    let plot = Plot {
        x: Axis::categories(x.to_owned(), (1..=places).map(|place| place.to_string()).collect()),
        y: Axis::values(y.to_owned(), &values, false),
        right: None,
        by: by(choice),
        series,
    };
    let title = choice.chart.title.clone();
    Picture { title, subject: subject.to_owned(), notes, body: Body::Plot(plot) }
}

fn series(
    choice: &Choice<'_, '_>,
    counted: &Counted<'_>,
    all: &[&Counted<'_>],
    shares: bool,
) -> Series {
    let total: f64 = counted.counts.iter().sum();
    let scale = if shares { 100.0 / total } else { 1.0 };
    let published = counted.subject == Subject::Published;
    let hollow = published && all.iter().any(|other| other.subject != Subject::Published);
    let levels = choice.chart.series.as_ref().map(|factor| choice.levels(factor));
    let level = counted.level.as_ref();
    let place = levels.and_then(|all| all.iter().position(|other| Some(*other) == level));
    let points = counted.counts.iter().enumerate();
    Series {
        name: name(choice, counted, hollow),
        role: if hollow { Role::Published } else { Role::Measured },
        colour: match (place, counted.subject) {
            (Some(level), _) => palette::level_place(level),
            (None, Subject::Target(number, _)) => choice.sheet.colours[number],
            (None, Subject::Published) => palette::PUBLISHED,
        },
        bars: !hollow,
        right: false,
        points: points.map(|(x, y)| Point { x: x as f64, y: y * scale, interval: None }).collect(),
    }
}

fn name(choice: &Choice<'_, '_>, counted: &Counted<'_>, hollow: bool) -> String {
    let subject = match counted.subject {
        Subject::Published => "published",
        Subject::Target(_, name) => name,
    };
    match (&choice.chart.series, &counted.level) {
        (Some(factor), Some(level)) if hollow => {
            format!("{}, published", wording::level(factor, level))
        }
        (Some(factor), Some(level)) => wording::level(factor, level),
        _ => subject.to_owned(),
    }
}
