//! Answers with records that are lost between the gateway and a client of a consumer instance: `repeat=true` has them
//! again, so that every committed record was delivered.

use client::Admin;
use tokio::time::timeout;

use crate::fixture::{PATIENCE, World};
use crate::instances::{One, values};

const COUNT: usize = 40;

/// Reads and commits like a client whose every second answer is lost. Returns the delivered values.
async fn read_with_losses(one: &mut One, repeats: bool) -> Vec<String> {
    let mut delivered = Vec::new();
    let plain = "records?timeout=30000&max_bytes=100";
    let mut next = plain;
    for number in 0..6 * COUNT {
        let answer = one.get(next).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let read = values(&answer);
        let is_end = read.last().is_some_and(|last| *last == value(COUNT - 1));
        // The relay before the gateway has this answer; the client has a broken connection.
        let is_lost = number % 2 == 1;
        next = if is_lost && repeats {
            "records?timeout=30000&max_bytes=100&repeat=true"
        } else {
            plain
        };
        if !is_lost {
            delivered.extend(read);
            one.done("offsets", "").await;
        }
        if is_end && !(is_lost && repeats) {
            break;
        }
    }
    delivered
}

async fn world() -> World {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    world.fill("t", 0, expected()).await;
    world
}

/// Values of 20 bytes, of which an answer of 100 bytes has a few.
fn expected() -> Vec<String> {
    (0..COUNT).map(value).collect()
}

fn value(at: usize) -> String {
    format!("{at:020}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_repeats_the_last_answer_loses_no_record() {
    let world = world().await;
    let mut one = One::subscribed(&world, "one").await;
    assert_eq!(read_with_losses(&mut one, true).await, expected(), "each once, in order");
    // All of them are committed.
    let committed = one.get("offsets").await.json();
    assert_eq!(committed["offsets"][0]["offset"], COUNT, "{committed}");
    // A client that does not ask for lost answers commits records that it never had.
    assert_eq!(one.delete("").await, 204);
    let mut other = One::make(&world, "other").await;
    other.done("assignments", r#"{"partitions":[{"topic":"t","partition":0}]}"#).await;
    other.done("positions", r#"{"offsets":[{"topic":"t","partition":0,"offset":0}]}"#).await;
    assert!(read_with_losses(&mut other, false).await.len() < COUNT);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repetition_has_the_same_records_as_often_as_it_is_requested_and_none_after_a_seek() {
    let world = world().await;
    let mut one = One::make(&world, "one").await;
    one.done("assignments", r#"{"partitions":[{"topic":"t","partition":0}]}"#).await;
    // Nothing was read: nothing is repeated.
    let first = one.read("timeout=30000&max_bytes=100&repeat=true").await;
    assert_eq!(first[0], value(0));
    for _ in 0..3 {
        assert_eq!(one.read("timeout=30000&max_bytes=100&repeat=true").await, first);
    }
    let second = one.read("timeout=30000&max_bytes=100").await;
    assert_eq!(second[0], value(first.len()));
    assert_eq!(one.read("timeout=30000&max_bytes=100&repeat=true").await, second);
    // A commit of offsets that were not read skips none of them.
    one.done("offsets", r#"{"offsets":[{"topic":"t","partition":0,"offset":40}]}"#).await;
    let third = one.read("timeout=30000&max_bytes=100&repeat=true").await;
    assert_eq!(third[0], value(first.len() + second.len()));
    // Empty answers are not repeated.
    one.done("positions", r#"{"offsets":[{"topic":"t","partition":0,"offset":38}]}"#).await;
    let last = one.read("timeout=30000&max_bytes=100").await;
    assert_eq!(last, [value(38), value(39)]);
    assert!(one.read("timeout=1").await.is_empty());
    assert_eq!(one.read("timeout=30000&max_bytes=100&repeat=true").await, last);
    // Committed records are not repeated; those behind them are.
    for (offset, repeated) in [(39, &last[1..]), (40, &[])] {
        let commit = format!(r#"{{"offsets":[{{"topic":"t","partition":0,"offset":{offset}}}]}}"#);
        one.done("offsets", &commit).await;
        assert_eq!(one.read("timeout=1&repeat=true").await, repeated);
    }
    // The client chooses where to read: the answer before is not repeated.
    one.done("positions", r#"{"offsets":[{"topic":"t","partition":0,"offset":30}]}"#).await;
    assert_eq!(one.read("timeout=30000&max_bytes=100&repeat=true").await[0], value(30));
    let wrong = one.get("records?repeat=perhaps").await;
    assert_eq!(wrong.status, 422, "{wrong:?}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn records_that_another_member_finished_meanwhile_are_not_repeated() {
    let world = world().await;
    let mut one = One::subscribed(&world, "one").await;
    assert_eq!(one.read("timeout=30000&max_bytes=100").await[0], value(0));
    // Another member comes, for which the group takes all partitions away and shares them out. It finishes all records,
    // and goes.
    let mut other = One::subscribed(&world, "other").await;
    other.read("timeout=1").await;
    other.done("offsets", r#"{"offsets":[{"topic":"t","partition":0,"offset":40}]}"#).await;
    assert_eq!(other.delete("").await, 204);
    let admin = Admin::new(world.cluster.clone());
    let given_back = async {
        loop {
            let group = admin.describe_group("g").await.unwrap();
            if group.group_state == "Stable" && group.members.len() == 1 {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, given_back).await.expect("the first member has its partition again");
    // It knows where it reads, and there is nothing.
    assert!(one.read("timeout=1000").await.is_empty());
    world.fill("t", 0, [value(COUNT)]).await;
    let next = one.read("timeout=30000&max_bytes=100&repeat=true").await;
    assert_eq!(next, [value(COUNT)], "what another member finished does not come again");
    world.stop().await;
}
