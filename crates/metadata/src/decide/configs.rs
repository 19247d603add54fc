//! AlterConfigs (replaces all) and IncrementalAlterConfigs (KIP-339).
//!
//! A resource is taken or refused as a whole. Topics' values are checked against the table of the
//! room `configuration`; groups' keys against [`GROUP_CONFIGS`]; brokers' keys are checked by
//! the broker that forwards the request, whose table they are. Forgetting what is not known is
//! allowed, so that what an older or newer version left behind can be removed. What all brokers must
//! go by alike has rules of its own ([`super::agreed`]).

use super::topics::check_name;
use super::{
    AlterConfigs, Answer, ConfigChange, ConfigOperation, ControllerSettings, Draft,
    IncrementalAlterConfigs, Refusal,
};
use crate::image::ConfigMap;
use crate::record::{ConfigResource, MetadataRecord};
use crate::topic_config::Resolver;
use configuration::key::{Key, Kind};
use configuration::{table, validate_topic, value};
use model::ErrorCode;
use std::collections::{BTreeMap, BTreeSet};

/// The configurations that a consumer group can have of its own in Kafka 4.3: key and default.
pub const GROUP_CONFIGS: &[(&str, &str)] = &[
    ("consumer.assignment.interval.ms", "1000"),
    ("consumer.heartbeat.interval.ms", "5000"),
    ("consumer.session.timeout.ms", "45000"),
    ("share.assignment.interval.ms", "1000"),
    ("share.auto.offset.reset", "latest"),
    ("share.delivery.count.limit", "5"),
    ("share.heartbeat.interval.ms", "5000"),
    ("share.isolation.level", "read_uncommitted"),
    ("share.partition.max.record.locks", "2000"),
    ("share.record.lock.duration.ms", "30000"),
    ("share.renew.acknowledge.enable", "true"),
    ("share.session.timeout.ms", "45000"),
    ("streams.assignment.interval.ms", "1000"),
    ("streams.heartbeat.interval.ms", "5000"),
    ("streams.initial.rebalance.delay.ms", "3000"),
    ("streams.num.standby.replicas", "0"),
    ("streams.session.timeout.ms", "45000"),
];

fn refuse<T>(error: ErrorCode, message: impl Into<String>) -> Answer<T> {
    Err(Refusal::new(error, message))
}

impl Draft {
    pub(super) fn alter_configs(
        &mut self,
        request: &AlterConfigs,
    ) -> Vec<(ConfigResource, Answer<()>)> {
        let twice = repeated(request.resources.iter().map(|(resource, _)| resource));
        let mut answers = Vec::with_capacity(request.resources.len());
        for (resource, values) in &request.resources {
            let answer = self.attempt(request.validate_only, |draft| {
                check_once(&twice, resource)?;
                let wanted = all_values(values)?;
                draft.replace_configs(resource, wanted)
            });
            answers.push((resource.clone(), answer));
        }
        answers
    }

    pub(super) fn incremental_alter_configs(
        &mut self,
        settings: &ControllerSettings,
        request: &IncrementalAlterConfigs,
    ) -> Vec<(ConfigResource, Answer<()>)> {
        let twice = repeated(request.resources.iter().map(|(resource, _)| resource));
        let mut answers = Vec::with_capacity(request.resources.len());
        for (resource, changes) in &request.resources {
            let answer = self.attempt(request.validate_only, |draft| {
                check_once(&twice, resource)?;
                let wanted = draft.changed_values(settings, resource, changes)?;
                draft.replace_configs(resource, wanted)
            });
            answers.push((resource.clone(), answer));
        }
        answers
    }

    fn replace_configs(&mut self, resource: &ConfigResource, wanted: ConfigMap) -> Answer<()> {
        self.check_resource(resource)?;
        let wanted = checked(resource, wanted)?;
        let current = self.image().configs(resource).map(|c| (**c).clone()).unwrap_or_default();
        self.check_agreed(resource, &current, &wanted)?;
        let before = self.rules_before(resource, &current, &wanted);
        for key in current.keys().filter(|key| !wanted.contains_key(*key)) {
            let (resource, key) = (resource.clone(), key.clone());
            self.push(MetadataRecord::ConfigRemoved { resource, key });
        }
        for (key, value) in wanted {
            if current.get(&key) != Some(&value) {
                self.push(MetadataRecord::ConfigSet { resource: resource.clone(), key, value });
            }
        }
        self.follow_rules(before);
        Ok(())
    }

    fn check_resource(&self, resource: &ConfigResource) -> Answer<()> {
        match resource {
            ConfigResource::Topic(name) if name.is_empty() => {
                refuse(ErrorCode::InvalidRequest, "Topics have no common default: name a topic.")
            }
            ConfigResource::Topic(name) => {
                check_name(name)?;
                match self.image().topic(name) {
                    Some(_) => Ok(()),
                    None => refuse(
                        ErrorCode::UnknownTopicOrPartition,
                        format!("The topic '{name}' does not exist."),
                    ),
                }
            }
            ConfigResource::Group(name) | ConfigResource::ClientMetrics(name)
                if name.is_empty() =>
            {
                refuse(ErrorCode::InvalidRequest, "There is no common default: give a name.")
            }
            _ => Ok(()),
        }
    }

    fn changed_values(
        &self,
        settings: &ControllerSettings,
        resource: &ConfigResource,
        changes: &[ConfigChange],
    ) -> Answer<ConfigMap> {
        let mut values = self.image().configs(resource).map(|c| (**c).clone()).unwrap_or_default();
        let mut named = BTreeSet::new();
        for change in changes {
            if !named.insert(&change.key) {
                let message = format!("Configuration {} is changed twice.", change.key);
                return refuse(ErrorCode::InvalidRequest, message);
            }
            self.change_value(settings, resource, change, &mut values)?;
        }
        Ok(values)
    }

    fn change_value(
        &self,
        settings: &ControllerSettings,
        resource: &ConfigResource,
        change: &ConfigChange,
        values: &mut ConfigMap,
    ) -> Answer<()> {
        let key = &change.key;
        if change.operation == ConfigOperation::Delete {
            values.remove(key);
            return Ok(());
        }
        let Some(value) = &change.value else {
            return refuse(ErrorCode::InvalidRequest, format!("Configuration {key} has no value."));
        };
        if change.operation == ConfigOperation::Set {
            values.insert(key.clone(), value.clone());
            return Ok(());
        }
        if !is_list(resource, key) {
            let message = format!("Configuration {key} is no list: set it instead.");
            return refuse(ErrorCode::InvalidConfig, message);
        }
        let mut list = split(&self.list_in_force(settings, resource, key, values));
        for element in split(value) {
            let there = list.contains(&element);
            match change.operation {
                ConfigOperation::Append if !there => list.push(element),
                ConfigOperation::Subtract => list.retain(|other| *other != element),
                _ => {}
            }
        }
        values.insert(key.clone(), list.join(","));
        Ok(())
    }

    /// What a list is before elements are added or taken out: its own value, or what it inherits.
    fn list_in_force(
        &self,
        settings: &ControllerSettings,
        resource: &ConfigResource,
        key: &str,
        values: &ConfigMap,
    ) -> String {
        if let Some(own) = values.get(key) {
            return own.clone();
        }
        let statics = &settings.static_configs;
        if let ConfigResource::Topic(topic) = resource {
            let described = Resolver::new(self.image(), statics, None).describe(topic);
            let found = described.into_iter().find(|config| config.name == key);
            return found.map(|config| config.value).unwrap_or_default();
        }
        let default = || table::find(key)?.default.map(str::to_owned);
        statics.get(key).cloned().or_else(default).unwrap_or_default()
    }
}

fn all_values(values: &[(String, Option<String>)]) -> Answer<ConfigMap> {
    let mut wanted = BTreeMap::new();
    for (key, value) in values {
        let Some(value) = value else {
            return refuse(ErrorCode::InvalidRequest, format!("Configuration {key} has no value."));
        };
        if wanted.insert(key.clone(), value.clone()).is_some() {
            let message = format!("Configuration {key} is set twice.");
            return refuse(ErrorCode::InvalidRequest, message);
        }
    }
    Ok(wanted)
}

fn repeated<'a>(
    resources: impl Iterator<Item = &'a ConfigResource>,
) -> BTreeSet<&'a ConfigResource> {
    let mut seen = BTreeSet::new();
    resources.filter(|resource| !seen.insert(*resource)).collect()
}

fn check_once(twice: &BTreeSet<&ConfigResource>, resource: &ConfigResource) -> Answer<()> {
    if twice.contains(resource) {
        return refuse(ErrorCode::InvalidRequest, "The request names this resource twice.");
    }
    Ok(())
}

/// Whether a key of a resource is a list.
fn is_list(resource: &ConfigResource, key: &str) -> bool {
    let is_list = |key: &Key| key.kind == Kind::List;
    match resource {
        ConfigResource::Topic(_) => table::find_topic(key).is_some_and(is_list),
        ConfigResource::Broker(_) | ConfigResource::ClusterDefault => {
            table::find(key).is_some_and(is_list)
        }
        ConfigResource::Group(_) | ConfigResource::ClientMetrics(_) => key == "metrics",
    }
}

fn split(list: &str) -> Vec<String> {
    value::items(list).map(str::to_owned).collect()
}

/// The values as they are kept, if the resource may have them.
fn checked(resource: &ConfigResource, wanted: ConfigMap) -> Answer<ConfigMap> {
    match resource {
        ConfigResource::Topic(_) => validate_topic(&wanted)
            .map_err(|error| Refusal::new(ErrorCode::InvalidConfig, error.to_string())),
        ConfigResource::Group(_) => {
            let known = |key: &str| GROUP_CONFIGS.iter().any(|(name, _)| *name == key);
            match wanted.keys().find(|key| !known(key)) {
                Some(key) => {
                    refuse(ErrorCode::InvalidConfig, format!("Unknown group config name: {key}"))
                }
                None => Ok(wanted),
            }
        }
        _ => Ok(wanted),
    }
}
