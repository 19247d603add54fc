//! A disk that has no room left, for a while: its broker goes on with what it has. A leader refuses records, a follower does not
//! come on and leaves the ISR; nothing is lost, and all goes on when there is room again.

use fastrand::Rng;

use super::{Cluster, Event, Process};

/// The longest that there is no room, in milliseconds.
const FULL_MS_MAX: i64 = 1_500;
/// The most bytes that are left when a disk begins to fill up: some batches.
const LEFT_BYTES_MAX: u64 = 4_096;
/// Tells these random numbers from those of the same seed that all else is made of.
const OWN_NUMBERS: u64 = 0xf111;

/// When disks fill up, and the random numbers for it: none is taken from those that the rest of a run is made of.
#[derive(Debug)]
pub(super) struct Fills {
    random: Rng,
    /// The mean time between two disks that fill up; 0 for none.
    every_ms: i64,
}

impl Fills {
    pub(super) fn new(seed: u64) -> Fills {
        let mut random = Rng::with_seed(seed ^ OWN_NUMBERS);
        let every_ms = [0, 0, 0, 0, 0, 0, 300, 1_000][random.usize(0..8)];
        Fills { random, every_ms }
    }

    /// No disk fills up.
    pub(super) fn none() -> Fills {
        Fills { random: Rng::with_seed(0), every_ms: 0 }
    }
}

impl Cluster {
    pub(super) fn schedule_fill(&mut self) {
        let every = self.fills.every_ms;
        if every > 0 && self.has_faults() {
            let after = self.fills.random.i64(1..2 * every);
            self.schedule(after, Event::Fill);
        }
    }

    /// Little room is left on the disk of one broker.
    pub(super) fn fill(&mut self) {
        let broker = self.fills.random.usize(0..self.members.len());
        let left = self.fills.random.u64(0..=LEFT_BYTES_MAX);
        let after = self.fills.random.i64(1..=FULL_MS_MAX);
        let process = self.process(broker);
        if self.running(process).is_some() {
            let disk = &self.members[broker].disk;
            disk.limit_capacity(Some(disk.used_bytes() + left));
            self.trace.note(self.now, format_args!("{process:?}: {left} bytes of room are left"));
            self.schedule(after, Event::Emptied(process));
        }
        self.schedule_fill();
    }

    /// There is room again.
    pub(super) fn emptied(&mut self, process: Process) {
        if self.running(process).is_some() {
            self.trace.note(self.now, format_args!("{process:?}: there is room"));
            self.make_room(process.broker);
        }
    }

    pub(super) fn make_room(&self, broker: usize) {
        self.members[broker].disk.limit_capacity(None);
    }
}
