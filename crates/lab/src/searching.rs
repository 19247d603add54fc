//! `lab saturate`, `lab usl`, `lab advise`: experiments that choose their next cell by what they found.

use crate::say::say;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use experiment::definition::{Level, Levels};
use experiment::plan::Shape;
use experiment::seek::advise::{Advisor, Factor};
use experiment::seek::saturate::{Failing, Objective, Observation, Saturation, Search};
use experiment::workload::{Acks, Era, Workload};
use hdrhistogram::Histogram;
use perf::load::{self, ProduceReport, Stop};
use serde_json::json;

use crate::arguments::{Advise, Goal, Load, Saturate, Usl};
use crate::round::measured::Measured;
use crate::round::stage::Stage;
use crate::round::translate;
use crate::target::Cluster;
use crate::{admin, store};

/// Most records per second that are offered.
const RATE_MAX: f64 = 20e6;
/// Probes after which a search ends whatever was found.
const PROBES_MAX: usize = 60;
/// Share of the highest rate at which latencies are compared.
const LATENCY_SHARE: f64 = 0.5;

fn workload(load: &Load) -> Result<Workload> {
    let acks = match load.acks.as_str() {
        "0" => Acks::None,
        "1" => Acks::Leader,
        "all" | "-1" => Acks::All,
        other => bail!("--acks {other}: write 0, 1 or all"),
    };
    ensure!(
        load.record_size > 0 && load.partitions > 0,
        "--record-size and --partitions are above 0"
    );
    Ok(Workload {
        acks: Some(acks),
        record_bytes: load.record_size,
        partitions: load.partitions,
        era: Era::V4,
        ..Workload::default()
    })
}

fn cluster(load: &Load) -> Result<Cluster> {
    load.target.check()?;
    load.target.start(&Shape { brokers: 1, settings: Default::default() })
}

fn stage<'a>(
    cluster: &'a Cluster,
    workload: &'a Workload,
    load: &Load,
    number: u32,
    stop: &Stop,
) -> Stage<'a> {
    Stage {
        cluster,
        workload,
        name: format!("lab-search-{}-{number}", std::process::id()),
        seed: load.seed.wrapping_add(number.into()),
        number,
        verify: false,
        keep_topics: false,
        stop: stop.clone(),
    }
}

/// Finds the highest rate that keeps a promise.
pub fn saturate(typed: &Saturate, stop: &Stop) -> Result<()> {
    let objective: Objective = typed.slo.parse()?;
    let latency = latency(&objective)?;
    ensure!(
        typed.from > 0.0 && typed.from <= RATE_MAX,
        "--from is above 0 and not above {RATE_MAX}"
    );
    let base = workload(&typed.load)?;
    let cluster = cluster(&typed.load)?;
    let mut search = Search::new(objective.clone(), typed.from, RATE_MAX, PROBES_MAX);
    say!("{:<10} {:>14} {:>14} {:>10}  FOUND", "FOR", "OFFERED/S", "REACHED/S", "MS");
    let mut number = 0;
    let mut ended = Ok(());
    while let Some(probe) = search.next() {
        let workload = Workload { offered: probe.offered, seconds: probe.seconds, ..base.clone() };
        let report = match offer(&cluster, &workload, &typed.load, number, stop) {
            Ok(report) => report,
            // What was found until then is worth saying.
            Err(error) => {
                ended = Err(error.context("the search ended early"));
                break;
            }
        };
        if stop.is_stopped() {
            break;
        }
        let observation = observation(&report, &workload, &objective, latency(&report));
        let found = search.judge(&observation).map_or("holds", why);
        let purpose = format!("{:?}", probe.stage).to_lowercase();
        say!(
            "{purpose:<10} {:>14.0} {:>14.0} {:>10.3}  {found}",
            probe.offered,
            observation.achieved,
            observation.percentile_ms
        );
        search.take(&observation);
        number += 1;
    }
    let found = search.finish();
    say!("\n{}", answer(&typed.slo, &found, stop.is_stopped() || ended.is_err()));
    let probes: Vec<_> = found
        .probes
        .iter()
        .map(|(offered, ms, failing)| json!({"offered": offered, "percentile_ms": ms, "failing": failing.map(why)}))
        .collect();
    let confirmation = found.confirmation.map(|confirmation| {
        json!({"rounds": confirmation.rounds, "held": confirmation.held, "slow_share": confirmation.slow_share})
    });
    keep(
        typed.load.out.as_deref(),
        &json!({
            "slo": typed.slo, "target": typed.load.target.to_string(), "rate": found.rate,
            "confirmed": found.confirmation.is_some(), "confirmation": confirmation, "probes": probes,
        }),
    )?;
    ended
}

/// What was found, in a sentence.
fn answer(slo: &str, found: &Saturation, cut_short: bool) -> String {
    match (found.rate, found.confirmation) {
        (Some(rate), Some(by)) => format!(
            "{slo} holds up to {rate:.0} records/s: in {} rounds together {:.2} % of the records took longer, and {} of \
             the rounds hold by themselves",
            by.rounds,
            100.0 * by.slow_share,
            by.held
        ),
        (Some(rate), None) => {
            format!("{slo} held once at {rate:.0} records/s; that was not confirmed")
        }
        (None, _) if cut_short => format!("stopped before a rate was found at which {slo} holds"),
        (None, _) => format!("{slo} did not hold at any rate"),
    }
}

fn why(failing: Failing) -> &'static str {
    match failing {
        Failing::Failures => "records failed",
        Failing::NotReached => "the rate was not reached",
        Failing::TooSlow => "too slow",
        Failing::Backlog => "the backlog grew",
    }
}

/// The times that a promise is about.
fn latency(objective: &Objective) -> Result<fn(&ProduceReport) -> &Histogram<u64>> {
    let name = objective.metric.as_str();
    Ok(match name.split("_p").next() {
        Some("service") => |report| &report.service,
        Some("delay") => |report| &report.delay,
        _ if name.starts_with('p') && !name.contains("_p") => |report| &report.response,
        Some("response") => |report| &report.response,
        _ => bail!(
            "--slo {objective}: only producers run here, so promise a percentile of their times: p50, p95, p99, p99.9, \
             response_p99, service_p50, service_p99 or delay_p99"
        ),
    })
}

/// Offers a rate on a topic of its own.
fn offer(
    cluster: &Cluster,
    workload: &Workload,
    typed: &Load,
    number: u32,
    stop: &Stop,
) -> Result<ProduceReport> {
    let topic = format!("lab-search-{}-{number}", std::process::id());
    let topics = [topic];
    admin::create_topics(&cluster.bootstrap, &topics, workload, workload.partitions, 1)?;
    let load = translate::producers(&cluster.bootstrap, &topics, workload, typed.seed, None)?;
    let report = load::produce(&load, stop);
    admin::delete_topics(&cluster.bootstrap, &topics);
    Ok(report?)
}

fn observation(
    report: &ProduceReport,
    workload: &Workload,
    objective: &Objective,
    times: &Histogram<u64>,
) -> Observation {
    let promised_us = (objective.at_most_ms * 1e3) as u64;
    let in_time = times.count_between(0, promised_us);
    // What was due and never sent has no time, and kept no promise.
    Observation {
        achieved: report.records_per_s,
        percentile_ms: times.value_at_quantile(objective.share) as f64 / 1e3,
        records: times.len() + report.unsent,
        slow: times.len().saturating_sub(in_time) + report.unsent,
        failed: report.failed,
        backlog: backlog(report, workload.offered),
    }
}

/// Records due and not acknowledged at the end of each whole second.
fn backlog(report: &ProduceReport, offered: f64) -> Vec<(f64, f64)> {
    let whole = report.sending.as_secs() as usize;
    let mut acknowledged = 0;
    let mut samples = Vec::new();
    for (second, window) in report.windows.iter().take(whole).enumerate() {
        acknowledged += window.records;
        let at = (second + 1) as f64;
        samples.push((at, offered * at - acknowledged as f64));
    }
    samples
}

/// Fits the universal scalability law.
pub fn usl(typed: &Usl, stop: &Stop) -> Result<()> {
    let base = workload(&typed.load)?;
    let cluster = cluster(&typed.load)?;
    let mut points = Vec::new();
    let mut number = 0;
    say!("{:>9} {:>14}", "PRODUCERS", "RECORDS/S");
    let mut random = fastrand::Rng::with_seed(typed.load.seed);
    for _ in 0..typed.rounds {
        // Shuffled, so that a machine that changes meanwhile is no effect of the producers' number.
        let mut sizes = typed.producers.clone();
        random.shuffle(&mut sizes);
        for producers in &sizes {
            let workload =
                Workload { producers: *producers, seconds: typed.seconds, ..base.clone() };
            let performed = stage(&cluster, &workload, &typed.load, number, stop).perform();
            // A round that was cut short says nothing.
            if stop.is_stopped() {
                break;
            }
            let (measured, _) = performed?;
            let rate =
                measured.metrics.get("throughput").copied().context("nothing was measured")?;
            say!("{producers:>9} {rate:>14.0}");
            points.push((f64::from(*producers), rate));
            number += 1;
        }
    }
    let fit = match stats::usl::fit(&points, typed.load.seed) {
        Ok(fit) => fit,
        // The law needs more; what was measured is kept.
        Err(refused) => {
            let kept = json!({"target": typed.load.target.to_string(), "points": points, "refused": refused.to_string()});
            keep(typed.load.out.as_deref(), &kept)?;
            return Err(refused.into());
        }
    };
    say!(
        "\nX(N) = γN / (1 + α(N−1) + βN(N−1)), 95 % intervals; residual {:.1} %",
        fit.residual * 100.0
    );
    say!("γ {:.0} records/s  ({:.0} to {:.0})", fit.law.gamma, fit.gamma.low, fit.gamma.high);
    say!("α {:.4}  ({:.4} to {:.4})  contention", fit.law.alpha, fit.alpha.low, fit.alpha.high);
    say!("β {:.5}  ({:.5} to {:.5})  coherence", fit.law.beta, fit.beta.low, fit.beta.high);
    match fit.law.peak() {
        Some(peak) => say!(
            "N* {peak:.1}  ({:.1} to {:.1}): beyond it more producers bring less",
            fit.peak.low,
            fit.peak.high
        ),
        None => say!("N* none: more producers never bring less, as far as this shows"),
    }
    keep(
        typed.load.out.as_deref(),
        &json!({
            "target": typed.load.target.to_string(), "points": points,
            "gamma": fit.law.gamma, "alpha": fit.law.alpha, "beta": fit.law.beta, "peak": fit.law.peak(), "residual": fit.residual,
        }),
    )
}

/// Finds good producer settings.
pub fn advise(typed: &Advise, stop: &Stop) -> Result<()> {
    let mut base = workload(&typed.load)?;
    base.seconds = typed.seconds;
    if typed.goal == Goal::Durability {
        // What makes records safe is not traded for anything.
        (base.acks, base.idempotence) = (Some(Acks::All), Some(true));
    }
    let cluster = cluster(&typed.load)?;
    let metric = match typed.goal {
        Goal::Throughput | Goal::Durability => "throughput",
        Goal::Latency => "p99_ms",
    };
    let mut number = 0;
    if typed.goal == Goal::Latency {
        let (measured, _) = stage(&cluster, &base, &typed.load, number, stop).perform()?;
        base.offered =
            measured.metrics.get("throughput").copied().unwrap_or(1000.0) * LATENCY_SHARE;
        say!("offering {:.0} records/s, half of what the defaults take", base.offered);
    }
    let mut advisor = Advisor::new(metric, factors(), typed.load.seed)?;
    while let Some(levels) = advisor.next() {
        if stop.is_stopped() {
            break;
        }
        number += 1;
        let workload = with_levels(&base, &levels)?;
        let tried = stage(&cluster, &workload, &typed.load, number, stop).perform();
        if stop.is_stopped() {
            break;
        }
        if let Err(error) = &tried {
            eprintln!("{}: {error:#}", words(&levels));
        }
        let metrics = tried.ok().map(|(measured, _): (Measured, _)| measured.metrics);
        let value =
            metrics.as_ref().and_then(|metrics| metrics.get(metric)).copied().unwrap_or(f64::NAN);
        say!("{number:>4}  {value:>14.3}  {}", words(&levels));
        advisor.take(metrics);
    }
    let cut_short = advisor.next().is_some();
    let advice = advisor.finish();
    if cut_short {
        say!(
            "\nstopped after {} trials: nothing was compared with the defaults in pairs",
            advice.trials
        );
    }
    say!("\nRecommended: {}", words(&advice.best));
    if let Some(gain) = &advice.gain {
        say!(
            "{} by that of the defaults: {:.3} ({:.3} to {:.3}, {} pairs)",
            advice.goal,
            gain.ratio,
            gain.interval.low,
            gain.interval.high,
            gain.n
        );
    }
    say!("\n{:<38} {:<10} {:>8}  95 % INTERVAL", "SETTING", "LEVEL", "RATIO");
    for effect in &advice.effects {
        say!(
            "{:<38} {:<10} {:>8.3}  {:.3} to {:.3}",
            effect.factor,
            effect.level.to_string(),
            effect.ratio,
            effect.interval.low,
            effect.interval.high
        );
    }
    for sentence in &advice.because {
        say!("\n{sentence}");
    }
    keep(typed.load.out.as_deref(), &json!(advice))
}

/// The settings that are varied, by Kafka's names, which are shown, and the fields of a workload that they are.
const FIELDS: [(&str, &str); 5] = [
    ("batch.size", "batch_bytes"),
    ("linger.ms", "linger_ms"),
    ("max.in.flight.requests.per.connection", "in_flight"),
    ("buffer.memory", "buffer_bytes"),
    ("compression.type", "compression"),
];

/// What a producer may be set to; the first level of each is the default.
fn factors() -> Vec<Factor> {
    let numbers = |name: &str, levels: &[f64]| Factor {
        name: name.to_owned(),
        levels: levels.iter().map(|level| Level::Number(*level)).collect(),
    };
    let codecs = ["none", "lz4", "zstd", "snappy"].map(|codec| Level::Text(codec.to_owned()));
    vec![
        numbers("batch.size", &[16_384.0, 65_536.0, 262_144.0, 1_000_000.0]),
        numbers("linger.ms", &[5.0, 0.0, 1.0, 20.0]),
        numbers("max.in.flight.requests.per.connection", &[5.0, 1.0, 2.0]),
        numbers("buffer.memory", &[33_554_432.0, 67_108_864.0, 134_217_728.0]),
        Factor { name: "compression.type".to_owned(), levels: codecs.to_vec() },
    ]
}

fn with_levels(base: &Workload, levels: &Levels) -> Result<Workload> {
    let mut table = toml::Table::try_from(base)?;
    for (factor, level) in levels {
        let value = match level {
            Level::Flag(flag) => toml::Value::from(*flag),
            Level::Number(number) if number.fract() == 0.0 => toml::Value::from(*number as i64),
            Level::Number(number) => toml::Value::from(*number),
            Level::Text(text) => toml::Value::from(text.as_str()),
        };
        let known = FIELDS.iter().find(|(setting, _)| setting == factor);
        let (_, field) =
            known.with_context(|| format!("{factor} is not a setting of a workload"))?;
        table.insert((*field).to_owned(), value);
    }
    table.try_into().context("an advice names settings of a workload")
}

fn words(levels: &Levels) -> String {
    levels.iter().map(|(factor, level)| format!("{factor}={level}")).collect::<Vec<_>>().join(" ")
}

fn keep(out: Option<&Path>, found: &serde_json::Value) -> Result<()> {
    match out {
        Some(path) => store::write_whole(path, &serde_json::to_vec_pretty(found)?),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_of_an_advice_changes_a_workload() {
        let base = Workload::default();
        for factor in factors() {
            let changed = factor.levels.iter().filter(|level| {
                let levels = Levels::from([(factor.name.clone(), (*level).clone())]);
                with_levels(&base, &levels).unwrap() != base
            });
            assert!(changed.count() + 1 >= factor.levels.len(), "{}", factor.name);
        }
        let unknown = Levels::from([("batch_bytes".to_owned(), Level::Number(1.0))]);
        assert!(with_levels(&base, &unknown).is_err());
    }
}
