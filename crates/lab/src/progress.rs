//! How far a run is, on standard error, when somebody looks: a bar with the time left. Drawn between rounds only,
//! never while one is measured.

use std::cell::Cell;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::say::tell;

/// How often a line is written where there is no terminal for a bar.
const LINES: Duration = Duration::from_secs(10);

/// A run's progress, in seconds of estimated cost.
pub struct Progress {
    bar: Option<ProgressBar>,
    began: Instant,
    /// Estimated seconds of what has been run, to correct the estimate of what is left.
    done_s: f64,
    total_s: f64,
    /// When the last plain line was written.
    said: Cell<Option<Instant>>,
}

impl Progress {
    /// A bar over `total_s` estimated seconds; plain lines if nobody looks at a terminal.
    pub fn new(total_s: f64, wanted: bool) -> Progress {
        let bar = (wanted && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::with_draw_target(Some(1000), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {msg}");
            bar.set_style(style.expect("the template is fixed").progress_chars("━╸ "));
            bar
        });
        Progress { bar, began: Instant::now(), done_s: 0.0, total_s, said: Cell::new(None) }
    }

    /// Says what comes now.
    pub fn next(&self, what: &str) {
        let left = self.left().map_or_else(String::new, |left| format!("{} left  ", words(left)));
        match &self.bar {
            Some(bar) => {
                bar.set_position(
                    (self.done_s / self.total_s.max(f64::MIN_POSITIVE) * 1000.0) as u64,
                );
                bar.set_message(format!("{left}{what}"));
            }
            None if self.said.get().is_some_and(|at| at.elapsed() < LINES) => {}
            None => {
                self.said.set(Some(Instant::now()));
                let percent = self.done_s / self.total_s.max(f64::MIN_POSITIVE) * 100.0;
                tell!("{percent:>3.0} %  {left}{what}");
            }
        }
    }

    /// Counts a step that was estimated at `cost_s` seconds.
    pub fn done(&mut self, cost_s: f64) {
        self.done_s += cost_s;
    }

    /// A word that stays above the bar.
    pub fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| tell!("{text}")),
            None => tell!("{text}"),
        }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// What is left at the pace so far; nothing until a fiftieth is done.
    fn left(&self) -> Option<Duration> {
        (self.done_s > self.total_s / 50.0).then(|| {
            let pace = self.began.elapsed().as_secs_f64() / self.done_s;
            Duration::from_secs_f64((self.total_s - self.done_s).max(0.0) * pace)
        })
    }
}

/// `1 h 05 min`, `12 min`, `40 s`.
pub fn words(time: Duration) -> String {
    match time.as_secs() {
        s @ ..=89 => format!("{s} s"),
        s @ ..=5399 => format!("{} min", (s + 30) / 60),
        s => format!("{} h {:02} min", s / 3600, s % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_said_as_people_say_them() {
        let said = |seconds| words(Duration::from_secs(seconds));
        assert_eq!(
            [said(40), said(100), said(725), said(3900), said(7500)],
            ["40 s", "2 min", "12 min", "65 min", "2 h 05 min"]
        );
    }
}
