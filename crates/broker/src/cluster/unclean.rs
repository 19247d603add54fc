//! Unclean elections on the active controller: log ends of the replicas that may be chosen where no complete replica serves.
//!
//! `highwater cluster elect --unclean` elects the replica with the greatest (last epoch, synced end). Health names that replica
//! before, for partitions without a complete one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ::link::{Links, service};
use metadata::decide::{
    BrokerRef, ElectLeaders2, ElectionKind, ReplicaEnd, ReplicaEnds, UncleanChoice,
};
use metadata::{ClusterImage, Request};
use model::{BrokerId, LeaderEpoch, Offset, PartitionIndex, TopicId};
use node::elections::NamedPartition;
use node::log_ends::{LogEnd, decode_answer, encode_request};
use parking_lot::Mutex;
use quorum::Quorum;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use tracing::debug;

use super::electing::LogEndsSource;
use super::links::ClusterLinks;

/// How long one request for log ends may take. A replica that does not answer in time is not elected.
const CALL_MAX: Duration = Duration::from_secs(1);
/// How often the controller reads the log ends of partitions without a complete replica, for health.
const READ_EVERY: Duration = Duration::from_secs(2);
/// Partitions without a complete replica that health names.
const NAMED_MAX: usize = 20;

/// Reads the ends of replicas' logs, of this node and of others.
#[derive(Clone)]
pub struct EndsReader {
    me: BrokerId,
    links: Arc<Links>,
    source: Arc<LogEndsSource>,
}

impl EndsReader {
    pub(super) fn new(me: BrokerId, links: &Arc<Links>, source: &Arc<LogEndsSource>) -> EndsReader {
        EndsReader { me, links: Arc::clone(links), source: Arc::clone(source) }
    }

    /// Adds log ends to a request for unclean elections. Other requests, and those of clusters that do not detect copies, stay.
    pub(super) async fn complete(&self, image: &ClusterImage, request: Request) -> Request {
        match request {
            Request::ElectLeaders(request)
                if request.kind == ElectionKind::Unclean && image.detects_copies() =>
            {
                let choices = image.unclean_choices(request.partitions.as_deref());
                let ends = self.read(&choices).await;
                Request::ElectLeaders2(ElectLeaders2 { request, ends })
            }
            other => other,
        }
    }

    /// The ends of all candidates that answer in time.
    async fn read(&self, choices: &[UncleanChoice]) -> Vec<ReplicaEnds> {
        let mut wanted: BTreeMap<BrokerRef, Vec<NamedPartition>> = BTreeMap::new();
        for choice in choices {
            for who in &choice.candidates {
                wanted.entry(*who).or_default().push((choice.topic_id, choice.partition));
            }
        }
        let mut calls = JoinSet::new();
        for (who, partitions) in wanted {
            let reader = self.clone();
            calls.spawn(async move {
                let ends = reader.read_one(who, &partitions).await.unwrap_or_default();
                (who, partitions, ends)
            });
        }
        let mut found: BTreeMap<NamedPartition, Vec<ReplicaEnd>> = BTreeMap::new();
        for (broker, partitions, ends) in calls.join_all().await {
            for (named, end) in partitions.into_iter().zip(ends) {
                let Some((last_epoch, end)) = end else { continue };
                found.entry(named).or_default().push(ReplicaEnd { broker, last_epoch, end });
            }
        }
        let of_choice = |choice: &UncleanChoice| ReplicaEnds {
            topic_id: choice.topic_id,
            partition: choice.partition,
            partition_epoch: choice.partition_epoch,
            ends: found.remove(&(choice.topic_id, choice.partition)).unwrap_or_default(),
        };
        choices.iter().map(of_choice).collect()
    }

    async fn read_one(&self, who: BrokerRef, partitions: &[NamedPartition]) -> Option<Vec<LogEnd>> {
        let (by, ends) = match who.broker == self.me {
            true => self.source.ends(partitions)?,
            false => {
                let request = encode_request(partitions);
                let called =
                    self.links.call(who.broker, service::LOG_ENDS, request, CALL_MAX).await;
                let answer = called.inspect_err(|cause| {
                    debug!(node = %who.broker, %cause, "cannot read log ends for an unclean election");
                });
                decode_answer(&answer.ok()?).ok()?
            }
        };
        (by == who).then_some(ends)
    }
}

/// The replica that an unclean election would choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongestReplica {
    /// The topic.
    pub topic_id: TopicId,
    /// The partition.
    pub partition: PartitionIndex,
    /// The broker with the greatest log end, the leader epoch of its last record, and the end; `None` if no replica answered.
    pub replica: Option<(BrokerId, LeaderEpoch, Offset)>,
}

impl LongestReplica {
    fn of(ends: &ReplicaEnds) -> LongestReplica {
        // Of equal ones the first, as in the election.
        let greatest = ends.ends.iter().rev().max_by_key(|end| (end.last_epoch, end.end));
        LongestReplica {
            topic_id: ends.topic_id,
            partition: ends.partition,
            replica: greatest.map(|end| (end.broker.broker, end.last_epoch, end.end)),
        }
    }
}

/// Partitions without a complete replica, as this node has read their log ends as the active controller.
#[derive(Debug, Default)]
pub(super) struct LongestReplicas(Mutex<Vec<LongestReplica>>);

impl LongestReplicas {
    /// The partitions, at most [`NAMED_MAX`]; none on a node that is not the active controller.
    pub(super) fn list(&self) -> Vec<LongestReplica> {
        self.0.lock().clone()
    }
}

/// Reads the log ends of partitions without a complete replica while this node is the active controller.
pub(super) async fn run(quorum: Arc<Quorum>, links: Arc<ClusterLinks>) {
    let mut ticks = interval(READ_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The entry up to which no partition lacks a complete replica.
    let mut none_at = None;
    loop {
        ticks.tick().await;
        let (index, image) = (quorum.applied_index(), quorum.image());
        let leads = quorum.is_leader() && image.detects_copies();
        let lost = match leads && none_at != index {
            true => lost_partitions(&image),
            false => Vec::new(),
        };
        none_at = index.filter(|_| leads && lost.is_empty());
        let ends = links.ends_reader().read(&lost).await;
        *links.longest_replicas().0.lock() = ends.iter().map(LongestReplica::of).collect();
    }
}

/// Partitions without a complete replica, the first [`NAMED_MAX`].
fn lost_partitions(image: &ClusterImage) -> Vec<UncleanChoice> {
    let mut choices = image.unclean_choices(None);
    choices.retain(|choice| !choice.has_complete && !choice.candidates.is_empty());
    choices.truncate(NAMED_MAX);
    choices
}

#[cfg(test)]
mod tests {
    use model::BrokerEpoch;

    use super::*;

    #[test]
    fn the_longest_replica_has_the_greatest_leader_epoch_and_then_the_greatest_end() {
        let end = |broker: i32, epoch: i32, end: i64| ReplicaEnd {
            broker: BrokerRef { broker: BrokerId(broker), epoch: BrokerEpoch(1) },
            last_epoch: LeaderEpoch(epoch),
            end: Offset(end),
        };
        let longest = |ends: &[ReplicaEnd]| {
            let (topic_id, partition) = (TopicId::default(), PartitionIndex(0));
            let ends = ReplicaEnds { topic_id, partition, partition_epoch: 1, ends: ends.to_vec() };
            LongestReplica::of(&ends).replica.map(|(broker, ..)| broker.0)
        };
        assert_eq!(longest(&[end(1, 2, 20), end(2, 3, 10), end(3, 1, 30)]), Some(2));
        assert_eq!(longest(&[end(1, 2, 20), end(2, 2, 21)]), Some(2));
        assert_eq!(longest(&[end(2, 2, 20), end(1, 2, 20)]), Some(2), "the first of equal ones");
        assert_eq!(longest(&[]), None);
    }
}
