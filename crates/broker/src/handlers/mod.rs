//! What requests mean: one file an API, and the one table of those that are served.
//!
//! [`dispatch`] is called once a frame, in the order of the frames. Produce and Fetch are served
//! right there; every other API becomes a future in the connection's line of answers.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::ready;
use std::time::Instant;

use ::metadata::BrokerImage;
use model::{BrokerId, ErrorCode, LeaderEpoch};
use parking_lot::Mutex;
use tracing::debug;
use wire::frame::{self, RequestHead};
use wire::hot::fetch::FetchRequest;
use wire::{ApiKey, Message, Reader, Request, Writer};

use crate::fetch_session::SessionUse;
use crate::network::answers::{AnswerRoom, BuildTurn, FREE_BYTES_MAX};
use crate::network::memory::{Charge, Size};
use crate::network::slot::{Hangup, Reply, Slot};
use crate::server::Server;

mod access_lists;
mod alter_configs;
mod api_versions;
mod authorized;
mod broker_loggers;
mod client_quotas;
mod config_resource;
mod consumer_group_heartbeat;
mod create_partitions;
mod create_topics;
mod current_leader;
mod delegation_tokens;
mod delete_groups;
mod delete_records;
mod delete_topics;
mod describe_cluster;
mod describe_configs;
mod describe_groups;
mod describe_log_dirs;
mod describe_producers;
mod describe_quorum;
mod describe_topic_partitions;
mod elect_leaders;
pub mod error_code;
pub mod fetch;
mod find_coordinator;
mod group;
mod heartbeat;
mod init_producer_id;
mod join_group;
mod leave_group;
mod list_answer;
mod list_config_resources;
mod list_groups;
mod list_offsets;
mod metadata;
mod offset_commit;
mod offset_delete;
mod offset_fetch;
mod offset_for_leader_epoch;
mod pieces;
pub mod produce;
mod reassignments;
mod sasl_handshake;
mod scram_credentials;
mod sync_group;
mod table;
mod telemetry_subscriptions;
mod transactions;
mod unique;
mod unregister_broker;
mod update_features;

use list_answer::HandlerAnswer;

pub use current_leader::Asker;
pub use produce::PutOff;
pub use table::{Advertised, advertised};

/// What came of a frame.
pub enum Dispatched {
    /// It has a place in the line.
    Slot(Slot),
    /// It asked for no answer.
    NoAnswer,
    /// No file could be opened for it: the same frame is to be handed to [`PutOff::go_on`] again when one
    /// was closed, before anything behind it is begun.
    PutOff(Box<PutOff>),
}

/// What the broker knows of a connection's client.
#[derive(Debug)]
pub struct Session {
    /// Where the client is.
    pub peer: SocketAddr,
    /// The address that it reached.
    pub local: SocketAddr,
    /// The listener that it came through.
    pub listener: Arc<str>,
    /// The broker at the other end, if it has proven to be one.
    broker: Option<BrokerId>,
    /// The name that it gave itself in its last request.
    client_id: Arc<str>,
    /// Scratch of the hot path.
    fetch: FetchRequest,
    /// The fetch session that it used last, and what tells its uses from other connections'.
    fetch_session: SessionUse,
}

impl Session {
    /// A client of which nothing is known but where it is.
    pub fn new(peer: SocketAddr, local: SocketAddr, listener: Arc<str>) -> Session {
        Session {
            peer,
            local,
            listener,
            broker: None,
            client_id: "".into(),
            fetch: FetchRequest::default(),
            fetch_session: SessionUse::default(),
        }
    }

    /// Another broker of the cluster.
    pub fn of_broker(broker: BrokerId, peer: SocketAddr, local: SocketAddr) -> Session {
        let listener = "between brokers".into();
        Session { broker: Some(broker), ..Session::new(peer, local, listener) }
    }

    /// The client as one that asks `server`.
    pub fn asker<'a>(&'a self, server: &'a Server) -> Asker<'a> {
        Asker { server, listener: &self.listener, local: self.local }
    }

    /// The connection has ended: what was kept for it alone goes.
    pub fn end(&self, server: &Server) {
        server.fetch_sessions.user_left(&self.fetch_session);
    }

    fn note_client(&mut self, client_id: Option<&str>) {
        let client_id = client_id.unwrap_or_default();
        if *self.client_id != *client_id {
            self.client_id = client_id.into();
        }
    }
}

/// A request of an API that is not on the hot path, and what its handler may want to know.
pub struct Call {
    /// The broker.
    pub server: Arc<Server>,
    /// The API.
    pub api_key: ApiKey,
    /// The version asked for.
    pub version: i16,
    /// What the answer must carry.
    pub correlation_id: i32,
    /// The name that the client gave itself.
    pub client_id: Arc<str>,
    /// Where the client is.
    pub peer: SocketAddr,
    /// The address that it reached.
    pub local: SocketAddr,
    /// The listener that it came through.
    pub listener: Arc<str>,
    /// When it arrived.
    pub arrived: Instant,
    /// The memory that the decoded request takes, held until it is answered.
    memory: Charge,
    /// Bytes of the decoded request.
    decoded_bytes: usize,
    /// Memory reserved for the answer.
    room: Mutex<Option<AnswerRoom>>,
    /// Held until the answer is encoded.
    building: Mutex<Option<BuildTurn>>,
}

impl Call {
    /// Where a client of this listener reaches `broker`: host and port.
    fn endpoint_of(&self, broker: &BrokerImage) -> Option<(String, u16)> {
        let Call { server, listener, local, .. } = self;
        Asker { server, listener, local: *local }.endpoint_of(broker)
    }

    /// Waits for memory for an answer of at most `bytes`, decoded and encoded, if that is much. At most once for a
    /// request: two reservations could wait for each other.
    async fn reserve_answer(&self, bytes: usize) {
        if bytes <= FREE_BYTES_MAX {
            return;
        }
        debug_assert!(self.room.lock().is_none(), "{} reserves twice", self.api_key);
        let room = self.server.memory.answers.reserve(self.peer, bytes).await;
        *self.room.lock() = Some(room);
    }

    /// The same for an answer of at most `bytes` encoded that takes several times as much decoded: such answers are
    /// built in turn.
    async fn reserve_encoded_answer(&self, bytes: usize) {
        self.reserve_answer(bytes).await;
        let turn = self.server.memory.answers.turn_to_build(bytes).await;
        *self.building.lock() = turn;
    }

    /// Builds an answer beside the data threads if it has a turn to be built: one that is large keeps its thread busy for
    /// long, and clients with small requests would wait for that thread.
    fn build<T>(&self, build: impl FnOnce() -> T) -> T {
        let is_large = self.building.lock().is_some();
        if is_large { self.server.checking.aside(build) } else { build() }
    }

    /// Has the controller decide, and waits until this broker has acted upon the decision.
    ///
    /// The decision is made although the connection ends meanwhile, and the memory of request and answer stays charged
    /// until then: the controller's queue holds the request either way.
    async fn decide(
        self: &Arc<Self>,
        request: ::metadata::Request,
    ) -> Result<::metadata::Response, ErrorCode> {
        let (call, place) = (Arc::clone(self), self.server.memory.decision_place().await);
        let deciding = tokio::spawn(async move {
            let decided = call.server.decide_only(request).await;
            drop(place);
            decided
        });
        // The task is aborted only when the broker ends.
        let decided = deciding.await.unwrap_or(Err(ErrorCode::RequestTimedOut))?;
        // A hung disk may delay it for ever: only the connection waits.
        self.server.applied().await;
        Ok(decided)
    }

    fn reply(&self, answer: impl HandlerAnswer) -> Result<Reply, Hangup> {
        let _alone = self.building.lock().take();
        let frame = answer.into_frame(self)?;
        let mut room = self.room.lock().take();
        debug_assert!(
            room.is_some() || frame.len() <= FREE_BYTES_MAX + self.decoded_bytes,
            "{} answers {} bytes without a reservation",
            self.api_key,
            frame.len()
        );
        if let Some(room) = &mut room {
            room.shrink_to(frame.capacity());
        }
        Ok(Reply { frame, room })
    }

    /// The whole frame of an answer.
    fn reply_in<M: Message>(&self, response: &M, version: i16) -> Result<Vec<u8>, Hangup> {
        let mut writer = Writer::new();
        frame::write_response(&mut writer, response, self.api_key, version, self.correlation_id)
            .map_err(|error| Hangup(format!("cannot answer {}: {error}", self.api_key)))?;
        self.observe_answer();
        Ok(writer.into_bytes())
    }

    /// Counts the answer, whose frame is complete.
    fn observe_answer(&self) {
        let counters = self.server.counters.api(self.api_key);
        counters.durations.observe(self.arrived.elapsed());
    }
}

/// Requests up to this size, in bytes, are decoded whatever memory there is: a broker that lacks
/// memory must still hear heartbeats.
const ADMITTED_BYTES: usize = 4096;
/// Fetches up to this size, in bytes, are taken in without a look at memory.
const FETCH_ADMITTED_BYTES: usize = 64 * 1024;

/// Whether requests of this API are taken in while earlier ones of the connection are in progress.
pub fn is_pipelined(api: ApiKey) -> bool {
    matches!(api, ApiKey::Produce | ApiKey::Fetch)
}

/// The right to decode a request of `size_bytes`: a charge of the most that it can take. `None`
/// while there is no memory for it.
pub fn admit(server: &Server, api: Option<ApiKey>, size_bytes: usize) -> Option<Option<Charge>> {
    let free = match api {
        Some(ApiKey::Produce) => usize::MAX,
        Some(ApiKey::Fetch) => FETCH_ADMITTED_BYTES,
        _ => ADMITTED_BYTES,
    };
    if size_bytes <= free {
        return Some(None);
    }
    let mut charge = server.memory.decoded.charge();
    let most = wire::decoded_bytes_max(size_bytes);
    charge.try_raise(most, Size::of(most)).then_some(Some(charge))
}

/// Requests beyond Produce and Fetch up to this size are decoded on the data thread, in bytes; larger ones
/// may name a hundred thousand things, which takes milliseconds.
const INLINE_BYTES_MAX: usize = 64 << 10;

/// Serves one frame, its length taken off. `Err`: the connection has no more meaning.
pub fn dispatch(
    server: &Arc<Server>,
    session: &mut Session,
    frame: &mut [u8],
    memory: Option<Charge>,
    now: Instant,
) -> Result<Dispatched, Hangup> {
    let frame_bytes = frame.len();
    let head = RequestHead::parse(frame)
        .map_err(|error| Hangup(format!("a frame without a request in it: {error}")))?;
    server.counters.api(head.api_key).requests.add(1);
    let (api_key, version, body_from) = (head.api_key, head.version, head.body_from);
    let (client, bytes) = (shown(head.client_id.unwrap_or_default()), frame_bytes);
    debug!(peer = %session.peer, %api_key, version, client, bytes, "request");
    if !api_key.has_version(version) {
        return refuse_version(server, session, &head, now);
    }
    match api_key {
        ApiKey::Produce => {
            let correlation_id = head.correlation_id;
            produce::begin(server, produce::Head { version, correlation_id, body_from }, frame, now)
        }
        ApiKey::Fetch => {
            let Session { fetch, fetch_session, broker, .. } = session;
            let body = &frame[body_from..];
            let from = fetch::Fetching { sessions: fetch_session, broker: *broker };
            fetch::begin(server, from, fetch, &head, body, memory, now)
        }
        _ => {
            session.note_client(head.client_id);
            let mut call = call(server, session, &head, now);
            if let Some(memory) = memory {
                call.memory = memory;
            }
            let body = &frame[body_from..];
            let slot = match body.len() > INLINE_BYTES_MAX {
                true => server.checking.aside(|| table::dispatch(call, body)),
                false => table::dispatch(call, body),
            };
            slot.map(Dispatched::Slot)
        }
    }
}

/// The part of a client's text that log lines show: clients may send 32 KB.
pub fn shown(text: &str) -> &str {
    /// Longest text of a client in a log line, in bytes.
    const SHOWN_BYTES_MAX: usize = 200;
    &text[..text.floor_char_boundary(SHOWN_BYTES_MAX)]
}

fn call(server: &Arc<Server>, session: &Session, head: &RequestHead<'_>, now: Instant) -> Call {
    Call {
        server: Arc::clone(server),
        api_key: head.api_key,
        version: head.version,
        correlation_id: head.correlation_id,
        client_id: Arc::clone(&session.client_id),
        peer: session.peer,
        local: session.local,
        listener: Arc::clone(&session.listener),
        arrived: now,
        memory: server.memory.decoded.charge(),
        decoded_bytes: 0,
        room: Mutex::default(),
        building: Mutex::default(),
    }
}

/// ApiVersions answers a version that is not served in version 0, with what is (KIP-511); any other
/// API has no answer that the client could read.
fn refuse_version(
    server: &Arc<Server>,
    session: &Session,
    head: &RequestHead<'_>,
    now: Instant,
) -> Result<Dispatched, Hangup> {
    if head.api_key != ApiKey::ApiVersions {
        let RequestHead { api_key, version, .. } = head;
        return Err(Hangup(format!("{api_key} is not served in version {version}")));
    }
    let call = call(server, session, head, now);
    let response = table::api_versions(ErrorCode::UnsupportedVersion);
    Ok(Dispatched::Slot(Slot::Ready(call.reply_in(&response, 0)?)))
}

/// Decodes the request, and makes the handler's future a slot.
fn answer<R, H, F, A>(mut call: Call, body: &[u8], handler: H) -> Result<Slot, Hangup>
where
    R: Request,
    A: HandlerAnswer + Send,
    H: FnOnce(Arc<Call>, R) -> F,
    F: Future<Output = A> + Send + 'static,
{
    call.server.memory.make_room_for(call.memory.bytes());
    // What follows the message is left unread, as Kafka leaves it: librdkafka 2.16 sends three bytes
    // more than a Metadata request for all topics has.
    let mut reader = Reader::new(body);
    let request = R::decode(&mut reader, call.version)
        .map_err(|error| Hangup(format!("a malformed {}: {error}", call.api_key)))?;
    // What little a request takes is not worth an atomic.
    let taken = reader.spent_bytes();
    call.memory.set(if taken > ADMITTED_BYTES { taken } else { 0 });
    call.decoded_bytes = taken;
    let call = Arc::new(call);
    let future = handler(Arc::clone(&call), request);
    let server = Arc::clone(&call.server);
    let work = async move {
        if !reserves_by_itself(call.api_key) {
            call.reserve_answer(ANSWER_PART * call.decoded_bytes).await;
        }
        let response = future.await;
        call.build(|| call.reply(response))
    };
    Ok(Slot::Other(match taken > QUICK_REQUEST_BYTES {
        true => Box::pin(polled_aside(server, work)),
        false => Box::pin(work),
    }))
}

/// Polls `work` beside the data threads, in turn: a request that names thousands of things takes milliseconds at each step,
/// and no other connection of the thread would be served meanwhile.
fn polled_aside<T>(server: Arc<Server>, work: impl Future<Output = T>) -> impl Future<Output = T> {
    let mut work = Box::pin(work);
    let mut waiting = None;
    std::future::poll_fn(move |cx| {
        let turn = waiting.get_or_insert_with(|| Box::pin(server.checking.request_turn()));
        let turn = ready!(turn.as_mut().poll(cx));
        waiting = None;
        let polled = server.checking.aside(|| work.as_mut().poll(cx));
        drop(turn);
        polled
    })
}

/// Bytes of the largest decoded request, beyond Produce and Fetch, that a data thread handles itself.
const QUICK_REQUEST_BYTES: usize = 16 << 10;

/// Bytes of an answer, decoded and encoded, for each byte of its decoded request.
const ANSWER_PART: usize = 3;

/// Whether the handler reserves memory for its answer, because the answer may be larger than its request, or
/// because it comes long after the request.
fn reserves_by_itself(api: ApiKey) -> bool {
    matches!(
        api,
        ApiKey::Metadata
            | ApiKey::OffsetFetch
            | ApiKey::JoinGroup
            | ApiKey::SyncGroup
            | ApiKey::DescribeGroups
            | ApiKey::ListGroups
            | ApiKey::CreateTopics
            | ApiKey::DescribeConfigs
            | ApiKey::DescribeLogDirs
            | ApiKey::ElectLeaders
            | ApiKey::ListConfigResources
            | ApiKey::DescribeProducers
    )
}

/// The leader epoch that a client knows, if it says.
fn known_epoch(epoch: LeaderEpoch) -> Option<LeaderEpoch> {
    (epoch != LeaderEpoch::NONE).then_some(epoch)
}
