//! The gateway as people run it: beside a broker and alone, by the built program; what becomes of records when a
//! gateway is killed, and when a broker stands still.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use peer::process::{pause_processes, resume_process};
use rustix::process::{Pid, Signal, kill_process};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;
use tempfile::TempDir;

const HIGHWATER: &str = env!("CARGO_BIN_EXE_highwater");

/// A process of the program that ends with the test.
struct Process {
    child: Child,
    /// What it said first, up to where its gateway is.
    said: Vec<String>,
    /// `host:port` of its gateway.
    gateway: String,
}

impl Process {
    fn start(arguments: &[&str]) -> Process {
        let mut command = Command::new(HIGHWATER);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut said = Vec::new();
        let gateway = loop {
            let line = lines.next().unwrap_or_else(|| panic!("no gateway: {said:?}")).unwrap();
            said.push(line.clone());
            let url = line.strip_prefix("gateway: http").map(|url| url.trim_start_matches('s'));
            if let Some(address) = url.and_then(|url| url.strip_prefix("://")) {
                break address.to_owned();
            }
        };
        // The rest is read too, so that nothing waits for a reader.
        thread::spawn(move || lines.count());
        Process { child, said, gateway }
    }

    fn broker(&self) -> String {
        let line = self.said.iter().find_map(|line| line.strip_prefix("broker: listening on "));
        line.unwrap_or_else(|| panic!("{:?}", self.said)).to_owned()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Stops it as systems do; what it reported.
    fn stop(mut self) -> String {
        self.signal(Signal::TERM);
        let mut reported = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut reported).unwrap();
        assert!(self.child.wait().unwrap().success(), "an orderly stop ends with 0: {reported}");
        reported
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A broker alone, and its folder.
struct Broker {
    process: Child,
    address: String,
    _folder: TempDir,
}

impl Broker {
    fn start() -> Broker {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(HIGHWATER);
        command.args(["start", "--data-dir"]).arg(folder.path().join("data"));
        for setting in ["listeners=PLAINTEXT://127.0.0.1:0", "http.listener=", "gateway.listener="]
        {
            command.args(["--set", setting]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let found = |line: std::io::Result<String>| {
            Some(line.ok()?.strip_prefix("broker: listening on ")?.to_owned())
        };
        let address = lines.find_map(found).expect("the broker listens");
        thread::spawn(move || lines.count());
        Broker { process, address, _folder: folder }
    }

    fn pause(&self) {
        pause_processes(&[self.process.id()]).unwrap();
    }

    fn resume(&self) {
        resume_process(self.process.id()).unwrap();
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn highwater(line: &str) -> Output {
    Command::new(HIGHWATER).args(line.split(' ')).stdin(Stdio::null()).output().unwrap()
}

/// Runs a command that must succeed; what it wrote to standard output.
fn run(line: &str) -> String {
    let output = highwater(line);
    assert!(output.status.success(), "{line}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Sends a value and reads the answer: status and body. An error: the connection is gone.
fn post(stream: &mut TcpStream, topic: &str, value: &str) -> std::io::Result<(u16, Value)> {
    let length = value.len();
    let head = format!(
        "POST /topics/{topic}/raw HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all((head + value).as_bytes())?;
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let length = head.split("content-length: ").nth(1).unwrap().split("\r\n").next().unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body)?;
    Ok((status, serde_json::from_slice(&body).unwrap()))
}

/// Creates a topic on a broker that says that it is elsewhere.
fn create_at(address: &str, topic: &str) {
    let mut config = client::ClusterConfig::new(address);
    config.addresses.insert(1, address.to_owned());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let cluster = client::Cluster::connect(config).await.unwrap();
        let topic = client::admin::NewTopic::new(topic, 1, 1);
        client::Admin::new(cluster).create_topic(&topic).await.unwrap();
    });
}

fn start(data: &Path, more: &[&str]) -> Vec<String> {
    let mut arguments = vec!["--log-level", "warn", "start", "--data-dir", data.to_str().unwrap()];
    for setting in ["listeners=PLAINTEXT://127.0.0.1:0", "http.listener="].iter().chain(more) {
        arguments.extend(["--set", setting]);
    }
    arguments.into_iter().map(str::to_owned).collect()
}

#[test]
fn a_broker_has_a_gateway_beside_it_that_needs_no_advertised_address() {
    let folder = tempfile::tempdir().unwrap();
    let more = [
        "gateway.listener=127.0.0.1:0",
        "advertised.listeners=PLAINTEXT://nowhere.invalid:1",
        "auto.create.topics.enable=false",
    ];
    let arguments = start(&folder.path().join("data"), &more);
    let process = Process::start(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let mut stream = TcpStream::connect(&process.gateway).unwrap();
    assert_eq!(post(&mut stream, "t", "v").unwrap().0, 404);
    create_at(&process.broker(), "t");
    let answer = post(&mut stream, "t", "v").unwrap();
    assert_eq!((answer.0, &answer.1["offset"]), (200, &Value::from(0)), "{answer:?}");
    drop(stream);
    process.stop();
}

/// The page under a path: its status and itself.
fn page(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut read = String::new();
    stream.read_to_string(&mut read).unwrap();
    (read.split(' ').nth(1).unwrap().parse().unwrap(), read)
}

/// How many threads of a process are the gateway's.
fn threads_of_gateway(process: &Process) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", process.child.id())).unwrap();
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default()
    };
    tasks.map(name).filter(|name| name.trim() == "gateway").count()
}

#[test]
fn a_console_is_beside_a_broker_and_in_front_of_a_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = start(&folder.path().join("data"), &["gateway.listener=127.0.0.1:0"]);
    let beside = Process::start(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let broker = beside.broker();
    create_at(&broker, "shown");
    assert_eq!(threads_of_gateway(&beside), 0, "before the first connection");
    let alone = Process::start(&["gateway", "-b", &broker, "--listener", "127.0.0.1:0"]);
    for process in [&beside, &alone] {
        let (status, list) = page(&process.gateway, "/console/topics");
        assert_eq!(status, 200, "{list}");
        assert!(list.contains(">shown</a>"), "{list}");
        assert_eq!(page(&process.gateway, "/api/v1/topic?name=shown").0, 200);
    }
    assert!(threads_of_gateway(&beside) > 0);
    alone.stop();
    // A broker that has a console looking at it stops as fast as one that has none.
    beside.stop();
}

#[test]
fn the_gateways_metrics_stand_with_those_of_its_broker_and_a_groups_lag_is_told_in_seconds() {
    let folder = tempfile::tempdir().unwrap();
    let more = ["gateway.listener=127.0.0.1:0", "http.listener=127.0.0.1:0"];
    let arguments = start(&folder.path().join("data"), &more);
    let process = Process::start(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let http = process.said.iter().find_map(|line| line.strip_prefix("http: http://")).unwrap();
    let http = http.split('/').next().unwrap();
    create_at(&process.broker(), "t");
    let mut stream = TcpStream::connect(&process.gateway).unwrap();
    for value in ["a", "b", "c"] {
        assert_eq!(post(&mut stream, "t", value).unwrap().0, 200);
    }
    let broker = process.broker();
    run(&format!("consume t -b {broker} --group g --from earliest --count 1"));
    for path in ["/metrics", "/public_metrics"] {
        let text = page(http, path).1;
        assert!(text.contains("\nhighwater_gateway_produced_records_total 3\n"), "{text}");
        assert!(text.contains("route=\"/topics/{topic}/raw\",code=\"200\"} 3\n"), "{text}");
    }
    // It grows for as long as nobody reads on, from the first look at the log's end.
    for (path, row) in [
        ("/metrics", "lag_seconds{consumergroup=\"g\",topic=\"t\",partition=\"0\"} "),
        ("/public_metrics", "lag_seconds{consumergroup=\"g\"} "),
    ] {
        loop {
            let text = page(http, path).1;
            let value = text.split(&format!("\nkafka_consumergroup_{row}")).nth(1);
            let value = value.unwrap_or_else(|| panic!("{text}")).lines().next().unwrap();
            if value.parse::<f64>().unwrap() > 0.0 {
                break;
            }
            thread::yield_now();
        }
    }
    drop(stream);
    process.stop();
}

#[test]
fn a_default_port_that_is_taken_is_left_with_a_word_and_a_named_one_ends_the_start() {
    let folder = tempfile::tempdir().unwrap();
    // This test has it now, or another program.
    let _taken = TcpListener::bind("127.0.0.1:8082");
    let arguments = start(&folder.path().join("data"), &[]);
    let process = Process::start(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(!process.gateway.ends_with(":8082"), "{}", process.gateway);
    let mut stream = TcpStream::connect(&process.gateway).unwrap();
    assert_eq!(post(&mut stream, "missing", "v").unwrap().0, 200);
    drop(stream);
    assert!(process.stop().contains("port 8082 is taken: the gateway listens on 127.0.0.1:"));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let holder = TcpListener::bind(taken).unwrap();
    let named = format!("gateway.listener={taken}");
    for arguments in [
        start(&folder.path().join("other"), &[&named]),
        ["gateway", "--set", &named, "-b", "127.0.0.1:1"].map(str::to_owned).to_vec(),
    ] {
        let output = Command::new(HIGHWATER).args(&arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(&format!("cannot listen on {taken} for the gateway")), "{said}");
        assert!(said.contains("gateway.listener="), "what to do: {said}");
    }
    assert!(!folder.path().join("other").exists(), "nothing was written before the port was known");
    drop(holder);
}

#[test]
fn a_gateway_refuses_keys_of_brokers() {
    let arguments = ["gateway", "--set", "durability=page-cache", "-b", "127.0.0.1:1"];
    let output = Command::new(HIGHWATER).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("--set durability: a gateway has no use for this key"), "{said}");
    assert!(said.contains("gateway. or console."), "what to do: {said}");
}

/// The page under a path, over TLS: its status.
fn secure_page(address: &str, authority: &CertificateDer<'static>, path: &str) -> u16 {
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let session = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = StreamOwned::new(session, TcpStream::connect(address).unwrap());
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut read = String::new();
    stream.read_to_string(&mut read).unwrap();
    read.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_gateway_that_has_a_certificate_speaks_tls_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let file = folder.path().join("gateway.pem");
    std::fs::write(&file, made.cert.pem() + &made.signing_key.serialize_pem()).unwrap();
    let (certificate, key) = (
        format!("gateway.tls.certificate.file={}", file.display()),
        format!("gateway.tls.key.file={}", file.display()),
    );
    let listener = "gateway.listener=127.0.0.1:0";
    let arguments = start(&folder.path().join("data"), &[listener, &certificate, &key]);
    let beside = Process::start(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let broker = beside.broker();
    let alone = ["gateway", "-b", &broker, "--set", listener, "--set", &certificate, "--set", &key];
    let alone = Process::start(&alone);
    for process in [&beside, &alone] {
        assert!(process.said.iter().any(|line| line.starts_with("gateway: https://")));
        assert_eq!(secure_page(&process.gateway, made.cert.der(), "/console/topics"), 200);
        let (status, told) = page(&process.gateway, "/console/topics");
        assert!(status == 400 && told.contains("https://"), "{told}");
    }
    alone.stop();
    beside.stop();
    // A file that cannot be used ends the start before anything is written.
    std::fs::write(&file, made.cert.pem()).unwrap();
    let other = folder.path().join("other");
    let arguments = start(&other, &[listener, &certificate, &key]);
    let output = Command::new(HIGHWATER).args(&arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("gateway.tls.key.file") && said.contains("no private key"), "{said}");
    assert!(!other.exists());
}

#[test]
fn a_gateway_alone_ends_when_it_is_told_to() {
    let broker = Broker::start();
    run(&format!("topic create t -b {}", broker.address));
    let gateway = Process::start(&["gateway", "-b", &broker.address, "--listener", "127.0.0.1:0"]);
    let mut stream = TcpStream::connect(&gateway.gateway).unwrap();
    assert_eq!(post(&mut stream, "t", "v").unwrap().1["offset"], 0);
    gateway.stop();
    assert!(post(&mut stream, "t", "v").is_err());
    let refused = highwater("gateway --set gateway.threads=0 -b 127.0.0.1:1");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("gateway.threads=0"), "{refused:?}");
}

#[test]
fn every_offset_that_was_told_before_a_gateway_was_killed_is_that_of_the_record() {
    const CLIENTS: usize = 16;
    const ROUNDS: usize = 3;
    const ANSWERS: usize = 400;
    let broker = Broker::start();
    run(&format!("topic create t -p 3 -b {}", broker.address));
    let mut told: HashMap<String, (i64, i64)> = HashMap::new();
    for round in 0..ROUNDS {
        let mut gateway =
            Process::start(&["gateway", "-b", &broker.address, "--listener", "127.0.0.1:0"]);
        let answers = Mutex::new(Vec::new());
        let address = gateway.gateway.clone();
        thread::scope(|scope| {
            for client in 0..CLIENTS {
                let (answers, address) = (&answers, &address);
                scope.spawn(move || {
                    let mut stream = TcpStream::connect(address).unwrap();
                    for n in 0.. {
                        let value = format!("{round}-{client}-{n}");
                        let Ok((status, answer)) = post(&mut stream, "t", &value) else { break };
                        assert_eq!(status, 200, "{answer}");
                        let place = |name: &str| answer[name].as_i64().unwrap();
                        let place = (place("partition"), place("offset"));
                        answers.lock().unwrap().push((value, place));
                    }
                });
            }
            while answers.lock().unwrap().len() < ANSWERS {
                thread::yield_now();
            }
            gateway.kill();
        });
        told.extend(answers.into_inner().unwrap());
    }
    let consumed = Command::new(HIGHWATER)
        .args(["consume", "t", "--until-end", "-f", "%p %o %v\\n", "-b", &broker.address])
        .output()
        .unwrap();
    let text = String::from_utf8(consumed.stdout).unwrap();
    let found: HashMap<&str, (i64, i64)> = text
        .lines()
        .map(|line| {
            let mut words = line.split(' ');
            let mut number = || words.next().unwrap().parse().unwrap();
            let place = (number(), number());
            (words.next().unwrap(), place)
        })
        .collect();
    assert!(told.len() >= ROUNDS * ANSWERS);
    for (value, place) in &told {
        assert_eq!(found.get(value.as_str()), Some(place), "{value}");
    }
    assert_eq!(found.len(), text.lines().count(), "no value is there twice");
}

#[test]
fn a_broker_that_stands_still_leaves_it_open_whether_a_record_is_written() {
    let broker = Broker::start();
    run(&format!("topic create t -b {}", broker.address));
    let gateway = Process::start(&["gateway", "-b", &broker.address, "--listener", "127.0.0.1:0"]);
    let mut stream = TcpStream::connect(&gateway.gateway).unwrap();
    assert_eq!(post(&mut stream, "t", "before").unwrap().0, 200);
    broker.pause();
    let (status, answer) = post(&mut stream, "t", "during").unwrap();
    broker.resume();
    assert_eq!((status, &answer["written"]), (504, &Value::from("unknown")), "{answer}");
    assert_eq!(
        (&answer["error_code"], &answer["retriable"]),
        (&Value::from(50401), &Value::from(true))
    );
    // It goes on afterwards; the answers before count for what they said.
    let after = loop {
        let (status, answer) = post(&mut stream, "t", "after").unwrap();
        if status == 200 {
            break answer["offset"].as_i64().unwrap();
        }
        assert!([503, 504].contains(&status), "{answer}");
    };
    let kept = run(&format!("consume t --until-end -b {}", broker.address));
    let kept: Vec<&str> = kept.lines().collect();
    assert_eq!((kept[0], kept[after as usize]), ("before", "after"), "{kept:?}");
    gateway.stop();
}
