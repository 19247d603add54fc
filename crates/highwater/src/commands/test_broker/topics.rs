//! Creation of the topics of a test broker.

use client::admin::NewTopic;
use client::{Admin, ClientError, Cluster, ClusterConfig};
use model::ErrorCode;

use super::cannot_start;
use crate::arguments::{TestBroker, TestTopic};
use crate::failure::Failure;

/// Replicas of a topic at most.
const REPLICATION_MAX: u16 = 3;

/// Creates the topics of `--topics`. A topic that exists with the same number of partitions stays as it is.
pub async fn create(typed: &TestBroker, brokers: &str) -> Result<(), Failure> {
    if typed.topics.is_empty() {
        return Ok(());
    }
    let replicas = typed.brokers.min(REPLICATION_MAX) as i16;
    let cluster = Cluster::connect(ClusterConfig::new(brokers)).await;
    let admin = Admin::new(cluster.map_err(|error| cannot_start().detail(error))?);
    for topic in &typed.topics {
        let new = NewTopic::new(&topic.name, topic.partitions, replicas);
        match admin.create_topic(&new).await {
            Err(error) if error.code() == Some(ErrorCode::TopicAlreadyExists) => {
                check_existing(&admin, topic).await?;
            }
            created => drop(created.map_err(|error| cannot_create(topic, &error))?),
        }
    }
    Ok(())
}

fn cannot_create(topic: &TestTopic, cause: &ClientError) -> Failure {
    Failure::new(format!("cannot create topic {}", topic.name)).detail(cause)
}

async fn check_existing(admin: &Admin, topic: &TestTopic) -> Result<(), Failure> {
    let metadata = admin.describe_all().await.map_err(|error| cannot_create(topic, &error))?;
    let found = metadata.topics.get(&*topic.name).map_or(0, |found| found.partitions.len());
    if usize::try_from(topic.partitions) == Ok(found) {
        return Ok(());
    }
    let (name, wanted) = (&topic.name, topic.partitions);
    Err(Failure::new(format!("cannot create topic {name}"))
        .detail(format!("the topic exists with {found} partitions, and --topics names {wanted}"))
        .hint(format!("write {name}:{found}, or name another folder by --data-dir")))
}
