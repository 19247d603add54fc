//! What the published claims are on the published rows, and what intervals make of claims.

use super::*;
use crate::catalogue;
use crate::definition::Levels;

fn published() -> Rows {
    Rows::published(catalogue::experiments())
}

fn finding(experiment: &str, claim: &str, rows: &Rows) -> Finding {
    let definition = catalogue::experiment(experiment).expect("an experiment");
    let claim = definition.claims.iter().find(|one| one.id == claim).expect("a claim");
    evaluate(experiment, claim, rows)
}

fn claim(test: &str) -> Claim {
    let test = toml::from_str(test).expect("a table");
    Claim { id: "T".to_owned(), says: String::new(), ours: true, test }
}

/// Rows of a made-up experiment `e`: a factor `f` and a metric `throughput` with its interval.
fn rows(points: &[(f64, f64, f64, f64)]) -> Rows {
    let row = |(f, value, low, high): &(f64, f64, f64, f64)| Row {
        cell: [("f".to_owned(), Level::Number(*f))].into(),
        metrics: [("throughput".to_owned(), Estimate { value: *value, low: *low, high: *high })]
            .into(),
        ..Row::default()
    };
    let mut rows = Rows::default();
    rows.experiments.insert("e".to_owned(), points.iter().map(row).collect());
    rows
}

fn outcome_of(test: &str, rows: &Rows) -> Outcome {
    evaluate("e", &claim(test), rows).outcome
}

#[test]
fn every_published_claim_holds_on_the_published_numbers_that_there_are() {
    let rows = published();
    let mut reproduced = Vec::new();
    for experiment in catalogue::experiments() {
        for found in evaluate_all(experiment, &rows) {
            let place = format!("{} {}: {}", found.experiment, found.claim, found.because);
            match found.outcome {
                Outcome::Reproduced => {
                    reproduced.push(format!("{} {}", found.experiment, found.claim))
                }
                Outcome::Contradicted => panic!("{place}"),
                Outcome::NotTestable => {}
                Outcome::WithinNoise => panic!("published numbers have no noise: {place}"),
            }
        }
    }
    for wanted in [
        "ibm-resilient R1",
        "ibm-resilient R2",
        "ibm-fast F1",
        "ibm-fast F2",
        "ibm-payload P1",
        "ibm-payload P2",
        "ali-producer A1",
        "ali-producer A2",
        "ali-producer A3",
        "ali-producer A4",
        "ali-producer A5",
        "ali-producer A6",
        "ali-emulated A6",
        "ali-producer A7",
        "ali-consumer C1",
        "ali-consumer C2",
        "ali-consumer C3",
        "ali-consumer C4",
        "cs6-1 S0",
        "cs6-1 S1",
        "cs6-2 S2a",
        "cs6-2 S2b",
        "cs6-3 S3a",
        "cs6-3 S3b",
        "cs6-4 S4",
        "cs6-4 S8",
        "cs6-5 S5",
        "cs6-5 S5b",
        "cs6-6 S6a",
        "cs6-6 S6b",
        "cs6-6 S6c",
        "cs6-7 S7a",
        "cs6-7 S7b",
        "cs6-7 S7c",
        "x-latency-law L1",
    ] {
        assert!(reproduced.iter().any(|one| one == wanted), "{wanted} is not among {reproduced:?}");
    }
}

#[test]
fn a_report_without_numbers_leaves_its_claims_untested() {
    let found = finding("mif-grid", "M1", &published());
    assert_eq!(found.outcome, Outcome::NotTestable);
    assert_eq!(found.because, "the report gives no numbers");
}

#[test]
fn the_swapped_labels_are_told_with_the_experiments() {
    let found = finding("cs6-1", "S0", &published());
    assert!(
        found.because.contains("cs6-2") && found.because.contains("cs6-3"),
        "{}",
        found.because
    );
}

#[test]
fn a_claim_about_published_numbers_is_not_tested_on_measured_ones() {
    let mut rows = published();
    rows.published = false;
    assert_eq!(finding("cs6-1", "S0", &rows).outcome, Outcome::NotTestable);
    assert_eq!(finding("cs6-1", "S1", &rows).outcome, Outcome::Reproduced);
}

#[test]
fn scaling_is_not_judged_where_the_machine_is_full() {
    let mut rows = published();
    rows.published = false;
    for row in rows.experiments.get_mut("ibm-resilient").unwrap() {
        row.metrics.insert("broker_cpu_share".to_owned(), Estimate::point(0.95));
        // Falling, because three times the brokers share two cores.
        let brokers = row.cell["brokers"].number().unwrap();
        row.metrics.insert("throughput".to_owned(), Estimate::point(1e6 / brokers));
    }
    let found = finding("ibm-resilient", "R1", &rows);
    assert_eq!(found.outcome, Outcome::NotTestable, "{}", found.because);
    assert!(found.because.contains("0.95"), "{}", found.because);
    for row in rows.experiments.get_mut("ibm-resilient").unwrap() {
        row.metrics.insert("broker_cpu_share".to_owned(), Estimate::point(0.5));
    }
    assert_eq!(finding("ibm-resilient", "R1", &rows).outcome, Outcome::Contradicted);
}

#[test]
fn a_machine_is_full_by_brokers_and_client_together() {
    let mut rows = published();
    for row in rows.experiments.get_mut("ibm-resilient").unwrap() {
        for (metric, value) in [
            ("broker_cpu_share", 0.5),
            ("broker_cpu_s_per_mrec", 2.0),
            ("client_cpu_s_per_mrec", 1.8),
        ] {
            row.metrics.insert(metric.to_owned(), Estimate::point(value));
        }
    }
    let experiment = catalogue::experiment("ibm-resilient").unwrap();
    derive(experiment, rows.experiments.get_mut("ibm-resilient").unwrap());
    assert_eq!(finding("ibm-resilient", "R1", &rows).outcome, Outcome::NotTestable);
}

#[test]
fn a_finding_has_its_numbers_in_a_sentence() {
    let rows = published();
    assert_eq!(
        finding("ibm-resilient", "R1", &rows).because,
        "throughput from brokers=3 to 9: 523,964 to 1,500,954, a ratio of 2.865"
    );
    assert_eq!(
        finding("ibm-resilient", "R2", &rows).because,
        "throughput_per_broker, brokers=6|9 by brokers=3: 2 of 2 hold, 0 fail, from 0.9549 (brokers=9) to 1.123 \
         (brokers=6); claimed 0.8 to 1.2"
    );
}

#[test]
fn the_interval_decides_and_not_the_number() {
    let test =
        "kind = 'ratio'\nmetric = 'throughput'\nof = { f = 2 }\nto = { f = 1 }\nat_least = 1.15";
    let of = |low: f64, high: f64| {
        outcome_of(test, &rows(&[(1.0, 100.0, 100.0, 100.0), (2.0, 120.0, low, high)]))
    };
    assert_eq!(of(118.0, 122.0), Outcome::Reproduced);
    assert_eq!(of(110.0, 130.0), Outcome::WithinNoise);
    let low = rows(&[(1.0, 100.0, 100.0, 100.0), (2.0, 110.0, 108.0, 112.0)]);
    assert_eq!(outcome_of(test, &low), Outcome::Contradicted);
}

#[test]
fn an_effect_below_what_a_target_differs_from_itself_by_is_noise() {
    let test = "kind = 'monotone'\nmetric = 'throughput'\nover = 'f'\ndirection = 'rises'";
    let mut rows = rows(&[(1.0, 100.0, 100.0, 100.0), (2.0, 103.0, 103.0, 103.0)]);
    assert_eq!(outcome_of(test, &rows), Outcome::Reproduced);
    for row in rows.experiments.get_mut("e").unwrap() {
        row.noise.insert("throughput".to_owned(), 1.05_f64.ln());
    }
    assert_eq!(outcome_of(test, &rows), Outcome::WithinNoise);
}

#[test]
fn a_step_back_within_tolerance_does_not_contradict_a_trend() {
    let points = [(1.0, 100.0, 100.0, 100.0), (2.0, 98.0, 98.0, 98.0), (3.0, 110.0, 110.0, 110.0)];
    let test = |tolerance: f64| {
        format!(
            "kind = 'monotone'\nmetric = 'throughput'\nover = 'f'\ndirection = 'rises'\ntolerance = {tolerance}"
        )
    };
    assert_eq!(outcome_of(&test(0.03), &rows(&points)), Outcome::Reproduced);
    assert_eq!(outcome_of(&test(0.01), &rows(&points)), Outcome::Contradicted);
}

#[test]
fn most_and_mean_forgive_one() {
    let points: Vec<_> =
        [1.2, 1.2, 0.9].iter().enumerate().map(|(at, v)| (at as f64, *v, *v, *v)).collect();
    let test = |share: &str| {
        format!("kind = 'bound'\nmetric = 'throughput'\nat_least = 1\nshare = '{share}'")
    };
    assert_eq!(outcome_of(&test("each"), &rows(&points)), Outcome::Contradicted);
    assert_eq!(outcome_of(&test("most"), &rows(&points)), Outcome::Reproduced);
    assert_eq!(outcome_of(&test("mean"), &rows(&points)), Outcome::Reproduced);
}

#[test]
fn a_power_is_found_through_noise_or_called_noise() {
    let test =
        "kind = 'power-law'\nmetric = 'throughput'\nover = 'f'\nexponent = -1\nwithin = 0.05";
    let points = |off: f64| -> Vec<(f64, f64, f64, f64)> {
        let one = |f: f64| (f, 1e6 / f, 1e6 / f / off, 1e6 / f * off);
        [1.0, 10.0, 100.0, 1000.0].map(one).to_vec()
    };
    assert_eq!(outcome_of(test, &rows(&points(1.02))), Outcome::Reproduced);
    assert_eq!(outcome_of(test, &rows(&points(1.6))), Outcome::WithinNoise);
    let flat = [(1.0, 5.0, 5.0, 5.0), (10.0, 5.0, 5.0, 5.0)];
    assert_eq!(outcome_of(test, &rows(&flat)), Outcome::Contradicted);
}

fn counted(counts: &[u64]) -> Rows {
    let row = Row { cell: Levels::new(), counts: counts.to_vec(), ..Row::default() };
    let mut rows = Rows::default();
    rows.experiments.insert("e".to_owned(), vec![row]);
    rows
}

#[test]
fn counts_are_exact_or_contradicted() {
    let test = "kind = 'counts'\nexact = [40000, 0, 0, 20000, 40000]";
    assert_eq!(outcome_of(test, &counted(&[40000, 0, 0, 20000, 40000])), Outcome::Reproduced);
    // Three rounds together.
    assert_eq!(outcome_of(test, &counted(&[120000, 0, 0, 60000, 120000])), Outcome::Reproduced);
    assert_eq!(outcome_of(test, &counted(&[39999, 1, 0, 20000, 40000])), Outcome::Contradicted);
}

#[test]
fn even_counts_may_vary_as_chance_does() {
    let test = "kind = 'even'\nsigmas = 3";
    assert_eq!(
        outcome_of(test, &counted(&[20100, 19900, 20050, 19950, 20000])),
        Outcome::Reproduced
    );
    assert_eq!(
        outcome_of(test, &counted(&[20430, 19570, 20000, 20000, 20000])),
        Outcome::WithinNoise
    );
    assert_eq!(
        outcome_of(test, &counted(&[22000, 18000, 20000, 20000, 20000])),
        Outcome::Contradicted
    );
}

fn in_flight(gaps: &[(f64, f64)]) -> Rows {
    let row = |partitions: f64, in_flight: f64, value: f64| Row {
        cell: [
            ("partitions".to_owned(), Level::Number(partitions)),
            ("in_flight".to_owned(), Level::Number(in_flight)),
        ]
        .into(),
        metrics: [("throughput".to_owned(), Estimate::point(value))].into(),
        ..Row::default()
    };
    let both = |(partitions, gap): &(f64, f64)| {
        [row(*partitions, 1.0, 100.0), row(*partitions, 2.0, 100.0 * gap)]
    };
    let mut rows = Rows::default();
    rows.experiments.insert("e".to_owned(), gaps.iter().flat_map(both).collect());
    rows
}

#[test]
fn a_gap_shrinks_or_does_not() {
    let test = "kind = 'gap-shrinks'\nmetric = 'throughput'\nof = { in_flight = 2 }\nto = { in_flight = 1 }\nover = 'partitions'";
    assert_eq!(
        outcome_of(test, &in_flight(&[(9.0, 1.3), (36.0, 1.1), (72.0, 1.05)])),
        Outcome::Reproduced
    );
    assert_eq!(outcome_of(test, &in_flight(&[(9.0, 1.05), (72.0, 1.3)])), Outcome::Contradicted);
    assert_eq!(outcome_of(test, &in_flight(&[(9.0, 1.05)])), Outcome::NotTestable);
}

#[test]
fn one_part_that_fails_contradicts_all() {
    let rows = rows(&[(1.0, 5.0, 5.0, 5.0)]);
    let both = |least: f64| {
        format!(
            "kind = 'all'\ntests = [{{ kind = 'bound', metric = 'throughput', at_least = {least} }}, {{ kind = 'bound', metric = 'throughput', at_most = 6 }}]"
        )
    };
    assert_eq!(outcome_of(&both(4.0), &rows), Outcome::Reproduced);
    assert_eq!(outcome_of(&both(5.5), &rows), Outcome::Contradicted);
}

#[test]
fn a_table_that_is_no_predicate_is_said_so() {
    let found = evaluate("e", &claim("kind = 'bound'\nmetrik = 'throughput'"), &rows(&[]));
    assert_eq!(found.outcome, Outcome::NotTestable);
    assert!(found.because.contains("metrik"), "{}", found.because);
}

/// A round of a cell that offers so many records of 100 bytes a second.
fn offering(records: f64, number: u32, share: f64) -> crate::round::Round {
    crate::round::Round {
        experiment: "ali-producer".to_owned(),
        cell: [
            ("record_bytes".to_owned(), Level::Number(100.0)),
            ("offered".to_owned(), Level::Number(records)),
        ]
        .into(),
        target: "t".to_owned(),
        round: number,
        order: number,
        purpose: crate::round::Purpose::Cell,
        started_ms: 0,
        emulated: String::new(),
        deviations: Vec::new(),
        metrics: [("records".to_owned(), records), ("reached_share".to_owned(), share)].into(),
        histograms: BTreeMap::new(),
        counts: Vec::new(),
        verdict: crate::round::Verdict::default(),
        durability: crate::round::Durability::Unknown,
        warnings: Vec::new(),
        failure: None,
    }
}

fn reached(rounds: &[crate::round::Round]) -> Finding {
    let analysis = crate::analysis::analyse(rounds, None, 1);
    finding("ali-producer", "A1", &Rows::measured(&analysis, "t"))
}

#[test]
fn few_records_make_a_reached_share_uncertain_by_one_of_them() {
    let outcome = |records: f64, share: f64| {
        reached(&[0, 1].map(|number| offering(records, number, share))).outcome
    };
    assert_eq!(outcome(100.0, 0.99), Outcome::WithinNoise);
    assert_eq!(outcome(8000.0, 0.99), Outcome::Contradicted);
    assert_eq!(outcome(8000.0, 1.0), Outcome::Reproduced);
}

#[test]
fn one_round_alone_decides_nothing_and_two_cells_do() {
    let alone = reached(&[offering(8000.0, 0, 0.9)]);
    assert_eq!(alone.outcome, Outcome::WithinNoise);
    assert!(alone.because.contains("one round alone decides nothing"), "{}", alone.because);
    // One cell of three had a bad round: the others do not make that a verdict.
    let stalled = [(8000.0, 1.0), (4000.0, 1.0), (2000.0, 0.9)];
    let of = |cells: &[(f64, f64)]| {
        let made: Vec<_> =
            cells.iter().map(|(records, share)| offering(*records, 0, *share)).collect();
        reached(&made).outcome
    };
    assert_eq!(of(&stalled), Outcome::WithinNoise);
    assert_eq!(of(&[(8000.0, 1.0), (4000.0, 0.9), (2000.0, 0.9)]), Outcome::Contradicted);
    assert_eq!(of(&stalled[..2]), Outcome::Reproduced);
}

#[test]
fn an_interval_that_reaches_below_zero_is_no_certainty() {
    // Five rounds of which one stalled: the mean less its interval is below 0.
    let test =
        "kind = 'ratio'\nmetric = 'throughput'\nof = { f = 2 }\nto = { f = 1 }\nat_least = 1.15";
    for low in [0.0, -25.0] {
        let rows = rows(&[(1.0, 5.0, 5.0, 5.0), (2.0, 22.0, low, 69.0)]);
        assert_eq!(outcome_of(test, &rows), Outcome::WithinNoise, "{low}");
    }
    let stalled: Vec<_> = [5.0, 5.0, 5.0, 5.0, 90.0]
        .into_iter()
        .zip(0..)
        .map(|(value, number)| {
            let mut round = offering(8000.0, number, 1.0);
            round.metrics.insert("p99_ms".to_owned(), value);
            round
        })
        .collect();
    let analysis = crate::analysis::analyse(&stalled, None, 1);
    let row = &Rows::measured(&analysis, "t").experiments["ali-producer"][0];
    assert_eq!((row.metrics["p99_ms"].low, row.metrics["p99_ms"].value), (0.0, 22.0));
}

#[test]
fn a_metric_may_choose_rows() {
    let test = "kind = 'bound'\nmetric = 'throughput'\nat_least = 50\nwhere = { throughput = { at_least = 10 } }";
    assert_eq!(
        outcome_of(test, &rows(&[(1.0, 5.0, 5.0, 5.0), (2.0, 60.0, 60.0, 60.0)])),
        Outcome::Reproduced
    );
    assert_eq!(outcome_of(test, &rows(&[(1.0, 5.0, 5.0, 5.0)])), Outcome::NotTestable);
}

#[test]
fn what_a_warm_up_changes_is_tested_on_measured_rows_alone() {
    let rows = published();
    assert_eq!(finding("ali-producer", "A7", &rows).outcome, Outcome::Reproduced);
    assert_eq!(finding("ali-producer", "A7b", &rows).outcome, Outcome::NotTestable);
    let measured = Rows { published: false, ..rows };
    assert_eq!(finding("ali-producer", "A7", &measured).outcome, Outcome::NotTestable);
    assert_eq!(finding("ali-producer", "A7b", &measured).outcome, Outcome::Contradicted);
}

#[test]
fn how_much_was_read_is_not_blurred_by_how_fast_the_canary_ran() {
    let floor = crate::analysis::Floor { n: 6, ratio: 1.0, spread: 0.2, within: 1.4 };
    let floors: BTreeMap<_, _> =
        ["data_mib", "throughput"].map(|name| (name.to_owned(), floor.clone())).into();
    let mut analysis = crate::analysis::analyse(&[offering(8000.0, 0, 0.5)], None, 1);
    analysis.floors_by_target = [("t".to_owned(), floors)].into();
    let row = Rows::measured(&analysis, "t").experiments["ali-producer"][0].clone();
    assert_eq!(row.noise("data_mib"), 0.0);
    // 2.447 is Student's t of six pairs; a round is as uncertain as a pair by the root of two.
    for metric in ["throughput", "mib_per_s", "runtime_ms"] {
        assert!((row.noise(metric) - 2.447 * 0.2 / 2_f64.sqrt()).abs() < 1e-3, "{metric}");
    }
}

/// What a claim about the worst of a hundred kills says of rounds of 50 with these longest gaps.
fn worst_of(rounds: &[f64]) -> Finding {
    let test = "kind = 'worst'\nmetric = 'gap_max_ms'\nat_most = 500\ntrials = 'kills'\ntrials_min = 100\nwhere = { kill = 'leader' }";
    let made: Vec<_> = (0..)
        .zip(rounds)
        .map(|(number, worst)| {
            let mut round = offering(100.0, number, 1.0);
            round.experiment = "x-failover".to_owned();
            let level = |text: &str| Level::Text(text.to_owned());
            round.cell = [("client", "java"), ("kill", "leader")]
                .map(|(factor, text)| (factor.to_owned(), level(text)))
                .into();
            round.metrics = [("kills".to_owned(), 50.0), ("gap_max_ms".to_owned(), *worst)].into();
            round
        })
        .collect();
    let analysis = crate::analysis::analyse(&made, None, 1);
    evaluate("x-failover", &claim(test), &Rows::measured(&analysis, "t"))
}

#[test]
fn the_worst_is_what_was_seen_once_and_takes_many_trials_to_be_ruled_out() {
    assert_eq!(worst_of(&[120.0, 500.0]).outcome, Outcome::Reproduced);
    // The mean of the rounds is below the bound, and so are most of them.
    let once = worst_of(&[120.0, 130.0, 501.0]);
    assert_eq!(once.outcome, Outcome::Contradicted);
    assert!(
        once.because.contains("501 at worst (client=java), after 150 kills"),
        "{}",
        once.because
    );
    // One bad kill is enough, however few there were.
    assert_eq!(worst_of(&[501.0]).outcome, Outcome::Contradicted);
    let few = worst_of(&[120.0]);
    assert_eq!(few.outcome, Outcome::WithinNoise);
    assert!(few.because.contains("it takes 100 kills"), "{}", few.because);
    assert_eq!(worst_of(&[]).outcome, Outcome::NotTestable);
}
