//! Event streams of members of groups: what is acknowledged, and where a member goes on.

use std::time::Duration;

use client::Admin;
use gateway::{EventSettings, Settings};
use model::TopicPartition;

use crate::event_stream::EventStream;
use crate::fixture::{PATIENCE, World};

fn numbered(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|i| format!("v{i}")).collect()
}

async fn until_committed(world: &World, offset: i64) {
    let admin = Admin::new(world.cluster.clone());
    let committed = async {
        loop {
            let offsets = admin.group_offsets("g").await.unwrap();
            let known = offsets.get(&TopicPartition::new("t", 0)).map(|known| known.offset.0);
            if known == Some(offset) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, committed).await.is_ok(), "never committed {offset}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_acknowledges_by_the_id_of_an_event() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    world.fill("t", 0, numbered(0..10)).await;
    let address = world.gateway.address();
    let target = "/topics/t/events?from=earliest&group=g";
    let mut stream = EventStream::open(address, target, None).await;
    assert_eq!(stream.values(10).await, numbered(0..10));
    stream.next_id().await;
    let mut post = world.connect().await;
    let answer = post.post("/groups/g/ack", "text/plain", "t/0@3").await;
    assert_eq!(answer.status, 204, "{answer:?}");
    until_committed(&world, 4).await;
    // Never behind what was sent, nor back.
    let id = stream.id.clone();
    for id in ["t/0@1", &*id] {
        assert_eq!(post.post("/groups/g/ack", "text/plain", id).await.status, 204);
    }
    until_committed(&world, 10).await;
    for (group, body, status) in [
        ("g", "nonsense@", 400),
        ("g", "u/0@3", 409),
        ("other", "t/0@3", 409),
        ("g", "\u{7f}", 400),
    ] {
        let answer = post.post(&format!("/groups/{group}/ack"), "text/plain", body).await;
        assert_eq!(answer.status, status, "{group} {body}: {answer:?}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_comes_again_by_its_name_says_what_is_done() {
    let world = World::start().await;
    world.create("t", 2, &[]).await;
    world.fill("t", 0, numbered(0..20)).await;
    let address = world.gateway.address();
    let target = "/topics/t/events?from=earliest&group=g&instance=i";
    let mut stream = EventStream::open(address, target, None).await;
    assert_eq!(stream.values(20).await, numbered(0..20));
    // As a browser does that broke off after the eighth event; the member's own partitions stay its own.
    let id = r#"[{"topic":"t","partition":0,"offset":7},{"topic":"t","partition":1,"offset":-1}]"#;
    let mut again = EventStream::open(address, target, Some(id)).await;
    assert_eq!(again.values(12).await, numbered(8..20));
    until_committed(&world, 8).await;
    drop((stream, again));
    // Without a name the group's own offset counts.
    let nameless = "/topics/t/events?from=earliest&group=g";
    let later = r#"[{"topic":"t","partition":0,"offset":15}]"#;
    let mut stream = EventStream::open(address, nameless, Some(later)).await;
    assert_eq!(stream.values(12).await, numbered(8..20));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_ack_sent_what_was_written_is_done() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    world.fill("t", 0, numbered(0..10)).await;
    let target = "/topics/t/events?from=earliest&group=g&ack=sent";
    let mut stream = EventStream::open(world.gateway.address(), target, None).await;
    assert_eq!(stream.values(10).await, numbered(0..10));
    until_committed(&world, 10).await;
    world.fill("t", 0, numbered(10..12)).await;
    assert_eq!(stream.values(2).await, numbered(10..12));
    until_committed(&world, 12).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_takes_nothing_delays_no_acknowledgement_of_another() {
    let events = EventSettings { blocked_max: PATIENCE, ..EventSettings::default() };
    let world = World::start_with(|settings| Settings { events, ..settings }).await;
    world.create("t", 2, &[]).await;
    let address = world.gateway.address();
    let target = "/topics/t/events?from=earliest&group=g";
    let mut one = EventStream::open(address, target, None).await;
    let mut two = EventStream::open(address, target, None).await;
    // Until the group has shared its partitions out: whoever hears of one has the id of that alone.
    let (mut of_one, mut of_two) = (String::new(), String::new());
    let is_of_one_partition = |id: &str| id.starts_with("t/") && !id.contains(',');
    while !is_of_one_partition(&of_one) || !is_of_one_partition(&of_two) {
        for partition in 0..2 {
            world.fill("t", partition, ["v".to_owned()]).await;
        }
        let heard = async {
            loop {
                tokio::select! {
                    said = one.next() => of_one.clone_from(said.map(|_| &one.id).expect("it goes on")),
                    said = two.next() => of_two.clone_from(said.map(|_| &two.id).expect("it goes on")),
                }
            }
        };
        let _ = tokio::time::timeout(Duration::from_millis(300), heard).await;
    }
    let stuck_at: i32 = of_one[2..3].parse().unwrap();
    world.fill("t", stuck_at, (0..20_000).map(|i| format!("{i}{}", "x".repeat(1024)))).await;
    world.until_count("blocked_readers", 1).await;
    let mut post = world.connect().await;
    for _ in 0..20 {
        let answer = post.post("/groups/g/ack", "text/plain", &*two.id).await;
        assert_eq!(answer.status, 204, "{answer:?}");
    }
    drop((one, two));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_of_a_topic_that_was_made_anew_is_forgotten() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    world.fill("t", 0, numbered(0..10)).await;
    let target = "/topics/t/events?from=earliest&group=g";
    let mut stream = EventStream::open(world.gateway.address(), target, None).await;
    assert_eq!(stream.values(10).await, numbered(0..10));
    let mut post = world.connect().await;
    assert_eq!(post.post("/groups/g/ack", "text/plain", "t/0@9").await.status, 204);
    until_committed(&world, 10).await;
    let admin = Admin::new(world.cluster.clone());
    admin.delete_topics(&["t"]).await.unwrap();
    world.create("t", 1, &[]).await;
    world.fill("t", 0, numbered(10..12)).await;
    let mut came = Vec::new();
    while came.len() < 2 {
        // It may be told that the log was cut.
        match stream.event().await {
            (kind, value) if kind == "message" => came.push(value),
            (kind, gap) => assert_eq!(kind, "gap", "{gap}"),
        }
    }
    assert_eq!(came, numbered(10..12));
    // What the group had committed went with the topic. Who comes again without an acknowledgement gets the same records, and
    // does not begin behind them.
    until_committed(&world, 0).await;
    drop(stream);
    let latest = "/topics/t/events?group=g";
    let mut stream = EventStream::open(world.gateway.address(), latest, None).await;
    assert_eq!(stream.values(2).await, numbered(10..12));
    assert_eq!(post.post("/groups/g/ack", "text/plain", "t/0@1").await.status, 204);
    until_committed(&world, 2).await;
    world.stop().await;
}

/// Reads on until the id begins so.
async fn until_told(stream: &mut EventStream, begin: &str) {
    let told = async {
        while !stream.id.starts_with(begin) {
            stream.next().await.expect("it goes on");
        }
    };
    assert!(tokio::time::timeout(PATIENCE, told).await.is_ok(), "never told of {begin}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_whose_filter_leaves_everything_out_is_told_how_far_it_is() {
    let events =
        EventSettings { ping_every: Duration::from_millis(50), ..EventSettings::default() };
    let world = World::start_with(|settings| Settings { events, ..settings }).await;
    world.create("t", 1, &[]).await;
    world.fill("t", 0, numbered(0..10)).await;
    let target = "/topics/t/events?from=earliest&group=g&filter=key:none";
    let mut stream = EventStream::open(world.gateway.address(), target, None).await;
    until_told(&mut stream, "t/0@9").await;
    let mut post = world.connect().await;
    let id = stream.id.clone();
    assert_eq!(post.post("/groups/g/ack", "text/plain", &*id).await.status, 204);
    until_committed(&world, 10).await;
    drop(stream);
    // With ack=sent it is done when the client was told.
    world.fill("t", 0, numbered(10..12)).await;
    let sent = format!("{target}&ack=sent");
    let mut stream = EventStream::open(world.gateway.address(), &sent, None).await;
    until_told(&mut stream, "t/0@11").await;
    until_committed(&world, 12).await;
    world.stop().await;
}
