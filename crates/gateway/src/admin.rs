//! Creating topics, which is all that the gateway changes in a cluster besides records and offsets.

use client::{Admin, ClientError};
use hyper::StatusCode;
use hyper::body::Incoming;
use hyper::http::request::Parts;
use model::ErrorCode;
use serving::error::{ApiError, Kind};
use serving::rights::Deed;
use tokio::time::timeout;

use crate::answer::Answer;
use crate::instances::check_type;
use crate::produce::{LOOKUP_MAX, of_refusal, unavailable};
use crate::request::body::collect;
use crate::request::new_topic;
use crate::state::Shared;
use crate::who::Visitor;

/// Creates the topic that the body describes.
pub(crate) async fn create_topic(
    shared: &Shared,
    parts: &Parts,
    body: &mut Incoming,
) -> Result<Answer, ApiError> {
    let body = collect(body, parts, shared).await?;
    check_type(&parts.headers, &body.bytes)?;
    let topic = new_topic(&body.bytes)?;
    shared.allow(Visitor::of(parts), Deed::CreateTopic(&topic.name))?;
    let admin = Admin::new(shared.topics.cluster().clone());
    let created = timeout(LOOKUP_MAX, admin.create_topic(&topic)).await;
    let late = |_| unavailable(&"no broker answered within 5 s, and the topic may be there");
    created.map_err(late)?.map_err(|error| refused(&error))?;
    Ok(Answer::as_proxies("{}".to_owned()).with_status(StatusCode::CREATED))
}

fn refused(error: &ClientError) -> ApiError {
    let kind = match error.code() {
        Some(ErrorCode::TopicAlreadyExists) => Kind::TopicTaken,
        Some(
            ErrorCode::InvalidTopicException
            | ErrorCode::InvalidPartitions
            | ErrorCode::InvalidReplicationFactor
            | ErrorCode::InvalidConfig
            | ErrorCode::PolicyViolation,
        ) => Kind::Unprocessable,
        _ => return of_refusal(error),
    };
    ApiError::new(kind, error.to_string())
}
