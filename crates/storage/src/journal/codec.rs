//! Numbers and texts in the journal's files: big-endian, lengths before contents. Reading never
//! panics and never reserves memory for more than there are bytes.

use std::sync::Arc;

use model::Offset;

/// Why bytes of a journal or its snapshot cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(pub String);

impl Unreadable {
    pub(super) fn new(reason: impl Into<String>) -> Unreadable {
        Unreadable(reason.into())
    }
}

/// CRC-32C of all parts, one after the other.
pub(crate) fn crc32c(parts: &[&[u8]]) -> u32 {
    // The library's digest of several parts brings the tables of 50 other checksums into the program (decision 0092).
    match parts {
        [bytes] => crc_fast::crc32_iscsi(bytes),
        parts => crc_fast::crc32_iscsi(&parts.concat()),
    }
}

pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_bytes(out, text.as_bytes());
}

pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    out.extend_from_slice(bytes);
}

pub(super) fn put_offset(out: &mut Vec<u8>, offset: Offset) {
    out.extend_from_slice(&offset.0.to_be_bytes());
}

/// -1 stands for none, as everywhere in Kafka's files.
pub(super) fn put_offset_or_none(out: &mut Vec<u8>, offset: Option<Offset>) {
    put_offset(out, offset.unwrap_or(Offset(-1)));
}

/// What is left to be read.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], Unreadable> {
        if count > self.0.len() {
            let have = self.0.len();
            return Err(Unreadable(format!("{count} bytes are needed and {have} are left")));
        }
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Unreadable> {
        Ok(self.take(N)?.try_into().expect("take() gives as many bytes as asked for"))
    }

    pub(super) fn u8(&mut self) -> Result<u8, Unreadable> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn u32(&mut self) -> Result<u32, Unreadable> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn i32(&mut self) -> Result<i32, Unreadable> {
        self.array().map(i32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Unreadable> {
        self.array().map(u64::from_be_bytes)
    }

    pub(super) fn i64(&mut self) -> Result<i64, Unreadable> {
        self.array().map(i64::from_be_bytes)
    }

    pub(super) fn flag(&mut self) -> Result<bool, Unreadable> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Unreadable(format!("invalid flag {other}"))),
        }
    }

    pub(super) fn offset(&mut self) -> Result<Offset, Unreadable> {
        match self.i64()? {
            offset if offset >= 0 => Ok(Offset(offset)),
            other => Err(Unreadable(format!("invalid offset {other}"))),
        }
    }

    pub(super) fn offset_or_none(&mut self) -> Result<Option<Offset>, Unreadable> {
        match self.i64()? {
            -1 => Ok(None),
            offset if offset >= 0 => Ok(Some(Offset(offset))),
            other => Err(Unreadable(format!("invalid offset {other}"))),
        }
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Unreadable> {
        let length = self.u32()?;
        self.take(length as usize)
    }

    pub(super) fn text(&mut self) -> Result<Arc<str>, Unreadable> {
        let bytes = self.bytes()?;
        std::str::from_utf8(bytes).map(Arc::from).map_err(|_| Unreadable::new("invalid text"))
    }
}
