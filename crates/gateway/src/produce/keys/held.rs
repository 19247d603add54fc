//! The table of keys among many connections: who is first with a key, who waits, and what is kept for both.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use model::Moment;
use serving::error::{ApiError, Kind};
use serving::idempotency::{Begin, Limits, Seal, Table, Ticket};
use tokio::sync::oneshot;

use super::carry::Keyed;
use super::outcomes::KeptOutcomes;
use crate::share_owner::ShareOwner;

/// The part of the gateway's memory that keys may take, beside what requests may.
const MEMORY_PART: usize = 8;

/// Who waits is told what is kept; or, by a sender that is dropped, that nothing was carried out.
type Waiter = oneshot::Sender<Kept>;

/// The outcomes of a key's request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::produce) enum Kept {
    /// The request failed as a whole.
    Failed(ApiError),
    /// What became of its records.
    Outcomes(KeptOutcomes),
}

impl Kept {
    /// Memory that it takes, in bytes.
    pub(super) fn size_bytes(&self) -> usize {
        match self {
            Kept::Failed(error) => error.message.len(),
            Kept::Outcomes(outcomes) => outcomes.size_bytes(),
        }
    }
}

type OutcomeTable = Table<ShareOwner, Kept, Waiter>;

/// Keys with what became of their requests.
pub(crate) struct Keys {
    table: Mutex<OutcomeTable>,
    seal: Seal,
    began: Instant,
    replayed: AtomicU64,
    waited: AtomicU64,
}

/// What is to be done with a request.
pub(super) enum Begun {
    /// It is the first with its key.
    First(Held),
    /// Another one with its key is under way.
    Another(oneshot::Receiver<Kept>),
    /// It was decided before.
    Known(Kept),
}

impl Keys {
    /// None yet. `memory_bytes`: the gateway's.
    pub(crate) fn new(memory_bytes: usize) -> Keys {
        let limits = Limits::default();
        let bytes_max = limits.bytes_max.min(memory_bytes / MEMORY_PART);
        Keys {
            table: Mutex::new(Table::new(Limits { bytes_max, ..limits })),
            seal: Seal::new([fastrand::u64(..), fastrand::u64(..)]),
            began: Instant::now(),
            replayed: AtomicU64::new(0),
            waited: AtomicU64::new(0),
        }
    }

    fn table(&self) -> MutexGuard<'_, OutcomeTable> {
        self.table.lock().expect("no code under it panics")
    }

    /// Asked for under the table's lock, so that it goes forward there.
    fn now(&self) -> Moment {
        Moment::START.plus(self.began.elapsed())
    }

    /// A request came whose outcomes take `bytes_max` at most.
    pub(super) fn begin(
        self: &Arc<Keys>,
        keyed: &Keyed<'_>,
        bytes_max: usize,
    ) -> Result<Begun, ApiError> {
        let fingerprint = self.seal.fingerprint(&keyed.asked);
        let (name, owner) = (keyed.name.sealed(&self.seal), keyed.owner.clone());
        let mut waits = None;
        let waiter = || {
            let (waiter, told) = oneshot::channel();
            waits = Some(told);
            waiter
        };
        let begun = {
            let mut table = self.table();
            let now = self.now();
            table.begin(now, name, owner, fingerprint, bytes_max, waiter)
        };
        match begun {
            Begin::Send(ticket) => {
                Ok(Begun::First(Held { keys: Arc::clone(self), ticket: Some(ticket) }))
            }
            Begin::Wait => {
                self.waited.fetch_add(1, Ordering::Relaxed);
                Ok(Begun::Another(waits.expect("the table has asked for a waiter")))
            }
            Begin::Replay(kept) => {
                self.replayed.fetch_add(1, Ordering::Relaxed);
                Ok(Begun::Known(kept))
            }
            Begin::OtherRequest => {
                let words = "another request came with this Idempotency-Key: give each request a key of its own";
                Err(ApiError::new(Kind::Unprocessable, words))
            }
            Begin::Forgotten => {
                let words = "a request with this Idempotency-Key was carried out before, and its answer is not kept any \
                             more, because other clients needed the memory: its records are written or may be; read \
                             the topic before you send them with another key";
                Err(ApiError::new(Kind::Undecided, words))
            }
            Begin::Full => {
                let words = "the gateway keeps as many Idempotency-Keys of this client as it may, each for ten minutes: \
                             send more records with each key, or try again later, or without a key";
                Err(ApiError::new(Kind::Full, words))
            }
        }
    }

    /// How many keys are remembered.
    pub(crate) fn len(&self) -> usize {
        let mut table = self.table();
        let now = self.now();
        table.expire(now);
        table.len()
    }

    /// What is known of keys, as JSON.
    pub(crate) fn counts(&self) -> String {
        let (keys, bytes) = {
            let mut table = self.table();
            let now = self.now();
            table.expire(now);
            (table.len(), table.bytes())
        };
        let (replayed, waited) =
            (self.replayed.load(Ordering::Relaxed), self.waited.load(Ordering::Relaxed));
        format!("{{\"keys\":{keys},\"bytes\":{bytes},\"replayed\":{replayed},\"waited\":{waited}}}")
    }
}

/// A key of whose request nothing was sent. Dropped, it is free again.
pub(super) struct Held {
    keys: Arc<Keys>,
    /// `None` once it has gone on.
    ticket: Option<Ticket>,
}

impl Held {
    /// Something is sent from here on.
    pub(super) fn sent(mut self) -> Owed {
        Owed { keys: Arc::clone(&self.keys), ticket: self.ticket.take() }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            // Dropped outside of the lock: each wakes a task.
            let waiting = self.keys.table().abandon(ticket);
            drop(waiting);
        }
    }
}

/// A key of whose request records were sent. Dropped, its outcome stays unknown.
pub(super) struct Owed {
    keys: Arc<Keys>,
    /// `None` once it has gone on.
    ticket: Option<Ticket>,
}

impl Owed {
    /// None of the records is written, and none will be.
    pub(super) fn nothing_written(mut self) {
        drop(Held { keys: Arc::clone(&self.keys), ticket: self.ticket.take() });
    }

    /// This is what became of the request.
    pub(super) fn decided(mut self, kept: &Kept) {
        self.finish(kept);
    }

    fn finish(&mut self, kept: &Kept) {
        let Some(ticket) = self.ticket.take() else { return };
        let waiting = {
            let mut table = self.keys.table();
            let now = self.keys.now();
            table.finish(ticket, now, kept.clone(), kept.size_bytes())
        };
        self.keys.replayed.fetch_add(waiting.len() as u64, Ordering::Relaxed);
        for waiter in waiting {
            // One whose client has left.
            let _ = waiter.send(kept.clone());
        }
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        let words = "the gateway does not know what became of the records, and they may be written";
        self.finish(&Kept::Failed(ApiError::new(Kind::Undecided, words)));
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot::error::TryRecvError;

    use serving::idempotency::Name;

    use super::*;

    fn begin(keys: &Arc<Keys>, body: &[u8]) -> Result<Begun, ApiError> {
        let name = Name { principal: String::new(), path: "/".to_owned(), key: "a".to_owned() };
        let owner = ShareOwner::Unknown;
        keys.begin(&Keyed { name, owner, may_create: false, asked: vec![body] }, 1000)
    }

    fn first(keys: &Arc<Keys>) -> Held {
        match begin(keys, b"v").unwrap() {
            Begun::First(held) => held,
            Begun::Another(_) | Begun::Known(_) => panic!("the key is taken"),
        }
    }

    fn another(keys: &Arc<Keys>) -> oneshot::Receiver<Kept> {
        match begin(keys, b"v").unwrap() {
            Begun::Another(told) => told,
            Begun::First(_) | Begun::Known(_) => panic!("the key is not under way"),
        }
    }

    #[test]
    fn what_is_dropped_before_anything_is_sent_frees_its_key() {
        let keys = Arc::new(Keys::new(8 << 20));
        let held = first(&keys);
        let mut told = another(&keys);
        assert_eq!(told.try_recv(), Err(TryRecvError::Empty));
        assert_eq!(begin(&keys, b"w").err().map(|error| error.kind), Some(Kind::Unprocessable));
        drop(held);
        assert_eq!(told.try_recv(), Err(TryRecvError::Closed));
        first(&keys).sent().nothing_written();
        drop(first(&keys));
    }

    #[test]
    fn what_is_dropped_after_something_was_sent_stays_unknown() {
        let keys = Arc::new(Keys::new(8 << 20));
        let owed = first(&keys).sent();
        let mut told = another(&keys);
        drop(owed);
        let kept = told.try_recv().unwrap();
        assert!(matches!(&kept, Kept::Failed(error) if error.kind == Kind::Undecided));
        let Ok(Begun::Known(again)) = begin(&keys, b"v") else { panic!("the key is free") };
        assert_eq!(again, kept);
    }

    #[test]
    fn what_became_of_a_request_is_told_to_all_that_waited() {
        let keys = Arc::new(Keys::new(8 << 20));
        let owed = first(&keys).sent();
        let (mut one, gone) = (another(&keys), another(&keys));
        drop(gone);
        let kept = Kept::Outcomes(KeptOutcomes::of(&[], 0));
        owed.decided(&kept);
        assert_eq!(one.try_recv(), Ok(kept));
    }
}
