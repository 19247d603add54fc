//! What clients of WebSockets say: JSON texts in Pulsar's shape. Fields that are not known are passed over, as in Pulsar.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine;
use serde::Deserialize;
use serving::error::{ApiError, Kind};
use serving::push::MessageId;

use super::draft::{BASE64, Draft, unreadable};
use super::object::Object;

/// Bytes of the context that a producer sends with a message, and is told again.
pub const CONTEXT_BYTES_MAX: usize = 1024;

/// What a consumer or a reader says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// This message is done.
    Ack(MessageId),
    /// This message and all before it in its partition are done.
    AckTo(MessageId),
    /// This message shall come again.
    Nack(MessageId),
    /// So many more messages are wanted.
    Permit(u64),
    /// Whether the topic has come to an end.
    IsEndOfTopic,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenSaid<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    message_id: Option<Cow<'a, str>>,
    #[serde(default)]
    permit_messages: Option<u64>,
    #[serde(default)]
    cumulative: bool,
}

/// Reads what a consumer or a reader says.
///
/// # Errors
/// The text is not JSON, or says nothing that is known.
pub fn said(text: &str) -> Result<Said, ApiError> {
    let Object(written): Object<WrittenSaid<'_>> =
        serde_json::from_str(text).map_err(|error| unreadable(&error, ""))?;
    let unprocessable = |words: String| ApiError::new(Kind::Unprocessable, words);
    let id = || {
        let text = written.message_id.as_deref();
        let text = text.ok_or_else(|| unprocessable("messageId is missing".to_owned()))?;
        MessageId::read(text).map_err(|error| unprocessable(error.to_string()))
    };
    match written.kind.as_deref() {
        None | Some("ack") if written.cumulative => id().map(Said::AckTo),
        None | Some("ack") => id().map(Said::Ack),
        Some("negativeAcknowledge") => id().map(Said::Nack),
        Some("isEndOfTopic") => Ok(Said::IsEndOfTopic),
        Some("permit") => {
            let missing = || unprocessable("permitMessages is missing".to_owned());
            written.permit_messages.map(Said::Permit).ok_or_else(missing)
        }
        Some(_) => {
            let words = "type: expected ack, negativeAcknowledge, permit or isEndOfTopic";
            Err(unprocessable(words.to_owned()))
        }
    }
}

/// A message that a producer sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Produced<'a> {
    /// The record.
    pub draft: Draft<'a>,
    /// What the client is told again with the answer.
    pub context: Option<Cow<'a, str>>,
}

/// A text without a copy, where it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenProduced<'a> {
    #[serde(borrow, default)]
    payload: Option<Text<'a>>,
    #[serde(borrow, default)]
    properties: Option<BTreeMap<Cow<'a, str>, Text<'a>>>,
    #[serde(borrow, default)]
    key: Option<Text<'a>>,
    #[serde(borrow, default)]
    context: Option<Text<'a>>,
    #[serde(default)]
    event_time: Option<i64>,
}

/// Reads a message that a producer sends. Without a payload the record's value is null.
///
/// # Errors
/// The text is not JSON, or a part of it is not what it should be; with the context, as far as it could be read.
pub fn produced(text: &str) -> Result<Produced<'_>, (ApiError, Option<String>)> {
    let Object(written): Object<WrittenProduced<'_>> =
        serde_json::from_str(text).map_err(|error| (unreadable(&error, ""), None))?;
    let context = written.context.map(|Text(context)| context);
    if context.as_ref().is_some_and(|context| context.len() > CONTEXT_BYTES_MAX) {
        let words = format!("context: longer than {CONTEXT_BYTES_MAX} bytes");
        return Err((ApiError::new(Kind::Unprocessable, words), None));
    }
    let payload = written.payload.map(|Text(payload)| BASE64.decode(&*payload)).transpose();
    let Ok(value) = payload else {
        let error = ApiError::new(Kind::Unprocessable, "payload: expected base64 in a string");
        return Err((error, context.map(Cow::into_owned)));
    };
    let headers = written.properties.unwrap_or_default();
    let headers = headers.into_iter().map(|(name, Text(value))| (name, Some(bytes(value))));
    let draft = Draft {
        key: written.key.map(|Text(key)| bytes(key)),
        value: value.map(Cow::Owned),
        headers: headers.collect(),
        partition: None,
        timestamp_ms: written.event_time.filter(|time| *time >= 0),
    };
    Ok(Produced { draft, context })
}

fn bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use serving::push::message_id;

    use super::*;

    fn refused(text: &str) -> String {
        said(text).unwrap_err().message.into_owned()
    }

    #[test]
    fn consumers_speak_as_in_pulsar() {
        let text = message_id::write("t", 1, 7);
        let id = || MessageId { topic: "t".to_owned(), partition: 1, offset: 7 };
        let with_id = |rest: &str| said(&format!("{{\"messageId\":\"{text}\"{rest}}}"));
        assert_eq!(with_id(""), Ok(Said::Ack(id())));
        assert_eq!(with_id(",\"type\":\"ack\",\"more\":[1]"), Ok(Said::Ack(id())));
        assert_eq!(with_id(",\"cumulative\":true"), Ok(Said::AckTo(id())));
        assert_eq!(with_id(",\"type\":\"negativeAcknowledge\""), Ok(Said::Nack(id())));
        let permit = said("{\"type\":\"permit\",\"permitMessages\":100}");
        assert_eq!(permit, Ok(Said::Permit(100)));
        assert_eq!(said("{\"type\":\"isEndOfTopic\"}"), Ok(Said::IsEndOfTopic));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (text, part) in [
            ("", "EOF"),
            ("[]", "an object"),
            ("{}", "messageId is missing"),
            ("{\"messageId\":\"x\"}", "invalid messageId"),
            ("{\"messageId\":7}", "invalid type"),
            ("{\"type\":\"permit\"}", "permitMessages is missing"),
            ("{\"type\":\"permit\",\"permitMessages\":-1}", "invalid value"),
            ("{\"type\":\"unsubscribe\"}", "type: expected"),
        ] {
            assert!(refused(text).contains(part), "{text}: {}", refused(text));
        }
    }

    #[test]
    fn a_producers_message_is_a_record() {
        let text =
            r#"{"payload":"SGk=","properties":{"b":"2","a":"\n"},"key":"k","context":"c","x":{}}"#;
        let Produced { draft, context } = produced(text).unwrap();
        assert_eq!(draft.value.as_deref(), Some(&b"Hi"[..]));
        assert_eq!(draft.key.as_deref(), Some(&b"k"[..]));
        let headers: Vec<_> = draft
            .headers
            .iter()
            .map(|(name, value)| (&**name, value.as_deref().unwrap()))
            .collect();
        assert_eq!(headers, [("a", &b"\n"[..]), ("b", b"2")]);
        assert_eq!(context.as_deref(), Some("c"));
        assert_eq!(produced("{\"payload\":null}").unwrap().draft, Draft::default());
        let (error, context) = produced(r#"{"payload":"?","context":"c"}"#).unwrap_err();
        assert_eq!((error.kind, context.as_deref()), (Kind::Unprocessable, Some("c")));
        let long = format!("{{\"context\":\"{}\"}}", "x".repeat(CONTEXT_BYTES_MAX + 1));
        assert!(produced(&long).unwrap_err().0.message.contains("longer than 1024"));
        assert_eq!(produced("{\"payload\":").unwrap_err().0.kind, Kind::Malformed);
    }
}
