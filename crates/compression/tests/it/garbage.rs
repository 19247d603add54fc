//! Bytes that nobody compressed: an error or some bytes below the cap, never a panic.

use compression::{Compression, compress, decompress};
use proptest::prelude::*;

use crate::sample::{CODECS, noise, text};

const CAP_BYTES: usize = 1 << 20;

fn survives(codec: Compression, input: &[u8]) {
    let mut out = Vec::new();
    if decompress(codec, input, CAP_BYTES, &mut out).is_ok() {
        assert!(out.len() <= CAP_BYTES);
    }
}

fn codec() -> impl Strategy<Value = Compression> {
    prop::sample::select(&CODECS[..])
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes(codec in codec(), input in prop::collection::vec(any::<u8>(), 0..2000)) {
        survives(codec, &input);
    }

    #[test]
    fn any_bytes_behind_a_true_beginning(
        codec in codec(),
        keep in 0..40usize,
        tail in prop::collection::vec(any::<u8>(), 0..500),
    ) {
        let mut input = Vec::new();
        compress(codec, None, &text(5000), &mut input);
        input.truncate(keep);
        input.extend_from_slice(&tail);
        survives(codec, &input);
    }

    #[test]
    fn flipped_bytes(
        codec in codec(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let mut input = Vec::new();
        compress(codec, None, &text(150_000), &mut input);
        for (at, with) in flips {
            let at = at.index(input.len());
            input[at] ^= with;
        }
        survives(codec, &input);
    }

    #[test]
    fn any_input_comes_back(codec in codec(), input in prop::collection::vec(any::<u8>(), 0..3000)) {
        let (mut compressed, mut out) = (Vec::new(), Vec::new());
        compress(codec, None, &input, &mut compressed);
        decompress(codec, &compressed, input.len(), &mut out).unwrap();
        prop_assert_eq!(out, input);
    }
}

#[test]
fn a_cut_at_any_byte_is_an_error() {
    for codec in [Compression::Gzip, Compression::Lz4, Compression::Zstd] {
        for input in [text(3000), noise(3000)] {
            let mut whole = Vec::new();
            compress(codec, None, &input, &mut whole);
            for cut in 0..whole.len() {
                let mut out = Vec::new();
                let result = decompress(codec, &whole[..cut], CAP_BYTES, &mut out);
                // No bytes at all are an empty stream of zero zstd frames.
                let is_empty = cut == 0 && out.is_empty();
                assert!(result.is_err() || is_empty, "{codec:?} cut at {cut} of {}", whole.len());
            }
        }
    }
}

#[test]
fn snappy_cut_within_a_block_is_an_error() {
    let mut whole = Vec::new();
    compress(Compression::Snappy, None, &noise(3000), &mut whole);
    for cut in (8..16).chain(17..whole.len()) {
        let mut out = Vec::new();
        let result = decompress(Compression::Snappy, &whole[..cut], CAP_BYTES, &mut out);
        assert!(result.is_err(), "cut at {cut}");
    }
}
