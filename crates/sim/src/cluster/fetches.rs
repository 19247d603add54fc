//! Replicas' fetches and their answers as the frames that the product's brokers send: written and read by the rooms `node`
//! and `wire`. Each request stands for itself, without a fetch session.

use metadata::decide::BrokerRef;
use model::{BrokerId, ErrorCode, Offset};
use node::answering::{self, Follower, Wanted};
use node::fetching::{self, Answers, Session, Terms};
use node::{Ask, Key};
use partition::Read;
use wire::frame::{LENGTH_BYTES, RequestHead};
use wire::hot::Topic;
use wire::hot::fetch::FetchRequest;
use wire::hot::fetch_response::{FetchResponder, FetchResponseHead, Records};
use wire::{ApiKey, Writer};

/// Bytes of one answer for a partition, but for a larger batch.
pub(super) const FETCH_BYTES_MAX: u32 = 900;

/// The frame of a follower's request.
pub(super) fn write_request(ask: &Ask, who: BrokerRef, known: impl Fn(&Key) -> Offset) -> Vec<u8> {
    let terms = Terms {
        who,
        wait_ms_max: 0,
        bytes_min: 1,
        bytes_max: u32::MAX,
        partition_bytes_max: FETCH_BYTES_MAX,
    };
    let frame = fetching::encode(ask, &mut Session::default(), &terms, known);
    frame.expect("a request for two partitions fits a frame")
}

/// A request as the leader reads it.
pub(super) struct Request {
    correlation_id: i32,
    version: i16,
    pub(super) follower: Follower,
    /// What is wanted of which partitions.
    pub(super) wanted: Vec<(Key, Wanted)>,
}

impl Request {
    /// Reads what came from `caller`.
    pub(super) fn read(frame: &[u8], caller: BrokerId) -> Result<Request, String> {
        let frame = without_length(frame)?;
        let head = RequestHead::parse(frame).map_err(|error| error.to_string())?;
        if head.api_key != ApiKey::Fetch {
            return Err(format!("{:?} in the place of a fetch", head.api_key));
        }
        let mut request = FetchRequest::default();
        let decoded = request.decode(&frame[head.body_from..], head.version);
        decoded.map_err(|error| error.to_string())?;
        let follower = match Follower::of(&request, Some(caller)) {
            Ok(Some(follower)) => follower,
            Ok(None) => return Err("a consumer's fetch in the place of a replica's".to_owned()),
            Err(code) => return Err(format!("{code} is the answer")),
        };
        let mut wanted = Vec::new();
        for partition in &request.partitions {
            let Topic::Id(topic_id) = request.topic(partition.topic) else {
                return Err("a replica's fetch that names its topic".to_owned());
            };
            let key = Key { topic_id, partition: partition.partition };
            wanted.push((key, Wanted::of(partition)));
        }
        Ok(Request { correlation_id: head.correlation_id, version: head.version, follower, wanted })
    }
}

/// What a leader found for one partition.
pub(super) enum Found {
    Read(Read, Vec<u8>),
    Failed(ErrorCode, Option<(Offset, Offset)>),
}

/// The frame of the answer to a request.
pub(super) fn write_answer(request: &Request, found: &[Found]) -> Vec<u8> {
    let head =
        FetchResponseHead { throttle_time_ms: 0, error_code: ErrorCode::None, session_id: 0 };
    let mut writer = Writer::new();
    let mut write = || {
        let each: Vec<_> = request.wanted.iter().map(|(key, _)| *key).zip(found).collect();
        let topics = each.chunk_by(|(a, _), (b, _)| a.topic_id == b.topic_id);
        let (version, number, count) =
            (request.version, request.correlation_id, topics.clone().count());
        let mut responder = FetchResponder::begin(&mut writer, version, number, head, count)?;
        for topic in topics {
            responder.topic(Topic::Id(topic[0].0.topic_id), topic.len())?;
            for (key, found) in topic {
                let (said, records) = match found {
                    Found::Read(read, records) => {
                        (answering::found(key.partition, read), records.as_slice())
                    }
                    Found::Failed(code, range) => {
                        (answering::failed(key.partition, *code, *range), &[][..])
                    }
                };
                responder.partition(&said, Records::Copied(records))?;
            }
        }
        responder.end(&[])
    };
    write().expect("an answer of two partitions fits a frame");
    writer.into_bytes()
}

/// The answer to the request of this number, as the follower reads it.
pub(super) fn read_answer(frame: &[u8], number: u64) -> Result<Answers, String> {
    let frame = without_length(frame)?.to_vec();
    match fetching::decode(frame.into(), number) {
        Ok(fetching::Answered::Partitions { answers, .. }) => Ok(answers),
        Ok(fetching::Answered::SessionLost) => {
            Err("a session is lost, and none is kept".to_owned())
        }
        Err(error) => Err(error.to_string()),
    }
}

/// A frame behind its length, if that is the right one.
fn without_length(frame: &[u8]) -> Result<&[u8], String> {
    let (length, rest) = frame.split_first_chunk::<LENGTH_BYTES>().ok_or("an empty frame")?;
    match i32::from_be_bytes(*length) {
        length if usize::try_from(length) == Ok(rest.len()) => Ok(rest),
        length => Err(format!("a frame of {} bytes says that it has {length}", rest.len())),
    }
}
