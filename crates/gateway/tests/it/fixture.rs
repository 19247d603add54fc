//! A broker on a temporary directory, a gateway in front of it, and what is in the broker's topics.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use broker::RunningBroker;
use client::admin::NewTopic;
use client::{
    Admin, Cluster, ClusterConfig, Consumer, ConsumerConfig, OffsetReset, OffsetSpec, Producer,
    ProducerConfig, Record,
};
use configuration::BrokerConfig;
use gateway::{Gateway, Settings};
use model::TopicPartition;
use tempfile::TempDir;

use crate::gate::Gate;
use crate::http::Connection;

pub use crate::settings::{PATIENCE, open, settings};

/// A record as it is in a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    pub partition: i32,
    pub offset: i64,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    pub timestamp_ms: i64,
}

/// A broker with a gateway.
pub struct World {
    broker: RunningBroker,
    pub gateway: Gateway,
    pub cluster: Cluster,
    _dir: TempDir,
}

impl World {
    pub async fn start() -> World {
        World::start_with(|settings| settings).await
    }

    /// With a gateway that reaches the broker through a gate; everything else reaches it directly.
    pub async fn start_behind_gate() -> (World, Gate) {
        World::start_behind_gate_with(|settings| settings).await
    }

    /// The same, with a gateway that is set otherwise.
    pub async fn start_behind_gate_with(
        change: impl FnOnce(Settings) -> Settings,
    ) -> (World, Gate) {
        World::behind_gate(false, change).await
    }

    /// The same, with a broker that creates topics that are missing.
    pub async fn start_creating_behind_gate(
        change: impl FnOnce(Settings) -> Settings,
    ) -> (World, Gate) {
        World::behind_gate(true, change).await
    }

    async fn behind_gate(
        creates_topics: bool,
        change: impl FnOnce(Settings) -> Settings,
    ) -> (World, Gate) {
        let (broker, cluster, dir) = World::broker(creates_topics).await;
        let bootstrap = broker.listeners()[0].to_string();
        let gate = Gate::to(bootstrap).await;
        let mut settings = change(settings(&gate.address.to_string()));
        for id in cluster.metadata().brokers.keys() {
            settings.cluster.addresses.insert(*id, gate.address.to_string());
        }
        (World { broker, gateway: open(settings), cluster, _dir: dir }, gate)
    }

    /// With a broker that creates topics that are missing, and a gateway that is set otherwise.
    pub async fn start_creating(change: impl FnOnce(Settings) -> Settings) -> World {
        let (broker, cluster, dir) = World::broker(true).await;
        let gateway = open(change(settings(&broker.listeners()[0].to_string())));
        World { broker, gateway, cluster, _dir: dir }
    }

    /// With a gateway that is set otherwise.
    pub async fn start_with(change: impl FnOnce(Settings) -> Settings) -> World {
        let (broker, cluster, dir) = World::broker(false).await;
        let gateway = open(change(settings(&broker.listeners()[0].to_string())));
        World { broker, gateway, cluster, _dir: dir }
    }

    async fn broker(creates_topics: bool) -> (RunningBroker, Cluster, TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let config = BrokerConfig::from_pairs([
            ("log.dirs", dir.path().to_str().unwrap()),
            ("listeners", "PLAINTEXT://127.0.0.1:0"),
            ("http.listener", ""),
            ("gateway.listener", ""),
            ("auto.create.topics.enable", if creates_topics { "true" } else { "false" }),
        ]);
        let broker = broker::start(config.unwrap()).await.unwrap();
        let bootstrap = broker.listeners()[0].to_string();
        let cluster = Cluster::connect(ClusterConfig::new(&bootstrap)).await.unwrap();
        (broker, cluster, dir)
    }

    pub async fn create(&self, topic: &str, partitions: i32, configs: &[(&str, &str)]) {
        let configs = configs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let topic = NewTopic { configs, ..NewTopic::new(topic, partitions, 1) };
        Admin::new(self.cluster.clone()).create_topic(&topic).await.unwrap();
    }

    /// Where the broker is reached.
    pub fn broker_address(&self) -> String {
        self.broker.listeners()[0].to_string()
    }

    pub async fn connect(&self) -> Connection {
        Connection::open(self.gateway.address()).await
    }

    /// Writes these values to a partition.
    pub async fn fill(
        &self,
        topic: &str,
        partition: i32,
        values: impl IntoIterator<Item = String>,
    ) {
        let producer =
            Producer::new(self.cluster.clone(), ProducerConfig::default()).await.unwrap();
        for value in values {
            let record = Record {
                value: Some(value.as_bytes()),
                partition: Some(partition),
                ..Record::default()
            };
            producer.send(topic, &record).await.unwrap();
        }
        producer.flush().await.unwrap();
    }

    /// What the gateway counts of its event streams.
    pub async fn count(&self, name: &str) -> u64 {
        let counts = self.connect().await.get("/api/v1/gateway/events").await.json();
        counts[name].as_u64().unwrap_or_else(|| panic!("{name}: {counts}"))
    }

    /// Memory that the gateway has charged for bodies and what is read, in bytes.
    pub async fn body_bytes(&self) -> usize {
        let metrics = self.connect().await.get("/metrics").await.body;
        let name = "highwater_gateway_buffer_bytes{for=\"bodies\"} ";
        let line = metrics.lines().find_map(|line| line.strip_prefix(name));
        let bytes: f64 = line.unwrap_or_else(|| panic!("{metrics}")).parse().unwrap();
        bytes as usize
    }

    /// Waits until the gateway has counted so many.
    pub async fn until_count(&self, name: &str, count: u64) {
        let counted = async {
            while self.count(name).await != count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let counted = tokio::time::timeout(PATIENCE, counted).await;
        assert!(counted.is_ok(), "{name} was never {count}");
    }

    /// The end of each partition.
    pub async fn ends(&self, topic: &str) -> Vec<i64> {
        let count = self.cluster.topic(topic).await.unwrap().partitions.len() as i32;
        let wanted: Vec<_> =
            (0..count).map(|p| (TopicPartition::new(topic, p), OffsetSpec::Latest)).collect();
        let found = client::offsets::list_offsets(&self.cluster, &wanted, false).await.unwrap();
        wanted.iter().map(|(partition, _)| found[partition].offset.unwrap().0).collect()
    }

    /// Everything that is in a topic.
    pub async fn read(&self, topic: &str) -> Vec<Kept> {
        let ends = self.ends(topic).await;
        let config = ConsumerConfig {
            offset_reset: OffsetReset::Earliest,
            auto_commit: None,
            ..ConsumerConfig::default()
        };
        let mut consumer = Consumer::new(self.cluster.clone(), config);
        let partitions: Vec<_> =
            (0..ends.len() as i32).map(|p| TopicPartition::new(topic, p)).collect();
        consumer.assign(&partitions).await.unwrap();
        let (mut kept, mut buffer) = (BTreeMap::new(), Vec::new());
        while (kept.len() as i64) < ends.iter().sum() {
            for fetched in consumer.poll(Duration::from_secs(1)).await.unwrap() {
                let partition = fetched.partition.partition.0;
                let keep = |record: client::ConsumerRecord<'_>| {
                    let headers = record
                        .headers()
                        .map(|(name, value)| (name.to_owned(), value.map(<[u8]>::to_vec)));
                    let one = Kept {
                        partition,
                        offset: record.offset.0,
                        key: record.key.map(<[u8]>::to_vec),
                        value: record.value.map(<[u8]>::to_vec),
                        headers: headers.collect(),
                        timestamp_ms: record.timestamp.0,
                    };
                    kept.insert((partition, one.offset), one);
                };
                fetched.for_each(&mut buffer, keep).unwrap();
            }
        }
        kept.into_values().collect()
    }

    /// Stops the broker; the gateway goes on.
    pub async fn stop_broker(self) -> Gateway {
        self.broker.stop_within(PATIENCE).await;
        self.gateway
    }

    /// Stops the gateway; the broker goes on.
    pub async fn stop_gateway(self) -> (RunningBroker, TempDir) {
        self.gateway.stop().await;
        (self.broker, self._dir)
    }

    /// Stops both, and waits until they have.
    pub async fn stop(self) {
        self.gateway.stop().await;
        self.broker.stop_within(PATIENCE).await;
    }
}

/// An address where nothing listens.
pub fn nowhere() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}
