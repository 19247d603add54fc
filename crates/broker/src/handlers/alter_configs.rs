//! AlterConfigs (key 33), versions 0 to 2, which replaces everything a resource has of its own; and
//! IncrementalAlterConfigs (key 44), versions 0 and 1 (KIP-339), which changes keys: set, delete,
//! append, subtract.
//!
//! The rules for topics are the controller's; keys of brokers are checked here, where the table of
//! broker configurations is.

use std::sync::Arc;

use ::metadata::decide::{AlterConfigs, ConfigChange, ConfigOperation, IncrementalAlterConfigs};
use ::metadata::{Answer, ConfigResource, Request, Response};
use configuration::Scope;
use model::{ErrorCode, topic_name};
use wire::alter_configs::{
    AlterConfigsRequest, AlterConfigsResourceResponse, AlterConfigsResponse,
};
use wire::incremental_alter_configs::{
    AlterConfigsResourceResponse as ChangedResource, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
};

use super::{Call, config_resource};

/// A resource as the client named it, and what became of it.
struct Outcome {
    kind: i8,
    name: String,
    error: Option<(ErrorCode, String)>,
}

/// Answers AlterConfigs.
pub async fn replace(call: Arc<Call>, request: AlterConfigsRequest) -> AlterConfigsResponse {
    let mut accepted = Vec::new();
    let mut outcomes = Vec::new();
    for resource in request.resources {
        let configs: Vec<(String, Option<String>)> =
            resource.configs.into_iter().map(|config| (config.name, config.value)).collect();
        let checked = check(&call, resource.resource_type, &resource.resource_name, &configs);
        let error = checked.map(|resource| accepted.push((resource, configs))).err();
        outcomes.push(Outcome {
            kind: resource.resource_type,
            name: resource.resource_name,
            error,
        });
    }
    let request = AlterConfigs { resources: accepted, validate_only: request.validate_only };
    decide(&call, Request::AlterConfigs(request), &mut outcomes).await;
    let answer = |outcome: Outcome| {
        let (code, error_message) = said(outcome.error);
        AlterConfigsResourceResponse {
            error_code: code.code(),
            error_message,
            resource_type: outcome.kind,
            resource_name: outcome.name,
        }
    };
    AlterConfigsResponse {
        throttle_time_ms: 0,
        responses: outcomes.into_iter().map(answer).collect(),
    }
}

/// Answers IncrementalAlterConfigs.
pub async fn change(
    call: Arc<Call>,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let mut accepted = Vec::new();
    let mut outcomes = Vec::new();
    for resource in request.resources {
        let (kind, name) = (resource.resource_type, resource.resource_name);
        let changes = resource.configs.into_iter().map(|config| {
            let operation = operation(config.config_operation)?;
            Ok(ConfigChange { key: config.name, operation, value: config.value })
        });
        let checked = changes.collect::<Result<Vec<_>, _>>().and_then(|changes| {
            let set = changes.iter().map(|change| {
                let value =
                    change.value.clone().filter(|_| change.operation != ConfigOperation::Delete);
                (change.key.clone(), value)
            });
            let set: Vec<_> = set.collect();
            Ok((check(&call, kind, &name, &set)?, changes))
        });
        let error = checked.map(|resource| accepted.push(resource)).err();
        outcomes.push(Outcome { kind, name, error });
    }
    let request =
        IncrementalAlterConfigs { resources: accepted, validate_only: request.validate_only };
    decide(&call, Request::IncrementalAlterConfigs(request), &mut outcomes).await;
    let answer = |outcome: Outcome| {
        let (code, error_message) = said(outcome.error);
        ChangedResource {
            error_code: code.code(),
            error_message,
            resource_type: outcome.kind,
            resource_name: outcome.name,
        }
    };
    IncrementalAlterConfigsResponse {
        throttle_time_ms: 0,
        responses: outcomes.into_iter().map(answer).collect(),
    }
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

/// What only this broker can check.
fn check(
    call: &Call,
    kind: i8,
    name: &str,
    configs: &[(String, Option<String>)],
) -> Result<ConfigResource, (ErrorCode, String)> {
    let resource = config_resource::parse(kind, name)?;
    let scope = match &resource {
        ConfigResource::Broker(id) if *id == call.server.node_id => Scope::ThisBroker,
        ConfigResource::Broker(id) => {
            let here = call.server.node_id;
            return Err((
                ErrorCode::InvalidRequest,
                format!("this is broker {here}, not {id}: ask that one"),
            ));
        }
        ConfigResource::ClusterDefault => Scope::AllBrokers,
        ConfigResource::Topic(name) => {
            return match topic_name::validate(name) {
                Ok(()) => Ok(resource),
                Err(reason) => Err((ErrorCode::InvalidTopicException, reason.to_string())),
            };
        }
        ConfigResource::Group(_) | ConfigResource::ClientMetrics(_) => {
            let message = "groups and client metrics have no configurations on this broker";
            return Err((ErrorCode::InvalidRequest, message.to_owned()));
        }
    };
    let config = call.server.config();
    for (key, value) in configs {
        config
            .configuration
            .check_dynamic(scope, key, value.as_deref())
            .map_err(|refused| (ErrorCode::InvalidRequest, refused.to_string()))?;
    }
    Ok(resource)
}

/// Proposes what was accepted and files the answers, which come in the same order.
async fn decide(call: &Call, request: Request, outcomes: &mut [Outcome]) {
    let open: Vec<&mut Outcome> =
        outcomes.iter_mut().filter(|outcome| outcome.error.is_none()).collect();
    if open.is_empty() {
        return;
    }
    match call.server.decide(request).await {
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
