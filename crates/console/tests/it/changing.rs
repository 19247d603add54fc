//! A cluster under change: what was made since the last look, and what has gone.

use crate::fixture::World;

#[tokio::test(flavor = "multi_thread")]
async fn what_was_made_since_the_last_look_is_shown() {
    let world = World::start().await;
    let topics = world.get("/api/v1/topics").await;
    assert!(!topics.body.contains("fresh"));
    world.create("fresh", 2).await;
    let page = world.get("/console/topic?name=fresh").await;
    assert!(page.status == 200 && page.body.contains("<h1>fresh</h1>"), "{page:?}");
    world.create("fresher", 1).await;
    let records = world.get("/console/records?topic=fresher").await;
    assert!(records.status == 200 && records.body.contains("No record is there."), "{records:?}");
    world.create("freshest", 1).await;
    let tail = world.get("/console/tail?topic=freshest").await;
    assert!(tail.status == 200 && tail.body.contains("data-tail"), "{tail:?}");
    world.commit("g", "fresh", 0, 0).await;
    let group = world.get("/api/v1/group?id=g").await;
    assert_eq!((group.status, &group.json()["partition_count"]), (200, &1.into()), "{group:?}");
    // What is offered to choose from is what there is.
    let form = world.get("/console/records").await.body;
    for topic in ["fresh", "fresher", "freshest"] {
        assert!(form.contains(&format!("<option value=\"{topic}\">")), "{form}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_gone_since_the_last_look_is_not_found() {
    let world = World::start().await;
    world.create("t", 1).await;
    world.create("kept", 1).await;
    world.commit("g", "kept", 0, 0).await;
    let records = ["/console/records?topic=t", "/console/records?topic=t&partition=all"];
    for target in ["/console/topic?name=t", "/console/group?id=g", records[0], records[1]] {
        assert_eq!(world.get(target).await.status, 200, "{target}");
    }
    for (_, deleted) in world.admin().delete_topics(&["t"]).await.unwrap() {
        deleted.unwrap();
    }
    for (_, deleted) in world.admin().delete_groups(&["g"]).await.unwrap() {
        deleted.unwrap();
    }
    for target in records {
        let page = world.get(target).await;
        let is_said = page.body.contains("the cluster has no such topic");
        assert!(page.status == 404 && is_said, "{target}: {page:?}");
        // The next one is to be found out by what is asked besides the look.
        world.create("t", 1).await;
        assert_eq!(world.get("/console/topic?name=t").await.status, 200);
        world.admin().delete_topics(&["t"]).await.unwrap();
    }
    for (target, name) in [("/console/topic?name=t", "t"), ("/console/group?id=g", "g")] {
        let page = world.get(target).await;
        assert_eq!(page.status, 404, "{target}: {}", page.body);
        let words = format!("<strong>{name}</strong>: it was deleted, or it was never there.");
        assert!(page.body.contains(&words), "{}", page.body);
    }
    let topics = world.get("/api/v1/topics").await.json();
    let names: Vec<_> = topics["topics"].as_array().unwrap().iter().map(|t| &t["name"]).collect();
    assert!(!names.contains(&&"t".into()) && names.contains(&&"kept".into()), "{names:?}");
    assert_eq!(world.get("/api/v1/topic?name=t").await.status, 404);
    assert_eq!(world.get("/api/v1/group?id=g").await.status, 404);
    let nameless = world.get("/console/topic").await;
    assert!(nameless.body.contains("The address names no topic."), "{}", nameless.body);
    world.stop().await;
}
