//! Bodies of the form that nearly all have: records whose keys and values are strings without escapes, and nothing else but
//! partitions and times. They are read in one pass, in a third of the time that a reader of JSON takes for them.
//!
//! What is not of that form, and what is wrong, is not for this reader: [`records`](super::records) reads it, and says why.

use std::borrow::Cow;

use memchr::memchr;

use super::base64_text::decoded;
use super::draft::{Draft, RECORDS_MAX};
use super::form::Embedded;

/// Records for which there is room before the first is read.
const ROOM_MAX: usize = 128;

/// The records of a body; `None` if it is not of this form, or there are none.
pub(super) fn drafts(body: &[u8], embedded: Embedded) -> Option<Vec<Draft<'_>>> {
    let mut text = Text { rest: body, embedded };
    text.take(b'{')?;
    (text.name()? == b"records").then_some(())?;
    text.take(b'[')?;
    let before = text.rest.len();
    let first = text.record()?;
    // Records of one request are about equally long.
    let alike = text.rest.len() / (before - text.rest.len());
    let mut drafts = Vec::with_capacity((1 + alike).min(ROOM_MAX));
    drafts.push(first);
    while text.goes_on(b']')? {
        (drafts.len() < RECORDS_MAX).then_some(())?;
        drafts.push(text.record()?);
    }
    text.take(b'}')?;
    text.skip_blanks();
    text.rest.is_empty().then_some(drafts)
}

/// What has not been read yet.
struct Text<'a> {
    rest: &'a [u8],
    embedded: Embedded,
}

impl<'a> Text<'a> {
    fn skip_blanks(&mut self) {
        while let [b' ' | b'\t' | b'\n' | b'\r', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    /// The next byte behind blanks must be this one.
    fn take(&mut self, byte: u8) -> Option<()> {
        self.skip_blanks();
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        (*first == byte).then_some(())
    }

    /// Whether a comma stands here, or the end of the list or object.
    fn goes_on(&mut self, end: u8) -> Option<bool> {
        self.skip_blanks();
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        match *first {
            b',' => Some(true),
            first if first == end => Some(false),
            _ => None,
        }
    }

    /// The name of a field, with its colon.
    fn name(&mut self) -> Option<&'a [u8]> {
        self.take(b'"')?;
        let name = self.string()?;
        self.take(b':')?;
        Some(name)
    }

    /// What is left of a string, up to the next quote. One that ends at an escaped quote here has an escape, and nothing that
    /// is known here has any.
    fn string(&mut self) -> Option<&'a [u8]> {
        let (string, rest) = self.rest.split_at(memchr(b'"', self.rest)?);
        self.rest = &rest[1..];
        Some(string)
    }

    fn record(&mut self) -> Option<Draft<'a>> {
        let mut draft = Draft::default();
        // Which fields there were.
        let mut seen = [false; 4];
        self.take(b'{')?;
        self.skip_blanks();
        if let [b'}', rest @ ..] = self.rest {
            self.rest = rest;
            return Some(draft);
        }
        loop {
            let at = match self.name()? {
                b"value" => {
                    draft.value = self.bytes()?;
                    0
                }
                b"key" => {
                    draft.key = self.bytes()?;
                    1
                }
                b"partition" => {
                    draft.partition = Some(i32::try_from(self.number()?).ok()?);
                    2
                }
                b"timestamp" => {
                    draft.timestamp_ms = Some(self.number()?);
                    3
                }
                _ => return None,
            };
            if std::mem::replace(&mut seen[at], true) {
                return None;
            }
            if !self.goes_on(b'}')? {
                return Some(draft);
            }
        }
    }

    /// A key or a value: the bytes of a string, or null.
    fn bytes(&mut self) -> Option<Option<Cow<'a, [u8]>>> {
        self.skip_blanks();
        if let Some(rest) = self.rest.strip_prefix(b"null") {
            self.rest = rest;
            return Some(None);
        }
        self.take(b'"')?;
        let string = self.string()?;
        match self.embedded {
            Embedded::Binary => decoded(string).map(|bytes| Some(Cow::Owned(bytes))),
            Embedded::Text if is_plain(string) => Some(Some(Cow::Borrowed(string))),
            Embedded::Text | Embedded::Json => None,
        }
    }

    /// A whole number that is not negative, and has few digits.
    fn number(&mut self) -> Option<i64> {
        self.skip_blanks();
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, rest) = self.rest.split_at(digits);
        if !(1..=18).contains(&digits) || (number[0] == b'0' && digits > 1) {
            return None;
        }
        self.rest = rest;
        Some(number.iter().fold(0, |all, digit| all * 10 + i64::from(digit - b'0')))
    }
}

/// Whether these bytes between two quotes are a string that stands for itself.
fn is_plain(string: &[u8]) -> bool {
    let is_special = |byte: &u8| *byte == b'\\' || *byte < b' ';
    // Without an early end, so that many are looked at at once.
    let special = string.iter().fold(false, |any, byte| any | is_special(byte));
    !special && std::str::from_utf8(string).is_ok()
}
