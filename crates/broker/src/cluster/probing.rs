//! Probes of the active controller: brokers that answer none are suspected and lose their leaderships before their session
//! ends.
//!
//! The rule is `node::suspicion`. Probes run beside the watch: they must stay on time while a decision waits for the quorum.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::link::{Answering, CallError, Peer, Service, service};
use bytes::Bytes;
use metadata::decide::{BrokerRef, RelieveReplicas, SWEEP_PARTITIONS_MAX};
use metadata::image::TopicImage;
use metadata::{ClusterImage, Request, Response};
use model::{BrokerId, Moment, PartitionIndex, TopicId};
use node::disks::{DiskMoves, hangs, is_healthy};
use node::probes::ProbeReport;
use node::suspicion::{ProbeTimes, Suspicion, SuspicionDue};
use parking_lot::Mutex;
use quorum::Quorum;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{debug, info, warn};

use super::links::ClusterLinks;
use super::sick_disks::SickDisks;

/// Report of each broker to the newest probe that was answered, and the time at which that probe was sent.
type Reports = BTreeMap<BrokerId, (Moment, ProbeReport)>;

/// Answers to probes while this node is the active controller.
#[derive(Debug)]
pub(crate) struct Probes {
    times: ProbeTimes,
    /// This node's own; `None` in tests.
    disks: Option<Arc<SickDisks>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Present while this node is the active controller.
    suspicion: Option<Suspicion>,
    reports: Reports,
    moves: DiskMoves,
}

impl Probes {
    pub(super) fn new(times: ProbeTimes, disks: Option<Arc<SickDisks>>) -> Probes {
        Probes { times, disks, state: Mutex::default() }
    }

    /// Begins or ends to collect answers.
    pub(super) fn lead(&self, leads: bool, former: Option<BrokerId>, now: Moment) {
        let suspicion = leads.then(|| Suspicion::begin(self.times, former, now));
        *self.state.lock() =
            State { suspicion, reports: Reports::new(), moves: DiskMoves::default() };
    }

    /// Takes the answer to a probe that was sent at `sent_at`. Returns the length of the suspicion that the answer ends.
    fn answered(
        &self,
        now: Moment,
        sent_at: Moment,
        broker: BrokerId,
        report: ProbeReport,
    ) -> Option<Duration> {
        let mut state = self.state.lock();
        let is_newest = state.reports.get(&broker).is_none_or(|(known, _)| *known <= sent_at);
        if is_newest {
            state.reports.insert(broker, (sent_at, report));
        }
        state.suspicion.as_mut()?.answered(now, sent_at, broker)
    }

    fn poll(&self, now: Moment, image: &ClusterImage, me: BrokerId) -> SuspicionDue {
        let mut state = self.state.lock();
        state.suspicion.as_mut().map(|it| it.poll(now, image, me)).unwrap_or_default()
    }

    /// Brokers that answered a probe of the last half second, and this node, unless one of their disks hangs.
    fn answering(&self, now: Moment, image: &ClusterImage, me: BrokerId) -> Vec<BrokerId> {
        let reports = self.fresh_reports(now, me);
        let state = self.state.lock();
        let Some(suspicion) = &state.suspicion else { return Vec::new() };
        let answers = |id: &BrokerId| *id == me || suspicion.is_fresh(now, *id);
        let may_lead = |id: &BrokerId| answers(id) && !reports.get(id).is_some_and(hangs);
        image.brokers().map(|broker| broker.id).filter(may_lead).collect()
    }

    /// Suspected brokers, ascending.
    pub(crate) fn suspects(&self, image: &ClusterImage) -> Vec<BrokerId> {
        let state = self.state.lock();
        let Some(suspicion) = &state.suspicion else { return Vec::new() };
        let brokers = image.brokers().map(|broker| broker.id);
        brokers.filter(|id| suspicion.is_suspected(*id)).collect()
    }

    /// Whether a broker is suspected.
    pub(super) fn has_suspects(&self) -> bool {
        self.state.lock().suspicion.as_ref().is_some_and(Suspicion::has_suspects)
    }

    /// Reports to probes of the last half second, this node's own among them.
    fn fresh_reports(&self, now: Moment, me: BrokerId) -> BTreeMap<BrokerId, ProbeReport> {
        let reports = &self.state.lock().reports;
        let fresh = reports.iter().filter(|(_, (at, _))| now.since(*at) <= self.times.fresh);
        let own = self.disks.as_ref().map(|disks| (me, disks.report()));
        fresh.map(|(id, (_, report))| (*id, *report)).chain(own).collect()
    }

    /// Brokers that may not join an ISR led by `leader` now. Where the leader has no room itself, others need none.
    pub(super) fn unfit(
        &self,
        now: Moment,
        image: &ClusterImage,
        me: BrokerId,
        leader: BrokerId,
    ) -> Vec<BrokerId> {
        let reports = self.fresh_reports(now, me);
        let needs_room = reports.get(&leader).is_none_or(|report| !report.lacks_room);
        let state = self.state.lock();
        let Some(suspicion) = &state.suspicion else { return Vec::new() };
        let is_sick = |report: &ProbeReport| hangs(report) || report.lacks_room && needs_room;
        let is_unfit =
            |id: &BrokerId| suspicion.is_suspected(*id) || reports.get(id).is_some_and(is_sick);
        image.brokers().map(|broker| broker.id).filter(is_unfit).collect()
    }

    /// Adds the brokers with healthy disks to a request for relief, and leaves out leaderships that moved a while ago.
    pub(super) fn complete_relief(
        &self,
        now: Moment,
        image: &ClusterImage,
        me: BrokerId,
        relief: &mut RelieveReplicas,
    ) {
        let reports = self.fresh_reports(now, me);
        relief.healthy =
            reports.iter().filter(|(_, report)| is_healthy(report)).map(|(id, _)| *id).collect();
        let (state, broker) = (self.state.lock(), relief.broker.broker);
        let may_move = |(topic, at): &(TopicId, PartitionIndex)| {
            !leads(image, broker, *topic, *at) || state.moves.may_move(now, *topic, *at)
        };
        if let Some(partitions) = &mut relief.partitions {
            partitions.retain(may_move);
        }
    }

    /// Takes note of leaderships that relief has moved. `image` is from before the decision.
    pub(super) fn note_moves(
        &self,
        now: Moment,
        image: &ClusterImage,
        broker: BrokerId,
        changed: impl Iterator<Item = (TopicId, PartitionIndex)>,
    ) {
        let mut state = self.state.lock();
        for (topic, at) in changed.filter(|(topic, at)| leads(image, broker, *topic, *at)) {
            state.moves.moved(now, topic, at);
        }
    }

    /// Partitions whose preferred leaders take leaderships back; `None`: all.
    pub(super) fn preferred_by_health(
        &self,
        now: Moment,
        image: &ClusterImage,
        me: BrokerId,
    ) -> Option<Vec<(String, PartitionIndex)>> {
        let reports = self.fresh_reports(now, me);
        let declines = |id: BrokerId| reports.get(&id).is_some_and(|it| it.declines_leaderships);
        if !reports.keys().any(|id| declines(*id)) {
            return None;
        }
        let of_topic = |topic: &Arc<TopicImage>| {
            let back = topic.partitions().filter(|(_, state)| {
                state.leader != state.preferred_leader() && !declines(state.preferred_leader())
            });
            back.map(|(at, _)| (topic.name.to_string(), at)).collect::<Vec<_>>()
        };
        Some(image.topics().flat_map(of_topic).collect())
    }
}

fn leads(image: &ClusterImage, broker: BrokerId, topic: TopicId, at: PartitionIndex) -> bool {
    let state = image.topic_by_id(topic).and_then(|topic| topic.partition(at));
    state.is_some_and(|state| state.leader == broker)
}

/// Answers probes.
pub(super) struct ProbeService {
    pub(super) disks: Arc<SickDisks>,
}

impl Service for ProbeService {
    fn answer<'a>(&'a self, _: &'a Arc<Peer>, _: Bytes) -> Answering<'a> {
        Box::pin(async { Ok(self.disks.report().encode()) })
    }
}

/// Probes while this node is the active controller, until the runtime ends.
pub(crate) async fn run(quorum: Arc<Quorum>, links: Arc<ClusterLinks>) {
    let (watching, me) = (Arc::clone(links.watching()), quorum.node());
    let times = watching.probes().times;
    let mut ticks = interval(times.every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let is_relieving = Arc::new(AtomicBool::new(false));
    loop {
        ticks.tick().await;
        if !quorum.is_leader() {
            continue;
        }
        let image = quorum.image();
        for broker in image.brokers().filter(|broker| !broker.fenced && broker.id != me) {
            tokio::spawn(probe(Arc::clone(&links), broker.id, times.patience()));
        }
        let due = watching.probes().poll(watching.now(), &image, me);
        for node in due.redial {
            links.redial(node);
        }
        for (broker, silence) in due.begun {
            watching.note_suspicion(broker);
            let silence_ms = silence.as_millis() as u64;
            warn!(%broker, silence_ms, "broker answers no probe: its leaderships move to other replicas");
        }
        if !due.suspects.is_empty() && !is_relieving.swap(true, Ordering::Relaxed) {
            let healthy = watching.probes().answering(watching.now(), &image, me);
            let (quorum, is_relieving) = (Arc::clone(&quorum), Arc::clone(&is_relieving));
            tokio::spawn(async move {
                for who in due.suspects {
                    relieve(&quorum, who, healthy.clone()).await;
                }
                is_relieving.store(false, Ordering::Relaxed);
            });
        }
    }
}

async fn probe(links: Arc<ClusterLinks>, node: BrokerId, patience: Duration) {
    let sent_at = links.watching().now();
    let called = links.links().call(node, service::PROBE, Vec::new(), patience).await;
    let report = match &called {
        Ok(answer) => ProbeReport::decode(answer).unwrap_or_default(),
        // An earlier release has no such service: its process runs.
        Err(CallError::Declined(_)) => ProbeReport::default(),
        Err(_) => return,
    };
    let watching = links.watching();
    if let Some(length) = watching.probes().answered(watching.now(), sent_at, node, report) {
        info!(broker = %node, suspected_ms = length.as_millis() as u64, "broker answers probes again");
        watching.look_again();
    }
}

/// Moves leaderships and ISR memberships of a suspected broker.
async fn relieve(quorum: &Quorum, broker: BrokerRef, healthy: Vec<BrokerId>) {
    let request = RelieveReplicas { broker, partitions: None, healthy };
    loop {
        match quorum.propose(Request::RelieveReplicas(request.clone())).await {
            Ok(Response::EmptyReplicas(Ok(changed))) => {
                if !changed.is_empty() {
                    info!(broker = %broker.broker, partitions = changed.len(), "relieved replicas of a silent broker");
                }
                if changed.len() < SWEEP_PARTITIONS_MAX {
                    return;
                }
            }
            Ok(Response::EmptyReplicas(Err(refusal))) => {
                return debug!(reason = refusal.message, "cannot relieve replicas");
            }
            Ok(other) => unreachable!("the answer to another request: {other:?}"),
            Err(cause) => return debug!(%cause, "cannot relieve replicas"),
        }
    }
}
