//! TLS: whom a client believes, and what it says of others.

use super::broker::Broker;
use super::certificates::{Authority, server};
use super::config;
use client::{ClientError, Connection, ConnectionConfig};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use wire::MetadataRequest;
use wire::metadata::MetadataRequestTopic;

fn trusting(authority: &Authority) -> ConnectionConfig {
    let pem = authority.pem();
    config(&[("security.protocol", "SSL"), ("ssl.truststore.certificates", &pem)])
}

fn asking(topics: usize) -> MetadataRequest {
    let topic =
        |i| MetadataRequestTopic { name: Some(format!("topic-{i:08}")), ..Default::default() };
    MetadataRequest { topics: Some((0..topics).map(topic).collect()), ..Default::default() }
}

/// Why no connection came about, and that another attempt would end alike.
async fn refusal(address: &str, config: &ConnectionConfig) -> String {
    match Connection::open(address, config).await {
        Err(error @ ClientError::NotAdmitted { .. }) => {
            assert!(!error.is_retriable());
            error.to_string()
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn requests_of_all_sizes_go_both_ways() {
    let authority = Authority::new("of the test");
    let broker = Broker::start(Some(authority.server(&["localhost"])), None);
    let connection = Connection::open(&broker.address, &trusting(&authority)).await.unwrap();
    let small = asking(1);
    let large = asking(200_000);
    // More than sockets and session take at once: the connection's task writes the rest.
    let (a, b, c) =
        tokio::join!(connection.call(&small), connection.call(&large), connection.call(&small));
    assert_eq!(a.unwrap().topics.len(), 1);
    let answer = b.unwrap();
    assert_eq!(answer.topics.len(), 200_000);
    assert_eq!(answer.topics[199_999].name.as_deref(), Some("topic-00199999"));
    assert_eq!(c.unwrap().topics.len(), 1);
    assert!(!connection.has_backlog());
}

#[tokio::test]
async fn a_stranger_is_not_believed() {
    let broker = Broker::start(Some(Authority::new("another").server(&["localhost"])), None);
    let authority = Authority::new("of the test");
    let error = refusal(&broker.address, &trusting(&authority)).await;
    assert!(
        error.contains("no authority that is trusted") && error.contains("ssl.truststore"),
        "{error}"
    );
    // Not even without the check of names.
    let pem = authority.pem();
    let lax = config(&[
        ("security.protocol", "SSL"),
        ("ssl.truststore.certificates", &pem),
        ("ssl.endpoint.identification.algorithm", ""),
    ]);
    let error = refusal(&broker.address, &lax).await;
    assert!(error.contains("no authority that is trusted"), "{error}");
    assert_eq!(broker.asked.load(Relaxed), 0);
}

#[tokio::test]
async fn a_certificate_for_another_host_is_believed_only_where_names_are_not_checked() {
    let authority = Authority::new("of the test");
    let broker = Broker::start(Some(authority.server(&["kafka-1.example.org"])), None);
    let error = refusal(&broker.address, &trusting(&authority)).await;
    assert!(
        error.contains("not for localhost") && error.contains("kafka-1.example.org"),
        "{error}"
    );
    let pem = authority.pem();
    let lax = config(&[
        ("security.protocol", "SSL"),
        ("ssl.truststore.certificates", &pem),
        ("ssl.endpoint.identification.algorithm", ""),
    ]);
    let connection = Connection::open(&broker.address, &lax).await.unwrap();
    assert_eq!(connection.call(&asking(3)).await.unwrap().topics.len(), 3);
}

#[tokio::test]
async fn an_address_needs_a_certificate_for_that_address() {
    let authority = Authority::new("of the test");
    let broker = Broker::start(Some(authority.server(&["127.0.0.1"])), None);
    let address = format!("127.0.0.1:{}", broker.port);
    assert!(Connection::open(&address, &trusting(&authority)).await.is_ok());
    let error = refusal(&broker.address, &trusting(&authority)).await;
    assert!(error.contains("not for localhost"), "{error}");
}

#[tokio::test]
async fn certificates_that_cannot_be_used_say_why() {
    let authority = Authority::new("of the test");
    let old = Broker::start(Some(server(&authority.make_expired(&["localhost"]), None)), None);
    let error = refusal(&old.address, &trusting(&authority)).await;
    assert!(error.contains("has expired"), "{error}");
    let nameless = Broker::start(Some(server(&authority.make(&[]), None)), None);
    let error = refusal(&nameless.address, &trusting(&authority)).await;
    assert!(error.contains("names no host"), "{error}");
}

#[tokio::test]
async fn a_broker_that_wants_a_certificate_gets_one_or_says_so() {
    let authority = Authority::new("of the test");
    let broker = Broker::start(Some(authority.strict_server(&["localhost"])), None);
    let pem = authority.pem();
    let with = |versions: &str, own: Option<&Authority>| {
        let own = own.map(|authority| authority.make(&["alice"]));
        let (certificate, key) = own.map(|made| (made.certificate, made.key)).unwrap_or_default();
        config(&[
            ("security.protocol", "SSL"),
            ("ssl.enabled.protocols", versions),
            ("ssl.truststore.certificates", &pem),
            ("ssl.keystore.certificate.chain", &certificate),
            ("ssl.keystore.key", &key),
        ])
    };
    for versions in ["TLSv1.3", "TLSv1.2"] {
        let connection = Connection::open(&broker.address, &with(versions, Some(&authority))).await;
        assert_eq!(connection.unwrap().call(&asking(1)).await.unwrap().topics.len(), 1);
        for own in [None, Some(&Authority::new("another"))] {
            let opened = Connection::open(&broker.address, &with(versions, own)).await;
            let error = opened.expect_err("the broker does not know this client").to_string();
            assert!(error.contains("ssl.keystore.location"), "{versions}: {error}");
        }
    }
}

#[tokio::test]
async fn tls_spoken_to_a_port_without_it_says_so() {
    let authority = Authority::new("of the test");
    let broker = Broker::start(None, None);
    let error = Connection::open(&broker.address, &trusting(&authority)).await.unwrap_err();
    assert!(error.to_string().contains("if the port has no TLS"), "{error}");
    // Another that answers in plain words.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("localhost:{}", listener.local_addr().unwrap().port());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    let error = refusal(&address, &trusting(&authority)).await;
    assert!(error.contains("does not answer in TLS"), "{error}");
}

#[tokio::test]
async fn a_port_with_tls_spoken_to_without_says_so() {
    let broker = Broker::start(Some(Authority::new("of the test").server(&["localhost"])), None);
    let error = Connection::open(&broker.address, &config(&[])).await.unwrap_err().to_string();
    assert!(error.contains("security.protocol=SSL"), "{error}");
}

#[tokio::test]
async fn a_handshake_that_drips_ends_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("localhost:{}", listener.local_addr().unwrap().port());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // The head of a record that goes on for 16 KiB, a byte at a time, until the client goes.
        let mut record =
            [0x16, 3, 3, 0x40, 0, 2, 0, 0x3f, 0xfc].into_iter().chain(std::iter::repeat(0));
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let mut heard = [0; 4096];
        while stream.write_all(&[record.next().unwrap_or(0)]).is_ok() {
            // The client says hello, then nothing, and then goes.
            if matches!(stream.read(&mut heard), Ok(0)) {
                break;
            }
        }
    });
    let limit = Duration::from_millis(600);
    let config =
        ConnectionConfig { connect_timeout: limit, ..trusting(&Authority::new("of the test")) };
    let began = Instant::now();
    let error = Connection::open(&address, &config).await.unwrap_err();
    assert!(began.elapsed() >= limit, "it was waited for as long as allowed");
    assert!(began.elapsed() < Duration::from_secs(20));
    let what = format!("the TLS handshake with {address}");
    assert_eq!(error, ClientError::TimedOut { what, after_ms: 600 });
}

#[tokio::test]
async fn a_handshake_that_is_cut_anywhere_is_an_error() {
    let authority = Authority::new("of the test");
    let broker = Broker::start(Some(authority.server(&["localhost"])), None);
    let config = trusting(&authority);
    // So many bytes of the broker come through, then the connection ends.
    for cut in [0, 1, 5, 6, 100, 300, 500] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("localhost:{}", listener.local_addr().unwrap().port());
        let to = format!("127.0.0.1:{}", broker.port);
        std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let mut broker = std::net::TcpStream::connect(to).unwrap();
            let mut hello = vec![0; 16 << 10];
            let count = client.read(&mut hello).unwrap();
            broker.write_all(&hello[..count]).unwrap();
            let mut answer = vec![0; cut];
            broker.read_exact(&mut answer).unwrap();
            client.write_all(&answer).unwrap();
        });
        let error = Connection::open(&address, &config).await.unwrap_err();
        assert!(matches!(error, ClientError::Connect { .. }), "after {cut} bytes: {error}");
        assert!(error.to_string().contains("cut short"), "after {cut} bytes: {error}");
    }
}
