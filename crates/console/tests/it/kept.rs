//! What a console knows after a restart, and how old the first unread record is.

use std::time::Duration;

use crate::fixture::{PATIENCE, World, ask};

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_goes_on_with_the_history_of_lag() {
    let world = World::start_open().await;
    world.create("t", 1).await;
    world.produce("t", 0, 10).await;
    world.commit("g", "t", 0, 4).await;
    let of_group = "/api/v1/group?id=g";
    let measured = |value: &serde_json::Value| {
        let hour = value["history"]["hour"].as_array().cloned().unwrap_or_default();
        hour.into_iter().filter(|point| !point["lag"].is_null()).collect::<Vec<_>>()
    };
    let before = world.json_when(of_group, |value| !measured(value).is_empty()).await;
    let first = measured(&before)[0].clone();
    let kept = world.kept.as_ref().unwrap().path().join("lag.bin");
    assert!(!kept.exists(), "not every look is written");
    // The first gateway has stopped when this returns; the second reads with its first page.
    let world = world.again().await;
    assert!(kept.exists(), "written at the stop");
    let after = world.json_when(of_group, |value| !measured(value).is_empty()).await;
    assert_eq!(measured(&after)[0]["at_ms"], first["at_ms"], "{after}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_seen_before_the_brokers_went_away_is_kept_as_well() {
    let world = World::start_open().await;
    world.create("t", 1).await;
    world.produce("t", 0, 10).await;
    world.commit("g", "t", 0, 4).await;
    world.json_when("/api/v1/group?id=g", |value| value["lag"] == 6).await;
    let World { broker, gateway, cluster, kept, _dir, .. } = world;
    drop(cluster);
    broker.stop_within(PATIENCE).await;
    let noticed = async {
        while ask(gateway.address(), "GET", "/api/v1/groups", "host: localhost\r\n").await.status
            != 503
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, noticed).await.is_ok(), "the console has not noticed");
    gateway.stop().await;
    assert!(kept.unwrap().path().join("lag.bin").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_unread_record_is_told_by_its_own_time() {
    let world = World::start().await;
    world.create("t", 1).await;
    world.produce("t", 0, 3).await;
    world.commit("g", "t", 0, 1).await;
    let read = "/api/v1/records?topic=t&offset=earliest";
    let records = world.json_when(read, |value| !value["records"].is_null()).await;
    let second = records["records"][1]["timestamp_ms"].clone();
    let group = world.json_when("/api/v1/group?id=g", |value| {
        !value["partitions"][0]["oldest_unread_ms"].is_null()
    });
    let group = group.await;
    assert!(second.is_i64() || second.is_u64(), "{records}");
    assert_eq!(group["partitions"][0]["oldest_unread_ms"], second, "{group}");
    let page = world.get("/console/group?id=g").await;
    assert!(page.body.contains("Oldest unread"));
    world.stop().await;
}
