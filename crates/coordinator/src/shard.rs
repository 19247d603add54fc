//! One shard: takes events, hands them to the file of their subject, and lets out what may leave.
//! The rules are elsewhere; here is only who is asked, and when.

use std::collections::BTreeMap;

use model::{ErrorCode, Timestamp};

use crate::config::{STRING_BYTES_MAX, WRITE_BYTES_MAX};
use crate::durable::Durable;
use crate::event::{Effects, Event, Reply};
use crate::group::{Group, GroupState};
use crate::outbox::{NewWrite, Outbox, Scope, Then};
use crate::records::Record;
use crate::request::Request;
use crate::response::{
    DescribeGroupResponse, JoinGroupResponse, LeaveGroupResponse, OffsetCommitResponse,
    OffsetDeleteResponse, OffsetFetchResponse, Response, SyncGroupResponse,
};
use crate::timers::{TimerKey, Timers};
use crate::{GroupConfig, GroupId, MemberId, RecordBytes, ReplyTo, WriteId};

/// The groups of one partition of `__consumer_offsets`, on the broker that leads it.
#[derive(Debug)]
pub struct Shard {
    pub(crate) config: GroupConfig,
    /// The latest time heard of; never goes back.
    pub(crate) now: Timestamp,
    pub(crate) durable: Durable,
    /// Soft state. Invariant: has every group of which `durable` has a record, and maybe more.
    pub(crate) groups: BTreeMap<GroupId, Group>,
    pub(crate) timers: Timers,
    pub(crate) outbox: Outbox,
}

impl Shard {
    /// A shard without groups, for a partition without records. Otherwise use [`crate::Loader`].
    ///
    /// Panics if the configuration is not valid.
    pub fn new(config: GroupConfig, now: Timestamp) -> Shard {
        crate::Loader::new(config).finish(now, |_, _| Default::default()).0
    }

    /// Takes an event and adds to `out` what is to be done about it.
    ///
    /// `now` is for deadlines and for timestamps in records. It should be the wall clock read once
    /// plus monotonic time, so that sessions do not end when somebody sets the clock; a `now` that
    /// is earlier than the one before counts as the one before.
    pub fn step(&mut self, now: Timestamp, event: Event, out: &mut Effects) {
        self.now = self.now.max(now);
        match event {
            Event::Request { reply_to, request } => self.request(reply_to, request),
            Event::Committed { write } => self.committed(write),
            Event::AppendFailed { from, error } => self.append_failed(from, error),
            Event::TopicsDeleted { topics } => self.delete_topics(&topics),
            Event::Reclaim { group, members } => self.reclaim(&group, &members),
            Event::Expire => self.expire(),
        }
        self.set_parked_timer();
        self.outbox.drain(out);
        assert!(self.timers.is_set(&TimerKey::Retention), "the shard always has a deadline");
    }

    /// When to send [`Event::Expire`] at the latest. There always is a time.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.timers.next()
    }

    /// What the records of this shard say so far, those not yet committed included.
    pub fn durable(&self) -> &Durable {
        &self.durable
    }

    /// Why a group last began to rebalance, for operators; empty if it never did.
    pub fn rebalance_reason(&self, group: &GroupId) -> Option<&str> {
        self.groups.get(group).map(|group| &*group.rebalance_reason)
    }

    /// Ends the shard: this broker does not lead the partition any more. Every request that has
    /// not been answered is refused with NOT_COORDINATOR, so that its client looks for the new one.
    pub fn unload(mut self, out: &mut Effects) {
        let groups = std::mem::take(&mut self.groups);
        for (_, group) in groups {
            for (id, member) in group.members {
                for to in member.awaiting_join {
                    let response = JoinGroupResponse::error(ErrorCode::NotCoordinator, id.clone());
                    self.outbox.reply_now(to, Response::JoinGroup(response));
                }
                for to in member.awaiting_sync {
                    let response = SyncGroupResponse::error(ErrorCode::NotCoordinator);
                    self.outbox.reply_now(to, Response::SyncGroup(response));
                }
            }
        }
        self.outbox.refuse_all(ErrorCode::NotCoordinator);
        self.outbox.drain(out);
        assert!(self.outbox.is_idle(), "an answer would be lost");
    }

    /// Panics if something does not hold that must hold between two events; for tests.
    #[doc(hidden)]
    pub fn assert_consistent(&self) {
        for (id, group) in &self.groups {
            group.assert_consistent();
            let timer = |key| self.timers.is_set(&key);
            for (member_id, member) in &group.members {
                let has_session = timer(TimerKey::Session(id.clone(), member_id.clone()));
                assert!(has_session || member.is_kept_by_waiting(), "{member_id} stays for ever");
            }
            for member_id in group.pending_members.keys() {
                assert!(timer(TimerKey::PendingMember(id.clone(), member_id.clone())));
            }
            let is_preparing = group.state == GroupState::PreparingRebalance;
            assert_eq!(timer(TimerKey::Join(id.clone())), is_preparing, "{id}: {:?}", group.state);
            let may_sync =
                matches!(group.state, GroupState::CompletingRebalance | GroupState::Stable);
            assert!(may_sync || !timer(TimerKey::Sync(id.clone())));
        }
        let recorded = self.durable.group_ids();
        assert!(recorded.iter().all(|id| self.groups.contains_key(id)), "a group without state");
        assert!(self.timers.is_set(&TimerKey::Retention), "nothing would ever expire");
        let is_parked = self.outbox.next_deadline().is_some();
        assert!(!is_parked || self.timers.is_set(&TimerKey::Parked), "an answer waits for ever");
    }

    fn request(&mut self, to: ReplyTo, mut request: Request) {
        // The state shares one copy of each id: a request's copy is charged to no loan.
        if let Some(group) = request.group_mut()
            && let Some((known, _)) = self.groups.get_key_value(group)
        {
            *group = known.clone();
        }
        if request.group().is_some_and(|group| !is_group_id_allowed(&request, group)) {
            self.outbox.reply_now(to, refusal(request, ErrorCode::InvalidGroupId));
            return;
        }
        match request {
            Request::JoinGroup(request) => self.join(to, request),
            Request::SyncGroup(request) => self.sync(to, request),
            Request::Heartbeat(request) => self.heartbeat(to, request),
            Request::LeaveGroup(request) => self.leave(to, request),
            Request::OffsetCommit(request) => self.commit_offsets(to, request),
            Request::OffsetFetch(request) => self.fetch_offsets(to, request),
            Request::OffsetDelete(request) => self.delete_offsets(to, request),
            Request::DescribeGroup(group) => self.describe_group(to, group),
            Request::ListGroups(request) => self.list_groups(to, request),
            Request::DeleteGroup(group) => self.delete_group(to, group),
        }
    }

    fn committed(&mut self, write: WriteId) {
        for then in self.outbox.commit(write) {
            match then {
                Then::Assigned { group, generation_id, loans } => {
                    self.assigned(&group, generation_id, loans);
                }
                Then::Replaced(replaced) => self.replaced(*replaced),
                Then::Deleted { .. } => {}
            }
        }
    }

    fn append_failed(&mut self, from: WriteId, error: ErrorCode) {
        let error = answer_for_failed_write(error);
        let mut others = self.outbox.fail(&mut self.durable, from, error);
        self.settle_all_offsets();
        // Restore deleted groups first; one recreated since is discarded.
        let is_deletion = |then: &mut Then| matches!(then, Then::Deleted { .. });
        let deletions: Vec<Then> = others.extract_if(.., is_deletion).collect();
        self.failed(deletions, error);
        self.failed(others, error);
    }

    /// The other end of [`Shard::committed`]. Latest first, since each goes back to what was
    /// before it.
    fn failed(&mut self, then: Vec<Then>, error: ErrorCode) {
        assert!(!error.is_none(), "a failure says why");
        for then in then {
            match then {
                Then::Assigned { group, generation_id, .. } => {
                    self.assignment_failed(&group, generation_id, error);
                }
                Then::Replaced(replaced) => self.replacement_failed(*replaced, error),
                Then::Deleted { group, was } => self.deletion_failed(&group, *was, error),
            }
        }
    }

    fn expire(&mut self) {
        for key in self.timers.due(self.now) {
            if !self.timers.take_if_due(&key, self.now) {
                continue;
            }
            match key {
                TimerKey::Session(group, member) => self.session_ended(&group, &member),
                TimerKey::PendingMember(group, member) => {
                    self.pending_member_ended(&group, &member);
                }
                TimerKey::Join(group) => self.join_phase_ended(&group),
                TimerKey::Sync(group) => self.sync_phase_ended(&group),
                TimerKey::Retention => self.retain(),
                TimerKey::Parked => {
                    let error = answer_for_failed_write(ErrorCode::RequestTimedOut);
                    let mut then = self.outbox.give_up(self.now, error);
                    then.reverse();
                    self.failed(then, error);
                }
            }
        }
    }

    /// One timer for everything parked: it is set for the oldest and moved on when it fires.
    fn set_parked_timer(&mut self) {
        if self.outbox.is_idle() {
            self.timers.cancel(&TimerKey::Parked);
        } else if !self.timers.is_set(&TimerKey::Parked)
            && let Some(deadline) = self.outbox.next_deadline()
        {
            self.timers.set(TimerKey::Parked, deadline);
        }
    }

    /// Sends records to the log, in as many writes as keep each of them small: a long list of
    /// tombstones must not fail because all of them together are too large. `then` follows the last.
    pub(crate) fn write(&mut self, records: &[Record], then: Option<Then>) {
        assert!(!records.is_empty(), "nothing to write is not written");
        let deadline = self.now.plus_ms(self.config.write_timeout_ms);
        let mut encoded: Vec<RecordBytes> = records.iter().map(Record::encode).collect();
        let (mut records, mut then) = (records, then);
        while !records.is_empty() {
            let count = count_for_one_write(&encoded);
            let behind = encoded.split_off(count);
            let (first, rest) = records.split_at(count);
            let then = if rest.is_empty() { then.take() } else { None };
            let write = NewWrite { records: first, encoded };
            self.outbox.write(&mut self.durable, self.now, deadline, write, then);
            (records, encoded) = (rest, behind);
        }
        assert!(then.is_none(), "it went with the last write");
    }

    /// Answers when what the answer depends on is committed.
    pub(crate) fn reply(&mut self, group: &GroupId, scope: Scope, to: ReplyTo, response: Response) {
        let until = self.now.plus_ms(self.config.write_timeout_ms);
        self.outbox.reply(group, scope, Reply { to, response }, until);
    }

    /// A member was heard of, or is waited for: its session begins anew.
    pub(crate) fn restart_session(&mut self, group: &GroupId, id: &MemberId) {
        let (group, state) = self.groups.get_key_value(group).expect("the caller has it");
        let (id, member) = state.members.get_key_value(id).expect("the caller saw the member");
        let deadline = self.now.plus_ms(member.session_timeout_ms as i64);
        self.timers.set(TimerKey::Session(group.clone(), id.clone()), deadline);
    }
}

/// How many of the first records go into one write: at least one, and no more than fit.
fn count_for_one_write(records: &[RecordBytes]) -> usize {
    let mut bytes = 0;
    let fits = records.iter().take_while(|record| {
        bytes += record.size_bytes();
        bytes <= WRITE_BYTES_MAX
    });
    fits.count().max(1)
}

/// Group management wants a name; storing and reading offsets does not. No name may be longer than
/// the record formats can hold.
fn is_group_id_allowed(request: &Request, group: &GroupId) -> bool {
    let may_be_empty = matches!(
        request,
        Request::OffsetCommit(_)
            | Request::OffsetFetch(_)
            | Request::DescribeGroup(_)
            | Request::DeleteGroup(_)
    );
    (may_be_empty || !group.is_empty()) && group.as_str().len() <= STRING_BYTES_MAX
}

/// What a client is told when the log did not take or commit its records.
fn answer_for_failed_write(error: ErrorCode) -> ErrorCode {
    match error {
        ErrorCode::UnknownTopicOrPartition
        | ErrorCode::NotEnoughReplicas
        | ErrorCode::NotEnoughReplicasAfterAppend
        | ErrorCode::RequestTimedOut => ErrorCode::CoordinatorNotAvailable,
        ErrorCode::NotLeaderOrFollower | ErrorCode::KafkaStorageError => ErrorCode::NotCoordinator,
        ErrorCode::MessageTooLarge
        | ErrorCode::RecordListTooLarge
        | ErrorCode::InvalidFetchSize
        | ErrorCode::None => ErrorCode::UnknownServerError,
        other => other,
    }
}

/// The answer that refuses all of a request.
pub(crate) fn refusal(request: Request, error: ErrorCode) -> Response {
    match request {
        Request::JoinGroup(request) => {
            Response::JoinGroup(JoinGroupResponse::error(error, request.member))
        }
        Request::SyncGroup(_) => Response::SyncGroup(SyncGroupResponse::error(error)),
        Request::Heartbeat(_) => Response::Heartbeat(error),
        Request::LeaveGroup(_) => {
            Response::LeaveGroup(LeaveGroupResponse { error, members: Vec::new() })
        }
        Request::OffsetCommit(request) => {
            let topics = crate::offset_commit::all_partitions(&request, error);
            Response::OffsetCommit(OffsetCommitResponse { topics })
        }
        Request::OffsetFetch(request) => Response::OffsetFetch(OffsetFetchResponse {
            group: request.group,
            error,
            topics: Vec::new(),
        }),
        Request::OffsetDelete(_) => {
            Response::OffsetDelete(OffsetDeleteResponse { error, topics: Vec::new() })
        }
        Request::DescribeGroup(group) => {
            Response::DescribeGroup(DescribeGroupResponse::not_described(group, error))
        }
        Request::ListGroups(_) => unreachable!("it names no group that could be refused"),
        Request::DeleteGroup(_) => Response::DeleteGroup(error),
    }
}
