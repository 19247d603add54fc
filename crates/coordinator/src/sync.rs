//! SyncGroup: the leader brings the assignment, everybody gets theirs once it is committed.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{ErrorCode, GenerationId};

use crate::group::{Group, GroupState};
use crate::member::push_waiting;
use crate::outbox::{RecordLoans, Scope, Then};
use crate::records::Record;
use crate::request::SyncGroup;
use crate::response::{Response, SyncGroupResponse};
use crate::shard::Shard;
use crate::{GroupId, MemberId, ReplyTo};

impl Shard {
    pub(crate) fn sync(&mut self, to: ReplyTo, request: SyncGroup) {
        let id = &request.group;
        let state = match self.check_sync(&request) {
            Ok(state) => state,
            Err(error) => return self.refuse_sync(id, to, error),
        };
        let group = self.groups.get_mut(id).expect("the check found it");
        assert!(group.members.contains_key(&request.member), "the check found it");
        group.pending_sync.remove(&request.member);
        match state {
            GroupState::Stable => self.answer_sync(id, &request.member, to),
            GroupState::CompletingRebalance => {
                let member = group.members.get_mut(&request.member).expect("the check found it");
                let outdated = push_waiting(&mut member.awaiting_sync, to);
                if let Some(outdated) = outdated {
                    let error = ErrorCode::RebalanceInProgress;
                    let response = Response::SyncGroup(SyncGroupResponse::error(error));
                    self.outbox.reply_now(outdated, response);
                }
                if group.is_leader(&request.member) && !group.assignment_in_flight {
                    self.write_assignment(request);
                }
            }
            _ => unreachable!("the check lets no other state through"),
        }
    }

    /// The state of the group, if there is anything to sync.
    fn check_sync(&self, request: &SyncGroup) -> Result<GroupState, ErrorCode> {
        let is_complete = request.protocol_type.is_some() && request.protocol.is_some();
        if request.require_protocol && !is_complete {
            return Err(ErrorCode::InconsistentGroupProtocol);
        }
        let group = self.groups.get(&request.group).ok_or(ErrorCode::UnknownMemberId)?;
        group.check_member(&request.member, request.instance.as_ref())?;
        if request.generation_id != group.generation_id {
            return Err(ErrorCode::IllegalGeneration);
        }
        let differs =
            |asked: &Option<Arc<str>>, ours: &Option<Arc<str>>| asked.is_some() && asked != ours;
        if differs(&request.protocol_type, &group.protocol_type)
            || differs(&request.protocol, &group.protocol)
        {
            return Err(ErrorCode::InconsistentGroupProtocol);
        }
        match group.state {
            GroupState::PreparingRebalance => Err(ErrorCode::RebalanceInProgress),
            GroupState::Empty => Err(ErrorCode::UnknownMemberId),
            state => Ok(state),
        }
    }

    fn refuse_sync(&mut self, id: &GroupId, to: ReplyTo, error: ErrorCode) {
        let response = Response::SyncGroup(SyncGroupResponse::error(error));
        self.reply(id, Scope::Membership, to, response);
    }

    fn answer_sync(&mut self, id: &GroupId, member: &MemberId, to: ReplyTo) {
        let group = &self.groups[id];
        assert_eq!(group.state, GroupState::Stable, "assignments are told when they are committed");
        let response = SyncGroupResponse {
            error: ErrorCode::None,
            protocol_type: group.protocol_type.clone(),
            protocol: group.protocol.clone(),
            assignment: group.members[member].assignment.clone(),
        };
        self.reply(id, Scope::Membership, to, Response::SyncGroup(response));
    }

    /// Sends the leader's assignment to the log; whom it leaves out gets nothing.
    fn write_assignment(&mut self, request: SyncGroup) {
        let id = request.group;
        let assignments: BTreeMap<_, _> = request.assignments.into_iter().collect();
        let group = self.groups.get_mut(&id).expect("the caller has it");
        assert!(group.is_leader(&request.member), "only the leader assigns");
        assert_eq!(group.state, GroupState::CompletingRebalance);
        group.assignment_in_flight = true;
        let assignment_of = |id: &MemberId, _: &_| {
            assignments.get(id).cloned().unwrap_or_else(|| Arc::from(&[][..]))
        };
        let generation_id = group.generation_id;
        let value = Some(group.to_record(assignment_of));
        let loans = RecordLoans { assignments: request.lent, members: group.member_loans() };
        let then = Then::Assigned { group: id.clone(), generation_id, loans };
        self.write(&[Record::GroupMetadata { group: id, value }], Some(then));
    }

    /// The leader's assignment is committed. If a rebalance has begun meanwhile, it is of no use.
    pub(crate) fn assigned(
        &mut self,
        id: &GroupId,
        generation_id: GenerationId,
        loans: RecordLoans,
    ) {
        if let Some(group) = self.groups.get_mut(id) {
            // The record is kept even if the generation ends.
            (group.lent, group.recorded) = (loans.assignments, loans.members);
        }
        if !self.groups.get(id).is_some_and(|group| group.awaits_assignment(generation_id)) {
            return;
        }
        let record = self.durable.group(id).expect("the assignment's record was just committed");
        assert_eq!(record.generation_id, generation_id, "one assignment for a generation");
        let assignments: Vec<_> =
            record.members.iter().map(|m| (m.member.clone(), m.assignment.clone())).collect();
        let group = self.groups.get_mut(id).expect("it was there a line above");
        assert_eq!(assignments.len(), group.members.len(), "the members of the generation");
        group.transition(self.now, GroupState::Stable);
        for (member_id, assignment) in assignments {
            let group = self.groups.get_mut(id).expect("it was there a line above");
            let member = group.members.get_mut(&member_id).expect("the record has its members");
            member.assignment = assignment;
            let waiting = std::mem::take(&mut member.awaiting_sync);
            if !waiting.is_empty() {
                self.restart_session(id, &member_id);
            }
            waiting.into_iter().for_each(|to| self.answer_sync(id, &member_id, to));
        }
    }

    /// The leader's assignment is not in the log: all who wait for it must join again.
    pub(crate) fn assignment_failed(
        &mut self,
        id: &GroupId,
        generation_id: GenerationId,
        error: ErrorCode,
    ) {
        if !self.groups.get(id).is_some_and(|group| group.awaits_assignment(generation_id)) {
            return;
        }
        assert!(!error.is_none(), "a failure says why");
        self.refuse_syncs(id, error);
        self.prepare_rebalance(id, "the assignment could not be stored");
    }
}

impl Group {
    /// Whether the assignment of this generation is on its way.
    fn awaits_assignment(&self, generation_id: GenerationId) -> bool {
        self.state == GroupState::CompletingRebalance
            && self.generation_id == generation_id
            && self.assignment_in_flight
    }
}
