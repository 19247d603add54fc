//! Transactions (KIP-98): what the coordinator of a transactional producer is asked, and when.
//!
//! A partition is added by a request of its own before its first batch is sent, and the epoch stays
//! from transaction to transaction: every broker since 0.11 takes that, those of 4.x beside what
//! they prefer (KIP-890). Not here: offsets of consumers within a transaction.

mod state;

use super::numbering::Identity;
use super::queue::PartitionQueue;
use super::{Producer, Shared, lock};
use crate::cluster::{Cluster, CoordinatorKind};
use crate::error::{ClientError, check};
use model::{ErrorCode, ProducerEpoch, ProducerId};
use state::{Member, State, explained};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wire::add_partitions_to_txn::AddPartitionsToTxnTopic;
use wire::{
    AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, EndTxnRequest, InitProducerIdRequest,
    Request,
};

/// The attribute of a batch that belongs to a transaction.
pub(super) const BATCH_FLAG: i16 = 0x10;
/// From the next version on, a batch adds its partition to the transaction itself.
pub(super) const PRODUCE_VERSION_MAX: i16 = 11;
/// From the next version on, brokers ask brokers.
const ADD_PARTITIONS_VERSION_MAX: i16 = 3;
/// From the next version on, each transaction has an epoch of its own.
const END_VERSION_MAX: i16 = 4;

/// What a transactional producer has beside its batches.
pub(super) struct Transaction {
    /// `transactional.id`.
    id: String,
    timeout: Duration,
    state: Mutex<State>,
    /// Held while the coordinator is asked: a partition that is added behind the end would begin
    /// another transaction.
    turn: tokio::sync::Mutex<()>,
}

impl Transaction {
    pub(super) fn new(id: &str, timeout: Duration) -> Transaction {
        let state = Mutex::new(State::default());
        Transaction { id: id.to_owned(), timeout, state, turn: tokio::sync::Mutex::default() }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Why no record is taken now.
    pub(super) fn refusal(&self) -> ClientError {
        lock(&self.state).refusal()
    }

    /// Why all that waits is given up; `None` while it is not.
    pub(super) fn doom(&self) -> Option<ClientError> {
        lock(&self.state).doom()
    }

    /// Whether batches of this partition may be sent; else it will be added first.
    pub(super) fn admits(&self, queue: &PartitionQueue) -> bool {
        lock(&self.state).admits((queue.topic.clone(), queue.partition))
    }

    /// Whether [`add_partitions`] is to be run now.
    pub(super) fn begin_adding(&self) -> bool {
        lock(&self.state).begin_adding()
    }

    /// Asks for an identity: the first one, which also ends what a producer before this one left
    /// open, or after `last` the next epoch.
    pub(super) async fn identity(
        &self,
        cluster: &Cluster,
        last: Identity,
    ) -> Result<Identity, ClientError> {
        let request = InitProducerIdRequest {
            transactional_id: Some(self.id.clone()),
            transaction_timeout_ms: self.timeout.as_millis().try_into().unwrap_or(i32::MAX),
            producer_id: last.0.0,
            producer_epoch: last.1.0,
            ..Default::default()
        };
        let response = self.ask(cluster, &request, i16::MAX, |r| r.error()).await?;
        Ok((ProducerId(response.producer_id), ProducerEpoch(response.producer_epoch)))
    }

    /// Asks the coordinator, again if that may help, in this version at most.
    async fn ask<R: Request>(
        &self,
        cluster: &Cluster,
        request: &R,
        version_max: i16,
        error: impl Fn(&R::Response) -> ErrorCode,
    ) -> Result<R::Response, ClientError> {
        let kind = CoordinatorKind::Transaction;
        let asked = cluster.call_coordinator_up_to(version_max, kind, &self.id, request, &error);
        let response = asked.await?;
        let what = || format!("{} for transactional.id {}", R::API_KEY.name(), self.id);
        check(error(&response), None, what).map_err(|error| explained(&error))?;
        Ok(response)
    }

    /// Ends the transaction with the coordinator, and closes the gap that it may have left.
    async fn end(&self, shared: &Shared, committed: bool) -> Result<(), ClientError> {
        let _turn = self.turn.lock().await;
        let is_known = lock(&self.state).to_end()?;
        if is_known {
            let identity = shared.identity();
            let request = end_request(&self.id, identity, committed);
            let asked = self.ask(&shared.cluster, &request, END_VERSION_MAX, |r| r.error()).await;
            if let Err(error) = &asked
                && !error.is_retriable()
            {
                shared.fail_transaction(error);
            }
            // Not answered: it may have happened, and the same may be asked again.
            asked?;
        }
        while !lock(&self.state).end() {
            let last = shared.identity();
            let renewed = self.identity(&shared.cluster, last).await;
            let renewed = renewed.inspect_err(|error| shared.fail_transaction(error))?;
            shared.renumber(renewed);
        }
        Ok(())
    }
}

/// Adds the partitions that are wanted.
pub(super) async fn add_partitions(shared: Arc<Shared>) {
    let Some(transaction) = &shared.transaction else { return };
    let _turn = transaction.turn.lock().await;
    let members = lock(&transaction.state).to_add();
    let mut result = Ok(());
    if !members.is_empty() {
        let identity = shared.identity();
        let request = add_request(&transaction.id, identity, &members);
        let version_max = ADD_PARTITIONS_VERSION_MAX;
        result = transaction.ask(&shared.cluster, &request, version_max, add_error).await.map(drop);
    }
    lock(&transaction.state).end_adding(members, &result);
    match result {
        Ok(()) => shared.ready.wake(),
        Err(error) => shared.fail_transaction(&error),
    }
}

fn add_request(
    id: &str,
    (producer_id, epoch): Identity,
    members: &[Member],
) -> AddPartitionsToTxnRequest {
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for (topic, partition) in members {
        topics.entry(topic).or_default().push(*partition);
    }
    let topics = topics
        .into_iter()
        .map(|(name, partitions)| AddPartitionsToTxnTopic { name: name.to_owned(), partitions });
    AddPartitionsToTxnRequest {
        v3_and_below_transactional_id: id.to_owned(),
        v3_and_below_producer_id: producer_id.0,
        v3_and_below_producer_epoch: epoch.0,
        v3_and_below_topics: topics.collect(),
        ..Default::default()
    }
}

/// What went wrong: all partitions are added or none is, and those with which nothing is wrong are
/// then called not attempted.
fn add_error(response: &AddPartitionsToTxnResponse) -> ErrorCode {
    let topics = response.results_by_topic_v3_and_below.iter();
    let codes = topics
        .flat_map(|topic| &topic.results_by_partition)
        .map(|partition| wire::error_of(partition.partition_error_code))
        .filter(|code| !code.is_none());
    let by_weight = |code: &ErrorCode| *code == ErrorCode::OperationNotAttempted;
    codes.min_by_key(by_weight).unwrap_or(ErrorCode::None)
}

fn end_request(id: &str, (producer_id, epoch): Identity, committed: bool) -> EndTxnRequest {
    EndTxnRequest {
        transactional_id: id.to_owned(),
        producer_id: producer_id.0,
        producer_epoch: epoch.0,
        committed,
    }
}

impl Shared {
    /// Within a transaction nothing may be missing: what was not taken or not delivered dooms it.
    /// Without one nothing happens.
    pub(super) fn fail_transaction(&self, error: &ClientError) {
        let Some(transaction) = &self.transaction else { return };
        let mut state = lock(&transaction.state);
        state.fail(error);
        self.shut(Shared::OUTSIDE);
        drop(state);
        // The sender gives up what waits.
        self.ready.wake();
    }
}

/// With `transactional.id`, records are taken within a transaction only.
impl Producer {
    fn transaction(&self) -> Result<&Transaction, ClientError> {
        let none = || ClientError::Usage("the producer has no transactional.id".to_owned());
        self.shared().transaction.as_ref().ok_or_else(none)
    }

    /// Begins a transaction.
    pub fn begin_transaction(&self) -> Result<(), ClientError> {
        let mut state = lock(&self.transaction()?.state);
        state.begin()?;
        self.shared().unshut(Shared::OUTSIDE);
        Ok(())
    }

    /// Sends what has been taken, waits until it has ended, and commits; no record may be handed
    /// over meanwhile. Fails if one was not delivered: then the transaction must be aborted. May be
    /// called again if it took too long.
    pub async fn commit_transaction(&self) -> Result<(), ClientError> {
        let transaction = self.transaction()?;
        lock(&transaction.state).begin_commit()?;
        self.shared().shut(Shared::OUTSIDE);
        // What fails is known to the state.
        let _ = self.flush().await;
        transaction.end(self.shared(), true).await
    }

    /// Gives up what has not been sent, and aborts; no record may be handed over meanwhile. May be
    /// called again if it took too long. What nobody ends the cluster aborts after
    /// `transaction.timeout.ms`.
    pub async fn abort_transaction(&self) -> Result<(), ClientError> {
        let transaction = self.transaction()?;
        lock(&transaction.state).begin_abort()?;
        self.shared().shut(Shared::OUTSIDE);
        self.shared().ready.wake();
        let _ = self.flush().await;
        transaction.end(self.shared(), false).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::add_partitions_to_txn::{
        AddPartitionsToTxnPartitionResult, AddPartitionsToTxnTopicResult,
    };

    #[test]
    fn the_error_of_a_request_is_that_of_the_partition_that_has_one() {
        let response = |codes: &[ErrorCode]| {
            let of = |(code, partition_index): (&ErrorCode, i32)| {
                let partition_error_code = code.code();
                AddPartitionsToTxnPartitionResult { partition_index, partition_error_code }
            };
            AddPartitionsToTxnResponse {
                results_by_topic_v3_and_below: vec![AddPartitionsToTxnTopicResult {
                    name: "t".to_owned(),
                    results_by_partition: codes.iter().zip(0..).map(of).collect(),
                }],
                ..Default::default()
            }
        };
        use ErrorCode::{None, OperationNotAttempted, TopicAuthorizationFailed};
        assert_eq!(add_error(&response(&[None, None])), None);
        let codes = [OperationNotAttempted, TopicAuthorizationFailed, OperationNotAttempted];
        assert_eq!(add_error(&response(&codes)), TopicAuthorizationFailed);
        assert_eq!(add_error(&response(&[OperationNotAttempted])), OperationNotAttempted);
    }

    #[test]
    fn partitions_are_asked_for_topic_by_topic() {
        let t: Arc<str> = Arc::from("t");
        let other: Member = (Arc::from("s"), 4);
        let identity = (ProducerId(7), ProducerEpoch(2));
        let request = add_request("x", identity, &[(t.clone(), 1), other, (t, 0)]);
        let topics: Vec<_> = (request.v3_and_below_topics.iter())
            .map(|topic| (topic.name.as_str(), &topic.partitions[..]))
            .collect();
        assert_eq!(topics, [("s", &[4][..]), ("t", &[1, 0])]);
        assert_eq!(request.v3_and_below_transactional_id, "x");
        let producer = (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch);
        assert_eq!(producer, (7, 2));
    }
}
