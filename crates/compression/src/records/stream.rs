//! The records of a batch one at a time, whatever its codec, in memory that does not grow with what
//! the batch expands to.

use model::batch::HEADER_BYTES;
use model::record::Record;
use model::varint::{VarintError, read_i32, read_i64};
use model::{BatchError, BatchHeader};

use crate::{Decoder, DecompressError};

/// Bytes that are decompressed at once. A record that fits is read in one piece.
const WINDOW_BYTES: usize = 64 << 10;
/// Bytes of the longest varint.
const VARINT_BYTES_MAX: usize = 10;

/// Why the records of a batch cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordsError {
    /// The bytes are not what the codec writes, or more than the caller accepts.
    #[error(transparent)]
    Decompress(#[from] DecompressError),
    /// What was decompressed is not the records that the header promises.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// There is more behind the last record.
    #[error("bytes follow the last record of the batch")]
    Trailing,
    /// A record is too large for the caller to keep it whole.
    #[error("a record of {size_bytes} bytes exceeds {bytes_max}")]
    Large {
        /// The record's bytes.
        size_bytes: usize,
        /// What the caller accepts.
        bytes_max: usize,
    },
}

/// What the rules of a topic ask of a record: all but the bytes of key, value and headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHead {
    /// Milliseconds from the batch's base timestamp.
    pub timestamp_delta: i64,
    /// Offset from the batch's base offset.
    pub offset_delta: i32,
    /// Whether there is a key; an empty one is one.
    pub has_key: bool,
    /// Whether there is a value; a record without is a tombstone in a compacted topic.
    pub has_value: bool,
}

/// How much of a record the caller wants to see.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Want {
    Head,
    Key,
}

/// Reads the records of one batch. An error is the end.
///
/// What [`RecordStream::next_head`] and [`RecordStream::next_key`] keep in memory is 64 KiB and the
/// key; [`RecordStream::next_whole`] keeps one record. Buffers grow with the bytes that have arrived,
/// not with what a length promises.
pub struct RecordStream<'a> {
    decoder: Decoder<'a>,
    buffer: &'a mut Vec<u8>,
    /// What was decompressed and not consumed is `buffer[from..to]`.
    from: usize,
    to: usize,
    /// Bytes that may still be decompressed, and how many they were at first.
    left: u64,
    bytes_max: u64,
    ended: bool,
    index: i32,
    count: i32,
    /// The key of a record that is larger than the window.
    key: Vec<u8>,
}

impl<'a> RecordStream<'a> {
    /// The records of `batch`, which is whole and has this header. At most `expanded_bytes_max` bytes
    /// are decompressed: more are a [`DecompressError::Bomb`]. `buffer` is the caller's to use again.
    pub fn new(
        header: &BatchHeader,
        batch: &'a [u8],
        expanded_bytes_max: u64,
        buffer: &'a mut Vec<u8>,
    ) -> RecordStream<'a> {
        let size = header.size_bytes as usize;
        assert!((HEADER_BYTES..=batch.len()).contains(&size), "the caller holds the whole batch");
        // A batch that compaction emptied keeps its codec but has no bytes to decompress.
        let payload = &batch[HEADER_BYTES..size];
        let is_empty = header.record_count == 0 && payload.is_empty();
        RecordStream {
            decoder: Decoder::new(header.compression(), payload),
            buffer,
            from: 0,
            to: 0,
            left: expanded_bytes_max,
            bytes_max: expanded_bytes_max,
            ended: is_empty,
            index: 0,
            count: header.record_count,
            key: Vec::new(),
        }
    }

    /// The next record's head. `None` behind the last one.
    pub fn next_head(&mut self) -> Option<Result<RecordHead, RecordsError>> {
        self.advance(|stream| stream.read(Want::Head).map(|(head, _)| head))
    }

    /// The next record's head and key. `None` behind the last one.
    #[expect(clippy::type_complexity, reason = "an iterator's item that borrows")]
    pub fn next_key(&mut self) -> Option<Result<(RecordHead, Option<&[u8]>), RecordsError>> {
        let read = self.advance(|stream| stream.read(Want::Key))?;
        Some(read.map(|(head, key)| {
            let key = match key {
                Key::Null => None,
                Key::InWindow(from, to) => Some(&self.buffer[from..to]),
                Key::Aside => Some(&self.key[..]),
            };
            (head, key)
        }))
    }

    /// The next record as a whole, and its encoded bytes. `None` behind the last one.
    pub fn next_whole(&mut self) -> Option<Result<(Record<'_>, &[u8]), RecordsError>> {
        self.next_within(usize::MAX)
    }

    /// As [`RecordStream::next_whole`], but a record of more than `bytes_max` bytes is
    /// [`RecordsError::Large`], before memory is taken for it.
    pub fn next_within(
        &mut self,
        bytes_max: usize,
    ) -> Option<Result<(Record<'_>, &[u8]), RecordsError>> {
        let read = self.advance(|stream| {
            let (length, prefix) = stream.length()?;
            if length > bytes_max {
                return Err(RecordsError::Large { size_bytes: length, bytes_max });
            }
            if !stream.fill(prefix + length)? {
                return Err(stream.bad("its length exceeds the batch"));
            }
            let from = stream.from;
            stream.from += prefix + length;
            Ok((from, from + prefix, stream.from))
        })?;
        let index = self.index - 1;
        Some(read.and_then(|(from, body, to)| {
            let record = Record::read(&self.buffer[body..to])
                .map_err(|reason| BatchError::Record { index, reason })?;
            Ok((record, &self.buffer[from..to]))
        }))
    }

    /// Reads to the end of the compressed bytes, where codecs keep their checksums.
    ///
    /// Errors: [`RecordsError::Trailing`] if there is more than the records that were read.
    pub fn finish(mut self) -> Result<(), RecordsError> {
        match self.fill(1)? {
            true => Err(RecordsError::Trailing),
            false => Ok(()),
        }
    }

    fn advance<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, RecordsError>,
    ) -> Option<Result<T, RecordsError>> {
        if self.index >= self.count {
            return None;
        }
        let result = read(self);
        match &result {
            Ok(_) => self.index += 1,
            Err(_) => self.index = self.count,
        }
        Some(result)
    }

    fn bad(&self, reason: &'static str) -> RecordsError {
        BatchError::Record { index: self.index, reason }.into()
    }

    /// The next record's length, and the bytes that say it; they are not consumed.
    fn length(&mut self) -> Result<(usize, usize), RecordsError> {
        self.fill(VARINT_BYTES_MAX)?;
        let (length, used) = read_i32(&self.buffer[self.from..self.to])
            .map_err(|_| self.bad("its length is no varint"))?;
        let length =
            usize::try_from(length).map_err(|_| self.bad("its length exceeds the batch"))?;
        Ok((length, used))
    }

    fn read(&mut self, want: Want) -> Result<(RecordHead, Key), RecordsError> {
        let (length, prefix) = self.length()?;
        if prefix + length > WINDOW_BYTES {
            self.from += prefix;
            return Large { stream: self, left: length }.read(want);
        }
        if !self.fill(prefix + length)? {
            return Err(self.bad("its length exceeds the batch"));
        }
        let body = &self.buffer[self.from + prefix..self.from + prefix + length];
        let record = Record::read(body).map_err(|reason| self.bad(reason))?;
        let key = match record.key {
            None => Key::Null,
            Some(key) => {
                let at = key.as_ptr() as usize - self.buffer.as_ptr() as usize;
                Key::InWindow(at, at + key.len())
            }
        };
        let head = RecordHead {
            timestamp_delta: record.timestamp_delta,
            offset_delta: record.offset_delta,
            has_key: record.key.is_some(),
            has_value: record.value.is_some(),
        };
        self.from += prefix + length;
        Ok((head, key))
    }

    /// Decompresses until `count` bytes are in the buffer, if there are so many.
    #[inline]
    fn fill(&mut self, count: usize) -> Result<bool, RecordsError> {
        while self.to - self.from < count {
            if self.ended {
                return Ok(false);
            }
            self.decompress_more(count)?;
        }
        Ok(true)
    }

    fn decompress_more(&mut self, count: usize) -> Result<(), RecordsError> {
        self.buffer.copy_within(self.from..self.to, 0);
        self.to -= self.from;
        self.from = 0;
        if self.to == self.buffer.len() || self.buffer.len() < WINDOW_BYTES {
            // Twice what has arrived at most, whatever the length says.
            let grown = count.min(self.to * 2).max(WINDOW_BYTES);
            self.buffer.resize(grown, 0);
        }
        let read = self.decoder.read(&mut self.buffer[self.to..])?;
        self.ended = read == 0;
        match self.left.checked_sub(read as u64) {
            Some(left) => self.left = left,
            None => {
                let cap_bytes = usize::try_from(self.bytes_max).unwrap_or(usize::MAX);
                return Err(DecompressError::Bomb { cap_bytes }.into());
            }
        }
        self.to += read;
        Ok(())
    }
}

/// Where the key of the record that was just read is.
enum Key {
    Null,
    InWindow(usize, usize),
    Aside,
}

/// A record that is larger than the window, field by field.
struct Large<'s, 'a> {
    stream: &'s mut RecordStream<'a>,
    /// Bytes of the record that are not consumed yet.
    left: usize,
}

impl Large<'_, '_> {
    fn read(mut self, want: Want) -> Result<(RecordHead, Key), RecordsError> {
        // The attributes: none is in use.
        self.skip(1, "it is empty")?;
        let timestamp_delta = self.varint(read_i64, "its timestamp is no varint")?;
        let offset_delta = self.varint(read_i32, "its offset is no varint")?;
        let key = self.field_length("its key exceeds it")?;
        if let Some(length) = key {
            match want {
                Want::Head => self.skip(length, "its key exceeds it")?,
                Want::Key => self.take_key(length)?,
            }
        }
        let value = self.field_length("its value exceeds it")?;
        self.skip(value.unwrap_or(0), "its value exceeds it")?;
        self.headers()?;
        let head = RecordHead {
            timestamp_delta,
            offset_delta,
            has_key: key.is_some(),
            has_value: value.is_some(),
        };
        Ok((head, if key.is_some() { Key::Aside } else { Key::Null }))
    }

    fn headers(&mut self) -> Result<(), RecordsError> {
        let count = self.varint(read_i32, "its header count is no varint")?;
        if count < 0 {
            return Err(self.stream.bad("its header count is negative"));
        }
        for _ in 0..count {
            let name = self.field_length("a header's name exceeds it")?;
            let name = name.ok_or_else(|| self.stream.bad("a header's name is null"))?;
            self.skip(name, "a header's name exceeds it")?;
            let value = self.field_length("a header's value exceeds it")?;
            self.skip(value.unwrap_or(0), "a header's value exceeds it")?;
        }
        match self.left {
            0 => Ok(()),
            _ => Err(self.stream.bad("bytes follow its headers")),
        }
    }

    fn varint<T>(
        &mut self,
        read: impl Fn(&[u8]) -> Result<(T, usize), VarintError>,
        reason: &'static str,
    ) -> Result<T, RecordsError> {
        let stream = &mut *self.stream;
        stream.fill(VARINT_BYTES_MAX.min(self.left))?;
        let end = stream.to.min(stream.from + self.left);
        let (value, used) =
            read(&stream.buffer[stream.from..end]).map_err(|_| stream.bad(reason))?;
        stream.from += used;
        self.left -= used;
        Ok(value)
    }

    /// The length of a field that may be null.
    fn field_length(&mut self, reason: &'static str) -> Result<Option<usize>, RecordsError> {
        match self.varint(read_i32, reason)? {
            -1 => Ok(None),
            length => match usize::try_from(length) {
                Ok(length) if length <= self.left => Ok(Some(length)),
                _ => Err(self.stream.bad(reason)),
            },
        }
    }

    fn skip(&mut self, count: usize, reason: &'static str) -> Result<(), RecordsError> {
        self.pass(count, reason, |_, _| ())
    }

    fn take_key(&mut self, length: usize) -> Result<(), RecordsError> {
        self.stream.key.clear();
        self.pass(length, "its key exceeds it", |key, piece| key.extend_from_slice(piece))
    }

    /// Consumes `count` bytes, a window at a time, showing each piece with the buffer for keys.
    fn pass(
        &mut self,
        count: usize,
        reason: &'static str,
        mut see: impl FnMut(&mut Vec<u8>, &[u8]),
    ) -> Result<(), RecordsError> {
        if count > self.left {
            return Err(self.stream.bad(reason));
        }
        self.left -= count;
        let mut missing = count;
        while missing > 0 {
            if !self.stream.fill(1)? {
                return Err(self.stream.bad("its length exceeds the batch"));
            }
            let RecordStream { buffer, from, to, key, .. } = &mut *self.stream;
            let piece = missing.min(*to - *from);
            see(key, &buffer[*from..*from + piece]);
            *from += piece;
            missing -= piece;
        }
        Ok(())
    }
}
