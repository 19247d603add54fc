//! A look at a cluster of two brokers, of which the test plays one; the other is not there.

use client::admin::survey::Led;
use client::offsets::list_each;
use client::{Admin, Cluster, ClusterConfig, OffsetSpec};
use model::{ErrorCode, Offset, TopicPartition};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use wire::api_versions::ApiVersion;
use wire::describe_log_dirs::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use wire::frame::{RequestHead, write_response};
use wire::list_groups::ListedGroup;
use wire::list_offsets::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use wire::metadata::{MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic};
use wire::offset_fetch::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use wire::{
    ApiKey, ApiVersionsResponse, DescribeLogDirsResponse, ListGroupsResponse, ListOffsetsRequest,
    ListOffsetsResponse, MetadataResponse, OffsetFetchRequest, OffsetFetchResponse, Reader, Writer,
};

/// A partition that its leader does not answer for.
const REFUSED: i32 = 1;

/// A cluster whose first broker fetches committed offsets up to this version; and how many requests it got.
async fn cluster(offset_fetch_max: i16) -> (Admin, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = i32::from(listener.local_addr().unwrap().port());
    let nowhere = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let ports = [port, i32::from(nowhere.port())];
            tokio::spawn(serve(stream, ports, offset_fetch_max, counted.clone()));
        }
    });
    let config = ClusterConfig::new(&format!("127.0.0.1:{port}"));
    (Admin::new(Cluster::connect(config).await.unwrap()), asked)
}

async fn serve(
    mut stream: TcpStream,
    ports: [i32; 2],
    offset_fetch_max: i16,
    asked: Arc<AtomicUsize>,
) {
    while let Ok(length) = stream.read_u32().await {
        let mut frame = vec![0; length as usize];
        stream.read_exact(&mut frame).await.unwrap();
        let head = RequestHead::parse(&frame).unwrap();
        let (api, version, id) = (head.api_key, head.version, head.correlation_id);
        let mut reader = Reader::new(&frame[head.body_from..]);
        let mut writer = Writer::new();
        let w = &mut writer;
        asked.fetch_add(1, Ordering::Relaxed);
        match api {
            ApiKey::ApiVersions => write_response(w, &versions(offset_fetch_max), api, version, id),
            ApiKey::Metadata => write_response(w, &metadata(ports), api, version, id),
            ApiKey::ListOffsets => {
                let request = ListOffsetsRequest::decode(&mut reader, version).unwrap();
                write_response(w, &offsets(&request), api, version, id)
            }
            ApiKey::ListGroups => write_response(w, &groups(), api, version, id),
            ApiKey::DescribeLogDirs => write_response(w, &log_dirs(), api, version, id),
            ApiKey::OffsetFetch => {
                let request = OffsetFetchRequest::decode(&mut reader, version).unwrap();
                write_response(w, &committed(&request, version), api, version, id)
            }
            other => panic!("{other} was asked"),
        }
        .unwrap();
        stream.write_all(writer.bytes()).await.unwrap();
    }
}

fn versions(offset_fetch_max: i16) -> ApiVersionsResponse {
    let row = |api: ApiKey, max_version| ApiVersion {
        api_key: api.code(),
        min_version: api.min_version(),
        max_version,
    };
    let api_keys = vec![
        row(ApiKey::ApiVersions, ApiKey::ApiVersions.max_version()),
        row(ApiKey::Metadata, 9),
        row(ApiKey::ListOffsets, 6),
        row(ApiKey::ListGroups, 4),
        row(ApiKey::DescribeLogDirs, 4),
        row(ApiKey::OffsetFetch, offset_fetch_max),
    ];
    ApiVersionsResponse { api_keys, ..Default::default() }
}

/// Partitions 0 and 1 are led by the broker that is there, 2 by the other, 3 by none.
fn metadata(ports: [i32; 2]) -> MetadataResponse {
    let partition = |(partition_index, leader_id)| MetadataResponsePartition {
        partition_index,
        leader_id,
        ..Default::default()
    };
    let broker = |(node_id, port)| MetadataResponseBroker {
        node_id,
        host: "127.0.0.1".to_owned(),
        port,
        ..Default::default()
    };
    MetadataResponse {
        brokers: (1..).zip(ports).map(broker).collect(),
        controller_id: 1,
        topics: vec![MetadataResponseTopic {
            name: Some("t".to_owned()),
            partitions: (0..).zip([1, 1, 2, -1]).map(partition).collect(),
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn offsets(request: &ListOffsetsRequest) -> ListOffsetsResponse {
    let partition = |index: i32| ListOffsetsPartitionResponse {
        partition_index: index,
        error_code: if index == REFUSED { ErrorCode::NotLeaderOrFollower.code() } else { 0 },
        offset: 40 + i64::from(index),
        ..Default::default()
    };
    let topics = request.topics.iter().map(|topic| ListOffsetsTopicResponse {
        name: topic.name.clone(),
        partitions: topic.partitions.iter().map(|p| partition(p.partition_index)).collect(),
    });
    ListOffsetsResponse { topics: topics.collect(), ..Default::default() }
}

fn groups() -> ListGroupsResponse {
    let group = |id: &str| ListedGroup { group_id: id.to_owned(), ..Default::default() };
    ListGroupsResponse { groups: vec![group("g"), group("h")], ..Default::default() }
}

fn log_dirs() -> DescribeLogDirsResponse {
    let partitions = vec![DescribeLogDirsPartition { partition_size: 77, ..Default::default() }];
    let topics = vec![DescribeLogDirsTopic { name: "t".to_owned(), partitions }];
    let results =
        vec![DescribeLogDirsResult { log_dir: "/d".to_owned(), topics, ..Default::default() }];
    DescribeLogDirsResponse { results, ..Default::default() }
}

/// Group `g` committed 7 for partition 0, nothing for 1; the coordinator does not coordinate `h`.
fn committed(request: &OffsetFetchRequest, version: i16) -> OffsetFetchResponse {
    let code = |group: &str| match group {
        "g" => 0,
        _ => ErrorCode::NotCoordinator.code(),
    };
    let rows = [(0, 7), (1, -1)];
    if version < 8 {
        let partition = |(partition_index, committed_offset)| OffsetFetchResponsePartition {
            partition_index,
            committed_offset,
            ..Default::default()
        };
        let partitions = rows.map(partition).to_vec();
        let topics = vec![OffsetFetchResponseTopic { name: "t".to_owned(), partitions }];
        let error_code = code(&request.group_id);
        return OffsetFetchResponse { topics, error_code, ..Default::default() };
    }
    let partition = |(partition_index, committed_offset)| OffsetFetchResponsePartitions {
        partition_index,
        committed_offset,
        ..Default::default()
    };
    let group = |group_id: &String| OffsetFetchResponseGroup {
        group_id: group_id.clone(),
        error_code: code(group_id),
        topics: vec![OffsetFetchResponseTopics {
            name: "t".to_owned(),
            partitions: rows.map(partition).to_vec(),
            ..Default::default()
        }],
    };
    let groups = request.groups.iter().map(|asked| group(&asked.group_id)).collect();
    OffsetFetchResponse { groups, ..Default::default() }
}

#[tokio::test]
async fn a_broker_that_is_silent_leaves_a_gap_and_no_more() {
    let (admin, _) = cluster(9).await;
    let metadata = admin.cluster().describe_all().await.unwrap();
    let led = Led::of(metadata.topics.values().map(|topic| &**topic), |_| None);
    let mut found = BTreeMap::new();
    let take = |topic: &str, index: i32, offset| {
        found.insert((topic.to_owned(), index), offset);
    };
    let silent = admin.log_offsets(&led, OffsetSpec::Latest, take).await;
    let of = |index| found.get(&("t".to_owned(), index));
    assert_eq!(of(0).unwrap().as_ref().unwrap().offset, Some(Offset(40)));
    assert_eq!(*of(REFUSED).unwrap(), Err(ErrorCode::NotLeaderOrFollower));
    assert!(of(2).is_none() && of(3).is_none(), "their leaders said nothing: {found:?}");
    assert_eq!(silent.keys().collect::<Vec<_>>(), [&2]);
    let groups = admin.groups_of(&[1, 2]).await;
    let ids: Vec<_> = groups[&1].as_ref().unwrap().iter().map(|group| &*group.group_id).collect();
    assert_eq!(ids, ["g", "h"]);
    assert!(groups[&2].is_err());
    let mut dirs = BTreeMap::new();
    let silent =
        admin.log_dirs_of(&[1, 2, 99], |broker, some| drop(dirs.insert(broker, some))).await;
    assert_eq!(dirs[&1][0].topics[0].partitions[0].partition_size, 77);
    assert_eq!((dirs.len(), silent.keys().collect::<Vec<_>>()), (1, vec![&2, &99]));
}

#[tokio::test]
async fn one_offset_is_asked_of_its_leader() {
    let (admin, _) = cluster(9).await;
    let metadata = admin.cluster().describe_all().await.unwrap();
    let of = async |index| {
        let partition = TopicPartition::new("t", index);
        admin.log_offset(&metadata, &partition, OffsetSpec::Latest).await
    };
    assert_eq!(of(0).await.unwrap().offset, Some(Offset(40)));
    assert_eq!(of(REFUSED).await.unwrap_err().code(), Some(ErrorCode::NotLeaderOrFollower));
    assert_eq!(of(3).await.unwrap_err().code(), Some(ErrorCode::LeaderNotAvailable));
    assert!(of(2).await.is_err());
}

#[tokio::test]
async fn a_partition_without_an_offset_hides_no_other_one() {
    let (admin, _) = cluster(9).await;
    let wanted: Vec<_> =
        (0..4).map(|index| (TopicPartition::new("t", index), OffsetSpec::Latest)).collect();
    let found = list_each(admin.cluster(), &wanted, Duration::ZERO).await;
    let of = |index| found[&TopicPartition::new("t", index)].as_ref();
    assert_eq!(of(0).unwrap().offset, Some(Offset(40)));
    assert_eq!(of(REFUSED).unwrap_err().code(), Some(ErrorCode::NotLeaderOrFollower));
    assert_eq!(of(3).unwrap_err().code(), Some(ErrorCode::LeaderNotAvailable));
    assert!(of(2).is_err(), "its leader is away: {found:?}");
}

#[tokio::test]
async fn commits_of_many_groups_are_asked_at_once_where_brokers_can() {
    for (version, requests) in [(9, 1), (8, 1), (7, 2)] {
        let (admin, asked) = cluster(version).await;
        // A connection of its own is opened by the first request; its versions are asked for then.
        admin.groups_of(&[1]).await;
        let before = asked.load(Ordering::Relaxed);
        let groups = BTreeMap::from([(1, vec!["g".to_owned(), "h".to_owned()])]);
        let mut committed = BTreeMap::new();
        let take = |group, offsets| drop(committed.insert(group, offsets));
        let silent = admin.committed_of(groups, take).await;
        assert!(silent.is_empty(), "{silent:?}");
        assert_eq!(asked.load(Ordering::Relaxed) - before, requests, "version {version}");
        let of_g = committed["g"].as_ref().unwrap();
        assert_eq!(of_g.len(), 1, "a partition without a commit is left out");
        assert_eq!((&of_g[0].0, of_g[0].1.offset), (&TopicPartition::new("t", 0), Offset(7)));
        assert_eq!(committed["h"], Err(ErrorCode::NotCoordinator));
    }
}
