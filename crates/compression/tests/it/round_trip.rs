//! What is compressed comes back.

use compression::{Compression, compress, decompress, levels};

use crate::sample::{CODECS, noise, text};

const CAP_BYTES: usize = 64 << 20;

fn assert_round_trip(codec: Compression, level: Option<i32>, input: &[u8]) {
    // Both buffers held something before, as buffers do that are used again.
    let (mut compressed, mut out) = (b"before".to_vec(), noise(1000));
    compress(codec, level, input, &mut compressed);
    decompress(codec, &compressed, CAP_BYTES, &mut out).unwrap();
    assert!(out == input, "{codec:?} at {level:?}, {} bytes", input.len());
}

#[test]
fn every_size_around_a_block_border_comes_back() {
    let block = 32 << 10;
    for size in [0, 1, 2, 100, block - 1, block, block + 1, 2 * block, 2 * block + 1, 1 << 20] {
        for codec in CODECS {
            assert_round_trip(codec, None, &text(size));
            assert_round_trip(codec, None, &noise(size));
        }
    }
}

#[test]
fn every_level_comes_back() {
    let input = text(100_000);
    for codec in CODECS {
        let Some(range) = levels(codec) else { continue };
        for level in [range.min, range.default, 1, 2, range.max, i32::MIN, i32::MAX] {
            assert_round_trip(codec, Some(level), &input);
        }
    }
}

#[test]
fn the_level_reaches_gzip_and_zstd() {
    let input = text(200_000);
    for codec in [Compression::Gzip, Compression::Zstd] {
        let (mut low, mut high) = (Vec::new(), Vec::new());
        compress(codec, Some(1), &input, &mut low);
        compress(codec, levels(codec).map(|range| range.max), &input, &mut high);
        // Not "fewer": zstd's highest level loses to its lowest on text as regular as this.
        assert_ne!(low, high, "{codec:?}");
    }
}

#[test]
fn raw_snappy_is_read() {
    let input = text(100_000);
    let raw = snap::raw::Encoder::new().compress_vec(&input).unwrap();
    let mut out = Vec::new();
    decompress(Compression::Snappy, &raw, CAP_BYTES, &mut out).unwrap();
    assert!(out == input);
}

#[test]
fn joined_streams_are_read_as_one() {
    for codec in [Compression::Gzip, Compression::Snappy, Compression::Zstd] {
        let (mut both, mut one, mut out) = (Vec::new(), Vec::new(), Vec::new());
        for part in [&b"first "[..], b"second"] {
            compress(codec, None, part, &mut one);
            both.extend_from_slice(&one);
        }
        decompress(codec, &both, CAP_BYTES, &mut out).unwrap();
        assert_eq!(out, b"first second", "{codec:?}");
    }
}

#[test]
fn lz4_frames_of_other_writers_are_read() {
    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
    use std::io::Write;
    let input = text(900_000);
    for mode in [BlockMode::Independent, BlockMode::Linked] {
        for size in [BlockSize::Max64KB, BlockSize::Max256KB, BlockSize::Max4MB] {
            let form = FrameInfo::new()
                .block_mode(mode)
                .block_size(size)
                .block_checksums(true)
                .content_checksum(true)
                .content_size(Some(input.len() as u64));
            let mut encoder = FrameEncoder::with_frame_info(form, Vec::new());
            encoder.write_all(&input).unwrap();
            let frame = encoder.finish().unwrap();
            let mut out = Vec::new();
            decompress(Compression::Lz4, &frame, CAP_BYTES, &mut out).unwrap();
            assert!(out == input);
        }
    }
}

#[test]
fn our_lz4_frames_have_the_form_that_every_client_reads() {
    let mut frame = Vec::new();
    compress(Compression::Lz4, None, &text(200_000), &mut frame);
    // Version 1, independent blocks, neither checksums nor content size; blocks of 64 KiB.
    assert_eq!(frame[..6], [0x04, 0x22, 0x4d, 0x18, 0b0110_0000, 0x40]);
}

#[test]
fn what_is_compressed_in_pieces_comes_back_whole() {
    let input = [text(200_000), noise(70_000)].concat();
    for codec in CODECS {
        for piece in [1, 4_099, 32 << 10, input.len()] {
            let input = if piece == 1 { &input[..3_000] } else { &input[..] };
            let mut encoder = compression::Encoder::new(codec, None, b"front".to_vec());
            input.chunks(piece).for_each(|piece| encoder.write(piece));
            let out = encoder.finish();
            let compressed = out.strip_prefix(b"front").expect("what was there stays");
            let mut back = Vec::new();
            decompress(codec, compressed, CAP_BYTES, &mut back).unwrap();
            assert!(back == input, "{codec:?} in pieces of {piece}");
            assert!(compression::is_portable(codec, compressed));
        }
    }
}
