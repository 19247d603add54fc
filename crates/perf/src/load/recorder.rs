//! What becomes of a producer's records: told batch by batch, counted without a look at each.

use super::clock::Clock;
use super::report::{LATENCY_MAX_US, Window, histogram};
use crate::stamp::{Acknowledged, Intervals};
use client::producer::BatchReport;
use hdrhistogram::Histogram;
use std::collections::HashMap;
use std::time::Duration;

/// Different errors that are kept.
const ERRORS_MAX: usize = 10;
/// Seconds that are kept one by one.
const WINDOWS_MAX: usize = 100_000;

/// When a record was taken and how much earlier it was meant to be sent, in one number: 36 bits of
/// microseconds (19 hours, [`RUN_MAX`]) and 28 (4 minutes). A longer delay counts as that, which is still more than
/// a histogram tells apart; the time from being taken to the end stays exact however far behind a
/// producer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tag(u64);

/// How long a run may last, so that its times fit a [`Tag`].
pub(super) const RUN_MAX: Duration = Duration::from_secs(19 * 3600);

impl Tag {
    const DELAY_BITS: u32 = 28;

    #[inline]
    pub(super) fn new(intended_ns: u64, taken_ns: u64) -> Tag {
        let delay_us = taken_ns.saturating_sub(intended_ns) / 1000;
        let delay_us = delay_us.min((1 << Tag::DELAY_BITS) - 1);
        let taken_us = taken_ns.max(intended_ns) / 1000;
        Tag(taken_us << Tag::DELAY_BITS | delay_us)
    }

    #[inline]
    pub(super) fn number(self) -> u64 {
        self.0
    }

    fn taken_us(self) -> u64 {
        self.0 >> Tag::DELAY_BITS
    }

    fn delay_us(self) -> u64 {
        self.0 & ((1 << Tag::DELAY_BITS) - 1)
    }
}

/// Keeps the first different errors.
#[derive(Debug, Default)]
pub(super) struct Errors(pub(super) Vec<String>);

impl Errors {
    pub(super) fn add(&mut self, error: &impl std::fmt::Display) {
        if self.0.len() < ERRORS_MAX {
            let text = error.to_string();
            if !self.0.contains(&text) {
                self.0.push(text);
            }
        }
    }
}

/// One producer's outcome so far.
pub(super) struct Recorder {
    clock: Clock,
    /// From here on records count, in nanoseconds of the clock.
    from_ns: u64,
    producer: u32,
    pub(super) acknowledged: u64,
    pub(super) failed: u64,
    /// Counted records that were acknowledged.
    pub(super) records: u64,
    /// Acknowledgements from `from_ns` on, whenever the records were sent.
    pub(super) acknowledged_since: u64,
    pub(super) last_ns: u64,
    pub(super) response: Histogram<u64>,
    pub(super) service: Histogram<u64>,
    pub(super) delay: Histogram<u64>,
    pub(super) windows: Vec<Window>,
    pub(super) errors: Errors,
    /// By topic, then partition.
    safe: HashMap<String, Vec<Intervals>>,
}

impl Recorder {
    pub(super) fn new(producer: u32) -> Recorder {
        Recorder {
            clock: Clock::start(),
            from_ns: 0,
            producer,
            acknowledged: 0,
            failed: 0,
            records: 0,
            acknowledged_since: 0,
            last_ns: 0,
            response: histogram(),
            service: histogram(),
            delay: histogram(),
            windows: Vec::new(),
            errors: Errors::default(),
            safe: HashMap::new(),
        }
    }

    /// The run begins; before that no batch ends.
    pub(super) fn begin(&mut self, clock: Clock, from_ns: u64) {
        (self.clock, self.from_ns) = (clock, from_ns);
    }

    /// A batch has ended.
    pub(super) fn take(&mut self, batch: &BatchReport<'_>) {
        let count = batch.tags.len() as u64;
        if let Err(error) = batch.result {
            self.failed += count;
            self.errors.add(error);
            return;
        }
        self.acknowledged += count;
        self.note_safe(batch, count);
        let ended_ns = self.clock.ns_of(batch.ended);
        let longest_us = self.take_times(batch.tags, ended_ns / 1000);
        self.last_ns = self.last_ns.max(ended_ns);
        if ended_ns >= self.from_ns {
            self.acknowledged_since += count;
            let second = ((ended_ns - self.from_ns) / 1_000_000_000) as usize;
            add_to_window(&mut self.windows, second, count, longest_us);
        }
    }

    fn note_safe(&mut self, batch: &BatchReport<'_>, count: u64) {
        if !self.safe.contains_key(batch.topic) {
            self.safe.insert(batch.topic.to_owned(), Vec::new());
        }
        let partitions = self.safe.get_mut(batch.topic).expect("it was just put there");
        let at = batch.partition as usize;
        if partitions.len() <= at {
            partitions.resize_with(at + 1, Intervals::default);
        }
        partitions[at].insert_range(batch.first_record, batch.first_record + count);
    }

    /// The longest response time among those that count, in microseconds.
    fn take_times(&mut self, tags: &[u64], ended_us: u64) -> u64 {
        let from_us = self.from_ns / 1000;
        let mut longest_us = 0;
        // Records that were taken at one reading of the clock are one entry.
        for equal in tags.chunk_by(|a, b| a == b) {
            let (tag, count) = (Tag(equal[0]), equal.len() as u64);
            // By when it was taken: a producer that is far behind never gets to what was meant for later.
            if tag.taken_us() < from_us {
                continue;
            }
            let (service_us, delay_us) = (ended_us.saturating_sub(tag.taken_us()), tag.delay_us());
            longest_us = longest_us.max(service_us + delay_us);
            self.records += count;
            note(&mut self.response, service_us + delay_us, count);
            note(&mut self.service, service_us, count);
            note(&mut self.delay, delay_us, count);
        }
        longest_us
    }

    /// What was acknowledged.
    pub(super) fn safe(&mut self, run: u32) -> Acknowledged {
        let mut out = Acknowledged::new(run);
        for (topic, partitions) in &self.safe {
            for (partition, numbers) in partitions.iter().enumerate() {
                if numbers.count() > 0 {
                    out.insert_all(topic, partition as i32, self.producer, numbers);
                }
            }
        }
        out
    }
}

/// Notes a time so many times; at least a microsecond, at most what a histogram tells apart.
#[inline]
pub(super) fn note(histogram: &mut Histogram<u64>, time_us: u64, count: u64) {
    let time_us = time_us.clamp(1, LATENCY_MAX_US);
    histogram.record_n(time_us, count).expect("the time is within the bounds");
}

pub(super) fn add_to_window(
    windows: &mut Vec<Window>,
    second: usize,
    records: u64,
    response_us: u64,
) {
    if second >= WINDOWS_MAX {
        return;
    }
    if windows.len() <= second {
        windows.resize(second + 1, Window::default());
    }
    let window = &mut windows[second];
    window.records += records;
    window.response_us_max = window.response_us_max.max(response_us);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_keeps_both_times() {
        let tag = Tag::new(5_000_000_000, 5_000_123_000);
        assert_eq!((tag.taken_us(), tag.delay_us()), (5_000_123, 123));
        let early = Tag::new(5_000_000_000, 4_999_000_000);
        assert_eq!((early.taken_us(), early.delay_us()), (5_000_000, 0));
        let late = Tag::new(0, 900_000_000_000);
        assert_eq!((late.taken_us(), late.delay_us()), (900_000_000, (1 << 28) - 1));
        let last = Tag::new(0, RUN_MAX.as_nanos() as u64);
        assert_eq!(last.taken_us(), RUN_MAX.as_micros() as u64);
    }

    #[test]
    fn how_far_behind_a_producer_is_does_not_change_how_long_its_records_take() {
        let mut recorder = Recorder::new(0);
        recorder.begin(Clock::start(), 0);
        // Six minutes behind, and then 40 ms on the way.
        let tag = Tag::new(1_000_000, 360_000_000_000);
        recorder.take_times(&[tag.number()], 360_040_000);
        assert_eq!(recorder.service.max(), recorder.service.highest_equivalent(40_000));
        assert_eq!(recorder.delay.max(), recorder.delay.highest_equivalent(LATENCY_MAX_US));
    }

    #[test]
    fn what_is_taken_behind_the_warm_up_counts_however_late_it_is() {
        let mut recorder = Recorder::new(0);
        recorder.begin(Clock::start(), 1_000_000_000);
        let warming_up = Tag::new(0, 900_000_000);
        let far_behind = Tag::new(100_000_000, 1_500_000_000);
        let longest_us =
            recorder.take_times(&[warming_up.number(), far_behind.number()], 2_000_000);
        assert_eq!((longest_us, recorder.records), (1_900_000, 1));
    }
}
