//! Configurations of topics, brokers and groups.

use super::topics::first_error;
use super::{Admin, Each, each, only};
use crate::error::{ClientError, check};
use wire::describe_configs::{DescribeConfigsResource, DescribeConfigsResult};
use wire::incremental_alter_configs::{AlterConfigsResource, AlterableConfig};
use wire::list_config_resources::ConfigResource;
use wire::{
    AlterConfigsRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest, alter_configs,
};

/// What has a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResourceType {
    /// A topic.
    Topic,
    /// A broker by its id, or all of them with an empty name.
    Broker,
    /// The loggers of a broker.
    BrokerLogger,
    /// A subscription to clients' metrics.
    ClientMetrics,
    /// A group.
    Group,
}

impl ResourceType {
    /// The number in the protocol.
    pub const fn code(self) -> i8 {
        match self {
            ResourceType::Topic => 2,
            ResourceType::Broker => 4,
            ResourceType::BrokerLogger => 8,
            ResourceType::ClientMetrics => 16,
            ResourceType::Group => 32,
        }
    }
}

/// One thing with a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Resource {
    /// What it is.
    pub kind: ResourceType,
    /// Its name.
    pub name: String,
}

impl Resource {
    /// A topic.
    pub fn topic(name: &str) -> Resource {
        Resource { kind: ResourceType::Topic, name: name.to_owned() }
    }

    /// A broker.
    pub fn broker(id: i32) -> Resource {
        Resource { kind: ResourceType::Broker, name: id.to_string() }
    }

    /// The broker that alone can describe it, if there is one.
    fn broker_id(&self) -> Option<i32> {
        match self.kind {
            ResourceType::Broker | ResourceType::BrokerLogger => self.name.parse().ok(),
            _ => None,
        }
    }
}

/// A change of one setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigOperation {
    /// Sets it.
    Set(String),
    /// Goes back to the default.
    Delete,
    /// Adds to a list.
    Append(String),
    /// Takes out of a list.
    Subtract(String),
}

impl ConfigOperation {
    fn to_wire(&self, name: &str) -> AlterableConfig {
        let (config_operation, value) = match self {
            ConfigOperation::Set(value) => (0, Some(value.clone())),
            ConfigOperation::Delete => (1, None),
            ConfigOperation::Append(value) => (2, Some(value.clone())),
            ConfigOperation::Subtract(value) => (3, Some(value.clone())),
        };
        AlterableConfig { name: name.to_owned(), config_operation, value }
    }
}

impl Admin {
    /// The whole configuration of one thing, with synonyms: what the value would otherwise be.
    pub async fn describe_configs(
        &self,
        resource: &Resource,
    ) -> Result<DescribeConfigsResult, ClientError> {
        let request = DescribeConfigsRequest {
            resources: vec![DescribeConfigsResource {
                resource_type: resource.kind.code(),
                resource_name: resource.name.clone(),
                configuration_keys: None,
            }],
            include_synonyms: true,
            include_documentation: false,
        };
        let response = match resource.broker_id() {
            Some(id) => self.cluster.call_broker(id, &request).await?,
            None => self.call(&request).await?,
        };
        let result = response.results.into_iter().next();
        let result = result.ok_or_else(|| super::missing("an answer"))?;
        let message = result.error_message.as_deref();
        check(result.error(), message, || format!("configuration of {}", resource.name))?;
        Ok(result)
    }

    /// Value of one key of a broker, as that broker returns it; `None` if the broker has no such key.
    pub async fn broker_config(
        &self,
        broker: i32,
        key: &str,
    ) -> Result<Option<String>, ClientError> {
        let resource = Resource::broker(broker);
        let request = DescribeConfigsRequest {
            resources: vec![DescribeConfigsResource {
                resource_type: resource.kind.code(),
                resource_name: resource.name.clone(),
                configuration_keys: Some(vec![key.to_owned()]),
            }],
            include_synonyms: false,
            include_documentation: false,
        };
        let response = self.cluster.call_broker(broker, &request).await?;
        let result = response.results.into_iter().next();
        let result = result.ok_or_else(|| super::missing("a result"))?;
        let message = result.error_message.as_deref();
        check(result.error(), message, || format!("configuration of broker {broker}"))?;
        let found = result.configs.into_iter().find(|config| config.name == key);
        Ok(found.and_then(|config| config.value))
    }

    /// Changes settings of one thing and leaves the others as they are (KIP-339).
    pub async fn alter_configs(
        &self,
        resource: &Resource,
        operations: &[(String, ConfigOperation)],
        validate_only: bool,
    ) -> Result<(), ClientError> {
        let configs = operations.iter().map(|(name, operation)| operation.to_wire(name));
        let request = IncrementalAlterConfigsRequest {
            resources: vec![AlterConfigsResource {
                resource_type: resource.kind.code(),
                resource_name: resource.name.clone(),
                configs: configs.collect(),
            }],
            validate_only,
        };
        let response = match resource.broker_id() {
            Some(id) => self.cluster.call_broker(id, &request).await?,
            None => self.change(&request, |r| first_error(&r.responses, |a| a.error())).await?,
        };
        let row = |a: &wire::incremental_alter_configs::AlterConfigsResourceResponse| {
            each(a.resource_name.clone(), a.error(), a.error_message.as_deref(), ())
        };
        only(response.responses.iter().map(row).collect())
    }

    /// Replaces the whole configuration of one thing: what is not named goes back to its default.
    pub async fn replace_configs(
        &self,
        resource: &Resource,
        configs: &[(String, String)],
    ) -> Result<(), ClientError> {
        let config = |(name, value): &(String, String)| alter_configs::AlterableConfig {
            name: name.clone(),
            value: Some(value.clone()),
        };
        let request = AlterConfigsRequest {
            resources: vec![alter_configs::AlterConfigsResource {
                resource_type: resource.kind.code(),
                resource_name: resource.name.clone(),
                configs: configs.iter().map(config).collect(),
            }],
            validate_only: false,
        };
        let response = self.change(&request, |r| first_error(&r.responses, |a| a.error())).await?;
        let row = |a: &alter_configs::AlterConfigsResourceResponse| {
            each(a.resource_name.clone(), a.error(), a.error_message.as_deref(), ())
        };
        let rows: Each<()> = response.responses.iter().map(row).collect();
        only(rows)
    }

    /// What has a configuration of its own, of these types (all, if none is named).
    pub async fn list_config_resources(
        &self,
        types: &[ResourceType],
    ) -> Result<Vec<ConfigResource>, ClientError> {
        let resource_types = types.iter().map(|t| t.code()).collect();
        let response = self.call(&ListConfigResourcesRequest { resource_types }).await?;
        check(response.error(), None, || "listing what has a configuration".to_owned())?;
        Ok(response.config_resources)
    }
}
