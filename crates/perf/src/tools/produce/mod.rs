//! `kafka-producer-perf-test`: sends records and reports rate and latency.
//!
//! Read `arguments` (what can be typed), then `sender` (what each producer does), then `tally` (what
//! is counted and how the lines are made).

pub mod arguments;
pub mod keys;
mod metrics;
pub mod payload;
mod sender;
pub mod tally;
pub mod throttle;
mod transactions;

use super::clock::Clock;
use super::console::Console;
use super::failure::ToolError;
use super::output::{self, Results, cell};
use super::producer_settings::{self, ProducerSettings};
use super::settings::Settings;
use arguments::{Arguments, Plan};
use client::producer::ProducerMetrics;
use payload::Payload;
use sender::{Job, Sender};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tally::{Finished, Tally, TallyConfig, Total, Window, total_line};

/// All that is known of a run, for its file.
#[derive(Debug, Serialize)]
pub struct Outcome {
    tool: &'static str,
    topic: String,
    producers: u32,
    /// Of the latencies that are not in microseconds by name.
    latency_unit: &'static str,
    records_failed: u64,
    total: Total,
    steady_state: Option<Total>,
    windows: Vec<Window>,
    client: ClientCounts,
    config: BTreeMap<&'static str, String>,
}

/// What the clients counted.
#[derive(Debug, Serialize)]
struct ClientCounts {
    requests: u64,
    batches: u64,
    batches_sent_again: u64,
    bytes_sent: u64,
    batch_fill: f64,
    records_per_request: f64,
    in_flight_mean: f64,
    buffer_wait_ms: f64,
}

impl ClientCounts {
    fn of(metrics: &ProducerMetrics, batch_bytes: usize) -> ClientCounts {
        ClientCounts {
            requests: metrics.requests,
            batches: metrics.batches,
            batches_sent_again: metrics.batches_sent_again,
            bytes_sent: metrics.bytes_sent,
            batch_fill: metrics.batch_fill(batch_bytes),
            records_per_request: metrics.records_per_request(),
            in_flight_mean: metrics.in_flight_mean(),
            buffer_wait_ms: metrics.blocked.as_secs_f64() * 1000.0,
        }
    }
}

impl Results for Outcome {
    const COLUMNS: &'static [&'static str] = &[
        "kind",
        "end_ms",
        "records",
        "records_per_sec",
        "mb_per_sec",
        "latency_avg",
        "latency_max",
        "latency_p50",
        "latency_p95",
        "latency_p99",
        "latency_p999",
        "latency_p50_us",
        "latency_p99_us",
        "latency_max_us",
    ];

    fn rows(&self) -> Vec<Vec<String>> {
        let mut rows: Vec<_> = self.windows.iter().map(window_row).collect();
        rows.push(total_row("total", &self.total));
        rows.extend(self.steady_state.iter().map(|total| total_row("steady_state", total)));
        rows
    }
}

fn window_row(window: &Window) -> Vec<String> {
    let kind = if window.steady_state { "steady_state_window" } else { "window" };
    let mut row = vec![
        kind.to_owned(),
        window.end_ms.to_string(),
        window.records.to_string(),
        cell(window.records_per_sec),
        cell(window.mb_per_sec),
        cell(window.latency_avg),
        window.latency_max.to_string(),
    ];
    row.resize(Outcome::COLUMNS.len(), String::new());
    row
}

fn total_row(kind: &str, total: &Total) -> Vec<String> {
    let mut row = vec![
        kind.to_owned(),
        total.elapsed_ms.to_string(),
        total.records.to_string(),
        cell(total.records_per_sec),
        cell(total.mb_per_sec),
        cell(total.latency_avg),
        total.latency_max.to_string(),
    ];
    row.extend(total.latency_percentiles.iter().map(u64::to_string));
    let us = total.latency_us;
    row.extend(
        us.map_or_else(Vec::new, |us| [us.p50, us.p99, us.max].map(|v| v.to_string()).into()),
    );
    row.resize(Outcome::COLUMNS.len(), String::new());
    row
}

/// Runs the tool with what was typed.
pub fn run(arguments: &Arguments, console: &Arc<Console>) -> Result<(), ToolError> {
    let plan = arguments.plan(console)?;
    plan.outputs.check()?;
    let payload = Payload::open(&plan.source, console)?;
    let settings = Settings::new(plan.properties.clone());
    let producer = ProducerSettings::read(&settings, console)?;
    let cluster = settings.cluster()?;
    let clock = Clock::start();
    let tally = Arc::new(Mutex::new(Tally::new(
        tally_config(&plan),
        clock,
        payload.clone(),
        console.clone(),
    )));
    let job = |index| Job {
        index,
        plan: plan.clone(),
        payload: payload.clone(),
        producer: producer.clone(),
        cluster: cluster.clone(),
        clock,
        tally: tally.clone(),
        console: console.clone(),
    };
    let mut senders = Vec::new();
    for index in 0..plan.producers {
        senders.push(Sender::spawn(job(index))?);
    }
    senders.iter_mut().try_for_each(Sender::connected)?;
    if plan.warmup_records > 0 {
        console.line(format_args!(
            "Warmup first {} records. Steady state results will print after the complete test \
             summary.",
            plan.warmup_records
        ));
    }
    let start = Instant::now();
    lock(&tally).restart(clock.us(start));
    senders.iter_mut().for_each(|sender| sender.start(start));
    let metrics = senders.into_iter().map(Sender::join).collect::<Result<Vec<_>, _>>()?;
    let finished = lock(&tally).finish(clock.us(Instant::now()));
    let metrics = metrics.iter().fold(ProducerMetrics::default(), |all, one| all.plus(one));
    report(&plan, &producer, &metrics, finished, console)
}

fn lock(tally: &Mutex<Tally>) -> std::sync::MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

fn tally_config(plan: &Plan) -> TallyConfig {
    TallyConfig {
        records: plan.records,
        warmup_records: plan.warmup_records,
        reporting_interval_ms: plan.reporting_interval_ms,
        unit: plan.outputs.unit,
        histogram: plan.outputs.wants_histogram(),
    }
}

fn report(
    plan: &Plan,
    producer: &ProducerSettings,
    metrics: &ProducerMetrics,
    finished: Finished,
    console: &Console,
) -> Result<(), ToolError> {
    let unit = plan.outputs.unit;
    console.line(total_line(&finished.total, false, unit));
    if let Some(steady) = &finished.steady_state {
        console.line(total_line(steady, true, unit));
    }
    if plan.print_metrics {
        let client_id = plan.properties.get("client.id").map_or("", String::as_str);
        let elapsed_ms = finished.total.elapsed_ms;
        metrics::table(metrics, &producer.config, client_id, elapsed_ms).print(console);
    }
    if let Some((path, histogram)) = plan.outputs.histogram.as_ref().zip(finished.histogram) {
        output::write_histogram(path, &histogram)?;
    }
    let Some((form, path)) = &plan.outputs.file else { return Ok(()) };
    let outcome = Outcome {
        tool: "kafka-producer-perf-test",
        topic: plan.topic.clone(),
        producers: plan.producers,
        latency_unit: unit.name(),
        records_failed: finished.failed,
        total: finished.total,
        steady_state: finished.steady_state,
        windows: finished.windows,
        client: ClientCounts::of(metrics, producer.config.batch_bytes),
        config: producer_settings::effective(producer).into_iter().collect(),
    };
    output::write_results(*form, path, &outcome)
}
