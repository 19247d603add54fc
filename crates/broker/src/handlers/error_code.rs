//! The one place where a room's refusals become the protocol's error codes.

use model::{BatchError, ErrorCode};
use partition::{PartitionError, Refusal, SequenceRefusal};
use storage::StorageError;

/// What a client is told of a partition's refusal.
pub fn of_partition(error: &PartitionError) -> ErrorCode {
    match error {
        PartitionError::Batch(error) => of_batch(error),
        PartitionError::Refused(refusal) => of_refusal(refusal),
        PartitionError::NotLeader => ErrorCode::NotLeaderOrFollower,
        PartitionError::EndNotSettled => ErrorCode::OffsetNotAvailable,
        PartitionError::FencedEpoch { .. } => ErrorCode::FencedLeaderEpoch,
        PartitionError::UnknownEpoch { .. } => ErrorCode::UnknownLeaderEpoch,
        PartitionError::NotEnoughReplicas { .. } => ErrorCode::NotEnoughReplicas,
        PartitionError::OutOfOrderSequence => ErrorCode::OutOfOrderSequenceNumber,
        // Retriable, and excludes an append. KAFKA_STORAGE_ERROR would leave open whether the batch is in the log, and
        // clients would refresh their metadata.
        PartitionError::BehindRefused(refusal) => match refusal {
            SequenceRefusal::NotEnoughReplicas | SequenceRefusal::Storage => {
                ErrorCode::NotEnoughReplicas
            }
            SequenceRefusal::NotLeader => ErrorCode::NotLeaderOrFollower,
        },
        PartitionError::InvalidProducerEpoch => ErrorCode::InvalidProducerEpoch,
        PartitionError::OutOfRange { .. } => ErrorCode::OffsetOutOfRange,
        PartitionError::Deleted => ErrorCode::UnknownTopicOrPartition,
        PartitionError::Replicated(_) => ErrorCode::CorruptMessage,
        PartitionError::Storage(error) => of_storage(error),
        // The log has lost its end: it is refused.
        PartitionError::FollowerAhead { .. } => ErrorCode::KafkaStorageError,
        PartitionError::Offline | PartitionError::DiskFull | PartitionError::DirectoryHangs => {
            ErrorCode::KafkaStorageError
        }
    }
}

fn of_batch(error: &BatchError) -> ErrorCode {
    match error {
        BatchError::Truncated { .. }
        | BatchError::Length(_)
        | BatchError::Checksum { .. }
        | BatchError::Codec(_) => ErrorCode::CorruptMessage,
        BatchError::Magic(_) | BatchError::Count { .. } | BatchError::Record { .. } => {
            ErrorCode::InvalidRecord
        }
    }
}

fn of_refusal(refusal: &Refusal) -> ErrorCode {
    match refusal {
        Refusal::TooLarge { .. } => ErrorCode::MessageTooLarge,
        Refusal::LargerThanSegment { .. } => ErrorCode::RecordListTooLarge,
        Refusal::Invalid(_) | Refusal::Expands { .. } | Refusal::NoKey(_) => {
            ErrorCode::InvalidRecord
        }
        Refusal::Timestamp(_) => ErrorCode::InvalidTimestamp,
    }
}

/// What a client is told of a log's refusal.
pub fn of_storage(error: &StorageError) -> ErrorCode {
    match error {
        StorageError::OutOfRange { .. } => ErrorCode::OffsetOutOfRange,
        StorageError::OutOfOrder { .. } => ErrorCode::UnknownServerError,
        StorageError::Damaged(_)
        | StorageError::Refused { .. }
        | StorageError::Failed { .. }
        | StorageError::Io { .. }
        | StorageError::Malformed { .. }
        | StorageError::NewerFormat { .. } => ErrorCode::KafkaStorageError,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_batch_behind_a_refused_one_excludes_an_append() {
        let code = |refusal| of_partition(&PartitionError::BehindRefused(refusal));
        for refusal in [SequenceRefusal::NotEnoughReplicas, SequenceRefusal::Storage] {
            assert_eq!(code(refusal), ErrorCode::NotEnoughReplicas);
        }
        assert_eq!(code(SequenceRefusal::NotLeader), ErrorCode::NotLeaderOrFollower);
    }
}
