//! The delta: what changed between two images, for those who react to changes.
//!
//! It names what changed; what it is now stands in the image after, what it was in the image
//! before. [`ImageUpdate::local_changes`] says what that means for the replicas on one broker.

use crate::decide::UncleanElection;
use crate::image::{ClusterImage, PartitionImage, TopicImage};
use crate::record::{ConfigResource, MetadataRecord, PartitionRecord};
use model::{BrokerId, PartitionIndex, TopicId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What happened to one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopicChange {
    /// It is new; so are all its partitions.
    Created,
    /// Some partitions are new or have changed.
    Changed(BTreeSet<PartitionIndex>),
    /// It is gone; its name.
    Deleted(Arc<str>),
}

/// What changed. Empty if nothing did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageDelta {
    /// Topics by id. A topic that came and went is not there.
    pub topics: BTreeMap<TopicId, TopicChange>,
    /// Brokers registered, fenced, unfenced, about to stop, or unregistered, and those that cannot serve some replicas.
    pub brokers: BTreeSet<BrokerId>,
    /// Resources whose configuration changed (not those of deleted topics).
    pub configs: BTreeSet<ConfigResource>,
    /// Whether the cluster's id or its features changed.
    pub cluster: bool,
    /// Elections after which acknowledged records may be missing (R4): each of them, however many steps are taken as
    /// one. A snapshot in the place of steps does not tell of them.
    pub unclean: Vec<UncleanElection>,
}

/// One step of the cluster, as subscribers see it: steps follow each other without a gap.
#[derive(Clone, Debug)]
pub struct ImageUpdate {
    /// The offset of the newest record in `after`.
    pub index: u64,
    /// The image that this step began from: the `after` of the step before.
    pub before: Arc<ClusterImage>,
    /// The image now.
    pub after: Arc<ClusterImage>,
    /// What changed.
    pub delta: Arc<ImageDelta>,
}

/// What a step means for one replica on one broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalChange {
    /// The topic's name.
    pub topic: Arc<str>,
    /// The topic's id.
    pub topic_id: TopicId,
    /// The partition.
    pub partition: PartitionIndex,
    /// What to do.
    pub kind: LocalChangeKind,
}

/// What became of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalChangeKind {
    /// Lead it from now on, or go on leading with this state.
    Lead(PartitionImage),
    /// Follow its leader, or wait for one if it has none.
    Follow(PartitionImage),
    /// The topic is gone, or the replica was moved away: close it and delete its files.
    Remove,
}

impl ImageDelta {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        *self == ImageDelta::default()
    }

    /// Notes what a record changes. `before` is the image that has not replayed it yet.
    pub fn note(&mut self, before: &ClusterImage, record: &MetadataRecord) {
        use MetadataRecord::*;
        match record {
            ClusterCreated { .. } | FeatureLevelSet { .. } | GroupPlacementSet { .. } => {
                self.cluster = true;
            }
            BrokerRegistered(registration) => drop(self.brokers.insert(registration.broker)),
            BrokerFenced { broker }
            | BrokerUnfenced { broker }
            | ControlledShutdownBegun { broker }
            | ReplicasOffline { broker, .. }
            | ReplicasOnline { broker, .. }
            | BrokerUnregistered { broker } => drop(self.brokers.insert(*broker)),
            TopicCreated { topic_id, .. } | TopicCreated2 { topic_id, .. } => {
                self.topics.insert(*topic_id, TopicChange::Created);
            }
            PartitionAdded { topic_id, state } | PartitionAdded2 { topic_id, state } => {
                self.note_partition(*topic_id, state.partition);
            }
            PartitionChanged { topic_id, state } | PartitionChanged2 { topic_id, state } => {
                self.note_partition(*topic_id, state.partition);
                let old = before.topic_by_id(*topic_id);
                let old = old.and_then(|topic| topic.partition(state.partition));
                self.unclean.extend(unclean_election(old, *topic_id, state));
            }
            ElrCleared { topics, members } => {
                let cleared = |state: &PartitionImage| state.with_elr_cleared(*members).is_some();
                self.note_partitions(before, topics, cleared);
            }
            DurabilityLost { topics } => self.note_partitions(before, topics, |_| true),
            TruncationAllowed { topic_id, partition, .. }
            | LeaderEpochFound { topic_id, partition, .. } => {
                self.note_partition(*topic_id, *partition);
            }
            TopicDeleted { topic_id } => self.note_deleted(before, *topic_id),
            ConfigSet { resource, .. } | ConfigRemoved { resource, .. } => {
                self.configs.insert(resource.clone());
            }
            BrokerEpochUsed { .. } | ProducerIdsAllocated { .. } | DirectoryMarksRaised { .. } => {}
        }
    }

    fn note_partition(&mut self, topic: TopicId, partition: PartitionIndex) {
        let changed = || TopicChange::Changed(BTreeSet::new());
        if let TopicChange::Changed(partitions) = self.topics.entry(topic).or_insert_with(changed) {
            partitions.insert(partition);
        }
    }

    fn note_partitions(
        &mut self,
        before: &ClusterImage,
        topics: &[TopicId],
        changes: impl Fn(&PartitionImage) -> bool,
    ) {
        for topic in topics.iter().filter_map(|id| before.topic_by_id(*id)) {
            let changed = topic.partitions().filter(|(_, state)| changes(state));
            changed.for_each(|(index, _)| self.note_partition(topic.id, index));
        }
    }

    fn note_deleted(&mut self, before: &ClusterImage, id: TopicId) {
        let Some(topic) = before.topic_by_id(id) else { return };
        self.configs.remove(&ConfigResource::Topic(topic.name.to_string()));
        let forget = before.brokers().filter(|broker| broker.offline.contains_key(&id));
        self.brokers.extend(forget.map(|broker| broker.id));
        if self.topics.get(&id) == Some(&TopicChange::Created) {
            self.topics.remove(&id);
        } else {
            self.topics.insert(id, TopicChange::Deleted(topic.name.clone()));
        }
    }

    /// Adds what a later step changed, so that both can be taken as one.
    pub fn merge(&mut self, later: &ImageDelta) {
        self.cluster |= later.cluster;
        self.brokers.extend(&later.brokers);
        // Topics first: one that went may have come again under its name, with a configuration.
        for (id, change) in &later.topics {
            self.merge_topic(*id, change);
        }
        self.configs.extend(later.configs.iter().cloned());
        self.unclean.extend(&later.unclean);
    }

    fn merge_topic(&mut self, id: TopicId, later: &TopicChange) {
        match (self.topics.get_mut(&id), later) {
            (Some(TopicChange::Created), TopicChange::Deleted(name)) => {
                self.configs.remove(&ConfigResource::Topic(name.to_string()));
                self.topics.remove(&id);
            }
            (Some(TopicChange::Created), TopicChange::Changed(_)) => {}
            (Some(TopicChange::Changed(partitions)), TopicChange::Changed(more)) => {
                partitions.extend(more);
            }
            (_, TopicChange::Deleted(name)) => {
                self.configs.remove(&ConfigResource::Topic(name.to_string()));
                self.topics.insert(id, later.clone());
            }
            _ => drop(self.topics.insert(id, later.clone())),
        }
    }

    /// Compares two images, as after a snapshot from elsewhere replaced one by the other.
    pub fn between(before: &ClusterImage, after: &ClusterImage) -> ImageDelta {
        let mut delta = ImageDelta {
            cluster: before.cluster_id() != after.cluster_id()
                || before.features() != after.features(),
            ..ImageDelta::default()
        };
        delta.compare_topics(before, after);
        delta.compare_brokers(before, after);
        delta.compare_configs(before, after);
        delta
    }

    fn compare_topics(&mut self, before: &ClusterImage, after: &ClusterImage) {
        for topic in after.topics() {
            match before.topic_by_id(topic.id) {
                None => drop(self.topics.insert(topic.id, TopicChange::Created)),
                Some(old) if Arc::ptr_eq(old, topic) => {}
                Some(old) => changed_partitions(old, topic)
                    .for_each(|partition| self.note_partition(topic.id, partition)),
            }
        }
        for topic in before.topics().filter(|topic| after.topic_by_id(topic.id).is_none()) {
            self.topics.insert(topic.id, TopicChange::Deleted(topic.name.clone()));
        }
    }

    fn compare_brokers(&mut self, before: &ClusterImage, after: &ClusterImage) {
        let ids = before.brokers().chain(after.brokers()).map(|broker| broker.id);
        self.brokers = ids.filter(|id| before.broker(*id) != after.broker(*id)).collect();
    }

    fn compare_configs(&mut self, before: &ClusterImage, after: &ClusterImage) {
        let all = before.configured_resources().chain(after.configured_resources());
        let changed = all.filter(|resource| before.configs(resource) != after.configs(resource));
        let alive = |resource: &&ConfigResource| match resource {
            ConfigResource::Topic(name) => after.topic(name).is_some(),
            _ => true,
        };
        self.configs = changed.filter(alive).cloned().collect();
    }
}

fn changed_partitions<'a>(
    old: &'a TopicImage,
    new: &'a TopicImage,
) -> impl Iterator<Item = PartitionIndex> + 'a {
    let all = new.partitions();
    all.filter(|(index, state)| old.partition(*index) != Some(*state)).map(|(index, _)| index)
}

/// The election that makes a partition `new`, if its leader is not one of those that have every acknowledged record
/// (R4).
pub(crate) fn unclean_election(
    old: Option<&PartitionImage>,
    topic_id: TopicId,
    new: &PartitionRecord,
) -> Option<UncleanElection> {
    let is_clean = |old: &PartitionImage| old.leader == new.leader || old.is_complete(new.leader);
    let is_unclean = new.leader != BrokerId::NONE && !old.is_some_and(is_clean);
    let PartitionRecord { partition, leader, leader_epoch, .. } = *new;
    is_unclean.then_some(UncleanElection { topic_id, partition, leader, leader_epoch })
}

impl ImageUpdate {
    /// What this step means for the replicas on one broker: removals first.
    pub fn local_changes(&self, broker: BrokerId) -> Vec<LocalChange> {
        let mut changes = Vec::new();
        for (id, change) in &self.delta.topics {
            let old = self.before.topic_by_id(*id);
            let new = self.after.topic_by_id(*id);
            let partitions: Vec<PartitionIndex> = match change {
                TopicChange::Changed(partitions) => partitions.iter().copied().collect(),
                TopicChange::Created => new.map(indexes).unwrap_or_default(),
                TopicChange::Deleted(_) => old.map(indexes).unwrap_or_default(),
            };
            for partition in partitions {
                changes.extend(local_change(broker, old, new, partition));
            }
        }
        changes.sort_by_key(|change| change.kind != LocalChangeKind::Remove);
        changes
    }
}

fn indexes(topic: &Arc<TopicImage>) -> Vec<PartitionIndex> {
    topic.partitions().map(|(index, _)| index).collect()
}

fn local_change(
    broker: BrokerId,
    old: Option<&Arc<TopicImage>>,
    new: Option<&Arc<TopicImage>>,
    partition: PartitionIndex,
) -> Option<LocalChange> {
    let assigned = |topic: &Arc<TopicImage>| {
        let state = topic.partition(partition)?;
        state.replicas.contains(&broker).then(|| state.clone())
    };
    let kind = match new.and_then(assigned) {
        Some(state) if state.leader == broker => LocalChangeKind::Lead(state),
        Some(state) => LocalChangeKind::Follow(state),
        None => old.and_then(assigned).map(|_| LocalChangeKind::Remove)?,
    };
    let topic = new.or(old).expect("a replica belongs to a topic");
    Some(LocalChange { topic: topic.name.clone(), topic_id: topic.id, partition, kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_that_came_again_keeps_its_configuration_in_a_merged_step() {
        let of = |id: u8| TopicId::from_random([id; 16]);
        let name: Arc<str> = "t".into();
        let resource = ConfigResource::Topic("t".into());
        let mut later = ImageDelta::default();
        later.topics.insert(of(1), TopicChange::Deleted(name));
        later.topics.insert(of(2), TopicChange::Created);
        later.configs.insert(resource.clone());
        let mut delta = ImageDelta::default();
        delta.merge(&later);
        assert_eq!(delta, later);
        let mut born_before = ImageDelta::default();
        born_before.topics.insert(of(1), TopicChange::Created);
        born_before.merge(&later);
        assert_eq!(born_before.topics.keys().collect::<Vec<_>>(), [&of(2)]);
        assert!(born_before.configs.contains(&resource));
    }
}
