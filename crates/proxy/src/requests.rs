//! From the client to the broker: requests go through as bytes, and it is noted which answers are
//! to come. With misbehaviour, produce requests are held as a whole and judged.

use crate::counters::Counters;
use crate::frames::{Broken, RequestFront, request_front, version_max};
use crate::link::{Expected, Fate, Link};
use crate::mischief::{Culprit, Deed};
use crate::produced::Produced;
use crate::pump::{Owed, Relay};
use crate::rewrite::unsupported_api_versions;
use bytes::{Bytes, BytesMut};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use wire::ApiKey;

/// How long a request waits for one that may overtake it.
const OVERTAKING_MAX: Duration = Duration::from_millis(100);

/// Bytes of a request for versions that is answered here, whoever asks: it bears two names, and is held until it is whole.
const VAIN_BYTES_MAX: usize = 64 * 1024;

/// A produce request that is held as a whole.
struct Held {
    front: RequestFront,
    frame: BytesMut,
    produced: Produced,
    until: Instant,
}

/// The requests of one connection.
pub struct Requests<'a> {
    link: &'a Link,
    counters: &'a Counters,
    held_bytes_max: usize,
    culprit: Option<Culprit>,
    /// Bytes of a frame that still go through without being looked at.
    passing: usize,
    /// Whether a request has come.
    has_begun: bool,
    /// Size of the frame that must be whole before it goes on; 0 if there is none.
    held_frame_bytes: usize,
    /// Whether no further frame begins.
    is_closing: bool,
    /// What waits for another to overtake it.
    held: Option<Held>,
}

impl<'a> Requests<'a> {
    /// Requests that put what they expect into `link`.
    pub fn new(
        link: &'a Link,
        counters: &'a Counters,
        held_bytes_max: usize,
        culprit: Option<Culprit>,
    ) -> Requests<'a> {
        Requests {
            link,
            counters,
            held_bytes_max,
            culprit,
            passing: 0,
            has_begun: false,
            held_frame_bytes: 0,
            is_closing: false,
            held: None,
        }
    }

    fn expect(&self, front: &RequestFront, fate: Fate, produced: Option<Produced>) {
        let learns = self.culprit.as_ref().is_some_and(|c| c.mischief.learns_offsets());
        if front.answered {
            self.link.expect(Expected {
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

    /// Judges a produce request that is there as a whole.
    fn judge(&mut self, front: RequestFront, mut frame: BytesMut, out: &mut Vec<Bytes>) {
        let Some(produced) = Produced::parse(&frame) else {
            self.release(out);
            return self.forward(front, frame, None, out);
        };
        if let Some(first) = self.held.take() {
            return self.overtake(first, front, frame, produced, out);
        }
        let Some(culprit) = &mut self.culprit else {
            return self.forward(front, frame, Some(produced), out);
        };
        match culprit.judge() {
            Deed::Lose => self.lose(front, produced),
            Deed::Repeat => self.repeat(front, frame, produced, out),
            Deed::Reorder => self.hold(front, frame, produced),
            Deed::Damage => {
                culprit.damage(&mut frame, &produced);
                self.forward(front, frame, Some(produced), out);
            }
            Deed::Forward => self.forward(front, frame, Some(produced), out),
        }
    }

    fn forward(
        &mut self,
        front: RequestFront,
        frame: BytesMut,
        produced: Option<Produced>,
        out: &mut Vec<Bytes>,
    ) {
        self.expect(&front, Fate::Forward, produced);
        out.push(frame.freeze());
    }

    fn lose(&mut self, front: RequestFront, produced: Produced) {
        let Some(culprit) = &self.culprit else { return };
        let acknowledged =
            produced.acknowledge(front.version, front.correlation_id, &culprit.mischief.offsets());
        // It was parsed in this version, so it can be answered in it.
        let Ok(answer) = acknowledged else { return };
        let mut count = culprit.mischief.count();
        count.lost_requests += 1;
        count.lost_records += produced.record_count();
        drop(count);
        self.expect(&front, Fate::Fabricated(answer.into()), None);
    }

    fn repeat(
        &mut self,
        front: RequestFront,
        frame: BytesMut,
        produced: Produced,
        out: &mut Vec<Bytes>,
    ) {
        let Some(culprit) = &self.culprit else { return };
        let mut count = culprit.mischief.count();
        count.repeated_requests += 1;
        count.repeated_records += produced.record_count();
        drop(count);
        let frame = frame.freeze();
        self.expect(&front, Fate::Forward, Some(produced));
        self.expect(&front, Fate::Swallow, None);
        out.extend([frame.clone(), frame]);
    }

    /// Sends the second request before the first, if they write to a common partition.
    fn overtake(
        &mut self,
        first: Held,
        front: RequestFront,
        frame: BytesMut,
        produced: Produced,
        out: &mut Vec<Bytes>,
    ) {
        if let Some(culprit) = &mut self.culprit {
            culprit.see();
        }
        if !first.produced.shares_partition_with(&produced) {
            // The second now waits in the first one's place.
            self.forward(first.front, first.frame, Some(first.produced), out);
            return self.hold(front, frame, produced);
        }
        if let Some(culprit) = &mut self.culprit {
            culprit.reordered();
        }
        let fate = if first.front.answered { Fate::Postpone } else { Fate::Forward };
        self.expect(&front, fate, Some(produced));
        self.expect(&first.front, Fate::Forward, Some(first.produced));
        out.extend([frame.freeze(), first.frame.freeze()]);
    }

    fn hold(&mut self, front: RequestFront, frame: BytesMut, produced: Produced) {
        let until = Instant::now() + OVERTAKING_MAX;
        self.held = Some(Held { front, frame, produced, until });
    }

    /// Lets what is held go as it is.
    fn release(&mut self, out: &mut Vec<Bytes>) {
        if let Some(held) = self.held.take() {
            self.forward(held.front, held.frame, Some(held.produced), out);
        }
    }

    /// Whether a request is held until it is whole.
    fn is_judged(&self, front: &RequestFront) -> bool {
        self.culprit.is_some() && front.api_key == ApiKey::Produce.code()
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
        loop {
            let passed = self.passing.min(incoming.len() - at);
            self.passing -= passed;
            at += passed;
            if self.passing > 0 || self.is_closing {
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
        self.link.has_room()
    }

    fn bell(&self) -> &Notify {
        &self.link.room
    }

    fn kept_bytes(&self) -> usize {
        self.link.kept_bytes() + self.held.as_ref().map_or(0, |held| 2 * held.frame.len())
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
        self.is_closing && self.passing == 0 && self.held.is_none()
    }

    fn deadline(&self) -> Option<Instant> {
        self.held.as_ref().map(|held| held.until)
    }

    fn tick(&mut self, now: Instant, out: &mut Vec<Bytes>) -> Result<(), Broken> {
        if self.deadline().is_some_and(|until| until <= now) {
            self.release(out);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::misbehave::Misbehave;
    use crate::mischief::Mischief;
    use std::sync::Arc;
    use wire::{ApiVersionsRequest, MetadataRequest, ProduceRequest, Writer, frame};

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
            for plan in [None, Some(Misbehave { lose_every: 1000, ..Misbehave::default() })] {
                let (link, counters) = (Link::default(), Counters::default());
                let culprit = plan.and_then(Mischief::new).map(|m| Culprit::new(Arc::new(m)));
                let mut requests = Requests::new(&link, &counters, 1 << 20, culprit);
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
        let mut requests = Requests::new(&link, &counters, 1 << 20, None);
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
            let mut requests = Requests::new(&link, &counters, 100 << 20, None);
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

    #[test]
    fn bytes_of_any_kind_are_carried_or_refused() {
        let mut random = fastrand::Rng::with_seed(11);
        let plan = Misbehave { lose_every: 2, damage_every: 3, ..Misbehave::default() };
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
            let culprit = Mischief::new(plan).map(|m| Culprit::new(Arc::new(m)));
            let mut requests = Requests::new(&link, &counters, 1 << 20, culprit);
            if let Ok(out) = carried(&mut requests, &bytes, random.usize(1..50)) {
                assert!(out.len() <= bytes.len());
            }
        }
    }
}
