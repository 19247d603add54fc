//! Snappy in the framing of the Java library xerial, which Kafka's Java clients write, and raw, which
//! librdkafka and the Go clients write. We write the framing: every client reads it.
//!
//! ```text
//! | 82 'S' 'N' 'A' 'P' 'P' 'Y' 00 | version i32 = 1 | compatible i32 = 1 |
//! | length i32 | raw snappy of up to 32 KiB | length i32 | raw snappy …
//! ```

use model::Compression;

use crate::DecompressError;

const MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const HEADER_BYTES: usize = 16;
const VERSION: i32 = 1;
const BLOCK_BYTES: usize = 32 << 10;
/// A copy of 64 bytes takes 3 bytes, so no block expands by more than this.
const EXPANSION_MAX: usize = 22;

pub(crate) fn compress(input: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_be_bytes());
    out.extend_from_slice(&VERSION.to_be_bytes());
    let mut encoder = snap::raw::Encoder::new();
    for block in input.chunks(BLOCK_BYTES) {
        let at = out.len();
        out.resize(at + 4 + snap::raw::max_compress_len(block.len()), 0);
        let length = encoder
            .compress(block, &mut out[at + 4..])
            .expect("the buffer has the size that the encoder asks for");
        out[at..at + 4].copy_from_slice(&(length as i32).to_be_bytes());
        out.truncate(at + 4 + length);
    }
}

pub(crate) fn decompress(
    input: &[u8],
    cap_bytes: usize,
    out: &mut Vec<u8>,
) -> Result<(), DecompressError> {
    if !input.starts_with(&MAGIC) {
        return decompress_block(input, cap_bytes, out);
    }
    let mut rest = input;
    while !rest.is_empty() {
        // Streams may be joined: each begins with a header of its own.
        if rest.starts_with(&MAGIC) {
            rest = rest.get(HEADER_BYTES..).ok_or_else(|| malformed("the header is cut"))?;
            continue;
        }
        let (length, after) =
            rest.split_first_chunk().ok_or_else(|| malformed("a block's length is cut"))?;
        let length = usize::try_from(i32::from_be_bytes(*length))
            .map_err(|_| malformed("a block's length is negative"))?;
        let block = after.get(..length).ok_or_else(|| malformed("a block is cut"))?;
        decompress_block(block, cap_bytes, out)?;
        rest = &after[length..];
    }
    Ok(())
}

/// Appends what one block of raw snappy holds.
fn decompress_block(
    block: &[u8],
    cap_bytes: usize,
    out: &mut Vec<u8>,
) -> Result<(), DecompressError> {
    let length = snap::raw::decompress_len(block).map_err(malformed)?;
    if length > block.len().saturating_mul(EXPANSION_MAX) {
        return Err(malformed("a block claims more than snappy can express"));
    }
    let filled = out.len();
    if length > cap_bytes - filled {
        return Err(DecompressError::Bomb { cap_bytes });
    }
    if out.capacity() - filled < length {
        // Doubling, as a vector does by itself, could allocate twice the cap.
        out.reserve_exact(length.max(filled).min(cap_bytes - filled));
    }
    out.resize(filled + length, 0);
    let written =
        snap::raw::Decoder::new().decompress(block, &mut out[filled..]).map_err(malformed)?;
    out.truncate(filled + written);
    Ok(())
}

fn malformed(reason: impl ToString) -> DecompressError {
    DecompressError::malformed(Compression::Snappy, reason)
}
