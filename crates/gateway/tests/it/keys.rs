//! Requests with an `Idempotency-Key`: each is carried out once, whatever its client does, and answered as often as it
//! comes.

use std::time::Duration;

use gateway::Settings;
use serde_json::json;
use tokio::time::timeout;

use crate::fixture::{PATIENCE, World};
use crate::http::{Answer, Connection, request};

const JSON: &str = "application/vnd.kafka.json.v2+json";

/// Sends a value with a key.
async fn post(connection: &mut Connection, target: &str, key: &str, value: &[u8]) -> Answer {
    connection.ask("POST", target, &[("idempotency-key", key)], value).await
}

fn is_replayed(answer: &Answer) -> bool {
    answer.header("idempotency-replayed") == Some("true")
}

/// What the gateway counts of keys.
async fn counted(world: &World, name: &str) -> u64 {
    let counts = world.connect().await.get("/api/v1/gateway/idempotency").await.json();
    counts[name].as_u64().unwrap_or_else(|| panic!("{name}: {counts}"))
}

async fn until_counted(world: &World, name: &str, count: u64) {
    let looking = async {
        while counted(world, name).await != count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(timeout(PATIENCE, looking).await.is_ok(), "{name} was never {count}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_comes_again_is_answered_again_and_not_carried_out() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    world.create("u", 1, &[]).await;
    let mut connection = world.connect().await;
    let first = post(&mut connection, "/topics/t/raw", "a", b"v").await;
    assert_eq!((first.status, is_replayed(&first)), (200, false), "{first:?}");
    // On another connection, too.
    let mut other = world.connect().await;
    for connection in [&mut connection, &mut other] {
        let again = post(connection, "/topics/t/raw", "a", b"v").await;
        assert_eq!((again.status, &again.body, is_replayed(&again)), (200, &first.body, true));
        assert_eq!(again.header("content-type"), first.header("content-type"));
    }
    let written_otherwise = post(&mut connection, "/topics/%74/raw", "a", b"v").await;
    assert_eq!((&written_otherwise.body, is_replayed(&written_otherwise)), (&first.body, true));
    for (target, value) in [("/topics/t/raw", &b"w"[..]), ("/topics/t/raw?key=k", b"v")] {
        let refused = post(&mut connection, target, "a", value).await;
        assert_eq!((refused.status, &refused.json()["written"]), (422, &json!("no")), "{target}");
    }
    let keyed = [("idempotency-key", "a"), ("x-key", "k")];
    let refused = connection.ask("POST", "/topics/t/raw", &keyed, b"v").await;
    assert_eq!(refused.status, 422, "the key of the record is another one");
    let elsewhere = post(&mut connection, "/topics/u/raw", "a", b"v").await;
    assert_eq!((elsewhere.status, is_replayed(&elsewhere)), (200, false));
    // A list with a record that cannot be written is answered again as a whole.
    let list = r#"{"records":[{"value":1},{"value":2,"partition":7}]}"#;
    let headers = [("idempotency-key", "list"), ("content-type", JSON)];
    let first = connection.ask("POST", "/topics/t", &headers, list.as_bytes()).await;
    let again = connection.ask("POST", "/topics/t", &headers, list.as_bytes()).await;
    assert_eq!((first.status, first.json()["offsets"][0]["offset"].as_i64()), (200, Some(1)));
    assert_eq!((&again.body, is_replayed(&again)), (&first.body, true));
    assert_eq!((world.ends("t").await, world.ends("u").await), (vec![2], vec![1]));
    assert_eq!((counted(&world, "keys").await, counted(&world, "replayed").await), (3, 4));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_cannot_be_used_are_refused() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let mut connection = world.connect().await;
    for target in ["/topics/t/raw?async=true", "/topics/t/raw?async"] {
        let answer = post(&mut connection, target, "a", b"v").await;
        assert_eq!(answer.status, 422, "{answer:?}");
    }
    assert_eq!(post(&mut connection, "/topics/t/raw", "", b"v").await.status, 422);
    assert_eq!(post(&mut connection, "/topics/t/raw", &"x".repeat(256), b"v").await.status, 422);
    let two = [("idempotency-key", "a"), ("idempotency-key", "b")];
    assert_eq!(connection.ask("POST", "/topics/t/raw", &two, b"v").await.status, 400);
    assert_eq!(world.ends("t").await, [0]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_whose_request_wrote_nothing_is_free_again() {
    let world = World::start().await;
    world.create("small", 1, &[("max.message.bytes", "1000")]).await;
    let mut connection = world.connect().await;
    let missing = post(&mut connection, "/topics/missing/raw", "a", b"v").await;
    assert_eq!(missing.status, 404);
    let refused = post(&mut connection, "/topics/small/raw", "a", &[b'x'; 2000]).await;
    assert_eq!((refused.status, &refused.json()["written"]), (413, &json!("no")));
    assert_eq!(counted(&world, "keys").await, 0);
    let taken = post(&mut connection, "/topics/small/raw", "a", b"another").await;
    assert_eq!((taken.status, is_replayed(&taken)), (200, false), "{taken:?}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_at_once_one_is_carried_out_and_all_hear_of_it() {
    const CLIENTS: usize = 24;
    const KEYS: usize = 20;
    let world = World::start().await;
    world.create("t", 3, &[]).await;
    let address = world.gateway.address();
    let clients = (0..CLIENTS).map(|_| {
        tokio::spawn(async move {
            let mut connection = Connection::open(address).await;
            let mut answers = Vec::new();
            for key in 0..KEYS {
                let key = key.to_string();
                answers.push(post(&mut connection, "/topics/t/raw", &key, key.as_bytes()).await);
            }
            answers
        })
    });
    let mut answers = Vec::new();
    for client in clients.collect::<Vec<_>>() {
        answers.push(client.await.unwrap());
    }
    for key in 0..KEYS {
        let of_key: Vec<&Answer> = answers.iter().map(|answers| &answers[key]).collect();
        assert!(of_key.iter().all(|answer| answer.status == 200 && answer.body == of_key[0].body));
        assert_eq!(of_key.iter().filter(|answer| !is_replayed(answer)).count(), 1, "key {key}");
    }
    assert_eq!(world.ends("t").await.iter().sum::<i64>(), KEYS as i64);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_in_the_middle_leaves_its_key_to_the_others() {
    let (world, gate) = World::start_behind_gate().await;
    world.create("t", 1, &[]).await;
    let mut connection = world.connect().await;
    assert_eq!(post(&mut connection, "/topics/t/raw", "before", b"v").await.status, 200);
    gate.close();
    let post = |value| request("POST", "/topics/t/raw", &[("idempotency-key", "a")], value);
    let mut leaver = world.connect().await;
    leaver.send(post(b"w")).await;
    until_counted(&world, "keys", 2).await;
    let mut waiters = [world.connect().await, world.connect().await];
    for waiter in &mut waiters {
        waiter.send(post(b"w")).await;
    }
    until_counted(&world, "waited", 2).await;
    drop(leaver);
    // Another request does not wait to be refused.
    connection.send(post(b"x")).await;
    assert_eq!(connection.answer().await.status, 422);
    gate.open();
    for waiter in &mut waiters {
        let answer = waiter.answer().await;
        assert_eq!((answer.status, is_replayed(&answer)), (200, true), "{answer:?}");
        assert_eq!(answer.json()["offset"], 1);
    }
    assert_eq!(world.ends("t").await, [2]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_before_anything_is_sent_leaves_its_turn_to_the_next() {
    let (world, gate) = World::start_behind_gate().await;
    world.create("t", 1, &[]).await;
    // The topic is not known to the gateway yet, and cannot be asked for.
    gate.close();
    let post = request("POST", "/topics/t/raw", &[("idempotency-key", "a")], b"v");
    let mut leaver = world.connect().await;
    leaver.send(&post).await;
    until_counted(&world, "keys", 1).await;
    let mut waiter = world.connect().await;
    waiter.send(&post).await;
    until_counted(&world, "waited", 1).await;
    drop(leaver);
    gate.open();
    let answer = waiter.answer().await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(world.ends("t").await, [1]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_can_remember_no_more_takes_no_key_and_forgets_none() {
    let world = World::start_with(|settings| Settings { memory_bytes: 1 << 20, ..settings }).await;
    world.create("t", 1, &[]).await;
    let mut connection = world.connect().await;
    let key = |n: usize| format!("{n:0250}");
    let mut taken = 0;
    let full = loop {
        let answer = post(&mut connection, "/topics/t/raw", &key(taken), b"v").await;
        match answer.status {
            200 => taken += 1,
            _ => break answer,
        }
        assert!(taken < 1000, "128 KiB hold no thousand keys of 250 bytes");
    };
    assert_eq!((full.status, full.header("retry-after")), (429, Some("1")));
    assert!(full.body.contains("Idempotency-Key"), "{full:?}");
    assert!(taken > 100, "{taken}");
    let first = post(&mut connection, "/topics/t/raw", &key(0), b"v").await;
    assert_eq!((first.status, is_replayed(&first)), (200, true));
    let keyless = connection.post("/topics/t/raw", "x/y", "v").await;
    assert_eq!(keyless.status, 200, "a request without a key needs no room for one");
    assert_eq!(world.ends("t").await, [taken as i64 + 1]);
    world.stop().await;
}
