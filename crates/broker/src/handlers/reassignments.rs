//! AlterPartitionReassignments (key 45), versions 0 and 1, and ListPartitionReassignments (key 46),
//! version 0 (KIP-455). v1 `allow_replication_factor_change` (KIP-860), echoed.
//!
//! Replicas are not moved yet, so nothing is ever being moved. What may be asked for is the present list of replicas, which
//! changes nothing; everything else is refused.

use std::collections::BTreeSet;
use std::sync::Arc;

use ::metadata::{Answer, ClusterImage, Refusal};
use model::{BrokerId, ErrorCode, PartitionIndex};
use wire::alter_partition_reassignments::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, ReassignablePartition,
    ReassignablePartitionResponse, ReassignableTopicResponse,
};
use wire::list_partition_reassignments::{
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse,
};

use super::{Call, unique};

/// Answers ListPartitionReassignments. Kafka says nothing of topics that there are not, either.
pub async fn list(
    _: Arc<Call>,
    _: ListPartitionReassignmentsRequest,
) -> ListPartitionReassignmentsResponse {
    ListPartitionReassignmentsResponse::default()
}

/// Answers AlterPartitionReassignments.
pub async fn alter(
    call: Arc<Call>,
    request: AlterPartitionReassignmentsRequest,
) -> AlterPartitionReassignmentsResponse {
    let image = call.server.image();
    let mut topics = request.topics;
    unique::keep_first_partitions(
        &mut topics,
        |topic| topic.name.clone(),
        |topic| &mut topic.partitions,
        |partition| partition.partition_index,
    );
    let topics = topics.into_iter().map(|topic| {
        let answer = |partition: ReassignablePartition| {
            let (error_code, error_message) = match check(&image, &topic.name, &partition) {
                Ok(()) => (ErrorCode::None, None),
                Err(Refusal { error, message }) => {
                    (error, Some(message).filter(|message| !message.is_empty()))
                }
            };
            ReassignablePartitionResponse {
                partition_index: partition.partition_index,
                error_code: error_code.code(),
                error_message,
            }
        };
        let partitions = topic.partitions.into_iter().map(answer).collect();
        ReassignableTopicResponse { name: topic.name.clone(), partitions }
    });
    AlterPartitionReassignmentsResponse {
        allow_replication_factor_change: request.allow_replication_factor_change,
        responses: topics.collect(),
        ..Default::default()
    }
}

fn refuse(error: ErrorCode, message: String) -> Answer<()> {
    Err(Refusal::new(error, message))
}

/// In Kafka's order: does it exist, is a move to be given up, are the replicas possible.
fn check(image: &ClusterImage, name: &str, asked: &ReassignablePartition) -> Answer<()> {
    let index = asked.partition_index;
    let Some(topic) = image.topic(name) else {
        let message = format!("Unable to find a topic named {name}.");
        return refuse(ErrorCode::UnknownTopicOrPartition, message);
    };
    let Some(partition) = topic.partition(PartitionIndex(index)) else {
        let message = format!("Unable to find partition {name}:{index}.");
        return refuse(ErrorCode::UnknownTopicOrPartition, message);
    };
    let Some(replicas) = &asked.replicas else {
        return refuse(ErrorCode::NoReassignmentInProgress, String::new());
    };
    let impossible = |rest: String| {
        let message = format!("The manual partition assignment includes {rest}");
        refuse(ErrorCode::InvalidReplicaAssignment, message)
    };
    if replicas.is_empty() {
        return impossible("an empty replica list.".to_owned());
    }
    let mut wanted = BTreeSet::new();
    for replica in replicas {
        if !wanted.insert(BrokerId(*replica)) {
            return impossible(format!("the broker {replica} more than once."));
        }
        if image.broker(BrokerId(*replica)).is_none() {
            return impossible(format!("broker {replica}, but no such broker is registered."));
        }
    }
    if wanted == partition.replicas.iter().copied().collect() {
        return Ok(());
    }
    let message = "This broker cannot move replicas to another broker.".to_owned();
    refuse(ErrorCode::InvalidReplicaAssignment, message)
}
