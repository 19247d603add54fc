//! Consumers of subscriptions over WebSocket: members of groups that acknowledge single messages.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use client::Admin;
use gateway::Gateway;
use model::TopicPartition;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::protocol::Message;

use crate::fixture::{PATIENCE, World, open, settings};
use crate::websocket_client::{Refused, WebSocket};

fn target(subscription: &str, query: &str) -> String {
    format!("/ws/v2/consumer/persistent/public/default/t/{subscription}?{query}")
}

fn value(message: &Value) -> String {
    let text = message["payload"].as_str().unwrap_or_else(|| panic!("{message}"));
    String::from_utf8(BASE64_STANDARD.decode(text).unwrap()).unwrap()
}

fn numbered(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|i| format!("v{i}")).collect()
}

fn another(world: &World) -> Gateway {
    open(settings(&world.cluster.config().bootstrap[0]))
}

/// Waits until the group has committed this offset in partition 0.
async fn until_committed(world: &World, group: &str, offset: i64) {
    let admin = Admin::new(world.cluster.clone());
    let committed = async {
        loop {
            let offsets = admin.group_offsets(group).await.unwrap();
            let known = offsets.get(&TopicPartition::new("t", 0)).map(|known| known.offset.0);
            if known == Some(offset) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, committed).await.is_ok(), "never committed {offset}");
}

/// The offsets that the group has committed, added up.
async fn committed_sum(world: &World) -> i64 {
    let offsets = Admin::new(world.cluster.clone()).group_offsets("s").await.unwrap();
    offsets.values().map(|known| known.offset.0).sum()
}

/// Waits until they are so many.
async fn until_sum(world: &World, sum: i64) {
    let committed = async {
        while committed_sum(world).await != sum {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, committed).await.is_ok(), "never committed {sum}");
}

async fn ack(socket: &mut WebSocket, message: &Value) {
    socket.say(json!({"messageId": message["messageId"]})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lowest_that_is_not_acknowledged_is_where_a_subscription_goes_on() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    world.fill("t", 0, numbered(0..10)).await;
    let address = world.gateway.address();
    let from_earliest = target("s", "subscriptionInitialPosition=Earliest");
    let mut socket = WebSocket::open(address, &from_earliest).await;
    let messages = socket.texts(10).await;
    assert_eq!(messages.iter().map(value).collect::<Vec<_>>(), numbered(0..10));
    for at in [0, 1, 2, 5, 6] {
        ack(&mut socket, &messages[at]).await;
    }
    until_committed(&world, "s", 3).await;
    socket.close().await;
    // What lies above the lowest comes again, acknowledged or not.
    let mut socket = open_soon(&world.gateway, &from_earliest).await;
    let messages = socket.texts(7).await;
    assert_eq!(messages.iter().map(value).collect::<Vec<_>>(), numbered(3..10));
    socket.say(json!({"messageId": messages[4]["messageId"], "cumulative": true})).await;
    until_committed(&world, "s", 8).await;
    socket.close().await;
    world.stop().await;
}

/// Opens a consumer as soon as the one before it has left.
async fn open_soon(gateway: &Gateway, target: &str) -> WebSocket {
    let opened = async {
        loop {
            match WebSocket::ask(gateway.address(), target, &[]).await {
                Ok(socket) => return socket,
                Err(Refused(409, _)) => tokio::time::sleep(Duration::from_millis(20)).await,
                Err(other) => panic!("{other:?}"),
            }
        }
    };
    tokio::time::timeout(PATIENCE, opened).await.expect("the one before has left")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_comes_again_and_counts() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    world.fill("t", 0, numbered(0..3)).await;
    let query = "subscriptionInitialPosition=Earliest&negativeAckRedeliveryDelay=10";
    let mut socket = WebSocket::open(world.gateway.address(), &target("s", query)).await;
    let messages = socket.texts(3).await;
    ack(&mut socket, &messages[0]).await;
    let mut refused = messages[1].clone();
    for count in 1..4 {
        let id = refused["messageId"].clone();
        socket.say(json!({"type": "negativeAcknowledge", "messageId": id})).await;
        refused = socket.text().await;
        assert_eq!((value(&refused), &refused["redeliveryCount"]), ("v1".into(), &json!(count)));
    }
    ack(&mut socket, &messages[2]).await;
    ack(&mut socket, &refused).await;
    until_committed(&world, "s", 3).await;
    assert!(socket.is_silent_for(Duration::from_millis(200)).await);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_takes_as_many_as_it_says() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    world.fill("t", 0, numbered(0..20)).await;
    let address = world.gateway.address();
    let query = "subscriptionInitialPosition=Earliest&receiverQueueSize=4";
    let mut socket = WebSocket::open(address, &target("queue", query)).await;
    let mut came = socket.texts(4).await;
    assert!(socket.is_silent_for(Duration::from_millis(300)).await, "four are not acknowledged");
    while came.len() < 20 {
        let oldest = came[came.len() - 4].clone();
        ack(&mut socket, &oldest).await;
        came.push(socket.text().await);
    }
    assert_eq!(came.iter().map(value).collect::<Vec<_>>(), numbered(0..20));
    let query = "subscriptionInitialPosition=Earliest&pullMode=true";
    let mut socket = WebSocket::open(address, &target("pull", query)).await;
    assert!(socket.is_silent_for(Duration::from_millis(300)).await, "no permit yet");
    for (permits, expected) in [(3, numbered(0..3)), (1, numbered(3..4)), (5, numbered(4..9))] {
        socket.say(json!({"type": "permit", "permitMessages": permits})).await;
        let came = socket.texts(expected.len()).await;
        assert_eq!(came.iter().map(value).collect::<Vec<_>>(), expected);
        assert!(socket.is_silent_for(Duration::from_millis(200)).await);
    }
    socket.say(json!({"type": "isEndOfTopic"})).await;
    assert_eq!(socket.text().await, json!({"endOfTopic": false}));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exclusive_subscription_has_one_consumer_on_all_gateways() {
    let world = World::start().await;
    world.create("t", 2, &[]).await;
    world.fill("t", 0, numbered(0..1)).await;
    let address = world.gateway.address();
    let exclusive = target("s", "subscriptionInitialPosition=Earliest");
    let mut first = WebSocket::open(address, &exclusive).await;
    first.text().await;
    let other = another(&world);
    for (address, target) in [
        (address, exclusive.clone()),
        (address, target("s", "subscriptionType=Shared")),
        (other.address(), exclusive.clone()),
    ] {
        let refused = WebSocket::ask(address, &target, &[]).await.err().expect("refused");
        assert_eq!(refused.0, 409, "{refused:?}");
    }
    first.close().await;
    open_soon(&other, &exclusive).await.text().await;
    for (query, status) in
        [("subscriptionType=Key_Shared", 400), ("ackTimeoutMillis=5", 400), ("x=1", 400)]
    {
        let refused = WebSocket::ask(address, &target("k", query), &[]).await.err();
        assert_eq!(refused.expect("refused").0, status, "{query}");
    }
    other.stop().await;
    world.stop().await;
}

/// Whether the socket is closed because of an exclusive consumer; false once it has a message.
async fn is_displaced(socket: &mut WebSocket) -> bool {
    loop {
        match socket.message().await {
            Some(Message::Text(_)) => return false,
            Some(Message::Close(Some(frame))) => {
                let (code, words) = (u16::from(frame.code), frame.reason.as_str());
                assert!(code == 1011 && words.contains("is Exclusive"), "{code} {words}");
                return true;
            }
            Some(_) => {}
            None => panic!("closed without a reason"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_exclusive_consumers_that_two_gateways_admit_one_is_closed() {
    let world = World::start().await;
    world.create("t", 2, &[]).await;
    for partition in 0..2 {
        world.fill("t", partition, numbered(0..1)).await;
    }
    let (address, other) = (world.gateway.address(), another(&world));
    // Both come while the group is empty: most rounds admit both.
    let mut rounds_with_both = 0;
    for round in 0..40 {
        let exclusive = target(&format!("s{round}"), "subscriptionInitialPosition=Earliest");
        let (one, two) = tokio::join!(
            WebSocket::ask(address, &exclusive, &[]),
            WebSocket::ask(other.address(), &exclusive, &[]),
        );
        let (Ok(mut one), Ok(mut two)) = (one, two) else { continue };
        rounds_with_both += 1;
        // The first rebalance may be of one alone: it may have messages before the other has joined.
        let (of_one, of_two) = tokio::join!(is_displaced(&mut one), is_displaced(&mut two));
        if !of_one && !of_two {
            let displaced = tokio::select! { code = one.end() => code, code = two.end() => code };
            assert_eq!(displaced.0, 1011, "{displaced:?}");
        }
        assert!(!(of_one && of_two), "one of them stays");
        if rounds_with_both == 3 {
            break;
        }
    }
    assert!(rounds_with_both > 0, "no round had both");
    other.stop().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_consumer_on_another_gateway_leaves_an_exclusive_one_alone() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    world.fill("t", 0, numbered(0..1)).await;
    let other = another(&world);
    let earliest = "subscriptionInitialPosition=Earliest";
    let mut first = WebSocket::open(world.gateway.address(), &target("s", earliest)).await;
    first.text().await;
    let mut second =
        WebSocket::open(other.address(), &target("s", "subscriptionType=Shared")).await;
    assert!(is_displaced(&mut second).await);
    // The first one still reads.
    world.fill("t", 0, numbered(1..2)).await;
    while value(&first.text().await) != "v1" {}
    other.stop().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn consumers_share_partitions_and_one_that_leaves_loses_nothing() {
    let world = World::start().await;
    world.create("t", 4, &[]).await;
    let query = "subscriptionType=Shared&subscriptionInitialPosition=Earliest";
    let other = another(&world);
    let mut one = WebSocket::open(world.gateway.address(), &target("s", query)).await;
    let mut two = WebSocket::open(other.address(), &target("s", query)).await;
    let mut came: BTreeMap<String, usize> = BTreeMap::new();
    let mut written = 0;
    // Until both have had something: the group shares its partitions out when the second has joined.
    let (mut of_one, mut of_two) = (0, 0);
    while of_one == 0 || of_two == 0 {
        for partition in 0..4 {
            world.fill("t", partition, [format!("v{written}")]).await;
            written += 1;
        }
        let mut left = Duration::from_millis(500);
        loop {
            let next = async {
                tokio::select! {
                    message = one.text() => (1, message),
                    message = two.text() => (2, message),
                }
            };
            let Ok((which, message)) = tokio::time::timeout(left, next).await else { break };
            *came.entry(value(&message)).or_default() += 1;
            let (socket, count) =
                if which == 1 { (&mut one, &mut of_one) } else { (&mut two, &mut of_two) };
            ack(socket, &message).await;
            *count += 1;
            left = Duration::from_millis(500);
        }
    }
    // Without a word: the gateway is gone, and the group notices within seconds.
    drop(two);
    drop(other);
    while (0..written).any(|i| !came.contains_key(&format!("v{i}"))) {
        let message = one.text().await;
        *came.entry(value(&message)).or_default() += 1;
        ack(&mut one, &message).await;
    }
    one.close().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_that_begins_at_the_end_begins_there_once() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    world.fill("t", 0, numbered(0..5)).await;
    let mut socket = WebSocket::open(world.gateway.address(), &target("s", "")).await;
    until_committed(&world, "s", 5).await;
    world.fill("t", 0, numbered(5..8)).await;
    assert_eq!(value(&socket.text().await), "v5");
    // It has acknowledged nothing, and comes again after more was written.
    drop(socket);
    world.fill("t", 0, numbered(8..10)).await;
    let mut socket = open_soon(&world.gateway, &target("s", "")).await;
    let came = socket.texts(5).await;
    assert_eq!(came.iter().map(value).collect::<Vec<_>>(), numbered(5..10));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_over_kills_of_gateways() {
    let world = World::start().await;
    world.create("t", 2, &[]).await;
    world.fill("t", 0, numbered(0..150)).await;
    world.fill("t", 1, numbered(150..300)).await;
    let query =
        "subscriptionType=Failover&subscriptionInitialPosition=Earliest&receiverQueueSize=20";
    let mut done: BTreeMap<String, usize> = BTreeMap::new();
    let (mut part, mut at_risk) = (40, 0);
    while done.len() < 300 {
        let gateway = another(&world);
        let mut socket = WebSocket::open(gateway.address(), &target("s", query)).await;
        let mut message = socket.text().await;
        // Whoever had the partitions before is gone, and commits nothing more.
        let before = committed_sum(&world).await;
        let mut read = 0;
        loop {
            read += 1;
            *done.entry(value(&message)).or_default() += 1;
            ack(&mut socket, &message).await;
            if read == part || done.len() == 300 {
                break;
            }
            message = socket.text().await;
        }
        match part % 20 {
            // What is committed does not come again.
            0 => until_sum(&world, before + read as i64).await,
            _ => at_risk += read,
        }
        part += 70;
        // Without a word: neither is the group left nor the last acknowledged.
        drop(gateway);
    }
    let repeats: usize = done.values().map(|times| times - 1).sum();
    assert!(repeats <= at_risk, "{repeats} come again, of {at_risk}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_retention_has_passed_is_said() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    world.fill("t", 0, numbered(0..10)).await;
    let query = "subscriptionInitialPosition=Earliest&receiverQueueSize=2";
    let mut socket = WebSocket::open(world.gateway.address(), &target("s", query)).await;
    let messages = socket.texts(2).await;
    ack(&mut socket, &messages[0]).await;
    until_committed(&world, "s", 1).await;
    socket.close().await;
    let admin = Admin::new(world.cluster.clone());
    let before = std::collections::HashMap::from([(TopicPartition::new("t", 0), model::Offset(6))]);
    admin.delete_records(&before).await.unwrap();
    let mut socket = open_soon(&world.gateway, &target("s", query)).await;
    let expected = json!({"type": "gap", "topic": "t", "partition": 0, "reason": "retention",
        "from": 1, "to": 6});
    assert_eq!(socket.text().await, expected);
    assert_eq!(world.count("gaps").await, 1);
    assert_eq!(value(&socket.text().await), "v6");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_message_that_is_gone_is_said_and_done() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    world.fill("t", 0, numbered(0..3)).await;
    let query =
        "subscriptionInitialPosition=Earliest&receiverQueueSize=1&negativeAckRedeliveryDelay=0";
    let mut socket = WebSocket::open(world.gateway.address(), &target("s", query)).await;
    let message = socket.text().await;
    assert_eq!(value(&message), "v0");
    let admin = Admin::new(world.cluster.clone());
    let before = std::collections::HashMap::from([(TopicPartition::new("t", 0), model::Offset(1))]);
    admin.delete_records(&before).await.unwrap();
    socket.say(json!({"type": "negativeAcknowledge", "messageId": message["messageId"]})).await;
    let expected = json!({"type": "gap", "topic": "t", "partition": 0, "reason": "retention",
        "from": 0, "to": 1});
    assert_eq!(socket.text().await, expected);
    assert_eq!(world.count("gaps").await, 1);
    until_committed(&world, "s", 1).await;
    for expected in ["v1", "v2"] {
        let message = socket.text().await;
        assert_eq!(value(&message), expected);
        ack(&mut socket, &message).await;
    }
    until_committed(&world, "s", 3).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_acknowledges_each_message_is_not_acknowledged_for_by_an_id() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    world.fill("t", 0, numbered(0..3)).await;
    let query = "subscriptionInitialPosition=Earliest";
    let mut socket = WebSocket::open(world.gateway.address(), &target("s", query)).await;
    socket.texts(3).await;
    let answer = world.connect().await.post("/groups/s/ack", "text/plain", "t/0@1").await;
    assert_eq!(answer.status, 409, "{answer:?}");
    world.stop().await;
}
