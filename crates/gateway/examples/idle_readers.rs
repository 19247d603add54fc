//! What readers of an event stream that say nothing cost a gateway: opens many, and prints the resident memory of the
//! gateway's process before and after.
//!
//! ```text
//! cargo run --release -p gateway --example idle_readers -- 127.0.0.1:8082 PID 19000 '/topics/t/events'
//! ```

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

/// Resident memory of a process, in KiB.
fn resident_kib(pid: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is there");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux says so");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Opens a stream, and waits for its first id.
fn open(address: &str, target: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("the gateway listens");
    write!(stream, "GET {target} HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("a request is small");
    let (mut said, mut buffer) = (Vec::new(), [0; 4096]);
    while !said.windows(4).any(|window| window == b"\nid:") {
        let read = stream.read(&mut buffer).expect("the gateway answers");
        assert!(read > 0, "{}", String::from_utf8_lossy(&said));
        said.extend_from_slice(&buffer[..read]);
    }
    stream
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, pid, count, target] = &arguments[..] else {
        panic!("expected ADDRESS PID COUNT TARGET");
    };
    let count: u64 = count.parse().expect("a number of readers");
    let _first = open(address, target);
    let before = resident_kib(pid);
    let mut readers = Vec::new();
    for done in 1..=count {
        readers.push(open(address, target));
        if done % 1000 == 0 || done == count {
            let now = resident_kib(pid);
            let each = (now.saturating_sub(before)) as f64 / done as f64;
            println!("{done} readers: {now} KiB resident, {each:.2} KiB for each");
        }
    }
}
