//! Users as people make them: the commands, the file, and a gateway that follows it; where a broker shows its metrics.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long a gateway may take to look at the cluster again, on a machine that is busy with much else.
const LOOK: Duration = Duration::from_secs(60);
const HIGHWATER: &str = env!("CARGO_BIN_EXE_highwater");

/// Waits until something is served: what gateway and console know of topics is a little old.
fn known(gateway: &str, path: &str, headers: &str) {
    let deadline = Instant::now() + LOOK;
    while status(gateway, path, headers) == 404 && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(status(gateway, path, headers), 200, "{path}");
}

fn user(file: &Path, arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(HIGHWATER);
    command.arg("user").args(arguments).env("HIGHWATER_GATEWAY_USERS_FILE", file);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // One that reads nothing may be gone already.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

/// What a command that must succeed wrote.
fn said(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn refused(output: Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// A broker with a gateway beside it.
struct Broker {
    process: Child,
    lines: Vec<String>,
}

impl Broker {
    fn start(data: &Path, settings: &[&str]) -> Broker {
        let mut command = Command::new(HIGHWATER);
        command.args(["--log-level", "warn", "start", "--data-dir"]).arg(data);
        let always = ["listeners=PLAINTEXT://127.0.0.1:0", "gateway.listener=127.0.0.1:0"];
        for setting in always.iter().chain(settings) {
            command.args(["--set", setting]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().unwrap();
        let mut out = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut lines = Vec::new();
        while !lines.iter().any(|line: &String| line.starts_with("gateway: ")) {
            lines.push(out.next().expect("it says where its gateway is").unwrap());
        }
        thread::spawn(move || out.count());
        Broker { process, lines }
    }

    /// `host:port` behind this word.
    fn at(&self, word: &str) -> String {
        let begin = format!("{word}: http://");
        let line = self.lines.iter().find_map(|line| line.strip_prefix(&begin)).unwrap();
        line.split(['/', ' ']).next().unwrap().to_owned()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The head and body of the answer to a form.
fn post(address: &str, path: &str, header: &str, form: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\n{header}content-type: application/x-www-form-urlencoded\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{form}",
        form.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut read = String::new();
    stream.read_to_string(&mut read).unwrap();
    read
}

/// What a page of the console has in its hidden field of this name.
fn hidden(page: &str, name: &str) -> String {
    let begin = format!("name=\"{name}\" value=\"");
    let at = page.find(&begin).unwrap_or_else(|| panic!("no {name}: {page}")) + begin.len();
    page[at..].split('"').next().unwrap().to_owned()
}

/// The status of a request.
fn status(address: &str, path: &str, header: &str) -> u16 {
    let read = get(address, path, header);
    read.split(' ').nth(1).unwrap_or_else(|| panic!("{read:?}")).parse().unwrap()
}

/// The answer to a request.
fn get(address: &str, path: &str, header: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{header}connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut read = String::new();
    stream.read_to_string(&mut read).unwrap();
    read
}

#[test]
fn a_user_that_is_made_is_let_in_and_one_that_is_removed_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users");
    assert!(refused(user(&file, &["list"], "")).contains("highwater user add"));
    let made = said(user(&file, &["add", "alice", "--role", "admin"], ""));
    let password = made.lines().nth(1).unwrap().strip_prefix("password: ").unwrap().to_owned();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    said(user(
        &file,
        &["add", "bob", "--role", "read", "--topics", "a.,b.", "--password-file", "-"],
        "secret\n",
    ));
    let token = said(user(&file, &["token", "bob"], ""));
    let bearer = format!("authorization: Bearer {}\r\n", token.trim());
    for (arguments, words) in [
        (&["add", "alice", "--role", "read"][..], "--replace"),
        (&["add", "a b", "--role", "read"][..], "letters"),
        (&["add", "c", "--role", "root"][..], "admin"),
        (&["add", "c", "--role", "read", "--topics", "a,,b"][..], "prefixes"),
        (&["add", "c", "--role", "read", "--password-file", "-"][..], "first line"),
        (&["token", "nobody"][..], "no user"),
        (&["remove", "nobody"][..], "no user"),
        (&["remove", "bob", "--token", ""][..], "no token"),
    ] {
        let told = refused(user(&file, arguments, "\n"));
        assert!(told.contains(words), "{arguments:?}: {told}");
    }
    let list = said(user(&file, &["list", "--format", "json"], ""));
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    assert_eq!((&list[1]["user"], &list[1]["topics"]), (&"bob".into(), &"a.,b.".into()));
    assert!(!fs::read_to_string(&file).unwrap().contains(token.trim()));

    let setting = format!("gateway.users.file={}", file.display());
    let key = format!("console.key.file={}", folder.path().join("key").display());
    let broker = Broker::start(&folder.path().join("data"), &[&setting, &key, "http.listener="]);
    let gateway = broker.at("gateway");
    assert_eq!(status(&gateway, "/healthz", ""), 200);
    assert_eq!(status(&gateway, "/topics", ""), 401);
    assert_eq!(status(&gateway, "/console/topics", "accept: text/html\r\n"), 303);
    assert_eq!(status(&gateway, "/console/login", "accept: text/html\r\n"), 200);
    assert_eq!(status(&gateway, "/console/assets/console.css", ""), 200);
    assert_eq!(status(&gateway, "/topics", &bearer), 200);
    use base64::Engine;
    let basic = base64::engine::general_purpose::STANDARD.encode(format!("alice:{password}"));
    assert_eq!(status(&gateway, "/topics", &format!("authorization: Basic {basic}\r\n")), 200);
    said(user(&file, &["remove", "bob"], ""));
    let deadline = Instant::now() + Duration::from_secs(30);
    while status(&gateway, "/topics", &bearer) != 401 {
        assert!(Instant::now() < deadline, "a user that was removed is still let in");
        thread::sleep(Duration::from_millis(50));
    }
    drop(broker);
    // A file that is broken when the gateway starts is told, and so is one that is missing.
    let whole = fs::read(&file).unwrap();
    for broken in [Some(&whole[..whole.len() - 2]), None] {
        match broken {
            Some(bytes) => fs::write(&file, bytes).unwrap(),
            None => fs::remove_file(&file).unwrap(),
        }
        let command =
            ["start", "--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", "http.listener="];
        let mut start = Command::new(HIGHWATER);
        start.args(command).args(["--set", "gateway.listener=127.0.0.1:0", "--set", &setting]);
        let told =
            refused(start.arg("--data-dir").arg(folder.path().join("data")).output().unwrap());
        assert!(
            told.contains("gateway.users.file") && told.contains("highwater user add"),
            "{told}"
        );
    }
}

#[test]
fn metrics_are_on_this_machine_and_where_they_are_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let also = format!("metrics.listener={free}");
    // The default port, which may be anybody's: it moves then.
    let broker = Broker::start(&folder.path().join("data"), &[&also]);
    let http = broker.at("http");
    assert!(http.starts_with("127.0.0.1:"), "{http}");
    for address in [&http, &free.to_string()] {
        for path in ["/metrics", "/livez", "/healthz", "/readyz"] {
            assert_eq!(status(address, path, ""), 200, "{address}{path}");
        }
        for path in ["/console", "/topics", "/api/v1/me"] {
            assert_eq!(status(address, path, ""), 404, "{address}{path}");
        }
    }
    let other = tempfile::tempdir().unwrap();
    let second = Broker::start(&other.path().join("data"), &[]);
    assert_ne!(second.at("http"), http, "the port is taken, and was not named");
    let mut third = Command::new(HIGHWATER);
    third.args([
        "start",
        "--set",
        "listeners=PLAINTEXT://127.0.0.1:0",
        "--set",
        "gateway.listener=",
    ]);
    third.args(["--set", "http.listener=", "--set", &also, "--data-dir"]);
    let told = refused(third.arg(other.path().join("third")).output().unwrap());
    assert!(told.contains(&free.to_string()), "{told}");
}

#[test]
fn the_console_acts_for_users_with_the_role_and_writes_down_who_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users");
    for (name, role, topics) in [("boss", "admin", "*"), ("reader", "read", "logs.")] {
        let arguments = ["add", name, "--role", role, "--topics", topics];
        said(user(&file, &arguments, ""));
    }
    let bearer = |name: &str| {
        let token = said(user(&file, &["token", name], ""));
        format!("authorization: Bearer {}\r\n", token.trim())
    };
    let (boss, reader) = (bearer("boss"), bearer("reader"));
    let users = format!("gateway.users.file={}", file.display());
    // Other machines come in, too.
    let settings = [&users, "gateway.listener=0.0.0.0:0", "console.write=true", "http.listener="];
    let broker = Broker::start(&folder.path().join("data"), &settings);
    let port = broker.at("gateway").rsplit(':').next().unwrap().to_owned();
    let gateway = format!("127.0.0.1:{port}");
    let form = "topic=secret&partitions=1&replicas=1";
    let create = "/console/do/create-topic";
    let of_stranger = format!("{boss}origin: https://evil.example.com\r\n");
    for (header, status) in [("", "401"), (&*reader, "403"), (&*of_stranger, "403")] {
        let answer = post(&gateway, create, header, form);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
    }
    let review = post(&gateway, create, &boss, form);
    let token = hidden(&review, "token");
    let run = format!("{form}&token={token}&step=run");
    let of_another = post(&gateway, create, &reader, &run);
    assert!(of_another.starts_with("HTTP/1.1 403"), "{of_another}");
    assert_eq!(status(&gateway, "/topics/secret", &boss), 404, "nothing was done so far");
    let done = post(&gateway, create, &boss, &run);
    assert!(done.starts_with("HTTP/1.1 303"), "{done}");
    known(&gateway, "/topics/secret", &boss);
    let journal = get(&gateway, "/api/v1/actions", &reader);
    assert!(journal.contains("\"boss\""), "{journal}");
    // Records are for those whose topic it is, as a page and as JSON; the first of two topics counts.
    for path in ["/console/records", "/api/v1/records"] {
        let seen = format!("{path}?topic=secret&partition=0&offset=earliest");
        known(&gateway, &seen, &boss);
        for more in ["", "&topic=logs.a"] {
            assert_eq!(status(&gateway, &format!("{seen}{more}"), &reader), 403, "{seen}{more}");
        }
    }
}
