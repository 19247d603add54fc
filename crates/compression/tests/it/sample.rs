//! What the tests compress: text that codecs like, bytes that they do not, and sizes around the
//! borders of blocks.

use compression::Compression;

pub const CODECS: [Compression; 5] = [
    Compression::None,
    Compression::Gzip,
    Compression::Snappy,
    Compression::Lz4,
    Compression::Zstd,
];

/// Bytes without a pattern, the same every time.
pub fn noise(size_bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..size_bytes).map(|_| next()).collect()
}

/// Bytes with a pattern.
pub fn text(size_bytes: usize) -> Vec<u8> {
    (0..).flat_map(|i: u32| format!("line {i};").into_bytes()).take(size_bytes).collect()
}
