//! The analysis of simulated rounds.

use crate::simulated::{Noise, paired, round, same_target, size};
use experiment::analysis::{Analysis, Delivered, Method, Standing, analyse, analyse_settled};
use experiment::round::{Durability, Purpose, Round, Verdict};

const TARGETS: [&str; 2] = ["apache-kafka", "highwater"];

/// Machines of different kinds: quiet, ordinary, noisy, stalling, wandering.
const MACHINES: [Noise; 5] = [
    Noise { spread: 0.005, stalls: 0.0, wander: 0.0 },
    Noise { spread: 0.03, stalls: 0.0, wander: 0.0 },
    Noise { spread: 0.15, stalls: 0.0, wander: 0.0 },
    Noise { spread: 0.03, stalls: 0.1, wander: 0.0 },
    Noise { spread: 0.03, stalls: 0.02, wander: 0.2 },
];

/// Shares of cells, over both metrics, with a standing, where the cells' machine may be another than the floor's.
fn share(
    standing: Standing,
    rounds: u32,
    factor: f64,
    machine: Noise,
    floor_machine: Noise,
    seed: u64,
) -> f64 {
    let mut rng = fastrand::Rng::with_seed(seed);
    let (mut with, mut all) = (0, 0);
    for run in 0..20 {
        let mut made = same_target(rounds, floor_machine, &mut rng);
        for cell in 0..20 {
            made.extend(paired(&size(cell), TARGETS, rounds, factor, machine, &mut rng));
        }
        for pair in analyse(&made, None, run).pairs {
            all += pair.ratios.len();
            with += pair.ratios.values().filter(|ratio| ratio.standing == standing).count();
        }
    }
    f64::from(u32::try_from(with).expect("few")) / f64::from(u32::try_from(all).expect("few"))
}

#[test]
fn the_same_target_is_within_noise_at_least_19_times_of_20() {
    for (i, machine) in MACHINES.into_iter().enumerate() {
        for rounds in [2, 3, 5, 8] {
            let share = share(Standing::WithinNoise, rounds, 1.0, machine, machine, i as u64);
            assert!(share >= 0.95, "{share} of {rounds} rounds on {machine:?}");
        }
    }
}

#[test]
fn a_floor_from_a_quiet_cell_does_not_make_a_noisy_cell_differ() {
    for rounds in [3, 5, 8] {
        let share = share(Standing::WithinNoise, rounds, 1.0, MACHINES[2], MACHINES[0], 31);
        assert!(share >= 0.94, "{share} of {rounds} rounds");
    }
}

#[test]
fn a_tenth_less_is_found_on_an_ordinary_machine_and_is_worse() {
    let mut rng = fastrand::Rng::with_seed(2);
    let mut found = 0;
    for run in 0..50 {
        let mut made = same_target(5, Noise::LITTLE, &mut rng);
        made.extend(paired(&size(100), TARGETS, 5, 0.9, Noise::LITTLE, &mut rng));
        let analysis = analyse(&made, None, run);
        let ratio = &analysis.pairs[0].ratios["throughput"];
        found += usize::from(ratio.standing == Standing::Worse);
        assert!((0.8..1.0).contains(&ratio.ratio), "{ratio:?}");
        assert!(analysis.pairs[0].ratios["p99_ms"].standing != Standing::Better);
    }
    assert!(found >= 45, "{found} of 50");
}

#[test]
fn pairing_sees_through_a_wandering_machine() {
    let mut rng = fastrand::Rng::with_seed(3);
    let wandering = Noise { spread: 0.01, stalls: 0.0, wander: 0.4 };
    let mut made = same_target(6, wandering, &mut rng);
    made.extend(paired(&size(100), TARGETS, 6, 1.1, wandering, &mut rng));
    let analysis = analyse(&made, None, 1);
    assert_eq!(analysis.pairs[0].ratios["throughput"].standing, Standing::Better);
    let cell = &analysis.cells[0].metrics["throughput"];
    assert!(cell.max / cell.min > 1.3, "the machine did wander: {cell:?}");
}

#[test]
fn intervals_need_five_rounds_and_p_needs_six() {
    let of = |rounds| {
        let mut rng = fastrand::Rng::with_seed(4);
        let made = paired(&size(100), TARGETS, rounds, 1.1, Noise::LITTLE, &mut rng);
        analyse(&made, None, 1)
    };
    let ratio = |analysis: &Analysis| analysis.pairs[0].ratios["throughput"].clone();
    let four = of(4);
    assert_eq!(four.cells[0].metrics["throughput"].interval, None);
    assert_eq!((ratio(&four).interval, ratio(&four).p), (None, None));
    let five = ratio(&of(5));
    assert!(five.interval.is_some() && five.p.is_none());
    assert!(ratio(&of(6)).p.is_some_and(|p| (p - 0.031_25).abs() < 1e-9));
    assert_eq!(ratio(&of(9)).method, Method::LogT);
    assert_eq!(ratio(&of(10)).method, Method::Bca);
}

#[test]
fn without_a_floor_few_rounds_decide_nothing() {
    let made = [
        round(size(1), "apache-kafka", 0, &[("throughput", 100.0)]),
        round(size(1), "highwater", 0, &[("throughput", 300.0)]),
    ];
    let ratio = &analyse(&made, None, 1).pairs[0].ratios["throughput"];
    assert_eq!((ratio.standing, ratio.floor), (Standing::Unknown, None));
    assert!((ratio.ratio - 3.0).abs() < 1e-12 && !ratio.within_noise());
}

#[test]
fn base_is_the_first_by_name_or_as_asked() {
    let mut rng = fastrand::Rng::with_seed(5);
    let made = paired(&size(100), TARGETS, 5, 2.0, Noise::LITTLE, &mut rng);
    let first = analyse(&made, None, 1);
    assert_eq!((&*first.pairs[0].base, &*first.pairs[0].target), ("apache-kafka", "highwater"));
    let asked = analyse(&made, Some("highwater"), 1);
    assert_eq!(asked.pairs[0].target, "apache-kafka");
    let product =
        first.pairs[0].ratios["throughput"].ratio * asked.pairs[0].ratios["throughput"].ratio;
    assert!((product - 1.0).abs() < 1e-9);
}

#[test]
fn metrics_that_are_zero_have_no_ratio() {
    let made: Vec<Round> = TARGETS
        .iter()
        .flat_map(|target| (0..5).map(move |n| round(size(1), target, n, &[("failed", 0.0)])))
        .collect();
    let analysis = analyse(&made, None, 1);
    assert!(analysis.pairs[0].ratios.is_empty());
    assert_eq!(analysis.cells[0].metrics["failed"].n, 5);
}

#[test]
fn failed_rounds_are_counted_and_a_repeated_one_counts_once() {
    let mut failed = round(size(1), "highwater", 1, &[("throughput", 1.0)]);
    failed.failure = Some("the broker did not start".to_owned());
    let mut retried = round(size(1), "highwater", 0, &[]);
    retried.failure = Some("timed out".to_owned());
    let made = [
        retried,
        failed,
        round(size(1), "highwater", 0, &[("throughput", 100.0)]),
        round(size(1), "highwater", 2, &[("throughput", f64::NAN)]),
    ];
    let analysis = analyse(&made, None, 1);
    let cell = &analysis.cells[0];
    assert_eq!(
        (cell.rounds, cell.metrics["throughput"].values.as_slice()),
        (2, [100.0].as_slice())
    );
    assert_eq!(cell.failures, [("the broker did not start".to_owned(), 1)]);
    assert!(analysis.banners[0].contains("failed"), "{:?}", analysis.banners);
}

#[test]
fn the_first_slow_round_and_outliers_are_named_and_kept() {
    let values = [391.0, 5.1, 5.3, 5.2, 4.9, 90.0, 5.0];
    let made: Vec<Round> =
        (0..7).map(|n| round(size(1), "highwater", n, &[("p99_ms", values[n as usize])])).collect();
    let cell = &analyse(&made, None, 1).cells[0];
    let p99 = &cell.metrics["p99_ms"];
    assert_eq!((p99.n, p99.max, p99.outliers.as_slice()), (7, 391.0, [0, 5].as_slice()));
    assert!(p99.first_round_slow);
    assert_eq!(
        cell.warnings,
        [
            "the first round was slow, as of something cold: p99_ms",
            "round 6 lies far outside the others: p99_ms"
        ]
    );
}

#[test]
fn one_lost_record_is_not_hidden_by_rounds_that_nobody_checked() {
    let clean =
        Verdict { checked: true, sent: 10, acknowledged: 10, found: 10, ..Verdict::default() };
    let lossy = Verdict { found: 9, lost: 1, ..clean.clone() };
    let cell = |verdicts: &[Verdict]| {
        let made: Vec<Round> = verdicts
            .iter()
            .enumerate()
            .map(|(n, verdict)| {
                let mut made = round(size(1), "highwater", n as u32, &[("throughput", 1.0)]);
                made.verdict = verdict.clone();
                made
            })
            .collect();
        analyse(&made, None, 1)
    };
    let unchecked = Verdict::default();
    let delivered = |verdicts: &[Verdict]| cell(verdicts).cells[0].delivered();
    assert_eq!(delivered(&[clean.clone(), clean.clone()]), Delivered::Clean);
    assert_eq!(delivered(&[clean.clone(), unchecked.clone()]), Delivered::PartlyChecked);
    assert_eq!(delivered(std::slice::from_ref(&unchecked)), Delivered::Unchecked);
    let broken = cell(&[lossy, clean, unchecked]);
    assert_eq!(broken.cells[0].delivered(), Delivered::Broken);
    assert!(!broken.cells[0].verdict.checked);
    assert!(broken.banners[0].contains("of 20 acknowledged records 1 were lost"));
}

#[test]
fn durability_is_the_least_of_the_rounds() {
    let of = |durabilities: &[Durability]| {
        let made: Vec<Round> = durabilities
            .iter()
            .enumerate()
            .map(|(n, durability)| Round {
                durability: *durability,
                ..round(size(1), "highwater", n as u32, &[])
            })
            .collect();
        analyse(&made, None, 1).cells[0].durability
    };
    assert_eq!(of(&[Durability::Synced, Durability::PageCache]), Durability::PageCache);
    assert_eq!(of(&[Durability::Synced, Durability::Unknown]), Durability::Unknown);
}

#[test]
fn a_canary_that_slows_down_raises_a_banner() {
    let canary = |values: &[f64]| {
        let made: Vec<Round> = values
            .iter()
            .enumerate()
            .map(|(n, value)| Round {
                purpose: Purpose::Canary,
                ..round(size(1), "highwater", n as u32, &[("throughput", *value)])
            })
            .collect();
        analyse(&made, None, 1)
    };
    let slowing = canary(&[100.0, 96.0, 90.0]);
    assert!(
        !slowing.banners[0].contains("machine"),
        "one target's canary says nothing of the machine"
    );
    assert!(slowing.drifts[0].beyond && (slowing.drifts[0].change + 0.1).abs() < 1e-12);
    assert!(
        slowing.banners[0]
            .starts_with("The canary on highwater changed its throughput by up to 11.1 %")
    );
    let steady = canary(&[100.0, 96.0, 99.0]);
    assert!(!steady.drifts[0].beyond && steady.banners.is_empty());
    // One odd round of nine is no drift.
    assert!(!canary(&[100.0, 101.0, 99.0, 100.0, 60.0, 101.0, 98.0, 99.0, 100.0]).drifts[0].beyond);
    assert!(canary(&[100.0]).drifts.is_empty());
    // Nor is one of the three at a place, wherever it is.
    for odd in 0..9 {
        let mut values = [100.0, 101.0, 99.0, 100.0, 98.0, 101.0, 98.0, 99.0, 100.0];
        values[odd] = 190.0;
        assert!(!canary(&values).drifts[0].beyond, "round {odd}");
    }
}

#[test]
fn a_canary_is_judged_by_what_a_record_costs() {
    let metrics = [
        ("throughput", [630.0, 323.0, 708.0]),
        ("client_cpu_s_per_mrec", [2.0, 2.0, 2.0]),
        ("broker_cpu_s_per_mrec", [4.0, 4.04, 4.1]),
    ];
    let watched = |metrics: &[(&str, [f64; 3])]| {
        let made: Vec<Round> = (0..3)
            .map(|n| {
                let of: Vec<(&str, f64)> = metrics.iter().map(|(name, v)| (*name, v[n])).collect();
                let round = round(size(1), "highwater", n as u32, &of);
                Round { purpose: Purpose::Canary, ..round }
            })
            .collect();
        let drift = analyse(&made, None, 1).drifts.remove(0);
        (drift.metric, drift.beyond)
    };
    assert_eq!(watched(&metrics), ("broker_cpu_s_per_mrec".to_owned(), false));
    // Of brokers elsewhere only the clients' is known.
    assert_eq!(watched(&metrics[..2]), ("client_cpu_s_per_mrec".to_owned(), false));
    let heavier = [("broker_cpu_s_per_mrec", [4.0, 4.4, 4.4])];
    assert_eq!(watched(&heavier), ("broker_cpu_s_per_mrec".to_owned(), true));
}

#[test]
fn emulated_cells_are_not_mixed_with_real_ones() {
    let mut emulated = round(size(1), "highwater", 0, &[("throughput", 10.0)]);
    emulated.emulated = "ali-2018".to_owned();
    let made = [emulated, round(size(1), "highwater", 0, &[("throughput", 100.0)])];
    assert_eq!(analyse(&made, None, 1).cells.len(), 2);
}

#[test]
fn an_analysis_survives_json() {
    let mut rng = fastrand::Rng::with_seed(6);
    let mut made = same_target(10, Noise::LITTLE, &mut rng);
    made.extend(paired(&size(100), TARGETS, 10, 1.1, Noise::LITTLE, &mut rng));
    let analysis = analyse(&made, None, 1);
    let text = serde_json::to_string(&analysis).expect("finite numbers");
    let back: Analysis = serde_json::from_str(&text).expect("what was written");
    assert_eq!(back.cells.len(), analysis.cells.len());
    assert_eq!(back.floors.keys().collect::<Vec<_>>(), ["p99_ms", "throughput"]);
}

/// Rounds of `highwater` against itself, recorded in two runs on a machine of two processors on which programs were
/// being built meanwhile: a metric, then six rounds of `#a` and of `#b`.
type Recorded = [(&'static str, [f64; 6], [f64; 6]); 6];

const FIRST_RUN: Recorded = [
    (
        "throughput",
        [552500.0, 237300.0, 399900.0, 246300.0, 379300.0, 377400.0],
        [502000.0, 229400.0, 254700.0, 329700.0, 348000.0, 223800.0],
    ),
    (
        "runtime_ms",
        [1105.0, 1126.0, 1042.0, 1155.0, 1059.0, 1041.0],
        [1044.0, 1132.0, 1125.0, 1051.0, 1039.0, 1043.0],
    ),
    (
        "p50_ms",
        [54.3, 127.1, 76.86, 130.7, 64.86, 67.78],
        [59.23, 128.1, 113.5, 80.13, 70.27, 111.2],
    ),
    (
        "p99_ms",
        [102.1, 171.4, 113.5, 185.0, 134.7, 196.6],
        [105.0, 172.5, 178.4, 213.8, 164.1, 352.0],
    ),
    (
        "max_ms",
        [107.8, 176.5, 130.6, 200.2, 143.5, 216.3],
        [109.9, 181.8, 183.2, 219.5, 198.5, 380.2],
    ),
    (
        "broker_cpu_s_per_mrec",
        [1.285, 3.567, 1.378, 1.184, 1.188, 1.182],
        [1.583, 4.328, 3.245, 1.155, 1.22, 1.05],
    ),
];

const SECOND_RUN: Recorded = [
    (
        "throughput",
        [499800.0, 494700.0, 319200.0, 262600.0, 460500.0, 400100.0],
        [447600.0, 423300.0, 396900.0, 249700.0, 539300.0, 435500.0],
    ),
    (
        "runtime_ms",
        [1053.0, 1051.0, 1076.0, 1115.0, 1073.0, 1042.0],
        [1053.0, 1040.0, 1044.0, 1043.0, 1052.0, 1040.0],
    ),
    (
        "p50_ms",
        [59.77, 63.1, 54.75, 123.1, 68.61, 63.52],
        [63.74, 62.14, 62.94, 125.4, 55.87, 62.21],
    ),
    (
        "p99_ms",
        [94.02, 84.48, 288.0, 185.1, 88.38, 215.7],
        [132.4, 157.4, 204.0, 199.2, 79.55, 133.0],
    ),
    (
        "max_ms",
        [101.6, 93.25, 295.4, 187.9, 95.61, 230.5],
        [141.6, 167.7, 217.3, 207.4, 84.99, 146.4],
    ),
    (
        "broker_cpu_s_per_mrec",
        [1.166, 1.157, 1.079, 2.972, 1.466, 1.179],
        [1.364, 1.101, 1.343, 3.116, 1.254, 1.239],
    ),
];

/// Recorded rounds as those of a cell, or of a target against itself.
fn recorded(
    run: &Recorded,
    cell: u32,
    rounds: std::ops::Range<usize>,
    same_target: bool,
) -> Vec<Round> {
    let mut made = Vec::new();
    for number in rounds {
        for (target, b) in [("highwater#a", false), ("highwater#b", true)] {
            let of = |(metric, a, other): &(&'static str, [f64; 6], [f64; 6])| {
                (*metric, if b { other[number] } else { a[number] })
            };
            let metrics: Vec<(&str, f64)> = run.iter().map(of).collect();
            let mut round = round(size(cell), target, number as u32, &metrics);
            if same_target {
                round.purpose = Purpose::SameTarget;
            }
            made.push(round);
        }
    }
    made
}

#[test]
fn recorded_rounds_of_one_target_are_within_the_noise_of_another_run() {
    let (mut within, mut all) = (0, 0);
    for (floor, cells) in [(&FIRST_RUN, &SECOND_RUN), (&SECOND_RUN, &FIRST_RUN)] {
        let mut made = recorded(floor, 0, 0..6, true);
        for (cell, rounds) in [(1, 0..6), (2, 0..3), (3, 3..6), (4, 0..2), (5, 2..4), (6, 4..6)] {
            made.extend(recorded(cells, cell, rounds, false));
        }
        for ratio in analyse(&made, None, 1).pairs.iter().flat_map(|pair| pair.ratios.values()) {
            all += 1;
            within += usize::from(ratio.standing == Standing::WithinNoise);
        }
    }
    assert_eq!(all, 72);
    assert!(within * 20 >= all * 19, "{within} of {all}");
}

/// Two targets, three rounds each; the rounds' orders are 0 to 5, the base's first.
fn three_pairs() -> Vec<Round> {
    let of = |place: usize, target: &str| {
        let number = (place / 2) as u32;
        let value = 100.0 * (1.0 + place as f64);
        Round {
            order: place as u32,
            verdict: Verdict { checked: true, lost: 1, ..Verdict::default() },
            ..round(size(1), target, number, &[("throughput", value)])
        }
    };
    (0..6).map(|place| of(place, TARGETS[place % 2])).collect()
}

#[test]
fn figures_of_young_rounds_are_left_out_where_there_are_others() {
    let made = three_pairs();
    let analysis = analyse_settled(&made, &[0, 2].into(), Some(TARGETS[0]), 1);
    let base = &analysis.cells.iter().find(|cell| cell.target == TARGETS[0]).unwrap();
    assert_eq!((base.rounds, base.young), (1, false));
    assert_eq!(base.metrics["throughput"].values, [500.0]);
    assert_eq!(base.verdict.lost, 3, "losses of every round count");
    assert_eq!(analysis.pairs[0].ratios["throughput"].n, 1);
    assert!(analysis.banners.iter().any(|banner| banner.contains("younger than their warm-up")));
}

#[test]
fn a_cell_of_young_rounds_only_is_marked_and_has_no_ratio() {
    let made = three_pairs();
    let analysis = analyse_settled(&made, &[0, 2, 4].into(), Some(TARGETS[0]), 1);
    let base = &analysis.cells.iter().find(|cell| cell.target == TARGETS[0]).unwrap();
    assert_eq!((base.rounds, base.young), (3, true));
    assert_eq!(base.metrics["throughput"].mean, 300.0);
    assert!(analysis.pairs.is_empty());
    assert_eq!(analyse(&made, Some(TARGETS[0]), 1).pairs.len(), 1);
}

#[test]
fn a_canary_on_young_brokers_shows_no_drift() {
    let mut made = three_pairs();
    made.iter_mut().for_each(|round| round.purpose = Purpose::Canary);
    let of = |analysis: Analysis| -> Vec<String> {
        analysis.drifts.into_iter().map(|drift| drift.target).collect()
    };
    assert_eq!(of(analyse(&made, None, 1)), TARGETS);
    assert_eq!(of(analyse_settled(&made, &[0].into(), None, 1)), [TARGETS[1]]);
}
