//! The client against brokers.
//!
//! The tests in [`scripted`], [`secured`], [`played`], [`fates`], [`stored`] and [`survey`] need none, nor do most of [`leases`] and [`transactions`]: they play the
//! broker themselves. All others need a cluster and are passed over without one:
//! `CLIENT_TEST_BOOTSTRAP=host:port cargo test -p client`.

mod admin;
mod cluster;
mod consume;
mod fates;
mod leases;
mod played;
mod produce;
mod rows;
mod scripted;
mod secured;
mod stored;
mod survey;
mod transactions;

use client::{Cluster, ClusterConfig};
use std::time::Duration;

/// How long anything may take on a machine that is busy with much else.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The cluster to test against; `None` when there is none.
pub async fn cluster() -> Option<Cluster> {
    let Ok(bootstrap) = std::env::var("CLIENT_TEST_BOOTSTRAP") else {
        eprintln!("passed over: CLIENT_TEST_BOOTSTRAP names no cluster");
        return None;
    };
    Some(Cluster::connect(ClusterConfig::new(&bootstrap)).await.expect("the cluster answers"))
}

/// A topic of its own for each test, with so many partitions.
pub async fn new_topic(cluster: &Cluster, test: &str, partitions: i32) -> String {
    use wire::create_topics::{CreatableTopic, CreatableTopicConfig};
    let name = format!("{test}-{:08x}", fastrand::u32(..));
    // Records of long ago stay, whenever the brokers look for what has served its time.
    let kept =
        CreatableTopicConfig { name: "retention.ms".to_owned(), value: Some("-1".to_owned()) };
    let request = wire::CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: name.clone(),
            num_partitions: partitions,
            replication_factor: -1,
            configs: vec![kept],
            ..Default::default()
        }],
        timeout_ms: 30_000,
        ..Default::default()
    };
    let none = |_: &_| model::ErrorCode::None;
    let response = cluster.call_controller(&request, none).await.unwrap();
    assert_eq!(response.topics[0].error(), model::ErrorCode::None, "{response:?}");
    name
}
