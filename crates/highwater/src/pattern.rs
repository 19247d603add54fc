//! How `consume` writes a record: text, JSON, or a pattern with `%` as in kcat. Values go out byte
//! for byte; nothing is decoded.

use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;

use serde::ser::{Serialize, SerializeMap, SerializeStruct, Serializer};

/// A record as it is shown.
#[derive(Debug, Clone, Copy)]
pub struct Shown<'a> {
    /// The topic's name.
    pub topic: &'a str,
    /// The partition's number.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
    /// Milliseconds since 1970; -1 for none.
    pub timestamp: i64,
    /// The key; `None` for null.
    pub key: Option<&'a [u8]>,
    /// The value; `None` for null.
    pub value: Option<&'a [u8]>,
    /// Names and values in their order; a name may stand twice.
    pub headers: &'a [(&'a str, Option<&'a [u8]>)],
}

/// The form of records on standard output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    /// The value and a line feed.
    Text,
    /// A JSON object and a line feed.
    Json,
    /// Pieces in their order.
    Pattern(Vec<Piece>),
}

/// A piece of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// These bytes.
    Bytes(Vec<u8>),
    /// `%t`
    Topic,
    /// `%p`
    Partition,
    /// `%o`
    Offset,
    /// `%k`
    Key,
    /// `%v`, `%s`
    Value,
    /// `%K`: -1 for null.
    KeyLength,
    /// `%S`: -1 for null.
    ValueLength,
    /// `%T`
    Timestamp,
    /// `%h`: name=value,…
    Headers,
}

/// The text is not a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoPattern(String);

impl fmt::Display for NoPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} is not known; write text, json, or a pattern of %t topic, %p partition, %o offset, \
             %T timestamp, %k key, %v value, %h headers, %K and %S their sizes, %% and \\n \\t \\r \
             \\0 \\\\ \\xHH",
            self.0
        )
    }
}

impl std::error::Error for NoPattern {}

impl FromStr for Form {
    type Err = NoPattern;

    fn from_str(text: &str) -> Result<Form, NoPattern> {
        match text {
            "text" => Ok(Form::Text),
            "json" => Ok(Form::Json),
            _ if text.contains(['%', '\\']) => pieces(text).map(Form::Pattern),
            _ => Err(NoPattern(text.to_owned())),
        }
    }
}

fn pieces(text: &str) -> Result<Vec<Piece>, NoPattern> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        let piece = match c {
            '%' => verb(&mut rest)?,
            '\\' => Piece::Bytes(vec![escape(&mut rest)?]),
            other => Piece::Bytes(other.to_string().into_bytes()),
        };
        match (pieces.last_mut(), piece) {
            (Some(Piece::Bytes(before)), Piece::Bytes(bytes)) => before.extend(bytes),
            (_, piece) => pieces.push(piece),
        }
    }
    Ok(pieces)
}

fn take(rest: &mut &str) -> Option<char> {
    let c = rest.chars().next()?;
    *rest = &rest[c.len_utf8()..];
    Some(c)
}

fn verb(rest: &mut &str) -> Result<Piece, NoPattern> {
    let c = take(rest);
    Ok(match c {
        Some('t') => Piece::Topic,
        Some('p') => Piece::Partition,
        Some('o') => Piece::Offset,
        Some('k') => Piece::Key,
        Some('v' | 's') => Piece::Value,
        Some('K') => Piece::KeyLength,
        Some('S') => Piece::ValueLength,
        Some('T') => Piece::Timestamp,
        Some('h') => Piece::Headers,
        Some('%') => Piece::Bytes(b"%".to_vec()),
        other => return Err(NoPattern(format!("%{}", other.map_or(String::new(), String::from)))),
    })
}

fn escape(rest: &mut &str) -> Result<u8, NoPattern> {
    let c = take(rest);
    Ok(match c {
        Some('n') => b'\n',
        Some('t') => b'\t',
        Some('r') => b'\r',
        Some('0') => 0,
        Some('\\') => b'\\',
        Some('x') => {
            let digits = rest.get(..2).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
            let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
            *rest = rest.get(2..).unwrap_or_default();
            byte.ok_or_else(|| NoPattern("\\x without two digits".to_owned()))?
        }
        other => return Err(NoPattern(format!("\\{}", other.map_or(String::new(), String::from)))),
    })
}

impl Form {
    /// Whether headers are part of it.
    pub fn shows_headers(&self) -> bool {
        match self {
            Form::Text => false,
            Form::Json => true,
            Form::Pattern(pieces) => pieces.contains(&Piece::Headers),
        }
    }

    /// Writes one record.
    pub fn write(&self, out: &mut impl Write, record: &Shown<'_>) -> io::Result<()> {
        match self {
            Form::Text => {
                out.write_all(record.value.unwrap_or_default())?;
                out.write_all(b"\n")
            }
            Form::Json => {
                serde_json::to_writer(&mut *out, record)?;
                out.write_all(b"\n")
            }
            Form::Pattern(pieces) => pieces.iter().try_for_each(|piece| piece.write(out, record)),
        }
    }
}

impl Piece {
    fn write(&self, out: &mut impl Write, record: &Shown<'_>) -> io::Result<()> {
        let length = |bytes: Option<&[u8]>| bytes.map_or(-1, |bytes| bytes.len() as i64);
        match self {
            Piece::Bytes(bytes) => out.write_all(bytes),
            Piece::Topic => out.write_all(record.topic.as_bytes()),
            Piece::Partition => write!(out, "{}", record.partition),
            Piece::Offset => write!(out, "{}", record.offset),
            Piece::Key => out.write_all(record.key.unwrap_or_default()),
            Piece::Value => out.write_all(record.value.unwrap_or_default()),
            Piece::KeyLength => write!(out, "{}", length(record.key)),
            Piece::ValueLength => write!(out, "{}", length(record.value)),
            Piece::Timestamp => write!(out, "{}", record.timestamp),
            Piece::Headers => write_headers(out, record.headers),
        }
    }
}

fn write_headers(out: &mut impl Write, headers: &[(&str, Option<&[u8]>)]) -> io::Result<()> {
    for (at, (name, value)) in headers.iter().enumerate() {
        out.write_all(if at == 0 { b"" } else { b"," })?;
        write!(out, "{name}=")?;
        out.write_all(value.unwrap_or(b"NULL"))?;
    }
    Ok(())
}

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Record", 7)?;
        object.serialize_field("topic", self.topic)?;
        object.serialize_field("partition", &self.partition)?;
        object.serialize_field("offset", &self.offset)?;
        object.serialize_field("timestamp", &self.timestamp)?;
        object.serialize_field("headers", &Headers(self.headers))?;
        object.serialize_field("key", &self.key.map(Bytes))?;
        object.serialize_field("value", &self.value.map(Bytes))?;
        object.end()
    }
}

/// Headers as a list of objects: a name may stand twice, and the order counts.
struct Headers<'a>(&'a [(&'a str, Option<&'a [u8]>)]);

impl Serialize for Headers<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|(name, value)| Header { name, value: *value }))
    }
}

struct Header<'a> {
    name: &'a str,
    value: Option<&'a [u8]>,
}

impl Serialize for Header<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(Some(2))?;
        object.serialize_entry("key", self.name)?;
        object.serialize_entry("value", &self.value.map(Bytes))?;
        object.end()
    }
}

/// UTF-8 as text; anything else as `{"base64": …}`, so that no byte is lost.
pub struct Bytes<'a>(pub &'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Ok(text) = std::str::from_utf8(self.0) {
            return serializer.serialize_str(text);
        }
        let mut object = serializer.serialize_map(Some(1))?;
        object.serialize_entry("base64", &base64(self.0))?;
        object.end()
    }
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: Shown<'_> = Shown {
        topic: "t",
        partition: 3,
        offset: 42,
        timestamp: 1000,
        key: Some(b"k\xff"),
        value: Some(b"a\nb\0"),
        headers: &[("h", Some(b"1")), ("h", None)],
    };

    fn written(form: &str, record: &Shown<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        form.parse::<Form>().unwrap().write(&mut out, record).unwrap();
        out
    }

    #[test]
    fn text_is_the_value_byte_for_byte_and_a_line_feed() {
        assert_eq!(written("text", &RECORD), b"a\nb\0\n");
        assert_eq!(written("text", &Shown { value: None, ..RECORD }), b"\n");
    }

    #[test]
    fn a_pattern_puts_pieces_in_their_places() {
        let found = written(r"%t/%p@%o %T %K:%k %S:%v [%h]\x01%%\n", &RECORD);
        assert_eq!(found, b"t/3@42 1000 2:k\xff 4:a\nb\0 [h=1,h=NULL]\x01%\n");
        assert_eq!(written("%K %S", &Shown { key: None, value: None, ..RECORD }), b"-1 -1");
    }

    #[test]
    fn json_keeps_nulls_order_and_bytes_that_are_no_text() {
        let found: serde_json::Value = serde_json::from_slice(&written("json", &RECORD)).unwrap();
        let expected = serde_json::json!({
            "topic": "t", "partition": 3, "offset": 42, "timestamp": 1000,
            "headers": [{"key": "h", "value": "1"}, {"key": "h", "value": null}],
            "key": {"base64": "a/8="}, "value": "a\nb\u{0}",
        });
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_no_pattern_is_answered_with_what_is_one() {
        for text in ["tabel", "%q", "%", r"\q", r"\x1", r"\xzz", r"\x"] {
            let error = text.parse::<Form>().unwrap_err().to_string();
            assert!(error.contains("write text, json, or a pattern"), "{text}: {error}");
        }
    }
}
