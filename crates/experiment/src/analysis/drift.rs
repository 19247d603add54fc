//! Whether the machine changed while all was run: the canary, one fixed cell at the start, in the middle and at the
//! end.

use super::cells::groups;
use super::{DRIFT_LIMIT, Drift};
use crate::round::{Purpose, Round};
use stats::summary::median;

/// What is watched: the first of these that the canary measures. The CPU of brokers is not known of those that run
/// elsewhere.
const WATCHED: &[&str] =
    &["broker_cpu_s_per_mrec", "client_cpu_s_per_mrec", "throughput", "runtime_ms"];

/// The canary of each target, sorted by target. Nothing for a canary that ran once.
pub(crate) fn drifts(rounds: &[Round]) -> Vec<Drift> {
    let mut drifts: Vec<Drift> = groups(rounds, Purpose::Canary)
        .iter()
        .filter_map(|group| {
            let metric = WATCHED.iter().find(|metric| !group.values(metric).is_empty())?;
            let mut measured: Vec<&Round> = group.measured().collect();
            measured.sort_by_key(|round| round.order);
            let values = measured.iter().filter_map(|round| round.metrics.get(*metric)).copied();
            drift(group.target, metric, values.filter(|value| *value > 0.0).collect())
        })
        .collect();
    drifts.sort_by(|a, b| a.target.cmp(&b.target));
    drifts
}

/// Medians of the thirds are compared, so that one odd round is no drift where there are many.
fn drift(target: &str, metric: &str, values: Vec<f64>) -> Option<Drift> {
    let parts = values.len().min(3);
    let medians: Vec<f64> = (0..parts)
        .filter_map(|i| median(&values[i * values.len() / parts..(i + 1) * values.len() / parts]))
        .collect();
    let (first, last) = (*medians.first()?, *medians.last()?);
    let worst = stats::patterns::variation(&medians)?;
    (parts > 1).then(|| Drift {
        target: target.to_owned(),
        metric: metric.to_owned(),
        values,
        change: last / first - 1.0,
        worst,
        beyond: worst > DRIFT_LIMIT,
    })
}
