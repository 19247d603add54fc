//! Who may do what: every route of the router's own table, for every role; and those who say who they are, truly or not.

use std::net::{IpAddr, UdpSocket};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use gateway::request::{TABLE, Verb};
use gateway::who::{passwords, tokens};
use gateway::{Access, Door, Settings, SigningKey};
use serde_json::json;
use serving::rights::{Rights, Role, Topics};
use serving::users::{Token, User, Users};

use crate::fixture::{World, settings};
use crate::http::{Answer, Connection};

/// A user of each role, the weakest first: what it is called, and what it may do at most.
const USERS: [(&str, Role); 4] = [
    ("reader", Role::Read),
    ("producer", Role::Produce),
    ("writer", Role::Write),
    ("boss", Role::Admin),
];
/// Reads `logs.…`, and nothing else.
pub const LIMITED: &str = "limited";
/// Writes to `logs.…` and reads it, and nothing else.
const LIMITED_PRODUCER: &str = "limited-producer";
pub const PASSWORD: &str = "correct horse: battery";
const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json";

/// What each route needs, by its id in the table. A route that is missing here fails the test, and so does one too many.
fn needs(id: &str) -> Option<Role> {
    match id {
        "about" | "livez" | "healthz" | "healthy" | "readyz" | "ready" | "metrics" | "openapi"
        | "openapi.json" | "openapi.v3" | "me" | "loginPage" | "logIn" | "logOut" => None,
        "brokers" | "topics" | "topic" | "partitions" | "partition" | "offsets" | "records"
        | "events" | "clusters" | "cluster" | "distribution" | "eventCounts" | "keyCounts"
        | "createTicket" | "socket" | "socketReader" => Some(Role::Read),
        "produce"
        | "produceRaw"
        | "produceToPartition"
        | "produceRawToPartition"
        | "produceV3"
        | "createInstance"
        | "deleteInstance"
        | "subscribe"
        | "subscription"
        | "unsubscribe"
        | "assign"
        | "assignment"
        | "commit"
        | "committed"
        | "instanceRecords"
        | "seek"
        | "seekToBeginning"
        | "seekToEnd"
        | "socketConsumer"
        | "socketProducer"
        | "ackInGroup" => Some(Role::Produce),
        "createTopic" => Some(Role::Write),
        other => panic!("say here what the route {other} needs"),
    }
}

pub struct People {
    dir: tempfile::TempDir,
    tokens: Vec<(String, String)>,
    users: Users,
}

impl People {
    pub fn new() -> People {
        let mut users = Users::default();
        let mut made = Vec::new();
        let under = Topics::Under(vec!["logs.".to_owned()]);
        let limited = (LIMITED, Rights { role: Some(Role::Read), topics: under.clone() });
        let limited_producer = Rights { role: Some(Role::Produce), topics: under };
        let all = USERS.map(|(name, role)| (name, Rights::of(role)));
        for (name, rights) in all.into_iter().chain([limited, (LIMITED_PRODUCER, limited_producer)])
        {
            let password = (name == "boss").then(|| passwords::hash(PASSWORD));
            users.users.insert(name.to_owned(), User { rights, password });
            let token = tokens::make();
            let entry = Token { user: name.to_owned(), made_s: 1 };
            users.tokens.insert(tokens::hash(&token), entry);
            made.push((name.to_owned(), token));
        }
        let people = People { dir: tempfile::tempdir().unwrap(), tokens: made, users };
        people.write(people.users.text());
        people
    }

    pub fn file(&self) -> std::path::PathBuf {
        self.dir.path().join("users")
    }

    /// As the command does: another file under the same name.
    fn write(&self, text: impl AsRef<[u8]>) {
        let new = self.dir.path().join("users.new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, self.file()).unwrap();
    }

    pub fn bearer(&self, name: &str) -> String {
        let token = &self.tokens.iter().find(|(known, _)| known == name).unwrap().1;
        format!("Bearer {token}")
    }

    pub async fn world(&self) -> World {
        self.world_with(Access::Health).await
    }

    pub async fn world_with(&self, access: Access) -> World {
        let users_file = Some(self.file());
        World::start_with(|settings| Settings { access, users_file, ..settings }).await
    }
}

/// So many logins at once, each with another wrong password, so that none waits for the check of another; their statuses.
pub fn wrong_logins(world: &World, count: usize) -> Vec<tokio::task::JoinHandle<u16>> {
    let address = world.gateway.address();
    let login = |at: usize| async move {
        let mut connection = Connection::open(address).await;
        let said = basic("boss", &format!("{PASSWORD}{at}"));
        connection.ask("GET", "/topics", &[("authorization", &said)], b"").await.status
    };
    (0..count).map(|at| tokio::spawn(login(at))).collect()
}

pub fn basic(name: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{name}:{password}")))
}

/// A request to each row, that makes no sense but for who sends it.
fn target(pattern: &str) -> String {
    let named = |segment: &str| match segment {
        "{partition}" => "0".to_owned(),
        "{topic}" | "{topics}" => "t".to_owned(),
        other if other.starts_with('{') => "x".to_owned(),
        other => other.to_owned(),
    };
    pattern.split('/').map(named).collect::<Vec<_>>().join("/")
}

fn method(verb: Verb) -> &'static str {
    match verb {
        Verb::Get => "GET",
        Verb::Post => "POST",
        Verb::Delete => "DELETE",
    }
}

/// Events are asked for by HEAD, which has the same rules and an end.
async fn ask(world: &World, verb: Verb, pattern: &str, headers: &[(&str, &str)]) -> Answer {
    let method = if pattern.ends_with("/events") { "HEAD" } else { method(verb) };
    let mut connection = world.connect().await;
    connection.ask(method, &target(pattern), headers, b"").await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_is_answered_to_the_roles_that_may_and_to_no_other() {
    let people = People::new();
    let world = people.world().await;
    world.create("t", 1, &[]).await;
    for entry in TABLE {
        let needed = needs(entry.id);
        let nobody = ask(&world, entry.verb, entry.pattern, &[]).await;
        match needed {
            None => assert!(![401, 403].contains(&nobody.status), "{}: {nobody:?}", entry.id),
            Some(_) => {
                assert_eq!(nobody.status, 401, "{}: {nobody:?}", entry.id);
                let asked = nobody.header("www-authenticate").unwrap();
                assert!(asked.starts_with("basic"), "{asked}");
            }
        }
        for (name, role) in USERS {
            let bearer = people.bearer(name);
            let headers = [("authorization", bearer.as_str())];
            let answer = ask(&world, entry.verb, entry.pattern, &headers).await;
            let may = needed.is_none_or(|needed| needed <= role);
            assert_eq!(answer.status == 403, !may, "{} as {name}: {answer:?}", entry.id);
            assert_ne!(answer.status, 401, "{} as {name}: {answer:?}", entry.id);
        }
        // Whoever has a role for some topics has it for no other, and not for groups.
        let bearer = people.bearer(LIMITED);
        let headers = [("authorization", bearer.as_str())];
        let answer = ask(&world, entry.verb, entry.pattern, &headers).await;
        let reads_t = ["records", "events", "socket", "socketReader"].contains(&entry.id);
        let refused = reads_t || needed.is_some_and(|needed| needed > Role::Read);
        assert_eq!(answer.status == 403, refused, "{}: {answer:?}", entry.id);
    }
    // To be sent records as a member of a group takes partitions from others.
    for (name, role) in USERS {
        let bearer = people.bearer(name);
        let mut connection = world.connect().await;
        let headers = [("authorization", bearer.as_str())];
        let member = connection.ask("HEAD", "/topics/t/events?group=g", &headers, b"").await;
        assert_eq!(member.status == 403, role < Role::Produce, "{name}: {member:?}");
    }
    assert_eq!(world.ends("t").await.iter().sum::<i64>(), raws_that_may());
    let bearer = people.bearer("boss");
    let mut connection = world.connect().await;
    let topics = connection.ask("GET", "/topics", &[("authorization", &bearer)], b"").await;
    assert_eq!(topics.json(), json!(["t"]), "nobody has made a topic");
    world.stop().await;
}

/// A pattern may match any topic that ever comes, so whoever may not read all topics can follow none.
#[tokio::test(flavor = "multi_thread")]
async fn a_role_for_some_topics_follows_no_pattern() {
    let people = People::new();
    let world = people.world().await;
    world.create("logs.a", 1, &[]).await;
    let mut connection = world.connect().await;
    let mut post = async |name: &str, target: &str, body: &str| {
        let bearer = people.bearer(name);
        let headers = [("authorization", bearer.as_str()), ("content-type", JSON)];
        connection.ask("POST", target, &headers, body.as_bytes()).await
    };
    let record = post(LIMITED_PRODUCER, "/topics/logs.a", r#"{"records":[{"value":1}]}"#).await;
    assert_eq!(record.status, 200, "{record:?}");
    let (instances, instance) = ("/consumers/g", r#"{"name":"one"}"#);
    assert_eq!(post("producer", instances, instance).await.status, 200);
    let subscription = "/consumers/g/instances/one/subscription";
    for pattern in [r#"{"topic_pattern":"logs\\..*"}"#, r#"{"topic_pattern":".*"}"#] {
        assert_eq!(post("producer", subscription, pattern).await.status, 204);
        for name in [LIMITED, LIMITED_PRODUCER] {
            let refused = post(name, subscription, pattern).await;
            assert_eq!(refused.status, 403, "{name}: {refused:?}");
        }
    }
    assert_eq!(post(LIMITED_PRODUCER, instances, instance).await.status, 403);
    world.stop().await;
}

/// An empty body is a record for these two routes: sent by the three roles that may.
fn raws_that_may() -> i64 {
    2 * USERS.iter().filter(|(_, role)| *role >= Role::Produce).count() as i64
}

#[tokio::test(flavor = "multi_thread")]
async fn without_users_a_listener_for_others_tells_how_to_make_one() {
    let world = World::start_with(|settings| Settings { access: Access::Health, ..settings }).await;
    for entry in TABLE {
        let answer = ask(&world, entry.verb, entry.pattern, &[]).await;
        let Some(needed) = needs(entry.id) else { continue };
        assert_eq!(answer.status, 403, "{}: {answer:?}", entry.id);
        if answer.body.is_empty() {
            continue;
        }
        let command = format!("highwater user add NAME --role {needed}");
        assert!(answer.body.contains(&command), "{}: {answer:?}", entry.id);
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_is_checked_once_a_minute_and_a_wrong_one_each_time() {
    let people = People::new();
    let world = people.world().await;
    let mut connection = world.connect().await;
    let mut status = async |said: &str| {
        connection.ask("GET", "/topics", &[("authorization", said)], b"").await.status
    };
    for _ in 0..200 {
        assert_eq!(status(&basic("boss", PASSWORD)).await, 200);
    }
    for wrong in [
        basic("boss", "correct horse"),
        basic("boss", ""),
        basic("nobody", PASSWORD),
        // Has no password.
        basic("reader", ""),
        basic("", PASSWORD),
        basic("boss", &"x".repeat(2000)),
        "Basic".to_owned(),
        "Basic !!!".to_owned(),
        format!("Basic {}", STANDARD.encode("boss")),
        format!("Basic {}", STANDARD.encode([0xff, b':', 0xff])),
        "Negotiate x".to_owned(),
        "Bearer ".to_owned(),
        "Bearer hwt_".to_owned(),
    ] {
        assert_eq!(status(&wrong).await, 401, "{wrong}");
    }
    // Nobody is told which names there are.
    let refused = async |said: &str| {
        let headers = [("authorization", said)];
        let answer = world.connect().await.ask("GET", "/topics", &headers, b"").await;
        (answer.status, answer.body, answer.headers.len())
    };
    let wrong = refused(&basic("boss", "wrong")).await;
    for unknown in [basic("nobody", "wrong"), basic("reader", "wrong"), basic("", "")] {
        assert_eq!(refused(&unknown).await, wrong, "{unknown}");
    }
    let metrics = world.connect().await.get("/metrics").await.body;
    let accepted = "highwater_gateway_logins_total{result=\"accepted\"} 1\n";
    assert!(metrics.contains(accepted), "{metrics}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_logins_at_once_are_answered_each_and_none_hangs() {
    let people = People::new();
    let world = people.world().await;
    let address = world.gateway.address();
    let all = wrong_logins(&world, 20);
    for one in all {
        let status = one.await.unwrap();
        assert!([401, 429].contains(&status), "{status}");
    }
    // The same credentials together are one check.
    let same = |_| async move {
        let mut connection = Connection::open(address).await;
        let said = basic("boss", PASSWORD);
        connection.ask("GET", "/topics", &[("authorization", &said)], b"").await.status
    };
    let all: Vec<_> = (0..40).map(|at| tokio::spawn(same(at))).collect();
    for one in all {
        assert_eq!(one.await.unwrap(), 200);
    }
    world.stop().await;
}

/// An address of this machine that others reach it at; `None` where it is in no network. Nothing is sent to find out.
fn outward() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    socket.local_addr().ok().map(|own| own.ip()).filter(|own| !own.is_loopback())
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_guesses_from_one_address_keeps_nobody_else_from_logging_in() {
    let Some(outward) = outward() else {
        return println!("this machine is in no network: left out");
    };
    let people = People::new();
    let world = people.world().await;
    let users_file = Some(people.file());
    let bootstrap = world.broker_address();
    let settings = Settings { access: Access::Health, users_file, ..settings(&bootstrap) };
    let gateway = gateway::open(Door::bind("0.0.0.0", 0, false).unwrap(), settings);
    let port = gateway.address().port();
    let asked = |from: IpAddr, said: String| async move {
        let mut connection = Connection::open((from, port).into()).await;
        connection.ask("GET", "/topics", &[("authorization", &said)], b"").await
    };
    let status = |from, said| async move { asked(from, said).await.status };
    let right = || basic("boss", PASSWORD);
    for _ in 0..3 {
        assert_eq!(status(outward, right()).await, 200);
    }
    // One after the other, so that each has its turn; thirty would have theirs in two minutes.
    let mut turned_away = 0;
    for guess in 0..30 {
        let answer = asked(outward, basic("boss", &format!("{guess}"))).await;
        assert!([401, 429].contains(&answer.status), "{answer:?}");
        if answer.status == 429 {
            assert!(answer.body.contains("wrong passwords came from this address"), "{answer:?}");
            turned_away += 1;
        }
    }
    assert!((1..=20).contains(&turned_away), "{turned_away} of thirty");
    // Whoever was known is served on, tokens are, and so are those who come from elsewhere.
    assert_eq!(status(outward, right()).await, 200);
    assert_eq!(status(outward, people.bearer("reader")).await, 200);
    assert_eq!(status(IpAddr::from([127, 0, 0, 1]), basic("boss", "wrong")).await, 401);
    gateway.stop().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_with_one_bit_off_is_nobodys() {
    let people = People::new();
    let world = people.world().await;
    let whole = people.bearer("reader");
    let mut connection = world.connect().await;
    for at in "Bearer ".len()..whole.len() {
        let mut bytes = whole.clone().into_bytes();
        bytes[at] ^= 1;
        let Ok(said) = String::from_utf8(bytes) else { continue };
        let answer = connection.ask("GET", "/topics", &[("authorization", &said)], b"").await;
        assert_eq!(answer.status, 401, "{said}");
    }
    let twice = [("authorization", whole.as_str()), ("authorization", whole.as_str())];
    assert_eq!(connection.ask("GET", "/topics", &twice, b"").await.status, 400);
    world.stop().await;
}

/// Waits until the file was looked at again.
async fn until_status(world: &World, said: &str, status: u16) {
    let looked = async {
        while world
            .connect()
            .await
            .ask("GET", "/topics", &[("authorization", said)], b"")
            .await
            .status
            != status
        {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let looked = tokio::time::timeout(crate::fixture::PATIENCE, looked).await;
    assert!(looked.is_ok(), "the status never was {status}");
}

/// Waits until so many files of users were looked at and could not be used. Who was known before stays so.
async fn until_refused(world: &World, known: &str, count: u64) {
    let line = format!("highwater_gateway_users_reloads_failed_total {count}");
    let looked = async {
        loop {
            let answer =
                world.connect().await.ask("GET", "/topics", &[("authorization", known)], b"").await;
            assert_eq!(answer.status, 200);
            let shown = world.connect().await.get("/metrics").await;
            assert_eq!(shown.status, 200);
            if shown.body.lines().any(|found| found == line) {
                return;
            }
        }
    };
    let looked = tokio::time::timeout(crate::fixture::PATIENCE, looked).await;
    assert!(looked.is_ok(), "{count} files were never counted");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_file_is_read_again_when_it_changes_and_a_broken_one_changes_nothing() {
    let people = People::new();
    let world = people.world().await;
    let (reader, boss) = (people.bearer("reader"), people.bearer("boss"));
    until_status(&world, &reader, 200).await;
    let mut fewer = people.users.clone();
    assert!(fewer.remove("reader"));
    people.write(fewer.text());
    until_status(&world, &reader, 401).await;
    // Cut, then one bit off: the reader that both would have is not let in, and the others are.
    let whole = people.users.text();
    let mut flipped = whole.clone().into_bytes();
    flipped[whole.find("read").unwrap()] ^= 1;
    for (count, broken) in (1..).zip([&whole.as_bytes()[..whole.len() / 2], &flipped, b""]) {
        people.write(broken);
        until_refused(&world, &boss, count).await;
        until_status(&world, &reader, 401).await;
    }
    std::fs::remove_file(people.file()).unwrap();
    until_refused(&world, &boss, 4).await;
    people.write(whole);
    until_status(&world, &reader, 200).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_under_load_are_answered_while_the_file_changes() {
    let people = People::new();
    let world = people.world().await;
    let boss = people.bearer("boss");
    let (address, done) =
        (world.gateway.address(), std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false)));
    let load: Vec<_> = (0..4)
        .map(|_| {
            let (boss, done) = (boss.clone(), done.clone());
            tokio::spawn(async move {
                let mut connection = Connection::open(address).await;
                let mut count = 0;
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    let headers = [("authorization", boss.as_str())];
                    assert_eq!(
                        connection.ask("GET", "/api/v1/gateway/events", &headers, b"").await.status,
                        200
                    );
                    count += 1;
                }
                count
            })
        })
        .collect();
    let reader = people.bearer("reader");
    let mut fewer = people.users.clone();
    fewer.remove("reader");
    for (users, status) in [(&fewer, 401), (&people.users, 200), (&fewer, 401)] {
        people.write(users.text());
        until_status(&world, &reader, status).await;
    }
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    for one in load {
        assert!(one.await.unwrap() > 0);
    }
    world.stop().await;
}

pub async fn log_in(connection: &mut Connection, password: &str, next: &str) -> Answer {
    let escape = |text: &str| text.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
    let form = format!("name=boss&password={}&next={}", escape(password), escape(next));
    connection.post("/console/login", FORM, form).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_is_a_cookie_that_changes_nothing_from_elsewhere() {
    let people = People::new();
    let world = people.world().await;
    world.create("t", 1, &[]).await;
    let mut connection = world.connect().await;
    let refused = log_in(&mut connection, "wrong", "/console").await;
    assert_eq!((refused.status, refused.header("set-cookie")), (401, None));
    assert!(refused.body.contains("role=\"alert\""), "{refused:?}");
    let answer = log_in(&mut connection, PASSWORD, "//evil.example.com").await;
    assert_eq!((answer.status, answer.header("location")), (303, Some("/console")), "{answer:?}");
    let set = answer.header("set-cookie").unwrap();
    assert!(set.ends_with("; HttpOnly; SameSite=Strict"), "{set}");
    let session = set.split(';').next().unwrap().to_owned();
    let me = connection.ask("GET", "/api/v1/me", &[("cookie", &session)], b"").await.json();
    assert_eq!(me, json!({"user": "boss", "role": "admin", "topics": "*", "by": "cookie"}));
    assert_eq!(connection.ask("GET", "/topics", &[("cookie", &session)], b"").await.status, 200);
    for (more, status) in [
        (&[][..], 403),
        (&[("origin", "https://evil.example.com")][..], 403),
        (&[("origin", "null")][..], 403),
        (&[("sec-fetch-site", "cross-site")][..], 403),
        (&[("sec-fetch-site", "same-site")][..], 403),
        (&[("origin", "http://localhost")][..], 200),
        (&[("sec-fetch-site", "same-origin")][..], 200),
    ] {
        let headers: Vec<_> = [("cookie", session.as_str())].iter().chain(more).copied().collect();
        let answer = connection.ask("POST", "/topics/t/raw", &headers, b"v").await;
        assert_eq!(answer.status, status, "{more:?}: {answer:?}");
    }
    assert_eq!(world.ends("t").await, [2]);
    let off = |at: usize| {
        let mut bytes = session.clone().into_bytes();
        bytes[at] ^= 1;
        String::from_utf8(bytes).unwrap()
    };
    for at in "highwater-session=".len()..session.len() {
        let said = off(at);
        if said.contains([';', ',']) {
            continue;
        }
        let answer = connection.ask("GET", "/topics", &[("cookie", &said)], b"").await;
        assert_eq!(answer.status, 401, "{said}");
    }
    let own = [("cookie", session.as_str()), ("origin", "http://localhost")];
    let out = connection.ask("POST", "/console/logout", &own, b"").await;
    assert_eq!((out.status, out.header("location")), (303, Some("/console/login")));
    let after = connection.ask("GET", "/topics", &[("cookie", &session)], b"").await;
    assert_eq!(after.status, 401, "it has ended");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_opens_streams_of_its_topics_and_nothing_else() {
    let people = People::new();
    let world = people.world().await;
    for topic in ["logs.a", "logs.b", "orders"] {
        world.create(topic, 1, &[]).await;
    }
    let mut connection = world.connect().await;
    let limited = people.bearer(LIMITED);
    let headers = [("authorization", limited.as_str()), ("content-type", JSON)];
    for (body, status) in [
        (r#"{"topics":["orders"]}"#, 403),
        (r#"{"topics":["logs.a","orders"]}"#, 403),
        (r#"{"topics":[]}"#, 422),
        (r#"{"topics":["a,b"]}"#, 422),
        (r#"{"topics":"logs.a"}"#, 422),
        ("{", 400),
    ] {
        let answer = connection.ask("POST", "/api/v1/tickets", &headers, body.as_bytes()).await;
        assert_eq!(answer.status, status, "{body}: {answer:?}");
    }
    let body = br#"{"topics":["logs.a"]}"#;
    let ticket = connection.ask("POST", "/api/v1/tickets", &headers, body).await;
    assert_eq!((ticket.status, ticket.header("cache-control")), (200, Some("no-store")));
    let ticket = ticket.json()["ticket"].as_str().unwrap().to_owned();
    let status = async |path: &str, ticket: &str| {
        let mut connection = world.connect().await;
        connection.ask("HEAD", &format!("{path}?ticket={ticket}"), &[], b"").await.status
    };
    assert_eq!(status("/topics/logs.a/events", &ticket).await, 200);
    assert_eq!(
        status("/topics/logs.a/events", &ticket).await,
        200,
        "a browser comes again with it"
    );
    assert_eq!(status("/topics/logs.b/events", &ticket).await, 403);
    assert_eq!(status("/topics/logs.a,logs.b/events", &ticket).await, 403);
    for path in ["/topics", "/topics/logs.a/partitions/0/records", "/brokers"] {
        assert_eq!(status(path, &ticket).await, 401, "{path}");
    }
    for at in 0..ticket.len() {
        let mut bytes = ticket.clone().into_bytes();
        bytes[at] ^= 1;
        let said = String::from_utf8(bytes).unwrap();
        if said.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)) {
            assert_eq!(status("/topics/logs.a/events", &said).await, 401, "{said}");
        }
    }
    // With its user, the ticket is void.
    let mut fewer = people.users.clone();
    fewer.remove(LIMITED);
    people.write(fewer.text());
    until_status(&world, &limited, 401).await;
    assert_eq!(status("/topics/logs.a/events", &ticket).await, 401);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_user_has_is_not_there_for_another() {
    let people = People::new();
    let world = people.world().await;
    world.create("t", 1, &[]).await;
    let mut connection = world.connect().await;
    let (writer, boss) = (people.bearer("writer"), people.bearer("boss"));
    let as_one = |who: &str| [("authorization", who.to_owned()), ("content-type", JSON.to_owned())];
    let mut send =
        async |who: &str, method: &str, target: &str, more: &[(&str, &str)], body: &str| {
            let own = as_one(who);
            let own = own.iter().map(|(name, value)| (*name, value.as_str()));
            let headers: Vec<_> = own.chain(more.iter().copied()).collect();
            connection.ask(method, target, &headers, body.as_bytes()).await
        };
    let made = send(&writer, "POST", "/consumers/g", &[], r#"{"name":"one"}"#).await;
    assert_eq!(made.status, 200, "{made:?}");
    let path = "/consumers/g/instances/one";
    assert_eq!(send(&boss, "GET", &format!("{path}/subscription"), &[], "").await.status, 404);
    assert_eq!(send(&boss, "DELETE", path, &[], "").await.status, 404);
    assert_eq!(send(&writer, "GET", &format!("{path}/subscription"), &[], "").await.status, 200);
    // The same key of two users is two requests.
    let key = [("idempotency-key", "k")];
    assert_eq!(send(&writer, "POST", "/topics/t/raw", &key, "a").await.status, 200);
    assert_eq!(send(&boss, "POST", "/topics/t/raw", &key, "b").await.status, 200);
    let again = send(&writer, "POST", "/topics/t/raw", &key, "a").await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(world.ends("t").await, [2]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everybody_may_what_the_operator_says_although_there_are_users() {
    let people = People::new();
    let world = people.world_with(Access::Read).await;
    world.create("t", 1, &[]).await;
    let mut connection = world.connect().await;
    assert_eq!(connection.get("/topics").await.status, 200);
    assert_eq!(connection.post("/topics/t/raw", "x/y", "v").await.status, 401);
    let wrong = [("authorization", "Bearer hwt_x")];
    assert_eq!(connection.ask("GET", "/topics", &wrong, b"").await.status, 401);
    // A cookie that is void counts as none.
    let void = [("cookie", "highwater-session=x.y; other=1")];
    assert_eq!(connection.ask("GET", "/topics", &void, b"").await.status, 200);
    world.stop().await;
}

#[test]
fn a_key_in_a_file_outlives_a_gateway() {
    let dir = tempfile::tempdir().unwrap();
    assert!(SigningKey::of_file(Path::new("/nowhere/key")).is_err());
    assert!(SigningKey::of_file(&dir.path().join("key")).is_ok());
}
