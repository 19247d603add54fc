//! What was read: counts, intervals, and the lines about them, whose form and arithmetic are those
//! of Kafka's tool.

use super::super::date_format::DateFormat;
use super::super::number::fixed;
use super::super::output::{Results, cell};
use serde::Serialize;

const MIB: f64 = 1024.0 * 1024.0;

/// The header of the whole.
pub const HEADER: &str = "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, \
                          nMsg.sec, rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec";
/// The header of intervals.
pub const DETAILED_HEADER: &str = "time, threadId, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, \
     rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec";

/// Counts at a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// Records read so far.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Time of rebalances so far, in milliseconds.
    pub rebalance_ms: u64,
}

/// What was read between two moments.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Span {
    /// Milliseconds since 1970.
    pub start_ms: u64,
    /// Milliseconds since 1970.
    pub end_ms: u64,
    /// Records read since the start of the run.
    pub records: u64,
    /// Of these, 2^20 bytes.
    pub mb: f64,
    /// 2^20 bytes per second within the span.
    pub mb_per_sec: f64,
    /// Records per second within the span.
    pub records_per_sec: f64,
    /// Of the span.
    pub rebalance_ms: u64,
    /// Of the span without rebalances; negative if clocks disagree.
    pub fetch_ms: i64,
    /// 2^20 bytes per second of that time.
    pub fetch_mb_per_sec: f64,
    /// Records per second of that time.
    pub fetch_records_per_sec: f64,
}

impl Span {
    /// From one moment to another.
    pub fn between(from: &Counts, to: &Counts) -> Span {
        let elapsed_ms = to.at_ms.saturating_sub(from.at_ms);
        let rebalance_ms = to.rebalance_ms - from.rebalance_ms;
        let fetch_ms = elapsed_ms as i64 - rebalance_ms as i64;
        let (records, bytes) = (to.records - from.records, to.bytes - from.bytes);
        let per_sec = |amount: f64, ms: f64| amount * 1000.0 / ms;
        let mb = bytes as f64 / MIB;
        Span {
            start_ms: from.at_ms,
            end_ms: to.at_ms,
            records: to.records,
            mb: to.bytes as f64 / MIB,
            mb_per_sec: per_sec(mb, elapsed_ms as f64),
            records_per_sec: per_sec(records as f64, elapsed_ms as f64),
            rebalance_ms,
            fetch_ms,
            fetch_mb_per_sec: per_sec(mb, fetch_ms as f64),
            fetch_records_per_sec: per_sec(records as f64, fetch_ms as f64),
        }
    }

    fn columns(&self) -> String {
        format!(
            "{}, {}, {}, {}, {}, {}, {}, {}",
            fixed(self.mb, 4),
            fixed(self.mb_per_sec, 4),
            self.records,
            fixed(self.records_per_sec, 4),
            self.rebalance_ms,
            self.fetch_ms,
            fixed(self.fetch_mb_per_sec, 4),
            fixed(self.fetch_records_per_sec, 4),
        )
    }

    /// The line of the whole.
    pub fn line(&self, dates: &DateFormat) -> String {
        let (start, end) = (dates.format(self.start_ms), dates.format(self.end_ms));
        format!("{start}, {end}, {}", self.columns())
    }

    /// The line of an interval; the second column is a thread of old, always 0.
    pub fn detailed_line(&self, dates: &DateFormat) -> String {
        format!("{}, 0, {}", dates.format(self.end_ms), self.columns())
    }

    fn row(&self, kind: &str) -> Vec<String> {
        vec![
            kind.to_owned(),
            self.start_ms.to_string(),
            self.end_ms.to_string(),
            cell(self.mb),
            cell(self.mb_per_sec),
            self.records.to_string(),
            cell(self.records_per_sec),
            self.rebalance_ms.to_string(),
            self.fetch_ms.to_string(),
            cell(self.fetch_mb_per_sec),
            cell(self.fetch_records_per_sec),
        ]
    }
}

/// Counts records as they come, and says when an interval is over.
///
/// Kafka's tool reads the clock once in a poll, and a poll gives `max.poll.records` at most; so an
/// interval ends with the first record of a poll, and the run with the last one.
#[derive(Debug)]
pub struct Progress {
    start: Counts,
    now: Counts,
    reported: Counts,
    interval_ms: u64,
    wanted: u64,
    poll_records_max: u64,
    /// Records of the poll so far.
    in_poll: u64,
    consumed_ms: u64,
    done: bool,
}

impl Progress {
    /// Begins now.
    pub fn new(now_ms: u64, wanted: u64, interval_ms: u64, poll_records_max: u64) -> Progress {
        let start = Counts { at_ms: now_ms, ..Counts::default() };
        Progress {
            start,
            now: start,
            reported: start,
            interval_ms,
            wanted,
            poll_records_max,
            in_poll: 0,
            consumed_ms: now_ms,
            done: wanted == 0,
        }
    }

    /// Whether enough was read.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// When records came last, in milliseconds since 1970.
    pub fn consumed_ms(&self) -> u64 {
        self.consumed_ms
    }

    /// Polls have waited so long for the group, all together.
    pub fn rebalanced(&mut self, total_ms: u64) {
        self.now.rebalance_ms = total_ms;
    }

    /// A record of so many bytes; the interval that it ended, if it did.
    #[inline]
    pub fn record(&mut self, size_bytes: u64, clock: impl FnOnce() -> u64) -> Option<Span> {
        if self.done {
            return None;
        }
        let first = self.in_poll == 0;
        if first {
            self.now.at_ms = clock();
            self.consumed_ms = self.now.at_ms;
        }
        self.now.records += 1;
        self.now.bytes += size_bytes;
        self.in_poll += 1;
        let span = if first { self.interval() } else { None };
        if self.in_poll == self.poll_records_max {
            self.poll_ended();
        }
        span
    }

    /// The records at hand have been read.
    pub fn poll_ended(&mut self) {
        self.in_poll = 0;
        self.done |= self.now.records >= self.wanted;
    }

    fn interval(&mut self) -> Option<Span> {
        if self.now.at_ms - self.reported.at_ms < self.interval_ms {
            return None;
        }
        let mut span = Span::between(&self.reported, &self.now);
        if span.fetch_ms <= 0 {
            // Kafka's tool divides by no time in the line of the whole only.
            (span.fetch_mb_per_sec, span.fetch_records_per_sec) = (0.0, 0.0);
        }
        self.reported = self.now;
        Some(span)
    }

    /// The whole, at the end.
    pub fn whole(&self, now_ms: u64) -> Span {
        Span::between(&self.start, &Counts { at_ms: now_ms, ..self.now })
    }
}

/// All that is known of a run, for its file.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// Which tool.
    pub tool: &'static str,
    /// Whether no record came for too long.
    pub timed_out: bool,
    /// The whole.
    pub total: Span,
    /// The intervals.
    pub intervals: Vec<Span>,
}

impl Results for Outcome {
    const COLUMNS: &'static [&'static str] = &[
        "kind",
        "start_ms",
        "end_ms",
        "mb",
        "mb_per_sec",
        "records",
        "records_per_sec",
        "rebalance_ms",
        "fetch_ms",
        "fetch_mb_per_sec",
        "fetch_records_per_sec",
    ];

    fn rows(&self) -> Vec<Vec<String>> {
        let mut rows: Vec<_> = self.intervals.iter().map(|span| span.row("interval")).collect();
        rows.push(self.total.row("total"));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arithmetic_is_that_of_kafkas_tool() {
        // The numbers of a run of Kafka 4.3.1's tool.
        let from = Counts::default();
        let to = Counts { at_ms: 4027, records: 100_280, bytes: 10_028_000, rebalance_ms: 3723 };
        let span = Span::between(&from, &to);
        let expected = "9.5634, 2.3748, 100280, 24901.9121, 3723, 304, 31.4587, 329868.4211";
        assert_eq!(span.columns(), expected);
    }

    #[test]
    fn nothing_in_no_time_is_written_as_java_does() {
        let span = Span::between(&Counts::default(), &Counts::default());
        assert_eq!(span.columns(), "0.0000, NaN, 0, NaN, 0, 0, NaN, NaN");
    }

    #[test]
    fn a_run_ends_with_a_poll_and_so_may_read_more_than_asked() {
        let mut progress = Progress::new(0, 700, 5000, 500);
        for _ in 0..2000 {
            progress.record(10, || 1);
        }
        progress.poll_ended();
        assert!(progress.is_done());
        let whole = progress.whole(1000);
        assert_eq!((whole.records, whole.mb), (1000, 10_000.0 / MIB));
    }

    #[test]
    fn an_interval_ends_with_the_first_record_of_a_poll() {
        let mut progress = Progress::new(0, u64::MAX, 100, 500);
        progress.rebalanced(60);
        let spans: Vec<_> = (0..3000)
            .filter_map(|i| progress.record(1, move || if i < 1000 { 150 } else { 300 }))
            .collect();
        let seen = spans.iter().map(|s| (s.records, s.rebalance_ms, s.fetch_ms));
        assert_eq!(seen.collect::<Vec<_>>(), [(1, 60, 90), (1001, 0, 150)]);
        assert_eq!(spans[1].records_per_sec, 1000.0 * 1000.0 / 150.0);
    }

    #[test]
    fn an_interval_that_was_all_rebalance_has_no_fetch_rate() {
        let mut progress = Progress::new(0, u64::MAX, 100, 500);
        progress.rebalanced(150);
        let span = progress.record(1 << 20, || 150).unwrap();
        let rates = (span.fetch_mb_per_sec, span.fetch_records_per_sec);
        assert_eq!((span.fetch_ms, rates), (0, (0.0, 0.0)));
        let whole = progress.whole(150);
        assert!(whole.fetch_mb_per_sec.is_infinite(), "the line of the whole divides: {whole:?}");
    }
}
