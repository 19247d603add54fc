//! `cluster info`: the brokers, and the facts about a cluster that other commands read too.

use std::process::ExitCode;
use std::time::Duration;

use client::{Admin, ClientError, Metadata};
use serde::Serialize;
use tokio::time::timeout;
use wire::describe_cluster::DescribeClusterBroker;

use crate::arguments::Connection;
use crate::commands::cluster_access::{PATIENCE, block_on, connect, failed};
use crate::failure::Failure;
use crate::output::{self, Format, Row};

/// Time for the description of the metadata quorum. A broker without a leader of the quorum answers after 5 s.
const QUORUM_PATIENCE: Duration = Duration::from_secs(6);

/// A cluster as its brokers describe it.
pub struct ClusterView {
    /// Brokers and topics.
    pub metadata: Metadata,
    /// All registered brokers, the fenced ones included, by id.
    pub brokers: Vec<DescribeClusterBroker>,
    /// Leader of the metadata quorum, if there is one.
    pub controller: Option<i32>,
}

/// Reads the cluster, and then `more` about its brokers.
pub fn read_cluster<T>(
    connection: &Connection,
    more: impl AsyncFnOnce(&Admin, &[DescribeClusterBroker]) -> T,
) -> Result<(ClusterView, T), Failure> {
    block_on(async {
        let admin = Admin::new(connect(connection, PATIENCE, false).await?);
        let cannot = |error| failed("cannot describe the cluster", &error);
        let metadata = admin.describe_all().await.map_err(cannot)?;
        let mut brokers = admin.describe_all_brokers().await.map_err(cannot)?.brokers;
        brokers.sort_by_key(|broker| broker.broker_id);
        let reading = timeout(QUORUM_PATIENCE, admin.quorum_leader());
        let (read, more) = tokio::join!(reading, more(&admin, &brokers));
        let controller = match read {
            Ok(Ok(leader)) => leader,
            // A cluster without this API has one controller, which its metadata names.
            Ok(Err(ClientError::Unsupported { .. })) => metadata.controller,
            Ok(Err(_)) | Err(_) => None,
        };
        Ok((ClusterView { metadata, brokers, controller }, more))
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
    /// Leader of the metadata quorum.
    controller: Option<i32>,
    brokers: Vec<Broker>,
}

/// `cluster info`
pub fn info(format: Format, connection: &Connection) -> Result<ExitCode, Failure> {
    let (view, ()) = read_cluster(connection, async |_, _| ())?;
    let ClusterView { metadata, brokers, controller } = view;
    let partitions = || metadata.topics.values().flat_map(|topic| &topic.partitions);
    let row = |broker: DescribeClusterBroker| {
        let id = broker.broker_id;
        Broker {
            id,
            host: broker.host,
            port: broker.port,
            rack: broker.rack,
            fenced: broker.is_fenced,
            controller: controller == Some(id),
            leaders: partitions().filter(|p| p.leader == Some(id)).count(),
            replicas: partitions().filter(|p| p.replicas.contains(&id)).count(),
        }
    };
    let brokers: Vec<Broker> = brokers.into_iter().map(row).collect();
    match format {
        Format::Table => output::print(format, &brokers)?,
        Format::Json => {
            let info = Info { cluster_id: metadata.cluster_id.as_deref(), controller, brokers };
            output::print_one(format, &info, |_| String::new())?;
        }
    }
    Ok(ExitCode::SUCCESS)
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
    }
}
