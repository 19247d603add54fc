//! Offsets: by time, the start and the end, deleted records, and what groups commit.

use std::time::Instant;

use model::record::BatchBuilder;
use model::{Compression, ErrorCode, Timestamp};
use wire::delete_records::{DeleteRecordsPartition, DeleteRecordsTopic};
use wire::list_offsets::{ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsTopic};
use wire::offset_commit::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use wire::offset_fetch::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics, OffsetFetchResponsePartitions,
};

use crate::fixture::*;

async fn list(conn: &mut Conn, topic: &str, timestamp: i64) -> ListOffsetsPartitionResponse {
    list_in(conn, topic, timestamp, 11).await
}

async fn list_in(
    conn: &mut Conn,
    topic: &str,
    timestamp: i64,
    version: i16,
) -> ListOffsetsPartitionResponse {
    let request = wire::ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: topic.to_owned(),
            partitions: vec![ListOffsetsPartition {
                current_leader_epoch: -1,
                timestamp,
                ..Default::default()
            }],
        }],
        ..Default::default()
    };
    conn.call(&request, version).await.topics.remove(0).partitions.remove(0)
}

/// Offset and time of what was found.
async fn found(conn: &mut Conn, topic: &str, timestamp: i64) -> (i64, i64) {
    let found = list(conn, topic, timestamp).await;
    assert_eq!(found.error(), ErrorCode::None);
    (found.offset, found.timestamp)
}

#[tokio::test]
async fn special_timestamps_find_the_ends_and_the_latest_record() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("special", &[]).await;
    assert_eq!(found(&mut conn, "special", -1).await, (0, -1));
    assert_eq!(found(&mut conn, "special", -2).await, (0, -1));
    assert_eq!(found(&mut conn, "special", -3).await, (-1, -1), "there is no record");
    let t = now_ms() - 10_000;
    conn.append("special", timed(&[t, t + 900, t + 5]).finish()).await;
    conn.append("special", timed(&[t + 7, t + 8]).finish()).await;
    assert_eq!(found(&mut conn, "special", -1).await, (5, -1));
    assert_eq!(found(&mut conn, "special", -2).await, (0, -1));
    assert_eq!(found(&mut conn, "special", -3).await, (1, t + 900), "the largest timestamp");
    assert_eq!(found(&mut conn, "special", -4).await, (0, -1), "the local log's start");
    assert_eq!(found(&mut conn, "special", -5).await, (-1, -1), "nothing is tiered");
    // A special timestamp that came later than the version.
    assert_eq!(list_in(&mut conn, "special", -3, 6).await.error(), ErrorCode::UnsupportedVersion);
    assert_eq!(list(&mut conn, "absent", -1).await.error(), ErrorCode::UnknownTopicOrPartition);
    broker.stop().await;
}

#[tokio::test]
async fn a_time_finds_exactly_the_first_record_at_or_after_it() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    let t = now_ms() - 1_000_000;
    let codecs = [Compression::None, Compression::Zstd, Compression::Gzip, Compression::Lz4];
    for codec in codecs {
        let topic = format!("times-{}", codec.name());
        conn.create_topic(&topic, &[("internal.segment.bytes", "300")]).await;
        // Ten batches of three records, ten apart each: offset n is at t + 10 n.
        for number in 0..10 {
            let first = t + number * 30;
            conn.append(&topic, compressed(timed(&[first, first + 10, first + 20]), codec)).await;
        }
        for offset in 0..30 {
            let at = t + offset * 10;
            assert_eq!(found(&mut conn, &topic, at).await, (offset, at), "{topic} at {offset}");
            assert_eq!(found(&mut conn, &topic, at - 9).await, (offset, at), "{topic} before");
        }
        assert_eq!(found(&mut conn, &topic, t + 291).await, (-1, -1), "after the last");
        assert_eq!(found(&mut conn, &topic, 0).await, (0, t), "before the first");
    }
    broker.stop().await;
}

async fn delete_before(conn: &mut Conn, topic: &str, offset: i64) -> (ErrorCode, i64) {
    let request = wire::DeleteRecordsRequest {
        topics: vec![DeleteRecordsTopic {
            name: topic.to_owned(),
            partitions: vec![DeleteRecordsPartition { partition_index: 0, offset }],
        }],
        timeout_ms: 30_000,
    };
    let answer = conn.call(&request, 2).await;
    let partition = &answer.topics[0].partitions[0];
    (partition.error(), partition.low_watermark)
}

#[tokio::test]
async fn deleted_records_stay_deleted() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("deleted", &[("internal.segment.bytes", "200")]).await;
    for _ in 0..10 {
        conn.append("deleted", batch(&["one", "two"])).await;
    }
    assert_eq!(delete_before(&mut conn, "deleted", 7).await, (ErrorCode::None, 7));
    assert_eq!(found(&mut conn, "deleted", -2).await, (7, -1));
    assert_eq!(conn.fetch("deleted", 6).await.error(), ErrorCode::OffsetOutOfRange);
    assert_eq!(conn.fetch("deleted", 7).await.log_start_offset, 7);
    let beyond = delete_before(&mut conn, "deleted", 21).await;
    assert_eq!(beyond.0, ErrorCode::OffsetOutOfRange);
    assert_eq!(delete_before(&mut conn, "deleted", 3).await, (ErrorCode::None, 7), "not back");

    let broker = broker.restart().await;
    let mut conn = broker.connect().await;
    assert_eq!(found(&mut conn, "deleted", -2).await, (7, -1));
    assert_eq!(conn.fetch("deleted", 6).await.error(), ErrorCode::OffsetOutOfRange);
    let rest = conn.fetch("deleted", 7).await;
    assert_eq!((rest.high_watermark, values(&rest)[1].0), (20, 7), "the batch holds 6 as well");
    assert_eq!(delete_before(&mut conn, "deleted", -1).await, (ErrorCode::None, 20), "all");
    assert_eq!(found(&mut conn, "deleted", -2).await, (20, -1));
    broker.stop().await;
}

#[tokio::test]
async fn records_that_cannot_be_read_cost_a_look_up_by_time_only_themselves() {
    let broker = Broker::start(&[("records.validation", "header")]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("holes", &[]).await;
    let now = now_ms();
    conn.append("holes", timed(&[now - 50]).finish()).await;
    for codec in [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd] {
        conn.append("holes", timed(&[now, now]).finish_compressed(codec, b"garbage")).await;
    }
    conn.append("holes", timed(&[now + 50]).finish()).await;
    assert_eq!(found(&mut conn, "holes", now - 50).await, (0, now - 50));
    assert_eq!(found(&mut conn, "holes", now - 49).await, (9, now + 50));
    assert_eq!(found(&mut conn, "holes", -3).await, (9, now + 50));
    assert_eq!(conn.append("holes", timed(&[now]).finish()).await, 10, "the log takes more");
    broker.stop().await;
}

/// The record by which a coordinator remembers a commit of `topic`'s partition 0.
fn forged_commit(group: &str, topic: &str, offset: i64) -> Vec<u8> {
    let text = |text: &str| {
        let length = u16::try_from(text.len()).unwrap().to_be_bytes();
        [&length[..], text.as_bytes()].concat()
    };
    let key = [&1i16.to_be_bytes()[..], &text(group), &text(topic), &0i32.to_be_bytes()].concat();
    let now = now_ms().to_be_bytes();
    let value =
        [&3i16.to_be_bytes()[..], &offset.to_be_bytes(), &(-1i32).to_be_bytes(), &text(""), &now]
            .concat();
    let mut builder = BatchBuilder::new();
    builder.add(Timestamp(now_ms()), Some(&key), Some(&value));
    builder.finish()
}

#[tokio::test]
async fn a_client_cannot_forge_a_commit() {
    let broker = Broker::start(&[("offsets.topic.num.partitions", "1")]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("read", &[]).await;
    assert_eq!(commit(&mut conn, "victim", "read", 100, "").await, ErrorCode::None);
    let answer = conn.produce("__consumer_offsets", forged_commit("victim", "read", 5)).await;
    assert_eq!(answer.error(), ErrorCode::InvalidTopicException);
    // What is forged would show when the coordinator loads.
    let copy = broker.start_on_copy().await;
    let mut after_crash = copy.connect().await;
    assert_eq!(committed(&mut after_crash, "victim", "read").await.committed_offset, 100);
    assert_eq!(commit(&mut after_crash, "victim", "read", 101, "").await, ErrorCode::None);
    copy.stop().await;
    broker.stop().await;
}

/// Whether the coordinator is still on its way, and the client has to ask again.
fn is_loading(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::CoordinatorLoadInProgress
            | ErrorCode::CoordinatorNotAvailable
            | ErrorCode::NotCoordinator
    )
}

async fn commit(
    conn: &mut Conn,
    group: &str,
    topic: &str,
    offset: i64,
    metadata: &str,
) -> ErrorCode {
    let find = wire::FindCoordinatorRequest {
        coordinator_keys: vec![group.to_owned()],
        ..Default::default()
    };
    let request = wire::OffsetCommitRequest {
        group_id: group.to_owned(),
        generation_id_or_member_epoch: -1,
        topics: vec![OffsetCommitRequestTopic {
            name: topic.to_owned(),
            partitions: vec![OffsetCommitRequestPartition {
                partition_index: 0,
                committed_offset: offset,
                committed_leader_epoch: 0,
                committed_metadata: Some(metadata.to_owned()),
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let began = Instant::now();
    loop {
        conn.call(&find, 4).await;
        let answer = conn.call(&request, 8).await;
        let code = answer.topics[0].partitions[0].error();
        if !is_loading(code) || began.elapsed() > PATIENCE {
            return code;
        }
    }
}

async fn committed(conn: &mut Conn, group: &str, topic: &str) -> OffsetFetchResponsePartitions {
    let request = wire::OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: group.to_owned(),
            member_epoch: -1,
            topics: Some(vec![OffsetFetchRequestTopics {
                name: topic.to_owned(),
                partition_indexes: vec![0],
                ..Default::default()
            }]),
            ..Default::default()
        }],
        ..Default::default()
    };
    let began = Instant::now();
    loop {
        let mut answer = conn.call(&request, 8).await;
        let mut group = answer.groups.remove(0);
        if !is_loading(group.error()) || began.elapsed() > PATIENCE {
            assert_eq!(group.error(), ErrorCode::None);
            return group.topics.remove(0).partitions.remove(0);
        }
    }
}

fn assert_committed(found: &OffsetFetchResponsePartitions, offset: i64, metadata: &str) {
    assert_eq!(found.error(), ErrorCode::None);
    assert_eq!(found.committed_offset, offset);
    assert_eq!(found.metadata.as_deref(), Some(metadata));
}

#[tokio::test]
async fn a_commit_comes_back_with_its_metadata() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("read", &[]).await;
    assert_eq!(commit(&mut conn, "group", "read", 42, "a note: é").await, ErrorCode::None);
    let found = committed(&mut conn, "group", "read").await;
    assert_committed(&found, 42, "a note: é");
    assert_eq!(found.committed_leader_epoch, 0);
    assert_eq!(commit(&mut conn, "group", "read", 43, "").await, ErrorCode::None);
    assert_committed(&committed(&mut conn, "group", "read").await, 43, "");

    let none = committed(&mut conn, "another", "read").await;
    assert_eq!((none.committed_offset, none.error()), (-1, ErrorCode::None));
    let long = "x".repeat(5000);
    let refused = commit(&mut conn, "group", "read", 44, &long).await;
    assert_eq!(refused, ErrorCode::OffsetMetadataTooLarge);
    let refused = commit(&mut conn, "group", "absent", 1, "").await;
    assert_eq!(refused, ErrorCode::UnknownTopicOrPartition);
    assert_committed(&committed(&mut conn, "group", "read").await, 43, "");
    broker.stop().await;
}

#[tokio::test]
async fn a_commit_survives_a_restart_and_a_crash() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("kept", &[]).await;
    for group in ["one", "two", "three", "four"] {
        assert_eq!(commit(&mut conn, group, "kept", 7, group).await, ErrorCode::None);
    }
    conn.append("kept", batch(&["record"])).await;
    let copy = broker.start_on_copy().await;
    let mut after_crash = copy.connect().await;
    for group in ["one", "two", "three", "four"] {
        assert_committed(&committed(&mut after_crash, group, "kept").await, 7, group);
    }
    assert_eq!(values(&after_crash.fetch("kept", 0).await), [(0, "record".to_owned())]);
    copy.stop().await;

    let broker = broker.restart().await;
    let mut conn = broker.connect().await;
    for group in ["one", "two", "three", "four"] {
        assert_committed(&committed(&mut conn, group, "kept").await, 7, group);
    }
    assert_eq!(values(&conn.fetch("kept", 0).await), [(0, "record".to_owned())]);
    broker.stop().await;
}
