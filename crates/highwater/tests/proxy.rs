//! The proxy of Kafka's protocol as people run it, in front of a broker that is killed and comes back elsewhere, and
//! before clients that are hostile, too many, or still waiting when it stops.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use client::admin::NewTopic;
use client::{
    Admin, Cluster, ClusterConfig, Consumer, ConsumerConfig, OffsetReset, Producer, ProducerConfig,
    Record,
};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, Signal, kill_process};
use wire::fetch::{FetchPartition, FetchTopic};
use wire::frame::{read_response_head, write_request};
use wire::{
    ApiKey, ApiVersionsRequest, FetchRequest, MetadataRequest, MetadataResponse, Request, Writer,
};

const HIGHWATER: &str = env!("CARGO_BIN_EXE_highwater");
/// How long anything may take on a machine that is busy with much else.
const LIMIT: Duration = Duration::from_secs(120);

/// A process of the program, which ends with the test.
struct Process {
    child: Child,
    /// `host:port` of where it listens.
    address: String,
    /// What it says behind that.
    later: mpsc::Receiver<String>,
}

impl Process {
    /// Starts it, and waits until it says where it listens.
    fn start(arguments: &[&str], says: &str) -> Process {
        let mut command = Command::new(HIGHWATER);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let found = |line: std::io::Result<String>| Some(line.ok()?.strip_prefix(says)?.to_owned());
        let address = lines.find_map(found).expect("it listens");
        // The rest is read too, so that nothing waits for a reader.
        let (say, later) = mpsc::channel();
        thread::spawn(move || lines.map_while(Result::ok).for_each(|line| drop(say.send(line))));
        Process { child, address, later }
    }

    fn broker(data: &Path, port: u16) -> Process {
        let listeners = format!("listeners=PLAINTEXT://127.0.0.1:{port}");
        let mut arguments =
            vec!["--log-level", "error", "start", "--data-dir", data.to_str().unwrap()];
        let delay = "group.initial.rebalance.delay.ms=50";
        for setting in [&*listeners, "http.listener=", "gateway.listener=", delay] {
            arguments.extend(["--set", setting]);
        }
        Process::start(&arguments, "broker: listening on ")
    }

    fn proxy(brokers: &str, more: &[&str]) -> Process {
        let arguments = ["--log-level", "warn", "proxy", "-b", brokers, "--listen", "127.0.0.1:0"];
        Process::start(&[&arguments, more].concat(), "proxy: ")
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for an orderly end; what it reported.
    fn end(mut self) -> String {
        let mut reported = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut reported).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{reported}");
        reported
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that only a broker of ours is given: it is bound all the time, and the broker may be bound to it as well.
struct Port {
    number: u16,
    _bound: OwnedFd,
}

impl Port {
    fn take() -> Port {
        let flags = SocketFlags::CLOEXEC;
        let bound = net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
        net::sockopt::set_socket_reuseaddr(&bound, true).unwrap();
        net::bind(&bound, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
        let at = SocketAddrV4::try_from(net::getsockname(&bound).unwrap()).unwrap();
        Port { number: at.port(), _bound: bound }
    }
}

/// A client that writes bytes and reads frames.
struct Raw(TcpStream);

impl Raw {
    fn connect(address: &str) -> Raw {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        Raw(stream)
    }

    /// The next frame without its length; `None` if the connection is closed. One that hangs fails the test.
    fn frame(&mut self) -> Option<Vec<u8>> {
        let mut length = [0; 4];
        self.fill(&mut length)?;
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        self.fill(&mut frame)?;
        Some(frame)
    }

    fn fill(&mut self, place: &mut [u8]) -> Option<()> {
        let Err(error) = self.0.read_exact(place) else { return Some(()) };
        assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "neither an answer nor an end");
        None
    }

    /// Asks which versions there are; whether there was an answer.
    fn is_served(&mut self) -> bool {
        // A connection that is closed already may refuse what is written.
        let _ = self.0.write_all(&asked(&ApiVersionsRequest::default(), 0, 1));
        self.frame().is_some()
    }
}

fn asked<R: Request>(request: &R, version: i16, id: i32) -> Vec<u8> {
    let mut writer = Writer::new();
    write_request(&mut writer, request, version, id, Some("raw")).unwrap();
    writer.into_bytes()
}

/// Where the brokers are, as an address says.
fn brokers(address: &str) -> Vec<String> {
    let mut client = Raw::connect(address);
    client.0.write_all(&asked(&MetadataRequest::default(), 5, 7)).unwrap();
    let frame = client.frame().unwrap();
    let mut reader = wire::Reader::new(&frame);
    assert_eq!(read_response_head(&mut reader, ApiKey::Metadata, 5).unwrap(), 7);
    let answer = MetadataResponse::decode(&mut reader, 5).unwrap();
    answer.brokers.iter().map(|broker| format!("{}:{}", broker.host, broker.port)).collect()
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(work)
}

async fn create(cluster: &Cluster, topic: &str) {
    Admin::new(cluster.clone()).create_topic(&NewTopic::new(topic, 1, 1)).await.unwrap();
}

/// Sends numbers as values, and waits until all are acknowledged.
async fn send(producer: &Producer, topic: &str, numbers: std::ops::Range<u32>) {
    let mut deliveries = Vec::new();
    for number in numbers {
        let value = number.to_string();
        deliveries.push(producer.send(topic, &Record::value(value.as_bytes())).await.unwrap());
    }
    producer.flush().await.unwrap();
    for delivery in deliveries {
        delivery.wait().await.unwrap();
    }
}

/// Polls until there are so many values in all.
async fn read(consumer: &mut Consumer, values: &mut Vec<u32>, count: usize) {
    let (deadline, mut buffer) = (Instant::now() + LIMIT, Vec::new());
    while values.len() < count {
        assert!(Instant::now() < deadline, "{} of {count} came", values.len());
        // Until the broker is back there are errors; the next poll tries again.
        for fetched in consumer.poll(Duration::from_millis(200)).await.unwrap_or_default() {
            let value = |value: Option<&[u8]>| std::str::from_utf8(value.unwrap()).unwrap().parse();
            fetched
                .for_each(&mut buffer, |record| values.push(value(record.value).unwrap()))
                .unwrap();
        }
    }
}

#[test]
fn a_group_goes_on_through_the_proxy_when_the_broker_comes_back_at_another_port() {
    let folder = tempfile::tempdir().unwrap();
    let ports = [Port::take(), Port::take()];
    let addresses = ports.each_ref().map(|port| format!("127.0.0.1:{}", port.number));
    let mut broker = Process::broker(folder.path(), ports[0].number);
    let proxy = Process::proxy(&addresses.join(","), &[]);
    let before = brokers(&proxy.address);
    assert!(!before.contains(&broker.address), "{before:?}");
    block_on(async {
        let cluster = Cluster::connect(ClusterConfig::new(&proxy.address)).await.unwrap();
        create(&cluster, "t").await;
        let producer = Producer::new(cluster.clone(), ProducerConfig::default()).await.unwrap();
        let config =
            ConsumerConfig { offset_reset: OffsetReset::Earliest, ..ConsumerConfig::group("g") };
        let mut consumer = Consumer::new(cluster.clone(), config);
        consumer.subscribe(&["t"]).unwrap();
        let mut values = Vec::new();
        send(&producer, "t", 0..500).await;
        read(&mut consumer, &mut values, 500).await;
        consumer.commit().await.unwrap();

        broker.kill();
        broker = Process::broker(folder.path(), ports[1].number);
        send(&producer, "t", 500..1000).await;
        read(&mut consumer, &mut values, 1000).await;
        assert_eq!(values, (0..1000).collect::<Vec<u32>>());
        consumer.close().await.unwrap();
    });
    assert_eq!(brokers(&broker.address), addresses[1..], "it is elsewhere");
    assert_eq!(brokers(&proxy.address), before, "which no client sees");
    proxy.signal(Signal::TERM);
    proxy.end();
}

#[test]
fn a_broker_that_is_gone_is_a_closed_connection() {
    let folder = tempfile::tempdir().unwrap();
    let mut broker = Process::broker(folder.path(), 0);
    let proxy = Process::proxy(&broker.address, &[]);
    let node = brokers(&proxy.address).remove(0);
    let mut open = Raw::connect(&node);
    assert!(open.is_served());
    broker.kill();
    assert!(open.frame().is_none());
    for address in [&node, &proxy.address] {
        assert!(!Raw::connect(address).is_served(), "{address}");
    }
    proxy.signal(Signal::INT);
    assert!(proxy.end().contains("no broker can be reached"));
}

#[test]
fn frames_that_are_none_cost_their_connection_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Process::broker(folder.path(), 0);
    let proxy = Process::proxy(&broker.address, &[]);
    let mut good = Raw::connect(&proxy.address);
    assert!(good.is_served());
    let whole = asked(&MetadataRequest::default(), 5, 1);
    let hostile: [&[u8]; 8] = [
        &[0xff; 64],
        &[0, 0, 0, 0],
        &[0, 0, 0, 7, 0, 3, 0, 5, 0, 0, 0],
        b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n",
        // 2 GiB of Metadata, and of a question about versions that the proxy would answer.
        &[0x7f, 0xff, 0xff, 0xff, 0, 3, 0, 5, 0, 0, 0, 1],
        &[0x7f, 0xff, 0xff, 0xff, 0, 18, 0, 99, 0, 0, 0, 1],
        // Metadata in a version whose answer could not be rewritten.
        &[0, 0, 0, 10, 0, 3, 0, 99, 0, 0, 0, 1, 0, 0],
        &whole[..whole.len() - 1],
    ];
    for bytes in hostile {
        for node in [proxy.address.clone(), brokers(&proxy.address).remove(0)] {
            let mut client = Raw::connect(&node);
            client.0.write_all(bytes).unwrap();
            let _ = client.0.shutdown(Shutdown::Write);
            assert!(client.frame().is_none(), "{bytes:?}");
        }
        assert!(good.is_served(), "{bytes:?}");
    }
    proxy.signal(Signal::TERM);
    proxy.end();
}

#[test]
fn connections_above_the_limit_are_closed_and_reported_and_those_below_served() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Process::broker(folder.path(), 0);
    let proxy = Process::proxy(&broker.address, &["--connections-max", "2"]);
    let mut kept = [Raw::connect(&proxy.address), Raw::connect(&proxy.address)];
    assert!(kept.iter_mut().all(Raw::is_served));
    for _ in 0..50 {
        assert!(!Raw::connect(&proxy.address).is_served());
    }
    let [mut stays, goes] = kept;
    assert!(stays.is_served());
    drop(goes);
    let deadline = Instant::now() + LIMIT;
    while !Raw::connect(&proxy.address).is_served() {
        assert!(Instant::now() < deadline, "the room was not given back");
    }
    drop(stays);
    proxy.signal(Signal::TERM);
    let reported = proxy.end();
    let reports = reported.matches("a connection is refused").count();
    assert!((1..50).contains(&reports) && reported.contains("--connections-max"), "{reported}");
}

#[test]
fn what_went_through_is_shown_by_api_and_direction() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Process::broker(folder.path(), 0);
    let proxy = Process::proxy(&broker.address, &["--metrics-listener", "127.0.0.1:0"]);
    let at =
        proxy.later.iter().find_map(|line| Some(line.strip_prefix("http: http://")?.to_owned()));
    let at = at.unwrap().split('/').next().unwrap().to_owned();
    let page = |path: &str| {
        let mut stream = TcpStream::connect(&at).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut read = String::new();
        stream.read_to_string(&mut read).unwrap();
        read
    };
    block_on(async {
        let cluster = Cluster::connect(ClusterConfig::new(&proxy.address)).await.unwrap();
        create(&cluster, "t").await;
        let producer = Producer::new(cluster.clone(), ProducerConfig::default()).await.unwrap();
        send(&producer, "t", 0..100).await;
    });
    let text = page("/metrics");
    for row in [
        "messages_total{api_key=\"CreateTopics\",direction=\"request\"} 1",
        "messages_total{api_key=\"CreateTopics\",direction=\"response\"} 1",
        "bytes_total{api_key=\"Produce\",direction=\"response\"} ",
        "errors_total{side=\"client\"} 0",
    ] {
        assert!(text.contains(&format!("\nhighwater_proxy_{row}")), "{row}: {text}");
    }
    assert!(text.contains("\nprocess_resident_memory_bytes "), "{text}");
    assert!(page("/healthz").starts_with("HTTP/1.1 200"));
    proxy.signal(Signal::TERM);
    proxy.end();
}

#[test]
fn a_stop_finishes_what_was_asked_before() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Process::broker(folder.path(), 0);
    let proxy = Process::proxy(&broker.address, &[]);
    block_on(async {
        let cluster = Cluster::connect(ClusterConfig::new(&proxy.address)).await.unwrap();
        create(&cluster, "t").await;
    });
    let partition = FetchPartition { partition_max_bytes: 1000, ..FetchPartition::default() };
    let topic =
        FetchTopic { topic: "t".to_owned(), partitions: vec![partition], ..FetchTopic::default() };
    let waits = FetchRequest {
        max_wait_ms: 3000,
        min_bytes: 1,
        max_bytes: 1000,
        topics: vec![topic],
        ..FetchRequest::default()
    };
    let mut client = Raw::connect(&brokers(&proxy.address).remove(0));
    // In one piece: with the first answer the second request has come to the proxy, too.
    let both = [asked(&ApiVersionsRequest::default(), 0, 1), asked(&waits, 12, 2)].concat();
    client.0.write_all(&both).unwrap();
    assert_eq!(client.frame().unwrap()[..4], [0, 0, 0, 1]);
    let mut idle = Raw::connect(&proxy.address);
    assert!(idle.is_served());
    let began = Instant::now();
    proxy.signal(Signal::TERM);
    assert!(idle.frame().is_none());
    assert!(TcpStream::connect(&proxy.address).is_err(), "no connection is taken any more");
    assert!(began.elapsed() < Duration::from_secs(3), "the broker still waits for records");
    assert_eq!(client.frame().expect("the answer to the fetch")[..4], [0, 0, 0, 2]);
    assert!(client.frame().is_none());
    proxy.end();
}

#[test]
fn what_cannot_be_started_says_why() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    for (arguments, why) in
        [(vec!["--listen", &at], "cannot listen at"), (vec!["--listen", ":0"], "--advertised-host")]
    {
        let mut command = Command::new(HIGHWATER);
        command.args(["proxy", "-b", "127.0.0.1:1"]).args(arguments).stdin(Stdio::null());
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(why), "{said}");
    }
}
