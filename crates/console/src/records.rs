//! Records from an offset or a time on: what is asked, and what one partition has. Nothing is remembered, no group joined. All
//! partitions of a topic together are in [`crate::merged`].

use std::ops::ControlFlow;
use std::time::Duration;

use client::consumer::look_once;
use client::{Admin, ClientError, Metadata, OffsetSpec, Once};
use model::{ErrorCode, Offset, TopicPartition};
use tokio::time::timeout;

use crate::look::Looker;
use crate::parts::text::{Shown, shown, visible};
use crate::query::Query;

/// Records of an answer.
const COUNT_MAX: usize = 500;
/// Records of an answer that says nothing else.
const COUNT: usize = 50;
/// Bytes that are fetched for one answer; a larger batch comes whole.
const FETCH_BYTES: i32 = 1 << 20;
/// To how much a batch may expand.
const EXPANDED_BYTES_MAX: usize = 32 << 20;
/// Fetches of one answer: a part of a log without records of users is passed over.
const FETCHES_MAX: usize = 8;
/// How long it may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// Headers of a record that are shown.
const HEADERS_MAX: usize = 50;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) topic: String,
    /// `None`: all partitions.
    pub(crate) partition: Option<i32>,
    pub(crate) from: From,
    pub(crate) count: usize,
    pub(crate) read_committed: bool,
}

/// Where to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum From {
    /// At this offset, or the nearest that is there.
    Offset(i64),
    /// So many records before the end.
    Last,
    /// At the first record that is not older: milliseconds since 1970.
    Time(i64),
}

impl Asked {
    /// What a query asks, in the words of its form.
    ///
    /// # Errors
    /// A word that is not understood, in words for the person who typed it.
    pub(crate) fn of(query: &Query) -> Result<Asked, String> {
        let topic = query.get("topic").ok_or("choose a topic")?;
        let partition = match query.get("partition").map(str::trim) {
            None => Some(0),
            Some(ALL) => None,
            Some(text) => {
                let index = text.parse().ok().filter(|index| *index >= 0);
                Some(index.ok_or("partition: expected a number, or all")?)
            }
        };
        let count =
            query.number("limit").and_then(|limit| usize::try_from(limit).ok()).unwrap_or(COUNT);
        Ok(Asked {
            topic: topic.to_owned(),
            partition,
            from: match (query.get("at"), query.get("offset")) {
                (Some(at), _) => From::Time(time(at)?),
                (None, Some("latest")) | (None, None) => From::Last,
                (None, Some("earliest")) => From::Offset(0),
                (None, Some(text)) => From::Offset(
                    text.trim()
                        .parse()
                        .map_err(|_| "offset: expected a number, earliest or latest")?,
                ),
            },
            count: count.clamp(1, COUNT_MAX),
            read_committed: query.is("committed"),
        })
    }
}

/// What a query says that wants all partitions.
pub(crate) const ALL: &str = "all";

fn time(text: &str) -> Result<i64, String> {
    crate::query::time(text)
        .ok_or_else(|| "time: expected 2026-01-31T12:00:00Z, or milliseconds since 1970".to_owned())
}

/// Records, and where they are.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) rows: Vec<Row>,
    /// The first offset of the log.
    pub(crate) start: i64,
    /// Behind the last that consumers see.
    pub(crate) end: i64,
    /// Where it began.
    pub(crate) from: i64,
    /// Where it goes on.
    pub(crate) next: i64,
}

/// A record as it is shown.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) timestamp_ms: i64,
    pub(crate) key: Shown,
    pub(crate) value: Shown,
    /// Bytes of key and value.
    pub(crate) size_bytes: usize,
    pub(crate) headers: Vec<(String, Shown)>,
}

/// Why no record is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unread {
    /// There is no such topic any more.
    Gone,
    /// In words.
    Because(String),
}

/// Reads what is asked of one partition.
///
/// # Errors
/// The partition is not there or cannot be read.
pub(crate) async fn read(looker: &Looker, asked: &Asked, index: i32) -> Result<Found, Unread> {
    let reading = async {
        let _permit = looker.readers.acquire().await.expect("the semaphore is never closed");
        let metadata = whereabouts(looker.admin(), &asked.topic).await?;
        read_at(looker.admin(), &metadata, asked, index).await.map_err(Unread::Because)
    };
    let slow = |_| {
        let s = PATIENCE.as_secs();
        Unread::Because(format!("the records could not be read within {s} s: try again"))
    };
    timeout(PATIENCE, reading).await.map_err(slow)?
}

/// Where a topic's partitions are now, rather than at the last look.
pub(crate) async fn whereabouts(admin: &Admin, topic: &str) -> Result<Metadata, Unread> {
    let metadata = admin.cluster().describe([topic]).await;
    let metadata = metadata.map_err(|error| Unread::Because(error.to_string()))?;
    if metadata.topics.contains_key(topic) { Ok(metadata) } else { Err(Unread::Gone) }
}

/// Reads a partition of which it is known where it is.
pub(crate) async fn read_at(
    admin: &Admin,
    metadata: &Metadata,
    asked: &Asked,
    index: i32,
) -> Result<Found, String> {
    let partition = TopicPartition::new(&*asked.topic, index);
    read_all(admin, metadata, asked, &partition).await.map_err(|error| words(&error, &partition))
}

/// Why records cannot be read, and what a visitor can do about it.
fn words(error: &ClientError, partition: &TopicPartition) -> String {
    let TopicPartition { topic, partition } = partition;
    match error.code() {
        Some(ErrorCode::LeaderNotAvailable) => format!(
            "partition {partition} of {topic} has no leader now: its records cannot be read until one of its replicas serves again"
        ),
        _ => error.to_string(),
    }
}

async fn read_all(
    admin: &Admin,
    metadata: &Metadata,
    asked: &Asked,
    partition: &TopicPartition,
) -> Result<Found, ClientError> {
    let bound = async |spec| bound(admin, metadata, partition, spec).await;
    let start = bound(OffsetSpec::Earliest).await?.unwrap_or(0);
    let end = bound(OffsetSpec::Latest).await?.unwrap_or(0);
    let from = match asked.from {
        From::Offset(offset) => offset,
        From::Last => end.saturating_sub(asked.count as i64),
        From::Time(ms) => bound(OffsetSpec::AtOrAfter(model::Timestamp(ms))).await?.unwrap_or(end),
    };
    let from = from.clamp(start, end.max(start));
    let (mut rows, mut next, mut buffer) = (Vec::new(), from, Vec::new());
    for _ in 0..FETCHES_MAX {
        if rows.len() >= asked.count || next >= end {
            break;
        }
        let wish = Once {
            partition: partition.clone(),
            offset: Offset(next),
            bytes_max: FETCH_BYTES,
            wait: Duration::ZERO,
            read_committed: asked.read_committed,
        };
        let fetched = look_once(admin.cluster(), &wish).await?;
        if fetched.is_empty() {
            break;
        }
        let mut is_cut = false;
        fetched.read(EXPANDED_BYTES_MAX, &mut buffer, |record| {
            if rows.len() == asked.count {
                is_cut = true;
                return ControlFlow::Break(());
            }
            rows.push(row(&record, partition.partition.0));
            ControlFlow::Continue(())
        })?;
        next = match (is_cut, rows.last()) {
            (true, Some(last)) => last.offset + 1,
            _ => fetched.next_offset.0,
        };
    }
    Ok(Found { rows, start, end, from, next })
}

/// An offset of the partition; an error that the leader says about it is one here.
async fn bound(
    admin: &Admin,
    metadata: &Metadata,
    partition: &TopicPartition,
    spec: OffsetSpec,
) -> Result<Option<i64>, ClientError> {
    let found = admin.log_offset(metadata, partition, spec).await?;
    Ok(found.offset.map(|offset| offset.0))
}

fn row(record: &client::ConsumerRecord<'_>, partition: i32) -> Row {
    let size = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
    let headers = record.headers().take(HEADERS_MAX);
    Row {
        partition,
        offset: record.offset.0,
        timestamp_ms: record.timestamp.0,
        key: shown(record.key),
        value: shown(record.value),
        size_bytes: size(record.key) + size(record.value),
        headers: headers.map(|(name, value)| (visible(name).into_owned(), shown(value))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(query: &str) -> Result<Asked, String> {
        Asked::of(&Query::of(Some(query)))
    }

    #[test]
    fn a_query_says_where_to_begin() {
        let from = |query: &str| asked(&format!("topic=t&{query}")).map(|asked| asked.from);
        assert_eq!(from(""), Ok(From::Last));
        assert_eq!(from("offset=latest"), Ok(From::Last));
        assert_eq!(from("offset=earliest"), Ok(From::Offset(0)));
        assert_eq!(from("offset=-7"), Ok(From::Offset(-7)));
        assert_eq!(from("at=1700000000123"), Ok(From::Time(1_700_000_000_123)));
        assert_eq!(from("at=2023-11-14T22:13:20.123Z&offset=5"), Ok(From::Time(1_700_000_000_123)));
        assert_eq!(from("at=2023-11-14T22:13"), Ok(From::Time(1_699_999_980_000)));
        assert_eq!(from("at=2023-11-14T23:13:20%2B01:00"), Ok(From::Time(1_700_000_000_000)));
        for nonsense in
            ["at=yesterday", "at=-1", "offset=x", "partition=-1", "partition=99999999999"]
        {
            assert!(from(nonsense).is_err(), "{nonsense}");
        }
        assert!(asked("").is_err());
    }

    #[test]
    fn one_partition_is_read_unless_all_are_asked_for() {
        let partition = |query: &str| asked(&format!("topic=t&{query}")).unwrap().partition;
        assert_eq!([partition(""), partition("partition=7")], [Some(0), Some(7)]);
        assert_eq!(partition("partition=all"), None);
    }

    #[test]
    fn counts_are_bounded() {
        let count = |query: &str| asked(&format!("topic=t&{query}")).unwrap().count;
        assert_eq!(
            [count(""), count("limit=0"), count("limit=-4"), count("limit=99999")],
            [50, 1, 50, 500]
        );
    }
}
