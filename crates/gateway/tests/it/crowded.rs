//! Clients that are one too many: what they are told, and that none of them stands in another's way.

use std::net::SocketAddr;

use gateway::{Gateway, Settings};
use serving::visitors::Doorkeeper;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::event_stream::{EventStream, Said};
use crate::fixture::{PATIENCE, nowhere, open, settings};
use crate::http::{Answer, Connection, request};

/// More than are refused at a time.
const MANY: usize = 100;

/// A gateway that has as many connections as it may, and the last of them.
async fn crowded(change: impl FnOnce(Settings) -> Settings) -> (Gateway, Connection) {
    let settings = settings(&nowhere().to_string());
    let gateway = open(change(Settings { connections_max: 1, ..settings }));
    let mut last = Connection::open(gateway.address()).await;
    assert_eq!(last.get("/healthz").await.status, 200);
    (gateway, last)
}

/// Waits until so many have been refused, as one that was let in is told.
async fn until_refused(inside: &mut Connection, count: usize) {
    let line = format!("highwater_gateway_connections_refused_total {count}");
    let refused = async {
        while !inside.get("/metrics").await.body.lines().any(|found| found == line) {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, refused).await.unwrap_or_else(|_| panic!("never {line}"));
}

fn check_refusal(answer: &Answer, key: &str) {
    assert_eq!(answer.status, 503, "{answer:?}");
    assert_eq!(answer.header("connection"), Some("close"), "{answer:?}");
    assert!(answer.header("retry-after").is_some(), "{answer:?}");
    let told = answer.json();
    let (code, written, retriable) = (&told["error_code"], &told["written"], &told["retriable"]);
    assert_eq!((code, written, retriable), (&503.into(), &"no".into(), &true.into()), "{answer:?}");
    let words = told["message"].as_str().unwrap();
    assert!(words.contains(key), "{words}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_connection_too_many_is_told_so_and_the_others_are_served() {
    let (gateway, mut last) = crowded(|settings| settings).await;
    for (method, path, content_type) in [
        ("GET", "/topics", "application/vnd.kafka.v2+json"),
        ("POST", "/topics/t", "application/vnd.kafka.v2+json"),
        ("GET", "/v3/clusters", "application/json"),
        ("GET", "/healthz", "application/json"),
        ("GET", "/nothing", "application/vnd.kafka.v2+json"),
    ] {
        let mut one = Connection::open(gateway.address()).await;
        let answer = one.ask(method, path, &[], b"{}").await;
        check_refusal(&answer, "(gateway.connections.max)");
        assert_eq!(answer.header("content-type"), Some(content_type), "{path}");
        assert_eq!(one.closed().await, "", "{path}");
    }
    let mut head = Connection::open(gateway.address()).await;
    assert_eq!(head.ask("HEAD", "/topics", &[], b"").await.status, 503);
    assert_eq!(head.closed().await, "", "a body behind an answer that has none");
    let mut garbage = Connection::open(gateway.address()).await;
    garbage.send("nonsense\r\n\r\n").await;
    let said = garbage.closed().await;
    assert!(said.starts_with("HTTP/1.1 400"), "{said}");
    assert_eq!(last.get("/healthz").await.status, 200);
    let counted = last.get("/metrics").await.body;
    // HEAD counts as GET.
    let row = "highwater_gateway_requests_total{method=\"GET\",route=\"/topics\",code=\"503\"} 2";
    assert!(counted.contains(row), "{counted}");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limit_of_an_address_is_told_by_its_own_key() {
    let limits =
        |settings| Settings { connections_max: 9, connections_per_address_max: 1, ..settings };
    let (gateway, _last) = crowded(limits).await;
    let mut one = Connection::open(gateway.address()).await;
    check_refusal(&one.get("/topics").await, "(gateway.connections.per.address.max)");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_long_after_connecting_is_answered() {
    let (gateway, mut last) = crowded(|settings| settings).await;
    let mut late = Connection::open(gateway.address()).await;
    until_refused(&mut last, 1).await;
    late.send("GET /topics HTTP/1.1\r\n").await;
    // Not before it has asked: an answer to nothing would be taken for an error of the protocol.
    last.get("/healthz").await;
    late.send("host: localhost\r\n\r\n").await;
    check_refusal(&late.answer().await, "gateway.connections.max");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_is_not_cut_off_by_the_answer_to_it() {
    let (gateway, _last) = crowded(|settings| settings).await;
    let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
    let body = vec![b'x'; 1 << 20];
    let whole = request("POST", "/topics/t/raw", &[], &body);
    let (first, rest) = whole.split_at(whole.len() - body.len() + 1);
    stream.write_all(first).await.unwrap();
    // To its end: the gateway has said all that it says.
    let mut said = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut said)).await.unwrap().unwrap();
    assert!(said.starts_with("HTTP/1.1 503"), "{said}");
    for piece in rest.chunks(16 * 1024) {
        timeout(PATIENCE, stream.write_all(piece)).await.unwrap().expect("it is taken");
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_of_events_are_told_to_come_again() {
    let listed = "https://pages.example.org";
    let doorkeeper = Doorkeeper::new(None, [listed].into_iter());
    let (gateway, _last) = crowded(|settings| Settings { doorkeeper, ..settings }).await;
    let head = format!(
        "GET /topics/t/events HTTP/1.1\r\nhost: localhost\r\norigin: {listed}\r\nlast-event-id: x\r\n\r\n"
    );
    let mut told = EventStream::open_with(gateway.address(), &head).await;
    assert_eq!(told.status, 200);
    let may_read = format!("access-control-allow-origin: {listed}");
    assert!(told.head.to_lowercase().contains(&may_read), "{}", told.head);
    let said = told.next().await;
    assert!(matches!(said, Some(Said::Retry(2000..=15_000))), "{said:?}");
    assert_eq!(told.next().await, None);
    gateway.stop().await;
}

/// Clients that are refused and hold on to their connections: some say nothing, some have begun to ask, some have asked and do not
/// read, and some go on sending.
async fn hold(address: SocketAddr, inside: &mut Connection) -> Vec<TcpStream> {
    let mut held = Vec::new();
    for number in 0..MANY {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let said: &[u8] = match number % 4 {
            0 => b"",
            1 => b"GET /topics HTTP/1.1\r\nhost: loc",
            2 => b"GET /topics HTTP/1.1\r\nhost: localhost\r\n\r\n",
            _ => b"POST /topics/t/raw HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\nx",
        };
        // One that has lost its place already may be closed.
        let _ = stream.write_all(said).await;
        held.push(stream);
    }
    until_refused(inside, MANY).await;
    held
}

#[tokio::test(flavor = "multi_thread")]
async fn who_holds_on_to_a_refusal_stands_in_nobodys_way() {
    let (gateway, mut last) = crowded(|settings| settings).await;
    let _held = hold(gateway.address(), &mut last).await;
    for _ in 0..5 {
        let mut one = Connection::open(gateway.address()).await;
        check_refusal(&one.get("/topics").await, "gateway.connections.max");
    }
    drop(last);
    // That the last one has gone is heard in a moment.
    let served = async {
        while Connection::open(gateway.address()).await.get("/healthz").await.status != 200 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, served).await.expect("there is room");
    gateway.stop().await;
}
