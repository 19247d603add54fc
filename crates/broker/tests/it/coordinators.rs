//! Coordinators of groups and their log: what is damaged is not believed, what is too large is not
//! written, and what is deleted stays deleted.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use model::ErrorCode;
use wire::create_partitions::CreatePartitionsTopic;
use wire::join_group::JoinGroupRequestProtocol;
use wire::offset_commit::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use wire::offset_fetch::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use wire::sync_group::SyncGroupRequestAssignment;

use crate::fixture::*;

/// Between two looks at something that changes by itself.
const PAUSE: Duration = Duration::from_millis(20);

async fn find(conn: &mut Conn, group: &str) {
    let find = wire::FindCoordinatorRequest {
        coordinator_keys: vec![group.to_owned()],
        ..Default::default()
    };
    let began = Instant::now();
    while conn.call(&find, 4).await.coordinators[0].error_code != 0 {
        assert!(began.elapsed() < PATIENCE);
    }
}

async fn commit(conn: &mut Conn, group: &str, topic: &str, offset: i64) {
    find(conn, group).await;
    let request = wire::OffsetCommitRequest {
        group_id: group.to_owned(),
        generation_id_or_member_epoch: -1,
        topics: vec![OffsetCommitRequestTopic {
            name: topic.to_owned(),
            partitions: vec![OffsetCommitRequestPartition {
                committed_offset: offset,
                committed_metadata: Some(group.to_owned()),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let began = Instant::now();
    loop {
        match conn.call(&request, 8).await.topics[0].partitions[0].error() {
            ErrorCode::None => return,
            ErrorCode::CoordinatorLoadInProgress => assert!(began.elapsed() < PATIENCE),
            other => panic!("{other}"),
        }
    }
}

/// What a group committed, or why that is not told. Waits while it is loaded.
async fn committed(conn: &mut Conn, group: &str, topic: &str) -> Result<i64, ErrorCode> {
    let topic = OffsetFetchRequestTopics {
        name: topic.to_owned(),
        partition_indexes: vec![0],
        ..Default::default()
    };
    let asked = OffsetFetchRequestGroup {
        group_id: group.to_owned(),
        member_epoch: -1,
        topics: Some(vec![topic]),
        ..Default::default()
    };
    let request = wire::OffsetFetchRequest { groups: vec![asked], ..Default::default() };
    let began = Instant::now();
    loop {
        let answer = conn.call(&request, 8).await;
        match answer.groups[0].error() {
            ErrorCode::None => return Ok(answer.groups[0].topics[0].partitions[0].committed_offset),
            ErrorCode::CoordinatorLoadInProgress => assert!(began.elapsed() < PATIENCE),
            other => return Err(other),
        }
    }
}

/// The log with the records of a group, and where in it the group's name stands first.
fn log_of(dir: &Path, group: &str) -> (PathBuf, usize) {
    let partitions = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let internal =
        |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("__consumer");
    for partition in partitions.filter(internal) {
        let log = partition.join("00000000000000000000.log");
        // A partition without records has no segment.
        let Ok(bytes) = std::fs::read(&log) else { continue };
        let found = bytes.windows(group.len()).position(|window| window == group.as_bytes());
        if let Some(at) = found {
            return (log, at);
        }
    }
    panic!("no log has a record of {group}");
}

/// Writes this one byte: a broker that reads the log meanwhile finds it whole, before or behind the change.
fn flip(log: &Path, at: usize) {
    let file = std::fs::File::options().read(true).write(true).open(log).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at as u64).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at as u64).unwrap();
}

#[tokio::test]
async fn a_flipped_bit_in_a_committed_offset_is_not_believed_and_loading_is_tried_again() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("read", &[]).await;
    commit(&mut conn, "victim", "read", 100).await;
    let stopped = broker.stop_and_keep().await;
    let dir = stopped.dir.path();
    // In the group's name: another group would have committed.
    let (log, at) = log_of(dir, "victim");
    flip(&log, at);
    let running = run(dir, &stopped.settings).await.expect("other partitions are well");
    let mut conn = Conn::open(running.listeners()[0]).await;
    for _ in 0..3 {
        let refused = committed(&mut conn, "victim", "read").await;
        assert_eq!(refused, Err(ErrorCode::NotCoordinator), "as in Kafka");
    }
    // Those of the other partitions may still be on their way.
    let began = Instant::now();
    let listed = loop {
        let listed = conn.call(&wire::ListGroupsRequest::default(), 4).await;
        if listed.error() != ErrorCode::CoordinatorLoadInProgress || began.elapsed() > PATIENCE {
            break listed;
        }
    };
    assert_eq!(listed.error(), ErrorCode::CoordinatorNotAvailable, "the list is not whole");
    assert!(
        running.health().reasons().iter().any(|it| it.condition.code() == "coordinator_failed")
    );
    // What a person mends is found without a restart.
    flip(&log, at);
    let began = Instant::now();
    while committed(&mut conn, "victim", "read").await != Ok(100) {
        assert!(began.elapsed() < PATIENCE, "loading is tried again");
        tokio::time::sleep(PAUSE).await;
    }
    assert!(running.health().reasons().is_empty());
    running.stop().await;
}

#[tokio::test]
async fn the_offset_of_a_topic_that_was_made_again_is_not_that_of_the_one_before() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("again", &[]).await;
    commit(&mut conn, "group", "again", 42).await;
    assert_eq!(committed(&mut conn, "group", "again").await, Ok(42));
    let delete = wire::DeleteTopicsRequest {
        topic_names: vec!["again".to_owned()],
        timeout_ms: 30_000,
        ..Default::default()
    };
    assert_eq!(conn.call(&delete, 5).await.responses[0].error(), ErrorCode::None);
    conn.create_topic("again", &[]).await;
    assert_eq!(committed(&mut conn, "group", "again").await, Ok(-1));
    commit(&mut conn, "group", "again", 7).await;
    let broker = broker.restart().await;
    let mut conn = broker.connect().await;
    assert_eq!(committed(&mut conn, "group", "again").await, Ok(7));
    broker.stop().await;
}

#[tokio::test]
async fn a_member_with_more_metadata_than_the_topic_takes_is_refused_and_the_group_can_be_deleted()
{
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    find(&mut conn, "large").await;
    let mut join = wire::JoinGroupRequest {
        group_id: "large".to_owned(),
        session_timeout_ms: 300_000,
        rebalance_timeout_ms: 300_000,
        protocol_type: "consumer".to_owned(),
        protocols: vec![JoinGroupRequestProtocol {
            name: "range".to_owned(),
            metadata: vec![7; 3 << 20].into(),
        }],
        ..Default::default()
    };
    let began = Instant::now();
    let joined = loop {
        let joined = conn.call(&join, 5).await;
        match joined.error() {
            ErrorCode::None => break joined,
            ErrorCode::MemberIdRequired => join.member_id = joined.member_id,
            ErrorCode::CoordinatorLoadInProgress => assert!(began.elapsed() < PATIENCE),
            other => panic!("{other}"),
        }
    };
    let sync = wire::SyncGroupRequest {
        group_id: "large".to_owned(),
        generation_id: joined.generation_id,
        member_id: joined.member_id.clone(),
        ..Default::default()
    };
    assert_eq!(conn.call(&sync, 3).await.error(), ErrorCode::UnknownServerError);
    let leave = wire::LeaveGroupRequest {
        group_id: "large".to_owned(),
        member_id: joined.member_id,
        ..Default::default()
    };
    assert_eq!(conn.call(&leave, 2).await.error(), ErrorCode::None);
    let delete = wire::DeleteGroupsRequest { groups_names: vec!["large".to_owned()] };
    assert_eq!(conn.call(&delete, 2).await.results[0].error(), ErrorCode::None);
    broker.stop().await;
}

#[tokio::test]
async fn the_topic_of_offsets_keeps_its_number_of_partitions() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("read", &[]).await;
    commit(&mut conn, "group", "read", 42).await;
    let grow = wire::CreatePartitionsRequest {
        topics: vec![CreatePartitionsTopic {
            name: "__consumer_offsets".to_owned(),
            count: 5,
            ..Default::default()
        }],
        timeout_ms: 30_000,
        ..Default::default()
    };
    let refused = conn.call(&grow, 3).await;
    assert_eq!(refused.results[0].error(), ErrorCode::PolicyViolation);
    assert_eq!(committed(&mut conn, "group", "read").await, Ok(42));
    broker.stop().await;
}

/// The only member of a group, of this id or a new one, joins and assigns itself so many bytes. Returns its id and how
/// it was answered.
async fn assign(conn: &mut Conn, group: &str, member: &str, bytes: usize) -> (String, ErrorCode) {
    let join = wire::JoinGroupRequest {
        group_id: group.to_owned(),
        member_id: member.to_owned(),
        session_timeout_ms: 300_000,
        rebalance_timeout_ms: 300_000,
        protocol_type: "consumer".to_owned(),
        protocols: vec![JoinGroupRequestProtocol {
            name: "range".to_owned(),
            ..Default::default()
        }],
        ..Default::default()
    };
    find(conn, group).await;
    let began = Instant::now();
    let joined = loop {
        let joined = conn.call(&join, 3).await;
        match joined.error() {
            ErrorCode::None => break joined,
            ErrorCode::CoordinatorLoadInProgress => assert!(began.elapsed() < PATIENCE),
            other => panic!("{other}"),
        }
    };
    let assignment = SyncGroupRequestAssignment {
        member_id: joined.member_id.clone(),
        assignment: vec![7; bytes].into(),
    };
    let sync = wire::SyncGroupRequest {
        group_id: group.to_owned(),
        generation_id: joined.generation_id,
        member_id: joined.member_id.clone(),
        assignments: vec![assignment],
        ..Default::default()
    };
    (joined.member_id, conn.call(&sync, 3).await.error())
}

#[tokio::test]
async fn a_full_pool_refuses_assignments_and_takes_the_next_one_of_a_group_that_has_one() {
    const BYTES: usize = 700_000;
    const COUNT: usize = 12;
    let broker = Broker::start(&[("group.coordinator.memory.max.bytes", "4194304")]).await;
    let mut conn = broker.connect().await;
    let mut last = None;
    let mut refused = 0;
    for number in 0..COUNT {
        let group = format!("group-{number}");
        match assign(&mut conn, &group, "", BYTES).await {
            (member, ErrorCode::None) => last = Some((group, member)),
            (_, ErrorCode::CoordinatorNotAvailable) => refused += 1,
            (_, other) => panic!("{other}"),
        }
    }
    // Members that were silent for 10 s may have gone instead.
    let (group, member) = last.expect("the first one is taken");
    eprintln!("{refused} of {COUNT} refused");
    assert_eq!(assign(&mut conn, &group, &member, BYTES).await.1, ErrorCode::None);
    assert_eq!(assign(&mut conn, &group, &member, 10).await.1, ErrorCode::None);
    broker.stop().await;
}
