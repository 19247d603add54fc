//! A client of one address fills each pool in the cheapest way; then a client of another address is served.

use std::net::SocketAddr;

use gateway::{InstanceSettings, Settings};
use serde_json::json;

use crate::fixture::{PATIENCE, World};
use crate::http::{Answer, Connection, connect_from};
use crate::websocket_client::{Refused, WebSocket, handshake_on};

const V2: &str = "application/vnd.kafka.v2+json";
const JSON: &str = "application/vnd.kafka.json.v2+json";

/// Another address of this machine than the one that the other client of a test has.
fn elsewhere() -> SocketAddr {
    "127.0.0.2:0".parse().unwrap()
}

async fn other(world: &World) -> Connection {
    Connection::open_from(elsewhere(), world.gateway.address()).await
}

async fn other_socket(world: &World, target: &str) -> Result<WebSocket, Refused> {
    let stream = connect_from(elsewhere(), world.gateway.address()).await;
    let (stream, read) = handshake_on(stream, target, &[]).await?;
    Ok(WebSocket::of(stream, read).await)
}

async fn make_instance(connection: &mut Connection, name: &str) -> Answer {
    let body = json!({"name": name, "format": "binary"}).to_string();
    connection.post("/consumers/g", V2, body).await
}

async fn post_once(connection: &mut Connection, key: &str) -> Answer {
    let headers = [("idempotency-key", key), ("content-type", JSON)];
    let body = br#"{"records":[{"value":1,"partition":0},{"value":2,"partition":0}]}"#;
    connection.ask("POST", "/topics/t", &headers, body).await
}

/// Repeats a read that is answered 429 until there is memory.
async fn read_again(connection: &mut Connection, target: &str) -> Answer {
    let reading = async {
        loop {
            let answer = connection.get(target).await;
            if answer.status != 429 {
                return answer;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.expect("memory in time")
}

async fn open_again(world: &World, target: &str) -> WebSocket {
    let opening = async {
        loop {
            match other_socket(world, target).await {
                Ok(socket) => return socket,
                Err(refused) => assert_eq!(refused.0, 429, "{refused:?}"),
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, opening).await.expect("memory in time")
}

/// Everything that a client of another address may want.
async fn is_served(world: &World) {
    let mut socket = open_again(world, "/ws/topics/t?from=earliest").await;
    assert_eq!(socket.text().await["value"], json!("first"));
    let mut producer = open_again(world, "/ws/v2/producer/persistent/public/default/t").await;
    producer.say(json!({"payload": "Yg==", "context": "1"})).await;
    assert_eq!(producer.text().await["result"], json!("ok"));
    let consumer = "/ws/v2/consumer/persistent/public/default/t/s?subscriptionType=Shared";
    drop(open_again(world, consumer).await);
    let mut connection = other(world).await;
    let read = read_again(
        &mut connection,
        "/topics/t/partitions/0/records?offset=0&timeout=0&max_bytes=65536",
    )
    .await;
    assert_eq!(read.status, 200, "{read:?}");
    let posted = post_once(&mut connection, "of another").await;
    assert_eq!(posted.status, 200, "{posted:?}");
    let made = make_instance(&mut connection, "another").await;
    assert_eq!(made.status, 200, "{made:?}");
    let gone = connection.ask("DELETE", "/consumers/g/instances/another", &[], b"").await;
    assert_eq!(gone.status, 204, "{gone:?}");
}

async fn world() -> World {
    let world = World::start_with(|settings| Settings {
        memory_bytes: 4 << 20,
        instances: InstanceSettings { max: 20, ..InstanceSettings::default() },
        ..settings
    })
    .await;
    world.create("t", 1, &[]).await;
    world.fill("t", 0, ["first".to_owned()]).await;
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_websockets_of_one_address_stop_nothing() {
    let world = world().await;
    let mut sockets = Vec::new();
    let refused = loop {
        match WebSocket::ask(world.gateway.address(), "/ws/topics/t", &[]).await {
            Ok(socket) => sockets.push(socket),
            Err(refused) => break refused,
        }
        assert!(sockets.len() < 1000, "they are charged");
    };
    assert_eq!(refused.0, 429, "{refused:?}");
    // Reads of its own address go on, too.
    let mut connection = world.connect().await;
    let read =
        connection.get("/topics/t/partitions/0/records?offset=0&timeout=0&max_bytes=65536").await;
    assert_eq!(read.status, 200, "{read:?}");
    is_served(&world).await;
    // The socket that was idle for longest was closed, with a reason.
    assert_eq!(sockets[0].end().await.0, 1013);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn group_members_of_one_address_leave_places_and_memory_to_another() {
    let world = World::start_with(|settings| Settings { memory_bytes: 8 << 20, ..settings }).await;
    world.create("t", 1, &[]).await;
    world.fill("t", 0, ["first".to_owned()]).await;
    let mut sockets = Vec::new();
    loop {
        let target = format!(
            "/ws/v2/consumer/persistent/public/default/t/hog{}?subscriptionType=Shared",
            sockets.len()
        );
        match WebSocket::ask(world.gateway.address(), &target, &[]).await {
            Ok(socket) => sockets.push(socket),
            Err(Refused(status, _)) => break assert_eq!(status, 429),
        }
        assert!(sockets.len() < 300, "their places and their memory are counted");
    }
    is_served(&world).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_of_one_address_leave_places_to_another() {
    let world = world().await;
    let mut connection = world.connect().await;
    for at in 0..20 {
        assert_eq!(make_instance(&mut connection, &format!("i{at}")).await.status, 200);
    }
    assert_eq!(make_instance(&mut connection, "one more").await.status, 429);
    is_served(&world).await;
    // The one that was not used for longest made room.
    let gone = async {
        loop {
            let path = "/consumers/g/instances/i0/assignments";
            match connection.ask("GET", path, &[("accept", V2)], b"").await.status {
                404 => break,
                _ => tokio::task::yield_now().await,
            }
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("in time");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_one_address_leave_room_to_another() {
    let world = world().await;
    let mut connection = world.connect().await;
    let mut count = 0;
    loop {
        let answer = post_once(&mut connection, &format!("key {count}")).await;
        if answer.status == 429 {
            break;
        }
        assert_eq!(answer.status, 200, "{answer:?}");
        count += 1;
        assert!(count < 100_000, "keys are charged");
    }
    // Three quarters of 512 KiB.
    assert!(count > 700, "{count}");
    is_served(&world).await;
    assert_eq!(post_once(&mut connection, "key 0").await.status, 200, "none is forgotten");
    world.stop().await;
}
