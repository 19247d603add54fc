//! Requests with an `Idempotency-Key` while the broker stands still, and while it is killed: what an answer says of
//! `written` is true, and the log has each keyed record exactly once.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use peer::process::{pause_processes, resume_process};
use serde_json::Value;
use tempfile::TempDir;

const HIGHWATER: &str = env!("CARGO_BIN_EXE_highwater");
/// How long anything may take on a machine that is busy with much else.
const PATIENCE: Duration = Duration::from_secs(100);

/// A broker that can be killed and started again where it was.
struct Broker {
    folder: TempDir,
    port: u16,
    process: Child,
}

impl Broker {
    fn start() -> Broker {
        let folder = tempfile::tempdir().unwrap();
        let (process, port) = Broker::process(&folder, 0);
        Broker { folder, port, process }
    }

    /// Starts it, on any port for 0; and says on which.
    fn process(folder: &TempDir, port: u16) -> (Child, u16) {
        let mut command = Command::new(HIGHWATER);
        command.args(["start", "--data-dir"]).arg(folder.path().join("data"));
        let listener = format!("listeners=PLAINTEXT://127.0.0.1:{port}");
        for setting in [&listener, "http.listener=", "gateway.listener="] {
            command.args(["--set", setting]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().unwrap();
        let address = read_until(&mut process, "broker: listening on ");
        let address: SocketAddr = address.parse().unwrap();
        (process, address.port())
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn pause(&self) {
        pause_processes(&[self.process.id()]).unwrap();
    }

    fn resume(&self) {
        resume_process(self.process.id()).unwrap();
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    fn start_again(&mut self) {
        let (process, port) = Broker::process(&self.folder, self.port);
        assert_eq!(port, self.port);
        self.process = process;
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A gateway in front of it.
struct Gateway {
    process: Child,
    address: SocketAddr,
}

impl Gateway {
    fn start(broker: &Broker) -> Gateway {
        let mut command = Command::new(HIGHWATER);
        command.args(["gateway", "-b", &broker.address(), "--listener", "127.0.0.1:0"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().unwrap();
        let address = read_until(&mut process, "gateway: http://").parse().unwrap();
        Gateway { process, address }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What follows these words where a process first says them.
fn read_until(process: &mut Child, words: &str) -> String {
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let found = |line: std::io::Result<String>| Some(line.ok()?.strip_prefix(words)?.to_owned());
    let found = lines.find_map(found).unwrap_or_else(|| panic!("never said {words:?}"));
    thread::spawn(move || lines.count());
    found
}

fn run(arguments: &[&str]) -> String {
    let output = Command::new(HIGHWATER).args(arguments).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// An answer: its status, whether it was given before, its body.
#[derive(Debug)]
struct Answer {
    status: u16,
    is_replayed: bool,
    body: Value,
}

/// What the gateway counts of keys.
fn counts(address: SocketAddr) -> Value {
    let path = "/api/v1/gateway/idempotency";
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    exchange(address, &request).unwrap().body
}

/// Sends a value with a key, which is the value.
fn post(address: SocketAddr, value: &str) -> std::io::Result<Answer> {
    let length = value.len();
    let request = format!(
        "POST /topics/t/raw HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         idempotency-key: {value}\r\ncontent-length: {length}\r\n\r\n{value}"
    );
    exchange(address, &request)
}

fn exchange(address: SocketAddr, request: &str) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request.as_bytes())?;
    let mut read = String::new();
    stream.read_to_string(&mut read)?;
    let (head, body) = read.split_once("\r\n\r\n").expect("a whole answer");
    Ok(Answer {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        is_replayed: head.to_lowercase().contains("idempotency-replayed: true"),
        body: serde_json::from_str(body).unwrap(),
    })
}

/// How often each value is in the topic.
fn kept(broker: &Broker) -> BTreeMap<String, usize> {
    let mut count = BTreeMap::new();
    let values = run(&["consume", "t", "--until-end", "-f", "%v\\n", "-b", &broker.address()]);
    for value in values.lines() {
        *count.entry(value.to_owned()).or_default() += 1;
    }
    count
}

#[test]
fn a_broker_that_stands_still_is_waited_for_and_has_the_record_once() {
    let broker = Broker::start();
    run(&["topic", "create", "t", "-b", &broker.address()]);
    let gateway = Gateway::start(&broker);
    assert_eq!(post(gateway.address, "before").unwrap().status, 200);
    broker.pause();
    let began = Instant::now();
    let first = post(gateway.address, "stood").unwrap();
    assert_eq!((first.status, &first.body["written"]), (504, &Value::from("unknown")), "{first:?}");
    // Not sent again: this one waits for what becomes of the first.
    let address = gateway.address;
    let second = thread::spawn(move || post(address, "stood").unwrap());
    while counts(address)["waited"] == 0 {
        assert!(began.elapsed() < PATIENCE, "{}", counts(address));
        thread::sleep(Duration::from_millis(20));
    }
    broker.resume();
    let mut answer = second.join().unwrap();
    while answer.status == 504 {
        assert!(began.elapsed() < PATIENCE, "{answer:?}");
        answer = post(gateway.address, "stood").unwrap();
    }
    assert_eq!((answer.status, answer.is_replayed), (200, true), "{answer:?}");
    assert_eq!(answer.body["offset"], 1);
    let once = [("before".to_owned(), 1), ("stood".to_owned(), 1)];
    assert_eq!(kept(&broker), BTreeMap::from(once));
}

#[test]
fn a_broker_that_is_killed_again_and_again_has_each_record_once() {
    const CLIENTS: usize = 6;
    const KILLS: usize = 4;
    const MORE: usize = 60;
    let mut broker = Broker::start();
    run(&["topic", "create", "t", "-p", "3", "-b", &broker.address()]);
    let gateway = Gateway::start(&broker);
    let (address, ends, count) = (gateway.address, AtomicBool::new(false), AtomicUsize::new(0));
    let told = thread::scope(|scope| {
        let (ends, count) = (&ends, &count);
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| scope.spawn(move || until_known(address, client, ends, count)))
            .collect();
        // Each time a few more records are known to be written, while others are under way.
        let await_more = || {
            let (before, began) = (count.load(Ordering::Relaxed), Instant::now());
            while count.load(Ordering::Relaxed) < before + MORE && began.elapsed() < PATIENCE {
                thread::sleep(Duration::from_millis(5));
            }
        };
        for _ in 0..KILLS {
            await_more();
            broker.kill();
            broker.start_again();
        }
        await_more();
        ends.store(true, Ordering::Relaxed);
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(told.len() >= MORE * (KILLS + 1), "{}", told.len());
    let once: BTreeMap<String, usize> = told.into_iter().map(|value| (value, 1)).collect();
    assert_eq!(kept(&broker), once);
}

/// Sends value after value, each until it is known to be written; some twice though it is.
fn until_known(
    address: SocketAddr,
    client: usize,
    ends: &AtomicBool,
    count: &AtomicUsize,
) -> Vec<String> {
    let mut known = Vec::new();
    while !ends.load(Ordering::Relaxed) {
        let value = format!("{client}-{}", known.len());
        let began = Instant::now();
        let mut answer = post(address, &value).unwrap();
        while answer.status != 200 {
            assert!(matches!(answer.status, 503 | 504), "{answer:?}");
            assert!(began.elapsed() < PATIENCE, "{answer:?}");
            let written = if answer.status == 504 { "unknown" } else { "no" };
            assert_eq!(answer.body["written"], written);
            answer = post(address, &value).unwrap();
        }
        if known.len() % 5 == 0 {
            let again = post(address, &value).unwrap();
            assert_eq!((again.status, again.is_replayed), (200, true), "{again:?}");
            assert_eq!(again.body["offset"], answer.body["offset"]);
        }
        known.push(value);
        count.fetch_add(1, Ordering::Relaxed);
    }
    known
}
