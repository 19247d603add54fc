//! From the broker to the client: answers go through as bytes, but for those that bear addresses
//! or versions, and for those that fault injection changes.

use crate::counters::Counters;
use crate::endpoints::{Form, Step, Walk, hide_in_tail};
use crate::fault_injection::{FaultInjector, FaultRule, answer, fetch_answer};
use crate::frames::{Broken, frame_size};
use crate::link::{AfterDrop, ConnectionEnd, Expected, Fate, Link};
use crate::produced::TopicKey;
use crate::pump::Relay;
use crate::rewrite::{self, Addresses};
use bytes::{Bytes, BytesMut};
use model::Uuid;
use std::time::Instant;
use tokio::sync::Notify;
use wire::frame::{LENGTH_BYTES, read_response_head};
use wire::reader::DecodeError;
use wire::{ApiKey, Reader};

/// Answers with endpoints up to this size are held, and their endpoints rewritten. Larger ones are
/// sent on as they come, their length first, and their endpoints, should they have any, are hidden.
const HELD_ENDPOINTS_BYTES: usize = 256 * 1024;
/// The least that follows an answer's length: the correlation id.
const HEADER_BYTES_MIN: i32 = 4;

/// What is being done with the answer that bytes belong to.
#[derive(Debug)]
enum State {
    /// A frame begins here.
    Between,
    /// So many bytes go through.
    Passing(usize),
    /// So many bytes go nowhere.
    Skipping(usize),
    /// So many bytes, behind the frame's length, go through; the endpoints at their end are hidden.
    Walking(usize, Walk, Form),
    /// The next answer, of this size, is held until it is whole.
    Holding(usize, Expected),
    /// The client gets nothing more. True: the connection ends. False: it stays open.
    Ended(bool),
}

/// The answers of one connection.
pub struct Answers<'a> {
    link: &'a Link,
    counters: &'a Counters,
    addresses: &'a (dyn Addresses + Sync),
    faults: Option<&'a FaultInjector>,
    /// Address of the broker, `host:port`.
    upstream: &'a str,
    held_bytes_max: usize,
    state: State,
    /// API of the answer that arrives.
    api_key: i16,
    /// Answer that goes behind the next answer.
    postponed: Option<Bytes>,
    /// Answers that a fault holds back, and until when.
    delayed: Option<(Instant, Vec<Bytes>)>,
    /// Whether it ends with the last answer that is to come.
    is_closing: bool,
}

impl<'a> Answers<'a> {
    /// Answers to the requests that `link` tells of.
    pub fn new(
        link: &'a Link,
        counters: &'a Counters,
        addresses: &'a (dyn Addresses + Sync),
        held_bytes_max: usize,
    ) -> Answers<'a> {
        Answers {
            link,
            counters,
            addresses,
            faults: None,
            upstream: "",
            held_bytes_max,
            state: State::Between,
            api_key: -1,
            postponed: None,
            delayed: None,
            is_closing: false,
        }
    }

    /// The same answers, of the broker at `upstream`, with faults.
    pub fn with_faults(self, faults: Option<&'a FaultInjector>, upstream: &'a str) -> Answers<'a> {
        Answers { faults, upstream, ..self }
    }

    /// Sends the answers that no broker will.
    fn fabricate(&mut self, incoming: &mut BytesMut, at: &mut usize, out: &mut Vec<Bytes>) {
        while !matches!(self.state, State::Ended(_)) {
            let Some(next) = self.link.take_fabricated() else { return };
            match next.fate {
                Fate::Fabricated(answer) => {
                    flush(incoming, at, out);
                    self.counters.response(next.api_key, answer.len());
                    out.push(answer);
                }
                Fate::End(end) => {
                    if end == ConnectionEnd::Reset {
                        self.link.set_reset();
                    }
                    self.state = State::Ended(true);
                }
                _ => {}
            }
        }
    }

    /// Drops the answer that arrives, and all behind it.
    fn end_after(&mut self, after: AfterDrop) {
        let control = self.faults.and_then(FaultInjector::control);
        if let (AfterDrop::Kill, Some(control)) = (after, control) {
            control.kill(self.upstream);
        }
        self.state = State::Ended(after == AfterDrop::Close);
    }

    /// The answer with the change of a fault.
    fn changed(&self, frame: &[u8], expected: &Expected) -> Result<Option<Bytes>, Broken> {
        let Fate::Change(altered) = &expected.fate else { return Ok(None) };
        let Some(api) = ApiKey::from_code(expected.api_key) else { return Ok(None) };
        let concerned = |name: &str, id: Uuid, partition: Option<i32>| {
            self.is_concerned(&altered.rule, name, id, partition)
        };
        let (version, change) = (expected.version, altered.change);
        if altered.partitions.is_empty() {
            return answer::change(frame, api, version, change, &concerned).map(Some);
        }
        let completed = fetch_answer::complete_fetch(frame, version, &altered.partitions)?;
        answer::change(&completed, api, version, change, &concerned).map(Some)
    }

    /// Whether a rule matches a topic of an answer, which has a name or an id.
    fn is_concerned(&self, rule: &FaultRule, name: &str, id: Uuid, partition: Option<i32>) -> bool {
        let known = match (name, self.faults) {
            ("", Some(faults)) => faults.topics().resolve(TopicKey::Id(id)),
            _ => Some(name.to_owned()),
        };
        rule.matches_partition(known.as_deref(), partition)
    }

    /// Begins the answer at the front of `bytes`; false if more must come first.
    fn begin(&mut self, bytes: &[u8]) -> Result<bool, Broken> {
        let Some(size) = frame_size(bytes, HEADER_BYTES_MIN)? else { return Ok(false) };
        let Some(id) = bytes[LENGTH_BYTES..].first_chunk::<4>() else { return Ok(false) };
        let id = i32::from_be_bytes(*id);
        let expected = self.link.take().ok_or(Broken::Unasked(id))?;
        if expected.correlation_id != id {
            return Err(Broken::Unasked(id));
        }
        self.counters.response(expected.api_key, size);
        self.api_key = expected.api_key;
        if let Fate::Drop(after) = expected.fate {
            self.end_after(after);
            return Ok(true);
        }
        self.state = self.state_for(size, expected)?;
        Ok(true)
    }

    fn state_for(&self, size: usize, expected: Expected) -> Result<State, Broken> {
        let form = Form::of(expected.api_key, expected.version);
        let whole = rewrite::needs_whole(expected.api_key)
            || expected.produced.is_some()
            || matches!(expected.fate, Fate::Postpone | Fate::Delay(_) | Fate::Change(..))
            || self.postponed.is_some();
        match (expected.fate, form) {
            (Fate::Swallow, _) => Ok(State::Skipping(size)),
            _ if whole && size > self.held_bytes_max => Err(Broken::TooLarge(size)),
            (fate, form) if whole || (form.is_some() && size <= HELD_ENDPOINTS_BYTES) => {
                Ok(State::Holding(size, Expected { fate, ..expected }))
            }
            (_, Some(form)) => {
                let walk = Walk::new(form, expected.version);
                Ok(State::Walking(size - LENGTH_BYTES, walk, form))
            }
            _ => Ok(State::Passing(size)),
        }
    }

    /// Takes an answer that is there as a whole.
    fn finish(
        &mut self,
        answer: BytesMut,
        expected: Expected,
        out: &mut Vec<Bytes>,
    ) -> Result<(), Broken> {
        if let (Some(faults), Some(produced)) = (self.faults, &expected.produced) {
            let mut reader = Reader::new(&answer[LENGTH_BYTES..]);
            read_response_head(&mut reader, ApiKey::Produce, expected.version)?;
            faults.offsets().learn(produced, expected.version, &mut reader);
        }
        let changed = self.changed(&answer, &expected)?;
        let answer = changed.map_or(answer, BytesMut::from);
        let Expected { api_key, version, fate, .. } = expected;
        let answer = rewrite::rewrite(answer, api_key, version, self.addresses)?;
        if matches!(fate, Fate::Postpone) {
            self.postponed = Some(answer);
            return Ok(());
        }
        let answers = [answer].into_iter().chain(self.postponed.take());
        match fate {
            Fate::Delay(delay) => self.delayed = Some((Instant::now() + delay, answers.collect())),
            _ => out.extend(answers),
        }
        Ok(())
    }

    /// Goes on with the answer that has begun. Returns whether there is more to do; bytes before
    /// `at` may go.
    fn go_on(
        &mut self,
        incoming: &mut BytesMut,
        at: &mut usize,
        out: &mut Vec<Bytes>,
    ) -> Result<bool, Broken> {
        let there = incoming.len() - *at;
        match std::mem::replace(&mut self.state, State::Between) {
            State::Between => {
                let begun = self.begin(&incoming[*at..])?;
                if matches!(self.state, State::Walking(..)) {
                    *at += LENGTH_BYTES;
                }
                Ok(begun)
            }
            State::Passing(left) => {
                *at += left.min(there);
                if left > there {
                    self.state = State::Passing(left - there);
                }
                Ok(left <= there)
            }
            State::Skipping(left) => {
                flush(incoming, at, out);
                drop(incoming.split_to(left.min(there)));
                if left > there {
                    self.state = State::Skipping(left - there);
                }
                Ok(left <= there)
            }
            State::Holding(size, expected) if there < size => {
                self.state = State::Holding(size, expected);
                Ok(false)
            }
            State::Holding(size, expected) => {
                flush(incoming, at, out);
                let answer = incoming.split_to(size);
                self.finish(answer, expected, out)?;
                Ok(true)
            }
            State::Walking(left, walk, form) => self.walk(incoming, at, left, walk, form),
            State::Ended(closes) => {
                flush(incoming, at, out);
                incoming.clear();
                self.state = State::Ended(closes);
                Ok(false)
            }
        }
    }

    /// Goes on over a large answer with endpoints at its end. The walk begins behind the length.
    fn walk(
        &mut self,
        incoming: &mut BytesMut,
        at: &mut usize,
        left: usize,
        mut walk: Walk,
        form: Form,
    ) -> Result<bool, Broken> {
        let there = left.min(incoming.len() - *at);
        let step = walk.step(&incoming[*at..*at + there])?;
        match step {
            Step::Pass(passed) => {
                *at += passed;
                self.state = State::Walking(left - passed, walk, form);
                Ok(true)
            }
            Step::Tail if there == left => {
                hide_in_tail(&mut incoming[*at..*at + left], form)?;
                *at += left;
                Ok(true)
            }
            Step::More | Step::Tail if there == left => {
                Err(DecodeError::Truncated { needed: 1, remaining: 0 }.into())
            }
            Step::More | Step::Tail if there > self.held_bytes_max => Err(Broken::TooLarge(there)),
            Step::More | Step::Tail => {
                self.state = State::Walking(left, walk, form);
                Ok(false)
            }
        }
    }
}

/// Whether a broker holds memory for answers of this API until they are read. It sends records from its files.
fn is_held_by_broker(api_key: i16) -> bool {
    let api = ApiKey::from_code(api_key);
    api.is_some_and(|api| !matches!(api, ApiKey::Produce | ApiKey::Fetch))
}

/// Lets the bytes in front of `at` go.
fn flush(incoming: &mut BytesMut, at: &mut usize, out: &mut Vec<Bytes>) {
    if *at > 0 {
        out.push(incoming.split_to(std::mem::take(at)).freeze());
    }
}

impl Relay for Answers<'_> {
    fn relay(&mut self, incoming: &mut BytesMut, out: &mut Vec<Bytes>) -> Result<(), Broken> {
        let mut at = 0;
        while self.delayed.is_none() {
            if matches!(self.state, State::Between) {
                self.fabricate(incoming, &mut at, out);
            }
            if !self.go_on(incoming, &mut at, out)? {
                break;
            }
        }
        flush(incoming, &mut at, out);
        Ok(())
    }

    fn relieves_source(&self) -> bool {
        match self.state {
            State::Between => self.link.next_api().is_some_and(is_held_by_broker),
            State::Ended(_) => false,
            _ => is_held_by_broker(self.api_key),
        }
    }

    fn bell(&self) -> &Notify {
        &self.link.fabricated
    }

    fn has_room(&self) -> bool {
        self.delayed.is_none()
    }

    fn kept_bytes(&self) -> usize {
        let delayed = self.delayed.iter().flat_map(|(_, answers)| answers);
        self.postponed.iter().chain(delayed).map(|answer| 2 * answer.len()).sum()
    }

    fn deadline(&self) -> Option<Instant> {
        self.delayed.as_ref().map(|(until, _)| *until)
    }

    fn tick(&mut self, now: Instant, out: &mut Vec<Bytes>) -> Result<(), Broken> {
        if self.deadline().is_some_and(|until| until <= now) {
            out.extend(self.delayed.take().into_iter().flat_map(|(_, answers)| answers));
            // Answers behind it may have been read already.
            self.link.fabricated.notify_one();
        }
        Ok(())
    }

    fn held_frame_bytes(&self) -> usize {
        match &self.state {
            State::Holding(size, _) => *size,
            _ => 0,
        }
    }

    fn close(&mut self) {
        self.is_closing = true;
    }

    fn is_closed(&self) -> bool {
        match self.state {
            State::Ended(closes) => closes || self.is_closing,
            State::Between => self.is_closing && self.link.is_idle() && self.delayed.is_none(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::SHARE_FETCH;
    use crate::testing::{ById, share_fetch};
    use wire::fetch::{FetchableTopicResponse, NodeEndpoint, PartitionData};
    use wire::frame::write_response;
    use wire::metadata::MetadataResponseBroker;
    use wire::{FetchResponse, Message, MetadataResponse, Writer};

    fn expected(api_key: i16, version: i16, correlation_id: i32, fate: Fate) -> Expected {
        Expected { api_key, version, correlation_id, fate, produced: None, _in_flight: None }
    }

    fn answer<M: Message>(message: &M, api: ApiKey, version: i16, id: i32) -> Vec<u8> {
        let mut writer = Writer::new();
        write_response(&mut writer, message, api, version, id).unwrap();
        writer.into_bytes()
    }

    /// What comes out when `bytes` come in pieces of a size.
    fn carried(link: &Link, bytes: &[u8], piece: usize) -> Result<Vec<u8>, Broken> {
        let counters = Counters::default();
        let mut answers = Answers::new(link, &counters, &ById, 1 << 20);
        let (mut incoming, mut out) = (BytesMut::new(), Vec::new());
        for piece in bytes.chunks(piece) {
            incoming.extend_from_slice(piece);
            answers.relay(&mut incoming, &mut out)?;
        }
        Ok(out.concat())
    }

    fn metadata() -> MetadataResponse {
        let broker =
            MetadataResponseBroker { node_id: 4, host: "b".to_owned(), port: 9, rack: None };
        MetadataResponse { brokers: vec![broker], ..MetadataResponse::default() }
    }

    fn fetch(records: usize) -> FetchResponse {
        let partition = PartitionData {
            error_code: 6,
            records: Some(vec![7; records].into()),
            ..PartitionData::default()
        };
        let endpoint = NodeEndpoint { node_id: 4, host: "b".to_owned(), port: 9, rack: None };
        FetchResponse {
            responses: vec![FetchableTopicResponse {
                partitions: vec![partition.clone(), partition],
                ..FetchableTopicResponse::default()
            }],
            node_endpoints: vec![endpoint],
            ..FetchResponse::default()
        }
    }

    fn decoded<M: Message>(frame: &[u8], api: ApiKey, version: i16) -> M {
        let size = i32::from_be_bytes(frame[..4].try_into().unwrap());
        assert_eq!(size as usize, frame.len() - 4);
        let mut reader = Reader::new(&frame[4..]);
        read_response_head(&mut reader, api, version).unwrap();
        let message = M::decode(&mut reader, version).unwrap();
        reader.finish().unwrap();
        message
    }

    #[test]
    fn metadata_of_every_version_names_the_proxy() {
        for version in 0..=13 {
            for piece in [1, 5, 1000] {
                let link = Link::default();
                link.expect(expected(ApiKey::Metadata.code(), version, 7, Fate::Forward));
                let bytes = answer(&metadata(), ApiKey::Metadata, version, 7);
                let out = carried(&link, &bytes, piece).unwrap();
                let broker =
                    &decoded::<MetadataResponse>(&out, ApiKey::Metadata, version).brokers[0];
                assert_eq!((broker.host.as_str(), broker.port), ("proxy", 1004));
            }
        }
    }

    #[test]
    fn a_small_fetch_names_the_proxy_and_a_large_one_names_nobody() {
        for version in 16..=18 {
            for (records, piece) in [(10, 1), (10, 100), (300_000, 1000), (300_000, 4_000_000)] {
                let link = Link::default();
                link.expect(expected(1, version, 7, Fate::Forward));
                let bytes = answer(&fetch(records), ApiKey::Fetch, version, 7);
                let out = carried(&link, &bytes, piece).unwrap();
                let mut is: FetchResponse = decoded(&out, ApiKey::Fetch, version);
                let endpoints: Vec<_> =
                    is.node_endpoints.iter().map(|e| (e.host.as_str(), e.port)).collect();
                match records {
                    10 => assert_eq!(endpoints, [("proxy", 1004)]),
                    _ => assert!(endpoints.is_empty() && out.len() == bytes.len()),
                }
                is.node_endpoints = fetch(0).node_endpoints;
                assert_eq!(is, fetch(records));
            }
        }
    }

    #[test]
    fn it_is_closed_when_the_last_answer_that_was_asked_for_has_gone_on() {
        let link = Link::default();
        let counters = Counters::default();
        let mut answers = Answers::new(&link, &counters, &ById, 1 << 20);
        link.expect(expected(99, 0, 8, Fate::Forward));
        assert!(!answers.is_closed(), "it was not told to");
        answers.close();
        assert!(!answers.is_closed(), "an answer is to come");
        let (mut incoming, mut out) = (BytesMut::new(), Vec::new());
        incoming.extend_from_slice(&[0, 0, 0, 6, 0, 0, 0, 8, 1]);
        answers.relay(&mut incoming, &mut out).unwrap();
        assert!(!answers.is_closed(), "a byte is missing");
        incoming.extend_from_slice(&[2]);
        answers.relay(&mut incoming, &mut out).unwrap();
        assert!(answers.is_closed());
    }

    #[test]
    fn older_fetches_and_unknown_apis_pass_untouched() {
        let old = FetchResponse { node_endpoints: Vec::new(), ..fetch(1000) };
        let mut bytes = answer(&old, ApiKey::Fetch, 4, 7);
        bytes.extend([0, 0, 0, 6, 0, 0, 0, 8, 1, 2]);
        for piece in [1, 11, 5000] {
            let link = Link::default();
            link.expect(expected(1, 4, 7, Fate::Forward));
            link.expect(expected(99, 0, 8, Fate::Forward));
            assert_eq!(carried(&link, &bytes, piece).unwrap(), bytes);
        }
    }

    #[test]
    fn a_large_share_fetch_goes_on_without_endpoints() {
        let message = share_fetch(&vec![3; 400_000], 2);
        let mut bytes = (message.len() as i32).to_be_bytes().to_vec();
        bytes.extend(&message);
        for piece in [999, 1 << 20] {
            let link = Link::default();
            link.expect(expected(SHARE_FETCH, 1, 7, Fate::Forward));
            let out = carried(&link, &bytes, piece).unwrap();
            assert_eq!(out.len(), bytes.len());
            assert!(!out.windows(6).any(|window| window == b"broker"));
        }
    }

    #[test]
    fn swallowed_postponed_and_fabricated_answers_keep_the_clients_order() {
        let frame = |id: i32| answer(&metadata(), ApiKey::Metadata, 0, id);
        for piece in [1, 1000] {
            let link = Link::default();
            let fabricated = Fate::Fabricated(Bytes::from_static(b"made"));
            link.expect(expected(99, 0, 1, Fate::Forward));
            link.expect(expected(99, 0, 1, Fate::Swallow));
            link.expect(expected(99, 0, 3, Fate::Postpone));
            link.expect(expected(99, 0, 2, Fate::Forward));
            link.expect(expected(99, 0, 4, fabricated));
            let out = carried(&link, &[frame(1), frame(1), frame(3), frame(2)].concat(), piece);
            let wanted = [frame(1), frame(2), frame(3), b"made".to_vec()];
            assert_eq!(out.unwrap(), wanted.concat());
        }
    }

    #[test]
    fn answers_that_nobody_asked_for_break_the_connection() {
        let bytes = answer(&metadata(), ApiKey::Metadata, 0, 7);
        assert!(matches!(carried(&Link::default(), &bytes, 100), Err(Broken::Unasked(7))));
        let link = Link::default();
        link.expect(expected(3, 0, 8, Fate::Forward));
        assert!(matches!(carried(&link, &bytes, 100), Err(Broken::Unasked(7))));
        assert!(matches!(carried(&link, &[0xff; 4], 100), Err(Broken::Length(-1))));
    }

    #[test]
    fn an_answer_of_garbage_breaks_the_connection() {
        for api in [ApiKey::Metadata, ApiKey::Fetch, ApiKey::ApiVersions] {
            let link = Link::default();
            link.expect(expected(api.code(), api.max_version(), 7, Fate::Forward));
            let garbage = [0, 0, 0, 9, 0, 0, 0, 7, 0, 0xff, 0xff, 0xff, 0xff];
            assert!(matches!(carried(&link, &garbage, 100), Err(Broken::Decode(_))), "{api}");
        }
    }

    #[test]
    fn answers_of_any_bytes_are_carried_or_refused() {
        let mut random = fastrand::Rng::with_seed(12);
        let apis = [0, 1, 3, 10, 18, 60, SHARE_FETCH, crate::frames::SHARE_ACKNOWLEDGE];
        let whole = [
            answer(&fetch(10), ApiKey::Fetch, 16, 7),
            answer(&metadata(), ApiKey::Metadata, 12, 7),
            [&(share_fetch(b"r", 2).len() as i32).to_be_bytes()[..], &share_fetch(b"r", 2)]
                .concat(),
        ];
        for _ in 0..5000 {
            let api = apis[random.usize(..apis.len())];
            let max = crate::frames::version_max(api).unwrap();
            let link = Link::default();
            link.expect(expected(api, random.i16(..=max).max(0), 7, Fate::Forward));
            let mut bytes = whole[random.usize(..whole.len())].clone();
            for _ in 0..random.usize(..4) {
                let at = random.usize(8..bytes.len());
                bytes[at] = random.u8(..);
            }
            let _ = carried(&link, &bytes, random.usize(1..50));
        }
    }
}
