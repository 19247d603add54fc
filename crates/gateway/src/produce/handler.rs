//! A request to produce, from its body to its answer.

use std::sync::Arc;

use hyper::HeaderMap;
use hyper::body::Incoming;
use hyper::http::request::Parts;
use percent_encoding::percent_decode_str;
use serving::error::{ApiError, Kind};
use serving::idempotency::Name;
use serving::rights::Deed;
use tokio::time::Instant;

use super::job::{Job, Style};
use super::keys::{Carried, Keyed, carry};
use super::sending::{ANSWER_MAX, Slot, settle};
use super::topic::Topic;
use crate::answer::{Answer, nothing};
use crate::request::body::collect_expanded;
use crate::request::cloud_events::{binary, is_binary};
use crate::request::draft::Draft;
use crate::request::wanted::{Reading, Wanted, raw, reading, wanted};
use crate::request::{Parameters, Trace, idempotency_key, what_is_asked};
use crate::share_owner::ShareOwner;
use crate::state::Shared;
use crate::who::Visitor;

/// Where the records of a request go, by its path.
pub(crate) struct Target<'a> {
    pub(crate) topic: &'a str,
    pub(crate) partition: Option<i32>,
    /// Whether the body is the value of one record.
    pub(crate) raw: bool,
}

/// How the records stand in the body.
enum Form {
    /// It is the value of one record.
    Raw,
    /// It is the data of one event.
    Event,
    /// Records in one of several forms.
    Several(Reading),
}

impl Form {
    /// How they stand in the body of this request, and how the answer tells of them.
    fn of(
        is_raw: bool,
        parameters: &Parameters<'_>,
        headers: &HeaderMap,
    ) -> Result<(Form, Style), ApiError> {
        // A body that is itself an event may have headers of one besides, which say the same.
        let is_json = |reading: &Reading| matches!(reading, Reading::Event | Reading::Events);
        let reading = reading(parameters, headers);
        Ok(match reading {
            _ if is_raw => (Form::Raw, Style::One),
            Ok(reading @ Reading::Event) => (Form::Several(reading), Style::One),
            reading if is_binary(headers) && !reading.as_ref().is_ok_and(is_json) => {
                (Form::Event, Style::One)
            }
            reading => (Form::Several(reading?), Style::List),
        })
    }

    fn drafts<'a>(
        &self,
        body: &'a [u8],
        parameters: &'a Parameters<'_>,
        headers: &'a HeaderMap,
    ) -> Result<Vec<Draft<'a>>, ApiError> {
        match self {
            Form::Raw => Ok(vec![raw(body, parameters, headers)?]),
            Form::Event => Ok(vec![binary(body, headers)?]),
            Form::Several(reading) => reading.drafts(body),
        }
    }
}

/// How a request is to be carried out, by its head.
pub(super) struct Asked<'a> {
    pub(super) wanted: Wanted,
    parts: &'a Parts,
    key: Option<&'a str>,
}

impl<'a> Asked<'a> {
    /// Of this head.
    pub(super) fn new(parts: &'a Parts, wanted: Wanted) -> Result<Asked<'a>, ApiError> {
        let key = idempotency_key(&parts.headers)?;
        if key.is_some() && wanted.is_async {
            let words = "a request with async=true is answered before anything is known, and an Idempotency-Key is \
                         for what is known: leave one of them out";
            return Err(ApiError::new(Kind::Unprocessable, words));
        }
        Ok(Asked { wanted, parts, key })
    }

    fn name(&self, key: &str) -> Name {
        Name {
            principal: Visitor::of(self.parts).name.to_string(),
            // However its characters are written.
            path: percent_decode_str(self.parts.uri.path()).decode_utf8_lossy().into_owned(),
            key: key.to_owned(),
        }
    }
}

/// Produces what the body has, and answers when it is acknowledged.
pub(crate) async fn produce(
    shared: &Arc<Shared>,
    target: Target<'_>,
    parameters: &Parameters<'_>,
    parts: &Parts,
    body: &mut Incoming,
) -> Result<Answer, ApiError> {
    let headers = &parts.headers;
    let by_default = shared.settings.partitioners.of(target.topic);
    let asked = Asked::new(parts, wanted(parameters, headers, by_default)?)?;
    let (form, style) = Form::of(target.raw, parameters, headers)?;
    let body = collect_expanded(body, parts, shared).await?;
    let job = Arc::new(Job::new(target.partition, asked.wanted, style));
    let sent = {
        let trace = Trace::of(headers);
        let read = || {
            let mut drafts = form.drafts(&body.bytes, parameters, headers)?;
            drafts.iter_mut().for_each(|draft| trace.add_to(draft));
            Ok(drafts)
        };
        asked.send(shared, target.topic, &job, &body.bytes, &read).await?
    };
    // The records are in the producer's memory now.
    drop(body);
    sent.answer(shared, &job).await
}

/// Reads the records of a request. They take more memory than the body, so they are read anew rather than kept while
/// anything is awaited.
pub(super) type Read<'a> = dyn Fn() -> Result<Vec<Draft<'a>>, ApiError> + Sync + 'a;

/// A request that is under way.
pub(super) enum Sent {
    /// These records are waited for.
    Slots(Arc<Topic>, Vec<Slot>),
    /// By a task that no client can end.
    Kept(Carried),
}

impl Asked<'_> {
    /// Sends the records, or refuses all of them.
    pub(super) async fn send(
        &self,
        shared: &Arc<Shared>,
        topic: &str,
        job: &Arc<Job>,
        body: &[u8],
        read: &Read<'_>,
    ) -> Result<Sent, ApiError> {
        if let Some(key) = self.key {
            let asked = what_is_asked(self.parts.uri.query(), &self.parts.headers, body);
            let owner = ShareOwner::of(self.parts);
            let may_create = may_create(shared, self.parts, topic);
            let keyed = Keyed { name: self.name(key), owner, may_create, asked };
            return carry(shared, keyed, topic, job, read).await.map(Sent::Kept);
        }
        let topic = match shared.topics.known(topic) {
            Some(topic) => topic,
            None => {
                // A request without sense creates no topic.
                let partition = {
                    let drafts = read()?;
                    job.check(&drafts)?;
                    job.extreme_partition(&drafts)
                };
                let may_create = may_create(shared, self.parts, topic);
                shared.topics.get_or_create(topic, may_create, partition).await?
            }
        };
        job.begin();
        let drafts = read()?;
        job.check(&drafts)?;
        let slots = job.send(&shared.topics, &topic, topic.way(), &drafts);
        Ok(Sent::Slots(topic, slots))
    }
}

impl Sent {
    /// The answer, once it is known.
    pub(super) async fn answer(self, shared: &Shared, job: &Job) -> Result<Answer, ApiError> {
        let (topic, slots) = match self {
            Sent::Kept(carried) => return carried.answer(job).await,
            Sent::Slots(topic, slots) => (topic, slots),
        };
        if job.wanted.is_async {
            return taken(&slots);
        }
        let outcomes = settle(&shared.topics, &topic, slots, Instant::now() + ANSWER_MAX).await;
        job.answer(&outcomes)
    }
}

/// Whether the client may create this topic by writing to it.
pub(crate) fn may_create(shared: &Shared, parts: &Parts, topic: &str) -> bool {
    shared.allow(Visitor::of(parts), Deed::CreateTopic(topic)).is_ok()
}

/// Nothing is promised of single records, but that nothing at all was taken is said.
fn taken(slots: &[Slot]) -> Result<Answer, ApiError> {
    let refused: Vec<&ApiError> = slots.iter().filter_map(Slot::refusal).collect();
    match refused.first() {
        Some(error) if refused.len() == slots.len() => Err((*error).clone()),
        _ => Ok(nothing()),
    }
}
