//! Between the library's types and those of the room `ledger`, which knows the bytes: what is translated there and back is the same.

use ledger::message::{Append, Appended, Election, NotTransferred, Request, Voted};
use ledger::{Members, Place};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, TransferLeaderError, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};

use crate::raft::{Entry, LeaderId, LogId, Membership, Payload, TypeConfig, Vote, membership};

pub(crate) fn plain_vote(vote: &Vote) -> ledger::Vote {
    let LeaderId { term, node_id } = vote.leader_id;
    ledger::Vote { term, node: node_id, committed: vote.committed }
}

pub(crate) fn raft_vote(vote: ledger::Vote) -> Vote {
    let leader_id = LeaderId { term: vote.term, node_id: vote.node };
    Vote { leader_id, committed: vote.committed }
}

pub(crate) fn plain_place(id: LogId) -> Place {
    let LeaderId { term, node_id } = id.leader_id;
    Place { term, leader: node_id, index: id.index }
}

pub(crate) fn raft_place(place: Place) -> LogId {
    LogId::new(LeaderId { term: place.term, node_id: place.leader }, place.index)
}

pub(crate) fn plain_members(members: &Membership) -> Members {
    let configs = members.get_joint_config().iter();
    let voters = configs.map(|config| config.iter().copied().collect()).collect();
    Members { voters, learners: members.learner_ids().collect() }
}

pub(crate) fn plain_entry(entry: &Entry) -> ledger::Entry {
    let payload = match &entry.payload {
        Payload::Blank => ledger::Payload::Blank,
        // Its records and text are shared.
        Payload::Normal(proposal) => ledger::Payload::Proposal(proposal.clone()),
        Payload::Membership(members) => ledger::Payload::Members(plain_members(members)),
    };
    ledger::Entry { place: plain_place(entry.log_id), payload }
}

pub(crate) fn raft_entry(entry: ledger::Entry) -> Entry {
    let payload = match entry.payload {
        ledger::Payload::Blank => Payload::Blank,
        ledger::Payload::Proposal(proposal) => Payload::Normal(proposal),
        ledger::Payload::Members(Members { voters, learners }) => {
            Payload::Membership(membership(voters, learners))
        }
    };
    Entry { log_id: raft_place(entry.place), payload }
}

pub(crate) fn plain_append(rpc: &AppendEntriesRequest<TypeConfig>) -> Request {
    Request::Append(Append {
        vote: plain_vote(&rpc.vote),
        before: rpc.prev_log_id.map(plain_place),
        committed: rpc.leader_commit.map(plain_place),
        entries: rpc.entries.iter().map(plain_entry).collect(),
    })
}

pub(crate) fn raft_append(append: Append) -> AppendEntriesRequest<TypeConfig> {
    AppendEntriesRequest {
        vote: raft_vote(append.vote),
        prev_log_id: append.before.map(raft_place),
        entries: append.entries.into_iter().map(raft_entry).collect(),
        leader_commit: append.committed.map(raft_place),
    }
}

pub(crate) fn plain_appended(response: &AppendEntriesResponse<TypeConfig>) -> Appended {
    match response {
        AppendEntriesResponse::Success => Appended::All,
        AppendEntriesResponse::PartialSuccess(last) => Appended::UpTo(last.map(plain_place)),
        AppendEntriesResponse::Conflict => Appended::Conflict,
        AppendEntriesResponse::HigherVote(vote) => Appended::HigherVote(plain_vote(vote)),
    }
}

pub(crate) fn raft_appended(appended: Appended) -> AppendEntriesResponse<TypeConfig> {
    match appended {
        Appended::All => AppendEntriesResponse::Success,
        Appended::UpTo(last) => AppendEntriesResponse::PartialSuccess(last.map(raft_place)),
        Appended::Conflict => AppendEntriesResponse::Conflict,
        Appended::HigherVote(vote) => AppendEntriesResponse::HigherVote(raft_vote(vote)),
    }
}

pub(crate) fn plain_election(rpc: &VoteRequest<TypeConfig>) -> Election {
    Election {
        vote: plain_vote(&rpc.vote),
        last: rpc.last_log_id.map(plain_place),
        is_handed_over: rpc.leadership_transfer,
    }
}

pub(crate) fn raft_election(election: Election) -> VoteRequest<TypeConfig> {
    VoteRequest {
        vote: raft_vote(election.vote),
        last_log_id: election.last.map(raft_place),
        leadership_transfer: election.is_handed_over,
    }
}

pub(crate) fn plain_voted(response: &VoteResponse<TypeConfig>) -> Voted {
    Voted {
        vote: plain_vote(&response.vote),
        is_granted: response.vote_granted,
        last: response.last_log_id.map(plain_place),
    }
}

pub(crate) fn raft_voted(voted: Voted) -> VoteResponse<TypeConfig> {
    VoteResponse::new(raft_vote(voted.vote), voted.last.map(raft_place), voted.is_granted)
}

pub(crate) fn plain_transfer(request: &TransferLeaderRequest<TypeConfig>) -> Request {
    Request::TransferLeader {
        from: plain_vote(request.from_leader()),
        to: *request.to_node_id(),
        last: request.last_log_id().copied().map(plain_place),
    }
}

pub(crate) fn plain_transferred(
    response: &TransferLeaderResponse<TypeConfig>,
) -> Result<(), NotTransferred> {
    match response {
        Ok(()) => Ok(()),
        Err(TransferLeaderError::VoteChanged { expected, actual }) => {
            let (expected, actual) = (plain_vote(expected), plain_vote(actual));
            Err(NotTransferred::VoteChanged { expected, actual })
        }
        Err(TransferLeaderError::LogNotFlushed { expected, actual }) => {
            let (expected, actual) = (expected.map(plain_place), actual.map(plain_place));
            Err(NotTransferred::LogBehind { expected, actual })
        }
    }
}

pub(crate) fn raft_transferred(
    transferred: Result<(), NotTransferred>,
) -> TransferLeaderResponse<TypeConfig> {
    match transferred {
        Ok(()) => Ok(()),
        Err(NotTransferred::VoteChanged { expected, actual }) => {
            let (expected, actual) = (raft_vote(expected), raft_vote(actual));
            Err(TransferLeaderError::VoteChanged { expected, actual })
        }
        Err(NotTransferred::LogBehind { expected, actual }) => {
            let (expected, actual) = (expected.map(raft_place), actual.map(raft_place));
            Err(TransferLeaderError::LogNotFlushed { expected, actual })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ledger::{Part, Proposal};

    use super::*;

    fn vote(term: u64) -> Vote {
        Vote { leader_id: LeaderId { term, node_id: 7 }, committed: true }
    }

    fn id(index: u64) -> LogId {
        LogId::new(LeaderId { term: 3, node_id: 7 }, index)
    }

    fn entries() -> Vec<Entry> {
        let part = Part { number: 1, is_last: true, text: Arc::from(&b"\"}\n"[..]) };
        let proposal = Proposal {
            decided_at: Some(5),
            applied: Some(6),
            records: Arc::new([]),
            part: Some(part),
        };
        let payloads = [
            Payload::Blank,
            Payload::Membership(membership(vec![vec![1, 2], vec![2, 3]], vec![9])),
            Payload::Normal(proposal),
        ];
        let numbered = payloads.into_iter().zip(7..);
        numbered.map(|(payload, index)| Entry { log_id: id(index), payload }).collect()
    }

    #[test]
    fn requests_are_the_same_there_and_back() {
        let rpc = AppendEntriesRequest {
            vote: vote(3),
            prev_log_id: Some(id(6)),
            entries: entries(),
            leader_commit: Some(id(5)),
        };
        let Request::Append(append) = plain_append(&rpc) else { panic!("it is an append") };
        assert_eq!(append.entries.len(), 3);
        assert_eq!(format!("{:?}", raft_append(append)), format!("{rpc:?}"));
        let mut election = VoteRequest::new(vote(4), Some(id(9)));
        election.leadership_transfer = true;
        let back = raft_election(plain_election(&election));
        assert_eq!(format!("{back:?}"), format!("{election:?}"));
        let request = TransferLeaderRequest::<TypeConfig>::new(vote(3), 2, Some(id(9)));
        let (from, last) = (plain_vote(&vote(3)), Some(plain_place(id(9))));
        assert_eq!(plain_transfer(&request), Request::TransferLeader { from, to: 2, last });
    }

    #[test]
    fn answers_are_the_same_there_and_back() {
        for response in [
            AppendEntriesResponse::Success,
            AppendEntriesResponse::PartialSuccess(Some(id(3))),
            AppendEntriesResponse::PartialSuccess(None),
            AppendEntriesResponse::Conflict,
            AppendEntriesResponse::HigherVote(vote(8)),
        ] {
            let back = raft_appended(plain_appended(&response));
            assert_eq!(format!("{back:?}"), format!("{response:?}"));
        }
        for granted in [true, false] {
            let response = VoteResponse::<TypeConfig>::new(vote(4), Some(id(9)), granted);
            assert_eq!(raft_voted(plain_voted(&response)), response);
        }
        let (expected, actual) = (vote(1), vote(2));
        let changed = TransferLeaderError::VoteChanged { expected, actual };
        let lacks = TransferLeaderError::LogNotFlushed { expected: Some(id(3)), actual: None };
        for response in [Ok(()), Err(changed), Err(lacks)] {
            let back = raft_transferred(plain_transferred(&response));
            assert_eq!(format!("{back:?}"), format!("{response:?}"));
        }
    }
}
