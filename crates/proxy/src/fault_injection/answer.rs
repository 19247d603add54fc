//! Answers with an error code or a throttle time that no broker has set.

use super::fetch_session::FetchSession;
use crate::frames::Broken;
use bytes::Bytes;
use model::{ErrorCode, Uuid};
use wire::frame::{LENGTH_BYTES, RequestHead, read_response_head, write_response};
use wire::*;

/// APIs whose answers the proxy can make or change.
pub const ALTERED_APIS: &[ApiKey] = &[
    ApiKey::Produce,
    ApiKey::Fetch,
    ApiKey::ListOffsets,
    ApiKey::Metadata,
    ApiKey::OffsetCommit,
    ApiKey::OffsetFetch,
    ApiKey::FindCoordinator,
    ApiKey::JoinGroup,
    ApiKey::Heartbeat,
    ApiKey::LeaveGroup,
    ApiKey::SyncGroup,
    ApiKey::CreateTopics,
    ApiKey::DeleteTopics,
    ApiKey::CreatePartitions,
    ApiKey::InitProducerId,
    ApiKey::OffsetForLeaderEpoch,
    ApiKey::AddPartitionsToTxn,
    ApiKey::AddOffsetsToTxn,
    ApiKey::EndTxn,
    ApiKey::TxnOffsetCommit,
    ApiKey::ConsumerGroupHeartbeat,
];

/// A change of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerChange {
    /// Sets the error code.
    Code(ErrorCode),
    /// Sets the throttle time, in milliseconds.
    Throttle(i32),
}

/// Which topics and partitions of an answer a change concerns: by name, id and partition.
type Concerned<'a> = &'a dyn Fn(&str, Uuid, Option<i32>) -> bool;

/// Offset of a partition whose answer is an error.
const NO_OFFSET: i64 = -1;

/// An answer with error codes and a throttle time.
trait AlteredAnswer: Message {
    /// Sets the error code of the concerned partitions or topics, or of the whole answer if it has one code.
    fn set_code(&mut self, code: i16, version: i16, concerned: Concerned<'_>);

    /// Sets the throttle time, in milliseconds.
    fn set_throttle(&mut self, ms: i32);
}

/// A request whose answer the proxy can make without a broker.
trait RefusedRequest: Request {
    /// The answer without error codes.
    fn answer(self) -> Self::Response;
}

/// The answer to a request that the broker never gets; `None` if the request is malformed, or if only a broker can
/// answer it (Metadata: the answer has the brokers' addresses). `session` has applied the request.
pub fn refuse(
    frame: &[u8],
    head: &RequestHead<'_>,
    code: ErrorCode,
    session: &FetchSession,
) -> Option<Bytes> {
    let all = &|_: &str, _: Uuid, _: Option<i32>| true;
    if head.api_key == ApiKey::Fetch {
        let body = frame.get(LENGTH_BYTES + head.body_from..)?;
        let mut request: FetchRequest = decode(body, head.version).ok()?;
        request.topics = session.topics().unwrap_or(request.topics);
        let mut answer = request.answer();
        answer.set_code(code as i16, head.version, all);
        return written(&answer, head.api_key, head.version, head.correlation_id);
    }
    macro_rules! refuse {
        ($($api:ident $request:ty,)*) => {
            match head.api_key {
                $(ApiKey::$api => {
                    let body = frame.get(LENGTH_BYTES + head.body_from..)?;
                    let request: $request = decode(body, head.version).ok()?;
                    let mut answer = request.answer();
                    answer.set_code(code as i16, head.version, all);
                    written(&answer, head.api_key, head.version, head.correlation_id)
                })*
                _ => None,
            }
        };
    }
    refuse! {
        Produce ProduceRequest,
        ListOffsets ListOffsetsRequest,
        OffsetCommit OffsetCommitRequest,
        OffsetFetch OffsetFetchRequest,
        FindCoordinator FindCoordinatorRequest,
        JoinGroup JoinGroupRequest,
        Heartbeat HeartbeatRequest,
        LeaveGroup LeaveGroupRequest,
        SyncGroup SyncGroupRequest,
        CreateTopics CreateTopicsRequest,
        DeleteTopics DeleteTopicsRequest,
        CreatePartitions CreatePartitionsRequest,
        InitProducerId InitProducerIdRequest,
        OffsetForLeaderEpoch OffsetForLeaderEpochRequest,
        AddPartitionsToTxn AddPartitionsToTxnRequest,
        AddOffsetsToTxn AddOffsetsToTxnRequest,
        EndTxn EndTxnRequest,
        TxnOffsetCommit TxnOffsetCommitRequest,
        ConsumerGroupHeartbeat ConsumerGroupHeartbeatRequest,
    }
}

/// Changes a broker's answer, a whole frame. An API of no altered answer is left as it is.
///
/// # Errors
/// The answer is malformed.
pub fn change(
    frame: &[u8],
    api: ApiKey,
    version: i16,
    wanted: AnswerChange,
    concerned: Concerned<'_>,
) -> Result<Bytes, Broken> {
    macro_rules! change {
        ($($api:ident $response:ty,)*) => {
            match api {
                $(ApiKey::$api => {
                    let mut reader = Reader::new(&frame[LENGTH_BYTES..]);
                    let correlation_id = read_response_head(&mut reader, api, version)?;
                    let mut answer = <$response>::decode(&mut reader, version)?;
                    match wanted {
                        AnswerChange::Code(code) => answer.set_code(code as i16, version, concerned),
                        AnswerChange::Throttle(ms) => answer.set_throttle(ms),
                    }
                    written(&answer, api, version, correlation_id)
                })*
                _ => None,
            }
        };
    }
    let changed = change! {
        Produce ProduceResponse,
        Fetch FetchResponse,
        ListOffsets ListOffsetsResponse,
        Metadata MetadataResponse,
        OffsetCommit OffsetCommitResponse,
        OffsetFetch OffsetFetchResponse,
        FindCoordinator FindCoordinatorResponse,
        JoinGroup JoinGroupResponse,
        Heartbeat HeartbeatResponse,
        LeaveGroup LeaveGroupResponse,
        SyncGroup SyncGroupResponse,
        CreateTopics CreateTopicsResponse,
        DeleteTopics DeleteTopicsResponse,
        CreatePartitions CreatePartitionsResponse,
        InitProducerId InitProducerIdResponse,
        OffsetForLeaderEpoch OffsetForLeaderEpochResponse,
        AddPartitionsToTxn AddPartitionsToTxnResponse,
        AddOffsetsToTxn AddOffsetsToTxnResponse,
        EndTxn EndTxnResponse,
        TxnOffsetCommit TxnOffsetCommitResponse,
        ConsumerGroupHeartbeat ConsumerGroupHeartbeatResponse,
    };
    Ok(changed.unwrap_or_else(|| Bytes::copy_from_slice(frame)))
}

/// The frame of an answer; `None` if this version cannot carry it.
pub(super) fn written<M: Message>(
    answer: &M,
    api: ApiKey,
    version: i16,
    correlation_id: i32,
) -> Option<Bytes> {
    let mut writer = Writer::new();
    write_response(&mut writer, answer, api, version, correlation_id).ok()?;
    Some(writer.into_bytes().into())
}

/// Answers with one code for the whole request.
macro_rules! one_code {
    ($($response:ident $request:ident,)*) => {
        $(impl AlteredAnswer for $response {
            fn set_code(&mut self, code: i16, _version: i16, _concerned: Concerned<'_>) {
                self.error_code = code;
            }

            fn set_throttle(&mut self, ms: i32) {
                self.throttle_time_ms = ms;
            }
        }

        impl RefusedRequest for $request {
            fn answer(self) -> $response {
                $response::default()
            }
        })*
    };
}

one_code! {
    HeartbeatResponse HeartbeatRequest,
    SyncGroupResponse SyncGroupRequest,
    AddOffsetsToTxnResponse AddOffsetsToTxnRequest,
    EndTxnResponse EndTxnRequest,
    ConsumerGroupHeartbeatResponse ConsumerGroupHeartbeatRequest,
}

impl AlteredAnswer for JoinGroupResponse {
    fn set_code(&mut self, code: i16, _version: i16, _concerned: Concerned<'_>) {
        self.error_code = code;
        self.generation_id = -1;
        self.members.clear();
    }

    fn set_throttle(&mut self, ms: i32) {
        self.throttle_time_ms = ms;
    }
}

impl RefusedRequest for JoinGroupRequest {
    fn answer(self) -> JoinGroupResponse {
        JoinGroupResponse {
            member_id: self.member_id,
            // Versions before 7 cannot carry null.
            protocol_name: Some(String::new()),
            ..JoinGroupResponse::default()
        }
    }
}

impl AlteredAnswer for LeaveGroupResponse {
    fn set_code(&mut self, code: i16, _version: i16, _concerned: Concerned<'_>) {
        self.error_code = code;
        self.members.clear();
    }

    fn set_throttle(&mut self, ms: i32) {
        self.throttle_time_ms = ms;
    }
}

impl RefusedRequest for LeaveGroupRequest {
    fn answer(self) -> LeaveGroupResponse {
        LeaveGroupResponse::default()
    }
}

impl AlteredAnswer for InitProducerIdResponse {
    fn set_code(&mut self, code: i16, _version: i16, _concerned: Concerned<'_>) {
        (self.error_code, self.producer_id, self.producer_epoch) = (code, -1, -1);
    }

    fn set_throttle(&mut self, ms: i32) {
        self.throttle_time_ms = ms;
    }
}

impl RefusedRequest for InitProducerIdRequest {
    fn answer(self) -> InitProducerIdResponse {
        InitProducerIdResponse::default()
    }
}

/// Answers with a code for each partition of each topic: the fields of topics and partitions, and the other fields of an error.
macro_rules! partition_codes {
    ($($response:ident: $topics:ident ($name:expr, $id:expr) $partitions:ident ($index:ident, $code:ident) $set:expr;)*) => {
        $(impl AlteredAnswer for $response {
            fn set_code(&mut self, code: i16, _version: i16, concerned: Concerned<'_>) {
                for topic in &mut self.$topics {
                    let (name, id) = ($name(topic).to_owned(), $id(topic));
                    for partition in &mut topic.$partitions {
                        if concerned(&name, id, Some(partition.$index)) {
                            partition.$code = code;
                            $set(partition);
                        }
                    }
                }
            }

            fn set_throttle(&mut self, ms: i32) {
                self.throttle_time_ms = ms;
            }
        })*
    };
}

fn no_id<T>(_topic: &T) -> Uuid {
    Uuid::default()
}

partition_codes! {
    ProduceResponse: responses (|t: &produce::TopicProduceResponse| t.name.clone(), |t: &produce::TopicProduceResponse| t.topic_id)
        partition_responses (index, error_code) |p: &mut produce::PartitionProduceResponse| {
            (p.base_offset, p.log_append_time_ms, p.log_start_offset) = (NO_OFFSET, -1, NO_OFFSET);
        };
    FetchResponse: responses (|t: &fetch::FetchableTopicResponse| t.topic.clone(), |t: &fetch::FetchableTopicResponse| t.topic_id)
        partitions (partition_index, error_code) |p: &mut fetch::PartitionData| {
            (p.high_watermark, p.last_stable_offset, p.log_start_offset) = (NO_OFFSET, NO_OFFSET, NO_OFFSET);
            p.aborted_transactions = None;
            p.records = Some(Bytes::new());
        };
    ListOffsetsResponse: topics (|t: &list_offsets::ListOffsetsTopicResponse| t.name.clone(), no_id)
        partitions (partition_index, error_code) |p: &mut list_offsets::ListOffsetsPartitionResponse| {
            (p.timestamp, p.offset) = (-1, NO_OFFSET);
        };
    OffsetCommitResponse: topics
        (|t: &offset_commit::OffsetCommitResponseTopic| t.name.clone(), |t: &offset_commit::OffsetCommitResponseTopic| t.topic_id)
        partitions (partition_index, error_code) |_: &mut offset_commit::OffsetCommitResponsePartition| {};
    TxnOffsetCommitResponse: topics
        (|t: &txn_offset_commit::TxnOffsetCommitResponseTopic| t.name.clone(),
         |t: &txn_offset_commit::TxnOffsetCommitResponseTopic| t.topic_id)
        partitions (partition_index, error_code) |_: &mut txn_offset_commit::TxnOffsetCommitResponsePartition| {};
    OffsetForLeaderEpochResponse: topics (|t: &offset_for_leader_epoch::OffsetForLeaderTopicResult| t.topic.clone(), no_id)
        partitions (partition, error_code) |p: &mut offset_for_leader_epoch::EpochEndOffset| {
            (p.leader_epoch, p.end_offset) = (-1, NO_OFFSET);
        };
}

impl RefusedRequest for ProduceRequest {
    fn answer(self) -> ProduceResponse {
        let partition = |it: produce::PartitionProduceData| produce::PartitionProduceResponse {
            index: it.index,
            ..Default::default()
        };
        let topic = |it: produce::TopicProduceData| produce::TopicProduceResponse {
            name: it.name,
            topic_id: it.topic_id,
            partition_responses: it.partition_data.into_iter().map(partition).collect(),
        };
        let responses = self.topic_data.into_iter().map(topic).collect();
        ProduceResponse { responses, ..ProduceResponse::default() }
    }
}

impl RefusedRequest for FetchRequest {
    /// The session ends: the broker does not count this request, so its epochs would no longer fit.
    fn answer(self) -> FetchResponse {
        let partition = |it: fetch::FetchPartition| fetch::PartitionData {
            partition_index: it.partition,
            ..Default::default()
        };
        let topic = |it: fetch::FetchTopic| fetch::FetchableTopicResponse {
            topic: it.topic,
            topic_id: it.topic_id,
            partitions: it.partitions.into_iter().map(partition).collect(),
        };
        let responses = self.topics.into_iter().map(topic).collect();
        FetchResponse { responses, ..FetchResponse::default() }
    }
}

impl RefusedRequest for ListOffsetsRequest {
    fn answer(self) -> ListOffsetsResponse {
        let partition =
            |it: list_offsets::ListOffsetsPartition| list_offsets::ListOffsetsPartitionResponse {
                partition_index: it.partition_index,
                ..Default::default()
            };
        let topic = |it: list_offsets::ListOffsetsTopic| list_offsets::ListOffsetsTopicResponse {
            name: it.name,
            partitions: it.partitions.into_iter().map(partition).collect(),
        };
        let topics = self.topics.into_iter().map(topic).collect();
        ListOffsetsResponse { topics, ..ListOffsetsResponse::default() }
    }
}

impl RefusedRequest for OffsetCommitRequest {
    fn answer(self) -> OffsetCommitResponse {
        let partition = |it: offset_commit::OffsetCommitRequestPartition| {
            offset_commit::OffsetCommitResponsePartition {
                partition_index: it.partition_index,
                ..Default::default()
            }
        };
        let topic = |it: offset_commit::OffsetCommitRequestTopic| {
            offset_commit::OffsetCommitResponseTopic {
                name: it.name,
                topic_id: it.topic_id,
                partitions: it.partitions.into_iter().map(partition).collect(),
            }
        };
        let topics = self.topics.into_iter().map(topic).collect();
        OffsetCommitResponse { topics, ..OffsetCommitResponse::default() }
    }
}

impl RefusedRequest for TxnOffsetCommitRequest {
    fn answer(self) -> TxnOffsetCommitResponse {
        let partition = |it: txn_offset_commit::TxnOffsetCommitRequestPartition| {
            txn_offset_commit::TxnOffsetCommitResponsePartition {
                partition_index: it.partition_index,
                ..Default::default()
            }
        };
        let topic = |it: txn_offset_commit::TxnOffsetCommitRequestTopic| {
            txn_offset_commit::TxnOffsetCommitResponseTopic {
                name: it.name,
                topic_id: it.topic_id,
                partitions: it.partitions.into_iter().map(partition).collect(),
            }
        };
        let topics = self.topics.into_iter().map(topic).collect();
        TxnOffsetCommitResponse { topics, ..TxnOffsetCommitResponse::default() }
    }
}

impl RefusedRequest for OffsetForLeaderEpochRequest {
    fn answer(self) -> OffsetForLeaderEpochResponse {
        let partition = |it: offset_for_leader_epoch::OffsetForLeaderPartition| {
            offset_for_leader_epoch::EpochEndOffset {
                partition: it.partition,
                ..Default::default()
            }
        };
        let topic = |it: offset_for_leader_epoch::OffsetForLeaderTopic| {
            offset_for_leader_epoch::OffsetForLeaderTopicResult {
                topic: it.topic,
                partitions: it.partitions.into_iter().map(partition).collect(),
            }
        };
        let topics = self.topics.into_iter().map(topic).collect();
        OffsetForLeaderEpochResponse { topics, ..OffsetForLeaderEpochResponse::default() }
    }
}

impl AlteredAnswer for MetadataResponse {
    fn set_code(&mut self, code: i16, _version: i16, concerned: Concerned<'_>) {
        for topic in &mut self.topics {
            if concerned(topic.name.as_deref().unwrap_or_default(), topic.topic_id, None) {
                topic.error_code = code;
                topic.partitions.clear();
            }
        }
    }

    fn set_throttle(&mut self, ms: i32) {
        self.throttle_time_ms = ms;
    }
}

impl AlteredAnswer for OffsetFetchResponse {
    fn set_code(&mut self, code: i16, version: i16, _concerned: Concerned<'_>) {
        match version {
            8.. => self.groups.iter_mut().for_each(|group| group.error_code = code),
            2..8 => self.error_code = code,
            _ => {
                let partitions = self.topics.iter_mut().flat_map(|topic| &mut topic.partitions);
                partitions.for_each(|partition| partition.error_code = code);
            }
        }
    }

    fn set_throttle(&mut self, ms: i32) {
        self.throttle_time_ms = ms;
    }
}

impl RefusedRequest for OffsetFetchRequest {
    fn answer(self) -> OffsetFetchResponse {
        let partition = |index: i32| offset_fetch::OffsetFetchResponsePartition {
            partition_index: index,
            committed_offset: NO_OFFSET,
            committed_leader_epoch: -1,
            metadata: Some(String::new()),
            ..Default::default()
        };
        let topic =
            |it: offset_fetch::OffsetFetchRequestTopic| offset_fetch::OffsetFetchResponseTopic {
                name: it.name,
                partitions: it.partition_indexes.into_iter().map(partition).collect(),
            };
        let group = |it: offset_fetch::OffsetFetchRequestGroup| {
            offset_fetch::OffsetFetchResponseGroup { group_id: it.group_id, ..Default::default() }
        };
        OffsetFetchResponse {
            topics: self.topics.unwrap_or_default().into_iter().map(topic).collect(),
            groups: self.groups.into_iter().map(group).collect(),
            ..OffsetFetchResponse::default()
        }
    }
}

impl AlteredAnswer for FindCoordinatorResponse {
    fn set_code(&mut self, code: i16, version: i16, _concerned: Concerned<'_>) {
        if version < 4 {
            (self.error_code, self.node_id, self.port) = (code, -1, -1);
            self.host.clear();
        }
        for found in &mut self.coordinators {
            (found.error_code, found.node_id, found.port) = (code, -1, -1);
            found.host.clear();
        }
    }

    fn set_throttle(&mut self, ms: i32) {
        self.throttle_time_ms = ms;
    }
}

impl RefusedRequest for FindCoordinatorRequest {
    fn answer(self) -> FindCoordinatorResponse {
        let coordinator = |key| find_coordinator::Coordinator { key, ..Default::default() };
        FindCoordinatorResponse {
            coordinators: self.coordinator_keys.into_iter().map(coordinator).collect(),
            ..FindCoordinatorResponse::default()
        }
    }
}

/// Answers with a code for each topic.
macro_rules! topic_codes {
    ($($response:ident: $topics:ident, $name:expr, $id:expr;)*) => {
        $(impl AlteredAnswer for $response {
            fn set_code(&mut self, code: i16, _version: i16, concerned: Concerned<'_>) {
                for topic in &mut self.$topics {
                    let (name, id): (String, Uuid) = ($name(topic), $id(topic));
                    if concerned(&name, id, None) {
                        topic.error_code = code;
                    }
                }
            }

            fn set_throttle(&mut self, ms: i32) {
                self.throttle_time_ms = ms;
            }
        })*
    };
}

topic_codes! {
    CreateTopicsResponse: topics, |t: &create_topics::CreatableTopicResult| t.name.clone(), no_id;
    CreatePartitionsResponse: results, |t: &create_partitions::CreatePartitionsTopicResult| t.name.clone(), no_id;
    DeleteTopicsResponse: responses,
        |t: &delete_topics::DeletableTopicResult| t.name.clone().unwrap_or_default(),
        |t: &delete_topics::DeletableTopicResult| t.topic_id;
}

impl RefusedRequest for CreateTopicsRequest {
    fn answer(self) -> CreateTopicsResponse {
        let topic = |it: create_topics::CreatableTopic| create_topics::CreatableTopicResult {
            name: it.name,
            ..Default::default()
        };
        let topics = self.topics.into_iter().map(topic).collect();
        CreateTopicsResponse { topics, ..CreateTopicsResponse::default() }
    }
}

impl RefusedRequest for CreatePartitionsRequest {
    fn answer(self) -> CreatePartitionsResponse {
        let topic = |it: create_partitions::CreatePartitionsTopic| {
            create_partitions::CreatePartitionsTopicResult { name: it.name, ..Default::default() }
        };
        let results = self.topics.into_iter().map(topic).collect();
        CreatePartitionsResponse { results, ..CreatePartitionsResponse::default() }
    }
}

impl RefusedRequest for DeleteTopicsRequest {
    fn answer(self) -> DeleteTopicsResponse {
        let state = |it: delete_topics::DeleteTopicState| delete_topics::DeletableTopicResult {
            name: it.name,
            topic_id: it.topic_id,
            ..Default::default()
        };
        let name = |name: String| delete_topics::DeletableTopicResult {
            name: Some(name),
            ..Default::default()
        };
        let states = self.topics.into_iter().map(state);
        let responses = states.chain(self.topic_names.into_iter().map(name)).collect();
        DeleteTopicsResponse { responses, ..DeleteTopicsResponse::default() }
    }
}

impl AlteredAnswer for AddPartitionsToTxnResponse {
    fn set_code(&mut self, code: i16, version: i16, concerned: Concerned<'_>) {
        if version >= 4 {
            self.error_code = code;
            self.results_by_transaction.clear();
        }
        for topic in &mut self.results_by_topic_v3_and_below {
            for partition in &mut topic.results_by_partition {
                if concerned(&topic.name, Uuid::default(), Some(partition.partition_index)) {
                    partition.partition_error_code = code;
                }
            }
        }
    }

    fn set_throttle(&mut self, ms: i32) {
        self.throttle_time_ms = ms;
    }
}

impl RefusedRequest for AddPartitionsToTxnRequest {
    fn answer(self) -> AddPartitionsToTxnResponse {
        let partition = |index: i32| add_partitions_to_txn::AddPartitionsToTxnPartitionResult {
            partition_index: index,
            ..Default::default()
        };
        let topic = |it: add_partitions_to_txn::AddPartitionsToTxnTopic| {
            add_partitions_to_txn::AddPartitionsToTxnTopicResult {
                name: it.name,
                results_by_partition: it.partitions.into_iter().map(partition).collect(),
            }
        };
        let topics = self.v3_and_below_topics.into_iter().map(topic).collect();
        AddPartitionsToTxnResponse {
            results_by_topic_v3_and_below: topics,
            ..AddPartitionsToTxnResponse::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame_of<R: Request>(request: &R, version: i16) -> Vec<u8> {
        let mut writer = Writer::new();
        frame::write_request(&mut writer, request, version, 7, Some("me")).unwrap();
        writer.into_bytes()
    }

    /// The answer to a request in a version that the broker never gets, with this code.
    fn refused<R: Request>(request: &R, version: i16, code: ErrorCode) -> R::Response {
        let frame = frame_of(request, version);
        let head = RequestHead::parse(&frame[LENGTH_BYTES..]).unwrap();
        let answer = refuse(&frame, &head, code, &FetchSession::default()).unwrap();
        let mut reader = Reader::new(&answer[LENGTH_BYTES..]);
        assert_eq!(read_response_head(&mut reader, R::API_KEY, version).unwrap(), 7);
        let message = R::Response::decode(&mut reader, version).unwrap();
        reader.finish().unwrap();
        message
    }

    /// Every version of every API can carry an error, or has no field for one.
    #[test]
    fn empty_requests_of_every_version_are_refused() {
        fn check<R: Request + Default>(code: ErrorCode) {
            for version in R::MIN_VERSION..=R::MAX_VERSION {
                refused(&R::default(), version, code);
            }
        }
        let code = ErrorCode::CoordinatorNotAvailable;
        check::<ProduceRequest>(code);
        check::<FetchRequest>(code);
        check::<ListOffsetsRequest>(code);
        check::<OffsetCommitRequest>(code);
        check::<OffsetFetchRequest>(code);
        check::<FindCoordinatorRequest>(code);
        check::<JoinGroupRequest>(code);
        check::<HeartbeatRequest>(code);
        check::<LeaveGroupRequest>(code);
        check::<SyncGroupRequest>(code);
        check::<CreateTopicsRequest>(code);
        check::<DeleteTopicsRequest>(code);
        check::<CreatePartitionsRequest>(code);
        check::<InitProducerIdRequest>(code);
        check::<OffsetForLeaderEpochRequest>(code);
        check::<AddPartitionsToTxnRequest>(code);
        check::<AddOffsetsToTxnRequest>(code);
        check::<EndTxnRequest>(code);
        check::<TxnOffsetCommitRequest>(code);
        check::<ConsumerGroupHeartbeatRequest>(code);
    }

    fn produce() -> ProduceRequest {
        let partition = |index| produce::PartitionProduceData { index, records: None };
        ProduceRequest {
            topic_data: vec![produce::TopicProduceData {
                name: "t".to_owned(),
                topic_id: Uuid([3; 16]),
                partition_data: vec![partition(0), partition(5)],
            }],
            ..ProduceRequest::default()
        }
    }

    #[test]
    fn each_partition_of_a_refused_request_has_the_code_and_no_offset() {
        for version in [3, 9, 13] {
            let answer = refused(&produce(), version, ErrorCode::NotEnoughReplicas);
            let partitions = &answer.responses[0].partition_responses;
            let shown = partitions.iter().map(|p| (p.index, p.error(), p.base_offset));
            let code = ErrorCode::NotEnoughReplicas;
            assert_eq!(shown.collect::<Vec<_>>(), [(0, code, -1), (5, code, -1)]);
        }
    }

    #[test]
    fn old_and_new_versions_carry_the_code_where_clients_find_it() {
        let code = ErrorCode::NotCoordinator;
        let find = FindCoordinatorRequest {
            coordinator_keys: vec!["g".to_owned()],
            ..FindCoordinatorRequest::default()
        };
        assert_eq!(refused(&find, 4, code).coordinators[0].error(), code);
        assert_eq!(refused(&FindCoordinatorRequest::default(), 3, code).error(), code);
        let group = offset_fetch::OffsetFetchRequestGroup {
            group_id: "g".to_owned(),
            ..Default::default()
        };
        let fetch = OffsetFetchRequest { groups: vec![group], ..OffsetFetchRequest::default() };
        assert_eq!(refused(&fetch, 8, code).groups[0].error_code, code as i16);
        assert_eq!(refused(&OffsetFetchRequest::default(), 7, code).error_code, code as i16);
    }

    #[test]
    fn a_change_concerns_the_chosen_partitions_alone() {
        let mut answer = produce().answer();
        for partition in &mut answer.responses[0].partition_responses {
            partition.base_offset = 9;
        }
        let frame = written(&answer, ApiKey::Produce, 9, 7).unwrap();
        let second =
            |name: &str, _: Uuid, partition: Option<i32>| (name, partition) == ("t", Some(5));
        let code = AnswerChange::Code(ErrorCode::RequestTimedOut);
        let read = |frame: &[u8]| {
            let mut reader = Reader::new(&frame[LENGTH_BYTES..]);
            read_response_head(&mut reader, ApiKey::Produce, 9).unwrap();
            ProduceResponse::decode(&mut reader, 9).unwrap()
        };
        let changed = read(&change(&frame, ApiKey::Produce, 9, code, &second).unwrap());
        let shown =
            changed.responses[0].partition_responses.iter().map(|p| (p.error_code, p.base_offset));
        assert_eq!(shown.collect::<Vec<_>>(), [(0, 9), (7, -1)]);
        let throttle = AnswerChange::Throttle(250);
        let throttled = read(&change(&frame, ApiKey::Produce, 9, throttle, &second).unwrap());
        assert_eq!(throttled.throttle_time_ms, 250);
        let kept = throttled.responses[0]
            .partition_responses
            .iter()
            .map(|p| (p.error_code, p.base_offset));
        assert_eq!(kept.collect::<Vec<_>>(), [(0, 9), (0, 9)]);
        assert!(change(&[0; 4], ApiKey::Produce, 9, throttle, &second).is_err());
    }
}
