//! Producing over HTTP: connections to a gateway, each with one request under way. All of them share a thread: what they
//! cost is known, and the rest of the machine is the gateway's and the brokers'.

use super::clock::{Alarm, Clock, thread_cpu};
use super::config::{Keys, Payload, Sizes};
use super::recorder::{Errors, note};
use super::report::histogram;
use super::stop::Stop;
use super::values::Values;
use super::{LoadError, runtime};
use crate::stamp::{ANYWHERE, Acknowledged, Stamp, is_stamped};
use crate::web::{Answer, Connection, WebError};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

/// How long a connection that is refused waits before its next request.
const BREATH: Duration = Duration::from_millis(5);

/// Records to be produced over HTTP.
#[derive(Debug, Clone)]
pub struct PostLoad {
    /// The gateway, `host:port`.
    pub gateway: String,
    /// A topic that exists.
    pub topic: String,
    /// Connections, each with one request under way.
    pub connections: u32,
    /// Records of a request: one goes as it is, several in base64.
    pub records_per_request: u32,
    /// How long the values are.
    pub sizes: Sizes,
    /// The keys.
    pub keys: Keys,
    /// How values are filled.
    pub payload: Payload,
    /// What stands behind the question mark, such as `partitioner=random&broker=random`.
    pub query: String,
    /// Records per second of all connections together, at times fixed beforehand; 0: as many as possible.
    pub offered: f64,
    /// Records that count; 0: as many as `time` allows.
    pub records: u64,
    /// For how long requests are sent that count; zero: until `records` are sent.
    pub time: Duration,
    /// For how long before that requests are sent that do not count.
    pub warmup: Duration,
    /// Marks every value for [`verify`](super::verify()), under this number of the run.
    pub stamp: Option<u32>,
    /// Decides keys, lengths and letters.
    pub seed: u64,
}

/// What was produced over HTTP. Counted are requests that were sent behind the warm-up.
#[derive(Debug, Clone)]
pub struct PostReport {
    /// Records sent, the warm-up's included.
    pub sent: u64,
    /// Records acknowledged, the warm-up's included.
    pub acknowledged: u64,
    /// Counted records that were acknowledged.
    pub records: u64,
    /// Bytes of their values.
    pub bytes: u64,
    /// Counted requests.
    pub requests: u64,
    /// From the end of the warm-up to the last answer.
    pub elapsed: Duration,
    /// Intended sending to answer, counted requests, microseconds.
    pub response: Histogram<u64>,
    /// Sending to answer, counted requests, microseconds.
    pub service: Histogram<u64>,
    /// Where the time of counted requests went, together.
    pub steps: Steps,
    /// Records acknowledged in each partition, the warm-up's included.
    pub partitions: BTreeMap<i32, u64>,
    /// Records by the broker that the gateway chose for them, if it chose one; the warm-up's included.
    pub brokers: BTreeMap<i32, u64>,
    /// What was acknowledged, for [`verify`](super::verify()).
    pub acknowledgements: Acknowledged,
    /// CPU time of the thread by `elapsed`.
    pub busiest_share: f64,
    /// Different errors, the first ones, at most ten.
    pub errors: Vec<String>,
}

/// Where the time of requests goes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Steps {
    /// Drawing the records and writing them down, seconds.
    pub read_s: f64,
    /// The gateway's choice of partitions, as it says, seconds.
    pub decide_s: f64,
    /// From there to the acknowledgement, as the gateway says, seconds.
    pub forward_s: f64,
    /// What is left of the time from sending to the answer: HTTP there and back, seconds.
    pub send_s: f64,
}

impl Steps {
    fn add(&mut self, other: Steps) {
        self.read_s += other.read_s;
        self.decide_s += other.decide_s;
        self.forward_s += other.forward_s;
        self.send_s += other.send_s;
    }
}

/// Produces over HTTP, and says how it went. Blocks until the end; [`Stop`] brings it about earlier.
///
/// # Errors
/// The load makes no sense, or a connection fails: a gateway that refuses is in the report, one that is gone is not.
pub fn post(load: &PostLoad, stop: &Stop) -> Result<PostReport, LoadError> {
    check(load)?;
    let runtime = runtime()?;
    let report = runtime.block_on(all(load, stop));
    runtime.shutdown_background();
    report
}

fn check(load: &PostLoad) -> Result<(), LoadError> {
    let wrong = if load.connections == 0 || load.records_per_request == 0 {
        "a load over HTTP needs a connection, and records in a request"
    } else if load.records == 0 && load.time.is_zero() {
        "a load needs a number of records or a time"
    } else if !(load.offered.is_finite() && load.offered >= 0.0) {
        "what is offered is a rate, or 0"
    } else {
        return Ok(());
    };
    Err(LoadError::Usage(wrong.to_owned()))
}

async fn all(load: &PostLoad, stop: &Stop) -> Result<PostReport, LoadError> {
    let (load, cpu) = (Arc::new(load.clone()), thread_cpu());
    let ready = Arc::new(Barrier::new(load.connections as usize));
    let mut posters = JoinSet::new();
    let clock = Clock::start();
    // Connected one after the other: a gateway's queue of those that come is not what is measured.
    for number in 0..load.connections {
        let connection = Connection::open(&load.gateway).await.map_err(|error| unusable(&error))?;
        let poster = Poster::new(load.clone(), connection, number, clock, stop.clone())?;
        posters.spawn(poster.run(ready.clone()));
    }
    let mut report = empty(&load);
    while let Some(ended) = posters.join_next().await {
        let ended = ended.map_err(|error| LoadError::System(error.to_string()))??;
        merge(&mut report, ended);
    }
    let used = thread_cpu().saturating_sub(cpu);
    report.busiest_share = used.as_nanos() as f64 / clock.now_ns().max(1) as f64;
    Ok(report)
}

fn unusable(error: &WebError) -> LoadError {
    LoadError::System(format!("the gateway: {error}"))
}

fn empty(load: &PostLoad) -> PostReport {
    PostReport {
        sent: 0,
        acknowledged: 0,
        records: 0,
        bytes: 0,
        requests: 0,
        elapsed: Duration::ZERO,
        response: histogram(),
        service: histogram(),
        steps: Steps::default(),
        partitions: BTreeMap::new(),
        brokers: BTreeMap::new(),
        acknowledgements: Acknowledged::anywhere(load.stamp.unwrap_or_default()),
        busiest_share: 0.0,
        errors: Vec::new(),
    }
}

fn merge(report: &mut PostReport, other: PostReport) {
    report.sent += other.sent;
    report.acknowledged += other.acknowledged;
    report.records += other.records;
    report.bytes += other.bytes;
    report.requests += other.requests;
    report.elapsed = report.elapsed.max(other.elapsed);
    report.response.add(&other.response).expect("the bounds are the same");
    report.service.add(&other.service).expect("the bounds are the same");
    report.steps.add(other.steps);
    for (of, by) in
        [(&mut report.partitions, other.partitions), (&mut report.brokers, other.brokers)]
    {
        by.into_iter().for_each(|(place, count)| *of.entry(place).or_default() += count);
    }
    report.acknowledgements.absorb(other.acknowledgements);
    let mut errors = Errors(std::mem::take(&mut report.errors));
    other.errors.iter().for_each(|error| errors.add(error));
    report.errors = errors.0;
}

/// Where a record is, as an answer says.
#[derive(Deserialize)]
struct Placed {
    partition: Option<i32>,
    offset: Option<i64>,
    broker: Option<i32>,
    error: Option<String>,
}

/// An answer to several records.
#[derive(Deserialize)]
struct Several {
    offsets: Vec<Placed>,
}

/// One connection.
struct Poster {
    load: Arc<PostLoad>,
    connection: Connection,
    number: u32,
    clock: Clock,
    stop: Stop,
    alarm: Alarm,
    values: Values,
    /// The number of the next record of this connection.
    next: u64,
    head: String,
    body: Vec<u8>,
    request: Vec<u8>,
    report: PostReport,
    errors: Errors,
}

impl Poster {
    fn new(
        load: Arc<PostLoad>,
        connection: Connection,
        number: u32,
        clock: Clock,
        stop: Stop,
    ) -> Result<Poster, LoadError> {
        let seed = load.seed.wrapping_mul(0x9e37_79b9).wrapping_add(u64::from(number));
        Ok(Poster {
            connection,
            number,
            clock,
            stop,
            alarm: Alarm::new().map_err(|error| LoadError::System(error.to_string()))?,
            values: Values::new(&load.sizes, &load.keys, load.payload, seed),
            next: 0,
            head: String::new(),
            body: Vec::new(),
            request: Vec::new(),
            report: empty(&load),
            errors: Errors::default(),
            load,
        })
    }

    async fn run(mut self, ready: Arc<Barrier>) -> Result<PostReport, LoadError> {
        ready.wait().await;
        self.clock = self.clock.later();
        let from_ns = self.load.warmup.as_nanos() as u64;
        self.post_until(from_ns, u64::MAX, false).await?;
        let count = match self.load.records {
            0 => u64::MAX,
            all => share(all, u64::from(self.load.connections), u64::from(self.number)),
        };
        let end_ns = match self.load.time {
            Duration::ZERO => u64::MAX,
            time => from_ns + time.as_nanos() as u64,
        };
        self.post_until(end_ns, count, true).await?;
        self.report.elapsed = Duration::from_nanos(self.clock.now_ns().saturating_sub(from_ns));
        self.report.acknowledgements.sent = self.report.sent;
        self.report.errors = self.errors.0;
        Ok(self.report)
    }

    /// Sends requests until one would be due at `end_ns`, or `count` records more were sent.
    async fn post_until(&mut self, end_ns: u64, count: u64, counts: bool) -> Result<(), LoadError> {
        let last = self.next.saturating_add(count);
        while self.next < last && !self.stop.is_stopped() {
            let due_ns = self.due_ns();
            if due_ns >= end_ns || self.clock.now_ns() >= end_ns {
                break;
            }
            let wait_ns = due_ns.saturating_sub(self.clock.now_ns());
            if wait_ns > 0 {
                self.alarm.wait(wait_ns).await.map_err(|e| LoadError::System(e.to_string()))?;
            }
            let records = u64::from(self.load.records_per_request).min(last - self.next);
            self.one(due_ns, records, counts).await?;
        }
        Ok(())
    }

    /// When the next request is due, nanoseconds of the clock.
    fn due_ns(&self) -> u64 {
        if self.load.offered <= 0.0 {
            return self.clock.now_ns();
        }
        // Connections take turns, so that together they keep the pace evenly.
        let every_ns = 1e9 / self.load.offered;
        let records = self.next as f64 * f64::from(self.load.connections);
        let turn = f64::from(self.number) * f64::from(self.load.records_per_request);
        ((records + turn) * every_ns) as u64
    }

    async fn one(&mut self, due_ns: u64, records: u64, counts: bool) -> Result<(), LoadError> {
        let began_ns = self.clock.now_ns();
        let first = self.next;
        let bytes = self.write(due_ns, records);
        let sent_ns = self.clock.now_ns();
        let answer = self.connection.ask(&self.request).await.map_err(|error| unusable(&error))?;
        let answered_ns = self.clock.now_ns();
        let acknowledged = self.take(&answer, first, records);
        if acknowledged == 0 {
            tokio::time::sleep(BREATH).await;
        }
        if counts {
            let report = &mut self.report;
            report.requests += 1;
            report.records += acknowledged;
            report.bytes += bytes * acknowledged / records;
            note(&mut report.response, (answered_ns - due_ns.min(sent_ns)) / 1000, 1);
            note(&mut report.service, (answered_ns - sent_ns) / 1000, 1);
            let step_s = |step: &str| answer.head.timing_ms(step).unwrap_or(0.0) / 1e3;
            let (decide_s, forward_s) = (step_s("decide"), step_s("forward"));
            let whole_s = (answered_ns - sent_ns) as f64 / 1e9;
            report.steps.add(Steps {
                read_s: (sent_ns - began_ns) as f64 / 1e9,
                decide_s,
                forward_s,
                send_s: (whole_s - decide_s - forward_s).max(0.0),
            });
        }
        Ok(())
    }

    /// Writes a request of so many records down; bytes of their values.
    fn write(&mut self, due_ns: u64, records: u64) -> u64 {
        self.body.clear();
        self.head.clear();
        let is_single = self.load.records_per_request == 1;
        let (topic, query) = (&self.load.topic, &self.load.query);
        let path = if is_single { "/raw" } else { "" };
        write!(
            self.head,
            "POST /topics/{topic}{path}?{query} HTTP/1.1\r\nhost: {}\r\n",
            self.load.gateway
        )
        .expect("a String takes every write");
        let mut bytes = 0;
        for at in 0..records {
            self.draw(due_ns);
            bytes += self.values.value().len() as u64;
            if is_single {
                if let Some(key) = self.values.key() {
                    self.head.push_str("x-key-base64: ");
                    STANDARD.encode_string(key, &mut self.head);
                    self.head.push_str("\r\n");
                }
                self.body.extend(self.values.value());
            } else {
                self.body.extend(if at == 0 { &b"{\"records\":["[..] } else { b"," });
                let mut record = String::from("{");
                if let Some(key) = self.values.key() {
                    record.push_str("\"key\":\"");
                    STANDARD.encode_string(key, &mut record);
                    record.push_str("\",");
                }
                record.push_str("\"value\":\"");
                STANDARD.encode_string(self.values.value(), &mut record);
                record.push_str("\"}");
                self.body.extend(record.as_bytes());
            }
        }
        if !is_single {
            self.body.extend(b"]}");
            self.head.push_str("content-type: application/vnd.kafka.binary.v2+json\r\n");
        }
        write!(self.head, "content-length: {}\r\n\r\n", self.body.len())
            .expect("a String takes every write");
        self.request.clear();
        self.request.extend(self.head.as_bytes());
        self.request.extend(&self.body);
        self.report.sent += records;
        bytes
    }

    /// Draws the next record and marks it.
    fn draw(&mut self, due_ns: u64) {
        self.values.draw();
        if let Some(run) = self.load.stamp.filter(|_| is_stamped(self.values.value().len())) {
            let time_ns = self.clock.unix_ns(due_ns);
            let stamp = Stamp { run, producer: self.number, sequence: self.next, time_ns };
            self.values.stamp(&stamp, ANYWHERE);
        }
        self.next += 1;
    }

    /// Takes down what an answer to the records from number `first` on says; how many were acknowledged.
    fn take(&mut self, answer: &Answer, first: u64, records: u64) -> u64 {
        let placed = match self.load.records_per_request {
            1 => serde_json::from_slice(&answer.body).map(|one: Placed| vec![one]),
            _ => serde_json::from_slice(&answer.body).map(|all: Several| all.offsets),
        };
        let placed = match placed {
            Ok(placed) if answer.head.status == 200 && placed.len() as u64 == records => placed,
            _ => {
                let words = String::from_utf8_lossy(&answer.body);
                self.errors.add(&format!("{}: {words}", answer.head.status));
                return 0;
            }
        };
        let mut acknowledged = 0;
        for (number, placed) in (first..).zip(placed) {
            let (Some(partition), Some(_)) = (placed.partition, placed.offset) else {
                self.errors.add(&placed.error.unwrap_or_default());
                continue;
            };
            acknowledged += 1;
            *self.report.partitions.entry(partition).or_default() += 1;
            if let Some(broker) = placed.broker {
                *self.report.brokers.entry(broker).or_default() += 1;
            }
            let safe = &mut self.report.acknowledgements;
            safe.insert(&self.load.topic, partition, self.number, number, number + 1);
        }
        self.report.acknowledged += acknowledged;
        acknowledged
    }
}

/// How many of `all` records are those of one connection.
fn share(all: u64, connections: u64, number: u64) -> u64 {
    all / connections + u64::from(number < all % connections)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_refused() {
        let load = PostLoad {
            gateway: "x:1".to_owned(),
            topic: "t".to_owned(),
            connections: 1,
            records_per_request: 1,
            sizes: Sizes::Fixed(10),
            keys: Keys::None,
            payload: Payload::Reuse,
            query: String::new(),
            offered: 0.0,
            records: 1,
            time: Duration::ZERO,
            warmup: Duration::ZERO,
            stamp: None,
            seed: 0,
        };
        assert_eq!(check(&load), Ok(()));
        for wrong in [
            PostLoad { connections: 0, ..load.clone() },
            PostLoad { records_per_request: 0, ..load.clone() },
            PostLoad { records: 0, ..load.clone() },
            PostLoad { offered: f64::NAN, ..load.clone() },
        ] {
            assert!(matches!(check(&wrong), Err(LoadError::Usage(_))), "{wrong:?}");
        }
    }

    #[test]
    fn every_record_is_of_one_connection() {
        for (all, connections) in [(0, 3), (2, 3), (7, 3), (9, 3)] {
            let shares = (0..connections).map(|number| share(all, connections, number));
            assert_eq!(shares.sum::<u64>(), all);
        }
    }
}
