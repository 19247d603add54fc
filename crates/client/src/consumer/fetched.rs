//! What a poll gives: the records of one partition, as they came over the network, to be read
//! without an allocation for each of them.

use crate::error::ClientError;
use bytes::Bytes;
use model::batch::Batches;
use model::record::{Header, Record};
use model::{
    BatchHeader, LeaderEpoch, Offset, ProducerId, Timestamp, TimestampType, TopicPartition,
};
use std::collections::HashSet;
use std::ops::ControlFlow;
use wire::fetch::PartitionData;

/// One record as a consumer sees it.
#[derive(Debug, Clone, Copy)]
pub struct ConsumerRecord<'a> {
    /// Its offset.
    pub offset: Offset,
    /// Its timestamp.
    pub timestamp: Timestamp,
    /// Who set the timestamp.
    pub timestamp_type: TimestampType,
    /// The key, or null.
    pub key: Option<&'a [u8]>,
    /// The value, or null.
    pub value: Option<&'a [u8]>,
    /// The leader epoch in which it was taken.
    pub leader_epoch: LeaderEpoch,
    record: Record<'a>,
}

impl<'a> ConsumerRecord<'a> {
    /// The headers in their order.
    pub fn headers(&self) -> impl Iterator<Item = Header<'a>> + use<'a> {
        self.record.headers()
    }
}

/// Records of one partition.
#[derive(Debug, Clone)]
pub struct Fetched {
    /// The partition.
    pub partition: TopicPartition,
    /// The first offset that was asked for; records before it in its batch are left out.
    pub fetch_offset: Offset,
    /// The offset behind all of this.
    pub next_offset: Offset,
    /// The leader epoch of the last batch.
    pub leader_epoch: LeaderEpoch,
    /// The partition's high watermark at that time.
    pub high_watermark: Offset,
    /// Whole batches.
    batches: Bytes,
    /// Transactions that were aborted, by their first offset; `None` for readers of everything.
    aborted: Option<Vec<(Offset, ProducerId)>>,
}

/// To how many bytes a batch may expand.
const EXPANDED_BYTES_MAX: usize = 1 << 30;

impl Fetched {
    /// Takes the batches of an answer; checks their checksums if told so.
    pub(crate) fn of(
        partition: &TopicPartition,
        fetch_offset: Offset,
        data: &PartitionData,
        read_committed: bool,
        check_crcs: bool,
    ) -> Result<Fetched, ClientError> {
        let bytes = data.records.clone().unwrap_or_default();
        let (mut next_offset, mut leader_epoch) = (fetch_offset, LeaderEpoch::NONE);
        let mut whole = 0;
        let mut batches = Batches::new(&bytes);
        // The last batch may be cut: the broker fills what was allowed.
        while let Some(Ok((header, batch))) = batches.next() {
            if check_crcs {
                let corrupt = |e: model::BatchError| corrupt(partition, &header, e);
                BatchHeader::decode_checked(batch).map_err(corrupt)?;
            }
            next_offset = next_offset.max(header.next_offset());
            leader_epoch = header.leader_epoch;
            whole += batch.len();
        }
        Ok(Fetched {
            partition: partition.clone(),
            fetch_offset,
            next_offset,
            leader_epoch,
            high_watermark: Offset(data.high_watermark),
            batches: bytes.slice(..whole),
            aborted: read_committed.then(|| aborted_of(data)),
        })
    }

    /// Whether there is nothing in it, not even a batch without records for users.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Bytes as fetched.
    pub fn size_bytes(&self) -> usize {
        self.batches.len()
    }

    /// The batches as fetched, whole ones only.
    pub fn batches(&self) -> &Bytes {
        &self.batches
    }

    /// Reads every record in order; compressed ones by way of `buffer`, which may be used again
    /// and again. Control batches and aborted transactions are left out. Returns how many records
    /// there were.
    pub fn for_each(
        &self,
        buffer: &mut Vec<u8>,
        mut record: impl FnMut(ConsumerRecord<'_>),
    ) -> Result<usize, ClientError> {
        let mut count = 0;
        self.read(EXPANDED_BYTES_MAX, buffer, |seen| {
            record(seen);
            count += 1;
            ControlFlow::Continue(())
        })?;
        Ok(count)
    }

    /// As [`Fetched::for_each`], until `record` breaks off; a batch gets no more than `expanded_bytes_max` to expand to. Returns
    /// the offset at which to read on: that of the record at which it was broken off, or the one behind all of this.
    ///
    /// # Errors
    /// A batch is damaged, or expands to more.
    pub fn read(
        &self,
        expanded_bytes_max: usize,
        buffer: &mut Vec<u8>,
        mut record: impl FnMut(ConsumerRecord<'_>) -> ControlFlow<()>,
    ) -> Result<Offset, ClientError> {
        let mut aborted = Aborted::new(self.aborted.as_deref().unwrap_or_default());
        for (header, batch) in Batches::new(&self.batches).map_while(Result::ok) {
            let is_before = header.last_offset() < self.fetch_offset;
            if aborted.hides(&header, batch) || header.is_control() || is_before {
                continue;
            }
            let failed = |e: &dyn std::fmt::Display| corrupt(&self.partition, &header, e);
            let records = compression::records::read(&header, batch, expanded_bytes_max, buffer);
            for found in records.map_err(|e| failed(&e))? {
                let found = found.map_err(|e| failed(&e))?;
                let seen = consumer_record(&header, found);
                if seen.offset >= self.fetch_offset && record(seen).is_break() {
                    return Ok(seen.offset);
                }
            }
        }
        Ok(self.next_offset)
    }
}

fn corrupt(
    partition: &TopicPartition,
    header: &BatchHeader,
    reason: impl std::fmt::Display,
) -> ClientError {
    ClientError::Corrupt {
        partition: partition.to_string(),
        offset: header.base_offset.0,
        reason: reason.to_string(),
    }
}

fn consumer_record<'a>(header: &BatchHeader, record: Record<'a>) -> ConsumerRecord<'a> {
    let timestamp_type = header.timestamp_type();
    ConsumerRecord {
        offset: header.base_offset.plus(record.offset_delta as i64),
        timestamp: match timestamp_type {
            TimestampType::CreateTime => header.base_timestamp.plus_ms(record.timestamp_delta),
            TimestampType::LogAppendTime => header.max_timestamp,
        },
        timestamp_type,
        key: record.key,
        value: record.value,
        leader_epoch: header.leader_epoch,
        record,
    }
}

fn aborted_of(data: &PartitionData) -> Vec<(Offset, ProducerId)> {
    let list = data.aborted_transactions.iter().flatten();
    let mut out: Vec<_> =
        list.map(|a| (Offset(a.first_offset), ProducerId(a.producer_id))).collect();
    out.sort();
    out
}

/// Which producers are, at the batch being read, within a transaction that was aborted.
struct Aborted<'a> {
    rest: &'a [(Offset, ProducerId)],
    open: HashSet<ProducerId>,
}

impl<'a> Aborted<'a> {
    fn new(list: &'a [(Offset, ProducerId)]) -> Aborted<'a> {
        Aborted { rest: list, open: HashSet::new() }
    }

    /// Whether a batch belongs to an aborted transaction. Batches must come in order.
    fn hides(&mut self, header: &BatchHeader, batch: &[u8]) -> bool {
        if !header.is_transactional() {
            return false;
        }
        while let Some(((first, producer), rest)) = self.rest.split_first() {
            if *first > header.last_offset() {
                break;
            }
            self.open.insert(*producer);
            self.rest = rest;
        }
        if header.is_control() {
            if is_abort(header, batch) {
                self.open.remove(&header.producer_id);
            }
            return true;
        }
        self.open.contains(&header.producer_id)
    }
}

/// Whether a control batch is the marker of an abort: its key says type 0 in version 0.
fn is_abort(header: &BatchHeader, batch: &[u8]) -> bool {
    let records = &batch[model::batch::HEADER_BYTES..];
    let mut records = model::record::Records::new(records, header.record_count);
    let key = records.next().and_then(Result::ok).and_then(|record| record.key);
    key.is_some_and(|key| key.get(2..4) == Some(&[0, 0]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::record::BatchBuilder;
    use model::{ProducerEpoch, Sequence};

    fn batch(offset: i64, producer: i64, flags: i16, key: &[u8], value: &[u8]) -> Vec<u8> {
        let mut builder = BatchBuilder::new()
            .placed(Offset(offset), LeaderEpoch(3))
            .producer(ProducerId(producer), ProducerEpoch(0), Sequence(0))
            .flags(flags);
        builder.add(Timestamp(7), Some(key), Some(value));
        builder.finish()
    }

    fn data(batches: &[Vec<u8>], aborted: &[(i64, i64)]) -> PartitionData {
        let aborted = aborted.iter().map(|(producer_id, first_offset)| {
            let (producer_id, first_offset) = (*producer_id, *first_offset);
            wire::fetch::AbortedTransaction { producer_id, first_offset }
        });
        PartitionData {
            records: Some(Bytes::from(batches.concat())),
            aborted_transactions: Some(aborted.collect()),
            ..Default::default()
        }
    }

    fn values(data: &PartitionData, from: i64, read_committed: bool) -> Vec<String> {
        let partition = TopicPartition::new("t", 0);
        let fetched = Fetched::of(&partition, Offset(from), data, read_committed, true).unwrap();
        let mut out = Vec::new();
        let text = |r: ConsumerRecord<'_>| {
            out.push(format!("{}={}", r.offset, String::from_utf8_lossy(r.value.unwrap())));
        };
        fetched.for_each(&mut Vec::new(), text).unwrap();
        out
    }

    #[test]
    fn aborted_transactions_are_left_out() {
        const TRANSACTIONAL: i16 = 0x10;
        const MARKER: i16 = 0x30;
        let batches = [
            batch(0, 1, TRANSACTIONAL, b"", b"a1"),
            batch(1, 2, TRANSACTIONAL, b"", b"b1"),
            batch(2, 1, MARKER, &[0, 0, 0, 0], b""),
            batch(3, 1, TRANSACTIONAL, b"", b"a2"),
            batch(4, 2, MARKER, &[0, 0, 0, 1], b""),
            batch(5, 1, MARKER, &[0, 0, 0, 1], b""),
        ];
        let data = data(&batches, &[(1, 0)]);
        assert_eq!(values(&data, 0, true), ["1=b1", "3=a2"]);
        assert_eq!(values(&data, 0, false), ["0=a1", "1=b1", "3=a2"]);
        assert_eq!(values(&data, 2, false), ["3=a2"]);
    }

    #[test]
    fn a_cut_batch_is_left_for_the_next_fetch() {
        let mut cut = batch(1, -1, 0, b"", b"second");
        cut.truncate(70);
        let data = data(&[batch(0, -1, 0, b"", b"first"), cut], &[]);
        let partition = TopicPartition::new("t", 0);
        let fetched = Fetched::of(&partition, Offset(0), &data, false, true).unwrap();
        assert_eq!(fetched.next_offset, Offset(1));
        assert_eq!(values(&data, 0, false), ["0=first"]);
    }

    #[test]
    fn a_damaged_batch_is_an_error() {
        let mut bytes = batch(0, -1, 0, b"", b"value");
        *bytes.last_mut().unwrap() ^= 1;
        let data = data(&[bytes], &[]);
        let partition = TopicPartition::new("t", 0);
        let result = Fetched::of(&partition, Offset(0), &data, false, true);
        assert!(matches!(result, Err(ClientError::Corrupt { offset: 0, .. })));
    }
}
