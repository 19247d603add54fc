//! Variable-length integers: seven bits a byte, lowest first; zigzag for signed ones.

/// Why bytes are not a varint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VarintError {
    /// The bytes end within the number.
    #[error("a varint ends in the middle")]
    Truncated,
    /// More than five bytes (32 bits) or ten (64 bits).
    #[error("a varint is longer than its type allows")]
    TooLong,
}

/// Reads an unsigned 32-bit number at the front of `bytes`; returns it and its length in bytes.
#[inline]
pub fn read_u32(bytes: &[u8]) -> Result<(u32, usize), VarintError> {
    // Nearly all numbers in a record.
    match bytes {
        [a, ..] if *a < 0x80 => Ok((*a as u32, 1)),
        [a, b, ..] if *b < 0x80 => Ok(((*a & 0x7f) as u32 | (*b as u32) << 7, 2)),
        _ => read_u32_long(bytes),
    }
}

fn read_u32_long(bytes: &[u8]) -> Result<(u32, usize), VarintError> {
    let mut value: u32 = 0;
    for (i, byte) in bytes.iter().take(5).enumerate() {
        if i == 4 && *byte > 0x0f {
            return Err(VarintError::TooLong);
        }
        value |= ((byte & 0x7f) as u32) << (7 * i);
        if byte & 0x80 == 0 {
            return Ok((value, i + 1));
        }
    }
    Err(if bytes.len() < 5 { VarintError::Truncated } else { VarintError::TooLong })
}

/// Reads an unsigned 64-bit number at the front of `bytes`; returns it and its length in bytes.
#[inline]
pub fn read_u64(bytes: &[u8]) -> Result<(u64, usize), VarintError> {
    match bytes {
        [a, ..] if *a < 0x80 => Ok((*a as u64, 1)),
        [a, b, ..] if *b < 0x80 => Ok(((*a & 0x7f) as u64 | (*b as u64) << 7, 2)),
        _ => read_u64_long(bytes),
    }
}

fn read_u64_long(bytes: &[u8]) -> Result<(u64, usize), VarintError> {
    let mut value: u64 = 0;
    for (i, byte) in bytes.iter().take(10).enumerate() {
        if i == 9 && *byte > 1 {
            return Err(VarintError::TooLong);
        }
        value |= ((byte & 0x7f) as u64) << (7 * i);
        if byte & 0x80 == 0 {
            return Ok((value, i + 1));
        }
    }
    Err(if bytes.len() < 10 { VarintError::Truncated } else { VarintError::TooLong })
}

/// Reads a zigzag 32-bit number.
#[inline]
pub fn read_i32(bytes: &[u8]) -> Result<(i32, usize), VarintError> {
    let (raw, len) = read_u32(bytes)?;
    Ok(((raw >> 1) as i32 ^ -((raw & 1) as i32), len))
}

/// Reads a zigzag 64-bit number.
#[inline]
pub fn read_i64(bytes: &[u8]) -> Result<(i64, usize), VarintError> {
    let (raw, len) = read_u64(bytes)?;
    Ok(((raw >> 1) as i64 ^ -((raw & 1) as i64), len))
}

/// Appends an unsigned 32-bit number.
pub fn write_u32(out: &mut Vec<u8>, value: u32) {
    write_u64(out, value as u64);
}

/// Appends an unsigned 64-bit number.
pub fn write_u64(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a zigzag 32-bit number.
pub fn write_i32(out: &mut Vec<u8>, value: i32) {
    write_u32(out, ((value << 1) ^ (value >> 31)) as u32);
}

/// Appends a zigzag 64-bit number.
pub fn write_i64(out: &mut Vec<u8>, value: i64) {
    write_u64(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// The length in bytes of an unsigned number.
pub const fn size_u64(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// The length in bytes of a zigzag number.
pub const fn size_i64(value: i64) -> usize {
    size_u64(((value << 1) ^ (value >> 63)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_back() {
        for value in [0, 1, -1, 63, -64, 64, 300, 8191, -8192, 8192, 70_000, i32::MAX, i32::MIN] {
            let mut out = Vec::new();
            write_i32(&mut out, value);
            assert_eq!(read_i32(&out), Ok((value, out.len())));
            assert_eq!(size_i64(value as i64), out.len());
        }
        for value in [0, -1, 64, 8191, -8192, 8192, i64::MAX, i64::MIN] {
            let mut out = Vec::new();
            write_i64(&mut out, value);
            assert_eq!(read_i64(&out), Ok((value, out.len())));
            assert_eq!(size_i64(value), out.len());
        }
    }

    #[test]
    fn long_and_short_bytes_are_refused() {
        assert_eq!(read_u32(&[0xff; 5]), Err(VarintError::TooLong));
        assert_eq!(read_u32(&[0xff; 4]), Err(VarintError::Truncated));
        assert_eq!(read_u64(&[0xff; 10]), Err(VarintError::TooLong));
        assert_eq!(read_u64(&[]), Err(VarintError::Truncated));
    }
}
