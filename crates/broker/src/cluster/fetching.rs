//! A follower's requests and its leader's answers as Kafka's Fetch (version 18, with the replica's state): between
//! what the room `node` says and bytes.

use std::collections::BTreeMap;

use metadata::decide::BrokerRef;
use model::{ErrorCode, LeaderEpoch, Offset, PartitionIndex, TopicId, Uuid};
use node::{Ask, Key, ReplicaAnswerError};
use partition::ReplicaFetch;
use wire::fetch::{
    FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic, PartitionData,
    ReplicaState,
};
use wire::{ApiKey, DecodeError, EncodeError, Reader, Writer, frame};

/// The version that followers speak.
pub(super) const VERSION: i16 = 18;

/// What a follower asks for besides offsets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// Who asks.
    pub(super) who: BrokerRef,
    pub(super) wait_ms_max: u32,
    pub(super) bytes_min: i32,
    pub(super) bytes_max: u32,
    pub(super) partition_bytes_max: u32,
}

/// One partition that is asked for: from where, and the high watermark that is known here.
type Wanted<'a> = (&'a Key, &'a ReplicaFetch, Offset);

/// What the leader knows of what is asked for (KIP-227): a request names only what has changed since.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// 0 before the leader has given one.
    id: i32,
    /// That of the next request.
    epoch: i32,
    asked: BTreeMap<Key, ReplicaFetch>,
}

impl Session {
    /// What of a request has changed, and what is asked for no more.
    fn changes<'a>(&mut self, ask: &'a Ask) -> (Vec<&'a (Key, ReplicaFetch)>, Vec<Key>) {
        let now: BTreeMap<Key, ReplicaFetch> = ask.partitions.iter().copied().collect();
        let is_changed = |(key, fetch): &&(Key, ReplicaFetch)| self.asked.get(key) != Some(fetch);
        let changed = ask.partitions.iter().filter(is_changed).collect();
        let gone = self.asked.keys().filter(|key| !now.contains_key(key)).copied().collect();
        self.asked = now;
        (changed, gone)
    }

    /// The leader answered, and calls the session so; 0: it keeps none.
    pub(super) fn answered(&mut self, id: i32) {
        if id == 0 {
            *self = Session::default();
            return;
        }
        self.epoch = if self.id == id { self.epoch.checked_add(1).unwrap_or(1) } else { 1 };
        self.id = id;
    }
}

fn by_topic<T>(
    parts: impl IntoIterator<Item = (TopicId, T)>,
) -> impl Iterator<Item = (TopicId, Vec<T>)> {
    let mut topics: BTreeMap<TopicId, Vec<T>> = BTreeMap::new();
    for (topic_id, part) in parts {
        topics.entry(topic_id).or_default().push(part);
    }
    topics.into_iter()
}

/// The whole frame of a request. `known` says up to where a partition is known to be committed.
pub(super) fn encode(
    ask: &Ask,
    session: &mut Session,
    terms: &Terms,
    known: impl Fn(&Key) -> Offset,
) -> Result<Vec<u8>, EncodeError> {
    let (session_id, session_epoch) = (session.id, session.epoch);
    let (changed, gone) = session.changes(ask);
    let wanted = changed
        .into_iter()
        .map(|(key, fetch)| (key.topic_id, partition((key, fetch, known(key)), terms)));
    let topics = by_topic(wanted).map(|(topic_id, partitions)| FetchTopic {
        topic: String::new(),
        topic_id,
        partitions,
    });
    let gone = gone.into_iter().map(|key| (key.topic_id, key.partition.0));
    let forgotten = by_topic(gone).map(|(topic_id, partitions)| ForgottenTopic {
        topic: String::new(),
        topic_id,
        partitions,
    });
    let bytes = |bytes: u32| i32::try_from(bytes).unwrap_or(i32::MAX);
    let request = FetchRequest {
        replica_id: -1,
        replica_state: ReplicaState {
            replica_id: terms.who.broker.0,
            replica_epoch: terms.who.epoch.0,
        },
        max_wait_ms: bytes(wait_ms(ask, terms)),
        min_bytes: terms.bytes_min,
        max_bytes: bytes(terms.bytes_max),
        session_id,
        session_epoch,
        topics: topics.collect(),
        forgotten_topics_data: forgotten.collect(),
        ..FetchRequest::default()
    };
    let mut writer = Writer::new();
    let correlation_id = correlation_of(ask.number);
    frame::write_request(&mut writer, &request, VERSION, correlation_id, Some("replica"))?;
    Ok(writer.into_bytes())
}

/// How long a request waits at the leader, in milliseconds, rounded up: asked for too early, a partition still rests.
fn wait_ms(ask: &Ask, terms: &Terms) -> u32 {
    let rest_ms = ask.wait_max.map(|rest| rest.as_micros().div_ceil(1000));
    let rest_ms = rest_ms.and_then(|rest_ms| u32::try_from(rest_ms).ok());
    rest_ms.map_or(terms.wait_ms_max, |rest_ms| rest_ms.min(terms.wait_ms_max))
}

/// What an answer must carry to be that of the request with this number.
pub(super) fn correlation_of(number: u64) -> i32 {
    (number & i32::MAX as u64) as i32
}

fn partition((key, fetch, high_watermark): Wanted<'_>, terms: &Terms) -> FetchPartition {
    FetchPartition {
        partition: key.partition.0,
        current_leader_epoch: fetch.from.leader_epoch.0,
        fetch_offset: fetch.from.offset.0,
        last_fetched_epoch: fetch.last_epoch.0,
        log_start_offset: fetch.log_start.0,
        partition_max_bytes: i32::try_from(terms.partition_bytes_max).unwrap_or(i32::MAX),
        replica_directory_id: Uuid::ZERO,
        high_watermark: high_watermark.0,
    }
}

/// What a leader says of each partition.
pub(super) type Answers = Vec<(Key, Result<node::Answered, ReplicaAnswerError>)>;

/// What a leader answers.
#[derive(Debug)]
pub(super) enum Answered {
    /// Of partitions with something new.
    Partitions { session_id: i32, answers: Answers },
    /// It does not know the session any more: everything is to be asked for anew.
    SessionLost,
}

/// Why an answer is of no use.
#[derive(Debug, thiserror::Error)]
pub(super) enum AnswerError {
    #[error("not an answer to Fetch: {0}")]
    Decode(#[from] DecodeError),
    #[error("the answer to request {found}, and {expected} was asked")]
    Order { found: i32, expected: i32 },
    #[error("the leader refuses the request: {0}")]
    Refused(ErrorCode),
}

/// Reads the frame of an answer, its length taken off.
pub(super) fn decode(frame: bytes::Bytes, number: u64) -> Result<Answered, AnswerError> {
    let mut reader = Reader::shared(&frame);
    let found = frame::read_response_head(&mut reader, ApiKey::Fetch, VERSION)?;
    let expected = correlation_of(number);
    if found != expected {
        return Err(AnswerError::Order { found, expected });
    }
    let response = FetchResponse::decode(&mut reader, VERSION)?;
    match code_of(response.error_code) {
        ErrorCode::None => {}
        ErrorCode::FetchSessionIdNotFound
        | ErrorCode::InvalidFetchSessionEpoch
        | ErrorCode::FetchSessionTopicIdError => return Ok(Answered::SessionLost),
        code => return Err(AnswerError::Refused(code)),
    }
    let answers = response.responses.into_iter().flat_map(|topic| {
        let topic_id = topic.topic_id;
        topic.partitions.into_iter().map(move |data| {
            let partition = PartitionIndex(data.partition_index);
            (Key { topic_id, partition }, understood(data))
        })
    });
    Ok(Answered::Partitions { session_id: response.session_id, answers: answers.collect() })
}

/// A code that only a newer release knows is a failure like any other.
fn code_of(code: i16) -> ErrorCode {
    ErrorCode::from_code(code).unwrap_or(ErrorCode::UnknownServerError)
}

fn understood(data: PartitionData) -> Result<node::Answered, ReplicaAnswerError> {
    let (log_start, high_watermark) = (Offset(data.log_start_offset), Offset(data.high_watermark));
    match code_of(data.error_code) {
        ErrorCode::None => {}
        // Of a partition that is out of range the leader tells where its log begins and ends.
        ErrorCode::OffsetOutOfRange if log_start.0 >= 0 => {
            return Err(ReplicaAnswerError::OutOfRange { log_start, log_end: high_watermark });
        }
        code => return Err(ReplicaAnswerError::Other(code)),
    }
    let parts = &data.diverging_epoch;
    let diverging =
        (parts.epoch >= 0).then_some((LeaderEpoch(parts.epoch), Offset(parts.end_offset)));
    let records = data.records.unwrap_or_default();
    Ok(node::Answered { diverging, high_watermark, log_start, records })
}
