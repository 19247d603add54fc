//! The topics that records were sent to. A name that is not known is looked up for each request, at most eight names at a
//! time; a topic that does not exist is created where brokers and the client's rights allow that.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use client::{Admin, ClientError, Cluster, ClusterConfig, Producer, ProducerConfig, metadata};
use model::{ErrorCode, topic_name};
use serving::error::{ApiError, Kind};
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::timeout;
use tracing::debug;

use super::topic::Topic;
use super::way::Way;

/// Names that the cluster is asked for at a time.
const LOOKUPS_MAX: usize = 8;
/// How long a request waits for the cluster to say what a topic has.
pub(crate) const LOOKUP_MAX: Duration = Duration::from_secs(5);
/// Time that one broker has to send its configuration; another broker is tried then.
const CONFIG_MAX: Duration = Duration::from_secs(2);
/// How long records may wait for their acknowledgement, in the producer.
pub(super) const DELIVERY_MAX: Duration = Duration::from_secs(10);
/// How long records with an `Idempotency-Key` may wait: their clients have left long before, and ask again.
const PATIENCE_MAX: Duration = Duration::from_secs(120);
/// The part of the memory for records that are not acknowledged which those with a key have for themselves; where that
/// is not enough for one record, up to half of it.
const PATIENT_PART: usize = 8;
/// Bytes of a batch of theirs: few enough for five hundred partitions at a time.
const PATIENT_BATCH_BYTES: usize = 16 * 1024;
/// How long a broker may wait for the others before it answers.
const ACKS_MAX: Duration = Duration::from_secs(5);
/// Bytes of a batch: what one request of a hundred connections makes, and few enough for nine hundred partitions at a
/// time.
const BATCH_BYTES: usize = 64 * 1024;
/// What a record takes beside the body that it came in: lengths, and headers from the head of a request.
const RECORD_SLACK_BYTES: usize = 64 * 1024;

/// Creation of missing topics by the brokers.
#[derive(Debug, PartialEq, Eq)]
enum AutoCreation {
    Disabled,
    /// New topics have this number of partitions.
    Partitions(i32),
    /// The brokers' ACLs deny the gateway `DescribeConfigs` on the cluster; `Create` may be allowed all the same.
    Unknown,
}

impl AutoCreation {
    /// Reads the configuration of one broker. `config`: the value of a key of the broker.
    async fn read<F>(config: impl Fn(&'static str) -> F) -> Result<AutoCreation, ClientError>
    where
        F: Future<Output = Result<Option<String>, ClientError>>,
    {
        let is_enabled = match config("auto.create.topics.enable").await {
            Err(error) if error.code() == Some(ErrorCode::ClusterAuthorizationFailed) => {
                return Ok(AutoCreation::Unknown);
            }
            value => value?,
        };
        if is_enabled.as_deref() != Some("true") {
            return Ok(AutoCreation::Disabled);
        }
        let count = config("num.partitions").await?;
        let count = count.and_then(|count| count.parse().ok());
        Ok(count.map_or(AutoCreation::Unknown, AutoCreation::Partitions))
    }
}

/// A producer, made for the first request that needs it.
struct Maker {
    config: ProducerConfig,
    producer: OnceCell<Producer>,
}

/// Topics by name.
pub(crate) struct Topics {
    cluster: Cluster,
    quick: Maker,
    /// Knows at last what became of a record, where the other one has given it up.
    patient: Maker,
    known: RwLock<HashMap<String, Arc<Topic>>>,
    lookups: Semaphore,
}

impl Topics {
    /// None yet, and no connection. `buffer_bytes`: what records may hold that are not acknowledged.
    pub(crate) fn new(
        cluster: &ClusterConfig,
        buffer_bytes: usize,
        request_bytes_max: usize,
    ) -> Topics {
        let record_bytes_max = request_bytes_max.max(1 << 20) + RECORD_SLACK_BYTES;
        let patient_bytes =
            (buffer_bytes / PATIENT_PART).max(record_bytes_max.min(buffer_bytes / 2));
        let quick = ProducerConfig {
            batch_bytes: BATCH_BYTES,
            linger: Duration::ZERO,
            buffer_bytes: buffer_bytes - patient_bytes,
            request_bytes_max: record_bytes_max,
            partition_in_flight_max: 1,
            request_timeout: ACKS_MAX,
            delivery_timeout: DELIVERY_MAX,
            gives_up_deleted: true,
            ..ProducerConfig::default()
        };
        let patient = ProducerConfig {
            batch_bytes: PATIENT_BATCH_BYTES,
            buffer_bytes: patient_bytes,
            delivery_timeout: PATIENCE_MAX,
            ..quick.clone()
        };
        Topics {
            cluster: Cluster::new(cluster.clone()),
            quick: Maker { config: quick, producer: OnceCell::new() },
            patient: Maker { config: patient, producer: OnceCell::new() },
            known: RwLock::default(),
            lookups: Semaphore::new(LOOKUPS_MAX),
        }
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// A topic that was produced to.
    pub(crate) fn known(&self, name: &str) -> Option<Arc<Topic>> {
        self.known.read().expect("no code under it panics").get(name).cloned()
    }

    /// The names of the topics that were produced to, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let known = self.known.read().expect("no code under it panics");
        let mut names: Vec<String> = known.keys().cloned().collect();
        names.sort();
        names
    }

    /// The topic of this name, looked up if it is not known.
    ///
    /// # Errors
    /// The topic does not exist, is internal, or no broker answers.
    pub(crate) async fn get(&self, name: &str) -> Result<Arc<Topic>, ApiError> {
        self.get_or_create(name, false, None).await
    }

    /// The topic of this name. `may_create`: whether the client may create it, if the brokers create topics that clients
    /// write to (`auto.create.topics.enable`). `partition`: the greatest, or impossible, partition that the client names.
    ///
    /// # Errors
    /// The topic does not exist, is internal, or no broker answers; or a new topic would not have the partition.
    pub(crate) async fn get_or_create(
        &self,
        name: &str,
        may_create: bool,
        partition: Option<i32>,
    ) -> Result<Arc<Topic>, ApiError> {
        if let Some(topic) = self.known(name) {
            return Ok(topic);
        }
        let found = match self.existing(name).await {
            Err(error) if may_create && error.kind == Kind::NoTopic => {
                check_name(name)?;
                if let Some(partition) = partition {
                    self.check_partition(name, partition).await?;
                }
                in_time(self.look_up(name, true)).await?
            }
            found => found?,
        };
        if found.is_internal {
            let words = format!(
                "{name} is one of the cluster's own topics, which only the cluster writes to"
            );
            return Err(ApiError::new(Kind::Forbidden, words));
        }
        in_time(self.begin(name)).await
    }

    /// Whether a topic can be written to: it exists, or the client and the brokers create it with its first record.
    ///
    /// # Errors
    /// It cannot, or no broker answers.
    pub(crate) async fn check_writable(
        &self,
        name: &str,
        may_create: bool,
    ) -> Result<(), ApiError> {
        match self.get(name).await {
            Err(error) if may_create && error.kind == Kind::NoTopic => {
                check_name(name)?;
                match self.auto_creation().await? {
                    AutoCreation::Disabled => Err(error),
                    AutoCreation::Partitions(_) | AutoCreation::Unknown => Ok(()),
                }
            }
            found => found.map(drop),
        }
    }

    async fn check_partition(&self, name: &str, partition: i32) -> Result<(), ApiError> {
        let count = match self.auto_creation().await? {
            AutoCreation::Disabled => return Err(no_topic(name)),
            AutoCreation::Unknown => return Ok(()),
            AutoCreation::Partitions(count) => count,
        };
        if (0..count).contains(&partition) {
            return Ok(());
        }
        let words = format!(
            "topic {name:?} does not exist, and the brokers would create it with {count} partitions, counted from 0: \
             not {partition}"
        );
        Err(ApiError::new(Kind::NoPartition, words))
    }

    /// The brokers' configuration of automatic creation, from the first broker that answers.
    async fn auto_creation(&self) -> Result<AutoCreation, ApiError> {
        let asked = async {
            let _permit = self.lookups.acquire().await.map_err(|closed| unavailable(&closed))?;
            if self.cluster.metadata().brokers.is_empty() {
                self.cluster.refresh().await.map_err(|error| unavailable(&error))?;
            }
            let brokers: Vec<i32> = self.cluster.metadata().brokers.keys().copied().collect();
            let admin = &Admin::new(self.cluster.clone());
            let ask = |broker| AutoCreation::read(move |key| admin.broker_config(broker, key));
            first_answer(&brokers, CONFIG_MAX, ask).await
        };
        in_time(asked).await
    }

    /// The topic of this name as the cluster has it now.
    pub(crate) async fn existing(&self, name: &str) -> Result<Arc<metadata::Topic>, ApiError> {
        check_name(name)?;
        in_time(self.look_up(name, false)).await
    }

    async fn look_up(&self, name: &str, creates: bool) -> Result<Arc<metadata::Topic>, ApiError> {
        let _permit = self.lookups.acquire().await.map_err(|closed| unavailable(&closed))?;
        let described = match creates {
            true => self.cluster.describe_or_create(name).await,
            false => self.cluster.describe([name]).await,
        };
        let described = described.map_err(|error| unavailable(&error))?;
        let topic = described.topics.get(name).ok_or_else(|| no_topic(name))?;
        match topic.error {
            ErrorCode::InvalidTopicException => Err(no_topic(name)),
            ErrorCode::TopicAuthorizationFailed => {
                let words = format!("the cluster does not let the gateway use {name}");
                Err(ApiError::new(Kind::Unauthorized, words))
            }
            _ => Ok(Arc::clone(topic)),
        }
    }

    /// Begins to produce to a topic.
    async fn begin(&self, name: &str) -> Result<Arc<Topic>, ApiError> {
        let _permit = self.lookups.acquire().await.map_err(|closed| unavailable(&closed))?;
        if let Some(topic) = self.known(name) {
            return Ok(topic);
        }
        let way = self.quick.way(&self.cluster, name).await?;
        let topic = Arc::new(Topic::new(name, way, self.quick.config.batch_bytes));
        let mut known = self.known.write().expect("no code under it panics");
        // Those that the cluster has told are gone, to which nothing may ever be produced again.
        let metadata = self.cluster.metadata();
        known.retain(|name, _| metadata.topics.contains_key(name.as_str()));
        Ok(known.entry(name.to_owned()).or_insert(topic).clone())
    }

    /// The way of requests with a key.
    pub(super) async fn patient<'a>(&self, topic: &'a Topic) -> Result<&'a Way, ApiError> {
        let make = async || {
            let _permit = self.lookups.acquire().await.map_err(|closed| unavailable(&closed))?;
            self.patient.way(&self.cluster, &topic.name).await
        };
        in_time(topic.patient.get_or_try_init(make)).await
    }

    /// Whether the cluster has told, since the topic became known, that it is gone. Then it is forgotten.
    pub(super) fn is_gone(&self, topic: &Topic) -> bool {
        let is_gone = !self.cluster.metadata().topics.contains_key(&*topic.name);
        if is_gone {
            debug!(topic = %topic.name, "deleted");
            self.known.write().expect("no code under it panics").remove(&*topic.name);
            for producer in self.producers() {
                producer.forget(&topic.name);
            }
        }
        is_gone
    }

    /// The producers that there are.
    fn producers(&self) -> impl Iterator<Item = &Producer> {
        [&self.quick, &self.patient].into_iter().filter_map(|maker| maker.producer.get())
    }

    /// Records that were acknowledged, and bytes of those that are not yet.
    pub(crate) fn produced(&self) -> (u64, usize) {
        let of = |maker: &Maker| {
            let producer = maker.producer.get()?;
            let free = producer.free_buffer_bytes();
            Some((producer.metrics().records, maker.config.buffer_bytes.saturating_sub(free)))
        };
        let made = [&self.quick, &self.patient].into_iter().filter_map(of);
        made.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    }

    /// Waits until nothing is under way.
    pub(crate) async fn flush(&self) {
        for producer in self.producers() {
            // A request that waits for a record hears of its fate by itself.
            let _ = producer.flush().await;
        }
    }
}

impl Maker {
    /// The way to a topic.
    async fn way(&self, cluster: &Cluster, topic: &str) -> Result<Way, ApiError> {
        let make = || Producer::new(cluster.clone(), self.config.clone());
        let made = self.producer.get_or_try_init(make).await;
        let producer = made.map_err(|error| unavailable(&error))?;
        let queues = producer.topic(topic).await.map_err(|error| unavailable(&error))?;
        Ok(Way { producer: queues, buffer_bytes: self.config.buffer_bytes })
    }
}

/// The answer of the first broker that has one within `each_max`.
async fn first_answer<T, F>(
    brokers: &[i32],
    each_max: Duration,
    ask: impl Fn(i32) -> F,
) -> Result<T, ApiError>
where
    F: Future<Output = Result<T, ClientError>>,
{
    let mut failure = unavailable(&"no broker is known");
    for broker in brokers {
        match timeout(each_max, ask(*broker)).await {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(error)) => failure = unavailable(&error),
            Err(_) => failure = unavailable(&"a broker does not answer"),
        }
    }
    Err(failure)
}

/// Waits no longer than a request may wait for the cluster.
async fn in_time<T>(asked: impl Future<Output = Result<T, ApiError>>) -> Result<T, ApiError> {
    let late = |_| unavailable(&"no broker answered within 5 s");
    timeout(LOOKUP_MAX, asked).await.map_err(late)?
}

fn check_name(name: &str) -> Result<(), ApiError> {
    topic_name::validate(name).map_err(|_| no_topic(name))
}

pub(crate) fn no_topic(name: &str) -> ApiError {
    let words = format!(
        "topic {name:?} does not exist: create it first, or enable auto.create.topics.enable and use a role that may \
         create topics"
    );
    ApiError::new(Kind::NoTopic, words)
}

pub(crate) fn unavailable(cause: &impl std::fmt::Display) -> ApiError {
    ApiError::new(Kind::Unavailable, format!("the cluster cannot be asked now: {cause}"))
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    /// The configuration of a broker with these two values; `Err`: the broker refuses to describe it.
    async fn read(values: Result<(&str, Option<&str>), ErrorCode>) -> Option<AutoCreation> {
        let config = |key| {
            ready(match values {
                Ok((is_enabled, _)) if key == "auto.create.topics.enable" => {
                    Ok(Some(is_enabled.to_owned()))
                }
                Ok((_, count)) => Ok(count.map(str::to_owned)),
                Err(code) => Err(ClientError::refused("configuration", code)),
            })
        };
        AutoCreation::read(config).await.ok()
    }

    #[tokio::test]
    async fn brokers_that_deny_their_configuration_decide_about_a_missing_topic() {
        for (values, found) in [
            (Ok(("true", Some("3"))), Some(AutoCreation::Partitions(3))),
            (Ok(("true", None)), Some(AutoCreation::Unknown)),
            (Ok(("false", Some("3"))), Some(AutoCreation::Disabled)),
            (Err(ErrorCode::ClusterAuthorizationFailed), Some(AutoCreation::Unknown)),
            (Err(ErrorCode::RequestTimedOut), None),
        ] {
            assert_eq!(read(values).await, found, "{values:?}");
        }
    }

    #[tokio::test]
    async fn another_broker_is_tried_where_one_fails_or_does_not_answer() {
        let ask = async |broker| match broker {
            1 => pending().await,
            2 => Err(ClientError::ClientClosed),
            _ => Ok(broker),
        };
        let each_max = Duration::from_millis(1);
        assert_eq!(first_answer(&[1, 2, 3], each_max, ask).await.ok(), Some(3));
        for (brokers, words) in
            [(&[1][..], "does not answer"), (&[1, 2], "closed"), (&[], "no broker is known")]
        {
            let error = first_answer(brokers, each_max, ask).await.unwrap_err();
            assert_eq!(error.kind, Kind::Unavailable);
            assert!(error.message.contains(words), "{}", error.message);
        }
    }
}
