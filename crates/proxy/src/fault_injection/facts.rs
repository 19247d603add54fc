//! Fields of a request that fault rules match: its API, its client id, and the topics and partitions that it names.

use super::fetch_session::{FetchSession, RequestedPartition};
use super::topics::TopicNames;
use crate::produced::{Produced, TopicKey};
use model::Uuid;
use wire::frame::{LENGTH_BYTES, RequestHead};
use wire::{
    AddPartitionsToTxnRequest, ApiKey, CreatePartitionsRequest, CreateTopicsRequest,
    DeleteTopicsRequest, ListOffsetsRequest, Message, MetadataRequest, OffsetCommitRequest,
    OffsetFetchRequest, OffsetForLeaderEpochRequest, TxnOffsetCommitRequest, decode,
};

/// A topic, or a partition of it, that a request names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedPartition {
    /// Name of the topic; `None` for a topic id that no metadata answer has resolved.
    pub topic: Option<String>,
    /// The partition; `None` if the request names the topic alone.
    pub partition: Option<i32>,
}

/// A request as fault rules see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestFacts {
    /// Its API.
    pub api: ApiKey,
    /// Its client id; empty if it has none.
    pub client_id: String,
    /// Topics and partitions that it names, in its order.
    pub partitions: Vec<NamedPartition>,
}

fn by_name(name: String, partition: i32) -> RequestedPartition {
    (TopicKey::Name(name), Some(partition))
}

/// A topic whose request has its id from `id_from` on, and its name before.
fn by_version(name: String, id: Uuid, version: i16, id_from: i16) -> TopicKey {
    if version >= id_from { TopicKey::Id(id) } else { TopicKey::Name(name) }
}

/// Each topic with each of its partitions.
fn each<T, P>(
    topics: Vec<T>,
    parts: impl Fn(T) -> (TopicKey, Vec<P>),
    index: impl Fn(&P) -> i32,
) -> Vec<RequestedPartition> {
    let mut named = Vec::new();
    for topic in topics {
        let (key, partitions) = parts(topic);
        named.extend(partitions.iter().map(|partition| (key.clone(), Some(index(partition)))));
    }
    named
}

impl RequestFacts {
    /// Reads a whole frame, its length included. `produced` has the partitions of a produce request. A request that cannot be
    /// decoded names no partition: the broker reports what is wrong with it. A fetch request changes `session`; its
    /// partitions are listed only if `is_concerned`, because a session may have many.
    pub fn read(
        frame: &[u8],
        head: &RequestHead<'_>,
        produced: Option<&Produced>,
        session: &mut FetchSession,
        names: &TopicNames,
        is_concerned: bool,
    ) -> RequestFacts {
        let body = &frame[LENGTH_BYTES + head.body_from..];
        let named = match produced {
            Some(produced) => {
                let of = |at: &crate::produced::ProducedPartition| {
                    (at.topic.clone(), Some(at.partition))
                };
                produced.partitions.iter().map(of).collect()
            }
            None => named_by(head, body, session, is_concerned).unwrap_or_default(),
        };
        let partitions = named
            .into_iter()
            .map(|(topic, partition)| NamedPartition { topic: names.resolve(topic), partition })
            .collect();
        let client_id = head.client_id.unwrap_or_default().to_owned();
        RequestFacts { api: head.api_key, client_id, partitions }
    }
}

fn read<M: Message>(body: &[u8], version: i16) -> Option<M> {
    decode(body, version).ok()
}

/// Topics and partitions that a request's body names; `None` if the body is malformed.
fn named_by(
    head: &RequestHead<'_>,
    body: &[u8],
    session: &mut FetchSession,
    is_concerned: bool,
) -> Option<Vec<RequestedPartition>> {
    let (api, version) = (head.api_key, head.version);
    let alone = |name: String| (TopicKey::Name(name), None);
    let named = match api {
        ApiKey::Fetch => session.apply(read(body, version)?, version, is_concerned),
        ApiKey::ListOffsets => {
            let request: ListOffsetsRequest = read(body, version)?;
            each(
                request.topics,
                |it| (TopicKey::Name(it.name), it.partitions),
                |p| p.partition_index,
            )
        }
        ApiKey::OffsetCommit => {
            let request: OffsetCommitRequest = read(body, version)?;
            let parts = |it: wire::offset_commit::OffsetCommitRequestTopic| {
                (by_version(it.name, it.topic_id, version, 10), it.partitions)
            };
            each(request.topics, parts, |p| p.partition_index)
        }
        ApiKey::TxnOffsetCommit => {
            let request: TxnOffsetCommitRequest = read(body, version)?;
            let parts = |it: wire::txn_offset_commit::TxnOffsetCommitRequestTopic| {
                (by_version(it.name, it.topic_id, version, 6), it.partitions)
            };
            each(request.topics, parts, |p| p.partition_index)
        }
        ApiKey::OffsetForLeaderEpoch => {
            let request: OffsetForLeaderEpochRequest = read(body, version)?;
            each(request.topics, |it| (TopicKey::Name(it.topic), it.partitions), |p| p.partition)
        }
        ApiKey::OffsetFetch => offset_fetch(read(body, version)?, version),
        ApiKey::AddPartitionsToTxn => {
            let request: AddPartitionsToTxnRequest = read(body, version)?;
            let of_all = request.transactions.into_iter().flat_map(|it| it.topics);
            let topics = of_all.chain(request.v3_and_below_topics);
            topics
                .flat_map(|it| it.partitions.into_iter().map(move |p| by_name(it.name.clone(), p)))
                .collect()
        }
        ApiKey::Metadata => {
            let request: MetadataRequest = read(body, version)?;
            let topics = request.topics.unwrap_or_default().into_iter();
            topics
                .map(|topic| match topic.name {
                    Some(name) => alone(name),
                    None => (TopicKey::Id(topic.topic_id), None),
                })
                .collect()
        }
        ApiKey::CreateTopics => {
            let request: CreateTopicsRequest = read(body, version)?;
            request.topics.into_iter().map(|topic| alone(topic.name)).collect()
        }
        ApiKey::CreatePartitions => {
            let request: CreatePartitionsRequest = read(body, version)?;
            request.topics.into_iter().map(|topic| alone(topic.name)).collect()
        }
        ApiKey::DeleteTopics => {
            let request: DeleteTopicsRequest = read(body, version)?;
            let states = request.topics.into_iter().map(|topic| match topic.name {
                Some(name) => alone(name),
                None => (TopicKey::Id(topic.topic_id), None),
            });
            states.chain(request.topic_names.into_iter().map(alone)).collect()
        }
        _ => Vec::new(),
    };
    Some(named)
}

fn offset_fetch(request: OffsetFetchRequest, version: i16) -> Vec<RequestedPartition> {
    let mut named = each(
        request.topics.unwrap_or_default(),
        |topic| (TopicKey::Name(topic.name), topic.partition_indexes),
        |partition| *partition,
    );
    for group in request.groups {
        named.extend(each(
            group.topics.unwrap_or_default(),
            |it| (by_version(it.name, it.topic_id, version, 10), it.partition_indexes),
            |partition| *partition,
        ));
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::fetch::{FetchPartition, FetchTopic, ForgottenTopic};
    use wire::metadata::MetadataRequestTopic;
    use wire::offset_commit::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
    use wire::{FetchRequest, HeartbeatRequest, Request, Writer};

    struct Reading {
        session: FetchSession,
        names: TopicNames,
    }

    impl Reading {
        fn new() -> Reading {
            Reading { session: FetchSession::default(), names: TopicNames::default() }
        }

        fn read<R: Request>(&mut self, request: &R, version: i16) -> RequestFacts {
            let mut writer = Writer::new();
            wire::frame::write_request(&mut writer, request, version, 7, Some("me")).unwrap();
            let frame = writer.into_bytes();
            let head = RequestHead::parse(&frame[LENGTH_BYTES..]).unwrap();
            RequestFacts::read(&frame, &head, None, &mut self.session, &self.names, true)
        }
    }

    fn named(facts: &RequestFacts) -> Vec<(Option<&str>, Option<i32>)> {
        facts.partitions.iter().map(|at| (at.topic.as_deref(), at.partition)).collect()
    }

    fn fetch(epoch: i32, partitions: &[i32], forgotten: &[i32]) -> FetchRequest {
        let id = Uuid([1; 16]);
        let of =
            |partition: &i32| FetchPartition { partition: *partition, ..FetchPartition::default() };
        FetchRequest {
            session_epoch: epoch,
            topics: vec![FetchTopic {
                topic: "t".to_owned(),
                topic_id: id,
                partitions: partitions.iter().map(of).collect(),
            }],
            forgotten_topics_data: vec![ForgottenTopic {
                topic: "t".to_owned(),
                topic_id: id,
                partitions: forgotten.to_vec(),
            }],
            ..FetchRequest::default()
        }
    }

    #[test]
    fn a_fetch_of_a_session_names_all_partitions_of_the_session() {
        for version in [12, 16] {
            let mut reading = Reading::new();
            reading.names.learn(Uuid([1; 16]), "t");
            let of = |partition| (Some("t"), Some(partition));
            let facts = reading.read(&fetch(0, &[0, 1], &[]), version);
            assert_eq!((facts.api, facts.client_id.as_str()), (ApiKey::Fetch, "me"));
            assert_eq!(named(&facts), [of(0), of(1)]);
            let facts = reading.read(&fetch(1, &[2], &[0]), version);
            assert_eq!(named(&facts), [of(1), of(2)], "version {version}");
            let facts = reading.read(&fetch(2, &[], &[]), version);
            assert_eq!(named(&facts), [of(1), of(2)]);
            let facts = reading.read(&fetch(0, &[5], &[]), version);
            assert_eq!(named(&facts), [of(5)]);
        }
    }

    #[test]
    fn a_topic_id_that_no_answer_has_named_has_no_name() {
        let mut reading = Reading::new();
        let facts = reading.read(&fetch(0, &[3], &[]), 16);
        assert_eq!(named(&facts), [(None, Some(3))]);
    }

    #[test]
    fn requests_with_topics_alone_and_without_topics_are_read() {
        let mut reading = Reading::new();
        let topic = MetadataRequestTopic { name: Some("t".to_owned()), ..Default::default() };
        let metadata = MetadataRequest { topics: Some(vec![topic]), ..MetadataRequest::default() };
        assert_eq!(named(&reading.read(&metadata, 12)), [(Some("t"), None)]);
        let commit = OffsetCommitRequest {
            topics: vec![OffsetCommitRequestTopic {
                name: "t".to_owned(),
                partitions: vec![OffsetCommitRequestPartition {
                    partition_index: 4,
                    ..OffsetCommitRequestPartition::default()
                }],
                ..OffsetCommitRequestTopic::default()
            }],
            ..OffsetCommitRequest::default()
        };
        assert_eq!(named(&reading.read(&commit, 8)), [(Some("t"), Some(4))]);
        assert_eq!(named(&reading.read(&HeartbeatRequest::default(), 4)), []);
    }
}
