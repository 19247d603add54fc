//! First sequences of idempotent producers that the partition refused a moment ago with an error after which producers retry.
//!
//! A producer has several batches in flight. If the partition refuses one of them and could append the next one, the sequence of
//! the next one is out of order: producers answer OUT_OF_ORDER_SEQUENCE_NUMBER with a new producer epoch, in which they send
//! again batches of *all* partitions, and some of those are in logs already. So a batch behind the refused one gets the error of
//! the refused one or a similar one, and the producer sends both again, in order (decision 0093).
//!
//! Not here: the sequences that are in the log (`storage::producers`).

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use model::{BatchHeader, ProducerEpoch, ProducerId, Sequence, Timestamp};
use storage::Log;

use crate::error::PartitionError;
use crate::mutants::{Mutant, is_planted};
use crate::partition::Partition;

/// How long a refused sequence is kept. Longer than the longest pause between two attempts of librdkafka and of the Java client,
/// one second. A batch behind a sequence that the producer never sends again is out of order afterwards.
const KEPT_MS: i64 = 5_000;
/// Producers with a refused sequence that one partition keeps. More producers get OUT_OF_ORDER_SEQUENCE_NUMBER.
const PRODUCERS_MAX: usize = 256;
/// Memory of refused sequences that the partitions of one log directory keep together, in bytes: some eighty thousand producers.
/// Threads that note refusals at the same time may exceed the limit by one entry each.
const DIRECTORY_BYTES_MAX: u64 = 4 << 20;
/// Memory of one refused sequence: the entry, and its share of a node of the tree.
const ENTRY_BYTES: usize = size_of::<(ProducerId, RefusedSequence)>() + 16;

/// Why a batch was refused whose producer sends it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SequenceRefusal {
    /// `acks=all` with too few in-sync replicas.
    #[error("too few in-sync replicas")]
    NotEnoughReplicas,
    /// This broker did not lead the partition.
    #[error("this broker did not lead the partition")]
    NotLeader,
    /// The log directory had no room, a write in it hung, or no file could be opened.
    #[error("the log directory could not be written to")]
    Storage,
}

impl SequenceRefusal {
    /// The refusal that `error` is, if producers retry after it and nothing of the batch was written.
    fn of(error: &PartitionError) -> Option<SequenceRefusal> {
        match error {
            PartitionError::NotEnoughReplicas { .. } => Some(SequenceRefusal::NotEnoughReplicas),
            PartitionError::NotLeader => Some(SequenceRefusal::NotLeader),
            PartitionError::DiskFull | PartitionError::DirectoryHangs => {
                Some(SequenceRefusal::Storage)
            }
            error if error.lacks_resources() => Some(SequenceRefusal::Storage),
            _ => None,
        }
    }
}

/// The first sequence of a producer that was refused.
#[derive(Clone, Copy, Debug)]
struct RefusedSequence {
    epoch: ProducerEpoch,
    first: Sequence,
    refusal: SequenceRefusal,
    /// When the batch with that sequence was refused last.
    at: Timestamp,
}

impl RefusedSequence {
    /// A clock that went back behind the refusal makes a sequence old.
    fn is_fresh(&self, now: Timestamp) -> bool {
        (0..KEPT_MS).contains(&now.ms_since(self.at))
    }
}

/// Whether a batch from `sequence` on comes after a batch from `first` on. Sequences wrap.
fn is_behind(sequence: Sequence, first: Sequence) -> bool {
    (1..=i32::MAX / 2).contains(&(sequence.0.wrapping_sub(first.0) & i32::MAX))
}

/// The refused sequences of one partition, at most one a producer. An empty one owns no memory.
#[derive(Debug, Default)]
pub(crate) struct RefusedSequences {
    by_id: BTreeMap<ProducerId, RefusedSequence>,
}

impl RefusedSequences {
    /// Notes that the batch was refused at `now`. The first refused sequence of a producer stays until it is old, or in the
    /// log: an earlier or later leader may have appended it. `next` is the sequence that the log accepts next, `None` if it
    /// accepts any or is not known. `may_grow`: whether the log directory has memory for one more producer.
    fn note(
        &mut self,
        header: &BatchHeader,
        refusal: SequenceRefusal,
        next: Option<Sequence>,
        now: Timestamp,
        may_grow: bool,
    ) {
        let (id, epoch, first) = (header.producer_id, header.producer_epoch, header.base_sequence);
        if let Some(known) = self.by_id.get(&id)
            && known.is_fresh(now)
            && (known.epoch > epoch || known.epoch == epoch && is_behind(first, known.first))
            && !(known.epoch == epoch && next.is_some_and(|next| is_behind(next, known.first)))
        {
            return;
        }
        let is_full = !may_grow || self.by_id.len() >= PRODUCERS_MAX;
        if is_full && !self.by_id.contains_key(&id) {
            let before = self.by_id.len();
            self.expire(now);
            if self.by_id.len() == before {
                return;
            }
        }
        self.by_id.insert(id, RefusedSequence { epoch, first, refusal, at: now });
    }

    /// The refusal of an earlier batch of the producer, if the log waits for that batch. `next` is the sequence that the log
    /// accepts next, `None` if it accepts any.
    fn refusal_before(
        &self,
        header: &BatchHeader,
        next: Option<Sequence>,
        now: Timestamp,
    ) -> Option<SequenceRefusal> {
        let refused = self.by_id.get(&header.producer_id)?;
        let is_gap = refused.epoch == header.producer_epoch
            && refused.is_fresh(now)
            && next.is_none_or(|next| next == refused.first)
            && is_behind(header.base_sequence, refused.first);
        is_gap.then_some(refused.refusal)
    }

    /// Removes the sequences that are old.
    fn expire(&mut self, now: Timestamp) {
        self.by_id.retain(|_, refused| refused.is_fresh(now));
    }

    fn bytes(&self) -> u64 {
        (self.by_id.len() * ENTRY_BYTES) as u64
    }
}

impl Partition {
    /// Notes that the batch was refused, if its producer sends it again.
    pub(crate) fn note_refused(
        &self,
        header: &BatchHeader,
        error: &PartitionError,
        now: Timestamp,
    ) {
        if !header.producer_id.is_idempotent() || header.is_control() {
            return;
        }
        if let Some(refusal) = SequenceRefusal::of(error) {
            let state = self.lock_briefly().ok();
            let next = state.and_then(|state| state.log.next_sequence(header));
            let held = self.sync_queue.held();
            let may_grow = held.refused_bytes() + ENTRY_BYTES as u64 <= DIRECTORY_BYTES_MAX;
            self.change_refused(|refused| refused.note(header, refusal, next, now, may_grow));
        }
    }

    /// As [`Partition::note_refused`], for a batch whose header was not read yet.
    pub(crate) fn note_refused_bytes(
        &self,
        records: &[u8],
        error: &PartitionError,
        now: Timestamp,
    ) {
        if SequenceRefusal::of(error).is_some()
            && let Ok(header) = BatchHeader::decode(records)
        {
            self.note_refused(&header, error, now);
        }
    }

    /// The refusal of an earlier batch of the same producer that the log waits for. One load where nothing was refused.
    pub(crate) fn refusal_before(
        &self,
        log: &Log,
        header: &BatchHeader,
        now: Timestamp,
    ) -> Option<SequenceRefusal> {
        if !self.has_refused.load(Ordering::Relaxed) || is_planted(Mutant::ForgetsRefusals) {
            return None;
        }
        self.refused.lock().refusal_before(header, log.next_sequence(header), now)
    }

    /// The batch is in the log: no earlier one of its producer is waited for.
    pub(crate) fn forget_refused(&self, header: &BatchHeader) {
        if self.has_refused.load(Ordering::Relaxed) {
            self.change_refused(|refused| {
                refused.by_id.remove(&header.producer_id);
            });
        }
    }

    /// Forgets sequences that were refused more than a few seconds ago.
    pub fn expire_refused(&self, now: Timestamp) {
        if self.has_refused.load(Ordering::Relaxed) {
            self.change_refused(|refused| refused.expire(now));
        }
    }

    /// Forgets every refused sequence.
    pub(crate) fn clear_refused(&self) {
        self.change_refused(|refused| refused.by_id.clear());
    }

    /// Changes the refused sequences, and counts their memory as that of producers.
    fn change_refused(&self, change: impl FnOnce(&mut RefusedSequences)) {
        let mut refused = self.refused.lock();
        let before = refused.bytes();
        change(&mut refused);
        self.has_refused.store(!refused.by_id.is_empty(), Ordering::Relaxed);
        self.sync_queue.held().move_refused_bytes(before, refused.bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::record::BatchBuilder;

    const NOW: Timestamp = Timestamp(1_700_000_000_000);
    const REFUSAL: SequenceRefusal = SequenceRefusal::NotEnoughReplicas;

    fn batch(id: i64, epoch: i16, sequence: i32) -> BatchHeader {
        let mut builder =
            BatchBuilder::new().producer(ProducerId(id), ProducerEpoch(epoch), Sequence(sequence));
        builder.add(NOW, None, Some(b"v"));
        BatchHeader::decode(&builder.finish()).unwrap()
    }

    fn refused(batches: &[BatchHeader]) -> RefusedSequences {
        let mut refused = RefusedSequences::default();
        batches.iter().for_each(|header| refused.note(header, REFUSAL, None, NOW, true));
        refused
    }

    #[test]
    fn a_batch_behind_the_refused_one_gets_its_refusal_and_no_other_batch_does() {
        let refused = refused(&[batch(7, 2, 10), batch(7, 2, 12)]);
        let refusal = |header: BatchHeader, next: Option<i32>| {
            refused.refusal_before(&header, next.map(Sequence), NOW)
        };
        assert_eq!(refusal(batch(7, 2, 11), Some(10)), Some(REFUSAL));
        assert_eq!(refusal(batch(7, 2, 13), Some(10)), Some(REFUSAL));
        assert_eq!(refusal(batch(7, 2, 11), None), Some(REFUSAL), "of a producer without state");
        assert_eq!(refusal(batch(7, 2, 10), Some(10)), None, "the refused batch itself");
        assert_eq!(refusal(batch(7, 2, 9), Some(10)), None, "an earlier batch");
        assert_eq!(refusal(batch(7, 2, 14), Some(13)), None, "the refused batch is in the log");
        assert_eq!(refusal(batch(7, 2, 11), Some(8)), None, "another gap before it");
        assert_eq!(refusal(batch(7, 3, 11), Some(0)), None, "another epoch");
        assert_eq!(refusal(batch(8, 2, 11), Some(10)), None, "another producer");
    }

    #[test]
    fn a_refusal_replaces_one_whose_sequence_is_in_the_log() {
        let refusal_behind = |next: Option<i32>| {
            let (mut refused, next) = (refused(&[batch(7, 0, 10)]), next.map(Sequence));
            refused.note(&batch(7, 0, 12), REFUSAL, next, NOW, true);
            refused.refusal_before(&batch(7, 0, 13), next.or(Some(Sequence(10))), NOW)
        };
        assert_eq!(refusal_behind(Some(12)), Some(REFUSAL), "the log waits for the second one");
        assert_eq!(refusal_behind(Some(10)), Some(REFUSAL), "the log waits for the first one");
        assert_eq!(refusal_behind(None), Some(REFUSAL), "the first one stays");
    }

    #[test]
    fn sequences_wrap() {
        let refused = refused(&[batch(7, 0, i32::MAX)]);
        let refusal = refused.refusal_before(&batch(7, 0, 0), Some(Sequence(i32::MAX)), NOW);
        assert_eq!(refusal, Some(REFUSAL));
        assert!(!is_behind(Sequence(i32::MAX), Sequence(0)));
    }

    #[test]
    fn a_refused_sequence_gets_old_unless_it_is_refused_again() {
        let mut refused = refused(&[batch(7, 0, 10)]);
        let is_kept = |refused: &RefusedSequences, after_ms: i64| {
            let now = NOW.plus_ms(after_ms);
            refused.refusal_before(&batch(7, 0, 11), Some(Sequence(10)), now).is_some()
        };
        assert!(is_kept(&refused, KEPT_MS - 1) && !is_kept(&refused, KEPT_MS));
        assert!(!is_kept(&refused, -1), "the clock went back");
        refused.note(&batch(7, 0, 11), REFUSAL, None, NOW.plus_ms(KEPT_MS - 1), true);
        assert!(!is_kept(&refused, KEPT_MS), "a batch behind it was refused");
        refused.note(&batch(7, 0, 10), REFUSAL, None, NOW.plus_ms(KEPT_MS - 1), true);
        assert!(is_kept(&refused, KEPT_MS), "it was refused again");
        refused.expire(NOW.plus_ms(2 * KEPT_MS));
        assert_eq!(refused.bytes(), 0);
    }

    #[test]
    fn producers_with_refused_sequences_are_bounded() {
        let all: Vec<_> = (0..2 * PRODUCERS_MAX as i64).map(|id| batch(id, 0, 5)).collect();
        let mut refused = refused(&all);
        assert_eq!(refused.by_id.len(), PRODUCERS_MAX);
        let later = NOW.plus_ms(KEPT_MS);
        refused.note(&batch(9_999, 0, 5), REFUSAL, None, later, true);
        let refusal = refused.refusal_before(&batch(9_999, 0, 6), Some(Sequence(5)), later);
        assert_eq!(refusal, Some(REFUSAL), "old ones make room");
        assert_eq!(refused.by_id.len(), 1);
    }

    #[test]
    fn a_full_log_directory_keeps_no_further_producer() {
        let mut refused = refused(&[batch(7, 0, 10)]);
        refused.note(&batch(8, 0, 10), REFUSAL, None, NOW, false);
        assert_eq!(refused.by_id.len(), 1);
        refused.note(&batch(7, 0, 9), REFUSAL, None, NOW, false);
        let refusal = refused.refusal_before(&batch(7, 0, 10), Some(Sequence(9)), NOW);
        assert_eq!(refusal, Some(REFUSAL), "a known producer");
        refused.note(&batch(8, 0, 10), REFUSAL, None, NOW.plus_ms(KEPT_MS), false);
        assert!(refused.by_id.keys().eq(&[ProducerId(8)]), "an old sequence makes room");
    }
}
