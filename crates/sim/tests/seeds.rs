//! Some seeds in every test run; `cargo run -p sim -- --runs N` runs more.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Histories of several brokers in every test run.
const CLUSTER_SEEDS: u64 = 2_000;

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
    // Among them 1831: a file whose name nobody had synced.
    let next = AtomicU64::new(0);
    let [stops, acked, controllers] = [const { AtomicU64::new(0) }; 3];
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= CLUSTER_SEEDS {
                return;
            }
            let outcome = sim::run_cluster(seed, false);
            if let Some(violation) = outcome.violation {
                panic!(
                    "{violation}; repeat with: cargo run -p sim -- --seed {seed} --cluster --verbose"
                );
            }
            stops.fetch_add(outcome.stops, Ordering::Relaxed);
            acked.fetch_add(outcome.acked, Ordering::Relaxed);
            controllers.fetch_add(outcome.controllers, Ordering::Relaxed);
        }
    };
    // A panic of one thread is one of the scope.
    thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(work))));
    let [stops, acked, controllers] = [stops, acked, controllers].map(AtomicU64::into_inner);
    assert!(stops > 6_000 && acked > 200_000, "{stops} stops, {acked} acked");
    assert!(controllers > 4_000, "{controllers} controllers");
}

#[test]
fn one_seed_of_several_brokers_is_one_history() {
    for seed in 1000..1005 {
        let first = sim::run_cluster(seed, false);
        assert_eq!(first.trace, sim::run_cluster(seed, false).trace, "seed {seed}");
    }
}
