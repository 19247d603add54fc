//! From a request to a stream: what is asked, whether it can be had, and where it begins. What goes wrong here is an
//! answer like any other. A client that may succeed later is not told an error: browsers never come again after one.

use std::sync::Arc;
use std::time::Duration;

use hyper::Version;
use hyper::header::{self, HeaderValue};
use hyper::http::request::Parts;
use serving::error::{ApiError, Kind};
use serving::events::id::{self, ID_BYTES_MAX, PARTITIONS_MAX};
use serving::events::pace::Return;
use serving::events::query::TOPICS_MAX;
use serving::events::{Form, IdStyle, Position, Query, ResumeId, notice};
use tokio::time::timeout;

use super::feed::Feed;
use super::place_lookup::PlaceLookup;
use super::places::{self, Begun};
use super::reader::{AwaitedPlaces, Manner, Place, Reader, write_gap};
use super::{Events, membership, topics};
use crate::answer::{self, Answer};
use crate::request::Parameters;
use crate::share_owner::ShareOwner;
use crate::state::Shared;
use crate::who::Login;

/// How long a client waits for the cluster to say where its stream begins.
const OPEN_MAX: Duration = Duration::from_secs(5);

/// A stream that can begin: its connection is handed over with it.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(super) reader: Reader,
    /// The page that may read the stream, if it is another than the gateway's own.
    pub(crate) origin: Option<HeaderValue>,
    /// The login that opened the stream.
    pub(crate) login: Option<Login>,
    pub(super) is_chunked: bool,
    /// Gaps between where the client was and where the stream begins.
    pub(super) notices: Vec<u8>,
}

/// What is asked, read.
pub(crate) struct Asked<'a> {
    pub(crate) topics: Vec<&'a str>,
    pub(crate) query: Query,
    pub(crate) id: Option<ResumeId>,
    /// Owner of the filters.
    pub(crate) owner: ShareOwner,
}

/// A reader that can begin.
pub(crate) struct Begin {
    pub(crate) reader: Reader,
    /// What there is to be said before: gaps between where the client was and where it begins.
    pub(crate) notices: Vec<Vec<u8>>,
    /// Whether it has come to the end that it was to read to.
    is_read: bool,
}

/// Opens a stream of these topics, named with commas between them; or says why there is none.
///
/// # Errors
/// The request makes no sense, or may not be answered, now and later.
pub(crate) async fn open(
    shared: &Arc<Shared>,
    topics: &str,
    parameters: &Parameters<'_>,
    parts: &Parts,
) -> Result<Answer, ApiError> {
    let mut asked = read(topics, parameters, parts)?;
    if let Some(group) = asked.query.group.take() {
        return match membership::open(shared, asked, group, parts).await {
            Err(error) if is_weather(&error) => Ok(weather(parts)),
            opened => opened,
        };
    }
    let opened = timeout(OPEN_MAX, begin(&shared.events, &asked, parts)).await;
    match opened.unwrap_or_else(|_| Err(topics::unavailable(&"no broker answered within 5 s"))) {
        Err(error) if is_weather(&error) => Ok(weather(parts)),
        // A topic that was there may be about to be made anew.
        Err(error) if error.kind == Kind::NoTopic && asked.id.is_some() => Ok(weather(parts)),
        opened => opened,
    }
}

/// Whether a reader is to reconnect after this error. Readers create no topics, so the error of a missing topic is final
/// for them.
fn is_weather(error: &ApiError) -> bool {
    error.kind.retriable() && error.kind != Kind::NoTopic
}

/// The answer while no stream can be opened: a retry time, and the `Last-Event-ID` of the request. Some libraries report an empty id
/// for an answer without one, and their programs would go on from the first record.
pub(crate) fn weather(parts: &Parts) -> Answer {
    let mut body = Vec::new();
    let id = parts.headers.get("last-event-id").and_then(|id| id.to_str().ok());
    if let Some(id) = id.filter(|id| !id.is_empty()) {
        notice::write_id_line(id, &mut body);
    }
    notice::write_retry(Return::SentAway.retry_ms(fastrand::f64()), &mut body);
    Answer::event_stream(String::from_utf8(body).expect("an id in ASCII and a number"))
}

fn read<'a>(
    topics: &'a str,
    parameters: &Parameters<'_>,
    parts: &Parts,
) -> Result<Asked<'a>, ApiError> {
    let malformed = |words: String| ApiError::new(Kind::Malformed, words);
    let query = Query::read(parameters.iter()).map_err(|error| malformed(error.to_string()))?;
    let header = parts.headers.get("last-event-id").map(HeaderValue::to_str);
    let header =
        header.transpose().map_err(|_| malformed("Last-Event-ID: not ASCII".to_owned()))?;
    let id = header.or(query.last_event_id.as_deref()).filter(|id| !id.is_empty());
    let id = id.map(ResumeId::read).transpose();
    let id = id.map_err(|error| malformed(format!("Last-Event-ID: {error}")))?;
    Ok(Asked { topics: names(topics)?, query, id, owner: ShareOwner::of(parts) })
}

/// The topics of one stream, which are named with commas between them, in their order.
///
/// # Errors
/// There are too many.
pub(crate) fn names(topics: &str) -> Result<Vec<&str>, ApiError> {
    let mut names: Vec<_> = topics.split(',').collect();
    names.sort_unstable();
    names.dedup();
    if names.len() > TOPICS_MAX {
        let words = format!("more than {TOPICS_MAX} topics in one stream");
        return Err(ApiError::new(Kind::Malformed, words));
    }
    Ok(names)
}

async fn begin(events: &Events, asked: &Asked<'_>, parts: &Parts) -> Result<Answer, ApiError> {
    let Begin { reader, notices, is_read } = reader(events, asked).await?;
    if is_read && asked.id.is_some() && notices.is_empty() {
        // A client that came again has everything, and missed nothing: it need not come again.
        return Ok(answer::nothing());
    }
    Ok(Answer::stream(Opened {
        reader,
        origin: None,
        login: None,
        is_chunked: parts.version == Version::HTTP_11,
        notices: notices.concat(),
    }))
}

/// A reader of what is asked, at the place where it begins; waits for the cluster for some seconds.
///
/// # Errors
/// What is asked cannot be had, now or ever.
pub(crate) async fn reader_in_time(events: &Events, asked: &Asked<'_>) -> Result<Begin, ApiError> {
    let late = |_| Err(topics::unavailable(&"no broker answered within 5 s"));
    timeout(OPEN_MAX, reader(events, asked)).await.unwrap_or_else(late)
}

async fn reader(events: &Events, asked: &Asked<'_>) -> Result<Begin, ApiError> {
    let query = &asked.query;
    let feeds = feeds(events, asked).await?;
    let wishes: Vec<_> = feeds
        .into_iter()
        .map(|feed| {
            let wish = places::wish(&query.start, asked.id.as_ref(), &feed);
            (feed, wish)
        })
        .collect();
    {
        let _permit = events.asking.acquire().await.map_err(|e| topics::unavailable(&e))?;
        // What is known of partitions may be old where no reader was.
        let fresh = events.cluster.refresh_if_old().await;
        fresh.map_err(|error| topics::unavailable(&error))?;
    }
    let is_told_texts = matches!(query.projection.form, Form::Frame(_));
    let named = wishes.iter().map(|(feed, _)| {
        let partition = &feed.partition;
        (&*partition.topic, partition.partition.0)
    });
    // Only an id of this style can name a partition without an offset.
    let has_long_id = !is_told_texts && id::bytes_max(IdStyle::Json, named.clone()) > ID_BYTES_MAX;
    let id_bytes_max = id::bytes_max(query.id_style, named);
    let mut lookup = PlaceLookup::begin(events, &wishes, query.until_end);
    let begun = lookup.first(wishes.len(), query.until_end || has_long_id).await;
    let begun = begun.map_err(|error| topics::failed(&error, asked.topics[0]))?;
    let is_read = |one: &Begun| one.end.is_some_and(|end| one.position.next() >= end);
    let is_read = query.until_end && begun.iter().flatten().all(is_read);
    let mut projection = query.projection.clone();
    projection.ids = (wishes.len() == 1 && !is_told_texts).then_some(query.id_style);
    let projection = Arc::new(projection);
    let many = || topics::unavailable(&"too many different filters");
    // Before the first track: a reader that one partition refuses ends no filter in another.
    if !wishes.iter().all(|(feed, _)| feed.has_room(&projection, &asked.owner)) {
        return Err(many());
    }
    let (mut list, mut notices, mut awaited) = (Vec::new(), Vec::new(), Vec::new());
    for ((feed, wish), begun) in wishes.into_iter().zip(begun) {
        let track = feed.track(&projection, &asked.owner).ok_or_else(many)?;
        let Some(Begun { position, gap, end }) = begun else {
            awaited.push(Some(lookup.late_wish(wish)));
            list.push(Place::new(feed, track, Position { offset: -1, leader_epoch: -1 }, None));
            continue;
        };
        awaited.push(None);
        if let Some(gap) = gap {
            events.counts.gaps.count(gap.reason.into());
            let mut notice = Vec::new();
            write_gap(is_told_texts, &feed.partition, &gap, &mut notice);
            notices.push(notice);
        }
        list.push(Place::new(feed, track, position, end.filter(|_| query.until_end)));
    }
    let Query { id_style, id_every, slow, lag_max, limit, .. } = *query;
    let manner = Manner { id_style, id_every, id_bytes_max, slow, lag_max, is_told_texts };
    let awaited = AwaitedPlaces { lookup, wishes: awaited };
    let reader = Reader::new(list, manner, limit, awaited, &events.counts);
    notices.extend(reader.waiting_notice());
    Ok(Begin { reader, notices, is_read })
}

/// The feeds of all partitions of the stream, by topic and partition.
async fn feeds(events: &Events, asked: &Asked<'_>) -> Result<Vec<Arc<Feed>>, ApiError> {
    let mut feeds = Vec::new();
    for name in &asked.topics {
        let topic = topics::find(&events.cluster, &events.asking, name).await?;
        let count = topic.partitions.len() as i32;
        let all: Vec<i32>;
        let partitions = match &asked.query.partitions {
            Some(partitions) => partitions,
            None => {
                all = (0..count).collect();
                &all
            }
        };
        if let Some(missing) = partitions.iter().find(|partition| **partition >= count) {
            let words = format!("topic {name} has no partition {missing}: it has {count}");
            return Err(ApiError::new(Kind::NoPartition, words));
        }
        if feeds.len() + partitions.len() > PARTITIONS_MAX {
            return Err(ApiError::new(Kind::Malformed, TOO_MANY));
        }
        feeds.extend(
            partitions
                .iter()
                .map(|partition| events.feeds.get(&events.cluster, &topic, *partition)),
        );
    }
    let named = feeds.iter().map(|feed| (&*feed.partition.topic, feed.partition.partition.0));
    let has_ids = !matches!(asked.query.projection.form, Form::Frame(_));
    if has_ids && id::bytes_max(asked.query.id_style, named) > ID_BYTES_MAX {
        return Err(ApiError::new(Kind::Malformed, TOO_LONG));
    }
    Ok(feeds)
}

const TOO_MANY: &str = "more than 256 partitions in one stream: name some with partitions=0,1,…";
const TOO_LONG: &str =
    "the ids of so many partitions do not fit into a header: use id=short, or partitions=0,1,…";

/// The head of the answer.
pub(super) fn head(opened: &Opened) -> Vec<u8> {
    head_of(opened.is_chunked, opened.origin.as_ref())
}

pub(super) fn head_of(is_chunked: bool, origin: Option<&HeaderValue>) -> Vec<u8> {
    let mut head = Vec::from(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-store, no-transform\r\n\
         x-accel-buffering: no\r\nx-content-type-options: nosniff\r\nvary: Origin\r\nconnection: close\r\n",
    );
    if is_chunked {
        head.extend(b"transfer-encoding: chunked\r\n");
    }
    if let Some(origin) = origin {
        head.extend(header::ACCESS_CONTROL_ALLOW_ORIGIN.as_str().as_bytes());
        head.extend(b": ");
        head.extend(origin.as_bytes());
        head.extend(b"\r\n");
    }
    let date = httpdate::fmt_http_date(std::time::SystemTime::now());
    head.extend(format!("date: {date}\r\n\r\n").as_bytes());
    head
}
