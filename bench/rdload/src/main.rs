//! Load through librdkafka, the client that most non-Java programs stand on: `produce` and `consume`.
//!
//! Every command prints one line of JSON. The same build of the same client loads every broker, so
//! that differences are the broker's. Not a test of correctness: it counts, and fails when anything
//! was not acknowledged.

mod consume;
mod latency;
mod produce;
mod reader;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use rdkafka::ClientConfig;

#[derive(Parser)]
#[command(name = "rdload", about = "Load through librdkafka")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Produce records, flat out or at a fixed rate
    Produce(produce::Arguments),
    /// Read partitions from their beginning
    Consume(consume::Arguments),
}

fn main() -> Result<()> {
    let line = match Arguments::parse().command {
        Command::Produce(arguments) => produce::run(&arguments)?,
        Command::Consume(arguments) => consume::run(&arguments)?,
    };
    println!("{line}");
    Ok(())
}

/// Adds KEY=VALUE properties to a client's configuration.
fn set_all(config: &mut ClientConfig, properties: &[String]) -> Result<()> {
    for pair in properties {
        let (key, value) =
            pair.split_once('=').with_context(|| format!("not KEY=VALUE: {pair}"))?;
        config.set(key, value);
    }
    Ok(())
}
