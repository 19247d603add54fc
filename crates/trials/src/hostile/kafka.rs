//! Attacks by Kafka's protocol: on the broker, and on the proxy in front of it.

use anyhow::Result;
use wire::create_topics::CreatableTopic;
use wire::describe_configs::DescribeConfigsResource;
use wire::join_group::JoinGroupRequestProtocol;
use wire::message::Request;
use wire::offset_commit::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use wire::offset_fetch::OffsetFetchRequestGroup;
use wire::{
    CreateTopicsRequest, DescribeConfigsRequest, FindCoordinatorRequest, JoinGroupRequest,
    MetadataRequest, OffsetCommitRequest, OffsetFetchRequest, Writer, frame,
};

use super::WIDE_TOPIC;
use super::client::{Attack, End};

/// The longest session that a broker grants by default, in milliseconds.
const SESSION_MS: i32 = 1_800_000;
/// A group whose committed metadata is fetched again and again.
const FETCHED_GROUP: &str = "hostile-fetched";
/// Partitions of one commit, and bytes of metadata of each: 4,096 are allowed.
const COMMITTED: (i32, usize) = (200, 4_000);
/// The type of a broker among configuration resources.
const BROKER_RESOURCE: i8 = 4;

/// All attacks.
pub(super) const ATTACKS: [Attack; 11] = [
    Attack {
        name: "pending members of groups with long names",
        requests: pending,
        end: End::Answered,
    },
    Attack { name: "members with 900 KB of metadata", requests: large_member, end: End::Held(32) },
    Attack { name: "commits with 800 KB of metadata", requests: commit, end: End::Answered },
    Attack { name: "one group fetched 400 times", requests: fetch_offsets, end: End::Held(16) },
    Attack {
        name: "five descriptions of all topics, unread",
        requests: describe_topics,
        end: End::Held(50),
    },
    Attack {
        name: "one broker under 5,000 spellings",
        requests: describe_broker,
        end: End::Held(8),
    },
    Attack {
        name: "1,000 topics to validate, unread",
        requests: validate_topics,
        end: End::Held(8),
    },
    Attack {
        name: "one coordinator 5,000 times, unread",
        requests: find_coordinator,
        end: End::Held(16),
    },
    Attack {
        name: "frames of 90 MB of which 256 KB come",
        requests: half_frame,
        end: End::Held(100),
    },
    Attack { name: "idle connections", requests: nothing, end: End::Held(400) },
    Attack { name: "requests for TLS and for HTTP", requests: foreign, end: End::Held(0) },
];

/// One request as a frame.
fn framed<R: Request>(request: &R, version: i16, client_id: &str) -> Result<Vec<u8>> {
    let mut writer = Writer::new();
    frame::write_request(&mut writer, request, version, 1, Some(client_id))?;
    Ok(writer.into_bytes())
}

fn join(group_id: String, metadata_bytes: usize) -> JoinGroupRequest {
    let metadata = vec![b'm'; metadata_bytes].into();
    JoinGroupRequest {
        group_id,
        session_timeout_ms: SESSION_MS,
        rebalance_timeout_ms: SESSION_MS,
        protocol_type: "consumer".to_owned(),
        protocols: vec![JoinGroupRequestProtocol { name: "range".to_owned(), metadata }],
        ..Default::default()
    }
}

/// From version 4 on the member waits for its second join.
fn pending(number: u64) -> Result<Vec<u8>> {
    let group_id = format!("{number:08}{}", "g".repeat(32_000));
    framed(&join(group_id, 1), 5, &"c".repeat(30_000))
}

fn large_member(number: u64) -> Result<Vec<u8>> {
    framed(&join(format!("hostile-{number}"), 900_000), 3, "hostile")
}

fn commit(number: u64) -> Result<Vec<u8>> {
    let group_id = match number {
        0 => FETCHED_GROUP.to_owned(),
        _ => format!("hostile-{number}"),
    };
    let partition = |index| OffsetCommitRequestPartition {
        partition_index: index,
        committed_offset: 1,
        committed_metadata: Some("m".repeat(COMMITTED.1)),
        committed_leader_epoch: -1,
    };
    let topic = OffsetCommitRequestTopic {
        name: WIDE_TOPIC.to_owned(),
        partitions: (0..COMMITTED.0).map(partition).collect(),
        ..Default::default()
    };
    let request = OffsetCommitRequest {
        group_id,
        generation_id_or_member_epoch: -1,
        topics: vec![topic],
        ..Default::default()
    };
    framed(&request, 7, "hostile")
}

fn fetch_offsets(_: u64) -> Result<Vec<u8>> {
    let group = OffsetFetchRequestGroup {
        group_id: FETCHED_GROUP.to_owned(),
        topics: None,
        ..Default::default()
    };
    framed(&OffsetFetchRequest { groups: vec![group; 400], ..Default::default() }, 8, "hostile")
}

fn describe_topics(_: u64) -> Result<Vec<u8>> {
    let request = MetadataRequest { topics: None, ..Default::default() };
    Ok(framed(&request, 1, "hostile")?.repeat(5))
}

fn describe_broker(_: u64) -> Result<Vec<u8>> {
    let resource = |zeros| DescribeConfigsResource {
        resource_type: BROKER_RESOURCE,
        resource_name: format!("{:0>width$}", 1, width = zeros),
        ..Default::default()
    };
    let resources = (1..5_000).map(|number: usize| resource(1 + number % 200)).collect();
    framed(&DescribeConfigsRequest { resources, ..Default::default() }, 1, "hostile")
}

fn validate_topics(number: u64) -> Result<Vec<u8>> {
    let topic = |at: u64| CreatableTopic {
        name: format!("hostile-{number}-{at}"),
        num_partitions: 1,
        replication_factor: 1,
        ..Default::default()
    };
    let topics = (0..1_000).map(topic).collect();
    framed(&CreateTopicsRequest { topics, timeout_ms: 10_000, validate_only: true }, 7, "hostile")
}

fn find_coordinator(_: u64) -> Result<Vec<u8>> {
    let coordinator_keys = vec![FETCHED_GROUP.to_owned(); 5_000];
    framed(&FindCoordinatorRequest { coordinator_keys, ..Default::default() }, 4, "hostile")
}

fn half_frame(_: u64) -> Result<Vec<u8>> {
    let mut frame = framed(&join("hostile-half".to_owned(), 256 << 10), 3, "hostile")?;
    frame[..4].copy_from_slice(&90_000_000_u32.to_be_bytes());
    Ok(frame)
}

fn nothing(_: u64) -> Result<Vec<u8>> {
    Ok(Vec::new())
}

fn foreign(number: u64) -> Result<Vec<u8>> {
    Ok(match number % 2 {
        0 => b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n".to_vec(),
        _ => [&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc][..], &[0; 508]].concat(),
    })
}
