//! A leader that no majority of the voters has answered for two election time-outs stops calling itself leader.
//!
//! The other voters have elected another leader by then, if they are a majority. openraft lets the deposed leader lead
//! until it receives a message of the new one.

use crate::raft::TypeConfig;
use crate::state_machine::StateMachine;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::{Instant as _, Raft};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Pause between two looks while no majority answers.
const RETRY: Duration = Duration::from_millis(100);

/// When a leader counts as cut off that started to lead at `since`, and that a majority last answered at `answered`.
fn cut_off_at(since: Instant, answered: Option<Instant>, limit: Duration) -> Instant {
    answered.map_or(since, |answered| answered.max(since)) + limit
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
    // The leader epoch of this member, and since when it leads.
    let mut leads: Option<(u64, Instant)> = None;
    loop {
        let now = Instant::now();
        let (term, is_alone) = {
            let metrics = server.borrow_watched();
            let leads = (metrics.current_leader == Some(me)).then_some(metrics.vote.leader_id.term);
            (leads, metrics.membership_config.voter_ids().eq([me]))
        };
        leads = match (term.filter(|_| !is_alone), leads) {
            (Some(term), Some((known, since))) if term == known => Some((term, since)),
            (term, _) => term.map(|term| (term, now)),
        };
        let answered = metrics.borrow_watched().last_quorum_acked.map(|at| now - at.elapsed());
        let limit_at = leads.map(|(_, since)| cut_off_at(since, answered, limit));
        let cut_off = limit_at.is_some_and(|at| at <= now);
        #[cfg(test)]
        let cut_off =
            cut_off && !crate::faults::is_mutant(crate::faults::Mutant::CutOffLeaderLeads);
        is_cut_off.send_if_modified(|known| {
            let is_new = *known != cut_off;
            if is_new && cut_off {
                tracing::warn!(
                    limit_ms = limit.as_millis() as u64,
                    "no majority of the voters answers: this node gives up the role of active controller"
                );
            }
            *known = cut_off;
            is_new
        });
        let again = limit_at.map(|at| if at <= now { now + RETRY } else { at });
        let waited = async {
            match again {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = server.changed() => if changed.is_err() { return },
            () = waited => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_runs_from_the_last_answer_of_a_majority_and_from_the_start_of_leading() {
        let limit = Duration::from_secs(1);
        let start = Instant::now() + Duration::from_secs(60);
        let later = start + Duration::from_millis(700);
        assert_eq!(cut_off_at(start, None, limit), start + limit);
        assert_eq!(cut_off_at(start, Some(later), limit), later + limit);
        let before = start - Duration::from_secs(9);
        assert_eq!(cut_off_at(start, Some(before), limit), start + limit, "an earlier term's");
    }
}
