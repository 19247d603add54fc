//! Records that come one by one, each with an answer of its own.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serving::choice::Pair;
use serving::error::ApiError;
use tokio::time::{Instant, timeout_at};

use super::sending::{ANSWER_MAX, check_key, late, send_all};
use crate::request::draft::Draft;
use crate::state::Shared;

/// What becomes of a record: its partition and its offset.
pub(crate) type Landing = Pin<Box<dyn Future<Output = Result<(i32, i64), ApiError>> + Send>>;

/// Where records go that come one by one.
#[derive(Debug)]
pub(crate) struct One {
    topic: String,
    /// Whether the client may create the topic. Cleared by the first record for which the topic exists: later records do
    /// not create a deleted topic again.
    may_create: AtomicBool,
    pair: Pair,
}

impl One {
    /// To this topic. `may_create`: whether the client may create it.
    ///
    /// # Errors
    /// There is no such topic, or it cannot be written to, or not now.
    pub(crate) async fn to(
        shared: &Shared,
        topic: &str,
        may_create: bool,
        pair: Pair,
    ) -> Result<One, ApiError> {
        shared.topics.check_writable(topic, may_create).await?;
        Ok(One { topic: topic.to_owned(), may_create: AtomicBool::new(may_create), pair })
    }

    pub(crate) fn topic(&self) -> &str {
        &self.topic
    }

    /// Sends a record, or refuses it; what becomes of it is decided whether that is waited for or not.
    pub(crate) async fn send(&self, shared: &Arc<Shared>, draft: &Draft<'_>) -> Landing {
        if let Err(error) = check_key(draft, self.pair) {
            return refused(error);
        }
        let topics = &shared.topics;
        let may_create = self.may_create.load(Ordering::Relaxed);
        let topic = match topics.get_or_create(&self.topic, may_create, draft.partition).await {
            Ok(topic) => {
                self.may_create.store(false, Ordering::Relaxed);
                topic
            }
            Err(error) => return refused(error),
        };
        let drafts = std::slice::from_ref(draft);
        let slots = send_all(&shared.topics, &topic, topic.way(), drafts, None, self.pair);
        let deadline = Instant::now() + ANSWER_MAX;
        let shared = Arc::clone(shared);
        Box::pin(async move {
            let slot = slots.into_iter().next().expect("one record has one slot");
            let settled = slot.settled(&shared.topics, &topic);
            let landed = timeout_at(deadline, settled).await.unwrap_or_else(|_| Err(late()))?;
            let choice = slot.choice.expect("a record with an offset is in a partition");
            Ok((choice.partition, landed.offset))
        })
    }
}

/// What becomes of a record that is not sent.
pub(crate) fn refused(error: ApiError) -> Landing {
    Box::pin(std::future::ready(Err(error)))
}
