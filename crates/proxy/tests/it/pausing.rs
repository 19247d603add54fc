//! Pauses: no request begins, and those in flight are answered before.

use crate::produce_faults::{VERSION, request, values};
use crate::rules::{injector, rule};
use crate::server::{Raw, Server, echo, next_frame};
use proxy::fault_injection::{FaultAction, Occurrence};
use proxy::{Proxy, ProxyConfig};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use wire::{ApiKey, FetchRequest};

/// Time limit of each wait.
const LIMIT: Duration = Duration::from_secs(60);
/// Turns that other tasks get before a test observes that nothing has happened.
const TURNS: usize = 2000;

async fn start(upstream: &str) -> Proxy {
    let config = ProxyConfig { can_pause: true, ..ProxyConfig::new(upstream) };
    Proxy::start(config).await.unwrap()
}

/// A server that answers echo requests when it is released. Returns its address.
async fn slow_server(released: Arc<Notify>, arrived: Arc<Notify>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        while let Some(frame) = next_frame(&mut stream).await {
            arrived.notify_one();
            released.notified().await;
            let answer = &frame[4..];
            stream.write_all(&(answer.len() as i32).to_be_bytes()).await.unwrap();
            stream.write_all(answer).await.unwrap();
        }
    });
    address
}

async fn reached(server: &Server, wanted: &[&str]) {
    let start = Instant::now();
    while values(server) != wanted {
        assert!(start.elapsed() < LIMIT, "{:?} instead of {wanted:?}", values(server));
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn requests_of_a_pause_reach_the_broker_behind_it() {
    let server = Server::start().await;
    let proxy = start(&server.address).await;
    let gate = proxy.gate().unwrap();
    let mut client = Raw::connect(proxy.bootstrap()).await;
    client.send_echo(1, 10).await;
    assert_eq!(client.answered().await, 1);
    let pause = gate.pause(LIMIT).await.unwrap();
    client.send_echo(2, 300_000).await;
    // One that is connected during the pause.
    let mut other = Raw::connect(proxy.bootstrap()).await;
    other.send_echo(3, 10).await;
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
    }
    assert_eq!(server.answered.load(Ordering::SeqCst), 1);
    drop(pause);
    assert_eq!(client.answered().await, 2);
    assert_eq!(other.answered().await, 3);
    drop(gate.pause(LIMIT).await.unwrap());
    client.send_echo(4, 10).await;
    assert_eq!(client.answered().await, 4);
}

#[tokio::test]
async fn a_pause_waits_for_the_answers_to_requests_in_flight() {
    let (released, arrived) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let proxy = start(&slow_server(released.clone(), arrived.clone()).await).await;
    let gate = proxy.gate().unwrap();
    let mut client = Raw::connect(proxy.bootstrap()).await;
    client.send_echo(1, 10).await;
    arrived.notified().await;
    let outstanding = gate.pause(Duration::from_millis(20)).await.unwrap_err();
    assert_eq!(outstanding.requests, 1);
    // A pause that did not begin holds nothing back.
    client.send_echo(2, 10).await;
    released.notify_one();
    assert_eq!(client.answered().await, 1);
    arrived.notified().await;
    let release = async {
        tokio::task::yield_now().await;
        released.notify_one();
    };
    let (pause, ()) = tokio::join!(gate.pause(LIMIT), release);
    assert_eq!(client.answered().await, 2);
    drop(pause.unwrap());
}

#[tokio::test]
async fn a_request_behind_one_in_flight_waits_for_the_end_of_a_pause() {
    let server = Server::start().await;
    let proxy = start(&server.address).await;
    let gate = proxy.gate().unwrap();
    let mut client = Raw::connect(proxy.bootstrap()).await;
    let requests = [echo(1, 100_000), echo(2, 10)].concat();
    let (front, rest) = requests.split_at(50_000);
    client.0.write_all(front).await.unwrap();
    // A pause that cannot begin shows that the request has begun.
    while gate.pause(Duration::from_millis(1)).await.is_ok() {
        tokio::task::yield_now().await;
    }
    let (pause, written) = tokio::join!(gate.pause(LIMIT), client.0.write_all(rest));
    let (pause, ()) = (pause.unwrap(), written.unwrap());
    assert_eq!(client.answered().await, 1);
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
    }
    assert_eq!(server.answered.load(Ordering::SeqCst), 1);
    drop(pause);
    assert_eq!(client.answered().await, 2);
}

#[tokio::test]
async fn a_pause_does_not_wait_for_a_fetch_that_waits_for_records() {
    let (released, arrived) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let proxy = start(&slow_server(released, arrived.clone()).await).await;
    let mut client = Raw::connect(proxy.bootstrap()).await;
    client.send(&FetchRequest::default(), 12, 1).await;
    arrived.notified().await;
    drop(proxy.gate().unwrap().pause(LIMIT).await.unwrap());
}

#[tokio::test]
async fn a_request_whose_client_has_left_is_not_lost_in_a_pause() {
    let server = Server::start().await;
    let proxy = start(&server.address).await;
    let gate = proxy.gate().unwrap();
    let mut client = Raw::connect(proxy.bootstrap()).await;
    client.send(&request("a", -1), VERSION, 1).await;
    assert!(client.answer().await.is_some());
    let pause = gate.pause(LIMIT).await.unwrap();
    client.send(&request("b", 0), VERSION, 2).await;
    drop(client);
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
    }
    assert_eq!(values(&server), ["a"]);
    drop(pause);
    reached(&server, &["a", "b"]).await;
}

#[tokio::test]
async fn a_request_that_a_fault_delays_waits_for_the_end_of_a_pause() {
    let server = Server::start().await;
    let delay = FaultAction::Delay { ms: 5 };
    let rule = proxy::fault_injection::FaultRule {
        occurrence: Occurrence::Once,
        ..rule(ApiKey::Produce, delay)
    };
    let faults = injector(std::slice::from_ref(&rule));
    let delaying =
        |faults| ProxyConfig { faults: Some(faults), ..ProxyConfig::new(&server.address) };
    let config = ProxyConfig { can_pause: true, ..delaying(faults.clone()) };
    let proxy = Proxy::start(config).await.unwrap();
    let other_proxy = Proxy::start(delaying(injector(&[rule]))).await.unwrap();
    let gate = proxy.gate().unwrap();
    let mut client = Raw::connect(proxy.bootstrap()).await;
    client.send(&request("a", -1), VERSION, 1).await;
    let start = Instant::now();
    while faults.status()[0].faults == 0 {
        assert!(start.elapsed() < LIMIT, "the rule fires");
        tokio::task::yield_now().await;
    }
    let pause = gate.pause(LIMIT).await.unwrap();
    let before = values(&server);
    // A request that another proxy delays later for as long is answered: the delay of the first one is over.
    let mut other = Raw::connect(other_proxy.bootstrap()).await;
    other.send(&request("b", -1), VERSION, 2).await;
    assert!(other.answer().await.is_some());
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
    }
    let meanwhile = [before.as_slice(), &["b".to_owned()]].concat();
    assert_eq!(values(&server), meanwhile);
    drop(pause);
    assert!(client.answer().await.is_some());
    reached(&server, if before.is_empty() { &["b", "a"] } else { &["a", "b"] }).await;
}
