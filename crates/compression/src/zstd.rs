//! Zstandard (RFC 8878), with one context a thread: a context is large and dear to set up.
//!
//! [`decompress`] decodes frames in one go into a buffer that holds all of the output. Then no window
//! is needed beside it, so a frame that asks for a window of gigabytes costs nothing, and the cap
//! on the output caps all memory. How large the buffer must be at most, the block headers say.
//! [`Frames`] decodes a piece at a time, with a window of at most 128 MiB (the library's bound, and
//! Kafka's), of which only what was written is ever touched.

use std::cell::{Cell, RefCell};

use model::Compression;
use zstd::zstd_safe::{self, CCtx, CParameter, DCtx, InBuffer, OutBuffer, ResetDirective};

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
    /// One that decodes in pieces and is not in use.
    static STREAMING: Cell<Option<DCtx<'static>>> = const { Cell::new(None) };
}

/// A streaming decoder that grew beyond this is not kept: its window was an unusual one.
const KEPT_BYTES_MAX: usize = 8 << 20;

pub(crate) fn compress(level: i32, input: &[u8], out: &mut Vec<u8>) {
    out.reserve(zstd_safe::compress_bound(input.len()));
    ENCODER.with_borrow_mut(|encoder| {
        encoder
            .set_parameter(CParameter::CompressionLevel(level))
            .expect("the level lies in the library's range");
        encoder.compress2(out, input).expect("the buffer has the size that the library asks for");
    });
}

/// An encoder of one frame that does not say how much is in it.
pub(crate) fn encoder(level: i32, out: Vec<u8>) -> zstd::stream::write::Encoder<'static, Vec<u8>> {
    zstd::stream::write::Encoder::new(out, level).expect("the level lies in the library's range")
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

/// What the frames of some bytes hold, one after the other; skippable frames hold nothing.
pub(crate) struct Frames<'a> {
    input: InBuffer<'a>,
    /// Taken out when dropped, to be used again.
    decoder: Option<DCtx<'static>>,
    /// Whether the decoder stands between two frames.
    between: bool,
}

impl<'a> Frames<'a> {
    pub(crate) fn new(input: &'a [u8]) -> Frames<'a> {
        let decoder = STREAMING.take().unwrap_or_else(DCtx::create);
        // Bytes without a frame in them are not an empty stream.
        Frames { input: InBuffer { src: input, pos: 0 }, decoder: Some(decoder), between: false }
    }

    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, DecompressError> {
        let decoder = self.decoder.as_mut().expect("taken when dropped");
        loop {
            let at_end = self.input.pos == self.input.src.len();
            if at_end && self.between {
                return Ok(0);
            }
            let mut output = OutBuffer::around(&mut *buffer);
            let wanted =
                decoder.decompress_stream(&mut output, &mut self.input).map_err(malformed)?;
            self.between = wanted == 0;
            match output.pos() {
                0 if at_end && !self.between => {
                    let reason = "the last frame is cut";
                    return Err(DecompressError::malformed(Compression::Zstd, reason));
                }
                0 => continue,
                written => return Ok(written),
            }
        }
    }
}

impl Drop for Frames<'_> {
    fn drop(&mut self) {
        let Some(mut decoder) = self.decoder.take() else { return };
        if decoder.sizeof() <= KEPT_BYTES_MAX && decoder.reset(ResetDirective::SessionOnly).is_ok()
        {
            STREAMING.set(Some(decoder));
        }
    }
}

fn malformed(code: usize) -> DecompressError {
    DecompressError::malformed(Compression::Zstd, zstd_safe::get_error_name(code))
}
