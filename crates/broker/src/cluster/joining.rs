//! Joining a cluster of several nodes: founding it, registering, and serving.
//!
//! A broker registers fenced, opens its logs by the metadata up to its own registration, and only then serves. It
//! waits for nothing that could move on for ever: not for the end of the metadata log (KAFKA-13959).
//!
//! What its log directories are worth it says before, by its last registration and in the name of that one. If the metadata
//! here does not have the last one yet, the controller refuses, and all of it is done again.

use std::convert::Infallible;
use std::time::Duration;

use ::link::Target;
use metadata::decide::{
    BrokerRef, CreateCluster, RegisterBroker2, RegisterBroker3, RegisterBroker4,
    features_of_new_cluster, software_of_this_release,
};
use metadata::{ClusterImage, Request, Response};
use model::{BrokerEpoch, ErrorCode};
use quorum::Quorum;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{info, warn};

use super::controller::{Controller, Undecided};
use super::links::ClusterLinks;
use super::returning::Returning;
use super::telling::{self, Untold};
use crate::logs::Logs;
use crate::start_error::StartError;

/// The pause between two tries to register.
const PAUSE: Duration = Duration::from_millis(50);

/// How long a start waits for the metadata that it had before.
const APPLIED_MAX: Duration = Duration::from_secs(5);
/// Time for which a start waits for the same reason before it reports that reason.
const REPORTED_AFTER: Duration = Duration::from_secs(2);
/// A leader sends a message at least every 0.24 s. A node that received none for this long receives none at all.
const LEADER_SILENCE_MAX: Duration = Duration::from_secs(2);
/// An election takes less, on a busy machine too. A node that reaches every voter and receives nothing for this long is not
/// reached itself.
const ELECTION_MAX: Duration = Duration::from_secs(5);

/// A broker that is registered, and not serving yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// Its epoch.
    pub epoch: BrokerEpoch,
}

/// Founds the cluster if it does not exist, registers the broker, and waits until the metadata here says so. What was
/// registered last is compared with what is here once the metadata that this node had is applied again.
pub async fn join(
    quorum: &Quorum,
    links: &ClusterLinks,
    controller: &Controller,
    returning: &Returning<'_>,
    mut register: RegisterBroker2,
    patience: Duration,
) -> Result<Joined, StartError> {
    let until = Instant::now() + patience;
    let broker = register.register.broker;
    let joining = async {
        if returning.config.is_voter() {
            let founded = timeout_at(until, found(quorum, &register.register.cluster_id)).await;
            founded.map_err(|_| no_majority(quorum, patience))??;
        }
        // Entries are applied when the leader says that they are committed. Some of the last ones may never be. Who has
        // none was in no cluster so far: there is nothing to compare, and none may come before it is registered.
        if let Some(last) = quorum.last_entry() {
            let _ = timeout(APPLIED_MAX, quorum.wait_applied(last.index)).await;
        }
        returning.check(&quorum.image())?;
        returning.leave_out_offline(&mut register);
        registered(quorum, controller, returning, &register, until).await
    };
    let (epoch, index) = tokio::select! {
        joined = joining => joined?,
        never = report_missing(quorum, links) => match never {},
    };
    let applied = tokio::select! {
        applied = timeout_at(until, quorum.wait_applied(index)) => applied,
        never = report_missing(quorum, links) => match never {},
    };
    applied.map_err(|_| {
        let words = describe_silence(quorum, links, patience);
        not_joined(words.as_deref().unwrap_or("the metadata did not arrive"), patience)
    })??;
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

/// Reports the reason for which the start waits, once that has lasted: at a first start the others are not up at once.
async fn report_missing(quorum: &Quorum, links: &ClusterLinks) -> Infallible {
    let begun = Instant::now();
    let mut reported: Option<String> = None;
    loop {
        // The words may change now and then, when one of the others does not answer in time.
        sleep(REPORTED_AFTER).await;
        let words = quorum.waits_for();
        let words = words.or_else(|| describe_silence(quorum, links, begun.elapsed()));
        if let Some(words) = words.as_ref().filter(|words| reported.as_ref() != Some(words)) {
            warn!(reason = words, "this node waits for the metadata quorum");
        }
        reported = words.or(reported);
    }
}

/// Why no leader of the metadata quorum is heard here, as far as the links show it. `None` while this node leads, or hears
/// the leader. `waited` is the time of the start so far.
fn describe_silence(quorum: &Quorum, links: &ClusterLinks, waited: Duration) -> Option<String> {
    let heard_ago = quorum.heard_ago();
    if heard_ago.is_some_and(|ago| ago < LEADER_SILENCE_MAX) || quorum.is_leader() {
        return None;
    }
    let own = links.own_voter_address();
    silence_words(&links.unreached_voters(), own.as_deref(), heard_ago.unwrap_or(waited))
}

/// `unreached`: voters without a link. `own`: the address at which the other voters have to reach this node. `None` while
/// `silence` may be that of an election.
fn silence_words(unreached: &[Target], own: Option<&str>, silence: Duration) -> Option<String> {
    if unreached.is_empty() {
        if silence < ELECTION_MAX {
            return None;
        }
        let address = match own {
            Some(own) => format!("{own}, its address in its own file"),
            None => "the address that it advertises".to_owned(),
        };
        return Some(format!(
            "every other voter of controller.quorum.voters is reached, and none of them sends metadata to this node: check that \
             the other nodes reach this node at {address}, that controller.quorum.voters is the same in the files of all \
             nodes, and that a majority of the voters runs"
        ));
    }
    let named: Vec<String> = unreached.iter().map(ToString::to_string).collect();
    Some(format!(
        "cannot reach {}: check that the node runs, and that its address in controller.quorum.voters is that of its controller \
         listener",
        named.join(", ")
    ))
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
            let features = features_of_new_cluster();
            let create = CreateCluster { cluster_id: cluster_id.to_owned(), features };
            let created = quorum.propose(Request::CreateCluster(create)).await;
            match created {
                Ok(Response::CreateCluster(Ok(()))) => info!(cluster_id, "made a new cluster"),
                // Another was quicker.
                Ok(_) => {}
                // Another leads by now, or no majority answered lately.
                Err(_) => sleep(PAUSE).await,
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

/// Registers, again and again until it is done: the epoch, and the entry that says so.
async fn registered(
    quorum: &Quorum,
    controller: &Controller,
    returning: &Returning<'_>,
    register: &RegisterBroker2,
    until: Instant,
) -> Result<(BrokerEpoch, u64), StartError> {
    let mut last = "no active controller could be asked".to_owned();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let patience = returning.config.membership.registration_ms_max;
            return Err(not_joined(&last, Duration::from_millis(patience)));
        }
        let mut register = register.clone();
        match try_to_register(quorum, controller, returning, &mut register, left).await? {
            Tried::Registered(epoch, index) => return Ok((epoch, index)),
            Tried::Refused(reason) => {
                if last != reason {
                    warn!(reason, "cannot register yet; it is tried again");
                }
                last = reason;
            }
            Tried::Undecided(reason) => last = reason,
        }
        sleep(PAUSE).await;
    }
}

/// What became of one try.
enum Tried {
    Registered(BrokerEpoch, u64),
    /// The controller refuses, and may not refuse the next try.
    Refused(String),
    /// No decision is known here. The same process registers twice without harm.
    Undecided(String),
}

/// Says what the log directories are worth, in the name of the last registration, and registers with them.
async fn try_to_register(
    quorum: &Quorum,
    controller: &Controller,
    returning: &Returning<'_>,
    register: &mut RegisterBroker2,
    patience: Duration,
) -> Result<Tried, StartError> {
    let image = quorum.image();
    let broker = register.register.broker;
    let last = image.broker(broker).map(|known| BrokerRef { broker, epoch: known.epoch });
    if let Some(last) = last.filter(|_| returning.has_been_away(&image)) {
        let untold = match telling::confirm(controller, last).await {
            Ok(()) => {
                let losses = returning.settle_away(&image)?;
                losses.say();
                losses.tell(controller, last).await.err()
            }
            Err(untold) => Some(untold),
        };
        match untold {
            None => {}
            Some(Untold::Refused(refusal)) => return Ok(Tried::Refused(refusal.message)),
            Some(cause) => return Ok(Tried::Undecided(cause.to_string())),
        }
    }
    register.directories.instead_of = last.map(|last| last.epoch);
    let request = build_registration(&image, returning.logs, register.clone());
    match controller.decide_within(request, patience).await {
        Ok((index, Response::RegisterBroker(Ok(epoch)))) => Ok(Tried::Registered(epoch, index)),
        Ok((_, Response::RegisterBroker(Err(refusal)))) => match is_retried(refusal.error) {
            true => Ok(Tried::Refused(refusal.message)),
            false => Err(StartError::Refused(refusal)),
        },
        Ok((_, other)) => unreachable!("the answer to another request: {other:?}"),
        Err(cause @ Undecided::Unknown) => Ok(Tried::Undecided(cause.to_string())),
        Err(Undecided::NoController(reason)) => Ok(Tried::Undecided(reason)),
    }
}

/// The registration of a process of this release, with the marks of its log directories. A node without metadata does not know
/// whether the cluster detects copies, and sends them: a controller of an earlier release gets the older form.
pub fn build_registration(image: &ClusterImage, logs: &Logs, request: RegisterBroker2) -> Request {
    let marks = logs.marks_of(&request.register.log_dirs);
    let request = RegisterBroker3 { request, software: software_of_this_release() };
    match image.detects_copies() || image.cluster_id().is_none() {
        true => Request::RegisterBroker4(RegisterBroker4 { request, marks }),
        false => Request::RegisterBroker3(request),
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

#[cfg(test)]
mod tests {
    use super::*;
    use model::BrokerId;

    #[test]
    fn a_start_names_the_voters_that_it_cannot_reach_and_what_to_check() {
        let target = |id, port| Target { node: Some(BrokerId(id)), host: "h".to_owned(), port };
        let unreached = [target(2, 9093), target(3, 9999)];
        let words = silence_words(&unreached, Some("h:1"), Duration::ZERO).unwrap();
        assert!(words.contains("node 2 at h:9093, node 3 at h:9999"), "{words}");
        assert!(words.contains("controller.quorum.voters"), "{words}");
        let words = silence_words(&[], Some("h:1"), ELECTION_MAX).unwrap();
        assert!(words.contains("reach this node at h:1"), "{words}");
        assert!(silence_words(&[], None, ELECTION_MAX).unwrap().contains("advertises"));
        let slow_election = ELECTION_MAX - Duration::from_millis(1);
        assert_eq!(silence_words(&[], None, slow_election), None);
    }
}
