//! Tables before they are written: heads, cells and what they mean. `html` and `markdown` write the same ones.

use crate::number;
use crate::sheet::{Row, Sheet};
use crate::wording;
use experiment::analysis::{CellAnalysis, Ratio, Standing, Summary};
use experiment::definition::Level;

/// Columns that a page has room for, beside durability and delivery.
const ROOM: usize = 10;
/// Columns of numbers that a table has at least, whatever the factors take: a metric's.
const LEAST: usize = 4;

/// A table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Table {
    /// What it shows, for people who cannot see it and for the heading.
    pub(crate) caption: String,
    /// What its heads do not say; a sentence, or empty.
    pub(crate) note: String,
    pub(crate) heads: Vec<Head>,
    pub(crate) rows: Vec<Vec<Cell>>,
}

/// One column's head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    /// What stands over several columns: a metric with its unit. Empty: the column stands alone.
    pub(crate) group: String,
    pub(crate) text: String,
    /// Numbers stand right.
    pub(crate) numeric: bool,
}

/// One cell.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Cell {
    pub(crate) text: String,
    /// Behind it, smaller: an interval, a label.
    pub(crate) small: String,
    /// More of it, where one can point at it.
    pub(crate) title: String,
    /// What it is sorted by, if it is a number.
    pub(crate) value: Option<f64>,
    pub(crate) tone: Tone,
    /// A ratio to be drawn, where the page can: lowest, middle, highest.
    pub(crate) strip: Option<[f64; 3]>,
}

/// How loud a cell is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Tone {
    #[default]
    Plain,
    Quiet,
    Good,
    Bad,
}

impl Head {
    /// A column of its own.
    pub(crate) fn alone(text: &str, numeric: bool) -> Head {
        Head { group: String::new(), text: text.to_owned(), numeric }
    }
}

impl Cell {
    /// A text.
    pub(crate) fn text(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), ..Cell::default() }
    }

    /// Nothing was measured.
    pub(crate) fn none(why: &str) -> Cell {
        Cell { text: "–".to_owned(), title: why.to_owned(), tone: Tone::Quiet, ..Cell::default() }
    }

    /// With a tone.
    pub(crate) fn toned(self, tone: Tone) -> Cell {
        Cell { tone, ..self }
    }
}

/// What a column of numbers shows of a metric.
#[derive(Debug, Clone, Copy)]
enum Part<'a> {
    Published,
    Target(usize, &'a str),
    Ratio,
}

/// The tables of an experiment: as many as its columns need.
pub(crate) fn tables(sheet: &Sheet<'_>) -> Vec<Table> {
    if sheet.rows.is_empty() {
        return Vec::new();
    }
    let columns: Vec<Vec<(&str, Part<'_>)>> =
        sheet.experiment.columns.iter().map(|metric| parts(sheet, metric)).collect();
    let (all, keys) = (sheet.factors(), sheet.key_factors());
    let room = |factors: &[&str]| ROOM.saturating_sub(factors.len()).max(LEAST);
    let mut chunks: Vec<Vec<(&str, Part<'_>)>> = Vec::new();
    for parts in columns.into_iter().filter(|parts| !parts.is_empty()) {
        let room = if chunks.len() == 1 { room(&all) } else { room(&keys) };
        match chunks.last_mut() {
            Some(last) if last.len() + parts.len() <= room => last.extend(parts),
            _ => chunks.push(parts),
        }
    }
    if chunks.is_empty() && !sheet.targets.is_empty() {
        chunks.push(Vec::new());
    }
    // The first table shows every factor; those behind it only what tells the rows apart.
    let factors = std::iter::once(&all).chain(std::iter::repeat(&keys));
    chunks.iter().zip(factors).map(|(columns, factors)| table(sheet, factors, columns)).collect()
}

fn parts<'a>(sheet: &Sheet<'a>, metric: &'a str) -> Vec<(&'a str, Part<'a>)> {
    let mut parts = Vec::new();
    if sheet.is_published(metric) {
        parts.push(Part::Published);
    }
    if sheet.is_measured(metric) {
        parts.extend(sheet.targets.iter().enumerate().map(|(n, name)| Part::Target(n, name)));
        let compared = |row: &Row<'_>| row.ratios.is_some_and(|all| all.contains_key(metric));
        if sheet.rows.iter().any(compared) {
            parts.push(Part::Ratio);
        }
    }
    parts.into_iter().map(|part| (metric, part)).collect()
}

fn table(sheet: &Sheet<'_>, factors: &[&str], columns: &[(&str, Part<'_>)]) -> Table {
    let mut heads: Vec<Head> = factors.iter().map(|factor| factor_head(sheet, factor)).collect();
    let alone = sheet.targets.is_empty();
    heads.extend(columns.iter().map(|(metric, part)| head(metric, *part, alone)));
    if !alone && sheet.has_records() {
        heads.push(Head::alone("durability", false));
        heads.push(Head::alone("delivery", false));
    }
    let mut metrics: Vec<String> = Vec::new();
    for (metric, _) in columns {
        let name = wording::metric(metric).text;
        if !metrics.contains(&name) {
            metrics.push(name);
        }
    }
    let rows = sheet.rows.iter().map(|row| line(sheet, row, factors, columns)).collect();
    let compared = columns.iter().any(|(_, part)| matches!(part, Part::Ratio));
    let note = match sheet.versus.filter(|_| compared) {
        Some((target, base)) => format!("Ratio: {target} ÷ {base}."),
        None => String::new(),
    };
    Table { caption: metrics.join(", "), note, heads, rows }
}

fn factor_head(sheet: &Sheet<'_>, factor: &str) -> Head {
    let numeric = |row: &Row<'_>| matches!(row.cell.get(factor), None | Some(Level::Number(_)));
    Head::alone(&wording::factor(factor).with_unit(), sheet.rows.iter().all(numeric))
}

fn head(metric: &str, part: Part<'_>, alone: bool) -> Head {
    let group = wording::metric(metric).with_unit();
    let text = match part {
        Part::Published if alone => return Head::alone(&group, true),
        Part::Published => "published".to_owned(),
        Part::Target(_, name) => name.to_owned(),
        Part::Ratio => "ratio".to_owned(),
    };
    Head { group, text, numeric: true }
}

fn line(
    sheet: &Sheet<'_>,
    row: &Row<'_>,
    factors: &[&str],
    columns: &[(&str, Part<'_>)],
) -> Vec<Cell> {
    let mut cells: Vec<Cell> = factors.iter().map(|factor| level_cell(row, factor)).collect();
    cells.extend(columns.iter().map(|(metric, part)| match part {
        Part::Published => published_cell(row, metric),
        Part::Target(number, _) => measured_cell(row, *number, metric),
        Part::Ratio => ratio_cell(row, metric),
    }));
    if !sheet.targets.is_empty() && sheet.has_records() {
        cells.push(label_cell(sheet, row, |cell| Cell::text(wording::durability(cell.durability))));
        cells.push(label_cell(sheet, row, delivery));
    }
    cells
}

fn level_cell(row: &Row<'_>, factor: &str) -> Cell {
    match row.cell.get(factor) {
        Some(level) => Cell { value: level.number(), ..Cell::text(wording::level(factor, level)) },
        None => Cell::none(""),
    }
}

fn published_cell(row: &Row<'_>, metric: &str) -> Cell {
    match row.published.get(metric) {
        Some(value) => Cell { value: Some(*value), ..Cell::text(number::published(*value)) },
        None => Cell::none("not published"),
    }
}

fn measured_cell(row: &Row<'_>, target: usize, metric: &str) -> Cell {
    let Some(cell) = row.measured.get(target).copied().flatten() else {
        return Cell::none("not run");
    };
    let Some(summary) = cell.metrics.get(metric) else { return missing(cell) };
    let mark = if cell.young { "†" } else { "" };
    Cell {
        text: format!("{}{mark}", number::measured(summary.mean)),
        small: spread(summary),
        title: details(summary),
        value: Some(summary.mean),
        ..Cell::default()
    }
}

fn missing(cell: &CellAnalysis) -> Cell {
    let reasons: Vec<&str> = cell.failures.iter().map(|(why, _)| why.as_str()).collect();
    match (cell.rounds, reasons.is_empty()) {
        (0, false) => {
            Cell { text: "failed".to_owned(), tone: Tone::Bad, ..Cell::none(&reasons.join("; ")) }
        }
        _ => Cell::none("not measured"),
    }
}

/// `±1.2 %`: half the confidence interval; without one, half the range.
fn spread(summary: &Summary) -> String {
    let (low, high) = match summary.interval {
        Some(interval) => (interval.low, interval.high),
        None => (summary.min, summary.max),
    };
    if summary.n < 2 || summary.mean == 0.0 {
        return String::new();
    }
    let half = (high - low) / 2.0 / summary.mean.abs() * 100.0;
    let digits = if half < 1.0 { 1 } else { 0 };
    format!("±{} %", number::fixed(half, digits))
}

/// What there is no room for; the file of cells has it all.
fn details(summary: &Summary) -> String {
    if summary.outliers.is_empty() {
        return String::new();
    }
    let rounds: Vec<String> = summary.outliers.iter().map(u32::to_string).collect();
    let (low, high) = (number::measured(summary.min), number::measured(summary.max));
    format!("{low}–{high}; far outside: round {}", rounds.join(", "))
}

fn ratio_cell(row: &Row<'_>, metric: &str) -> Cell {
    match row.ratios.and_then(|ratios| ratios.get(metric)) {
        Some(ratio) => ratio_text(ratio),
        None if (0..row.measured.len()).any(|target| row.is_young(target)) => {
            Cell::none("brokers were still warming up")
        }
        None => Cell::none("not compared"),
    }
}

/// A ratio with its interval and what may be said about it.
pub(crate) fn ratio_text(ratio: &Ratio) -> Cell {
    let between = ratio.interval.unwrap_or(ratio.range);
    let pairs = wording::count(ratio.n, "pair");
    // One pair has no range: from its ratio to its ratio would look like certainty.
    let between = match ratio.n {
        0 | 1 => pairs.clone(),
        _ => format!("{}–{}", number::ratio(between.low), number::ratio(between.high)),
    };
    let (mark, tone) = match ratio.standing {
        Standing::Better => (" ▲", Tone::Good),
        Standing::Worse => (" ▼", Tone::Bad),
        Standing::WithinNoise => ("", Tone::Quiet),
        Standing::Different | Standing::Unknown => ("", Tone::Plain),
    };
    let small = match ratio.standing {
        Standing::WithinNoise => format!("{between}, within noise"),
        _ => between,
    };
    let floor = ratio
        .floor
        .map_or(String::new(), |floor| format!("; noise floor {}", number::percent(floor - 1.0)));
    let kind = if ratio.n > 1 && ratio.interval.is_none() { " (range, no interval)" } else { "" };
    Cell {
        text: format!("{}{mark}", number::ratio(ratio.ratio)),
        small,
        title: format!("{pairs}{kind}{floor}"),
        value: Some(ratio.ratio),
        tone,
        strip: None,
    }
}

/// A label of each target's cell: once if all say the same; else those that are not plain, which leaves the others to
/// be so, or all of them if none is.
fn label_cell(sheet: &Sheet<'_>, row: &Row<'_>, label: impl Fn(&CellAnalysis) -> Cell) -> Cell {
    let labels: Vec<(&str, Cell)> = sheet
        .targets
        .iter()
        .zip(&row.measured)
        .filter_map(|(name, cell)| Some((*name, label(cell.as_ref()?))))
        .collect();
    let Some((_, first)) = labels.first() else { return Cell::none("not run") };
    if labels.iter().all(|(_, cell)| cell.text == first.text) {
        return first.clone();
    }
    let named = |(name, cell): &(&str, Cell)| format!("{name}: {}", cell.text);
    let all: Vec<String> = labels.iter().map(named).collect();
    let loud: Vec<&(&str, Cell)> = labels.iter().filter(|(_, c)| c.tone != Tone::Plain).collect();
    let bad = loud.iter().any(|(_, cell)| cell.tone == Tone::Bad);
    let texts = if loud.is_empty() { all.clone() } else { loud.into_iter().map(named).collect() };
    let tone = if bad { Tone::Bad } else { Tone::Plain };
    Cell { title: all.join("; "), ..Cell::text(texts.join("; ")).toned(tone) }
}

fn delivery(cell: &CellAnalysis) -> Cell {
    let text = wording::delivery(&cell.verdict);
    let broken =
        cell.verdict.lost + cell.verdict.duplicated + cell.verdict.reordered + cell.verdict.damaged;
    let tone = match (broken > 0, cell.verdict.checked) {
        (true, _) => Tone::Bad,
        (false, true) => Tone::Plain,
        (false, false) => Tone::Quiet,
    };
    let checked = wording::count(cell.rounds_checked, "round");
    let title = format!(
        "{checked} checked; {} sent, {} acknowledged, {} found",
        number::fixed(cell.verdict.sent as f64, 0),
        number::fixed(cell.verdict.acknowledged as f64, 0),
        number::fixed(cell.verdict.found as f64, 0)
    );
    Cell { title, ..Cell::text(text).toned(tone) }
}
