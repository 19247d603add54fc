//! A connection against a broker that the test plays: what real brokers rarely do.

use client::{
    Admin, ClientError, Cluster, ClusterConfig, Connection, ConnectionConfig, Consumer,
    ConsumerConfig,
};
use model::{ErrorCode, Offset, TopicPartition};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use wire::api_versions::ApiVersion;
use wire::frame::{RequestHead, write_response};
use wire::list_groups::ListedGroup;
use wire::metadata::{MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic};
use wire::{
    ApiKey, ApiVersionsResponse, ListGroupsResponse, MetadataRequest, MetadataResponse, Writer,
};

fn config() -> ConnectionConfig {
    ConnectionConfig {
        connect_timeout: Duration::from_secs(40),
        request_timeout: Duration::from_secs(40),
        frame_bytes_max: 10_000,
        ..ConnectionConfig::default()
    }
}

/// The next request: API, version and correlation id.
async fn request(stream: &mut TcpStream) -> (ApiKey, i16, i32) {
    let length = stream.read_i32().await.unwrap();
    let mut frame = vec![0; length as usize];
    stream.read_exact(&mut frame).await.unwrap();
    let head = RequestHead::parse(&frame).unwrap();
    (head.api_key, head.version, head.correlation_id)
}

fn versions(error: ErrorCode, api_versions_max: i16) -> ApiVersionsResponse {
    let row =
        |api: ApiKey, max_version| ApiVersion { api_key: api.code(), min_version: 0, max_version };
    ApiVersionsResponse {
        error_code: error.code(),
        api_keys: vec![row(ApiKey::ApiVersions, api_versions_max), row(ApiKey::Metadata, 8)],
        ..Default::default()
    }
}

async fn answer<M: wire::Message>(
    stream: &mut TcpStream,
    message: &M,
    api: ApiKey,
    version: i16,
    correlation_id: i32,
) {
    let mut writer = Writer::new();
    write_response(&mut writer, message, api, version, correlation_id).unwrap();
    stream.write_all(writer.bytes()).await.unwrap();
}

/// Takes a connection and agrees on versions, as a broker of today does.
async fn accept(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().await.unwrap();
    let (api, version, id) = request(&mut stream).await;
    answer(&mut stream, &versions(ErrorCode::None, version), api, version, id).await;
    stream
}

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

#[tokio::test]
async fn an_old_broker_is_asked_again_in_a_version_that_it_knows() {
    let (listener, address) = listen().await;
    let broker = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let (api, version, id) = request(&mut stream).await;
        assert_eq!(version, ApiKey::ApiVersions.max_version());
        let refusal = versions(ErrorCode::UnsupportedVersion, 2);
        answer(&mut stream, &refusal, api, 0, id).await;
        let (api, version, id) = request(&mut stream).await;
        assert_eq!(version, 2);
        answer(&mut stream, &versions(ErrorCode::None, 2), api, version, id).await;
        stream
    });
    let connection = Connection::open(&address, &config()).await.unwrap();
    assert_eq!(connection.version_of(ApiKey::Metadata), Ok(8));
    let unsupported = connection.version_of(ApiKey::Fetch);
    assert!(matches!(unsupported, Err(ClientError::Unsupported { api: ApiKey::Fetch, .. })));
    broker.await.unwrap();
}

#[tokio::test]
async fn questions_are_sent_before_answers_come() {
    let (listener, address) = listen().await;
    let broker = tokio::spawn(async move {
        let mut stream = accept(&listener).await;
        let mut ids = Vec::new();
        for _ in 0..3 {
            ids.push(request(&mut stream).await);
        }
        for (i, (api, version, id)) in ids.into_iter().enumerate() {
            let message = MetadataResponse { controller_id: i as i32, ..Default::default() };
            answer(&mut stream, &message, api, version, id).await;
        }
        stream
    });
    let connection = Connection::open(&address, &config()).await.unwrap();
    let question = wanted();
    let ask = || connection.call(&question);
    let (a, b, c) = tokio::join!(ask(), ask(), ask());
    let controllers = [a, b, c].map(|answer| answer.unwrap().controller_id);
    assert_eq!(controllers, [0, 1, 2]);
    broker.await.unwrap();
}

/// A request that exists in version 8.
fn wanted() -> MetadataRequest {
    MetadataRequest { allow_auto_topic_creation: true, ..Default::default() }
}

#[tokio::test]
async fn a_broker_that_keeps_silent_is_given_up() {
    let (listener, address) = listen().await;
    let broker = tokio::spawn(async move {
        let mut stream = accept(&listener).await;
        request(&mut stream).await;
        // Ends when the client has hung up.
        stream.read_u8().await.unwrap_err();
    });
    let config = ConnectionConfig { request_timeout: Duration::from_secs(2), ..config() };
    let connection = Connection::open(&address, &config).await.unwrap();
    let error = connection.call(&wanted()).await.unwrap_err();
    assert!(error.is_retriable() && error.to_string().contains("in time"), "{error}");
    assert!(connection.is_closed());
    let error = connection.call(&wanted()).await.unwrap_err();
    assert!(matches!(error, ClientError::Closed { .. }));
    broker.await.unwrap();
}

/// What a connection says when the broker sends these bytes for an answer.
async fn error_after(bytes: impl FnOnce(i32) -> Vec<u8> + Send + 'static) -> ClientError {
    let (listener, address) = listen().await;
    let broker = tokio::spawn(async move {
        let mut stream = accept(&listener).await;
        let (_, _, id) = request(&mut stream).await;
        stream.write_all(&bytes(id)).await.unwrap();
        stream
    });
    let connection = Connection::open(&address, &config()).await.unwrap();
    let error = connection.call(&wanted()).await.unwrap_err();
    broker.await.unwrap();
    error
}

fn frame(correlation_id: i32, body: &[u8]) -> Vec<u8> {
    let length = 4 + body.len() as i32;
    [&length.to_be_bytes()[..], &correlation_id.to_be_bytes(), body].concat()
}

#[tokio::test]
async fn an_answer_to_another_question_ends_the_connection() {
    let error = error_after(|id| frame(id + 1, &[])).await;
    assert!(matches!(error, ClientError::Closed { .. }), "{error}");
}

#[tokio::test]
async fn a_frame_of_an_impossible_length_ends_the_connection() {
    for length in [-1, 3, 10_001, i32::MAX] {
        let error = error_after(move |_| length.to_be_bytes().to_vec()).await;
        assert!(error.to_string().contains(&length.to_string()), "{error}");
    }
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_is_an_error_of_the_call() {
    let error = error_after(|id| frame(id, &[0xff; 20])).await;
    assert!(matches!(error, ClientError::Malformed { api: ApiKey::Metadata, .. }), "{error}");
}

#[tokio::test]
async fn a_port_without_a_broker_is_an_error_of_the_connection() {
    let (listener, address) = listen().await;
    drop(listener);
    let error = Connection::open(&address, &config()).await.unwrap_err();
    assert!(matches!(error, ClientError::Connect { .. }), "{error}");
}

/// A broker that reads its log of groups when it is first asked for them, and has read it when it is asked again.
async fn serve_groups(mut stream: TcpStream, port: i32, asked: Arc<AtomicUsize>) {
    loop {
        let (api, version, id) = request(&mut stream).await;
        match api {
            ApiKey::ApiVersions => {
                let row = |api: ApiKey, max_version| ApiVersion {
                    api_key: api.code(),
                    min_version: 0,
                    max_version,
                };
                let api_keys =
                    vec![row(api, version), row(ApiKey::Metadata, 8), row(ApiKey::ListGroups, 2)];
                let versions = ApiVersionsResponse { api_keys, ..Default::default() };
                answer(&mut stream, &versions, api, version, id).await;
            }
            ApiKey::Metadata => {
                let broker =
                    MetadataResponseBroker { port, host: "127.0.0.1".into(), ..Default::default() };
                let metadata = MetadataResponse { brokers: vec![broker], ..Default::default() };
                answer(&mut stream, &metadata, api, version, id).await;
            }
            ApiKey::ListGroups => {
                let is_first = asked.fetch_add(1, Ordering::Relaxed) == 0;
                let groups = match is_first {
                    true => ListGroupsResponse {
                        error_code: ErrorCode::CoordinatorLoadInProgress.code(),
                        ..Default::default()
                    },
                    false => ListGroupsResponse {
                        groups: vec![ListedGroup { group_id: "g".into(), ..Default::default() }],
                        ..Default::default()
                    },
                };
                answer(&mut stream, &groups, api, version, id).await;
            }
            other => panic!("{other:?} was not to be asked"),
        }
    }
}

#[tokio::test]
async fn groups_are_listed_when_the_broker_has_read_its_log_of_them() {
    let (listener, address) = listen().await;
    let port = i32::from(listener.local_addr().unwrap().port());
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let broker = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve_groups(stream, port, counted.clone()));
        }
    });
    let cluster = Cluster::connect(ClusterConfig::new(&address)).await.unwrap();
    let groups = Admin::new(cluster).list_groups().await.unwrap();
    assert_eq!(groups.iter().map(|group| &*group.group_id).collect::<Vec<_>>(), ["g"]);
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    broker.abort();
}

/// Metadata of a broker at this port that leads the only partition of topic `t`.
fn metadata_of_one_topic(port: i32) -> MetadataResponse {
    let broker =
        MetadataResponseBroker { node_id: 1, host: "127.0.0.1".into(), port, ..Default::default() };
    let partition =
        MetadataResponsePartition { leader_id: 1, leader_epoch: 0, ..Default::default() };
    let topic = MetadataResponseTopic {
        name: Some("t".into()),
        partitions: vec![partition],
        ..Default::default()
    };
    MetadataResponse { brokers: vec![broker], topics: vec![topic], ..Default::default() }
}

#[tokio::test]
async fn an_idle_consumer_seldom_dials_a_cluster_that_is_gone() {
    /// The client counts such a cluster as gone for long.
    const GONE_FOR: Duration = Duration::from_secs(6);
    const COUNTED: Duration = Duration::from_secs(3);
    /// Attempts to fetch and to refresh metadata, at each known address.
    const DIALS_A_SECOND_MAX: f64 = 6.0;
    let (listener, address) = listen().await;
    let port = i32::from(listener.local_addr().unwrap().port());
    let (dials, gone) = (Arc::new(AtomicUsize::new(0)), tokio::sync::watch::Sender::new(false));
    let counted = Arc::clone(&dials);
    let mut ended = gone.subscribe();
    let broker = tokio::spawn(async move {
        let serving = async {
            let mut stream = accept(&listener).await;
            loop {
                let (api, version, id) = request(&mut stream).await;
                assert_eq!(api, ApiKey::Metadata);
                answer(&mut stream, &metadata_of_one_topic(port), api, version, id).await;
            }
        };
        tokio::select! {
            () = serving => {}
            _ = ended.changed() => {}
        }
        loop {
            drop(listener.accept().await.unwrap());
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let cluster = Cluster::connect(ClusterConfig::new(&address)).await.unwrap();
    let mut consumer = Consumer::new(cluster, ConsumerConfig::default());
    consumer.add(TopicPartition::new("t", 0), Offset(0));
    gone.send_replace(true);
    let began = Instant::now();
    let mut counting: Option<(Instant, usize)> = None;
    let (since, before) = loop {
        // The consumer retries after errors of the cluster.
        let _ = consumer.poll(Duration::from_millis(100)).await;
        match counting {
            None if began.elapsed() >= GONE_FOR => {
                counting = Some((Instant::now(), dials.load(Ordering::Relaxed)));
            }
            Some((since, before)) if since.elapsed() >= COUNTED => break (since, before),
            _ => {}
        }
    };
    let dialed = dials.load(Ordering::Relaxed) - before;
    let most = DIALS_A_SECOND_MAX * since.elapsed().as_secs_f64();
    assert!(dialed > 0, "the consumer tries again");
    assert!((dialed as f64) <= most, "{dialed} connections in {:?}", since.elapsed());
    broker.abort();
}
