//! Partitions are chosen without a target, then for real, and the end offsets compared with what was chosen.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use perf::load::{self, Values};
use serving::choice::{Among, Chooser};

use super::ground::Ground;
use super::measured::{Measured, VERIFY_IDLE};
use super::translate;
use crate::admin;

/// How long decisions are timed at least.
const TIMED: Duration = Duration::from_millis(100);
/// Keys that are looked up again and again while decisions are timed: fewer than a cache holds.
const KEYS: usize = 4096;

/// Runs the round.
pub fn run(ground: &Ground<'_>) -> Result<Measured> {
    let workload = ground.workload;
    let mut measured = Measured::default();
    measured.put("ns_per_decision", ns_per_decision(ground)?);
    let load = translate::producers(
        &ground.clients_at,
        &ground.topics,
        workload,
        ground.seed,
        ground.stamp(),
    )?;
    let report = load::produce(&load, &ground.stop)?;
    let stopped = ground.stop.is_stopped();
    ensure!(
        report.acknowledged == workload.records || stopped,
        "{} of {} records were acknowledged: {}",
        report.acknowledged,
        workload.records,
        report.errors.join("; ")
    );
    (measured.records, measured.bytes) = (report.records, report.bytes);
    measured.put_rates(report.records_per_s, report.bytes_per_s);
    measured.put("batch_fill", report.batch_fill);
    let chosen: Vec<u64> = (0..ground.partitions as i32)
        .map(|partition| {
            report.partitions.get(&(ground.topics[0].clone(), partition)).copied().unwrap_or(0)
        })
        .collect();
    let there = admin::end_offsets(
        &ground.brokers_at,
        &ground.topics[0],
        ground.partitions,
        report.acknowledged,
    )?;
    if chosen != there {
        measured.warnings.push(format!("chosen {chosen:?}, in the topic {there:?}"));
    }
    measured.counts = there;
    put_skew(&mut measured);
    if ground.verify {
        measured.judge(&load::verify(&ground.brokers_at, &report.acknowledgements, VERIFY_IDLE)?);
    }
    Ok(measured)
}

/// How uneven the counts of a round are.
pub fn put_skew(measured: &mut Measured) {
    if let Ok(skew) = stats::counts::skew(&measured.counts) {
        measured.put("max_over_mean", skew.max_over_mean);
        measured.put("coefficient_of_variation", skew.coefficient_of_variation);
        measured.put("empty_partitions", skew.empty as f64);
    }
    if let Ok(p) = stats::counts::even_p(&measured.counts) {
        measured.put("chi_squared_p", p);
    }
}

/// Nanoseconds of one choice of a partition.
pub fn ns_per_decision(ground: &Ground<'_>) -> Result<f64> {
    let load = translate::producers(
        &ground.clients_at,
        &ground.topics,
        ground.workload,
        ground.seed,
        None,
    )?;
    let mut values = Values::new(&load.sizes, &load.keys, load.payload, ground.seed);
    let keys: Vec<(Option<Vec<u8>>, usize)> = (0..KEYS)
        .map(|_| {
            values.draw();
            (values.key().map(<[u8]>::to_vec), values.value().len())
        })
        .collect();
    let of_each = ground.partitions / ground.spread();
    let partitions: Vec<i32> = (0..of_each as i32).collect();
    let among = Among::all(&partitions);
    let mut chooser = Chooser::new(load.strategy, load.producer.batch_bytes, ground.seed);
    let (began, mut decisions) = (Instant::now(), 0u64);
    while began.elapsed() < TIMED {
        for (key, size_bytes) in &keys {
            black_box(chooser.choose(key.as_deref(), *size_bytes, among, |_| false));
        }
        decisions += KEYS as u64;
    }
    Ok(began.elapsed().as_nanos() as f64 / decisions as f64)
}
