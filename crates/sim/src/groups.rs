//! Hosts the groups' shard: appends what it writes, tells it what is committed, passes its answers on.

use std::collections::VecDeque;
use std::sync::Arc;

use coordinator::{
    Effects, Event, GroupConfig, Loader, Reply, ReplyTo, Request, Shard, Write, WriteId,
};
use model::batch::Batches;
use model::record::BatchBuilder;
use model::{BatchHeader, ErrorCode, Offset, Timestamp};
use partition::{Acks, Append, Partition};
use storage::StorageError;

use crate::broker::{Woken, read_log, unreadable};

/// More than any batch of offsets expands to.
const BATCH_BYTES_MAX: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct Groups {
    shard: Shard,
    partition: Arc<Partition>,
    /// What is written and not yet committed, oldest first.
    uncommitted: VecDeque<(WriteId, Offset)>,
    woken: Arc<Woken>,
}

impl Groups {
    /// Reads all that is stored.
    pub(crate) fn load(partition: Arc<Partition>, now: Timestamp) -> Result<Groups, StorageError> {
        let mut loader = Loader::new(GroupConfig::default());
        replay(&partition, &mut loader)?;
        let (shard, effects) = loader.finish(now, |_, _| Default::default());
        let (uncommitted, woken) = (VecDeque::new(), Arc::default());
        let mut groups = Groups { shard, partition, uncommitted, woken };
        let replies = groups.perform(now, effects);
        assert!(replies.is_empty(), "nobody has asked yet");
        Ok(groups)
    }

    pub(crate) fn request(&mut self, now: Timestamp, to: ReplyTo, request: Request) -> Vec<Reply> {
        self.step(now, Event::Request { reply_to: to, request })
    }

    /// Tells the shard what was committed since the last time, and that time has passed.
    pub(crate) fn progress(&mut self, now: Timestamp) -> Vec<Reply> {
        let mut replies = Vec::new();
        if self.woken.take() {
            let high_watermark = self.partition.high_watermark();
            let committed = self.uncommitted.partition_point(|(_, end)| *end <= high_watermark);
            let last = self.uncommitted.drain(..committed).next_back();
            if let Some((write, _)) = last {
                replies.extend(self.step(now, Event::Committed { write }));
            }
            self.park();
        }
        if self.shard.next_deadline().is_some_and(|deadline| deadline <= now) {
            replies.extend(self.step(now, Event::Expire));
        }
        replies
    }

    fn step(&mut self, now: Timestamp, event: Event) -> Vec<Reply> {
        let mut effects = Effects::default();
        self.shard.step(now, event, &mut effects);
        self.shard.assert_consistent();
        self.perform(now, effects)
    }

    fn perform(&mut self, now: Timestamp, effects: Effects) -> Vec<Reply> {
        let mut replies = effects.replies;
        for write in effects.writes {
            let from = write.id;
            if self.append(now, write).is_err() {
                let error = ErrorCode::KafkaStorageError;
                replies.extend(self.step(now, Event::AppendFailed { from, error }));
                break;
            }
        }
        self.park();
        replies
    }

    fn append(&mut self, now: Timestamp, write: Write) -> Result<(), partition::PartitionError> {
        let mut builder = BatchBuilder::new();
        for record in &write.records {
            builder.add(write.timestamp, Some(&record.key), record.value.as_deref());
        }
        let how = Append { acks: Acks::All, now, internal: true };
        let appended = self.partition.append(&mut builder.finish(), how)?;
        self.uncommitted.push_back((write.id, appended.needed));
        Ok(())
    }

    /// Asks to be woken for the oldest write that is not committed.
    fn park(&mut self) {
        if let Some((_, needed)) = self.uncommitted.front()
            && self.partition.park(*needed, &self.woken.waker()).is_none()
        {
            self.woken.set();
        }
    }
}

fn replay(partition: &Partition, loader: &mut Loader) -> Result<(), StorageError> {
    let mut buffer = Vec::new();
    let bytes = read_log(partition)?;
    for batch in Batches::new(&bytes) {
        let (_, batch) = batch.map_err(|error| unreadable(partition, error))?;
        let header =
            BatchHeader::decode_checked(batch).map_err(|error| unreadable(partition, error))?;
        let records = compression::records::read(&header, batch, BATCH_BYTES_MAX, &mut buffer)
            .expect("what has its checksum was written by us");
        for record in records {
            let record = record.expect("what has its checksum was written by us");
            let key = record.key.expect("the groups' records have keys");
            loader.replay(key, record.value).expect("what has its checksum was written by us");
        }
    }
    Ok(())
}
