//! Consumer instances take at most the memory that documents state: the heap's growth of the gateway, with the broker in a
//! process of its own.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

mod settings;

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use client::admin::NewTopic;
use client::{Admin, Cluster, ClusterConfig};
use configuration::BrokerConfig;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use settings::PATIENCE;

/// Names the data folder to the process that serves as broker.
const BROKER_DIR: &str = "INSTANCE_MEMORY_BROKER_DIR";
/// Instances that are measured, each in a group of its own.
const INSTANCES: usize = 40;
/// Memory of an instance that reads as a member of a group, in bytes (gateway.md). Without optimization the futures of its
/// client take half as much again.
const INSTANCE_BYTES_MAX: usize = if cfg!(debug_assertions) { 96 << 10 } else { 64 << 10 };

/// A broker in a process of its own, which ends with its standard input.
struct BrokerProcess {
    child: Child,
    _dir: tempfile::TempDir,
}

impl Drop for BrokerProcess {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // It may have ended already.
        let _ = self.child.wait();
    }
}

impl BrokerProcess {
    /// Runs this program with the one test that serves as broker. Returns the broker and its address.
    fn start() -> (BrokerProcess, String) {
        let dir = tempfile::tempdir().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "serves_as_broker", "--nocapture", "--test-threads=1"])
            .env(BROKER_DIR, dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut lines = std::io::BufRead::lines(output).map(Result::unwrap);
        let address = lines
            .find_map(|line| line.split_once("broker at ").map(|(_, address)| address.to_owned()));
        // Reads to the end, so that the broker can print.
        std::thread::spawn(move || lines.for_each(drop));
        (BrokerProcess { child, _dir: dir }, address.expect("the broker starts"))
    }
}

/// The broker's process. Without the variable, as in every run of all tests, there is nothing to serve.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serves_as_broker() {
    let Ok(dir) = std::env::var(BROKER_DIR) else { return };
    let config = BrokerConfig::from_pairs([
        ("log.dirs", dir.as_str()),
        ("listeners", "PLAINTEXT://127.0.0.1:0"),
        ("http.listener", ""),
        ("gateway.listener", ""),
        ("group.initial.rebalance.delay.ms", "0"),
    ]);
    let broker = broker::start(config.unwrap()).await.unwrap();
    println!("broker at {}", broker.listeners()[0]);
    let ended = || std::io::Read::read_to_end(&mut std::io::stdin(), &mut Vec::new());
    tokio::task::spawn_blocking(ended).await.unwrap().unwrap();
    broker.stop().await;
}

/// Sends a request and returns the body of its answer.
async fn call(address: SocketAddr, method: &str, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/vnd.kafka.v2+json\r\naccept: application/vnd.kafka.binary.v2+json\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut reader = BufReader::new(stream);
    let mut status = String::new();
    timeout(PATIENCE, reader.read_line(&mut status)).await.expect("an answer").unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, reader.read_to_string(&mut answer)).await.expect("an answer").unwrap();
    assert!(status.starts_with("HTTP/1.1 2"), "{path}: {status}{answer}");
    answer.split_once("\r\n\r\n").map_or_else(String::new, |(_, body)| body.to_owned())
}

/// Makes an instance that reads topic `t` as a member of its own group.
async fn use_instance(address: SocketAddr, number: usize) {
    let group = format!("/consumers/group-{number}");
    call(address, "POST", &group, r#"{"name":"one","format":"binary"}"#).await;
    let instance = format!("{group}/instances/one");
    let subscription = format!("{instance}/subscription");
    call(address, "POST", &subscription, r#"{"topics":["t"]}"#).await;
    call(address, "GET", &format!("{instance}/records?timeout=0"), "").await;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let assignments = call(address, "GET", &format!("{instance}/assignments"), "").await;
        if assignments.contains("\"partition\"") {
            return;
        }
        assert!(Instant::now() < deadline, "{assignments}");
        call(address, "GET", &format!("{instance}/records?timeout=200"), "").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_instance_takes_at_most_what_documents_state() {
    if std::env::var(BROKER_DIR).is_ok() {
        return;
    }
    let (broker, bootstrap) = BrokerProcess::start();
    let admin = Admin::new(Cluster::connect(ClusterConfig::new(&bootstrap)).await.unwrap());
    admin.create_topic(&NewTopic::new("t", 1, 1)).await.unwrap();
    let gateway = settings::open(settings::settings(&bootstrap));
    let address = gateway.address();
    // The first instance has the gateway make what all instances share.
    use_instance(address, 0).await;
    let before = heap::allocated_bytes();
    for number in 1..=INSTANCES {
        use_instance(address, number).await;
    }
    let each = heap::allocated_bytes().saturating_sub(before) / INSTANCES;
    assert!(each <= INSTANCE_BYTES_MAX, "{each} bytes for an instance");
    println!("{each} bytes for an instance");
    gateway.stop().await;
    drop(broker);
}
