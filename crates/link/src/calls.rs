//! Calls on one connection: who waits for which answer, and what is to be sent.

use crate::caller::CallError;
use crate::codec::frame::Frame;
use crate::config::LinkConfig;
use crate::ending::Ending;
use crate::framed::read_frame;
use crate::greeting::{Established, Peer};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, BufWriter};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

/// Frames that are written with one call of the system if they are small.
const WRITTEN_TOGETHER: usize = 16;

/// A frame that waits to be written, with the room that it takes.
pub(crate) struct Queued {
    pub(crate) bytes: Vec<u8>,
    /// Given back when the frame was written or will not be.
    pub(crate) room: Vec<OwnedSemaphorePermit>,
}

type Waiter = oneshot::Sender<Result<Bytes, CallError>>;

struct Waiting {
    /// The next call's id.
    next: u32,
    by_id: HashMap<u32, Waiter>,
    /// Set once: nobody is answered after it.
    ended: Option<Ending>,
}

/// The asking end of a connection.
pub(crate) struct Calls {
    peer: Arc<Peer>,
    waiting: Mutex<Waiting>,
    queue: mpsc::Sender<Queued>,
}

/// A call's place among those that wait: given up when it is dropped.
struct Place<'a> {
    calls: &'a Calls,
    id: u32,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.calls.waiting.lock().by_id.remove(&self.id);
    }
}

impl Calls {
    /// The calls of a new connection, and what they want to send. There are at most `calls_max`.
    pub(crate) fn new(peer: Arc<Peer>, calls_max: usize) -> (Calls, mpsc::Receiver<Queued>) {
        let (queue, queued) = mpsc::channel(calls_max.max(1));
        let waiting = Waiting { next: 0, by_id: HashMap::new(), ended: None };
        (Calls { peer, waiting: Mutex::new(waiting), queue }, queued)
    }

    pub(crate) fn peer(&self) -> &Arc<Peer> {
        &self.peer
    }

    /// Asks, and waits for the answer. `room` is the call's share of what may be queued.
    pub(crate) async fn call(
        &self,
        service: u16,
        patience_ms: u32,
        message: Vec<u8>,
        room: OwnedSemaphorePermit,
    ) -> Result<Bytes, CallError> {
        let (waiter, answered) = oneshot::channel();
        let place = self.enter(waiter)?;
        let message = Bytes::from(message);
        let bytes = Frame::Call { id: place.id, service, patience_ms, message }.encode();
        self.queue.try_send(Queued { bytes, room: vec![room] }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => CallError::QueueFull,
            mpsc::error::TrySendError::Closed(_) => CallError::Ended(Ending::Closed),
        })?;
        // The waiter goes only with an answer, with the connection, or with this future.
        answered.await.unwrap_or(Err(CallError::Ended(Ending::Closed)))
    }

    fn enter(&self, waiter: Waiter) -> Result<Place<'_>, CallError> {
        let mut waiting = self.waiting.lock();
        if let Some(ending) = &waiting.ended {
            return Err(CallError::Ended(ending.clone()));
        }
        let id = waiting.next;
        waiting.next = id.wrapping_add(1);
        waiting.by_id.insert(id, waiter);
        Ok(Place { calls: self, id })
    }

    /// Hands an answer to who waits for it. Nobody may: it came too late.
    fn answer(&self, id: u32, answer: Result<Bytes, CallError>) {
        let waiter = self.waiting.lock().by_id.remove(&id);
        if let Some(waiter) = waiter {
            // Who waits no longer does not need it.
            let _ = waiter.send(answer);
        }
    }

    /// Nothing is answered any more.
    pub(crate) fn end(&self, ending: &Ending) {
        let waiters = {
            let mut waiting = self.waiting.lock();
            waiting.ended = Some(ending.clone());
            std::mem::take(&mut waiting.by_id)
        };
        for waiter in waiters.into_values() {
            let _ = waiter.send(Err(CallError::Ended(ending.clone())));
        }
    }

    /// Carries calls until the connection ends; tells all that wait, and how it ended.
    pub(crate) async fn run(
        &self,
        established: Established,
        queued: mpsc::Receiver<Queued>,
        config: &LinkConfig,
    ) -> Ending {
        let (read, write) = established.stream.into_split();
        let ending = tokio::select! {
            biased;
            ending = self.read(read, config) => ending,
            ending = write_queued(write, queued) => ending,
        };
        self.end(&ending);
        ending
    }

    async fn read(&self, stream: impl AsyncRead + Unpin, config: &LinkConfig) -> Ending {
        let mut stream = BufReader::new(stream);
        loop {
            let read = read_frame(&mut stream, config.frame_bytes_max, config.frame_timeout).await;
            let frame = match read {
                Ok(payload) => Frame::decode(&payload),
                Err(ending) => return ending,
            };
            match frame {
                Ok(Frame::Answer { id, message }) => self.answer(id, Ok(message)),
                Ok(Frame::Declined { id, declined }) => {
                    self.answer(id, Err(CallError::Declined(declined)));
                }
                Ok(_) => return Ending::Misbehaved("it answers with something else".into()),
                Err(error) => return error.into(),
            }
        }
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        self.end(&Ending::Closed);
    }
}

/// Writes what is queued, small frames together, until the stream ends or nobody can queue any more.
pub(crate) async fn write_queued(
    stream: impl AsyncWrite + Unpin,
    mut queue: mpsc::Receiver<Queued>,
) -> Ending {
    let mut stream = BufWriter::with_capacity(64 << 10, stream);
    let mut batch = Vec::new();
    while queue.recv_many(&mut batch, WRITTEN_TOGETHER).await > 0 {
        let written = async {
            for queued in batch.drain(..) {
                stream.write_all(&queued.bytes).await?;
                drop(queued.room);
            }
            stream.flush().await
        };
        if let Err(error) = written.await {
            return Ending::from(&error);
        }
    }
    Ending::Closed
}
