//! What is told of links while they come and go.

use crate::codec::refusal::Refused;
use crate::dialing::Target;
use crate::ending::Ending;
use crate::greeting::{GreetingError, Peer};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// Who made a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// This node dialed: it asks.
    Out,
    /// The peer dialed: this node answers.
    In,
}

/// Why there is no connection after a dial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DialFailure {
    /// Every address of the peer refuses: its system is there, and nobody listens.
    Refused,
    /// At least one address answers nothing in time.
    TimedOut,
    /// The name has no address now.
    Unresolved(String),
    /// The system has no way there, or another reason.
    Unreachable(String),
    /// Connected, and not agreed.
    Greeting(GreetingError),
}

impl fmt::Display for DialFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DialFailure::Refused => f.write_str("the connection is refused: nobody listens"),
            DialFailure::TimedOut => f.write_str("the address does not answer"),
            DialFailure::Unresolved(words) => write!(f, "the name has no address: {words}"),
            DialFailure::Unreachable(words) => write!(f, "the address cannot be reached: {words}"),
            DialFailure::Greeting(error) => error.fmt(f),
        }
    }
}

impl DialFailure {
    /// The refusal, by whichever side.
    pub fn refusal(&self) -> Option<&Refused> {
        match self {
            DialFailure::Greeting(error) => error.refusal(),
            _ => None,
        }
    }
}

/// Something that happened to a link.
#[derive(Clone, Debug)]
pub enum Event {
    /// Both sides have said Hello and proven what they have to.
    Up {
        /// Who is there.
        peer: Arc<Peer>,
    },
    /// A connection that was up ended. A link that was dialed is dialed again at once.
    Ended {
        /// Who was there.
        peer: Arc<Peer>,
        /// How it ended.
        ending: Ending,
    },
    /// A dial led to nothing. It is tried again.
    NotDialed {
        /// What was to be reached.
        target: Arc<Target>,
        /// Why.
        failure: DialFailure,
        /// Failures in a row, this one among them.
        failures: u32,
    },
    /// Somebody dialed this node and was not taken.
    TurnedAway {
        /// Where from.
        address: SocketAddr,
        /// Why.
        error: GreetingError,
    },
}

/// Who is told. Called on the link's own tasks, in the order of what happened to one link: must not block.
pub trait Observer: Send + Sync + 'static {
    /// Takes notice.
    fn observe(&self, event: &Event);
}

/// Takes notice of nothing.
impl Observer for () {
    fn observe(&self, _: &Event) {}
}
