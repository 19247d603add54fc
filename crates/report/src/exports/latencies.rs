//! The histograms of a cell's rounds, put together.

use crate::run::Run;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use experiment::analysis::CellAnalysis;
use experiment::round::{Purpose, Round};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use std::collections::BTreeMap;

/// The rounds that measured something, by experiment, target and emulation: looked through once, not once a cell.
pub(super) struct Measured<'a> {
    rounds: BTreeMap<[&'a str; 3], Vec<&'a Round>>,
}

impl<'a> Measured<'a> {
    /// Those of a run.
    pub(super) fn of(run: &'a Run) -> Measured<'a> {
        let mut rounds: BTreeMap<[&str; 3], Vec<&Round>> = BTreeMap::new();
        let whole = |round: &&Round| round.purpose == Purpose::Cell && round.failure.is_none();
        for round in run.rounds.iter().filter(whole) {
            let key = [round.experiment.as_str(), &round.target, &round.emulated];
            rounds.entry(key).or_default().push(round);
        }
        Measured { rounds }
    }

    /// The rounds of a cell, in their order.
    pub(super) fn rounds(&self, cell: &CellAnalysis) -> Vec<&'a Round> {
        let key = [cell.experiment.as_str(), &cell.target, &cell.emulated];
        let all = self.rounds.get(&key).map(Vec::as_slice).unwrap_or_default();
        all.iter().copied().filter(|round| round.cell == cell.cell).collect()
    }
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
