//! From the broker to the client: answers go through as bytes, but for those that bear addresses
//! or versions, and for those that misbehaviour makes of them.

use crate::counters::Counters;
use crate::endpoints::{Form, Step, Walk, hide_in_tail};
use crate::frames::{Broken, frame_size};
use crate::link::{Expected, Fate, Link};
use crate::mischief::Mischief;
use crate::pump::Relay;
use crate::rewrite::{self, Addresses};
use bytes::{Bytes, BytesMut};
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
}

/// The answers of one connection.
pub struct Answers<'a> {
    link: &'a Link,
    counters: &'a Counters,
    addresses: &'a (dyn Addresses + Sync),
    mischief: Option<&'a Mischief>,
    held_bytes_max: usize,
    state: State,
    /// What goes behind the next answer.
    postponed: Option<Bytes>,
}

impl<'a> Answers<'a> {
    /// Answers to the requests that `link` tells of.
    pub fn new(
        link: &'a Link,
        counters: &'a Counters,
        addresses: &'a (dyn Addresses + Sync),
        mischief: Option<&'a Mischief>,
        held_bytes_max: usize,
    ) -> Answers<'a> {
        Answers {
            link,
            counters,
            addresses,
            mischief,
            held_bytes_max,
            state: State::Between,
            postponed: None,
        }
    }

    /// Sends the answers that no broker will.
    fn fabricate(&mut self, incoming: &mut BytesMut, at: &mut usize, out: &mut Vec<Bytes>) {
        while let Some(next) = self.link.take_fabricated() {
            if let Fate::Fabricated(answer) = next.fate {
                flush(incoming, at, out);
                self.counters.response(next.api_key, answer.len());
                out.push(answer);
            }
        }
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
        self.state = self.state_for(size, expected)?;
        Ok(true)
    }

    fn state_for(&self, size: usize, expected: Expected) -> Result<State, Broken> {
        let form = Form::of(expected.api_key, expected.version);
        let whole = rewrite::needs_whole(expected.api_key)
            || expected.produced.is_some()
            || matches!(expected.fate, Fate::Postpone)
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
        if let (Some(mischief), Some(produced)) = (self.mischief, &expected.produced) {
            let mut reader = Reader::new(&answer[LENGTH_BYTES..]);
            read_response_head(&mut reader, ApiKey::Produce, expected.version)?;
            mischief.offsets().learn(produced, expected.version, &mut reader);
        }
        let Expected { api_key, version, fate, .. } = expected;
        let answer = rewrite::rewrite(answer, api_key, version, self.addresses)?;
        if matches!(fate, Fate::Postpone) {
            self.postponed = Some(answer);
            return Ok(());
        }
        out.push(answer);
        out.extend(self.postponed.take());
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

/// Lets the bytes in front of `at` go.
fn flush(incoming: &mut BytesMut, at: &mut usize, out: &mut Vec<Bytes>) {
    if *at > 0 {
        out.push(incoming.split_to(std::mem::take(at)).freeze());
    }
}

impl Relay for Answers<'_> {
    fn relay(&mut self, incoming: &mut BytesMut, out: &mut Vec<Bytes>) -> Result<(), Broken> {
        let mut at = 0;
        loop {
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

    fn bell(&self) -> &Notify {
        &self.link.fabricated
    }
}
