//! Produce (key 0), versions 3 to 13; advertised from 0, because librdkafka needs that to use it at
//! all (KAFKA-18659), though 0 to 2 are refused.
//!
//! - One batch a partition and request; it is stamped in place and written from the very memory it
//!   was received in. Batches are stored as they are compressed, unless `compression.type` says
//!   otherwise.
//! - Every record is looked into first, compressed or not: offsets, keys, timestamps, lengths
//!   (`records.validation`). A wrong largest timestamp is corrected, not refused.
//! - `acks=0` gets no answer; an error closes the connection, so that the producer learns of it.
//! - `acks=all` waits for the high watermark, which under `durability=fsync` counts synced
//!   positions.
//! - v7 zstd; v8 record errors (KIP-467); v10 the new leader and where it is (KIP-951); v12
//!   transactions without AddPartitions (KIP-890): not served; v13 topic ids (KIP-516).
//! - A batch behind one of the same producer that was refused with a retriable error a moment ago gets the same error. Kafka
//!   answers OUT_OF_ORDER_SEQUENCE_NUMBER (decision 0093).
//! - A request for which no file can be opened waits until one was closed: for its time-out, at least one
//!   second and at most thirty. So does a request whose log directory hangs in a write; where the broker has another
//!   directory, the request gets KAFKA_STORAGE_ERROR as soon as the write has hung for two seconds.
//! - A batch for a partition that this broker may lead in a moment, because its leader has ended, waits up to 300 ms for the metadata.
//!   Kafka answers NOT_LEADER_OR_FOLLOWER.
//! - Transactional requests are refused with UNSUPPORTED_VERSION.
//! - Internal topics are refused with INVALID_TOPIC_EXCEPTION, whatever the client calls itself. Kafka
//!   lets clients in whose id is `__admin_client`: an id that any client may choose.

use std::cell::Cell;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use model::{ErrorCode, LeaderEpoch, Offset, PartitionIndex, Timestamp, TopicId, Uuid};
use partition::{
    Acks, Append, AppendAdmission, Appended, Effort, Fate, Partition, PartitionError, Refusal,
    Status, WaiterKey,
};
use smallvec::SmallVec;
use storage::disk::reserve;
use wire::hot::Topic as WireTopic;
use wire::hot::produce::{self, PartitionRecords};
use wire::hot::produce_response::{PartitionAnswer, ProduceResponder};
use wire::produce::BatchIndexAndErrorMessage;

use crate::cluster::is_superseded;
use crate::network::outbox::Outbox;
use crate::network::slot::{Hangup, Slot};
use crate::server::Server;
use crate::topics::{Topic, Topics};

use super::Dispatched;
use super::current_leader::{Asker, Leaders, Named};
use super::metadata::{LOST_LOOK, SETTLE_MAX, may_be_dead};

/// Versions below it cannot carry zstd.
const ZSTD_FROM_VERSION: i16 = 7;
/// The codec's number in the low byte of a batch's attributes.
const ZSTD_CODE: u8 = 4;
const ATTRIBUTES_LOW_BYTE: usize = 22;
/// From this version on an answer says who leads (KIP-951).
const LEADERS_FROM_VERSION: i16 = 10;

/// A topic as an answer names it.
enum AnswerTopic {
    Known(Arc<Topic>),
    Name(Box<str>),
    Id(Uuid),
}

/// What became of one partition's batch.
enum Outcome {
    Appended {
        appended: Appended,
        /// Waited for until its high watermark covers the batch; `None` when nothing is.
        awaited: Option<Arc<Partition>>,
        /// The place among those whom the partition will wake, if it will wake this connection.
        parked: Option<WaiterKey>,
    },
    Refused(Box<RefusedBatch>),
}

struct RefusedBatch {
    error_code: ErrorCode,
    message: Option<String>,
    record_errors: Vec<BatchIndexAndErrorMessage>,
    /// The leader epoch in which it was appended, if it was: the client knows that one.
    known_epoch: Option<LeaderEpoch>,
}

impl From<ErrorCode> for Outcome {
    fn from(error_code: ErrorCode) -> Outcome {
        Outcome::refused(error_code, None)
    }
}

struct Answer {
    topic: AnswerTopic,
    first_of_topic: bool,
    partition: i32,
    outcome: Outcome,
}

/// A produce request that was appended and is not answered yet.
pub struct ProduceInProgress {
    correlation_id: i32,
    version: i16,
    arrived: Instant,
    deadline: Instant,
    answers: SmallVec<[Answer; 1]>,
}

/// What the dispatcher read of the header; it borrows nothing of the frame.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// The version asked for.
    pub version: i16,
    /// What the answer must carry.
    pub correlation_id: i32,
    /// Where the message begins in the frame.
    pub body_from: usize,
}

/// Least time for the acknowledgement of batches that are written. A client writes a batch again whose time-out is reported,
/// and a synced acknowledgement takes longer than time-outs of 0 or a few milliseconds.
const ANSWER_LEAST: Duration = Duration::from_secs(1);
/// How long a request waits for a file to be closed: for its own time-out, but at least, and at most.
const PUT_OFF_LEAST: Duration = Duration::from_secs(1);
const PUT_OFF_MOST: Duration = Duration::from_secs(30);
/// How often a request that was put off is tried again if no file was closed meanwhile.
pub(super) const PUT_OFF_LOOK: Duration = Duration::from_millis(250);

/// A request that was begun. Where no file can be opened for its next partition, or this broker may lead it in a moment, the request
/// is put off; what it has appended stays appended, and is not answered before the rest is.
pub struct PutOff {
    produce: ProduceInProgress,
    /// As the request said; `None` if that means nothing.
    acks: Option<Acks>,
    /// Why the request as a whole is refused.
    refused: Option<ErrorCode>,
    /// Partitions that are still to be appended to, the next one first. Ranges of the same frame.
    left: SmallVec<[Item; 1]>,
    /// When it waits no longer.
    until: Instant,
    /// When it waits no longer for a leadership of this broker.
    leadership_until: Instant,
    /// Whether it waits for a leadership of this broker.
    awaits_leadership: bool,
}

/// What was found in the frame for one partition.
struct Item {
    topic: AnswerTopic,
    first_of_topic: bool,
    partition: i32,
    records: Option<std::ops::Range<usize>>,
}

/// Appends all that the request carries.
pub fn begin(
    server: &Arc<Server>,
    head: Head,
    frame: &mut [u8],
    now: Instant,
) -> Result<Dispatched, Hangup> {
    let Head { version, correlation_id, body_from } = head;
    let malformed = |error: wire::DecodeError| Hangup(format!("a malformed Produce: {error}"));
    let (request, partitions) = produce::walk(frame, body_from, version).map_err(malformed)?;
    let refused = request.transactional_id.is_some().then_some(ErrorCode::UnsupportedVersion);
    let acks = Acks::from_code(request.acks);
    let timeout = Duration::from_millis(request.timeout_ms.max(0) as u64);
    let topics = server.topics.load();
    let items: SmallVec<[Item; 1]> = partitions
        .map(|found| found.map(|found| item(&topics, found)))
        .collect::<Result<_, _>>()
        .map_err(malformed)?;
    drop(topics);
    let produce = ProduceInProgress {
        correlation_id,
        version,
        arrived: now,
        deadline: now + timeout.max(ANSWER_LEAST),
        answers: SmallVec::new(),
    };
    let begun = PutOff {
        produce,
        acks,
        refused: refused.or(acks.is_none().then_some(ErrorCode::InvalidRequiredAcks)),
        left: items,
        until: now + timeout.clamp(PUT_OFF_LEAST, PUT_OFF_MOST),
        leadership_until: now + SETTLE_MAX,
        awaits_leadership: false,
    };
    begun.go_on(server, frame, now)
}

impl PutOff {
    /// Appends the rest, one partition after the other, until no file can be opened or a leadership is awaited. `frame` is
    /// the same each time.
    pub fn go_on(
        mut self,
        server: &Arc<Server>,
        frame: &mut [u8],
        now: Instant,
    ) -> Result<Dispatched, Hangup> {
        let call = Call {
            server,
            version: self.produce.version,
            acks: self.acks.unwrap_or(Acks::Leader),
            now: server.now(),
            refused: self.refused,
            may_wait: now < self.until,
            may_await_leadership: now < self.leadership_until,
            awaits_leadership: Cell::new(false),
        };
        let answers = &mut self.produce.answers;
        let mut left = std::mem::take(&mut self.left).into_iter();
        let next = left.by_ref().find_map(|item| match call.serve_next(item, frame) {
            Ok(answer) => {
                answers.push(answer);
                None
            }
            Err(put_off) => Some(put_off),
        });
        // Of a whole request the connection asks for the syncs ([`ProduceInProgress::ask`]).
        let Some(next) = next else { return finish(self.produce, self.acks) };
        self.produce.ask();
        self.left = std::iter::once(next).chain(left).collect();
        self.awaits_leadership = call.awaits_leadership.get();
        Ok(Dispatched::PutOff(Box::new(self)))
    }

    /// When to try again if no file is closed before.
    pub fn look_again(&self, now: Instant) -> Instant {
        if self.awaits_leadership && now < self.leadership_until {
            return (now + LOST_LOOK).min(self.leadership_until);
        }
        let next = now + PUT_OFF_LOOK;
        // Once it waits no longer, it still may wait for the peer to read.
        if now < self.until { next.min(self.until) } else { next }
    }

    /// Refuses the rest: the broker stops.
    pub fn give_up(mut self) -> Dispatched {
        let error = match self.awaits_leadership {
            true => ErrorCode::NotLeaderOrFollower,
            false => ErrorCode::KafkaStorageError,
        };
        self.produce.answers.extend(self.left.into_iter().map(|item| Answer {
            topic: item.topic,
            first_of_topic: item.first_of_topic,
            partition: item.partition,
            outcome: error.into(),
        }));
        finish(self.produce, self.acks).unwrap_or(Dispatched::NoAnswer)
    }
}

fn item(topics: &Topics, found: PartitionRecords<'_>) -> Item {
    let known = match found.topic {
        WireTopic::Name(name) => topics.by_name(name),
        WireTopic::Id(id) => topics.by_id(&id),
    };
    let topic = match (known, found.topic) {
        (Some(topic), _) => AnswerTopic::Known(Arc::clone(topic)),
        (None, WireTopic::Name(name)) => AnswerTopic::Name(name.into()),
        (None, WireTopic::Id(id)) => AnswerTopic::Id(id),
    };
    let PartitionRecords { first_of_topic, partition, records, .. } = found;
    Item { topic, first_of_topic, partition, records }
}

fn finish(produce: ProduceInProgress, acks: Option<Acks>) -> Result<Dispatched, Hangup> {
    if acks != Some(Acks::None) {
        return Ok(Dispatched::Slot(Slot::Produce(Box::new(produce))));
    }
    let failed = produce.answers.iter().find_map(|answer| match &answer.outcome {
        Outcome::Refused(refused) => Some(refused.error_code),
        Outcome::Appended { .. } => None,
    });
    match failed {
        None => Ok(Dispatched::NoAnswer),
        Some(code) => Err(Hangup(format!("a Produce with acks=0 failed with {code}"))),
    }
}

/// One request's terms.
struct Call<'a> {
    server: &'a Arc<Server>,
    version: i16,
    acks: Acks,
    now: Timestamp,
    /// The request as a whole is refused.
    refused: Option<ErrorCode>,
    /// Whether it may wait for files to be closed.
    may_wait: bool,
    /// Whether it may wait for a leadership of this broker.
    may_await_leadership: bool,
    /// Whether it waits for a leadership of this broker.
    awaits_leadership: Cell<bool>,
}

impl Call<'_> {
    /// As [`Call::serve`]. A write of the append may hang, and this thread with it: with several log directories other
    /// threads serve the tasks that earlier appends woke.
    fn serve_next(&self, item: Item, frame: &mut [u8]) -> Result<Answer, Item> {
        if self.server.logs.has_several_directories() {
            // The task that was woken last is in a place from which no other thread takes it. This one takes the place.
            drop(tokio::spawn(std::future::ready(())));
        }
        self.serve(item, frame)
    }

    /// `Err`: no file could be opened for it, or this broker may lead it in a moment, and it may wait.
    fn serve(&self, item: Item, frame: &mut [u8]) -> Result<Answer, Item> {
        let outcome = match (&item.topic, item.records.clone()) {
            _ if self.refused.is_some() => self.refused.expect("just seen").into(),
            (AnswerTopic::Known(topic), Some(records)) => {
                let index = PartitionIndex(item.partition);
                match self.append(topic, index, &mut frame[records]) {
                    Some(outcome) => outcome,
                    None => return Err(item),
                }
            }
            (AnswerTopic::Known(_), None) => ErrorCode::InvalidRecord.into(),
            (AnswerTopic::Name(name), _) => {
                self.server.absence_of_name(name, PartitionIndex(item.partition)).into()
            }
            (AnswerTopic::Id(id), _) => {
                self.server.absence_of(id, PartitionIndex(item.partition)).into()
            }
        };
        let Item { topic, first_of_topic, partition, .. } = item;
        Ok(Answer { topic, first_of_topic, partition, outcome })
    }

    /// `None`: it may wait, as [`Call::serve`] says.
    fn append(&self, topic: &Topic, index: PartitionIndex, records: &mut [u8]) -> Option<Outcome> {
        let outcome = self.append_now(topic, index, records)?;
        topic.counters.produce_requests.add(1);
        Some(outcome)
    }

    fn append_now(
        &self,
        topic: &Topic,
        index: PartitionIndex,
        records: &mut [u8],
    ) -> Option<Outcome> {
        let Some(partition) = topic.partition(index) else {
            topic.counters.failed_produce_requests.add(1);
            return Some(self.server.absence_of(&topic.id, index).into());
        };
        if topic.internal {
            topic.counters.failed_produce_requests.add(1);
            return Some(internal_topic(&topic.name));
        }
        if self.acks != Acks::All && is_superseded(self.server, partition) {
            topic.counters.failed_produce_requests.add(1);
            return Some(ErrorCode::NotLeaderOrFollower.into());
        }
        let codec = records.get(ATTRIBUTES_LOW_BYTE).map_or(0, |byte| byte & 7);
        if self.version < ZSTD_FROM_VERSION && codec == ZSTD_CODE {
            return Some(ErrorCode::UnsupportedCompressionType.into());
        }
        let how = Append { acks: self.acks, now: self.now, internal: false };
        // A data thread does not wait until a file is closed.
        let result = reserve::at_once(|| self.check_and_append(partition, records, how));
        Some(match result {
            Err(error) if self.may_wait && may_be_put_off(partition, &error) => return None,
            Err(PartitionError::NotLeader)
                if self.may_await_leadership && may_lead_soon(self.server, topic.id, index) =>
            {
                self.awaits_leadership.set(true);
                return None;
            }
            Ok(appended) => {
                let count = appended.needed.0 - appended.base_offset.0;
                topic.counters.records_in.add(count as u64);
                topic.counters.bytes_in.add(records.len() as u64);
                self.appended(partition, appended)
            }
            Err(error) => {
                topic.counters.failed_produce_requests.add(1);
                self.refused(partition, &error)
            }
        })
    }

    /// What takes long to look into is looked into beside this thread's other work. This request's
    /// turn is kept: nothing behind it on the connection is begun before it is appended.
    fn check_and_append(
        &self,
        partition: &Partition,
        records: &mut [u8],
        how: Append,
    ) -> Result<Appended, PartitionError> {
        if let Some(prepared) = partition.prepare(records, how, Effort::Brief)? {
            return partition.append_prepared(records, prepared, how);
        }
        self.server.checking.aside(|| partition.append(records, how))
    }

    fn appended(&self, partition: &Arc<Partition>, appended: Appended) -> Outcome {
        let fate = || partition.fate(appended.needed, appended.epoch);
        let wait = self.acks == Acks::All && fate() != Fate::Committed;
        Outcome::Appended { appended, awaited: wait.then(|| Arc::clone(partition)), parked: None }
    }

    fn refused(&self, partition: &Arc<Partition>, error: &PartitionError) -> Outcome {
        if let PartitionError::Storage(storage) = error {
            self.server.log_failed(partition, storage);
        }
        let record_errors = match error {
            PartitionError::Refused(Refusal::NoKey(errors) | Refusal::Timestamp(errors)) => errors
                .iter()
                .map(|error| BatchIndexAndErrorMessage {
                    batch_index: error.index,
                    batch_index_error_message: error.message.clone(),
                })
                .collect(),
            _ => Vec::new(),
        };
        Outcome::Refused(Box::new(RefusedBatch {
            error_code: match error {
                PartitionError::Deleted => unknown_topic(self.version),
                other => self.server.complaints.code_of(partition, other),
            },
            message: Some(error.to_string()),
            record_errors,
            known_epoch: None,
        }))
    }
}

/// Whether the same append may succeed a moment later: no file can be opened, or a write in the log directory hangs. After a
/// write has hung for two seconds in one of several directories, its partitions hold up no other partition.
fn may_be_put_off(partition: &Partition, error: &PartitionError) -> bool {
    match error {
        PartitionError::DirectoryHangs => partition.admission() != AppendAdmission::Refused,
        error => error.lacks_resources(),
    }
}

/// Whether this broker may lead a partition in a moment: the metadata that it has and did not act upon yet makes it the leader, or
/// the leader's process has ended, or may have. Clients hear of a leader from brokers that are a few milliseconds ahead. A client
/// that is refused then waits before it requests metadata again, franz-go for five seconds.
fn may_lead_soon(server: &Server, topic: TopicId, index: PartitionIndex) -> bool {
    let image = server.image();
    let state = image.topic_by_id(topic).and_then(|topic| topic.partition(index));
    state.is_some_and(|state| {
        state.leader == server.node_id || may_be_dead(server, &image, state.leader)
    })
}

/// Coordinators believe what stands in their topics, so no client may write there.
fn internal_topic(name: &str) -> Outcome {
    Outcome::Refused(Box::new(RefusedBatch {
        error_code: ErrorCode::InvalidTopicException,
        message: Some(format!("topic {name} is internal: only the broker may write to it")),
        record_errors: Vec::new(),
        known_epoch: None,
    }))
}

impl Drop for Outcome {
    /// Whoever has timed out, or whose connection is gone, waits no more.
    fn drop(&mut self) {
        if let Outcome::Appended { awaited: Some(partition), parked: Some(key), .. } = self {
            partition.leave(*key);
        }
    }
}

impl Outcome {
    fn refused(error_code: ErrorCode, known_epoch: Option<LeaderEpoch>) -> Outcome {
        let (message, record_errors) = (None, Vec::new());
        Outcome::Refused(Box::new(RefusedBatch { error_code, message, record_errors, known_epoch }))
    }

    /// What this waits for.
    fn awaited(&self) -> Option<(&Arc<Partition>, Offset)> {
        match self {
            Outcome::Appended { appended, awaited: Some(partition), .. } => {
                Some((partition, appended.needed))
            }
            Outcome::Appended { awaited: None, .. } | Outcome::Refused(_) => None,
        }
    }

    /// Whether it is final. If not, the task will be woken.
    fn settle(&mut self, cx: &mut Context<'_>, version: i16, timed_out: bool) -> bool {
        let Outcome::Appended { appended, awaited, parked } = self else { return true };
        let Some(partition) = awaited else { return true };
        loop {
            let error = match partition.fate(appended.needed, appended.epoch) {
                Fate::Committed => {
                    *awaited = None;
                    return true;
                }
                Fate::Ended(Status::Offline) => ErrorCode::KafkaStorageError,
                Fate::Ended(Status::Deleted) => unknown_topic(version),
                Fate::Ended(Status::Following | Status::Leading) => ErrorCode::NotLeaderOrFollower,
                Fate::Undecided if timed_out => ErrorCode::RequestTimedOut,
                Fate::Undecided if parked.is_some() => return false,
                Fate::Undecided => {
                    *parked = partition.park(appended.needed, cx.waker());
                    if parked.is_some() {
                        return false;
                    }
                    continue;
                }
            };
            *self = Outcome::refused(error, Some(appended.epoch));
            return true;
        }
    }
}

impl ProduceInProgress {
    /// Writes the answer if every partition's fate is decided.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        now: Instant,
        out: &mut Outbox,
        asker: &Asker<'_>,
    ) -> Poll<Result<(), Hangup>> {
        let timed_out = now >= self.deadline;
        // All are asked, so that all are parked.
        let mut settled = true;
        for answer in &mut self.answers {
            settled &= answer.outcome.settle(cx, self.version, timed_out);
        }
        if !settled {
            return Poll::Pending;
        }
        let written = out.compose(|writer, _| self.write(writer, asker));
        Poll::Ready(written.map_err(|error| Hangup(format!("cannot answer a Produce: {error}"))))
    }

    /// The partition that it waits for and the offset it needs there, if it waits for one only.
    pub fn only_awaited(&self) -> Option<(&Arc<Partition>, Offset)> {
        let mut awaited = self.answers.iter().filter_map(|answer| answer.outcome.awaited());
        awaited.next().filter(|_| awaited.next().is_none())
    }

    /// Asks for the syncs that it waits for: only when all is appended, so that the flusher takes all partitions of a
    /// request in one round.
    pub fn ask(&self) {
        let awaited = self.answers.iter().filter_map(|answer| answer.outcome.awaited());
        awaited.for_each(|(partition, needed)| partition.want_committed(needed));
    }

    /// When the request came.
    pub fn arrived(&self) -> Instant {
        self.arrived
    }

    /// When waiting ends.
    pub fn deadline(&self) -> Option<Instant> {
        Some(self.deadline)
    }

    fn write(&self, writer: &mut wire::Writer, asker: &Asker<'_>) -> Result<(), wire::EncodeError> {
        let mut leaders = Leaders::new(asker);
        let topic_count = self.answers.iter().filter(|answer| answer.first_of_topic).count();
        let mut responder =
            ProduceResponder::begin(writer, self.version, self.correlation_id, topic_count)?;
        for (at, answer) in self.answers.iter().enumerate() {
            if answer.first_of_topic {
                let behind = self.answers[at + 1..].iter().take_while(|next| !next.first_of_topic);
                responder.topic(wire_topic(&answer.topic, self.version), 1 + behind.count())?;
            }
            self.write_answer(&mut responder, answer, &mut leaders)?;
        }
        responder.end(0, &leaders.of_produce())
    }

    fn write_answer(
        &self,
        responder: &mut ProduceResponder<'_>,
        answer: &Answer,
        leaders: &mut Leaders<'_>,
    ) -> Result<(), wire::EncodeError> {
        let index = PartitionIndex(answer.partition);
        let refused = match &answer.outcome {
            Outcome::Appended { appended, .. } => {
                return responder.partition(&PartitionAnswer::appended(
                    index,
                    appended.base_offset,
                    appended.log_append_time,
                    appended.log_start,
                ));
            }
            Outcome::Refused(refused) => refused,
        };
        let topic = match &answer.topic {
            AnswerTopic::Known(topic) => Named::Id(topic.id),
            AnswerTopic::Name(name) => Named::Name(name),
            AnswerTopic::Id(id) => Named::Id(*id),
        };
        let leader = match self.version >= LEADERS_FROM_VERSION {
            true => leaders.hint(refused.error_code, topic, index, refused.known_epoch),
            false => None,
        };
        responder.partition(&PartitionAnswer {
            record_errors: &refused.record_errors,
            error_message: refused.message.as_deref(),
            current_leader: leader.map(Into::into),
            ..PartitionAnswer::refused(index, refused.error_code)
        })
    }
}

/// What a topic that is gone is called in a version that names topics by name, or by id.
const fn unknown_topic(version: i16) -> ErrorCode {
    if version >= 13 { ErrorCode::UnknownTopicId } else { ErrorCode::UnknownTopicOrPartition }
}

fn wire_topic(topic: &AnswerTopic, version: i16) -> WireTopic<'_> {
    match topic {
        AnswerTopic::Known(topic) if version >= 13 => WireTopic::Id(topic.id),
        AnswerTopic::Known(topic) => WireTopic::Name(&topic.name),
        AnswerTopic::Name(name) => WireTopic::Name(name),
        AnswerTopic::Id(id) => WireTopic::Id(*id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_was_put_off_is_never_due_at_once() {
        let began = Instant::now();
        let produce = ProduceInProgress {
            correlation_id: 1,
            version: 9,
            arrived: began,
            deadline: began,
            answers: SmallVec::new(),
        };
        let until = began + 3 * PUT_OFF_LOOK;
        let left = SmallVec::new();
        let leadership_until = began + PUT_OFF_LOOK / 5;
        let mut put_off = PutOff {
            produce,
            acks: Some(Acks::All),
            refused: None,
            left,
            until,
            leadership_until,
            awaits_leadership: false,
        };
        let after = |now: Instant| put_off.look_again(now) - now;
        assert_eq!(after(began), PUT_OFF_LOOK);
        assert_eq!(after(until - PUT_OFF_LOOK / 2), PUT_OFF_LOOK / 2, "its time is up then");
        // It is refused when it is taken up; while the peer does not read, it is not.
        for late in [Duration::ZERO, PUT_OFF_LOOK, PUT_OFF_MOST] {
            assert_eq!(after(until + late), PUT_OFF_LOOK);
        }
        put_off.awaits_leadership = true;
        let after = |now: Instant| put_off.look_again(now) - now;
        assert_eq!(after(began), LOST_LOOK);
        assert_eq!(after(leadership_until - LOST_LOOK / 2), LOST_LOOK / 2);
        assert_eq!(after(leadership_until), PUT_OFF_LOOK, "while the peer does not read");
    }
}
