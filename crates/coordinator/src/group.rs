//! One classic group as the coordinator sees it between two records: soft state. Here are its
//! queries and the changes that concern no timer and no answer; the phases of a rebalance are in
//! `rebalance`.
//!
//! ```text
//!            join                all joined, or time-out          leader's sync committed
//!  Empty ──────────► PreparingRebalance ──────────► CompletingRebalance ──────────► Stable
//!    ▲                 │       ▲    ▲                      │ join, leave, time-out    │
//!    └─────────────────┘       │    └──────────────────────┘                          │
//!       nobody is left         └──────────────────────────────────────────────────────┘
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{ErrorCode, GenerationId, Timestamp};

use crate::member::Member;
use crate::records::{GroupRecord, MemberRecord};
use crate::request::{Lent, Protocol, kept_assignment_bytes, kept_identity_bytes};
use crate::subscription::{PROTOCOL_TYPE_CONSUMER, visit_subscribed_topics};
use crate::{GroupInstanceId, MemberId};

/// Where a group is in its life. A group that is no more is not in the map at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupState {
    /// Nobody is in it; it may have offsets.
    Empty,
    /// Members come together for the next generation.
    PreparingRebalance,
    /// They have; the leader's assignment is awaited, or being committed.
    CompletingRebalance,
    /// All have an assignment, or may fetch it.
    Stable,
}

impl GroupState {
    /// The name that users see.
    pub(crate) fn name(self) -> &'static str {
        match self {
            GroupState::Empty => "Empty",
            GroupState::PreparingRebalance => "PreparingRebalance",
            GroupState::CompletingRebalance => "CompletingRebalance",
            GroupState::Stable => "Stable",
        }
    }
}

/// A member that was given an id and has not joined with the id yet.
#[derive(Clone, Debug)]
pub(crate) struct PendingMember {
    /// When the id was given.
    pub(crate) since: Timestamp,
    /// The host's loan for the id. Dropped with this struct.
    _lent_identity: Lent,
}

impl PendingMember {
    pub(crate) fn new(since: Timestamp, lent_identity: Lent) -> PendingMember {
        lent_identity.mark_pending(true);
        PendingMember { since, _lent_identity: lent_identity }
    }
}

/// The subscription of one member when its generation began.
#[derive(Clone, Debug)]
struct MemberSubscription {
    metadata: Arc<[u8]>,
    /// The host's loan for `metadata`. Dropped with this struct.
    _lent: Lent,
}

/// The soft state of one group. [`Group::assert_consistent`] holds between two events.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// Moved only by [`Group::transition`].
    pub(crate) state: GroupState,
    /// When `state` last changed; `None` for a group that never had members.
    pub(crate) state_timestamp: Option<Timestamp>,
    /// Rises when a join phase completes.
    pub(crate) generation_id: GenerationId,
    /// Set by the first member that ever joins; `None` for simple consumers.
    pub(crate) protocol_type: Option<Arc<str>>,
    /// Chosen when a join phase completes. Invariant: set in CompletingRebalance and Stable.
    pub(crate) protocol: Option<Arc<str>>,
    /// Who assigns. Invariant: a member; set unless there are none.
    pub(crate) leader: Option<MemberId>,
    /// Invariant: not empty in CompletingRebalance and Stable, empty in Empty.
    pub(crate) members: BTreeMap<MemberId, Member>,
    /// Invariant: exactly the members that have an instance id.
    static_members: BTreeMap<GroupInstanceId, MemberId>,
    /// Ids given out with MEMBER_ID_REQUIRED that have not come back. Invariant: no members.
    pub(crate) pending_members: BTreeMap<MemberId, PendingMember>,
    /// Members that have not asked for their assignment in this generation.
    pub(crate) pending_sync: BTreeSet<MemberId>,
    /// Subscriptions of all members, as of the last completed join phase; `None` if the topics that
    /// they read cannot be known.
    subscriptions: Option<Vec<MemberSubscription>>,
    /// PreparingRebalance began from Empty: wait for more members even if all have joined.
    pub(crate) is_initial_rebalance: bool,
    /// A member came since the initial wait last began. Extends it.
    pub(crate) new_member_added: bool,
    /// How much longer the initial wait may become, in milliseconds.
    pub(crate) initial_remaining_ms: i64,
    /// The leader's assignment of this generation is on its way to the log.
    pub(crate) assignment_in_flight: bool,
    /// Why the last rebalance began.
    pub(crate) rebalance_reason: Arc<str>,
    /// The host's loan for the members' assignments.
    pub(crate) lent: Lent,
    /// The host's loan for the group itself: that of its first member.
    pub(crate) lent_identity: Lent,
    /// The host's loan for the stored positions.
    pub(crate) lent_offsets: Lent,
    /// The host's loan for the metadata of the stored positions.
    pub(crate) lent_metadata: Lent,
    /// The host's loans for members of the last record, which may have left since.
    pub(crate) recorded: Vec<Lent>,
}

impl Group {
    /// A group that nobody has joined yet.
    pub(crate) fn new() -> Group {
        Group {
            state: GroupState::Empty,
            state_timestamp: None,
            generation_id: GenerationId(0),
            protocol_type: None,
            protocol: None,
            leader: None,
            members: BTreeMap::new(),
            static_members: BTreeMap::new(),
            pending_members: BTreeMap::new(),
            pending_sync: BTreeSet::new(),
            subscriptions: Some(Vec::new()),
            is_initial_rebalance: false,
            new_member_added: false,
            initial_remaining_ms: 0,
            assignment_in_flight: false,
            rebalance_reason: Arc::from(""),
            lent: Lent::default(),
            lent_identity: Lent::default(),
            lent_offsets: Lent::default(),
            lent_metadata: Lent::default(),
            recorded: Vec::new(),
        }
    }

    /// The group that a record describes. Its members may go on with their generation.
    pub(crate) fn restored(record: &GroupRecord) -> Group {
        let mut group = Group::new();
        group.generation_id = record.generation_id;
        group.protocol_type = record.protocol_type.clone();
        group.state_timestamp =
            (record.state_timestamp != Timestamp::NONE).then_some(record.state_timestamp);
        assert!(record.members.is_empty() || record.protocol.is_some(), "decoding checks it");
        if let Some(protocol) = record.protocol.as_ref().filter(|_| !record.members.is_empty()) {
            group.protocol = Some(protocol.clone());
            for member in &record.members {
                group.insert(member.member.clone(), Member::restored(member, protocol));
            }
            let leader = record.leader.clone().filter(|id| group.members.contains_key(id));
            group.leader = leader.or_else(|| group.members.keys().next().cloned());
            group.state = GroupState::Stable;
        }
        group.subscriptions = group.collect_subscriptions();
        group.assert_consistent();
        group
    }

    /// Borrows the memory of a restored group and of its members.
    pub(crate) fn borrow_memory(&mut self, group: &str, lend: &mut impl FnMut(usize) -> Lent) {
        let mut assigned = 0;
        let type_bytes = 2 * self.protocol_type.as_ref().map_or(0, |text| text.len());
        for (id, member) in &mut self.members {
            let instance = 2 * member.instance.as_ref().map_or(0, |own| own.as_str().len());
            let texts = member.client_id.len() + member.client_host.len() + type_bytes + instance;
            let identity_bytes = kept_identity_bytes(group.len(), id.as_str().len(), texts);
            member.lent_identity = lend(identity_bytes);
            member.lent = lend(member.protocols.iter().map(Protocol::kept_bytes).sum());
            assigned += kept_assignment_bytes(id.as_str().len(), member.assignment.len());
        }
        if assigned > 0 {
            self.lent = lend(assigned);
        }
        self.lent_identity = match self.members.values().next() {
            Some(member) => member.lent_identity.clone(),
            None => lend(kept_identity_bytes(group.len(), 0, type_bytes)),
        };
        self.recorded = self.member_loans();
        self.subscriptions = self.collect_subscriptions();
    }

    /// The loans of all members, for as long as a record has them.
    pub(crate) fn member_loans(&self) -> Vec<Lent> {
        let loans = |member: &Member| [member.lent_identity.clone(), member.lent.clone()];
        self.members.values().flat_map(loans).collect()
    }

    /// What the log keeps of it, with the assignments that `assignment_of` knows.
    pub(crate) fn to_record(
        &self,
        mut assignment_of: impl FnMut(&MemberId, &Member) -> Arc<[u8]>,
    ) -> GroupRecord {
        let protocol = self.protocol.as_deref().unwrap_or("");
        let record_of = |(id, member): (&MemberId, &Member)| -> MemberRecord {
            member.to_record(id, protocol, assignment_of(id, member))
        };
        GroupRecord {
            protocol_type: self.protocol_type.clone(),
            generation_id: self.generation_id,
            protocol: self.protocol.clone(),
            leader: self.leader.clone(),
            state_timestamp: self.state_timestamp.unwrap_or(Timestamp::NONE),
            members: self.members.iter().map(record_of).collect(),
        }
    }

    /// Goes to another state. Which moves exist is drawn above.
    pub(crate) fn transition(&mut self, now: Timestamp, state: GroupState) {
        use GroupState::*;
        let exists = match state {
            Empty => self.state == PreparingRebalance,
            PreparingRebalance => self.state != PreparingRebalance,
            CompletingRebalance => self.state == PreparingRebalance,
            Stable => self.state == CompletingRebalance,
        };
        assert!(exists, "no group goes from {:?} to {state:?}", self.state);
        self.is_initial_rebalance = state == PreparingRebalance && self.state == Empty;
        self.assignment_in_flight = false;
        self.state = state;
        self.state_timestamp = Some(now);
    }

    /// The next generation of those who have joined: chooses the protocol. Without members the
    /// group is empty.
    pub(crate) fn begin_generation(&mut self, now: Timestamp) {
        assert!(self.members.values().all(|member| member.awaiting_sync.is_empty()));
        self.generation_id = GenerationId(self.generation_id.0.checked_add(1).unwrap_or(0));
        self.pending_sync.clear();
        self.protocol = self.choose_protocol();
        self.subscriptions = self.collect_subscriptions();
        let is_empty = self.members.is_empty();
        assert!(is_empty || self.protocol.is_some(), "members that have nothing in common");
        let state = if is_empty { GroupState::Empty } else { GroupState::CompletingRebalance };
        if is_empty {
            // The assignments and the recorded members go with the record that follows.
            self.lent = Lent::default();
            self.recorded.clear();
        }
        self.transition(now, state);
    }

    /// Each member votes for its first choice among the protocols that all support; the most
    /// votes win, then the first name.
    fn choose_protocol(&self) -> Option<Arc<str>> {
        let common = |name: &str| self.members.values().all(|member| member.supports(name));
        assert!(self.members.values().all(|member| !member.protocols.is_empty()));
        let mut votes: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
        for member in self.members.values() {
            let choice = member.protocols.iter().find(|protocol| common(&protocol.name));
            *votes.entry(&choice?.name).or_default() += 1;
        }
        let most = votes.values().max()?;
        votes.iter().find(|(_, count)| *count == most).map(|(name, _)| Arc::clone(name))
    }

    /// The protocol that would be chosen if a generation began now.
    pub(crate) fn next_protocol(&self) -> Option<Arc<str>> {
        self.choose_protocol()
    }

    /// Whether somebody with these protocols may join.
    pub(crate) fn supports_protocols(&self, protocol_type: &str, protocols: &[Protocol]) -> bool {
        if self.members.is_empty() {
            return !protocol_type.is_empty() && !protocols.is_empty();
        }
        self.protocol_type.as_deref() == Some(protocol_type)
            && protocols
                .iter()
                .any(|protocol| self.members.values().all(|m| m.supports(&protocol.name)))
    }

    /// Whether its members read topics in the way of the Java consumer.
    pub(crate) fn is_consumer_group(&self) -> bool {
        self.protocol_type.as_deref() == Some(PROTOCOL_TYPE_CONSUMER)
    }

    fn collect_subscriptions(&self) -> Option<Vec<MemberSubscription>> {
        if self.members.is_empty() {
            return Some(Vec::new());
        }
        if !self.is_consumer_group() {
            return None;
        }
        let protocol = self.protocol.as_deref()?;
        let mut subscriptions = Vec::with_capacity(self.members.len());
        for member in self.members.values() {
            let metadata = member.metadata(protocol);
            visit_subscribed_topics(&metadata, |_| {}).ok()?;
            subscriptions.push(MemberSubscription { metadata, _lent: member.lent.clone() });
        }
        Some(subscriptions)
    }

    /// Those of `topics` that members read. If that cannot be known: all of them, to be safe.
    pub(crate) fn subscribed_among(&self, topics: BTreeSet<Arc<str>>) -> BTreeSet<Arc<str>> {
        let Some(subscriptions) = &self.subscriptions else {
            return if self.is_consumer_group() { topics } else { BTreeSet::new() };
        };
        let mut read = BTreeSet::new();
        for subscription in subscriptions.iter().filter(|_| !topics.is_empty()) {
            let visited = visit_subscribed_topics(&subscription.metadata, |topic| {
                if topics.contains(&topic) {
                    read.insert(topic);
                }
            });
            assert!(visited.is_ok(), "it was understood when the generation began");
        }
        read
    }

    /// Whether [`Group::subscribed_among`] is knowledge rather than caution.
    pub(crate) fn knows_subscriptions(&self) -> bool {
        self.subscriptions.is_some()
    }

    /// The longest rebalance time-out of the members, in milliseconds; 0 without members.
    pub(crate) fn rebalance_timeout_ms(&self) -> i64 {
        let timeouts = self.members.values().map(|member| member.rebalance_timeout_ms as i64);
        timeouts.max().unwrap_or(0).max(0)
    }

    /// Whether nobody is missing for the next generation.
    pub(crate) fn have_all_joined(&self) -> bool {
        self.pending_members.is_empty() && self.members.values().all(Member::is_awaiting_join)
    }

    /// How many members wait for the join phase to end.
    pub(crate) fn awaiting_join_count(&self) -> usize {
        self.members.values().filter(|member| member.is_awaiting_join()).count()
    }

    pub(crate) fn is_leader(&self, id: &MemberId) -> bool {
        self.leader.as_ref() == Some(id)
    }

    /// The member that holds a static name.
    pub(crate) fn static_member(&self, instance: &GroupInstanceId) -> Option<&MemberId> {
        self.static_members.get(instance)
    }

    /// Refuses a request of somebody who is not, or no longer, a member (KIP-345).
    pub(crate) fn check_member(
        &self,
        id: &MemberId,
        instance: Option<&GroupInstanceId>,
    ) -> Result<(), ErrorCode> {
        if let Some(instance) = instance {
            match self.static_members.get(instance) {
                None => return Err(ErrorCode::UnknownMemberId),
                Some(holder) if holder != id => return Err(ErrorCode::FencedInstanceId),
                Some(_) => {}
            }
        }
        let is_member = self.members.contains_key(id);
        if is_member { Ok(()) } else { Err(ErrorCode::UnknownMemberId) }
    }

    /// Lets somebody in. The first one leads.
    pub(crate) fn insert(&mut self, id: MemberId, member: Member) {
        assert!(!id.is_empty(), "a member has an id");
        if let Some(instance) = &member.instance {
            let before = self.static_members.insert(instance.clone(), id.clone());
            assert!(before.is_none(), "{instance} is taken");
        }
        self.pending_members.remove(&id);
        if self.members.is_empty() {
            self.lent_identity = member.lent_identity.clone();
        }
        self.leader.get_or_insert_with(|| id.clone());
        let before = self.members.insert(id, member);
        assert!(before.is_none(), "nobody joins twice");
    }

    /// Lets a member go; the first of the others leads if it led. Its parked requests go with it
    /// and must be answered by the caller.
    pub(crate) fn remove(&mut self, id: &MemberId) -> Option<Member> {
        self.pending_sync.remove(id);
        let member = self.members.remove(id)?;
        if let Some(instance) = &member.instance {
            let removed = self.static_members.remove(instance);
            assert_eq!(removed.as_ref(), Some(id), "a static name leads to its member");
        }
        if self.is_leader(id) {
            self.leader = self.members.keys().next().cloned();
        }
        Some(member)
    }

    /// Gives a member another id, as a static member gets when it joins again. Its parked requests
    /// are those of its former self: they are returned and must be answered by the caller.
    pub(crate) fn rename(&mut self, old: &MemberId, new: MemberId) -> Member {
        let led = self.is_leader(old);
        let before = self.remove(old).expect("only members are renamed");
        let mut after = before.clone();
        after.awaiting_join.clear();
        after.awaiting_sync.clear();
        self.insert(new.clone(), after);
        if led {
            self.leader = Some(new);
        }
        before
    }

    /// Makes somebody who has joined the leader, unless the leader has. False if nobody has joined.
    pub(crate) fn elect_joined_leader(&mut self) -> bool {
        let has_joined = |id: &MemberId| self.members[id].is_awaiting_join();
        if self.leader.as_ref().is_some_and(has_joined) {
            return true;
        }
        let joined = self.members.iter().find(|(_, member)| member.is_awaiting_join());
        let Some((id, _)) = joined else { return false };
        let id = id.clone();
        assert!(!self.is_leader(&id), "a leader that has joined stays");
        self.leader = Some(id);
        true
    }

    /// What must hold between two events.
    pub(crate) fn assert_consistent(&self) {
        let is_active = matches!(self.state, GroupState::CompletingRebalance | GroupState::Stable);
        assert_eq!(self.leader.is_some(), !self.members.is_empty(), "members have a leader");
        assert!(self.leader.iter().all(|id| self.members.contains_key(id)));
        assert!(!is_active || !self.members.is_empty(), "{:?} without members", self.state);
        assert!(!is_active || self.protocol.is_some(), "{:?} without protocol", self.state);
        assert!(self.state != GroupState::Empty || self.members.is_empty());
        assert!(self.pending_members.keys().all(|id| !self.members.contains_key(id)));
        let static_count = self.members.values().filter(|m| m.instance.is_some()).count();
        assert_eq!(static_count, self.static_members.len(), "each static name has its member");
        let joining = self.members.values().any(Member::is_awaiting_join);
        // A static member that came back to a stable group waits for its record, not for a join.
        let may_join = self.state != GroupState::CompletingRebalance;
        assert!(!joining || may_join, "a join is parked in {:?}", self.state);
    }
}
