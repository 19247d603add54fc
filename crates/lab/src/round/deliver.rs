//! Records get to a subscriber: stored ones are caught up with, live ones are followed. By pull, or pushed by a gateway in
//! front of the brokers.

use anyhow::{Result, bail, ensure};
use experiment::workload::Delivery;
use perf::load::{self, ConsumeReport, PushForm, PushLoad, PushReport};

use super::ground::Ground;
use super::measured::Measured;
use super::{consume, translate};

/// Runs the round.
pub fn run(ground: &Ground<'_>) -> Result<Measured> {
    match (ground.workload.delivery, ground.workload.live) {
        (Delivery::Pull, false) => consume::run(ground),
        (Delivery::Pull, true) => follow(ground),
        (Delivery::Sse | Delivery::WebSocket, false) => catch_up_pushed(ground),
        (Delivery::Sse | Delivery::WebSocket, true) => follow_pushed(ground),
    }
}

/// Reads what is being written.
fn follow(ground: &Ground<'_>) -> Result<Measured> {
    let workload = ground.workload;
    // End-to-end times come from the marks.
    let stamp = Some(ground.number);
    let produce =
        translate::producers(&ground.clients_at, &ground.topics, workload, ground.seed, stamp)?;
    let group = format!("{}-consumers", ground.topics[0]);
    let consume = translate::consumers(&ground.clients_at, &ground.topics, workload, &group, stamp);
    let meter = ground.meter()?;
    let (produced, consumed) = load::both(&produce, &consume, &ground.stop)?;
    let used = meter.used()?;
    let mut measured = pulled(&consumed);
    used.into_metrics(consumed.records, consumed.bytes, &mut measured.metrics);
    measured.warnings.extend(produced.errors.into_iter().chain(consumed.errors));
    if ground.verify {
        measured.judge(&consumed.findings.verdict(&produced.acknowledgements));
    }
    Ok(measured)
}

fn pulled(consumed: &ConsumeReport) -> Measured {
    let mut measured =
        Measured { records: consumed.records, bytes: consumed.bytes, ..Measured::default() };
    let elapsed_s = consumed.elapsed.as_secs_f64();
    measured.put_rates(consumed.records as f64 / elapsed_s, consumed.bytes as f64 / elapsed_s);
    measured.put("runtime_ms", elapsed_s * 1e3);
    measured.put("e2e_p50_ms", consumed.end_to_end.value_at_quantile(0.5) as f64 / 1e3);
    measured.put("e2e_p99_ms", consumed.end_to_end.value_at_quantile(0.99) as f64 / 1e3);
    measured.put_latencies("", &consumed.end_to_end);
    measured.keep("end-to-end", &consumed.end_to_end);
    measured.put("requests", consumed.fetches as f64);
    measured.put("records_per_request", consumed.records as f64 / consumed.fetches as f64);
    measured.put("fetch_p50_ms", consumed.fetch.value_at_quantile(0.5) as f64 / 1e3);
    measured
}

/// The subscribers of a round.
fn subscribers(ground: &Ground<'_>, stamp: Option<u32>) -> Result<PushLoad> {
    let [topic] = ground.topics.as_slice() else { bail!("a stream of a round has one topic") };
    Ok(PushLoad {
        form: match ground.workload.delivery {
            Delivery::WebSocket => PushForm::WebSocket { credit: ground.workload.credit.max(1) },
            Delivery::Pull | Delivery::Sse => PushForm::Events,
        },
        gateway: ground.gateway()?.to_owned(),
        topic: topic.clone(),
        partitions: ground.partitions as i32,
        subscribers: ground.workload.consumers.max(1),
        records: 0,
        idle: translate::IDLE,
        stamp,
    })
}

/// Is sent what is stored.
fn catch_up_pushed(ground: &Ground<'_>) -> Result<Measured> {
    let filled = consume::fill(ground)?;
    let load = PushLoad { records: filled.acknowledged, ..subscribers(ground, ground.stamp())? };
    let meter = ground.meter()?;
    let report = load::subscribe(&load, &ground.stop)?;
    let used = meter.used()?;
    let mut measured = pushed(ground, &report, load.records)?;
    used.into_metrics(report.records, report.bytes, &mut measured.metrics);
    if ground.verify {
        measured.judge(&report.findings.verdict(&filled.acknowledgements));
    }
    Ok(measured)
}

/// Is sent what is being written.
fn follow_pushed(ground: &Ground<'_>) -> Result<Measured> {
    let (workload, stamp) = (ground.workload, Some(ground.number));
    let produce =
        translate::producers(&ground.clients_at, &ground.topics, workload, ground.seed, stamp)?;
    let load = subscribers(ground, stamp)?;
    let meter = ground.meter()?;
    let (produced, report) = load::pushed(&produce, &load, &ground.stop)?;
    let used = meter.used()?;
    let mut measured = pushed(ground, &report, produced.acknowledged)?;
    measured.put("e2e_p50_ms", report.end_to_end.value_at_quantile(0.5) as f64 / 1e3);
    measured.put("e2e_p99_ms", report.end_to_end.value_at_quantile(0.99) as f64 / 1e3);
    measured.put_latencies("", &report.end_to_end);
    measured.keep("end-to-end", &report.end_to_end);
    used.into_metrics(report.records, report.bytes, &mut measured.metrics);
    measured.warnings.extend(produced.errors);
    if ground.verify {
        measured.judge(&report.findings.verdict(&produced.acknowledgements));
    }
    Ok(measured)
}

/// What was pushed to subscribers of whom each was to get so many records. One request each brought it.
fn pushed(ground: &Ground<'_>, report: &PushReport, wanted: u64) -> Result<Measured> {
    ensure!(
        report.records_min >= wanted || ground.stop.is_stopped(),
        "a subscriber got {} of {wanted} records, then nothing came: {}",
        report.records_min,
        report.errors.join("; ")
    );
    let mut measured =
        Measured { records: report.records, bytes: report.bytes, ..Measured::default() };
    let elapsed_s = report.elapsed.as_secs_f64();
    measured.put_rates(report.records as f64 / elapsed_s, report.bytes as f64 / elapsed_s);
    measured.put("runtime_ms", elapsed_s * 1e3);
    let requests = f64::from(ground.workload.consumers.max(1));
    measured.put("requests", requests);
    measured.put("records_per_request", report.records as f64 / requests);
    measured.put("wire_mib", report.wire_bytes as f64 / f64::from(1 << 20));
    measured.put("client_busy_share", report.busiest_share);
    measured.warnings.extend(report.errors.iter().cloned());
    Ok(measured)
}
