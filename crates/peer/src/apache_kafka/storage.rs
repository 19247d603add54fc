//! Formatting the storage of Kafka's brokers, mostly without a Java runtime, which takes seconds: what
//! `kafka-storage format` writes differs from node to node in two identities, and from run to run in none.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};

use super::{BRIEF_JVM, VERSION, tool_of};
use crate::{cache, process};

/// Any 16 bytes in URL-safe base64 will do: these brokers meet no others.
const CLUSTER_ID: &str = "HighwaterPeer-Kafka-Ag";
/// The features that a new cluster has, as records of its metadata.
const CHECKPOINT: &str = "bootstrap.checkpoint";
/// Parts of the keys that decide what is written and where.
const DECIDING: [&str; 4] = ["log.dir", "feature", "metadata.version", "unstable"];

/// Formats the storage of the node with this id (from 1), whose `server.properties` lie in `node`.
pub(super) fn format(
    home: &Path,
    node: &Path,
    id: usize,
    extra: &[(String, String)],
) -> Result<()> {
    if extra.iter().any(|(key, _)| DECIDING.iter().any(|part| key.contains(part))) {
        return by_tool(home, node);
    }
    let data = node.join("data");
    fs::create_dir_all(&data)?;
    fs::copy(formatted(home)?.join(CHECKPOINT), data.join(CHECKPOINT))?;
    fs::write(data.join("meta.properties"), meta_properties(id))?;
    Ok(())
}

/// 22 characters that end in `g` are 16 bytes.
fn meta_properties(id: usize) -> String {
    format!(
        "version=1\ncluster.id={CLUSTER_ID}\nnode.id={id}\ndirectory.id=HighwaterPeerNode{id:04}g\n"
    )
}

/// A folder that this installation's tool formatted, once.
fn formatted(home: &Path) -> Result<PathBuf> {
    let folder = cache::once(&format!("apache-kafka-{VERSION}-formatted"), |fresh| {
        let data = fresh.join("data");
        let text = format!(
            "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:1\n\
             listeners=PLAINTEXT://127.0.0.1:2,CONTROLLER://127.0.0.1:1\n\
             controller.listener.names=CONTROLLER\nlog.dirs={}\n",
            data.display()
        );
        fs::write(fresh.join("server.properties"), text)?;
        by_tool(home, fresh)?;
        ensure!(data.join(CHECKPOINT).is_file(), "kafka-storage wrote no {CHECKPOINT}");
        Ok(())
    })?;
    Ok(folder.join("data"))
}

fn by_tool(home: &Path, node: &Path) -> Result<()> {
    let properties = node.join("server.properties").display().to_string();
    let arguments = ["format", "--cluster-id", CLUSTER_ID, "--config", properties.as_str()];
    let mut format = tool_of(home, &BRIEF_JVM, "kafka-storage", &arguments)?;
    let outcome = process::run(&mut format, None, Duration::from_secs(120))?;
    ensure!(outcome.success(), "formatting {} failed: {}", node.display(), outcome.story());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_sixteen_bytes_and_differ() {
        let identity = |id| meta_properties(id).lines().last().unwrap().to_owned();
        assert_eq!(identity(1).strip_prefix("directory.id=").unwrap().len(), 22);
        assert_ne!(identity(1), identity(12));
        assert_eq!(CLUSTER_ID.len(), 22);
    }
}
