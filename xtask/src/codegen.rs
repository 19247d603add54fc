//! `cargo xt codegen`: Rust for Kafka's messages, out of the schemas in the official jar.
//!
//! Read [`schema`] first (what a message is), then [`emit`] and [`codec`] (what becomes of it).
//! One more API is one more line in [`APIS`].

mod api_table;
mod codec;
mod emit;
pub mod kafka_jar;
mod names;
mod request_schemas;
pub mod schema;

use anyhow::{Context, bail, ensure};
use emit::Renames;
use schema::Message;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The APIs that are generated, request and response.
pub const APIS: &[&str] = &[
    "Produce",
    "Fetch",
    "ListOffsets",
    "Metadata",
    "OffsetCommit",
    "OffsetFetch",
    "FindCoordinator",
    "JoinGroup",
    "Heartbeat",
    "LeaveGroup",
    "SyncGroup",
    "DescribeGroups",
    "ListGroups",
    "SaslHandshake",
    "ApiVersions",
    "CreateTopics",
    "DeleteTopics",
    "DeleteRecords",
    "InitProducerId",
    "OffsetForLeaderEpoch",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "EndTxn",
    "TxnOffsetCommit",
    "DescribeAcls",
    "CreateAcls",
    "DeleteAcls",
    "DescribeConfigs",
    "AlterConfigs",
    "AlterReplicaLogDirs",
    "DescribeLogDirs",
    "SaslAuthenticate",
    "CreatePartitions",
    "CreateDelegationToken",
    "RenewDelegationToken",
    "ExpireDelegationToken",
    "DescribeDelegationToken",
    "DeleteGroups",
    "ElectLeaders",
    "IncrementalAlterConfigs",
    "AlterPartitionReassignments",
    "ListPartitionReassignments",
    "OffsetDelete",
    "DescribeClientQuotas",
    "AlterClientQuotas",
    "DescribeUserScramCredentials",
    "AlterUserScramCredentials",
    "DescribeQuorum",
    "UpdateFeatures",
    "DescribeCluster",
    "DescribeProducers",
    "UnregisterBroker",
    "DescribeTransactions",
    "ListTransactions",
    "ConsumerGroupHeartbeat",
    "ConsumerGroupDescribe",
    "GetTelemetrySubscriptions",
    "PushTelemetry",
    "ListConfigResources",
    "DescribeTopicPartitions",
    "ShareGroupDescribe",
    "StreamsGroupDescribe",
    "DescribeShareGroupOffsets",
];

/// Messages that belong to no API: headers, and what consumers put into opaque bytes.
pub const SINGLES: &[&str] = &[
    "RequestHeader",
    "ResponseHeader",
    "ConsumerProtocolAssignment",
    "ConsumerProtocolSubscription",
];

/// Options of `cargo xt codegen`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only say whether the committed files are what would be written
    #[arg(long)]
    check: bool,
}

/// Writes (or checks) the generated files.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let files = generate()?;
    let folder = kafka_jar::root().join("crates/wire/src/generated");
    for (name, source) in &files {
        let path = folder.join(format!("{name}.rs"));
        let source = formatted(source).with_context(|| name.clone())?;
        let same = std::fs::read_to_string(&path).is_ok_and(|committed| committed == source);
        match (same, arguments.check) {
            (true, _) => {}
            (false, true) => bail!("{} is not fresh: run cargo xt codegen", path.display()),
            (false, false) => std::fs::write(&path, source)?,
        }
    }
    refuse_strays(&folder, &files)
}

/// Nothing may lie among the generated files that was not generated.
fn refuse_strays(folder: &PathBuf, files: &BTreeMap<String, String>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        ensure!(files.contains_key(&*stem), "{} was not generated", path.display());
    }
    Ok(())
}

/// All messages, by the name of the file that holds them: two for an API, else one.
pub fn messages() -> anyhow::Result<Vec<(String, Vec<Message>)>> {
    let jar = kafka_jar::fetch()?;
    let load = |name: String| Message::parse(&kafka_jar::schema(&jar, &name)?).context(name);
    let mut out = Vec::new();
    for api in APIS {
        let mut pair = vec![load(format!("{api}Request"))?, load(format!("{api}Response"))?];
        // Only requests say which versions are unstable.
        pair[1].versions = pair[0].versions;
        out.push((names::snake(api), pair));
    }
    for name in SINGLES {
        out.push((names::snake(name), vec![load((*name).to_owned())?]));
    }
    Ok(out)
}

/// The files by name, not yet formatted.
fn generate() -> anyhow::Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    let mut apis = Vec::new();
    let mut requests = Vec::new();
    let mut modules = Vec::new();
    for ((module, messages), name) in messages()?.into_iter().zip(APIS.iter().chain(SINGLES)) {
        files.insert(module.clone(), file(name, &messages));
        if let [request, _] = &messages[..] {
            apis.push(api_table::Api::new(name, request)?);
            requests.push(((*name).to_owned(), request.clone()));
        }
        modules.push((module, messages.into_iter().map(|m| m.name).collect()));
    }
    files.insert("api_key".to_owned(), api_table::source(&mut apis));
    files.insert("request_schemas".to_owned(), request_schemas::source(&requests));
    files.insert("mod".to_owned(), modules_source(&mut modules));
    Ok(files)
}

fn modules_source(modules: &mut [(String, Vec<String>)]) -> String {
    modules.sort();
    let mut out = String::from(
        "//! Generated by `cargo xt codegen`; not to be edited. One module an API.\n\n\
         pub mod api_key;\npub mod request_schemas;\n",
    );
    for (module, _) in modules.iter() {
        out += &format!("pub mod {module};\n");
    }
    out.push('\n');
    for (module, messages) in modules.iter() {
        out += &format!("pub use {module}::{{{}}};\n", messages.join(", "));
    }
    out
}

/// The file of an API (two messages) or of a message without one.
fn file(name: &str, messages: &[Message]) -> String {
    let versions = messages[0].versions;
    let mut body = String::new();
    for message in messages {
        let renames = renames(messages, message);
        body += &emit::message(&emit::Context { message, renames: &renames });
    }
    if let [request, response] = messages {
        body += &format!(
            "impl Request for {} {{
                const API_KEY: ApiKey = ApiKey::{name};
                type Response = {};
            }}\n",
            request.name, response.name
        );
    }
    format!(
        "//! {name}, {}, as of Kafka {}.
        //! Generated by `cargo xt codegen`; not to be edited.\n
        #![allow(clippy::field_reassign_with_default)]\n
        {}
        {body}",
        names::prose(versions).to_lowercase(),
        kafka_jar::VERSION,
        imports(&body)
    )
}

/// The imports that the body needs.
fn imports(body: &str) -> String {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let words: std::collections::HashSet<&str> = body.split(|c| !word(c)).collect();
    let mut out = String::new();
    for (path, names) in [
        ("crate::api", &["ApiKey"][..]),
        ("crate::message", &["Message", "Request", "error_of"]),
        ("crate::reader", &["DecodeError", "Reader"]),
        ("crate::writer", &["EncodeError", "Writer"]),
        ("bytes", &["Bytes"]),
        ("model", &["ErrorCode", "Uuid"]),
    ] {
        let used: Vec<_> = names.iter().filter(|n| words.contains(**n)).copied().collect();
        if !used.is_empty() {
            out += &format!("use {path}::{{{}}};\n", used.join(", "));
        }
    }
    out
}

/// Structures that the request and the response both have get a prefix.
fn renames(messages: &[Message], message: &Message) -> Renames {
    let others = messages.iter().filter(|m| m.name != message.name);
    let taken: Vec<_> = others.flat_map(|m| &m.structs).map(|s| s.name.as_str()).collect();
    let prefix = if message.name.ends_with("Request") { "Request" } else { "Response" };
    let clashing = message.structs.iter().filter(|s| taken.contains(&s.name.as_str()));
    clashing.map(|s| (s.name.clone(), format!("{prefix}{}", s.name))).collect()
}

/// The source as rustfmt writes it.
fn formatted(source: &str) -> anyhow::Result<String> {
    let mut child = Command::new("rustfmt")
        .args(["--edition", "2024", "--config-path"])
        .arg(kafka_jar::root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("rustfmt is needed")?;
    // rustfmt reads all of its input before it writes, so this cannot block on its output.
    child.stdin.take().expect("it is piped").write_all(source.as_bytes())?;
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "rustfmt refuses it");
    Ok(String::from_utf8(output.stdout)?)
}
