//! One connection: requests go out in the order of the calls, answers come back in that order.
//!
//! A request is written by whoever sends it, if the socket takes it, so that no other task wakes
//! up for it; the rest is written by the connection's own task, which also reads the answers.
//! Not here: which broker to ask, and what to do when it says no.

use crate::connecting::{Limit, secure};
use crate::dial::dial;
use crate::error::ClientError;
use crate::sasl;
use crate::security::{Security, words};
use crate::stream::Stream;
use crate::versions::ApiVersions;
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;
use wire::{
    ApiKey, ApiVersionsRequest, ApiVersionsResponse, Message, Reader, Request, Writer, frame,
};

/// How a connection behaves.
#[derive(Debug, Clone)]
pub struct ConnectionConfig {
    /// The name that the client gives itself.
    pub client_id: String,
    /// How long it may take until requests can be sent: TCP, TLS, the first exchange, the login.
    pub connect_timeout: Duration,
    /// How long an answer may take; then the connection is closed.
    pub request_timeout: Duration,
    /// The largest answer that is accepted, in bytes.
    pub frame_bytes_max: usize,
    /// `receive.buffer.bytes`; `None` for the system's own size.
    pub receive_buffer_bytes: Option<u32>,
    /// `send.buffer.bytes`; `None` for the system's own size.
    pub send_buffer_bytes: Option<u32>,
    /// How it is protected, and who logs in.
    pub security: Security,
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
            security: Security::default(),
        }
    }
}

/// Takes an answer's frame without its length, or the reason why there is none. Runs in the task of
/// the connection, so it must neither block nor take long.
pub type Reply = Box<dyn FnOnce(Result<Bytes, ClientError>) + Send>;

/// Bytes that are asked of the socket at least.
const READ_BYTES: usize = 64 * 1024;
/// Pieces that go out in one system call at most.
pub(crate) const SLICES_MAX: usize = 64;
/// The largest answer before the broker has let this client in, in bytes: who it is is not known yet.
const FRAME_BYTES_BEFORE: usize = 1 << 20;

/// Who waits for an answer.
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
    /// The first request after the question which versions are served, once that is answered.
    negotiated: Option<i32>,
    /// Why the connection is of no use any more.
    closed: Option<ClientError>,
    /// While the client logs in again: the requests that wait until it has.
    held: Option<VecDeque<Held>>,
    /// The task that logs in again.
    login: Option<AbortHandle>,
}

/// A request that is not to be sent yet.
struct Held {
    pieces: Vec<Bytes>,
    pending: Option<Pending>,
}

/// What the handles and the tasks of a connection share.
pub(crate) struct Shared {
    stream: Stream,
    peer: String,
    config: ConnectionConfig,
    state: Mutex<State>,
    /// Wakes the connection's task: there is something to write, or nothing to live for.
    wake: Notify,
    /// Whether the broker has let this client in.
    admitted: AtomicBool,
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
    /// Connects to `host:port`, shakes hands and logs in where that is asked for, and asks which versions are served there.
    ///
    /// # Errors
    /// [`ClientError::NotAdmitted`] if one side does not let the other in; else what the network did.
    pub async fn open(address: &str, config: &ConnectionConfig) -> Result<Connection, ClientError> {
        let limit = Limit::new(config.connect_timeout);
        let connecting = async {
            let failed = |e: io::Error| ClientError::Connect {
                address: address.to_owned(),
                reason: e.to_string(),
            };
            dial(address, config).await.map_err(failed)
        };
        let tcp = limit.keep(format!("connecting to {address}"), connecting).await?;
        let what = format!("the TLS handshake with {address}");
        let stream = limit.keep(what, secure(tcp, address, &config.security)).await?;
        let shared = Arc::new(Shared {
            stream,
            peer: address.to_owned(),
            config: config.clone(),
            state: Mutex::default(),
            wake: Notify::new(),
            admitted: AtomicBool::new(false),
        });
        tokio::spawn(run(shared.clone()));
        // Until here the answer to the first exchange is unknown; the handle is made to be dropped
        // if that fails.
        let mut handle = Handle { shared, versions: ApiVersions::default() };
        let what = format!("the first answer of {address}");
        handle.versions = limit.keep(what, negotiate(&handle.shared)).await?;
        handle.shared.has_negotiated();
        if let Some(credentials) = &config.security.sasl {
            let login = sasl::log_in(&handle.shared, &handle.versions, credentials);
            if let Some(lifetime) = limit.keep(format!("the login at {address}"), login).await? {
                handle.shared.stay_logged_in(handle.versions.clone(), lifetime);
            }
        }
        handle.shared.admitted.store(true, Ordering::Relaxed);
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
        let state = self.0.shared.lock();
        !state.outgoing.is_empty() || state.held.is_some() || self.0.shared.stream.has_unsent()
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

/// Asks ahead of the requests that wait until the client has logged in again.
pub(crate) async fn exchange_ahead<R: Request>(
    shared: &Arc<Shared>,
    request: &R,
    version: i16,
) -> Result<R::Response, ClientError> {
    let (reply, answer) = waiting();
    let timeout = shared.config.connect_timeout;
    {
        let mut state = shared.lock();
        let encode = |id| encode_request(shared, request, version, id);
        let held = state.held.take();
        let queued = queue(&mut state, timeout, Some(reply), encode);
        state.held = held;
        queued?;
        write_or_wake(shared, &mut state);
    }
    let frame = answer.await.unwrap_or_else(|_| Err(shared.closed_because("its task ended")))?;
    read(&shared.peer, &frame, R::API_KEY, version)
}

/// Sends a request and waits for its frame.
async fn exchange<R: Request>(
    shared: &Arc<Shared>,
    request: &R,
    version: i16,
    timeout: Duration,
) -> Result<Bytes, ClientError> {
    let (reply, answer) = waiting();
    send_on(shared, request, version, timeout, reply)?;
    answer.await.unwrap_or_else(|_| Err(shared.closed_because("its task ended")))
}

/// A reply that can be waited for.
fn waiting() -> (Reply, oneshot::Receiver<Result<Bytes, ClientError>>) {
    let (sender, receiver) = oneshot::channel();
    // The receiver is gone when the caller gave up; then no one needs the answer.
    (Box::new(move |answer| drop(sender.send(answer))), receiver)
}

fn encode_request<R: Request>(
    shared: &Shared,
    request: &R,
    version: i16,
    correlation_id: i32,
) -> Result<Vec<Bytes>, ClientError> {
    let mut writer = Writer::new();
    let client_id = Some(shared.config.client_id.as_str());
    frame::write_request(&mut writer, request, version, correlation_id, client_id)?;
    Ok(vec![Bytes::from(writer.into_bytes())])
}

fn send_on<R: Request>(
    shared: &Arc<Shared>,
    request: &R,
    version: i16,
    timeout: Duration,
    reply: Reply,
) -> Result<(), ClientError> {
    send_pieces_on(shared, timeout, Some(reply), |id| encode_request(shared, request, version, id))
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
    let deadline = Instant::now() + timeout;
    let pending = reply.map(|reply| Pending { correlation_id, deadline, reply });
    match &mut state.held {
        None => {
            state.pending.extend(pending);
            state.outgoing.extend(pieces);
        }
        Some(held) => held.push_back(Held { pieces, pending }),
    }
    Ok(())
}

/// Writes what the socket takes, and wakes the connection's task for the rest.
fn write_or_wake(shared: &Shared, state: &mut State) {
    // Errors of the socket are met again, and handled, by the connection's task.
    if !shared.stream.write_some(&mut state.outgoing).unwrap_or(false) {
        shared.wake.notify_one();
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

    pub(crate) fn peer(&self) -> &str {
        &self.peer
    }

    pub(crate) fn config(&self) -> &ConnectionConfig {
        &self.config
    }

    fn has_negotiated(&self) {
        let mut state = self.lock();
        state.negotiated = Some(state.next_correlation_id);
    }

    /// Has the client log in again before the session ends.
    fn stay_logged_in(self: &Arc<Shared>, versions: ApiVersions, lifetime: Duration) {
        let Some(credentials) = self.config.security.sasl.clone() else { return };
        let staying = sasl::stay_logged_in(Arc::downgrade(self), versions, credentials, lifetime);
        let task = tokio::spawn(staying).abort_handle();
        let mut state = self.lock();
        if state.closed.is_some() {
            task.abort();
        }
        state.login = Some(task);
    }

    /// Lets new requests wait: while a client logs in again, brokers take nothing else.
    pub(crate) fn hold(&self) {
        self.lock().held.get_or_insert_default();
    }

    /// Sends what has waited.
    pub(crate) fn resume(&self) {
        let mut state = self.lock();
        for held in state.held.take().into_iter().flatten() {
            state.outgoing.extend(held.pieces);
            state.pending.extend(held.pending);
        }
        write_or_wake(self, &mut state);
    }

    /// Ends it: whoever waits gets the reason.
    pub(crate) fn close(&self, reason: ClientError) {
        let pending = {
            let mut state = self.lock();
            let reason = state.closed.get_or_insert(reason).clone();
            state.outgoing.clear();
            let login = state.login.take();
            login.inspect(AbortHandle::abort);
            let held = state.held.take().into_iter().flatten().filter_map(|held| held.pending);
            let pending = std::mem::take(&mut state.pending).into_iter().chain(held);
            pending.map(move |p| (p, reason.clone()))
        };
        // Handles may outlive it by far, and the broker shall know now.
        self.stream.shutdown();
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
            if length < 4 || length as usize > self.frame_bytes_max(length as usize) {
                return Err(self.not_a_frame(&buffer[..4], length));
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

    /// How large a frame of this length may be; who has not let this client in gets less memory.
    fn frame_bytes_max(&self, length: usize) -> usize {
        if length > FRAME_BYTES_BEFORE && !self.admitted.load(Ordering::Relaxed) {
            return FRAME_BYTES_BEFORE;
        }
        self.config.frame_bytes_max
    }

    /// The error for bytes that are not the length of a frame.
    fn not_a_frame(&self, start: &[u8], length: i32) -> ClientError {
        // An alert of TLS: its type, and the version's major number.
        let is_tls = start[..2] == [0x15, 0x03] && matches!(self.stream, Stream::Plain(_));
        if is_tls && !self.admitted.load(Ordering::Relaxed) {
            let reason = "it answers in TLS; write security.protocol=SSL or SASL_SSL".to_owned();
            return ClientError::NotAdmitted { peer: self.peer.clone(), reason };
        }
        self.closed_because(format!("a frame of {length} bytes came"))
    }

    /// The error for a connection that the broker ended.
    fn ended(&self) -> ClientError {
        let (first, negotiated) = {
            let state = self.lock();
            (state.pending.front().map(|pending| pending.correlation_id), state.negotiated)
        };
        let is_first = first == negotiated;
        let hint = words::of_end(&self.config.security, negotiated.is_some(), is_first);
        self.closed_because(format!("the broker ended it{hint}"))
    }

    /// The error for a socket, or a session of TLS, that failed.
    fn failed(&self, error: &io::Error) -> ClientError {
        let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>())
        else {
            return self.closed_because(error.to_string());
        };
        // With TLS 1.3 a client learns only now that its certificate was refused.
        match tls {
            rustls::Error::AlertReceived(_) if !self.admitted.load(Ordering::Relaxed) => {
                let reason = words::of_handshake(tls, &self.peer);
                ClientError::NotAdmitted { peer: self.peer.clone(), reason }
            }
            _ => self.closed_because(format!("TLS: {tls}")),
        }
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

/// What came and was not handed over yet.
struct Incoming {
    buffer: BytesMut,
    /// Whether an answer was large: the buffer keeps the memory of the largest one.
    was_large: bool,
}

impl Incoming {
    fn new() -> Incoming {
        Incoming { buffer: BytesMut::with_capacity(READ_BYTES), was_large: false }
    }

    /// Gives up the memory of a large answer where no other is waited for. Whoever asks all the time keeps it: new memory costs
    /// more than what is done with it.
    fn rest(&mut self, shared: &Shared) {
        if self.was_large && self.buffer.is_empty() && shared.lock().pending.is_empty() {
            *self = Incoming::new();
        }
    }
}

/// The connection's task: reads answers, writes what did not go out at once, watches the time.
async fn run(shared: Arc<Shared>) {
    let tick = (shared.config.request_timeout / 4)
        .clamp(Duration::from_millis(10), Duration::from_secs(1));
    let mut ticks = tokio::time::interval(tick);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut incoming = Incoming::new();
    while !shared.is_closed() {
        if let Err(reason) = turn(&shared, &mut ticks, &mut incoming).await {
            shared.close(reason);
        }
    }
}

async fn turn(
    shared: &Shared,
    ticks: &mut tokio::time::Interval,
    incoming: &mut Incoming,
) -> Result<(), ClientError> {
    let failed = |e: io::Error| shared.failed(&e);
    let blocked = !shared.lock().outgoing.is_empty() || shared.stream.has_unsent();
    let tcp = shared.stream.tcp();
    tokio::select! {
        readable = tcp.readable() => {
            readable.map_err(failed)?;
            read_some(shared, incoming)
        }
        writable = tcp.writable(), if blocked => {
            writable.map_err(failed)?;
            shared.stream.write_some(&mut shared.lock().outgoing).map(drop).map_err(failed)
        }
        () = shared.wake.notified() => Ok(()),
        _ = ticks.tick() => {
            incoming.rest(shared);
            shared.check_deadline()
        }
    }
}

/// Reads until the socket has no more.
fn read_some(shared: &Shared, incoming: &mut Incoming) -> Result<(), ClientError> {
    let buffer = &mut incoming.buffer;
    loop {
        if buffer.capacity() - buffer.len() < READ_BYTES / 4 {
            buffer.reserve(READ_BYTES);
        }
        match shared.stream.try_read(buffer) {
            Ok(0) => return Err(shared.ended()),
            Ok(_) => {
                shared.dispatch(buffer)?;
                // The rest of one that has not come whole has its room already.
                incoming.was_large |= buffer.capacity() > 2 * READ_BYTES;
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(e) => return Err(shared.failed(&e)),
        }
    }
}
