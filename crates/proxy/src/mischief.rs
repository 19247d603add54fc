//! Doing wrong on purpose: which produce request is next, and what becomes of it.
//!
//! [`Mischief`] is one proxy's, counts requests over all connections, and keeps the count of what
//! was done; [`Culprit`] is one connection's, and remembers what could not be done yet.

use crate::misbehave::{Misbehave, Misdeeds};
use crate::produced::{NextOffsets, Produced};
use model::batch::{Batches, HEADER_BYTES, write_checksum};
use model::record::Records;
use model::{BatchHeader, Compression};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// One proxy's misbehaviour.
#[derive(Debug)]
pub struct Mischief {
    plan: Misbehave,
    /// Produce requests that have come.
    seen: AtomicU64,
    misdeeds: Mutex<Misdeeds>,
    offsets: Mutex<NextOffsets>,
}

/// What is to be done with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Nothing wrong.
    Forward,
    /// Acknowledge and forget it.
    Lose,
    /// Forward it twice.
    Repeat,
    /// Let the next one overtake it.
    Reorder,
    /// Change a value in it.
    Damage,
}

impl Mischief {
    /// Misbehaviour after this plan; `None` if it is to do nothing.
    pub fn new(plan: Misbehave) -> Option<Mischief> {
        (!plan.is_off()).then(|| Mischief {
            plan,
            seen: AtomicU64::new(0),
            misdeeds: Mutex::default(),
            offsets: Mutex::default(),
        })
    }

    /// What was done so far.
    pub fn misdeeds(&self) -> Misdeeds {
        *self.count()
    }

    /// The counts, to add to.
    pub fn count(&self) -> MutexGuard<'_, Misdeeds> {
        self.misdeeds.lock().expect("no code under this lock panics")
    }

    /// Where the next records of partitions would go.
    pub fn offsets(&self) -> MutexGuard<'_, NextOffsets> {
        self.offsets.lock().expect("no code under this lock panics")
    }

    /// Whether answers must tell offsets: to acknowledge what is lost.
    pub fn learns_offsets(&self) -> bool {
        self.plan.lose_every > 0
    }
}

/// One connection's part in the misbehaviour.
#[derive(Debug)]
pub struct Culprit {
    /// The proxy's.
    pub mischief: Arc<Mischief>,
    reorder_owed: bool,
    damage_owed: bool,
}

impl Culprit {
    /// A connection that has done nothing yet.
    pub fn new(mischief: Arc<Mischief>) -> Culprit {
        Culprit { mischief, reorder_owed: false, damage_owed: false }
    }

    /// Counts a produce request; returns its number, from 1.
    pub fn see(&mut self) -> u64 {
        self.mischief.seen.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// What is to be done with the next produce request.
    pub fn judge(&mut self) -> Deed {
        let number = self.see();
        let plan = self.mischief.plan;
        let due = |every: u64| every > 0 && number.is_multiple_of(every);
        self.reorder_owed |= due(plan.reorder_every);
        self.damage_owed |= due(plan.damage_every);
        if due(plan.lose_every) {
            Deed::Lose
        } else if due(plan.repeat_every) {
            Deed::Repeat
        } else if self.reorder_owed {
            Deed::Reorder
        } else if self.damage_owed {
            Deed::Damage
        } else {
            Deed::Forward
        }
    }

    /// A pair has changed places.
    pub fn reordered(&mut self) {
        self.reorder_owed = false;
        self.mischief.count().reordered_pairs += 1;
    }

    /// Changes a value in the request in `frame`, if there is one that can be changed.
    pub fn damage(&mut self, frame: &mut [u8], produced: &Produced) {
        let done = produced
            .partitions
            .iter()
            .any(|partition| frame.get_mut(partition.batches.clone()).is_some_and(damage_batches));
        if done {
            self.damage_owed = false;
            self.mischief.count().damaged_records += 1;
        }
    }
}

/// Changes a value in the first of `batches` that has one and is not compressed. Whether there was
/// one.
fn damage_batches(batches: &mut [u8]) -> bool {
    let mut walk = Batches::new(batches);
    let found = loop {
        let from = walk.position();
        let Some(Ok((header, batch))) = walk.next() else { return false };
        if let Some(at) = last_value_byte(&header, batch) {
            break (from..from + batch.len(), at);
        }
    };
    let batch = &mut batches[found.0];
    batch[found.1] ^= 1;
    write_checksum(batch);
    true
}

/// Where in `batch` the last byte of its first record's value that has bytes lies.
fn last_value_byte(header: &BatchHeader, batch: &[u8]) -> Option<usize> {
    if header.compression() != Compression::None {
        return None;
    }
    let records = Records::new(&batch[HEADER_BYTES..], header.record_count);
    let mut values = records.map_while(Result::ok).filter_map(|record| record.value);
    let value = values.find(|value| !value.is_empty())?;
    // The value is a part of the batch: its place is the distance of the addresses.
    let from = value.as_ptr() as usize - batch.as_ptr() as usize;
    Some(from + value.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Timestamp;
    use model::record::BatchBuilder;

    fn culprit(plan: Misbehave) -> Culprit {
        Culprit::new(Arc::new(Mischief::new(plan).unwrap()))
    }

    #[test]
    fn a_plan_of_nothing_is_no_mischief() {
        assert!(Mischief::new(Misbehave::default()).is_none());
    }

    #[test]
    fn every_third_request_is_lost() {
        let mut culprit = culprit(Misbehave { lose_every: 3, ..Misbehave::default() });
        let deeds: Vec<_> = (0..6).map(|_| culprit.judge()).collect();
        use Deed::{Forward, Lose};
        assert_eq!(deeds, [Forward, Forward, Lose, Forward, Forward, Lose]);
    }

    #[test]
    fn what_could_not_be_reordered_is_tried_again() {
        let mut culprit = culprit(Misbehave { reorder_every: 3, ..Misbehave::default() });
        let deeds: Vec<_> = (0..4).map(|_| culprit.judge()).collect();
        assert_eq!(deeds, [Deed::Forward, Deed::Forward, Deed::Reorder, Deed::Reorder]);
        culprit.reordered();
        assert_eq!(culprit.judge(), Deed::Forward);
        assert_eq!(culprit.mischief.misdeeds().reordered_pairs, 1);
    }

    #[test]
    fn a_damaged_batch_has_one_other_byte_and_a_right_checksum() {
        let mut builder = BatchBuilder::new();
        builder.add(Timestamp(1), Some(b"key"), None);
        builder.add(Timestamp(1), Some(b"key"), Some(b"value"));
        let mut batch = builder.finish();
        assert!(damage_batches(&mut batch));
        let header = BatchHeader::decode_checked(&batch).unwrap();
        let values: Vec<_> = Records::new(&batch[HEADER_BYTES..], header.record_count)
            .map(|record| record.unwrap().value)
            .collect();
        assert_eq!(values, [None, Some(&b"valud"[..])]);
    }

    #[test]
    fn batches_without_a_value_are_left() {
        let mut builder = BatchBuilder::new();
        builder.add(Timestamp(1), Some(b"key"), None);
        let mut batch = builder.finish();
        let before = batch.clone();
        assert!(!damage_batches(&mut batch));
        assert!(!damage_batches(&mut []));
        assert_eq!(batch, before);
    }
}
