//! A cluster with much in it.

use std::collections::HashMap;

use client::admin::NewTopic;
use client::{Admin, Cluster, ClusterConfig, CommittedOffset, Producer, ProducerConfig, Record};
use model::{ErrorCode, Offset, TopicPartition};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};

use crate::Told;

/// Topics that are made in one request.
const AT_ONCE: usize = 100;
/// Partitions of each topic.
pub const PARTITIONS: i32 = 4;
/// Topics in which each group has committed.
pub const TOPICS_OF_GROUP: usize = 10;

pub fn block_on<T>(work: impl Future<Output = Told<T>>) -> Told<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

/// As many open files as the system allows.
pub fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // Where it cannot be raised, connections fail and say so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

async fn admin(bootstrap: &str) -> Told<Admin> {
    Ok(Admin::new(Cluster::connect(ClusterConfig::new(bootstrap)).await?))
}

/// Makes a topic that is not there.
pub fn topic(bootstrap: &str, name: &str, partitions: i32) -> Told<()> {
    block_on(async {
        let admin = admin(bootstrap).await?;
        // Made rather than looked for: who looks for a topic waits a minute for one to be made.
        match admin.create_topic(&NewTopic::new(name, partitions, 1)).await {
            Err(error) if error.code() == Some(ErrorCode::TopicAlreadyExists) => Ok(()),
            made => made.map(|_| ()).map_err(Into::into),
        }
    })
}

/// The name of a topic that [`fill`] makes.
pub fn topic_name(number: usize) -> String {
    format!("many-{number}")
}

/// The id of a group that [`fill`] makes.
pub fn group_id(number: usize) -> String {
    format!("group-{number}")
}

/// In how many topics each group has committed, if there are so many.
pub fn topics_of_group(topics: usize) -> usize {
    TOPICS_OF_GROUP.min(topics)
}

/// Makes topics with a record each, in the first partition, and groups that have committed the beginning of every partition
/// of some topics: each is one record behind in each of its topics.
pub fn fill(bootstrap: &str, topics: usize, groups: usize) -> Told<Value> {
    block_on(async {
        let admin = admin(bootstrap).await?;
        let names: Vec<String> = (0..topics).map(topic_name).collect();
        for names in names.chunks(AT_ONCE) {
            let new: Vec<NewTopic> =
                names.iter().map(|name| NewTopic::new(name, PARTITIONS, 1)).collect();
            for (_, made) in admin.create_topics(&new, false).await? {
                made?;
            }
        }
        write_one_each(admin.cluster(), &names).await?;
        for group in 0..groups {
            commit(&admin, group, &names).await?;
        }
        Ok(json!({ "topics": topics, "groups": groups }))
    })
}

/// A record into the first partition of each topic.
async fn write_one_each(cluster: &Cluster, names: &[String]) -> Told<()> {
    // All of them in one request: else each record would ask for its topic, and for those before it.
    cluster.want(names.iter().map(String::as_str));
    cluster.refresh().await?;
    let producer = Producer::new(cluster.clone(), ProducerConfig::default()).await?;
    let record = Record { partition: Some(0), ..Record::value(b"one") };
    let mut sent = Vec::new();
    for name in names {
        sent.push(producer.send(name, &record).await?);
    }
    producer.flush().await?;
    for delivery in sent {
        delivery.wait().await?;
    }
    Ok(())
}

async fn commit(admin: &Admin, group: usize, names: &[String]) -> Told<()> {
    let mut offsets = HashMap::new();
    for at in 0..topics_of_group(names.len()) {
        let name = &names[(group * TOPICS_OF_GROUP + at) % names.len()];
        for partition in 0..PARTITIONS {
            let partition = TopicPartition::new(name.as_str(), partition);
            offsets.insert(partition, CommittedOffset::at(Offset(0)));
        }
    }
    for (_, committed) in admin.alter_group_offsets(&group_id(group), &offsets).await? {
        committed?;
    }
    Ok(())
}
