//! Load on a gateway: as many connections as are wanted, each with one request under way, for some seconds.
//!
//! ```text
//! cargo run --release --example http_load -p gateway -- 127.0.0.1:8082 TOPIC [CONNECTIONS [SECONDS [BYTES]]]
//! ```
//!
//! Prints requests per second, latencies, and what was answered with another status than 200.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What one connection saw.
#[derive(Default)]
struct Seen {
    took: Vec<Duration>,
    statuses: BTreeMap<u16, u64>,
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, topic, rest @ ..] = arguments.as_slice() else {
        eprintln!("ADDRESS TOPIC [CONNECTIONS [SECONDS [BYTES]]]");
        std::process::exit(2);
    };
    let number = |at: usize, default| {
        rest.get(at).and_then(|text: &String| text.parse::<u64>().ok()).unwrap_or(default)
    };
    let (connections, seconds, bytes) = (number(0, 256), number(1, 10), number(2, 100));
    let request = format!(
        "POST /topics/{topic}/raw HTTP/1.1\r\nhost: localhost\r\ncontent-length: {bytes}\r\n\r\n{}",
        "x".repeat(bytes as usize)
    );
    let request: &'static [u8] = Box::leak(request.into_bytes().into_boxed_slice());
    // One thread: what it takes is known, and the rest of the machine is the gateway's and the broker's.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (seen, elapsed) = runtime.block_on(async {
        let began = Instant::now();
        let until = began + Duration::from_secs(seconds);
        let clients: Vec<_> = (0..connections)
            .map(|_| tokio::spawn(client(address.clone(), request, until)))
            .collect();
        let mut seen = Vec::new();
        for client in clients {
            seen.push(client.await.map_err(io::Error::other)??);
        }
        Ok::<_, io::Error>((seen, began.elapsed()))
    })?;
    report(&seen, elapsed);
    Ok(())
}

async fn client(address: String, request: &'static [u8], until: Instant) -> io::Result<Seen> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (mut seen, mut buffer) = (Seen::default(), vec![0; 4096]);
    while Instant::now() < until {
        let began = Instant::now();
        stream.write_all(request).await?;
        let status = answer(&mut stream, &mut buffer).await?;
        seen.took.push(began.elapsed());
        *seen.statuses.entry(status).or_default() += 1;
    }
    Ok(seen)
}

/// Reads one answer; its status.
async fn answer(stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<u16> {
    let mut have = 0;
    loop {
        have += match stream.read(&mut buffer[have..]).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => read,
        };
        let text = String::from_utf8_lossy(&buffer[..have]);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head
            .split("content-length: ")
            .nth(1)
            .and_then(|rest| rest.split("\r\n").next().unwrap_or_default().parse::<usize>().ok());
        if body.len() >= length.unwrap_or(0) {
            let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
            return status.ok_or_else(|| io::Error::other("an answer without status"));
        }
    }
}

fn report(seen: &[Seen], elapsed: Duration) {
    let mut took: Vec<Duration> = seen.iter().flat_map(|seen| seen.took.iter().copied()).collect();
    took.sort_unstable();
    let at =
        |part: f64| took.get(((took.len() as f64) * part) as usize).copied().unwrap_or_default();
    let rate = took.len() as f64 / elapsed.as_secs_f64();
    println!("{rate:.0} requests/s; p50 {:?}, p99 {:?}, p99.9 {:?}", at(0.5), at(0.99), at(0.999));
    let mut statuses: BTreeMap<u16, u64> = BTreeMap::new();
    for (status, count) in seen.iter().flat_map(|seen| &seen.statuses) {
        *statuses.entry(*status).or_default() += count;
    }
    for (status, count) in statuses.iter().filter(|(status, _)| **status != 200) {
        println!("{status}: {count}");
    }
}
