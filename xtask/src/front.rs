//! A gateway as people run it, in front of any cluster, and one request over HTTP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{ChildStdout, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use peer::process::{self, Guarded};
use serde_json::Value;

/// How long an orderly stop may take.
const STOP_LIMIT: Duration = Duration::from_secs(20);
/// How long an answer may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// A running gateway.
#[derive(Debug)]
pub struct Gateway {
    process: Guarded,
    /// `host:port` where it listens.
    pub address: String,
    /// Kept to the end: a gateway without a reader could not go on speaking.
    _said: BufReader<ChildStdout>,
}

impl Gateway {
    /// Starts the program `binary` in front of the cluster at `bootstrap`, on this port, 0 for a free one.
    ///
    /// # Errors
    /// It cannot be started, or does not say where it is.
    pub fn start(binary: &Path, bootstrap: &str, port: u16, more: &[&str]) -> Result<Gateway> {
        let mut command = process::command(binary);
        command.args(["--log-level", "error", "gateway", "--bootstrap-server", bootstrap]);
        command.args(["--listener", &format!("127.0.0.1:{port}")]).args(more);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = Guarded::spawn(&mut command)?;
        let mut said =
            BufReader::new(process.child().stdout.take().context("its output is piped")?);
        let mut first = String::new();
        said.read_line(&mut first)?;
        let address = first.trim().strip_prefix("gateway: http://");
        let address = address.with_context(|| format!("no gateway: {first:?}"))?.to_owned();
        Ok(Gateway { process, address, _said: said })
    }

    /// Stops it in an orderly way.
    pub fn stop(mut self) -> Result<()> {
        self.process.stop(STOP_LIMIT)
    }

    /// Kills it as `kill -9` does.
    pub fn kill(mut self) -> Result<()> {
        self.process.kill()
    }
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The type of the body, without parameters.
    pub content_type: String,
    /// The body.
    pub body: String,
}

impl Answer {
    /// The body as JSON; null if it is something else.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }
}

/// One request on a connection of its own.
///
/// # Errors
/// There is no answer, or it is not HTTP.
pub fn ask(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Result<Answer> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    if !body.is_empty() || method == "POST" {
        head += &format!("content-length: {}\r\n", body.len());
    }
    stream.write_all(format!("{head}\r\n{body}").as_bytes())?;
    let mut read = Vec::new();
    stream.read_to_end(&mut read).with_context(|| format!("{method} {path}: no answer"))?;
    parse(&read).with_context(|| format!("{method} {path}: {}", String::from_utf8_lossy(&read)))
}

fn parse(read: &[u8]) -> Result<Answer> {
    let end = read.windows(4).position(|four| four == b"\r\n\r\n").context("no head")?;
    let head = String::from_utf8_lossy(&read[..end]).to_ascii_lowercase();
    let status = head.split(' ').nth(1).context("no status")?.parse()?;
    let header = |name: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(|value| value.split(';').next().unwrap_or_default().trim().to_owned())
    };
    let rest = &read[end + 4..];
    let body = match header("transfer-encoding") {
        Some(_) => unchunked(rest)?,
        None => rest.to_vec(),
    };
    let content_type = header("content-type").unwrap_or_default();
    Ok(Answer { status, content_type, body: String::from_utf8_lossy(&body).into_owned() })
}

fn unchunked(mut rest: &[u8]) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n").context("no size of a chunk")?;
        let size = std::str::from_utf8(&rest[..end])?.split(';').next().unwrap_or_default();
        let size = usize::from_str_radix(size.trim(), 16)?;
        if size == 0 {
            return Ok(body);
        }
        body.extend(rest.get(end + 2..end + 2 + size).context("a chunk is cut off")?);
        rest = rest.get(end + 4 + size..).context("a chunk is cut off")?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_taken_apart_whole_or_in_chunks() {
        let whole =
            parse(b"HTTP/1.1 404 Not Found\r\nContent-Type: a/b; charset=utf-8\r\n\r\n{\"a\":1}");
        let whole = whole.unwrap();
        assert_eq!((whole.status, whole.content_type.as_str()), (404, "a/b"));
        assert_eq!(whole.json()["a"], 1);
        let chunks = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\n\r\n";
        assert_eq!(parse(chunks).unwrap().body, "abcde");
        assert!(parse(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\nabc").is_err());
    }
}
