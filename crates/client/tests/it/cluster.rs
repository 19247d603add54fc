//! Finding out who is there and who leads what.

use crate::{cluster, new_topic};
use client::{CoordinatorKind, Lane};
use model::ErrorCode;

#[tokio::test]
async fn a_new_topic_is_found_with_its_leaders() {
    let Some(cluster) = cluster().await else { return };
    let name = new_topic(&cluster, "found", 3).await;
    let topic = cluster.topic(&name).await.unwrap();
    assert_eq!(topic.partitions.len(), 3);
    let metadata = cluster.metadata();
    assert_eq!(metadata.topic_by_id(topic.id).unwrap().name, topic.name);
    for partition in 0..3 {
        let leader = metadata.leader(&name, partition).unwrap();
        let connection = cluster.broker(leader, Lane::Common).await.unwrap();
        assert!(connection.versions().newest(wire::ApiKey::Produce).is_some());
    }
}

#[tokio::test]
async fn a_group_has_a_coordinator() {
    let Some(cluster) = cluster().await else { return };
    let id =
        cluster.retry(|| cluster.coordinator(CoordinatorKind::Group, "some-group")).await.unwrap();
    assert!(cluster.metadata().brokers.contains_key(&id));
}

#[tokio::test]
async fn many_calls_share_a_connection_and_get_their_own_answers() {
    let Some(cluster) = cluster().await else { return };
    let connection = cluster.any().await.unwrap();
    let calls: Vec<_> = (0..100)
        .map(|i| {
            let connection = connection.clone();
            tokio::spawn(async move {
                let topic = wire::metadata::MetadataRequestTopic {
                    name: Some(format!("no-such-topic-{i}")),
                    ..Default::default()
                };
                let request = wire::MetadataRequest {
                    topics: Some(vec![topic]),
                    allow_auto_topic_creation: false,
                    ..Default::default()
                };
                connection.call(&request).await.unwrap()
            })
        })
        .collect();
    for (i, call) in calls.into_iter().enumerate() {
        let response = call.await.unwrap();
        assert_eq!(response.topics[0].name, Some(format!("no-such-topic-{i}")));
        assert_eq!(response.topics[0].error(), ErrorCode::UnknownTopicOrPartition);
    }
}
