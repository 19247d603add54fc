//! The table of keys. Read [`Table::begin`], then [`Table::finish`] and [`Table::abandon`].

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use model::Moment;
use pools::{Content, MemoryLoan, PoolShare, SharedPool};

use super::fingerprint::{Fingerprint, Seal};
use super::owner::{ExpiredKey, OWNER_BYTES, OwnerKeys, half_of};

/// Memory of an entry beside its outcome, in bytes: of the maps, that may be half empty, and of the entry itself.
const ENTRY_BYTES: usize = 320;
/// Memory of a request that waits, in bytes.
const WAITING_BYTES: usize = 128;
/// The part of the memory that is taken back at once.
const ROOM_PARTS: usize = 256;

/// How much is remembered, and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Keys.
    pub entries_max: usize,
    /// Bytes of keys, outcomes and requests that wait, of all owners.
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
    /// It was decided before, and its outcome is not kept any more: other owners needed the memory.
    Forgotten,
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

/// Keys with what became of their requests. An owner that is alone may use all of the memory. In a full table, an owner within
/// its fair share takes the outcomes of the oldest keys of owners above theirs; such a key is never carried out again, but its outcome
/// is not known any more ([`Begin::Forgotten`]). `P` is an owner, a user or an address; `O` an outcome; `W` whatever the host
/// needs to wake a request that waits.
pub struct Table<P: Clone + Eq + Hash, O, W> {
    limits: Limits,
    pool: Arc<SharedPool<P>>,
    /// By the sealed names of their keys.
    entries: HashMap<Fingerprint, Box<Entry<P, O, W>>>,
    owners: HashMap<P, OwnerKeys<P>>,
    /// Owners with decided keys, by the end of the first one.
    ends: BTreeMap<(Moment, u64), P>,
    /// Keys whose outcomes are not kept any more.
    forgotten: HashSet<u64>,
    next_number: u64,
    last_finished: Moment,
}

impl<P: Clone + Eq + Hash + Send + Sync + 'static, O: Clone, W> Table<P, O, W> {
    /// An empty table.
    pub fn new(limits: Limits) -> Table<P, O, W> {
        Table {
            limits,
            pool: Arc::new(SharedPool::new(limits.bytes_max, Content::Reclaimable)),
            entries: HashMap::new(),
            owners: HashMap::new(),
            ends: BTreeMap::new(),
            forgotten: HashSet::new(),
            next_number: 0,
            last_finished: Moment::START,
        }
    }

    /// How many keys are known with their outcomes, or under way.
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
        if let Some(entry) = self.entries.get(&name) {
            if entry.fingerprint != fingerprint {
                return Begin::OtherRequest;
            }
            return match &entry.state {
                State::Decided(outcome) => Begin::Replay(outcome.clone()),
                State::Going { .. } => self.wait(name, waiter),
            };
        }
        if self.forgotten.contains(&half_of(name)) {
            return Begin::Forgotten;
        }
        if self.entries.len() >= self.limits.entries_max {
            return Begin::Full;
        }
        let own_bytes = if self.owners.contains_key(&owner) { 0 } else { OWNER_BYTES };
        let bytes = ENTRY_BYTES + outcome_bytes_max;
        let Some(share) = self.hold(&owner, own_bytes + bytes) else { return Begin::Full };
        let (share, rest) = share.split(bytes);
        let number = self.next_number;
        self.next_number += 1;
        let of_owner = self.owners.entry(owner).or_insert_with(|| OwnerKeys::new(number, rest));
        of_owner.going += 1;
        let state = State::Going { waiting: Vec::new() };
        let entry = Entry { fingerprint, share, outcome_bytes: outcome_bytes_max, state };
        self.entries.insert(name, Box::new(entry));
        Begin::Send(Ticket(name))
    }

    /// Another request with a key that is under way.
    fn wait(&mut self, name: Fingerprint, waiter: impl FnOnce() -> W) -> Begin<O> {
        let owner = self.entries[&name].share.owner();
        let Some(held) = self.hold(&owner, WAITING_BYTES) else { return Begin::Full };
        let entry = self.entries.get_mut(&name).expect("a key under way stays");
        if let State::Going { waiting } = &mut entry.state {
            waiting.push(waiter());
            drop(held);
            entry.share.set_bytes(entry.share.bytes() + WAITING_BYTES);
        }
        Begin::Wait
    }

    /// Memory for a key of this owner, taken from owners above their fair share if need be.
    fn hold(&mut self, owner: &P, bytes: usize) -> Option<PoolShare<P>> {
        match self.pool.hold(owner.clone(), bytes, 0) {
            Ok(share) => Some(share),
            Err(shortage) if shortage.is_within_share => {
                self.make_room(owner, shortage.needed_bytes);
                self.pool.hold(owner.clone(), bytes, 0).ok()
            }
            Err(_) => None,
        }
    }

    /// Forgets outcomes of the oldest keys of owners above their fair share, of somewhat more bytes than needed: owners are compared
    /// each time.
    fn make_room(&mut self, owner: &P, needed_bytes: usize) {
        let free_before = self.pool.free_bytes();
        let wanted = needed_bytes.max(self.limits.bytes_max / ROOM_PARTS);
        for (other, excess_bytes) in self.pool.owners_above_share(owner) {
            let before = self.pool.free_bytes();
            while self.pool.free_bytes() < before + excess_bytes {
                if self.pool.free_bytes() >= free_before + wanted {
                    return;
                }
                if !self.forget_oldest(&other) {
                    break;
                }
            }
        }
    }

    /// Forgets the outcome of the oldest key of an owner; whether there was one.
    fn forget_oldest(&mut self, owner: &P) -> bool {
        let of_owner = self.owners.get_mut(owner);
        let Some(name) = of_owner.and_then(OwnerKeys::forget_oldest) else { return false };
        self.entries.remove(&name).expect("a decided key stays until then");
        self.forgotten.insert(half_of(name));
        true
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
        assert!(self.last_finished <= now, "time goes forward");
        self.last_finished = now;
        let owner = entry.share.owner();
        let of_owner = self.owners.get_mut(&owner).expect("it has a key");
        of_owner.going -= 1;
        let until = now.plus(self.limits.kept);
        if of_owner.first_end().is_none() {
            self.ends.insert((until, of_owner.number), owner);
        }
        of_owner.decide(until, name);
        waiting
    }

    /// Nothing of the request was carried out, and nothing will be: the key is as if it had never come, so that the
    /// client may try again with it. Gives those that waited.
    pub fn abandon(&mut self, ticket: Ticket) -> Vec<W> {
        let Ticket(name) = ticket;
        let entry = self.entries.remove(&name).expect("a key with a ticket stays");
        let owner = entry.share.owner();
        self.owners.get_mut(&owner).expect("it has a key").going -= 1;
        self.leave(&owner);
        match entry.state {
            State::Going { waiting } => waiting,
            State::Decided(_) => unreachable!("a ticket is there once"),
        }
    }

    /// Forgets keys whose requests were decided long enough ago.
    pub fn expire(&mut self, now: Moment) {
        while let Some(first) = self.ends.first_entry().filter(|first| first.key().0 <= now) {
            let owner = first.remove();
            let of_owner = self.owners.get_mut(&owner).expect("it has a key");
            while let Some(ended) = of_owner.end_first(now) {
                match ended {
                    ExpiredKey::Kept(name) => {
                        self.entries.remove(&name).expect("a decided key stays until then");
                    }
                    ExpiredKey::Forgotten(half) => drop(self.forgotten.remove(&half)),
                }
            }
            match of_owner.first_end() {
                Some(until) => drop(self.ends.insert((until, of_owner.number), owner)),
                None => self.leave(&owner),
            }
        }
    }

    /// Forgets an owner without keys.
    fn leave(&mut self, owner: &P) {
        if self.owners.get(owner).is_some_and(OwnerKeys::is_empty) {
            self.owners.remove(owner);
        }
    }
}
