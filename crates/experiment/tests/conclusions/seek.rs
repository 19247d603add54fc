//! Searches on simulated systems whose answer is known.

use crate::simulated::normal;
use experiment::definition::{Level, Levels};
use experiment::seek::advise::{Advice, AdviseError, Advisor, Factor, Metrics};
use experiment::seek::enough;
use experiment::seek::saturate::{
    Failing, Objective, Observation, Probe, Saturation, Search, Stage,
};

/// A queue with one server: latency rises as the offered rate nears what it can do, and beyond that the backlog
/// grows. Now and then it stands still.
struct Server {
    capacity: f64,
    /// Relative spread of the capacity from probe to probe.
    spread: f64,
    /// Stalls per second, of [`STALL_MS`] each.
    stalls: f64,
    rng: fastrand::Rng,
}

const STALL_MS: f64 = 100.0;

impl Server {
    fn new(capacity: f64, spread: f64, stalls: f64, seed: u64) -> Server {
        Server { capacity, spread, stalls, rng: fastrand::Rng::with_seed(seed) }
    }

    /// Share of records that take longer, without stalls: 1 % take 2 ms when idle, 10 ms at nine tenths of the
    /// capacity.
    fn slow_share(&self, offered: f64, capacity: f64, at_most_ms: f64) -> f64 {
        let busy = (offered / capacity).min(0.999);
        let p99_ms = 1.0 + 0.9 / (1.0 - busy);
        0.01_f64.powf(at_most_ms / p99_ms)
    }

    /// The same in the long run, stalls included.
    fn slow_share_ever(&self, offered: f64, at_most_ms: f64) -> f64 {
        let stalled = self.stalls * (STALL_MS - at_most_ms) / 1000.0;
        self.slow_share(offered, self.capacity, at_most_ms) + stalled
    }

    fn serve(&mut self, probe: Probe, objective: &Objective) -> Observation {
        let (offered, seconds, at_most_ms) = (probe.offered, probe.seconds, objective.at_most_ms);
        let capacity = self.capacity * (self.spread * normal(&mut self.rng)).exp();
        let grows = (offered - capacity).max(0.0);
        let tenths = 0..(10.0 * seconds) as u32;
        let stalls = tenths.filter(|_| self.rng.f64() < self.stalls / 10.0).count() as f64;
        let stalled = stalls * (STALL_MS - at_most_ms).max(0.0) / 1000.0 / seconds;
        let slow = (self.slow_share(offered, capacity, at_most_ms) + stalled).min(1.0);
        let records = offered * seconds;
        Observation {
            achieved: offered.min(capacity),
            percentile_ms: if slow <= 1.0 - objective.share + 1e-12 { 0.9 } else { 1.1 }
                * at_most_ms,
            records: records as u64,
            slow: (records * slow) as u64,
            failed: 0,
            backlog: (0..10)
                .map(|i| f64::from(i) * seconds / 10.0)
                .map(|at| (at, 50.0 + grows * at + normal(&mut self.rng)))
                .collect(),
        }
    }
}

fn search(server: &mut Server, slo: &str, start: f64, max: f64) -> Saturation {
    let objective: Objective = slo.parse().expect("a promise");
    let mut search = Search::new(objective.clone(), start, max, 100);
    while let Some(probe) = search.next() {
        search.take(&server.serve(probe, &objective));
    }
    search.finish()
}

#[test]
fn the_rate_is_found_within_three_percent_and_confirmed() {
    // The 99th percentile is 10 ms at 90,000 records per second.
    for start in [100.0, 1000.0, 80_000.0, 3_000_000.0] {
        let found = search(&mut Server::new(100_000.0, 0.0, 0.0, 1), "p99<=10ms", start, 1e9);
        let rate = found.rate.expect("it holds somewhere");
        assert!((87_000.0..=90_000.0).contains(&rate), "{rate} from {start}");
        let confirmation = found.confirmation.expect("nothing is in its way");
        assert_eq!((confirmation.rounds, confirmation.held), (3, 3));
        assert!(confirmation.slow_share <= 0.01);
        let (beyond, failing) = found.beyond.expect("it fails somewhere");
        assert!(beyond > rate && beyond / rate <= 1.031, "{beyond}");
        assert_eq!(failing, Failing::TooSlow);
        // Behind the three that confirm it are those that try what failed once more.
        let last: Vec<_> = found.probes.iter().rev().skip(3).take(3).collect();
        assert!(last.iter().all(|(offered, _, failing)| *offered == rate && failing.is_none()));
    }
}

#[test]
fn a_promise_that_never_breaks_ends_at_what_the_server_can_do() {
    let found = search(&mut Server::new(100_000.0, 0.0, 0.0, 1), "p50<=10s", 1000.0, 1e9);
    let rate = found.rate.expect("it holds");
    // 99 % of what is offered is enough, but a growing backlog is not.
    assert!((97_000.0..=100_100.0).contains(&rate), "{rate}");
    assert!(matches!(found.beyond, Some((_, Failing::Backlog | Failing::NotReached))), "{found:?}");
}

#[test]
fn a_server_that_wavers_and_stalls_gets_an_honest_rate() {
    // Stalls in one second of fifty or twenty: nearly half of what the promise allows is gone by them, and a quarter of
    // the probes has one.
    for (spread, stalls) in [(0.01, 0.02), (0.03, 0.02), (0.01, 0.05)] {
        let mut broken = 0;
        for seed in 0..15 {
            let mut server = Server::new(100_000.0, spread, stalls, seed);
            let found = search(&mut server, "p99<=10ms", 1000.0, 1e9);
            let rate = found.rate.expect("it holds somewhere");
            assert!(found.confirmation.is_some(), "seed {seed}, {stalls} stalls: {found:?}");
            assert!(
                (80_000.0..=92_500.0).contains(&rate),
                "{rate} with seed {seed}, {stalls} stalls"
            );
            broken += usize::from(server.slow_share_ever(rate, 10.0) > 0.015);
        }
        assert!(broken <= 2, "{broken} of 15 break the promise with {stalls} stalls");
    }
}

#[test]
fn a_server_that_breaks_the_promise_at_any_rate_is_not_confirmed() {
    // Three stalls of a tenth of a second in ten seconds, or five: 2.7 % of the records and more are too late.
    for stalls in [0.3, 0.5] {
        let confirmed: Vec<u64> = (0..15)
            .filter(|seed| {
                let mut server = Server::new(100_000.0, 0.01, stalls, *seed);
                search(&mut server, "p99<=10ms", 1000.0, 1e9).confirmation.is_some()
            })
            .collect();
        assert!(confirmed.is_empty(), "{stalls} stalls with seeds {confirmed:?}");
    }
}

/// What is observed of a server that is fast, or too slow.
fn observed(probe: Probe, is_slow: bool) -> Observation {
    let mut server = Server::new(1e9, 0.0, 0.0, 1);
    let mut observation = server.serve(probe, &"p99<=10ms".parse().expect("a promise"));
    observation.backlog = (0..10).map(|at| (f64::from(at), 50.0)).collect();
    if is_slow {
        observation.percentile_ms = 30.0;
        observation.slow = (0.045 * observation.records as f64) as u64;
    }
    observation
}

/// A search whose highest rate is its first, so that it is being confirmed behind one probe that held.
fn confirming() -> Search {
    let mut search = Search::new("p99<=10ms".parse().expect("a promise"), 1000.0, 1000.0, 100);
    let first = search.next().expect("a probe");
    search.take(&observed(first, false));
    search
}

#[test]
fn one_slow_round_of_three_asks_for_more_and_two_refute() {
    let mut search = confirming();
    // 4.5 % of the records of one round are too many among three and among four, not among five.
    for is_slow in [false, true, false, false, false] {
        let probe = search.next().expect("a probe");
        assert_eq!((probe.stage, probe.offered), (Stage::Confirm, 1000.0));
        search.take(&observed(probe, is_slow));
    }
    assert_eq!(search.next(), None);
    let confirmation = search.finish().confirmation.expect("confirmed");
    assert_eq!((confirmation.rounds, confirmation.held), (5, 4));
    assert!((confirmation.slow_share - 0.009).abs() < 1e-4, "{confirmation:?}");

    let mut search = confirming();
    for _ in 0..2 {
        let probe = search.next().expect("a probe");
        search.take(&observed(probe, true));
    }
    let lower = search.next().expect("a lower rate");
    assert_eq!(lower.stage, Stage::Confirm);
    assert!((lower.offered - 1000.0 / 1.03).abs() < 1e-9);
}

#[test]
fn a_record_that_fails_refutes_at_once() {
    let mut search = confirming();
    let probe = search.next().expect("a probe");
    search.take(&Observation { failed: 1, ..observed(probe, false) });
    assert!(search.next().expect("a lower rate").offered < 1000.0);
}

#[test]
fn confirming_rounds_are_twice_as_long() {
    let search = confirming();
    assert!((search.next().expect("a probe").seconds - 20.0).abs() < 1e-9);
}

#[test]
fn the_highest_rate_that_may_be_offered_ends_the_search() {
    let found = search(&mut Server::new(1e9, 0.0, 0.0, 1), "p99<=10ms", 1000.0, 50_000.0);
    assert_eq!((found.rate, found.beyond), (Some(50_000.0), None));
    assert!(found.confirmation.is_some());
}

#[test]
fn a_server_that_always_fails_has_no_rate_and_the_search_ends() {
    let mut search = Search::new("p99<=10ms".parse().expect("a promise"), 1000.0, 1e6, 200);
    while let Some(probe) = search.next() {
        search.take(&Observation { failed: 1, ..observed(probe, false) });
    }
    let found = search.finish();
    assert_eq!((found.rate, found.confirmation), (None, None));
    assert!(matches!(found.beyond, Some((_, Failing::Failures))));
}

#[test]
fn a_search_cut_short_gives_what_held_unconfirmed() {
    let mut server = Server::new(100_000.0, 0.0, 0.0, 2);
    let objective: Objective = "p99<=10ms".parse().expect("a promise");
    let mut search = Search::new(objective.clone(), 1000.0, 1e9, 4);
    while let Some(probe) = search.next() {
        assert_eq!(probe.stage, Stage::Ramp);
        search.take(&server.serve(probe, &objective));
    }
    let found = search.finish();
    assert_eq!((found.rate, found.confirmation), (Some(1000.0 * 1.5 * 1.5 * 1.5), None));
}

#[test]
fn probes_are_long_enough_for_their_percentile() {
    let seconds = |slo: &str, rate: f64| {
        let objective: Objective = slo.parse().expect("a promise");
        Search::new(objective, rate, 1e9, 10).next().expect("a probe").seconds
    };
    assert!((seconds("p999<=10ms", 1000.0) - 100.0).abs() < 1e-6);
    assert!((seconds("p99<=10ms", 1e6) - 5.0).abs() < 1e-9);
}

#[test]
fn what_holds_is_judged_by_all_four_conditions() {
    let search = Search::new("p99<=10ms".parse().expect("a promise"), 1000.0, 1e9, 10);
    let level: Vec<(f64, f64)> = (0..5).map(|i| (f64::from(i), 20.0)).collect();
    let growing: Vec<(f64, f64)> = (0..5).map(|i| (f64::from(i), 20.0 * f64::from(i))).collect();
    let good = Observation {
        achieved: 995.0,
        percentile_ms: 10.0,
        records: 5000,
        slow: 50,
        failed: 0,
        backlog: level,
    };
    assert_eq!(search.judge(&good), None);
    let with = |change: &dyn Fn(&mut Observation)| {
        let mut observation = good.clone();
        change(&mut observation);
        search.judge(&observation)
    };
    assert_eq!(with(&|o| o.failed = 1), Some(Failing::Failures));
    assert_eq!(with(&|o| o.achieved = 989.0), Some(Failing::NotReached));
    assert_eq!(with(&|o| o.percentile_ms = 10.1), Some(Failing::TooSlow));
    assert_eq!(with(&|o| o.percentile_ms = f64::NAN), Some(Failing::TooSlow));
    assert_eq!(with(&|o| o.backlog = growing.clone()), Some(Failing::Backlog));
    assert_eq!(with(&|o| o.backlog.clear()), Some(Failing::Backlog));
    // A pace that is rounded by less than a thousandth leaves a line as straight as a growing backlog's.
    let rounded = (0..5).map(|i| (f64::from(i), 0.5 * f64::from(i))).collect::<Vec<_>>();
    assert_eq!(with(&|o| o.backlog = rounded.clone()), None);
}

#[test]
fn promises_are_read() {
    let of = |text: &str| text.parse::<Objective>().map(|o| (o.metric, o.share, o.at_most_ms));
    assert_eq!(of("p99<=10ms"), Ok(("p99_ms".to_owned(), 0.99, 10.0)));
    assert_eq!(of("p99.9 <= 0.5 s"), Ok(("p999_ms".to_owned(), 0.999, 500.0)));
    assert_eq!(of("e2e_p50<=250us"), Ok(("e2e_p50_ms".to_owned(), 0.5, 0.25)));
    for wrong in ["p99<10ms", "p98<=10ms", "throughput<=10ms", "p99<=10", "p99<=-1ms", "max<=1ms"] {
        assert!(of(wrong).is_err(), "{wrong}");
    }
    assert_eq!("p99<=10ms".parse::<Objective>().expect("a promise").to_string(), "p99<=10ms");
}

#[test]
fn rounds_are_enough_when_they_agree_or_are_many() {
    assert!(!enough(&[100.0, 100.1, 99.9, 100.0], 20), "four are never enough");
    assert!(enough(&[100.0, 100.1, 99.9, 100.0, 100.2], 20));
    assert!(!enough(&[100.0, 120.0, 80.0, 110.0, 95.0], 20));
    assert!(enough(&[100.0, 120.0, 80.0, 110.0, 95.0], 5));
    assert!(!enough(&[0.0; 6], 20) && enough(&[0.0; 6], 6));
}

/// Factors of a producer with a known answer: a larger batch and some linger help, compression `zstd` hurts,
/// the rest does nothing.
fn factors() -> Vec<Factor> {
    let numbers = |name: &str, levels: &[f64]| Factor {
        name: name.to_owned(),
        levels: levels.iter().map(|level| Level::Number(*level)).collect(),
    };
    let texts = |name: &str, levels: &[&str]| Factor {
        name: name.to_owned(),
        levels: levels.iter().map(|level| Level::Text((*level).to_owned())).collect(),
    };
    vec![
        numbers("batch_bytes", &[16_384.0, 65_536.0, 262_144.0]),
        numbers("linger_ms", &[0.0, 5.0, 20.0]),
        texts("compression", &["none", "lz4", "zstd"]),
        numbers("in_flight", &[5.0, 1.0]),
        numbers("buffer_bytes", &[33_554_432.0, 67_108_864.0]),
    ]
}

fn throughput(levels: &Levels, spread: f64, rng: &mut fastrand::Rng) -> Metrics {
    let number = |name: &str| levels[name].number().expect("a number");
    let batch = (number("batch_bytes") / 16_384.0).powf(0.15);
    let linger = if number("linger_ms") > 0.0 { 1.2 } else { 1.0 };
    let compression = match levels["compression"].to_string().as_str() {
        "zstd" => 0.6,
        _ => 1.0,
    };
    let noise = (spread * normal(rng)).exp();
    let fill = batch * linger;
    [
        ("throughput".to_owned(), 100_000.0 * batch * linger * compression * noise),
        ("records_per_request".to_owned(), 15.0 * fill),
        ("in_flight_used".to_owned(), 2.0),
    ]
    .into_iter()
    .collect()
}

fn advise(goal: &str, mut system: impl FnMut(&Levels) -> Option<Metrics>, seed: u64) -> Advice {
    let mut advisor = Advisor::new(goal, factors(), seed).expect("a search");
    while let Some(levels) = advisor.next() {
        advisor.take(system(&levels));
    }
    advisor.finish()
}

#[test]
fn the_advisor_finds_what_helps_and_says_how() {
    for seed in 0..10 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let advice = advise("throughput", |levels| Some(throughput(levels, 0.02, &mut rng)), seed);
        assert_eq!(advice.best["batch_bytes"], Level::Number(262_144.0), "{advice:?}");
        assert_ne!(advice.best["linger_ms"], Level::Number(0.0));
        assert_ne!(advice.best["compression"], Level::Text("zstd".to_owned()));
        let truth = 16_f64.powf(0.15) * 1.2;
        let gain = advice.gain.as_ref().expect("a gain");
        assert!((gain.ratio / truth - 1.0).abs() < 0.05, "{gain:?}");
        assert_eq!(advice.effects[0].level, Level::Text("zstd".to_owned()));
        assert!((0.55..0.65).contains(&advice.effects[0].ratio), "{:?}", advice.effects[0]);
        assert!(
            advice.because.iter().any(|s| s.starts_with("records_per_request: 15.000")),
            "{advice:?}"
        );
        assert!(!advice.because.iter().any(|s| s.starts_with("in_flight_used")));
        // Of 108 combinations.
        assert!(advice.trials < 60, "{} trials", advice.trials);
    }
}

#[test]
fn the_advisor_recommends_nothing_where_nothing_matters() {
    let recommended = (0..40)
        .filter(|seed| {
            let mut rng = fastrand::Rng::with_seed(*seed);
            let system = |_: &Levels| {
                let value = 8.0 * (0.05 * normal(&mut rng)).exp();
                Some([("p99_ms".to_owned(), value)].into_iter().collect())
            };
            let advice = advise("p99_ms", system, *seed);
            advice.best != advice.base
        })
        .count();
    assert!(recommended <= 4, "{recommended} of 40");
}

#[test]
fn settings_that_fail_are_never_recommended() {
    let mut rng = fastrand::Rng::with_seed(1);
    let system = |levels: &Levels| {
        let broken = levels["batch_bytes"] == Level::Number(262_144.0);
        (!broken).then(|| throughput(levels, 0.02, &mut rng))
    };
    let advice = advise("throughput", system, 1);
    assert_eq!(advice.best["batch_bytes"], Level::Number(65_536.0), "{advice:?}");
    assert!(advice.failed.iter().all(|levels| levels["batch_bytes"] == Level::Number(262_144.0)));
    let nothing = advise("throughput", |_| None, 1);
    assert_eq!((&nothing.best, nothing.gain, nothing.effects.len()), (&nothing.base, None, 0));
}

#[test]
fn durability_is_not_traded_and_goals_must_have_a_direction() {
    let acks = Factor { name: "acks".to_owned(), levels: vec![Level::Text("1".to_owned())] };
    let refused = |goal: &str, factors: Vec<Factor>| Advisor::new(goal, factors, 1).map(|_| ());
    assert_eq!(
        refused("throughput", [factors(), vec![acks]].concat()),
        Err(AdviseError::Invariant("acks".to_owned()))
    );
    assert_eq!(refused("batch_fill", factors()), Err(AdviseError::Goal("batch_fill".to_owned())));
    assert_eq!(refused("throughput", Vec::new()), Err(AdviseError::Nothing));
    assert_eq!(
        refused("throughput", [factors(), factors()].concat()),
        Err(AdviseError::Factor("batch_bytes".to_owned()))
    );
}
