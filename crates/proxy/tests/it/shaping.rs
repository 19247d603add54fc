//! Delay and caps, by the clock. Bounds are wide above, since machines are busy, and exact below.

use crate::server::{Raw, Server};
use proxy::{Proxy, ProxyConfig, Shape};
use std::time::{Duration, Instant};

/// How long anything may take on a machine that is busy with much else.
const PATIENCE: Duration = Duration::from_secs(60);

async fn shaped(server: &Server, shape: Shape) -> Proxy {
    Proxy::start(ProxyConfig { shape, ..ProxyConfig::new(&server.address) }).await.unwrap()
}

#[tokio::test]
async fn a_round_trip_takes_what_was_added() {
    let server = Server::start().await;
    for rtt_ms in [0.4, 30.0] {
        let proxy = shaped(&server, Shape { jitter_ms: 0.2, ..Shape::rtt(rtt_ms) }).await;
        let mut client = Raw::connect(proxy.bootstrap()).await;
        let most = Duration::from_secs_f64(rtt_ms / 1000.0 + 0.02);
        let (mut fastest, began) = (Duration::MAX, Instant::now());
        // Some round trips meet nobody who wants the processor, if not one of the first twenty.
        for id in 0.. {
            if id >= 20 && (fastest < most || began.elapsed() > PATIENCE) {
                break;
            }
            let start = Instant::now();
            client.send_echo(id, 100).await;
            assert_eq!(client.answered().await, id);
            let took = start.elapsed();
            assert!(took >= Duration::from_secs_f64(rtt_ms / 1000.0), "{took:?}");
            fastest = fastest.min(took);
        }
        assert!(fastest < most, "{fastest:?}");
    }
}

#[tokio::test]
async fn a_delay_limits_no_throughput() {
    let server = Server::start().await;
    let proxy = shaped(&server, Shape::rtt(200.0)).await;
    let mut client = Raw::connect(proxy.bootstrap()).await;
    let start = Instant::now();
    for id in 0..100 {
        client.send_echo(id, 10_000).await;
    }
    for id in 0..100 {
        assert_eq!(client.answered().await, id);
    }
    let took = start.elapsed();
    // One by one it would take 20 seconds.
    assert!(took >= Duration::from_millis(200) && took < Duration::from_secs(18), "{took:?}");
}

#[tokio::test]
async fn all_connections_share_a_cap() {
    let server = Server::start().await;
    let caps = [
        Shape { egress_bytes_per_second: Some(1_000_000), ..Shape::default() },
        Shape { ingress_bytes_per_second: Some(1_000_000), ..Shape::default() },
    ];
    for shape in caps {
        let proxy = shaped(&server, shape).await;
        let mut clients = Vec::new();
        for _ in 0..4 {
            clients.push(Raw::connect(proxy.bootstrap()).await);
        }
        let start = Instant::now();
        let tasks = clients.into_iter().map(|mut client| {
            tokio::spawn(async move {
                client.send_echo(1, 75_000).await;
                client.answered().await
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(285) && took < Duration::from_secs(30), "{took:?}");
    }
}

#[tokio::test]
async fn a_cap_of_one_stream_leaves_the_others() {
    let server = Server::start().await;
    let shape = Shape { stream_bytes_per_second: Some(250_000), ..Shape::default() };
    let proxy = shaped(&server, shape).await;
    let start = Instant::now();
    let mut tasks = Vec::new();
    for _ in 0..16 {
        let mut client = Raw::connect(proxy.bootstrap()).await;
        tasks.push(tokio::spawn(async move {
            client.send_echo(1, 250_000).await;
            client.answered().await
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let took = start.elapsed();
    // A second each way and stream; together they would take 32 seconds.
    assert!(took >= Duration::from_millis(990) && took < Duration::from_secs(30), "{took:?}");
}
