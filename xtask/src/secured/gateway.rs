//! A gateway in front of a protected cluster: records go in over HTTP while its connections log in again and again, and the
//! console shows them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use peer::process::{self, Guarded};

use super::cluster::SESSION_MS;

/// Sessions that end while records are sent.
const SESSIONS: u32 = 3;
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// Sends records to the topic, which is there, until sessions have ended; none may be refused.
pub fn serves(program: &Path, topic: &str, at: &str, properties: &Path) -> Result<()> {
    let mut command = process::command(program);
    command.args(["gateway", "--listener", "127.0.0.1:0", "--bootstrap-server", at]);
    command.arg("--command-config").arg(properties).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut gateway = Guarded::spawn(&mut command)?;
    // Kept to the end: a gateway without a reader could not go on speaking.
    let mut said = BufReader::new(gateway.child().stdout.take().context("its output is piped")?);
    let mut first = String::new();
    said.read_line(&mut first)?;
    let address = first.trim().strip_prefix("gateway: http://").context("no gateway")?.to_owned();
    let ends = Instant::now() + SESSIONS * Duration::from_millis(SESSION_MS);
    let mut sent = 0;
    while Instant::now() < ends {
        let answer = http(&address, &format!("POST /topics/{topic}/raw"), "over HTTP")?;
        ensure!(answer.starts_with("HTTP/1.1 200"), "after {sent} records: {answer}");
        sent += 1;
    }
    ensure!(sent > SESSIONS, "{sent} records");
    let read = format!("GET /topics/{topic}/partitions/0/offsets");
    let offsets = http(&address, &read, "")?;
    ensure!(offsets.contains("end_offset"), "{offsets}");
    let topics = http(&address, "GET /api/v1/topics", "")?;
    ensure!(topics.contains(topic), "the console lacks {topic}: {topics}");
    gateway.stop(STOP_LIMIT)
}

/// One request on a connection of its own; head and body of the answer.
fn http(address: &str, request: &str, body: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    let length = body.len();
    write!(
        stream,
        "{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
