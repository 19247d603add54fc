//! AlterConfigs (key 33), versions 0 to 2, which replaces everything a resource has of its own; and
//! IncrementalAlterConfigs (key 44), versions 0 and 1 (KIP-339), which changes keys: set, delete,
//! append, subtract.
//!
//! The rules for topics are the controller's; keys of brokers are checked here, where the table of
//! broker configurations is. Loggers (`broker_loggers.rs`) are changed here and now. Long lists are decided in pieces
//! (decision 0096).

use std::collections::BTreeMap;
use std::sync::Arc;

use ::metadata::decide::{AlterConfigs, ConfigChange, ConfigOperation, IncrementalAlterConfigs};
use ::metadata::{Answer, ConfigResource, Request, Response};
use configuration::key::Kind;
use configuration::{BrokerConfig, Configuration, Scope, table, value};
use model::{BrokerId, ErrorCode, topic_name};
use wire::alter_configs::{AlterConfigsRequest, AlterConfigsResourceResponse};
use wire::incremental_alter_configs::{
    AlterConfigsResourceResponse as ChangedResource, IncrementalAlterConfigsRequest,
};

use super::config_resource::{self, ResourceKey};
use super::list_answer::ListAnswer;
use super::{Call, broker_loggers};

/// Resources that are decided at a time.
const PIECE_RESOURCES_MAX: usize = 1000;

/// A resource as the client named it, and what became of it.
struct Outcome {
    kind: i8,
    name: String,
    error: Option<(ErrorCode, String)>,
    /// Whether the controller still has to decide.
    open: bool,
}

/// Answers AlterConfigs.
pub async fn replace(call: Arc<Call>, request: AlterConfigsRequest) -> ListAnswer {
    let mut draft = Draft::new(&call);
    let mut resources = request.resources;
    let repeated = take_repeated(&mut resources, |one| (one.resource_type, &one.resource_name));
    let mut answer = ListAnswer::new(&call, repeated.len() + resources.len());
    let mut push = |outcome: Outcome| {
        let (code, error_message) = said(outcome.error);
        let resource = AlterConfigsResourceResponse {
            error_code: code.code(),
            error_message,
            resource_type: outcome.kind,
            resource_name: outcome.name,
        };
        answer.push(|writer| resource.encode(writer, call.version));
    };
    repeated.into_iter().for_each(&mut push);
    let mut resources = resources.into_iter();
    while resources.len() > 0 {
        let (mut accepted, mut outcomes) = (Vec::new(), Vec::new());
        for resource in resources.by_ref().take(PIECE_RESOURCES_MAX) {
            let configs: Vec<(String, Option<String>)> =
                resource.configs.into_iter().map(|config| (config.name, config.value)).collect();
            let wanted =
                configs.iter().filter_map(|(key, value)| Some((key.clone(), value.clone()?)));
            let checked = config_resource::parse(resource.resource_type, &resource.resource_name)
                .and_then(|named| draft.check(named, |_, _| Ok(wanted.collect())));
            let error = checked.map(|resource| accepted.push((resource, configs))).err();
            outcomes.push(Outcome {
                kind: resource.resource_type,
                name: resource.resource_name,
                open: error.is_none(),
                error,
            });
        }
        let request = AlterConfigs { resources: accepted, validate_only: request.validate_only };
        decide(&call, Request::AlterConfigs(request), &mut outcomes).await;
        outcomes.into_iter().for_each(&mut push);
    }
    answer
}

/// Answers IncrementalAlterConfigs.
pub async fn change(call: Arc<Call>, request: IncrementalAlterConfigsRequest) -> ListAnswer {
    let mut draft = Draft::new(&call);
    let validate_only = request.validate_only;
    let mut resources = request.resources;
    let repeated = take_repeated(&mut resources, |one| (one.resource_type, &one.resource_name));
    let mut answer = ListAnswer::new(&call, repeated.len() + resources.len());
    let mut push = |outcome: Outcome| {
        let (code, error_message) = said(outcome.error);
        let resource = ChangedResource {
            error_code: code.code(),
            error_message,
            resource_type: outcome.kind,
            resource_name: outcome.name,
        };
        answer.push(|writer| resource.encode(writer, call.version));
    };
    repeated.into_iter().for_each(&mut push);
    let mut resources = resources.into_iter();
    while resources.len() > 0 {
        let (mut accepted, mut outcomes) = (Vec::new(), Vec::new());
        for resource in resources.by_ref().take(PIECE_RESOURCES_MAX) {
            let (kind, name) = (resource.resource_type, resource.resource_name);
            let changes = resource.configs.into_iter().map(|config| {
                let operation = operation(config.config_operation)?;
                Ok(ConfigChange { key: config.name, operation, value: config.value })
            });
            let checked = changes.collect::<Result<Vec<_>, _>>().and_then(|changes| {
                if kind == config_resource::BROKER_LOGGER {
                    broker_loggers::change(&call, &name, &changes, validate_only)?;
                    return Ok(None);
                }
                let named = config_resource::parse(kind, &name)?;
                let checked =
                    draft.check(named, |config, scope| changed(config, scope, &changes))?;
                Ok(Some((checked, changes)))
            });
            let open = matches!(checked, Ok(Some(_)));
            let error = checked.map(|resource| accepted.extend(resource)).err();
            outcomes.push(Outcome { kind, name, error, open });
        }
        let request = IncrementalAlterConfigs { resources: accepted, validate_only };
        decide(&call, Request::IncrementalAlterConfigs(request), &mut outcomes).await;
        outcomes.into_iter().for_each(&mut push);
    }
    answer
}

/// Removes resources that the request names more than once, and refuses each of them once, as Kafka does.
fn take_repeated<T>(resources: &mut Vec<T>, name: fn(&T) -> (i8, &String)) -> Vec<Outcome> {
    let key = |resource| {
        let (kind, name) = name(resource);
        ResourceKey::new(kind, name)
    };
    let keys: Vec<ResourceKey<'_>> = resources.iter().map(key).collect();
    let mut sorted: Vec<usize> = (0..resources.len()).collect();
    sorted.sort_by_key(|at| keys[*at]);
    let mut is_repeated = vec![false; resources.len()];
    let mut refused = Vec::new();
    for equal in sorted.chunk_by(|one, other| keys[*one] == keys[*other]) {
        if let [first, _, ..] = equal {
            let (kind, name) = (keys[*first].kind(), keys[*first].name());
            let message = "Each resource must appear at most once.".to_owned();
            let error = Some((ErrorCode::InvalidRequest, message));
            refused.push(Outcome { kind, name, error, open: false });
            equal.iter().for_each(|at| is_repeated[*at] = true);
        }
    }
    let mut is_repeated = is_repeated.into_iter();
    resources.retain(|_| !is_repeated.next().unwrap_or(false));
    refused
}

fn said(error: Option<(ErrorCode, String)>) -> (ErrorCode, Option<String>) {
    match error {
        None => (ErrorCode::None, None),
        Some((code, message)) => (code, Some(message)),
    }
}

fn operation(code: i8) -> Result<ConfigOperation, (ErrorCode, String)> {
    match code {
        0 => Ok(ConfigOperation::Set),
        1 => Ok(ConfigOperation::Delete),
        2 => Ok(ConfigOperation::Append),
        3 => Ok(ConfigOperation::Subtract),
        _ => Err((
            ErrorCode::InvalidRequest,
            format!("no operation on a configuration has number {code}"),
        )),
    }
}

/// Everything that is changed at run time in one scope.
type Changes = BTreeMap<String, String>;
type Checked<T> = Result<T, (ErrorCode, String)>;

/// This broker's configuration as the resources of a request leave it, one after the other: what
/// only the broker can check.
struct Draft {
    node_id: BrokerId,
    config: BrokerConfig,
}

impl Draft {
    fn new(call: &Call) -> Draft {
        let config = BrokerConfig::clone(&call.server.config());
        Draft { node_id: call.server.node_id, config }
    }

    /// Refuses what this broker could not obey. `wanted` gives all that will be changed at run time
    /// in the scope; it is checked as a whole, together with everything else that holds.
    fn check(
        &mut self,
        resource: ConfigResource,
        wanted: impl FnOnce(&Configuration, Scope) -> Checked<Changes>,
    ) -> Checked<ConfigResource> {
        let Some(scope) = self.scope(&resource)? else { return Ok(resource) };
        let wanted = wanted(&self.config.configuration, scope)?;
        self.config = self
            .config
            .with_changes(scope, &wanted)
            .map_err(|refused| (ErrorCode::InvalidRequest, refused.to_string()))?;
        Ok(resource)
    }

    /// The scope of a broker's resource; `None` for a topic, which the controller checks.
    fn scope(&self, resource: &ConfigResource) -> Checked<Option<Scope>> {
        match resource {
            ConfigResource::Broker(id) if *id == self.node_id => Ok(Some(Scope::ThisBroker)),
            ConfigResource::Broker(id) => {
                let message = format!("this is broker {}, not {id}: ask that one", self.node_id);
                Err((ErrorCode::InvalidRequest, message))
            }
            ConfigResource::ClusterDefault => Ok(Some(Scope::AllBrokers)),
            ConfigResource::Topic(name) => match topic_name::validate(name) {
                Ok(()) => Ok(None),
                Err(reason) => Err((ErrorCode::InvalidTopicException, reason.to_string())),
            },
            ConfigResource::Group(_) | ConfigResource::ClientMetrics(_) => {
                let message = "groups and client metrics have no configurations on this broker";
                Err((ErrorCode::InvalidRequest, message.to_owned()))
            }
        }
    }
}

/// What is changed at run time in `scope` once these changes are made.
fn changed(
    configuration: &Configuration,
    scope: Scope,
    changes: &[ConfigChange],
) -> Checked<Changes> {
    let mut wanted = configuration.changes(scope).clone();
    for ConfigChange { key, operation, value } in changes {
        // Whether the key may be changed at all; the values are checked together afterwards.
        configuration
            .check_dynamic(scope, key, None)
            .map_err(|refused| (ErrorCode::InvalidRequest, refused.to_string()))?;
        let is_list = table::find(key).is_some_and(|key| key.kind == Kind::List);
        match (operation, value) {
            (ConfigOperation::Delete, _) => {
                wanted.remove(key);
            }
            (ConfigOperation::Append | ConfigOperation::Subtract, Some(value)) if is_list => {
                let now = wanted.get(key).map(String::as_str).or(configuration.value(key));
                let list = edited(now.unwrap_or_default(), value, *operation);
                wanted.insert(key.clone(), list);
            }
            (_, Some(value)) => {
                wanted.insert(key.clone(), value.clone());
            }
            // The controller refuses a change without a value.
            (_, None) => {}
        }
    }
    Ok(wanted)
}

/// A list with the items of another added or taken out.
fn edited(list: &str, by: &str, operation: ConfigOperation) -> String {
    let mut items: Vec<&str> = value::items(list).collect();
    for item in value::items(by) {
        match operation {
            ConfigOperation::Append if !items.contains(&item) => items.push(item),
            ConfigOperation::Subtract => items.retain(|other| *other != item),
            _ => {}
        }
    }
    items.join(",")
}

/// Proposes what was accepted and files the answers, which come in the same order.
async fn decide(call: &Arc<Call>, request: Request, outcomes: &mut [Outcome]) {
    let open: Vec<&mut Outcome> = outcomes.iter_mut().filter(|outcome| outcome.open).collect();
    if open.is_empty() {
        return;
    }
    match call.decide(request).await {
        Ok(Response::AlterConfigs(answers)) => {
            for (outcome, (_, answer)) in open.into_iter().zip(answers) {
                let answer: Answer<()> = answer;
                outcome.error = answer.err().map(|refusal| (refusal.error, refusal.message));
            }
        }
        Ok(other) => unreachable!("the answer to another request: {other:?}"),
        Err(code) => {
            open.into_iter()
                .for_each(|outcome| outcome.error = Some((code, code.name().to_owned())));
        }
    }
}
