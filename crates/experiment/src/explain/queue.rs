//! The law of the client's queue: an unthrottled producer's latency is its own buffer, by the rate at which that
//! drains (Little 1961). Verified on the ALI report's raw files.

use super::words::{cells, number};
use super::{Cause, Explanation, Point};
use crate::workload::Kind;

/// Bytes of a record batch before its records.
const BATCH_HEADER_BYTES: f64 = 61.0;
/// Bytes of a record in a batch beside its value: length, attributes, deltas, lengths of key and value, headers.
const RECORD_OVERHEAD_BYTES: f64 = 11.0;
/// Bytes that a record takes of the buffer beside its value where it is larger than a batch and has one of its own.
const LONE_OVERHEAD_BYTES: f64 = 72.0;
/// How far a median may be from the law to be explained by it.
const WITHIN: f64 = 0.1;

/// How many records a producer's buffer holds: `buffer_bytes` is `buffer.memory`, `batch_bytes` is `batch.size`,
/// `record_bytes` a value's size without key, all in bytes. Batches are filled with whole records and not compressed;
/// a record that fits no batch takes what it needs.
pub fn capacity_records(buffer_bytes: f64, batch_bytes: f64, record_bytes: f64) -> f64 {
    let in_batch =
        ((batch_bytes - BATCH_HEADER_BYTES) / (record_bytes + RECORD_OVERHEAD_BYTES)).floor();
    if in_batch >= 1.0 {
        (buffer_bytes / batch_bytes).floor() * in_batch
    } else {
        buffer_bytes / (record_bytes + LONE_OVERHEAD_BYTES)
    }
}

/// The median latency in milliseconds of one producer that sends as fast as it may, once its buffer is full:
/// [`capacity_records`] by `rate`, the records per second that it gets acknowledged. Infinite for a rate of 0.
pub fn predicted_p50_ms(buffer_bytes: f64, batch_bytes: f64, record_bytes: f64, rate: f64) -> f64 {
    1000.0 * capacity_records(buffer_bytes, batch_bytes, record_bytes) / rate
}

/// A cell's predicted and measured median, where the law can hold: a producer that was not held back by its offer.
fn both_ms(point: &Point) -> Option<(f64, f64)> {
    let workload = &point.workload;
    let full =
        workload.kind == Kind::Produce && workload.record_bytes > 0 && !point.reached_its_offer();
    let rate = point.metric("throughput").filter(|rate| full && *rate > 0.0)?;
    let predicted = predicted_p50_ms(
        workload.buffer_bytes as f64,
        f64::from(workload.batch_bytes),
        f64::from(workload.record_bytes),
        rate / f64::from(workload.producers.max(1)),
    );
    Some((predicted, point.metric("p50_ms")?))
}

/// Cells whose median latency is the producer's own queue.
pub(super) fn law(points: &[Point]) -> Option<Explanation> {
    let possible: Vec<(&Point, f64, f64)> = points
        .iter()
        .filter_map(|point| both_ms(point).map(|(predicted, median)| (point, predicted, median)))
        .collect();
    let obeying: Vec<&(&Point, f64, f64)> = possible
        .iter()
        .filter(|(_, predicted, median)| (median / predicted - 1.0).abs() <= WITHIN)
        .collect();
    let slowest = obeying.iter().max_by(|a, b| a.2.total_cmp(&b.2))?;
    let far = obeying.iter().map(|(_, law, median)| (median / law - 1.0).abs()).fold(0.0, f64::max);
    let sentence = format!(
        "In {} of {} that were not held back by their offer, the median latency is the producer's own queue: \
         buffer.memory by the rate at which it drains gives it within {} % (slowest cell: predicted {} ms, median {} \
         ms). It says how large the buffer is, not how fast the broker answers.",
        obeying.len(),
        cells(possible.len()),
        number(100.0 * far),
        number(slowest.1),
        number(slowest.2),
    );
    let of: Vec<&Point> = obeying.iter().map(|(point, ..)| *point).collect();
    let numbers = [("predicted_p50_ms", slowest.1), ("p50_ms", slowest.2), ("worst", far)];
    Some(Explanation::new(Cause::ClientQueue, &of, sentence, &numbers))
}
