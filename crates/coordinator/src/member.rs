//! One member of a classic group as the coordinator sees it between two records: soft state, most
//! of which the next coordinator does not need.

use std::sync::Arc;

use crate::records::MemberRecord;
use crate::request::{JoinGroup, Lent, Protocol};
use crate::{GroupInstanceId, MemberId, ReplyTo};

/// Invariant: `protocols` is not empty.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) instance: Option<GroupInstanceId>,
    pub(crate) client_id: Arc<str>,
    pub(crate) client_host: Arc<str>,
    pub(crate) session_timeout_ms: i32,
    pub(crate) rebalance_timeout_ms: i32,
    /// In the order of its preference; a member restored from a record has only the chosen one.
    pub(crate) protocols: Vec<Protocol>,
    /// The host's loan for the ids.
    pub(crate) lent_identity: Lent,
    /// The host's loan for `protocols`.
    pub(crate) lent: Lent,
    /// What the leader assigned last; in CompletingRebalance still that of an earlier generation.
    pub(crate) assignment: Arc<[u8]>,
    /// JoinGroup requests to answer when the join phase ends; more than one if the client retried.
    pub(crate) awaiting_join: Vec<ReplyTo>,
    /// SyncGroup requests to answer when the assignment is committed.
    pub(crate) awaiting_sync: Vec<ReplyTo>,
    /// It has never completed a join: it does not know its id, so it cannot send heartbeats.
    pub(crate) is_new: bool,
}

/// Requests of one member that wait at a time. A client that sends a request again has dropped the former one.
const WAITING_MAX: usize = 8;

/// Adds a request that waits. Returns the oldest one if there are too many: it is to be refused.
pub(crate) fn push_waiting(waiting: &mut Vec<ReplyTo>, to: ReplyTo) -> Option<ReplyTo> {
    waiting.push(to);
    (waiting.len() > WAITING_MAX).then(|| waiting.remove(0))
}

impl Member {
    /// Somebody who joins for the first time, or again under a new id.
    pub(crate) fn joining(request: &JoinGroup) -> Member {
        assert!(!request.protocols.is_empty(), "a join without protocols is refused before");
        Member {
            instance: request.instance.clone(),
            client_id: request.client_id.clone(),
            client_host: request.client_host.clone(),
            session_timeout_ms: request.session_timeout_ms,
            rebalance_timeout_ms: request.rebalance_timeout_ms,
            protocols: request.protocols.clone(),
            lent_identity: request.lent_identity.clone(),
            lent: request.lent.clone(),
            assignment: Arc::from(&[][..]),
            awaiting_join: Vec::new(),
            awaiting_sync: Vec::new(),
            is_new: true,
        }
    }

    /// A member that the log says was there, with the protocol that was chosen then.
    pub(crate) fn restored(record: &MemberRecord, protocol: &Arc<str>) -> Member {
        let rebalance_timeout_ms = match record.rebalance_timeout_ms {
            -1 => record.session_timeout_ms,
            timeout_ms => timeout_ms,
        };
        let name = protocol.clone();
        Member {
            instance: record.instance.clone(),
            client_id: record.client_id.clone(),
            client_host: record.client_host.clone(),
            session_timeout_ms: record.session_timeout_ms,
            rebalance_timeout_ms,
            protocols: vec![Protocol { name, metadata: record.subscription.clone() }],
            lent_identity: Lent::default(),
            lent: Lent::default(),
            assignment: record.assignment.clone(),
            awaiting_join: Vec::new(),
            awaiting_sync: Vec::new(),
            is_new: false,
        }
    }

    /// What the log keeps of it.
    pub(crate) fn to_record(
        &self,
        id: &MemberId,
        protocol: &str,
        assignment: Arc<[u8]>,
    ) -> MemberRecord {
        MemberRecord {
            member: id.clone(),
            instance: self.instance.clone(),
            client_id: self.client_id.clone(),
            client_host: self.client_host.clone(),
            rebalance_timeout_ms: self.rebalance_timeout_ms,
            session_timeout_ms: self.session_timeout_ms,
            subscription: self.metadata(protocol),
            assignment,
        }
    }

    /// What it sent for `protocol`; empty if it does not support it.
    pub(crate) fn metadata(&self, protocol: &str) -> Arc<[u8]> {
        assert!(!self.protocols.is_empty(), "it supports something");
        let supported = self.protocols.iter().find(|own| &*own.name == protocol);
        supported.map_or_else(|| Arc::from(&[][..]), |own| own.metadata.clone())
    }

    /// Whether it supports `protocol`.
    pub(crate) fn supports(&self, protocol: &str) -> bool {
        self.protocols.iter().any(|own| &*own.name == protocol)
    }

    /// Whether a join brings exactly the protocols that it has.
    pub(crate) fn matches(&self, protocols: &[Protocol]) -> bool {
        self.protocols == protocols
    }

    /// Whether it waits for the join phase to end.
    pub(crate) fn is_awaiting_join(&self) -> bool {
        !self.awaiting_join.is_empty()
    }

    /// Whether its client is known to be there without a heartbeat: it waits for us. That does not
    /// hold for a new member, whose client may have gone away while its request is parked.
    pub(crate) fn is_kept_by_waiting(&self) -> bool {
        !self.is_new && (self.is_awaiting_join() || !self.awaiting_sync.is_empty())
    }

    /// Takes over what a new join says.
    pub(crate) fn update(&mut self, request: &JoinGroup) {
        assert!(!request.protocols.is_empty(), "a join without protocols is refused before");
        self.session_timeout_ms = request.session_timeout_ms;
        self.rebalance_timeout_ms = request.rebalance_timeout_ms;
        self.protocols = request.protocols.clone();
        self.lent_identity = request.lent_identity.clone();
        self.lent = request.lent.clone();
    }
}
