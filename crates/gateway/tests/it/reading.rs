//! Reading: records by offset and by time, and what the cluster has.

use std::time::Duration;

use gateway::{Access, Settings};
use serde_json::{Value, json};

use crate::fixture::{PATIENCE, World};
use crate::http::Connection;

const JSON: &str = "application/vnd.kafka.json.v2+json";

async fn read(connection: &mut Connection, query: &str) -> (u16, Value) {
    let answer = connection.get(&format!("/topics/t/partitions/0/records?{query}")).await;
    (answer.status, answer.json())
}

fn offsets(records: &Value) -> Vec<i64> {
    records.as_array().unwrap().iter().map(|one| one["offset"].as_i64().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_read_as_they_were_written_in_the_form_that_is_asked_for() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let mut connection = world.connect().await;
    let body = r#"{"records":[{"key":"k","value":{"a": [1.50]},"timestamp":1700000000000,
        "headers":[{"key":"h","value":"AP8="},{"key":"none","value":null}]},{"value":null}]}"#;
    assert_eq!(connection.post("/topics/t", JSON, body).await.status, 200);
    let target = "/topics/t/partitions/0/records?offset=0";
    let answer = connection.ask("GET", target, &[("accept", JSON)], b"").await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some(JSON)), "{answer:?}");
    assert_eq!(answer.header("x-next-offset"), Some("2"));
    assert_eq!(answer.header("x-high-watermark"), Some("2"));
    assert!(answer.body.contains("1.50"), "numbers stay as they were written: {answer:?}");
    let first = json!({"topic": "t", "key": "k", "value": {"a": [1.5]}, "partition": 0, "offset": 0,
        "timestamp": 1_700_000_000_000_i64,
        "headers": [{"key": "h", "value": "AP8="}, {"key": "none", "value": null}]});
    let records = answer.json();
    assert_eq!(records[0], first);
    assert_eq!((&records[1]["key"], &records[1]["value"]), (&Value::Null, &Value::Null));
    assert_eq!(records[1].get("headers"), None);
    let (_, binary) = read(&mut connection, "offset=0&max_records=1").await;
    assert_eq!((offsets(&binary), &binary[0]["key"]), (vec![0], &json!("Imsi")));
    // What is not JSON ends an answer before it, and is refused where it comes first.
    assert_eq!(connection.post("/topics/t/raw", "x/y", b"{\xff").await.status, 200);
    let (_, until) = read(&mut connection, "offset=0&format=json").await;
    assert_eq!(offsets(&until), [0, 1]);
    for form in ["json", "text"] {
        let (status, error) = read(&mut connection, &format!("offset=2&format={form}")).await;
        assert_eq!((status, &error["error_code"]), (406, &json!(406)), "{error}");
    }
    assert_eq!(read(&mut connection, "offset=2").await.1[0]["value"], json!("e/8="));
    let html = connection.ask("GET", target, &[("accept", "text/html")], b"").await;
    assert_eq!(html.status, 406);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_begins_where_it_says_and_goes_on_where_it_is_told() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let mut connection = world.connect().await;
    for at in 0..10 {
        let target = format!("/topics/t/raw?timestamp={}", 1000 + at);
        assert_eq!(connection.post(&target, "x/y", [b'v'; 100]).await.status, 200);
    }
    let (_, by_time) = read(&mut connection, "timestamp=1004&max_records=2").await;
    assert_eq!(offsets(&by_time), [4, 5]);
    for (query, found) in [
        ("offset=earliest&max_records=1", vec![0]),
        ("offset=latest", vec![]),
        ("offset=10", vec![]),
        ("timestamp=2000", vec![]),
        ("offset=7&max_bytes=400", vec![7, 8]),
        ("offset=7&max_bytes=1", vec![7]),
    ] {
        let (status, records) = read(&mut connection, query).await;
        assert_eq!((status, offsets(&records)), (200, found), "{query}");
    }
    let (mut at, mut all) = ("0".to_owned(), Vec::new());
    while all.len() < 10 {
        let target = format!("/topics/t/partitions/0/records?offset={at}&max_records=3");
        let answer = connection.get(&target).await;
        all.extend(offsets(&answer.json()));
        at = answer.header("x-next-offset").unwrap().to_owned();
    }
    assert_eq!(all, (0..10).collect::<Vec<_>>());
    let (status, error) = read(&mut connection, "offset=11").await;
    assert_eq!((status, &error["error_code"]), (416, &json!(41601)), "{error}");
    assert_eq!(read(&mut connection, "offset=x").await.0, 422);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_waits_is_answered_with_what_comes() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let (mut reader, mut writer) = (world.connect().await, world.connect().await);
    let waits = crate::http::request(
        "GET",
        "/topics/t/partitions/0/records?offset=latest&timeout=30000&format=text",
        &[],
        b"",
    );
    reader.send(waits).await;
    assert!(!reader.is_closed_within(Duration::from_millis(200)).await);
    assert_eq!(writer.post("/topics/t/raw", "x/y", "came").await.status, 200);
    let answer = reader.answer().await;
    assert_eq!(answer.json()[0]["value"], json!("came"), "{answer:?}");
    let (status, none) = read(&mut writer, "offset=1&timeout=100").await;
    assert_eq!((status, none), (200, json!([])));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_does_not_wait_for_readers_that_wait() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let mut reader = world.connect().await;
    let target = "/topics/t/partitions/0/records?offset=0&timeout=30000";
    reader.send(crate::http::request("GET", target, &[], b"")).await;
    assert!(!reader.is_closed_within(Duration::from_millis(200)).await);
    let stopping = tokio::time::timeout(PATIENCE / 4, world.stop());
    stopping.await.expect("it stops before the reader's time is over");
    let answer = reader.answer().await;
    assert_eq!((answer.status, answer.header("connection")), (503, Some("close")), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_partitions_and_offsets_stand_as_in_rest_proxies() {
    let world = World::start().await;
    world.create("t", 2, &[("retention.ms", "1234567")]).await;
    world.create("a", 1, &[]).await;
    let mut connection = world.connect().await;
    assert_eq!(connection.get("/topics").await.json(), json!(["a", "t"]));
    let broker = connection.get("/brokers").await.json()["brokers"][0].clone();
    let partition = |index: i32| {
        json!({"partition": index, "leader": broker,
            "replicas": [{"broker": broker, "leader": true, "in_sync": true}]})
    };
    let topic = connection.get("/topics/t").await.json();
    assert_eq!(
        (&topic["name"], &topic["configs"]["retention.ms"]),
        (&json!("t"), &json!("1234567"))
    );
    assert_eq!(topic["partitions"], json!([partition(0), partition(1)]));
    assert_eq!(connection.get("/topics/t/partitions").await.json(), topic["partitions"]);
    assert_eq!(connection.get("/topics/t/partitions/1").await.json(), partition(1));
    assert_eq!(connection.post("/topics/t/partitions/1/raw", "x/y", "v").await.status, 200);
    let offsets = connection.get("/topics/t/partitions/1/offsets").await;
    assert_eq!(offsets.json(), json!({"beginning_offset": 0, "end_offset": 1}));
    for (target, code) in [
        ("/topics/missing", 40401),
        ("/topics/missing/partitions", 40401),
        ("/topics/missing/partitions/0/offsets", 40401),
        ("/topics/missing/partitions/0/records?offset=0", 40401),
        ("/topics/a%2Fb/partitions/0/records?offset=0", 40401),
        ("/topics/t/partitions/2", 40402),
        ("/topics/t/partitions/2/offsets", 40402),
        ("/topics/t/partitions/2147483647/records?offset=0", 40402),
        ("/topics/t/partitions/x/records?offset=0", 40402),
    ] {
        let answer = connection.get(target).await;
        assert_eq!((answer.status, &answer.json()["error_code"]), (404, &json!(code)), "{target}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_needs_leave_to_read_and_memory() {
    let world = World::start_with(|settings| Settings { access: Access::Health, ..settings }).await;
    world.create("t", 1, &[]).await;
    let mut connection = world.connect().await;
    for target in ["/topics", "/topics/t", "/topics/t/partitions/0/records?offset=0"] {
        let answer = connection.get(target).await;
        assert_eq!(answer.status, 403, "{target}");
        assert!(answer.body.contains("gateway.anonymous=read"), "{answer:?}");
    }
    world.stop().await;
    // A quarter of it is for what is read.
    let world = World::start_with(|settings| Settings { memory_bytes: 1 << 20, ..settings }).await;
    world.create("t", 1, &[]).await;
    let mut connection = world.connect().await;
    assert_eq!(read(&mut connection, "offset=0&max_bytes=300000").await.0, 429);
    assert_eq!(read(&mut connection, "offset=0&max_bytes=100000").await.0, 200);
    // Six bytes each in a text; the page ends before what it has no room for.
    world.fill("t", 0, ["v".to_owned(), "\u{1}".repeat(60_000)]).await;
    let (status, page) = read(&mut connection, "offset=0&max_bytes=100000&format=text").await;
    assert_eq!((status, page.as_array().map(Vec::len)), (200, Some(1)), "{page}");
    let (status, error) = read(&mut connection, "offset=1&max_bytes=100000&format=text").await;
    let words = error["message"].as_str().unwrap();
    assert!(status == 429 && words.contains("takes 360") && words.contains("offset 1"), "{words}");
    let (status, page) = read(&mut connection, "offset=1&max_bytes=100000&format=binary").await;
    assert_eq!((status, page.as_array().map(Vec::len)), (200, Some(1)));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_broker_a_reader_is_told_to_come_again() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let mut connection = world.connect().await;
    assert_eq!(read(&mut connection, "offset=0").await.0, 200);
    let gateway = world.stop_broker().await;
    let (status, error) = read(&mut connection, "offset=0&timeout=100").await;
    assert_eq!((status, &error["retriable"]), (503, &json!(true)), "{error}");
    assert_eq!(connection.get("/topics").await.status, 503);
    drop(gateway);
}
