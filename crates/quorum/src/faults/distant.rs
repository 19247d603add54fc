//! Members that answer slowly, as on a machine with many more busy threads than cores.
//!
//! *Three new voters make a cluster and continue to decide, although each answer takes longer than a heartbeat interval.*

use super::slow::{plant, simulate};
use super::world::{Weather, check_logs};
use super::{Cluster, Losses, Mutant, Program, ask, begin, create, run_paused, topic};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Answers take 0.27 to 0.34 s: more than the 0.24 s between two heartbeats.
const SLOW: Weather = Weather { delay_min_ms: 135, delay_ms: 170, ..Weather::FINE };
/// Answers take 0.4 to 0.5 s: most elections need several rounds.
const VERY_SLOW: Weather = Weather { delay_min_ms: 200, delay_ms: 250, ..Weather::FINE };
/// The longest time until there is a cluster.
const BEGIN_MAX: Duration = Duration::from_secs(30);
/// The longest time without a decision afterwards.
const GAP_MAX: Duration = Duration::from_secs(10);
/// Decisions that are made afterwards.
const DECISIONS: u64 = 20;
/// Pause between two decisions: several heartbeats, which alone keep the leader in office.
const PAUSE: Duration = Duration::from_secs(2);
const SEEDS: std::ops::Range<u64> = 0..12;

async fn run(seed: u64, weather: Weather, mutant: Option<Mutant>) -> Vec<String> {
    simulate(seed);
    plant(mutant);
    let program = Program {
        seed,
        voters: 3,
        disks_lie: false,
        losses: Losses::None,
        mutant,
        snapshot_entries: 5000,
    };
    let cluster = Cluster::in_weather(program, weather).await;
    if timeout(BEGIN_MAX, begin(&cluster)).await.is_err() {
        return vec![format!("no cluster after {BEGIN_MAX:?}")];
    }
    let mut found = Vec::new();
    for number in 0..DECISIONS {
        sleep(PAUSE).await;
        let request = create(topic(&format!("d{number}"), (1 << 51) | number, 1), false);
        if timeout(GAP_MAX, ask(&cluster.world, &request)).await.is_err() {
            found.push(format!("decision {number} was not made in {GAP_MAX:?}"));
        }
    }
    check_logs(&cluster.world).await;
    found.extend(cluster.violations());
    found
}

fn simulate_one(seed: u64, weather: Weather, mutant: Option<Mutant>) -> Vec<String> {
    let found = run_paused(seed, move || run(seed, weather, mutant));
    found.unwrap_or_else(|_| vec!["it panicked".into()])
}

fn check(weather: Weather) {
    for seed in SEEDS {
        let found = simulate_one(seed, weather, None);
        assert!(found.is_empty(), "seed {seed}: {found:#?}");
    }
}

#[test]
fn voters_that_answer_after_the_next_heartbeat_make_a_cluster_and_decide() {
    check(SLOW);
}

#[test]
fn voters_that_answer_after_two_heartbeats_make_a_cluster_and_decide() {
    check(VERY_SLOW);
}

#[test]
fn a_constant_patience_is_found() {
    let is_found = |seed| !simulate_one(seed, SLOW, Some(Mutant::ConstantPatience)).is_empty();
    assert!(SEEDS.into_iter().any(is_found), "no seed finds it");
}
