//! Clients that are slow, malformed, too many, or up to something.

use std::time::Duration;

use gateway::Settings;

use crate::fixture::{PATIENCE, World, nowhere, open, settings};
use crate::http::{Connection, request};

#[tokio::test(flavor = "multi_thread")]
async fn a_request_behind_one_with_two_lengths_is_never_served() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    world.create("victim", 1, &[]).await;
    let smuggled = String::from_utf8(request("POST", "/topics/victim/raw", &[], b"v")).unwrap();
    for lengths in [
        "content-length: 5\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 5\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 500\r\n",
        "transfer-encoding: identity\r\ntransfer-encoding: chunked\r\n",
    ] {
        let mut connection = world.connect().await;
        let head = format!("POST /topics/t/raw HTTP/1.1\r\nhost: localhost\r\n{lengths}\r\n");
        connection.send(format!("{head}1\r\na\r\n0\r\n\r\n{smuggled}")).await;
        let answer = connection.answer().await;
        assert!([200, 400, 415].contains(&answer.status), "{lengths}: {answer:?}");
        assert_eq!(answer.header("connection"), Some("close"), "{lengths}");
        assert_eq!(connection.closed().await, "", "{lengths}: a second answer");
    }
    assert_eq!(world.ends("victim").await, [0]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_that_make_no_sense_end_their_connection() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    for (head, status) in [
        ("nonsense\r\n\r\n", "400"),
        ("GET /healthz HTTP/1.1\r\nbad header\r\n\r\n", "400"),
        ("GET /healthz HTTP/1.1\r\nhost: localhost\r\n folded: x\r\n\r\n", "400"),
        ("GET /healthz HTTP/9.9\r\n\r\n", "400"),
        ("POST /topics/t/raw HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n", "400"),
        ("POST /topics/t/raw HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1, 2\r\n\r\n", "400"),
        (
            "POST /topics/t/raw HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
            "400",
        ),
        (
            "POST /topics/t/raw HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: gzip\r\n\r\n",
            "400",
        ),
        ("GET /healthz\0 HTTP/1.1\r\nhost: localhost\r\n\r\n", "400"),
    ] {
        let mut connection = world.connect().await;
        connection.send(head).await;
        let said = connection.closed().await;
        assert!(said.starts_with(&format!("HTTP/1.1 {status}")), "{head:?}: {said}");
        assert_eq!(said.matches("HTTP/1.1 ").count(), 1, "{head:?}: {said}");
    }
    let mut connection = world.connect().await;
    connection.send(format!("GET /healthz HTTP/1.1\r\nx: {}\r\n\r\n", "a".repeat(100_000))).await;
    let said = connection.closed().await;
    // A client that still sends when the answer comes may find the connection reset instead.
    assert!(said.is_empty() || said.starts_with("HTTP/1.1 431"), "{said}");
    for hosts in ["", "host: localhost\r\nhost: evil.example.com\r\n"] {
        let mut connection = world.connect().await;
        connection.send(format!("GET /healthz HTTP/1.1\r\n{hosts}\r\n")).await;
        assert!([400, 403].contains(&connection.answer().await.status), "{hosts:?}");
    }
    assert_eq!(world.ends("t").await, [0]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_with_a_coding_that_is_not_undone_is_refused() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let mut connection = world.connect().await;
    for coding in ["br", "deflate, gzip", "x"] {
        for path in ["/topics/t", "/topics/t/raw"] {
            let headers = [("content-encoding", coding), ("content-type", "application/json")];
            let answer = connection.ask("POST", path, &headers, &[0x1f, 0x8b, 8, 0]).await;
            assert_eq!(answer.status, 415, "{coding} {path}: {answer:?}");
        }
    }
    // Routes without records take no gzip, nor does a stream of records.
    let gzip = [("content-encoding", "gzip"), ("content-type", "application/json")];
    for path in ["/consumers/g", "/admin/topics", "/console/login"] {
        let answer = connection.ask("POST", path, &gzip, b"{}").await;
        assert_eq!(answer.status, 415, "{path}: {answer:?}");
    }
    let two = [("content-encoding", "identity"), ("content-encoding", "gzip")];
    assert_eq!(connection.ask("POST", "/topics/t/raw", &two, b"v").await.status, 415);
    let v3 = crate::version3::path(&world, "t").await;
    for codings in ["gzip, chunked", "gzip\r\ntransfer-encoding: chunked", "chunked, chunked"] {
        for path in ["/topics/t/raw", &v3] {
            let mut other = world.connect().await;
            other
                .send(format!(
                    "POST {path} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: {codings}\r\n\r\n\
                     2\r\n{{}}\r\n0\r\n\r\n"
                ))
                .await;
            let answer = other.answer().await;
            assert!(matches!(answer.status, 400 | 415), "{codings} {path}: {answer:?}");
        }
    }
    let plain = [("content-encoding", "Identity")];
    assert_eq!(connection.ask("POST", "/topics/t/raw", &plain, b"v").await.status, 200);
    assert_eq!(world.ends("t").await, [1]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_may_come_byte_by_byte() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let mut connection = world.connect().await;
    for _ in 0..2 {
        for byte in request("POST", "/topics/t/raw", &[("x-key", "k")], b"value") {
            connection.send([byte]).await;
            tokio::task::yield_now().await;
        }
        assert_eq!(connection.answer().await.status, 200);
    }
    let chunked = "POST /topics/t/raw HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n\
                   2\r\nva\r\n3;x=y\r\nlue\r\n0\r\ntrailer: x\r\n\r\n";
    for byte in chunked.bytes() {
        connection.send([byte]).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(connection.answer().await.status, 200);
    let kept = world.read("t").await;
    assert!(kept.iter().all(|kept| kept.value.as_deref() == Some(b"value")), "{kept:?}");
    assert_eq!(kept.len(), 3);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_never_ends_loses_its_connection() {
    let short = Duration::from_millis(50);
    let gateway = open(Settings { head_timeout: short, ..settings(&nowhere().to_string()) });
    for begun in ["", "GET /healthz HTTP/1.1\r\nhost: localhost\r\n"] {
        let mut connection = Connection::open(gateway.address()).await;
        connection.send(begun).await;
        assert_eq!(connection.closed().await, "", "{begun:?}");
    }
    // One that was served is idle, and may be so for longer.
    let mut connection = Connection::open(gateway.address()).await;
    assert_eq!(connection.get("/healthz").await.status, 200);
    assert!(!connection.is_closed_within(4 * short).await);
    connection.send("GET /hea").await;
    assert_eq!(connection.closed().await, "");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_never_comes_is_refused() {
    let short = Duration::from_millis(50);
    let world = World::start_with(|settings| Settings { body_timeout: short, ..settings }).await;
    world.create("t", 1, &[]).await;
    let mut connection = world.connect().await;
    let whole = request("POST", "/topics/t/raw", &[], b"value");
    connection.send(&whole[..whole.len() - 1]).await;
    let answer = connection.answer().await;
    assert_eq!((answer.status, answer.header("connection")), (408, Some("close")), "{answer:?}");
    assert_eq!(connection.closed().await, "");
    assert_eq!(world.ends("t").await, [0]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_finishes_what_has_begun() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let mut idle = world.connect().await;
    assert_eq!(idle.get("/healthz").await.status, 200);
    let mut connection = world.connect().await;
    let expects = [("expect", "100-continue")];
    let whole = request("POST", "/topics/t/raw", &expects, b"value");
    let head = whole.len() - 5;
    connection.send(&whole[..head]).await;
    // The body is asked for: the request has begun.
    assert_eq!(connection.answer().await.status, 100);
    let address = world.gateway.address();
    let cluster = world.cluster.clone();
    let stopping = tokio::spawn(world.stop());
    assert_eq!(idle.closed().await, "", "a connection without a request ends at once");
    // The listener and the connections hear of the stop in any order.
    let refused = async {
        while tokio::net::TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, refused).await.expect("no more are taken");
    connection.send(&whole[head..]).await;
    let answer = connection.answer().await;
    assert_eq!((answer.status, answer.header("connection")), (200, Some("close")), "{answer:?}");
    drop(cluster);
    stopping.await.unwrap();
}

/// Threads of this process with this name.
#[cfg(target_os = "linux")]
fn threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|found| found.trim_end() == name).count()
}

#[cfg(target_os = "linux")]
#[test]
fn threads_begin_with_the_first_connection() {
    // In a process of its own, in which no other test's gateway runs.
    if std::env::var_os("GATEWAY_ALONE").is_none() {
        let test = "strangers::threads_begin_with_the_first_connection";
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        let output = command.args(["--exact", test]).env("GATEWAY_ALONE", "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let gateway = open(settings(&nowhere().to_string()));
        tokio::task::yield_now().await;
        assert_eq!(threads("gateway"), 0);
        let mut connection = Connection::open(gateway.address()).await;
        assert_eq!(connection.get("/healthz").await.status, 200);
        // A thread has its name a moment after it begins.
        while threads("gateway") < 2 {
            tokio::task::yield_now().await;
        }
        gateway.stop().await;
    });
}
