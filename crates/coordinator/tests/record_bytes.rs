//! The record formats against bytes that Kafka itself wrote: by its classes, and to its log.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use coordinator::records::{CommittedOffset, GroupRecord, MemberRecord, Record, RecordError};
use coordinator::request::{Lent, MemoryLoan};
use coordinator::{Event, GroupConfig, GroupId, Loader};
use model::{GenerationId, LeaderEpoch, Offset, Timestamp, TopicPartition, Uuid};
use proptest::prelude::*;

const BY_CLASSES: &str = include_str!("../testdata/records/kafka-classes.txt");
const FROM_LOG: &str = include_str!("../testdata/records/kafka-log.txt");

fn unhex(text: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex");
    (0..text.len()).step_by(2).map(byte).collect()
}

fn golden(name: &str) -> Vec<u8> {
    let find =
        |line: &str| line.split_once(' ').filter(|(n, _)| *n == name).map(|(_, hex)| unhex(hex));
    BY_CLASSES.lines().find_map(find).unwrap_or_else(|| panic!("no {name}"))
}

fn partition() -> TopicPartition {
    TopicPartition::new("topic", 7)
}

fn offset_of(version: i16) -> CommittedOffset {
    let id = Uuid([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
    CommittedOffset {
        offset: Offset(1_234_567_890_123),
        leader_epoch: LeaderEpoch(if version >= 3 { 5 } else { -1 }),
        metadata: "méta".into(),
        commit_timestamp: Timestamp(1_700_000_000_000),
        expire_timestamp: (version == 1).then_some(Timestamp(1_700_000_060_000)),
        topic_id: if version >= 4 { id } else { Uuid::ZERO },
    }
}

fn group_of(version: i16) -> GroupRecord {
    let member = |id: &str, client: &str, host: &str| MemberRecord {
        member: id.into(),
        instance: None,
        client_id: client.into(),
        client_host: host.into(),
        rebalance_timeout_ms: if version >= 1 { 2 } else { -1 },
        session_timeout_ms: 1,
        subscription: Arc::from(&[][..]),
        assignment: Arc::from(&[][..]),
    };
    let mut first = member("c-1", "c", "/127.0.0.1");
    first.instance = (version >= 3).then(|| "i".into());
    first.rebalance_timeout_ms = if version >= 1 { 300_000 } else { -1 };
    first.session_timeout_ms = 45_000;
    first.subscription = Arc::from(&[1, 2, 3][..]);
    first.assignment = Arc::from(&[4, 5][..]);
    GroupRecord {
        protocol_type: Some("consumer".into()),
        generation_id: GenerationId(3),
        protocol: Some("range".into()),
        leader: Some("c-1".into()),
        state_timestamp: Timestamp(if version >= 2 { 1_700_000_000_001 } else { -1 }),
        members: vec![first, member("d-1", "", "")],
    }
}

#[test]
fn every_version_of_a_stored_offset_is_read() {
    let key = golden("offset_commit_key");
    for version in 0..=4 {
        let value = golden(&format!("offset_commit_value_v{version}"));
        let record = Record::decode(&key, Some(&value)).unwrap().unwrap();
        let (group, value) = ("groupé".into(), Some(offset_of(version)));
        assert_eq!(record, Record::OffsetCommit { group, partition: partition(), value });
    }
}

#[test]
fn every_version_of_a_group_is_read() {
    let key = golden("group_metadata_key");
    for version in 0..=4 {
        let value = golden(&format!("group_metadata_value_v{version}"));
        let record = Record::decode(&key, Some(&value)).unwrap().unwrap();
        let value = Some(group_of(version));
        assert_eq!(record, Record::GroupMetadata { group: "group".into(), value });
    }
}

#[test]
fn the_versions_of_kafka_are_written() {
    let group: GroupId = "groupé".into();
    for version in [1, 4] {
        let value = Some(offset_of(version));
        let record = Record::OffsetCommit { group: group.clone(), partition: partition(), value };
        let bytes = record.encode();
        assert_eq!(bytes.key, golden("offset_commit_key"));
        assert_eq!(bytes.value.unwrap(), golden(&format!("offset_commit_value_v{version}")));
    }
    let value = Some(group_of(3));
    let bytes = Record::GroupMetadata { group: "group".into(), value }.encode();
    assert_eq!(bytes.key, golden("group_metadata_key"));
    assert_eq!(bytes.value.unwrap(), golden("group_metadata_value_v3"));
}

#[test]
fn what_kafka_wrote_to_its_log_is_written_the_same() {
    let mut count = 0;
    for line in FROM_LOG.lines().filter(|line| !line.starts_with('#')) {
        let (key, value) = line.split_once(' ').unwrap();
        let (key, value) = (unhex(key), (value != "-").then(|| unhex(value)));
        let record = Record::decode(&key, value.as_deref()).unwrap().unwrap();
        let bytes = record.encode();
        assert_eq!((bytes.key, bytes.value), (key, value), "{record:?}");
        count += 1;
    }
    assert!(count > 20, "{count} records");
}

#[test]
fn records_of_other_kinds_of_groups_are_skipped() {
    for kind in 3i16..40 {
        let key = [&kind.to_be_bytes()[..], b"anything"].concat();
        assert_eq!(Record::decode(&key, Some(b"anything")), Ok(None));
    }
}

#[test]
fn an_unknown_version_is_refused() {
    let value = [0, 5, 0, 0, 0, 0];
    let error = Record::decode(&golden("group_metadata_key"), Some(&value)).unwrap_err();
    assert_eq!(error, RecordError::UnknownVersion { kind: 2, version: 5 });
}

/// A tagged field of number 9, as a newer release may add it.
const NEWER_FIELD: [u8; 4] = [9, 2, 0xca, 0xfe];

/// A newer release may add tagged fields to the flexible versions, which this one skips. A newer version is refused.
#[test]
fn newer_fields_of_flexible_records_are_skipped_and_newer_versions_are_refused() {
    let (key, value) = (golden("offset_commit_key"), golden("offset_commit_value_v4"));
    let read = Record::decode(&key, Some(&value));
    // The value ends with one tagged field: the topic id.
    let at = value.len() - 19;
    assert_eq!(value[at..at + 3], [1, 0, 16]);
    let newer = [&value[..at], &[2], &value[at + 1..], &NEWER_FIELD].concat();
    assert_eq!(Record::decode(&key, Some(&newer)), read);
    for version in 5..=9 {
        let newer = [&[0, version], &value[2..]].concat();
        let error = RecordError::UnknownVersion { kind: 1, version: version.into() };
        assert_eq!(Record::decode(&key, Some(&newer)), Err(error));
    }

    let (key, value) = (golden("group_metadata_key"), golden("group_metadata_value_v4"));
    let read = Record::decode(&key, Some(&value));
    // No tagged field of the second member, and none of the group.
    let (last, rest) = value.split_last_chunk::<2>().map(|(rest, last)| (last, rest)).unwrap();
    assert_eq!(*last, [0, 0]);
    let with = |fields: &[&[u8]]| [rest, &fields.concat()].concat();
    let (none, one): (&[u8], &[u8]) = (&[0], &[1]);
    for newer in [
        with(&[none, one, &NEWER_FIELD]),
        with(&[one, &NEWER_FIELD, none]),
        with(&[one, &NEWER_FIELD, one, &NEWER_FIELD]),
    ] {
        assert_eq!(Record::decode(&key, Some(&newer)), read);
    }
    for version in 5..=9 {
        let newer = [&[0, version], &value[2..]].concat();
        let error = RecordError::UnknownVersion { kind: 2, version: version.into() };
        assert_eq!(Record::decode(&key, Some(&newer)), Err(error));
    }
}

#[test]
fn a_group_that_could_not_have_been_written_is_refused() {
    let decode = |group: GroupRecord| {
        let bytes = Record::GroupMetadata { group: "group".into(), value: Some(group) }.encode();
        Record::decode(&bytes.key, bytes.value.as_deref())
    };
    assert!(decode(group_of(3)).is_ok());
    let mut twice = group_of(3);
    twice.members[1].member = twice.members[0].member.clone();
    assert_eq!(decode(twice), Err(RecordError::Malformed("a member is there twice")));
    let mut twice = group_of(3);
    twice.members[1].instance = twice.members[0].instance.clone();
    assert_eq!(decode(twice), Err(RecordError::Malformed("a member is there twice")));
}

#[test]
fn every_cut_of_a_record_is_refused() {
    for (key, value) in [
        ("offset_commit_key", "offset_commit_value_v3"),
        ("offset_commit_key", "offset_commit_value_v4"),
        ("group_metadata_key", "group_metadata_value_v3"),
        ("group_metadata_key", "group_metadata_value_v4"),
    ] {
        let (key, value) = (golden(key), golden(value));
        for end in 0..value.len() {
            assert!(Record::decode(&key, Some(&value[..end])).is_err(), "{end}");
        }
        for end in 0..key.len() {
            assert!(Record::decode(&key[..end], None).is_err(), "{end}");
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(
        kind in 0i16..3,
        version in 0i16..5,
        key in proptest::collection::vec(any::<u8>(), 0..40),
        value in proptest::collection::vec(any::<u8>(), 0..80),
    ) {
        let key = [&kind.to_be_bytes()[..], &key].concat();
        let value = [&version.to_be_bytes()[..], &value].concat();
        let _ = Record::decode(&key, Some(&value));
        let good = golden(if kind == 2 { "group_metadata_key" } else { "offset_commit_key" });
        let _ = Record::decode(&good, Some(&value));
    }

    #[test]
    fn a_changed_byte_makes_no_panic(
        version in 0usize..5, at in any::<proptest::sample::Index>(), byte in any::<u8>(),
    ) {
        let mut value = golden(&format!("group_metadata_value_v{version}"));
        let at = at.index(value.len());
        value[at] = byte;
        // What is let in must be a group that a shard can live with.
        let mut loader = Loader::new(GroupConfig::default());
        let _ = loader.replay(&golden("group_metadata_key"), Some(&value));
        let (mut shard, mut effects) = loader.finish(Timestamp(0), |_, _| Default::default());
        shard.assert_consistent();
        for _ in 0..20 {
            let now = shard.next_deadline().expect("there always is one");
            shard.step(now, Event::Expire, &mut effects);
            shard.assert_consistent();
        }
    }
}

/// Bytes that the host lent; given back when dropped.
struct Held {
    all: Arc<AtomicUsize>,
    own: AtomicUsize,
}

impl MemoryLoan for Held {
    fn bytes(&self) -> usize {
        self.own.load(Ordering::Relaxed)
    }

    fn set_bytes(&self, bytes: usize) {
        let before = self.own.swap(bytes, Ordering::Relaxed);
        self.all.fetch_add(bytes, Ordering::Relaxed);
        self.all.fetch_sub(before, Ordering::Relaxed);
    }

    fn mark_pending(&self, _: bool) {}
}

impl Drop for Held {
    fn drop(&mut self) {
        self.set_bytes(0);
    }
}

#[test]
fn memory_of_restored_members_is_charged_until_they_are_gone() {
    let mut loader = Loader::new(GroupConfig::default());
    let value = golden("group_metadata_value_v3");
    loader.replay(&golden("group_metadata_key"), Some(&value)).unwrap();
    let held = Arc::new(AtomicUsize::new(0));
    let (mut shard, mut effects) = loader.finish(Timestamp(0), |_, bytes| {
        let loan = Held { all: Arc::clone(&held), own: AtomicUsize::new(0) };
        loan.set_bytes(bytes);
        Lent::new(loan)
    });
    assert!(held.load(Ordering::Relaxed) > 0);
    for _ in 0..20 {
        let now = shard.next_deadline().expect("there always is one");
        shard.step(now, Event::Expire, &mut effects);
        for write in std::mem::take(&mut effects.writes) {
            shard.step(now, Event::Committed { write: write.id }, &mut effects);
        }
        if shard.memory().is_empty() {
            break;
        }
    }
    assert_eq!(held.load(Ordering::Relaxed), 0, "the sessions have ended, and the group expired");
}
