//! A producer against a broker that the test plays and that keeps what it takes, as a real one does: a
//! topic has an id and a largest batch, and a producer's sequences must go on.

use client::{Cluster, ClusterConfig, Producer, ProducerConfig, Record};
use model::batch::BatchHeader;
use model::{Compression, ErrorCode, Offset, Uuid};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use wire::api_versions::ApiVersion;
use wire::frame::{RequestHead, write_response};
use wire::metadata::{MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic};
use wire::produce::{BatchIndexAndErrorMessage, PartitionProduceResponse, TopicProduceResponse};
use wire::{
    ApiKey, ApiVersionsResponse, InitProducerIdResponse, MetadataRequest, MetadataResponse,
    ProduceRequest, ProduceResponse, Reader, Writer,
};

/// The one topic, of one partition.
#[derive(Default)]
struct Topic {
    id: u8,
    bytes_max: usize,
    values: Vec<String>,
    /// The producer that wrote last, and the sequence that is due from it.
    next_sequence: Option<(i64, i32)>,
    /// The first sequence that was taken.
    first_sequence: Option<i32>,
    /// How a batch is refused that has values which begin with "bad".
    on_bad: Naming,
}

/// Which records are named where some are refused for themselves.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Naming {
    /// Those.
    #[default]
    All,
    /// None.
    None,
    /// The first of the batch, whatever it is.
    First,
}

/// The id of the next producer that asks for one.
static PRODUCERS: AtomicI64 = AtomicI64::new(7);

type Shared = Arc<Mutex<Topic>>;

impl Topic {
    fn id(&self) -> Uuid {
        Uuid([self.id; 16])
    }

    /// Takes a batch: where its first record is, or why it is refused.
    fn append(&mut self, bytes: &[u8]) -> Result<i64, ErrorCode> {
        let header = BatchHeader::decode_checked(bytes).map_err(|_| ErrorCode::CorruptMessage)?;
        if bytes.len() > self.bytes_max {
            return Err(ErrorCode::MessageTooLarge);
        }
        let producer = header.producer_id.0;
        // Any sequence is taken from a producer that is not known, or that counts none.
        let known = self.next_sequence.filter(|(id, _)| *id == producer && *id >= 0);
        if known.is_some_and(|(_, due)| due != header.base_sequence.0) {
            return Err(ErrorCode::OutOfOrderSequenceNumber);
        }
        let mut plain = Vec::new();
        let records = compression::records::read(&header, bytes, 1 << 24, &mut plain).unwrap();
        let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
        let values: Vec<String> =
            records.map(|record| text(record.unwrap().value.unwrap_or_default())).collect();
        if values.iter().any(|value| value.starts_with("bad")) {
            return Err(ErrorCode::InvalidRecord);
        }
        self.first_sequence.get_or_insert(header.base_sequence.0);
        let next = header.base_sequence.plus(header.record_count).0;
        self.next_sequence = Some((producer, next));
        let base = self.values.len() as i64;
        self.values.extend(values);
        Ok(base)
    }

    /// The records of a batch that are named where it is refused for some of them.
    fn named(&self, bytes: &[u8]) -> Vec<BatchIndexAndErrorMessage> {
        let header = BatchHeader::decode_checked(bytes).unwrap();
        let mut plain = Vec::new();
        let records = compression::records::read(&header, bytes, 1 << 24, &mut plain).unwrap();
        let is_named = |at: i32, value: &[u8]| match self.on_bad {
            Naming::All => value.starts_with(b"bad"),
            Naming::None => false,
            Naming::First => at == 0,
        };
        let named = (0..).zip(records).filter(|(at, record)| {
            is_named(*at, record.as_ref().unwrap().value.unwrap_or_default())
        });
        let error = |batch_index| BatchIndexAndErrorMessage { batch_index, ..Default::default() };
        named.map(|(at, _)| error(at)).collect()
    }
}

async fn played(bytes_max: usize) -> (Cluster, Shared) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let topic = Arc::new(Mutex::new(Topic { id: 1, bytes_max, ..Topic::default() }));
    let shared = topic.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, i32::from(port), shared.clone()));
        }
    });
    let mut config = ClusterConfig::new(&format!("127.0.0.1:{port}"));
    config.retry_backoff = Duration::from_millis(1);
    (Cluster::connect(config).await.unwrap(), topic)
}

async fn serve(mut stream: TcpStream, port: i32, topic: Shared) {
    while let Ok(length) = stream.read_u32().await {
        let mut frame = vec![0; length as usize];
        stream.read_exact(&mut frame).await.unwrap();
        let head = RequestHead::parse(&frame).unwrap();
        let (api, version, id) = (head.api_key, head.version, head.correlation_id);
        let mut reader = Reader::new(&frame[head.body_from..]);
        let mut writer = Writer::new();
        match api {
            ApiKey::ApiVersions => write_response(&mut writer, &versions(), api, version, id),
            ApiKey::Metadata => {
                let request = MetadataRequest::decode(&mut reader, version).unwrap();
                write_response(&mut writer, &metadata(&request, port, &topic), api, version, id)
            }
            ApiKey::InitProducerId => {
                let producer_id = PRODUCERS.fetch_add(1, Ordering::Relaxed);
                let response = InitProducerIdResponse { producer_id, ..Default::default() };
                write_response(&mut writer, &response, api, version, id)
            }
            ApiKey::Produce => {
                let request = ProduceRequest::decode(&mut reader, version).unwrap();
                write_response(&mut writer, &produce(&request, &topic), api, version, id)
            }
            other => panic!("{other} was asked"),
        }
        .unwrap();
        stream.write_all(writer.bytes()).await.unwrap();
    }
}

fn versions() -> ApiVersionsResponse {
    let row = |api: ApiKey, max_version| ApiVersion {
        api_key: api.code(),
        min_version: api.min_version(),
        max_version,
    };
    let newest = row(ApiKey::ApiVersions, ApiKey::ApiVersions.max_version());
    let api_keys = vec![
        newest,
        row(ApiKey::Metadata, 12),
        row(ApiKey::Produce, 13),
        row(ApiKey::InitProducerId, 4),
    ];
    ApiVersionsResponse { api_keys, ..Default::default() }
}

fn metadata(request: &MetadataRequest, port: i32, topic: &Shared) -> MetadataResponse {
    let partition = MetadataResponsePartition { leader_id: 1, ..Default::default() };
    let topics = request.topics.iter().flatten().map(|asked| MetadataResponseTopic {
        name: asked.name.clone(),
        topic_id: topic.lock().unwrap().id(),
        partitions: vec![partition.clone()],
        ..Default::default()
    });
    let host = "127.0.0.1".to_owned();
    MetadataResponse {
        brokers: vec![MetadataResponseBroker { node_id: 1, host, port, ..Default::default() }],
        controller_id: 1,
        topics: topics.collect(),
        ..Default::default()
    }
}

fn produce(request: &ProduceRequest, topic: &Shared) -> ProduceResponse {
    let mut topic = topic.lock().unwrap();
    let responses = request.topic_data.iter().map(|asked| {
        let partition = &asked.partition_data[0];
        let taken = match asked.topic_id == topic.id() {
            false => Err(ErrorCode::UnknownTopicId),
            true => topic.append(partition.records.as_deref().unwrap_or_default()),
        };
        let answer = PartitionProduceResponse {
            error_code: taken.err().unwrap_or(ErrorCode::None).code(),
            base_offset: taken.unwrap_or(-1),
            log_append_time_ms: -1,
            record_errors: match taken {
                Err(ErrorCode::InvalidRecord) => {
                    topic.named(partition.records.as_deref().unwrap_or_default())
                }
                _ => Vec::new(),
            },
            ..Default::default()
        };
        TopicProduceResponse {
            topic_id: asked.topic_id,
            partition_responses: vec![answer],
            ..Default::default()
        }
    });
    ProduceResponse { responses: responses.collect(), ..Default::default() }
}

fn config(compression: Compression) -> ProducerConfig {
    ProducerConfig {
        compression,
        linger: Duration::ZERO,
        batch_bytes: 4_000,
        retry_backoff: Duration::from_millis(1),
        delivery_timeout: Duration::from_secs(40),
        ..ProducerConfig::default()
    }
}

#[tokio::test]
async fn batches_that_are_too_large_are_split_and_arrive_once_and_in_order() {
    for compression in [Compression::None, Compression::Zstd] {
        let (cluster, topic) = played(500).await;
        let producer = Producer::new(cluster, config(compression)).await.unwrap();
        let mut deliveries = Vec::new();
        // Values that do not compress.
        let values: Vec<_> = (0..500).map(|i| format!("{i} {:032x}", fastrand::u128(..))).collect();
        for value in &values {
            let record = Record::keyed(b"key", value.as_bytes());
            deliveries.push(producer.send("t", &record).await.unwrap());
        }
        producer.flush().await.unwrap();
        for (i, delivery) in deliveries.iter().enumerate() {
            assert!(delivery.is_done());
            assert_eq!(delivery.wait().await.unwrap(), Some(Offset(i as i64)));
        }
        assert_eq!(topic.lock().unwrap().values, values);
        assert_eq!(producer.free_buffer_bytes(), config(compression).buffer_bytes);
    }
}

#[tokio::test]
async fn one_record_that_is_too_large_fails_and_the_others_of_its_batch_do_not() {
    let (cluster, topic) = played(500).await;
    let producer = Producer::new(cluster, config(Compression::None)).await.unwrap();
    let large = "x".repeat(1_000);
    let mut deliveries = Vec::new();
    for value in ["a", "b", large.as_str(), "c", "d"] {
        deliveries.push(producer.send("t", &Record::value(value.as_bytes())).await.unwrap());
    }
    let error = producer.flush().await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::MessageTooLarge));
    for (i, delivery) in deliveries.iter().enumerate() {
        assert_eq!(delivery.wait().await.is_ok(), i != 2, "record {i}");
    }
    assert_eq!(topic.lock().unwrap().values, ["a", "b", "c", "d"]);
}

#[tokio::test]
async fn records_that_are_refused_for_themselves_take_no_others_with_them() {
    for (naming, compression, idempotence) in [
        (Naming::All, Compression::None, true),
        (Naming::All, Compression::Zstd, true),
        (Naming::All, Compression::None, false),
        (Naming::None, Compression::None, true),
        (Naming::First, Compression::None, true),
    ] {
        let (cluster, topic) = played(1 << 20).await;
        topic.lock().unwrap().on_bad = naming;
        let ended = Arc::new(Mutex::new(Vec::new()));
        let reports = ended.clone();
        let config = ProducerConfig {
            idempotence,
            on_batch: Some(Arc::new(move |report| {
                assert_eq!(report.tags.len(), report.record_count as usize);
                let tags = report.tags.iter().map(|tag| (*tag, report.result.is_ok()));
                reports.lock().unwrap().extend(tags);
            })),
            ..config(compression)
        };
        let producer = Producer::new(cluster, config.clone()).await.unwrap();
        let mut deliveries = Vec::new();
        for tag in 0..500 {
            let value = if tag % 7 == 0 { format!("bad {tag}") } else { tag.to_string() };
            let record = Record { tag, ..Record::value(value.as_bytes()) };
            deliveries.push((tag, value.clone(), producer.send("t", &record).await.unwrap()));
        }
        let error = producer.flush().await.unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::InvalidRecord));
        let values = topic.lock().unwrap().values.clone();
        let mut offset = 0;
        for (_, value, delivery) in &deliveries {
            let is_lost = value.starts_with("bad") || naming != Naming::All;
            assert!(delivery.is_done());
            match delivery.fate().await {
                Ok(at) => {
                    assert_eq!(at, Some(Offset(offset)), "{value}");
                    assert_eq!(&values[offset as usize], value);
                    offset += 1;
                }
                Err(lost) => assert!(is_lost && !lost.maybe_written, "{value}: {lost:?}"),
            }
        }
        assert_eq!(values.len() as i64, offset);
        let mut ended = ended.lock().unwrap().clone();
        ended.sort_unstable();
        let mut expected = Vec::new();
        for (tag, _, delivery) in &deliveries {
            expected.push((*tag, delivery.wait().await.is_ok()));
        }
        assert_eq!(ended, expected, "each record has ended once");
        assert_eq!(producer.free_buffer_bytes(), config.buffer_bytes);
    }
}

#[tokio::test]
async fn a_topic_that_was_made_again_is_written_again_from_the_first_sequence() {
    let (cluster, topic) = played(1 << 20).await;
    let producer = Producer::new(cluster, config(Compression::None)).await.unwrap();
    for i in 0..100 {
        producer.send("t", &Record::value(format!("{i}").as_bytes())).await.unwrap();
    }
    producer.flush().await.unwrap();
    assert_eq!(topic.lock().unwrap().values.len(), 100);
    *topic.lock().unwrap() = Topic { id: 2, bytes_max: 1 << 20, ..Topic::default() };
    let values: Vec<_> = (0..1_000).map(|i| format!("again {i}")).collect();
    for value in &values {
        producer.send("t", &Record::value(value.as_bytes())).await.unwrap();
    }
    producer.flush().await.unwrap();
    let topic = topic.lock().unwrap();
    assert_eq!(topic.values, values);
    assert_eq!(topic.first_sequence, Some(0));
}
