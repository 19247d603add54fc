//! Reading a partition's records from the first to the last: how a coordinator loads its state.

use std::sync::Arc;

use model::Offset;
use model::batch::Batches;
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
    /// What was read is no batch.
    #[error("at offset {offset}: {reason}")]
    Malformed {
        /// Where the chunk began.
        offset: Offset,
        /// What is wrong.
        reason: String,
    },
}

/// Calls `take` with key and value of every record, control records left out.
pub fn for_each_record(
    partition: &Arc<Partition>,
    mut take: impl FnMut(Option<&[u8]>, Option<&[u8]>),
) -> Result<(), ReadLogError> {
    let mut offset = partition.with_log(|log| log.log_start_offset());
    let mut cursor = ReadCursor::default();
    let (mut chunk, mut expanded) = (Vec::new(), Vec::new());
    loop {
        let request = ReadRequest {
            offset,
            cursor,
            max_bytes: CHUNK_BYTES,
            at_least_one: true,
            isolation: Isolation::LogEnd,
            known_epoch: None,
            last_fetched_epoch: None,
        };
        let Some(slice) = partition.read(&request)?.slice else { return Ok(()) };
        cursor = slice.next;
        chunk.resize(slice.size_bytes as usize, 0);
        let read = slice.file.read_at(&mut chunk, slice.position)?;
        chunk.truncate(read);
        let before = offset;
        offset = each_in(&chunk, offset, &mut expanded, &mut take)?;
        if offset <= before {
            let reason = "nothing could be read".to_owned();
            return Err(ReadLogError::Malformed { offset, reason });
        }
    }
}

/// Returns the offset behind the last batch.
fn each_in(
    chunk: &[u8],
    from: Offset,
    expanded: &mut Vec<u8>,
    take: &mut impl FnMut(Option<&[u8]>, Option<&[u8]>),
) -> Result<Offset, ReadLogError> {
    let malformed = |offset, reason: String| ReadLogError::Malformed { offset, reason };
    let mut next = from;
    for batch in Batches::new(chunk) {
        let (header, bytes) = batch.map_err(|error| malformed(next, error.to_string()))?;
        if !header.is_control() {
            let records = compression::records::read(&header, bytes, EXPANDED_BYTES_MAX, expanded)
                .map_err(|error| malformed(next, error.to_string()))?;
            for record in records {
                let record = record.map_err(|error| malformed(next, error.to_string()))?;
                let offset = header.base_offset.plus(i64::from(record.offset_delta));
                if offset >= from {
                    take(record.key, record.value);
                }
            }
        }
        next = header.next_offset();
    }
    Ok(next)
}
