//! A gateway that has as many connections as it may: Node's own `fetch` hears of it, and does not wait for ever.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use peer::process;

use crate::front::Gateway;

/// How long the program may take, and an answer.
const LIMIT: Duration = Duration::from_secs(60);
/// Writes the status, and what the body says.
const FETCH: &str =
    "fetch(process.env.URL).then(async answer => console.log(answer.status, await answer.text()))";

/// Fails if `fetch` is told anything but that there are too many connections.
pub(super) fn run(binary: &Path, bootstrap: &str) -> Result<()> {
    if !process::is_installed("node") {
        println!("skipped: there is no Node.js");
        return Ok(());
    }
    let gateway = Gateway::start(binary, bootstrap, 0, &["--set", "gateway.connections.max=1"])?;
    // Served, and so let in; the answer is the beginning of one.
    let mut only = TcpStream::connect(&gateway.address)?;
    only.set_read_timeout(Some(LIMIT))?;
    only.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")?;
    let mut status = [0; 12];
    only.read_exact(&mut status).context("the first connection is not served")?;
    ensure!(&status == b"HTTP/1.1 200", "{}", String::from_utf8_lossy(&status));
    let mut node = process::command(Path::new("node"));
    node.args(["-e", FETCH]).env("URL", format!("http://{}/topics", gateway.address));
    let outcome = process::run(&mut node, None, LIMIT)?;
    let said = outcome.text();
    ensure!(
        outcome.success() && said.starts_with("503 ") && said.contains("gateway.connections.max"),
        "{}",
        outcome.story()
    );
    println!("ok  Node's fetch hears of too many connections");
    drop(only);
    gateway.stop()
}
