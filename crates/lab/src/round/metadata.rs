//! A storm of metadata requests: many connections that each ask again as soon as they are answered. Each answer is
//! looked at: a fast wrong one counts for nothing.
//!
//! A few threads ask, each on its share of the connections, so that no connection costs a thread. Not here: making
//! the topics and putting up the proxy (`stage`).

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::ops::Range;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use bytes::Bytes;
use client::connection::Reply;
use client::{Connection, ConnectionConfig};
use hdrhistogram::Histogram;
use perf::load::{LATENCY_MAX_US, Stop, histogram};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use wire::metadata::{MetadataRequestTopic, MetadataResponseTopic};
use wire::{ApiKey, MetadataRequest, MetadataResponse, Writer, frame};

use super::ground::Ground;
use super::measured::Measured;
use crate::admin::block_on;
use crate::meter::{Meter, Used, thread_cpu_s};

/// The newest version that is asked in, so that targets of different age are asked the same.
const VERSION_MAX: i16 = 12;
/// Threads that ask, at most: beyond these, brokers would be short of processors and not of requests.
const THREADS_MAX: usize = 4;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Where a request's frame has its number.
const NUMBER_IN_REQUEST: Range<usize> = 8..12;
/// Where an answer's frame, without its length, has what follows the number.
const BODY: usize = 4;

/// Runs the round.
pub fn run(ground: &Ground<'_>) -> Result<Measured> {
    let workload = ground.workload;
    ensure!(workload.seconds > 0.0, "a storm needs a time: nothing else ends it");
    let addresses: Vec<String> = ground.clients_at.split(',').map(str::to_owned).collect();
    let question = Arc::new(block_on(Question::of(ground, &addresses[0]))?);
    let connections = workload.connections.max(1) as usize;
    let (tally, used) = all_threads(ground, &question, &shares(&addresses, connections))?;
    ensure!(tally.answers > 0 || ground.stop.is_stopped(), "nothing was answered in time");
    Ok(tally.measured(&used, workload.seconds))
}

/// Which addresses each thread connects to: one entry a connection.
fn shares(addresses: &[String], connections: usize) -> Vec<Vec<String>> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let threads = (cores / 2).clamp(1, THREADS_MAX).min(connections);
    let mut shares = vec![Vec::new(); threads];
    for (number, address) in (0..connections).zip(addresses.iter().cycle()) {
        shares[number % threads].push(address.clone());
    }
    shares
}

/// When answers count.
#[derive(Debug, Clone, Copy)]
struct Window {
    from: Instant,
    until: Instant,
}

impl Window {
    fn seconds(&self) -> f64 {
        self.until.duration_since(self.from).as_secs_f64()
    }
}

/// What was answered within the window.
struct Tally {
    answers: u64,
    /// Lengths of the answers, in all.
    bytes: u64,
    /// Asking to answer, microseconds.
    latencies: Histogram<u64>,
    /// The busiest thread's CPU time by the window's.
    busiest_share: f64,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally { answers: 0, bytes: 0, latencies: histogram(), busiest_share: 0.0 }
    }
}

impl Tally {
    fn note(&mut self, took: Duration, answer: &Bytes) {
        self.answers += 1;
        self.bytes += (frame::LENGTH_BYTES + answer.len()) as u64;
        let took_us = (took.as_micros() as u64).clamp(1, LATENCY_MAX_US);
        self.latencies.record(took_us).expect("the time is within the bounds");
    }

    fn add(&mut self, other: &Tally) {
        self.answers += other.answers;
        self.bytes += other.bytes;
        self.latencies.add(&other.latencies).expect("the bounds are the same");
        self.busiest_share = self.busiest_share.max(other.busiest_share);
    }

    fn measured(&self, used: &Used, seconds: f64) -> Measured {
        let mut measured = Measured::default();
        measured.put("requests", self.answers as f64);
        measured.put("requests_per_s", self.answers as f64 / seconds);
        measured.put("answer_bytes", self.bytes as f64 / self.answers as f64);
        measured.put("client_busy_share", self.busiest_share);
        measured.put_latencies("", &self.latencies);
        measured.keep("response", &self.latencies);
        used.into_request_metrics(self.answers, &mut measured.metrics);
        measured
    }
}

/// Starts the threads, lets them begin at one moment when all are connected, and adds up what they got.
fn all_threads(
    ground: &Ground<'_>,
    question: &Arc<Question>,
    shares: &[Vec<String>],
) -> Result<(Tally, Used)> {
    let (gate, closed) = watch::channel(None);
    let (ready, connected) = mpsc::channel();
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for (number, share) in shares.iter().enumerate() {
            let (ready, closed) = (ready.clone(), closed.clone());
            let ask = move || one_thread(share, question, ready, closed, &ground.stop);
            let thread = thread::Builder::new().name(format!("storm-{number}"));
            threads.push(thread.spawn_scoped(scope, ask)?);
        }
        drop(ready);
        // Ends when each is connected or has failed.
        let all = connected.iter().count() == threads.len();
        let used = all.then(|| {
            let from = Instant::now() + Duration::from_secs_f64(ground.workload.warmup_seconds);
            let until = from + Duration::from_secs_f64(ground.workload.seconds);
            gate.send_replace(Some(Window { from, until }));
            meter(ground, Window { from, until })
        });
        // Whoever waits for a beginning that does not come gives up.
        drop(gate);
        let mut sum = Tally::default();
        for tally in threads.into_iter().map(join).collect::<Result<Vec<_>>>()? {
            sum.add(&tally);
        }
        Ok((sum, used.context("a thread of the storm did not begin")??))
    })
}

fn join(thread: ScopedJoinHandle<'_, Result<Tally>>) -> Result<Tally> {
    thread.join().unwrap_or_else(|_| Err(anyhow!("a thread of the storm panicked")))
}

/// What is used within the window.
fn meter(ground: &Ground<'_>, window: Window) -> Result<Used> {
    block_on(async {
        // Either way the wait is over.
        let until = async |at: Instant| {
            drop(tokio::time::timeout_at(at.into(), ground.stop.stopped()).await)
        };
        until(window.from).await;
        let meter = Meter::start(&ground.pids)?;
        until(window.until).await;
        meter.used()
    })
}

/// One thread: connects, says so, waits for the window, and asks until it is over.
fn one_thread(
    addresses: &[String],
    question: &Arc<Question>,
    ready: mpsc::Sender<()>,
    mut gate: watch::Receiver<Option<Window>>,
    stop: &Stop,
) -> Result<Tally> {
    block_on(async {
        let mut connections = Vec::new();
        for address in addresses {
            connections.push(connect(address).await?);
        }
        // Whoever counts these has gone only if all is over.
        let _ = ready.send(());
        drop(ready);
        let window = match gate.wait_for(Option::is_some).await {
            Ok(window) => window.expect("that is what was waited for"),
            // Another thread failed, and says why.
            Err(_) => return Ok(Tally::default()),
        };
        all_connections(connections, question, window, stop).await
    })
}

async fn connect(address: &str) -> Result<Connection> {
    let opened = Connection::open(address, &ConnectionConfig::default()).await;
    opened.with_context(|| format!("cannot connect to {address}"))
}

async fn all_connections(
    connections: Vec<Connection>,
    question: &Arc<Question>,
    window: Window,
    stop: &Stop,
) -> Result<Tally> {
    let tally = Arc::new(Mutex::new(Tally::default()));
    let mut asking = JoinSet::new();
    for connection in connections {
        let (question, stop, tally) = (question.clone(), stop.clone(), tally.clone());
        asking.spawn(
            async move { one_connection(&connection, &question, window, &stop, &tally).await },
        );
    }
    tokio::time::sleep_until(window.from.into()).await;
    let before_s = thread_cpu_s();
    while let Some(ended) = asking.join_next().await {
        ended.context("a connection's task panicked")??;
    }
    let mut tally = mem::take(&mut *tally.lock().expect("no code under this lock panics"));
    tally.busiest_share = (thread_cpu_s() - before_s) / window.seconds();
    Ok(tally)
}

/// Asks again and again until the window is over.
async fn one_connection(
    connection: &Connection,
    question: &Question,
    window: Window,
    stop: &Stop,
    tally: &Mutex<Tally>,
) -> Result<()> {
    // An answer that is the same to the byte as one that was right is right.
    let mut right = Vec::new();
    while !stop.is_stopped() {
        let asked = Instant::now();
        let answer = question.ask(connection).await?;
        let answered = Instant::now();
        if answer[BODY..] != right[..] {
            question.check(&connection.read(&answer, ApiKey::Metadata, question.version)?)?;
            right = answer[BODY..].to_vec();
        }
        if answered >= window.until {
            break;
        }
        if answered >= window.from {
            let mut tally = tally.lock().expect("no code under this lock panics");
            tally.note(answered - asked, &answer);
        }
    }
    Ok(())
}

/// What every connection asks, and what the answer must say.
#[derive(Debug)]
struct Question {
    version: i16,
    /// The request as it is sent, but for its number.
    frame: Vec<u8>,
    topics: BTreeSet<String>,
    /// Partitions of each.
    partitions: usize,
    /// What brokers must be called, `host:port` by id; `None` if that is theirs to say.
    addresses: Option<BTreeMap<i32, String>>,
}

impl Question {
    /// The round's, asked once at `address`: with that a proxy knows the brokers.
    async fn of(ground: &Ground<'_>, address: &str) -> Result<Question> {
        let connection = connect(address).await?;
        let version = connection.versions().newest_up_to(ApiKey::Metadata, VERSION_MAX);
        let version = version.context("it does not serve Metadata")?;
        let mut question = Question {
            version,
            frame: frame_of(&ground.topics, version, connection.client_id())?,
            topics: ground.topics.iter().cloned().collect(),
            partitions: ground.partitions as usize,
            addresses: None,
        };
        let answer = question.ask(&connection).await?;
        if let Some(proxy) = ground.proxy {
            let (host, _) = proxy.bootstrap().rsplit_once(':').context("an address has a port")?;
            let ports = proxy.node_ports().into_iter();
            question.addresses =
                Some(ports.map(|(id, port)| (id, format!("{host}:{port}"))).collect());
        }
        question.check(&connection.read(&answer, ApiKey::Metadata, version)?)?;
        Ok(question)
    }

    /// Asks once; the answer's frame without its length.
    async fn ask(&self, connection: &Connection) -> Result<Bytes> {
        let (sender, receiver) = oneshot::channel();
        // The receiver is gone if the storm ended in between.
        let reply: Reply = Box::new(move |answer| drop(sender.send(answer)));
        connection.send_pieces(PATIENCE, Some(reply), |number| {
            let mut frame = self.frame.clone();
            frame[NUMBER_IN_REQUEST].copy_from_slice(&number.to_be_bytes());
            Ok(vec![frame.into()])
        })?;
        Ok(receiver.await.context("the connection ended")??)
    }

    /// Fails if an answer is wrong, and says in what.
    fn check(&self, answer: &MetadataResponse) -> Result<()> {
        for broker in &answer.brokers {
            let told = format!("{}:{}", broker.host, broker.port);
            let wanted = self.addresses.as_ref().map(|all| all.get(&broker.node_id));
            ensure!(
                wanted.is_none_or(|wanted| wanted == Some(&told)),
                "broker {} is said to be at {told}, past the proxy",
                broker.node_id
            );
        }
        let names: BTreeSet<&str> =
            answer.topics.iter().filter_map(|t| t.name.as_deref()).collect();
        ensure!(
            answer.topics.len() == self.topics.len()
                && self.topics.iter().all(|t| names.contains(&**t)),
            "asked for {} topics, told of {}: {names:?}",
            self.topics.len(),
            answer.topics.len()
        );
        let brokers: BTreeSet<i32> = answer.brokers.iter().map(|broker| broker.node_id).collect();
        answer.topics.iter().try_for_each(|topic| self.check_topic(topic, &brokers))
    }

    fn check_topic(&self, topic: &MetadataResponseTopic, brokers: &BTreeSet<i32>) -> Result<()> {
        let name = topic.name.as_deref().unwrap_or_default();
        ensure!(topic.error().is_none(), "{name}: {}", topic.error());
        ensure!(
            topic.partitions.len() == self.partitions,
            "{name} is said to have {} of {} partitions",
            topic.partitions.len(),
            self.partitions
        );
        for partition in &topic.partitions {
            let (index, leader) = (partition.partition_index, partition.leader_id);
            ensure!(partition.error().is_none(), "{name}-{index}: {}", partition.error());
            ensure!(
                brokers.contains(&leader),
                "{name}-{index} is led by {leader}, which is no broker"
            );
        }
        Ok(())
    }
}

fn frame_of(topics: &[String], version: i16, client_id: &str) -> Result<Vec<u8>> {
    let topic =
        |name: &String| MetadataRequestTopic { name: Some(name.clone()), ..Default::default() };
    let request = MetadataRequest {
        topics: Some(topics.iter().map(topic).collect()),
        allow_auto_topic_creation: false,
        ..Default::default()
    };
    let mut writer = Writer::new();
    frame::write_request(&mut writer, &request, version, 0, Some(client_id))?;
    Ok(writer.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::metadata::{MetadataResponseBroker, MetadataResponsePartition};

    fn question(addresses: Option<&str>) -> Question {
        Question {
            version: VERSION_MAX,
            frame: Vec::new(),
            topics: BTreeSet::from(["a".to_owned(), "b".to_owned()]),
            partitions: 1,
            addresses: addresses.map(|address| BTreeMap::from([(7, address.to_owned())])),
        }
    }

    fn answer() -> MetadataResponse {
        let partition = MetadataResponsePartition { leader_id: 7, ..Default::default() };
        let topic = |name: &str| MetadataResponseTopic {
            name: Some(name.to_owned()),
            partitions: vec![partition.clone()],
            ..Default::default()
        };
        let broker = MetadataResponseBroker {
            node_id: 7,
            host: "broker".to_owned(),
            port: 9092,
            ..Default::default()
        };
        MetadataResponse {
            brokers: vec![broker],
            // In another order than they were asked for: that is the broker's choice.
            topics: vec![topic("b"), topic("a")],
            ..Default::default()
        }
    }

    fn fault(question: &Question, change: impl FnOnce(&mut MetadataResponse)) -> String {
        let mut answer = answer();
        change(&mut answer);
        question.check(&answer).map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn an_answer_is_right_if_it_says_all_that_was_asked() {
        let direct = question(None);
        assert_eq!(fault(&direct, |_| {}), "");
        assert!(fault(&direct, |a| a.topics.truncate(1)).contains("told of 1"));
        assert!(fault(&direct, |a| a.topics[0].name = Some("a".to_owned())).contains("told of 2"));
        assert!(fault(&direct, |a| a.topics[1].error_code = 3).starts_with("a: "));
        assert!(fault(&direct, |a| a.topics[0].partitions.clear()).contains("0 of 1"));
        assert!(fault(&direct, |a| a.topics[0].partitions[0].error_code = 5).starts_with("b-0: "));
        assert!(fault(&direct, |a| a.topics[0].partitions[0].leader_id = -1).contains("no broker"));
    }

    #[test]
    fn an_address_past_the_proxy_is_noticed() {
        assert_eq!(fault(&question(Some("broker:9092")), |_| {}), "");
        assert!(fault(&question(Some("proxy:9092")), |_| {}).contains("past the proxy"));
        let unknown = fault(&question(Some("broker:9092")), |a| a.brokers[0].node_id = 8);
        assert!(unknown.contains("past the proxy"), "{unknown}");
    }

    #[test]
    fn every_connection_is_some_threads() {
        let addresses = ["a:1".to_owned(), "b:2".to_owned()];
        for connections in [1, 2, 7, 100] {
            let shares = shares(&addresses, connections);
            assert!(shares.iter().all(|share| !share.is_empty()));
            let all: Vec<&String> = shares.iter().flatten().collect();
            assert_eq!(all.len(), connections);
            let of_first = all.iter().filter(|address| ***address == addresses[0]).count();
            assert_eq!(of_first, connections.div_ceil(2));
        }
    }
}
