//! The records inside a batch, uncompressed: reading them, and building batches of them.
//!
//! A record is a varint length and then: attributes (one byte, 0), timestamp delta, offset delta,
//! key, value, headers. Keys and values may be null, which is not the same as empty.

use crate::batch::{self, BatchError, BatchHeader, Compression, HEADER_BYTES};
use crate::varint::{read_i32, read_i64, size_i64, write_i32};
use crate::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

/// One header of a record: a name and a value that may be null.
pub type Header<'a> = (&'a str, Option<&'a [u8]>);

/// One record, borrowed from the uncompressed bytes of its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Milliseconds from the batch's base timestamp.
    pub timestamp_delta: i64,
    /// Offset from the batch's base offset.
    pub offset_delta: i32,
    /// The key, or null.
    pub key: Option<&'a [u8]>,
    /// The value, or null: a tombstone in a compacted topic.
    pub value: Option<&'a [u8]>,
    /// The headers as they stand, count included; [`Record::headers`] reads them.
    headers: &'a [u8],
}

impl<'a> Record<'a> {
    /// Reads the one record whose bytes, its length taken off, these are. The error says what is wrong
    /// with them.
    #[inline]
    pub fn read(mut body: &'a [u8]) -> Result<Record<'a>, &'static str> {
        read_record(&mut body)
    }

    /// The headers in their order. They were checked when the record was read. Clients may name a
    /// header in bytes that are no text, as Kafka lets them: of such a name the text in front is given.
    pub fn headers(&self) -> impl Iterator<Item = Header<'a>> + use<'a> {
        let (count, skip) = read_i32(self.headers).unwrap_or((0, 0));
        let mut rest = &self.headers[skip..];
        (0..count).map_while(move |_| {
            let name = text_in_front(read_bytes(&mut rest)??);
            Some((name, read_bytes(&mut rest)?))
        })
    }

    /// How many headers there are.
    pub fn header_count(&self) -> i32 {
        read_i32(self.headers).map_or(0, |(count, _)| count)
    }
}

/// The UTF-8 that `bytes` begin with.
fn text_in_front(bytes: &[u8]) -> &str {
    let valid = match std::str::from_utf8(bytes) {
        Ok(text) => return text,
        Err(error) => error.valid_up_to(),
    };
    std::str::from_utf8(&bytes[..valid]).unwrap_or_default()
}

/// Reads a length and that many bytes; the outer `None` says malformed, the inner one says null.
#[inline]
fn read_bytes<'a>(rest: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let (length, used) = read_i32(rest).ok()?;
    let after = &rest[used..];
    if length < 0 {
        *rest = after;
        return (length == -1).then_some(None);
    }
    if after.len() < length as usize {
        return None;
    }
    let (bytes, tail) = after.split_at(length as usize);
    *rest = tail;
    Some(Some(bytes))
}

/// The records of one batch, in order. Malformed bytes give one error, then the end.
pub struct Records<'a> {
    rest: &'a [u8],
    index: i32,
    count: i32,
}

impl<'a> Records<'a> {
    /// Iterates over `count` records in the uncompressed bytes behind a batch's header.
    pub fn new(uncompressed: &'a [u8], count: i32) -> Records<'a> {
        Records { rest: uncompressed, index: 0, count }
    }

    /// Bytes not read yet: 0 after the last record of a well-formed batch.
    pub fn remaining_bytes(&self) -> usize {
        self.rest.len()
    }

    fn read(&mut self) -> Result<Record<'a>, &'static str> {
        let (length, used) = read_i32(self.rest).map_err(|_| "its length is no varint")?;
        let after = &self.rest[used..];
        if length < 0 || after.len() < length as usize {
            return Err("its length exceeds the batch");
        }
        let (mut body, tail) = after.split_at(length as usize);
        self.rest = tail;
        read_record(&mut body)
    }
}

fn read_record<'a>(body: &mut &'a [u8]) -> Result<Record<'a>, &'static str> {
    if body.is_empty() {
        return Err("it is empty");
    }
    *body = &body[1..];
    let (timestamp_delta, used) = read_i64(body).map_err(|_| "its timestamp is no varint")?;
    *body = &body[used..];
    let (offset_delta, used) = read_i32(body).map_err(|_| "its offset is no varint")?;
    *body = &body[used..];
    let key = read_bytes(body).ok_or("its key exceeds it")?;
    let value = read_bytes(body).ok_or("its value exceeds it")?;
    let headers = *body;
    check_headers(body)?;
    Ok(Record { timestamp_delta, offset_delta, key, value, headers })
}

fn check_headers(body: &mut &[u8]) -> Result<(), &'static str> {
    let (count, used) = read_i32(body).map_err(|_| "its header count is no varint")?;
    if count < 0 {
        return Err("its header count is negative");
    }
    *body = &body[used..];
    for _ in 0..count {
        let name = read_bytes(body).ok_or("a header's name exceeds it")?;
        name.ok_or("a header's name is null")?;
        read_bytes(body).ok_or("a header's value exceeds it")?;
    }
    if body.is_empty() { Ok(()) } else { Err("bytes follow its headers") }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.index >= self.count {
            return None;
        }
        let index = self.index;
        match self.read() {
            Ok(record) => {
                self.index += 1;
                Some(Ok(record))
            }
            Err(reason) => {
                self.index = self.count;
                Some(Err(BatchError::Record { index, reason }))
            }
        }
    }
}

/// Builds one batch. The records stay uncompressed here; whoever compresses takes
/// [`BatchBuilder::records`] and ends with [`BatchBuilder::finish_compressed`].
#[derive(Debug, Clone)]
pub struct BatchBuilder {
    /// The header's place, then the records. One buffer, so that finishing copies nothing.
    bytes: Vec<u8>,
    base_timestamp: Timestamp,
    max_timestamp: Timestamp,
    last_offset_delta: i32,
    count: i32,
    producer: (ProducerId, ProducerEpoch, Sequence),
    /// Bits of the attributes above the codec: transactional, control.
    flags: i16,
    base_offset: Offset,
    leader_epoch: LeaderEpoch,
}

impl Default for BatchBuilder {
    fn default() -> BatchBuilder {
        BatchBuilder::new()
    }
}

impl BatchBuilder {
    /// An empty batch at offset 0 of a producer that is not idempotent.
    pub fn new() -> BatchBuilder {
        BatchBuilder::over(Vec::new())
    }

    /// As [`BatchBuilder::new`], in the memory of `buffer`, whose contents are dropped: whoever
    /// builds batch after batch allocates nothing.
    pub fn over(mut buffer: Vec<u8>) -> BatchBuilder {
        buffer.clear();
        buffer.resize(HEADER_BYTES, 0);
        BatchBuilder {
            bytes: buffer,
            base_timestamp: Timestamp::NONE,
            max_timestamp: Timestamp::NONE,
            last_offset_delta: -1,
            count: 0,
            producer: (ProducerId::NONE, ProducerEpoch::NONE, Sequence::NONE),
            flags: 0,
            base_offset: Offset(0),
            leader_epoch: LeaderEpoch::NONE,
        }
    }

    /// Marks it as written by an idempotent producer.
    pub fn producer(mut self, id: ProducerId, epoch: ProducerEpoch, first: Sequence) -> Self {
        self.producer = (id, epoch, first);
        self
    }

    /// Places it: what a leader stamps at append.
    pub fn placed(mut self, base_offset: Offset, leader_epoch: LeaderEpoch) -> Self {
        self.base_offset = base_offset;
        self.leader_epoch = leader_epoch;
        self
    }

    /// Sets attribute bits above the codec and the timestamp type: 0x10 transactional, 0x20 control.
    pub fn flags(mut self, flags: i16) -> Self {
        assert_eq!(flags & 0x07, 0, "the codec is set when the batch is finished");
        self.flags = flags;
        self
    }

    /// Adds a record at the next offset.
    pub fn add(&mut self, timestamp: Timestamp, key: Option<&[u8]>, value: Option<&[u8]>) {
        self.add_with_headers(timestamp, key, value, &[]);
    }

    /// Adds a record with headers at the next offset.
    pub fn add_with_headers(
        &mut self,
        timestamp: Timestamp,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[Header<'_>],
    ) {
        self.add_at(self.last_offset_delta + 1, timestamp, key, value, headers);
    }

    /// Adds a record at an offset delta of the caller's, larger than the last one: compaction
    /// leaves gaps.
    pub fn add_at(
        &mut self,
        offset_delta: i32,
        timestamp: Timestamp,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[Header<'_>],
    ) {
        assert!(offset_delta > self.last_offset_delta, "offsets within a batch must rise");
        let base_timestamp = if self.count == 0 { timestamp } else { self.base_timestamp };
        let delta = timestamp.ms_since(base_timestamp);
        let size = record_size(delta, offset_delta, key, value, headers);
        self.write_record(size, offset_delta, timestamp, key, value, headers);
    }

    /// Adds a record with headers at the next offset, unless the batch would then be larger than
    /// `size_bytes_max`, which only a batch's first record may make it. Whether it was added.
    #[inline]
    pub fn add_within(
        &mut self,
        size_bytes_max: usize,
        timestamp: Timestamp,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[Header<'_>],
    ) -> bool {
        let base_timestamp = if self.count == 0 { timestamp } else { self.base_timestamp };
        let delta = timestamp.ms_since(base_timestamp);
        let offset_delta = self.last_offset_delta + 1;
        let size = record_size(delta, offset_delta, key, value, headers);
        let whole = self.bytes.len() + size_i64(size as i64) + size;
        if self.count > 0 && whole > size_bytes_max {
            return false;
        }
        self.write_record(size, offset_delta, timestamp, key, value, headers);
        true
    }

    /// Writes a record of `size` bytes behind its length.
    #[inline]
    fn write_record(
        &mut self,
        size: usize,
        offset_delta: i32,
        timestamp: Timestamp,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[Header<'_>],
    ) {
        if self.count == 0 {
            self.base_timestamp = timestamp;
        }
        let delta = timestamp.ms_since(self.base_timestamp);
        // All that stands before the key is at most 21 bytes: written at once, not byte by byte.
        let mut head = Head::default();
        head.varint(size as i64);
        head.push(0);
        head.varint(delta);
        head.varint(offset_delta as i64);
        head.varint(key.map_or(-1, |key| key.len() as i64));
        self.bytes.reserve(size + 2 * Head::BYTES_MAX);
        self.bytes.extend_from_slice(head.bytes());
        self.bytes.extend_from_slice(key.unwrap_or_default());
        let mut head = Head::default();
        head.varint(value.map_or(-1, |value| value.len() as i64));
        self.bytes.extend_from_slice(head.bytes());
        self.bytes.extend_from_slice(value.unwrap_or_default());
        match headers {
            [] => self.bytes.push(0),
            headers => write_headers(&mut self.bytes, headers),
        }
        self.max_timestamp = self.max_timestamp.max(timestamp);
        self.last_offset_delta = offset_delta;
        self.count += 1;
    }

    /// How many records were added.
    pub fn record_count(&self) -> i32 {
        self.count
    }

    /// Whether no record was added.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of the batch as it stands, uncompressed, header included.
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The uncompressed records, for whoever compresses them.
    pub fn records(&self) -> &[u8] {
        &self.bytes[HEADER_BYTES..]
    }

    /// The finished batch, uncompressed.
    pub fn finish(mut self) -> Vec<u8> {
        self.write_header(Compression::None);
        self.bytes
    }

    /// The finished batch with `compressed`, what the codec made of [`BatchBuilder::records`].
    pub fn finish_compressed(mut self, codec: Compression, compressed: &[u8]) -> Vec<u8> {
        self.bytes.truncate(HEADER_BYTES);
        self.bytes.extend_from_slice(compressed);
        self.write_header(codec);
        self.bytes
    }

    fn write_header(&mut self, codec: Compression) {
        let (producer_id, producer_epoch, base_sequence) = self.producer;
        let header = BatchHeader {
            base_offset: self.base_offset,
            size_bytes: self.bytes.len() as u32,
            leader_epoch: self.leader_epoch,
            crc: 0,
            attributes: self.flags | codec.code(),
            last_offset_delta: self.last_offset_delta.max(0),
            base_timestamp: self.base_timestamp,
            max_timestamp: self.max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            record_count: self.count,
        };
        header.encode(&mut self.bytes);
        batch::write_checksum(&mut self.bytes);
    }
}

/// Some varints, side by side.
#[derive(Default)]
struct Head {
    bytes: [u8; Head::BYTES_MAX],
    used: usize,
}

impl Head {
    /// Length, attributes, timestamp, offset, length of the key.
    const BYTES_MAX: usize = 5 + 1 + 10 + 5 + 5;

    #[inline]
    fn push(&mut self, byte: u8) {
        self.bytes[self.used] = byte;
        self.used += 1;
    }

    /// Adds a zigzag number.
    #[inline]
    fn varint(&mut self, value: i64) {
        let mut rest = ((value << 1) ^ (value >> 63)) as u64;
        while rest >= 0x80 {
            self.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        self.push(rest as u8);
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.used]
    }
}

fn write_headers(out: &mut Vec<u8>, headers: &[Header<'_>]) {
    write_i32(out, headers.len() as i32);
    for (name, value) in headers {
        write_bytes(out, Some(name.as_bytes()));
        write_bytes(out, *value);
    }
}

fn write_bytes(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => write_i32(out, -1),
        Some(bytes) => {
            write_i32(out, bytes.len() as i32);
            out.extend_from_slice(bytes);
        }
    }
}

#[inline]
fn bytes_size(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(1, |b| size_i64(b.len() as i64) + b.len())
}

/// Bytes of a record behind its length.
#[inline]
fn record_size(
    timestamp_delta: i64,
    offset_delta: i32,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: &[Header<'_>],
) -> usize {
    let fixed = 1 + size_i64(timestamp_delta) + size_i64(offset_delta as i64);
    let headers_size: usize =
        headers.iter().map(|(n, v)| bytes_size(Some(n.as_bytes())) + bytes_size(*v)).sum();
    fixed + bytes_size(key) + bytes_size(value) + size_i64(headers.len() as i64) + headers_size
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batches;

    fn sample() -> Vec<u8> {
        let mut builder = BatchBuilder::new();
        builder.add(Timestamp(1000), Some(b"k"), Some(b"v"));
        builder.add(Timestamp(990), None, Some(b""));
        builder.add_with_headers(
            Timestamp(1005),
            Some(b""),
            None,
            &[("h", Some(b"1")), ("h", None), ("", Some(b""))],
        );
        builder.finish()
    }

    #[test]
    fn records_and_back() {
        let bytes = sample();
        let header = BatchHeader::decode_checked(&bytes).unwrap();
        assert_eq!((header.record_count, header.last_offset_delta), (3, 2));
        assert_eq!(header.max_timestamp, Timestamp(1005));
        let records: Vec<_> = Records::new(&bytes[HEADER_BYTES..], 3).map(|r| r.unwrap()).collect();
        assert_eq!(records[0].key, Some(&b"k"[..]));
        assert_eq!((records[1].key, records[1].value), (None, Some(&b""[..])));
        assert_eq!(records[1].timestamp_delta, -10);
        assert_eq!((records[2].key, records[2].value), (Some(&b""[..]), None));
        let headers: Vec<_> = records[2].headers().collect();
        assert_eq!(headers, [("h", Some(&b"1"[..])), ("h", None), ("", Some(&b""[..]))]);
    }

    #[test]
    fn any_flipped_bit_behind_the_leader_epoch_is_found() {
        let bytes = sample();
        for at in 16..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                assert!(BatchHeader::decode_checked(&damaged).is_err(), "byte {at} bit {bit}");
            }
        }
    }

    #[test]
    fn stamping_keeps_the_checksum() {
        let mut bytes = sample();
        batch::stamp(&mut bytes, Offset(77), LeaderEpoch(5));
        let header = BatchHeader::decode_checked(&bytes).unwrap();
        assert_eq!((header.base_offset, header.leader_epoch), (Offset(77), LeaderEpoch(5)));
        batch::stamp_log_append_time(&mut bytes, Timestamp(5000));
        let header = BatchHeader::decode_checked(&bytes).unwrap();
        assert_eq!(header.max_timestamp, Timestamp(5000));
        assert_eq!(header.timestamp_type(), crate::TimestampType::LogAppendTime);
    }

    #[test]
    fn a_cut_batch_ends_the_iteration_with_one_error() {
        let mut bytes = sample();
        let whole = bytes.len();
        bytes.extend_from_slice(&sample()[..whole - 1]);
        let found: Vec<_> = Batches::new(&bytes).collect();
        assert_eq!(found.len(), 2);
        assert!(found[0].is_ok() && found[1].is_err());
    }

    #[test]
    fn malformed_records_are_errors_and_not_panics() {
        let bytes = sample();
        let records = &bytes[HEADER_BYTES..];
        for cut in 0..records.len() {
            assert!(Records::new(&records[..cut], 3).any(|r| r.is_err()), "cut at {cut}");
        }
        for at in 0..records.len() {
            let mut damaged = records.to_vec();
            damaged[at] = 0xff;
            Records::new(&damaged, 3).filter_map(Result::ok).for_each(|r| {
                r.headers().for_each(drop);
            });
        }
    }
}
