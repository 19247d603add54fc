//! One connection: requests go out in the order of the calls, answers come back in that order.
//!
//! A request is written by whoever sends it, if the socket takes it, so that no other task wakes
//! up for it; the rest is written by the connection's own task, which also reads the answers.
//! Not here: which broker to ask, and what to do when it says no.

use crate::dial::dial;
use crate::error::ClientError;
use crate::versions::ApiVersions;
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};
use wire::{
    ApiKey, ApiVersionsRequest, ApiVersionsResponse, Message, Reader, Request, Writer, frame,
};

/// How a connection behaves.
#[derive(Debug, Clone)]
pub struct ConnectionConfig {
    /// The name that the client gives itself.
    pub client_id: String,
    /// How long the TCP handshake and the first exchange may take.
    pub connect_timeout: Duration,
    /// How long an answer may take; then the connection is closed.
    pub request_timeout: Duration,
    /// The largest answer that is accepted, in bytes.
    pub frame_bytes_max: usize,
    /// `receive.buffer.bytes`; `None` for the system's own size.
    pub receive_buffer_bytes: Option<u32>,
    /// `send.buffer.bytes`; `None` for the system's own size.
    pub send_buffer_bytes: Option<u32>,
}

impl Default for ConnectionConfig {
    fn default() -> ConnectionConfig {
        ConnectionConfig {
            client_id: "highwater-client".to_owned(),
            connect_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            frame_bytes_max: 512 * 1024 * 1024,
            receive_buffer_bytes: None,
            send_buffer_bytes: None,
        }
    }
}

/// Takes an answer's frame without its length, or the reason why there is none. Runs in the task of
/// the connection, so it must neither block nor take long.
pub type Reply = Box<dyn FnOnce(Result<Bytes, ClientError>) + Send>;

/// Bytes that are asked of the socket at least.
const READ_BYTES: usize = 64 * 1024;
/// Pieces that go out in one system call at most.
const SLICES_MAX: usize = 64;

struct Pending {
    correlation_id: i32,
    deadline: Instant,
    reply: Reply,
}

#[derive(Default)]
struct State {
    /// What the socket did not take yet.
    outgoing: VecDeque<Bytes>,
    /// Who waits for an answer, in the order of the requests.
    pending: VecDeque<Pending>,
    next_correlation_id: i32,
    /// Why the connection is of no use any more.
    closed: Option<ClientError>,
}

struct Shared {
    stream: TcpStream,
    peer: String,
    config: ConnectionConfig,
    state: Mutex<State>,
    /// Wakes the connection's task: there is something to write, or nothing to live for.
    wake: Notify,
}

/// Closes the connection when the last handle goes.
struct Handle {
    shared: Arc<Shared>,
    versions: ApiVersions,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.close(self.shared.closed_because("no one uses it any more"));
    }
}

/// A handle to a connection; clones share it.
#[derive(Clone)]
pub struct Connection(Arc<Handle>);

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Connection({})", self.0.shared.peer)
    }
}

impl Connection {
    /// Connects to `host:port` and asks which versions are served there.
    pub async fn open(address: &str, config: &ConnectionConfig) -> Result<Connection, ClientError> {
        let limit = config.connect_timeout;
        let opened = tokio::time::timeout(limit, Connection::open_unbounded(address, config)).await;
        opened.unwrap_or_else(|_| {
            let what = format!("connecting to {address}");
            Err(ClientError::TimedOut { what, after_ms: limit.as_millis() as u64 })
        })
    }

    async fn open_unbounded(
        address: &str,
        config: &ConnectionConfig,
    ) -> Result<Connection, ClientError> {
        let failed = |e: io::Error| ClientError::Connect {
            address: address.to_owned(),
            reason: e.to_string(),
        };
        let stream = dial(address, config).await.map_err(failed)?;
        let shared = Arc::new(Shared {
            stream,
            peer: address.to_owned(),
            config: config.clone(),
            state: Mutex::default(),
            wake: Notify::new(),
        });
        tokio::spawn(run(shared.clone()));
        // Until here the answer to the first exchange is unknown; the handle is made to be dropped
        // if that fails.
        let mut handle = Handle { shared, versions: ApiVersions::default() };
        handle.versions = negotiate(&handle.shared).await?;
        Ok(Connection(Arc::new(handle)))
    }

    /// The address that this is connected to.
    pub fn peer(&self) -> &str {
        &self.0.shared.peer
    }

    /// What the broker serves.
    pub fn versions(&self) -> &ApiVersions {
        &self.0.versions
    }

    /// Whether it is of no use any more.
    pub fn is_closed(&self) -> bool {
        self.0.shared.lock().closed.is_some()
    }

    /// Ends it; whoever waits for an answer gets an error.
    pub fn close(&self) {
        self.0.shared.close(self.0.shared.closed_because("it was closed here"));
    }

    /// The newest version of an API that both sides know.
    pub fn version_of(&self, api: ApiKey) -> Result<i16, ClientError> {
        self.version_up_to(api, i16::MAX)
    }

    /// The newest version of an API that both sides know and that is not above `limit`.
    pub fn version_up_to(&self, api: ApiKey, limit: i16) -> Result<i16, ClientError> {
        let unsupported = || ClientError::Unsupported { peer: self.peer().to_owned(), api };
        self.versions().newest_up_to(api, limit).ok_or_else(unsupported)
    }

    /// Asks in the newest common version and waits for the answer.
    pub async fn call<R: Request>(&self, request: &R) -> Result<R::Response, ClientError> {
        let version = self.version_of(R::API_KEY)?;
        self.call_version(request, version).await
    }

    /// Asks in this version and waits for the answer.
    pub async fn call_version<R: Request>(
        &self,
        request: &R,
        version: i16,
    ) -> Result<R::Response, ClientError> {
        let timeout = self.0.shared.config.request_timeout;
        call_on(&self.0.shared, request, version, timeout).await
    }

    /// Asks something that may take longer than other requests, and waits for the answer.
    pub async fn call_slow<R: Request>(
        &self,
        request: &R,
        timeout: Duration,
    ) -> Result<R::Response, ClientError> {
        let version = self.version_of(R::API_KEY)?;
        call_on(&self.0.shared, request, version, timeout).await
    }

    /// As [`Connection::call_slow`], in this version.
    pub async fn call_slow_version<R: Request>(
        &self,
        request: &R,
        version: i16,
        timeout: Duration,
    ) -> Result<R::Response, ClientError> {
        call_on(&self.0.shared, request, version, timeout).await
    }

    /// Sends a request without waiting; `reply` gets the answer's frame, see [`Connection::read`].
    pub fn send<R: Request>(
        &self,
        request: &R,
        version: i16,
        timeout: Duration,
        reply: Reply,
    ) -> Result<(), ClientError> {
        send_on(&self.0.shared, request, version, timeout, reply)
    }

    /// Sends a frame that the caller encoded; `encode` gets the correlation id and returns the
    /// frame in pieces, length included. Without `reply` no answer is expected.
    pub fn send_pieces(
        &self,
        timeout: Duration,
        reply: Option<Reply>,
        encode: impl FnOnce(i32) -> Result<Vec<Bytes>, ClientError>,
    ) -> Result<(), ClientError> {
        send_pieces_on(&self.0.shared, timeout, reply, encode)
    }

    /// As [`Connection::send_pieces`], but nothing is written before [`Connection::write`]: several
    /// requests then cost one system call.
    pub fn queue_pieces(
        &self,
        timeout: Duration,
        reply: Option<Reply>,
        encode: impl FnOnce(i32) -> Result<Vec<Bytes>, ClientError>,
    ) -> Result<(), ClientError> {
        let mut state = self.0.shared.lock();
        queue(&mut state, timeout, reply, encode)
    }

    /// Writes what was queued, as far as the socket takes it; the connection's task writes the rest.
    pub fn write(&self) {
        let mut state = self.0.shared.lock();
        write_or_wake(&self.0.shared, &mut state);
    }

    /// Whether the socket has not taken all that was sent.
    pub fn has_backlog(&self) -> bool {
        !self.0.shared.lock().outgoing.is_empty()
    }

    /// The name that the client gave itself.
    pub fn client_id(&self) -> &str {
        &self.0.shared.config.client_id
    }

    /// Reads an answer out of its frame.
    pub fn read<M: Message>(
        &self,
        frame: &Bytes,
        api: ApiKey,
        version: i16,
    ) -> Result<M, ClientError> {
        read(&self.0.shared.peer, frame, api, version)
    }
}

/// Reads an answer out of its frame; its bytes and records share the frame's memory.
pub fn read<M: Message>(
    peer: &str,
    frame: &Bytes,
    api: ApiKey,
    version: i16,
) -> Result<M, ClientError> {
    let mut reader = Reader::shared(frame);
    let message = frame::read_response_head(&mut reader, api, version)
        .and_then(|_| M::decode(&mut reader, version))
        .and_then(|message| reader.finish().map(|()| message));
    message.map_err(|source| ClientError::Malformed { peer: peer.to_owned(), api, source })
}

async fn call_on<R: Request>(
    shared: &Arc<Shared>,
    request: &R,
    version: i16,
    timeout: Duration,
) -> Result<R::Response, ClientError> {
    let frame = exchange(shared, request, version, timeout).await?;
    read(&shared.peer, &frame, R::API_KEY, version)
}

/// Sends a request and waits for its frame.
async fn exchange<R: Request>(
    shared: &Arc<Shared>,
    request: &R,
    version: i16,
    timeout: Duration,
) -> Result<Bytes, ClientError> {
    let (sender, receiver) = oneshot::channel();
    // The receiver is gone when the caller gave up; then no one needs the answer.
    let reply = Box::new(move |answer| drop(sender.send(answer)));
    send_on(shared, request, version, timeout, reply)?;
    receiver.await.unwrap_or_else(|_| Err(shared.closed_because("its task ended")))
}

fn send_on<R: Request>(
    shared: &Arc<Shared>,
    request: &R,
    version: i16,
    timeout: Duration,
    reply: Reply,
) -> Result<(), ClientError> {
    send_pieces_on(shared, timeout, Some(reply), |correlation_id| {
        let mut writer = Writer::new();
        let client_id = Some(shared.config.client_id.as_str());
        frame::write_request(&mut writer, request, version, correlation_id, client_id)?;
        Ok(vec![Bytes::from(writer.into_bytes())])
    })
}

fn send_pieces_on(
    shared: &Arc<Shared>,
    timeout: Duration,
    reply: Option<Reply>,
    encode: impl FnOnce(i32) -> Result<Vec<Bytes>, ClientError>,
) -> Result<(), ClientError> {
    let mut state = shared.lock();
    let idle = state.outgoing.is_empty();
    queue(&mut state, timeout, reply, encode)?;
    if idle {
        write_or_wake(shared, &mut state);
    }
    Ok(())
}

/// Adds a request to what is to be written.
fn queue(
    state: &mut State,
    timeout: Duration,
    reply: Option<Reply>,
    encode: impl FnOnce(i32) -> Result<Vec<Bytes>, ClientError>,
) -> Result<(), ClientError> {
    if let Some(closed) = &state.closed {
        return Err(closed.clone());
    }
    let correlation_id = state.next_correlation_id;
    let pieces = encode(correlation_id)?;
    state.next_correlation_id = correlation_id.wrapping_add(1);
    if let Some(reply) = reply {
        let deadline = Instant::now() + timeout;
        state.pending.push_back(Pending { correlation_id, deadline, reply });
    }
    state.outgoing.extend(pieces);
    Ok(())
}

/// Writes what the socket takes, and wakes the connection's task for the rest.
fn write_or_wake(shared: &Shared, state: &mut State) {
    // Errors of the socket are met again, and handled, by the connection's task.
    let written = write_some(&shared.stream, &mut state.outgoing);
    if written.is_err() || !state.outgoing.is_empty() {
        shared.wake.notify_one();
    }
}

/// Writes until nothing is left or the socket takes no more.
fn write_some(stream: &TcpStream, outgoing: &mut VecDeque<Bytes>) -> io::Result<()> {
    while !outgoing.is_empty() {
        let written = {
            let slices = outgoing.iter().take(SLICES_MAX).map(|piece| IoSlice::new(piece));
            let slices: Vec<IoSlice<'_>> = slices.collect();
            match stream.try_write_vectored(&slices) {
                Ok(written) => written,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            }
        };
        advance(outgoing, written);
    }
    Ok(())
}

/// Drops the first `count` bytes.
fn advance(outgoing: &mut VecDeque<Bytes>, mut count: usize) {
    while let Some(first) = outgoing.front_mut() {
        if first.len() > count {
            let _written = first.split_to(count);
            return;
        }
        count -= first.len();
        outgoing.pop_front();
    }
}

/// Asks which versions are served. A broker too old for our version says so in version 0.
async fn negotiate(shared: &Arc<Shared>) -> Result<ApiVersions, ClientError> {
    let api = ApiKey::ApiVersions;
    let request = ApiVersionsRequest {
        client_software_name: "highwater".to_owned(),
        client_software_version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Default::default()
    };
    let mut version = api.max_version();
    loop {
        let asked = if version < 3 { &ApiVersionsRequest::default() } else { &request };
        let timeout = shared.config.connect_timeout;
        let frame = exchange(shared, asked, version, timeout).await?;
        // The error stands at the same place in all versions.
        let unsupported = frame.get(4..6) == Some(&[0, 35]);
        let answered = if unsupported { 0 } else { version };
        let response: ApiVersionsResponse = read(&shared.peer, &frame, api, answered)?;
        let versions = ApiVersions::of(&response);
        if !unsupported {
            crate::error::check(response.error(), None, || api.to_string())?;
            return Ok(versions);
        }
        let lower = versions.newest_up_to(api, version - 1).unwrap_or(0);
        if lower >= version {
            return Err(ClientError::Unsupported { peer: shared.peer.clone(), api });
        }
        version = lower;
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code under this lock panics")
    }

    fn closed_because(&self, reason: impl Into<String>) -> ClientError {
        ClientError::Closed { peer: self.peer.clone(), reason: reason.into() }
    }

    /// Ends it: whoever waits gets the reason.
    fn close(&self, reason: ClientError) {
        let pending = {
            let mut state = self.lock();
            let reason = state.closed.get_or_insert(reason).clone();
            state.outgoing.clear();
            std::mem::take(&mut state.pending).into_iter().map(move |p| (p, reason.clone()))
        };
        // Handles may outlive it by far, and the broker shall know now. An error says that it does.
        let _ = socket2::SockRef::from(&self.stream).shutdown(std::net::Shutdown::Both);
        pending.for_each(|(pending, reason)| (pending.reply)(Err(reason)));
        self.wake.notify_one();
    }

    fn is_closed(&self) -> bool {
        self.lock().closed.is_some()
    }

    /// Hands every whole frame in `buffer` to whoever waits for it.
    fn dispatch(&self, buffer: &mut BytesMut) -> Result<(), ClientError> {
        while buffer.len() >= frame::LENGTH_BYTES {
            let length: [u8; 4] = buffer[..4].try_into().expect("four bytes");
            let length = i32::from_be_bytes(length);
            if length < 4 || length as usize > self.config.frame_bytes_max {
                return Err(self.closed_because(format!("a frame of {length} bytes came")));
            }
            let whole = frame::LENGTH_BYTES + length as usize;
            if buffer.len() < whole {
                // With room behind it, so that its last bytes do not make the buffer move.
                buffer.reserve(whole - buffer.len() + READ_BYTES);
                return Ok(());
            }
            let mut frame = buffer.split_to(whole).freeze();
            let _length = frame.split_to(frame::LENGTH_BYTES);
            self.deliver(frame)?;
        }
        Ok(())
    }

    fn deliver(&self, frame: Bytes) -> Result<(), ClientError> {
        let correlation_id = i32::from_be_bytes(frame[..4].try_into().expect("dispatch() checked"));
        let pending = self.lock().pending.pop_front();
        let Some(pending) = pending else {
            return Err(self.closed_because("an answer came to no question"));
        };
        if pending.correlation_id != correlation_id {
            let expected = pending.correlation_id;
            let error = self.closed_because(format!("answer {correlation_id} came for {expected}"));
            (pending.reply)(Err(error.clone()));
            return Err(error);
        }
        (pending.reply)(Ok(frame));
        Ok(())
    }

    /// An error if the oldest question has waited too long: answers come in order, so nothing
    /// behind it can be answered either.
    fn check_deadline(&self) -> Result<(), ClientError> {
        match self.lock().pending.front() {
            Some(oldest) if oldest.deadline <= Instant::now() => {
                Err(self.closed_because("an answer did not come in time"))
            }
            _ => Ok(()),
        }
    }
}

/// The connection's task: reads answers, writes what did not go out at once, watches the time.
async fn run(shared: Arc<Shared>) {
    let tick = (shared.config.request_timeout / 4)
        .clamp(Duration::from_millis(10), Duration::from_secs(1));
    let mut ticks = tokio::time::interval(tick);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut buffer = BytesMut::with_capacity(READ_BYTES);
    while !shared.is_closed() {
        if let Err(reason) = turn(&shared, &mut ticks, &mut buffer).await {
            shared.close(reason);
        }
    }
}

async fn turn(
    shared: &Shared,
    ticks: &mut tokio::time::Interval,
    buffer: &mut BytesMut,
) -> Result<(), ClientError> {
    let failed = |e: io::Error| shared.closed_because(e.to_string());
    let blocked = !shared.lock().outgoing.is_empty();
    tokio::select! {
        readable = shared.stream.readable() => {
            readable.map_err(failed)?;
            read_some(shared, buffer)
        }
        writable = shared.stream.writable(), if blocked => {
            writable.map_err(failed)?;
            write_some(&shared.stream, &mut shared.lock().outgoing).map_err(failed)
        }
        () = shared.wake.notified() => Ok(()),
        _ = ticks.tick() => shared.check_deadline(),
    }
}

/// Reads until the socket has no more.
fn read_some(shared: &Shared, buffer: &mut BytesMut) -> Result<(), ClientError> {
    loop {
        if buffer.capacity() - buffer.len() < READ_BYTES / 4 {
            buffer.reserve(READ_BYTES);
        }
        match shared.stream.try_read_buf(buffer) {
            Ok(0) => return Err(shared.closed_because("the broker ended it")),
            Ok(_) => shared.dispatch(buffer)?,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(e) => return Err(shared.closed_because(e.to_string())),
        }
    }
}
