//! Storing a batch with the topic's codec instead of the producer's (`compression.type`).

use model::batch::{self, HEADER_BYTES};
use model::{BatchHeader, Compression};

use crate::check::Refusal;
use crate::settings::{CompressionRule, Settings};

/// A compressed batch may expand to this many times `max.message.bytes`, not further.
const EXPANSION_MAX: usize = 64;

/// Bytes that a batch of this topic may expand to.
pub(crate) fn expanded_bytes_max(settings: &Settings) -> usize {
    (settings.log.max_message_bytes as usize).saturating_mul(EXPANSION_MAX)
}

/// Another codec that the topic asks for, if it is not the batch's.
fn wanted(header: &BatchHeader, settings: &Settings) -> Option<(Compression, Option<i32>)> {
    match settings.compression {
        CompressionRule::Codec(codec, level) if codec != header.compression() => {
            Some((codec, level))
        }
        _ => None,
    }
}

/// The batch stored anew with the topic's codec, or `None` if it is stored as it came.
pub(crate) fn recompress(
    bytes: &[u8],
    header: &BatchHeader,
    settings: &Settings,
) -> Result<Option<Vec<u8>>, Refusal> {
    let Some((codec, level)) = wanted(header, settings) else { return Ok(None) };
    let stored = &bytes[HEADER_BYTES..];
    let mut records = Vec::new();
    match header.compression() {
        Compression::None => records.extend_from_slice(stored),
        from => compression::decompress(from, stored, expanded_bytes_max(settings), &mut records)
            .map_err(|error| Refusal::Invalid(error.to_string()))?,
    }
    let mut out = bytes[..HEADER_BYTES].to_vec();
    match codec {
        Compression::None => out.append(&mut records),
        codec => {
            let mut compressed = Vec::new();
            compression::compress(codec, level, &records, &mut compressed);
            out.append(&mut compressed);
        }
    }
    let rewritten = BatchHeader {
        size_bytes: out.len() as u32,
        attributes: (header.attributes & !0x07) | codec.code(),
        ..*header
    };
    rewritten.encode(&mut out);
    batch::write_checksum(&mut out);
    Ok(Some(out))
}
