//! Checks one `.log` file: every batch whole, its checksum right, offsets and leader epochs rising, its
//! records readable.

use std::io;
use std::path::Path;

use compression::records::RecordStream;
use model::BatchHeader;
use model::batch::HEADER_BYTES;
use storage::disk::Disk;

use super::finding::{FileKind, Finding, Tell};
use super::window::Window;

/// Bytes of a record that is shown whole, so that damage cannot fill the memory. What a batch expands to has no bound: it
/// passes by in a window.
const RECORD_BYTES_MAX: usize = 1 << 30;

/// A batch as the checks of indexes need it.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchAt {
    pub(super) position: u64,
    pub(super) base_offset: i64,
    pub(super) last_offset: i64,
    /// The largest timestamp of the segment up to its end.
    pub(super) max_timestamp_so_far: i64,
}

/// One segment as it was found.
#[derive(Debug, Default)]
pub(super) struct Segment {
    /// Its batches in their order, up to the first damage that cannot be passed.
    pub(super) batches: Vec<BatchAt>,
    /// Bytes of them.
    pub(super) whole_bytes: u64,
}

impl Segment {
    /// The offset behind its last record; `base` if it has none.
    pub(super) fn next_offset(&self, base: i64) -> i64 {
        self.batches.last().map_or(base, |batch| batch.last_offset + 1)
    }

    /// The largest timestamp of the batches that end before this offset.
    pub(super) fn max_timestamp_before(&self, offset: i64) -> Option<i64> {
        let count = self.batches.partition_point(|batch| batch.last_offset < offset);
        Some(self.batches[count.checked_sub(1)?].max_timestamp_so_far)
    }

    /// The batch that begins at this position.
    pub(super) fn batch_at(&self, position: u64) -> Option<usize> {
        self.batches.binary_search_by_key(&position, |batch| batch.position).ok()
    }
}

/// What may stand behind the last whole batch.
#[derive(Debug, Clone, Copy)]
pub(super) enum Behind {
    /// Anything: a broker is writing the file, and what is not whole may become so.
    Anything,
    /// Zeros that were written ahead.
    Zeros,
    /// The same, if the segment ends at this offset, where the next one begins.
    ZerosAt(i64),
}

/// Reads a segment and tells what is in it; the records only `with_records`.
pub(super) fn read(
    disk: &dyn Disk,
    path: &Path,
    base: i64,
    with_records: bool,
    behind: Behind,
    tell: &mut Tell<'_>,
) -> io::Result<Segment> {
    let mut window = Window::open(disk, path)?;
    let mut reading = Reading {
        path,
        with_records,
        behind,
        segment: Segment::default(),
        record_count: 0,
        next_offset: base,
        epoch: -1,
        window: Vec::new(),
    };
    tell(path, Finding::Begin(FileKind::Segment));
    while reading.segment.whole_bytes < window.size() && reading.step(&mut window, tell)? {}
    let Reading { segment, record_count, .. } = reading;
    let entry_count = segment.batches.len() as u64;
    tell(path, Finding::End { size_bytes: window.size(), entry_count, record_count });
    Ok(segment)
}

struct Reading<'a> {
    path: &'a Path,
    with_records: bool,
    behind: Behind,
    segment: Segment,
    record_count: u64,
    /// No offset below may come.
    next_offset: i64,
    /// The leader epoch of the batch before.
    epoch: i32,
    /// Where batches are decompressed, a piece at a time.
    window: Vec<u8>,
}

impl Reading<'_> {
    /// Reads one batch; `false` if there is no way past what is there.
    fn step(&mut self, window: &mut Window, tell: &mut Tell<'_>) -> io::Result<bool> {
        let position = self.segment.whole_bytes;
        let left = window.size() - position;
        let header = match BatchHeader::decode(window.at(position, HEADER_BYTES)?) {
            Ok(header) if u64::from(header.size_bytes) <= left => header,
            Ok(header) => {
                let size = header.size_bytes;
                let reason =
                    format!("a batch of {size} bytes has only {left}: the end is torn off");
                self.torn(position, &reason, tell);
                return Ok(false);
            }
            Err(error) => {
                let zeros = is_zero(window, position)?;
                let what = if zeros { "zeros".to_owned() } else { format!("not a batch: {error}") };
                let reason = format!("the last {left} bytes are {what}");
                match zeros && self.may_end_in_zeros() {
                    true => self.unfinished(position, &format!("{reason}, written ahead"), tell),
                    false => self.torn(position, &reason, tell),
                }
                return Ok(false);
            }
        };
        let batch = window.at(position, header.size_bytes as usize)?;
        tell(self.path, Finding::Batch { position, header: &header });
        self.check(position, &header, batch, tell);
        self.segment.whole_bytes += u64::from(header.size_bytes);
        let before = self.segment.batches.last().map_or(i64::MIN, |b| b.max_timestamp_so_far);
        self.segment.batches.push(BatchAt {
            position,
            base_offset: header.base_offset.0,
            last_offset: header.last_offset().0,
            max_timestamp_so_far: before.max(header.max_timestamp.0),
        });
        Ok(true)
    }

    fn check(&mut self, position: u64, header: &BatchHeader, batch: &[u8], tell: &mut Tell<'_>) {
        let (base, epoch) = (header.base_offset.0, header.leader_epoch.0);
        if base < self.next_offset {
            let next = self.next_offset;
            let reason = format!("the batch begins at offset {base}, but {next} or more must come");
            self.damage(position, &reason, tell);
        }
        if epoch < self.epoch {
            let reason = format!("leader epoch {epoch} comes after {}", self.epoch);
            self.damage(position, &reason, tell);
        }
        self.next_offset = self.next_offset.max(header.next_offset().0);
        self.epoch = self.epoch.max(epoch);
        match BatchHeader::decode_checked(batch) {
            Ok(_) => self.check_records(position, header, batch, tell),
            Err(error) => self.damage(position, &error.to_string(), tell),
        }
    }

    fn check_records(
        &mut self,
        position: u64,
        header: &BatchHeader,
        batch: &[u8],
        tell: &mut Tell<'_>,
    ) {
        let mut window = std::mem::take(&mut self.window);
        let records = RecordStream::new(header, batch, u64::MAX, &mut window);
        if let Err(reason) = self.visit(header, records, tell) {
            self.damage(position, &reason, tell);
        }
        self.window = window;
    }

    /// Counts the records and, if they are wanted, tells them. An error says what is wrong with them.
    fn visit(
        &mut self,
        header: &BatchHeader,
        mut records: RecordStream<'_>,
        tell: &mut Tell<'_>,
    ) -> Result<(), String> {
        let mut last_delta = -1;
        while let Some(delta) = self.next(header, last_delta, &mut records, tell) {
            last_delta = delta?;
            self.record_count += 1;
        }
        records.finish().map_err(|error| error.to_string())
    }

    /// The next record's offset delta, which must be above that of the record before.
    fn next(
        &self,
        header: &BatchHeader,
        last_delta: i32,
        records: &mut RecordStream<'_>,
        tell: &mut Tell<'_>,
    ) -> Option<Result<i32, String>> {
        let in_order = |delta: i32| match delta > last_delta && delta <= header.last_offset_delta {
            true => Ok(delta),
            false => Err(format!("a record has offset delta {delta} after {last_delta}")),
        };
        if !self.with_records {
            let head = records.next_head()?.map_err(|error| error.to_string());
            return Some(head.and_then(|head| in_order(head.offset_delta)));
        }
        let record = match records.next_within(RECORD_BYTES_MAX)? {
            Ok((record, _)) => record,
            Err(error) => return Some(Err(error.to_string())),
        };
        let delta = in_order(record.offset_delta);
        if let Ok(delta) = delta {
            let offset = header.base_offset.0 + i64::from(delta);
            let timestamp = timestamp(header, record.timestamp_delta);
            tell(self.path, Finding::Record { offset, timestamp, record });
        }
        Some(delta)
    }

    /// Whether no record is missing if nothing but zeros follows.
    fn may_end_in_zeros(&self) -> bool {
        match self.behind {
            Behind::Anything | Behind::Zeros => true,
            Behind::ZerosAt(next_base) => self.next_offset == next_base,
        }
    }

    /// What follows the last whole batch.
    fn torn(&self, position: u64, reason: &str, tell: &mut Tell<'_>) {
        match self.behind {
            Behind::Anything => self.unfinished(position, reason, tell),
            Behind::Zeros | Behind::ZerosAt(_) => self.damage(position, reason, tell),
        }
    }

    fn unfinished(&self, position: u64, reason: &str, tell: &mut Tell<'_>) {
        tell(self.path, Finding::Unfinished { position: Some(position), reason });
    }

    fn damage(&self, position: u64, reason: &str, tell: &mut Tell<'_>) {
        tell(self.path, Finding::Damage { position: Some(position), reason });
    }
}

fn timestamp(header: &BatchHeader, delta: i64) -> i64 {
    match header.timestamp_type() {
        model::TimestampType::LogAppendTime => header.max_timestamp.0,
        model::TimestampType::CreateTime => header.base_timestamp.0.saturating_add(delta),
    }
}

/// Whether nothing but zeros follows: space that was reserved, or a write that never arrived.
fn is_zero(window: &mut Window, mut position: u64) -> io::Result<bool> {
    while position < window.size() {
        let bytes = window.at(position, 1 << 16)?;
        if bytes.is_empty() || bytes.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        position += bytes.len() as u64;
    }
    Ok(true)
}
