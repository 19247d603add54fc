//! kafka-producer-perf-test as the driver of a round, Kafka's own or ours: what it prints is read as everybody reads
//! it, and both are read by the same code.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use experiment::workload::{Acks, Workload};
use peer::{apache_kafka, process, procfs};

/// How much longer than the round's own time the tool may take.
const SPARE: Duration = Duration::from_secs(120);

/// The last line of kafka-producer-perf-test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Records that were acknowledged.
    pub records: u64,
    /// Per second.
    pub throughput: f64,
    /// MiB per second.
    pub mib_per_s: f64,
    /// Mean latency, ms.
    pub avg_ms: f64,
    /// The longest, ms.
    pub max_ms: f64,
    /// 50th, 95th, 99th and 99.9th percentile, ms.
    pub percentiles_ms: [f64; 4],
}

/// One part in so many of the records is sent before those that count.
const WARMUP_PART: u64 = 3;

/// Whose tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// That of this program.
    Ours,
    /// That of Apache Kafka, on a Java runtime.
    Kafkas,
}

/// What a run of the tool told.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Told {
    /// Of the records behind the warm-up.
    pub summary: Summary,
    /// CPU seconds, its start included.
    pub cpu_s: f64,
}

/// Runs the tool on a topic that is there.
pub fn produce(
    whose: Whose,
    bootstrap: &str,
    topic: &str,
    workload: &Workload,
    records: u64,
) -> Result<Told> {
    let throughput = if workload.offered > 0.0 { workload.offered } else { -1.0 };
    let mut arguments: Vec<String> = Vec::new();
    let mut flag = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
    flag("--topic", topic.to_owned());
    flag("--num-records", records.to_string());
    flag("--record-size", workload.record_bytes.to_string());
    flag("--throughput", throughput.to_string());
    // What a cold start costs is no property of the broker, and least of all the same for both tools.
    flag("--warmup-records", (records / WARMUP_PART).to_string());
    arguments.push("--command-property".to_owned());
    arguments.extend(
        properties(bootstrap, workload).into_iter().map(|(key, value)| format!("{key}={value}")),
    );
    let mut tool = match whose {
        Whose::Kafkas => apache_kafka::tool("kafka-producer-perf-test", &arguments)?,
        Whose::Ours => {
            let mut ours = process::command(std::env::current_exe()?);
            ours.args(["perf", "produce"]).args(&arguments);
            ours
        }
    };
    let before_s = procfs::ended_children_cpu_s()?;
    let outcome =
        process::run(&mut tool, None, Duration::from_secs_f64(workload.seconds.max(60.0)) + SPARE)?;
    ensure!(outcome.success(), "kafka-producer-perf-test failed: {}", outcome.story());
    let text = outcome.text();
    // The first summary is of all records, the last of those behind the warm-up.
    let last = text.lines().rfind(|line| line.contains("99.9th"));
    let summary = last.and_then(parse);
    let summary =
        summary.with_context(|| format!("kafka-producer-perf-test wrote no summary:\n{text}"))?;
    Ok(Told { summary, cpu_s: procfs::ended_children_cpu_s()? - before_s })
}

fn properties(bootstrap: &str, workload: &Workload) -> BTreeMap<&'static str, String> {
    let acks = match workload.acks() {
        Acks::None => "0",
        Acks::Leader => "1",
        Acks::All => "all",
    };
    BTreeMap::from([
        ("bootstrap.servers", bootstrap.to_owned()),
        ("acks", acks.to_owned()),
        ("linger.ms", format!("{:.0}", workload.linger_ms())),
        ("batch.size", workload.batch_bytes.to_string()),
        ("buffer.memory", workload.buffer_bytes.to_string()),
        ("max.in.flight.requests.per.connection", workload.in_flight.to_string()),
        ("enable.idempotence", workload.idempotence().to_string()),
        ("compression.type", workload.compression.clone()),
    ])
}

/// The numbers of the last line, in the order in which every version writes them.
pub fn parse(line: &str) -> Option<Summary> {
    let words = line.split(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-'));
    // Words such as `50th` give numbers too: they are the names of the percentiles.
    let numbers: Vec<f64> =
        words.filter_map(|word| word.trim_end_matches('.').parse().ok()).collect();
    let [
        records,
        throughput,
        mib_per_s,
        avg_ms,
        max_ms,
        p50,
        50.0,
        p95,
        95.0,
        p99,
        99.0,
        p999,
        99.9,
    ] = numbers[..]
    else {
        return None;
    };
    let percentiles_ms = [p50, p95, p99, p999];
    Some(Summary { records: records as u64, throughput, mib_per_s, avg_ms, max_ms, percentiles_ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_of_all_ages_is_read() {
        for line in [
            "100000 records sent, 99.998 records/sec (0.01 MB/sec), 5.25 ms avg latency, 391.00 ms max latency, 5 ms 50th, 5 ms 95th, 6 ms 99th, 12 ms 99.9th.",
            "100000 records sent, 99.998000 records/sec (0.01 MB/sec), 5.25 ms avg latency, 391.0 ms max latency, 5 ms 50th, 5 ms 95th, 6 ms 99th, 12 ms 99.9th.",
        ] {
            let summary = parse(line).unwrap();
            assert_eq!((summary.records, summary.throughput), (100_000, 99.998));
            assert_eq!((summary.avg_ms, summary.max_ms), (5.25, 391.0));
            assert_eq!(summary.percentiles_ms, [5.0, 5.0, 6.0, 12.0]);
        }
        assert_eq!(
            parse(
                "49995 records sent, 9999.0 records/sec (0.95 MB/sec), 1.0 ms avg latency, 4.0 ms max latency."
            ),
            None
        );
    }
}
