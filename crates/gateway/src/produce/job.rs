//! What a request to produce wants, apart from its records: where they go, and how the answer says what became of them.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serving::choice::Pair;
use serving::error::{ApiError, Kind};

use super::sending::{Outcome, Slot, send_all};
use super::topic::Topic;
use super::topics::Topics;
use super::v3::Reports;
use super::way::Way;
use crate::answer::{Answer, Placed, offset, offsets};
use crate::request::draft::Draft;
use crate::request::wanted::Wanted;

/// How an answer tells of records.
#[derive(Debug)]
pub(super) enum Style {
    /// All of them in a list.
    List,
    /// The one that there is.
    One,
    /// One behind the other, each with what it had.
    Reports(Arc<Reports>),
}

/// A request to produce.
#[derive(Debug)]
pub(super) struct Job {
    /// The partition that the path names.
    given: Option<i32>,
    pub(super) wanted: Wanted,
    style: Style,
    times: Times,
}

/// Where the time of a request went.
#[derive(Debug, Default)]
struct Times {
    /// When its topic was known.
    began: OnceLock<Instant>,
    sent: OnceLock<Instant>,
}

impl Job {
    /// One of which nothing has begun.
    pub(super) fn new(given: Option<i32>, wanted: Wanted, style: Style) -> Job {
        Job { given, wanted, style, times: Times::default() }
    }

    /// From here on a partition is chosen. A request that is the first with its key at its second attempt began with
    /// the first.
    pub(super) fn begin(&self) {
        self.times.began.get_or_init(Instant::now);
    }

    /// Refuses a request that contradicts itself, before any of it is sent.
    pub(super) fn check(&self, drafts: &[Draft<'_>]) -> Result<(), ApiError> {
        check(drafts, self.given, self.wanted.pair)
    }

    /// The partition that the request names and a topic has least likely: a negative one, or else the greatest.
    pub(super) fn extreme_partition(&self, drafts: &[Draft<'_>]) -> Option<i32> {
        let named = drafts.iter().filter_map(|draft| draft.partition).chain(self.given);
        // As numbers without a sign, negative ones are the greatest.
        named.max_by_key(|partition| partition.cast_unsigned())
    }

    /// Sends the records in their order, or refuses them.
    pub(super) fn send(
        &self,
        topics: &Topics,
        topic: &Topic,
        way: &Way,
        drafts: &[Draft<'_>],
    ) -> Vec<Slot> {
        let slots = send_all(topics, topic, way, drafts, self.given, self.wanted.pair);
        self.times.sent.get_or_init(Instant::now);
        slots
    }

    /// The answer. Where no record was written for one and the same reason, that is the answer's.
    pub(super) fn answer(&self, outcomes: &[Outcome]) -> Result<Answer, ApiError> {
        let answer = self.answer_again(outcomes, self.received_ms())?;
        Ok(if self.wanted.is_timed { answer.timed(&self.times.header()) } else { answer })
    }

    /// Timestamp of records that have none in the request, if answers contain it, in milliseconds since 1970; else 0.
    pub(super) fn received_ms(&self) -> i64 {
        match &self.style {
            Style::Reports(reports) => reports.received_ms,
            Style::One | Style::List => 0,
        }
    }

    /// The answer without the durations of this request. `received_ms`: [`Job::received_ms`] of the request that sent
    /// the records.
    pub(super) fn answer_again(
        &self,
        outcomes: &[Outcome],
        received_ms: i64,
    ) -> Result<Answer, ApiError> {
        if let Some(error) = self.shared_reason(outcomes) {
            return Err(error.clone());
        }
        let placed = |outcome: &Outcome| Placed {
            partition: outcome.choice.map(|choice| choice.partition),
            broker: outcome.choice.and_then(|choice| choice.broker),
            result: outcome.result.as_ref().map(|landed| landed.offset).map_err(ApiError::clone),
        };
        Ok(match (&self.style, outcomes) {
            (Style::Reports(reports), _) => Answer::json(reports.written(outcomes, received_ms)),
            (Style::One, [one]) => offset(&placed(one)),
            (_, all) => offsets(all.iter().map(placed)),
        })
    }

    /// Why none of the records was written, if all have one reason and one answer.
    fn shared_reason<'a>(&self, outcomes: &'a [Outcome]) -> Option<&'a ApiError> {
        let first = outcomes.first()?.result.as_ref().err()?;
        let has_answers = matches!(self.style, Style::Reports(_)) && outcomes.len() > 1;
        let is_the_same = |outcome: &Outcome| {
            outcome.result.as_ref().is_err_and(|error| error.kind == first.kind)
        };
        (!has_answers && outcomes.iter().all(is_the_same)).then_some(first)
    }
}

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

impl Times {
    /// The header `Server-Timing`: how long the choices took, and how long the brokers.
    fn header(&self) -> String {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let now = Instant::now();
        let of = |moment: &OnceLock<Instant>| moment.get().copied().unwrap_or(now);
        let (began, sent) = (of(&self.began), of(&self.sent));
        let (decide, forward) = (sent - began, now - sent);
        format!("decide;dur={:.3}, forward;dur={:.3}", ms(decide), ms(forward))
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use serving::choice::{Choice, Strategy};

    use super::super::sending::Landed;
    use super::*;

    fn outcome(result: Result<i64, Kind>) -> Outcome {
        let choice = Some(Choice { partition: 1, broker: None });
        let landed = |offset| Landed { offset, appended_ms: None };
        Outcome { choice, result: result.map(landed).map_err(|kind| ApiError::new(kind, "words")) }
    }

    fn answered(results: &[Result<i64, Kind>]) -> Result<Answer, Kind> {
        let outcomes: Vec<Outcome> = results.iter().map(|result| outcome(*result)).collect();
        let wanted = Wanted { pair: Pair::default(), is_async: false, is_timed: false };
        Job::new(None, wanted, Style::List).answer(&outcomes).map_err(|error| error.kind)
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
