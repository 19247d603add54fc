//! What every test needs: a broker on a temporary directory, a connection that speaks in frames,
//! and batches to produce.
//!
//! Nothing here sleeps: whoever waits, waits for bytes, and gives up after [`PATIENCE`].

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use broker::{RunningBroker, StartError};
use configuration::BrokerConfig;
use model::{BatchHeader, ErrorCode, Timestamp, Uuid, batch::Batches, record::BatchBuilder};
use storage::disk::reserve;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::time::timeout;
use wire::create_topics::{CreatableTopic, CreatableTopicConfig};
use wire::fetch::{FetchPartition, FetchTopic, PartitionData};
use wire::produce::{PartitionProduceData, PartitionProduceResponse, TopicProduceData};
use wire::{ApiKey, Message, Reader, Request, Writer, frame};

/// How long anything may take on a machine that is busy with much else.
pub const PATIENCE: Duration = Duration::from_secs(40);
/// A version of Produce that names topics.
pub const PRODUCE: i16 = 9;
/// A version of Fetch that names topics.
pub const FETCH: i16 = 12;
/// For requests that wait: longer than any test.
pub const FOREVER_MS: i32 = 600_000;

/// Tests that measure the process, or bound what all of it may open, run alone; all others share.
static TURN: RwLock<()> = RwLock::const_new(());

/// Held while a test's broker runs.
#[allow(dead_code, reason = "held, not read")]
pub enum Turn {
    Shared(RwLockReadGuard<'static, ()>),
    Alone(Alone),
}

/// Nobody else's broker runs in this process. Whatever was bounded in it is unbounded before another's does.
#[allow(dead_code, reason = "held, not read")]
pub struct Alone(RwLockWriteGuard<'static, ()>);

impl Drop for Alone {
    fn drop(&mut self) {
        reserve::bound_files(usize::MAX);
    }
}

/// A broker and the directory that it owns.
pub struct Broker {
    running: RunningBroker,
    dir: TempDir,
    settings: Vec<(String, String)>,
    turn: Turn,
}

/// A broker that has stopped. The turn goes on, for what is started on its directory.
pub struct Stopped {
    pub dir: TempDir,
    pub settings: Vec<(String, String)>,
    #[allow(dead_code, reason = "held, not read")]
    turn: Turn,
}

/// A broker on `path`, in the turn of one that runs or has stopped.
pub async fn run(path: &Path, settings: &[(String, String)]) -> Result<RunningBroker, StartError> {
    let path = path.to_str().expect("a temporary directory has a plain name");
    let mut pairs = vec![
        ("log.dirs", path),
        ("listeners", "PLAINTEXT://127.0.0.1:0"),
        ("http.listener", ""),
        ("group.initial.rebalance.delay.ms", "0"),
        ("offsets.topic.num.partitions", "3"),
        // As long as anything may take: a group's record waits for a disk that others write to as well.
        ("offsets.commit.timeout.ms", "40000"),
    ];
    pairs.extend(settings.iter().map(|(key, value)| (key.as_str(), value.as_str())));
    broker::start(BrokerConfig::from_pairs(pairs).expect("the settings are valid")).await
}

impl Broker {
    /// A broker with these settings beside the usual ones.
    pub async fn start(settings: &[(&str, &str)]) -> Broker {
        Broker::start_in_turn(settings, Turn::Shared(TURN.read().await)).await
    }

    /// As [`Broker::start`], while no other test's broker runs in this process.
    pub async fn start_alone(settings: &[(&str, &str)]) -> Broker {
        Broker::start_in_turn(settings, Turn::Alone(Alone(TURN.write().await))).await
    }

    async fn start_in_turn(settings: &[(&str, &str)], turn: Turn) -> Broker {
        let dir = tempfile::tempdir().expect("there is room for a test");
        let settings: Vec<(String, String)> =
            settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let running = run(dir.path(), &settings).await.expect("the broker starts");
        Broker { running, dir, settings, turn }
    }

    /// A broker on a copy of what is on the disk right now: what a process killed now would find.
    pub async fn start_on_copy(&self) -> RunningCopy {
        let dir = tempfile::tempdir().unwrap();
        copy_directory(self.dir.path(), dir.path());
        let running = run(dir.path(), &self.settings).await.expect("a broker recovers");
        RunningCopy { running, dir }
    }

    /// What a second broker on the same directory meets.
    pub async fn start_second(&self) -> Result<RunningBroker, StartError> {
        run(self.dir.path(), &self.settings).await
    }

    /// Stops it cleanly and starts it again on its directory.
    pub async fn restart(self) -> Broker {
        let Broker { running, dir, settings, turn } = self;
        running.stop_within(PATIENCE).await;
        let running = run(dir.path(), &settings).await.expect("the broker starts again");
        Broker { running, dir, settings, turn }
    }

    /// Stops it cleanly. The second that a stop gives its connections may be over before they had their turn on a
    /// busy machine, so they have longer.
    pub async fn stop(self) {
        self.running.stop_within(PATIENCE).await;
    }

    /// Stops it cleanly; what it ran on and with is left.
    pub async fn stop_and_keep(self) -> Stopped {
        let Broker { running, dir, settings, turn } = self;
        running.stop_within(PATIENCE).await;
        Stopped { dir, settings, turn }
    }

    pub fn address(&self) -> SocketAddr {
        self.running.listeners()[0]
    }

    /// The value of a metric. The broker has `http.listener=127.0.0.1:0`.
    pub async fn metric(&self, name: &str) -> f64 {
        let address = self.running.http().expect("the broker has an HTTP listener");
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no metric {name}: {text}")).parse().unwrap()
    }

    /// Where it stores everything.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub async fn connect(&self) -> Conn {
        Conn::open(self.address()).await
    }

    /// Takes the connections that this process may have beyond the limits of a broker, whose limits are reached.
    pub async fn take_reserve(&self) -> Vec<Conn> {
        let mut conns = Vec::new();
        for _ in 0..4 {
            let mut conn = self.connect().await;
            conn.call(&wire::ApiVersionsRequest::default(), 0).await;
            conns.push(conn);
        }
        conns
    }

    /// A new connection is closed although its client sends a request. An open one would answer: it is closed too, when it
    /// has been idle for long enough.
    pub async fn assert_refuses(&self) {
        let mut conn = self.connect().await;
        let frame = frame_of(&wire::ApiVersionsRequest::default(), 0, 1);
        // The connection may be closed already.
        let _ =
            timeout(PATIENCE, conn.stream.write_all(&frame)).await.expect("the socket takes it");
        conn.assert_closed().await;
    }

    /// Proof of life: a new client is served.
    pub async fn assert_serves(&self) {
        let mut conn = self.connect().await;
        let answer = conn.call(&wire::ApiVersionsRequest::default(), 0).await;
        assert_eq!(answer.error(), ErrorCode::None);
    }
}

/// A broker on a copy of another's directory.
pub struct RunningCopy {
    running: RunningBroker,
    #[allow(dead_code, reason = "removed when dropped")]
    dir: TempDir,
}

impl RunningCopy {
    pub async fn connect(&self) -> Conn {
        Conn::open(self.running.listeners()[0]).await
    }

    pub async fn stop(self) {
        self.running.stop().await;
    }
}

/// The broker goes on meanwhile: small files are replaced now and then, and those aside that replaced them are gone.
fn copy_directory(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir(&target).unwrap();
            copy_directory(&entry.path(), &target);
            continue;
        }
        match std::fs::copy(entry.path(), target) {
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => {}
            copied => drop(copied.unwrap()),
        }
    }
}

/// A client's connection, frame by frame.
pub struct Conn {
    pub stream: TcpStream,
    next_correlation: i32,
}

impl Conn {
    pub async fn open(address: SocketAddr) -> Conn {
        let stream = timeout(PATIENCE, TcpStream::connect(address)).await.unwrap().unwrap();
        stream.set_nodelay(true).unwrap();
        Conn { stream, next_correlation: 1 }
    }

    /// A connection of another client address than that of all other tests, with a small buffer for answers.
    pub async fn open_from(source: IpAddr, address: SocketAddr) -> Conn {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(16 << 10).unwrap();
        socket.bind((source, 0).into()).unwrap();
        let stream = timeout(PATIENCE, socket.connect(address)).await.unwrap().unwrap();
        stream.set_nodelay(true).unwrap();
        Conn { stream, next_correlation: 1 }
    }

    pub async fn write(&mut self, bytes: &[u8]) {
        timeout(PATIENCE, self.stream.write_all(bytes)).await.unwrap().unwrap();
    }

    /// Sends a request and returns its correlation id.
    pub async fn send<R: Request>(&mut self, request: &R, version: i16) -> i32 {
        let correlation = self.next_correlation;
        self.next_correlation += 1;
        self.write(&frame_of(request, version, correlation)).await;
        correlation
    }

    /// The next frame without its length; `None` when the broker has closed the connection.
    pub async fn receive_frame(&mut self) -> Option<Vec<u8>> {
        let mut length = [0; 4];
        if timeout(PATIENCE, self.stream.read_exact(&mut length)).await.expect("an answer").is_err()
        {
            return None;
        }
        let mut body = vec![0; i32::from_be_bytes(length).try_into().unwrap()];
        timeout(PATIENCE, self.stream.read_exact(&mut body)).await.expect("all of it").unwrap();
        Some(body)
    }

    /// As [`Conn::receive_frame`], for as long as it takes.
    pub async fn receive_frame_or_wait(&mut self) -> Option<Vec<u8>> {
        let length = self.stream.read_i32().await.ok()?;
        let mut body = vec![0; length.try_into().unwrap()];
        self.stream.read_exact(&mut body).await.ok()?;
        Some(body)
    }

    /// The next answer, which must be the one to `correlation`.
    pub async fn receive<R: Request>(&mut self, version: i16, correlation: i32) -> R::Response {
        let bytes = self.receive_frame().await.expect("the connection is open");
        let (found, answer) = read_answer::<R>(&bytes, version);
        assert_eq!(found, correlation, "answers come in the order of the requests");
        answer
    }

    pub async fn call<R: Request>(&mut self, request: &R, version: i16) -> R::Response {
        let correlation = self.send(request, version).await;
        self.receive::<R>(version, correlation).await
    }

    /// Waits until the broker closes the connection, with no answer before that.
    pub async fn assert_closed(&mut self) {
        assert_eq!(self.receive_frame().await, None, "closed without an answer");
    }

    /// Creates a topic of one partition and returns its id.
    pub async fn create_topic(&mut self, name: &str, configs: &[(&str, &str)]) -> Uuid {
        self.create_topic_of(name, 1, configs).await
    }

    pub async fn create_topic_of(
        &mut self,
        name: &str,
        partitions: i32,
        configs: &[(&str, &str)],
    ) -> Uuid {
        let config = |(name, value): &(&str, &str)| CreatableTopicConfig {
            name: (*name).to_owned(),
            value: Some((*value).to_owned()),
        };
        let topic = CreatableTopic {
            name: name.to_owned(),
            num_partitions: partitions,
            replication_factor: 1,
            configs: configs.iter().map(config).collect(),
            ..Default::default()
        };
        let request = wire::CreateTopicsRequest {
            topics: vec![topic],
            timeout_ms: 30_000,
            ..Default::default()
        };
        let answer = self.call(&request, 7).await;
        assert_eq!(answer.topics[0].error(), ErrorCode::None, "{answer:?}");
        answer.topics[0].topic_id
    }

    /// Produces one batch to partition 0 with acks=all.
    pub async fn produce(&mut self, topic: &str, batch: Vec<u8>) -> PartitionProduceResponse {
        let mut answer = self.call(&produce_request(topic, -1, batch), PRODUCE).await;
        answer.responses.remove(0).partition_responses.remove(0)
    }

    /// Produces one batch that must be accepted; returns its base offset.
    pub async fn append(&mut self, topic: &str, batch: Vec<u8>) -> i64 {
        let answer = self.produce(topic, batch).await;
        assert_eq!(answer.error(), ErrorCode::None, "{answer:?}");
        answer.base_offset
    }

    /// What there is in partition 0 from `offset` on, without waiting.
    pub async fn fetch(&mut self, topic: &str, offset: i64) -> PartitionData {
        self.fetch_at_most(topic, offset, 50 << 20).await
    }

    pub async fn fetch_at_most(&mut self, topic: &str, offset: i64, bytes: i32) -> PartitionData {
        let mut request = fetch_request(topic, offset);
        request.topics[0].partitions[0].partition_max_bytes = bytes;
        let mut answer = self.call(&request, FETCH).await;
        assert_eq!(answer.error(), ErrorCode::None);
        answer.responses.remove(0).partitions.remove(0)
    }

    /// The offset after the last committed record of partition 0.
    pub async fn end_offset(&mut self, topic: &str) -> i64 {
        self.fetch(topic, 0).await.high_watermark
    }
}

/// A whole frame, its length in front.
pub fn frame_of<R: Request>(request: &R, version: i16, correlation: i32) -> Vec<u8> {
    let mut writer = Writer::new();
    frame::write_request(&mut writer, request, version, correlation, Some("test")).unwrap();
    writer.into_bytes()
}

/// The correlation id and the message of an answer, which must be nothing but that.
pub fn read_answer<R: Request>(bytes: &[u8], version: i16) -> (i32, R::Response) {
    let mut reader = Reader::new(bytes);
    let correlation = frame::read_response_head(&mut reader, R::API_KEY, version).unwrap();
    let answer = R::Response::decode(&mut reader, version)
        .unwrap_or_else(|error| panic!("{} {version}: {error}", R::API_KEY));
    reader.finish().unwrap_or_else(|error| panic!("{} {version}: {error}", R::API_KEY));
    (correlation, answer)
}

pub fn produce_request(topic: &str, acks: i16, batch: Vec<u8>) -> wire::ProduceRequest {
    wire::ProduceRequest {
        acks,
        timeout_ms: 30_000,
        topic_data: vec![TopicProduceData {
            name: topic.to_owned(),
            partition_data: vec![PartitionProduceData { index: 0, records: Some(batch.into()) }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// A fetch of partition 0 without a session that does not wait.
pub fn fetch_request(topic: &str, offset: i64) -> wire::FetchRequest {
    wire::FetchRequest {
        max_bytes: 50 << 20,
        session_epoch: -1,
        topics: vec![FetchTopic {
            topic: topic.to_owned(),
            partitions: vec![fetch_partition(0, offset)],
            ..Default::default()
        }],
        ..Default::default()
    }
}

pub fn fetch_partition(partition: i32, offset: i64) -> FetchPartition {
    FetchPartition {
        partition,
        fetch_offset: offset,
        partition_max_bytes: 50 << 20,
        ..Default::default()
    }
}

pub fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

/// A batch with a record for each value, keyed `key`.
pub fn batch(values: &[&str]) -> Vec<u8> {
    builder(values).finish()
}

pub fn builder(values: &[&str]) -> BatchBuilder {
    let mut builder = BatchBuilder::new();
    for value in values {
        builder.add(Timestamp(now_ms()), Some(b"key"), Some(value.as_bytes()));
    }
    builder
}

/// A batch with a record at each of these times.
pub fn timed(timestamps_ms: &[i64]) -> BatchBuilder {
    let mut builder = BatchBuilder::new();
    for timestamp in timestamps_ms {
        builder.add(Timestamp(*timestamp), Some(b"key"), Some(b"value"));
    }
    builder
}

/// The batch with its records compressed.
pub fn compressed(builder: BatchBuilder, codec: model::Compression) -> Vec<u8> {
    let mut out = Vec::new();
    compression::compress(codec, None, builder.records(), &mut out);
    builder.finish_compressed(codec, &out)
}

/// The headers of the batches that were fetched; all must be whole.
pub fn headers(fetched: &PartitionData) -> Vec<BatchHeader> {
    let bytes = fetched.records.clone().unwrap_or_default();
    Batches::new(&bytes).map(|found| found.expect("whole batches").0).collect()
}

/// The values of the records that were fetched, with their offsets.
pub fn values(fetched: &PartitionData) -> Vec<(i64, String)> {
    let bytes = fetched.records.clone().unwrap_or_default();
    let mut all = Vec::new();
    for found in Batches::new(&bytes) {
        let (header, batch) = found.expect("whole batches");
        BatchHeader::decode_checked(batch).expect("the checksum holds");
        let mut buffer = Vec::new();
        let records = compression::records::read(&header, batch, 64 << 20, &mut buffer).unwrap();
        for record in records {
            let record = record.unwrap();
            let value = String::from_utf8(record.value.unwrap().to_vec()).unwrap();
            all.push((header.base_offset.0 + i64::from(record.offset_delta), value));
        }
    }
    all
}

/// The APIs that are served, whatever the version.
pub fn is_served(api: ApiKey) -> bool {
    broker::advertised().iter().any(|advertised| advertised.api == api)
}
