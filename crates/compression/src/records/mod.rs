//! The records of a batch whatever its codec: where bytes that were compressed become records.

mod stream;

use model::batch::HEADER_BYTES;
use model::record::Records;
use model::{BatchHeader, Compression};

pub use stream::{RecordHead, RecordStream, RecordsError};

use crate::{DecompressError, decompress};

/// The records of `batch`, which is whole and has this header; decompressed into `buffer` if they
/// are compressed, straight from `batch` if not. `buffer` is the caller's to use again: in the
/// steady state nothing is allocated.
///
/// `cap_bytes` bounds what a compressed batch may expand to.
pub fn read<'a>(
    header: &BatchHeader,
    batch: &'a [u8],
    cap_bytes: usize,
    buffer: &'a mut Vec<u8>,
) -> Result<Records<'a>, DecompressError> {
    let size = header.size_bytes as usize;
    assert!((HEADER_BYTES..=batch.len()).contains(&size), "the caller holds the whole batch");
    let payload = &batch[HEADER_BYTES..size];
    let uncompressed = match header.compression() {
        Compression::None => payload,
        codec => {
            decompress(codec, payload, cap_bytes, buffer)?;
            buffer.as_slice()
        }
    };
    Ok(Records::new(uncompressed, header.record_count))
}
