//! One record: `{"partition_id":…,"headers":[…],"key":{"type":…,"data":…},"value":{…},"timestamp":…}`.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;
use serving::error::Kind;

use super::super::draft::{Draft, bytes};
use super::super::form::Embedded;
use super::super::object::Object;

/// How the data of a key or a value stands in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// As base64.
    Binary,
    /// As JSON.
    Json,
    /// As text.
    String,
}

impl Type {
    /// The name of the type.
    pub const fn name(self) -> &'static str {
        match self {
            Type::Binary => "BINARY",
            Type::Json => "JSON",
            Type::String => "STRING",
        }
    }

    fn of(name: &str) -> Option<Type> {
        [Type::Binary, Type::Json, Type::String].into_iter().find(|known| known.name() == name)
    }

    fn embedded(self) -> Embedded {
        match self {
            Type::Binary => Embedded::Binary,
            Type::Json => Embedded::Json,
            Type::String => Embedded::Text,
        }
    }
}

/// What an answer repeats of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Described {
    /// The type of the key and how many bytes it has; `None` without a key.
    pub key: Option<(Type, usize)>,
    /// The same of the value.
    pub value: Option<(Type, usize)>,
    /// When it happened, in milliseconds since 1970, if the record says.
    pub timestamp_ms: Option<i64>,
}

/// A record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record<'a> {
    /// What is sent.
    pub draft: Draft<'a>,
    /// What the answer repeats.
    pub described: Described,
}

/// Why an object cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unread {
    /// It is not JSON: what stands behind it is not to be trusted either.
    Malformed(String),
    /// It is JSON, and not a record.
    Refused(String),
}

impl Unread {
    /// What went wrong.
    pub fn kind(&self) -> Kind {
        match self {
            Unread::Malformed(_) => Kind::Malformed,
            Unread::Refused(_) => Kind::Unprocessable,
        }
    }

    /// In words.
    pub fn why(&self) -> &str {
        match self {
            Unread::Malformed(why) | Unread::Refused(why) => why,
        }
    }
}

/// A record as it stands in JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written<'a> {
    #[serde(default)]
    partition_id: Option<i32>,
    #[serde(borrow, default)]
    headers: Option<Vec<Object<WrittenHeader<'a>>>>,
    #[serde(borrow, default)]
    key: Option<Object<Data<'a>>>,
    #[serde(borrow, default)]
    value: Option<Object<Data<'a>>>,
    #[serde(borrow, default)]
    timestamp: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenHeader<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    value: Option<&'a RawValue>,
}

/// A key or a value. What belongs to schemas is known by its names, so that it is refused in words.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Data<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
    #[serde(borrow, default)]
    schema: Option<&'a RawValue>,
    #[serde(borrow, default)]
    schema_id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    schema_version: Option<&'a RawValue>,
    #[serde(borrow, default)]
    subject: Option<&'a RawValue>,
    #[serde(borrow, default)]
    subject_name_strategy: Option<&'a RawValue>,
}

/// The bytes of a key or a value, and the type in which they stood.
type Typed<'a> = (Type, Cow<'a, [u8]>);

/// Reads the text of one object.
///
/// # Errors
/// It is not JSON, or not a record.
pub fn record(object: &[u8]) -> Result<Record<'_>, Unread> {
    let Object::<Written<'_>>(written) = serde_json::from_slice(object).map_err(|error| {
        let why = error.to_string();
        if error.is_data() { Unread::Refused(why) } else { Unread::Malformed(why) }
    })?;
    written.record().map_err(Unread::Refused)
}

impl<'a> Written<'a> {
    fn record(self) -> Result<Record<'a>, String> {
        let part = |name: &str, data: Option<Object<Data<'a>>>| {
            let read = data.map(|Object(data)| data.read()).transpose();
            read.map(Option::flatten).map_err(|why| format!("{name}: {why}"))
        };
        let (key, value) = (part("key", self.key)?, part("value", self.value)?);
        let headers = self.headers.unwrap_or_default().into_iter().map(|Object(header)| {
            let value = header.value.map(|json| bytes(Embedded::Binary, json)).transpose();
            Ok((header.name, value.map_err(|why| format!("headers: {why}"))?))
        });
        let timestamp_ms = self.timestamp.map(|text| milliseconds(&text)).transpose()?;
        let size = |(kind, bytes): &Typed<'_>| (*kind, bytes.len());
        Ok(Record {
            described: Described {
                key: key.as_ref().map(size),
                value: value.as_ref().map(size),
                timestamp_ms,
            },
            draft: Draft {
                key: key.map(|(_, bytes)| bytes),
                value: value.map(|(_, bytes)| bytes),
                headers: headers.collect::<Result<_, String>>()?,
                partition: self.partition_id,
                timestamp_ms,
            },
        })
    }
}

impl<'a> Data<'a> {
    /// Type and bytes; `None` for null.
    fn read(self) -> Result<Option<Typed<'a>>, String> {
        const EXPECTED: &str = "expected type BINARY, JSON or STRING";
        let of_schemas = [
            self.schema,
            self.schema_id,
            self.schema_version,
            self.subject,
            self.subject_name_strategy,
        ];
        let named = self.kind.as_deref();
        if of_schemas.iter().any(Option::is_some)
            || named.is_some_and(|name| matches!(name, "AVRO" | "JSONSCHEMA" | "PROTOBUF"))
        {
            return Err(format!("the gateway knows no schemas: {EXPECTED}"));
        }
        let kind = match named {
            Some(name) => Some(Type::of(name).ok_or_else(|| format!("type {name:?}: {EXPECTED}"))?),
            None => None,
        };
        let Some(data) = self.data else { return Ok(None) };
        let kind = kind.ok_or_else(|| EXPECTED.to_owned())?;
        let bytes = bytes(kind.embedded(), data).map_err(|why| format!("data: {why}"))?;
        Ok(Some((kind, bytes)))
    }
}

/// The milliseconds since 1970 of a time as in RFC 3339.
fn milliseconds(text: &str) -> Result<i64, String> {
    let time: Timestamp = text.parse().map_err(|_| {
        "timestamp: expected a time as in RFC 3339, like 2024-02-29T12:00:00.5Z".to_owned()
    })?;
    match time.as_millisecond() {
        // Kafka's times begin in 1970.
        ms @ 0.. => Ok(ms),
        _ => Err("timestamp: expected a time in 1970 or later".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::draft::Header;
    use super::*;

    fn refused(object: &str) -> String {
        match record(object.as_bytes()) {
            Err(Unread::Refused(why)) => why,
            other => panic!("{object}: {other:?}"),
        }
    }

    #[test]
    fn a_record_has_everything_that_the_proxy_knows() {
        let object = r#"{"partition_id":3,"timestamp":"2023-11-14T22:13:20.25+00:00",
            "headers":[{"name":"a","value":"AQI="},{"name":"b","value":null},{"name":"c"}],
            "key":{"type":"BINARY","data":"AP8="},"value":{"type":"JSON","data":{"a": [1, 2.0]}}}"#;
        let read = record(object.as_bytes()).unwrap();
        let headers: Vec<Header<'_>> = vec![
            ("a".into(), Some(Cow::Borrowed(&[1, 2]))),
            ("b".into(), None),
            ("c".into(), None),
        ];
        let draft = Draft {
            key: Some(Cow::Borrowed(&[0, 255])),
            value: Some(Cow::Borrowed(br#"{"a":[1,2.0]}"#)),
            headers,
            partition: Some(3),
            timestamp_ms: Some(1_700_000_000_250),
        };
        assert_eq!(read.draft, draft);
        let described = Described {
            key: Some((Type::Binary, 2)),
            value: Some((Type::Json, 13)),
            timestamp_ms: Some(1_700_000_000_250),
        };
        assert_eq!(read.described, described);
    }

    #[test]
    fn what_is_not_there_and_what_is_null_is_null() {
        for object in [
            "{}",
            r#"{"key":null,"value":null,"headers":null,"partition_id":null,"timestamp":null}"#,
            r#"{"key":{"type":"STRING","data":null},"value":{"type":"JSON","data":null}}"#,
            r#"{"value":{"data":null}}"#,
        ] {
            assert_eq!(record(object.as_bytes()).unwrap().draft, Draft::default(), "{object}");
        }
        let empty = record(br#"{"value":{"type":"STRING","data":""}}"#).unwrap();
        assert_eq!(empty.described.value, Some((Type::String, 0)));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (object, words) in [
            (r#"{"value":{"type":"AVRO","data":1}}"#, "value: the gateway knows no schemas"),
            (r#"{"value":{"schema_id":1,"data":1}}"#, "value: the gateway knows no schemas"),
            (r#"{"key":{"subject":"s","type":"JSON","data":1}}"#, "key: the gateway knows no"),
            (r#"{"value":{"type":"json","data":1}}"#, "value: type \"json\": expected type BINARY"),
            (r#"{"value":{"data":1}}"#, "value: expected type BINARY"),
            (r#"{"value":{"type":"BINARY","data":"*"}}"#, "value: data: expected base64"),
            (r#"{"value":{"type":"STRING","data":1}}"#, "value: data: expected a string"),
            (r#"{"headers":[{"name":"a","value":"*"}]}"#, "headers: expected base64"),
            (r#"{"timestamp":"yesterday"}"#, "timestamp: expected a time as in RFC 3339"),
            (r#"{"timestamp":"1969-12-31T23:59:59Z"}"#, "timestamp: expected a time in 1970"),
            (r#"{"timestamp":5}"#, "invalid type"),
            (r#"{"partition_id":2147483648}"#, "invalid value"),
            (r#"{"valeu":{}}"#, "unknown field"),
            (r#"{"value":["STRING","v"]}"#, "invalid type"),
            (r#"{"value":"v"}"#, "invalid type"),
        ] {
            let why = refused(object);
            assert!(why.starts_with(words), "{object}: {why}");
        }
        for object in ["{", "{]", "{'a':1}", "{} {}", "{\"value\":01}", "{\"a\x01\":1}"] {
            let unread = record(object.as_bytes()).unwrap_err();
            assert!(matches!(unread, Unread::Malformed(_)), "{object}: {unread:?}");
        }
    }
}
