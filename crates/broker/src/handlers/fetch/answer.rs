//! Writing the answer to a Fetch.
//!
//! Small ranges are read into the answer before it leaves: one that cannot be read costs its partition an error
//! (KAFKA_STORAGE_ERROR) and nothing else, unless it is the device that does not give it and another replica is complete: then this
//! one is refused, so that others lead and it is copied anew. A large one leaves by `sendfile`, behind a header that has promised it: if that
//! fails, the connection ends, as in Kafka. What is known of the range before is that its batches lie there; to know that the device
//! gives them would take reading them all. So only ranges of a file that has failed so before are read first (`network::unsent`).

use std::io;
use std::ops::Range;
use std::sync::Arc;

use model::{ErrorCode, PartitionIndex};
use node::answering;
use partition::{Isolation, PartitionError, Status};
use rustix::io::Errno;
use storage::{FileSlice, StorageError};
use wire::EncodeError;
use wire::fetch::LeaderIdAndEpoch;
use wire::hot::Topic as WireTopic;
use wire::hot::fetch_response::{FetchResponder, FetchResponseHead, FetchedPartition, Records};

use super::super::current_leader::{Asker, Leaders, Named};
use super::{FetchInProgress, Found, Held, Look, known_topic};
use crate::fetch_session::TopicKey;
use crate::network::outbox::{Outbox, Splice};
use crate::network::slot::Hangup;
use crate::network::unsent::{read_through, read_whole};

/// Ranges below this many bytes are copied behind their header; from here on `sendfile` costs less.
const SENDFILE_BYTES_MIN: u32 = 16 * 1024;
/// From this version on an answer says who leads (KIP-951).
const LEADERS_FROM_VERSION: i16 = 16;

/// What of an answer was not written, and why.
enum Failure {
    /// The whole.
    Encode(EncodeError),
    /// Ranges that cannot be read, by their places in the look.
    Unread(Vec<(usize, io::Error)>),
}

impl From<EncodeError> for Failure {
    fn from(cause: EncodeError) -> Failure {
        Failure::Encode(cause)
    }
}

/// Ranges that must be read before the answer leaves, each with its place in the look.
#[derive(Default)]
struct Reads<'a> {
    /// To be copied behind their headers, into these places of the answer.
    copies: Vec<(usize, Range<usize>, &'a FileSlice)>,
    /// To be read through.
    checks: Vec<(usize, &'a FileSlice)>,
}

/// Whether the device does not give what is on it, which a second look changes nothing about.
fn is_of_device(cause: &io::Error) -> bool {
    Errno::from_io_error(cause) == Some(Errno::IO)
}

impl Reads<'_> {
    /// Reads all, whatever cannot be read; returns that.
    fn carry_out(self, answer: &mut [u8]) -> Vec<(usize, io::Error)> {
        let copies = self.copies.into_iter().map(|(at, range, slice)| {
            (at, read_whole(&*slice.file, &mut answer[range], slice.position))
        });
        let checks = self.checks.into_iter().map(|(at, slice)| (at, read_through(slice)));
        copies.chain(checks).filter_map(|(at, read)| Some((at, read.err()?))).collect()
    }
}

impl FetchInProgress {
    /// Writes an answer that says what a look has found.
    pub(super) fn write(
        &self,
        mut look: Look,
        out: &mut Outbox,
        asker: &Asker<'_>,
    ) -> Result<(), Hangup> {
        // Each round takes at least one range out.
        loop {
            let composed = out.compose(|writer, splices| {
                let reads = self.encode(&look, writer, splices, asker)?;
                match reads.carry_out(writer.buffer()) {
                    unread if unread.is_empty() => Ok(()),
                    unread => Err(Failure::Unread(unread)),
                }
            });
            match composed {
                Ok(()) => return Ok(()),
                Err(Failure::Encode(cause)) => {
                    return Err(Hangup(format!("cannot answer a Fetch: {cause}")));
                }
                Err(Failure::Unread(unread)) => {
                    unread.into_iter().for_each(|(at, cause)| self.refuse(&mut look, at, cause));
                }
            }
        }
    }

    /// Answers an error in the place of a range that cannot be read.
    fn refuse(&self, look: &mut Look, at: usize, cause: io::Error) {
        let found = &mut look.found[at];
        found.result = Err(self.code_of_unread(found, cause));
        if let Held::Session(shared) = &self.held {
            shared.lock().session.was_refused(found.slot, &found.topic, found.partition_index);
        }
    }

    fn code_of_unread(&self, found: &Found, source: io::Error) -> ErrorCode {
        let topics = self.server.topics.load();
        let topic = known_topic(&topics, &found.topic);
        let partition = topic.and_then(|it| it.partition(PartitionIndex(found.partition_index)));
        match partition {
            Some(partition) if partition.status() == Status::Leading => {
                let path = partition.with_log(|log| log.dir().to_owned());
                if is_of_device(&source) && self.server.can_do_without(partition) {
                    let reason = format!("records in it cannot be read: {source}");
                    let cause = StorageError::Refused { dir: path, reason };
                    return self.server.gave_up(partition, cause);
                }
                let cause = StorageError::Io { operation: "read records in", path, source };
                self.server.complaints.code_of(partition, &PartitionError::Storage(cause))
            }
            // Its log may have been cut since it was looked at.
            Some(_) => ErrorCode::NotLeaderOrFollower,
            None => ErrorCode::KafkaStorageError,
        }
    }

    fn encode<'a>(
        &self,
        look: &'a Look,
        writer: &mut wire::Writer,
        splices: &mut Vec<Splice>,
        asker: &Asker<'_>,
    ) -> Result<Reads<'a>, EncodeError> {
        let head = FetchResponseHead {
            throttle_time_ms: 0,
            error_code: self.error_code,
            session_id: self.session_id,
        };
        let topics = look.found.chunk_by(|a, b| a.topic == b.topic);
        let count = topics.clone().count();
        let (mut reads, mut at) = (Reads::default(), 0);
        let mut leaders = Leaders::new(asker);
        let mut responder =
            FetchResponder::begin(writer, self.version, self.correlation_id, head, count)?;
        for topic in topics {
            responder.topic(wire_topic(&topic[0].topic), topic.len())?;
            for found in topic {
                let leader = self.hint(found, &mut leaders);
                self.encode_partition((at, found), leader, &mut responder, splices, &mut reads)?;
                at += 1;
            }
        }
        responder.end(&leaders.of_fetch())?;
        Ok(reads)
    }

    /// Who leads instead. Brokers go by their own metadata.
    fn hint(&self, found: &Found, leaders: &mut Leaders<'_>) -> Option<LeaderIdAndEpoch> {
        let code = *found.result.as_ref().err()?;
        if self.version < LEADERS_FROM_VERSION || self.replica.is_some() {
            return None;
        }
        let topic = match &found.topic {
            TopicKey::Name(name) => Named::Name(name),
            TopicKey::Id(id) => Named::Id(*id),
        };
        let index = PartitionIndex(found.partition_index);
        leaders.hint(code, topic, index, found.known_epoch).map(Into::into)
    }

    fn encode_partition<'a>(
        &self,
        (at, found): (usize, &'a Found),
        current_leader: Option<LeaderIdAndEpoch>,
        responder: &mut FetchResponder<'_>,
        splices: &mut Vec<Splice>,
        reads: &mut Reads<'a>,
    ) -> Result<(), EncodeError> {
        let index = PartitionIndex(found.partition_index);
        let read = match &found.result {
            Ok(read) => read,
            Err(code) => {
                let failed = answering::failed(index, *code, found.range);
                let failed = FetchedPartition { current_leader, ..failed };
                responder.partition(&failed, Records::Copied(&[]))?;
                return Ok(());
            }
        };
        let aborted = read.aborted.iter().map(|entry| (entry.producer_id, entry.first_offset));
        let aborted: Vec<_> = aborted.collect();
        let fetched = FetchedPartition {
            aborted_transactions: (self.isolation == Isolation::Stable).then_some(&*aborted),
            ..answering::found(index, read)
        };
        match &read.slice {
            None => {
                responder.partition(&fetched, Records::Copied(&[]))?;
            }
            Some(slice)
                if slice.size_bytes < SENDFILE_BYTES_MIN || slice.file.as_fd().is_none() =>
            {
                let range =
                    responder.partition(&fetched, Records::Reserved(slice.size_bytes as usize))?;
                reads.copies.push((at, range, slice));
            }
            Some(slice) => {
                let place =
                    responder.partition(&fetched, Records::Spliced(slice.size_bytes as usize))?;
                if self.server.unsent.contains(&slice.file) {
                    reads.checks.push((at, slice));
                }
                splices.push(Splice {
                    at: place.start,
                    file: Arc::clone(&slice.file),
                    position: slice.position,
                    size: slice.size_bytes as u64,
                });
            }
        }
        Ok(())
    }
}

fn wire_topic(topic: &TopicKey) -> WireTopic<'_> {
    match topic {
        TopicKey::Name(name) => WireTopic::Name(name),
        TopicKey::Id(id) => WireTopic::Id(*id),
    }
}
