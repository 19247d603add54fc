//! Fairness of each shared pool of memory: one client address fills the pool the cheapest way, then a consumer
//! group of another address does everything that a group does.
//!
//! The pools are those with a metric `highwater_NAME_memory_max_bytes`, so that a new pool without an entry in
//! [`FILLERS`] fails.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

use model::ErrorCode;
use wire::join_group::JoinGroupRequestProtocol;
use wire::{offset_commit, sync_group::SyncGroupRequestAssignment};

use crate::fixture::*;
use crate::strangers::send_what_is_taken;

/// Metrics of a broker, as another test compares them.
const METRICS: &str = include_str!("../../src/telemetry/testdata/public_metrics.txt");
/// The address of the client that fills pools.
const HOG: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
/// Size of the pools of these tests, in bytes: the least that the configuration allows.
const POOL_BYTES: usize = 4 << 20;
const SESSION_MS: i32 = 1_800_000;
const STRING_BYTES_MAX: usize = 32_000;
/// Part of a pool that one address can fill: other clients keep the rest.
const FULL_PART: f64 = 0.65;

/// The ways to fill each pool.
const FILLERS: [(&str, &[Filler]); 5] = [
    ("request", &[Filler::HalfFrames]),
    ("decoded", &[Filler::UnreadAnswers { groups: 2 }]),
    ("answer", &[Filler::UnreadAnswers { groups: 7 }]),
    ("group", &[Filler::Pending, Filler::Waiting, Filler::Assigned, Filler::Left]),
    ("offset", &[Filler::Offsets]),
];

#[derive(Debug, Clone, Copy)]
enum Filler {
    /// Frames of which half comes.
    HalfFrames,
    /// Requests for offsets with the longest metadata, 400 KB a group, whose answers stay unread.
    UnreadAnswers { groups: usize },
    /// First joins with long ids that are not repeated.
    Pending,
    /// Members with 1 MB of metadata whose connections are closed.
    Waiting,
    /// Members with assignments.
    Assigned,
    /// Members with long ids that leave their groups empty.
    Left,
    /// Committed offsets of groups with long ids. Metadata of offsets fills a part of the pool only.
    Offsets,
}

fn join(group: &str, member: &str, metadata: usize) -> wire::JoinGroupRequest {
    wire::JoinGroupRequest {
        group_id: group.to_owned(),
        member_id: member.to_owned(),
        session_timeout_ms: SESSION_MS,
        rebalance_timeout_ms: SESSION_MS,
        protocol_type: "consumer".to_owned(),
        protocols: vec![JoinGroupRequestProtocol {
            name: "range".to_owned(),
            metadata: vec![1; metadata].into(),
        }],
        ..Default::default()
    }
}

fn commit(group: &str, topic: &str, partitions: i32, metadata: usize) -> wire::OffsetCommitRequest {
    let partition = |partition_index| offset_commit::OffsetCommitRequestPartition {
        partition_index,
        committed_offset: 1,
        committed_metadata: Some("m".repeat(metadata)),
        ..Default::default()
    };
    wire::OffsetCommitRequest {
        group_id: group.to_owned(),
        generation_id_or_member_epoch: -1,
        topics: vec![offset_commit::OffsetCommitRequestTopic {
            name: topic.to_owned(),
            partitions: (0..partitions).map(partition).collect(),
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// Ids as long as the protocol allows, each different.
fn long_id(number: usize) -> String {
    format!("{number:0STRING_BYTES_MAX$}")
}

/// Stores offsets with the longest metadata of so many groups, 400 KB each, in the topic `shared` of 100 partitions.
/// Returns the request that reads all of them.
pub async fn store_offsets(conn: &mut Conn, groups: usize) -> wire::OffsetFetchRequest {
    let groups = (0..groups).map(|number| format!("offsets-{number}"));
    for group in groups.clone() {
        let find = wire::FindCoordinatorRequest {
            coordinator_keys: vec![group.clone()],
            ..Default::default()
        };
        conn.call(&find, 4).await;
        loop {
            let stored = conn.call(&commit(&group, "shared", 100, 4_000), 8).await;
            match ErrorCode::from_code(stored.topics[0].partitions[0].error_code) {
                Some(ErrorCode::CoordinatorLoadInProgress) => {}
                code => break assert_eq!(code, Some(ErrorCode::None), "{group}"),
            }
        }
    }
    wire::OffsetFetchRequest { groups: groups.map(all_offsets).collect(), ..Default::default() }
}

fn all_offsets(group_id: String) -> wire::offset_fetch::OffsetFetchRequestGroup {
    wire::offset_fetch::OffsetFetchRequestGroup { group_id, topics: None, ..Default::default() }
}

impl Filler {
    /// Fills the pool. The connections that matter stay open.
    async fn fill(self, broker: &Broker) -> Vec<Conn> {
        let mut conns = Vec::new();
        for _ in 0..8 {
            conns.push(Conn::open_from(HOG, broker.address()).await);
        }
        let conn = &mut conns[0];
        match self {
            Filler::HalfFrames => {
                let mut half = (POOL_BYTES as i32 / 2).to_be_bytes().to_vec();
                half.resize(POOL_BYTES / 4, 0);
                for _ in 0..8 {
                    let mut conn = Conn::open_from(HOG, broker.address()).await;
                    send_what_is_taken(&mut conn, &half).await;
                    conns.push(conn);
                }
            }
            Filler::UnreadAnswers { groups } => {
                let fetch = store_offsets(conn, groups).await;
                for _ in 0..60 {
                    let mut conn = Conn::open_from(HOG, broker.address()).await;
                    conn.send(&fetch, 8).await;
                    conns.push(conn);
                }
            }
            Filler::Pending => {
                for number in 0..POOL_BYTES / STRING_BYTES_MAX {
                    let answer = conn.call(&join(&long_id(number), "", 1), 5).await;
                    assert_eq!(answer.error(), ErrorCode::MemberIdRequired, "{number}");
                }
            }
            Filler::Waiting => {
                let metadata = [900_000, 90_000, 9_000, 900, 0];
                for (round, bytes) in metadata.into_iter().enumerate() {
                    for number in 0..10 {
                        let group = format!("hog-{round}-{number}");
                        conn.call(&join(&group, "", bytes), 3).await;
                    }
                }
                conns.clear();
            }
            Filler::Assigned => {
                for number in 0..12 {
                    let group = format!("assigned-{number}");
                    let joined = conn.call(&join(&group, "", 1), 3).await;
                    if joined.error() == ErrorCode::None {
                        let (id, generation) = (joined.member_id, joined.generation_id);
                        sync(conn, &group, &id, generation, 700_000).await;
                    }
                }
            }
            Filler::Left => {
                for number in 0..POOL_BYTES / STRING_BYTES_MAX {
                    let joined = conn.call(&join(&long_id(number), "", 1), 3).await;
                    let leave = wire::LeaveGroupRequest {
                        group_id: long_id(number),
                        member_id: joined.member_id,
                        ..Default::default()
                    };
                    conn.call(&leave, 2).await;
                }
            }
            Filler::Offsets => {
                for number in 0..2 * POOL_BYTES / STRING_BYTES_MAX {
                    conn.call(&commit(&long_id(number), "shared", 1, 0), 8).await;
                }
            }
        }
        conns
    }
}

async fn sync(
    conn: &mut Conn,
    group: &str,
    member: &str,
    generation: i32,
    bytes: usize,
) -> ErrorCode {
    let assignment = SyncGroupRequestAssignment {
        member_id: member.to_owned(),
        assignment: vec![7; bytes].into(),
    };
    let sync = wire::SyncGroupRequest {
        group_id: group.to_owned(),
        generation_id: generation,
        member_id: member.to_owned(),
        assignments: vec![assignment],
        ..Default::default()
    };
    conn.call(&sync, 3).await.error()
}

/// A member joins, or joins again, and gets an assignment. Returns its id and generation.
async fn enter(conn: &mut Conn, group: &str, member: &str) -> (String, i32) {
    let mut request = join(group, member, 200);
    loop {
        let joined = conn.call(&request, 5).await;
        match joined.error() {
            ErrorCode::None => {
                let (member, generation) = (joined.member_id, joined.generation_id);
                let synced = sync(conn, group, &member, generation, 100).await;
                assert_eq!(synced, ErrorCode::None, "SyncGroup of {group}");
                return (member, generation);
            }
            ErrorCode::MemberIdRequired => request.member_id = joined.member_id,
            ErrorCode::CoordinatorLoadInProgress => {}
            other => panic!("JoinGroup of {group}: {other}"),
        }
    }
}

/// Everything that a consumer does with its group.
async fn use_group(conn: &mut Conn, group: &str, member: &str) {
    let (member, generation) = enter(conn, group, member).await;
    let heartbeat = wire::HeartbeatRequest {
        group_id: group.to_owned(),
        generation_id: generation,
        member_id: member.clone(),
        ..Default::default()
    };
    assert_eq!(conn.call(&heartbeat, 3).await.error(), ErrorCode::None, "Heartbeat of {group}");
    let mut stored = commit(group, "shared", 3, 20);
    (stored.member_id, stored.generation_id_or_member_epoch) = (member.clone(), generation);
    let committed = conn.call(&stored, 8).await;
    for partition in &committed.topics[0].partitions {
        assert_eq!(partition.error_code, 0, "OffsetCommit of {group}");
    }
    let (member, _) = enter(conn, group, &member).await;
    let fetch = wire::OffsetFetchRequest { group_id: group.to_owned(), ..Default::default() };
    let fetched = conn.call(&fetch, 5).await;
    assert_eq!(fetched.error_code, 0);
    let described =
        wire::DescribeGroupsRequest { groups: vec![group.to_owned()], ..Default::default() };
    assert_eq!(conn.call(&described, 5).await.groups[0].members.len(), 1, "{group}");
    let leave = wire::LeaveGroupRequest {
        group_id: group.to_owned(),
        member_id: member,
        ..Default::default()
    };
    assert_eq!(conn.call(&leave, 2).await.error(), ErrorCode::None);
}

/// Waits until a pool has no room for more of the address that fills it.
pub async fn wait_until_full(broker: &Broker, pool: &str) {
    let metric = |name: &str| format!("highwater_{pool}_memory_{name}");
    let bytes_max = broker.metric(&metric("max_bytes")).await;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let bytes = broker.metric(&metric("bytes")).await;
        if bytes >= FULL_PART * bytes_max {
            return;
        }
        assert!(Instant::now() < deadline, "{bytes} of {bytes_max} bytes of {pool}");
    }
}

async fn assert_fair(filler: Filler) {
    let pool = POOL_BYTES.to_string();
    let broker = Broker::start_alone(&[
        ("group.coordinator.memory.max.bytes", &pool),
        ("group.coordinator.offsets.memory.max.bytes", &pool),
        ("queued.max.request.bytes", &pool),
        ("socket.send.buffer.bytes", "65536"),
        ("socket.request.max.bytes", &(POOL_BYTES / 2).to_string()),
    ])
    .await;
    let mut conn = broker.connect().await;
    conn.create_topic_of("shared", 100, &[]).await;
    let find = wire::FindCoordinatorRequest {
        coordinator_keys: vec!["before".to_owned()],
        ..Default::default()
    };
    conn.call(&find, 4).await;
    let (before, _) = enter(&mut conn, "before", "").await;
    let hog = filler.fill(&broker).await;
    use_group(&mut conn, "before", &before).await;
    use_group(&mut conn, "first", "").await;
    let mut other = broker.connect().await;
    use_group(&mut other, "second", "").await;
    other.create_topic("new", &[]).await;
    assert_eq!(other.append("new", batch(&["value"])).await, 0);
    assert_eq!(headers(&other.fetch("new", 0).await).len(), 1);
    drop(hog);
    broker.stop().await;
}

#[tokio::test]
async fn a_pool_that_one_address_fills_serves_all_others() {
    let named = METRICS.lines().filter_map(|line| {
        line.strip_prefix("# TYPE highwater_")?.strip_suffix("_memory_max_bytes gauge")
    });
    let named: Vec<&str> = named.collect();
    assert_eq!(named, FILLERS.map(|(pool, _)| pool), "each pool has its fillers");
    for (pool, fillers) in FILLERS {
        for filler in fillers {
            eprintln!("{pool}: {filler:?}");
            Box::pin(assert_fair(*filler)).await;
        }
    }
}

/// Clients commit few bytes of metadata, and committed offsets are never taken back.
#[tokio::test]
async fn metadata_of_offsets_takes_an_eighth_of_their_memory() {
    const GROUP_BYTES: usize = 100 * 4_000;
    let pool = (40 << 20).to_string();
    let broker =
        Broker::start_alone(&[("group.coordinator.offsets.memory.max.bytes", &pool)]).await;
    let mut other = broker.connect().await;
    other.create_topic_of("shared", 100, &[]).await;
    let mut hog = Conn::open_from(HOG, broker.address()).await;
    store_offsets(&mut hog, 1).await;
    let mut stored = 1;
    let refused = loop {
        let group = format!("hog-{stored}");
        let committed = hog.call(&commit(&group, "shared", 100, 4_000), 8).await;
        match committed.topics[0].partitions[0].error_code {
            0 => stored += 1,
            code if code == ErrorCode::CoordinatorLoadInProgress.code() => {}
            code => break code,
        }
        assert!(stored * GROUP_BYTES <= 5 << 20, "{stored} groups with long metadata");
    };
    assert_eq!(refused, ErrorCode::CoordinatorNotAvailable.code());
    let plain = hog.call(&commit("hog-0", "shared", 100, 0), 8).await;
    assert_eq!(plain.topics[0].partitions[0].error_code, 0, "without metadata");
    use_group(&mut other, "other", "").await;
    broker.stop().await;
}
