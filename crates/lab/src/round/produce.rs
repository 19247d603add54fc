//! Producers send; consumers may read beside them. Also Kafka's own tool as the driver.

use anyhow::{Context, Result, bail, ensure};
use experiment::explain::{capacity_records, predicted_p50_ms};
use experiment::workload::Workload;
use perf::load::{self, ProduceReport};

use super::ground::Ground;
use super::measured::{Measured, VERIFY_IDLE};
use super::tool::{self, Summary, Whose};
use super::translate;
use crate::meter::disk_per_byte;

/// How often the tool fills the client's buffer when no rate is offered: twice to warm up, four times to be counted.
const BUFFERS: f64 = 6.0;
/// And no fewer bytes than these: a Java runtime is still cold after the first ten megabytes.
const TOOL_BYTES_MIN: f64 = 100e6;
/// Most records that the tool is asked for in a round without a number of records.
const TOOL_RECORDS_MAX: u64 = 20_000_000;

/// Runs the round.
pub fn run(ground: &Ground<'_>) -> Result<Measured> {
    match ground.workload.driver.as_str() {
        "highwater" => ours(ground),
        "tool" => by_tool(ground, Whose::Ours),
        "java" => by_tool(ground, Whose::Kafkas),
        other => bail!("there is no driver {other}: write highwater, tool or java"),
    }
}

fn ours(ground: &Ground<'_>) -> Result<Measured> {
    let workload = ground.workload;
    let produce = translate::producers(
        &ground.clients_at,
        &ground.topics,
        workload,
        ground.seed,
        ground.stamp(),
    )?;
    let meter = ground.meter()?;
    let mut measured = Measured::default();
    let report = if workload.consumers == 0 {
        load::produce(&produce, &ground.stop)?
    } else {
        let group = format!("{}-consumers", ground.topics[0]);
        let consume = translate::consumers(
            &ground.clients_at,
            &ground.topics,
            workload,
            &group,
            ground.stamp(),
        );
        let (report, consumed) = load::both(&produce, &consume, &ground.stop)?;
        measured.put("consumed_per_s", consumed.records as f64 / report.elapsed.as_secs_f64());
        measured.put("lag_records", consumed.lag_records as f64);
        measured.put("e2e_p50_ms", consumed.end_to_end.value_at_quantile(0.5) as f64 / 1e3);
        measured.put("e2e_p99_ms", consumed.end_to_end.value_at_quantile(0.99) as f64 / 1e3);
        measured.keep("end-to-end", &consumed.end_to_end);
        measured.warnings.extend(consumed.errors);
        report
    };
    let used = meter.used()?;
    ensure!(report.acknowledged > 0, "nothing was acknowledged: {}", report.errors.join("; "));
    record(&mut measured, ground, &report);
    // CPU is counted from the first record of the warm-up on, and so are these.
    let all_bytes = mean_bytes(&report) * report.acknowledged as f64;
    used.into_metrics(report.acknowledged, all_bytes as u64, &mut measured.metrics);
    if let Some(share) = disk_per_byte(&ground.data_folders, &ground.topics, all_bytes as u64) {
        measured.put("disk_bytes_per_byte", share);
    }
    if ground.verify {
        let verdict = load::verify(&ground.brokers_at, &report.acknowledgements, VERIFY_IDLE);
        measured.judge(&verdict.context("the records could not be read back")?);
    }
    Ok(measured)
}

fn mean_bytes(report: &ProduceReport) -> f64 {
    report.bytes as f64 / report.records.max(1) as f64
}

fn record(measured: &mut Measured, ground: &Ground<'_>, report: &ProduceReport) {
    let workload = ground.workload;
    (measured.records, measured.bytes) = (report.records, report.bytes);
    measured.put_rates(report.records_per_s, report.bytes_per_s);
    per_each(measured, workload, report.records_per_s);
    measured.put("runtime_ms", report.elapsed.as_secs_f64() * 1e3);
    let as_tool = if workload.as_tool { &report.service } else { &report.response };
    measured.put_latencies("", as_tool);
    measured.put("response_p99_ms", report.response.value_at_quantile(0.99) as f64 / 1e3);
    measured.put("service_p50_ms", report.service.value_at_quantile(0.5) as f64 / 1e3);
    measured.put("service_p99_ms", report.service.value_at_quantile(0.99) as f64 / 1e3);
    measured.put("delay_p99_ms", report.delay.value_at_quantile(0.99) as f64 / 1e3);
    for (name, histogram) in [
        ("response", &report.response),
        ("service", &report.service),
        ("delay", &report.delay),
        ("blocked", &report.blocked),
    ] {
        measured.keep(name, histogram);
    }
    measured.put("failed", report.failed as f64);
    measured.put("blocked_ms", report.metrics.blocked.as_secs_f64() * 1e3);
    measured.put("requests", report.metrics.requests as f64);
    measured.put("records_per_request", report.metrics.records_per_request());
    measured.put("batch_fill", report.batch_fill);
    measured.put("in_flight_used", report.metrics.in_flight_mean());
    measured.put("client_busy_share", report.busiest_share);
    measured.warnings.extend(report.errors.iter().cloned());
    // The queue is the client's: what waits outside of it, behind its turn, is not in the law.
    let p50_ms = report.service.value_at_quantile(0.5) as f64 / 1e3;
    law(measured, workload, report.records_per_s, p50_ms);
}

fn per_each(measured: &mut Measured, workload: &Workload, records_per_s: f64) {
    measured.put("throughput_per_broker", records_per_s / f64::from(workload.brokers.max(1)));
    measured.put("throughput_per_producer", records_per_s / f64::from(workload.producers.max(1)));
    if workload.offered > 0.0 {
        measured.put("reached_share", records_per_s / workload.offered);
    }
}

/// Below this share of what is offered a producer is not held back by its rate.
const SATURATED_SHARE: f64 = 0.98;

/// What the client's queue alone predicts for a producer that is not held back.
fn law(measured: &mut Measured, workload: &Workload, records_per_s: f64, p50_ms: f64) {
    if workload.offered > 0.0 && records_per_s >= SATURATED_SHARE * workload.offered {
        return;
    }
    let per_producer = records_per_s / f64::from(workload.producers.max(1));
    let sizes = (
        workload.buffer_bytes as f64,
        f64::from(workload.batch_bytes),
        f64::from(workload.record_bytes),
    );
    let predicted = predicted_p50_ms(sizes.0, sizes.1, sizes.2, per_producer);
    if workload.record_bytes > 0 {
        measured.put("predicted_p50_ms", predicted);
        measured.put("law_ratio", p50_ms / predicted);
    }
}

/// How many records the tool is asked for: as the cell says, as many as the rate gives, or, as fast as it can, the
/// client's buffer a few times over, so that most records have met a full one.
fn tool_records(workload: &Workload) -> u64 {
    let wanted = if workload.records > 0 {
        workload.records as f64
    } else if workload.offered > 0.0 {
        workload.offered * workload.seconds
    } else {
        let enough = TOOL_BYTES_MIN / f64::from(workload.record_bytes.max(1));
        enough.max(BUFFERS * buffer_records(workload))
    };
    (wanted as u64).clamp(1, TOOL_RECORDS_MAX)
}

/// How many records the client's buffer holds.
fn buffer_records(workload: &Workload) -> f64 {
    let sizes = (workload.buffer_bytes as f64, f64::from(workload.batch_bytes));
    capacity_records(sizes.0, sizes.1, f64::from(workload.record_bytes))
}

/// The rate at which the broker took records while `summary`'s were sent as fast as it let them be. The tool's clock
/// for those behind the warm-up starts when the first of them is handed over, to a buffer that is full of others, and
/// ends when all are acknowledged: a buffer more was taken in that time than is counted.
fn rate_behind_a_full_buffer(summary: &Summary, workload: &Workload) -> f64 {
    let counted = summary.records as f64;
    summary.throughput * (counted + buffer_records(workload)) / counted
}

fn by_tool(ground: &Ground<'_>, whose: Whose) -> Result<Measured> {
    let workload = ground.workload;
    let topic = ground.topics.first().context("a round has a topic")?;
    ensure!(workload.producers <= 1 && workload.consumers == 0, "the tool is one producer");
    let records = tool_records(workload);
    let meter = ground.meter()?;
    let told = tool::produce(whose, &ground.clients_at, topic, workload, records)?;
    let summary = told.summary;
    let used = meter.used()?;
    let mut measured = Measured { records: summary.records, ..Measured::default() };
    measured.bytes = summary.records * u64::from(workload.record_bytes);
    measured.put_rates(summary.throughput, summary.mib_per_s * 1_048_576.0);
    per_each(&mut measured, workload, summary.throughput);
    measured.put("avg_ms", summary.avg_ms);
    measured.put("max_ms", summary.max_ms);
    for (name, value) in
        ["p50_ms", "p95_ms", "p99_ms", "p999_ms"].into_iter().zip(summary.percentiles_ms)
    {
        measured.put(name, value);
    }
    let rate = if workload.offered > 0.0 {
        summary.throughput
    } else {
        rate_behind_a_full_buffer(&summary, workload)
    };
    law(&mut measured, workload, rate, summary.percentiles_ms[0]);
    // CPU is that of all records, those that warmed up too.
    used.into_metrics(records, records * u64::from(workload.record_bytes), &mut measured.metrics);
    // This process did nothing: the tool did.
    measured.put("client_cpu_s_per_mrec", told.cpu_s / records as f64 * 1e6);
    if ground.verify {
        let ends = crate::admin::end_offsets(
            &ground.brokers_at,
            topic,
            ground.partitions,
            summary.records,
        )?;
        let found: u64 = ends.iter().sum();
        // Its records carry no marks: only their number can be checked.
        if found < records {
            measured.warnings.push(format!("{records} records sent, {found} in the topic"));
        }
    }
    Ok(measured)
}
