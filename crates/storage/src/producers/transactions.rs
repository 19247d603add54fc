//! Open and ended transactions of a log, from which the last stable offset and the index of aborted
//! transactions (`aborted.rs`) are derived.
//!
//! Not here: what a coordinator decides. A log only sees batches and the markers that end them.

use std::collections::BTreeMap;

use model::batch::HEADER_BYTES;
use model::record::Records;
use model::{BatchHeader, Compression, Offset, ProducerId};

const ABORT: i16 = 0;
const COMMIT: i16 = 1;

/// The end of a transaction, as its control batch holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Whether the transaction is aborted; otherwise it is committed.
    pub aborts: bool,
    /// Leader epoch of the `__transaction_state` partition whose leader wrote the marker.
    pub coordinator_epoch: i32,
}

impl Marker {
    /// The marker in a batch; `None` if it is no control batch, or one of another kind.
    pub fn read(header: &BatchHeader, batch: &[u8]) -> Option<Marker> {
        if !header.is_control() || header.compression() != Compression::None {
            return None;
        }
        let record = Records::new(batch.get(HEADER_BYTES..)?, 1).next()?.ok()?;
        let (key, value) = (record.key?, record.value?);
        let kind = i16::from_be_bytes(key.get(2..4)?.try_into().ok()?);
        let coordinator_epoch = i32::from_be_bytes(value.get(2..6)?.try_into().ok()?);
        (kind == ABORT || kind == COMMIT)
            .then_some(Marker { aborts: kind == ABORT, coordinator_epoch })
    }
}

/// A transaction that a marker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CompletedTransaction {
    pub(crate) producer_id: ProducerId,
    pub(crate) first_offset: Offset,
    /// The marker's offset.
    pub(crate) last_offset: Offset,
    pub(crate) aborted: bool,
}

/// The transactions that may still hold the last stable offset back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Transactions {
    /// Open ones by their first offset.
    open: BTreeMap<Offset, ProducerId>,
    /// Ended ones by their markers' offsets, as far as a high watermark may not have passed them.
    completed: Vec<CompletedTransaction>,
}

impl Transactions {
    pub(crate) fn begin(&mut self, id: ProducerId, first_offset: Offset) {
        self.open.insert(first_offset, id);
    }

    pub(crate) fn complete(
        &mut self,
        producer_id: ProducerId,
        first_offset: Offset,
        last_offset: Offset,
        marker: Marker,
    ) -> CompletedTransaction {
        self.open.remove(&first_offset);
        let completed =
            CompletedTransaction { producer_id, first_offset, last_offset, aborted: marker.aborts };
        self.completed.push(completed);
        completed
    }

    pub(crate) fn first_open(&self) -> Option<Offset> {
        self.open.first_key_value().map(|(first, _)| *first)
    }

    /// A transaction whose marker is not below the high watermark counts as open.
    pub(crate) fn last_stable_offset(&self, high_watermark: Offset) -> Offset {
        let passed = self.completed.partition_point(|t| t.last_offset < high_watermark);
        let unreplicated = self.completed[passed..].iter().map(|t| t.first_offset).min();
        let unstable = unreplicated.into_iter().chain(self.first_open()).min();
        unstable.map_or(high_watermark, |first| first.min(high_watermark))
    }

    pub(crate) fn settle(&mut self, high_watermark: Offset) {
        let passed = self.completed.partition_point(|t| t.last_offset < high_watermark);
        self.completed.drain(..passed);
    }
}
