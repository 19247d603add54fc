//! DescribeConfigs (key 32), versions 1 to 4. Every key with its value and where it comes from; v1
//! synonyms (KIP-226); v3 types and documentation (KIP-569). Loggers are in `broker_loggers.rs`.
//!
//! A request that names `highwater.health` of this broker gets the broker's health as its value
//! (decision 0052). It is absent from every other answer.

use std::collections::HashSet;
use std::sync::Arc;

use ::metadata::ConfigResource;
use ::metadata::topic_config::DescribedConfig;
use configuration::Described;
use model::{ErrorCode, topic_name};
use serving::health::report;
use wire::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult,
    DescribeConfigsResponse, DescribeConfigsResult, DescribeConfigsSynonym,
};

use super::config_resource::{self, ResourceKey};
use super::{Call, broker_loggers};
use crate::{health, vital};

/// The source of a value that a group or a subscription has.
const DYNAMIC_GROUP: i8 = 8;
const DYNAMIC_CLIENT_METRICS: i8 = 7;
const TYPE_STRING: i8 = 2;
/// The source of a value that is not configured.
const DEFAULT_CONFIG: i8 = 5;

/// Memory of a resource in an answer, decoded and encoded, with synonyms and documentation.
fn described_bytes(kind: i8) -> usize {
    match kind {
        config_resource::BROKER => 512 << 10,
        _ => 64 << 10,
    }
}

type Outcome = Result<Vec<DescribeConfigsResourceResult>, (ErrorCode, String)>;

/// Answers.
pub async fn handle(call: Arc<Call>, request: DescribeConfigsRequest) -> DescribeConfigsResponse {
    // A resource named twice is described once, in whatever spelling ("1", "+1", "01"): a description
    // may be hundreds of times as large as the name.
    let mut seen = HashSet::new();
    let mut distinct: Vec<&DescribeConfigsResource> = request.resources.iter().collect();
    distinct.retain(|resource| {
        seen.insert(ResourceKey::new(resource.resource_type, &resource.resource_name))
    });
    let bytes: usize =
        distinct.iter().map(|resource| described_bytes(resource.resource_type)).sum();
    call.reserve_answer(bytes + 3 * call.decoded_bytes).await;
    let health = health_report(&call, &request).await;
    let results = distinct.into_iter().map(|resource| {
        let described = describe(&call, resource, health.as_deref());
        let (code, message) = match &described {
            Ok(_) => (ErrorCode::None, None),
            Err((code, message)) => (*code, Some(message.clone())),
        };
        let configs = described.unwrap_or_default();
        DescribeConfigsResult {
            error_code: code.code(),
            error_message: message,
            resource_type: resource.resource_type,
            resource_name: resource.resource_name.clone(),
            configs: configs.into_iter().map(|config| asked_for(&request, config)).collect(),
        }
    });
    DescribeConfigsResponse { throttle_time_ms: 0, results: results.collect() }
}

fn asked_for(
    request: &DescribeConfigsRequest,
    mut config: DescribeConfigsResourceResult,
) -> DescribeConfigsResourceResult {
    if !request.include_synonyms {
        config.synonyms.clear();
    }
    if !request.include_documentation {
        config.documentation = None;
    }
    config
}

/// Whether the request names the health report of this broker.
fn names_health(call: &Call, resource: &DescribeConfigsResource) -> bool {
    let keys = resource.configuration_keys.as_deref().unwrap_or_default();
    let names_report = keys.iter().any(|key| key == report::CONFIG_NAME);
    let parsed = || config_resource::parse(resource.resource_type, &resource.resource_name);
    names_report && matches!(parsed(), Ok(ConfigResource::Broker(id)) if id == call.server.node_id)
}

/// The broker's health report, if the request names it. Collecting it may wait for locks.
async fn health_report(call: &Call, request: &DescribeConfigsRequest) -> Option<String> {
    if !request.resources.iter().any(|resource| names_health(call, resource)) {
        return None;
    }
    let server = Arc::clone(&call.server);
    vital::waiting(move || report::encode(&health::check(&server))).await
}

fn health_config(report: &str) -> DescribeConfigsResourceResult {
    DescribeConfigsResourceResult {
        name: report::CONFIG_NAME.to_owned(),
        value: Some(report.to_owned()),
        read_only: true,
        config_source: DEFAULT_CONFIG,
        config_type: TYPE_STRING,
        documentation: Some("Health of this broker as JSON, as at /healthz.".to_owned()),
        ..Default::default()
    }
}

fn describe(call: &Call, resource: &DescribeConfigsResource, health: Option<&str>) -> Outcome {
    let (kind, name) = (resource.resource_type, &resource.resource_name);
    let all = match kind {
        config_resource::BROKER_LOGGER => broker_loggers::describe(call, name)?,
        _ => all_of(call, &config_resource::parse(kind, name)?)?,
    };
    // No list of keys, or an empty one, asks for all.
    let Some(keys) = resource.configuration_keys.as_ref().filter(|keys| !keys.is_empty()) else {
        return Ok(all);
    };
    let health = health.filter(|_| names_health(call, resource)).map(health_config);
    let named = all.into_iter().filter(|config| keys.contains(&config.name));
    Ok(named.chain(health).collect())
}

fn all_of(call: &Call, resource: &ConfigResource) -> Outcome {
    match resource {
        ConfigResource::Topic(name) => topic(call, name),
        ConfigResource::Broker(id) if *id == call.server.node_id => {
            Ok(call.server.config().configuration.describe().map(broker_config).collect())
        }
        ConfigResource::Broker(id) => {
            let here = call.server.node_id;
            Err((
                ErrorCode::InvalidRequest,
                format!("this is broker {here}, not {id}: ask that one"),
            ))
        }
        ConfigResource::ClusterDefault => {
            let config = call.server.config();
            Ok(config.configuration.describe_for_all().map(broker_config).collect())
        }
        ConfigResource::Group(_) => Ok(own(call, resource, DYNAMIC_GROUP)),
        ConfigResource::ClientMetrics(_) => Ok(own(call, resource, DYNAMIC_CLIENT_METRICS)),
    }
}

fn topic(call: &Call, name: &str) -> Outcome {
    if let Err(reason) = topic_name::validate(name) {
        return Err((ErrorCode::InvalidTopicException, reason.to_string()));
    }
    if call.server.image().topic(name).is_none() {
        return Err((ErrorCode::UnknownTopicOrPartition, format!("there is no topic {name}")));
    }
    Ok(call.server.describe_topic_configs(name).into_iter().map(topic_config).collect())
}

fn topic_config(config: DescribedConfig) -> DescribeConfigsResourceResult {
    DescribeConfigsResourceResult {
        name: config.name.to_owned(),
        value: Some(config.value),
        read_only: config.is_read_only,
        config_source: config.source.code(),
        is_sensitive: config.is_sensitive,
        synonyms: config
            .synonyms
            .into_iter()
            .map(|synonym| DescribeConfigsSynonym {
                name: synonym.name.to_owned(),
                value: Some(synonym.value),
                source: synonym.source.code(),
            })
            .collect(),
        config_type: config.kind.code(),
        documentation: Some(config.doc.to_owned()),
    }
}

fn broker_config(config: Described) -> DescribeConfigsResourceResult {
    DescribeConfigsResourceResult {
        name: config.name,
        value: config.value,
        read_only: config.read_only,
        config_source: config.source.code(),
        is_sensitive: config.sensitive,
        synonyms: config
            .synonyms
            .into_iter()
            .map(|synonym| DescribeConfigsSynonym {
                name: synonym.name,
                value: synonym.value,
                source: synonym.source.code(),
            })
            .collect(),
        config_type: config.kind.map_or(0, |kind| kind.code()),
        documentation: Some(config.doc.to_owned()),
    }
}

/// What a resource was given itself; there is nothing that it inherits.
fn own(call: &Call, resource: &ConfigResource, source: i8) -> Vec<DescribeConfigsResourceResult> {
    let image = call.server.image();
    let Some(configs) = image.configs(resource) else { return Vec::new() };
    configs
        .iter()
        .map(|(name, value)| DescribeConfigsResourceResult {
            name: name.clone(),
            value: Some(value.clone()),
            config_source: source,
            config_type: TYPE_STRING,
            ..Default::default()
        })
        .collect()
}
