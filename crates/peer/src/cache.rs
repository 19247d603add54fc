//! Where the project keeps what it installs for itself: peers, clients, texts.
//!
//! One folder, `$HIGHWATER_CACHE` or `~/.cache/highwater`; deleting it loses nothing but time.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The cache folder, made if missing.
pub fn folder() -> Result<PathBuf> {
    let path = match std::env::var_os("HIGHWATER_CACHE") {
        Some(path) => PathBuf::from(path),
        None => PathBuf::from(std::env::var_os("HOME").context("HOME is not set")?)
            .join(".cache/highwater"),
    };
    fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
    Ok(path)
}

/// Makes the folder `name` of the cache by calling `make` with an empty folder beside it, once;
/// another process that wants the same waits. Half an installation is never left under `name`.
pub fn once(name: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let cache = folder()?;
    let path = cache.join(name);
    let lock = File::create(cache.join(format!("{name}.lock")))?;
    lock.lock()?;
    if path.exists() {
        return Ok(path);
    }
    let fresh = cache.join(format!("{name}.new"));
    if fresh.exists() {
        fs::remove_dir_all(&fresh)?;
    }
    fs::create_dir_all(&fresh)?;
    make(&fresh)?;
    fs::rename(&fresh, &path)?;
    Ok(path)
}
