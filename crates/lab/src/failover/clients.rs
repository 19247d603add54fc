//! Which client libraries there are programs for: our own and Kafka's are always known, the others are named by whoever
//! runs the lab.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use peer::apache_kafka;

/// Our own client.
pub const HIGHWATER: &str = "highwater";
/// Kafka's own client.
pub const JAVA: &str = "java";

/// `NAME=PROGRAM`, as typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// The client, by a name of the experiment's.
    pub client: String,
    /// The program that produces with it.
    pub program: PathBuf,
}

impl std::str::FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Named, String> {
        match text.split_once('=') {
            Some((client, program)) if !client.is_empty() && !program.is_empty() => {
                Ok(Named { client: client.to_owned(), program: program.into() })
            }
            _ => Err("expected NAME=PROGRAM, such as librdkafka=./produce".to_owned()),
        }
    }
}

/// The programs that were named, by client.
pub type Programs = BTreeMap<String, PathBuf>;

/// What was typed, as programs with whole paths: a run may be gone on with from another folder.
///
/// # Errors
/// No experiment knows such a client, the program is not there, or a client is named twice or is one that the lab brings
/// along.
pub fn programs(named: &[Named], known: &[String]) -> Result<Programs> {
    let mut programs = Programs::new();
    for Named { client, program } in named {
        ensure!(
            ![HIGHWATER, JAVA].contains(&client.as_str()),
            "--client {client}: the lab has a program for this client itself"
        );
        ensure!(
            known.contains(client),
            "--client {client}: no experiment has such a client; there are {}",
            known.join(", ")
        );
        let whole = std::path::absolute(program)?;
        ensure!(whole.is_file(), "--client {client}: there is no program {}", program.display());
        let before = programs.insert(client.clone(), whole);
        ensure!(before.is_none(), "--client {client} is given twice");
    }
    Ok(programs)
}

/// Why a client cannot be run here, if so.
pub fn obstacle(client: &str, programs: &Programs) -> Option<String> {
    match client {
        HIGHWATER => None,
        JAVA => apache_kafka::check_source().err().map(|error| format!("{error:#}")),
        _ if programs.contains_key(client) => None,
        _ => Some(format!(
            "no program of {client} is named: give --client {client}=PROGRAM, or run it by `cargo xt failover`"
        )),
    }
}

/// The source of the program that produces with Kafka's own client.
const JAVA_SOURCE: &str = include_str!("Produce.java");

/// A command that starts a client's program. What it needs beside is written into `scratch`.
pub(super) fn command(
    client: &str,
    programs: &Programs,
    scratch: &Path,
) -> Result<std::process::Command> {
    if client == JAVA {
        let source = scratch.join("Produce.java");
        std::fs::write(&source, JAVA_SOURCE)?;
        return apache_kafka::source_program(&source);
    }
    let program = programs.get(client);
    Ok(peer::process::command(program.with_context(|| format!("no program of {client} is named"))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_named_once_for_clients_that_there_are() {
        let known = ["librdkafka".to_owned(), "sarama".to_owned()];
        let folder = tempfile::tempdir().unwrap();
        let there = folder.path().join("produce");
        std::fs::write(&there, "").unwrap();
        let named = |client: &str, program: &Path| -> Named {
            format!("{client}={}", program.display()).parse().unwrap()
        };
        let found = programs(&[named("sarama", &there)], &known).unwrap();
        assert_eq!(found["sarama"], there);
        assert_eq!(obstacle("sarama", &found), None);
        assert!(obstacle("librdkafka", &found).unwrap().contains("--client librdkafka=PROGRAM"));
        assert_eq!(obstacle(HIGHWATER, &found), None);

        let refused = |named: &[Named]| programs(named, &known).unwrap_err().to_string();
        assert!(refused(&[named("moon", &there)]).contains("there are librdkafka, sarama"));
        assert!(refused(&[named(JAVA, &there)]).contains("itself"));
        let missing = folder.path().join("missing");
        assert!(refused(&[named("sarama", &missing)]).contains("no program"));
        assert!(refused(&[named("sarama", &there), named("sarama", &there)]).contains("twice"));
        for wrong in ["", "sarama", "=x", "sarama="] {
            assert!(wrong.parse::<Named>().is_err(), "{wrong}");
        }
    }
}
