//! Records that come from within: from a page of this process, not in the body of a request.

use std::sync::Arc;

use serving::choice::Pair;
use serving::error::ApiError;
use serving::operation::Sent;
use tokio::time::Instant;

use super::sending::{ANSWER_MAX, Outcome, send_all, settle};
use crate::request::draft::Draft;
use crate::state::Shared;

/// Sends records and waits for their acknowledgements, no longer than a request would.
///
/// # Errors
/// The topic does not exist, or the cluster cannot be asked: none was sent.
pub(crate) async fn send(
    shared: &Arc<Shared>,
    topic: &str,
    drafts: &[Draft<'_>],
    pair: Pair,
    partition: Option<i32>,
) -> Result<Vec<Result<Sent, ApiError>>, ApiError> {
    let topic = shared.topics.get(topic).await?;
    let slots = send_all(&shared.topics, &topic, topic.way(), drafts, partition, pair);
    let outcomes = settle(&shared.topics, &topic, slots, Instant::now() + ANSWER_MAX).await;
    Ok(outcomes.into_iter().map(sent).collect())
}

fn sent(Outcome { choice, result }: Outcome) -> Result<Sent, ApiError> {
    let offset = result?.offset;
    let choice = choice.expect("a record with an offset was given a partition");
    Ok(Sent { partition: choice.partition, broker: choice.broker, offset })
}
