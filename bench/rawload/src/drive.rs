//! The two kinds of load over all connections, on one thread with epoll: open loop (`rate`) and
//! closed loop (`flood`).

use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;
use rustix::event::{Timespec, epoll};
use serde_json::{Map, Value, json};

use crate::connection::Connection;
use crate::latency::Latency;
use crate::request;

/// How long answers may stay out after the last request was due.
const GRACE: Duration = Duration::from_secs(30);
const NOT_LEADER_OR_FOLLOWER: i16 = 6;

/// What both kinds of load send.
#[derive(Args)]
pub struct Load {
    /// Broker, as address:port
    #[arg(long)]
    bootstrap: SocketAddr,
    /// An existing topic
    #[arg(long)]
    topic: String,
    /// Partitions 0 to N-1 take turns over the connections
    #[arg(long, default_value_t = 1)]
    partitions: i32,
    #[arg(long, default_value_t = 1)]
    connections: usize,
    #[arg(long, default_value_t = 1024)]
    record_bytes: usize,
    /// 1, or -1 for all
    #[arg(long, default_value_t = 1, allow_negative_numbers = true)]
    acks: i16,
}

/// Requests of one record each, at a fixed rate.
#[derive(Args)]
pub struct Rate {
    #[command(flatten)]
    load: Load,
    /// Requests a second over all connections
    #[arg(long)]
    rate: f64,
    /// Length of the run, warm-up included
    #[arg(long)]
    seconds: f64,
    /// How much of the start is left out of the latencies
    #[arg(long, default_value_t = 1.0)]
    warmup_seconds: f64,
    /// Requests in flight on each connection at most; what is due then waits, and its latency counts from when it was due
    #[arg(long, default_value_t = usize::MAX, hide_default_value = true)]
    window: usize,
}

/// Requests of whole batches, as fast as the broker answers.
#[derive(Args)]
pub struct Flood {
    #[command(flatten)]
    load: Load,
    #[arg(long)]
    batch_bytes: usize,
    /// Requests in flight on each connection
    #[arg(long, default_value_t = 5)]
    window: usize,
    /// Records to send, rounded up to whole batches
    #[arg(long)]
    records: u64,
    /// Send again what was refused because the broker does not lead the partition yet, as clients do
    #[arg(long)]
    retry_not_leader: bool,
}

/// Runs the open loop; returns the line to print.
pub fn rate(arguments: &Rate) -> Result<String> {
    let mut drive = Drive::open(&arguments.load, 0)?;
    let total = (arguments.seconds * arguments.rate) as u64;
    drive.warmup = Duration::from_secs_f64(arguments.warmup_seconds);
    let intended = |number: u64| Duration::from_secs_f64(number as f64 / arguments.rate);
    let mut sent = 0;
    while sent < total || drive.outstanding() {
        let now = drive.start.elapsed();
        while sent < total && intended(sent) <= now {
            let turn = usize::try_from(sent).expect("counts fit") % drive.connections.len();
            if drive.connections[turn].outstanding() >= arguments.window {
                break;
            }
            drive.connections[turn].send(intended(sent))?;
            sent += 1;
        }
        ensure!(now < intended(total) + GRACE, "answers are missing after {now:.1?}");
        let waits_for_answer = sent == total || intended(sent) <= now;
        let next = if waits_for_answer { now + GRACE } else { intended(sent) };
        drive.wait(next.saturating_sub(drive.start.elapsed()))?;
    }
    drive.line()
}

/// Runs the closed loop; returns the line to print.
pub fn flood(arguments: &Flood) -> Result<String> {
    let mut drive = Drive::open(&arguments.load, arguments.batch_bytes)?;
    drive.retry_not_leader = arguments.retry_not_leader;
    let total = arguments.records.div_ceil(drive.records_per_request);
    let mut sent = 0;
    let mut progress = (0, Instant::now());
    while sent < total + drive.refused || drive.outstanding() {
        let wanted = total + drive.refused;
        for connection in &mut drive.connections {
            while sent < wanted && connection.outstanding() < arguments.window {
                connection.send(drive.start.elapsed())?;
                sent += 1;
            }
        }
        drive.wait(Duration::from_secs(1))?;
        if drive.answered > progress.0 {
            progress = (drive.answered, Instant::now());
        }
        ensure!(progress.1.elapsed() < GRACE, "no answer for {GRACE:?}");
    }
    drive.line()
}

/// All connections, and what they were answered.
struct Drive {
    connections: Vec<Connection>,
    epoll: OwnedFd,
    start: Instant,
    warmup: Duration,
    record_bytes: u64,
    records_per_request: u64,
    /// Answers so far, those with an error included.
    answered: u64,
    failed: u64,
    retry_not_leader: bool,
    /// Answers that are not counted, because their requests are sent again.
    refused: u64,
    /// The last error code, for the message.
    error: i16,
    last_answer: Duration,
    latency: Latency,
}

impl Drive {
    /// Opens all connections; `batch_bytes` 0 stands for one record a batch.
    fn open(load: &Load, batch_bytes: usize) -> Result<Drive> {
        ensure!(load.connections > 0 && load.partitions > 0, "at least one of each");
        // Sleeping until a request is due must not add the kernel's default of 50 µs.
        rustix::thread::set_current_timer_slack(NonZeroU64::new(1_000))?;
        let (batch, records_per_request) = request::batch(load.record_bytes, batch_bytes);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut connections = Vec::with_capacity(load.connections);
        let partitions = (0..load.partitions).cycle();
        for (index, partition) in (0..load.connections).zip(partitions) {
            let frame = request::produce(&load.topic, partition, load.acks, &batch);
            let connection = Connection::open(load.bootstrap, frame)?;
            let events = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
            epoll::add(
                &epoll,
                connection.stream(),
                epoll::EventData::new_u64(index as u64),
                events,
            )?;
            connections.push(connection);
        }
        Ok(Drive {
            connections,
            epoll,
            start: Instant::now(),
            warmup: Duration::ZERO,
            record_bytes: load.record_bytes as u64,
            records_per_request,
            answered: 0,
            failed: 0,
            retry_not_leader: false,
            refused: 0,
            error: 0,
            last_answer: Duration::ZERO,
            latency: Latency::new(),
        })
    }

    fn outstanding(&self) -> bool {
        self.connections.iter().any(|connection| connection.outstanding() > 0)
    }

    /// Waits at most `limit` for sockets, sends and receives what they allow.
    fn wait(&mut self, limit: Duration) -> Result<()> {
        let limit = Timespec::try_from(limit)?;
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); 256];
        let (ready, _) = match epoll::wait(&self.epoll, &mut events, Some(&limit)) {
            Err(rustix::io::Errno::INTR) => return Ok(()),
            outcome => outcome?,
        };
        for event in ready {
            let index = usize::try_from(event.data.u64()).expect("an index of ours");
            self.serve(index)?;
        }
        Ok(())
    }

    fn serve(&mut self, index: usize) -> Result<()> {
        let now = self.start.elapsed();
        let connection = &mut self.connections[index];
        connection.pump()?;
        connection.receive(|intended, error| {
            if error == NOT_LEADER_OR_FOLLOWER && self.retry_not_leader {
                self.refused += 1;
                return;
            }
            self.answered += 1;
            self.last_answer = now;
            if error != 0 {
                self.failed += 1;
                self.error = error;
            } else if intended >= self.warmup {
                self.latency.record(now.saturating_sub(intended));
            }
        })
    }

    fn line(&self) -> Result<String> {
        ensure!(self.failed == 0, "{} requests failed, error code {}", self.failed, self.error);
        let records = self.answered * self.records_per_request;
        let mut line = Map::<String, Value>::new();
        line.insert("records".to_owned(), json!(records));
        line.insert("requests".to_owned(), json!(self.answered));
        line.insert("bytes".to_owned(), json!(records * self.record_bytes));
        line.insert("seconds".to_owned(), json!(self.last_answer.as_secs_f64()));
        self.latency.write(&mut line);
        Ok(Value::Object(line).to_string())
    }
}
