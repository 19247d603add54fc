//! A request for records of a partition, from an offset or a time on.

use std::time::Duration;

use bytes::Bytes;
use client::OffsetSpec;
use client::Once;
use hyper::header::{HeaderName, HeaderValue};
use hyper::http::request::Parts;
use model::{Offset, Timestamp, TopicPartition};
use serving::error::{ApiError, Kind};
use tokio::time::Instant;

use super::page::Page;
use super::whereabouts::{locate, offset};
use crate::answer::Answer;
use crate::charge::Charge;
use crate::request::Parameters;
use crate::request::read::{Piece, Start, piece};
use crate::share_owner::ShareOwner;
use crate::state::Shared;

/// Bytes that a read asks for which waits: it is answered with what comes first, and holds no more memory until then.
const WAITING_BYTES: usize = 64 * 1024;
/// The header that says at which offset to read on. Not all offsets have records, so the last record does not tell.
const NEXT_OFFSET: HeaderName = HeaderName::from_static("x-next-offset");
/// The header that says where the partition ends for readers.
const HIGH_WATERMARK: HeaderName = HeaderName::from_static("x-high-watermark");

/// Answers with records, or with an empty list if there are none in time.
pub(crate) async fn records(
    shared: &Shared,
    topic: &str,
    partition: i32,
    parameters: &Parameters<'_>,
    parts: &Parts,
) -> Result<Answer, ApiError> {
    let piece = piece(parameters, &parts.headers)?;
    let owner = ShareOwner::of(parts);
    let partition = locate(shared, topic, partition).await?;
    let offset = begin(shared, &partition, &piece).await?;
    let reading = read(shared, &owner, &partition, offset, &piece);
    let read = tokio::select! {
        read = reading => read?,
        () = shared.stopped() => return Err(ApiError::new(Kind::Unavailable, "the gateway stops")),
    };
    let answer = Answer::of(piece.format.content_type, read.body)
        .with(NEXT_OFFSET, HeaderValue::from(read.next.0))
        .with(HIGH_WATERMARK, HeaderValue::from(read.high_watermark.0));
    Ok(answer)
}

/// The offset to begin at. At a time behind all records that is the end.
async fn begin(
    shared: &Shared,
    partition: &TopicPartition,
    piece: &Piece,
) -> Result<Offset, ApiError> {
    let found = |spec| offset(shared, partition, spec, piece.read_committed);
    let at = match piece.start {
        Start::Offset(offset) => Some(offset),
        Start::Earliest => found(OffsetSpec::Earliest).await?,
        Start::Latest => found(OffsetSpec::Latest).await?,
        Start::Time(ms) => match found(OffsetSpec::AtOrAfter(Timestamp(ms))).await? {
            None => found(OffsetSpec::Latest).await?,
            at => at,
        },
    };
    Ok(Offset(at.unwrap_or(0)))
}

/// What was read.
struct Read {
    body: Bytes,
    next: Offset,
    high_watermark: Offset,
}

/// Reads until there is a record or the time is over. What has no record for users (markers of transactions, aborted
/// records) is passed.
async fn read(
    shared: &Shared,
    owner: &ShareOwner,
    partition: &TopicPartition,
    mut offset: Offset,
    piece: &Piece,
) -> Result<Read, ApiError> {
    let until = Instant::now() + piece.wait;
    let (cluster, lanes) = (shared.topics.cluster(), &shared.lanes);
    let text_bytes_max = shared.reading.limit_bytes();
    let mut page =
        Page::new(piece.format.embedded, piece.records_max, piece.bytes_max, text_bytes_max);
    let mut charge = Charge::new(&shared.reading.of(owner.clone()));
    let mut may_wait = false;
    loop {
        let wait = until.saturating_duration_since(Instant::now());
        let bytes_max = if may_wait { piece.bytes_max.min(WAITING_BYTES) } else { piece.bytes_max };
        let wish = Once {
            partition: partition.clone(),
            offset,
            bytes_max: i32::try_from(bytes_max).unwrap_or(i32::MAX),
            wait,
            read_committed: piece.read_committed,
        };
        charge.set(bytes_max)?;
        let waited = match may_wait {
            true => lanes.waiting(cluster, owner, &wish).await,
            false => None,
        };
        let fetched = match waited {
            Some(fetched) => fetched?,
            None => lanes.now(cluster, &Once { wait: Duration::ZERO, ..wish }).await?,
        };
        // The first batch comes whole, and what is written of it is as large again.
        charge.set(bytes_max.max(2 * fetched.size_bytes()))?;
        let next = page.take(&fetched)?;
        let has_moved = next > offset;
        offset = next;
        let is_over = !has_moved && Instant::now() >= until;
        if !page.is_empty() || is_over {
            let body = charge.hold(page.finish().into_bytes())?;
            return Ok(Read { body, next, high_watermark: fetched.high_watermark });
        }
        may_wait = !has_moved;
    }
}
