//! Whether a group of threads still runs. A thread outside the group gives it a small task at every
//! tick and counts the ticks in which the task did not run.
//!
//! Ticks are counted and no clock is read: a process that was paused counts nothing meanwhile.

/// Ticks without a run after which a group counts as stalled. A tick is one second.
pub const STALL_TICKS: u32 = 10;

/// The missed ticks of one group of threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadPulse {
    missed_ticks: u32,
}

impl ThreadPulse {
    /// Counts a tick. `ran`: the group ran the task of the tick before. `waits_for_disk`: a thread of
    /// the group waits for a disk, which counts as running.
    pub fn count_tick(&mut self, ran: bool, waits_for_disk: bool) {
        self.missed_ticks = match ran || waits_for_disk {
            true => 0,
            false => self.missed_ticks.saturating_add(1),
        };
    }

    /// Whether the group has missed [`STALL_TICKS`] ticks in a row.
    pub fn is_stalled(self) -> bool {
        self.missed_ticks >= STALL_TICKS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_missed_ticks_are_a_stall_and_one_run_ends_it() {
        let mut pulse = ThreadPulse::default();
        for tick in 1..=STALL_TICKS {
            assert!(!pulse.is_stalled(), "at tick {tick}");
            pulse.count_tick(false, false);
        }
        assert!(pulse.is_stalled());
        pulse.count_tick(true, false);
        assert!(!pulse.is_stalled());
    }

    #[test]
    fn a_thread_that_waits_for_a_disk_counts_as_running() {
        let mut pulse = ThreadPulse::default();
        for _ in 0..10 * STALL_TICKS {
            pulse.count_tick(false, true);
            assert!(!pulse.is_stalled());
        }
    }
}
