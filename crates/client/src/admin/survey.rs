//! A look at a whole cluster: one request a broker for each question, all brokers at once, and nothing asked twice. What one
//! broker does not say is an error of its own, beside what the others say: a look is never refused as a whole because of
//! one broker, and a caller that wants to know again looks again.
//!
//! Answers are as large as the cluster, so they are not gathered here: the caller takes each as it comes, and while it has not,
//! each broker has one answer waiting at most.
//!
//! Read [`Admin::log_offsets`]; the others are like it.

use super::Admin;
use crate::cluster::{Cluster, Lane};
use crate::error::{ClientError, check};
use crate::metadata::{Metadata, Topic};
use crate::offsets::{self, FoundOffset, OfGroup, OffsetSpec};
use model::{ErrorCode, TopicPartition};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use wire::describe_log_dirs::DescribeLogDirsResult;
use wire::list_groups::ListedGroup;
use wire::{DescribeLogDirsRequest, ListGroupsRequest, ListOffsetsResponse, Request};

/// Partitions in one request for offsets, so that neither it nor its answer is unbounded.
const PARTITIONS_MAX: usize = 5_000;
/// Groups in one request for committed offsets.
const GROUPS_MAX: usize = 100;

/// What each broker said, or why it said nothing; by id.
pub type ByBroker<T> = BTreeMap<i32, Result<T, ClientError>>;
/// Brokers that did not say everything, and why; by id.
pub type Silent = BTreeMap<i32, ClientError>;

/// Partitions by the broker that leads them. Those without a leader are left out.
#[derive(Debug, Clone, Default)]
pub struct Led(BTreeMap<i32, OfLeader>);

/// Topics and partitions; those of a topic follow each other.
type OfLeader = Arc<[(Arc<str>, i32)]>;

impl Led {
    /// All partitions of these topics. `name` gives a topic's name, where the caller has one that lasts longer than the metadata.
    pub fn of<'a>(
        topics: impl IntoIterator<Item = &'a Topic>,
        name: impl Fn(&str) -> Option<Arc<str>>,
    ) -> Led {
        let mut by_leader: BTreeMap<i32, Vec<(Arc<str>, i32)>> = BTreeMap::new();
        for topic in topics {
            let name = name(&topic.name).unwrap_or_else(|| topic.name.clone());
            for partition in &topic.partitions {
                let Some(leader) = partition.leader else { continue };
                by_leader.entry(leader).or_default().push((name.clone(), partition.index));
            }
        }
        Led(by_leader.into_iter().map(|(leader, led)| (leader, Arc::from(led))).collect())
    }
}

/// Where the task that asks a broker puts answers, or parts of them.
struct Answers<T> {
    broker: i32,
    sender: mpsc::Sender<(i32, T)>,
}

impl<T> Answers<T> {
    async fn put(&self, answer: T) {
        // Nobody takes it any more: the look was given up.
        let _ = self.sender.send((self.broker, answer)).await;
    }
}

impl Admin {
    /// An offset of every partition that has a leader: topic, partition, and what was found.
    pub async fn log_offsets(
        &self,
        led: &Led,
        spec: OffsetSpec,
        mut take: impl FnMut(&str, i32, Result<FoundOffset, ErrorCode>),
    ) -> Silent {
        let wanted = led.0.iter().map(|(leader, led)| (*leader, Arc::clone(led)));
        let ask = move |cluster: Cluster, wanted: OfLeader, answers: Answers<_>| async move {
            for some in wanted.chunks(PARTITIONS_MAX) {
                let answer = offsets::list_at(&cluster, answers.broker, some, spec).await?;
                answers.put(answer).await;
            }
            Ok(())
        };
        let take = |_, answer: ListOffsetsResponse| {
            for topic in &answer.topics {
                for partition in &topic.partitions {
                    take(&topic.name, partition.partition_index, offsets::found_at(partition));
                }
            }
        };
        self.ask_each(wanted, ask, take).await
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
        let wanted = [(partition.topic.clone(), partition.partition.0)];
        let answer = offsets::list_at(&self.cluster, leader, &wanted, spec).await?;
        let found = answer.topics.first().and_then(|topic| topic.partitions.first());
        let found = found.ok_or_else(|| super::missing("an offset"))?;
        offsets::found_at(found).map_err(refused)
    }

    /// The log directories of each of these brokers, and the partitions in them.
    pub async fn log_dirs_of(
        &self,
        brokers: &[i32],
        take: impl FnMut(i32, Vec<DescribeLogDirsResult>),
    ) -> Silent {
        let brokers = brokers.iter().map(|broker| (*broker, ()));
        let ask = |cluster: Cluster, (), answers: Answers<_>| async move {
            let (request, broker) = (DescribeLogDirsRequest { topics: None }, answers.broker);
            let response = ask(&cluster, broker, &request).await?;
            check(response.error(), None, || format!("log directories of broker {broker}"))?;
            answers.put(response.results).await;
            Ok(())
        };
        self.ask_each(brokers, ask, take).await
    }

    /// The groups that each of these brokers coordinates.
    pub async fn groups_of(&self, brokers: &[i32]) -> ByBroker<Vec<ListedGroup>> {
        let brokers = brokers.iter().map(|broker| (*broker, ()));
        let mut groups = ByBroker::new();
        let ask = |cluster: Cluster, (), answers: Answers<_>| async move {
            let broker = answers.broker;
            let response = ask(&cluster, broker, &ListGroupsRequest::default()).await?;
            check(response.error(), None, || format!("groups of broker {broker}"))?;
            answers.put(response.groups).await;
            Ok(())
        };
        let take = |broker, some| drop(groups.insert(broker, Ok(some)));
        let silent = self.ask_each(brokers, ask, take).await;
        groups.extend(silent.into_iter().map(|(broker, error)| (broker, Err(error))));
        groups
    }

    /// What groups have committed, asked of the brokers that coordinate them.
    pub async fn committed_of(
        &self,
        groups: BTreeMap<i32, Vec<String>>,
        mut take: impl FnMut(String, OfGroup),
    ) -> Silent {
        let ask = |cluster: Cluster, groups: Vec<String>, answers: Answers<_>| async move {
            for some in groups.chunks(GROUPS_MAX) {
                answers.put(offsets::committed_at(&cluster, answers.broker, some).await?).await;
            }
            Ok(())
        };
        let take = |_, some: Vec<(String, OfGroup)>| {
            some.into_iter().for_each(|(group, committed)| take(group, committed));
        };
        self.ask_each(groups, ask, take).await
    }

    /// Asks brokers at once, each about what is its own, and takes their answers as they come.
    async fn ask_each<W, T, F>(
        &self,
        wanted: impl IntoIterator<Item = (i32, W)>,
        ask: impl Fn(Cluster, W, Answers<T>) -> F,
        mut take: impl FnMut(i32, T),
    ) -> Silent
    where
        T: Send + 'static,
        F: Future<Output = Result<(), ClientError>> + Send + 'static,
    {
        let (sender, mut answers) = mpsc::channel(1);
        let mut asking = JoinSet::new();
        for (broker, wanted) in wanted {
            let put = Answers { broker, sender: sender.clone() };
            let asked = ask(self.cluster.clone(), wanted, put);
            asking.spawn(async move { (broker, asked.await) });
        }
        drop(sender);
        while let Some((broker, answer)) = answers.recv().await {
            take(broker, answer);
        }
        let mut silent = Silent::new();
        while let Some(done) = asking.join_next().await {
            // A task that panicked has said so already; its broker is one that said nothing.
            if let Ok((broker, Err(error))) = done {
                silent.insert(broker, error);
            }
        }
        silent
    }
}

async fn ask<R: Request>(
    cluster: &Cluster,
    broker: i32,
    request: &R,
) -> Result<R::Response, ClientError> {
    cluster.broker(broker, Lane::Common).await?.call(request).await
}
