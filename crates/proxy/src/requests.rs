//! From the client to the broker: requests go through as bytes, and it is noted which answers are
//! to come. Requests that a fault rule may concern are held until they are whole.

use crate::counters::Counters;
use crate::fault_injection::answer::{self, AnswerChange};
use crate::fault_injection::facts::RequestFacts;
use crate::fault_injection::fetch_session::FetchSession;
use crate::fault_injection::{
    FaultAction, FaultDecision, FaultEvent, FaultInjector, FaultRule, fetch_answer, record_damage,
};
use crate::frames::{Broken, RequestFront, request_front, version_max};
use crate::link::{AfterDrop, AnswerAlteration, ConnectionEnd, Expected, Fate, Link};
use crate::pause::RequestGate;
use crate::produced::{Produced, TopicKey};
use crate::pump::{Owed, Relay};
use crate::rewrite::unsupported_api_versions;
use bytes::{Bytes, BytesMut};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use wire::ApiKey;
use wire::frame::{LENGTH_BYTES, RequestHead};

/// How long a request waits for one that may overtake it.
const OVERTAKING_MAX: Duration = Duration::from_millis(100);

/// Bytes of a request for versions that is answered here, whoever asks: it bears two names, and is held until it is whole.
const VAIN_BYTES_MAX: usize = 64 * 1024;

/// A request that is there as a whole.
struct WholeRequest {
    front: RequestFront,
    frame: BytesMut,
    /// Set for a produce request that can be decoded.
    produced: Option<Produced>,
}

/// A produce request that waits for another to overtake it.
struct Held {
    request: WholeRequest,
    until: Instant,
}

/// Fault injection on the requests of one connection.
struct ConnectionFaults<'a> {
    injector: &'a FaultInjector,
    session: FetchSession,
    /// `reorder` of an earlier request: the next produce requests that allow it change places.
    reorder_owed: Option<FaultEvent>,
    /// `damage` of an earlier request: the proxy damages the next produce request that allows it.
    damage_owed: Option<FaultEvent>,
}

impl<'a> ConnectionFaults<'a> {
    fn new(injector: &'a FaultInjector) -> ConnectionFaults<'a> {
        let session = FetchSession::default();
        ConnectionFaults { injector, session, reorder_owed: None, damage_owed: None }
    }

    /// Rules match these facts; `None` for a request without a valid header.
    fn facts(&mut self, request: &WholeRequest) -> Option<RequestFacts> {
        let head = RequestHead::parse(&request.frame[LENGTH_BYTES..]).ok()?;
        let (session, names) = (&mut self.session, self.injector.topics());
        let is_concerned = self.injector.concerns(request.front.api_key);
        let (frame, produced) = (&request.frame, request.produced.as_ref());
        Some(RequestFacts::read(frame, &head, produced, session, names, is_concerned))
    }

    /// The fault of a request, if a rule decides one.
    fn judge(&self, facts: &RequestFacts) -> Option<FaultDecision> {
        let decision = self.injector.decide(facts)?;
        tracing::debug!(
            rule = decision.event.rule,
            action = decision.event.action,
            api = decision.event.api,
            client_id = decision.event.client_id,
            "fault injected"
        );
        Some(decision)
    }

    /// Drops owed faults whose rule is set no more.
    fn drop_debts_of_removed_rules(&mut self) {
        for debt in [&mut self.reorder_owed, &mut self.damage_owed] {
            if debt.as_ref().is_some_and(|event| !self.injector.has_rule_of(event)) {
                *debt = None;
            }
        }
    }

    /// Whether rules need the partitions of a fetch request that names only changes of an unknown session.
    fn needs_new_session(&self, front: &RequestFront) -> bool {
        front.api_key == ApiKey::Fetch.code()
            && self.session.is_unknown()
            && self.injector.concerns(front.api_key)
    }

    /// Partitions of the rule that the broker may leave out of the answer to the last request, a fetch request.
    fn unnamed(&self, rule: &FaultRule) -> Vec<(TopicKey, i32)> {
        let is_matching = |(topic, partition): &&(TopicKey, i32)| {
            let name = self.injector.topics().resolve(topic.clone());
            rule.matches_partition(name.as_deref(), Some(*partition))
        };
        self.session.unnamed().filter(is_matching).cloned().collect()
    }
}

/// The requests of one connection.
pub struct Requests<'a> {
    link: &'a Link,
    counters: &'a Counters,
    held_bytes_max: usize,
    faults: Option<ConnectionFaults<'a>>,
    /// Closed during a pause; `None` if this proxy cannot pause.
    gate: Option<&'a Arc<RequestGate>>,
    /// Address of the broker, `host:port`.
    upstream: &'a str,
    /// Bytes of a frame that still go through without being looked at.
    passing: usize,
    /// Whether a request has come.
    has_begun: bool,
    /// Size of the frame that must be whole before it goes on; 0 if there is none.
    held_frame_bytes: usize,
    /// Whether no further frame begins.
    is_closing: bool,
    /// Whether a fault ends the connection: further requests are dropped.
    is_cut: bool,
    /// What waits for another to overtake it.
    held: Option<Held>,
    /// A request that a fault delays, and until when. Nothing goes on before it.
    delayed: Option<Held>,
}

impl<'a> Requests<'a> {
    /// Requests that put what they expect into `link`.
    pub fn new(link: &'a Link, counters: &'a Counters, held_bytes_max: usize) -> Requests<'a> {
        Requests {
            link,
            counters,
            held_bytes_max,
            faults: None,
            gate: None,
            upstream: "",
            passing: 0,
            has_begun: false,
            held_frame_bytes: 0,
            is_closing: false,
            is_cut: false,
            held: None,
            delayed: None,
        }
    }

    /// The same requests, to the broker at `upstream`, with faults.
    pub fn with_faults(self, faults: Option<&'a FaultInjector>, upstream: &'a str) -> Requests<'a> {
        Requests { faults: faults.map(ConnectionFaults::new), upstream, ..self }
    }

    /// The same requests, none of which begins while the gate is closed.
    pub fn behind(self, gate: Option<&'a Arc<RequestGate>>) -> Requests<'a> {
        Requests { gate, ..self }
    }

    /// Whether a pause holds requests back.
    fn is_paused(&self) -> bool {
        self.gate.is_some_and(|gate| *gate.is_closed())
    }

    fn expect(&self, front: &RequestFront, fate: Fate, produced: Option<Produced>) {
        let learns = self.faults.as_ref().is_some_and(|faults| faults.injector.learns_offsets());
        if front.answered {
            let gate = self.gate.filter(|_| !fate.needs_no_broker());
            self.link.expect(Expected {
                _in_flight: gate.and_then(|gate| gate.enter(front.api_key)),
                api_key: front.api_key,
                version: front.version,
                correlation_id: front.correlation_id,
                fate,
                produced: produced.filter(|_| learns),
            });
        }
    }

    /// Refuses what was not offered and cannot be carried.
    fn check(front: &RequestFront) -> Result<(), Broken> {
        let too_new = version_max(front.api_key).is_some_and(|max| front.version > max);
        let raw_sasl = front.api_key == ApiKey::SaslHandshake.code() && front.version == 0;
        if too_new || raw_sasl {
            return Err(Broken::Version { api_key: front.api_key, version: front.version });
        }
        Ok(())
    }

    /// Carries out the fault of a request that is there as a whole, if it gets one.
    fn judge(&mut self, front: RequestFront, frame: BytesMut, out: &mut Vec<Bytes>) {
        let is_produce = front.api_key == ApiKey::Produce.code();
        let produced = if is_produce { Produced::parse(&frame) } else { None };
        let request = WholeRequest { front, frame, produced };
        if request.produced.is_none() {
            self.release(out);
        }
        let Some(faults) = &mut self.faults else { return self.forward(request, out) };
        if let Some(first) = self.held.take() {
            if let Some(facts) = faults.facts(&request) {
                faults.injector.count(&facts);
            }
            return self.overtake(first, request, out);
        }
        if is_produce && request.produced.is_none() {
            return self.forward(request, out);
        }
        let Some(facts) = faults.facts(&request) else { return self.forward(request, out) };
        if faults.needs_new_session(&request.front) {
            return self.refuse_session(request, out);
        }
        if is_produce {
            faults.drop_debts_of_removed_rules();
        }
        match faults.judge(&facts) {
            Some(decision) => self.inject(decision, request, out),
            None if is_produce && faults.reorder_owed.is_some() => self.hold(request),
            None if is_produce && faults.damage_owed.is_some() => self.damage(request, out),
            None => self.forward(request, out),
        }
    }

    fn inject(&mut self, decision: FaultDecision, request: WholeRequest, out: &mut Vec<Bytes>) {
        match decision.action {
            FaultAction::Delay { ms } => {
                let until = Instant::now() + Duration::from_millis(ms);
                self.delayed = Some(Held { request, until });
            }
            FaultAction::DelayAnswer { ms } => {
                self.forward_with(Fate::Delay(Duration::from_millis(ms)), request, out);
            }
            FaultAction::DropAnswer => self.drop_answer(AfterDrop::Close, request, out),
            FaultAction::WithholdAnswer => self.drop_answer(AfterDrop::Silence, request, out),
            FaultAction::Kill => self.drop_answer(AfterDrop::Kill, request, out),
            FaultAction::Close => self.cut(ConnectionEnd::Close, &request),
            FaultAction::Reset => self.cut(ConnectionEnd::Reset, &request),
            FaultAction::MoveLeader => {
                if let Some(control) = self.faults.as_ref().and_then(|it| it.injector.control()) {
                    control.restart(self.upstream);
                }
                self.cut(ConnectionEnd::Close, &request);
            }
            FaultAction::Error { code, after_effect } => {
                // Only a broker's answer has the addresses of the brokers.
                let is_metadata = request.front.api_key == ApiKey::Metadata.code();
                match after_effect || is_metadata {
                    true => self.change(AnswerChange::Code(code.0), *decision.rule, request, out),
                    false => self.refuse(code.0, request, out),
                }
            }
            FaultAction::Throttle { ms } => {
                let ms = i32::try_from(ms).unwrap_or(i32::MAX);
                self.change(AnswerChange::Throttle(ms), *decision.rule, request, out);
            }
            FaultAction::Duplicate => self.duplicate(request, out),
            FaultAction::Lose => self.lose(request),
            FaultAction::Reorder => {
                if let Some(faults) = &mut self.faults {
                    faults.reorder_owed = Some(decision.event);
                }
                self.hold(request);
            }
            FaultAction::Damage => {
                if let Some(faults) = &mut self.faults {
                    faults.damage_owed = Some(decision.event);
                }
                self.damage(request, out);
            }
        }
    }

    fn forward(&mut self, request: WholeRequest, out: &mut Vec<Bytes>) {
        self.forward_with(Fate::Forward, request, out);
    }

    fn forward_with(&mut self, fate: Fate, request: WholeRequest, out: &mut Vec<Bytes>) {
        self.expect(&request.front, fate, request.produced);
        out.push(request.frame.freeze());
    }

    /// Forwards a request whose answer the client does not get. A request without an answer goes unchanged.
    fn drop_answer(&mut self, after: AfterDrop, request: WholeRequest, out: &mut Vec<Bytes>) {
        self.is_cut = request.front.answered;
        self.forward_with(Fate::Drop(after), request, out);
    }

    /// Ends the connection behind the answers to earlier requests.
    fn cut(&mut self, end: ConnectionEnd, request: &WholeRequest) {
        self.is_cut = true;
        let front = RequestFront { answered: true, ..request.front };
        self.expect(&front, Fate::End(end), None);
    }

    fn change(
        &mut self,
        change: AnswerChange,
        rule: FaultRule,
        request: WholeRequest,
        out: &mut Vec<Bytes>,
    ) {
        let is_fetch_error = request.front.api_key == ApiKey::Fetch.code()
            && matches!(change, AnswerChange::Code(_));
        let partitions = match &self.faults {
            Some(faults) if is_fetch_error => faults.unnamed(&rule),
            _ => Vec::new(),
        };
        let altered = AnswerAlteration { change, rule, partitions };
        self.forward_with(Fate::Change(Box::new(altered)), request, out);
    }

    /// Makes the client start a fetch session with a request that names all its partitions.
    fn refuse_session(&mut self, request: WholeRequest, out: &mut Vec<Bytes>) {
        let head = RequestHead::parse(&request.frame[LENGTH_BYTES..]).ok();
        match head.and_then(|head| fetch_answer::refuse_session(&head)) {
            Some(refusal) => self.expect(&request.front, Fate::Fabricated(refusal), None),
            None => self.forward(request, out),
        }
    }

    /// Answers with an error in the broker's place. A request that cannot be answered here goes unchanged.
    fn refuse(&mut self, code: model::ErrorCode, request: WholeRequest, out: &mut Vec<Bytes>) {
        let head = RequestHead::parse(&request.frame[LENGTH_BYTES..]).ok();
        let session = self.faults.as_ref().map(|faults| &faults.session);
        let refusal = head
            .zip(session)
            .and_then(|(head, session)| answer::refuse(&request.frame, &head, code, session));
        match refusal {
            Some(refusal) => self.expect(&request.front, Fate::Fabricated(refusal), None),
            None => self.forward(request, out),
        }
    }

    fn lose(&mut self, request: WholeRequest) {
        let (Some(faults), Some(produced)) = (&self.faults, request.produced) else { return };
        let front = request.front;
        let offsets = faults.injector.offsets();
        let acknowledged = produced.acknowledge(front.version, front.correlation_id, &offsets);
        drop(offsets);
        // It was parsed in this version, so it can be answered in it.
        let Ok(answer) = acknowledged else { return };
        let mut count = faults.injector.count_records();
        count.lost_requests += 1;
        count.lost_records += produced.record_count();
        drop(count);
        self.expect(&front, Fate::Fabricated(answer.into()), None);
    }

    fn duplicate(&mut self, request: WholeRequest, out: &mut Vec<Bytes>) {
        if let (Some(faults), Some(produced)) = (&self.faults, &request.produced) {
            let mut count = faults.injector.count_records();
            count.duplicated_requests += 1;
            count.duplicated_records += produced.record_count();
        }
        let frame = request.frame.freeze();
        self.expect(&request.front, Fate::Forward, request.produced);
        self.expect(&request.front, Fate::Swallow, None);
        out.extend([frame.clone(), frame]);
    }

    fn damage(&mut self, mut request: WholeRequest, out: &mut Vec<Bytes>) {
        if let (Some(faults), Some(produced)) = (&mut self.faults, &request.produced) {
            let done = record_damage::damage(&mut request.frame, produced);
            if done {
                faults.damage_owed = None;
            }
            faults.injector.count_records().damaged_records += u64::from(done);
        }
        self.forward(request, out);
    }

    /// Sends the second request before the first, if they write to a common partition.
    fn overtake(&mut self, first: Held, second: WholeRequest, out: &mut Vec<Bytes>) {
        let first = first.request;
        let shares = match (&first.produced, &second.produced) {
            (Some(first), Some(second)) => first.shares_partition_with(second),
            _ => false,
        };
        if !shares {
            self.forward(first, out);
            if let Some(faults) = &mut self.faults {
                faults.drop_debts_of_removed_rules();
                if faults.reorder_owed.is_none() {
                    return self.forward(second, out);
                }
            }
            // The second waits in the place of the first.
            return self.hold(second);
        }
        if let Some(faults) = &mut self.faults {
            faults.reorder_owed = None;
            faults.injector.count_records().reordered_pairs += 1;
        }
        let fate = if first.front.answered { Fate::Postpone } else { Fate::Forward };
        self.forward_with(fate, second, out);
        self.forward(first, out);
    }

    fn hold(&mut self, request: WholeRequest) {
        self.held = Some(Held { request, until: Instant::now() + OVERTAKING_MAX });
    }

    /// Lets what is held go as it is.
    fn release(&mut self, out: &mut Vec<Bytes>) {
        if let Some(held) = self.held.take() {
            self.forward(held.request, out);
        }
    }

    /// Whether a request is held until it is whole.
    fn is_judged(&self, front: &RequestFront) -> bool {
        // Rules that are set later match the partitions of fetch sessions that have started by then.
        let is_fetch = front.api_key == ApiKey::Fetch.code();
        let concerns = |it: &ConnectionFaults<'_>| is_fetch || it.injector.concerns(front.api_key);
        self.faults.as_ref().is_some_and(concerns)
    }

    /// Takes a request of which only the front need be there. Returns how many bytes of it may
    /// pass from `at` on; `None` if more must come first.
    fn begin(
        &mut self,
        incoming: &mut BytesMut,
        at: &mut usize,
        out: &mut Vec<Bytes>,
    ) -> Result<Option<usize>, Broken> {
        let Some(front) = request_front(&incoming[*at..])? else { return Ok(None) };
        self.has_begun = true;
        self.held_frame_bytes = 0;
        let judged = self.is_judged(&front);
        let asks_in_vain = front.api_key == ApiKey::ApiVersions.code()
            && front.version > ApiKey::ApiVersions.max_version();
        if !judged && !asks_in_vain {
            Self::check(&front)?;
            if self.held.is_some() {
                flush(incoming, at, out);
                self.release(out);
            }
            self.counters.request(front.api_key, front.size_bytes);
            self.expect(&front, Fate::Forward, None);
            return Ok(Some(front.size_bytes));
        }
        let held_bytes_max = if asks_in_vain { VAIN_BYTES_MAX } else { self.held_bytes_max };
        if front.size_bytes > held_bytes_max {
            return Err(Broken::TooLarge(front.size_bytes));
        }
        if incoming.len() - *at < front.size_bytes {
            self.held_frame_bytes = front.size_bytes;
            return Ok(None);
        }
        flush(incoming, at, out);
        let frame = incoming.split_to(front.size_bytes);
        self.counters.request(front.api_key, front.size_bytes);
        if asks_in_vain {
            self.release(out);
            let answer = unsupported_api_versions(front.correlation_id);
            self.expect(&front, Fate::Fabricated(answer), None);
        } else {
            Self::check(&front)?;
            self.judge(front, frame, out);
        }
        Ok(Some(0))
    }
}

/// Lets the bytes in front of `at` go.
fn flush(incoming: &mut BytesMut, at: &mut usize, out: &mut Vec<Bytes>) {
    if *at > 0 {
        out.push(incoming.split_to(std::mem::take(at)).freeze());
    }
}

impl Relay for Requests<'_> {
    fn relay(&mut self, incoming: &mut BytesMut, out: &mut Vec<Bytes>) -> Result<(), Broken> {
        let mut at = 0;
        // Held to the end: what begins here is in flight before a pause begins.
        let paused = self.gate.map(|gate| gate.is_closed());
        let is_paused = paused.as_ref().is_some_and(|is_closed| **is_closed);
        while self.delayed.is_none() {
            if self.is_cut {
                flush(incoming, &mut at, out);
                incoming.clear();
                break;
            }
            let passed = self.passing.min(incoming.len() - at);
            self.passing -= passed;
            at += passed;
            if self.passing > 0 || self.is_closing || is_paused {
                break;
            }
            match self.begin(incoming, &mut at, out)? {
                Some(size) => self.passing = size,
                None => break,
            }
        }
        flush(incoming, &mut at, out);
        Ok(())
    }

    fn has_room(&self) -> bool {
        // The rest of a request that has begun is read during a pause, too.
        let is_held_back = self.passing == 0 && self.is_paused();
        self.link.has_room() && self.delayed.is_none() && !is_held_back
    }

    fn is_paused(&self) -> bool {
        Requests::is_paused(self)
    }

    fn bell(&self) -> &Notify {
        &self.link.room
    }

    fn kept_bytes(&self) -> usize {
        let waiting = self.held.iter().chain(&self.delayed);
        let session = self.faults.as_ref().map_or(0, |faults| faults.session.kept_bytes());
        let waiting: usize = waiting.map(|held| 2 * held.request.frame.len()).sum();
        self.link.kept_bytes() + session + waiting
    }

    fn held_frame_bytes(&self) -> usize {
        self.held_frame_bytes
    }

    fn owes(&self, incoming: &BytesMut) -> Owed {
        match self.has_begun {
            false => Owed::First,
            true if self.passing > 0 || !incoming.is_empty() => Owed::Rest,
            true => Owed::Nothing,
        }
    }

    fn close(&mut self) {
        self.is_closing = true;
    }

    fn is_closed(&self) -> bool {
        self.is_closing && self.passing == 0 && self.held.is_none() && self.delayed.is_none()
    }

    fn deadline(&self) -> Option<Instant> {
        if self.is_paused() {
            return None;
        }
        self.held.iter().chain(&self.delayed).map(|held| held.until).min()
    }

    fn tick(&mut self, now: Instant, out: &mut Vec<Bytes>) -> Result<(), Broken> {
        let paused = self.gate.map(|gate| gate.is_closed());
        if paused.as_ref().is_some_and(|is_closed| **is_closed) {
            return Ok(());
        }
        let is_due = |held: &Option<Held>| held.as_ref().is_some_and(|held| held.until <= now);
        if is_due(&self.held) {
            self.release(out);
        }
        if is_due(&self.delayed)
            && let Some(delayed) = self.delayed.take()
        {
            self.forward(delayed.request, out);
            // Requests behind it may have been read already.
            self.link.room.notify_one();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault_injection::testing::rule;
    use crate::fault_injection::{AnswerCode, CountBy, FaultPlan, Occurrence};
    use wire::{
        ApiVersionsRequest, FetchRequest, FetchResponse, MetadataRequest, ProduceRequest, Writer,
        frame,
    };

    /// Requests of several kinds, one behind the other.
    fn stream() -> Vec<u8> {
        let mut writer = Writer::new();
        for id in 0..20 {
            let produce = ProduceRequest { acks: (id % 2) as i16, ..ProduceRequest::default() };
            frame::write_request(&mut writer, &produce, 9, id, Some("me")).unwrap();
            frame::write_request(&mut writer, &MetadataRequest::default(), 12, id, None).unwrap();
            frame::write_request(&mut writer, &ApiVersionsRequest::default(), 3, id, None).unwrap();
        }
        writer.into_bytes()
    }

    /// An injector with one rule per action, which fires in each produce request of a multiple of the number.
    fn every(faults: &[(u64, FaultAction)]) -> FaultInjector {
        let rules = faults.iter().map(|(every, action)| FaultRule {
            name: action.name().to_owned(),
            api: Some(ApiKey::Produce),
            occurrence: Occurrence::Every(*every),
            count_by: CountBy::Rule,
            ..rule(*action)
        });
        FaultInjector::of_plan(FaultPlan { seed: 0, rules: rules.collect() }).unwrap()
    }

    fn carried(requests: &mut Requests<'_>, bytes: &[u8], piece: usize) -> Result<Vec<u8>, Broken> {
        let (mut incoming, mut out) = (BytesMut::new(), Vec::new());
        for piece in bytes.chunks(piece) {
            incoming.extend_from_slice(piece);
            requests.relay(&mut incoming, &mut out)?;
        }
        Ok(out.concat())
    }

    fn expected(link: &Link) -> Vec<(i16, i32)> {
        std::iter::from_fn(|| link.take()).map(|e| (e.api_key, e.correlation_id)).collect()
    }

    #[test]
    fn requests_pass_untouched_however_they_come() {
        let bytes = stream();
        let wanted: Vec<_> = (0..20)
            .flat_map(|id| [(0, id), (3, id), (18, id)])
            .filter(|(api, id)| *api != 0 || id % 2 == 1)
            .collect();
        for piece in [1, 3, 17, 100_000] {
            for faults in [None, Some(every(&[(1000, FaultAction::Lose)]))] {
                let (link, counters) = (Link::default(), Counters::default());
                let mut requests =
                    Requests::new(&link, &counters, 1 << 20).with_faults(faults.as_ref(), "");
                assert_eq!(carried(&mut requests, &bytes, piece).unwrap(), bytes);
                assert_eq!(expected(&link), wanted);
            }
        }
    }

    #[test]
    fn a_request_that_has_begun_goes_on_when_no_other_may_begin() {
        let bytes = stream();
        let size = request_front(&bytes).unwrap().unwrap().size_bytes;
        let (link, counters) = (Link::default(), Counters::default());
        let mut requests = Requests::new(&link, &counters, 1 << 20);
        let mut out = carried(&mut requests, &bytes[..size - 1], 100).unwrap();
        requests.close();
        assert!(!requests.is_closed(), "a byte is missing");
        out.extend(carried(&mut requests, &bytes[size - 1..], 100).unwrap());
        assert!(requests.is_closed());
        assert_eq!(out, bytes[..size]);
    }

    #[test]
    fn a_question_in_vain_is_held_up_to_a_small_size_only() {
        let front = |size: usize| {
            let length = (size as i32 - 4).to_be_bytes();
            [&length[..], &18i16.to_be_bytes(), &99i16.to_be_bytes(), &7i32.to_be_bytes()].concat()
        };
        let carried_of = |bytes: &[u8]| {
            let (link, counters) = (Link::default(), Counters::default());
            let mut requests = Requests::new(&link, &counters, 100 << 20);
            let out = carried(&mut requests, bytes, 1000)?;
            Ok::<_, Broken>((out, expected(&link)))
        };
        for size in [VAIN_BYTES_MAX + 1, 100 << 20] {
            let refused = carried_of(&front(size));
            assert!(matches!(refused, Err(Broken::TooLarge(told)) if told == size), "{refused:?}");
        }
        let mut largest = front(VAIN_BYTES_MAX);
        largest.resize(VAIN_BYTES_MAX, 0);
        assert_eq!(carried_of(&largest).unwrap(), (Vec::new(), vec![(18, 7)]));
    }

    /// A fetch request of an epoch for partitions of topic `t`.
    fn fetch(session_epoch: i32, partitions: &[i32]) -> Vec<u8> {
        let partition = |at: &i32| wire::fetch::FetchPartition {
            partition: *at,
            ..wire::fetch::FetchPartition::default()
        };
        let topic = wire::fetch::FetchTopic {
            topic: "t".to_owned(),
            partitions: partitions.iter().map(partition).collect(),
            ..wire::fetch::FetchTopic::default()
        };
        let topics = if partitions.is_empty() { Vec::new() } else { vec![topic] };
        let request = FetchRequest { session_epoch, topics, ..FetchRequest::default() };
        let mut writer = Writer::new();
        frame::write_request(&mut writer, &request, 12, 7, Some("me")).unwrap();
        writer.into_bytes()
    }

    /// Sets a rule for partition 1 of topic `t`.
    fn set_fetch_error(faults: &FaultInjector, after_effect: bool) {
        let code = AnswerCode(model::ErrorCode::NotLeaderOrFollower);
        let rule = FaultRule {
            api: Some(ApiKey::Fetch),
            topic: Some("t".to_owned()),
            partition: Some(1),
            ..rule(FaultAction::Error { code, after_effect })
        };
        faults.put(rule).unwrap();
    }

    /// Error code of an answer that no broker sent, and its partitions with their codes.
    fn fabricated(link: &Link) -> (i16, Vec<(i32, i16)>) {
        let Some(Expected { fate: Fate::Fabricated(answer), .. }) = link.take() else {
            panic!("another fate")
        };
        let mut reader = wire::Reader::new(&answer[LENGTH_BYTES..]);
        frame::read_response_head(&mut reader, ApiKey::Fetch, 12).unwrap();
        let answer = <FetchResponse as wire::Message>::decode(&mut reader, 12).unwrap();
        let partitions = answer.responses.iter().flat_map(|topic| &topic.partitions);
        let codes = partitions.map(|it| (it.partition_index, it.error_code)).collect();
        (answer.error_code, codes)
    }

    #[test]
    fn an_error_concerns_partitions_that_an_incremental_fetch_leaves_out() {
        for after_effect in [false, true] {
            let (link, counters) = (Link::default(), Counters::default());
            let faults = every(&[]);
            let mut requests =
                Requests::new(&link, &counters, 1 << 20).with_faults(Some(&faults), "");
            let start = fetch(0, &[0, 1]);
            assert_eq!(carried(&mut requests, &start, 5).unwrap(), start);
            assert!(matches!(link.take().unwrap().fate, Fate::Forward));
            // The session is older than the rule.
            set_fetch_error(&faults, after_effect);
            let next = fetch(1, &[]);
            let out = carried(&mut requests, &next, 5).unwrap();
            assert_eq!(faults.status()[0].faults, 1);
            if !after_effect {
                assert!(out.is_empty());
                assert_eq!(fabricated(&link), (0, vec![(0, 6), (1, 6)]));
                continue;
            }
            assert_eq!(out, next);
            assert!(link.kept_bytes() > 0);
            let Some(Expected { fate: Fate::Change(altered), .. }) = link.take() else {
                panic!("another fate")
            };
            assert_eq!(altered.partitions, [(TopicKey::Name("t".to_owned()), 1)]);
            assert_eq!(link.kept_bytes(), 0);
            assert!(requests.kept_bytes() > 0, "the session is charged");
        }
    }

    #[test]
    fn a_client_starts_an_unknown_session_again_if_a_rule_needs_its_partitions() {
        let (link, counters) = (Link::default(), Counters::default());
        let faults = every(&[]);
        let mut requests = Requests::new(&link, &counters, 1 << 20).with_faults(Some(&faults), "");
        let next = fetch(5, &[]);
        assert_eq!(carried(&mut requests, &next, 100).unwrap(), next, "no rule");
        assert!(matches!(link.take().unwrap().fate, Fate::Forward));
        set_fetch_error(&faults, false);
        assert!(carried(&mut requests, &next, 100).unwrap().is_empty());
        let unknown = model::ErrorCode::FetchSessionIdNotFound as i16;
        assert_eq!(fabricated(&link), (unknown, Vec::new()));
        assert!(carried(&mut requests, &fetch(0, &[0, 1]), 100).unwrap().is_empty());
        assert_eq!(fabricated(&link), (0, vec![(0, 6), (1, 6)]));
    }

    #[test]
    fn bytes_of_any_kind_are_carried_or_refused() {
        let mut random = fastrand::Rng::with_seed(11);
        let plan = [(2, FaultAction::Lose), (3, FaultAction::Damage), (5, FaultAction::Duplicate)];
        for _ in 0..5000 {
            let mut bytes = stream();
            bytes.truncate(random.usize(..400));
            for _ in 0..random.usize(..4) {
                if !bytes.is_empty() {
                    let at = random.usize(..bytes.len());
                    bytes[at] = random.u8(..);
                }
            }
            let (link, counters) = (Link::default(), Counters::default());
            let faults = every(&plan);
            let mut requests =
                Requests::new(&link, &counters, 1 << 20).with_faults(Some(&faults), "");
            if let Ok(out) = carried(&mut requests, &bytes, random.usize(1..50)) {
                assert!(out.len() <= 2 * bytes.len());
            }
        }
    }
}
