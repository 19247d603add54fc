//! CreateTopics (key 19), versions 2 to 7. v5 answers with the numbers and configurations that the
//! topic got (KIP-525); v7 with its id. The controller has all rules but one: a request creates at most 10,000 topics (Kafka:
//! 10,000 partitions). Long lists are decided in pieces (decision 0096).

use std::collections::BTreeMap;
use std::sync::Arc;

use ::metadata::decide::{CreateTopics, CreatedTopic, NewTopic};
use ::metadata::topic_config::ConfigSource;
use ::metadata::{Answer, Request, Response};
use model::{BrokerId, ErrorCode, PartitionIndex, Uuid};
use wire::create_topics::{
    CreatableTopic, CreatableTopicConfigs, CreatableTopicResult, CreateTopicsRequest,
};

use super::Call;
use super::list_answer::ListAnswer;
use super::pieces::Pieces;

/// Bytes of a topic with its configurations in an encoded answer.
const TOPIC_BYTES: usize = 3 << 10;
/// Memory of the decision of one piece, in bytes: topics and configurations of a draft.
const PIECE_BYTES: usize = 4 << 20;
/// Topics that one request may create.
const TOPICS_MAX: usize = 10_000;

/// Answers once the topics are committed and open.
pub async fn handle(call: Arc<Call>, request: CreateTopicsRequest) -> ListAnswer {
    let pieces = Pieces::new(request.topics, |one, other| one.name.cmp(&other.name));
    let count = pieces.keys();
    let own_bytes = PIECE_BYTES.min(TOPIC_BYTES * count) + 3 * call.decoded_bytes;
    call.reserve_answer(TOPIC_BYTES * count.min(TOPICS_MAX) + own_bytes).await;
    let mut answer = ListAnswer::new(&call, count);
    for piece in pieces {
        let mut names: Vec<String> = piece.iter().map(|topic| topic.name.clone()).collect();
        let topics = piece.into_iter().map(new_topic).collect();
        let topics = CreateTopics { topics, validate_only: request.validate_only };
        let decided = match count > TOPICS_MAX {
            true => Err((ErrorCode::PolicyViolation, Some(TOO_MANY.to_owned()))),
            false => call.decide(Request::CreateTopics(topics)).await.map_err(|code| (code, None)),
        };
        match decided {
            Ok(Response::CreateTopics(results)) => {
                for (name, result) in results {
                    let topic = described(&call, name, result);
                    answer.push(|writer| topic.encode(writer, call.version));
                }
            }
            Ok(other) => unreachable!("the answer to another request: {other:?}"),
            Err((code, message)) => {
                names.sort_unstable();
                names.dedup();
                for name in names {
                    let topic = refused(name, code, message.clone());
                    answer.push(|writer| topic.encode(writer, call.version));
                }
            }
        }
    }
    answer
}

const TOO_MANY: &str = "More than 10000 topics in one request: create fewer at a time.";

fn new_topic(topic: CreatableTopic) -> NewTopic {
    NewTopic {
        name: topic.name,
        id: Uuid::from_random(fastrand::u128(..).to_be_bytes()),
        partitions: topic.num_partitions,
        replication_factor: topic.replication_factor,
        assignments: topic
            .assignments
            .into_iter()
            .map(|assignment| {
                let brokers = assignment.broker_ids.into_iter().map(BrokerId).collect();
                (PartitionIndex(assignment.partition_index), brokers)
            })
            .collect(),
        configs: topic.configs.into_iter().map(|config| (config.name, config.value)).collect(),
    }
}

fn described(call: &Call, name: String, result: Answer<CreatedTopic>) -> CreatableTopicResult {
    match result {
        Ok(created) => CreatableTopicResult {
            topic_id: created.id,
            num_partitions: created.partitions,
            replication_factor: created.replication_factor,
            configs: Some(configs(call, &name, created.configs)),
            name,
            ..Default::default()
        },
        Err(refusal) => refused(name, refusal.error, Some(refusal.message)),
    }
}

fn refused(name: String, code: ErrorCode, message: Option<String>) -> CreatableTopicResult {
    CreatableTopicResult {
        name,
        error_code: code.code(),
        error_message: message.or_else(|| Some(code.name().to_owned())),
        ..Default::default()
    }
}

/// All configurations of the topic: its own on top of what it inherits. It may only have been
/// validated and not exist.
fn configs(call: &Call, topic: &str, own: Vec<(String, String)>) -> Vec<CreatableTopicConfigs> {
    let own: BTreeMap<String, String> = own.into_iter().collect();
    call.server
        .describe_topic_configs(topic)
        .into_iter()
        .map(|config| {
            let (value, source) = match own.get(config.name) {
                Some(value) => (value.clone(), ConfigSource::DynamicTopic),
                None => (config.value, config.source),
            };
            CreatableTopicConfigs {
                name: config.name.to_owned(),
                value: Some(value),
                read_only: config.is_read_only,
                config_source: source.code(),
                is_sensitive: config.is_sensitive,
            }
        })
        .collect()
}
