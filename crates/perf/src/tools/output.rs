//! What is written besides the lines: results as JSON or CSV, and distributions of latencies. The
//! lines themselves never change.

use super::failure::ToolError;
use super::number::fixed;
use clap::ValueEnum;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The form of a file of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// One object
    Json,
    /// One row for each interval and each total
    Csv,
}

/// The unit of latencies in lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Unit {
    /// Milliseconds, as Kafka's tools have it
    Ms,
    /// Microseconds
    Us,
}

impl Unit {
    /// As it stands behind a number.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Ms => "ms",
            Unit::Us => "us",
        }
    }
}

/// The files that were asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outputs {
    /// Results.
    pub file: Option<(Form, PathBuf)>,
    /// Latencies.
    pub histogram: Option<PathBuf>,
    /// In lines.
    pub unit: Unit,
}

impl Outputs {
    /// Fails if one of them cannot be written: better before the run than behind it.
    pub fn check(&self) -> Result<(), ToolError> {
        let paths = self.file.iter().map(|(_, path)| path).chain(&self.histogram);
        paths.into_iter().try_for_each(|path| check_writable(path))
    }

    /// Whether latencies are wanted more finely than the lines have them.
    pub fn wants_histogram(&self) -> bool {
        self.file.is_some() || self.histogram.is_some()
    }
}

/// A histogram of microseconds: 1 µs to 1 h, three digits.
pub fn histogram_us() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("these bounds are possible")
}

/// Latencies in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LatencyUs {
    /// Mean.
    pub avg: f64,
    /// Half are at most this.
    pub p50: u64,
    /// 95 in 100.
    pub p95: u64,
    /// 99 in 100.
    pub p99: u64,
    /// 999 in 1000.
    pub p999: u64,
    /// The longest.
    pub max: u64,
}

impl LatencyUs {
    /// Of this histogram; `None` if it is empty.
    pub fn of(histogram: &Histogram<u64>) -> Option<LatencyUs> {
        let at = |quantile| histogram.value_at_quantile(quantile);
        (!histogram.is_empty()).then(|| LatencyUs {
            avg: histogram.mean(),
            p50: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            max: histogram.max(),
        })
    }
}

/// Results that have rows.
pub trait Results: Serialize {
    /// The names of the columns.
    const COLUMNS: &'static [&'static str];

    /// The rows, as many cells as there are columns.
    fn rows(&self) -> Vec<Vec<String>>;
}

/// Writes a file of results.
pub fn write_results<R: Results>(form: Form, path: &Path, results: &R) -> Result<(), ToolError> {
    let text = match form {
        Form::Json => {
            let json = serde_json::to_string_pretty(results);
            json.map_err(|e| failed(path, &e))? + "\n"
        }
        Form::Csv => csv(results),
    };
    std::fs::write(path, text).map_err(|e| failed(path, &e))
}

/// Fails if the file cannot be written; what is in it stays.
pub fn check_writable(path: &Path) -> Result<(), ToolError> {
    let opened = std::fs::OpenOptions::new().create(true).append(true).open(path);
    opened.map(drop).map_err(|e| failed(path, &e))
}

fn failed(path: &Path, error: &dyn std::fmt::Display) -> ToolError {
    ToolError::failed(format!("cannot write {}: {error}", path.display()))
}

/// No cell holds a comma: they are numbers, words and times.
fn csv<R: Results>(results: &R) -> String {
    let mut out = R::COLUMNS.join(",") + "\n";
    for row in results.rows() {
        out += &row.join(",");
        out.push('\n');
    }
    out
}

/// Writes a distribution in milliseconds as HdrHistogram's plotter reads it.
pub fn write_histogram(path: &Path, histogram_us: &Histogram<u64>) -> Result<(), ToolError> {
    std::fs::write(path, distribution(histogram_us)).map_err(|e| failed(path, &e))
}

fn distribution(histogram_us: &Histogram<u64>) -> String {
    let mut out = String::from("       Value     Percentile TotalCount 1/(1-Percentile)\n\n");
    let mut total = 0;
    for step in histogram_us.iter_quantiles(5) {
        total += step.count_since_last_iteration();
        let (value, quantile) =
            (step.value_iterated_to() as f64 / 1000.0, step.quantile_iterated_to());
        let _ = write!(out, "{value:12.3} {quantile:14.12} {total:10}");
        let _ = match quantile < 1.0 {
            true => writeln!(out, " {:14.2}", 1.0 / (1.0 - quantile)),
            false => writeln!(out),
        };
    }
    let (mean, deviation) = (histogram_us.mean() / 1000.0, histogram_us.stdev() / 1000.0);
    let max = histogram_us.max() as f64 / 1000.0;
    let _ = writeln!(out, "#[Mean    = {mean:12.3}, StdDeviation   = {deviation:12.3}]");
    let _ = writeln!(out, "#[Max     = {max:12.3}, Total count    = {total:12}]");
    let (buckets, sub_buckets) = (histogram_us.buckets(), 2048);
    let _ = writeln!(out, "#[Buckets = {buckets:12}, SubBuckets     = {sub_buckets:12}]");
    out
}

/// A cell of CSV: places enough for a rate.
pub fn cell(value: f64) -> String {
    fixed(value, 6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_ends_with_everything_counted() {
        let mut histogram = histogram_us();
        for us in 1..=1000 {
            histogram.record(us * 10).unwrap();
        }
        let text = distribution(&histogram);
        let lines: Vec<&str> = text.lines().collect();
        let cells = |line: &str| {
            line.split_whitespace().map(|c| c.parse::<f64>().unwrap()).collect::<Vec<_>>()
        };
        let half = lines.iter().find(|line| line.contains(" 0.500000000000 ")).unwrap();
        assert_eq!(cells(half)[2..], [500.0, 2.0]);
        let last = lines.iter().rposition(|line| !line.starts_with('#')).unwrap();
        assert_eq!(cells(lines[last])[1..], [1.0, 1000.0]);
        assert!(text.contains("#[Mean    =        5.006"), "{text}");
    }

    #[test]
    fn without_latencies_there_are_no_percentiles() {
        assert_eq!(LatencyUs::of(&histogram_us()), None);
    }
}
