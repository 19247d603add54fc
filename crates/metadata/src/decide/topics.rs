//! CreateTopics and DeleteTopics.
//!
//! Creating: name, collision, counts, placement, configuration, in Kafka's order of checks. A
//! topic that is refused leaves the others alone. Fenced brokers get replicas when nothing else
//! is left (KAFKA-13841), but never lead. Deleting: by name (v0–5) or id (v6, KIP-516).

use super::agreed::TopicRules;
use super::{
    Answer, ControllerSettings, CreateTopics, CreatedTopic, DeletedTopic, Draft, NewTopic, Refusal,
    TopicRef, placement,
};
use crate::record::{ConfigResource, MetadataRecord, PartitionRecord};
use configuration::validate_topic;
use model::{BrokerId, ErrorCode, LeaderEpoch, PartitionIndex, Timestamp, topic_name};
use std::collections::{BTreeMap, BTreeSet};

/// The name under which the metadata log itself stands beside the partitions.
pub const METADATA_TOPIC: &str = "__cluster_metadata";

/// More new partitions in one request than this are refused. Kafka's bound is 10,000 records, as many as
/// its controller writes into one batch; here one request may fill a broker. What it costs then is one
/// entry of some 15 MB in the metadata log, and as much memory while it is decided.
pub const NEW_PARTITIONS_MAX: i64 = 100_000;

fn refuse<T>(error: ErrorCode, message: impl Into<String>) -> Answer<T> {
    Err(Refusal::new(error, message))
}

/// Refuses a name that no topic may have.
pub(super) fn check_name(name: &str) -> Answer<()> {
    topic_name::validate(name).map_err(|error| {
        let message = format!("Topic name is invalid: '{name}': {error}");
        Refusal::new(ErrorCode::InvalidTopicException, message)
    })
}

impl Draft {
    pub(super) fn create_topics(
        &mut self,
        settings: &ControllerSettings,
        now: Timestamp,
        request: &CreateTopics,
    ) -> Vec<(String, Answer<CreatedTopic>)> {
        let before = self.clone();
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        request.topics.iter().for_each(|topic| *seen.entry(&topic.name).or_default() += 1);
        // Collisions count only against topics that were there before the request.
        let mut partitions_left = NEW_PARTITIONS_MAX;
        let mut answers = Vec::with_capacity(seen.len());
        for topic in &request.topics {
            // A name that comes again has its one answer.
            let Some(times) = seen.remove(topic.name.as_str()) else { continue };
            let twice = times > 1;
            let answer = self.attempt(false, |draft| {
                check_new_name(&before, topic, twice)?;
                draft.create_topic(settings, now, topic, &mut partitions_left)
            });
            answers.push((topic.name.clone(), answer));
        }
        if request.validate_only {
            *self = before;
        }
        answers
    }

    fn create_topic(
        &mut self,
        settings: &ControllerSettings,
        now: Timestamp,
        topic: &NewTopic,
        partitions_left: &mut i64,
    ) -> Answer<CreatedTopic> {
        let configs = check_configs(topic)?;
        let placed = if topic.assignments.is_empty() {
            self.place_topic(settings, topic, *partitions_left)?
        } else {
            self.assign_topic(topic, *partitions_left)?
        };
        let rules = TopicRules::with(self.image(), &topic.name, Some(&configs));
        let partitions = self.new_partitions(rules, 0, &placed);
        *partitions_left -= partitions.len() as i64;
        let created = CreatedTopic {
            id: topic.id,
            partitions: partitions.len() as i32,
            replication_factor: partitions[0].replicas.len() as i16,
            configs: configs.iter().map(|(k, v)| (k.clone(), v.clone())).collect(),
        };
        let name = topic.name.clone();
        self.push(MetadataRecord::topic_created(topic.id, name, now, partitions));
        for (key, value) in configs {
            let resource = ConfigResource::Topic(topic.name.clone());
            self.push(MetadataRecord::ConfigSet { resource, key, value });
        }
        Ok(created)
    }

    fn place_topic(
        &self,
        settings: &ControllerSettings,
        topic: &NewTopic,
        partitions_left: i64,
    ) -> Answer<Vec<Vec<BrokerId>>> {
        let partitions = match topic.partitions {
            -1 => settings.partitions_default,
            count if count > 0 => count,
            count => {
                let message =
                    format!("{count} partitions: ask for 1 or more, or -1 for the default.");
                return refuse(ErrorCode::InvalidPartitions, message);
            }
        };
        let factor = match topic.replication_factor {
            -1 => settings.replication_factor_default,
            factor if factor > 0 => factor,
            factor => {
                let message = format!(
                    "Replication factor {factor}: ask for 1 or more, or -1 for the default."
                );
                return refuse(ErrorCode::InvalidReplicationFactor, message);
            }
        };
        check_partition_budget(partitions as i64, partitions_left)?;
        let start = u64::from_be_bytes(topic.id.0[8..].try_into().expect("eight bytes"));
        placement::place(self.image(), partitions as usize, factor as usize, 0, start)
    }

    fn assign_topic(&self, topic: &NewTopic, partitions_left: i64) -> Answer<Vec<Vec<BrokerId>>> {
        for (count, what) in [
            (topic.replication_factor as i32, "replication factor"),
            (topic.partitions, "number of partitions"),
        ] {
            if count != -1 {
                let message =
                    format!("With a manual assignment the {what} must be -1, not {count}.");
                return refuse(ErrorCode::InvalidRequest, message);
            }
        }
        check_partition_budget(topic.assignments.len() as i64, partitions_left)?;
        let mut by_index = BTreeMap::new();
        for (index, replicas) in &topic.assignments {
            if by_index.insert(*index, replicas.clone()).is_some() {
                let message = format!("Partition {index} is assigned twice.");
                return refuse(ErrorCode::InvalidReplicaAssignment, message);
            }
        }
        let consecutive = by_index.keys().enumerate().all(|(i, index)| index.0 == i as i32);
        if !consecutive {
            let message = "Assigned partitions must be numbered 0, 1, 2, … without a gap.";
            return refuse(ErrorCode::InvalidReplicaAssignment, message);
        }
        let assigned: Vec<Vec<BrokerId>> = by_index.into_values().collect();
        placement::check_assignments(self.image(), &assigned, assigned[0].len())?;
        Ok(assigned)
    }

    /// New partitions from number `first` on: the ISR is whoever is eligible, the first of it leads.
    /// Nothing is acknowledged yet, so with `durability=fsync` they are durable.
    pub(super) fn new_partitions(
        &self,
        rules: TopicRules,
        first: usize,
        placed: &[Vec<BrokerId>],
    ) -> Vec<PartitionRecord> {
        let durable = self.image().has_eligible_replicas() && rules.fsync;
        let state = |(i, replicas): (usize, &Vec<BrokerId>)| {
            let eligible = replicas.iter().copied().filter(|id| self.image().is_eligible(*id));
            let isr: Vec<BrokerId> = eligible.collect();
            assert!(!isr.is_empty(), "placement leaves every partition a leader");
            PartitionRecord {
                partition: PartitionIndex((first + i) as i32),
                replicas: replicas.clone(),
                leader: isr[0],
                isr,
                elr: Vec::new(),
                restarted: Vec::new(),
                last_known_leader: BrokerId::NONE,
                leader_epoch: LeaderEpoch(0),
                partition_epoch: 0,
                recovering: false,
                durable,
            }
        };
        placed.iter().enumerate().map(state).collect()
    }

    pub(super) fn delete_topics(
        &mut self,
        topics: &[TopicRef],
    ) -> Vec<(TopicRef, Answer<DeletedTopic>)> {
        let mut named = BTreeMap::<&TopicRef, usize>::new();
        topics.iter().for_each(|topic| *named.entry(topic).or_default() += 1);
        let mut taken = BTreeSet::new();
        let answer = |topic: &TopicRef| {
            // A topic that comes again has its one answer.
            if named.remove(topic)? > 1 {
                let message = "The request names this topic more than once.";
                return Some((topic.clone(), refuse(ErrorCode::InvalidRequest, message)));
            }
            Some((topic.clone(), self.delete_topic(topic, &mut taken)))
        };
        topics.iter().filter_map(answer).collect()
    }

    fn delete_topic(
        &mut self,
        topic: &TopicRef,
        taken: &mut BTreeSet<TopicRef>,
    ) -> Answer<DeletedTopic> {
        if taken.contains(topic) {
            let message = "The request names this topic twice, by name and by id.";
            return refuse(ErrorCode::InvalidRequest, message);
        }
        let found = self.find_topic(topic)?;
        taken.insert(TopicRef::Name(found.name.to_string()));
        taken.insert(TopicRef::Id(found.id));
        self.push(MetadataRecord::TopicDeleted { topic_id: found.id });
        Ok(found)
    }

    fn find_topic(&self, topic: &TopicRef) -> Answer<DeletedTopic> {
        let (found, error, what) = match topic {
            TopicRef::Name(name) => {
                (self.image().topic(name), ErrorCode::UnknownTopicOrPartition, "of this name")
            }
            TopicRef::Id(id) => {
                (self.image().topic_by_id(*id), ErrorCode::UnknownTopicId, "with this id")
            }
        };
        let refusal = || Refusal::new(error, format!("There is no topic {what}."));
        found.map(|t| DeletedTopic { name: t.name.clone(), id: t.id }).ok_or_else(refusal)
    }
}

fn check_new_name(before: &Draft, topic: &NewTopic, twice: bool) -> Answer<()> {
    let name = topic.name.as_str();
    if twice {
        return refuse(
            ErrorCode::InvalidRequest,
            format!("Topic '{name}' is in the request twice."),
        );
    }
    if name == METADATA_TOPIC {
        let message = format!("'{name}' is the cluster's own log: choose another name.");
        return refuse(ErrorCode::InvalidRequest, message);
    }
    check_name(name)?;
    if before.image().topic(name).is_some() {
        return refuse(ErrorCode::TopicAlreadyExists, format!("Topic '{name}' already exists."));
    }
    if let Some(other) = before.image().colliding_topic(name) {
        let message = format!("Topic '{name}' collides with existing topic '{other}' in metrics.");
        return refuse(ErrorCode::InvalidTopicException, message);
    }
    Ok(())
}

fn check_configs(topic: &NewTopic) -> Answer<BTreeMap<String, String>> {
    let mut values = BTreeMap::new();
    for (key, value) in &topic.configs {
        let Some(value) = value else {
            let message = format!("Configuration {key} has no value: a topic's must have one.");
            return refuse(ErrorCode::InvalidConfig, message);
        };
        values.insert(key.clone(), value.clone());
    }
    validate_topic(&values)
        .map_err(|error| Refusal::new(ErrorCode::InvalidConfig, error.to_string()))
}

/// Refuses more new partitions than one request may bring.
pub(super) fn check_partition_budget(asked: i64, left: i64) -> Answer<()> {
    if asked > left {
        let message = format!(
            "More than {NEW_PARTITIONS_MAX} new partitions in one request: ask for fewer at a time."
        );
        return refuse(ErrorCode::PolicyViolation, message);
    }
    Ok(())
}
