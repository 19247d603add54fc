//! Every fault that can be planted in replication is found by the simulation of several brokers, in fewer than a thousand
//! seeds.

use std::panic::{self, AssertUnwindSafe};

use sim::Mutant;

/// Seeds that may be needed.
const SEEDS_MAX: u64 = 1000;

/// The first seed that finds it, and how.
fn found(mutant: Mutant) -> Option<(u64, String)> {
    sim::plant(Some(mutant));
    let found = (0..SEEDS_MAX).find_map(|seed| {
        // What an assertion finds is found.
        match panic::catch_unwind(AssertUnwindSafe(|| sim::run_cluster(seed, false))) {
            Ok(outcome) => outcome.violation.map(|violation| (seed, violation.to_string())),
            Err(_) => Some((seed, "an assertion".to_owned())),
        }
    });
    sim::plant(None);
    found
}

#[test]
fn every_planted_fault_is_found() {
    let mut missed = Vec::new();
    for mutant in Mutant::ALL {
        match found(mutant) {
            Some((seed, how)) => println!("{mutant:?}: seed {seed}: {how}"),
            None => missed.push(mutant),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
