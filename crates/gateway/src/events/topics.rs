//! Which topics there are.

use std::fmt::Display;
use std::sync::Arc;

use client::metadata::Topic;
use client::{ClientError, Cluster};
use model::{ErrorCode, topic_name};
use serving::error::{ApiError, Kind};
use tokio::sync::Semaphore;

use crate::produce::no_topic;

/// The topic of this name, asked for if it is not known.
pub(super) async fn find(
    cluster: &Cluster,
    asking: &Semaphore,
    name: &str,
) -> Result<Arc<Topic>, ApiError> {
    if topic_name::validate(name).is_err() {
        return Err(no_topic(name));
    }
    if let Some(topic) = known(cluster, name) {
        return Ok(topic);
    }
    let _permit = asking.acquire().await.map_err(|closed| unavailable(&closed))?;
    let described = cluster.describe([name]).await.map_err(|error| unavailable(&error))?;
    let topic = described.topics.get(name).ok_or_else(|| no_topic(name))?;
    match topic.error {
        ErrorCode::InvalidTopicException => return Err(no_topic(name)),
        ErrorCode::TopicAuthorizationFailed => return Err(unauthorized(name)),
        _ if topic.is_internal => {
            let words = format!("{name} is one of the cluster's own topics");
            return Err(ApiError::new(Kind::Forbidden, words));
        }
        _ => {}
    }
    cluster.want([name]);
    cluster.refresh().await.map_err(|error| unavailable(&error))?;
    known(cluster, name).ok_or_else(|| unavailable(&format!("topic {name} is not ready")))
}

/// The topic, if it has been kept known for readers.
fn known(cluster: &Cluster, name: &str) -> Option<Arc<Topic>> {
    let topic = cluster.known(name)?;
    let is_ready = topic.error.is_none() && !topic.partitions.is_empty() && !topic.is_internal;
    is_ready.then_some(topic)
}

fn unauthorized(name: &str) -> ApiError {
    let words = format!("the cluster does not let the gateway read {name}");
    ApiError::new(Kind::Unauthorized, words)
}

/// Weather: the same request may succeed later.
pub(super) fn unavailable(cause: &impl Display) -> ApiError {
    ApiError::new(Kind::Unavailable, format!("the cluster cannot be asked now: {cause}"))
}

/// What a question to the cluster failed with.
pub(super) fn failed(error: &ClientError, name: &str) -> ApiError {
    match error.code() {
        Some(ErrorCode::TopicAuthorizationFailed) => unauthorized(name),
        _ => unavailable(error),
    }
}
