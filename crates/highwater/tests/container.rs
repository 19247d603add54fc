//! A broker as the images start it: variables of Kafka's images, mounted configuration, ready lines, and the health check.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;

use serde_json::Value;

const HIGHWATER: &str = env!("CARGO_BIN_EXE_highwater");
/// The cluster id of the images' examples.
const CLUSTER_ID: &str = "4L6g3nShT-eMCtK--X86sw";

/// The program with these variables, and none of the test's own.
fn program(folder: &Path, variables: &[(&str, &str)]) -> Command {
    let mut program = Command::new(HIGHWATER);
    program.env_clear().envs(variables.iter().copied()).current_dir(folder).stdin(Stdio::null());
    program
}

/// Values and sources of all keys that are set, by `config explain`.
fn explained(mounted: &Path, variables: &[(&str, &str)]) -> Vec<Value> {
    let output = program(mounted, variables)
        .args(["config", "explain", "--changed", "--format", "json", "--container"])
        .arg(mounted)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn value<'a>(keys: &'a [Value], key: &str) -> &'a str {
    let found = keys.iter().find(|it| it["key"] == key);
    found.and_then(|it| it["value"].as_str()).unwrap_or_else(|| panic!("{key}: {keys:?}"))
}

#[test]
fn variables_of_all_images_are_understood() {
    let folder = tempfile::tempdir().unwrap();
    let apache = [
        ("CLUSTER_ID", CLUSTER_ID),
        (
            "KAFKA_LISTENERS",
            "PLAINTEXT://0.0.0.0:9092,BROKER://0.0.0.0:9093,CONTROLLER://0.0.0.0:9094",
        ),
        ("KAFKA_ADVERTISED_LISTENERS", "PLAINTEXT://localhost:32768,BROKER://c0ffee:9093,"),
        (
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP",
            "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        ),
        ("KAFKA_INTER_BROKER_LISTENER_NAME", "BROKER"),
        ("KAFKA_PROCESS_ROLES", "broker,controller"),
        ("KAFKA_CONTROLLER_LISTENER_NAMES", "CONTROLLER"),
        ("KAFKA_NODE_ID", "1"),
        ("KAFKA_BROKER_ID", "1"),
        ("KAFKA_CONTROLLER_QUORUM_VOTERS", "1@localhost:9094"),
        ("KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR", "1"),
        ("KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS", "1"),
        ("KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR", "1"),
        ("KAFKA_TRANSACTION_STATE_LOG_MIN_ISR", "1"),
        ("KAFKA_LOG_FLUSH_INTERVAL_MESSAGES", "9223372036854775807"),
        ("KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS", "0"),
    ];
    let keys = explained(folder.path(), &apache);
    assert_eq!(value(&keys, "cluster.id"), CLUSTER_ID);
    assert_eq!(value(&keys, "inter.broker.listener.name"), "BROKER");
    assert_eq!(value(&keys, "log.dirs"), "/var/lib/kafka/data");
    assert_eq!(value(&keys, "http.listener"), ":8080");
    let confluent = [
        ("CLUSTER_ID", CLUSTER_ID),
        ("KAFKA_ADVERTISED_LISTENERS", "PLAINTEXT://localhost:9092,INSIDE://kafka:29092"),
        ("KAFKA_LISTENER_SECURITY_PROTOCOL_MAP", "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT"),
        ("KAFKA_LOG_DIRS", "/data"),
        ("KAFKA_HEAP_OPTS", "-Xmx1g"),
        ("KAFKA_OPTS", "-Djava.security.auth.login.config=x"),
    ];
    let keys = explained(folder.path(), &confluent);
    assert_eq!(value(&keys, "listeners"), "PLAINTEXT://:9092,INSIDE://:29092");
    assert_eq!(value(&keys, "log.dirs"), "/data");
    let bitnami = [
        ("ALLOW_PLAINTEXT_LISTENER", "yes"),
        ("KAFKA_ENABLE_KRAFT", "yes"),
        ("KAFKA_KRAFT_CLUSTER_ID", CLUSTER_ID),
        ("KAFKA_CFG_NODE_ID", "0"),
        ("KAFKA_CFG_PROCESS_ROLES", "controller,broker"),
        ("KAFKA_CFG_CONTROLLER_QUORUM_VOTERS", "0@kafka:9093"),
        ("KAFKA_CFG_LISTENERS", "PLAINTEXT://:9092,CONTROLLER://:9093,EXTERNAL://:9094"),
        ("KAFKA_CFG_ADVERTISED_LISTENERS", "PLAINTEXT://kafka:9092,EXTERNAL://localhost:9094"),
        (
            "KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP",
            "CONTROLLER:PLAINTEXT,EXTERNAL:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        ),
        ("KAFKA_CFG_CONTROLLER_LISTENER_NAMES", "CONTROLLER"),
    ];
    let keys = explained(folder.path(), &bitnami);
    assert_eq!((value(&keys, "node.id"), value(&keys, "cluster.id")), ("0", CLUSTER_ID));
    assert!(keys.iter().all(|it| it["status"] != "unknown"), "{keys:?}");
}

#[test]
fn a_mounted_file_is_read_below_the_variables() {
    let folder = tempfile::tempdir().unwrap();
    let file = "log.dir=mounted\nnum.partitions=3\nnode.id=7\n";
    fs::write(folder.path().join("server.properties"), file).unwrap();
    let keys = explained(folder.path(), &[("KAFKA_NODE_ID", "8")]);
    assert_eq!((value(&keys, "num.partitions"), value(&keys, "node.id")), ("3", "8"));
    assert!(keys.iter().all(|it| it["key"] != "log.dirs"), "{keys:?}");
}

#[test]
fn a_mounted_file_that_cannot_be_read_ends_the_command() {
    let folder = tempfile::tempdir().unwrap();
    // Root may enter every folder; a link to itself fails for root, too.
    let file = folder.path().join("server.properties");
    std::os::unix::fs::symlink(&file, &file).unwrap();
    let output = program(folder.path(), &[])
        .args(["config", "explain", "--container"])
        .arg(folder.path())
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{output:?}");
    for words in ["cannot read the configuration file", file.to_str().unwrap(), "let user "] {
        assert!(report.contains(words), "{words}: {report}");
    }
}

/// Variables of each service in a compose file of this repository.
fn services(file: &str) -> Vec<Vec<(String, String)>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/compose");
    let text = fs::read_to_string(folder.join(file)).unwrap();
    let mut services = Vec::new();
    for line in text.lines() {
        if line.trim() == "environment:" {
            services.push(Vec::new());
        }
        let variable = line.trim().split_once(": ");
        let is_name =
            |name: &str| name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
        if let Some((name, value)) = variable.filter(|(name, _)| is_name(name)) {
            services.last_mut().unwrap().push((name.to_owned(), value.to_owned()));
        }
    }
    services
}

#[test]
fn compose_files_have_valid_configurations() {
    let folder = tempfile::tempdir().unwrap();
    for (file, nodes) in
        [("one-broker.yml", &[None][..]), ("three-brokers.yml", &[Some("1"), Some("2"), Some("3")])]
    {
        let services = services(file);
        assert_eq!(services.len(), nodes.len(), "{file}");
        for (variables, node) in services.iter().zip(nodes) {
            let variables: Vec<_> =
                variables.iter().map(|(name, value)| (&**name, &**value)).collect();
            let keys = explained(folder.path(), &variables);
            let found = keys.iter().find(|it| it["key"] == "node.id");
            assert_eq!(found.and_then(|it| it["value"].as_str()), *node, "{file}");
            assert_eq!(value(&keys, "inter.broker.listener.name"), "INSIDE");
            assert!(keys.iter().all(|it| it["status"] != "unknown"), "{file}: {keys:?}");
        }
    }
}

/// A broker that ends with the test.
struct Container {
    child: Child,
    /// Lines up to the last ready line.
    lines: Vec<String>,
}

impl Container {
    /// Starts a broker and waits for the last ready line.
    fn start(folder: &Path, http: &str, variables: &[(&str, &str)]) -> Container {
        let child = program(folder, variables)
            .args(["start", "--data-dir", "data", "--set", "gateway.listener=", "--set"])
            .arg(format!("http.listener={http}"))
            .arg("--container")
            .arg(folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut container = Container { child, lines: Vec::new() };
        for line in BufReader::new(container.child.stdout.take().unwrap()).lines() {
            container.lines.push(line.unwrap());
            if container.lines.last().is_some_and(|line| line.contains("Kafka Server started")) {
                return container;
            }
        }
        panic!("no ready line: {:?}", container.lines);
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn healthcheck(folder: &Path, http: &str, more: &[&str]) -> Output {
    let mut program = program(folder, &[]);
    program.args(["healthcheck", "--set"]).arg(format!("http.listener={http}")).args(more);
    program.output().unwrap()
}

#[test]
fn ready_lines_come_when_the_broker_serves_and_the_health_check_agrees() {
    let folder = tempfile::tempdir().unwrap();
    let variables = [
        ("CLUSTER_ID", CLUSTER_ID),
        ("KAFKA_NODE_ID", "5"),
        ("KAFKA_LISTENERS", "PLAINTEXT://127.0.0.1:0"),
        ("KAFKA_ADVERTISED_LISTENERS", "PLAINTEXT://:0,"),
    ];
    let broker = Container::start(folder.path(), "127.0.0.1:0", &variables);
    let count = |text: &str| broker.lines.iter().filter(|line| line.contains(text)).count();
    assert_eq!(count("Transitioning from RECOVERY to RUNNING"), 1, "{:?}", broker.lines);
    assert_eq!(count("[KafkaServer id=5] started"), 1, "{:?}", broker.lines);
    let after = |start: &str| {
        let found = broker.lines.iter().find_map(|line| line.strip_prefix(start));
        found.unwrap_or_else(|| panic!("{start}: {:?}", broker.lines))
    };
    let at = after("broker: listening on ");
    let made =
        program(folder.path(), &[]).args(["topic", "create", "t", "-b", at]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let http = after("http: http://").split('/').next().unwrap().to_owned();
    for probe in ["readyz", "livez", "healthz"] {
        let checked = healthcheck(folder.path(), &http, &["--probe", probe]);
        assert!(checked.status.success(), "{checked:?}");
        let output = String::from_utf8_lossy(&checked.stdout).into_owned();
        assert!(output.contains(&format!("{http}/{probe}")), "{output}");
    }
    drop(broker);
    let checked = healthcheck(folder.path(), &http, &[]);
    assert_eq!(checked.status.code(), Some(1));
    let report = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(report.contains("no answer from") && report.contains("http.listener"), "{report}");
}

#[test]
fn an_answer_of_503_and_a_silent_port_are_unhealthy() {
    let folder = tempfile::tempdir().unwrap();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = server.local_addr().unwrap().to_string();
    let answering = thread::spawn(move || {
        let (mut stream, _) = server.accept().unwrap();
        let mut head = [0; 1024];
        let count = stream.read(&mut head).unwrap();
        assert!(head[..count].starts_with(b"GET /readyz HTTP/1.1\r\n"));
        let body = "{\"reasons\":[{\"reason\":\"fenced\"}]}";
        write!(stream, "HTTP/1.1 503 x\r\nConnection: close\r\n\r\n{body}").unwrap();
        server
    });
    let checked = healthcheck(folder.path(), &at, &[]);
    assert_eq!(checked.status.code(), Some(1));
    let report = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(report.contains("answers 503") && report.contains("fenced"), "{report}");
    // The system accepts connections of a listener that no thread serves.
    let _silent = answering.join().unwrap();
    let checked = healthcheck(folder.path(), &at, &["--timeout-ms", "50"]);
    let report = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(!checked.status.success() && report.contains("within 50 ms"), "{report}");
    let checked = healthcheck(folder.path(), "", &[]);
    let report = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(!checked.status.success() && report.contains("names no port"), "{report}");
    let checked = program(folder.path(), &[]).arg("healthcheck").output().unwrap();
    let report = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(!checked.status.success() && report.contains("may have moved"), "{report}");
}
