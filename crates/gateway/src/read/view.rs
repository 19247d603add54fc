//! What the cluster has: brokers, topics, partitions, offsets, as REST proxies write them.

use std::fmt::Write;

use client::admin::Resource;
use client::metadata::{Partition, Topic};
use client::{Admin, OffsetSpec};
use serving::error::ApiError;
use tokio::time::timeout;

use super::whereabouts::{locate, offset, partition_of};
use crate::answer::{Answer, text};
use crate::produce::{LOOKUP_MAX, of_refusal, unavailable};
use crate::request::Part;
use crate::state::Shared;

/// Answers with this part of the cluster.
pub(crate) async fn view(shared: &Shared, part: &Part<'_>) -> Result<Answer, ApiError> {
    let body = match part {
        Part::Brokers => brokers(shared).await?,
        Part::Topics => topics(shared).await?,
        Part::Topic(name) => topic(shared, name).await?,
        Part::Partitions(name) => {
            let topic = shared.topics.existing(name).await?;
            list(partitions(&topic))
        }
        Part::Partition(name, index) => {
            let topic = shared.topics.existing(name).await?;
            partition(partition_of(&topic, *index)?)
        }
        Part::Offsets(name, index) => offsets(shared, name, *index).await?,
    };
    Ok(Answer::as_proxies(body))
}

async fn brokers(shared: &Shared) -> Result<String, ApiError> {
    let described = in_time(shared.topics.cluster().describe([])).await?;
    let mut ids: Vec<i32> = described.brokers.keys().copied().collect();
    ids.sort_unstable();
    Ok(format!("{{\"brokers\":{}}}", list(ids.iter().map(i32::to_string))))
}

/// The names of all topics, in their order. One at a time asks for that: a cluster may have ten thousand.
async fn topics(shared: &Shared) -> Result<String, ApiError> {
    let described = in_time(async {
        let _turn = shared.listing.lock().await;
        shared.topics.cluster().describe_all().await
    });
    let described = described.await?;
    let mut names: Vec<&str> = described.topics.keys().map(|name| &**name).collect();
    names.sort_unstable();
    Ok(list(names.into_iter().map(text)))
}

async fn topic(shared: &Shared, name: &str) -> Result<String, ApiError> {
    let topic = shared.topics.existing(name).await?;
    let admin = Admin::new(shared.topics.cluster().clone());
    let resource = Resource::topic(name);
    let described = timeout(LOOKUP_MAX, admin.describe_configs(&resource)).await;
    let described = described
        .map_err(|_| unavailable(&"no broker answered within 5 s"))?
        .map_err(|error| of_refusal(&error))?;
    let mut configs: Vec<String> = Vec::with_capacity(described.configs.len());
    for config in &described.configs {
        // Of passwords brokers tell no value.
        let value = config.value.as_deref().map_or("null".to_owned(), text);
        configs.push(format!("{}:{value}", text(&config.name)));
    }
    Ok(format!(
        "{{\"name\":{},\"configs\":{{{}}},\"partitions\":{}}}",
        text(name),
        configs.join(","),
        list(partitions(&topic)),
    ))
}

fn partitions(topic: &Topic) -> impl Iterator<Item = String> {
    topic.partitions.iter().map(partition)
}

/// A partition; -1 leads it while no broker does.
fn partition(partition: &Partition) -> String {
    let replica = |broker: &i32| {
        let (leader, in_sync) = (partition.leader == Some(*broker), partition.isr.contains(broker));
        format!("{{\"broker\":{broker},\"leader\":{leader},\"in_sync\":{in_sync}}}")
    };
    format!(
        "{{\"partition\":{},\"leader\":{},\"replicas\":{}}}",
        partition.index,
        partition.leader.unwrap_or(-1),
        list(partition.replicas.iter().map(replica)),
    )
}

async fn offsets(shared: &Shared, name: &str, index: i32) -> Result<String, ApiError> {
    let partition = locate(shared, name, index).await?;
    let found = |spec| offset(shared, &partition, spec, false);
    let (first, next) = (found(OffsetSpec::Earliest).await?, found(OffsetSpec::Latest).await?);
    let (first, next) = (first.unwrap_or(0), next.unwrap_or(0));
    Ok(format!("{{\"beginning_offset\":{first},\"end_offset\":{next}}}"))
}

async fn in_time<T>(
    asked: impl Future<Output = Result<T, client::ClientError>>,
) -> Result<T, ApiError> {
    match timeout(LOOKUP_MAX, asked).await {
        Ok(answered) => answered.map_err(|error| unavailable(&error)),
        Err(_) => Err(unavailable(&"no broker answered within 5 s")),
    }
}

/// A JSON list.
fn list(items: impl Iterator<Item = String>) -> String {
    let mut out = String::from("[");
    for (at, item) in items.enumerate() {
        let comma = if at > 0 { "," } else { "" };
        write!(out, "{comma}{item}").expect("a String takes every write");
    }
    out.push(']');
    out
}
