//! DescribeQuorum (key 55), versions 0 to 2 (KIP-595). v1 when members were last heard of (KIP-836);
//! v2 directory ids, endpoints, and messages beside error codes (KIP-853).
//!
//! - True figures of the metadata quorum: the leader epoch is the raft term, an offset of the metadata
//!   log is an index of the raft log.
//! - Only the leader knows, and any broker asks it; NOT_LEADER_OR_FOLLOWER says that there is none.
//! - When a member last had everything is looked at twice a second.
//! - A member's endpoint is the one of the listener that the client came through: members have no
//!   listener of their own. Of a broker with several log directories it is not known which one holds the log, this
//!   node's apart; then it is zero.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use model::{BrokerId, ErrorCode, Timestamp, Uuid};
use wire::describe_quorum::{
    DescribeQuorumRequest, DescribeQuorumResponse, Listener, Node, ReplicaState, RequestTopicData,
    ResponsePartitionData, ResponseTopicData,
};

use super::{Call, unique};
use crate::cluster::{DescribedMember, DescribedQuorum, describe_quorum};

/// The metadata log, which has one partition.
const TOPIC: &str = "__cluster_metadata";
const PARTITION: i32 = 0;
/// A time that is not known.
const NEVER: i64 = -1;
/// From this version on members have directories, and nodes have endpoints.
const NODES_FROM_VERSION: i16 = 2;

/// Answers.
pub async fn handle(call: Arc<Call>, request: DescribeQuorumRequest) -> DescribeQuorumResponse {
    let mut response =
        DescribeQuorumResponse { error_message: Some(String::new()), ..Default::default() };
    if request.topics.is_empty() {
        return response;
    }
    if !asks_for_the_log(&request.topics) {
        let mut topics = request.topics;
        unique::keep_first_partitions(
            &mut topics,
            |topic| topic.topic_name.clone(),
            |topic| &mut topic.partitions,
            |partition| partition.partition_index,
        );
        response.topics = topics.into_iter().map(unknown_topic).collect();
        return response;
    }
    let Some(quorum) = describe_quorum(&call.server).await else {
        response.error_code = ErrorCode::NotLeaderOrFollower.code();
        response.error_message = Some("No leader of the metadata quorum answers.".to_owned());
        return response;
    };
    if call.version >= NODES_FROM_VERSION {
        let members = quorum.voters.iter();
        response.nodes = members.filter_map(|voter| node(&call, voter)).collect();
    }
    response.topics = vec![ResponseTopicData {
        topic_name: TOPIC.to_owned(),
        partitions: vec![partition(&call, &quorum)],
    }];
    response
}

/// Exactly the one partition that there is, as Kafka wants it.
fn asks_for_the_log(topics: &[RequestTopicData]) -> bool {
    let [topic] = topics else { return false };
    let [partition] = &topic.partitions[..] else { return false };
    topic.topic_name == TOPIC && partition.partition_index == PARTITION
}

fn unknown_topic(topic: RequestTopicData) -> ResponseTopicData {
    let unknown = |asked: wire::describe_quorum::RequestPartitionData| ResponsePartitionData {
        partition_index: asked.partition_index,
        error_code: ErrorCode::UnknownTopicOrPartition.code(),
        error_message: Some("This server does not host this topic-partition.".to_owned()),
        ..Default::default()
    };
    ResponseTopicData {
        topic_name: topic.topic_name,
        partitions: topic.partitions.into_iter().map(unknown).collect(),
    }
}

fn partition(call: &Call, quorum: &DescribedQuorum) -> ResponsePartitionData {
    let now = call.server.now();
    let member = |member: &DescribedMember| replica(call, member, now);
    ResponsePartitionData {
        partition_index: PARTITION,
        error_message: Some(String::new()),
        leader_id: quorum.leader.0,
        leader_epoch: quorum.leader_epoch,
        high_watermark: quorum.high_watermark.0,
        current_voters: quorum.voters.iter().map(member).collect(),
        observers: quorum.observers.iter().map(member).collect(),
        ..Default::default()
    }
}

fn replica(call: &Call, member: &DescribedMember, now: Timestamp) -> ReplicaState {
    let ago = |ago: Option<Duration>| ago.map_or(NEVER, |ago| now.0 - ago.as_millis() as i64);
    let directory = match call.version >= NODES_FROM_VERSION {
        true => directory(call, member.node),
        false => Uuid::ZERO,
    };
    ReplicaState {
        replica_id: member.node.0,
        replica_directory_id: directory,
        log_end_offset: member.log_end.0,
        last_fetch_timestamp: ago(member.heard_ago),
        last_caught_up_timestamp: ago(member.caught_up_ago),
    }
}

/// The id of the log directory that holds the metadata log.
fn directory(call: &Call, node: BrokerId) -> Uuid {
    let image = call.server.image();
    if let Some([only]) = image.broker(node).map(|broker| &broker.log_dirs[..]) {
        return *only;
    }
    if node != call.server.node_id {
        return Uuid::ZERO;
    }
    let config = call.server.config();
    let holds = |path: &Path| path == config.metadata_dir;
    let found = call.server.logs.directories().find(|directory| holds(directory.path()));
    found.map_or(Uuid::ZERO, |directory| directory.id())
}

fn node(call: &Call, member: &DescribedMember) -> Option<Node> {
    let image = call.server.image();
    let (host, port) = call.endpoint_of(image.broker(member.node)?)?;
    let name = call.listener.to_string();
    Some(Node { node_id: member.node.0, listeners: vec![Listener { name, host, port }] })
}
