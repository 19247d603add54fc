//! `cargo xt openapi`: schemathesis makes up requests from the gateway's own OpenAPI document, sends them to a real gateway in
//! front of a real broker, and compares the answers with the document: statuses, types, shapes, headers, no server error, and
//! whether what does not fit the document is refused. With `--document` the requests are made up from another gateway's.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use peer::process;
use serde_json::json;

use crate::front::{Gateway, ask};
use crate::repository::repository;
use crate::{clients, highwater};

/// How much longer than it was told to schemathesis may take to end.
const SLACK: Duration = Duration::from_secs(120);
const TOPIC: &str = "openapi";
const JSON: (&str, &str) = ("content-type", "application/vnd.kafka.v2+json");

/// `cargo xt openapi`
#[derive(Debug, Args)]
pub struct Arguments {
    /// What values are drawn from: another number, other requests
    #[arg(long, default_value_t = 1)]
    seed: u32,
    /// Requests for each route and kind of values, at most
    #[arg(long, default_value_t = 40)]
    examples: u32,
    /// The time that schemathesis has, in seconds
    #[arg(long, default_value_t = 120)]
    seconds: u32,
    /// Send what this document allows, of another gateway with the same paths, instead of our own
    #[arg(long)]
    document: Option<PathBuf>,
    /// Only the route of this id in the document
    #[arg(long)]
    only: Option<String>,
}

/// Runs it; fails if an answer is not as the document says.
pub fn run(arguments: &Arguments) -> Result<()> {
    let conformance = repository().join("conformance/openapi");
    let python = match clients::python_environment(&conformance.join("requirements.txt")) {
        Ok(python) => python,
        Err(why) => {
            println!("openapi: skipped, schemathesis cannot be installed here: {why:#}");
            return Ok(());
        }
    };
    let program = highwater::binary()?;
    let folder = tempfile::tempdir()?;
    let broker = highwater::start(&folder.path().join("data"), 0, &[])?;
    let gateway = Gateway::start(&program, &broker.bootstrap(), 0, &[])?;
    let document = ask(&gateway.address, "GET", "/openapi", &[], "")?;
    ensure!(document.content_type == "application/json", "no document: {document:?}");
    let known = Known::make(&gateway.address)?;
    let server = format!("http://{}", gateway.address);
    let mut command = process::command(python.join("bin/python"));
    command.args(["-m", "schemathesis.cli", "--no-color", "--config-file"]);
    let (checks, document) = match &arguments.document {
        None => ("schemathesis.toml", format!("{server}/openapi").into()),
        Some(others) => ("others.toml", std::path::absolute(others)?),
    };
    command.arg(conformance.join(checks)).arg("run").arg(document).args(["--url", &server]);
    command.args(["--max-time", &arguments.seconds.to_string()]);
    command.args(["--max-examples", &arguments.examples.to_string()]);
    // With several threads Python 3.11 fails now and then to read its own source (ast), and the requests are others each time.
    command.args(["--seed", &arguments.seed.to_string(), "--workers", "1"]);
    command.args(["--phases", "examples,coverage,fuzzing", "--continue-on-failure"]);
    command.args(["--request-timeout", "40", "--suppress-health-check", "all"]);
    if let Some(id) = &arguments.only {
        command.args(["--include-operation-id", id]);
    }
    command.current_dir(folder.path());
    command.env("SCHEMATHESIS_HOOKS", "hooks").env("PYTHONPATH", &conformance);
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("TOPIC", TOPIC).env("CLUSTER", &known.cluster).env("INSTANCES", &known.instances);
    command.env("TICKET", &known.ticket);
    let limit = Duration::from_secs(arguments.seconds.into()) + SLACK;
    let outcome = process::run(&mut command, None, limit)?;
    println!("{}", outcome.text());
    ensure!(outcome.success(), "answers are not as the document says: {}", outcome.story());
    let ready = ask(&gateway.address, "GET", "/ready", &[], "")?;
    ensure!(ready.status == 200, "the gateway is not well afterwards: {ready:?}");
    gateway.stop()?;
    broker.stop()
}

/// What is there before the first request.
struct Known {
    cluster: String,
    /// A ticket for the topic.
    ticket: String,
    /// Names of instances, with commas between them.
    instances: String,
}

impl Known {
    fn make(address: &str) -> Result<Known> {
        let post = |path: &str, body: serde_json::Value| -> Result<()> {
            let answer = ask(address, "POST", path, &[JSON], &body.to_string())?;
            ensure!((200..300).contains(&answer.status), "{path}: {answer:?}");
            Ok(())
        };
        post("/admin/topics", json!({"topic_name": TOPIC, "partitions_count": 2}))?;
        let records = json!({"records": [{"key": "a", "value": {"n": 1}, "partition": 0}, {"value": "text", "partition": 0}]});
        let form = [("content-type", "application/vnd.kafka.json.v2+json")];
        let written =
            ask(address, "POST", &format!("/topics/{TOPIC}"), &form, &records.to_string())?;
        ensure!(written.status == 200, "{written:?}");
        let mut instances = Vec::new();
        for (format, subscribes) in
            [("json", true), ("binary", false), ("text", false), ("json", false)]
        {
            let name = format!("{format}-{subscribes}");
            let new = json!({"name": name, "format": format, "auto.offset.reset": "earliest"});
            post("/consumers/openapi", new)?;
            if subscribes {
                let path = format!("/consumers/openapi/instances/{name}/subscription");
                post(&path, json!({"topics": [TOPIC]}))?;
            }
            instances.push(name);
        }
        let clusters = ask(address, "GET", "/v3/clusters", &[], "")?.json();
        let cluster = clusters["data"][0]["cluster_id"].as_str().context("a cluster")?.to_owned();
        let topics = json!({"topics": [TOPIC]}).to_string();
        let form = [("content-type", "application/json")];
        let ticket = ask(address, "POST", "/api/v1/tickets", &form, &topics)?.json();
        let ticket = ticket["ticket"].as_str().context("a ticket")?.to_owned();
        Ok(Known { cluster, ticket, instances: instances.join(",") })
    }
}
