//! `cargo xt moved`: Apache Kafka behind `highwater proxy`. Kafka's own console tools write and read through the proxy while the
//! broker stops and comes back at another port: a producer and a reader that were there before, and a group that goes on
//! where it was. No client is told of the move.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use peer::apache_kafka::{self, Brokers, JavaRuntime};
use peer::process::{self, Guarded};
use wire::frame::{read_response_head, write_request};
use wire::{ApiKey, MetadataRequest, MetadataResponse, Reader, Writer};

use crate::clients::proxied::Proxy;
use crate::highwater;

/// How long a tool may take.
const TOOL_LIMIT: Duration = Duration::from_secs(180);
/// How long a reader waits for a record, in milliseconds: longer than the broker is away.
const WAIT_MS: &str = "120000";
const TOPIC: &str = "moved";
/// Records, of which the second half is written when the broker is elsewhere.
const RECORDS: usize = 1000;
/// A version of Metadata that all brokers know.
const METADATA_VERSION: i16 = 5;
/// Bytes of an answer at most: it names one broker.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Runs it; fails if a record is lost, comes twice, or a client sees where the broker is.
pub fn run() -> Result<()> {
    apache_kafka::check()?;
    let java_runtime = JavaRuntime { heap_mib: 512, class_archive: true };
    let mut brokers = apache_kafka::start_sized(1, None, &[], java_runtime)?;
    let elsewhere = highwater::free_port()?;
    let both = format!("{},127.0.0.1:{elsewhere}", brokers.bootstrap());
    let proxy = Proxy::start(&both)?;
    let at = proxy.address.clone();
    let seen = addresses(&at)?;
    ensure!(seen != addresses(&brokers.bootstrap())?, "the proxy says where the broker is");
    let create = ["--create", "--topic", TOPIC, "--partitions", "1"];
    tool(&at, "kafka-topics", &create)?;
    let reader = {
        let at = at.clone();
        thread::spawn(move || read(&at, &["--partition", "0", "--offset", "earliest"], RECORDS))
    };
    let mut producer = producer(&at)?;
    let half = RECORDS / 2;
    write(&mut producer, 0..half)?;
    let group = ["--group", "g", "--from-beginning"];
    ensure!(read(&at, &group, half)? == lines(0..half), "the group read something else before");
    brokers.move_to(0, elsewhere)?;
    write(&mut producer, half..RECORDS)?;
    drop(producer.child().stdin.take());
    let ended = producer.wait(TOOL_LIMIT)?.context("the producer does not end")?;
    ensure!(ended.success(), "the producer failed: {ended}");
    ensure!(
        read(&at, &group, half)? == lines(half..RECORDS),
        "the group read something else after"
    );
    let all = reader.join().expect("a reader does not panic")?;
    ensure!(all == lines(0..RECORDS), "the reader that was there before read something else");
    is_elsewhere(&brokers, elsewhere)?;
    ensure!(addresses(&at)? == seen, "clients see that the broker moved");
    proxy.stop()?;
    println!(
        "moved: {RECORDS} records through the proxy, half of them after Apache Kafka {} came back at another port",
        apache_kafka::VERSION
    );
    brokers.stop()
}

fn is_elsewhere(brokers: &Brokers, port: u16) -> Result<()> {
    let found = addresses(&brokers.bootstrap())?;
    ensure!(found == [format!("127.0.0.1:{port}")], "the broker is not elsewhere: {found:?}");
    Ok(())
}

fn lines(range: Range<usize>) -> String {
    range.map(|number| format!("record {number}\n")).collect()
}

/// Runs a tool to its end; what it wrote.
fn tool(at: &str, name: &str, arguments: &[&str]) -> Result<String> {
    let all = [&["--bootstrap-server", at], arguments].concat();
    let outcome = process::run(&mut apache_kafka::brief_tool(name, &all)?, None, TOOL_LIMIT)?;
    ensure!(outcome.success(), "{name}: {}", outcome.story());
    Ok(outcome.text())
}

/// Reads so many records.
fn read(at: &str, from: &[&str], count: usize) -> Result<String> {
    let count = count.to_string();
    let many = ["--topic", TOPIC, "--max-messages", &count, "--timeout-ms", WAIT_MS];
    tool(at, "kafka-console-consumer", &[from, &many].concat())
}

/// A producer that writes what it is given, line by line, and waits for all replicas.
fn producer(at: &str) -> Result<Guarded> {
    let arguments = ["--bootstrap-server", at, "--topic", TOPIC];
    let mut command = apache_kafka::brief_tool("kafka-console-producer", &arguments)?;
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null());
    Guarded::spawn(&mut command)
}

fn write(producer: &mut Guarded, range: Range<usize>) -> Result<()> {
    let input = producer.child().stdin.as_mut().context("the producer's input is closed")?;
    input.write_all(lines(range).as_bytes())?;
    Ok(input.flush()?)
}

/// Where the brokers are, as an address says.
fn addresses(at: &str) -> Result<Vec<String>> {
    let request = MetadataRequest { topics: Some(Vec::new()), ..MetadataRequest::default() };
    let mut writer = Writer::new();
    write_request(&mut writer, &request, METADATA_VERSION, 1, Some("xtask"))?;
    let mut stream = TcpStream::connect(at)?;
    stream.set_read_timeout(Some(TOOL_LIMIT))?;
    stream.write_all(&writer.into_bytes())?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length) as usize;
    ensure!(length <= ANSWER_BYTES_MAX, "invalid length {length} of an answer");
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer)?;
    let mut reader = Reader::new(&answer);
    read_response_head(&mut reader, ApiKey::Metadata, METADATA_VERSION)?;
    let found = MetadataResponse::decode(&mut reader, METADATA_VERSION)?;
    Ok(found.brokers.iter().map(|broker| format!("{}:{}", broker.host, broker.port)).collect())
}
