//! From the outcomes of all threads to one report.

use super::config::ProduceLoad;
use super::consume::ConsumerOutcome;
use super::produce::ProducerOutcome;
use super::recorder::{Errors, add_to_window};
use super::report::{ConsumeReport, ProduceReport, Window, histogram};
use super::stop::Stop;
use crate::stamp::{Acknowledged, Findings};
use client::producer::ProducerMetrics;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::time::Duration;

/// Records that were acknowledged to all producers.
pub(super) fn acknowledged(outcomes: &[ProducerOutcome]) -> u64 {
    outcomes.iter().map(|outcome| outcome.recorder.acknowledged).sum()
}

/// What all producers did.
pub(super) fn produced(load: &ProduceLoad, mut outcomes: Vec<ProducerOutcome>) -> ProduceReport {
    let sum = |part: fn(&ProducerOutcome) -> u64| outcomes.iter().map(part).sum::<u64>();
    let max = |part: fn(&ProducerOutcome) -> u64| outcomes.iter().map(part).max().unwrap_or(0);
    let warmup_ns = load.warmup.as_nanos() as u64;
    let elapsed_ns = max(|o| o.recorder.last_ns).saturating_sub(warmup_ns);
    let elapsed = Duration::from_nanos(elapsed_ns);
    let seconds = elapsed.as_secs_f64();
    let (sent, refused) = (sum(|o| o.sent), sum(|o| o.refused));
    let mean_bytes = if sent == 0 { 0.0 } else { sum(|o| o.sent_bytes) as f64 / sent as f64 };
    let records = sum(|o| o.recorder.records);
    let since = sum(|o| o.recorder.acknowledged_since) as f64;
    let records_per_s = if seconds > 0.0 { since / seconds } else { 0.0 };
    // What the warm-up left behind may make it look like more than was offered.
    let records_per_s = match load.offered {
        0.0 => records_per_s,
        offered => records_per_s.min(offered),
    };
    let histograms =
        |part: fn(&ProducerOutcome) -> &Histogram<u64>| added(outcomes.iter().map(part));
    let metrics = outcomes.iter().map(|o| o.metrics);
    let metrics = metrics.fold(ProducerMetrics::default(), |all, one| all.plus(&one));
    let busiest = outcomes.iter().map(|o| o.cpu).max().unwrap_or_default();
    let mut report = ProduceReport {
        sent: sent + refused,
        acknowledged: acknowledged(&outcomes),
        failed: refused + sum(|o| o.recorder.failed),
        unsent: sum(|o| o.unsent),
        records,
        bytes: (records as f64 * mean_bytes).round() as u64,
        elapsed,
        sending: Duration::from_nanos(max(|o| o.sending_ns)),
        records_per_s,
        bytes_per_s: records_per_s * mean_bytes,
        windows: Vec::new(),
        errors: Vec::new(),
        response: histograms(|o| &o.recorder.response),
        service: histograms(|o| &o.recorder.service),
        delay: histograms(|o| &o.recorder.delay),
        blocked: histograms(|o| &o.blocked),
        batch_fill: metrics.batch_fill(load.producer.batch_bytes),
        metrics,
        busiest_share: share(busiest, elapsed),
        cpu: outcomes.iter().map(|o| o.cpu).sum(),
        partitions: BTreeMap::new(),
        acknowledgements: Acknowledged::default(),
        stopped: outcomes.iter().any(|o| o.stopped),
    };
    let mut errors = Errors::default();
    for outcome in &mut outcomes {
        add_windows(&mut report.windows, &outcome.recorder.windows);
        outcome.recorder.errors.0.iter().for_each(|error| errors.add(error));
        let mut safe = outcome.recorder.safe(load.stamp.unwrap_or_default());
        safe.sent = outcome.sent;
        if outcome.unmarked {
            safe.unmarked = safe.count();
        }
        report.acknowledgements.absorb(safe);
    }
    report.errors = errors.0;
    report.partitions = report.acknowledgements.partitions();
    report
}

/// What all consumers did.
pub(super) fn consumed(
    mut outcomes: Vec<ConsumerOutcome>,
    lag_records: u64,
    stop: &Stop,
) -> ConsumeReport {
    let sum = |part: fn(&ConsumerOutcome) -> u64| outcomes.iter().map(part).sum::<u64>();
    let max = |part: fn(&ConsumerOutcome) -> u64| outcomes.iter().map(part).max().unwrap_or(0);
    let elapsed = Duration::from_nanos(max(|o| o.last_ns));
    let busiest = outcomes.iter().map(|o| o.cpu).max().unwrap_or_default();
    let mut report = ConsumeReport {
        records: sum(|o| o.records),
        bytes: sum(|o| o.bytes),
        elapsed,
        rebalance: Duration::from_nanos(max(|o| o.assigned_ns)),
        first_record: outcomes.iter().filter_map(|o| o.first_ns).min().map(Duration::from_nanos),
        fetches: sum(|o| o.fetches),
        fetch: added(outcomes.iter().map(|o| &o.fetch)),
        end_to_end: added(outcomes.iter().map(|o| &o.end_to_end)),
        windows: Vec::new(),
        partitions: BTreeMap::new(),
        findings: Findings::default(),
        lag_records,
        busiest_share: share(busiest, elapsed),
        cpu: outcomes.iter().map(|o| o.cpu).sum(),
        errors: Vec::new(),
        stopped: stop.is_stopped(),
    };
    let mut errors = Errors::default();
    for outcome in &mut outcomes {
        add_windows(&mut report.windows, &outcome.windows);
        outcome.errors.0.iter().for_each(|error| errors.add(error));
        report.findings.absorb(std::mem::take(&mut outcome.findings));
        for (partition, count) in &outcome.partitions {
            *report.partitions.entry(partition.clone()).or_default() += count;
        }
    }
    report.errors = errors.0;
    report
}

fn added<'a>(histograms: impl Iterator<Item = &'a Histogram<u64>>) -> Histogram<u64> {
    histograms.fold(histogram(), |mut all, one| {
        all.add(one).expect("all histograms have the same bounds");
        all
    })
}

fn add_windows(all: &mut Vec<Window>, some: &[Window]) {
    for (second, window) in some.iter().enumerate() {
        add_to_window(all, second, window.records, window.response_us_max);
    }
}

fn share(cpu: Duration, elapsed: Duration) -> f64 {
    if elapsed.is_zero() { 0.0 } else { cpu.as_secs_f64() / elapsed.as_secs_f64() }
}
