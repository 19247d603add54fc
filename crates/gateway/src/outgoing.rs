//! The body of an answer: whole, or in parts that are made while it is sent.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;

/// Parts that are made and not yet taken: a client that takes nothing holds its own stream up, and little memory.
const PARTS_MAX: usize = 2;

/// The body of an answer.
pub(crate) enum Outgoing {
    /// All of it.
    Whole(Full<Bytes>),
    /// What comes, until there is nothing more.
    Parts(Parts),
}

/// Parts of a body that are still being made.
#[derive(Debug)]
pub(crate) struct Parts {
    made: mpsc::Receiver<Bytes>,
    /// Is told by being dropped that no more is sent.
    end: Option<Box<dyn Send + Sync + std::fmt::Debug>>,
}

/// A body that is made in parts, and where its parts go.
pub(crate) fn in_parts() -> (mpsc::Sender<Bytes>, Parts) {
    let (make, made) = mpsc::channel(PARTS_MAX);
    (make, Parts { made, end: None })
}

impl Outgoing {
    /// Whether parts are still to come; then `end` is dropped when none will be sent any more.
    pub(crate) fn holds(&mut self, end: impl Send + Sync + std::fmt::Debug + 'static) -> bool {
        match self {
            Outgoing::Whole(_) => false,
            Outgoing::Parts(parts) => {
                parts.end = Some(Box::new(end));
                true
            }
        }
    }
}

impl From<Bytes> for Outgoing {
    fn from(bytes: Bytes) -> Outgoing {
        Outgoing::Whole(Full::new(bytes))
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Outgoing::Whole(whole) => Pin::new(whole).poll_frame(cx),
            Outgoing::Parts(parts) => {
                parts.made.poll_recv(cx).map(|made| made.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Outgoing::Whole(whole) => whole.is_end_stream(),
            Outgoing::Parts(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Outgoing::Whole(whole) => whole.size_hint(),
            Outgoing::Parts(_) => SizeHint::default(),
        }
    }
}
