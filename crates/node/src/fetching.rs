//! A follower's requests and its leader's answers as Kafka's Fetch (version 18, with the replica's state): between
//! what a [`Fetcher`](crate::Fetcher) says and bytes. How a leader reads the one and writes the other is in [`crate::answering`].

use std::collections::BTreeMap;

use metadata::decide::BrokerRef;
use model::{ErrorCode, LeaderEpoch, Offset, PartitionIndex, TopicId, Uuid};
use partition::ReplicaFetch;
use wire::fetch::{
    FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic, PartitionData,
    ReplicaState,
};
use wire::{ApiKey, DecodeError, EncodeError, Reader, Writer, frame};

use crate::fetcher::{self, Ask, Key, ReplicaAnswerError};
use crate::mutants::{Mutant, is_planted};

/// The version that followers speak.
pub const VERSION: i16 = 18;

/// What a follower asks for besides offsets.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Who asks.
    pub who: BrokerRef,
    /// How long the leader may wait for `bytes_min`, in milliseconds.
    pub wait_ms_max: u32,
    /// As many bytes are worth an answer before that.
    pub bytes_min: i32,
    /// Bytes of one answer, but for a larger batch.
    pub bytes_max: u32,
    /// Bytes of one partition in it, but for a larger batch.
    pub partition_bytes_max: u32,
}

/// One partition that is asked for: from where, and the high watermark that is known here.
type Wanted<'a> = (&'a Key, &'a ReplicaFetch, Offset);

/// What the leader knows of what is asked for (KIP-227): a request names only what has changed since.
#[derive(Debug, Default)]
pub struct Session {
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
    pub fn answered(&mut self, id: i32) {
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

/// The whole frame of a request, its length included. `known` says up to where a partition is known to be committed.
///
/// Fails if the request is too large for a frame.
pub fn encode(
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
pub fn correlation_of(number: u64) -> i32 {
    (number & i32::MAX as u64) as i32
}

fn partition((key, fetch, high_watermark): Wanted<'_>, terms: &Terms) -> FetchPartition {
    let last_epoch = match is_planted(Mutant::DropsLastEpochs) {
        true => LeaderEpoch::NONE,
        false => fetch.last_epoch,
    };
    FetchPartition {
        partition: key.partition.0,
        current_leader_epoch: fetch.from.leader_epoch.0,
        fetch_offset: fetch.from.offset.0,
        last_fetched_epoch: last_epoch.0,
        log_start_offset: fetch.log_start.0,
        partition_max_bytes: i32::try_from(terms.partition_bytes_max).unwrap_or(i32::MAX),
        replica_directory_id: Uuid::ZERO,
        high_watermark: high_watermark.0,
    }
}

/// What a leader says of each partition.
pub type Answers = Vec<(Key, Result<fetcher::Answered, ReplicaAnswerError>)>;

/// What a leader answers.
#[derive(Debug)]
pub enum Answered {
    /// Of partitions with something new.
    Partitions {
        /// What the leader calls the session; 0: it keeps none.
        session_id: i32,
        /// By partition.
        answers: Answers,
    },
    /// It does not know the session any more: everything is to be asked for anew.
    SessionLost,
}

/// Why an answer is of no use.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The bytes are none.
    #[error("not an answer to Fetch: {0}")]
    Decode(#[from] DecodeError),
    /// It answers another request.
    #[error("the answer to request {found}, and {expected} was asked")]
    Order {
        /// What it answers, as [`correlation_of`] says.
        found: i32,
        /// What was asked.
        expected: i32,
    },
    /// The leader gives nothing of any partition.
    #[error("the leader refuses the request: {0}")]
    Refused(ErrorCode),
}

/// Reads the frame of an answer to the request of this number, its length taken off. Records are a part of the frame.
pub fn decode(frame: bytes::Bytes, number: u64) -> Result<Answered, AnswerError> {
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

fn understood(data: PartitionData) -> Result<fetcher::Answered, ReplicaAnswerError> {
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
    Ok(fetcher::Answered { diverging, high_watermark, log_start, records })
}

#[cfg(test)]
mod tests {
    use model::{BrokerEpoch, BrokerId, Moment};
    use partition::{FetchFrom, Read};
    use storage::ReadCursor;
    use wire::frame::{LENGTH_BYTES, RequestHead};
    use wire::hot::Topic;
    use wire::hot::fetch::FetchRequest as HotRequest;
    use wire::hot::fetch_response::{FetchResponder, FetchResponseHead, FetchedPartition, Records};

    use super::*;
    use crate::answering::{self, Follower, Wanted};

    const WHO: BrokerRef = BrokerRef { broker: BrokerId(2), epoch: BrokerEpoch(1 << 40) };
    const TERMS: Terms = Terms {
        who: WHO,
        wait_ms_max: 500,
        bytes_min: 1,
        bytes_max: 1 << 20,
        partition_bytes_max: 900,
    };

    fn key(partition: i32) -> Key {
        Key { topic_id: Uuid::from_random([7; 16]), partition: PartitionIndex(partition) }
    }

    fn fetch(offset: i64) -> ReplicaFetch {
        let (leader, leader_epoch) = (BrokerId(1), LeaderEpoch(5));
        let from = FetchFrom { leader, leader_epoch, offset: Offset(offset) };
        ReplicaFetch { from, last_epoch: LeaderEpoch(4), log_start: Offset(3) }
    }

    fn ask(number: u64, partitions: &[(i32, i64)]) -> Ask {
        let partitions = partitions.iter().map(|(at, offset)| (key(*at), fetch(*offset)));
        Ask { number, partitions: partitions.collect(), wait_max: None }
    }

    /// What the leader reads of a request.
    fn read(frame: &[u8]) -> (i32, HotRequest) {
        let frame = &frame[LENGTH_BYTES..];
        let head = RequestHead::parse(frame).unwrap();
        assert_eq!((head.api_key, head.version), (ApiKey::Fetch, VERSION));
        let mut request = HotRequest::default();
        request.decode(&frame[head.body_from..], head.version).unwrap();
        (head.correlation_id, request)
    }

    #[test]
    fn a_leader_reads_what_its_follower_wrote() {
        let mut session = Session::default();
        let known = |key: &Key| Offset(i64::from(key.partition.0));
        let frame = encode(&ask(9, &[(0, 70), (1, 80)]), &mut session, &TERMS, known).unwrap();
        let (number, request) = read(&frame);
        assert_eq!((number, request.session_id, request.session_epoch), (9, 0, 0));
        assert_eq!((request.max_wait_ms, request.min_bytes, request.max_bytes), (500, 1, 1 << 20));
        let follower = Follower::of(&request, Some(WHO.broker)).unwrap().unwrap();
        assert_eq!(follower, Follower { broker: WHO.broker, epoch: WHO.epoch });
        assert!(Follower::of(&request, Some(BrokerId(3))).is_err(), "another one's");
        assert!(Follower::of(&request, None).is_err(), "of a client");
        for (at, (partition, offset)) in [(0, 70), (1, 80)].into_iter().enumerate() {
            let asked = &request.partitions[at];
            assert_eq!(request.topic(asked.topic), Topic::Id(key(partition).topic_id));
            let wanted = Wanted {
                offset: Offset(offset),
                log_start: Offset(3),
                max_bytes: 900,
                known_epoch: LeaderEpoch(5),
                last_fetched_epoch: LeaderEpoch(4),
                known_high_watermark: Some(Offset(i64::from(partition))),
            };
            assert_eq!((asked.partition, Wanted::of(asked)), (PartitionIndex(partition), wanted));
            let now = Moment::START;
            let read = follower.read(&wanted, ReadCursor::default(), 100, true, now);
            assert_eq!((read.fetch.position, read.fetch.broker_epoch), (Offset(offset), WHO.epoch));
            assert_eq!((read.last_epoch, read.max_bytes), (LeaderEpoch(4), 100), "what is left");
        }
    }

    #[test]
    fn in_a_session_a_request_names_what_has_changed() {
        let mut session = Session::default();
        let mut next = |number, partitions: &[(i32, i64)]| {
            let frame = encode(&ask(number, partitions), &mut session, &TERMS, |_| Offset(0));
            session.answered(33);
            let (_, request) = read(&frame.unwrap());
            let named: Vec<_> = request.partitions.iter().map(|it| it.partition.0).collect();
            let forgotten: Vec<_> = request.forgotten.iter().map(|it| it.partition.0).collect();
            ((request.session_id, request.session_epoch), named, forgotten)
        };
        assert_eq!(next(1, &[(0, 70), (1, 80)]), ((0, 0), vec![0, 1], vec![]));
        assert_eq!(next(2, &[(0, 70), (1, 81)]), ((33, 1), vec![1], vec![]));
        assert_eq!(next(3, &[(1, 81)]), ((33, 2), vec![], vec![0]));
    }

    /// An answer of one partition, its length taken off.
    fn answer(number: i32, code: ErrorCode, partition: &FetchedPartition<'_>) -> bytes::Bytes {
        let mut writer = Writer::new();
        let head = FetchResponseHead { throttle_time_ms: 0, error_code: code, session_id: 33 };
        let mut responder = FetchResponder::begin(&mut writer, VERSION, number, head, 1).unwrap();
        responder.topic(Topic::Id(key(1).topic_id), 1).unwrap();
        responder.partition(partition, Records::Copied(b"records")).unwrap();
        responder.end(&[]).unwrap();
        bytes::Bytes::from(writer.into_bytes()).slice(LENGTH_BYTES..)
    }

    #[test]
    fn a_follower_reads_what_its_leader_wrote() {
        let read = Read {
            slice: None,
            high_watermark: Offset(60),
            aborted: Vec::new(),
            last_stable: Offset(60),
            log_start: Offset(2),
            diverging: Some((LeaderEpoch(3), Offset(40))),
            is_segments_behind: false,
            last_acknowledgement: None,
        };
        let partition = PartitionIndex(1);
        let frame = answer(9, ErrorCode::None, &answering::found(partition, &read));
        let Ok(Answered::Partitions { session_id: 33, answers }) = decode(frame.clone(), 9) else {
            panic!("it is an answer")
        };
        let expected = fetcher::Answered {
            diverging: read.diverging,
            high_watermark: read.high_watermark,
            log_start: read.log_start,
            records: bytes::Bytes::from_static(b"records"),
        };
        assert_eq!(answers, [(key(1), Ok(expected))]);
        let order = decode(frame.clone(), 10);
        assert!(matches!(order, Err(AnswerError::Order { found: 9, expected: 10 })));
        for cut in 0..frame.len() {
            assert!(decode(frame.slice(..cut), 9).is_err(), "cut at {cut}");
        }
    }

    /// A tagged field of number 99, as a newer release may add it.
    const NEWER_FIELD: [u8; 4] = [99, 2, 0xca, 0xfe];

    /// The bytes with a newer field in the list of tagged fields that begins `from_end` bytes before their end, and has `length`
    /// bytes.
    fn with_newer_field(bytes: &[u8], from_end: usize, length: usize) -> Vec<u8> {
        let (before, list) = bytes.split_at(bytes.len() - from_end);
        let (list, behind) = list.split_at(length);
        [before, &[list[0] + 1], &list[1..], &NEWER_FIELD, behind].concat()
    }

    #[test]
    fn a_leader_skips_newer_fields_of_a_followers_request() {
        let request = ask(9, &[(0, 70)]);
        let frame = encode(&request, &mut Session::default(), &TERMS, |_| Offset(60)).unwrap();
        let known = read(&frame);
        // Behind the partitions: fields of the partition and of the topic, no forgotten topics, no rack, fields of the request.
        assert_eq!(frame[frame.len() - 30..][..3], [1, 1, 8], "the high watermark");
        assert_eq!(frame[frame.len() - 19..][..6], [0, 1, 1, 1, 1, 13], "the replica's state");
        for (from_end, length) in [(30, 11), (19, 1), (16, 16)] {
            let newer = with_newer_field(&frame, from_end, length);
            assert_eq!(read(&newer), known, "a field {from_end} bytes before the end");
        }
        let mut newer = with_newer_field(&frame, 1, 1);
        let size = frame.len() - 14;
        newer[size] += NEWER_FIELD.len() as u8;
        assert_eq!(read(&newer), known, "a field of the replica's state");
        // Of the head: behind its client's name.
        let newer = with_newer_field(&frame, frame.len() - (LENGTH_BYTES + 17), 1);
        assert_eq!(read(&newer), known, "a field of the head");
    }

    #[test]
    fn a_follower_skips_newer_fields_of_a_leaders_answer() {
        let mut found = Read {
            slice: None,
            high_watermark: Offset(60),
            aborted: Vec::new(),
            last_stable: Offset(60),
            log_start: Offset(2),
            diverging: None,
            is_segments_behind: false,
            last_acknowledgement: None,
        };
        let partition = PartitionIndex(1);
        let understood = |frame: &[u8]| match decode(bytes::Bytes::copy_from_slice(frame), 9) {
            Ok(Answered::Partitions { session_id: 33, answers }) => answers,
            other => panic!("{other:?}"),
        };
        let frame = answer(9, ErrorCode::None, &answering::found(partition, &found));
        let known = understood(&frame);
        // Fields of the partition, of the topic and of the answer.
        assert_eq!(frame[frame.len() - 3..], [0; 3]);
        for from_end in 1..=3 {
            let newer = with_newer_field(&frame, from_end, 1);
            assert_eq!(understood(&newer), known, "a field {from_end} bytes before the end");
        }
        // Of the head: behind the number of the request.
        let newer = with_newer_field(&frame, frame.len() - 4, 1);
        assert_eq!(understood(&newer), known, "a field of the head");

        found.diverging = Some((LeaderEpoch(3), Offset(40)));
        let frame = answer(9, ErrorCode::None, &answering::found(partition, &found));
        let known = understood(&frame);
        // One field of the partition: number, length, and 13 bytes that end with no field of their own.
        assert_eq!(frame[frame.len() - 18..][..3], [1, 0, 13]);
        assert_eq!(understood(&with_newer_field(&frame, 18, 16)), known);
    }

    #[test]
    fn a_follower_learns_what_went_wrong() {
        let partition = PartitionIndex(1);
        let of = |said: &FetchedPartition<'_>| match decode(answer(9, ErrorCode::None, said), 9) {
            Ok(Answered::Partitions { mut answers, .. }) => answers.remove(0).1.unwrap_err(),
            other => panic!("{other:?}"),
        };
        let (log_start, log_end) = (Offset(2), Offset(60));
        let range = Some((log_start, log_end));
        let said = answering::failed(partition, ErrorCode::OffsetOutOfRange, range);
        assert_eq!(of(&said), ReplicaAnswerError::OutOfRange { log_start, log_end });
        let said = answering::failed(partition, ErrorCode::NotLeaderOrFollower, None);
        assert_eq!(of(&said), ReplicaAnswerError::Other(ErrorCode::NotLeaderOrFollower));
        let whole = |code| decode(answer(9, code, &said), 9);
        let lost = whole(ErrorCode::FetchSessionIdNotFound);
        assert!(matches!(lost, Ok(Answered::SessionLost)));
        let refused = whole(ErrorCode::ClusterAuthorizationFailed);
        let expected = ErrorCode::ClusterAuthorizationFailed;
        assert!(matches!(refused, Err(AnswerError::Refused(code)) if code == expected));
    }
}
