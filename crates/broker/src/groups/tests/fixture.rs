//! What tests of groups need: a partition on a simulated disk, and records of groups in it.

use std::path::Path;
use std::sync::Arc;

use coordinator::request::{OffsetCommit, PartitionCommit, TopicCommits};
use coordinator::{Effects, Event, GroupConfig, ReplyTo, Request, Shard};
use model::record::BatchBuilder;
use model::{
    BrokerId, Durability, GenerationId, LeaderEpoch, Moment, Offset, PartitionIndex, Timestamp,
    TopicPartition, Uuid,
};
use partition::{Acks, Append, Assignment, Partition, Settings};
use storage::disk::{Disk, SimDisk};
use storage::{Log, Opening};

/// When everything is stored.
pub(in crate::groups) const NOW: Timestamp = Timestamp(1_000_000);

/// A partition that this broker leads alone.
pub(in crate::groups) fn partition_with(durability: Durability) -> Arc<Partition> {
    partition_on(Arc::new(SimDisk::new()), durability)
}

/// The same on a given disk, in `data/t-0`.
pub(in crate::groups) fn partition_on(
    disk: Arc<dyn Disk>,
    durability: Durability,
) -> Arc<Partition> {
    disk.create_dir_all(Path::new("data/t-0")).unwrap();
    let settings = Arc::new(Settings { durability, ..Settings::default() });
    let (dir, opening) = (Path::new("data/t-0").to_owned(), Opening::unknown(NOW));
    let log = Log::open(disk, dir, settings.log.clone(), opening).unwrap();
    let (name, me, id) = (TopicPartition::new("t", 0), BrokerId(1), Uuid::from_random([1; 16]));
    let partition = Partition::new(name, id, me, log, settings, Offset(0), Arc::default());
    partition.assign(Assignment::alone(me, LeaderEpoch(0)), Moment::START);
    partition
}

/// Appends this record; where the log ends then.
pub(in crate::groups) fn append(
    partition: &Arc<Partition>,
    key: &[u8],
    value: Option<&[u8]>,
) -> Offset {
    let mut batch = BatchBuilder::new();
    batch.add(NOW, Some(key), value);
    let how = Append { acks: Acks::Leader, now: NOW, internal: true };
    partition.append(&mut batch.finish(), how).unwrap().needed
}

/// Appends what a coordinator writes for a position that this group stores.
pub(in crate::groups) fn store(partition: &Arc<Partition>, group: &str) -> Offset {
    let commit = PartitionCommit {
        partition: PartitionIndex(0),
        offset: Offset(7),
        leader_epoch: LeaderEpoch::NONE,
        metadata: "".into(),
    };
    let request = OffsetCommit {
        lent: coordinator::request::Lent::default(),
        lent_metadata: coordinator::request::Lent::default(),
        group: group.into(),
        member: Default::default(),
        instance: None,
        generation_id: GenerationId(-1),
        retention_ms: None,
        topics: vec![TopicCommits {
            topic: "read".into(),
            topic_id: Uuid::ZERO,
            partitions: vec![commit],
        }],
    };
    let event = Event::Request { reply_to: ReplyTo(0), request: Request::OffsetCommit(request) };
    let mut effects = Effects::default();
    Shard::new(GroupConfig::default(), NOW).step(NOW, event, &mut effects);
    let record = &effects.writes[0].records[0];
    append(partition, &record.key, record.value.as_deref())
}
