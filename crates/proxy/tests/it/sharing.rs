//! One address fills places or memory in the cheapest way; clients of another address are served.

use crate::server::{NODE, Raw, Server, echo, next_frame};
use proxy::{Proxy, ProxyConfig};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;
use wire::metadata::MetadataRequestTopic;
use wire::{ApiKey, MetadataRequest, MetadataResponse};

const MIB: usize = 1 << 20;
/// How long anything may take on a machine that is busy with much else.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client of another address than all others.
async fn other(proxy: &Proxy) -> Raw {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let at: SocketAddr = proxy.bootstrap().parse().unwrap();
    Raw(socket.connect(at).await.unwrap())
}

/// Every request that the stub serves: an echo, a large one, and the addresses of brokers.
async fn is_served(client: &mut Raw) {
    tokio::time::timeout(PATIENCE, ask_all(client)).await.expect("answers in time");
}

async fn ask_all(client: &mut Raw) {
    client.send_echo(1, 10).await;
    assert_eq!(client.answered().await, 1);
    client.send_echo(2, MIB).await;
    assert_eq!(client.answer().await.unwrap().len(), 4 + MIB);
    client.send(&MetadataRequest::default(), 12, 3).await;
    let (id, metadata): (_, MetadataResponse) = client.message(ApiKey::Metadata, 12).await;
    assert_eq!((id, metadata.brokers[0].node_id), (3, NODE));
}

#[tokio::test]
async fn an_address_with_all_places_gives_half_to_another_one() {
    let server = Server::start().await;
    let config = ProxyConfig { connections_max: 8, ..ProxyConfig::new(&server.address) };
    let proxy = Proxy::start(config).await.unwrap();
    let mut hog = Vec::new();
    for id in 0..8 {
        let mut client = Raw::connect(proxy.bootstrap()).await;
        client.send_echo(id, 10).await;
        assert_eq!(client.answered().await, id);
        hog.push(client);
    }
    assert!(Raw::connect(proxy.bootstrap()).await.answer().await.is_none(), "it has all places");
    let mut others = Vec::new();
    for _ in 0..4 {
        let mut client = other(&proxy).await;
        is_served(&mut client).await;
        others.push(client);
    }
    assert!(other(&proxy).await.answer().await.is_none(), "both have four");
    let traffic = proxy.traffic();
    assert_eq!((traffic.refused_connections, traffic.evicted_connections), (2, 4));
    for (at, client) in hog.iter_mut().enumerate() {
        if at < 4 {
            assert!(client.answer().await.is_none(), "{at}: it was silent for longest");
        } else {
            is_served(client).await;
        }
    }
}

#[tokio::test]
async fn unread_answers_of_one_address_are_bounded_and_leave_room_to_another_one() {
    let server = Server::start().await;
    let max = 8 * MIB;
    let config = ProxyConfig { memory_bytes_max: max, ..ProxyConfig::new(&server.address) };
    let proxy = Proxy::start(config).await.unwrap();
    let memory = proxy.memory();
    let mut hog = JoinSet::new();
    for _ in 0..60 {
        let mut client = Raw::connect(proxy.bootstrap()).await;
        hog.spawn(async move {
            for id in 0..20 {
                // The write waits while the proxy has no memory, and fails when its connection is revoked.
                let _ = client.0.write_all(&echo(id, 400_000)).await;
            }
            std::future::pending::<()>().await;
        });
    }
    // The proxy holds its whole bound, less one piece of each connection.
    while memory.used_bytes() < max - MIB {
        assert!(memory.used_bytes() <= max + MIB);
        tokio::task::yield_now().await;
    }
    let mut client = other(&proxy).await;
    is_served(&mut client).await;
    assert!(memory.used_bytes() <= max + MIB, "{}", memory.used_bytes());
    drop((hog, client));
    while memory.used_bytes() > 0 {
        tokio::task::yield_now().await;
    }
}

/// A broker holds memory for a large answer until it is read: the proxy reads answers although their client does not.
#[tokio::test]
async fn a_broker_is_rid_of_answers_that_a_client_does_not_read() {
    /// More than the sockets' buffers take.
    const ANSWERS: usize = 40;
    let server = Server::start().await;
    let proxy = Proxy::start(ProxyConfig::new(&server.address)).await.unwrap();
    let name = |n: usize| MetadataRequestTopic {
        name: Some(format!("{n:030000}")),
        ..MetadataRequestTopic::default()
    };
    // As large as its answer.
    let large = MetadataRequest {
        topics: Some((0..MIB / 30_000).map(name).collect()),
        ..MetadataRequest::default()
    };
    let mut client = Raw::connect(proxy.bootstrap()).await;
    let relieved = async {
        client.send_all(&vec![large; ANSWERS], 9, 0).await;
        while server.answered.load(Ordering::SeqCst) < ANSWERS {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, relieved).await.expect("the proxy reads the answers");
    assert!(proxy.memory().used_bytes() > ANSWERS / 2 * MIB);
    let mut other = other(&proxy).await;
    is_served(&mut other).await;
}

#[tokio::test]
async fn clients_that_send_nothing_or_half_a_request_are_closed_and_idle_ones_are_kept() {
    let broker = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = ProxyConfig {
        silence_max: Duration::from_millis(300),
        ..ProxyConfig::new(&broker.local_addr().unwrap().to_string())
    };
    let proxy = Proxy::start(config).await.unwrap();
    let mut idle = Raw::connect(proxy.bootstrap()).await;
    idle.send_echo(1, 10).await;
    let (mut for_idle, _) = broker.accept().await.unwrap();
    next_frame(&mut for_idle).await.unwrap();
    let mut silent = Raw::connect(proxy.bootstrap()).await;
    let closed = tokio::time::timeout(PATIENCE, silent.answer()).await;
    assert!(closed.expect("closed in time").is_none());
    let half: [&[u8]; 3] = [
        &[0],
        // Metadata without its last bytes.
        &[0, 0, 0, 12, 0, 3, 0, 1, 0, 0, 0, 1, 0],
        // A produce request of which the client id is incomplete.
        &[0, 0, 0, 99, 0, 0, 0, 9, 0, 0, 0, 1, 0, 9, b'x', b'x'],
    ];
    for bytes in half {
        let mut client = Raw::connect(proxy.bootstrap()).await;
        client.0.write_all(bytes).await.unwrap();
        // It may send its bytes one by one: the front of the first request is due at one time.
        let closed = tokio::time::timeout(PATIENCE, client.answer()).await;
        assert!(closed.expect("closed in time").is_none(), "{bytes:?}");
    }
    // Its request waits for an answer for longer than the others were silent.
    for_idle.write_all(&[0, 0, 0, 5, 0, 0, 0, 1, 9]).await.unwrap();
    assert_eq!(idle.answered().await, 1);
    for _ in 0..half.len() {
        broker.accept().await.unwrap();
    }
    let more = tokio::time::timeout(Duration::from_millis(50), broker.accept()).await;
    assert!(more.is_err(), "a client that sends nothing takes no connection of the broker");
    assert_eq!(proxy.traffic().client_errors, 4);
}
