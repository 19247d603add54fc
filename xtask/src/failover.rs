//! `cargo xt failover`: the laboratory's x-failover, or x-paused, with the client libraries of `conformance/`, which it installs first.
//! The laboratory itself knows our own client and Kafka's only, and takes programs of others by name.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;
use peer::{cache, process};

use crate::clients;
use crate::highwater;

/// Programs under `conformance/`, and what the experiment calls their libraries.
const CLIENTS: [(&str, &str); 6] = [
    ("confluent-kafka", "librdkafka"),
    ("franz-go", "franz-go"),
    ("sarama", "sarama"),
    ("kafka-python", "kafka-python"),
    ("aiokafka", "aiokafka"),
    ("kafkajs", "kafkajs"),
];

/// `cargo xt failover`
#[derive(Debug, Args)]
pub struct Arguments {
    /// The experiment: x-failover (brokers are killed) or x-paused (a leader is paused)
    #[arg(long, default_value = "x-failover", value_parser = ["x-failover", "x-paused"])]
    experiment: String,
    /// What `highwater lab run` is given beside the clients, such as --profile full --vs apache-kafka
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Installs the clients and runs the experiment.
pub fn run(arguments: &Arguments) -> Result<()> {
    let mut command = process::command(highwater::binary()?);
    command.args(["lab", "run", &arguments.experiment]);
    for (program, client) in CLIENTS {
        match script(program) {
            Ok(path) => drop(command.arg("--client").arg(format!("{client}={}", path.display()))),
            Err(error) => eprintln!("without {client}, which cannot be installed here: {error:#}"),
        }
    }
    let mut process = process::Guarded::spawn(command.args(&arguments.arguments))?;
    let status = process.child().wait()?;
    ensure!(status.success(), "the run failed: {status}");
    Ok(())
}

/// A script in the cache folder that starts the client's producer.
fn script(program: &str) -> Result<PathBuf> {
    let installed = clients::program(program)?;
    let folder = cache::folder()?.join("failover");
    fs::create_dir_all(&folder)?;
    let path = folder.join(program);
    // Another run may be starting the script that is there.
    let fresh = folder.join(format!("{program}.{}", std::process::id()));
    fs::write(&fresh, installed.script("produce"))?;
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o755))?;
    fs::rename(&fresh, &path)?;
    Ok(path)
}
