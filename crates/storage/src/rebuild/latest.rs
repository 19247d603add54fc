//! The records of a compacted partition that count: of each key the newest one, as a reader of committed records
//! finds it; and a partition's folder written from such records.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use model::record::BatchBuilder;
use model::{BatchHeader, LeaderEpoch, Offset, ProducerId, Timestamp};

use super::build::{Built, EXPANDED_BYTES_MAX, built};
use super::survey::Survey;
use crate::disk::{Disk, OpenMode};
use crate::error::Context;
use crate::names::{LOG, file_name};
use crate::producers::transactions::Marker;
use crate::scan::{BatchScan, ScanError};
use crate::{Log, LogConfig, Opening, StorageError};

/// Bytes of keys and values in a batch that is written.
const BATCH_BYTES: usize = 64 << 10;

/// The newest record of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatestRecord {
    /// Log offset of the record.
    pub offset: Offset,
    /// Timestamp of the record.
    pub timestamp: Timestamp,
    /// Value; `None` for a tombstone.
    pub value: Option<Vec<u8>>,
}

/// Of each key the newest record. Records of aborted and open transactions do not count, nor do records
/// without a key.
pub type LatestRecords = BTreeMap<Vec<u8>, LatestRecord>;

/// Reads the whole batches of the folder `from`, which `survey` found, from `start` on.
pub(crate) fn latest(
    disk: &dyn Disk,
    from: &Path,
    survey: &Survey,
    start: Offset,
) -> Result<LatestRecords, StorageError> {
    let mut reading = Reading { start, ..Reading::default() };
    for run in &survey.runs {
        let path = from.join(file_name(run.base, LOG));
        let file = disk.open(&path, OpenMode::Read).during("open", &path)?;
        let mut scan = BatchScan::new(&*file, run.from, run.to);
        loop {
            let position = scan.position();
            match scan.next() {
                Ok(None) => break,
                Ok(Some((_, header, bytes))) => reading.take(&header, bytes).map_err(|reason| {
                    StorageError::damaged(&path, position, header.base_offset, reason)
                })?,
                Err(ScanError::Io(error)) => return Err(error).during("read", &path),
                Err(ScanError::Batch(error)) => {
                    return Err(StorageError::batch(&path, position, start, error));
                }
            }
        }
    }
    Ok(reading.records)
}

#[derive(Default)]
struct Reading {
    start: Offset,
    records: LatestRecords,
    /// Records of transactions that no marker has ended yet.
    open: BTreeMap<ProducerId, Vec<(Vec<u8>, LatestRecord)>>,
}

impl Reading {
    fn take(&mut self, header: &BatchHeader, bytes: &[u8]) -> Result<(), String> {
        if header.is_control() {
            let Some(marker) = Marker::read(header, bytes) else { return Ok(()) };
            let ended = self.open.remove(&header.producer_id).unwrap_or_default();
            if !marker.aborts {
                ended.into_iter().for_each(|(key, record)| self.keep(key, record));
            }
            return Ok(());
        }
        let mut expanded = Vec::new();
        let records = compression::records::read(header, bytes, EXPANDED_BYTES_MAX, &mut expanded)
            .map_err(|error| error.to_string())?;
        for record in records {
            let record = record.map_err(|error| error.to_string())?;
            let offset = header.base_offset.plus(i64::from(record.offset_delta));
            let Some(key) = record.key.filter(|_| offset >= self.start) else { continue };
            let timestamp = header.base_timestamp.plus_ms(record.timestamp_delta);
            let value = record.value.map(<[u8]>::to_vec);
            let found = LatestRecord { offset, timestamp, value };
            match header.is_transactional() {
                true => {
                    let open = self.open.entry(header.producer_id).or_default();
                    open.push((key.to_vec(), found));
                }
                false => self.keep(key.to_vec(), found),
            }
        }
        Ok(())
    }

    /// The record with the greater log offset counts, whichever transaction ended first.
    fn keep(&mut self, key: Vec<u8>, record: LatestRecord) {
        match self.records.entry(key) {
            std::collections::btree_map::Entry::Vacant(vacant) => drop(vacant.insert(record)),
            std::collections::btree_map::Entry::Occupied(mut known) => {
                if known.get().offset < record.offset {
                    known.insert(record);
                }
            }
        }
    }
}

/// A record that is to be written: timestamp, key and value.
pub type KeyedRecord = (Timestamp, Vec<u8>, Vec<u8>);

/// Writes these records into the folder `to`, which must not exist, in the first leader epoch of a topic.
/// Everything is synced.
pub(crate) fn write(
    disk: &Arc<dyn Disk>,
    to: &Path,
    records: &[KeyedRecord],
    now: Timestamp,
) -> Result<Built, StorageError> {
    let config = LogConfig { segment_ms: i64::MAX, ..LogConfig::default() };
    let opening = Opening { log_start_offset: Offset(0), ..Opening::unknown(now) };
    let mut log = Log::open(Arc::clone(disk), to.to_owned(), Arc::new(config), opening)?;
    let mut rest = records;
    while !rest.is_empty() {
        let mut bytes = 0;
        let is_within = |(_, key, value): &&KeyedRecord| {
            bytes += key.len() + value.len();
            bytes <= BATCH_BYTES
        };
        let count = rest.iter().take_while(is_within).count().max(1);
        let (batch, behind) = rest.split_at(count);
        let mut builder = BatchBuilder::new().placed(log.log_end_offset(), LeaderEpoch(0));
        for (timestamp, key, value) in batch {
            builder.add(*timestamp, Some(key), Some(value));
        }
        let batch = builder.finish();
        let header = BatchHeader::decode(&batch).expect("a builder makes batches");
        log.append(&batch, &[header], now)?;
        rest = behind;
    }
    built(log, 0)
}
