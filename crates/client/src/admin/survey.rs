//! A look at a whole cluster: one request a broker for each question, all brokers at once, and nothing asked twice. What one
//! broker does not say is an error of its own, beside what the others say: a look is never refused as a whole because of
//! one broker, and a caller that wants to know again looks again.
//!
//! Read [`Admin::log_offsets`]; the others are like it.

use super::Admin;
use crate::cluster::{Cluster, Lane};
use crate::error::{ClientError, check};
use crate::metadata::Metadata;
use crate::offsets::{self, CommittedOffset, FoundOffset, OffsetSpec};
use model::{ErrorCode, TopicPartition};
use std::collections::{BTreeMap, HashMap};
use tokio::task::JoinSet;
use wire::describe_log_dirs::DescribeLogDirsResult;
use wire::list_groups::ListedGroup;
use wire::{DescribeLogDirsRequest, ListGroupsRequest, Request};

/// Partitions in one request for offsets, so that neither it nor its answer is unbounded.
const PARTITIONS_MAX: usize = 5_000;
/// Groups in one request for committed offsets.
const GROUPS_MAX: usize = 100;

/// What each broker said, or why it said nothing; by id.
pub type ByBroker<T> = BTreeMap<i32, Result<T, ClientError>>;
/// Offsets by partition, or why there is none.
pub type Offsets = HashMap<TopicPartition, Result<FoundOffset, ErrorCode>>;
/// What each group committed, or why that is not known.
pub type Committed = HashMap<String, Result<HashMap<TopicPartition, CommittedOffset>, ErrorCode>>;

impl Admin {
    /// An offset of every partition of `metadata` that has a leader. Brokers that say nothing stand in the second part.
    pub async fn log_offsets(
        &self,
        metadata: &Metadata,
        spec: OffsetSpec,
    ) -> (Offsets, BTreeMap<i32, ClientError>) {
        let mut by_leader: BTreeMap<i32, Vec<(TopicPartition, OffsetSpec)>> = BTreeMap::new();
        for topic in metadata.topics.values() {
            for partition in &topic.partitions {
                let Some(leader) = partition.leader else { continue };
                let named = TopicPartition::new(topic.name.clone(), partition.index);
                by_leader.entry(leader).or_default().push((named, spec));
            }
        }
        let answers = self
            .ask_each(by_leader, |cluster, broker, wanted| async move {
                let mut found = Offsets::new();
                for some in wanted.chunks(PARTITIONS_MAX) {
                    offsets::list_at(&cluster, broker, some, &mut found).await?;
                }
                Ok(found)
            })
            .await;
        let (mut found, mut silent) = (Offsets::new(), BTreeMap::new());
        for (broker, answer) in answers {
            match answer {
                Ok(offsets) => found.extend(offsets),
                Err(error) => drop(silent.insert(broker, error)),
            }
        }
        (found, silent)
    }

    /// An offset of one partition, asked of the leader that `metadata` names.
    pub async fn log_offset(
        &self,
        metadata: &Metadata,
        partition: &TopicPartition,
        spec: OffsetSpec,
    ) -> Result<FoundOffset, ClientError> {
        let refused = |code| ClientError::refused(format!("offset of {partition}"), code);
        let leader = metadata.leader(&partition.topic, partition.partition.0);
        let leader = leader.ok_or_else(|| refused(ErrorCode::LeaderNotAvailable))?;
        let mut found = Offsets::new();
        offsets::list_at(&self.cluster, leader, &[(partition.clone(), spec)], &mut found).await?;
        let found = found.remove(partition).ok_or_else(|| super::missing("an offset"))?;
        found.map_err(refused)
    }

    /// The log directories of each of these brokers, and the partitions in them.
    pub async fn log_dirs_of(&self, brokers: &[i32]) -> ByBroker<Vec<DescribeLogDirsResult>> {
        let brokers = brokers.iter().map(|broker| (*broker, ()));
        self.ask_each(brokers, |cluster, broker, ()| async move {
            let request = DescribeLogDirsRequest { topics: None };
            let response = ask(&cluster, broker, &request).await?;
            check(response.error(), None, || format!("log directories of broker {broker}"))?;
            Ok(response.results)
        })
        .await
    }

    /// The groups that each of these brokers coordinates.
    pub async fn groups_of(&self, brokers: &[i32]) -> ByBroker<Vec<ListedGroup>> {
        let brokers = brokers.iter().map(|broker| (*broker, ()));
        self.ask_each(brokers, |cluster, broker, ()| async move {
            let response = ask(&cluster, broker, &ListGroupsRequest::default()).await?;
            check(response.error(), None, || format!("groups of broker {broker}"))?;
            Ok(response.groups)
        })
        .await
    }

    /// What groups have committed, asked of the brokers that coordinate them.
    pub async fn committed_of(&self, groups: BTreeMap<i32, Vec<String>>) -> ByBroker<Committed> {
        self.ask_each(groups, |cluster, broker, groups| async move {
            let mut all = Committed::new();
            for some in groups.chunks(GROUPS_MAX) {
                offsets::committed_at(&cluster, broker, some, &mut all).await?;
            }
            Ok(all)
        })
        .await
    }

    /// Asks brokers at once, each about what is its own.
    async fn ask_each<W, T, F>(
        &self,
        wanted: impl IntoIterator<Item = (i32, W)>,
        ask: impl Fn(Cluster, i32, W) -> F,
    ) -> ByBroker<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ClientError>> + Send + 'static,
    {
        let mut asking = JoinSet::new();
        for (broker, wanted) in wanted {
            let asked = ask(self.cluster.clone(), broker, wanted);
            asking.spawn(async move { (broker, asked.await) });
        }
        let mut answers = ByBroker::new();
        while let Some(done) = asking.join_next().await {
            // A task that panicked has said so already; its broker is one that said nothing.
            answers.extend(done.ok());
        }
        answers
    }
}

async fn ask<R: Request>(
    cluster: &Cluster,
    broker: i32,
    request: &R,
) -> Result<R::Response, ClientError> {
    cluster.broker(broker, Lane::Common).await?.call(request).await
}
