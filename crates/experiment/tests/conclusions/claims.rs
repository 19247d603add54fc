//! Claims on simulated runs: how often luck alone decides one, and whether what is there is still found.

use crate::simulated::{Noise, round, same_target};
use experiment::analysis::analyse;
use experiment::catalogue;
use experiment::claims::{Outcome, Rows, evaluate};
use experiment::definition::{Level, Levels};
use experiment::round::Round;

fn cell(levels: &[(&str, &str)]) -> Levels {
    let level = |text: &str| match text.parse() {
        Ok(number) => Level::Number(number),
        Err(_) => Level::Text(text.to_owned()),
    };
    levels.iter().map(|(name, text)| ((*name).to_owned(), level(text))).collect()
}

/// Rounds of a cell whose throughput is `truth`, give or take the noise.
fn rounds(
    experiment: &str,
    levels: &[(&str, &str)],
    truth: f64,
    count: u32,
    noise: Noise,
    rng: &mut fastrand::Rng,
) -> Vec<Round> {
    (0..count)
        .map(|number| {
            let throughput = noise.disturb(truth, rng);
            let mut made = round(cell(levels), "highwater", number, &[("throughput", throughput)]);
            made.experiment = experiment.to_owned();
            made
        })
        .collect()
}

/// How a claim of more than one by the other stands: `x-producers` E4 on one broker, `ibm-deploy` D1 on several.
fn outcome(made: &[Round], experiment: &str, claim: &str) -> Outcome {
    let definition = catalogue::experiment(experiment).expect("an experiment");
    let claim = definition.claims.iter().find(|one| one.id == claim).expect("a claim");
    let rows = Rows::measured(&analyse(made, None, 1), "highwater");
    evaluate(experiment, claim, &rows).outcome
}

fn producers(
    factor: f64,
    count: u32,
    noise: Noise,
    canary: Noise,
    rng: &mut fastrand::Rng,
) -> Outcome {
    let mut made = same_target(6, canary, rng);
    for (producers, truth) in [("1", 1e5), ("16", 1e5 * factor)] {
        made.extend(rounds("x-producers", &[("producers", producers)], truth, count, noise, rng));
    }
    outcome(&made, "x-producers", "E4")
}

/// Like `ibm-deploy` in a whole run: single rounds on three brokers, beside a grid on three brokers with two rounds a
/// cell, and a canary on one.
fn deployed(factor: f64, noise: Noise, canary: Noise, rng: &mut fastrand::Rng) -> Outcome {
    let mut made = same_target(6, canary, rng);
    for in_flight in ["1", "2", "3", "4", "5"] {
        for acks in ["1", "all"] {
            let levels = [("in_flight", in_flight), ("acks", acks), ("record_bytes", "1024")];
            made.extend(rounds("mif-grid", &levels, 2e5, 2, noise, rng));
        }
    }
    let listener = "broker_settings.inter.broker.listener.name";
    for (via, truth) in [("direct", 1e5), ("proxy", 0.8 * 1e5 * factor)] {
        let levels = [("via", via), (listener, "")];
        made.extend(rounds("ibm-deploy", &levels, truth, 1, noise, rng));
    }
    outcome(&made, "ibm-deploy", "D1")
}

fn decided(outcomes: impl Iterator<Item = Outcome>) -> usize {
    let is = |outcome: &Outcome| matches!(outcome, Outcome::Reproduced | Outcome::Contradicted);
    outcomes.filter(is).count()
}

const ORDINARY: Noise = Noise { spread: 0.05, stalls: 0.0, wander: 0.0 };
const NOISY: Noise = Noise { spread: 0.15, stalls: 0.0, wander: 0.0 };

#[test]
fn a_coin_flip_is_within_noise_19_times_of_20_however_few_the_rounds() {
    let mut rng = fastrand::Rng::with_seed(21);
    for count in [1, 2, 3, 4, 5, 8] {
        let flips = (0..1000).map(|_| producers(1.0, count, ORDINARY, ORDINARY, &mut rng));
        let decided = decided(flips);
        assert!(decided <= 66, "{decided} of 1000 with {count} rounds");
    }
}

#[test]
fn a_quiet_canary_does_not_make_noisy_cells_decide() {
    let mut rng = fastrand::Rng::with_seed(22);
    for count in [2, 3, 5] {
        let flips = (0..1000).map(|_| producers(1.0, count, NOISY, Noise::LITTLE, &mut rng));
        let decided = decided(flips);
        assert!(decided <= 70, "{decided} of 1000 with {count} rounds");
    }
}

#[test]
fn single_rounds_of_several_brokers_are_held_against_the_noise_of_several_brokers() {
    let mut rng = fastrand::Rng::with_seed(23);
    let decided = decided((0..1000).map(|_| deployed(1.0, NOISY, Noise::LITTLE, &mut rng)));
    assert!(decided <= 70, "{decided} of 1000");
}

#[test]
fn what_is_clear_is_still_decided_by_few_rounds() {
    let mut rng = fastrand::Rng::with_seed(24);
    for count in [1, 2, 3] {
        let of = |factor, wanted, rng: &mut fastrand::Rng| {
            let outcomes = (0..100).map(|_| producers(factor, count, ORDINARY, ORDINARY, rng));
            outcomes.filter(|outcome| *outcome == wanted).count()
        };
        assert!(of(1.6, Outcome::Reproduced, &mut rng) >= 90, "{count} rounds");
        assert!(of(0.6, Outcome::Contradicted, &mut rng) >= 90, "{count} rounds");
    }
    let outcomes = (0..100).map(|_| deployed(3.0, NOISY, Noise::LITTLE, &mut rng));
    let found = outcomes.filter(|outcome| *outcome == Outcome::Reproduced).count();
    assert!(found >= 90, "{found} of 100");
}
