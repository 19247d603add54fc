//! CreatePartitions (key 37), versions 0 to 3 (KIP-195).

use std::sync::Arc;

use ::metadata::decide::{CreatePartitions, NewPartitions};
use ::metadata::{Request, Response};
use model::{BrokerId, ErrorCode};
use wire::create_partitions::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic,
    CreatePartitionsTopicResult,
};

use super::Call;

/// Answers once the partitions are committed and open.
pub async fn handle(call: Arc<Call>, request: CreatePartitionsRequest) -> CreatePartitionsResponse {
    let names: Vec<String> = request.topics.iter().map(|topic| topic.name.clone()).collect();
    let topics = request.topics.into_iter().map(new_partitions).collect();
    let request = CreatePartitions { topics, validate_only: request.validate_only };
    let results = match call.decide(Request::CreatePartitions(request)).await {
        Ok(Response::CreatePartitions(results)) => results
            .into_iter()
            .map(|(name, result)| match result {
                Ok(()) => answer(name, ErrorCode::None, None),
                Err(refusal) => answer(name, refusal.error, Some(refusal.message)),
            })
            .collect(),
        Ok(other) => unreachable!("the answer to another request: {other:?}"),
        Err(code) => names.into_iter().map(|name| answer(name, code, None)).collect(),
    };
    CreatePartitionsResponse { throttle_time_ms: 0, results }
}

fn new_partitions(topic: CreatePartitionsTopic) -> NewPartitions {
    let assignments = topic.assignments.map(|assignments| {
        let brokers = |ids: Vec<i32>| ids.into_iter().map(BrokerId).collect();
        assignments.into_iter().map(|assignment| brokers(assignment.broker_ids)).collect()
    });
    NewPartitions { topic: topic.name, count: topic.count, assignments }
}

fn answer(
    name: String,
    code: ErrorCode,
    error_message: Option<String>,
) -> CreatePartitionsTopicResult {
    CreatePartitionsTopicResult { name, error_code: code.code(), error_message }
}
