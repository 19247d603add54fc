//! Version 3 of Confluent's REST proxy: records of a whole body, and how a client finds the cluster.

use serde_json::{Value, json};

use crate::fixture::World;
use crate::http::Answer;

pub const JSON: &str = "application/json";

/// The path to produce to a topic of the one cluster.
pub async fn path(world: &World, topic: &str) -> String {
    let clusters = world.connect().await.get("/v3/clusters").await.json();
    let id = clusters["data"][0]["cluster_id"].as_str().unwrap().to_owned();
    format!("/v3/clusters/{id}/topics/{topic}/records")
}

/// The objects of an answer.
fn reports(answer: &Answer) -> Vec<Value> {
    answer.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_finds_the_cluster_and_no_other() {
    let world = World::start().await;
    let mut connection = world.connect().await;
    let list = connection.get("/v3/clusters").await;
    assert_eq!((list.status, list.header("content-type")), (200, Some("application/json")));
    let list = list.json();
    let id = world.cluster.metadata().cluster_id.clone().unwrap();
    let one = json!({"kind": "KafkaCluster", "cluster_id": id, "metadata": {
        "self": format!("http://localhost/v3/clusters/{id}"),
        "resource_name": format!("crn:///kafka={id}")}});
    assert_eq!(list["kind"], "KafkaClusterList");
    assert_eq!(list["data"], json!([one]));
    let found = connection.get(&format!("/v3/clusters/{id}")).await;
    assert_eq!(found.json(), one);
    // What the target names counts, as it does when the request is let in.
    let target = format!("http://127.0.0.1/v3/clusters/{id}");
    let absolute = connection.ask("GET", &target, &[("host", "evil.example.com")], b"").await;
    assert_eq!(absolute.json()["metadata"]["self"], target);
    let other = connection.get("/v3/clusters/other").await;
    assert_eq!((other.status, &other.json()["error_code"]), (404, &json!(404)));
    world.create("t", 1, &[]).await;
    let lost = connection.post("/v3/clusters/other/topics/t/records", JSON, "{}").await;
    assert_eq!((lost.status, &lost.json()["written"]), (404, &json!("no")));
    assert_eq!(world.ends("t").await, [0]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_read_back_as_it_was_meant_and_its_answer_says_where_it_is() {
    let world = World::start().await;
    world.create("t", 3, &[]).await;
    let path = path(&world, "t").await;
    let mut connection = world.connect().await;
    let record = r#"{"partition_id":2,"timestamp":"2023-11-14T22:13:20Z",
        "headers":[{"name":"h","value":"AQI="}],
        "key":{"type":"STRING","data":"k"},"value":{"type":"JSON","data":{"a": 1}}}"#;
    let answer = connection.post(&path, JSON, record).await;
    let expected = json!({"error_code": 200, "topic_name": "t", "partition_id": 2, "offset": 0,
        "cluster_id": world.cluster.metadata().cluster_id, "timestamp": "2023-11-14T22:13:20Z",
        "key": {"type": "STRING", "size": 1}, "value": {"type": "JSON", "size": 7}});
    assert_eq!((answer.status, answer.json()), (200, expected), "{answer:?}");
    // Without data a value is null, whatever its type, as the document says.
    let two = concat!(
        r#"{"partition_id":0,"value":{"type":"BINARY","data":"AP8="}}"#,
        r#"{"partition_id":0,"key":null,"value":{"type":"STRING","data":null},"timestamp":null}"#
    );
    let two = reports(&connection.post(&path, "application/json; charset=utf-8", two).await);
    assert_eq!((two.len(), &two[0]["offset"], &two[1]["offset"]), (2, &json!(0), &json!(1)));
    let kept = world.read("t").await;
    let (binary, null, keyed) = (&kept[0], &kept[1], &kept[2]);
    assert_eq!((binary.value.as_deref(), null.value.as_deref()), (Some(&[0, 255][..]), None));
    assert_eq!(two[1].get("value"), None);
    assert_eq!(
        (keyed.key.as_deref(), keyed.value.as_deref()),
        (Some(&b"k"[..]), Some(&br#"{"a":1}"#[..]))
    );
    assert_eq!(keyed.headers, [("h".to_owned(), Some(vec![1, 2]))]);
    assert_eq!(keyed.timestamp_ms, 1_700_000_000_000);
    // A record without a time has the one that its answer tells.
    let told = two[0]["timestamp"].as_str().unwrap();
    let told: jiff::Timestamp = told.parse().unwrap();
    assert_eq!(told.as_millisecond(), binary.timestamp_ms);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_that_an_answer_tells_is_the_brokers_where_the_topic_wants_that() {
    let world = World::start().await;
    world.create("t", 1, &[("message.timestamp.type", "LogAppendTime")]).await;
    let path = path(&world, "t").await;
    let record = r#"{"timestamp":"2023-11-14T22:13:20Z"}"#;
    let answer = world.connect().await.post(&path, JSON, record).await.json();
    let told: jiff::Timestamp = answer["timestamp"].as_str().unwrap().parse().unwrap();
    assert_eq!(world.read("t").await[0].timestamp_ms, told.as_millisecond());
    assert!(told.as_millisecond() > 1_700_000_000_000, "{answer}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_are_told_of_each_record_and_of_a_request_that_makes_no_sense() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let path = path(&world, "t").await;
    let mut connection = world.connect().await;
    for (content_type, body, status, words) in [
        (JSON, "", 422, "body is empty"),
        (JSON, "{}{", 400, "object 2"),
        (JSON, "{}[]", 400, "object 2"),
        (
            JSON,
            r#"{}{"value":{"type":"AVRO","data":1}}"#,
            422,
            "object 2: value: the gateway knows no schemas",
        ),
        (JSON, r#"{"partition_id":7}"#, 404, "not 7"),
        ("application/vnd.kafka.json.v2+json", "{}", 415, "application/json"),
    ] {
        let answer = connection.post(&path, content_type, body).await;
        assert_eq!((answer.status, &answer.json()["written"]), (status, &json!("no")), "{body}");
        assert!(answer.body.contains(words), "{answer:?}");
    }
    assert_eq!(world.ends("t").await, [0]);
    let answer = connection.post(&path, JSON, r#"{"partition_id":7}{}{"partition_id":8}"#).await;
    let codes: Vec<i64> =
        reports(&answer).iter().map(|report| report["error_code"].as_i64().unwrap()).collect();
    assert_eq!((answer.status, codes), (200, vec![40402, 200, 40402]));
    let missing = path.replace("/t/", "/missing/");
    assert_eq!(connection.post(&missing, JSON, "{}").await.status, 404);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_with_a_key_is_carried_out_once() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let path = path(&world, "t").await;
    let mut connection = world.connect().await;
    let mut bodies = Vec::new();
    for replayed in [None, Some("true")] {
        let headers = [("idempotency-key", "a"), ("content-type", JSON)];
        let answer = connection.ask("POST", &path, &headers, b"{}{}").await;
        assert_eq!((answer.status, answer.header("idempotency-replayed")), (200, replayed));
        bodies.push(answer.body);
    }
    assert_eq!(bodies[0], bodies[1]);
    assert_eq!(world.ends("t").await, [2]);
    world.stop().await;
}
