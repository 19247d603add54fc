//! Producer id, epoch and sequences of the batches of one partition, as KIP-360 has them: a lost
//! sequence renumbers this partition only, and no other partition waits for that.
//!
//! A *generation* of a partition is the time under one (producer id, epoch). Brokers keep a producer's
//! epoch and sequence for each partition, so partitions of one producer may use different epochs.
//! Three rules keep a batch from being appended twice:
//!
//! 1. A batch that may be appended keeps its numbers until it ends. It is *bound*. If a broker then
//!    refuses the numbers, the batch is given up as one that may be appended.
//! 2. A batch whose attempts all got an answer that excludes an append is *free*: its numbers go to the
//!    next batch of the partition ([`Numbering::rewind`]). Refused records cost no epoch.
//! 3. After a bound batch was given up, the next free batch starts a generation. The higher epoch fences
//!    requests with the lost batch that are still on their way.

use super::batch::Batch;
use model::{ProducerEpoch, ProducerId, Sequence};

/// Producer id and epoch of a batch; none of both if the producer is not idempotent.
pub(super) type Identity = (ProducerId, ProducerEpoch);

/// The identity of a producer that is not idempotent.
pub(super) const NO_IDENTITY: Identity = (ProducerId::NONE, ProducerEpoch::NONE);

/// Two sequences that are further apart than this have wrapped around.
const SEQUENCE_DISTANCE_MAX: i32 = 1 << 30;

/// Whether a partition's sequence continues where the broker expects it to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Continuity {
    /// Every sequence below the next one is appended, or belongs to a batch in flight or waiting.
    Whole,
    /// A bound batch was given up, or the topic was re-created. A bound batch behind it is sent under
    /// its own numbers; if the broker appends that batch, the sequence is whole again.
    Unresolved,
    /// A broker has refused the sequence that was due.
    Broken,
}

/// The numbers of one partition's batches.
#[derive(Debug)]
pub(super) struct Numbering {
    /// The generation. [`NO_IDENTITY`] also while the partition waits for a producer id.
    identity: Identity,
    /// The sequence of the next batch to be sent.
    next: Sequence,
    /// The sequence behind the last batch that a broker has acknowledged in this generation.
    acknowledged: Sequence,
    continuity: Continuity,
    /// Unless the sequence is whole: an acknowledgement resolves it if its batch ends behind this one.
    doubted: Sequence,
    /// Whether a broker has acknowledged a batch of this generation. Until then one batch is in flight
    /// at a time: a broker without state of a producer accepts any first sequence, so if it refused the
    /// first batch, it would append the second, and never the first.
    is_established: bool,
}

impl Numbering {
    /// The first generation of a partition; [`NO_IDENTITY`] if the producer is not idempotent, or waits
    /// for a producer id.
    pub(super) fn new(identity: Identity) -> Numbering {
        Numbering {
            identity,
            next: Sequence(0),
            acknowledged: Sequence(0),
            continuity: Continuity::Whole,
            doubted: Sequence(0),
            is_established: false,
        }
    }

    /// Identity of the generation.
    pub(super) fn identity(&self) -> Identity {
        self.identity
    }

    /// Starts a generation. Nothing of the partition may be in flight.
    pub(super) fn start(&mut self, identity: Identity) {
        *self = Numbering::new(identity);
    }

    /// Whether a second batch may be in flight.
    pub(super) fn allows_pipelining(&self) -> bool {
        self.is_established && self.continuity == Continuity::Whole
    }

    /// The numbers that a batch will probably have that is closed behind `last`. [`Numbering::assign`]
    /// decides when the batch is sent.
    pub(super) fn predict(&self, last: Option<&Batch>) -> (Identity, Sequence) {
        match last {
            _ if !self.identity.0.is_idempotent() => (NO_IDENTITY, Sequence::NONE),
            Some(batch) if batch.identity == self.identity => (self.identity, batch.end_sequence()),
            _ => (self.identity, self.next),
        }
    }

    /// Makes the sequence continue behind the last acknowledged batch. Nothing of the partition may be
    /// in flight. Bound batches that wait keep their numbers: see [`Numbering::assign`].
    pub(super) fn rewind(&mut self) {
        self.next = self.acknowledged;
    }

    /// Whether a free batch that is sent now must start a generation. `bound_waits`: a bound batch of
    /// this generation waits behind it.
    pub(super) fn needs_generation(&self, bound_waits: bool) -> bool {
        match self.continuity {
            _ if !self.identity.0.is_idempotent() => true,
            Continuity::Whole => false,
            Continuity::Unresolved => !bound_waits,
            Continuity::Broken => true,
        }
    }

    /// Gives a batch its numbers at the moment of sending.
    pub(super) fn assign(&mut self, batch: &mut Batch) {
        if !self.identity.0.is_idempotent() {
            return;
        }
        // Before a bound batch that may resolve the sequence, a batch keeps its place.
        let keeps = self.continuity == Continuity::Unresolved && batch.identity == self.identity;
        if !batch.maybe_written && !keeps {
            batch.renumber(self.identity, self.next);
        }
        // A batch that is repeated may be older than one that was acknowledged.
        let end = batch.end_sequence();
        if is_behind(end, self.next) {
            self.next = end;
        }
    }

    /// A broker has acknowledged a batch of this generation, and with it all before it.
    pub(super) fn acknowledge(&mut self, batch: &Batch) {
        if batch.identity != self.identity {
            return;
        }
        let end = batch.end_sequence();
        // The answer to a repetition may come behind the answer to a later batch.
        if is_behind(end, self.acknowledged) {
            self.acknowledged = end;
        }
        if self.continuity == Continuity::Whole || is_behind(end, self.doubted) {
            (self.is_established, self.continuity) = (true, Continuity::Whole);
        }
    }

    /// A bound batch was given up: the broker expects its sequence, or the one behind it.
    pub(super) fn doubt(&mut self, lost: &Batch) {
        if lost.identity == self.identity {
            self.doubt_from(lost.end_sequence(), Continuity::Unresolved);
        }
    }

    /// The topic was re-created, and the state of its producers is gone.
    pub(super) fn doubt_all(&mut self) {
        self.doubt_from(self.acknowledged, Continuity::Unresolved);
    }

    /// A broker has refused the sequence of this batch, which was due.
    pub(super) fn break_off(&mut self, refused: &Batch) {
        if refused.identity == self.identity {
            self.doubt_from(refused.base_sequence, Continuity::Broken);
        }
    }

    fn doubt_from(&mut self, from: Sequence, continuity: Continuity) {
        if self.continuity == Continuity::Whole || is_behind(from, self.doubted) {
            self.doubted = from;
        }
        self.is_established = false;
        if self.continuity != Continuity::Broken {
            self.continuity = continuity;
        }
    }
}

/// Whether a sequence comes behind another one, or after `i32::MAX` again from 0.
fn is_behind(sequence: Sequence, other: Sequence) -> bool {
    let distance = sequence.0.wrapping_sub(other.0) & i32::MAX;
    distance != 0 && distance < SEQUENCE_DISTANCE_MAX
}

/// The identities of a producer, from which partitions take their generations.
#[derive(Debug)]
pub(super) struct Identities {
    current: Identity,
    supply: Supply,
}

/// Whether a partition may start with the current identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Supply {
    Fresh,
    /// A partition that the producer has forgotten may have used the epoch: the next one is due.
    EpochUsed,
    /// Epochs of the producer id are used up, or a broker has fenced it: another id is needed.
    IdUsed,
}

impl Identities {
    pub(super) fn new(current: Identity) -> Identities {
        Identities { current, supply: Supply::Fresh }
    }

    pub(super) fn current(&self) -> Identity {
        self.current
    }

    /// Takes the identity that a coordinator or broker has given.
    pub(super) fn install(&mut self, identity: Identity) {
        *self = Identities::new(identity);
    }

    /// Whether another producer id is needed.
    pub(super) fn wants_id(&self) -> bool {
        self.supply == Supply::IdUsed
    }

    /// An identity for a partition whose last one was `last`: one that it has not used. `None` while
    /// another producer id is needed.
    pub(super) fn next(&mut self, last: Identity) -> Option<Identity> {
        if !self.current.0.is_idempotent() {
            return Some(self.current);
        }
        let is_newer = self.current.0 != last.0 || self.current.1 > last.1;
        if self.supply == Supply::EpochUsed || (self.supply == Supply::Fresh && !is_newer) {
            let (id, epoch) = self.current;
            match epoch.0.checked_add(1) {
                Some(epoch) => self.install((id, ProducerEpoch(epoch))),
                None => self.supply = Supply::IdUsed,
            }
        }
        (self.supply == Supply::Fresh).then_some(self.current)
    }

    /// A partition was forgotten that may come back: the current epoch is not given to it again.
    pub(super) fn use_epoch_up(&mut self) {
        if self.supply == Supply::Fresh {
            self.supply = Supply::EpochUsed;
        }
    }

    /// A broker has fenced an epoch of this producer id: no later epoch of it is tried.
    pub(super) fn use_id_up(&mut self, id: ProducerId) {
        if self.current.0 == id {
            self.supply = Supply::IdUsed;
        }
    }
}
