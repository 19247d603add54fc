//! Figures in which the compared target is worse than the base.

use super::own_rounds;
use crate::number;
use crate::sheet::{Row, Sheet};
use crate::wording;
use experiment::analysis::{Better, Ratio, Standing, better};

/// Metrics that are searched for losses.
const METRICS: [&str; 7] = [
    "throughput",
    "p50_ms",
    "p99_ms",
    "e2e_p99_ms",
    "broker_cpu_s_per_mrec",
    "broker_rss_mib",
    "disk_bytes_per_byte",
];

/// Differences up to this factor do not count as losses.
const LEAST: f64 = 1.05;

/// One metric of one experiment that is worse in some of its cells.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Loss {
    /// The experiment's id.
    pub(crate) experiment: String,
    /// The metric's name for readers.
    pub(crate) metric: String,
    /// Compared target by base in the worst cell.
    pub(crate) ratio: f64,
    /// The worst cell, in words.
    pub(crate) cell: String,
    /// Cells in which the metric is worse by more than 5 %, noise or not.
    pub(crate) worse: usize,
    /// Cells in which it is worse beyond noise.
    pub(crate) beyond_noise: usize,
    /// Cells that were compared.
    pub(crate) cells: usize,
}

impl Loss {
    /// How far the difference is beyond noise, in words.
    pub(crate) fn certainty(&self) -> String {
        let cells = wording::count(self.cells, "configuration");
        match self.beyond_noise {
            0 => format!("worse in {} of {cells}, within noise", self.worse),
            n => format!("worse in {} of {cells}, in {n} beyond noise", self.worse),
        }
    }

    /// `0.88 times its throughput`, of the base.
    pub(crate) fn factor(&self) -> String {
        format!("{} times its {}", number::short(self.ratio), self.metric)
    }

    /// How much worse, above 1.
    fn severity(&self) -> f64 {
        self.ratio.max(1.0 / self.ratio)
    }
}

/// All of them: those beyond noise first, then the worst first.
pub(crate) fn losses(sheets: &[Sheet<'_>]) -> Vec<Loss> {
    let mut found: Vec<Loss> = own_rounds(sheets)
        .flat_map(|sheet| METRICS.iter().filter_map(move |metric| loss(sheet, metric)))
        .collect();
    found.sort_by(|a, b| {
        let key = |loss: &Loss| (loss.beyond_noise > 0, loss.severity());
        key(b).partial_cmp(&key(a)).expect("ratios are numbers")
    });
    found
}

fn loss(sheet: &Sheet<'_>, metric: &str) -> Option<Loss> {
    let factors = sheet.factors();
    let label = |row: &Row<'_>| {
        let levels = factors.iter().filter_map(|factor| Some((factor, row.cell.get(*factor)?)));
        let levels: Vec<String> = levels.map(|(factor, l)| wording::setting(factor, l)).collect();
        if levels.is_empty() { "the only configuration".to_owned() } else { levels.join(", ") }
    };
    let compared = |row: &Row<'_>| -> Option<(String, Ratio)> {
        Some((label(row), row.ratios?.get(metric)?.clone()))
    };
    let ratios: Vec<(String, Ratio)> = sheet.rows.iter().filter_map(compared).collect();
    let badness = |ratio: &Ratio| match better(metric) {
        Better::Higher => 1.0 / ratio.ratio,
        _ => ratio.ratio,
    };
    let worse: Vec<&(String, Ratio)> =
        ratios.iter().filter(|(_, ratio)| badness(ratio) > LEAST).collect();
    let beyond: Vec<&(String, Ratio)> =
        worse.iter().copied().filter(|(_, ratio)| ratio.standing == Standing::Worse).collect();
    let candidates = if beyond.is_empty() { &worse } else { &beyond };
    let (cell, ratio) =
        candidates.iter().copied().max_by(|(_, a), (_, b)| badness(a).total_cmp(&badness(b)))?;
    Some(Loss {
        experiment: sheet.experiment.id.clone(),
        metric: wording::metric(metric).text,
        ratio: ratio.ratio,
        cell: cell.clone(),
        worse: worse.len(),
        beyond_noise: beyond.len(),
        cells: ratios.len(),
    })
}
