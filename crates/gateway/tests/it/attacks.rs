//! Attacks from outside, each as it would be sent: heads, bodies, logins, requests without leave.

use std::time::Duration;

use client::Admin;
use gateway::{Access, Settings};
use serving::visitors::Doorkeeper;

use crate::fixture::{PATIENCE, World, nowhere, open, settings};
use crate::http::{Connection, request};
use crate::who::{People, wrong_logins};

const JSON: &str = "application/json";
const V2: &str = "application/vnd.kafka.v2+json";

#[tokio::test(flavor = "multi_thread")]
async fn a_head_has_sixteen_kib_and_no_more_is_kept_of_a_longer_one() {
    let gateway = open(settings(&nowhere().to_string()));
    let head = |bytes: usize| {
        let begin = "GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: ";
        format!("{begin}{}\r\n\r\n", "a".repeat(bytes - begin.len() - 4))
    };
    let mut connection = Connection::open(gateway.address()).await;
    connection.send(head(15 * 1024)).await;
    assert_eq!(connection.answer().await.status, 200);
    // Just too long, so that all of it is taken before the answer, and a megabyte of which most never is.
    let mut connection = Connection::open(gateway.address()).await;
    connection.send(&head(17 * 1024)[..16 * 1024 + 1]).await;
    let said = connection.closed().await;
    assert!(said.starts_with("HTTP/1.1 431"), "{said}");
    let mut connection = Connection::open(gateway.address()).await;
    connection.send(head(1 << 20)).await;
    let said = connection.closed().await;
    assert!(said.is_empty() || said.starts_with("HTTP/1.1 431"), "{said}");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_drips_is_cut_off_however_steadily_it_drips() {
    let head_timeout = Duration::from_millis(100);
    let gateway = open(Settings { head_timeout, ..settings(&nowhere().to_string()) });
    let mut connection = Connection::open(gateway.address()).await;
    connection.send("GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: ").await;
    // Each byte comes long before the time is over.
    let dripping = async {
        while !connection.is_closed_within(Duration::from_millis(5)).await {
            connection.send("a").await;
        }
    };
    tokio::time::timeout(PATIENCE, dripping).await.expect("closed while it drips");
    gateway.stop().await;
}

/// Bytes that bodies hold, as the gateway counts them.
async fn held(world: &World) -> f64 {
    let told = world.connect().await.get("/metrics").await.body;
    let line = told.lines().find(|line| line.contains("buffer_bytes{for=\"bodies\"}")).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_bodies_hold_what_has_come_of_them_and_others_are_told_to_come_again() {
    // Half a megabyte for bodies.
    let world = World::start_with(|settings| Settings { memory_bytes: 1 << 20, ..settings }).await;
    world.create("t", 1, &[]).await;
    let body = vec![b'v'; 70_000];
    let whole = request("POST", "/topics/t/raw", &[], &body);
    let mut slow = Vec::new();
    for _ in 0..7 {
        let mut connection = world.connect().await;
        connection.send(&whole[..whole.len() - 1]).await;
        slow.push(connection);
    }
    let arrived = async { while held(&world).await < 7.0 * 69_999.0 {} };
    tokio::time::timeout(PATIENCE, arrived).await.expect("all but the last bytes");
    let refused = world.connect().await.ask("POST", "/topics/t/raw", &[], &body).await;
    assert_eq!(refused.status, 429, "{refused:?}");
    assert_eq!(
        (&refused.json()["written"], &refused.json()["retriable"]),
        (&"no".into(), &true.into())
    );
    for connection in &mut slow {
        connection.send("v").await;
        assert_eq!(connection.answer().await.status, 200);
    }
    let given_back = async { while held(&world).await > 0.0 {} };
    tokio::time::timeout(PATIENCE, given_back).await.expect("nothing is held");
    let again = world.connect().await.ask("POST", "/topics/t/raw", &[], &body).await;
    assert_eq!(again.status, 200, "{again:?}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_logins_are_limited_and_tokens_go_on_beside_them() {
    let people = People::new();
    let world = people.world().await;
    let all = wrong_logins(&world, 100);
    let token = people.bearer("reader");
    let mut connection = world.connect().await;
    let mut served = 0;
    while !all.iter().all(|one| one.is_finished()) {
        let answer = connection.ask("GET", "/topics", &[("authorization", &token)], b"").await;
        assert_eq!(answer.status, 200, "{answer:?}");
        served += 1;
    }
    assert!(served > 0);
    let mut statuses = Vec::new();
    for one in all {
        statuses.push(one.await.unwrap());
    }
    assert!(statuses.iter().all(|status| [401, 429].contains(status)), "{statuses:?}");
    // Two at once and sixteen that wait: a hundred come quicker than they are checked.
    assert!(statuses.contains(&401) && statuses.contains(&429), "{statuses:?}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_listed_page_may_read_it_reads_without_credentials() {
    let origin = "https://app.example.org";
    let world = World::start_with(|settings| Settings {
        doorkeeper: Doorkeeper::new(None, [origin]),
        ..settings
    })
    .await;
    world.create("t", 1, &[]).await;
    let wanted = ("access-control-request-method", "POST");
    for (method, target) in [
        ("GET", "/topics"),
        ("POST", "/topics/t/raw"),
        ("OPTIONS", "/topics/t/raw"),
        ("HEAD", "/topics/t/events"),
    ] {
        for (page, may) in [(origin, true), ("https://evil.example.com", false), ("null", false)] {
            let headers = [("origin", page), ("cookie", "highwater-session=x.y"), wanted];
            let answer = world.connect().await.ask(method, target, &headers, b"v").await;
            let allowed = answer.header("access-control-allow-origin");
            assert_eq!(allowed, may.then_some(page), "{method} {target} from {page}: {answer:?}");
            assert_eq!(
                answer.header("access-control-allow-credentials"),
                None,
                "{method} {target}"
            );
        }
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_way_to_write_a_length_twice_hides_a_request() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    world.create("victim", 1, &[]).await;
    let smuggled = String::from_utf8(request("POST", "/topics/victim/raw", &[], b"v")).unwrap();
    for lengths in [
        "transfer-encoding: chunked, identity\r\ncontent-length: 5\r\n",
        "transfer-encoding: chunked, identity\r\n",
        "transfer-encoding : chunked\r\ncontent-length: 5\r\n",
        "content-length: 5\r\ntransfer-encoding\t: chunked\r\n",
        "content-length : 5\r\n",
        "transfer-encoding: xchunked\r\ncontent-length: 5\r\n",
        "transfer-encoding:\x0bchunked\r\ncontent-length: 5\r\n",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
        "content-length: +5\r\n",
        "content-length: 0x5\r\n",
    ] {
        let mut connection = world.connect().await;
        let head = format!("POST /topics/t/raw HTTP/1.1\r\nhost: localhost\r\n{lengths}\r\n");
        connection.send(format!("{head}1\r\na\r\n0\r\n\r\n{smuggled}")).await;
        let said = connection.closed().await;
        assert!(said.matches("HTTP/1.1 ").count() <= 1, "{lengths:?}: {said}");
        assert_eq!(world.ends("victim").await, [0], "{lengths:?}");
    }
    world.stop().await;
}

/// What the cluster has: topics, where they end, groups and what they have committed.
async fn state(world: &World) -> String {
    let admin = Admin::new(world.cluster.clone());
    let mut topics: Vec<_> = admin
        .describe_all()
        .await
        .unwrap()
        .topics
        .into_keys()
        .filter(|name| !name.starts_with("__"))
        .collect();
    topics.sort();
    let groups: Vec<_> =
        admin.list_groups().await.unwrap().into_iter().map(|group| group.group_id).collect();
    let committed = admin.group_offsets("g").await.unwrap();
    format!("{topics:?} {:?} {groups:?} {committed:?}", world.ends("t").await)
}

/// Requests that change something, each valid: a user with the role for it would have it carried out.
fn changes() -> Vec<(&'static str, &'static str, &'static str, &'static str)> {
    let instance = "/consumers/g/instances/i";
    let cluster = "/v3/clusters/x/topics/t/records";
    let offsets = r#"{"offsets":[{"topic":"t","partition":0,"offset":1}]}"#;
    let partitions = r#"{"partitions":[{"topic":"t","partition":0}]}"#;
    let mut all = vec![
        ("POST", "/topics/t/raw", "text/plain", "v"),
        ("POST", "/topics/t/raw?async=true", "text/plain", "v"),
        ("POST", "/topics/t/partitions/0/raw", "text/plain", "v"),
        ("POST", "/topics/t", "application/vnd.kafka.json.v2+json", r#"{"records":[{"value":1}]}"#),
        (
            "POST",
            "/topics/t/partitions/0",
            "application/vnd.kafka.json.v2+json",
            r#"{"records":[{"value":1}]}"#,
        ),
        ("POST", "/topics/t", "application/x-ndjson", "{\"value\":1}\n"),
        ("POST", cluster, JSON, r#"{"value":{"type":"JSON","data":1}}"#),
        ("POST", "/admin/topics", JSON, r#"{"topic_name":"new"}"#),
        ("POST", "/consumers/g", V2, r#"{"name":"j","format":"text"}"#),
        ("POST", "/groups/g/ack", JSON, r#"{"id":"t/0@1.0.00000000"}"#),
        ("HEAD", "/topics/t/events?group=h&ack=sent", "", ""),
        ("GET", "/topics/t/events?group=h&ack=sent", "", ""),
        ("GET", "/consumers/g/instances/i/records", "", ""),
        ("DELETE", instance, "", ""),
        ("DELETE", "/consumers/g/instances/i/subscription", "", ""),
    ];
    for (path, body) in [
        ("/consumers/g/instances/i/subscription", r#"{"topics":["t"]}"#),
        ("/consumers/g/instances/i/assignments", partitions),
        ("/consumers/g/instances/i/offsets", offsets),
        ("/consumers/g/instances/i/positions", offsets),
        ("/consumers/g/instances/i/positions/beginning", partitions),
        ("/consumers/g/instances/i/positions/end", partitions),
    ] {
        all.push(("POST", path, V2, body));
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_without_the_role_changes_anything() {
    let people = People::new();
    let world = people.world_with(Access::Health).await;
    world.create("t", 1, &[]).await;
    world.fill("t", 0, ["a".to_owned(), "b".to_owned()]).await;
    let boss = people.bearer("boss");
    let as_boss = [("authorization", boss.as_str()), ("content-type", V2)];
    let mut connection = world.connect().await;
    let body = br#"{"name":"i","format":"text","auto.offset.reset":"earliest"}"#;
    assert_eq!(connection.ask("POST", "/consumers/g", &as_boss, body).await.status, 200);
    let body = br#"{"partitions":[{"topic":"t","partition":0}]}"#;
    let path = "/consumers/g/instances/i";
    let assigned = connection.ask("POST", &format!("{path}/assignments"), &as_boss, body).await;
    assert_eq!(assigned.status, 204, "{assigned:?}");
    let body = br#"{"offsets":[{"topic":"t","partition":0,"offset":0}]}"#;
    let committed = connection.ask("POST", &format!("{path}/offsets"), &as_boss, body).await;
    assert!([200, 204].contains(&committed.status), "{committed:?}");
    let before = state(&world).await;
    assert!(before.contains("[\"t\"] [2] [\"g\"]"), "{before}");
    let reader = people.bearer("reader");
    let limited = people.bearer(crate::who::LIMITED);
    for (method, target, content_type, body) in changes() {
        for (said, status) in [
            (None, 401),
            (Some("Bearer hwt_x"), 401),
            (Some(&*reader), 403),
            (Some(&*limited), 403),
        ] {
            let mut headers = vec![("content-type", content_type)];
            headers.extend(said.map(|said| ("authorization", said)));
            let answer = world.connect().await.ask(method, target, &headers, body.as_bytes()).await;
            assert_eq!(answer.status, status, "{method} {target} as {said:?}: {answer:?}");
        }
    }
    assert_eq!(state(&world).await, before);
    // The instance is where it was, and its user's still.
    let read =
        connection.ask("GET", &format!("{path}/records?timeout=10000"), &as_boss[..1], b"").await;
    assert!(read.body.contains("\"a\"") && read.body.contains("\"b\""), "{read:?}");
    world.stop().await;
}
