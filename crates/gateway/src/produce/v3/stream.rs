//! Records of a body that comes in chunks: each is sent as it comes, and answered in its turn when it is acknowledged,
//! while more of them come.
//!
//! What a client sends is not read while too many of its records wait for their answers, and no answer is made while
//! the client does not take those before it: so a client that does not read stops being read.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::http::request::Parts;
use serving::choice::Pair;
use serving::error::{ApiError, Kind};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};

use super::super::may_create;
use super::super::sending::{ANSWER_MAX, Outcome, Slot, check_key, late, send_all};
use super::super::topic::Topic;
use super::objects::Objects;
use super::report::About;
use super::{Target, check_type, cluster_id, now_ms, stamp};
use crate::answer::{Answer, write_error};
use crate::front::Pace;
use crate::outgoing::in_parts;
use crate::request::body::{discard, revoked};
use crate::request::draft::Draft;
use crate::request::v3::{Described, Unread, record};
use crate::request::wanted::wanted;
use crate::request::{Parameters, Trace, idempotency_key};
use crate::share_owner::ShareOwner;
use crate::state::Shared;
use crate::who::{Login, VOID_LOGIN, Visitor};

/// Records of a stream that wait for their acknowledgements.
const WAITING_MAX: usize = 1000;
/// Bytes of a part of the answer, about.
const PART_BYTES: usize = 16 * 1024;
/// How long a client whose login is void may take for the answers to records before.
const VOID_MAX: Duration = Duration::from_secs(2);

/// Begins to produce what comes, and to answer.
pub(crate) async fn stream(
    shared: &Arc<Shared>,
    target: Target<'_>,
    parameters: &Parameters<'_>,
    parts: &Parts,
    body: &mut Option<Incoming>,
) -> Result<Answer, ApiError> {
    check_type(&parts.headers)?;
    let by_default = shared.settings.partitioners.of(target.topic);
    let wanted = wanted(parameters, &parts.headers, by_default)?;
    let refused = |words| Err(ApiError::new(Kind::Unprocessable, words));
    if wanted.is_async {
        return refused("async: each record of a stream is answered");
    }
    if idempotency_key(&parts.headers)?.is_some() {
        return refused(
            "a stream has no Idempotency-Key, because what it asks is known at its end only: send the records with a \
             Content-Length",
        );
    }
    let cluster_id = cluster_id(shared, target.cluster).await?;
    let topic = match shared.topics.get(target.topic).await {
        Err(missing)
            if missing.kind == Kind::NoTopic && may_create(shared, parts, target.topic) =>
        {
            shared.topics.check_writable(target.topic, true).await?;
            None
        }
        found => Some(found?),
    };
    let pace = parts.extensions.get::<Pace>().cloned().unwrap_or_default();
    let room = shared.bodies.of(ShareOwner::of(parts));
    let incoming = body.take().expect("the body of a request is taken once");
    let objects = Objects::new(shared, &room, incoming, pace.clone());
    let (out, answer) = in_parts();
    let stream = Stream {
        objects,
        shared: Arc::clone(shared),
        about: About::new(&cluster_id, target.topic),
        name: target.topic.to_owned(),
        topic,
        login: Visitor::of(parts).login.clone(),
        pair: wanted.pair,
        trace: Trace::of(&parts.headers).into_owned(),
        out,
        waiting: VecDeque::new(),
        taken: 0,
    };
    let (shared, login) = (Arc::clone(shared), stream.login.clone());
    tokio::spawn(async move {
        let void = async {
            shared.who.until_void(login.as_ref()).await;
            pace.end_by(Instant::now() + VOID_MAX);
            sleep(VOID_MAX).await;
        };
        tokio::select! {
            () = stream.run() => {}
            () = void => {}
        }
    });
    Ok(Answer::in_parts(answer))
}

/// A record that waits for its acknowledgement.
struct Waiting {
    described: Described,
    slot: Slot,
    deadline: Instant,
}

/// A stream of records.
struct Stream {
    shared: Arc<Shared>,
    /// Name of the topic.
    name: String,
    /// The topic as it was when the last record came; `None` for a missing topic, which the first record creates.
    topic: Option<Arc<Topic>>,
    login: Option<Login>,
    pair: Pair,
    /// Of the whole stream, and so of each of its records.
    trace: Trace<'static>,
    about: About,
    objects: Objects,
    out: mpsc::Sender<Bytes>,
    /// In the order in which they came.
    waiting: VecDeque<Waiting>,
    /// Objects that were taken.
    taken: u64,
}

/// What happens next.
enum Event {
    /// The record that has waited longest has an outcome.
    Outcome(Outcome),
    /// Another object is there; `false`: there is none.
    Object(Result<bool, ApiError>),
    Stop,
    /// The login of the stream is void.
    Void,
}

/// The client has gone, and hears nothing any more.
struct Gone;

impl Stream {
    async fn run(mut self) {
        let Ok(end) = self.serve().await else { return };
        if let Some(error) = end {
            let mut last = String::from("{");
            write_error(&mut last, &error).expect("a String takes every write");
            last.push_str("}\n");
            let _ = self.out.send(last.into()).await;
        }
        drop(self.out);
        // So that a client that sends before it reads finds its answer.
        discard(&mut self.objects.into_body()).await;
    }

    /// Serves to the end of the stream; the error that ends it, if one does.
    async fn serve(&mut self) -> Result<Option<ApiError>, Gone> {
        let shared = Arc::clone(&self.shared);
        let (stopped, login) = (shared.stopped(), self.login.clone());
        let void = shared.who.until_void(login.as_ref());
        tokio::pin!(stopped, void);
        // Why nothing more is read: the body has ended, or an error. An object for which there is no memory is looked
        // at again when a record before it has an outcome.
        let (mut end, mut has_no_room) = (None, false);
        loop {
            let reads = !has_no_room && self.waiting.len() < WAITING_MAX;
            if end.is_some() {
                // The answers may take long, if the client does not read them.
                self.objects.release();
            }
            if end.is_some() && self.waiting.is_empty() {
                return Ok(end.flatten());
            }
            let event = tokio::select! {
                biased;
                outcome = oldest(&self.waiting, &shared, self.topic.as_deref()), if !self.waiting.is_empty() => {
                    Event::Outcome(outcome)
                }
                // Before the objects: no record of a void login is written.
                () = &mut void, if end.is_none() => Event::Void,
                object = self.objects.next_if(reads), if end.is_none() => Event::Object(object),
                () = &mut stopped, if end.is_none() => Event::Stop,
                () = self.out.closed() => return Err(Gone),
            };
            match event {
                Event::Outcome(outcome) => {
                    has_no_room = false;
                    self.answer(outcome).await?;
                }
                Event::Object(Ok(true)) => match self.take(void.as_mut()).await {
                    Ok(is_taken) => has_no_room = !is_taken,
                    Err(error) => end = Some(Some(self.of_next(&error))),
                },
                Event::Object(Ok(false)) => end = Some(None),
                Event::Object(Err(error)) => end = Some(Some(self.of_next(&error))),
                Event::Void => end = Some(Some(self.of_next(&void_login()))),
                Event::Stop => {
                    let error = ApiError::new(Kind::Unavailable, "the gateway stops");
                    end = Some(Some(self.of_next(&error)));
                }
            }
        }
    }

    /// The error that ends the stream before the next object.
    fn of_next(&self, error: &ApiError) -> ApiError {
        let words = format!("object {}: {}", self.taken + 1, error.message);
        ApiError::new(error.kind, words)
    }

    /// Sends the object that is there, or refuses it. `false`: there is no memory for it, and may be when a record before
    /// it has an outcome. `void`: until the login of the stream is void.
    ///
    /// # Errors
    /// It is not JSON: nothing behind it is to be trusted. Or the stream has to end before the topic is known.
    async fn take(&mut self, void: Pin<&mut impl Future<Output = ()>>) -> Result<bool, ApiError> {
        let (described, slot) = match record(self.objects.object()) {
            Err(Unread::Malformed(why)) => return Err(ApiError::new(Kind::Malformed, why)),
            Err(Unread::Refused(why)) => {
                let refused = ApiError::new(Kind::Unprocessable, why);
                (Described::default(), Slot::refused(refused))
            }
            Ok(mut record) => {
                stamp(&mut record, now_ms());
                self.trace.add_to(&mut record.draft);
                // The topic may have been deleted and created again since the last record. A stream creates it once.
                let (topics, is_missing) = (&self.shared.topics, self.topic.is_none());
                let found = match check_key(&record.draft, self.pair) {
                    Ok(()) => {
                        let partition = record.draft.partition;
                        tokio::select! {
                            biased;
                            // Before the topic: no record of a void login is written.
                            () = void => return Err(void_login()),
                            () = self.objects.revoked() => return Err(revoked()),
                            found = topics.get_or_create(&self.name, is_missing, partition) => found,
                        }
                    }
                    Err(refused) => Err(refused),
                };
                let slot = match found {
                    Ok(topic) => {
                        let slot = self.send(&topic, record.draft);
                        self.topic = Some(topic);
                        slot
                    }
                    Err(refused) => Slot::refused(refused),
                };
                (record.described, slot)
            }
        };
        let is_full = slot.refusal().is_some_and(|error| error.kind == Kind::Full);
        if is_full && !self.waiting.is_empty() {
            return Ok(false);
        }
        self.objects.taken();
        self.taken += 1;
        self.waiting.push_back(Waiting { described, slot, deadline: Instant::now() + ANSWER_MAX });
        Ok(true)
    }

    fn send(&self, topic: &Topic, draft: Draft<'_>) -> Slot {
        let topics = &self.shared.topics;
        let mut slots = send_all(topics, topic, topic.way(), &[draft], None, self.pair);
        slots.remove(0)
    }

    /// Answers the record that has waited longest, with this outcome, and those behind it whose outcomes are known.
    async fn answer(&mut self, outcome: Outcome) -> Result<(), Gone> {
        let (mut part, mut outcome) = (String::new(), outcome);
        while let Some(first) = self.waiting.pop_front() {
            self.about.write(&mut part, &first.described, &outcome);
            let is_known = self.waiting.front().is_some_and(|next| next.slot.is_known());
            if !is_known || part.len() >= PART_BYTES {
                break;
            }
            outcome = oldest(&self.waiting, &self.shared, self.topic.as_deref()).await;
        }
        let sending = self.out.send(part.into());
        tokio::pin!(sending);
        let sent = tokio::select! {
            biased;
            sent = &mut sending => sent,
            // The client does not read its answers.
            () = self.objects.revoked() => {
                self.objects.release();
                sending.await
            }
        };
        sent.map_err(|_| Gone)
    }
}

fn void_login() -> ApiError {
    ApiError::new(Kind::Unidentified, VOID_LOGIN)
}

/// What becomes of the record that has waited longest.
async fn oldest(waiting: &VecDeque<Waiting>, shared: &Shared, topic: Option<&Topic>) -> Outcome {
    let first = waiting.front().expect("asked for while records wait");
    let result = match topic {
        Some(topic) => {
            let settled = first.slot.settled(&shared.topics, topic);
            timeout_at(first.deadline, settled).await.unwrap_or_else(|_| Err(late()))
        }
        // Without a topic no record was sent.
        None => Err(first.slot.refusal().cloned().unwrap_or_else(late)),
    };
    Outcome { choice: first.slot.choice, result }
}
