//! `cluster info` and `cluster health`: the brokers, and whether every partition is well.

use std::process::ExitCode;

use client::Metadata;
use serde::Serialize;

use crate::arguments::Connection;
use crate::commands::cluster_access::{PATIENCE, block_on, connect, failed};
use crate::failure::Failure;
use crate::output::{self, Format, Row};

fn ask(connection: &Connection) -> Result<Metadata, Failure> {
    block_on(async {
        let cluster = connect(connection, PATIENCE, false).await?;
        let metadata = cluster.retry(|| cluster.describe_all()).await;
        metadata.map_err(|error| failed("cannot describe the cluster", &error))
    })
}

#[derive(Serialize)]
struct Broker {
    id: i32,
    host: String,
    port: i32,
    rack: Option<String>,
    controller: bool,
    /// Partitions that it leads.
    leaders: usize,
    /// Partitions of which it has a replica.
    replicas: usize,
}

impl Row for Broker {
    const HEADERS: &'static [&'static str] =
        &["ID", "HOST", "PORT", "RACK", "CONTROLLER", "LEADERS", "REPLICAS"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.id.to_string(),
            self.host.clone(),
            self.port.to_string(),
            output::cell(self.rack.as_deref()),
            if self.controller { "yes" } else { "no" }.to_owned(),
            self.leaders.to_string(),
            self.replicas.to_string(),
        ]
    }
}

#[derive(Serialize)]
struct Info<'a> {
    cluster_id: Option<&'a str>,
    brokers: Vec<Broker>,
}

/// `cluster info`
pub fn info(format: Format, connection: &Connection) -> Result<ExitCode, Failure> {
    let metadata = ask(connection)?;
    let partitions = || metadata.topics.values().flat_map(|topic| &topic.partitions);
    let mut brokers: Vec<Broker> = metadata
        .brokers
        .values()
        .map(|broker| Broker {
            id: broker.id,
            host: broker.host.clone(),
            port: broker.port,
            rack: broker.rack.clone(),
            controller: metadata.controller == Some(broker.id),
            leaders: partitions().filter(|p| p.leader == Some(broker.id)).count(),
            replicas: partitions().filter(|p| p.replicas.contains(&broker.id)).count(),
        })
        .collect();
    brokers.sort_by_key(|broker| broker.id);
    match format {
        Format::Table => output::print(format, &brokers)?,
        Format::Json => {
            let info = Info { cluster_id: metadata.cluster_id.as_deref(), brokers };
            output::print_one(format, &info, |_| String::new())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize, Default)]
struct Health {
    healthy: bool,
    brokers: usize,
    topics: usize,
    partitions: usize,
    /// Partitions that nobody leads.
    without_leader: Vec<String>,
    /// Partitions of which a replica is not in sync.
    under_replicated: Vec<String>,
}

impl Health {
    fn of(metadata: &Metadata) -> Health {
        let mut health = Health { brokers: metadata.brokers.len(), ..Health::default() };
        for topic in metadata.topics.values() {
            health.topics += 1;
            for partition in &topic.partitions {
                health.partitions += 1;
                let name = || format!("{}-{}", topic.name, partition.index);
                if partition.leader.is_none() {
                    health.without_leader.push(name());
                }
                if partition.isr.len() < partition.replicas.len() {
                    health.under_replicated.push(name());
                }
            }
        }
        health.without_leader.sort();
        health.under_replicated.sort();
        let complete = health.without_leader.is_empty() && health.under_replicated.is_empty();
        health.healthy = complete && metadata.controller.is_some();
        health
    }

    fn text(&self) -> String {
        let names = |partitions: &[String]| match partitions.len() {
            0 => "0".to_owned(),
            count => format!("{count} ({})", partitions.join(", ")),
        };
        format!(
            "healthy: {}\nbrokers: {}\ntopics: {}\npartitions: {}\nwithout leader: {}\n\
             under-replicated: {}\n",
            if self.healthy { "yes" } else { "no" },
            self.brokers,
            self.topics,
            self.partitions,
            names(&self.without_leader),
            names(&self.under_replicated),
        )
    }
}

/// `cluster health`
pub fn health(format: Format, connection: &Connection) -> Result<ExitCode, Failure> {
    let health = Health::of(&ask(connection)?);
    output::print_one(format, &health, Health::text)?;
    Ok(if health.healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
