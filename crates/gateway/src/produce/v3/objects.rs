//! The objects of a body that comes in chunks, one after the other. What is not an object yet is charged for.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use serving::error::{ApiError, Kind};
use tokio::time::{Instant, sleep, sleep_until};

use crate::charge::{Charge, Room};
use crate::front::Pace;
use crate::request::body::revoked;
use crate::request::v3::Splitter;
use crate::state::Shared;

/// A client that has ended its side is known by then to have sent nothing more: what it sent lies within this process.
const CLOSED_MAX: Duration = Duration::from_secs(1);
/// Bytes that a buffer may have besides, so that it is not made anew for each part of a body.
const SLACK_BYTES: usize = 16 * 1024;
/// How much longer than an object the time between two of them may be.
const IDLE_FACTOR: u32 = 10;

/// Objects that come in.
pub(super) struct Objects {
    body: Incoming,
    pace: Pace,
    splitter: Splitter,
    /// What has come, of which the first `taken_bytes` were taken.
    buffer: Vec<u8>,
    taken_bytes: usize,
    /// Invariant: as much as was not taken. The buffer is at most four times as large, and
    /// [`SLACK_BYTES`].
    charge: Charge,
    /// The object that is whole, in what was not taken.
    found: Option<std::ops::Range<usize>>,
    bytes_max: usize,
    /// How long an object may take from its first byte on.
    object_max: Duration,
    /// When the first byte of an object must have come, or the last one.
    due: Instant,
}

impl Objects {
    pub(super) fn new(shared: &Shared, room: &Room, body: Incoming, pace: Pace) -> Objects {
        let object_max = shared.settings.body_timeout;
        Objects {
            body,
            pace,
            splitter: Splitter::default(),
            buffer: Vec::new(),
            taken_bytes: 0,
            charge: Charge::new(room),
            found: None,
            bytes_max: shared.settings.request_bytes_max,
            object_max,
            due: Instant::now() + object_max * IDLE_FACTOR,
        }
    }

    /// Waits until the next object is whole; `false` if there is none, because the body has ended. Dropped while it
    /// waits, it has lost nothing.
    ///
    /// # Errors
    /// What comes is not an object, too large, too slow, or more than there is memory for.
    pub(super) async fn next(&mut self) -> Result<bool, ApiError> {
        while self.found.is_none() {
            let was_within = self.splitter.is_within();
            let found = self.splitter.next(&self.buffer[self.taken_bytes..]);
            self.found = found.map_err(|why| ApiError::new(Kind::Malformed, why.to_string()))?;
            let length = self.found.as_ref().map_or(self.rest().len(), |found| found.len());
            if length > self.bytes_max {
                return Err(self.too_large());
            }
            if self.found.is_some() {
                break;
            }
            match (was_within, self.splitter.is_within()) {
                (false, true) => self.due = Instant::now() + self.object_max,
                // Blanks between two objects.
                (_, false) => self.forget(self.rest().len())?,
                (true, true) => {}
            }
            if !self.more().await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The same while a stream reads. While the stream does not, waits until clients with fewer bytes need the memory: as
    /// long as a revoked lease is held, the pool may revoke no other.
    ///
    /// # Errors
    /// The memory is needed, or the errors of [`Objects::next`].
    pub(super) async fn next_if(&mut self, reads: bool) -> Result<bool, ApiError> {
        if reads {
            return self.next().await;
        }
        self.revoked().await;
        Err(revoked())
    }

    /// The object that is whole.
    pub(super) fn object(&self) -> &[u8] {
        let found = self.found.clone().expect("an object is whole");
        &self.rest()[found]
    }

    /// Goes on behind the object that was whole.
    pub(super) fn taken(&mut self) {
        if let Some(found) = self.found.take() {
            self.due = Instant::now() + self.object_max * IDLE_FACTOR;
            self.charge.advance();
            // Less memory is always to be had.
            let _ = self.forget(found.end);
        }
    }

    /// Waits until clients with fewer bytes need the memory: the holder must call [`Objects::release`].
    pub(super) async fn revoked(&self) {
        self.charge.revoked().await;
    }

    /// Frees the memory, with all that has come of the body. No object can be taken any more.
    pub(super) fn release(&mut self) {
        (self.buffer, self.taken_bytes, self.found) = (Vec::new(), 0, None);
        // Fewer bytes always fit.
        let _ = self.charge.set(0);
    }

    /// The rest of the body.
    pub(super) fn into_body(self) -> Incoming {
        self.body
    }

    /// What was not taken.
    fn rest(&self) -> &[u8] {
        &self.buffer[self.taken_bytes..]
    }

    fn forget(&mut self, bytes: usize) -> Result<(), ApiError> {
        self.taken_bytes += bytes;
        // Seldom, or many small objects of a large part would be moved again and again.
        if self.taken_bytes >= self.rest().len() {
            self.buffer.drain(..std::mem::take(&mut self.taken_bytes));
            self.buffer.shrink_to(self.buffer.len() + SLACK_BYTES);
        }
        self.charge.set(self.rest().len())
    }

    /// Waits for more bytes; `false` at the end of the body.
    async fn more(&mut self) -> Result<bool, ApiError> {
        let within = |why: &str| match self.splitter.is_within() {
            true => Err(ApiError::new(Kind::Malformed, why.to_owned())),
            false => Ok(false),
        };
        let closed = async {
            self.pace.client_ended().await;
            sleep(CLOSED_MAX).await;
        };
        let frame = tokio::select! {
            biased;
            // Before the frame: nothing is read behind a release.
            () = self.charge.revoked() => return Err(revoked()),
            frame = self.body.frame() => frame,
            () = sleep_until(self.due) => return Err(self.too_slow()),
            () = closed => {
                let words = "the connection was closed by the client before the body ended";
                return Err(ApiError::new(Kind::Malformed, words));
            }
        };
        let data = match frame {
            None => return within("the body ends within it"),
            Some(Err(cause)) => {
                let words = format!("the body cannot be read: {cause}");
                return Err(ApiError::new(Kind::Malformed, words));
            }
            // Trailers say nothing here.
            Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
        };
        self.charge.add(data.len())?;
        self.buffer.extend_from_slice(&data);
        Ok(true)
    }

    fn too_large(&self) -> ApiError {
        let words =
            format!("it has more than {} bytes (gateway.request.bytes.max)", self.bytes_max);
        ApiError::new(Kind::TooLarge, words)
    }

    fn too_slow(&self) -> ApiError {
        let seconds = self.object_max.as_secs_f64();
        let words = match self.splitter.is_within() {
            true => format!("it was not whole within {seconds} s"),
            false => format!("it did not begin within {} s", seconds * f64::from(IDLE_FACTOR)),
        };
        ApiError::new(Kind::Slow, words)
    }
}
