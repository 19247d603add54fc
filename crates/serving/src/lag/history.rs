//! How far a group was behind over a day, in 6.7 KB: a value for each quarter of a minute of the last hour, and for each
//! minute of the last day the *worst* value, because peaks are what a day is looked at for.
//!
//! Values are 16-bit logarithms: 0 says that nothing was measured, 1 is zero, and above that each step is 0.07 %, so
//! that a value is right within 0.04 %, and small ones exactly. Logarithms rise with what they stand for: the worst value
//! is the largest code.
//!
//! On disk: `HWLH`, a version (1), the newest slot of both series (i64), the codes of both from slot 0 of their rings on, and
//! CRC-32C of all of that; little-endian. What does not fit is not believed.

use std::fmt;

use crc_fast::crc32_iscsi;

/// Milliseconds of a slot of the last hour.
pub const FINE_MS: i64 = 15_000;
/// Slots of the last hour.
pub const FINE_SLOTS: usize = 240;
/// Milliseconds of a slot of the last day.
pub const COARSE_MS: i64 = 60_000;
/// Slots of the last day.
pub const COARSE_SLOTS: usize = 1440;

const MAGIC: &[u8; 4] = b"HWLH";
const VERSION: u8 = 1;
const HEAD_BYTES: usize = 4 + 1 + 2 * 8;
const CODES_BYTES: usize = (FINE_SLOTS + COARSE_SLOTS) * 4;
/// Bytes of one history on disk.
pub const BYTES: usize = HEAD_BYTES + CODES_BYTES + 4;

/// How far a group was behind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lag {
    /// Records that were not read.
    pub records: u64,
    /// How long ago the oldest of them had arrived, in milliseconds.
    pub ms: u64,
}

/// Why bytes cannot be read as a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreadable {
    /// They are too many or too few.
    Length(usize),
    /// They begin with something else, or with a version that this program does not know.
    Kind,
    /// They were damaged.
    Checksum,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unreadable::Length(bytes) => {
                write!(f, "expected {BYTES} bytes of a lag history, found {bytes}")
            }
            Unreadable::Kind => f.write_str("not a lag history of a version that is known"),
            Unreadable::Checksum => f.write_str("the checksum of the lag history does not match"),
        }
    }
}

impl std::error::Error for Unreadable {}

/// A day of one group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    fine: Series,
    coarse: Series,
}

impl Default for History {
    fn default() -> History {
        History {
            fine: Series::new(FINE_MS, FINE_SLOTS),
            coarse: Series::new(COARSE_MS, COARSE_SLOTS),
        }
    }
}

impl History {
    /// Takes in how far the group was behind at a time, in milliseconds since 1970. Of a slot the worst counts; a time
    /// before 1970, or before all that is kept, counts for nothing.
    pub fn note(&mut self, at_ms: i64, lag: Lag) {
        let codes = [code(lag.records), code(lag.ms)];
        self.fine.note(at_ms, codes);
        self.coarse.note(at_ms, codes);
    }

    /// Whether anything was measured.
    pub fn is_begun(&self) -> bool {
        self.coarse.codes.iter().any(|codes| codes[0] != 0)
    }

    /// The last hour, oldest first: the beginning of each slot in milliseconds, and what was measured.
    pub fn hour(&self) -> impl Iterator<Item = (i64, Option<Lag>)> + '_ {
        self.fine.points()
    }

    /// The last day, oldest first: the beginning of each minute in milliseconds, and the worst of it.
    pub fn day(&self) -> impl Iterator<Item = (i64, Option<Lag>)> + '_ {
        self.coarse.points()
    }

    /// As it is kept on disk.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(BYTES);
        out.extend_from_slice(MAGIC);
        out.push(VERSION);
        out.extend_from_slice(&self.fine.newest.to_le_bytes());
        out.extend_from_slice(&self.coarse.newest.to_le_bytes());
        for codes in self.fine.codes.iter().chain(&self.coarse.codes) {
            out.extend(codes.iter().flat_map(|code| code.to_le_bytes()));
        }
        out.extend_from_slice(&crc(&out).to_le_bytes());
        assert_eq!(out.len(), BYTES, "a history has one size");
        out
    }

    /// Out of the bytes of [`History::to_bytes`].
    ///
    /// # Errors
    /// They are something else, or damaged.
    pub fn from_bytes(bytes: &[u8]) -> Result<History, Unreadable> {
        if bytes.len() != BYTES {
            return Err(Unreadable::Length(bytes.len()));
        }
        if bytes[..4] != *MAGIC || bytes[4] != VERSION {
            return Err(Unreadable::Kind);
        }
        let (body, sum) = bytes.split_at(BYTES - 4);
        if sum != crc(body).to_le_bytes() {
            return Err(Unreadable::Checksum);
        }
        let slot =
            |at: usize| i64::from_le_bytes(body[at..at + 8].try_into().expect("eight bytes"));
        let (fine, coarse) = body[HEAD_BYTES..].split_at(FINE_SLOTS * 4);
        let mut history = History::default();
        history.fine.restore(slot(5), fine);
        history.coarse.restore(slot(13), coarse);
        Ok(history)
    }
}

/// Slots of one length, in a ring.
///
/// Invariant: the code at `slot % codes.len()` belongs to that slot, for the slots up to `newest`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Series {
    slot_ms: i64,
    /// The newest slot, counted from 1970; -1 before the first.
    newest: i64,
    /// Records and milliseconds; 0 where nothing was measured.
    codes: Vec<[u16; 2]>,
}

impl Series {
    fn new(slot_ms: i64, slots: usize) -> Series {
        Series { slot_ms, newest: -1, codes: vec![[0; 2]; slots] }
    }

    fn place(&self, slot: i64) -> usize {
        slot.rem_euclid(self.codes.len() as i64) as usize
    }

    fn note(&mut self, at_ms: i64, codes: [u16; 2]) {
        let slot = at_ms.div_euclid(self.slot_ms);
        let slots = self.codes.len() as i64;
        if slot < 0 || slot <= self.newest - slots {
            return;
        }
        // What lies between was not measured.
        for passed in (self.newest + 1).max(slot - slots + 1)..=slot {
            let place = self.place(passed);
            self.codes[place] = [0; 2];
        }
        self.newest = self.newest.max(slot);
        let place = self.place(slot);
        let kept = &mut self.codes[place];
        *kept = [kept[0].max(codes[0]), kept[1].max(codes[1])];
    }

    fn points(&self) -> impl Iterator<Item = (i64, Option<Lag>)> + '_ {
        let slots = self.codes.len() as i64;
        let first = (self.newest - slots + 1).max(0);
        (first..=self.newest).map(move |slot| {
            let [records, ms] = self.codes[self.place(slot)];
            let lag =
                (records > 0 && ms > 0).then(|| Lag { records: value(records), ms: value(ms) });
            (slot.saturating_mul(self.slot_ms), lag)
        })
    }

    /// Slots that no clock has seen are none.
    fn restore(&mut self, newest: i64, bytes: &[u8]) {
        if !(0..=i64::MAX / self.slot_ms).contains(&newest) {
            return;
        }
        self.newest = newest;
        for (codes, bytes) in self.codes.iter_mut().zip(bytes.chunks_exact(4)) {
            *codes = [
                u16::from_le_bytes([bytes[0], bytes[1]]),
                u16::from_le_bytes([bytes[2], bytes[3]]),
            ];
        }
    }
}

fn crc(bytes: &[u8]) -> u32 {
    crc32_iscsi(bytes)
}

/// Steps for each factor of e: the largest u64 still has a code.
const STEPS: f64 = 1476.0;

fn code(value: u64) -> u16 {
    match value {
        0 => 1,
        _ => 2 + ((value as f64).ln() * STEPS).round() as u16,
    }
}

fn value(code: u16) -> u64 {
    match code {
        0 | 1 => 0,
        _ => (f64::from(code - 2) / STEPS).exp().round() as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: i64 = 1_700_000_000_000;

    fn lag(records: u64) -> Lag {
        Lag { records, ms: records }
    }

    fn newest(points: impl Iterator<Item = (i64, Option<Lag>)>) -> Option<u64> {
        points.last().unwrap().1.map(|lag| lag.records)
    }

    #[test]
    fn the_worst_of_a_slot_is_kept() {
        let mut history = History::default();
        for records in [3, 90, 7] {
            history.note(NOW, lag(records));
        }
        assert_eq!(newest(history.hour()), Some(90));
        history.note(NOW + FINE_MS, lag(4));
        assert_eq!(newest(history.hour()), Some(4));
        assert_eq!(newest(history.day()), Some(90), "the same minute");
        let first = history.hour().next().unwrap().0;
        assert_eq!(first, (NOW / FINE_MS + 2 - FINE_SLOTS as i64) * FINE_MS);
    }

    #[test]
    fn what_was_not_measured_is_not_zero() {
        let mut history = History::default();
        history.note(NOW, lag(0));
        history.note(NOW + 3 * COARSE_MS, lag(5));
        let day: Vec<_> = history.day().map(|(_, lag)| lag.map(|lag| lag.records)).collect();
        assert_eq!(day[COARSE_SLOTS - 4..], [Some(0), None, None, Some(5)]);
        assert_eq!(day.iter().flatten().count(), 2);
    }

    #[test]
    fn a_day_is_forgotten_after_a_day() {
        let mut history = History::default();
        history.note(NOW, lag(5));
        history.note(NOW + 7 * 24 * 3_600_000, lag(6));
        assert_eq!(history.day().filter_map(|(_, lag)| lag).collect::<Vec<_>>(), [lag(6)]);
        history.note(NOW, lag(9));
        assert_eq!(history.day().filter_map(|(_, lag)| lag).count(), 1, "too old");
        assert_eq!(History::default().day().count(), 0);
    }

    #[test]
    fn bytes_of_something_else_are_not_believed() {
        let mut history = History::default();
        history.note(NOW, lag(5));
        let bytes = history.to_bytes();
        assert_eq!(History::from_bytes(&bytes), Ok(history));
        assert_eq!(History::from_bytes(&bytes[1..]), Err(Unreadable::Length(BYTES - 1)));
        assert_eq!(History::from_bytes(&[0; BYTES]), Err(Unreadable::Kind));
        for at in 5..BYTES {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            assert_eq!(History::from_bytes(&damaged), Err(Unreadable::Checksum), "byte {at}");
        }
    }

    #[test]
    fn a_slot_beyond_all_clocks_harms_nothing() {
        for newest in [i64::MAX, i64::MIN, -1] {
            let mut bytes = History::default().to_bytes();
            bytes[5..13].copy_from_slice(&newest.to_le_bytes());
            bytes[13..21].copy_from_slice(&newest.to_le_bytes());
            let sum = crc(&bytes[..BYTES - 4]).to_le_bytes();
            bytes[BYTES - 4..].copy_from_slice(&sum);
            let mut history = History::from_bytes(&bytes).unwrap();
            assert_eq!(history.day().count(), 0);
            history.note(NOW, lag(5));
            assert_eq!(newest_of(&history), Some(5));
        }
        let mut last = History::default();
        last.note(i64::MAX, lag(1));
        last.note(i64::MAX, lag(2));
        assert_eq!(newest_of(&last), Some(2));
    }

    fn newest_of(history: &History) -> Option<u64> {
        newest(history.day())
    }

    proptest! {
        #[test]
        fn a_value_is_right_within_a_thousandth(wanted: u64) {
            let back = value(code(wanted));
            let off = (back as f64 - wanted as f64).abs();
            prop_assert!(off <= wanted as f64 * 0.0005, "{wanted} became {back}");
        }

        #[test]
        fn small_values_are_exact_and_codes_rise(small in 0u64..1_000, a: u64, b: u64) {
            prop_assert_eq!(value(code(small)), small);
            let (low, high) = (a.min(b), a.max(b));
            prop_assert!(code(low) <= code(high));
        }

        /// Against a list of everything that was noted.
        #[test]
        fn a_day_is_the_worst_of_each_minute(
            notes in prop::collection::vec((0i64..200_000, 0u64..1_000), 1..200),
        ) {
            let (mut history, mut now, mut all) = (History::default(), NOW, Vec::new());
            for (ms, records) in notes {
                now += ms;
                history.note(now, lag(records));
                all.push((now.div_euclid(COARSE_MS), records));
            }
            let last = all.last().unwrap().0;
            for (at_ms, found) in history.day() {
                let slot = at_ms / COARSE_MS;
                prop_assert!(slot > last - COARSE_SLOTS as i64 && slot <= last);
                let worst = all.iter().filter(|(at, _)| *at == slot).map(|(_, records)| *records).max();
                prop_assert_eq!(found.map(|lag| lag.records), worst);
            }
            prop_assert_eq!(History::from_bytes(&history.to_bytes()), Ok(history));
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            prop_assert!(History::from_bytes(&bytes).is_err());
        }
    }
}
