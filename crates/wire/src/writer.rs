//! Writing the protocol's primitive types. Nothing here knows a message.

use crate::reader::STRING_BYTES_MAX;
use bytes::Bytes;
use model::{Uuid, varint};

/// Why a message cannot be written in a version: the message is at fault, not the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// A version outside the message's range.
    #[error("{message} has no version {version}")]
    Version {
        /// The message's name.
        message: &'static str,
        /// The version asked for.
        version: i16,
    },
    /// A field is set that the version lacks and that must not be dropped silently.
    #[error("{field} is set, but version {version} lacks it")]
    FieldNotInVersion {
        /// The structure and the field.
        field: &'static str,
        /// The version asked for.
        version: i16,
    },
    /// Null where the version allows none.
    #[error("null where version {0} allows none")]
    Null(i16),
    /// A string of more than 32,767 bytes.
    #[error("a string of {0} bytes is too long")]
    StringTooLong(usize),
    /// Bytes or an array of more than 2³¹ - 1.
    #[error("a length of {0} is too long")]
    TooLong(usize),
}

type Result<T> = std::result::Result<T, EncodeError>;

/// Appends to a buffer.
#[derive(Debug, Default, Clone)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// Writes into a new buffer.
    pub fn new() -> Writer {
        Writer::default()
    }

    /// Goes on behind what `bytes` holds.
    pub fn over(bytes: Vec<u8>) -> Writer {
        Writer { bytes }
    }

    /// What has been written.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The buffer itself, to patch or to append to.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Gives the buffer back.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Appends `bytes` as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// One byte: 1 or 0.
    pub fn bool(&mut self, value: bool) {
        self.bytes.push(value as u8);
    }

    /// One signed byte.
    pub fn i8(&mut self, value: i8) {
        self.bytes.push(value as u8);
    }

    /// Two bytes, signed.
    pub fn i16(&mut self, value: i16) {
        self.raw(&value.to_be_bytes());
    }

    /// Two bytes, unsigned.
    pub fn u16(&mut self, value: u16) {
        self.raw(&value.to_be_bytes());
    }

    /// Four bytes, signed.
    pub fn i32(&mut self, value: i32) {
        self.raw(&value.to_be_bytes());
    }

    /// Four bytes, unsigned.
    pub fn u32(&mut self, value: u32) {
        self.raw(&value.to_be_bytes());
    }

    /// Eight bytes, signed.
    pub fn i64(&mut self, value: i64) {
        self.raw(&value.to_be_bytes());
    }

    /// Eight bytes of IEEE 754.
    pub fn f64(&mut self, value: f64) {
        self.raw(&value.to_be_bytes());
    }

    /// Sixteen bytes of an id.
    pub fn uuid(&mut self, value: Uuid) {
        self.raw(&value.0);
    }

    /// An unsigned variable-length integer.
    pub fn uvarint(&mut self, value: u32) {
        varint::write_u32(&mut self.bytes, value);
    }

    /// The null of strings in the plain form, and of every type in the compact form.
    fn null(&mut self, compact: bool, short: bool) {
        match (compact, short) {
            (true, _) => self.uvarint(0),
            (false, true) => self.i16(-1),
            (false, false) => self.i32(-1),
        }
    }

    /// A string.
    pub fn string(&mut self, text: &str, compact: bool) -> Result<()> {
        if text.len() > STRING_BYTES_MAX {
            return Err(EncodeError::StringTooLong(text.len()));
        }
        match compact {
            true => self.uvarint(text.len() as u32 + 1),
            false => self.i16(text.len() as i16),
        }
        self.raw(text.as_bytes());
        Ok(())
    }

    /// A string that may be null.
    pub fn nullable_string(&mut self, text: Option<&str>, compact: bool) -> Result<()> {
        match text {
            Some(text) => self.string(text, compact)?,
            None => self.null(compact, true),
        }
        Ok(())
    }

    /// The count of an array, or the length of bytes.
    pub fn count(&mut self, count: usize, compact: bool) -> Result<()> {
        if count >= i32::MAX as usize {
            return Err(EncodeError::TooLong(count));
        }
        match compact {
            true => self.uvarint(count as u32 + 1),
            false => self.i32(count as i32),
        }
        Ok(())
    }

    /// Bytes.
    pub fn byte_slice(&mut self, bytes: &[u8], compact: bool) -> Result<()> {
        self.count(bytes.len(), compact)?;
        self.raw(bytes);
        Ok(())
    }

    /// Bytes that may be null.
    pub fn nullable_bytes(&mut self, bytes: Option<&Bytes>, compact: bool) -> Result<()> {
        match bytes {
            Some(bytes) => self.byte_slice(bytes, compact)?,
            None => self.null(compact, false),
        }
        Ok(())
    }

    /// An array.
    pub fn array<T>(
        &mut self,
        elements: &[T],
        compact: bool,
        mut element: impl FnMut(&mut Writer, &T) -> Result<()>,
    ) -> Result<()> {
        self.count(elements.len(), compact)?;
        elements.iter().try_for_each(|e| element(self, e))
    }

    /// An array that may be null.
    pub fn nullable_array<T>(
        &mut self,
        elements: Option<&[T]>,
        compact: bool,
        element: impl FnMut(&mut Writer, &T) -> Result<()>,
    ) -> Result<()> {
        match elements {
            Some(elements) => self.array(elements, compact, element)?,
            None => self.null(compact, false),
        }
        Ok(())
    }

    /// One tagged field: its tag, its size, and what `value` writes.
    pub fn tagged_field(
        &mut self,
        tag: u32,
        value: impl FnOnce(&mut Writer) -> Result<()>,
    ) -> Result<()> {
        self.uvarint(tag);
        let start = self.bytes.len();
        value(self)?;
        // The size goes in front of the value, and is known only now.
        let end = self.bytes.len();
        self.uvarint((end - start) as u32);
        let size_bytes = self.bytes.len() - end;
        self.bytes[start..].rotate_right(size_bytes);
        Ok(())
    }
}
