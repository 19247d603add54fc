//! Storing a batch with the topic's codec instead of the producer's (`compression.type`).

use model::batch::{self, HEADER_BYTES};
use model::{BatchHeader, Compression};

use crate::check::CheckedBatch;
use crate::settings::{CompressionRule, Settings};

/// Another codec that the topic asks for, if it is not the batch's.
pub(crate) fn wanted(
    header: &BatchHeader,
    settings: &Settings,
) -> Option<(Compression, Option<i32>)> {
    match settings.compression {
        CompressionRule::Codec(codec, level) if codec != header.compression() => {
            Some((codec, level))
        }
        _ => None,
    }
}

/// The batch stored anew with the topic's codec, or `None` if it is stored as it came.
pub(crate) fn recompress(
    batch: &[u8],
    checked: &CheckedBatch,
    settings: &Settings,
) -> Option<Vec<u8>> {
    let header = &checked.header;
    let (codec, level) = wanted(header, settings)?;
    let records = match (&checked.expanded, header.compression()) {
        (Some(expanded), _) => expanded,
        (None, Compression::None) => &batch[HEADER_BYTES..],
        // A coordinator's, which was not looked into: it is stored as it came.
        (None, _) => return None,
    };
    let mut out = batch[..HEADER_BYTES].to_vec();
    match codec {
        Compression::None => out.extend_from_slice(records),
        codec => {
            let mut compressed = Vec::new();
            compression::compress(codec, level, records, &mut compressed);
            out.append(&mut compressed);
        }
    }
    let codec_bits = header.compression().code();
    let rewritten = BatchHeader {
        size_bytes: out.len() as u32,
        attributes: header.attributes_of_producer() & !codec_bits | codec.code(),
        ..*header
    };
    rewritten.encode(&mut out);
    batch::write_checksum(&mut out);
    Some(out)
}
