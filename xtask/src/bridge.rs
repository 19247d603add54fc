//! `cargo xt bridge`: the gateway beside Strimzi's HTTP bridge, in front of the same Apache Kafka: the same requests one after the
//! other (`conformance/bridge/steps.json`), and of each answer its status, its type, its error code and its shape compared.
//! What differs must have a reason in the step, and what has a reason must differ.
//!
//! The bridge is in no package registry. With `--bridge FOLDER`, where its jars are, it is run, and its answers are written to
//! `conformance/bridge/strimzi.json`; otherwise the gateway is compared with what it answered then. See decision 0036.

mod program;
pub mod steps;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use clap::Args;
use peer::apache_kafka;

use crate::front::Gateway;
use crate::highwater;
use crate::repository::repository;
use steps::{Answered, Recording, Step};

/// `cargo xt bridge`
#[derive(Debug, Args)]
pub struct Arguments {
    /// The folder of the bridge's jars: it is run, and its answers are recorded anew
    #[arg(long, value_name = "FOLDER")]
    bridge: Option<PathBuf>,
    /// The version of that bridge
    #[arg(long, default_value = "0.33.1", requires = "bridge")]
    version: String,
    /// Only steps whose name contains this are shown in full
    #[arg(long)]
    show: Option<String>,
}

/// Runs it; fails if something differs without a reason, or has a reason and does not differ.
pub fn run(arguments: &Arguments) -> Result<()> {
    if let Err(missing) = apache_kafka::check() {
        println!("bridge: skipped, Apache Kafka does not run here: {missing:#}");
        return Ok(());
    }
    let folder = repository().join("conformance/bridge");
    let steps: Vec<Step> = serde_json::from_slice(&fs::read(folder.join("steps.json"))?)?;
    let kafka = apache_kafka::start(1, None, &[("auto.create.topics.enable", "false")])?;
    let recorded = folder.join("strimzi.json");
    if let Some(jars) = &arguments.bridge {
        let scratch = tempfile::tempdir()?;
        let bridge = program::start(jars, scratch.path(), &kafka.bootstrap())?;
        let answers = steps::walk(&steps, &bridge.address, "strimzi")?;
        bridge.stop()?;
        let recording = Recording {
            bridge: arguments.version.clone(),
            kafka: apache_kafka::VERSION.to_owned(),
            answers,
        };
        fs::write(&recorded, recording.text()?)?;
        println!("written: {}", recorded.display());
    }
    let theirs: Recording = serde_json::from_slice(&fs::read(&recorded)?)?;
    let gateway = Gateway::start(&highwater::binary()?, &kafka.bootstrap(), 0, &[])?;
    let ours = steps::walk(&steps, &gateway.address, "ours")?;
    gateway.stop()?;
    kafka.stop()?;
    compare(&steps, &theirs, &ours, arguments.show.as_deref())
}

fn compare(
    steps: &[Step],
    theirs: &Recording,
    ours: &BTreeMap<String, Answered>,
    show: Option<&str>,
) -> Result<()> {
    let (mut same, mut explained, mut findings) = (0, 0, Vec::new());
    for step in steps {
        let Some(their) = theirs.answers.get(&step.name) else {
            bail!("{}: the recording has no answer: run with --bridge", step.name);
        };
        let our = &ours[&step.name];
        if show.is_some_and(|word| step.name.contains(word)) {
            println!("{}\n  bridge: {their:?}\n  ours:   {our:?}", step.name);
        }
        let differences = steps::differences(their, our);
        match (differences.is_empty(), &step.why) {
            (true, None) => same += 1,
            (false, Some(_)) if step.here == Some((our.status, our.error_code)) => explained += 1,
            (false, Some(_)) => findings.push(format!(
                "{}: [{}, {}] here, which is not what the step says",
                step.name,
                our.status,
                our.error_code.map_or("null".to_owned(), |code| code.to_string())
            )),
            (true, Some(why)) => {
                findings.push(format!("{}: nothing differs any more: {why}", step.name))
            }
            (false, None) => findings.push(format!("{}: {}", step.name, differences.join("; "))),
        }
    }
    println!(
        "Strimzi's bridge {} in front of Apache Kafka {}: {same} of {} answers are the same, {explained} differ for a reason",
        theirs.bridge,
        theirs.kafka,
        steps.len()
    );
    ensure!(
        findings.is_empty(),
        "{} differ without a reason, or otherwise than it says:\n{}",
        findings.len(),
        findings.join("\n")
    );
    Ok(())
}
