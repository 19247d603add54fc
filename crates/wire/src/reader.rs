//! Reading the protocol's primitive types out of hostile bytes. Nothing here knows a message.
//!
//! Every length is checked against what remains before anything is allocated, and what the
//! elements of arrays, strings and copied bytes take in memory is charged to a budget that grows
//! with the frame up to a limit: no frame can make the decoder allocate much.

use bytes::Bytes;
use model::{Uuid, varint};

/// Why bytes are not the message that they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end too early.
    #[error("{needed} bytes are needed, {remaining} remain")]
    Truncated {
        /// Bytes that the next value needs.
        needed: usize,
        /// Bytes that are there.
        remaining: usize,
    },
    /// A length below -1, or one that no string or array may have.
    #[error("invalid length {0}")]
    Length(i64),
    /// Null where the version allows none.
    #[error("null where null is not allowed")]
    Null,
    /// A string that is not UTF-8.
    #[error("a string is not UTF-8")]
    Utf8,
    /// A variable-length integer that is cut or too long.
    #[error(transparent)]
    Varint(#[from] varint::VarintError),
    /// The tags of tagged fields do not rise strictly.
    #[error("tag {0} is out of order")]
    TagOrder(u32),
    /// A nullable structure begins with neither -1 nor 1.
    #[error("{0} does not say whether a structure is null")]
    Presence(i8),
    /// Bytes are left where the message or the tagged field should end.
    #[error("{0} bytes follow the end")]
    Trailing(usize),
    /// The message would take more memory than a frame of this size may ask for.
    #[error("{needed} more bytes of memory are needed, {budget} are left for this frame")]
    Budget {
        /// Bytes of memory that the next elements or the next string need.
        needed: usize,
        /// Bytes of the budget that are left.
        budget: usize,
    },
    /// More elements than the reader accepts.
    #[error("{found} are named where at most {max} more are accepted")]
    TooMany {
        /// How many there are.
        found: usize,
        /// How many were accepted.
        max: usize,
    },
    /// A version outside the message's range.
    #[error("{message} has no version {version}")]
    Version {
        /// The message's name.
        message: &'static str,
        /// The version asked for.
        version: i16,
    },
}

type Result<T> = std::result::Result<T, DecodeError>;

/// The longest string of the protocol, in bytes.
pub const STRING_BYTES_MAX: usize = i16::MAX as usize;

/// Bytes of memory that a message may take, for every byte of the frame.
const BUDGET_PER_BYTE: usize = 18;
/// Bytes of memory that a message may take on top, however small the frame.
const BUDGET_BASE: usize = 64 * 1024;
/// Bytes of memory that a message may take, however large the frame.
const BUDGET_MAX: usize = 64 << 20;
/// The least that the allocator takes for a string, in bytes.
const ALLOCATION_BYTES_MIN: usize = 32;
/// What the allocator takes for a string beside its bytes.
const ALLOCATION_HEAD_BYTES: usize = 8;
/// Of which number of bytes what the allocator takes is a multiple.
const ALLOCATION_UNIT_BYTES: usize = 16;
/// Elements for which an array reserves memory before it has seen them.
const PREALLOCATED_MAX: usize = 1024;

/// What the allocator of most systems (glibc's) takes for a block of `bytes`: of very short strings, many times their length.
fn allocated_bytes(bytes: usize) -> usize {
    let taken = (bytes + ALLOCATION_HEAD_BYTES).next_multiple_of(ALLOCATION_UNIT_BYTES);
    taken.max(ALLOCATION_BYTES_MIN)
}

/// A cursor over one frame.
#[derive(Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    /// The frame that `bytes` are, if it may be shared with what is decoded.
    shared: Option<&'a Bytes>,
    /// Invariant: `position <= end <= bytes.len()`.
    position: usize,
    /// Where reading stops: the end of the frame, or of the tagged field being read.
    end: usize,
    budget: usize,
}

/// The most memory, in bytes, that a decoded message may take whose frame has `frame_bytes`.
pub fn decoded_bytes_max(frame_bytes: usize) -> usize {
    BUDGET_BASE.saturating_add(frame_bytes.saturating_mul(BUDGET_PER_BYTE)).min(BUDGET_MAX)
}

impl<'a> Reader<'a> {
    /// Reads `bytes` from their front; values of type bytes are copied out.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        let budget = decoded_bytes_max(bytes.len());
        Reader { bytes, shared: None, position: 0, end: bytes.len(), budget }
    }

    /// Reads `frame` from its front; values of type bytes share the frame's memory.
    pub fn shared(frame: &'a Bytes) -> Reader<'a> {
        Reader { shared: Some(frame), ..Reader::new(frame) }
    }

    /// Bytes that are left.
    pub fn remaining(&self) -> usize {
        self.end - self.position
    }

    /// Bytes of memory that what was read takes, at the most.
    pub fn spent_bytes(&self) -> usize {
        decoded_bytes_max(self.bytes.len()) - self.budget
    }

    /// Bytes that have been read.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Ends the reading; bytes that are left are an error.
    pub fn finish(&self) -> Result<()> {
        match self.remaining() {
            0 => Ok(()),
            left => Err(DecodeError::Trailing(left)),
        }
    }

    /// The next `count` bytes, borrowed.
    #[inline]
    pub fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        if count > self.remaining() {
            return Err(DecodeError::Truncated { needed: count, remaining: self.remaining() });
        }
        let taken = &self.bytes[self.position..self.position + count];
        self.position += count;
        Ok(taken)
    }

    #[inline]
    fn array_of<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.take(N)?.try_into().expect("take() gave N bytes"))
    }

    /// A byte that says false with 0, true with anything else.
    pub fn bool(&mut self) -> Result<bool> {
        Ok(self.i8()? != 0)
    }

    /// One signed byte.
    pub fn i8(&mut self) -> Result<i8> {
        Ok(i8::from_be_bytes(self.array_of()?))
    }

    /// Two bytes, signed.
    pub fn i16(&mut self) -> Result<i16> {
        Ok(i16::from_be_bytes(self.array_of()?))
    }

    /// Two bytes, unsigned.
    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_be_bytes(self.array_of()?))
    }

    /// Four bytes, signed.
    pub fn i32(&mut self) -> Result<i32> {
        Ok(i32::from_be_bytes(self.array_of()?))
    }

    /// Four bytes, unsigned.
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_be_bytes(self.array_of()?))
    }

    /// Eight bytes, signed.
    pub fn i64(&mut self) -> Result<i64> {
        Ok(i64::from_be_bytes(self.array_of()?))
    }

    /// Eight bytes of IEEE 754.
    pub fn f64(&mut self) -> Result<f64> {
        Ok(f64::from_be_bytes(self.array_of()?))
    }

    /// Sixteen bytes of an id.
    pub fn uuid(&mut self) -> Result<Uuid> {
        Ok(Uuid(self.array_of()?))
    }

    /// An unsigned variable-length integer of at most 32 bits.
    #[inline]
    pub fn uvarint(&mut self) -> Result<u32> {
        let (value, used) = varint::read_u32(&self.bytes[self.position..self.end])?;
        self.position += used;
        Ok(value)
    }

    /// A length: `None` for null, which is written as -1, or as 0 in the compact form.
    fn length(&mut self, compact: bool, short: bool) -> Result<Option<usize>> {
        let length = match (compact, short) {
            (true, _) => self.uvarint()? as i64 - 1,
            (false, true) => self.i16()? as i64,
            (false, false) => self.i32()? as i64,
        };
        match length {
            -1 => Ok(None),
            0.. if length <= i32::MAX as i64 => Ok(Some(length as usize)),
            _ => Err(DecodeError::Length(length)),
        }
    }

    /// A string that may be null, borrowed.
    pub fn nullable_str(&mut self, compact: bool) -> Result<Option<&'a str>> {
        let Some(length) = self.length(compact, true)? else { return Ok(None) };
        if length > STRING_BYTES_MAX {
            return Err(DecodeError::Length(length as i64));
        }
        let text = std::str::from_utf8(self.take(length)?);
        Ok(Some(text.map_err(|_| DecodeError::Utf8)?))
    }

    /// A string, borrowed.
    pub fn str(&mut self, compact: bool) -> Result<&'a str> {
        self.nullable_str(compact)?.ok_or(DecodeError::Null)
    }

    /// A string.
    pub fn string(&mut self, compact: bool) -> Result<String> {
        self.nullable_string(compact)?.ok_or(DecodeError::Null)
    }

    /// A string that may be null.
    pub fn nullable_string(&mut self, compact: bool) -> Result<Option<String>> {
        let Some(text) = self.nullable_str(compact)? else { return Ok(None) };
        self.charge_copy(text.len())?;
        Ok(Some(text.to_owned()))
    }

    /// Bytes that may be null, borrowed.
    pub fn nullable_slice(&mut self, compact: bool) -> Result<Option<&'a [u8]>> {
        let Some(length) = self.length(compact, false)? else { return Ok(None) };
        Ok(Some(self.take(length)?))
    }

    /// Bytes that may be null.
    pub fn nullable_bytes(&mut self, compact: bool) -> Result<Option<Bytes>> {
        let Some(slice) = self.nullable_slice(compact)? else { return Ok(None) };
        Ok(Some(match self.shared {
            Some(frame) => frame.slice_ref(slice),
            None => {
                self.charge_copy(slice.len())?;
                Bytes::copy_from_slice(slice)
            }
        }))
    }

    /// Bytes.
    pub fn bytes(&mut self, compact: bool) -> Result<Bytes> {
        self.nullable_bytes(compact)?.ok_or(DecodeError::Null)
    }

    /// The count of an array whose elements take at least `min_bytes` each on the wire.
    pub fn array_count(&mut self, compact: bool, min_bytes: usize) -> Result<Option<usize>> {
        let Some(count) = self.length(compact, false)? else { return Ok(None) };
        let needed = count.saturating_mul(min_bytes.max(1));
        if needed > self.remaining() {
            return Err(DecodeError::Truncated { needed, remaining: self.remaining() });
        }
        Ok(Some(count))
    }

    /// An array that may be null; `min_bytes` is the least that an element takes on the wire.
    pub fn nullable_array<T>(
        &mut self,
        compact: bool,
        min_bytes: usize,
        mut element: impl FnMut(&mut Reader<'a>) -> Result<T>,
    ) -> Result<Option<Vec<T>>> {
        let Some(count) = self.array_count(compact, min_bytes)? else { return Ok(None) };
        self.charge(count.saturating_mul(size_of::<T>()))?;
        let mut elements = Vec::with_capacity(count.min(PREALLOCATED_MAX));
        for i in 0..count {
            if i == elements.capacity() {
                // Doubles, but never beyond the count that was charged.
                elements.reserve_exact(i.min(count - i));
            }
            elements.push(element(self)?);
        }
        Ok(Some(elements))
    }

    /// An array; `min_bytes` is the least that an element takes on the wire.
    pub fn array<T>(
        &mut self,
        compact: bool,
        min_bytes: usize,
        element: impl FnMut(&mut Reader<'a>) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.nullable_array(compact, min_bytes, element)?.ok_or(DecodeError::Null)
    }

    /// Charges what a string or bytes take outside of the structure that they belong to.
    fn charge_copy(&mut self, bytes: usize) -> Result<()> {
        if bytes == 0 { Ok(()) } else { self.charge(allocated_bytes(bytes)) }
    }

    /// Charges memory that what is decoded will take. Errors: more than is left.
    pub fn charge(&mut self, needed: usize) -> Result<()> {
        match self.budget.checked_sub(needed) {
            Some(left) => self.budget = left,
            None => return Err(DecodeError::Budget { needed, budget: self.budget }),
        }
        Ok(())
    }

    /// Whether a structure that may be null is there.
    pub fn presence(&mut self) -> Result<bool> {
        match self.i8()? {
            -1 => Ok(false),
            1 => Ok(true),
            other => Err(DecodeError::Presence(other)),
        }
    }

    /// The tagged fields at the end of a structure. `known` reads the field of a tag and says
    /// true, or leaves the reader alone and says false: then the field is skipped.
    pub fn tagged_fields(
        &mut self,
        mut known: impl FnMut(u32, &mut Reader<'a>) -> Result<bool>,
    ) -> Result<()> {
        let count = self.uvarint()?;
        let mut next = 0u64;
        for _ in 0..count {
            let tag = self.uvarint()?;
            if (tag as u64) < next {
                return Err(DecodeError::TagOrder(tag));
            }
            next = tag as u64 + 1;
            let size = self.uvarint()? as usize;
            self.tagged_field(tag, size, &mut known)?;
        }
        Ok(())
    }

    fn tagged_field(
        &mut self,
        tag: u32,
        size: usize,
        known: &mut impl FnMut(u32, &mut Reader<'a>) -> Result<bool>,
    ) -> Result<()> {
        if size > self.remaining() {
            return Err(DecodeError::Truncated { needed: size, remaining: self.remaining() });
        }
        let outer_end = std::mem::replace(&mut self.end, self.position + size);
        if known(tag, self)? {
            self.finish()?;
        }
        self.position = self.end;
        self.end = outer_end;
        Ok(())
    }

    /// The tagged fields at the end of a structure that knows none.
    pub fn skip_tagged_fields(&mut self) -> Result<()> {
        self.tagged_fields(|_, _| Ok(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads tag 1 as a byte and skips the others.
    fn tag_one(bytes: &[u8]) -> Result<Option<i8>> {
        let mut found = None;
        let mut reader = Reader::new(bytes);
        reader.tagged_fields(|tag, r| {
            if tag == 1 {
                found = Some(r.i8()?);
            }
            Ok(tag == 1)
        })?;
        reader.finish()?;
        Ok(found)
    }

    #[test]
    fn unknown_tags_are_skipped_and_known_ones_read() {
        assert_eq!(tag_one(&[0]), Ok(None));
        assert_eq!(tag_one(&[3, 0, 2, 9, 9, 1, 1, 7, 5, 0]), Ok(Some(7)));
    }

    #[test]
    fn tags_must_rise_and_hold_exactly_their_field() {
        assert_eq!(tag_one(&[2, 1, 1, 7, 1, 1, 7]), Err(DecodeError::TagOrder(1)));
        assert_eq!(tag_one(&[2, 4, 0, 1, 1, 7]), Err(DecodeError::TagOrder(1)));
        assert_eq!(tag_one(&[1, 1, 2, 7, 7]), Err(DecodeError::Trailing(1)));
        // The field may not read beyond its size, even if bytes follow.
        let cut = DecodeError::Truncated { needed: 1, remaining: 0 };
        assert_eq!(tag_one(&[2, 1, 0, 2, 0]), Err(cut));
        assert!(tag_one(&[1, 1, 0x7f]).is_err());
    }

    #[test]
    fn null_is_refused_where_it_is_not_allowed() {
        assert_eq!(Reader::new(&[0xff, 0xff]).nullable_str(false), Ok(None));
        assert_eq!(Reader::new(&[0xff, 0xff]).string(false), Err(DecodeError::Null));
        assert_eq!(Reader::new(&[0]).string(true), Err(DecodeError::Null));
        assert_eq!(Reader::new(&[0]).array(true, 1, Reader::i8), Err(DecodeError::Null));
        assert_eq!(Reader::new(&[0xff; 4]).bytes(false), Err(DecodeError::Null));
        assert_eq!(Reader::new(&[0xff, 0xfe]).nullable_str(false), Err(DecodeError::Length(-2)));
    }

    #[test]
    fn counts_are_held_against_what_remains_and_against_memory() {
        let claim = [0, 0, 0, 3, 1, 2];
        let error = Reader::new(&claim).array(false, 1, Reader::i8);
        assert_eq!(error, Err(DecodeError::Truncated { needed: 3, remaining: 2 }));
        // A thousand elements fit the frame, but not at a kilobyte of memory each.
        let mut frame = vec![0, 0, 3, 0xe8];
        frame.resize(1004, 0);
        let large = Reader::new(&frame).array(false, 1, |r| Ok([r.i8()?; 1024]));
        assert!(matches!(large, Err(DecodeError::Budget { .. })));
        assert!(Reader::new(&frame).array(false, 1, |r| Ok([r.i8()?; 16])).is_ok());
    }

    #[test]
    fn strings_and_the_largest_frame_have_their_limits() {
        // A million names of two bytes each: elements and heap together.
        let mut frame = 1_000_000i32.to_be_bytes().to_vec();
        frame.extend([0, 2, b'x', b'y'].repeat(1_000_000));
        let wide = Reader::new(&frame).array(false, 2, |r| Ok((r.string(false)?, [0u64; 3])));
        assert!(matches!(wide, Err(DecodeError::Budget { .. })), "80 bytes for four");
        let mut reader = Reader::new(&frame);
        assert!(reader.array(false, 2, |r| r.string(false)).is_ok());
        assert_eq!(reader.spent_bytes(), 1_000_000 * (size_of::<String>() + 32));
        assert_eq!(decoded_bytes_max(100 << 20), 64 << 20);
        // A single string may be as large as its frame, up to the limit.
        let mut blob = (65i32 << 20).to_be_bytes().to_vec();
        blob.resize(4 + (65 << 20), 0);
        assert!(matches!(Reader::new(&blob).bytes(false), Err(DecodeError::Budget { .. })));
        assert!(Reader::shared(&Bytes::from(blob)).bytes(false).is_ok());
    }

    #[test]
    fn shared_bytes_are_not_copied() {
        let frame = Bytes::from_static(&[4, b'a', b'b', b'c']);
        let read = Reader::shared(&frame).bytes(true).expect("three bytes");
        assert_eq!(read.as_ptr(), frame[1..].as_ptr());
    }

    /// As glibc's `malloc_usable_size` tells it, with the eight bytes before the block.
    #[test]
    fn a_string_is_charged_with_what_the_allocator_takes() {
        for (bytes, taken) in [(1, 32), (24, 32), (25, 48), (40, 48), (41, 64), (1000, 1008)] {
            assert_eq!(allocated_bytes(bytes), taken, "{bytes} bytes");
        }
        let mut frame = Vec::new();
        for _ in 0..1000 {
            frame.extend([0, 2, b'a', b'b']);
        }
        let mut reader = Reader::new(&frame);
        for _ in 0..1000 {
            assert_eq!(reader.nullable_string(false).unwrap().as_deref(), Some("ab"));
        }
        assert_eq!(reader.spent_bytes(), 32_000);
    }
}
