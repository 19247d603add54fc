//! A topic is filled, then read to its end; only the reading is measured.

use anyhow::{Context, Result, ensure};
use experiment::workload::{Acks, Era, Workload};
use perf::load::{self, ProduceReport};

use super::ground::Ground;
use super::measured::Measured;
use super::translate;

/// Bytes of a MiB.
const MIB: f64 = 1_048_576.0;
/// Runs the round.
pub fn run(ground: &Ground<'_>) -> Result<Measured> {
    let filled = fill(ground)?;
    let workload = ground.workload;
    let group = format!("{}-consumers", ground.topics[0]);
    let mut load =
        translate::consumers(&ground.clients_at, &ground.topics, workload, &group, ground.stamp());
    load.records = filled.acknowledged;
    let meter = ground.meter()?;
    let report = load::consume(&load, &ground.stop)?;
    let used = meter.used()?;
    let (elapsed_s, rebalance_s) = (report.elapsed.as_secs_f64(), report.rebalance.as_secs_f64());
    let fetch_s = elapsed_s - rebalance_s;
    let mut measured =
        Measured { records: report.records, bytes: report.bytes, ..Measured::default() };
    let (records, bytes) = (report.records as f64, report.bytes as f64);
    measured.put_rates(records / elapsed_s, bytes / elapsed_s);
    measured.put("runtime_ms", elapsed_s * 1e3);
    measured.put("rebalance_ms", rebalance_s * 1e3);
    measured.put("fetch_ms", fetch_s * 1e3);
    measured.put("fetch_mib_per_s", bytes / MIB / fetch_s);
    measured.put("fetch_records_per_s", records / fetch_s);
    measured.put("requests", report.fetches as f64);
    measured.put("records_per_request", records / report.fetches as f64);
    measured.put("fetch_p50_ms", report.fetch.value_at_quantile(0.5) as f64 / 1e3);
    measured.keep("fetch", &report.fetch);
    measured.put("client_busy_share", report.busiest_share);
    used.into_metrics(report.records, report.bytes, &mut measured.metrics);
    measured.warnings.extend(report.errors);
    if ground.verify {
        measured.judge(&report.findings.verdict(&filled.acknowledgements));
    }
    Ok(measured)
}

/// Fills the round's topics past any proxy, fast, with what the workload calls for.
pub fn fill(ground: &Ground<'_>) -> Result<ProduceReport> {
    let filling = Workload {
        offered: 0.0,
        seconds: 0.0,
        warmup_seconds: 0.0,
        producers: 1,
        // What is read shall be there once and in order, whatever the first requests to a new topic meet with.
        acks: Some(Acks::All),
        idempotence: Some(true),
        era: Era::V4,
        in_flight: 5,
        linger_ms: Some(5.0),
        ..ground.workload.clone()
    };
    ensure!(filling.records > 0, "the experiment does not say how many records to read");
    let load = translate::producers(
        &ground.brokers_at,
        &ground.topics,
        &filling,
        ground.seed,
        ground.stamp(),
    )?;
    let report = load::produce(&load, &ground.stop).context("cannot fill the topic")?;
    let all = report.acknowledged == filling.records || ground.stop.is_stopped();
    ensure!(
        all,
        "the topic could not be filled: {} of {} records; {}",
        report.acknowledged,
        filling.records,
        report.errors.join("; ")
    );
    Ok(report)
}
