//! An experiment in short: its finding as a title, and one chart with the published values and those of the targets on
//! one scale. `html` draws it, `markdown` prints the title. Not here: the experiment's tables and figures.

use crate::number;
use crate::sheet::{Row, Sheet};
use crate::wording;
use experiment::analysis::{Better, Standing, better};
use experiment::round::Durability;

/// Values further apart than this share a logarithmic scale.
const LINEAR_SPAN: f64 = 12.0;

/// An experiment's card.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Card {
    /// The finding; the experiment's title if nothing was measured.
    pub(crate) title: String,
    /// Geometric mean of the ratios over the cells, with its range, in words; empty without ratios.
    pub(crate) summary: String,
    /// None if no row has a value.
    pub(crate) dots: Option<Dots>,
}

/// A chart of dots: a line for each cell.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Dots {
    /// The metric with its unit.
    pub(crate) metric: String,
    /// Whether less is better.
    pub(crate) less_is_better: bool,
    pub(crate) lines: Vec<DotLine>,
    /// Places on the scale, 0 to 1, and their labels.
    pub(crate) ticks: Vec<(f64, String)>,
    /// Whether any line has a published value.
    pub(crate) has_published: bool,
    /// Whether any line has a dot of young brokers.
    pub(crate) has_young: bool,
}

/// One cell.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DotLine {
    pub(crate) label: String,
    pub(crate) published: Option<Dot>,
    /// For each target of the sheet.
    pub(crate) measured: Vec<Option<Dot>>,
    /// Compared target by base.
    pub(crate) ratio: Option<(f64, Standing)>,
    /// First target by the published value.
    pub(crate) by_published: Option<f64>,
}

/// One value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Dot {
    /// Place on the scale, 0 to 1.
    pub(crate) place: f64,
    pub(crate) text: String,
    /// Measured on Java brokers younger than their warm-up.
    pub(crate) young: bool,
}

impl Card {
    /// The card of a sheet.
    pub(crate) fn new(sheet: &Sheet<'_>) -> Card {
        let Some(metric) = headline_metric(sheet) else {
            return Card {
                title: sheet.experiment.title.clone(),
                summary: String::new(),
                dots: None,
            };
        };
        Card {
            title: title(sheet, metric).unwrap_or_else(|| sheet.experiment.title.clone()),
            summary: summary(sheet, metric),
            dots: dots(sheet, metric),
        }
    }
}

/// The first column that is better or worse and was measured: of failovers the median gap.
fn headline_metric<'a>(sheet: &Sheet<'a>) -> Option<&'a str> {
    if sheet.is_measured("gap_p50_ms") {
        return Some("gap_p50_ms");
    }
    let judged = |metric: &&str| better(metric) != Better::Neither;
    let columns = || sheet.experiment.columns.iter().map(String::as_str).filter(judged);
    columns()
        .find(|metric| sheet.is_measured(metric))
        .or_else(|| columns().find(|metric| sheet.targets.is_empty() && sheet.is_published(metric)))
}

/// The typical row of the experiment: the compared one whose ratio is the median; without ratios the first that
/// the first target measured.
fn typical<'s, 'a>(sheet: &'s Sheet<'a>, metric: &str) -> Option<&'s Row<'a>> {
    let mut compared: Vec<(f64, &Row<'_>)> =
        sheet.rows.iter().filter_map(|row| Some((row.ratios?.get(metric)?.ratio, row))).collect();
    compared.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    match compared.get(compared.len() / 2) {
        Some((_, row)) => Some(*row),
        None => sheet.rows.iter().find(|row| row.value(0, metric).is_some()),
    }
}

fn title(sheet: &Sheet<'_>, metric: &str) -> Option<String> {
    if metric == "gap_p50_ms" {
        return failover(sheet);
    }
    let row = typical(sheet, metric)?;
    let first = row.value(0, metric)?;
    let durability = row.measured.first().copied().flatten().map(|cell| cell.durability);
    let mut text = match metric {
        "throughput" => {
            let verb = if is_read(sheet) { "deliver" } else { "keep" };
            format!(
                "{} {} {} records a second{}",
                brokers(sheet, row),
                verb_for(brokers_of(sheet, row), verb),
                number::short(first),
                synced(durability)
            )
        }
        _ => {
            let name = wording::metric(metric);
            let unit = if name.unit.is_empty() { String::new() } else { format!(" {}", name.unit) };
            let name = capital(&name.text);
            format!(
                "{name} of {}: {}{unit}",
                wording::target(sheet.targets[0]),
                number::short(first)
            )
        }
    };
    for (place, target) in sheet.targets.iter().enumerate().skip(1) {
        let Some(value) = row.value(place, metric) else { continue };
        let young = if row.is_young(place) { ", still warming up" } else { "" };
        text.push_str(&format!("; {}{young}: {}", wording::target(target), number::short(value)));
    }
    Some(text)
}

fn failover(sheet: &Sheet<'_>) -> Option<String> {
    let of = |place: usize, metric: &str| -> Vec<f64> {
        sheet.rows.iter().filter_map(|row| row.value(place, metric)).collect()
    };
    let one = |(place, target): (usize, &&str)| {
        let median = stats::summary::median(&of(place, "gap_p50_ms"))?;
        let worst = of(place, "gap_max_ms").into_iter().reduce(f64::max)?;
        Some(format!(
            "{} {} (worst {})",
            wording::target(target),
            number::duration(median),
            number::duration(worst)
        ))
    };
    let parts: Vec<String> = sheet.targets.iter().enumerate().filter_map(one).collect();
    (!parts.is_empty())
        .then(|| format!("Without an acknowledgement after a kill: {}", parts.join(", ")))
}

fn is_read(sheet: &Sheet<'_>) -> bool {
    let kind = sheet.experiment.workload.get("kind").and_then(|kind| kind.as_str());
    matches!(kind, Some("deliver" | "consume"))
}

/// Brokers of a row: its level, or the experiment's constant.
fn brokers_of(sheet: &Sheet<'_>, row: &Row<'_>) -> f64 {
    let level = row.cell.get("brokers").and_then(|level| level.number());
    let constant = || sheet.experiment.workload.get("brokers").and_then(|value| value.as_integer());
    level.or_else(|| constant().map(|count| count as f64)).unwrap_or(1.0)
}

/// `Three brokers`.
fn brokers(sheet: &Sheet<'_>, row: &Row<'_>) -> String {
    const WORDS: [&str; 9] =
        ["One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine"];
    let count = brokers_of(sheet, row);
    let word = WORDS.get((count - 1.0).max(0.0) as usize).copied().unwrap_or("Many");
    if count == 1.0 { format!("{word} broker") } else { format!("{word} brokers") }
}

fn verb_for(count: f64, plural: &str) -> String {
    if count == 1.0 { format!("{plural}s") } else { plural.to_owned() }
}

fn synced(durability: Option<Durability>) -> &'static str {
    match durability {
        Some(Durability::Synced | Durability::ReplicatedSynced) => ", synced",
        Some(Durability::PageCache | Durability::ReplicatedPageCache) => ", in the page cache",
        _ => "",
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let second = letters.clone().nth(1);
    match letters.next() {
        Some(first) if second.is_some_and(char::is_alphabetic) => {
            format!("{}{}", first.to_uppercase(), letters.as_str())
        }
        _ => text.to_owned(),
    }
}

fn summary(sheet: &Sheet<'_>, metric: &str) -> String {
    let Some((target, base)) = sheet.versus else { return String::new() };
    let ratios: Vec<f64> =
        sheet.rows.iter().filter_map(|row| Some(row.ratios?.get(metric)?.ratio)).collect();
    let left_out = sheet.rows.iter().filter(|row| row.ratios.is_none()).count();
    if ratios.is_empty() {
        return match sheet.rows.iter().any(|row| (0..sheet.targets.len()).any(|t| row.is_young(t)))
        {
            true => {
                format!("No factor: {} was still warming up in every cell.", wording::target(base))
            }
            false => String::new(),
        };
    }
    let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
    let low = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let high = ratios.iter().copied().fold(0.0, f64::max);
    let less = if better(metric) == Better::Lower { " (less is better)" } else { "" };
    let rest = if left_out > 0 { format!("; {left_out} not compared") } else { String::new() };
    format!(
        "{} {} ÷ {}: {}{less}, {} to {} over {}{rest}.",
        capital(&wording::metric(metric).text),
        wording::target(target),
        wording::target(base),
        number::ratio(mean),
        number::ratio(low),
        number::ratio(high),
        wording::count(ratios.len(), "cell")
    )
}

fn dots(sheet: &Sheet<'_>, metric: &str) -> Option<Dots> {
    let published = |row: &Row<'_>| row.published.get(metric).copied().filter(|v| *v > 0.0);
    let measured = |row: &Row<'_>, place: usize| row.value(place, metric).filter(|v| *v > 0.0);
    let targets = sheet.targets.len();
    let values_of = |row: &Row<'_>| -> Vec<f64> {
        published(row).into_iter().chain((0..targets).filter_map(|t| measured(row, t))).collect()
    };
    let values: Vec<f64> = sheet.rows.iter().flat_map(values_of).collect();
    let scale = DotScale::new(&values)?;
    let dot = |value: f64, young: bool| Dot {
        place: scale.place(value),
        text: number::short(value),
        young,
    };
    let factors = sheet.key_factors();
    let line = |row: &Row<'_>| {
        let first = measured(row, 0);
        DotLine {
            label: label(row, &factors),
            published: published(row).map(|value| dot(value, false)),
            measured: (0..targets)
                .map(|t| measured(row, t).map(|value| dot(value, row.is_young(t))))
                .collect(),
            ratio: row
                .ratios
                .and_then(|ratios| ratios.get(metric))
                .map(|ratio| (ratio.ratio, ratio.standing)),
            by_published: first.zip(published(row)).map(|(ours, theirs)| ours / theirs),
        }
    };
    let lines: Vec<DotLine> =
        sheet.rows.iter().filter(|row| !values_of(row).is_empty()).map(line).collect();
    Some(Dots {
        metric: wording::metric(metric).with_unit(),
        less_is_better: better(metric) == Better::Lower,
        has_published: lines.iter().any(|line| line.published.is_some()),
        has_young: lines.iter().any(|line| line.measured.iter().flatten().any(|dot| dot.young)),
        ticks: scale.ticks(),
        lines,
    })
}

/// The levels of a row that tell it from others: `acks all · max in flight 1`.
fn label(row: &Row<'_>, factors: &[&str]) -> String {
    let parts: Vec<String> = factors
        .iter()
        .filter_map(|factor| Some(wording::setting(factor, row.cell.get(*factor)?)))
        .collect();
    if parts.is_empty() { "the only cell".to_owned() } else { parts.join(" · ") }
}

/// Where values lie between the ends of a chart: from zero, or over decades.
struct DotScale {
    low: f64,
    high: f64,
    logarithmic: bool,
}

impl DotScale {
    /// The scale that holds all of the values; none without values.
    fn new(values: &[f64]) -> Option<DotScale> {
        let most = values.iter().copied().reduce(f64::max)?;
        let least = values.iter().copied().reduce(f64::min)?;
        Some(match most / least > LINEAR_SPAN {
            true => DotScale {
                low: 10f64.powf(least.log10().floor()),
                high: 10f64.powf((most.log10() - 1e-9).ceil()),
                logarithmic: true,
            },
            false => DotScale { low: 0.0, high: rounded_up(most), logarithmic: false },
        })
    }

    fn place(&self, value: f64) -> f64 {
        match self.logarithmic {
            true => (value / self.low).log10() / (self.high / self.low).log10(),
            false => value / self.high,
        }
    }

    fn ticks(&self) -> Vec<(f64, String)> {
        if !self.logarithmic {
            let ticks = [0.0, 0.5, 1.0].map(|place| (place, number::tick(self.high * place)));
            return ticks.into();
        }
        let decades = (self.high / self.low).log10().round().max(1.0) as i32;
        let step = (decades + 4) / 5;
        (0..=decades)
            .step_by(step.max(1) as usize)
            .map(|decade| self.low * 10f64.powi(decade))
            .map(|value| (self.place(value), number::tick(value)))
            .collect()
    }
}

/// The next of 1, 2, 4, 6, 8 and 10 times a power of ten.
fn rounded_up(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 4.0, 6.0, 8.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|step| *step >= value * (1.0 - 1e-9)).unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_values_share_a_scale_from_zero() {
        let scale = DotScale::new(&[300.0, 1150.0]).unwrap();
        assert_eq!((scale.low, scale.high, scale.logarithmic), (0.0, 2000.0, false));
        assert_eq!(scale.place(500.0), 0.25);
    }

    #[test]
    fn far_values_share_decades() {
        let scale = DotScale::new(&[20.0, 15_000.0]).unwrap();
        assert_eq!((scale.low, scale.high, scale.logarithmic), (10.0, 100_000.0, true));
        assert_eq!(scale.place(1000.0), 0.5);
        assert_eq!(scale.ticks().len(), 5);
    }

    #[test]
    fn no_values_have_no_scale() {
        assert!(DotScale::new(&[]).is_none());
    }
}
