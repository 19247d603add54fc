//! CreatePartitions (key 37), versions 0 to 3 (KIP-195). Long lists are decided in pieces (decision 0096).

use std::sync::Arc;

use ::metadata::decide::{CreatePartitions, NewPartitions};
use ::metadata::{Request, Response};
use model::{BrokerId, ErrorCode};
use wire::create_partitions::{
    CreatePartitionsRequest, CreatePartitionsTopic, CreatePartitionsTopicResult,
};

use super::Call;
use super::list_answer::ListAnswer;
use super::pieces::Pieces;

/// Answers once the partitions are committed and open.
pub async fn handle(call: Arc<Call>, request: CreatePartitionsRequest) -> ListAnswer {
    let pieces = Pieces::new(request.topics, |one, other| one.name.cmp(&other.name));
    let mut answer = ListAnswer::new(&call, pieces.keys());
    let push = |answer: &mut ListAnswer, topic: CreatePartitionsTopicResult| {
        answer.push(|writer| topic.encode(writer, call.version));
    };
    for piece in pieces {
        let mut names: Vec<String> = piece.iter().map(|topic| topic.name.clone()).collect();
        let topics = piece.into_iter().map(new_partitions).collect();
        let topics = CreatePartitions { topics, validate_only: request.validate_only };
        match call.decide(Request::CreatePartitions(topics)).await {
            Ok(Response::CreatePartitions(results)) => {
                for (name, result) in results {
                    let refusal = result.err();
                    let code = refusal.as_ref().map_or(ErrorCode::None, |refusal| refusal.error);
                    let message = refusal.map(|refusal| refusal.message);
                    push(&mut answer, described(name, code, message));
                }
            }
            Ok(other) => unreachable!("the answer to another request: {other:?}"),
            Err(code) => {
                names.sort_unstable();
                names.dedup();
                names.into_iter().for_each(|name| push(&mut answer, described(name, code, None)));
            }
        }
    }
    answer
}

fn new_partitions(topic: CreatePartitionsTopic) -> NewPartitions {
    let assignments = topic.assignments.map(|assignments| {
        let brokers = |ids: Vec<i32>| ids.into_iter().map(BrokerId).collect();
        assignments.into_iter().map(|assignment| brokers(assignment.broker_ids)).collect()
    });
    NewPartitions { topic: topic.name, count: topic.count, assignments }
}

fn described(
    name: String,
    code: ErrorCode,
    error_message: Option<String>,
) -> CreatePartitionsTopicResult {
    CreatePartitionsTopicResult { name, error_code: code.code(), error_message }
}
