//! What the load generator reads of a gateway: no bytes panic, and however they are cut, the same comes out.

#![no_main]

use libfuzzer_sys::fuzz_target;
use perf::web::{Chunks, EventParser, FrameParser, Head, Said};

/// The events in a body of chunks that comes in two pieces.
fn events(bytes: &[u8], cut: usize) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let (mut chunks, mut parser, mut seen) = (Chunks::default(), EventParser::default(), Vec::new());
    let mut from = 0;
    for end in [cut, bytes.len()] {
        let mut body = Vec::new();
        from += chunks.take(&bytes[from..end], |piece| body.extend(piece)).ok()?;
        parser.take(&body, |event| seen.push((event.name.to_vec(), event.data.to_vec()))).ok()?;
    }
    Some(seen)
}

/// The messages in frames that come in two pieces.
fn messages(bytes: &[u8], cut: usize) -> Option<Vec<Vec<u8>>> {
    let (mut parser, mut seen) = (FrameParser::default(), Vec::new());
    for piece in [&bytes[..cut], &bytes[cut..]] {
        let each = |said: Said<'_>| {
            if let Said::Message(text) = said {
                seen.push(text.to_vec());
            }
        };
        parser.take(piece, each).ok()?;
    }
    Some(seen)
}

fuzz_target!(|input: &[u8]| {
    if let Ok(Some((head, size))) = Head::read(input) {
        assert!(size <= input.len());
        let _ = head.timing_ms("decide");
    }
    let Some((first, rest)) = input.split_first() else { return };
    let cut = usize::from(*first) * rest.len() / 255;
    if let (Some(whole), Some(pieces)) = (events(rest, 0), events(rest, cut)) {
        assert_eq!(whole, pieces);
    }
    assert_eq!(messages(rest, 0), messages(rest, cut));
});
