//! Removing what groups stored: by topics' ids, and in writes that stay small however long the list.

use std::sync::Arc;

use coordinator::request::{OffsetCommit, PartitionCommit, TopicCommits};
use coordinator::{Effects, Event, GroupConfig, Loader, ReplyTo, Request, Response, Shard, Write};
use model::{
    ErrorCode, GenerationId, LeaderEpoch, Offset, PartitionIndex, Timestamp, TopicId,
    TopicPartition, Uuid,
};

const NOW: Timestamp = Timestamp(1_000_000);
/// What a write with more than one record may have at most.
const WRITE_BYTES_MAX: usize = 256 << 10;

/// A shard and its log.
struct Hosted {
    shard: Shard,
    log: Vec<Write>,
    replies: Vec<Response>,
    next_reply: u64,
}

impl Hosted {
    fn new() -> Hosted {
        let shard = Shard::new(GroupConfig::default(), NOW);
        Hosted { shard, log: Vec::new(), replies: Vec::new(), next_reply: 0 }
    }

    /// Takes an event; returns the writes that it made, which are not in the log yet.
    fn step(&mut self, event: Event) -> Vec<Write> {
        let mut effects = Effects::default();
        self.shard.step(NOW, event, &mut effects);
        self.replies.extend(effects.replies.into_iter().map(|reply| reply.response));
        self.shard.assert_consistent();
        effects.writes
    }

    fn request(&mut self, request: Request) -> Vec<Write> {
        self.next_reply += 1;
        self.step(Event::Request { reply_to: ReplyTo(self.next_reply), request })
    }

    fn commit(&mut self, writes: Vec<Write>) {
        for write in writes {
            let id = write.id;
            self.log.push(write);
            assert!(self.step(Event::Committed { write: id }).is_empty());
        }
    }

    fn store(&mut self, group: &str, topic: &str, topic_id: TopicId, count: i32) {
        let partitions = (0..count).map(|partition| PartitionCommit {
            partition: PartitionIndex(partition),
            offset: Offset(7),
            leader_epoch: LeaderEpoch::NONE,
            metadata: "".into(),
        });
        let partitions = partitions.collect();
        let request = OffsetCommit {
            lent: coordinator::request::Lent::default(),
            lent_metadata: coordinator::request::Lent::default(),
            group: group.into(),
            member: Default::default(),
            instance: None,
            generation_id: GenerationId(-1),
            retention_ms: None,
            topics: vec![TopicCommits { topic: topic.into(), topic_id, partitions }],
        };
        let writes = self.request(Request::OffsetCommit(request));
        self.commit(writes);
    }

    fn offsets(&self, group: &str) -> usize {
        self.shard.durable().offsets(&group.into()).count()
    }

    /// What the log says after a restart.
    fn reload(&self) -> Shard {
        let mut loader = Loader::new(GroupConfig::default());
        for record in self.log.iter().flat_map(|write| &write.records) {
            loader.replay(&record.key, record.value.as_deref()).unwrap();
        }
        loader.finish(NOW, |_, _| Default::default()).0
    }
}

fn bytes(write: &Write) -> usize {
    write.records.iter().map(|record| record.size_bytes()).sum()
}

#[test]
fn a_group_with_many_offsets_is_deleted_in_several_small_writes() {
    let mut hosted = Hosted::new();
    hosted.store("g", "a-topic-with-a-rather-long-name", Uuid::ZERO, 20_000);
    assert_eq!(hosted.offsets("g"), 20_000);
    assert!(hosted.log.len() > 1 && hosted.log.iter().all(|write| bytes(write) <= WRITE_BYTES_MAX));
    let writes = hosted.request(Request::DeleteGroup("g".into()));
    assert!(writes.len() > 2 && writes.iter().all(|write| bytes(write) <= WRITE_BYTES_MAX));
    // The answer waits for the last of them.
    let replies = hosted.replies.len();
    let last = writes.len() - 1;
    let mut writes = writes;
    let rest = writes.split_off(last);
    hosted.commit(writes);
    assert_eq!(hosted.replies.len(), replies);
    hosted.commit(rest);
    assert_eq!(hosted.replies.last(), Some(&Response::DeleteGroup(ErrorCode::None)));
    assert!(hosted.reload().durable().group_ids().is_empty());
}

#[test]
fn a_deletion_that_fails_half_way_leaves_a_group_that_can_be_deleted() {
    let mut hosted = Hosted::new();
    hosted.store("g", "a-topic-with-a-rather-long-name", Uuid::ZERO, 20_000);
    let mut writes = hosted.request(Request::DeleteGroup("g".into()));
    let from = writes[1].id;
    writes.truncate(1);
    hosted.commit(writes);
    assert!(
        hosted.step(Event::AppendFailed { from, error: ErrorCode::NotEnoughReplicas }).is_empty()
    );
    assert_eq!(
        hosted.replies.last(),
        Some(&Response::DeleteGroup(ErrorCode::CoordinatorNotAvailable))
    );
    assert!((1..20_000).contains(&hosted.offsets("g")));
    let writes = hosted.request(Request::DeleteGroup("g".into()));
    hosted.commit(writes);
    assert_eq!(hosted.replies.last(), Some(&Response::DeleteGroup(ErrorCode::None)));
    assert!(hosted.reload().durable().group_ids().is_empty());
}

#[test]
fn offsets_go_with_the_topic_of_that_id_and_with_no_other() {
    let mut hosted = Hosted::new();
    let (old, new) = (Uuid::from_random([1; 16]), Uuid::from_random([2; 16]));
    hosted.store("g", "t", old, 1);
    hosted.store("h", "t", new, 1);
    let name: Arc<str> = "t".into();
    let writes = hosted.step(Event::TopicsDeleted { topics: vec![(name, old)] });
    hosted.commit(writes);
    assert_eq!((hosted.offsets("g"), hosted.offsets("h")), (0, 1));
    let kept = hosted.reload();
    assert!(kept.durable().offset(&"h".into(), &TopicPartition::new("t", 0)).is_some());
}

#[test]
fn no_offset_expires_before_the_time_that_is_given() {
    let config = GroupConfig {
        offsets_retention_ms: 1,
        offsets_retention_check_interval_ms: 1_000,
        expiry_from: NOW.plus_ms(600_000),
        ..GroupConfig::default()
    };
    let mut hosted = Hosted { shard: Shard::new(config, NOW), ..Hosted::new() };
    hosted.store("g", "t", Uuid::ZERO, 3);
    assert_eq!(hosted.shard.next_deadline(), Some(NOW.plus_ms(600_000)));
    let mut effects = Effects::default();
    hosted.shard.step(NOW.plus_ms(599_999), Event::Expire, &mut effects);
    assert!(effects.writes.is_empty(), "{effects:?}");
    hosted.shard.step(NOW.plus_ms(600_000), Event::Expire, &mut effects);
    assert_eq!(effects.writes.len(), 1);
}
