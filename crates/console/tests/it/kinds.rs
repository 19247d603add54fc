//! Groups of kinds that Highwater does not have, of a cluster of Apache Kafka, which the test plays: one broker that lists
//! them, fetches their offsets, and denies that they are classic groups.

use gateway::{Access, Gateway};
use model::ErrorCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use wire::api_versions::ApiVersion;
use wire::describe_groups::DescribedGroup;
use wire::frame::{RequestHead, write_response};
use wire::list_groups::ListedGroup;
use wire::metadata::{MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic};
use wire::offset_fetch::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartitions, OffsetFetchResponseTopics,
};
use wire::{
    ApiKey, ApiVersionsResponse, DescribeGroupsResponse, FindCoordinatorResponse,
    ListGroupsResponse, MetadataResponse, OffsetFetchRequest, OffsetFetchResponse, Reader, Writer,
};

use crate::fixture::{Answer, ask, open_with};

/// The groups: what each is.
const KINDS: [(&str, &str); 3] = [("s", "Share"), ("k", "Streams"), ("n", "Novel")];

async fn serve(mut stream: TcpStream, port: i32) {
    while let Ok(length) = stream.read_u32().await {
        let mut frame = vec![0; length as usize];
        stream.read_exact(&mut frame).await.unwrap();
        let head = RequestHead::parse(&frame).unwrap();
        let (api, version, id) = (head.api_key, head.version, head.correlation_id);
        let mut reader = Reader::new(&frame[head.body_from..]);
        let mut writer = Writer::new();
        let w = &mut writer;
        match api {
            ApiKey::ApiVersions => write_response(w, &versions(), api, version, id),
            ApiKey::Metadata => write_response(w, &metadata(port), api, version, id),
            ApiKey::ListGroups => write_response(w, &groups(), api, version, id),
            ApiKey::OffsetFetch => {
                let request = OffsetFetchRequest::decode(&mut reader, version).unwrap();
                write_response(w, &committed(&request), api, version, id)
            }
            ApiKey::FindCoordinator => {
                let host = "127.0.0.1".to_owned();
                let found =
                    FindCoordinatorResponse { node_id: 1, host, port, ..Default::default() };
                write_response(w, &found, api, version, id)
            }
            ApiKey::DescribeGroups => write_response(w, &described(), api, version, id),
            other => panic!("{other} was asked"),
        }
        .unwrap();
        stream.write_all(writer.bytes()).await.unwrap();
    }
}

fn versions() -> ApiVersionsResponse {
    let row = |api: ApiKey, max_version| ApiVersion {
        api_key: api.code(),
        min_version: api.min_version(),
        max_version,
    };
    let api_keys = vec![
        row(ApiKey::ApiVersions, ApiKey::ApiVersions.max_version()),
        row(ApiKey::Metadata, 9),
        row(ApiKey::ListGroups, 5),
        row(ApiKey::OffsetFetch, 8),
        row(ApiKey::FindCoordinator, 3),
        row(ApiKey::DescribeGroups, 6),
    ];
    ApiVersionsResponse { api_keys, ..Default::default() }
}

fn metadata(port: i32) -> MetadataResponse {
    let host = "127.0.0.1".to_owned();
    let partitions = vec![MetadataResponsePartition { leader_id: 1, ..Default::default() }];
    let name = Some("t".to_owned());
    MetadataResponse {
        brokers: vec![MetadataResponseBroker { node_id: 1, host, port, ..Default::default() }],
        controller_id: 1,
        topics: vec![MetadataResponseTopic { name, partitions, ..Default::default() }],
        ..Default::default()
    }
}

fn groups() -> ListGroupsResponse {
    let group = |(id, kind): (&str, &str)| ListedGroup {
        group_id: id.to_owned(),
        group_state: "Stable".to_owned(),
        group_type: kind.to_owned(),
        ..Default::default()
    };
    ListGroupsResponse { groups: KINDS.map(group).to_vec(), ..Default::default() }
}

/// Share groups commit nothing.
fn committed(request: &OffsetFetchRequest) -> OffsetFetchResponse {
    let group = |group_id: &String| {
        let committed_offset = 7;
        let partition = OffsetFetchResponsePartitions { committed_offset, ..Default::default() };
        let topic = OffsetFetchResponseTopics {
            name: "t".to_owned(),
            partitions: vec![partition],
            ..Default::default()
        };
        let topics = if group_id == "s" { Vec::new() } else { vec![topic] };
        OffsetFetchResponseGroup { group_id: group_id.clone(), topics, ..Default::default() }
    };
    let groups = request.groups.iter().map(|asked| group(&asked.group_id)).collect();
    OffsetFetchResponse { groups, ..Default::default() }
}

/// What Apache Kafka says to whoever takes one of them for a classic group.
fn described() -> DescribeGroupsResponse {
    let group = DescribedGroup {
        error_code: ErrorCode::GroupIdNotFound.code(),
        group_state: "Dead".to_owned(),
        ..Default::default()
    };
    DescribeGroupsResponse { groups: vec![group], ..Default::default() }
}

async fn world() -> Gateway {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = i32::from(listener.local_addr().unwrap().port());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, port));
        }
    });
    let settings = console::Settings { write: true, ..console::Settings::default() };
    open_with(&format!("127.0.0.1:{port}"), Access::Everything, settings)
}

async fn get(gateway: &Gateway, target: &str) -> Answer {
    ask(gateway.address(), "GET", target, "host: localhost\r\n").await
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_that_are_neither_classic_nor_consumers_are_shown_as_what_they_are() {
    let gateway = world().await;
    let list = get(&gateway, "/console/groups").await;
    let pages = [
        ("s", "share", "share group (KIP-932)", "kafka-share-groups describes it"),
        ("k", "streams", "streams group (KIP-1071)", "kafka-streams-groups describes it"),
        ("n", "novel", "group of the type novel", "does not know how to ask"),
    ];
    for (id, kind, what, members) in pages {
        assert!(list.body.contains(&format!("<td>{kind}</td>")), "{}", list.body);
        // The last look is not of this moment: who is said not to be there is not found.
        let page = get(&gateway, &format!("/console/group?id={id}")).await;
        assert_eq!(page.status, 200, "{id}: {}", page.body);
        for words in [kind, what, members, "Stable"] {
            assert!(page.body.contains(words), "{id}: {words:?}: {}", page.body);
        }
        let commits = page.body.contains("Lag over time") && page.body.contains(">7</a>");
        assert_eq!(commits, id != "s", "{id}: {}", page.body);
        assert!(!page.body.contains("Reset offsets"), "{id}: {}", page.body);
        let told = get(&gateway, &format!("/api/v1/group?id={id}")).await;
        assert_eq!(told.status, 200, "{id}: {told:?}");
        let told = told.json();
        assert_eq!((&told["type"], &told["members"]), (&kind.into(), &().into()), "{told}");
        assert_eq!(told["partition_count"], u8::from(id != "s"));
    }
    gateway.stop().await;
}
