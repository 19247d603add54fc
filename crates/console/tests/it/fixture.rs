//! A broker on a temporary directory, a gateway with a console in front of it, and a client of HTTP.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use broker::RunningBroker;
use client::admin::NewTopic;
use client::{
    Admin, Cluster, ClusterConfig, CommittedOffset, Consumer, ConsumerConfig, Producer,
    ProducerConfig, Record,
};
use configuration::BrokerConfig;
use console::Console;
use gateway::{Access, Door, EventSettings, Gateway, InstanceSettings, Making, Pages, Settings};
use model::{Offset, TopicPartition};
use serde_json::Value;
use serving::visitors::Doorkeeper;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long anything may take on a machine that is busy with much else.
pub const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Debug)]
struct Shown(Console);

impl Pages for Shown {
    fn has(&self, path: &str) -> bool {
        self.0.has(path)
    }

    fn page<'a>(&'a self, path: &'a str, query: Option<&'a str>) -> Making<'a> {
        Box::pin(self.0.answer(path, query))
    }
}

/// A broker, a gateway, a console.
pub struct World {
    pub broker: RunningBroker,
    pub gateway: Gateway,
    pub cluster: Cluster,
    pub _dir: TempDir,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }
}

/// A gateway with a console, in front of the brokers behind this address.
pub fn open(bootstrap: &str, access: Access) -> Gateway {
    let mut cluster = ClusterConfig::new(bootstrap);
    cluster.call_timeout = Duration::from_secs(5);
    let settings = Settings {
        pages: Some(Arc::new(Shown(Console::new(cluster.clone())))),
        cluster,
        threads: Some(2),
        memory_bytes: 64 << 20,
        connections_max: 1000,
        connections_per_address_max: 1000,
        request_bytes_max: 1 << 20,
        head_timeout: PATIENCE,
        body_timeout: PATIENCE,
        drain: PATIENCE,
        events: EventSettings::default(),
        instances: InstanceSettings::default(),
        access,
        doorkeeper: Doorkeeper::default(),
    };
    gateway::open(Door::bind("127.0.0.1", 0, false).unwrap(), settings)
}

impl World {
    pub async fn start() -> World {
        World::start_with(Access::Produce).await
    }

    pub async fn start_with(access: Access) -> World {
        let dir = tempfile::tempdir().unwrap();
        let config = BrokerConfig::from_pairs([
            ("log.dirs", dir.path().to_str().unwrap()),
            ("listeners", "PLAINTEXT://127.0.0.1:0"),
            ("http.listener", ""),
            ("gateway.listener", ""),
        ]);
        let broker = broker::start(config.unwrap()).await.unwrap();
        let bootstrap = broker.listeners()[0].to_string();
        let cluster = Cluster::connect(ClusterConfig::new(&bootstrap)).await.unwrap();
        let gateway = open(&bootstrap, access);
        World { broker, gateway, cluster, _dir: dir }
    }

    pub fn admin(&self) -> Admin {
        Admin::new(self.cluster.clone())
    }

    pub async fn create(&self, topic: &str, partitions: i32) {
        self.admin().create_topic(&NewTopic::new(topic, partitions, 1)).await.unwrap();
    }

    /// Writes so many records into one partition, and waits until they are acknowledged.
    pub async fn produce(&self, topic: &str, partition: i32, count: usize) {
        let records: Vec<_> = (0..count).map(|at| format!("value {at}").into_bytes()).collect();
        self.produce_values(topic, partition, &records).await;
    }

    pub async fn produce_values(&self, topic: &str, partition: i32, values: &[Vec<u8>]) {
        let producer =
            Producer::new(self.cluster.clone(), ProducerConfig::default()).await.unwrap();
        for value in values {
            let record = Record { partition: Some(partition), ..Record::value(value) };
            producer.send(topic, &record).await.unwrap();
        }
        producer.flush().await.unwrap();
    }

    /// Commits as an administrator does.
    pub async fn commit(&self, group: &str, topic: &str, partition: i32, offset: i64) {
        let at = CommittedOffset::at(Offset(offset));
        let offsets = HashMap::from([(TopicPartition::new(topic, partition), at)]);
        for (_, done) in self.admin().alter_group_offsets(group, &offsets).await.unwrap() {
            done.unwrap();
        }
    }

    /// A member of a group that has its partitions.
    pub async fn member(&self, group: &str, topic: &str, partitions: usize) -> Consumer {
        let config = ConsumerConfig {
            group_id: Some(group.to_owned()),
            auto_commit: None,
            ..ConsumerConfig::default()
        };
        let mut consumer = Consumer::new(self.cluster.clone(), config);
        consumer.subscribe(&[topic]).unwrap();
        while consumer.assignment().len() < partitions {
            consumer.poll(Duration::from_millis(100)).await.unwrap();
        }
        consumer
    }

    pub async fn get(&self, target: &str) -> Answer {
        ask(self.gateway.address(), "GET", target, "host: localhost\r\n").await
    }

    /// JSON as soon as it is as wanted: a snapshot is some seconds old.
    pub async fn json_when(&self, target: &str, is: impl Fn(&Value) -> bool) -> Value {
        let wanted = async {
            loop {
                let answer = self.get(target).await;
                if answer.status == 200 && is(&answer.json()) {
                    return answer.json();
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        match timeout(PATIENCE, wanted).await {
            Ok(value) => value,
            Err(_) => panic!("{target}: {:?}", self.get(target).await),
        }
    }

    pub async fn stop(self) {
        self.gateway.stop().await;
        self.broker.stop_within(PATIENCE).await;
    }
}

/// One request on a connection of its own.
pub async fn ask(at: SocketAddr, method: &str, target: &str, headers: &str) -> Answer {
    let mut stream = TcpStream::connect(at).await.unwrap();
    let request = format!("{method} {target} HTTP/1.1\r\n{headers}connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut read = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut read)).await.expect("an answer in time").unwrap();
    let text = String::from_utf8(read).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{text:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_lowercase(), body: body.to_owned() }
}

/// A name as it stands in a query.
pub fn quoted(name: &str) -> String {
    name.bytes().map(|byte| format!("%{byte:02x}")).collect()
}
