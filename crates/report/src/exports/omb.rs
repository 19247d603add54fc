//! Results as the OpenMessaging Benchmark writes them: one file a cell and target, one sample a round. Latencies of
//! publishing and end to end are milliseconds, delays microseconds, as there.

use super::file_stem;
use super::latencies::{self, Measured};
use crate::run::Run;
use experiment::analysis::CellAnalysis;
use experiment::definition::{Experiment, Level};
use experiment::round::Round;
use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

const PERCENTILES: [(&str, f64); 7] = [
    ("50pct", 0.5),
    ("75pct", 0.75),
    ("95pct", 0.95),
    ("99pct", 0.99),
    ("999pct", 0.999),
    ("9999pct", 0.9999),
    ("99999pct", 0.99999),
];

/// A kind of latency: the histogram, the fields' beginning, microseconds of a unit, whether values are whole.
struct Kind {
    histograms: &'static [&'static str],
    field: &'static str,
    us: f64,
    whole: bool,
}

const KINDS: [Kind; 3] = [
    Kind {
        histograms: &["service", "response"],
        field: "publishLatency",
        us: 1000.0,
        whole: false,
    },
    Kind { histograms: &["delay"], field: "publishDelayLatency", us: 1.0, whole: true },
    Kind { histograms: &["end-to-end"], field: "endToEndLatency", us: 1000.0, whole: false },
];

/// Paths and texts: of every cell in which records were acknowledged or read.
pub(crate) fn files(run: &Run) -> Vec<(String, String)> {
    let measured = Measured::of(run);
    let cells = run.analysis.cells.iter().filter(|cell| cell.metrics.contains_key("throughput"));
    let file = |cell: &CellAnalysis| {
        let stem = file_stem(&run.analysis.cells, cell);
        let text = serde_json::to_string_pretty(&result(run, cell, &measured.rounds(cell)))
            .expect("numbers and texts");
        (format!("omb/{stem}.json"), text)
    };
    cells.map(file).collect()
}

fn result(run: &Run, cell: &CellAnalysis, rounds: &[&Round]) -> Value {
    let experiment = run.experiments().map(|(_, e)| e).find(|e| e.id == cell.experiment);
    let setting = |key: &str, default: u64| setting(experiment, cell, key).unwrap_or(default);
    let topics = setting("topics", 1);
    let metric = |name: &str| -> Vec<f64> {
        rounds.iter().map(|round| round.metrics.get(name).copied().unwrap_or(0.0)).collect()
    };
    let errors = rounds.iter().map(|round| error_rate(round));
    let per_topic = |clients: u64| clients.div_ceil(topics.max(1));
    // Where only reading is measured, throughput is the readers'; what they read live was published as fast.
    let reading = matches!(kind(experiment, cell), "consume" | "deliver");
    let stored = reading && !is_live(experiment, cell);
    let published = if stored { vec![0.0; rounds.len()] } else { metric("throughput") };
    let consumed = metric(if reading { "throughput" } else { "consumed_per_s" });
    let mut result = json!({
        "workload": format!("{} {}", cell.experiment, crate::wording::cell(&cell.cell)),
        "driver": cell.target,
        "messageSize": message_bytes(experiment, cell),
        "topics": topics,
        "partitions": setting("partitions", 1),
        "producersPerTopic": if stored { 0 } else { per_topic(setting("producers", 1)) },
        "consumersPerTopic": per_topic(setting("consumers", u64::from(reading))),
        "publishRate": published,
        "publishErrorRate": errors.collect::<Vec<f64>>(),
        "consumeRate": consumed,
        "backlog": metric("lag_records").iter().map(|lag| *lag as u64).collect::<Vec<u64>>(),
    });
    let fields = result.as_object_mut().expect("an object was just made");
    for kind in &KINDS {
        latency_fields(fields, kind, rounds);
    }
    result
}

/// Records a second that were not acknowledged.
fn error_rate(round: &Round) -> f64 {
    let of = |name: &str| round.metrics.get(name).copied().unwrap_or(0.0);
    let seconds = of("runtime_ms") / 1000.0;
    if seconds > 0.0 { of("failed") / seconds } else { 0.0 }
}

/// The kind of a cell's work, as definitions write it.
fn kind<'a>(experiment: Option<&'a Experiment>, cell: &'a CellAnalysis) -> &'a str {
    match cell.cell.get("kind") {
        Some(Level::Text(kind)) => kind,
        _ => experiment.and_then(|e| e.workload.get("kind")?.as_str()).unwrap_or("produce"),
    }
}

/// Whether what is read is being written meanwhile.
fn is_live(experiment: Option<&Experiment>, cell: &CellAnalysis) -> bool {
    match cell.cell.get("live") {
        Some(level) => *level == Level::Flag(true),
        None => experiment.and_then(|e| e.workload.get("live")?.as_bool()).unwrap_or(false),
    }
}

/// Bytes of a record's value; their mean where sizes are mixed.
fn message_bytes(experiment: Option<&Experiment>, cell: &CellAnalysis) -> u64 {
    let of = |name: &str| cell.metrics.get(name).map(|summary| summary.mean);
    let mean = || {
        let records = of("throughput").filter(|records| *records > 0.0)?;
        Some((of("mib_per_s")? * 1_048_576.0 / records).round() as u64)
    };
    match setting(experiment, cell, "record_bytes") {
        None => 1024,
        Some(0) => mean().unwrap_or(0),
        Some(bytes) => bytes,
    }
}

/// A setting of a cell: its level, or what all of the experiment's cells share.
fn setting(experiment: Option<&Experiment>, cell: &CellAnalysis, key: &str) -> Option<u64> {
    let level = cell.cell.get(key).and_then(Level::number).map(|number| number as u64);
    let shared = || experiment?.workload.get(key)?.as_integer()?.try_into().ok();
    level.or_else(shared)
}

fn latency_fields(fields: &mut Map<String, Value>, kind: &Kind, rounds: &[&Round]) {
    let read =
        |round: &Round| kind.histograms.iter().find_map(|name| latencies::of_round(round, name));
    let samples: Vec<Histogram<u64>> = rounds.iter().filter_map(|round| read(round)).collect();
    let all = kind.histograms.iter().find_map(|name| latencies::merged(rounds, name));
    let value = |us: f64| if kind.whole { json!(us as u64) } else { json!(us / kind.us) };
    let each = |of: &dyn Fn(&Histogram<u64>) -> f64| -> Value {
        samples.iter().map(|sample| value(of(sample))).collect()
    };
    let name = kind.field;
    let whole = format!("aggregated{}{}", name[..1].to_uppercase(), &name[1..]);
    let at = |histogram: &Histogram<u64>, share: f64| histogram.value_at_quantile(share) as f64;
    let mean = |histogram: &Histogram<u64>| json!(histogram.mean() / kind.us);
    fields.insert(format!("{name}Avg"), samples.iter().map(mean).collect());
    fields.insert(format!("{whole}Avg"), all.as_ref().map_or(json!(0.0), mean));
    for (suffix, share) in PERCENTILES {
        fields.insert(format!("{name}{suffix}"), each(&|h| at(h, share)));
        let sum = all.as_ref().map_or(0.0, |h| at(h, share));
        fields.insert(format!("{whole}{suffix}"), value(sum));
    }
    fields.insert(format!("{name}Max"), each(&|h| h.max() as f64));
    fields.insert(format!("{whole}Max"), value(all.as_ref().map_or(0.0, |h| h.max() as f64)));
    let mut quantiles = Map::new();
    for step in all.iter().flat_map(|histogram| histogram.iter_quantiles(1)) {
        let percent = format!("{}", step.quantile_iterated_to() * 100.0);
        quantiles.insert(percent, value(step.value_iterated_to() as f64));
    }
    fields.insert(format!("{whole}Quantiles"), Value::Object(quantiles));
}
