//! What a stop does, whatever its clients do.

use std::time::Duration;

use client::Admin;
use gateway::Settings;

use crate::fixture::World;
use crate::http::{Connection, request};

const V2: &str = "application/vnd.kafka.v2+json";

/// A connection whose body is waited for: all of it but the last byte has been sent.
async fn stalled(world: &World) -> Connection {
    let mut connection = world.connect().await;
    let whole = request("POST", "/topics/t/raw", &[("expect", "100-continue")], b"value");
    let head = whole.len() - 5;
    connection.send(&whole[..head]).await;
    assert_eq!(connection.answer().await.status, 100);
    connection.send(&whole[head..head + 4]).await;
    connection
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_never_ends_keeps_no_member_in_its_group() {
    let drain = Duration::from_millis(500);
    let world = World::start_with(|settings| Settings { drain, ..settings }).await;
    world.create("t", 1, &[]).await;
    world.fill("t", 0, ["v".to_owned()]).await;
    let mut member = world.connect().await;
    let body = r#"{"name":"one","format":"text","auto.offset.reset":"earliest"}"#;
    assert_eq!(member.post("/consumers/g", V2, body).await.status, 200);
    let path = "/consumers/g/instances/one";
    let subscribed = member.post(&format!("{path}/subscription"), V2, r#"{"topics":["t"]}"#).await;
    assert_eq!(subscribed.status, 204);
    while member.get(&format!("{path}/records?timeout=500")).await.json() == serde_json::json!([]) {
    }
    let admin = Admin::new(world.cluster.clone());
    let members = async || admin.describe_group("g").await.unwrap().members.len();
    assert_eq!(members().await, 1);
    let mut stalled = stalled(&world).await;
    let (broker, _dir) = world.stop_gateway().await;
    // It was told before its connection was closed.
    let answer = stalled.answer().await;
    assert_eq!((answer.status, answer.header("connection")), (503, Some("close")), "{answer:?}");
    assert_eq!(answer.json()["written"], "no", "{answer:?}");
    assert_eq!(members().await, 0, "it has left, and was not timed out");
    broker.stop_within(crate::fixture::PATIENCE).await;
}
