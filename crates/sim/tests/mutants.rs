//! Every rule left out is found by the simulation of several brokers, in fewer than a thousand seeds.
//!
//! The test takes seeds that are known to find each of them. When the simulation changes, seeds are other histories: `cargo
//! test -p sim --test mutants -- --ignored --nocapture` looks for new ones and prints them as they stand here; `MUTANT=name`
//! in the environment looks for one.

use std::collections::BTreeMap;
use std::panic::{self, AssertUnwindSafe};

use sim::Mutant;

/// Seeds that may be needed.
const SEEDS_MAX: u64 = 1000;
/// Seeds around the known one that are tried as well.
const AROUND: u64 = 3;

/// The first seed that finds it.
const KNOWN: &[(&str, u64)] = &[
    ("LeaderAlone", 8),
    ("WrittenIsSynced", 0),
    ("AsksUnsynced", 75),
    ("CommittedIsrOnly", 18),
    ("PositionsOfEarlierEpochs", 0),
    ("JoinsBehind", 4),
    ("JoinsLagging", 7),
    ("HighWatermarkFirst", 7),
    ("CutsNothing", 0),
    ("CutsToHighWatermark", 11),
    ("TooFewInSync", 26),
    ("UnknownIsRefused", 427),
    ("PositionsOfEarlierRegistrations", 2320),
    ("TellsUnsettled", 29),
    ("UncleanIsClean", 56),
    ("UncleanLeadsOn", 56),
    ("AnotherDiskCounts", 4),
    ("EmptyReplicasCount", 90),
    ("FencedLastLeader", 14),
    ("AnybodyLeads", 1),
    ("FencedJoins", 27),
    ("AnyRegistrationJoins", 167),
    ("EligibleForEver", 1),
    ("WaitsForSession", 0),
];

/// How a seed finds a fault, if it does.
fn find(mutant: Mutant, seed: u64) -> Option<String> {
    sim::plant(Some(mutant));
    // What an assertion finds is found.
    let found = match panic::catch_unwind(AssertUnwindSafe(|| sim::run_cluster(seed, false))) {
        Ok(outcome) => outcome.violation.map(|violation| violation.to_string()),
        Err(_) => Some("an assertion".to_owned()),
    };
    sim::plant(None);
    found
}

#[test]
fn every_planted_fault_is_found() {
    let known: BTreeMap<&str, u64> = KNOWN.iter().copied().collect();
    let mut missed = Vec::new();
    for mutant in Mutant::all() {
        let Some(known) = known.get(mutant.name().as_str()) else {
            missed.push(mutant);
            continue;
        };
        let around = known.saturating_sub(AROUND)..=known + AROUND;
        let mut seeds = [*known].into_iter().chain(around);
        match seeds.find_map(|seed| Some((seed, find(mutant, seed)?))) {
            Some((seed, how)) => println!("{}: seed {seed}: {how}", mutant.name()),
            None => missed.push(mutant),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
#[ignore = "looks through a thousand seeds for each fault (MUTANT: for one), from SEED_FROM on"]
fn seeds_that_find_each_fault() {
    let wanted = std::env::var("MUTANT").unwrap_or_default();
    let is_wanted = |mutant: &Mutant| wanted.is_empty() || mutant.name() == wanted;
    for mutant in Mutant::all().filter(is_wanted) {
        let from: u64 = std::env::var("SEED_FROM").ok().and_then(|t| t.parse().ok()).unwrap_or(0);
        match (from..from + SEEDS_MAX).find_map(|seed| Some((seed, find(mutant, seed)?))) {
            Some((seed, how)) => println!("    (\"{}\", {seed}), // {how:.120}", mutant.name()),
            None => println!("    // {}: none of {SEEDS_MAX}", mutant.name()),
        }
    }
}
