//! The table of keys. Read [`Table::begin`], then [`Table::finish`] and [`Table::abandon`].

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use model::Moment;
use pools::{Content, MemoryLoan, PoolShare, SharedPool};

use super::fingerprint::{Fingerprint, Seal};

/// Memory of an entry beside its outcome, in bytes: of the maps, that may be half empty, and of the entry itself.
const ENTRY_BYTES: usize = 304;
/// Memory of a request that waits, in bytes.
const WAITING_BYTES: usize = 128;

/// How much is remembered, and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Keys.
    pub entries_max: usize,
    /// Bytes of keys, outcomes and requests that wait. An owner leaves a quarter of the free ones to the next owner.
    pub bytes_max: usize,
    /// How long a key is known after its request was decided.
    pub kept: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { entries_max: 100_000, bytes_max: 16 << 20, kept: Duration::from_secs(600) }
    }
}

/// What a key belongs to: the same key of another user, or for another path, is another one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Name {
    /// The user that asks.
    pub principal: String,
    /// The path.
    pub path: String,
    /// `Idempotency-Key`.
    pub key: String,
}

impl Name {
    /// The name as the table keeps it: two names have one with a chance of 2^-128, and no client can find them.
    pub fn sealed(&self, seal: &Seal) -> Fingerprint {
        seal.fingerprint(&[self.principal.as_bytes(), self.path.as_bytes(), self.key.as_bytes()])
    }
}

/// What to do with a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Begin<O> {
    /// It is the first with its key: carry it out, and then [`Table::finish`] or [`Table::abandon`] it.
    Send(Ticket),
    /// Another one with its key is under way: the waiter will be handed out with the outcome.
    Wait,
    /// It was decided before: this is the outcome.
    Replay(O),
    /// Another request came with its key.
    OtherRequest,
    /// There is no room for another key, or for another request that waits.
    Full,
}

/// The right, and the duty, to say what became of a request.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a key whose request is never decided holds all that come with it"]
pub struct Ticket(Fingerprint);

struct Entry<P: Clone + Eq + Hash, O, W> {
    fingerprint: Fingerprint,
    share: PoolShare<P>,
    /// Bytes of the share that are set aside for the outcome while that is not known.
    outcome_bytes: usize,
    state: State<O, W>,
}

enum State<O, W> {
    Going { waiting: Vec<W> },
    Decided(O),
}

/// Keys with what became of their requests. `P` is an owner, a user or an address; `O` an outcome; `W` whatever the host
/// needs to wake a request that waits.
pub struct Table<P: Clone + Eq + Hash, O, W> {
    limits: Limits,
    pool: Arc<SharedPool<P>>,
    /// By the sealed names of their keys.
    entries: HashMap<Fingerprint, Box<Entry<P, O, W>>>,
    /// Keys that were decided, with the moment from which on they are unknown. Invariant: in that order.
    decided: VecDeque<(Moment, Fingerprint)>,
}

impl<P: Clone + Eq + Hash + Send + Sync + 'static, O: Clone, W> Table<P, O, W> {
    /// An empty table.
    pub fn new(limits: Limits) -> Table<P, O, W> {
        let pool = Arc::new(SharedPool::new(limits.bytes_max, Content::Lasting));
        Table { limits, pool, entries: HashMap::new(), decided: VecDeque::new() }
    }

    /// How many keys are known.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no key is known.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes that are charged.
    pub fn bytes(&self) -> usize {
        self.pool.used_bytes()
    }

    /// A request of `owner` came. `outcome_bytes_max`: greatest size of its outcome, reserved now so that there is room for it when
    /// the request cannot be taken back any more. `waiter` is asked for if the request must wait.
    pub fn begin(
        &mut self,
        now: Moment,
        name: Fingerprint,
        owner: P,
        fingerprint: Fingerprint,
        outcome_bytes_max: usize,
        waiter: impl FnOnce() -> W,
    ) -> Begin<O> {
        self.expire(now);
        let has_room = self.pool.free_bytes() >= WAITING_BYTES;
        if let Some(entry) = self.entries.get_mut(&name) {
            if entry.fingerprint != fingerprint {
                return Begin::OtherRequest;
            }
            return match &mut entry.state {
                State::Decided(outcome) => Begin::Replay(outcome.clone()),
                State::Going { .. } if !has_room => Begin::Full,
                State::Going { waiting } => {
                    waiting.push(waiter());
                    entry.share.set_bytes(entry.share.bytes() + WAITING_BYTES);
                    Begin::Wait
                }
            };
        }
        if self.entries.len() >= self.limits.entries_max {
            return Begin::Full;
        }
        let held = self.pool.hold(owner, ENTRY_BYTES + outcome_bytes_max, 0);
        let Ok(share) = held else { return Begin::Full };
        let state = State::Going { waiting: Vec::new() };
        let entry = Entry { fingerprint, share, outcome_bytes: outcome_bytes_max, state };
        self.entries.insert(name, Box::new(entry));
        Begin::Send(Ticket(name))
    }

    /// The request was decided, be it as one of which the outcome stays unknown: every later request with the key gets
    /// `outcome`. Gives those that waited.
    pub fn finish(
        &mut self,
        ticket: Ticket,
        now: Moment,
        outcome: O,
        outcome_bytes: usize,
    ) -> Vec<W> {
        let Ticket(name) = ticket;
        let entry = self.entries.get_mut(&name).expect("a key with a ticket stays");
        assert!(outcome_bytes <= entry.outcome_bytes, "no more than was set aside");
        let State::Going { waiting } = std::mem::replace(&mut entry.state, State::Decided(outcome))
        else {
            unreachable!("a ticket is there once");
        };
        let freed = entry.outcome_bytes - outcome_bytes + waiting.len() * WAITING_BYTES;
        entry.share.set_bytes(entry.share.bytes() - freed);
        entry.outcome_bytes = outcome_bytes;
        let until = now.plus(self.limits.kept);
        assert!(self.decided.back().is_none_or(|(last, _)| *last <= until), "time goes forward");
        self.decided.push_back((until, name));
        waiting
    }

    /// Nothing of the request was carried out, and nothing will be: the key is as if it had never come, so that the
    /// client may try again with it. Gives those that waited.
    pub fn abandon(&mut self, ticket: Ticket) -> Vec<W> {
        let Ticket(name) = ticket;
        let entry = self.entries.remove(&name).expect("a key with a ticket stays");
        match entry.state {
            State::Going { waiting } => waiting,
            State::Decided(_) => unreachable!("a ticket is there once"),
        }
    }

    /// Forgets keys whose requests were decided long enough ago.
    pub fn expire(&mut self, now: Moment) {
        while let Some((_, name)) = self.decided.pop_front_if(|(until, _)| *until <= now) {
            self.entries.remove(&name).expect("a decided key stays until then");
        }
    }
}
