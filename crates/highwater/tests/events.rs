//! Readers of event streams while gateways and brokers are killed: nothing that was acknowledged is missing, and nothing
//! comes twice but what was promised to.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use client::{Cluster, ClusterConfig, Producer, ProducerConfig, Record};
use serde_json::Value;

const HIGHWATER: &str = env!("CARGO_BIN_EXE_highwater");
/// Gateways and brokers that are killed.
const KILLS: usize = 12;
/// Records that each reader gets between two of them, at least.
const RECORDS: usize = 300;
/// How long anything may take on a machine that is busy with much else.
const PATIENCE: Duration = Duration::from_secs(120);

/// A process of the program, which ends with the test, and what it says.
struct Process(Child);

impl Process {
    /// Starts it, and waits until it says where it listens.
    fn start(arguments: &[&str], says: &str) -> (Process, String) {
        let mut command = Command::new(HIGHWATER);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let found = |line: std::io::Result<String>| Some(line.ok()?.strip_prefix(says)?.to_owned());
        let address = lines.find_map(found).expect("it listens");
        // The rest is read too, so that nothing waits for a reader.
        thread::spawn(move || drain(lines));
        (Process(child), address)
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn drain(lines: std::io::Lines<BufReader<ChildStdout>>) -> usize {
    lines.count()
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn broker(data: &Path, address: &str) -> (Process, String) {
    let listeners = format!("listeners=PLAINTEXT://{address}");
    let arguments = [
        "start",
        "--data-dir",
        data.to_str().unwrap(),
        "--set",
        &listeners,
        "--set",
        "http.listener=",
        "--set",
        "gateway.listener=",
    ];
    Process::start(&arguments, "broker: listening on ")
}

fn gateway(broker: &str) -> (Process, String) {
    let arguments = [
        "gateway",
        "-b",
        broker,
        "--listener",
        "127.0.0.1:0",
        "--set",
        "gateway.connections.per.address.max=1000",
    ];
    Process::start(&arguments, "gateway: http://")
}

/// What a reader has had: for each partition the offsets in their order, with the number of the connection.
#[derive(Default)]
struct Had {
    offsets: BTreeMap<i64, Vec<(usize, i64)>>,
    count: usize,
    gaps: Vec<String>,
}

/// Reads until told to stop, and comes again with the last id whenever the stream ends.
fn read(target: &str, gateway: &Mutex<String>, had: &Mutex<Had>, stop: &AtomicBool) {
    let mut id = String::new();
    for connection in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let address = gateway.lock().unwrap().clone();
        // However it ends: the process may be gone.
        let _ = read_once(&address, target, &mut id, connection, had, stop);
        thread::sleep(Duration::from_millis(20));
    }
}

fn read_once(
    address: &str,
    target: &str,
    id: &mut String,
    connection: usize,
    had: &Mutex<Had>,
    stop: &AtomicBool,
) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let last = if id.is_empty() { String::new() } else { format!("last-event-id: {id}\r\n") };
    // HTTP/1.0: the body is not in chunks, and lines can be read as they are.
    write!(stream, "GET {target} HTTP/1.0\r\nhost: localhost\r\n{last}\r\n")?;
    let mut lines = BufReader::new(stream).lines();
    let status = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    assert!(status.is_empty() || status.contains(" 200 "), "{status} {id}");
    let (mut kind, mut data, mut next_id) = (String::new(), None, id.clone());
    for line in lines {
        let line = line?;
        match line.split_once(": ") {
            Some(("id", value)) => value.clone_into(&mut next_id),
            Some(("event", value)) => value.clone_into(&mut kind),
            Some(("data", value)) => data = Some(value.to_owned()),
            _ => {}
        }
        // An event that did not come whole did not come.
        if line.is_empty() {
            next_id.clone_into(id);
            if let Some(data) = data.take() {
                had.lock().unwrap().take(&kind, &data, connection);
            }
            kind.clear();
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
    }
    Ok(())
}

impl Had {
    fn take(&mut self, kind: &str, data: &str, connection: usize) {
        if kind.is_empty() {
            let record: Value = serde_json::from_str(data).unwrap();
            let number = |name: &str| record[name].as_i64().unwrap();
            self.offsets
                .entry(number("partition"))
                .or_default()
                .push((connection, number("offset")));
            self.count += 1;
        } else {
            self.gaps.push(format!("{kind}: {data}"));
        }
    }

    fn reaches(&self, ends: &BTreeMap<i64, i64>) -> bool {
        ends.iter().all(|(partition, end)| {
            let offsets = self.offsets.get(partition).map(Vec::as_slice).unwrap_or_default();
            offsets.iter().any(|(_, offset)| offset + 1 == *end)
        })
    }
}

/// Writes to both topics until told to stop; the end of each partition by then.
async fn write(broker: &str, stop: &AtomicBool) -> [BTreeMap<i64, i64>; 2] {
    let cluster = Cluster::connect(ClusterConfig::new(broker)).await.unwrap();
    let config = ProducerConfig { linger: Duration::ZERO, ..ProducerConfig::default() };
    let producer = Producer::new(cluster, config).await.unwrap();
    let mut ends = [BTreeMap::new(), BTreeMap::new()];
    for i in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        for (at, topic, partition) in [(0, "one", 0), (1, "four", i % 4)] {
            let value = i.to_string();
            let record = Record {
                value: Some(value.as_bytes()),
                partition: Some(partition),
                ..Record::default()
            };
            let sent = producer.send(topic, &record).await.unwrap();
            // One at a time, so that there are many batches.
            let offset = sent.wait().await.unwrap().unwrap().0;
            ends[at].insert(i64::from(partition), offset + 1);
        }
    }
    ends
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}: not in time");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The blocks of a stream that ends, each without the empty line behind it.
fn blocks(address: &str, target: &str, id: &str) -> Vec<String> {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {target} HTTP/1.0\r\nlast-event-id: {id}\r\n\r\n").unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    let (head, body) = said.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    body.split_terminator("\n\n").map(str::to_owned).collect()
}

fn produce(broker: &str, values: std::ops::Range<usize>) {
    let mut command = Command::new(HIGHWATER);
    command.args(["produce", "one", "-b", broker]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    let lines: String = values.map(|i| format!("{i}\n")).collect();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_reader_hears_that_what_it_has_read_was_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let (mut broker_process, address) = broker(&data, "127.0.0.1:0");
    let mut command = Command::new(HIGHWATER);
    command.args(["topic", "create", "one", "-b", &address]);
    assert!(command.output().unwrap().status.success());
    produce(&address, 0..10);
    broker_process.kill();
    // Its leader begins another leader epoch.
    let (_broker, _) = broker(&data, &address);
    produce(&address, 10..20);
    let (_gateway, at) = gateway(&address);
    let all = blocks(&at, "/topics/one/events?from=earliest&until=end", "");
    let epoch = |offset: usize| {
        let id = all.iter().find_map(|block| block.strip_prefix(&format!("id: one/0@{offset}.")));
        id.unwrap_or_else(|| panic!("{all:?}")).split_once('.').unwrap().0.to_owned()
    };
    let (before, after) = (epoch(9), epoch(10));
    assert!(before.parse::<i32>().unwrap() < after.parse::<i32>().unwrap(), "{before} {after}");
    // As if the old leader had told of records that the new one never had.
    let told = format!("one/0@12.{before}");
    let blocks = blocks(&at, "/topics/one/events?until=end&limit=2", &told);
    let gap = "event: gap\ndata: {\"topic\":\"one\",\"partition\":0,\"reason\":\"cut\",\"from\":13,\"to\":10}";
    assert_eq!(blocks[1], gap, "{blocks:?}");
    assert!(blocks[3].ends_with("data: 10") && blocks[4].ends_with("data: 11"), "{blocks:?}");
}

/// Memory of a process, in bytes.
#[cfg(target_os = "linux")]
fn resident_bytes(process: &Process) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.0.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

#[cfg(target_os = "linux")]
#[test]
fn a_reader_that_waits_costs_a_few_kilobytes() {
    // Fewer than files may be open in one process by default.
    const READERS: usize = 800;
    let folder = tempfile::tempdir().unwrap();
    let (_broker, address) = broker(&folder.path().join("data"), "127.0.0.1:0");
    let mut command = Command::new(HIGHWATER);
    command.args(["topic", "create", "one", "-b", &address]);
    assert!(command.output().unwrap().status.success());
    let (gateway, at) = gateway(&address);
    let open = || {
        let mut stream = TcpStream::connect(&at).unwrap();
        write!(stream, "GET /topics/one/events HTTP/1.0\r\n\r\n").unwrap();
        let mut lines = BufReader::with_capacity(256, stream).lines().map(Result::unwrap);
        assert!(lines.any(|line| line.starts_with("id: ")));
        lines
    };
    // What is made once is made by then.
    let mut readers: Vec<_> = (0..50).map(|_| open()).collect();
    let before = resident_bytes(&gateway);
    readers.extend((0..READERS).map(|_| open()));
    let each = (resident_bytes(&gateway) - before) / READERS;
    assert!(each <= 6 * 1024, "{each} bytes for each reader");
    drop(readers);
}

#[test]
fn readers_miss_nothing_while_gateways_and_brokers_are_killed() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let (mut broker_process, address) = broker(&data, "127.0.0.1:0");
    for (topic, partitions) in [("one", "1"), ("four", "4")] {
        let mut command = Command::new(HIGHWATER);
        command.args(["topic", "create", topic, "-p", partitions, "-b", &address]);
        assert!(command.output().unwrap().status.success());
    }
    let (mut gateway_process, at) = gateway(&address);
    let at = Arc::new(Mutex::new(at));
    let [stop_reading, stop_writing] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let readers = ["/topics/one/events", "/topics/four/events", "/topics/four/events?id=every"];
    let had: Vec<_> = readers.iter().map(|_| Arc::new(Mutex::new(Had::default()))).collect();
    let mut threads = Vec::new();
    for (target, had) in readers.iter().zip(&had) {
        let separator = if target.contains('?') { '&' } else { '?' };
        let target = format!("{target}{separator}from=earliest&data=record");
        let (at, had, stop) = (Arc::clone(&at), Arc::clone(had), Arc::clone(&stop_reading));
        threads.push(thread::spawn(move || read(&target, &at, &had, &stop)));
    }
    let writer = {
        let (address, stop) = (address.clone(), Arc::clone(&stop_writing));
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(write(&address, &stop))
        })
    };
    let counts = || had.iter().map(|had| had.lock().unwrap().count).collect::<Vec<_>>();
    for kill in 0..KILLS {
        let before = counts();
        wait_until("records for every reader", || {
            counts().iter().zip(&before).all(|(now, before)| *now >= before + RECORDS)
        });
        if kill % 2 == 0 {
            gateway_process.kill();
            let (process, listens) = gateway(&address);
            gateway_process = process;
            *at.lock().unwrap() = listens;
        } else {
            broker_process.kill();
            (broker_process, _) = broker(&data, &address);
        }
    }
    stop_writing.store(true, Ordering::Relaxed);
    let [of_one, of_four] = writer.join().unwrap();
    for (had, ends) in had.iter().zip([&of_one, &of_four, &of_four]) {
        wait_until("the end of every log", || had.lock().unwrap().reaches(ends));
    }
    stop_reading.store(true, Ordering::Relaxed);
    gateway_process.kill();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    for ((target, had), ends) in readers.iter().zip(&had).zip([&of_one, &of_four, &of_four]) {
        let had = had.lock().unwrap();
        assert_eq!(had.gaps, [""; 0], "{target}");
        let may_repeat = *target == "/topics/four/events";
        for (partition, end) in ends {
            check(target, *partition, &had.offsets[partition], *end, may_repeat);
        }
    }
}

/// Offsets follow each other; where they may repeat, a new connection may begin earlier.
fn check(target: &str, partition: i64, offsets: &[(usize, i64)], end: i64, may_repeat: bool) {
    let (mut next, mut connection) = (0, 0);
    for &(now, offset) in offsets {
        let is_repeat = may_repeat && now != connection && offset < next;
        assert!(offset == next || is_repeat, "{target} {partition}: {offset} in place of {next}");
        (next, connection) = (offset + 1, now);
    }
    assert_eq!(next, end, "{target} {partition}");
}
