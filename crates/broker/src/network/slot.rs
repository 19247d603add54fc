//! A request's place in its connection's line of answers. Requests complete in any order; answers
//! leave in the order of the requests, so only the head of the line is asked.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use wire::ApiKey;

use crate::handlers::Asker;
use crate::handlers::fetch::FetchInProgress;
use crate::handlers::produce::ProduceInProgress;

use super::answers::AnswerRoom;
use super::outbox::Outbox;

/// Encoded answer of an API that is not on the hot path.
#[derive(Debug)]
pub struct Reply {
    /// The whole frame, length included.
    pub frame: Vec<u8>,
    /// Memory reserved for the frame, if it is large.
    pub room: Option<AnswerRoom>,
}

/// The request cannot be answered; the connection ends. The text goes to the log.
#[derive(Debug)]
pub struct Hangup(pub String);

/// What a request is waiting for.
pub enum Slot {
    /// Appended; waits for the high watermark if it asked for `acks=all`.
    Produce(Box<ProduceInProgress>),
    /// Waits for enough bytes or its deadline.
    Fetch(Box<FetchInProgress>),
    /// Any other request.
    Other(Pin<Box<dyn Future<Output = Result<Reply, Hangup>> + Send>>),
    /// Answered before it got into the line.
    Ready(Vec<u8>),
}

impl Slot {
    /// Asks whether the answer is there; if so it is written to `out`. Otherwise the task will be
    /// woken when asking again makes sense.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        now: Instant,
        out: &mut Outbox,
        asker: &Asker<'_>,
    ) -> Poll<Result<(), Hangup>> {
        let answered = |api, arrived: Instant| {
            asker.server.counters.api(api).durations.observe(arrived.elapsed());
        };
        match self {
            Slot::Produce(produce) => produce
                .poll(cx, now, out, asker)
                .map_ok(|()| answered(ApiKey::Produce, produce.arrived())),
            Slot::Fetch(fetch) => fetch
                .poll(cx, now, out, asker)
                .map_ok(|()| answered(ApiKey::Fetch, fetch.arrived())),
            Slot::Other(future) => future.as_mut().poll(cx).map_ok(|reply| out.push_reply(reply)),
            Slot::Ready(frame) => {
                out.push_bytes(|bytes| bytes.extend_from_slice(frame));
                Poll::Ready(Ok(()))
            }
        }
    }

    /// Whether the line is blocked by it: nothing behind it is taken in, nor read, until it is
    /// answered. Only the last one in a line can say so.
    pub fn blocks_line(&self) -> bool {
        match self {
            Slot::Other(_) => true,
            Slot::Produce(_) | Slot::Fetch(_) | Slot::Ready(_) => false,
        }
    }

    /// Whether a broker that stops need not answer: asking again does no harm, unlike producing again.
    pub fn may_be_dropped(&self) -> bool {
        matches!(self, Slot::Fetch(_) | Slot::Other(_))
    }

    /// Ends a long poll: it is answered with what there is. Returns whether that changes anything.
    pub fn hurry(&mut self, now: Instant) -> bool {
        match self {
            Slot::Fetch(fetch) => fetch.hurry(now),
            Slot::Produce(_) | Slot::Other(_) | Slot::Ready(_) => false,
        }
    }

    /// When it must be asked again even if nothing has happened.
    pub fn deadline(&self) -> Option<Instant> {
        match self {
            Slot::Produce(produce) => produce.deadline(),
            Slot::Fetch(fetch) => fetch.deadline(),
            Slot::Other(_) | Slot::Ready(_) => None,
        }
    }
}
