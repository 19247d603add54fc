//! A request with a key, from its records to its answer.

use std::sync::Arc;

use serving::error::{ApiError, Kind, Written};
use serving::idempotency::Name;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::held::{Begun, Held};
use crate::answer::{Answer, Kept};
use crate::produce::handler::Read;
use crate::produce::job::Job;
use crate::produce::sending::{ANSWER_MAX, Outcome, settle_all};
use crate::state::Shared;

/// In place of words that are too long to be kept.
const SHORT: &str = "refused: the code says why";

/// A request with a key.
pub(in crate::produce) struct Keyed<'a> {
    pub(in crate::produce) name: Name,
    /// What it asks, in parts.
    pub(in crate::produce) asked: Vec<&'a [u8]>,
}

/// What the client of the first request is told.
type Told = Result<Answer, ApiError>;

/// A request with a key that is under way, or was.
pub(in crate::produce) enum Carried {
    /// It was decided before.
    Known(Kept),
    /// A task waits for its records.
    Going {
        told: oneshot::Receiver<Told>,
        /// How long the client waits.
        deadline: Instant,
    },
}

impl Carried {
    /// The answer, once it is known, or that it is not known in time.
    pub(in crate::produce) async fn answer(self) -> Told {
        match self {
            Carried::Known(kept) => Ok(kept.replayed()),
            Carried::Going { told, deadline } => match timeout_at(deadline, told).await {
                Ok(Ok(told)) => told,
                Ok(Err(_)) | Err(_) => Err(not_known_yet()),
            },
        }
    }
}

/// Carries the request out, unless another one with its key was before it: then that one's answer is the answer.
pub(in crate::produce) async fn carry(
    shared: &Arc<Shared>,
    keyed: Keyed<'_>,
    topic: &str,
    job: &Arc<Job>,
    read: &Read<'_>,
) -> Result<Carried, ApiError> {
    let deadline = Instant::now() + ANSWER_MAX;
    // What makes no sense takes no key.
    let records = {
        let drafts = read()?;
        job.check(&drafts)?;
        drafts.len()
    };
    loop {
        let begun = shared.keys.begin(&keyed.name, &keyed.asked, job.answer_bytes_max(records))?;
        match begun {
            Begun::Known(kept) => return Ok(Carried::Known(kept)),
            Begun::Another(told) => match timeout_at(deadline, told).await {
                Ok(Ok(kept)) => return Ok(Carried::Known(kept)),
                // Nothing of that one was carried out: perhaps this one is the first now.
                Ok(Err(_)) => {}
                Err(_) => return Err(not_known_yet()),
            },
            Begun::First(held) => {
                let told = send(shared, held, topic, job, read).await?;
                return Ok(Carried::Going { told, deadline });
            }
        }
    }
}

fn not_known_yet() -> ApiError {
    let words = "no broker has acknowledged the record in time, and it may be written: the same request with the same \
                 Idempotency-Key hears what became of it";
    ApiError::new(Kind::Undecided, words)
}

/// Sends the records and leaves them, with the duty to say what became of them, to a task that no client can end.
/// Where nothing could be sent, that is the error and the key is free.
async fn send(
    shared: &Arc<Shared>,
    held: Held,
    topic: &str,
    job: &Arc<Job>,
    read: &Read<'_>,
) -> Result<oneshot::Receiver<Told>, ApiError> {
    let topic = shared.topics.get(topic).await?;
    let way = shared.topics.patient(&topic).await?;
    let (tell, told) = oneshot::channel();
    // From here to the task nothing is awaited, so that this cannot be dropped in between.
    job.begin();
    let drafts = read()?;
    let slots = job.send(&shared.topics, &topic, way, &drafts);
    let answer_bytes_max = job.answer_bytes_max(drafts.len());
    let owed = held.sent();
    let (shared, job, topic) = (Arc::clone(shared), Arc::clone(job), Arc::clone(&topic));
    tokio::spawn(async move {
        let outcomes = settle_all(&shared.topics, &topic, slots).await;
        let is_open = is_written_or_unknown(&outcomes);
        let (told, kept) = answered(&job, outcomes, answer_bytes_max);
        match is_open {
            true => owed.decided(&kept),
            false => owed.nothing_written(),
        }
        // The client may have left.
        let _ = tell.send(told);
    });
    Ok(told)
}

/// Whether any record is written, or may be.
fn is_written_or_unknown(outcomes: &[Outcome]) -> bool {
    outcomes.iter().any(|outcome| match &outcome.result {
        Ok(_) => true,
        Err(error) => error.kind.written() == Written::Unknown,
    })
}

/// The answer to the first request, and what is kept for others: the same, unless its words are too long.
fn answered(job: &Job, outcomes: Vec<Outcome>, bytes_max: usize) -> (Told, Kept) {
    let told = job.answer(&outcomes);
    let mut kept = Kept::of(&told);
    if kept.size_bytes() > bytes_max {
        kept = Kept::of(&job.answer(&shorten(outcomes)));
    }
    (told, kept)
}

/// The outcomes without words of any length.
fn shorten(mut outcomes: Vec<Outcome>) -> Vec<Outcome> {
    for error in outcomes.iter_mut().filter_map(|outcome| outcome.result.as_mut().err()) {
        *error = ApiError::new(error.kind, SHORT);
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use serving::choice::{Choice, Pair};

    use super::*;
    use crate::produce::job::Style;
    use crate::produce::sending::Landed;
    use crate::request::wanted::Wanted;

    #[test]
    fn what_is_kept_has_the_room_that_was_set_aside() {
        let wanted = Wanted { pair: Pair::default(), is_async: false, is_timed: false };
        let job = Job::new(None, wanted, Style::List);
        let choice = Some(Choice { partition: i32::MAX, broker: Some(i32::MAX) });
        let landed = Landed { offset: i64::MAX, appended_ms: Some(i64::MAX) };
        let lost = ApiError::new(Kind::Undecided, "\0".repeat(10_000));
        for count in [1, 2, 1000] {
            let mut outcomes = vec![Outcome { choice, result: Err(lost.clone()) }; count];
            let bytes_max = job.answer_bytes_max(count);
            let (told, kept) = answered(&job, outcomes.clone(), bytes_max);
            assert!(told.unwrap_err().message.len() == 10_000, "the first client hears it all");
            assert!(kept.size_bytes() <= bytes_max, "{count}: {}", kept.size_bytes());
            outcomes[0].result = Ok(landed);
            let (_, kept) = answered(&job, outcomes, bytes_max);
            assert!(kept.size_bytes() <= bytes_max, "{count}: {}", kept.size_bytes());
        }
    }
}
