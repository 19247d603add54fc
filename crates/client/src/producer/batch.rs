//! A batch from its closing to its end, and how those who wait for its records hear of that.

use super::numbering::Identity;
use crate::error::ClientError;
use bytes::{Bytes, BytesMut};
use model::batch::{self, BatchHeader};
use model::{Offset, Sequence, Timestamp};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;
use tokio::sync::Notify;

/// Where the records of a batch are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// Offset of the first; `None` if the broker did not say: `acks` of 0, or a duplicate.
    pub base_offset: Option<Offset>,
    /// When the broker appended them, if it sets timestamps; else none.
    pub log_append_time: Timestamp,
}

/// Why a record was given up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct Undelivered {
    /// What went wrong last.
    pub error: ClientError,
    /// Whether the record may be in the partition all the same: it was sent, and no broker has said that it was not
    /// appended.
    pub maybe_written: bool,
}

/// What becomes of a batch; all its records share it.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    ended: OnceLock<Ended>,
    done: Notify,
}

/// How a batch ended.
#[derive(Debug)]
enum Ended {
    Whole(Result<Placed, Undelivered>),
    /// It was too large for the broker: two others took its place.
    Split {
        /// Records of the first of them.
        first_count: i32,
        halves: [Arc<Outcome>; 2],
    },
    /// The broker has refused some of its records, and the others are in a batch of their own.
    Sifted {
        /// Which of its records were refused, ascending.
        refused: Arc<[i32]>,
        /// Of the refused ones, and of the others.
        parts: [Arc<Outcome>; 2],
    },
}

impl Ended {
    /// The part that has a record of the whole, and which of its records that is; how it ended, if there are no parts.
    fn part(&self, index: i32) -> Result<(&Outcome, i32), &Result<Placed, Undelivered>> {
        match self {
            Ended::Whole(result) => Err(result),
            Ended::Split { first_count, halves: [first, _] } if index < *first_count => {
                Ok((first, index))
            }
            Ended::Split { first_count, halves: [_, second] } => Ok((second, index - first_count)),
            Ended::Sifted { refused, parts: [lost, others] } => {
                Ok(match refused.binary_search(&index) {
                    Ok(at) => (lost, at as i32),
                    Err(before) => (others, index - before as i32),
                })
            }
        }
    }
}

impl Outcome {
    pub(super) fn complete(&self, result: Result<Placed, Undelivered>) {
        self.end(Ended::Whole(result));
    }

    fn end(&self, ended: Ended) {
        // Only the sender completes, and it gives a batch up when it does.
        self.ended.set(ended).expect("a batch ends once");
        self.done.notify_waiters();
    }

    /// Waits until it has ended.
    async fn wait(&self) -> &Ended {
        loop {
            // Most who wait for several records come to the others when these have ended.
            if let Some(ended) = self.ended.get() {
                return ended;
            }
            let done = self.done.notified();
            tokio::pin!(done);
            // Registered before the look, so that an end in between is not missed.
            done.as_mut().enable();
            if self.ended.get().is_none() {
                done.await;
            }
        }
    }

    /// Waits until all of it has ended; fails with the first failure.
    pub(super) async fn wait_all(self: Arc<Outcome>) -> Result<(), ClientError> {
        let (mut waiting, mut result) = (vec![self], Ok(()));
        while let Some(outcome) = waiting.pop() {
            match outcome.wait().await {
                Ended::Whole(Ok(_)) => {}
                Ended::Whole(Err(lost)) => result = result.and(Err(lost.error.clone())),
                Ended::Split { halves: [first, second], .. }
                | Ended::Sifted { parts: [first, second], .. } => {
                    waiting.extend([second.clone(), first.clone()]);
                }
            }
        }
        result
    }
}

/// The promise of one record.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub(super) outcome: Arc<Outcome>,
    /// Which record of its batch, from 0.
    pub(super) index: i32,
    /// The partition that it goes to.
    pub(super) partition: i32,
}

impl Delivery {
    /// The partition that the record goes to.
    pub fn partition(&self) -> i32 {
        self.partition
    }

    /// Waits until the record is where `acks` wants it; its offset, if the broker tells it.
    pub async fn wait(&self) -> Result<Option<Offset>, ClientError> {
        self.fate().await.map_err(|lost| lost.error)
    }

    /// As [`Delivery::wait`]; a failure tells whether the record may have been written.
    pub async fn fate(&self) -> Result<Option<Offset>, Undelivered> {
        self.place().await.map(|(offset, _)| offset)
    }

    /// As [`Delivery::fate`], with the time at which the broker appended the record, if it sets timestamps; else none.
    pub async fn place(&self) -> Result<(Option<Offset>, Timestamp), Undelivered> {
        loop {
            match self.look() {
                Ok(result) => return result,
                Err(undecided) => undecided.wait().await,
            };
        }
    }

    /// What [`Delivery::place`] will say, if that is decided.
    pub fn known(&self) -> Option<Result<(Option<Offset>, Timestamp), Undelivered>> {
        self.look().ok()
    }

    /// Whether that is decided.
    pub fn is_done(&self) -> bool {
        self.look().is_ok()
    }

    /// What became of the record; or what is to be waited for before that can be asked again.
    fn look(&self) -> Result<Result<(Option<Offset>, Timestamp), Undelivered>, &Outcome> {
        let (mut outcome, mut index) = (&*self.outcome, self.index);
        loop {
            let Some(ended) = outcome.ended.get() else { return Err(outcome) };
            match ended.part(index) {
                Ok(part) => (outcome, index) = part,
                Err(result) => {
                    let place = |placed: &Placed| {
                        let offset = placed.base_offset.map(|base| base.plus(index as i64));
                        (offset, placed.log_append_time)
                    };
                    return Ok(result.as_ref().map(place).map_err(Undelivered::clone));
                }
            }
        }
    }
}

/// A batch that ended, for those who count and measure.
#[derive(Debug)]
pub struct BatchReport<'a> {
    /// The topic.
    pub topic: &'a str,
    /// The partition.
    pub partition: i32,
    /// How many records it has.
    pub record_count: i32,
    /// Its size as sent, in bytes.
    pub size_bytes: usize,
    /// How many records the producer took for this partition before those of this batch.
    pub first_record: u64,
    /// The [`Record::tag`](super::Record::tag)s of its records, in their order.
    pub tags: &'a [u64],
    /// How often it was sent.
    pub attempts: u32,
    /// When it was first handed to a socket; `None` if it never was.
    pub sent: Option<Instant>,
    /// When its first record was taken.
    pub opened: Instant,
    /// When it ended.
    pub ended: Instant,
    /// Where the records are, or why they are not.
    pub result: &'a Result<Placed, ClientError>,
}

/// A closed batch.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) bytes: Bytes,
    pub(super) outcome: Arc<Outcome>,
    pub(super) record_count: i32,
    /// Producer id and epoch in its header.
    pub(super) identity: Identity,
    /// Sequence in its header; [`Sequence::NONE`] if the producer is not idempotent. Both are a
    /// prediction until the batch is sent: [`super::numbering`].
    pub(super) base_sequence: Sequence,
    /// Its place among all batches of the producer.
    pub(super) ordinal: u64,
    pub(super) opened: Instant,
    /// How often it was sent.
    pub(super) attempts: u32,
    /// When it was first sent.
    pub(super) sent: Option<Instant>,
    /// Whether an attempt got no answer that excludes an append. Then its numbers are final.
    pub(super) maybe_written: bool,
    /// Whether it must not be sent again: its generation has ended, and it may be appended.
    pub(super) is_spent: bool,
    /// How often records were taken out of it that a broker had refused.
    pub(super) sifted: u32,
    /// Records of its partition before it.
    pub(super) first_record: u64,
    pub(super) tags: Vec<u64>,
    /// Bytes of `buffer.memory` that it holds.
    pub(super) memory_bytes: u32,
}

impl Batch {
    /// Puts two batches in its place, of which the first has `first_count` of its records. They share
    /// its memory, its tags and its place in the sequence; bytes and ordinals are the caller's.
    pub(super) fn into_halves(self, first_count: i32, made: [(Bytes, u64); 2]) -> [Batch; 2] {
        assert!((1..self.record_count).contains(&first_count), "each half has a record");
        let mut tags = self.tags;
        let behind = tags.split_off(tags.len().min(first_count as usize));
        let none = self.base_sequence == Sequence::NONE;
        let second = if none { Sequence::NONE } else { self.base_sequence.plus(first_count) };
        let half = |(bytes, ordinal): (Bytes, u64)| Batch {
            bytes,
            outcome: Arc::default(),
            record_count: first_count,
            identity: self.identity,
            base_sequence: self.base_sequence,
            ordinal,
            opened: self.opened,
            attempts: 0,
            sent: self.sent,
            maybe_written: self.maybe_written,
            is_spent: self.is_spent,
            sifted: self.sifted,
            first_record: self.first_record,
            tags: Vec::new(),
            memory_bytes: self.memory_bytes / 2,
        };
        let [first, last] = made;
        let halves = [
            Batch { tags, ..half(first) },
            Batch {
                record_count: self.record_count - first_count,
                base_sequence: second,
                first_record: self.first_record + first_count as u64,
                tags: behind,
                memory_bytes: self.memory_bytes - self.memory_bytes / 2,
                ..half(last)
            },
        ];
        let outcomes = [halves[0].outcome.clone(), halves[1].outcome.clone()];
        self.outcome.end(Ended::Split { first_count, halves: outcomes });
        halves
    }

    /// Puts two batches in its place: that of the `refused` records, ascending, which has no bytes and is not sent, and that
    /// of the others, which has its memory. The bytes of the others, and the ordinals, are the caller's.
    pub(super) fn into_sifted(
        self,
        refused: Arc<[i32]>,
        ordinals: [u64; 2],
        others: Bytes,
    ) -> [Batch; 2] {
        let count = refused.len() as i32;
        assert!((1..self.record_count).contains(&count), "each part has a record");
        let (mut lost_tags, mut tags) = (Vec::new(), Vec::new());
        for (at, tag) in (0..).zip(self.tags) {
            let is_refused = refused.binary_search(&at).is_ok();
            if is_refused { &mut lost_tags } else { &mut tags }.push(tag);
        }
        let part = |record_count, bytes, ordinal, tags, memory_bytes| Batch {
            bytes,
            outcome: Arc::default(),
            record_count,
            identity: self.identity,
            base_sequence: self.base_sequence,
            ordinal,
            opened: self.opened,
            attempts: self.attempts,
            sent: self.sent,
            maybe_written: self.maybe_written,
            is_spent: self.is_spent,
            sifted: self.sifted + 1,
            first_record: self.first_record,
            tags,
            memory_bytes,
        };
        let parts = [
            part(count, Bytes::new(), ordinals[0], lost_tags, 0),
            part(self.record_count - count, others, ordinals[1], tags, self.memory_bytes),
        ];
        let outcomes = [parts[0].outcome.clone(), parts[1].outcome.clone()];
        self.outcome.end(Ended::Sifted { refused, parts: outcomes });
        parts
    }

    /// Whether it has a producer id and a sequence.
    pub(super) fn is_numbered(&self) -> bool {
        self.base_sequence != Sequence::NONE
    }

    /// The sequence behind its last record.
    pub(super) fn end_sequence(&self) -> Sequence {
        self.base_sequence.plus(self.record_count)
    }

    /// Writes these numbers into its header, unless it has them.
    pub(super) fn renumber(&mut self, identity: Identity, base_sequence: Sequence) {
        if (self.identity, self.base_sequence) == (identity, base_sequence) {
            return;
        }
        let bytes = std::mem::take(&mut self.bytes);
        // A request that was not written yet may hold a part of the buffer.
        let mut bytes = bytes.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        let header = BatchHeader::decode(&bytes).expect("the producer built it");
        let (producer_id, producer_epoch) = identity;
        BatchHeader { producer_id, producer_epoch, base_sequence, ..header }.encode(&mut bytes);
        batch::write_checksum(&mut bytes);
        (self.identity, self.base_sequence) = (identity, base_sequence);
        self.bytes = bytes.freeze();
    }
}

/// Buffers of batches that ended, to be used again.
#[derive(Debug)]
pub(super) struct Pool {
    buffers: Mutex<Vec<Vec<u8>>>,
    count_max: usize,
}

impl Pool {
    pub(super) fn new(count_max: usize) -> Pool {
        Pool { buffers: Mutex::default(), count_max }
    }

    /// A buffer with whatever capacity it has from before.
    pub(super) fn take(&self) -> Vec<u8> {
        super::lock(&self.buffers).pop().unwrap_or_default()
    }

    /// Takes a buffer back, unless someone else still holds a part of it.
    pub(super) fn give(&self, bytes: Bytes) {
        let Ok(unique) = bytes.try_into_mut() else { return };
        let mut buffer = Vec::from(unique);
        buffer.clear();
        let mut buffers = super::lock(&self.buffers);
        if buffers.len() < self.count_max {
            buffers.push(buffer);
        }
    }
}

/// Lists of tags, to be used again.
#[derive(Debug, Default)]
pub(super) struct TagLists(Mutex<Vec<Vec<u64>>>);

impl TagLists {
    /// Lists that are kept at most.
    const COUNT_MAX: usize = 1024;

    pub(super) fn take(&self) -> Vec<u64> {
        super::lock(&self.0).pop().unwrap_or_default()
    }

    pub(super) fn give(&self, mut tags: Vec<u64>) {
        tags.clear();
        let mut lists = super::lock(&self.0);
        if tags.capacity() > 0 && lists.len() < TagLists::COUNT_MAX {
            lists.push(tags);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::record::BatchBuilder;
    use model::{ProducerEpoch, ProducerId};

    #[test]
    fn a_batch_takes_other_numbers() {
        let mut builder = BatchBuilder::new();
        builder.add(Timestamp(5), None, Some(b"v"));
        let mut batch = Batch {
            bytes: Bytes::from(builder.finish()),
            outcome: Arc::default(),
            record_count: 1,
            identity: (ProducerId(2), ProducerEpoch(0)),
            base_sequence: Sequence(7),
            ordinal: 0,
            opened: Instant::now(),
            attempts: 1,
            sent: None,
            maybe_written: false,
            is_spent: false,
            sifted: 0,
            first_record: 0,
            tags: Vec::new(),
            memory_bytes: 0,
        };
        batch.renumber((ProducerId(3), ProducerEpoch(4)), Sequence(5));
        let header = BatchHeader::decode_checked(&batch.bytes).unwrap();
        assert_eq!((header.producer_id, header.producer_epoch), (ProducerId(3), ProducerEpoch(4)));
        assert_eq!((header.base_sequence, batch.base_sequence), (Sequence(5), Sequence(5)));
    }

    #[test]
    fn a_buffer_comes_back_with_its_memory() {
        let pool = Pool::new(1);
        let mut buffer = Vec::with_capacity(4096);
        buffer.extend_from_slice(b"records");
        let bytes = Bytes::from(buffer);
        let slice = bytes.clone();
        pool.give(bytes);
        assert_eq!(pool.take().capacity(), 0, "someone still reads it");
        pool.give(slice);
        let again = pool.take();
        assert!(again.is_empty() && again.capacity() >= 4096);
    }
}
