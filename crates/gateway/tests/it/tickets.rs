//! Who asks without a header: by a ticket in the address, or by a token among the subprotocols of a WebSocket.

use serde_json::{Value, json};

use crate::event_stream::EventStream;
use crate::fixture::World;
use crate::http::request;
use crate::websocket_client::{WebSocket, handshake};
use crate::who::{LIMITED, PASSWORD, People, log_in};

const JSON: &str = "application/json";

/// A ticket for this topic, of the user who may read it and nothing else.
async fn ticket(world: &World, people: &People, topic: &str) -> String {
    let bearer = people.bearer(LIMITED);
    let headers = [("authorization", bearer.as_str()), ("content-type", JSON)];
    let body = json!({ "topics": [topic] }).to_string();
    let mut connection = world.connect().await;
    let answer = connection.ask("POST", "/api/v1/tickets", &headers, body.as_bytes()).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["ticket"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn records_come_to_whoever_has_a_ticket_and_no_header() {
    let people = People::new();
    let world = people.world().await;
    world.create("logs.a", 1, &[]).await;
    world.fill("logs.a", 0, ["first".to_owned(), "second".to_owned()]).await;
    let ticket = ticket(&world, &people, "logs.a").await;
    let address = world.gateway.address();
    for target in [
        format!("/topics/logs.a/events?from=earliest&ticket={ticket}"),
        format!("/topics/logs.a/events?ticket={ticket}&from=earliest"),
    ] {
        let mut stream = EventStream::open(address, &target, None).await;
        assert_eq!(stream.status, 200, "{}", stream.head);
        assert_eq!(stream.values(2).await, ["first", "second"]);
    }
    let native = format!("/ws/topics/logs.a?from=earliest&ticket={ticket}");
    let mut socket = WebSocket::open(address, &native).await;
    assert_eq!(socket.text().await["value"], "first");
    let reader = format!(
        "/ws/v2/reader/persistent/public/default/logs.a?messageId=earliest&ticket={ticket}"
    );
    let mut socket = WebSocket::open(address, &reader).await;
    assert!(socket.text().await["messageId"].is_string());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_joins_no_group_and_produces_nothing() {
    let people = People::new();
    let world = people.world().await;
    world.create("logs.a", 1, &[]).await;
    let ticket = ticket(&world, &people, "logs.a").await;
    let pulsar = "persistent/public/default/logs.a";
    for (target, status) in [
        (format!("/topics/logs.a/events?group=g&ticket={ticket}"), 403),
        (format!("/topics/logs.a/partitions/0/records?offset=0&ticket={ticket}"), 401),
        (format!("/ws/v2/consumer/{pulsar}/s?ticket={ticket}"), 401),
        (format!("/ws/v2/producer/{pulsar}?ticket={ticket}"), 401),
        (format!("/ws/topics/logs.a?ticket={ticket}x"), 401),
    ] {
        let socket = [("upgrade", "websocket"), ("connection", "upgrade")];
        let headers = if target.starts_with("/ws/") { &socket[..] } else { &[] };
        let mut connection = world.connect().await;
        let answer = connection.ask("GET", &target, headers, b"").await;
        assert_eq!(answer.status, status, "{target}: {answer:?}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_that_could_not_be_read_again_is_not_made() {
    let people = People::new();
    let world = people.world().await;
    let bearer = people.bearer("reader");
    let headers = [("authorization", bearer.as_str()), ("content-type", JSON)];
    let mut connection = world.connect().await;
    for (count, status) in [(16, 200), (17, 422)] {
        let names: Vec<Value> = (0..count).map(|at| json!(format!("{at:0>240}"))).collect();
        let body = json!({ "topics": names }).to_string();
        let answer = connection.ask("POST", "/api/v1/tickets", &headers, body.as_bytes()).await;
        assert_eq!(answer.status, status, "{count}: {answer:?}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_among_the_subprotocols_is_answered_as_browsers_ask() {
    let people = People::new();
    let world = people.world().await;
    world.create("t", 1, &[]).await;
    let token = people.bearer("reader").replace("Bearer ", "bearer.");
    let address = world.gateway.address();
    // The client looks at what is chosen, as browsers do.
    let both = [format!("{token}, highwater"), format!("highwater, {token}")];
    for offered in both.iter().chain([&token]) {
        let headers = [("sec-websocket-protocol", offered.as_str())];
        assert!(handshake(address, "/ws/topics/t", &headers).await.is_ok(), "{offered}");
    }
    let off = format!("{token}x, highwater");
    let refused = handshake(address, "/ws/topics/t", &[("sec-websocket-protocol", &off)]).await;
    assert_eq!(refused.unwrap_err().0, 401);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_of_those_who_have_no_leave_are_small_and_take_no_memory_of_others() {
    let people = People::new();
    let world = people.world().await;
    let reader = people.bearer("reader");
    let as_reader = [("authorization", reader.as_str()), ("content-type", JSON)];
    let as_nobody = [("content-type", "application/x-www-form-urlencoded")];
    for (path, headers) in [("/console/login", &as_nobody[..]), ("/api/v1/tickets", &as_reader)] {
        let body = vec![b'x'; 8 * 1024 + 1];
        let answer = world.connect().await.ask("POST", path, headers, &body).await;
        assert_eq!(answer.status, 413, "{path}: {answer:?}");
        // The same without a length, which goes on and on.
        let mut connection = world.connect().await;
        let mut head =
            format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n");
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        connection.send(format!("{head}\r\n2001\r\n{}\r\n", "x".repeat(8 * 1024 + 1))).await;
        connection.send("0\r\n\r\n").await;
        assert_eq!(connection.answer().await.status, 413, "{path}");
    }
    // Bodies that do not end, each within the bound: as many as would fill the room of all bodies.
    let boss = people.bearer("boss");
    let mut stalled = Vec::new();
    for _ in 0..64 {
        let mut connection = world.connect().await;
        let whole = request("POST", "/console/login", &as_nobody, &vec![b'x'; 8 * 1024]);
        connection.send(&whole[..whole.len() - 1]).await;
        stalled.push(connection);
    }
    let headers = [("authorization", boss.as_str())];
    let counted = world.connect().await.ask("GET", "/metrics", &headers, b"").await.body;
    assert!(counted.contains("highwater_gateway_buffer_bytes{for=\"bodies\"} 0.0\n"), "{counted}");
    for connection in &mut stalled {
        connection.send("x").await;
        assert_eq!(connection.answer().await.status, 401);
    }
    drop(stalled);
    let mut connection = world.connect().await;
    assert_eq!(log_in(&mut connection, PASSWORD, "/console").await.status, 303);
    world.stop().await;
}
