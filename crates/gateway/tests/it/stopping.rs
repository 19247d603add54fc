//! What a stop does, whatever its clients do.

use std::time::Duration;

use client::Admin;
use gateway::Settings;

use crate::fixture::{World, open, settings};
use crate::http::{Connection, request};
use crate::instances::{V2, values};

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

#[tokio::test(flavor = "multi_thread")]
async fn records_that_nobody_waits_for_are_written_though_a_slow_client_uses_up_the_time_of_a_stop()
{
    let drain = Duration::from_millis(500);
    let set = |settings| Settings { drain, ..settings };
    let (world, gate) = World::start_behind_gate_with(set).await;
    world.create("t", 1, &[]).await;
    let mut client = world.connect().await;
    assert_eq!(client.post("/topics/t/raw", "text/plain", "v00").await.status, 200);
    let mut stalled = stalled(&world).await;
    // No broker has them when the stop begins.
    gate.close();
    for number in 1..50 {
        let target = "/topics/t/raw?async=true";
        let taken = client.post(target, "text/plain", format!("v{number:02}")).await;
        assert_eq!(taken.status, 204, "{taken:?}");
    }
    let stopping = tokio::spawn(world.stop_gateway());
    // The slow one has been waited for as long as it may be.
    let answer = stalled.answer().await;
    assert_eq!((answer.status, &answer.json()["written"]), (503, &"no".into()), "{answer:?}");
    gate.open();
    let (broker, _dir) = stopping.await.unwrap();
    let gateway = open(settings(&broker.listeners()[0].to_string()));
    let mut next = Connection::open(gateway.address()).await;
    let read = next.get("/topics/t/partitions/0/records?offset=0&format=text").await;
    let numbered: Vec<String> = (0..50).map(|number| format!("v{number:02}")).collect();
    assert_eq!(values(&read), numbered, "each once, in their order");
    gateway.stop().await;
    broker.stop_within(crate::fixture::PATIENCE).await;
}
