//! Messages between the members, over a transport that somebody else provides.
//!
//! A message is JSON that carries the cluster's id, the sender and the addressee: a node that took
//! over an address of another, or belongs to another cluster, refuses it.

use crate::raft::{Snapshot, SnapshotMeta, TypeConfig, Vote, broker_id};
use crate::state_machine::StateMachine;
use model::BrokerId;
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable};
use openraft::network::RPCOption;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::{EmptyNode, OptionalSend, Raft, RaftNetworkFactory, RaftNetworkV2};
use serde::{Deserialize, Serialize};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// A future that a transport gives back.
pub type Sent<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>, TransportError>> + Send + 'a>>;

/// Brings a message to another member and its answer back. May lose both, late or never; must not
/// change them. What arrives there goes to `Quorum::receive`.
pub trait Transport: Send + Sync + 'static {
    /// Sends a message to a member. The caller gives up by dropping the future.
    fn send(&self, to: BrokerId, message: Vec<u8>) -> Sent<'_>;
}

/// A member that cannot be reached now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TransportError(pub String);

/// The transport of a quorum that has no other members.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTransport;

impl Transport for NoTransport {
    fn send(&self, to: BrokerId, _: Vec<u8>) -> Sent<'_> {
        Box::pin(async move { Err(TransportError(format!("no way to node {to}"))) })
    }
}

#[derive(Serialize, Deserialize)]
struct Envelope<T> {
    cluster_id: String,
    from: u64,
    to: u64,
    message: T,
}

#[derive(Serialize, Deserialize)]
enum Request {
    Append(AppendEntriesRequest<TypeConfig>),
    Vote(VoteRequest<TypeConfig>),
    PreVote(VoteRequest<TypeConfig>),
    Snapshot { vote: Vote, meta: SnapshotMeta, lines: String },
    TransferLeader(TransferLeaderRequest<TypeConfig>),
}

#[derive(Serialize, Deserialize)]
enum Reply {
    Append(AppendEntriesResponse<TypeConfig>),
    Vote(VoteResponse<TypeConfig>),
    Snapshot(SnapshotResponse<TypeConfig>),
    TransferLeader(TransferLeaderResponse<TypeConfig>),
    /// The message was not for this node, or the node cannot answer.
    Refused(String),
}

/// Who talks in which cluster, and how.
#[derive(Clone)]
pub(crate) struct Network {
    pub(crate) cluster_id: Arc<str>,
    pub(crate) me: u64,
    pub(crate) transport: Arc<dyn Transport>,
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

fn encode<T: Serialize>(envelope: &Envelope<T>) -> Vec<u8> {
    serde_json::to_vec(envelope).expect("writing JSON to memory cannot fail")
}

fn unreachable(error: impl ToString) -> RPCError<TypeConfig> {
    RPCError::Unreachable(Unreachable::from_string(error))
}

impl Peer {
    async fn ask(
        &self,
        request: Request,
        option: &RPCOption,
    ) -> Result<Reply, RPCError<TypeConfig>> {
        let Network { cluster_id, me, transport } = &self.network;
        let envelope = Envelope {
            cluster_id: cluster_id.to_string(),
            from: *me,
            to: self.to,
            message: request,
        };
        let sent = transport.send(broker_id(self.to), encode(&envelope));
        let answer = tokio::time::timeout(option.hard_ttl(), sent).await;
        let answer = answer.map_err(|_| self.timed_out(option))?.map_err(unreachable)?;
        let reply: Envelope<Reply> = serde_json::from_slice(&answer).map_err(unreachable)?;
        if reply.from != self.to || reply.cluster_id != **cluster_id {
            return Err(unreachable("the answer is another node's"));
        }
        match reply.message {
            Reply::Refused(reason) => Err(unreachable(reason)),
            reply => Ok(reply),
        }
    }

    fn timed_out(&self, option: &RPCOption) -> RPCError<TypeConfig> {
        RPCError::Timeout(Timeout {
            action: openraft::RPCTypes::AppendEntries,
            id: self.network.me,
            target: self.to,
            timeout: option.hard_ttl(),
        })
    }
}

/// An answer to another question than was asked.
fn confused<T>() -> Result<T, RPCError<TypeConfig>> {
    Err(unreachable("the answer is to another question"))
}

impl RaftNetworkV2<TypeConfig> for Peer {
    type SnapshotData = Vec<u8>;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RPCError<TypeConfig>> {
        match self.ask(Request::Append(rpc), &option).await? {
            Reply::Append(reply) => Ok(reply),
            _ => confused(),
        }
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        match self.ask(Request::Vote(rpc), &option).await? {
            Reply::Vote(reply) => Ok(reply),
            _ => confused(),
        }
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        match self.ask(Request::PreVote(rpc), &option).await? {
            Reply::Vote(reply) => Ok(reply),
            _ => confused(),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let lines = String::from_utf8(snapshot.snapshot).expect("a snapshot is text");
        let request = Request::Snapshot { vote, meta: snapshot.meta, lines };
        tokio::select! {
            closed = cancel => Err(StreamingError::Closed(closed)),
            reply = self.ask(request, &option) => match reply? {
                Reply::Snapshot(reply) => Ok(reply),
                _ => Ok(confused()?),
            },
        }
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RPCError<TypeConfig>> {
        match self.ask(Request::TransferLeader(request), &option).await? {
            Reply::TransferLeader(reply) => Ok(reply),
            _ => confused(),
        }
    }
}

/// Answers a message of another member.
pub(crate) async fn receive(
    raft: &Raft<TypeConfig, StateMachine>,
    network: &Network,
    message: &[u8],
) -> Vec<u8> {
    let (to, reply) = match serde_json::from_slice::<Envelope<Request>>(message) {
        Err(error) => (0, Reply::Refused(format!("not a message between members: {error}"))),
        Ok(asked) if asked.cluster_id != *network.cluster_id || asked.to != network.me => {
            let (me, cluster) = (network.me, &network.cluster_id);
            (asked.from, Reply::Refused(format!("this is node {me} of cluster {cluster}")))
        }
        Ok(asked) => {
            let reply = answer(raft, asked.message).await;
            (asked.from, reply.unwrap_or_else(Reply::Refused))
        }
    };
    let cluster_id = network.cluster_id.to_string();
    encode(&Envelope { cluster_id, from: network.me, to, message: reply })
}

async fn answer(raft: &Raft<TypeConfig, StateMachine>, request: Request) -> Result<Reply, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    match request {
        Request::Append(rpc) => {
            raft.append_entries(rpc).await.map(Reply::Append).map_err(|e| text(&e))
        }
        Request::Vote(rpc) => raft.vote(rpc).await.map(Reply::Vote).map_err(|e| text(&e)),
        Request::PreVote(rpc) => raft.pre_vote(rpc).await.map(Reply::Vote).map_err(|e| text(&e)),
        Request::Snapshot { vote, meta, lines } => {
            let snapshot = Snapshot { meta, snapshot: lines.into_bytes() };
            let installed = raft.install_full_snapshot(vote, snapshot).await;
            installed.map(Reply::Snapshot).map_err(|e| text(&e))
        }
        Request::TransferLeader(rpc) => {
            raft.handle_transfer_leader(rpc).await.map(Reply::TransferLeader).map_err(|e| text(&e))
        }
    }
}
