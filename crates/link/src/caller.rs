//! A link to one peer: dials, dials again, and carries calls.

use crate::calls::Calls;
use crate::codec::frame::{CALL_BYTES, Declined};
use crate::codec::hello::Purpose;
use crate::config::LinkConfig;
use crate::dialing::{Target, dial};
use crate::ending::Ending;
use crate::events::{DialFailure, Event, Observer};
use crate::greeting::{Established, Peer};
use crate::identity::Identity;
use crate::standing;
use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Too many calls, or bytes of calls, wait on this link. Nothing was sent.
    #[error("too many calls wait on this link")]
    QueueFull,
    /// The message does not fit a frame. Nothing was sent.
    #[error("a message of {bytes} bytes; at most {max} fit a frame")]
    TooLarge {
        /// The message's.
        bytes: usize,
        /// What fits.
        max: usize,
    },
    /// Not connected, and the last dial failed. Nothing was sent.
    #[error("not connected: {0}")]
    NotConnected(String),
    /// The connection ended before the answer came.
    #[error("{0}")]
    Ended(Ending),
    /// No answer came in time.
    #[error("no answer in time")]
    TimedOut,
    /// The peer did not answer, and says why.
    #[error("declined: {0}")]
    Declined(Declined),
}

impl CallError {
    /// Whether the peer may have done what it was asked for.
    pub fn may_have_happened(&self) -> bool {
        use crate::codec::frame::Decline;
        match self {
            CallError::QueueFull | CallError::TooLarge { .. } | CallError::NotConnected(_) => false,
            CallError::Ended(_) | CallError::TimedOut => true,
            CallError::Declined(declined) => {
                !matches!(declined.why, Decline::Busy | Decline::NoService)
            }
        }
    }
}

/// Where the link stands.
#[derive(Clone)]
enum State {
    /// A dial is under way, and none has failed since the last connection.
    Dialing,
    Up(Arc<Calls>, Option<Arc<OwnedFd>>),
    /// The last dial failed, for this reason.
    Failed(Arc<str>),
    Stopped,
}

struct Shared {
    target: Arc<Target>,
    purpose: Purpose,
    identity: Arc<Identity>,
    config: Arc<LinkConfig>,
    observer: Arc<dyn Observer>,
    state: watch::Sender<State>,
    /// Set once: the link dials no more.
    stopping: watch::Sender<bool>,
    /// Calls that may still be made.
    calls: Semaphore,
    /// Bytes that may still be queued.
    room: Arc<Semaphore>,
}

/// A link to one peer. Copies are the same link; it is up to its owner to [stop](Link::stop) it.
#[derive(Clone)]
pub struct Link {
    shared: Arc<Shared>,
}

impl Link {
    /// Dials at once and again whenever it has to, on the tokio runtime that this is called on.
    pub fn start(
        target: Target,
        identity: Arc<Identity>,
        config: Arc<LinkConfig>,
        observer: Arc<dyn Observer>,
    ) -> Link {
        let calls = Semaphore::new(config.calls_max);
        let room = Arc::new(Semaphore::new(config.queued_bytes_max));
        let shared = Arc::new(Shared {
            target: Arc::new(target),
            purpose: Purpose::Control,
            identity,
            config,
            observer,
            state: watch::Sender::new(State::Dialing),
            stopping: watch::Sender::new(false),
            calls,
            room,
        });
        tokio::spawn(Arc::clone(&shared).run());
        Link { shared }
    }

    /// Whom it is for.
    pub fn target(&self) -> &Target {
        &self.shared.target
    }

    /// Who is there, if the link is up.
    pub fn peer(&self) -> Option<Arc<Peer>> {
        match &*self.shared.state.borrow() {
            State::Up(calls, _) => Some(Arc::clone(calls.peer())),
            _ => None,
        }
    }

    /// Whether the link is up and, as far as the system knows at this moment, the other side has not closed it: the task that
    /// carries the link may hear of that later than somebody whose own connection with the peer ended with it.
    pub fn is_open(&self) -> bool {
        match &*self.shared.state.borrow() {
            State::Up(_, socket) => !socket.as_ref().is_some_and(|socket| is_closed(socket)),
            _ => false,
        }
    }

    /// Asks the peer. Waits for a connection that is being made, but not for one whose last dial failed; for
    /// room it never waits. May be dropped at any time: then nobody knows whether it happened.
    pub async fn call(
        &self,
        service: u16,
        message: Vec<u8>,
        patience: Duration,
    ) -> Result<Bytes, CallError> {
        let shared = &self.shared;
        let max = shared.config.frame_bytes_max.saturating_sub(CALL_BYTES);
        if message.len() > max {
            return Err(CallError::TooLarge { bytes: message.len(), max });
        }
        let _turn = shared.calls.try_acquire().map_err(|_| CallError::QueueFull)?;
        let room = shared.take_room(message.len() + CALL_BYTES)?;
        let begun = Instant::now();
        let called = async {
            let calls = shared.connected().await?;
            let left = patience.saturating_sub(begun.elapsed());
            let patience_ms = u32::try_from(left.as_millis()).unwrap_or(u32::MAX);
            calls.call(service, patience_ms, message, room).await
        };
        timeout(patience, called).await.unwrap_or(Err(CallError::TimedOut))
    }

    /// Closes the connection and dials no more. Calls that wait are told.
    pub fn stop(&self) {
        self.shared.stopping.send_replace(true);
    }
}

impl Shared {
    fn take_room(&self, bytes: usize) -> Result<OwnedSemaphorePermit, CallError> {
        let bytes = u32::try_from(bytes).map_err(|_| CallError::QueueFull)?;
        Arc::clone(&self.room).try_acquire_many_owned(bytes).map_err(|_| CallError::QueueFull)
    }

    async fn connected(&self) -> Result<Arc<Calls>, CallError> {
        let mut state = self.state.subscribe();
        loop {
            match &*state.borrow_and_update() {
                State::Up(calls, _) => return Ok(Arc::clone(calls)),
                State::Failed(reason) => return Err(CallError::NotConnected(reason.to_string())),
                State::Stopped => return Err(CallError::NotConnected("the link stopped".into())),
                State::Dialing => {}
            }
            state.changed().await.map_err(|_| CallError::Ended(Ending::Closed))?;
        }
    }

    async fn run(self: Arc<Self>) {
        let mut stopping = self.stopping.subscribe();
        let stopped = async move { stopping.wait_for(|stopping| *stopping).await.map_or((), drop) };
        tokio::pin!(stopped);
        let mut failures = 0;
        loop {
            let dialed = tokio::select! {
                biased;
                () = &mut stopped => break,
                dialed = dial(&self.target, self.purpose, &self.identity, &self.config) => dialed,
            };
            let wait = match dialed {
                Ok(established) => {
                    let begun = Instant::now();
                    let ending = self.carry(established, &mut stopped).await;
                    if ending == Ending::Closed {
                        break;
                    }
                    // A connection that lasted is dialed again at once: whoever waits to learn whether the
                    // peer is gone waits for this dial.
                    let lasted = begun.elapsed() >= self.config.backoff_max;
                    failures = if lasted { 0 } else { failures + 1 };
                    (!lasted).then(|| self.config.backoff(failures))
                }
                Err(failure) => {
                    failures += 1;
                    Some(self.failed(failure, failures))
                }
            };
            if let Some(wait) = wait {
                tokio::select! {
                    biased;
                    () = &mut stopped => break,
                    () = sleep(self.config.jitter.apply(wait)) => {}
                }
            }
        }
        self.state.send_replace(State::Stopped);
    }

    /// Carries calls until the connection ends, or this side stops.
    async fn carry(
        &self,
        established: Established,
        stopped: &mut (impl Future<Output = ()> + Unpin),
    ) -> Ending {
        let peer = Arc::clone(&established.peer);
        let (calls, queued) = Calls::new(Arc::clone(&peer), self.config.calls_max);
        let calls = Arc::new(calls);
        self.observer.observe(&Event::Up { peer: Arc::clone(&peer) });
        // A descriptor of its own, which goes with the state: the task owns the connection.
        let socket = standing::above(&established.stream).map(Arc::new);
        self.state.send_replace(State::Up(Arc::clone(&calls), socket));
        let ending = tokio::select! {
            biased;
            () = stopped => {
                calls.end(&Ending::Closed);
                Ending::Closed
            }
            ending = calls.run(established, queued, &self.config) => ending,
        };
        self.state.send_replace(State::Dialing);
        self.observer.observe(&Event::Ended { peer, ending: ending.clone() });
        ending
    }

    /// Tells of a dial that led to nothing; returns what to wait.
    fn failed(&self, failure: DialFailure, failures: u32) -> Duration {
        self.state.send_replace(State::Failed(failure.to_string().into()));
        let lasting = failure.refusal().is_some_and(|refused| refused.why.is_lasting());
        let target = Arc::clone(&self.target);
        self.observer.observe(&Event::NotDialed { target, failure, failures });
        if lasting { self.config.backoff_max } else { self.config.backoff(failures) }
    }
}

fn is_closed(socket: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(socket, PollFlags::RDHUP)];
    poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}
