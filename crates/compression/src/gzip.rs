//! Gzip (RFC 1952), through zlib-rs. One member is written, several are read; what follows the last one
//! and is no member is left alone, as Java leaves it.

use std::io::{self, Read, Write};

use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use model::Compression;

use crate::DecompressError;
use crate::bounded::{End, read_to_end};

pub(crate) fn compress(level: i32, input: &[u8], out: &mut Vec<u8>) {
    let mut encoder = encoder(level, out);
    encoder.write_all(input).expect("a vector takes all bytes");
    encoder.finish().expect("a vector takes all bytes");
}

/// An encoder of one member.
pub(crate) fn encoder<W: Write>(level: i32, out: W) -> GzEncoder<W> {
    let level = u32::try_from(level)
        .map_or_else(|_| flate2::Compression::default(), flate2::Compression::new);
    GzEncoder::new(out, level)
}

pub(crate) fn decompress(
    input: &[u8],
    cap_bytes: usize,
    out: &mut Vec<u8>,
) -> Result<(), DecompressError> {
    match read_to_end(Members::new(input), cap_bytes, out) {
        Ok(End::Whole) => Ok(()),
        Ok(End::Beyond) => Err(DecompressError::Bomb { cap_bytes }),
        Err(error) => Err(DecompressError::malformed(Compression::Gzip, error)),
    }
}

/// What a member begins with: the magic and the one method there is.
const MEMBER: [u8; 3] = [0x1f, 0x8b, 8];

/// The members of a stream, one after the other.
pub(crate) struct Members<'a> {
    /// `None` behind the last one.
    current: Option<GzDecoder<&'a [u8]>>,
}

impl<'a> Members<'a> {
    pub(crate) fn new(input: &'a [u8]) -> Members<'a> {
        Members { current: Some(GzDecoder::new(input)) }
    }
}

impl Read for Members<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.current {
            let read = member.read(buffer)?;
            if read > 0 {
                return Ok(read);
            }
            // At the end of a member its checksum and size were compared.
            let rest = *member.get_ref();
            self.current = rest.starts_with(&MEMBER).then(|| GzDecoder::new(rest));
        }
        Ok(0)
    }
}
