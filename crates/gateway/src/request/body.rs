//! The body of a request, whole: within the limits of its size, of the memory for all bodies, and of time.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use compression::Decoder;
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONTENT_ENCODING, HeaderValue};
use hyper::http::request::Parts;
use model::Compression;
use serving::error::{ApiError, Kind};
use tokio::time::{sleep, timeout};

use crate::charge::{Charge, Room};
use crate::share_owner::ShareOwner;
use crate::state::Shared;

/// How long a body of no use is thrown away before its request is refused, so that a client that sends before it reads
/// finds the answer.
const DISCARD_MAX: Duration = Duration::from_secs(5);
/// How much of a body is thrown away.
const DISCARD_BYTES_MAX: u64 = 8 << 20;

/// First size of the buffer that a compressed body is expanded into, in bytes.
const GROWTH_MIN: usize = 16 * 1024;

/// A body, and the memory that it is charged for.
pub(crate) struct Body {
    pub(crate) bytes: Bytes,
    charge: Charge,
}

/// Bytes of a small body.
pub(crate) const SMALL_BYTES_MAX: usize = 8 * 1024;

/// Reads a body within the limits of the settings. The bytes are charged as they arrive: a length that was only announced
/// takes nothing.
pub(crate) async fn collect(
    body: &mut Incoming,
    parts: &Parts,
    shared: &Shared,
) -> Result<Body, ApiError> {
    let bytes_max = shared.settings.request_bytes_max;
    let too_large = || {
        let words = format!("the body has more than {bytes_max} bytes (gateway.request.bytes.max)");
        ApiError::new(Kind::TooLarge, words)
    };
    let room = shared.bodies.of(ShareOwner::of(parts));
    in_time(body, shared, &room, bytes_max, too_large).await
}

/// The same for a body that may be compressed (`Content-Encoding: gzip`): the size limit and the charge are of the
/// expanded body. The headers are checked before.
pub(crate) async fn collect_expanded(
    body: &mut Incoming,
    parts: &Parts,
    shared: &Shared,
) -> Result<Body, ApiError> {
    let body = collect(body, parts, shared).await?;
    match parts.headers.get(CONTENT_ENCODING) {
        Some(coding) if is_gzip(coding) => expand(body, shared.settings.request_bytes_max).await,
        _ => Ok(body),
    }
}

/// Whether a content coding is gzip (RFC 9110, 8.4.1.3).
pub(crate) fn is_gzip(coding: &HeaderValue) -> bool {
    ["gzip", "x-gzip"].iter().any(|name| coding.as_bytes().eq_ignore_ascii_case(name.as_bytes()))
}

async fn expand(body: Body, bytes_max: usize) -> Result<Body, ApiError> {
    let Body { bytes, charge } = body;
    let expanding = move || expand_gzip(&bytes, bytes_max, charge);
    let ended = |_| ApiError::new(Kind::Unavailable, "the gateway stops");
    tokio::task::spawn_blocking(expanding).await.map_err(ended)?
}

/// Expands a body. `charge`: of the compressed body; it grows with the buffer, which doubles.
fn expand_gzip(compressed: &[u8], bytes_max: usize, mut charge: Charge) -> Result<Body, ApiError> {
    let compressed_bytes = charge.bytes();
    let mut decoder = Decoder::new(Compression::Gzip, compressed);
    let mut read = |buffer: &mut [u8]| {
        decoder.read(buffer).map_err(|error| {
            ApiError::new(Kind::Malformed, format!("the body is not gzip: {error}"))
        })
    };
    let (mut expanded, mut filled) = (Vec::new(), 0);
    while filled < bytes_max {
        if filled == expanded.len() {
            let size = (2 * filled).max(GROWTH_MIN).min(bytes_max);
            charge.set(compressed_bytes + size)?;
            expanded.reserve_exact(size - filled);
            expanded.resize(size, 0);
        }
        match read(&mut expanded[filled..])? {
            0 => break,
            count => filled += count,
        }
    }
    if filled == bytes_max && read(&mut [0])? > 0 {
        let words =
            format!("the body expands to more than {bytes_max} bytes (gateway.request.bytes.max)");
        return Err(ApiError::new(Kind::TooLarge, words));
    }
    expanded.truncate(filled);
    charge.set(expanded.capacity())?;
    Ok(Body { bytes: expanded.into(), charge })
}

/// Reads a body of at most [`SMALL_BYTES_MAX`]. It is charged to no room that others need: whoever has no leave at all, or none
/// but to read, could fill that by bodies that never end.
pub(crate) async fn collect_small(body: &mut Incoming, shared: &Shared) -> Result<Body, ApiError> {
    let too_large = || {
        let words =
            format!("the body has more than {SMALL_BYTES_MAX} bytes, which is much for this");
        ApiError::new(Kind::TooLarge, words)
    };
    let room = Room::new(SMALL_BYTES_MAX);
    in_time(body, shared, &room, SMALL_BYTES_MAX, too_large).await
}

async fn in_time(
    body: &mut Incoming,
    shared: &Shared,
    room: &Room,
    bytes_max: usize,
    too_large: impl Fn() -> ApiError,
) -> Result<Body, ApiError> {
    if body.size_hint().exact().is_some_and(|length| length > bytes_max as u64) {
        return Err(too_large());
    }
    let arriving = arrive(body, bytes_max, room, too_large);
    tokio::select! {
        biased;
        arrived = arriving => arrived,
        () = sleep(shared.settings.body_timeout) => {
            Err(ApiError::new(Kind::Slow, "the body did not arrive in time"))
        }
        () = shared.last_call() => {
            let words = "the gateway stops, and the body had not arrived";
            Err(ApiError::new(Kind::Unavailable, words))
        }
    }
}

async fn arrive(
    body: &mut Incoming,
    bytes_max: usize,
    room: &Room,
    too_large: impl Fn() -> ApiError,
) -> Result<Body, ApiError> {
    let mut whole = Body { bytes: Bytes::new(), charge: Charge::new(room) };
    let mut parts = BytesMut::new();
    loop {
        let frame = tokio::select! {
            biased;
            frame = body.frame() => frame,
            () = whole.charge.revoked() => return Err(revoked()),
        };
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|cause| {
            ApiError::new(Kind::Malformed, format!("the body cannot be read: {cause}"))
        })?;
        // Trailers say nothing here.
        let Ok(data) = frame.into_data() else { continue };
        if whole.bytes.len() + parts.len() + data.len() > bytes_max {
            return Err(too_large());
        }
        whole.charge.add(data.len())?;
        if whole.bytes.is_empty() && parts.is_empty() {
            // Most bodies are of one part, which is not copied.
            whole.bytes = data;
        } else {
            parts.extend_from_slice(&std::mem::take(&mut whole.bytes));
            parts.extend_from_slice(&data);
        }
    }
    if !parts.is_empty() {
        whole.bytes = parts.freeze();
    }
    if !whole.charge.keep() {
        return Err(revoked());
    }
    Ok(whole)
}

/// The error of a body that arrives slowly while clients with fewer bytes need memory.
pub(crate) fn revoked() -> ApiError {
    let words = "the body arrives slowly, and other clients need its memory: send it again";
    ApiError::new(Kind::Full, words)
}

/// Throws away what is left of a body, if that is not too much. Whether nothing is left.
pub(crate) async fn discard(body: &mut Incoming) -> bool {
    let is_too_much = body.size_hint().lower() > DISCARD_BYTES_MAX;
    if body.is_end_stream() || is_too_much {
        return body.is_end_stream();
    }
    let discarded = async {
        let mut bytes = 0;
        while let Some(Ok(frame)) = body.frame().await {
            bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
            if bytes > DISCARD_BYTES_MAX {
                break;
            }
        }
    };
    timeout(DISCARD_MAX, discarded).await.is_ok() && body.is_end_stream()
}
