//! WebSockets: records pushed to browsers and programs, and taken from them, in the shape of Apache Pulsar's endpoints.
//!
//! The request is read by the HTTP library like any other, and answered here: then the connection is the socket's alone.
//! Read [`handshake`] (what is asked), [`socket`] (one connection and its bounds), then what is done with it: [`reading`],
//! [`consuming`] (with `groups`) and [`producing`]. What texts say is in `request::frames` and in `serving::push`.

mod consuming;
mod echo;
mod frame_edges;
mod handshake;
mod line;
mod producing;
mod reading;
mod socket;

use std::sync::Arc;

use bytes::Bytes;
use hyper::http::request::Parts;
use pools::Lease;
use serving::error::{ApiError, Kind};
use serving::events::{Form, Projection, Query};
use serving::push::query::check_producer;
use serving::push::{ConsumerQuery, Credit, Dialect, ReaderQuery};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;

use crate::answer::Answer;
use crate::events::{self, Asked, Begin};
use crate::produce::{One, may_create};
use crate::request::wanted::wanted;
use crate::request::{Parameters, Route};
use crate::share_owner::ShareOwner;
use crate::state::Shared;
use crate::who::Login;
use consuming::Consuming;
pub use echo::echo;
use handshake::Accepted;
use reading::Reading;
use socket::{End, Limits, PARTITION_BYTES, SOCKET_BYTES, Socket};

/// Bytes of what a client says that sends no records.
const SAID_BYTES_MAX: usize = 64 * 1024;

/// A socket that can begin: its connection is handed over with it.
#[derive(Debug)]
pub(crate) struct Opened {
    accepted: Accepted,
    work: Work,
    lease: Lease<ShareOwner>,
    /// The login that opened the socket.
    pub(crate) login: Option<Login>,
}

/// What is done with it.
#[derive(Debug)]
enum Work {
    Read(Box<Reading>),
    Consume(Box<Consuming>),
    Produce(One),
}

/// Opens a socket for this route, or says why there is none.
///
/// # Errors
/// What is asked makes no sense, or cannot be had, now or ever.
pub(crate) async fn open(
    shared: &Arc<Shared>,
    route: &Route<'_>,
    parameters: &Parameters<'_>,
    parts: &Parts,
) -> Result<Answer, ApiError> {
    let accepted = match handshake::accept(parts) {
        Ok(accepted) => accepted,
        Err(answer) => return Ok(*answer),
    };
    let owner = ShareOwner::of(parts);
    let lease = shared.sockets.admit(owner.clone(), SOCKET_BYTES, std::time::Instant::now());
    let lease = lease.ok_or_else(sockets_are_full)?;
    let work = match route {
        Route::Socket { topics } => native(shared, topics, parameters, owner).await?,
        Route::SocketReader { topic } => reader(shared, topic, parameters, owner).await?,
        Route::SocketConsumer { topic, subscription } => {
            let query =
                ConsumerQuery::read(parameters.iter()).map_err(|error| malformed(&error))?;
            Work::Consume(Box::new(
                consuming::open(shared, owner, topic, subscription, &query).await?,
            ))
        }
        Route::SocketProducer { topic } => {
            check_producer(parameters.iter()).map_err(|error| malformed(&error))?;
            let wanted =
                wanted(parameters, &parts.headers, shared.settings.partitioners.of(topic))?;
            Work::Produce(
                One::to(shared, topic, may_create(shared, parts, topic), wanted.pair).await?,
            )
        }
        _ => unreachable!("only these routes lead here"),
    };
    if let Work::Read(reading) = &work {
        let more = PARTITION_BYTES * reading.reader.partitions().saturating_sub(1);
        if !lease.try_grow(SOCKET_BYTES + more) {
            return Err(sockets_are_full());
        }
    }
    Ok(Answer::socket(Opened { accepted, work, lease, login: None }))
}

fn sockets_are_full() -> ApiError {
    let words = "WebSockets use all the memory that they may (a quarter of gateway.memory.bytes), and no other client \
                 has more of them: close some";
    ApiError::new(Kind::Full, words)
}

fn malformed(error: &impl ToString) -> ApiError {
    ApiError::new(Kind::Malformed, error.to_string())
}

/// Records in our own words: what event streams can be asked, but for ids.
async fn native(
    shared: &Shared,
    topics: &str,
    parameters: &Parameters<'_>,
    owner: ShareOwner,
) -> Result<Work, ApiError> {
    let of_streams = ["id", "data", "lastEventId", "group", "instance", "ack"];
    if let Some((name, _)) = parameters.iter().find(|(name, _)| of_streams.contains(name)) {
        let words = format!(
            "{name}: it is for event streams; texts name their offsets: go on with from=PARTITION:OFFSET,…"
        );
        return Err(ApiError::new(Kind::Malformed, words));
    }
    let mut query = Query::read(parameters.iter()).map_err(|error| malformed(&error))?;
    query.projection.form = Form::Frame(Dialect::Native);
    let asked = Asked { topics: events::names(topics)?, query, id: None, owner };
    let Begin { reader, notices, .. } = events::reader_in_time(&shared.events, &asked).await?;
    Ok(Work::Read(Box::new(Reading { reader, notices, credit: None })))
}

/// Records in Pulsar's words.
async fn reader(
    shared: &Shared,
    topic: &str,
    parameters: &Parameters<'_>,
    owner: ShareOwner,
) -> Result<Work, ApiError> {
    let ReaderQuery { start, queue } =
        ReaderQuery::read(topic, parameters.iter()).map_err(|error| malformed(&error))?;
    let projection = Projection { form: Form::Frame(Dialect::Pulsar), ..Projection::default() };
    let query = Query { start, projection, ..Query::default() };
    let asked = Asked { topics: vec![topic], query, id: None, owner };
    let Begin { reader, notices, .. } = events::reader_in_time(&shared.events, &asked).await?;
    Ok(Work::Read(Box::new(Reading { reader, notices, credit: Some(Credit::pushed(queue)) })))
}

/// Serves a socket on a connection of which the request was read. `read`: what the client has sent behind it.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    read: Bytes,
    opened: Opened,
    shared: Arc<Shared>,
    mut stopped: watch::Receiver<bool>,
) {
    let Opened { accepted, work, lease, login } = opened;
    let login = login.as_ref();
    let _counted = shared.counts.sockets.raised();
    let head = handshake::head(&accepted);
    if stream.write_all(head.as_bytes()).await.is_err() {
        return;
    }
    let message_bytes_max = match work {
        Work::Produce(_) => shared.settings.request_bytes_max,
        Work::Read(_) | Work::Consume(_) => SAID_BYTES_MAX,
    };
    let room = match work {
        Work::Read(_) | Work::Consume(_) => shared.reading.of(lease.owner().clone()),
        Work::Produce(_) => shared.bodies.of(lease.owner().clone()),
    };
    let events = shared.events.settings;
    let limits = Limits {
        message_bytes_max,
        blocked_max: events.blocked_max,
        ping_every: events.ping_every,
        takes_bytes: false,
    };
    let mut socket = Socket::new(stream, read, limits, &room, lease).await;
    let end: End = match work {
        Work::Read(reading) => {
            reading::serve(&mut socket, *reading, &shared, login, &mut stopped).await
        }
        Work::Consume(consuming) => {
            // Boxed: sockets of the other kinds need not be as large.
            return Box::pin(consume(socket, *consuming, &shared, login, &mut stopped)).await;
        }
        Work::Produce(one) => {
            producing::serve(&mut socket, one, &shared, &room, login, &mut stopped).await
        }
    };
    socket.close(&end).await;
}

async fn consume<S: AsyncRead + AsyncWrite + Unpin>(
    mut socket: Socket<S>,
    consuming: Consuming,
    shared: &Shared,
    login: Option<&Login>,
    stopped: &mut watch::Receiver<bool>,
) {
    let (end, session) = consuming::serve(&mut socket, consuming, shared, login, stopped).await;
    // Neither waits for the other: brokers may not answer, and the client may take nothing.
    tokio::join!(socket.close(&end), session.close());
}
