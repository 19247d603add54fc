//! The claims about what stands in front of brokers, on made-up rows: each holds on the first and fails on the second.

use super::*;
use crate::catalogue;
use crate::definition::Levels;

/// A cell's levels and one metric, as a definition would write them.
type Cell = (&'static str, f64);

/// The claim, the metric, the rows on which it holds, and those on which it fails.
const CASES: &[(&str, &str, &str, [&[Cell]; 2])] = &[
    (
        "cs6-1",
        "S1e",
        "runtime_ms",
        [
            &[
                ("records = 1000\ndelivery = 'pull'\nlive = false", 10.0),
                ("records = 1000\ndelivery = 'sse'\nlive = false", 19.0),
            ],
            &[
                ("records = 1000\ndelivery = 'pull'\nlive = false", 10.0),
                ("records = 1000\ndelivery = 'sse'\nlive = false", 21.0),
            ],
        ],
    ),
    (
        "x-push",
        "PU1e",
        "e2e_p50_ms",
        [
            &[
                ("offered = 100\ndelivery = 'pull'\nfetch_wait_ms = 500\ncredit = 0", 1.0),
                ("offered = 100\ndelivery = 'sse'\nfetch_wait_ms = 500\ncredit = 0", 1.4),
            ],
            &[
                ("offered = 100\ndelivery = 'pull'\nfetch_wait_ms = 500\ncredit = 0", 1.0),
                ("offered = 100\ndelivery = 'sse'\nfetch_wait_ms = 500\ncredit = 0", 1.6),
            ],
        ],
    ),
    (
        "x-proxy",
        "PX3",
        "throughput",
        [
            &[("kind = 'produce'\nvia = 'proxy'\noffered = 20000", 19_990.0)],
            &[("kind = 'produce'\nvia = 'proxy'\noffered = 20000", 18_000.0)],
        ],
    ),
    (
        "x-proxy",
        "PX4",
        "throughput",
        [
            &[("kind = 'produce'\nvia = 'gateway'\noffered = 20000", 19_990.0)],
            &[("kind = 'produce'\nvia = 'gateway'\noffered = 20000", 18_000.0)],
        ],
    ),
    (
        "x-console",
        "CO1",
        "throughput",
        [
            &[
                ("kind = 'produce'\noffered = 0\nconsole = 'off'", 100.0),
                ("kind = 'produce'\noffered = 0\nconsole = 'page-open'", 97.0),
            ],
            &[
                ("kind = 'produce'\noffered = 0\nconsole = 'off'", 100.0),
                ("kind = 'produce'\noffered = 0\nconsole = 'page-open'", 90.0),
            ],
        ],
    ),
    (
        "x-console",
        "CO3",
        "gateway_cpu_share",
        [
            &[("console = 'collecting'", 0.01), ("console = 'page-open'", 0.04)],
            &[("console = 'collecting'", 0.03), ("console = 'page-open'", 0.04)],
        ],
    ),
];

fn levels(text: &str) -> Levels {
    toml::from_str(text).expect("levels")
}

fn outcome(experiment: &str, claim: &str, rows: Vec<Row>) -> Outcome {
    let definition = catalogue::experiment(experiment).expect("an experiment");
    let claim = definition.claims.iter().find(|one| one.id == claim).expect("a claim");
    let rows = Rows { published: false, experiments: [(experiment.to_owned(), rows)].into() };
    evaluate(experiment, claim, &rows).outcome
}

#[test]
fn claims_hold_where_they_should_and_fail_elsewhere() {
    for (experiment, claim, metric, cases) in CASES {
        let row = |(cell, value): &Cell| Row {
            cell: levels(cell),
            metrics: [((*metric).to_owned(), Estimate::point(*value))].into(),
            rounds: 3,
            ..Row::default()
        };
        for (cells, wanted) in cases.iter().zip([Outcome::Reproduced, Outcome::Contradicted]) {
            let rows = cells.iter().map(row).collect();
            assert_eq!(outcome(experiment, claim, rows), wanted, "{experiment} {claim}: {cells:?}");
        }
    }
}

#[test]
fn counts_of_brokers_and_of_partitions_are_told_apart() {
    let row = |cell: &str, counts: &[u64]| {
        vec![Row { cell: levels(cell), counts: counts.to_vec(), rounds: 1, ..Row::default() }]
    };
    let brokers =
        "kind = 'distribute'\nvia = 'gateway'\nbroker_strategy = 'cs6-mod'\nstrategy = 'random'";
    let held = outcome("cs6-7", "S7b", row(brokers, &[80_000, 20_000, 0]));
    assert_eq!(held, Outcome::Reproduced);
    let fewer = outcome("cs6-7", "S7b", row(brokers, &[100_000]));
    assert_eq!(fewer, Outcome::Contradicted, "a single broker shows nothing");
    let direct = "kind = 'distribute'\nvia = 'direct'\nstrategy = 'cs6-mod'";
    let shown = outcome("cs6-7", "S7h", row(direct, &[80_000, 20_000, 0]));
    assert_eq!(shown, Outcome::Reproduced);
    let untested = outcome("cs6-7", "S7b", row(direct, &[80_000, 20_000, 0]));
    assert_eq!(untested, Outcome::NotTestable);
}
