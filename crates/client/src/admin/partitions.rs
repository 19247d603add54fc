//! Replicas: elections, reassignments, log directories; producers and transactions.

use super::{Admin, Each, TIMEOUT_MS, each};
use crate::cluster::{CoordinatorKind, Lane};
use crate::error::{ClientError, check};
use model::{ErrorCode, TopicPartition};
use std::collections::BTreeMap;
use wire::alter_partition_reassignments::{ReassignablePartition, ReassignableTopic};
use wire::describe_log_dirs::DescribeLogDirsResult;
use wire::describe_producers::{ProducerState, TopicRequest};
use wire::describe_transactions::TransactionState;
use wire::elect_leaders::TopicPartitions;
use wire::list_partition_reassignments::OngoingPartitionReassignment;
use wire::list_transactions;
use wire::{
    AlterPartitionReassignmentsRequest, DescribeLogDirsRequest, DescribeProducersRequest,
    DescribeTransactionsRequest, ElectLeadersRequest, ListPartitionReassignmentsRequest,
    ListTransactionsRequest,
};

impl Admin {
    /// Makes the preferred replica lead; with `unclean`, any replica that is alive, even if that
    /// loses records. `None` for all partitions.
    pub async fn elect_leaders(
        &self,
        unclean: bool,
        partitions: Option<&[TopicPartition]>,
    ) -> Result<Each<()>, ClientError> {
        let topic = |(topic, partitions)| TopicPartitions { topic, partitions };
        let request = ElectLeadersRequest {
            election_type: unclean as i8,
            topic_partitions: partitions
                .map(|list| Admin::by_topic(list).into_iter().map(topic).collect()),
            timeout_ms: TIMEOUT_MS,
        };
        let response = self.change(&request, |r| r.error()).await?;
        let rows = response.replica_election_results.iter().flat_map(|t| {
            t.partition_result.iter().map(move |p| {
                let name = TopicPartition::new(&*t.topic, p.partition_id).to_string();
                each(name, p.error(), p.error_message.as_deref(), ())
            })
        });
        Ok(rows.collect())
    }

    /// Moves replicas to these brokers; `None` cancels a move that is under way.
    pub async fn alter_reassignments(
        &self,
        moves: &[(TopicPartition, Option<Vec<i32>>)],
    ) -> Result<Each<()>, ClientError> {
        let mut topics: BTreeMap<&str, Vec<ReassignablePartition>> = BTreeMap::new();
        for (partition, replicas) in moves {
            topics.entry(&partition.topic).or_default().push(ReassignablePartition {
                partition_index: partition.partition.0,
                replicas: replicas.clone(),
            });
        }
        let topic =
            |(name, partitions): (&str, _)| ReassignableTopic { name: name.to_owned(), partitions };
        let request = AlterPartitionReassignmentsRequest {
            timeout_ms: TIMEOUT_MS,
            topics: topics.into_iter().map(topic).collect(),
            ..Default::default()
        };
        let response = self.change(&request, |r| r.error()).await?;
        let rows = response.responses.iter().flat_map(|t| {
            t.partitions.iter().map(move |p| {
                let name = TopicPartition::new(&*t.name, p.partition_index).to_string();
                each(name, p.error(), p.error_message.as_deref(), ())
            })
        });
        Ok(rows.collect())
    }

    /// The moves of replicas that are under way.
    pub async fn list_reassignments(
        &self,
    ) -> Result<Vec<(TopicPartition, OngoingPartitionReassignment)>, ClientError> {
        let request = ListPartitionReassignmentsRequest { timeout_ms: TIMEOUT_MS, topics: None };
        let response = self.change(&request, |r| r.error()).await?;
        let topics = response.topics.into_iter();
        Ok(topics
            .flat_map(|t| {
                t.partitions
                    .into_iter()
                    .map(move |p| (TopicPartition::new(&*t.name, p.partition_index), p))
            })
            .collect())
    }

    /// The log directories of every broker and what is in them.
    pub async fn describe_log_dirs(
        &self,
    ) -> Result<Vec<(i32, Vec<DescribeLogDirsResult>)>, ClientError> {
        let request = DescribeLogDirsRequest { topics: None };
        let mut out = Vec::new();
        for (broker, response) in self.call_all(&request).await? {
            check(response.error(), None, || format!("log directories of broker {broker}"))?;
            out.push((broker, response.results));
        }
        Ok(out)
    }

    /// The producers that are active in a partition, as its leader knows them.
    pub async fn describe_producers(
        &self,
        partition: &TopicPartition,
    ) -> Result<Vec<ProducerState>, ClientError> {
        let topic = TopicRequest {
            name: partition.topic.to_string(),
            partition_indexes: vec![partition.partition.0],
        };
        let request = DescribeProducersRequest { topics: vec![topic] };
        self.cluster
            .retry(|| async {
                let leader = self.leader(partition).await?;
                let connection = self.cluster.broker(leader, Lane::Common).await?;
                let response = connection.call(&request).await?;
                let answer = response.topics.into_iter().flat_map(|t| t.partitions).next();
                let answer = answer.ok_or_else(|| super::missing("an answer"))?;
                let message = answer.error_message.as_deref();
                check(answer.error(), message, || format!("producers of {partition}"))?;
                Ok(answer.active_producers)
            })
            .await
    }

    /// All transactional ids of the cluster and the states of their transactions.
    pub async fn list_transactions(
        &self,
    ) -> Result<Vec<list_transactions::TransactionState>, ClientError> {
        let mut out = Vec::new();
        for (broker, response) in self.call_all(&ListTransactionsRequest::default()).await? {
            check(response.error(), None, || format!("transactions of broker {broker}"))?;
            out.extend(response.transaction_states);
        }
        out.sort_by(|a, b| a.transactional_id.cmp(&b.transactional_id));
        Ok(out)
    }

    /// All about one transactional id.
    pub async fn describe_transaction(
        &self,
        transactional_id: &str,
    ) -> Result<TransactionState, ClientError> {
        let transactional_ids = vec![transactional_id.to_owned()];
        let request = DescribeTransactionsRequest { transactional_ids };
        let error = |r: &wire::DescribeTransactionsResponse| {
            r.transaction_states.first().map_or(ErrorCode::None, TransactionState::error)
        };
        let kind = CoordinatorKind::Transaction;
        let response =
            self.cluster.call_coordinator(kind, transactional_id, &request, error).await?;
        let state = response.transaction_states.into_iter().next();
        let state = state.ok_or_else(|| super::missing("an answer"))?;
        check(state.error(), None, || format!("transaction {transactional_id}"))?;
        Ok(state)
    }
}
