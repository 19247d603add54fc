//! Requests to consumer instances, from their bodies to their answers.

use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use hyper::body::Incoming;
use hyper::http::request::Parts;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serving::error::{ApiError, Kind};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::work::{Done, Work, carry_out, check_type};
use crate::answer::{Answer, nothing, text};
use crate::front::host;
use crate::produce::unavailable;
use crate::request::body::collect;
use crate::request::instances::{check_name, creation};
use crate::request::{Parameters, Wish};
use crate::share_owner::ShareOwner;
use crate::state::Shared;
use crate::who::Visitor;

/// How long a request waits for its turn.
const TURN_MAX: Duration = Duration::from_secs(35);
/// How long a request may take besides what it waits for records; what was begun goes on behind it.
const ANSWER_MAX: Duration = Duration::from_secs(15);
/// How long the end of an instance is waited for; it goes on behind that.
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// What stands in a segment of a path as itself (RFC 3986, 2.3).
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// What of which instance.
pub(crate) struct Target<'a> {
    pub(crate) group: &'a str,
    pub(crate) name: &'a str,
    pub(crate) wish: Wish,
}

/// Makes an instance.
pub(crate) async fn create(
    shared: &Arc<Shared>,
    group: &str,
    parts: &Parts,
    body: &mut Incoming,
) -> Result<Answer, ApiError> {
    let body = collect(body, parts, shared).await?;
    check_type(&parts.headers, &body.bytes)?;
    check_name("group", group)?;
    let creation = creation(&body.bytes)?;
    let owner = &*Visitor::of(parts).name;
    let owner = (owner, ShareOwner::of(parts));
    let name = shared.instances.make(shared.topics.cluster(), owner, group, creation)?;
    let here =
        shared.instances.settings().advertised_url.as_deref().map(|url| url.trim_end_matches('/'));
    let here = here
        .map_or_else(|| format!("{}://{}", shared.settings.scheme(), host(parts)), str::to_owned);
    let escaped = |name| utf8_percent_encode(name, ESCAPED);
    let base_uri = format!("{here}/consumers/{}/instances/{}", escaped(group), escaped(&name));
    let (name, base_uri) = (text(&name), text(&base_uri));
    Ok(Answer::as_proxies(format!("{{\"instance_id\":{name},\"base_uri\":{base_uri}}}")))
}

/// Answers a request to an instance.
pub(crate) async fn answer(
    shared: &Arc<Shared>,
    target: Target<'_>,
    parameters: &Parameters<'_>,
    parts: &Parts,
    body: &mut Incoming,
) -> Result<Answer, ApiError> {
    let Target { group, name, wish } = target;
    if parts.method == Method::HEAD && wish == Wish::Records {
        let words = "records that are read are not given again: expected GET";
        return Err(ApiError::new(Kind::Method, words));
    }
    let owner = &*Visitor::of(parts).name;
    let instance = shared.instances.find(owner, group, name)?;
    instance.touch();
    let body = collect(body, parts, shared).await?;
    check_type(&parts.headers, &body.bytes)?;
    let work = Work::of(&instance, wish, parameters, &parts.headers, &body.bytes)?;
    drop(body);
    let Some(work) = work else {
        let instance = shared.instances.take(owner, group, name)?;
        let closing = tokio::spawn(async move { instance.close().await });
        // What is left of it goes on by itself: its name is free already.
        let _ = timeout(CLOSE_MAX, closing).await;
        return Ok(nothing());
    };
    let busy = |_| {
        let words = "other requests use this instance: one at a time is served";
        ApiError::new(Kind::Full, words)
    };
    let mut turn = timeout(TURN_MAX, instance.turn()).await.map_err(busy)?;
    let limit = ANSWER_MAX + work.wait();
    let (tell, told) = oneshot::channel();
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let is_wanted = || !tell.is_closed();
        let done = carry_out(&shared, &instance, &mut turn, work, is_wanted).await;
        instance.touch();
        if let Err(Ok(done)) = tell.send(done) {
            done.undo(&mut turn);
        }
    });
    match timeout(limit, told).await {
        Ok(Ok(done)) => done.map(|Done { answer, .. }| answer),
        Ok(Err(_)) => Err(unavailable(&"the instance has ended")),
        Err(_) => {
            Err(unavailable(&"the brokers have not answered in time; what was asked goes on"))
        }
    }
}
