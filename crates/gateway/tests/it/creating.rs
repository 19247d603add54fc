//! Topics that are missing when a client writes to them: the gateway obeys the brokers' `auto.create.topics.enable`, and
//! the client's right to create topics.

use client::Admin;
use gateway::{Access, Settings};
use serde_json::{Value, json};

use crate::fixture::World;
use crate::http::Answer;
use crate::streaming::{Stream, record};
use crate::version3::path;
use crate::websocket_client::WebSocket;

const JSON: &str = "application/vnd.kafka.json.v2+json";

/// Names of all topics, sorted.
pub async fn topics(world: &World) -> Vec<String> {
    let described = world.cluster.describe_all().await.unwrap();
    let mut names: Vec<String> = described.topics.keys().map(ToString::to_string).collect();
    names.sort();
    names
}

async fn post(world: &World, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let mut headers = headers.to_vec();
    headers.push(("content-type", if path.starts_with("/v3") { "application/json" } else { JSON }));
    world.connect().await.ask("POST", path, &headers, body.as_bytes()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_way_to_write_creates_a_missing_topic_where_brokers_do() {
    let world = World::start_creating(|settings| settings).await;
    let cluster = world.cluster.metadata().cluster_id.clone().unwrap();
    let v2 = r#"{"records":[{"value":1}]}"#;
    let v3 = r#"{"value":{"type":"JSON","data":1}}"#;
    for (path, headers, body) in [
        ("/topics/plain".to_owned(), &[][..], v2),
        ("/topics/raw/raw".to_owned(), &[], "v"),
        ("/topics/keyed".to_owned(), &[("idempotency-key", "k")], v2),
        (format!("/v3/clusters/{cluster}/topics/whole/records"), &[], v3),
    ] {
        let answer = post(&world, &path, headers, body).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
    }
    let producer = "/ws/v2/producer/persistent/public/default/socket";
    let mut socket = WebSocket::open(world.gateway.address(), producer).await;
    socket.say(json!({"payload": "Yg=="})).await;
    assert_eq!(socket.text().await["result"], json!("ok"));
    let all = ["keyed", "plain", "raw", "socket", "whole"];
    assert_eq!(topics(&world).await, all);
    // Neither requests without sense, nor names that no topic can have, nor readers.
    assert_eq!(post(&world, "/topics/senseless", &[], "{").await.status, 400);
    assert_eq!(post(&world, "/topics/no%20name", &[], v2).await.status, 404);
    for target in ["/topics/read", "/topics/read/partitions/0/records?offset=0"] {
        assert_eq!(world.connect().await.get(target).await.status, 404, "{target}");
    }
    // Nor requests for a partition that a new topic would not have, nor streams without a record that can be read.
    for (path, headers, body) in [
        ("/topics/few/partitions/7".to_owned(), &[][..], v2),
        ("/topics/few".to_owned(), &[], r#"{"records":[{"value":1},{"value":2,"partition":7}]}"#),
        (
            "/topics/few".to_owned(),
            &[("idempotency-key", "few")],
            r#"{"records":[{"value":1,"partition":7}]}"#,
        ),
        (
            format!("/v3/clusters/{cluster}/topics/few/records"),
            &[],
            r#"{"partition_id":7,"value":{"type":"JSON","data":1}}"#,
        ),
    ] {
        let answer = post(&world, &path, headers, body).await;
        assert_eq!(
            (answer.status, answer.json()["error_code"].as_u64()),
            (404, Some(40402)),
            "{path}: {answer:?}"
        );
    }
    let producer = "/ws/v2/producer/persistent/public/default/silent";
    let mut silent = WebSocket::open(world.gateway.address(), producer).await;
    silent.say(json!({"payload": 1})).await;
    assert_ne!(silent.text().await["result"], json!("ok"));
    let records = format!("/v3/clusters/{cluster}/topics/stream/records");
    let chunked = [("content-type", "application/json"), ("transfer-encoding", "chunked")];
    for body in ["0\r\n\r\n", "4\r\n{\"a\"\r\n0\r\n\r\n"] {
        let mut connection = world.connect().await;
        let head = format!("POST {records} HTTP/1.1\r\nhost: localhost\r\n");
        let fields: String =
            chunked.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        connection.send(format!("{head}{fields}\r\n{body}")).await;
        assert_eq!(connection.answer().await.status, 200, "{body:?}");
        connection.closed().await;
    }
    assert_eq!(topics(&world).await, all);
    let mut connection = world.connect().await;
    let object = r#"{"value":{"type":"JSON","data":1}}"#;
    let body = format!("{:x}\r\n{object}\r\n0\r\n\r\n", object.len());
    connection
        .send(format!(
            "POST {records} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             transfer-encoding: chunked\r\n\r\n{body}"
        ))
        .await;
    assert_eq!(connection.answer().await.status, 200);
    while !topics(&world).await.contains(&"stream".to_owned()) {
        tokio::task::yield_now().await;
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_on_a_websocket_does_not_create_a_deleted_topic_again() {
    let world = World::start_creating(|settings| settings).await;
    let producer = "/ws/v2/producer/persistent/public/default/t";
    let mut socket = WebSocket::open(world.gateway.address(), producer).await;
    socket.say(json!({"payload": "Yg=="})).await;
    assert_eq!(socket.text().await["result"], json!("ok"));
    Admin::new(world.cluster.clone()).delete_topics(&["t"]).await.unwrap();
    // The gateway notices the deletion by a failure.
    for _ in 0..2 {
        socket.say(json!({"payload": "Yg=="})).await;
        assert_ne!(socket.text().await["result"], json!("ok"));
    }
    assert!(topics(&world).await.is_empty());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_does_not_create_a_deleted_topic_again() {
    let world = World::start_creating(|settings| settings).await;
    let mut stream = Stream::begin(&world, &path(&world, "t").await).await;
    stream.send(record("created")).await;
    assert_eq!(stream.report().await.unwrap()["error_code"], 200);
    Admin::new(world.cluster.clone()).delete_topics(&["t"]).await.unwrap();
    // The gateway notices the deletion by a failure.
    for _ in 0..2 {
        stream.send(record("lost")).await;
        assert_eq!(stream.report().await.unwrap()["error_code"], 40401);
    }
    assert!(topics(&world).await.is_empty());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_may_not_create_topics_gets_none() {
    let access = Access::Produce;
    let world = World::start_creating(|settings| Settings { access, ..settings }).await;
    let answer = post(&world, "/topics/t", &[], r#"{"records":[{"value":1}]}"#).await;
    assert_eq!(answer.status, 404, "{answer:?}");
    let mut stream = Stream::begin(&world, &path(&world, "t").await).await;
    stream.send(record("v")).await;
    let head = stream.head().await;
    assert!(head.starts_with("http/1.1 404"), "{head}");
    assert!(topics(&world).await.is_empty());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_name_is_looked_up_again_by_the_next_request() {
    let world = World::start().await;
    let body = r#"{"records":[{"value":1}]}"#;
    for _ in 0..3 {
        let answer = post(&world, "/topics/t", &[], body).await;
        let told: Value = answer.json();
        assert_eq!((answer.status, &told["retriable"]), (404, &json!(true)), "{answer:?}");
        assert!(told["message"].as_str().unwrap().contains("auto.create.topics.enable"), "{told}");
    }
    assert!(topics(&world).await.is_empty());
    // Beside the gateway, which remembers no missing names.
    let topic = client::admin::NewTopic::new("t", 1, 1);
    Admin::new(world.cluster.clone()).create_topic(&topic).await.unwrap();
    let answer = post(&world, "/topics/t", &[], body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    world.stop().await;
}
