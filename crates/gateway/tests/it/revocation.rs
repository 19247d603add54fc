//! Open streams of a login that becomes void: each kind of stream times each way to void a login. The same streams of
//! another user stay open.

use std::time::Duration;

use base64::Engine as _;
use gateway::who::{passwords, tokens};
use serving::rights::{Rights, Role, Topics};
use serving::users::{Token, User, Users};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::creating::topics;
use crate::fixture::{self, PATIENCE, World};
use crate::http::Connection;
use crate::streaming::{Stream, record};

const PASSWORD: &str = "correct horse: battery";

/// The targets of streams that a user may have open.
const STREAMS: [&str; 6] = [
    "/topics/t/events",
    "/topics/t/events?group=GROUP",
    "/ws/topics/t",
    "/ws/v2/consumer/persistent/public/default/t/GROUP?subscriptionType=Shared",
    "/ws/v2/producer/persistent/public/default/t",
    "/v3/clusters/CLUSTER/topics/t/records",
];

/// A file of users with a token each.
struct Book {
    dir: tempfile::TempDir,
    users: Users,
    tokens: Vec<String>,
}

const NAMES: [&str; 5] = ["removed", "lowered", "renewed", "detached", "stays"];

impl Book {
    fn new() -> Book {
        let (mut users, mut made) = (Users::default(), Vec::new());
        for name in NAMES {
            let rights = Rights::of(Role::Admin);
            users.users.insert(
                name.to_owned(),
                User { rights, password: Some(passwords::hash(PASSWORD)) },
            );
            let token = tokens::make();
            users.tokens.insert(tokens::hash(&token), Token { user: name.to_owned(), made_s: 1 });
            made.push(token);
        }
        let book = Book { dir: tempfile::tempdir().unwrap(), users, tokens: made };
        book.write();
        book
    }

    fn file(&self) -> std::path::PathBuf {
        self.dir.path().join("users")
    }

    fn write(&self) {
        let new = self.dir.path().join("users.new");
        std::fs::write(&new, self.users.text()).unwrap();
        std::fs::rename(new, self.file()).unwrap();
    }

    fn token_of(&self, name: &str) -> &str {
        &self.tokens[NAMES.iter().position(|known| *known == name).unwrap()]
    }

    fn bearer(&self, name: &str) -> String {
        format!("authorization: Bearer {}", self.token_of(name))
    }

    /// Makes the logins of all but one user void.
    fn void(&mut self) {
        self.users.users.remove("removed");
        self.users.tokens.retain(|_, token| token.user != "removed");
        let lowered = self.users.users.get_mut("lowered").unwrap();
        lowered.rights =
            Rights { role: Some(Role::Read), topics: Topics::Under(vec!["logs.".to_owned()]) };
        self.users.users.get_mut("renewed").unwrap().password = Some(passwords::hash("another"));
        self.users.tokens.remove(&tokens::hash(self.token_of("detached")));
        self.write();
    }
}

/// Opens a stream; returns it once its head has come.
async fn open(world: &World, cluster: &str, who: (&str, &str), target: &str) -> TcpStream {
    let stream = TcpStream::connect(world.gateway.address()).await.unwrap();
    open_on(stream, world, cluster, who, target).await
}

/// The same on a connection that there is.
async fn open_on(
    mut stream: TcpStream,
    world: &World,
    cluster: &str,
    (name, login): (&str, &str),
    target: &str,
) -> TcpStream {
    let target = target.replace("CLUSTER", cluster).replace("GROUP", &format!("group-{name}"));
    let (method, more) = match target.split('/').nth(1).unwrap() {
        "ws" => (
            "GET",
            "upgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-version: 13\r\n\
             sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
        ),
        "v3" => ("POST", "content-type: application/json\r\ntransfer-encoding: chunked\r\n"),
        _ => ("GET", ""),
    };
    // A cookie counts on requests of pages of the gateway's own.
    let origin = format!("origin: http://{}", world.gateway.address());
    let host = world.gateway.address();
    let head =
        format!("{method} {target} HTTP/1.1\r\nhost: {host}\r\n{origin}\r\n{login}\r\n{more}\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    if method == "POST" {
        let object = r#"{"value":{"type":"STRING","data":"v"}}"#;
        let chunk = format!("{:x}\r\n{object}\r\n", object.len());
        stream.write_all(chunk.as_bytes()).await.unwrap();
    }
    let mut status = [0; 12];
    timeout(PATIENCE, stream.read_exact(&mut status)).await.expect("an answer").unwrap();
    let status = String::from_utf8_lossy(&status[9..]).into_owned();
    assert!(["101", "200"].contains(&&*status), "{name} {target}: {status}");
    stream
}

/// Waits until the gateway closes a stream.
async fn until_closed(mut stream: TcpStream, what: &str) {
    let mut buffer = [0; 16 * 1024];
    let closing = async {
        loop {
            match stream.read(&mut buffer).await {
                Ok(0) | Err(_) => return,
                // The last chunk of an answer, whose request may go on.
                Ok(count) if buffer[..count].ends_with(b"0\r\n\r\n") => return,
                // A WebSocket answers a close (RFC 6455, 5.5.1): a masked one without a body.
                Ok(_) => drop(stream.write_all(&[0x88, 0x80, 0, 0, 0, 0]).await),
            }
        }
    };
    assert!(timeout(PATIENCE, closing).await.is_ok(), "{what} stays open");
}

/// The cookie of a login as a header.
async fn cookie(world: &World, name: &str) -> String {
    let mut connection = world.connect().await;
    let form = format!("name={name}&password=correct+horse%3A+battery");
    let answer = connection.post("/console/login", "application/x-www-form-urlencoded", form).await;
    assert_eq!(answer.status, 303, "{answer:?}");
    let cookie = answer.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    format!("cookie: {cookie}")
}

/// The header of a login by password.
fn basic(name: &str) -> String {
    let pair = base64::engine::general_purpose::STANDARD.encode(format!("{name}:{PASSWORD}"));
    format!("authorization: Basic {pair}")
}

async fn sign_out(world: &World, cookie: &str) {
    let mut connection: Connection = world.connect().await;
    let (_, value) = cookie.split_once(": ").unwrap();
    let origin = format!("http://{}", world.gateway.address());
    let host = world.gateway.address().to_string();
    let headers = [("cookie", value), ("origin", &*origin), ("host", &*host)];
    let answer = connection.ask("POST", "/console/logout", &headers, b"").await;
    assert_eq!(answer.status, 303, "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_a_void_login_are_closed_and_those_of_others_stay() {
    let mut book = Book::new();
    let users_file = Some(book.file());
    let world = World::start_with(|settings| gateway::Settings { users_file, ..settings }).await;
    world.create("t", 1, &[]).await;
    let cluster = world.cluster.metadata().cluster_id.clone().unwrap_or_default();
    let (cookie_out, cookie_in) = (cookie(&world, "stays").await, cookie(&world, "stays").await);
    // A removed token leaves cookies and passwords as they are.
    let mut changed = Vec::new();
    for name in ["removed", "lowered", "renewed"] {
        changed.push((name, "a session", cookie(&world, name).await));
        changed.push((name, "a password", basic(name)));
    }
    let (mut void, mut valid) = (Vec::new(), Vec::new());
    for target in STREAMS {
        for name in NAMES {
            let stream = open(&world, &cluster, (name, &book.bearer(name)), target).await;
            let what = format!("{target} of {name}");
            if name == "stays" { valid.push((stream, what)) } else { void.push((stream, what)) }
        }
        for (name, kind, login) in &changed {
            let stream = open(&world, &cluster, (name, login), target).await;
            void.push((stream, format!("{target} of {name} with {kind}")));
        }
        let out = open(&world, &cluster, ("out", &cookie_out), target).await;
        void.push((out, format!("{target} of a session that is signed out")));
        let other = open(&world, &cluster, ("in", &cookie_in), target).await;
        valid.push((other, format!("{target} of another session")));
    }
    sign_out(&world, &cookie_out).await;
    book.void();
    // No request comes meanwhile: the streams end by themselves.
    for (stream, what) in void {
        until_closed(stream, &what).await;
    }
    for (stream, what) in &valid {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match stream.try_read(&mut buffer) {
                Ok(0) => panic!("{what} was closed"),
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) => panic!("{what}: {error}"),
            }
        }
    }
    drop(valid);
    world.stop().await;
}

/// Connections of HTTP that are open, this one's included.
async fn http_connections(connection: &mut Connection) -> usize {
    let metrics = connection.get("/metrics").await.body;
    let name = "highwater_gateway_connections{kind=\"http\"} ";
    let line = metrics.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("{metrics}")).parse::<f64>().unwrap() as usize
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_records_ends_with_its_login_while_its_client_takes_nothing() {
    let mut book = Book::new();
    let users_file = Some(book.file());
    // No other limit ends the stream while this test waits.
    let (write_timeout, body_timeout) = (60 * PATIENCE, 60 * PATIENCE);
    let world = World::start_with(|settings| gateway::Settings {
        users_file,
        write_timeout,
        body_timeout,
        ..settings
    })
    .await;
    world.create("t", 1, &[]).await;
    let cluster = world.cluster.metadata().cluster_id.clone().unwrap_or_default();
    let login = book.bearer("removed");
    // Answers soon fill the socket's buffers.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(8 * 1024).unwrap();
    let stream = socket.connect(world.gateway.address()).await.unwrap();
    let target = "/v3/clusters/CLUSTER/topics/t/records";
    let mut stream = open_on(stream, &world, &cluster, ("removed", &login), target).await;
    let chunk = "{\"partition_id\":9}".repeat(500);
    let chunk = format!("{:x}\r\n{chunk}\r\n", chunk.len());
    // Every buffer on the way is full when nothing is taken for a while.
    let (mut at, mut idle) = (0, 0);
    while idle < 4 {
        match timeout(Duration::from_secs(1), stream.write(&chunk.as_bytes()[at..])).await {
            Ok(written) => (at, idle) = ((at + written.unwrap()) % chunk.len(), 0),
            Err(_) => idle += 1,
        }
    }
    let mut metrics = world.connect().await;
    assert_eq!(http_connections(&mut metrics).await, 2);
    book.void();
    let ended = async {
        while http_connections(&mut metrics).await != 1 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, ended).await.expect("the stream ends");
    drop(stream);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_record_is_written_of_a_login_that_ends_while_the_topic_is_looked_up() {
    let mut book = Book::new();
    let users_file = Some(book.file());
    let change = |settings| gateway::Settings { users_file, ..settings };
    let (world, gate) = World::start_creating_behind_gate(change).await;
    let cluster = world.cluster.metadata().cluster_id.clone().unwrap();
    let login = book.bearer("removed");
    let target = format!("/v3/clusters/{cluster}/topics/looked-up/records");
    let mut stream = Stream::begin_with(&world, &target, &format!("{login}\r\n")).await;
    let head = stream.head().await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    gate.close();
    stream.send(record("v")).await;
    let held = async {
        while !gate.has_held("looked-up") {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, held).await.expect("the gateway looks the topic up");
    book.void();
    let (name, value) = login.split_once(": ").unwrap();
    let mut connection = world.connect().await;
    let refused = async {
        while connection.ask("GET", "/api/v1/me", &[(name, value)], b"").await.status == 200 {}
    };
    timeout(PATIENCE, refused).await.expect("the login is void");
    gate.open();
    let reports = stream.reports().await;
    assert!(reports.iter().all(|report| report["written"] == "no"), "{reports:?}");
    assert_eq!(topics(&world).await, Vec::<String>::new());
    world.stop().await;
}

/// The status of a request for the users' own page with a cookie, at another gateway, whose name the header `Host` is.
async fn name_by(gateway: &gateway::Gateway, cookie: &str) -> serde_json::Value {
    let mut connection = Connection::open(gateway.address()).await;
    let (name, value) = cookie.split_once(": ").unwrap();
    connection.ask("GET", "/api/v1/me", &[(name, value)], b"").await.json()["user"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sign_out_reaches_gateways_with_the_key_file_and_outlives_a_restart() {
    let book = Book::new();
    let key_file = book.dir.path().join("key");
    let change = |settings| gateway::Settings {
        users_file: Some(book.file()),
        key: Some(gateway::SigningKey::of_file(&key_file).unwrap()),
        ..settings
    };
    let world = World::start_with(change).await;
    world.create("t", 1, &[]).await;
    let another = || fixture::open(change(fixture::settings(&world.broker_address())));
    let other = another();
    let (out, stays) = (cookie(&world, "stays").await, cookie(&world, "stays").await);
    assert_eq!(name_by(&other, &out).await, "stays", "the gateways share the key");
    // A stream at the other gateway, which has no other request.
    let mut stream = TcpStream::connect(other.address()).await.unwrap();
    let head = format!("GET /topics/t/events HTTP/1.1\r\nhost: localhost\r\n{out}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut status = [0; 12];
    timeout(PATIENCE, stream.read_exact(&mut status)).await.expect("an answer").unwrap();
    assert_eq!(&status[9..], b"200");
    sign_out(&world, &out).await;
    until_closed(stream, "the stream at the other gateway").await;
    // It has read the file, or the stream would be open.
    let restarted = another();
    for gateway in [&world.gateway, &other, &restarted] {
        assert_eq!(name_by(gateway, &out).await, serde_json::Value::Null);
        assert_eq!(name_by(gateway, &stays).await, "stays");
    }
    other.stop().await;
    restarted.stop().await;
    world.stop().await;
}

/// The user of a request with this header, at this gateway, and whether it may still administer.
async fn user_by(gateway: &gateway::Gateway, login: &str) -> (serde_json::Value, bool) {
    let mut connection = Connection::open(gateway.address()).await;
    let (name, value) = login.split_once(": ").unwrap();
    let answer = connection.ask("GET", "/api/v1/me", &[(name, value)], b"").await;
    if answer.status != 200 {
        return (serde_json::Value::Null, false);
    }
    let me = answer.json();
    (me["user"].clone(), !me["user"].is_null() && me["role"] == "admin")
}

#[tokio::test(flavor = "multi_thread")]
async fn void_logins_stay_void_at_gateways_that_start_later() {
    let mut book = Book::new();
    let key_file = book.dir.path().join("key");
    let users_file = book.file();
    let change = |settings| gateway::Settings {
        users_file: Some(users_file.clone()),
        key: Some(gateway::SigningKey::of_file(&key_file).unwrap()),
        ..settings
    };
    let world = World::start_with(change).await;
    let mut logins = Vec::new();
    for name in ["removed", "lowered", "renewed", "stays"] {
        for login in [cookie(&world, name).await, basic(name)] {
            assert_eq!(user_by(&world.gateway, &login).await, (name.into(), true), "{login}");
            logins.push((name, login));
        }
    }
    for name in NAMES {
        logins.push((name, book.bearer(name)));
    }
    book.void();
    let restarted = fixture::open(change(fixture::settings(&world.broker_address())));
    for (name, login) in &logins {
        let is_token = login.contains("Bearer");
        let expected = match *name {
            "removed" => (serde_json::Value::Null, false),
            // Tokens have no password, and a token of "detached" is removed.
            "renewed" if is_token => ("renewed".into(), true),
            "renewed" | "detached" => (serde_json::Value::Null, false),
            // A session has the rights with which it began.
            "lowered" if login.starts_with("cookie") => (serde_json::Value::Null, false),
            "lowered" => ("lowered".into(), false),
            name => (name.into(), true),
        };
        assert_eq!(user_by(&restarted, login).await, expected, "{name}: {login}");
    }
    restarted.stop().await;
    world.stop().await;
}
