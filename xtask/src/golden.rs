//! `cargo xt golden`: bytes of every message in every version, as Kafka's own classes write them.
//! The program that writes them is Java and lies beside the bytes.

use crate::codegen::{self, kafka_jar, messages};
use anyhow::{Context, ensure};
use std::path::PathBuf;
use std::process::Command;

/// What the official classes need for their JSON.
const LIBRARIES: &[(&str, &str, &str)] = &[
    ("com.fasterxml.jackson.core", "jackson-core", "2.21.2"),
    ("com.fasterxml.jackson.core", "jackson-databind", "2.21.2"),
    ("com.fasterxml.jackson.core", "jackson-annotations", "2.21"),
    ("org.slf4j", "slf4j-api", "1.7.36"),
];

/// Writes crates/wire/testdata/golden/*.txt.
pub fn run() -> anyhow::Result<()> {
    let jar = kafka_jar::fetch()?;
    let folder = kafka_jar::root().join("crates/wire/testdata/golden");
    let mut command = Command::new("java");
    command.arg("-cp").arg(class_path(jar)?).arg(folder.join("Golden.java")).arg(&folder);
    for (file, messages) in messages()? {
        command.arg(file);
        command.args(messages.iter().map(argument));
    }
    let status = command.status().context("a JDK of 17 or newer is needed")?;
    ensure!(status.success(), "Golden.java failed");
    Ok(())
}

/// `role:class:low:high`, as Golden.java takes it.
fn argument(message: &codegen::schema::Message) -> String {
    let (role, suffix) = match message.name.as_str() {
        "RequestHeader" | "ResponseHeader" => ("message", "Data"),
        name if name.ends_with("Request") => ("request", "Data"),
        name if name.ends_with("Response") => ("response", "Data"),
        _ => ("message", ""),
    };
    let versions = message.versions;
    format!("{role}:{}{suffix}:{}:{}", message.name, versions.low, versions.high)
}

fn class_path(jar: PathBuf) -> anyhow::Result<String> {
    let folder = kafka_jar::root().join("target/kafka-clients");
    let mut paths = vec![jar];
    for (group, artifact, version) in LIBRARIES {
        let path = folder.join(format!("{artifact}-{version}.jar"));
        if !path.exists() {
            kafka_jar::maven_copy(&format!("{group}:{artifact}:{version}"), &folder)?;
        }
        paths.push(path);
    }
    let joined = std::env::join_paths(paths)?;
    Ok(joined.to_string_lossy().into_owned())
}
