//! `config get` and `config set`: configurations of topics and brokers, asked of the cluster.

use std::process::ExitCode;

use client::{ClientError, Cluster};
use model::ErrorCode;
use serde::Serialize;
use wire::describe_configs::{DescribeConfigsResource, DescribeConfigsResourceResult};
use wire::incremental_alter_configs::{AlterConfigsResource, AlterableConfig};
use wire::{DescribeConfigsRequest, IncrementalAlterConfigsRequest, Request};

use crate::arguments::{Connection, Pair, Resource};
use crate::commands::cluster_access::{PATIENCE, block_on, connect, failed};
use crate::commands::outcome::Outcomes;
use crate::failure::Failure;
use crate::output::{self, Format, Row, cell};

const OF_TOPIC: i8 = 2;
const OF_BROKER: i8 = 4;
const SET: i8 = 0;
const DELETE: i8 = 1;

/// Whose configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whose {
    /// A topic's.
    Topic(String),
    /// One broker's.
    Broker(i32),
    /// That of all brokers.
    AllBrokers,
}

impl Whose {
    fn typed(resource: &Resource) -> Whose {
        match (&resource.topic, resource.broker) {
            (Some(topic), _) => Whose::Topic(topic.clone()),
            (None, Some(id)) => Whose::Broker(id),
            (None, None) => Whose::AllBrokers,
        }
    }

    fn kind(&self) -> i8 {
        if matches!(self, Whose::Topic(_)) { OF_TOPIC } else { OF_BROKER }
    }

    fn name(&self) -> String {
        match self {
            Whose::Topic(name) => name.clone(),
            Whose::Broker(id) => id.to_string(),
            Whose::AllBrokers => String::new(),
        }
    }

    fn words(&self) -> String {
        match self {
            Whose::Topic(name) => format!("topic {name}"),
            Whose::Broker(id) => format!("broker {id}"),
            Whose::AllBrokers => "all brokers".to_owned(),
        }
    }

    /// A broker answers for itself; anybody for the rest.
    async fn call<R: Request>(
        &self,
        cluster: &Cluster,
        request: &R,
    ) -> Result<R::Response, ClientError> {
        match self {
            Whose::Broker(id) => cluster.call_broker(*id, request).await,
            _ => cluster.call_any(request).await,
        }
    }
}

/// `config get`
pub fn get(
    resource: &Resource,
    keys: &[String],
    format: Format,
    connection: &Connection,
) -> Result<ExitCode, Failure> {
    let whose = Whose::typed(resource);
    let configuration_keys = (!keys.is_empty()).then(|| keys.to_vec());
    let resource = DescribeConfigsResource {
        resource_type: whose.kind(),
        resource_name: whose.name(),
        configuration_keys,
    };
    let request = DescribeConfigsRequest { resources: vec![resource], ..Default::default() };
    let cannot = format!("cannot show the configuration of {}", whose.words());
    let found = block_on(async {
        let cluster = connect(connection, PATIENCE, false).await?;
        whose.call(&cluster, &request).await.map_err(|error| failed(&cannot, &error))
    })?;
    let mut outcomes = Outcomes::default();
    let mut rows: Vec<Entry> = Vec::new();
    for result in found.results {
        if result.error() != ErrorCode::None {
            outcomes.take(&whose.words(), "", result.error(), result.error_message.as_deref());
        }
        rows.extend(result.configs.into_iter().map(Entry::from));
    }
    outcomes.finish(&cannot)?;
    if let Some(absent) = keys.iter().find(|key| rows.iter().all(|row| row.key != **key)) {
        return Err(Failure::new(format!("{} has no configuration {absent}", whose.words()))
            .hint("without a key, `highwater config get` shows every one there is"));
    }
    rows.sort_by(|a, b| a.key.cmp(&b.key));
    output::print(format, &rows).map(|()| ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct Entry {
    key: String,
    value: Option<String>,
    source: &'static str,
    read_only: bool,
    sensitive: bool,
}

impl From<DescribeConfigsResourceResult> for Entry {
    fn from(entry: DescribeConfigsResourceResult) -> Entry {
        Entry {
            key: entry.name,
            value: entry.value,
            source: match entry.config_source {
                1 => "topic",
                2 => "broker (changed)",
                3 => "all brokers (changed)",
                4 => "broker",
                5 => "default",
                _ => "unknown",
            },
            read_only: entry.read_only,
            sensitive: entry.is_sensitive,
        }
    }
}

impl Row for Entry {
    const HEADERS: &'static [&'static str] = &["KEY", "VALUE", "SOURCE"];

    fn cells(&self) -> Vec<String> {
        let hidden = self.sensitive.then_some("***");
        vec![self.key.clone(), cell(hidden.or(self.value.as_deref())), self.source.to_owned()]
    }
}

/// `config set`
pub fn set(
    resource: &Resource,
    sets: &[Pair],
    deletes: &[String],
    connection: &Connection,
) -> Result<ExitCode, Failure> {
    let whose = Whose::typed(resource);
    block_on(async {
        let cluster = connect(connection, PATIENCE, false).await?;
        alter(&cluster, &whose, sets, deletes).await
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Sets some keys and takes others back to their defaults; all of it or nothing.
pub async fn alter(
    cluster: &Cluster,
    whose: &Whose,
    sets: &[Pair],
    deletes: &[String],
) -> Result<(), Failure> {
    let set = |pair: &Pair| AlterableConfig {
        name: pair.key.clone(),
        config_operation: SET,
        value: Some(pair.value.clone()),
    };
    let delete =
        |key: &String| AlterableConfig { name: key.clone(), config_operation: DELETE, value: None };
    let resource = AlterConfigsResource {
        resource_type: whose.kind(),
        resource_name: whose.name(),
        configs: sets.iter().map(set).chain(deletes.iter().map(delete)).collect(),
    };
    let request =
        IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
    let cannot = format!("the configuration of {} was not changed", whose.words());
    let answer = whose.call(cluster, &request).await.map_err(|error| failed(&cannot, &error))?;
    let mut outcomes = Outcomes::default();
    for response in &answer.responses {
        let message = response.error_message.as_deref();
        outcomes.take(&whose.words(), "changed", response.error(), message);
    }
    outcomes.finish(&cannot)
}
