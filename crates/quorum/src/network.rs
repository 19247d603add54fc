//! Messages between the members, over a transport that somebody else provides.
//!
//! A message carries the cluster's id, the sender and the addressee: a node that took over an address of
//! another, or belongs to another cluster, refuses it. What is large, a snapshot above all, goes in pieces: a
//! heartbeat waits behind one of them at most, and a transfer that broke off goes on where it was.

use crate::blobs::Blobs;
use crate::clock::Heard;
#[cfg(test)]
use crate::faults::{Mutant, is_mutant};
use crate::generation::Generation;
use crate::older_copy::{Acknowledgements, OwnFolder};
use crate::patience::{HEARTBEAT_MAX, Patience};
use crate::published::Published;
use crate::raft::{LogId, Snapshot, TypeConfig, Vote, broker_id, node_id};
use crate::state_machine::StateMachine;
use crate::store::log_store::LogStore;
use crate::store::snapshot::Applied;
use crate::translation::{
    plain_append, plain_appended, plain_election, plain_place, plain_transfer, plain_transferred,
    plain_vote, plain_voted, raft_append, raft_appended, raft_election, raft_place,
    raft_transferred, raft_vote, raft_voted,
};
use ledger::message::{Head, Holds, Reply, Request, WholeId};
use model::BrokerId;
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable};
use openraft::network::RPCOption;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::{EmptyNode, OptionalSend, RPCTypes, Raft, RaftNetworkFactory, RaftNetworkV2};
use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Bytes of a piece.
const PIECE_BYTES: usize = 1 << 20;
/// Bytes of a message that is sent as it is; a larger one goes in pieces.
const MESSAGE_BYTES_MAX: usize = PIECE_BYTES + (PIECE_BYTES >> 1);
/// How long a piece may take, or a request that was sent in pieces.
const PIECE_PATIENCE: Duration = Duration::from_secs(10);
/// How long answering any other request may take: its sender has given up before, and a disk may hang for ever.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);
/// How long an append may take before its sender learns how much is stored. Less than a heartbeat may take.
const STORED_AFTER: Duration = Duration::from_millis(150);
/// Level of `highwater.version` from which on members understand [`Request::OlderCopy`].
const OLDER_COPY_LEVEL: i16 = 4;
/// How long installing a snapshot may take.
const INSTALL_PATIENCE: Duration = Duration::from_secs(60);

/// A future that a transport gives back.
pub type Sent<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>, TransportError>> + Send + 'a>>;

/// Brings a message to another member and its answer back. May lose both, late or never; must not
/// change them. What arrives there goes to `Quorum::receive`.
pub trait Transport: Send + Sync + 'static {
    /// Sends a message of at most 2 MiB to a member, and waits for its answer no longer than `patience`. The
    /// caller may give up earlier, by dropping the future.
    fn send(&self, to: BrokerId, message: Vec<u8>, patience: Duration) -> Sent<'_>;
}

/// A member that cannot be reached now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TransportError(pub String);

/// The transport of a quorum that has no other members.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTransport;

impl Transport for NoTransport {
    fn send(&self, to: BrokerId, _: Vec<u8>, _: Duration) -> Sent<'_> {
        Box::pin(async move { Err(TransportError(format!("no way to node {to}"))) })
    }
}

/// Who talks in which cluster, and how.
#[derive(Clone)]
pub(crate) struct Network {
    pub(crate) cluster_id: Arc<str>,
    pub(crate) me: u64,
    pub(crate) transport: Arc<dyn Transport>,
    /// How long appending entries may take: a sync among them. Heartbeats have less.
    pub(crate) append_patience: Duration,
    /// How long a member may take at the moment.
    pub(crate) patience: Arc<Patience>,
    /// What others send in pieces.
    pub(crate) blobs: Arc<Blobs>,
    /// When the leader was last heard.
    pub(crate) heard: Arc<Heard>,
    /// The image names the level of the cluster's messages.
    pub(crate) published: Arc<Published>,
    /// What members have acknowledged to this node.
    pub(crate) acknowledgements: Arc<Acknowledgements>,
    /// Whether the own folder is an older copy.
    pub(crate) own_folder: Arc<OwnFolder>,
    /// Members of other generations are not talked to.
    pub(crate) generation: Arc<Generation>,
    /// Whether this node may make a new cluster: its log directories were in none.
    pub(crate) may_found: bool,
}

/// The way to one member.
pub(crate) struct Peer {
    network: Network,
    to: u64,
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, _: &EmptyNode) -> Peer {
        Peer { network: self.clone(), to: target }
    }
}

type Failure = RPCError<TypeConfig>;

fn unreachable(error: impl ToString) -> Failure {
    RPCError::Unreachable(Unreachable::from_string(error))
}

/// An answer to another question than was asked.
fn confused<T>() -> Result<T, Failure> {
    Err(unreachable("the answer is to another question"))
}

impl Peer {
    /// As [`Peer::ask`], with at least the patience `least`, and up to `most` for a member that answers slowly.
    async fn ask_patiently(
        &self,
        request: &Request,
        least: Duration,
        most: Duration,
    ) -> Result<Reply, Failure> {
        let (patience, begun) = (&self.network.patience, Instant::now());
        let allowed = patience.for_member(self.to, least, most);
        #[cfg(test)]
        let allowed = if is_mutant(Mutant::ConstantPatience) { least } else { allowed };
        let answer = self.ask(request, allowed).await;
        match &answer {
            Ok(_) => patience.note_answer(self.to, begun.elapsed()),
            Err(_) if begun.elapsed() >= allowed => patience.note_silence(self.to, allowed),
            // A member that refuses, or whose link is down, shows nothing.
            Err(_) => {}
        }
        answer
    }

    /// Asks; in pieces if it has to be.
    async fn ask(&self, request: &Request, patience: Duration) -> Result<Reply, Failure> {
        let message = self.encode(request);
        if message.len() <= MESSAGE_BYTES_MAX {
            return self.exchange(request, message, patience).await;
        }
        let whole = WholeId::of(&message);
        self.send_pieces(whole, &message).await?;
        let request = Request::Large(whole);
        self.exchange(&request, self.encode(&request), patience.max(PIECE_PATIENCE)).await
    }

    fn encode(&self, request: &Request) -> Vec<u8> {
        let cluster_id = &*self.network.id_in_messages();
        request.encode(Head { cluster_id, from: self.network.me, to: self.to })
    }

    async fn exchange(
        &self,
        request: &Request,
        message: Vec<u8>,
        patience: Duration,
    ) -> Result<Reply, Failure> {
        self.network.own_folder.check().map_err(unreachable)?;
        let sent = self.network.transport.send(broker_id(self.to), message, patience);
        let answer = tokio::time::timeout(patience, sent).await;
        let answer = answer.map_err(|_| self.timed_out(request, patience))?.map_err(unreachable)?;
        let (head, reply) = Reply::decode(&answer).map_err(unreachable)?;
        if head.from != self.to || head.cluster_id != self.network.id_in_messages() {
            return Err(unreachable("the answer is another node's"));
        }
        match reply {
            Reply::Refused(reason) => Err(unreachable(reason)),
            Reply::Missing => Err(unreachable("what was sent in pieces is gone")),
            reply => Ok(reply),
        }
    }

    fn timed_out(&self, request: &Request, timeout: Duration) -> Failure {
        let action = match request {
            Request::Vote(_)
            | Request::PreVote(_)
            | Request::Introduce
            | Request::OlderCopy { .. } => RPCTypes::Vote,
            Request::Piece { .. } | Request::Snapshot { .. } => RPCTypes::InstallSnapshot,
            Request::TransferLeader { .. } => RPCTypes::TransferLeader,
            Request::Append(_) | Request::Large(_) => RPCTypes::AppendEntries,
        };
        let (id, target) = (self.network.me, self.to);
        RPCError::Timeout(Timeout { action, id, target, timeout })
    }

    /// Sends something piece by piece, from where the member has it.
    async fn send_pieces(&self, whole: WholeId, bytes: &[u8]) -> Result<(), Failure> {
        // An empty piece asks what is there already.
        let mut have = self.send_piece(whole, 0, &[]).await?;
        while have < bytes.len() {
            let end = bytes.len().min(have + PIECE_BYTES);
            let now = self.send_piece(whole, have, &bytes[have..end]).await?;
            if now <= have {
                return Err(unreachable("the member does not take the pieces"));
            }
            have = now;
        }
        Ok(())
    }

    async fn send_piece(
        &self,
        whole: WholeId,
        offset: usize,
        piece: &[u8],
    ) -> Result<usize, Failure> {
        let request = Request::Piece { whole, offset: offset as u64, bytes: piece.to_vec() };
        let message = self.encode(&request);
        match self.exchange(&request, message, PIECE_PATIENCE).await? {
            Reply::Taken(have) if have <= whole.length => Ok(have as usize),
            _ => confused(),
        }
    }

    /// Reports to a member that its log lacks an entry that it had acknowledged before the request was sent. openraft never
    /// learns of the answer: it takes such a log for impossible, and would send entries to it as to the voter of before.
    async fn report_older_copy(&self, vote: Vote, acknowledged: LogId) -> Failure {
        let (node, entry) = (broker_id(self.to), acknowledged.index);
        if self.network.acknowledgements.log_once(self.to) {
            tracing::warn!(
                %node,
                entry,
                "the metadata log of a node lacks an entry that the node had acknowledged: its metadata folder was put back from an \
                 older copy. The node is sent no more metadata until it joins with an empty metadata folder"
            );
        }
        let image = Arc::clone(&self.network.published.version().image);
        if image.highwater_version() >= OLDER_COPY_LEVEL {
            let acknowledged = plain_place(acknowledged);
            let request = Request::OlderCopy { vote: plain_vote(&vote), acknowledged };
            let message = self.encode(&request);
            // The next append reports it again.
            let _ = self.exchange(&request, message, STORED_AFTER).await;
        }
        unreachable(format!("the metadata folder of node {node} is an older copy"))
    }

    async fn send_snapshot(
        &self,
        vote: Vote,
        bytes: &[u8],
    ) -> Result<SnapshotResponse<TypeConfig>, Failure> {
        let whole = WholeId::of(bytes);
        self.send_pieces(whole, bytes).await?;
        let request = Request::Snapshot { vote: plain_vote(&vote), whole };
        match self.ask(&request, INSTALL_PATIENCE).await? {
            Reply::Snapshot(vote) => Ok(SnapshotResponse::new(raft_vote(vote))),
            _ => confused(),
        }
    }
}

impl RaftNetworkV2<TypeConfig> for Peer {
    type SnapshotData = Vec<u8>;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, Failure> {
        let (least, most) = match rpc.entries.is_empty() {
            true => (option.hard_ttl(), HEARTBEAT_MAX),
            // The member syncs them before it answers; asking again would not make it quicker.
            false => (option.hard_ttl().max(self.network.append_patience), Duration::MAX),
        };
        let (vote, before) = (rpc.vote, rpc.prev_log_id);
        let newest = rpc.entries.last().map(|entry| entry.log_id).or(before);
        let acknowledged = self.network.acknowledgements.last(self.to, vote);
        let request = plain_append(&rpc);
        let Reply::Append(reply) = self.ask_patiently(&request, least, most).await? else {
            return confused();
        };
        let reply = raft_appended(reply);
        let note = |last| self.network.acknowledgements.note(self.to, vote, last);
        match &reply {
            AppendEntriesResponse::Success => note(newest),
            AppendEntriesResponse::PartialSuccess(last) => note(*last),
            AppendEntriesResponse::Conflict => {
                let lost = acknowledged.filter(|known| before <= Some(*known));
                #[cfg(test)]
                let lost = lost.filter(|_| !is_mutant(Mutant::OlderCopyUnnoticed));
                if let Some(acknowledged) = lost {
                    return Err(self.report_older_copy(vote, acknowledged).await);
                }
            }
            AppendEntriesResponse::HigherVote(_) => {}
        }
        Ok(reply)
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, Failure> {
        let request = Request::Vote(plain_election(&rpc));
        match self.ask_patiently(&request, option.hard_ttl(), Duration::MAX).await? {
            Reply::Vote(reply) => Ok(raft_voted(reply)),
            _ => confused(),
        }
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, Failure> {
        let request = Request::PreVote(plain_election(&rpc));
        match self.ask_patiently(&request, option.hard_ttl(), Duration::MAX).await? {
            Reply::Vote(reply) => Ok(raft_voted(reply)),
            _ => confused(),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let last = snapshot.meta.last_log_id;
        let reply = tokio::select! {
            closed = cancel => return Err(StreamingError::Closed(closed)),
            reply = self.send_snapshot(vote, &snapshot.snapshot) => reply?,
        };
        if reply.vote == vote {
            self.network.acknowledgements.note(self.to, vote, last);
        }
        Ok(reply)
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, Failure> {
        match self
            .ask_patiently(&plain_transfer(&request), option.hard_ttl(), Duration::MAX)
            .await?
        {
            Reply::TransferLeader(reply) => Ok(raft_transferred(reply)),
            _ => confused(),
        }
    }
}

/// Who a broker is in the quorum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Introduced {
    /// The number of the member.
    pub(crate) node: u64,
    /// What its folder holds.
    pub(crate) holds: Holds,
}

impl Network {
    /// The cluster id that messages of this generation carry.
    fn id_in_messages(&self) -> Cow<'_, str> {
        self.generation.in_messages(&self.cluster_id)
    }

    /// Asks a broker which member it is. The reason, if there is no answer.
    pub(crate) async fn introduction(
        &self,
        broker: BrokerId,
        patience: Duration,
    ) -> Result<Introduced, String> {
        let own_id = self.id_in_messages();
        let head = Head { cluster_id: &own_id, from: self.me, to: node_id(broker, 0) };
        let sent = self.transport.send(broker, Request::Introduce.encode(head), patience);
        let answer = tokio::time::timeout(patience, sent).await;
        let answer = answer.map_err(|_| "no answer in time".to_owned())?;
        let answer = answer.map_err(|error| error.to_string())?;
        let (head, reply) = Reply::decode(&answer).map_err(|error| error.to_string())?;
        if broker_id(head.from) != broker || head.cluster_id != own_id {
            return Err("the answer is another node's".to_owned());
        }
        match reply {
            Reply::Introduced(holds) => Ok(Introduced { node: head.from, holds }),
            Reply::Refused(reason) => Err(reason),
            _ => Err("the answer is to another question".to_owned()),
        }
    }
}

/// What the folder behind this store holds.
pub(crate) fn holds(store: &LogStore) -> Holds {
    let founding = |vote: Vote| vote.leader_id.term == 0;
    match (store.last(), store.vote()) {
        (None, None) => Holds::Nothing,
        (last, vote) if vote.is_none_or(founding) && last.is_none_or(|id| id.index == 0) => {
            Holds::Founding
        }
        _ => Holds::Metadata,
    }
}

/// Answers a message of another member: of `sender`, if it is known who brought it.
pub(crate) async fn receive(
    raft: &Raft<TypeConfig, StateMachine>,
    store: &LogStore,
    network: &Network,
    sender: Option<BrokerId>,
    message: &[u8],
) -> Vec<u8> {
    let (to, reply) = match Request::decode(message) {
        Err(error) => (0, Reply::Refused(error.to_string())),
        Ok((head, _)) if network.own_folder.check().is_err() => {
            (head.from, Reply::Refused("the metadata folder is an older copy".to_owned()))
        }
        Ok((head, request)) if !is_for(network, &head, &request) => {
            let (me, cluster) = (broker_id(network.me), network.id_in_messages());
            let words = match broker_id(head.to) == me && head.cluster_id == cluster {
                // A member is its folder: what that one promised this one does not know.
                true => format!("node {me} has another folder than the member that is meant had"),
                false => format!("this is node {me} of cluster {cluster}"),
            };
            (head.from, Reply::Refused(words))
        }
        Ok((head, _)) if sender.is_some_and(|sender| sender != broker_id(head.from)) => {
            let words = format!("the sender is not node {}, as the message says", head.from);
            (head.from, Reply::Refused(words))
        }
        Ok((head, Request::Introduce)) => {
            // A cluster that takes this node for empty would begin a second one.
            let holds = match holds(store) {
                Holds::Nothing if !network.may_found => Holds::Metadata,
                holds => holds,
            };
            (head.from, Reply::Introduced(holds))
        }
        Ok((head, Request::OlderCopy { vote, acknowledged })) => {
            let (vote, acknowledged) = (raft_vote(vote), raft_place(acknowledged));
            let leaves = store.ends_before(vote, acknowledged);
            if leaves {
                network.own_folder.leave(head.from, acknowledged, store.last());
            }
            (head.from, Reply::OlderCopy(leaves))
        }
        Ok((head, request)) => {
            let patience = match request {
                Request::Snapshot { .. } => INSTALL_PATIENCE,
                _ => ANSWER_PATIENCE,
            };
            let answered = answer(raft, store, network, head.from, request);
            let reply = tokio::time::timeout(patience, answered).await;
            let reply = reply.unwrap_or_else(|_| Err("the disk does not answer".to_owned()));
            (head.from, reply.unwrap_or_else(Reply::Refused))
        }
    };
    reply.encode(Head { cluster_id: &network.id_in_messages(), from: network.me, to })
}

/// Whether a message is for this member. Who asks which member this is does not know it yet.
fn is_for(network: &Network, head: &Head<'_>, request: &Request) -> bool {
    let to = match request {
        Request::Introduce => broker_id(head.to) == broker_id(network.me),
        _ => head.to == network.me,
    };
    to && head.cluster_id == network.id_in_messages()
}

async fn answer(
    raft: &Raft<TypeConfig, StateMachine>,
    store: &LogStore,
    network: &Network,
    from: u64,
    request: Request,
) -> Result<Reply, String> {
    match request {
        Request::Piece { whole, offset, bytes } => {
            network.blobs.add(from, whole, offset, &bytes).map(Reply::Taken)
        }
        Request::Snapshot { vote, whole } => match network.blobs.take(from, whole) {
            Some(bytes) => install(raft, raft_vote(vote), bytes).await,
            None => Ok(Reply::Missing),
        },
        Request::Large(whole) => {
            let Some(message) = network.blobs.take(from, whole) else { return Ok(Reply::Missing) };
            let (head, request) = Request::decode(&message).map_err(|error| error.to_string())?;
            let same = head.from == from
                && head.to == network.me
                && head.cluster_id == network.id_in_messages();
            if !same {
                return Err("a request in pieces that is another's".into());
            }
            consult(raft, store, network, request).await
        }
        request => consult(raft, store, network, request).await,
    }
}

/// Has a whole request answered by the library.
async fn consult(
    raft: &Raft<TypeConfig, StateMachine>,
    store: &LogStore,
    network: &Network,
    request: Request,
) -> Result<Reply, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    match request {
        Request::Append(append) => {
            let response = append_entries(raft, store, raft_append(append)).await?;
            // A sender that leads no more is not heard.
            if !matches!(response, AppendEntriesResponse::HigherVote(_)) {
                network.heard.now();
            }
            Ok(Reply::Append(plain_appended(&response)))
        }
        Request::Vote(election) => {
            let response = raft.vote(raft_election(election)).await.map_err(|e| text(&e))?;
            wait_vote_durable(store).await?;
            Ok(Reply::Vote(plain_voted(&response)))
        }
        Request::PreVote(election) => {
            let response = raft.pre_vote(raft_election(election)).await.map_err(|e| text(&e))?;
            Ok(Reply::Vote(plain_voted(&response)))
        }
        Request::TransferLeader { from, to, last } => {
            let request = TransferLeaderRequest::new(raft_vote(from), to, last.map(raft_place));
            let response = raft.handle_transfer_leader(request).await.map_err(|e| text(&e))?;
            Ok(Reply::TransferLeader(plain_transferred(&response)))
        }
        Request::Introduce | Request::OlderCopy { .. } => {
            Err("a question for this node itself, in pieces".into())
        }
        Request::Piece { .. } | Request::Snapshot { .. } | Request::Large(_) => {
            Err("a request in pieces that is none".into())
        }
    }
}

/// Waits until the votes of this node are durable: the store reports a vote to openraft before, and a candidate must
/// not count a vote that a power failure can take back.
async fn wait_vote_durable(store: &LogStore) -> Result<(), String> {
    #[cfg(test)]
    if crate::faults::is_mutant(crate::faults::Mutant::VoteBeforeDurable) {
        return Ok(());
    }
    store.backlog().wait_votes_durable().await.map_err(|error| error.to_string())
}

/// Has the library append entries. If the disk takes longer than [`STORED_AFTER`], the answer says that nothing new is
/// durable: so the leader of a node whose disk hangs still sends it everything that follows, and knows that the node
/// is there.
///
/// openraft takes no acknowledgement below the entry before those that were sent. If that entry itself is not durable,
/// the answer is the one of a log without that entry, and the leader sends from an earlier one.
async fn append_entries(
    raft: &Raft<TypeConfig, StateMachine>,
    store: &LogStore,
    request: AppendEntriesRequest<TypeConfig>,
) -> Result<AppendEntriesResponse<TypeConfig>, String> {
    let (vote, before) = (request.vote, request.prev_log_id);
    let newest = request.entries.last().map(|entry| entry.log_id).or(before);
    let stored = async {
        let response = raft.append_entries(request).await.map_err(|error| error.to_string())?;
        if response.is_success() {
            wait_durable(store, vote, newest).await?;
        }
        Ok(response)
    };
    let mut stored = std::pin::pin!(stored);
    loop {
        if let Ok(response) = tokio::time::timeout(STORED_AFTER, &mut stored).await {
            return response;
        }
        match store.is_durable(vote, before, false) {
            Some(true) => return Ok(AppendEntriesResponse::PartialSuccess(before)),
            Some(false) => return Ok(AppendEntriesResponse::Conflict),
            None => {}
        }
    }
}

/// Waits until the entry `newest` of the leader of `vote` is durable. openraft takes a vote that is saved for a sign
/// that every entry before it is durable, and the store reports a vote before it is.
async fn wait_durable(store: &LogStore, vote: Vote, newest: Option<LogId>) -> Result<(), String> {
    #[cfg(test)]
    if crate::faults::is_mutant(crate::faults::Mutant::EntriesBeforeDurable) {
        return Ok(());
    }
    let mut backlog = store.backlog().watch();
    loop {
        backlog.borrow_and_update();
        match store.is_durable(vote, newest, true) {
            Some(true) => return Ok(()),
            Some(false) => {}
            None => return Err("another leader was elected".to_owned()),
        }
        backlog.changed().await.map_err(|error| error.to_string())?;
    }
}

/// Installs a snapshot that was sent. One that is not what was written is refused here: in the library it
/// would end this node.
async fn install(
    raft: &Raft<TypeConfig, StateMachine>,
    vote: Vote,
    bytes: Vec<u8>,
) -> Result<Reply, String> {
    let read = tokio::task::spawn_blocking(move || {
        let meta = Applied::decode(&bytes)?.meta();
        Ok::<_, String>(Snapshot { meta, snapshot: bytes })
    });
    let snapshot = read.await.map_err(|error| error.to_string())??;
    let installed = raft.install_full_snapshot(vote, snapshot).await;
    let installed = installed.map_err(|error| error.to_string())?;
    Ok(Reply::Snapshot(plain_vote(&installed.vote)))
}
