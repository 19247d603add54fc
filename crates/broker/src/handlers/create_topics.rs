//! CreateTopics (key 19), versions 2 to 7. v5 answers with the numbers and configurations that the
//! topic got (KIP-525); v7 with its id. All rules are the controller's.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::metadata::decide::{CreateTopics, CreatedTopic, NewTopic};
use ::metadata::topic_config::ConfigSource;
use ::metadata::{Answer, Request, Response};
use model::{BrokerId, ErrorCode, PartitionIndex, Uuid};
use wire::create_topics::{
    CreatableTopic, CreatableTopicConfigs, CreatableTopicResult, CreateTopicsRequest,
    CreateTopicsResponse,
};

use super::Call;

/// Memory of a topic with its configurations in an answer, decoded and encoded.
const TOPIC_BYTES: usize = 8 << 10;

/// Answers once the topics are committed and open.
pub async fn handle(call: Arc<Call>, request: CreateTopicsRequest) -> CreateTopicsResponse {
    call.reserve_answer(TOPIC_BYTES * request.topics.len() + 3 * call.decoded_bytes).await;
    let names: Vec<String> = request.topics.iter().map(|topic| topic.name.clone()).collect();
    let topics = request.topics.into_iter().map(new_topic).collect();
    let request = CreateTopics { topics, validate_only: request.validate_only };
    let topics = match call.decide(Request::CreateTopics(request)).await {
        Ok(Response::CreateTopics(results)) => {
            results.into_iter().map(|(name, result)| answer(&call, name, result)).collect()
        }
        Ok(other) => unreachable!("the answer to another request: {other:?}"),
        Err(code) => names.into_iter().map(|name| refused(name, code, None)).collect(),
    };
    CreateTopicsResponse { throttle_time_ms: 0, topics }
}

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

fn answer(call: &Call, name: String, result: Answer<CreatedTopic>) -> CreatableTopicResult {
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
