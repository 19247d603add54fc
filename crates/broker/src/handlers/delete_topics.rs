//! DeleteTopics (key 20), versions 1 to 6. v6 by id too (KIP-516). kafkajs asks in version 1 only. Long lists are decided in
//! pieces (decision 0096).

use std::sync::Arc;

use ::metadata::decide::TopicRef;
use ::metadata::{Request, Response};
use model::{ErrorCode, Uuid};
use wire::delete_topics::{DeletableTopicResult, DeleteTopicsRequest};

use super::Call;
use super::list_answer::ListAnswer;
use super::pieces::Pieces;

/// From this version on topics may be named by id.
const IDS_FROM_VERSION: i16 = 6;

/// Answers once the topics are gone from the cluster's metadata and from this broker.
pub async fn handle(call: Arc<Call>, request: DeleteTopicsRequest) -> ListAnswer {
    let pieces = Pieces::new(wanted(&call, request), Ord::cmp);
    let mut answer = ListAnswer::new(&call, pieces.keys());
    for mut topics in pieces {
        let responses = match delete(&call, &topics).await {
            Ok(responses) => responses,
            Err(code) => {
                topics.sort_unstable();
                topics.dedup();
                topics.into_iter().map(|topic| refused(topic, code, None)).collect()
            }
        };
        for topic in responses {
            answer.push(|writer| topic.encode(writer, call.version));
        }
    }
    answer
}

fn wanted(call: &Call, request: DeleteTopicsRequest) -> Vec<TopicRef> {
    if call.version < IDS_FROM_VERSION {
        return request.topic_names.into_iter().map(TopicRef::Name).collect();
    }
    request
        .topics
        .into_iter()
        .map(|topic| match topic.name {
            Some(name) => TopicRef::Name(name),
            None => TopicRef::Id(topic.topic_id),
        })
        .collect()
}

async fn delete(
    call: &Arc<Call>,
    topics: &[TopicRef],
) -> Result<Vec<DeletableTopicResult>, ErrorCode> {
    if !call.server.config().topics.deletion_enabled {
        // Before version 3 there was no code for it (KIP-322).
        let code = if call.version < 3 {
            ErrorCode::InvalidRequest
        } else {
            ErrorCode::TopicDeletionDisabled
        };
        return Err(code);
    }
    match call.decide(Request::DeleteTopics(topics.to_vec())).await? {
        Response::DeleteTopics(results) => Ok(results
            .into_iter()
            .map(|(topic, result)| match result {
                Ok(deleted) => DeletableTopicResult {
                    name: Some(deleted.name.to_string()),
                    topic_id: deleted.id,
                    ..Default::default()
                },
                Err(refusal) => refused(topic, refusal.error, Some(refusal.message)),
            })
            .collect()),
        other => unreachable!("the answer to another request: {other:?}"),
    }
}

fn refused(topic: TopicRef, code: ErrorCode, message: Option<String>) -> DeletableTopicResult {
    let (name, topic_id) = match topic {
        TopicRef::Name(name) => (Some(name), Uuid::ZERO),
        TopicRef::Id(id) => (None, id),
    };
    let error_message = message.or_else(|| Some(code.name().to_owned()));
    DeletableTopicResult { name, topic_id, error_code: code.code(), error_message }
}
