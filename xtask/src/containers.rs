//! `cargo xt containers`: starts `highwater:test` as the Kafka modules of test suites do, by the command, the variables and the
//! start script of each module, until its ready line comes, and sends a record. Published modules then start the image in
//! real containers.
//!
//! A container without podman is a folder with the layers of the image, a network and mounts of its own, and user 1000. It
//! needs root and `unshare` of util-linux; where they are missing, the task is skipped with a word.

mod modules;
mod podman;
mod sandbox;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::highwater;
use crate::image;
use modules::{MODULES, Module};
use podman::PUBLISHED;
use sandbox::Template;

/// `cargo xt containers`
#[derive(Debug, Args)]
pub struct Arguments {
    /// Starts of each module
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    starts: u32,
    /// Only these modules (may be repeated or separated by commas)
    #[arg(long = "module", value_delimiter = ',')]
    modules: Vec<String>,
    /// The program in the image; a dynamic one gets its libraries [default: $HIGHWATER_BINARY, or a release build]
    #[arg(long)]
    binary: Option<PathBuf>,
}

/// Runs all modules; fails at the first start that is not ready.
pub fn run(arguments: &Arguments) -> Result<()> {
    let names = || MODULES.iter().map(|it| it.name).chain(PUBLISHED.iter().map(|it| it.name));
    let unknown = arguments.modules.iter().find(|name| names().all(|it| it != **name));
    ensure!(unknown.is_none(), "no module {}", unknown.map_or("", String::as_str));
    if let Some(missing) = sandbox::missing_permission() {
        println!("containers: skipped, {missing}");
        return Ok(());
    }
    let binary = arguments.binary.clone().map_or_else(highwater::binary, Ok)?;
    let layers = tempfile::tempdir()?;
    let tarballs = image::write_test_tarballs(&binary, layers.path())?;
    let template = Template::unpack(&tarballs, &binary)?;
    let is_wanted = |name: &str| {
        arguments.modules.is_empty() || arguments.modules.iter().any(|wanted| wanted == name)
    };
    for module in MODULES.iter().filter(|it| is_wanted(it.name)) {
        let times = (1..=arguments.starts).map(|start| {
            start_once(module, &template)
                .with_context(|| format!("module {}, start {start}", module.name))
        });
        report(module.name, times.collect::<Result<_>>()?);
    }
    let mut published = PUBLISHED.iter().filter(|it| is_wanted(it.name)).peekable();
    if published.peek().is_none() {
        return Ok(());
    }
    if let Some(missing) = podman::missing_part()? {
        println!("containers: published modules are skipped, {missing}");
        return Ok(());
    }
    for module in published {
        let times = podman::run(module, &template, arguments.starts);
        report(module.name, times.with_context(|| format!("module {}", module.name))?);
    }
    Ok(())
}

/// Starts a module's container and exchanges a record. Returns the milliseconds until the ready line.
fn start_once(module: &Module, template: &Template) -> Result<u128> {
    let sandbox = template.sandbox()?;
    let began = Instant::now();
    let mut container = sandbox.start(module)?;
    container.wait_for(module.ready)?;
    let milliseconds = began.elapsed().as_millis();
    container.exchange_record(module.port)?;
    Ok(milliseconds)
}

/// Prints the number of starts and their milliseconds; there is at least one.
fn report(name: &str, mut milliseconds: Vec<u128>) {
    milliseconds.sort_unstable();
    let (count, median) = (milliseconds.len(), milliseconds[milliseconds.len() / 2]);
    let most = milliseconds.last().copied().unwrap_or_default();
    println!(
        "module {name}: {count} of {count} starts ready, median {median} ms, at most {most} ms"
    );
}
