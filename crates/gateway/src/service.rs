//! From a request to its answer: who may ask, what is asked, and what closes the connection.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode, Version};
use metrics::{Source, Sources};
use serving::error::{ApiError, Kind};
use serving::operation;
use serving::rights::Deed;
use serving::visitors::{Refused, Visit};

use crate::admin;
use crate::answer::{Answer, OF_PROXIES, distribution, failed, nothing};
use crate::charge::Charge;
use crate::counts::{Asked, OfProcess, Shown};
use crate::front::{Handover, Limit, Peer};
use crate::inside::Inside;
use crate::outgoing::Outgoing;
use crate::pages::Pages;
use crate::produce::{Target, produce, v3};
use crate::read::{clusters, records, view};
use crate::request::body::{collect, discard, is_gzip};
use crate::request::{Allowed, NoRoute, Parameters, Route, Routed, TABLE, route, routed};
use crate::share_owner::ShareOwner;
use crate::state::Shared;
use crate::who::{self, By, Visitor};
use crate::{events, groups, instances, openapi, sockets};

/// Who asks, if nobody by name, as it stands in logs.
const NOBODY: &str = "anonymous";

/// Bytes of a page for which nothing is charged: about what a connection may hold anyway.
const PAGE_BYTES_FREE: usize = 64 * 1024;

/// What a request is answered with.
enum Served {
    Answer(Answer),
    /// Of another room.
    Page(Response<Bytes>),
}

/// Answers a request; or hands back what its connection is to be used for.
pub(crate) async fn answer(
    shared: &Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Outgoing>, Box<Handover>> {
    let is_stream = is_stream(&request);
    let (mut parts, body) = request.into_parts();
    Peer::see_through(&shared.settings.proxies, &mut parts);
    let mut body = Some(body);
    // A length beside chunks is not to be believed, and the parser has taken it away: a request in chunks is
    // the last of its connection, so that whatever follows it is never taken for a request (RFC 9112, 6.1).
    let is_chunked = parts.headers.contains_key(header::TRANSFER_ENCODING);
    let began = Instant::now();
    let let_in = let_in(shared, &mut parts).await;
    let routed = routed(&parts.method, parts.uri.path());
    let mut asked = routed.as_ref().map_or(Asked::Nothing, |routed| Asked::Route(routed.at));
    let answered = match let_in {
        Ok(()) => match page(shared, &parts, &mut body).await {
            Some(page) => {
                asked = Asked::Page;
                page
            }
            None => {
                let route = routed.map(|routed| routed.route);
                respond(shared, &parts, route, is_stream, &mut body).await.map(Served::Answer)
            }
        },
        Err(error) => Err(error),
    };
    let took = began.elapsed();
    // What comes too slowly is not waited for again.
    let is_slow = answered.as_ref().is_err_and(|error| error.kind == Kind::Slow);
    let is_read = finish_body(shared, body, is_stream, is_slow).await;
    let mut response = match answered {
        Err(error) => refusal(shared, &parts, asked, &error).into_response(),
        Ok(Served::Page(page)) => page.map(Outgoing::from),
        Ok(Served::Answer(mut answer)) => {
            if let Some(mut handover) = answer.take_handover() {
                let status = hand_over(shared, &parts, &mut handover);
                shared.counts.requests.count(asked, status, None);
                return Err(handover);
            }
            answer.into_response()
        }
    };
    let is_whole = matches!(response.body(), Outgoing::Whole(_));
    shared.counts.requests.count(asked, response.status().as_u16(), is_whole.then_some(took));
    let closes = is_chunked || !is_read || shared.is_stopping();
    decorate(shared, &parts, asked, closes, &mut response);
    Ok(response)
}

/// Answers a request on a connection that is one too many. Nothing is looked at but what decides the form of the answer.
pub(crate) fn refuse(
    shared: &Shared,
    request: Request<Incoming>,
    limit: Limit,
) -> Response<Outgoing> {
    // The body is not read.
    let (parts, _) = request.into_parts();
    let path = parts.uri.path();
    let routed = routed(&parts.method, path);
    let is_page = || shared.settings.pages.as_ref().is_some_and(|pages| pages.has(path));
    let asked = match &routed {
        _ if is_page() => Asked::Page,
        Ok(routed) => Asked::Route(routed.at),
        Err(_) => Asked::Nothing,
    };
    // A browser that is told of an error never comes again for events.
    let is_events = matches!(&routed, Ok(Routed { route: Route::Events { .. }, .. }));
    let answer = if is_events { events::weather(&parts) } else { failed(&limit.error()) };
    let mut response = answer.into_response();
    shared.counts.requests.count(asked, response.status().as_u16(), None);
    decorate(shared, &parts, asked, true, &mut response);
    response
}

/// Has the rest of a body come, or not; true if nothing of it is left on the connection.
async fn finish_body(
    shared: &Shared,
    body: Option<Incoming>,
    is_stream: bool,
    is_slow: bool,
) -> bool {
    match body {
        // A stream takes it.
        None => true,
        Some(body) if body.is_end_stream() => true,
        // The client may want to hear why there is no stream before it ends its body.
        Some(mut body) if is_stream => {
            tokio::spawn(async move { discard(&mut body).await });
            false
        }
        Some(_) if is_slow => false,
        Some(mut body) => tokio::select! {
            biased;
            is_read = discard(&mut body) => is_read,
            () = shared.last_call() => false,
        },
    }
}

/// The answer to a request that is refused.
fn refusal(shared: &Shared, parts: &Parts, asked: Asked, error: &ApiError) -> Answer {
    if error.kind != Kind::Unidentified {
        return failed(error);
    }
    // A browser that is shown a page is sent to the form; its own window for passwords knows no way out.
    let is_page = matches!(asked, Asked::Page);
    let sent = is_page.then(|| who::sent_to_login(shared, parts)).flatten();
    sent.unwrap_or_else(|| failed(error).with(header::WWW_AUTHENTICATE, challenge(parts)))
}

/// Tells who takes the connection what it has to answer; the status.
fn hand_over(shared: &Shared, parts: &Parts, handover: &mut Handover) -> u16 {
    let origin = || listed_origin(shared, &parts.headers).cloned();
    let login = Visitor::of(parts).login.clone();
    match handover {
        Handover::Events(stream) => (stream.origin, stream.login) = (origin(), login),
        Handover::Member(stream) => (stream.origin, stream.login) = (origin(), login),
        Handover::Socket(socket) => {
            socket.login = login;
            return 101;
        }
    }
    200
}

/// Adds what every answer has.
fn decorate(
    shared: &Shared,
    parts: &Parts,
    asked: Asked,
    closes: bool,
    response: &mut Response<Outgoing>,
) {
    let status = response.status();
    let is_error = status.is_client_error() || status.is_server_error();
    let headers = response.headers_mut();
    if is_error && has_words_of_proxies(asked, parts.uri.path()) {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(OF_PROXIES));
    }
    if closes {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    if let Some(origin) = listed_origin(shared, &parts.headers) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    }
    // A shared cache must not give one origin the answer of another.
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

/// Headers of answers that pages of listed origins may read, besides those that any page may (Fetch, "CORS-safelisted
/// response-header name").
const EXPOSED: &str = "Allow, Idempotency-Replayed, Retry-After, Server-Timing, WWW-Authenticate, X-High-Watermark, X-Next-Offset";

/// Whether an error is told with the type that REST proxies have for it: not where version 3 is asked, nor what is ours alone.
fn has_words_of_proxies(asked: Asked, path: &str) -> bool {
    match asked {
        Asked::Route(at) => TABLE[at].is_of_proxies(),
        Asked::Nothing => !["/v3/", "/api/", "/ws/"].iter().any(|first| path.starts_with(first)),
        Asked::Page => false,
    }
}

/// Whether a request is a stream of records, which is answered while it goes on.
pub(crate) fn is_stream(request: &Request<Incoming>) -> bool {
    let routed = || route(request.method(), request.uri().path());
    request.headers().contains_key(header::TRANSFER_ENCODING)
        && matches!(routed(), Ok(Route::ProduceV3 { .. }))
}

/// What a client is asked for that has not said who it is. Scripts of pages in a browser must not make it open its own window.
fn challenge(parts: &Parts) -> HeaderValue {
    let is_browser = parts.headers.contains_key("sec-fetch-mode");
    HeaderValue::from_static(match is_browser {
        true => "Bearer realm=\"highwater\"",
        false => "Basic realm=\"highwater\", charset=\"UTF-8\"",
    })
}

/// Lets a request in, or not: by the host that it names and the page that it comes from, and by who it says that it is. Who
/// that is stays with the request.
async fn let_in(shared: &Shared, parts: &mut Parts) -> Result<(), ApiError> {
    let forbidden = |refused: Refused| ApiError::new(Kind::Forbidden, refused.to_string());
    let visit = visit(parts)?;
    shared.settings.doorkeeper.admit(&visit).map_err(forbidden)?;
    // What its forms do is for its own pages: one that was listed could else read the leave to act out of an answer.
    let is_form = parts.method == Method::POST && parts.uri.path().starts_with("/console/");
    if is_form && visit.origin.is_some() {
        visit.of_own_page().map_err(forbidden)?;
    }
    let parameters = Parameters::of(parts.uri.query());
    let ticket = parameters.get("ticket").filter(|_| takes_tickets(parts));
    // A browser asks before it sends, without saying who it is.
    let visitor = match parts.method == Method::OPTIONS {
        true => shared.who.nobody().clone(),
        false => shared.who.identify(&parts.headers, ticket, Peer::of(parts)).await?,
    };
    if let (By::Cookie(_), false) = (visitor.by, visit.reads) {
        visit.of_own_page().map_err(forbidden)?;
    }
    parts.extensions.insert(visitor);
    Ok(())
}

/// Whether a ticket may stand in the address: it opens streams of those who only read, and nothing else.
fn takes_tickets(parts: &Parts) -> bool {
    matches!(
        route(&parts.method, parts.uri.path()),
        Ok(Route::Events { .. } | Route::Socket { .. } | Route::SocketReader { .. })
    )
}

/// What a request says of where it comes from.
fn visit(parts: &Parts) -> Result<Visit<'_>, ApiError> {
    let text = |name: HeaderName| parts.headers.get(name).and_then(|value| value.to_str().ok());
    if parts.headers.get_all(header::HOST).iter().nth(1).is_some() {
        return Err(ApiError::new(Kind::Malformed, "there is more than one header Host"));
    }
    let authority = parts.uri.authority().map(|authority| authority.as_str());
    // Clients of HTTP/1.0 need not name a host, and no browser is one of them.
    let unnamed = (parts.version == Version::HTTP_10).then_some("localhost");
    Ok(Visit {
        host: authority.or_else(|| text(header::HOST)).or(unnamed),
        origin: text(header::ORIGIN),
        fetch_site: text(HeaderName::from_static("sec-fetch-site")),
        reads: reads(parts),
    })
}

/// Whether a request merely reads. Records that an instance has given are not given again, and who reads as a member of a group
/// takes partitions from others, and commits: no page does that by a picture's address. What asks for another protocol
/// does not merely read either: what a WebSocket says, any page may read that has opened it.
fn reads(parts: &Parts) -> bool {
    let path = parts.uri.path();
    let joins = || Parameters::of(parts.uri.query()).get("group").is_some();
    let takes = || {
        ["/consumers/", "/ws/"].iter().any(|own| path.starts_with(own))
            || path.ends_with("/events") && joins()
    };
    match parts.method {
        Method::GET | Method::HEAD => !parts.headers.contains_key(header::UPGRADE) && !takes(),
        Method::OPTIONS => !parts.headers.contains_key(header::UPGRADE),
        _ => false,
    }
}

/// The page that a request comes from, if it may read the answer.
fn listed_origin<'a>(shared: &Shared, headers: &'a HeaderMap) -> Option<&'a HeaderValue> {
    let origin = headers.get(header::ORIGIN)?;
    let is_listed = |origin: &str| shared.settings.doorkeeper.is_listed(origin);
    origin.to_str().is_ok_and(is_listed).then_some(origin)
}

/// A page that is shown besides, or that takes a form; `None` if the path is the gateway's own.
async fn page(
    shared: &Arc<Shared>,
    parts: &Parts,
    body: &mut Option<Incoming>,
) -> Option<Result<Served, ApiError>> {
    let path = parts.uri.path();
    let pages = shared.settings.pages.as_ref().filter(|pages| pages.has(path))?;
    let takes = pages.takes(path);
    let visitor = Visitor::of(parts);
    Some(match parts.method {
        Method::GET | Method::HEAD => {
            // Style and script of the page with the form of the login, too. Whose records are shown is asked by the page.
            let is_asset = path.starts_with("/console/assets/");
            match shared.allow(visitor, if is_asset { Deed::Greet } else { Deed::Look }) {
                Ok(()) => {
                    let inside = Inside::new(shared);
                    let page = pages.page(path, parts.uri.query(), named(visitor), &inside);
                    charged(shared, parts, page.await)
                }
                Err(error) => Err(error),
            }
        }
        Method::OPTIONS => preflight(shared, &parts.headers).map(Served::Answer),
        Method::POST if takes => take_form(shared, Arc::clone(pages), parts, body).await,
        _ if takes => no_route(NoRoute::Method(Allowed::READ_AND_POST)).map(Served::Answer),
        _ => no_route(NoRoute::Method(Allowed::READ)).map(Served::Answer),
    })
}

/// Charges a large page until its client has taken it: many that take nothing would hold as many of it.
fn charged(shared: &Shared, parts: &Parts, page: Response<Bytes>) -> Result<Served, ApiError> {
    if page.body().len() <= PAGE_BYTES_FREE {
        return Ok(Served::Page(page));
    }
    let (head, body) = page.into_parts();
    let body = Charge::new(&shared.reading.of(ShareOwner::of(parts))).hold(body)?;
    Ok(Served::Page(Response::from_parts(head, body)))
}

/// Who asks, as pages are told.
fn named(visitor: &Visitor) -> operation::By<'_> {
    let name = if visitor.name.is_empty() { NOBODY } else { &visitor.name };
    operation::By { name, rights: &visitor.rights }
}

/// Hands a form to the pages. In a task of its own: what it asks for is done to its end, and written down, if the browser leaves.
async fn take_form(
    shared: &Arc<Shared>,
    pages: Arc<dyn Pages>,
    parts: &Parts,
    body: &mut Option<Incoming>,
) -> Result<Served, ApiError> {
    let visitor = Visitor::of(parts).clone();
    // The least that a form does is to send a record; what this one needs is asked by the pages.
    shared.allow_somewhere(&visitor, Deed::Produce(""))?;
    let content_type = parts.headers.get(header::CONTENT_TYPE).and_then(|text| text.to_str().ok());
    let is_form = |text: &str| {
        let media_type = text.split(';').next().unwrap_or_default().trim();
        media_type.eq_ignore_ascii_case("application/x-www-form-urlencoded")
    };
    if !content_type.is_some_and(is_form) {
        let words = "expected a form: application/x-www-form-urlencoded";
        return Err(ApiError::new(Kind::MediaType, words));
    }
    let incoming = body.as_mut().expect("only a stream takes the body");
    let form = collect(incoming, parts, shared).await?;
    let (path, inside) = (parts.uri.path().to_owned(), Inside::new(shared));
    let taking =
        tokio::spawn(async move { pages.take(&path, &form.bytes, named(&visitor), &inside).await });
    let lost = |_| ApiError::new(Kind::Unavailable, "the action ended before it was answered");
    taking.await.map(Served::Page).map_err(lost)
}

async fn respond(
    shared: &Arc<Shared>,
    parts: &Parts,
    route: Result<Route<'_>, NoRoute>,
    is_stream: bool,
    incoming: &mut Option<Incoming>,
) -> Result<Answer, ApiError> {
    let body = incoming.as_mut().expect("only a stream takes the body");
    if parts.method == Method::OPTIONS {
        return preflight(shared, &parts.headers);
    }
    let mut parameters = Parameters::of(parts.uri.query());
    if Visitor::of(parts).by == By::Ticket {
        // It has been looked at, and says nothing about what is asked.
        parameters = parameters.without("ticket");
    }
    let route = match route {
        Ok(route) => route,
        Err(none) => return no_route(none),
    };
    let takes_gzip = !is_stream && matches!(route, Route::Produce { .. } | Route::ProduceV3 { .. });
    check(shared, parts, &route, &parameters, takes_gzip)?;
    match route {
        Route::About => Ok(about()),
        Route::Alive => Ok(Answer::json("{\"status\":\"ok\"}")),
        Route::Ready => Ok(ready(shared).await),
        Route::Metrics => Ok(counted(shared)),
        Route::Document => Ok(Answer::of("application/json", openapi::document())),
        Route::Me => Ok(who::me(Visitor::of(parts))),
        Route::Ticket => who::issue(shared, parts, body).await,
        Route::LoginPage => Ok(who::login_page(shared, parameters.get("next"))),
        Route::LogIn => who::log_in(shared, parts, body).await,
        Route::LogOut => who::log_out(shared, parts).await,
        Route::CreateTopic => admin::create_topic(shared, parts, body).await,
        Route::Distribution => distribution_of(shared, &parameters),
        Route::KeyCounts => Ok(Answer::json(shared.keys.counts())),
        Route::EventCounts => Ok(Answer::json(shared.events.counts())),
        Route::Events { topics } => {
            open_events(shared, &topics, &parameters, parts, body.is_end_stream()).await
        }
        Route::AckInGroup { group } => groups::acknowledge(shared, &group, parts, body).await,
        Route::Socket { .. }
        | Route::SocketReader { .. }
        | Route::SocketConsumer { .. }
        | Route::SocketProducer { .. } => {
            check_empty(body.is_end_stream(), "a request for a WebSocket has no body")?;
            sockets::open(shared, &route, &parameters, parts).await
        }
        Route::Produce { topic, partition, raw } => {
            let target = Target { topic: &topic, partition, raw };
            produce(shared, target, &parameters, parts, body).await
        }
        Route::Clusters { id } => clusters(shared, id.as_deref(), parts).await,
        Route::ProduceV3 { cluster, topic } => {
            let target = v3::Target { cluster: &cluster, topic: &topic };
            match is_stream {
                true => v3::stream(shared, target, &parameters, parts, incoming).await,
                false => v3::produce(shared, target, &parameters, parts, body).await,
            }
        }
        Route::NewInstance { group } => instances::create(shared, &group, parts, body).await,
        Route::Instance { group, name, wish } => {
            let target = instances::Target { group: &group, name: &name, wish };
            instances::answer(shared, target, &parameters, parts, body).await
        }
        Route::Cluster(part) => view(shared, &part).await,
        Route::Records { topic, partition } => {
            records(shared, &topic, partition, &parameters, parts).await
        }
    }
}

/// What is looked at before anything is done, wherever a request leads.
fn check(
    shared: &Shared,
    parts: &Parts,
    route: &Route<'_>,
    parameters: &Parameters<'_>,
    takes_gzip: bool,
) -> Result<(), ApiError> {
    allow(shared, Visitor::of(parts), route)?;
    if matches!(route, Route::Events { .. }) && parameters.get("group").is_some() {
        // A member of a group takes partitions from others, and commits.
        shared.allow(Visitor::of(parts), Deed::Join)?;
    }
    check_codings(&parts.headers, takes_gzip)?;
    // Health is told to the end, and a stream of events has words of its own for it.
    let is_told = matches!(
        route,
        Route::About
            | Route::Alive
            | Route::Ready
            | Route::Metrics
            | Route::Document
            | Route::Events { .. }
    );
    if shared.is_stopping() && !is_told {
        return Err(ApiError::new(Kind::Unavailable, "the gateway stops"));
    }
    Ok(())
}

/// Refuses a body with a coding that is not undone: a coded body must not become a record. `takes_gzip`: the request is
/// one with records, whose body may be compressed by gzip.
fn check_codings(headers: &HeaderMap, takes_gzip: bool) -> Result<(), ApiError> {
    for (name, plain) in
        [(header::CONTENT_ENCODING, "identity"), (header::TRANSFER_ENCODING, "chunked")]
    {
        let said: Vec<&HeaderValue> = headers.get_all(&name).iter().collect();
        let is_plain = |said: &HeaderValue| said.as_bytes().eq_ignore_ascii_case(plain.as_bytes());
        let may_expand = takes_gzip && name == header::CONTENT_ENCODING;
        let is_known = |said: &HeaderValue| is_plain(said) || may_expand && is_gzip(said);
        if said.len() > 1 || !said.iter().all(|said| is_known(said)) {
            let gzip = if takes_gzip { ", or with Content-Encoding: gzip" } else { "" };
            let words = format!("{name} is {said:?}: send the body as it is{gzip}");
            return Err(ApiError::new(Kind::MediaType, words));
        }
    }
    Ok(())
}

fn check_empty(is_empty: bool, words: &'static str) -> Result<(), ApiError> {
    if is_empty { Ok(()) } else { Err(ApiError::new(Kind::Malformed, words)) }
}

fn distribution_of(shared: &Shared, parameters: &Parameters<'_>) -> Result<Answer, ApiError> {
    let missing = || ApiError::new(Kind::Unprocessable, "topic: expected the name of a topic");
    let topic = parameters.get("topic").ok_or_else(missing)?;
    let rows = shared.topics.known(topic).map(|topic| topic.distribution());
    Ok(distribution(topic, &rows.unwrap_or_default()))
}

async fn open_events(
    shared: &Arc<Shared>,
    topics: &str,
    parameters: &Parameters<'_>,
    parts: &Parts,
    has_no_body: bool,
) -> Result<Answer, ApiError> {
    if parts.method == Method::HEAD {
        return Ok(Answer::event_stream(String::new()));
    }
    check_empty(has_no_body, "a request for events has no body")?;
    if shared.is_stopping() {
        return Ok(events::weather(parts));
    }
    events::open(shared, topics, parameters, parts).await
}

fn no_route(none: NoRoute) -> Result<Answer, ApiError> {
    match none {
        NoRoute::Path => Err(ApiError::new(Kind::NotFound, "there is nothing under this path")),
        NoRoute::Partition => {
            Err(ApiError::new(Kind::NoPartition, "expected the number of a partition in the path"))
        }
        NoRoute::Method(allowed) => {
            let methods = allowed.to_string();
            let refused = ApiError::new(Kind::Method, format!("expected one of {methods}"));
            let allow = HeaderValue::try_from(methods).expect("names of methods");
            Ok(failed(&refused).with(header::ALLOW, allow))
        }
    }
}

/// Whether somebody may ask this.
fn allow(shared: &Shared, visitor: &Visitor, route: &Route<'_>) -> Result<(), ApiError> {
    let deed = match route {
        Route::About
        | Route::Alive
        | Route::Ready
        | Route::Metrics
        | Route::Document
        | Route::Me
        | Route::LoginPage
        | Route::LogIn
        | Route::LogOut => Deed::Greet,
        Route::Distribution
        | Route::EventCounts
        | Route::KeyCounts
        | Route::Cluster(_)
        | Route::Clusters { .. } => Deed::Look,
        Route::Events { topics } | Route::Socket { topics } => {
            let mut topics = topics.split(',');
            return topics.try_for_each(|topic| shared.allow(visitor, Deed::Read(topic)));
        }
        Route::Records { topic, .. } | Route::SocketReader { topic } => Deed::Read(topic),
        Route::SocketProducer { topic } => Deed::Produce(topic),
        Route::SocketConsumer { topic, .. } => {
            shared.allow(visitor, Deed::Join)?;
            Deed::Read(topic)
        }
        Route::NewInstance { .. } | Route::Instance { .. } | Route::AckInGroup { .. } => Deed::Join,
        Route::Produce { topic, .. } | Route::ProduceV3 { topic, .. } => Deed::Produce(topic),
        // Their bodies name the topic, and it is looked at there.
        Route::CreateTopic => return shared.allow_somewhere(visitor, Deed::CreateTopic("")),
        Route::Ticket => return shared.allow_somewhere(visitor, Deed::Read("")),
    };
    shared.allow(visitor, deed)
}

fn about() -> Answer {
    let version = env!("CARGO_PKG_VERSION");
    Answer::json(format!(
        "{{\"name\":\"highwater gateway\",\"version\":\"{version}\",\"bridge_version\":\"{version}\"}}"
    ))
}

/// What the gateway counts of itself, and of its process.
fn counted(shared: &Arc<Shared>) -> Answer {
    let sources = Sources::default();
    sources.add(Arc::new(Shown(Arc::downgrade(shared))));
    sources.add(Arc::new(OfProcess));
    let source: Arc<dyn Source> = Arc::new(sources);
    Answer::of(metrics::CONTENT_TYPE, metrics::text(&source))
}

/// 200 if requests can be served; else 503 with the reason.
async fn ready(shared: &Shared) -> Answer {
    let reason = if shared.is_stopping() {
        "the gateway stops"
    } else if !shared.reaches_brokers().await {
        "no broker can be reached"
    } else {
        return Answer::json("{\"status\":\"ok\"}");
    };
    Answer::json(format!("{{\"status\":\"unavailable\",\"reasons\":[\"{reason}\"]}}"))
        .with_status(StatusCode::SERVICE_UNAVAILABLE)
}

/// A browser asks whether a page may send what it is about to send.
fn preflight(shared: &Shared, headers: &HeaderMap) -> Result<Answer, ApiError> {
    if listed_origin(shared, headers).is_none() {
        let words = "pages of this origin may not send requests: add it to gateway.cors.origins";
        return Err(ApiError::new(Kind::Forbidden, words));
    }
    let answer = nothing()
        .with(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, DELETE"))
        .with(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    Ok(match headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        Some(wanted) => answer.with(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone()),
        None => answer,
    })
}
