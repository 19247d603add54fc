//! Records come in by POST and are in their partitions where the answers say.

use std::time::{Duration, Instant};

use client::Admin;
use serde_json::json;

use crate::fixture::{Kept, World, nowhere, open, settings};
use crate::http::{Connection, request};

const JSON: &str = "application/vnd.kafka.json.v2+json";
const BINARY: &str = "application/vnd.kafka.binary.v2+json";
const TEXT: &str = "application/vnd.kafka.text.v2+json";

fn bytes(text: &str) -> Option<Vec<u8>> {
    Some(text.as_bytes().to_vec())
}

#[tokio::test(flavor = "multi_thread")]
async fn records_of_every_form_are_read_back_as_they_were_meant() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let mut connection = world.connect().await;
    let json = connection.post("/topics/t", JSON, r#"{"records":[{"key":"k","value":{"a": 1}}]}"#);
    let json = json.await;
    assert_eq!(
        (json.status, json.header("content-type")),
        (200, Some("application/vnd.kafka.v2+json"))
    );
    let offset =
        |offset| json!({"partition": 0, "offset": offset, "error_code": null, "error": null});
    let answer = json!({"offsets": [offset(0)], "key_schema_id": null, "value_schema_id": null});
    assert_eq!(json.json(), answer);
    let binary = r#"{"records":[{"key":"AP8=","value":null},{"value":"AA==","timestamp":1700000000000,
        "headers":[{"key":"h","value":"AQI="}]}]}"#;
    let binary = connection.post("/topics/t/partitions/0", BINARY, binary).await;
    assert_eq!(binary.json()["offsets"], json!([offset(1), offset(2)]));
    let text = connection.post("/topics/t", TEXT, r#"{"records":[{"value":"é\n"}]}"#).await;
    assert_eq!(text.json()["offsets"], json!([offset(3)]));
    let lines = "{\"value\":1,\"key\":null}\n{\"value\":\"x\"}\n";
    let lines = connection.post("/topics/t", "application/x-ndjson", lines).await;
    assert_eq!(lines.json()["offsets"], json!([offset(4), offset(5)]));
    let values = connection.post("/topics/t?lines=values", "application/x-ndjson", "a b\r\n").await;
    assert_eq!(values.json()["offsets"], json!([offset(6)]));
    let headers = [("x-key", "60819"), ("x-header-trace", "1"), ("content-type", "image/png")];
    let raw = connection.ask("POST", "/topics/t/raw?timestamp=5", &headers, b"\0\xff").await;
    assert_eq!((raw.status, raw.json()), (200, offset(7)));

    let kept = world.read("t").await;
    let mut expected: Vec<Kept> = [
        (bytes("\"k\""), bytes("{\"a\":1}")),
        (Some(vec![0, 255]), None),
        (None, Some(vec![0])),
        (None, bytes("é\n")),
        (None, bytes("1")),
        (None, bytes("\"x\"")),
        (None, bytes("a b")),
        (bytes("60819"), Some(vec![0, 255])),
    ]
    .into_iter()
    .zip(0..)
    .map(|((key, value), offset)| Kept {
        partition: 0,
        offset,
        key,
        value,
        headers: Vec::new(),
        timestamp_ms: kept[offset as usize].timestamp_ms,
    })
    .collect();
    expected[2].headers = vec![("h".to_owned(), Some(vec![1, 2]))];
    expected[2].timestamp_ms = 1_700_000_000_000;
    expected[7].headers = vec![("trace".to_owned(), bytes("1"))];
    expected[7].timestamp_ms = 5;
    assert_eq!(kept, expected);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_offset_of_many_connections_is_that_of_the_record() {
    const CONNECTIONS: usize = 32;
    const REQUESTS: usize = 40;
    let world = World::start().await;
    world.create("many", 4, &[]).await;
    let address = world.gateway.address();
    let clients = (0..CONNECTIONS).map(|client| {
        tokio::spawn(async move {
            let mut connection = Connection::open(address).await;
            let mut told = Vec::new();
            for request in 0..REQUESTS {
                let value = format!("{client}-{request}");
                let answer = connection.post("/topics/many/raw", "text/plain", &value).await;
                assert_eq!(answer.status, 200, "{answer:?}");
                let place = answer.json();
                told.push((place["partition"].as_i64(), place["offset"].as_i64(), value));
            }
            told
        })
    });
    let mut told = Vec::new();
    for client in clients.collect::<Vec<_>>() {
        told.extend(client.await.unwrap());
    }
    let kept = world.read("many").await;
    assert_eq!(kept.len(), CONNECTIONS * REQUESTS);
    let mut found: Vec<_> = kept
        .into_iter()
        .map(|one| {
            let value = String::from_utf8(one.value.unwrap()).unwrap();
            (Some(i64::from(one.partition)), Some(one.offset), value)
        })
        .collect();
    told.sort();
    found.sort();
    assert_eq!(told, found);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_record_of_a_long_request_has_its_own_answer() {
    const RECORDS: usize = 1200;
    let world = World::start().await;
    world.create("long", 4, &[]).await;
    let mut connection = world.connect().await;
    let mut told = Vec::new();
    for query in ["", "?partitioner=round-robin", "?partitioner=random"] {
        let value = |at: usize| format!("{query} {at} {}", "x".repeat(at % 300));
        // Some name a partition, and some of these one that there is not.
        let record = |at: usize| match at % 7 {
            3 => json!({"value": value(at), "partition": at % 4}),
            5 => json!({"value": value(at), "partition": 4 + at}),
            _ => json!({"value": value(at)}),
        };
        let records: Vec<_> = (0..RECORDS).map(record).collect();
        let body = json!({ "records": records }).to_string();
        let answer = connection.post(&format!("/topics/long{query}"), TEXT, &body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let places = answer.json()["offsets"].as_array().unwrap().clone();
        assert_eq!(places.len(), RECORDS);
        for (at, place) in places.iter().enumerate() {
            match at % 7 {
                5 => assert_eq!(place["error_code"], 40402, "{place}"),
                3 => assert_eq!(place["partition"], at % 4),
                _ => {}
            }
            if at % 7 != 5 {
                told.push((place["partition"].as_i64(), place["offset"].as_i64(), value(at)));
            }
        }
        if query.ends_with("round-robin") {
            let turns: Vec<_> = (0..RECORDS)
                .filter(|at| ![3, 5].contains(&(at % 7)))
                .map(|at| &places[at])
                .collect();
            let turn = |place: &serde_json::Value| place["partition"].as_u64().unwrap();
            assert!(turns.windows(2).all(|two| turn(two[1]) == (turn(two[0]) + 1) % 4));
        }
    }
    let mut found: Vec<_> = world
        .read("long")
        .await
        .into_iter()
        .map(|one| {
            let value = String::from_utf8(one.value.unwrap()).unwrap();
            (Some(i64::from(one.partition)), Some(one.offset), value)
        })
        .collect();
    // Of one request, records of a partition are there in their order.
    let mut expected = told.clone();
    expected.sort_by_key(|(partition, offset, _)| (*partition, *offset));
    found.sort();
    assert_eq!(expected, found);
    let of_first = |partition: i64| {
        told.iter().filter(move |one| one.0 == Some(partition)).map(|one| one.1).collect::<Vec<_>>()
    };
    assert!((0..4).all(|partition| of_first(partition).is_sorted()));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_one_packet_are_answered_in_their_order() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let mut connection = world.connect().await;
    let post = |value: &[u8]| request("POST", "/topics/t/raw", &[], value);
    connection.send([post(b"a"), post(b"b"), post(b"c")].concat()).await;
    for offset in 0..3 {
        assert_eq!(connection.answer().await.json()["offset"], offset);
    }
    let values: Vec<_> = world.read("t").await.into_iter().map(|kept| kept.value).collect();
    assert_eq!(values, [bytes("a"), bytes("b"), bytes("c")]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_waits_for_nothing_promises_nothing_and_is_written() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let mut connection = world.connect().await;
    let answer = connection.post("/topics/t/raw?async=true", "text/plain", "v").await;
    assert_eq!((answer.status, &*answer.body), (204, ""));
    // Behind it, on the same partition.
    let answer = connection.post("/topics/t/raw?timing=1", "text/plain", "w").await;
    assert_eq!(answer.json()["offset"], 1);
    let timing = answer.header("server-timing").unwrap();
    assert!(timing.starts_with("decide;dur=") && timing.contains(", forward;dur="), "{timing}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_are_no_topics_and_partitions_that_are_none_are_told() {
    let world = World::start().await;
    world.create("t", 2, &[]).await;
    let mut connection = world.connect().await;
    for name in ["missing", "%2e%2e", "a%2Fb", "a%00", "%f0%9f%98%80", &"x".repeat(250), "a%20b"] {
        let answer = connection.post(&format!("/topics/{name}/raw"), "text/plain", "v").await;
        assert_eq!((answer.status, &answer.json()["error_code"]), (404, &json!(40401)), "{name}");
        assert_eq!(answer.json()["written"], "no");
    }
    let known: Vec<String> =
        world.cluster.describe_all().await.unwrap().topics.keys().map(|t| t.to_string()).collect();
    assert_eq!(known, ["t"], "asking creates nothing");
    for target in ["/topics/t/partitions/2/raw", "/topics/t/partitions/x/raw"] {
        let answer = connection.post(target, "text/plain", "v").await;
        assert_eq!((answer.status, &answer.json()["error_code"]), (404, &json!(40402)), "{target}");
    }
    let mixed = r#"{"records":[{"value":1,"partition":1},{"value":2,"partition":7}]}"#;
    let mixed = connection.post("/topics/t", JSON, mixed).await;
    assert_eq!(mixed.status, 200, "one of them is written");
    let offsets = &mixed.json()["offsets"];
    assert_eq!((&offsets[0]["offset"], &offsets[1]["error_code"]), (&json!(0), &json!(40402)));
    assert_eq!((&offsets[1]["written"], &offsets[1]["retriable"]), (&json!("no"), &json!(false)));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_of_the_cluster_itself_are_not_written_to() {
    let world = World::start().await;
    let mut connection = world.connect().await;
    // A group's coordinator makes it.
    let group = client::CoordinatorKind::Group;
    let found = world.cluster.retry(|| world.cluster.coordinator(group, "g")).await;
    found.unwrap();
    let answer = connection.post("/topics/__consumer_offsets/raw", "text/plain", "v").await;
    assert_eq!(answer.status, 403, "{answer:?}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_broker_requests_are_told_to_come_again() {
    let gateway = open(settings(&nowhere().to_string()));
    let mut connection = Connection::open(gateway.address()).await;
    let answer = connection.post("/topics/t/raw", "text/plain", "v").await;
    assert_eq!((answer.status, &answer.json()["written"]), (503, &json!("no")));
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(connection.get("/healthz").await.status, 200);
    let ready = connection.get("/readyz").await;
    assert_eq!((ready.status, &ready.json()["status"]), (503, &json!("unavailable")));
    gateway.stop().await;
    let world = World::start().await;
    assert_eq!(world.connect().await.get("/readyz").await.status, 200);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requests_trace_becomes_headers_of_its_records() {
    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let mut connection = world.connect().await;
    let v3 = crate::version3::path(&world, "t").await;
    let text = ("content-type", "application/vnd.kafka.text.v2+json");
    let json = ("content-type", "application/json");
    let (parent, state) = (("traceparent", PARENT), ("tracestate", "a=1,b=2"));
    let own = br#"{"records":[{"value":"a"},{"value":"b","headers":[{"key":"traceparent","value":"AQ=="}]}]}"#;
    for (target, headers, body) in [
        ("/topics/t/raw", &[parent, state][..], &b"v"[..]),
        ("/topics/t", &[text, parent], own),
        (&v3, &[json, parent], br#"{"value":{"type":"STRING","data":"v"}}"#),
        ("/topics/t/raw", &[state], b"v"),
        ("/topics/t/raw", &[("traceparent", "00-0-0-01")], b"v"),
        // Who sends a request again has another span, and asks the same.
        ("/topics/t/raw", &[parent, ("idempotency-key", "k")], b"once"),
        ("/topics/t/raw", &[("idempotency-key", "k")], b"once"),
    ] {
        let answer = connection.ask("POST", target, headers, body).await;
        assert_eq!(answer.status, 200, "{target} {headers:?}: {answer:?}");
    }
    let chunked = format!(
        "POST {v3} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntraceparent: {PARENT}\r\n\
         transfer-encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n"
    );
    connection.send(chunked).await;
    assert_eq!(connection.closed().await.matches("\"error_code\":200").count(), 1);
    let header = |name: &str, value: &[u8]| (name.to_owned(), Some(value.to_vec()));
    let parent = || header("traceparent", PARENT.as_bytes());
    let found: Vec<_> = world.read("t").await.into_iter().map(|record| record.headers).collect();
    let expected = [
        vec![parent(), header("tracestate", b"a=1,b=2")],
        vec![parent()],
        vec![header("traceparent", &[1])],
        vec![parent()],
        vec![],
        vec![],
        vec![parent()],
        vec![parent()],
    ];
    assert_eq!(found, expected);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_was_deleted_is_missing_before_its_records_are_too_old() {
    let world = World::start().await;
    let admin = Admin::new(world.cluster.clone());
    let mut connection = world.connect().await;
    // Of the first two the gateway knows that they were there; of the last one no broker has taken a record.
    for (topic, is_taken, key) in [("t", true, None), ("u", true, Some("1")), ("w", false, None)] {
        world.create(topic, 2, &[]).await;
        let plain = ("content-type", "text/plain");
        let headers = |key| [plain].into_iter().chain(key).collect::<Vec<_>>();
        let before = match is_taken {
            true => format!("/topics/{topic}/raw"),
            false => format!("/topics/{topic}/partitions/2/raw"),
        };
        let first = headers(key.map(|_| ("idempotency-key", "0")));
        let answer = connection.ask("POST", &before, &first, b"v").await;
        assert_eq!(answer.status == 200, is_taken, "{answer:?}");
        admin.delete_topics(&[topic]).await.unwrap();
        let asked = Instant::now();
        let second = headers(key.map(|key| ("idempotency-key", key)));
        let target = format!("/topics/{topic}/raw");
        let answer = connection.ask("POST", &target, &second, b"v").await;
        let said = answer.json();
        assert_eq!((answer.status, &said["error_code"]), (404, &json!(40401)), "{answer:?}");
        assert_eq!(said["written"], "no", "{answer:?}");
        // After ten seconds they would have been given up anyway, or not even then.
        assert!(asked.elapsed() < Duration::from_secs(9), "{topic}: {:?}", asked.elapsed());
        assert_eq!(connection.post(&target, "text/plain", "v").await.status, 404);
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn records_go_to_a_topic_that_was_made_again_at_once() {
    let world = World::start().await;
    let admin = Admin::new(world.cluster.clone());
    let mut connection = world.connect().await;
    world.create("t", 1, &[]).await;
    for round in 0..5 {
        for offset in 0..3 {
            let answer = connection.post("/topics/t/raw", "text/plain", format!("{round}")).await;
            let offsets = (answer.status, answer.json()["offset"].as_i64());
            assert_eq!(offsets, (200, Some(offset)), "round {round}: {answer:?}");
        }
        admin.delete_topics(&["t"]).await.unwrap();
        world.create("t", 1, &[]).await;
    }
    world.stop().await;
}
