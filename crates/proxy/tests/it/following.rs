//! Brokers that move, connections that are too many, and an end that finishes what was asked.

use crate::server::{NODE, Raw, Server, echo, next_frame};
use proxy::{Proxy, ProxyConfig};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use wire::{ApiKey, MetadataRequest, MetadataResponse, ProduceRequest};

/// Longer than any test.
const NEVER: Duration = Duration::from_secs(3600);

/// Where the proxy says that the broker is.
async fn node_address(client: &mut Raw) -> String {
    client.send(&MetadataRequest::default(), 12, 7).await;
    let (_, metadata): (_, MetadataResponse) = client.message(ApiKey::Metadata, 12).await;
    format!("127.0.0.1:{}", metadata.brokers[0].port)
}

async fn answers(client: &mut Raw, id: i32) {
    client.send_echo(id, 10).await;
    assert_eq!(client.answered().await, id);
}

#[tokio::test]
async fn connections_to_a_broker_that_moved_are_closed_and_new_ones_find_it() {
    let (first, second) = (Server::start().await, Server::start().await);
    let upstream = format!("{},{}", first.address, second.address);
    let proxy = Proxy::start(ProxyConfig::new(&upstream)).await.unwrap();
    // The first connection goes to the first address, the second one to the second.
    let mut at_first = Raw::connect(proxy.bootstrap()).await;
    let address = node_address(&mut at_first).await;
    let mut old = Raw::connect(&address).await;
    answers(&mut old, 1).await;

    let mut at_second = Raw::connect(proxy.bootstrap()).await;
    assert_eq!(node_address(&mut at_second).await, address, "clients see no change");
    assert!(old.answer().await.is_none(), "what led to the old address is closed");
    let mut new = Raw::connect(&address).await;
    new.send(&ProduceRequest { acks: -1, ..ProduceRequest::default() }, 9, 2).await;
    assert_eq!(new.answered().await, 2);
    assert_eq!(first.produced.lock().unwrap().len(), 0);
    assert_eq!(second.produced.lock().unwrap().len(), 1);

    assert_eq!(node_address(&mut at_second).await, address);
    answers(&mut new, 3).await;
    answers(&mut at_first, 4).await;
}

#[tokio::test]
async fn a_broker_has_its_port_before_a_client_asks_and_is_looked_for_when_it_is_gone() {
    let (first, second) = (Server::start().await, Server::start().await);
    let upstream = format!("{},{}", first.address, second.address);
    let config = ProxyConfig { asks_every: Some(NEVER), ..ProxyConfig::new(&upstream) };
    let proxy = Proxy::start(config).await.unwrap();
    let port = loop {
        match proxy.node_ports().get(&NODE) {
            Some(port) => break *port,
            None => tokio::task::yield_now().await,
        }
    };
    let address = format!("127.0.0.1:{port}");
    let gone = first.address.clone();
    drop(first);
    while TcpStream::connect(&gone).await.is_ok() {
        tokio::task::yield_now().await;
    }
    // Each failure is a reason to ask the others.
    let mut closed = 0;
    loop {
        let mut client = Raw::connect(&address).await;
        // A connection that is closed already may refuse what is written.
        let _ = client.0.write_all(&echo(5, 10)).await;
        match client.answer().await {
            Some(answer) => break assert_eq!(answer[..4], [0, 0, 0, 5]),
            None => closed += 1,
        }
    }
    assert!(closed > 0, "the first one found no broker");
    assert_eq!(proxy.node_ports()[&NODE], port);
    drop(second);
}

#[tokio::test]
async fn connections_above_the_limit_are_closed_and_counted() {
    let server = Server::start().await;
    let config = ProxyConfig { connections_max: 2, ..ProxyConfig::new(&server.address) };
    let proxy = Proxy::start(config).await.unwrap();
    let mut first = Raw::connect(proxy.bootstrap()).await;
    let mut second = Raw::connect(&node_address(&mut first).await).await;
    answers(&mut second, 1).await;
    for _ in 0..3 {
        assert!(Raw::connect(proxy.bootstrap()).await.answer().await.is_none());
    }
    assert_eq!(proxy.traffic().refused_connections, 3);
    answers(&mut first, 2).await;
    drop(second);
    while proxy.traffic().open_connections > 1 {
        tokio::task::yield_now().await;
    }
    // Its permit is given back just behind its count.
    loop {
        let mut next = Raw::connect(proxy.bootstrap()).await;
        let _ = next.0.write_all(&echo(3, 10)).await;
        if next.answer().await.is_some() {
            break;
        }
    }
}

#[tokio::test]
async fn a_drain_finishes_the_answers_that_were_asked_for_and_begins_nothing() {
    let broker = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = ProxyConfig::new(&broker.local_addr().unwrap().to_string());
    let proxy = Proxy::start(config).await.unwrap();
    let bootstrap = proxy.bootstrap().to_owned();
    let mut idle = Raw::connect(&bootstrap).await;
    idle.send_echo(1, 10).await;
    let (mut for_idle, _) = broker.accept().await.unwrap();
    next_frame(&mut for_idle).await.unwrap();
    for_idle.write_all(&[0, 0, 0, 5, 0, 0, 0, 1, 9]).await.unwrap();
    assert_eq!(idle.answered().await, 1);
    let mut client = Raw::connect(&bootstrap).await;
    client.send_echo(1, 10).await;
    let (mut at_broker, _) = broker.accept().await.unwrap();
    next_frame(&mut at_broker).await.unwrap();
    client.send_echo(2, 10).await;
    next_frame(&mut at_broker).await.unwrap();
    let draining = tokio::spawn(proxy.drain(NEVER));
    assert!(idle.answer().await.is_none(), "an idle connection is closed");
    assert!(TcpStream::connect(&bootstrap).await.is_err(), "no further connection is taken");
    client.send_echo(3, 10).await;
    for id in [1, 2] {
        assert!(!draining.is_finished());
        at_broker.write_all(&[0, 0, 0, 5, 0, 0, 0, id, 9]).await.unwrap();
        assert_eq!(client.answered().await, i32::from(id));
    }
    draining.await.unwrap();
    assert!(client.answer().await.is_none());
    assert!(next_frame(&mut at_broker).await.is_none(), "the third request did not begin");
}

/// Several threads, for a listener and connections to end at the same time; and many clients that come
/// again at once: that one is taken in between is a matter of microseconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_client_whose_connection_is_drained_finds_no_listener() {
    let server = Server::start().await;
    for round in 0..40 {
        let proxy = Proxy::start(ProxyConfig::new(&server.address)).await.unwrap();
        let mut clients = tokio::task::JoinSet::new();
        for id in 0..50 {
            let bootstrap = proxy.bootstrap().to_owned();
            let mut idle = Raw::connect(&bootstrap).await;
            idle.send_echo(id, 10).await;
            assert_eq!(idle.answered().await, id);
            clients.spawn(async move {
                assert!(idle.answer().await.is_none());
                TcpStream::connect(bootstrap).await.is_ok()
            });
        }
        proxy.drain(NEVER).await;
        let taken = clients.join_all().await.into_iter().filter(|is_taken| *is_taken).count();
        assert_eq!(taken, 0, "round {round}");
    }
}

#[tokio::test]
async fn a_drain_does_not_wait_for_a_broker_that_says_nothing() {
    let broker = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = ProxyConfig::new(&broker.local_addr().unwrap().to_string());
    let proxy = Proxy::start(config).await.unwrap();
    let mut client = Raw::connect(proxy.bootstrap()).await;
    client.send_echo(1, 10).await;
    let (mut silent, _) = broker.accept().await.unwrap();
    next_frame(&mut silent).await.unwrap();
    proxy.drain(Duration::from_millis(100)).await;
    assert!(client.answer().await.is_none());
}
