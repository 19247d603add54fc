//! Topics that the broker makes for itself, and topics that it makes because somebody asked about
//! them.

use ::metadata::decide::{CreateTopics, NewTopic};
use ::metadata::{ClusterImage, Request, Response};
use configuration::BrokerConfig;
use model::{ErrorCode, Uuid};

use crate::groups::OFFSETS_TOPIC;
use crate::server::Server;

/// Where transactions will keep their state: the name is reserved.
const TRANSACTIONS_TOPIC: &str = "__transaction_state";

/// Whether only brokers write it.
pub fn is_internal(topic: &str) -> bool {
    topic == OFFSETS_TOPIC || topic == TRANSACTIONS_TOPIC
}

/// The topic that is made when `name` is missing.
pub fn new_topic(name: &str, config: &BrokerConfig, image: &ClusterImage) -> NewTopic {
    let id = Uuid::from_random(fastrand::u128(..).to_be_bytes());
    let brokers = image.brokers().filter(|broker| !broker.fenced).count().max(1);
    let mut topic = NewTopic {
        name: name.to_owned(),
        id,
        partitions: -1,
        replication_factor: config.topics.replication_factor.min(brokers as i16),
        ..Default::default()
    };
    if name == OFFSETS_TOPIC {
        topic.partitions = config.offsets.partitions;
        // As many replicas as wanted, but no more than there are brokers to hold them.
        topic.replication_factor = config.offsets.replication_factor.min(brokers as i16);
        let set = |key: &str, value: String| (key.to_owned(), Some(value));
        topic.configs = vec![
            set("cleanup.policy", "compact".to_owned()),
            set("compression.type", "producer".to_owned()),
            set("segment.bytes", config.offsets.segment_bytes.to_string()),
        ];
    }
    topic
}

/// Makes sure that groups have a place for their offsets.
pub async fn ensure_offsets_topic(server: &Server) -> Result<(), ErrorCode> {
    let image = server.image();
    if image.topic(OFFSETS_TOPIC).is_some() {
        return Ok(());
    }
    let topics = vec![new_topic(OFFSETS_TOPIC, &server.config(), &image)];
    let request = Request::CreateTopics(CreateTopics { topics, validate_only: false });
    match server.decide(request).await? {
        Response::CreateTopics(results) => match results.into_iter().next() {
            Some((_, Err(refusal))) if refusal.error != ErrorCode::TopicAlreadyExists => {
                tracing::warn!(error = %refusal.error, reason = refusal.message, "cannot create {OFFSETS_TOPIC}");
                Err(ErrorCode::CoordinatorNotAvailable)
            }
            _ => Ok(()),
        },
        other => unreachable!("the answer to another request: {other:?}"),
    }
}
