//! Reading a decoder to its end without ever holding more than a cap.

use std::io::{self, Read};

/// What a decoder's bytes came to.
pub(crate) enum End {
    /// All of them are in the buffer.
    Whole,
    /// There are more of them than the cap.
    Beyond,
}

/// The first growth of the buffer, in bytes; it doubles from there.
const GROWTH_MIN: usize = 16 << 10;

/// Appends everything that `reader` gives to `out`, which is empty, up to `cap_bytes`. The buffer
/// grows with what has arrived, never with what the input promises, and not beyond the cap.
pub(crate) fn read_to_end(
    mut reader: impl Read,
    cap_bytes: usize,
    out: &mut Vec<u8>,
) -> io::Result<End> {
    let mut filled = 0;
    loop {
        if filled == cap_bytes {
            let more = read_some(&mut reader, &mut [0])?;
            return Ok(if more == 0 { End::Whole } else { End::Beyond });
        }
        if filled == out.len() {
            let growth = filled.max(GROWTH_MIN).min(cap_bytes - filled);
            out.reserve_exact(growth);
            out.resize(filled + growth, 0);
        }
        match read_some(&mut reader, &mut out[filled..])? {
            0 => break,
            read => filled += read,
        }
    }
    out.truncate(filled);
    Ok(End::Whole)
}

fn read_some(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match reader.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            result => return result,
        }
    }
}
