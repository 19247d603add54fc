//! `healthcheck`: sends a probe to a broker on this machine, for container images without another program.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use configuration::HostPort;

use super::sources;
use crate::arguments::Healthcheck;
use crate::failure::{Failure, on_output};

/// Bytes of an answer at most: a head and the broker's reasons.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

/// Succeeds if the broker answers the probe with 200.
pub fn run(typed: &Healthcheck) -> Result<ExitCode, Failure> {
    let loaded = sources::load(&typed.sources)?;
    let (config, _) = loaded
        .finish()
        .map_err(|invalid| sources::unusable(&invalid, typed.sources.file.as_deref()))?;
    let at = config.http.bind.as_ref().filter(|at| at.port != 0).ok_or_else(|| {
        Failure::new("cannot probe the broker")
            .detail("http.listener names no port")
            .hint("set http.listener to host:port for the broker and for this command")
    })?;
    if !config.http.is_named {
        return Err(Failure::new("cannot probe the broker")
            .detail("http.listener is not set, so the broker may have moved to a free port")
            .hint("set http.listener to host:port for the broker and for this command"));
    }
    let url = format!("http://{at}{}", typed.probe.path());
    let unreachable = |error: io::Error| {
        Failure::new(format!("no answer from {url}"))
            .detail(error)
            .hint("the broker starts or does not run, or its http.listener has another value")
    };
    let limit = Duration::from_millis(typed.timeout_ms);
    let answer =
        resolved(at).and_then(|at| get(at, typed.probe.path(), limit)).map_err(unreachable)?;
    let (status, body) = parse(&answer).ok_or_else(|| {
        Failure::new(format!("no broker answers at {url}")).detail("the answer is not HTTP")
    })?;
    if status != 200 {
        return Err(Failure::new(format!("the broker is not ready: {url} answers {status}"))
            .detail(body.trim()));
    }
    writeln!(io::stdout(), "ok: {url}").map_err(on_output)?;
    Ok(ExitCode::SUCCESS)
}

/// The address of a listener from this machine: a listener on all interfaces has the loopback address.
fn resolved(at: &HostPort) -> io::Result<SocketAddr> {
    if at.is_wildcard() {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), at.port));
    }
    let host = at.host.trim_start_matches('[').trim_end_matches(']');
    let mut found = (host, at.port).to_socket_addrs()?;
    found.next().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name has no address"))
}

/// Sends a request and reads the answer to its end.
fn get(at: SocketAddr, path: &str, limit: Duration) -> io::Result<String> {
    let start = Instant::now();
    let mut stream = TcpStream::connect_timeout(&at, limit)?;
    stream.set_write_timeout(Some(limit))?;
    // In one piece: a server may answer and close before the rest of a request.
    let request = format!("GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let left = limit.saturating_sub(start.elapsed());
        if left.is_zero() || answer.len() as u64 > ANSWER_BYTES_MAX {
            let limit = limit.as_millis();
            return Err(io::Error::other(format!("the answer is not complete within {limit} ms")));
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(&buffer[..count]),
            // The next turn reports the limit.
            Err(error)
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(error) => return Err(error),
        }
    }
    String::from_utf8(answer).map_err(io::Error::other)
}

/// Status and body of an answer.
fn parse(answer: &str) -> Option<(u16, &str)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.1 ")?.split_whitespace().next()?;
    Some((status.parse().ok()?, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_a_status_and_a_body() {
        assert_eq!(parse("HTTP/1.1 200 OK\r\na: b\r\n\r\n{}"), Some((200, "{}")));
        assert_eq!(parse("HTTP/1.1 503 Service Unavailable\r\n\r\n"), Some((503, "")));
        for text in ["", "HTTP/1.1 200 OK", "HTTP/1.1 x\r\n\r\n", "SSH-2.0\r\n\r\n"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_listener_on_all_interfaces_is_probed_at_the_loopback_address() {
        let of = |text: &str| resolved(&HostPort::parse(text).unwrap()).unwrap().to_string();
        assert_eq!(of(":8080"), "127.0.0.1:8080");
        assert_eq!(of("0.0.0.0:8080"), "127.0.0.1:8080");
        assert_eq!(of("127.0.0.2:8080"), "127.0.0.2:8080");
        assert_eq!(of("[::1]:8080"), "[::1]:8080");
    }
}
