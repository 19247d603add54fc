//! What a browser needs, in the cache folder or by the system's package manager: modules of npm, and Chromium.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use peer::{apt, cache, download, process};

use crate::repository::repository;

/// How long an installation may take.
const INSTALL_LIMIT: Duration = Duration::from_secs(600);
/// The names that Chromium has.
const CHROMIUM: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// The modules of the lock file.
pub(super) fn modules() -> Result<PathBuf> {
    ensure!(process::is_installed("node") && process::is_installed("npm"), "there is no Node.js");
    let source = repository().join("conformance/browser");
    let lock = fs::read_to_string(source.join("package-lock.json"))?;
    let mut hasher = DefaultHasher::new();
    lock.hash(&mut hasher);
    let stamp = hasher.finish();
    cache::once(&format!("browser-{stamp:016x}"), |fresh| {
        eprintln!("installing playwright-core and axe-core …");
        for name in ["package.json", "package-lock.json"] {
            fs::copy(source.join(name), fresh.join(name))?;
        }
        let mut npm = process::command("npm");
        npm.args(["ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]);
        let outcome = download::run(npm.current_dir(fresh), INSTALL_LIMIT)?;
        ensure!(outcome.success(), "npm: {}", outcome.story());
        Ok(())
    })
}

/// The browser, installed if that can be done without asking.
pub(super) fn chromium() -> Result<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let in_path = |name: &str| {
        std::env::split_paths(&paths).map(|folder| folder.join(name)).find(|file| file.is_file())
    };
    let there = || CHROMIUM.into_iter().find_map(in_path);
    if let Some(file) = there() {
        return Ok(file);
    }
    ensure!(process::is_installed("apt-get"), "there is no Chromium");
    eprintln!("installing chromium …");
    for words in [&["update"][..], &["install", "-y", "--no-install-recommends", "chromium"]] {
        let outcome = apt::run(words, Path::new("/"), INSTALL_LIMIT)?;
        ensure!(outcome.success(), "apt-get: {}", outcome.story());
    }
    there().context("there is no Chromium")
}
