//! A producer against a broker that the test plays: what it takes, what it gives up, what it tells.

use client::producer::{BatchReport, Fed, Partitioner, TopicProducer};
use client::{Cluster, ClusterConfig, Producer, ProducerConfig, Record};
use model::ErrorCode;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use wire::api_versions::ApiVersion;
use wire::frame::{RequestHead, write_response};
use wire::metadata::{MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic};
use wire::produce::{PartitionProduceResponse, TopicProduceResponse};
use wire::{
    ApiKey, ApiVersionsResponse, InitProducerIdResponse, MetadataRequest, MetadataResponse,
    ProduceRequest, ProduceResponse, Reader, Writer,
};

/// What the broker says to the n-th produce request; `None`: nothing, ever.
pub type Answer = Arc<dyn Fn(usize) -> Option<ErrorCode> + Send + Sync>;

/// For a number of partitions: there is no topic.
pub const NO_TOPIC: i32 = -1;

/// A cluster of one broker whose topics have so many partitions.
pub async fn played(partitions: i32, answer: Answer) -> Cluster {
    let partitions = Arc::new(AtomicI32::new(partitions));
    Cluster::connect(play(partitions, answer).await).await.unwrap()
}

/// How such a cluster is reached, whose topics may get more partitions.
async fn play(partitions: Arc<AtomicI32>, answer: Answer) -> ClusterConfig {
    play_as(None, partitions, answer).await
}

/// The same, of a broker that says that it is at another port.
pub async fn play_as(
    told_port: Option<i32>,
    partitions: Arc<AtomicI32>,
    answer: Answer,
) -> ClusterConfig {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let told_port = told_port.unwrap_or(i32::from(port));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, told_port, partitions.clone(), answer.clone()));
        }
    });
    let mut config = ClusterConfig::new(&format!("127.0.0.1:{port}"));
    config.retry_backoff = Duration::from_millis(1);
    config
}

async fn serve(mut stream: TcpStream, port: i32, partitions: Arc<AtomicI32>, answer: Answer) {
    let mut produced = 0;
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
                let response = metadata(&request, port, partitions.load(Ordering::Relaxed));
                write_response(&mut writer, &response, api, version, id)
            }
            ApiKey::Produce => {
                let request = ProduceRequest::decode(&mut reader, version).unwrap();
                produced += 1;
                if request.acks == 0 {
                    // Reads no more, and keeps the connection.
                    std::future::pending::<()>().await;
                }
                let Some(code) = answer(produced - 1) else { continue };
                write_response(&mut writer, &response(&request, code), api, version, id)
            }
            ApiKey::InitProducerId => {
                let response = InitProducerIdResponse { producer_id: 7, ..Default::default() };
                write_response(&mut writer, &response, api, version, id)
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
        row(ApiKey::Metadata, 9),
        row(ApiKey::Produce, 9),
        row(ApiKey::InitProducerId, 4),
    ];
    ApiVersionsResponse { api_keys, ..Default::default() }
}

pub fn metadata(request: &MetadataRequest, port: i32, partitions: i32) -> MetadataResponse {
    let partition = |partition_index| MetadataResponsePartition {
        partition_index,
        leader_id: 1,
        ..Default::default()
    };
    let host = "127.0.0.1".to_owned();
    MetadataResponse {
        brokers: vec![MetadataResponseBroker { node_id: 1, host, port, ..Default::default() }],
        controller_id: 1,
        topics: (request.topics.iter().flatten())
            .map(|topic| MetadataResponseTopic {
                name: topic.name.clone(),
                error_code: match partitions {
                    NO_TOPIC => ErrorCode::UnknownTopicOrPartition.code(),
                    _ => 0,
                },
                partitions: (0..partitions).map(partition).collect(),
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    }
}

pub fn response(request: &ProduceRequest, code: ErrorCode) -> ProduceResponse {
    let answered =
        |index| PartitionProduceResponse { index, error_code: code.code(), ..Default::default() };
    let topics = request.topic_data.iter().map(|topic| TopicProduceResponse {
        name: topic.name.clone(),
        partition_responses: topic.partition_data.iter().map(|p| answered(p.index)).collect(),
        ..Default::default()
    });
    ProduceResponse { responses: topics.collect(), ..Default::default() }
}

/// Kafka's defaults but for idempotence, and nothing lingers out.
pub fn config() -> ProducerConfig {
    ProducerConfig {
        idempotence: false,
        linger: Duration::from_secs(600),
        retry_backoff: Duration::from_millis(1),
        ..ProducerConfig::default()
    }
}

/// How many records of so many bytes a producer takes from which nobody takes any.
async fn capacity(topic: &TopicProducer, record_bytes: usize) -> usize {
    let value = vec![b'x'; record_bytes];
    let mut feed = topic.feed();
    // All at one time: a record that is later by 64 ms or more takes a byte more.
    let timestamp = Some(model::Timestamp(0));
    let record = Record { partition: Some(0), timestamp, ..Record::value(&value) };
    let mut taken = 0;
    while feed.offer(&record).unwrap() != Fed::NoMemory {
        taken += 1;
    }
    taken
}

#[tokio::test]
async fn memory_holds_as_many_records_as_in_kafka() {
    let cluster = played(1, Arc::new(|_| None)).await;
    // 32 MiB are 2,048 batches of 16 KiB, each with 61 bytes of header; a record that no batch
    // holds takes what it needs itself.
    for (record_bytes, expected) in [
        // Nine bytes around each of the first 64 records, ten around the others.
        (100, 2048 * (64 + (16_323 - 64 * 109) / 110)),
        (1_000, 2048 * (16_323 / 1_009)),
        (5_000, 2048 * 3),
        (10_000, 2048),
        // 61 of header, 21 of estimate, 1 of no key, 3 of length, 1 of no headers.
        (30_000, (32 << 20) / 30_087),
    ] {
        let producer = Producer::new(cluster.clone(), config()).await.unwrap();
        let topic = producer.topic("t").await.unwrap();
        assert_eq!(capacity(&topic, record_bytes).await, expected, "{record_bytes}");
        let published = if record_bytes < 16_000 {
            2048.0 * (16_323.0 / (record_bytes as f64 + 11.0)).floor()
        } else {
            (32 << 20) as f64 / (record_bytes as f64 + 72.0)
        };
        assert!((expected as f64 / published - 1.0).abs() < 0.01, "{record_bytes}: {published}");
    }
}

#[tokio::test]
async fn memory_comes_back_when_batches_end() {
    let cluster = played(1, Arc::new(|_| Some(ErrorCode::InvalidRecord))).await;
    let config = ProducerConfig { buffer_bytes: 64 * 1024, ..config() };
    let producer = Producer::new(cluster, config).await.unwrap();
    let topic = producer.topic("t").await.unwrap();
    assert_eq!(capacity(&topic, 10_000).await, 4);
    assert_eq!(producer.free_buffer_bytes(), 0);
    assert!(topic.try_send(&Record::value(&[0; 10_000])).unwrap().is_none());
    producer.flush().await.unwrap_err();
    assert_eq!(producer.free_buffer_bytes(), 64 * 1024);
    assert!(topic.try_send(&Record::value(&[0; 10_000])).unwrap().is_some());
    assert_eq!(producer.metrics().failed_records, 4);
}

/// What was told of a batch.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    partition: i32,
    tags: Vec<u64>,
    first_record: u64,
    attempts: u32,
    is_sent: bool,
    is_ok: bool,
}

/// A configuration that notes what is told.
fn noted(config: ProducerConfig) -> (ProducerConfig, Arc<Mutex<Vec<Told>>>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let list = told.clone();
    let on_batch = move |batch: &BatchReport<'_>| {
        list.lock().unwrap().push(Told {
            partition: batch.partition,
            tags: batch.tags.to_vec(),
            first_record: batch.first_record,
            attempts: batch.attempts,
            is_sent: batch.sent.is_some(),
            is_ok: batch.result.is_ok(),
        });
    };
    (ProducerConfig { on_batch: Some(Arc::new(on_batch)), ..config }, told)
}

#[tokio::test]
async fn a_batch_is_sent_again_as_often_as_allowed() {
    for retries in [0, 1, 4] {
        let cluster = played(1, Arc::new(|_| Some(ErrorCode::NotEnoughReplicas))).await;
        let (config, told) = noted(ProducerConfig { retries, ..config() });
        let producer = Producer::new(cluster, config).await.unwrap();
        let delivery = producer.send("t", &Record::value(b"v")).await.unwrap();
        let error = producer.flush().await.unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::NotEnoughReplicas));
        assert!(delivery.is_done());
        assert_eq!(told.lock().unwrap()[0].attempts, retries + 1);
        assert_eq!(producer.metrics().batches_sent_again, u64::from(retries));
    }
}

#[tokio::test]
async fn without_linger_a_batch_gathers_until_its_turn_comes() {
    let cluster = played(2, Arc::new(|_| Some(ErrorCode::None))).await;
    let (config, told) = noted(ProducerConfig { linger: Duration::ZERO, ..config() });
    let producer = Producer::new(cluster, config).await.unwrap();
    let topic = producer.topic("t").await.unwrap();
    let mut feed = topic.feed();
    // The sender has no turn in between.
    for partition in [0, 1] {
        assert!(!feed.has_room(partition, 100));
        for tag in 0..10 {
            let record = Record { partition: Some(partition), tag, ..Record::value(b"v") };
            let expected = if tag == 0 { Fed::Closed } else { Fed::Taken };
            assert_eq!(feed.offer(&record).unwrap(), expected);
        }
        assert!(feed.has_room(partition, 100) && !feed.has_room(partition, 20_000));
    }
    producer.flush().await.unwrap();
    let told = told.lock().unwrap();
    assert_eq!(told.iter().map(|batch| batch.tags.len()).collect::<Vec<_>>(), [10, 10]);
}

#[tokio::test]
async fn without_linger_what_has_no_turn_in_time_is_given_up() {
    let cluster = played(1, Arc::new(|_| None)).await;
    let config = ProducerConfig {
        linger: Duration::ZERO,
        in_flight_max: 1,
        delivery_timeout: Duration::from_millis(200),
        ..config()
    };
    let producer = Producer::new(cluster, config).await.unwrap();
    let topic = producer.topic("t").await.unwrap();
    // The first is never answered, so that the second waits. One that had no turn in its time either, as on a machine
    // that stands still while the connection is made, is followed by another.
    let mut first = topic.send(&Record::value(b"1")).await.unwrap();
    while producer.metrics().requests == 0 {
        if first.is_done() {
            first = topic.send(&Record::value(b"1")).await.unwrap();
        }
        tokio::task::yield_now().await;
    }
    let second = topic.send(&Record::value(b"2")).await.unwrap();
    assert!(matches!(second.wait().await.unwrap_err(), client::ClientError::TimedOut { .. }));
}

#[tokio::test]
async fn idempotence_without_retries_is_refused() {
    let cluster = played(1, Arc::new(|_| None)).await;
    let config = ProducerConfig { idempotence: true, retries: 0, ..config() };
    assert!(matches!(Producer::new(cluster, config).await, Err(client::ClientError::Usage(_))));
}

#[tokio::test]
async fn tags_come_back_batch_by_batch() {
    let answers = |n| Some(if n == 0 { ErrorCode::NotEnoughReplicas } else { ErrorCode::None });
    let cluster = played(2, Arc::new(answers)).await;
    let (config, told) = noted(config());
    let producer = Producer::new(cluster, config).await.unwrap();
    let topic = producer.topic("t").await.unwrap();
    for tags in [0..3, 3..5] {
        for tag in tags {
            let record = Record { partition: Some(1), tag: tag + 100, ..Record::value(b"v") };
            topic.send(&record).await.unwrap();
        }
        producer.flush().await.unwrap();
    }
    let batch = |tags: &[u64], first_record, attempts| Told {
        partition: 1,
        tags: tags.to_vec(),
        first_record,
        attempts,
        is_sent: true,
        is_ok: true,
    };
    let expected = [batch(&[100, 101, 102], 0, 2), batch(&[103, 104], 3, 1)];
    assert_eq!(*told.lock().unwrap(), expected);
    let metrics = producer.metrics();
    assert_eq!((metrics.records, metrics.batches, metrics.requests), (5, 2, 3));
    assert_eq!((metrics.records_sent, metrics.in_flight_mean()), (8, 1.0));
}

#[tokio::test]
async fn without_acknowledgements_a_broker_that_reads_no_more_fills_the_memory() {
    let cluster = played(1, Arc::new(|_| None)).await;
    let config = ProducerConfig {
        acks: 0,
        buffer_bytes: 1 << 20,
        block_max: Duration::from_millis(300),
        ..config()
    };
    let producer = Producer::new(cluster, config).await.unwrap();
    let topic = producer.topic("t").await.unwrap();
    // Sockets take some megabytes, but not a gigabyte.
    for _ in 0..1 << 17 {
        match topic.send(&Record::value(&[0; 8_000])).await {
            Ok(_) => {}
            Err(error) => {
                assert!(matches!(error, client::ClientError::TimedOut { .. }), "{error}");
                return;
            }
        }
    }
    panic!("a gigabyte was taken that nobody reads");
}

#[tokio::test]
async fn records_without_a_key_are_dealt_out_in_turn_if_so_configured() {
    let cluster = played(3, Arc::new(|_| Some(ErrorCode::None))).await;
    let config = ProducerConfig { partitioner: Partitioner::RoundRobin, ..config() };
    let producer = Producer::new(cluster, config).await.unwrap();
    let topic = producer.topic("t").await.unwrap();
    let mut partitions = Vec::new();
    for _ in 0..6 {
        partitions.push(topic.send(&Record::value(b"v")).await.unwrap().partition());
    }
    assert_eq!(partitions[..3], partitions[3..]);
    partitions.sort();
    assert_eq!(partitions, [0, 0, 1, 1, 2, 2]);
    let keyed = topic.send(&Record::keyed(b"foobar", b"v")).await.unwrap();
    assert_eq!(keyed.partition(), model::partitioner::partition_of_key(b"foobar", 3));
    producer.flush().await.unwrap();
}

#[tokio::test]
async fn metadata_that_has_grown_old_is_asked_for_again() {
    let partitions = Arc::new(AtomicI32::new(1));
    let mut config = play(partitions.clone(), Arc::new(|_| None)).await;
    config.metadata_age_max = Duration::from_millis(20);
    let cluster = Cluster::connect(config).await.unwrap();
    let producer = Producer::new(cluster, self::config()).await.unwrap();
    let topic = producer.topic("t").await.unwrap();
    assert_eq!(topic.partition_count(), 1);
    // Nothing fails and nothing is sent: only its age tells.
    partitions.store(2, Ordering::Relaxed);
    let grown = async {
        while topic.partition_count() < 2 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(40), grown).await.expect("it was asked for again");
}

#[tokio::test]
async fn batches_that_compress_well_hold_more_records() {
    let cluster = played(1, Arc::new(|_| Some(ErrorCode::None))).await;
    let compression = model::Compression::Lz4;
    let (config, told) = noted(ProducerConfig { compression, ..config() });
    let producer = Producer::new(cluster, config).await.unwrap();
    let topic = producer.topic("t").await.unwrap();
    let timestamp = Some(model::Timestamp(0));
    for _ in 0..100_000 {
        topic.send(&Record { timestamp, ..Record::value(&[b'x'; 100]) }).await.unwrap();
    }
    producer.flush().await.unwrap();
    let told = told.lock().unwrap();
    let counts: Vec<_> = told.iter().map(|batch| batch.tags.len()).collect();
    // At first as if nothing compressed, with 5 % to spare: 110 bytes a record in 15,545.
    assert_eq!(counts[0], 141);
    assert!(counts[counts.len() - 2] > 3 * counts[0], "{counts:?}");
    assert_eq!(counts.iter().sum::<usize>(), 100_000);
}
