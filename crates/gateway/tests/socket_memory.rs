//! Idle WebSockets keep at most the memory that they are charged: one test alone in its process, so that the heap's
//! growth is theirs.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

mod settings;

use std::net::SocketAddr;

use broker::RunningBroker;
use client::admin::NewTopic;
use client::{Admin, Cluster, ClusterConfig};
use configuration::BrokerConfig;
use gateway::{Gateway, Settings};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use settings::PATIENCE;

/// Of this, WebSockets have a quarter.
const MEMORY_BYTES: usize = 24 << 20;
const POOL_BYTES: usize = MEMORY_BYTES / 4;

async fn broker(dir: &TempDir) -> RunningBroker {
    let config = BrokerConfig::from_pairs([
        ("log.dirs", dir.path().to_str().unwrap()),
        ("listeners", "PLAINTEXT://127.0.0.1:0"),
        ("http.listener", ""),
        ("gateway.listener", ""),
    ]);
    broker::start(config.unwrap()).await.unwrap()
}

fn gateway(bootstrap: &str) -> Gateway {
    settings::open(Settings { memory_bytes: MEMORY_BYTES, ..settings::settings(bootstrap) })
}

/// A socket, or the status of the refusal.
async fn open(address: SocketAddr, target: &str) -> Result<TcpStream, u16> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "GET {target} HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut status = [0; 12];
    timeout(PATIENCE, stream.read_exact(&mut status)).await.expect("an answer").unwrap();
    match std::str::from_utf8(&status[9..]).unwrap().parse().unwrap() {
        101 => Ok(stream),
        status => Err(status),
    }
}

/// Opens sockets until the gateway refuses one. Returns the sockets and the heap's growth in bytes.
async fn fill(address: SocketAddr, target: &str) -> (Vec<TcpStream>, usize) {
    // The first reader of a topic makes what all readers share.
    let first = open(address, target).await.expect(target);
    let before = heap::allocated_bytes();
    let mut sockets = vec![first];
    loop {
        match open(address, target).await {
            Ok(socket) => sockets.push(socket),
            Err(status) => {
                assert_eq!(status, 429);
                break;
            }
        }
        assert!(sockets.len() < 500, "sockets are charged");
    }
    let grown = heap::allocated_bytes().saturating_sub(before);
    (sockets, grown)
}

/// Bytes of a large message.
const LARGE_BYTES: usize = 900 << 10;
/// Bytes that a socket may keep at rest.
const SOCKET_BYTES_MAX: usize = 64 << 10;

/// A text from a client (RFC 6455, 5.2), with a mask of zeros.
fn masked(text: &str) -> Vec<u8> {
    let length = (text.len() as u64).to_be_bytes();
    [&[0x81, 0x80 | 127], &length[..], &[0; 4], text.as_bytes()].concat()
}

/// Reads so many bytes, and perhaps more.
async fn read_bytes(stream: &mut TcpStream, bytes_min: usize) {
    let (mut buffer, mut count) = (vec![0; 64 * 1024], 0);
    while count < bytes_min {
        let read =
            timeout(PATIENCE, stream.read(&mut buffer)).await.expect("bytes in time").unwrap();
        assert!(read > 0, "closed after {count} bytes");
        count += read;
    }
}

/// Sockets that had a large message in each direction keep no memory of its size. Without a gateway and a broker, which keep
/// memory of their own.
async fn large_messages_leave_no_memory_behind() {
    const SOCKETS: usize = 6;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let echoes = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(gateway::echo(stream, 1 << 20));
        }
    });
    let message = masked(&"v".repeat(LARGE_BYTES));
    let (mut sockets, mut before) = (Vec::new(), 0);
    for at in 0..=SOCKETS {
        let mut socket = open(address, "/").await.expect("a socket");
        socket.write_all(&message).await.unwrap();
        read_bytes(&mut socket, LARGE_BYTES).await;
        sockets.push(socket);
        if at == 0 {
            before = heap::allocated_bytes();
        }
    }
    let returned = async {
        while heap::allocated_bytes() > before + SOCKETS * SOCKET_BYTES_MAX {
            tokio::task::yield_now().await;
        }
    };
    // Behind 45 s these sockets are closed, because nothing answers pings.
    let is_returned = timeout(PATIENCE / 2, returned).await.is_ok();
    let kept = heap::allocated_bytes().saturating_sub(before);
    println!("{kept} bytes more with {SOCKETS} sockets after large messages");
    assert!(is_returned, "{kept} bytes");
    echoes.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_sockets_keep_at_most_the_memory_that_they_are_charged() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(&dir).await;
    let bootstrap = broker.listeners()[0].to_string();
    let cluster = Cluster::connect(ClusterConfig::new(&bootstrap)).await.unwrap();
    let admin = Admin::new(cluster.clone());
    for (topic, partitions) in [("t", 1), ("wide", 256)] {
        admin.create_topic(&NewTopic::new(topic, partitions, 1)).await.unwrap();
    }
    for target in [
        "/ws/topics/t",
        "/ws/topics/wide",
        "/ws/topics/wide?filter=key:a",
        "/ws/v2/producer/persistent/public/default/t",
    ] {
        let gateway = gateway(&bootstrap);
        let (sockets, grown) = fill(gateway.address(), target).await;
        let count = sockets.len();
        println!("{target}: {count} sockets, {} bytes each", grown / count);
        assert!(grown <= POOL_BYTES, "{target}: {grown} bytes are kept, {POOL_BYTES} charged");
        drop(sockets);
        gateway.stop().await;
    }
    broker.stop_within(PATIENCE).await;
    large_messages_leave_no_memory_behind().await;
}
