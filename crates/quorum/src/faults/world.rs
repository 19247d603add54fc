//! The network between simulated voters, and what must hold whatever it does.

use crate::network::{Sent, Transport};
use crate::quorum::Quorum;
use crate::raft::{Entry, LogId, Payload, TypeConfig, broker_id, node_id};
use fastrand::Rng;
use ledger::message::Request;
use model::BrokerId;
use openraft::type_config::TypeConfigExt;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// A node that runs.
struct Up {
    /// Which start of it: messages of an earlier one reach nobody.
    start: u64,
    quorum: Quorum,
}

/// What the network does now.
#[derive(Clone, Copy)]
pub(super) struct Weather {
    /// Messages of a thousand that are lost.
    pub(super) lost: u16,
    /// Messages of a thousand that arrive twice.
    pub(super) twice: u16,
    /// The shortest delay, in milliseconds. At least 50 µs.
    pub(super) delay_min_ms: u64,
    /// The longest delay, in milliseconds.
    pub(super) delay_ms: u64,
}

impl Weather {
    pub(super) const FINE: Weather = Weather { lost: 0, twice: 0, delay_min_ms: 0, delay_ms: 2 };
}

/// Everything that is shared by the voters of one simulation.
pub(super) struct World {
    lots: Rng,
    nodes: BTreeMap<u64, Up>,
    starts: u64,
    /// Ways that carry nothing: from, to.
    pub(super) cuts: BTreeSet<(u64, u64)>,
    pub(super) weather: Weather,
    oracle: Oracle,
}

/// What was seen, and what of it contradicts.
#[derive(Default)]
pub(super) struct Oracle {
    /// Which start of a node led under which leader's id. A term may have leaders one after the other, the
    /// larger node later: a leader is a term and a node.
    leaders: BTreeMap<(u64, u64), u64>,
    /// What the image was at which index.
    states: BTreeMap<u64, u64>,
    /// Entries that somebody has applied.
    committed: BTreeMap<u64, (LogId, String)>,
    /// The first contradictions.
    pub(super) violations: Vec<String>,
}

impl Oracle {
    fn violated(&mut self, what: String) {
        if self.violations.len() < 10 {
            self.violations.push(what);
        }
    }

    /// *Election safety*: a leader's id is that of one start of one node. One that lost power knows no more
    /// what it has said in that term.
    fn led(&mut self, term: u64, node: u64, start: u64) {
        let known = *self.leaders.entry((term, node)).or_insert(start);
        if known != start {
            self.violated(format!("starts {known} and {start} of node {node} lead in term {term}"));
        }
    }

    /// *State machine safety*: the image at an index is the same everywhere and for ever.
    fn was(&mut self, index: u64, digest: u64, node: u64) {
        let known = *self.states.entry(index).or_insert(digest);
        if known != digest {
            self.violated(format!("node {node} has another image at index {index}"));
        }
    }

    /// *Committed entries stay*: what one has applied every other has at that index, or nothing.
    fn applied(&mut self, entry: &Entry, node: u64) {
        let said = (entry.log_id, content(entry));
        let index = entry.log_id.index;
        let known = self.committed.entry(index).or_insert_with(|| said.clone());
        if *known != said {
            let what = format!("node {node} applied {} at {index}, {} was there", said.0, known.0);
            self.violated(what);
        }
    }

    /// *Log matching*: two logs that have an entry of the same index and term have the same before it.
    fn match_logs(&mut self, logs: &BTreeMap<u64, Vec<Entry>>) {
        for (one, these) in logs {
            for (other, those) in logs.range(one + 1..) {
                let by_index: BTreeMap<u64, &Entry> =
                    those.iter().map(|entry| (entry.log_id.index, entry)).collect();
                let common = these.iter().rev().filter_map(|entry| {
                    by_index.get(&entry.log_id.index).map(|there| (entry, *there))
                });
                let same = common.skip_while(|(here, there)| here.log_id != there.log_id);
                for (here, there) in same {
                    if here.log_id != there.log_id || content(here) != content(there) {
                        let at = here.log_id.index;
                        self.violated(format!("the logs of {one} and {other} differ at {at}"));
                        break;
                    }
                }
            }
        }
    }
}

/// What an entry says, comparable.
fn content(entry: &Entry) -> String {
    match &entry.payload {
        Payload::Blank => "blank".to_owned(),
        Payload::Membership(members) => format!("{members:?}"),
        Payload::Normal(proposal) => format!("{proposal:?}"),
    }
}

/// What becomes of a message.
enum Fate {
    Lost,
    Refused,
    Arrives { delay: Duration, twice: bool },
}

pub(super) type Shared = Arc<Mutex<World>>;

impl World {
    pub(super) fn new(seed: u64) -> World {
        World {
            lots: Rng::with_seed(seed),
            nodes: BTreeMap::new(),
            starts: 0,
            cuts: BTreeSet::new(),
            weather: Weather::FINE,
            oracle: Oracle::default(),
        }
    }

    pub(super) fn oracle(&mut self) -> &mut Oracle {
        &mut self.oracle
    }

    /// The number of the next start.
    pub(super) fn next_start(&mut self) -> u64 {
        self.starts += 1;
        self.starts
    }

    pub(super) fn join(&mut self, node: i32, start: u64, quorum: Quorum) {
        self.nodes.insert(node_id(BrokerId(node), 0), Up { start, quorum });
    }

    pub(super) fn leave(&mut self, node: i32) -> Option<Quorum> {
        self.nodes.remove(&node_id(BrokerId(node), 0)).map(|up| up.quorum)
    }

    /// The nodes that run.
    pub(super) fn up(&self) -> Vec<(i32, Quorum)> {
        self.nodes.iter().map(|(id, up)| (broker_id(*id).0, up.quorum.clone())).collect()
    }

    fn is_current(&self, node: u64, start: u64) -> bool {
        self.nodes.get(&node).is_some_and(|up| up.start == start)
    }

    fn fate(&mut self, from: u64, to: u64) -> Fate {
        let Weather { lost, twice, delay_min_ms, delay_ms } = self.weather;
        if self.cuts.contains(&(from, to)) || self.lots.u16(0..1000) < lost {
            return Fate::Lost;
        }
        if !self.nodes.contains_key(&to) {
            // A machine that is gone is silent; a process that is gone refuses.
            return if self.lots.bool() { Fate::Refused } else { Fate::Lost };
        }
        let delay =
            Duration::from_micros(self.lots.u64((delay_min_ms * 1000).max(50)..=delay_ms * 1000));
        Fate::Arrives { delay, twice: self.lots.u16(0..1000) < twice }
    }
}

/// Looks at every log now.
pub(super) async fn check_logs(world: &Shared) {
    use openraft::RaftLogReader;
    let nodes = world.lock().up();
    let mut logs = BTreeMap::new();
    for (id, quorum) in nodes {
        // Before the log: what is committed does not change behind it.
        let applied = quorum.applied_index();
        let mut store = quorum.store().clone();
        let Ok(entries) = store.try_get_log_entries(0..).await else { continue };
        let node = node_id(BrokerId(id), 0);
        for entry in entries.iter().filter(|entry| Some(entry.log_id.index) <= applied) {
            world.lock().oracle.applied(entry, node);
        }
        logs.insert(node, entries);
    }
    world.lock().oracle.match_logs(&logs);
}

/// Notes every image of a node.
pub(super) fn watch(world: &Shared, node: i32, quorum: &Quorum) {
    let (mut steps, world) = (quorum.subscribe(), Arc::clone(world));
    TypeConfig::spawn(async move {
        while let Some(step) = steps.next().await {
            let digest = step.after.digest();
            world.lock().oracle.was(step.index, digest, node_id(BrokerId(node), 0));
        }
    });
}

/// One start's way to the others.
pub(super) struct Wire {
    pub(super) world: Shared,
    pub(super) node: i32,
    pub(super) start: u64,
}

impl Transport for Wire {
    fn send(&self, to: BrokerId, message: Vec<u8>, _: Duration) -> Sent<'_> {
        let from = node_id(BrokerId(self.node), 0);
        let (world, start) = (Arc::clone(&self.world), self.start);
        Box::pin(async move { carry(world, from, start, node_id(to, 0), message).await })
    }
}

async fn carry(
    world: Shared,
    from: u64,
    start: u64,
    to: u64,
    message: Vec<u8>,
) -> Result<Vec<u8>, crate::network::TransportError> {
    let fate = {
        let mut world = world.lock();
        match world.is_current(from, start) {
            true => {
                note_leader(&mut world.oracle, start, &message);
                world.fate(from, to)
            }
            false => Fate::Lost,
        }
    };
    let (delay, twice) = match fate {
        Fate::Lost => return std::future::pending().await,
        Fate::Refused => return Err(crate::network::TransportError("refused".into())),
        Fate::Arrives { delay, twice } => (delay, twice),
    };
    // Whether or not the sender waits, it arrives.
    let arrival = TypeConfig::spawn(arrive(Arc::clone(&world), from, to, message.clone(), delay));
    if twice {
        TypeConfig::spawn(arrive(Arc::clone(&world), from, to, message, delay * 20));
    }
    let Ok(Some(answer)) = arrival.await else { return std::future::pending().await };
    let back = {
        let mut world = world.lock();
        match world.is_current(from, start) {
            true => world.fate(to, from),
            false => Fate::Lost,
        }
    };
    match back {
        Fate::Arrives { delay, .. } => {
            tokio::time::sleep(delay).await;
            Ok(answer)
        }
        Fate::Lost | Fate::Refused => std::future::pending().await,
    }
}

async fn arrive(
    world: Shared,
    from: u64,
    to: u64,
    message: Vec<u8>,
    delay: Duration,
) -> Option<Vec<u8>> {
    tokio::time::sleep(delay).await;
    let target = world.lock().nodes.get(&to).map(|up| up.quorum.clone());
    Some(target?.receive_from(broker_id(from), &message).await)
}

/// Whoever appends leads: every message that does is looked at.
fn note_leader(oracle: &mut Oracle, start: u64, message: &[u8]) {
    if let Ok((head, Request::Append(append))) = Request::decode(message) {
        let vote = append.vote;
        oracle.led(vote.term, vote.node, start);
        if !vote.committed || vote.node != head.from {
            oracle.violated(format!("node {} appends without being elected", head.from));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raft::LeaderId;

    fn blank(term: u64, index: u64) -> Entry {
        let log_id = LogId::new(LeaderId { term, node_id: 1 }, index);
        Entry { log_id, payload: Payload::Blank }
    }

    #[test]
    fn what_contradicts_is_found() {
        let mut oracle = Oracle::default();
        oracle.led(1, 1, 1);
        oracle.led(1, 1, 1);
        oracle.led(1, 2, 2);
        oracle.was(5, 77, 1);
        oracle.was(5, 77, 2);
        oracle.applied(&blank(1, 5), 1);
        oracle.applied(&blank(1, 5), 2);
        let logs = |one: Vec<Entry>, other: Vec<Entry>| BTreeMap::from([(1, one), (2, other)]);
        // Of different terms behind the last that is the same, as a new leader finds them.
        oracle.match_logs(&logs(
            vec![blank(1, 4), blank(1, 5), blank(2, 6)],
            vec![blank(1, 5), blank(3, 6)],
        ));
        assert_eq!(oracle.violations, Vec::<String>::new());
        oracle.led(1, 1, 3);
        oracle.was(5, 78, 2);
        oracle.applied(&blank(2, 5), 2);
        oracle.match_logs(&logs(vec![blank(1, 5), blank(3, 6)], vec![blank(2, 5), blank(3, 6)]));
        assert_eq!(oracle.violations.len(), 4, "{:?}", oracle.violations);
    }
}
