//! Rounds of a simulated machine: noisy, drifting, with stalls, and with a truth that the tests know.

use experiment::definition::{Level, Levels};
use experiment::round::{Durability, Purpose, Round, Verdict};
use std::collections::BTreeMap;

/// A standard normal value (Box and Muller 1958).
pub fn normal(rng: &mut fastrand::Rng) -> f64 {
    let radius = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.f64()).cos()
}

/// How a machine disturbs its rounds.
#[derive(Debug, Clone, Copy)]
pub struct Noise {
    /// Relative spread of one round.
    pub spread: f64,
    /// Share of rounds with a stall that takes a fifth to a half.
    pub stalls: f64,
    /// Relative change of the whole machine from one round number to the next: both of a pair share it.
    pub wander: f64,
}

impl Noise {
    /// A quiet machine.
    pub const LITTLE: Noise = Noise { spread: 0.02, stalls: 0.0, wander: 0.0 };

    /// What a round gives of a true value.
    pub fn disturb(&self, truth: f64, rng: &mut fastrand::Rng) -> f64 {
        let stalled = if rng.f64() < self.stalls { 0.5 + 0.3 * rng.f64() } else { 1.0 };
        truth * stalled * (self.spread * normal(rng)).exp()
    }
}

/// A factor's level.
pub fn size(record_bytes: u32) -> Levels {
    [("record_bytes".to_owned(), Level::Number(f64::from(record_bytes)))].into_iter().collect()
}

/// A round that measured something.
pub fn round(cell: Levels, target: &str, number: u32, metrics: &[(&str, f64)]) -> Round {
    Round {
        experiment: "ali-producer".to_owned(),
        cell,
        target: target.to_owned(),
        round: number,
        order: number,
        purpose: Purpose::Cell,
        started_ms: 1_542_500_000_000,
        emulated: String::new(),
        deviations: Vec::new(),
        metrics: metrics.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        histograms: BTreeMap::new(),
        counts: Vec::new(),
        verdict: Verdict::default(),
        durability: Durability::Synced,
        warnings: Vec::new(),
        failure: None,
    }
}

/// So many rounds of two targets in pairs, the second's throughput `factor` times the first's; the 99th percentile
/// the other way round and three times as noisy.
pub fn paired(
    cell: &Levels,
    targets: [&str; 2],
    rounds: u32,
    factor: f64,
    noise: Noise,
    rng: &mut fastrand::Rng,
) -> Vec<Round> {
    let tail = Noise { spread: 3.0 * noise.spread, ..noise };
    let mut machine = 1.0;
    let mut made = Vec::new();
    for number in 0..rounds {
        machine *= (noise.wander * normal(rng)).exp();
        for (target, factor) in targets.iter().zip([1.0, factor]) {
            let throughput = noise.disturb(100_000.0 * machine * factor, rng);
            let p99 = tail.disturb(8.0 / machine / factor, rng);
            let metrics = [("throughput", throughput), ("p99_ms", p99)];
            made.push(round(cell.clone(), target, number, &metrics));
        }
    }
    made
}

/// The same target against itself.
pub fn same_target(rounds: u32, noise: Noise, rng: &mut fastrand::Rng) -> Vec<Round> {
    let mut made = paired(&size(77), ["highwater#a", "highwater#b"], rounds, 1.0, noise, rng);
    made.iter_mut().for_each(|round| round.purpose = Purpose::SameTarget);
    made
}
