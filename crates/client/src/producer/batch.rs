//! A batch from its closing to its end, and how those who wait for its records hear of that.

use super::Identity;
use crate::error::ClientError;
use bytes::Bytes;
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

/// What becomes of a batch; all its records share it.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    result: OnceLock<Result<Placed, ClientError>>,
    done: Notify,
}

impl Outcome {
    pub(super) fn complete(&self, result: Result<Placed, ClientError>) {
        // Only the sender completes, and it gives a batch up when it does.
        self.result.set(result).expect("a batch ends once");
        self.done.notify_waiters();
    }

    pub(super) async fn wait(&self) -> Result<Placed, ClientError> {
        loop {
            let done = self.done.notified();
            tokio::pin!(done);
            // Registered before the look, so that an end in between is not missed.
            done.as_mut().enable();
            if let Some(result) = self.result.get() {
                return result.clone();
            }
            done.await;
        }
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
        let placed = self.outcome.wait().await?;
        Ok(placed.base_offset.map(|base| base.plus(self.index as i64)))
    }

    /// Whether that is decided.
    pub fn is_done(&self) -> bool {
        self.outcome.result.get().is_some()
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
    /// [`Sequence::NONE`] if the producer is not idempotent.
    pub(super) base_sequence: Sequence,
    /// Its place among all batches of the producer.
    pub(super) ordinal: u64,
    pub(super) opened: Instant,
    /// How often it was sent.
    pub(super) attempts: u32,
    /// When it was first sent.
    pub(super) sent: Option<Instant>,
    /// Records of its partition before it.
    pub(super) first_record: u64,
    pub(super) tags: Vec<u64>,
    /// Bytes of `buffer.memory` that it holds.
    pub(super) memory_bytes: u32,
}

impl Batch {
    /// Gives it another identity and place in the sequence.
    pub(super) fn resequence(&mut self, (id, epoch): Identity, base_sequence: Sequence) {
        let mut bytes = self.bytes.to_vec();
        let header = BatchHeader::decode(&bytes).expect("the producer built it");
        BatchHeader { producer_id: id, producer_epoch: epoch, base_sequence, ..header }
            .encode(&mut bytes);
        batch::write_checksum(&mut bytes);
        self.base_sequence = base_sequence;
        self.bytes = Bytes::from(bytes);
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
    fn a_batch_may_change_its_identity() {
        let mut builder = BatchBuilder::new();
        builder.add(Timestamp(5), None, Some(b"v"));
        let mut batch = Batch {
            bytes: Bytes::from(builder.finish()),
            outcome: Arc::default(),
            record_count: 1,
            base_sequence: Sequence(7),
            ordinal: 0,
            opened: Instant::now(),
            attempts: 1,
            sent: None,
            first_record: 0,
            tags: Vec::new(),
            memory_bytes: 0,
        };
        batch.resequence((ProducerId(3), ProducerEpoch(4)), Sequence(5));
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
