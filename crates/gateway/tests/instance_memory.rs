//! Consumer instances keep at most the memory that they are charged: one test alone in its process, so that the heap's growth
//! is theirs. The broker's memory for their connections and groups counts as well: it is in the same process.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use broker::RunningBroker;
use client::admin::NewTopic;
use client::{Admin, Cluster, ClusterConfig};
use configuration::BrokerConfig;
use gateway::{Access, Door, EventSettings, Gateway, InstanceSettings, Settings};
use serving::visitors::Doorkeeper;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(60);
/// Of this, instances have a half.
const MEMORY_BYTES: usize = 24 << 20;
const INSTANCES_BYTES: usize = MEMORY_BYTES / 2;
/// Instances whose memory is not measured: the first ones make what all share.
const FIRST: usize = 16;

async fn broker(dir: &TempDir) -> RunningBroker {
    let config = BrokerConfig::from_pairs([
        ("log.dirs", dir.path().to_str().unwrap()),
        ("listeners", "PLAINTEXT://127.0.0.1:0"),
        ("http.listener", ""),
        ("gateway.listener", ""),
        ("group.initial.rebalance.delay.ms", "0"),
    ]);
    broker::start(config.unwrap()).await.unwrap()
}

fn gateway(bootstrap: &str) -> Gateway {
    let settings = Settings {
        cluster: ClusterConfig::new(bootstrap),
        threads: Some(2),
        memory_bytes: MEMORY_BYTES,
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
        pages: None,
    };
    gateway::open(Door::bind("127.0.0.1", 0, false).unwrap(), settings)
}

/// Status and body of the answer to a request.
async fn ask(address: SocketAddr, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\
         content-type: application/vnd.kafka.v2+json\r\naccept: application/vnd.kafka.binary.v2+json\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut answer)).await.expect("an answer").unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// Makes instances, each the member of a group of its own that has read, until the gateway refuses one. Returns their count,
/// and the heap's growth in bytes since the first ones.
async fn fill(address: SocketAddr) -> (usize, usize) {
    let (mut count, mut before) = (0, 0);
    loop {
        let group = format!("/consumers/g{count}");
        let (status, _) = ask(address, "POST", &group, r#"{"name":"i"}"#).await;
        if status == 429 {
            return (count, heap::allocated_bytes().saturating_sub(before));
        }
        assert_eq!(status, 200);
        let instance = format!("{group}/instances/i");
        let subscription = format!("{instance}/subscription");
        assert_eq!(ask(address, "POST", &subscription, r#"{"topics":["t"]}"#).await.0, 204);
        let records = format!("{instance}/records?timeout=0");
        loop {
            let (status, body) = ask(address, "GET", &records, "").await;
            assert_eq!(status, 200, "{body}");
            let (_, subscribed) = ask(address, "GET", &subscription, "").await;
            if subscribed.contains("\"t\":[0]") {
                break;
            }
        }
        count += 1;
        if count == FIRST {
            before = heap::allocated_bytes();
        }
        assert!(count < 500, "instances are charged");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_keep_at_most_the_memory_that_they_are_charged() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(&dir).await;
    let bootstrap = broker.listeners()[0].to_string();
    let cluster = Cluster::connect(ClusterConfig::new(&bootstrap)).await.unwrap();
    Admin::new(cluster).create_topic(&NewTopic::new("t", 1, 1)).await.unwrap();
    let gateway = gateway(&bootstrap);
    let (count, grown) = fill(gateway.address()).await;
    let charged = (count - FIRST) * INSTANCES_BYTES / count;
    println!("{count} instances, {} bytes each", grown / (count - FIRST));
    assert!(grown <= charged, "{grown} bytes are kept, {charged} charged");
    gateway.stop().await;
    broker.stop_within(PATIENCE).await;
}
