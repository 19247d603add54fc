//! Bodies of requests to consumer instances, in the words of version 2 of Confluent's REST proxy and of Strimzi's bridge.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use client::OffsetReset;
use model::{Offset, TopicPartition};
use serde::Deserialize;
use serde_json::value::RawValue;
use serving::error::{ApiError, Kind};

use super::draft::unreadable;
use super::form::Embedded;
use super::object::Object;
use super::pattern::Pattern;
use super::read::WAIT_MAX_MS;

/// Bytes of the name of an instance or a group.
pub const NAME_BYTES_MAX: usize = 255;
/// How long a read waits for records, in milliseconds, unless the instance or the request says otherwise.
const WAIT_DEFAULT_MS: u64 = 1000;

/// What a new instance is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Creation {
    /// Its name; `None`: one is made up.
    pub name: Option<String>,
    /// How keys and values stand in its answers.
    pub embedded: Embedded,
    /// Where it begins in partitions without a committed offset.
    pub offset_reset: OffsetReset,
    /// Whether what was read is committed without being asked for.
    pub commits: bool,
    /// Bytes that a broker waits for.
    pub fetch_bytes_min: i32,
    /// How long a read waits for records.
    pub wait: Duration,
    /// Whether aborted transactions are left out.
    pub read_committed: bool,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct WrittenCreation<'a> {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    format: Option<String>,
    #[serde(rename = "auto.offset.reset", default)]
    offset_reset: Option<String>,
    #[serde(rename = "auto.commit.enable", alias = "enable.auto.commit", default, borrow)]
    commits: Option<&'a RawValue>,
    #[serde(rename = "fetch.min.bytes", default, borrow)]
    fetch_bytes_min: Option<&'a RawValue>,
    #[serde(rename = "consumer.request.timeout.ms", default, borrow)]
    wait_ms: Option<&'a RawValue>,
    #[serde(rename = "isolation.level", default)]
    isolation: Option<String>,
}

/// What the body of `POST /consumers/{group}` says; nothing at all is an instance with every default.
///
/// # Errors
/// The body is not JSON, has a field that is not known, or a value that cannot be used.
pub fn creation(body: &[u8]) -> Result<Creation, ApiError> {
    let written = if body.is_empty() { WrittenCreation::default() } else { object(body)? };
    let wait_ms = value(written.wait_ms, "consumer.request.timeout.ms", WAIT_DEFAULT_MS)?;
    // Confluent's proxy has -1 for its own default.
    let fetch_bytes_min = value(written.fetch_bytes_min, "fetch.min.bytes", -1)?;
    if fetch_bytes_min < -1 {
        return Err(wrong("fetch.min.bytes: expected a number of at least -1"));
    }
    if let Some(name) = &written.name {
        check_name("name", name)?;
    }
    Ok(Creation {
        embedded: embedded(written.format.as_deref())?,
        offset_reset: match written.offset_reset.as_deref() {
            Some("earliest") => OffsetReset::Earliest,
            None | Some("latest") => OffsetReset::Latest,
            Some("none") => OffsetReset::Fail,
            Some(_) => return Err(wrong("auto.offset.reset: expected earliest, latest or none")),
        },
        commits: value(written.commits, "auto.commit.enable", true)?,
        fetch_bytes_min: fetch_bytes_min.max(1),
        wait: Duration::from_millis(wait_ms.min(WAIT_MAX_MS)),
        read_committed: match written.isolation.as_deref() {
            None | Some("read_uncommitted") => false,
            Some("read_committed") => true,
            Some(_) => {
                let words = "isolation.level: expected read_uncommitted or read_committed";
                return Err(wrong(words));
            }
        },
        name: written.name,
    })
}

fn embedded(name: Option<&str>) -> Result<Embedded, ApiError> {
    let name = name.unwrap_or("binary");
    Embedded::from_name(name).ok_or_else(|| {
        wrong("format: expected binary, json or text (forms with schemas are not served)")
    })
}

/// Checks the name of an instance or a group.
///
/// # Errors
/// It is empty, longer than [`NAME_BYTES_MAX`], or has control characters.
pub fn check_name(what: &str, name: &str) -> Result<(), ApiError> {
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control);
    let words = || format!("{what}: expected 1 to {NAME_BYTES_MAX} bytes, no control characters");
    if fits { Ok(()) } else { Err(wrong(words())) }
}

/// A value that clients write as itself or within quotes.
fn value<T: FromStr + Display>(
    json: Option<&RawValue>,
    name: &str,
    default: T,
) -> Result<T, ApiError> {
    let Some(json) = json else { return Ok(default) };
    let text = json.get();
    let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    text.parse().map_err(|_| wrong(format!("{name}: expected a value such as {default}")))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenTopics {
    #[serde(default)]
    topics: Option<Vec<String>>,
    #[serde(default)]
    topic_pattern: Option<String>,
}

/// What is to be subscribed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subscription {
    /// These topics, each once; at least one.
    Topics(Vec<String>),
    /// Those whose names match, now or later.
    Pattern(Pattern),
}

/// The topics to subscribe to, or their pattern.
///
/// # Errors
/// The body cannot be read, names no topic, has a pattern that cannot be used, or both topics and a pattern.
pub fn subscription(body: &[u8]) -> Result<Subscription, ApiError> {
    let written: WrittenTopics = object(body)?;
    match (written.topics, written.topic_pattern) {
        (Some(_), Some(_)) => {
            let words = "topics and topic_pattern exclude each other: send one of them";
            Err(ApiError::new(Kind::Exclusive, words))
        }
        (None, Some(expression)) => Pattern::new(expression).map(Subscription::Pattern),
        (topics, None) => {
            let mut topics = topics.unwrap_or_default();
            topics.sort();
            topics.dedup();
            match topics.is_empty() {
                true => Err(wrong("topics: expected at least one, or a topic_pattern")),
                false => Ok(Subscription::Topics(topics)),
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenPartitions {
    partitions: Vec<Object<WrittenPartition>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenPartition {
    topic: String,
    partition: i32,
}

/// The partitions that a body names, each once and in their order.
///
/// # Errors
/// The body cannot be read, or a partition has a number below 0.
pub fn partitions(body: &[u8]) -> Result<Vec<TopicPartition>, ApiError> {
    let written: WrittenPartitions = object(body)?;
    let partitions = written.partitions.into_iter();
    let mut partitions = partitions
        .map(|Object(one)| partition(&one.topic, one.partition))
        .collect::<Result<Vec<_>, _>>()?;
    partitions.sort();
    partitions.dedup();
    Ok(partitions)
}

fn partition(topic: &str, index: i32) -> Result<TopicPartition, ApiError> {
    if index < 0 {
        return Err(wrong(format!("partition: expected a number of at least 0, not {index}")));
    }
    Ok(TopicPartition::new(topic, index))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenOffsets {
    #[serde(default)]
    offsets: Option<Vec<Object<WrittenOffset>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenOffset {
    topic: String,
    partition: i32,
    offset: i64,
    #[serde(default)]
    metadata: Option<String>,
}

/// A place that a body names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The partition.
    pub partition: TopicPartition,
    /// The next offset to read.
    pub offset: Offset,
    /// What is to be remembered with it, of a commit.
    pub metadata: Option<String>,
}

/// The places that a body names; `None` if it names none, not even an empty list.
///
/// # Errors
/// The body cannot be read, or a number in it is below 0.
pub fn places(body: &[u8]) -> Result<Option<Vec<Place>>, ApiError> {
    if body.is_empty() {
        return Ok(None);
    }
    let written: WrittenOffsets = object(body)?;
    let place = |Object(one): Object<WrittenOffset>| {
        if one.offset < 0 {
            let words = format!("offset: expected a number of at least 0, not {}", one.offset);
            return Err(wrong(words));
        }
        let partition = partition(&one.topic, one.partition)?;
        Ok(Place { partition, offset: Offset(one.offset), metadata: one.metadata })
    };
    written.offsets.map(|offsets| offsets.into_iter().map(place).collect()).transpose()
}

/// A value out of a body that is a JSON object.
///
/// # Errors
/// The body is not JSON, or not of this form.
pub(crate) fn object<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, ApiError> {
    let read: Result<Object<T>, _> = serde_json::from_slice(body);
    read.map(|Object(read)| read).map_err(|error| unreadable(&error, ""))
}

fn wrong(words: impl Into<std::borrow::Cow<'static, str>>) -> ApiError {
    ApiError::new(Kind::Unprocessable, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_is_what_its_body_says() {
        let made = creation(b"").unwrap();
        assert_eq!((made.name.as_deref(), made.embedded), (None, Embedded::Binary));
        assert!(made.commits && !made.read_committed);
        assert_eq!((made.fetch_bytes_min, made.wait), (1, Duration::from_secs(1)));
        assert_eq!(creation(b"{}"), Ok(made));
        let body = br#"{"name":"i","format":"json","auto.offset.reset":"earliest",
            "auto.commit.enable":"false","fetch.min.bytes":"512",
            "consumer.request.timeout.ms":90000,"isolation.level":"read_committed"}"#;
        let made = creation(body).unwrap();
        assert_eq!((made.name.as_deref(), made.embedded), (Some("i"), Embedded::Json));
        assert_eq!(made.offset_reset, OffsetReset::Earliest);
        assert!(!made.commits && made.read_committed);
        assert_eq!((made.fetch_bytes_min, made.wait), (512, Duration::from_secs(30)));
        assert!(!creation(br#"{"enable.auto.commit":false}"#).unwrap().commits);
    }

    #[test]
    fn bodies_that_make_no_sense_are_refused_with_the_place() {
        let long = format!(r#"{{"name":"{}"}}"#, "a".repeat(256));
        for (body, words) in [
            (r#"{"format":"avro"}"#, "schemas"),
            (r#"{"auto.offset.reset":"first"}"#, "earliest"),
            (r#"{"auto.commit.enable":1}"#, "true"),
            (r#"{"fetch.min.bytes":-2}"#, "at least -1"),
            (r#"{"consumer.request.timeout.ms":-1}"#, "1000"),
            (r#"{"isolation.level":"none"}"#, "read_committed"),
            (r#"{"name":""}"#, "1 to 255"),
            (r#"{"name":"a\nb"}"#, "control"),
            (&*long, "1 to 255"),
            (r#"{"nmae":"x"}"#, "nmae"),
            (r#"["i"]"#, "an object"),
        ] {
            let error = creation(body.as_bytes()).unwrap_err();
            assert_eq!(error.kind, Kind::Unprocessable, "{body}");
            assert!(error.message.contains(words), "{body}: {error:?}");
        }
        assert_eq!(creation(b"{").unwrap_err().kind, Kind::Malformed);
        assert_eq!(creation(b"\xff").unwrap_err().kind, Kind::Malformed);
    }

    #[test]
    fn a_subscription_is_to_topics_or_to_a_pattern() {
        let topics = subscription(br#"{"topics":["b","a","b"]}"#);
        assert_eq!(topics, Ok(Subscription::Topics(vec!["a".to_owned(), "b".to_owned()])));
        let followed = subscription(br#"{"topics":null,"topic_pattern":"a.*"}"#).unwrap();
        assert!(
            matches!(followed, Subscription::Pattern(pattern) if pattern.expression() == "a.*")
        );
        for (body, kind) in [
            (r#"{"topics":["a"],"topic_pattern":"a.*"}"#, Kind::Exclusive),
            (r#"{"topics":[],"topic_pattern":"a.*"}"#, Kind::Exclusive),
            (r#"{"topics":[]}"#, Kind::Unprocessable),
            ("{}", Kind::Unprocessable),
            (r#"{"topic_pattern":""}"#, Kind::Unprocessable),
            (r#"{"topic_pattern":"("}"#, Kind::Unprocessable),
            (r#"{"topic_pattern":["a"]}"#, Kind::Unprocessable),
        ] {
            assert_eq!(subscription(body.as_bytes()).unwrap_err().kind, kind, "{body}");
        }
    }

    #[test]
    fn partitions_and_offsets_are_lists() {
        let named = partitions(br#"{"partitions":[{"topic":"t","partition":3}]}"#).unwrap();
        assert_eq!(named, [TopicPartition::new("t", 3)]);
        assert!(partitions(br#"{"partitions":[{"topic":"t","partition":-1}]}"#).is_err());
        assert!(partitions(br#"{"partitions":[["t",1]]}"#).is_err());
        assert_eq!((places(b""), places(b"{}")), (Ok(None), Ok(None)));
        let body = br#"{"offsets":[{"topic":"t","partition":0,"offset":7,"metadata":"m"}]}"#;
        let named = places(body).unwrap().unwrap();
        assert_eq!((named[0].offset, named[0].metadata.as_deref()), (Offset(7), Some("m")));
        assert!(places(br#"{"offsets":[{"topic":"t","partition":0,"offset":-1}]}"#).is_err());
    }
}
