//! What factors, metrics and levels are called in tables and pictures, and their units. Names that are not listed
//! are shown as they are.

use crate::number;
use experiment::claims::Outcome;
use experiment::definition::{Level, Levels};
use experiment::round::{Durability, METRICS, Verdict};

/// A name and the unit of its values; the unit may be empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) text: String,
    pub(crate) unit: String,
}

impl Name {
    fn new(text: &str, unit: &str) -> Name {
        Name { text: text.to_owned(), unit: unit.to_owned() }
    }

    /// `p95 latency, ms`.
    pub(crate) fn with_unit(&self) -> String {
        // `records, records` says it twice.
        if self.unit.is_empty() || self.unit == self.text {
            self.text.clone()
        } else {
            format!("{}, {}", self.text, self.unit)
        }
    }
}

const FACTORS: &[(&str, &str, &str)] = &[
    ("record_bytes", "record size", "B"),
    ("record_mix", "record sizes", ""),
    ("batch_bytes", "batch.size", ""),
    ("buffer_bytes", "buffer.memory", ""),
    ("fetch_bytes", "fetch size", "B"),
    ("fetch_wait_ms", "fetch.max.wait", "ms"),
    ("linger_ms", "linger", "ms"),
    ("in_flight", "max in flight", ""),
    ("offered", "offered rate", "records/s"),
    ("offered_share", "offered, share of saturation", ""),
    ("records", "records", ""),
    ("rtt_ms", "round trip added", "ms"),
    ("replication", "replicas", ""),
    ("min_isr", "min ISR", ""),
    ("broker_strategy", "broker strategy", ""),
    ("strategy", "partition strategy", ""),
    ("keys", "keys", ""),
    ("credit", "credit", "records"),
    ("live", "live", ""),
    ("via", "path", ""),
    ("partitions_per_broker", "partitions of each broker", ""),
    ("seconds", "duration", "s"),
    ("partition", "partition", ""),
    ("broker", "broker", ""),
    ("kill", "killed", ""),
];

const NAMES: &[(&str, &str)] = &[
    ("mib_per_s", "throughput"),
    ("throughput_per_broker", "throughput per broker"),
    ("throughput_per_producer", "throughput per producer"),
    ("reached_share", "reached ÷ offered"),
    ("runtime_ms", "run time"),
    ("avg_ms", "mean latency"),
    ("max_ms", "max latency"),
    ("p50_ms", "p50 latency"),
    ("p95_ms", "p95 latency"),
    ("p99_ms", "p99 latency"),
    ("p999_ms", "p99.9 latency"),
    ("service_p50_ms", "p50 service time"),
    ("service_p99_ms", "p99 service time"),
    ("delay_p99_ms", "p99 delay"),
    ("blocked_ms", "time blocked"),
    ("e2e_p50_ms", "p50 end to end"),
    ("e2e_p99_ms", "p99 end to end"),
    ("consumed_per_s", "consumed"),
    ("lag_records", "lag"),
    ("rebalance_ms", "rebalance time"),
    ("fetch_ms", "fetch time"),
    ("fetch_mib_per_s", "fetch rate"),
    ("fetch_records_per_s", "fetch rate"),
    ("data_mib", "read in all"),
    ("failed", "failed"),
    ("records_per_request", "records per request"),
    ("fetch_p50_ms", "p50 fetch"),
    ("requests_per_s", "requests answered"),
    ("answer_bytes", "an answer"),
    ("batch_fill", "batch fill"),
    ("in_flight_used", "in flight used"),
    ("broker_cpu_s_per_mrec", "broker CPU per 10⁶ records"),
    ("broker_cpu_s_per_mreq", "broker CPU per 10⁶ requests"),
    ("broker_cpu_s_per_gb", "broker CPU per GB"),
    ("broker_cpu_share", "broker CPU share"),
    ("machine_cpu_share", "machine CPU share"),
    ("client_cpu_s_per_mrec", "client CPU per 10⁶ records"),
    ("client_cpu_s_per_mreq", "client CPU per 10⁶ requests"),
    ("client_busy_share", "busiest client thread"),
    ("broker_rss_mib", "broker memory"),
    ("gateway_cpu_s_per_mrec", "gateway CPU per 10⁶ records"),
    ("gateway_cpu_share", "gateway CPU share"),
    ("gateway_rss_mib", "gateway memory"),
    ("proxy_cpu_s_per_mrec", "proxy CPU per 10⁶ records"),
    ("wire_mib", "over HTTP"),
    ("page_max_ms", "slowest page"),
    ("disk_bytes_per_byte", "disk bytes per byte"),
    ("steal_share", "steal"),
    ("ns_per_decision", "one decision"),
    ("max_over_mean", "max ÷ mean"),
    ("coefficient_of_variation", "variation"),
    ("chi_squared_p", "χ² p"),
    ("predicted_p50_ms", "predicted p50"),
    ("law_ratio", "measured ÷ predicted"),
    ("read_us", "read"),
    ("decide_us", "decide"),
    ("send_us", "send"),
    ("forward_us", "forward"),
    ("gap_min_ms", "min gap"),
    ("gap_p50_ms", "p50 gap"),
    ("gap_p90_ms", "p90 gap"),
    ("gap_p99_ms", "p99 gap"),
    ("gap_max_ms", "max gap"),
    ("steady_gap_p50_ms", "p50 gap undisturbed"),
    ("steady_gap_max_ms", "max gap undisturbed"),
    ("move_gap_p50_ms", "p50 gap as the leader moves"),
    ("move_gap_max_ms", "max gap as the leader moves"),
    ("return_gap_p50_ms", "p50 gap as the broker returns"),
    ("return_gap_max_ms", "max gap as the broker returns"),
    ("client_errors", "errors told"),
];

/// A factor's name.
pub(crate) fn factor(key: &str) -> Name {
    match FACTORS.iter().find(|(name, _, _)| *name == key) {
        Some((_, text, unit)) => Name::new(text, unit),
        None => Name::new(key.strip_prefix("broker_settings.").unwrap_or(key), ""),
    }
}

/// A metric's name and unit.
pub(crate) fn metric(key: &str) -> Name {
    let unit = METRICS.iter().find(|(name, _, _)| *name == key).map_or("", |(_, unit, _)| *unit);
    match NAMES.iter().find(|(name, _)| *name == key) {
        Some((_, text)) => Name::new(text, unit),
        None => Name::new(&key.replace('_', " "), unit),
    }
}

/// A metric's or a factor's name, whichever it is.
pub(crate) fn axis(key: &str) -> Name {
    if METRICS.iter().any(|(name, _, _)| *name == key) && key != "records" {
        metric(key)
    } else {
        factor(key)
    }
}

/// Whether a level stands for no limit: nothing was offered at a rate.
pub(crate) fn is_unlimited(factor: &str, level: &Level) -> bool {
    matches!(factor, "offered" | "offered_share") && level.number() == Some(0.0)
}

/// A level of a factor, as text.
pub(crate) fn level(factor: &str, level: &Level) -> String {
    match level {
        level if is_unlimited(factor, level) => "max".to_owned(),
        Level::Number(n) if matches!(factor, "batch_bytes" | "buffer_bytes") => number::bytes(*n),
        Level::Number(n) => number::published(*n),
        Level::Flag(flag) => if *flag { "yes" } else { "no" }.to_owned(),
        Level::Text(text) if text.is_empty() => "default".to_owned(),
        Level::Text(text) => text.clone(),
    }
}

/// `record size 1,024 B, acks all`: a cell in words; `the only cell` if nothing is varied.
pub(crate) fn cell(levels: &Levels) -> String {
    let parts: Vec<String> = levels.iter().map(|(key, value)| setting(key, value)).collect();
    if parts.is_empty() { "the only cell".to_owned() } else { parts.join(", ") }
}

/// `record size 1,024 B`.
pub(crate) fn setting(key: &str, value: &Level) -> String {
    let name = factor(key);
    let unit = if name.unit.is_empty() { String::new() } else { format!(" {}", name.unit) };
    format!("{} {}{unit}", name.text, level(key, value))
}

/// What an acknowledgement was worth, in two or three words.
pub(crate) fn durability(durability: Durability) -> &'static str {
    match durability {
        Durability::Unacknowledged => "unacknowledged",
        Durability::PageCache => "page cache",
        Durability::ReplicatedPageCache => "replicated, page cache",
        Durability::Synced => "synced",
        Durability::ReplicatedSynced => "replicated, synced",
        Durability::Unknown => "unknown",
    }
}

/// What became of the records: `all there`, `12 lost, 3 reordered`, `unverified`.
pub(crate) fn delivery(verdict: &Verdict) -> String {
    let counts = [
        (verdict.lost, "lost"),
        (verdict.duplicated, "duplicated"),
        (verdict.reordered, "reordered"),
        (verdict.damaged, "damaged"),
    ];
    let found: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{} {what}", number::fixed(*count as f64, 0)))
        .collect();
    match (found.is_empty(), verdict.checked) {
        (false, _) => found.join(", "),
        (true, true) => "all there".to_owned(),
        (true, false) => "unverified".to_owned(),
    }
}

/// What words and signs of a report mean; of a run, or of published values only.
pub(crate) fn reading(measured: bool) -> Vec<(&'static str, &'static str)> {
    let mut lines = vec![
        ("MiB", "2²⁰ bytes. Reports that wrote MB meant this."),
        (
            "holds",
            "The claim's predicate holds at the bound of the confidence interval. A published claim describes the \
          machine of its report, so a target is not at fault where the claim fails on another machine.",
        ),
        ("does not hold", "The predicate fails beyond the interval."),
        ("within noise", "The interval or the noise floor does not let us say."),
        (
            "not testable",
            "Rows are missing, or this machine cannot show it; the sentence says which.",
        ),
    ];
    if measured {
        lines.extend([
            ("round", "A fresh topic and fresh clients, once. All statistics are over rounds, never over single records."),
            ("value", "Mean of the rounds; behind it half the 95 % confidence interval, or half the range below five rounds."),
            ("ratio", "Geometric mean over pairs of rounds run back to back; behind it the 95 % confidence interval, below five \
              pairs their range. ▲ better, ▼ worse, beyond noise."),
            ("young", "The brokers were Java processes younger than their warm-up, 30 s a broker: marked †, and left out of ratios."),
            ("noise floor", "What the same target, run against itself, differs by 19 times of 20; the fewer the rounds, the more. \
              A smaller difference of two targets is within noise."),
            ("canary", "One cell that is run three times at the start, in the middle and at the end, at a rate that every machine holds. What a record costs there drifts with the machine."),
            ("[a, b]", "In claims: the 95 % confidence interval, at least as wide as the noise floor."),
            ("latency", "From when a record was to be sent until it was acknowledged, so that a stall counts for all that it \
              delayed; from when it was sent where nothing was offered at a rate, or where an experiment says that it counts as Kafka's tool."),
            ("service time", "From when a record was sent until it was acknowledged."),
            ("delay", "From when a record was to be sent until it was."),
            ("end to end", "From when a record was to be sent until a consumer had it."),
            ("environment", "A hash of machine, programs and settings: runs with the same one may be compared."),
            ("unacknowledged", "Nobody confirmed the record."),
            ("page cache", "An acknowledged record was in one machine's memory: lost with its power."),
            ("replicated", "It was on several brokers."),
            ("synced", "It was on the device."),
            ("all there", "Every acknowledged record was found once, whole and in order."),
            ("unverified", "Nobody looked, or not in every round."),
            ("emulated", "Round trip and bandwidth of an older machine were put on by a proxy."),
        ]);
    }
    lines
}

/// A target's name for readers: `Apache Kafka`; addresses and paths as they are.
pub(crate) fn target(name: &str) -> &str {
    match name {
        "highwater" => "Highwater",
        "apache-kafka" => "Apache Kafka",
        _ => name,
    }
}

/// A verdict on a claim, with whose claim it is about: `published claim holds`, `our claim fails`.
pub(crate) fn verdict(outcome: Outcome, is_ours: bool) -> String {
    let whose = if is_ours { "our claim" } else { "the published claim" };
    match outcome {
        Outcome::Reproduced => format!("{whose} holds"),
        Outcome::Contradicted => format!("{whose} does not hold"),
        Outcome::WithinNoise => format!("{whose}: within noise"),
        Outcome::NotTestable => format!("{whose}: not testable here"),
    }
}

/// A value of the environment, or a dash where the machine does not tell.
pub(crate) fn known(value: &str) -> &str {
    if value.is_empty() { "–" } else { value }
}

/// A count with its noun: `1 round`, `3 rounds`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", number::fixed(number as f64, 0))
}

/// A time of day and date in UTC from milliseconds since 1970: `2026-03-01 12:34 UTC`.
pub(crate) fn moment(ms: u64) -> String {
    let (days, minutes) = (ms / 86_400_000, ms / 60_000 % 1440);
    let (year, month, day) = civil(days as i64);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", minutes / 60, minutes % 60)
}

/// Year, month and day of the days since 1970, in the Gregorian calendar: years are counted from March, so that the
/// leap day is the last of them.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_carry_their_units() {
        assert_eq!(metric("p95_ms").with_unit(), "p95 latency, ms");
        assert_eq!(metric("throughput").with_unit(), "throughput, records/s");
        assert_eq!(factor("broker_settings.num.io.threads").text, "num.io.threads");
    }

    #[test]
    fn delivery_says_plainly_what_was_not_looked_at() {
        let mut verdict = Verdict::default();
        assert_eq!(delivery(&verdict), "unverified");
        verdict.checked = true;
        assert_eq!(delivery(&verdict), "all there");
        verdict.lost = 1200;
        assert_eq!(delivery(&verdict), "1,200 lost");
    }

    #[test]
    fn moments_are_civil_dates() {
        assert_eq!(moment(0), "1970-01-01 00:00 UTC");
        assert_eq!(moment(951_827_696_000), "2000-02-29 12:34 UTC");
        assert_eq!(moment(1_767_225_599_000), "2025-12-31 23:59 UTC");
    }
}
