//! Reading and writing the primitive types of the record formats. Reading never panics, whatever
//! the bytes say; writing asserts that what is written fits.

use std::sync::Arc;

use model::varint;

use super::RecordError;
use crate::config::STRING_BYTES_MAX;

/// The front of some bytes, moving back as it is read.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    /// Whether lengths are varints plus one and tagged fields follow (KIP-482).
    flexible: bool,
}

fn malformed(reason: &'static str) -> RecordError {
    RecordError::Malformed(reason)
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, flexible: false }
    }

    pub(crate) fn set_flexible(&mut self, flexible: bool) {
        self.flexible = flexible;
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], RecordError> {
        let (taken, rest) =
            self.bytes.split_at_checked(count).ok_or(malformed("it ends within a field"))?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        Ok(self.take(N)?.try_into().expect("take() gives as many bytes as asked for"))
    }

    pub(crate) fn i16(&mut self) -> Result<i16, RecordError> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    pub(crate) fn i32(&mut self) -> Result<i32, RecordError> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    pub(crate) fn i64(&mut self) -> Result<i64, RecordError> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    fn varint(&mut self) -> Result<u32, RecordError> {
        let (value, size) =
            varint::read_u32(self.bytes).map_err(|_| malformed("a varint is none"))?;
        self.take(size)?;
        Ok(value)
    }

    /// A length that is -1 (classic) or 0 (flexible) for null.
    fn length(&mut self, classic: i64) -> Result<Option<usize>, RecordError> {
        let length = if self.flexible { self.varint()? as i64 - 1 } else { classic };
        match length {
            -1 => Ok(None),
            0.. => Ok(Some(length as usize)),
            _ => Err(malformed("a length is negative")),
        }
    }

    pub(crate) fn nullable_string(&mut self) -> Result<Option<Arc<str>>, RecordError> {
        let classic = if self.flexible { 0 } else { self.i16()? as i64 };
        let Some(length) = self.length(classic)? else { return Ok(None) };
        if length > STRING_BYTES_MAX {
            return Err(malformed("a text is longer than can be written"));
        }
        let text = std::str::from_utf8(self.take(length)?);
        Ok(Some(Arc::from(text.map_err(|_| malformed("a text is not UTF-8"))?)))
    }

    pub(crate) fn string(&mut self) -> Result<Arc<str>, RecordError> {
        self.nullable_string()?.ok_or(malformed("a text is null"))
    }

    pub(crate) fn nullable_bytes(&mut self) -> Result<Option<&'a [u8]>, RecordError> {
        let classic = if self.flexible { 0 } else { self.i32()? as i64 };
        let Some(length) = self.length(classic)? else { return Ok(None) };
        self.take(length).map(Some)
    }

    pub(crate) fn bytes(&mut self) -> Result<Arc<[u8]>, RecordError> {
        self.nullable_bytes()?.map(Arc::from).ok_or(malformed("bytes are null"))
    }

    /// How many elements follow. An element takes at least one byte, so a count beyond the bytes
    /// that remain is refused before anything is allocated for it.
    pub(crate) fn count(&mut self) -> Result<usize, RecordError> {
        let classic = if self.flexible { 0 } else { self.i32()? as i64 };
        let count = self.length(classic)?.ok_or(malformed("an array is null"))?;
        if count > self.bytes.len() {
            return Err(malformed("an array has more elements than bytes"));
        }
        Ok(count)
    }

    /// Shows `visit` the tagged fields that close a flexible structure.
    pub(crate) fn tagged_fields(
        &mut self,
        mut visit: impl FnMut(u32, &[u8]),
    ) -> Result<(), RecordError> {
        if !self.flexible {
            return Ok(());
        }
        for _ in 0..self.varint()? {
            let tag = self.varint()?;
            let size = self.varint()?;
            visit(tag, self.take(size as usize)?);
        }
        Ok(())
    }
}

pub(crate) fn put_string(out: &mut Vec<u8>, text: &str) {
    assert!(text.len() <= STRING_BYTES_MAX, "a text of {} bytes was let through", text.len());
    out.extend_from_slice(&(text.len() as i16).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

pub(crate) fn put_compact_string(out: &mut Vec<u8>, text: &str) {
    assert!(text.len() <= STRING_BYTES_MAX, "a text of {} bytes was let through", text.len());
    varint::write_u32(out, text.len() as u32 + 1);
    out.extend_from_slice(text.as_bytes());
}

pub(crate) fn put_nullable_string(out: &mut Vec<u8>, text: Option<&str>) {
    match text {
        Some(text) => put_string(out, text),
        None => out.extend_from_slice(&(-1i16).to_be_bytes()),
    }
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    assert!(bytes.len() <= i32::MAX as usize, "no request is as large");
    out.extend_from_slice(&(bytes.len() as i32).to_be_bytes());
    out.extend_from_slice(bytes);
}
