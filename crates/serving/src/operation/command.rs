//! An operation as a command for a shell: what somebody would type who has no console. Where the program has no such command,
//! it is that of Kafka's own tools.

use super::reset::Target;
use super::{Operation, Produce, reassign};
use crate::choice::{BrokerStrategy, Pair, Rule};

/// What reaches the cluster.
#[derive(Debug, Clone, Copy)]
pub struct Reached<'a> {
    /// `host:port`, separated by commas.
    pub bootstrap: &'a str,
    /// A file of properties that lead in, if the cluster wants a login or TLS: Highwater's commands and Kafka's tools take it by
    /// the same option.
    pub config: Option<&'a str>,
    /// The gateway's own URL.
    pub gateway: &'a str,
}

/// The command, on one line but for texts that have several.
pub fn command(operation: &Operation, at: &Reached<'_>) -> String {
    let mut words = Words::default();
    match operation {
        Operation::Produce(produce) => return of_produce(produce, at),
        Operation::CreateTopic { topic, partitions, replicas, settings } => {
            words.plain("highwater topic create");
            words.option("--partitions", partitions.as_ref());
            words.option("--replication-factor", replicas.as_ref());
            words.pairs("--config", settings);
            words.end(at, Some(topic));
        }
        Operation::AddPartitions { topic, total } => {
            words.plain("highwater topic add-partitions");
            words.option("--total", Some(total));
            words.end(at, Some(topic));
        }
        Operation::AlterTopic { topic, set, delete } => {
            words.plain("highwater topic alter");
            words.pairs("--set", set);
            delete.iter().for_each(|key| words.option("--delete", Some(key)));
            words.end(at, Some(topic));
        }
        Operation::DeleteTopic { topic } => {
            words.plain("highwater topic delete");
            words.end(at, Some(topic));
        }
        Operation::MoveGroup { group, topic, target, .. } => {
            of_move(&mut words, at, group, topic.as_deref(), *target);
        }
        Operation::DeleteGroup { group } => {
            words.plain("highwater group delete");
            words.end(at, Some(group));
        }
        Operation::ElectLeaders { topic } => {
            words.plain("highwater cluster elect");
            if topic.is_none() {
                words.plain("--all");
            }
            words.end(at, topic.as_deref());
        }
        Operation::Reassign { moves, throttle } => {
            words.plain(
                "kafka-reassign-partitions.sh --execute --reassignment-json-file /dev/stdin",
            );
            words.option("--throttle", throttle.as_ref());
            words.reach(at);
            words.plain("<<<");
            words.word(&reassign::text_of(moves));
        }
        Operation::CancelMoves { .. } => {
            words.plain("kafka-reassign-partitions.sh --cancel --preserve-throttles --reassignment-json-file moves.json");
            words.reach(at);
        }
        Operation::LiftThrottle => {
            words
                .plain("kafka-reassign-partitions.sh --verify --reassignment-json-file moves.json");
            words.reach(at);
        }
    }
    words.0
}

fn of_move(words: &mut Words, at: &Reached<'_>, group: &str, topic: Option<&str>, target: Target) {
    let to = match target {
        Target::Earliest => "start".to_owned(),
        Target::Latest => "end".to_owned(),
        Target::Offset(offset) => offset.to_string(),
        Target::Time(ms) => format!("ts:{ms}"),
        Target::Shift(by) => {
            words.plain("kafka-consumer-groups.sh --reset-offsets --execute");
            words.option("--shift-by", Some(&by));
            words.option("--group", Some(&group));
            match topic {
                Some(topic) => words.option("--topic", Some(&topic)),
                None => words.plain("--all-topics"),
            }
            return words.reach(at);
        }
    };
    words.plain("highwater group seek");
    words.option("--to", Some(&to));
    words.option("--topic", topic.as_ref());
    words.end(at, Some(group));
}

/// Over HTTP, where the partitioner can be named.
fn of_produce(produce: &Produce, at: &Reached<'_>) -> String {
    let mut words = Words::default();
    words.plain("curl");
    words.word(&format!("{}/topics/{}{}", at.gateway, in_path(&produce.topic), query(produce)));
    words.option("--header", Some(&"Content-Type: application/vnd.kafka.text.v2+json"));
    let (key, value) = produce.record(0);
    let mut record = serde_json::Map::new();
    let mut put = |name: &str, text: Option<String>| {
        if let Some(text) = text {
            record.insert(name.to_owned(), text.into());
        }
    };
    put("key", key);
    put("value", value);
    if let Some(partition) = produce.partition {
        record.insert("partition".to_owned(), partition.into());
    }
    if !produce.headers.is_empty() {
        use base64::Engine;
        let header = |(name, value): &(String, String)| {
            let value = base64::engine::general_purpose::STANDARD.encode(value);
            serde_json::json!({ "key": name, "value": value })
        };
        let headers: Vec<_> = produce.headers.iter().map(header).collect();
        record.insert("headers".to_owned(), headers.into());
    }
    words.option("--data", Some(&serde_json::json!({ "records": [record] }).to_string()));
    if produce.count > 1 {
        words.0.push_str(&format!("   # the first of {} records", produce.count));
    }
    words.0
}

fn query(produce: &Produce) -> String {
    let Rule::Chosen(Pair { broker, partition }) = produce.rule else { return String::new() };
    let broker = broker.map(BrokerStrategy::name).map(|name| format!("broker={name}"));
    // Also where it is the default: the topic may have another one of its own.
    let partitioner = format!("partitioner={}", partition.name());
    let parts: Vec<String> = broker.into_iter().chain([partitioner]).collect();
    format!("?{}", parts.join("&"))
}

/// Names of topics have no other characters, but a text need not be one.
fn in_path(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    name.bytes()
        .map(
            |byte| {
                if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }
            },
        )
        .collect()
}

/// Words of a command line.
#[derive(Default)]
struct Words(String);

impl Words {
    /// Text that no shell changes.
    fn plain(&mut self, text: &str) {
        if !self.0.is_empty() {
            self.0.push(' ');
        }
        self.0.push_str(text);
    }

    /// One word, whatever is in it.
    fn word(&mut self, text: &str) {
        let quoted = quoted(text);
        self.plain(&quoted);
    }

    fn option(&mut self, name: &str, value: Option<&impl ToString>) {
        if let Some(value) = value {
            let value = value.to_string();
            // What begins with a dash would be taken for an option.
            if value.starts_with('-') {
                self.plain(&format!("{name}={}", quoted(&value)));
            } else {
                self.plain(name);
                self.word(&value);
            }
        }
    }

    fn pairs(&mut self, name: &str, pairs: &[(String, String)]) {
        for (key, value) in pairs {
            self.option(name, Some(&format!("{key}={value}")));
        }
    }

    /// Where the cluster is, and what leads in.
    fn reach(&mut self, at: &Reached<'_>) {
        self.option("--bootstrap-server", Some(&at.bootstrap));
        self.option("--command-config", at.config.as_ref());
    }

    /// The same, then a name that may look like an option.
    fn end(&mut self, at: &Reached<'_>, name: Option<&str>) {
        self.reach(at);
        if let Some(name) = name {
            if name.starts_with('-') {
                self.plain("--");
            }
            self.word(name);
        }
    }
}

/// A word as POSIX shells read it; control characters as bash and zsh do.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/:,=+@%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    if !text.chars().any(char::is_control) {
        return format!("'{}'", text.replace('\'', "'\\''"));
    }
    let mut out = String::from("$'");
    for c in text.chars() {
        match c {
            '\'' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => {
                c.encode_utf8(&mut [0; 4])
                    .bytes()
                    .for_each(|byte| out.push_str(&format!("\\x{byte:02x}")));
            }
            c => out.push(c),
        }
    }
    out.push('\'');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::Strategy;

    const AT: Reached<'static> =
        Reached { bootstrap: "kafka-1:9092", config: None, gateway: "http://127.0.0.1:8082" };

    #[test]
    fn commands_are_those_that_one_types() {
        let text = str::to_owned;
        for (operation, line) in [
            (
                Operation::CreateTopic {
                    topic: text("orders"),
                    partitions: Some(3),
                    replicas: None,
                    settings: vec![(text("retention.ms"), text("1000"))],
                },
                "highwater topic create --partitions 3 --config retention.ms=1000 --bootstrap-server kafka-1:9092 orders",
            ),
            (
                Operation::DeleteTopic { topic: text("-rf") },
                "highwater topic delete --bootstrap-server kafka-1:9092 -- -rf",
            ),
            (
                Operation::DeleteGroup { group: text("it's $(here)\n") },
                "highwater group delete --bootstrap-server kafka-1:9092 $'it\\'s $(here)\\n'",
            ),
            (
                Operation::MoveGroup {
                    group: text("a b"),
                    topic: None,
                    target: Target::Time(7),
                    rows: Vec::new(),
                },
                "highwater group seek --to ts:7 --bootstrap-server kafka-1:9092 'a b'",
            ),
            (
                Operation::MoveGroup {
                    group: text("g"),
                    topic: Some(text("t")),
                    target: Target::Shift(-5),
                    rows: Vec::new(),
                },
                "kafka-consumer-groups.sh --reset-offsets --execute --shift-by=-5 --group g --topic t --bootstrap-server kafka-1:9092",
            ),
            (
                Operation::ElectLeaders { topic: None },
                "highwater cluster elect --all --bootstrap-server kafka-1:9092",
            ),
        ] {
            assert_eq!(command(&operation, &AT), line);
        }
    }

    #[test]
    fn a_login_is_a_file_for_whichever_tool() {
        let at = Reached { config: Some("/etc/it's mine.properties"), ..AT };
        let told = |operation: &Operation| command(operation, &at);
        assert_eq!(
            told(&Operation::DeleteTopic { topic: "orders".to_owned() }),
            "highwater topic delete --bootstrap-server kafka-1:9092 --command-config '/etc/it'\\''s mine.properties' orders"
        );
        assert!(told(&Operation::LiftThrottle).ends_with(
            " --bootstrap-server kafka-1:9092 --command-config '/etc/it'\\''s mine.properties'"
        ));
        let moves = Operation::Reassign { moves: Vec::new(), throttle: None };
        assert!(told(&moves).contains("mine.properties' <<< "), "{}", told(&moves));
    }

    #[test]
    fn the_partitioner_is_named_for_a_topic_may_have_another_of_its_own() {
        let produce = Produce {
            topic: "t".to_owned(),
            key: None,
            value: None,
            headers: Vec::new(),
            count: 1,
            rule: Rule::Chosen(Pair::default()),
            partition: None,
        };
        let told = command(&Operation::Produce(produce.clone()), &AT);
        assert!(told.contains("/topics/t?partitioner=murmur2' "), "{told}");
        let given = Produce { rule: Rule::Given, partition: Some(3), ..produce };
        let told = command(&Operation::Produce(given), &AT);
        assert!(told.contains("/topics/t --header"), "{told}");
    }

    #[test]
    fn records_are_sent_over_http() {
        let pair = Pair { broker: Some(BrokerStrategy::RoundRobin), partition: Strategy::Cs6Mod };
        let produce = Produce {
            topic: "t".to_owned(),
            key: Some("k{n}".to_owned()),
            value: Some("it's".to_owned()),
            headers: vec![("h".to_owned(), "1".to_owned())],
            count: 2,
            rule: Rule::Chosen(pair),
            partition: None,
        };
        assert_eq!(
            command(&Operation::Produce(produce), &AT),
            "curl 'http://127.0.0.1:8082/topics/t?broker=round-robin&partitioner=cs6-mod' --header \
             'Content-Type: application/vnd.kafka.text.v2+json' --data \
             '{\"records\":[{\"headers\":[{\"key\":\"h\",\"value\":\"MQ==\"}],\"key\":\"k0\",\"value\":\"it'\\''s\"}]}'   \
             # the first of 2 records"
        );
    }

    #[test]
    fn nothing_in_a_word_reaches_the_shell() {
        for (text, word) in [
            ("", "''"),
            ("a;b", "'a;b'"),
            ("`x`", "'`x`'"),
            ("'", "''\\'''"),
            ("\u{7f}\\", "$'\\x7f\\\\'"),
        ] {
            assert_eq!(quoted(text), word);
        }
    }
}
