//! When the raft looks at the clock. It needs that to send heartbeats, and to find out that a leader is silent; it looks
//! five times in each interval of heartbeats, which is most of what an idle member would do. So a member whose leader was
//! heard a moment ago does not look at all.

use crate::raft::TypeConfig;
use crate::state_machine::StateMachine;
use openraft::Raft;
use openraft::async_runtime::watch::WatchReceiver;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// When the leader was last heard.
#[derive(Debug, Default)]
pub(crate) struct Heard(Mutex<Option<Instant>>);

impl Heard {
    /// The leader was heard just now.
    pub(crate) fn now(&self) {
        *self.0.lock() = Some(Instant::now());
    }

    /// The last moment at which the leader was heard.
    pub(crate) fn last(&self) -> Option<Instant> {
        *self.0.lock()
    }
}

/// What a member is, as far as its clock goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Standing {
    /// Whether there are other members; `None` before it is known.
    has_others: Option<bool>,
    /// Whether another member leads.
    follows: bool,
}

/// What the clock does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Verdict {
    /// Whether it runs; `None`: as it was configured.
    runs: Option<bool>,
    /// When this is to be asked again although nothing has changed.
    again: Option<Instant>,
}

/// The verdict at `now`. `calm` is how long nothing need be heard of a leader that was heard: less than the time after
/// which a silent one is succeeded.
fn verdict(standing: Standing, heard: Option<Instant>, now: Instant, calm: Duration) -> Verdict {
    match standing {
        Standing { has_others: Some(true), follows: true } => {
            let until = heard.map(|at| at + calm).filter(|until| *until > now);
            Verdict { runs: Some(until.is_none()), again: Some(until.unwrap_or(now + calm)) }
        }
        Standing { has_others: runs, .. } => Verdict { runs, again: None },
    }
}

/// Lets the clock of the member `me` run and rest, until the raft stops.
pub(crate) async fn keep(
    raft: Raft<TypeConfig, StateMachine>,
    me: u64,
    heard: Arc<Heard>,
    calm: Duration,
) {
    let mut metrics = raft.server_metrics();
    let mut known = None;
    loop {
        let standing = {
            let metrics = metrics.borrow_watched();
            let mut nodes = metrics.membership_config.nodes().map(|(node, _)| *node).peekable();
            let is_known = nodes.peek().is_some();
            Standing {
                has_others: is_known.then(|| nodes.any(|node| node != me)),
                follows: metrics.current_leader.is_some_and(|leader| leader != me),
            }
        };
        let verdict = verdict(standing, heard.last(), Instant::now(), calm);
        if let Some(runs) = verdict.runs
            && known != verdict.runs
        {
            raft.runtime_config().tick(runs);
            known = verdict.runs;
        }
        let again = async {
            match verdict.again {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = metrics.changed() => if changed.is_err() { return },
            () = again => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: Duration = Duration::from_millis(480);

    #[test]
    fn the_clock_rests_only_while_another_leads_and_was_heard_a_moment_ago() {
        let now = Instant::now() + Duration::from_secs(60);
        let ago = |ms| Some(now - Duration::from_millis(ms));
        let at = |has_others, follows, heard| {
            verdict(Standing { has_others, follows }, heard, now, CALM)
        };
        let follower = at(Some(true), true, ago(100));
        assert_eq!(follower.runs, Some(false));
        assert_eq!(follower.again, Some(now + Duration::from_millis(380)));
        assert_eq!(at(Some(true), true, ago(480)).runs, Some(true), "silent for too long");
        assert_eq!(at(Some(true), true, None).runs, Some(true), "never heard");
        assert_eq!(at(Some(true), false, ago(100)).runs, Some(true), "leads, or nothing leads");
        assert_eq!(at(Some(false), false, None).runs, Some(false), "alone");
        assert_eq!(at(None, false, None), Verdict { runs: None, again: None });
    }
}
