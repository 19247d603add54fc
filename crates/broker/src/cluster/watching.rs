//! The active controller's watch: who is alive, whom to fence, and what follows for partitions.
//!
//! Every voter watches its links all the time, so that a new controller knows at once who is gone. Only the active one
//! acts. The end of a process is certain when its link ended and its address refuses, or when another process is
//! there; silence is certain only when a session is over.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ::link::{DialFailure, Direction, Event};
use metadata::decide::{AlterPartition2, BrokerRef};
use metadata::{ClusterImage, ImageUpdate, Request, Response};
use model::{BrokerId, Moment, PartitionIndex, TopicId, Uuid};
use node::Sessions;
use parking_lot::Mutex;
use quorum::{Quorum, QuorumError};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, info, warn};

use super::links::ClusterLinks;
use super::members::Members;
use super::probing::Probes;
use super::returns::elect_preferred;
use crate::counters::{Counter, Fencing};

/// How long each voter waits for those before it when the controller has ended.
const TURN: Duration = Duration::from_millis(50);
/// How long leaderships stay where a failure has put them.
const CALM_MIN: Duration = Duration::from_secs(60);
/// How long a new controller waits until it knows of each broker whether the registered process lives.
const SETTLING_MAX: Duration = Duration::from_secs(2);
/// Age of a broker's last answer up to which its replica counts beside one in a missing log directory.
const HEARD_WITHIN: Duration = Duration::from_secs(2);
/// The pause after a decision that could not be had.
const PAUSE: Duration = Duration::from_millis(5);

/// What a voter knows of the others' lives.
pub struct Watching {
    me: BrokerId,
    /// The process of this node.
    process: Uuid,
    session: Duration,
    started: Instant,
    state: Mutex<State>,
    changed: Notify,
    probes: Probes,
    suspicions: Counter,
    disk_moves: Counter,
}

#[derive(Default)]
struct State {
    /// While this node is the active controller.
    sessions: Option<Sessions>,
    /// Since when this node is the active controller, or was last.
    led_since: Option<Instant>,
    /// The process that was last seen behind each link.
    seen: BTreeMap<BrokerId, Uuid>,
    /// Brokers that this controller has heard since it is the active one.
    heard: BTreeSet<BrokerId>,
    /// The processes of unfenced brokers, by the image of the last look: each of them has listened at its address.
    serving: BTreeMap<BrokerId, Uuid>,
    /// The last process of each node that is known to have ended.
    ended: BTreeMap<BrokerId, Uuid>,
    /// When the address of each node refused last, and the process that had been seen there before.
    refused: BTreeMap<BrokerId, (Uuid, Instant)>,
    /// Why this controller fenced brokers last.
    fenced_for: BTreeMap<BrokerId, Fencing>,
    /// Connections that processes of other nodes have opened to this node.
    incoming: BTreeMap<(BrokerId, Uuid), usize>,
    /// Processes whose address refused while they had a connection to this node: they have ended when the last one ends.
    doubtful: BTreeMap<BrokerId, Uuid>,
    /// Last other node that led the quorum.
    former: Option<BrokerId>,
}

impl Watching {
    pub(super) fn new(me: BrokerId, session: Duration, probes: Probes) -> Watching {
        let (state, changed) = (Mutex::default(), Notify::new());
        let (suspicions, disk_moves) = (Counter::default(), Counter::default());
        let (process, started) = (Uuid::ZERO, Instant::now());
        Watching { me, process, session, started, state, changed, probes, suspicions, disk_moves }
    }

    /// For the node whose process has this incarnation.
    pub(super) fn of_process(self, process: Uuid) -> Watching {
        Watching { process, ..self }
    }

    /// Answers to probes.
    pub(crate) fn probes(&self) -> &Probes {
        &self.probes
    }

    /// A broker is suspected from now on. Leaderships stay where this puts them for a while.
    pub(super) fn note_suspicion(&self, broker: BrokerId) {
        self.suspicions.add(1);
        debug!(%broker, "suspicion begins");
    }

    /// Suspicions that this controller began.
    pub(crate) fn suspicions(&self) -> u64 {
        self.suspicions.get()
    }

    /// Adds to a request what only the active controller's node knows of brokers.
    pub(super) fn complete(&self, image: &ClusterImage, request: &mut Request) {
        match request {
            Request::AlterPartition(alter) => {
                let (now, leader) = (self.now(), alter.leader.broker);
                let unfit = self.probes.with_book(now, |book| book.unfit(now, image, leader));
                if !unfit.is_empty() {
                    let alter = AlterPartition2 { alter: alter.clone(), unfit };
                    *request = Request::AlterPartition2(alter);
                }
            }
            Request::RelieveReplicas(relief) => {
                let now = self.now();
                self.probes.with_book(now, |book| book.complete_relief(now, image, relief));
            }
            Request::GiveUpMissing(report) => {
                let now = self.now();
                report.heard =
                    self.probes.with_book(now, |book| book.heard_within(now, image, HEARD_WITHIN));
            }
            _ => {}
        }
    }

    /// Takes note of leaderships that relief has moved. `image` is from before the decision.
    pub(super) fn note_moves(
        &self,
        image: &ClusterImage,
        broker: BrokerId,
        changed: impl Iterator<Item = (TopicId, PartitionIndex)>,
    ) {
        let now = self.now();
        let moved = self.probes.with_book(now, |book| book.note_moves(now, image, broker, changed));
        self.disk_moves.add(moved as u64);
    }

    /// Leaderships that this controller moved away from hung and full disks.
    pub(crate) fn disk_moves(&self) -> u64 {
        self.disk_moves.get()
    }

    pub(super) fn now(&self) -> Moment {
        Moment::START.plus(self.started.elapsed())
    }

    /// Takes notice of what became of a link.
    pub(super) fn observe(&self, event: &Event) {
        self.observe_at(Instant::now(), event);
    }

    fn observe_at(&self, now: Instant, event: &Event) {
        let mut state = self.state.lock();
        match event {
            Event::Up { peer } if peer.direction == Direction::Out => {
                let (node, incarnation) = (peer.hello.node, peer.hello.incarnation);
                let before = state.seen.insert(node, incarnation);
                if let Some(before) = before.filter(|before| *before != incarnation) {
                    state.ended.insert(node, before);
                }
                state.doubtful.remove(&node);
                if state.ended.get(&node) == Some(&incarnation) {
                    state.ended.remove(&node);
                    if let Some(sessions) = &mut state.sessions {
                        sessions.lives(node, incarnation);
                    }
                }
            }
            Event::NotDialed { target, failure: DialFailure::Refused, .. } => {
                let Some(node) = target.node else { return };
                match state.seen.get(&node).copied() {
                    // Where only one direction is cut, the process lives: its own connection stays.
                    Some(ended) if state.incoming.contains_key(&(node, ended)) => {
                        state.doubtful.insert(node, ended);
                        return;
                    }
                    Some(ended) => {
                        state.refused.insert(node, (ended, now));
                        state.ended.insert(node, ended);
                    }
                    None if state.ended_unseen(node) => {}
                    None => return,
                }
            }
            Event::Up { peer } => {
                let key = (peer.hello.node, peer.hello.incarnation);
                *state.incoming.entry(key).or_default() += 1;
                return;
            }
            Event::Ended { peer, .. } if peer.direction == Direction::In => {
                let (node, process) = (peer.hello.node, peer.hello.incarnation);
                if state.connection_ended((node, process))
                    && state.doubtful.get(&node) == Some(&process)
                {
                    state.doubtful.remove(&node);
                    state.refused.insert(node, (process, now));
                    state.ended.insert(node, process);
                }
            }
            _ => return,
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Something that the watch acts upon may have changed.
    pub(super) fn look_again(&self) {
        self.changed.notify_one();
    }

    /// A broker was heard. `false`: this node is not the active controller.
    pub(super) fn heard(&self, who: BrokerRef) -> bool {
        let now = self.now();
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(sessions) = &mut state.sessions else { return false };
        if !state.seen.contains_key(&who.broker)
            && let Some(ended) = state.ended.remove(&who.broker)
        {
            // Its address refuses, and still it lives.
            sessions.lives(who.broker, ended);
        }
        sessions.heard(now, who);
        state.heard.insert(who.broker);
        true
    }

    /// The process that was last seen at a node, if its address has refused since `since`. An earlier refusal says nothing of
    /// what has been done there from then on: the node may have come back, and not be connected with this one yet.
    fn ended_since(&self, node: BrokerId, since: Instant) -> Option<Uuid> {
        let state = self.state.lock();
        let (process, at) = state.refused.get(&node).copied()?;
        (at > since && state.seen.get(&node) == Some(&process)).then_some(process)
    }

    /// Whether this is the process that was last seen behind the link to a node.
    pub(super) fn was_seen(&self, node: BrokerId, process: Uuid) -> bool {
        self.state.lock().seen.get(&node) == Some(&process)
    }

    /// Whether the process that is registered for a broker is known to have ended, though the image does not say so yet.
    pub(crate) fn is_suspected(&self, image: &ClusterImage, broker: BrokerId) -> bool {
        let Some(known) = image.broker(broker).filter(|known| !known.fenced) else { return false };
        self.state.lock().ended.get(&broker) == Some(&known.incarnation)
    }

    /// Why this controller fenced a broker, if it did; told once.
    pub(crate) fn take_fenced_for(&self, broker: BrokerId) -> Option<Fencing> {
        self.state.lock().fenced_for.remove(&broker)
    }

    /// Whether a broker that is registered may still be alive, as far as this controller knows.
    pub(super) fn may_be_alive(&self, image: &ClusterImage, broker: BrokerId) -> bool {
        let now = self.now();
        let mut state = self.state.lock();
        state.tell_gone(now, image);
        state.sessions.as_ref().is_some_and(|sessions| sessions.may_be_alive(image, broker))
    }

    /// Begins or ends to be the active controller; returns whether that is new.
    fn lead(&self, leads: bool) -> bool {
        let now = self.now();
        let mut state = self.state.lock();
        if leads == state.sessions.is_some() {
            return false;
        }
        state.sessions = leads.then(|| Sessions::begin(self.session, now));
        state.heard.clear();
        state.led_since = leads.then(Instant::now);
        self.probes.lead(leads, state.former, now);
        true
    }

    /// Takes note of the leader of the quorum.
    fn note_leader(&self, leader: Option<BrokerId>) {
        if let Some(other) = leader.filter(|leader| *leader != self.me) {
            self.state.lock().former = Some(other);
        }
    }

    /// Whether this controller, which is new, does not know yet of each broker whether the registered process lives.
    fn is_waiting(&self, image: &ClusterImage) -> bool {
        let mut state = self.state.lock();
        let is_over = state.led_since.is_none_or(|since| since.elapsed() >= SETTLING_MAX);
        image.detects_copies() && !is_over && !state.settle(image, self.me, self.process)
    }

    /// Whether an unclean registration has to wait: brokers that died together are fenced together and first, so that each of
    /// their replicas stays complete. Otherwise the replicas of those that return first would leave the ISRs of brokers that are gone.
    pub(super) fn is_settling(&self, image: &ClusterImage, registering: BrokerId) -> bool {
        let mut state = self.state.lock();
        if state.sessions.is_none() || !image.detects_copies() {
            return false;
        }
        let is_settled = state.settle(image, self.me, self.process);
        let is_over = state.led_since.is_none_or(|since| since.elapsed() >= SETTLING_MAX);
        let is_to_be_fenced = image.brokers().any(|broker| {
            let has_ended = state.ended.get(&broker.id) == Some(&broker.incarnation);
            broker.id != registering && !broker.fenced && has_ended
        });
        drop(state);
        self.changed.notify_one();
        !is_over && (!is_settled || is_to_be_fenced)
    }

    /// Whom to fence now, and when to look again.
    fn look(&self, image: &ClusterImage) -> (Vec<BrokerRef>, Option<Instant>) {
        let now = self.now();
        let mut state = self.state.lock();
        let is_settled = !image.detects_copies() || state.settle(image, self.me, self.process);
        state.tell_gone(now, image);
        let state = &mut *state;
        let serving = image.brokers().filter(|broker| !broker.fenced);
        state.serving = serving.map(|broker| (broker.id, broker.incarnation)).collect();
        let Some(sessions) = &mut state.sessions else { return (Vec::new(), None) };
        if let Some(own) = image.broker(self.me) {
            sessions.heard(now, BrokerRef { broker: own.id, epoch: own.epoch });
        }
        let settled_at = state.led_since.map(|since| since + SETTLING_MAX);
        if let Some(at) = settled_at.filter(|at| !is_settled && *at > Instant::now()) {
            return (Vec::new(), Some(at));
        }
        let due = sessions.look(now, image);
        for who in &due.fence {
            let known = image.broker(who.broker);
            let has_ended =
                known.is_some_and(|known| state.ended.get(&who.broker) == Some(&known.incarnation));
            let stops = known.is_some_and(|known| known.in_controlled_shutdown);
            let reason = match has_ended {
                _ if stops => Fencing::Stop,
                true => Fencing::Link,
                false => Fencing::Session,
            };
            state.fenced_for.insert(who.broker, reason);
        }
        let at = due.look_at.map(|at| self.started + at.since(Moment::START));
        (due.fence, at)
    }
}

impl State {
    /// The address of a broker refuses, and this node was never connected with it. If this is the active controller and has
    /// not heard the broker either, as after the death of all brokers, the process that served there has ended: notes that.
    /// A refusal alone does not prove the end of a broker that is heard: a firewall refuses as well.
    fn ended_unseen(&mut self, node: BrokerId) -> bool {
        let is_silent = self.sessions.is_some() && !self.heard.contains(&node);
        let Some(process) = self.serving.get(&node).filter(|_| is_silent) else { return false };
        self.ended.insert(node, *process) != Some(*process)
    }

    /// One connection of a process ended. Returns whether it was the last.
    fn connection_ended(&mut self, key: (BrokerId, Uuid)) -> bool {
        let Some(count) = self.incoming.get_mut(&key) else { return true };
        *count -= 1;
        let is_last = *count == 0;
        if is_last {
            self.incoming.remove(&key);
        }
        is_last
    }

    /// Whether this node knows of each serving broker whether the registered process lives, for an active controller. A broker that
    /// was neither seen nor heard is not known. Where another process is in the place of the registered one, that one has ended.
    fn settle(&mut self, image: &ClusterImage, me: BrokerId, process: Uuid) -> bool {
        let mut is_settled = true;
        for broker in image.brokers().filter(|broker| !broker.fenced) {
            let registered = broker.incarnation;
            let present = match broker.id == me {
                true => Some(process),
                false => self.seen.get(&broker.id).copied(),
            };
            let is_known = self.heard.contains(&broker.id)
                || self.ended.get(&broker.id) == Some(&registered)
                || present == Some(registered);
            match present {
                _ if is_known || self.sessions.is_none() => {}
                Some(_) => drop(self.ended.insert(broker.id, registered)),
                None => is_settled = false,
            }
        }
        is_settled
    }

    fn tell_gone(&mut self, now: Moment, image: &ClusterImage) {
        let Some(sessions) = &mut self.sessions else { return };
        for (node, incarnation) in &self.ended {
            sessions.gone(now, image, *node, *incarnation);
        }
    }
}

/// Watches until the quorum stops.
pub(crate) async fn run(
    quorum: Arc<Quorum>,
    links: Arc<ClusterLinks>,
    rebalance_every: Option<Duration>,
) {
    let watching = Arc::clone(links.watching());
    let members = Members::default();
    let mut updates = quorum.subscribe();
    let mut sweeps = false;
    let (mut succeeded, mut told) = (None, None);
    let mut led: Option<(BrokerId, Instant)> = None;
    let mut rebalance = Rebalance::new(rebalance_every);
    loop {
        let leader = quorum.leader();
        let leads = leader == Some(quorum.node());
        watching.note_leader(leader);
        if watching.lead(leads) && leads {
            info!("this node is the active controller");
            sweeps = true;
            rebalance.put_off();
            members.begin();
        }
        let image = quorum.image();
        links.dial_brokers(&image);
        if led.map(|(leader, _)| leader) != leader {
            led = leader.map(|leader| (leader, Instant::now()));
        }
        succeed(&quorum, &links, led, &mut succeeded).await;
        let (fence, mut look_at) = watching.look(&image);
        // A sweep would elect brokers that died together with those that are to be fenced.
        if leads && !watching.is_waiting(&image) {
            let now = watching.now();
            if watching.probes.with_book(now, |book| book.has_suspects()) {
                rebalance.put_off();
            }
            let mut is_undecided = false;
            for who in fence {
                if told.replace(who) != Some(who) {
                    warn!(broker = %who.broker, epoch = who.epoch.0, "a broker is gone or silent for too long: it is fenced");
                }
                rebalance.put_off();
                let fenced = is_decided(&quorum, Request::FenceBroker(who)).await;
                (sweeps, is_undecided) = (sweeps | fenced, is_undecided | !fenced);
            }
            if sweeps {
                sweeps = !sweep(&quorum).await;
            }
            if sweeps || is_undecided {
                // A controller that was elected a moment ago is not the active one for some milliseconds more.
                let soon = Instant::now() + PAUSE;
                look_at = Some(look_at.map_or(soon, |at| at.min(soon)));
            }
            members.settle(&quorum, &links, &image);
            if rebalance.take_due() {
                tokio::spawn(elect_preferred(Arc::clone(&quorum), Arc::clone(&links)));
            }
            look_at = look_at.into_iter().chain(rebalance.due).min();
        }
        tokio::select! {
            update = updates.next() => match update {
                Some(update) => sweeps |= calls_for_sweep(&update),
                None => return,
            },
            changed = quorum.leader_changed(leader) => if changed.is_err() { return },
            () = watching.changed.notified() => {}
            () = until(look_at) => {}
        }
    }
}

/// If the active controller's process has ended, asks for votes at once. Voters take turns, so that they do not split
/// the votes; and each of them tries once for one process, because a wrong guess would depose who lives. So what is
/// known of a node from before it was seen to lead, with `led`, does not count.
async fn succeed(
    quorum: &Quorum,
    links: &ClusterLinks,
    led: Option<(BrokerId, Instant)>,
    succeeded: &mut Option<(BrokerId, Uuid)>,
) {
    let Some((leader, since)) = led.filter(|(leader, _)| *leader != quorum.node()) else { return };
    let Some(ended) = links.watching().ended_since(leader, since) else { return };
    if *succeeded == Some((leader, ended)) || links.is_connected_with(leader) {
        return;
    }
    *succeeded = Some((leader, ended));
    let turn = links.turn_behind(leader);
    if turn > 0 {
        let changed = quorum.leader_changed(Some(leader));
        if timeout(TURN * turn, changed).await.is_ok() {
            return;
        }
    }
    info!(controller = %leader, "the process of the active controller has ended: another voter is to take its place");
    if let Err(cause) = quorum.succeed(leader).await {
        warn!(%cause, "cannot ask for votes");
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// When leaderships go back to preferred replicas: now and then, and not within a minute of a failure, because each
/// move is a second interruption for everybody.
struct Rebalance {
    every: Option<Duration>,
    due: Option<Instant>,
}

impl Rebalance {
    fn new(every: Option<Duration>) -> Rebalance {
        Rebalance { every, due: every.map(|every| Instant::now() + every) }
    }

    fn put_off(&mut self) {
        let calm = Instant::now() + CALM_MIN;
        self.due = self.due.map(|due| due.max(calm));
    }

    fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// Whether an election is due. The next one is due after the whole interval.
    fn take_due(&mut self) -> bool {
        let now = Instant::now();
        let is_due = self.is_due(now);
        if is_due {
            self.due = self.every.map(|every| now + every);
        }
        is_due
    }
}

/// Whether something may follow for partitions from a step.
fn calls_for_sweep(update: &ImageUpdate) -> bool {
    let delta = &update.delta;
    delta.cluster || !delta.brokers.is_empty() || !delta.configs.is_empty()
}

async fn is_decided(quorum: &Quorum, request: Request) -> bool {
    match quorum.propose(request).await {
        Ok(_) => true,
        Err(cause) => {
            debug!(%cause, "the controller could not decide yet");
            false
        }
    }
}

/// Sweeps until nothing is left. `false`: there is more, and it cannot be done now.
async fn sweep(quorum: &Quorum) -> bool {
    loop {
        match quorum.propose(Request::Sweep).await {
            Ok(Response::Sweep(swept)) => {
                if swept.changed > 0 {
                    info!(
                        partitions = swept.changed,
                        "partitions have another leader or other in-sync replicas"
                    );
                }
                if !swept.more {
                    return true;
                }
            }
            Ok(other) => unreachable!("the answer to another request: {other:?}"),
            Err(QuorumError::Stopped(_)) => return true,
            // It may be about to lead; and if another does, that one begins with a sweep, and this one asks no more.
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use ::link::{Hello, Peer, Purpose, Target, Versions};
    use metadata::MetadataRecord;
    use metadata::record::BrokerRecord;
    use model::BrokerEpoch;

    use node::ProbeTimes;

    use super::*;

    const TWO: BrokerId = BrokerId(2);

    fn watching() -> Watching {
        let times = ProbeTimes::with_after(Duration::from_millis(1_500));
        Watching::new(BrokerId(3), Duration::from_secs(9), Probes::new(BrokerId(3), times, None))
    }

    fn up(incarnation: Uuid) -> Event {
        Event::Up { peer: peer(incarnation, Direction::Out) }
    }

    fn peer(incarnation: Uuid, direction: Direction) -> Arc<Peer> {
        let hello = Hello {
            versions: Versions { min: 1, max: 1 },
            has_secret: false,
            node: TWO,
            wanted: None,
            incarnation,
            nonce: Default::default(),
            purpose: Purpose::Control,
            last_metadata: None,
            cluster_id: "c".to_owned(),
            directories: Vec::new(),
            generation: 0,
        };
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        Arc::new(Peer { hello, address, direction, version: 1 })
    }

    fn refused() -> Event {
        let target = Target { node: Some(TWO), host: "localhost".to_owned(), port: 1 };
        Event::NotDialed { target: Arc::new(target), failure: DialFailure::Refused, failures: 1 }
    }

    fn process(number: u8) -> Uuid {
        Uuid::from_random([number; 16])
    }

    #[test]
    fn leaderships_stay_for_a_minute_after_a_failure() {
        let (every, start) = (Duration::from_secs(5), Instant::now());
        let before = |after: Duration| start + after - Duration::from_nanos(1);
        let mut rebalance = Rebalance::new(Some(every));
        assert!(!rebalance.is_due(before(every)) && rebalance.is_due(Instant::now() + every));
        rebalance.put_off();
        assert!(!rebalance.is_due(before(CALM_MIN)), "the failure came after `start`");
        assert!(rebalance.is_due(Instant::now() + CALM_MIN));
        let mut rare = Rebalance::new(Some(2 * CALM_MIN));
        rare.put_off();
        assert!(!rare.is_due(before(2 * CALM_MIN)), "a failure brings no return forward");
        let mut never = Rebalance::new(None);
        never.put_off();
        assert!(!never.is_due(start + 9 * CALM_MIN));
    }

    #[test]
    fn a_refusal_from_before_a_node_led_does_not_say_that_the_leader_has_ended() {
        let watching = watching();
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        watching.observe_at(at(0), &up(process(1)));
        watching.observe_at(at(1), &refused());
        // It came back, leads since then, and is not connected with this node yet.
        assert_eq!(watching.ended_since(TWO, at(2)), None);
        watching.observe_at(at(3), &refused());
        assert_eq!(watching.ended_since(TWO, at(2)), Some(process(1)));
    }

    #[test]
    fn a_connection_that_breaks_does_not_say_that_the_process_behind_it_has_ended() {
        let watching = watching();
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        watching.observe_at(at(0), &up(process(1)));
        watching.observe_at(at(2), &refused());
        assert_eq!(watching.ended_since(TWO, at(1)), Some(process(1)));
        watching.observe_at(at(3), &up(process(2)));
        assert_eq!(watching.ended_since(TWO, at(1)), None);
    }

    /// An image in which broker 2 serves, as this process.
    fn image(incarnation: Uuid) -> ClusterImage {
        let record = BrokerRecord {
            broker: TWO,
            incarnation,
            epoch: BrokerEpoch(1),
            endpoints: Vec::new(),
            rack: None,
            log_dirs: Vec::new(),
            fenced: false,
            software: None,
        };
        let mut image = ClusterImage::default();
        image.replay(&MetadataRecord::BrokerRegistered(record)).unwrap();
        image
    }

    #[test]
    fn a_new_controller_fences_a_broker_that_it_never_heard_and_of_which_the_address_refuses() {
        let watching = watching();
        let (image, who) = (image(process(1)), BrokerRef { broker: TWO, epoch: BrokerEpoch(1) });
        // Not the active controller: the next one sees the refusal itself.
        watching.look(&image);
        watching.observe(&refused());
        watching.lead(true);
        assert_eq!(watching.look(&image).0, []);
        watching.observe(&refused());
        assert_eq!(watching.look(&image).0, [who]);
    }

    #[test]
    fn a_broker_that_is_heard_is_not_fenced_because_its_address_refuses() {
        let watching = watching();
        let image = image(process(1));
        watching.lead(true);
        watching.look(&image);
        assert!(watching.heard(BrokerRef { broker: TWO, epoch: BrokerEpoch(1) }));
        watching.observe(&refused());
        assert_eq!(watching.look(&image).0, []);
    }

    #[test]
    fn a_broker_that_was_fenced_for_a_refusal_and_is_heard_is_not_fenced_again() {
        let watching = watching();
        let image = image(process(1));
        watching.lead(true);
        watching.look(&image);
        watching.observe(&refused());
        assert_eq!(watching.look(&image).0.len(), 1);
        watching.heard(BrokerRef { broker: TWO, epoch: BrokerEpoch(1) });
        watching.observe(&refused());
        assert_eq!(watching.look(&image).0, []);
    }

    /// The same image where the cluster protects itself against copies, with broker 3, which is this node, as this process.
    fn protected_image(two: Uuid, me: Uuid) -> ClusterImage {
        let mut image = image(two);
        let name = metadata::image::HIGHWATER_VERSION.to_owned();
        let level = metadata::record::COPIES_LEVEL;
        image.replay(&MetadataRecord::FeatureLevelSet { name, level }).unwrap();
        let record = BrokerRecord {
            broker: BrokerId(3),
            incarnation: me,
            epoch: BrokerEpoch(2),
            endpoints: Vec::new(),
            rack: None,
            log_dirs: Vec::new(),
            fenced: false,
            software: None,
        };
        image.replay(&MetadataRecord::BrokerRegistered(record)).unwrap();
        image
    }

    #[test]
    fn a_new_controller_fences_brokers_that_died_together_in_one_go() {
        let watching = watching().of_process(process(9));
        let image = protected_image(process(1), process(8));
        watching.look(&image);
        watching.lead(true);
        // This node was started again, and has not connected with the other one yet.
        assert_eq!(watching.look(&image).0, []);
        assert!(watching.is_settling(&image, TWO));
        // Another process of broker 2 is there.
        watching.observe(&up(process(2)));
        let both = [TWO, BrokerId(3)]
            .map(|broker| BrokerRef { broker, epoch: image.broker(broker).unwrap().epoch });
        assert!(
            watching.is_settling(&image, TWO),
            "this node's own registration is to be fenced first"
        );
        assert_eq!(watching.look(&image).0, both);
    }

    #[test]
    fn a_new_controller_waits_for_no_broker_that_it_has_seen_or_heard() {
        let (watching, other) = (watching().of_process(process(8)), watching());
        let image = protected_image(process(1), process(8));
        watching.lead(true);
        assert!(watching.is_settling(&image, BrokerId(4)));
        watching.observe(&up(process(1)));
        assert!(!watching.is_settling(&image, BrokerId(4)));
        let other = other.of_process(process(8));
        other.lead(true);
        assert!(other.heard(BrokerRef { broker: TWO, epoch: BrokerEpoch(1) }));
        assert!(!other.is_settling(&image, BrokerId(4)));
        assert_eq!(other.look(&image).0, []);
    }

    #[test]
    fn a_refusal_from_before_a_process_registered_does_not_end_that_process() {
        let watching = watching();
        watching.lead(true);
        watching.look(&image(process(1)));
        watching.observe(&refused());
        assert_eq!(watching.look(&image(process(2))).0, [], "another process has come since");
    }

    #[test]
    fn a_process_whose_own_connection_lasts_has_not_ended_when_its_address_refuses() {
        let watching = watching();
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let incoming = || peer(process(1), Direction::In);
        watching.observe_at(at(0), &up(process(1)));
        watching.observe_at(at(1), &Event::Up { peer: incoming() });
        watching.observe_at(at(2), &Event::Up { peer: incoming() });
        watching.observe_at(at(3), &refused());
        assert_eq!(watching.ended_since(TWO, at(0)), None, "one direction is cut");
        let ended = || Event::Ended { peer: incoming(), ending: ::link::Ending::Closed };
        watching.observe_at(at(4), &ended());
        assert_eq!(watching.ended_since(TWO, at(0)), None);
        watching.observe_at(at(5), &ended());
        assert_eq!(watching.ended_since(TWO, at(0)), Some(process(1)));
    }
}
