//! Joining a cluster of several nodes: founding it, registering, and serving.
//!
//! A broker registers fenced, opens its logs by the metadata up to its own registration, and only then serves. It
//! waits for nothing that could move on for ever: not for the end of the metadata log (KAFKA-13959).

use std::convert::Infallible;
use std::time::Duration;

use metadata::decide::{
    BrokerRef, CLUSTER_FEATURE, CreateCluster, RegisterBroker, features_of_new_cluster,
};
use metadata::{Request, Response};
use model::{BrokerEpoch, ErrorCode};
use quorum::Quorum;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{info, warn};

use super::controller::{Controller, Undecided};
use crate::start::StartError;

/// The pause between two tries to register.
const PAUSE: Duration = Duration::from_millis(50);

/// How long a start waits for the metadata that it had before.
const APPLIED_MAX: Duration = Duration::from_secs(5);
/// How long a start waits for the same thing before it says so.
const TOLD_AFTER: Duration = Duration::from_secs(3);

/// A broker that is registered, and not serving yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// Its epoch.
    pub epoch: BrokerEpoch,
}

/// Founds the cluster if it does not exist, registers the broker, and waits until the metadata here says so. `check` compares
/// what was registered before with what is here; it is done once the metadata that this node had is applied again.
pub async fn join(
    quorum: &Quorum,
    controller: &Controller,
    is_voter: bool,
    register: RegisterBroker,
    patience: Duration,
    check: impl Fn() -> Result<(), StartError>,
) -> Result<Joined, StartError> {
    let until = Instant::now() + patience;
    let joining = async {
        if is_voter {
            let founded = timeout_at(until, found(quorum, &register.cluster_id)).await;
            founded.map_err(|_| no_majority(quorum, patience))??;
        }
        let last = quorum.last_entry().map_or(0, |entry| entry.index);
        // Entries are applied when the leader says that they are committed. Some of the last ones may never be.
        let _ = timeout(APPLIED_MAX, quorum.wait_applied(last)).await;
        check()?;
        registered(controller, register.clone(), until, patience).await
    };
    let (epoch, index) = tokio::select! {
        joined = joining => joined?,
        never = tell_what_is_missing(quorum) => match never {},
    };
    let broker = register.broker;
    let applied = timeout_at(until, quorum.wait_applied(index)).await;
    applied.map_err(|_| not_joined("the metadata did not arrive", patience))??;
    let image = quorum.image();
    match image.broker(broker) {
        Some(known) if known.epoch == epoch => Ok(Joined { epoch }),
        _ => Err(StartError::NotJoined(format!(
            "another process registered as broker {broker} at the same time"
        ))),
    }
}

fn no_majority(quorum: &Quorum, patience: Duration) -> StartError {
    let words = quorum.waits_for();
    not_joined(words.as_deref().unwrap_or("no majority of the voters could be reached"), patience)
}

/// Reports what the start waits for, once that has lasted: at a first start the others are not up at once.
async fn tell_what_is_missing(quorum: &Quorum) -> Infallible {
    let mut told = None;
    loop {
        quorum.waits_for_changed(&told).await;
        // The words may change now and then, when one of the others does not answer in time.
        sleep(TOLD_AFTER).await;
        let words = quorum.waits_for();
        if let Some(words) = words.as_ref().filter(|words| told.as_ref() != Some(words)) {
            warn!(reason = words, "this node waits for the metadata quorum");
        }
        told = words.or(told);
    }
}

fn not_joined(reason: &str, patience: Duration) -> StartError {
    let seconds = patience.as_secs_f64();
    StartError::NotJoined(format!(
        "{reason} within {seconds} s (initial.broker.registration.timeout.ms)"
    ))
}

/// Waits until there is a cluster; the voter that leads makes it.
async fn found(quorum: &Quorum, cluster_id: &str) -> Result<(), StartError> {
    let mut updates = quorum.subscribe();
    loop {
        if quorum.image().cluster_id().is_some() {
            return Ok(());
        }
        let leader = quorum.leader();
        if quorum.is_leader() {
            let mut features = features_of_new_cluster();
            features.push((CLUSTER_FEATURE.name.to_owned(), CLUSTER_FEATURE.level_max));
            let create = CreateCluster { cluster_id: cluster_id.to_owned(), features };
            let created = quorum.propose(Request::CreateCluster(create)).await;
            // Or another was quicker, or leads by now.
            if let Ok(Response::CreateCluster(Ok(()))) = created {
                info!(cluster_id, "made a new cluster");
            }
            continue;
        }
        tokio::select! {
            update = updates.next() => if update.is_none() { return Err(stopped()) },
            changed = quorum.leader_changed(leader) => drop(changed?),
        }
    }
}

fn stopped() -> StartError {
    StartError::NotJoined("the metadata quorum stopped".to_owned())
}

async fn registered(
    controller: &Controller,
    register: RegisterBroker,
    until: Instant,
    patience: Duration,
) -> Result<(BrokerEpoch, u64), StartError> {
    let mut last = "no active controller could be asked".to_owned();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(not_joined(&last, patience));
        }
        let request = Request::RegisterBroker(register.clone());
        match controller.decide_within(request, left).await {
            Ok((index, Response::RegisterBroker(Ok(epoch)))) => return Ok((epoch, index)),
            Ok((_, Response::RegisterBroker(Err(refusal)))) => {
                if !is_retried(refusal.error) {
                    return Err(StartError::Refused(refusal));
                }
                if last != refusal.message {
                    warn!(reason = refusal.message, "cannot register yet; it is tried again");
                }
                last = refusal.message;
            }
            Ok((_, other)) => unreachable!("the answer to another request: {other:?}"),
            // The same process registers twice without harm.
            Err(Undecided::Unknown) => last = Undecided::Unknown.to_string(),
            Err(Undecided::NoController(reason)) => last = reason,
        }
        sleep(PAUSE).await;
    }
}

fn is_retried(error: ErrorCode) -> bool {
    matches!(error, ErrorCode::RequestTimedOut | ErrorCode::DuplicateBrokerRegistration)
}

/// Serves from now on: whatever this broker has to hold is open.
pub async fn serve_from_now_on(
    controller: &Controller,
    who: BrokerRef,
    patience: Duration,
) -> Result<(), StartError> {
    let serving = async {
        loop {
            match controller.decide(Request::UnfenceBroker(who)).await {
                Ok(Response::Broker(Ok(()))) => return Ok(()),
                Ok(Response::Broker(Err(refusal))) => return Err(StartError::Refused(refusal)),
                Ok(other) => unreachable!("the answer to another request: {other:?}"),
                Err(cause) => warn!(%cause, "cannot serve yet; it is tried again"),
            }
            sleep(PAUSE).await;
        }
    };
    let served = timeout(patience, serving).await;
    served.map_err(|_| not_joined("the controller did not let this broker serve", patience))?
}
