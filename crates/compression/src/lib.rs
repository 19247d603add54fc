//! The four codecs of record batches, with bounds on what they may expand to.
//!
//! The broker stores batches as producers compressed them, but looks into them before it takes them,
//! in compaction and in look-ups by time: record by record, by [`records::RecordStream`], in memory
//! that does not grow with what a batch expands to. `compression.type` other than the producer's and
//! our own clients decompress a batch as a whole: [`decompress`].
//!
//! Not here: what compressed bytes mean; only [`records`] knows that they are records of a batch.
//!
//! [`decompress`] takes a cap in bytes. Whoever sends a bomb gets [`DecompressError::Bomb`], and no
//! more than the cap and one block of the codec (at most 4 MiB; 8 MiB if lz4 blocks are linked) was
//! allocated by then. Malformed bytes are [`DecompressError::Malformed`], never a panic.

mod bounded;
mod decoder;
mod encoder;
mod gzip;
mod level;
mod lz4;
pub mod records;
mod snappy;
mod zstd;

pub use decoder::Decoder;
pub use encoder::Encoder;
pub use level::{Levels, levels};
pub use model::Compression;

/// Why bytes cannot be decompressed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecompressError {
    /// There is more in the bytes than the caller accepts.
    #[error("the records expand to more than {cap_bytes} bytes")]
    Bomb {
        /// What the caller accepts, in bytes.
        cap_bytes: usize,
    },
    /// The bytes are not what the codec writes.
    #[error("{} bytes are malformed: {reason}", codec.name())]
    Malformed {
        /// The codec that was to read them.
        codec: Compression,
        /// What is wrong with them.
        reason: String,
    },
}

impl DecompressError {
    fn malformed(codec: Compression, reason: impl ToString) -> DecompressError {
        DecompressError::Malformed { codec, reason: reason.to_string() }
    }
}

/// Replaces the content of `out` by `input` compressed. `level` is the codec's own measure
/// ([`levels`]), `None` its default; a level outside the range is taken for the range's nearest end.
///
/// lz4 has one speed here whatever the level; snappy has no levels at all.
pub fn compress(codec: Compression, level: Option<i32>, input: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let level = levels(codec).map_or(0, |range| range.nearest(level));
    match codec {
        Compression::None => out.extend_from_slice(input),
        Compression::Gzip => gzip::compress(level, input, out),
        Compression::Snappy => snappy::compress(input, out),
        Compression::Lz4 => lz4::compress(input, out),
        Compression::Zstd => zstd::compress(level, input, out),
    }
}

/// Whether every client can read these compressed bytes, if the codec can read them at all: Java's
/// reader of lz4 knows no frame whose blocks refer to each other.
pub fn is_portable(codec: Compression, input: &[u8]) -> bool {
    codec != Compression::Lz4 || !lz4::blocks_are_linked(input)
}

/// Replaces the content of `out` by what `input` was before it was compressed, if that is at most
/// `cap_bytes` bytes. After an error the content of `out` means nothing.
pub fn decompress(
    codec: Compression,
    input: &[u8],
    cap_bytes: usize,
    out: &mut Vec<u8>,
) -> Result<(), DecompressError> {
    out.clear();
    match codec {
        Compression::None if input.len() > cap_bytes => Err(DecompressError::Bomb { cap_bytes }),
        Compression::None => {
            out.extend_from_slice(input);
            Ok(())
        }
        Compression::Gzip => gzip::decompress(input, cap_bytes, out),
        Compression::Snappy => snappy::decompress(input, cap_bytes, out),
        Compression::Lz4 => lz4::decompress(input, cap_bytes, out),
        Compression::Zstd => zstd::decompress(input, cap_bytes, out),
    }
}
