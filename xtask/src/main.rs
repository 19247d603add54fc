//! The project's own tasks: a dispatcher. Each task is a module of its own; nothing is decided here.

mod bench;
mod bridge;
mod browser;
mod ci;
mod clients;
mod codegen;
mod compatibility;
mod containers;
mod dist;
mod documents;
mod events;
mod failover;
mod faults;
mod front;
mod fuzz;
mod golden;
mod highwater;
mod image;
mod invariants;
mod moved;
mod openapi;
mod readers;
mod realtext;
mod repository;
mod secured;
mod size;
mod sources;
mod test_programs;
mod tidy;
mod trials;
mod upgrade;
mod websocket;
mod words;
mod wrappers;

use clap::{Parser, Subcommand};
use peer::apache_kafka;

#[derive(Parser)]
#[command(name = "cargo xt", about = "The project's own tasks")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Measure Highwater and Apache Kafka side by side
    #[command(subcommand)]
    Bench(bench::Task),
    /// Compare the gateway with Strimzi's bridge, in front of the same Apache Kafka
    Bridge(bridge::Arguments),
    /// Open the console in a real browser, look every page over, and act by mouse and keyboard
    Browser(browser::Arguments),
    /// Run every check, as continuous integration does
    Ci(ci::Arguments),
    /// Run real clients against a fresh Highwater, or against Apache Kafka
    Clients(clients::Arguments),
    /// Install, start or use the project's own Apache Kafka
    #[command(subcommand)]
    Kafka(apache_kafka::Task),
    /// Write docs/compatibility.md from the table of APIs and what the clients did
    Compatibility(compatibility::Arguments),
    /// Start the image of test suites as their Kafka modules do
    Containers(containers::Arguments),
    /// Write crates/wire/src/generated from the message schemas of Kafka's client jar
    Codegen(codegen::Arguments),
    /// Build static binaries for both processors, and pack them as tarballs and Debian packages
    Dist(dist::Arguments),
    /// Read event streams with others' programs while gateway and broker are killed, and run the examples of Confluent's documentation
    Events(events::Arguments),
    /// Run the laboratory's x-failover with all clients that can be installed here
    Failover(failover::Arguments),
    /// Print the reports of real clients to fault rules, before a test broker and before Apache Kafka
    Faults,
    /// Run every fuzz target for a short while
    Fuzz(fuzz::Arguments),
    /// Write crates/wire/testdata/golden: what Kafka's own classes make of every message
    Golden,
    /// Write container images from the static binaries of `cargo xt dist`
    Image(image::Arguments),
    /// Put the proxy in front of an Apache Kafka whose broker comes back at another port
    Moved,
    /// Have schemathesis compare a real gateway with its OpenAPI document
    Openapi(openapi::Arguments),
    /// Send a real text of a million lines through the broker and compare every byte
    Realtext(realtext::Arguments),
    /// Run Highwater's clients in front of an Apache Kafka with TLS and logins
    Secured,
    /// Name the largest crates of the released program
    Size(size::Arguments),
    /// Check what no compiler checks: layers, headers, sizes, links
    Tidy,
    /// Fail the power, damage data folders, open those of earlier versions
    Trial(trials::Arguments),
    /// Upgrade three brokers under load from the last release, go back, forward again, and play a later release
    Upgrade(upgrade::Arguments),
    /// Judge the gateway's WebSockets by Autobahn's suite
    Websocket(websocket::Arguments),
    /// Run the tests of the wrappers of `highwater test-broker`, with a real client each
    Wrappers(wrappers::Arguments),
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().task {
        Task::Bench(task) => bench::task(&task),
        Task::Bridge(arguments) => bridge::run(&arguments),
        Task::Browser(arguments) => browser::run(&arguments),
        Task::Ci(arguments) => ci::run(&arguments),
        Task::Clients(arguments) => clients::run(&arguments),
        Task::Kafka(task) => apache_kafka::task(task),
        Task::Compatibility(arguments) => compatibility::run(&arguments),
        Task::Containers(arguments) => containers::run(&arguments),
        Task::Codegen(arguments) => codegen::run(&arguments),
        Task::Dist(arguments) => dist::run(&arguments),
        Task::Events(arguments) => events::run(&arguments),
        Task::Failover(arguments) => failover::run(&arguments),
        Task::Faults => faults::run(),
        Task::Fuzz(arguments) => fuzz::run(&arguments),
        Task::Golden => golden::run(),
        Task::Image(arguments) => image::run(&arguments),
        Task::Moved => moved::run(),
        Task::Openapi(arguments) => openapi::run(&arguments),
        Task::Realtext(arguments) => realtext::run(&arguments),
        Task::Secured => secured::run(),
        Task::Size(arguments) => size::run(&arguments),
        Task::Tidy => tidy::run(),
        Task::Trial(arguments) => trials::run(&arguments),
        Task::Upgrade(arguments) => upgrade::run(&arguments),
        Task::Websocket(arguments) => websocket::run(&arguments),
        Task::Wrappers(arguments) => wrappers::run(&arguments),
    }
}
