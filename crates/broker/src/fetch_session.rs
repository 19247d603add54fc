//! Fetch sessions (KIP-227): what a consumer wants is kept here between its requests, which then
//! carry changes only, and answers carry only partitions with something new.
//!
//! A session's partitions have one [`Watch`] in common. A request looks only at those that changed
//! since, that were not exhausted, or that the client mentioned: never at all of them again.
//!
//! A session ends with the connection that used it, if no other did; sessions that nobody uses any
//! more end after some minutes. Partitions of all sessions together are bounded: beyond that, clients
//! fetch without sessions. A partition that is not known stays in its session, so that the client
//! need not ask again when its topic has come.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use model::{Offset, TopicId};
use node::answering::Wanted;
use parking_lot::Mutex;
use partition::{Partition, Watch, WatchKey};
use smallvec::SmallVec;
use storage::ReadCursor;

/// A session that has not been used for this long may be dropped for another's sake.
const EVICTABLE_AFTER: Duration = Duration::from_secs(120);

/// A session that has not been used for this long is dropped.
const IDLE_MAX: Duration = Duration::from_secs(600);
/// Partitions of all sessions of clients, and of all sessions of replicas; each takes some 250 bytes.
const ENTRIES_MAX: usize = 256 * 1024;
/// Sessions that one connection may have made or used; more belong to nobody.
const PER_CONNECTION_MAX: usize = 8;

/// How a request names a topic: by name up to version 12, by id from 13 on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TopicKey {
    /// Versions 4 to 12.
    Name(Arc<str>),
    /// Versions 13 and up.
    Id(TopicId),
}

/// One partition of a session.
#[derive(Debug)]
pub struct Entry {
    /// The topic as the client names it.
    pub topic: TopicKey,
    /// The partition's number.
    pub partition_index: i32,
    /// What the client wants of it now.
    pub wanted: Wanted,
    /// Where the last read ended.
    pub cursor: ReadCursor,
    /// The partition, once it was found, and the registration with it.
    pub found: Option<(Arc<Partition>, WatchKey)>,
    /// What the client was last told.
    pub told_high_watermark: Offset,
    /// What the client was last told.
    pub told_log_start: Offset,
    /// Whether it was in the last answer with an error: then it is told again.
    pub told_error: bool,
}

/// The partitions that a client fetches.
#[derive(Debug, Default)]
pub struct FetchSession {
    /// The entries by slot. Slots of forgotten partitions are empty and used again.
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    slots: HashMap<(TopicKey, i32), u32>,
    /// Which slots have to be looked at: one bit each.
    ready: Vec<u64>,
    watch: Arc<Watch>,
    /// The slot to begin with, so that no partition starves behind one that is always full.
    turn: u32,
}

impl FetchSession {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// How many partitions there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// The bytes that the limits of all partitions allow together, but at most `bytes_max`, and at least one of them.
    pub fn allowed_bytes(&self, bytes_max: u64) -> u64 {
        let mut allowed = 0_u64;
        for entry in self.entries.iter().flatten() {
            if allowed >= bytes_max {
                break;
            }
            allowed = allowed.saturating_add(entry.wanted.max_bytes as u64);
        }
        allowed.max(1).min(bytes_max)
    }

    /// Adds a partition, or changes what is wanted of it; either way it will be looked at.
    pub fn want(&mut self, topic: TopicKey, partition_index: i32, wanted: Wanted) {
        let slot = match self.slots.get(&(topic.clone(), partition_index)) {
            Some(slot) => *slot,
            None => self.add(topic, partition_index, wanted),
        };
        let entry = self.entry_mut(slot);
        entry.wanted = wanted;
        entry.told_high_watermark =
            wanted.known_high_watermark.unwrap_or(entry.told_high_watermark);
        self.set_ready(slot);
    }

    fn add(&mut self, topic: TopicKey, partition_index: i32, wanted: Wanted) -> u32 {
        let entry = Entry {
            topic: topic.clone(),
            partition_index,
            wanted,
            cursor: ReadCursor::default(),
            found: None,
            told_high_watermark: Offset(-1),
            told_log_start: Offset(-1),
            told_error: false,
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() as u32 - 1
        });
        self.entries[slot as usize] = Some(entry);
        self.slots.insert((topic, partition_index), slot);
        slot
    }

    /// Removes a partition.
    pub fn forget(&mut self, topic: TopicKey, partition_index: i32) {
        let Some(slot) = self.slots.remove(&(topic, partition_index)) else { return };
        let entry = self.entries[slot as usize].take().expect("a known slot has an entry");
        if let Some((partition, key)) = entry.found {
            partition.unwatch(key);
        }
        self.clear_ready(slot);
        self.free.push(slot);
    }

    /// The entry in a slot that is in use.
    pub fn entry_mut(&mut self, slot: u32) -> &mut Entry {
        self.entries[slot as usize].as_mut().expect("the slot is in use")
    }

    /// Whether the entry in `slot` is connected with this partition.
    pub fn is_connected(&self, slot: u32, partition: &Arc<Partition>) -> bool {
        let entry = self.entries.get(slot as usize).and_then(Option::as_ref);
        entry
            .and_then(|entry| entry.found.as_ref())
            .is_some_and(|(it, _)| Arc::ptr_eq(it, partition))
    }

    /// Connects the entry in `slot` with its partition, unless it is already. A replica is told of whatever is
    /// appended, a consumer of what is committed.
    pub fn connect(&mut self, slot: u32, partition: &Arc<Partition>, is_replica: bool) {
        let watch = Arc::clone(&self.watch);
        let entry = self.entry_mut(slot);
        match &entry.found {
            Some((known, _)) if Arc::ptr_eq(known, partition) => return,
            Some((known, key)) => known.unwatch(*key),
            None => {}
        }
        entry.cursor = ReadCursor::default();
        let key = match is_replica {
            true => partition.watch_end(&watch, slot),
            false => partition.watch(&watch, slot),
        };
        entry.found = Some((Arc::clone(partition), key));
    }

    fn set_ready(&mut self, slot: u32) {
        let word = slot as usize / 64;
        if self.ready.len() <= word {
            self.ready.resize(word + 1, 0);
        }
        self.ready[word] |= 1 << (slot % 64);
    }

    /// There is nothing to be had in `slot` until it changes.
    pub fn clear_ready(&mut self, slot: u32) {
        if let Some(word) = self.ready.get_mut(slot as usize / 64) {
            *word &= !(1 << (slot % 64));
        }
    }

    /// The slots to look at, beginning where the last answer left off.
    pub fn ready_slots(&mut self) -> Vec<u32> {
        self.watch.take_or_wait(&mut self.ready, None);
        let mut slots = Vec::new();
        for (at, word) in self.ready.iter().enumerate() {
            let mut bits = *word;
            while bits != 0 {
                slots.push(at as u32 * 64 + bits.trailing_zeros());
                bits &= bits - 1;
            }
        }
        slots.retain(|slot| self.entries.get(*slot as usize).is_some_and(Option::is_some));
        let first = slots.partition_point(|slot| *slot < self.turn);
        slots.rotate_left(first);
        slots
    }

    /// The client is told an error of the partition in `slot` after all, unless that is another one by now: it is looked at
    /// again by the next request, and the client hears when it can be read.
    pub fn was_refused(&mut self, slot: u32, topic: &TopicKey, partition_index: i32) {
        let entry = self.entries.get_mut(slot as usize).and_then(Option::as_mut);
        let is_it =
            |entry: &&mut Entry| entry.topic == *topic && entry.partition_index == partition_index;
        if let Some(entry) = entry.filter(is_it) {
            entry.told_error = true;
            self.set_ready(slot);
        }
    }

    /// The next answer begins behind `slot`.
    pub fn served(&mut self, slot: u32) {
        self.turn = slot + 1;
    }

    /// Whether something changed since; if not, `waker` is woken by the next change.
    pub fn changed_or_wait(&mut self, waker: &std::task::Waker) -> bool {
        self.watch.take_or_wait(&mut self.ready, Some(waker))
    }
}

impl Drop for FetchSession {
    fn drop(&mut self) {
        for entry in self.entries.iter().flatten() {
            if let Some((partition, key)) = &entry.found {
                partition.unwatch(*key);
            }
        }
    }
}

/// Whose a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionOf {
    /// A client, one of many.
    Client,
    /// A broker that has proven who it is and copies from here: it takes no client's place, and no client takes its.
    Replica,
}

/// A session with its id and epoch.
#[derive(Debug)]
pub struct CachedSession {
    /// Never 0.
    pub id: i32,
    /// The epoch that the next request must carry.
    pub next_epoch: i32,
    /// Whether the client names topics by id.
    pub uses_topic_ids: bool,
    /// When it was last used.
    pub last_used: Instant,
    /// The partitions.
    pub session: Box<FetchSession>,
    /// The connection that has used it, until another does.
    only_user: Option<u64>,
    counted: Counted,
    /// Counts it, if it is a client's.
    of_client: Option<Counted>,
}

/// Entries counted in a sum, for as long as it lives.
#[derive(Debug)]
struct Counted {
    sum: Arc<AtomicUsize>,
    entries: usize,
}

impl Counted {
    /// Counts so many from now on. False if there are more than `max` in all then.
    fn set(&mut self, entries: usize, max: usize) -> bool {
        if entries == self.entries {
            return true;
        }
        let before = self.sum.fetch_add(entries, Ordering::Relaxed);
        self.sum.fetch_sub(self.entries, Ordering::Relaxed);
        let is_more = entries > self.entries;
        let others = before.saturating_sub(self.entries);
        self.entries = entries;
        !is_more || others + entries <= max
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.sum.fetch_sub(self.entries, Ordering::Relaxed);
    }
}

/// What a connection has to do with sessions.
#[derive(Debug, Default)]
pub struct SessionUse {
    /// The connection's number among those that have used sessions; 0: it has not.
    user: u64,
    sessions: SmallVec<[i32; 2]>,
}

impl SessionUse {
    /// Notes a session. Returns the one that has to go for it.
    fn note(&mut self, id: i32) -> Option<i32> {
        if self.sessions.contains(&id) {
            return None;
        }
        self.sessions.push(id);
        (self.sessions.len() > PER_CONNECTION_MAX).then(|| self.sessions.remove(0))
    }
}

/// A session in the cache; requests of one session come one after the other, so the lock is free.
pub type SharedSession = Arc<Mutex<CachedSession>>;

/// All sessions (`max.incremental.fetch.session.cache.slots`).
#[derive(Debug)]
pub struct FetchSessions {
    sessions: Mutex<HashMap<i32, SharedSession>>,
    /// How many sessions clients may have.
    count_max: usize,
    /// How many they have.
    of_clients: Arc<AtomicUsize>,
    /// Partitions of all sessions of clients.
    entries: Arc<AtomicUsize>,
    /// Partitions of all sessions of replicas.
    entries_of_replicas: Arc<AtomicUsize>,
    last_user: AtomicU64,
}

impl FetchSessions {
    /// A cache of at most `count_max` sessions of clients.
    pub fn new(count_max: usize) -> FetchSessions {
        FetchSessions {
            sessions: Mutex::default(),
            count_max,
            of_clients: Arc::default(),
            entries: Arc::default(),
            entries_of_replicas: Arc::default(),
            last_user: AtomicU64::new(0),
        }
    }

    /// How many sessions there are, and how many partitions they have.
    pub fn counts(&self) -> (usize, usize) {
        let sessions = self.sessions.lock().len();
        let entries = [&self.entries, &self.entries_of_replicas];
        (sessions, entries.iter().map(|sum| sum.load(Ordering::Relaxed)).sum())
    }

    /// The session of this id.
    pub fn get(&self, id: i32) -> Option<SharedSession> {
        self.sessions.lock().get(&id).cloned()
    }

    /// Makes room for a session and adds one; gives `session` back if there is no room.
    pub fn create(
        &self,
        session: Box<FetchSession>,
        of: SessionOf,
        uses_topic_ids: bool,
        user: &mut SessionUse,
        now: Instant,
    ) -> Result<SharedSession, Box<FetchSession>> {
        self.introduce(user);
        let mut sessions = self.sessions.lock();
        let is_client = of == SessionOf::Client;
        let sum = if is_client { &self.entries } else { &self.entries_of_replicas };
        loop {
            let clients = self.of_clients.load(Ordering::Relaxed);
            let is_one_too_many = is_client && clients >= self.count_max;
            let entries = sum.load(Ordering::Relaxed) + session.len();
            if !is_one_too_many && entries <= ENTRIES_MAX {
                break;
            }
            if !evict_one(&mut sessions, is_client, now) {
                return Err(session);
            }
        }
        let id = loop {
            let id = fastrand::i32(1..);
            if !sessions.contains_key(&id) {
                break id;
            }
        };
        let mut counted = Counted { sum: Arc::clone(sum), entries: 0 };
        counted.set(session.len(), ENTRIES_MAX);
        let of_client = is_client.then(|| {
            let mut of_client = Counted { sum: Arc::clone(&self.of_clients), entries: 0 };
            of_client.set(1, self.count_max);
            of_client
        });
        let only_user = Some(user.user);
        let cached = CachedSession {
            id,
            next_epoch: 1,
            uses_topic_ids,
            last_used: now,
            session,
            only_user,
            counted,
            of_client,
        };
        let shared = Arc::new(Mutex::new(cached));
        sessions.insert(id, Arc::clone(&shared));
        drop(sessions);
        self.note(user, id);
        Ok(shared)
    }

    fn introduce(&self, user: &mut SessionUse) {
        if user.user == 0 {
            user.user = self.last_user.fetch_add(1, Ordering::Relaxed) + 1;
        }
    }

    fn note(&self, user: &mut SessionUse, id: i32) {
        if let Some(oldest) = user.note(id) {
            self.remove_of(oldest, user.user);
        }
    }

    /// Notes that a connection uses a session, after its partitions have changed. False: it has more
    /// than `entries_max`, or all have more than there is room for.
    pub fn note_use(
        &self,
        session: &mut CachedSession,
        user: &mut SessionUse,
        entries_max: usize,
    ) -> bool {
        if session.only_user.is_some_and(|known| known != user.user) {
            session.only_user = None;
        }
        let entries = session.session.len();
        session.counted.set(entries, ENTRIES_MAX) && entries <= entries_max
    }

    /// A connection has ended: so do the sessions that only it has used.
    pub fn user_left(&self, user: &SessionUse) {
        user.sessions.iter().for_each(|id| self.remove_of(*id, user.user));
    }

    fn remove_of(&self, id: i32, user: u64) {
        let Some(shared) = self.get(id) else { return };
        if shared.lock().only_user == Some(user) {
            self.remove(id);
        }
    }

    /// Ends a session.
    pub fn remove(&self, id: i32) {
        let removed = self.sessions.lock().remove(&id);
        // Its registrations end here, not under the lock.
        drop(removed);
    }

    /// Ends the sessions that have not been used for minutes.
    pub fn drop_idle(&self, now: Instant) {
        let idle: Vec<SharedSession> = {
            let mut sessions = self.sessions.lock();
            let is_idle = |_: &i32, shared: &mut SharedSession| {
                let used = shared.try_lock().map(|session| session.last_used);
                used.is_some_and(|used| now.saturating_duration_since(used) >= IDLE_MAX)
            };
            sessions.extract_if(is_idle).map(|(_, shared)| shared).collect()
        };
        drop(idle);
    }
}

/// Drops the session of a client, or else of a replica, that has not been used for longest, if that is long enough.
fn evict_one(sessions: &mut HashMap<i32, SharedSession>, of_clients: bool, now: Instant) -> bool {
    let unused = sessions.iter().filter_map(|(id, shared)| {
        let session = shared.try_lock()?;
        let is_meant = of_clients == session.of_client.is_some();
        is_meant.then_some((*id, session.last_used))
    });
    let oldest = unused.min_by_key(|(_, last_used)| *last_used);
    match oldest {
        Some((id, last_used)) if now.duration_since(last_used) >= EVICTABLE_AFTER => {
            sessions.remove(&id);
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use model::LeaderEpoch;

    use super::*;

    fn session_of(entries: usize) -> Box<FetchSession> {
        let mut session = Box::<FetchSession>::default();
        let wanted = Wanted {
            offset: Offset(0),
            log_start: Offset(-1),
            max_bytes: 1,
            known_epoch: LeaderEpoch::NONE,
            last_fetched_epoch: LeaderEpoch::NONE,
            known_high_watermark: None,
        };
        for partition in 0..entries {
            session.want(TopicKey::Name("t".into()), partition as i32, wanted);
        }
        session
    }

    #[test]
    fn a_session_ends_with_its_only_connection() {
        let (sessions, now) = (FetchSessions::new(10), Instant::now());
        let (mut first, mut second) = (SessionUse::default(), SessionUse::default());
        let own =
            sessions.create(session_of(3), SessionOf::Client, false, &mut first, now).unwrap();
        let shared =
            sessions.create(session_of(4), SessionOf::Client, false, &mut first, now).unwrap();
        sessions.create(session_of(5), SessionOf::Client, false, &mut second, now).unwrap();
        assert!(sessions.note_use(&mut shared.lock(), &mut second, 10));
        drop((own, shared));
        sessions.user_left(&first);
        assert_eq!(sessions.counts(), (2, 9));
        sessions.drop_idle(now + IDLE_MAX);
        assert_eq!(sessions.counts(), (0, 0));
    }

    #[test]
    fn partitions_of_all_sessions_are_bounded() {
        let (sessions, now) = (FetchSessions::new(1000), Instant::now());
        let mut user = SessionUse::default();
        sessions
            .create(session_of(ENTRIES_MAX - 10), SessionOf::Client, false, &mut user, now)
            .unwrap();
        let refused =
            sessions.create(session_of(11), SessionOf::Client, false, &mut user, now).unwrap_err();
        assert_eq!(refused.len(), 11, "given back");
        let second = Duration::from_secs(1);
        sessions.create(session_of(10), SessionOf::Client, false, &mut user, now + second).unwrap();
        // The oldest one gives way.
        let later = now + EVICTABLE_AFTER;
        sessions.create(session_of(11), SessionOf::Client, false, &mut user, later).unwrap();
        assert_eq!(sessions.counts(), (2, 21));
    }

    #[test]
    fn replicas_and_clients_take_no_session_from_each_other() {
        let (sessions, now) = (FetchSessions::new(2), Instant::now());
        let create = |of, now| {
            let mut user = SessionUse::default();
            sessions.create(session_of(1), of, true, &mut user, now).map(|it| it.lock().id)
        };
        let replica = create(SessionOf::Replica, now).unwrap();
        create(SessionOf::Client, now).unwrap();
        create(SessionOf::Client, now).unwrap();
        create(SessionOf::Client, now).unwrap_err();
        create(SessionOf::Replica, now).unwrap();
        // What a client gets was a client's, though the replica's is older.
        create(SessionOf::Client, now + EVICTABLE_AFTER).unwrap();
        assert!(sessions.get(replica).is_some());
        assert_eq!(sessions.counts(), (4, 4));
        sessions.drop_idle(now + 2 * IDLE_MAX);
        assert_eq!(sessions.counts(), (0, 0));
        create(SessionOf::Client, now).unwrap();
        create(SessionOf::Client, now).unwrap();
        create(SessionOf::Client, now).unwrap_err();
    }

    #[test]
    fn clients_with_very_many_partitions_leave_replicas_their_sessions() {
        let (sessions, now) = (FetchSessions::new(1000), Instant::now());
        let create = |entries, of, now| {
            let mut user = SessionUse::default();
            sessions.create(session_of(entries), of, true, &mut user, now)
        };
        let client = create(ENTRIES_MAX, SessionOf::Client, now).unwrap();
        create(1, SessionOf::Client, now).unwrap_err();
        let replica = create(ENTRIES_MAX, SessionOf::Replica, now).unwrap().lock().id;
        let used = sessions.get(replica).unwrap();
        assert!(sessions.note_use(&mut used.lock(), &mut SessionUse::default(), usize::MAX));
        drop(used);
        create(1, SessionOf::Replica, now).unwrap_err();
        assert_eq!(sessions.counts(), (2, 2 * ENTRIES_MAX));
        // What gives way for a replica was a replica's.
        create(1, SessionOf::Replica, now + EVICTABLE_AFTER).unwrap();
        assert!(sessions.get(client.lock().id).is_some());
        assert!(sessions.get(replica).is_none());
    }

    #[test]
    fn a_session_that_grows_too_large_is_noticed() {
        let (sessions, now) = (FetchSessions::new(1000), Instant::now());
        let mut user = SessionUse::default();
        let shared =
            sessions.create(session_of(5), SessionOf::Client, false, &mut user, now).unwrap();
        *shared.lock().session = *session_of(8);
        assert!(sessions.note_use(&mut shared.lock(), &mut user, 8));
        assert!(!sessions.note_use(&mut shared.lock(), &mut user, 7));
        *shared.lock().session = *session_of(ENTRIES_MAX + 1);
        assert!(!sessions.note_use(&mut shared.lock(), &mut user, usize::MAX));
    }

    #[test]
    fn one_connection_keeps_only_the_sessions_that_it_made_last() {
        let (sessions, now) = (FetchSessions::new(1000), Instant::now());
        let mut user = SessionUse::default();
        for _ in 0..100 {
            sessions.create(session_of(1), SessionOf::Client, false, &mut user, now).unwrap();
        }
        assert_eq!(sessions.counts(), (PER_CONNECTION_MAX, PER_CONNECTION_MAX));
    }
}
