//! What a producer knows of its open transaction: who belongs to it, and what a failure does to it.
//! A value; who asks the coordinator is the module above.

use crate::error::ClientError;
use model::ErrorCode;
use std::collections::HashSet;
use std::sync::Arc;

/// What is said of a producer that was fenced.
const FENCED: &str = "another producer has this transactional.id now, or the transaction took \
                      longer than transaction.timeout.ms";

/// A partition of a topic.
pub(super) type Member = (Arc<str>, i32);

#[derive(Debug, Default)]
enum Phase {
    /// There is no transaction.
    #[default]
    Between,
    Open,
    Committing,
    Aborting,
    /// It can only be aborted.
    Failed(ClientError),
    /// The producer is of no use any more.
    Dead(ClientError),
}

/// What is known of the open transaction.
#[derive(Debug, Default)]
pub(super) struct State {
    phase: Phase,
    /// Partitions that the coordinator counts to the transaction.
    added: HashSet<Member>,
    /// Partitions with batches that must be added first.
    wanted: Vec<Member>,
    /// Whether that is being asked for.
    adding: bool,
    /// Whether something was given up that had its place in a sequence: what comes after it is
    /// taken only under another epoch.
    gap: bool,
}

fn usage<T>(text: &str) -> Result<T, ClientError> {
    Err(ClientError::Usage(text.to_owned()))
}

impl State {
    pub(super) fn begin(&mut self) -> Result<(), ClientError> {
        match &self.phase {
            Phase::Between => {
                self.phase = Phase::Open;
                Ok(())
            }
            Phase::Failed(error) | Phase::Dead(error) => Err(error.clone()),
            _ => usage("a transaction is open already"),
        }
    }

    /// May be called again when a commit was not answered.
    pub(super) fn begin_commit(&mut self) -> Result<(), ClientError> {
        match &self.phase {
            Phase::Open | Phase::Committing => {
                self.phase = Phase::Committing;
                Ok(())
            }
            Phase::Failed(error) | Phase::Dead(error) => Err(error.clone()),
            Phase::Aborting => usage("the transaction is being aborted"),
            Phase::Between => usage("no transaction is open"),
        }
    }

    /// May be called again when an abort was not answered.
    pub(super) fn begin_abort(&mut self) -> Result<(), ClientError> {
        match &self.phase {
            Phase::Open | Phase::Aborting | Phase::Failed(_) => {
                self.phase = Phase::Aborting;
                Ok(())
            }
            Phase::Dead(error) => Err(error.clone()),
            Phase::Committing => usage("the transaction is being committed"),
            Phase::Between => usage("no transaction is open"),
        }
    }

    /// Why no record is taken now.
    pub(super) fn refusal(&self) -> ClientError {
        let text = match &self.phase {
            Phase::Failed(error) | Phase::Dead(error) => return error.clone(),
            Phase::Aborting => "the transaction is being aborted",
            Phase::Between | Phase::Open | Phase::Committing => "no transaction is open",
        };
        ClientError::Usage(text.to_owned())
    }

    /// Why batches are given up that wait to be sent; `None` while they are not.
    pub(super) fn doom(&self) -> Option<ClientError> {
        match &self.phase {
            Phase::Failed(_) | Phase::Dead(_) | Phase::Aborting => Some(self.refusal()),
            Phase::Between | Phase::Open | Phase::Committing => None,
        }
    }

    fn is_sending(&self) -> bool {
        matches!(self.phase, Phase::Open | Phase::Committing)
    }

    /// Whether batches of this partition may be sent; notes that it must be added if not.
    pub(super) fn admits(&mut self, member: Member) -> bool {
        if !self.is_sending() {
            return false;
        }
        let added = self.added.contains(&member);
        if !added && !self.wanted.contains(&member) {
            self.wanted.push(member);
        }
        added
    }

    /// Whether partitions are to be added now; then that counts as being done.
    pub(super) fn begin_adding(&mut self) -> bool {
        let begins = self.is_sending() && !self.adding && !self.wanted.is_empty();
        self.adding |= begins;
        begins
    }

    /// The partitions to be added; none if the transaction ended meanwhile.
    pub(super) fn to_add(&self) -> Vec<Member> {
        if self.is_sending() { self.wanted.clone() } else { Vec::new() }
    }

    pub(super) fn end_adding(&mut self, members: Vec<Member>, result: &Result<(), ClientError>) {
        self.adding = false;
        self.wanted.retain(|member| !members.contains(member));
        if result.is_ok() {
            self.added.extend(members);
        }
    }

    /// A record was not taken or not delivered, or the coordinator says no: nothing may be missing
    /// in a transaction that is committed.
    pub(super) fn fail(&mut self, error: &ClientError) {
        self.gap = true;
        match &self.phase {
            Phase::Dead(_) => {}
            _ if is_fatal(error) => self.phase = Phase::Dead(explained(error)),
            Phase::Open | Phase::Committing => self.phase = Phase::Failed(error.clone()),
            _ => {}
        }
    }

    /// Whether the coordinator must hear of the end: it knows nothing of a transaction without
    /// partitions. Fails with what the transaction failed with.
    pub(super) fn to_end(&self) -> Result<bool, ClientError> {
        match &self.phase {
            Phase::Failed(error) | Phase::Dead(error) => Err(error.clone()),
            _ => Ok(!self.added.is_empty()),
        }
    }

    /// The coordinator has ended it. Whether the next one may begin: not before the producer has
    /// another epoch, if there is a gap; then this is to be called again.
    pub(super) fn end(&mut self) -> bool {
        self.added.clear();
        self.wanted.clear();
        if std::mem::take(&mut self.gap) {
            return false;
        }
        self.phase = Phase::Between;
        true
    }
}

/// Whether no later transaction of this producer can succeed either.
fn is_fatal(error: &ClientError) -> bool {
    match error {
        ClientError::Unsupported { .. } | ClientError::Encode(_) => true,
        _ => matches!(
            error.code(),
            Some(
                ErrorCode::InvalidProducerEpoch
                    | ErrorCode::ProducerFenced
                    | ErrorCode::InvalidTxnState
                    | ErrorCode::TransactionCoordinatorFenced
                    | ErrorCode::TransactionalIdAuthorizationFailed
                    | ErrorCode::ClusterAuthorizationFailed
                    | ErrorCode::UnsupportedVersion
                    | ErrorCode::UnsupportedForMessageFormat
            )
        ),
    }
}

/// The error, with what being fenced means.
pub(super) fn explained(error: &ClientError) -> ClientError {
    match error {
        ClientError::Refused {
            what,
            code: code @ (ErrorCode::InvalidProducerEpoch | ErrorCode::ProducerFenced),
            ..
        } => {
            let (what, message) = (what.clone(), Some(FENCED.to_owned()));
            ClientError::Refused { what, code: *code, message }
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(partition: i32) -> Member {
        (Arc::from("t"), partition)
    }

    fn open() -> State {
        let mut state = State::default();
        state.begin().unwrap();
        state
    }

    fn refused(code: ErrorCode) -> ClientError {
        ClientError::refused("asked", code)
    }

    #[test]
    fn a_partition_is_added_once_in_each_transaction() {
        let mut state = open();
        assert!(!state.begin_adding(), "nothing is wanted");
        assert!(!state.admits(member(0)) && !state.admits(member(0)) && !state.admits(member(1)));
        assert!(state.begin_adding());
        assert_eq!(state.to_add(), [member(0), member(1)]);
        assert!(!state.admits(member(2)), "wanted while others are being added");
        assert!(!state.begin_adding(), "one request at a time");
        state.end_adding(vec![member(0), member(1)], &Ok(()));
        assert!(state.admits(member(0)) && state.admits(member(1)) && !state.admits(member(2)));
        assert!(state.begin_adding());
        assert_eq!(state.to_add(), [member(2)]);
        state.end_adding(vec![member(2)], &Ok(()));
        state.begin_commit().unwrap();
        assert!(state.admits(member(2)), "what waits is sent before the commit");
        assert_eq!(state.to_end(), Ok(true));
        assert!(state.end());
        assert!(!state.admits(member(0)), "there is no transaction");
        state.begin().unwrap();
        assert!(!state.admits(member(0)), "it must be added anew");
    }

    #[test]
    fn nothing_is_added_behind_the_end() {
        let mut state = open();
        state.admits(member(0));
        assert!(state.begin_adding());
        state.begin_abort().unwrap();
        assert_eq!(state.to_add(), []);
        state.end_adding(Vec::new(), &Ok(()));
        assert!(!state.begin_adding(), "nothing more is to be done");
        assert_eq!(state.to_end(), Ok(false), "the coordinator knows of nothing");
        assert!(state.end());
        state.begin().unwrap();
        assert!(!state.begin_adding(), "what was wanted belonged to the one before");
    }

    #[test]
    fn a_failure_leaves_only_the_abort_and_then_another_epoch() {
        let mut state = open();
        let error = refused(ErrorCode::MessageTooLarge);
        assert_eq!(state.doom(), None);
        state.fail(&error);
        assert_eq!(state.doom(), Some(error.clone()));
        assert_eq!(state.begin_commit(), Err(error.clone()));
        assert_eq!(state.begin(), Err(error.clone()));
        assert_eq!(state.refusal(), error);
        assert!(!state.admits(member(0)));
        state.begin_abort().unwrap();
        state.fail(&refused(ErrorCode::RequestTimedOut));
        state.begin_abort().expect("an abort may be tried again");
        assert!(!state.end(), "a gap in the sequence");
        assert!(state.end());
        state.begin().unwrap();
    }

    #[test]
    fn a_failure_while_committing_is_told_by_the_commit() {
        let mut state = open();
        state.begin_commit().unwrap();
        let error = refused(ErrorCode::TransactionAbortable);
        state.fail(&error);
        assert_eq!(state.to_end(), Err(error));
        state.begin_abort().unwrap();
    }

    #[test]
    fn who_is_fenced_is_told_so_and_can_do_nothing_any_more() {
        for code in [ErrorCode::InvalidProducerEpoch, ErrorCode::ProducerFenced] {
            let mut state = open();
            state.fail(&refused(code));
            let error = state.begin_abort().unwrap_err();
            assert_eq!(error.code(), Some(code));
            assert!(error.to_string().contains("another producer has this"), "{error}");
            state.fail(&refused(ErrorCode::MessageTooLarge));
            assert_eq!(state.begin(), Err(error.clone()));
            assert_eq!((state.begin_commit(), state.doom()), (Err(error.clone()), Some(error)));
        }
    }

    #[test]
    fn transactions_begin_and_end_in_turn() {
        let mut state = State::default();
        assert!(state.begin_commit().is_err() && state.begin_abort().is_err());
        state.begin().unwrap();
        assert!(state.begin().is_err());
        state.begin_commit().unwrap();
        state.begin_commit().expect("a commit may be tried again");
        assert!(state.begin_abort().is_err(), "it may have been committed");
        assert!(state.end());
        state.begin().unwrap();
        state.begin_abort().unwrap();
        assert!(state.begin_commit().is_err());
        assert!(state.doom().is_some(), "what waits is given up");
    }
}
