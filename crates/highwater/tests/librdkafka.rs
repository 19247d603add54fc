//! librdkafka, through the `rdkafka` crate, against the program as it is started by users.
//!
//! Each test starts a broker of its own on a free port; with `HIGHWATER_TEST_BOOTSTRAP=HOST:PORT` they
//! run against that cluster instead (Apache Kafka must pass them too), but for those that kill the
//! broker. The wide suite of clients is `cargo xt clients`; here is what every change is tested with.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, Headers, Message, OwnedHeaders, OwnedMessage};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};

/// How long anything may take on a machine that is busy with much else.
const LIMIT: Duration = Duration::from_secs(120);

/// A cluster: a broker of our own, or one somewhere.
struct Broker {
    bootstrap: String,
    process: Option<Child>,
    data: Option<tempfile::TempDir>,
    port: Option<Port>,
}

/// A port that nobody else is given while our broker does not listen there: it is bound all the time. The broker may
/// be bound to it as well, for both allow that.
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

impl Broker {
    fn start() -> Broker {
        if let Ok(bootstrap) = std::env::var("HIGHWATER_TEST_BOOTSTRAP") {
            return Broker { bootstrap, process: None, data: None, port: None };
        }
        Broker::of_our_own()
    }

    fn of_our_own() -> Broker {
        let (data, port) = (tempfile::tempdir().unwrap(), Port::take());
        let (process, bootstrap) = spawn(data.path(), port.number);
        Broker { bootstrap, process: Some(process), data: Some(data), port: Some(port) }
    }

    /// The same cluster, reached through a proxy of our own.
    fn behind_a_proxy(&self) -> Broker {
        let mut command = Command::new(env!("CARGO_BIN_EXE_highwater"));
        command.args(["proxy", "-b", &self.bootstrap, "--listen", "127.0.0.1:0"]);
        let (process, bootstrap) = started(command, "proxy: ");
        Broker { bootstrap, process: Some(process), data: None, port: None }
    }

    /// Kills the broker as `kill -9` does, and starts it again on its data and port.
    fn crash_and_restart(&mut self) {
        let mut process = self.process.take().expect("only a broker of our own is killed");
        process.kill().unwrap();
        process.wait().unwrap();
        let (data, port) = (self.data.as_ref().unwrap(), self.port.as_ref().unwrap());
        let (process, _) = spawn(data.path(), port.number);
        self.process = Some(process);
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.bootstrap);
        config.set("reconnect.backoff.max.ms", "200");
        config
    }

    /// A new topic that nobody else uses.
    async fn topic(&self, word: &str, partitions: i32) -> String {
        let topic = name(word);
        let new = NewTopic::new(&topic, partitions, TopicReplication::Fixed(1));
        let made = self.admin().create_topics([&new], &AdminOptions::new()).await.unwrap();
        made[0].as_ref().unwrap();
        topic
    }

    fn admin(&self) -> AdminClient<DefaultClientContext> {
        self.config().create().unwrap()
    }

    fn producer(&self, settings: &[(&str, &str)]) -> FutureProducer {
        let mut config = self.config();
        for (key, value) in settings {
            config.set(*key, *value);
        }
        config.create().unwrap()
    }

    fn consumer(&self, group: &str) -> BaseConsumer {
        let mut config = self.config();
        config.set("group.id", group).set("auto.offset.reset", "earliest");
        config.set("enable.auto.commit", "false").set("check.crcs", "true");
        // A member that the machine holds up for a while stays a member.
        config.set("session.timeout.ms", "45000").set("heartbeat.interval.ms", "300");
        config.create().unwrap()
    }

    /// The first `count` records of partition 0.
    fn read(&self, topic: &str, count: usize) -> Vec<OwnedMessage> {
        let consumer = self.consumer("reader");
        let mut from = TopicPartitionList::new();
        from.add_partition_offset(topic, 0, Offset::Beginning).unwrap();
        consumer.assign(&from).unwrap();
        poll(&consumer, count)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _gone = process.kill();
            let _reaped = process.wait();
        }
    }
}

/// Starts the program and waits for the line that says where it listens.
fn spawn(data: &std::path::Path, port: u16) -> (Child, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_highwater"));
    command.arg("start").arg("--data-dir").arg(data);
    let listeners = format!("listeners=PLAINTEXT://127.0.0.1:{port}");
    let others = ["http.listener=", "gateway.listener=", "group.initial.rebalance.delay.ms=50"];
    for setting in [&*listeners].into_iter().chain(others) {
        command.args(["--set", setting]);
    }
    started(command, "broker: listening on ")
}

/// Runs the command until it says where it listens.
fn started(mut command: Command, says: &str) -> (Child, String) {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut process = command.spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let address = lines.find_map(|line| Some(line.ok()?.strip_prefix(says)?.to_owned()));
    let address = address.expect("it ended before it listened");
    // The rest is read too, so that it never waits for a reader.
    std::thread::spawn(move || lines.count());
    (process, address)
}

fn name(word: &str) -> String {
    static NAMES: AtomicU32 = AtomicU32::new(0);
    let number = NAMES.fetch_add(1, Ordering::Relaxed);
    format!("{word}-{}-{number}", std::process::id())
}

fn poll(consumer: &BaseConsumer, count: usize) -> Vec<OwnedMessage> {
    let deadline = Instant::now() + LIMIT;
    let mut found = Vec::new();
    while found.len() < count {
        assert!(Instant::now() < deadline, "{} of {count} records came", found.len());
        if let Some(message) = consumer.poll(Duration::from_millis(100)) {
            found.push(message.unwrap().detach());
        }
    }
    found
}

/// Sends all values to partition 0 and waits until all are acknowledged; returns their offsets.
async fn send_all(producer: &FutureProducer, topic: &str, values: &[String]) -> Vec<i64> {
    let send = |value| {
        let record = FutureRecord::<str, str>::to(topic).payload(value).partition(0);
        producer.send_result(record).map_err(|(error, _)| error).unwrap()
    };
    let sent: Vec<_> = values.iter().map(|value| send(value)).collect();
    let mut offsets = Vec::new();
    for delivery in sent {
        offsets.push(delivery.await.unwrap().unwrap().offset);
    }
    offsets
}

/// The time now: records of long ago are deleted whenever the broker looks for what has served its time.
fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    since.as_millis() as i64
}

fn values(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("value {i}")).collect()
}

fn text(message: &OwnedMessage) -> &str {
    std::str::from_utf8(message.payload().unwrap()).unwrap()
}

fn texts(messages: &[OwnedMessage]) -> Vec<&str> {
    messages.iter().map(text).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_codec_comes_back_unchanged() {
    let broker = Broker::start();
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let topic = broker.topic(codec, 1).await;
        let producer = broker.producer(&[("compression.type", codec), ("linger.ms", "20")]);
        let values = values(1000);
        let offsets = send_all(&producer, &topic, &values).await;
        assert_eq!(offsets, (0..1000).collect::<Vec<i64>>(), "{codec}");
        assert_eq!(texts(&broker.read(&topic, 1000)), values, "{codec}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_headers_nulls_and_time_stamps_are_kept() {
    let broker = Broker::start();
    let topic = broker.topic("headers", 1).await;
    let producer = broker.producer(&[]);
    let now = now_ms();
    let header = |key, value| Header { key, value };
    let headers = OwnedHeaders::new()
        .insert(header("a", Some("1")))
        .insert(header("b", Some("")))
        .insert(header("a", Some("2")))
        .insert(Header::<&str> { key: "none", value: None });
    let full = FutureRecord::to(&topic).key("k").payload("v").headers(headers).timestamp(now);
    producer.send(full, LIMIT).await.unwrap();
    let tombstone = FutureRecord::<str, str>::to(&topic).key("k");
    producer.send(tombstone, LIMIT).await.unwrap();
    let empty = FutureRecord::to(&topic).key("").payload("");
    producer.send(empty, LIMIT).await.unwrap();

    let found = broker.read(&topic, 3);
    assert_eq!((found[0].key(), found[0].payload()), (Some(&b"k"[..]), Some(&b"v"[..])));
    assert_eq!(found[0].timestamp().to_millis(), Some(now));
    let headers: Vec<_> = found[0].headers().unwrap().iter().map(|h| (h.key, h.value)).collect();
    let wanted: Vec<(&str, Option<&[u8]>)> =
        vec![("a", Some(b"1")), ("b", Some(b"")), ("a", Some(b"2")), ("none", None)];
    assert_eq!(headers, wanted);
    assert_eq!((found[1].key(), found[1].payload()), (Some(&b"k"[..]), None));
    assert_eq!((found[2].key(), found[2].payload()), (Some(&b""[..]), Some(&b""[..])));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idempotent_producer_survives_crashes_without_loss_or_repetition() {
    let mut broker = Broker::of_our_own();
    let topic = broker.topic("crashes", 1).await;
    let producer = broker.producer(&[
        ("enable.idempotence", "true"),
        ("batch.num.messages", "50"),
        ("linger.ms", "1"),
    ]);
    let values = values(6000);
    for part in values.chunks(2000) {
        let sending = send_all(&producer, &topic, part);
        // The broker dies while the records are on their way.
        let crash = async {
            tokio::task::block_in_place(|| broker.crash_and_restart());
        };
        tokio::join!(sending, crash);
    }
    assert_eq!(texts(&broker.read(&topic, 6000)), values);
}

#[tokio::test(flavor = "multi_thread")]
async fn offsets_are_found_by_time() {
    let broker = Broker::start();
    let topic = broker.topic("times", 1).await;
    let producer = broker.producer(&[]);
    let start = now_ms() - 10_000;
    for i in 0..5 {
        let record = FutureRecord::<str, str>::to(&topic).payload("v").timestamp(start + i * 1000);
        producer.send(record, LIMIT).await.unwrap();
    }
    let consumer = broker.consumer("times");
    for (time, wanted) in [(0, Offset::Offset(0)), (1, Offset::Offset(1)), (4001, Offset::End)] {
        let mut asked = TopicPartitionList::new();
        asked.add_partition_offset(&topic, 0, Offset::Offset(start + time)).unwrap();
        let answer = consumer.offsets_for_times(asked, LIMIT).unwrap();
        assert_eq!(answer.elements()[0].offset(), wanted, "start + {time}");
    }
    assert_eq!(consumer.fetch_watermarks(&topic, 0, LIMIT).unwrap(), (0, 5));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_members_share_and_one_takes_over() {
    let broker = Broker::start();
    let topic = broker.topic("shared", 4).await;
    let group = name("group");
    let members = [broker.consumer(&group), broker.consumer(&group)];
    members.iter().for_each(|member| member.subscribe(&[&topic]).unwrap());
    wait_until(|| {
        members.iter().for_each(|member| drop(member.poll(Duration::from_millis(20))));
        let [first, second] = members.each_ref().map(owned);
        first.len() == 2 && second.len() == 2 && first.is_disjoint(&second)
    });
    let [stays, leaves] = members;
    drop(leaves);
    wait_until(|| {
        drop(stays.poll(Duration::from_millis(20)));
        owned(&stays).len() == 4
    });
}

fn owned(member: &BaseConsumer) -> HashSet<i32> {
    let assigned = member.assignment().unwrap();
    assigned.elements().iter().map(|element| element.partition()).collect()
}

fn wait_until(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !condition() {
        assert!(Instant::now() < deadline, "not in time");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_goes_on_at_what_it_committed_even_after_a_crash() {
    let mut broker = Broker::of_our_own();
    let topic = broker.topic("committed", 1).await;
    let group = name("group");
    send_all(&broker.producer(&[]), &topic, &values(10)).await;
    let first = broker.consumer(&group);
    first.subscribe(&[&topic]).unwrap();
    let read = poll(&first, 10);
    let mut upto = TopicPartitionList::new();
    upto.add_partition_offset(&topic, 0, Offset::Offset(7)).unwrap();
    first.commit(&upto, CommitMode::Sync).unwrap();
    assert_eq!(text(&read[7]), "value 7");
    drop(first);

    broker.crash_and_restart();
    let second = broker.consumer(&group);
    second.subscribe(&[&topic]).unwrap();
    assert_eq!(texts(&poll(&second, 3)), ["value 7", "value 8", "value 9"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_above_the_limit_is_refused_and_one_below_is_not() {
    let broker = Broker::start();
    let topic = broker.topic("large", 1).await;
    let producer = broker.producer(&[("message.max.bytes", "5000000")]);
    let large = "x".repeat(2_000_000);
    let record = FutureRecord::<str, str>::to(&topic).payload(&large);
    let (error, _) = producer.send(record, LIMIT).await.unwrap_err();
    assert_eq!(error, KafkaError::MessageProduction(RDKafkaErrorCode::MessageSizeTooLarge));
    let record = FutureRecord::<str, str>::to(&topic).payload(&large[..900_000]);
    producer.send(record, LIMIT).await.unwrap();
    assert_eq!(broker.read(&topic, 1)[0].payload().unwrap().len(), 900_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_are_made_described_and_deleted() {
    let broker = Broker::start();
    let topic = broker.topic("managed", 3).await;
    let (admin, options) = (broker.admin(), AdminOptions::new());
    let again = NewTopic::new(&topic, 3, TopicReplication::Fixed(1));
    let answer = admin.create_topics([&again], &options).await.unwrap();
    assert_eq!(answer[0].as_ref().unwrap_err().1, RDKafkaErrorCode::TopicAlreadyExists);
    let resource = ResourceSpecifier::Topic(&topic);
    let configs = admin.describe_configs([&resource], &options).await.unwrap();
    let retention = configs[0].as_ref().unwrap().entry_map()["retention.ms"].value.clone();
    assert_eq!(retention.as_deref(), Some("604800000"));
    admin.delete_topics(&[&topic], &options).await.unwrap()[0].as_ref().unwrap();
    let consumer = broker.consumer("looks");
    wait_until(|| {
        let metadata = consumer.fetch_metadata(None, LIMIT).unwrap();
        metadata.topics().iter().all(|found| found.name() != topic)
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_reads_through_a_proxy_what_was_sent_through_it() {
    let broker = Broker::start();
    let proxied = broker.behind_a_proxy();
    let topic = proxied.topic("proxied", 1).await;
    let producer = proxied.producer(&[("enable.idempotence", "true"), ("compression.type", "lz4")]);
    let values = values(2000);
    send_all(&producer, &topic, &values).await;
    let member = proxied.consumer(&name("group"));
    member.subscribe(&[&topic]).unwrap();
    assert_eq!(texts(&poll(&member, 2000)), values);
    member.commit_consumer_state(CommitMode::Sync).unwrap();
    let addresses = |of: &Broker| -> Vec<String> {
        let metadata = of.admin().inner().fetch_metadata(None, LIMIT).unwrap();
        let named = |broker: &rdkafka::metadata::MetadataBroker| {
            format!("{}:{}", broker.host(), broker.port())
        };
        metadata.brokers().iter().map(named).collect()
    };
    let (direct, through) = (addresses(&broker), addresses(&proxied));
    assert_eq!(direct.len(), through.len());
    assert!(through.iter().all(|address| !direct.contains(address)), "{through:?}");
}
