//! Compressing a piece at a time: the memory that this takes does not depend on how much is compressed.

use std::io::Write;

use flate2::write::GzEncoder;
use lz4_flex::frame::FrameEncoder;
use model::Compression;

use crate::{gzip, levels, lz4, snappy, zstd};

/// Compresses bytes behind those that a vector holds already.
pub struct Encoder(Sink);

enum Sink {
    None(Vec<u8>),
    Gzip(Box<GzEncoder<Vec<u8>>>),
    Snappy(Box<snappy::Encoder>),
    Lz4(Box<FrameEncoder<Vec<u8>>>),
    Zstd(Box<::zstd::stream::write::Encoder<'static, Vec<u8>>>),
}

impl Encoder {
    /// An encoder that appends to `out`. `level` is as in [`crate::compress`].
    pub fn new(codec: Compression, level: Option<i32>, out: Vec<u8>) -> Encoder {
        let level = levels(codec).map_or(0, |range| range.nearest(level));
        Encoder(match codec {
            Compression::None => Sink::None(out),
            Compression::Gzip => Sink::Gzip(Box::new(gzip::encoder(level, out))),
            Compression::Snappy => Sink::Snappy(Box::new(snappy::Encoder::new(out))),
            Compression::Lz4 => Sink::Lz4(Box::new(lz4::encoder(out))),
            Compression::Zstd => Sink::Zstd(Box::new(zstd::encoder(level, out))),
        })
    }

    /// Takes the next bytes.
    pub fn write(&mut self, bytes: &[u8]) {
        let written = match &mut self.0 {
            Sink::None(out) => out.write_all(bytes),
            Sink::Gzip(encoder) => encoder.write_all(bytes),
            Sink::Snappy(encoder) => {
                encoder.write(bytes);
                Ok(())
            }
            Sink::Lz4(encoder) => encoder.write_all(bytes),
            Sink::Zstd(encoder) => encoder.write_all(bytes),
        };
        written.expect("a vector takes all bytes");
    }

    /// The vector with everything compressed in it.
    pub fn finish(self) -> Vec<u8> {
        match self.0 {
            Sink::None(out) => out,
            Sink::Gzip(encoder) => encoder.finish().expect("a vector takes all bytes"),
            Sink::Snappy(encoder) => encoder.finish(),
            Sink::Lz4(encoder) => encoder.finish().expect("a vector takes all bytes"),
            Sink::Zstd(encoder) => encoder.finish().expect("a vector takes all bytes"),
        }
    }
}
