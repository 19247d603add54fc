//! A codec's bytes, decompressed a piece at a time: the memory that this takes does not depend on
//! what the bytes expand to.

use std::io::{self, Read};

use model::Compression;

use crate::{DecompressError, gzip, lz4, snappy, zstd};

/// Reads what compressed bytes were before they were compressed, front to end.
///
/// Memory, in bytes, beside the caller's buffer: gzip 32 KiB; lz4 two blocks of at most 4 MiB (twice
/// that if blocks are linked); zstd the frame's window, of which only what was written is touched and
/// which may be at most 128 MiB (as in Kafka); snappy one block, which a raw stream consists of: at
/// most 22 times the compressed bytes.
pub struct Decoder<'a> {
    codec: Compression,
    source: Source<'a>,
}

enum Source<'a> {
    None(&'a [u8]),
    Gzip(Box<gzip::Members<'a>>),
    Snappy(snappy::Blocks<'a>),
    Lz4(Box<lz4::OneFrame<'a>>),
    Zstd(zstd::Frames<'a>),
}

impl<'a> Decoder<'a> {
    /// A decoder at the front of `input`. Nothing is decompressed yet.
    pub fn new(codec: Compression, input: &'a [u8]) -> Decoder<'a> {
        let source = match codec {
            Compression::None => Source::None(input),
            Compression::Gzip => Source::Gzip(Box::new(gzip::Members::new(input))),
            Compression::Snappy => Source::Snappy(snappy::Blocks::new(input)),
            Compression::Lz4 => Source::Lz4(Box::new(lz4::OneFrame::new(input))),
            Compression::Zstd => Source::Zstd(zstd::Frames::new(input)),
        };
        Decoder { codec, source }
    }

    /// Writes the next bytes to the front of `buffer`, which is not empty, and returns how many; 0 at
    /// the end. After an error the decoder is of no more use.
    ///
    /// Errors: [`DecompressError::Malformed`].
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize, DecompressError> {
        loop {
            let result = match &mut self.source {
                Source::None(rest) => rest.read(buffer),
                Source::Gzip(members) => members.read(buffer),
                Source::Snappy(blocks) => return blocks.read(buffer),
                Source::Lz4(frame) => frame.read(buffer),
                Source::Zstd(frames) => return frames.read(buffer),
            };
            match result {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => {
                    return result.map_err(|e| DecompressError::malformed(self.codec, e));
                }
            }
        }
    }
}
