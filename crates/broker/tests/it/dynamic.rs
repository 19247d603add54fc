//! Dynamic configurations must not keep every client out: each key at its least and its greatest legal value,
//! connections beyond the limits for clients on this machine, and the ways back without a port.

use std::sync::Arc;
use std::time::Duration;

use broker::stopped::{ResetError, reset_config};
use configuration::BrokerConfig;
use model::{BrokerId, ErrorCode};
use storage::disk::{Disk, RealDisk};
use storage::stopped::Stopped as StoppedFolder;
use tokio::time::timeout;
use wire::{DescribeConfigsRequest, describe_configs};

use crate::configuring::{BROKER, DELETE, SET, change, described};
use crate::fixture::*;

/// Values at both ends of each type, from the least to the greatest.
const NUMBERS: [&str; 5] = ["-1", "0", "1", "2147483647", "9223372036854775807"];
const TEXTS: [&str; 5] = ["", "x", "0.0", "127.0.0.1:0", "127.0.0.1:1"];

/// A dynamic key with its present value.
struct DynamicKey {
    name: String,
    value: Option<String>,
}

impl DynamicKey {
    fn candidates(&self) -> [&'static str; 5] {
        let is_number = self.value.as_deref().is_some_and(|text| text.parse::<i64>().is_ok());
        if is_number { NUMBERS } else { TEXTS }
    }
}

async fn dynamic_keys(conn: &mut Conn) -> Vec<DynamicKey> {
    let resource = describe_configs::DescribeConfigsResource {
        resource_type: BROKER,
        resource_name: "1".to_owned(),
        configuration_keys: None,
    };
    let request = DescribeConfigsRequest { resources: vec![resource], ..Default::default() };
    let configs = conn.call(&request, 4).await.results.remove(0).configs;
    let dynamic = configs.into_iter().filter(|config| !config.read_only);
    dynamic.map(|config| DynamicKey { name: config.name, value: config.value }).collect()
}

/// Sets a key for all brokers, or for this one where only that is allowed. Returns the resource if the value is legal.
async fn set(broker: &Broker, key: &str, value: &str) -> Option<&'static str> {
    let mut conn = broker.connect().await;
    for resource in ["", "1"] {
        let (code, _) = change(&mut conn, resource, &[(key, SET, Some(value))]).await;
        if code == ErrorCode::None {
            return Some(resource);
        }
    }
    None
}

/// A new client is served and takes the value back.
async fn take_back(broker: &Broker, key: &DynamicKey, resource: &str, value: &str) {
    broker.assert_serves().await;
    let mut conn = broker.connect().await;
    let (code, message) = change(&mut conn, resource, &[(&key.name, DELETE, None)]).await;
    // Kafka refuses to remove this one while it elects from eligible replicas (KIP-966): it is set back.
    if key.name == "min.insync.replicas" {
        let was = [(key.name.as_str(), SET, key.value.as_deref())];
        assert_eq!(change(&mut conn, resource, &was).await.0, ErrorCode::None);
        return;
    }
    assert_eq!(code, ErrorCode::None, "{}={value}: {message}", key.name);
}

#[tokio::test]
async fn every_dynamic_key_at_its_least_and_greatest_value_can_be_taken_back() {
    let mut broker = Broker::start(&[]).await;
    let keys = dynamic_keys(&mut broker.connect().await).await;
    assert!(keys.len() > 80, "{} dynamic keys", keys.len());
    let mut ends = [Vec::new(), Vec::new()];
    for key in &keys {
        let mut legal = Vec::new();
        for value in key.candidates() {
            if let Some(resource) = set(&broker, &key.name, value).await {
                take_back(&broker, key, resource, value).await;
                legal.push(value);
            }
        }
        if let (Some(least), Some(greatest)) = (legal.first(), legal.last()) {
            ends[0].push((key, *least));
            ends[1].push((key, *greatest));
        }
    }
    assert!(ends[0].len() > 60, "{} keys with legal values", ends[0].len());
    // All of them together, as far as they do not contradict each other, across a restart.
    for end in ends {
        let mut stored = Vec::new();
        for (key, value) in end {
            if let Some(resource) = set(&broker, &key.name, value).await {
                stored.push((key, resource, value));
            }
        }
        broker = broker.restart().await;
        for (key, resource, value) in stored {
            take_back(&broker, key, resource, value).await;
        }
    }
    broker.stop().await;
}

#[tokio::test]
async fn a_client_on_this_machine_gets_in_beyond_the_limits_until_it_is_idle() {
    let broker = Broker::start(&[]).await;
    // The only connection within the limit.
    let mut only = broker.connect().await;
    let zero = [("max.connections", SET, Some("0"))];
    assert_eq!(change(&mut only, "", &zero).await.0, ErrorCode::InvalidRequest);
    let one = [("max.connections", SET, Some("1"))];
    assert_eq!(change(&mut only, "", &one).await.0, ErrorCode::None);
    let mut reserve = broker.take_reserve().await;
    broker.assert_refuses().await;
    // Idle ones go after 30 s; no other test of this file waits for that.
    let closed = timeout(Duration::from_secs(300), reserve[0].receive_frame_or_wait()).await;
    assert_eq!(closed.expect("an idle connection beyond the limits is closed"), None);
    let gone = [("max.connections", DELETE, None)];
    assert_eq!(change(&mut broker.connect().await, "", &gone).await.0, ErrorCode::None);
    drop(only);
    broker.stop().await;
}

fn pairs(stopped: &Stopped) -> Vec<(&str, &str)> {
    let path = stopped.dir.path().to_str().unwrap();
    vec![("log.dirs", path), ("listeners", "PLAINTEXT://127.0.0.1:0"), ("http.listener", "")]
}

#[tokio::test]
async fn a_process_that_ignores_a_dynamic_key_goes_by_its_file_and_can_take_the_value_back() {
    let broker = Broker::start(&[]).await;
    let one = [("max.connections", SET, Some("1"))];
    assert_eq!(change(&mut broker.connect().await, "", &one).await.0, ErrorCode::None);
    let stopped = broker.stop_and_keep().await;
    let mut config = BrokerConfig::from_pairs(pairs(&stopped)).unwrap();
    config.configuration.ignore_dynamic(&["max.connections".to_owned()]).unwrap();
    let running = broker::start(config).await.unwrap();
    let mut conns = Vec::new();
    for _ in 0..6 {
        let mut conn = Conn::open(running.listeners()[0]).await;
        let shown = described(&mut conn, "max.connections").await;
        assert_eq!(shown.as_deref(), Some("2147483647"));
        conns.push(conn);
    }
    let gone = [("max.connections", DELETE, None)];
    assert_eq!(change(&mut conns[0], "", &gone).await.0, ErrorCode::None);
    running.stop_within(PATIENCE).await;
    let running = run(stopped.dir.path(), &[]).await.unwrap();
    let mut conn = Conn::open(running.listeners()[0]).await;
    let shown = described(&mut conn, "max.connections").await;
    assert_eq!(shown.as_deref(), Some("2147483647"));
    running.stop_within(PATIENCE).await;
}

#[tokio::test]
async fn a_dynamic_value_is_taken_back_in_the_folder_of_a_stopped_broker() {
    let broker = Broker::start(&[]).await;
    for resource in ["", "1"] {
        let both = [("max.connections", SET, Some("1")), ("log.retention.ms", SET, Some("7000"))];
        let changed = change(&mut broker.connect().await, resource, &both).await;
        assert_eq!(changed.0, ErrorCode::None, "{}", changed.1);
    }
    let stopped = broker.stop_and_keep().await;
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let path = stopped.dir.path();
    let folder = StoppedFolder::open(Arc::clone(&disk), path).unwrap();
    let (node, cluster) = folder.owner().expect("it is a broker's");
    let reset = reset_config(&disk, path, cluster, node, "max.connections").await;
    assert_eq!(reset.unwrap(), ["", "1"]);
    let again = reset_config(&disk, path, cluster, node, "max.connections").await;
    assert!(matches!(again, Err(ResetError::NotSet(_))));
    let other = reset_config(&disk, path, cluster, BrokerId(2), "max.connections").await;
    assert!(matches!(other, Err(ResetError::Read(_))), "the folder is another broker's");
    drop(folder);
    let running = run(path, &[]).await.unwrap();
    let mut conn = Conn::open(running.listeners()[0]).await;
    let shown = described(&mut conn, "max.connections").await;
    assert_eq!(shown.as_deref(), Some("2147483647"));
    assert_eq!(described(&mut conn, "log.retention.ms").await.as_deref(), Some("7000"));
    running.stop_within(PATIENCE).await;
}
