//! The records of one request: each is sent or refused at once, and each that was sent is waited for.

use std::time::Duration;

use client::Delivery;
use model::Timestamp;
use serving::choice::{Choice, Pair, Rule};
use serving::error::{ApiError, Kind};
use tokio::time::{Instant, timeout_at};

use super::fate::{Place, of_lost, of_refusal};
use super::topic::Topic;
use super::topics::{DELIVERY_MAX, Topics};
use super::way::Way;
use crate::request::draft::Draft;

/// The producer decides within [`DELIVERY_MAX`], but for what a broker is silent about: that is undecided then.
pub(super) const ANSWER_MAX: Duration = DELIVERY_MAX.saturating_add(Duration::from_secs(1));

/// A record of a request.
pub(super) struct Slot {
    /// Where it goes; `None` if that was not decided.
    pub(super) choice: Option<Choice>,
    state: Result<Delivery, ApiError>,
}

impl Slot {
    /// A record that is not sent.
    pub(super) fn refused(error: ApiError) -> Slot {
        Slot { choice: None, state: Err(error) }
    }

    /// Whether its outcome is known.
    pub(super) fn is_known(&self) -> bool {
        self.state.as_ref().map_or(true, Delivery::is_done)
    }

    /// Why the record was not sent; `None` if it was.
    pub(super) fn refusal(&self) -> Option<&ApiError> {
        self.state.as_ref().err()
    }
}

/// Where an acknowledged record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Landed {
    pub(super) offset: i64,
    /// When the broker appended it, in milliseconds since 1970, if the topic has that for its time.
    pub(super) appended_ms: Option<i64>,
}

/// What became of a record.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    /// Where it went; `None` if that was not decided.
    pub(super) choice: Option<Choice>,
    /// Where it is, acknowledged.
    pub(super) result: Result<Landed, ApiError>,
}

/// Sends records of a request in their order. What cannot be sent is refused; behind a record for which there is no
/// memory none is sent, so that records of a partition keep their order.
pub(super) fn send_all(
    topics: &Topics,
    topic: &Topic,
    way: &Way,
    drafts: &[Draft<'_>],
    given: Option<i32>,
    pair: Pair,
) -> Vec<Slot> {
    let mut slots = Vec::with_capacity(drafts.len());
    let mut is_full = false;
    for draft in drafts {
        let placed = topic.place(draft, given, pair, || topics.cluster().metadata());
        let choice = placed.as_ref().ok().copied();
        let state = match placed {
            Err(error) => Err(error),
            Ok(_) if is_full => Err(full()),
            Ok(choice) => send(topics, topic, way, draft, choice),
        };
        is_full |= state.as_ref().is_err_and(|error| error.kind == Kind::Full);
        if let (Ok(_), Some(choice)) = (&state, choice) {
            let named = given.or(draft.partition).is_some();
            topic.count(if named { Rule::Given } else { Rule::Chosen(pair) }, choice);
        }
        slots.push(Slot { choice, state });
    }
    slots
}

fn full() -> ApiError {
    ApiError::new(Kind::Full, "the gateway's buffer is full")
}

/// Refuses a record of its own that has neither a partition nor the key that the partitioner needs: it would go where an
/// empty key goes. Records of a request are looked at together.
pub(super) fn check_key(draft: &Draft<'_>, pair: Pair) -> Result<(), ApiError> {
    if pair.needs_key() && draft.key.is_none() && draft.partition.is_none() {
        let words =
            "there is no key, which the partitioner needs: give one, or choose another partitioner";
        return Err(ApiError::new(Kind::Unprocessable, words));
    }
    Ok(())
}

fn send(
    topics: &Topics,
    topic: &Topic,
    way: &Way,
    draft: &Draft<'_>,
    choice: Choice,
) -> Result<Delivery, ApiError> {
    let partition = choice.partition;
    // A partition without a leader may not fill the buffer for all others.
    let quarter = way.buffer_bytes / 4;
    if way.producer.waiting_bytes(partition) >= quarter
        && place(topics, topic, partition) != Place::Led
    {
        return Err(ApiError::new(Kind::NoLeader, "the partition has no leader now"));
    }
    match way.send(draft, choice) {
        Ok(Some(delivery)) => Ok(delivery),
        Ok(None) => Err(full()),
        Err(error) => Err(of_refusal(&error)),
    }
}

fn place(topics: &Topics, topic: &Topic, partition: i32) -> Place {
    let metadata = topics.cluster().metadata();
    match metadata.topics.get(&*topic.name) {
        None => Place::Gone,
        Some(known) if known.leader(partition).is_none() => Place::Leaderless,
        Some(_) => Place::Led,
    }
}

/// Waits until every record is acknowledged or given up, until `deadline` at most.
pub(super) async fn settle(
    topics: &Topics,
    topic: &Topic,
    slots: Vec<Slot>,
    deadline: Instant,
) -> Vec<Outcome> {
    let mut outcomes = Vec::with_capacity(slots.len());
    for slot in slots {
        let choice = slot.choice;
        let result = match timeout_at(deadline, slot.settled(topics, topic)).await {
            Ok(result) => result,
            Err(_) => Err(late()),
        };
        outcomes.push(Outcome { choice, result });
    }
    outcomes
}

/// Waits until every record is acknowledged or given up, however long that takes.
pub(super) async fn settle_all(topics: &Topics, topic: &Topic, slots: Vec<Slot>) -> Vec<Outcome> {
    let mut outcomes = Vec::with_capacity(slots.len());
    for slot in slots {
        let choice = slot.choice;
        outcomes.push(Outcome { choice, result: slot.settled(topics, topic).await });
    }
    outcomes
}

/// The error of a record whose acknowledgement is not waited for any longer.
pub(super) fn late() -> ApiError {
    let words = "no broker has acknowledged the record in time, and it may be written";
    ApiError::new(Kind::Undecided, words)
}

impl Slot {
    /// Waits until the record is acknowledged or given up.
    pub(super) async fn settled(&self, topics: &Topics, topic: &Topic) -> Result<Landed, ApiError> {
        let delivery = self.state.as_ref().map_err(ApiError::clone)?;
        match delivery.place().await {
            Ok((Some(offset), appended)) => {
                let appended_ms = (appended != Timestamp::NONE).then_some(appended.0);
                Ok(Landed { offset: offset.0, appended_ms })
            }
            Ok((None, _)) => {
                let words = "the record is written, and no broker tells its offset any more";
                Err(ApiError::new(Kind::Undecided, words))
            }
            Err(lost) => {
                let place = match topics.is_gone(topic) {
                    true => Place::Gone,
                    false => place(topics, topic, delivery.partition()),
                };
                Err(of_lost(&lost, place))
            }
        }
    }
}
