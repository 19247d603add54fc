//! A request to produce, from its body to its answer.

use std::time::{Duration, Instant};

use hyper::HeaderMap;
use hyper::body::Incoming;
use serving::choice::Pair;
use serving::error::{ApiError, Kind};

use super::sending::{Outcome, send_all, settle};
use crate::answer::{Answer, Placed, nothing, offset, offsets};
use crate::request::Parameters;
use crate::request::body::collect;
use crate::request::draft::Draft;
use crate::request::wanted::{Wanted, raw, reading, wanted};
use crate::state::Shared;

/// Where the records of a request go, by its path.
pub(crate) struct Target<'a> {
    pub(crate) topic: &'a str,
    pub(crate) partition: Option<i32>,
    /// Whether the body is the value of one record.
    pub(crate) raw: bool,
}

/// Where the time of a request went.
struct Times {
    began: Instant,
    sent: Instant,
}

/// Produces what the body has, and answers when it is acknowledged.
pub(crate) async fn produce(
    shared: &Shared,
    target: Target<'_>,
    parameters: &Parameters<'_>,
    headers: &HeaderMap,
    body: &mut Incoming,
) -> Result<Answer, ApiError> {
    let wanted = wanted(parameters, headers)?;
    let reading = if target.raw { None } else { Some(reading(parameters, headers)?) };
    let body = collect(body, &shared.settings, &shared.bodies).await?;
    let topics = &shared.topics;
    let topic = topics.get(target.topic).await?;
    let began = Instant::now();
    let slots = {
        let drafts = match reading {
            Some(reading) => reading.drafts(&body.bytes)?,
            None => vec![raw(&body.bytes, parameters, headers)?],
        };
        check(&drafts, target.partition, wanted.pair)?;
        send_all(topics, &topic, &drafts, target.partition, wanted.pair)
    };
    // The records are in the producer's memory now.
    drop(body);
    let times = Times { began, sent: Instant::now() };
    if wanted.is_async {
        let refused: Vec<&ApiError> = slots.iter().filter_map(|slot| slot.refusal()).collect();
        // Nothing is promised of single records, but that nothing at all was taken is said.
        return match refused.first() {
            Some(error) if refused.len() == slots.len() => Err((*error).clone()),
            _ => Ok(nothing()),
        };
    }
    let outcomes = settle(topics, &topic, slots).await;
    answer(outcomes, target.raw, &wanted, &times)
}

/// Refuses a request that contradicts itself, before any of it is sent.
fn check(drafts: &[Draft<'_>], given: Option<i32>, pair: Pair) -> Result<(), ApiError> {
    for (at, draft) in drafts.iter().enumerate() {
        match (given, draft.partition) {
            (Some(given), Some(named)) if given != named => {
                let words = format!("records[{at}] names partition {named}, the path {given}");
                return Err(ApiError::new(Kind::Unprocessable, words));
            }
            (None, None) if pair.needs_key() && draft.key.is_none() => {
                let words = format!(
                    "records[{at}] has no key, which the partitioner needs: give it one, or choose another \
                     partitioner"
                );
                return Err(ApiError::new(Kind::Unprocessable, words));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The answer. Where no record was written for one and the same reason, that is the answer's.
fn answer(
    mut outcomes: Vec<Outcome>,
    raw: bool,
    wanted: &Wanted,
    times: &Times,
) -> Result<Answer, ApiError> {
    let kind = |outcome: &Outcome| outcome.result.as_ref().err().map(|error| error.kind);
    let first = outcomes.first().and_then(kind);
    if first.is_some() && outcomes.iter().all(|outcome| kind(outcome) == first) {
        return Err(outcomes.swap_remove(0).result.expect_err("all of them failed"));
    }
    let placed = |outcome: Outcome| Placed {
        partition: outcome.choice.map(|choice| choice.partition),
        broker: outcome.choice.and_then(|choice| choice.broker),
        result: outcome.result,
    };
    let placed: Vec<Placed> = outcomes.into_iter().map(placed).collect();
    let answer = match placed.as_slice() {
        [one] if raw => offset(one),
        all => offsets(all),
    };
    Ok(if wanted.is_timed { answer.timed(&timing(times)) } else { answer })
}

/// The header `Server-Timing`: how long the choices took, and how long the brokers.
fn timing(times: &Times) -> String {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let (decide, forward) = (times.sent - times.began, times.sent.elapsed());
    format!("decide;dur={:.3}, forward;dur={:.3}", ms(decide), ms(forward))
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use serving::choice::{Choice, Strategy};

    use super::*;

    fn outcome(result: Result<i64, Kind>) -> Outcome {
        let choice = Some(Choice { partition: 1, broker: None });
        Outcome { choice, result: result.map_err(|kind| ApiError::new(kind, "words")) }
    }

    fn answered(results: &[Result<i64, Kind>]) -> Result<Answer, Kind> {
        let outcomes = results.iter().map(|result| outcome(*result)).collect();
        let wanted = Wanted { pair: Pair::default(), is_async: false, is_timed: false };
        let times = Times { began: Instant::now(), sent: Instant::now() };
        answer(outcomes, false, &wanted, &times).map_err(|error| error.kind)
    }

    #[test]
    fn a_reason_that_all_records_share_is_the_answers() {
        assert_eq!(answered(&[Err(Kind::Full), Err(Kind::Full)]).unwrap_err(), Kind::Full);
        assert_eq!(answered(&[Err(Kind::Undecided)]).unwrap_err(), Kind::Undecided);
        for mixed in [[Ok(5), Err(Kind::Full)], [Err(Kind::Full), Err(Kind::NoPartition)]] {
            assert_eq!(answered(&mixed).unwrap().status(), 200);
        }
    }

    #[test]
    fn a_request_that_contradicts_itself_is_refused_as_a_whole() {
        let keyed = Draft { key: Some(Cow::Borrowed(b"k")), ..Draft::default() };
        let placed = Draft { partition: Some(1), ..Draft::default() };
        let pair = Pair { partition: Strategy::HashMod, broker: None };
        let refused = |drafts: &[Draft<'_>], given| {
            check(drafts, given, pair).map_err(|error| error.message.into_owned())
        };
        assert_eq!(refused(&[keyed.clone(), placed.clone()], None), Ok(()));
        let error = refused(&[keyed.clone(), Draft::default()], None).unwrap_err();
        assert!(error.starts_with("records[1] has no key"), "{error}");
        assert_eq!(refused(&[Draft::default()], Some(0)), Ok(()), "the path names the partition");
        let error = refused(&[placed], Some(0)).unwrap_err();
        assert!(error.contains("names partition 1"), "{error}");
    }
}
