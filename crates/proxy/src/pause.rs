//! Pauses of a proxy: no request begins, and the requests in flight are answered.
//!
//! A pause is a boundary between batches for all connections: each produce request is either acknowledged by the broker before
//! the pause, or reaches the broker after the pause. Clients keep their connections and notice a delay only.

use crate::frames::SHARE_FETCH;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Mutex, Notify, OwnedMutexGuard, watch};
use wire::ApiKey;

/// Whether a broker answers this API late by design, after an event that a pause may hold back: new records, or a request of another
/// member of a group. A pause does not wait for such answers.
fn waits_for_others(api_key: i16) -> bool {
    let waiting = [ApiKey::Fetch, ApiKey::JoinGroup, ApiKey::SyncGroup];
    api_key == SHARE_FETCH || waiting.iter().any(|api| api.code() == api_key)
}

/// Opens and closes the way of requests to the brokers, for all connections of a proxy.
#[derive(Debug)]
pub struct RequestGate {
    /// True during a pause.
    is_closed: watch::Sender<bool>,
    /// Requests that brokers have to answer.
    in_flight: AtomicUsize,
    /// Rung when no request is in flight.
    idle: Notify,
    /// Held by the pause, one at a time.
    turn: Arc<Mutex<()>>,
}

impl RequestGate {
    pub(crate) fn new() -> RequestGate {
        RequestGate {
            is_closed: watch::Sender::new(false),
            in_flight: AtomicUsize::new(0),
            idle: Notify::new(),
            turn: Arc::default(),
        }
    }

    /// True during a pause. A pause begins only when no connection holds this value.
    pub(crate) fn is_closed(&self) -> watch::Ref<'_, bool> {
        self.is_closed.borrow()
    }

    /// Changes when a pause begins or ends.
    pub(crate) fn watch(&self) -> watch::Receiver<bool> {
        self.is_closed.subscribe()
    }

    /// Counts a request until its answer has arrived. `None` for APIs that wait for others.
    pub(crate) fn enter(self: &Arc<RequestGate>, api_key: i16) -> Option<RequestInFlight> {
        if waits_for_others(api_key) {
            return None;
        }
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        Some(RequestInFlight(self.clone()))
    }

    async fn idle(&self) {
        loop {
            let idle = self.idle.notified();
            if self.in_flight.load(Ordering::Acquire) == 0 {
                return;
            }
            idle.await;
        }
    }

    /// Pauses all connections until the pause is dropped. Waits for the answers to requests in flight, and for an earlier pause, each
    /// for no longer than `patience`.
    ///
    /// # Errors
    /// The broker did not answer in time. The connections go on.
    pub async fn pause(
        self: &Arc<RequestGate>,
        patience: Duration,
    ) -> Result<ProxyPause, AnswersOutstanding> {
        let outstanding =
            || AnswersOutstanding { requests: self.in_flight.load(Ordering::Acquire), patience };
        let turn = tokio::time::timeout(patience, self.turn.clone().lock_owned()).await;
        let turn = turn.map_err(|_| outstanding())?;
        self.is_closed.send_replace(true);
        let pause = ProxyPause { gate: self.clone(), _turn: turn };
        match tokio::time::timeout(patience, self.idle()).await {
            Ok(()) => Ok(pause),
            Err(_) => Err(outstanding()),
        }
    }
}

/// A request that a broker has to answer.
#[derive(Debug)]
pub(crate) struct RequestInFlight(Arc<RequestGate>);

impl Drop for RequestInFlight {
    fn drop(&mut self) {
        if self.0.in_flight.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}

/// A pause of a proxy, until it is dropped.
#[derive(Debug)]
pub struct ProxyPause {
    gate: Arc<RequestGate>,
    _turn: OwnedMutexGuard<()>,
}

impl Drop for ProxyPause {
    fn drop(&mut self) {
        self.gate.is_closed.send_replace(false);
    }
}

/// A pause that did not begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{requests} requests are in flight, and the broker did not answer them within {patience:?}"
)]
pub struct AnswersOutstanding {
    /// Requests without an answer.
    pub requests: usize,
    /// Time that the pause waited.
    pub patience: Duration,
}
