//! The records of one request: each is sent or refused at once, and each that was sent is waited for.

use std::time::Duration;

use client::Delivery;
use client::producer::{Intake, Undelivered};
use model::{Offset, Timestamp};
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

/// Records of a request that are sent in a row: choices and batches are not let go between them.
const ROW_MAX: usize = 256;
/// Bytes of a row behind which another one begins.
const ROW_BYTES: usize = 64 * 1024;

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
    let (mut rest, mut is_full) = (drafts, false);
    while !rest.is_empty() {
        let (row, behind) = rest.split_at(row_length(rest));
        // Before the producer's batches: no choice waits for others while they are held.
        let mut choices = topic.choices(|| topics.cluster().metadata());
        way.producer.intake(|intake| {
            for draft in row {
                let placed = choices.place(intake, draft, given, pair);
                let choice = placed.as_ref().ok().copied();
                let state = match placed {
                    Err(error) => Err(error),
                    Ok(_) if is_full => Err(full()),
                    Ok(choice) => send(topics, topic, way, intake, draft, choice),
                };
                is_full |= state.as_ref().is_err_and(|error| error.kind == Kind::Full);
                if let (Ok(_), Some(choice)) = (&state, choice) {
                    let named = given.or(draft.partition).is_some();
                    choices.count(if named { Rule::Given } else { Rule::Chosen(pair) }, choice);
                }
                slots.push(Slot { choice, state });
            }
        });
        rest = behind;
    }
    slots
}

/// How many of these records are sent in a row, before others get their turn.
fn row_length(drafts: &[Draft<'_>]) -> usize {
    let mut bytes = 0;
    let is_behind = |draft: &Draft<'_>| {
        let is_behind = bytes >= ROW_BYTES;
        bytes += draft.size_bytes();
        is_behind
    };
    let row = &drafts[..drafts.len().min(ROW_MAX)];
    row.iter().position(is_behind).unwrap_or(row.len())
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
    intake: &mut Intake<'_>,
    draft: &Draft<'_>,
    choice: Choice,
) -> Result<Delivery, ApiError> {
    let partition = choice.partition;
    // A partition without a leader may not fill the buffer for all others.
    let quarter = way.buffer_bytes / 4;
    if intake.waiting_bytes(partition) >= quarter && place(topics, topic, partition) != Place::Led {
        return Err(ApiError::new(Kind::NoLeader, "the partition has no leader now"));
    }
    match super::way::send(intake, draft, choice) {
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
    // Records of a batch end together: few are waited for, and one timer is enough for all.
    let settling = settle_into(&mut outcomes, topics, topic, &slots);
    if timeout_at(deadline, settling).await.is_err() {
        let rest = slots[outcomes.len()..].iter();
        outcomes.extend(rest.map(|slot| Outcome {
            choice: slot.choice,
            result: slot.known(topics, topic).unwrap_or_else(|| Err(late())),
        }));
    }
    outcomes
}

/// Waits until every record is acknowledged or given up, however long that takes.
pub(super) async fn settle_all(topics: &Topics, topic: &Topic, slots: Vec<Slot>) -> Vec<Outcome> {
    let mut outcomes = Vec::with_capacity(slots.len());
    settle_into(&mut outcomes, topics, topic, &slots).await;
    outcomes
}

async fn settle_into(outcomes: &mut Vec<Outcome>, topics: &Topics, topic: &Topic, slots: &[Slot]) {
    for slot in slots {
        let result = match slot.known(topics, topic) {
            Some(result) => result,
            None => slot.settled(topics, topic).await,
        };
        outcomes.push(Outcome { choice: slot.choice, result });
    }
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
        told(topics, topic, delivery, delivery.place().await)
    }

    /// What became of the record, if that is known.
    fn known(&self, topics: &Topics, topic: &Topic) -> Option<Result<Landed, ApiError>> {
        match &self.state {
            Err(error) => Some(Err(error.clone())),
            Ok(delivery) => Some(told(topics, topic, delivery, delivery.known()?)),
        }
    }
}

/// What a client is told of a record of which the producer knows this.
fn told(
    topics: &Topics,
    topic: &Topic,
    delivery: &Delivery,
    place: Result<(Option<Offset>, Timestamp), Undelivered>,
) -> Result<Landed, ApiError> {
    match place {
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
                false => self::place(topics, topic, delivery.partition()),
            };
            Err(of_lost(&lost, place))
        }
    }
}
