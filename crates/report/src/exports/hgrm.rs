//! Percentile distributions in the text form of HdrHistogram's own tools, one file a cell and kind of latency, in
//! milliseconds.

use super::file_stem;
use super::latencies::{self, Measured};
use crate::run::Run;
use hdrhistogram::Histogram;
use std::fmt::Write;

const KINDS: [&str; 6] = ["response", "service", "delay", "blocked", "end-to-end", "gap"];
/// Lines between one percentile and the one half as far from the end.
const TICKS_PER_HALF: u32 = 5;
const US_PER_MS: f64 = 1000.0;

/// Paths and texts.
pub(crate) fn files(run: &Run) -> Vec<(String, String)> {
    let mut files = Vec::new();
    let measured = Measured::of(run);
    for cell in &run.analysis.cells {
        let rounds = measured.rounds(cell);
        for kind in KINDS {
            if let Some(histogram) = latencies::merged(&rounds, kind) {
                let stem = file_stem(&run.analysis.cells, cell);
                files.push((format!("hgrm/{stem}-{kind}.hgrm"), text(&histogram)));
            }
        }
    }
    files
}

fn text(histogram: &Histogram<u64>) -> String {
    let mut text = format!(
        "{:>12} {:>14} {:>10} {:>14}\n\n",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    );
    let mut seen = 0;
    for step in histogram.iter_quantiles(TICKS_PER_HALF) {
        seen += step.count_since_last_iteration();
        let value = step.value_iterated_to() as f64 / US_PER_MS;
        let share = step.quantile_iterated_to();
        let rest =
            if share < 1.0 { format!(" {:14.2}", 1.0 / (1.0 - share)) } else { String::new() };
        writeln!(text, "{value:12.3} {share:2.12} {seen:10}{rest}").expect("to memory");
    }
    let (mean, deviation) = (histogram.mean() / US_PER_MS, histogram.stdev() / US_PER_MS);
    let max = histogram.max() as f64 / US_PER_MS;
    let sub_buckets = 2u64 << (2.0 * 10f64.powi(histogram.sigfig().into())).log2().floor() as u32;
    writeln!(text, "#[Mean    = {mean:12.3}, StdDeviation   = {deviation:12.3}]")
        .expect("to memory");
    writeln!(text, "#[Max     = {max:12.3}, Total count    = {:12}]", histogram.len())
        .expect("to memory");
    writeln!(text, "#[Buckets = {:12}, SubBuckets     = {sub_buckets:12}]", histogram.buckets())
        .expect("to memory");
    text
}
