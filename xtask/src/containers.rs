//! `cargo xt containers`: starts `highwater:test` as the Kafka modules of test suites do, by the command, the variables and the
//! start script of each module, until its ready line comes, and sends a record.
//!
//! A container is a folder with the layers of the image, a network and mounts of its own, and user 1000. It needs root and
//! `unshare` of util-linux; where they are missing, the task is skipped with a word.

mod modules;
mod sandbox;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::highwater;
use crate::image;
use modules::{MODULES, Module};
use sandbox::Sandbox;

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
    let unknown = arguments.modules.iter().find(|name| MODULES.iter().all(|it| it.name != **name));
    ensure!(unknown.is_none(), "no module {}", unknown.map_or("", String::as_str));
    if let Some(missing) = sandbox::missing_permission() {
        println!("containers: skipped, {missing}");
        return Ok(());
    }
    let binary = arguments.binary.clone().map_or_else(highwater::binary, Ok)?;
    let layers = tempfile::tempdir()?;
    let tarballs = image::write_test_tarballs(&binary, layers.path())?;
    let is_wanted = |module: &&Module| {
        arguments.modules.is_empty() || arguments.modules.iter().any(|name| name == module.name)
    };
    for module in MODULES.iter().filter(is_wanted) {
        let mut milliseconds = Vec::new();
        for start in 1..=arguments.starts {
            let sandbox = Sandbox::unpack(&tarballs, &binary)?;
            let began = Instant::now();
            let mut container = sandbox.start(module)?;
            container
                .wait_for(module.ready)
                .with_context(|| format!("module {}, start {start}", module.name))?;
            milliseconds.push(began.elapsed().as_millis());
            container
                .exchange_record(module.port)
                .with_context(|| format!("module {}, start {start}", module.name))?;
        }
        milliseconds.sort_unstable();
        let (median, most) = (milliseconds[milliseconds.len() / 2], milliseconds.last());
        println!(
            "module {}: {} of {} starts ready, median {median} ms, at most {} ms",
            module.name,
            milliseconds.len(),
            arguments.starts,
            most.copied().unwrap_or_default()
        );
    }
    Ok(())
}
