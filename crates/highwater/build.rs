//! Tells the program which commit it is built from, for `--version` and the reports of the laboratory; nothing outside a checkout.

use std::process::Command;

fn main() {
    // Cargo runs it in the package's folder, which is another one when checkouts share what was built.
    let package = std::env::current_dir().unwrap_or_default();
    let git = package.join("../../.git");
    for file in ["HEAD", "logs/HEAD"] {
        let path = git.join(file);
        if path.exists() {
            println!("cargo:rerun-if-changed={}", path.display());
        }
    }
    let asked =
        Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=10"]).output();
    let commit = asked.ok().filter(|output| output.status.success());
    let commit = commit.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let commit = commit.unwrap_or_default();
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let known = if commit.is_empty() { version } else { format!("{version} (commit {commit})") };
    println!("cargo:rustc-env=HIGHWATER_COMMIT={commit}");
    println!("cargo:rustc-env=HIGHWATER_VERSION={known}");
}
