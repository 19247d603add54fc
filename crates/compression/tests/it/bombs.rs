//! A megabyte that wants to become a gigabyte is refused, and costs what the cap says.

use std::io::Write;

use compression::{Compression, DecompressError, compress, decompress};

use crate::sample::{CODECS, noise};

const GIGABYTE: u64 = 1 << 30;
const CAP_BYTES: usize = 1 << 20;
/// The largest block of any codec: two linked lz4 blocks and a window.
const BLOCK_BYTES_MAX: usize = 9 << 20;

fn zeros_into(mut encoder: impl Write) {
    let zeros = vec![0; 1 << 20];
    for _ in 0..GIGABYTE >> 20 {
        encoder.write_all(&zeros).unwrap();
    }
}

fn assert_is_a_bomb(codec: Compression, input: &[u8]) {
    let mut out = Vec::new();
    let result = decompress(codec, input, CAP_BYTES, &mut out);
    assert_eq!(result, Err(DecompressError::Bomb { cap_bytes: CAP_BYTES }), "{codec:?}");
    let allocated = out.capacity();
    assert!(allocated <= CAP_BYTES + BLOCK_BYTES_MAX, "{codec:?} allocated {allocated} bytes");
}

#[test]
fn a_gzip_bomb_is_refused() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    zeros_into(&mut encoder);
    let bomb = encoder.finish().unwrap();
    assert!(bomb.len() < 2 << 20);
    assert_is_a_bomb(Compression::Gzip, &bomb);
}

#[test]
fn a_zstd_bomb_is_refused_with_and_without_a_promised_size() {
    // Blocks of one repeated byte: magic, header with a window of 8 MiB, then 4 bytes a block.
    let mut bomb = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x68];
    for block in 0..GIGABYTE >> 17 {
        let last = (block + 1 == GIGABYTE >> 17) as u32;
        let header = last | 1 << 1 | (128 << 10) << 3;
        bomb.extend_from_slice(&header.to_le_bytes()[..3]);
        bomb.push(b'x');
    }
    assert!(bomb.len() < 1 << 20);
    assert_is_a_bomb(Compression::Zstd, &bomb);

    let mut promised = Vec::new();
    compress(Compression::Zstd, None, &vec![0; 16 << 20], &mut promised);
    assert_is_a_bomb(Compression::Zstd, &promised);
}

#[test]
fn a_zstd_frame_that_lies_about_its_size_or_window_costs_nothing() {
    // Content size 2^62, then one empty last block.
    let mut liar = vec![0x28, 0xb5, 0x2f, 0xfd, 0xe0];
    liar.extend_from_slice(&(1u64 << 62).to_le_bytes());
    liar.extend_from_slice(&[1, 0, 0]);
    let mut out = Vec::new();
    let result = decompress(Compression::Zstd, &liar, usize::MAX >> 1, &mut out);
    assert!(matches!(result, Err(DecompressError::Malformed { .. })), "{result:?}");
    assert!(out.capacity() <= 1 << 20);

    // A window of 2 GiB around one byte.
    let wide = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 0x09, 0x00, 0x00, b'y'];
    decompress(Compression::Zstd, &wide, CAP_BYTES, &mut out).unwrap();
    assert_eq!(out, b"y");
}

#[test]
fn an_lz4_bomb_is_refused() {
    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
    for mode in [BlockMode::Independent, BlockMode::Linked] {
        let form = FrameInfo::new().block_mode(mode).block_size(BlockSize::Max4MB);
        let mut encoder = FrameEncoder::with_frame_info(form, Vec::new());
        zeros_into(&mut encoder);
        assert_is_a_bomb(Compression::Lz4, &encoder.finish().unwrap());
    }
}

#[test]
fn a_snappy_bomb_is_refused() {
    let mut bomb = Vec::new();
    compress(Compression::Snappy, None, &vec![0; 64 << 20], &mut bomb);
    assert_is_a_bomb(Compression::Snappy, &bomb);

    // Raw, promising 4 GiB in a handful of bytes.
    let mut out = Vec::new();
    let liar = [0xff, 0xff, 0xff, 0xff, 0x0f, 0, b'x'];
    let result = decompress(Compression::Snappy, &liar, usize::MAX, &mut out);
    assert!(matches!(result, Err(DecompressError::Malformed { .. })), "{result:?}");
    assert_eq!(out.capacity(), 0);
}

#[test]
fn the_cap_is_exact() {
    let input = noise(100_000);
    for codec in CODECS {
        let (mut compressed, mut out) = (Vec::new(), Vec::new());
        compress(codec, None, &input, &mut compressed);
        decompress(codec, &compressed, input.len(), &mut out).unwrap();
        assert!(out == input, "{codec:?}");
        let cap_bytes = input.len() - 1;
        for mut buffer in [Vec::new(), vec![0; 1 << 20]] {
            let result = decompress(codec, &compressed, cap_bytes, &mut buffer);
            assert_eq!(result, Err(DecompressError::Bomb { cap_bytes }), "{codec:?}");
        }
    }
}
