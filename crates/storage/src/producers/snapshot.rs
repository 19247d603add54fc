//! The file that saves reading all batches to know the producers: Kafka's snapshot, version 1.
//!
//! ```text
//! | version i16 = 1 | CRC-32C of what follows u32 | count i32 |
//! count x | producer id i64 | epoch i16 | last sequence i32 | last offset i64 | offset delta i32 |
//!         | timestamp i64 | coordinator epoch i32 | first offset of its transaction i64 |
//! ```
//!
//! `<offset>.snapshot` holds the state of everything below that offset. It is never needed: where
//! one is missing or damaged, an older one and the batches behind it do.

use model::{Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

use super::{Producer, Producers, WrittenBatch};

const VERSION: i16 = 1;
const HEAD_BYTES: usize = 10;
const ENTRY_BYTES: usize = 46;

/// The content of a snapshot of these producers.
pub(crate) fn encode(producers: &Producers) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD_BYTES + producers.len() * ENTRY_BYTES);
    bytes.extend_from_slice(&VERSION.to_be_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&(producers.len() as i32).to_be_bytes());
    producers.iter().for_each(|(id, producer)| encode_entry(id, producer, &mut bytes));
    let crc = checksum(&bytes);
    bytes[2..6].copy_from_slice(&crc.to_be_bytes());
    bytes
}

fn encode_entry(id: ProducerId, producer: &Producer, out: &mut Vec<u8>) {
    let last = producer.last_batch().copied().unwrap_or(WrittenBatch::NONE);
    let transaction_start = producer.transaction_start.unwrap_or(Offset(-1));
    out.extend_from_slice(&id.0.to_be_bytes());
    out.extend_from_slice(&producer.epoch.0.to_be_bytes());
    out.extend_from_slice(&last.last_sequence.0.to_be_bytes());
    out.extend_from_slice(&last.last_offset.0.to_be_bytes());
    out.extend_from_slice(&last.offset_delta.to_be_bytes());
    out.extend_from_slice(&producer.last_timestamp.0.to_be_bytes());
    out.extend_from_slice(&producer.coordinator_epoch.to_be_bytes());
    out.extend_from_slice(&transaction_start.0.to_be_bytes());
}

/// The producers in a snapshot; `None` if it is not one, whole and undamaged.
pub(crate) fn decode(bytes: &[u8]) -> Option<Producers> {
    let head = bytes.get(..HEAD_BYTES)?;
    let version = i16::from_be_bytes(head[..2].try_into().ok()?);
    let crc = u32::from_be_bytes(head[2..6].try_into().ok()?);
    let count = i32::from_be_bytes(head[6..].try_into().ok()?);
    let entries = &bytes[HEAD_BYTES..];
    let whole = usize::try_from(count).ok()?.checked_mul(ENTRY_BYTES) == Some(entries.len());
    if version != VERSION || !whole || crc != checksum(bytes) {
        return None;
    }
    let mut producers = Producers::default();
    for entry in entries.chunks_exact(ENTRY_BYTES) {
        let (id, producer) = decode_entry(entry);
        producers.restore(id, producer);
    }
    Some(producers)
}

fn decode_entry(entry: &[u8]) -> (ProducerId, Producer) {
    let i32_at = |at: usize| i32::from_be_bytes(entry[at..at + 4].try_into().expect("four bytes"));
    let i64_at = |at: usize| i64::from_be_bytes(entry[at..at + 8].try_into().expect("eight bytes"));
    let epoch = i16::from_be_bytes(entry[8..10].try_into().expect("two bytes"));
    let mut producer = Producer::new(ProducerEpoch(epoch));
    let batch = WrittenBatch {
        last_sequence: Sequence(i32_at(10)),
        last_offset: Offset(i64_at(14)),
        offset_delta: i32_at(22),
        timestamp: Timestamp(i64_at(26)),
    };
    if batch.last_sequence != Sequence::NONE {
        producer.remember(batch);
    }
    producer.last_timestamp = batch.timestamp;
    producer.coordinator_epoch = i32_at(34);
    let start = Offset(i64_at(38));
    producer.transaction_start = (start >= Offset(0)).then_some(start);
    (ProducerId(i64_at(0)), producer)
}

/// Kafka's own way: the CRC-32C of everything behind the checksum's field.
fn checksum(snapshot: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(&snapshot[6..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Producers {
        let mut producers = Producers::default();
        for n in 0..3 {
            let mut producer = Producer::new(ProducerEpoch(n));
            producer.coordinator_epoch = n as i32 - 1;
            producer.remember(WrittenBatch {
                last_sequence: Sequence(n as i32 * 10),
                last_offset: Offset(n as i64 * 100),
                offset_delta: 3,
                timestamp: Timestamp(1_700_000_000_000),
            });
            producer.transaction_start = (n == 1).then_some(Offset(97));
            producers.restore(ProducerId(n as i64 + 5), producer);
        }
        producers
    }

    #[test]
    fn producers_and_back() {
        let bytes = encode(&sample());
        assert_eq!(decode(&bytes), Some(sample()));
        assert_eq!(decode(&encode(&Producers::default())), Some(Producers::default()));
    }

    #[test]
    fn any_flipped_bit_and_any_cut_is_noticed() {
        let bytes = encode(&sample());
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            assert_eq!(decode(&damaged), None, "byte {at}");
            assert_eq!(decode(&bytes[..at]), None, "cut at {at}");
        }
    }
}
