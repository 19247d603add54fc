//! The answering end of a connection: calls come in, each is answered by a task of its own, answers leave in
//! the order in which they are ready.

use crate::calls::{Queued, write_queued};
use crate::codec::frame::{Decline, Declined, Frame};
use crate::config::LinkConfig;
use crate::ending::Ending;
use crate::framed::read_frame;
use crate::greeting::{Established, Peer};
use crate::service::Services;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, BufReader};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;

/// What answers on one connection.
pub(crate) struct Serving {
    peer: Arc<Peer>,
    services: Services,
    config: Arc<LinkConfig>,
    /// Calls that may still be taken.
    turns: Arc<Semaphore>,
    /// Bytes of calls that may still be taken.
    room: Arc<Semaphore>,
}

/// One call, with the room that it takes until its answer is written.
struct Taken {
    id: u32,
    service: u16,
    patience: Duration,
    message: Bytes,
    room: Vec<OwnedSemaphorePermit>,
}

impl Serving {
    pub(crate) fn new(peer: Arc<Peer>, services: Services, config: Arc<LinkConfig>) -> Serving {
        let turns = Arc::new(Semaphore::new(config.served_max));
        let room = Arc::new(Semaphore::new(config.served_bytes_max));
        Serving { peer, services, config, turns, room }
    }

    /// Answers until the connection ends. Answers that are being made then are dropped when they are ready.
    pub(crate) async fn run(self, established: Established) -> Ending {
        let (read, write) = established.stream.into_split();
        // Room for every answer that may be due, and for some that say that there is no room.
        let (answers, queued) = mpsc::channel(self.config.served_max + 8);
        tokio::select! {
            biased;
            ending = self.read(read, answers) => ending,
            ending = write_queued(write, queued) => ending,
        }
    }

    async fn read(&self, stream: impl AsyncRead + Unpin, answers: mpsc::Sender<Queued>) -> Ending {
        let mut stream = BufReader::new(stream);
        let LinkConfig { frame_bytes_max, frame_timeout, .. } = *self.config;
        loop {
            let payload = match read_frame(&mut stream, frame_bytes_max, frame_timeout).await {
                Ok(payload) => payload,
                Err(ending) => return ending,
            };
            let bytes = payload.len();
            match Frame::decode(&payload) {
                Ok(Frame::Call { id, service, patience_ms, message }) => {
                    let patience = Duration::from_millis(patience_ms.into());
                    match self.take(bytes) {
                        Some(room) => {
                            let call = Taken { id, service, patience, message, room };
                            tokio::spawn(self.answer(call, answers.clone()));
                        }
                        None => {
                            let words = "it answers too many calls already";
                            let declined = Declined::new(Decline::Busy, words);
                            let bytes = Frame::Declined { id, declined }.encode();
                            if answers.send(Queued { bytes, room: Vec::new() }).await.is_err() {
                                return Ending::Closed;
                            }
                        }
                    }
                }
                Ok(_) => return Ending::Misbehaved("it says something else than calls".into()),
                Err(error) => return error.into(),
            }
        }
    }

    /// Room for a call of so many bytes, if there is any.
    fn take(&self, bytes: usize) -> Option<Vec<OwnedSemaphorePermit>> {
        let turn = Arc::clone(&self.turns).try_acquire_owned().ok()?;
        let bytes = u32::try_from(bytes).ok()?;
        let room = Arc::clone(&self.room).try_acquire_many_owned(bytes).ok()?;
        Some(vec![turn, room])
    }

    /// Has one call answered. Who waits no longer is not answered.
    fn answer(
        &self,
        call: Taken,
        answers: mpsc::Sender<Queued>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (peer, found) = (Arc::clone(&self.peer), self.services.find(call.service));
        let bytes_max = self.config.frame_bytes_max;
        async move {
            let Taken { id, patience, message, room, .. } = call;
            let owed = Owed { id, answers: &answers };
            let answered = match found {
                Ok(service) => {
                    let made = async move { service.answer(&peer, message).await };
                    timeout(patience, made).await
                }
                Err(declined) => Ok(Err(declined)),
            };
            drop(owed);
            let Ok(answered) = answered else { return };
            let bytes = answer_frame(id, answered, bytes_max).encode();
            // The connection may have ended; then nobody waits.
            let _ = answers.send(Queued { bytes, room }).await;
        }
    }
}

/// Tells the caller if answering panics: it need not wait for nothing.
struct Owed<'a> {
    id: u32,
    answers: &'a mpsc::Sender<Queued>,
}

impl Drop for Owed<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let words = "a bug: answering panicked; the log of this node says where";
            let declined = Declined::new(Decline::Failed, words);
            let bytes = Frame::Declined { id: self.id, declined }.encode();
            // Without room the caller learns it by its deadline.
            let _ = self.answers.try_send(Queued { bytes, room: Vec::new() });
        }
    }
}

fn answer_frame(id: u32, answered: Result<Vec<u8>, Declined>, bytes_max: usize) -> Frame {
    match answered {
        Ok(message) => {
            let frame_bytes = message.len() + 5;
            if frame_bytes <= bytes_max {
                return Frame::Answer { id, message: message.into() };
            }
            let words = format!("the answer has {frame_bytes} bytes, and a frame {bytes_max}");
            Frame::Declined { id, declined: Declined::new(Decline::AnswerTooLarge, words) }
        }
        Err(declined) => Frame::Declined { id, declined },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_fits_no_frame_is_declined_in_words() {
        let frame = |bytes| answer_frame(3, Ok(vec![0; bytes]), 100);
        assert!(matches!(frame(95), Frame::Answer { id: 3, .. }));
        assert_eq!(frame(95).encode().len(), 104);
        let Frame::Declined { declined, .. } = frame(96) else { panic!("it fits") };
        assert_eq!(declined.why, Decline::AnswerTooLarge);
    }
}
