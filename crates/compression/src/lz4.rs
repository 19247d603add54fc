//! LZ4 frames. Written as every Kafka client reads them: blocks of 64 KiB that do not refer to each
//! other, no checksum of blocks or content, no content size. Read with all of those.

use std::io::{self, Read, Write};

use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};
use model::Compression;

use crate::DecompressError;
use crate::bounded::{End, read_to_end};

/// The only frame format that clients send; others of the family begin differently.
const MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];

pub(crate) fn compress(input: &[u8], out: &mut Vec<u8>) {
    let mut encoder = encoder(out);
    encoder.write_all(input).expect("a vector takes all bytes");
    encoder.finish().expect("a vector takes all bytes");
}

/// An encoder of one frame.
pub(crate) fn encoder<W: Write>(out: W) -> FrameEncoder<W> {
    let form = FrameInfo::new().block_mode(BlockMode::Independent).block_size(BlockSize::Max64KB);
    FrameEncoder::with_frame_info(form, out)
}

pub(crate) fn decompress(
    input: &[u8],
    cap_bytes: usize,
    out: &mut Vec<u8>,
) -> Result<(), DecompressError> {
    match read_to_end(OneFrame::new(input), cap_bytes, out) {
        Ok(End::Whole) => Ok(()),
        Ok(End::Beyond) => Err(DecompressError::Bomb { cap_bytes }),
        Err(error) => Err(DecompressError::malformed(Compression::Lz4, error)),
    }
}

/// Whether the blocks of a frame refer to those before them. Java clients cannot read such a frame,
/// so Kafka does not take one; it is read here if it is stored already.
pub(crate) fn blocks_are_linked(input: &[u8]) -> bool {
    const INDEPENDENT: u8 = 0x20;
    input.starts_with(&MAGIC)
        && input.get(MAGIC.len()).is_some_and(|flags| flags & INDEPENDENT == 0)
}

/// A frame up to its end mark. What follows it is nobody's: Kafka does not read it either.
pub(crate) struct OneFrame<'a> {
    decoder: FrameDecoder<Whole<'a>>,
    has_magic: bool,
    ended: bool,
}

impl<'a> OneFrame<'a> {
    pub(crate) fn new(input: &'a [u8]) -> OneFrame<'a> {
        let has_magic = input.starts_with(&MAGIC);
        OneFrame { decoder: FrameDecoder::new(Whole(input)), has_magic, ended: false }
    }
}

impl Read for OneFrame<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.ended {
            return Ok(0);
        }
        // The decoder would skip frames that are not meant for it; Kafka does not.
        if !self.has_magic {
            return Err(io::Error::other("the frame begins without its magic"));
        }
        let read = self.decoder.read(buffer)?;
        self.ended = read == 0;
        Ok(read)
    }
}

/// Bytes that end with an error, because the decoder takes the end of its input for the end of the
/// frame: without this, records that were cut off would not be missed.
struct Whole<'a>(&'a [u8]);

impl Read for Whole<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.0.is_empty() {
            return Err(io::Error::other("the frame has no end mark"));
        }
        self.0.read(buffer)
    }
}
