//! A record as a request has it, before anything is decided about it.

use std::borrow::Cow;
use std::marker::PhantomData;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serving::error::{ApiError, Kind};

use super::form::Embedded;
use super::json_text::compact;
use super::object::Object;

/// Records of one request.
pub const RECORDS_MAX: usize = 20_000;

/// Base64 with or without padding: clients have both.
pub(super) const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A header of a record.
pub type Header<'a> = (Cow<'a, str>, Option<Cow<'a, [u8]>>);

/// A record that is to be sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Draft<'a> {
    /// The key, or null.
    pub key: Option<Cow<'a, [u8]>>,
    /// The value, or null.
    pub value: Option<Cow<'a, [u8]>>,
    /// The headers.
    pub headers: Vec<Header<'a>>,
    /// The partition that the record names.
    pub partition: Option<i32>,
    /// When it happened, in milliseconds since 1970.
    pub timestamp_ms: Option<i64>,
}

impl Draft<'_> {
    /// Bytes of key and value.
    pub(crate) fn size_bytes(&self) -> usize {
        let of = |bytes: &Option<Cow<'_, [u8]>>| bytes.as_ref().map_or(0, |bytes| bytes.len());
        of(&self.key) + of(&self.value)
    }
}

/// A record as it stands in JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written<'a> {
    #[serde(borrow, default)]
    key: Option<&'a RawValue>,
    #[serde(borrow, default)]
    value: Option<&'a RawValue>,
    #[serde(borrow, default)]
    headers: Option<Vec<Object<WrittenHeader<'a>>>>,
    #[serde(default)]
    partition: Option<i32>,
    #[serde(default)]
    timestamp: Option<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenHeader<'a> {
    #[serde(borrow)]
    key: Cow<'a, str>,
    #[serde(borrow, default)]
    value: Option<&'a RawValue>,
}

impl<'a> Written<'a> {
    /// The record's bytes. The error says which part of it cannot be read, and why.
    pub(super) fn draft(self, embedded: Embedded) -> Result<Draft<'a>, String> {
        let part = |name, json: Option<&'a RawValue>| {
            json.map(|json| bytes(embedded, json))
                .transpose()
                .map_err(|why| format!("{name}: {why}"))
        };
        let headers = self.headers.unwrap_or_default().into_iter().map(|Object(header)| {
            let value = header.value.map(|json| bytes(Embedded::Binary, json)).transpose();
            Ok((header.key, value.map_err(|why| format!("headers: {why}"))?))
        });
        Ok(Draft {
            key: part("key", self.key)?,
            value: part("value", self.value)?,
            headers: headers.collect::<Result<_, String>>()?,
            partition: self.partition,
            timestamp_ms: self.timestamp.map(since_1970).transpose()?,
        })
    }
}

/// A time that a record may have: Kafka has no times before 1970, and keeps -1 for none.
pub(super) fn since_1970(ms: i64) -> Result<i64, String> {
    if ms < 0 {
        return Err(format!("timestamp: expected milliseconds since 1970, not {ms}"));
    }
    Ok(ms)
}

/// The bytes that a JSON value stands for.
pub(super) fn bytes(embedded: Embedded, json: &RawValue) -> Result<Cow<'_, [u8]>, &'static str> {
    if embedded == Embedded::Json {
        return Ok(compact(json.get()));
    }
    let text: Text<'_> = serde_json::from_str(json.get()).map_err(|_| "expected a string")?;
    match embedded {
        Embedded::Binary => {
            BASE64.decode(&*text.0).map(Cow::Owned).map_err(|_| "expected base64 in a string")
        }
        _ => Ok(match text.0 {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        }),
    }
}

/// A string without a copy, where it has no escapes.
#[derive(Deserialize)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// A list of objects of which there are not too many: each takes more memory than its bytes.
pub(super) struct Several<T>(pub(super) Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Several<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Several<T>, D::Error> {
        struct List<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
            type Value = Several<T>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a list of records")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut objects: A) -> Result<Several<T>, A::Error> {
                let mut list = Vec::new();
                while let Some(Object(object)) = objects.next_element()? {
                    if list.len() == RECORDS_MAX {
                        return Err(A::Error::custom(TOO_MANY));
                    }
                    list.push(object);
                }
                Ok(Several(list))
            }
        }

        deserializer.deserialize_seq(List(PhantomData))
    }
}

/// What is said of a request with more records than [`RECORDS_MAX`].
pub(super) const TOO_MANY: &str = "a request may have 20000 records";

/// What is wrong with a text that should be JSON.
pub(super) fn unreadable(error: &serde_json::Error, place: &str) -> ApiError {
    // Whether the text is not JSON, or JSON of another form.
    let kind = if error.is_data() { Kind::Unprocessable } else { Kind::Malformed };
    ApiError::new(kind, format!("{place}{error}"))
}
