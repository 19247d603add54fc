//! A leader that no majority of the voters has answered for two election time-outs stops calling itself leader.
//!
//! The other voters have elected another leader by then, if they are a majority. openraft lets the deposed leader lead
//! until it receives a message of the new one.
//!
//! Time in which this process did not run counts as time of no voter. A leader that was answered again after it had stopped
//! calling itself leader, and was not succeeded, was too impatient: it waits twice as long the next time (decision 0094).

use crate::raft::TypeConfig;
use crate::state_machine::StateMachine;
use openraft::Raft;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::type_config::TypeConfigExt;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Pause between two looks while no majority answers.
const RETRY: Duration = Duration::from_millis(100);
/// A timer that fires later than this shows that the process did not run.
const LATE_MIN: Duration = Duration::from_millis(10);
/// The limit grows by at most this factor, and by as much again for time in which the process did not run.
const GROWTH_MAX: u32 = 4;
/// Time without a false alarm after which the limit halves.
const CALM: Duration = Duration::from_secs(60);

/// How long no majority may answer before a leader counts as cut off.
#[derive(Clone, Copy, Debug)]
struct CutOffLimit {
    /// The limit of a process that always runs, on a machine that answers in time.
    least: Duration,
    /// Factor of `least`, 1 to [`GROWTH_MAX`].
    growth: u32,
    /// The last false alarm, or the last time at which the limit was halved.
    alarmed: Option<Instant>,
    /// When the majority was last heard, and the time since then in which the process did not run.
    heard: Option<Instant>,
    late: Duration,
}

impl CutOffLimit {
    fn new(least: Duration) -> CutOffLimit {
        CutOffLimit { least, growth: 1, alarmed: None, heard: None, late: Duration::ZERO }
    }

    /// When a leader counts as cut off at `now` that started to lead at `since`, and that a majority last answered at `answered`.
    fn due(&mut self, since: Instant, answered: Option<Instant>, now: Instant) -> Instant {
        let heard = answered.map_or(since, |answered| answered.max(since));
        if self.heard != Some(heard) {
            (self.heard, self.late) = (Some(heard), Duration::ZERO);
        }
        if self.alarmed.is_some_and(|alarmed| alarmed + CALM <= now) {
            self.growth = (self.growth / 2).max(1);
            self.alarmed = (self.growth > 1).then_some(now);
        }
        heard + self.least * self.growth + self.late
    }

    /// The next look at a leader that is cut off at `due`. Looks in the second half of the limit are close together, so that
    /// time without a run of the process is seen.
    fn next_look(&self, due: Instant, now: Instant) -> Instant {
        let half = due - self.least * self.growth / 2;
        match now {
            now if due <= now => now + RETRY,
            now if now < half => half,
            now => due.min(now + RETRY),
        }
    }

    /// A look that was planned took place so much later.
    fn note_late(&mut self, late: Duration) {
        if late >= LATE_MIN {
            self.late = (self.late + late).min(self.least * GROWTH_MAX);
        }
    }

    /// A leader that counted as cut off was answered, and still leads.
    fn note_false_alarm(&mut self, now: Instant) {
        self.growth = (self.growth * 2).min(GROWTH_MAX);
        self.alarmed = Some(now);
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
        let due = leads.map(|(_, since)| limit.due(since, answered, now));
        let cut_off = due.is_some_and(|due| due <= now);
        if *is_cut_off.borrow() && !cut_off && leads.is_some() && leads == led {
            limit.note_false_alarm(now);
        }
        #[cfg(test)]
        let cut_off =
            cut_off && !crate::faults::is_mutant(crate::faults::Mutant::CutOffLeaderLeads);
        is_cut_off.send_if_modified(|known| {
            let is_new = *known != cut_off;
            if is_new && cut_off {
                tracing::warn!(
                    limit_ms = (limit.least * limit.growth).as_millis() as u64,
                    "no majority of the voters answers: this node gives up the role of active controller"
                );
            }
            *known = cut_off;
            is_new
        });
        let look = due.map(|due| limit.next_look(due, now));
        let waited = async {
            match look {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = server.changed() => if changed.is_err() { return },
            () = waited => {
                let late = look.map(|look| Instant::now().saturating_duration_since(look));
                limit.note_late(late.unwrap_or_default());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: Duration = Duration::from_secs(1);

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
        let due = |answered| CutOffLimit::new(LEAST).due(start, answered, later);
        assert_eq!(due(None), start + LEAST);
        assert_eq!(due(Some(later)), later + LEAST);
        assert_eq!(due(Some(start - LEAST * 9)), start + LEAST, "an earlier term's");
    }

    #[test]
    fn time_in_which_the_process_did_not_run_does_not_count() {
        let (start, mut limit) = (start(), CutOffLimit::new(LEAST));
        let due = limit.due(start, None, start);
        assert_eq!(limit.next_look(due, start), start + LEAST / 2);
        limit.note_late(ms(9));
        assert_eq!(limit.due(start, None, start), due, "timers are never exact");
        limit.note_late(ms(300));
        limit.note_late(ms(100));
        let due = limit.due(start, None, start);
        assert_eq!(due, start + LEAST + ms(400));
        assert_eq!(limit.next_look(due, start + LEAST), start + LEAST + RETRY);
        assert_eq!(limit.next_look(due, due - ms(1)), due);
        limit.note_late(LEAST * 100);
        assert_eq!(limit.due(start, None, start), start + LEAST * (1 + GROWTH_MAX));
        let answered = start + ms(500);
        assert_eq!(limit.due(start, Some(answered), answered), answered + LEAST, "heard again");
    }

    #[test]
    fn false_alarms_double_the_limit_up_to_a_bound_and_calm_minutes_halve_it() {
        let (start, mut limit) = (start(), CutOffLimit::new(LEAST));
        for growth in [2, 4, 4] {
            limit.note_false_alarm(start);
            assert_eq!(limit.due(start, None, start), start + LEAST * growth);
        }
        assert_eq!(limit.due(start, None, start + CALM - ms(1)), start + LEAST * 4);
        assert_eq!(limit.due(start, None, start + CALM), start + LEAST * 2);
        assert_eq!(limit.due(start, None, start + CALM), start + LEAST * 2);
        assert_eq!(limit.due(start, None, start + CALM * 2), start + LEAST);
    }
}
