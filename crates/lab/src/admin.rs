//! What the lab asks of a cluster beside load: topics, configurations, versions.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use client::admin::Resource;
use client::admin::{Each, NewTopic};
use client::{Admin, Cluster, ClusterConfig};
use experiment::round::Durability;
use experiment::workload::{Acks, Workload};

/// How long a call may take, retries included.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(5);
/// End offsets that have not moved for so long will not move any more.
const SETTLED: Duration = Duration::from_secs(3);
/// Topics that are made in one request.
const TOPICS_AT_ONCE: usize = 100;
/// How long a new topic may be without leaders.
const LEADERS: Duration = Duration::from_secs(30);

/// Runs it to its end in this thread.
pub fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work)
}

/// An administrator of the cluster at `bootstrap`.
pub async fn connect(bootstrap: &str) -> Result<Admin> {
    let config = ClusterConfig { call_timeout: CONNECT, ..ClusterConfig::new(bootstrap) };
    let connected = Cluster::connect(config).await;
    drop(connected.with_context(|| format!("cannot reach {bootstrap}"))?);
    let config = ClusterConfig { call_timeout: PATIENCE, ..ClusterConfig::new(bootstrap) };
    Ok(Admin::new(Cluster::connect(config).await?))
}

/// Makes the round's topics and waits until each partition has a leader. Fails if one is there already: its records
/// would be counted as ours.
pub fn create_topics(
    bootstrap: &str,
    names: &[String],
    workload: &Workload,
    partitions: u32,
    replication: u32,
) -> Result<()> {
    block_on(async {
        let admin = connect(bootstrap).await?;
        let mut made = Vec::new();
        let outcome =
            make_topics(&admin, names, workload, (partitions, replication), &mut made).await;
        if outcome.is_err() && !made.is_empty() {
            // Half of a round's topics are of no use to anybody.
            let made: Vec<&str> = made.iter().map(String::as_str).collect();
            report_undeleted(&made, admin.delete_topics(&made).await.map_err(Into::into));
        }
        outcome
    })
}

/// Makes topics, and names those that were made.
async fn make_topics(
    admin: &Admin,
    names: &[String],
    workload: &Workload,
    (partitions, replication): (u32, u32),
    names_made: &mut Vec<String>,
) -> Result<()> {
    let min_isr = workload.min_isr.min(replication).max(1);
    let assignments = match workload.partitions_per_broker {
        true => per_broker(admin, partitions, replication).await?,
        false => Vec::new(),
    };
    let (partitions_i32, replication) = (partitions.try_into()?, replication.try_into()?);
    for names in names.chunks(TOPICS_AT_ONCE) {
        let topic = |name: &String| NewTopic {
            configs: vec![("min.insync.replicas".to_owned(), min_isr.to_string())],
            assignments: assignments.clone(),
            ..NewTopic::new(name, partitions_i32, replication)
        };
        let topics: Vec<NewTopic> = names.iter().map(topic).collect();
        let answers = admin.create_topics(&topics, false).await?;
        let made = answers.iter().filter(|(_, made)| made.is_ok());
        names_made.extend(made.map(|(name, _)| name.clone()));
        for (name, made) in answers {
            made.with_context(|| format!("cannot make the topic {name}"))?;
        }
        wait_for_leaders(admin, names, partitions).await?;
    }
    Ok(())
}

/// The replicas of each partition, where every broker is the first one of as many: the first broker's come first.
async fn per_broker(admin: &Admin, partitions: u32, replication: u32) -> Result<Vec<Vec<i32>>> {
    let brokers: Vec<i32> = admin.describe_all().await?.brokers.keys().copied().collect();
    Ok(assigned(brokers, partitions as usize, replication as usize))
}

/// `partitions` shared out among these brokers, which are put in order, in runs of equal length; further replicas are on
/// the brokers behind the first.
fn assigned(mut brokers: Vec<i32>, partitions: usize, replication: usize) -> Vec<Vec<i32>> {
    brokers.sort_unstable();
    let of_each = partitions.div_ceil(brokers.len().max(1)).max(1);
    let replicas = |partition: usize| {
        let from = partition / of_each;
        (from..from + replication).map(|at| brokers[at % brokers.len()]).collect()
    };
    (0..partitions).map(replicas).collect()
}

async fn wait_for_leaders(admin: &Admin, names: &[String], partitions: u32) -> Result<()> {
    let deadline = Instant::now() + LEADERS;
    let all = names.len() * partitions as usize;
    admin.cluster().want(names.iter().map(String::as_str));
    loop {
        admin.cluster().refresh().await?;
        let mut led = 0;
        for name in names {
            let topic = admin.cluster().topic(name).await?;
            led += topic.partitions.iter().filter(|partition| partition.leader.is_some()).count();
        }
        if led == all {
            break;
        }
        ensure!(
            Instant::now() < deadline,
            "there are leaders for {led} of {all} partitions only of {}",
            names.join(", ")
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // A leader that was named may not know it yet: one that answers does.
    let of = |name: &String| {
        let name: Arc<str> = name.as_str().into();
        (0..partitions as i32).map(move |p| model::TopicPartition::new(name.clone(), p))
    };
    let wanted: Vec<_> =
        names.iter().flat_map(of).map(|p| (p, client::OffsetSpec::Latest)).collect();
    admin.list_offsets(&wanted).await?;
    Ok(())
}

/// Deletes topics; a failure is told, not fatal: the round has been measured.
pub fn delete_topics(bootstrap: &str, names: &[String]) {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let deleted = block_on(async { Ok(connect(bootstrap).await?.delete_topics(&names).await?) });
    report_undeleted(&names, deleted);
}

/// Deletes all topics whose names begin so; a failure is told.
pub fn delete_topics_of(bootstrap: &str, prefix: &str) {
    let found = block_on(async { Ok(connect(bootstrap).await?.describe_all().await?) });
    let topics = found.map(|metadata| metadata.topics).unwrap_or_default();
    let names: Vec<String> = topics.keys().map(ToString::to_string).collect();
    let names: Vec<String> = names.into_iter().filter(|name| name.starts_with(prefix)).collect();
    if !names.is_empty() {
        delete_topics(bootstrap, &names);
    }
}

/// Says which topics could not be deleted, and why.
fn report_undeleted(names: &[&str], deleted: Result<Each<()>>) {
    match deleted {
        Err(error) => tracing::warn!(?names, error = format!("{error:#}"), "topics stay behind"),
        Ok(answers) => {
            for (name, error) in answers.into_iter().filter_map(|(n, d)| Some((n, d.err()?))) {
                tracing::warn!(name, %error, "a topic stays behind");
            }
        }
    }
}

/// What an acknowledgement of this workload is worth on this topic: from what the brokers say of it.
pub fn durability(bootstrap: &str, topic: &str, acks: Acks, replication: u32) -> Durability {
    let described = block_on(async {
        let admin = connect(bootstrap).await?;
        Ok(admin.describe_configs(&Resource::topic(topic)).await?)
    });
    let Ok(described) = described else { return Durability::Unknown };
    let value = |name: &str| {
        let entry = described.configs.iter().find(|config| config.name == name)?;
        entry.value.clone()
    };
    // Highwater's own word; or Kafka's flush before every answer.
    let synced = match value("durability") {
        Some(durability) => durability == "fsync",
        None => value("flush.messages").as_deref() == Some("1"),
    };
    let own_word = value("durability").is_some();
    match (acks, synced, replication > 1) {
        (Acks::None, _, _) => Durability::Unacknowledged,
        // Highwater syncs before it confirms to `acks=all` only; Kafka's flush comes before any answer.
        (Acks::Leader, true, _) if own_word => Durability::PageCache,
        (Acks::Leader, true, _) => Durability::Synced,
        (Acks::Leader, false, _) => Durability::PageCache,
        (Acks::All, true, false) => Durability::Synced,
        (Acks::All, true, true) => Durability::ReplicatedSynced,
        (Acks::All, false, false) => Durability::PageCache,
        (Acks::All, false, true) => Durability::ReplicatedPageCache,
    }
}

/// Settings that tell one start from another and nothing about how brokers behave.
const PLACES: [&str; 6] =
    ["listeners", "log.dir", "node.id", "broker.id", "quorum", "http.listener"];

/// What a broker is set to beyond its defaults.
pub fn broker_settings(bootstrap: &str) -> Result<Vec<(String, String)>> {
    /// DescribeConfigs' code for a default value.
    const DEFAULT_CONFIG: i8 = 5;
    block_on(async {
        let admin = connect(bootstrap).await?;
        let metadata = admin.describe_all().await?;
        let broker = metadata.brokers.keys().min().copied().context("a cluster has brokers")?;
        let described = admin.describe_configs(&Resource::broker(broker)).await?;
        let matters = |name: &str| !PLACES.iter().any(|place| name.contains(place));
        let set = described
            .configs
            .into_iter()
            .filter(|c| c.config_source != DEFAULT_CONFIG && matters(&c.name));
        Ok(set.map(|config| (config.name, config.value.unwrap_or_default())).collect())
    })
}

/// The end offsets of a topic's partitions, in their order, once they add up to `expected` or do not move any more: a
/// record that only its leader acknowledged counts when the high watermark has passed it.
pub fn end_offsets(
    bootstrap: &str,
    topic: &str,
    partitions: u32,
    expected: u64,
) -> Result<Vec<u64>> {
    block_on(async {
        let admin = connect(bootstrap).await?;
        let partitions = (0..partitions as i32).map(|p| model::TopicPartition::new(topic, p));
        let wanted: Vec<_> = partitions.map(|p| (p, client::OffsetSpec::Latest)).collect();
        let (mut ends, mut moved) = (Vec::new(), Instant::now());
        loop {
            let now = sorted(admin.list_offsets(&wanted).await?);
            if now != ends {
                (ends, moved) = (now, Instant::now());
            }
            if ends.iter().sum::<u64>() >= expected || moved.elapsed() > SETTLED {
                return Ok(ends);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
}

fn sorted(found: HashMap<model::TopicPartition, client::FoundOffset>) -> Vec<u64> {
    let end = |offset: Option<model::Offset>| offset.map_or(0, |offset| offset.0.max(0) as u64);
    let mut ends: Vec<(i32, u64)> =
        found.into_iter().map(|(p, found)| (p.partition.0, end(found.offset))).collect();
    ends.sort_unstable();
    ends.into_iter().map(|(_, end)| end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_broker_is_the_first_of_as_many_partitions() {
        let all = assigned(vec![3, 1, 2], 6, 2);
        assert_eq!(all, [[1, 2], [1, 2], [2, 3], [2, 3], [3, 1], [3, 1]]);
        assert_eq!(assigned(vec![7], 2, 1), [[7], [7]]);
        assert_eq!(assigned(vec![1, 2], 3, 1), [[1], [1], [2]]);
    }
}
