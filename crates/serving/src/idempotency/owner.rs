//! Keys of one owner, in the order of their ends.

use std::collections::VecDeque;
use std::hash::Hash;

use model::Moment;
use pools::{MemoryLoan, PoolShare};

use super::fingerprint::Fingerprint;

/// Memory of a key without its outcome, in bytes: of the queue and of the set of all such keys, that may be half empty.
const FORGOTTEN_BYTES: usize = 56;
/// Memory of an owner beside its keys, in bytes.
pub(super) const OWNER_BYTES: usize = 512;

/// A key that was decided.
struct DecidedKey {
    /// From then on the key is unknown.
    until: Moment,
    /// The name in two halves: without the alignment of a number of 128 bits this is eight bytes less.
    name: [u64; 2],
}

/// A key whose outcome is not kept any more.
struct ForgottenDue {
    until: Moment,
    half: u64,
}

/// An expired key.
pub(super) enum ExpiredKey {
    /// A key with its outcome.
    Kept(Fingerprint),
    /// A key without its outcome, by [`half_of`].
    Forgotten(u64),
}

/// Half of a name. Two names have one half with a chance of 2^-64, and no client can find them.
pub(super) fn half_of(name: Fingerprint) -> u64 {
    name.0 as u64
}

/// Keys of an owner.
pub(super) struct OwnerKeys<P: Clone + Eq + Hash> {
    /// Distinguishes owners whose first keys end at the same moment.
    pub(super) number: u64,
    /// Keys under way.
    pub(super) going: usize,
    /// Keys that were decided before those of `decided`, without their outcomes.
    forgotten: VecDeque<ForgottenDue>,
    /// Keys whose outcomes are kept, in the order in which they were decided.
    decided: VecDeque<DecidedKey>,
    /// Memory beside that of the keys of `decided`.
    share: PoolShare<P>,
}

impl<P: Clone + Eq + Hash + Send + Sync + 'static> OwnerKeys<P> {
    /// An owner without keys. `share`: of [`OWNER_BYTES`].
    pub(super) fn new(number: u64, share: PoolShare<P>) -> OwnerKeys<P> {
        let (forgotten, decided) = (VecDeque::new(), VecDeque::new());
        OwnerKeys { number, going: 0, forgotten, decided, share }
    }

    /// When the first of its decided keys ends.
    pub(super) fn first_end(&self) -> Option<Moment> {
        let forgotten = self.forgotten.front().map(|due| due.until);
        forgotten.or_else(|| self.decided.front().map(|due| due.until))
    }

    /// Whether it has no keys.
    pub(super) fn is_empty(&self) -> bool {
        self.going == 0 && self.first_end().is_none()
    }

    /// Adds a key that was decided after all others.
    pub(super) fn decide(&mut self, until: Moment, Fingerprint(name): Fingerprint) {
        self.decided.push_back(DecidedKey { until, name: [(name >> 64) as u64, name as u64] });
    }

    /// Drops the outcome of the oldest decided key, and returns that key, if there is one.
    pub(super) fn forget_oldest(&mut self) -> Option<Fingerprint> {
        let due = self.decided.pop_front()?;
        self.forgotten.push_back(ForgottenDue { until: due.until, half: half_of(due.name()) });
        self.share.set_bytes(self.share.bytes() + FORGOTTEN_BYTES);
        Some(due.name())
    }

    /// Removes the first key, if its end has come.
    pub(super) fn end_first(&mut self, now: Moment) -> Option<ExpiredKey> {
        if let Some(due) = self.forgotten.pop_front_if(|due| due.until <= now) {
            self.share.set_bytes(self.share.bytes() - FORGOTTEN_BYTES);
            return Some(ExpiredKey::Forgotten(due.half));
        }
        let due = self.decided.pop_front_if(|due| due.until <= now)?;
        Some(ExpiredKey::Kept(due.name()))
    }
}

impl DecidedKey {
    fn name(&self) -> Fingerprint {
        let [high, low] = self.name;
        Fingerprint(u128::from(high) << 64 | u128::from(low))
    }
}
