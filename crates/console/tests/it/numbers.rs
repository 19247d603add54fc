//! What the console shows, compared with what was produced and committed.

use std::time::{Duration, Instant};

use crate::fixture::World;

#[tokio::test(flavor = "multi_thread")]
async fn rates_are_those_at_which_records_were_written() {
    let world = World::start().await;
    world.create("written", 2).await;
    world.create("resting", 1).await;
    world.produce("resting", 0, 10).await;
    world.get("/api/v1/cluster").await;
    let before =
        world.json_when("/api/v1/topic?name=written", |topic| topic["summed_offsets"] == 0).await;
    assert_eq!(before["records_per_second"], serde_json::Value::Null, "a rate needs two looks");
    let first = world.get("/api/v1/cluster").await.json()["taken_ms"].as_i64().unwrap();
    world.produce("written", 0, 300).await;
    world.produce("written", 1, 150).await;
    let after =
        world.json_when("/api/v1/topic?name=written", |topic| topic["summed_offsets"] == 450).await;
    let second = world.get("/api/v1/cluster").await.json()["taken_ms"].as_i64().unwrap();
    let rate = after["records_per_second"].as_f64().unwrap();
    let truth = 450.0 * 1000.0 / (second - first) as f64;
    assert!((rate - truth).abs() < truth * 0.01, "{rate} and {truth}");
    assert_eq!(after["partitions"][0]["end_offset"], 300);
    assert_eq!(after["records"], 450);
    assert!(after["size_bytes"].as_i64().unwrap() > 450 * 7);
    let resting = world.get("/api/v1/topic?name=resting").await.json();
    assert_eq!(resting["records_per_second"], 0.0);
    let broker = &world.get("/api/v1/brokers").await.json()["brokers"][0];
    let of_broker = broker["records_per_second"].as_f64().unwrap();
    assert!((of_broker - rate).abs() < 0.001, "one broker leads everything: {of_broker}");
    assert_eq!((&broker["state"], &broker["leader_skew_percent"]), (&"up".into(), &0.into()));
    assert!(broker["size_bytes"].as_i64() >= after["size_bytes"].as_i64());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lag_is_what_was_not_committed_in_records_and_in_time() {
    let world = World::start().await;
    world.create("t", 2).await;
    // The console sees the empty log, so that it knows when the records come.
    world.json_when("/api/v1/topic?name=t", |topic| topic["summed_offsets"] == 0).await;
    let written = Instant::now();
    world.produce("t", 0, 100).await;
    world.produce("t", 1, 50).await;
    world.commit("g", "t", 0, 40).await;
    world.commit("g", "t", 1, 50).await;
    let group = world.json_when("/api/v1/group?id=g", |group| group["lag"] == 60).await;
    let rows = group["partitions"].as_array().unwrap();
    assert_eq!((&rows[0]["committed_offset"], &rows[0]["end_offset"]), (&40.into(), &100.into()));
    assert_eq!((&rows[0]["lag"], &rows[1]["lag"]), (&60.into(), &0.into()));
    assert_eq!(rows[1]["behind"], serde_json::json!({ "ms": 0, "at_least": false }));
    // Right within one look, which takes 15 s at most while pages are asked for.
    let behind = &group["behind"];
    assert_eq!(behind["at_least"], false);
    let ms = behind["ms"].as_u64().unwrap();
    assert!(u128::from(ms) < written.elapsed().as_millis() + 23_000, "{ms}");
    let history = group["history"]["day"].as_array().unwrap();
    assert_eq!(history.last().unwrap()["lag"], 60);
    // Nothing is read: the age grows with the time.
    let older = world
        .json_when("/api/v1/group?id=g", |group| group["behind"]["ms"].as_u64() > Some(ms))
        .await;
    assert_eq!(older["lag"], 60);
    world.commit("g", "t", 0, 100).await;
    let done = world.json_when("/api/v1/group?id=g", |group| group["lag"] == 0).await;
    assert_eq!(done["behind"]["ms"], 0);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_shows_its_members_and_who_reads_what() {
    let world = World::start().await;
    world.create("t", 3).await;
    world.produce("t", 0, 5).await;
    world.commit("g", "t", 0, 2).await;
    let mut member = world.member("g", "t", 3).await;
    let group = world
        .json_when("/api/v1/group?id=g", |group| !group["partitions"][0]["owner"].is_null())
        .await;
    let of_member = &group["members"][0];
    assert_eq!(of_member["partitions"]["t"], serde_json::json!([0, 1, 2]));
    assert_eq!(group["partitions"][0]["owner"], of_member["id"]);
    let page = world.get("/console/group?id=g").await;
    assert_eq!(page.status, 200);
    assert!(
        page.body.contains("Stable") && page.body.contains(of_member["id"].as_str().unwrap()),
        "{}",
        page.body
    );
    member.poll(Duration::from_millis(1)).await.unwrap();
    drop(member);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_brokers_file_says_is_its_own_and_no_topics() {
    let world = World::start().await;
    world.create("t", 1).await;
    let configuration = async |target: &str| {
        let value = world.json_when(target, |value| value["configuration"].is_array()).await;
        value["configuration"].as_array().unwrap().clone()
    };
    let broker = configuration("/api/v1/broker?id=1").await;
    let named = |name: &str| broker.iter().find(|setting| setting["name"] == name).unwrap();
    assert_eq!(named("log.dirs")["source"], "broker's file");
    assert_eq!(named("log.dirs")["is_own"], true);
    assert_eq!(named("compression.type")["is_own"], false, "{:?}", named("compression.type"));
    let topic = configuration("/api/v1/topic?name=t").await;
    assert!(topic.iter().all(|setting| setting["is_own"] == false), "{topic:?}");
    let page = world.get("/console/broker?id=1").await.body;
    let own = page.split("Not set for itself").next().unwrap();
    assert!(own.contains("log.dirs") && !own.contains("compression.type"));
    world.stop().await;
}
