//! `cluster info` and `cluster health`: the brokers, and whether every partition is well.

use std::process::ExitCode;

use client::{Admin, Metadata};
use serde::Serialize;
use wire::describe_cluster::DescribeClusterBroker;

use crate::arguments::Connection;
use crate::commands::cluster_access::{PATIENCE, block_on, connect, failed};
use crate::failure::Failure;
use crate::output::{self, Format, Row};

/// The topics, and all brokers with those that are registered and do not serve.
fn ask(connection: &Connection) -> Result<(Metadata, Vec<DescribeClusterBroker>), Failure> {
    block_on(async {
        let admin = Admin::new(connect(connection, PATIENCE, false).await?);
        let cannot = |error| failed("cannot describe the cluster", &error);
        let metadata = admin.describe_all().await.map_err(cannot)?;
        let mut brokers = admin.describe_all_brokers().await.map_err(cannot)?.brokers;
        brokers.sort_by_key(|broker| broker.broker_id);
        Ok((metadata, brokers))
    })
}

#[derive(Serialize)]
struct Broker {
    id: i32,
    host: String,
    port: i32,
    rack: Option<String>,
    /// Registered, and does not serve.
    fenced: bool,
    controller: bool,
    /// Partitions that it leads.
    leaders: usize,
    /// Partitions of which it has a replica.
    replicas: usize,
}

impl Row for Broker {
    const HEADERS: &'static [&'static str] =
        &["ID", "HOST", "PORT", "RACK", "STATE", "CONTROLLER", "LEADERS", "REPLICAS"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.id.to_string(),
            self.host.clone(),
            self.port.to_string(),
            output::cell(self.rack.as_deref()),
            if self.fenced { "fenced" } else { "serves" }.to_owned(),
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
    let (metadata, brokers) = ask(connection)?;
    let partitions = || metadata.topics.values().flat_map(|topic| &topic.partitions);
    let row = |broker: DescribeClusterBroker| {
        let id = broker.broker_id;
        Broker {
            id,
            host: broker.host,
            port: broker.port,
            rack: broker.rack,
            fenced: broker.is_fenced,
            controller: metadata.controller == Some(id),
            leaders: partitions().filter(|p| p.leader == Some(id)).count(),
            replicas: partitions().filter(|p| p.replicas.contains(&id)).count(),
        }
    };
    let brokers: Vec<Broker> = brokers.into_iter().map(row).collect();
    match format {
        Format::Table => output::print(format, &brokers)?,
        Format::Json => {
            let info = Info { cluster_id: metadata.cluster_id.as_deref(), brokers };
            output::print_one(format, &info, |_| String::new())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Partitions that a text names; all are in JSON.
const NAMED_MAX: usize = 20;

#[derive(Serialize, Default)]
struct Health {
    healthy: bool,
    brokers: usize,
    topics: usize,
    partitions: usize,
    /// Registered brokers that do not serve.
    fenced: Vec<i32>,
    /// Partitions that nobody leads.
    without_leader: Vec<String>,
    /// Partitions of which a replica is not in sync.
    under_replicated: Vec<String>,
}

impl Health {
    fn of(metadata: &Metadata, brokers: &[DescribeClusterBroker]) -> Health {
        let fenced = brokers.iter().filter(|broker| broker.is_fenced);
        let fenced: Vec<i32> = fenced.map(|broker| broker.broker_id).collect();
        let serving = brokers.len() - fenced.len();
        let mut health = Health { brokers: serving, fenced, ..Health::default() };
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
        let all_serve = health.fenced.is_empty();
        health.healthy = complete && all_serve && metadata.controller.is_some();
        health
    }

    /// What a person can do about it.
    fn hint(&self) -> Option<String> {
        if let Some(first) = self.fenced.first() {
            return Some(format!(
                "start the fenced brokers again; one that will not come back is forgotten by \
                 `highwater cluster unregister {first}`"
            ));
        }
        if let Some(first) = self.without_leader.first().and_then(|name| name.rsplit_once('-')) {
            return Some(format!(
                "every replica that has all records is gone: start its broker again, or accept the loss of what \
                 only it has: `highwater cluster elect --unclean {}:{}`",
                first.0, first.1
            ));
        }
        (!self.under_replicated.is_empty()).then(|| {
            "replicas are catching up, or a broker that had them was unregistered: `highwater topic describe` shows \
             which are in sync"
                .to_owned()
        })
    }

    fn text(&self) -> String {
        let names = |partitions: &[String]| match partitions.len() {
            0 => "0".to_owned(),
            count if count > NAMED_MAX => {
                format!("{count} ({}, …)", partitions[..NAMED_MAX].join(", "))
            }
            count => format!("{count} ({})", partitions.join(", ")),
        };
        let fenced: Vec<String> = self.fenced.iter().map(i32::to_string).collect();
        format!(
            "healthy: {}\nbrokers: {}\nfenced: {}\ntopics: {}\npartitions: {}\nwithout leader: {}\n\
             under-replicated: {}\n",
            if self.healthy { "yes" } else { "no" },
            self.brokers,
            names(&fenced),
            self.topics,
            self.partitions,
            names(&self.without_leader),
            names(&self.under_replicated),
        )
    }
}

/// `cluster health`
pub fn health(format: Format, connection: &Connection) -> Result<ExitCode, Failure> {
    let (metadata, brokers) = ask(connection)?;
    let health = Health::of(&metadata, &brokers);
    output::print_one(format, &health, Health::text)?;
    if let Some(hint) = health.hint() {
        anstream::eprintln!("hint: {hint}");
    }
    Ok(if health.healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = include_str!("../../../../docs/cluster.md");

    #[test]
    fn the_samples_in_the_document_are_what_is_printed() {
        let broker = |id| Broker {
            id,
            host: format!("kafka-{id}"),
            port: 9092,
            rack: None,
            fenced: false,
            controller: id == 1,
            leaders: 0,
            replicas: 0,
        };
        let info = output::table(&[1, 2, 3].map(broker));
        assert!(DOCUMENT.contains(&info), "docs/cluster.md does not show\n{info}");
        let health =
            Health { healthy: true, brokers: 3, topics: 1, partitions: 3, ..Health::default() };
        let health = health.text();
        assert!(DOCUMENT.contains(&health), "docs/cluster.md does not show\n{health}");
    }
}
