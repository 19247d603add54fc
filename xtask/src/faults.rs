//! `cargo xt faults`: the reports of real clients to fault rules, before a test broker and before Apache Kafka.
//!
//! `conformance/faults` has the rules, the clients, and the program that prints the table.

use std::time::Duration;

use anyhow::{Result, ensure};
use peer::{apache_kafka, process};

use crate::clients::{node_modules, python_environment};
use crate::highwater;
use crate::repository::repository;

/// How long all rows may take.
const LIMIT: Duration = Duration::from_secs(3600);

/// Prints the table.
pub fn run() -> Result<()> {
    let folder = repository().join("conformance/faults");
    let wrappers = repository().join("wrappers");
    let environment = python_environment(&wrappers.join("python/requirements.txt"))?;
    let modules = node_modules(&wrappers.join("node"))?;
    let jars = apache_kafka::install()?.join("lib");
    let kafka = apache_kafka::start(1, None, &[])?;
    let mut table = process::command(environment.join("bin/python"));
    table.arg(folder.join("table.py")).arg(highwater::binary()?).arg(kafka.bootstrap()).arg(jars);
    table.env("NODE_PATH", modules).env("PYTHONDONTWRITEBYTECODE", "1");
    let outcome = process::run(&mut table, None, LIMIT)?;
    ensure!(outcome.success(), "{}\n{}", outcome.text(), outcome.story());
    print!("{}", outcome.text());
    kafka.stop()
}
