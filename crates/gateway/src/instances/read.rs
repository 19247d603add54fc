//! The next records of an instance.

use std::time::Duration;

use bytes::Bytes;
use client::{Consumer, Fetched};
use hyper::HeaderMap;
use model::{Offset, TopicPartition};
use serving::error::{ApiError, Kind};
use tokio::time::Instant;

use super::kept::no_instance;
use super::seat::{FETCH_BYTES, Instance, LastAnswer, Seat, rewind};
use super::work::told;
use crate::charge::{Charge, Room};
use crate::read::Page;
use crate::request::Parameters;
use crate::request::read::{BYTES_MAX, Format, RECORDS_MAX, WAIT_MAX_MS, form_of_instance};
use crate::state::Shared;

/// How long records are waited for between two looks at whether anything still wants them.
const SLICE: Duration = Duration::from_millis(200);

/// What a request wants to read.
pub(super) struct Portion {
    wait: Duration,
    bytes_max: usize,
    /// Whether the answer begins where the last one began.
    is_repeat: bool,
    pub(super) format: Format,
}

impl Portion {
    /// What this request wants of this instance.
    ///
    /// # Errors
    /// A parameter cannot be used, or the request takes another form than the instance has.
    pub(super) fn of(
        instance: &Instance,
        parameters: &Parameters<'_>,
        headers: &HeaderMap,
    ) -> Result<Portion, ApiError> {
        let number = |name: &str| match parameters.get(name).map(str::parse::<u64>) {
            None => Ok(None),
            Some(Ok(number)) => Ok(Some(number)),
            Some(Err(_)) => {
                Err(ApiError::new(Kind::Unprocessable, format!("{name}: expected a number")))
            }
        };
        let wait = number("timeout")?.map(|ms| Duration::from_millis(ms.min(WAIT_MAX_MS)));
        let bytes_max = number("max_bytes")?.map_or(BYTES_MAX, |bytes| {
            usize::try_from(bytes).unwrap_or(BYTES_MAX).clamp(1, BYTES_MAX)
        });
        Ok(Portion {
            wait: wait.unwrap_or(instance.wait),
            bytes_max,
            is_repeat: parameters.is_set("repeat")?,
            format: form_of_instance(headers, instance.embedded)?,
        })
    }

    /// Memory for an answer of so many fetched bytes, or of what may be in one that is small.
    ///
    /// # Errors
    /// There is none.
    fn charged(&self, room: &Room, fetched_bytes: usize) -> Result<Charge, ApiError> {
        let mut charge = Charge::new(room);
        // Batches come whole, and what is written of them is as large again.
        charge.set((2 * fetched_bytes).max(self.bytes_max.min(FETCH_BYTES as usize)))?;
        Ok(charge)
    }

    /// How long a read may wait for records.
    pub(super) fn wait(&self) -> Duration {
        self.wait
    }
}

/// Records, and where they began: to go back to if no client takes them.
pub(super) struct Read {
    pub(super) body: Bytes,
    pub(super) begun: Vec<(TopicPartition, Offset)>,
}

/// Reads what comes first, until there is a record, the time is over, or `is_wanted` says no.
///
/// # Errors
/// The records cannot be read, or written in this form; the consumer is where it was before.
pub(super) async fn read(
    shared: &Shared,
    instance: &Instance,
    seat: &mut Seat,
    portion: &Portion,
    is_wanted: impl Fn() -> bool,
) -> Result<Read, ApiError> {
    let until = Instant::now() + portion.wait;
    // Whoever finds no room is told at once. While it waits it holds none: there may be a thousand, and members of a group wait
    // for each other.
    let room = shared.reading.of(instance.share_owner());
    drop(portion.charged(&room, 0)?);
    if portion.is_repeat {
        seat.repeat_last();
    }
    loop {
        // A read that waits uses the instance all the time.
        instance.touch();
        seat.keep_up(shared.instances.names()).await;
        let consumer = seat.consumer.as_mut().ok_or_else(no_instance)?;
        let left = until.saturating_duration_since(Instant::now());
        // A poll is never broken off: it may be joining the group.
        let fetched = consumer.poll(left.min(SLICE)).await.map_err(|error| told(&error))?;
        let begun: Vec<_> =
            fetched.iter().map(|one| (one.partition.clone(), one.fetch_offset)).collect();
        match write(consumer, portion, fetched, &room) {
            Ok(Some(body)) => {
                let generation = consumer.generation_id();
                seat.last = LastAnswer { begun: begun.clone(), generation };
                return Ok(Read { body, begun });
            }
            Ok(None) => {}
            Err(error) => {
                rewind(consumer, begun);
                return Err(error);
            }
        }
        if shared.is_stopping() {
            return Err(ApiError::new(Kind::Unavailable, "the gateway stops"));
        }
        if instance.is_gone() {
            return Err(no_instance());
        }
        if left.is_zero() || !is_wanted() {
            // An empty answer leaves the former answer repeatable.
            return Ok(Read { body: Bytes::from_static(b"[]"), begun: Vec::new() });
        }
    }
}

/// Writes as many records as there is room for, and has the consumer go on behind them: an answer that is charged until it is
/// sent, or `None` if there is nothing for users in what was fetched.
fn write(
    consumer: &mut Consumer,
    portion: &Portion,
    fetched: Vec<Fetched>,
    room: &Room,
) -> Result<Option<Bytes>, ApiError> {
    if fetched.is_empty() {
        return Ok(None);
    }
    let charge = portion.charged(room, fetched.iter().map(Fetched::size_bytes).sum())?;
    let text_bytes_max = charge.limit_bytes();
    let mut page =
        Page::new(portion.format.embedded, RECORDS_MAX, portion.bytes_max, text_bytes_max);
    let mut refused = None;
    for one in fetched {
        let next = match page.take(&one) {
            Ok(next) => next,
            // Records of other partitions need not wait for a client that steps over this one.
            Err(error) if error.kind == Kind::NotAcceptable => {
                refused.get_or_insert(error);
                one.fetch_offset
            }
            Err(error) => return Err(error),
        };
        if next != one.next_offset {
            rewind(consumer, [(one.partition, next)]);
        }
    }
    if page.is_empty() {
        return match refused {
            Some(ApiError { kind, message }) => {
                Err(ApiError::new(kind, format!("{message} (POST …/positions)")))
            }
            None => Ok(None),
        };
    }
    charge.hold(page.finish().into_bytes()).map(Some)
}
