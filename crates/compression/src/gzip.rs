//! Gzip (RFC 1952), through zlib-rs. One member is written, several are read.

use std::io::Write;

use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use model::Compression;

use crate::DecompressError;
use crate::bounded::{End, read_to_end};

pub(crate) fn compress(level: i32, input: &[u8], out: &mut Vec<u8>) {
    let level = u32::try_from(level)
        .map_or_else(|_| flate2::Compression::default(), flate2::Compression::new);
    let mut encoder = GzEncoder::new(out, level);
    encoder.write_all(input).expect("a vector takes all bytes");
    encoder.finish().expect("a vector takes all bytes");
}

pub(crate) fn decompress(
    input: &[u8],
    cap_bytes: usize,
    out: &mut Vec<u8>,
) -> Result<(), DecompressError> {
    match read_to_end(MultiGzDecoder::new(input), cap_bytes, out) {
        Ok(End::Whole) => Ok(()),
        Ok(End::Beyond) => Err(DecompressError::Bomb { cap_bytes }),
        Err(error) => Err(DecompressError::malformed(Compression::Gzip, error)),
    }
}
