//! ElectLeaders (key 43), versions 0 to 2 (KIP-183). v1 the kind of election and an error for the
//! whole request (KIP-460).
//!
//! The controller decides. Without a list of partitions only those are answered that needed an
//! election; Kafka also names every other topic, with no partitions.

use std::sync::Arc;

use ::metadata::decide::{ElectLeaders, ElectionKind};
use ::metadata::{Answer, Request, Response};
use model::{ErrorCode, PartitionIndex};
use wire::elect_leaders::{
    ElectLeadersRequest, ElectLeadersResponse, PartitionResult, ReplicaElectionResult,
};

use super::{Call, unique};

type Elected = (Arc<str>, PartitionIndex, Answer<()>);

/// Memory of a partition in an answer, decoded and encoded, with the reason of a refusal.
const PARTITION_BYTES: usize = 384;

/// Answers.
pub async fn handle(call: Arc<Call>, request: ElectLeadersRequest) -> ElectLeadersResponse {
    if request.topic_partitions.is_none() {
        let image = call.server.image();
        let all: usize = image.topics().map(|topic| topic.partition_count()).sum();
        call.reserve_answer(all * PARTITION_BYTES).await;
    } else {
        call.reserve_answer(16 * call.decoded_bytes).await;
    }
    let partitions = request.topic_partitions.map(|topics| {
        let named = topics.into_iter().flat_map(|topic| {
            let name = topic.topic;
            topic.partitions.into_iter().map(move |index| (name.clone(), PartitionIndex(index)))
        });
        let mut named = named.collect::<Vec<_>>();
        unique::keep_first(&mut named, Clone::clone);
        named
    });
    let kind = match request.election_type {
        0 => ElectionKind::Preferred,
        1 => ElectionKind::Unclean,
        other => {
            let message = format!("Unknown election type {other}");
            return refuse(ErrorCode::InvalidRequest, &message, partitions);
        }
    };
    let elect = Request::ElectLeaders(ElectLeaders { kind, partitions: partitions.clone() });
    match call.decide(elect).await {
        Ok(Response::ElectLeaders(elected)) => ElectLeadersResponse {
            replica_election_results: by_topic(elected),
            ..Default::default()
        },
        Ok(other) => unreachable!("the answer to another request: {other:?}"),
        Err(code) => refuse(code, code.name(), partitions),
    }
}

/// The same refusal for the request and for each partition that it names.
fn refuse(
    code: ErrorCode,
    message: &str,
    partitions: Option<Vec<(String, PartitionIndex)>>,
) -> ElectLeadersResponse {
    let refused = partitions
        .unwrap_or_default()
        .into_iter()
        .map(|(topic, index)| (topic.into(), index, Err(::metadata::Refusal::new(code, message))));
    ElectLeadersResponse {
        throttle_time_ms: 0,
        error_code: code.code(),
        replica_election_results: by_topic(refused),
    }
}

/// Partitions that follow each other and are of one topic come together.
fn by_topic(elected: impl IntoIterator<Item = Elected>) -> Vec<ReplicaElectionResult> {
    let mut topics: Vec<ReplicaElectionResult> = Vec::new();
    for (topic, index, answer) in elected {
        let (code, error_message) = match answer {
            Ok(()) => (ErrorCode::None, None),
            Err(refusal) => (refusal.error, Some(refusal.message)),
        };
        let result =
            PartitionResult { partition_id: index.0, error_code: code.code(), error_message };
        match topics.last_mut().filter(|last| *last.topic == *topic) {
            Some(last) => last.partition_result.push(result),
            None => topics.push(ReplicaElectionResult {
                topic: topic.to_string(),
                partition_result: vec![result],
            }),
        }
    }
    topics
}
