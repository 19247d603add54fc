//! Subscribers of a gateway: streams of server-sent events or WebSockets, of which every record is looked at. All share a
//! thread.
//!
//! Values come in base64, because marks are not text; an event does not say which partition its record is in, so that is
//! found by the mark.

use super::clock::{Clock, thread_cpu};
use super::config::ProduceLoad;
use super::recorder::{Errors, note};
use super::report::{ProduceReport, histogram};
use super::run::Producers;
use super::stop::Stop;
use super::{LoadError, merge, runtime};
use crate::stamp::{Checker, Findings, LONG_BYTES, Stamp};
use crate::web::{
    Connection, Event, EventParser, FrameParser, Reading, Said, WebError, opening, write_pong,
    write_text,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use serde::Deserialize;
use std::borrow::Cow;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How often a subscriber to whom nothing comes looks whether all is over.
const LOOK: Duration = Duration::from_millis(50);
/// How long a gateway may take to begin a stream.
const BEGIN: Duration = Duration::from_secs(30);

/// How records are pushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushForm {
    /// Server-sent events.
    Events,
    /// A WebSocket in Pulsar's shape, of a reader that acknowledges each message.
    WebSocket {
        /// Messages that may be on the way without an acknowledgement, 1 to 10,000.
        credit: u32,
    },
}

/// Records that are to be pushed.
#[derive(Debug, Clone)]
pub struct PushLoad {
    /// How.
    pub form: PushForm,
    /// The gateway, `host:port`.
    pub gateway: String,
    /// The topic; it is read from its beginning on.
    pub topic: String,
    /// How many partitions it has.
    pub partitions: i32,
    /// Subscribers, each with a stream of all records.
    pub subscribers: u32,
    /// A subscriber ends when it has so many; 0: never. Not looked at by [`pushed`].
    pub records: u64,
    /// It ends when nothing has come to it for so long.
    pub idle: Duration,
    /// Looks for the marks of this run, see [`ProduceLoad::stamp`].
    pub stamp: Option<u32>,
}

/// What came to the subscribers.
#[derive(Debug, Clone)]
pub struct PushReport {
    /// Records of all subscribers together.
    pub records: u64,
    /// Records of the subscriber that got the fewest.
    pub records_min: u64,
    /// Bytes of the values.
    pub bytes: u64,
    /// Bytes of the answers.
    pub wire_bytes: u64,
    /// From the beginning, before there were connections, to the last record.
    pub elapsed: Duration,
    /// From the beginning until every subscriber had its stream.
    pub opened: Duration,
    /// Intended sending to being read, of marked records, microseconds.
    pub end_to_end: Histogram<u64>,
    /// What the marks said to the first subscriber; to the others came the same.
    pub findings: Findings,
    /// Gaps and errors that streams told of, all together.
    pub gaps: u64,
    /// CPU time of the thread by `elapsed`.
    pub busiest_share: f64,
    /// Different errors, the first ones, at most ten.
    pub errors: Vec<String>,
}

/// What the subscribers share.
struct Common {
    load: PushLoad,
    clock: Clock,
    stop: Stop,
    /// Each ends when it has so many records; 0: not yet known, or never.
    target: AtomicU64,
    /// Whether being idle ends them: not while producers run.
    may_idle: AtomicBool,
    /// Since when silence counts, nanoseconds of the clock.
    quiet_from_ns: AtomicU64,
    /// Times of all: one of these takes more memory than all else that a subscriber has.
    end_to_end: Mutex<Histogram<u64>>,
}

impl Common {
    fn new(load: &PushLoad, stop: &Stop, alone: bool) -> Arc<Common> {
        Arc::new(Common {
            load: load.clone(),
            clock: Clock::start(),
            stop: stop.clone(),
            target: AtomicU64::new(if alone { load.records } else { 0 }),
            may_idle: AtomicBool::new(alone),
            quiet_from_ns: AtomicU64::new(0),
            end_to_end: Mutex::new(histogram()),
        })
    }

    fn producers_ended(&self, target: u64) {
        self.quiet_from_ns.store(self.clock.now_ns(), Ordering::Relaxed);
        self.target.store(target, Ordering::Relaxed);
        self.may_idle.store(true, Ordering::Release);
    }

    /// Whether a subscriber has all, or nothing comes any more.
    fn is_over(&self, records: u64, last_ns: u64) -> bool {
        let may_idle = self.may_idle.load(Ordering::Acquire);
        let target = self.target.load(Ordering::Relaxed);
        let heard_ns = last_ns.max(self.quiet_from_ns.load(Ordering::Relaxed));
        let quiet_ns = self.clock.now_ns().saturating_sub(heard_ns);
        let is_quiet = may_idle && quiet_ns >= self.load.idle.as_nanos() as u64;
        (target > 0 && records >= target) || is_quiet || self.stop.is_stopped()
    }
}

/// Reads what is stored, and says how it went. Blocks until the end; [`Stop`] brings it about earlier.
///
/// # Errors
/// A stream cannot be had, or breaks.
pub fn subscribe(load: &PushLoad, stop: &Stop) -> Result<PushReport, LoadError> {
    let (sender, _ready) = mpsc::unbounded_channel();
    all(Common::new(load, stop, true), sender)
}

/// Both together: producers begin when every subscriber has its stream, and subscribers end when each has as many records
/// as were acknowledged, or nothing comes for `idle` after that.
///
/// # Errors
/// As [`subscribe`], and [`produce`](super::produce()).
pub fn pushed(
    produce: &ProduceLoad,
    push: &PushLoad,
    stop: &Stop,
) -> Result<(ProduceReport, PushReport), LoadError> {
    super::run::check_produce(produce)?;
    let common = Common::new(push, stop, false);
    std::thread::scope(|scope| {
        let (sender, mut ready) = mpsc::unbounded_channel();
        let shared = common.clone();
        let builder = std::thread::Builder::new().name("subscribers".to_owned());
        let subscribers = builder
            .spawn_scoped(scope, move || all(shared, sender))
            .map_err(|error| LoadError::System(error.to_string()))?;
        // Ends early when a subscriber fails: it says why.
        let opened = (0..push.subscribers).all(|_| ready.blocking_recv().is_some());
        let produced = match opened {
            true => Producers::begin(scope, produce, stop, || common.clock.later())
                .and_then(Producers::finish),
            false => Err(LoadError::GivenUp),
        };
        let acknowledged = produced.as_ref().map_or(0, |outcomes| merge::acknowledged(outcomes));
        common.producers_ended(acknowledged);
        let read = subscribers.join();
        let read =
            read.unwrap_or_else(|_| Err(LoadError::System("a thread panicked".to_owned())))?;
        Ok((merge::produced(produce, produced?), read))
    })
}

fn all(common: Arc<Common>, ready: mpsc::UnboundedSender<()>) -> Result<PushReport, LoadError> {
    let (runtime, cpu) = (runtime()?, thread_cpu());
    let report = runtime.block_on(async {
        let mut streams = JoinSet::new();
        for number in 0..common.load.subscribers {
            streams.spawn(Subscriber::new(common.clone(), number).run(ready.clone()));
        }
        drop(ready);
        let mut report: Option<PushReport> = None;
        while let Some(ended) = streams.join_next().await {
            let ended = ended.map_err(|error| LoadError::System(error.to_string()))??;
            report = Some(match report {
                None => ended,
                Some(report) => together(report, ended),
            });
        }
        let mut report = report.ok_or(LoadError::Usage("a load needs a subscriber".to_owned()))?;
        let used = thread_cpu().saturating_sub(cpu);
        report.end_to_end = common.end_to_end.lock().expect("no code under it panics").clone();
        report.busiest_share = used.as_nanos() as f64 / report.elapsed.as_nanos().max(1) as f64;
        Ok(report)
    });
    runtime.shutdown_background();
    report
}

fn together(mut one: PushReport, other: PushReport) -> PushReport {
    one.records += other.records;
    one.records_min = one.records_min.min(other.records_min);
    one.bytes += other.bytes;
    one.wire_bytes += other.wire_bytes;
    one.elapsed = one.elapsed.max(other.elapsed);
    one.opened = one.opened.max(other.opened);
    one.findings.absorb(other.findings);
    one.gaps += other.gaps;
    let mut errors = Errors(std::mem::take(&mut one.errors));
    other.errors.iter().for_each(|error| errors.add(error));
    one.errors = errors.0;
    one
}

/// A message of a WebSocket in Pulsar's shape; what is said besides has no id.
#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, rename = "messageId")]
    id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    payload: Option<Cow<'a, str>>,
}

/// Asks for a stream; an answer of another status is an error with its words.
async fn begun<'a>(
    connection: &'a mut Connection,
    request: &str,
    status: u16,
) -> Result<Reading<'a>, WebError> {
    let begun = timeout(BEGIN, connection.begin(request.as_bytes())).await;
    let mut reading = begun.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    if reading.head.status == status {
        return Ok(reading);
    }
    let mut body = Vec::new();
    while reading.piece(|piece| body.extend(piece)).await? {}
    let words = String::from_utf8_lossy(&body);
    Err(io::Error::other(format!("{}: {words}", reading.head.status)).into())
}

/// One stream.
struct Subscriber {
    common: Arc<Common>,
    is_first: bool,
    checker: Option<Checker>,
    value: Vec<u8>,
    records: u64,
    bytes: u64,
    wire_bytes: u64,
    last_ns: u64,
    opened_ns: u64,
    gaps: u64,
    errors: Errors,
}

impl Subscriber {
    fn new(common: Arc<Common>, number: u32) -> Subscriber {
        let is_first = number == 0;
        let checker = common.load.stamp.filter(|_| is_first).map(Checker::new);
        Subscriber {
            common,
            is_first,
            checker,
            value: Vec::new(),
            records: 0,
            bytes: 0,
            wire_bytes: 0,
            last_ns: 0,
            opened_ns: 0,
            gaps: 0,
            errors: Errors::default(),
        }
    }

    async fn run(mut self, ready: mpsc::UnboundedSender<()>) -> Result<PushReport, LoadError> {
        self.stream(ready).await.map_err(|error| {
            let (has, words) = (self.records, "records, then its stream broke");
            LoadError::System(format!("a subscriber had {has} {words}: {error}"))
        })?;
        Ok(PushReport {
            records: self.records,
            records_min: self.records,
            bytes: self.bytes,
            wire_bytes: self.wire_bytes,
            elapsed: Duration::from_nanos(self.last_ns),
            opened: Duration::from_nanos(self.opened_ns),
            // Filled in when all have ended.
            end_to_end: Histogram::new(1).expect("one digit is a precision"),
            findings: self.checker.map(Checker::finish).unwrap_or_default(),
            gaps: self.gaps,
            busiest_share: 0.0,
            errors: self.errors.0,
        })
    }

    async fn stream(&mut self, ready: mpsc::UnboundedSender<()>) -> Result<(), WebError> {
        let common = self.common.clone();
        let mut connection = Connection::open(&common.load.gateway).await?;
        match common.load.form {
            PushForm::Events => self.events(&common, &mut connection, ready).await,
            PushForm::WebSocket { credit } => {
                self.messages(&common, &mut connection, credit, ready).await
            }
        }
    }

    /// Reads a stream of server-sent events to its end.
    async fn events(
        &mut self,
        common: &Common,
        connection: &mut Connection,
        ready: mpsc::UnboundedSender<()>,
    ) -> Result<(), WebError> {
        let PushLoad { topic, gateway, .. } = &common.load;
        let request = format!(
            "GET /topics/{topic}/events?from=earliest&encoding=base64 HTTP/1.1\r\nhost: {gateway}\r\n\r\n"
        );
        let mut reading = begun(connection, &request, 200).await?;
        let (mut parser, mut body, mut ready) = (EventParser::default(), Vec::new(), Some(ready));
        while !common.is_over(self.records, self.last_ns) {
            body.clear();
            let piece = timeout(LOOK, reading.piece(|piece| body.extend(piece))).await;
            let Ok(goes_on) = piece else { continue };
            let now_ns = common.clock.now_ns();
            let has_ended = !goes_on?;
            parser.take(&body, |event| self.take(event, now_ns))?;
            // With its first id a stream has a place in every log.
            if !parser.id().is_empty() && ready.is_some() {
                self.opened_ns = now_ns;
                // Nobody waits for it where nothing is produced meanwhile.
                let _ = ready.take().map(|ready| ready.send(()));
            }
            if has_ended {
                return Err(WebError::Closed);
            }
        }
        self.wire_bytes = reading.wire_bytes();
        Ok(())
    }

    /// Reads from a WebSocket to its end, and acknowledges each message.
    async fn messages(
        &mut self,
        common: &Common,
        connection: &mut Connection,
        credit: u32,
        ready: mpsc::UnboundedSender<()>,
    ) -> Result<(), WebError> {
        let PushLoad { topic, gateway, .. } = &common.load;
        let target = format!(
            "/ws/v2/reader/persistent/public/default/{topic}?messageId=earliest&receiverQueueSize={credit}"
        );
        let mut reading = begun(connection, &opening(&target, gateway), 101).await?;
        self.opened_ns = common.clock.now_ns();
        // Nobody waits for it where nothing is produced meanwhile.
        let _ = ready.send(());
        let (mut parser, mut body, mut answers) = (FrameParser::default(), Vec::new(), Vec::new());
        while !common.is_over(self.records, self.last_ns) {
            body.clear();
            let piece = timeout(LOOK, reading.piece(|piece| body.extend(piece))).await;
            let Ok(goes_on) = piece else { continue };
            let now_ns = common.clock.now_ns();
            let mut has_ended = !goes_on?;
            parser.take(&body, |said| match said {
                Said::Message(text) => self.take_message(text, now_ns, &mut answers),
                Said::Ping(bytes) => write_pong(bytes, &mut answers),
                Said::Close(words) => {
                    let words = words.get(2..).unwrap_or_default();
                    self.errors.add(&String::from_utf8_lossy(words));
                    has_ended = true;
                }
            })?;
            if has_ended {
                return Err(WebError::Closed);
            }
            if !answers.is_empty() {
                reading.send(&answers).await?;
                answers.clear();
            }
        }
        self.wire_bytes = reading.wire_bytes();
        Ok(())
    }

    fn take_message(&mut self, text: &[u8], now_ns: u64, answers: &mut Vec<u8>) {
        match serde_json::from_slice(text) {
            Ok(Message { id: Some(id), payload }) => {
                match payload {
                    Some(payload) => self.take_value(payload.as_bytes(), now_ns),
                    None => self.count(0, now_ns),
                }
                write_text(format!("{{\"messageId\":\"{id}\"}}").as_bytes(), answers);
            }
            Ok(Message { id: None, .. }) => {
                self.gaps += 1;
                self.errors.add(&String::from_utf8_lossy(text));
            }
            Err(error) => self.errors.add(&error),
        }
    }

    fn take(&mut self, event: Event<'_>, now_ns: u64) {
        match event.name {
            b"" => self.take_value(event.data, now_ns),
            b"tombstone" => self.count(0, now_ns),
            name => {
                self.gaps += 1;
                let name = String::from_utf8_lossy(name);
                let data = String::from_utf8_lossy(event.data);
                self.errors.add(&format!("{name}: {data}"));
            }
        }
    }

    /// Takes a value in base64.
    fn take_value(&mut self, base64: &[u8], now_ns: u64) {
        self.value.clear();
        if let Err(error) = STANDARD.decode_vec(base64, &mut self.value) {
            self.errors.add(&error);
            return;
        }
        let stamp = match &mut self.checker {
            Some(checker) => {
                checker.take_from(&self.common.load.topic, self.common.load.partitions, &self.value)
            }
            // What was found once is true for all: the time alone is wanted.
            None if self.is_first || self.common.load.stamp.is_none() => None,
            None => Stamp::find(&self.value, 0..self.common.load.partitions).map(|found| found.1),
        };
        if let Some(stamp) = stamp.filter(|_| self.value.len() >= LONG_BYTES) {
            let now_unix_ns = self.common.clock.unix_ns(now_ns);
            let took_us = now_unix_ns.saturating_sub(stamp.time_ns) / 1000;
            let mut times = self.common.end_to_end.lock().expect("no code under it panics");
            note(&mut times, took_us, 1);
        }
        self.count(self.value.len() as u64, now_ns);
    }

    fn count(&mut self, bytes: u64, now_ns: u64) {
        self.records += 1;
        self.bytes += bytes;
        self.last_ns = now_ns;
    }
}
