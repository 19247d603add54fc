//! What clients ask of a group, without wire versions: the host translates, and turns versions into
//! flags. A request that names several groups arrives here as one request for each of them, since
//! they may live on different shards.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use model::{GenerationId, LeaderEpoch, Offset, PartitionIndex, TopicId, Uuid};
pub use pools::MemoryLoan;

use crate::{GroupId, GroupInstanceId, MemberId};

/// One request to one group (or, for [`Request::ListGroups`], to the shard).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Enter a group, or come back for the next generation.
    JoinGroup(JoinGroup),
    /// Get one's assignment; the leader brings everyone's.
    SyncGroup(SyncGroup),
    /// Stay a member.
    Heartbeat(Heartbeat),
    /// Stop being a member, or remove members (KIP-345).
    LeaveGroup(LeaveGroup),
    /// Store positions.
    OffsetCommit(OffsetCommit),
    /// Read stored positions of one group.
    OffsetFetch(OffsetFetch),
    /// Remove stored positions of one group (KIP-496).
    OffsetDelete(OffsetDelete),
    /// Show one group.
    DescribeGroup(GroupId),
    /// Name the groups of this shard.
    ListGroups(ListGroups),
    /// Remove one group and its offsets.
    DeleteGroup(GroupId),
}

impl Request {
    /// The group id, to be replaced by an equal one.
    pub(crate) fn group_mut(&mut self) -> Option<&mut GroupId> {
        match self {
            Request::JoinGroup(request) => Some(&mut request.group),
            Request::SyncGroup(request) => Some(&mut request.group),
            Request::Heartbeat(request) => Some(&mut request.group),
            Request::LeaveGroup(request) => Some(&mut request.group),
            Request::OffsetCommit(request) => Some(&mut request.group),
            Request::OffsetFetch(request) => Some(&mut request.group),
            Request::OffsetDelete(request) => Some(&mut request.group),
            Request::DescribeGroup(group) | Request::DeleteGroup(group) => Some(group),
            Request::ListGroups(_) => None,
        }
    }

    /// The group it is for; none for [`Request::ListGroups`].
    pub fn group(&self) -> Option<&GroupId> {
        match self {
            Request::JoinGroup(request) => Some(&request.group),
            Request::SyncGroup(request) => Some(&request.group),
            Request::Heartbeat(request) => Some(&request.group),
            Request::LeaveGroup(request) => Some(&request.group),
            Request::OffsetCommit(request) => Some(&request.group),
            Request::OffsetFetch(request) => Some(&request.group),
            Request::OffsetDelete(request) => Some(&request.group),
            Request::DescribeGroup(group) | Request::DeleteGroup(group) => Some(group),
            Request::ListGroups(_) => None,
        }
    }
}

/// One way to assign partitions that a member supports, and what it tells the leader for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// The assignor's name, such as `range` or `cooperative-sticky`.
    pub name: Arc<str>,
    /// Opaque to the coordinator, but for the subscriptions of the protocol type `consumer`.
    pub metadata: Arc<[u8]>,
}

impl JoinGroup {
    /// Bytes of memory that the ids of the member or of the pending member take, with a group of its own.
    pub fn kept_identity_bytes(&self) -> usize {
        let front = self.instance.as_ref().map_or(self.client_id.len(), |own| own.as_str().len());
        let member = self.member.as_str().len().max(front + MEMBER_ID_SUFFIX_BYTES);
        let texts = self.client_id.len() + self.client_host.len() + 2 * self.protocol_type.len();
        kept_identity_bytes(self.group.as_str().len(), member, texts + 2 * front)
    }

    /// Bytes of memory that the protocols take as long as the member has them.
    pub fn kept_protocol_bytes(&self) -> usize {
        self.protocols.iter().map(Protocol::kept_bytes).sum()
    }
}

impl SyncGroup {
    /// Bytes of memory that the assignments take until the next generation has others.
    pub fn kept_bytes(&self) -> usize {
        let assignments = self.assignments.iter();
        assignments.map(|(id, bytes)| kept_assignment_bytes(id.as_str().len(), bytes.len())).sum()
    }
}

/// Length of the random end of a new member's id, in bytes.
pub(crate) const MEMBER_ID_SUFFIX_BYTES: usize = 37;

/// Bytes of memory that the ids of a member take, with a group of its own. `texts`: bytes of all other strings.
pub(crate) fn kept_identity_bytes(group: usize, member: usize, texts: usize) -> usize {
    /// Maps, timers and records of the member and of the group, without strings.
    const IDENTITY_BYTES: usize = 4096;
    IDENTITY_BYTES + 2 * group + 3 * member + texts
}

impl Protocol {
    /// Bytes of memory that the protocol takes as long as its member has it.
    pub fn kept_bytes(&self) -> usize {
        /// Memory beside name and metadata.
        const PROTOCOL_BYTES: usize = 128;
        PROTOCOL_BYTES + self.name.len() + self.metadata.len()
    }
}

/// Bytes of memory that an assignment takes, with its member's id, that have so many.
pub(crate) fn kept_assignment_bytes(member: usize, assignment: usize) -> usize {
    /// Memory beside id and content.
    const ASSIGNMENT_BYTES: usize = 128;
    ASSIGNMENT_BYTES + member + assignment
}

/// Bytes of memory that a committed offset takes, whose topic and metadata have so many.
pub(crate) fn kept_offset_bytes(topic: usize, metadata: usize) -> usize {
    /// Memory beside both.
    const OFFSET_BYTES: usize = 320;
    OFFSET_BYTES + topic + metadata
}

/// Bytes of memory that a group with committed offsets takes, without the offsets.
pub(crate) fn kept_group_bytes(group: usize) -> usize {
    /// Maps of the group, without strings.
    const GROUP_BYTES: usize = 2048;
    GROUP_BYTES + 2 * group
}

/// Memory that the host lends to a member or a group. The shard drops the loan together with the strings that
/// it accounts for.
#[derive(Clone, Default)]
pub struct Lent(Option<Arc<dyn MemoryLoan>>);

impl Lent {
    /// Lends the memory of this account.
    pub fn new(loan: impl MemoryLoan) -> Lent {
        Lent(Some(Arc::new(loan)))
    }

    /// Whether the host lent anything.
    pub(crate) fn is_loan(&self) -> bool {
        self.0.is_some()
    }

    /// Bytes charged; 0 without a loan.
    pub fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |loan| loan.bytes())
    }

    /// The account, if it has this type.
    pub fn account<T: MemoryLoan>(&self) -> Option<&T> {
        let loan: &dyn Any = self.0.as_deref()?;
        loan.downcast_ref()
    }

    pub(crate) fn set_bytes(&self, bytes: usize) {
        if let Some(loan) = &self.0 {
            loan.set_bytes(bytes);
        }
    }

    pub(crate) fn mark_pending(&self, is_pending: bool) {
        if let Some(loan) = &self.0 {
            loan.mark_pending(is_pending);
        }
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Lent" } else { "Nothing" })
    }
}

/// Two requests are equal whatever is lent to them.
impl PartialEq for Lent {
    fn eq(&self, _: &Lent) -> bool {
        true
    }
}

impl Eq for Lent {}

/// JoinGroup, versions 0 to 9.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinGroup {
    /// The group; not empty.
    pub group: GroupId,
    /// Who joins; empty at the first join.
    pub member: MemberId,
    /// 16 random bytes from the host, the end of a new member's id if one is needed.
    pub uuid: Uuid,
    /// From the request's header; the front of a new member's id.
    pub client_id: Arc<str>,
    /// Where the client is, as Kafka shows it: `/127.0.0.1`.
    pub client_host: Arc<str>,
    /// A static member's name (version 5).
    pub instance: Option<GroupInstanceId>,
    /// A member unheard of for so long is removed.
    pub session_timeout_ms: i32,
    /// How long the group waits for members to come back; version 0: the session time-out.
    pub rebalance_timeout_ms: i32,
    /// `consumer`, `connect`, …; all members have the same.
    pub protocol_type: Arc<str>,
    /// In the order of the member's preference; not empty.
    pub protocols: Vec<Protocol>,
    /// Why it joins (version 8, KIP-800).
    pub reason: Option<Arc<str>>,
    /// Version 4 and later: a new member must join again with the id it is given (KIP-394).
    pub require_known_member_id: bool,
    /// Version 9 and later: a leader may be told to keep the assignment (KIP-814).
    pub supports_skip_assignment: bool,
    /// Held for as long as the ids of the member are ([`JoinGroup::kept_identity_bytes`]).
    pub lent_identity: Lent,
    /// Held for as long as `protocols` are ([`JoinGroup::kept_protocol_bytes`]).
    pub lent: Lent,
}

/// SyncGroup, versions 0 to 5.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncGroup {
    /// The group; not empty.
    pub group: GroupId,
    /// Who asks.
    pub member: MemberId,
    /// Its static name.
    pub instance: Option<GroupInstanceId>,
    /// The generation that its join returned.
    pub generation_id: GenerationId,
    /// What it believes the protocol type is (version 5).
    pub protocol_type: Option<Arc<str>>,
    /// What it believes the protocol is (version 5).
    pub protocol: Option<Arc<str>>,
    /// Version 5 and later: protocol type and protocol must be there (KIP-559).
    pub require_protocol: bool,
    /// Everyone's assignment from the leader; empty from others.
    pub assignments: Vec<(MemberId, Arc<[u8]>)>,
    /// Held for as long as `assignments` are ([`SyncGroup::kept_bytes`]).
    pub lent: Lent,
}

/// Heartbeat, versions 0 to 4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The group; not empty.
    pub group: GroupId,
    /// Who is alive.
    pub member: MemberId,
    /// Its static name.
    pub instance: Option<GroupInstanceId>,
    /// The generation it is in.
    pub generation_id: GenerationId,
}

/// LeaveGroup, versions 0 to 5 (before version 3: one member, without instance).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaveGroup {
    /// The group; not empty.
    pub group: GroupId,
    /// Who leaves.
    pub members: Vec<Leaving>,
}

/// One member to remove, by id, by static name, or by both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// Its id; empty if an administrator removes it by its static name.
    pub member: MemberId,
    /// Its static name.
    pub instance: Option<GroupInstanceId>,
    /// Why it leaves (version 5, KIP-800).
    pub reason: Option<Arc<str>>,
}

/// OffsetCommit, versions 2 to 10 of the classic protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetCommit {
    /// The group; may be empty for a simple consumer.
    pub group: GroupId,
    /// Who commits; empty for a simple consumer.
    pub member: MemberId,
    /// Its static name.
    pub instance: Option<GroupInstanceId>,
    /// The generation it is in; -1 for a simple consumer or an administrator.
    pub generation_id: GenerationId,
    /// How long to keep the offsets (versions 2 to 4, where -1 is `None`), if not as configured.
    pub retention_ms: Option<i64>,
    /// What to store. The host has refused unknown topics and partitions already.
    pub topics: Vec<TopicCommits>,
    /// Charged with all offsets of the group, if the group has none before.
    pub lent: Lent,
    /// The same with the metadata of these offsets alone.
    pub lent_metadata: Lent,
}

/// One topic's positions to store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicCommits {
    /// The topic's name.
    pub topic: Arc<str>,
    /// Its id, which is stored too; zero if it has none.
    pub topic_id: TopicId,
    /// Its partitions.
    pub partitions: Vec<PartitionCommit>,
}

/// One partition's position to store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionCommit {
    /// Which partition.
    pub partition: PartitionIndex,
    /// The next record to read.
    pub offset: Offset,
    /// The leader epoch of the last record read; -1 for none (version 6, KIP-320).
    pub leader_epoch: LeaderEpoch,
    /// Whatever the client wants to keep.
    pub metadata: Arc<str>,
}

/// OffsetFetch of one group, versions 1 to 10 (from version 8 on a request has several groups).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetFetch {
    /// The group; may be empty.
    pub group: GroupId,
    /// Which partitions; all that are stored if `None` (version 2).
    pub topics: Option<Vec<TopicPartitions>>,
    /// Refuse partitions with offsets in an open transaction (version 7, KIP-447).
    pub require_stable: bool,
}

/// Some partitions of one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicPartitions {
    /// The topic's name.
    pub topic: Arc<str>,
    /// Its partitions.
    pub partitions: Vec<PartitionIndex>,
}

/// OffsetDelete, version 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetDelete {
    /// The group.
    pub group: GroupId,
    /// Which offsets. The host has refused unknown topics and partitions already.
    pub topics: Vec<TopicPartitions>,
}

/// ListGroups, versions 0 to 5.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ListGroups {
    /// Only groups in one of these states, in any letter case; all if empty (version 4).
    pub states: Vec<Arc<str>>,
    /// Only groups of one of these types, in any letter case; all if empty (version 5).
    pub types: Vec<Arc<str>>,
}
