//! A leader that no majority of the voters has answered for two election time-outs stops calling itself leader.
//!
//! The other voters have elected another leader by then, if they are a majority. openraft lets the deposed leader lead
//! until it receives a message of the new one.
//!
//! On a machine that is too busy the limit is longer, at most three times as long (decision 0094). Time in which this process
//! did not run does not count, up to one limit. A false alarm doubles the limit until a minute without a
//! false alarm has passed.

use crate::raft::TypeConfig;
use crate::state_machine::StateMachine;
use openraft::Raft;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::type_config::TypeConfigExt;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Pause between two checks while no majority answers.
const RETRY: Duration = Duration::from_millis(100);
/// A timer that fires later than this shows that the process did not run.
const LATE_MIN: Duration = Duration::from_millis(10);
/// Time without a false alarm after which the limit is the normal one again.
const CALM: Duration = Duration::from_secs(60);

/// Longest time without answers of a majority before a leader counts as cut off.
#[derive(Clone, Copy, Debug)]
struct CutOffLimit {
    /// The limit of a process that always runs, on a machine that answers in time.
    normal: Duration,
    /// Time of the last false alarm; `None` once [`CALM`] has passed. The limit is doubled while there is one.
    false_alarm: Option<Instant>,
    /// Time of the last answer of a majority, or the start of the leadership.
    answered: Option<Instant>,
    /// Time since `answered` in which the process did not run, at most `normal`.
    late: Duration,
}

impl CutOffLimit {
    fn new(normal: Duration) -> CutOffLimit {
        CutOffLimit { normal, false_alarm: None, answered: None, late: Duration::ZERO }
    }

    /// The limit without the time in which the process did not run.
    fn length(&self) -> Duration {
        if self.false_alarm.is_some() { self.normal * 2 } else { self.normal }
    }

    /// Whether the process did not run for one normal limit since the last answer of a majority.
    fn is_very_late(&self) -> bool {
        self.late >= self.normal
    }

    /// Time at which a leader counts as cut off that started to lead at `since`, and that a majority last answered at `answered`.
    fn due(&mut self, since: Instant, answered: Option<Instant>, now: Instant) -> Instant {
        let last = answered.map_or(since, |answered| answered.max(since));
        if self.answered != Some(last) {
            (self.answered, self.late) = (Some(last), Duration::ZERO);
        }
        self.false_alarm = self.false_alarm.filter(|at| now < *at + CALM);
        last + self.length() + self.late
    }

    /// Time of the next check of a leader that is cut off at `due`. Checks in the second half of the limit are close together:
    /// a pause of the process delays one of them.
    fn next_check(&self, due: Instant, now: Instant) -> Instant {
        let half = due - self.length() / 2;
        match now {
            now if due <= now => now + RETRY,
            now if now < half => half,
            now => due.min(now + RETRY),
        }
    }

    /// Counts the delay of a check as time in which the process did not run.
    fn note_delay(&mut self, delay: Duration) {
        #[cfg(test)]
        let delay = match crate::faults::is_mutant(crate::faults::Mutant::PausesCount) {
            true => Duration::ZERO,
            false => delay,
        };
        if delay >= LATE_MIN {
            self.late = (self.late + delay).min(self.normal);
        }
    }

    /// Ends an alarm that began at `begun`: a majority answers the same leader in the same term again. The alarm was false if the
    /// process had not run for one limit, or if the answers came within one limit.
    fn note_alarm_end(&mut self, begun: Instant, is_very_late: bool, now: Instant) {
        if is_very_late || now <= begun + self.normal {
            self.false_alarm = Some(now);
        }
        #[cfg(test)]
        if crate::faults::is_mutant(crate::faults::Mutant::FalseAlarmsForgotten) {
            self.false_alarm = None;
        }
    }
}

/// Keeps `is_cut_off` true while the member `me` leads and no majority of the voters has answered for `limit`, until
/// the raft stops.
pub(crate) async fn watch(
    raft: Raft<TypeConfig, StateMachine>,
    me: u64,
    limit: Duration,
    is_cut_off: watch::Sender<bool>,
) {
    let mut server = raft.server_metrics();
    let metrics = raft.metrics();
    let mut limit = CutOffLimit::new(limit);
    // The same moment of both clocks.
    let origin = (TypeConfig::now(), Instant::now());
    // The leader epoch of this member, and since when it leads.
    let mut leads: Option<(u64, Instant)> = None;
    // Since when it counts as cut off.
    let mut alarm: Option<Instant> = None;
    loop {
        let now = Instant::now();
        let (term, is_alone) = {
            let metrics = server.borrow_watched();
            let leads = (metrics.current_leader == Some(me)).then_some(metrics.vote.leader_id.term);
            (leads, metrics.membership_config.voter_ids().eq([me]))
        };
        let led = leads;
        leads = match (term.filter(|_| !is_alone), leads) {
            (Some(term), Some((known, since))) if term == known => Some((term, since)),
            (term, _) => term.map(|term| (term, now)),
        };
        let answered = metrics.borrow_watched().last_quorum_acked;
        let answered = answered.map(|at| origin.1 + (at.into_inner() - origin.0));
        let is_very_late = limit.is_very_late();
        let due = leads.map(|(_, since)| limit.due(since, answered, now));
        let cut_off = due.is_some_and(|due| due <= now);
        if let Some(begun) = alarm.filter(|_| !cut_off && leads.is_some() && leads == led) {
            limit.note_alarm_end(begun, is_very_late, now);
        }
        alarm = cut_off.then(|| alarm.unwrap_or(now));
        #[cfg(test)]
        let cut_off =
            cut_off && !crate::faults::is_mutant(crate::faults::Mutant::CutOffLeaderLeads);
        is_cut_off.send_if_modified(|known| {
            let is_new = *known != cut_off;
            if is_new && cut_off {
                tracing::warn!(
                    limit_ms = limit.length().as_millis() as u64,
                    "no majority of the voters answers: this node gives up the role of active controller"
                );
            }
            *known = cut_off;
            is_new
        });
        let check = due.map(|due| limit.next_check(due, now));
        let waited = async {
            match check {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = server.changed() => if changed.is_err() { return },
            () = waited => {
                let delay = check.map(|check| Instant::now().saturating_duration_since(check));
                limit.note_delay(delay.unwrap_or_default());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::faults::{Mutant, plant};

    use super::*;

    const NORMAL: Duration = Duration::from_secs(1);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn start() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn the_limit_runs_from_the_last_answer_of_a_majority_and_from_the_start_of_leading() {
        let start = start();
        let later = start + ms(700);
        let due = |answered| CutOffLimit::new(NORMAL).due(start, answered, later);
        assert_eq!(due(None), start + NORMAL);
        assert_eq!(due(Some(later)), later + NORMAL);
        assert_eq!(due(Some(start - NORMAL * 9)), start + NORMAL, "an earlier term's");
    }

    /// The limit after a false alarm, and the limit of a process that did not run for 400 ms.
    fn longer_limits() -> (Duration, Duration) {
        let (start, mut alarmed) = (start(), CutOffLimit::new(NORMAL));
        alarmed.note_alarm_end(start, false, start + NORMAL);
        let mut paused = CutOffLimit::new(NORMAL);
        paused.due(start, None, start);
        paused.note_delay(ms(400));
        (alarmed.due(start, None, start) - start, paused.due(start, None, start) - start)
    }

    #[test]
    fn limits_without_patience_are_found() {
        assert_eq!(longer_limits(), (NORMAL * 2, NORMAL + ms(400)));
        plant(Some(Mutant::FalseAlarmsForgotten));
        let alarmed = longer_limits();
        plant(Some(Mutant::PausesCount));
        let paused = longer_limits();
        plant(None);
        assert_eq!((alarmed.0, paused.1), (NORMAL, NORMAL));
    }

    #[test]
    fn at_most_one_limit_in_which_the_process_did_not_run_does_not_count() {
        let (start, mut limit) = (start(), CutOffLimit::new(NORMAL));
        let due = limit.due(start, None, start);
        assert_eq!(limit.next_check(due, start), start + NORMAL / 2);
        limit.note_delay(ms(9));
        assert_eq!(limit.due(start, None, start), due, "timers are never exact");
        limit.note_delay(ms(300));
        limit.note_delay(ms(100));
        let due = limit.due(start, None, start);
        assert_eq!(due, start + NORMAL + ms(400));
        assert_eq!(limit.next_check(due, start + NORMAL), start + NORMAL + RETRY);
        assert_eq!(limit.next_check(due, due - ms(1)), due);
        assert!(!limit.is_very_late());
        limit.note_delay(NORMAL * 100);
        assert_eq!(limit.due(start, None, start), start + NORMAL * 2);
        assert!(limit.is_very_late());
        let answered = start + ms(500);
        assert_eq!(limit.due(start, Some(answered), answered), answered + NORMAL);
        assert!(!limit.is_very_late(), "a majority answered again");
    }

    #[test]
    fn a_false_alarm_doubles_the_limit_for_a_minute() {
        let (start, mut limit) = (start(), CutOffLimit::new(NORMAL));
        for _ in 0..3 {
            limit.note_alarm_end(start, false, start + NORMAL);
            assert_eq!(limit.due(start, None, start), start + NORMAL * 2);
        }
        let end = start + NORMAL + CALM;
        assert_eq!(limit.due(start, None, end - ms(1)), start + NORMAL * 2);
        assert_eq!(limit.due(start, None, end), start + NORMAL);
    }

    #[test]
    fn an_alarm_that_lasts_is_false_only_if_the_process_did_not_run() {
        let (start, mut limit) = (start(), CutOffLimit::new(NORMAL));
        limit.note_alarm_end(start, false, start + NORMAL + ms(1));
        assert_eq!(limit.due(start, None, start), start + NORMAL);
        limit.note_alarm_end(start, true, start + NORMAL + ms(1));
        assert_eq!(limit.due(start, None, start), start + NORMAL * 2);
    }
}
