//! Zstandard (RFC 8878), with one context a thread: a context is large and dear to set up.
//!
//! Frames are decoded in one go into a buffer that holds all of the output. Then no window is
//! needed beside it, so a frame that asks for a window of gigabytes costs nothing, and the cap
//! on the output caps all memory. How large the buffer must be at most, the block headers say.

use std::cell::RefCell;

use model::Compression;
use zstd::zstd_safe::{self, CCtx, CParameter, DCtx};

use crate::DecompressError;

/// The most that one block expands to (RFC 8878, section 3.1.1.2.4).
const BLOCK_BYTES_MAX: usize = 128 << 10;
/// The least that one block takes: its header.
const BLOCK_HEADER_BYTES: usize = 3;
/// `ZSTD_error_dstSize_tooSmall`; the library's functions return its negative.
const OUTPUT_TOO_SMALL: usize = 70;

thread_local! {
    static ENCODER: RefCell<CCtx<'static>> = RefCell::new(CCtx::create());
    static DECODER: RefCell<DCtx<'static>> = RefCell::new(DCtx::create());
}

pub(crate) fn compress(level: i32, input: &[u8], out: &mut Vec<u8>) {
    out.reserve(zstd_safe::compress_bound(input.len()));
    ENCODER.with_borrow_mut(|encoder| {
        encoder
            .set_parameter(CParameter::CompressionLevel(level))
            .expect("the level lies in the library's range");
        encoder.compress2(out, input).expect("the buffer has the size that the library asks for");
    });
}

pub(crate) fn decompress(
    input: &[u8],
    cap_bytes: usize,
    out: &mut Vec<u8>,
) -> Result<(), DecompressError> {
    let bound = output_bound(input)?;
    out.reserve_exact(bound.min(cap_bytes));
    let result = DECODER.with_borrow_mut(|decoder| decoder.decompress(out, input));
    match result {
        // A buffer that is used again may have more room than the cap.
        Ok(written) if written > cap_bytes => Err(DecompressError::Bomb { cap_bytes }),
        Ok(_) => Ok(()),
        Err(code) if code.wrapping_neg() == OUTPUT_TOO_SMALL && bound > cap_bytes => {
            Err(DecompressError::Bomb { cap_bytes })
        }
        Err(code) => Err(malformed(code)),
    }
}

/// Bytes that the output cannot exceed, by what the headers of frames and blocks say and by what
/// so many bytes can say at all.
fn output_bound(input: &[u8]) -> Result<usize, DecompressError> {
    let claimed = zstd_safe::decompress_bound(input).map_err(malformed)?;
    let possible = (input.len() / BLOCK_HEADER_BYTES + 1).saturating_mul(BLOCK_BYTES_MAX);
    Ok(usize::try_from(claimed).unwrap_or(usize::MAX).min(possible))
}

fn malformed(code: usize) -> DecompressError {
    DecompressError::malformed(Compression::Zstd, zstd_safe::get_error_name(code))
}
