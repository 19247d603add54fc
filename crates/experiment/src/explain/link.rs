//! A link, or anything else that lets through so many bytes a second, whatever the records.

use super::words::{bits, cells, number};
use super::{Cause, Explanation, Point};
use stats::patterns::{round_rate, variation};
use stats::summary::median;
use std::collections::BTreeMap;

/// How much rates may differ and still be flat: the published IBM rates differ by 8.5 %.
const FLAT_WITHIN: f64 = 0.15;
/// Over how wide a range of sizes they must be: at a tenth of the size a record's own cost shows.
const FLAT_OVER: f64 = 10.0;
/// Distinct sizes that it takes.
const FLAT_SIZES: usize = 3;
/// Cells at one round rate that it takes: one alone is chance once in fourteen.
const ROUND_CELLS: usize = 2;

/// MiB/s of values that a cell moved.
fn mib_per_s(point: &Point) -> Option<f64> {
    let given = point.metric("mib_per_s").or_else(|| point.metric("fetch_mib_per_s"));
    let counted = || {
        let size = f64::from(point.workload.record_bytes);
        Some(point.metric("throughput")? * size / 1_048_576.0)
    };
    given.or_else(counted).filter(|rate| *rate > 0.0)
}

/// A cap on bytes: rates that are flat over sizes, or at one round number of bits in several cells.
pub(super) fn cap(points: &[Point]) -> Option<Explanation> {
    let moved: Vec<(&Point, f64)> = points
        .iter()
        .filter(|point| !point.reached_its_offer())
        .filter_map(|point| Some((point, mib_per_s(point)?)))
        .collect();
    flat(&moved).or_else(|| round(&moved))
}

/// Each size counts by its fastest cell: what else was varied may have slowed the others.
fn flat(moved: &[(&Point, f64)]) -> Option<Explanation> {
    let mut fastest: BTreeMap<u32, f64> = BTreeMap::new();
    for (point, rate) in moved.iter().filter(|(point, _)| point.workload.record_bytes > 0) {
        let best = fastest.entry(point.workload.record_bytes).or_insert(*rate);
        *best = best.max(*rate);
    }
    let (smallest, largest) = (*fastest.keys().next()?, *fastest.keys().next_back()?);
    let times = f64::from(largest) / f64::from(smallest);
    let rates: Vec<f64> = fastest.into_values().collect();
    let differ = variation(&rates)?;
    if rates.len() < FLAT_SIZES || times < FLAT_OVER || differ > FLAT_WITHIN {
        return None;
    }
    let cap = median(&rates)?;
    let of_link = round_rate(cap * 8.0 * 1_048_576.0)
        .map(|rate| format!(", within 2 % of {}", bits(rate)))
        .unwrap_or_default();
    let sentence = format!(
        "From {} to {} bytes a record, {} times, throughput in bytes stays within {} %: about {} MiB/s{of_link}. \
         Something passes so many bytes a second, whatever the records: a link, a file system or a copy, not the \
         cost of a record.",
        number(f64::from(smallest)),
        number(f64::from(largest)),
        number(times),
        number(100.0 * differ),
        number(cap),
    );
    let numbers = [("mib_per_s", cap), ("differ", differ), ("size_range", times)];
    let all: Vec<&Point> = moved.iter().map(|(point, _)| *point).collect();
    Some(Explanation::new(Cause::LinkCap, &all, sentence, &numbers))
}

/// The round rate that most cells are at.
fn round(moved: &[(&Point, f64)]) -> Option<Explanation> {
    let in_bits = |mib_per_s: f64| mib_per_s * 8.0 * 1_048_576.0;
    let fastest = moved.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let rate = round_rate(in_bits(fastest))?;
    let at: Vec<&Point> = moved
        .iter()
        .filter(|(_, moved)| round_rate(in_bits(*moved)) == Some(rate))
        .map(|(point, _)| *point)
        .collect();
    if at.len() < ROUND_CELLS {
        return None;
    }
    let sentence = format!(
        "The fastest cell moves {} MiB/s of values, {}; {} of {} are within 2 % of {}, and none is faster: what a \
         link of that rate lets through.",
        number(fastest),
        bits(in_bits(fastest)),
        at.len(),
        cells(moved.len()),
        bits(rate)
    );
    let numbers = [("mib_per_s", fastest), ("link_bits_per_s", rate)];
    Some(Explanation::new(Cause::LinkCap, &at, sentence, &numbers))
}
