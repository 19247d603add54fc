//! The Java runtime that Apache Kafka runs on: whether there is one, and which.

use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::process;

/// Kafka 4 runs on nothing older.
const OLDEST: u32 = 17;

/// Fails, and says what to do, if there is no Java runtime that is new enough.
pub(super) fn check() -> Result<()> {
    ensure!(
        process::is_installed("java"),
        "Apache Kafka needs a Java runtime {OLDEST} or newer, and there is no java in PATH: install one"
    );
    let said = version()?;
    let major = major(said).with_context(|| format!("`java -version` says:\n{said}"))?;
    ensure!(
        major >= OLDEST,
        "Apache Kafka needs a Java runtime {OLDEST} or newer; `java` in PATH is {major}"
    );
    Ok(())
}

/// Fails, and says what to do, if the Java runtime cannot compile.
pub(super) fn check_compiler() -> Result<()> {
    static MODULES: OnceLock<String> = OnceLock::new();
    let modules = match MODULES.get() {
        Some(modules) => modules,
        None => {
            let mut java = process::command("java");
            let outcome = process::run(java.arg("--list-modules"), None, Duration::from_secs(60))?;
            ensure!(outcome.success(), "`java --list-modules` failed: {}", outcome.story());
            MODULES.get_or_init(|| outcome.text())
        }
    };
    ensure!(
        modules.lines().any(|line| line.starts_with("jdk.compiler")),
        "the Java runtime in PATH has no compiler: install a Java development kit"
    );
    Ok(())
}

/// What `java -version` says; asked once.
pub(super) fn version() -> Result<&'static str> {
    static SAID: OnceLock<String> = OnceLock::new();
    if let Some(said) = SAID.get() {
        return Ok(said);
    }
    let mut java = process::command("java");
    let outcome = process::run(java.arg("-version"), None, Duration::from_secs(60))?;
    ensure!(outcome.success(), "`java -version` failed: {}", outcome.story());
    Ok(SAID.get_or_init(|| outcome.errors()))
}

/// The first number of `openjdk version "17.0.15" 2025-04-15`; 8 of the `1.8.0` of long ago.
fn major(said: &str) -> Option<u32> {
    let quoted = said.split('"').nth(1)?;
    let mut numbers = quoted.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    match numbers.next()?.ok()? {
        1 => numbers.next()?.ok(),
        major => Some(major),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_all_ages_are_read() {
        let of = |said| major(&format!("openjdk version \"{said}\" 2025-04-15\nOpenJDK Runtime …"));
        assert_eq!(of("17.0.15"), Some(17));
        assert_eq!(of("25"), Some(25));
        assert_eq!(of("26-ea"), Some(26));
        assert_eq!(of("1.8.0_412"), Some(8));
        assert_eq!(of(""), None);
        assert_eq!(major("what is this"), None);
    }
}
