//! Requests with an `Idempotency-Key` while the broker stands still, and while it is killed: what an answer says of
//! `written` is true, and the log has each keyed record exactly once.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
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
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let process = Broker::process(&folder, port);
        Broker { folder, port, process }
    }

    fn process(folder: &TempDir, port: u16) -> Child {
        let mut command = Command::new(HIGHWATER);
        command.args(["start", "--data-dir"]).arg(folder.path().join("data"));
        let listener = format!("listeners=PLAINTEXT://127.0.0.1:{port}");
        for setting in [&listener, "http.listener=", "gateway.listener="] {
            command.args(["--set", setting]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().unwrap();
        read_until(&mut process, "broker: listening on ");
        process
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    fn start_again(&mut self) {
        self.process = Broker::process(&self.folder, self.port);
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

/// Sends a value with a key, which is the value.
fn post(address: SocketAddr, value: &str) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let length = value.len();
    let head = format!(
        "POST /topics/t/raw HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         idempotency-key: {value}\r\ncontent-length: {length}\r\n\r\n{value}"
    );
    stream.write_all(head.as_bytes())?;
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
    broker.signal(Signal::STOP);
    let began = Instant::now();
    let first = post(gateway.address, "stood").unwrap();
    assert_eq!((first.status, &first.body["written"]), (504, &Value::from("unknown")), "{first:?}");
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    // Not sent again: this one waits for what becomes of the first.
    let address = gateway.address;
    let second = thread::spawn(move || post(address, "stood").unwrap());
    thread::sleep(Duration::from_secs(1));
    broker.signal(Signal::CONT);
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
    let mut broker = Broker::start();
    run(&["topic", "create", "t", "-p", "3", "-b", &broker.address()]);
    let gateway = Gateway::start(&broker);
    let (address, ends) = (gateway.address, AtomicBool::new(false));
    let told = thread::scope(|scope| {
        let ends = &ends;
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| scope.spawn(move || until_known(address, client, ends)))
            .collect();
        for _ in 0..KILLS {
            thread::sleep(Duration::from_millis(700));
            broker.kill();
            thread::sleep(Duration::from_millis(300));
            broker.start_again();
        }
        thread::sleep(Duration::from_millis(700));
        ends.store(true, Ordering::Relaxed);
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(told.len() > CLIENTS * KILLS, "{}", told.len());
    let once: BTreeMap<String, usize> = told.into_iter().map(|value| (value, 1)).collect();
    assert_eq!(kept(&broker), once);
}

/// Sends value after value, each until it is known to be written; some twice though it is.
fn until_known(address: SocketAddr, client: usize, ends: &AtomicBool) -> Vec<String> {
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
    }
    known
}
