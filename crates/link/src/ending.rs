//! How a connection ended. A process that is killed ends it with FIN or a reset, at once; a machine that is
//! gone is noticed by silence.

use crate::codec::CodecError;
use std::fmt;
use std::io;

/// How a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The peer closed it (FIN), between frames or within one.
    Finished,
    /// The peer's system reset it.
    Reset,
    /// The peer's machine did not acknowledge what was sent, or did not answer probes.
    TimedOut,
    /// The peer broke the rules: this side closed it.
    Misbehaved(String),
    /// The system gave another reason.
    Broken(String),
    /// This side closed it because it stops.
    Closed,
}

impl Ending {
    /// Whether the peer's end of the connection is gone for sure, as when its process was killed. Whether the
    /// process is, a dial tells.
    pub fn is_of_peer(&self) -> bool {
        matches!(self, Ending::Finished | Ending::Reset)
    }
}

impl From<&io::Error> for Ending {
    fn from(error: &io::Error) -> Ending {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Ending::Finished,
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe => Ending::Reset,
            io::ErrorKind::TimedOut => Ending::TimedOut,
            _ => Ending::Broken(error.to_string()),
        }
    }
}

impl From<CodecError> for Ending {
    fn from(error: CodecError) -> Ending {
        Ending::Misbehaved(error.to_string())
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Finished => f.write_str("the peer closed the connection"),
            Ending::Reset => f.write_str("the peer reset the connection"),
            Ending::TimedOut => f.write_str("the peer's machine acknowledges nothing"),
            Ending::Misbehaved(words) => write!(f, "the peer broke the rules: {words}"),
            Ending::Broken(words) => write!(f, "the connection broke: {words}"),
            Ending::Closed => f.write_str("this node closed the connection"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_is_told_from_silence() {
        let of = |kind: io::ErrorKind| Ending::from(&io::Error::from(kind));
        assert!(of(io::ErrorKind::UnexpectedEof).is_of_peer());
        assert!(of(io::ErrorKind::ConnectionReset).is_of_peer());
        assert!(of(io::ErrorKind::BrokenPipe).is_of_peer());
        assert_eq!(of(io::ErrorKind::TimedOut), Ending::TimedOut);
        assert!(!Ending::TimedOut.is_of_peer() && !Ending::Closed.is_of_peer());
    }
}
