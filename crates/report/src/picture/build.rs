//! From a chart's definition and a sheet to its panels. One panel if all fits together; a panel a target where
//! colours already mean the levels of a factor; the published values apart where they are of another magnitude.

use super::axis::Axis;
use super::{Body, PUBLISHED, Picture, Plot, Point, Role, Series, counts, heat};
use crate::number;
use crate::palette;
use crate::sheet::{Row, Sheet};
use crate::wording;
use experiment::analysis::Interval;
use experiment::definition::{Chart, Form, Level};

/// Published and measured values further apart than this do not share an axis.
const SAME_MAGNITUDE: f64 = 5.0;

/// Whose values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject<'a> {
    Published,
    Target(usize, &'a str),
}

/// What a chart draws: its rows, and what was left out to get one value a place.
pub(super) struct Choice<'s, 'a> {
    pub(super) chart: &'a Chart,
    pub(super) sheet: &'s Sheet<'a>,
    pub(super) rows: Vec<&'s Row<'a>>,
    pub(super) notes: Vec<String>,
}

/// The panels of a chart; none if there is nothing to draw.
pub(crate) fn pictures<'a>(chart: &'a Chart, sheet: &Sheet<'a>) -> Vec<Picture> {
    let choice = Choice::new(chart, sheet);
    let mut panels = match chart.form {
        Form::HeatMap => heat::panels(&choice),
        Form::Counts => counts::panels(&choice),
        _ => plots(&choice),
    };
    // Rounds of an older definition may have values, but not at the levels that the chart asks for.
    panels.retain(Picture::shows_something);
    let emulations = sheet.emulations().join(", ");
    if !emulations.is_empty() {
        panels.iter_mut().for_each(|picture| picture.mark(&format!("emulated: {emulations}")));
    }
    panels
}

impl<'s, 'a> Choice<'s, 'a> {
    fn new(chart: &'a Chart, sheet: &'s Sheet<'a>) -> Choice<'s, 'a> {
        let chosen = |row: &&Row<'_>| chart.only.iter().all(|(k, v)| row.cell.get(k) == Some(v));
        // What has no value must not leave an empty place, nor be the one of several rows that is drawn.
        let drawn = |row: &&Row<'_>| chart.form == Form::Counts || has_value(chart, row);
        let mut rows: Vec<&Row<'a>> = sheet.rows.iter().filter(chosen).filter(drawn).collect();
        let mut notes = Vec::new();
        while let Some((factor, level)) = too_many(chart, sheet, &rows) {
            rows.retain(|row| row.cell.get(&factor) == Some(&level));
            notes.push(format!("Only {}.", wording::setting(&factor, &level)));
        }
        Choice { chart, sheet, rows, notes }
    }

    /// The targets, and the published rows if any has a metric of this chart.
    pub(super) fn subjects(&self) -> Vec<Subject<'a>> {
        let targets = self.sheet.targets.iter().enumerate();
        let all = std::iter::once(Subject::Published)
            .chain(targets.map(|(number, name)| Subject::Target(number, name)));
        all.filter(|subject| self.has(*subject)).collect()
    }

    fn has(&self, subject: Subject<'_>) -> bool {
        let any =
            |metric: &String| self.rows.iter().any(|row| value(row, subject, metric).is_some());
        self.chart.y.iter().any(any)
    }

    /// The levels of a factor in the chosen rows: numbers from the smallest, no limit last, others in the sheet's order.
    pub(super) fn levels(&self, factor: &str) -> Vec<&'s Level> {
        let mut levels: Vec<&Level> = Vec::new();
        for level in self.rows.iter().filter_map(|row| row.cell.get(factor)) {
            if !levels.contains(&level) {
                levels.push(level);
            }
        }
        // The sheet sorts by another factor first, and a grid with holes would begin anywhere.
        if levels.iter().all(|level| matches!(level, Level::Number(_))) {
            levels.sort_by_cached_key(|level| match wording::is_unlimited(factor, level) {
                true => Level::Number(f64::INFINITY),
                false => (*level).clone(),
            });
        }
        levels
    }

    fn series_levels(&self) -> Vec<Option<&'s Level>> {
        match &self.chart.series {
            Some(factor) => self.levels(factor).into_iter().map(Some).collect(),
            None => vec![None],
        }
    }
}

/// Whether anybody has a value of the chart's metrics in a row.
fn has_value(chart: &Chart, row: &Row<'_>) -> bool {
    let measured = |metric: &str| (0..row.measured.len()).any(|t| row.value(t, metric).is_some());
    chart.y.iter().any(|metric| row.published.contains_key(metric.as_str()) || measured(metric))
}

/// A factor that makes two rows fall on one place of the picture, with its first level there.
fn too_many(chart: &Chart, sheet: &Sheet<'_>, rows: &[&Row<'_>]) -> Option<(String, Level)> {
    let place = |row: &Row<'_>| {
        let series = chart.series.as_ref().and_then(|series| row.cell.get(series));
        (row.cell.get(&chart.x).cloned(), series.cloned())
    };
    let mut others = rows
        .iter()
        .enumerate()
        .flat_map(|(number, row)| rows[..number].iter().map(move |earlier| (*earlier, *row)));
    let (first, second) = others.find(|(first, second)| place(first) == place(second))?;
    let differs = |factor: &&String| first.cell.get(*factor) != second.cell.get(*factor);
    let factor = sheet.experiment.factors.iter().find(differs)?;
    Some((factor.clone(), first.cell.get(factor)?.clone()))
}

/// A subject's value of a metric in a row.
pub(super) fn value(row: &Row<'_>, subject: Subject<'_>, metric: &str) -> Option<f64> {
    match subject {
        Subject::Published => row.published.get(metric).copied(),
        Subject::Target(number, _) => row.value(number, metric),
    }
}

fn interval(row: &Row<'_>, subject: Subject<'_>, metric: &str) -> Option<Interval> {
    let Subject::Target(number, _) = subject else { return None };
    row.measured.get(number).copied().flatten()?.metrics.get(metric)?.interval
}

fn plots(choice: &Choice<'_, '_>) -> Vec<Picture> {
    let groups = together(choice);
    let several = groups.len() > 1;
    let shared = bounds_of(choice, &groups);
    groups
        .iter()
        .zip(shared)
        .map(|(group, values)| {
            let mut picture = plot(choice, group, &values);
            if several {
                picture.subject = subject_name(group);
            }
            picture
        })
        .collect()
}

/// Which subjects share a panel.
fn together<'a>(choice: &Choice<'_, 'a>) -> Vec<Vec<Subject<'a>>> {
    let subjects = choice.subjects();
    let colours_taken = choice.chart.series.is_some() || choice.chart.form == Form::TwoAxes;
    let is_target = |subject: &&Subject<'_>| matches!(subject, Subject::Target(..));
    let targets: Vec<Subject<'a>> = subjects.iter().filter(is_target).copied().collect();
    let published = subjects.contains(&Subject::Published);
    if targets.is_empty() {
        return if published { vec![vec![Subject::Published]] } else { Vec::new() };
    }
    let apart = published && !same_magnitude(choice, &targets);
    let mut groups: Vec<Vec<Subject<'a>>> =
        if colours_taken { targets.iter().map(|t| vec![*t]).collect() } else { vec![targets] };
    if published && !apart {
        groups.iter_mut().for_each(|group| group.push(Subject::Published));
    }
    if apart {
        groups.insert(0, vec![Subject::Published]);
    }
    groups
}

fn same_magnitude(choice: &Choice<'_, '_>, targets: &[Subject<'_>]) -> bool {
    choice.chart.y.iter().all(|metric| {
        let highest = |subject: Subject<'_>| {
            let all = choice.rows.iter().filter_map(|row| value(row, subject, metric));
            all.fold(0.0, f64::max)
        };
        let published = highest(Subject::Published);
        let near =
            |ours: f64| published / ours < SAME_MAGNITUDE && ours / published < SAME_MAGNITUDE;
        published <= 0.0
            || targets.iter().map(|t| highest(*t)).all(|ours| ours <= 0.0 || near(ours))
    })
}

/// For each panel and metric the values that its axis must hold: panels of targets share them.
fn bounds_of(choice: &Choice<'_, '_>, groups: &[Vec<Subject<'_>>]) -> Vec<Vec<Vec<f64>>> {
    let of = |group: &[Subject<'_>], metric: &str| -> Vec<f64> {
        let rows = choice.rows.iter();
        rows.flat_map(|row| group.iter().map(move |s| (row, *s)))
            .flat_map(|(row, subject)| {
                let bounds = interval(row, subject, metric).map(|i| [i.low, i.high]);
                let bounds = bounds.into_iter().flatten();
                value(row, subject, metric).into_iter().chain(bounds)
            })
            .collect()
    };
    let measured: Vec<&Vec<Subject<'_>>> =
        groups.iter().filter(|group| group.as_slice() != [Subject::Published]).collect();
    let shared = |metric: &String| measured.iter().flat_map(|group| of(group, metric)).collect();
    let shared: Vec<Vec<f64>> = choice.chart.y.iter().map(shared).collect();
    let alone = |group: &[Subject<'_>]| choice.chart.y.iter().map(|m| of(group, m)).collect();
    groups
        .iter()
        .map(
            |group| {
                if group.as_slice() == [Subject::Published] { alone(group) } else { shared.clone() }
            },
        )
        .collect()
}

fn subject_name(group: &[Subject<'_>]) -> String {
    let targets: Vec<&str> = group
        .iter()
        .filter_map(|subject| match subject {
            Subject::Target(_, name) => Some(*name),
            Subject::Published => None,
        })
        .collect();
    if targets.is_empty() { PUBLISHED.to_owned() } else { targets.join(" and ") }
}

fn plot(choice: &Choice<'_, '_>, group: &[Subject<'_>], values: &[Vec<f64>]) -> Picture {
    let chart = choice.chart;
    let two = chart.form == Form::TwoAxes;
    let x = x_axis(choice);
    let mut notes = choice.notes.clone();
    let mut series: Vec<Series> = Vec::new();
    for (place, metric) in chart.y.iter().take(if two { 2 } else { 1 }).enumerate() {
        series.extend(lines(choice, group, metric, place, &x));
    }
    let mut values = values.to_vec();
    if chart.form == Form::BarWithIdeal {
        let ideals = ideals(&series, choice);
        values[0].extend(ideals.iter().flat_map(|ideal| ideal.points.iter().map(|point| point.y)));
        series.extend(ideals);
    }
    let y = y_axis(choice, group, &values, two || chart.logarithmic, &mut notes);
    let right = (two && chart.y.len() > 1)
        .then(|| Axis::values(wording::metric(&chart.y[1]).with_unit(), &values[1], false));
    let plot = Plot { x, y, right, by: by(choice), series };
    Picture { title: chart.title.clone(), subject: String::new(), notes, body: Body::Plot(plot) }
}

/// What colours mean, if they are levels of a factor.
pub(super) fn by(choice: &Choice<'_, '_>) -> String {
    choice.chart.series.as_ref().map(|s| wording::factor(s).with_unit()).unwrap_or_default()
}

fn x_axis(choice: &Choice<'_, '_>) -> Axis {
    let factor = &choice.chart.x;
    let title = wording::axis(factor).with_unit();
    let levels = choice.levels(factor);
    let numbers: Vec<f64> = levels.iter().filter_map(|level| level.number()).collect();
    let unlimited = levels.iter().any(|level| wording::is_unlimited(factor, level));
    let numeric = choice.chart.form == Form::Line && numbers.len() == levels.len() && !unlimited;
    if numeric {
        let mut sorted = numbers;
        sorted.sort_by(f64::total_cmp);
        return Axis::levels(title, &sorted, |n| wording::level(factor, &Level::Number(n)));
    }
    Axis::categories(title, levels.iter().map(|level| wording::level(factor, level)).collect())
}

fn y_axis(
    choice: &Choice<'_, '_>,
    group: &[Subject<'_>],
    values: &[Vec<f64>],
    logarithmic: bool,
    notes: &mut Vec<String>,
) -> Axis {
    let chart = choice.chart;
    let title = wording::metric(&chart.y[0]).with_unit();
    let published_alone = group == [Subject::Published];
    match chart.published_bounds {
        Some((low, high)) if published_alone && !logarithmic && high > low => {
            let axis = Axis::between(title, (low, high), &values[0]);
            if low > 0.0 && axis.bounds.0 == low {
                notes.push(format!("The axis starts at {}, as published.", number::published(low)));
            }
            axis
        }
        _ => Axis::values(title, &values[0], logarithmic),
    }
}

/// The series of one metric: one a level of the series' factor, for each subject of the panel.
fn lines(
    choice: &Choice<'_, '_>,
    group: &[Subject<'_>],
    metric: &str,
    place: usize,
    x: &Axis,
) -> Vec<Series> {
    let bars = matches!(choice.chart.form, Form::Bar | Form::BarWithIdeal);
    let mut all = Vec::new();
    for subject in group {
        for (number, level) in choice.series_levels().into_iter().enumerate() {
            let points = points(choice, *subject, metric, level, x);
            if points.is_empty() {
                continue;
            }
            let hollow = *subject == Subject::Published && group.len() > 1;
            all.push(Series {
                name: series_name(choice, *subject, group, metric, level),
                role: if hollow { Role::Published } else { Role::Measured },
                colour: colour(choice, *subject, number, place),
                bars: bars && !hollow,
                right: place == 1,
                points,
            });
        }
    }
    all
}

fn colour(choice: &Choice<'_, '_>, subject: Subject<'_>, level: usize, place: usize) -> usize {
    if choice.chart.series.is_some() {
        return palette::level_place(level);
    }
    match (choice.chart.form == Form::TwoAxes, subject) {
        (true, _) => palette::level_place(place),
        (false, Subject::Target(number, _)) => choice.sheet.colours[number],
        (false, Subject::Published) => palette::PUBLISHED,
    }
}

fn series_name(
    choice: &Choice<'_, '_>,
    subject: Subject<'_>,
    group: &[Subject<'_>],
    metric: &str,
    level: Option<&Level>,
) -> String {
    let published = subject == Subject::Published && group.len() > 1;
    let mut name = match (&choice.chart.series, level, subject) {
        (Some(factor), Some(level), _) => wording::level(factor, level),
        _ if choice.chart.form == Form::TwoAxes => wording::metric(metric).with_unit(),
        (_, _, Subject::Target(_, name)) => return name.to_owned(),
        (_, _, Subject::Published) => return "published".to_owned(),
    };
    if published {
        name.push_str(", published");
    }
    name
}

fn points(
    choice: &Choice<'_, '_>,
    subject: Subject<'_>,
    metric: &str,
    level: Option<&Level>,
    x: &Axis,
) -> Vec<Point> {
    let factor = &choice.chart.x;
    let of_series = |row: &&&Row<'_>| match &choice.chart.series {
        Some(series) => row.cell.get(series) == level,
        None => true,
    };
    let categories = choice.levels(factor);
    let place = |row: &Row<'_>| {
        let level = row.cell.get(factor)?;
        match x.scale {
            super::axis::Scale::Category => {
                categories.iter().position(|other| *other == level).map(|at| at as f64)
            }
            _ => level.number(),
        }
    };
    let mut points: Vec<Point> = choice
        .rows
        .iter()
        .filter(of_series)
        .filter_map(|row| {
            let y = value(row, subject, metric)?;
            Some(Point { x: place(row)?, y, interval: interval(row, subject, metric) })
        })
        .collect();
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    points
}

/// For each series of bars, what its first value would become if it grew as x does.
fn ideals(series: &[Series], choice: &Choice<'_, '_>) -> Vec<Series> {
    let levels = choice.levels(&choice.chart.x);
    let number = |point: &Point| levels.get(point.x as usize).and_then(|level| level.number());
    let of = |series: &Series| {
        let first = series.points.first()?;
        let by_one = first.y / number(first)?;
        let points: Vec<Point> = series
            .points
            .iter()
            .filter_map(|p| Some(Point { x: p.x, y: by_one * number(p)?, interval: None }))
            .collect();
        (points.len() > 1).then(|| Series {
            name: format!("linear, {}", series.name),
            role: Role::Ideal,
            bars: false,
            points,
            ..series.clone()
        })
    };
    series.iter().filter(|series| series.bars).filter_map(of).collect()
}
