//! Telling the controller of replicas that this broker cannot answer for.

use std::time::Duration;

use metadata::decide::{
    BrokerRef, EmptyReplicas2, GiveUpMissing, GiveUpReplicas, ReportLeaderEpochs,
    SWEEP_PARTITIONS_MAX,
};
use metadata::{Refusal, Request, Response};
use model::ErrorCode;
use tokio::time::sleep;
use tracing::warn;

use super::controller::{Controller, Undecided};
use super::losses::Losses;
use crate::start_error::StartError;

/// How often a report is tried again that no controller answers, while another one is elected.
const TRIES_MAX: u32 = 20;
/// The pause before.
const PAUSE: Duration = Duration::from_millis(250);

/// Why the controller does not know of all losses.
#[derive(Debug, thiserror::Error)]
pub enum Untold {
    /// It does not take them from this registration.
    #[error("{}", .0.message)]
    Refused(Refusal),
    /// It could not be asked, or its answer was lost. The same may be told again.
    #[error(transparent)]
    Undecided(Undecided),
    /// Partitions have changed since the metadata that the losses were found by: they are to be found again.
    #[error("partitions have changed since the metadata that the losses were found by")]
    Outdated,
}

impl Losses {
    fn requests(&self, broker: BrokerRef) -> impl Iterator<Item = Request> {
        let gone = self.gone.chunks(SWEEP_PARTITIONS_MAX).map(move |partitions| {
            let partitions = partitions.to_vec();
            Request::ReportEmptyReplicas2(EmptyReplicas2 { broker, partitions })
        });
        let (offline, missing) = (self.offline, self.missing);
        let doubtful = self.doubtful.chunks(SWEEP_PARTITIONS_MAX).map(move |partitions| {
            let partitions = partitions.to_vec();
            if missing {
                let heard = Vec::new();
                return Request::GiveUpMissing(GiveUpMissing { broker, partitions, heard });
            }
            Request::GiveUpReplicas(GiveUpReplicas { broker, partitions, offline })
        });
        let found = self.found.chunks(SWEEP_PARTITIONS_MAX).map(move |partitions| {
            let partitions = partitions.to_vec();
            Request::ReportLeaderEpochs(ReportLeaderEpochs { broker, partitions })
        });
        gone.chain(doubtful).chain(found)
    }

    /// Tells all of them. Returns how many replicas stay what they are, because no other one is complete.
    pub async fn tell(&self, controller: &Controller, broker: BrokerRef) -> Result<usize, Untold> {
        let mut kept = 0;
        for request in self.requests(broker) {
            kept += ask(controller, request).await?;
        }
        Ok(kept)
    }

    /// Reports what is told.
    pub fn say(&self) {
        if !self.gone.is_empty() {
            warn!(
                partitions = self.gone.len(),
                "replicas hold nothing of what the cluster may count on: they leave the in-sync replicas"
            );
        }
        if !self.doubtful.is_empty() {
            warn!(partitions = self.doubtful.len(), "{}", doubt(self.missing));
        }
        if !self.found.is_empty() {
            warn!(
                partitions = self.found.len(),
                "logs have leader epochs of elections that the metadata does not have, which a lost majority of the quorum decided: their \
                 partitions have no leader before `highwater cluster elect --unclean`"
            );
        }
    }
}

/// Consequence of doubtful replicas, as the log names it. `missing`: see [`Losses::missing`].
fn doubt(missing: bool) -> &'static str {
    match missing {
        true => {
            "replicas may be older than the cluster counts on: they leave the in-sync and the eligible replicas only while the \
             controller has heard another in-sync replica within two seconds, otherwise they stay eligible"
        }
        false => {
            "replicas may be older than the cluster counts on: they leave the in-sync and the eligible replicas where the metadata \
             names another complete one"
        }
    }
}

/// Tells all losses at a start, for as long as a controller may take to be elected. `find` finds them by the metadata of that
/// moment.
pub async fn tell_at_start(
    find: impl Fn() -> Losses,
    controller: &Controller,
    broker: BrokerRef,
) -> Result<(), StartError> {
    let mut losses = find();
    losses.say();
    for tried in 0.. {
        let cause = match losses.tell(controller, broker).await {
            Ok(_) => break,
            Err(Untold::Refused(refusal)) => return Err(StartError::Refused(refusal)),
            Err(cause) => cause.to_string(),
        };
        if tried == TRIES_MAX {
            return Err(StartError::NotJoined(cause));
        }
        warn!(cause, "replicas that are gone cannot be reported yet; it is tried again");
        sleep(PAUSE).await;
        losses = find();
    }
    Ok(())
}

/// Asks whether this is the last registration of its broker: of another one the controller takes nothing.
pub async fn confirm(controller: &Controller, broker: BrokerRef) -> Result<(), Untold> {
    let nothing = GiveUpReplicas { broker, partitions: Vec::new(), offline: false };
    ask(controller, Request::GiveUpReplicas(nothing)).await.map(drop)
}

async fn ask(controller: &Controller, request: Request) -> Result<usize, Untold> {
    match controller.decide(request).await {
        Ok(Response::EmptyReplicas(Ok(answers))) => {
            let refused = answers.iter().filter_map(|(_, _, answer)| answer.as_ref().err());
            let refused: Vec<ErrorCode> = refused.map(|refusal| refusal.error).collect();
            if refused.contains(&ErrorCode::InvalidUpdateVersion) {
                return Err(Untold::Outdated);
            }
            let is_kept = |error: &&ErrorCode| **error == ErrorCode::EligibleLeadersNotAvailable;
            Ok(refused.iter().filter(is_kept).count())
        }
        Ok(Response::EmptyReplicas(Err(refusal))) => Err(Untold::Refused(refusal)),
        Ok(other) => unreachable!("the answer to another request: {other:?}"),
        Err(cause) => Err(Untold::Undecided(cause)),
    }
}
