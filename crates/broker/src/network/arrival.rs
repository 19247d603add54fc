//! How the frame that is arriving gets on, and who has to go when memory runs out.
//!
//! Slow is no fault while there is room: a producer behind a thin line may take minutes. Under pressure
//! the incomplete frame that brought the fewest bytes a second of late goes, the largest of several, one
//! at a time; never one that is whole, never one of the last seconds. *Of late*, because a stranger may
//! send much at once and then nothing. Frames that hold little go only where all of them hold much: a thin
//! line is not what memory is short for.
//!
//! Time in which the broker itself did not read, for lack of memory or because an earlier request is not
//! done, makes no frame slow, unless it holds more than 1 MiB: of large frames that wait for each other
//! one has to go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use slab::Slab;

use super::memory::Gate;

/// From this age on an incomplete frame stands in the list of slow ones.
const SLOW_FROM: Duration = Duration::from_secs(5);
/// From this age on it may be given up for others' sake.
const GIVEN_UP_FROM: Duration = Duration::from_secs(10);
/// After this age it goes, whatever else.
pub const AGE_MAX: Duration = Duration::from_secs(600);
/// How often a slow frame is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// Time between two that are given up: the first one's memory comes back in between.
const APART: Duration = Duration::from_millis(100);

/// Frames that hold more than this many bytes grow older while they wait for memory.
const LARGE_BYTES: u64 = 1 << 20;
/// Frames that hold less go only if slow ones of them hold more than this part of the gate together.
const SMALL_FRAMES_PART: u64 = 8;
/// Over how long "of late" is.
const WINDOW: Duration = Duration::from_secs(5);

/// What was seen of a frame when it was last looked at.
#[derive(Debug, Clone, Copy)]
struct Seen {
    bytes: u64,
    began: Instant,
    /// Time in which the broker read it, up to `at`.
    age: Duration,
    at: Instant,
    /// Whether the broker has been reading it since.
    reading: bool,
    /// Bytes a second in the last whole window.
    rate: f64,
    /// Age and bytes when that window ended.
    window: (Duration, u64),
}

impl Seen {
    fn first(bytes: u64, reading: bool, now: Instant) -> Seen {
        Seen {
            bytes,
            began: now,
            age: Duration::ZERO,
            at: now,
            reading,
            rate: f64::INFINITY,
            window: (Duration::ZERO, bytes),
        }
    }

    fn age(&self, now: Instant) -> Duration {
        let since = if self.reading { now.duration_since(self.at) } else { Duration::ZERO };
        self.age + since
    }

    /// The age that counts when somebody has to go.
    fn held_for(&self, now: Instant) -> Duration {
        if self.bytes > LARGE_BYTES { now.duration_since(self.began) } else { self.age(now) }
    }

    fn look(&mut self, bytes: u64, reading: bool, now: Instant) {
        self.age = self.age(now);
        (self.bytes, self.at, self.reading) = (bytes, now, reading);
        let (since, before) = self.window;
        let held_for = self.held_for(now);
        let passed = held_for.saturating_sub(since);
        if passed >= WINDOW {
            self.rate = bytes.saturating_sub(before) as f64 / passed.as_secs_f64();
            self.window = (held_for, bytes);
        }
    }
}

#[derive(Debug)]
struct SlowFrame {
    seen: Mutex<Seen>,
    given_up: AtomicBool,
    waker: Waker,
}

/// The frames of all connections that have been arriving for some seconds.
#[derive(Debug, Default)]
pub struct SlowFrames {
    frames: Mutex<Slab<Arc<SlowFrame>>>,
    last: Mutex<Option<Instant>>,
}

impl SlowFrames {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.frames.lock().len()
    }

    /// If memory is short, gives the slowest frame up. To be called by whoever waits for memory.
    pub fn relieve(&self, gate: &Gate, now: Instant) {
        if !gate.is_under_pressure() {
            return;
        }
        {
            let mut last = self.last.lock();
            if last.is_some_and(|last| now.duration_since(last) < APART) {
                return;
            }
            *last = Some(now);
        }
        let frames = self.frames.lock();
        let is_small = |seen: &Seen| seen.bytes <= LARGE_BYTES;
        let small = frames.iter().map(|(_, frame)| *frame.seen.lock()).filter(is_small);
        let small_may_go =
            small.map(|seen| seen.bytes).sum::<u64>() > gate.bytes_max() as u64 / SMALL_FRAMES_PART;
        let candidates = frames.iter().filter_map(|(_, frame)| {
            let seen = *frame.seen.lock();
            let may_go = seen.held_for(now) >= GIVEN_UP_FROM && (small_may_go || !is_small(&seen));
            let goes_already = frame.given_up.load(Ordering::Relaxed);
            (may_go && !goes_already).then_some((seen, frame))
        });
        let slowest = candidates
            .min_by(|(a, _), (b, _)| a.rate.total_cmp(&b.rate).then_with(|| b.bytes.cmp(&a.bytes)));
        if let Some((_, frame)) = slowest {
            frame.given_up.store(true, Ordering::Release);
            frame.waker.wake_by_ref();
        }
    }
}

/// What is to become of a connection with an incomplete frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Fine,
    /// Memory is short, and this frame brings the fewest bytes a second.
    GivenUp,
    /// It has taken longer than any frame may.
    TooOld,
}

/// The frame that is arriving at one connection.
#[derive(Debug, Default)]
pub struct Arrival {
    current: Option<Current>,
}

#[derive(Debug)]
struct Current {
    /// The frame's number in its connection.
    number: u64,
    seen: Seen,
    listed: Option<Listed>,
}

/// A place in the list of slow frames.
#[derive(Debug)]
struct Listed {
    frames: Arc<SlowFrames>,
    key: usize,
    frame: Arc<SlowFrame>,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.frames.frames.lock().remove(self.key);
    }
}

impl Arrival {
    /// Notes how far the incomplete frame of this number has come, or that there is none. `reading`:
    /// whether the broker reads from now on.
    pub fn look(
        &mut self,
        incomplete: Option<u64>,
        bytes: usize,
        reading: bool,
        now: Instant,
    ) -> Verdict {
        let Some(number) = incomplete else {
            self.current = None;
            return Verdict::Fine;
        };
        let bytes = bytes as u64;
        let current = match &mut self.current {
            Some(current) if current.number == number => current,
            _ => {
                let seen = Seen::first(bytes, reading, now);
                self.current = Some(Current { number, seen, listed: None });
                return Verdict::Fine;
            }
        };
        current.seen.look(bytes, reading, now);
        if let Some(listed) = &current.listed {
            *listed.frame.seen.lock() = current.seen;
            if listed.frame.given_up.load(Ordering::Acquire) {
                return Verdict::GivenUp;
            }
        }
        if current.seen.age >= AGE_MAX { Verdict::TooOld } else { Verdict::Fine }
    }

    /// Lists the frame if it has become a slow one.
    pub fn list(&mut self, frames: &Arc<SlowFrames>, waker: &Waker) {
        let Some(current) = &mut self.current else { return };
        if current.listed.is_some() || current.seen.held_for(current.seen.at) < SLOW_FROM {
            return;
        }
        let frame = Arc::new(SlowFrame {
            seen: Mutex::new(current.seen),
            given_up: AtomicBool::new(false),
            waker: waker.clone(),
        });
        let key = frames.frames.lock().insert(Arc::clone(&frame));
        current.listed = Some(Listed { frames: Arc::clone(frames), key, frame });
    }

    /// When to look again, if a frame is arriving.
    pub fn deadline(&self) -> Option<Instant> {
        let current = self.current.as_ref()?;
        if current.listed.is_some() {
            return Some(current.seen.at + LOOK);
        }
        let held_for = current.seen.held_for(current.seen.at);
        Some(current.seen.at + SLOW_FROM.saturating_sub(held_for).max(LOOK))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::memory::RequestMemory;

    const MIB: usize = 1 << 20;

    /// Frames that began at `start` and have brought so many bytes by second `at_s`.
    fn arrivals(
        frames: &Arc<SlowFrames>,
        bytes: &[usize],
        start: Instant,
        at_s: u64,
    ) -> Vec<Arrival> {
        let look = |bytes: &usize| {
            let mut arrival = Arrival::default();
            arrival.look(Some(0), 1, true, start);
            arrival.look(Some(0), *bytes, true, start + Duration::from_secs(at_s));
            arrival.list(frames, Waker::noop());
            arrival
        };
        bytes.iter().map(look).collect()
    }

    fn gate(used_mib: usize) -> (RequestMemory, super::super::memory::Charge) {
        let memory = RequestMemory::new(128 * MIB, 100 * MIB);
        let mut charge = memory.frames.charge();
        charge.set(used_mib * MIB);
        (memory, charge)
    }

    #[test]
    fn the_slowest_goes_and_only_under_pressure() {
        let (start, frames) = (Instant::now(), Arc::new(SlowFrames::default()));
        let at = start + Duration::from_secs(20);
        let bytes = [3 * MIB, 2 * MIB, 500];
        let mut arrivals = arrivals(&frames, &bytes, start, 20);
        let mut verdicts_after = |used_mib| {
            let (memory, _charge) = gate(used_mib);
            frames.relieve(&memory.frames, at);
            let looks = arrivals.iter_mut().zip(bytes);
            looks.map(|(arrival, bytes)| arrival.look(Some(0), bytes, true, at)).collect::<Vec<_>>()
        };
        assert_eq!(verdicts_after(90), [Verdict::Fine; 3]);
        assert_eq!(verdicts_after(100), [Verdict::Fine, Verdict::GivenUp, Verdict::Fine]);
    }

    #[test]
    fn frames_that_hold_little_go_only_where_all_of_them_hold_much() {
        let (start, at_s) = (Instant::now(), 20);
        let at = start + Duration::from_secs(at_s);
        for (count, goes) in [(15, false), (17, true)] {
            let frames = Arc::new(SlowFrames::default());
            let bytes = [vec![MIB; count], vec![70_000]].concat();
            let mut arrivals = arrivals(&frames, &bytes, start, at_s);
            let (memory, _charge) = gate(120);
            frames.relieve(&memory.frames, at);
            let slow = arrivals.last_mut().expect("one more than so many");
            let expected = if goes { Verdict::GivenUp } else { Verdict::Fine };
            assert_eq!(slow.look(Some(0), 70_000, true, at), expected, "beside {count}");
        }
    }

    #[test]
    fn a_young_frame_is_never_given_up() {
        let (start, frames) = (Instant::now(), Arc::new(SlowFrames::default()));
        let mut arrivals = arrivals(&frames, &[2 * MIB], start, 9);
        let (memory, _charge) = gate(128);
        let at = start + Duration::from_secs(9);
        frames.relieve(&memory.frames, at);
        let look = arrivals[0].look(Some(0), 2 * MIB, true, at);
        assert_eq!((frames.count(), look), (1, Verdict::Fine));
        drop(arrivals);
        assert_eq!(frames.count(), 0);
    }

    #[test]
    fn time_in_which_nothing_is_read_makes_nobody_slow() {
        let (start, frames) = (Instant::now(), Arc::new(SlowFrames::default()));
        let (short, _charge) = gate(120);
        let second = |s| start + Duration::from_secs(s);
        let mut victim = Arrival::default();
        victim.look(Some(3), 65_536, true, start);
        // It waits for memory from the first second on.
        victim.look(Some(3), 65_536, false, second(1));
        for s in 2..700 {
            assert_eq!(victim.look(Some(3), 65_536, false, second(s)), Verdict::Fine);
            victim.list(&frames, Waker::noop());
            frames.relieve(&short.frames, second(s));
        }
        assert_eq!(frames.count(), 0, "one second of age");
        assert_eq!(victim.look(Some(3), 65_536, true, second(700)), Verdict::Fine);
    }

    #[test]
    fn who_sent_much_and_then_nothing_goes_before_who_is_slow() {
        let (start, frames) = (Instant::now(), Arc::new(SlowFrames::default()));
        let second = |s| start + Duration::from_secs(s);
        let (short, _charge) = gate(120);
        let (mut slow, mut burst) = (Arrival::default(), Arrival::default());
        slow.look(Some(0), 1, true, start);
        burst.look(Some(0), 1, true, start);
        let mut gone = None;
        for s in 1..60 {
            // 1 Mbit/s, and never as much as 1 MiB; the other one waits for memory all the time.
            let bytes = (s as usize * 125_000).min(MIB - 1);
            assert_eq!(slow.look(Some(0), bytes, true, second(s)), Verdict::Fine, "second {s}");
            if gone.is_none() && burst.look(Some(0), 25 * MIB, false, second(s)) == Verdict::GivenUp
            {
                gone = Some(s);
                burst = Arrival::default();
            }
            slow.list(&frames, Waker::noop());
            burst.list(&frames, Waker::noop());
            if gone.is_none() {
                frames.relieve(&short.frames, second(s));
            }
        }
        assert_eq!(gone, Some(11), "as soon as it is old enough");
    }

    #[test]
    fn ten_minutes_are_the_end_and_another_frame_begins_anew() {
        let start = Instant::now();
        let second = |s| start + Duration::from_secs(s);
        let mut arrival = Arrival::default();
        arrival.look(Some(0), 10, true, start);
        assert_eq!(arrival.look(Some(0), 20, true, second(599)), Verdict::Fine);
        assert_eq!(arrival.look(Some(0), 30, true, second(600)), Verdict::TooOld);
        assert_eq!(arrival.look(Some(1), 30, true, second(601)), Verdict::Fine);
        assert_eq!(arrival.look(None, 0, true, second(602)), Verdict::Fine);
        assert_eq!(arrival.deadline(), None);
    }
}
