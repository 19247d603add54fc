//! Bytes that break the protocol of WebSockets, and clients that keep to the letter of it only.

use std::time::Duration;

use gateway::{EventSettings, Settings};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::fixture::{PATIENCE, World};
use crate::websocket_client::{WebSocket, handshake};

const READER: &str = "/ws/v2/reader/persistent/public/default/t";
const PRODUCER: &str = "/ws/v2/producer/persistent/public/default/t";

/// A frame as clients write it: first byte, payload, all masked with zeros.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![first];
    match payload.len() {
        length @ ..126 => out.push(0x80 | length as u8),
        length @ ..65536 => {
            out.push(0x80 | 126);
            out.extend((length as u16).to_be_bytes());
        }
        length => {
            out.push(0x80 | 127);
            out.extend((length as u64).to_be_bytes());
        }
    }
    out.extend([0; 4]);
    out.extend(payload);
    out
}

/// The code of the last frame that the other side sends before it closes; 0 if it closes without one.
async fn last_code(stream: &mut TcpStream) -> u16 {
    let mut all = Vec::new();
    let read = async { while stream.read_buf(&mut all).await.is_ok_and(|read| read > 0) {} };
    timeout(PATIENCE, read).await.expect("closed in time");
    let mut rest = &all[..];
    while let [first, length, payload @ ..] = rest {
        let (length, payload) = match *length {
            126 => (usize::from(payload[0]) << 8 | usize::from(payload[1]), &payload[2..]),
            length => (usize::from(length), payload),
        };
        if *first == 0x88 {
            return u16::from(payload[0]) << 8 | u16::from(payload[1]);
        }
        rest = &payload[length..];
    }
    0
}

#[tokio::test(flavor = "multi_thread")]
async fn what_breaks_the_protocol_is_told_so_and_closed() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let mib = vec![b' '; (1 << 20) + 1];
    let unmasked = [0x81, 2, b'{', b'}'].to_vec();
    let announced = [&[0x81, 0xff][..], &u64::MAX.to_be_bytes(), &[0; 4]].concat();
    let split_utf8 = [frame(0x01, b"\"\xc3"), frame(0x80, b"(\"")].concat();
    for (what, bytes, code) in [
        ("a ping in parts", frame(0x09, b"x"), 1002),
        ("a ping that is too long", frame(0x89, &[0; 126]), 1002),
        ("a reserved kind", frame(0x83, b""), 1002),
        ("a reserved kind of control", frame(0x8b, b""), 1002),
        ("a reserved bit", frame(0xc1, b"{}"), 1002),
        ("not masked", unmasked, 1002),
        ("a part without a beginning", frame(0x80, b"x"), 1002),
        ("a beginning within a message", [frame(0x01, b"x"), frame(0x81, b"y")].concat(), 1002),
        ("one byte too many", frame(0x81, &mib), 1009),
        ("a length of all bits", announced, 1009),
        (
            "too much in parts",
            [frame(0x01, &mib[..1 << 19]), frame(0x00, &mib[..1 << 19]), frame(0x80, b"x")]
                .concat(),
            1009,
        ),
        ("no UTF-8", frame(0x81, b"\xff"), 1007),
        ("no UTF-8 in parts", split_utf8, 1007),
        ("bytes", frame(0x82, b"x"), 1003),
        ("a close of one byte", frame(0x88, b"x"), 1002),
        ("a close that is none", frame(0x88, &1005_u16.to_be_bytes()), 1002),
        ("a close with words that are not UTF-8", frame(0x88, b"\x03\xe8\xff"), 1007),
        ("a proper close", frame(0x88, &1000_u16.to_be_bytes()), 1000),
    ] {
        let (mut stream, _) = handshake(world.gateway.address(), PRODUCER, &[]).await.unwrap();
        // The other side may have closed before all is sent.
        let _ = timeout(PATIENCE, stream.write_all(&bytes)).await.expect("taken in time");
        assert_eq!(last_code(&mut stream).await, code, "{what}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_unusual_and_allowed_is_served() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let (mut stream, _) = handshake(world.gateway.address(), PRODUCER, &[]).await.unwrap();
    let text = br#"{"payload":"AA=="}"#;
    let mut bytes = frame(0x01, &text[..3]);
    // Pings, pongs and empty parts in between; byte by byte.
    bytes.extend(frame(0x89, b"ping"));
    bytes.extend(frame(0x00, b""));
    bytes.extend(frame(0x8a, b"unasked"));
    bytes.extend(frame(0x80, &text[3..]));
    for byte in bytes {
        stream.write_all(&[byte]).await.unwrap();
    }
    let mut read = Vec::new();
    let is_there = |read: &[u8], part: &[u8]| read.windows(part.len()).any(|here| here == part);
    while !is_there(&read, b"\"result\":\"ok\"") || !is_there(&read, b"\x8a\x04ping") {
        let more = timeout(PATIENCE, stream.read_buf(&mut read)).await.expect("in time").unwrap();
        assert!(more > 0, "{read:?}");
    }
    // What is allowed to the byte.
    let payload = "A".repeat((1 << 20) - 14);
    let exact = format!("{{\"payload\":\"{payload}\"}}");
    let exact = &exact.as_bytes()[..exact.len().min(1 << 20)];
    assert_eq!(exact.len(), 1 << 20);
    stream.write_all(&frame(0x81, exact)).await.unwrap();
    read.clear();
    while !is_there(&read, b"result") {
        timeout(PATIENCE, stream.read_buf(&mut read)).await.expect("in time").unwrap();
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn floods_end_their_connection_and_no_other() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let mut calm = WebSocket::open(world.gateway.address(), READER).await;
    let ping = frame(0x89, &[7; 125]);
    // Who takes the answers hears why it has to go: no more is sent than what is thrown away behind that.
    let (stream, _) = handshake(world.gateway.address(), READER, &[]).await.unwrap();
    let (mut reading, mut writing) = stream.into_split();
    let mut all = Vec::new();
    let taking = async { while reading.read_buf(&mut all).await.is_ok_and(|read| read > 0) {} };
    let pings = ping.repeat(2000);
    let flooding = async { tokio::join!(writing.write_all(&pings), taking).0 };
    timeout(PATIENCE, flooding).await.expect("closed").expect("all was taken");
    let is_told = all.windows(5).any(|part| part == b"pings");
    assert!(is_told, "{} bytes, and no word of pings", all.len());
    // Who takes none is left.
    let (mut stream, _) = handshake(world.gateway.address(), READER, &[]).await.unwrap();
    let pings = ping.repeat(100);
    let flooding = async { while stream.write_all(&pings).await.is_ok() {} };
    timeout(PATIENCE, flooding).await.expect("closed");
    world.fill("t", 0, ["v".to_owned()]).await;
    assert_eq!(calm.text().await["payload"], "dg==");
    // Questions whose answers nobody takes.
    let (mut stream, _) = handshake(world.gateway.address(), READER, &[]).await.unwrap();
    let flood = frame(0x81, b"{\"type\":\"isEndOfTopic\"}").repeat(1000);
    let flooding = async { while stream.write_all(&flood).await.is_ok() {} };
    timeout(PATIENCE, flooding).await.expect("closed");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_charged_and_what_is_too_much_comes_later() {
    // WebSockets have a quarter.
    let world = World::start_with(|settings| Settings { memory_bytes: 1 << 20, ..settings }).await;
    world.create("t", 1, &[]).await;
    let address = world.gateway.address();
    let mut all = Vec::new();
    let refused = loop {
        match WebSocket::ask(address, READER, &[]).await {
            Ok(socket) => all.push(socket),
            Err(refused) => break refused,
        }
    };
    assert_eq!((all.len(), refused.0), (10, 429), "{refused:?}");
    all.truncate(8);
    let mut plain = world.connect().await;
    // A client that announces a message and sends it slowly holds what it has sent, and no more.
    let (mut stream, _) = loop {
        match handshake(address, PRODUCER, &[]).await {
            Ok(opened) => break opened,
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    let large = frame(0x81, &vec![b' '; 900 * 1024]);
    let _ = timeout(PATIENCE, stream.write_all(&large)).await.expect("taken in time");
    assert_eq!(last_code(&mut stream).await, 1013);
    assert_eq!(plain.post("/topics/t/raw", "", "v").await.status, 200);
    assert_eq!(all[0].text().await["payload"], "dg==");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_takes_nothing_is_closed_and_loses_nothing() {
    let events = EventSettings { blocked_max: Duration::from_secs(3), ..EventSettings::default() };
    let world = World::start_with(|settings| Settings { events, ..settings }).await;
    world.create("t", 1, &[]).await;
    let address = world.gateway.address();
    let target = format!("{READER}?receiverQueueSize=10000");
    let (mut slow, _) = handshake(address, &target, &[]).await.unwrap();
    let mut fast = WebSocket::open(address, &target).await;
    let large = "x".repeat(60_000);
    tokio::join!(world.fill("t", 0, (0..300).map(|_| large.clone())), fast.texts(300));
    world.until_count("readers", 1).await;
    let mut all = Vec::new();
    let read = async { while slow.read_buf(&mut all).await.is_ok_and(|read| read > 0) {} };
    timeout(PATIENCE, read).await.expect("closed");
    assert!(all.len() < 300 * 80_000, "not all of it");
    let mut again = WebSocket::open(address, &format!("{READER}?messageId=earliest")).await;
    assert_eq!(again.texts(300).await.len(), 300);
    again.say(json!({"type": "nonsense"})).await;
    assert_eq!(again.end().await.0, 1008);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_waits_for_the_answers_before_it() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let (mut stream, read) = handshake(world.gateway.address(), PRODUCER, &[]).await.unwrap();
    // All of them are there before the first is acknowledged.
    let mut all = Vec::new();
    for i in 0..20 {
        all.extend(frame(
            0x81,
            json!({"payload": "AA==", "context": format!("{i}")}).to_string().as_bytes(),
        ));
        all.extend(frame(
            0x81,
            json!({"payload": "?", "context": format!("not {i}")}).to_string().as_bytes(),
        ));
    }
    stream.write_all(&all).await.unwrap();
    let mut socket = WebSocket::of(stream, read).await;
    for i in 0..20 {
        let (sent, refused) = (socket.text().await, socket.text().await);
        assert_eq!((&sent["result"], &sent["context"]), (&json!("ok"), &json!(format!("{i}"))));
        assert_eq!(refused["context"], json!(format!("not {i}")), "{refused}");
        assert!(refused["result"].as_str().unwrap().starts_with("send-error"), "{refused}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_charged_until_it_is_whole_whatever_comes_between_its_parts() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let before = world.body_bytes().await;
    let (mut stream, mut read) = handshake(world.gateway.address(), PRODUCER, &[]).await.unwrap();
    let part = vec![b' '; (1 << 20) - 1];
    for _ in 0..3 {
        stream.write_all(&frame(0x89, b"first")).await.unwrap();
    }
    stream.write_all(&frame(0x01, &part)).await.unwrap();
    stream.write_all(&frame(0x89, b"between")).await.unwrap();
    let pong = b"\x8a\x07between";
    while !read.windows(pong.len()).any(|here| here == pong) {
        timeout(PATIENCE, stream.read_buf(&mut read)).await.expect("in time").unwrap();
    }
    let during = world.body_bytes().await;
    assert!(during >= before + (1 << 20) - 16 * 1024, "{before} bytes before, {during} during");
    // The last byte; a producer says something else, and it is told so.
    stream.write_all(&frame(0x80, b"x")).await.unwrap();
    let mut socket = WebSocket::of(stream, Vec::new()).await;
    assert!(socket.text().await["result"].as_str().unwrap().starts_with("send-error"));
    // The buffers are replaced after the answer.
    let returned = async { while world.body_bytes().await >= before + (1 << 18) {} };
    timeout(PATIENCE, returned).await.expect("the memory of a message that is whole");
    world.stop().await;
}
