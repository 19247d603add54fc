//! The finding as a sentence, from the figures of an overview.

use super::{BarGroup, DurabilityClass, Failover, Overview};
use crate::number;

/// Ratios this near 1 are called equal.
const EQUAL: std::ops::RangeInclusive<f64> = 0.95..=1.05;

/// The sentence; none without figures.
pub(super) fn finding(overview: &Overview) -> Option<String> {
    let first = &overview.targets.first()?.name;
    let base = overview.targets.get(1).map(|target| target.name.as_str());
    let load = overview.classes.first().map(|class| match base {
        Some(base) => compared(first, base, class),
        None => alone(first, class),
    });
    let failover = overview.failover.as_ref().map(|gaps| match &load {
        Some(_) => format!("when a broker is killed, {}", resumption(base, gaps)),
        None => format!("When a broker of {first} is killed, {}", resumption(base, gaps)),
    });
    let parts: Vec<String> = [load, failover].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; ") + ".")
}

fn ratio_of(class: &DurabilityClass, metric: &str) -> Option<f64> {
    class.bars.iter().find(|bar| bar.metric == metric).and_then(BarGroup::ratio)
}

fn compared(first: &str, base: &str, class: &DurabilityClass) -> String {
    let rate = match ratio_of(class, "throughput") {
        Some(ratio) if EQUAL.contains(&ratio) => {
            format!("{first} acknowledges as many records a second as {base}")
        }
        Some(ratio) if ratio > 1.0 => format!(
            "{first} acknowledges {} times as many records a second as {base}",
            short(ratio)
        ),
        ratio => format!(
            "{first} acknowledges {} of {base}'s records a second",
            number::percent(ratio.unwrap_or(0.0))
        ),
    };
    let synced = match class.only_first_syncs {
        true => format!(" and syncs them first, which {base} does not"),
        false => String::new(),
    };
    let share = |metric: &str, name: &str| {
        ratio_of(class, metric)
            .map(|ratio| format!("{} of the {name}", number::percent_whole(ratio)))
    };
    let costs = [share("broker_cpu_s_per_mrec", "CPU a record"), share("broker_rss_mib", "memory")];
    let costs: Vec<String> = costs.into_iter().flatten().collect();
    format!("{rate}{synced}, with {}", costs.join(" and "))
}

fn alone(first: &str, class: &DurabilityClass) -> String {
    let value = |metric: &str| {
        let bar = class.bars.iter().find(|bar| bar.metric == metric);
        bar.and_then(|bar| bar.values.first()).map_or_else(String::new, |v| number::short(*v))
    };
    let synced = if class.is_synced { ", synced to disk" } else { "" };
    format!(
        "{first} acknowledges {} records a second{synced}, at {} s of broker CPU per million and {} MiB of memory",
        value("throughput"),
        value("broker_cpu_s_per_mrec"),
        value("broker_rss_mib")
    )
}

fn resumption(base: Option<&str>, gaps: &Failover) -> String {
    let ours = gaps.median_ms.first().map_or_else(String::new, |ms| number::duration(*ms));
    match (base, gaps.median_ms.get(1)) {
        (Some(base), Some(theirs)) => {
            format!("writes resume in {ours} (median), on {base} in {}", number::duration(*theirs))
        }
        _ => format!("writes resume in {ours}"),
    }
}

/// `1.6`, `12`.
fn short(ratio: f64) -> String {
    number::fixed(ratio, if ratio < 9.95 { 1 } else { 0 })
}
