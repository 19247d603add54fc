//! A client's connection, frame by frame, over a plain socket.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant, SystemTime};

use model::record::BatchBuilder;
use model::{ErrorCode, Timestamp};
use wire::create_topics::CreatableTopic;
use wire::fetch::{FetchPartition, FetchTopic};
use wire::produce::{PartitionProduceData, TopicProduceData};
use wire::{Message, Reader, Request, Writer, frame};

/// How long an honest client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// An honest client's connection: everything that fails on it fails the test.
pub struct Conn {
    stream: TcpStream,
}

/// A whole frame.
pub fn frame_of<R: Request>(request: &R, version: i16) -> Vec<u8> {
    let mut writer = Writer::new();
    frame::write_request(&mut writer, request, version, 1, Some("client")).unwrap();
    writer.into_bytes()
}

impl Conn {
    pub fn open(address: SocketAddr) -> Conn {
        let stream = TcpStream::connect(address).expect("the broker accepts");
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Conn { stream }
    }

    pub fn call<R: Request>(&mut self, request: &R, version: i16) -> R::Response {
        self.stream.write_all(&frame_of(request, version)).expect("the connection is open");
        self.receive::<R>(version)
    }

    /// Sends a request at so many bytes a second.
    pub fn send_slowly<R: Request>(&mut self, request: &R, version: i16, bytes_a_second: u64) {
        let (began, bytes) = (Instant::now(), frame_of(request, version));
        for (at, part) in bytes.chunks(4096).enumerate() {
            let due = Duration::from_micros(at as u64 * 4096 * 1_000_000 / bytes_a_second);
            std::thread::sleep(due.saturating_sub(began.elapsed()));
            self.stream.write_all(part).expect("a slow client is not closed");
        }
    }

    pub fn receive<R: Request>(&mut self, version: i16) -> R::Response {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).expect("an answer");
        let mut bytes = vec![0; i32::from_be_bytes(length) as usize];
        self.stream.read_exact(&mut bytes).expect("all of the answer");
        let mut reader = Reader::new(&bytes);
        frame::read_response_head(&mut reader, R::API_KEY, version).unwrap();
        R::Response::decode(&mut reader, version).expect("an answer that makes sense")
    }

    pub fn create_topic(&mut self, name: &str) {
        self.create_partitions(name, 1);
    }

    pub fn create_partitions(&mut self, name: &str, num_partitions: i32) {
        let topic = CreatableTopic {
            name: name.to_owned(),
            num_partitions,
            replication_factor: 1,
            ..Default::default()
        };
        let request = wire::CreateTopicsRequest {
            topics: vec![topic],
            timeout_ms: 30_000,
            ..Default::default()
        };
        assert_eq!(self.call(&request, 5).topics[0].error(), ErrorCode::None, "{name}");
    }

    /// Has the topic of groups made.
    pub fn find_coordinator(&mut self, group: &str) {
        let request = wire::FindCoordinatorRequest {
            coordinator_keys: vec![group.to_owned()],
            ..Default::default()
        };
        self.call(&request, 4);
    }

    pub fn delete_topic(&mut self, name: &str) {
        let request = wire::DeleteTopicsRequest {
            topic_names: vec![name.to_owned()],
            timeout_ms: 30_000,
            ..Default::default()
        };
        assert_eq!(self.call(&request, 5).responses[0].error(), ErrorCode::None, "{name}");
    }
}

/// A batch of so many records of so many bytes.
pub fn batch(records: usize, bytes: usize) -> Vec<u8> {
    builder(records, bytes).finish()
}

pub fn builder(records: usize, bytes: usize) -> BatchBuilder {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let mut builder = BatchBuilder::new();
    for _ in 0..records {
        builder.add(Timestamp(now.as_millis() as i64), None, Some(&vec![b'x'; bytes]));
    }
    builder
}

pub fn produce(topic: &str, batch: Vec<u8>) -> wire::ProduceRequest {
    produce_to(topic, 0, batch)
}

pub fn produce_to(topic: &str, index: i32, batch: Vec<u8>) -> wire::ProduceRequest {
    wire::ProduceRequest {
        acks: -1,
        timeout_ms: 60_000,
        topic_data: vec![TopicProduceData {
            name: topic.to_owned(),
            partition_data: vec![PartitionProduceData { index, records: Some(batch.into()) }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

pub fn fetch_from(topic: &str, offset: i64, wait_ms: i32) -> wire::FetchRequest {
    fetch_of(topic, 0, offset, wait_ms)
}

pub fn fetch_of(topic: &str, index: i32, offset: i64, wait_ms: i32) -> wire::FetchRequest {
    let partition = FetchPartition {
        partition: index,
        fetch_offset: offset,
        partition_max_bytes: 1 << 20,
        ..Default::default()
    };
    wire::FetchRequest {
        max_wait_ms: wait_ms,
        min_bytes: 1,
        max_bytes: 1 << 20,
        session_epoch: -1,
        topics: vec![FetchTopic {
            topic: topic.to_owned(),
            partitions: vec![partition],
            ..Default::default()
        }],
        ..Default::default()
    }
}
