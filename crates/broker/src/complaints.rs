//! A client that is refused because of what a disk holds is told a code; whoever runs the broker reads
//! here which file it is, where in it, and what to do.
//!
//! Clients try again for as long as they live, so each partition is reported once a minute at most.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use model::{ErrorCode, TopicPartition};
use parking_lot::Mutex;
use partition::{Partition, PartitionError};
use storage::StorageError;
use tracing::error;

use crate::handlers::error_code;

/// How long after a report another one of the same partition says nothing new.
const INTERVAL: Duration = Duration::from_secs(60);

/// When each partition was last reported. It names none but those that were in trouble.
#[derive(Debug, Default)]
pub struct Complaints {
    told: Mutex<HashMap<TopicPartition, Instant>>,
    /// What went wrong with a partition inside the broker, and when that was reported: what is tried again fails again,
    /// some ten times a second.
    failures: Mutex<HashMap<TopicPartition, (String, Instant)>>,
}

impl Complaints {
    /// What a client is told of a partition's refusal; reports it if the log is what refuses.
    pub fn code_of(&self, partition: &Partition, cause: &PartitionError) -> ErrorCode {
        if let PartitionError::Storage(cause) = cause
            && error_code::of_storage(cause) == ErrorCode::KafkaStorageError
            && self.is_due(partition.topic_partition(), Instant::now())
        {
            report(partition, cause);
        }
        error_code::of_partition(cause)
    }

    /// Whether a failure is to be reported: it is another than the last one of this partition, or that is a minute ago.
    pub fn is_news(&self, name: &TopicPartition, cause: &dyn std::fmt::Display) -> bool {
        self.is_news_at(name, cause.to_string(), Instant::now())
    }

    fn is_news_at(&self, name: &TopicPartition, words: String, now: Instant) -> bool {
        let mut failures = self.failures.lock();
        failures.retain(|_, (_, last)| now.duration_since(*last) < INTERVAL);
        if failures.get(name).is_some_and(|(known, _)| *known == words) {
            return false;
        }
        failures.insert(name.clone(), (words, now));
        true
    }

    fn is_due(&self, name: &TopicPartition, now: Instant) -> bool {
        let mut told = self.told.lock();
        if told.get(name).is_some_and(|last| now.duration_since(*last) < INTERVAL) {
            return false;
        }
        told.retain(|_, last| now.duration_since(*last) < INTERVAL);
        told.insert(name.clone(), now);
        true
    }
}

fn report(partition: &Partition, cause: &StorageError) {
    let name = partition.topic_partition();
    match cause {
        StorageError::Damaged(damage) => {
            error!(
                partition = %name,
                file = %damage.segment.display(),
                position = damage.position,
                offset = %damage.offset,
                reason = damage.reason,
                "a batch is not what was written there: it is not served. Stop the broker and run `highwater log mend`, which shows what would be lost and keeps a copy, or restore the file"
            );
        }
        cause => {
            error!(partition = %name, %cause, "the partition's log refused a request");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_that_lasts_is_reported_once_a_minute_and_another_one_at_once() {
        let complaints = Complaints::default();
        let (first, second) = (TopicPartition::new("a", 0), TopicPartition::new("a", 1));
        let begun = Instant::now();
        let is_news =
            |name: &TopicPartition, words: &str, at| complaints.is_news_at(name, words.into(), at);
        assert!(is_news(&first, "refused", begun) && is_news(&second, "refused", begun));
        assert!((1..600).all(|tenth| !is_news(&first, "refused", begun + INTERVAL * tenth / 600)));
        assert!(is_news(&first, "damaged", begun + INTERVAL / 2));
        assert!(!is_news(&first, "damaged", begun + INTERVAL));
        assert!(is_news(&second, "refused", begun + INTERVAL));
        assert_eq!(complaints.failures.lock().len(), 2);
    }

    #[test]
    fn a_partition_is_reported_once_a_minute_and_forgotten_behind_it() {
        let complaints = Complaints::default();
        let (first, second) = (TopicPartition::new("a", 0), TopicPartition::new("a", 1));
        let begun = Instant::now();
        assert!(complaints.is_due(&first, begun) && complaints.is_due(&second, begun));
        assert!(!complaints.is_due(&first, begun + INTERVAL / 2));
        assert!(complaints.is_due(&first, begun + INTERVAL));
        assert_eq!(complaints.told.lock().len(), 1, "the other one counts no more");
    }
}
