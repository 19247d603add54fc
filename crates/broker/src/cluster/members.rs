//! On the active controller: every voter and every broker is a member of the quorum, as the folder that it has.
//!
//! A broker whose disk was lost comes back as another member; see `quorum/src/members.rs` for what follows. A broker is
//! asked which member it is once in the life of its process, as soon as it is connected, and again by each new
//! controller.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use metadata::ClusterImage;
use model::{BrokerId, Uuid};
use parking_lot::Mutex;
use quorum::Quorum;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::links::ClusterLinks;

/// How long a broker that is new to the quorum may take to catch up before it is tried again.
const CATCH_UP_MAX: Duration = Duration::from_secs(10);
/// The pause after a change that could not be made.
const PAUSE: Duration = Duration::from_millis(200);

/// Which processes are the members that they should be.
#[derive(Default)]
pub(super) struct Members {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// One broker at a time is seen to.
    is_busy: bool,
    /// The process of each broker that was seen to.
    settled: BTreeMap<BrokerId, Uuid>,
    /// Who was seen to last: the others have their turn before that one has it again.
    last: Option<BrokerId>,
    /// What was reported of a broker last, so that it is not reported again and again.
    told: BTreeMap<BrokerId, String>,
}

impl Members {
    /// This node leads from now on: what leaders before it knew it has to learn.
    pub(super) fn begin(&self) {
        self.state.lock().settled.clear();
    }

    /// Sees to one broker that is due, beside everything else. The watch is told when that is over.
    pub(super) fn settle(
        &self,
        quorum: &Arc<Quorum>,
        links: &Arc<ClusterLinks>,
        image: &ClusterImage,
    ) {
        let brokers: BTreeSet<BrokerId> =
            image.brokers().map(|broker| broker.id).chain(links.voters()).collect();
        let mut state = self.state.lock();
        if state.is_busy {
            return;
        }
        let is_due = |id: BrokerId| {
            let process = links.process_of(id).filter(|_| id != quorum.node())?;
            (state.settled.get(&id) != Some(&process)).then_some((id, process))
        };
        let due = in_turn(&brokers, state.last).find_map(is_due);
        let Some((broker, process)) = due else {
            drop(state);
            return self.dismiss(quorum, links, image);
        };
        (state.is_busy, state.last) = (true, Some(broker));
        drop(state);
        let (quorum, links, state) =
            (Arc::clone(quorum), Arc::clone(links), Arc::clone(&self.state));
        tokio::spawn(async move {
            let is_settled = admit(&quorum, broker, &state).await;
            if !is_settled {
                sleep(PAUSE).await;
            }
            let mut known = state.lock();
            known.is_busy = false;
            if is_settled {
                known.settled.insert(broker, process);
                known.told.remove(&broker);
            }
            drop(known);
            links.watching().look_again();
        });
    }

    /// Sends no metadata any more to one broker that was unregistered, beside everything else.
    fn dismiss(&self, quorum: &Arc<Quorum>, links: &Arc<ClusterLinks>, image: &ClusterImage) {
        let voters: Vec<BrokerId> = links.voters().collect();
        let is_gone = |id: &BrokerId| image.broker(*id).is_none() && !voters.contains(id);
        let Some(gone) = quorum.members().1.into_iter().find(is_gone) else { return };
        self.state.lock().is_busy = true;
        let (quorum, links, state) =
            (Arc::clone(quorum), Arc::clone(links), Arc::clone(&self.state));
        tokio::spawn(async move {
            match timeout(CATCH_UP_MAX, quorum.remove_learner(gone)).await {
                Ok(Ok(())) => {
                    info!(broker = %gone, "a broker that was unregistered follows the metadata no more");
                }
                Ok(Err(cause)) => {
                    info!(broker = %gone, %cause, "a broker that was unregistered is still sent metadata");
                    sleep(PAUSE).await;
                }
                Err(_) => warn!(broker = %gone, "the members of the quorum cannot be changed"),
            }
            state.lock().is_busy = false;
            links.watching().look_again();
        });
    }
}

/// All of them, those behind `last` first.
fn in_turn(brokers: &BTreeSet<BrokerId>, last: Option<BrokerId>) -> impl Iterator<Item = BrokerId> {
    let last = last.unwrap_or(BrokerId::NONE);
    let (before, behind): (Vec<_>, Vec<_>) = brokers.iter().partition(|id| **id <= last);
    behind.into_iter().chain(before)
}

/// Has the quorum take a broker in; `false`: not yet.
async fn admit(quorum: &Quorum, broker: BrokerId, state: &Mutex<State>) -> bool {
    let words = match timeout(CATCH_UP_MAX, quorum.admit(broker)).await {
        Ok(Ok(())) => {
            info!(%broker, "a broker follows the metadata");
            return true;
        }
        Ok(Err(cause)) => cause.to_string(),
        Err(_) => "it does not catch up, or no majority of the voters answers".to_owned(),
    };
    if state.lock().told.insert(broker, words.clone()).as_ref() != Some(&words) {
        warn!(%broker, reason = words, "a broker cannot follow the metadata yet; it is tried again");
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_that_cannot_be_taken_in_does_not_keep_the_others_out() {
        let brokers: BTreeSet<BrokerId> = [1, 4, 7].map(BrokerId).into();
        let order = |last: Option<i32>| {
            let order: Vec<i32> = in_turn(&brokers, last.map(BrokerId)).map(|id| id.0).collect();
            order
        };
        assert_eq!(order(None), [1, 4, 7]);
        assert_eq!(order(Some(1)), [4, 7, 1]);
        assert_eq!(order(Some(5)), [7, 1, 4]);
        assert_eq!(order(Some(7)), [1, 4, 7]);
    }
}
