//! What a batch's stamps must be: base offset, length and leader epoch stand before its checksum, so
//! nothing in the batch tells that one of them is not what was written.
//!
//! Its neighbours do. Offsets rise in every log. In a dense part, in which only this log assigned them,
//! each batch begins where the one before ends: compaction leaves an empty batch where it took others away. Its epoch is the one
//! that the epoch history has there. Where Kafka wrote, or an earlier version compacted, a base offset that stays within a gap
//! cannot be told from the right one; epochs can.

use model::{BatchHeader, LeaderEpoch, Offset};

/// What is known of the batches of a log.
#[derive(Clone, Debug)]
pub(crate) struct Stamps {
    /// From here on no offset is missing; the largest offset there is if that is nowhere so.
    dense_from: Offset,
    /// The epochs with the offsets at which they began; none if they do not speak for every batch.
    epochs: Vec<(LeaderEpoch, Offset)>,
}

impl Stamps {
    /// `epochs` are those of the whole log, or none; from `from` on batches are looked at.
    pub(crate) fn new(
        dense_from: Offset,
        from: Offset,
        epochs: &[(LeaderEpoch, Offset)],
    ) -> Stamps {
        // A search for an offset may begin some batches before.
        let before = epochs.partition_point(|(_, start)| *start <= from).saturating_sub(1);
        Stamps { dense_from, epochs: epochs[before..].to_vec() }
    }

    /// Whether an offset missing at `offset` is damage.
    pub(crate) fn is_dense(&self, offset: Offset) -> bool {
        offset >= self.dense_from
    }

    /// The epoch of the batch at `offset`; `None` where it is not known, as before the log's start.
    fn epoch_at(&self, offset: Offset) -> Option<LeaderEpoch> {
        let begun = self.epochs.partition_point(|(_, start)| *start <= offset);
        begun.checked_sub(1).map(|last| self.epochs[last].0)
    }

    /// A chain of batches of a segment that ends before the offset `end`. `expected`: where its first
    /// batch begins, or in a part that is not dense, begins at the earliest; `None` if that is not known.
    pub(crate) fn chain(&self, expected: Option<Offset>, end: Offset) -> Chain<'_> {
        Chain { stamps: self, expected, end }
    }
}

/// Batches that follow one another.
pub(crate) struct Chain<'a> {
    stamps: &'a Stamps,
    expected: Option<Offset>,
    end: Offset,
}

impl Chain<'_> {
    /// Takes the next batch in. Fails, with the reason, if it cannot be the next one.
    pub(crate) fn take(&mut self, header: &BatchHeader) -> Result<(), String> {
        let found = header.base_offset;
        if let Some(expected) = self.expected {
            let missing = found > expected && self.stamps.is_dense(expected);
            if found < expected || missing {
                return Err(format!("offset {found} follows where {expected} is due"));
            }
        }
        if header.next_offset() > self.end {
            let (last, end) = (header.last_offset(), self.end);
            return Err(format!("offsets {found} to {last}, and the segment ends at {end}"));
        }
        let epoch = header.leader_epoch;
        // Kafka has written batches without an epoch.
        let known = self.stamps.epoch_at(found).filter(|_| epoch != LeaderEpoch::NONE);
        if let Some(due) = known.filter(|due| *due != epoch) {
            return Err(format!("leader epoch {epoch} at offset {found}, where it was {due}"));
        }
        self.expected = Some(header.next_offset());
        Ok(())
    }

    /// The offset behind the last batch that was taken in.
    pub(crate) fn expected(&self) -> Option<Offset> {
        self.expected
    }
}

#[cfg(test)]
mod tests {
    use model::record::BatchBuilder;
    use model::{LeaderEpoch, Timestamp, batch};

    use super::*;

    fn header(base: i64, records: usize, epoch: i32) -> BatchHeader {
        let mut builder = BatchBuilder::new();
        (0..records).for_each(|_| builder.add(Timestamp(1), None, Some(b"v")));
        let mut bytes = builder.finish();
        batch::stamp(&mut bytes, Offset(base), LeaderEpoch(epoch));
        BatchHeader::decode(&bytes).unwrap()
    }

    #[test]
    fn each_stamp_that_is_not_the_one_due_is_told() {
        let epochs = [(LeaderEpoch(0), Offset(0)), (LeaderEpoch(4), Offset(6))];
        let stamps = Stamps::new(Offset(0), Offset(3), &epochs);
        let told = |bases: &[(i64, i32)]| {
            let mut chain = stamps.chain(Some(Offset(3)), Offset(20));
            let wrong = |(base, epoch): &(i64, i32)| chain.take(&header(*base, 3, *epoch)).err();
            bases.iter().find_map(wrong)
        };
        assert_eq!(told(&[(3, 0), (6, 4), (9, 4)]), None);
        for wrong in [
            &[(4, 0)][..],
            &[(2, 0)],
            &[(3, 1)],
            &[(3, 0), (7, 4)],
            &[(3, 0), (6, 0)],
            &[(3, i32::MIN)],
            &[(3, 0), (6, 4), (9, 4), (12, 4), (15, 4), (18, 4)],
        ] {
            assert!(told(wrong).is_some(), "{wrong:?}");
        }
    }

    #[test]
    fn where_there_may_be_gaps_only_the_order_tells() {
        let stamps = Stamps::new(Offset(10), Offset(0), &[(LeaderEpoch(9), Offset(10))]);
        let mut chain = stamps.chain(None, Offset(20));
        assert_eq!(chain.take(&header(2, 1, 7)), Ok(()));
        assert_eq!(chain.take(&header(8, 2, 3)), Ok(()));
        assert!(chain.take(&header(11, 1, 9)).is_err(), "from 10 on nothing is missing");
        assert_eq!(chain.take(&header(10, 1, 9)), Ok(()));
        assert!(chain.take(&header(5, 1, 9)).is_err());
        let compacted = Stamps::new(Offset(10), Offset(0), &[(LeaderEpoch(2), Offset(0))]);
        assert_eq!(compacted.chain(None, Offset(20)).take(&header(4, 1, 2)), Ok(()));
        assert!(compacted.chain(None, Offset(20)).take(&header(4, 1, 3)).is_err());
    }
}
