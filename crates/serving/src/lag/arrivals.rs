//! When the records of a partition arrived, by looks at the end of its log now and then.
//!
//! Kafka answers which offset was written at a time, and not when an offset was written; to read each record whose age is
//! of interest would read a batch for each group and partition. The ends of logs cost one request for each broker, and a
//! record that lies between two ends arrived between the two looks.
//!
//! Kept are [`SAMPLES_MAX`] looks a partition, the older the sparser: ages are right within one interval for what is
//! minutes old, and within a share of the age for what is older.

use crate::overview::rate::{Seen, per_second};

/// Looks that are kept of one partition.
pub const SAMPLES_MAX: usize = 64;

/// The ends of one log.
///
/// A cluster has tens of thousands of logs, so looks are kept as what they are more than the one before: some 5 bytes each,
/// and nothing but the first and the last of a log that rests.
///
/// Invariant: offsets never fall, times rise, and of equal offsets at most two follow each other: the first look and the last.
#[derive(Debug, Clone, Default)]
pub struct Arrivals {
    /// How many looks there are.
    count: u8,
    /// The first one, if there is one.
    first: Seen,
    /// The one before the last, if there are two.
    before: Seen,
    /// The last one, if there is one.
    last: Seen,
    /// The looks behind the first and up to `before`: by how much offset and time are more than in the look before, each in
    /// groups of seven bits, the lowest first, with the eighth set where another follows.
    between: Vec<u8>,
}

/// How long ago the oldest unread record arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Behind {
    /// In milliseconds; 0 if nothing is unread.
    pub ms: i64,
    /// It is older than the first look: `ms` is the least that it can be.
    pub at_least: bool,
}

impl Behind {
    /// Nothing is unread.
    pub const NOT: Behind = Behind { ms: 0, at_least: false };

    /// The longer of two.
    pub fn worse(self, other: Behind) -> Behind {
        if (other.ms, other.at_least) > (self.ms, self.at_least) { other } else { self }
    }
}

impl Arrivals {
    /// Takes in one look. A log whose end went back was cut or made anew, and a clock that went back says nothing of
    /// what was before: both begin anew.
    pub fn note(&mut self, seen: Seen) {
        if self.last().is_some_and(|last| seen.end < last.end || seen.at_ms <= last.at_ms) {
            *self = Arrivals::default();
        }
        if self.count >= 2 && self.before.end == seen.end && self.last.end == seen.end {
            self.last.at_ms = seen.at_ms;
            return;
        }
        self.push(seen);
        if usize::from(self.count) > SAMPLES_MAX {
            self.thin();
        }
    }

    fn push(&mut self, seen: Seen) {
        match self.count {
            0 => self.first = seen,
            1 => self.before = self.last,
            _ => {
                let (before, last) = (self.before, self.last);
                write(&mut self.between, last.end.wrapping_sub(before.end));
                write(&mut self.between, last.at_ms.wrapping_sub(before.at_ms));
                self.before = last;
            }
        }
        self.last = seen;
        self.count += 1;
    }

    /// Drops each second look of the older half, but the very first.
    fn thin(&mut self) {
        let mut thinner = Arrivals::default();
        let kept = self.samples().zip(1..).filter(|(_, at)| *at > SAMPLES_MAX / 2 || at % 2 == 1);
        kept.for_each(|(seen, _)| thinner.push(seen));
        *self = thinner;
    }

    /// All looks that are kept, the oldest first.
    fn samples(&self) -> impl Iterator<Item = Seen> + '_ {
        let mut bytes = self.between.iter();
        let mut seen = self.first;
        (0..self.count).map(move |at| {
            match at {
                0 => {}
                at if at + 1 == self.count => seen = self.last,
                _ => {
                    seen.end = seen.end.wrapping_add(read(&mut bytes));
                    seen.at_ms = seen.at_ms.wrapping_add(read(&mut bytes));
                }
            }
            seen
        })
    }

    /// Records a second between the last two looks.
    pub fn per_second(&self) -> Option<f64> {
        if self.count < 2 { None } else { per_second(self.before, self.last) }
    }

    /// The last look.
    pub fn last(&self) -> Option<Seen> {
        (self.count > 0).then_some(self.last)
    }

    /// How long ago, at `now_ms`, the record at `position` arrived, which is the oldest that was not read; `None` before
    /// the first look. Within two looks records count as evenly spread.
    pub fn behind(&self, position: i64, now_ms: i64) -> Option<Behind> {
        let last = self.last()?;
        if position >= last.end {
            return Some(Behind::NOT);
        }
        let age = |at_ms: i64| now_ms.saturating_sub(at_ms).max(0);
        let mut earlier: Option<Seen> = None;
        let later = self.samples().find(|sample| {
            let is_behind = sample.end > position;
            if !is_behind {
                earlier = Some(*sample);
            }
            is_behind
        });
        let later = later.unwrap_or(last);
        let Some(earlier) = earlier else {
            return Some(Behind { ms: age(later.at_ms), at_least: true });
        };
        let records = (later.end - earlier.end) as f64;
        let share = (position - earlier.end + 1) as f64 / records;
        let arrived = earlier.at_ms + ((later.at_ms - earlier.at_ms) as f64 * share) as i64;
        Some(Behind { ms: age(arrived), at_least: false })
    }
}

/// Room that is made at a time, in bytes: three looks of most logs. Twice as much each time would leave a third of it unused.
const ROOM_BYTES: usize = 16;

/// Writes a number that is hardly ever large.
fn write(bytes: &mut Vec<u8>, number: i64) {
    let mut left = number.cast_unsigned();
    loop {
        if bytes.len() == bytes.capacity() {
            bytes.reserve_exact(ROOM_BYTES);
        }
        if left < 1 << 7 {
            bytes.push(left as u8);
            return;
        }
        bytes.push(left as u8 | 1 << 7);
        left >>= 7;
    }
}

/// Reads what [`write`] wrote.
fn read(bytes: &mut std::slice::Iter<'_, u8>) -> i64 {
    let mut number = 0_u64;
    for (at, byte) in (0..).zip(bytes) {
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte >> 7 == 0 {
            break;
        }
    }
    number.cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn looks(ends: &[(i64, i64)]) -> Arrivals {
        let mut arrivals = Arrivals::default();
        ends.iter().for_each(|(end, at_ms)| arrivals.note(Seen { end: *end, at_ms: *at_ms }));
        arrivals
    }

    fn exactly(ms: i64) -> Option<Behind> {
        Some(Behind { ms, at_least: false })
    }

    #[test]
    fn a_record_arrived_between_the_looks_that_it_lies_between() {
        let arrivals = looks(&[(0, 0), (100, 10_000), (200, 20_000)]);
        assert_eq!(arrivals.behind(99, 20_000), exactly(10_000));
        assert_eq!(arrivals.behind(149, 20_000), exactly(5_000));
        assert_eq!(arrivals.behind(199, 21_000), exactly(1_000));
        assert_eq!(arrivals.behind(200, 99_000), exactly(0));
        assert_eq!(arrivals.behind(900, 99_000), exactly(0));
        assert_eq!(arrivals.per_second(), Some(10.0));
    }

    #[test]
    fn what_was_there_before_the_first_look_is_at_least_so_old() {
        let arrivals = looks(&[(50, 1_000), (60, 2_000)]);
        assert_eq!(arrivals.behind(49, 9_000), Some(Behind { ms: 8_000, at_least: true }));
        assert_eq!(arrivals.behind(0, 9_000), Some(Behind { ms: 8_000, at_least: true }));
        assert_eq!(looks(&[]).behind(0, 9_000), None);
    }

    #[test]
    fn a_log_that_rests_costs_two_looks_and_keeps_the_last() {
        let mut arrivals = looks(&[(5, 0)]);
        (1..1000).for_each(|i| arrivals.note(Seen { end: 5, at_ms: i * 1000 }));
        arrivals.note(Seen { end: 6, at_ms: 1_000_000 });
        assert_eq!(arrivals.samples().count(), 3);
        assert_eq!(arrivals.behind(5, 1_000_500), exactly(500));
        assert_eq!(arrivals.per_second(), Some(1.0));
    }

    /// A console remembers 50,000 partitions: in 512 bytes each, 25 MiB at the most.
    #[test]
    fn a_log_that_grows_takes_half_a_kilobyte_at_the_most() {
        let bytes = |arrivals: &Arrivals| size_of::<Arrivals>() + arrivals.between.capacity();
        let of = |records_per_look: i64| {
            let ends: Vec<_> = (0..6000).map(|at| (at * records_per_look, at * 15_000)).collect();
            let after = (1..ends.len()).step_by(97);
            after.map(|looks| bytes(&self::looks(&ends[..looks]))).max()
        };
        assert!(of(0).unwrap() <= 96, "a log that rests: {:?}", of(0));
        // Ten thousand a second.
        assert!(of(150_000).unwrap() <= 512, "{:?}", of(150_000));
    }

    #[test]
    fn a_log_or_a_clock_that_goes_back_begins_anew() {
        let cut = looks(&[(0, 0), (100, 1000), (40, 2000)]);
        assert_eq!(cut.behind(39, 3000), Some(Behind { ms: 1000, at_least: true }));
        assert_eq!(cut.per_second(), None);
        let back = looks(&[(0, 5000), (100, 1000)]);
        assert_eq!(back.behind(99, 1500), Some(Behind { ms: 500, at_least: true }));
    }

    #[test]
    fn the_worse_of_two_is_the_older() {
        let (exact, least) = (Behind { ms: 5, at_least: false }, Behind { ms: 5, at_least: true });
        assert_eq!(exact.worse(least), least);
        assert_eq!(least.worse(Behind::NOT), least);
    }

    proptest! {
        /// Looks are kept as they were, be their numbers what a broker has made up.
        #[test]
        fn looks_come_back_as_they_were(
            mut ends in prop::collection::vec(any::<i64>(), 1..60),
            mut times in prop::collection::btree_set(any::<i64>(), 60),
        ) {
            ends.sort_unstable();
            ends.dedup();
            let all: Vec<Seen> = ends
                .iter()
                .filter_map(|end| Some(Seen { end: *end, at_ms: times.pop_first()? }))
                .collect();
            let mut arrivals = Arrivals::default();
            all.iter().for_each(|seen| arrivals.note(*seen));
            prop_assert_eq!(arrivals.samples().collect::<Vec<_>>(), all);
        }

        /// Whatever a log does, what is kept is bounded, and an age lies between those of the two looks around the record.
        #[test]
        fn an_age_lies_between_the_looks_around_the_record(
            steps in prop::collection::vec((0i64..50, 1i64..20_000), 1..600),
            back in 0i64..2_000,
        ) {
            let (mut end, mut now) = (0, 0);
            let mut all = Vec::new();
            let mut arrivals = Arrivals::default();
            for (records, ms) in steps {
                (end, now) = (end + records, now + ms);
                all.push(Seen { end, at_ms: now });
                arrivals.note(Seen { end, at_ms: now });
                prop_assert!(arrivals.samples().count() <= SAMPLES_MAX);
            }
            let position = (end - back).max(0);
            let behind = arrivals.behind(position, now).unwrap();
            if position >= end {
                prop_assert_eq!(behind, Behind::NOT);
            } else {
                // Looks were thinned out, so that the kept ones around the record are further apart.
                let kept: Vec<Seen> = arrivals.samples().collect();
                let after = kept.partition_point(|sample| sample.end <= position);
                let youngest = now - kept[after].at_ms;
                prop_assert!(behind.ms >= youngest);
                let truly = all.iter().find(|seen| seen.end > position).unwrap();
                if behind.at_least {
                    prop_assert_eq!(after, 0);
                    prop_assert!(behind.ms <= now - truly.at_ms);
                } else {
                    prop_assert!(behind.ms <= now - kept[after - 1].at_ms);
                    prop_assert!(truly.at_ms <= kept[after].at_ms && truly.at_ms > kept[after - 1].at_ms);
                }
            }
        }
    }
}
