//! The few requests that the trials make, one at a time over one connection, with every error code handed on as it came.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use client::{Connection, ConnectionConfig};
use model::ErrorCode;
use wire::fetch::{FetchPartition, FetchTopic, PartitionData};
use wire::list_offsets::{ListOffsetsPartition, ListOffsetsTopic};
use wire::offset_fetch::{OffsetFetchRequestGroup, OffsetFetchResponseGroup};
use wire::produce::{PartitionProduceData, TopicProduceData};
use wire::{
    FetchRequest, ListOffsetsRequest, MetadataRequest, MetadataResponse, OffsetFetchRequest,
    ProduceRequest,
};

/// The last version of Fetch that names topics instead of their ids.
const FETCH_VERSION: i16 = 12;
/// The last version of Produce that does.
const PRODUCE_VERSION: i16 = 12;
/// The last version of OffsetFetch that does.
const OFFSET_FETCH_VERSION: i16 = 9;
/// How long an answer may take on a machine that is busy with much else.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes that one fetch may answer.
const FETCH_BYTES: i32 = 1 << 20;

/// A runtime for a handful of requests.
pub fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// Connects to the broker at `host:port`.
pub async fn connect(address: &str) -> Result<Connection> {
    let config = ConnectionConfig { request_timeout: PATIENCE, ..Default::default() };
    Ok(Connection::open(address, &config).await?)
}

/// All topics.
pub async fn metadata(connection: &Connection) -> Result<MetadataResponse> {
    let request = MetadataRequest { topics: None, ..Default::default() };
    Ok(connection.call(&request).await?)
}

/// The first offset (`timestamp` -2) or the end (-1) of a partition, or the error code.
pub async fn list_offset(
    connection: &Connection,
    topic: &str,
    partition: i32,
    timestamp: i64,
) -> Result<Result<i64, ErrorCode>> {
    let partition =
        ListOffsetsPartition { partition_index: partition, timestamp, ..Default::default() };
    let topic = ListOffsetsTopic { name: topic.to_owned(), partitions: vec![partition] };
    let request = ListOffsetsRequest { replica_id: -1, topics: vec![topic], ..Default::default() };
    let response = connection.call(&request).await?;
    let answer = response.topics.iter().flat_map(|topic| &topic.partitions).next();
    let answer = answer.context("ListOffsets answered without the partition")?;
    Ok(match answer.error() {
        ErrorCode::None => Ok(answer.offset),
        code => Err(code),
    })
}

/// Batches of a partition from `offset` on.
pub async fn fetch(
    connection: &Connection,
    topic: &str,
    partition: i32,
    offset: i64,
) -> Result<PartitionData> {
    let partition = FetchPartition {
        partition,
        fetch_offset: offset,
        partition_max_bytes: FETCH_BYTES,
        ..Default::default()
    };
    let topic =
        FetchTopic { topic: topic.to_owned(), partitions: vec![partition], ..Default::default() };
    let request = FetchRequest {
        replica_id: -1,
        max_wait_ms: 0,
        max_bytes: FETCH_BYTES,
        session_epoch: -1,
        topics: vec![topic],
        ..Default::default()
    };
    let response = connection.call_version(&request, FETCH_VERSION).await?;
    let mut partitions = response.responses.into_iter().flat_map(|topic| topic.partitions);
    partitions.next().context("Fetch answered without the partition")
}

/// Everything that a group has committed.
pub async fn committed(connection: &Connection, group: &str) -> Result<OffsetFetchResponseGroup> {
    let group =
        OffsetFetchRequestGroup { group_id: group.to_owned(), topics: None, ..Default::default() };
    let request = OffsetFetchRequest { groups: vec![group], ..Default::default() };
    let response = connection.call_version(&request, OFFSET_FETCH_VERSION).await?;
    response.groups.into_iter().next().context("OffsetFetch answered without the group")
}

/// Writes a batch with `acks=all`.
pub async fn produce(
    connection: &Connection,
    topic: &str,
    partition: i32,
    batch: Vec<u8>,
) -> Result<()> {
    let partition = PartitionProduceData { index: partition, records: Some(batch.into()) };
    let data = TopicProduceData {
        name: topic.to_owned(),
        partition_data: vec![partition],
        ..Default::default()
    };
    let request = ProduceRequest {
        acks: -1,
        timeout_ms: PATIENCE.as_millis() as i32,
        topic_data: vec![data],
        ..Default::default()
    };
    let response = connection.call_version(&request, PRODUCE_VERSION).await?;
    for answer in response.responses.iter().flat_map(|topic| &topic.partition_responses) {
        ensure!(answer.error() == ErrorCode::None, "Produce to {topic}: {}", answer.error());
    }
    Ok(())
}
