//! Ids of messages: base64 of `topic:partition:offset`. They are the same on every gateway, and after any restart.

use base64::Engine;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::prelude::BASE64_STANDARD;

/// Characters of the longest id: a topic's name has 249 bytes at most.
pub const ID_CHARS_MAX: usize = 400;

const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
/// Padding is lost easily where an id stands in a target.
const PLAIN: GeneralPurpose = GeneralPurpose::new(&STANDARD, LENIENT);
const OF_URLS: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, LENIENT);

/// Which record is meant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId {
    /// Its topic.
    pub topic: String,
    /// Its partition, from 0 on.
    pub partition: i32,
    /// Its offset, from 0 on.
    pub offset: i64,
}

/// The text is not an id of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid messageId: expected one as it came, base64 of topic:partition:offset")]
pub struct IdError;

/// Writes the id of a record.
pub fn write(topic: &str, partition: i32, offset: i64) -> String {
    BASE64_STANDARD.encode(format!("{topic}:{partition}:{offset}"))
}

impl MessageId {
    /// Reads an id.
    ///
    /// # Errors
    /// The text is none.
    pub fn read(text: &str) -> Result<MessageId, IdError> {
        if text.len() > ID_CHARS_MAX {
            return Err(IdError);
        }
        let bytes = PLAIN.decode(text).or_else(|_| OF_URLS.decode(text)).map_err(|_| IdError)?;
        let text = String::from_utf8(bytes).map_err(|_| IdError)?;
        let mut parts = text.rsplitn(3, ':');
        let (offset, partition, topic) = (parts.next(), parts.next(), parts.next());
        let topic = topic.filter(|topic| !topic.is_empty() && !topic.contains(':'));
        Ok(MessageId {
            topic: topic.ok_or(IdError)?.to_owned(),
            partition: number(partition)?.try_into().map_err(|_| IdError)?,
            // The next offset must be one, too.
            offset: number(offset).ok().filter(|offset| *offset < i64::MAX).ok_or(IdError)?,
        })
    }
}

fn number(text: Option<&str>) -> Result<i64, IdError> {
    let text = text.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit())).ok_or(IdError)?;
    text.parse().map_err(|_| IdError)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_was_written() {
        for (topic, partition, offset) in [("t", 0, 0), ("a.b-c_9", 41, i64::MAX - 1)] {
            let text = write(topic, partition, offset);
            let id = MessageId { topic: topic.to_owned(), partition, offset };
            assert_eq!(MessageId::read(&text), Ok(id.clone()));
            assert_eq!(MessageId::read(text.trim_end_matches('=')), Ok(id));
        }
    }

    #[test]
    fn anything_else_is_none() {
        let encoded = |text: &str| BASE64_STANDARD.encode(text);
        for text in [
            "t:0:-1",
            "t:0:9223372036854775807",
            "t:0",
            ":0:1",
            "t:2147483648:1",
            "t:+1:1",
            "t::1",
            "a:b:0:1",
            "",
        ] {
            assert_eq!(MessageId::read(&encoded(text)), Err(IdError), "{text}");
        }
        for text in
            ["", "not base64!", &"A".repeat(ID_CHARS_MAX + 1), &BASE64_STANDARD.encode(b"\xff:0:1")]
        {
            assert_eq!(MessageId::read(text), Err(IdError), "{text}");
        }
    }
}
