//! The program of this checkout, built when needed, and brokers that run it.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Result, ensure};
pub use peer::highwater::{Server, free_port};
use peer::process;

use crate::repository::repository;

/// How long a release build may take.
const BUILD_LIMIT: Duration = Duration::from_secs(1800);

/// The binary: `$HIGHWATER_BINARY`, or the release build of this checkout, made anew when a source has
/// changed.
pub fn binary() -> Result<PathBuf> {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    if let Some(path) = std::env::var_os("HIGHWATER_BINARY") {
        return Ok(PathBuf::from(path));
    }
    if let Some(path) = BINARY.get() {
        return Ok(path.clone());
    }
    eprintln!("building highwater (release) …");
    let mut cargo = process::command("cargo");
    cargo.args(["build", "--release", "--package", "highwater"]).current_dir(repository());
    let outcome = process::run(&mut cargo, None, BUILD_LIMIT)?;
    ensure!(outcome.success(), "the build failed: {}", outcome.story());
    Ok(BINARY.get_or_init(|| target_folder().join("release/highwater")).clone())
}

/// Where cargo builds.
pub fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository().join("target"), PathBuf::from)
}

/// Starts a broker of this checkout: see [`peer::highwater::start`].
pub fn start(data: &Path, port: u16, settings: &[(&str, &str)]) -> Result<Server> {
    peer::highwater::start(&binary()?, data, port, settings)
}
