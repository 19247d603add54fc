//! Writing a partition's folder anew from the whole batches of another one.

use std::path::Path;
use std::sync::Arc;

use model::batch::{self, HEADER_BYTES};
use model::record::BatchBuilder;
use model::{BatchHeader, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

use super::survey::{Run, Survey};
use super::{Origin, Plan};
use crate::disk::{Disk, OpenMode};
use crate::error::Context;
use crate::names::{LOG, file_name};
use crate::scan::{BatchScan, ScanError};
use crate::{ActiveSegment, Log, LogConfig, Opening, SealedSegment, StorageError};

/// Bytes that one compressed batch of a log of groups may expand to.
pub(super) const EXPANDED_BYTES_MAX: usize = 256 << 20;
/// The smallest bound of a segment's size: many tiny segments become fewer.
const SEGMENT_BYTES_MIN: u64 = 1 << 20;
const TRANSACTIONAL: i16 = 0x10;
const CONTROL: i16 = 0x20;

/// What was written: everything is synced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Built {
    pub(crate) end: Offset,
    pub(crate) epoch: LeaderEpoch,
    pub(crate) sealed: Vec<SealedSegment>,
    pub(crate) active: Option<ActiveSegment>,
    /// Transactions that were open: they were aborted.
    pub(crate) aborted: usize,
}

/// Writes the whole batches of the folder `from`, which `survey` found, into the folder `to`, which
/// must not be there.
///
/// Fails with the first error of the disk, and with [`StorageError::Damaged`] if what is read is no
/// longer what the survey read; then `to` is of no use.
pub(crate) fn build(
    disk: &Arc<dyn Disk>,
    from: &Path,
    to: &Path,
    survey: &Survey,
    plan: &Plan,
) -> Result<Built, StorageError> {
    let config = LogConfig {
        segment_bytes: survey.segment_bytes_max.clamp(SEGMENT_BYTES_MIN, 1 << 30) as u32,
        segment_ms: i64::MAX,
        ..LogConfig::default()
    };
    let first = survey.range.map_or(plan.end_min, |(first, _)| first);
    let opening = Opening {
        log_start_offset: first.min(plan.log_start).max(Offset(0)),
        ..Opening::unknown(plan.now)
    };
    let log = Log::open(Arc::clone(disk), to.to_owned(), Arc::new(config), opening)?;
    let epochs = Epochs::of(survey, plan);
    let mut building = Building { log, plan, epochs, segment: None, changed: Vec::new() };
    for run in &survey.runs {
        building.copy(disk, from, run)?;
    }
    let aborted = match plan.origin {
        Origin::Own { .. } => 0,
        Origin::Foreign => building.abort_open_transactions()?,
    };
    building.fill(survey.end(Offset(0)).max(plan.end_min))?;
    built(building.log, aborted)
}

/// Closes a log that was written, with everything synced.
pub(super) fn built(mut log: Log, aborted: usize) -> Result<Built, StorageError> {
    log.close()?;
    Ok(Built {
        end: log.log_end_offset(),
        epoch: log.latest_epoch(),
        sealed: log.sealed_segments(),
        active: log.settled_active(),
        aborted,
    })
}

/// The leader epochs that the batches get.
enum Epochs {
    /// All of them that of a topic's first leader.
    First,
    /// From each offset on.
    From(Vec<(Offset, LeaderEpoch)>),
}

impl Epochs {
    fn of(survey: &Survey, plan: &Plan) -> Epochs {
        let Origin::Own { epoch_max } = plan.origin else { return Epochs::First };
        let mut most = epoch_max;
        let mut epochs = survey.epochs.clone();
        // Epochs never fall, so none is larger than a later one.
        for (_, epoch) in epochs.iter_mut().rev() {
            most = most.min(*epoch);
            *epoch = most;
        }
        Epochs::From(epochs)
    }

    fn at(&self, offset: Offset) -> LeaderEpoch {
        match self {
            Epochs::First => LeaderEpoch(0),
            Epochs::From(epochs) => {
                let behind = epochs.partition_point(|(from, _)| *from <= offset);
                behind.checked_sub(1).map_or(LeaderEpoch(0), |at| epochs[at].1)
            }
        }
    }
}

struct Building<'a> {
    log: Log,
    plan: &'a Plan,
    epochs: Epochs,
    /// The base of the segment that is being copied.
    segment: Option<Offset>,
    /// A batch that is not copied as it stands.
    changed: Vec<u8>,
}

impl Building<'_> {
    fn copy(&mut self, disk: &Arc<dyn Disk>, from: &Path, run: &Run) -> Result<(), StorageError> {
        if self.segment.replace(run.base).is_some_and(|before| before != run.base)
            && self.log.size_bytes() > 0
        {
            // What retention removes at once there is removed at once here.
            self.log.roll(self.log.log_end_offset(), self.plan.now)?;
        }
        let path = from.join(file_name(run.base, LOG));
        let file = disk.open(&path, OpenMode::Read).during("open", &path)?;
        let mut scan = BatchScan::new(&*file, run.from, run.to);
        loop {
            let position = scan.position();
            match scan.next() {
                Ok(None) => return Ok(()),
                Ok(Some((_, header, bytes))) => {
                    if header.next_offset() > self.plan.log_start {
                        self.take(header, bytes)?;
                    }
                }
                Err(ScanError::Io(error)) => return Err(error).during("read", &path),
                Err(ScanError::Batch(error)) => {
                    let end = self.log.log_end_offset();
                    return Err(StorageError::batch(&path, position, end, error));
                }
            }
        }
    }

    fn take(&mut self, header: BatchHeader, bytes: &[u8]) -> Result<(), StorageError> {
        let epoch = self.epochs.at(header.base_offset);
        self.changed.clear();
        self.changed.extend_from_slice(bytes);
        let producer = self.plan.origin.producer(header.producer_id);
        if producer != header.producer_id {
            let found = BatchHeader::decode(&self.changed).expect("the batch was checked");
            BatchHeader { producer_id: producer, ..found }.encode(&mut self.changed);
            batch::write_checksum(&mut self.changed);
        }
        batch::stamp(&mut self.changed, header.base_offset, epoch);
        let header = BatchHeader::decode(&self.changed).expect("the batch was checked");
        self.log.append(&self.changed, &[header], self.plan.now)
    }

    /// Nobody can end them any more: their coordinator is that of another cluster, and readers of
    /// committed records would wait for ever.
    fn abort_open_transactions(&mut self) -> Result<usize, StorageError> {
        let open: Vec<_> =
            self.log.producers().filter(|known| known.transaction_start.is_some()).collect();
        for producer in &open {
            let coordinator_epoch = producer.coordinator_epoch.max(0);
            let end = self.log.log_end_offset();
            let marker =
                abort(producer.producer_id, producer.epoch, coordinator_epoch, end, self.plan.now);
            let header = BatchHeader::decode(&marker).expect("a marker is a batch");
            self.log.append(&marker, &[header], self.plan.now)?;
        }
        Ok(open.len())
    }

    /// Lets the log end at `end`, if it ends before: by batches without records, as compaction leaves
    /// them. No offset that a record had is given to another one.
    fn fill(&mut self, end: Offset) -> Result<(), StorageError> {
        while self.log.log_end_offset() < end {
            let from = self.log.log_end_offset();
            let count = (end.0 - from.0).min(i64::from(i32::MAX));
            let empty =
                without_records(from, count as i32, self.log.latest_epoch().max(LeaderEpoch(0)));
            let header = BatchHeader::decode(&empty).expect("an empty batch is a batch");
            self.log.append(&empty, &[header], self.plan.now)?;
        }
        Ok(())
    }
}

fn abort(
    id: ProducerId,
    epoch: ProducerEpoch,
    coordinator_epoch: i32,
    offset: Offset,
    now: Timestamp,
) -> Vec<u8> {
    let mut marker = BatchBuilder::new()
        .producer(id, epoch, Sequence::NONE)
        .placed(offset, LeaderEpoch(0))
        .flags(TRANSACTIONAL | CONTROL);
    let mut value = vec![0; 2];
    value.extend_from_slice(&coordinator_epoch.to_be_bytes());
    // Version 0 of both, and of kind 0: aborted.
    marker.add(now, Some(&[0; 4]), Some(&value));
    marker.finish()
}

fn without_records(from: Offset, count: i32, epoch: LeaderEpoch) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    let header = BatchHeader {
        base_offset: from,
        size_bytes: HEADER_BYTES as u32,
        leader_epoch: epoch,
        crc: 0,
        attributes: 0,
        last_offset_delta: count - 1,
        base_timestamp: Timestamp::NONE,
        max_timestamp: Timestamp::NONE,
        producer_id: ProducerId::NONE,
        producer_epoch: ProducerEpoch::NONE,
        base_sequence: Sequence::NONE,
        record_count: 0,
    };
    header.encode(&mut bytes);
    batch::write_checksum(&mut bytes);
    bytes
}
