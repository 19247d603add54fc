//! docs/compatibility.md, made of what is true: the table of served APIs with the head comment of each
//! handler, and the rows that the real clients left in docs/clients.json.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::Args;
use wire::ApiKey;

use crate::bridge::steps::{Recording, Step};
use crate::clients::RESTARTS;
use crate::clients::report::{Ending, Row, Run};
use crate::tidy;

const DOCUMENT: &str = "docs/compatibility.md";
const HANDLERS: &str = "crates/broker/src/handlers";
const CLIENTS: &str = "docs/clients.json";
/// Served, but not through the table's macro.
const HOT: [(&str, &str); 2] = [("Produce", "produce"), ("Fetch", "fetch")];
/// librdkafka needs Produce offered from version 0 (KAFKA-18659).
const PRODUCE_ADVERTISED_FROM: i16 = 0;

/// What to do with the document.
#[derive(Args)]
pub struct Arguments {
    /// Only check that the document is what would be written
    #[arg(long)]
    check: bool,
}

/// Writes the document, or checks it.
pub fn run(arguments: &Arguments) -> Result<()> {
    let root = tidy::root()?;
    if arguments.check {
        return stale(&root)?.map_or(Ok(()), |finding| bail!(finding));
    }
    fs::write(root.join(DOCUMENT), document(&root)?).context("cannot write docs/compatibility.md")
}

/// What [`tidy`] says of a document that is not what would be written now.
pub fn stale(root: &Path) -> Result<Option<String>> {
    let found = fs::read_to_string(root.join(DOCUMENT)).unwrap_or_default();
    let is_fresh = found == document(root)?;
    Ok((!is_fresh).then(|| format!("{DOCUMENT} is not fresh: run cargo xt compatibility")))
}

fn document(root: &Path) -> Result<String> {
    let mut text = String::from(HEAD);
    text.push_str("| API | key | versions | notes |\n|---|---|---|---|\n");
    for (api, module) in served(root)? {
        let notes = notes(&fs::read_to_string(root.join(HANDLERS).join(format!("{module}.rs")))?);
        let min = if api == ApiKey::Produce { PRODUCE_ADVERTISED_FROM } else { api.min_version() };
        writeln!(text, "| {api} | {} | {min}–{} | {notes} |", api.code(), api.max_version())?;
    }
    text.push_str(NOT_SERVED);
    text.push_str(&bridge(root)?);
    text.push_str(BEHIND_THE_GATEWAY);
    let clients = fs::read_to_string(root.join(CLIENTS)).unwrap_or_else(|_| "{}".to_owned());
    let runs: BTreeMap<String, Run> = serde_json::from_str(&clients)?;
    for (target, run) in &runs {
        writeln!(text, "\n## Real clients against {target} {}\n", run.version)?;
        match run.rows.iter().all(|row| row.scenario == RESTARTS || row.version.is_empty()) {
            true => told_table(&mut text, run)?,
            false => client_table(&mut text, run)?,
        }
    }
    Ok(text)
}

/// What the gateway answers otherwise than Strimzi's bridge, and why.
fn bridge(root: &Path) -> Result<String> {
    let folder = root.join("conformance/bridge");
    let steps: Vec<Step> = serde_json::from_slice(&fs::read(folder.join("steps.json"))?)?;
    let theirs: Recording = serde_json::from_slice(&fs::read(folder.join("strimzi.json"))?)?;
    let explained: Vec<&Step> = steps.iter().filter(|step| step.why.is_some()).collect();
    let mut text = format!(
        "\n### Beside Strimzi's bridge {}\n\nOf {} requests, asked one after the other in front of the same Apache Kafka {}, {} have the same status, type, error code \
         and shape (`cargo xt bridge`). The others, with the status there and here:\n\n| why | requests |\n|---|---|\n",
        theirs.bridge,
        steps.len(),
        theirs.kafka,
        steps.len() - explained.len(),
    );
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for step in explained {
        let their = theirs.answers.get(&step.name).context("a step without an answer")?;
        let (status, code) = step.here.context("a reason without what is answered here")?;
        let code = code.filter(|code| *code != i64::from(status));
        let code = code.map_or(String::new(), |code| format!(" ({code})"));
        let why = step.why.as_deref().unwrap_or_default();
        let request = format!("{}: {}, {status}{code}", step.name, their.status);
        match reasons.iter_mut().find(|(known, _)| *known == why) {
            Some((_, requests)) => requests.push(request),
            None => reasons.push((why, vec![request])),
        }
    }
    for (why, requests) in reasons {
        writeln!(text, "| {why} | {} |", requests.join("; "))?;
    }
    Ok(text)
}

/// The served APIs by number, each with the module of its handler.
fn served(root: &Path) -> Result<Vec<(ApiKey, String)>> {
    let table = fs::read_to_string(root.join(HANDLERS).join("table.rs"))?;
    let body = table.split_once("\nserved! {").context("the table has no entries")?.1;
    let body = body.split_once("\n}").context("the table has no end")?.0;
    let lines = body.lines().filter_map(|line| {
        let (api, handler) = line.trim().trim_end_matches(',').split_once(" => ")?;
        Some((api.to_owned(), handler.split_once("::")?.0.to_owned()))
    });
    let hot = HOT.iter().map(|(api, module)| ((*api).to_owned(), (*module).to_owned()));
    let mut served = Vec::new();
    for (name, module) in hot.chain(lines) {
        let api = ApiKey::all().iter().copied().find(|api| api.name() == name);
        served.push((api.with_context(|| format!("there is no API {name}"))?, module));
    }
    served.sort_by_key(|(api, _)| api.code());
    Ok(served)
}

/// The head comment behind its first clause, as one line.
fn notes(source: &str) -> String {
    let head: Vec<&str> = source
        .lines()
        .take_while(|line| line.starts_with("//!"))
        .map(|line| line.trim_start_matches("//!").trim())
        .collect();
    head.join(" ").replace('|', "\\|").replace(" - ", "<br>- ").trim().to_owned()
}

/// What each client told its user while brokers were killed, or why it failed.
fn told_table(text: &mut String, run: &Run) -> Result<()> {
    text.push_str(WHILE_KILLED);
    for row in &run.rows {
        let reason = row.reason.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let word = match row.result {
            Ending::Pass => "holds",
            Ending::Fail => "fails",
            Ending::Skip => "skipped",
        };
        let reason = reason.replace('|', "\\|");
        writeln!(text, "| {} | {} | {word} | {reason} |", row.client, row.version)?;
    }
    Ok(())
}

fn client_table(text: &mut String, run: &Run) -> Result<()> {
    let mut clients: BTreeMap<(&str, &str), Vec<&Row>> = BTreeMap::new();
    for row in run.rows.iter().filter(|row| !row.version.is_empty()) {
        clients.entry((&row.client, &row.version)).or_default().push(row);
    }
    writeln!(
        text,
        "| client | version | pass | fail | skip | what passed |\n|---|---|---|---|---|---|"
    )?;
    for ((client, version), rows) in &clients {
        let count = |ending| rows.iter().filter(|row| row.result == ending).count();
        let passed: Vec<&str> = rows
            .iter()
            .filter(|row| row.result == Ending::Pass)
            .map(|row| row.scenario.as_str())
            .collect();
        let (pass, fail, skip) = (count(Ending::Pass), count(Ending::Fail), count(Ending::Skip));
        writeln!(
            text,
            "| {client} | {version} | {pass} | {fail} | {skip} | {} |",
            passed.join(", ")
        )?;
    }
    let others: Vec<&Row> = run.rows.iter().filter(|row| row.result != Ending::Pass).collect();
    if !others.is_empty() {
        writeln!(text, "\n| did not pass | scenario | why |\n|---|---|---|")?;
    }
    for row in others {
        let reason = row.reason.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let word = if row.result == Ending::Fail { "failed" } else { "skipped" };
        let reason = reason.replace('|', "\\|");
        writeln!(text, "| {} | {} | {word}: {reason} |", row.client, row.scenario)?;
    }
    Ok(())
}

const WHILE_KILLED: &str = "Each client sends numbered records for 35 seconds and reads them in a group. What was acknowledged is there once, in
order, at the offset that the producer was told, and the group sees it, or the client fails. The last column is what the client
told its user meanwhile, and how often.

| client | version | | told |
|---|---|---|---|
";

const HEAD: &str = "# Compatibility

Written by `cargo xt compatibility` out of the table of served APIs and of what real clients did
(`cargo xt clients`); not to be edited. What is not in the table is not advertised to clients.

## APIs

";

const NOT_SERVED: &str = "
## What is not served

- Transactions: a transactional id is refused by FindCoordinator and InitProducerId with UNSUPPORTED_VERSION. Topics that `log adopt` took
  over from Kafka may hold transactions: Fetch with `read_committed` names the aborted ones, and offsets that groups committed in aborted
  transactions do not count.
- Groups: clusters founded before `highwater.version` 4 place groups on the partitions of `__consumer_offsets` by another formula than Kafka
  does. Clients do not see the difference.
- TLS, SASL and ACLs: listeners other than PLAINTEXT are refused when the broker starts. (Highwater's own clients speak
  TLS and SASL to other brokers: [gateway.md](gateway.md#in-front-of-a-protected-cluster).)
- The newer group protocols (KIP-848, share groups, streams groups), quotas, tiered storage.
- Replicas that move: reassignments are refused, and a broker that leaves for good keeps its replicas in the metadata.
- Reading from followers (KIP-392).

What is not there has a legal answer where tools and consoles ask for it: no access rules (SECURITY_DISABLED), no
quotas, no passwords, no delegation tokens, no transactions, no reassignments. To set a quota or a password is
refused in words, because it would not be obeyed.

## The gateway

[docs/gateway.md](gateway.md) has the paths. Of Confluent's REST proxy and Strimzi's bridge: producing in v2 (json, binary, text) and v3 (BINARY, JSON, STRING), streams included;
CloudEvents 1.0 by their HTTP and Kafka protocol bindings. Where it differs:

- `__consumer_offsets` and the like are not written to, and fields of a record that are not known are refused; the proxies ignore them.
- Where no record of a request was written, for one reason, the answer has that reason's status; the proxies answer 200.
- JSON keys and values keep the text of their numbers and strings; the proxies write them anew (`1.0` may become `1`).
- v3: the cluster's id must be the one of the cluster; a key or value needs a `type`; one record that fails has its error's status. The gateway's `/v3/clusters` has ids and nothing else.
- Consumer instances of v2 are served. A `topic_pattern` is a regular expression without references back and looking around, of Rust's `regex` and not of Java, and matches topics within seconds of their creation, not within minutes; a subscription to topics or to a pattern is not replaced by one of the other kind before `DELETE`. An offset in a commit is the next one to read, as in Strimzi's bridge; Confluent's proxy adds one. An instance joins its group again by itself; the proxies wait for a read.
- Avro, Protobuf and JSON Schema are not served. Of administration over HTTP creating a topic is, of v3 producing and the cluster's id; server-sent events are, with KafkaSSE's ids if wanted.
- Of Pulsar's WebSocket API: producer, reader and consumer under `/ws/v2`, tenant and namespace `public/default`. A subscription is a consumer group, so `Key_Shared`, dead-letter topics and acknowledgement
  time-outs are not served, and after a reconnect a consumer gets again what lies above the lowest message that is not acknowledged. `messageId` is base64 of `topic:partition:offset`.
";

const BEHIND_THE_GATEWAY: &str = "
## The proxy

`highwater proxy` stands between any client and any cluster that speak Kafka's protocol without TLS: [gateway.md](gateway.md#the-proxy-of-kafkas-protocol). All
clients of the tables below go through it, in front of Highwater and of Apache Kafka. What differs from a broker: the versions offered end where answers could not be rewritten; SaslHandshake begins with version 1; Fetch answers of more than 256 KiB name no new leader's address.

## Highwater's clients

The commands, the gateway, the console and the performance tools read a file of properties as Kafka's tools do; `cargo xt secured` gives the same files to both. Where they differ:

- Stores are PEM; JKS and PKCS12 are refused with the command that exports them. So are keys with a password, and Java classes.
- PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512; neither GSSAPI nor OAUTHBEARER, nor delegation tokens. Names and passwords of SCRAM are printable ASCII.
- A certificate is matched by its subjectAltName, never by its common name. A certificate of an authority is not a broker's own, though it be trusted.
- Without a trust store the system's authorities are trusted, not those of a Java runtime.

## Where it differs from Kafka

- `durability=fsync`, the default: `acks=all` waits for the device, and a record is visible to consumers when it is synced.
  `durability=page-cache` is Kafka's contract.
- Every record of every batch is looked into, as in Kafka (`records.validation=header` spares those of compressed batches),
  but a compressed batch may expand to at most `records.expanded.max.bytes`; Kafka has no bound. Offsets that are not 0, 1,
  2… are refused in uncompressed batches too (Kafka stores them as they are), and a record that cannot be decompressed is
  INVALID_RECORD (Kafka: UNKNOWN_SERVER_ERROR).
- A delete horizon in a producer's batch is taken off; Kafka stores it, and its cleaner then drops tombstones early.
- `__admin_client` may not write to internal topics: any client may call itself so.
- The internal topics keep the number of partitions that they were created with: CreatePartitions answers POLICY_VIOLATION.
  Kafka adds partitions, and finds groups by the number there was when the coordinator started.
- OffsetFetch leaves out what was committed for an earlier topic of the same name.
- ListGroups answers COORDINATOR_NOT_AVAILABLE, with the groups that are known, while the groups of a partition of
  `__consumer_offsets` cannot be loaded; Kafka leaves them out of the list.
- A member that is turned away with GROUP_MAX_SIZE_REACHED does not hold the others up.
- Auto-created topics are in the very answer to the Metadata request that created them; Kafka asks clients to come again.
- Memory is bounded (docs/decisions/0015, 0065, 0066): under pressure the request that arrives most slowly loses its connection,
  a join for which there is no room is answered COORDINATOR_NOT_AVAILABLE, as is a commit of offsets for further partitions,
  members of addresses above their share of a full pool must join again, a connection that hardly reads a large answer is
  closed while others wait for its memory, and a Fetch that names more than twice the partitions there are (and 4,096)
  closes its connection. A fetch session ends with the only connection that used it.
- Clients on the broker's own machine have sixteen connections beyond `max.connections` and the limits of addresses
  (docs/decisions/0067).
- A full disk makes a log directory read only until there is room; Kafka ends. A process without descriptors refuses
  connections and goes on.
- While a log is appended to in small synced portions, the file of its active segment ends in zeros (docs/decisions/0020):
  `kafka-dump-log` reads every record of the file and then ends with an error, as for Kafka's own files with `preallocate`. They
  go seconds after the last append, and at a stop.
- A topic or resource that Metadata or DescribeConfigs names twice is answered once.
- Requests that Kafka answers with UNKNOWN_SERVER_ERROR have an error of their own and words: records that do not decompress
  (INVALID_RECORD), an unknown operation in IncrementalAlterConfigs and an unknown isolation level (INVALID_REQUEST). A batch of
  magic 3, a transactional one without a transaction and one with bytes behind it are INVALID_RECORD; one that is cut short and
  an unknown codec are CORRUPT_MESSAGE.
- Two batches for one partition in a Produce request are both written and both answered; Kafka answers one.
- A Produce request waits at least a second for the acknowledgement of a batch that is written: synced acknowledgements take
  longer than time-outs of a few milliseconds, and a client would write the batch again.
- A Fetch that names a partition which does not exist is answered at once; Kafka lets it wait for the others. A Fetch by a
  client that calls itself a replica is refused as a whole with CLUSTER_AUTHORIZATION_FAILED.
- ApiVersions in an unknown version is answered UNSUPPORTED_VERSION with all APIs, by which the client chooses; Kafka lists
  ApiVersions alone.
- `NaN` is refused for a ratio. `node.id` is shown as configured: absent, if the broker takes its default.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_served_api_has_notes_that_name_it() {
        let root = tidy::root().unwrap();
        let served = served(&root).unwrap();
        assert!(served.len() >= 32, "{} APIs", served.len());
        for (api, module) in served {
            let path = root.join(HANDLERS).join(format!("{module}.rs"));
            let source = fs::read_to_string(path).unwrap();
            assert!(notes(&source).contains(api.name()), "{module}.rs does not name {api}");
        }
    }
}
