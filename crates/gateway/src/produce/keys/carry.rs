//! A request with a key, from its records to its answer.

use std::sync::Arc;

use serving::error::{ApiError, Kind, Written};
use serving::idempotency::Name;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::held::{Begun, Held, Kept};
use super::outcomes::KeptOutcomes;
use crate::answer::{Answer, failed};
use crate::produce::handler::Read;
use crate::produce::job::Job;
use crate::produce::sending::{ANSWER_MAX, Outcome, settle_all};
use crate::share_owner::ShareOwner;
use crate::state::Shared;

/// In place of words that are too long to be kept.
const SHORT: &str = "refused: the code says why";

/// A request with a key.
pub(in crate::produce) struct Keyed<'a> {
    pub(in crate::produce) name: Name,
    pub(in crate::produce) owner: ShareOwner,
    /// Whether its client may create the topic.
    pub(in crate::produce) may_create: bool,
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
    /// The answer, once it is known, or that it is not known in time. `job`: of this request, which is the same as the
    /// first one's.
    pub(in crate::produce) async fn answer(self, job: &Job) -> Told {
        match self {
            Carried::Known(kept) => Ok(replay(&kept, job)),
            Carried::Going { told, deadline } => match timeout_at(deadline, told).await {
                Ok(Ok(told)) => told,
                Ok(Err(_)) | Err(_) => Err(not_known_yet()),
            },
        }
    }
}

/// The answer to a request that was decided before.
fn replay(kept: &Kept, job: &Job) -> Answer {
    let told = match kept {
        Kept::Failed(error) => Err(error.clone()),
        Kept::Outcomes(outcomes) => {
            let (received_ms, outcomes) = outcomes.outcomes();
            job.answer_again(&outcomes, received_ms)
        }
    };
    told.unwrap_or_else(|error| failed(&error)).replayed()
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
    let (records, partition) = {
        let drafts = read()?;
        job.check(&drafts)?;
        (drafts.len(), job.extreme_partition(&drafts))
    };
    loop {
        let begun = shared.keys.begin(&keyed, KeptOutcomes::bytes_max(records))?;
        match begun {
            Begun::Known(kept) => return Ok(Carried::Known(kept)),
            Begun::Another(told) => match timeout_at(deadline, told).await {
                Ok(Ok(kept)) => return Ok(Carried::Known(kept)),
                // Nothing of that one was carried out: perhaps this one is the first now.
                Ok(Err(_)) => {}
                Err(_) => return Err(not_known_yet()),
            },
            Begun::First(held) => {
                let topic = (topic, keyed.may_create, partition);
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
    (topic, may_create, partition): (&str, bool, Option<i32>),
    job: &Arc<Job>,
    read: &Read<'_>,
) -> Result<oneshot::Receiver<Told>, ApiError> {
    let topic = shared.topics.get_or_create(topic, may_create, partition).await?;
    let way = shared.topics.patient(&topic).await?;
    let (tell, told) = oneshot::channel();
    // From here to the task nothing is awaited, so that this cannot be dropped in between.
    job.begin();
    let drafts = read()?;
    let slots = job.send(&shared.topics, &topic, way, &drafts);
    let kept_bytes_max = KeptOutcomes::bytes_max(drafts.len());
    let owed = held.sent();
    let (shared, job, topic) = (Arc::clone(shared), Arc::clone(job), Arc::clone(&topic));
    tokio::spawn(async move {
        let outcomes = settle_all(&shared.topics, &topic, slots).await;
        let is_open = is_written_or_unknown(&outcomes);
        let told = job.answer(&outcomes);
        match is_open {
            true => owed.decided(&keep(outcomes, job.received_ms(), kept_bytes_max)),
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

/// The outcomes that other requests with the key get, without error texts if those are too long.
fn keep(outcomes: Vec<Outcome>, received_ms: i64, bytes_max: usize) -> Kept {
    let kept = KeptOutcomes::of(&outcomes, received_ms);
    match kept.size_bytes() > bytes_max {
        true => Kept::Outcomes(KeptOutcomes::of(&shorten(outcomes), received_ms)),
        false => Kept::Outcomes(kept),
    }
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
    fn kept_outcomes_have_the_room_that_was_set_aside() {
        let wanted = Wanted { pair: Pair::default(), is_async: false, is_timed: false };
        let job = Job::new(None, wanted, Style::List);
        let choice = |at| Some(Choice { partition: i32::MIN + at, broker: Some(i32::MAX) });
        let lost = ApiError::new(Kind::Undecided, "\0".repeat(10_000));
        for count in [1, 2, 1000] {
            let mut outcomes: Vec<Outcome> = (0..count)
                .map(|at| Outcome { choice: choice(at), result: Err(lost.clone()) })
                .collect();
            let bytes_max = KeptOutcomes::bytes_max(outcomes.len());
            assert_eq!(job.answer(&outcomes).unwrap_err().message.len(), 10_000);
            let kept = keep(outcomes.clone(), i64::MIN, bytes_max);
            assert!(kept.size_bytes() <= bytes_max, "{count}: {}", kept.size_bytes());
            assert_eq!(replay(&kept, &job).status(), 504);
            for (at, outcome) in outcomes.iter_mut().enumerate() {
                let number = i64::MAX - 3 * at as i64;
                outcome.result = Ok(Landed { offset: number, appended_ms: Some(-number) });
            }
            let kept = keep(outcomes, i64::MIN, bytes_max);
            assert!(kept.size_bytes() <= bytes_max, "{count}: {}", kept.size_bytes());
            assert_eq!(replay(&kept, &job).status(), 200);
        }
    }
}
