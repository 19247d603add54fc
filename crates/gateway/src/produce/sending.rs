//! The records of one request: each is sent or refused at once, and each that was sent is waited for.

use std::sync::Arc;
use std::time::Duration;

use client::Delivery;
use serving::choice::{Choice, Pair, Rule};
use serving::error::{ApiError, Kind};
use tokio::time::{Instant, timeout_at};

use super::fate::{Place, of_lost, of_refusal};
use super::topic::Topic;
use super::topics::{DELIVERY_MAX, Topics};
use crate::request::draft::Draft;

/// The producer decides within [`DELIVERY_MAX`], but for what a broker is silent about: that is undecided then.
const ANSWER_MAX: Duration = DELIVERY_MAX.saturating_add(Duration::from_secs(1));

/// A record of a request.
pub(super) struct Slot {
    /// Where it goes; `None` if that was not decided.
    pub(super) choice: Option<Choice>,
    state: Result<Delivery, ApiError>,
}

impl Slot {
    /// Why the record was not sent; `None` if it was.
    pub(super) fn refusal(&self) -> Option<&ApiError> {
        self.state.as_ref().err()
    }
}

/// What became of a record.
pub(super) struct Outcome {
    /// Where it went; `None` if that was not decided.
    pub(super) choice: Option<Choice>,
    /// Its offset, acknowledged.
    pub(super) result: Result<i64, ApiError>,
}

/// Sends records of a request in their order. What cannot be sent is refused; behind a record for which there is no
/// memory none is sent, so that records of a partition keep their order.
pub(super) fn send_all(
    topics: &Topics,
    topic: &Topic,
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
            Ok(choice) => send(topics, topic, draft, choice),
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

fn send(
    topics: &Topics,
    topic: &Topic,
    draft: &Draft<'_>,
    choice: Choice,
) -> Result<Delivery, ApiError> {
    let partition = choice.partition;
    // A partition without a leader may not fill the buffer for all others.
    let quarter = topics.buffer_bytes() / 4;
    if topic.waiting_bytes(partition) >= quarter && place(topics, topic, partition) != Place::Led {
        return Err(ApiError::new(Kind::NoLeader, "the partition has no leader now"));
    }
    match topic.send(draft, choice) {
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

/// Waits until every record is acknowledged or given up.
pub(super) async fn settle(topics: &Topics, topic: &Arc<Topic>, slots: Vec<Slot>) -> Vec<Outcome> {
    let deadline = Instant::now() + ANSWER_MAX;
    let mut outcomes = Vec::with_capacity(slots.len());
    for Slot { choice, state } in slots {
        let result = match state {
            Ok(delivery) => acknowledged(topics, topic, &delivery, deadline).await,
            Err(error) => Err(error),
        };
        outcomes.push(Outcome { choice, result });
    }
    outcomes
}

async fn acknowledged(
    topics: &Topics,
    topic: &Topic,
    delivery: &Delivery,
    deadline: Instant,
) -> Result<i64, ApiError> {
    let undecided = |words: &'static str| ApiError::new(Kind::Undecided, words);
    match timeout_at(deadline, delivery.fate()).await {
        Ok(Ok(Some(offset))) => Ok(offset.0),
        Ok(Ok(None)) => {
            Err(undecided("the record is written, and no broker tells its offset any more"))
        }
        Ok(Err(lost)) => {
            let place = match topics.is_gone(topic) {
                true => Place::Gone,
                false => place(topics, topic, delivery.partition()),
            };
            Err(of_lost(&lost, place))
        }
        Err(_) => {
            Err(undecided("no broker has acknowledged the record in time, and it may be written"))
        }
    }
}
