//! A damaged record: a value with another last byte, in a batch whose checksum is right.

use crate::produced::Produced;
use model::batch::{Batches, HEADER_BYTES, write_checksum};
use model::record::Records;
use model::{BatchHeader, Compression};

/// Changes a value in the produce request in `frame`. Returns whether there was a value that is not compressed.
pub fn damage(frame: &mut [u8], produced: &Produced) -> bool {
    produced
        .partitions
        .iter()
        .any(|partition| frame.get_mut(partition.batches.clone()).is_some_and(damage_batches))
}

/// Changes a value in the first of `batches` that has one and is not compressed. Returns whether one has.
fn damage_batches(batches: &mut [u8]) -> bool {
    let mut walk = Batches::new(batches);
    let found = loop {
        let from = walk.position();
        let Some(Ok((header, batch))) = walk.next() else { return false };
        if let Some(at) = last_value_byte(&header, batch) {
            break (from..from + batch.len(), at);
        }
    };
    let batch = &mut batches[found.0];
    batch[found.1] ^= 1;
    write_checksum(batch);
    true
}

/// Position in `batch` of the last byte of the first record value that has bytes.
fn last_value_byte(header: &BatchHeader, batch: &[u8]) -> Option<usize> {
    if header.compression() != Compression::None {
        return None;
    }
    let records = Records::new(&batch[HEADER_BYTES..], header.record_count);
    let mut values = records.map_while(Result::ok).filter_map(|record| record.value);
    let value = values.find(|value| !value.is_empty())?;
    // The value is a part of the batch: its position is the distance of the addresses.
    let from = value.as_ptr() as usize - batch.as_ptr() as usize;
    Some(from + value.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Timestamp;
    use model::record::BatchBuilder;

    #[test]
    fn a_damaged_batch_has_one_other_byte_and_a_right_checksum() {
        let mut builder = BatchBuilder::new();
        builder.add(Timestamp(1), Some(b"key"), None);
        builder.add(Timestamp(1), Some(b"key"), Some(b"value"));
        let mut batch = builder.finish();
        assert!(damage_batches(&mut batch));
        let header = BatchHeader::decode_checked(&batch).unwrap();
        let values: Vec<_> = Records::new(&batch[HEADER_BYTES..], header.record_count)
            .map(|record| record.unwrap().value)
            .collect();
        assert_eq!(values, [None, Some(&b"valud"[..])]);
    }

    #[test]
    fn batches_without_a_value_are_left() {
        let mut builder = BatchBuilder::new();
        builder.add(Timestamp(1), Some(b"key"), None);
        let mut batch = builder.finish();
        let before = batch.clone();
        assert!(!damage_batches(&mut batch));
        assert!(!damage_batches(&mut []));
        assert_eq!(batch, before);
    }
}
