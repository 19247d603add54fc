//! Look-ups of the offsets at which partitions begin: a task for each leader, beside the fetches of other partitions. A
//! partition without a leader, or a leader that does not answer, delays no other partition.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Instant;

use model::{ErrorCode, TopicPartition};
use tokio::task::JoinSet;

use crate::cluster::Cluster;
use crate::error::ClientError;
use crate::offsets::{self, FoundOffset, OffsetSpec};

/// Result for one partition.
pub(super) type FoundPosition = (TopicPartition, Result<FoundOffset, ClientError>);

/// The look-ups of one consumer.
pub(super) struct PositionLookups {
    cluster: Cluster,
    tasks: JoinSet<Vec<FoundPosition>>,
    running: HashSet<TopicPartition>,
    /// Answers that were waited for, not taken yet.
    ready: Vec<FoundPosition>,
    /// Begin of the next attempt, after a failure.
    not_before: Option<Instant>,
    /// Time of the first of the attempts that failed in a row.
    failing_since: Option<Instant>,
    /// Reasons of the last failures.
    failures: HashMap<TopicPartition, String>,
}

impl PositionLookups {
    pub(super) fn new(cluster: Cluster) -> PositionLookups {
        PositionLookups {
            cluster,
            tasks: JoinSet::new(),
            running: HashSet::new(),
            ready: Vec::new(),
            not_before: None,
            failing_since: None,
            failures: HashMap::new(),
        }
    }

    /// Reason why the position of a partition is not found yet; `None` while the first look-up is under way.
    pub(super) fn obstacle(&self, partition: &TopicPartition) -> Option<String> {
        self.failures.get(partition).cloned()
    }

    /// Begins the look-ups of these partitions that are not under way, unless an attempt failed a moment ago.
    pub(super) fn begin(
        &mut self,
        partitions: &[TopicPartition],
        spec: OffsetSpec,
        read_committed: bool,
    ) {
        if self.not_before.is_some_and(|at| at > Instant::now()) {
            return;
        }
        let metadata = self.cluster.metadata();
        let mut by_leader: BTreeMap<i32, Vec<TopicPartition>> = BTreeMap::new();
        for partition in partitions.iter().filter(|it| !self.running.contains(*it)) {
            match metadata.leader(&partition.topic, partition.partition.0) {
                Some(leader) => by_leader.entry(leader).or_default().push(partition.clone()),
                None => {
                    let what = format!("offset of {partition}");
                    let error = ClientError::refused(what, ErrorCode::LeaderNotAvailable);
                    self.ready.push((partition.clone(), Err(error)));
                }
            }
        }
        for (leader, partitions) in by_leader {
            self.running.extend(partitions.iter().cloned());
            let cluster = self.cluster.clone();
            self.tasks.spawn(async move {
                let wanted: Vec<_> = partitions.iter().map(|it| (it.clone(), spec)).collect();
                offsets::list_at_leader(&cluster, leader, &wanted, read_committed).await
            });
        }
    }

    /// Results that are there.
    pub(super) fn take(&mut self) -> Vec<FoundPosition> {
        while let Some(joined) = self.tasks.try_join_next() {
            self.keep(joined.expect("a look-up does not panic"));
        }
        let taken = std::mem::take(&mut self.ready);
        for (partition, found) in &taken {
            match found {
                Ok(_) => drop(self.failures.remove(partition)),
                Err(error) => drop(self.failures.insert(partition.clone(), error.to_string())),
            }
        }
        if taken.iter().any(|(_, found)| found.is_err()) {
            let now = Instant::now();
            let since = *self.failing_since.get_or_insert(now);
            self.not_before = Some(now + super::pause_of_absence(&self.cluster, since));
        } else if !taken.is_empty() {
            self.failing_since = None;
        }
        taken
    }

    /// Waits for a result, which [`PositionLookups::take`] returns. Waits for ever while no look-up is under way.
    pub(super) async fn wait(&mut self) {
        match self.tasks.join_next().await {
            Some(joined) => self.keep(joined.expect("a look-up does not panic")),
            None => std::future::pending().await,
        }
    }

    fn keep(&mut self, found: Vec<FoundPosition>) {
        found.iter().for_each(|(partition, _)| {
            self.running.remove(partition);
        });
        self.ready.extend(found);
    }

    /// Ends all look-ups: the assignment is another one.
    pub(super) fn forget(&mut self) {
        self.tasks = JoinSet::new();
        self.running.clear();
        self.ready.clear();
        self.failures.clear();
        self.not_before = None;
    }
}
