//! Some seeds in every test run; `cargo run -p sim -- --runs N` runs more.

use std::collections::BTreeSet;

#[test]
fn every_invariant_holds_over_many_seeds() {
    let (mut stops, mut acked, mut compactions) = (0, 0, 0);
    for seed in 0..60 {
        let outcome = sim::run(seed, false);
        if let Some(violation) = outcome.violation {
            panic!("{violation}; repeat with: cargo run -p sim -- --seed {seed} --verbose");
        }
        stops += outcome.stops;
        acked += outcome.acked;
        compactions += outcome.compactions;
    }
    // A simulation in which nothing happens would find nothing.
    assert!(stops > 100 && acked > 5_000, "{stops} stops, {acked} acked");
    assert!(compactions > 50, "{compactions} compactions");
}

#[test]
fn one_seed_is_one_history_and_another_seed_another() {
    let mut traces = BTreeSet::new();
    for seed in 1000..1010 {
        let outcome = sim::run(seed, false);
        assert_eq!(outcome.trace, sim::run(seed, false).trace, "seed {seed}");
        traces.insert(outcome.trace);
    }
    assert_eq!(traces.len(), 10);
}

#[test]
fn several_brokers_keep_every_promise_over_many_seeds() {
    let (mut stops, mut acked, mut controllers) = (0, 0, 0);
    // 1831: a file whose name nobody had synced.
    for seed in (0..100).chain([1831]) {
        let outcome = sim::run_cluster(seed, false);
        if let Some(violation) = outcome.violation {
            panic!(
                "{violation}; repeat with: cargo run -p sim -- --seed {seed} --cluster --verbose"
            );
        }
        stops += outcome.stops;
        acked += outcome.acked;
        controllers += outcome.controllers;
    }
    assert!(stops > 300 && acked > 10_000, "{stops} stops, {acked} acked");
    assert!(controllers > 200, "{controllers} controllers");
}

#[test]
fn one_seed_of_several_brokers_is_one_history() {
    for seed in 1000..1005 {
        let first = sim::run_cluster(seed, false);
        assert_eq!(first.trace, sim::run_cluster(seed, false).trace, "seed {seed}");
    }
}
