//! Reads of the past, for readers whose next records are not in memory: one fetch, of which all readers at the same place
//! have the chunks.

use std::sync::Arc;
use std::time::Duration;

use client::{ClientError, Once, read_once};
use model::{ErrorCode, Offset};

use super::Events;
use super::feed::{Feed, Track};

/// Bytes of one read.
const READ_BYTES_MAX: i32 = 256 * 1024;

/// What came of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CaughtUp {
    /// There is a chunk now, or another reader looks for it and the bell will ring.
    Soon,
    /// Nothing can be read at this place now.
    Nothing,
    /// The log has no such place.
    Outside,
}

/// Reads from this offset on.
pub(super) async fn catch_up(
    events: &Events,
    feed: &Arc<Feed>,
    track: &Arc<Track>,
    offset: i64,
) -> Result<CaughtUp, ClientError> {
    let Some(_reading) = track.begin_reading(offset) else { return Ok(CaughtUp::Soon) };
    let closed = |_| ClientError::ClientClosed;
    let _permit = events.asking.acquire().await.map_err(closed)?;
    if track.find(offset).is_some() {
        return Ok(CaughtUp::Soon);
    }
    events.counts.catch_ups.add(1);
    let wish = Once {
        partition: feed.partition.clone(),
        offset: Offset(offset),
        bytes_max: READ_BYTES_MAX,
        wait: Duration::ZERO,
        read_committed: true,
    };
    let fetched = match read_once(&events.lane, &wish).await {
        Ok(fetched) if fetched.is_empty() => return Ok(CaughtUp::Nothing),
        Ok(fetched) => fetched,
        Err(error) if error.code() == Some(ErrorCode::OffsetOutOfRange) => {
            return Ok(CaughtUp::Outside);
        }
        Err(error) => {
            if error.is_retriable() {
                // The leader may be another one by now; else this fails as before.
                let _ = events.cluster.refresh().await;
            }
            return Err(error);
        }
    };
    feed.take(std::slice::from_ref(track), &fetched, &mut Vec::new());
    Ok(CaughtUp::Soon)
}
