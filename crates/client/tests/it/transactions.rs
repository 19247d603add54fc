//! Transactions: against a coordinator that the test plays, and against a cluster that offers them.

use crate::played::{metadata, response};
use crate::{PATIENCE, cluster, new_topic};
use client::{
    Admin, ClientError, Cluster, ClusterConfig, Consumer, ConsumerConfig, OffsetReset, Producer,
    ProducerConfig, Record,
};
use model::batch::Batches;
use model::{ErrorCode, TopicPartition};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use wire::add_partitions_to_txn::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnTopicResult,
};
use wire::api_versions::ApiVersion;
use wire::find_coordinator::Coordinator;
use wire::frame::{RequestHead, write_response};
use wire::{
    AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, ApiKey, ApiVersionsResponse,
    EndTxnRequest, EndTxnResponse, FindCoordinatorRequest, FindCoordinatorResponse,
    InitProducerIdRequest, InitProducerIdResponse, MetadataRequest, ProduceRequest, Reader, Writer,
};

/// What is answered to a request that was written down so.
type Answer = fn(request: &str, earlier: usize) -> ErrorCode;

/// A broker that says no where `answer` does, and writes down what it was asked.
#[derive(Clone)]
struct Played {
    port: i32,
    answer: Answer,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Played {
    async fn start(answer: Answer) -> (Played, Cluster) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let played = Played { port: i32::from(port), answer, asked: Arc::default() };
        let serving = played.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve(stream));
            }
        });
        let mut config = ClusterConfig::new(&format!("127.0.0.1:{port}"));
        config.retry_backoff = Duration::from_millis(1);
        (played, Cluster::connect(config).await.unwrap())
    }

    /// What was asked since the last time.
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }

    fn decide(&self, request: String) -> ErrorCode {
        let mut asked = self.asked.lock().unwrap();
        let earlier = asked.iter().filter(|before| **before == request).count();
        let code = (self.answer)(&request, earlier);
        asked.push(request);
        code
    }

    async fn serve(self, mut stream: TcpStream) {
        while let Ok(length) = stream.read_u32().await {
            let mut frame = vec![0; length as usize];
            stream.read_exact(&mut frame).await.unwrap();
            stream.write_all(&self.respond(&frame)).await.unwrap();
        }
    }

    fn respond(&self, frame: &[u8]) -> Vec<u8> {
        let head = RequestHead::parse(frame).unwrap();
        let (api, version, id) = (head.api_key, head.version, head.correlation_id);
        let mut reader = Reader::new(&frame[head.body_from..]);
        let (r, mut writer) = (&mut reader, Writer::new());
        let w = &mut writer;
        match api {
            ApiKey::ApiVersions => write_response(w, &versions(), api, version, id),
            ApiKey::Metadata => {
                let request = MetadataRequest::decode(r, version).unwrap();
                write_response(w, &metadata(&request, self.port, 2), api, version, id)
            }
            ApiKey::FindCoordinator => {
                let request = FindCoordinatorRequest::decode(r, version).unwrap();
                write_response(w, &self.find(&request), api, version, id)
            }
            ApiKey::InitProducerId => {
                let request = InitProducerIdRequest::decode(r, version).unwrap();
                write_response(w, &self.init(&request), api, version, id)
            }
            ApiKey::AddPartitionsToTxn => {
                let request = AddPartitionsToTxnRequest::decode(r, version).unwrap();
                write_response(w, &self.add(&request), api, version, id)
            }
            ApiKey::EndTxn => {
                let request = EndTxnRequest::decode(r, version).unwrap();
                write_response(w, &self.end(&request), api, version, id)
            }
            ApiKey::Produce => {
                let request = ProduceRequest::decode(r, version).unwrap();
                let code = self.decide(produced(&request));
                write_response(w, &response(&request, code), api, version, id)
            }
            other => panic!("{other} was asked"),
        }
        .unwrap();
        writer.into_bytes()
    }

    fn find(&self, request: &FindCoordinatorRequest) -> FindCoordinatorResponse {
        let key = request.coordinator_keys[0].clone();
        let code = self.decide(format!("find {} {key}", request.key_type));
        let found = Coordinator { key, node_id: 1, error_code: code.code(), ..Default::default() };
        FindCoordinatorResponse { coordinators: vec![found], ..Default::default() }
    }

    fn init(&self, request: &InitProducerIdRequest) -> InitProducerIdResponse {
        let id = request.transactional_id.as_deref().unwrap();
        let epoch = request.producer_epoch;
        let timeout_ms = request.transaction_timeout_ms;
        let code = self.decide(format!("init {id} {timeout_ms} {epoch}"));
        InitProducerIdResponse {
            producer_id: 7,
            producer_epoch: epoch + 1,
            error_code: code.code(),
            ..Default::default()
        }
    }

    fn add(&self, request: &AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse {
        let topic = &request.v3_and_below_topics[0];
        let mut partitions = topic.partitions.clone();
        partitions.sort();
        let code = self.decide(format!("add {partitions:?}"));
        let result = |partition_index| {
            let partition_error_code = code.code();
            AddPartitionsToTxnPartitionResult { partition_index, partition_error_code }
        };
        let results_by_partition = partitions.into_iter().map(result).collect();
        let topic =
            AddPartitionsToTxnTopicResult { name: topic.name.clone(), results_by_partition };
        AddPartitionsToTxnResponse {
            results_by_topic_v3_and_below: vec![topic],
            ..Default::default()
        }
    }

    fn end(&self, request: &EndTxnRequest) -> EndTxnResponse {
        let what = if request.committed { "commit" } else { "abort" };
        let code = self.decide(format!("{what} {}", request.producer_epoch));
        EndTxnResponse { error_code: code.code(), ..Default::default() }
    }
}

/// The one batch of a request, in words.
fn produced(request: &ProduceRequest) -> String {
    let data = &request.topic_data[0].partition_data[0];
    let bytes = data.records.as_ref().unwrap();
    let (header, _) = Batches::new(bytes).next().unwrap().unwrap();
    assert!(header.is_transactional());
    assert_eq!(request.transactional_id.as_deref(), Some("x"));
    let (epoch, sequence) = (header.producer_epoch.0, header.base_sequence.0);
    format!("produce {} epoch {epoch} sequence {sequence}", data.index)
}

/// All that Kafka 4.3 serves of these APIs: the client must stay below what KIP-890 changed.
fn versions() -> ApiVersionsResponse {
    let row = |(api, max_version): (ApiKey, i16)| ApiVersion {
        api_key: api.code(),
        min_version: api.min_version(),
        max_version,
    };
    let apis = [
        (ApiKey::ApiVersions, ApiKey::ApiVersions.max_version()),
        (ApiKey::Metadata, 9),
        (ApiKey::Produce, 13),
        (ApiKey::FindCoordinator, 6),
        (ApiKey::InitProducerId, 5),
        (ApiKey::AddPartitionsToTxn, 5),
        (ApiKey::EndTxn, 5),
    ];
    ApiVersionsResponse { api_keys: apis.map(row).into(), ..Default::default() }
}

fn config(id: &str) -> ProducerConfig {
    ProducerConfig {
        transactional_id: Some(id.to_owned()),
        transaction_timeout: Duration::from_secs(9),
        retry_backoff: Duration::from_millis(1),
        ..ProducerConfig::default()
    }
}

/// A producer with an open transaction, and what it asked for until then.
async fn begun(answer: Answer) -> (Played, Producer) {
    let (played, cluster) = Played::start(answer).await;
    let producer = Producer::new(cluster, config("x")).await.unwrap();
    producer.begin_transaction().unwrap();
    assert_eq!(played.asked(), ["find 1 x", "init x 9000 -1"]);
    (played, producer)
}

async fn send(producer: &Producer, partition: i32) -> client::Delivery {
    let record = Record { partition: Some(partition), ..Record::value(b"v") };
    producer.send("t", &record).await.unwrap()
}

#[tokio::test]
async fn a_partition_is_added_before_its_first_batch_and_the_coordinator_ends_it() {
    let (played, producer) = begun(|_, _| ErrorCode::None).await;
    for _ in 0..2 {
        send(&producer, 1).await;
        producer.flush().await.unwrap();
    }
    producer.commit_transaction().await.unwrap();
    let first = ["add [1]", "produce 1 epoch 0 sequence 0", "produce 1 epoch 0 sequence 1"];
    assert_eq!(played.asked(), [&first[..], &["commit 0"]].concat());
    // The next one begins anew, and goes on with the sequence.
    producer.begin_transaction().unwrap();
    send(&producer, 1).await;
    producer.commit_transaction().await.unwrap();
    assert_eq!(played.asked(), ["add [1]", "produce 1 epoch 0 sequence 2", "commit 0"]);
}

#[tokio::test]
async fn the_coordinator_hears_nothing_of_a_transaction_without_records() {
    let (played, producer) = begun(|_, _| ErrorCode::None).await;
    producer.commit_transaction().await.unwrap();
    producer.begin_transaction().unwrap();
    producer.abort_transaction().await.unwrap();
    assert_eq!(played.asked(), [""; 0]);
}

#[tokio::test]
async fn a_coordinator_that_is_busy_or_moved_is_asked_again() {
    let (played, producer) = begun(|request, earlier| match (request, earlier) {
        ("add [0]", 0 | 1) => ErrorCode::ConcurrentTransactions,
        ("commit 0", 0) => ErrorCode::CoordinatorLoadInProgress,
        ("commit 0", 1) => ErrorCode::NotCoordinator,
        _ => ErrorCode::None,
    })
    .await;
    send(&producer, 0).await;
    producer.commit_transaction().await.unwrap();
    let expected = [
        "add [0]",
        "add [0]",
        "add [0]",
        "produce 0 epoch 0 sequence 0",
        "commit 0",
        "commit 0",
        "find 1 x",
        "commit 0",
    ];
    assert_eq!(played.asked(), expected);
}

#[tokio::test]
async fn a_producer_waits_until_its_predecessor_has_ended() {
    let (played, cluster) = Played::start(|request, earlier| match (request, earlier) {
        ("find 1 x", 0) => ErrorCode::CoordinatorNotAvailable,
        ("init x 9000 -1", 0) => ErrorCode::ConcurrentTransactions,
        _ => ErrorCode::None,
    })
    .await;
    Producer::new(cluster, config("x")).await.unwrap();
    let init = "init x 9000 -1";
    assert_eq!(played.asked(), ["find 1 x", "find 1 x", init, init]);
}

#[tokio::test]
async fn records_are_taken_within_transactions_only() {
    let (_, producer) = begun(|_, _| ErrorCode::None).await;
    producer.commit_transaction().await.unwrap();
    let error = producer.send("t", &Record::value(b"v")).await.unwrap_err();
    assert_eq!(error, ClientError::Usage("no transaction is open".to_owned()));
    assert!(producer.commit_transaction().await.is_err());
    producer.begin_transaction().unwrap();
    send(&producer, 0).await;
    producer.commit_transaction().await.unwrap();
}

#[tokio::test]
async fn a_batch_that_is_refused_dooms_its_transaction_but_not_the_next_one() {
    let (played, producer) = begun(|request, _| match request {
        "produce 0 epoch 0 sequence 0" => ErrorCode::MessageTooLarge,
        _ => ErrorCode::None,
    })
    .await;
    let delivery = send(&producer, 0).await;
    assert_eq!(delivery.wait().await.unwrap_err().code(), Some(ErrorCode::MessageTooLarge));
    let error = producer.send("t", &Record::value(b"v")).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::MessageTooLarge));
    let error = producer.commit_transaction().await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::MessageTooLarge));
    producer.abort_transaction().await.unwrap();
    let expected = ["add [0]", "produce 0 epoch 0 sequence 0", "abort 0", "init x 9000 0"];
    assert_eq!(played.asked(), expected);
    producer.begin_transaction().unwrap();
    send(&producer, 0).await;
    producer.commit_transaction().await.unwrap();
    assert_eq!(played.asked(), ["add [0]", "produce 0 epoch 1 sequence 0", "commit 1"]);
}

#[tokio::test]
async fn a_record_that_is_too_large_to_be_taken_dooms_the_transaction_too() {
    let (_, producer) = begun(|_, _| ErrorCode::None).await;
    let error = producer.send("t", &Record::value(&[0; 2 << 20])).await.unwrap_err();
    assert!(matches!(error, ClientError::RecordTooLarge { .. }));
    assert_eq!(producer.commit_transaction().await, Err(error));
    producer.abort_transaction().await.unwrap();
}

#[tokio::test]
async fn an_abort_gives_up_what_lingers() {
    let (played, cluster) = Played::start(|_, _| ErrorCode::None).await;
    let config = ProducerConfig { linger: Duration::from_secs(600), ..config("x") };
    let producer = Producer::new(cluster, config).await.unwrap();
    producer.begin_transaction().unwrap();
    let delivery = send(&producer, 0).await;
    producer.abort_transaction().await.unwrap();
    let error = ClientError::Usage("the transaction is being aborted".to_owned());
    assert_eq!(delivery.wait().await, Err(error));
    assert_eq!(producer.free_buffer_bytes(), ProducerConfig::default().buffer_bytes);
    assert_eq!(played.asked(), ["find 1 x", "init x 9000 -1", "init x 9000 0"]);
}

#[tokio::test]
async fn who_was_fenced_is_told_so() {
    let answers: [Answer; 3] = [
        |request, _| match request.starts_with("add") {
            true => ErrorCode::ProducerFenced,
            false => ErrorCode::None,
        },
        |request, _| match request.starts_with("produce") {
            true => ErrorCode::InvalidProducerEpoch,
            false => ErrorCode::None,
        },
        |request, _| match request.starts_with("commit") {
            true => ErrorCode::InvalidProducerEpoch,
            false => ErrorCode::None,
        },
    ];
    for answer in answers {
        let (_, producer) = begun(answer).await;
        send(&producer, 0).await;
        let committed = producer.commit_transaction().await;
        let aborted = producer.abort_transaction().await;
        for error in [committed, aborted, producer.begin_transaction()] {
            let error = error.unwrap_err().to_string();
            assert!(error.contains("another producer has this transactional.id now"), "{error}");
        }
    }
}

#[tokio::test]
async fn transactions_need_idempotence() {
    let (_, cluster) = Played::start(|_, _| ErrorCode::None).await;
    let config = ProducerConfig { idempotence: false, ..config("x") };
    assert!(matches!(Producer::new(cluster, config).await, Err(ClientError::Usage(_))));
}

/// The cluster to test against, if it offers transactions.
async fn offering_cluster() -> Option<Cluster> {
    let cluster = cluster().await?;
    let served = cluster.any().await.unwrap().versions().newest(ApiKey::AddPartitionsToTxn);
    if served.is_none() {
        eprintln!("passed over: the cluster offers no transactions");
    }
    served.map(|_| cluster)
}

/// The values of a topic's two partitions that belong to no open and no aborted transaction.
async fn committed(cluster: &Cluster, topic: &str, count: usize) -> Vec<String> {
    let config = ConsumerConfig {
        read_committed: true,
        offset_reset: OffsetReset::Earliest,
        ..Default::default()
    };
    let mut consumer = Consumer::new(cluster.clone(), config);
    let partitions = [0, 1].map(|partition| TopicPartition::new(topic, partition));
    consumer.assign(&partitions).await.unwrap();
    let mut values = Vec::new();
    while values.len() < count {
        let polled = consumer.poll(PATIENCE).await.unwrap();
        assert!(!polled.is_empty(), "only {} of {count} came", values.len());
        for fetched in polled {
            let take = |record: client::ConsumerRecord<'_>| {
                values.push(String::from_utf8(record.value.unwrap().to_vec()).unwrap());
            };
            fetched.for_each(&mut Vec::new(), take).unwrap();
        }
    }
    values.sort();
    values
}

#[tokio::test]
async fn readers_of_what_is_committed_see_that_and_nothing_else() {
    let Some(cluster) = offering_cluster().await else { return };
    let topic = new_topic(&cluster, "transactions", 2).await;
    let producer = Producer::new(cluster.clone(), config(&topic)).await.unwrap();
    let mut expected = Vec::new();
    for turn in 0..6 {
        producer.begin_transaction().unwrap();
        for partition in [0, 1] {
            let value = format!("{turn}-{partition}");
            let record = Record { partition: Some(partition), ..Record::value(value.as_bytes()) };
            producer.send(&topic, &record).await.unwrap();
            if turn % 3 != 1 {
                expected.push(value);
            }
        }
        match turn {
            // Once before the batches are sent, once behind that.
            1 => producer.abort_transaction().await.unwrap(),
            4 => {
                producer.flush().await.unwrap();
                producer.abort_transaction().await.unwrap();
            }
            _ => producer.commit_transaction().await.unwrap(),
        }
    }
    assert_eq!(committed(&cluster, &topic, expected.len()).await, expected);
    let listed = Admin::new(cluster).list_transactions().await.unwrap();
    assert!(listed.iter().any(|transaction| transaction.transactional_id == topic));
}

#[tokio::test]
async fn the_second_producer_of_an_id_fences_the_first() {
    let Some(cluster) = offering_cluster().await else { return };
    let topic = new_topic(&cluster, "fenced", 2).await;
    let first = Producer::new(cluster.clone(), config(&topic)).await.unwrap();
    first.begin_transaction().unwrap();
    first.send(&topic, &Record::value(b"first")).await.unwrap();
    first.flush().await.unwrap();
    let second = Producer::new(cluster.clone(), config(&topic)).await.unwrap();
    let error = first.commit_transaction().await.unwrap_err();
    let fenced = [Some(ErrorCode::ProducerFenced), Some(ErrorCode::InvalidProducerEpoch)];
    assert!(fenced.contains(&error.code()), "{error}");
    second.begin_transaction().unwrap();
    second.send(&topic, &Record::value(b"second")).await.unwrap();
    second.commit_transaction().await.unwrap();
    assert_eq!(committed(&cluster, &topic, 1).await, ["second"]);
}
