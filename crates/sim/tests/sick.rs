//! Runs in which one fault lasts: a sick disk, a silent broker or a quorum that is down.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Runs of each test run; `cargo run -p sim -- --sick --runs N` runs more.
const SEEDS: u64 = 120;

#[test]
fn partitions_with_enough_healthy_replicas_acknowledge_although_a_fault_lasts() {
    let (next, acked) = (AtomicU64::new(0), AtomicU64::new(0));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= SEEDS {
                return;
            }
            let outcome = sim::run_sick(seed, false);
            if let Some(violation) = outcome.violation {
                panic!(
                    "{violation}; repeat with: cargo run -p sim -- --seed {seed} --sick --verbose"
                );
            }
            acked.fetch_add(outcome.acked, Ordering::Relaxed);
        }
    };
    // A panic of one thread is one of the scope.
    thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(work))));
    // A simulation in which nothing happens would find nothing.
    assert!(acked.into_inner() > 100 * SEEDS);
}
