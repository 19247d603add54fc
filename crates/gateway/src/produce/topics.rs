//! The topics that records were sent to, and names without a topic: those are remembered for some seconds, so that a
//! client that asks for one again and again does not ask the cluster.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use client::{Cluster, ClusterConfig, Producer, ProducerConfig, metadata};
use model::{ErrorCode, topic_name};
use serving::error::{ApiError, Kind};
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::timeout;
use tracing::debug;

use super::topic::Topic;

/// How long a name without a topic is remembered as such.
const MISSING_KEPT: Duration = Duration::from_secs(5);
/// How many such names are remembered.
const MISSING_MAX: usize = 1000;
/// Names that the cluster is asked for at a time.
const LOOKUPS_MAX: usize = 8;
/// How long a request waits for the cluster to say what a topic has.
pub(crate) const LOOKUP_MAX: Duration = Duration::from_secs(5);
/// How long records may wait for their acknowledgement, in the producer.
pub(super) const DELIVERY_MAX: Duration = Duration::from_secs(10);
/// How long a broker may wait for the others before it answers.
const ACKS_MAX: Duration = Duration::from_secs(5);
/// Bytes of a batch: what one request of a hundred connections makes, and few enough for a thousand partitions.
const BATCH_BYTES: usize = 64 * 1024;
/// What a record takes beside the body that it came in: lengths, and headers from the head of a request.
const RECORD_SLACK_BYTES: usize = 64 * 1024;

/// Topics by name.
pub(crate) struct Topics {
    cluster: Cluster,
    config: ProducerConfig,
    /// Made for the first request.
    producer: OnceCell<Producer>,
    known: RwLock<HashMap<String, Arc<Topic>>>,
    /// Names without a topic, and until when that is believed.
    missing: Mutex<HashMap<String, Instant>>,
    lookups: Semaphore,
}

impl Topics {
    /// None yet, and no connection. `buffer_bytes`: what records may hold that are not acknowledged.
    pub(crate) fn new(
        cluster: &ClusterConfig,
        buffer_bytes: usize,
        request_bytes_max: usize,
    ) -> Topics {
        Topics {
            cluster: Cluster::new(cluster.clone()),
            config: ProducerConfig {
                batch_bytes: BATCH_BYTES,
                linger: Duration::ZERO,
                buffer_bytes,
                request_bytes_max: request_bytes_max.max(1 << 20) + RECORD_SLACK_BYTES,
                partition_in_flight_max: 1,
                request_timeout: ACKS_MAX,
                delivery_timeout: DELIVERY_MAX,
                ..ProducerConfig::default()
            },
            producer: OnceCell::new(),
            known: RwLock::default(),
            missing: Mutex::default(),
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

    /// The topic of this name, asked for if it is not known.
    pub(crate) async fn get(&self, name: &str) -> Result<Arc<Topic>, ApiError> {
        if let Some(topic) = self.known(name) {
            return Ok(topic);
        }
        let found = self.existing(name).await?;
        if found.is_internal {
            let words = format!(
                "{name} is one of the cluster's own topics, which only the cluster writes to"
            );
            return Err(ApiError::new(Kind::Forbidden, words));
        }
        in_time(self.begin(name)).await
    }

    /// The topic of this name as the cluster has it now.
    pub(crate) async fn existing(&self, name: &str) -> Result<Arc<metadata::Topic>, ApiError> {
        if topic_name::validate(name).is_err() || self.is_missing(name) {
            return Err(no_topic(name));
        }
        in_time(self.look_up(name)).await
    }

    async fn look_up(&self, name: &str) -> Result<Arc<metadata::Topic>, ApiError> {
        let _permit = self.lookups.acquire().await.map_err(|closed| unavailable(&closed))?;
        let described = self.cluster.describe([name]).await.map_err(|error| unavailable(&error))?;
        let Some(topic) = described.topics.get(name) else {
            self.note_missing(name);
            return Err(no_topic(name));
        };
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
        let producer = self.producer.get_or_try_init(|| self.connect()).await?;
        let queues = producer.topic(name).await.map_err(|error| unavailable(&error))?;
        let topic = Arc::new(Topic::new(name, queues, self.config.batch_bytes));
        let mut known = self.known.write().expect("no code under it panics");
        Ok(known.entry(name.to_owned()).or_insert(topic).clone())
    }

    async fn connect(&self) -> Result<Producer, ApiError> {
        let made = Producer::new(self.cluster.clone(), self.config.clone()).await;
        made.map_err(|error| unavailable(&error))
    }

    fn is_missing(&self, name: &str) -> bool {
        let missing = self.missing.lock().expect("no code under it panics");
        missing.get(name).is_some_and(|until| Instant::now() < *until)
    }

    fn note_missing(&self, name: &str) {
        let mut missing = self.missing.lock().expect("no code under it panics");
        if missing.len() >= MISSING_MAX {
            let now = Instant::now();
            missing.retain(|_, until| now < *until);
        }
        if missing.len() < MISSING_MAX {
            missing.insert(name.to_owned(), Instant::now() + MISSING_KEPT);
        }
    }

    /// Whether the cluster has told, since the topic became known, that it is gone. Then it is forgotten.
    pub(super) fn is_gone(&self, topic: &Topic) -> bool {
        let is_gone = !self.cluster.metadata().topics.contains_key(&*topic.name);
        if is_gone {
            debug!(topic = %topic.name, "deleted");
            self.known.write().expect("no code under it panics").remove(&*topic.name);
            if let Some(producer) = self.producer.get() {
                producer.forget(&topic.name);
            }
        }
        is_gone
    }

    /// Bytes that records may hold which are not acknowledged.
    pub(super) fn buffer_bytes(&self) -> usize {
        self.config.buffer_bytes
    }

    /// Waits until nothing is under way.
    pub(crate) async fn flush(&self) {
        if let Some(producer) = self.producer.get() {
            // A request that waits for a record hears of its fate by itself.
            let _ = producer.flush().await;
        }
    }
}

/// Waits no longer than a request may wait for the cluster.
async fn in_time<T>(asked: impl Future<Output = Result<T, ApiError>>) -> Result<T, ApiError> {
    let late = |_| unavailable(&"no broker answered within 5 s");
    timeout(LOOKUP_MAX, asked).await.map_err(late)?
}

pub(crate) fn no_topic(name: &str) -> ApiError {
    let words = format!(
        "topic {name:?} does not exist: create it first (the gateway creates none, and asks \
         the cluster for a name every 5 s at most)"
    );
    ApiError::new(Kind::NoTopic, words)
}

pub(crate) fn unavailable(cause: &impl std::fmt::Display) -> ApiError {
    ApiError::new(Kind::Unavailable, format!("the cluster cannot be asked now: {cause}"))
}
