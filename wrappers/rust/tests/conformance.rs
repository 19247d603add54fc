//! The behaviours of `../conformance.json`, each a check, with the command-line client of Highwater.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use highwater_test::{BINARY_VARIABLE, Error, Options, TestBroker, find_binary};

/// Runs a command of the program against a broker. Returns its output.
fn client(broker: &TestBroker, arguments: &[&str], input: &str) -> Result<String, String> {
    let mut command = Command::new(find_binary().unwrap());
    command.args(arguments).args(["-b", &broker.bootstrap_servers()]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

fn produce(broker: &TestBroker, topic: &str, values: &[&str]) {
    client(broker, &["produce", topic], &(values.join("\n") + "\n")).unwrap();
}

fn consume(broker: &TestBroker, topic: &str, count: usize) -> Vec<String> {
    let arguments = ["consume", topic, "--from", "start", "--count", &count.to_string()];
    let mut values: Vec<String> =
        client(broker, &arguments, "").unwrap().lines().map(str::to_owned).collect();
    values.sort();
    values
}

fn refused<T>(result: Result<T, Error>, words: &[&str]) {
    let message = result.err().expect("an error").to_string();
    for word in words {
        assert!(message.contains(word), "{word} is not in: {message}");
    }
}

fn started(topics: &[&str]) -> TestBroker {
    Options::new().topics(topics).start().unwrap()
}

fn serves() {
    let broker = started(&["orders:3", "payments"]);
    for (topic, partitions) in [("orders", 3), ("payments", 1)] {
        let shown = client(&broker, &["topic", "describe", topic, "--format", "json"], "").unwrap();
        assert_eq!(shown.matches("\"leader\":").count(), partitions, "{shown}");
    }
    produce(&broker, "orders", &["a", "b"]);
    assert_eq!(consume(&broker, "orders", 2), ["a", "b"]);
}

fn fields() {
    let broker = Options::new().start().unwrap();
    assert!(broker.bootstrap_servers().starts_with("127.0.0.1:"));
    assert!(broker.http().starts_with("http://127.0.0.1:"));
    assert!(broker.data_dir().is_dir());
    assert!(Path::new(&format!("/proc/{}", broker.pid())).exists());
    assert_eq!((broker.brokers(), broker.version().matches('.').count()), (1, 2));
}

fn finds_binary() {
    let named = std::env::var_os(BINARY_VARIABLE).unwrap();
    // SAFETY: the only test of this program runs its checks one after the other, and no other thread reads the environment.
    unsafe { std::env::set_var(BINARY_VARIABLE, "/nowhere/highwater") };
    let started = Options::new().start();
    unsafe { std::env::set_var(BINARY_VARIABLE, named) };
    refused(started, &[BINARY_VARIABLE, "/nowhere/highwater"]);
}

fn stops() {
    let mut broker = Options::new().start().unwrap();
    assert!(broker.is_running());
    broker.stop();
    broker.stop();
    assert!(!broker.is_running() && !broker.data_dir().exists());
    assert!(!Path::new(&format!("/proc/{}", broker.pid())).exists());
}

fn refused_start() {
    refused(Options::new().topics(&["a:0"]).start(), &["NAME:PARTITIONS"]);
}

fn settings() {
    let broker = Options::new().set("auto.create.topics.enable", "false").start().unwrap();
    let shown =
        client(&broker, &["config", "get", "auto.create.topics.enable", "--broker", "1"], "")
            .unwrap();
    assert!(shown.contains("false"), "{shown}");
}

fn sets_fault() {
    let broker = started(&["orders"]);
    let rule = r#"{"api": "Produce", "occurrence": "once", "action": {"error": {"code": "NOT_LEADER_OR_FOLLOWER"}}}"#;
    broker.set_fault("refused", rule).unwrap();
    produce(&broker, "orders", &["a"]);
    assert_eq!(broker.fault_count("refused").unwrap(), 1);
    assert_eq!(consume(&broker, "orders", 1), ["a"]);
}

fn removes_fault() {
    let broker = Options::new().start().unwrap();
    for name in ["a", "b/c", "d"] {
        broker.set_fault(name, r#"{"api": "Produce", "action": "close"}"#).unwrap();
    }
    broker.remove_fault("b/c").unwrap();
    let rules = broker.faults().unwrap();
    assert!(rules.contains("\"name\":\"d\"") && !rules.contains("b/c"), "{rules}");
    broker.clear_faults().unwrap();
    assert!(broker.faults().unwrap().contains("\"rules\":[]"));
    refused(broker.remove_fault("unheard-of"), &["unheard-of"]);
}

fn refuses_fault() {
    let broker = Options::new().start().unwrap();
    refused(broker.set_fault("x", r#"{"action": "explode"}"#), &["explode", "drop_answer"]);
}

fn faults_at_start() {
    let rule = r#"{"name": "slow", "api": "Fetch", "action": {"delay": {"ms": 5}}}"#;
    let broker = Options::new().fault(rule).seed(11).start().unwrap();
    assert!(broker.fault("slow").unwrap().contains("\"ms\":5"));
    assert!(broker.faults().unwrap().contains("\"seed\":11"));
}

fn two_at_once() {
    let (one, other) = (started(&["t"]), started(&["t"]));
    assert_ne!(one.bootstrap_servers(), other.bootstrap_servers());
    assert_ne!(one.data_dir(), other.data_dir());
    produce(&one, "t", &["one"]);
    produce(&other, "t", &["other"]);
    assert_eq!(consume(&one, "t", 1), ["one"]);
    assert_eq!(consume(&other, "t", 1), ["other"]);
}

fn snapshots() {
    let mut broker = started(&["t"]);
    produce(&broker, "t", &["a"]);
    broker.snapshot("s").unwrap();
    produce(&broker, "t", &["b"]);
    let (mut fork, mut left) = (broker.fork("s").unwrap(), broker.fork("s").unwrap());
    produce(&fork, "t", &["c"]);
    assert_eq!(consume(&fork, "t", 2), ["a", "c"]);
    assert!(fork.is_running() && fork.bootstrap_servers() != broker.bootstrap_servers());
    let has_ended = |fork: &mut TestBroker| {
        let process = format!("/proc/{}", fork.pid());
        !fork.is_running() && !fork.data_dir().exists() && !Path::new(&process).exists()
    };
    fork.stop();
    fork.stop();
    assert!(has_ended(&mut fork) && !has_ended(&mut left));
    assert_eq!(consume(&broker, "t", 2), ["a", "b"]);
    broker.stop();
    left.stop();
    assert!(has_ended(&mut left));
}

fn refuses_snapshot() {
    let broker = Options::new().start().unwrap();
    broker.snapshot("s").unwrap();
    refused(broker.snapshot("s"), &["\"s\""]);
    refused(broker.fork("unheard-of"), &["\"unheard-of\"", "\"s\""]);
    broker.remove_snapshot("s").unwrap();
    broker.snapshot("s").unwrap();
}

#[test]
fn conformance() {
    let checks: BTreeMap<&str, fn()> = BTreeMap::from([
        ("serves", serves as fn()),
        ("fields", fields),
        ("finds-binary", finds_binary),
        ("stops", stops),
        ("refused-start", refused_start),
        ("settings", settings),
        ("sets-fault", sets_fault),
        ("removes-fault", removes_fault),
        ("refuses-fault", refuses_fault),
        ("faults-at-start", faults_at_start),
        ("two-at-once", two_at_once),
        ("snapshots", snapshots),
        ("refuses-snapshot", refuses_snapshot),
    ]);
    let text = std::fs::read_to_string("../conformance.json").unwrap();
    let ids: Vec<&str> =
        text.split("\"id\": \"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(!ids.is_empty());
    for id in ids {
        println!("{id}");
        checks.get(id).unwrap_or_else(|| panic!("no check for {id}"))();
    }
}
