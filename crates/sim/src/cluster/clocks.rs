//! Each machine's clocks: a monotonic one that runs a little fast or slow and begins anew with each process, and that of the
//! wall, which its administrators set. The queue of events has the true time, which no broker knows.

use fastrand::Rng;
use model::{Moment, Timestamp};

use super::{Cluster, Event};

/// What the clocks of the wall show at the true time 0, in milliseconds: late enough for a clock to go back.
const WALL_AT_BEGIN_MS: i64 = 1_700_000_000_000;
/// How far from the truth a clock of the wall is set, in milliseconds. Two clocks are less than a day apart, after which
/// brokers forget producers by the clock, as they must.
const OFF_MS_MAX: i64 = 6 * 3_600_000;
/// A true millisecond in microseconds of a monotonic clock, at least and at most: a thousand times as wrong as quartz.
const MICROSECONDS: std::ops::RangeInclusive<u64> = 950..=1_050;
/// Where monotonic clocks begin, in microseconds: at most a day.
const BEGIN_MAX: u64 = 86_400_000_000;
/// Tells the clocks' random numbers from those of the same seed that all else is made of.
const OWN_NUMBERS: u64 = 0x00c1_27eb;

/// Which clocks are wrong, and the random numbers for it: none is taken from those that the rest of a run is made of.
#[derive(Debug)]
pub(super) struct ClockFaults {
    random: Rng,
    /// The mean time between two settings of a clock; 0 for none, and for monotonic clocks that are right.
    set_every_ms: i64,
}

impl ClockFaults {
    pub(super) fn new(seed: u64) -> ClockFaults {
        let mut random = Rng::with_seed(seed ^ OWN_NUMBERS);
        let set_every_ms = [0, 0, 200, 1_000][random.usize(0..4)];
        ClockFaults { random, set_every_ms }
    }

    /// Clocks that are right.
    pub(super) fn none() -> ClockFaults {
        ClockFaults { random: Rng::with_seed(0), set_every_ms: 0 }
    }
}

/// The clocks of one machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clocks {
    /// How far that of the wall is from the truth, in milliseconds.
    off_ms: i64,
    /// What the monotonic one would show at the true time 0, in microseconds.
    begin: u64,
    /// Microseconds of the monotonic one in a true millisecond.
    rate: u64,
}

impl Default for Clocks {
    fn default() -> Clocks {
        Clocks { off_ms: 0, begin: 0, rate: 1_000 }
    }
}

impl Cluster {
    /// What a machine's monotonic clock shows.
    pub(super) fn moment_of(&self, member: usize) -> Moment {
        let clocks = self.members[member].clocks;
        Moment(clocks.begin + self.now.0 as u64 * clocks.rate)
    }

    /// What a machine's clock of the wall shows.
    pub(super) fn wall_of(&self, member: usize) -> Timestamp {
        self.now.plus_ms(WALL_AT_BEGIN_MS + self.members[member].clocks.off_ms)
    }

    /// A process begins: its monotonic clock has nothing to do with that of its predecessor.
    pub(super) fn begin_clocks(&mut self, member: usize) {
        let faults = &mut self.clock_faults;
        if faults.set_every_ms > 0 {
            let clocks = &mut self.members[member].clocks;
            clocks.begin = faults.random.u64(0..BEGIN_MAX);
            clocks.rate = faults.random.u64(MICROSECONDS);
        }
    }

    pub(super) fn schedule_clock(&mut self) {
        let every = self.clock_faults.set_every_ms;
        if every > 0 && self.has_faults() {
            let after = self.clock_faults.random.i64(1..2 * every);
            self.schedule(after, Event::SetClock);
        }
    }

    /// One machine's clock of the wall is set, forwards or back.
    pub(super) fn set_clock(&mut self) {
        let member = self.clock_faults.random.usize(0..self.members.len());
        let off_ms = self.clock_faults.random.i64(-OFF_MS_MAX..=OFF_MS_MAX);
        let was = std::mem::replace(&mut self.members[member].clocks.off_ms, off_ms);
        let by = off_ms - was;
        self.trace.note(self.now, format_args!("the clock of {member} is set by {by} ms"));
        self.schedule_clock();
    }
}
