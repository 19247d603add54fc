//! Records over WebSocket: in our own words, and in Pulsar's.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use gateway::{Access, EventSettings, Settings};
use serde_json::{Value, json};
use serving::push::message_id;
use tokio_tungstenite::tungstenite::protocol::Message;

use crate::fixture::{World, open, settings};
use crate::websocket_client::{Refused, WebSocket};

const READER: &str = "/ws/v2/reader/persistent/public/default/t";
const PRODUCER: &str = "/ws/v2/producer/persistent/public/default/t";

fn numbered(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|i| format!("v{i}")).collect()
}

fn payload(message: &Value) -> String {
    let text = message["payload"].as_str().unwrap_or_else(|| panic!("{message}"));
    String::from_utf8(BASE64_STANDARD.decode(text).unwrap()).unwrap()
}

fn values(texts: &[Value]) -> Vec<String> {
    texts.iter().map(|text| text["value"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn records_come_as_texts_and_go_on_at_any_offset() {
    let world = World::start().await;
    world.create("t", 2, &[]).await;
    world.fill("t", 0, numbered(0..40)).await;
    let address = world.gateway.address();
    let mut socket = WebSocket::open(address, "/ws/topics/t?from=earliest&partitions=0").await;
    let first = socket.text().await;
    let Value::Object(mut fields) = first else { panic!("{first}") };
    assert!(fields.remove("timestamp").is_some_and(|at| at.as_i64() > Some(1_700_000_000_000)));
    let expected = json!({"topic": "t", "partition": 0, "offset": 0, "key": null, "value": "v0",
        "headers": []});
    assert_eq!(Value::Object(fields), expected);
    assert_eq!(values(&socket.texts(39).await), numbered(1..40));
    world.fill("t", 0, numbered(40..50)).await;
    assert_eq!(values(&socket.texts(10).await), numbered(40..50), "as they are written");
    // On another gateway, where the first one broke off.
    let other = open(settings(&world.cluster.config().bootstrap[0]));
    let mut socket = WebSocket::open(other.address(), "/ws/topics/t?from=0:17&limit=3").await;
    assert_eq!(values(&socket.texts(3).await), numbered(17..20));
    assert_eq!(socket.text().await, json!({"type": "end", "reason": "limit"}));
    assert_eq!(socket.end().await.0, 1000);
    world.fill("t", 1, ["key".to_owned()]).await;
    let target = "/ws/topics/t?from=earliest&until=end&partitions=1&encoding=base64";
    let mut socket = WebSocket::open(address, target).await;
    assert_eq!(socket.text().await["value"], json!({"base64": "a2V5"}));
    assert_eq!(socket.text().await, json!({"type": "end", "reason": "end"}));
    other.stop().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_in_pulsars_words_goes_on_behind_the_last_message() {
    let world = World::start().await;
    world.create("t", 2, &[]).await;
    world.fill("t", 0, numbered(0..30)).await;
    world.fill("t", 1, ["other".to_owned()]).await;
    let address = world.gateway.address();
    let mut last = message_id::write("t", 1, 0);
    let mut came = Vec::new();
    while came.len() < 30 {
        let target = match came.len() {
            0 => format!("{READER}?messageId={last}"),
            _ => format!("{READER}?messageId={},{last}", message_id::write("t", 1, 0)),
        };
        let gateway = open(settings(&world.cluster.config().bootstrap[0]));
        let mut socket = WebSocket::open(gateway.address(), &target).await;
        for message in socket.texts((30 - came.len()).min(7)).await {
            message["messageId"].as_str().unwrap().clone_into(&mut last);
            assert_eq!(message["redeliveryCount"], 0);
            came.push(payload(&message));
        }
        // Without a word.
        drop(gateway);
    }
    assert_eq!(came, numbered(0..30), "no gap and no repeat");
    let mut socket = WebSocket::open(address, &format!("{READER}?messageId=latest")).await;
    socket.say(json!({"type": "isEndOfTopic"})).await;
    assert_eq!(socket.text().await, json!({"endOfTopic": false}));
    world.fill("t", 0, ["new".to_owned()]).await;
    assert_eq!(payload(&socket.text().await), "new");
    socket.close().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_is_sent_as_many_as_it_has_not_acknowledged() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    world.fill("t", 0, numbered(0..20)).await;
    let target = format!("{READER}?messageId=earliest&receiverQueueSize=5");
    let mut socket = WebSocket::open(world.gateway.address(), &target).await;
    let mut came = socket.texts(5).await;
    assert!(socket.is_silent_for(Duration::from_millis(300)).await, "five are not acknowledged");
    while came.len() < 20 {
        let id = came[came.len() - 5]["messageId"].clone();
        socket.say(json!({"messageId": id})).await;
        came.push(socket.text().await);
    }
    assert_eq!(came.iter().map(payload).collect::<Vec<_>>(), numbered(0..20));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_is_told_where_each_message_went() {
    let world = World::start().await;
    world.create("t", 3, &[]).await;
    let mut socket = WebSocket::open(world.gateway.address(), PRODUCER).await;
    for i in 0..200 {
        let payload = BASE64_STANDARD.encode(format!("v{i}"));
        let key = format!("k{}", i % 10);
        let properties = json!({"n": i.to_string()});
        let context = i.to_string();
        socket
            .say(json!({"payload": payload, "key": key, "properties": properties, "context": context}))
            .await;
    }
    let mut ids = Vec::new();
    for (i, answer) in socket.texts(200).await.into_iter().enumerate() {
        assert_eq!((&answer["result"], &answer["context"]), (&json!("ok"), &json!(i.to_string())));
        ids.push(answer["messageId"].as_str().unwrap().to_owned());
    }
    let kept = world.read("t").await;
    assert_eq!(kept.len(), 200);
    for record in kept {
        let id = message_id::write("t", record.partition, record.offset);
        let i = ids.iter().position(|known| *known == id).expect("it was told where");
        assert_eq!(record.value, Some(format!("v{i}").into_bytes()));
        assert_eq!(record.headers, [("n".to_owned(), Some(i.to_string().into_bytes()))]);
    }
    for (text, context, part) in [
        ("{\"payload\":\"?\",\"context\":\"c\"}", json!("c"), "base64"),
        ("nonsense", Value::Null, "expected"),
        ("[]", Value::Null, "an object"),
    ] {
        socket.send(Message::text(text)).await;
        let answer = socket.text().await;
        assert!(answer["result"].as_str().unwrap().starts_with("send-error"), "{answer}");
        assert!(answer["errorMsg"].as_str().unwrap().contains(part), "{answer}");
        assert_eq!((&answer["context"], &answer["written"]), (&context, &json!("no")));
    }
    socket.say(json!({"payload": "AA=="})).await;
    assert_eq!(socket.text().await["result"], "ok", "an error ends nothing");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_request_for_a_websocket_is_told_why() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let address = world.gateway.address();
    let asked = async |target: &str, headers: &[(&str, &str)]| match WebSocket::ask(
        address, target, headers,
    )
    .await
    {
        Ok(_) => Refused(101, String::new()),
        Err(refused) => refused,
    };
    for (target, headers, status, part) in [
        ("/ws/topics/t", &[("upgrade", "h2c")][..], 426, "expected GET with Upgrade"),
        ("/ws/topics/t", &[("sec-websocket-version", "8")], 426, "Sec-WebSocket-Version: 13"),
        ("/ws/topics/t", &[("sec-websocket-key", "x")], 400, "16 bytes"),
        ("/ws/topics/t", &[("content-length", "1")], 400, "no body"),
        ("/ws/topics/t?form=x", &[], 400, "unknown parameter"),
        ("/ws/topics/t?group=g", &[], 400, "event streams"),
        ("/ws/topics/none", &[], 404, "does not exist"),
        ("/ws/topics/__consumer_offsets", &[], 404, "does not exist"),
        ("/ws/v2/reader/persistent/public/default/none", &[], 404, "does not exist"),
        ("/ws/v2/producer/persistent/public/default/none", &[], 404, "does not exist"),
        ("/ws/v2/producer/persistent/public/other/t", &[], 404, "nothing under this path"),
        ("/ws/v2/reader/persistent/public/default/t?messageId=x", &[], 400, "messageId"),
        ("/ws/v2/producer/persistent/public/default/t?x=1", &[], 400, "unknown parameter"),
        // A page of another site, and a name that a stranger may own.
        ("/ws/topics/t", &[("origin", "https://evil.example")], 403, "may not send this"),
        ("/ws/topics/t", &[("origin", "null")], 403, "may not send this"),
        ("/ws/topics/t", &[("host", "evil.example.com")], 403, "does not answer as"),
    ] {
        let Refused(told, body) = asked(target, headers).await;
        assert_eq!(told, status, "{target} {headers:?}: {body}");
        assert!(body.contains(part), "{target} {headers:?}: {body}");
    }
    assert_eq!(asked("/ws/topics/t", &[("origin", "http://localhost")]).await.0, 101);
    let mut plain = world.connect().await;
    assert_eq!(plain.get("/ws/topics/t").await.status, 426);
    assert_eq!(plain.post("/ws/topics/t", "", "").await.status, 405);
    let bootstrap = &world.cluster.config().bootstrap[0];
    let reading = open(Settings { access: Access::Read, ..settings(bootstrap) });
    let of = |gateway: &gateway::Gateway, target| {
        let address = gateway.address();
        async move { WebSocket::ask(address, target, &[]).await.map_or_else(|r| r.0, |_| 101) }
    };
    assert_eq!(of(&reading, READER).await, 101);
    assert_eq!(of(&reading, PRODUCER).await, 403);
    let closed = open(Settings { access: Access::Health, ..settings(bootstrap) });
    assert_eq!(of(&closed, "/ws/topics/t").await, 403);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_answers_what_was_sent_and_says_good_bye() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let address = world.gateway.address();
    let mut reader = WebSocket::open(address, READER).await;
    let mut producer = WebSocket::open(address, PRODUCER).await;
    for _ in 0..50 {
        producer.say(json!({"payload": "AA=="})).await;
    }
    assert_eq!(producer.text().await["result"], "ok");
    let stopping = tokio::spawn(world.stop_gateway());
    let mut answered = 1;
    let end = loop {
        match producer.message().await {
            Some(Message::Text(text)) => {
                assert!(text.contains("\"result\":\"ok\""), "{text}");
                answered += 1;
            }
            Some(Message::Close(Some(frame))) => break u16::from(frame.code),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(end, 1001);
    assert_eq!(reader.end().await.0, 1001);
    let (broker, dir) = stopping.await.unwrap();
    assert!(answered >= 1);
    broker.stop_within(crate::fixture::PATIENCE).await;
    drop(dir);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_says_nothing_is_asked_and_then_left() {
    let ping_every = Duration::from_millis(50);
    let events = EventSettings { ping_every, ..EventSettings::default() };
    let world = World::start_with(|settings| Settings { events, ..settings }).await;
    world.create("t", 1, &[]).await;
    let mut lives = WebSocket::open(world.gateway.address(), READER).await;
    let mut pings = 0;
    while pings < 10 {
        match lives.message().await {
            Some(Message::Ping(_)) => pings += 1,
            other => panic!("{other:?}"),
        }
    }
    // One that reads, and does not answer.
    let (mut stream, mut read) =
        crate::websocket_client::handshake(world.gateway.address(), READER, &[]).await.unwrap();
    let gone = async {
        while tokio::io::AsyncReadExt::read_buf(&mut stream, &mut read).await.is_ok_and(|n| n > 0) {
        }
    };
    tokio::time::timeout(crate::fixture::PATIENCE, gone).await.expect("closed");
    assert!(read.windows(18).any(|part| part == b"no answer to pings"), "{read:?}");
    world.stop().await;
}
