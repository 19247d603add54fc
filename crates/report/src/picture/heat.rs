//! Heat maps: one panel for the published values and one for each target, with the same colours where the values are
//! of one magnitude.

use super::build::{Choice, Subject, value};
use super::{Body, Heat, PUBLISHED, Picture};
use crate::wording;

/// The panels.
pub(super) fn panels(choice: &Choice<'_, '_>) -> Vec<Picture> {
    let subjects = choice.subjects();
    let several = subjects.len() > 1;
    let ours = bounds(choice, subjects.iter().filter(|s| **s != Subject::Published));
    let theirs = bounds(choice, [Subject::Published].iter());
    let of = |subject: &Subject<'_>| {
        let (name, bounds) = match subject {
            Subject::Published => (PUBLISHED, theirs),
            Subject::Target(_, name) => (*name, ours),
        };
        Picture {
            title: choice.chart.title.clone(),
            subject: if several { name.to_owned() } else { String::new() },
            notes: choice.notes.clone(),
            body: Body::Heat(heat(choice, *subject, bounds)),
        }
    };
    subjects.iter().map(of).collect()
}

fn bounds<'i, 'a: 'i>(
    choice: &Choice<'_, 'a>,
    subjects: impl Iterator<Item = &'i Subject<'a>>,
) -> (f64, f64) {
    let metric = &choice.chart.y[0];
    let of = |subject: &Subject<'_>| -> Vec<f64> {
        choice.rows.iter().filter_map(|row| value(row, *subject, metric)).collect()
    };
    let values: Vec<f64> = subjects.flat_map(of).collect();
    let high = values.iter().copied().fold(0.0, f64::max);
    let low = values.iter().copied().fold(high, f64::min);
    (if choice.chart.logarithmic { low } else { low.min(0.0) }, high)
}

fn heat(choice: &Choice<'_, '_>, subject: Subject<'_>, bounds: (f64, f64)) -> Heat {
    let chart = choice.chart;
    let series = chart.series.as_deref().unwrap_or_default();
    let (across, down) = (choice.levels(&chart.x), choice.levels(series));
    let place = |row: &&&crate::sheet::Row<'_>| {
        let column = across.iter().position(|level| row.cell.get(&chart.x) == Some(*level))?;
        let line = down.iter().position(|level| row.cell.get(series) == Some(*level));
        Some((column, line.unwrap_or(0), value(row, subject, &chart.y[0])?))
    };
    let names = |factor: &str, levels: &[&experiment::definition::Level]| -> Vec<String> {
        levels.iter().map(|level| wording::level(factor, level)).collect()
    };
    let rows = names(series, &down);
    Heat {
        x_title: wording::axis(&chart.x).with_unit(),
        columns: names(&chart.x, &across),
        y_title: if series.is_empty() { String::new() } else { wording::axis(series).with_unit() },
        rows: if rows.is_empty() { vec![String::new()] } else { rows },
        value_title: wording::metric(&chart.y[0]).with_unit(),
        cells: choice.rows.iter().filter_map(|row| place(&row)).collect(),
        bounds,
        logarithmic: chart.logarithmic && bounds.0 > 0.0,
    }
}
