//! What a log must hold, by the plainest means: all batches that were appended, in a vector.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{BatchHeader, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

/// A batch as it was appended.
#[derive(Clone, Debug)]
pub struct Batch {
    pub header: BatchHeader,
    pub bytes: Arc<[u8]>,
}

/// A history of one log. Clones share their batches.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// All that was appended since the log was last emptied, deleted segments included.
    pub batches: Vec<Batch>,
    /// The first readable offset.
    pub log_start: Offset,
    /// Where the first of `batches` begins.
    pub base: Offset,
    /// Everything below was synced: the sync has returned.
    pub synced: Offset,
    /// Everything below was deleted by retention: it may be gone, or still be there.
    pub retained_from: Offset,
}

/// What follows from the batches about one idempotent producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Producer {
    pub epoch: ProducerEpoch,
    pub last_sequence: Sequence,
    pub last_base_offset: Offset,
    pub last_offset: Offset,
}

impl Timeline {
    pub fn log_end(&self) -> Offset {
        self.batches.last().map_or(self.base, |batch| batch.header.next_offset())
    }

    pub fn latest_timestamp(&self) -> Timestamp {
        self.batches.iter().map(|b| b.header.max_timestamp).max().unwrap_or(Timestamp(0))
    }

    /// The producers as replaying every batch from `from` on makes them.
    pub fn producers(&self, from: Offset) -> BTreeMap<ProducerId, Producer> {
        let mut producers = BTreeMap::new();
        for Batch { header, .. } in &self.batches {
            if header.producer_id.is_idempotent() && header.base_offset >= from {
                let producer = Producer {
                    epoch: header.producer_epoch,
                    last_sequence: header.last_sequence(),
                    last_base_offset: header.base_offset,
                    last_offset: header.last_offset(),
                };
                producers.insert(header.producer_id, producer);
            }
        }
        producers
    }

    /// The batch that holds `offset`.
    pub fn batch_at(&self, offset: Offset) -> Option<&Batch> {
        let at = self.batches.partition_point(|batch| batch.header.last_offset() < offset);
        self.batches.get(at).filter(|batch| batch.header.base_offset <= offset)
    }

    /// The same history up to a batch border.
    pub fn truncated(mut self, offset: Offset) -> Timeline {
        self.batches.retain(|batch| batch.header.next_offset() <= offset);
        assert_eq!(self.log_end(), offset.min(self.log_end()), "batches are cut between them");
        self.synced = self.synced.min(offset);
        self
    }
}
