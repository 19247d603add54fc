//! What became of the records: counts, latencies, windows, and the lines about them, whose form and
//! arithmetic are those of Kafka's tool.

use super::super::clock::Clock;
use super::super::console::Console;
use super::super::number::fixed;
use super::super::output::{LatencyUs, Unit, histogram_us};
use super::payload::Payload;
use client::ClientError;
use client::producer::BatchReport;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::sync::Arc;

/// Latencies that are kept at most, about; of more records every n-th is.
const SAMPLES: u64 = 500_000;
const MIB: f64 = 1024.0 * 1024.0;
/// Failures that are told one by one.
const FAILURES_TOLD: u64 = 20;

/// What a record's tag holds: whether it belongs to the steady state, when its sending began, and
/// the mark of its value. 39 bits of microseconds are six days; longer runs are possible, longer
/// latencies are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    /// Behind the warm-up.
    pub steady: bool,
    /// By the tool's clock.
    pub began_us: u64,
    /// See [`super::payload::Values::next`]; 24 bits.
    pub mark: u32,
}

const MARK_BITS: u32 = 24;
const TIME_MASK: u64 = (1 << 39) - 1;

impl Tag {
    /// As a number.
    pub fn pack(self) -> u64 {
        debug_assert!(self.mark >> MARK_BITS == 0, "marks have 24 bits");
        u64::from(self.steady) << 63
            | (self.began_us & TIME_MASK) << MARK_BITS
            | u64::from(self.mark)
    }

    /// From that number, at a time when the record is done.
    pub fn unpack(tag: u64, now_us: u64) -> Tag {
        let age_us = now_us.wrapping_sub(tag >> MARK_BITS) & TIME_MASK;
        Tag {
            steady: tag >> 63 == 1,
            began_us: now_us.saturating_sub(age_us),
            mark: (tag & ((1 << MARK_BITS) - 1)) as u32,
        }
    }
}

/// A window as it was reported.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Window {
    /// Whether it belongs to the steady state.
    pub steady_state: bool,
    /// Milliseconds from the start of the run to its end.
    pub end_ms: u64,
    /// Records that were acknowledged within it.
    pub records: u64,
    /// The same per second.
    pub records_per_sec: f64,
    /// 2^20 bytes of values per second.
    pub mb_per_sec: f64,
    /// Mean latency, in the unit of the lines.
    pub latency_avg: f64,
    /// Longest latency, in that unit.
    pub latency_max: u64,
}

/// A whole run, or its steady state.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Total {
    /// Records that were acknowledged.
    pub records: u64,
    /// Bytes of their values.
    pub bytes: u64,
    /// From before the first send to the end of the last record.
    pub elapsed_ms: u64,
    /// Records per second.
    pub records_per_sec: f64,
    /// 2^20 bytes of values per second.
    pub mb_per_sec: f64,
    /// Mean latency, in the unit of the lines.
    pub latency_avg: f64,
    /// Longest latency, in that unit.
    pub latency_max: u64,
    /// Of sampled latencies, in that unit: 50th, 95th, 99th, 99.9th.
    pub latency_percentiles: [u64; 4],
    /// Of all latencies, in microseconds, if they were kept.
    pub latency_us: Option<LatencyUs>,
}

#[derive(Debug, Default)]
struct Sums {
    start_ms: u64,
    count: u64,
    bytes: u64,
    latency: u64,
    latency_max: u64,
}

impl Sums {
    fn add(&mut self, latency: u64, bytes: u64) {
        self.count += 1;
        self.bytes += bytes;
        self.latency += latency;
        self.latency_max = self.latency_max.max(latency);
    }

    /// Milliseconds until then; 0 if it began later: batches of several producers do not come in the
    /// order in which they ended.
    fn age_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.start_ms)
    }

    /// Records and 2^20 bytes per second until then.
    fn rates(&self, now_ms: u64) -> (f64, f64) {
        let elapsed = self.age_ms(now_ms) as f64;
        let per_sec = |count: u64| 1000.0 * count as f64 / elapsed;
        (per_sec(self.count), per_sec(self.bytes) / MIB)
    }

    fn latency_avg(&self) -> f64 {
        self.latency as f64 / self.count as f64
    }
}

/// One of the two series of latencies: the whole test, and its steady state.
#[derive(Debug)]
struct Series {
    whole: Sums,
    window: Sums,
    /// Every so many-th latency is kept.
    sampling: u64,
    samples: Vec<u32>,
    histogram: Option<Histogram<u64>>,
}

impl Series {
    fn new(records: u64, now_ms: u64, histogram: bool) -> Series {
        let sums = || Sums { start_ms: now_ms, ..Sums::default() };
        let sampling = (records / SAMPLES).max(1);
        Series {
            whole: sums(),
            window: sums(),
            sampling,
            samples: Vec::with_capacity((records / sampling) as usize + 1),
            histogram: histogram.then(histogram_us),
        }
    }

    fn add(&mut self, latency: u64, latency_us: u64, bytes: u64) {
        if self.whole.count.is_multiple_of(self.sampling) {
            self.samples.push(latency.min(u64::from(u32::MAX)) as u32);
        }
        self.whole.add(latency, bytes);
        self.window.add(latency, bytes);
        if let Some(histogram) = &mut self.histogram {
            histogram.saturating_record(latency_us.max(1));
        }
    }

    fn next_window(&mut self, now_ms: u64) -> Sums {
        std::mem::replace(&mut self.window, Sums { start_ms: now_ms, ..Sums::default() })
    }

    fn total(&self, end_ms: u64) -> Total {
        let (records_per_sec, mb_per_sec) = self.whole.rates(end_ms);
        Total {
            records: self.whole.count,
            bytes: self.whole.bytes,
            elapsed_ms: self.whole.age_ms(end_ms),
            records_per_sec,
            mb_per_sec,
            latency_avg: self.whole.latency_avg(),
            latency_max: self.whole.latency_max,
            latency_percentiles: percentiles(&self.samples),
            latency_us: self.histogram.as_ref().and_then(LatencyUs::of),
        }
    }
}

/// The sample at `floor(p · n)` of all in order; 0 without samples.
fn percentiles(samples: &[u32]) -> [u64; 4] {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    [0.5, 0.95, 0.99, 0.999].map(|p| {
        let index = (p * sorted.len() as f64) as usize;
        sorted.get(index).copied().map_or(0, u64::from)
    })
}

/// The line of a window.
pub fn window_line(window: &Window, unit: Unit) -> String {
    let unit = unit.name();
    format!(
        "{} records sent, {} records/sec ({} MB/sec), {} {unit} avg latency, {} {unit} max latency.",
        window.records,
        fixed(window.records_per_sec, 1),
        fixed(window.mb_per_sec, 2),
        fixed(window.latency_avg, 1),
        fixed(window.latency_max as f64, 1),
    )
}

/// The line of a total.
pub fn total_line(total: &Total, steady: bool, unit: Unit) -> String {
    let (unit, state) = (unit.name(), if steady { " steady state" } else { "" });
    let [p50, p95, p99, p999] = total.latency_percentiles;
    format!(
        "{}{state} records sent, {} records/sec ({} MB/sec), {} {unit} avg latency, {} {unit} max \
         latency, {p50} {unit} 50th, {p95} {unit} 95th, {p99} {unit} 99th, {p999} {unit} 99.9th.",
        total.records,
        fixed(total.records_per_sec, 6),
        fixed(total.mb_per_sec, 2),
        fixed(total.latency_avg, 2),
        fixed(total.latency_max as f64, 2),
    )
}

/// How the tally is kept.
#[derive(Debug, Clone)]
pub struct TallyConfig {
    /// Of all producers.
    pub records: u64,
    /// Of these, before the steady state.
    pub warmup_records: u64,
    /// Between lines.
    pub reporting_interval_ms: u64,
    /// Of the latencies in lines.
    pub unit: Unit,
    /// Whether all latencies are kept, in microseconds.
    pub histogram: bool,
}

/// All producers' records.
pub struct Tally {
    config: TallyConfig,
    clock: Clock,
    payload: Payload,
    console: Arc<Console>,
    whole: Series,
    /// From the first record behind the warm-up on.
    steady: Option<Series>,
    windows: Vec<Window>,
    failed: u64,
    failures: u64,
}

impl Tally {
    /// An empty tally that starts with the clock.
    pub fn new(
        config: TallyConfig,
        clock: Clock,
        payload: Payload,
        console: Arc<Console>,
    ) -> Tally {
        let whole = Series::new(config.records, clock.epoch_ms(0), config.histogram);
        Tally {
            config,
            clock,
            payload,
            console,
            whole,
            steady: None,
            windows: Vec::new(),
            failed: 0,
            failures: 0,
        }
    }

    /// The run begins only now; nothing has been sent yet.
    pub fn restart(&mut self, now_us: u64) {
        let now_ms = self.clock.epoch_ms(now_us);
        self.whole = Series::new(self.config.records, now_ms, self.config.histogram);
    }

    /// The first record behind the warm-up is about to be sent, by whichever producer is first.
    pub fn begin_steady_state(&mut self, now_us: u64) {
        if self.steady.is_none() {
            let records = self.config.records - self.config.warmup_records;
            let now_ms = self.clock.epoch_ms(now_us);
            self.steady = Some(Series::new(records, now_ms, self.config.histogram));
        }
    }

    /// Takes in a batch that ended.
    pub fn batch(&mut self, report: &BatchReport<'_>) {
        match report.result {
            Ok(_) => {
                let now_us = self.clock.us(report.ended);
                report.tags.iter().for_each(|tag| self.record(*tag, now_us));
            }
            Err(error) => self.failed(report.record_count as u64, error),
        }
    }

    fn record(&mut self, tag: u64, now_us: u64) {
        let tag = Tag::unpack(tag, now_us);
        let now_ms = self.clock.epoch_ms(now_us);
        let latency_us = now_us - tag.began_us;
        let latency = match self.config.unit {
            Unit::Ms => now_ms - self.clock.epoch_ms(tag.began_us),
            Unit::Us => latency_us,
        };
        let bytes = self.payload.size_bytes(tag.mark);
        let interval_ms = self.config.reporting_interval_ms;
        self.whole.add(latency, latency_us, bytes);
        if self.whole.window.age_ms(now_ms) >= interval_ms {
            let window = self.whole.next_window(now_ms);
            if self.steady.is_none() {
                self.report(&window, now_ms, false);
            }
        }
        let Some(steady) = self.steady.as_mut().filter(|_| tag.steady) else { return };
        steady.add(latency, latency_us, bytes);
        if steady.window.age_ms(now_ms) >= interval_ms {
            let window = steady.next_window(now_ms);
            if steady.whole.count == window.count {
                self.console.line("In steady state.");
            }
            self.report(&window, now_ms, true);
        }
    }

    fn report(&mut self, sums: &Sums, now_ms: u64, steady_state: bool) {
        let (records_per_sec, mb_per_sec) = sums.rates(now_ms);
        let window = Window {
            steady_state,
            end_ms: self.whole.whole.age_ms(now_ms),
            records: sums.count,
            records_per_sec,
            mb_per_sec,
            latency_avg: sums.latency_avg(),
            latency_max: sums.latency_max,
        };
        self.console.line(window_line(&window, self.config.unit));
        self.windows.push(window);
    }

    /// So many records were given up.
    pub fn failed(&mut self, count: u64, error: &ClientError) {
        self.failed += count;
        self.failures += 1;
        if self.failures <= FAILURES_TOLD {
            let records = if count == 1 { "record was" } else { "records were" };
            self.console.notice(format_args!("{count} {records} not sent: {error}"));
        }
        if self.failures == FAILURES_TOLD {
            self.console.notice("further failures are counted only");
        }
    }

    /// The whole run, its steady state, and the windows, at the end.
    pub fn finish(&mut self, now_us: u64) -> Finished {
        let end_ms = self.clock.epoch_ms(now_us);
        if self.failures > FAILURES_TOLD {
            self.console.notice(format_args!("{} records were not sent", self.failed));
        }
        Finished {
            total: self.whole.total(end_ms),
            steady_state: self.steady.as_ref().map(|steady| steady.total(end_ms)),
            windows: std::mem::take(&mut self.windows),
            failed: self.failed,
            histogram: self.whole.histogram.take(),
        }
    }
}

/// A tally that is complete.
#[derive(Debug)]
pub struct Finished {
    /// The whole run.
    pub total: Total,
    /// Behind the warm-up.
    pub steady_state: Option<Total>,
    /// As reported.
    pub windows: Vec<Window>,
    /// Records that were given up.
    pub failed: u64,
    /// All latencies of the whole run in microseconds, if they were kept.
    pub histogram: Option<Histogram<u64>>,
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::Recorded;
    use super::*;

    const MARKLESS: Payload =
        Payload::Letters { size_bytes: 100, mode: super::super::arguments::PayloadMode::Reuse };

    fn tally(recorded: &Recorded, records: u64, warmup_records: u64) -> Tally {
        let config = TallyConfig {
            records,
            warmup_records,
            reporting_interval_ms: 5000,
            unit: Unit::Ms,
            histogram: true,
        };
        let console = Arc::new(recorded.console());
        Tally::new(config, Clock::start(), MARKLESS, console)
    }

    /// A record that took 20 ms and ended then.
    fn record(tally: &mut Tally, end_ms: u64, steady: bool) {
        let tag = Tag { steady, began_us: end_ms * 1000 - 20_000, mark: 0 };
        tally.record(tag.pack(), end_ms * 1000);
    }

    #[test]
    fn tags_hold_what_was_put_in() {
        for (began_us, now_us) in [(0, 0), (5, 1 << 30), ((1 << 39) + 7, (1 << 39) + 10)] {
            let tag = Tag { steady: true, began_us, mark: (1 << 24) - 1 };
            assert_eq!(Tag::unpack(tag.pack(), now_us), tag);
        }
    }

    #[test]
    fn the_lines_are_those_of_kafkas_tool() {
        let recorded = Recorded::default();
        let mut tally = tally(&recorded, 1001, 0);
        for i in 0..1000 {
            record(&mut tally, 20 + i, false);
        }
        record(&mut tally, 5000, false);
        let finished = tally.finish(10_000_000);
        assert_eq!(
            recorded.lines(),
            "1001 records sent, 200.2 records/sec (0.02 MB/sec), 20.0 ms avg latency, 20.0 ms max \
             latency.\n"
        );
        assert_eq!(
            total_line(&finished.total, false, Unit::Ms),
            "1001 records sent, 100.100000 records/sec (0.01 MB/sec), 20.00 ms avg latency, 20.00 \
             ms max latency, 20 ms 50th, 20 ms 95th, 20 ms 99th, 20 ms 99.9th."
        );
        assert_eq!(finished.total.latency_us.unwrap().p99, 20_015, "to three digits");
    }

    #[test]
    fn without_records_the_line_is_the_one_of_kafkas_tool() {
        let recorded = Recorded::default();
        let finished = tally(&recorded, 3, 0).finish(1_000_000);
        assert_eq!(
            total_line(&finished.total, false, Unit::Ms),
            "0 records sent, 0.000000 records/sec (0.00 MB/sec), NaN ms avg latency, 0.00 ms max \
             latency, 0 ms 50th, 0 ms 95th, 0 ms 99th, 0 ms 99.9th."
        );
    }

    #[test]
    fn behind_the_warm_up_only_the_steady_state_is_reported() {
        let recorded = Recorded::default();
        let mut tally = tally(&recorded, 40, 20);
        (0..20).for_each(|i| record(&mut tally, 100 + i, false));
        tally.begin_steady_state(1_000_000);
        // The last of the warm-up come in behind its end: they belong to the whole run only.
        record(&mut tally, 5_500, false);
        (0..20).for_each(|i| record(&mut tally, 6_000 + i, true));
        let finished = tally.finish(7_000_000);
        assert_eq!(
            recorded.lines(),
            "In steady state.\n1 records sent, 0.2 records/sec (0.00 MB/sec), 20.0 ms avg latency, \
             20.0 ms max latency.\n"
        );
        let steady = finished.steady_state.unwrap();
        assert_eq!((finished.total.records, steady.records), (41, 20));
        assert_eq!((finished.total.elapsed_ms, steady.elapsed_ms), (7000, 6000));
        assert!(total_line(&steady, true, Unit::Us).starts_with("20 steady state records sent, "));
    }

    #[test]
    fn a_batch_that_ended_before_its_window_began_belongs_to_it() {
        let recorded = Recorded::default();
        let mut tally = tally(&recorded, 3, 0);
        record(&mut tally, 5_000, false);
        // Of another producer, which got the tally later.
        record(&mut tally, 4_990, false);
        record(&mut tally, 10_000, false);
        let records: Vec<u64> =
            tally.finish(10_000_000).windows.iter().map(|w| w.records).collect();
        assert_eq!(records, [1, 2]);
    }

    #[test]
    fn percentiles_are_those_of_every_nth_latency() {
        let samples: Vec<u32> = (0..1000).rev().collect();
        assert_eq!(percentiles(&samples), [500, 950, 990, 999]);
        let mut series = Series::new(2_000_000, 0, false);
        (0..1000).for_each(|i| series.add(i, 0, 1));
        assert_eq!(series.samples, (0..1000).step_by(4).collect::<Vec<u32>>());
    }

    #[test]
    fn failures_are_told_but_not_without_end() {
        let recorded = Recorded::default();
        let mut tally = tally(&recorded, 100, 0);
        (0..30).for_each(|_| tally.failed(3, &ClientError::ClientClosed));
        let finished = tally.finish(1_000_000);
        assert_eq!((finished.failed, finished.total.records), (90, 0));
        let notices = recorded.notices();
        assert_eq!(notices.lines().count(), 22);
        assert!(notices.ends_with("90 records were not sent\n"), "{notices}");
    }
}
