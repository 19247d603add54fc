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
    write_header(out);
    let mut encoder = snap::raw::Encoder::new();
    input.chunks(BLOCK_BYTES).for_each(|block| write_block(&mut encoder, block, out));
}

fn write_header(out: &mut Vec<u8>) {
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_be_bytes());
    out.extend_from_slice(&VERSION.to_be_bytes());
}

fn write_block(encoder: &mut snap::raw::Encoder, block: &[u8], out: &mut Vec<u8>) {
    let at = out.len();
    out.resize(at + 4 + snap::raw::max_compress_len(block.len()), 0);
    let length = encoder
        .compress(block, &mut out[at + 4..])
        .expect("the buffer has the size that the encoder asks for");
    out[at..at + 4].copy_from_slice(&(length as i32).to_be_bytes());
    out.truncate(at + 4 + length);
}

/// Writes a stream a block at a time.
pub(crate) struct Encoder {
    encoder: snap::raw::Encoder,
    /// The block that is not full yet.
    block: Vec<u8>,
    out: Vec<u8>,
}

impl Encoder {
    pub(crate) fn new(mut out: Vec<u8>) -> Encoder {
        write_header(&mut out);
        Encoder { encoder: snap::raw::Encoder::new(), block: Vec::with_capacity(BLOCK_BYTES), out }
    }

    pub(crate) fn write(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK_BYTES - self.block.len()));
            self.block.extend_from_slice(now);
            bytes = later;
            if self.block.len() == BLOCK_BYTES {
                self.write_block();
            }
        }
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        if !self.block.is_empty() {
            self.write_block();
        }
        self.out
    }

    fn write_block(&mut self) {
        write_block(&mut self.encoder, &self.block, &mut self.out);
        self.block.clear();
    }
}

pub(crate) fn decompress(
    input: &[u8],
    cap_bytes: usize,
    out: &mut Vec<u8>,
) -> Result<(), DecompressError> {
    let mut blocks = Stored::new(input);
    while let Some(block) = blocks.next()? {
        decompress_block(block, cap_bytes, out)?;
    }
    Ok(())
}

/// The compressed blocks of a stream; a raw stream is one block.
struct Stored<'a> {
    rest: &'a [u8],
    framed: bool,
}

impl<'a> Stored<'a> {
    fn new(input: &'a [u8]) -> Stored<'a> {
        Stored { rest: input, framed: input.starts_with(&MAGIC) }
    }

    fn next(&mut self) -> Result<Option<&'a [u8]>, DecompressError> {
        if !self.framed {
            // Without a frame the end of the bytes is the end of the block, and there is one.
            self.framed = true;
            return Ok(Some(std::mem::take(&mut self.rest)));
        }
        // Streams may be joined: each begins with a header of its own.
        while self.rest.starts_with(&MAGIC) {
            self.rest = self.rest.get(HEADER_BYTES..).ok_or_else(|| malformed("a cut header"))?;
        }
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (length, after) =
            self.rest.split_first_chunk().ok_or_else(|| malformed("a cut block length"))?;
        let length = usize::try_from(i32::from_be_bytes(*length))
            .map_err(|_| malformed("a negative block length"))?;
        let block = after.get(..length).ok_or_else(|| malformed("a cut block"))?;
        self.rest = &after[length..];
        Ok(Some(block))
    }
}

/// What the blocks of a stream hold, one block in memory at a time.
pub(crate) struct Blocks<'a> {
    stored: Stored<'a>,
    block: Vec<u8>,
    /// Bytes of `block` that were read.
    read: usize,
}

impl<'a> Blocks<'a> {
    pub(crate) fn new(input: &'a [u8]) -> Blocks<'a> {
        Blocks { stored: Stored::new(input), block: Vec::new(), read: 0 }
    }

    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, DecompressError> {
        while self.read == self.block.len() {
            self.block.clear();
            self.read = 0;
            let Some(stored) = self.stored.next()? else { return Ok(0) };
            decompress_block(stored, usize::MAX, &mut self.block)?;
        }
        let count = buffer.len().min(self.block.len() - self.read);
        buffer[..count].copy_from_slice(&self.block[self.read..self.read + count]);
        self.read += count;
        Ok(count)
    }
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
