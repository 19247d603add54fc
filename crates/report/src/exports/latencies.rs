//! The histograms of a cell's rounds, put together.

use crate::run::Run;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use experiment::analysis::CellAnalysis;
use experiment::round::{Purpose, Round};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;

/// The rounds of a cell that measured something, in their order.
pub(super) fn rounds<'a>(run: &'a Run, cell: &CellAnalysis) -> Vec<&'a Round> {
    let of_cell = |round: &&Round| {
        round.purpose == Purpose::Cell
            && round.failure.is_none()
            && round.experiment == cell.experiment
            && round.target == cell.target
            && round.emulated == cell.emulated
            && round.cell == cell.cell
    };
    run.rounds.iter().filter(of_cell).collect()
}

/// One round's histogram of a kind, microseconds. What cannot be read counts as absent: rounds are files that people
/// may have touched.
pub(super) fn of_round(round: &Round, kind: &str) -> Option<Histogram<u64>> {
    let bytes = STANDARD.decode(round.histograms.get(kind)?).ok()?;
    let histogram = Deserializer::new().deserialize(&mut bytes.as_slice()).ok()?;
    Some(histogram).filter(|histogram: &Histogram<u64>| !histogram.is_empty())
}

/// All rounds' histograms of a kind as one.
pub(super) fn merged(rounds: &[&Round], kind: &str) -> Option<Histogram<u64>> {
    let mut all = rounds.iter().filter_map(|round| of_round(round, kind));
    let mut sum = all.next()?;
    sum.auto(true);
    for histogram in all {
        sum.add(&histogram).ok()?;
    }
    Some(sum)
}
