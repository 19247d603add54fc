//! Logging in: with each mechanism, against brokers that refuse or lie, and again before a session ends.

use super::broker::{Broker, User};
use super::certificates::Authority;
use super::config;
use super::login::Lie;
use client::{
    ClientError, Cluster, ClusterConfig, Connection, ConnectionConfig, Producer, ProducerConfig,
    Record,
};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use wire::MetadataRequest;

const PASSWORD: &str = "opensesame";

fn login(protocol: &str, mechanism: &str, password: &str, ca: &str) -> ConnectionConfig {
    let module = if mechanism == "PLAIN" { "plain.Plain" } else { "scram.Scram" };
    let jaas = format!(
        "org.apache.kafka.common.security.{module}LoginModule required username=\"alice\" password=\"{password}\";"
    );
    config(&[
        ("security.protocol", protocol),
        ("sasl.mechanism", mechanism),
        ("sasl.jaas.config", &jaas),
        ("ssl.truststore.certificates", ca),
    ])
}

fn plainly(mechanism: &str, password: &str) -> ConnectionConfig {
    login("SASL_PLAINTEXT", mechanism, password, "")
}

fn refused(opened: Result<Connection, ClientError>) -> String {
    match opened {
        Err(error @ ClientError::NotAdmitted { .. }) => {
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains(PASSWORD), "{shown}");
            error.to_string()
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn each_mechanism_logs_in_with_and_without_tls() {
    let authority = Authority::new("of the test");
    let ca = authority.pem();
    for mechanism in ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] {
        for protocol in ["SASL_PLAINTEXT", "SASL_SSL"] {
            let tls = (protocol == "SASL_SSL").then(|| authority.server(&["localhost"]));
            let broker = Broker::start(tls, Some(User::alice(mechanism)));
            let right = login(protocol, mechanism, PASSWORD, &ca);
            let connection = Connection::open(&broker.address, &right).await.unwrap();
            connection.call(&MetadataRequest::default()).await.unwrap();
            let wrong = login(protocol, mechanism, "openbarley", &ca);
            let error = refused(Connection::open(&broker.address, &wrong).await);
            assert!(
                error.contains("Authentication failed") && error.contains("sasl.jaas.config"),
                "{error}"
            );
            assert_eq!((broker.logins.load(Relaxed), broker.failures.load(Relaxed)), (1, 1));
        }
    }
}

#[tokio::test]
async fn brokers_that_lie_are_found_out() {
    for (lie, words) in [
        (Lie::Signature, "may be an impostor"),
        (Lie::NoProof, "the signature is missing"),
        (Lie::Nonce, "nonce does not continue"),
        (Lie::SameNonce, "nonce does not continue"),
        (Lie::Iterations(1), "asks for 1 iterations"),
        (Lie::Iterations(1 << 31), "asks for 2147483648 iterations"),
        (Lie::Cut, "malformed"),
    ] {
        for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-512"] {
            let broker = Broker::start(None, Some(User { lie, ..User::alice(mechanism) }));
            let opened = Connection::open(&broker.address, &plainly(mechanism, PASSWORD)).await;
            let error = refused(opened);
            assert!(error.contains(words), "{lie:?}: {error}");
        }
    }
}

#[tokio::test]
async fn a_broker_that_never_answers_a_login_is_left_in_time() {
    let user = User { lie: Lie::Silence, ..User::alice("SCRAM-SHA-256") };
    let broker = Broker::start(None, Some(user));
    let connect_timeout = Duration::from_millis(500);
    let config = ConnectionConfig { connect_timeout, ..plainly("SCRAM-SHA-256", PASSWORD) };
    let began = Instant::now();
    let error = Connection::open(&broker.address, &config).await.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(20));
    assert!(error.is_retriable(), "{error}: it may be overloaded");
}

#[tokio::test]
async fn what_the_broker_does_not_offer_is_said() {
    let broker = Broker::start(None, Some(User::alice("SCRAM-SHA-512")));
    let error = refused(Connection::open(&broker.address, &plainly("PLAIN", PASSWORD)).await);
    assert!(error.contains("offers SCRAM-SHA-512 only; change sasl.mechanism"), "{error}");
    let open = Broker::start(None, None);
    let error = refused(Connection::open(&open.address, &plainly("PLAIN", PASSWORD)).await);
    assert!(error.contains("its port has no login"), "{error}");
    // Without a login a broker ends the connection at the first question.
    let connection = Connection::open(&broker.address, &config(&[])).await.unwrap();
    let error = connection.call(&MetadataRequest::default()).await.unwrap_err().to_string();
    assert!(error.contains("SASL_PLAINTEXT"), "{error}");
}

/// KIP-368: the session is 1.5 seconds long, and requests go on all the while. The broker ends the connection of who asks for
/// anything else while it logs in.
#[tokio::test]
async fn a_session_is_renewed_while_requests_go_on() {
    let user = User { session_ms: 1500, ..User::alice("SCRAM-SHA-256") };
    let broker = Broker::start(None, Some(user));
    let config = plainly("SCRAM-SHA-256", PASSWORD);
    let connection = Connection::open(&broker.address, &config).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut asked = 0;
    while broker.logins.load(Relaxed) < 3 {
        assert!(Instant::now() < deadline, "logged in {} times", broker.logins.load(Relaxed));
        let request = MetadataRequest::default();
        let (a, b) = tokio::join!(connection.call(&request), connection.call(&request));
        a.and(b).unwrap();
        asked += 2;
    }
    assert_eq!(broker.asked.load(Relaxed), asked);
    assert_eq!(broker.failures.load(Relaxed), 0);
}

#[tokio::test]
async fn a_session_that_is_not_renewed_ends_with_the_reason() {
    let user = User { session_ms: 1500, ..User::alice("PLAIN") };
    let broker = Broker::start(None, Some(user));
    let connection = Connection::open(&broker.address, &plainly("PLAIN", PASSWORD)).await.unwrap();
    broker.user.lock().unwrap().as_mut().unwrap().password = "changed".to_owned();
    // Calls go on until the session is over.
    let error = loop {
        if let Err(error) = connection.call(&MetadataRequest::default()).await {
            break error;
        }
    };
    assert!(matches!(error, ClientError::NotAdmitted { .. }), "{error}");
    assert!(connection.is_closed());
}

#[tokio::test]
async fn a_refused_login_is_not_tried_again_as_if_it_were_weather() {
    let broker = Broker::start(None, Some(User::alice("SCRAM-SHA-512")));
    let connection = plainly("SCRAM-SHA-512", "openbarley");
    let config = ClusterConfig { connection, ..ClusterConfig::new(&broker.address) };
    let began = Instant::now();
    let cluster = Cluster::new(config.clone());
    for _ in 0..20 {
        let error = cluster.retry(|| cluster.refresh()).await.unwrap_err();
        assert!(matches!(error, ClientError::NotAdmitted { .. }), "{error}");
    }
    // A second has one login, however often it is asked.
    let seconds = began.elapsed().as_secs() as u32;
    assert!(broker.failures.load(Relaxed) <= 1 + seconds, "in {seconds} s");
    assert!(Cluster::connect(config).await.is_err());
}

#[tokio::test]
async fn records_do_not_wait_for_a_broker_that_refuses_the_client() {
    let broker = Broker::start(None, Some(User::alice("PLAIN")));
    let connection = plainly("PLAIN", PASSWORD);
    let config = ClusterConfig { connection, ..ClusterConfig::new(&broker.address) };
    let cluster = Cluster::connect(config).await.unwrap();
    cluster.topic("orders").await.unwrap();
    broker.user.lock().unwrap().as_mut().unwrap().password = "changed".to_owned();
    let delivery_timeout = Duration::from_secs(600);
    let config =
        ProducerConfig { idempotence: false, delivery_timeout, ..ProducerConfig::default() };
    let producer = Producer::new(cluster, config).await.unwrap();
    let delivery = producer.send("orders", &Record::value(b"value")).await.unwrap();
    let lost = delivery.fate().await.unwrap_err();
    assert!(matches!(lost.error, ClientError::NotAdmitted { .. }), "{lost:?}");
    assert!(!lost.maybe_written, "{lost:?}");
}
