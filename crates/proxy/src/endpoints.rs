//! Where in an answer the leaders' addresses are (KIP-951): at its very end, behind all records.
//!
//! Produce has them since version 10 and Fetch since 16, in tag 0; ShareFetch and ShareAcknowledge
//! in an array of their own. Nothing else of the answer is decoded: [`Walk`] goes over it piece by
//! piece, as it comes, and says which bytes may go on. It does not know what an address becomes:
//! see [`crate::rewrite::Addresses`].

use crate::frames::{Broken, SHARE_ACKNOWLEDGE, SHARE_FETCH, is_cut};
use crate::rewrite::Addresses;
use wire::reader::DecodeError;
use wire::{ApiKey, Reader, Writer};

type Result<T> = std::result::Result<T, DecodeError>;

/// The answers with endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Produce, from version 10.
    Produce,
    /// Fetch, from version 16.
    Fetch,
    /// ShareFetch.
    ShareFetch,
    /// ShareAcknowledge.
    ShareAcknowledge,
}

impl Form {
    /// The form of an answer; `None` if it has no endpoints.
    pub fn of(api_key: i16, version: i16) -> Option<Form> {
        match api_key {
            SHARE_FETCH => Some(Form::ShareFetch),
            SHARE_ACKNOWLEDGE => Some(Form::ShareAcknowledge),
            code if code == ApiKey::Produce.code() && version >= 10 => Some(Form::Produce),
            code if code == ApiKey::Fetch.code() && version >= 16 => Some(Form::Fetch),
            _ => None,
        }
    }

    fn has_tagged_endpoints(self) -> bool {
        matches!(self, Form::Produce | Form::Fetch)
    }
}

/// What a step of the walk found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// So many bytes are of no interest.
    Pass(usize),
    /// A piece is not whole yet.
    More,
    /// What follows, to the end of the frame, is the endpoints and tags.
    Tail,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Head,
    Topic,
    Partition,
    PartitionEnd,
    TopicEnd,
    Tail,
}

/// A walk over one answer, from behind its frame's length.
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    form: Form,
    version: i16,
    place: Place,
    /// Topics that have not ended.
    topics_left: usize,
    /// Partitions of this topic that have not ended.
    partitions_left: usize,
    /// Bytes of records still to pass over.
    records_left: usize,
}

impl Walk {
    /// A walk over an answer of this form.
    pub fn new(form: Form, version: i16) -> Walk {
        Walk {
            form,
            version,
            place: Place::Head,
            topics_left: 0,
            partitions_left: 0,
            records_left: 0,
        }
    }

    /// Goes on over `bytes`, which follow those that were passed.
    pub fn step(&mut self, bytes: &[u8]) -> Result<Step> {
        if self.records_left > 0 {
            let passed = self.records_left.min(bytes.len());
            self.records_left -= passed;
            return Ok(if passed == 0 { Step::More } else { Step::Pass(passed) });
        }
        if self.place == Place::Tail {
            return Ok(Step::Tail);
        }
        // On a copy: a piece that is not whole leaves no trace.
        let mut next = *self;
        let mut reader = Reader::new(bytes);
        match next.read(&mut reader) {
            Ok(()) => {
                *self = next;
                Ok(Step::Pass(reader.position()))
            }
            Err(error) if is_cut(&error) => Ok(Step::More),
            Err(error) => Err(error),
        }
    }

    fn read(&mut self, r: &mut Reader<'_>) -> Result<()> {
        match self.place {
            Place::Head => {
                r.i32()?;
                r.skip_tagged_fields()?;
                self.read_prelude(r)?;
                self.topics_left = count(r)?;
                self.next_topic(r)
            }
            Place::Topic => {
                match self.form {
                    Form::Produce if self.version < 13 => r.str(true).map(|_| ())?,
                    _ => r.uuid().map(|_| ())?,
                }
                self.partitions_left = count(r)?;
                self.next_partition();
                Ok(())
            }
            Place::Partition => {
                self.records_left = self.read_partition(r)?;
                self.place = Place::PartitionEnd;
                Ok(())
            }
            Place::PartitionEnd => {
                if self.form == Form::ShareFetch {
                    for _ in 0..count(r)? {
                        r.take(18)?;
                        r.skip_tagged_fields()?;
                    }
                }
                r.skip_tagged_fields()?;
                self.partitions_left -= 1;
                self.next_partition();
                Ok(())
            }
            Place::TopicEnd => {
                r.skip_tagged_fields()?;
                self.topics_left -= 1;
                self.next_topic(r)
            }
            Place::Tail => Ok(()),
        }
    }

    /// What stands between the header and the topics.
    fn read_prelude(&self, r: &mut Reader<'_>) -> Result<()> {
        match self.form {
            Form::Produce => return Ok(()),
            // Throttle time, error, session.
            Form::Fetch => return r.take(10).map(|_| ()),
            // Throttle time, error.
            Form::ShareFetch | Form::ShareAcknowledge => r.take(6)?,
        };
        r.nullable_str(true)?;
        // The acquisition lock's timeout.
        if self.form == Form::ShareFetch || self.version >= 2 {
            r.i32()?;
        }
        Ok(())
    }

    /// Reads a partition up to its records and returns how many bytes those are.
    fn read_partition(&self, r: &mut Reader<'_>) -> Result<usize> {
        match self.form {
            Form::Produce => {
                // Index, error, base offset, append time, log start offset.
                r.take(30)?;
                for _ in 0..count(r)? {
                    r.i32()?;
                    r.nullable_str(true)?;
                    r.skip_tagged_fields()?;
                }
                r.nullable_str(true)?;
                Ok(0)
            }
            Form::Fetch => {
                // Index, error, high watermark, last stable offset, log start offset.
                r.take(30)?;
                for _ in 0..r.array_count(true, 1)?.unwrap_or(0) {
                    r.take(16)?;
                    r.skip_tagged_fields()?;
                }
                // The preferred read replica.
                r.i32()?;
                Ok(r.uvarint()?.saturating_sub(1) as usize)
            }
            Form::ShareFetch => {
                r.take(6)?;
                r.nullable_str(true)?;
                r.i16()?;
                r.nullable_str(true)?;
                leader(r)?;
                Ok(r.uvarint()?.saturating_sub(1) as usize)
            }
            Form::ShareAcknowledge => {
                r.take(6)?;
                r.nullable_str(true)?;
                leader(r)?;
                Ok(0)
            }
        }
    }

    fn next_partition(&mut self) {
        self.place = if self.partitions_left > 0 { Place::Partition } else { Place::TopicEnd };
    }

    fn next_topic(&mut self, r: &mut Reader<'_>) -> Result<()> {
        if self.topics_left > 0 {
            self.place = Place::Topic;
            return Ok(());
        }
        if self.form == Form::Produce {
            // The throttle time.
            r.i32()?;
        }
        self.place = Place::Tail;
        Ok(())
    }
}

fn count(r: &mut Reader<'_>) -> Result<usize> {
    r.array_count(true, 1)?.ok_or(DecodeError::Null)
}

fn leader(r: &mut Reader<'_>) -> Result<()> {
    r.take(8)?;
    r.skip_tagged_fields()
}

/// Where the tail of a whole answer begins, in bytes from behind its frame's length.
pub fn tail_of(message: &[u8], form: Form, version: i16) -> std::result::Result<usize, Broken> {
    let mut walk = Walk::new(form, version);
    let mut at = 0;
    loop {
        match walk.step(&message[at..])? {
            Step::Pass(passed) => at += passed,
            Step::Tail => return Ok(at),
            Step::More => {
                return Err(DecodeError::Truncated { needed: 1, remaining: 0 }.into());
            }
        }
    }
}

/// The tail with the endpoints' addresses replaced; `None` if there are no endpoints in it.
pub fn rewrite_tail(
    tail: &[u8],
    form: Form,
    addresses: &dyn Addresses,
) -> std::result::Result<Option<Vec<u8>>, Broken> {
    let mut reader = Reader::new(tail);
    let mut writer = Writer::new();
    let found = if form.has_tagged_endpoints() {
        rewrite_tags(&mut reader, &mut writer, addresses)?
    } else {
        let endpoints = rewrite_array(&mut reader, &mut writer, addresses)?;
        writer.raw(reader.take(reader.remaining())?);
        endpoints
    };
    reader.finish()?;
    Ok((found > 0).then(|| writer.into_bytes()))
}

/// Copies tagged fields, rewriting the endpoints in tag 0. Returns how many endpoints there were.
fn rewrite_tags(
    r: &mut Reader<'_>,
    w: &mut Writer,
    addresses: &dyn Addresses,
) -> std::result::Result<usize, Broken> {
    let tags = r.uvarint()?;
    w.uvarint(tags);
    let mut found = 0;
    for _ in 0..tags {
        let tag = r.uvarint()?;
        let size = r.uvarint()? as usize;
        let field = r.take(size)?;
        let mut rewritten = Writer::new();
        if tag == 0 {
            let mut inner = Reader::new(field);
            found = rewrite_array(&mut inner, &mut rewritten, addresses)?;
            inner.finish()?;
        } else {
            rewritten.raw(field);
        }
        w.uvarint(tag);
        w.uvarint(rewritten.bytes().len() as u32);
        w.raw(rewritten.bytes());
    }
    Ok(found)
}

/// Copies an array of endpoints with other addresses. Returns how many there were.
fn rewrite_array(
    r: &mut Reader<'_>,
    w: &mut Writer,
    addresses: &dyn Addresses,
) -> std::result::Result<usize, Broken> {
    let endpoints = count(r)?;
    w.count(endpoints, true)?;
    for _ in 0..endpoints {
        let node = r.i32()?;
        let host = r.str(true)?;
        let port = r.i32()?;
        let (host, port) = addresses.of(node, host, port)?;
        w.i32(node);
        w.string(&host, true)?;
        w.i32(port);
        w.nullable_string(r.nullable_str(true)?, true)?;
        r.skip_tagged_fields()?;
        w.uvarint(0);
    }
    Ok(endpoints)
}

/// A tag that no version of these answers has: clients pass over it.
const HIDDEN_TAG: u8 = 0x7f;
/// Bytes of a length that is written at its longest.
const LONG_VARINT_BYTES: usize = 5;

/// Hides the endpoints in the tail of an answer whose length has already been sent, without
/// changing its size. The client then asks for metadata, as before KIP-951.
pub fn hide_in_tail(tail: &mut [u8], form: Form) -> std::result::Result<(), Broken> {
    match tail {
        [] => Err(Broken::Endpoints),
        [0] if form.has_tagged_endpoints() => Ok(()),
        [1, tag, ..] if form.has_tagged_endpoints() && *tag == 0 => {
            *tag = HIDDEN_TAG;
            Ok(())
        }
        [1, 0] if !form.has_tagged_endpoints() => Ok(()),
        _ if form.has_tagged_endpoints() => Err(Broken::Endpoints),
        _ => hide_array(tail),
    }
}

/// Writes an empty array over `tail`, and one tagged field that takes up the rest.
fn hide_array(tail: &mut [u8]) -> std::result::Result<(), Broken> {
    let front = 3 + LONG_VARINT_BYTES;
    let hidden = tail.len().checked_sub(front).ok_or(Broken::Endpoints)?;
    tail[..3].copy_from_slice(&[1, 1, HIDDEN_TAG]);
    for (i, byte) in tail[3..front].iter_mut().enumerate() {
        let more = if i + 1 < LONG_VARINT_BYTES { 0x80 } else { 0 };
        *byte = ((hidden >> (7 * i)) & 0x7f) as u8 | more;
    }
    tail[front..].fill(0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ById, share_fetch};

    /// Reads an array of endpoints as (node, host, port, rack).
    type Endpoint = (i32, String, i32, Option<String>);
    fn endpoints(tail: &[u8]) -> (Vec<Endpoint>, u32) {
        let mut r = Reader::new(tail);
        let read = r.array(true, 1, |r| {
            let endpoint = (r.i32()?, r.string(true)?, r.i32()?, r.nullable_string(true)?);
            r.skip_tagged_fields()?;
            Ok(endpoint)
        });
        let tags = Reader::new(&tail[r.position()..]).uvarint().unwrap();
        r.skip_tagged_fields().unwrap();
        r.finish().unwrap();
        (read.unwrap(), tags)
    }

    #[test]
    fn the_addresses_of_a_share_fetch_are_replaced() {
        let answer = share_fetch(b"records", 2);
        let at = tail_of(&answer, Form::ShareFetch, 1).unwrap();
        let tail = rewrite_tail(&answer[at..], Form::ShareFetch, &ById).unwrap().unwrap();
        let rack = Some("rack".to_owned());
        let (found, _) = endpoints(&tail);
        assert_eq!(found[0], (0, "proxy".to_owned(), 1000, rack.clone()));
        assert_eq!(found[1], (1, "proxy".to_owned(), 1001, rack));
        let without = share_fetch(b"records", 0);
        let at = tail_of(&without, Form::ShareFetch, 1).unwrap();
        assert_eq!(rewrite_tail(&without[at..], Form::ShareFetch, &ById).unwrap(), None);
    }

    #[test]
    fn hidden_endpoints_of_a_share_fetch_leave_its_size_and_its_form() {
        for count in [0, 1, 2, 30] {
            let mut answer = share_fetch(b"records", count);
            let size = answer.len();
            let at = tail_of(&answer, Form::ShareFetch, 1).unwrap();
            hide_in_tail(&mut answer[at..], Form::ShareFetch).unwrap();
            let (found, tags) = endpoints(&answer[at..]);
            assert_eq!((found.len(), tags), (0, u32::from(count > 0)));
            assert_eq!(answer.len(), size);
        }
    }

    #[test]
    fn every_cut_of_an_answer_is_waited_for_or_refused() {
        let answer = share_fetch(b"records", 1);
        for cut in 0..answer.len() {
            let mut walk = Walk::new(Form::ShareFetch, 1);
            let mut at = 0;
            while let Step::Pass(passed) = walk.step(&answer[at..cut]).unwrap() {
                at += passed;
            }
            let whole = tail_of(&answer, Form::ShareFetch, 1).unwrap();
            let end = walk.step(&answer[at..cut]).unwrap();
            assert_eq!(end == Step::Tail, cut >= whole, "{cut} bytes");
            assert_eq!(tail_of(&answer[..cut], Form::ShareFetch, 1).is_ok(), cut >= whole);
        }
    }

    #[test]
    fn only_the_known_form_of_tags_is_hidden() {
        assert!(hide_in_tail(&mut [], Form::Fetch).is_err());
        assert!(hide_in_tail(&mut [2, 0, 1, 0, 1, 1, 0], Form::Fetch).is_err());
        assert!(hide_in_tail(&mut [0], Form::Fetch).is_ok());
        let mut tagged = [1, 0, 1, 1];
        hide_in_tail(&mut tagged, Form::Produce).unwrap();
        assert_eq!(tagged, [1, HIDDEN_TAG, 1, 1]);
    }
}
