//! The table of keys. Read [`Table::begin`], then [`Table::finish`] and [`Table::abandon`].

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use model::Moment;

use super::fingerprint::Fingerprint;

/// What an entry takes beside the bytes of its name and of its outcome.
const ENTRY_BYTES: usize = 200;
/// What a request that waits takes.
const WAITING_BYTES: usize = 64;

/// How much is remembered, and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Keys.
    pub entries_max: usize,
    /// Bytes of names, outcomes and requests that wait.
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
    fn size_bytes(&self) -> usize {
        self.principal.len() + self.path.len() + self.key.len()
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
pub struct Ticket(Arc<Name>);

struct Entry<O, W> {
    fingerprint: Fingerprint,
    /// Bytes that it is charged for. Invariant: the sum over all entries is the table's.
    bytes: usize,
    /// Of these, set aside for the outcome while that is not known.
    outcome_bytes: usize,
    state: State<O, W>,
}

enum State<O, W> {
    Going { waiting: Vec<W> },
    Decided(O),
}

/// Keys with what became of their requests. `O` is an outcome, `W` whatever the host needs to wake a request that waits.
pub struct Table<O, W> {
    limits: Limits,
    entries: HashMap<Arc<Name>, Entry<O, W>>,
    /// Keys that were decided, with the moment from which on they are unknown. Invariant: in that order.
    decided: VecDeque<(Moment, Arc<Name>)>,
    bytes: usize,
}

impl<O: Clone, W> Table<O, W> {
    /// An empty table.
    pub fn new(limits: Limits) -> Table<O, W> {
        Table { limits, entries: HashMap::new(), decided: VecDeque::new(), bytes: 0 }
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
        self.bytes
    }

    /// A request came. `outcome_bytes_max`: what its outcome may take, set aside now so that there is room for it when
    /// the request cannot be taken back any more. `waiter` is asked for if the request must wait.
    pub fn begin(
        &mut self,
        now: Moment,
        name: Name,
        fingerprint: Fingerprint,
        outcome_bytes_max: usize,
        waiter: impl FnOnce() -> W,
    ) -> Begin<O> {
        self.expire(now);
        let room = self.limits.bytes_max.saturating_sub(self.bytes);
        if let Some(entry) = self.entries.get_mut(&name) {
            if entry.fingerprint != fingerprint {
                return Begin::OtherRequest;
            }
            return match &mut entry.state {
                State::Decided(outcome) => Begin::Replay(outcome.clone()),
                State::Going { .. } if room < WAITING_BYTES => Begin::Full,
                State::Going { waiting } => {
                    waiting.push(waiter());
                    entry.bytes += WAITING_BYTES;
                    self.bytes += WAITING_BYTES;
                    Begin::Wait
                }
            };
        }
        let bytes = ENTRY_BYTES + name.size_bytes() + outcome_bytes_max;
        if self.entries.len() >= self.limits.entries_max || bytes > room {
            return Begin::Full;
        }
        let name = Arc::new(name);
        let state = State::Going { waiting: Vec::new() };
        let entry = Entry { fingerprint, bytes, outcome_bytes: outcome_bytes_max, state };
        self.entries.insert(Arc::clone(&name), entry);
        self.bytes += bytes;
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
        entry.bytes -= freed;
        entry.outcome_bytes = outcome_bytes;
        self.bytes -= freed;
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
        self.bytes -= entry.bytes;
        match entry.state {
            State::Going { waiting } => waiting,
            State::Decided(_) => unreachable!("a ticket is there once"),
        }
    }

    /// Forgets keys whose requests were decided long enough ago.
    pub fn expire(&mut self, now: Moment) {
        while let Some((_, name)) = self.decided.pop_front_if(|(until, _)| *until <= now) {
            let entry = self.entries.remove(&name).expect("what was decided stays until then");
            self.bytes -= entry.bytes;
        }
    }
}
