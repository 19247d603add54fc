//! Consumer instances: groups that are read by GET, what is committed, what is refused, and what is forgotten.

use std::collections::BTreeSet;
use std::time::Duration;

use client::Admin;
use gateway::{Access, InstanceSettings, Settings};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::fixture::{PATIENCE, World, nowhere, open, settings};
use crate::http::{Answer, Connection, request};

pub const V2: &str = "application/vnd.kafka.v2+json";
const TEXT: &str = r#"{"name":"NAME","format":"text","auto.offset.reset":"earliest","auto.commit.enable":"false"}"#;

/// An instance of the group `g`, and a connection to it.
pub struct One {
    pub connection: Connection,
    pub path: String,
}

impl One {
    pub async fn make(world: &World, name: &str) -> One {
        let mut connection = world.connect().await;
        let body = TEXT.replace("NAME", name);
        let made = connection.post("/consumers/g", V2, body).await;
        assert_eq!(made.status, 200, "{made:?}");
        One { connection, path: format!("/consumers/g/instances/{name}") }
    }

    pub async fn subscribed(world: &World, name: &str) -> One {
        let mut one = One::make(world, name).await;
        one.done("subscription", r#"{"topics":["t"]}"#).await;
        one
    }

    pub async fn post(&mut self, what: &str, body: &str) -> Answer {
        self.connection.post(&format!("{}/{what}", self.path), V2, body).await
    }

    pub async fn done(&mut self, what: &str, body: &str) {
        let answer = self.post(what, body).await;
        assert_eq!(answer.status, 204, "{what} {body}: {answer:?}");
    }

    pub async fn get(&mut self, what: &str) -> Answer {
        self.connection.get(&format!("{}/{what}", self.path)).await
    }

    pub async fn delete(&mut self, what: &str) -> u16 {
        let target = format!("{}{what}", self.path);
        self.connection.ask("DELETE", &target, &[], b"").await.status
    }

    /// The values that a read gives.
    pub async fn read(&mut self, query: &str) -> Vec<String> {
        let answer = self.get(&format!("records?{query}")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        values(&answer)
    }

    /// Reads until there were so many values; they are in the order in which they came.
    pub async fn read_all(&mut self, count: usize) -> Vec<String> {
        let mut all = Vec::new();
        let reading = async {
            while all.len() < count {
                all.extend(self.read("timeout=500").await);
            }
        };
        assert!(timeout(PATIENCE, reading).await.is_ok(), "{all:?}");
        all
    }

    async fn assignment(&mut self) -> Vec<i64> {
        let answer = self.get("assignments").await.json();
        let partitions = answer["partitions"].as_array().unwrap().iter();
        partitions.map(|one| one["partition"].as_i64().unwrap()).collect()
    }

    /// Reads until it has so many partitions; what was read meanwhile.
    pub async fn until_partitions(&mut self, count: usize) -> Vec<String> {
        let mut all = Vec::new();
        let sharing = async {
            while self.assignment().await.len() != count {
                all.extend(self.read("timeout=100").await);
            }
        };
        assert!(timeout(PATIENCE, sharing).await.is_ok(), "never {count} partitions");
        all
    }
}

/// A read that has begun: its answer is still to come.
pub async fn begin_to_read(world: &World, path: &str, wait_ms: u64) -> Connection {
    let mut connection = world.connect().await;
    let headers = [("content-type", V2), ("content-length", "2"), ("expect", "100-continue")];
    let target = format!("{path}/records?timeout={wait_ms}");
    connection.send(request("GET", &target, &headers, b"")).await;
    // The body is asked for: the instance was found.
    assert_eq!(connection.answer().await.status, 100);
    connection.send("{}").await;
    connection
}

pub fn values(answer: &Answer) -> Vec<String> {
    let records = answer.json();
    let records = records.as_array().unwrap_or_else(|| panic!("{answer:?}")).iter();
    records.map(|record| record["value"].as_str().unwrap().to_owned()).collect()
}

pub fn numbered(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|number| format!("v{number:03}")).collect()
}

fn with_instances(max: usize, timeout: Duration) -> impl FnOnce(Settings) -> Settings {
    move |settings| Settings {
        instances: InstanceSettings { max, timeout, ..InstanceSettings::default() },
        ..settings
    }
}

pub async fn members(world: &World) -> usize {
    let admin = Admin::new(world.cluster.clone());
    admin.describe_group("g").await.map_or(0, |group| group.members.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_shares_its_partitions_out_even_if_a_member_is_idle() {
    let world = World::start().await;
    world.create("t", 4, &[]).await;
    let mut a = One::subscribed(&world, "a").await;
    a.until_partitions(4).await;
    let mut b = One::subscribed(&world, "b").await;
    // No request comes to the first one meanwhile.
    b.until_partitions(2).await;
    let (of_a, of_b) = (a.assignment().await, b.assignment().await);
    let all: BTreeSet<i64> = of_a.iter().chain(&of_b).copied().collect();
    assert_eq!((of_a.len(), of_b.len(), all.len()), (2, 2, 4), "{of_a:?} {of_b:?}");
    for partition in 0..4 {
        let number = partition as usize;
        world.fill("t", partition, numbered(10 * number..10 * number + 10)).await;
    }
    let mut came = a.read_all(20).await;
    came.extend(b.read_all(20).await);
    came.sort();
    assert_eq!(came, numbered(0..40), "each once");
    assert_eq!(b.delete("").await, 204);
    assert_eq!(b.get("records").await.json()["error_code"], 40403);
    // Nothing was committed, so all partitions are read again from their beginning.
    let mut again = a.until_partitions(4).await;
    again.extend(a.read_all(40 - again.len()).await);
    again.sort();
    assert_eq!(again, came);
    assert_eq!(members(&world).await, 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_instance_goes_on_behind_the_commit() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    world.fill("t", 0, numbered(0..10)).await;
    let mut one = One::subscribed(&world, "one").await;
    assert_eq!(one.read_all(10).await, numbered(0..10));
    one.done("offsets", "").await;
    // As the document says: an object without offsets means all that was read.
    one.done("offsets", "{}").await;
    one.done("offsets", r#"{"offsets":null}"#).await;
    let offsets = one.get("offsets").await.json();
    let place = |offset, metadata| json!({"topic": "t", "partition": 0, "offset": offset, "metadata": metadata});
    assert_eq!(offsets, json!({"offsets": [place(10, "")]}));
    world.fill("t", 0, numbered(10..15)).await;
    assert_eq!(one.read_all(5).await, numbered(10..15));
    assert_eq!(one.delete("").await, 204);
    let mut next = One::subscribed(&world, "one").await;
    assert_eq!(next.read_all(5).await, numbered(10..15));
    let named = r#"{"offsets":[{"topic":"t","partition":0,"offset":13,"metadata":"m"}]}"#;
    next.done("offsets", named).await;
    let body = br#"{"partitions":[{"topic":"t","partition":0},{"topic":"t","partition":9}]}"#;
    let length = body.len().to_string();
    let headers = [("content-type", V2), ("content-length", &*length)];
    let target = format!("{}/offsets", next.path);
    let asked = next.connection.ask("GET", &target, &headers, body).await;
    assert_eq!(asked.json(), json!({"offsets": [place(13, "m")]}));
    assert_eq!(next.delete("").await, 204);
    let mut last = One::subscribed(&world, "last").await;
    assert_eq!(last.read_all(2).await, numbered(13..15));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn assigned_partitions_are_read_where_they_are_told() {
    let world = World::start().await;
    world.create("t", 2, &[]).await;
    world.fill("t", 0, numbered(0..10)).await;
    let mut one = One::make(&world, "one").await;
    one.done("assignments", r#"{"partitions":[{"topic":"t","partition":0}]}"#).await;
    assert_eq!(one.assignment().await, [0]);
    assert_eq!(one.read_all(10).await, numbered(0..10));
    one.done("positions", r#"{"offsets":[{"topic":"t","partition":0,"offset":7}]}"#).await;
    assert_eq!(one.read_all(3).await, numbered(7..10));
    let partition = r#"{"partitions":[{"topic":"t","partition":0}]}"#;
    one.done("positions/beginning", partition).await;
    // Few bytes cut an answer, and nothing is left out behind the cut.
    assert_eq!(one.read("timeout=5000&max_bytes=8").await, numbered(0..2));
    assert_eq!(one.read("timeout=5000&max_bytes=1").await, numbered(2..3));
    assert_eq!(one.read_all(7).await, numbered(3..10));
    one.done("positions/end", partition).await;
    assert!(one.read("timeout=0").await.is_empty());
    for (what, body) in [
        ("positions", r#"{"offsets":[{"topic":"t","partition":1,"offset":0}]}"#),
        ("positions/end", r#"{"partitions":[{"topic":"t","partition":1}]}"#),
        ("assignments", r#"{"partitions":[{"topic":"t","partition":2}]}"#),
    ] {
        assert_eq!(one.post(what, body).await.json()["error_code"], 40402, "{what}");
    }
    let missing = one.post("assignments", r#"{"partitions":[{"topic":"no","partition":0}]}"#).await;
    assert_eq!(missing.json()["error_code"], 40401);
    let taken = one.post("subscription", r#"{"topics":["t"]}"#).await;
    assert_eq!((taken.status, &taken.json()["error_code"]), (409, &json!(40903)));
    assert_eq!(one.delete("/subscription").await, 204);
    assert!(one.assignment().await.is_empty());
    one.done("subscription", r#"{"topics":["t"]}"#).await;
    assert_eq!(one.get("subscription").await.json()["topics"], json!(["t"]));
    let refused = one.post("assignments", partition).await;
    assert_eq!((refused.status, &refused.json()["error_code"]), (409, &json!(40903)));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_without_requests_is_forgotten_and_leaves_its_group() {
    let world = World::start_with(with_instances(1, Duration::from_secs(5))).await;
    world.create("t", 1, &[]).await;
    world.fill("t", 0, numbered(0..3)).await;
    let mut one = One::subscribed(&world, "one").await;
    assert_eq!(one.read_all(3).await.len(), 3);
    let mut other = world.connect().await;
    let forgotten = async {
        while other.post("/consumers/other", V2, "{}").await.status != 200 {
            sleep(Duration::from_millis(20)).await;
        }
        while members(&world).await > 0 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(timeout(PATIENCE, forgotten).await.is_ok(), "it stays");
    assert_eq!(one.get("assignments").await.json()["error_code"], 40403);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_may_wait_for_records_than_could_be_answered_together() {
    // Room for eight answers.
    let world = World::start_with(|settings| Settings { memory_bytes: 8 << 20, ..settings }).await;
    world.create("t", 1, &[]).await;
    let mut all = Vec::new();
    for number in 0..30 {
        let mut one = One::make(&world, &format!("i{number}")).await;
        one.done("assignments", r#"{"partitions":[{"topic":"t","partition":0}]}"#).await;
        let target = format!("{}/records?timeout=30000", one.path);
        one.connection.send(request("GET", &target, &[], b"")).await;
        all.push(one);
    }
    // All of them wait, or are about to.
    assert_eq!(world.connect().await.get("/healthz").await.status, 200);
    world.fill("t", 0, ["v".to_owned()]).await;
    for one in &mut all {
        let answer = one.connection.answer().await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(values(&answer), ["v"]);
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_instance_too_many_is_refused() {
    let world = World::start_with(with_instances(2, PATIENCE)).await;
    let mut first = One::make(&world, "first").await;
    One::make(&world, "second").await;
    let full = first.connection.post("/consumers/g", V2, "{}").await;
    assert_eq!((full.status, full.header("retry-after")), (429, Some("1")), "{full:?}");
    assert!(full.body.contains("gateway.instances.max"), "{full:?}");
    assert_eq!(first.delete("").await, 204);
    One::make(&world, "third").await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_taken_once_and_tell_where_the_instance_is() {
    let world = World::start().await;
    let mut connection = world.connect().await;
    let host = [("content-type", V2), ("host", "localhost:8082")];
    let body = br#"{"name":"a b/c"}"#;
    let made = connection.ask("POST", "/consumers/g%2F1", &host, body).await;
    let base_uri = "http://localhost:8082/consumers/g%2F1/instances/a%20b%2Fc";
    assert_eq!(made.json(), json!({"instance_id": "a b/c", "base_uri": base_uri}));
    assert_eq!(made.header("content-type"), Some(V2));
    let taken = connection.ask("POST", "/consumers/g%2F1", &host, body).await;
    assert_eq!((taken.status, &taken.json()["error_code"]), (409, &json!(40902)));
    assert_eq!(connection.ask("POST", "/consumers/g2", &host, body).await.status, 200);
    let path = "/consumers/g%2F1/instances/a%20b%2Fc";
    assert_eq!(connection.ask("DELETE", path, &[], b"").await.status, 204);
    assert_eq!(connection.ask("DELETE", path, &[], b"").await.json()["error_code"], 40403);
    assert_eq!(connection.ask("POST", "/consumers/g%2F1", &host, body).await.status, 200);
    let made_up = |made: Answer| made.json()["instance_id"].as_str().unwrap().to_owned();
    let first = made_up(connection.post("/consumers/g", "", "").await);
    assert_ne!(first, made_up(connection.post("/consumers/g", "", "").await));
    world.stop().await;
    let url = Some("https://kafka.example.org/".to_owned());
    let instances = InstanceSettings { advertised_url: url, ..InstanceSettings::default() };
    let gateway = open(Settings { instances, ..settings(&nowhere().to_string()) });
    let mut connection = Connection::open(gateway.address()).await;
    let made = connection.post("/consumers/g", V2, r#"{"name":"i"}"#).await.json();
    assert_eq!(made["base_uri"], "https://kafka.example.org/consumers/g/instances/i");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_sense_is_refused_and_harms_nothing() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let mut one = One::make(&world, "one").await;
    let deep = format!("{{\"topics\":{}", "[".repeat(100_000));
    for (what, body, status) in [
        ("subscription", "", 400),
        ("subscription", "{", 400),
        ("subscription", "[]", 422),
        ("subscription", r#"{"topic_pattern":7}"#, 422),
        ("subscription", r#"{"topics":["no"]}"#, 404),
        ("subscription", r#"{"topics":["\u0000"]}"#, 404),
        ("subscription", &deep, 422),
        ("assignments", r#"{"partitions":[{"topic":"t","partition":-1}]}"#, 422),
        ("assignments", r#"{"partitions":[{"topic":"t","partition":2147483648}]}"#, 422),
        ("offsets", r#"{"offsets":[{"topic":"t","partition":0,"offset":-1}]}"#, 422),
        ("offsets", r#"{"offsets":[{"topic":"no","partition":0,"offset":1}]}"#, 404),
        ("positions", "", 422),
    ] {
        let answer = one.post(what, body).await;
        assert_eq!(answer.status, status, "{what} {:.80}: {answer:?}", body);
    }
    one.done("assignments", r#"{"partitions":[{"topic":"t","partition":0}]}"#).await;
    for length in [5_000, 40_000] {
        let (topic, metadata) = ("t".repeat(length), "m".repeat(length));
        let body = format!(
            r#"{{"offsets":[{{"topic":"t","partition":0,"offset":0,"metadata":"{metadata}"}}]}}"#
        );
        let answer = one.post("offsets", &body).await;
        assert_eq!(answer.status, 422, "{length}: {answer:?}");
        let body = format!(r#"{{"offsets":[{{"topic":"{topic}","partition":0,"offset":0}}]}}"#);
        let answer = one.post("offsets", &body).await;
        assert!(matches!(answer.status, 404 | 422), "{length}: {answer:?}");
    }
    assert_eq!(one.delete("/subscription").await, 204);
    let long = "a".repeat(300);
    for (group, body) in [("g%0a", "{}"), ("", "{}"), (&*long, "{}"), ("g", r#"{"format":"avro"}"#)]
    {
        let answer = one.connection.post(&format!("/consumers/{group}"), V2, body).await;
        assert_eq!(answer.status, 422, "{group} {body}: {answer:?}");
    }
    assert_eq!(one.connection.post("/consumers/g", "text/plain", "{}").await.status, 415);
    let records = format!("{}/records", one.path);
    for (accept, status) in [
        ("application/vnd.kafka.text.v2+json", 200),
        ("application/vnd.kafka.v2+json", 200),
        ("application/vnd.kafka.json.v2+json, */*;q=0.1", 200),
        ("application/vnd.kafka.json.v2+json", 406),
        ("application/vnd.kafka.binary.v2+json", 406),
    ] {
        let headers = [("accept", accept)];
        let answer =
            one.connection.ask("GET", &format!("{records}?timeout=0"), &headers, b"").await;
        assert_eq!(answer.status, status, "{accept}: {answer:?}");
    }
    assert_eq!(one.get("records?timeout=x").await.status, 422);
    assert_eq!(one.connection.ask("HEAD", &records, &[], b"").await.status, 405);
    assert_eq!(one.connection.ask("PUT", &one.path, &[], b"").await.status, 405);
    let page = [("origin", "https://evil.example.com"), ("sec-fetch-site", "cross-site")];
    assert_eq!(one.connection.ask("GET", &records, &page, b"").await.status, 403);
    one.done("subscription", r#"{"topics":["t"]}"#).await;
    assert!(one.read("timeout=0").await.is_empty());
    world.stop().await;
    let closed = Settings { access: Access::Read, ..settings(&nowhere().to_string()) };
    let gateway = open(closed);
    let mut connection = Connection::open(gateway.address()).await;
    assert_eq!(connection.post("/consumers/g", V2, "{}").await.status, 403);
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_request_at_a_time_uses_an_instance() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let mut one = One::subscribed(&world, "one").await;
    one.until_partitions(1).await;
    let mut readers = Vec::new();
    for _ in 0..4 {
        let mut reader = One { connection: world.connect().await, path: one.path.clone() };
        readers.push(tokio::spawn(async move {
            let mut came = Vec::new();
            for _ in 0..5 {
                came.extend(reader.read("timeout=300&max_bytes=40").await);
            }
            came
        }));
    }
    world.fill("t", 0, numbered(0..100)).await;
    let mut came = Vec::new();
    for reader in readers {
        came.extend(reader.await.unwrap());
    }
    came.extend(one.read_all(100 - came.len()).await);
    came.sort();
    assert_eq!(came, numbered(0..100), "each once, whoever has read it");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn records_whose_reader_has_left_are_read_again() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let mut one = One::subscribed(&world, "one").await;
    one.until_partitions(1).await;
    for round in 0..5 {
        drop(begin_to_read(&world, &one.path, 30_000).await);
        world.fill("t", 0, numbered(10 * round..10 * round + 10)).await;
        assert_eq!(one.read_all(10).await, numbered(10 * round..10 * round + 10));
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_waits_ends_when_its_instance_or_its_gateway_does() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let mut one = One::subscribed(&world, "one").await;
    one.until_partitions(1).await;
    let mut waiting = begin_to_read(&world, &one.path, 30_000).await;
    assert_eq!(one.delete("").await, 204);
    assert_eq!(waiting.answer().await.json()["error_code"], 40403);
    assert_eq!(members(&world).await, 0);
    let mut one = One::subscribed(&world, "two").await;
    one.until_partitions(1).await;
    let cluster = world.cluster.clone();
    let mut waiting = begin_to_read(&world, &one.path, 30_000).await;
    let (broker, _dir) = world.stop_gateway().await;
    let answer = waiting.answer().await;
    assert_eq!((answer.status, answer.header("connection")), (503, Some("close")), "{answer:?}");
    let group = Admin::new(cluster).describe_group("g").await;
    assert!(group.is_ok_and(|group| group.members.is_empty()), "it has left its group");
    broker.stop_within(PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_gone_keeps_no_request_waiting_for_ever() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let mut one = One::subscribed(&world, "one").await;
    one.until_partitions(1).await;
    let mut waiting = begin_to_read(&world, &one.path, 3000).await;
    let gateway = world.stop_broker().await;
    let answer = waiting.answer().await;
    assert!([200, 503].contains(&answer.status), "{answer:?}");
    let commit = one.post("offsets", r#"{"offsets":[{"topic":"t","partition":0,"offset":1}]}"#);
    let commit: Value = timeout(PATIENCE, commit).await.unwrap().json();
    assert_eq!(commit["retriable"], true, "{commit}");
    assert_eq!(timeout(PATIENCE, one.delete("")).await, Ok(204));
    timeout(PATIENCE, gateway.stop()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_the_format_lacks_stops_its_partition_until_it_is_stepped_over() {
    let world = World::start().await;
    world.create("t", 2, &[]).await;
    world.fill("t", 0, ["hello".to_owned(), r#"{"good":0}"#.to_owned()]).await;
    world.fill("t", 1, [r#"{"good":1}"#.to_owned(), r#"{"good":2}"#.to_owned()]).await;
    let mut connection = world.connect().await;
    let body = TEXT.replace("NAME", "one").replace("text", "json");
    assert_eq!(connection.post("/consumers/g", V2, body).await.status, 200);
    let mut one = One { connection, path: "/consumers/g/instances/one".to_owned() };
    let both = r#"{"partitions":[{"topic":"t","partition":0},{"topic":"t","partition":1}]}"#;
    one.done("assignments", both).await;
    one.done("positions/beginning", both).await;
    // Whether both partitions come with one fetch or not.
    let (mut read, mut refusals) = (Vec::new(), Vec::new());
    let reading = async {
        while read.len() < 2 || refusals.len() < 2 {
            let answer = one.get("records?timeout=500").await;
            match answer.status {
                200 => read.extend(answer.json().as_array().unwrap().clone()),
                _ => refusals.push(answer),
            }
        }
    };
    timeout(PATIENCE, reading).await.expect("the other partition is read");
    assert_eq!(read.iter().map(|one| &one["value"]["good"]).collect::<Vec<_>>(), [1, 2]);
    for refused in &refusals {
        assert_eq!(refused.status, 406, "{refused:?}");
        let message = refused.json()["message"].as_str().unwrap().to_owned();
        assert!(message.contains("t-0, offset 0"), "{message}");
        assert!(message.contains("at offset 1 (POST"), "{message}");
    }
    one.done("positions", r#"{"offsets":[{"topic":"t","partition":0,"offset":1}]}"#).await;
    let behind = one.get("records?timeout=30000").await;
    assert_eq!(behind.json()[0]["value"], json!({"good": 0}), "{behind:?}");
    world.stop().await;
}
