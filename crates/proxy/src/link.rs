//! What the two directions of a connection tell each other: which answers are to come, in which
//! order, and what is to be done with them.

use crate::fault_injection::FaultRule;
use crate::fault_injection::answer::AnswerChange;
use crate::fault_injection::fetch_session::partition_bytes;
use crate::pause::RequestInFlight;
use crate::produced::{Produced, TopicKey};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;

/// What is to be done with an answer.
#[derive(Debug)]
pub enum Fate {
    /// It goes to the client.
    Forward,
    /// It answers a request that the client did not send: it goes nowhere.
    Swallow,
    /// The client expects the next answer first: it goes behind that.
    Postpone,
    /// No broker will send it: these bytes go to the client.
    Fabricated(Bytes),
    /// It goes to the client this much later.
    Delay(Duration),
    /// It goes to the client with a change, in the topics and partitions that the rule matches.
    Change(Box<AnswerAlteration>),
    /// No broker will send it: the connection ends in its place.
    End(ConnectionEnd),
    /// It does not go to the client.
    Drop(AfterDrop),
}

/// The change of an answer by a fault rule.
#[derive(Debug)]
pub struct AnswerAlteration {
    /// The change.
    pub change: AnswerChange,
    /// The rule, which matches the changed topics and partitions.
    pub rule: FaultRule,
    /// Matching partitions of a fetch session that the answer may lack.
    pub partitions: Vec<(TopicKey, i32)>,
}

/// How the proxy ends a connection on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// An orderly end (FIN).
    Close,
    /// A reset (RST).
    Reset,
}

/// Effect on the connection after the proxy has dropped an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterDrop {
    /// The connection ends.
    Close,
    /// The connection stays open, and the client gets nothing more.
    Silence,
    /// The broker's process is killed; the client gets nothing more.
    Kill,
}

impl Fate {
    /// Whether the client's turn has come without an answer of a broker.
    pub(crate) fn needs_no_broker(&self) -> bool {
        matches!(self, Fate::Fabricated(_) | Fate::End(_))
    }
}

/// An answer to come.
#[derive(Debug)]
pub struct Expected {
    /// The API's number.
    pub api_key: i16,
    /// The version asked for.
    pub version: i16,
    /// What the answer must bear.
    pub correlation_id: i32,
    /// What is to be done with it.
    pub fate: Fate,
    /// What was produced, if its offsets are to be learnt from the answer.
    pub produced: Option<Produced>,
    /// Held until the answer has arrived, if pauses wait for it.
    pub _in_flight: Option<RequestInFlight>,
}

/// Requests without an answer at which a connection's requests are read no further.
const EXPECTED_MAX: usize = 8192;

/// Answers to come.
#[derive(Debug, Default)]
struct Queue {
    entries: VecDeque<Expected>,
    /// Bytes of fabricated answers and of added partitions among them.
    made_bytes: usize,
}

/// Bytes of an answer that no broker will send, and of the partitions that a fault adds to a broker's answer.
fn made_bytes(expected: &Expected) -> usize {
    match &expected.fate {
        Fate::Fabricated(answer) => answer.len(),
        Fate::Change(altered) => altered.partitions.iter().map(partition_bytes).sum(),
        _ => 0,
    }
}

/// Entries whose memory a connection keeps when no answer is to come.
const KEPT_ENTRIES: usize = 16;

/// Shared by the directions of one connection.
#[derive(Debug, Default)]
pub struct Link {
    /// In the order in which the answers will come.
    expected: Mutex<Queue>,
    /// Rung when answers have been taken off after there were too many.
    pub room: Notify,
    /// Rung when an answer has been fabricated.
    pub fabricated: Notify,
    /// Whether the connection ends with a reset.
    is_reset: AtomicBool,
}

impl Link {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.expected.lock().expect("no code under this lock panics")
    }

    /// Expects one more answer.
    pub fn expect(&self, expected: Expected) {
        let is_fabricated = expected.fate.needs_no_broker();
        let mut queue = self.lock();
        queue.made_bytes += made_bytes(&expected);
        queue.entries.push_back(expected);
        drop(queue);
        if is_fabricated {
            self.fabricated.notify_one();
        }
    }

    /// Bytes that answers to come take.
    pub fn kept_bytes(&self) -> usize {
        let queue = self.lock();
        match queue.entries.capacity() {
            // Part of the bytes that each connection is charged with.
            0..=KEPT_ENTRIES => queue.made_bytes,
            capacity => queue.made_bytes + capacity * size_of::<Expected>(),
        }
    }

    /// Has the connection end with a reset.
    pub fn set_reset(&self) {
        self.is_reset.store(true, Ordering::Relaxed);
    }

    /// Whether the connection ends with a reset.
    pub fn is_reset(&self) -> bool {
        self.is_reset.load(Ordering::Relaxed)
    }

    /// Whether more requests may be read.
    pub fn has_room(&self) -> bool {
        self.lock().entries.len() < EXPECTED_MAX
    }

    /// Whether no answer is to come.
    pub fn is_idle(&self) -> bool {
        self.lock().entries.is_empty()
    }

    /// API of the next answer, if one is to come.
    pub fn next_api(&self) -> Option<i16> {
        self.lock().entries.front().map(|next| next.api_key)
    }

    /// Takes the next answer off if no broker will send it.
    pub fn take_fabricated(&self) -> Option<Expected> {
        self.take_if(|next| next.fate.needs_no_broker())
    }

    /// Takes the next answer off.
    pub fn take(&self) -> Option<Expected> {
        self.take_if(|_| true)
    }

    fn take_if(&self, wanted: impl FnOnce(&Expected) -> bool) -> Option<Expected> {
        let mut queue = self.lock();
        if !wanted(queue.entries.front()?) {
            return None;
        }
        let was_full = queue.entries.len() >= EXPECTED_MAX;
        let taken = queue.entries.pop_front();
        queue.made_bytes -= taken.as_ref().map_or(0, made_bytes);
        if queue.entries.is_empty() && queue.entries.capacity() > KEPT_ENTRIES {
            queue.entries = VecDeque::new();
        }
        if was_full {
            self.room.notify_one();
        }
        taken
    }
}
