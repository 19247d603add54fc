//! Replay: the only way an image changes, live and at start-up.
//!
//! Every record is checked against what the image already says. A contradiction means that the
//! log is not the one that made this image, or that a decision was wrong; it changes nothing.

use super::{BrokerImage, ClusterImage, PartitionImage, TopicImage, fold};
use crate::record::{
    BrokerRecord, ConfigResource, DirectoryMark, MetadataRecord, PartitionRecord, TopicReplicas,
};
use model::{BrokerId, LeaderEpoch, PartitionIndex, Timestamp, TopicId};
use std::collections::BTreeMap;
use std::slice;
use std::sync::Arc;

/// A record that cannot follow the facts so far.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("metadata record contradicts the facts before it: {reason}: {record:?}")]
pub struct Contradiction {
    /// What does not fit.
    pub reason: &'static str,
    /// The record.
    pub record: Box<MetadataRecord>,
}

type Replayed = Result<(), &'static str>;

/// What must hold, or what is wrong.
fn require(holds: bool, otherwise: &'static str) -> Replayed {
    if holds { Ok(()) } else { Err(otherwise) }
}

impl ClusterImage {
    /// Takes one fact in. An error leaves the image as it was.
    pub fn replay(&mut self, record: &MetadataRecord) -> Result<(), Contradiction> {
        let replayed = self.replay_by_type(record);
        replayed.map_err(|reason| Contradiction { reason, record: Box::new(record.clone()) })
    }

    fn replay_by_type(&mut self, record: &MetadataRecord) -> Replayed {
        use MetadataRecord::*;
        match record {
            ClusterCreated { cluster_id } => self.replay_cluster(cluster_id),
            FeatureLevelSet { name, level } => self.replay_feature(name, *level),
            GroupPlacementSet { placement } => {
                self.group_placement = *placement;
                Ok(())
            }
            BrokerEpochUsed { epoch } => {
                self.next_broker_epoch = self.next_broker_epoch.max(epoch.0.saturating_add(1));
                Ok(())
            }
            BrokerRegistered(registration) => self.replay_registration(registration),
            BrokerFenced { broker } => self.replay_fencing(*broker, true),
            BrokerUnfenced { broker } => self.replay_fencing(*broker, false),
            ControlledShutdownBegun { broker } => self.replay_shutdown(*broker),
            ReplicasOffline { broker, replicas } => self.replay_offline(*broker, replicas),
            ReplicasOnline { broker, replicas } => self.replay_online(*broker, replicas),
            DirectoryMarksRaised { marks } => self.replay_marks(marks),
            BrokerUnregistered { broker } => {
                self.marks.retain(|(of, _), _| of != broker);
                require(self.brokers.remove(broker).is_some(), "the broker is not registered")
            }
            TopicCreated { topic_id, name, created, partitions } => {
                check_first_form(partitions)?;
                self.replay_topic(*topic_id, name, *created, partitions)
            }
            TopicCreated2 { topic_id, name, created, partitions } => {
                self.replay_topic(*topic_id, name, *created, partitions)
            }
            PartitionAdded { topic_id, state } => {
                check_first_form(slice::from_ref(state))?;
                self.replay_added(*topic_id, state)
            }
            PartitionAdded2 { topic_id, state } => self.replay_added(*topic_id, state),
            PartitionChanged { topic_id, state } => {
                check_first_form(slice::from_ref(state))?;
                self.replay_changed(*topic_id, state)
            }
            PartitionChanged2 { topic_id, state } => self.replay_changed(*topic_id, state),
            ElrCleared { topics, members } => {
                self.restate(topics, |state| state.with_elr_cleared(*members))
            }
            DurabilityLost { topics } => self.restate(topics, |state| {
                let partition_epoch = state.partition_epoch + 1;
                Some(PartitionImage { durable: false, partition_epoch, ..state.clone() })
            }),
            TruncationAllowed { topic_id, partition, leader_epoch } => {
                self.replay_allowed(*topic_id, *partition, *leader_epoch)
            }
            LeaderEpochFound { topic_id, partition, leader_epoch } => {
                self.replay_found(*topic_id, *partition, *leader_epoch)
            }
            TopicDeleted { topic_id } => self.replay_deleted(*topic_id),
            ConfigSet { resource, key, value } => {
                self.config_mut(resource).insert(key.clone(), value.clone());
                Ok(())
            }
            ConfigRemoved { resource, key } => self.replay_config_removed(resource, key),
            ProducerIdsAllocated { first, count, .. } => self.replay_allocated(first.0, *count),
        }
    }

    fn replay_cluster(&mut self, cluster_id: &str) -> Replayed {
        require(self.cluster_id.is_none(), "the cluster has an id")?;
        self.cluster_id = Some(cluster_id.into());
        Ok(())
    }

    fn replay_feature(&mut self, name: &str, level: i16) -> Replayed {
        if level == 0 {
            self.features.remove(name);
        } else {
            self.features.insert(name.to_owned(), level);
        }
        Ok(())
    }

    fn replay_registration(&mut self, record: &BrokerRecord) -> Replayed {
        let known = self.brokers.get(&record.broker);
        let again = known.is_some_and(|known| known.incarnation == record.incarnation);
        let rises = known.is_none_or(|known| record.epoch > known.epoch || again);
        require(rises, "the broker's epoch does not rise")?;
        self.next_broker_epoch = self.next_broker_epoch.max(record.epoch.0.saturating_add(1));
        let mut image = BrokerImage::from_record(record);
        // The same process still cannot serve them.
        image.offline =
            known.filter(|_| again).map(|known| known.offline.clone()).unwrap_or_default();
        self.brokers.insert(record.broker, Arc::new(image));
        let (broker, log_dirs) = (record.broker, &record.log_dirs);
        self.marks.retain(|(of, directory), _| *of != broker || log_dirs.contains(directory));
        Ok(())
    }

    fn replay_offline(&mut self, broker: BrokerId, replicas: &[TopicReplicas]) -> Replayed {
        let broker = self.brokers.get_mut(&broker).ok_or("the broker is not registered")?;
        let offline = &mut Arc::make_mut(broker).offline;
        for TopicReplicas { topic_id, partitions } in
            replicas.iter().filter(|of| !of.partitions.is_empty())
        {
            offline.entry(*topic_id).or_default().extend(partitions);
        }
        Ok(())
    }

    fn replay_online(&mut self, broker: BrokerId, replicas: &[TopicReplicas]) -> Replayed {
        let broker = self.brokers.get_mut(&broker).ok_or("the broker is not registered")?;
        let offline = &mut Arc::make_mut(broker).offline;
        for TopicReplicas { topic_id, partitions } in replicas {
            let Some(of_topic) = offline.get_mut(topic_id) else { continue };
            of_topic.retain(|partition| !partitions.contains(partition));
            if of_topic.is_empty() {
                offline.remove(topic_id);
            }
        }
        Ok(())
    }

    fn replay_marks(&mut self, marks: &[DirectoryMark]) -> Replayed {
        for DirectoryMark { broker, directory, mark } in marks {
            let known = self.brokers.get(broker);
            let is_known = known.is_some_and(|known| known.log_dirs.contains(directory));
            require(is_known, "the broker is not registered with the log directory")?;
            require(*mark > self.directory_mark(*broker, *directory), "the mark does not rise")?;
        }
        self.marks.extend(marks.iter().map(|it| ((it.broker, it.directory), it.mark)));
        Ok(())
    }

    fn replay_fencing(&mut self, broker: BrokerId, fenced: bool) -> Replayed {
        let broker = self.brokers.get_mut(&broker).ok_or("the broker is not registered")?;
        Arc::make_mut(broker).fenced = fenced;
        Ok(())
    }

    fn replay_shutdown(&mut self, broker: BrokerId) -> Replayed {
        let broker = self.brokers.get_mut(&broker).ok_or("the broker is not registered")?;
        Arc::make_mut(broker).in_controlled_shutdown = true;
        Ok(())
    }

    fn replay_topic(
        &mut self,
        id: TopicId,
        name: &str,
        created: Timestamp,
        partitions: &[PartitionRecord],
    ) -> Replayed {
        require(!self.topics.contains_key(name), "the name is taken")?;
        require(!self.names.contains_key(&id), "the topic id is taken")?;
        for (i, partition) in partitions.iter().enumerate() {
            check_partition(partition, i)?;
        }
        let name: Arc<str> = name.into();
        let partitions = PartitionImage::of_new(partitions);
        self.partition_count += partitions.len();
        if name.contains(['.', '_']) {
            self.folded_names.insert(fold(&name).into(), name.clone());
        }
        self.names.insert(id, name.clone());
        let (truncation_allowed, found_epochs) = (BTreeMap::new(), BTreeMap::new());
        let topic = TopicImage {
            id,
            name: name.clone(),
            created,
            partitions,
            truncation_allowed,
            found_epochs,
        };
        self.topics.insert(name, Arc::new(topic));
        assert_eq!(self.topics.len(), self.names.len(), "every topic has one name and one id");
        Ok(())
    }

    fn topic_mut(&mut self, id: TopicId) -> Result<&mut TopicImage, &'static str> {
        let name = self.names.get(&id).ok_or("there is no such topic")?;
        let topic = self.topics.get_mut(&**name).expect("every id has its topic");
        Ok(Arc::make_mut(topic))
    }

    fn replay_added(&mut self, id: TopicId, state: &PartitionRecord) -> Replayed {
        let topic = self.topic_mut(id)?;
        check_partition(state, topic.partitions.len())?;
        let image = PartitionImage::from_record(state);
        let same = topic.partitions.last().filter(|last| ***last == image).cloned();
        topic.partitions.push(same.unwrap_or_else(|| Arc::new(image)));
        self.partition_count += 1;
        Ok(())
    }

    fn replay_changed(&mut self, id: TopicId, state: &PartitionRecord) -> Replayed {
        let topic = self.topic_mut(id)?;
        let at = usize::try_from(state.partition.0).map_err(|_| "a partition below 0")?;
        let partition = topic.partitions.get_mut(at).ok_or("there is no such partition")?;
        check_partition(state, at)?;
        require(state.leader_epoch >= partition.leader_epoch, "the leader epoch falls")?;
        require(state.partition_epoch > partition.partition_epoch, "the epoch does not rise")?;
        let same_epoch = state.leader_epoch == partition.leader_epoch;
        let same_leader = state.leader == partition.leader;
        require(!same_epoch || same_leader, "two leaders in one leader epoch")?;
        *partition = Arc::new(PartitionImage::from_record(state));
        let is_led = state.leader != BrokerId::NONE;
        let is_over = |found: &mut LeaderEpoch| is_led && state.leader_epoch > *found;
        if topic.found_epochs.get_mut(&state.partition).is_some_and(is_over) {
            topic.found_epochs.remove(&state.partition);
        }
        Ok(())
    }

    /// Changes every partition of these topics for which `change` gives another state.
    fn restate(
        &mut self,
        topics: &[TopicId],
        change: impl Fn(&PartitionImage) -> Option<PartitionImage>,
    ) -> Replayed {
        let known = topics.iter().all(|id| self.names.contains_key(id));
        require(known, "there is no such topic")?;
        for id in topics {
            self.topic_mut(*id)?.restate(&change);
        }
        Ok(())
    }

    fn replay_allowed(
        &mut self,
        id: TopicId,
        partition: PartitionIndex,
        leader_epoch: LeaderEpoch,
    ) -> Replayed {
        let topic = self.topic_mut(id)?;
        require(topic.partition(partition).is_some(), "there is no such partition")?;
        let known = topic.truncation_allowed.get(&partition);
        require(known.is_none_or(|known| leader_epoch >= *known), "the leader epoch falls")?;
        topic.truncation_allowed.insert(partition, leader_epoch);
        Ok(())
    }

    fn replay_found(
        &mut self,
        id: TopicId,
        partition: PartitionIndex,
        leader_epoch: LeaderEpoch,
    ) -> Replayed {
        let topic = self.topic_mut(id)?;
        require(topic.partition(partition).is_some(), "there is no such partition")?;
        let known = topic.found_epochs.get(&partition);
        require(known.is_none_or(|known| leader_epoch > *known), "the leader epoch does not rise")?;
        topic.found_epochs.insert(partition, leader_epoch);
        Ok(())
    }

    fn replay_deleted(&mut self, id: TopicId) -> Replayed {
        let name = self.names.remove(&id).ok_or("there is no such topic")?;
        let topic = self.topics.remove(&*name).expect("every id has its topic");
        let folded = fold(&name);
        if self.folded_names.get(folded.as_str()) == Some(&name) {
            self.folded_names.remove(folded.as_str());
            self.refold(&folded);
        }
        self.partition_count -= topic.partition_count();
        for broker in self.brokers.values_mut().filter(|broker| broker.offline.contains_key(&id)) {
            Arc::make_mut(broker).offline.remove(&id);
        }
        self.configs.remove(&ConfigResource::Topic(name.to_string()));
        assert_eq!(self.topics.len(), self.names.len(), "every topic has one name and one id");
        Ok(())
    }

    /// Two topics made by one request may collide: when one goes, the other is still there.
    fn refold(&mut self, folded: &str) {
        let other = self.topics.iter().map(|(name, _)| name).find(|name| fold(name) == folded);
        if let Some(other) = other.cloned() {
            self.folded_names.insert(folded.into(), other);
        }
    }

    fn config_mut(&mut self, resource: &ConfigResource) -> &mut super::ConfigMap {
        if !self.configs.contains_key(resource) {
            self.configs.insert(resource.clone(), Arc::default());
        }
        Arc::make_mut(self.configs.get_mut(resource).expect("it was just put there"))
    }

    fn replay_config_removed(&mut self, resource: &ConfigResource, key: &str) -> Replayed {
        let known = self.config(resource, key).is_some();
        require(known, "the configuration has no such value")?;
        let values = self.config_mut(resource);
        values.remove(key);
        if values.is_empty() {
            self.configs.remove(resource);
        }
        Ok(())
    }

    fn replay_allocated(&mut self, first: i64, count: i32) -> Replayed {
        require(first >= self.next_producer_id, "producer ids are allocated twice")?;
        require(count >= 0, "fewer than no producer ids")?;
        self.next_producer_id = first.saturating_add(count as i64);
        Ok(())
    }
}

/// The first form of a type says nothing of eligible replicas, and has members in every ISR.
fn check_first_form(states: &[PartitionRecord]) -> Replayed {
    let members = states.iter().all(|state| !state.isr.is_empty());
    require(members, "a partition without in-sync replicas")?;
    let fits = states.iter().all(PartitionRecord::fits_first_form);
    require(fits, "eligible replicas in a type that does not have them")
}

/// The invariants of one partition's state (R5 of the list of invariants).
fn check_partition(state: &PartitionRecord, expected: usize) -> Replayed {
    require(state.partition == PartitionIndex(expected as i32), "partitions are out of order")?;
    require(!state.replicas.is_empty(), "a partition without replicas")?;
    let assigned = |id: &BrokerId| state.replicas.contains(id);
    require(state.isr.iter().all(assigned), "ISR outside the replicas")?;
    require(state.elr.iter().all(assigned), "ELR outside the replicas")?;
    let both = state.elr.iter().any(|id| state.isr.contains(id));
    require(!both, "a replica in both ISR and ELR")?;
    let eligible = state.restarted.iter().all(|id| state.elr.contains(id));
    require(eligible, "a restarted replica outside the ELR")?;
    let led = state.leader != BrokerId::NONE;
    require(!led || state.isr.contains(&state.leader), "a leader outside the ISR")?;
    let last = state.last_known_leader;
    require(last == BrokerId::NONE || !led && assigned(&last), "a last leader beside a leader")
}
