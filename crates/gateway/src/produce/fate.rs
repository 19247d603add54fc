//! What a client is told of a record that was not acknowledged.

use client::ClientError;
use client::producer::Undelivered;
use model::ErrorCode;
use serving::error::{ApiError, Kind};

/// What is known of the partition when its record was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The topic is gone.
    Gone,
    /// No broker leads the partition.
    Leaderless,
    /// A broker leads the partition.
    Led,
}

/// The error of a record that the producer gave up.
pub(super) fn of_lost(lost: &Undelivered, place: Place) -> ApiError {
    if lost.maybe_written {
        let words = format!("no broker has acknowledged the record, and it may be written: {lost}");
        return ApiError::new(Kind::Undecided, words);
    }
    match place {
        Place::Gone => ApiError::new(Kind::NoTopic, "the topic was deleted"),
        Place::Leaderless => ApiError::new(Kind::NoLeader, "the partition has no leader now"),
        Place::Led => of_refusal(&lost.error),
    }
}

/// The error of what a broker refused, or of a record that is not written.
pub(crate) fn of_refusal(error: &ClientError) -> ApiError {
    ApiError::new(kind(error), error.to_string())
}

fn kind(error: &ClientError) -> Kind {
    match error {
        ClientError::RecordTooLarge { .. } => Kind::TooLarge,
        // A text that is longer than Kafka's protocol has room for.
        ClientError::Encode(_) => Kind::Unprocessable,
        ClientError::Refused { code, .. } => kind_of_code(*code),
        ClientError::ClientClosed
        | ClientError::Connect { .. }
        | ClientError::NoBroker(_)
        | ClientError::TimedOut { .. } => Kind::Unavailable,
        other if other.is_retriable() => Kind::KafkaForNow,
        _ => Kind::Kafka,
    }
}

fn kind_of_code(code: ErrorCode) -> Kind {
    match code {
        ErrorCode::MessageTooLarge | ErrorCode::RecordListTooLarge => Kind::TooLarge,
        ErrorCode::InvalidRecord
        | ErrorCode::InvalidTimestamp
        | ErrorCode::PolicyViolation
        | ErrorCode::OffsetMetadataTooLarge => Kind::Unprocessable,
        ErrorCode::TopicAuthorizationFailed | ErrorCode::ClusterAuthorizationFailed => {
            Kind::Unauthorized
        }
        code if code.is_retriable() => Kind::KafkaForNow,
        _ => Kind::Kafka,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: ErrorCode) -> ClientError {
        ClientError::refused("produce", code)
    }

    #[test]
    fn what_may_be_written_is_undecided_whatever_was_heard_last() {
        for error in [refused(ErrorCode::InvalidRecord), ClientError::ClientClosed] {
            for place in [Place::Gone, Place::Leaderless, Place::Led] {
                let lost = Undelivered { error: error.clone(), maybe_written: true };
                assert_eq!(of_lost(&lost, place).kind, Kind::Undecided);
            }
        }
    }

    #[test]
    fn what_is_not_written_says_why() {
        let late = ClientError::TimedOut { what: String::new(), after_ms: 1 };
        for (error, place, kind) in [
            (late.clone(), Place::Gone, Kind::NoTopic),
            (late.clone(), Place::Leaderless, Kind::NoLeader),
            (late, Place::Led, Kind::Unavailable),
            (refused(ErrorCode::MessageTooLarge), Place::Led, Kind::TooLarge),
            (refused(ErrorCode::InvalidRecord), Place::Led, Kind::Unprocessable),
            (refused(ErrorCode::TopicAuthorizationFailed), Place::Led, Kind::Unauthorized),
            (refused(ErrorCode::NotEnoughReplicas), Place::Led, Kind::KafkaForNow),
            (refused(ErrorCode::UnsupportedVersion), Place::Led, Kind::Kafka),
        ] {
            let lost = Undelivered { error, maybe_written: false };
            assert_eq!(of_lost(&lost, place).kind, kind, "{lost:?} {place:?}");
        }
    }
}
