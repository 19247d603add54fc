//! `topic …`: topics and their partitions.

use std::collections::HashMap;
use std::process::ExitCode;
use std::time::Duration;

use client::offsets::{FoundOffset, OffsetSpec, list_each, list_offsets};
use client::{ClientError, Cluster};
use model::{ErrorCode, TopicPartition};
use serde::Serialize;
use wire::create_partitions::CreatePartitionsTopic;
use wire::create_topics::{CreatableTopic, CreatableTopicConfig};
use wire::delete_topics::DeleteTopicState;
use wire::{CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest, Request};

use crate::amounts::counted;
use crate::arguments::{Changes, Connection, Pair, Topic};
use crate::commands::cluster_access::{PATIENCE, block_on, connect, failed, no_topic};
use crate::commands::config::{self, Whose};
use crate::commands::outcome::Outcomes;
use crate::failure::Failure;
use crate::output::{self, Format, Row, cell};

/// How long a broker may take to carry a change out.
const TIMEOUT_MS: i32 = 15_000;

/// How long `describe` requests offsets that are not available.
const OFFSETS_PATIENCE: Duration = Duration::from_secs(3);

/// Runs one of the commands.
pub fn run(command: &Topic) -> Result<ExitCode, Failure> {
    block_on(async {
        match command {
            Topic::Create {
                names,
                partitions,
                replication_factor,
                configs,
                if_not_exists,
                dry_run,
                connection,
            } => {
                let request = creation(names, *partitions, *replication_factor, configs, *dry_run);
                create(&request, *if_not_exists, connection).await
            }
            Topic::List { internal, listing, connection } => {
                list(*internal, listing.format, connection).await
            }
            Topic::Describe { names, listing, connection } => {
                describe(names, listing.format, connection).await
            }
            Topic::Alter { name, changes: Changes { sets, deletes }, connection } => {
                let cluster = connect(connection, PATIENCE, false).await?;
                config::alter(&cluster, &Whose::Topic(name.clone()), sets, deletes).await
            }
            Topic::Delete { names, if_exists, connection } => {
                delete(names, *if_exists, connection).await
            }
            Topic::AddPartitions { name, total, connection } => {
                add_partitions(name, *total, connection).await
            }
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

fn creation(
    names: &[String],
    partitions: Option<i32>,
    replication_factor: Option<i16>,
    configs: &[Pair],
    dry_run: bool,
) -> CreateTopicsRequest {
    let config = |pair: &Pair| CreatableTopicConfig {
        name: pair.key.clone(),
        value: Some(pair.value.clone()),
    };
    let topic = |name: &String| CreatableTopic {
        name: name.clone(),
        num_partitions: partitions.unwrap_or(-1),
        replication_factor: replication_factor.unwrap_or(-1),
        configs: configs.iter().map(config).collect(),
        ..Default::default()
    };
    CreateTopicsRequest {
        topics: names.iter().map(topic).collect(),
        timeout_ms: TIMEOUT_MS,
        validate_only: dry_run,
    }
}

/// The error of an answer as a whole: another broker is to be asked.
fn whole(codes: impl Iterator<Item = ErrorCode>) -> ErrorCode {
    let mut codes = codes;
    codes.find(|code| *code == ErrorCode::NotController).unwrap_or(ErrorCode::None)
}

async fn create(
    request: &CreateTopicsRequest,
    if_not_exists: bool,
    connection: &Connection,
) -> Result<(), Failure> {
    let wanted = "not all topics were created";
    let cluster = connect(connection, PATIENCE, false).await?;
    let response = cluster
        .call_controller(request, |response| whole(response.topics.iter().map(|t| t.error())))
        .await
        .map_err(|error| failed(wanted, &error))?;
    let mut outcomes = Outcomes::default();
    for topic in &response.topics {
        let message = topic.error_message.as_deref();
        let done = if request.validate_only { "could be created" } else { "created" };
        match topic.error() {
            ErrorCode::TopicAlreadyExists if if_not_exists => {
                outcomes.take(&topic.name, "was there", ErrorCode::None, None);
            }
            code => outcomes.take(&topic.name, done, code, message),
        }
    }
    outcomes.finish(wanted)
}

async fn delete(names: &[String], if_exists: bool, connection: &Connection) -> Result<(), Failure> {
    let wanted = "not all topics were deleted";
    let cluster = connect(connection, PATIENCE, false).await?;
    let version = cluster.any().await.and_then(|c| c.version_of(DeleteTopicsRequest::API_KEY));
    let version = version.map_err(|error| failed(wanted, &error))?;
    let mut request = DeleteTopicsRequest { timeout_ms: TIMEOUT_MS, ..Default::default() };
    // Version 6 names topics in another field, because it can also take their ids.
    if version >= 6 {
        let state =
            |name: &String| DeleteTopicState { name: Some(name.clone()), ..Default::default() };
        request.topics = names.iter().map(state).collect();
    } else {
        request.topic_names = names.to_vec();
    }
    let response = cluster
        .call_controller(&request, |response| whole(response.responses.iter().map(|t| t.error())))
        .await
        .map_err(|error| failed(wanted, &error))?;
    let mut outcomes = Outcomes::default();
    for topic in &response.responses {
        let name = topic.name.as_deref().unwrap_or("?");
        match topic.error() {
            ErrorCode::UnknownTopicOrPartition if if_exists => {
                outcomes.take(name, "was not there", ErrorCode::None, None);
            }
            code => outcomes.take(name, "deleted", code, topic.error_message.as_deref()),
        }
    }
    outcomes.finish(wanted)
}

async fn add_partitions(name: &str, total: i32, connection: &Connection) -> Result<(), Failure> {
    let wanted = format!("{name} did not get more partitions");
    let cluster = connect(connection, PATIENCE, false).await?;
    let topic = CreatePartitionsTopic { name: name.to_owned(), count: total, assignments: None };
    let request = CreatePartitionsRequest {
        topics: vec![topic],
        timeout_ms: TIMEOUT_MS,
        validate_only: false,
    };
    let response = cluster
        .call_controller(&request, |response| whole(response.results.iter().map(|t| t.error())))
        .await
        .map_err(|error| failed(&wanted, &error))?;
    let mut outcomes = Outcomes::default();
    for topic in &response.results {
        let done = counted(u64::from(total.unsigned_abs()), "partition");
        outcomes.take(&topic.name, &done, topic.error(), topic.error_message.as_deref());
    }
    outcomes.finish(&wanted)
}

#[derive(Serialize)]
struct Listed {
    name: String,
    partitions: usize,
    replicas: usize,
    internal: bool,
}

impl Row for Listed {
    const HEADERS: &'static [&'static str] = &["NAME", "PARTITIONS", "REPLICAS"];

    fn cells(&self) -> Vec<String> {
        vec![self.name.clone(), self.partitions.to_string(), self.replicas.to_string()]
    }
}

async fn list(internal: bool, format: Format, connection: &Connection) -> Result<(), Failure> {
    let cluster = connect(connection, PATIENCE, false).await?;
    let metadata = cluster.retry(|| cluster.describe_all()).await;
    let metadata = metadata.map_err(|error| failed("cannot list topics", &error))?;
    let mut rows: Vec<Listed> = metadata
        .topics
        .values()
        .filter(|topic| internal || !topic.is_internal)
        .map(|topic| Listed {
            name: topic.name.to_string(),
            partitions: topic.partitions.len(),
            replicas: topic.partitions.first().map_or(0, |partition| partition.replicas.len()),
            internal: topic.is_internal,
        })
        .collect();
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    output::print(format, &rows)
}

#[derive(Serialize)]
struct Described {
    topic: String,
    partition: i32,
    leader: Option<i32>,
    leader_epoch: i32,
    replicas: Vec<i32>,
    in_sync: Vec<i32>,
    log_start_offset: Option<i64>,
    log_end_offset: Option<i64>,
}

impl Row for Described {
    const HEADERS: &'static [&'static str] = &[
        "TOPIC",
        "PARTITION",
        "LEADER",
        "EPOCH",
        "REPLICAS",
        "IN-SYNC",
        "LOG-START-OFFSET",
        "LOG-END-OFFSET",
    ];

    fn cells(&self) -> Vec<String> {
        let ids = |ids: &[i32]| {
            let ids: Vec<String> = ids.iter().map(i32::to_string).collect();
            if ids.is_empty() { "-".to_owned() } else { ids.join(",") }
        };
        vec![
            self.topic.clone(),
            self.partition.to_string(),
            cell(self.leader),
            self.leader_epoch.to_string(),
            ids(&self.replicas),
            ids(&self.in_sync),
            cell(self.log_start_offset),
            cell(self.log_end_offset),
        ]
    }
}

async fn describe(
    names: &[String],
    format: Format,
    connection: &Connection,
) -> Result<(), Failure> {
    let cluster = connect(connection, PATIENCE, false).await?;
    let cannot = |error: ClientError| failed("cannot describe the topics", &error);
    let metadata = cluster.retry(|| cluster.describe_all()).await.map_err(cannot)?;
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    if names.is_empty() {
        names.extend(metadata.topics.keys().map(|name| &**name));
        names.sort_unstable();
    }
    let mut rows = Vec::new();
    for name in names {
        let Some(topic) = metadata.topics.get(name) else {
            return Err(no_topic(name));
        };
        rows.extend(topic.partitions.iter().map(|partition| Described {
            topic: name.to_owned(),
            partition: partition.index,
            leader: partition.leader,
            leader_epoch: partition.leader_epoch.0,
            replicas: partition.replicas.clone(),
            in_sync: partition.isr.clone(),
            log_start_offset: None,
            log_end_offset: None,
        }));
    }
    add_offsets(&cluster, &mut rows).await;
    output::print(format, &rows)
}

/// Adds the first and the next offset of each partition with a leader. A partition whose leader does not know them yet, as that of a
/// partition with too few in-sync replicas after a failover, is shown without them.
async fn add_offsets(cluster: &Cluster, rows: &mut [Described]) {
    let partition = |row: &Described| TopicPartition::new(row.topic.as_str(), row.partition);
    let wanted = |spec: OffsetSpec| -> Vec<(TopicPartition, OffsetSpec)> {
        let led = rows.iter().filter(|row| row.leader.is_some());
        led.map(|row| (partition(row), spec)).collect()
    };
    let (wanted_starts, wanted_ends) = (wanted(OffsetSpec::Earliest), wanted(OffsetSpec::Latest));
    let (starts, ends) = tokio::join!(
        list_each(cluster, &wanted_starts, OFFSETS_PATIENCE),
        list_each(cluster, &wanted_ends, OFFSETS_PATIENCE)
    );
    for row in rows {
        let partition = TopicPartition::new(row.topic.as_str(), row.partition);
        let offset = |found: &OffsetResults| {
            let found = found.get(&partition)?.as_ref().ok()?;
            found.offset.map(|offset| offset.0)
        };
        (row.log_start_offset, row.log_end_offset) = (offset(&starts), offset(&ends));
        let error = [&starts, &ends].into_iter().find_map(|of| of.get(&partition)?.as_ref().err());
        if let Some(error) = error {
            anstream::eprintln!("no offsets of {partition}: {error}");
        }
    }
}

/// The offset of each partition, or the error that its leader answered.
type OffsetResults = HashMap<TopicPartition, Result<FoundOffset, ClientError>>;

/// An offset of each partition.
pub type Offsets = HashMap<TopicPartition, FoundOffset>;

/// The first and the next offset of each of these partitions.
pub async fn ends(
    cluster: &Cluster,
    partitions: &[TopicPartition],
) -> Result<(Offsets, Offsets), ClientError> {
    let wanted = |spec: OffsetSpec| -> Vec<(TopicPartition, OffsetSpec)> {
        partitions.iter().map(|partition| (partition.clone(), spec)).collect()
    };
    let starts = list_offsets(cluster, &wanted(OffsetSpec::Earliest), false).await?;
    let ends = list_offsets(cluster, &wanted(OffsetSpec::Latest), false).await?;
    Ok((starts, ends))
}
