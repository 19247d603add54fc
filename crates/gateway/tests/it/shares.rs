//! A client of one address fills each pool in the cheapest way; then a client of another address is served.

use std::net::SocketAddr;
use std::time::Duration;

use gateway::{InstanceSettings, Settings};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::protocol::Message;

use crate::event_stream::{EventStream, Said};
use crate::fixture::{PATIENCE, World};
use crate::http::{Answer, Connection, connect_from, request};
use crate::streaming::Stream;
use crate::version3::path;
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
    // 512 KiB.
    assert!(count > 1000, "{count}");
    is_served(&world).await;
    // The oldest key lost its answer. Its request is not carried out again for that.
    let ends = world.ends("t").await;
    let oldest = post_once(&mut connection, "key 0").await;
    assert_eq!(oldest.status, 504, "{oldest:?}");
    assert!(oldest.body.contains("was carried out before"), "{oldest:?}");
    let newest = post_once(&mut connection, &format!("key {}", count - 1)).await;
    assert_eq!((newest.status, newest.header("idempotency-replayed")), (200, Some("true")));
    assert_eq!(world.ends("t").await, ends);
    world.stop().await;
}

/// Larger than a buffer of an idle socket by far.
const LARGE_BYTES: usize = 200 << 10;

/// Opens a WebSocket that reads the large record first. Retries while the pool has no memory for the socket.
async fn read_large(world: &World, source: SocketAddr) -> WebSocket {
    let reading = async {
        loop {
            let stream = connect_from(source, world.gateway.address()).await;
            let opened = handshake_on(stream, "/ws/topics/large?from=earliest", &[]).await;
            let mut socket = match opened {
                Ok((stream, read)) => WebSocket::of(stream, read).await,
                Err(Refused(status, _)) => {
                    assert_eq!(status, 429);
                    continue;
                }
            };
            match socket.message().await {
                Some(Message::Text(text)) if text.len() >= LARGE_BYTES => return socket,
                Some(Message::Close(Some(frame))) => assert_eq!(u16::from(frame.code), 1013),
                other => panic!("{other:?}"),
            }
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.expect("memory in time")
}

#[tokio::test(flavor = "multi_thread")]
async fn sockets_that_have_read_large_records_return_the_memory_for_them() {
    let world = world().await;
    world.create("large", 1, &[]).await;
    world.fill("large", 0, ["v".repeat(LARGE_BYTES)]).await;
    let mut sockets = Vec::new();
    // Two large buffers fill the pool of 1 MiB.
    for _ in 0..8 {
        sockets.push(read_large(&world, "127.0.0.1:0".parse().unwrap()).await);
    }
    // All of them are open still.
    world.fill("large", 0, ["more".to_owned()]).await;
    for socket in &mut sockets {
        assert_eq!(socket.text().await["value"], json!("more"));
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_that_grows_in_a_full_pool_takes_memory_of_idle_sockets_of_another_client() {
    let world = world().await;
    world.create("large", 1, &[]).await;
    let mut reader = other_socket(&world, "/ws/topics/large").await.unwrap();
    let mut idle = Vec::new();
    while let Ok(socket) = WebSocket::ask(world.gateway.address(), "/ws/topics/t", &[]).await {
        idle.push(socket);
        assert!(idle.len() < 1000, "they are charged");
    }
    world.fill("large", 0, ["v".repeat(LARGE_BYTES)]).await;
    assert!(reader.text().await["value"].as_str().unwrap().len() >= LARGE_BYTES);
    assert_eq!(idle[0].end().await.0, 1013, "the one that was idle for longest");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_member_that_loses_its_place_is_closed_with_1013() {
    let world = world().await;
    let mut members = Vec::new();
    loop {
        let target = format!(
            "/ws/v2/consumer/persistent/public/default/t/hog{}?subscriptionType=Shared",
            members.len()
        );
        match WebSocket::ask(world.gateway.address(), &target, &[]).await {
            Ok(socket) => members.push(socket),
            Err(Refused(status, _)) => break assert_eq!(status, 429),
        }
        assert!(members.len() < 300, "their places and their memory are counted");
    }
    let consumer = "/ws/v2/consumer/persistent/public/default/t/s?subscriptionType=Shared";
    drop(open_again(&world, consumer).await);
    let mut ends = JoinSet::new();
    for mut member in members {
        ends.spawn(async move { member.end().await });
    }
    let (code, words) = ends.join_next().await.expect("one made room").unwrap();
    assert_eq!(code, 1013, "{words}");
    ends.shutdown().await;
    world.stop().await;
}

/// Makes two instances, of which one waits for records while the other is used a moment later. Then a client of another
/// address needs places. Returns whether the one that waits kept its place.
async fn waiting_instance_stays(world: &World) -> bool {
    let mut connection = world.connect().await;
    let v2 = [("accept", V2), ("content-type", V2)];
    for at in 0..20 {
        assert_eq!(make_instance(&mut connection, &format!("i{at}")).await.status, 200);
    }
    let assigned = br#"{"partitions":[{"topic":"empty","partition":0}]}"#;
    let path = "/consumers/g/instances/i0/assignments";
    assert_eq!(connection.ask("POST", path, &v2, assigned).await.status, 204);
    let mut waiting = world.connect().await;
    let read = request("GET", "/consumers/g/instances/i0/records?timeout=60000", &v2, b"");
    waiting.send(&read).await;
    for at in 1..20 {
        let path = format!("/consumers/g/instances/i{at}/assignments");
        assert_eq!(connection.ask("GET", &path, &v2, b"").await.status, 200);
    }
    // A read of some slices, in which the one that waits goes on.
    let clock = connection.ask("GET", "/consumers/g/instances/i1/records?timeout=1500", &v2, b"");
    assert_eq!(clock.await.status, 200);
    assert_eq!(make_instance(&mut other(world).await, "another").await.status, 200);
    let is_gone = async |connection: &mut Connection| {
        for at in 1..20 {
            let path = format!("/consumers/g/instances/i{at}/assignments");
            if connection.ask("GET", &path, &v2, b"").await.status == 404 {
                return true;
            }
        }
        false
    };
    let stays = loop {
        if is_gone(&mut connection).await {
            break true;
        }
        // It is answered only when it ends: nothing comes.
        if timeout(Duration::from_millis(1), waiting.answer()).await.is_ok() {
            break false;
        }
    };
    for at in 0..20 {
        let path = format!("/consumers/g/instances/i{at}");
        connection.ask("DELETE", &path, &[], b"").await;
    }
    other(world).await.ask("DELETE", "/consumers/g/instances/another", &[], b"").await;
    stays
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_waits_for_records_is_in_use() {
    let world = world().await;
    world.create("empty", 1, &[]).await;
    let mut tries = 0;
    // A machine that is busy for more than a second may delay the slices of one read.
    while !waiting_instance_stays(&world).await {
        tries += 1;
        assert!(tries < 5, "the instance that waits loses its place");
    }
    world.stop().await;
}

/// Opens a stream of the records with this key.
async fn filtered(world: &World, source: SocketAddr, key: &str) -> EventStream {
    filtered_of(world, source, &format!("key:{key}")).await
}

/// Opens a stream of the records that a filter lets through. `filter`: with further parameters behind it.
async fn filtered_of(world: &World, source: SocketAddr, filter: &str) -> EventStream {
    let mut stream = connect_from(source, world.gateway.address()).await;
    let target = format!("/topics/t/events?filter={filter}");
    stream.write_all(&request("GET", &target, &[], b"")).await.unwrap();
    EventStream::of(stream).await
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_of_one_address_leave_some_to_another() {
    let (world, own) = (world().await, "127.0.0.1:0".parse().unwrap());
    let mut streams = Vec::new();
    for at in 0..64 {
        let mut stream = filtered(&world, own, &format!("k{at}")).await;
        stream.next_id().await;
        streams.push(stream);
    }
    let sent_away = filtered(&world, own, "k64").await.rest().await;
    assert!(matches!(sent_away[..], [Said::Retry(_)]), "{sent_away:?}");
    let mut other = filtered(&world, elsewhere(), "mine").await;
    other.next_id().await;
    // The oldest filter has made room.
    streams.remove(0).rest().await;
    let mut connection = world.connect().await;
    for key in ["k0", "k1", "k63", "mine"] {
        let posted = connection.post(&format!("/topics/t/raw?key={key}"), "", key).await;
        assert_eq!(posted.status, 200, "{posted:?}");
    }
    assert_eq!(other.value().await, "mine");
    assert_eq!(streams[0].value().await, "k1");
    assert_eq!(streams[62].value().await, "k63");
    // A filter in use costs the other client nothing.
    let mut shared = filtered(&world, elsewhere(), "k2").await;
    shared.next_id().await;
    assert_eq!(connection.post("/topics/t/raw?key=k2", "", "again").await.status, 200);
    assert_eq!((shared.value().await, streams[1].value().await), ("again".into(), "again".into()));
    drop(streams);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_a_later_partition_refuses_ends_no_filter() {
    let (world, own) = (World::start().await, "127.0.0.1:0".parse().unwrap());
    world.create("t", 2, &[]).await;
    // Filters of one client in partition 0, and of the other one in partition 1.
    let mut streams = Vec::new();
    for at in 0..64 {
        for (source, partition) in [(own, 0), (elsewhere(), 1)] {
            let filter = format!("key:k{at}&partitions={partition}");
            let mut stream = filtered_of(&world, source, &filter).await;
            stream.next_id().await;
            streams.push(stream);
        }
    }
    let sent_away = filtered(&world, elsewhere(), "both").await.rest().await;
    assert!(matches!(sent_away[..], [Said::Retry(_)]), "{sent_away:?}");
    let mut connection = world.connect().await;
    let posted =
        connection.post("/topics/t/partitions/0/raw?key=k0", "text/plain", "still there").await;
    assert_eq!(posted.status, 200, "{posted:?}");
    assert_eq!(streams[0].value().await, "still there");
    drop(streams);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_bodies_of_one_address_make_room_for_bodies_of_another() {
    // Half a megabyte for bodies.
    let world = World::start_with(|settings| Settings {
        memory_bytes: 1 << 20,
        body_timeout: 10 * PATIENCE,
        ..settings
    })
    .await;
    world.create("t", 1, &[]).await;
    let body = vec![b'v'; 70_000];
    let whole = request("POST", "/topics/t/raw", &[], &body);
    let chunked = format!(
        "POST /v3/clusters/{}/topics/t/records HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         transfer-encoding: chunked\r\n\r\n11170\r\n{{\"a\":\"{}",
        world.cluster.metadata().cluster_id.clone().unwrap(),
        "v".repeat(69_994)
    );
    let mut unfinished = Vec::new();
    for at in 0..7 {
        let mut connection = world.connect().await;
        match at {
            0 => connection.send(&chunked).await,
            _ => connection.send(&whole[..whole.len() - 1]).await,
        }
        unfinished.push(connection);
        // One after the other: the oldest one makes room.
        let arrived = async { while world.body_bytes().await < (at + 1) * 69_999 {} };
        timeout(PATIENCE, arrived).await.expect("all but the last bytes");
    }
    for _ in 0..3 {
        let posted = async {
            loop {
                let answer = other(&world).await.ask("POST", "/topics/t/raw", &[], &body).await;
                if answer.status != 429 {
                    break answer.status;
                }
            }
        };
        assert_eq!(timeout(PATIENCE, posted).await.expect("memory in time"), 200);
    }
    // The oldest of them was a stream of records: its end says why.
    let stream = unfinished.remove(0);
    let end = stream.closed().await;
    assert!(end.contains("other clients need its memory"), "{end}");
    // The last of them is still there.
    let mut last = unfinished.pop().unwrap();
    last.send("v").await;
    assert_eq!(last.answer().await.status, 200);
    // A stop waits for bodies that are still arriving.
    drop(unfinished);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_whose_client_reads_no_answers_returns_its_memory_when_it_is_revoked() {
    // Two megabytes for bodies. No other limit ends the stream while this test waits.
    const BODIES_BYTES: usize = 2 << 20;
    let (write_timeout, body_timeout) = (60 * PATIENCE, 60 * PATIENCE);
    let world = World::start_with(|settings| Settings {
        memory_bytes: 2 * BODIES_BYTES,
        request_bytes_max: BODIES_BYTES,
        write_timeout,
        body_timeout,
        ..settings
    })
    .await;
    world.create("t", 1, &[]).await;
    let mut stream = Stream::begin(&world, &path(&world, "t").await).await;
    // No chunk ends with an object, so the stream holds bytes wherever it stops.
    stream.send("{\"partition_id\":").await;
    stream
        .send_until_full(
            &("9}".to_owned() + &"{\"partition_id\":9}".repeat(499) + "{\"partition_id\":"),
        )
        .await;
    assert!(world.body_bytes().await > 0);
    // A later body of the same address, which the gateway would revoke after the stream.
    let large = BODIES_BYTES / 4 * 3;
    let head = format!(
        "POST /topics/t/raw HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
        large + 1
    );
    let mut unfinished = world.connect().await;
    unfinished.send([head.as_bytes(), &vec![b'v'; large]].concat()).await;
    let arrived = async { while world.body_bytes().await <= large {} };
    timeout(PATIENCE, arrived).await.expect("all but the last byte");
    // The memory of the stream is just enough.
    let body = vec![b'v'; BODIES_BYTES - large];
    let posted = async {
        loop {
            let answer = other(&world).await.ask("POST", "/topics/t/raw", &[], &body).await;
            if answer.status != 429 {
                break answer.status;
            }
        }
    };
    assert_eq!(timeout(PATIENCE, posted).await.expect("memory in time"), 200);
    let end = stream.reports().await.pop().unwrap();
    assert_eq!(end["error_code"], 429, "{end}");
    unfinished.send("v").await;
    assert_eq!(unfinished.answer().await.status, 413, "a record of so many bytes");
    world.stop().await;
}
