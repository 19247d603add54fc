//! `log adopt`, `log mend` and `log strays` on data folders of stopped brokers, Kafka's among them.

mod transactions;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{Broker, HIGHWATER, failure};

/// Every file below a folder, with its bytes.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => drop(found.insert(path.clone(), fs::read(&path).unwrap())),
        }
    }
    found
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let to = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy(&path, &to),
            false => drop(fs::copy(&path, &to).unwrap()),
        }
    }
}

/// A copy of a data folder that Kafka 4.3.1 left.
fn kafka(how: &str, folder: &Path) -> PathBuf {
    let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stopped_folder/kafka-4.3.1");
    let to = folder.join(how);
    copy(&stored.join(how), &to);
    to
}

/// Runs a command on folders; it must succeed. What it wrote to standard output.
fn run(arguments: &[&str]) -> String {
    let output = Command::new(HIGHWATER).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that must fail with exit code 1; what it wrote to standard error.
fn fail(arguments: &[&str]) -> String {
    failure(Command::new(HIGHWATER).args(arguments).output().unwrap())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The values of a topic, partition by partition, sorted.
fn values(broker: &Broker, topic: &str) -> Vec<String> {
    let out = broker.run(&format!("consume {topic} --until-end -f %k=%v\\n"));
    let mut values: Vec<String> = out.lines().map(str::to_owned).collect();
    values.sort();
    values
}

const GROUPS: &[&str] = &["offsets.topic.num.partitions=4"];

#[test]
fn partitions_of_kafka_are_adopted_with_their_records_and_offsets() {
    for how in ["clean", "killed"] {
        let folder = tempfile::tempdir().unwrap();
        let (data, source) = (folder.path().join("data"), kafka(how, folder.path()));
        let before = files(&source);
        let broker = Broker::start_with(&data, GROUPS);
        broker.run("topic create orders -p 2 -c retention.ms=-1");
        broker.run("topic create moves -p 1 -c retention.ms=-1");
        broker.run("topic create prices -p 1 -c cleanup.policy=compact");
        broker.fail("group describe any");
        broker.stop();
        for topic in ["orders", "moves", "prices", "__consumer_offsets"] {
            let adopt = ["log", "adopt", text(&source), "--topic", topic, "--into", text(&data)];
            let said = run(&adopt);
            assert!(said.contains(" records "), "{said}");
            let again = run(&adopt);
            assert!(
                again.lines().all(|line| line.contains("already") || line.contains("0 records")),
                "{again}"
            );
        }
        for kill in [true, false] {
            let broker = Broker::start_with(&data, GROUPS);
            check_adopted(&broker);
            if kill { drop(broker) } else { broker.stop() }
        }
        assert!(files(&source) == before, "the source is as it was");
    }
}

fn check_adopted(broker: &Broker) {
    let mut orders: Vec<String> = (1..=120).map(|n| format!("k{n}=order-{n}")).collect();
    orders.sort();
    let found = values(broker, "orders");
    assert!(found == orders || found.len() > 120, "{found:?}");
    let prices = values(broker, "prices");
    let due: Vec<String> = (1..=20).map(|n| format!("p{n}=round-3-{n}")).collect();
    assert!(due.iter().all(|price| prices.contains(price)), "{prices:?}");
    assert_eq!(values(broker, "moves").len(), 74);
    let group = broker.run("group describe readers --format json");
    let group: serde_json::Value = serde_json::from_str(&group).unwrap();
    let text = group.to_string();
    assert!(text.contains(r#""current_offset":70"#), "{text}");
    assert!(text.contains(r#""current_offset":5"#), "{text}");
    // What is appended now, by a producer with an id of this cluster, comes behind.
    let end = values(broker, "orders").len();
    broker.produce("produce orders -p 0 --key-separator :", b"k1:new\n");
    assert_eq!(values(broker, "orders").len(), end + 1);
}

#[test]
fn a_data_folder_of_kafka_is_refused_and_nothing_in_it_is_changed() {
    let folder = tempfile::tempdir().unwrap();
    let source = kafka("killed", folder.path());
    let before = files(&source);
    let said =
        fail(&["start", "--data-dir", text(&source), "--set", "listeners=PLAINTEXT://127.0.0.1:0"]);
    assert!(said.contains("is a data folder of Apache Kafka"), "{said}");
    assert!(said.contains("highwater log adopt"), "{said}");
    let said = fail(&["log", "strays", text(&source)]);
    assert!(said.contains("is not a data folder of Highwater"), "{said}");
    assert!(files(&source) == before);
}

#[test]
fn what_cannot_be_adopted_is_refused_before_anything_is_changed() {
    let folder = tempfile::tempdir().unwrap();
    let (data, source) = (folder.path().join("data"), kafka("clean", folder.path()));
    let broker = Broker::start_with(&data, &["offsets.topic.num.partitions=2"]);
    broker.run("topic create orders -p 1");
    broker.run("topic create full -p 2");
    broker.produce("produce full -p 0", b"a record\n");
    broker.fail("group describe any");
    let adopt = |topic: &str, more: &[&str]| {
        let usual = ["log", "adopt", text(&source), "--topic", topic, "--into", text(&data)];
        fail(&[&usual[..], more].concat())
    };
    assert!(adopt("orders", &[]).contains("stop the broker first"));
    broker.stop();
    let before = files(&data);
    for (said, hint) in [
        (adopt("orders", &[]), "add-partitions orders --total 2"),
        (adopt("prices", &[]), "topic create prices --partitions 1"),
        (adopt("nothing", &[]), "topics there: "),
        (adopt("full", &["--source-topic", "orders"]), "has records already"),
        (adopt("__transaction_state", &[]), "another cluster"),
    ] {
        assert!(said.contains(hint), "{said}");
    }
    assert!(files(&data) == before);
}

#[test]
fn a_refused_partition_is_mended() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let broker = Broker::start_in(&data);
    broker.run("topic create t -p 2");
    for round in 0..5 {
        let lines: String = (0..10).map(|n| format!("{}\n", round * 10 + n)).collect();
        broker.produce("produce t -p 0", lines.as_bytes());
    }
    broker.stop();
    let segment = data.join("t-0/00000000000000000000.log");
    let bytes = fs::read(&segment).unwrap();
    fs::write(&segment, &bytes[..bytes.len() / 2]).unwrap();

    let mend = ["log", "mend", text(&data), "--partition", "t-0"];
    let broker = Broker::start_in(&data);
    assert!(broker.get("/healthz").contains("t-0"));
    assert!(broker.get("/metrics").contains("\nhighwater_partitions_refused 1.0\n"));
    assert!(fail(&mend).contains("stop the broker first"));
    broker.stop();

    let damaged = files(&data.join("t-0"));
    let shown = Command::new(HIGHWATER).args(mend).stdin(Stdio::null()).output().unwrap();
    assert_eq!(shown.status.code(), Some(1));
    let said = String::from_utf8(shown.stdout).unwrap();
    assert!(said.contains("t-0 is refused: ") && said.contains("lost: offsets "), "{said}");
    assert_eq!(files(&data.join("t-0")), damaged, "showing changes nothing");

    let said = run(&[&mend[..], &["--yes"]].concat());
    let kept = said.lines().find_map(|line| line.strip_prefix("its folder as it was is kept: "));
    let kept = PathBuf::from(kept.expect("the folder is kept"));
    let bytes_of = |files: BTreeMap<PathBuf, Vec<u8>>| Vec::from_iter(files.into_values());
    assert_eq!(bytes_of(files(&kept)), bytes_of(damaged));
    assert!(run(&mend).contains("nothing is to be mended"));

    for start in 0..2 {
        let broker = Broker::start_in(&data);
        let out = broker.run("consume t -p 0 --until-end -f %o=%v\\n");
        let found: Vec<&str> = out.lines().collect();
        assert!(found.len() > 10 && found.len() < 40, "{out}");
        assert!(found.iter().take(10).enumerate().all(|(n, line)| *line == format!("{n}={n}")));
        broker.produce("produce t -p 0", b"new\n");
        let out = broker.run("consume t -p 0 --until-end -f %o=%v\\n");
        assert!(out.ends_with(&format!("{}=new\n", 50 + start)), "no offset is given twice: {out}");
        assert!(!broker.get("/healthz").contains("t-0:"));
        broker.stop();
    }
    let strays = run(&["log", "strays", text(&data), "--format", "json"]);
    assert!(strays.contains("-before-mend") && strays.contains("log mend"), "{strays}");
}

#[test]
fn strays_are_listed_brought_back_moved_and_deleted_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let broker = Broker::start_in(&data);
    broker.run("topic create t -p 1");
    broker.run("topic create back -p 1");
    broker.produce("produce t", b"one\ntwo\n");
    broker.stop();
    for name in ["gone-0", "left-0"] {
        copy(&data.join("t-0"), &data.join(name));
    }
    let strays = ["log", "strays", text(&data)];
    let said = run(&strays);
    let listed = |said: &str, name: &str| said.lines().any(|line| line.starts_with(name));
    assert!(listed(&said, "gone-0") && listed(&said, "left-0") && !listed(&said, "t-0"), "{said}");
    assert!(said.contains("neither the journal nor the metadata knows it"), "{said}");
    assert!(said.contains(&format!("log adopt {}/gone-0 --topic gone --into", text(&data))));

    let source = data.join("gone-0");
    run(&["log", "adopt", text(&source), "--topic", "back", "--into", text(&data)]);
    let broker = Broker::start_in(&data);
    assert_eq!(values(&broker, "back").len(), 2);
    assert!(broker.get("/healthz").contains("gone-0"), "a start leaves strays and reports them");
    assert!(broker.get("/healthz").starts_with("HTTP/1.1 200"), "and serves all the same");
    assert!(broker.get("/metrics").contains("\nhighwater_stray_folders 2.0\n"));
    broker.stop();

    let elsewhere = folder.path().join("elsewhere");
    let refused = fail(&[&strays[..], &["--delete", "gone-0", "--delete", "t-0"]].concat());
    assert!(refused.contains("t-0 is not a stray"), "{refused}");
    assert!(source.exists(), "nothing is done if one of the names is wrong");
    run(&[&strays[..], &["--delete", "gone-0"]].concat());
    run(&[&strays[..], &["--move", "left-0", "--to", text(&elsewhere)]].concat());
    assert!(!source.exists() && !data.join("left-0").exists());
    assert!(elsewhere.join("left-0/00000000000000000000.log").exists());
    assert!(!run(&strays).contains("-0"));
    assert!(data.join("t-0").exists());
}
