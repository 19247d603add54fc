//! `produce`: each line becomes a record, byte for byte, and counts only once it is acknowledged.

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Read};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use client::ClientError;
use client::producer::{BatchReport, Producer, ProducerConfig, Record, TopicProducer};
use model::Compression;
use tokio::sync::mpsc;

use crate::amounts::{counted, size};
use crate::arguments::{Acks, Codec, Produce};
use crate::commands::cluster_access::{block_on, connect, failed, topic_to_write};
use crate::commands::start::Signals;
use crate::commands::waiting::Waiting;
use crate::failure::Failure;
use crate::lines::{Chunks, key_and_value, lines};

/// Large batches: they cost less, and lines of a file come faster than they can linger.
const BATCH_BYTES: usize = 256 << 10;
/// Whether a record is too large is the broker's to say.
const REQUEST_BYTES_MAX: usize = 16 << 20;
const BUFFER_BYTES: usize = 64 << 20;
/// Chunks of lines that are read ahead.
const CHUNKS_AHEAD: usize = 4;
/// How often it is looked whether anything was acknowledged.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Sends everything and reports on standard error. Fails if anything was not acknowledged.
pub fn run(typed: &Produce) -> Result<ExitCode, Failure> {
    let config = config(typed)?;
    let input = open(typed)?;
    block_on(produce(typed, config, input))
}

fn config(typed: &Produce) -> Result<ProducerConfig, Failure> {
    let all = typed.acks == Acks::All;
    if typed.idempotent == Some(true) && !all {
        return Err(Failure::new("an idempotent producer needs --acks all")
            .hint("leave out --idempotent, or leave out --acks"));
    }
    Ok(ProducerConfig {
        acks: match typed.acks {
            Acks::None => 0,
            Acks::Leader => 1,
            Acks::All => -1,
        },
        idempotence: typed.idempotent.unwrap_or(all),
        batch_bytes: BATCH_BYTES,
        buffer_bytes: BUFFER_BYTES,
        request_bytes_max: REQUEST_BYTES_MAX,
        compression: match typed.compression {
            Codec::None => Compression::None,
            Codec::Gzip => Compression::Gzip,
            Codec::Snappy => Compression::Snappy,
            Codec::Lz4 => Compression::Lz4,
            Codec::Zstd => Compression::Zstd,
        },
        block_max: typed.timeout,
        delivery_timeout: typed.timeout,
        ..ProducerConfig::default()
    })
}

fn open(typed: &Produce) -> Result<Box<dyn Read + Send>, Failure> {
    let Some(path) = &typed.file else { return Ok(Box::new(io::stdin())) };
    let unreadable = |error| Failure::new(format!("cannot read {}", path.display())).detail(error);
    File::open(path).map(|file| Box::new(file) as Box<dyn Read + Send>).map_err(unreadable)
}

/// What became of the records; the producer tells it batch by batch.
#[derive(Debug, Default)]
struct Tally {
    acknowledged: u64,
    bytes: u64,
    failed: u64,
    first_error: Option<ClientError>,
}

impl Tally {
    fn count(&mut self, batch: &BatchReport<'_>) {
        let records = u64::try_from(batch.record_count).unwrap_or_default();
        match batch.result {
            Ok(_) => {
                self.acknowledged += records;
                self.bytes += batch.size_bytes as u64;
            }
            Err(error) => {
                self.failed += records;
                self.first_error.get_or_insert_with(|| error.clone());
            }
        }
    }
}

async fn produce(
    typed: &Produce,
    config: ProducerConfig,
    input: Box<dyn Read + Send>,
) -> Result<ExitCode, Failure> {
    let began = Instant::now();
    let tally = Arc::new(Mutex::new(Tally::default()));
    let told = tally.clone();
    let on_batch = move |batch: &BatchReport<'_>| {
        told.lock().unwrap_or_else(PoisonError::into_inner).count(batch);
    };
    let config = ProducerConfig { on_batch: Some(Arc::new(on_batch)), ..config };
    let cannot = |error| failed(format!("cannot produce to {}", typed.topic), &error);
    let cluster = connect(&typed.connection, typed.timeout, true).await?;
    topic_to_write(&cluster, &typed.topic).await?;
    let producer = Producer::new(cluster, config).await.map_err(cannot)?;
    let topic = producer.topic(&typed.topic).await.map_err(cannot)?;
    let mut signals = Signals::listen()
        .map_err(|error| Failure::new("cannot listen for signals").detail(error))?;
    let mut sending = Sending { typed, topic, line: 0 };
    let ended = tokio::select! {
        done = async {
            let sent = sending.send_all(read_ahead(input)).await;
            // What was taken before a failure is still delivered; the tally holds what was not.
            (sent, producer.flush().await)
        } => Some(done),
        never = say_when_stuck(typed, &tally, &producer) => match never {},
        () = signals.next() => None,
    };
    let taken = sending.line;
    let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
    let Some((sent, flushed)) = ended else { return Err(interrupted(&tally, began, taken)) };
    if let Err(error) = flushed {
        tally.first_error.get_or_insert(error);
    }
    report(&tally, began, sent)
}

/// The command was interrupted: the count of acknowledged records, and of those in doubt.
fn interrupted(tally: &Tally, began: Instant, taken: u64) -> Failure {
    count_acknowledged(tally, began);
    let left = taken.saturating_sub(tally.acknowledged + tally.failed);
    let failure = Failure::new(format!("interrupted behind line {taken}"));
    match left {
        0 => failure,
        left => failure.detail(format!("{} may be in the log or not", counted(left, "record"))),
    }
}

/// Says when records wait and nothing is acknowledged.
async fn say_when_stuck(typed: &Produce, tally: &Mutex<Tally>, producer: &Producer) -> Infallible {
    let mut waiting = Waiting::from(Instant::now());
    let mut answered = 0;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let now = Instant::now();
        let told = {
            let tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
            tally.acknowledged + tally.failed
        };
        let all_is_free = producer.free_buffer_bytes() >= BUFFER_BYTES;
        if told != answered || all_is_free {
            answered = told;
            waiting.came(now);
        }
        let (at, patience) = (&typed.connection.bootstrap_server, typed.timeout.as_secs_f64());
        waiting.say(now, || {
            format!(
                "records for {} are not acknowledged by {at}; each is given up after {patience} s",
                typed.topic
            )
        });
    }
}

fn count_acknowledged(tally: &Tally, began: Instant) {
    let Tally { acknowledged, bytes, .. } = *tally;
    let seconds = began.elapsed().as_secs_f64();
    let rate = acknowledged as f64 / seconds;
    anstream::eprintln!(
        "{} acknowledged in {seconds:.2} s ({rate:.0} records/s), {} in batches",
        counted(acknowledged, "record"),
        size(bytes)
    );
}

fn report(tally: &Tally, began: Instant, sent: Result<(), Failure>) -> Result<ExitCode, Failure> {
    count_acknowledged(tally, began);
    match &tally.first_error {
        Some(error) => {
            let failure =
                failed(format!("not acknowledged: {}", counted(tally.failed, "record")), error);
            // What a broker refused for good is not in the log.
            Err(match error.is_retriable() {
                true => failure.hint(
                    "they may be in the log all the same; an idempotent producer never doubles them",
                ),
                false => failure,
            })
        }
        None => sent.map(|()| ExitCode::SUCCESS),
    }
}

/// Reads on a thread of its own: standard input knows no other way.
fn read_ahead(input: Box<dyn Read + Send>) -> mpsc::Receiver<io::Result<Vec<u8>>> {
    let (sender, receiver) = mpsc::channel(CHUNKS_AHEAD);
    std::thread::spawn(move || {
        let mut chunks = Chunks::new(input);
        loop {
            let chunk = match chunks.read() {
                Ok(Some(chunk)) => Ok(chunk),
                Ok(None) => return,
                Err(error) => Err(error),
            };
            let last = chunk.is_err();
            if sender.blocking_send(chunk).is_err() || last {
                return;
            }
        }
    });
    receiver
}

struct Sending<'a> {
    typed: &'a Produce,
    topic: TopicProducer,
    /// The number of the line that was sent last, from 1.
    line: u64,
}

impl Sending<'_> {
    async fn send_all(
        &mut self,
        mut chunks: mpsc::Receiver<io::Result<Vec<u8>>>,
    ) -> Result<(), Failure> {
        let headers: Vec<(&str, Option<&[u8]>)> = self
            .typed
            .headers
            .iter()
            .map(|pair| (pair.key.as_str(), Some(pair.value.as_bytes())))
            .collect();
        while let Some(chunk) = chunks.recv().await {
            let chunk =
                chunk.map_err(|error| Failure::new("cannot read the input").detail(error))?;
            for line in lines(&chunk) {
                self.send(line, &headers).await?;
            }
            // Taking a record rarely waits; let the batches go out between two chunks.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    async fn send(
        &mut self,
        line: &[u8],
        headers: &[(&str, Option<&[u8]>)],
    ) -> Result<(), Failure> {
        self.line += 1;
        let (key, value) = match &self.typed.key_separator {
            None => (None, line),
            Some(separator) => {
                let (key, value) = key_and_value(line, &separator.0).ok_or_else(|| {
                    Failure::new(format!("line {} has no key separator", self.line))
                        .hint("nothing behind it was sent; correct the line and go on from there")
                })?;
                (Some(key), value)
            }
        };
        let partition = self.typed.partition;
        let record =
            Record { key, value: Some(value), headers, timestamp: None, partition, tag: 0 };
        let number = self.line;
        self.topic.send(&record).await.map(|_| ()).map_err(|error| {
            failed(format!("line {number} could not be sent, nor what follows it"), &error)
        })
    }
}
