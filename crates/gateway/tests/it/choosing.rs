//! Broker and partition as they were asked for.

use std::sync::Arc;

use gateway::Settings;
use serde_json::{Value, json};
use serving::choice::OfTopics;

use crate::fixture::World;
use crate::http::Connection;

/// The keys of the CS6 report.
const KEYS: [&str; 5] = ["60819", "60847", "23568", "61821", "64500"];

async fn post_keys(connection: &mut Connection, target: &str, rounds: usize) -> Vec<Value> {
    let records: Vec<Value> =
        KEYS.repeat(rounds).iter().map(|key| json!({"key": key, "value": "v"})).collect();
    let body = json!({ "records": records }).to_string();
    let answer = connection.post(target, "application/vnd.kafka.text.v2+json", body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["offsets"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reports_formula_leaves_the_partitions_empty_that_the_report_found_empty() {
    let world = World::start().await;
    world.create("cs6", 5, &[]).await;
    let mut connection = world.connect().await;
    let placed =
        post_keys(&mut connection, "/topics/cs6?broker=cs6-mod&partitioner=cs6-mod", 20).await;
    assert!(
        placed.iter().all(|place| place["broker"] == 1),
        "the only broker is named: {placed:?}"
    );
    assert_eq!(world.ends("cs6").await, [40, 0, 0, 20, 40]);
    let counts = connection.get("/api/v1/gateway/distribution?topic=cs6").await.json();
    let row = |partition, records| {
        json!({"broker_strategy": "cs6-mod", "partitioner": "cs6-mod", "broker": 1,
            "partition": partition, "records": records})
    };
    assert_eq!(counts, json!({"topic": "cs6", "counts": [row(0, 40), row(3, 20), row(4, 40)]}));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_partitioner_sends_keys_where_its_formula_does() {
    let world = World::start().await;
    let mut connection = world.connect().await;
    for (partitioner, expected) in [
        ("murmur2", [4, 0, 1, 0, 0]),
        ("crc32", [0, 2, 1, 1, 1]),
        ("hash-mod", [2, 0, 0, 1, 2]),
        ("cs6-mod", [2, 0, 0, 1, 2]),
        ("round-robin", [1, 1, 1, 1, 1]),
    ] {
        world.create(partitioner, 5, &[]).await;
        let target = format!("/topics/{partitioner}?partitioner={partitioner}");
        let placed = post_keys(&mut connection, &target, 1).await;
        assert!(placed.iter().all(|place| place.get("broker").is_none()), "{placed:?}");
        assert_eq!(world.ends(partitioner).await, expected, "{partitioner}");
    }
    world.create("by-header", 5, &[]).await;
    let headers = [("x-partitioner", "hash-mod"), ("x-broker", "random"), ("x-key", "60819")];
    let answer = connection.ask("POST", "/topics/by-header/raw", &headers, b"v").await;
    assert_eq!((&answer.json()["partition"], &answer.json()["broker"]), (&json!(4), &json!(1)));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_is_named_wins() {
    let world = World::start().await;
    world.create("t", 5, &[]).await;
    let mut connection = world.connect().await;
    let body = r#"{"records":[{"value":"v","partition":3}]}"#;
    let text = "application/vnd.kafka.text.v2+json";
    let answer = connection.post("/topics/t?partitioner=hash-mod", text, body).await;
    assert_eq!(answer.json()["offsets"][0]["partition"], 3);
    let contradicts = connection.post("/topics/t/partitions/2", text, body).await;
    assert_eq!(contradicts.status, 422, "{contradicts:?}");
    let counts = connection.get("/api/v1/gateway/distribution?topic=t").await.json();
    assert_eq!(counts["counts"][0]["partitioner"], "partition");
    assert_eq!(world.ends("t").await, [0, 0, 0, 1, 0]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_formula_over_keys_refuses_records_without_one_and_sends_none_of_the_request() {
    let world = World::start().await;
    world.create("t", 5, &[]).await;
    let mut connection = world.connect().await;
    let body = r#"{"records":[{"key":"k","value":"v"},{"value":"v"}]}"#;
    for partitioner in ["hash-mod", "crc32", "cs6-mod"] {
        let target = format!("/topics/t?partitioner={partitioner}");
        let answer = connection.post(&target, "application/vnd.kafka.text.v2+json", body).await;
        assert_eq!(
            (answer.status, &answer.json()["error_code"]),
            (422, &json!(422)),
            "{partitioner}"
        );
        assert!(answer.body.contains("records[1]"), "{answer:?}");
    }
    let answer = connection.post("/topics/t/raw?partitioner=modulo", "text/plain", "v").await;
    assert_eq!(answer.status, 422);
    assert_eq!(world.ends("t").await, [0; 5]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topics_own_partitioner_counts_unless_the_request_names_one() {
    let rows = ["by-hash=hash-mod", "by-*=crc32"];
    let partitioners = Arc::new(OfTopics::read(rows).unwrap());
    let world = World::start_with(|settings| Settings { partitioners, ..settings }).await;
    let mut connection = world.connect().await;
    for (topic, query, expected) in [
        ("by-hash", "", [2, 0, 0, 1, 2]),
        ("by-crc", "?broker=none", [0, 2, 1, 1, 1]),
        ("others", "", [4, 0, 1, 0, 0]),
    ] {
        world.create(topic, 5, &[]).await;
        post_keys(&mut connection, &format!("/topics/{topic}{query}"), 1).await;
        assert_eq!(world.ends(topic).await, expected, "{topic}");
    }
    // In version 3 and over WebSockets, too: such a partitioner needs keys.
    let cluster = world.cluster.metadata().cluster_id.clone().unwrap();
    let v3 = format!("/v3/clusters/{cluster}/topics/by-crc/records");
    let keyless = connection.post(&v3, "application/json", "{}").await;
    assert_eq!(keyless.status, 422, "{keyless:?}");
    assert_eq!(connection.post("/topics/by-hash/raw", "x/y", "v").await.status, 422);
    let named = connection.post("/topics/by-hash/raw?partitioner=random", "x/y", "v").await;
    assert_eq!(named.status, 200, "{named:?}");
    world.stop().await;
}
