//! Attacks by HTTP and WebSockets, on the gateway.

use anyhow::Result;

use super::client::{Attack, End};
use super::{HONEST_TOPICS, WIDE_TOPIC};

/// All attacks.
pub(super) const ATTACKS: [Attack; 10] = [
    Attack { name: "idle WebSockets", requests: websocket, end: End::Held(1_200) },
    Attack { name: "idempotency keys, 100 records each", requests: keyed, end: End::Answered },
    Attack { name: "idempotency keys, one record each", requests: keyed_alone, end: End::Answered },
    Attack { name: "consumer instances", requests: instance, end: End::Answered },
    Attack { name: "event streams, unread", requests: events, end: End::Held(200) },
    Attack {
        name: "event streams with long filters",
        requests: filtered_events,
        end: End::Held(200),
    },
    Attack { name: "event streams of groups", requests: group_events, end: End::Held(200) },
    Attack { name: "reads that wait", requests: waiting_read, end: End::Held(200) },
    Attack { name: "bodies of 8 MB of which 1 MB comes", requests: half_body, end: End::Held(64) },
    Attack { name: "heads without an end", requests: half_head, end: End::Held(800) },
];

/// A request with a head of these lines, and a body.
fn request(lines: &[&str], body: &str) -> Vec<u8> {
    let length = format!("content-length: {}", body.len());
    let lines =
        [&[lines[0], "host: localhost"][..], &lines[1..], &[length.as_str(), "", body]].concat();
    lines.join("\r\n").into_bytes()
}

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").into_bytes()
}

fn websocket(_: u64) -> Result<Vec<u8>> {
    let head = format!("GET /ws/topics/{} HTTP/1.1", HONEST_TOPICS[0]);
    let lines = [
        head.as_str(),
        "host: localhost",
        "connection: Upgrade",
        "upgrade: websocket",
        "sec-websocket-version: 13",
        "sec-websocket-key: aGlnaHdhdGVyLWhvc3RpbGU=",
        "",
        "",
    ];
    Ok(lines.join("\r\n").into_bytes())
}

fn keyed_records(number: u64, records: usize) -> Vec<u8> {
    let body = format!(r#"{{"records":[{}]}}"#, vec![r#"{"value":1}"#; records].join(","));
    let head = format!("POST /topics/{} HTTP/1.1", WIDE_TOPIC);
    let key = format!("idempotency-key: hostile-{records}-{number}");
    request(&[&head, "content-type: application/vnd.kafka.json.v2+json", &key], &body)
}

fn keyed(number: u64) -> Result<Vec<u8>> {
    Ok(keyed_records(number, 100))
}

fn keyed_alone(number: u64) -> Result<Vec<u8>> {
    Ok(keyed_records(number, 1))
}

fn instance(number: u64) -> Result<Vec<u8>> {
    let head = format!("POST /consumers/hostile-{number} HTTP/1.1");
    Ok(request(&[&head, "content-type: application/vnd.kafka.v2+json"], r#"{"format":"json"}"#))
}

fn events(_: u64) -> Result<Vec<u8>> {
    Ok(get(&format!("/topics/{}/events?from=earliest", HONEST_TOPICS[0])))
}

fn filtered_events(_: u64) -> Result<Vec<u8>> {
    let filter = vec!["header:kind=*"; 400].join(",");
    Ok(get(&format!("/topics/{}/events?filter={filter}", HONEST_TOPICS[0])))
}

fn group_events(number: u64) -> Result<Vec<u8>> {
    Ok(get(&format!("/topics/{}/events?group=hostile-{number}", HONEST_TOPICS[0])))
}

fn waiting_read(_: u64) -> Result<Vec<u8>> {
    let path = format!(
        "/topics/{}/partitions/999/records?offset=0&timeout=30000&max_bytes=1000000",
        WIDE_TOPIC
    );
    Ok(request(
        &[&format!("GET {path} HTTP/1.1"), "accept: application/vnd.kafka.json.v2+json"],
        "",
    ))
}

fn half_body(_: u64) -> Result<Vec<u8>> {
    let head = format!("POST /topics/{} HTTP/1.1", WIDE_TOPIC);
    let lines = [
        &head,
        "host: localhost",
        "content-type: application/json",
        "content-length: 8000000",
        "",
        "",
    ];
    let mut bytes = lines.join("\r\n").into_bytes();
    bytes.extend(br#"{"records":[{"value":""#);
    bytes.resize(1 << 20, b'x');
    Ok(bytes)
}

fn half_head(_: u64) -> Result<Vec<u8>> {
    Ok(b"GET /topics HTTP/1.1\r\nhost: localhost\r\nx-hostile: ".to_vec())
}
