//! CreatePartitions: a topic can only grow, and new partitions have as many replicas as old ones.

use super::agreed::TopicRules;
use super::topics::{NEW_PARTITIONS_MAX, check_partition_budget};
use super::{Answer, CreatePartitions, Draft, NewPartitions, Refusal, placement};
use crate::record::MetadataRecord;
use model::{ErrorCode, LeaderEpoch};
use std::collections::BTreeMap;
use std::sync::Arc;

fn refuse<T>(error: ErrorCode, message: impl Into<String>) -> Answer<T> {
    Err(Refusal::new(error, message))
}

impl Draft {
    pub(super) fn create_partitions(
        &mut self,
        request: &CreatePartitions,
    ) -> Vec<(String, Answer<()>)> {
        let mut named = BTreeMap::<&str, usize>::new();
        request.topics.iter().for_each(|topic| *named.entry(&topic.topic).or_default() += 1);
        let mut left = NEW_PARTITIONS_MAX;
        let mut answers = Vec::with_capacity(named.len());
        for topic in &request.topics {
            // A topic that comes again has its one answer.
            let Some(times) = named.remove(topic.topic.as_str()) else { continue };
            let answer = if times > 1 {
                refuse(ErrorCode::InvalidRequest, "The request names this topic more than once.")
            } else {
                self.attempt(request.validate_only, |draft| draft.grow(topic, &mut left))
            };
            answers.push((topic.topic.clone(), answer));
        }
        answers
    }

    fn grow(&mut self, request: &NewPartitions, left: &mut i64) -> Answer<()> {
        let name = &request.topic;
        let Some(topic) = self.image().topic(name).map(Arc::clone) else {
            return refuse(ErrorCode::UnknownTopicOrPartition, "There is no topic of this name.");
        };
        if topic.is_internal() {
            // What groups stored is found by the hash of their names over the count of partitions.
            let message = format!(
                "'{name}' keeps the number of partitions that it was created with: with another, \
                 everything stored in it would be looked for in the wrong partition."
            );
            return refuse(ErrorCode::PolicyViolation, message);
        }
        let old = topic.partition_count();
        let added = request.count as i64 - old as i64;
        if added <= 0 {
            let message = match added {
                0 => format!("Topic already has {old} partition(s)."),
                _ => format!(
                    "Topic '{name}' has {old} partition(s); {} is no increase.",
                    request.count
                ),
            };
            return refuse(ErrorCode::InvalidPartitions, message);
        }
        check_partition_budget(added, *left)?;
        let factor = topic.partitions().next().map_or(1, |(_, p)| p.replicas.len());
        let placed = match &request.assignments {
            Some(assigned) => self.check_added(assigned, added as usize, factor)?,
            None => {
                let start = u64::from_be_bytes(topic.id.0[8..].try_into().expect("eight bytes"));
                placement::place(self.image(), added as usize, factor, old, start)?
            }
        };
        *left -= added;
        let rules = TopicRules::of(self.image(), name);
        // A lost majority may have grown the topic, too: its logs of these partitions have epochs of earlier generations.
        let generation = topic.partitions().map(|(_, state)| state.leader_epoch.generation()).max();
        let first_epoch = LeaderEpoch(0).in_generation(generation.unwrap_or(0));
        for mut state in self.new_partitions(rules, old, &placed) {
            state.leader_epoch = first_epoch;
            self.push(MetadataRecord::partition_added(topic.id, state));
        }
        Ok(())
    }

    fn check_added(
        &self,
        assigned: &[Vec<model::BrokerId>],
        added: usize,
        factor: usize,
    ) -> Answer<Vec<Vec<model::BrokerId>>> {
        if assigned.len() != added {
            let found = assigned.len();
            let message = format!("{added} partition(s) to add, but {found} assignment(s).");
            return refuse(ErrorCode::InvalidReplicaAssignment, message);
        }
        placement::check_assignments(self.image(), assigned, factor)?;
        Ok(assigned.to_vec())
    }
}
