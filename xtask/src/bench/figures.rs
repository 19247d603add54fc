//! Figures of a run, and what several rounds of them add up to. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Name of a figure (unit last) and its value.
pub type Figures = BTreeMap<String, f64>;

/// One run of one row on one broker: a line of the rounds file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// Name of the row.
    pub row: String,
    /// Which seat.
    pub seat: SeatName,
    /// What sat in it, with its version.
    pub target: String,
    /// When a record counted as acknowledged.
    pub durability: String,
    /// From 1; 0 is the discarded warm-up.
    pub round: u32,
    /// Seconds since 1970 at the end of the run.
    pub at_unix_s: f64,
    /// Commit of the checkout.
    pub commit: String,
    /// What was measured.
    pub figures: Figures,
}

/// The two seats of a comparison, and the floor that some rows measure beside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SeatName {
    /// What is compared with.
    Reference,
    /// What is judged.
    Candidate,
    /// The least that any broker would need ([`super::floor`]).
    Floor,
}

/// Median of rounds, and how far they lie apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The median.
    pub median: f64,
    /// (largest − smallest) / median; 0 for a single round.
    pub spread: f64,
    /// How many rounds.
    pub rounds: usize,
}

/// The middle of `values`, or the mean of the middle two.
pub fn median(values: &[f64]) -> f64 {
    assert!(!values.is_empty(), "the median of nothing");
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    }
}

/// Summary of one figure over the counted rounds of a row and seat; `None` where there is none.
pub fn summary(samples: &[Sample], row: &str, seat: SeatName, figure: &str) -> Option<Summary> {
    let counted = |s: &&Sample| s.row == row && s.seat == seat && s.round > 0;
    let values: Vec<f64> =
        samples.iter().filter(counted).filter_map(|s| s.figures.get(figure).copied()).collect();
    if values.is_empty() {
        return None;
    }
    let middle = median(&values);
    let smallest = values.iter().copied().fold(f64::INFINITY, f64::min);
    let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let spread = if middle == 0.0 { 0.0 } else { (largest - smallest) / middle };
    Some(Summary { median: middle, spread, rounds: values.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(seat: SeatName, round: u32, value: f64) -> Sample {
        Sample {
            row: "r".into(),
            seat,
            target: String::new(),
            durability: String::new(),
            round,
            at_unix_s: 0.0,
            commit: String::new(),
            figures: Figures::from([("x".to_owned(), value)]),
        }
    }

    #[test]
    fn the_median_of_an_even_count_lies_between_the_middle_two() {
        assert!((median(&[4.0, 1.0, 3.0, 2.0]) - 2.5).abs() < 1e-12);
        assert!((median(&[9.0, 1.0, 3.0]) - 3.0).abs() < 1e-12);
    }

    #[test]
    fn the_warm_up_and_the_other_seat_do_not_count() {
        let samples = [
            sample(SeatName::Candidate, 0, 100.0),
            sample(SeatName::Reference, 1, 50.0),
            sample(SeatName::Candidate, 1, 2.0),
            sample(SeatName::Candidate, 2, 4.0),
        ];
        let found = summary(&samples, "r", SeatName::Candidate, "x").unwrap();
        assert_eq!(found, Summary { median: 3.0, spread: 2.0 / 3.0, rounds: 2 });
        assert_eq!(summary(&samples, "r", SeatName::Candidate, "y"), None);
    }
}
