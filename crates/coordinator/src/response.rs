//! What a group answers, without wire versions. [`Response::with_error`] says how every kind of
//! answer looks when the coordinator could not keep it.

use std::sync::Arc;

use model::{ErrorCode, GenerationId, LeaderEpoch, Offset, PartitionIndex, TopicId};

use crate::{GroupId, GroupInstanceId, MemberId};

/// The generation of an answer that has none.
pub const NO_GENERATION: GenerationId = GenerationId(-1);

/// One answer; its variant is that of the [`crate::Request`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// To JoinGroup.
    JoinGroup(JoinGroupResponse),
    /// To SyncGroup.
    SyncGroup(SyncGroupResponse),
    /// To Heartbeat.
    Heartbeat(ErrorCode),
    /// To LeaveGroup.
    LeaveGroup(LeaveGroupResponse),
    /// To OffsetCommit.
    OffsetCommit(OffsetCommitResponse),
    /// To OffsetFetch, for one group.
    OffsetFetch(OffsetFetchResponse),
    /// To OffsetDelete.
    OffsetDelete(OffsetDeleteResponse),
    /// To DescribeGroups, for one group.
    DescribeGroup(DescribeGroupResponse),
    /// To ListGroups, for this shard.
    ListGroups(ListGroupsResponse),
    /// To DeleteGroups, for one group.
    DeleteGroup(ErrorCode),
}

/// To JoinGroup. In an error only `error` and `member` mean something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinGroupResponse {
    /// NONE, MEMBER_ID_REQUIRED, UNKNOWN_MEMBER_ID, INCONSISTENT_GROUP_PROTOCOL, …
    pub error: ErrorCode,
    /// The generation joined; -1 in an error.
    pub generation_id: GenerationId,
    /// The group's protocol type.
    pub protocol_type: Option<Arc<str>>,
    /// The protocol chosen for this generation (before version 7 the wire has "" for none).
    pub protocol: Option<Arc<str>>,
    /// Who assigns; empty in an error.
    pub leader: MemberId,
    /// The leader keeps the assignment as it is (version 9, KIP-814).
    pub skip_assignment: bool,
    /// The member's own id.
    pub member: MemberId,
    /// Everyone, for the leader; else empty.
    pub members: Vec<JoinedMember>,
}

impl JoinGroupResponse {
    /// An answer that refuses.
    pub fn error(error: ErrorCode, member: MemberId) -> JoinGroupResponse {
        assert!(!error.is_none(), "an error says what is wrong");
        JoinGroupResponse {
            error,
            generation_id: NO_GENERATION,
            protocol_type: None,
            protocol: None,
            leader: MemberId::default(),
            skip_assignment: false,
            member,
            members: Vec::new(),
        }
    }
}

/// A member as its leader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedMember {
    /// Its id.
    pub member: MemberId,
    /// Its static name.
    pub instance: Option<GroupInstanceId>,
    /// What it sent for the chosen protocol.
    pub metadata: Arc<[u8]>,
}

/// To SyncGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncGroupResponse {
    /// NONE, REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION, …
    pub error: ErrorCode,
    /// The group's protocol type.
    pub protocol_type: Option<Arc<str>>,
    /// The protocol of this generation.
    pub protocol: Option<Arc<str>>,
    /// What the leader assigned to this member.
    pub assignment: Arc<[u8]>,
}

impl SyncGroupResponse {
    /// An answer that refuses.
    pub fn error(error: ErrorCode) -> SyncGroupResponse {
        assert!(!error.is_none(), "an error says what is wrong");
        let assignment = Arc::from(&[][..]);
        SyncGroupResponse { error, protocol_type: None, protocol: None, assignment }
    }
}

/// To LeaveGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaveGroupResponse {
    /// Of the whole request. Before version 3 the wire has the only member's error in its place.
    pub error: ErrorCode,
    /// Of each member, in the order of the request; empty if the whole request failed.
    pub members: Vec<LeftMember>,
}

/// What became of one member that was to leave; ids as in the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftMember {
    /// The id of the request.
    pub member: MemberId,
    /// The static name of the request.
    pub instance: Option<GroupInstanceId>,
    /// NONE, UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID.
    pub error: ErrorCode,
}

/// Errors by partition; the order is that of the request.
pub type PartitionErrors = Vec<(Arc<str>, Vec<(PartitionIndex, ErrorCode)>)>;

/// To OffsetCommit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetCommitResponse {
    /// Of each partition. An error of the whole request stands at every partition.
    pub topics: PartitionErrors,
}

/// To OffsetFetch, for one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetFetchResponse {
    /// Which group.
    pub group: GroupId,
    /// Of the whole group.
    pub error: ErrorCode,
    /// In the order of the request; sorted by name if all were asked for.
    pub topics: Vec<(Arc<str>, Vec<FetchedOffset>)>,
}

/// One partition's stored position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedOffset {
    /// Which partition.
    pub partition: PartitionIndex,
    /// The stored position; -1 for none.
    pub offset: Offset,
    /// The leader epoch stored with it; -1 for none.
    pub leader_epoch: LeaderEpoch,
    /// The metadata stored with it.
    pub metadata: Arc<str>,
    /// The id that the topic had when it was stored; zero if it is not known or nothing is stored.
    pub topic_id: TopicId,
    /// NONE or UNSTABLE_OFFSET_COMMIT.
    pub error: ErrorCode,
}

impl FetchedOffset {
    /// "Nothing stored", with an error or NONE.
    pub fn none(partition: PartitionIndex, error: ErrorCode) -> FetchedOffset {
        FetchedOffset {
            partition,
            offset: Offset(-1),
            leader_epoch: LeaderEpoch::NONE,
            metadata: Arc::from(""),
            topic_id: TopicId::ZERO,
            error,
        }
    }
}

/// To OffsetDelete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetDeleteResponse {
    /// GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP; then `topics` is empty.
    pub error: ErrorCode,
    /// NONE or GROUP_SUBSCRIBED_TO_TOPIC.
    pub topics: PartitionErrors,
}

/// To DescribeGroups, for one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribeGroupResponse {
    /// GROUP_ID_NOT_FOUND from version 6 on (KIP-1043); before, the host answers NONE with the
    /// state `Dead` that is here already.
    pub error: ErrorCode,
    /// Which group.
    pub group: GroupId,
    /// `Empty`, `PreparingRebalance`, `CompletingRebalance`, `Stable` or `Dead`.
    pub state: &'static str,
    /// Empty if there is none.
    pub protocol_type: Arc<str>,
    /// The protocol of a stable group, else empty.
    pub protocol: Arc<str>,
    /// The members, sorted by id.
    pub members: Vec<DescribedMember>,
}

/// One member, for people to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedMember {
    /// Its id.
    pub member: MemberId,
    /// Its static name.
    pub instance: Option<GroupInstanceId>,
    /// Its client id.
    pub client_id: Arc<str>,
    /// Where it is.
    pub client_host: Arc<str>,
    /// What it sent for the protocol; empty unless the group is stable.
    pub metadata: Arc<[u8]>,
    /// Its assignment.
    pub assignment: Arc<[u8]>,
}

/// To ListGroups, for this shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListGroupsResponse {
    /// Of the whole request.
    pub error: ErrorCode,
    /// The groups, sorted by id.
    pub groups: Vec<ListedGroup>,
}

/// One group by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedGroup {
    /// Its id.
    pub group: GroupId,
    /// Empty for a group of simple consumers.
    pub protocol_type: Arc<str>,
    /// As in [`DescribeGroupResponse`].
    pub state: &'static str,
    /// `classic`.
    pub group_type: &'static str,
}

impl Response {
    /// The same kind of answer, refusing all of it with `error`.
    pub fn with_error(self, error: ErrorCode) -> Response {
        assert!(!error.is_none(), "an error says what is wrong");
        match self {
            Response::JoinGroup(old) => {
                Response::JoinGroup(JoinGroupResponse::error(error, old.member))
            }
            Response::SyncGroup(_) => Response::SyncGroup(SyncGroupResponse::error(error)),
            Response::Heartbeat(_) => Response::Heartbeat(error),
            Response::LeaveGroup(_) => {
                Response::LeaveGroup(LeaveGroupResponse { error, members: Vec::new() })
            }
            Response::OffsetCommit(mut old) => {
                set_all(&mut old.topics, error);
                Response::OffsetCommit(old)
            }
            Response::OffsetFetch(old) => {
                Response::OffsetFetch(OffsetFetchResponse { error, topics: Vec::new(), ..old })
            }
            Response::OffsetDelete(_) => {
                Response::OffsetDelete(OffsetDeleteResponse { error, topics: Vec::new() })
            }
            Response::DescribeGroup(old) => {
                Response::DescribeGroup(DescribeGroupResponse::not_described(old.group, error))
            }
            Response::ListGroups(_) => {
                Response::ListGroups(ListGroupsResponse { error, groups: Vec::new() })
            }
            Response::DeleteGroup(_) => Response::DeleteGroup(error),
        }
    }
}

impl DescribeGroupResponse {
    /// An answer about a group that cannot be shown.
    pub fn not_described(group: GroupId, error: ErrorCode) -> DescribeGroupResponse {
        assert!(!error.is_none(), "an error says what is wrong");
        // Only a group that is not there is dead; of the others the state is not known.
        let state = if error == ErrorCode::GroupIdNotFound { "Dead" } else { "" };
        let (protocol_type, protocol) = (Arc::from(""), Arc::from(""));
        DescribeGroupResponse { error, group, state, protocol_type, protocol, members: Vec::new() }
    }
}

fn set_all(topics: &mut PartitionErrors, error: ErrorCode) {
    for (_, partitions) in topics {
        for (_, partition_error) in partitions {
            *partition_error = error;
        }
    }
}
