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
/// Where share groups will keep their state: the name is reserved.
const SHARE_TOPIC: &str = "__share_group_state";

/// Whether only brokers write it.
pub fn is_internal(topic: &str) -> bool {
    ::metadata::image::is_internal(topic)
}

/// The topic that is made when `name` is missing. An internal topic has its shape from the first
/// moment on, whoever asks for it: what it holds is found by its number of partitions.
pub fn new_topic(name: &str, config: &BrokerConfig, image: &ClusterImage) -> NewTopic {
    let id = Uuid::from_random(fastrand::u128(..).to_be_bytes());
    // Registered brokers and voters count even while they are down: a topic keeps the replicas that it is made with.
    let brokers = image.brokers().count().max(config.voters.len()).max(1);
    // An internal topic has as many replicas as configured, at most one on each broker. Other topics with more replicas
    // than brokers are refused, as in Kafka.
    let capped =
        |(partitions, factor, configs): Shape| (partitions, factor.min(brokers as i16), configs);
    let (partitions, replication_factor, configs) = match name {
        OFFSETS_TOPIC => capped(offsets_topic(config)),
        TRANSACTIONS_TOPIC => capped(transactions_topic(config)),
        SHARE_TOPIC => capped(share_topic(config)),
        _ => (-1, config.topics.replication_factor, Vec::new()),
    };
    NewTopic {
        name: name.to_owned(),
        id,
        partitions,
        replication_factor,
        configs: configs.into_iter().map(|(key, value)| (key.to_owned(), Some(value))).collect(),
        ..NewTopic::default()
    }
}

/// Partitions, replicas and configuration, as Kafka sets them.
type Shape = (i32, i16, Vec<(&'static str, String)>);

fn offsets_topic(config: &BrokerConfig) -> Shape {
    let offsets = &config.offsets;
    let configs = vec![
        ("cleanup.policy", "compact".to_owned()),
        ("compression.type", "producer".to_owned()),
        ("segment.bytes", offsets.segment_bytes.to_string()),
    ];
    (offsets.partitions, offsets.replication_factor, configs)
}

fn transactions_topic(config: &BrokerConfig) -> Shape {
    let transaction_topic = &config.transaction_topic;
    let configs = vec![
        ("cleanup.policy", "compact".to_owned()),
        ("compression.type", "uncompressed".to_owned()),
        ("min.insync.replicas", transaction_topic.min_insync_replicas.to_string()),
        ("segment.bytes", transaction_topic.segment_bytes.to_string()),
        ("unclean.leader.election.enable", "false".to_owned()),
    ];
    (transaction_topic.partitions, transaction_topic.replication_factor, configs)
}

fn share_topic(config: &BrokerConfig) -> Shape {
    let share_topic = &config.share_topic;
    let configs = vec![
        ("cleanup.policy", "delete".to_owned()),
        ("compression.type", "producer".to_owned()),
        ("min.insync.replicas", share_topic.min_insync_replicas.to_string()),
        ("retention.ms", "-1".to_owned()),
        ("segment.bytes", share_topic.segment_bytes.to_string()),
    ];
    (share_topic.partitions, share_topic.replication_factor, configs)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_internal_topic_has_its_shape_whoever_asks_for_it() {
        let config = BrokerConfig::from_pairs([
            ("num.partitions", "1"),
            ("transaction.state.log.num.partitions", "7"),
        ]);
        let config = config.expect("the settings are valid");
        let image = ClusterImage::default();
        let shape = |name| {
            let topic = new_topic(name, &config, &image);
            let config = |key: &str| topic.configs.iter().find(|(name, _)| name == key).cloned();
            let policy = config("cleanup.policy").and_then(|(_, value)| value);
            (topic.partitions, policy, is_internal(name))
        };
        assert_eq!(shape("__consumer_offsets"), (50, Some("compact".to_owned()), true));
        assert_eq!(shape("__transaction_state"), (7, Some("compact".to_owned()), true));
        assert_eq!(shape("__share_group_state"), (50, Some("delete".to_owned()), true));
        assert_eq!(shape("mine"), (-1, None, false));
    }

    #[test]
    fn only_internal_topics_have_fewer_replicas_than_configured() {
        let config = BrokerConfig::from_pairs([
            ("default.replication.factor", "3"),
            ("offsets.topic.replication.factor", "3"),
        ]);
        let config = config.expect("the settings are valid");
        let factor = |name| new_topic(name, &config, &ClusterImage::default()).replication_factor;
        assert_eq!((factor("__consumer_offsets"), factor("mine")), (1, 3));
    }
}
