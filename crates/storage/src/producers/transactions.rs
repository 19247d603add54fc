//! Open and ended transactions of a log: what the last stable offset and the index of aborted
//! transactions (`.txnindex`) are made of.
//!
//! Not here: what a coordinator decides. A log only sees batches and the markers that end them.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use model::batch::HEADER_BYTES;
use model::record::Records;
use model::{BatchHeader, Compression, Offset, ProducerId};

use crate::StorageError;
use crate::disk::{DiskFile, OpenMode};
use crate::error::Context;
use crate::names::{Home, TRANSACTION_INDEX};

const ABORT: i16 = 0;
const COMMIT: i16 = 1;

/// What a control batch says that ends a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marker {
    pub(crate) aborts: bool,
    pub(crate) coordinator_epoch: i32,
}

impl Marker {
    /// The marker in a batch; `None` if it is no control batch, or one of another kind.
    pub(crate) fn read(header: &BatchHeader, batch: &[u8]) -> Option<Marker> {
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

/// One transaction that was aborted, as a fetch response and the index of a segment hold it.
///
/// ```text
/// | version i16 = 0 | producer id i64 | first offset i64 | last offset i64 | last stable i64 |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// Whose it was.
    pub producer_id: ProducerId,
    /// Offset of its first record.
    pub first_offset: Offset,
    /// Offset of its marker.
    pub last_offset: Offset,
    /// The last stable offset right after the marker.
    pub last_stable_offset: Offset,
}

impl AbortedTransaction {
    const BYTES: usize = 34;

    fn encode(&self) -> [u8; AbortedTransaction::BYTES] {
        let mut bytes = [0; AbortedTransaction::BYTES];
        bytes[2..10].copy_from_slice(&self.producer_id.0.to_be_bytes());
        bytes[10..18].copy_from_slice(&self.first_offset.0.to_be_bytes());
        bytes[18..26].copy_from_slice(&self.last_offset.0.to_be_bytes());
        bytes[26..34].copy_from_slice(&self.last_stable_offset.0.to_be_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> AbortedTransaction {
        let at = |from: usize| {
            i64::from_be_bytes(bytes[from..from + 8].try_into().expect("eight bytes"))
        };
        AbortedTransaction {
            producer_id: ProducerId(at(2)),
            first_offset: Offset(at(10)),
            last_offset: Offset(at(18)),
            last_stable_offset: Offset(at(26)),
        }
    }
}

/// Reads the index of aborted transactions of the segment at `base`; without a file there are none.
/// A torn end is left out.
pub(crate) fn load_aborted(
    home: &Home,
    base: Offset,
) -> Result<Vec<AbortedTransaction>, StorageError> {
    let path = home.segment_path(base, TRANSACTION_INDEX);
    match home.disk.read(&path) {
        Ok(bytes) => Ok(bytes
            .chunks_exact(AbortedTransaction::BYTES)
            .map(AbortedTransaction::decode)
            .collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).during("read", &path),
    }
}

/// The aborted transactions that have records between two offsets, by the indexes of the segments at
/// `bases`: the one that holds `from`, and those behind it.
pub(crate) fn aborted_between(
    home: &Home,
    bases: &[Offset],
    from: Offset,
    until: Offset,
) -> Result<Vec<AbortedTransaction>, StorageError> {
    let mut found = Vec::new();
    for base in bases {
        let aborted = load_aborted(home, *base)?;
        let overlaps = |t: &&AbortedTransaction| t.last_offset >= from && t.first_offset < until;
        found.extend(aborted.iter().filter(overlaps));
        // Whatever aborts later began behind a last stable offset that is this far.
        if aborted.iter().any(|t| t.last_stable_offset >= until) {
            break;
        }
    }
    Ok(found)
}

/// Replaces the index of aborted transactions of the segment at `base`, and syncs it; an empty one
/// is removed.
pub(crate) fn store_aborted(
    home: &Home,
    path: &Path,
    aborted: &[AbortedTransaction],
) -> Result<(), StorageError> {
    if aborted.is_empty() {
        return match home.disk.remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).during("remove", path)
            }
            _ => Ok(()),
        };
    }
    let bytes: Vec<u8> = aborted.iter().flat_map(AbortedTransaction::encode).collect();
    let write = || {
        let file = home.disk.open(path, OpenMode::Create)?;
        file.truncate(0)?;
        file.write_all_at(&bytes, 0)?;
        file.sync()
    };
    write().during("write", path)
}

/// Adds an aborted transaction to the index of the segment at `base`; returns the file, which is not
/// synced here.
pub(crate) fn append_aborted(
    home: &Home,
    base: Offset,
    aborted: &AbortedTransaction,
) -> Result<Arc<dyn DiskFile>, StorageError> {
    let path = home.segment_path(base, TRANSACTION_INDEX);
    let write = || {
        let file = home.disk.open(&path, OpenMode::Create)?;
        let end = file.size()? / AbortedTransaction::BYTES as u64;
        file.write_all_at(&aborted.encode(), end * AbortedTransaction::BYTES as u64)?;
        Ok(file)
    };
    write().during("write", &path)
}
