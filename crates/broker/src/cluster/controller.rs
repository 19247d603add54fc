//! Having something decided, wherever the active controller is: on this node, or by a call over a link.
//!
//! A request that the controller certainly did not process is sent again, to the controller of that moment. A request
//! with an unknown outcome is never sent again by this broker: its caller is told of a time-out.

use std::sync::Arc;
use std::time::Duration;

use ::link::{Answering, Links, Peer, Service, service};
use bytes::Bytes;
use metadata::image::HIGHWATER_VERSION;
use metadata::{ClusterImage, Refusal, Request, Response};
use model::level::newest_version;
use model::{BrokerId, ErrorCode};
use quorum::{Quorum, QuorumError};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::answers::Forwarded;
use super::succession;
use super::unclean::EndsReader;
use super::watching::Watching;

/// How long a decision is tried to be had.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long one call may take.
const CALL_MAX: Duration = Duration::from_secs(5);
/// Pauses between tries: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undecided {
    /// It may have happened, or may yet.
    #[error("the active controller changed or did not answer: it may have happened")]
    Unknown,
    /// Nothing has happened: no active controller could be asked.
    #[error("no active controller could be asked: {0}")]
    NoController(String),
}

/// Has requests decided.
#[derive(Clone)]
pub struct Controller {
    quorum: Arc<Quorum>,
    links: Option<Arc<Links>>,
    /// The voters, which are asked in turn as long as the active controller is unknown.
    voters: Arc<[BrokerId]>,
    /// Present on a node with links.
    watching: Option<Arc<Watching>>,
    /// Present on a node with links.
    ends: Option<EndsReader>,
}

impl Controller {
    /// Of a broker that is alone: it decides itself.
    pub fn alone(quorum: &Arc<Quorum>) -> Controller {
        Controller {
            quorum: Arc::clone(quorum),
            links: None,
            voters: Arc::default(),
            watching: None,
            ends: None,
        }
    }

    /// Of a broker that reaches the voters over these links.
    pub fn over(
        quorum: &Arc<Quorum>,
        links: &Arc<Links>,
        voters: &[BrokerId],
        watching: &Arc<Watching>,
        ends: &EndsReader,
    ) -> Controller {
        let (links, watching) = (Some(Arc::clone(links)), Some(Arc::clone(watching)));
        let (quorum, ends) = (Arc::clone(quorum), Some(ends.clone()));
        Controller { quorum, links, voters: voters.into(), watching, ends }
    }

    /// Has a request decided, and waits until this node goes by the metadata that the answer rests on.
    pub async fn decide(&self, request: Request) -> Result<Response, Undecided> {
        let (index, response) = self.decide_within(request, PATIENCE).await?;
        // An error means that this broker stops.
        let _ = timeout(PATIENCE, self.quorum.wait_applied(index)).await;
        Ok(response)
    }

    /// Has a request decided. The number is the entry of the metadata log that the answer rests on.
    pub async fn decide_within(
        &self,
        request: Request,
        patience: Duration,
    ) -> Result<(u64, Response), Undecided> {
        self.decide_by(None, request, patience).await
    }

    /// As [`Controller::decide_within`], by the node that has just said that it is the active controller, if one has: the quorum
    /// here may know of an earlier one.
    pub async fn decide_by(
        &self,
        controller: Option<BrokerId>,
        request: Request,
        patience: Duration,
    ) -> Result<(u64, Response), Undecided> {
        let until = Instant::now() + patience;
        let (mut pause, mut hint, mut tries) = (PAUSES.0, None, 0usize);
        let mut first = controller;
        loop {
            let known = first.take().or_else(|| self.quorum.leader());
            let leader = known.or(hint).or_else(|| self.some_voter(tries));
            let reason = match self.ask(leader, &request, until).await {
                Ok(Forwarded::Decided(index, response)) => return Ok((index, response)),
                Ok(Forwarded::Unknown) => return Err(Undecided::Unknown),
                Ok(Forwarded::Elsewhere(leader)) => {
                    hint = leader;
                    "the quorum has no known leader".to_owned()
                }
                Ok(Forwarded::Refused(words)) => words,
                Err(Undecided::Unknown) => return Err(Undecided::Unknown),
                Err(Undecided::NoController(reason)) => {
                    hint = None;
                    reason
                }
            };
            tries += 1;
            if Instant::now() + pause >= until || self.links.is_none() {
                return Err(Undecided::NoController(reason));
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    fn some_voter(&self, tries: usize) -> Option<BrokerId> {
        self.voters.get(tries % self.voters.len().max(1)).copied()
    }

    async fn ask(
        &self,
        leader: Option<BrokerId>,
        request: &Request,
        until: Instant,
    ) -> Result<Forwarded, Undecided> {
        let is_elsewhere = |leader: &BrokerId| *leader != self.quorum.node();
        let Some((links, leader)) = self.links.as_ref().zip(leader.filter(is_elsewhere)) else {
            // Without a majority of the voters a leader waits for as long as it leads.
            let deciding = async {
                match self.watching.as_ref().zip(self.ends.as_ref()) {
                    Some((watching, ends)) => {
                        decide_completed(&self.quorum, watching, ends, request.clone()).await
                    }
                    None => decide_here(&self.quorum, request.clone()).await,
                }
            };
            let decided = timeout_at(until, deciding).await;
            return Ok(decided.unwrap_or(Forwarded::Unknown));
        };
        let level = level_for_requests(&self.quorum.image());
        call_at_level(links, leader, request, level, until).await
    }
}

/// The level for requests of this node. A node without metadata knows no level: it sends only registrations, and a
/// controller of an earlier release refuses a newer kind in words.
fn level_for_requests(image: &ClusterImage) -> i16 {
    match image.cluster_id() {
        Some(_) => image.highwater_version(),
        None => newest_version(),
    }
}

/// Sends the controller the newest form of a request that this level has. A request without such a form is not sent, and refused
/// in words.
async fn call_at_level(
    links: &Links,
    leader: BrokerId,
    request: &Request,
    level: i16,
    until: Instant,
) -> Result<Forwarded, Undecided> {
    let Some(request) = request.at_level(level) else {
        let words = format!("the request needs {HIGHWATER_VERSION} {}", request.level());
        let hint = "run highwater cluster finalize";
        return Ok(Forwarded::Refused(format!("{words}, and the cluster has {level}; {hint}")));
    };
    let answer = call(links, leader, &request, until).await?;
    match &answer {
        Forwarded::Refused(words) => match request.for_earlier_release(words) {
            Some(older) => call(links, leader, &older, until).await,
            None => Ok(answer),
        },
        _ => Ok(answer),
    }
}

async fn call(
    links: &Links,
    leader: BrokerId,
    request: &Request,
    until: Instant,
) -> Result<Forwarded, Undecided> {
    let patience = CALL_MAX.min(until.saturating_duration_since(Instant::now()));
    let called = links.call(leader, service::CONTROLLER, request.to_bytes(), patience).await;
    match called {
        Ok(answer) => Forwarded::from_bytes(&answer).map_err(|_| Undecided::Unknown),
        Err(cause) if cause.may_have_happened() => Err(Undecided::Unknown),
        Err(cause) => Err(Undecided::NoController(format!("node {leader}: {cause}"))),
    }
}

/// Has a request decided by this node, if it leads.
async fn decide_here(quorum: &Quorum, request: Request) -> Forwarded {
    match quorum.propose(request).await {
        Ok(response) => Forwarded::Decided(quorum.applied_index().unwrap_or(0), response),
        Err(QuorumError::NotLeader { leader }) => Forwarded::Elsewhere(leader),
        Err(QuorumError::OutcomeUnknown) => Forwarded::Unknown,
        Err(
            cause @ (QuorumError::Members(_) | QuorumError::OlderCopy(_) | QuorumError::Stopped(_)),
        ) => Forwarded::Refused(cause.to_string()),
    }
}

/// Answers requests that other brokers forward.
pub(super) struct ControllerService {
    pub(super) quorum: Arc<std::sync::OnceLock<Arc<Quorum>>>,
    pub(super) watching: Arc<Watching>,
    pub(super) links: Arc<Links>,
    pub(super) ends: EndsReader,
}

impl Service for ControllerService {
    fn answer<'a>(&'a self, _: &'a Arc<Peer>, message: Bytes) -> Answering<'a> {
        // On a task of its own: who does not wait any more must not leave a decision half made.
        let (quorum, watching) = (self.quorum.get().cloned(), Arc::clone(&self.watching));
        let (links, ends) = (Arc::clone(&self.links), self.ends.clone());
        let answering = tokio::spawn(async move {
            let Some(quorum) = quorum else { return Forwarded::Elsewhere(None) };
            if !quorum.is_leader() {
                return Forwarded::Elsewhere(quorum.leader());
            }
            match Request::from_bytes(&message) {
                Ok(request) => decide_for_other(&quorum, &watching, &links, &ends, request).await,
                Err(cause) => Forwarded::Refused(cause.to_string()),
            }
        });
        Box::pin(async move {
            let answer = answering.await.unwrap_or(Forwarded::Unknown);
            Ok(answer.to_bytes())
        })
    }
}

async fn decide_for_other(
    quorum: &Quorum,
    watching: &Watching,
    links: &Links,
    ends: &EndsReader,
    mut request: Request,
) -> Forwarded {
    let register = match &mut request {
        Request::RegisterBroker(register) => Some(register),
        Request::RegisterBroker2(request) => Some(&mut request.register),
        Request::RegisterBroker3(request) => Some(&mut request.request.register),
        Request::RegisterBroker4(request) => Some(&mut request.request.request.register),
        _ => None,
    };
    if let Some(register) = register {
        let image = quorum.image();
        if image.cluster_id().is_none() {
            // Its founder is about to make it.
            return Forwarded::Elsewhere(quorum.leader());
        }
        if let Err(refusal) =
            succession::check(links, watching, quorum.node(), &image, register).await
        {
            let index = quorum.applied_index().unwrap_or(0);
            return Forwarded::Decided(index, Response::RegisterBroker(Err(refusal)));
        }
        register.earlier_incarnation_alive = watching.may_be_alive(&image, register.broker);
    }
    decide_completed(quorum, watching, ends, request).await
}

/// Decides a request with what only this node knows of brokers.
async fn decide_completed(
    quorum: &Quorum,
    watching: &Watching,
    ends: &EndsReader,
    request: Request,
) -> Forwarded {
    if let Some(refused) = postponed(quorum, watching, &request) {
        return refused;
    }
    let image = quorum.image();
    let mut request = match quorum.is_leader() {
        true => ends.complete(&image, request).await,
        false => request,
    };
    watching.complete(&image, &mut request);
    let relieved = match &request {
        Request::RelieveReplicas(relief) => Some(relief.broker.broker),
        _ => None,
    };
    let answer = decide_here(quorum, request).await;
    if let Some(broker) = relieved
        && let Forwarded::Decided(_, Response::EmptyReplicas(Ok(changed))) = &answer
    {
        let changed = changed.iter().map(|(topic, partition, _)| (*topic, *partition));
        watching.note_moves(&image, broker, changed);
    }
    answer
}

/// The refusal of an unclean registration that is to be repeated, because this controller is new and fences other brokers first.
fn postponed(quorum: &Quorum, watching: &Watching, request: &Request) -> Option<Forwarded> {
    let register = match request {
        Request::RegisterBroker2(request) => &request.register,
        Request::RegisterBroker3(request) => &request.request.register,
        Request::RegisterBroker4(request) => &request.request.request.register,
        _ => return None,
    };
    let image = quorum.image();
    let is_known = image
        .broker(register.broker)
        .is_some_and(|known| known.incarnation != register.incarnation && !register.clean);
    if !is_known || !watching.is_settling(&image, register.broker) {
        return None;
    }
    let message =
        "The controller is new, and fences brokers that have ended first: register again.";
    let refusal = Refusal::new(ErrorCode::RequestTimedOut, message);
    let index = quorum.applied_index().unwrap_or(0);
    Some(Forwarded::Decided(index, Response::RegisterBroker(Err(refusal))))
}

#[cfg(test)]
mod tests {
    use ::link::{Door, Event, Identity, Link, LinkConfig, Observer, Services, Target};
    use metadata::decide::{
        BrokerMarks, BrokerRef, ElectLeaders, ElectLeaders2, ElectionKind, GiveUpMissing,
        RaiseMarks, RelieveReplicas, Swept,
    };
    use model::level::HIGHWATER_VERSION_MAX;
    use model::{BrokerEpoch, PartitionIndex, Uuid};
    use parking_lot::Mutex;
    use tokio::net::TcpListener;

    use super::*;

    /// How long a call of a test may take.
    const PATIENCE: Duration = Duration::from_secs(40);
    const CONTROLLER: BrokerId = BrokerId(1);
    const BROKER: BrokerRef = BrokerRef { broker: BrokerId(2), epoch: BrokerEpoch(5) };

    /// A controller of an earlier release: it decides the requests that its level has, and refuses any other kind in the words of
    /// a reader that does not know the kind.
    struct EarlierController {
        level: i16,
        received: Mutex<Vec<Request>>,
    }

    impl Service for EarlierController {
        fn answer<'a>(&'a self, _: &'a Arc<Peer>, message: Bytes) -> Answering<'a> {
            let request = Request::from_bytes(&message).expect("the message is a request");
            let answer = match request.level() <= self.level {
                true => Forwarded::Decided(1, Response::Sweep(Swept { changed: 0, more: false })),
                false => {
                    let mut unknown = message.to_vec();
                    unknown[1] = u8::MAX;
                    let cause = Request::from_bytes(&unknown).expect_err("an unknown kind");
                    let (kind, unknown) = (message[1].to_string(), u8::MAX.to_string());
                    Forwarded::Refused(cause.to_string().replace(&unknown, &kind))
                }
            };
            self.received.lock().push(request);
            Box::pin(async move { Ok(answer.to_bytes()) })
        }
    }

    struct Silent;

    impl Observer for Silent {
        fn observe(&self, _: &Event) {}
    }

    fn identity(node: BrokerId) -> Arc<Identity> {
        Arc::new(Identity::new("cluster", node, Uuid([node.0 as u8; 16])))
    }

    /// A link of the broker to a controller whose release has this level.
    async fn link_to(controller: &Arc<EarlierController>) -> (Links, Arc<Door>) {
        let config = Arc::new(LinkConfig {
            dial_timeout: PATIENCE,
            hello_timeout: PATIENCE,
            ..LinkConfig::default()
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let services = Services::default().with(service::CONTROLLER, Arc::clone(controller) as _);
        let (me, silent) = (identity(CONTROLLER), Arc::new(Silent));
        let door = Arc::new(Door::new(me, Arc::clone(&config), services, Arc::clone(&silent) as _));
        tokio::spawn(Arc::clone(&door).accept(listener));
        let links = Links::new();
        let target = Target { node: Some(CONTROLLER), host: "127.0.0.1".to_owned(), port };
        links.put(CONTROLLER, Link::start(target, identity(BROKER.broker), config, silent));
        (links, door)
    }

    /// Requests of the newest level, each with whether release 0.1.0 has a form of it.
    fn newest_requests() -> [(Request, bool); 4] {
        let partitions = vec![(Uuid([7; 16]), PartitionIndex(0))];
        let relieve = RelieveReplicas {
            broker: BROKER,
            partitions: Some(partitions.clone()),
            healthy: Vec::new(),
            hung_ms: 700,
        };
        let missing = GiveUpMissing { broker: BROKER, partitions, heard: Vec::new() };
        let elect = ElectLeaders2 {
            request: ElectLeaders { kind: ElectionKind::Preferred, partitions: None },
            ends: Vec::new(),
        };
        let marks = BrokerMarks { broker: BROKER, marks: vec![(Uuid([8; 16]), 3)] };
        [
            (Request::RelieveReplicas(relieve), false),
            (Request::GiveUpMissing(missing), true),
            (Request::ElectLeaders2(elect), true),
            (Request::RaiseMarks(RaiseMarks { brokers: vec![marks] }), false),
        ]
    }

    #[tokio::test]
    async fn no_request_above_the_finalized_level_is_sent_over_a_link() {
        for level in 0..=HIGHWATER_VERSION_MAX {
            let received = Mutex::default();
            let controller = Arc::new(EarlierController { level, received });
            let (links, door) = link_to(&controller).await;
            for (request, has_older) in newest_requests() {
                let until = Instant::now() + PATIENCE;
                let answer = call_at_level(&links, CONTROLLER, &request, level, until).await;
                let sent: Vec<Request> = controller.received.lock().drain(..).collect();
                match (level >= request.level(), has_older) {
                    (true, _) => assert_eq!(sent, std::slice::from_ref(&request), "level {level}"),
                    (false, true) => {
                        assert_eq!(sent, [request.at_level(level).unwrap()], "level {level}");
                    }
                    (false, false) => {
                        assert_eq!(sent, [], "level {level}");
                        let Ok(Forwarded::Refused(words)) = answer else { panic!("{answer:?}") };
                        let expected = format!("the cluster has {level}; run highwater cluster");
                        assert!(words.contains(&expected), "{words}");
                        continue;
                    }
                }
                assert!(matches!(answer, Ok(Forwarded::Decided(1, _))), "{answer:?}");
            }
            door.close();
        }
    }

    /// As a registration, whose level rises only afterwards.
    #[tokio::test]
    async fn a_kind_that_the_controller_does_not_know_is_sent_again_in_the_older_form() {
        let controller = Arc::new(EarlierController { level: 3, received: Mutex::default() });
        let (links, door) = link_to(&controller).await;
        let (request, _) = newest_requests().into_iter().find(|(_, has_older)| *has_older).unwrap();
        let until = Instant::now() + PATIENCE;
        let level = request.level();
        let answer = call_at_level(&links, CONTROLLER, &request, level, until).await;
        assert!(matches!(answer, Ok(Forwarded::Decided(1, _))), "{answer:?}");
        let older = request.at_level(3).unwrap();
        assert_eq!(*controller.received.lock(), [request, older]);
        door.close();
    }
}
