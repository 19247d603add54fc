//! What is refused, and how.

use serde_json::{Value, json};
use serving::visitors::Doorkeeper;

use gateway::{Access, Settings};

use crate::fixture::World;

const TEXT: &str = "application/vnd.kafka.text.v2+json";

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_cannot_be_used_are_refused_by_what_is_wrong() {
    let world =
        World::start_with(|settings| Settings { request_bytes_max: 1000, ..settings }).await;
    world.create("t", 1, &[]).await;
    let mut connection = world.connect().await;
    for (content_type, body, status) in [
        (TEXT, "{", 400),
        (TEXT, r#"{"records":[{"value":5}]}"#, 422),
        (TEXT, r#"{"records":[]}"#, 422),
        (TEXT, r#"{"records":[{"value":"v","timestamp":-1}]}"#, 422),
        ("application/vnd.kafka.avro.v2+json", "{}", 415),
        ("application/x-ndjson", "\n", 422),
    ] {
        let answer = connection.post("/topics/t", content_type, body).await;
        assert_eq!(
            (answer.status, answer.json()["written"].as_str()),
            (status, Some("no")),
            "{body}"
        );
    }
    // As large as allowed, and one byte more.
    assert_eq!(connection.post("/topics/t/raw", "x/y", [0; 1000]).await.status, 200);
    assert_eq!(connection.post("/topics/t/raw", "x/y", [0; 1001]).await.status, 413);
    assert_eq!(connection.get("/healthz").await.status, 200, "it was read to its end");
    // What would take long to throw away is not waited for.
    let endless =
        "POST /topics/t/raw HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000000\r\n\r\n";
    connection.send(endless).await;
    let answer = connection.answer().await;
    assert_eq!((answer.status, answer.header("connection")), (413, Some("close")));
    assert_eq!(connection.closed().await, "");
    let mut connection = world.connect().await;
    let chunked =
        "POST /topics/t/raw HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n";
    connection
        .send([chunked.as_bytes(), b"3e9\r\n", &[b'x'; 1001], b"\r\n0\r\n\r\n"].concat())
        .await;
    assert_eq!(connection.answer().await.status, 413);
    assert_eq!(world.ends("t").await, [1]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_the_topic_does_not_take_is_refused_and_its_neighbours_are_not() {
    let world = World::start().await;
    world.create("small", 1, &[("max.message.bytes", "1000")]).await;
    let mut connection = world.connect().await;
    let large = "x".repeat(2000);
    let answer = connection.post("/topics/small/raw", "x/y", &large).await;
    assert_eq!((answer.status, &answer.json()["written"]), (413, &json!("no")), "{answer:?}");
    let body = json!({"records": [{"value": "a"}, {"value": large}, {"value": "b"}]}).to_string();
    let answer = connection.post("/topics/small", TEXT, body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let offsets = answer.json()["offsets"].clone();
    assert_eq!((&offsets[0]["offset"], &offsets[2]["offset"]), (&json!(0), &json!(1)));
    assert_eq!((&offsets[1]["error_code"], &offsets[1]["written"]), (&json!(413), &json!("no")));
    world.create("compacted", 1, &[("cleanup.policy", "compact")]).await;
    let keyless = connection.post("/topics/compacted/raw", "x/y", "v").await;
    assert_eq!((keyless.status, &keyless.json()["written"]), (422, &json!("no")), "{keyless:?}");
    // More of them than brokers have words for.
    let records = |count: i64, wrong: Value| {
        let right = json!({"key": "k", "value": "v", "timestamp": 1_700_000_000_000_i64});
        let of = |at| if at % 2 == 0 { right.clone() } else { wrong.clone() };
        json!({"records": (0..count).map(of).collect::<Vec<_>>()}).to_string()
    };
    let keyless = json!({"value": "v"});
    let too_late = json!({"key": "k", "value": "v", "timestamp": i64::MAX});
    world.create("timed", 1, &[]).await;
    for (topic, wrong) in [("compacted", keyless), ("timed", too_late)] {
        let body = records(101, wrong);
        let path = format!("/topics/{topic}");
        for (round, key) in [None, Some("k")].into_iter().enumerate() {
            let key = key.map(|key| ("idempotency-key", key));
            let headers: Vec<_> = [("content-type", TEXT)].into_iter().chain(key).collect();
            let answer = connection.ask("POST", &path, &headers, body.as_bytes()).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            let offsets = answer.json()["offsets"].as_array().unwrap().clone();
            for (at, offset) in (0..).zip(&offsets) {
                let expected = match at % 2 {
                    0 => (json!(51 * round + at / 2), Value::Null),
                    _ => (Value::Null, json!(422)),
                };
                assert_eq!((&offset["offset"], &offset["error_code"]), (&expected.0, &expected.1));
            }
        }
        assert_eq!(world.ends(topic).await, [102]);
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_broker_records_wait_until_the_buffer_is_full_and_are_given_up_in_the_end() {
    // Half of it is for records.
    let world = World::start_with(|settings| Settings { memory_bytes: 8 << 20, ..settings }).await;
    world.create("t", 1, &[]).await;
    let mut connection = world.connect().await;
    assert_eq!(connection.post("/topics/t/raw", "x/y", "v").await.status, 200);
    let gateway = world.stop_broker().await;
    // The gateway may not have heard of it yet: what it sends then is lost on the way.
    let mut lost = connection.post("/topics/t/raw", "x/y", "v").await;
    if lost.status == 504 {
        assert_eq!(lost.json()["written"], "unknown");
        lost = connection.post("/topics/t/raw", "x/y", "v").await;
    }
    assert_eq!((lost.status, &lost.json()["written"]), (503, &json!("no")), "{lost:?}");
    assert_eq!(lost.header("retry-after"), Some("1"));
    let value = vec![b'x'; 1_000_000];
    let mut answers = Vec::new();
    while answers.last() != Some(&429) {
        let answer = connection.post("/topics/t/raw?async=true", "x/y", &value).await;
        assert!(answer.status == 204 || answer.header("retry-after") == Some("1"), "{answer:?}");
        answers.push(answer.status);
        assert!(answers.len() < 100, "nothing fills the buffer");
    }
    // Behind a record for which there is no room none is taken, small as it may be.
    let records = json!({"records": [{"value": "x".repeat(1_000_000)}, {"value": "b"}]});
    let answer = connection.post("/topics/t", TEXT, records.to_string()).await;
    let told =
        (answer.status, answer.json()["error_code"].clone(), answer.json()["written"].clone());
    assert_eq!(told, (429, json!(429), json!("no")));
    drop(gateway);
}

fn keeper() -> Doorkeeper {
    Doorkeeper::new(None, ["https://app.example.org"])
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_strangers_are_refused_and_listed_ones_may_read_the_answer() {
    let world = World::start_with(|settings| Settings { doorkeeper: keeper(), ..settings }).await;
    world.create("t", 1, &[]).await;
    let mut connection = world.connect().await;
    let post = async |connection: &mut crate::http::Connection, headers: &[(&str, &str)]| {
        connection.ask("POST", "/topics/t/raw", headers, b"v").await
    };
    for headers in [
        &[("origin", "https://evil.example.com")][..],
        &[("origin", "null")],
        &[("sec-fetch-site", "cross-site")],
        &[("host", "evil.example.com:8082")],
        &[("host", "attacker:8082"), ("origin", "http://attacker:8082")],
    ] {
        let answer = post(&mut connection, headers).await;
        assert_eq!(
            (answer.status, &answer.json()["error_code"]),
            (403, &json!(403)),
            "{headers:?}"
        );
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
    let rebound = connection.ask("GET", "/readyz", &[("host", "evil.example.com")], b"").await;
    assert_eq!(rebound.status, 403);
    let absolute = connection.ask("GET", "http://evil.example.com/readyz", &[], b"").await;
    assert_eq!(absolute.status, 403, "the target's own host counts");
    assert_eq!(world.ends("t").await, [0]);
    let origin = ("origin", "https://app.example.org");
    let answer = post(&mut connection, &[origin]).await;
    let allowed = answer.header("access-control-allow-origin");
    assert_eq!((answer.status, allowed), (200, Some("https://app.example.org")));
    let wanted = ("access-control-request-headers", "content-type,x-key");
    let preflight = connection.ask("OPTIONS", "/topics/t", &[origin, wanted], b"").await;
    assert_eq!(preflight.status, 204);
    assert_eq!(preflight.header("access-control-allow-headers"), Some(wanted.1));
    let stranger = [("origin", "https://evil.example.com")];
    assert_eq!(connection.ask("OPTIONS", "/topics/t", &stranger, b"").await.status, 403);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_varies_with_the_origin_and_a_listed_page_may_read_each_header_of_ours() {
    // Headers that any page may read (Fetch), that no page reads (RFC 9110, of the connection), or that are about CORS.
    let known = [
        "cache-control",
        "content-length",
        "content-type",
        "connection",
        "date",
        "vary",
        "x-content-type-options",
    ];
    let world = World::start_with(|settings| Settings { doorkeeper: keeper(), ..settings }).await;
    world.create("t", 1, &[]).await;
    world.fill("t", 0, ["v".to_owned()]).await;
    let mut connection = world.connect().await;
    let records = "/topics/t/partitions/0/records?offset=0";
    let keyed = [("idempotency-key", "k"), ("content-type", "text/plain")];
    for (method, target, headers) in [
        ("GET", records, &[][..]),
        ("GET", "/topics/absent", &[]),
        ("PUT", "/topics/t/raw", &[]),
        ("POST", "/topics/t/raw?timing=1", &[]),
        ("POST", "/topics/t/raw", &keyed),
        ("POST", "/topics/t/raw", &keyed),
    ] {
        for origin in [None, Some("https://evil.example.com"), Some("https://app.example.org")] {
            if method != "GET" && origin == Some("https://evil.example.com") {
                continue;
            }
            let mut headers = headers.to_vec();
            headers.extend(origin.map(|origin| ("origin", origin)));
            let answer = connection.ask(method, target, &headers, b"v").await;
            assert_eq!(answer.header("vary"), Some("origin"), "{target} {origin:?}: {answer:?}");
            assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{answer:?}");
            let exposed = answer.header("access-control-expose-headers");
            if origin != Some("https://app.example.org") {
                assert_eq!(exposed, None, "{answer:?}");
                continue;
            }
            let exposed = exposed.unwrap_or_default();
            let others = answer.headers.iter().map(|(name, _)| name.as_str());
            for name in
                others.filter(|name| !known.contains(name) && !name.starts_with("access-control-"))
            {
                assert!(
                    exposed.split(", ").any(|one| one == name),
                    "{name} is not among {exposed}"
                );
            }
        }
    }
    for name in ["x-next-offset", "x-high-watermark"] {
        assert!(connection.get(records).await.header(name).is_some(), "{name}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn others_than_this_machine_may_do_what_the_operator_says() {
    for (access, reads, produces) in
        [(Access::Health, 403, 403), (Access::Read, 200, 403), (Access::Produce, 200, 200)]
    {
        let world = World::start_with(|settings| Settings { access, ..settings }).await;
        world.create("t", 1, &[]).await;
        let mut connection = world.connect().await;
        assert_eq!(connection.get("/healthz").await.status, 200);
        let read = connection.get("/api/v1/gateway/distribution?topic=t").await;
        assert_eq!(read.status, reads, "{access:?}");
        let produced = connection.post("/topics/t/raw", "x/y", "v").await;
        assert_eq!(produced.status, produces, "{access:?}");
        if produces == 403 {
            assert!(produced.body.contains("gateway.anonymous=produce"), "{produced:?}");
        }
        world.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_has_the_type_that_errors_have_where_it_is_asked() {
    const OF_PROXIES: &str = "application/vnd.kafka.v2+json";
    const JSON: &str = "application/json";
    let world = World::start().await;
    let mut connection = world.connect().await;
    for (method, path, status, content_type) in [
        ("GET", "/topics/none", 404, OF_PROXIES),
        ("GET", "/topics/none/partitions/x/records", 404, OF_PROXIES),
        ("GET", "/topics/none/events?offset=x", 400, OF_PROXIES),
        ("DELETE", "/topics/none", 405, OF_PROXIES),
        ("GET", "/consumers/g/instances/none/records", 404, OF_PROXIES),
        ("POST", "/admin/topics", 400, OF_PROXIES),
        ("GET", "/nowhere", 404, OF_PROXIES),
        ("GET", "/v3/clusters/none", 404, JSON),
        ("GET", "/v3/nowhere", 404, JSON),
        ("GET", "/api/v1/nowhere", 404, JSON),
        ("GET", "/ws/topics/t", 426, JSON),
        ("GET", "/ws/nowhere", 404, JSON),
    ] {
        let answer = connection.ask(method, path, &[], b"").await;
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (status, Some(content_type)),
            "{path}: {answer:?}"
        );
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_says_neither_yes_nor_no_writes_nothing() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let mut connection = world.connect().await;
    for (query, status) in
        [("async=flase", 422), ("timing=2", 422), ("timestamp=-5", 422), ("async=false", 200)]
    {
        let answer = connection.post(&format!("/topics/t/raw?{query}"), "x/y", "v").await;
        assert_eq!(answer.status, status, "{query}: {answer:?}");
    }
    assert_eq!(world.ends("t").await, [1]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_and_methods_that_are_not_there_are_told() {
    let world = World::start().await;
    let mut connection = world.connect().await;
    let missing = connection.get("/nowhere").await;
    assert_eq!((missing.status, &missing.json()["error_code"]), (404, &json!(404)));
    let method = connection.get("/topics/t/raw").await;
    assert_eq!((method.status, method.header("allow")), (405, Some("post, options")));
    assert_eq!(connection.get("/").await.json()["name"], "highwater gateway");
    let head = connection.ask("HEAD", "/nowhere", &[], b"").await;
    assert_eq!(head.status, 404);
    world.stop().await;
}
