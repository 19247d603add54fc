//! Elections by log ends: the active controller requests the ends of complete replicas, brokers answer, and the greatest is elected.
//!
//! Which brokers are requested, and when an election is due, is decided by `node::elections`; the election itself by
//! `metadata::decide`. A broker answers as soon as it serves.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use ::link::{Answering, Decline, Declined, Peer, Service, service};
use bytes::Bytes;
use metadata::decide::{BrokerRef, ElectByEnds};
use metadata::{ImageUpdate, PartitionImage, Request, Response, TopicChange};
use model::{BrokerId, Moment};
use node::Elections;
use node::elections::NamedPartition;
use node::log_ends::{LogEnd, decode_answer, decode_request, encode_answer, encode_request};
use partition::Status;
use quorum::Quorum;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info};

use super::links::ClusterLinks;
use crate::server::Server;

/// How long one request may take.
const CALL_MAX: Duration = Duration::from_secs(1);
/// Pause behind a proposal that was not decided.
const PAUSE: Duration = Duration::from_millis(50);

/// The logs of this broker, once it serves.
#[derive(Default)]
pub(super) struct LogEndsSource(OnceLock<(Weak<Server>, BrokerRef)>);

impl LogEndsSource {
    /// Answers for this broker from now on.
    pub(super) fn answer_by(&self, server: &Arc<Server>, who: BrokerRef) {
        let _ = self.0.set((Arc::downgrade(server), who));
    }

    /// The registration of this process and the ends of the replicas; `None` before the broker serves.
    pub(super) fn ends(&self, partitions: &[NamedPartition]) -> Option<(BrokerRef, Vec<LogEnd>)> {
        let (server, who) = self.0.get()?;
        let topics = server.upgrade()?.topics.snapshot();
        let end_of = |(topic, at): &NamedPartition| {
            let partition = topics.by_id(topic)?.partition(*at)?;
            (partition.status() != Status::Offline).then(|| partition.synced_end())
        };
        Some((*who, partitions.iter().map(end_of).collect()))
    }
}

/// Answers requests for log ends.
pub(super) struct LogEndsService {
    pub(super) source: Arc<LogEndsSource>,
}

impl Service for LogEndsService {
    fn answer<'a>(&'a self, _: &'a Arc<Peer>, message: Bytes) -> Answering<'a> {
        Box::pin(async move {
            let failed = |words: String| Declined::new(Decline::Failed, words);
            let partitions = decode_request(&message).map_err(|error| failed(error.to_string()))?;
            let (who, ends) = self
                .source
                .ends(&partitions)
                .ok_or_else(|| failed("the broker does not serve yet".to_owned()))?;
            Ok(encode_answer(who, &ends))
        })
    }
}

/// An answer to one request, or none in time.
struct Answered {
    /// Number of the leadership in which the request was sent.
    leadership: u64,
    who: BrokerRef,
    partitions: Vec<NamedPartition>,
    ends: Option<Vec<LogEnd>>,
}

/// What runs the elections of one node.
struct Elector {
    quorum: Arc<Quorum>,
    links: Arc<ClusterLinks>,
    wait: Duration,
    started: Instant,
    elections: Elections,
    /// Rises whenever this node begins or ends to be the active controller.
    leadership: u64,
    leads: bool,
    sender: UnboundedSender<Answered>,
}

/// Elects by log ends while this node is the active controller, until the quorum stops. `wait`: how long an election waits for complete
/// replicas that are fenced or do not answer.
pub(crate) async fn run(quorum: Arc<Quorum>, links: Arc<ClusterLinks>, wait: Duration) {
    let (sender, answers) = unbounded_channel();
    let (started, elections) = (Instant::now(), Elections::new(wait));
    let (leadership, leads) = (0, false);
    let elector = Elector { quorum, links, wait, started, elections, leadership, leads, sender };
    elector.run(answers).await;
}

impl Elector {
    async fn run(mut self, mut answers: UnboundedReceiver<Answered>) {
        let quorum = Arc::clone(&self.quorum);
        let mut updates = quorum.subscribe();
        let mut may_open = true;
        loop {
            let leader = quorum.leader();
            may_open |= self.lead(leader == Some(quorum.node()));
            let due = if self.leads { self.go_on(&mut may_open).await } else { None };
            tokio::select! {
                update = updates.next() => match update {
                    Some(update) => may_open |= may_open_election(&update),
                    None => return,
                },
                changed = quorum.leader_changed(leader) => if changed.is_err() { return },
                answered = answers.recv() => answered.into_iter().for_each(|one| self.take(one)),
                () = until(due) => {}
            }
        }
    }

    /// Begins or ends to be the active controller; returns whether that is new.
    fn lead(&mut self, leads: bool) -> bool {
        let is_new = std::mem::replace(&mut self.leads, leads) != leads;
        if is_new {
            self.leadership += 1;
            self.elections = Elections::new(self.wait);
        }
        is_new
    }

    fn now(&self) -> Moment {
        Moment::START.plus(self.started.elapsed())
    }

    /// Sends requests and proposes elections; returns when to go on without news.
    async fn go_on(&mut self, may_open: &mut bool) -> Option<Instant> {
        if std::mem::take(may_open) || self.elections.is_any_open() {
            self.elections.observe(self.now(), &self.quorum.image());
        }
        for (who, partitions) in self.elections.take_requests(self.now()) {
            self.request(who, partitions);
        }
        if let Some(request) = self.elections.take_due(self.now())
            && !is_decided(&self.quorum, request).await
        {
            self.elections.propose_again();
            return Some(Instant::now() + PAUSE);
        }
        let due = self.elections.due_at()?;
        Some(self.started + due.since(Moment::START))
    }

    fn request(&self, who: BrokerRef, partitions: Vec<NamedPartition>) {
        let (links, sender, leadership) =
            (Arc::clone(&self.links), self.sender.clone(), self.leadership);
        let me = self.quorum.node();
        tokio::spawn(async move {
            let answer = match who.broker == me {
                true => links.log_ends().ends(&partitions),
                false => call(&links, who.broker, &partitions).await,
            };
            let ends = answer.filter(|(by, _)| *by == who).map(|(_, ends)| ends);
            // The receiver is gone when the node stops.
            let _ = sender.send(Answered { leadership, who, partitions, ends });
        });
    }

    fn take(&mut self, answered: Answered) {
        let Answered { leadership, who, partitions, ends } = answered;
        if leadership != self.leadership {
            return;
        }
        let now = self.now();
        match ends {
            Some(ends) => self.elections.note_answer(now, who, &partitions, &ends),
            None => drop(self.elections.note_failure(now, who)),
        }
    }
}

async fn call(
    links: &ClusterLinks,
    node: BrokerId,
    partitions: &[NamedPartition],
) -> Option<(BrokerRef, Vec<LogEnd>)> {
    let request = encode_request(partitions);
    match links.links().call(node, service::LOG_ENDS, request, CALL_MAX).await {
        Ok(answer) => decode_answer(&answer).ok(),
        Err(cause) => {
            debug!(%node, %cause, "cannot read log ends; the request is retried");
            None
        }
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Whether an election may open by a step of the metadata: a broker changed, or a partition has no leader.
fn may_open_election(update: &ImageUpdate) -> bool {
    let delta = &update.delta;
    let has_no_leader = |(id, change): (&model::TopicId, &TopicChange)| {
        let TopicChange::Changed(partitions) = change else { return false };
        let Some(topic) = update.after.topic_by_id(*id) else { return false };
        let mut states = partitions.iter().filter_map(|at| topic.partition(*at));
        states.any(|state: &PartitionImage| !state.has_leader())
    };
    delta.cluster || !delta.brokers.is_empty() || delta.topics.iter().any(has_no_leader)
}

/// Whether the elections are decided, or refused for states that have changed since.
async fn is_decided(quorum: &Quorum, request: ElectByEnds) -> bool {
    match quorum.propose(Request::ElectByEnds(request)).await {
        Ok(Response::EmptyReplicas(Ok(answers))) => {
            let elected = answers.iter().filter(|(_, _, answer)| answer.is_ok()).count();
            if elected > 0 {
                info!(
                    partitions = elected,
                    "elected the complete replicas with the greatest log ends"
                );
            }
            true
        }
        Ok(other) => {
            debug!(?other, "the controller refused an election by log ends");
            false
        }
        Err(cause) => {
            debug!(%cause, "the controller could not decide yet");
            false
        }
    }
}
