//! TLS on the gateway's own listener. A tunnel stands between the clients of the other tests and the gateway, and speaks it for
//! them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gateway::{EventSettings, Settings, Tls};
use rcgen::{CertifiedKey, KeyPair};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::event_stream::EventStream;
use crate::fixture::{PATIENCE, World};
use crate::http::Connection;
use crate::websocket_client::WebSocket;

/// A certificate and its key, in files.
struct Files {
    dir: TempDir,
}

fn made() -> CertifiedKey<KeyPair> {
    rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap()
}

impl Files {
    fn of(pair: &CertifiedKey<KeyPair>) -> Files {
        let files = Files { dir: tempfile::tempdir().unwrap() };
        files.write_certificate(pair);
        files.write_key(pair);
        files
    }

    fn certificate(&self) -> PathBuf {
        self.dir.path().join("gateway.pem")
    }

    fn key(&self) -> PathBuf {
        self.dir.path().join("gateway.key")
    }

    fn write_certificate(&self, pair: &CertifiedKey<KeyPair>) {
        std::fs::write(self.certificate(), pair.cert.pem()).unwrap();
    }

    fn write_key(&self, pair: &CertifiedKey<KeyPair>) {
        std::fs::write(self.key(), pair.signing_key.serialize_pem()).unwrap();
    }

    fn tls(&self) -> Tls {
        Tls::of_files(&self.certificate(), &self.key()).unwrap()
    }
}

/// A client that trusts these, each an authority of its own.
fn trusting(trusted: &[&CertifiedKey<KeyPair>]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    for pair in trusted {
        roots.add(CertificateDer::from(pair.cert.der().to_vec())).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

async fn dial(address: SocketAddr, client: &Arc<ClientConfig>) -> TlsStream<TcpStream> {
    let tcp = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::clone(client)).connect(name, tcp).await.unwrap()
}

/// An address that speaks TLS to another one for whoever comes.
async fn tunnel(to: SocketAddr, client: Arc<ClientConfig>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let client = Arc::clone(&client);
            tokio::spawn(async move {
                let mut far = dial(to, &client).await;
                let _ = copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    address
}

async fn world(files: &Files, change: impl FnOnce(Settings) -> Settings) -> World {
    let tls = Some(Arc::new(files.tls()));
    World::start_with(|settings| change(Settings { tls, ..settings })).await
}

/// The certificate that is shown now.
async fn shown(address: SocketAddr, client: &Arc<ClientConfig>) -> Vec<u8> {
    let stream = dial(address, client).await;
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

/// Whether the metrics have this line, as they are read through a tunnel.
async fn counts(address: SocketAddr, line: &str) -> bool {
    let answer = Connection::open(address).await.get("/metrics").await;
    assert_eq!(answer.status, 200);
    answer.body.lines().any(|found| found == line)
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_events_and_websockets_go_over_tls() {
    let pair = made();
    let world = world(&Files::of(&pair), |settings| settings).await;
    let client = Arc::new(trusting(&[&pair]));
    world.create("t", 1, &[]).await;
    let stream = dial(world.gateway.address(), &client).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let address = tunnel(world.gateway.address(), client).await;

    let mut conn = Connection::open(address).await;
    // More than a record of TLS, in both directions.
    let large = "x".repeat(300_000);
    for value in ["one", &large] {
        assert_eq!(conn.post("/topics/t/raw", "", value).await.status, 200);
    }
    let mut events = EventStream::open(address, "/topics/t/events?from=earliest", None).await;
    assert_eq!(events.status, 200);
    assert_eq!(events.values(2).await, ["one", &large]);
    let mut socket = WebSocket::open(address, "/ws/topics/t?from=earliest").await;
    let texts = socket.texts(2).await;
    assert_eq!(texts[1]["value"].as_str().map(str::len), Some(large.len()), "{}", texts[0]);
    assert_eq!(conn.post("/topics/t/raw", "", "now").await.status, 200);
    assert_eq!(events.values(1).await, ["now"]);
    assert_eq!(socket.text().await["value"], "now");
    // Addresses that are told begin as this one does.
    let clusters = conn.get("/v3/clusters").await.json();
    let own = clusters["metadata"]["self"].as_str().unwrap();
    assert!(own.starts_with("https://"), "{own}");
    let tail = "/topics/t/events?from=earliest&limit=2";
    let mut ended = EventStream::open(address, tail, None).await;
    assert_eq!(ended.values(2).await.len(), 2);
    while ended.next().await.is_some() {}
    drop((events, socket, conn));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewed_certificate_is_shown_to_who_comes_next_and_streams_go_on() {
    let (first, second) = (made(), made());
    let files = Files::of(&first);
    let world = world(&files, |settings| settings).await;
    let client = Arc::new(trusting(&[&first, &second]));
    world.create("t", 1, &[]).await;
    let (direct, address) = {
        let direct = world.gateway.address();
        (direct, tunnel(direct, Arc::clone(&client)).await)
    };
    let mut events = EventStream::open(address, "/topics/t/events", None).await;
    events.next_id().await;
    assert_eq!(shown(direct, &client).await, first.cert.der().to_vec());

    // The certificate comes before its key: both are not of one pair, and nothing changes.
    files.write_certificate(&second);
    let failed = async {
        while !counts(address, "highwater_gateway_tls_reloads_failed_total 1").await {
            assert_eq!(shown(direct, &client).await, first.cert.der().to_vec());
        }
    };
    timeout(PATIENCE, failed).await.expect("the change is looked at");
    files.write_key(&second);
    let renewed = async { while shown(direct, &client).await != second.cert.der().to_vec() {} };
    timeout(PATIENCE, renewed).await.expect("the pair is taken");
    // Gone by mistake: the pair that was there is shown on.
    std::fs::remove_file(files.certificate()).unwrap();
    let failed = async {
        while !counts(address, "highwater_gateway_tls_reloads_failed_total 2").await {
            assert_eq!(shown(direct, &client).await, second.cert.der().to_vec());
        }
    };
    timeout(PATIENCE, failed).await.expect("the change is looked at");

    world.fill("t", 0, ["still here".to_owned()]).await;
    assert_eq!(events.values(1).await, ["still here"]);
    drop(events);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_speaks_no_tls_is_told_and_who_drips_a_handshake_is_closed() {
    let pair = made();
    let head_timeout = Duration::from_millis(300);
    let world = world(&Files::of(&pair), |settings| Settings { head_timeout, ..settings }).await;
    let address = world.gateway.address();
    let answer = Connection::open(address).await.get("/topics").await;
    assert_eq!(answer.status, 400);
    assert!(answer.body.contains("https://"), "{}", answer.body);
    // One says nothing, one begins a handshake, one goes on byte by byte.
    let mut silent = TcpStream::connect(address).await.unwrap();
    let mut begun = TcpStream::connect(address).await.unwrap();
    begun.write_all(&[0x16, 3, 1, 0x40, 0]).await.unwrap();
    let mut drips = TcpStream::connect(address).await.unwrap();
    let dripping = async {
        for byte in [0x16, 3, 1, 0x40, 0].into_iter().chain(std::iter::repeat(0)) {
            let sent = drips.write_all(&[byte]).await;
            if sent.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, dripping).await.expect("it is closed");
    for stream in [&mut silent, &mut begun] {
        let closed = timeout(PATIENCE, stream.read_to_end(&mut Vec::new())).await;
        assert!(closed.is_ok(), "it is closed");
    }
    let address = tunnel(address, Arc::new(trusting(&[&pair]))).await;
    assert_eq!(
        Connection::open(address).await.get("/topics").await.status,
        200,
        "others are served"
    );
    assert!(counts(address, "highwater_gateway_tls_handshakes_failed_total 4").await);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_connection_too_many_is_told_so_over_tls() {
    let pair = made();
    let world =
        world(&Files::of(&pair), |settings| Settings { connections_max: 1, ..settings }).await;
    let client = Arc::new(trusting(&[&pair]));
    let address = tunnel(world.gateway.address(), client).await;
    let mut last = Connection::open(address).await;
    assert_eq!(last.get("/healthz").await.status, 200);
    let mut one = Connection::open(address).await;
    let answer = one.get("/topics").await;
    assert_eq!((answer.status, answer.header("connection")), (503, Some("close")), "{answer:?}");
    assert!(answer.body.contains("gateway.connections.max"), "{answer:?}");
    assert_eq!(one.closed().await, "");
    // Who speaks no TLS hears of that first.
    let plain = Connection::open(world.gateway.address()).await.get("/topics").await;
    assert!(plain.status == 400 && plain.body.contains("https://"), "{plain:?}");
    assert_eq!(last.get("/healthz").await.status, 200);
    drop(last);
    world.stop().await;
}

/// What waits for a reader that takes nothing is bounded, encrypted bytes included.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_takes_nothing_over_tls_is_closed() {
    let pair = made();
    let events = EventSettings {
        chunk_bytes: 1 << 20,
        blocked_max: Duration::from_millis(500),
        ..EventSettings::default()
    };
    let world = world(&Files::of(&pair), |settings| Settings { events, ..settings }).await;
    world.create("t", 1, &[]).await;
    let client = Arc::new(trusting(&[&pair]));
    let mut stuck = dial(world.gateway.address(), &client).await;
    stuck.write_all(b"GET /topics/t/events HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut head = [0; 15];
    stuck.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200 OK");
    let address = tunnel(world.gateway.address(), client).await;
    let mut quick = EventStream::open(address, "/topics/t/events", None).await;
    quick.next_id().await;
    const COUNT: usize = 12_000;
    let reading = tokio::spawn(async move { quick.values(COUNT).await.len() });
    world.fill("t", 0, (0..COUNT).map(|i| format!("{i:06}{}", "x".repeat(1018)))).await;
    assert_eq!(reading.await.unwrap(), COUNT);
    let mut count = Connection::open(address).await;
    let closed = async {
        while count.get("/api/v1/gateway/events").await.json()["closed_slow"] != 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, closed).await.expect("it is closed");
    drop(stuck);
    world.stop().await;
}

#[test]
fn files_that_cannot_be_used_are_refused_in_words() {
    let (pair, other) = (made(), made());
    let said = |certificate: &[u8], key: &[u8]| {
        let files = Files { dir: tempfile::tempdir().unwrap() };
        std::fs::write(files.certificate(), certificate).unwrap();
        std::fs::write(files.key(), key).unwrap();
        Tls::of_files(&files.certificate(), &files.key()).unwrap_err().to_string()
    };
    let (certificate, key) = (pair.cert.pem(), pair.signing_key.serialize_pem());
    let locked =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMII=\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let broken = certificate.replace("-----END", "!");
    for (words, certificate, key) in [
        ("there is no certificate in PEM", "", &*key),
        ("there is no certificate in PEM", "\0\u{1}garbage", &*key),
        ("gateway.pem", &*broken, &*key),
        ("there is no private key in PEM", &*certificate, &*certificate),
        ("openssl pkey", &*certificate, locked),
        ("cannot be used together", &*certificate, &*other.signing_key.serialize_pem()),
    ] {
        let said = said(certificate.as_bytes(), key.as_bytes());
        assert!(said.contains(words), "{said}");
        assert!(!said.contains(key.lines().nth(1).unwrap_or("none")), "no key is shown");
    }
    let files = Files::of(&pair);
    let missing = files.dir.path().join("none.pem");
    let said = Tls::of_files(&missing, &files.key()).unwrap_err().to_string();
    assert!(said.contains("none.pem") && said.contains("No such file"), "{said}");
    // Both in one file, in either order.
    for both in [format!("{certificate}{key}"), format!("{key}{certificate}")] {
        std::fs::write(files.certificate(), both).unwrap();
        Tls::of_files(&files.certificate(), &files.certificate()).unwrap();
    }
}
