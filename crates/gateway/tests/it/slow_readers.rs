//! Readers that take nothing: what they cost the others, and what they lose.

use std::collections::HashMap;
use std::time::Duration;

use gateway::{EventSettings, Settings};
use model::{Offset, TopicPartition};

use crate::event_stream::{EventStream, Said};
use crate::fixture::World;
use crate::http::request;
use crate::websocket_client::WebSocket;

/// Values of 1 KiB, so that some thousands fill every buffer on the way.
fn large(range: std::ops::Range<usize>) -> impl Iterator<Item = String> {
    range.map(|i| format!("{i:06}{}", "x".repeat(1018)))
}

const COUNT: usize = 12_000;

fn number(value: &str) -> usize {
    value[..6].parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_made_once_for_all_readers_that_want_them_so() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let address = world.gateway.address();
    let mut readers = Vec::new();
    for _ in 0..20 {
        let mut reader = EventStream::open(address, "/topics/t/events", None).await;
        reader.next_id().await;
        readers.push(reader);
    }
    let mut other = EventStream::open(address, "/topics/t/events?data=record", None).await;
    other.next_id().await;
    assert_eq!(world.count("readers").await, 21);
    world.fill("t", 0, (0..50).map(|i| i.to_string())).await;
    for reader in &mut readers {
        let values = reader.values(50).await;
        assert!(values.iter().enumerate().all(|(i, value)| *value == i.to_string()), "{values:?}");
    }
    other.values(50).await;
    assert_eq!(world.count("encoded_events").await, 100, "once for each of two projections");
    assert_eq!(world.count("sent_events").await, 21 * 50);
    assert_eq!(world.count("catch_up_reads").await, 0);
    drop(readers);
    world.until_count("readers", 1).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_takes_nothing_costs_the_others_nothing_and_loses_nothing() {
    let events = EventSettings {
        chunk_bytes: 1 << 20,
        blocked_max: Duration::from_millis(500),
        ..EventSettings::default()
    };
    let world = World::start_with(|settings| Settings { events, ..settings }).await;
    world.create("t", 1, &[]).await;
    let address = world.gateway.address();
    let mut stuck = EventStream::open(address, "/topics/t/events", None).await;
    stuck.next_id().await;
    let mut quick = EventStream::open(address, "/topics/t/events", None).await;
    quick.next_id().await;
    let reading = tokio::spawn(async move {
        let values = quick.values(COUNT).await;
        (quick, values)
    });
    world.fill("t", 0, large(0..COUNT)).await;
    let (_quick, values) = reading.await.unwrap();
    assert!(values.iter().enumerate().all(|(i, value)| number(value) == i));
    world.until_count("closed_slow", 1).await;
    let held = world.count("chunk_bytes").await;
    assert!(held <= (1 << 20) + 2 * 80 * 1024, "{held} bytes of chunks");
    let mut came = Vec::new();
    while let Some(said) = stuck.next().await {
        if let Said::Event { data, .. } = said {
            came.push(number(&data));
        }
    }
    assert!(came.len() < COUNT, "what was under way when the connection was closed");
    let id = stuck.id.clone();
    let mut stuck = EventStream::open(address, "/topics/t/events", Some(&id)).await;
    let left = COUNT - came.len();
    came.extend(stuck.values(left).await.iter().map(|value| number(value)));
    assert_eq!(came, (0..COUNT).collect::<Vec<_>>());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_does_not_wait_for_a_reader_that_takes_nothing() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let stuck =
        EventStream::open(world.gateway.address(), "/topics/t/events?from=earliest", None).await;
    world.fill("t", 0, large(0..COUNT)).await;
    // Every buffer on the way is full.
    world.until_count("blocked_readers", 1).await;
    let sent = world.count("sent_events").await;
    assert!(0 < sent && sent < COUNT as u64, "{sent}");
    // The drain of this gateway is a minute, and a reader may take nothing for half of one.
    let stopped = tokio::time::timeout(Duration::from_secs(20), world.stop()).await;
    assert!(stopped.is_ok(), "it waits for the reader");
    drop(stuck);
}

/// Records are deleted under a stream that has not come to them: it goes on behind them, and says what it left out.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_deleted_before_an_open_stream_comes_to_it_is_said_to_be_left_out() {
    const LEFT: usize = COUNT - 500;
    let events =
        EventSettings { blocked_max: crate::fixture::PATIENCE, ..EventSettings::default() };
    let world = World::start_with(|settings| Settings { events, ..settings }).await;
    world.create("t", 1, &[]).await;
    world.fill("t", 0, large(0..COUNT)).await;
    let address = world.gateway.address();
    let mut reader = EventStream::open(address, "/topics/t/events?from=earliest", None).await;
    let mut socket = WebSocket::open(address, "/ws/topics/t?from=earliest").await;
    // Every buffer on the way to the reader is full, and it is far from the end.
    world.until_count("blocked_readers", 1).await;
    let before = HashMap::from([(TopicPartition::new("t", 0), Offset(LEFT as i64))]);
    let admin = client::Admin::new(world.cluster.clone());
    for (_, deleted) in admin.delete_records(&before).await.unwrap() {
        assert_eq!(deleted.unwrap(), Offset(LEFT as i64));
    }
    let mut next = 0;
    loop {
        let (kind, data) = reader.event().await;
        if kind == "gap" {
            let gap: serde_json::Value = serde_json::from_str(&data).unwrap();
            let expected = serde_json::json!({"topic": "t", "partition": 0, "reason": "retention",
                "from": next, "to": LEFT});
            assert_eq!(gap, expected);
            break;
        }
        assert_eq!(number(&data), next, "everything before the gap came");
        next += 1;
    }
    assert!(0 < next && next < LEFT, "{next}");
    let rest = reader.values(COUNT - LEFT).await;
    assert!(rest.iter().enumerate().all(|(at, value)| number(value) == LEFT + at));
    // Nobody read the socket until now, either.
    let (mut next, mut gaps) = (0, 0);
    while next < COUNT {
        let text = socket.text().await;
        if text["type"] == "gap" {
            assert_eq!((&text["from"], &text["to"]), (&next.into(), &LEFT.into()), "{text}");
            (next, gaps) = (LEFT, gaps + 1);
        } else {
            assert_eq!(text["offset"], next, "{}", text["offset"]);
            next += 1;
        }
    }
    assert_eq!(gaps, 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_wants_to_jumps_to_the_end_and_is_told_what_it_missed() {
    let events = EventSettings { chunk_bytes: 1 << 20, ..EventSettings::default() };
    let world = World::start_with(|settings| Settings { events, ..settings }).await;
    world.create("t", 1, &[]).await;
    let address = world.gateway.address();
    let target = "/topics/t/events?slow=skip&maxLag=2000";
    let mut reader = EventStream::open(address, target, None).await;
    reader.next_id().await;
    world.fill("t", 0, large(0..COUNT)).await;
    let mut next = 0;
    let (from, to) = loop {
        let (kind, data) = reader.event().await;
        if kind == "gap" {
            let gap: serde_json::Value = serde_json::from_str(&data).unwrap();
            assert_eq!(gap["reason"], "slow");
            break (gap["from"].as_u64().unwrap() as usize, gap["to"].as_u64().unwrap() as usize);
        }
        assert_eq!(number(&data), next);
        next += 1;
    };
    assert_eq!(from, next, "everything before the gap came");
    assert!(to > from + 2000 && to <= COUNT, "{from} to {to}");
    // It reads on from there, and may have to jump again.
    world.fill("t", 0, large(COUNT..COUNT + 1)).await;
    let mut next = to;
    while next <= COUNT {
        match reader.event().await {
            (kind, data) if kind == "gap" => {
                let gap: serde_json::Value = serde_json::from_str(&data).unwrap();
                assert_eq!(gap["from"].as_u64(), Some(next as u64));
                next = gap["to"].as_u64().unwrap() as usize;
            }
            (_, data) => {
                assert_eq!(number(&data), next);
                next += 1;
            }
        }
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_whose_filter_leaves_everything_out_is_not_slow_however_much_others_read() {
    let events = EventSettings {
        chunk_bytes: 512 << 10,
        ping_every: Duration::from_millis(50),
        ..EventSettings::default()
    };
    let world = World::start_with(|settings| Settings { events, ..settings }).await;
    world.create("t", 1, &[]).await;
    let address = world.gateway.address();
    let mut filtered = Vec::new();
    for name in 0..8 {
        let target = format!("/topics/t/events?slow=skip&filter=key:{name}");
        let mut reader = EventStream::open(address, &target, None).await;
        reader.next_id().await;
        filtered.push(reader);
    }
    // What these two read fills the memory several times.
    let mut others = Vec::new();
    for query in ["", "?data=record"] {
        let target = format!("/topics/t/events{query}");
        let mut reader = EventStream::open(address, &target, None).await;
        reader.next_id().await;
        others.push(reader);
    }
    let count = 2_000;
    for begin in (0..count).step_by(100) {
        world.fill("t", 0, large(begin..begin + 100)).await;
        for reader in &mut others {
            reader.values(100).await;
        }
    }
    let last = format!("t/0@{}.", count - 1);
    for mut reader in filtered {
        while !reader.id.starts_with(&last) {
            let said = reader.next().await.expect("it goes on");
            assert!(!matches!(said, Said::Event { .. }), "{said:?}");
        }
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_falls_behind_further_than_it_wants_is_closed() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let address = world.gateway.address();
    let mut reader = EventStream::open(address, "/topics/t/events?maxLag=2000", None).await;
    reader.next_id().await;
    world.fill("t", 0, large(0..COUNT)).await;
    let rest = reader.rest().await;
    assert!(matches!(rest[rest.len() - 2..], [Said::Retry(_), Said::Id]));
    assert_eq!(world.count("closed_slow").await, 1);
    let last = rest.len() - 3;
    let id = reader.id.clone();
    assert!(id.starts_with(&format!("t/0@{last}.")), "{id} behind {} events", last + 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_that_take_all_of_their_memory_leave_that_of_producers() {
    let world = World::start_with(|settings| Settings { memory_bytes: 1 << 20, ..settings }).await;
    world.create("t", 1, &[]).await;
    world.create("silent", 1, &[]).await;
    let mut connection = world.connect().await;
    let read = "/topics/t/partitions/0/records?offset=0&max_bytes=1000";
    let mut waiting = Vec::new();
    // Each is charged 64 KiB, from some moment on, and is not answered while its topic is empty.
    while connection.get(read).await.status != 429 {
        assert!(waiting.len() < 100, "reads that wait are charged");
        let mut reader = world.connect().await;
        let wait = "/topics/silent/partitions/0/records?offset=0&timeout=30000&max_bytes=65536";
        reader.send(request("GET", wait, &[], b"")).await;
        waiting.push(reader);
    }
    let body = vec![b'v'; 60 * 1024];
    for _ in 0..3 {
        assert_eq!(connection.get(read).await.status, 429);
        let produced = connection.ask("POST", "/topics/t/raw", &[], &body).await;
        assert_eq!(produced.status, 200, "{produced:?}");
    }
    drop(waiting);
    let free_again = async { while connection.get(read).await.status != 200 {} };
    tokio::time::timeout(crate::fixture::PATIENCE, free_again).await.expect("memory that is free");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_escapes_make_too_large_is_told_and_passed() {
    // 192 KiB for one event.
    let world = World::start_with(|settings| Settings { memory_bytes: 1 << 20, ..settings }).await;
    world.create("t", 1, &[]).await;
    // Six bytes each as JSON, one as it stands.
    let large = "\u{1}".repeat(100_000);
    world.fill("t", 0, ["before".to_owned(), large.clone(), "behind".to_owned()]).await;
    let address = world.gateway.address();
    let target = "/topics/t/events?from=earliest";
    let mut plain = EventStream::open(address, target, None).await;
    assert_eq!(plain.values(3).await, ["before", &*large, "behind"]);
    let mut whole = EventStream::open(address, &format!("{target}&data=record"), None).await;
    let (mut kinds, mut told) = (Vec::new(), Vec::new());
    for offset in 0..3 {
        let (kind, data) = whole.event().await;
        assert!(whole.id.starts_with(&format!("t/0@{offset}.")), "{kind}: {}", whole.id);
        kinds.push(kind);
        told.push(serde_json::from_str::<serde_json::Value>(&data).unwrap());
    }
    assert_eq!(kinds, ["message", "error", "message"], "{told:?}");
    assert_eq!((&told[0]["value"], &told[2]["value"]), (&"before".into(), &"behind".into()));
    assert_eq!(told[1]["offset"], 1, "{told:?}");
    assert!(told[1]["message"].as_str().unwrap().contains("196608 are sent at most"), "{told:?}");
    // A WebSocket goes on behind it as well, whose memory it would not have fitted into.
    let mut socket = WebSocket::open(address, "/ws/topics/t?from=earliest").await;
    let texts = socket.texts(3).await;
    assert_eq!((&texts[0]["value"], &texts[2]["value"]), (&"before".into(), &"behind".into()));
    assert_eq!((&texts[1]["type"], &texts[1]["offset"]), (&"error".into(), &1.into()));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_groups_that_take_nothing_leave_the_memory_of_producers() {
    let world = World::start_with(|settings| Settings { memory_bytes: 8 << 20, ..settings }).await;
    world.create("t", 1, &[]).await;
    world.fill("t", 0, large(0..2000)).await;
    let address = world.gateway.address();
    let (mut sockets, mut streams) = (Vec::new(), Vec::new());
    let refused = loop {
        let at = sockets.len();
        let consumer = format!(
            "/ws/v2/consumer/persistent/public/default/t/s{at}?subscriptionType=Shared\
             &subscriptionInitialPosition=Earliest&receiverQueueSize=1"
        );
        match WebSocket::ask(address, &consumer, &[]).await {
            Ok(socket) => sockets.push(socket),
            Err(refused) => break refused.0,
        }
        let target = format!("/topics/t/events?from=earliest&group=g{at}");
        let stream = EventStream::open(address, &target, None).await;
        if stream.status != 200 {
            break stream.status;
        }
        streams.push(stream);
    };
    assert_eq!(refused, 429);
    assert!(sockets.len() > 2, "{}", sockets.len());
    let mut connection = world.connect().await;
    let body = vec![b'v'; 900 * 1024];
    for _ in 0..3 {
        let produced = connection.ask("POST", "/topics/t/raw", &[], &body).await;
        assert_eq!(produced.status, 200, "{produced:?}");
    }
    drop((sockets, streams));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_of_a_member_that_takes_nothing_is_charged() {
    let events =
        EventSettings { blocked_max: crate::fixture::PATIENCE, ..EventSettings::default() };
    let world = World::start_with(|settings| Settings { events, ..settings }).await;
    world.create("t", 1, &[]).await;
    let before = world.body_bytes().await;
    // Six bytes each as JSON, one as it stands: 1.2 MB of what was fetched as 200 kB.
    let escaped = "\u{1}".repeat(200_000);
    world.fill("t", 0, (0..30).map(|_| escaped.clone())).await;
    let target = "/topics/t/events?from=earliest&group=g&data=record";
    let stuck = EventStream::open(world.gateway.address(), target, None).await;
    world.until_count("blocked_readers", 1).await;
    let held = world.body_bytes().await - before;
    assert!(held > 1_200_000, "{held} bytes");
    drop(stuck);
    let free = async { while world.body_bytes().await != before {} };
    tokio::time::timeout(crate::fixture::PATIENCE, free).await.expect("it is given back");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_never_fits_is_told_to_a_member_and_passed() {
    let world = World::start_with(|settings| Settings { memory_bytes: 1 << 20, ..settings }).await;
    world.create("t", 1, &[]).await;
    let large = "x".repeat(400_000);
    world.fill("t", 0, ["before".to_owned(), large.clone(), "behind".to_owned()]).await;
    let address = world.gateway.address();
    let consumer =
        "/ws/v2/consumer/persistent/public/default/t/s?subscriptionInitialPosition=Earliest";
    let mut socket = WebSocket::open(address, consumer).await;
    let texts = socket.texts(3).await;
    let payloads = [&texts[0], &texts[2]].map(|text| text["payload"].clone());
    assert_eq!(payloads, ["YmVmb3Jl", "YmVoaW5k"], "{texts:?}");
    assert_eq!((&texts[1]["type"], &texts[1]["offset"]), (&"error".into(), &1.into()));
    assert!(texts[1]["message"].as_str().unwrap().contains("are sent at most"), "{}", texts[1]);
    socket.close().await;
    let target = "/topics/t/events?from=earliest&group=g";
    let mut stream = EventStream::open(address, target, None).await;
    let mut kinds = Vec::new();
    for _ in 0..3 {
        kinds.push(stream.event().await.0);
    }
    assert_eq!(kinds, ["message", "error", "message"]);
    world.stop().await;
}
