//! Reading a partition's records from the first to the last: how a coordinator loads its state.
//!
//! Every batch is checked: its checksum, that it stands behind the one before, and that the last one
//! ends where the log does. What cannot be read ends the reading with an error; nothing is skipped.

use std::sync::Arc;

use model::batch::Batches;
use model::{BatchHeader, Offset};
use partition::{Isolation, Partition, PartitionError, ReadRequest};
use storage::ReadCursor;

/// Bytes read at once; a larger batch is read whole.
const CHUNK_BYTES: u32 = 1 << 20;
/// Bytes that one compressed batch may expand to.
const EXPANDED_BYTES_MAX: usize = 256 << 20;

/// Why the records could not be read to the end.
#[derive(Debug, thiserror::Error)]
pub enum ReadLogError {
    /// The partition refused.
    #[error(transparent)]
    Partition(#[from] PartitionError),
    /// The file could not be read.
    #[error("cannot read a segment: {0}")]
    Io(#[from] std::io::Error),
    /// What was read is not what was written.
    #[error("the log is damaged at offset {offset}: {reason}")]
    Malformed {
        /// The offset that was due.
        offset: Offset,
        /// What is wrong.
        reason: String,
    },
}

/// Calls `take` with key and value of every record, control records left out. Returns the log's end at
/// the beginning, which is the end of what was read. Fails with the first record that `take` refuses.
pub fn for_each_record<E: std::fmt::Display>(
    partition: &Arc<Partition>,
    mut take: impl FnMut(Option<&[u8]>, Option<&[u8]>) -> Result<(), E>,
) -> Result<Offset, ReadLogError> {
    let (start, end) = partition.with_log(|log| (log.log_start_offset(), log.log_end_offset()));
    let mut offset = start;
    let mut cursor = ReadCursor::default();
    let (mut chunk, mut expanded) = (Vec::new(), Vec::new());
    while offset < end {
        let request = ReadRequest {
            offset,
            cursor,
            max_bytes: CHUNK_BYTES,
            at_least_one: true,
            isolation: Isolation::LogEnd,
            known_epoch: None,
            last_fetched_epoch: None,
        };
        let Some(slice) = partition.read(&request)?.slice else {
            let reason = format!("nothing stands there, and the log ends at {end}");
            return Err(ReadLogError::Malformed { offset, reason });
        };
        cursor = slice.next;
        chunk.resize(slice.size_bytes as usize, 0);
        let read = slice.file.read_at(&mut chunk, slice.position)?;
        chunk.truncate(read);
        let before = offset;
        let due = Due { offset, end, is_log_start: offset == start };
        offset = each_in(&chunk, &due, &mut expanded, &mut take)?;
        if offset <= before {
            let reason = "nothing could be read".to_owned();
            return Err(ReadLogError::Malformed { offset, reason });
        }
    }
    Ok(end)
}

/// What a chunk must hold.
struct Due {
    /// The first offset that was not taken yet.
    offset: Offset,
    /// The log's end.
    end: Offset,
    /// Whether the offset is the log's start, which may lie within a batch.
    is_log_start: bool,
}

/// Takes the records of a chunk. Returns the offset behind the last batch.
fn each_in<E: std::fmt::Display>(
    chunk: &[u8],
    due: &Due,
    expanded: &mut Vec<u8>,
    take: &mut impl FnMut(Option<&[u8]>, Option<&[u8]>) -> Result<(), E>,
) -> Result<Offset, ReadLogError> {
    let mut next = due.offset;
    for batch in Batches::new(chunk) {
        let malformed = |reason: String| ReadLogError::Malformed { offset: next, reason };
        let (_, bytes) = batch.map_err(|error| malformed(error.to_string()))?;
        let header =
            BatchHeader::decode_checked(bytes).map_err(|error| malformed(error.to_string()))?;
        let may_begin_earlier = due.is_log_start && next == due.offset;
        let goes_back = header.base_offset < next && !may_begin_earlier;
        if goes_back || header.next_offset() <= next || header.next_offset() > due.end {
            let (first, last, end) = (header.base_offset, header.last_offset(), due.end);
            let reason =
                format!("a batch there has offsets {first} to {last}, and the log ends at {end}");
            return Err(malformed(reason));
        }
        if !header.is_control() {
            let records = compression::records::read(&header, bytes, EXPANDED_BYTES_MAX, expanded)
                .map_err(|error| malformed(error.to_string()))?;
            for record in records {
                let record = record.map_err(|error| malformed(error.to_string()))?;
                let offset = header.base_offset.plus(i64::from(record.offset_delta));
                if offset >= due.offset {
                    let taken = take(record.key, record.value);
                    taken.map_err(|error| ReadLogError::Malformed {
                        offset,
                        reason: error.to_string(),
                    })?;
                }
            }
        }
        next = header.next_offset();
    }
    Ok(next)
}
