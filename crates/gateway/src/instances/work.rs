//! What is done with an instance, one after the other.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use client::offsets::CommittedOffset;
use client::{ClientError, Consumer, OffsetSpec};
use hyper::HeaderMap;
use hyper::header::CONTENT_TYPE;
use model::{ErrorCode, Offset, TopicPartition};
use serving::error::{ApiError, Kind};

use super::kept::no_instance;
use super::read::{Portion, Read, read};
use super::seat::{Instance, LastAnswer, Seat, rewind};
use crate::answer::{Answer, nothing, text};
use crate::charge::Room;
use crate::produce::of_refusal;
use crate::read::locate;
use crate::request::instances::{Place, Subscription as Wanted, partitions, places, subscription};
use crate::request::{Parameters, Pattern, Wish};
use crate::state::Shared;

/// What is to be done.
pub(super) enum Work {
    Subscribe(Wanted),
    Subscription,
    Unsubscribe,
    Assign(Vec<TopicPartition>),
    Assignment,
    /// These offsets, or those behind all that was read.
    Commit(Option<Vec<Place>>),
    /// Of these partitions, or of those that are read.
    Committed(Option<Vec<TopicPartition>>),
    Read(Portion),
    Seek(Vec<Place>),
    SeekTo(OffsetSpec, Vec<TopicPartition>),
}

impl Work {
    /// What this request asks for; `None` if the instance is to be deleted.
    ///
    /// # Errors
    /// The request cannot be read.
    pub(super) fn of(
        instance: &Instance,
        wish: Wish,
        parameters: &Parameters<'_>,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Option<Work>, ApiError> {
        Ok(Some(match wish {
            Wish::Delete => return Ok(None),
            Wish::Subscribe => Work::Subscribe(subscription(body)?),
            Wish::Subscription => Work::Subscription,
            Wish::Unsubscribe => Work::Unsubscribe,
            Wish::Assign => Work::Assign(partitions(body)?),
            Wish::Assignment => Work::Assignment,
            Wish::Commit => Work::Commit(places(body)?),
            Wish::Committed if body.is_empty() => Work::Committed(None),
            Wish::Committed => Work::Committed(Some(partitions(body)?)),
            Wish::Records => Work::Read(Portion::of(instance, parameters, headers)?),
            Wish::Seek => {
                let missing =
                    || ApiError::new(Kind::Unprocessable, "offsets: expected at least one");
                Work::Seek(places(body)?.ok_or_else(missing)?)
            }
            Wish::SeekToBeginning => Work::SeekTo(OffsetSpec::Earliest, partitions(body)?),
            Wish::SeekToEnd => Work::SeekTo(OffsetSpec::Latest, partitions(body)?),
        }))
    }

    /// How long it may wait for what is not there yet.
    pub(super) fn wait(&self) -> Duration {
        match self {
            Work::Read(portion) => portion.wait(),
            _ => Duration::ZERO,
        }
    }
}

/// Checks the type of a body, if there is one.
///
/// # Errors
/// The body is not said to be JSON.
pub(crate) fn check_type(headers: &HeaderMap, body: &[u8]) -> Result<(), ApiError> {
    let said = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = said.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_json = essence == "application/json"
        || essence.starts_with("application/vnd.kafka.") && essence.ends_with("+json");
    if body.is_empty() || is_json {
        return Ok(());
    }
    let words = format!("Content-Type is {said:?}: expected application/vnd.kafka.v2+json");
    Err(ApiError::new(Kind::MediaType, words))
}

/// An answer, and where its records began.
pub(super) struct Done {
    pub(super) answer: Answer,
    begun: Vec<(TopicPartition, Offset)>,
}

impl Done {
    /// Has records be read again, which no client took.
    pub(super) fn undo(self, seat: &mut Seat) {
        if let Some(consumer) = &mut seat.consumer {
            rewind(consumer, self.begun);
        }
    }
}

/// Does it. `is_wanted`: whether a client waits for the answer.
///
/// # Errors
/// It cannot be done, or the instance was deleted meanwhile.
pub(super) async fn carry_out(
    shared: &Shared,
    instance: &Instance,
    seat: &mut Seat,
    work: Work,
    is_wanted: impl Fn() -> bool + Send,
) -> Result<Done, ApiError> {
    let done = |answer| Done { answer, begun: Vec::new() };
    match work {
        Work::Unsubscribe => {
            consumer_of(seat)?;
            seat.renew().await;
            Ok(done(nothing()))
        }
        Work::Subscribe(Wanted::Topics(topics)) => subscribe(shared, seat, &topics).await.map(done),
        Work::Subscribe(Wanted::Pattern(pattern)) => {
            let room = shared.bodies.of(instance.share_owner());
            follow(shared, &room, seat, pattern).await.map(done)
        }
        Work::Subscription => {
            let pattern = seat.followed.as_ref().map(|followed| followed.pattern.clone());
            Ok(done(subscribed(consumer_of(seat)?, pattern.as_ref())))
        }
        Work::Read(portion) => {
            let Read { body, begun } = read(shared, instance, seat, &portion, is_wanted).await?;
            Ok(Done { answer: Answer::of(portion.format.content_type, body), begun })
        }
        Work::Assign(_) if seat.followed.is_some() => Err(has_subscription()),
        work @ (Work::Assign(_) | Work::Seek(_) | Work::SeekTo(..)) => {
            let answer = ask(shared, consumer_of(seat)?, work).await?;
            // The client has chosen where to read.
            seat.last = LastAnswer::default();
            Ok(done(answer))
        }
        Work::Commit(places) => {
            let consumer = consumer_of(seat)?;
            let committed = places.as_deref().map(|places| read_offsets(consumer, places));
            let answer = commit(consumer, places).await?;
            seat.last.commit(committed);
            Ok(done(answer))
        }
        work => ask(shared, consumer_of(seat)?, work).await.map(done),
    }
}

fn consumer_of(seat: &mut Seat) -> Result<&mut Consumer, ApiError> {
    seat.consumer.as_mut().ok_or_else(no_instance)
}

async fn subscribe(
    shared: &Shared,
    seat: &mut Seat,
    topics: &[String],
) -> Result<Answer, ApiError> {
    let consumer = consumer_of(seat)?;
    let known = consumer.subscription();
    let is_assigned = known.is_empty() && !consumer.assignment().is_empty();
    if seat.followed.is_some() {
        return Err(has_subscription());
    }
    if is_assigned {
        return Err(has_assignment());
    }
    for topic in topics {
        shared.topics.existing(topic).await?;
    }
    if known == topics {
        return Ok(nothing());
    }
    if !known.is_empty() {
        seat.renew().await;
    }
    let names: Vec<&str> = topics.iter().map(String::as_str).collect();
    consumer_of(seat)?.subscribe(&names).map_err(|error| told(&error))?;
    Ok(nothing())
}

/// Subscribes to the topics that match, now and later. The same pattern again looks for topics now.
async fn follow(
    shared: &Shared,
    room: &Room,
    seat: &mut Seat,
    pattern: Pattern,
) -> Result<Answer, ApiError> {
    let consumer = consumer_of(seat)?;
    let is_subscribed = !consumer.subscription().is_empty();
    let is_assigned = !consumer.assignment().is_empty();
    let is_same = seat.followed.as_ref().map(|followed| followed.pattern == pattern);
    match is_same {
        None if is_subscribed => return Err(has_subscription()),
        None if is_assigned => return Err(has_assignment()),
        _ => {}
    }
    let names = shared.instances.names();
    names.renew().await?;
    match is_same {
        Some(true) => {
            seat.keep_up(names).await;
            return Ok(nothing());
        }
        Some(false) => seat.renew().await,
        None => {}
    }
    let followed = names.follow(pattern, room);
    seat.follow(followed, names).await?;
    Ok(nothing())
}

fn has_assignment() -> ApiError {
    let words = "this instance has partitions assigned: DELETE its subscription, which ends that too, and subscribe then";
    ApiError::new(Kind::Exclusive, words)
}

fn has_subscription() -> ApiError {
    let words = "this instance has a subscription, and topics, a pattern and assigned partitions exclude each other: DELETE the \
                 subscription first";
    ApiError::new(Kind::Exclusive, words)
}

async fn ask(shared: &Shared, consumer: &mut Consumer, work: Work) -> Result<Answer, ApiError> {
    match work {
        Work::Assign(partitions) => assign(shared, consumer, &partitions).await,
        Work::Assignment => Ok(assignment(consumer)),
        Work::Committed(partitions) => committed(consumer, partitions).await,
        Work::Seek(places) => {
            check_read(consumer, places.iter().map(|place| &place.partition))?;
            rewind(consumer, places.into_iter().map(|place| (place.partition, place.offset)));
            Ok(nothing())
        }
        Work::SeekTo(end, partitions) => seek_to(consumer, end, &partitions).await,
        Work::Subscribe(_)
        | Work::Subscription
        | Work::Unsubscribe
        | Work::Read(_)
        | Work::Commit(_) => {
            unreachable!("done above")
        }
    }
}

async fn assign(
    shared: &Shared,
    consumer: &mut Consumer,
    partitions: &[TopicPartition],
) -> Result<Answer, ApiError> {
    if !consumer.subscription().is_empty() {
        return Err(has_subscription());
    }
    for partition in partitions {
        locate(shared, &partition.topic, partition.partition.0).await?;
    }
    consumer.assign(partitions).await.map_err(|error| told(&error))?;
    Ok(nothing())
}

fn subscribed(consumer: &Consumer, pattern: Option<&Pattern>) -> Answer {
    let topics: Vec<String> = consumer.subscription().iter().map(|topic| text(topic)).collect();
    let mut by_topic: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for partition in consumer.assignment() {
        by_topic
            .entry(partition.topic.to_string())
            .or_default()
            .push(partition.partition.to_string());
    }
    let partitions: Vec<String> = by_topic
        .iter()
        .map(|(topic, list)| format!("{{{}:[{}]}}", text(topic), list.join(",")))
        .collect();
    let (topics, partitions) = (topics.join(","), partitions.join(","));
    let pattern =
        pattern.map(|pattern| format!(",\"topic_pattern\":{}", text(pattern.expression())));
    let pattern = pattern.unwrap_or_default();
    Answer::as_proxies(format!("{{\"topics\":[{topics}],\"partitions\":[{partitions}]{pattern}}}"))
}

fn assignment(consumer: &Consumer) -> Answer {
    let one = |partition: &TopicPartition| {
        let (topic, index) = (text(&partition.topic), partition.partition);
        format!("{{\"topic\":{topic},\"partition\":{index}}}")
    };
    let all: Vec<String> = consumer.assignment().iter().map(one).collect();
    Answer::as_proxies(format!("{{\"partitions\":[{}]}}", all.join(",")))
}

/// Offsets that a client commits, each at most the next one to read: a repetition must not skip records that no answer had.
fn read_offsets(consumer: &Consumer, places: &[Place]) -> Vec<(TopicPartition, Offset)> {
    let read = |Place { partition, offset, .. }: &Place| {
        let position = consumer.position(partition).unwrap_or(*offset);
        (partition.clone(), position.min(*offset))
    };
    places.iter().map(read).collect()
}

async fn commit(consumer: &mut Consumer, places: Option<Vec<Place>>) -> Result<Answer, ApiError> {
    let committed = match places {
        None => consumer.commit().await,
        Some(places) => {
            let offsets: HashMap<_, _> = places
                .into_iter()
                .map(|Place { partition, offset, metadata }| {
                    (partition, CommittedOffset { metadata, ..CommittedOffset::at(offset) })
                })
                .collect();
            consumer.commit_offsets(&offsets).await
        }
    };
    committed.map(|()| nothing()).map_err(|error| told(&error))
}

async fn committed(
    consumer: &Consumer,
    partitions: Option<Vec<TopicPartition>>,
) -> Result<Answer, ApiError> {
    let partitions = partitions.unwrap_or_else(|| consumer.assignment());
    let found = consumer.committed(&partitions).await.map_err(|error| told(&error))?;
    let one = |partition: &TopicPartition| {
        let committed = found.get(partition)?;
        let (topic, index, offset) =
            (text(&partition.topic), partition.partition, committed.offset);
        let metadata = text(committed.metadata.as_deref().unwrap_or_default());
        Some(format!(
            "{{\"topic\":{topic},\"partition\":{index},\"offset\":{offset},\"metadata\":{metadata}}}"
        ))
    };
    let all: Vec<String> = partitions.iter().filter_map(one).collect();
    Ok(Answer::as_proxies(format!("{{\"offsets\":[{}]}}", all.join(","))))
}

async fn seek_to(
    consumer: &mut Consumer,
    end: OffsetSpec,
    partitions: &[TopicPartition],
) -> Result<Answer, ApiError> {
    check_read(consumer, partitions.iter())?;
    let wanted: Vec<_> = partitions.iter().map(|partition| (partition.clone(), end)).collect();
    let found = consumer.offsets(&wanted).await.map_err(|error| told(&error))?;
    let places =
        found.into_iter().map(|(partition, at)| (partition, at.offset.unwrap_or(Offset(0))));
    rewind(consumer, places);
    Ok(nothing())
}

/// Checks that an instance reads these partitions.
fn check_read<'a>(
    consumer: &Consumer,
    mut partitions: impl Iterator<Item = &'a TopicPartition>,
) -> Result<(), ApiError> {
    let assignment = consumer.assignment();
    let Some(other) = partitions.find(|partition| assignment.binary_search(partition).is_err())
    else {
        return Ok(());
    };
    let words = format!(
        "this instance does not read {other} now: assign it, or subscribe and read once, so that the group \
         gives partitions to the instance"
    );
    Err(ApiError::new(Kind::NoPartition, words))
}

/// What a client is told of a failure.
pub(super) fn told(error: &ClientError) -> ApiError {
    match error.code() {
        Some(
            ErrorCode::RebalanceInProgress
            | ErrorCode::IllegalGeneration
            | ErrorCode::UnknownMemberId,
        ) => {
            let words =
                format!("{error}: the group shares its partitions out anew: read again first");
            ApiError::new(Kind::KafkaForNow, words)
        }
        Some(ErrorCode::UnknownTopicOrPartition) => {
            ApiError::new(Kind::NoPartition, error.to_string())
        }
        Some(ErrorCode::GroupAuthorizationFailed) => {
            ApiError::new(Kind::Unauthorized, error.to_string())
        }
        Some(ErrorCode::OffsetOutOfRange) => ApiError::new(Kind::OutOfRange, error.to_string()),
        _ => of_refusal(error),
    }
}
