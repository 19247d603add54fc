//! What is asked in the target of a WebSocket, in Pulsar's names. Those that only tune Pulsar itself are taken and have no
//! effect; a name that is not known is refused, and so is what would promise more than a consumer group can keep.

use super::credit::{QUEUE_DEFAULT, QUEUE_MAX};
use super::message_id::MessageId;
use crate::events::Start;
use crate::events::id::PARTITIONS_MAX;

/// After how long what a client refused is sent again, in milliseconds: Pulsar's default.
const NACK_DELAY_MS: u64 = 60_000;
/// The longest such time, in milliseconds: a day.
const NACK_DELAY_MS_MAX: u64 = 86_400_000;

/// How the members of a subscription share its partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Subscription {
    /// There is one.
    #[default]
    Exclusive,
    /// Each partition has one; the others wait.
    Failover,
    /// As [`Subscription::Failover`]: a partition of Kafka's has one reader in a group.
    Shared,
}

/// What a consumer asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerQuery {
    /// How partitions are shared.
    pub subscription: Subscription,
    /// Messages that may be sent without an acknowledgement.
    pub queue: usize,
    /// Whether messages are sent for permits only.
    pub pulls: bool,
    /// After how long what was refused is sent again, in milliseconds.
    pub nack_delay_ms: u64,
    /// Whether a subscription that has no offset begins at the first record, and not behind the last.
    pub from_earliest: bool,
}

/// What a reader asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReaderQuery {
    /// Where to begin.
    pub start: Start,
    /// Messages that may be sent without an acknowledgement.
    pub queue: usize,
}

/// Why nothing can be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// A value has another form.
    #[error("{name}: invalid value {value:?}: expected {expected}")]
    Value {
        /// The parameter.
        name: String,
        /// What was sent.
        value: String,
        /// What would do.
        expected: &'static str,
    },
    /// The parameter is not known.
    #[error("unknown parameter {0:?}")]
    Unknown(String),
    /// A parameter is there twice.
    #[error("{0} is there twice")]
    Twice(String),
    /// What is asked for cannot be had.
    #[error("{name}: {reason}")]
    Refused {
        /// The parameter.
        name: &'static str,
        /// Why.
        reason: &'static str,
    },
}

/// Consumers' parameters that are taken and have no effect: names, and what only tunes Pulsar.
const OF_CONSUMERS_IGNORED: [&str; 4] =
    ["consumerName", "priorityLevel", "cryptoFailureAction", "token"];
const OF_READERS_IGNORED: [&str; 3] = ["readerName", "cryptoFailureAction", "token"];
/// Producers' parameters: those that are taken and have no effect. Broker and partitioner are the gateway's own.
const OF_PRODUCERS: [&str; 14] = [
    "sendTimeoutMillis",
    "batchingEnabled",
    "batchingMaxMessages",
    "maxPendingMessages",
    "batchingMaxPublishDelay",
    "messageRoutingMode",
    "compressionType",
    "producerName",
    "initialSequenceId",
    "hashingScheme",
    "encryptionKeys",
    "token",
    "broker",
    "partitioner",
];

const QUEUE: &str = "a number from 1 to 10000";

impl ConsumerQuery {
    /// Reads the parameters: names and values, decoded.
    ///
    /// # Errors
    /// One of them makes no sense, or asks for what there is not.
    pub fn read<'a>(
        parameters: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<ConsumerQuery, QueryError> {
        let mut query = ConsumerQuery {
            subscription: Subscription::default(),
            queue: QUEUE_DEFAULT,
            pulls: false,
            nack_delay_ms: NACK_DELAY_MS,
            from_earliest: false,
        };
        for (name, value) in once_each(parameters)? {
            query.take(name, value)?;
        }
        Ok(query)
    }

    fn take(&mut self, name: &str, value: &str) -> Result<(), QueryError> {
        let invalid = |expected| invalid(name, value, expected);
        match name {
            "subscriptionType" => {
                self.subscription = match value {
                    "Exclusive" => Subscription::Exclusive,
                    "Failover" => Subscription::Failover,
                    "Shared" => Subscription::Shared,
                    "Key_Shared" => {
                        let reason = "Key_Shared is not there: records with one key are in one partition, which one member of a \
                                      group reads, so Shared keeps their order";
                        return Err(QueryError::Refused { name: "subscriptionType", reason });
                    }
                    _ => return Err(invalid("Exclusive, Failover or Shared")),
                }
            }
            "receiverQueueSize" => self.queue = queue(value).ok_or_else(|| invalid(QUEUE))?,
            "pullMode" => {
                self.pulls = match value {
                    "true" => true,
                    "false" => false,
                    _ => return Err(invalid("true or false")),
                }
            }
            "negativeAckRedeliveryDelay" => {
                let delay = number(value).filter(|delay| *delay <= NACK_DELAY_MS_MAX);
                self.nack_delay_ms =
                    delay.ok_or_else(|| invalid("milliseconds from 0 to 86400000"))?;
            }
            "subscriptionInitialPosition" => {
                self.from_earliest = match value {
                    "Earliest" => true,
                    "Latest" => false,
                    _ => return Err(invalid("Earliest or Latest")),
                }
            }
            "ackTimeoutMillis" if value == "0" => {}
            "ackTimeoutMillis" => {
                let reason = "messages are sent again when they are refused, or when the client comes again, and at no \
                              other time: expected 0";
                return Err(QueryError::Refused { name: "ackTimeoutMillis", reason });
            }
            "maxRedeliverCount" | "deadLetterTopic" => {
                let reason = "there are no dead-letter topics";
                let name =
                    if name == "deadLetterTopic" { "deadLetterTopic" } else { "maxRedeliverCount" };
                return Err(QueryError::Refused { name, reason });
            }
            _ if OF_CONSUMERS_IGNORED.contains(&name) => {}
            _ => return Err(QueryError::Unknown(name.to_owned())),
        }
        Ok(())
    }
}

impl ReaderQuery {
    /// Reads the parameters of a reader of this topic: names and values, decoded.
    ///
    /// # Errors
    /// One of them makes no sense.
    pub fn read<'a>(
        topic: &str,
        parameters: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<ReaderQuery, QueryError> {
        let mut query = ReaderQuery { start: Start::Latest, queue: QUEUE_DEFAULT };
        for (name, value) in once_each(parameters)? {
            let invalid = |expected| invalid(name, value, expected);
            match name {
                "messageId" => {
                    query.start = match value {
                        "earliest" => Start::Earliest,
                        "latest" => Start::Latest,
                        ids => behind(topic, ids).ok_or_else(|| invalid(IDS))?,
                    }
                }
                "receiverQueueSize" => query.queue = queue(value).ok_or_else(|| invalid(QUEUE))?,
                _ if OF_READERS_IGNORED.contains(&name) => {}
                _ => return Err(QueryError::Unknown(name.to_owned())),
            }
        }
        Ok(query)
    }
}

const IDS: &str = "earliest, latest, or ids of messages of this topic with commas between them, one of each partition at most";

/// Behind these messages, and at the first record of all other partitions.
fn behind(topic: &str, ids: &str) -> Option<Start> {
    let mut list = Vec::new();
    for id in ids.split(',') {
        let id = MessageId::read(id).ok().filter(|id| id.topic == topic)?;
        list.push((id.partition, id.offset + 1));
    }
    list.sort_unstable();
    let is_set = list.windows(2).all(|two| two[0].0 < two[1].0) && list.len() <= PARTITIONS_MAX;
    is_set.then_some(Start::Behind(list))
}

/// Checks the parameters of a producer.
///
/// # Errors
/// One of them is not known, or is there twice.
pub fn check_producer<'a>(
    parameters: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<(), QueryError> {
    let unknown = |(name, _): &(&str, &str)| !OF_PRODUCERS.contains(name);
    match once_each(parameters)?.into_iter().find(unknown) {
        Some((name, _)) => Err(QueryError::Unknown(name.to_owned())),
        None => Ok(()),
    }
}

fn once_each<'a>(
    parameters: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<Vec<(&'a str, &'a str)>, QueryError> {
    let mut list: Vec<(&str, &str)> = Vec::new();
    for (name, value) in parameters {
        if list.iter().any(|(known, _)| *known == name) {
            return Err(QueryError::Twice(name.to_owned()));
        }
        list.push((name, value));
    }
    Ok(list)
}

fn invalid(name: &str, value: &str, expected: &'static str) -> QueryError {
    QueryError::Value { name: name.to_owned(), value: value.to_owned(), expected }
}

fn queue(value: &str) -> Option<usize> {
    let queue = usize::try_from(number(value)?).ok()?;
    (1..=QUEUE_MAX).contains(&queue).then_some(queue)
}

fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::super::message_id;
    use super::*;

    fn consumer(parameters: &[(&str, &str)]) -> Result<ConsumerQuery, String> {
        let read = ConsumerQuery::read(parameters.iter().copied());
        read.map_err(|error| error.to_string())
    }

    #[test]
    fn a_consumer_asks_in_pulsars_names() {
        let query = consumer(&[]).unwrap();
        assert_eq!((query.subscription, query.queue), (Subscription::Exclusive, 1000));
        let query = consumer(&[
            ("subscriptionType", "Shared"),
            ("receiverQueueSize", "7"),
            ("pullMode", "true"),
            ("negativeAckRedeliveryDelay", "5"),
            ("subscriptionInitialPosition", "Earliest"),
            ("consumerName", "x"),
            ("ackTimeoutMillis", "0"),
        ]);
        let expected = ConsumerQuery {
            subscription: Subscription::Shared,
            queue: 7,
            pulls: true,
            nack_delay_ms: 5,
            from_earliest: true,
        };
        assert_eq!(query, Ok(expected));
    }

    #[test]
    fn what_cannot_be_had_is_refused() {
        for (name, value, part) in [
            ("subscriptionType", "Key_Shared", "Shared keeps their order"),
            ("subscriptionType", "shared", "expected Exclusive"),
            ("receiverQueueSize", "0", "from 1 to 10000"),
            ("receiverQueueSize", "10001", "from 1 to 10000"),
            ("pullMode", "1", "true or false"),
            ("ackTimeoutMillis", "1000", "expected 0"),
            ("deadLetterTopic", "t", "no dead-letter topics"),
            ("recieverQueueSize", "5", "unknown parameter"),
        ] {
            let error = consumer(&[(name, value)]).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        let twice = consumer(&[("pullMode", "true"), ("pullMode", "true")]).unwrap_err();
        assert_eq!(twice, "pullMode is there twice");
        assert!(check_producer([("producerName", "p")].into_iter()).is_ok());
        assert!(check_producer([("producer", "p")].into_iter()).is_err());
    }

    #[test]
    fn a_reader_begins_behind_the_messages_that_it_names() {
        let reader = |id: &str| ReaderQuery::read("t", [("messageId", id)].into_iter());
        assert_eq!(reader("earliest").unwrap().start, Start::Earliest);
        let ids = [message_id::write("t", 2, 9), message_id::write("t", 0, 4)].join(",");
        assert_eq!(reader(&ids).unwrap().start, Start::Behind(vec![(0, 5), (2, 10)]));
        for ids in [
            message_id::write("u", 0, 0),
            [message_id::write("t", 0, 0), message_id::write("t", 0, 1)].join(","),
            "x".to_owned(),
            String::new(),
        ] {
            assert!(reader(&ids).is_err(), "{ids}");
        }
    }
}
