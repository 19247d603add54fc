//! The walk over the records of a batch that a producer sent: every one well-formed, offsets 0, 1, 2…,
//! none too many or too few, and what the topic asks of keys and timestamps. Compressed records pass
//! by in a window of 64 KiB.

use std::cell::RefCell;

use compression::DecompressError;
use compression::records::{RecordHead, RecordStream, RecordsError};
use model::batch::HEADER_BYTES;
use model::record::{Record, Records};
use model::{BatchError, BatchHeader, Timestamp};

use crate::PartitionError;
use crate::check::{RecordError, Refusal, in_range, invalid, out_of_range, takes_any_timestamp};
use crate::settings::Settings;

/// Records whose refusal has words. All that are refused are named, so that a producer can send the others of their
/// batch without them; a name takes no more bytes than the least record.
const WORDS_MAX: usize = 16;

thread_local! {
    /// Where batches are decompressed, a window at a time.
    static WINDOW: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A walk under way.
pub(crate) struct Walker<'a> {
    header: &'a BatchHeader,
    settings: &'a Settings,
    now: Timestamp,
    any_timestamp: bool,
    max_timestamp: Timestamp,
    no_key: Vec<RecordError>,
    bad_time: Vec<RecordError>,
}

impl<'a> Walker<'a> {
    pub(crate) fn new(header: &'a BatchHeader, settings: &'a Settings, now: Timestamp) -> Self {
        Walker {
            header,
            settings,
            now,
            any_timestamp: takes_any_timestamp(settings),
            max_timestamp: Timestamp::NONE,
            no_key: Vec::new(),
            bad_time: Vec::new(),
        }
    }

    /// Walks the records of an uncompressed batch. Returns their largest timestamp.
    pub(crate) fn uncompressed(mut self, payload: &[u8]) -> Result<Timestamp, PartitionError> {
        let mut records = Records::new(payload, self.header.record_count);
        for index in 0..self.header.record_count {
            let record = records.next().expect("the count bounds the walk")?;
            self.take(index, &head_of(&record))?;
        }
        if records.remaining_bytes() > 0 {
            return Err(invalid(RecordsError::Trailing.to_string()));
        }
        self.verdict()
    }

    /// Walks the records of a compressed batch, which may expand to so many bytes. Returns their
    /// largest timestamp.
    pub(crate) fn compressed(
        self,
        batch: &[u8],
        bytes_max: usize,
    ) -> Result<Timestamp, PartitionError> {
        check_portable(self.header, batch)?;
        WINDOW.with_borrow_mut(|window| self.streamed(batch, bytes_max, window))
    }

    fn streamed(
        mut self,
        batch: &[u8],
        bytes_max: usize,
        window: &mut Vec<u8>,
    ) -> Result<Timestamp, PartitionError> {
        let mut stream = RecordStream::new(self.header, batch, bytes_max as u64, window);
        for index in 0..self.header.record_count {
            let head = stream.next_head().expect("the count bounds the walk");
            self.take(index, &head.map_err(refusal)?)?;
        }
        stream.finish().map_err(refusal)?;
        self.verdict()
    }

    /// As [`Walker::compressed`], and leaves all that was decompressed in `expanded`.
    pub(crate) fn expanded(
        self,
        batch: &[u8],
        bytes_max: usize,
        expanded: &mut Vec<u8>,
    ) -> Result<Timestamp, PartitionError> {
        check_portable(self.header, batch)?;
        let codec = self.header.compression();
        compression::decompress(codec, &batch[HEADER_BYTES..], bytes_max, expanded)
            .map_err(|error| refusal(error.into()))?;
        self.uncompressed(expanded)
    }

    #[inline]
    fn take(&mut self, index: i32, head: &RecordHead) -> Result<(), BatchError> {
        if head.offset_delta != index {
            return Err(BatchError::Record { index, reason: "its offset is not the next one" });
        }
        if !head.has_key && self.settings.log.cleanup.compact {
            name(&mut self.no_key, index, || {
                "compacted topics accept no record without a key".to_owned()
            });
        }
        let timestamp = self.header.base_timestamp.plus_ms(head.timestamp_delta);
        self.max_timestamp = self.max_timestamp.max(timestamp);
        if !self.any_timestamp && !in_range(timestamp, self.settings, self.now) {
            let why = || out_of_range(timestamp, self.settings, self.now);
            name(&mut self.bad_time, index, why);
        }
        Ok(())
    }

    fn verdict(self) -> Result<Timestamp, PartitionError> {
        if !self.no_key.is_empty() {
            return Err(Refusal::NoKey(self.no_key).into());
        }
        if !self.bad_time.is_empty() {
            return Err(Refusal::Timestamp(self.bad_time).into());
        }
        Ok(self.max_timestamp)
    }
}

/// Names a record that is refused.
#[cold]
fn name(refused: &mut Vec<RecordError>, index: i32, why: impl FnOnce() -> String) {
    let message = (refused.len() < WORDS_MAX).then(why);
    refused.push(RecordError { index, message });
}

fn head_of(record: &Record<'_>) -> RecordHead {
    RecordHead {
        timestamp_delta: record.timestamp_delta,
        offset_delta: record.offset_delta,
        has_key: record.key.is_some(),
        has_value: record.value.is_some(),
    }
}

/// Kafka takes no batch that its own consumers cannot read.
fn check_portable(header: &BatchHeader, batch: &[u8]) -> Result<(), PartitionError> {
    if compression::is_portable(header.compression(), &batch[HEADER_BYTES..]) {
        return Ok(());
    }
    Err(invalid("the blocks of the lz4 frame are linked, which Java clients cannot read"))
}

fn refusal(error: RecordsError) -> PartitionError {
    match error {
        RecordsError::Decompress(DecompressError::Bomb { cap_bytes }) => {
            Refusal::Expands { max: cap_bytes }.into()
        }
        RecordsError::Batch(error) => error.into(),
        other => invalid(other.to_string()),
    }
}
