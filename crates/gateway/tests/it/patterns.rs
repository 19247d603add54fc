//! Subscriptions of consumer instances by pattern: topics that are there, topics that come and go later, and what is refused.

use client::Admin;
use gateway::Settings;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::fixture::{PATIENCE, World};
use crate::instances::{One, begin_to_read, members, numbered, values};

/// The body of a subscription to a pattern.
fn to_pattern(expression: &str) -> String {
    json!({ "topic_pattern": expression }).to_string()
}

async fn topics(one: &mut One) -> Value {
    one.get("subscription").await.json()["topics"].take()
}

/// Waits until these are the topics that match.
async fn until_topics(one: &mut One, wanted: Value) {
    let matching = async {
        // Each look is a request.
        while topics(one).await != wanted {}
    };
    assert!(timeout(PATIENCE, matching).await.is_ok(), "never {wanted}");
}

/// Each topic has its name for a value.
async fn create(world: &World, topic: &str) {
    world.create(topic, 1, &[]).await;
    world.fill(topic, 0, [topic.to_owned()]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pattern_reads_topics_that_are_there_and_those_that_come_later() {
    let world = World::start().await;
    for topic in ["orders.eu", "orders.us", "old-orders.eu", "orders", "refunds"] {
        create(&world, topic).await;
    }
    let mut one = One::make(&world, "one").await;
    one.done("subscription", &to_pattern(r"orders\..*")).await;
    let said = json!({"topics": ["orders.eu", "orders.us"], "partitions": [], "topic_pattern": r"orders\..*"});
    assert_eq!(one.get("subscription").await.json(), said);
    let mut came = one.read_all(2).await;
    came.sort();
    assert_eq!(came, ["orders.eu", "orders.us"]);
    one.done("offsets", "").await;
    // A read that waits already is given them.
    let mut waiting = begin_to_read(&world, &one.path, 30_000).await;
    create(&world, "orders.asia").await;
    assert_eq!(values(&waiting.answer().await), ["orders.asia"]);
    one.done("offsets", "").await;
    // No request uses it while a topic goes and another one comes.
    Admin::new(world.cluster.clone()).delete_topics(&["orders.us"]).await.unwrap();
    create(&world, "orders.africa").await;
    until_topics(&mut one, json!(["orders.africa", "orders.asia", "orders.eu"])).await;
    assert_eq!(one.read_all(1).await, ["orders.africa"]);
    assert_eq!(one.delete("").await, 204);
    assert_eq!(members(&world).await, 0);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_that_follow_one_pattern_share_a_topic_that_comes_later() {
    let world = World::start().await;
    let (mut a, mut b) = (One::make(&world, "a").await, One::make(&world, "b").await);
    for one in [&mut a, &mut b] {
        one.done("subscription", &to_pattern("t|u")).await;
        assert!(one.read("timeout=0").await.is_empty());
        assert_eq!(topics(one).await, json!([]), "nothing matches, and that is a subscription");
    }
    world.create("t", 4, &[]).await;
    assert!(a.until_partitions(2).await.is_empty());
    assert!(b.until_partitions(2).await.is_empty());
    for partition in 0..4 {
        let first = 10 * partition as usize;
        world.fill("t", partition, numbered(first..first + 10)).await;
    }
    let mut came = a.read_all(20).await;
    came.extend(b.read_all(20).await);
    came.sort();
    assert_eq!(came, numbered(0..40), "each once");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_of_the_cluster_itself_match_no_pattern() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    One::subscribed(&world, "named").await.until_partitions(1).await;
    let all = world.cluster.describe_all().await.unwrap();
    assert!(all.topics.contains_key("__consumer_offsets"));
    let mut one = One::make(&world, "one").await;
    one.done("subscription", &to_pattern(".*")).await;
    assert_eq!(topics(&mut one).await, json!(["t"]));
    world.create("u", 1, &[]).await;
    // Whoever does not want to wait sends it again.
    one.done("subscription", &to_pattern(".*")).await;
    assert_eq!(topics(&mut one).await, json!(["t", "u"]));
    one.done("subscription", &to_pattern("u+")).await;
    assert_eq!(topics(&mut one).await, json!(["u"]), "another pattern takes its place");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_patterns_and_assignments_exclude_each_other() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let mut one = One::make(&world, "one").await;
    let (named, pattern) = (r#"{"topics":["t"]}"#, to_pattern("t"));
    let assigned = r#"{"partitions":[{"topic":"t","partition":0}]}"#;
    let ways = [("subscription", named), ("subscription", &*pattern), ("assignments", assigned)];
    for (at, (what, body)) in ways.into_iter().enumerate() {
        one.done(what, body).await;
        for (other, (what, body)) in ways.into_iter().enumerate() {
            let answer = one.post(what, body).await;
            if other == at {
                assert_eq!(answer.status, 204, "the same again: {answer:?}");
                continue;
            }
            let refused = (answer.status, answer.json()["error_code"].as_i64());
            assert_eq!(refused, (409, Some(40903)), "{body} where there is {at}: {answer:?}");
        }
        assert_eq!(one.delete("/subscription").await, 204);
        let nothing = json!({"topics": [], "partitions": []});
        assert_eq!(one.get("subscription").await.json(), nothing);
    }
    let both = one.post("subscription", r#"{"topics":["t"],"topic_pattern":"t"}"#).await;
    assert_eq!((both.status, &both.json()["error_code"]), (409, &json!(40903)));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn patterns_that_cannot_be_used_are_refused_and_harm_nothing() {
    let world = World::start().await;
    create(&world, "t").await;
    let mut one = One::make(&world, "one").await;
    one.done("subscription", &to_pattern("t")).await;
    let long = "t".repeat(2000);
    let deep = format!("{}t{}", "(".repeat(300), ")".repeat(300));
    for expression in
        ["", "(", "[t", "*", r"(t)\1", "(?=t).", "t)|(t", "((t{200}){200}){200}", &*long, &*deep]
    {
        let answer = one.post("subscription", &to_pattern(expression)).await;
        assert_eq!(answer.status, 422, "{expression:.40}: {answer:?}");
        assert!(answer.body.contains("topic_pattern"), "{expression:.40}: {answer:?}");
    }
    assert_eq!(one.read_all(1).await, ["t"]);
    let gateway = world.stop_broker().await;
    let answer = one.post("subscription", &to_pattern("u")).await;
    assert_eq!((answer.status, &answer.json()["retriable"]), (503, &json!(true)), "{answer:?}");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_matches_is_charged_to_the_memory_for_bodies() {
    // Of which bodies have a half.
    let memory_bytes = 18 * 1024;
    let world = World::start_with(|settings| Settings { memory_bytes, ..settings }).await;
    let name = |number: usize| format!("{number:0200}");
    for number in 0..40 {
        world.create(&name(number), 1, &[]).await;
    }
    let mut one = One::make(&world, "one").await;
    let full = one.post("subscription", &to_pattern(".*")).await;
    assert_eq!((full.status, full.header("retry-after")), (429, Some("1")), "{full:?}");
    assert_eq!(one.get("subscription").await.json(), json!({"topics": [], "partitions": []}));
    one.done("subscription", &to_pattern(".*7")).await;
    let four = [7, 17, 27, 37].map(name);
    assert_eq!(topics(&mut one).await, json!(four));
    world.stop().await;
}
