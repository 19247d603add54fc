//! No request to the console changes anything, and nothing begins before the first.

use crate::fixture::{World, ask};

const TARGETS: [&str; 16] = [
    "/console",
    "/console/brokers",
    "/console/broker?id=1",
    "/console/topics?internal=1",
    "/console/topic?name=t",
    "/console/topic?name=not-there",
    "/console/groups",
    "/console/group?id=g",
    "/console/group?id=not-there",
    "/console/records?topic=t&offset=earliest",
    "/console/records?topic=not-there",
    "/api/v1/topics",
    "/api/v1/topic?name=not-there",
    "/api/v1/group?id=not-there",
    "/api/v1/records?topic=t",
    "/api/v1/cluster",
];

#[tokio::test(flavor = "multi_thread")]
async fn no_request_changes_anything() {
    let world = World::start().await;
    world.create("t", 2).await;
    world.produce("t", 0, 5).await;
    world.commit("g", "t", 0, 2).await;
    let state = async || {
        let admin = world.admin();
        let metadata = admin.describe_all().await.unwrap();
        let mut topics: Vec<_> =
            metadata.topics.values().map(|topic| (topic.name.clone(), topic.id)).collect();
        topics.sort();
        let groups: Vec<_> =
            admin.list_groups().await.unwrap().into_iter().map(|group| group.group_id).collect();
        let led =
            client::admin::survey::Led::of(metadata.topics.values().map(|topic| &**topic), |_| {
                None
            });
        let mut ends = Vec::new();
        let take = |topic: &str, partition: i32, found: Result<client::FoundOffset, _>| {
            if topic == "t" {
                ends.push((partition, found.unwrap().offset));
            }
        };
        admin.log_offsets(&led, client::OffsetSpec::Latest, take).await;
        ends.sort();
        (topics, groups, ends, admin.group_offsets("g").await.unwrap())
    };
    // A broker that still reads its log of offsets cannot list groups.
    let listed = async {
        while let Err(error) = world.admin().list_groups().await {
            assert!(error.is_retriable(), "{error}");
        }
    };
    let patience = std::time::Duration::from_secs(60);
    tokio::time::timeout(patience, listed).await.expect("groups can be listed");
    let before = state().await;
    for target in TARGETS {
        for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH"] {
            let answer = ask(
                world.gateway.address(),
                method,
                target,
                "host: localhost\r\ncontent-length: 0\r\n",
            )
            .await;
            match method {
                "GET" | "HEAD" => {
                    assert!([200, 404].contains(&answer.status), "{method} {target}: {answer:?}")
                }
                _ => {
                    assert_eq!(answer.status, 405, "{method} {target}");
                    assert!(answer.head.contains("allow: get, head"), "{}", answer.head);
                }
            }
            assert!(method != "HEAD" || answer.body.is_empty(), "{target}");
        }
    }
    assert_eq!(state().await, before);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_broker_is_asked_before_the_first_page() {
    // In front of an address that counts who comes.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = crate::fixture::open(
        &listener.local_addr().unwrap().to_string(),
        gateway::Access::Everything,
    );
    let health = ask(gateway.address(), "GET", "/healthz", "host: localhost\r\n").await;
    let style =
        ask(gateway.address(), "GET", "/console/assets/console.css", "host: localhost\r\n").await;
    assert_eq!((health.status, style.status), (200, 200));
    let is_alone =
        std::future::poll_fn(|cx| std::task::Poll::Ready(listener.poll_accept(cx).is_pending()))
            .await;
    assert!(is_alone, "the console asked a broker before a page was asked for");
    let looking = tokio::spawn(ask(gateway.address(), "GET", "/console", "host: localhost\r\n"));
    let came = tokio::time::timeout(crate::fixture::PATIENCE, listener.accept()).await;
    assert!(came.is_ok(), "the first request looks");
    drop((came, listener));
    assert_eq!(looking.await.unwrap().status, 503);
    gateway.stop().await;
}
