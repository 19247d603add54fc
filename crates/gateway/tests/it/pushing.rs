//! Records as server-sent events: what comes, in which form, and where a reader goes on that comes again.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use client::{Admin, Producer, ProducerConfig, Record};
use gateway::{Access, EventSettings, Settings};
use model::{Compression, Offset, TopicPartition};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::event_stream::{EventStream, Said};
use crate::fixture::{World, open, settings};

fn numbered(prefix: &str, range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|i| format!("{prefix}{i}")).collect()
}

fn event(kind: &str, data: &str) -> (String, String) {
    (kind.to_owned(), data.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn records_come_as_they_were_written_and_as_they_are_written() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let mut post = world.connect().await;
    for (target, body) in [
        ("/topics/t/raw?key=k", &b"one\ntwo"[..]),
        ("/topics/t/raw", b"\xff\r"),
        ("/topics/t/raw", b""),
        ("/topics/t", br#"{"records":[{"key":"gone","value":null}]}"#),
    ] {
        let kind = if body.starts_with(b"{") { "application/json" } else { "" };
        assert_eq!(post.post(target, kind, body).await.status, 200);
    }
    let address = world.gateway.address();
    let mut stream = EventStream::open(address, "/topics/t/events?from=earliest", None).await;
    assert_eq!(stream.status, 200);
    for header in [
        "content-type: text/event-stream",
        "cache-control: no-store, no-transform",
        "x-accel-buffering: no",
        "transfer-encoding: chunked",
    ] {
        assert!(stream.head.contains(header), "{}", stream.head);
    }
    assert!(matches!(stream.next().await, Some(Said::Retry(1_000..=3_000))));
    assert_eq!(stream.next().await, Some(Said::Id));
    assert!(stream.id.starts_with("t/0@-1."), "{}", stream.id);
    assert_eq!(stream.event().await, event("message", "one\ntwo"));
    assert!(stream.id.starts_with("t/0@0."), "{}", stream.id);
    assert_eq!(stream.event().await, event("base64", "/w0="));
    assert_eq!(stream.event().await, event("message", ""));
    assert_eq!(stream.event().await, event("tombstone", ""));
    assert_eq!(post.post("/topics/t/raw", "", "now").await.status, 200);
    assert_eq!(stream.event().await, event("message", "now"));
    assert!(stream.id.starts_with("t/0@4."), "{}", stream.id);
    let target = "/topics/t/events?from=earliest&data=record&limit=1&id=json";
    let mut stream = EventStream::open(address, target, None).await;
    let record: Value = serde_json::from_str(&stream.value().await).unwrap();
    let Value::Object(mut fields) = record else { panic!("{record}") };
    assert!(fields.remove("timestamp").is_some_and(|at| at.as_i64() > Some(1_700_000_000_000)));
    let expected = json!({"topic": "t", "partition": 0, "offset": 0, "key": "k",
        "value": "one\ntwo", "headers": []});
    assert_eq!(Value::Object(fields), expected);
    let id: Value = serde_json::from_str(&stream.id).unwrap();
    assert_eq!(
        (&id[0]["topic"], &id[0]["partition"], &id[0]["offset"]),
        (&json!("t"), &json!(0), &json!(0))
    );
    assert_eq!(stream.event().await, event("end", r#"{"reason":"limit"}"#));
    assert_eq!(stream.next().await, Some(Said::Id));
    assert_eq!(stream.next().await, None);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_begin_where_they_are_told() {
    let world = World::start().await;
    world.create("t", 2, &[]).await;
    world.fill("t", 0, numbered("a", 0..5)).await;
    world.fill("t", 1, numbered("b", 0..5)).await;
    let address = world.gateway.address();
    for (query, expected) in [
        ("from=3&partitions=1", &["b3", "b4"][..]),
        ("from=0:4", &["a4"]),
        ("from=0:4,1:3", &["a4", "b3", "b4"]),
        ("from=ts:1&partitions=0", &["a0", "a1", "a2", "a3", "a4"]),
        ("from=ts:99999999999999", &[]),
        ("from=latest", &[]),
        ("", &[]),
    ] {
        let target = format!("/topics/t/events?until=end&{query}");
        let mut stream = EventStream::open(address, target.trim_end_matches('&'), None).await;
        let mut values = Vec::new();
        loop {
            match stream.event().await {
                (kind, value) if kind == "message" => values.push(value),
                (kind, data) => {
                    assert_eq!((&*kind, &*data), ("end", r#"{"reason":"end"}"#), "{query}");
                    break;
                }
            }
        }
        values.sort();
        assert_eq!(values, expected, "{query}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_partition_goes_on_exactly_where_it_broke_off_on_any_gateway() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let all = numbered("v", 0..300);
    world.fill("t", 0, all[..200].iter().cloned()).await;
    let bootstrap = world.cluster.config().bootstrap[0].clone();
    let (mut came, mut id): (Vec<String>, Option<String>) = (Vec::new(), None);
    let mut count = 1;
    while came.len() < 200 {
        let gateway = open(settings(&bootstrap));
        let target = "/topics/t/events?from=earliest";
        let mut stream = EventStream::open(gateway.address(), target, id.as_deref()).await;
        let left = 200 - came.len();
        came.extend(stream.values(count.min(left)).await);
        id = Some(stream.id.clone());
        count = count * 2 + 1;
        // Without a word.
        drop(gateway);
    }
    let target = "/topics/t/events";
    let mut stream = EventStream::open(world.gateway.address(), target, id.as_deref()).await;
    world.fill("t", 0, all[200..].iter().cloned()).await;
    came.extend(stream.values(100).await);
    assert_eq!(came, all);
    world.stop().await;
}

/// Reads all that was written to the partitions of a topic, coming again after every few events; how often each came.
async fn read_in_parts(world: &World, query: &str, values: usize) -> BTreeMap<String, usize> {
    let (mut came, mut id) = (BTreeMap::new(), None::<String>);
    for part in 1.. {
        let target = format!("/topics/t,u/events?from=earliest{query}");
        let mut stream = EventStream::open(world.gateway.address(), &target, id.as_deref()).await;
        for _ in 0..part * 7 {
            *came.entry(stream.value().await).or_default() += 1;
            if came.len() == values {
                return came;
            }
        }
        id = Some(stream.id.clone());
    }
    unreachable!("the loop has no end");
}

#[tokio::test(flavor = "multi_thread")]
async fn several_partitions_and_topics_go_on_without_a_gap() {
    let world = World::start().await;
    world.create("t", 3, &[]).await;
    world.create("u", 2, &[]).await;
    let mut all = Vec::new();
    for (topic, partition) in [("t", 0), ("t", 1), ("t", 2), ("u", 1)] {
        let values = numbered(&format!("{topic}{partition}/"), 0..120);
        world.fill(topic, partition, values.iter().cloned()).await;
        all.extend(values);
    }
    let came = read_in_parts(&world, "", all.len()).await;
    assert!(all.iter().all(|value| came.contains_key(value)), "repeats at most, and no gap");
    let came = read_in_parts(&world, "&id=every", all.len()).await;
    assert!(came.values().all(|times| *times == 1), "an id in each event: no repeats");
    assert_eq!(came.len(), all.len());
    let json = read_in_parts(&world, "&id=json", all.len()).await;
    assert!(all.iter().all(|value| json.contains_key(value)));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_filtered_out_is_passed_and_not_read_again() {
    let ping_every = Duration::from_millis(50);
    let events = EventSettings { ping_every, ..EventSettings::default() };
    let world = World::start_with(|settings| Settings { events, ..settings }).await;
    world.create("t", 1, &[]).await;
    let mut post = world.connect().await;
    for (key, kind, value) in
        [("a-1", "order", "1"), ("b", "order", "2"), ("a-2", "other", "3"), ("b", "other", "4")]
    {
        let target = format!("/topics/t/raw?key={key}");
        let answer = post.ask("POST", &target, &[("x-header-kind", kind)], value.as_bytes()).await;
        assert_eq!(answer.status, 200);
    }
    let address = world.gateway.address();
    for (filter, expected) in [
        ("key:a-*", &["1", "3"][..]),
        ("header:kind=order", &["1", "2"]),
        ("key:b,header:kind=oth*", &["4"]),
    ] {
        let target = format!("/topics/t/events?from=earliest&until=end&filter={filter}");
        let mut stream = EventStream::open(address, &target, None).await;
        assert_eq!(stream.values(expected.len()).await, expected, "{filter}");
        assert_eq!(stream.event().await.0, "end");
        stream.rest().await;
        assert!(stream.id.starts_with("t/0@3."), "{filter}: {}", stream.id);
    }
    let mut stream = EventStream::open(address, "/topics/t/events?filter=key:c", None).await;
    stream.next_id().await;
    world.fill("t", 0, numbered("x", 0..10)).await;
    while !stream.id.starts_with("t/0@13.") {
        stream.next_id().await;
    }
    while stream.next().await != Some(Said::Ping) {}
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_has_everything_is_told_not_to_come_again() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    world.fill("t", 0, numbered("v", 0..3)).await;
    let target = "/topics/t/events?from=earliest&until=end";
    let address = world.gateway.address();
    let mut stream = EventStream::open(address, target, None).await;
    stream.rest().await;
    let id = stream.id.clone();
    assert_eq!(EventStream::open(address, target, Some(&id)).await.status, 204);
    world.fill("t", 0, numbered("v", 3..4)).await;
    let mut stream = EventStream::open(address, target, Some(&id)).await;
    assert_eq!(stream.value().await, "v3");
    // One that missed something hears of it first, though there is nothing to be read.
    let mut stream = EventStream::open(address, target, Some("t/0@41")).await;
    let expected = r#"{"topic":"t","partition":0,"reason":"cut","from":42,"to":4}"#;
    assert_eq!(stream.event().await, event("gap", expected));
    stream.rest().await;
    let id = stream.id.clone();
    assert_eq!(EventStream::open(address, target, Some(&id)).await.status, 204, "{id}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_is_said() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    world.fill("t", 0, numbered("v", 0..10)).await;
    let address = world.gateway.address();
    let mut stream = EventStream::open(address, "/topics/t/events?from=earliest", None).await;
    stream.values(3).await;
    let id = stream.id.clone();
    drop(stream);
    let admin = Admin::new(world.cluster.clone());
    let before = HashMap::from([(TopicPartition::new("t", 0), Offset(7))]);
    admin.delete_records(&before).await.unwrap();
    // With the last reader the chunks go: what the next one asks for must be read from the broker.
    world.until_count("readers", 0).await;
    for id in [&id, "t/0@2", r#"[{"topic":"t","partition":0,"offset":2}]"#] {
        let mut stream = EventStream::open(address, "/topics/t/events", Some(id)).await;
        let expected = r#"{"topic":"t","partition":0,"reason":"retention","from":3,"to":7}"#;
        assert_eq!(stream.event().await, event("gap", expected), "{id}");
        assert_eq!(stream.values(3).await, ["v7", "v8", "v9"]);
    }
    let mut stream = EventStream::open(address, "/topics/t/events", Some("t/0@41")).await;
    let expected = r#"{"topic":"t","partition":0,"reason":"cut","from":42,"to":10}"#;
    assert_eq!(stream.event().await, event("gap", expected));
    world.fill("t", 0, numbered("v", 10..11)).await;
    assert_eq!(stream.value().await, "v10");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_is_too_large_to_expand_is_said_and_passed() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let config = ProducerConfig {
        compression: Compression::Zstd,
        request_bytes_max: 200 << 20,
        buffer_bytes: 400 << 20,
        ..ProducerConfig::default()
    };
    let producer = Producer::new(world.cluster.clone(), config).await.unwrap();
    let large = vec![b'0'; 65 << 20];
    let address = world.gateway.address();
    let mut live = EventStream::open(address, "/topics/t/events", None).await;
    live.next_id().await;
    for value in [&b"before"[..], &large, b"after"] {
        producer.send("t", &Record::value(value)).await.unwrap();
        producer.flush().await.unwrap();
    }
    let past = EventStream::open(address, "/topics/t/events?from=earliest&until=end", None).await;
    for mut stream in [live, past] {
        assert_eq!(stream.value().await, "before");
        let (kind, data) = stream.event().await;
        let error: Value = serde_json::from_str(&data).unwrap();
        assert_eq!((&*kind, &error["offset"]), ("error", &json!(1)), "{data}");
        assert_eq!(stream.value().await, "after");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_was_made_anew_is_another() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    world.fill("t", 0, numbered("old", 0..5)).await;
    let address = world.gateway.address();
    let target = "/topics/t/events?from=earliest";
    let mut stream = EventStream::open(address, target, None).await;
    stream.values(5).await;
    let admin = Admin::new(world.cluster.clone());
    admin.delete_topics(&["t"]).await.unwrap();
    // The reader is sent away, to come again.
    let rest = stream.rest().await;
    let id = stream.id.clone();
    assert!(rest.iter().any(|said| matches!(said, Said::Retry(2_000..=15_000))), "{rest:?}");
    let mut meanwhile = EventStream::open(address, target, Some(&id)).await;
    assert_eq!(meanwhile.status, 200, "weather, for a reader that had the topic");
    assert!(matches!(*meanwhile.rest().await, [Said::Retry(2_000..=15_000)]));
    assert_eq!(meanwhile.id, id, "a library reports no empty id");
    assert_eq!(EventStream::open(address, target, None).await.status, 404);
    world.create("t", 1, &[]).await;
    world.fill("t", 0, numbered("new", 0..9)).await;
    let mut stream = EventStream::open(address, target, Some(&id)).await;
    let expected = r#"{"topic":"t","partition":0,"reason":"recreated","from":5,"to":0}"#;
    assert_eq!(stream.event().await, event("gap", expected));
    assert_eq!(stream.values(9).await, numbered("new", 0..9));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_the_id_lacks_is_read_from_its_beginning() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    world.fill("t", 0, numbered("a", 0..3)).await;
    let address = world.gateway.address();
    let mut stream = EventStream::open(address, "/topics/t/events?from=earliest", None).await;
    stream.values(3).await;
    let id = stream.id.clone();
    Admin::new(world.cluster.clone()).create_partitions("t", 2, None).await.unwrap();
    world.cluster.refresh().await.unwrap();
    world.fill("t", 1, numbered("b", 0..3)).await;
    let gateway = open(settings(&world.cluster.config().bootstrap[0]));
    let mut stream = EventStream::open(gateway.address(), "/topics/t/events", Some(&id)).await;
    assert_eq!(stream.values(3).await, numbered("b", 0..3));
    gateway.stop().await;
    drop(stream);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_are_sent_away_to_get_partitions_that_were_added() {
    let world = World::start_with(|mut settings| {
        settings.cluster.metadata_age_max = Duration::from_millis(100);
        settings
    })
    .await;
    world.create("t", 1, &[]).await;
    let address = world.gateway.address();
    let mut stream = EventStream::open(address, "/topics/t/events", None).await;
    stream.next_id().await;
    Admin::new(world.cluster.clone()).create_partitions("t", 2, None).await.unwrap();
    let rest = stream.rest().await;
    assert!(matches!(*rest, [Said::Retry(2_000..=15_000), Said::Id]), "{rest:?}");
    world.cluster.refresh().await.unwrap();
    world.fill("t", 1, numbered("b", 0..3)).await;
    let id = stream.id.clone();
    let mut stream = EventStream::open(address, "/topics/t/events", Some(&id)).await;
    assert_eq!(stream.values(3).await, numbered("b", 0..3));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_makes_no_sense_is_refused_for_good() {
    let world = World::start().await;
    world.create("t", 2, &[]).await;
    let mut connection = world.connect().await;
    for (target, status, part) in [
        ("/topics/t/events?group=g&partitions=0", 400, "leave it out"),
        ("/topics/t/events?instance=i", 400, "only with group="),
        ("/topics/t/events?form=earliest", 400, "unknown parameter"),
        ("/topics/t/events?from=x", 400, "from: invalid value"),
        ("/topics/t/events?filter=x", 400, "filter: invalid condition"),
        ("/topics/t/events?partitions=2", 404, "no partition 2"),
        ("/topics/nothing/events", 404, "does not exist"),
        ("/topics/t,nothing/events", 404, "does not exist"),
        ("/topics/__consumer_offsets/events", 404, "does not exist"),
        ("/topics//events", 404, "does not exist"),
        ("/topics/t/events?lastEventId=nonsense", 400, "the id is damaged"),
    ] {
        let answer = connection.get(target).await;
        assert_eq!(answer.status, status, "{target}: {answer:?}");
        assert!(answer.body.contains(part), "{target}: {answer:?}");
    }
    let answer = connection.ask("GET", "/topics/t/events", &[("content-length", "2")], b"{}").await;
    assert_eq!(answer.status, 400, "{answer:?}");
    let strange = [("host", "evil.example.com")];
    assert_eq!(connection.ask("GET", "/topics/t/events", &strange, b"").await.status, 403);
    assert_eq!(connection.ask("HEAD", "/topics/t/events", &[], b"").await.status, 200);
    let bootstrap = &world.cluster.config().bootstrap[0];
    let closed = open(Settings { access: Access::Health, ..settings(bootstrap) });
    assert_eq!(EventStream::open(closed.address(), "/topics/t/events", None).await.status, 403);
    let reading = open(Settings { access: Access::Read, ..settings(bootstrap) });
    assert_eq!(EventStream::open(reading.address(), "/topics/t/events", None).await.status, 200);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_was_used_before_can_be_used_for_events_and_for_nothing_else_then() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    world.fill("t", 0, numbered("v", 0..2)).await;
    let mut socket = TcpStream::connect(world.gateway.address()).await.unwrap();
    // All at once: behind the stream nothing is answered.
    let requests = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n\
        GET /topics/t/events?from=earliest&limit=2 HTTP/1.1\r\nhost: localhost\r\n\r\n\
        GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    socket.write_all(requests.as_bytes()).await.unwrap();
    let health = EventStream::of(socket).await;
    let mut stream = health.behind("{\"status\":\"ok\"}".len()).await;
    assert!(stream.head.contains("connection: close"), "{}", stream.head);
    assert_eq!(stream.values(2).await, ["v0", "v1"]);
    assert_eq!(stream.event().await.0, "end");
    stream.rest().await;
    assert_eq!(stream.left(), "", "a second answer");
    let old = "GET /topics/t/events?from=earliest&limit=2 HTTP/1.0\r\n\r\n";
    let mut stream = EventStream::open_with(world.gateway.address(), old).await;
    assert!(!stream.head.contains("chunked"), "{}", stream.head);
    assert_eq!(stream.values(2).await, ["v0", "v1"]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_sends_readers_away_with_the_id_they_need() {
    let world = World::start().await;
    world.create("t", 2, &[]).await;
    world.fill("t", 0, numbered("v", 0..3)).await;
    let gateway = open(settings(&world.cluster.config().bootstrap[0]));
    let target = "/topics/t/events?from=earliest";
    let mut stream = EventStream::open(gateway.address(), target, None).await;
    stream.values(3).await;
    let stopping = tokio::spawn(gateway.stop());
    let rest = stream.rest().await;
    assert!(rest.iter().any(|said| matches!(said, Said::Retry(2_000..=15_000))), "{rest:?}");
    assert_eq!(rest.last(), Some(&Said::Id));
    stopping.await.unwrap();
    let id = stream.id.clone();
    let mut stream = EventStream::open(world.gateway.address(), target, Some(&id)).await;
    assert!(stream.is_silent_for(Duration::from_millis(300)).await, "no repeats");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_broker_a_reader_is_told_to_come_again() {
    let nowhere = crate::fixture::nowhere().to_string();
    let gateway = open(settings(&nowhere));
    let mut stream = EventStream::open(gateway.address(), "/topics/t/events", None).await;
    assert_eq!(stream.status, 200);
    assert!(stream.head.contains("content-type: text/event-stream"), "{}", stream.head);
    assert!(matches!(stream.next().await, Some(Said::Retry(2_000..=15_000))));
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_that_are_listed_may_read_a_stream() {
    let doorkeeper = serving::visitors::Doorkeeper::new(None, ["https://shop.example"]);
    let world = World::start_with(|settings| Settings { doorkeeper, ..settings }).await;
    world.create("t", 1, &[]).await;
    let ask = |origin: &str| {
        format!("GET /topics/t/events HTTP/1.1\r\nhost: localhost\r\norigin: {origin}\r\n\r\n")
    };
    let address = world.gateway.address();
    let listed = EventStream::open_with(address, &ask("https://shop.example")).await;
    assert!(
        listed.head.contains("access-control-allow-origin: https://shop.example"),
        "{}",
        listed.head
    );
    let other = EventStream::open_with(address, &ask("https://other.example")).await;
    assert!(!other.head.contains("access-control-allow-origin"), "{}", other.head);
    world.stop().await;
}
