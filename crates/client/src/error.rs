//! What can go wrong between a client and its cluster, and whether trying again may help.

use model::ErrorCode;
use wire::{ApiKey, DecodeError, EncodeError};

/// A failure. Cheap to clone: one failure ends all records of a batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// No connection came about.
    #[error("cannot connect to {address}: {reason}")]
    Connect {
        /// Host and port.
        address: String,
        /// What the system says.
        reason: String,
    },
    /// The connection ended while an answer was awaited.
    #[error("the connection to {peer} is closed: {reason}")]
    Closed {
        /// Host and port.
        peer: String,
        /// Why.
        reason: String,
    },
    /// Nothing came in time.
    #[error("{what} took longer than {after_ms} ms")]
    TimedOut {
        /// What was awaited.
        what: String,
        /// How long, in milliseconds.
        after_ms: u64,
    },
    /// One side does not let the other in: the login failed, or the TLS handshake. Another attempt would end alike.
    #[error("{peer}: {reason}")]
    NotAdmitted {
        /// Host and port.
        peer: String,
        /// What happened and what to do; never shows a password.
        reason: String,
    },
    /// Not one of the bootstrap addresses or known brokers can be reached.
    #[error("no broker can be reached; the last attempt: {0}")]
    NoBroker(String),
    /// The broker lacks an API, or all versions of it that this client knows.
    #[error("{peer} serves no version of {api} that this client knows")]
    Unsupported {
        /// Host and port.
        peer: String,
        /// The API.
        api: ApiKey,
    },
    /// The answer is not what its version says.
    #[error("{peer} answered {api} with bytes that cannot be read: {source}")]
    Malformed {
        /// Host and port.
        peer: String,
        /// The API.
        api: ApiKey,
        /// What is wrong.
        source: DecodeError,
    },
    /// The request does not exist in the version that the broker serves.
    #[error("the request cannot be written: {0}")]
    Encode(#[from] EncodeError),
    /// The broker says no.
    #[error("{what}: {code}{}", .message.as_deref().map(|m| format!(" ({m})")).unwrap_or_default())]
    Refused {
        /// What was asked, and of what.
        what: String,
        /// The protocol's error.
        code: ErrorCode,
        /// The broker's own words, if it has any.
        message: Option<String>,
    },
    /// The record is larger than a request may be.
    #[error("a record of {size_bytes} bytes exceeds the limit of {limit_bytes}")]
    RecordTooLarge {
        /// The record's size within a batch.
        size_bytes: usize,
        /// `max.request.size`.
        limit_bytes: usize,
    },
    /// A batch that was fetched is damaged.
    #[error("{partition}: the batch at offset {offset} is damaged: {reason}")]
    Corrupt {
        /// The partition.
        partition: String,
        /// Where the damage was met.
        offset: i64,
        /// What is wrong.
        reason: String,
    },
    /// The client was closed.
    #[error("the client is closed")]
    ClientClosed,
    /// Something is asked that the client's state does not allow.
    #[error("{0}")]
    Usage(String),
}

impl ClientError {
    /// An answer that says no.
    pub fn refused(what: impl Into<String>, code: ErrorCode) -> ClientError {
        ClientError::Refused { what: what.into(), code, message: None }
    }

    /// The protocol's error, if a broker refused.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            ClientError::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Whether the same request may succeed later, perhaps on another broker.
    pub fn is_retriable(&self) -> bool {
        match self {
            ClientError::Refused { code, .. } => code.is_retriable(),
            ClientError::Connect { .. }
            | ClientError::Closed { .. }
            | ClientError::TimedOut { .. }
            | ClientError::NoBroker(_) => true,
            ClientError::NotAdmitted { .. }
            | ClientError::Unsupported { .. }
            | ClientError::Malformed { .. }
            | ClientError::Encode(_)
            | ClientError::RecordTooLarge { .. }
            | ClientError::Corrupt { .. }
            | ClientError::ClientClosed
            | ClientError::Usage(_) => false,
        }
    }
}

impl ClientError {
    /// Of an attempt to produce: whether nothing was appended by it. Where brokers have the same code for a refusal
    /// and for an append that they cannot vouch for any more (NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT), nothing is
    /// said.
    pub(crate) fn says_not_written(&self) -> bool {
        match self {
            ClientError::Refused { code, .. } => matches!(
                code,
                ErrorCode::UnknownTopicOrPartition
                    | ErrorCode::UnknownTopicId
                    | ErrorCode::InvalidTopicException
                    | ErrorCode::MessageTooLarge
                    | ErrorCode::RecordListTooLarge
                    | ErrorCode::CorruptMessage
                    | ErrorCode::InvalidRecord
                    | ErrorCode::InvalidTimestamp
                    | ErrorCode::UnsupportedCompressionType
                    | ErrorCode::UnsupportedForMessageFormat
                    | ErrorCode::PolicyViolation
                    | ErrorCode::NotEnoughReplicas
                    | ErrorCode::TopicAuthorizationFailed
                    | ErrorCode::ClusterAuthorizationFailed
                    | ErrorCode::OutOfOrderSequenceNumber
                    | ErrorCode::UnknownProducerId
                    | ErrorCode::InvalidProducerIdMapping
                    | ErrorCode::InvalidProducerEpoch
            ),
            ClientError::Unsupported { .. }
            | ClientError::Encode(_)
            | ClientError::RecordTooLarge { .. }
            | ClientError::Usage(_) => true,
            ClientError::Connect { .. }
            | ClientError::Closed { .. }
            | ClientError::TimedOut { .. }
            | ClientError::NoBroker(_)
            // A session may end while requests are under way.
            | ClientError::NotAdmitted { .. }
            | ClientError::Malformed { .. }
            | ClientError::Corrupt { .. }
            | ClientError::ClientClosed => false,
        }
    }
}

/// `Ok` for no error, else what the broker refused.
pub(crate) fn check(
    code: ErrorCode,
    message: Option<&str>,
    what: impl FnOnce() -> String,
) -> Result<(), ClientError> {
    if code.is_none() {
        return Ok(());
    }
    let message = message.map(str::to_owned);
    Err(ClientError::Refused { what: what(), code, message })
}
