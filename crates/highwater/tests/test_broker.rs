//! `highwater test-broker` as a test suite uses it, and the fault rules of `highwater proxy`.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use client::{
    Admin, Cluster, ClusterConfig, CommittedOffset, Consumer, ConsumerConfig, OffsetReset,
    Producer, ProducerConfig, Record,
};
use model::{Offset, TopicPartition};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;
use tempfile::TempDir;

const HIGHWATER: &str = env!("CARGO_BIN_EXE_highwater");
/// How long anything may take on a machine that is busy with much else.
const LIMIT: Duration = Duration::from_secs(120);

/// A program that serves, and ends with the test.
struct Served {
    child: Child,
    stdin: Option<ChildStdin>,
    ready: Value,
}

impl Served {
    /// Starts a test broker and waits for its ready line.
    fn start(arguments: &[&str]) -> Served {
        Served::start_with(arguments, &[])
    }

    /// The same with environment variables.
    fn start_with(arguments: &[&str], variables: &[(&str, &str)]) -> Served {
        let mut child = Command::new(HIGHWATER)
            .arg("test-broker")
            .args(arguments)
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        Served { child, stdin, ready }
    }

    fn field(&self, name: &str) -> &str {
        self.ready[name].as_str().unwrap()
    }

    fn bootstrap(&self) -> &str {
        self.field("bootstrap_servers")
    }

    fn data_dir(&self) -> PathBuf {
        PathBuf::from(self.field("data_dir"))
    }

    /// Waits until the process has ended by itself.
    fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("the process ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// Code and body of the answer to a request over HTTP.
    fn http(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        http(self.field("http").strip_prefix("http://").unwrap(), method, path, body)
    }

    /// The body of an answer over HTTP, which must have this code.
    fn answer(&self, code: u16, method: &str, path: &str) -> Value {
        let (found, body) = self.http(method, path, "");
        assert_eq!(found, code, "{method} {path}: {body}");
        serde_json::from_str(&body).unwrap_or_default()
    }

    /// The bootstrap servers and the answer of a fork that is started now.
    fn fork(&self, snapshot: &str) -> (String, Value) {
        let fork = self.answer(201, "POST", &format!("/snapshots/{snapshot}/forks"));
        (fork["bootstrap_servers"].as_str().unwrap().to_owned(), fork)
    }

    /// Counts of a rule: matches and faults.
    fn counts(&self, rule: &str) -> (u64, u64) {
        let (code, text) = self.http("GET", &format!("/faults/{rule}"), "");
        assert_eq!(code, 200, "{text}");
        let rule: Value = serde_json::from_str(&text).unwrap();
        (rule["matches"].as_u64().unwrap(), rule["faults"].as_u64().unwrap())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && start.elapsed() < LIMIT {
            thread::yield_now();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn http(address: &str, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    parsed(&answer)
}

/// Code and body of an answer over HTTP.
fn parsed(answer: &str) -> (u16, String) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LIMIT, "not in time: {what}");
        thread::yield_now();
    }
}

fn is_alive(pid: i32) -> bool {
    let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // A zombie process counts as dead.
    let is_zombie = state.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z'));
    test_kill_process(Pid::from_raw(pid).unwrap()).is_ok() && !is_zombie
}

/// The error in an answer over HTTP, which must be JSON.
fn json_error(answer: &(u16, String)) -> (u16, String) {
    let body: Value = serde_json::from_str(&answer.1).unwrap_or_else(|_| panic!("{answer:?}"));
    (answer.0, body["error"].as_str().unwrap().to_owned())
}

/// Output of a test broker that must not start.
fn refused(arguments: &[&str]) -> String {
    let Output { status, stdout, stderr } = Command::new(HIGHWATER)
        .arg("test-broker")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(!status.success(), "{}", String::from_utf8_lossy(&stdout));
    String::from_utf8_lossy(&stderr).into_owned()
}

/// Standard error of a test broker whose standard input is closed at once.
fn report_of_closed_input(arguments: &[&str]) -> String {
    let mut broker = Command::new(HIGHWATER)
        .arg("test-broker")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(broker.stdin.take());
    let output = broker.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(LIMIT, future).await.expect("it ends in time") })
}

async fn cluster(bootstrap: &str) -> Cluster {
    let config = ClusterConfig { allow_auto_create: true, ..ClusterConfig::new(bootstrap) };
    Cluster::connect(config).await.unwrap()
}

/// Sends values to a topic one after the other; each must be acknowledged.
async fn produce(bootstrap: &str, topic: &str, values: &[&str]) {
    let producer =
        Producer::new(cluster(bootstrap).await, ProducerConfig::default()).await.unwrap();
    for value in values {
        let delivery = producer.send(topic, &Record::value(value.as_bytes())).await.unwrap();
        producer.flush().await.unwrap();
        delivery.wait().await.unwrap();
    }
}

/// Reads so many values of a topic through a group.
async fn consume(bootstrap: &str, topic: &str, count: usize) -> Vec<String> {
    let config =
        ConsumerConfig { offset_reset: OffsetReset::Earliest, ..ConsumerConfig::group("g") };
    let mut consumer = Consumer::new(cluster(bootstrap).await, config);
    consumer.subscribe(&[topic]).unwrap();
    let mut values = Vec::new();
    while values.len() < count {
        poll(&mut consumer, &mut values).await;
    }
    values
}

/// Polls once; until a broker is back there are errors.
async fn poll(consumer: &mut Consumer, values: &mut Vec<String>) {
    let mut buffer = Vec::new();
    for fetched in consumer.poll(Duration::from_millis(200)).await.unwrap_or_default() {
        let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
        let read = fetched.for_each(&mut buffer, |record| values.push(text(record.value.unwrap())));
        read.unwrap();
    }
}

fn written(folder: &TempDir, name: &str, text: &str) -> String {
    let path = folder.path().join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_test_broker_serves_and_leaves_nothing_behind() {
    let mut broker = Served::start(&["--topics", "orders:3,b"]);
    assert_eq!(broker.ready["pid"].as_u64(), Some(u64::from(broker.child.id())));
    assert_eq!(broker.ready["brokers"].as_u64(), Some(1));
    assert_eq!(broker.field("version"), env!("CARGO_PKG_VERSION"));
    let folder = broker.data_dir();
    assert!(folder.is_dir());
    block_on(async {
        let metadata = Admin::new(cluster(broker.bootstrap()).await).describe_all().await.unwrap();
        let counts = ["orders", "b"].map(|topic| metadata.topics[topic].partitions.len());
        assert_eq!(counts, [3, 1]);
        produce(broker.bootstrap(), "orders", &["x", "y"]).await;
        produce(broker.bootstrap(), "made-by-its-first-record", &["z"]).await;
        let mut values = consume(broker.bootstrap(), "orders", 2).await;
        values.sort();
        assert_eq!(values, ["x", "y"]);
    });
    let (code, metrics) = broker.http("GET", "/metrics", "");
    assert_eq!(code, 200);
    assert!(metrics.contains("highwater_proxy_messages_total"), "{metrics}");
    drop(broker.stdin.take());
    assert_eq!(broker.ended().code(), Some(0));
    assert!(!folder.exists());
}

#[test]
fn a_test_broker_outlives_the_thread_that_started_it_and_not_the_process() {
    let broker = thread::spawn(|| Served::start(&[])).join().unwrap();
    block_on(produce(broker.bootstrap(), "t", &["x"]));
    // A shell starts one in the background, with nothing to read, and is killed.
    let script = format!("'{HIGHWATER}' test-broker </dev/null & wait");
    let mut shell = Command::new("sh");
    let mut shell = shell.args(["-c", &script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap();
    let pid = ready["pid"].as_i64().unwrap() as i32;
    assert!(is_alive(pid));
    shell.kill().unwrap();
    shell.wait().unwrap();
    wait_until("the orphan ends", || !is_alive(pid));
    let folder = Path::new(ready["data_dir"].as_str().unwrap());
    wait_until("its folder is removed", || !folder.exists());
    block_on(produce(broker.bootstrap(), "t", &["y"]));
}

#[test]
fn invalid_rules_and_settings_are_refused_with_the_allowed_values() {
    let folder = tempfile::tempdir().unwrap();
    let file = written(
        &folder,
        "f.toml",
        "[[rules]]\nname = \"x\"\napi = \"Prodcue\"\naction = \"close\"\n",
    );
    let said = refused(&["--faults", &file]);
    for word in [&*file, "line 3", "Prodcue", "Produce, Fetch", "drop_answer"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    let moves = written(&folder, "m.toml", "[[rules]]\nname = \"x\"\naction = \"move_leader\"\n");
    assert!(refused(&["--faults", &moves]).contains("--brokers 3"));
    assert!(refused(&["--set", "listeners=PLAINTEXT://:1"]).contains("--data-dir"));
    assert!(refused(&["--set", "num.partitions=x"]).contains("num.partitions"));
    assert!(refused(&["--topics", "a:0"]).contains("NAME:PARTITIONS"));
    assert!(refused(&["--topics", "a/b"]).contains("a/b"));
    assert!(refused(&["--replay", &moves]).contains("--journal"));
    let kill = written(&folder, "k.json", r#"{"rules": [{"name": "x", "action": "kill"}]}"#);
    let proxy = Command::new(HIGHWATER)
        .args(["proxy", "--listen", "127.0.0.1:0", "--faults", &kill])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&proxy.stderr).into_owned();
    assert!(!proxy.status.success() && said.contains("test-broker"), "{said}");
    let proxy = Command::new(HIGHWATER)
        .args(["proxy", "--listen", "127.0.0.1:0", "--seed", "7"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&proxy.stderr).into_owned();
    assert!(!proxy.status.success() && said.contains("--faults FILE"), "{said}");
}

#[test]
fn a_journal_overwrites_no_file_that_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let text = "{\"plan\":{\"seed\":7,\"rules\":[]}}\n";
    let journal = written(&folder, "j", text);
    let report = refused(&["--replay", &journal, "--journal", &journal]);
    assert!(report.contains("--journal FILE"), "{report}");
    assert_eq!(fs::read_to_string(&journal).unwrap(), text);
    let text = "[[rules]]\nname = \"x\"\naction = \"close\"\n";
    let rules = written(&folder, "f.toml", text);
    let link = folder.path().join("link");
    fs::hard_link(&rules, &link).unwrap();
    for name in [&rules, link.to_str().unwrap()] {
        let report = refused(&["--faults", &rules, "--journal", name]);
        assert!(report.contains("--journal FILE"), "{report}");
        assert_eq!(fs::read_to_string(&rules).unwrap(), text);
    }
}

/// Produces 40 records, one a request, through faults by probability, and returns the journal's faults.
fn faults_of_run(arguments: &[&str], journal: &Path) -> Vec<String> {
    let path = journal.to_str().unwrap();
    let broker = Served::start(&[arguments, &["--topics", "t", "--journal", path]].concat());
    let values: Vec<String> = (0..40).map(|at| at.to_string()).collect();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    block_on(async {
        produce(broker.bootstrap(), "t", &values).await;
        assert_eq!(
            consume(broker.bootstrap(), "t", 40).await,
            values,
            "retries lose and repeat nothing"
        );
    });
    drop(broker);
    let text = fs::read_to_string(journal).unwrap();
    text.lines().filter(|line| line.starts_with("{\"fault\"")).map(str::to_owned).collect()
}

#[test]
fn a_seed_gives_the_same_faults_and_a_journal_plays_them_back() {
    let folder = tempfile::tempdir().unwrap();
    let rules = written(
        &folder,
        "f.toml",
        "[[rules]]\nname = \"sometimes\"\napi = \"Produce\"\noccurrence = { probability = 0.2 }\n\
         action = { error = { code = \"NOT_LEADER_OR_FOLLOWER\" } }\n",
    );
    let journal = |name: &str| folder.path().join(name);
    let first = faults_of_run(&["--faults", &rules, "--seed", "7"], &journal("a"));
    let second = faults_of_run(&["--faults", &rules, "--seed", "7"], &journal("b"));
    assert!(!first.is_empty());
    assert_eq!(first, second);
    let other = faults_of_run(&["--faults", &rules, "--seed", "8"], &journal("c"));
    assert_ne!(first, other);
    let recorded = journal("a");
    let replayed = faults_of_run(&["--replay", recorded.to_str().unwrap()], &journal("d"));
    assert_eq!(first, replayed);
}

#[test]
fn rules_are_listed_set_and_removed_over_http() {
    let broker = Served::start(&["--topics", "t"]);
    let rule = r#"{"api": "Produce", "occurrence": "once", "action": "drop_answer"}"#;
    let (code, body) = broker.http("PUT", "/faults/lost-answer", rule);
    assert_eq!(code, 200, "{body}");
    block_on(async {
        produce(broker.bootstrap(), "t", &["a", "b"]).await;
        assert_eq!(consume(broker.bootstrap(), "t", 2).await, ["a", "b"], "an idempotent retry");
    });
    assert_eq!(broker.counts("lost-answer"), (3, 1));
    let (code, body) = broker.http("PUT", "/faults/x", r#"{"action": "explode"}"#);
    assert_eq!(code, 400);
    assert!(body.contains("explode") && body.contains("drop_answer"), "{body}");
    let (code, body) = broker.http("PUT", "/faults", "{\"rules\": [{\"name\": \"y\"}]}");
    assert_eq!(code, 400);
    assert!(body.contains("missing field `action`"), "{body}");
    assert_eq!(broker.http("DELETE", "/faults/x", "").0, 404);
    assert_eq!(broker.counts("lost-answer"), (3, 1), "refused requests change nothing");
    assert_eq!(broker.http("DELETE", "/faults/lost-answer", "").0, 204);
    assert_eq!(broker.http("GET", "/faults/lost-answer", "").0, 404);
}

#[test]
fn errors_below_faults_are_json() {
    let broker = Served::start(&[]);
    let error = |method: &str, path: &str, body: &str| json_error(&broker.http(method, path, body));
    for (path, named) in
        [("/faults/x", "\"x\""), ("/faults/x/y", "/faults/x/y"), ("/faults/", "/faults/")]
    {
        let (code, message) = error("GET", path, "");
        assert!(code == 404 && message.contains(named), "{code} {message}");
    }
    // The last byte is the one above the limit: the server reads all of them before it answers.
    let too_large = "x".repeat(64 * 1024 + 1);
    for path in ["/faults", "/faults/x"] {
        let (code, message) = error("PUT", path, &too_large);
        assert!(code == 413 && message.contains("limit"), "{code} {message}");
    }
    assert_eq!(error("POST", "/faults", ""), (405, "method not allowed".to_owned()));
    assert_eq!(error("PUT", "/faults/%ff", "{}").0, 400);
}

#[test]
fn a_killed_broker_keeps_the_record_whose_answer_was_never_sent() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let rules = written(
        &folder,
        "f.json",
        r#"{"rules": [{"name": "x", "api": "Produce", "occurrence": {"nth": 2}, "action": "kill"}]}"#,
    );
    let arguments = ["--topics", "t", "--data-dir", data.to_str().unwrap()];
    let mut broker = Served::start(&[&arguments[..], &["--faults", &rules]].concat());
    block_on(async {
        let producer =
            Producer::new(cluster(broker.bootstrap()).await, ProducerConfig::default()).await;
        let producer = producer.unwrap();
        producer.send("t", &Record::value(b"a")).await.unwrap().wait().await.unwrap();
        // It is never acknowledged; the broker dies meanwhile.
        drop(producer.send("t", &Record::value(b"b")).await.unwrap());
        wait_until_async(|| broker.child.try_wait().unwrap().is_some()).await;
    });
    assert_eq!(broker.ended().signal(), Some(9));
    let again = Served::start(&["--data-dir", data.to_str().unwrap()]);
    assert_eq!(block_on(consume(again.bootstrap(), "t", 2)), ["a", "b"]);
    drop(again);
    assert!(data.is_dir(), "a named folder is left");
}

async fn wait_until_async(mut holds: impl FnMut() -> bool) {
    while !holds() {
        tokio::task::yield_now().await;
    }
}

#[test]
fn a_killed_broker_with_a_temporary_folder_leaves_none() {
    let mut broker = Served::start(&["--topics", "t"]);
    let folder = broker.data_dir();
    let rule = r#"{"api": "Metadata", "action": "kill"}"#;
    assert_eq!(broker.http("PUT", "/faults/x", rule).0, 200);
    block_on(async {
        let connecting = Cluster::connect(ClusterConfig::new(broker.bootstrap()));
        tokio::select! {
            _ = connecting => {}
            () = wait_until_async(|| broker.child.try_wait().unwrap().is_some()) => {}
        }
    });
    assert_eq!(broker.ended().signal(), Some(9));
    wait_until("its folder is removed", || !folder.exists());
}

#[test]
fn leaders_of_several_brokers_move_and_die_and_nothing_is_lost() {
    let broker = Served::start(&["--topics", "t", "--brokers", "3"]);
    assert_eq!(broker.ready["brokers"].as_u64(), Some(3));
    for (name, action, count) in [("move", "move_leader", 3), ("kill", "kill", 6)] {
        let rule = format!(
            r#"{{"api": "Produce", "occurrence": "once", "count_by": "rule", "action": "{action}"}}"#
        );
        assert_eq!(broker.http("PUT", &format!("/faults/{name}"), &rule).0, 200);
        block_on(async {
            produce(broker.bootstrap(), "t", &[name, "b", "c"]).await;
            let values = consume_alone(broker.bootstrap(), "t", count).await;
            assert_eq!(values[count - 3..], [name, "b", "c"]);
        });
        assert_eq!(broker.counts(name).1, 1);
    }
}

/// Reads the first values of partition 0, without a group.
async fn consume_alone(bootstrap: &str, topic: &str, count: usize) -> Vec<String> {
    let config =
        ConsumerConfig { offset_reset: OffsetReset::Earliest, ..ConsumerConfig::default() };
    let mut consumer = Consumer::new(cluster(bootstrap).await, config);
    consumer.assign(&[TopicPartition::new(topic, 0)]).await.unwrap();
    let mut values = Vec::new();
    while values.len() < count {
        poll(&mut consumer, &mut values).await;
    }
    values
}

#[test]
fn environment_variables_do_not_change_several_brokers() {
    let variables = [("KAFKA_NUM_PARTITIONS", "7"), ("NOTIFY_SOCKET", "/nonexistent/notify")];
    let broker = Served::start_with(&["--brokers", "2"], &variables);
    block_on(async {
        produce(broker.bootstrap(), "made", &["x"]).await;
        let metadata = Admin::new(cluster(broker.bootstrap()).await).describe_all().await.unwrap();
        assert_eq!(metadata.topics["made"].partitions.len(), 1);
    });
}

#[test]
fn a_test_broker_that_cannot_create_a_topic_leaves_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    let failed = Command::new(HIGHWATER)
        .args(["test-broker", "--topics", "a/b"])
        .env("TMPDIR", folder.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(!failed.status.success());
    let report = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(!report.contains("cannot remove"), "{report}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{report}");
}

#[test]
fn the_folder_of_a_killed_test_broker_is_removed_by_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let variables = [("TMPDIR", folder.path().to_str().unwrap())];
    let alive = Served::start_with(&[], &variables);
    let mut killed = Served::start_with(&["--topics", "t"], &variables);
    killed.child.kill().unwrap();
    killed.ended();
    let left = killed.data_dir();
    assert!(left.join("t-0").is_dir());
    let next = Served::start_with(&[], &variables);
    wait_until("the folder is removed", || !left.exists());
    for broker in [&alive, &next] {
        assert!(broker.data_dir().is_dir());
        block_on(produce(broker.bootstrap(), "t", &["x"]));
    }
}

#[test]
fn a_killed_test_broker_that_is_started_again_in_its_folder_keeps_it() {
    let folder = tempfile::tempdir().unwrap();
    let variables = [("TMPDIR", folder.path().to_str().unwrap())];
    let mut killed = Served::start_with(&["--topics", "t"], &variables);
    block_on(produce(killed.bootstrap(), "t", &["x"]));
    killed.child.kill().unwrap();
    killed.ended();
    let data = killed.data_dir();
    let again = Served::start_with(&["--data-dir", data.to_str().unwrap()], &variables);
    // A folder that the next test broker removes shows that it has searched.
    let mut dead = Served::start_with(&[], &variables);
    dead.child.kill().unwrap();
    dead.ended();
    let _next = Served::start_with(&[], &variables);
    wait_until("the other folder is removed", || !dead.data_dir().exists());
    assert_eq!(block_on(consume(again.bootstrap(), "t", 1)), ["x"]);
    drop(again);
    assert!(data.join("t-0").is_dir());
}

/// Ctrl-C reaches the test runner and the brokers; then the runner ends, and its pipe is closed. A wrapper closes the pipe and sends
/// SIGTERM. Neither is the second request, which kills the brokers.
#[test]
fn a_signal_and_a_closed_pipe_together_stop_all_brokers_orderly() {
    for signal_first in [true, false] {
        let mut served = Served::start(&["--brokers", "3"]);
        let process = Pid::from_child(&served.child);
        if signal_first {
            kill_process(process, Signal::INT).unwrap();
            drop(served.stdin.take());
        } else {
            drop(served.stdin.take());
            kill_process(process, Signal::TERM).unwrap();
        }
        assert_eq!(served.ended().code(), Some(0), "signal first: {signal_first}");
    }
}

#[test]
fn standard_error_names_the_cause_of_an_end() {
    let report = report_of_closed_input(&[]);
    assert!(report.contains("standard input is closed"), "{report}");
}

#[test]
fn topics_of_an_earlier_run_are_taken_if_their_partitions_agree() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let first = Served::start(&["--data-dir", data, "--topics", "orders:3"]);
    block_on(produce(first.bootstrap(), "orders", &["x"]));
    drop(first);
    let second = Served::start(&["--data-dir", data, "--topics", "orders:3,b"]);
    assert_eq!(block_on(consume(second.bootstrap(), "orders", 1)), ["x"]);
    drop(second);
    let report = refused(&["--data-dir", data, "--topics", "orders:4"]);
    for words in ["the topic exists with 3 partitions", "names 4", "orders:3", "--data-dir"] {
        assert!(report.contains(words), "{words}: {report}");
    }
}

#[test]
fn a_rule_that_never_fires_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let rules = written(
        &folder,
        "f.toml",
        "[[rules]]\nname = \"x\"\ntopic = \"orders:3\"\naction = \"close\"\n",
    );
    let report = report_of_closed_input(&["--faults", &rules]);
    assert!(report.contains("rule \"x\" never fires: topic:"), "{report}");
}

#[test]
fn a_proxy_in_front_of_an_unknown_host_reports_it() {
    let mut proxy = Command::new(HIGHWATER)
        .args(["proxy", "-b", "no-such-host.invalid:9092", "--listen", "127.0.0.1:0"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(proxy.stderr.take().unwrap()).lines().map_while(Result::ok);
    let (found, is_found) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let report = "cannot connect to bootstrap server no-such-host.invalid:9092";
        // The test may have given up.
        let _ = found.send({ lines }.any(|line| line.contains(report)));
    });
    let is_reported = is_found.recv_timeout(LIMIT);
    proxy.kill().unwrap();
    proxy.wait().unwrap();
    assert_eq!(is_reported, Ok(true));
}

#[test]
fn half_sent_rules_do_not_keep_the_http_port() {
    let broker = Served::start(&[]);
    let address = broker.field("http").strip_prefix("http://").unwrap();
    let half_sent = || {
        let mut stream = TcpStream::connect(address).unwrap();
        let head = "PUT /faults HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    let mut half_sent: Vec<TcpStream> = (0..16).map(|_| half_sent()).collect();
    let is_served = || {
        let mut answer = String::new();
        let mut stream = TcpStream::connect(address).unwrap();
        let request = "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        let sent = stream.write_all(request.as_bytes());
        sent.and_then(|()| stream.read_to_string(&mut answer)).is_ok_and(|count| count > 0)
    };
    wait_until("a further request is answered", is_served);
    let mut answer = String::new();
    half_sent[0].read_to_string(&mut answer).unwrap();
    assert_eq!(json_error(&parsed(&answer)), (408, "request timeout".to_owned()));
}

#[test]
fn a_proxy_injects_faults_in_front_of_another_broker() {
    let folder = tempfile::tempdir().unwrap();
    let rules = written(
        &folder,
        "f.toml",
        "[[rules]]\nname = \"reset\"\napi = \"Produce\"\noccurrence = \"once\"\naction = \"reset\"\n",
    );
    let broker = Served::start(&["--topics", "t"]);
    let mut proxy = Command::new(HIGHWATER)
        .args(["--log-level", "warn", "proxy", "-b", broker.bootstrap(), "--listen", "127.0.0.1:0"])
        .args(["--metrics-listener", "127.0.0.1:0", "--faults", &rules])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(proxy.stdout.take().unwrap()).lines();
    let mut after = |words: &str| {
        let found =
            |line: std::io::Result<String>| Some(line.ok()?.strip_prefix(words)?.to_owned());
        lines.find_map(found).expect("the proxy announces itself")
    };
    let bootstrap = after("proxy: ");
    let http_at = after("http: http://").split('/').next().unwrap().to_owned();
    block_on(produce(&bootstrap, "t", &["a"]));
    assert_eq!(block_on(consume(&bootstrap, "t", 1)), ["a"]);
    let (code, body) = http(&http_at, "GET", "/faults/reset", "");
    let rule: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((code, rule["matches"].as_u64(), rule["faults"].as_u64()), (200, Some(2), Some(1)));
    kill_process(Pid::from_child(&proxy), Signal::TERM).unwrap();
    assert!(proxy.wait().unwrap().success());
}

/// Sets and returns the committed offset of group `g` in partition 0.
async fn commit(bootstrap: &str, topic: &str, offset: i64) {
    let admin = Admin::new(cluster(bootstrap).await);
    let offset = CommittedOffset::at(Offset(offset));
    let offsets = HashMap::from([(TopicPartition::new(topic, 0), offset)]);
    for (_, committed) in admin.alter_group_offsets("g", &offsets).await.unwrap() {
        committed.unwrap();
    }
}

async fn committed(bootstrap: &str, topic: &str) -> i64 {
    let admin = Admin::new(cluster(bootstrap).await);
    let offsets = admin.group_offsets("g").await.unwrap();
    offsets[&TopicPartition::new(topic, 0)].offset.0
}

#[test]
fn a_fork_has_the_data_of_its_snapshot_and_no_later_data() {
    let broker = Served::start(&["--topics", "t,u:3", "--set", "num.partitions=2"]);
    let parent = broker.bootstrap().to_owned();
    block_on(async {
        produce(&parent, "t", &["a", "b"]).await;
        commit(&parent, "t", 1).await;
    });
    let snapshot = broker.answer(201, "PUT", "/snapshots/before");
    assert_eq!(snapshot["name"], "before");
    assert!(snapshot["bytes"].as_u64().unwrap() > 0 && snapshot["pause_ms"].as_f64().is_some());
    block_on(async {
        produce(&parent, "t", &["c"]).await;
        commit(&parent, "t", 2).await;
    });
    let forks = [broker.fork("before").0, broker.fork("before").0];
    assert!(forks[0] != forks[1] && !forks.contains(&parent));
    block_on(async {
        produce(&forks[0], "t", &["x", "y"]).await;
        produce(&forks[0], "new", &["n"]).await;
        commit(&forks[0], "t", 3).await;
        assert_eq!(consume_alone(&forks[0], "t", 4).await, ["a", "b", "x", "y"]);
        produce(&forks[1], "t", &["z"]).await;
        assert_eq!(consume_alone(&forks[1], "t", 3).await, ["a", "b", "z"]);
        assert_eq!(consume_alone(&parent, "t", 3).await, ["a", "b", "c"]);
        let offsets = [&parent, &forks[0], &forks[1]].map(|at| committed(at, "t"));
        let [of_parent, of_first, of_second] = offsets;
        assert_eq!((of_parent.await, of_first.await, of_second.await), (2, 3, 1));
        let topics = |at: &str| {
            let at = at.to_owned();
            async move {
                let metadata = Admin::new(cluster(&at).await).describe_all().await.unwrap();
                ["u", "new"]
                    .map(|name| metadata.topics.get(name).map_or(0, |it| it.partitions.len()))
            }
        };
        // The settings of the parent are those of its forks.
        assert_eq!(topics(&forks[0]).await, [3, 2]);
        assert_eq!(topics(&forks[1]).await, [3, 0]);
    });
    // The removal of a snapshot changes no fork.
    broker.answer(204, "DELETE", "/snapshots/before");
    assert_eq!(block_on(consume_alone(&forks[1], "t", 3)), ["a", "b", "z"]);
}

#[test]
fn a_snapshot_under_load_loses_nothing_and_the_parent_goes_on() {
    const CLIENTS: usize = 4;
    let broker = Served::start(&["--topics", "t:4", "--set", "log.segment.bytes=1048576"]);
    let parent = broker.bootstrap().to_owned();
    let acknowledged = [const { AtomicUsize::new(0) }; CLIENTS];
    let is_over = AtomicBool::new(false);
    let counts = || acknowledged.each_ref().map(|count| count.load(SeqCst));
    let mut seen: Vec<(String, [usize; CLIENTS])> = Vec::new();
    thread::scope(|scope| {
        for (number, acknowledged) in acknowledged.iter().enumerate() {
            let (parent, is_over) = (&parent, &is_over);
            scope.spawn(move || {
                block_on(async {
                    let config = ProducerConfig::default();
                    let producer = Producer::new(cluster(parent).await, config).await.unwrap();
                    let partition = number as i32;
                    for count in 1.. {
                        if is_over.load(SeqCst) {
                            break;
                        }
                        let value = format!("{count}:{}", "x".repeat(4000));
                        let record = Record {
                            partition: Some(partition),
                            ..Record::value(value.as_bytes())
                        };
                        let delivery = producer.send("t", &record).await.unwrap();
                        producer.flush().await.unwrap();
                        delivery.wait().await.unwrap();
                        acknowledged.store(count, SeqCst);
                    }
                })
            });
        }
        for round in 1..=4 {
            wait_until("records are acknowledged", || counts().iter().all(|it| *it > 100 * round));
            let before = counts();
            broker.answer(201, "PUT", &format!("/snapshots/{round}"));
            let (fork, _) = broker.fork(&round.to_string());
            seen.push((fork, before));
        }
        let before = counts();
        wait_until("the parent goes on", || {
            counts().iter().zip(&before).all(|(now, before)| now > before)
        });
        is_over.store(true, SeqCst);
    });
    seen.push((parent.clone(), counts()));
    for (bootstrap, counts) in &seen {
        for (partition, count) in counts.iter().enumerate() {
            let values = block_on(values_of(bootstrap, "t", partition as i32));
            assert!(values.len() >= *count, "{} of {count}", values.len());
            let values = values.iter().map(|value| value.split(':').next().unwrap());
            let values: Vec<&str> = values.collect();
            let wanted: Vec<String> = (1..=values.len()).map(|it| it.to_string()).collect();
            assert_eq!(values, wanted, "partition {partition}");
        }
    }
}

/// Reads a partition to its end, without a group.
async fn values_of(bootstrap: &str, topic: &str, partition: i32) -> Vec<String> {
    let partition = TopicPartition::new(topic, partition);
    let config =
        ConsumerConfig { offset_reset: OffsetReset::Earliest, ..ConsumerConfig::default() };
    let mut consumer = Consumer::new(cluster(bootstrap).await, config);
    consumer.assign(std::slice::from_ref(&partition)).await.unwrap();
    // A last record shows that the end is reached.
    let producer =
        Producer::new(cluster(bootstrap).await, ProducerConfig::default()).await.unwrap();
    let record = Record { partition: Some(partition.partition.0), ..Record::value(b"end") };
    let delivery = producer.send(topic, &record).await.unwrap();
    producer.flush().await.unwrap();
    delivery.wait().await.unwrap();
    let mut values = Vec::new();
    while values.last().is_none_or(|last| last != "end") {
        poll(&mut consumer, &mut values).await;
    }
    values.pop();
    values
}

#[test]
fn unusable_names_of_snapshots_and_forks_are_refused_in_words() {
    let broker = Served::start(&[]);
    let error = |method: &str, path: &str| json_error(&broker.http(method, path, ""));
    let (code, words) = error("POST", "/snapshots/none/forks");
    assert_eq!((code, &*words), (404, "no snapshot has the name \"none\"; there are no snapshots"));
    broker.answer(201, "PUT", "/snapshots/a");
    let (code, words) = error("PUT", "/snapshots/a");
    assert!(code == 409 && words.contains("a snapshot has the name \"a\""), "{words}");
    let (code, words) = error("DELETE", "/snapshots/b");
    assert!(code == 404 && words.contains("there are \"a\""), "{words}");
    let (code, words) = error("DELETE", "/forks/1");
    assert_eq!((code, &*words), (404, "no fork has the process id 1"));
    assert_eq!(error("PUT", &format!("/snapshots/{}", "x".repeat(201))).0, 400);
    assert_eq!(broker.answer(200, "GET", "/snapshots").as_array().unwrap().len(), 1);
    broker.answer(204, "DELETE", "/snapshots/a");
    assert_eq!(broker.answer(200, "GET", "/snapshots").as_array().unwrap().len(), 0);
    let several = Served::start(&["--brokers", "2"]);
    for path in ["/snapshots", "/snapshots/a", "/snapshots/a/forks", "/forks"] {
        let (code, words) = json_error(&several.http("GET", path, ""));
        assert!(code == 409 && words.contains("leave --brokers out"), "{words}");
    }
}

/// Process and folder of a fork.
fn process_of(fork: &Value) -> (i32, PathBuf) {
    let folder = PathBuf::from(fork["data_dir"].as_str().unwrap());
    assert!(folder.is_dir());
    (fork["pid"].as_i64().unwrap() as i32, folder)
}

#[test]
fn forks_end_alone_or_with_their_test_broker_and_leave_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let variables = [("TMPDIR", folder.path().to_str().unwrap())];
    let mut broker = Served::start_with(&["--topics", "t"], &variables);
    broker.answer(201, "PUT", "/snapshots/a");
    let forks = [broker.fork("a").1, broker.fork("a").1, broker.fork("a").1];
    let [first, second, third] = forks.each_ref().map(process_of);
    broker.answer(204, "DELETE", &format!("/forks/{}", first.0));
    assert!(!is_alive(first.0) && !first.1.exists());
    // A fault that kills a fork kills nothing else.
    let at = forks[1]["http"].as_str().unwrap().strip_prefix("http://").unwrap();
    let rule = r#"{"api": "Metadata", "action": "kill"}"#;
    assert_eq!(http(at, "PUT", "/faults/kill", rule).0, 200);
    let to_kill = forks[1]["bootstrap_servers"].as_str().unwrap();
    let connect = async { Cluster::connect(ClusterConfig::new(to_kill)).await.map(drop) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        tokio::select! {
            _ = connect => {}
            () = async { while is_alive(second.0) { tokio::task::yield_now().await } } => {}
        }
    });
    wait_until("the fork is killed", || !is_alive(second.0));
    // A process has ended when its last thread has.
    let forks = || broker.answer(200, "GET", "/forks");
    wait_until("one fork is left", || forks().as_array().unwrap().len() == 1);
    let listed = forks();
    assert_eq!(listed[0]["pid"].as_i64(), Some(i64::from(third.0)));
    assert_eq!(listed[0]["snapshot"], "a");
    block_on(produce(broker.bootstrap(), "t", &["x"]));
    drop(broker.stdin.take());
    assert_eq!(broker.ended().code(), Some(0));
    assert!(!is_alive(third.0));
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().path()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn forks_of_a_killed_test_broker_end_and_its_snapshots_are_removed_by_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let variables = [("TMPDIR", folder.path().to_str().unwrap())];
    let mut broker = Served::start_with(&["--topics", "t"], &variables);
    broker.answer(201, "PUT", "/snapshots/a");
    let (pid, data) = process_of(&broker.fork("a").1);
    broker.child.kill().unwrap();
    broker.ended();
    wait_until("the fork ends", || !is_alive(pid));
    wait_until("its folder is removed", || !data.exists());
    let next = Served::start_with(&[], &variables);
    let entries = || fs::read_dir(folder.path()).unwrap().count();
    wait_until("only the folder of the next test broker is left", || entries() == 1);
    drop(next);
}
