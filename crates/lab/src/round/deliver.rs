//! Records get to a subscriber: stored ones are caught up with, live ones are followed. By pull, until there is a
//! gateway to push.

use anyhow::{Result, bail};
use experiment::workload::Delivery;
use perf::load;

use super::ground::Ground;
use super::measured::Measured;
use super::{consume, translate};
use crate::meter::Meter;

/// Runs the round.
pub fn run(ground: &Ground<'_>) -> Result<Measured> {
    match (ground.workload.delivery, ground.workload.live) {
        (Delivery::Pull, false) => consume::run(ground),
        (Delivery::Pull, true) => follow(ground),
        (Delivery::Sse | Delivery::WebSocket, _) => bail!("no target can push yet"),
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
    let meter = Meter::start(&ground.pids)?;
    let (produced, consumed) = load::both(&produce, &consume, &ground.stop)?;
    let used = meter.used()?;
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
    used.into_metrics(consumed.records, consumed.bytes, &mut measured.metrics);
    measured.warnings.extend(produced.errors.into_iter().chain(consumed.errors));
    if ground.verify {
        measured.judge(&consumed.findings.verdict(&produced.acknowledgements));
    }
    Ok(measured)
}
