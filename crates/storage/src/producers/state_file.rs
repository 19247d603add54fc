//! Our own file of producers, `<offset>.producers`, beside Kafka's snapshot of the same offset.
//!
//! Kafka's keeps the last batch of each producer, so that after a clean stop a retry of an earlier
//! one is "out of order"; and it keeps the records' times, which a backfill sets to what it likes.
//! This one keeps all batches that a producer may have in flight, and when it last appended by this
//! broker's clock.
//!
//! ```text
//! | version i16 = 1 | CRC-32C of what follows u32 | offset i64 | count i32 |
//! count x | producer id i64 | epoch i16 | coordinator epoch i32 | first offset of its transaction i64
//!         | last timestamp i64 | appended at i64 | batches i8 |
//!           batches x | last sequence i32 | last offset i64 | offset delta i32 | timestamp i64 |
//! ```
//!
//! It is never needed: where it is missing or damaged, an older one or Kafka's and the batches behind
//! it do. Not here: Kafka's file (`snapshot.rs`).

use model::{Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

use super::{BATCHES_KEPT, Producer, Producers, WrittenBatch};

const VERSION: i16 = 1;
const HEAD_BYTES: usize = 18;
/// Where begins what the checksum covers.
const CHECKED_FROM: usize = 6;

/// The content of the file of these producers at `offset`.
pub(crate) fn encode(producers: &Producers, offset: Offset) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD_BYTES + producers.len() * 64);
    bytes.extend_from_slice(&VERSION.to_be_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&offset.0.to_be_bytes());
    bytes.extend_from_slice(&(producers.len() as i32).to_be_bytes());
    producers.iter().for_each(|(id, producer)| encode_producer(id, producer, &mut bytes));
    let crc = checksum(&bytes);
    bytes[2..CHECKED_FROM].copy_from_slice(&crc.to_be_bytes());
    bytes
}

fn encode_producer(id: ProducerId, producer: &Producer, out: &mut Vec<u8>) {
    let transaction_start = producer.transaction_start.unwrap_or(Offset(-1));
    out.extend_from_slice(&id.0.to_be_bytes());
    out.extend_from_slice(&producer.epoch.0.to_be_bytes());
    out.extend_from_slice(&producer.coordinator_epoch.to_be_bytes());
    out.extend_from_slice(&transaction_start.0.to_be_bytes());
    out.extend_from_slice(&producer.last_timestamp.0.to_be_bytes());
    out.extend_from_slice(&producer.appended_at.0.to_be_bytes());
    out.push(producer.batches().len() as u8);
    for batch in producer.batches() {
        out.extend_from_slice(&batch.last_sequence.0.to_be_bytes());
        out.extend_from_slice(&batch.last_offset.0.to_be_bytes());
        out.extend_from_slice(&batch.offset_delta.to_be_bytes());
        out.extend_from_slice(&batch.timestamp.0.to_be_bytes());
    }
}

/// The producers in the file of `offset`; `None` if it is not one, whole and undamaged, or belongs to
/// another offset.
pub(crate) fn decode(bytes: &[u8], offset: Offset) -> Option<Producers> {
    let mut fields = Fields(bytes);
    let version = i16::from_be_bytes(fields.take()?);
    let crc = u32::from_be_bytes(fields.take()?);
    if version != VERSION || crc != checksum(bytes) || fields.i64()? != offset.0 {
        return None;
    }
    let mut producers = Producers::default();
    for _ in 0..fields.i32()? {
        let (id, producer) = decode_producer(&mut fields)?;
        producers.restore(id, producer);
    }
    fields.0.is_empty().then_some(producers)
}

fn decode_producer(fields: &mut Fields<'_>) -> Option<(ProducerId, Producer)> {
    let id = ProducerId(fields.i64()?);
    let mut producer = Producer::new(ProducerEpoch(i16::from_be_bytes(fields.take()?)));
    producer.coordinator_epoch = fields.i32()?;
    let start = Offset(fields.i64()?);
    producer.transaction_start = (start >= Offset(0)).then_some(start);
    let last_timestamp = Timestamp(fields.i64()?);
    producer.appended_at = Timestamp(fields.i64()?);
    let [count] = fields.take()?;
    for _ in 0..count.min(BATCHES_KEPT as u8) {
        producer.remember(WrittenBatch {
            last_sequence: Sequence(fields.i32()?),
            last_offset: Offset(fields.i64()?),
            offset_delta: fields.i32()?,
            timestamp: Timestamp(fields.i64()?),
        });
    }
    producer.last_timestamp = last_timestamp;
    Some((id, producer))
}

/// What is left to be read.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    fn i32(&mut self) -> Option<i32> {
        self.take().map(i32::from_be_bytes)
    }

    fn i64(&mut self) -> Option<i64> {
        self.take().map(i64::from_be_bytes)
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(&bytes[CHECKED_FROM..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Producers {
        let mut producers = Producers::default();
        for n in 0..4 {
            let mut producer = Producer::new(ProducerEpoch(n));
            producer.coordinator_epoch = n as i32 - 1;
            for batch in 0..n * 2 {
                producer.remember(WrittenBatch {
                    last_sequence: Sequence(batch as i32 * 10),
                    last_offset: Offset(batch as i64 * 100),
                    offset_delta: 3,
                    timestamp: Timestamp(1_700_000_000_000),
                });
            }
            producer.last_timestamp = Timestamp(5);
            producer.appended_at = Timestamp(1_800_000_000_000 + n as i64);
            producer.transaction_start = (n == 1).then_some(Offset(97));
            producers.restore(ProducerId(n as i64 + 5), producer);
        }
        producers
    }

    #[test]
    fn producers_and_back_with_all_batches_and_the_time_of_the_append() {
        let bytes = encode(&sample(), Offset(700));
        assert_eq!(decode(&bytes, Offset(700)), Some(sample()));
        assert_eq!(decode(&bytes, Offset(701)), None, "under another name");
    }

    #[test]
    fn any_flipped_bit_and_any_cut_is_noticed() {
        let bytes = encode(&sample(), Offset(700));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            assert_eq!(decode(&damaged, Offset(700)), None, "byte {at}");
            assert_eq!(decode(&bytes[..at], Offset(700)), None, "cut at {at}");
        }
    }
}
