//! Load without a client library: Produce requests encoded once, sent over any number of
//! connections from one thread, so that the generator takes as little of the machine as can be.
//!
//! `rate` sends at a fixed rate and counts latency from the intended time; `flood` keeps a window in
//! flight; `first-ack` tells when a broker that is just starting acknowledged its first record;
//! `write-each` and `delete-each` ask about one partition
//! after the other; `topic` creates and deletes. Every command prints one line of JSON. Not a client: no retries, one
//! broker, leaders are not looked for. Read `request.rs` for the bytes, `connection.rs` for the loop.

mod call;
mod connection;
mod drive;
mod each;
mod first_ack;
mod latency;
mod request;
mod response;
mod topic;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "rawload", about = "Pre-encoded Produce load on one Kafka-protocol broker")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Send requests at a fixed rate, spread over all connections (open loop)
    Rate(drive::Rate),
    /// Keep a window of requests in flight on every connection (closed loop)
    Flood(drive::Flood),
    /// Connect until it works, create topics if asked to, produce until acknowledged
    FirstAck(first_ack::Arguments),
    /// Write one record to each of many partitions, one request after the other
    WriteEach(each::Arguments),
    /// Delete the records of partitions, one request after the other
    DeleteEach(each::Arguments),
    /// Create topics and wait for their leaders, or delete them
    #[command(subcommand)]
    Topic(topic::Command),
}

fn main() -> Result<()> {
    let line = match Arguments::parse().command {
        Command::Rate(rate) => drive::rate(&rate)?,
        Command::Flood(flood) => drive::flood(&flood)?,
        Command::FirstAck(arguments) => first_ack::run(&arguments)?,
        Command::WriteEach(arguments) => each::write(&arguments)?,
        Command::DeleteEach(arguments) => each::delete(&arguments)?,
        Command::Topic(command) => topic::run(&command)?,
    };
    println!("{line}");
    Ok(())
}
