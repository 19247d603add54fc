//! What a console holds of 10,000 topics with 40,000 partitions and 1,000 groups that have committed in 40 partitions each: after a
//! look, and at the most while it looks. One test in a program of its own, because memory is counted for the whole
//! program; the broker is played, its large answers made beforehand.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use client::ClusterConfig;
use console::{Console, Front, Sending, Settings};
use peak_alloc::PeakAlloc;
use serde_json::Value;
use serving::choice::{Pair, Row};
use serving::operation::{By, NewRecord};
use serving::rights::{Rights, Role};
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
    OffsetFetchResponseGroup, OffsetFetchResponsePartitions, OffsetFetchResponseTopics,
};
use wire::{
    ApiKey, ApiVersionsResponse, DescribeLogDirsResponse, ListGroupsResponse, ListOffsetsRequest,
    ListOffsetsResponse, Message, MetadataRequest, MetadataResponse, OffsetFetchRequest,
    OffsetFetchResponse, Reader, Writer,
};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const TOPICS: usize = 10_000;
const PARTITIONS: i32 = 4;
const GROUPS: usize = 1000;
const TOPICS_OF_GROUP: usize = 10;
/// The last snapshot and what is remembered of the ends of logs, in bytes: so much for each partition of the cluster, and for each
/// in which a group has committed.
const SNAPSHOT_BYTES_MAX: usize =
    TOPICS * PARTITIONS as usize * 300 + GROUPS * TOPICS_OF_GROUP * PARTITIONS as usize * 75;
/// The histories of groups, in bytes.
const HISTORY_BYTES_MAX: usize = GROUPS * 7_000;
/// All of that, the next snapshot, and the answer that it begins with.
const PEAK_BYTES_MAX: usize = 34 << 20;
/// How long anything may take on a machine that is busy with much else.
const PATIENCE: Duration = Duration::from_secs(120);

fn name(topic: usize) -> String {
    format!("many-{topic}")
}

/// The one broker: frames of its large answers, by API, and the end of every log, which rises from look to look.
struct Played {
    port: i32,
    frames: HashMap<ApiKey, Vec<u8>>,
    end: AtomicI64,
}

/// The newest version of each API that it serves.
const VERSIONS: [(ApiKey, i16); 6] = [
    (ApiKey::ApiVersions, 3),
    (ApiKey::Metadata, 12),
    (ApiKey::ListOffsets, 6),
    (ApiKey::ListGroups, 5),
    (ApiKey::DescribeLogDirs, 4),
    (ApiKey::OffsetFetch, 8),
];

fn version(api: ApiKey) -> i16 {
    VERSIONS.iter().find(|row| row.0 == api).expect("it is served").1
}

fn frame<M: Message>(response: &M, api: ApiKey, id: i32) -> Vec<u8> {
    let mut writer = Writer::new();
    write_response(&mut writer, response, api, version(api), id).unwrap();
    writer.into_bytes()
}

impl Played {
    async fn serve(&self, mut stream: TcpStream) {
        while let Ok(length) = stream.read_u32().await {
            let mut asked = vec![0; length as usize];
            stream.read_exact(&mut asked).await.unwrap();
            let head = RequestHead::parse(&asked).unwrap();
            let (api, id) = (head.api_key, head.correlation_id);
            let mut reader = Reader::new(&asked[head.body_from..]);
            let small = match api {
                ApiKey::ApiVersions => frame(&versions(), api, id),
                ApiKey::Metadata => {
                    let request = MetadataRequest::decode(&mut reader, head.version).unwrap();
                    match request.topics {
                        Some(_) => frame(&metadata(self.port, 0), api, id),
                        None => Vec::new(),
                    }
                }
                ApiKey::ListOffsets => {
                    let request = ListOffsetsRequest::decode(&mut reader, head.version).unwrap();
                    frame(&self.offsets(&request), api, id)
                }
                ApiKey::OffsetFetch => {
                    let request = OffsetFetchRequest::decode(&mut reader, head.version).unwrap();
                    frame(&committed(&request), api, id)
                }
                _ => Vec::new(),
            };
            let whole = if small.is_empty() { &self.frames[&api] } else { &small };
            stream.write_all(&whole[..4]).await.unwrap();
            stream.write_all(&id.to_be_bytes()).await.unwrap();
            stream.write_all(&whole[8..]).await.unwrap();
        }
    }

    fn offsets(&self, request: &ListOffsetsRequest) -> ListOffsetsResponse {
        let end = self.end.fetch_add(1, Ordering::Relaxed);
        let partition = |asked: &wire::list_offsets::ListOffsetsPartition| {
            let offset = if asked.timestamp == -1 { end } else { 0 };
            let partition_index = asked.partition_index;
            ListOffsetsPartitionResponse { partition_index, offset, ..Default::default() }
        };
        let topics = request.topics.iter().map(|topic| ListOffsetsTopicResponse {
            name: topic.name.clone(),
            partitions: topic.partitions.iter().map(partition).collect(),
        });
        ListOffsetsResponse { topics: topics.collect(), ..Default::default() }
    }
}

fn versions() -> ApiVersionsResponse {
    let row = |(api, max_version): (ApiKey, i16)| ApiVersion {
        api_key: api.code(),
        min_version: api.min_version(),
        max_version,
    };
    ApiVersionsResponse { api_keys: VERSIONS.map(row).to_vec(), ..Default::default() }
}

/// Three brokers hold each partition; the one that answers leads all.
fn metadata(port: i32, topics: usize) -> MetadataResponse {
    let host = "127.0.0.1".to_owned();
    let partition = |partition_index| MetadataResponsePartition {
        partition_index,
        leader_id: 1,
        replica_nodes: vec![1, 2, 3],
        isr_nodes: vec![1, 2, 3],
        ..Default::default()
    };
    let topic = |at| MetadataResponseTopic {
        name: Some(name(at)),
        partitions: (0..PARTITIONS).map(partition).collect(),
        ..Default::default()
    };
    MetadataResponse {
        brokers: vec![MetadataResponseBroker { node_id: 1, host, port, ..Default::default() }],
        controller_id: 1,
        topics: (0..topics).map(topic).collect(),
        ..Default::default()
    }
}

fn groups() -> ListGroupsResponse {
    let group = |at| ListedGroup { group_id: format!("group-{at}"), ..Default::default() };
    ListGroupsResponse { groups: (0..GROUPS).map(group).collect(), ..Default::default() }
}

fn log_dirs() -> DescribeLogDirsResponse {
    let log = |partition_index| DescribeLogDirsPartition {
        partition_index,
        partition_size: 77,
        ..Default::default()
    };
    let topic = |at| DescribeLogDirsTopic {
        name: name(at),
        partitions: (0..PARTITIONS).map(log).collect(),
    };
    let topics = (0..TOPICS).map(topic).collect();
    let dir = DescribeLogDirsResult { log_dir: "/d".to_owned(), topics, ..Default::default() };
    DescribeLogDirsResponse { results: vec![dir], ..Default::default() }
}

/// Each group has committed the beginning of all partitions of ten topics.
fn committed(request: &OffsetFetchRequest) -> OffsetFetchResponse {
    let partition = |partition_index| OffsetFetchResponsePartitions {
        partition_index,
        metadata: Some(String::new()),
        ..Default::default()
    };
    let topic = |at: usize| OffsetFetchResponseTopics {
        name: name(at % TOPICS),
        partitions: (0..PARTITIONS).map(partition).collect(),
        ..Default::default()
    };
    let group = |id: &String| {
        let number: usize = id.strip_prefix("group-").unwrap().parse().unwrap();
        let first = number * TOPICS_OF_GROUP;
        let topics = (first..first + TOPICS_OF_GROUP).map(topic).collect();
        OffsetFetchResponseGroup { group_id: id.clone(), topics, ..Default::default() }
    };
    let groups = request.groups.iter().map(|asked| group(&asked.group_id)).collect();
    OffsetFetchResponse { groups, ..Default::default() }
}

async fn play() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let port = i32::from(address.port());
    let frames = HashMap::from([
        (ApiKey::Metadata, frame(&metadata(port, TOPICS), ApiKey::Metadata, 0)),
        (ApiKey::ListGroups, frame(&groups(), ApiKey::ListGroups, 0)),
        (ApiKey::DescribeLogDirs, frame(&log_dirs(), ApiKey::DescribeLogDirs, 0)),
    ]);
    let played = Arc::new(Played { port, frames, end: AtomicI64::new(1) });
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let played = Arc::clone(&played);
            tokio::spawn(async move { played.serve(stream).await });
        }
    });
    address.to_string()
}

/// A gateway that nothing is asked of.
struct NoFront;

impl Front for NoFront {
    fn send<'a>(
        &'a self,
        _topic: &'a str,
        _records: &'a [NewRecord],
        _pair: Pair,
        _partition: Option<i32>,
    ) -> Sending<'a> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn distribution(&self, _topic: &str) -> Vec<Row> {
        Vec::new()
    }

    fn topics(&self) -> Vec<String> {
        Vec::new()
    }

    fn counts(&self) -> Value {
        Value::Null
    }

    fn url(&self) -> String {
        String::new()
    }
}

async fn get(console: &Console, path: &str, query: Option<&str>) -> Value {
    let by = By { name: "test", rights: &Rights::of(Role::Read) };
    let answer = console.answer(path, query, by, &NoFront).await;
    serde_json::from_slice(answer.body()).unwrap()
}

/// The cluster as soon as it is as wanted.
async fn cluster_when(console: &Console, is: impl Fn(&Value) -> bool) -> Value {
    let wanted = async {
        loop {
            let cluster = get(console, "/api/v1/cluster", None).await;
            if is(&cluster) {
                return cluster;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wanted).await.expect("it is looked at in time")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_held_of_a_large_cluster_is_bounded() {
    let bootstrap = play().await;
    let console = Console::new(ClusterConfig::new(&bootstrap), Settings::default());
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let first = cluster_when(&console, |cluster| cluster["topics"] == TOPICS).await;
    // One that the last look does not know has the console look again.
    get(&console, "/api/v1/topic", Some("name=none")).await;
    let second = cluster_when(&console, |now| now["taken_ms"] != first["taken_ms"]).await;
    assert_eq!((&second["partitions"], &second["groups"]), (&40_000.into(), &1000.into()));
    let gaps = second["gaps"].as_array().unwrap();
    assert!(gaps.is_empty(), "{gaps:?}");
    let groups = get(&console, "/api/v1/groups", None).await;
    for group in groups["groups"].as_array().unwrap() {
        assert_eq!(group["partition_count"], 40, "{group}");
        assert!(group["lag"].as_i64() > Some(0), "{group}");
    }
    drop(groups);
    let peak = ALLOCATOR.peak_usage() - before;
    assert!(peak <= PEAK_BYTES_MAX, "{peak} bytes at the most");
    // A connection gives up what it has read the largest answers into a moment after them.
    let held_max = SNAPSHOT_BYTES_MAX + HISTORY_BYTES_MAX;
    let held = || ALLOCATOR.current_usage() - before;
    let settled = async {
        while held() > held_max {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let settled = tokio::time::timeout(PATIENCE, settled).await;
    eprintln!("{} bytes are held, {peak} at the most", held());
    assert!(settled.is_ok(), "{} bytes are held, and {held_max} may be", held());
    console.stop();
}
