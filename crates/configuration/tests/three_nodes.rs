//! The file of one broker of a production cluster: everything that cannot be used is said at once, and what
//! remains works for a broker that is alone.

use configuration::explain::explain;
use configuration::{Configuration, Loaded, Problem, Sources, Warning};

const FILE: &str = include_str!("../src/testdata/three_nodes.properties");

fn load(text: &str) -> Loaded {
    let sources = Sources::new().file("server.properties", text.as_bytes());
    Configuration::load_all(&sources, false)
}

/// The line of the file on which a key is set.
fn line(key: &str) -> usize {
    FILE.lines().position(|line| line.starts_with(key)).unwrap() + 1
}

#[test]
fn everything_that_is_wrong_is_said_at_once_in_the_order_of_the_file() {
    assert!(FILE.lines().count() > 45);
    let mut problems: Vec<String> = load(FILE).problems().iter().map(Problem::to_string).collect();
    // Kafka keeps it elsewhere, so it is not in the file.
    let cluster_id = problems.remove(0);
    assert!(cluster_id.starts_with("cluster.id: a cluster of several nodes"), "{cluster_id}");
    let expected = [
        ("listeners=", "listener INTERNAL needs SSL or SASL"),
        ("listeners=", "listener EXTERNAL needs SSL or SASL"),
        ("listeners=", "listener CONTROLLER needs SSL or SASL"),
        ("authorizer.class.name=", "would open the cluster"),
        ("log.cleanup.policy=", "expected a list of compact, delete"),
        ("message.max.bytes=", "expected an integer of at least 0"),
    ];
    assert_eq!(problems.len(), expected.len(), "{problems:#?}");
    for (problem, (key, words)) in problems.iter().zip(expected) {
        let place = format!("server.properties:{}: {key}", line(key));
        assert!(problem.starts_with(&place) && problem.contains(words), "{problem}");
    }
    assert!(load(FILE).finish().is_err());
}

#[test]
fn a_file_that_cannot_be_used_is_explained_with_the_reasons() {
    let loaded = load(FILE);
    let all = explain(&loaded.configuration, &loaded.problems());
    let find = |key: &str| all.iter().find(|explained| explained.key == key).unwrap();
    let refused = find("message.max.bytes");
    assert_eq!((refused.status, refused.value.as_deref()), ("refused", Some("ten")));
    assert!(refused.source.starts_with("server.properties:"), "{refused:?}");
    let listeners = find("listeners").why.clone().unwrap();
    assert_eq!(listeners.matches("needs SSL or SASL").count(), 3, "{listeners}");
    assert_eq!(find("num.partitions").status, "honoured");
    assert_eq!(find("num.replica.fetchers").status, "honoured");
    assert_eq!(find("ssl.keystore.password").value.as_deref(), Some("***"));
    let shown: String = all.iter().filter_map(|explained| explained.value.clone()).collect();
    assert!(!shown.contains("hush"), "no password is shown");
}

#[test]
fn once_what_was_said_is_removed_the_rest_works_and_says_what_it_does_instead() {
    let refused = [
        "controller.quorum.voters",
        "listener.security.protocol.map",
        "listeners",
        "advertised.listeners",
        "inter.broker.listener.name",
        "authorizer.class.name",
        "log.cleanup.policy",
        "message.max.bytes",
    ];
    let is_kept = |line: &&str| !refused.contains(&line.split('=').next().unwrap());
    let text: Vec<&str> = FILE.lines().filter(is_kept).collect();
    let (config, warnings) = load(&text.join("\n")).finish().unwrap();
    assert_eq!(config.node_id.0, 2);
    assert_eq!(config.listeners[0].bind.to_string(), ":9092");
    let words: Vec<String> = warnings.iter().map(Warning::to_string).collect();
    let said = |text: &str| assert!(words.iter().any(|w| w.contains(text)), "{text}: {words:#?}");
    said("min.insync.replicas=2: topics here have 1 replica, so 1 in sync is required");
    said("default.replication.factor=3: there is 1 broker");
    said("offsets.topic.replication.factor=3: there is 1 broker");
    said("unknown key log.retention.mss; did you mean log.retention.ms?");
    said("num.io.threads has no effect");
    said("there is no ZooKeeper");
}
