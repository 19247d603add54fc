//! Streams of records: a body in chunks whose objects are answered while it goes on.

use std::sync::Arc;
use std::time::Duration;

use client::Admin;
use gateway::Settings;
use serde_json::{Value, json};
use serving::choice::OfTopics;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::creating::topics;
use crate::fixture::{PATIENCE, World};
use crate::version3::path;

/// A stream of records and the answers to them.
pub struct Stream {
    pub socket: TcpStream,
    /// What was read and not understood yet.
    read: Vec<u8>,
    /// What was understood of the answer's body.
    body: Vec<u8>,
    /// Whether the answer has ended as it should.
    is_whole: bool,
    head: String,
}

impl Stream {
    /// Begins one, without a body.
    pub async fn begin(world: &World, path: &str) -> Stream {
        Stream::begin_with(world, path, "").await
    }

    /// The same with these lines in the head of the request.
    pub async fn begin_with(world: &World, path: &str, lines: &str) -> Stream {
        let mut socket = TcpStream::connect(world.gateway.address()).await.unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             transfer-encoding: chunked\r\n{lines}\r\n"
        );
        socket.write_all(head.as_bytes()).await.unwrap();
        let (read, body) = (Vec::new(), Vec::new());
        Stream { socket, read, body, is_whole: false, head: String::new() }
    }

    /// Waits for the head of the answer, in lower case.
    pub async fn head(&mut self) -> &str {
        while self.head.is_empty() {
            assert!(self.more().await, "closed before an answer");
        }
        &self.head
    }

    /// Sends chunks of these bytes until the gateway reads no more of them, because the client reads no answers. Leaves
    /// the last chunk open. Returns the number of whole chunks.
    pub async fn send_until_full(&mut self, bytes: &str) -> usize {
        let chunk = format!("{:x}\r\n{bytes}\r\n", bytes.len());
        let mut sent = 0_usize;
        // Every buffer on the way is full when nothing is taken for a while.
        while let Ok(written) =
            timeout(Duration::from_secs(2), self.socket.write_all(chunk.as_bytes())).await
        {
            written.unwrap();
            sent += chunk.len();
            assert!(sent < 64 << 20, "it is read without end");
        }
        sent / chunk.len()
    }

    /// Sends a chunk.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        let chunk = [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
        self.write(&chunk).await;
    }

    async fn write(&mut self, bytes: &[u8]) {
        // A gateway that has ended the stream may have closed the connection.
        let _ = timeout(PATIENCE, self.socket.write_all(bytes)).await.expect("it is read in time");
    }

    /// Ends the body.
    pub async fn end(&mut self) {
        self.write(b"0\r\n\r\n").await;
    }

    /// The next report; `None` where the answer has ended.
    pub async fn report(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.body.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.body.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            if self.is_whole || !self.more().await {
                assert!(self.body.is_empty(), "{:?}", String::from_utf8_lossy(&self.body));
                return None;
            }
        }
    }

    /// All reports that are still to come.
    pub async fn reports(&mut self) -> Vec<Value> {
        let mut reports = Vec::new();
        while let Some(report) = self.report().await {
            reports.push(report);
        }
        reports
    }

    /// Reads something; false at the end.
    async fn more(&mut self) -> bool {
        let mut buffer = [0; 16 * 1024];
        let read =
            timeout(PATIENCE, self.socket.read(&mut buffer)).await.expect("an answer in time");
        let count = read.unwrap_or(0);
        self.read.extend_from_slice(&buffer[..count]);
        if self.head.is_empty() {
            let Some(end) = self.read.windows(4).position(|window| window == b"\r\n\r\n") else {
                return count > 0;
            };
            let head: Vec<u8> = self.read.drain(..end + 4).collect();
            self.head = String::from_utf8(head).unwrap().to_lowercase();
        }
        if self.head.contains("content-length") {
            self.body.append(&mut self.read);
        }
        while let Some(end) = self.read.windows(2).position(|window| window == b"\r\n") {
            let length = std::str::from_utf8(&self.read[..end]).unwrap();
            let length = usize::from_str_radix(length, 16).unwrap();
            if self.read.len() < end + 2 + length + 2 {
                break;
            }
            self.body.extend_from_slice(&self.read[end + 2..end + 2 + length]);
            self.read.drain(..end + 2 + length + 2);
            self.is_whole |= length == 0;
        }
        count > 0
    }
}

pub fn record(value: &str) -> String {
    json!({"value": {"type": "STRING", "data": value}}).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_head_of_a_stream_to_a_missing_topic_comes_before_its_first_record() {
    let world = World::start_creating(|settings| settings).await;
    let mut stream = Stream::begin(&world, &path(&world, "t").await).await;
    let head = stream.head().await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    // A record that the new topic has no partition for does not create the topic.
    let misplaced = json!({"partition_id": 9, "value": {"type": "STRING", "data": "v"}});
    stream.send(misplaced.to_string()).await;
    assert_eq!(stream.report().await.unwrap()["error_code"], 40402);
    assert!(topics(&world).await.is_empty());
    stream.send(record("v")).await;
    assert_eq!(stream.report().await.unwrap()["error_code"], 200);
    stream.end().await;
    assert_eq!(stream.report().await, None);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_answered_before_the_next_one_is_sent() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let mut stream = Stream::begin(&world, &path(&world, "t").await).await;
    for offset in 0..5 {
        stream.send(record(&offset.to_string()) + "\n").await;
        let report = stream.report().await.unwrap();
        assert_eq!((&report["error_code"], &report["offset"]), (&json!(200), &json!(offset)));
    }
    assert!(stream.head.starts_with("http/1.1 200"), "{}", stream.head);
    assert!(stream.head.contains("transfer-encoding: chunked"), "{}", stream.head);
    // An object in pieces, and several in one piece without anything between them.
    let object = record("}{");
    for piece in object.as_bytes().chunks(3) {
        stream.send(piece).await;
    }
    stream.send(record("a") + &record("b") + " \r\n" + &record("c")).await;
    for offset in 5..9 {
        assert_eq!(stream.report().await.unwrap()["offset"], offset);
    }
    stream.end().await;
    assert_eq!(stream.report().await, None);
    assert!(stream.is_whole);
    assert!(!stream.more().await, "a request in chunks is the last of its connection");
    let values: Vec<_> =
        world.read("t").await.into_iter().map(|kept| kept.value.unwrap()).collect();
    let expected =
        ["0", "1", "2", "3", "4", "}{", "a", "b", "c"].map(|value| value.as_bytes().to_vec());
    assert_eq!(values, expected);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_stand_in_the_order_of_the_records_whatever_becomes_of_them() {
    const COUNT: usize = 5000;
    let world = World::start().await;
    world.create("t", 3, &[]).await;
    let mut stream = Stream::begin(&world, &path(&world, "t").await).await;
    let mut bodies = Vec::new();
    for n in 0..COUNT {
        bodies.push(match n % 10 {
            3 => r#"{"partition_id":9}"#.to_owned(),
            7 => r#"{"value":{"type":"AVRO","data":1}}"#.to_owned(),
            _ => format!(r#"{{"partition_id":{},"value":{{"type":"JSON","data":{n}}}}}"#, n % 3),
        });
    }
    for part in bodies.chunks(100) {
        stream.send(part.concat()).await;
    }
    stream.end().await;
    let reports = stream.reports().await;
    assert_eq!(reports.len(), COUNT);
    let kept = world.read("t").await;
    for (n, report) in reports.iter().enumerate() {
        let code = match n % 10 {
            3 => 40402,
            7 => 422,
            _ => 200,
        };
        assert_eq!(report["error_code"], code, "{n}: {report}");
        if code == 200 {
            let place = (report["partition_id"].as_i64(), report["offset"].as_i64());
            let found = kept
                .iter()
                .find(|kept| (Some(i64::from(kept.partition)), Some(kept.offset)) == place);
            assert_eq!(found.unwrap().value, Some(n.to_string().into_bytes()), "{report}");
        }
    }
    assert_eq!(kept.len(), COUNT / 10 * 8);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_json_ends_the_stream_and_says_which_object_it_was() {
    let world =
        World::start_with(|settings| Settings { request_bytes_max: 10_000, ..settings }).await;
    world.create("t", 1, &[]).await;
    let path = path(&world, "t").await;
    let large = record(&"x".repeat(10_000));
    for (third, code, words) in [
        ("{\"value\":}", 400, "object 3: expected value"),
        ("[]", 400, "object 3: expected '{'"),
        (",", 400, "object 3: expected '{'"),
        (large.as_str(), 413, "object 3: it has more than 10000 bytes"),
    ] {
        let before = world.ends("t").await[0];
        let mut stream = Stream::begin(&world, &path).await;
        stream.send(record("a") + &record("b") + third + &record("c")).await;
        let reports = stream.reports().await;
        assert_eq!(reports.len(), 3, "{reports:?}");
        assert_eq!(
            (&reports[1]["offset"], &reports[2]["error_code"]),
            (&json!(before + 1), &json!(code))
        );
        assert_eq!(reports[2]["written"], "no");
        let message = reports[2]["message"].as_str().unwrap();
        assert!(message.starts_with(words), "{message}");
        assert!(stream.is_whole, "the answer ends in order, though the body has not ended");
        assert_eq!(world.ends("t").await, [before + 2], "nothing behind it is sent");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_closes_its_side_hears_of_everything_that_it_sent() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let path = path(&world, "t").await;
    // In good order, so that no answer has been there when the end comes.
    for _ in 0..20 {
        let mut stream = Stream::begin(&world, &path).await;
        let chunk = record("a").repeat(50);
        let body = format!("{:x}\r\n{chunk}\r\n0\r\n\r\n", chunk.len());
        stream.write(body.as_bytes()).await;
        stream.socket.shutdown().await.unwrap();
        let reports = stream.reports().await;
        assert_eq!(reports.len(), 50, "{reports:?}");
        assert!(stream.is_whole && reports.iter().all(|report| report["error_code"] == 200));
    }
    // In the middle of the body, between two objects and within one.
    for rest in ["", "{\"value\":"] {
        let mut stream = Stream::begin(&world, &path).await;
        stream.send(record("b") + rest).await;
        stream.socket.shutdown().await.unwrap();
        let reports = stream.reports().await;
        assert_eq!(reports.len(), 2, "{reports:?}");
        assert_eq!(
            (&reports[0]["error_code"], &reports[1]["error_code"]),
            (&json!(200), &json!(400))
        );
        assert!(
            reports[1]["message"].as_str().unwrap().starts_with("object 2: the connection was")
        );
        assert!(stream.is_whole);
    }
    assert_eq!(world.ends("t").await, [20 * 50 + 2]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_costs_nothing_and_the_gateway_stops() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let path = path(&world, "t").await;
    for _ in 0..50 {
        let mut stream = Stream::begin(&world, &path).await;
        stream.send(record("a")).await;
        drop(stream);
    }
    // The drain is a minute; streams of clients that have left do not use it up.
    let began = std::time::Instant::now();
    world.stop().await;
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_its_answers_stops_being_read() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let mut stream = Stream::begin(&world, &path(&world, "t").await).await;
    let chunks = stream.send_until_full(&"{\"partition_id\":9}".repeat(500)).await;
    // What was cut off by the time-out leaves the last chunk open. All the others are answered.
    let mut answered = 0;
    while answered < chunks * 500 {
        assert_eq!(stream.report().await.unwrap()["error_code"], 40402);
        answered += 1;
    }
    drop(stream);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_idles_is_ended_with_a_word() {
    let body_timeout = Duration::from_millis(200);
    let world = World::start_with(|settings| Settings { body_timeout, ..settings }).await;
    world.create("t", 1, &[]).await;
    let path = path(&world, "t").await;
    for (rest, words) in [("", "object 2: it did not begin"), ("{", "object 2: it was not whole")] {
        let mut stream = Stream::begin(&world, &path).await;
        stream.send(record("a") + rest).await;
        let reports = stream.reports().await;
        assert_eq!(reports.len(), 2, "{reports:?}");
        assert_eq!(
            (&reports[1]["error_code"], &reports[1]["retriable"]),
            (&json!(408), &json!(true))
        );
        assert!(reports[1]["message"].as_str().unwrap().starts_with(words), "{reports:?}");
        assert!(stream.is_whole);
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_stops_answers_what_came_and_says_what_is_not_read() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let mut stream = Stream::begin(&world, &path(&world, "t").await).await;
    stream.send(record("a")).await;
    assert_eq!(stream.report().await.unwrap()["offset"], 0);
    let reading = tokio::spawn(async move { (stream.reports().await, stream.is_whole) });
    let began = std::time::Instant::now();
    world.stop().await;
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    let (reports, is_whole) = reading.await.unwrap();
    assert_eq!((reports.len(), is_whole), (1, true), "{reports:?}");
    assert_eq!((&reports[0]["error_code"], &reports[0]["written"]), (&json!(503), &json!("no")));
    assert!(reports[0]["message"].as_str().unwrap().starts_with("object 2: the gateway stops"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_cannot_be_reached_is_told_of_each_record_and_the_stream_goes_on() {
    let (world, gate) = World::start_behind_gate().await;
    world.create("t", 1, &[]).await;
    let mut stream = Stream::begin(&world, &path(&world, "t").await).await;
    stream.send(record("a")).await;
    assert_eq!(stream.report().await.unwrap()["offset"], 0);
    gate.close();
    stream.send(record("b")).await;
    let report = stream.report().await.unwrap();
    assert_eq!((&report["error_code"], &report["written"]), (&json!(50401), &json!("unknown")));
    gate.open();
    let mut offset = json!(null);
    while offset.is_null() {
        stream.send(record("c")).await;
        offset = stream.report().await.unwrap()["offset"].clone();
    }
    stream.end().await;
    assert_eq!(stream.reports().await, Vec::<Value>::new());
    let found = world.read("t").await;
    let told = found.iter().find(|kept| Some(kept.offset) == offset.as_i64()).unwrap();
    assert_eq!(told.value.as_deref(), Some(&b"c"[..]));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_goes_on_with_a_topic_that_was_made_again() {
    let world = World::start().await;
    let admin = Admin::new(world.cluster.clone());
    world.create("t", 1, &[]).await;
    let mut stream = Stream::begin(&world, &path(&world, "t").await).await;
    let mut connection = world.connect().await;
    for round in 0..2 {
        for offset in 0..2 {
            stream.send(record("v")).await;
            let report = stream.report().await.unwrap();
            assert_eq!((&report["error_code"], &report["offset"]), (&json!(200), &json!(offset)));
        }
        admin.delete_topics(&["t"]).await.unwrap();
        // Once by itself, and once from what is remembered.
        for _ in 0..2 {
            stream.send(record("lost")).await;
            let report = stream.report().await.unwrap();
            assert_eq!((&report["error_code"], &report["written"]), (&json!(40401), &json!("no")));
        }
        let body = json!({"topic_name": "t", "partitions_count": 1}).to_string();
        let made = connection.post("/admin/topics", "application/json", body).await;
        assert_eq!(made.status, 201, "round {round}: {made:?}");
    }
    stream.send(record("v")).await;
    stream.end().await;
    let reports = stream.reports().await;
    assert_eq!((reports.len(), &reports[0]["offset"]), (1, &json!(0)), "{reports:?}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_waits_for_memory_that_its_own_records_hold_and_takes_no_more() {
    // A quarter of a MiB for bodies; three quarters of as much for records.
    let world =
        World::start_with(|settings| Settings { memory_bytes: 512 << 10, ..settings }).await;
    world.create("t", 1, &[]).await;
    let mut stream = Stream::begin(&world, &path(&world, "t").await).await;
    let value = "x".repeat(30_000);
    let body = record(&value).repeat(100).into_bytes();
    let (read, mut write) = stream.socket.into_split();
    let writing = tokio::spawn(async move {
        for part in body.chunks(16 * 1024) {
            let chunk = [format!("{:x}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat();
            write.write_all(&chunk).await.unwrap();
        }
        write.write_all(b"0\r\n\r\n").await.unwrap();
        write
    });
    let write = writing.await.unwrap();
    stream.socket = read.reunite(write).unwrap();
    let reports = stream.reports().await;
    let codes: Vec<_> = reports.iter().map(|report| report["error_code"].as_i64()).collect();
    assert_eq!(codes, vec![Some(200); 100]);
    // An object that fits in no memory for bodies ends it.
    let mut stream = Stream::begin(&world, &path(&world, "t").await).await;
    stream.send(record("a")).await;
    stream.send(record(&"x".repeat(300_000))).await;
    let reports = stream.reports().await;
    assert_eq!((reports.len(), &reports[1]["error_code"]), (2, &json!(429)), "{reports:?}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_cannot_begin_is_refused_at_once() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let path = path(&world, "t").await;
    for (path, status) in [
        (path.replace("/t/", "/missing/"), 404),
        (path.replace("/v3/clusters/", "/v3/clusters/x"), 404),
        (path.clone() + "?async=true", 422),
        (path.clone() + "?partitioner=none", 422),
    ] {
        // The body goes on, and is not waited for.
        let mut stream = Stream::begin(&world, &path).await;
        stream.send(record("a")).await;
        let began = std::time::Instant::now();
        while stream.body.is_empty() {
            assert!(stream.more().await, "{path}: closed");
        }
        assert!(began.elapsed() < Duration::from_secs(4), "{path}: {:?}", began.elapsed());
        assert!(stream.head.starts_with(&format!("http/1.1 {status}")), "{path}: {}", stream.head);
    }
    let mut socket = TcpStream::connect(world.gateway.address()).await.unwrap();
    let keyed = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nidempotency-key: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
    );
    socket.write_all(keyed.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, socket.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 422") && answer.contains("Idempotency-Key"), "{answer}");
    assert_eq!(world.ends("t").await, [0]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_without_the_key_that_the_partitioner_needs_is_refused_in_its_turn() {
    let partitioners = Arc::new(OfTopics::read(["by-hash=hash-mod"]).unwrap());
    let world = World::start_with(|settings| Settings { partitioners, ..settings }).await;
    world.create("by-hash", 5, &[]).await;
    world.create("t", 5, &[]).await;
    let keyless = record("keyless");
    let placed = json!({"partition_id": 3, "value": {"type": "STRING", "data": "v"}}).to_string();
    let keyed = json!({"key": {"type": "STRING", "data": "60819"}}).to_string();
    for (topic, query) in [("by-hash", ""), ("t", "?partitioner=crc32")] {
        let path = path(&world, topic).await + query;
        let mut stream = Stream::begin(&world, &path).await;
        stream.send(format!("{keyless}{placed}{keyed}{keyless}")).await;
        stream.end().await;
        let reports = stream.reports().await;
        let codes: Vec<_> = reports.iter().map(|report| report["error_code"].clone()).collect();
        assert_eq!(codes, [422, 200, 200, 422], "{reports:?}");
        assert!(reports[0]["message"].as_str().unwrap().contains("no key"), "{reports:?}");
        assert_eq!(reports[1]["partition_id"], 3);
        assert_eq!(world.ends(topic).await.iter().sum::<i64>(), 2, "{topic}");
    }
    world.stop().await;
}
