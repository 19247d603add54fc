//! Metadata (key 3), versions 0 to 13.
//!
//! - `topics` null asks for all (v0: an empty list does), an empty list for none.
//! - Topics that do not exist are created if both the client (v4, before: always) and
//!   `auto.create.topics.enable` allow it; the answer then has them at once.
//! - v10 topic ids in answers, v12 in requests (KIP-516); v8 to 10 the cluster's authorized
//!   operations; v13 an error for the whole answer.
//! - Names and ports are those of the listener that the client came through; without
//!   `advertised.listeners` they are the very address that it has reached.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use ::metadata::decide::{CreateTopics, NewTopic};
use ::metadata::{ClusterImage, PartitionImage, Request, Response, TopicImage};
use model::{BrokerId, ErrorCode, PartitionIndex, TopicId, Uuid, topic_name};
use wire::metadata::{
    MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseBroker,
    MetadataResponsePartition, MetadataResponseTopic,
};

use super::{Call, authorized};
use crate::internal_topics;
use crate::server::Server;

/// Bytes of a partition in an encoded answer, with seven replicas.
const PARTITION_BYTES: usize = 96;
/// Bytes of a topic in an encoded answer, without partitions.
const TOPIC_BYTES: usize = 320;
/// Before it a client cannot forbid that topics are created.
const AUTO_CREATE_CHOICE_FROM_VERSION: i16 = 4;

/// Answers.
pub async fn handle(call: Arc<Call>, request: MetadataRequest) -> MetadataResponse {
    let allow_creation = request.allow_auto_topic_creation;
    let operations = authorized::topic(request.include_topic_authorized_operations);
    let cluster_operations = authorized::cluster(request.include_cluster_authorized_operations);
    let wanted = wanted_topics(&call, request);
    if let Some(topics) = &wanted {
        create_missing(&call, allow_creation, topics).await;
    }
    let image = settled_image(&call, wanted.as_deref()).await;
    let named = || wanted.iter().flatten().filter_map(|topic| find(&image, topic).ok());
    let partitions: usize = match &wanted {
        None => image.topics().map(|topic| topic.partition_count()).sum(),
        Some(_) => named().map(|topic| topic.partition_count()).sum(),
    };
    let topics = wanted.as_ref().map_or(image.topics().count(), Vec::len);
    call.reserve_encoded_answer(partitions * PARTITION_BYTES + topics * TOPIC_BYTES).await;
    let topics = call.build(|| match &wanted {
        None => image.topics().map(|topic| describe(&call, &image, topic, operations)).collect(),
        Some(wanted) => wanted
            .iter()
            .map(|topic| match find(&image, topic) {
                Ok(found) => describe(&call, &image, found, operations),
                Err(code) => missing(topic, code),
            })
            .collect(),
    });
    MetadataResponse {
        throttle_time_ms: 0,
        brokers: brokers(&call, &image),
        cluster_id: Some(call.server.cluster_id.to_string()),
        controller_id: call.server.controller_id().0,
        topics,
        cluster_authorized_operations: cluster_operations,
        error_code: ErrorCode::None.code(),
    }
}

/// `None` for all. A topic that is named twice is answered once, as in Kafka.
fn wanted_topics(call: &Call, request: MetadataRequest) -> Option<Vec<MetadataRequestTopic>> {
    let mut topics = match request.topics {
        Some(topics) if call.version == 0 && topics.is_empty() => return None,
        topics => topics?,
    };
    let mut seen = HashSet::with_capacity(topics.len().min(1024));
    let is_first: Vec<bool> =
        topics.iter().map(|topic| seen.insert((topic.topic_id, topic.name.as_deref()))).collect();
    let mut is_first = is_first.into_iter();
    topics.retain(|_| is_first.next().unwrap_or(true));
    Some(topics)
}

/// How long an answer waits for another leader of a partition whose leader's process has ended, or may have.
pub(super) const SETTLE_MAX: Duration = Duration::from_millis(300);
/// How often it is looked whether a connection that was lost is there again, which no step of the metadata tells.
pub(super) const LOST_LOOK: Duration = Duration::from_millis(10);

/// The image; if it says that a partition of these topics is led by a broker that is known to be dead, or whose connection
/// with this one was lost a moment ago, the next one that does not, for a while. A client that is told of the dead leader again
/// waits much longer before it asks once more (franz-go five seconds), and it may ask before this broker knows more than that.
async fn settled_image(call: &Call, wanted: Option<&[MetadataRequestTopic]>) -> Arc<ClusterImage> {
    let server = &call.server;
    let mut applied = server.applied.clone();
    let image = server.image();
    if !names_the_dead(call, &image, wanted) {
        return image;
    }
    let counters = &server.counters.cluster;
    counters.metadata_parked.add(1);
    let _waiting = counters.metadata_waiting.raised();
    let settled = async {
        loop {
            let image = server.image();
            if !names_the_dead(call, &image, wanted) {
                return image;
            }
            if let Ok(Err(_)) = tokio::time::timeout(LOST_LOOK, applied.changed()).await {
                return image;
            }
        }
    };
    let settled = tokio::time::timeout(SETTLE_MAX, settled).await;
    settled.unwrap_or_else(|_| {
        counters.metadata_unsettled.add(1);
        server.image()
    })
}

fn names_the_dead(
    call: &Call,
    image: &ClusterImage,
    wanted: Option<&[MetadataRequestTopic]>,
) -> bool {
    let may_be_dead = |id: &BrokerId| may_be_dead(&call.server, image, *id);
    let dead: Vec<BrokerId> = image.brokers().map(|broker| broker.id).filter(may_be_dead).collect();
    let is_led_so =
        |topic: &TopicImage| topic.partitions().any(|(_, state)| dead.contains(&state.leader));
    match wanted {
        _ if dead.is_empty() => false,
        None => image.topics().any(|topic| is_led_so(topic)),
        Some(wanted) => {
            wanted.iter().filter_map(|topic| find(image, topic).ok()).any(|t| is_led_so(t))
        }
    }
}

/// Whether a broker among others leads nothing any more, whatever the image says: its process is known to have ended, or it is
/// fenced and the partitions that it led follow in the next step. Such a leader is not among the brokers of the answer,
/// and a client that looks it up there fails.
pub(super) fn is_dead(server: &Server, image: &ClusterImage, broker: BrokerId) -> bool {
    let Some(links) = &server.links else { return false };
    broker.0 >= 0 && (!image.is_active(broker) || links.watching().is_suspected(image, broker))
}

/// As [`is_dead`], or the connection of this broker with the process was lost a moment ago.
pub(super) fn may_be_dead(server: &Server, image: &ClusterImage, broker: BrokerId) -> bool {
    let Some(links) = &server.links else { return false };
    let is_lost =
        || image.broker(broker).is_some_and(|known| links.is_lost(broker, known.incarnation));
    is_dead(server, image, broker) || is_lost()
}

fn by_name(topic: &MetadataRequestTopic) -> Option<&str> {
    topic.name.as_deref().filter(|_| topic.topic_id.is_zero())
}

fn find<'a>(
    image: &'a ClusterImage,
    topic: &MetadataRequestTopic,
) -> Result<&'a Arc<TopicImage>, ErrorCode> {
    if !topic.topic_id.is_zero() {
        return image.topic_by_id(topic.topic_id).ok_or(ErrorCode::UnknownTopicId);
    }
    let name = topic.name.as_deref().ok_or(ErrorCode::UnknownTopicId)?;
    topic_name::validate(name).map_err(|_| ErrorCode::InvalidTopicException)?;
    image.topic(name).ok_or(ErrorCode::UnknownTopicOrPartition)
}

async fn create_missing(call: &Arc<Call>, allow_creation: bool, topics: &[MetadataRequestTopic]) {
    let config = call.server.config();
    let allowed = allow_creation || call.version < AUTO_CREATE_CHOICE_FROM_VERSION;
    if !allowed || !config.topics.auto_create {
        return;
    }
    let image = call.server.image();
    let missing: Vec<NewTopic> = topics
        .iter()
        .filter_map(by_name)
        .filter(|name| topic_name::validate(name).is_ok() && image.topic(name).is_none())
        .map(|name| internal_topics::new_topic(name, &config, &image))
        .collect();
    if missing.is_empty() {
        return;
    }
    let request = Request::CreateTopics(CreateTopics { topics: missing, validate_only: false });
    if let Ok(Response::CreateTopics(results)) = call.decide(request).await {
        for (name, result) in results {
            if let Err(refusal) = result {
                tracing::debug!(topic = super::shown(&name), error = %refusal.error, reason = refusal.message, "not created");
            }
        }
    }
}

fn missing(topic: &MetadataRequestTopic, code: ErrorCode) -> MetadataResponseTopic {
    MetadataResponseTopic {
        error_code: code.code(),
        name: topic.name.clone(),
        topic_id: topic.topic_id,
        is_internal: topic.name.as_deref().is_some_and(internal_topics::is_internal),
        partitions: Vec::new(),
        topic_authorized_operations: authorized::topic(false),
    }
}

fn describe(
    call: &Call,
    image: &ClusterImage,
    topic: &TopicImage,
    operations: i32,
) -> MetadataResponseTopic {
    MetadataResponseTopic {
        error_code: ErrorCode::None.code(),
        name: Some(topic.name.to_string()),
        topic_id: if call.version >= 10 { topic.id } else { Uuid::ZERO },
        is_internal: topic.is_internal(),
        partitions: topic
            .partitions()
            .map(|(index, partition)| describe_partition(call, image, (topic.id, index), partition))
            .collect(),
        topic_authorized_operations: operations,
    }
}

fn describe_partition(
    call: &Call,
    image: &ClusterImage,
    (topic, index): (TopicId, PartitionIndex),
    partition: &PartitionImage,
) -> MetadataResponsePartition {
    let ids = |brokers: &[model::BrokerId]| brokers.iter().map(|broker| broker.0).collect();
    let serves = |id: BrokerId| image.is_active(id) && !image.is_offline(id, topic, index);
    let offline = partition.replicas.iter().filter(|broker| !serves(**broker));
    let leader = match is_dead(&call.server, image, partition.leader) {
        true => BrokerId::NONE,
        false => partition.leader,
    };
    let error_code = if leader.0 < 0 { ErrorCode::LeaderNotAvailable } else { ErrorCode::None };
    MetadataResponsePartition {
        error_code: error_code.code(),
        partition_index: index.0,
        leader_id: leader.0,
        leader_epoch: partition.leader_epoch.0,
        replica_nodes: ids(&partition.replicas),
        isr_nodes: ids(&partition.isr),
        offline_replicas: offline.map(|broker| broker.0).collect(),
    }
}

/// Who serves, and once on a connection who did until a moment ago: see [`crate::cluster::Departed`].
fn brokers(call: &Call, image: &ClusterImage) -> Vec<MetadataResponseBroker> {
    let now = call.server.clock.moment();
    image
        .brokers()
        .filter(|broker| !broker.fenced || call.server.departed.name_to(call.peer, broker, now))
        .filter_map(|broker| {
            let (host, port) = call.endpoint_of(broker)?;
            Some(MetadataResponseBroker {
                node_id: broker.id.0,
                host,
                port: i32::from(port),
                rack: broker.rack.clone(),
            })
        })
        .collect()
}
