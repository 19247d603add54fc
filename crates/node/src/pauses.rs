//! Pauses of a broker's process: times in which its control thread did not run, because the process was stopped, starved of
//! CPU or held by a device.
//!
//! A broker that was paused answered no probe because it could not. The controller reads the pauses in the answers to its
//! probes: a suspicion that began during a pause was right.

use std::collections::VecDeque;
use std::time::Duration;

use model::Moment;

/// Time between two ticks of the control thread from which it counts as a pause.
pub const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Pauses that are kept and reported.
pub const PAUSES_MAX: usize = 4;

/// A time in which the control thread did not run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pause {
    /// Length; zero: an empty place in [`RecentPauses`].
    pub length: Duration,
    /// Time since the pause ended.
    pub ended_ago: Duration,
}

impl Pause {
    /// Whether the pause includes the moment `ago` before the report.
    fn includes(&self, ago: Duration) -> bool {
        self.ended_ago <= ago && ago <= self.ended_ago + self.length
    }
}

/// The newest pauses of a process, as reported at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecentPauses([Pause; PAUSES_MAX]);

impl RecentPauses {
    /// The first [`PAUSES_MAX`] of these.
    pub fn new(pauses: impl IntoIterator<Item = Pause>) -> RecentPauses {
        let mut all = [Pause::default(); PAUSES_MAX];
        all.iter_mut().zip(pauses).for_each(|(place, pause)| *place = pause);
        RecentPauses(all)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = Pause> + '_ {
        self.0.iter().copied().filter(|pause| !pause.length.is_zero())
    }

    /// Whether the process was paused at the moment `ago` before the report.
    pub fn include(&self, ago: Duration) -> bool {
        self.iter().any(|pause| pause.includes(ago))
    }
}

/// Notes the ticks of the control thread and finds the pauses between them.
#[derive(Clone, Debug, Default)]
pub struct PauseClock {
    ticked_at: Option<Moment>,
    /// End and length of the newest pauses, the newest last.
    pauses: VecDeque<(Moment, Duration)>,
}

impl PauseClock {
    /// The control thread runs.
    pub fn tick(&mut self, now: Moment) {
        if let Some(length) = self.unfinished(now) {
            if self.pauses.len() == PAUSES_MAX {
                self.pauses.pop_front();
            }
            self.pauses.push_back((now, length));
        }
        self.ticked_at = Some(now);
    }

    /// The newest pauses at `now`. A pause whose end no tick has noted yet ends now: the report may be written first.
    pub fn recent(&self, now: Moment) -> RecentPauses {
        let unfinished = self.unfinished(now).map(|length| (now, length));
        let newest = unfinished.into_iter().chain(self.pauses.iter().rev().copied());
        RecentPauses::new(newest.map(|(end, length)| Pause { length, ended_ago: now.since(end) }))
    }

    fn unfinished(&self, now: Moment) -> Option<Duration> {
        self.ticked_at.map(|at| now.since(at)).filter(|length| *length >= PAUSE_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::START.plus(ms_long(ms))
    }

    fn ms_long(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn only_long_times_between_ticks_are_pauses() {
        let mut clock = PauseClock::default();
        for ms in [0, 100, 900, 4_000, 4_100] {
            clock.tick(at(ms));
        }
        let found: Vec<Pause> = clock.recent(at(5_000)).iter().collect();
        assert_eq!(found, [Pause { length: ms_long(3_100), ended_ago: ms_long(1_000) }]);
    }

    #[test]
    fn a_report_before_the_next_tick_has_the_pause_already() {
        let mut clock = PauseClock::default();
        clock.tick(at(0));
        let report = clock.recent(at(3_000));
        assert!(report.include(ms_long(0)) && report.include(ms_long(3_000)));
        assert!(!report.include(ms_long(3_001)));
        clock.tick(at(3_001));
        let report = clock.recent(at(3_501));
        assert!(!report.include(ms_long(499)), "it ran again");
        assert!(report.include(ms_long(500)));
    }

    #[test]
    fn the_newest_pauses_are_kept() {
        let mut clock = PauseClock::default();
        for second in (0..20).step_by(2) {
            clock.tick(at(second * 1_000));
        }
        let ages: Vec<u64> =
            clock.recent(at(18_000)).iter().map(|pause| pause.ended_ago.as_secs()).collect();
        assert_eq!(ages, [0, 2, 4, 6]);
    }
}
