//! The first screen: the finding in a sentence, four figures a target for each durability, failover, and the figures
//! that are worse than the base's. `html` and `summary_picture` draw it, `markdown` and the lab's terminal print it.
//!
//! Every figure is computed from the run: means over all compared cells, none chosen by hand. Cells on young Java
//! brokers have no ratio and are left out. Not here: one experiment (`card`).

mod losses;
mod sentence;

pub(crate) use losses::Loss;

use losses::losses;

use crate::run::Run;
use crate::sheet::{Row, Sheet};
use crate::wording;
use experiment::analysis::{Better, better};
use experiment::round::Durability;

/// Metrics of the bars, in their order, with their names and units on the first screen.
const BARS: [(&str, &str, &str); 4] = [
    ("throughput", "Throughput", "records/s"),
    ("p99_ms", "p99 latency", "ms"),
    ("broker_cpu_s_per_mrec", "Broker CPU", "s per 10⁶ records"),
    ("broker_rss_mib", "Broker memory", "MiB"),
];

/// A run in short.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Overview {
    /// The finding, one sentence; the run's title if nothing was measured.
    pub(crate) finding: String,
    /// The targets that are shown, the compared one first.
    pub(crate) targets: Vec<Shown>,
    /// Synced first, then page cache; only those that were measured.
    pub(crate) classes: Vec<DurabilityClass>,
    /// Time without an acknowledgement when a broker is killed.
    pub(crate) failover: Option<Failover>,
    /// Figures in which the compared target is worse than the base, the worst first.
    pub(crate) losses: Vec<Loss>,
    /// Whether two targets were compared at all.
    pub(crate) is_compared: bool,
}

/// A target of the first screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shown {
    /// Its name for readers.
    pub(crate) name: String,
    /// Its place in the palette.
    pub(crate) colour: usize,
}

/// The cells in which the compared target gave acknowledgements of one worth.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DurabilityClass {
    /// The durability of an acknowledgement on each target: `Synced to disk`, `Synced by Highwater only`.
    pub(crate) title: String,
    /// Whether the compared target synced.
    pub(crate) is_synced: bool,
    /// Whether the compared target synced and the base did not in any of the cells.
    pub(crate) only_first_syncs: bool,
    /// Cells over which the figures are means.
    pub(crate) cells: usize,
    pub(crate) bars: Vec<BarGroup>,
}

/// One metric of all targets.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BarGroup {
    pub(crate) metric: &'static str,
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    /// For each target of the overview: the geometric mean over the cells.
    pub(crate) values: Vec<f64>,
}

/// Kills of brokers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Failover {
    /// Kills on each target.
    pub(crate) kills: f64,
    /// Client libraries.
    pub(crate) clients: usize,
    /// For each target of the overview: the median gap over the cells, milliseconds.
    pub(crate) median_ms: Vec<f64>,
    /// For each target of the overview: the longest gap, milliseconds.
    pub(crate) worst_ms: Vec<f64>,
}

impl BarGroup {
    /// First by second target; none with one target.
    pub(crate) fn ratio(&self) -> Option<f64> {
        (self.values.len() > 1).then(|| self.values[0] / self.values[1])
    }

    /// Whether the first target is better than the second.
    pub(crate) fn first_is_better(&self) -> bool {
        let more = self.ratio().unwrap_or(1.0) > 1.0;
        more == (better(self.metric) == Better::Higher)
    }
}

impl Overview {
    /// The overview of a run; without targets only the title.
    pub(crate) fn new(run: &Run, sheets: &[Sheet<'_>]) -> Overview {
        let compared = sheets.iter().find_map(|sheet| sheet.versus);
        let names: Vec<&str> = match compared {
            Some((target, base)) => vec![target, base],
            None => run.targets.iter().take(1).map(|target| target.name.as_str()).collect(),
        };
        let mut overview = Overview {
            targets: names.iter().map(|name| shown(run, name)).collect(),
            classes: classes(&names, sheets),
            failover: failover(&names, sheets),
            losses: if compared.is_some() { losses(sheets) } else { Vec::new() },
            is_compared: compared.is_some(),
            finding: String::new(),
        };
        overview.finding = sentence::finding(&overview).unwrap_or_else(|| run.title.clone());
        overview
    }

    /// The heading of the losses; empty without two targets.
    pub(crate) fn losses_title(&self) -> String {
        match &self.targets[..] {
            [first, base, ..] => format!("Where {} is worse than {}", first.name, base.name),
            _ => String::new(),
        }
    }

    /// Whether there is anything to draw.
    pub(crate) fn has_figures(&self) -> bool {
        !self.classes.is_empty() || self.failover.is_some()
    }
}

fn shown(run: &Run, name: &str) -> Shown {
    let colour = run.targets.iter().position(|target| target.name == name).unwrap_or(0);
    Shown { name: wording::target(name).to_owned(), colour }
}

/// The sheets whose rounds are their own: experiments that show those of another would count twice.
pub(super) fn own_rounds<'s, 'a>(
    sheets: &'s [Sheet<'a>],
) -> impl Iterator<Item = &'s Sheet<'a>> + use<'s, 'a> {
    sheets.iter().filter(|sheet| sheet.experiment.same_runs_as.is_none())
}

/// A row's mean of a metric on the target of a name.
pub(super) fn value_of(
    sheet: &Sheet<'_>,
    row: &Row<'_>,
    target: &str,
    metric: &str,
) -> Option<f64> {
    row.value(sheet.targets.iter().position(|name| *name == target)?, metric)
}

fn durability_of(sheet: &Sheet<'_>, row: &Row<'_>, target: &str) -> Option<Durability> {
    let place = sheet.targets.iter().position(|name| *name == target)?;
    Some(row.measured.get(place).copied().flatten()?.durability)
}

fn is_synced(durability: Durability) -> bool {
    matches!(durability, Durability::Synced | Durability::ReplicatedSynced)
}

fn is_cached(durability: Durability) -> bool {
    matches!(durability, Durability::PageCache | Durability::ReplicatedPageCache)
}

fn classes(names: &[&str], sheets: &[Sheet<'_>]) -> Vec<DurabilityClass> {
    let synced = class(true, is_synced, names, sheets);
    let cached = class(false, is_cached, names, sheets);
    synced.into_iter().chain(cached).collect()
}

/// The cells of one class in which every target measured all four metrics.
fn class(
    synced: bool,
    is_class: fn(Durability) -> bool,
    names: &[&str],
    sheets: &[Sheet<'_>],
) -> Option<DurabilityClass> {
    let first = *names.first()?;
    let complete = |sheet: &Sheet<'_>, row: &Row<'_>| {
        let measured = |name: &&str| {
            BARS.iter().all(|(metric, ..)| value_of(sheet, row, name, metric) > Some(0.0))
        };
        let compared = names.len() < 2 || row.ratios.is_some();
        compared && names.iter().all(measured)
    };
    let cells: Vec<(&Sheet<'_>, &Row<'_>)> = own_rounds(sheets)
        .filter(|sheet| sheet.emulations().is_empty())
        .flat_map(|sheet| sheet.rows.iter().map(move |row| (sheet, row)))
        .filter(|(sheet, row)| durability_of(sheet, row, first).is_some_and(is_class))
        .filter(|(sheet, row)| complete(sheet, row))
        .collect();
    if cells.is_empty() {
        return None;
    }
    let mean = |name: &str, metric: &str| {
        let values = cells.iter().filter_map(|(sheet, row)| value_of(sheet, row, name, metric));
        (values.map(f64::ln).sum::<f64>() / cells.len() as f64).exp()
    };
    let bars = BARS.map(|(metric, name, unit)| BarGroup {
        metric,
        name,
        unit,
        values: names.iter().map(|target| mean(target, metric)).collect(),
    });
    let others_sync = names.iter().skip(1).any(|name| {
        cells.iter().any(|(sheet, row)| durability_of(sheet, row, name).is_some_and(is_synced))
    });
    let only_first_syncs = synced && names.len() > 1 && !others_sync;
    let title = match (synced, only_first_syncs) {
        (false, _) => "Not synced to disk".to_owned(),
        (true, false) => "Synced to disk".to_owned(),
        (true, true) => format!("Synced by {} only", wording::target(names[0])),
    };
    Some(DurabilityClass {
        title,
        is_synced: synced,
        only_first_syncs,
        cells: cells.len(),
        bars: bars.into(),
    })
}

fn failover(names: &[&str], sheets: &[Sheet<'_>]) -> Option<Failover> {
    // Gaps of x-paused are time-outs of clients, so they do not count as failover.
    let cells: Vec<(&Sheet<'_>, &Row<'_>)> = own_rounds(sheets)
        .filter(|sheet| sheet.experiment.id == "x-failover")
        .flat_map(|sheet| sheet.rows.iter().map(move |row| (sheet, row)))
        .filter(|(sheet, row)| {
            names.iter().all(|name| value_of(sheet, row, name, "gap_p50_ms").is_some())
        })
        .collect();
    let of = |name: &str, metric: &str| -> Vec<f64> {
        cells.iter().filter_map(|(sheet, row)| value_of(sheet, row, name, metric)).collect()
    };
    let clients: std::collections::BTreeSet<_> =
        cells.iter().filter_map(|(_, row)| row.cell.get("client")).collect();
    let median_ms = names.iter().map(|name| stats::summary::median(&of(name, "gap_p50_ms")));
    let worst_ms = names.iter().map(|name| of(name, "gap_max_ms").into_iter().reduce(f64::max));
    Some(Failover {
        kills: of(names.first()?, "kills").iter().sum(),
        clients: clients.len(),
        median_ms: median_ms.collect::<Option<_>>()?,
        worst_ms: worst_ms.collect::<Option<_>>()?,
    })
}
