//! A broker on a temporary directory, a gateway with a console in front of it, and a client of HTTP.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use broker::RunningBroker;
use client::admin::NewTopic;
use client::{
    Admin, Cluster, ClusterConfig, CommittedOffset, Consumer, ConsumerConfig, Producer,
    ProducerConfig, Record,
};
use configuration::BrokerConfig;
use console::{Console, Front, Sending};
use gateway::{
    Access, Door, EventSettings, Gateway, Inside, InstanceSettings, Making, Pages, Settings,
};
use model::{Offset, TopicPartition};
use serde_json::Value;
use serving::choice::{Pair, Row};
use serving::operation::{By, NewRecord};
use serving::visitors::Doorkeeper;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long anything may take on a machine that is busy with much else.
pub const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Debug)]
struct Shown(Console);

/// The gateway as the console uses it: neither knows the other.
struct Behind<'a>(&'a Inside);

impl Front for Behind<'_> {
    fn send<'a>(
        &'a self,
        topic: &'a str,
        records: &'a [NewRecord],
        pair: Pair,
        partition: Option<i32>,
    ) -> Sending<'a> {
        Box::pin(self.0.send(topic, records, pair, partition))
    }

    fn distribution(&self, topic: &str) -> Vec<Row> {
        self.0.distribution(topic)
    }

    fn topics(&self) -> Vec<String> {
        self.0.topics()
    }

    fn counts(&self) -> serde_json::Value {
        self.0.counts()
    }

    fn url(&self) -> String {
        self.0.address().map(|at| format!("{}://{at}", self.0.scheme())).unwrap_or_default()
    }
}

impl Pages for Shown {
    fn has(&self, path: &str) -> bool {
        self.0.has(path)
    }

    fn page<'a>(
        &'a self,
        path: &'a str,
        query: Option<&'a str>,
        by: By<'a>,
        inside: &'a Inside,
    ) -> Making<'a> {
        Box::pin(async move { self.0.answer(path, query, by, &Behind(inside)).await })
    }

    fn takes(&self, path: &str) -> bool {
        self.0.takes(path)
    }

    fn take<'a>(
        &'a self,
        path: &'a str,
        form: &'a [u8],
        by: By<'a>,
        inside: &'a Inside,
    ) -> Making<'a> {
        Box::pin(async move { self.0.take(path, form, by, &Behind(inside)).await })
    }

    fn stop(&self) {
        self.0.stop();
    }
}

/// A broker, a gateway, a console.
pub struct World {
    pub broker: RunningBroker,
    pub gateway: Gateway,
    pub cluster: Cluster,
    /// What the console keeps.
    pub kept: Option<TempDir>,
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
    open_with(bootstrap, access, console::Settings::default())
}

/// The same, with a console that is told this.
pub fn open_with(bootstrap: &str, access: Access, console: console::Settings) -> Gateway {
    open_for(bootstrap, access, console, None)
}

fn open_for(
    bootstrap: &str,
    access: Access,
    console: console::Settings,
    users_file: Option<PathBuf>,
) -> Gateway {
    open_changed(bootstrap, console, |settings| Settings { access, users_file, ..settings })
}

/// The same, with a gateway that is set otherwise.
pub fn open_changed(
    bootstrap: &str,
    console: console::Settings,
    change: impl FnOnce(Settings) -> Settings,
) -> Gateway {
    let mut cluster = ClusterConfig::new(bootstrap);
    cluster.call_timeout = Duration::from_secs(5);
    let settings = Settings {
        pages: Some(Arc::new(Shown(Console::new(cluster.clone(), console)))),
        cluster,
        threads: Some(2),
        memory_bytes: 64 << 20,
        connections_max: 1000,
        connections_per_address_max: 1000,
        request_bytes_max: 1 << 20,
        head_timeout: PATIENCE,
        body_timeout: PATIENCE,
        write_timeout: gateway::WRITE_TIMEOUT,
        drain: PATIENCE,
        events: EventSettings::default(),
        instances: InstanceSettings::default(),
        partitioners: Arc::default(),
        access: Access::Everything,
        users_file: None,
        key: None,
        tls: None,
        is_secure: false,
        proxies: serving::forwarded::TrustedProxies::default(),
        doorkeeper: Doorkeeper::default(),
    };
    gateway::open(Door::bind("127.0.0.1", 0, false).unwrap(), change(settings))
}

impl World {
    pub async fn start() -> World {
        World::start_with(Access::Everything).await
    }

    pub async fn start_with(access: Access) -> World {
        World::start_as(access, console::Settings::default()).await
    }

    /// With a console that may act, and keeps its log in a folder of its own.
    pub async fn start_open() -> World {
        let kept = tempfile::tempdir().unwrap();
        let settings = console::Settings {
            write: true,
            state_dir: Some(kept.path().to_path_buf()),
            ..console::Settings::default()
        };
        let mut world = World::start_as(Access::Everything, settings).await;
        world.kept = Some(kept);
        world
    }

    /// With a console that may act, for the users in this file.
    pub async fn start_for(users_file: &Path) -> World {
        let settings = console::Settings { write: true, ..console::Settings::default() };
        let mut world = World::start_as(Access::Health, settings.clone()).await;
        let bootstrap = world.broker.listeners()[0].to_string();
        let gateway = open_for(&bootstrap, Access::Health, settings, Some(users_file.to_owned()));
        std::mem::replace(&mut world.gateway, gateway).stop().await;
        world
    }

    pub async fn start_as(access: Access, console: console::Settings) -> World {
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
        let gateway = open_with(&bootstrap, access, console);
        World { broker, gateway, cluster, kept: None, _dir: dir }
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

    /// The end of a partition.
    pub async fn end(&self, topic: &str, partition: i32) -> i64 {
        let wanted = [(TopicPartition::new(topic, partition), client::OffsetSpec::Latest)];
        let found = client::offsets::list_offsets(&self.cluster, &wanted, false).await.unwrap();
        found[&wanted[0].0].offset.unwrap().0
    }

    /// Commits as an administrator does.
    pub async fn commit(&self, group: &str, topic: &str, partition: i32, offset: i64) {
        let at = CommittedOffset::at(Offset(offset));
        let offsets = HashMap::from([(TopicPartition::new(topic, partition), at)]);
        for (_, done) in self.admin().alter_group_offsets(group, &offsets).await.unwrap() {
            done.unwrap();
        }
        // A broker lists no group while one of its coordinators still reads its partition of the internal topic.
        self.admin().list_groups().await.unwrap();
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

    /// Sends a form.
    pub async fn post(&self, target: &str, fields: &[(&str, &str)]) -> Answer {
        let form = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let headers = format!(
            "host: localhost\r\ncontent-type: application/x-www-form-urlencoded\r\ncontent-length: {}\r\n",
            form.len()
        );
        send(self.gateway.address(), "POST", target, &headers, &form).await
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

    /// Another gateway with a console in front of the same brokers, in place of the one that is there.
    pub async fn again(mut self) -> World {
        let kept = self.kept.as_ref().map(|kept| kept.path().to_path_buf());
        let bootstrap = self.broker.listeners()[0].to_string();
        let settings =
            console::Settings { write: true, state_dir: kept, ..console::Settings::default() };
        let fresh = open_with(&bootstrap, Access::Everything, settings);
        std::mem::replace(&mut self.gateway, fresh).stop().await;
        self
    }

    pub async fn stop(self) {
        self.gateway.stop().await;
        self.broker.stop_within(PATIENCE).await;
    }
}

/// One request on a connection of its own.
pub async fn ask(at: SocketAddr, method: &str, target: &str, headers: &str) -> Answer {
    send(at, method, target, headers, "").await
}

/// The same with a body.
pub async fn send(at: SocketAddr, method: &str, target: &str, headers: &str, body: &str) -> Answer {
    let mut stream = TcpStream::connect(at).await.unwrap();
    let request = format!("{method} {target} HTTP/1.1\r\n{headers}connection: close\r\n\r\n{body}");
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

/// The fields that a page hands on, as a browser would send them.
pub fn hidden(page: &str) -> Vec<(String, String)> {
    let text = |text: &str| {
        text.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    };
    let field = |input: &str| {
        let of =
            |name: &str| Some(text(input.split(&format!("{name}=\"")).nth(1)?.split('"').next()?));
        Some((of("name")?, of("value")?))
    };
    page.split("<input type=\"hidden\"").skip(1).filter_map(field).collect()
}
