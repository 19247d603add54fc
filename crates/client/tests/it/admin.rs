//! Administration, against what the brokers then say.

use crate::{cluster, new_topic};
use client::admin::{ConfigOperation, NewTopic, Resource, ResourceType};
use client::{Admin, Cluster, CommittedOffset, Producer, ProducerConfig, Record};
use model::{ErrorCode, Offset, TopicPartition};
use std::collections::HashMap;
use wire::ApiKey;

async fn admin() -> Option<(Cluster, Admin)> {
    let cluster = cluster().await?;
    Some((cluster.clone(), Admin::new(cluster)))
}

fn unique(name: &str) -> String {
    format!("{name}-{:08x}", fastrand::u32(..))
}

async fn produce(cluster: &Cluster, topic: &str, count: usize) {
    let producer = Producer::new(cluster.clone(), ProducerConfig::default()).await.unwrap();
    for _ in 0..count {
        let record = Record { partition: Some(0), ..Record::value(b"v") };
        producer.send(topic, &record).await.unwrap();
    }
    producer.flush().await.unwrap();
}

#[tokio::test]
async fn a_topic_is_created_grown_described_and_deleted() {
    let Some((cluster, admin)) = admin().await else { return };
    let name = unique("life");
    let mut topic = NewTopic::new(&name, 2, 1);
    topic.configs.push(("retention.ms".to_owned(), "12345".to_owned()));
    let id = admin.create_topic(&topic).await.unwrap();
    let again = admin.create_topic(&topic).await.unwrap_err();
    assert_eq!(again.code(), Some(ErrorCode::TopicAlreadyExists));
    assert_eq!(cluster.topic(&name).await.unwrap().id, id);
    admin.create_partitions(&name, 5, None).await.unwrap();
    let grown = cluster
        .retry(|| async {
            let described = admin.describe_topics(&[&name]).await?;
            match described[0].partitions.len() {
                5 => Ok(described),
                _ => Err(client::ClientError::refused("growth", ErrorCode::LeaderNotAvailable)),
            }
        })
        .await
        .unwrap();
    assert_eq!(grown[0].topic_id, id);
    assert!(admin.describe_all().await.unwrap().topics.contains_key(&*name));
    let deleted = admin.delete_topics(&[&name, "no-such-topic"]).await.unwrap();
    let errors: HashMap<_, _> = deleted.into_iter().collect();
    assert_eq!(errors[&name], Ok(()));
    let missing = errors["no-such-topic"].clone().unwrap_err();
    assert_eq!(missing.code(), Some(ErrorCode::UnknownTopicOrPartition));
}

#[tokio::test]
async fn settings_are_changed_one_by_one() {
    let Some((cluster, admin)) = admin().await else { return };
    let name = new_topic(&cluster, "settings", 1).await;
    let resource = Resource::topic(&name);
    let value = |result: &wire::describe_configs::DescribeConfigsResult, name: &str| {
        let found = result.configs.iter().find(|c| c.name == name);
        found.and_then(|c| c.value.clone()).unwrap()
    };
    let set = |name: &str, value: &str| (name.to_owned(), ConfigOperation::Set(value.to_owned()));
    let changes = [set("retention.ms", "777"), set("cleanup.policy", "compact")];
    admin.alter_configs(&resource, &changes, false).await.unwrap();
    let append = ("cleanup.policy".to_owned(), ConfigOperation::Append("delete".to_owned()));
    admin.alter_configs(&resource, &[append], false).await.unwrap();
    // The change is applied by a log that brokers follow.
    let result = cluster
        .retry(|| async {
            let result = admin.describe_configs(&resource).await?;
            match value(&result, "cleanup.policy").as_str() {
                "compact,delete" => Ok(result),
                _ => Err(client::ClientError::refused("change", ErrorCode::LeaderNotAvailable)),
            }
        })
        .await
        .unwrap();
    assert_eq!(value(&result, "retention.ms"), "777");
    let wrong = set("retention.ms", "not a number");
    let error = admin.alter_configs(&resource, &[wrong], false).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::InvalidConfig));
    let broker = *cluster.metadata().brokers.keys().next().unwrap();
    let described = admin.describe_configs(&Resource::broker(broker)).await.unwrap();
    assert!(described.configs.iter().any(|c| c.name == "num.partitions"));
    assert!(admin.list_config_resources(&[ResourceType::Topic]).await.unwrap().len() > 1);
}

#[tokio::test]
async fn offsets_of_a_group_are_set_listed_and_deleted() {
    let Some((cluster, admin)) = admin().await else { return };
    let topic = new_topic(&cluster, "groups", 2).await;
    let group = unique("group");
    let both = [TopicPartition::new(&*topic, 0), TopicPartition::new(&*topic, 1)];
    let offsets: HashMap<_, _> =
        both.iter().zip([7, 9]).map(|(p, o)| (p.clone(), CommittedOffset::at(Offset(o)))).collect();
    let set = admin.alter_group_offsets(&group, &offsets).await.unwrap();
    assert!(set.iter().all(|(_, result)| result.is_ok()));
    let found = admin.group_offsets(&group).await.unwrap();
    assert_eq!((found[&both[0]].offset, found[&both[1]].offset), (Offset(7), Offset(9)));
    assert!(admin.list_groups().await.unwrap().iter().any(|g| g.group_id == group));
    let gone = admin.delete_group_offsets(&group, &both[..1]).await.unwrap();
    assert!(gone[0].1.is_ok());
    assert!(!admin.group_offsets(&group).await.unwrap().contains_key(&both[0]));
    assert!(admin.delete_groups(&[&group]).await.unwrap()[0].1.is_ok());
    assert!(admin.group_offsets(&group).await.unwrap().is_empty());
}

#[tokio::test]
async fn records_are_deleted_up_to_an_offset() {
    let Some((cluster, admin)) = admin().await else { return };
    let topic = new_topic(&cluster, "deleted", 1).await;
    produce(&cluster, &topic, 10).await;
    let partition = TopicPartition::new(&*topic, 0);
    let before = HashMap::from([(partition.clone(), Offset(4))]);
    let result = admin.delete_records(&before).await.unwrap();
    assert_eq!(result[0].1, Ok(Offset(4)));
    let earliest = [(partition.clone(), client::OffsetSpec::Earliest)];
    let found = admin.list_offsets(&earliest).await.unwrap();
    assert_eq!(found[&partition].offset, Some(Offset(4)));
    let producers = admin.describe_producers(&partition).await.unwrap();
    assert_eq!(producers.len(), 1);
}

#[tokio::test]
async fn the_cluster_describes_itself() {
    let Some((cluster, admin)) = admin().await else { return };
    let topic = new_topic(&cluster, "described", 1).await;
    produce(&cluster, &topic, 1).await;
    let described = admin.describe_cluster().await.unwrap();
    assert_eq!(Some(described.cluster_id), cluster.metadata().cluster_id);
    assert_eq!(described.brokers.len(), cluster.metadata().brokers.len());
    let connection = cluster.any().await.unwrap();
    let serves = |api| connection.version_of(api).is_ok();
    if serves(ApiKey::DescribeQuorum) {
        assert!(!admin.describe_quorum().await.unwrap().topics.is_empty());
    }
    assert!(!admin.describe_features().await.unwrap().api_keys.is_empty());
    let dirs = admin.describe_log_dirs().await.unwrap();
    let mut topics = dirs.iter().flat_map(|(_, dirs)| dirs).flat_map(|dir| &dir.topics);
    assert!(topics.any(|t| t.name == topic));
    if serves(ApiKey::ListPartitionReassignments) {
        assert!(admin.list_reassignments().await.unwrap().is_empty());
    }
    if serves(ApiKey::ListTransactions) {
        // Other tests have transactions; their ids are the names of their topics.
        let listed = admin.list_transactions().await.unwrap();
        assert!(listed.iter().all(|transaction| transaction.transactional_id != topic));
    }
    if serves(ApiKey::ElectLeaders) {
        let partition = TopicPartition::new(&*topic, 0);
        let elected = admin.elect_leaders(false, Some(&[partition])).await.unwrap();
        let error = elected[0].1.clone().unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::ElectionNotNeeded));
    }
}
