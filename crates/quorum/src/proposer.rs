//! Deciding: one proposal in flight, whatever queued up meanwhile decided together.
//!
//! Requests are decided one after the other on a draft of the newest image. Their records become
//! one entry, or several that count as one; when it is applied, all are answered. If the image had
//! changed meanwhile, the entry was refused everywhere, and all of them are decided anew.

use crate::config::QuorumError;
use crate::parts;
use crate::published::{Published, Version};
use crate::raft::{Outcome, Proposal, TypeConfig, broker_id};
use crate::state_machine::StateMachine;
use crate::store::log_store::now;
use metadata::{ControllerSettings, Draft, MetadataRecord, Request, Response};
use openraft::errors::{ClientWriteError, ForwardToLeader, LinearizableReadError, RaftError};
use openraft::{Raft, ReadPolicy};
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// Requests that may wait to be decided.
pub(crate) const QUEUE_MAX: usize = 1024;
/// No more requests are decided together once there are so many records.
const BATCH_RECORDS_MAX: usize = 10_000;

/// A request and who waits for its answer.
pub(crate) struct Asked {
    pub(crate) request: Request,
    pub(crate) answer: oneshot::Sender<Result<Response, QuorumError>>,
}

pub(crate) struct Proposer {
    pub(crate) raft: Raft<TypeConfig, StateMachine>,
    pub(crate) published: Arc<Published>,
    pub(crate) settings: Arc<Mutex<ControllerSettings>>,
    /// Bytes of the records in one entry.
    pub(crate) entry_bytes_max: usize,
    pub(crate) queue: mpsc::Receiver<Asked>,
}

impl Proposer {
    /// Works until nobody can ask any more.
    pub(crate) async fn run(mut self) {
        let mut asked = Vec::new();
        while self.queue.recv_many(&mut asked, QUEUE_MAX).await > 0 {
            while !asked.is_empty() {
                self.decide_some(&mut asked).await;
            }
        }
    }

    /// Decides the first of what was asked, as many as go together, and answers them.
    async fn decide_some(&self, asked: &mut Vec<Asked>) {
        // Before the image: everything up to this entry is in the image that is looked at.
        let applied = self.published.applied_index();
        let version = self.published.version();
        let (draft, responses) = self.draft(&version, asked);
        let committed = match draft.records() {
            [] => self.confirm(&version).await,
            _ => self.commit(&version, applied, draft).await,
        };
        match committed {
            Ok(Outcome::Applied) => {
                for (asked, response) in asked.drain(..responses.len()).zip(responses) {
                    // The requester may have gone; then nobody needs the answer.
                    let _ = asked.answer.send(Ok(response));
                }
            }
            Ok(Outcome::Refused) => {}
            Err(error) => refuse(asked.drain(..responses.len()), &error),
        }
    }

    /// Makes sure that answers without records rest on the newest image: nothing is committed for them, so
    /// nothing else would tell. A majority is asked whether this node still leads; what was committed before
    /// is applied first. A lease would save the messages, and be wrong where clocks are.
    async fn confirm(&self, version: &Version) -> Result<Outcome, QuorumError> {
        match self.raft.ensure_linearizable(ReadPolicy::ReadIndex).await {
            Ok(_) if self.published.version().changed_at == version.changed_at => {
                Ok(Outcome::Applied)
            }
            Ok(_) => Ok(Outcome::Refused),
            Err(RaftError::Fatal(fatal)) => Err(QuorumError::stopped(fatal)),
            Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(forward))) => {
                Err(QuorumError::NotLeader { leader: forward.leader_id.map(broker_id) })
            }
            // It leads, as far as it knows, and hears from no majority.
            Err(RaftError::APIError(_)) => Err(QuorumError::NotLeader { leader: None }),
        }
    }

    fn draft(&self, version: &Version, asked: &[Asked]) -> (Draft, Vec<Response>) {
        let settings = self.settings.lock().clone();
        let now = now();
        let mut draft = Draft::new((*version.image).clone());
        let mut responses = Vec::new();
        for asked in asked {
            if draft.records().len() >= BATCH_RECORDS_MAX {
                break;
            }
            responses.push(draft.decide(&settings, now, &asked.request));
        }
        (draft, responses)
    }

    async fn commit(
        &self,
        version: &Version,
        applied: Option<u64>,
        draft: Draft,
    ) -> Result<Outcome, QuorumError> {
        let records = draft.into_records();
        let mut lines = Vec::new();
        MetadataRecord::encode_lines(&records, &mut lines);
        let decided_at = version.changed_at;
        let Some(parts) = parts::cut(&lines, self.entry_bytes_max) else {
            let records = records.into();
            return self.write(Proposal { decided_at, applied, records, part: None }).await;
        };
        let mut outcome = Outcome::Refused;
        for part in parts {
            let (records, part) = ([].into(), Some(part));
            outcome = self.write(Proposal { decided_at, applied, records, part }).await?;
            if outcome == Outcome::Refused {
                break;
            }
        }
        Ok(outcome)
    }

    async fn write(&self, proposal: Proposal) -> Result<Outcome, QuorumError> {
        match self.raft.client_write(proposal).await {
            Ok(written) => Ok(written.data),
            Err(RaftError::Fatal(fatal)) => Err(QuorumError::stopped(fatal)),
            Err(RaftError::APIError(error)) => Err(lost(error)),
        }
    }
}

/// What losing the leadership means for a write.
pub(crate) fn lost(error: ClientWriteError<TypeConfig>) -> QuorumError {
    match error {
        ClientWriteError::ForwardToLeader(ForwardToLeader { leader_id, .. }) => {
            QuorumError::NotLeader { leader: leader_id.map(broker_id) }
        }
        ClientWriteError::LogEntryDiscarded(_) => QuorumError::OutcomeUnknown,
        other => QuorumError::Members(other.to_string()),
    }
}

fn refuse(asked: impl Iterator<Item = Asked>, error: &QuorumError) {
    for asked in asked {
        // The requester may have gone; then nobody needs the answer.
        let _ = asked.answer.send(Err(error.clone()));
    }
}
