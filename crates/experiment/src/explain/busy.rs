//! Who had no more to give: the client, the machine, a neighbour, a hot processor.

use super::words::{cells, number, percent, range};
use super::{Cause, Explanation, Point};
use stats::summary::median;

/// Share of a thread's or the machine's time above which it is the limit.
const BUSY: f64 = 0.9;
/// Share of producers' time spent waiting for `buffer.memory` above which the wait is worth a sentence.
const WAITING: f64 = 0.1;
/// Share of stolen time that disturbs a measurement.
const STOLEN: f64 = 0.02;
/// Share of the clock that must be missing.
const SLOWED: f64 = 0.1;

/// What was over in less time, in milliseconds, has no shares: the kernel counts processor time in ticks of 10.
const COUNTED_MS: f64 = 200.0;

/// The points for which a share is above a limit, with it.
fn above(
    points: &[Point],
    limit: f64,
    share: impl Fn(&Point) -> Option<f64>,
) -> Option<(Vec<&Point>, Vec<f64>)> {
    let found: Vec<(&Point, f64)> = points
        .iter()
        .filter(|point| point.metric("runtime_ms").is_none_or(|time| time >= COUNTED_MS))
        .filter_map(|point| Some((point, share(point)?)))
        .filter(|(_, share)| *share > limit)
        .collect();
    (!found.is_empty()).then(|| found.into_iter().unzip())
}

fn largest(shares: &[f64]) -> f64 {
    shares.iter().copied().fold(0.0, f64::max)
}

/// The busiest thread of the client had no time left.
pub(super) fn client(points: &[Point]) -> Option<Explanation> {
    let (of, shares) = above(points, BUSY, |point| point.metric("client_busy_share"))?;
    let sentence = format!(
        "In {} of {} the client's busiest thread used {} of a processor: these rates are what the client can do, and \
         the brokers could do more.",
        of.len(),
        cells(points.len()),
        range(&shares, percent)
    );
    Some(Explanation::new(
        Cause::ClientBound,
        &of,
        sentence,
        &[("client_busy_share", largest(&shares))],
    ))
}

/// Producers waited for room in their buffer: the client could send more than was taken from it.
pub(super) fn waiting(points: &[Point]) -> Option<Explanation> {
    let (of, shares) = above(points, WAITING, |point| {
        let runtime_ms = point
            .metric("runtime_ms")
            .or_else(|| Some(1000.0 * point.workload.seconds).filter(|time| *time > 0.0))?;
        let producers = f64::from(point.workload.producers.max(1));
        Some(point.metric("blocked_ms")? / runtime_ms / producers).filter(|share| share.is_finite())
    })?;
    let sentence = format!(
        "In {} of {} producers stood still for {} of the time because buffer.memory was full: the client had more to \
         send than was taken from it, so throughput is what connection and brokers take, and latency is the wait in the \
         client.",
        of.len(),
        cells(points.len()),
        range(&shares, percent)
    );
    Some(Explanation::new(
        Cause::ClientQueue,
        &of,
        sentence,
        &[("blocked_share", largest(&shares))],
    ))
}

/// Brokers and client together used nearly all processors, or they were busy with something else besides.
pub(super) fn machine(points: &[Point], cores: f64) -> Option<Explanation> {
    let ours = |point: &Point| {
        let brokers = point.metric("broker_cpu_share")?;
        Some(brokers + client_share(point, cores).unwrap_or(0.0))
    };
    if let Some((of, shares)) = above(points, BUSY, ours) {
        let sentence = format!(
            "In {} of {} brokers and client together used {} of the machine's processors: more brokers, producers or \
             partitions cannot be faster here, and a ratio of two targets is one of their CPU time.",
            of.len(),
            cells(points.len()),
            range(&shares, percent)
        );
        let numbers = [("cpu_share", largest(&shares))];
        return Some(Explanation::new(Cause::MachineBound, &of, sentence, &numbers));
    }
    let (of, shares) = above(points, BUSY, |point| point.metric("machine_busy_share"))?;
    let of_ours: Vec<f64> = of.iter().filter_map(|point| ours(point)).collect();
    let known = if of_ours.is_empty() {
        String::new()
    } else {
        format!(", of which brokers and client {}", range(&of_ours, percent))
    };
    let sentence = format!(
        "In {} of {} the machine's processors were busy for {} of the time{known}: nothing here can be faster, and \
         what else ran on the machine made it slower.",
        of.len(),
        cells(points.len()),
        range(&shares, percent)
    );
    let numbers = [("machine_busy_share", largest(&shares))];
    Some(Explanation::new(Cause::MachineBound, &of, sentence, &numbers))
}

/// The client's CPU by what the machine has. None if the number of processors is not known.
fn client_share(point: &Point, cores: f64) -> Option<f64> {
    let used = |per_million: &str, rate: &str| {
        Some(point.metric(per_million)? / 1e6 * point.metric(rate)?)
    };
    let used_cores = used("client_cpu_s_per_mrec", "throughput")
        .or_else(|| used("client_cpu_s_per_mreq", "requests_per_s"))?;
    (cores > 0.0).then(|| used_cores / cores)
}

/// The hypervisor gave processor time to others.
pub(super) fn neighbour(points: &[Point]) -> Option<Explanation> {
    let (of, shares) = above(points, STOLEN, |point| point.metric("steal_share"))?;
    let sentence = format!(
        "In {} of {} the hypervisor took {} of the processors' time for other guests: those rounds are slower than the \
         machine is.",
        of.len(),
        cells(points.len()),
        range(&shares, |share| format!("{:.1} %", 100.0 * share))
    );
    Some(Explanation::new(
        Cause::NoisyNeighbour,
        &of,
        sentence,
        &[("steal_share", largest(&shares))],
    ))
}

/// The clock at the end of a run is lower than at its start. Of no experiment: it is about the whole run.
pub(super) fn thermal(mhz: &[f64]) -> Option<Explanation> {
    let third = mhz.len() / 3;
    let (start, end) = (median(&mhz[..third])?, median(&mhz[mhz.len() - third..])?);
    let slowed = 1.0 - end / start;
    (slowed > SLOWED).then(|| {
        let sentence = format!(
            "The processors' clock fell from {} to {} MHz while all was run, as of heat or a used-up boost: later \
             cells ran on a slower machine.",
            number(start),
            number(end)
        );
        let numbers = [("start_mhz", start), ("end_mhz", end)];
        Explanation::new(Cause::Thermal, &[], sentence, &numbers)
    })
}
