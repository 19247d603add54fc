//! Probes of the active controller: brokers that answer none are suspected and lose their leaderships before their session
//! ends.
//!
//! The rule is `node::suspicion`. Probes run beside the watch: they must stay on time while a decision waits for the quorum.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::link::{Answering, CallError, Peer, Service, service};
use bytes::Bytes;
use metadata::decide::{BrokerRef, RelieveReplicas, SWEEP_PARTITIONS_MAX};
use metadata::{ClusterImage, Request, Response};
use model::{BrokerId, Moment};
use node::ProbeTimes;
use node::probe_book::ProbeBook;
use node::probes::{ProbeReport, ProbeRequest};
use parking_lot::Mutex;
use quorum::Quorum;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{debug, info, warn};

use super::links::ClusterLinks;
use super::sick_disks::SickDisks;

/// Answers to probes while this node is the active controller.
#[derive(Debug)]
pub(crate) struct Probes {
    me: BrokerId,
    times: ProbeTimes,
    /// This node's own; `None` in tests.
    disks: Option<Arc<SickDisks>>,
    /// Present while this node is the active controller.
    book: Mutex<Option<ProbeBook>>,
}

impl Probes {
    pub(super) fn new(me: BrokerId, times: ProbeTimes, disks: Option<Arc<SickDisks>>) -> Probes {
        Probes { me, times, disks, book: Mutex::default() }
    }

    /// Begins or ends to collect answers.
    pub(super) fn lead(&self, leads: bool, former: Option<BrokerId>, now: Moment) {
        *self.book.lock() = leads.then(|| ProbeBook::begin(self.me, self.times, former, now));
    }

    /// Runs `read` on the book, with this node's own report in it. The default if this node is not the active
    /// controller.
    pub(super) fn with_book<T: Default>(
        &self,
        now: Moment,
        read: impl FnOnce(&mut ProbeBook) -> T,
    ) -> T {
        // The report takes locks of its own.
        let own = self.disks.as_ref().map(|disks| disks.report()).unwrap_or_default();
        let mut book = self.book.lock();
        let Some(book) = &mut *book else { return T::default() };
        book.note_own(now, own);
        read(book)
    }

    /// Log directories of this node, if `broker` is this node.
    pub(super) fn own_disks(&self, broker: BrokerId) -> Option<&SickDisks> {
        self.disks.as_deref().filter(|_| broker == self.me)
    }

    /// Suspected brokers, ascending.
    pub(crate) fn suspects(&self, image: &ClusterImage) -> Vec<BrokerId> {
        let book = self.book.lock();
        let Some(book) = &*book else { return Vec::new() };
        let brokers = image.brokers().map(|broker| broker.id);
        brokers.filter(|id| book.is_suspected(*id)).collect()
    }
}

/// Answers probes.
pub(super) struct ProbeService {
    pub(super) disks: Arc<SickDisks>,
}

impl Service for ProbeService {
    fn answer<'a>(&'a self, _: &'a Arc<Peer>, request: Bytes) -> Answering<'a> {
        if ProbeRequest::decode(&request).demands_proof {
            self.disks.prove();
        }
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
        let (image, now) = (quorum.image(), watching.now());
        let probes = watching.probes();
        let demands_proof = probes.with_book(now, |book| book.demands_proof(now));
        if let Some(disks) = probes.disks.as_ref().filter(|_| demands_proof) {
            disks.prove();
        }
        for broker in image.brokers().filter(|broker| !broker.fenced && broker.id != me) {
            let request = ProbeRequest { demands_proof };
            tokio::spawn(probe(Arc::clone(&links), broker.id, request, times.patience()));
        }
        let (due, answering) =
            probes.with_book(now, |book| (book.poll(now, &image), book.answering(now, &image)));
        for node in due.redial {
            links.redial(node);
        }
        for (broker, silence) in due.begun {
            watching.note_suspicion(broker);
            let silence_ms = silence.as_millis() as u64;
            warn!(%broker, silence_ms, "broker answers no probe: its leaderships move to other replicas");
        }
        if !due.suspects.is_empty() && !is_relieving.swap(true, Ordering::Relaxed) {
            let (quorum, is_relieving) = (Arc::clone(&quorum), Arc::clone(&is_relieving));
            tokio::spawn(async move {
                for who in due.suspects {
                    relieve(&quorum, who, answering.clone()).await;
                }
                is_relieving.store(false, Ordering::Relaxed);
            });
        }
    }
}

async fn probe(
    links: Arc<ClusterLinks>,
    node: BrokerId,
    request: ProbeRequest,
    patience: Duration,
) {
    let sent_at = links.watching().now();
    let called = links.links().call(node, service::PROBE, request.encode(), patience).await;
    let report = match &called {
        Ok(answer) => ProbeReport::decode(answer).unwrap_or_default(),
        // An earlier release has no such service: its process runs.
        Err(CallError::Declined(_)) => ProbeReport::default(),
        Err(_) => return,
    };
    let (watching, now) = (links.watching(), links.watching().now());
    let ended = watching.probes().with_book(now, |book| book.answered(now, sent_at, node, report));
    if let Some(length) = ended {
        info!(broker = %node, suspected_ms = length.as_millis() as u64, "broker answers probes again");
        watching.look_again();
    }
}

/// Moves leaderships and ISR memberships of a suspected broker.
async fn relieve(quorum: &Quorum, broker: BrokerRef, healthy: Vec<BrokerId>) {
    let request = RelieveReplicas { broker, partitions: None, healthy, hung_ms: 0 };
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
