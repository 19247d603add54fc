//! OffsetFetch (key 9), versions 1 to 10. v2 all partitions of a group; v5 leader epochs; v7
//! `require_stable`; v8 many groups; v10 topic ids.
//!
//! A group, topic or partition that a request repeats is answered once. Kafka repeats the answer.

use std::sync::Arc;

use ::metadata::ClusterImage;
use coordinator::request::{OffsetFetch, TopicPartitions};
use coordinator::response::FetchedOffset;
use coordinator::{Request, Response};
use model::{ErrorCode, PartitionIndex, Uuid};
use wire::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse, OffsetFetchResponseGroup,
    OffsetFetchResponsePartition, OffsetFetchResponsePartitions, OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
};

use super::{Call, unique};

/// From this version on a request asks for many groups.
const MANY_FROM_VERSION: i16 = 8;
/// From this version on topics are named by id.
const IDS_FROM_VERSION: i16 = 10;

/// One topic that is asked for: its name, its id if it was named by that, and partitions.
struct Wanted {
    name: Option<String>,
    topic_id: Uuid,
    partitions: Vec<i32>,
}

/// What a group answered: an error, or topics by name with their partitions.
type Answered = Result<Vec<(Arc<str>, Vec<FetchedOffset>)>, ErrorCode>;

/// Answers.
pub async fn handle(call: Arc<Call>, request: OffsetFetchRequest) -> OffsetFetchResponse {
    if call.version >= MANY_FROM_VERSION {
        let mut wanted = request.groups;
        unique::keep_first(&mut wanted, |group| group.group_id.clone());
        let kept = wanted.iter().map(|group| offset_bytes(&call, &group.group_id)).sum();
        reserve(&call, kept).await;
        let mut groups = Vec::with_capacity(wanted.len());
        for group in wanted {
            groups.push(fetch_group(&call, group, request.require_stable).await);
        }
        return OffsetFetchResponse { groups, ..Default::default() };
    }
    let topics = request.topics.map(|topics| {
        let named = |topic: wire::offset_fetch::OffsetFetchRequestTopic| Wanted {
            name: Some(topic.name),
            topic_id: Uuid::ZERO,
            partitions: topic.partition_indexes,
        };
        without_repeats(topics.into_iter().map(named))
    });
    reserve(&call, offset_bytes(&call, &request.group_id)).await;
    one_group(&call, &request.group_id, topics, request.require_stable).await
}

/// Bytes that the group's offsets take, which bound those in an answer.
fn offset_bytes(call: &Call, group: &str) -> usize {
    let bytes = |shard: &coordinator::Shard| shard.offset_bytes(&group.into());
    call.server.group_bytes(group, bytes)
}

/// `kept`: bytes of all offsets of the groups. The answer has them twice, decoded and encoded; partitions without an
/// offset are bounded by the request.
async fn reserve(call: &Call, kept: usize) {
    call.reserve_answer(2 * kept + 8 * call.decoded_bytes).await;
}

fn without_repeats(topics: impl Iterator<Item = Wanted>) -> Vec<Wanted> {
    let mut topics: Vec<Wanted> = topics.collect();
    unique::keep_first_partitions(
        &mut topics,
        |topic| (topic.name.clone(), topic.topic_id),
        |topic| &mut topic.partitions,
        |index| *index,
    );
    topics
}

async fn one_group(
    call: &Call,
    group: &str,
    topics: Option<Vec<Wanted>>,
    require_stable: bool,
) -> OffsetFetchResponse {
    match ask(call, group, topics.as_deref(), require_stable).await {
        Ok(found) => OffsetFetchResponse {
            topics: found
                .into_iter()
                .map(|(name, partitions)| OffsetFetchResponseTopic {
                    name: name.to_string(),
                    partitions: partitions
                        .iter()
                        .map(|offset| old_partition(call, offset))
                        .collect(),
                })
                .collect(),
            ..Default::default()
        },
        Err(code) => refused(call, topics, code),
    }
}

/// Before version 2 there is no error but those of the partitions.
fn refused(call: &Call, topics: Option<Vec<Wanted>>, code: ErrorCode) -> OffsetFetchResponse {
    if call.version >= 2 {
        return OffsetFetchResponse { error_code: code.code(), ..Default::default() };
    }
    let topics = topics
        .unwrap_or_default()
        .into_iter()
        .map(|topic| OffsetFetchResponseTopic {
            name: topic.name.unwrap_or_default(),
            partitions: topic
                .partitions
                .into_iter()
                .map(|p| old_partition(call, &FetchedOffset::none(PartitionIndex(p), code)))
                .collect(),
        })
        .collect();
    OffsetFetchResponse { topics, ..Default::default() }
}

fn old_partition(call: &Call, offset: &FetchedOffset) -> OffsetFetchResponsePartition {
    OffsetFetchResponsePartition {
        partition_index: offset.partition.0,
        committed_offset: offset.offset.0,
        committed_leader_epoch: if call.version >= 5 { offset.leader_epoch.0 } else { -1 },
        metadata: Some(offset.metadata.to_string()),
        error_code: offset.error.code(),
    }
}

async fn fetch_group(
    call: &Call,
    group: OffsetFetchRequestGroup,
    require_stable: bool,
) -> OffsetFetchResponseGroup {
    let group_id = group.group_id;
    let wanted: Option<Vec<Wanted>> = group.topics.map(|topics| {
        let found = |topic: wire::offset_fetch::OffsetFetchRequestTopics| Wanted {
            name: name_of(call, topic.name, topic.topic_id),
            topic_id: topic.topic_id,
            partitions: topic.partition_indexes,
        };
        without_repeats(topics.into_iter().map(found))
    });
    let unknown = unknown_topics(wanted.as_deref().unwrap_or_default());
    match ask(call, &group_id, wanted.as_deref(), require_stable).await {
        Ok(found) => {
            let known =
                found.into_iter().filter_map(|(name, offsets)| topic(call, &name, &offsets));
            let topics = known.chain(unknown).collect();
            OffsetFetchResponseGroup { group_id, topics, error_code: ErrorCode::None.code() }
        }
        Err(code) => {
            OffsetFetchResponseGroup { group_id, topics: Vec::new(), error_code: code.code() }
        }
    }
}

fn name_of(call: &Call, name: String, id: Uuid) -> Option<String> {
    if call.version < IDS_FROM_VERSION {
        return Some(name);
    }
    call.server.image().topic_by_id(id).map(|topic| topic.name.to_string())
}

fn unknown_topics(wanted: &[Wanted]) -> Vec<OffsetFetchResponseTopics> {
    let unknown = wanted.iter().filter(|topic| topic.name.is_none());
    unknown
        .map(|topic| OffsetFetchResponseTopics {
            name: String::new(),
            topic_id: topic.topic_id,
            partitions: topic
                .partitions
                .iter()
                .map(|p| {
                    partition(&FetchedOffset::none(PartitionIndex(*p), ErrorCode::UnknownTopicId))
                })
                .collect(),
        })
        .collect()
}

/// A topic in an answer; `None` if it must be named by an id that it has no more.
fn topic(call: &Call, name: &str, offsets: &[FetchedOffset]) -> Option<OffsetFetchResponseTopics> {
    let partitions = offsets.iter().map(partition).collect();
    if call.version < IDS_FROM_VERSION {
        return Some(OffsetFetchResponseTopics {
            name: name.to_owned(),
            topic_id: Uuid::ZERO,
            partitions,
        });
    }
    let topic_id = call.server.image().topic(name)?.id;
    Some(OffsetFetchResponseTopics { name: String::new(), topic_id, partitions })
}

fn partition(offset: &FetchedOffset) -> OffsetFetchResponsePartitions {
    OffsetFetchResponsePartitions {
        partition_index: offset.partition.0,
        committed_offset: offset.offset.0,
        committed_leader_epoch: offset.leader_epoch.0,
        metadata: Some(offset.metadata.to_string()),
        error_code: offset.error.code(),
    }
}

async fn ask(
    call: &Call,
    group: &str,
    topics: Option<&[Wanted]>,
    require_stable: bool,
) -> Answered {
    let topics = topics.map(|topics| {
        let known =
            topics.iter().filter_map(|topic| Some((topic.name.as_deref()?, &topic.partitions)));
        known
            .map(|(name, partitions)| TopicPartitions {
                topic: name.into(),
                partitions: partitions.iter().copied().map(PartitionIndex).collect(),
            })
            .collect()
    });
    let fetch = Request::OffsetFetch(OffsetFetch { group: group.into(), topics, require_stable });
    match call.server.ask_group(group, fetch).await? {
        Response::OffsetFetch(fetched) if fetched.error.is_none() => {
            let image = call.server.image();
            let current =
                |(name, offsets)| (Arc::clone(&name), of_this_topic(&image, &name, offsets));
            Ok(fetched.topics.into_iter().map(current).collect())
        }
        Response::OffsetFetch(fetched) => Err(fetched.error),
        other => unreachable!("the answer to another request: {other:?}"),
    }
}

/// Leaves out what was stored for a topic that had this name before: of the topic of today it would be
/// any offset. Offsets of old releases say no topic id, and stay.
fn of_this_topic(
    image: &ClusterImage,
    name: &str,
    offsets: Vec<FetchedOffset>,
) -> Vec<FetchedOffset> {
    let id = image.topic(name).map(|topic| topic.id);
    let current = |offset: FetchedOffset| match offset.topic_id {
        stored if stored.is_zero() || Some(stored) == id => offset,
        _ => FetchedOffset::none(offset.partition, offset.error),
    };
    offsets.into_iter().map(current).collect()
}
