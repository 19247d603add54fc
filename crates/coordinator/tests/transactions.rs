//! Offsets that groups commit in transactions, as a loader reads them from a log of Kafka.

use coordinator::records::{CommittedOffset, Record};
use coordinator::{GroupConfig, GroupId, Loader};
use model::{LeaderEpoch, Offset, ProducerId, Timestamp, TopicPartition, Uuid};

const ONE: ProducerId = ProducerId(1);
const TWO: ProducerId = ProducerId(2);

/// Entries of a log, and the loader that reads them.
struct Log {
    loader: Loader,
    end: i64,
}

impl Log {
    fn new() -> Log {
        Log { loader: Loader::new(GroupConfig::default()), end: 0 }
    }

    /// The next record: the group's offset for its only partition; `None` is a tombstone.
    fn record(mut self, transaction: Option<ProducerId>, offset: Option<i64>) -> Log {
        let value = offset.map(|offset| CommittedOffset {
            offset: Offset(offset),
            leader_epoch: LeaderEpoch::NONE,
            metadata: "".into(),
            commit_timestamp: Timestamp(1),
            expire_timestamp: None,
            topic_id: Uuid::ZERO,
        });
        let (group, partition) = (GroupId::from("g"), TopicPartition::new("t", 0));
        let bytes = Record::OffsetCommit { group, partition, value }.encode();
        let at = Offset(self.end);
        let value = bytes.value.as_deref();
        self.loader.replay_at(at, transaction, &bytes.key, value).unwrap();
        self.end += 1;
        self
    }

    fn end(mut self, producer: ProducerId, is_committed: bool) -> Log {
        self.loader.end_transaction(producer, is_committed);
        self.end += 1;
        self
    }

    /// The group's offset once the log is read.
    fn offset(self) -> Option<i64> {
        let (shard, _) = self.loader.finish(Timestamp(2), |_, _| Default::default());
        let partition = TopicPartition::new("t", 0);
        shard.durable().offset(&"g".into(), &partition).map(|stored| stored.offset.0)
    }
}

#[test]
fn an_offset_counts_once_its_transaction_is_committed() {
    let plain = || Log::new().record(None, Some(1));
    assert_eq!(plain().record(Some(ONE), Some(2)).offset(), Some(1), "open");
    assert_eq!(plain().record(Some(ONE), Some(2)).end(ONE, false).offset(), Some(1), "aborted");
    assert_eq!(plain().record(Some(ONE), Some(2)).end(ONE, true).offset(), Some(2), "committed");
    let other = plain().record(Some(ONE), Some(2)).end(TWO, true);
    assert_eq!(other.offset(), Some(1), "of another producer");
    let next = plain().record(Some(ONE), Some(2)).end(ONE, false).end(ONE, true);
    assert_eq!(next.offset(), Some(1), "the next transaction of the producer");
}

#[test]
fn the_newer_record_counts_whichever_transaction_ends_first() {
    let both = || Log::new().record(Some(ONE), Some(1)).record(Some(TWO), Some(2));
    assert_eq!(both().end(TWO, true).end(ONE, true).offset(), Some(2));
    assert_eq!(both().end(ONE, true).end(TWO, true).offset(), Some(2));
    assert_eq!(both().end(TWO, false).end(ONE, true).offset(), Some(1));
    let plain = Log::new().record(Some(ONE), Some(1)).record(None, Some(3)).end(ONE, true);
    assert_eq!(plain.offset(), Some(3));
    let deleted = Log::new().record(Some(ONE), Some(1)).record(None, None).end(ONE, true);
    assert_eq!(deleted.offset(), None);
}
