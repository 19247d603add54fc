//! A thousand topics: lists are cut into pages, and every page is there soon.

use std::time::{Duration, Instant};

use client::admin::NewTopic;

use crate::fixture::World;

/// How long a page may take once a snapshot is there, in a program that is not optimised, on a busy machine.
const PAGE_MAX: Duration = Duration::from_secs(2);
/// A page of a list: a hundred rows of eleven columns.
const PAGE_BYTES_MAX: usize = 160 * 1024;

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_topics_are_a_list_like_any_other() {
    let world = World::start().await;
    let topics: Vec<_> =
        (0..1000).map(|at| NewTopic::new(&format!("topic-{at:04}"), 2, 1)).collect();
    for some in topics.chunks(100) {
        for (name, made) in world.admin().create_topics(some, false).await.unwrap() {
            made.unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
    let cluster = world.json_when("/api/v1/cluster", |cluster| cluster["topics"] == 1000).await;
    assert_eq!(cluster["partitions"], 2000);
    assert_eq!(cluster["gaps"], serde_json::json!([]));
    for target in [
        "/console",
        "/console/topics",
        "/console/topics?page=10",
        "/console/topics?sort=size&order=desc&page=4",
        "/console/topics?q=topic-05",
        "/console/topic?name=topic-0999",
        "/console/brokers",
    ] {
        let began = Instant::now();
        let page = world.get(target).await;
        assert_eq!(page.status, 200, "{target}");
        assert!(began.elapsed() < PAGE_MAX, "{target}: {:?}", began.elapsed());
        assert!(page.body.len() < PAGE_BYTES_MAX, "{target}: {} bytes", page.body.len());
    }
    let api = world.get("/api/v1/topics").await.json();
    assert_eq!((api["topics"].as_array().unwrap().len(), &api["pages"]), (1000, &1.into()));
    let beyond = world.get("/api/v1/topics?page=9223372036854775807").await.json();
    assert_eq!(beyond["topics"], serde_json::json!([]));
    let last = world.get("/console/topics?page=10").await.body;
    assert!(last.contains("topic-0999") && !last.contains("topic-0899"));
    assert!(last.contains("901–1,000 of 1,000"), "{last}");
    let found = world.get("/console/topics?q=TOPIC-05").await.body;
    assert_eq!(found.matches("<tr>").count(), 101, "a head and a hundred rows");
    world.stop().await;
}
