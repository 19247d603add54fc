//! Browsing the records of a partition.

use crate::fixture::World;

#[tokio::test(flavor = "multi_thread")]
async fn records_are_found_by_offset_and_by_time() {
    let world = World::start().await;
    world.create("t", 1).await;
    world.produce("t", 0, 120).await;
    let offsets = |value: &serde_json::Value| -> Vec<i64> {
        value["records"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["offset"].as_i64().unwrap())
            .collect()
    };
    let last = world.json_when("/api/v1/records?topic=t", |found| found["end_offset"] == 120).await;
    assert_eq!(offsets(&last), (70..120).collect::<Vec<_>>());
    let some = world.get("/api/v1/records?topic=t&offset=7&limit=3").await.json();
    assert_eq!((offsets(&some), &some["next_offset"]), (vec![7, 8, 9], &10.into()));
    assert_eq!(some["records"][0]["value"]["text"], "value 7");
    let below = world.get("/api/v1/records?topic=t&offset=-5&limit=1").await.json();
    assert_eq!(offsets(&below), [0]);
    let beyond = world.get("/api/v1/records?topic=t&offset=999").await.json();
    assert_eq!((offsets(&beyond), &beyond["from_offset"]), (vec![], &120.into()));
    let at = some["records"][0]["timestamp_ms"].as_i64().unwrap();
    let by_time = world.get(&format!("/api/v1/records?topic=t&at={at}&limit=500")).await.json();
    let first = by_time["from_offset"].as_i64().unwrap();
    assert!(first <= 7 && by_time["records"][0]["timestamp_ms"].as_i64().unwrap() >= at, "{first}");
    let later = world.get(&format!("/api/v1/records?topic=t&at={}", at + 3_600_000)).await.json();
    assert!(offsets(&later).is_empty());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_readers_at_once_are_all_answered() {
    let world = World::start().await;
    world.create("t", 1).await;
    // Few enough for ten rounds of readers within the ten seconds that a page has, on a busy machine too.
    let values: Vec<_> = (0..60).map(|_| vec![b'v'; 10_000]).collect();
    world.produce_values("t", 0, &values).await;
    world.json_when("/api/v1/records?topic=t&limit=1", |found| found["end_offset"] == 60).await;
    let at = world.gateway.address();
    let mut reading = tokio::task::JoinSet::new();
    for _ in 0..40 {
        reading.spawn(crate::fixture::ask(
            at,
            "GET",
            "/api/v1/records?topic=t&offset=earliest&limit=500",
            "host: localhost\r\n",
        ));
    }
    while let Some(answer) = reading.join_next().await {
        let answer = answer.unwrap();
        assert_eq!(answer.status, 200, "{}", answer.body);
        let found = answer.json();
        assert_eq!(found["records"].as_array().unwrap().len(), 60);
        assert_eq!(found["records"][0]["value"]["cut_bytes"], 10_000 - 4096);
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn values_are_shown_in_their_form_and_never_as_markup() {
    let world = World::start().await;
    world.create("t", 1).await;
    let values: [&[u8]; 4] = [
        b"<script>alert(1)</script>",
        b"{\"a\": \"<b>\"}",
        b"\xff\xfe<i>",
        "\u{202e}turned\0".as_bytes(),
    ];
    world.produce_values("t", 0, &values.map(<[u8]>::to_vec)).await;
    world.json_when("/api/v1/records?topic=t", |found| found["end_offset"] == 4).await;
    let page = world.get("/console/records?topic=t&offset=earliest").await;
    assert_eq!(page.status, 200);
    for shown in [
        "&lt;script&gt;alert(1)",
        "{&quot;a&quot;: &quot;&lt;b&gt;&quot;}",
        "ff fe 3c 69 3e",
        "\\u{202e}turned\\u{0}",
    ] {
        assert!(page.body.contains(shown), "{shown}: {}", page.body);
    }
    for hidden in ["<script>alert", "<b>", "<i>", "\u{202e}", "\0"] {
        assert!(!page.body.contains(hidden), "{hidden:?}");
    }
    let forms: Vec<_> = world.get("/api/v1/records?topic=t").await.json()["records"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["value"]["form"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(forms, ["text", "json", "hex", "text"]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_is_said() {
    let world = World::start().await;
    world.create("t", 1).await;
    world.json_when("/api/v1/topics", |topics| topics.to_string().contains("\"t\"")).await;
    for (target, status) in [
        ("/console/records?topic=no", 404),
        ("/console/records?topic=t&partition=7", 404),
        ("/console/records?topic=t&partition=x", 422),
        ("/console/records?topic=t&at=yesterday", 422),
        ("/console/records", 200),
        ("/console/topic?name=no", 404),
        ("/console/group?id=no", 404),
        ("/console/broker?id=999", 404),
        ("/console/broker?id=x", 404),
        ("/console/nothing", 404),
        ("/api/v1/topic?name=no", 404),
        ("/api/v1/topic", 422),
        ("/api/v1/broker?id=x", 422),
        ("/api/v1/group?id=no", 404),
        ("/api/v1/records?topic=t&partition=7", 404),
    ] {
        let answer = world.get(target).await;
        assert_eq!(answer.status, status, "{target}: {}", answer.body);
    }
    // Looking for a topic made none.
    assert!(!world.admin().describe_all().await.unwrap().topics.contains_key("no"));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn records_of_all_partitions_are_one_list_by_time() {
    let world = World::start().await;
    world.create("t", 3).await;
    for (partition, count) in [(2, 2), (0, 3), (1, 1)] {
        world.produce("t", partition, count).await;
    }
    let places = |value: &serde_json::Value| {
        let records = value["records"].as_array().unwrap().iter();
        let number = |record: &serde_json::Value, name: &str| record[name].as_i64().unwrap();
        records.map(|one| (number(one, "partition"), number(one, "offset"))).collect::<Vec<_>>()
    };
    let times = |value: &serde_json::Value| {
        let records = value["records"].as_array().unwrap().iter();
        records.map(|record| record["timestamp_ms"].as_i64().unwrap()).collect::<Vec<_>>()
    };
    let newest = world.get("/api/v1/records?topic=t&partition=all&limit=4").await.json();
    assert_eq!(
        (&newest["newest_first"], &newest["lacking"]),
        (&true.into(), &serde_json::json!([]))
    );
    assert_eq!(places(&newest).len(), 4);
    assert!(times(&newest).is_sorted_by(|a, b| a >= b), "{newest}");
    let all = world.get("/api/v1/records?topic=t&partition=all&offset=earliest").await.json();
    assert!(all["newest_first"] == false && times(&all).is_sorted(), "{all}");
    let mut found = places(&all);
    // The newest of all are the end of the list from the beginning.
    let last: Vec<_> = found.iter().rev().take(4).copied().collect();
    assert_eq!(places(&newest), last);
    found.sort_unstable();
    assert_eq!(found, [(0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (2, 1)]);
    let page = world.get("/console/records?topic=t&partition=all").await;
    assert!(
        page.status == 200 && page.body.contains("All partitions, the newest first"),
        "{page:?}"
    );
    let link = "/console/records?topic=t&amp;partition=1&amp;offset=0\">1</a>";
    assert!(page.body.contains(link), "{}", page.body);
    let topic = world.get("/console/topic?name=t").await.body;
    assert!(topic.contains("/console/records?topic=t&amp;partition=all"), "{topic}");
    assert_eq!(world.get("/api/v1/records?topic=no&partition=all").await.status, 404);
    world.create("wide", 65).await;
    let wide = world.get("/console/records?topic=wide&partition=all").await;
    assert!(wide.status == 422 && wide.body.contains("at most 64"), "{wide:?}");
    world.stop().await;
}
