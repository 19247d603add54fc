//! What goes through, in what order, and what a frame that is none costs.

use crate::server::{ECHO, NODE, Raw, Server, dead_address, echo};
use proxy::{Proxy, ProxyConfig, ProxyError, Shape};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use wire::{
    ApiKey, ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse,
    ProduceRequest,
};

/// Addresses of this machine at which nobody listens but one test each: a port that was given up there
/// stays free.
const STOPPING_HOST: &str = "127.52.0.1";
const FIXED_HOST: &str = "127.52.0.2";

async fn plain(server: &Server) -> Proxy {
    Proxy::start(ProxyConfig::new(&server.address)).await.unwrap()
}

#[tokio::test]
async fn brokers_are_named_by_ports_of_the_proxy_that_lead_to_them() {
    let server = Server::start().await;
    let proxy = plain(&server).await;
    let mut client = Raw::connect(proxy.bootstrap()).await;
    client.send(&MetadataRequest::default(), 12, 7).await;
    let (id, metadata): (_, MetadataResponse) = client.message(ApiKey::Metadata, 12).await;
    let broker = &metadata.brokers[0];
    assert_eq!((id, broker.node_id, broker.host.as_str()), (7, NODE, "127.0.0.1"));
    assert_eq!(proxy.node_ports()[&NODE], broker.port as u16);
    assert!(!server.address.ends_with(&format!(":{}", broker.port)));
    let mut direct = Raw::connect(&format!("127.0.0.1:{}", broker.port)).await;
    direct.send_echo(1, 10).await;
    assert_eq!(direct.answered().await, 1);
    proxy.stop().await;
}

#[tokio::test]
async fn a_broker_keeps_its_port_when_others_ask() {
    let server = Server::start().await;
    let proxy = plain(&server).await;
    let mut ports = Vec::new();
    for _ in 0..2 {
        let mut client = Raw::connect(proxy.bootstrap()).await;
        client.send(&MetadataRequest::default(), 4, 7).await;
        let (_, metadata): (_, MetadataResponse) = client.message(ApiKey::Metadata, 4).await;
        ports.push(metadata.brokers[0].port);
    }
    assert_eq!(ports[0], ports[1]);
}

#[tokio::test]
async fn requests_in_flight_are_answered_in_their_order() {
    let server = Server::start().await;
    let proxy = plain(&server).await;
    let mut client = Raw::connect(proxy.bootstrap()).await;
    let mut all = Vec::new();
    for id in 0..200 {
        all.extend(echo(id, 1000 * (id as usize % 30)));
    }
    let (mut reading, mut writing) = client.0.into_split();
    let sent = tokio::spawn(async move { writing.write_all(&all).await.map(|()| writing) });
    for id in 0..200 {
        let mut frame = echo(id, 1000 * (id as usize % 30));
        frame.drain(4..8);
        let length = frame.len() as i32 - 4;
        frame[..4].copy_from_slice(&length.to_be_bytes());
        let mut is = vec![0; frame.len()];
        tokio::io::AsyncReadExt::read_exact(&mut reading, &mut is).await.unwrap();
        assert!(is == frame, "answer {id} has other bytes");
    }
    client = Raw(sent.await.unwrap().unwrap().reunite(reading).unwrap());
    drop(client);
    let traffic = proxy.traffic();
    assert_eq!(traffic.apis[0].requests, 200);
    assert_eq!(traffic.apis[0].responses, 200);
    let bytes: u64 = (0..200).map(|id| echo(id, 1000 * (id as usize % 30)).len() as u64).sum();
    assert_eq!(traffic.apis[0].request_bytes, bytes);
    assert_eq!(traffic.apis[0].response_bytes, bytes - 200 * 4);
}

#[tokio::test]
async fn frames_larger_than_what_is_held_go_through() {
    let server = Server::start().await;
    let config = ProxyConfig { held_bytes_max: 1000, ..ProxyConfig::new(&server.address) };
    let proxy = Proxy::start(config).await.unwrap();
    let mut client = Raw::connect(proxy.bootstrap()).await;
    client.send_echo(1, 20_000_000).await;
    let answer = client.answer().await.unwrap();
    assert!(answer[4..] == echo(1, 20_000_000)[12..]);
}

#[tokio::test]
async fn a_request_without_an_answer_does_not_shift_the_answers() {
    let server = Server::start().await;
    let proxy = plain(&server).await;
    let mut client = Raw::connect(proxy.bootstrap()).await;
    let unanswered = ProduceRequest { acks: 0, ..ProduceRequest::default() };
    client.send(&unanswered, 9, 1).await;
    client.send(&MetadataRequest::default(), 12, 2).await;
    let (id, metadata): (_, MetadataResponse) = client.message(ApiKey::Metadata, 12).await;
    assert_eq!((id, metadata.brokers.len()), (2, 1));
}

#[tokio::test]
async fn a_question_about_versions_from_the_future_is_answered_here() {
    let server = Server::start().await;
    let proxy = plain(&server).await;
    let mut client = Raw::connect(proxy.bootstrap()).await;
    let mut writer = wire::Writer::new();
    let question = ApiVersionsRequest::default();
    wire::frame::write_request(&mut writer, &question, 4, 3, Some("raw")).unwrap();
    writer.buffer()[6..8].copy_from_slice(&99i16.to_be_bytes());
    client.0.write_all(writer.bytes()).await.unwrap();
    client.send_echo(4, 10).await;
    let (id, versions): (_, ApiVersionsResponse) = client.message(ApiKey::ApiVersions, 0).await;
    assert_eq!((id, versions.error_code, versions.api_keys.len()), (3, 35, 1));
    assert_eq!(client.answered().await, 4);
}

#[tokio::test]
async fn a_frame_that_is_none_costs_its_connection_and_no_other() {
    let server = Server::start().await;
    let proxy = plain(&server).await;
    let mut good = Raw::connect(proxy.bootstrap()).await;
    let garbage: [&[u8]; 3] = [
        &[0xff; 100],
        &[0, 0, 0, 3, 0, 0, 0],
        // A produce request that ends within its client id.
        &[0, 0, 0, 12, 0, 0, 0, 9, 0, 0, 0, 1, 0, 9, b'x', b'x'],
    ];
    for bytes in garbage {
        let mut bad = Raw::connect(proxy.bootstrap()).await;
        bad.0.write_all(bytes).await.unwrap();
        assert!(bad.answer().await.is_none());
    }
    good.send_echo(1, 10).await;
    assert_eq!(good.answered().await, 1);
    assert_eq!(proxy.traffic().client_errors, 3);
}

#[tokio::test]
async fn a_version_that_was_not_offered_breaks_the_connection() {
    let server = Server::start().await;
    let proxy = plain(&server).await;
    let mut client = Raw::connect(proxy.bootstrap()).await;
    // Metadata, version 99.
    client.0.write_all(&[0, 0, 0, 8, 0, 3, 0, 99, 0, 0, 0, 1]).await.unwrap();
    assert!(client.answer().await.is_none());
}

#[tokio::test]
async fn a_broker_that_reads_no_further_stops_the_client() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = ProxyConfig::new(&listener.local_addr().unwrap().to_string());
    let proxy = Proxy::start(config).await.unwrap();
    let client = TcpStream::connect(proxy.bootstrap()).await.unwrap();
    let mut chunk = vec![0; 1 << 20];
    chunk[..4].copy_from_slice(&1_000_000_000i32.to_be_bytes());
    chunk[4..6].copy_from_slice(&ECHO.to_be_bytes());
    let mut sent = 0;
    // What the sockets and the proxy hold is far less than the frame.
    while let Ok(ready) = tokio::time::timeout(Duration::from_millis(500), client.writable()).await
    {
        ready.unwrap();
        // Behind the head, the bytes mean nothing.
        sent += client.try_write(&chunk[if sent == 0 { 0 } else { 100 }..]).unwrap_or(0);
        assert!(sent < 100_000_000, "{sent} bytes went nowhere");
    }
}

#[tokio::test]
async fn a_broker_that_closes_closes_the_client() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = ProxyConfig::new(&listener.local_addr().unwrap().to_string());
    let proxy = Proxy::start(config).await.unwrap();
    let mut client = Raw::connect(proxy.bootstrap()).await;
    client.send_echo(1, 10).await;
    let (broker, _) = listener.accept().await.unwrap();
    drop(broker);
    assert!(client.answer().await.is_none());
}

#[tokio::test]
async fn a_stopped_proxy_has_no_connection_and_no_listener_left() {
    let server = Server::start().await;
    let listen_host = STOPPING_HOST.to_owned();
    let config = ProxyConfig { listen_host, ..ProxyConfig::new(&server.address) };
    let proxy = Proxy::start(config).await.unwrap();
    let bootstrap = proxy.bootstrap().to_owned();
    let mut client = Raw::connect(&bootstrap).await;
    client.send(&MetadataRequest::default(), 12, 7).await;
    client.answered().await;
    let node = proxy.node_ports()[&NODE];
    let counters = proxy.counters();
    proxy.stop().await;
    assert!(client.answer().await.is_none());
    assert!(TcpStream::connect(&bootstrap).await.is_err());
    assert!(TcpStream::connect((STOPPING_HOST, node)).await.is_err());
    assert_eq!(counters.traffic().open_connections, 0);
}

#[tokio::test]
async fn the_next_bootstrap_address_is_tried_when_one_is_dead() {
    let (dead, _held) = dead_address();
    let server = Server::start().await;
    let config = ProxyConfig::new(&format!("{dead}, {}", server.address));
    let proxy = Proxy::start(config).await.unwrap();
    for id in 0..3 {
        let mut client = Raw::connect(proxy.bootstrap()).await;
        client.send_echo(id, 10).await;
        assert_eq!(client.answered().await, id);
    }
}

#[tokio::test]
async fn fixed_ports_follow_the_brokers_ids() {
    let server = Server::start().await;
    // Two free ports, given up again: for the bootstrap listener and for the broker with id 4.
    let listen = || TcpListener::bind((FIXED_HOST, 0));
    let held = [listen().await.unwrap(), listen().await.unwrap()];
    let [bootstrap_port, free] = held.map(|listener| listener.local_addr().unwrap().port());
    let config = ProxyConfig {
        listen_host: FIXED_HOST.to_owned(),
        bootstrap_port,
        node_start_port: Some(free - NODE as u16),
        ..ProxyConfig::new(&server.address)
    };
    let proxy = Proxy::start(config).await.unwrap();
    let mut client = Raw::connect(proxy.bootstrap()).await;
    client.send(&MetadataRequest::default(), 12, 7).await;
    client.answered().await;
    assert_eq!(proxy.node_ports()[&NODE], free);
}

#[tokio::test]
async fn faulty_configurations_are_refused() {
    let nobody = Proxy::start(ProxyConfig::new("")).await;
    assert!(matches!(nobody, Err(ProxyError::Usage(_))));
    let mut config = ProxyConfig::new("127.0.0.1:1");
    config.shape = Shape::rtt(-1.0);
    assert!(matches!(Proxy::start(config).await, Err(ProxyError::Usage(_))));
    let mut config = ProxyConfig::new("127.0.0.1:1");
    config.listen_host = "203.0.113.1".to_owned();
    assert!(matches!(Proxy::start(config).await, Err(ProxyError::Listen { .. })));
}
