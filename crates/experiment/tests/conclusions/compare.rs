//! Comparisons of simulated runs.

use crate::simulated::{Noise, paired, round, same_target, size};
use experiment::analysis::{Standing, analyse};
use experiment::compare::{
    Comparison, GateError, Outcome, Stamp, compare, decide, history, parse_gates, verdict,
};
use experiment::round::{Purpose, Round};

const NOISE: Noise = Noise { spread: 0.04, stalls: 0.01, wander: 0.0 };
const GATES: &str = "throughput.ratio>=0.97, p99.ratio<=1.10";

/// A run of ten cells with ten rounds each, `factor` times as fast as another.
fn run(factor: f64, rng: &mut fastrand::Rng) -> Vec<Round> {
    (1..=10)
        .flat_map(|cell| paired(&size(cell), ["none", "highwater"], 10, factor, NOISE, rng))
        .filter(|round| round.target == "highwater")
        .collect()
}

fn outcome(comparison: &Comparison, gates: &str) -> Outcome {
    verdict(&decide(comparison, &parse_gates(gates).expect("gates")))
}

#[test]
fn a_slow_down_by_a_tenth_is_found_and_none_is_not() {
    let mut rng = fastrand::Rng::with_seed(1);
    let (mut slower, mut alike) = ((0, 0), (0, 0));
    for _ in 0..40 {
        let base = run(1.0, &mut rng);
        let comparison = compare(&base, &run(0.9, &mut rng));
        slower.0 += usize::from(outcome(&comparison, GATES) == Outcome::Fail);
        slower.1 += usize::from(comparison.overall["throughput"].standing == Standing::Worse);
        let comparison = compare(&base, &run(1.0, &mut rng));
        alike.0 += usize::from(outcome(&comparison, GATES) == Outcome::Pass);
        alike.1 += usize::from(outcome(&comparison, GATES) == Outcome::Fail);
    }
    assert_eq!(slower, (40, 40));
    assert!(alike.0 >= 32 && alike.1 == 0, "passed and failed: {alike:?} of 40");
}

/// A machine on which the same program, run twice, differs by a third and more.
const RESTLESS: Noise = Noise { spread: 0.3, stalls: 0.0, wander: 0.0 };

/// A run whose rounds lie close together, on a machine that a slow minute moves as a whole, with the rounds of the target
/// against itself that tell of it.
fn on_a_restless_machine(factor: f64, rng: &mut fastrand::Rng) -> Vec<Round> {
    let mut rounds = run(factor, rng);
    rounds.extend(same_target(12, RESTLESS, rng));
    rounds
}

#[test]
fn the_same_program_in_a_slow_minute_is_within_noise_and_a_third_of_it_is_not() {
    let mut rng = fastrand::Rng::with_seed(14);
    for _ in 0..20 {
        let base = on_a_restless_machine(1.0, &mut rng);
        let slow_minute = compare(&base, &on_a_restless_machine(0.93, &mut rng));
        let throughput = &slow_minute.overall["throughput"];
        assert_eq!(throughput.standing, Standing::WithinNoise, "{throughput:?}");
        assert_ne!(outcome(&slow_minute, GATES), Outcome::Fail);
        // The rounds alone would have called it worse.
        let unaware = compare(&run(1.0, &mut rng), &run(0.93, &mut rng));
        assert_eq!(unaware.overall["throughput"].standing, Standing::Worse);
        let broken = compare(&base, &on_a_restless_machine(0.33, &mut rng));
        assert_eq!(broken.overall["throughput"].standing, Standing::Worse);
    }
}

#[test]
fn one_cell_that_broke_fails_the_gate_though_the_others_hide_it() {
    let mut rng = fastrand::Rng::with_seed(2);
    let base = run(1.0, &mut rng);
    let mut new = run(1.0, &mut rng);
    for round in new.iter_mut().filter(|round| round.cell == size(7)) {
        *round.metrics.get_mut("throughput").expect("measured") *= 0.8;
    }
    let decisions =
        decide(&compare(&base, &new), &parse_gates("throughput.ratio>=0.9").expect("a gate"));
    assert_eq!(decisions[0].outcome, Outcome::Fail);
    assert!(
        decisions[0].because.starts_with("ali-producer record_bytes=7 on highwater"),
        "{decisions:?}"
    );
}

#[test]
fn bounds_decide_and_not_the_middle() {
    let mut rng = fastrand::Rng::with_seed(3);
    let comparison = compare(&run(1.0, &mut rng), &run(1.0, &mut rng));
    let ratio = comparison.overall["throughput"].ratio;
    let interval = comparison.overall["throughput"].interval.expect("100 rounds");
    // The middle is on the good side of this bound, part of the interval is not.
    let gate = format!("throughput.ratio>={}", (ratio + interval.low) / 2.0);
    assert_eq!(outcome(&comparison, &gate), Outcome::Inconclusive);
}

#[test]
fn few_rounds_missing_metrics_and_no_gates_are_inconclusive() {
    let few: Vec<Round> =
        (0..4).map(|n| round(size(1), "highwater", n, &[("throughput", 100.0)])).collect();
    let comparison = compare(&few, &few);
    assert_eq!(comparison.overall["throughput"].interval, None);
    assert_eq!(outcome(&comparison, "throughput.ratio>=0.97"), Outcome::Inconclusive);
    assert_eq!(outcome(&comparison, "p99.ratio<=1.1"), Outcome::Inconclusive);
    assert_eq!(outcome(&comparison, ""), Outcome::Inconclusive);
}

#[test]
fn a_drifting_canary_leaves_gates_open() {
    let mut rng = fastrand::Rng::with_seed(4);
    let base = run(1.0, &mut rng);
    let mut new = run(1.0, &mut rng);
    new.extend([100.0, 90.0].into_iter().zip(0..).map(|(value, n)| Round {
        purpose: Purpose::Canary,
        ..round(size(1), "highwater", n, &[("throughput", value)])
    }));
    let comparison = compare(&base, &new);
    assert_eq!(comparison.doubts, ["the canary of the new run drifted by 11.1 % on highwater"]);
    assert_eq!(outcome(&comparison, GATES), Outcome::Inconclusive);
}

#[test]
fn a_cell_that_fails_in_the_new_run_or_loses_records_leaves_gates_open() {
    let mut rng = fastrand::Rng::with_seed(5);
    let base = run(1.0, &mut rng);
    let mut failed = run(1.2, &mut rng);
    for round in failed.iter_mut().filter(|round| round.cell == size(3)) {
        round.failure = Some("the broker died".to_owned());
        round.metrics.clear();
    }
    let comparison = compare(&base, &failed);
    assert_eq!(
        comparison.doubts,
        [
            "ali-producer record_bytes=3 on highwater: nothing was measured in the new run: the broker died"
        ]
    );
    assert_eq!(outcome(&comparison, GATES), Outcome::Inconclusive);

    let mut lossy = run(1.2, &mut rng);
    (lossy[0].verdict.checked, lossy[0].verdict.lost) = (true, 1);
    let comparison = compare(&base, &lossy);
    assert!(comparison.doubts[0].ends_with("damaged in the new run"), "{comparison:?}");
    assert_eq!(outcome(&comparison, GATES), Outcome::Inconclusive);
}

#[test]
fn a_cell_of_one_round_is_left_out_and_does_not_undo_the_others() {
    let mut rng = fastrand::Rng::with_seed(6);
    let single = |value| round(size(99), "highwater", 0, &[("throughput", value)]);
    let mut base = run(1.0, &mut rng);
    base.push(single(100.0));
    let mut new = run(1.2, &mut rng);
    new.push(single(10.0));
    let comparison = compare(&base, &new);
    let decisions = decide(&comparison, &parse_gates("throughput.ratio>=0.97").expect("a gate"));
    assert_eq!(decisions[0].outcome, Outcome::Pass);
    assert!(decisions[0].because.ends_with("; without a cell of one round"), "{decisions:?}");
    assert!(comparison.overall["throughput"].ratio > 1.1);
}

#[test]
fn equal_numbers_are_no_change_however_many_rounds_there_are() {
    for value in [0.1, 0.3, 3.0, 7.0, 1e5 / 3.0] {
        let of = |rounds| -> Vec<Round> {
            (0..rounds).map(|n| round(size(1), "highwater", n, &[("p99_ms", value)])).collect()
        };
        let change = &compare(&of(5), &of(7)).overall["p99_ms"];
        assert_eq!(change.standing, Standing::WithinNoise, "{change:?}");
    }
}

#[test]
fn sole_targets_are_compared_under_two_names_and_lone_cells_are_listed() {
    let of = |cell, target: &str| -> Vec<Round> {
        (0..5).map(|n| round(size(cell), target, n, &[("throughput", 100.0)])).collect()
    };
    let base = [of(1, "highwater-1.0"), of(2, "highwater-1.0")].concat();
    let comparison = compare(&base, &of(1, "highwater-1.1"));
    assert_eq!(comparison.cells.len(), 1);
    assert_eq!(comparison.cells[0].base, "highwater-1.0");
    assert_eq!(
        comparison.unmatched,
        ["only in the base run: ali-producer record_bytes=2 on highwater-1.0"]
    );
}

#[test]
fn gates_are_read_and_written() {
    let gates = parse_gates(GATES).expect("gates");
    let texts: Vec<String> = gates.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["throughput.ratio>=0.97", "p99_ms.ratio<=1.1"]);
    assert_eq!(parse_gates("p99>=1"), Err(GateError::Form("p99>=1".to_owned())));
    assert_eq!(parse_gates("speed.ratio>=1"), Err(GateError::Metric("speed".to_owned())));
    assert_eq!(parse_gates("p99.ratio<=-1"), Err(GateError::Bound("-1".to_owned())));
    assert_eq!(parse_gates("p99.ratio=1"), Err(GateError::Form("p99.ratio=1".to_owned())));
}

#[test]
fn history_grows_by_rows_and_columns() {
    let stamp = |time: &str| Stamp {
        time: time.to_owned(),
        commit: "abc123".to_owned(),
        environment: "00ff".to_owned(),
    };
    let of = |metrics: &[(&str, f64)], time| {
        let made = [round(size(100), "high water", 0, metrics)];
        history(&analyse(&made, None, 1).cells, &stamp(time)).remove(0)
    };
    let first = of(&[("throughput", 1000.5)], "2026-11-22 00:14:03 +0000");
    assert_eq!(first.file, "ali-producer.record_bytes=100.high_water.csv");
    let text = first.append_to("");
    let second = of(&[("p99_ms", 7.0), ("batch_fill", 0.9)], "2026-11-23 00:14:03 +0000");
    assert_eq!(
        second.append_to(&text),
        "time,commit,environment,throughput,batch_fill,p99_ms\n\
         2026-11-22 00:14:03 +0000,abc123,00ff,1000.5,nan,nan\n\
         2026-11-23 00:14:03 +0000,abc123,00ff,nan,0.9,7\n"
    );
    assert!(second.test("history").contains("p99_ms: {column: p99_ms, direction: -1, scale: 1}"));
    assert!(!second.test("history").contains("batch_fill"));
}
