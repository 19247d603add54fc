//! Telling the active controller that this broker lives, and noticing what it says of this broker.
//!
//! A broker that lives and does not act upon its metadata, because a disk hangs, has itself fenced: it would go on as the leader
//! of what others have been given, and be made the leader of what it never takes up. It serves again when it has caught up.
//!
//! The bytes of heartbeats and their answers are in `node::heartbeats`.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ::link::{Answering, Decline, Declined, Peer, Service, service};
use bytes::Bytes;
use configuration::BrokerConfig;
use metadata::decide::BrokerRef;
use metadata::{Request, Response};
use model::{BrokerId, ErrorCode, Moment};
use node::heartbeats::{Answer, HeartbeatAnswer, decode, decode_marks, encode, encode_with_marks};
use node::standstill::Standstill;
use quorum::Quorum;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{debug, info, warn};

use super::links::ClusterLinks;
use super::marks::ReportedMarks;
use super::watching::Watching;
use crate::server::Server;

/// Takes heartbeats while this node is the active controller.
pub(super) struct HeartbeatService {
    pub(super) quorum: Arc<OnceLock<Arc<Quorum>>>,
    pub(super) watching: Arc<Watching>,
    pub(super) marks: Arc<ReportedMarks>,
}

impl Service for HeartbeatService {
    fn answer<'a>(&'a self, caller: &'a Arc<Peer>, message: Bytes) -> Answering<'a> {
        Box::pin(async move {
            let who = decode(&message);
            let who = who.map_err(|error| Declined::new(Decline::Failed, error.to_string()))?;
            // Nobody speaks for another.
            let leads = self.quorum.get().is_some_and(|quorum| quorum.is_leader());
            let taken = leads && who.broker == caller.hello.node && self.watching.heard(who);
            if taken {
                self.marks.note(who, decode_marks(&message));
            }
            let answer = match self.quorum.get().filter(|_| taken) {
                Some(quorum) => HeartbeatAnswer {
                    state: Answer::by(&quorum.image(), who),
                    metadata: quorum.changed_at(),
                },
                None => HeartbeatAnswer { state: Answer::Elsewhere, metadata: None },
            };
            Ok(answer.encode())
        })
    }
}

/// Heartbeats in a row that no active controller answered, behind which one of the voters is told as well, each in turn: a process
/// that does not belong to the quorum any more is told of no leader.
const UNHEARD_MAX: usize = 3;

/// A broker is not held up before nothing has moved for so long, whatever is configured: a disk that others write to as well may
/// take seconds for one sync.
const STANDSTILL_MIN: Duration = Duration::from_secs(5);

/// Beats until the broker stops. One that finds itself fenced though it lives asks to serve again; one that another
/// process has replaced ends.
pub(crate) async fn run(server: Arc<Server>, links: Arc<ClusterLinks>, who: BrokerRef) {
    let every = Duration::from_millis(server.config().membership.heartbeat_ms);
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut updates = server.quorum.subscribe();
    let mut unheard = 0;
    let mut standstill = Standstill::new(standstill_length(&server.config()));
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                let heard = beat(&server, &links, who, unheard, every).await;
                unheard = if heard.is_some() { 0 } else { unheard + 1 };
                let (controller, answer) = heard.unzip();
                let is_fenced = answer == Some(Answer::Fenced) || is_fenced(&server, who);
                // Once a heartbeat: whoever is fenced for a reason that lasts must not keep the controller busy.
                if is_held_up(&server, &mut standstill) && answer != Some(Answer::Unknown) {
                    if !is_fenced {
                        leave(&server, who, controller, every).await;
                    }
                } else if is_fenced || answer == Some(Answer::Unknown) {
                    serve_again(&server, who, controller, is_fenced, every).await;
                }
            }
            update = updates.next() => if update.is_none() { return },
        }
        look_at_self(&server, who);
    }
}

/// Returns the active controller, and what it knows of this broker, if one was heard: what it says may come before the
/// metadata, and to a process that was unregistered or replaced no metadata comes any more.
async fn beat(
    server: &Server,
    links: &ClusterLinks,
    who: BrokerRef,
    unheard: usize,
    patience: Duration,
) -> Option<(BrokerId, Answer)> {
    let voters: Vec<BrokerId> = links.voters().filter(|voter| *voter != who.broker).collect();
    let leader = server.quorum.leader();
    if leader == Some(who.broker) {
        links.watching().heard(who);
        links.marks().note(who, server.logs.marks());
        // A cut-off controller counts itself as heard no longer than its voters answer.
        if let Some(ago) = server.quorum.majority_answered_ago() {
            note_controller(server, ago, None);
        }
        return Some((who.broker, Answer::Heard));
    }
    let heartbeat = match server.image().detects_copies() {
        true => encode_with_marks(who, &server.logs.marks()),
        false => encode(who),
    };
    for node in leader.into_iter().chain(voter_in_turn(&voters, unheard)) {
        let called =
            links.links().call(node, service::HEARTBEAT, heartbeat.clone(), patience).await;
        match called.map(|answer| HeartbeatAnswer::decode(&answer)) {
            Ok(Some(HeartbeatAnswer { state: Answer::Elsewhere, .. }) | None) => {}
            Ok(Some(answer)) => {
                note_controller(server, Duration::ZERO, answer.metadata);
                return Some((node, answer.state));
            }
            Err(cause) => debug!(%node, %cause, "a heartbeat was not answered"),
        }
    }
    None
}

/// The voter that is told as well behind so many heartbeats that no active controller answered.
fn voter_in_turn(voters: &[BrokerId], unheard: usize) -> Option<BrokerId> {
    let turn = unheard.checked_sub(UNHEARD_MAX)?;
    voters.get(turn.checked_rem(voters.len())?).copied()
}

/// Notes that the active controller answered this long ago. `metadata`: index of the newest metadata that the answer names.
fn note_controller(server: &Server, ago: Duration, metadata: Option<u64>) {
    let now = server.clock.moment();
    let heard = Moment(now.0.saturating_sub(ago.as_micros() as u64));
    server.contacts.note_controller(heard, metadata, server.acting.acted_upon(), now);
    let heard_ms = server.now().0.saturating_sub(ago.as_millis() as i64);
    server.counters.cluster.controller_heard_ms.set(heard_ms.max(0) as u64);
    server.health.note_controller(heard);
}

fn is_fenced(server: &Server, who: BrokerRef) -> bool {
    let image = server.image();
    image.broker(who.broker).is_some_and(|own| own.epoch == who.epoch && own.fenced)
}

/// How long nothing may move while metadata waits: as long as a broker may be silent, and as a replica may lack something.
fn standstill_length(config: &BrokerConfig) -> Duration {
    let ms = config.membership.session_ms.max(config.replica_lag_ms_max);
    Duration::from_millis(ms).max(STANDSTILL_MIN)
}

/// Whether this broker does not get on with its metadata. Says so when it begins and when it is over.
fn is_held_up(server: &Server, standstill: &mut Standstill) -> bool {
    let place = server.acting.place(server.quorum.changed_at());
    let held_up = standstill.look(server.clock.moment(), place);
    if server.acting.set_held_up(held_up) {
        let (known, acted_upon) = (place.known, place.acted);
        match held_up {
            true => warn!(
                known,
                acted_upon,
                "a disk hangs: this broker does not act upon the cluster's metadata and serves no more until it has caught up"
            ),
            false => info!(known, acted_upon, "this broker acts upon the cluster's metadata again"),
        }
    }
    held_up
}

/// Asks to be fenced: others are to lead what this broker leads.
async fn leave(server: &Server, who: BrokerRef, controller: Option<BrokerId>, patience: Duration) {
    if server.is_stopping() {
        return;
    }
    let request = Request::FenceBroker(who);
    match server.controller.decide_by(controller, request, patience).await {
        Ok((_, Response::Broker(Ok(())))) => {}
        Ok((_, Response::Broker(Err(refusal)))) => end_if_replaced(server, who, refusal.error),
        Ok((_, other)) => unreachable!("the answer to another request: {other:?}"),
        Err(cause) => warn!(%cause, "cannot be fenced yet"),
    }
}

/// Asks to serve. What the controller decides is certain, other than what one that was elected a moment ago knows.
async fn serve_again(
    server: &Server,
    who: BrokerRef,
    controller: Option<BrokerId>,
    was_fenced: bool,
    patience: Duration,
) {
    if server.is_stopping() {
        return;
    }
    if was_fenced {
        warn!("this broker was fenced though it lives: it asks to serve again");
    }
    let request = Request::UnfenceBroker(who);
    match server.controller.decide_by(controller, request, patience).await {
        Ok((_, Response::Broker(Ok(())))) if was_fenced => {
            server.counters.cluster.fenced_alive.add(1);
            info!("this broker serves again");
        }
        Ok((_, Response::Broker(Ok(())))) => {}
        Ok((_, Response::Broker(Err(refusal)))) => {
            end_if_replaced(server, who, refusal.error);
            warn!(error = %refusal.error, reason = refusal.message, "the controller does not let this broker serve");
        }
        Ok((_, other)) => unreachable!("the answer to another request: {other:?}"),
        Err(cause) => warn!(%cause, "cannot serve again yet"),
    }
}

/// Ends the broker if this is why the controller refused it: another process has taken its place, or the broker was unregistered.
fn end_if_replaced(server: &Server, who: BrokerRef, refused_for: ErrorCode) {
    match refused_for {
        ErrorCode::BrokerIdNotRegistered => server.end(unregistered(who)),
        ErrorCode::StaleBrokerEpoch => server.end(replaced(who)),
        _ => {}
    }
}

/// Ends the broker if another process has taken its place.
fn look_at_self(server: &Server, who: BrokerRef) {
    let image = server.image();
    match image.broker(who.broker) {
        Some(known) if known.epoch == who.epoch => {}
        Some(_) => server.end(replaced(who)),
        None => server.end(unregistered(who)),
    }
}

fn replaced(who: BrokerRef) -> String {
    format!(
        "another process has registered as broker {0} since, and this one serves no more: broker {0} was started elsewhere \
         while this process was paused or cut off, or two brokers have the same node.id",
        who.broker
    )
}

fn unregistered(who: BrokerRef) -> String {
    format!(
        "broker {} was unregistered; start it again if it is to belong to the cluster",
        who.broker
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_no_controller_answers_tells_each_voter_in_turn() {
        let voters = [BrokerId(1), BrokerId(2), BrokerId(3)];
        let told: Vec<_> = (0..8).map(|unheard| voter_in_turn(&voters, unheard)).collect();
        let expected = [None, None, None, Some(1), Some(2), Some(3), Some(1), Some(2)];
        assert_eq!(told, expected.map(|node| node.map(BrokerId)));
        assert_eq!(voter_in_turn(&[], 9), None);
    }
}
