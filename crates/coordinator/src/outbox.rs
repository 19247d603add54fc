//! Writes on their way to being committed, and the answers and continuations that wait for them.
//!
//! Invariant (C13): an answer leaves only when every write that its decision could have seen of its
//! group is committed. So no client hears of a fact that a failover could take back.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use model::{ErrorCode, GenerationId, Timestamp};

use crate::durable::{Durable, Undo};
use crate::group::Group;
use crate::member::Member;
use crate::records::Record;
use crate::request::Lent;
use crate::{
    Effects, GroupId, GroupInstanceId, MemberId, RecordBytes, Reply, ReplyTo, Response, Write,
    WriteId,
};

/// What of a group an answer depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Its members and generation.
    Membership,
    /// Its stored positions.
    Offsets,
    /// Both.
    All,
}

/// What happens when a write is committed or has failed, besides answers.
#[derive(Debug)]
pub(crate) enum Then {
    /// The leader's assignment: the generation becomes stable.
    Assigned { group: GroupId, generation_id: GenerationId, loans: RecordLoans },
    /// A static member came back to a stable group under a new id.
    Replaced(Box<Replaced>),
    /// A group was removed: this is what it was, to go back to if the write fails.
    Deleted { group: GroupId, was: Box<Group> },
}

/// The host's loans for the content of a group's record.
#[derive(Debug)]
pub(crate) struct RecordLoans {
    /// For the assignments.
    pub(crate) assignments: Lent,
    /// For the members.
    pub(crate) members: Vec<Lent>,
}

impl Then {
    /// Whether it counts as failed when its write is not committed in time. A deletion does not:
    /// nobody waits for it to go on, and it may yet be committed.
    fn gives_up(&self) -> bool {
        !matches!(self, Then::Deleted { .. })
    }
}

/// A static member that got a new id without a rebalance.
#[derive(Debug)]
pub(crate) struct Replaced {
    pub(crate) group: GroupId,
    pub(crate) instance: GroupInstanceId,
    /// In which generation it was replaced; in a later one it cannot go back.
    pub(crate) generation_id: GenerationId,
    pub(crate) old_id: MemberId,
    pub(crate) new_id: MemberId,
    /// What it was before, to go back to if the write fails.
    pub(crate) old_member: Member,
    /// Who led before the replacement; clients without KIP-814 must not take themselves for it.
    pub(crate) old_leader: MemberId,
    pub(crate) supports_skip_assignment: bool,
    /// The host's loans for the members of the record.
    pub(crate) member_loans: Vec<Lent>,
}

/// Records, and the bytes of each.
pub(crate) struct NewWrite<'a> {
    pub(crate) records: &'a [Record],
    pub(crate) encoded: Vec<RecordBytes>,
}

#[derive(Debug)]
struct Parked {
    reply: Reply,
    deadline: Timestamp,
}

/// One write that is not committed.
#[derive(Debug)]
struct Pending {
    id: WriteId,
    /// Takes its records back, in the order they were replayed.
    undo: Vec<Undo>,
    /// Whose records it has.
    groups: Vec<GroupId>,
    parked: Vec<Parked>,
    then: Option<Then>,
    /// When `then` gives up.
    deadline: Timestamp,
}

/// The last write of a group that touched something.
#[derive(Debug, Default, Clone, Copy)]
struct Marks {
    membership: Option<WriteId>,
    offsets: Option<WriteId>,
}

/// Invariant: `pending` is in the order of ids, none above `last`.
#[derive(Debug)]
pub(crate) struct Outbox {
    pending: VecDeque<Pending>,
    last: WriteId,
    /// Invariant: only groups of writes that are pending.
    marks: BTreeMap<GroupId, Marks>,
    effects: Effects,
}

impl Outbox {
    pub(crate) fn new() -> Outbox {
        Outbox {
            pending: VecDeque::new(),
            last: WriteId(0),
            marks: BTreeMap::new(),
            effects: Effects::default(),
        }
    }

    /// Moves what may leave to the host.
    pub(crate) fn drain(&mut self, out: &mut Effects) {
        out.writes.append(&mut self.effects.writes);
        out.replies.append(&mut self.effects.replies);
    }

    /// Sends records to the log and learns them at once; nobody hears of it before they are
    /// committed.
    pub(crate) fn write(
        &mut self,
        durable: &mut Durable,
        now: Timestamp,
        deadline: Timestamp,
        write: NewWrite<'_>,
        then: Option<Then>,
    ) -> WriteId {
        let NewWrite { records, encoded } = write;
        assert!(!records.is_empty() && records.len() == encoded.len(), "a write has records");
        let id = WriteId(self.last.0 + 1);
        self.last = id;
        let mut groups: Vec<GroupId> = Vec::new();
        for record in records {
            self.mark(record, id);
            if groups.last() != Some(record.group()) {
                groups.push(record.group().clone());
            }
        }
        let undo = records.iter().map(|record| durable.replay(record)).collect();
        self.effects.writes.push(Write { id, timestamp: now, records: encoded });
        self.pending.push_back(Pending { id, undo, groups, parked: Vec::new(), then, deadline });
        id
    }

    fn mark(&mut self, record: &Record, id: WriteId) {
        let marks = self.marks.entry(record.group().clone()).or_default();
        match record {
            Record::GroupMetadata { .. } => marks.membership = Some(id),
            Record::OffsetCommit { .. } => marks.offsets = Some(id),
        }
    }

    /// The last write that is not committed and that concerns this much of a group.
    fn mark_of(&self, group: &GroupId, scope: Scope) -> Option<WriteId> {
        let marks = self.marks.get(group)?;
        match scope {
            Scope::Membership => marks.membership,
            Scope::Offsets => marks.offsets,
            Scope::All => marks.membership.max(marks.offsets),
        }
    }

    /// Answers once what the answer depends on is committed.
    pub(crate) fn reply(&mut self, group: &GroupId, scope: Scope, reply: Reply, until: Timestamp) {
        match self.mark_of(group, scope) {
            Some(write) => self.park(write, reply, until),
            None => self.effects.replies.push(reply),
        }
    }

    /// Answers once everything decided so far is committed.
    pub(crate) fn reply_after_all(&mut self, reply: Reply, until: Timestamp) {
        match self.pending.back().map(|pending| pending.id) {
            Some(write) => self.park(write, reply, until),
            None => self.effects.replies.push(reply),
        }
    }

    /// Answers at once: the answer depends on nothing that could be taken back.
    pub(crate) fn reply_now(&mut self, to: ReplyTo, response: Response) {
        self.effects.replies.push(Reply { to, response });
    }

    fn park(&mut self, write: WriteId, reply: Reply, deadline: Timestamp) {
        let at = self.pending.binary_search_by_key(&write, |pending| pending.id);
        let at = at.expect("who parks does so behind a pending write");
        assert!(write <= self.last, "it was made before");
        self.pending[at].parked.push(Parked { reply, deadline });
    }

    /// Everything up to `write` is committed: its answers leave, its continuations are returned.
    pub(crate) fn commit(&mut self, write: WriteId) -> Vec<Then> {
        assert!(write <= self.last, "{write:?} was never made");
        let mut then = Vec::new();
        while self.pending.front().is_some_and(|pending| pending.id <= write) {
            let pending = self.pending.pop_front().expect("it was there a line above");
            self.effects.replies.extend(pending.parked.into_iter().map(|parked| parked.reply));
            then.extend(pending.then);
            self.forget_marks(&pending.groups, |mark| mark > pending.id);
        }
        then
    }

    /// `from` and everything behind it is not in the log: takes it back and answers with `error`.
    /// Returns the continuations, latest first.
    pub(crate) fn fail(
        &mut self,
        durable: &mut Durable,
        from: WriteId,
        error: ErrorCode,
    ) -> Vec<Then> {
        let is_pending = self.pending.binary_search_by_key(&from, |pending| pending.id).is_ok();
        assert!(is_pending, "{from:?} was committed, has failed before, or was never made");
        let (mut then, mut groups) = (Vec::new(), BTreeSet::new());
        while self.pending.back().is_some_and(|pending| pending.id >= from) {
            let pending = self.pending.pop_back().expect("it was there a line above");
            pending.undo.into_iter().rev().for_each(|undo| durable.undo(undo));
            pending.parked.into_iter().for_each(|parked| self.refuse(parked.reply, error));
            then.extend(pending.then);
            groups.extend(pending.groups);
        }
        self.restore_marks(&groups);
        // A write that the host has not even seen is not to be appended any more.
        self.effects.writes.retain(|write| write.id < from);
        then
    }

    fn refuse(&mut self, reply: Reply, error: ErrorCode) {
        assert!(!error.is_none(), "a refusal says why");
        let response = reply.response.with_error(error);
        self.effects.replies.push(Reply { to: reply.to, response });
    }

    fn forget_marks(&mut self, groups: &[GroupId], keep: impl Fn(WriteId) -> bool) {
        for group in groups {
            let Some(marks) = self.marks.get_mut(group) else { continue };
            marks.membership = marks.membership.filter(|mark| keep(*mark));
            marks.offsets = marks.offsets.filter(|mark| keep(*mark));
            if marks.membership.is_none() && marks.offsets.is_none() {
                self.marks.remove(group);
            }
        }
    }

    /// After a failure the marks of its groups lead to earlier writes again, or nowhere. Which of
    /// both an earlier write touched is not kept, so both are set: an answer may wait too long,
    /// never too short.
    fn restore_marks(&mut self, groups: &BTreeSet<GroupId>) {
        for group in groups {
            let earlier = self.pending.iter().rev().find(|write| write.groups.contains(group));
            match earlier.map(|write| write.id) {
                Some(id) => {
                    let marks = Marks { membership: Some(id), offsets: Some(id) };
                    self.marks.insert(group.clone(), marks);
                }
                None => {
                    self.marks.remove(group);
                }
            }
        }
    }

    /// The earliest time at which something parked gives up.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        let deadlines = self.pending.iter().flat_map(|pending| {
            let then = pending.then.as_ref().filter(|then| then.gives_up());
            let then = then.map(|_| pending.deadline);
            then.into_iter().chain(pending.parked.iter().map(|parked| parked.deadline))
        });
        deadlines.min()
    }

    /// Refuses what has waited too long; the writes stay pending, for they may still be committed.
    /// Returns the continuations that give up.
    pub(crate) fn give_up(&mut self, now: Timestamp, error: ErrorCode) -> Vec<Then> {
        let (mut then, mut late) = (Vec::new(), Vec::new());
        for pending in &mut self.pending {
            late.extend(pending.parked.extract_if(.., |parked| parked.deadline <= now));
            if pending.deadline <= now {
                then.extend(pending.then.take_if(|then| then.gives_up()));
            }
        }
        late.into_iter().for_each(|parked| self.refuse(parked.reply, error));
        then
    }

    /// Refuses everything that is parked: the shard is no longer here.
    pub(crate) fn refuse_all(&mut self, error: ErrorCode) {
        for pending in std::mem::take(&mut self.pending) {
            pending.parked.into_iter().for_each(|parked| self.refuse(parked.reply, error));
        }
        self.marks.clear();
    }

    /// Whether nothing that was written of a group can be taken back any more.
    pub(crate) fn is_settled(&self, group: &GroupId) -> bool {
        !self.marks.contains_key(group)
    }

    /// Whether nothing is on its way.
    pub(crate) fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }
}
