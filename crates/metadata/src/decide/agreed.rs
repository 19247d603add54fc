//! The settings by which the controller and every replica of a partition must go alike.
//!
//! A high watermark moves only while the ISR has `min.insync.replicas` members; that is why a replica
//! that left a smaller ISR still has everything below it and stays eligible (KIP-966). If brokers
//! had different values, one could move it on while the controller believes that it stands
//! (KAFKA-16540). With `durability` it is the same: a partition is durable only if all of its replicas
//! sync. So where there are eligible replicas these keys belong to the cluster and to topics, never
//! to one broker; the founder writes the values of its file down for all.

use super::eligibility::next;
use super::{Answer, ControllerSettings, Draft, Refusal};
use crate::image::{ClusterImage, ConfigMap, is_internal};
use crate::mutants::{Mutant, is_planted};
use crate::record::{ConfigResource, MetadataRecord};
use crate::topic_config::{Resolver, StaticConfigs};
use configuration::{table, value};
use model::{BrokerId, Durability, ErrorCode, TopicId};
use std::collections::BTreeMap;

/// The keys, by the names that brokers and topics have for them.
pub const AGREED_KEYS: [&str; 3] =
    ["durability", "min.insync.replicas", "unclean.leader.election.enable"];

/// No file has a say in what all must go by.
static NO_FILE: StaticConfigs = StaticConfigs::new();

/// What the facts alone say about the partitions of one topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TopicRules {
    /// `min.insync.replicas`. Invariant: at least 1.
    min_isr: usize,
    /// Whether what is acknowledged is synced (`durability=fsync`).
    pub(super) fsync: bool,
    /// `unclean.leader.election.enable`.
    pub(super) unclean: bool,
}

impl TopicRules {
    /// Those of a topic that exists.
    pub(super) fn of(image: &ClusterImage, topic: &str) -> TopicRules {
        let own = image.configs(&ConfigResource::Topic(topic.to_owned()));
        TopicRules::with(image, topic, own.map(|own| &**own))
    }

    /// Those of a topic that has the values `own`.
    pub(super) fn with(image: &ClusterImage, topic: &str, own: Option<&ConfigMap>) -> TopicRules {
        let resolver = Resolver::new(image, &NO_FILE, None);
        let value = |key| resolver.in_force(own, key).unwrap_or_default();
        let durability = Durability::from_name(&value("durability"));
        TopicRules {
            min_isr: value("min.insync.replicas").parse().unwrap_or(1).max(1),
            // What brokers and coordinators write is synced whatever is configured.
            fsync: is_internal(topic) || durability == Some(Durability::Fsync),
            unclean: value("unclean.leader.election.enable") == "true",
        }
    }

    /// Members that an ISR must have for the high watermark to move: never more than there are
    /// replicas.
    pub(super) fn members_needed(&self, replicas: usize) -> usize {
        self.min_isr.min(replicas).max(1)
    }
}

fn refuse<T>(message: String) -> Answer<T> {
    Err(Refusal::new(ErrorCode::InvalidConfig, message))
}

/// Whether one of the keys has another value in `wanted`.
fn differ(current: &ConfigMap, wanted: &ConfigMap) -> bool {
    AGREED_KEYS.iter().any(|key| current.get(*key) != wanted.get(*key))
}

impl Draft {
    /// Refuses eligible replicas for a cluster in which single brokers have values of their own.
    pub(super) fn check_no_broker_differs(&self) -> Answer<()> {
        for resource in self.image().configured_resources() {
            let ConfigResource::Broker(id) = resource else { continue };
            let own = AGREED_KEYS.iter().find(|key| self.image().config(resource, key).is_some());
            if let Some(key) = own {
                return refuse(format!(
                    "Broker {id} has a {key} of its own, by which all brokers must go alike: delete it first."
                ));
            }
        }
        Ok(())
    }

    /// Writes down for all what this node's file says, where the cluster has no value yet.
    pub(super) fn agree_on_settings(&mut self, settings: &ControllerSettings) {
        for key in AGREED_KEYS {
            if self.image().config(&ConfigResource::ClusterDefault, key).is_some() {
                continue;
            }
            let known = table::find(key).expect("the keys are those of the table");
            let of_file = settings.static_configs.get(key);
            let of_file = of_file.and_then(|text| value::check(known, text).ok());
            let default = || known.default.unwrap_or_default().to_owned();
            self.push(MetadataRecord::ConfigSet {
                resource: ConfigResource::ClusterDefault,
                key: key.to_owned(),
                value: of_file.unwrap_or_else(default),
            });
        }
    }

    /// Refuses a change after which brokers would go by different values (KAFKA-16540).
    pub(super) fn check_agreed(
        &self,
        resource: &ConfigResource,
        current: &ConfigMap,
        wanted: &ConfigMap,
    ) -> Answer<()> {
        if !self.image().has_eligible_replicas() {
            return Ok(());
        }
        for key in AGREED_KEYS {
            let (old, new) = (current.get(key), wanted.get(key));
            match (resource, new) {
                _ if old == new => {}
                (ConfigResource::Broker(_), Some(_)) => {
                    return refuse(format!(
                        "All brokers must go by the same {key}: set it for the cluster or a topic."
                    ));
                }
                (ConfigResource::ClusterDefault, None) => {
                    return refuse(format!(
                        "All brokers go by the cluster's {key}: set another value, do not delete it."
                    ));
                }
                (ConfigResource::ClusterDefault, Some(new)) => {
                    let known = table::find(key).expect("the keys are those of the table");
                    if let Err(accepted) = value::check(known, new) {
                        return refuse(format!(
                            "Invalid value {new} for configuration {key}: expected {accepted}"
                        ));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// What topics go by before the values of a resource change; none if no rule can change.
    pub(super) fn rules_before(
        &self,
        resource: &ConfigResource,
        current: &ConfigMap,
        wanted: &ConfigMap,
    ) -> Vec<(TopicId, TopicRules)> {
        let image = self.image();
        if !image.has_eligible_replicas() || !differ(current, wanted) {
            return Vec::new();
        }
        match resource {
            ConfigResource::Topic(name) => {
                let topic = image.topic(name);
                topic.map(|topic| (topic.id, TopicRules::of(image, name))).into_iter().collect()
            }
            ConfigResource::ClusterDefault => {
                image.topics().map(|topic| (topic.id, TopicRules::of(image, &topic.name))).collect()
            }
            _ => Vec::new(),
        }
    }

    /// What a change of rules means for partitions, in the same decision: a smaller
    /// `min.insync.replicas` lets high watermarks move that stood (KAFKA-16540), and with
    /// `durability=page-cache` nothing is known to be synced any more. With `fsync` again, leaders begin leader epochs in which
    /// every fetch acknowledges synced records, and prove what is synced.
    pub(super) fn follow_rules(&mut self, before: Vec<(TopicId, TopicRules)>) {
        let mut in_memory = Vec::new();
        let mut to_be_synced = Vec::new();
        let mut lowered: BTreeMap<u32, Vec<TopicId>> = BTreeMap::new();
        for (id, old) in before {
            let topic = self.image().topic_by_id(id).expect("no topic goes when values change");
            let new = TopicRules::of(self.image(), &topic.name);
            if old.fsync && !new.fsync {
                in_memory.push(id);
            }
            if !old.fsync && new.fsync {
                to_be_synced.push(id);
            }
            let members = u32::try_from(new.min_isr).unwrap_or(u32::MAX);
            let mut states = topic.partitions().map(|(_, state)| state);
            if new.min_isr < old.min_isr
                && !is_planted(Mutant::SmallerMinIsrKeepsEligible)
                && states.any(|state| state.with_elr_cleared(members).is_some())
            {
                lowered.entry(members).or_default().push(id);
            }
        }
        for (members, topics) in lowered {
            self.push(MetadataRecord::ElrCleared { topics, members });
        }
        if !in_memory.is_empty() {
            self.push(MetadataRecord::DurabilityLost { topics: in_memory });
        }
        to_be_synced.into_iter().for_each(|id| self.begin_synced_epochs(id));
    }

    /// Begins a leader epoch of each led partition of a topic that is not durable; the leaders stay. The leaders of earlier leader
    /// epochs cannot have the partition counted as durable, since followers may count written positions in them.
    fn begin_synced_epochs(&mut self, id: TopicId) {
        if !self.image().detects_copies() {
            return;
        }
        let topic = self.image().topic_by_id(id).expect("no topic goes when values change").clone();
        for (index, state) in topic.partitions() {
            if !state.durable && state.leader != BrokerId::NONE {
                self.change(id, index, &next(state, true));
            }
        }
    }
}
